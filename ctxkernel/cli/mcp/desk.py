"""The notebook that an agent works in: its kernel, its session, and the cells that are sent to it.

Rule: an answer comes within `wait` seconds. A cell that takes longer goes on, and `statement` tells its end.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctxkernel.cli.mcp import agent_texts
from ctxkernel.cli.mcp.live import LiveKernel, NoKernel, live_notebooks
from ctxkernel.cli.output import say
from ctxkernel.cli.read import check_notebook
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.text import plural
from ctxkernel.store.log.newest_session import newest_session

MOST_WAIT = 45.0
_CHOOSE = "call notebooks, and then notebooks(choose=PATH)"
_POLL = 0.3

Told = tuple[str, list[Any]]
"""A text and its images."""


class Desk:
    """The notebook that the tools act on; where none is given, one of those whose kernels live."""

    def __init__(self, kernel: LiveKernel, *, is_open: bool = False) -> None:
        """`is_open`: the agent may choose the notebook."""
        self._kernel = kernel
        self._is_open = is_open
        self.seen: str | None = None
        """HEAD as it was told last."""
        self._path: Path | None = None
        self._log = agent_texts.KeptLog()

    # -- the notebook ------------------------------------------------------------------------

    async def kernel(self) -> LiveKernel:
        """Return the kernel of the notebook; where none was chosen, of the only one that lives. Raises CtxError."""
        if self._is_open and self._kernel.notebook is None:
            live = await live_notebooks()
            if len(live) != 1:
                raise BadCommand(f"{plural(len(live), 'notebooks')} with a ctxkernel: {_CHOOSE}")
            await self.choose(live[0])
        return self._kernel

    async def choose(self, notebook: Path) -> None:
        """Work in another notebook from now on. Raises CtxError."""
        check_notebook(notebook)
        before = self._kernel
        if before.notebook is None or before.notebook.resolve() != notebook.resolve():
            self._kernel = LiveKernel(notebook, mode=before.mode, may_start=before.may_start)
            self.seen = self._path = None
            await before.close()

    async def listed(self) -> str:
        """Return the notebooks whose kernels live, the chosen one marked."""
        chosen = self._kernel.notebook.resolve() if self._kernel.notebook is not None else None
        live = await live_notebooks()
        lines = [f"{'*' if one == chosen else '-'} {one}" for one in live]
        if chosen is not None and chosen not in live:
            lines.append(f"* {chosen} (no kernel runs; run_cell starts one)")
        return "\n".join([f"{plural(len(live), 'notebooks')} with a ctxkernel; * is the chosen one", *lines])

    async def close(self) -> None:
        """Leave the kernel."""
        await self._kernel.close()

    # -- reading -----------------------------------------------------------------------------

    async def session(self, *, start: bool = False) -> Path:
        """Return the session's file, and keep it. Raises CtxError."""
        self._path = found = await self._session(start)
        return found

    async def _session(self, start: bool) -> Path:
        """Return the session's file: of the live kernel, else the newest of the notebook. Raises CtxError."""
        kernel = await self.kernel()
        notebook = kernel.notebook
        try:
            about = await kernel.about(start=start)
            if about.session is None:
                raise BadCommand("this kernel keeps its session in memory, so there is no timeline to read")
            return about.session
        except NoKernel:
            found = newest_session(notebook, tell=say) if notebook is not None and not start else None
            if found is None and not start and notebook is not None and kernel.may_start:
                raise BadCommand(f"nothing has been run in {notebook} yet: run_cell starts a kernel for it") from None
            if found is None:
                raise
            return found

    async def read(self, make: Callable[[agent_texts.Log], Any]) -> Any:
        """Return what `make` gives of the log at this moment, and note HEAD as seen. Raises CtxError."""
        session = await self.session()
        with self._log.opened(session) as log:
            self.seen = log.head
            return agent_texts.refusing(lambda: make(log))

    def stamp(self) -> object:
        """Return what differs when the session's file has changed."""
        return agent_texts.stamp_of(self._path) if self._path is not None else None

    # -- cells -------------------------------------------------------------------------------

    async def run(self, agent: str, code: str, wait: float, revision: str | None, cell: str | None = None) -> Told:
        """Send a cell, and return what became of it within `wait` seconds.

        `cell`: the beginning of the id of the notebook's cell whose text it replaces. Raises CtxError.
        """
        call = uuid.uuid4().hex[:16]
        seen = self.seen if revision is None else revision
        metadata: dict[str, Any] = {"ctxkernel": {"agent": {"name": agent, "call": call, "seen": seen or ""}}}
        session = await self.session(start=True)
        kernel = await self.kernel()
        if cell is not None:
            metadata["cellId"] = await self._replaced(kernel, cell)
        reply = await kernel.send(code, metadata)
        await asyncio.wait([reply], timeout=max(0.0, min(wait, MOST_WAIT)))
        answer = reply.result() if reply.done() and not reply.cancelled() else {}
        with self._log.opened(session) as log:
            return agent_texts.refusing(lambda: self._told(log, call, answer))

    async def _replaced(self, kernel: LiveKernel, cell: str) -> str:
        """Return the id of a cell of the notebook that a front end shows. Raises CtxError."""
        notebook = kernel.notebook
        if notebook is None:
            raise BadCommand("the notebook's file is not known here, and so no cell of it: leave `cell` out")
        if not (await kernel.about(anew=True)).attended:
            raise BadCommand(f"no front end shows {notebook.name}: leave `cell` out, or edit the file")
        return agent_texts.refusing(lambda: agent_texts.cell_id(notebook, cell))

    def _told(self, log: agent_texts.Log, call: str, answer: dict[str, Any] | None = None, budget: int = 2000) -> Told:
        """Return what became of a cell, or of a statement: its text and its images. Raises CtxError."""
        self.seen = log.head
        state, run = log.cell_state(call), log.execution_of_call(call)
        if run is None and not state.state and answer is None:
            run = log.timeline.execution(call)
        if run is not None and run.status == "running":
            return f"{run.statement_id} is running; statement(id={run.statement_id!r}, wait=30) tells its end", []
        if run is not None:
            text, images = agent_texts.statement_text(log, run, budget)
            return f"{text}\nHEAD {log.head}", images
        if state.state == "waits":
            return self._waiting(state, call), []
        if state.state in ("approved", "edited"):
            return f"{state.name} is about to run; statement(id={call!r}, wait=30) tells its end", []
        if state.state:
            whose = "the person rejected it" if state.state == "rejected" else ""
            return f"not run: {': '.join(filter(None, (whose, state.reason)))}", []
        if not answer:
            return f"queued: the kernel is running another cell; statement(id={call!r}, wait=30) tells its end", []
        if answer.get("status") == "aborted":
            return "not run: a cell before it failed, and the kernel dropped what was queued; send it again", []
        return f"not run: {answer.get('ename', '')} {answer.get('evalue', '')}".strip(), []

    def _waiting(self, state: agent_texts.AgentCellResult, call: str) -> str:
        own = (
            " No front end shows this kernel: the person can connect with `jupyter console --existing "
            f"{self._kernel.file}`, or start the server with --mode auto."
            if self._kernel.is_own
            else ""
        )
        return (
            f"{state.name} waits for the person's approval, in the notebook or the panel (%ctx approve).{own} "
            f"statement(id={call!r}, wait=30) tells what became of it"
        )

    async def statement(self, place: str, wait: float, budget: int) -> Told:
        """Return a statement, or what became of a cell; waits for its end up to `wait` seconds. Raises CtxError."""
        session = await self.session()
        clock = asyncio.get_running_loop().time
        end = clock() + min(max(wait, 0.0), MOST_WAIT)
        known, is_open, found = object(), True, ("", list[Any]())
        while True:
            if (now := self.stamp()) != known:  # a long session takes long to read
                known = now
                with self._log.opened(session) as log:
                    found = agent_texts.refusing(lambda: self._told(log, place, budget=budget))
                    state, run = log.cell_state(place), log.execution_of_call(place)
                    if run is None and not state.state:
                        run = log.timeline.execution(place)
                    waits = state.state in ("waits", "approved", "edited")
                    is_open = run.status == "running" if run is not None else waits
            if not is_open or clock() >= end:
                return found
            await asyncio.sleep(_POLL)

    async def view(self, name: str, level: int, budget: int, pos: str) -> Told:
        """Return a rendering of a variable, a file or the output of a statement."""
        given = ", ".join(map(repr, (name, level, budget, pos)))
        with_json = f"__import__('json').dumps(get_ipython().kernel.ctx.models.view({given}))"
        if name.startswith("s") and name[1:].split(".", maxsplit=1)[0].isdecimal():
            session = await self.session()
            with self._log.opened(session) as log:
                if (note := log.redacted.get(name.partition(".")[0])) is not None:
                    return f"[{name} is redacted: {note}]", []
        found = await (await self.kernel()).value(with_json, 20.0)
        if "refused" in found:
            raise BadCommand(str(found["refused"]))
        return str(found["text"]), [found["image"]] if found.get("image") else []
