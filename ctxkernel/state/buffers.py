"""How a look visits arrays and frames: NumPy, pandas, Arrow, torch. Imports none of them.

Rule 1: nothing large is copied: memory is hashed where it lies, in pieces of a few megabytes; what does not lie in
one piece is copied piece by piece.
Rule 2: a frame is its columns in their order, however pandas groups them in blocks: reading a frame regroups them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

from xxhash import xxh3_64_intdigest

from ctxkernel.state.digest import CHUNK, ITEMS, SMALL, Base, Body, Children, Large, Look
from ctxkernel.state.flat import encode
from ctxkernel.state.reflect import class_module, is_kind, loaded

_SAMPLES = 4096
"""Elements of a large array that are sampled, evenly over all axes."""


def _numpy() -> Any:
    return sys.modules["numpy"]


def _memory(look: Look, array: Any) -> None:
    """Note whose memory an array is, so that arrays that share it are found together."""
    ndarray = _numpy().ndarray
    # By the base class's own descriptors: a subclass may define them anew, and a view of it would have it as base.
    base_of = ndarray.base.__get__
    owner = array
    while (base := base_of(owner)) is not None:
        if type(base) is memoryview:
            base = base.obj
        look.also.add(id(base))
        if not is_kind(type(base), ndarray):
            break
        owner = base
    if ndarray.nbytes.__get__(owner):
        look.also.add(-ndarray.__array_interface__.__get__(owner)["data"][0])


def array(look: Look, obj: Any) -> Children:
    """A numpy.ndarray."""
    look.tick()
    plain = obj if type(obj) is _numpy().ndarray else _numpy().ndarray.view(obj, _numpy().ndarray)
    _memory(look, obj)
    return elements(look, plain)


def elements(look: Look, plain: Any) -> Children:
    """Write down the elements of an exact ndarray; return what has to be visited of them."""
    kind = plain.dtype
    look.label(b"a", f"{kind.str if kind.names is None else kind}{plain.shape}")
    if kind.names is not None and kind.hasobject:
        return chain.from_iterable(elements(look, plain[name]) or () for name in kind.names)
    if kind.hasobject or kind.kind == "T":
        return _objects(look, plain)
    if plain.nbytes <= SMALL:
        look.feed(plain.tobytes())
    else:
        _large(look, plain, _sample(plain))
    return None


def _objects(look: Look, plain: Any) -> Iterator[object]:
    flat = plain.flat
    key = (_at(plain), plain.nbytes) if plain.size > ITEMS and plain.flags.c_contiguous else None
    if key is not None:
        # A column of texts lies in the frame, in what was taken out of it, in a dict of frames: it is read once.
        known = look.batch.memo.get(key)
        if known is None:
            known = look.batch.memo[key] = _texts(look, plain)
        if known:
            look.feed(repr(known).encode())
            return
    if plain.size > 4 * ITEMS:
        look.flat(flat[:: plain.size // ITEMS].tolist())
        look.flat(flat[plain.size - 64 :].tolist())
    for start in range(0, plain.size, ITEMS):
        chunk = flat[start : start + ITEMS].tolist()
        look.tick(len(chunk))
        if not look.flat(chunk):
            yield from chunk


def _sample(plain: Any) -> bytes:
    """Return elements spread evenly over all axes: the same ones however the array lies in memory."""
    np = _numpy()
    plain = plain.reshape(1) if not plain.ndim else plain
    each = max(2, int(_SAMPLES ** (1 / plain.ndim)))
    at = [np.linspace(0, size - 1, min(size, each)).astype(np.intp) for size in plain.shape]
    return plain[np.ix_(*at)].tobytes()


def _at(plain: Any) -> int:
    return plain.__array_interface__["data"][0]


def _texts(look: Look, plain: Any) -> tuple[int, ...]:
    """Return hashes of an array of objects where all are plain; else nothing."""
    marks: list[int] = []
    flat = plain.flat
    for start in range(0, plain.size, ITEMS):
        data = encode(flat[start : start + ITEMS].tolist())
        if data is None:
            return ()
        marks.append(xxh3_64_intdigest(data))
        look.tick(ITEMS)
    return tuple(marks)


def _large(look: Look, plain: Any, sample: bytes) -> None:
    np = _numpy()
    if 0 in plain.strides:  # broadcast: much smaller in memory than it seems
        plain = plain[tuple(0 if step == 0 else slice(None) for step in plain.strides)]
        if plain.nbytes <= SMALL:
            look.feed(sample)
            look.feed(plain.tobytes())
            return
    order = sorted(range(plain.ndim), key=lambda axis: -abs(plain.strides[axis]))
    turned = plain.transpose(order)
    layout = b"" if order == sorted(order) else repr(order).encode()
    if turned.flags.c_contiguous:
        flat = turned.reshape(-1).view(np.uint8)
        key = (flat.ctypes.data, flat.nbytes)
        look.defer(Large(key, flat.nbytes, partial(_pieces, flat)), sample, layout)
    else:
        look.defer(Large(None, turned.nbytes, partial(_copies, turned)), sample, layout + b"strided")


def _pieces(flat: Any) -> Iterator[Any]:
    for start in range(0, flat.nbytes, CHUNK):
        yield flat[start : start + CHUNK]


def _copies(turned: Any) -> Iterator[Any]:
    row = turned.nbytes // len(turned)
    if row > CHUNK and turned.ndim > 1:
        for part in turned:
            yield from _copies(part)
        return
    rows = max(1, CHUNK // row)
    for start in range(0, len(turned), rows):
        yield turned[start : start + rows].tobytes()


def scalar(look: Look, obj: Any) -> Children:
    """A numpy scalar."""
    look.label(b"z", f"{obj.dtype}")
    if obj.dtype.hasobject:
        return iter((obj.item(),))
    look.feed(obj.tobytes())
    return None


def generator(look: Look, obj: Any) -> Children:
    """A numpy random generator: its state."""
    look.tick()
    if is_kind(type(obj), loaded("numpy.random").get("RandomState", type)):
        return iter((look.hold(obj.get_state(legacy=False)),))
    return iter((look.hold(getattr(obj, "bit_generator", obj).state),))


# -- pandas ------------------------------------------------------------------------------------


def _members(look: Look, obj: Any) -> dict[str, Any]:
    return look.batch.plan(type(obj)).dict_of(obj) or {}


def frame(look: Look, obj: Any) -> Children:
    """A DataFrame or Series: columns, index, and every column's values."""
    look.tick()
    members = _members(look, obj)
    manager = dict.get(members, "_mgr")
    if manager is None:
        look.identity(obj)
        return None
    blocks = manager.blocks
    look.also.add(id(manager))
    rest = (dict.get(members, "_attrs") or None, dict.get(members, "_name"))
    look.label(b"D", f"{len(manager.axes)} {len(manager.axes[-1])}")
    return chain(manager.axes, rest, _columns(look, manager, blocks))


def _columns(look: Look, manager: Any, blocks: Any) -> Iterator[object]:
    for block in blocks:
        values = block.values
        look.also.add(id(values))
        if type(values) is _numpy().ndarray:
            _memory(look, values)
    if len(manager.axes) == 1:
        yield from _column(look, blocks[0].values) or ()
        return
    taken: set[int] = set()
    for number, row in zip(manager.blknos.tolist(), manager.blklocs.tolist(), strict=True):
        look.tick()
        values = blocks[number].values
        if values.ndim == 1:
            yield from _column(look, values) or ()
            continue
        data = values if type(values) is _numpy().ndarray else getattr(values, "_ndarray", None)
        if data is None:
            yield from _column(look, look.hold(values[row])) or ()
            continue
        look.label(b"k", str(values.dtype))
        column = data[row]
        if column.nbytes <= SMALL or column.dtype.hasobject or column.flags.c_contiguous:
            yield from elements(look, column) or ()
            continue
        # The columns lie across each other in memory: hash the block as it lies, once, and sample this column.
        look.label(b"a", f"{column.dtype.str}{column.shape}")
        sample = _sample(column)
        if number in taken:
            look.feed(sample)
        else:
            taken.add(number)
            _large(look, data, sample)
            look.layout += b"block" + repr(blocks[number].mgr_locs.as_array.tolist()[:1000]).encode()


def _column(look: Look, values: Any) -> Children:
    if type(values) is _numpy().ndarray:
        look.label(b"k", str(values.dtype))
        return elements(look, values)
    return iter((values,))


def index(look: Look, obj: Any) -> Children:
    """An Index of pandas."""
    look.tick()
    members = _members(look, obj)
    found = [dict.get(members, name) for name in ("_range", "_data", "_name", "_levels", "_codes", "_names")]
    look.label(b"X", type(obj).__name__)
    return iter(found)


_PARTS = ("_ndarray", "_data", "_mask", "_left", "_right", "_sparse_values", "_pa_array")


def extension(look: Look, obj: Any) -> Children:
    """An extension array of pandas: the arrays that it is made of."""
    look.tick()
    if class_module(type(obj)).partition(".")[0] != "pandas":
        return iter([value for _, value in look.batch.plan(type(obj)).attributes(obj)])
    kind = obj.dtype
    look.label(b"E", f"{type(obj).__name__} {kind}")
    found = [part for name in _PARTS if (part := getattr(obj, name, None)) is not None]
    sparse = getattr(obj, "sp_index", None)
    if sparse is not None:
        found.append(look.hold(sparse.to_int_index().indices))
    if getattr(kind, "categories", None) is not None:
        found.append(kind.categories)
    return iter(found)


def known_text(look: Look, obj: Any) -> Children:
    """A scalar of pandas."""
    look.label(b"P", f"{type(obj).__name__} {obj!r} {getattr(obj, '_value', '')}")
    return None


# -- others ------------------------------------------------------------------------------------


def arrow(look: Look, obj: Any) -> Children:
    """An Array, ChunkedArray, RecordBatch or Table of pyarrow. These never change."""
    look.tick()
    size = len(obj)
    names = getattr(obj, "column_names", None)
    if names is not None:
        look.label(b"W", f"{names} {size}")
        return iter(obj.columns)
    look.label(b"W", f"{obj.type} {size}")
    for part in getattr(obj, "chunks", (obj,)):
        for buffer in part.buffers():
            if buffer is None or not buffer.size:
                continue
            look.label(b"", f"{part.offset} {len(part)} {buffer.size}")
            data = memoryview(buffer)
            if buffer.size <= SMALL:
                look.feed(bytes(data))
            else:
                step = buffer.size // 16
                sample = b"".join(bytes(data[at : at + 256]) for at in range(0, buffer.size, step))
                look.defer(Large((buffer.address, buffer.size), buffer.size, partial(_slices, data)), sample)
            look.also.add(-buffer.address)
    return None


def _slices(data: memoryview) -> Iterator[Any]:
    for start in range(0, data.nbytes, CHUNK):
        yield data[start : start + CHUNK]


_POLARS_BYTES = 64 * 1024 * 1024


def polars(look: Look, obj: Any) -> Children:
    """A DataFrame or Series of polars: a hash of every row, by the library's own means."""
    look.tick()
    size, one = len(obj), is_kind(type(obj), loaded("polars").get("Series", type))
    look.label(b"L", f"{obj.name} {obj.dtype} {size}" if one else f"{dict(obj.schema)} {size}")
    estimated = obj.estimated_size()
    if estimated > _POLARS_BYTES:
        obj = obj.gather_every(-(-estimated // _POLARS_BYTES))
        look.partial("only some of its rows")
    if size and (one or obj.width):
        look.feed((obj.hash() if one else obj.hash_rows()).to_numpy().tobytes())
    return None


_SHOWN = """
_localaxes _suptitle _supxlabel _supylabel artists images lines patches texts legends subfigs _children child_axes
legend_ title _left_title _right_title xaxis yaxis label _label _facecolor _edgecolor axison _alpha _visible _xorig
_yorig _color _linestyle _linewidth _drawstyle _markersize _x0 _y0 _width _height angle _hatch _offsets _paths _sizes
_A _extent _original_facecolor _original_edgecolor _interpolation _text _rotation _vertices _autoscale_on
"""
_IS_SHOWN = frozenset(_SHOWN.split())


def artist(look: Look, obj: Any) -> Children:
    """An artist of matplotlib: what is shown. Of its other attributes, drawing changes half."""
    look.tick()
    members = _members(look, obj)
    found = [name for name in dict.keys(members) if type(name) is str and name in _IS_SHOWN]
    look.flat(found)
    held = [members[name] for name in found]
    axes = [_members(look, members[name]) for name in ("xaxis", "yaxis") if name in found]
    if any(axis.get("_autoscale_on") is False for axis in axes):
        held.append(_members(look, members["_viewLim"]).get("_points"))  # otherwise drawing sets them
    return iter(held)


_IS_SET = frozenset(("value", "options", "index", "min", "max", "step", "description", "disabled"))


def widget(look: Look, obj: Any) -> Children:
    """A widget of ipywidgets: what a user sets. The rest changes with every display and every cell that runs."""
    look.tick()
    values = _members(look, obj).get("_trait_values")
    held = values if type(values) is dict else {}
    found = sorted(name for name in dict.keys(held) if type(name) is str and name in _IS_SET)
    look.flat(found)
    return iter([held[name] for name in found])


def tensor(look: Look, obj: Any) -> Children:
    """A torch tensor: its bytes where the processor can see them, else its version and address."""
    look.tick()
    look.label(b"y", f"{obj.dtype} {tuple(obj.shape)} {obj.device} {obj.requires_grad}")
    look.also.add(-obj.untyped_storage().data_ptr())
    if obj.device.type == "cpu" and str(obj.layout) == "torch.strided":
        plain = obj.detach()
        if str(plain.dtype) == "torch.bfloat16":  # numpy has none; the bits are the same
            plain = plain.view(sys.modules["torch"].int16)
        return elements(look, plain.resolve_conj().resolve_neg().numpy())
    look.by_identity = True
    look.label(b"", f"{obj.data_ptr()} {obj._version}")
    return None


def _private(name: str) -> bool:
    return name.startswith("_")


_PANDAS = frozenset(("_mgr", "_attrs", "_flags", "_item_cache", "_cacher", "_is_copy", "_name"))

_TABLE: tuple[tuple[str, tuple[str, ...], Base, bool], ...] = (
    ("numpy", ("ndarray",), Base(array), True),
    ("numpy", ("generic",), Base(scalar, noted=False), True),
    ("numpy.random", ("Generator", "RandomState", "BitGenerator"), Base(generator), True),
    ("pandas", ("DataFrame", "Series"), Base(frame, hidden=_PANDAS.__contains__), True),
    ("pandas", ("Index",), Base(index, hidden=_private), True),
    ("pandas.api.extensions", ("ExtensionArray",), Base(extension, hidden=_private), True),
    ("pandas", ("Timestamp", "Timedelta", "Period", "Interval"), Base(known_text, noted=False), False),
    ("pandas._libs.missing", ("NAType",), Base(known_text, noted=False), False),
    ("pandas._libs.tslibs.nattype", ("NaTType",), Base(known_text, noted=False), False),
    ("pyarrow", ("Array", "ChunkedArray", "Table", "RecordBatch"), Base(arrow, noted=False), True),
    ("polars", ("DataFrame", "Series"), Base(polars), False),
    ("matplotlib.artist", ("Artist",), Base(artist, hidden=lambda _: True), True),
    ("ipywidgets", ("Widget",), Base(widget, hidden=lambda _: True), True),
    ("torch", ("Tensor",), Base(tensor), False),
    ("torch.nn", ("Parameter",), Base(tensor), False),
)
"""Module, names in it, how to visit, and whether subclasses are visited so too."""


def tables() -> tuple[dict[int, tuple[bool, Body]], dict[int, Base], bool]:
    """Return how to visit the types of those libraries that are imported by now: by exact type, by base.

    The last value says whether every library that is there is there whole: one may be half imported.
    """
    kinds: dict[int, tuple[bool, Body]] = {}
    bases: dict[int, Base] = {}
    whole = True
    for name, types, base, inherited in _TABLE:
        members = loaded(name)
        for each in types:
            cls = members.get(each)
            if isinstance(cls, type):
                kinds[id(cls)] = (base.noted, base.body)
                if inherited:
                    bases[id(cls)] = base
            elif members:
                whole = False
    return kinds, bases, whole


MODULES = tuple(dict.fromkeys(row[0] for row in _TABLE))
