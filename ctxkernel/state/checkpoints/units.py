"""The parts of a checkpoint: units of names that share objects, and the manifest that lists the changes.

A state is a mapping from names to units. A manifest is the difference to the state of another checkpoint, as JSON:

    {"v": 2, "base": "cs7.1" | null, "units": [Unit …], "gone": [name …]}
    Unit  {"n": [name …], "d": digest, "s": [blob, part], "b": [[bytes, [chunk …] | blob] …], "m": {name: reason},
           "p": [part that is not stored …], "x": [name …], "l": [[token, version] …], "j": job, "r": [label …],
           "c": [[token, kind, description, [name or place …]] …]}

Empty fields are left out. "u" of a manifest maps names to earlier executions in whose states their value is uncertain.

Blobs hold streams (`bundle`); chunks hold `CHUNK` bytes of a buffer each. Both are addressed by their content.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.replay import CHECKPOINT_FORMAT
from ctxkernel.state.types.connections import Connection

VERSION = CHECKPOINT_FORMAT
PLAIN = "p:"
"""The beginning of the digest of a plain value. Many of these share a stream: a dict of the values by digest."""
INLINE_CHUNKS = 16
"""A buffer of more chunks is listed in a blob of its own."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A large block of memory: its bytes, and the addresses of its chunks in their order."""

    nbytes: int
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """Names whose values share objects, stored together so that they share them again."""

    names: tuple[str, ...]
    digest: str = ""
    """Hash of the stream: equal for equal content and connections. Empty where the content has no stored form."""
    stream: tuple[str, int] = ("", 0)
    """The blob that holds the stream, and which of its streams it is. No blob: its data could not be written."""
    buffers: tuple[Buffer, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of the unit whose value is not stored, and why."""
    parts: tuple[str, ...] = ()
    """Objects within stored values that are not stored themselves."""
    inexact: tuple[str, ...] = ()
    """Names that come back as a library stores its objects: some attributes of the copy differ."""
    live: tuple[tuple[str, str], ...] = ()
    """(token, version) of objects that are not stored, but available while they live and are not touched."""
    job: str = ""
    """The job that stores it, while that is under way."""
    labels: tuple[str, ...] = ()
    """Objects with units of their own that it refers to: `shared:<token>`."""
    again: tuple[Connection, ...] = ()
    """Objects that are not stored, and can be connected again after their end."""
    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    """Label in its stream → the label that is meant now. Never stored: such a unit is loaded, and its values packed."""

    @property
    def is_plain(self) -> bool:
        """Return whether its value is a plain one, which stands in a stream shared with others."""
        return self.digest.startswith(PLAIN)

    @property
    def is_exact(self) -> bool:
        """Return whether its data are complete: no object is kept only alive, and none comes back inexact."""
        return not (self.live or self.inexact)

    @property
    def is_whole(self) -> bool:
        """Return whether every object of its values is in its data."""
        return bool(self.digest) and not (self.live or self.missing or self.parts)

    @property
    def chunks(self) -> list[str]:
        """The addresses of all its chunks."""
        return [chunk for buffer in self.buffers for chunk in buffer.chunks]

    @property
    def addresses(self) -> list[str]:
        """The addresses of all its data."""
        return [self.stream[0], *self.chunks]

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        return sum(buffer.nbytes for buffer in self.buffers)

    def is_other_than(self, other: Unit) -> bool:
        """Return whether both are stored in the same way, and have other content."""
        same_form = (self.names, self.labels) == (other.names, other.labels) and bool(self.digest and other.digest)
        return same_form and not (self.job or other.job) and (self.digest, self.chunks) != (other.digest, other.chunks)

    def equals(self, other: Unit | None) -> bool:
        """Return whether both hold the same content, and all of it is known."""
        if other is None or self.names != other.names or self.live != other.live:
            return False
        if self.job or other.job:
            return self.job == other.job
        mine, theirs = (self.digest, self.buffers, self.labels), (other.digest, other.buffers, other.labels)
        return mine == theirs and bool(self.digest or self.live)


State = dict[str, Unit]
"""Names → units of a checkpoint."""


def within(unit: Unit, state: State) -> Unit:
    """Return a unit with those of its names that it has in a state: others were deleted, or stored again, since."""
    return replace(unit, names=tuple(name for name in unit.names if state.get(name) is unit))


def missing_of(unit: Unit) -> dict[str, str]:
    """Return the unstored names and places in values (`d['x']`) of a unit, with the reason."""
    parts = [part.rpartition(" in ") for part in unit.parts]
    return {**unit.missing, **{where: f"{what} cannot be stored" for what, _, where in parts}}


def unit_to_json(unit: Unit, recipe: Callable[[Sequence[str]], str]) -> dict[str, Any]:
    """Return the manifest's form of a unit; `recipe(chunks)` stores a long list of chunks and returns its blob."""
    out: dict[str, Any] = {"n": list(unit.names)}
    if unit.stream[0]:
        out |= {"d": unit.digest, "s": list(unit.stream)}
    if unit.stream[0] and unit.buffers:
        out["b"] = [
            [one.nbytes, list(one.chunks) if len(one.chunks) <= INLINE_CHUNKS else recipe(one.chunks)]
            for one in unit.buffers
        ]
    rest = {"m": dict(unit.missing), "p": list(unit.parts), "l": [list(pair) for pair in unit.live], "j": unit.job}
    rest |= {"x": list(unit.inexact), "r": list(unit.labels), "c": [[*one[:3], list(one.places)] for one in unit.again]}
    return out | {key: value for key, value in rest.items() if value}


def unit_from_json(made: Mapping[str, Any], recipe: Callable[[str], Sequence[str]]) -> Unit:
    """Return the unit; `recipe(blob)` reads a long list of chunks. Raises KeyError, TypeError or ValueError."""
    stream = made.get("s") or ("", 0)
    buffers = tuple(
        Buffer(int(nbytes), tuple(recipe(chunks) if isinstance(chunks, str) else chunks))
        for nbytes, chunks in made.get("b", ())
    )
    return Unit(
        tuple(made["n"]),
        str(made.get("d", "")),
        (str(stream[0]), int(stream[1])),
        buffers,
        dict(made.get("m", {})),
        tuple(made.get("p", ())),
        tuple(map(str, made.get("x", ()))),
        tuple((str(token), str(version)) for token, version in made.get("l", ())),
        str(made.get("j", "")),
        tuple(map(str, made.get("r", ()))),
        tuple(Connection(str(a), str(b), str(c), tuple(map(str, places))) for a, b, c, places in made.get("c", ())),
    )


def without_kernel(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return results of background jobs without what only the kernel that began them can use: ids of its objects."""
    of_kernel = ("i", "u")
    return {
        job: {"units": [{key: one for key, one in unit.items() if key not in of_kernel} for unit in made["units"]]}
        for job, made in results.items()
    }


def references(manifest: Mapping[str, Any], read: Callable[[str], bytes | memoryview]) -> Iterator[str]:
    """Yield the addresses of all data of a manifest. Raises errors of `read` for a blob that lists chunks."""
    for unit in manifest.get("units", ()):
        if "s" in unit:
            yield unit["s"][0]
        for _, listed in unit.get("b", ()):
            if isinstance(listed, str):
                yield listed
                yield from read_recipe(read(listed))
            else:
                yield from listed


def recipe(chunks: Sequence[str]) -> bytes:
    """Return a list of chunks as a blob."""
    return ",".join(chunks).encode()


def read_recipe(blob: bytes | memoryview) -> list[str]:
    """Return the chunks that a blob lists."""
    return bytes(blob).decode().split(",")


def bundle(streams: Sequence[bytes]) -> bytes:
    """Return streams as one blob: their number, their sizes, themselves."""
    return struct.pack(f"<I{len(streams)}Q", len(streams), *map(len, streams)) + b"".join(streams)


def unbundle(blob: bytes | memoryview, part: int) -> memoryview:
    """Return one stream of a blob. Raises ValueError where there is none."""
    view = memoryview(blob)
    (count,) = struct.unpack_from("<I", view) if len(view) >= 4 else (0,)
    if not 0 <= part < count or 4 + 8 * count > len(view):
        raise ValueError(f"a bundle of {count} streams has no number {part}")
    sizes = struct.unpack_from(f"<{count}Q", view, 4)
    start = 4 + 8 * count + sum(sizes[:part])
    return view[start : start + sizes[part]]


def units_by_name(units: Iterable[Unit]) -> State:
    """Return names → units; of several units of a name the last one."""
    return {name: unit for unit in units for name in unit.names}
