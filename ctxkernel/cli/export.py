"""`ctxkernel export`: writes a session as one HTML file.

Rule 1: Nothing is unpickled or executed; only the output file is written.
"""

from __future__ import annotations

import argparse
import os

from ctxkernel.cli import Failed
from ctxkernel.cli.output import safe_line, say, show, show_json
from ctxkernel.cli.read import find_session
from ctxkernel.core.text import format_size
from ctxkernel.export import write_page
from ctxkernel.projection.masker import Masker


def export(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel export`."""
    session = find_session(arguments.notebook, arguments.session)
    notebook = arguments.notebook if arguments.notebook.suffix != ".sqlite" else None
    output = arguments.output or arguments.notebook.with_suffix(".html")
    masker = Masker()
    for name, value in os.environ.items():
        masker.learn(name, value)
    try:
        left_out = write_page(session, output, notebook=notebook, masker=masker)
    except OSError as fault:
        raise Failed(f"{output} cannot be written ({fault.strerror}); name another file with --output.") from None
    size = output.stat().st_size
    if arguments.json:
        show_json({"file": str(output), "bytes": size, "left_out": left_out})
        return 0
    show(f"{safe_line(str(output))}: {format_size(size)}")
    for line in left_out[:20]:
        say(safe_line(line))
    return 0
