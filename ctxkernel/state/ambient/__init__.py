"""State of the process that belongs to a checkpoint: generators, environment, options, handlers, figures, widgets.

Rule 1: each part has a name, a plain value that can be pickled, and a way to put it back. `register` takes more.
Rule 2: a part whose library is not loaded costs nothing, an unchanged one microseconds: a stamp tells of what is large.
Rule 3: what fails is named with its reason and costs the part, never the cell. Credentials are not kept or touched.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ctxkernel.state.ambient import generators, libraries, process
from ctxkernel.state.ambient.caches import FunctionCaches
from ctxkernel.state.ambient.left_running import Outside
from ctxkernel.state.ambient.logging_state import Logging
from ctxkernel.state.ambient.part import UNKNOWN, NotRestored, Part
from ctxkernel.state.ambient.pyplot import OpenFigures
from ctxkernel.state.ambient.widgets import WidgetValues
from ctxkernel.state.types.connections import reconnect

__all__ = ["PARTS", "UNKNOWN", "Ambient", "NotRestored", "Part", "passive", "reconnect", "register"]

MOST_FAILURES = 3
"""A part that fails so many times in a row is left out from then on."""

PARTS: list[Part] = [
    *generators.PARTS,
    *process.PARTS,
    *libraries.PARTS,
    *(Logging(), OpenFigures(), WidgetValues(), FunctionCaches(), Outside()),
]
"""The parts, in the order in which they are put back."""


def register(part: Part) -> None:
    """Add a part, in place of one of the same name. It counts from the next statement on."""
    at = next((at for at, known in enumerate(PARTS) if known.name == part.name), len(PARTS))
    PARTS[at : at + 1] = [part]


class Ambient:
    """The ambient state of this process, and what of it changed since it was last captured."""

    def __init__(self, parts: list[Part] | None = None) -> None:
        self._parts = PARTS if parts is None else parts
        self._stamps: dict[str, object] = {}
        self._values: dict[str, Any] = {}
        self._failures = Counter[str]()
        self.faults: dict[str, str] = {}
        """Parts that failed several times in a row, and why: they are left out from then on."""

    def capture(self, *, bound: Collection[str] | None = None) -> dict[str, Any]:
        """Return the values of the parts that differ from the last capture.

        The value of a part that fails is unknown: `{UNKNOWN: reason}`. `bound`: see `Part.bound`.
        """
        changed: dict[str, Any] = {}
        modules = sys.modules
        for part in self._parts:
            name, needs = part.name, part.needs
            if name in self.faults or (needs and needs not in modules) or not part.active:
                continue
            try:
                if part.looks_at_names:
                    part.bound(bound)
                stamp = part.stamp()
                if name in self._stamps and self._stamps[name] == stamp:
                    continue
                value = part.capture()
                self._stamps[name] = stamp
                self._failures.pop(name, None)
            except Exception as fault:  # a library's own fault, or one of a part that somebody registered
                value = {UNKNOWN: _reason(fault)}
                self._stamps.pop(name, None)
                self._failures[name] += 1  # it is tried again, until it failed several times in a row
                if self._failures[name] >= MOST_FAILURES:
                    self.faults[name] = value[UNKNOWN]
            if name not in self._values or self._values[name] != value:
                changed[name] = self._values[name] = value
        return changed

    def captured(self) -> dict[str, Any]:
        """Return the values of all parts as they were last captured."""
        return dict(self._values)

    def differing(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parts that differ now from `values`, and those that cannot be compared. Reads only."""
        known = {part.name: part for part in self._parts}
        return tuple(name for name, value in values.items() if name not in known or not _matches(known[name], value))

    def restore(self, values: Mapping[str, Any], gone: Iterable[str] = ()) -> dict[str, str]:
        """Restore the parts that differ from now; return by part what the user is to know: what could not be, and why.

        `gone` are parts whose library was not loaded then: they get the library's first values, where they are known.
        """
        known = {part.name for part in self._parts}
        unknown = [name for name in values if name not in known]
        notices = dict.fromkeys(unknown, "this kernel has no part of that name; register it and go there again")
        wanted = dict(values)
        for part in self._parts:
            name = part.name
            try:
                if name in gone and name not in wanted and part.active:
                    if (default := part.default()) is not None:
                        wanted[name] = default
                    else:  # it stays as it is, so the states from here on have it
                        self._forget(name)
                if part.always and name not in wanted and name in self._values and part.active:
                    wanted[name] = self._values[name]
                if name not in wanted:
                    continue
                value = wanted[name]
                if isinstance(value, dict) and UNKNOWN in value:
                    notices[name] = f"it was not captured then ({value[UNKNOWN]}); it stays as it is"
                    self._forget(name)
                    continue
                if part.needs and part.needs not in sys.modules:
                    if not part.imports:
                        if missing := part.absent(value):
                            notices[name] = missing
                        continue
                    importlib.import_module(part.needs)
                if (part.always or not part.matches(value)) and (lines := part.restore(value)):
                    notices[name] = "; ".join(lines)
                # Where the value is not quite the one that was wanted, the next capture tells it as a change.
                self._values[name] = value
                self._stamps.pop(name, None)
            except Exception as fault:
                notices[name] = _reason(fault)
                self._forget(name)
        return notices

    def _forget(self, name: str) -> None:
        """Make the next capture return this part: what it is now is not the value of the state that was restored."""
        self._stamps.pop(name, None)
        self._values.pop(name, None)


def _matches(part: Part, value: Any) -> bool:
    try:
        if not part.active:
            return not part.imports and not part.absent(value)
        return part.matches(value)
    except Exception:  # a library's own fault; `restore` will say it
        return False


def _reason(fault: Exception) -> str:
    if isinstance(fault, NotRestored):
        return str(fault)[:1000]
    return f"{type(fault).__name__}: {fault}"[:200]


def passive(name: str) -> bool:
    """Return whether a change of a part says nothing about the cell that made it: its caches, its threads."""
    return any(part.name == name and part.passive for part in PARTS)
