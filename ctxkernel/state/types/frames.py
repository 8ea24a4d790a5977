"""Reducers and constructors of frames and molecules: pandas, Arrow, Polars, RDKit. Imports none of them.

Rule 1: their memory is stored as that of arrays is (`state.types.arrays`): once, and shared again.
Rule 2: pandas tracks which frames share memory, so that a write to one copies first; this is restored.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sys
from collections.abc import Callable
from typing import Any

from ctxkernel.core.reflection import class_module, class_of
from ctxkernel.state.types.instances import careful
from ctxkernel.state.types.memory_blocks import memory_of
from ctxkernel.state.types.object_names import ObjectNames
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, SMALL, Reduction, StreamConstructors
from ctxkernel.state.types.written_memory import is_written


def frame(pack: PackState, obj: Any) -> Reduction:
    """A DataFrame or Series: as pandas stores it, and the attributes that pandas leaves out."""
    made, args, state, *_ = obj.__reduce_ex__(5)
    if "_metadata" in state:
        state["_metadata"] = list(state["_metadata"])  # a list of the class, which all frames have
    left_out = {name: one for name, one in obj.__dict__.items() if name not in _STORED and name not in state}
    return made, args, (state, left_out), None, None, PARTS.fill_frame


_STORED = frozenset(("_mgr", "_item_cache", "_attrs", "_flags", "_cacher", "_is_copy", "_name"))


def frame_block(pack: PackState, obj: Any) -> Reduction:
    """A block of a frame, and the number of the record that it shares with other users of its memory."""
    number = _remember(pack.packer, owner_of(obj.values), obj.refs)
    return PARTS.frame_block, (obj.values, obj.mgr_locs.indexer, obj.ndim, *([number] if number else ()))


def _remember(packer: ObjectNames, owner: Any, refs: Any, number: int | None = None) -> int:
    """Note a record of pandas of the blocks that share the memory of an object, and return its number there.

    With `copy=False`, frames of one array have records of their own: each of them is written without a copy.
    """
    known = _records(packer, owner)
    found = next((at for at, one in known.items() if one is refs), number)
    if found is None or known.get(found) is not refs:
        known = {at: one for at, one in known.items() if any(ref() is not None for ref in one.referenced_blocks)}
        found = next(at for at in itertools.count() if at not in known) if found is None else found
        with contextlib.suppress(TypeError):  # no weak reference: nothing else can be found to share it
            packer.references[owner] = {**known, found: refs}
    return found


def _records(packer: ObjectNames, owner: Any) -> dict[int, Any]:
    return packer.references.get(owner) or {}


def owner_of(values: Any) -> Any:
    """Return the object that owns the memory of an array."""
    numpy = sys.modules["numpy"]
    while isinstance(values, numpy.ndarray) and values.base is not None:
        values = values.base
    return values


def series_manager(pack: PackState, obj: Any) -> Reduction:
    """The manager of a Series. pandas would store the values alone, without the other references to them."""
    return type(obj), (obj.blocks[0], obj.axes[0])


def index(pack: PackState, obj: Any) -> Reduction:
    """An Index, which may share its values with a frame."""
    reduction = obj.__reduce_ex__(5)
    if getattr(obj, "_references", None) is None or any(one is not None for one in reduction[2:]):
        return reduction
    number = _remember(pack.packer, owner_of(getattr(obj, "_values", None)), obj._references)
    return (*reduction[:2], number + 1 if number else True, None, None, PARTS.index_references)


def extension_array(pack: PackState, obj: Any) -> Reduction:
    """An array of pandas, without the results that it keeps: reading fills them."""
    made = careful(pack, obj)
    if class_of(made) is not tuple or class_module(class_of(obj)).partition(".")[0] != "pandas" or len(made) < 3:
        return made
    state = made[2]
    if class_of(state) is dict:
        state = _without_cache(state)
    elif class_of(state) is tuple:
        parts = [_without_cache(part) if class_of(part) is dict else part for part in state]
        state = tuple([part for part in parts if class_of(part) is not dict or part])
    return (*made[:2], state, *made[3:])


def _without_cache(members: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in members.items() if name != "_cache"}


def arrow_extension(pack: PackState, obj: Any) -> Reduction:
    """An array of pandas over one of Arrow. pandas would copy its pieces into one."""
    return PARTS.new, (type(obj),), (_without_cache(obj.__dict__), None, None, None), None, None, PARTS.fill


def string_type(pack: PackState, obj: Any) -> Reduction:
    """The type of texts, without its NaN: where a stream has one, every float in it is compared by identity."""
    if class_of(obj) is not sys.modules["pandas"].StringDtype or obj.na_value is not sys.modules["numpy"].nan:
        return careful(pack, obj)
    return PARTS.string_type, (obj.storage,)


def arrow(pack: PackState, obj: Any) -> Reduction:
    """An Array of pyarrow: its buffers, which other arrays may share."""
    pyarrow = sys.modules["pyarrow"]
    kind, buffers = obj.type, obj.buffers()
    if sum(one.size for one in buffers if one is not None) > 2 * obj.nbytes + SMALL:  # a small part of a large array
        obj = pyarrow.concat_arrays([obj])
        buffers = obj.buffers()
    simple = not (kind.num_fields or isinstance(kind, pyarrow.DictionaryType | pyarrow.BaseExtensionType))
    if not simple or "view" in str(kind) or not all(one is None or one.is_cpu for one in buffers):
        return careful(pack, obj)
    # An empty list of nulls stays only where the number of nulls is given as unknown.
    nulls = -1 if buffers and buffers[0] is not None else obj.null_count
    return PARTS.arrow, (kind, len(obj), nulls, obj.offset, [_arrow_memory(pack, one) for one in buffers])


def _column(kind: Callable[[PackState, Any], Reduction]) -> Kind:
    """Return the reducer of an array of pyarrow that keeps the name of its column: `to_pandas` passes it on."""

    def reduce(pack: PackState, obj: Any) -> Reduction:
        name = getattr(obj, "_name", None)
        return kind(pack, obj) if name is None else (PARTS.arrow_column, (name, obj.slice(0)))

    return reduce


def _arrow_memory(pack: PackState, buffer: Any) -> Any:
    if buffer is None:
        return None
    if not buffer.size:
        return None, 0, 0
    start, size = buffer.address, buffer.size
    written = is_written(pack, start, start + size)
    held = pack.memory(buffer, start, size) if written else memory_of(pack.constant, buffer, start, size)
    return held, buffer.address - held.address, buffer.size


def arrow_buffer(pack: PackState, obj: Any) -> Reduction:
    """A Buffer of pyarrow: over the memory of an array where it has it of one."""
    if not obj.is_cpu or not obj.size or not is_written(pack, obj.address, obj.address + obj.size):
        return careful(pack, obj)
    return PARTS.arrow_buffer, (_arrow_memory(pack, obj),)


def polars_series(pack: PackState, obj: Any) -> Reduction:
    """A Series of Polars: over the memory of an array where it has it of one."""
    seen = _written_column(pack, obj)
    return careful(pack, obj) if seen is None else (PARTS.polars_series, (obj.name, seen))


def polars_frame(pack: PackState, obj: Any) -> Reduction:
    """A DataFrame of Polars: by its columns where one of them has the memory of an array."""
    columns = obj.get_columns()
    if all(_written_column(pack, one) is None for one in columns):
        return careful(pack, obj)
    return PARTS.polars_frame, (columns,)


def polars_query(pack: PackState, obj: Any) -> Reduction:
    """A LazyFrame of Polars. A frame in memory that it is about may have the memory of an array: nobody sees that."""
    pack.inexact |= is_written(pack, 0, sys.maxsize) and "DF [" in obj.explain(optimized=False)
    return careful(pack, obj)


def _written_column(pack: PackState, column: Any) -> Any:
    """Return the array that a column of Polars is, where a variable can write to its memory; else None."""
    if not column.dtype.is_numeric() or not len(column):
        return None
    try:
        seen = column.to_numpy(allow_copy=False)
    except Exception:  # Polars' own: it has nulls, or lies in several pieces
        return None
    start = seen.__array_interface__["data"][0]
    return seen if is_written(pack, start, start + seen.nbytes) else None


def molecule(_: PackState, obj: Any) -> Reduction:
    """A molecule of RDKit: its own way leaves out its properties, unless an option of the process says otherwise."""
    everything = sys.modules["rdkit.Chem"].PropertyPickleOptions.AllProps
    return class_of(obj), (obj.ToBinary(int(everything)),), obj.__dict__ or None


TABLE: tuple[tuple[str, str, Kind], ...] = (
    ("pandas._libs.internals", "Block", frame_block),
    ("pandas", "DataFrame", frame),
    ("pandas", "Series", frame),
    ("pandas.core.internals.managers", "SingleBlockManager", series_manager),
    ("pandas", "Index", index),
    ("pandas", "StringDtype", string_type),
    ("pandas.core.arrays.arrow", "ArrowExtensionArray", arrow_extension),
    ("pandas.api.extensions", "ExtensionArray", extension_array),
    ("pyarrow", "Array", _column(arrow)),
    ("pyarrow", "ChunkedArray", _column(careful)),
    ("pyarrow", "Buffer", arrow_buffer),
    ("polars", "DataFrame", polars_frame),
    ("polars", "Series", polars_series),
    ("polars", "LazyFrame", polars_query),
    ("rdkit.Chem.rdchem", "Mol", molecule),
)


class FrameParts(StreamConstructors):
    """The constructors of frames."""

    def fill_frame(self, frame: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Set the state of a frame, or of a tree of points, as its library stores it, and its other attributes."""
        frame.__setstate__(state[0])
        frame.__dict__.update(state[1])

    def frame_block(self, values: Any, placement: Any, ndim: int, number: int = 0) -> Any:
        """Return a block of a frame, registered with those that share its memory."""
        internals: Any = importlib.import_module("pandas._libs.internals")
        made = internals._unpickle_block(values, placement, ndim)
        refs = _records(self.packer, owner_of(values)).get(number)
        if refs is None:
            _remember(self.packer, owner_of(values), made.refs, number)
        else:
            refs.add_reference(made)
            made.refs = refs
        return made

    def index_references(self, index: Any, number: int) -> None:
        """Register an index with the blocks that share its memory; `number`: that of its record, and one."""
        owner = owner_of(getattr(index, "_values", None))
        refs = _records(self.packer, owner).get(number - 1)
        if refs is None:
            _remember(self.packer, owner, index._references, number - 1)
        else:
            index._references = refs
            refs.add_index_reference(index)

    def string_type(self, storage: str) -> Any:
        """Return the type of texts in pandas whose missing value is NaN."""
        pandas: Any = importlib.import_module("pandas")
        return pandas.StringDtype(storage, na_value=importlib.import_module("numpy").nan)

    def arrow(self, kind: Any, length: int, nulls: int, offset: int, memory: list[Any]) -> Any:
        """Return an Array of pyarrow over memory."""
        pyarrow: Any = importlib.import_module("pyarrow")
        buffers = [None if one is None else self.arrow_buffer(one) for one in memory]
        return pyarrow.Array.from_buffers(kind, length, buffers, nulls, offset)

    def arrow_buffer(self, memory: tuple[Any, int, int]) -> Any:
        """Return a Buffer of pyarrow over a part of memory: its first byte, and its number of bytes."""
        held, start, size = memory
        return importlib.import_module("pyarrow").py_buffer(held[start : start + size] if size else b"")

    def arrow_column(self, name: str, values: Any) -> Any:
        """Return an Array or ChunkedArray of pyarrow as a table with a column of that name gives it."""
        pyarrow: Any = importlib.import_module("pyarrow")
        table = pyarrow.record_batch if isinstance(values, pyarrow.Array) else pyarrow.table
        return table([values], [name]).column(0)

    def polars_series(self, name: str, values: Any) -> Any:
        """Return a Series of Polars over memory."""
        polars: Any = importlib.import_module("polars")
        return polars.Series(name, values.view(sys.modules["numpy"].ndarray))

    def polars_frame(self, columns: list[Any]) -> Any:
        """Return a DataFrame of Polars."""
        return importlib.import_module("polars").DataFrame(columns)
