"""`ctxkernel timeline` and `ctxkernel projection`: reading a session without a kernel.

Rule 1: nothing is unpickled, executed or written.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ctxkernel.cli import Failed, Unusable
from ctxkernel.cli.output import duration, gist, paint, show, show_json, status_colour, table
from ctxkernel.store.session import SessionReader, newest_session

Json = Mapping[str, Any]


def find_session(notebook: Path, session: Path | None) -> Path:
    """Return the session file to read. Raises Unusable or Failed with the next step."""
    if session is None and notebook.suffix == ".sqlite":
        session = notebook
    if session is not None:
        if not session.is_file():
            raise Unusable(f"{session}: there is no such session file.")
        return session
    if not notebook.exists():
        raise Unusable(f"{notebook}: there is no such notebook.")
    if not notebook.is_file():
        raise Unusable(f"{notebook} is not a notebook; give an .ipynb file.")
    found = newest_session(notebook)
    if found is None and notebook.suffix != ".ipynb":
        raise Unusable(f"{notebook} is neither a notebook nor a session; give an .ipynb or a .sqlite file.")
    if found is None:
        raise Failed(
            f"{notebook} has no session yet: run it on the ctxkernel in JupyterLab, or with `ctxkernel run {notebook}`."
        )
    return Path(found)


def timeline(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel timeline`."""
    with SessionReader(find_session(arguments.notebook, arguments.session)) as reader:
        value = reader.timeline(all_roots=arguments.all)
    if arguments.json:
        show_json(value)
    else:
        show(timeline_table(value, reader.path))
    return 0


def projection(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel projection`."""
    statement = arguments.statement
    if statement is not None and not re.fullmatch("s?[1-9][0-9]*", statement):
        raise Unusable(f"--statement {statement}: give a statement's number, as `10` or `s10`.")
    with SessionReader(find_session(arguments.notebook, arguments.session)) as reader:
        value = reader.projection(statement)
    if arguments.json:
        show_json(value)
    else:
        show(projection_table(value))
    return 0


def changed_names(diff: Json) -> str:
    """Return a namespace diff as `+added ~changed -deleted`."""
    signs = (("+", diff["added"]), ("~", diff["changed"]), ("-", diff["deleted"]))
    return " ".join(f"{sign}{name}" for sign, names in signs for name in names)


def timeline_table(value: Json, path: Path) -> str:
    """Return a timeline as a table for people: one row an execution, newest last, HEAD marked with `*`."""
    rows: list[Sequence[str]] = []
    colours = []
    for statement in value["statements"]:
        for execution in statement["executions"]:
            head = "*" if execution["execution_id"] == value["head"] else ""
            name = statement["statement_id"] if len(statement["executions"]) == 1 else execution["execution_id"]
            status = execution["status"]
            rows.append(
                (
                    name + head,
                    status,
                    duration(execution["cost"]["time_ms"]) if execution["ended_at"] is not None else "",
                    statement["author"],
                    changed_names(execution["state_diff"]),
                    _gist(statement["source"], execution),
                )
            )
            colours.append(status_colour(status))
    if not rows:
        return f"No statement in this session ({path})."
    body = table(
        ("", "status", "time", "author", "names", "source"), rows, right=frozenset({2}), caps={4: 32}, colours=colours
    )
    failed = sum(row[1] != "ok" for row in rows)
    summary = f"{len(rows)} executions" if len(rows) != 1 else "1 execution"
    summary += f", {failed} not ok" if failed else ", all ok"
    return f"{body}\n\n{summary} · * is HEAD · {path}"


def _gist(source: str, execution: Json) -> str:
    exception = execution["exception"]
    if not exception:
        return gist(source)
    told = f"{exception['type']}: {exception['message']}" if exception["message"] else exception["type"]
    return f"{told}  ←  {gist(source)}"


def projection_table(value: Json) -> str:
    """Return a projection as tables for people: its blocks, what was left out, and the checks."""
    blocks = value["blocks"]
    rows = [
        (b["id"], b["kind"], b["origin"], f"{b['tokens']:,}", "cached" if b["cached"] else "", b["why"]) for b in blocks
    ]
    parts = [table(("block", "kind", "from", "tokens", "", "why"), rows, right=frozenset({3}), caps={0: 28, 2: 16})]
    if value["left_out"]:
        left = [(item["id"], item["why"]) for item in value["left_out"]]
        parts.append(table(("left out", "why"), left, caps={0: 28}))
    violations = value["report"]["violations"]
    if violations:
        broken = [(v["rule"], v["path"], v["message"], v["fix"]) for v in violations]
        parts.append(table(("rule", "at", "what is wrong", "what helps"), broken, caps={1: 28, 2: 60}))
    verdict = paint("every check passed", "green") if value["report"]["ok"] else paint("not fit to be sent", "red")
    model = value["request"].get("model", "")
    parts.append(f"~{value['tokens']:,} tokens · {verdict} · {model} · receipt {str(value['receipt'])[:23]}")
    return "\n\n".join(parts)
