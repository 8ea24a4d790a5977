"""Reducers and constructors of arrays of NumPy. Does not import it.

Rule 1: memory is stored once, as it is laid out; every array of it, strided, transposed or broadcast, is a view.
Rule 2: large memory is not copied. A restored array uses the memory that the caller gives, where that is writable.
"""

from __future__ import annotations

import array as machine
import contextlib
import functools
import itertools
import mmap
import operator
import sys
import types
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.reflection import (
    class_dict,
    class_mro,
    class_of,
    is_any,
    is_kind,
    is_own_class,
    loaded,
)
from ctxkernel.state.types import file_maps
from ctxkernel.state.types.file_objects import is_anonymous, owns_foreign_memory
from ctxkernel.state.types.instances import careful, instance_or
from ctxkernel.state.types.memory_blocks import MemoryBlock, MemoryBlocks
from ctxkernel.state.types.module_objects import of_module
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, Reduction, StreamConstructors

_COLUMN = 1000
_EACH = 20
"""From so many objects on a column's texts are looked at for whether they repeat: one of `_EACH` first."""

_EXPORTERS: tuple[type, ...] = (bytes, bytearray, machine.array, mmap.mmap)
"""Types whose instances are stored themselves, so that an array of their memory is a view of them again. So are data of
ctypes."""


def _numpy() -> Any:
    """Import NumPy where a restore is the first to need it."""
    import numpy as np

    return np


def _at(arr: Any) -> int:
    return _numpy().ndarray.__array_interface__.__get__(arr)["data"][0]


def bounds_of(arr: Any) -> tuple[int, int]:
    """Return the first address of an array's elements and the one after the last."""
    low = high = _at(arr)
    if arr.flags.c_contiguous:
        return low, low + arr.nbytes
    if not arr.size:
        return low, low
    reaches = [(size - 1) * step for size, step in zip(arr.shape, arr.strides, strict=True)]
    for reach in reaches:
        low, high = (low, high + reach) if reach > 0 else (low + reach, high)
    return low, high + arr.itemsize


def _dtype(kind: Any) -> Any:
    """Return a dtype as text where that says all of it."""
    if kind.names is None and kind.subdtype is None and kind.metadata is None and kind.kind in "?biufcSUVmM":
        return kind.str
    return kind


def kind_of_elements(pack: PackState, obj: Any) -> Reduction:
    """A dtype. Those that NumPy has once come back as themselves: pickle would make others than those of scalars."""
    make, kind = _numpy().dtype, _dtype(obj)
    return (make, (kind,)) if kind is not obj and make(kind) is obj else careful(pack, obj)


def array(pack: PackState, obj: Any) -> Reduction:
    """A numpy.ndarray or a subclass of it."""
    ndarray = _numpy().ndarray
    cls = class_of(obj)
    if cls is memory_class():
        return PARTS.memory_block, (pack.data(memoryview(ndarray.view(obj, ndarray))),)
    if cls is ndarray:
        return _elements(pack, obj, obj, ())
    if _says_itself(cls):
        return careful(pack, obj)
    reduction = _elements(pack, obj, ndarray.view(obj, ndarray), (cls,))
    members = pack.plan(cls).dict_of(obj)
    if not members or reduction[0] is PARTS.mapped_view or len(reduction) != 2:
        return reduction
    if is_kind(cls, _numpy().memmap):
        members = {name: value for name, value in members.items() if name != "_mmap"}
    return (*reduction, members, None, None, PARTS.update_dict)


def _says_itself(cls: type) -> bool:
    """Return whether a subclass defines how it is stored. Masked arrays do, but lose shared memory."""
    masked = loaded("numpy.ma").get("MaskedArray")
    below = itertools.takewhile(lambda base: base is not _numpy().ndarray and base is not masked, class_mro(cls))
    names = ("__reduce__", "__reduce_ex__", "__setstate__", "__getstate__")
    return any(name in class_dict(base) for base in below for name in names)


def _elements(pack: PackState, obj: Any, plain: Any, cls: tuple[type, ...]) -> Any:
    np, kind, flags = _numpy(), plain.dtype, plain.flags
    root = _root(pack, obj)
    if kind.kind == "T":
        if root is not obj:  # a view comes back as a copy
            pack.inexact = True
            pack.noted.append(root)
        return plain.__reduce__()
    if is_kind(class_of(root), np.memmap) and class_of(root.base) is mmap.mmap:
        if root.mode == "c":
            root = _block(pack, root.base, obj)
        elif (known := next((one for one in pack.blocks if one.holder is root._mmap), None)) is not None:
            root = known
        else:
            pack.blocks.add(root := file_maps.FileMap(root))
    elif root is obj:
        if kind.hasobject:
            # Made whole before its items are: one of them may be a view of it.
            if kind.names is not None:  # of a field that is an array, NumPy's items are views of this array
                fortran = flags.f_contiguous and not flags.c_contiguous
                state = {name: plain[name].copy() for name in kind.names}, flags.writeable
            else:
                _, _, _, fortran, items = plain.__reduce__()[2]
                state = (*(_repeated(items) or (items,)), flags.writeable)
            return PARTS.objects, (plain.shape, kind, bool(fortran), *cls), state, None, None, PARTS.fill_objects
        if flags.forc and not (pack.blocks and _in_block(pack, plain)):
            return _whole(pack, plain, cls)
        root = _block(pack, obj, obj)
    elif is_kind(class_of(root), np.ndarray):
        if _in_block(pack, root):
            root = _block(pack, root, root)
    elif class_of(root) is mmap.mmap and not is_anonymous(root):
        return pack.refuse(obj, "it maps a file")
    elif is_any(class_of(root), ("torch", "Tensor")):
        root = root.untyped_storage()
    elif not (any(class_of(root) is one for one in _EXPORTERS) or owns_foreign_memory(root)):
        pack.exporters.append(root)
        if pack.claimed:  # a copy has the same elements, in memory of its own
            return _whole(pack, plain, cls)
        root = _block(pack, root, _nearest(plain))
    start, size = _extent(root)
    low, high = bounds_of(plain)
    if low < start or high > start + size:
        raise ValueError("it looks beyond the memory that it is a view of")
    args = (root, _at(plain) - start, _dtype(kind), plain.shape, plain.strides, flags.writeable, *cls)
    return PARTS.mapped_view if class_of(root) is file_maps.FileMap and cls and is_kind(
        cls[0], np.memmap
    ) else PARTS.array_view, args


def _whole(pack: PackState, plain: Any, cls: tuple[type, ...]) -> Reduction:
    fortran = plain.flags.f_contiguous and not plain.flags.c_contiguous
    data = pack.data(memoryview((plain.T if fortran else plain).reshape(-1).view("u1")))
    return PARTS.array, (data, _dtype(plain.dtype), plain.shape, fortran, plain.flags.writeable, *cls)


def _root(pack: PackState, arr: Any) -> Any:
    """Return the owner of an array's memory: an array, itself included, or another exporter."""
    np = _numpy()
    ndarray, memmap = np.ndarray, np.memmap
    base_of, flags_of = ndarray.base.__get__, ndarray.flags.__get__
    node: Any = arr
    while True:
        if class_of(node) is memory_class() or (node is not arr and flags_of(node).forc and pack.label_of(node)):
            return node
        base: Any = base_of(node)
        if base is None:
            return node
        if class_of(base) is mmap.mmap and is_kind(class_of(node), memmap) and node.filename is not None:
            return node
        if class_of(base).__name__ == "DummyArray" and class_of(getattr(base, "__array_interface__", None)) is dict:
            base = base.base  # type: ignore[attr-defined] - numpy's as_strided
            if base is None:
                return node
        if not is_kind(class_of(base), ndarray):
            if node.dtype.hasobject:
                return node  # the memory holds references, which are stored as the objects that they refer to
            return base.obj if class_of(base) is memoryview else base
        node = base


def _nearest(arr: Any) -> Any:
    """Return the array that an exporter's memory was first seen by: views of it show only a part of the memory."""
    ndarray = _numpy().ndarray
    while is_kind(class_of(base := ndarray.base.__get__(arr)), ndarray):
        arr = base
    return arr


def _extent(root: Any) -> tuple[int, int]:
    if class_of(root) in (MemoryBlock, file_maps.FileMap):
        return root.address, root.nbytes
    if is_kind(class_of(root), _numpy().ndarray):
        low, high = bounds_of(root)
        return low, high - low
    if is_any(class_of(root), ("torch", "UntypedStorage")):
        return root.data_ptr(), root.nbytes()
    whole = _numpy().frombuffer(root, "u1")
    return _at(whole), whole.nbytes


def _block(pack: PackState, holder: Any, example: Any) -> MemoryBlock:
    low, high = bounds_of(example)
    if low < high:
        known = pack.blocks.find(low, high)
    else:
        known = next((one for one in pack.blocks if one.holds(low, high) and one.holder is holder), None)
    if known is not None:
        return known
    if holder is not example:
        with contextlib.suppress(TypeError, ValueError, BufferError):  # memory of several pieces, or that it hides
            whole = _numpy().frombuffer(holder, "u1")
            low, high = _at(whole), _at(whole) + whole.nbytes
    made = MemoryBlock(holder, low, high - low)
    pack.blocks.add(made)
    pack.met_memory = True
    return made


def _in_block(pack: PackState, plain: Any) -> bool:
    low, high = bounds_of(plain)
    return pack.blocks.find(low, high) is not None


def block_of(obj: Any, blocks: MemoryBlocks) -> MemoryBlock | None:
    """Return the block in which an array that owns its memory lies; None where it lies in none, or is another object.

    A block that holds only a part of the array is replaced by one that holds all of it.
    """
    if not len(blocks) or not is_any(class_of(obj), ("numpy", "ndarray")):
        return None
    if _numpy().ndarray.base.__get__(obj) is not None and class_of(obj) is not memory_class():
        return None
    low, high = bounds_of(obj)
    return blocks.widen(low, high) if low < high else None


def widen_blocks(found: Iterable[Any], blocks: MemoryBlocks) -> bool:
    """Have blocks hold all of the arrays that lie in them; return whether there are such arrays."""
    return len([one for one in found if block_of(one, blocks)]) > 0


def block(pack: PackState, obj: MemoryBlock) -> Reduction:
    """Memory by itself."""
    np = _numpy()
    at = {"data": (obj.address, True), "shape": (obj.nbytes,), "typestr": "|u1", "version": 3}
    lying = types.SimpleNamespace(block=obj, __array_interface__=at)
    whole = np.asarray(lying) if obj.nbytes else np.empty(0, "u1")
    return PARTS.memory_block, (pack.data(memoryview(whole)),)


def _repeated(items: list[Any]) -> tuple[list[Any], bytes] | None:
    """Return the distinct texts of a column with repetitions, and their places; None for another. Ten times faster."""
    if len(items) < _COLUMN or not {str, class_of(None), float}.issuperset(map(type, items)):
        return None
    sample = items[::_EACH]
    if 2 * len(set(sample)) > len(sample):
        return None
    places: defaultdict[Any, int] = defaultdict(itertools.count().__next__)
    where = _numpy().fromiter(map(places.__getitem__, items), "<u4", len(items))
    if 2 * len(places) > len(items) or any(class_of(one) is float and one == one for one in places):  # 0.0 equals -0.0
        return None
    return list(places), where.astype(_places(len(places))).tobytes()


def _places(count: int) -> str:
    """Return the dtype of numbers below `count`."""
    return "u1" if count <= 1 << 8 else "<u2" if count <= 1 << 16 else "<u4"


def record(pack: PackState, obj: Any) -> Reduction:
    """A record of a structured array, in the memory of that array: a view without dimensions."""
    if obj.base is None:
        return NotImplemented
    if obj.dtype.hasobject:
        return pack.refuse(obj, "it is a part of an array that holds objects")
    told = obj.__array_interface__
    # NumPy 2.5 calls each record read-only; it is so where its array is.
    data = told["data"][0], not obj.base.flags.writeable
    view = _numpy().asarray(DummyArray({**told, "shape": (), "data": data}, obj.base))
    return PARTS.record, (view.view(obj.dtype),)


def flat(_: PackState, obj: Any) -> Reduction:
    """An iterator over an array: the array, and how far it went."""
    return PARTS.flat, (obj.base, obj.index)


def elements(pack: PackState, obj: Any) -> Reduction:
    """An nditer: it has no stored form, and writes to its arrays."""
    held = None
    with contextlib.suppress(ValueError):  # closed
        held = obj.operands
    return pack.refuse(obj, "it cannot be stored", held)


def tree(pack: PackState, obj: Any) -> Reduction:
    """A KDTree of SciPy: with its points themselves, of which it would store a copy, and with its attributes."""
    made, args, state, *_ = obj.__reduce_ex__(5)
    members = pack.plan(class_of(obj)).dict_of(obj) or {}
    return made, args, ((state[0], obj.data, *state[2:]), members), None, None, PARTS.fill_frame


@dataclass(slots=True)
class DummyArray:
    """Memory at an address, and its owner: as NumPy's `as_strided` makes it, which `_root` finds by this name."""

    __array_interface__: dict[str, Any]
    base: Any


TABLE: tuple[tuple[str, str, Kind], ...] = (
    ("numpy", "ndarray", array),
    ("numpy", "dtype", kind_of_elements),
    ("numpy", "void", record),
    ("numpy", "flatiter", flat),
    ("numpy", "nditer", elements),
    ("numpy", "generic", None),
    ("numpy.random", "RandomState", instance_or(("numpy.random.mtrand", "_rand"))),
    ("scipy.spatial", "cKDTree", tree),
    ("scipy.special._multiufuncs", "MultiUFunc", lambda pack, obj: of_module(pack, obj) or careful(pack, obj)),
    ("ctxkernel.state.types.memory_blocks", "MemoryBlock", block),
    (file_maps.__name__, "FileMap", file_maps.mapped),
)


@functools.cache
def memory_class() -> Any:
    """Return the class of arrays that hold memory of a restore: numpy gives them as the base of others."""
    return type("Memory", (_numpy().ndarray,), {"__module__": __name__})


def allocate(nbytes: int) -> memoryview:
    """Return memory for unpacked data: an array in it is packed as one of its own memory."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return memoryview(bytearray(nbytes))
    # NumPy does not fill the memory, and asks for large pages. Of a class of its own: a view of an array that lies in
    # it has that array as its base, as it had; through a plain array NumPy would look to the end of the chain.
    return memoryview(numpy.ndarray.__new__(memory_class(), (nbytes,), numpy.uint8))


class ArrayParts(StreamConstructors):
    """The constructors of arrays."""

    record = operator.itemgetter(())

    def flat(self, array: Any, index: int) -> Any:
        """Return an iterator over an array that already returned some elements."""
        made = array.flat
        passed: Any = itertools.islice(made, index, index)
        next(passed, None)
        return made

    def memory_block(self, data: Any) -> Any:
        """Return memory that can be written to, as an array of bytes."""
        np = _numpy()
        raw = self.memory(data)
        with memoryview(raw) as held:
            readonly, size = held.readonly, held.nbytes
        cls = memory_class()
        if class_of(data) is int and not readonly:
            return np.ndarray.__new__(cls, (size,), np.uint8, raw)
        made = np.ndarray.__new__(cls, (size,), np.uint8)
        if size:
            made[:] = np.frombuffer(raw, np.uint8)
        return made

    def _new_array(self, cls: Any, *args: Any) -> Any:
        """Return a new array. `__array_finalize__` of a class of the user's does not run: it may use any name."""
        ndarray = _numpy().ndarray
        if cls is not None and is_own_class(cls, self.packer.module):
            made = ndarray.__new__(memory_class(), *args)
            try:
                made.__class__ = cls
            except TypeError:  # a class with slots
                return ndarray.__new__(cls, *args)
            return made
        return ndarray.__new__(cls or ndarray, *args)

    def array(
        self, data: Any, kind: Any, shape: tuple[int, ...], fortran: bool, writeable: bool, cls: Any = None
    ) -> Any:
        """Return an array of its own memory."""
        np = _numpy()
        memory = self.memory_block(data) if class_of(data) is int else None
        order = "F" if fortran else "C"
        made = self._new_array(cls, shape, np.dtype(kind), memory, 0, None, order)
        if memory is None and data:
            plain = np.ndarray.view(made, np.ndarray)
            flat = (plain.T if fortran else plain).reshape(-1)
            flat.view(np.uint8)[:] = np.frombuffer(data, np.uint8)
        if not writeable:
            made.flags.writeable = False
        return made

    def array_view(
        self, root: Any, offset: int, kind: Any, shape: Any, strides: Any, writeable: bool, cls: Any = None
    ) -> Any:
        """Return an array in the memory of another object."""
        np = _numpy()
        if is_any(class_of(root), ("torch", "UntypedStorage")):
            torch = sys.modules["torch"]
            root = torch.empty(0, dtype=torch.uint8, device="cpu").set_(root).numpy()
        base = root
        if isinstance(root, np.ndarray) and not root.flags.c_contiguous:
            root = root.T
        if 0 in shape or not getattr(root, "nbytes", 1):
            held = getattr(root, "nbytes", None) != 0
            made = self._new_array(cls, shape, np.dtype(kind), root, 0) if held else np.empty(shape, kind)
        else:
            made = self._new_array(cls, shape, np.dtype(kind), root, offset, strides)
        if made.flags.writeable and not writeable:
            made.flags.writeable = False
        elif writeable and not made.flags.writeable and isinstance(base, np.ndarray):
            base.flags.writeable = True  # it was made before its base was locked
            made.flags.writeable = True
            base.flags.writeable = False
        return made

    def objects(self, shape: tuple[int, ...], kind: Any, fortran: bool, cls: Any = None) -> Any:
        """Return an array of objects, still empty."""
        return self._new_array(cls, shape, kind, None, 0, None, "F" if fortran else "C")

    def fill_objects(self, made: Any, state: tuple[Any, ...]) -> None:
        """Give an array of objects its items: fields by name, a list in the order of indexes, or values and places."""
        np = _numpy()
        items, *places, writeable = state
        plain = np.ndarray.view(made, np.ndarray)
        if class_of(items) is dict:
            for name, held in items.items():
                plain[name] = held
        else:
            held = np.empty(0, plain.dtype)
            held.__setstate__((1, (len(items),), plain.dtype, False, items))
            if places:
                held = held[np.frombuffer(places[0], _places(len(items)))]
            plain[...] = held.reshape(plain.shape)
        if not writeable:
            made.flags.writeable = False

    def mapped_view(self, root: Any, offset: int, *args: Any) -> Any:
        """Return an array in a map of a file, with the attributes of a memmap."""
        made = self.array_view(root, offset, *args)
        made._mmap, made.filename, made.mode, made.offset = root._mmap, root.filename, root.mode, root.offset + offset
        return made
