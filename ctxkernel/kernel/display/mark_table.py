"""Marks of cells in short (`CellTable` of `docs/panel-protocol.md`): what holds for many cells is said once.

Rule 1: cells have numbers, in the order in which they first ran. The message that first names a cell has its id.
Rule 2: a table has only what changed since the last one. All that it says holds from then on, so it can be read twice.
Rule 3: a table with a limit is never longer. What does not fit is left out and said: first the reasons, then all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.dataclasses import dataclass, field

if TYPE_CHECKING:
    from ctxkernel.kernel.messages.cells import CellLook, CellMark, CellSpans, CellTable


OF_ONE = ("statement_id", "execution_id", "on_head", "source", "count")
"""Fields that tell cells apart; the others are the same for many."""
REASONS = ("because", "upstream")
"""Fields of a look that only a reader of one cell needs."""


@dataclass(frozen=True, slots=True)
class MarkChange:
    """The mark of the cell with a number, and the mark that was told before."""

    number: int
    mark: CellMark
    before: CellMark | None = None


@dataclass(slots=True)
class _Spans:
    """Consecutive cells with one value, or with executions of consecutive statements."""

    cells: list[int] = field(default_factory=list[int])
    lengths: list[int] = field(default_factory=list[int])
    values: list[Any] = field(default_factory=list[Any])
    _next: tuple[int, Any] | None = None

    def add(self, number: int, value: Any) -> None:
        if self._next == (number, value):
            self.lengths[-1] += 1
        else:
            self.cells.append(number)
            self.lengths.append(1)
            self.values.append(value)
        self._next = number + 1, following(value) if isinstance(value, str) else value

    def told(self) -> CellSpans:
        return {"cells": self.cells, "lengths": self.lengths, "values": self.values}


def following(execution: str) -> str:
    """Return the same run of the next statement: `s13.1` of `s12.1`."""
    statement, _, run = execution.partition(".")
    return f"s{int(statement[1:]) + 1}.{run}"


def mark_table(
    changes: Iterable[MarkChange], *, ids: Sequence[str] = (), first: int = 0, limit: int | None = None
) -> CellTable:
    """Return a table of marks; `ids` are those of the cells from number `first` on."""
    ordered = sorted(changes, key=lambda one: one.number)
    whole = _table(ordered, ids, first, without=())
    if limit is None or _size(whole) <= limit:
        return whole
    brief = _table(ordered, ids, first, without=REASONS)
    return brief if _size(brief) <= limit else {**_table((), (), first, without=()), "more": True}


def _table(changes: Sequence[MarkChange], ids: Sequence[str], first: int, *, without: Sequence[str]) -> CellTable:
    newest, on_head, stands = _Spans(), _Spans(), _Spans()
    sources, counts = list[str](), list[int | None]()
    looks: dict[str, int] = {}
    told: list[CellLook] = []
    for one in changes:
        mark, before = one.mark, one.before
        own = mark["execution_id"], mark["source"], mark["count"]
        moved = before is None or own != (before["execution_id"], before["source"], before["count"])
        if moved:
            newest.add(one.number, mark["execution_id"])
            sources.append(mark["source"])
            counts.append(mark["count"])
        if moved or before is None or mark["on_head"] != before["on_head"]:
            on_head.add(one.number, True if mark["on_head"] == mark["execution_id"] else mark["on_head"])
        look = _look(mark, ())
        if before is None or look != _look(before, ()):
            reasons = bool(mark.get("because") or mark.get("upstream"))
            short = _look(mark, without) if reasons else look
            key = json.dumps(short, sort_keys=True)
            if key not in looks:
                looks[key] = len(told)
                told.append(cast("CellLook", short))
            stands.add(one.number, looks[key])
    return {
        "first": first,
        "ids": ids,
        "newest": newest.told(),
        "sources": sources,
        "counts": counts,
        "on_head": on_head.told(),
        "looks": told,
        "stands": stands.told(),
    }


def _look(mark: CellMark, without: Sequence[str]) -> Mapping[str, Any]:
    return {name: value for name, value in mark.items() if name not in OF_ONE and name not in without}


def _size(table: CellTable) -> int:
    return len(json.dumps(table))
