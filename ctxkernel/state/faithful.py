"""Whether what was packed comes back as it is, for objects whose class says itself how it is stored.

A copy is unpacked, and both are packed by their attributes, whatever their classes say: equal content means faithful.

Rule 1: each value is looked at, not each type: a cache that is empty the first time may be full the next.
Rule 2: a copy is made only where it is small, and where no more of the user's code runs than a return would run: not
        where something in it has a `__del__`, which would run when the copy goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ctxkernel.state import content
from ctxkernel.state.pickle_core import said
from ctxkernel.state.pickling import Lost, Packed, Packer
from ctxkernel.state.pieces import chunks_of
from ctxkernel.state.variables import NOTHING

MOST_BYTES = 64 * 1024 * 1024
MOST_NODES = 1_000_000
"""Parts of values that are compared one by one, where their packs have other bytes."""
_OF_PICKLE = frozenset(("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"))


def unfaithful(
    packer: Packer, packed: Packed, values: Mapping[str, Any], *, handles: Callable[[str], object] = Lost
) -> dict[str, str]:
    """Return the names whose copy is not equal to their value, and why. Never raises but KeyboardInterrupt.

    `values` are those that were packed, and must not have changed since.
    """
    more = [one for one in packed.runs if one.rpartition(".")[2] not in _OF_PICKLE]
    if more or packed.nbytes > MOST_BYTES:
        return {}
    report: list[str] = []
    try:
        copies = packer.unpack(
            packed.stream,
            [bytearray(one) for one in packed.buffers],
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
    found: dict[str, str] = {}
    stored = {name: value for name, value in values.items() if name not in packed.faults and value is not NOTHING}
    for name, value in stored.items():
        if name not in copies:
            found[name] = "it can be stored, but it does not come back"
        elif not _equal(packer, value, copies[name]):
            found[name] = "it can be stored, but its copy is not equal to it"
    together = len(stored) > 1 and not found
    if together and not _equal(packer, stored, {name: copies[name] for name in stored}):
        found = dict.fromkeys(stored, "it can be stored, but the copies do not share what the originals share")
    if report:
        return dict.fromkeys(found or copies, f"it can be stored, but a part of it does not come back: {report[0]}")
    return found


def _equal(packer: Packer, one: Any, other: Any) -> bool:
    """Say whether two values have the same content. What cannot be compared is no fault."""
    try:
        mine, theirs = (packer.pack({"value": value}, plain=True) for value in (one, other))
        chunks = [[chunks_of(view) for view in packed.buffers] for packed in (mine, theirs)]
        if mine.body == theirs.body and chunks[0] == chunks[1]:
            return True
        return _print(mine, chunks[0]) == _print(theirs, chunks[1])
    except KeyboardInterrupt:
        raise
    except Exception:
        return True


def _print(packed: Packed, chunks: list[tuple[str, ...]]) -> str:
    trees = content.values_of(packed.stream, [one.nbytes for one in packed.buffers], chunks)
    labels = dict.fromkeys(packed.labels, "")
    return content.fingerprint(
        trees["value"],
        buffers=chunks,
        shared=lambda label: labels.get(label, label),
        hidden=lambda _: frozenset(),
        most=MOST_NODES,
    )
