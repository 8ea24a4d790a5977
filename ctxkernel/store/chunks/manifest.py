"""Manifests of checkpoints, as far as the store reads them: the base of each, and the units of its names.

    {"v": 1, "base": checkpoint id | null, "units": [Unit …], "gone": [name …]}
    Unit {"n": [name …], "m": {name: why it is not stored}, "p": [part that is not stored …], "j": job, …}
    results {job: {"units": [Unit …]}}: the units that a background job made of a unit with `j`

Rule 1: A manifest is data: nothing is unpickled here, and `References` returns the addresses of a unit.
Rule 2: A manifest of another form is damaged: StoreError with its checkpoint.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ctxkernel.core.errors import StoreError
from ctxkernel.core.events import Json
from ctxkernel.core.replay import CheckpointState
from ctxkernel.core.text import join_names

FORMAT = 1
GIVEN_UP = "given up for space"
"""The beginning of the reason for data that were removed on purpose: no damage."""

Read = Callable[[str], bytes | memoryview]
"""Returns the data of an address. Raises StoreError if they are missing or damaged."""


def skipped_manifest(why: str) -> dict[str, Json]:
    """Return the manifest of a checkpoint that was not taken; it has no base and no units."""
    return {"v": FORMAT, "base": None, "units": [], "gone": [], "skipped": why}


References = Callable[[Mapping[str, Any], Read], Iterable[str]]
"""Returns the addresses that the units of a manifest need, including those that only a blob names."""

Unit = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint to be stored with the end of its execution."""

    checkpoint_id: str
    manifest: Mapping[str, Json]
    nbytes: int = 0
    """The bytes that it added to the store."""
    format: int = FORMAT
    state: CheckpointState = "durable"
    reason: str = ""
    time_ms: float = 0.0
    """The time that it added to the cell."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The stored manifest of a checkpoint."""

    checkpoint_id: str
    execution_id: str
    text: str
    format: int
    signed: bool
    """Whether this user signed it, or trusted the session by word after it was stored; else its state is not loaded."""
    results_text: str = ""
    """The results of background jobs as JSON; empty if there are none yet."""

    def parse(self) -> dict[str, Any]:
        """Return it as JSON values. Raises StoreError if it is not of the form above."""
        made = self._json(self.text)
        if not _is_manifest(made):
            raise StoreError(f"the manifest of checkpoint {self.checkpoint_id} is damaged")
        return made

    @property
    def skipped(self) -> str:
        """Why no checkpoint was taken; empty if one was. Raises StoreError."""
        return str(self.parse().get("skipped", "")) if '"skipped"' in self.text else ""

    def results(self) -> dict[str, Any]:
        """Return job → `{"units": […]}`. Raises StoreError if it is not of the form above."""
        made = self._json(self.results_text or "{}")
        if not all(isinstance(one, dict) and _is_manifest(cast("dict[str, Any]", one)) for one in made.values()):
            raise StoreError(f"the background results of checkpoint {self.checkpoint_id} are damaged")
        return made

    def _json(self, text: str) -> dict[str, Any]:
        made = None
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            made = json.loads(text)
        if not isinstance(made, dict):
            raise StoreError(f"the manifest of checkpoint {self.checkpoint_id} is damaged")
        return cast("dict[str, Any]", made)


def _is_manifest(made: Mapping[str, Any]) -> bool:
    based = isinstance(made.get("base"), str | None)
    units = made.get("units", [])
    return based and isinstance(units, list) and all(map(_is_unit, cast("list[Any]", units))) and _names(made, "gone")


def _is_unit(value: Any) -> bool:
    unit = cast("dict[str, Any]", value) if isinstance(value, dict) else dict[str, Any]()
    named = bool(unit.get("n")) and _names(unit, "n") and _names(unit, "p")
    return named and isinstance(unit.get("m", {}), dict) and isinstance(unit.get("j", ""), str)


def _names(made: Mapping[str, Any], key: str) -> bool:
    listed = made.get(key, [])
    return isinstance(listed, list) and all(isinstance(one, str) for one in cast("list[Any]", listed))


def chain(manifests: Mapping[str, Manifest], execution_id: str) -> list[Manifest]:
    """Return the manifest of the state after an execution and its bases, newest first.

    `manifests` are by execution. Raises StoreError if one is missing or damaged.
    """
    found = manifests.get(execution_id)
    if found is None:
        raise StoreError(f"there is no checkpoint after {execution_id}")
    by_id = {one.checkpoint_id: one for one in manifests.values()}
    out = [found]
    while (base := out[-1].parse().get("base")) is not None:
        if base not in by_id or len(out) > len(by_id):
            raise StoreError(f"checkpoint {out[-1].checkpoint_id} builds on {base}, which is not there")
        out.append(by_id[base])
    return out


def advance(state: dict[str, T], made: Manifest, facts: Callable[[Unit], Mapping[str, T]]) -> dict[str, T]:
    """Apply a manifest to `state`, in place, and return it; `facts` returns names → facts of a unit.

    The results of a background job replace its unit. Raises StoreError if the manifest is damaged.
    """
    parsed, results = made.parse(), made.results()
    for name in parsed.get("gone", ()):
        state.pop(name, None)
    for listed in parsed.get("units", ()):
        for unit in results[listed["j"]].get("units", ()) if listed.get("j") in results else (listed,):
            found = facts(unit)
            for name in unit["n"]:
                if name not in found:
                    state.pop(name, None)
            state |= found
    return state


def resolve(newest_first: Sequence[Manifest]) -> dict[str, Unit]:
    """Return names → units of the state of a `chain`. Raises StoreError if a manifest is damaged."""
    units: dict[str, Unit] = {}
    for one in reversed(newest_first):
        advance(units, one, lambda unit: dict.fromkeys(unit["n"], unit))
    return units


Lacks = Mapping[str, Mapping[str, str]]
"""For each name, its parts that are not stored, and why: the name itself, or parts of its value (`name: part`)."""


def lacks_of(unit: Unit) -> Lacks:
    """Return the parts of a unit that are not stored."""
    why: Mapping[str, Any] = unit.get("m", {})
    out = {name: {name: str(why[name])} for name in unit["n"] if name in why}
    for part in unit.get("p", ()):
        out.setdefault(unit["n"][0], {})[f"{unit['n'][0]}: {part}"] = "cannot be stored"
    return out


def by_reason(found: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names for each reason."""
    reasons: dict[str, list[str]] = {}
    for name, why in found.items():
        reasons.setdefault(why, []).append(name)
    return reasons


def some_gaps(gaps: Mapping[str, str]) -> str:
    """Return gaps in one line, by their reasons."""
    found = by_reason(gaps).items()
    return "; ".join(f"{join_names(names, 5)}: {why}" for why, names in found)
