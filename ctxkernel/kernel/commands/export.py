"""The session as one HTML file or a notebook: `%ctx export`, and the page that a front end saves."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkernel.agent.recorded import SUFFIX
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.text import format_size
from ctxkernel.kernel.commands.context import CommandContext
from ctxkernel.kernel.commands.handle_magics import paths_from
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.notebook_file import as_object, read_notebook_json

if TYPE_CHECKING:
    from ctxkernel.kernel.messages.wire import SavedPage


def export(ctx: CommandContext, args: Sequence[str]) -> str:
    """Write the session to a file, with the secrets masked that this kernel knows."""
    from ctxkernel.export import ENDINGS, write_notebook, write_page

    if len(args) > 1 or (args and args[0].startswith("-")):
        raise BadCommand("%ctx export [FILE]: one file, .html or .ipynb; without it NOTEBOOK.html beside the notebook")
    session, notebook = _session(ctx), _notebook(ctx)
    if not args and notebook is None:
        raise BadCommand("%ctx export: the notebook is unknown; name the file: %ctx export FILE")
    output = Path(args[0]).expanduser() if args or notebook is None else notebook.with_suffix(".html")
    if notebook is not None and output.resolve() == notebook.resolve():
        raise BadCommand(f"%ctx export: {output} is the notebook itself, which stays as it is; name another file")
    if output.suffix.lower() not in ENDINGS:
        raise BadCommand(
            f"%ctx export: {output}: no page or notebook has the ending {output.suffix}; use .html or .ipynb"
        )
    if output.suffix.lower() == ".ipynb" and output.exists() and not _is_exported(output):
        raise BadCommand(
            f"%ctx export: {output} is there already, and no export wrote it; name another file, or delete it first"
        )
    private = ctx.configuration.private
    try:
        if output.suffix.lower() == ".ipynb":
            with SessionReader(session) as reader:
                left_out = write_notebook(reader, output, notebook=notebook, masker=ctx.masker, private=private)
        else:
            left_out = write_page(session, output, notebook=notebook, masker=ctx.masker, private=private)
    except OSError as fault:
        raise BadCommand(f"%ctx export: {output} cannot be written ({fault.strerror})") from None
    return "\n".join([f"{output}: {format_size(output.stat().st_size)}", *left_out[:20]])


def _is_exported(path: Path) -> bool:
    """Return whether an export wrote a notebook: another one may be work that exists nowhere else."""
    try:
        metadata = as_object(read_notebook_json(path).get("metadata"))
    except (OSError, ValueError):
        return False
    return "export" in as_object(metadata.get("ctxkernel"))


def complete(ctx: CommandContext, begun: str) -> list[str]:
    """Return the names of new files of the notebook, and folders and pages that are there: no notebook is offered."""
    notebook = _notebook(ctx)
    new: list[str] = []
    if notebook is not None:
        names = (notebook.with_suffix(".html"), notebook.with_stem(f"{notebook.stem}-export"))
        here = notebook.parent.resolve() == Path.cwd()
        new = [shlex.quote(path.name if here else str(path)) for path in names]
    there = [path for path in paths_from(begun) if path.endswith(("/", ".html"))]
    return list(dict.fromkeys([*new, *there]))


def session_page(ctx: CommandContext) -> SavedPage:
    """Return the session as a page, for a front end that saves it. Raises CtxError."""
    from ctxkernel.export import make_page

    session, notebook = _session(ctx), _notebook(ctx)
    private = ctx.configuration.private
    text, left_out = make_page(session, notebook=notebook, masker=ctx.masker, private=private)
    name = (notebook or session).with_suffix(".html").name
    return {"name": ctx.masker(name), "text": text, "left_out": left_out}


def _session(ctx: CommandContext) -> Path:
    """Return the session file. Raises BadCommand if there is none."""
    if ctx.store.path is None:
        raise BadCommand("this session is in memory only and cannot be exported; %ctx status says why")
    return ctx.store.path


def _notebook(ctx: CommandContext) -> Path | None:
    """Return the notebook of the session, if it is known."""
    turns = ctx.models.connections.path
    return turns.with_name(turns.name.removesuffix(SUFFIX) + ".ipynb") if turns is not None else None
