"""The tools of the MCP server: each public method of `Tools` is one, with its docstring as its description."""

# The SDK is typed for its own checker.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import shlex
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from ctxkernel.cli.mcp import agent_texts
from ctxkernel.cli.mcp.desk import Desk
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.text import one_line


class Tools:
    """What an agent can do in a notebook."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def notebooks(self, choose: str | None = None) -> Any:
        """List the notebooks with a live kernel. choose: the path of the notebook to work in from now on."""

        async def made() -> str:
            if choose is not None:
                await self._desk.choose(Path(choose).expanduser())
            return await self._desk.listed()

        return await self._told(made())

    async def notebook(self, budget: int = 3000) -> Any:
        """Read the notebook's cells as its file has them, each with its id, and the statement that ran it last."""

        async def made() -> str:
            path = (await self._desk.kernel()).notebook
            if path is None:
                raise BadCommand("the notebook's file is not known here: timeline and statement show what was run")
            try:
                return await self._desk.read(lambda log: agent_texts.notebook_text(log, path, budget))
            except CtxError:  # nothing was run yet
                return agent_texts.refusing(lambda: agent_texts.notebook_text(None, path, budget))

        return await self._told(made())

    async def timeline(self, budget: int = 2000, since: str | None = None) -> Any:
        """List the statements that were executed: id, author, status, time, changes of variables, first line.

        since: only those after this statement, as "s12". In parentheses: on another branch.
        """
        return await self._told(self._desk.read(lambda log: agent_texts.timeline_text(log, budget, since)))

    async def statement(self, id: str, wait: float = 0, budget: int = 2000) -> Any:
        """Read one statement: source, outputs, error, changes, images.

        id: "s12", or the id that run_cell gave. wait: seconds (up to 45) to wait for its end.
        """
        return await self._told(self._desk.statement(id, wait, budget))

    async def projection(self, budget: int = 4000, statement: str | None = None) -> Any:
        """Read what the notebook's own model would be sent: blocks with their tokens, then their text."""
        return await self._told(self._desk.read(lambda log: agent_texts.projection_text(log, statement, budget)))

    async def view(self, name: str, level: int = 1, budget: int = 800, pos: str = "0:0") -> Any:
        """Look at a variable, a file below the notebook's folder, or an output ("s12") within a budget of tokens.

        level: 0 excerpt around pos, 1 structure, 2 summary. pos: a line, a name, "/pattern/", "end".
        """
        return await self._told(self._desk.view(name, level, budget, pos))

    async def diff(self, old: str, new: str | None = None, budget: int = 2000) -> Any:
        """Compare two states ("s12", a name, "0"): variables, outputs, handles. new: default HEAD."""
        return await self._told(self._desk.read(lambda log: agent_texts.diff_text(log, old, new, budget)))

    async def run_cell(
        self, ctx: Context, code: str, cell: str | None = None, revision: str | None = None, wait: float = 20
    ) -> Any:
        """Run Python code in the notebook's kernel as a statement of yours; it may wait for the person's approval.

        cell: the id of a code cell that the code replaces in the notebook (default: none). revision: HEAD as you know
        it (default: as told last); if others changed what the code uses since, it is not run. wait: seconds (up to 45)
        for the result; a longer cell goes on, and statement tells its end.
        """
        return await self._told(self._desk.run(_agent(ctx), code, wait, revision, cell))

    async def _command(self, ctx: Context, *words: str, wait: float = 20) -> Any:
        line = "%ctx " + " ".join(map(shlex.quote, words))
        return await self._told(self._desk.run(_agent(ctx), line, wait, ""))

    async def goto(self, ctx: Context, id: str, wait: float = 20) -> Any:
        """Return to the state after a statement ("s12", a name, "0": the start). The later branch is kept."""
        return await self._command(ctx, "goto", id, wait=wait)

    async def undo(self, ctx: Context, count: int = 1, wait: float = 20) -> Any:
        """Take back the last statements, yours or others'; they stay in the timeline as a branch."""
        return await self._command(ctx, "undo", str(count), wait=wait)

    async def rerun(self, ctx: Context, id: str = "", affected: bool = False, wait: float = 20) -> Any:
        """Return to the state before a statement and run it and what follows again ("s7", or "s7..s12").

        diff with the HEAD from before tells what came out differently.
        affected, without id: run the cells again that changes affect, from the first change on.
        """
        words = [word for word in (id, "--affected" if affected else "") if word]
        return await self._command(ctx, "rerun", *words, wait=wait)

    async def name(self, ctx: Context, name: str, wait: float = 20) -> Any:
        """Name the present state, so that goto and diff take the name."""
        return await self._command(ctx, "checkpoint", name, wait=wait)

    async def note(self, ctx: Context, text: str, wait: float = 20) -> Any:
        """Put a note into the timeline, which the person and her model see."""
        return await self._told(self._desk.run(_agent(ctx), f"note({text!r})", wait, ""))

    async def redact(self, ctx: Context, id: str, summary: str, wait: float = 20) -> Any:
        """Replace the output of a statement by a summary in what the notebook's model is sent; the log keeps it."""
        return await self._command(ctx, "redact", id, summary, wait=wait)

    async def _told(self, made: Awaitable[Any]) -> Any:
        """Return the content of a result, with its images. Raises ToolError with the reason and the next step."""
        try:
            found = await made
        except CtxError as refused:
            raise ToolError(str(refused)) from None
        except Exception as fault:
            raise ToolError(f"{type(fault).__name__}: {one_line(str(fault), 200)}") from None
        text, images = found if isinstance(found, tuple) else (found, [])
        return [text, *map(_image, images)]


def _agent(ctx: Any) -> str:
    """Return the name of the client's program."""
    try:
        info = ctx.session.client_params.client_info
    except AttributeError:
        return "an agent"
    return one_line(str(getattr(info, "title", None) or getattr(info, "name", "") or "an agent"), 60)


def _image(given: Any) -> Any:
    """Return an image of the SDK: of a picture, or of [media type, base64]."""
    import base64

    media, data = (given.media_type, given.data) if hasattr(given, "media_type") else given
    return Image(data=base64.b64decode(data), format=str(media).partition("/")[2])


_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
TOOLS: dict[str, ToolAnnotations] = {
    **dict.fromkeys(("notebooks", "notebook", "timeline", "statement", "projection", "view", "diff"), _READS),
    **dict.fromkeys(("run_cell", "goto", "undo", "rerun"), _CHANGES),
    **dict.fromkeys(("name", "note"), _ADDS),
    "redact": _CHANGES,
}
"""The tools by name, with what they may do."""
