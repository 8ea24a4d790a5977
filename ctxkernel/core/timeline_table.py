"""The timeline as a table, for `%ctx timeline` and `ctxkernel timeline`.

Rule: it uses the JSON of the timeline (`docs/schemas.md`), so that a kernel and a session file show the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ctxkernel.core.replay import INFORMATIVE
from ctxkernel.core.text import format_duration, format_time, one_line, plural
from ctxkernel.core.timeline import PARAMETERS, Execution

JsonObject = Mapping[str, Any]

RIGHT = frozenset({4})
"""The columns that are aligned right."""
STATUS = 3
_HEADS = ("", "at", "author", "status", "time", "checkpoint", "re-run", "changes", "source")
_OPTIONAL = ("checkpoint", "re-run")


class TimelineTable(NamedTuple):
    """The heads of the columns, then a row for each execution, oldest first."""

    rows: list[list[str]]
    statuses: list[str]
    aside: frozenset[int]
    """The numbers, from 0, of the executions on another branch than HEAD."""
    has_unknown: bool
    """Whether changes of an execution may be missing."""

    def legend(self) -> str:
        """Return the meaning of the marks."""
        told = ["* is HEAD"]
        told += ["(…) is on another branch"] if self.aside else []
        told += ["?: changes may be missing"] if self.has_unknown else []
        return " · ".join(told)


def timeline_table(
    statements: Sequence[JsonObject], head: str | None, on_path: set[str], names: Mapping[str, str]
) -> TimelineTable:
    """Return the executions of `statements` as rows. `names` maps the user's names of states to their executions.

    Columns for checkpoints and re-runs are omitted where they are empty.
    """
    named = {where: name for name, where in names.items()}
    runs = [(statement, run) for statement in statements for run in statement["executions"]]
    rows = [list(_HEADS), *(_row(statement, run, head, on_path, named) for statement, run in runs)]
    kept = [at for at, name in enumerate(_HEADS) if name not in _OPTIONAL or any(row[at] for row in rows[1:])]
    return TimelineTable(
        [[row[at] for at in kept] for row in rows],
        [run["status"] for _, run in runs],
        frozenset(at for at, (_, run) in enumerate(runs) if run["execution_id"] not in on_path),
        any((run["late_diff"] or run["state_diff"])["incomplete"] for _, run in runs),
    )


def path_to(statements: Sequence[JsonObject], head: str | None) -> set[str]:
    """Return the executions on the path to HEAD."""
    parents = {run["execution_id"]: run["parent_execution_id"] for one in statements for run in one["executions"]}
    found: set[str] = set()
    while head is not None and head in parents and head not in found:
        found.add(head)
        head = parents[head]
    return found


def changed_names(diff: JsonObject, late: JsonObject | None = None) -> str:
    """Return the difference of two namespaces, with what was found later, as `+added ~changed −deleted`.

    A `?` before them: changes may be missing.
    """
    names: list[JsonObject] = [*diff["changed"], *(late["changed"] if late else ())]
    signs = (("+", diff["added"]), ("~", names), ("−", diff["deleted"]))
    told = ["?"] if (late or diff)["incomplete"] else []
    return " ".join([*told, *(f"{sign}{name}" for sign, listed in signs for name in listed)])


def other_notices(execution: Execution) -> list[str]:
    """Return the notices without the one of `state_diff.incomplete`: `changes` says what is missing now."""
    return [one for one in execution.notices if one != execution.state_diff.incomplete]


def gist(source: str, limit: int = 160) -> str:
    """Return a cell as its first line with code, of at most `limit` characters, and the number of other lines."""
    lines = [line for line in source.splitlines() if line.strip()]
    first = next((line for line in lines if not line.lstrip().startswith("#")), lines[0] if lines else "")
    return one_line(first, limit) + (f" (+{plural(len(lines) - 1, 'lines')})" if lines[1:] else "")


def _row(
    statement: JsonObject, run: JsonObject, head: str | None, on_path: set[str], named: Mapping[str, str]
) -> list[str]:
    at = run["execution_id"]
    ask = run.get("ask")  # of an ask the answer counts, not the cell, which has ended before it is sent
    name = statement["statement_id"] if len(statement["executions"]) == 1 else at
    return [
        f"{name}*" if at == head else name if at in on_path else f"({name})",
        format_time(run["started_at"]),
        statement["author"],
        one_line(ask["told"], 80) if ask else run["status"],
        format_duration(run["cost"]["time_ms"] / 1000) if run["ended_at"] is not None and not ask else "",
        one_line(", ".join(filter(None, (named.get(at, ""), _checkpoint(run.get("checkpoint"))))), 24),
        one_line(_comparison(run.get("comparison")), 28),
        one_line(changed_names(run["state_diff"], run["late_diff"]), 40),
        _source(statement, run["exception"]),
    ]


def _checkpoint(made: JsonObject | None) -> str:
    """Return the state of a checkpoint, and the number of names missing from it."""
    return made["state"] + (f" −{len(made['missing'])}" if made["missing"] else "") if made else ""


def _comparison(made: JsonObject | None) -> str:
    """Return the result of a re-run."""
    if not made or made["same"]:
        return "same" if made else ""
    subjects = [one["subject"] for one in made["divergences"] if one["kind"] not in INFORMATIVE]
    return f"{'differs as expected' if made['expected'] else 'differs'}: {', '.join(subjects)}"


def _source(statement: JsonObject, exception: JsonObject | None) -> str:
    source = gist(statement["source"])
    shown = f"{statement['kind']}: {source}" if statement["kind"] in PARAMETERS else source
    if not exception:
        return shown
    told = f"{exception['type']}: {exception['message']}" if exception["message"] else exception["type"]
    return f"{one_line(told)}  ←  {shown}"
