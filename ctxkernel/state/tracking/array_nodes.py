"""Nodes of arrays and indexes in the tree of a pack, and of views as arrays of their own."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import operator
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.reflection import class_of, is_any, is_kind, loaded
from ctxkernel.state.tracking.chunk_addresses import chunks_of
from ctxkernel.state.tracking.stream_trees import Node, named
from ctxkernel.state.types.parts import SMALL

ARRAYS = frozenset(("array", "array_view", "memory_block", "machine_values"))
_MOST_SHOWN = 100_000
"""Elements of a view that are compared as those of an array of its own."""
_VISIBLE_BYTES = 1024 * 1024
"""Bytes of the largest one."""
_POINTER = struct.calcsize("P")


def is_part(one: Node) -> bool:
    """Return whether a node stands for an array or an index: it has a pack of its own where several names hold it."""
    if one.made in ARRAYS:
        return True
    names = (one.made, one.args[0].__name__) if one.args and isinstance(one.args[0], type) else (one.made,)
    return any(name.startswith("pandas.") and _is_index(name) for name in names)


@functools.lru_cache(5000)
def _is_index(name: str) -> bool:
    """Return whether a name is that of a class of indexes or of extension arrays of pandas."""
    module, _, path = name.rpartition(".")
    cls = loaded(module).get(path)
    if not is_kind(class_of(cls), type):
        return False
    return is_any(cast("type", cls), ("pandas", "Index"), ("pandas.api.extensions", "ExtensionArray"))


def objects_of(view: Any) -> Node | None:
    """Return the array of objects of which a node is a view as a whole, as pandas 2 has them; None for others."""
    if not isinstance(view, Node) or view.made != "array_view":
        return None
    root, offset, _, shape, strides, writeable, *cls = view.args
    if not isinstance(root, Node) or root.made != "objects" or offset or cls or shape != root.args[0]:
        return None
    is_same = strides == _strides(shape, _POINTER, fortran=root.args[2]) and writeable == root.state[0][0][-1]
    return root if is_same else None


def _strides(shape: tuple[int, ...], step: int, *, fortran: bool) -> tuple[int, ...]:
    """Return the strides of an array that lies in memory without gaps."""
    back = 1 if fortran else -1
    sizes = shape[::back]  # the axis that moves fastest first
    return tuple(itertools.accumulate(sizes[:-1], operator.mul, initial=step))[::back]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that views are in."""

    held: Any
    """The bytes, an array or a memoryview of them; None where only the chunks are known."""
    size: int
    """In bytes."""
    chunks: Sequence[str] = ()
    """The addresses of its chunks, if it has any."""


FindBuffer = Callable[[Node], Buffer | None]
"""Returns the memory of an array or a block that a node stands for; None where that is not known."""


def buffer_in_stream(root: Node) -> Buffer | None:
    """Return the memory of a small array, which its stream holds."""
    data: Any = root.args[0] if root.made in ("array", "memory_block") else None
    return Buffer(data, len(data)) if isinstance(data, bytes) else None


def as_array(view: Node, find: FindBuffer) -> Node | None:
    """Return a view that shows little, or all of an array or a block, as an array of its own; None for another view.

    In place of its data the node has the addresses of its chunks where it is not small.
    """
    root, offset, kind, shape, strides, writeable, *cls = view.args
    if not isinstance(root, Node) or cls or class_of(kind) is not str or (buffer := find(root)) is None:
        return None
    numpy: Any = sys.modules["numpy"]
    step: int = numpy.dtype(kind).itemsize
    count = math.prod(shape)
    if buffer.chunks and not offset and count * step == buffer.size:
        for fortran in (False, True):
            if strides == _strides(shape, step, fortran=fortran):
                return named("array")(tuple(buffer.chunks), kind, shape, fortran, writeable)
    if buffer.held is not None and count <= _MOST_SHOWN and count * step <= _VISIBLE_BYTES:  # a few may look like many
        try:
            shown = numpy.ndarray(shape, kind, buffer.held, offset, strides) if count else numpy.empty(shape, kind)
        except (TypeError, ValueError, BufferError):  # its memory was resized since: it counts as what it is a view of
            return None
        fortran = shown.flags.f_contiguous and not shown.flags.c_contiguous
        data = shown.tobytes("F" if fortran else "C")
        told = data if len(data) < SMALL else chunks_of(memoryview(data))
        return named("array")(told, kind, shape, fortran, writeable)
    return None


def is_default_fill(content: bytes, kind: Any) -> bool:
    """Return whether the content of a fill value is that which NumPy gives masked arrays of its type."""
    numpy: Any = sys.modules["numpy"]
    with contextlib.suppress(Exception), numpy.errstate(all="ignore"):  # NumPy's own: its default overflows small types
        masked = numpy.ma.MaskedArray(numpy.empty(0, numpy.dtype(kind)))
        return content == numpy.asarray(masked.fill_value, masked.dtype).tobytes()
    return False
