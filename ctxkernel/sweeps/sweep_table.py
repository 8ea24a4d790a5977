"""The result of a sweep: a row for each combination."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass, field, fields
from ctxkernel.core.text import format_duration, join_names, one_line, plural
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.sweeps.combinations import text_of

MARK = "sweep_table"
"""The mark of an execution that swept, with the table."""
_MOST_NAMED = 3
"""Combinations that a note names."""
_MOST_LOSSES = 8
"""Notes on variables that could not be restored."""
_NUMBERS = (int, float, type(None))


@dataclass(slots=True)
class SweepRow:
    """One combination with its result."""

    parameters: dict[str, Any]
    collected: dict[str, Any] = field(default_factory=dict[str, Any])
    status: str = "waiting"
    """`waiting`, `ok`, `error`, `timeout`, `memory`, `died` or `cancelled`."""
    branch: str | None = None
    """The execution at the end of its branch, which is an argument of `%ctx goto`."""
    seconds: float = 0.0
    """The time of its cells, including those that it shares with other combinations."""
    cpu: float = 0.0
    """The processor time of its tasks, including those that it shares, in seconds."""
    output: str = ""
    """The last line that its cells printed."""
    diverged: bool = False
    """Whether the result of one of its cells differs from that of the run before the sweep."""
    why: str = ""
    """Why the status is not `ok`."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """Variable → why the worker could not restore it: the cells ran without it."""

    @property
    def named(self) -> str:
        """The combination, as parameters are written."""
        return one_line(" ".join(f"{name}={text_of(value)}" for name, value in self.parameters.items()), 100)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; `lost` is there only if the worker could not restore a variable."""
        told = {
            "parameters": {name: _as_json(value) for name, value in self.parameters.items()},
            "collected": self.collected,
            "status": self.status,
            "branch": self.branch,
            "seconds": round(self.seconds, 3),
            "diverged": self.diverged,
        }
        return {**told, "lost": self.lost} if self.lost else told

    def to_mark(self) -> dict[str, Any]:
        """Return it with all that is known, as JSON."""
        return {**self.to_json(), "cpu": round(self.cpu, 3), "output": self.output, "why": self.why}


@dataclass(slots=True)
class SweepTable:
    """All rows of a sweep, in the order of its combinations."""

    rows: list[SweepRow]
    cells_run: int = 0
    cells_shared: int = 0
    seconds: float = 0.0
    """The time of the whole sweep."""
    overheads: list[float] = field(default_factory=list[float])
    """For each task, its time on the worker beyond the time of its cells, in seconds."""
    cpu: float = 0.0
    """The processor time of the workers and their kernels, in seconds."""
    tasks: int = 0
    notes: list[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        rows = [row.to_json() for row in self.rows]
        return {"rows": rows, "cells_run": self.cells_run, "cells_shared": self.cells_shared}

    def to_mark(self) -> dict[str, Any]:
        """Return it with all that is known of its rows, as JSON."""
        return {**self.to_json(), "rows": [row.to_mark() for row in self.rows], "seconds": round(self.seconds, 3)}

    @classmethod
    def from_mark(cls, mark: Mapping[str, Any]) -> SweepTable:
        """Return the table of a mark; a field of another type is left out."""
        listed, seconds = mark.get("rows"), mark.get("seconds")
        rows: list[SweepRow] = []
        for each in cast("list[Any]", listed) if isinstance(listed, list) else ():
            one = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
            row = SweepRow({})
            for name in _FIELDS:
                example = getattr(row, name)
                if isinstance(one.get(name), type(example) if example is not None else str):
                    setattr(row, name, one[name])
            rows.append(row)
        return cls(rows, seconds=seconds if isinstance(seconds, float) else 0.0)

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters."""
        return list(self.rows[0].parameters) if self.rows else []

    @property
    def collected(self) -> list[str]:
        """The names of the collected variables that have a value in some row."""
        return list(dict.fromkeys(name for row in self.rows for name in row.collected))

    def absent(self, names: Sequence[str]) -> list[str]:
        """Return the names of variables that no combination has, if one ended well."""
        return [name for name in names if name not in self.collected] if self.failed < len(self.rows) else []

    @property
    def failed(self) -> int:
        """The number of combinations without the status `ok`."""
        return sum(row.status != "ok" for row in self.rows)

    def table(self, rows: Sequence[SweepRow] | None = None, *, has_cpu: bool = True) -> list[list[str]]:
        """Return the rows as texts, the head first; `has_cpu`: with the processor time."""
        rows = self.rows if rows is None else rows
        parameters, collected = self.parameters, self.collected
        head = [*parameters, *collected, "status", "branch", "time", *(["cpu"] if has_cpu else []), "diverged"]
        return [head, *(self._texts(row, parameters, collected, has_cpu) for row in rows)]

    def right(self, *, has_cpu: bool = True) -> frozenset[int]:
        """Return the columns of `table` that hold numbers and times."""
        values = [[row.parameters.get(name) for row in self.rows] for name in self.parameters]
        values += [[row.collected.get(name) for row in self.rows] for name in self.collected]
        numbers = {at for at, column in enumerate(values) if all(type(one) in _NUMBERS for one in column)}
        return frozenset(numbers | {len(values) + 2} | ({len(values) + 3} if has_cpu else set()))

    @staticmethod
    def _texts(row: SweepRow, parameters: Sequence[str], collected: Sequence[str], has_cpu: bool) -> list[str]:
        shown = [text_of(row.parameters[name]) for name in parameters]
        values = [shown_value(row.collected[name]) if name in row.collected else "" for name in collected]
        status = f"{row.status}: {one_line(row.why, 80)}" if row.why else row.status
        status += f", without {join_names(row.lost, 3)}" if row.lost else ""
        times = (row.seconds, row.cpu) if has_cpu else (row.seconds,)
        took = [format_duration(one) if one else "" for one in times]  # empty: it did not run
        return [*shown, *values, status, row.branch or "", *took, "yes" if row.diverged else ""]

    def losses(self) -> list[str]:
        """Return which variables the workers could not restore, and which combinations ran without them."""
        found: dict[tuple[str, str], list[SweepRow]] = {}
        for row in self.rows:
            for one in row.lost.items():
                found.setdefault(one, []).append(row)
        told = [
            f"{name} could not be restored in a worker ({one_line(why)}): {self._combinations(rows)} ran without it"
            for (name, why), rows in found.items()
        ]
        more = len(told) - _MOST_LOSSES
        return [*told[:_MOST_LOSSES], f"{plural(more, 'more losses')}: --json lists them by row"] if more > 0 else told

    def _combinations(self, rows: Sequence[SweepRow]) -> str:
        """Return names of combinations; of many the first ones."""
        if len(rows) == len(self.rows) > 1:
            return f"all {len(rows)} combinations"
        more = len(rows) - _MOST_NAMED
        told = ", ".join(row.named for row in rows[:_MOST_NAMED])
        return f"{told} and {plural(more, 'more combinations')}" if more > 0 else told

    def told(self) -> str:
        """Return the line below the table."""
        done = len(self.rows) - self.failed
        return (
            f"{plural(len(self.rows), 'combinations')}, {done} ok · {plural(self.cells_run, 'cells')} ran, "
            f"{self.cells_shared} shared{f' · {format_duration(self.seconds)}' if self.seconds else ''}"
            " · %ctx goto BRANCH goes to a row"
        )


def stored_tables(reader: SessionReader) -> dict[str, SweepTable]:
    """Return the tables in a log by the executions that swept, oldest first."""
    return {
        subject: SweepTable.from_mark(cast("dict[str, Any]", value))
        for (subject, _), value in reader.marks(MARK).items()
        if isinstance(value, dict)
    }


def _as_json(value: Any) -> Any:
    """Return the value of a parameter as JSON; bytes, a set or a complex number as their literal."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return text_of(value)
    return value


def shown_value(value: Any) -> str:
    """Return a collected value in one line."""
    found: Any = value
    if isinstance(found, dict) and "told" in found:
        return one_line(str(cast("dict[str, Any]", found)["told"]), 40)
    if type(value) is float:
        return f"{value:.6g}"
    return one_line(text_of(value), 40)


_IN_FRAME = ("status", "branch", "seconds", "cpu", "diverged")
_FIELDS = [one.name for one in fields(SweepRow)]


class Sweep:
    """A sweep as a value: `sweep(...)` returns it.

    `rows` are the rows, `frame` is a pandas DataFrame of parameters and collected values. `goto` names the command
    that goes to the state of a row.
    """

    def __init__(self, table: SweepTable, view: Any) -> None:
        self._table, self._view = table, view

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows: parameters, collected, status, branch, seconds, diverged."""
        return [row.to_json() for row in self._table.rows]

    @property
    def cells_run(self) -> int:
        """The cells that ran."""
        return self._table.cells_run

    @property
    def cells_shared(self) -> int:
        """The cells of combinations that did not run again."""
        return self._table.cells_shared

    @property
    def frame(self) -> Any:
        """The rows as a pandas DataFrame, one column a parameter and one a collected value."""
        pandas: Any = import_module("pandas")
        return pandas.DataFrame(
            [
                {**row.parameters, **row.collected, **{name: getattr(row, name) for name in _IN_FRAME}}
                for row in self._table.rows
            ]
        )

    def goto(self, number: int) -> str:
        """Return the command that goes to the state of a row; a cell of its own runs it."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no row {number}: this sweep has {plural(len(self), 'rows')}, from 0 on")
        branch = self._table.rows[number].branch
        if branch is None:
            raise ValueError(f"row {number} has no state: it ended as {self._table.rows[number].status}")
        return f"%ctx goto {branch}"

    def __len__(self) -> int:
        return len(self._table.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return repr(self._view)

    def _repr_html_(self) -> str:
        return str(self._view._repr_html_())

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return dict(self._view._repr_mimebundle_(**options))
