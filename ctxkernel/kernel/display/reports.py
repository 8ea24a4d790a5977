"""Reports of a kernel: plans, comparisons of re-runs, differences of states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ctxkernel.core.masking import Mask
from ctxkernel.core.replay import Comparison
from ctxkernel.core.report import CellLink, ComparedValue, Report, ReportPart, ReportTable, masked_value
from ctxkernel.core.text import join_names
from ctxkernel.core.timeline import StatementLog
from ctxkernel.core.timeline_events import plain
from ctxkernel.core.value_difference import ValueDifference

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import plan_messages as messages
    from ctxkernel.replay.differences import Differences, FileDifference, NameDifference, OutputDifference
    from ctxkernel.replay.plan import Plan

Bounded = TypeVar("Bounded", "NameDifference", "FileDifference")
_CHARS = 6000
"""Characters of the text about values, all names together: some 1,500 tokens."""
_LEAST = 300
MOST = 50
"""Most differences of each kind in a message."""
_PICTURES = 2_000_000
"""Most characters of all pictures of a message."""
_KEY = 12
"""Characters of the first column of a plan."""


def differences_report(head: str, found: Differences) -> Report:
    """Return the differences of two states."""
    from ctxkernel.replay.differences import more_of

    room = max(_LEAST, _CHARS // max(1, len(found.changed) + len(found.outputs) + len(found.files)))
    parts: list[ReportPart] = []
    for sign, differences in found.by_sign():
        parts += [ComparedValue(sign, one.name, one.told, one.value, room) for one in differences[:MOST]]
        parts += more_of(sign, differences, MOST)
    return Report(head, *(parts or [found.without_lines]), *(f"note: {note}" for note in found.notes))


def masked_differences(found: Differences, mask: Mask) -> Differences:
    """Return the differences of two states with secrets masked, those that only a name shows included."""

    def safe(name: str, told: str, value: ValueDifference | None) -> dict[str, Any]:
        part = masked_value(ComparedValue("", name, told, value), mask)
        return {"told": part.told, "value": part.value}

    return replace(
        found,
        added=tuple(replace(one, **safe(one.name, one.told, None)) for one in found.added),
        changed=tuple(replace(one, **safe(one.name, one.told, one.value)) for one in found.changed),
        deleted=tuple(replace(one, **safe(one.name, one.told, None)) for one in found.deleted),
        outputs=tuple(replace(one, **safe(one.name, one.told, one.value)) for one in found.outputs),
        files=tuple(replace(one, **safe(one.name, one.told, one.value)) for one in found.files),
    )


def difference_row(old: str | None, new: str | None, found: Differences) -> messages.StateDifference:
    """Return the differences of two states as the panel's message has them, within `MOST` names and pictures."""
    left = _PICTURES
    outputs: list[OutputDifference] = []
    for one in found.outputs[:MOST]:
        size = sum(len(picture.data) for picture in one.value.pictures) if one.value is not None else 0
        left -= size
        keeps = one.value is None or left >= 0
        outputs.append(one if keeps else replace(one, value=None))
    row: dict[str, Any] = {
        "old": old,
        "new": new,
        "added": found.added[:MOST],
        "changed": tuple(_bounded(one) for one in found.changed[:MOST]),
        "deleted": found.deleted[:MOST],
        "outputs": tuple(outputs),
        "handles": [{"name": one.name, "how": one.how, "told": one.told} for one in found.handles[:MOST]],
        "files": tuple(_bounded(one) for one in found.files[:MOST]),
        "notes": found.notes[:MOST],
    }
    groups = (found.added, found.changed, found.deleted, found.outputs, found.handles, found.files)
    row["more"] = sum(max(0, len(each) - MOST) for each in groups)
    return cast("messages.StateDifference", plain(row))


def _bounded(one: Bounded) -> Bounded:
    return replace(one, value=one.value.bounded() if one.value is not None else None)


def plan_parts(plan: Plan, log: StatementLog) -> list[ReportPart]:
    """Return a plan: one line, and a table with a row for each effect."""
    first, *lines = plan.text().split("\n")
    rows: list[Sequence[str]] = []
    for line in lines:
        key, rest = line[:_KEY].strip(), line[_KEY:].strip()
        statement, _, more = rest.partition(" ") if key in ("run", "skip", "ask") else ("", "", rest)
        # A cell's link goes with its name, the first word after the key.
        name = statement.rstrip(",")
        rows.append([key, _link(name, log), more if name else rest])
    if not any(row[1] for row in rows):
        rows = [[row[0], row[2]] for row in rows]
    return [first, ReportTable(rows, has_head=False, as_text=lines)] if rows else [first]


def rerun_report(
    comparisons: Sequence[Comparison],
    log: StatementLog,
    outputs: Callable[[Comparison], Iterable[ValueDifference]],
) -> Report:
    """Return the table of a re-run, and the details of what differs."""
    from ctxkernel.replay.divergence import table

    head, *rows = table(comparisons)
    linked = [[_link(row[0], log), *row[1:3], row[4], row[3]] for row in rows]
    shown = ReportTable([[*head[:3], head[4], head[3]], *linked])
    return Report(shown, *_details(comparisons, outputs), *_not_compared(comparisons))


def _not_compared(comparisons: Sequence[Comparison]) -> Iterable[str]:
    """Yield why files were compared by their hashes only: a line for each reason."""
    names: dict[str, list[str]] = {}
    for found in (each for one in comparisons for each in one.divergences if each.kind == "artifact"):
        if found.detail is not None and found.detail.reason:
            names.setdefault(found.detail.reason, []).append(found.subject)
    for reason, files in names.items():
        yield f"{join_names(list(dict.fromkeys(files)), 5)}: {reason}"


def _details(
    comparisons: Sequence[Comparison], outputs: Callable[[Comparison], Iterable[ValueDifference]]
) -> Iterable[ComparedValue]:
    found = [
        (one.execution_id.partition(".")[0], each.subject, each.summary, each.detail)
        for one in comparisons
        for each in one.divergences
        if each.detail is not None and each.detail.differs and each.detail.counts
    ]
    for one in comparisons:
        statement = one.execution_id.partition(".")[0]
        found += [(statement, each.name, each.summary, each) for each in outputs(one) if each.pictures]
    room = max(_LEAST, _CHARS // max(1, len(found)))
    for statement, name, summary, value in found:
        yield ComparedValue(f"{statement}", name, summary, value, room)


def _link(text: str, log: StatementLog) -> str:
    statement = log.get(text.partition(" ")[0]) if text else None
    return CellLink(text, statement.cell_id if statement is not None else None)
