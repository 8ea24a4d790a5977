"""`ctxkernel timeline` and `ctxkernel projection`: read a session without a kernel.

Rule 1: Nothing is unpickled, executed or written.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from ctxkernel.cli import Failed, Unusable
from ctxkernel.cli.output import (
    Colour,
    paint,
    safe_line,
    say,
    show,
    show_json,
    show_result,
    status_colour,
    terminal_table,
)
from ctxkernel.core.text import plural
from ctxkernel.core.timeline import StatementLog
from ctxkernel.core.timeline_table import RIGHT, STATUS, JsonObject, timeline_table
from ctxkernel.store.log.executed import ExecutedRun, find_run
from ctxkernel.store.log.newest_session import newest_session
from ctxkernel.store.log.reader import SessionReader

ROWS = 100
"""Statements that `ctxkernel timeline` prints, without `--rows`: the newest."""


def check_notebook(path: Path) -> None:
    """Raise Unusable if `path` is not an existing file."""
    if not path.exists():
        raise Unusable(f"{path}: there is no such notebook.")
    if not path.is_file():
        raise Unusable(f"{path} is not a notebook; give an .ipynb file.")


def check_folder(option: str, path: Path | None) -> None:
    """Raise Unusable if the folder of a file to write, which an option names, does not exist."""
    if path is not None and not path.resolve().parent.is_dir():
        raise Unusable(f"{option} {path}: there is no folder {path.parent}; make it first.")


def find_session(notebook: Path, session: Path | None) -> Path:
    """Return the session file to read. Raises Unusable or Failed with the next step."""
    if session is None and notebook.suffix == ".sqlite":
        session = notebook
    if session is not None:
        if not session.is_file():
            raise Unusable(f"{session}: there is no such session file.")
        return session
    found = _session_of(notebook)
    if found.before is not None:
        raise Failed(
            f"{notebook} ran in an earlier kernel start of {found.session}, and only the newest can be returned to; "
            "`ctxkernel timeline` shows it."
        )
    return found.session


def open_session(notebook: Path, session: Path | None) -> SessionReader:
    """Return the reader of the session to read, at the kernel start that executed the notebook.

    Raises Unusable or Failed with the next step, and StoreError.
    """
    if session is not None or notebook.suffix == ".sqlite":
        return SessionReader(find_session(notebook, session))
    found = _session_of(notebook)
    return SessionReader(found.session, before=found.before)


def _session_of(notebook: Path) -> ExecutedRun:
    """Return the newest session of a notebook, or that of the run that executed it. Raises Unusable or Failed."""
    check_notebook(notebook)
    found = newest_session(notebook, tell=say)
    if found is not None:
        return ExecutedRun(found, None, None)
    executed = find_run(notebook, os.environ, Path.cwd())
    if executed is not None:
        into = f" into {safe_line(executed.notebook)}" if executed.notebook else ""
        say(f"{safe_line(str(notebook))} has no session of its own; it was executed{into}: {executed.session}")
        return executed
    if notebook.suffix != ".ipynb":
        raise Unusable(f"{notebook} is neither a notebook nor a session; give an .ipynb or a .sqlite file.")
    raise Failed(
        f"{notebook} has no session yet: run it on the ctxkernel in JupyterLab, "
        f"or with `ctxkernel run {shlex.quote(str(notebook))}`."
    )


def timeline(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel timeline`."""
    rows = arguments.rows
    if rows is not None and rows < 1:
        raise Unusable(f"--rows {rows}: give a whole number from 1.")
    with open_session(arguments.notebook, arguments.session) as reader, reader.snapshot():
        newest = rows if rows is not None or arguments.json else ROWS
        value, names = reader.timeline(all_roots=arguments.all, newest=newest), reader.names()
        if arguments.json:
            show_json(value)
            return 0
        log = reader.log(all_roots=arguments.all, details=False)
    if older := len(log) - len(value["statements"]):
        show(f"… {older:,} older; --rows {len(log)} shows all")
    show(timeline_text(value, reader.path, names, log))
    return 0


def projection(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel projection`."""
    statement = arguments.statement
    if statement is not None and not re.fullmatch("s?[1-9][0-9]*", statement):
        raise Unusable(f"--statement {statement}: give a statement's number, as `10` or `s10`.")
    with open_session(arguments.notebook, arguments.session) as reader:
        value = reader.projection(statement)
    show_result(value, lambda: projection_table(value), as_json=arguments.json)
    return 0


def timeline_text(value: JsonObject, path: Path, names: Mapping[str, str], log: StatementLog) -> str:
    """Return a timeline as a table for a terminal, and a summary of all of `log`; `names` are those of states."""
    if not value["statements"]:
        return f"No statement in this session ({path})."
    here = {execution.execution_id for _, execution in log.back(value["head"])}
    made = timeline_table(value["statements"], value["head"], here, names)
    heads, *rows = made.rows
    colours: list[Colour | None] = [status_colour(status) for status in made.statuses]
    body = terminal_table(heads, rows, right=RIGHT, colours=colours, coloured=STATUS, dimmed=made.aside)
    statuses = [run.status for statement in log for run in log.executions(statement.statement_id)]
    failed = sum(status not in ("ok", "imported") for status in statuses)
    imported = statuses.count("imported")
    ended = f"{failed} not ok" if failed else "all ok" if imported < len(statuses) else "none ran here"
    told = f", {imported} imported, not run here" if 0 < imported < len(statuses) else ""
    summary = f"{plural(len(statuses), 'executions')}, {ended}{told}"
    return f"{body}\n\n{summary} · {made.legend()} · {path}"


def projection_table(value: JsonObject) -> str:
    """Return a projection as tables: its blocks, the parts left out, and the checks."""
    blocks = value["blocks"]
    rows = [
        (b["id"], b["kind"], b["origin"], f"{b['tokens']:,}", "cached" if b["cached"] else "", b["why"]) for b in blocks
    ]
    parts = [
        terminal_table(("block", "kind", "from", "tokens", "", "why"), rows, right=frozenset({3}), caps={0: 28, 2: 16})
    ]
    if value["left_out"]:
        left = [(item["id"], item["why"]) for item in value["left_out"]]
        parts.append(terminal_table(("left out", "why"), left, caps={0: 28}))
    violations = value["report"]["violations"]
    if violations:
        broken = [(v["rule"], v["path"], v["message"], v["fix"]) for v in violations]
        parts.append(terminal_table(("rule", "at", "what is wrong", "what helps"), broken, caps={1: 28, 2: 60}))
    verdict = paint("every check passed", "green") if value["report"]["ok"] else paint("not fit to be sent", "red")
    model = value["request"].get("model", "")
    parts.append(f"~{value['tokens']:,} tokens · {verdict} · {model} · receipt {str(value['receipt'])[:23]}")
    return "\n\n".join(parts)
