"""Manifests of checkpoints, as far as the store reads them: the base of each, and the units of its names.

    {"v": 2, "base": checkpoint id | null, "units": [Unit …], "gone": [name …]}
    Unit {"n": [name …], "m": {name: why it is not stored}, "p": [part that is not stored …], "j": job, …}
    results {job: {"units": [Unit …], "f": {name: fingerprint}}}: what a background job made of a unit with `j`

`state.checkpoints.units` describes all fields of a unit, and `docs/schemas.md` those of a manifest.

Rule 1: A manifest is data: nothing is unpickled here, and `References` returns the addresses of a unit.
Rule 2: A manifest of another form is damaged: StoreError with its checkpoint.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import StoreError
from ctxkernel.core.json_input import load_json
from ctxkernel.core.replay import CHECKPOINT_FORMAT, CheckpointState
from ctxkernel.core.text import join_names
from ctxkernel.core.timeline_events import Json

FORMAT = 1
GIVEN_UP = "given up for space"
"""The beginning of the reason for data that were removed on purpose: no damage."""

Read = Callable[[str], bytes | memoryview]
"""Returns the data of an address. Raises StoreError if they are missing or damaged."""


def skipped_manifest(why: str) -> dict[str, Json]:
    """Return the manifest of a checkpoint that was not taken; it has no base and no units."""
    return {"v": CHECKPOINT_FORMAT, "base": None, "units": [], "gone": [], "skipped": why}


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


@dataclass(frozen=True)
class Manifest:
    """The stored manifest of a checkpoint. It is read as JSON once, and what that gives is not to be changed."""

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
        return self._parsed

    @cached_property
    def _parsed(self) -> dict[str, Any]:
        made = self._json(self.text)
        if not _is_manifest(made):
            raise StoreError(f"the manifest of checkpoint {self.checkpoint_id} is damaged")
        return made

    @property
    def skipped(self) -> str:
        """Why no checkpoint was taken; empty if one was. Raises StoreError."""
        return str(self.parse().get("skipped", "")) if '"skipped"' in self.text else ""

    @property
    def outdated(self) -> str:
        """Why a state of another version cannot be loaded by this one; empty if it can. Raises StoreError."""
        made = self.parse()
        if "skipped" in made or made.get("v") == CHECKPOINT_FORMAT:
            return ""
        older = "an older" if made.get("v", 0) < CHECKPOINT_FORMAT else "a newer"
        return f"{older} version of ctxkernel stored it in another form; the cells can be run again (rerun 1)"

    def results(self) -> dict[str, Any]:
        """Return job → `{"units": […]}`. Raises StoreError if it is not of the form above."""
        return self._parsed_results if self.results_text else {}

    @cached_property
    def _parsed_results(self) -> dict[str, Any]:
        made = self._json(self.results_text)
        if not all(map(_is_manifest, made.values())):
            raise StoreError(f"the background results of checkpoint {self.checkpoint_id} are damaged")
        return made

    def _json(self, text: str) -> dict[str, Any]:
        with contextlib.suppress(ValueError):
            made = load_json(text, most_bytes=MOST_BYTES, most_depth=_MOST_DEPTH)
            if isinstance(made, dict):
                return cast("dict[str, Any]", made)
        raise StoreError(f"the manifest of checkpoint {self.checkpoint_id} is damaged")


MOST_BYTES = 16 * 1024 * 1024
"""Largest manifest that is read, in characters."""
_MOST_DEPTH = 8
_MOST_TEXT = 10_000
"""Most characters of a text in a manifest."""
FormCheck = Callable[[Any], bool]
FACT_KEYS: Mapping[str, str] = {
    "reads": "r",
    "bound": "b",
    "doubtful": "d",
    "parts": "p",
    "settings": "c",
    "beyond": "a",
    "modules": "m",
    "unknown": "u",
    "opaque": "o",
    "taken_from": "t",
    "draws": "s",
}
"""Fields of `CellFacts` → the keys under which a manifest has them."""


def _is_text(value: Any) -> bool:
    return type(value) is str and len(value) <= _MOST_TEXT


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _list_of(check: FormCheck) -> FormCheck:
    return lambda value: type(value) is list and all(map(check, cast("list[Any]", value)))


def _map_of(check: FormCheck) -> FormCheck:
    def is_map(value: Any) -> bool:
        found = cast("dict[Any, Any]", value) if type(value) is dict else None
        return found is not None and all(map(_is_text, found)) and all(map(check, found.values()))

    return is_map


def _row_of(*checks: FormCheck) -> FormCheck:
    def is_row(value: Any) -> bool:
        row = cast("list[Any]", value) if type(value) is list else []
        return len(row) == len(checks) and all(check(one) for check, one in zip(checks, row, strict=True))

    return is_row


_are_texts = _list_of(_is_text)


def _fits(fields: Mapping[str, FormCheck]) -> FormCheck:
    """Return a check of an object's known fields. Others are left to later versions."""

    def fits(value: Any) -> bool:
        found = cast("dict[str, Any]", value) if type(value) is dict else None
        return found is not None and all(check(found[name]) for name, check in fields.items() if name in found)

    return fits


_fits_unit = _fits(
    {
        "n": _are_texts,
        "d": _is_text,
        "s": _row_of(_is_text, _is_number),
        "b": _list_of(_row_of(_is_number, lambda value: _is_text(value) or _are_texts(value))),
        "m": _map_of(_is_text),
        "p": _are_texts,
        "l": _list_of(_row_of(_is_text, _is_text)),
        "j": _is_text,
        "r": _are_texts,
        "c": _list_of(_row_of(_is_text, _is_text, _is_text, _are_texts)),
    }
)


def _is_unit(value: Any) -> bool:
    return _fits_unit(value) and bool(value.get("n"))


_FACT_FORMS: Mapping[str, FormCheck] = {
    **dict.fromkeys(("unknown", "opaque", "taken_from", "draws"), _is_text),
    "modules": _map_of(_is_text),
}
"""The forms of facts that are no lists of texts."""
_is_manifest = _fits(
    {
        "v": _is_number,
        "base": lambda value: value is None or _is_text(value),
        "units": _list_of(_is_unit),
        "gone": _are_texts,
        "skipped": _is_text,
        "u": _map_of(_are_texts),
        "f": _map_of(_is_text),
        "t": _are_texts,
        "r": _fits({key: _FACT_FORMS.get(name, _are_texts) for name, key in FACT_KEYS.items()}),
    }
)


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


def each_state(
    manifests: Mapping[str, Manifest], facts: Callable[[Unit], Mapping[str, T]]
) -> Iterator[tuple[str, dict[str, T] | StoreError]]:
    """Yield each execution with names → facts of the state after it, oldest first, or with the reason why not.

    A state is only valid until the next one: one that builds on it may be made of the same dict.
    """
    bases: dict[str, str | None] = {}
    faults: dict[str, StoreError] = {}
    for one in manifests.values():
        try:
            bases[one.checkpoint_id] = one.parse().get("base")
            if why := one.outdated:
                raise StoreError(why)
        except StoreError as fault:
            faults[one.checkpoint_id] = fault
    left = Counter(bases.values())
    states: dict[str, dict[str, T]] = {}
    for execution_id, one in manifests.items():
        state: dict[str, T] = {}
        fault, base = faults.get(one.checkpoint_id), bases.get(one.checkpoint_id)
        if base is not None and fault is None:
            left[base] -= 1
            if base in states:
                state = states[base].copy() if left[base] else states.pop(base)
            else:
                fault = faults.get(base, StoreError(f"it builds on {base}, which is not there"))
        try:
            if fault is not None:
                raise fault
            advance(state, one, facts)
        except StoreError as found:
            faults[one.checkpoint_id] = found
            yield execution_id, found
            continue
        if left[one.checkpoint_id]:
            states[one.checkpoint_id] = state
        yield execution_id, state


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
