"""How a look visits plain data: numbers, text, lists, dicts, sets, and what the standard library builds of them.

Rule: the methods are those of the base classes (`dict.items(obj)`), never those of a subclass.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import io
import itertools
import marshal
import mmap
import pathlib
import random
import re
import uuid
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from operator import is_
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from ctxkernel.state.digest import CHUNK, ITEMS, SMALL, Base, Body, Children, Large, Look
from ctxkernel.state.flat import encode
from ctxkernel.state.reflect import is_kind

SET_ITEMS = 300_000
"""Most items of a set that are looked at; of a larger one, a part."""
ROWS = 256
"""Records of a list that are tried together."""
SAMPLES = 2048
"""Items of a long list that are looked at first, so that a look that runs out of time has seen all regions."""
_MASK = (1 << 64) - 1


def atom(look: Look, obj: Any) -> Children:
    """A small immutable of an exact built-in type."""
    look.out += marshal.dumps(obj, 2)
    return None


def text(look: Look, obj: str) -> Children:
    """A str of any length."""
    if len(obj) <= ITEMS:
        look.out += marshal.dumps(obj, 2)
        return None
    look.out += b"U%d:" % len(obj)
    for start in range(0, len(obj), CHUNK // 4):
        look.feed(obj[start : start + CHUNK // 4].encode("utf-8", "surrogatepass"))
        look.tick()
    return None


def _memory(obj: Any, start: int, stop: int) -> memoryview:
    # A view lives for one chunk only: while it lives a bytearray cannot be resized by another thread.
    return memoryview(obj).cast("B")[start:stop]


def _block(look: Look, size: int, read: Callable[[int, int], Any]) -> None:
    if size <= SMALL:
        look.feed(bytes(read(0, size)))
        return
    step = size // 64 * 8  # a multiple of every item size
    sample = b"".join(bytes(read(at, at + 256)) for at in range(0, size, step))
    look.out += b"%d:" % size
    look.defer(Large(None, size, lambda: (read(at, at + CHUNK) for at in range(0, size, CHUNK))), sample)


def block(look: Look, obj: Any) -> Children:
    """bytes, bytearray, array.array: one block of memory."""
    with memoryview(obj) as view:
        size = view.nbytes
        look.out += b"b" + view.format.encode() + b":"
    _block(look, size, lambda start, stop: _memory(obj, start, stop))
    return None


def _block_below(base: Any, itemsize: int) -> Body:
    """Visit the block of a subclass by slices that the base copies: the class may have a `__buffer__` of its own."""

    def body(look: Look, obj: Any) -> Children:
        _block(
            look,
            base.__len__(obj) * itemsize,
            lambda start, stop: memoryview(base.__getitem__(obj, slice(start // itemsize, stop // itemsize))).cast("B"),
        )
        return None

    return body


def view_of(look: Look, obj: memoryview) -> Children:
    """A memoryview: the object below, and which part of it."""
    try:
        look.label(b"v", f"{obj.format}{obj.shape}{obj.strides}{obj.readonly}")
        return iter((obj.obj,))
    except ValueError:
        look.label(b"v", "released")
        return None


def _list_items(look: Look, obj: list[Any], size: int) -> Iterator[object]:
    if size > 4 * SAMPLES:
        look.flat(list.__getitem__(obj, slice(None, None, size // SAMPLES)))
        look.flat(list.__getitem__(obj, slice(-64, None)))  # where most edits are
    for start in range(0, size, ITEMS):
        chunk = list.__getitem__(obj, slice(start, start + ITEMS))
        look.tick(len(chunk))
        if not look.flat(chunk):
            yield from _rows(look, chunk)


def several(look: Look, items: Sequence[Any]) -> Children:
    """Write down items that may be plain, may be records of plain ones, or may have to be visited."""
    if look.flat(items):
        return None
    return _rows(look, items) if len(items) > 8 else iter(items)


def _rows(look: Look, chunk: Any) -> Iterator[object]:
    for start in range(0, len(chunk), ROWS):
        some = chunk[start : start + ROWS]
        if look.records(some):
            look.tick(len(some) * ROWS)
        else:
            yield from some


def items_of_list(look: Look, obj: list[Any]) -> Children:
    """A list."""
    size = list.__len__(obj)
    look.tick(size if size <= ITEMS else 0)
    look.out += b"l%d;" % size
    if size > ITEMS:
        return _list_items(look, obj, size)
    return several(look, list.__getitem__(obj, slice(None))) if size else None


def _tuple_items(look: Look, obj: tuple[Any, ...], size: int) -> Iterator[object]:
    for start in range(0, size, ITEMS):
        chunk = tuple.__getitem__(obj, slice(start, start + ITEMS))
        look.tick(len(chunk))
        if not look.flat(chunk):
            yield from _rows(look, chunk)


def items_of_tuple(look: Look, obj: tuple[Any, ...]) -> Children:
    """A tuple. Whether two places hold one tuple of plain items says nothing: the compiler shares those as it likes."""
    size = tuple.__len__(obj)
    look.tick()
    if 0 < size <= ITEMS and type(obj) is tuple:
        at = len(look.out)
        look.out += b"t%d;" % size
        if look.flat(obj):
            return None
        del look.out[at:]
    if not size:
        look.out += b"t0;"
        return None
    if look.again(obj):
        return None
    look.out += b"T%d;" % size
    return _tuple_items(look, obj, size)


def _pairs(look: Look, obj: dict[Any, Any]) -> Iterator[object]:
    keys, values = iter(dict.keys(obj)), iter(dict.values(obj))
    while some := list(islice(keys, ITEMS)):
        held = list(islice(values, ITEMS))
        look.tick(len(some))
        if not look.flat(some):
            yield from some
        if not look.flat(held):
            yield from _rows(look, held)


def items_of_dict(look: Look, obj: dict[Any, Any]) -> Children:
    """A dict, in its order."""
    size = dict.__len__(obj)
    look.tick()
    look.out += b"d%d;" % size
    if not size:
        return None
    if size > 8 or not look.flat(list(dict.keys(obj))):
        return _pairs(look, obj)
    return several(look, list(dict.values(obj)))


def ordered_dict(look: Look, obj: Any) -> Children:
    """An OrderedDict: its own order counts, which `move_to_end` changes without touching that of the dict."""
    # Keys of another type than str are not looked up: that would run their `__hash__`.
    if dict.__len__(obj) <= SET_ITEMS and all(map(is_, map(type, dict.keys(obj)), repeat(str))):
        look.out += b"o"
        look.flat(list(collections.OrderedDict.__iter__(obj)))
    return items_of_dict(look, obj)


def default_dict(look: Look, obj: Any) -> Children:
    """A defaultdict."""
    factory = collections.defaultdict.__dict__["default_factory"].__get__(obj)
    return itertools.chain((factory,), items_of_dict(look, obj) or ())


def items_of_set(look: Look, obj: Any) -> Children:
    """A set or frozenset: the sum over its items, as the order says nothing."""
    base: Any = set if is_kind(type(obj), set) else frozenset
    size = base.__len__(obj)
    look.tick()
    look.out += b"s%d;" % size
    items = base.__iter__(obj)
    if size > SET_ITEMS:
        items = islice(items, SET_ITEMS // 10)
        look.partial(f"only {SET_ITEMS // 10:,} of its {size:,} items")
    total = 0
    while chunk := list(islice(items, 1024)):
        look.tick(4 * len(chunk))
        if encode(chunk) is not None:
            total += sum(map(xxh3_64_intdigest, map(marshal.dumps, chunk, repeat(2))))
        else:
            for item in chunk:
                look.tick()
                total += look.sub(item)
    look.out += (total & _MASK).to_bytes(8, "little")
    return None


def items_of_deque(look: Look, obj: Any) -> Children:
    """A deque."""
    look.out += b"q%d;" % collections.deque.__len__(obj)
    look.tick()
    bound = collections.deque.__dict__["maxlen"].__get__(obj)
    items = collections.deque.__iter__(obj)

    def chunks() -> Iterator[object]:
        yield bound
        while chunk := list(islice(items, ITEMS)):
            look.tick(len(chunk))
            if not look.flat(chunk):
                yield from chunk

    return chunks()


def by_text(look: Look, obj: Any) -> Children:
    """An immutable of the standard library whose exact type has a safe and complete text."""
    look.label(b"x", f"{type(obj).__name__} {obj}")
    return None


def by_parts(*names: str) -> Body:
    """Visit attributes of a type made in C, through its own descriptors."""

    def body(look: Look, obj: Any) -> Children:
        look.tick()
        members = type(obj).__dict__
        found = [members[name].__get__(obj) for name in names]
        look.out += b"p%d;" % len(found)
        return iter(found)

    return body


def reduced(base: Any) -> Body:
    """Visit what `base.__reduce__`, made in C, says of the object."""

    def body(look: Look, obj: Any) -> Children:
        look.tick()
        look.label(b"x", base.__name__)
        return iter(base.__reduce__(obj)[1])

    return body


class _Row(NamedTuple):
    field: int


def reduced_all(look: Look, obj: Any) -> Children:
    """The descriptor of a named tuple's field: its position."""
    look.tick()
    return iter(obj.__reduce__()[1])


def random_state(look: Look, obj: random.Random) -> Children:
    """A generator of the standard library: its state."""
    return iter((look.hold(random.Random.getstate(obj)),))


def memory_file(look: Look, obj: Any) -> Children:
    """BytesIO, StringIO: what is in it, and where it stands."""
    if obj.closed:
        look.out += b"closed;"
        return None
    return iter((obj.getvalue(), obj.tell()))


def opaque(look: Look, obj: object) -> Children:
    """Nothing to see inside: which object it is."""
    look.identity(obj)
    return None


def _weak(look: Look, obj: Any) -> Children:
    # What it refers to is not its content; but that it refers to this one object is a connection with whoever has it.
    target = weakref.ref.__call__(obj)
    look.out += b"w1;" if target is not None else b"w0;"
    if target is not None:
        look.also.add(id(target))
    return None


KINDS: dict[type, tuple[bool, Body]] = {
    weakref.ref: (True, _weak),
    **dict.fromkeys((int, float, bool, complex, type(None), type(Ellipsis)), (False, atom)),
    str: (False, text),
    bytes: (False, block),
    bytearray: (True, block),
    array: (True, block),
    memoryview: (True, view_of),
    list: (True, items_of_list),
    tuple: (False, items_of_tuple),
    dict: (True, items_of_dict),
    set: (True, items_of_set),
    frozenset: (False, items_of_set),
    collections.deque: (True, items_of_deque),
    collections.OrderedDict: (True, ordered_dict),
    collections.defaultdict: (True, default_dict),
    range: (False, by_parts("start", "stop", "step")),
    slice: (False, by_parts("start", "stop", "step")),
    dt.date: (False, reduced(dt.date)),
    dt.datetime: (False, reduced(dt.datetime)),
    dt.time: (False, reduced(dt.time)),
    dt.timedelta: (False, reduced(dt.timedelta)),
    **dict.fromkeys((dt.timezone, decimal.Decimal, uuid.UUID, type(pathlib.Path())), (False, by_text)),
    **dict.fromkeys((pathlib.PurePosixPath, pathlib.PureWindowsPath), (False, by_text)),
    re.Pattern: (False, by_parts("pattern", "flags")),
    type(_Row.__dict__["field"]): (False, reduced_all),
    random.Random: (True, random_state),
    io.BytesIO: (True, memory_file),
    io.StringIO: (True, memory_file),
    mmap.mmap: (True, opaque),
}
"""Exact types: whether the object is noted as reached (it can change, or hold what can), and how it is visited."""


def _as_int(look: Look, obj: Any) -> Children:
    return atom(look, int.__int__(obj))


def _as_float(look: Look, obj: Any) -> Children:
    return atom(look, float.__float__(obj))


def _as_text(look: Look, obj: Any) -> Children:
    return text(look, str.__str__(obj))


def _tuple_below(look: Look, obj: Any) -> Children:
    size = tuple.__len__(obj)
    look.tick()
    look.out += b"T%d;" % size
    return _tuple_items(look, obj, size)


def _array_below(look: Look, obj: Any) -> Children:
    return _block_below(array, array.__dict__["itemsize"].__get__(obj))(look, obj)


def _exception(look: Look, obj: Any) -> Children:
    return iter((BaseException.__dict__["args"].__get__(obj),))


BASES: dict[type, Base] = {
    int: Base(_as_int, noted=False),
    float: Base(_as_float, noted=False),
    str: Base(_as_text, noted=False),
    bytes: Base(_block_below(bytes, 1), noted=False),
    bytearray: Base(_block_below(bytearray, 1)),
    array: Base(_array_below),
    list: Base(items_of_list),
    tuple: Base(_tuple_below),
    collections.OrderedDict: Base(ordered_dict),
    collections.defaultdict: Base(default_dict),
    dict: Base(items_of_dict),
    set: Base(items_of_set),
    frozenset: Base(items_of_set),
    collections.deque: Base(items_of_deque),
    weakref.ref: Base(_weak),
    BaseException: Base(_exception),
    random.Random: Base(random_state),
    dt.datetime: Base(reduced(dt.datetime), noted=False),
    dt.date: Base(reduced(dt.date), noted=False),
    dt.time: Base(reduced(dt.time), noted=False),
    dt.timedelta: Base(reduced(dt.timedelta), noted=False),
}
"""Known bases of other classes: the part of an instance that the base holds."""
