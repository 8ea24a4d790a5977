"""Manifests of checkpoints, as far as the store looks into them: what builds on what, and which names have which unit.

    {"v": 1, "base": checkpoint id | null, "units": [{"n": [name …], "m": {name: reason}, …}], "gone": [name …]}

Rule 1: a manifest is data: nothing here unpickles, and what a unit refers to is asked of `References`.
Rule 2: a manifest that is not of this form is damaged, and no fault of the reader's: StoreError, with its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ctxkernel.core.errors import StoreError
from ctxkernel.core.events import Json
from ctxkernel.core.replay import CheckpointState

FORMAT = 1

Read = Callable[[str], bytes | memoryview]
"""Returns the data of an address. Raises StoreError where it is missing or damaged."""

References = Callable[[Mapping[str, Any], Read], Iterable[str]]
"""Returns the addresses that the units of a manifest need, those that only a blob of theirs names included."""

Unit = Mapping[str, Any]


class Chunks(Protocol):
    """What is asked of a chunk store: never more than to read it."""

    def has(self, address: str) -> bool:
        """Say whether it holds the data of `address`."""
        ...

    def read(self, address: str) -> memoryview:
        """Return the data, compared with its address. Raises StoreError."""
        ...


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint to be stored with the end of its execution."""

    checkpoint_id: str
    manifest: Mapping[str, Json]
    nbytes: int = 0
    """Bytes that it added to what is stored."""
    format: int = FORMAT
    state: CheckpointState = "durable"
    reason: str = ""
    time_ms: float = 0.0
    """Time that taking it added to the cell."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint's manifest as it is stored."""

    checkpoint_id: str
    execution_id: str
    text: str
    format: int
    signed: bool
    """Whether this user signed it, or has trusted the session when it was there: else its state is not loaded."""

    def parse(self) -> dict[str, Any]:
        """Return it as JSON values. Raises StoreError where it is not of the form above."""
        return parse(self.text, self.checkpoint_id)


def parse(text: str, checkpoint_id: str) -> dict[str, Any]:
    """Return the manifest of a checkpoint as JSON values. Raises StoreError where it is damaged."""
    try:
        made = json.loads(text)
        ok = isinstance(made, dict) and _is_manifest(cast("dict[str, Any]", made))
    except (ValueError, TypeError, RecursionError):
        made, ok = None, False
    if not ok:
        raise StoreError(f"the manifest of checkpoint {checkpoint_id} is damaged")
    return cast("dict[str, Any]", made)


def _is_manifest(made: Mapping[str, Any]) -> bool:
    units: Any = made.get("units", [])
    base: Any = made.get("base")
    return (
        (base is None or isinstance(base, str))
        and isinstance(units, list)
        and all(
            isinstance(unit, dict) and _names(unit.get("n")) and isinstance(unit.get("m", {}), dict)  # pyright: ignore[reportUnknownMemberType]
            for unit in cast("list[Any]", units)
        )
        and _names(made.get("gone", []))
    )


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value))


def apply(units: dict[str, Unit], manifest: Mapping[str, Any]) -> dict[str, Unit]:
    """Take a manifest's changes into names → units, in place."""
    for name in manifest.get("gone", ()):
        units.pop(name, None)
    for unit in manifest.get("units", ()):
        for name in unit["n"]:
            units[name] = unit
    return units


def missing_after(before: Mapping[str, str], manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the names whose value is not stored after a manifest, and why, given those before it."""
    out = dict(before)
    for name in (*manifest.get("gone", ()), *(name for unit in manifest.get("units", ()) for name in unit["n"])):
        out.pop(name, None)
    for unit in manifest.get("units", ()):
        out.update((name, str(why)) for name, why in unit.get("m", {}).items())
    return out


class Presence:
    """Looks whether all that checkpoints need is in a chunk store; each address once."""

    def __init__(self, chunks: Chunks, references: References, *, verify: bool) -> None:
        self._chunks = chunks
        self._references = references
        self._verify = verify
        """Whether data are read and compared with their addresses, or only looked for."""
        self._units: dict[int, tuple[Unit, str]] = {}
        self._addresses: dict[str, str] = {}

    def fault(self, units: Iterable[Unit]) -> str:
        """Return what is wrong with the data of units, or an empty text."""
        for unit in units:
            found = self._units.get(id(unit))
            if found is None:
                found = self._units[id(unit)] = unit, self._fault_of(unit)
            if found[1]:
                return found[1]
        return ""

    def _fault_of(self, unit: Unit) -> str:
        try:
            addresses = list(self._references({"units": [unit]}, self._chunks.read))
        except StoreError as error:
            return str(error)
        except Exception as error:  # a damaged blob: whatever that makes of the reading of it
            return f"what {', '.join(unit['n'][:3])} is made of cannot be read ({type(error).__name__}: {error})"
        for address in addresses:
            if address not in self._addresses:
                self._addresses[address] = self._look_at(address)
            if found := self._addresses[address]:
                return found
        return ""

    def _look_at(self, address: str) -> str:
        if not self._chunks.has(address):
            return f"chunk {address} is missing"
        if self._verify:
            try:
                self._chunks.read(address)
            except StoreError as error:
                return str(error)
        return ""
