"""Whether what was packed comes back as it is, for objects whose class says itself how it is stored.

A copy is unpacked, and both are packed by their attributes, whatever their classes say: equal content means faithful.

Rule 1: each value is compared, not each type: a cache that is empty the first time may be full the next.
Rule 2: where something has a `__del__`, which would run when the copy goes, no copy is made, and the value counts as
        not faithful. Other code of the user's than pickle's methods runs in a forked process only.
Rule 3: no bounded comparison is believed: what takes longer than a cell may is left to a background job.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.tracking import fingerprints
from ctxkernel.state.tracking.groups import chunks_of
from ctxkernel.state.types.arrays import allocate
from ctxkernel.state.types.packer import Lost, Packed, Packer
from ctxkernel.state.types.parts import said

MOST_BYTES = 64 * 1024 * 1024
MOST_SECONDS = 0.01
"""Bytes that are copied, and what packing may have taken, of values that are compared while the user waits."""
_OF_PICKLE = frozenset(("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"))


def unfaithful(
    packer: Packer,
    packed: Packed,
    values: Mapping[str, Any],
    *,
    handles: Callable[[str], object] = Lost,
    forked: bool = False,
    bounded: bool = False,
) -> dict[str, str] | None:
    """Return the names whose copy is not equal to their value, and why. Never raises but KeyboardInterrupt.

    `values` are those that were packed, and must not have changed since. `forked`: nothing that is done in this process
    is seen outside of it. `bounded`: return None where a cell would have to wait for it.
    """
    runs = [one for one in packed.runs if one.rpartition(".")[2] not in _OF_PICKLE]
    ends = [one for one in runs if one.endswith(".__del__")]
    if ends or (runs and not forked and not bounded):
        why = f"its class says itself how it is stored, and a comparison with a copy would run {(*ends, *runs)[0]}"
        return dict.fromkeys((name for name in values if name not in packed.faults), why)
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
        return {name: f"it can be stored, but it cannot be unpacked: {said(fault)}" for name in values}
    stored = {name: value for name, value in values.items() if name not in packed.faults and value is not NOTHING}
    found = dict.fromkeys(stored.keys() - copies.keys(), "it can be stored, but it does not come back")
    try:
        same = not found and _same(packer, stored, copies, bounded)
        for name, value in stored.items() if not same else ():
            if name in copies and not _same(packer, {name: value}, copies, bounded):
                found[name] = "it can be stored, but its copy is not equal to it"
    except fingerprints.TooLarge:
        return None
    except Exception as fault:
        return dict.fromkeys(stored, f"it can be stored, but it cannot be compared with its copy: {said(fault)}")
    if not same and not found:
        found = dict.fromkeys(stored, "it can be stored, but the copies do not share what the originals share")
    if report:
        return dict.fromkeys(found or copies, f"it can be stored, but a part of it does not come back: {report[0]}")
    return found


def _copied(memory: memoryview) -> memoryview:
    made = allocate(memory.nbytes)
    made[:] = memory
    return made


def _same(packer: Packer, values: Mapping[str, Any], copies: Mapping[str, Any], bounded: bool) -> bool:
    """Return whether copies have the fingerprints of their values. Raises TooLarge where a cell would have to wait."""
    mine, theirs = (_Content(packer, one) for one in (values, {name: copies[name] for name in values}))
    if mine.exact() == theirs.exact():
        return True
    most = (fingerprints.MOST_NODES, fingerprints.MOST_TEXT) if bounded else (math.inf, math.inf)
    found = mine.print(*most)
    if not found and bounded:
        raise fingerprints.TooLarge
    return bool(found) and found == theirs.print(*most)


class _Content:
    """The content of values, by their attributes."""

    def __init__(self, packer: Packer, values: Mapping[str, Any]) -> None:
        self._packed = packer.pack({"values": dict(values)}, plain=True)
        self._chunks = [chunks_of(one) for one in self._packed.buffers]

    def exact(self) -> object:
        """Return what is equal only for equal fingerprints, and not for each."""
        packed = self._packed
        labels = [label for label in packed.labels if not label.startswith("live:")]
        return bytes(packed.body), self._chunks, labels, [*map(id, packed.live.values())]

    def print(self, nodes: float, text: float) -> str:
        """Return a hash of the content; empty where it holds more than `nodes`. Raises TooLarge, of `text`."""
        packed = self._packed
        tree = fingerprints.values_of(packed.stream, [one.nbytes for one in packed.buffers], self._chunks, most=text)
        labels = dict.fromkeys(packed.labels, "")
        return fingerprints.fingerprint(
            tree["values"],
            buffers=self._chunks,
            shared=lambda label: labels.get(label, label),
            hidden=lambda _: frozenset(),
            most=nodes,
        )
