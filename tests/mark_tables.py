"""The marks of cells as a page reads them from the kernel's tables; `ctxkernel/lab/app/marktable.js` does the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ctxkernel.kernel.display.mark_table import following


@dataclass(slots=True)
class MarkReader:
    """What the tables that were read say, by cell id."""

    marks: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    names: dict[int, str] = field(default_factory=dict[int, str])

    def read(self, table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Take a table, and return the marks that it changes."""
        self.names |= {table["first"] + n: name for n, name in enumerate(table["ids"])}
        changed: set[str] = set()
        own = zip(_spans(table["newest"]), table["sources"], table["counts"], strict=True)
        for (number, execution), source, count in own:
            changed.add(self._amend(number, execution_id=execution, source=source, count=count))
            self._amend(number, statement_id=execution.partition(".")[0])
        for number, head in _spans(table["on_head"]):
            newest = self.marks[self.names[number]]["execution_id"]
            changed.add(self._amend(number, on_head=newest if head is True else head))
        for number, look in _spans(table["stands"]):
            changed.add(self._amend(number, **{"because": None, "upstream": None, **table["looks"][look]}))
        return {cell: self.marks[cell] for cell in changed}

    def _amend(self, number: int, **fields: Any) -> str:
        cell = self.names[number]
        self.marks[cell] = {**self.marks.get(cell, {}), **fields}
        return cell


def marks_of(table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the marks of a table that needs no earlier one."""
    return MarkReader().read(table)


def _spans(told: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    for first, length, first_value in zip(told["cells"], told["lengths"], told["values"], strict=True):
        value = first_value
        for n in range(length):
            yield first + n, value
            value = following(value) if isinstance(value, str) else value
