"""`%ctx export`: the session as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ctxkernel.agent.recorded import SUFFIX
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.text import format_size
from ctxkernel.kernel.commands.context import CommandContext


def export(ctx: CommandContext, args: Sequence[str]) -> str:
    """Write the session to a file, with the secrets masked that this kernel knows."""
    from ctxkernel.export import write_page

    if len(args) > 1 or (args and args[0].startswith("-")):
        raise BadCommand("%ctx export [FILE]: one file; without it NOTEBOOK.html beside the notebook")
    session = ctx.store.path
    if session is None:
        raise BadCommand("this session is in memory only and cannot be exported; %ctx status says why")
    turns = ctx.models.connections.path
    notebook = turns.with_name(turns.name.removesuffix(SUFFIX) + ".ipynb") if turns is not None else None
    if not args and notebook is None:
        raise BadCommand("%ctx export: the notebook is unknown; name the file: %ctx export FILE")
    output = Path(args[0]).expanduser() if args or notebook is None else notebook.with_suffix(".html")
    try:
        left_out = write_page(session, output, notebook=notebook, masker=ctx.masker, private=ctx.configuration.private)
    except OSError as fault:
        raise BadCommand(f"%ctx export: {output} cannot be written ({fault.strerror})") from None
    return "\n".join([f"{output}: {format_size(output.stat().st_size)}", *left_out[:20]])
