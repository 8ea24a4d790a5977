"""State of the process that belongs to a checkpoint: generators, environment, options, handlers, figures, widgets.

Rule 1: each part has a name, a plain value that can be pickled, and a way to restore it. `register` takes more.
Rule 2: a part whose library is not loaded costs nothing, an unchanged one microseconds: `read_witnesses` reads all that
        are always loaded at once, and a part is asked for its value only where its witness or stamp differs.
Rule 3: a failure is named with its reason and costs the part, never the cell. Credentials are not kept or touched.
"""

from __future__ import annotations

import decimal
import importlib
import locale
import os
import random
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from ctxkernel.state.ambient import generators, libraries, process
from ctxkernel.state.ambient.caches import FunctionCaches
from ctxkernel.state.ambient.library_attributes import LibraryAttributes
from ctxkernel.state.ambient.library_calls import LibraryCalls
from ctxkernel.state.ambient.logging_state import Logging
from ctxkernel.state.ambient.part import UNKNOWN, NotRestored, Part, Setting
from ctxkernel.state.ambient.process import SIGNALS, Outside, read_interpreter, signal_handler
from ctxkernel.state.ambient.pyplot import OpenFigures
from ctxkernel.state.ambient.shell_callbacks import ShellCallbacks
from ctxkernel.state.ambient.widgets import WidgetValues
from ctxkernel.state.types.connections import reconnect

__all__ = [
    "LIBRARY_ATTRIBUTES",
    "LIBRARY_CALLS",
    "PARTS",
    "SHELL_CALLBACKS",
    "UNKNOWN",
    "WIDGETS",
    "Ambient",
    "NotRestored",
    "Part",
    "appearing",
    "first_value",
    "passive",
    "reconnect",
    "register",
]

MOST_FAILURES = 3
"""A part that fails so many times in a row is left out from then on."""


def read_ipython() -> dict[str, Any]:
    """Return the settings that decide how IPython runs a cell and shows its results; empty outside of IPython."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return {}
    plain = shell.display_formatter.formatters["text/plain"]
    found = {name: getattr(shell, name) for name in libraries.SHELL_OPTIONS}
    # As long as a cell's plain value replaces an option in the class, a value that is set lies beside the options.
    own = cast("dict[str, Any]", vars(shell))
    if beside := {name: own[name] for name in found if name in own}:
        found["beside"] = beside
    found |= {"float_precision": plain.float_precision, "max_seq_length": plain.max_seq_length, "pprint": plain.pprint}
    if (mode := shell.InteractiveTB.mode) != libraries.TRACEBACKS:
        found["xmode"] = mode
    found |= libraries.inline_options(shell)
    return found


def read_witnesses() -> dict[str, object]:
    """Return by part a cheap value that is equal as long as nothing changed, for parts that are always loaded."""
    environ: Any = os.environ
    arithmetic: Any = decimal.getcontext().__reduce__()[1]
    children: Any = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
    return {
        "random": random.getstate(),
        "working folder": os.getcwd(),
        # Decoding each variable takes a hundred times as long as copying the dict of encoded ones.
        "environment": environ._data.copy(),
        "sys.path": [*map(str, sys.path)],
        "sys.argv": [*map(str, sys.argv)],
        "warnings": tuple(warnings.filters),
        "interpreter": read_interpreter(),
        "locale": locale.setlocale(locale.LC_ALL),
        # Without the flags, on which no result depends.
        "decimal": (arithmetic[:6], arithmetic[7]),
        "ipython": read_ipython(),
        # Those that were captured are alive, so no id is used twice.
        "outside": ([*map(id, threading.enumerate())], [*map(signal_handler, SIGNALS)], [*map(id, children)]),
    }


LIBRARY_ATTRIBUTES = LibraryAttributes()
LIBRARY_CALLS = LibraryCalls()
SHELL_CALLBACKS = ShellCallbacks()
WIDGETS = WidgetValues()
PARTS: list[Part] = [
    *generators.PARTS,
    *process.PARTS,
    *libraries.PARTS,
    *(LIBRARY_ATTRIBUTES, LIBRARY_CALLS),
    # After the attributes of libraries: a cell can set an option in the class of the shell.
    Setting("ipython", read_ipython, libraries.set_ipython, needs="IPython"),
    *(Logging(), OpenFigures(), WIDGETS, SHELL_CALLBACKS, FunctionCaches(), Outside()),
]
"""The parts, in the order in which they are restored."""
_replaced: set[str] = set()
"""Names of parts that `register` put in place of those that `read_witnesses` knows."""


def register(part: Part) -> None:
    """Add a part, in place of one of the same name. It counts from the next statement on."""
    at = next((at for at, known in enumerate(PARTS) if known.name == part.name), len(PARTS))
    PARTS[at : at + 1] = [part]
    _replaced.add(part.name)
    LIBRARY_CALLS.covered.update((part.name, part.needs))


class Ambient:
    """The ambient state of this process, and its changes since the last capture."""

    def __init__(self, parts: list[Part] | None = None) -> None:
        self._parts = PARTS if parts is None else parts
        self._stamps: dict[str, object] = {}
        self._values: dict[str, Any] = {}
        self._failures = Counter[str]()
        self.faults: dict[str, str] = {}
        """Parts that failed several times in a row, and why: they are left out from then on."""

    def begin(self) -> None:
        """Take in that the first cell runs next."""
        for part in self._parts:
            part.begin()
        self._stamps.clear()  # values may be relative to the start, and this is another one

    def capture(self, *, bound: Collection[str] | None = None) -> dict[str, Any]:
        """Return the values of the parts that differ from the last capture.

        The value of a part that fails is unknown: `{UNKNOWN: reason}`. `bound`: see `Part.bound`.
        """
        changed: dict[str, Any] = {}
        modules = sys.modules
        try:
            witnesses = read_witnesses()
        except Exception:  # such as a working folder that was removed: each part is asked, and fails by itself
            witnesses = {}
        for part in self._parts:
            name, needs = part.name, part.needs
            if name in self.faults or (needs and needs not in modules) or not part.active:
                continue
            try:
                if part.looks_at_names:
                    part.bound(bound)
                stamp = witnesses[name] if name in witnesses and name not in _replaced else part.stamp()
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

    def part(self, name: str) -> Part:
        """Return a part. Raises StopIteration if there is none of that name."""
        return next(one for one in self._parts if one.name == name)

    def restore(
        self, values: Mapping[str, Any], gone: Iterable[str] = (), stay: Collection[str] = ()
    ) -> dict[str, str]:
        """Restore the parts that differ from now; return by part what could not be restored, and why.

        `gone` are parts whose library was not loaded then: they get the library's first values, where they are known.
        Those in `stay` are not changed.
        """
        known = {part.name for part in self._parts}
        unknown = [name for name in values if name not in known]
        notices = dict.fromkeys(unknown, "this kernel has no part of that name; register it and go there again")
        wanted = dict(values)
        for part in self._parts:
            name = part.name
            if name in stay:
                continue
            try:
                is_new = name in gone and name not in values and part.loaded
                if is_new and (default := part.default()) is not None:
                    wanted[name] = default
                if part.always and name not in wanted and name in self._values and part.loaded:
                    wanted[name] = self._values[name]
                if name in wanted and (told := self._restore(part, wanted[name])):
                    notices[name] = told
                if is_new and (part.needs or name not in wanted):
                    self._forget(name)  # its library stays loaded, so the states from here on have it
            except Exception as fault:
                notices[name] = _reason(fault)
                self._forget(name)
        return notices

    def _restore(self, part: Part, value: Any) -> str:
        """Restore one part; return what the user is to know. Raises any exception of the part."""
        if isinstance(value, dict) and UNKNOWN in value:
            self._forget(part.name)
            return f"it was not captured then ({value[UNKNOWN]}); it stays as it is"
        if part.needs and part.needs not in sys.modules:
            if not part.imports:
                return part.absent(value)
            importlib.import_module(part.needs)
        lines = part.restore(value) if part.always or not part.matches(value) else None
        # A new process has other handlers for the same value. If the value is another, the next capture returns it.
        self._values[part.name] = part.capture() if not part.passive and _matches(part, value) else value
        self._stamps.pop(part.name, None)
        return "; ".join(lines or ())

    def _forget(self, name: str) -> None:
        """Make the next capture return this part: its present value is not that of the restored state."""
        self._stamps.pop(name, None)
        self._values.pop(name, None)


def _matches(part: Part, value: Any) -> bool:
    try:
        if not part.loaded:
            return not part.imports and not part.absent(value)
        return part.matches(value)
    except Exception:  # a library's own fault; `restore` will name it
        return False


def _reason(fault: Exception) -> str:
    if isinstance(fault, NotRestored):
        return str(fault)[:1000]
    return f"{type(fault).__name__}: {fault}"[:200]


def appearing() -> list[str]:
    """Return the parts that are captured from their first change on."""
    return [part.name for part in PARTS if part.appears]


def first_value(name: str) -> Any:
    """Return the value that a part has before any cell changed it; None where that is not known."""
    part = next((one for one in PARTS if one.name == name and (one.appears or one.loaded)), None)
    try:
        return part.default() if part is not None else None
    except Exception:  # a library in another version
        return None


def passive(name: str) -> bool:
    """Return whether a change of a part has no effect on other cells: its caches, its threads."""
    return any(part.name == name and part.passive for part in PARTS)
