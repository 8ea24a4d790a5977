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
from ctxkernel.cli.output import gist, paint, show, show_json, status_colour, table
from ctxkernel.core.text import format_duration, plural
from ctxkernel.store.log.session import SessionReader, newest_session

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
        value, names = reader.timeline(all_roots=arguments.all), reader.names()
    if arguments.json:
        show_json(value)
    else:
        show(timeline_table(value, reader.path, names))
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


def timeline_table(value: Json, path: Path, names: Mapping[str, str] | None = None) -> str:
    """Return a timeline as a table for people: one row an execution, newest last, HEAD marked with `*`.

    An execution that HEAD did not come by is in parentheses. `names` are the user's names of states. The columns for
    checkpoints and re-runs are there where there are any.
    """
    runs = [(statement, run) for statement in value["statements"] for run in statement["executions"]]
    if not runs:
        return f"No statement in this session ({path})."
    on_path = _path([run for _, run in runs], value["head"])
    named = {at: name for name, at in (names or {}).items()}
    columns: list[tuple[str, list[str]]] = [
        ("", [_name(statement, run, value["head"], on_path) for statement, run in runs]),
        ("status", [run["status"] for _, run in runs]),
        (
            "time",
            [format_duration(run["cost"]["time_ms"] / 1000) if run["ended_at"] is not None else "" for _, run in runs],
        ),
        ("author", [statement["author"] for statement, _ in runs]),
        ("checkpoint", [_checkpoint(run, named) for _, run in runs]),
        ("re-run", [_comparison(run) for _, run in runs]),
        ("names", [changed_names(run["state_diff"]) for _, run in runs]),
        ("source", [_gist(statement["source"], run) for statement, run in runs]),
    ]
    columns = [(head, cells) for head, cells in columns if head not in ("checkpoint", "re-run") or any(cells)]
    heads = [head for head, _ in columns]
    caps = {
        heads.index(head): most for head, most in (("checkpoint", 24), ("re-run", 28), ("names", 32)) if head in heads
    }
    body = table(
        heads,
        list(zip(*(cells for _, cells in columns), strict=True)),
        right=frozenset({2}),
        caps=caps,
        colours=[status_colour(run["status"]) for _, run in runs],
        dimmed=frozenset(n for n, (_, run) in enumerate(runs) if run["execution_id"] not in on_path),
    )
    failed = sum(run["status"] != "ok" for _, run in runs)
    summary = plural(len(runs), "executions")
    summary += f", {failed} not ok" if failed else ", all ok"
    off = " · (…) is on no way to it" if len(on_path) < len(runs) else ""
    return f"{body}\n\n{summary} · * is HEAD{off} · {path}"


def _path(runs: Sequence[Json], head: str | None) -> set[str]:
    """Return the executions by which HEAD came to where it is."""
    parents = {run["execution_id"]: run["parent_execution_id"] for run in runs}
    found: set[str] = set()
    while head is not None and head in parents and head not in found:
        found.add(head)
        head = parents[head]
    return found


def _name(statement: Json, run: Json, head: str | None, on_path: set[str]) -> str:
    name = statement["statement_id"] if len(statement["executions"]) == 1 else run["execution_id"]
    if run["execution_id"] == head:
        return f"{name}*"
    return name if run["execution_id"] in on_path else f"({name})"


def _checkpoint(run: Json, named: Mapping[str, str]) -> str:
    """Return the state of the checkpoint after an execution, how much of it is missing, and its name."""
    made = run.get("checkpoint")
    parts = [named[run["execution_id"]]] if run["execution_id"] in named else []
    if made:
        parts.append(made["state"] + (f" −{len(made['missing'])}" if made["missing"] else ""))
    return ", ".join(parts)


def _comparison(run: Json) -> str:
    """Return what a re-run came out with."""
    made = run.get("comparison")
    if not made:
        return ""
    if made["same"]:
        return "same"
    subjects = [one["subject"] for one in made["divergences"] if one["kind"] != "timing"]
    return f"{'differs as expected' if made['expected'] else 'differs'}: {', '.join(subjects)}"


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
