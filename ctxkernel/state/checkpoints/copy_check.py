"""Check whether packed values come back equal, for objects whose class defines how it is stored.

A copy is unpacked, and both are packed by their attributes, whatever their classes say: equal content means faithful.
Where an attribute differs (a cache, a pointer into a library), but what the library itself stores of the copy is what
it stores of the value, the value is *inexact*: it can be restored, and a return says so.

Rule 1: each value is compared, not each type: a cache that is empty the first time may be full the next.
Rule 2: where something has a `__del__`, which would run when the copy goes, no copy is made, and the value counts as
        not faithful. Other code of the user's than pickle's methods runs in a forked process only.
Rule 3: no bounded comparison is believed: what takes longer than a cell may is left to a background job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.reflection import class_module, class_of
from ctxkernel.core.state_names import CLASS
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.tracking import fingerprints
from ctxkernel.state.tracking.chunk_addresses import chunks_of
from ctxkernel.state.tracking.piece_prints import PackBuffers
from ctxkernel.state.tracking.stream_trees import MOST_TEXT, TooLarge, values_of
from ctxkernel.state.types.arrays import allocate
from ctxkernel.state.types.packer import Lost, Packed, Packer
from ctxkernel.state.types.parts import said

MOST_BYTES = 64 * 1024 * 1024
MOST_SECONDS = 0.01
"""Limits of values that are compared while the user waits: bytes to copy, and time of packing."""
_OF_PICKLE = frozenset(("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"))


@dataclass(frozen=True, slots=True)
class Unequal:
    """The names of a pack whose copy differs from their value."""

    lost: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those that cannot be restored, and why."""
    inexact: tuple[str, ...] = ()
    """Those that can be restored as their libraries store them."""


def unfaithful(
    packer: Packer,
    packed: Packed,
    values: Mapping[str, Any],
    *,
    handles: Callable[[str], object] = Lost,
    forked: bool = False,
    bounded: bool = False,
) -> Unequal | None:
    """Return the names whose copy is not equal to their value. Never raises but KeyboardInterrupt.

    `values` are those that were packed, and must not have changed since. `forked`: nothing that is done in this process
    is seen outside of it. `bounded`: return None where a cell would have to wait for it.
    """
    runs = [one for one in packed.runs if one.rpartition(".")[2] not in _OF_PICKLE]
    ends = [one for one in runs if one.endswith(".__del__")]
    if ends or (runs and not forked and not bounded):
        why = f"its class says itself how it is stored, and a comparison with a copy would run {(*ends, *runs)[0]}"
        return Unequal(dict.fromkeys((name for name in values if name not in packed.faults), why))
    if bounded and (runs or packed.nbytes > MOST_BYTES):
        return None
    report: list[str] = []
    try:
        copies = packer.unpack(
            packed.stream,
            [_copied(one) for one in packed.buffers],
            live=packed.live.get,
            classes=packed.classes.get,
            shared=packed.shared.get,
            report=report,
            handles=handles,
            trial=True,
        )
    except KeyboardInterrupt:
        raise
    except BaseException as fault:
        return Unequal(dict.fromkeys(values, f"it can be stored, but it cannot be unpacked: {said(fault)}"))
    stored = {name: value for name, value in values.items() if name not in packed.faults and value is not NOTHING}
    found = dict.fromkeys(stored.keys() - copies.keys(), "it can be stored, but it does not come back")
    try:
        same = not found and _same(packer, packed, stored, copies, bounded)
        differ = [name for name in stored if name in copies and not same]
        if len(stored) > 1:
            differ = [name for name in differ if not _same(packer, packed, {name: stored[name]}, copies, bounded)]
        in_doubt = differ and not found and not report and not _of_users(packer, packed)
        if in_doubt and _same(packer, packed, stored, copies, bounded, claimed=True):
            return Unequal(inexact=tuple(differ))
    except TooLarge:
        return None
    except Exception as fault:
        why = f"it can be stored, but it cannot be compared with its copy: {said(fault)}"
        return Unequal(dict.fromkeys(stored, why))
    found |= dict.fromkeys(differ, "it can be stored, but its copy is not equal to it")
    if not same and not found:
        found = dict.fromkeys(stored, "it can be stored, but the copies do not share what the originals share")
    if report:
        found = dict.fromkeys(found or copies, f"it can be stored, but a part of it does not come back: {report[0]}")
    return Unequal(found)


def _of_users(packer: Packer, packed: Packed) -> bool:
    """Return whether the class of an unproven object is the user's own."""
    modules = {class_module(class_of(one)) for one, _ in packed.unproven}
    return packer.module in modules or not modules.isdisjoint(packer.own_modules)


def _copied(memory: memoryview) -> memoryview:
    made = allocate(memory.nbytes)
    made[:] = memory
    return made


def _same(
    packer: Packer,
    packed: Packed,
    values: Mapping[str, Any],
    copies: Mapping[str, Any],
    bounded: bool,
    *,
    claimed: bool = False,
) -> bool:
    """Return whether copies have the fingerprints of their values. Raises TooLarge where a cell would have to wait."""
    both = values, {name: copies[name] for name in values}
    # A shared object is compared by its content where it is the value, and by its label where the value refers to it.
    mine, theirs = (_Content(packer, one, packed.labels, claimed=claimed) for one in both)
    if mine.exact() == theirs.exact():
        return True
    most = (fingerprints.MOST_NODES, MOST_TEXT) if bounded else (math.inf, math.inf)
    found = mine.print(*most)
    if not found and bounded:
        raise TooLarge
    return bool(found) and found == theirs.print(*most)


class _Content:
    """The content of values: by their attributes, or as `claimed` by the classes of libraries."""

    def __init__(
        self, packer: Packer, values: Mapping[str, Any], labels: Collection[str], *, claimed: bool = False
    ) -> None:
        classes = {name: value for name, value in values.items() if name.startswith(CLASS)}  # by their content
        others = {name: value for name, value in values.items() if name not in classes}
        self._packed = packer.pack({"values": others, **classes}, plain=not claimed, claimed=claimed, labels=labels)
        self._chunks = [chunks_of(one) for one in self._packed.buffers]

    def exact(self) -> object:
        """Return a key that is equal only for equal fingerprints, and not for all of them."""
        packed = self._packed
        labels = [label for label in packed.labels if not label.startswith("live:")]
        return bytes(packed.body), self._chunks, labels, [*map(id, packed.live.values())]

    def print(self, nodes: float, text: float) -> str:
        """Return a hash of the content; empty where it holds more than `nodes`. Raises TooLarge, of `text`."""
        packed = self._packed
        sizes = [one.nbytes for one in packed.buffers]
        tree = values_of(packed.stream, sizes, self._chunks, most=text)
        labels = dict.fromkeys(packed.labels, "")
        # A copy may have an array of its own where its value has a view of one, but not of memory of a library.
        buffers = PackBuffers(self._chunks, sizes, held=packed.buffers)
        return fingerprints.content_fingerprint(
            {name: getattr(value, "content", value) for name, value in tree.items()},
            buffers=self._chunks,
            shared=lambda label: labels.get(label, label),
            hidden=lambda _: frozenset(),
            memory=lambda root: None if root.made == "memory_block" and type(root.args[0]) is bytes else buffers(root),
            most=nodes,
        )
