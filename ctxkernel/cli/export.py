"""`ctxkernel export` and `ctxkernel import`: a session as one HTML file or as a notebook, and a notebook as a session.

Rule 1: Nothing is unpickled or executed; only the named file, or the new session, is written.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
from pathlib import Path

from ctxkernel._version import __version__
from ctxkernel.cli import Failed, Unusable
from ctxkernel.cli.kernel import has_statements, keep_off
from ctxkernel.cli.notebook_files import is_text_form, read_notebook
from ctxkernel.cli.output import safe_line, say, show, show_json
from ctxkernel.cli.places import Timeline
from ctxkernel.cli.read import check_folder, open_session
from ctxkernel.core.text import format_size, plural
from ctxkernel.export import ENDINGS, import_notebook, write_notebook, write_page
from ctxkernel.projection.masker import Masker
from ctxkernel.store.log.location import session_path
from ctxkernel.store.log.newest_session import newest_session


def export(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel export`."""
    given: Path = arguments.notebook
    notebook = given if given.suffix != ".sqlite" else None
    output: Path = arguments.output or given.with_suffix(".html")
    as_notebook = arguments.ipynb or (output.suffix.lower() == ".ipynb" and not arguments.html)
    if as_notebook and (arguments.output is None or output.resolve() == given.resolve()):
        raise Unusable("export --ipynb needs --output FILE, another file than the notebook: that stays as it is.")
    if not (arguments.html or arguments.ipynb or output.suffix.lower() in ENDINGS):
        raise Unusable(
            f"export --output {output}: no page or notebook has the ending {output.suffix}; use .html or .ipynb, "
            "or add --html or --ipynb."
        )
    with open_session(given, arguments.session) as reader:
        place = Timeline.of(reader, details=False).place(arguments.branch).execution_id if arguments.branch else None
        if arguments.branch and place is None:
            raise Unusable(f"--branch {arguments.branch}: there is no statement before the first one.")
        try:
            if as_notebook:
                left_out = write_notebook(reader, output, notebook=notebook, masker=_masker(), branch=place)
            else:
                left_out = write_page(reader, output, notebook=notebook, masker=_masker(), branch=place)
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


def _masker() -> Masker:
    masker = Masker()
    for name, value in os.environ.items():
        masker.learn(name, value)
    return masker


def import_session(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel import`."""
    path: Path = arguments.notebook
    notebook = read_notebook(path)
    check_folder("--session", arguments.session)
    session: Path = (
        arguments.session or newest_session(path, tell=say) or session_path(str(path), os.environ, Path.cwd())
    )
    if session.exists():
        keep_off(session)
        if has_statements(session) and not arguments.add:
            raise Failed(
                f"{path} has a session already: {session}. --add imports the notebook as a new start in it (the "
                "earlier ones stay: ctxkernel timeline --all), --session FILE into another file."
            )
    made = import_notebook(
        json.loads(json.dumps(notebook)),
        session,
        name=path.name,
        environment={
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": sys.platform,
            "ctxkernel": __version__,
        },
        masker=_masker(),
        named=arguments.session is not None,
    )
    if arguments.json:
        show_json(
            {
                "session": made.session_id,
                "file": str(made.session),
                "statements": made.statements,
                "left_out": made.left_out,
            }
        )
        return 0
    name = safe_line(str(path))
    show(f"{name}: {plural(made.statements, 'statements')} imported, none of them run here: {made.session}")
    for line in made.left_out[:20]:
        say(safe_line(line))
    if made.statements:
        quoted = shlex.quote(name)
        option = f"--session {shlex.quote(safe_line(str(made.session)))} " if arguments.session is not None else ""
        shown = f"{option}{quoted}"
        say(
            f"  ctxkernel timeline {shown}   shows them with their outputs\n"
            f"  ctxkernel rerun {shown} 1    runs them here, and compares the outputs with those of the file\n"
            "  %ctx resume in a kernel of the notebook brings the timeline back, and no variables: there is no "
            "checkpoint before something has run here."
        )
    if is_text_form(path):
        say("A text file holds no outputs.")
    return 0
