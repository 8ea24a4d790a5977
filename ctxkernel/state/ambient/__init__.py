"""State of the process that belongs to a checkpoint: generators, working directory, environment, options of libraries.

Rule 1: each part is one class with a name, a plain value that can be pickled, and a way to put it back. `register`
        takes more; `not_covered()` says what no part holds.
Rule 2: a part whose library is not loaded costs nothing, and one that did not change costs microseconds: what is large
        is first looked at by a stamp.
Rule 3: what fails is named with its reason and costs the part, never the cell. Credentials are neither kept nor
        touched.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ctxkernel.state.ambient.generators import NumpyRandom, PythonRandom, TorchRandom
from ctxkernel.state.ambient.libraries import (
    MatplotlibOptions,
    Notebook,
    NumpyOptions,
    PandasOptions,
    SklearnOptions,
)
from ctxkernel.state.ambient.part import Part
from ctxkernel.state.ambient.process import (
    DecimalContext,
    Environment,
    ImportPath,
    Interpreter,
    Locale,
    WarningFilters,
    WorkingFolder,
)

__all__ = ["PARTS", "Ambient", "Part", "not_covered", "register"]

PARTS: list[Part] = [
    PythonRandom(),
    NumpyRandom(),
    TorchRandom(),
    WorkingFolder(),
    Environment(),
    ImportPath(),
    WarningFilters(),
    Interpreter(),
    Locale(),
    DecimalContext(),
    MatplotlibOptions(),
    PandasOptions(),
    NumpyOptions(),
    SklearnOptions(),
    Notebook(),
]
"""The parts, in the order in which they are put back."""


def register(part: Part) -> None:
    """Add a part, in place of one of the same name. It counts from the next statement on."""
    for position, known in enumerate(PARTS):
        if known.name == part.name:
            PARTS[position] = part
            return
    PARTS.append(part)


class Ambient:
    """The ambient state of this process, and what of it changed since it was last looked at."""

    def __init__(self, parts: list[Part] | None = None) -> None:
        self._parts = PARTS if parts is None else parts
        self._stamps: dict[str, object] = {}
        self._values: dict[str, Any] = {}
        self.faults: dict[str, str] = {}
        """Parts that failed, and why: they are left out from then on."""

    def capture(self, previous: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the values of the parts that are others than in `previous` (else: than when last looked at)."""
        if previous is not None:
            self._values = dict(previous)
            self._stamps.clear()
        changed: dict[str, Any] = {}
        loaded = sys.modules
        for part in self._parts:
            if part.needs and part.needs not in loaded:
                continue
            name = part.name
            if name in self.faults:
                continue
            try:
                stamp = part.stamp()
                if name in self._stamps and self._stamps[name] == stamp:
                    continue
                value = part.capture()
                self._stamps[name] = stamp
                if name not in self._values or self._values[name] != value:
                    changed[name] = self._values[name] = value
            except Exception as fault:  # a library's own fault, or one of a part that somebody registered
                self.faults[name] = f"{type(fault).__name__}: {fault}"[:200]
        return changed

    def differing(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parts that are others now than in `values`, and those that cannot be looked at. Reads only."""
        known = {part.name: part for part in self._parts}
        return tuple(name for name, value in values.items() if name not in known or not _is(known[name], value))

    def restore(self, values: Mapping[str, Any], gone: Iterable[str] = ()) -> dict[str, str]:
        """Put parts back where they differ from now; return those that could not be, and why.

        `gone` are parts whose library was not loaded then: they get what the library began with, where that is known.
        """
        lost: dict[str, str] = {}
        known = {part.name: part for part in self._parts}
        for name in values:
            if name not in known:
                lost[name] = "nothing here holds such a part"
        wanted = dict(values)
        for part in self._parts:
            name = part.name
            try:
                if name in gone and name not in wanted and part.needs in sys.modules:
                    default = part.default()
                    if default is not None:
                        wanted[name] = default
                if name not in wanted:
                    continue
                if part.needs and part.needs not in sys.modules:
                    importlib.import_module(part.needs)
                if part.capture() != wanted[name]:
                    part.restore(wanted[name])
                self._stamps[name] = part.stamp()
                self._values[name] = part.capture()
            except Exception as fault:
                lost[name] = f"{type(fault).__name__}: {fault}"[:200]
        return lost


def _is(part: Part, value: Any) -> bool:
    try:
        return (not part.needs or part.needs in sys.modules) and part.capture() == value
    except Exception:  # a library's own fault; `restore` will say it
        return False


def not_covered() -> str:
    """Return what of the process a checkpoint does not hold, in words for the user."""
    return (
        "Not part of a checkpoint: attributes of modules (what was patched, caches in them, modules that were imported "
        "stay imported), logging handlers and levels, generators of libraries other than random, numpy and torch, "
        "figures that pyplot still holds open, signal handlers, threads and child processes, "
        "variables of the environment that look like credentials, files and databases."
    )
