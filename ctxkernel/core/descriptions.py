"""Any object in one line: type, short value, size hints.

Rule 1: `repr` is called only for exact types of Python itself and of known libraries; the user's own `__repr__` is not
run. An instance shows its attributes instead.
Rule 2: the work depends on the length of the result, not on the size of the object.
"""

from __future__ import annotations

import array
import collections
import contextlib
import datetime as dt
import decimal
import enum
import fractions
import functools
import pathlib
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, islice, takewhile
from operator import itemgetter
from typing import Any

from ctxkernel.core.reflection import (
    AttributePlan,
    attributes,
    class_module,
    class_mro,
    class_name,
    class_of,
    dict_items,
    importable,
    is_any,
    is_kind,
    is_own_class,
    module_dict,
    public_name,
    type_name,
)
from ctxkernel.core.text import truncate
from ctxkernel.core.timeline import ChangeInfo, TypeInfo
from ctxkernel.core.timeline_events import NONE, Json

_MORE = "…"
_SORTED_SET = 1000
_TRUSTED = frozenset({"pathlib", "pathlib._local", "zoneinfo", "ipaddress"})
"""Modules whose classes have a `__repr__` that is quick, bounded and without effects."""
_DEPTH = 3
_SCHEMA_CHARS = 2_000
"""Most characters of the columns of a frame."""
_PLAIN = (bool, float, complex, type(None), type(Ellipsis), type(NotImplemented), range, re.Pattern)
_ZONED = (dt.datetime, dt.time)
_DATES = (dt.date, dt.timedelta, dt.timezone)
_LIBRARY = (*_DATES, decimal.Decimal, fractions.Fraction, uuid.UUID, type(pathlib.Path()))
_REPR_IS_SAFE = frozenset(map(id, (*_PLAIN, *_LIBRARY)))


def with_type(info: TypeInfo | ChangeInfo) -> str:
    """Return the repr of a value after its type, where it does not begin with it."""
    kind = info.type.rpartition(".")[2]
    return info.repr if info.repr.lstrip("<").startswith(kind) else f"{info.type} {info.repr}".strip()


def describe(value: object, chars: int, module: str = "__main__") -> TypeInfo:
    """Return type, value in at most `chars` characters, and size hints. Runs none of the user's code."""
    try:
        name = _clean(public_name(class_of(value), module))
    except Exception:  # a type from C that violates the protocol
        name = "?"
    try:
        return TypeInfo(name, _text(value, chars, module), size_of(value))
    except Exception as fault:  # an object that changes meanwhile, or is partly destroyed
        return TypeInfo(name, truncate(f"<{name}: {type(fault).__name__}>", chars))


def brief(value: Any, chars: int = 80) -> str:
    """Return one line of at most `chars` characters that shows `value`. Runs none of the user's code."""
    try:
        return _text(value, chars, "__main__")
    except Exception as fault:
        return truncate(f"<{_clean(type_name(class_of(value)))}: {type(fault).__name__}>", chars)


def _text(value: object, chars: int, module: str, depth: int = 0) -> str:
    writer = _Writer(chars, module)
    with contextlib.suppress(_FullError):
        writer.write(value, depth)
    return writer.text()


def length_of(value: Any) -> int | None:
    """Return the length of a built-in container or text, or of an instance of a subclass; None for anything else."""
    return next((_LENGTHS[id(base)](value) for base in class_mro(class_of(value)) if id(base) in _LENGTHS), None)


def items_of(value: Any, most: int, start: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield (expression of the item, item) for at most `most` items of a known container, from item `start` on."""
    base: Any = next((base for base in class_mro(class_of(value)) if id(base) in _BRACKETS), None)
    end = start + most
    if base is dict:
        yield from ((f"[{brief(key, 60)}]", item) for key, item in list(islice(dict_items(value), start, end)))
    elif base in (set, frozenset):
        yield from (("", item) for item in _members(value, base, max(end, _SORTED_SET))[start:end])
    elif base is not None:
        yield from ((f"[{at}]", item) for at, item in enumerate(_first(value, base, most, start), start))


def _first(value: Any, base: Any, most: int, start: int = 0) -> list[Any]:
    """Return at most `most` items of a container from item `start` on, read as `base` reads them."""
    return list(islice(base.__iter__(value), start, start + most))


def _members(value: Any, base: Any, most: int, depth: int = 0) -> list[Any]:
    """Return members of a set, sorted by their text: the order of hashing differs from process to process.

    The text of a member goes as deep as that of a set at `depth`. Sets of sets would take exponential time otherwise.
    """

    def text(member: Any) -> str:
        try:
            return _text(member, 80 >> depth, "__main__", depth)
        except Exception:  # its text runs code of the user's: then its type orders it
            return type_name(class_of(member))

    return sorted(_first(value, base, most), key=text)


def enum_name(value: Any) -> str:
    """Return the name of a member of an enumeration, "" for anything else."""
    name = attributes(value).get("_name_") if is_kind(class_of(value), enum.Enum) else ""
    return name if type(name) is str else "?"


def size_of(value: object) -> Mapping[str, Json]:
    """Return cheap hints of the size of `value`: any of `bytes`, `len`, `shape`."""
    cls: type = class_of(value)
    if cls is int:
        return {"bytes": sys.getsizeof(value)} if value.bit_length() > 512 else NONE  # type: ignore[attr-defined]
    if id(cls) in _REPR_IS_SAFE:
        return NONE
    for base in class_mro(cls):
        length = _LENGTHS.get(id(base))
        if length is not None:
            hints: dict[str, Json] = {"len": length(value)}
            return {**hints, "bytes": sys.getsizeof(value)} if cls is base else hints
    kind = _library_kind(cls)
    if kind in ("array", "tensor"):
        plain: Any = _plain_array(value) if kind == "array" else value
        return {"shape": list(plain.shape), "bytes": plain.nbytes}
    if kind in ("DataFrame", "Series"):
        manager = _manager(value)
        shape = [len(axis) for axis in reversed(manager.axes)]
        return {"shape": shape, "bytes": sum(getattr(block.values, "nbytes", 0) for block in manager.blocks)}
    return NONE


_NO_ITEMS: dict[Any, Any] = {}
_VIEWS: tuple[Any, ...] = tuple(map(type, (_NO_ITEMS.keys(), _NO_ITEMS.values(), _NO_ITEMS.items())))
_SIZED: tuple[Any, ...] = (
    *(list, tuple, dict, set, frozenset, collections.deque, str, bytes, bytearray, array.array),
    *_VIEWS,
)
_LENGTHS: dict[int, Callable[[Any], int]] = {id(kind): kind.__len__ for kind in _SIZED}


def _clean(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _library_kind(cls: type) -> str:
    for module, name, kind in _KINDS:
        base = getattr(sys.modules.get(module), name, None)
        if base is not None and (cls is base if module.startswith(_EXACT) else is_kind(cls, base)):
            return kind
    return ""


_KINDS = (
    *(("numpy", "ndarray", "array"), ("torch", "Tensor", "tensor"), ("torch.nn", "Parameter", "tensor")),
    *(("polars", "DataFrame", "polars_frame"), ("polars", "Series", "polars_series")),
    *(("pandas", name, name) for name in ("DataFrame", "Series", "Index")),
)
"""Classes of libraries, which may be partly imported, and the name of their kind here."""
_EXACT = ("torch", "polars")
"""Libraries of which only exact classes are shown: subclasses may run their own code."""


def _plain_array(value: Any) -> Any:
    ndarray = sys.modules["numpy"].ndarray
    return value if class_of(value) is ndarray else ndarray.view(value, ndarray)


def first_items(array: Any, count: int) -> list[Any]:
    """Return the first elements of an array as Python's objects. A slice of `flat` fails for NumPy's strings."""
    return [array.item(at) for at in range(min(array.size, count))]


def _manager(value: Any) -> Any:
    members = AttributePlan(class_of(value), own=False).dict_of(value)
    return None if members is None else dict[Any, Any].get(members, "_mgr")


class _FullError(Exception):
    """The limit of characters is reached."""


class _Writer:
    """Writes up to the limit of characters."""

    def __init__(self, chars: int, module: str) -> None:
        self.room = max(chars, 1)
        self.module = module
        self.parts: list[str] = []
        self.left = self.room
        self.open: list[int] = []
        """Ids of the containers being written: a container may contain itself."""

    def text(self) -> str:
        whole = "".join(self.parts)
        return whole if len(whole) <= self.room else whole[: self.room - 1] + _MORE

    def put(self, text: str) -> None:
        self.parts.append(text)
        self.left -= len(text)
        if self.left < 0:
            raise _FullError

    def write(self, value: Any, depth: int) -> None:
        cls = class_of(value)
        if id(cls) in _REPR_IS_SAFE:
            self.put(repr(value))
        elif cls is int:
            bits = value.bit_length()
            # Formatting a huge number takes seconds, and above 4,300 digits raises.
            self.put(repr(value) if bits <= 2048 else f"<int of {bits:,} bits>")
        elif cls is str or cls is bytes:
            self.put(repr(value[: self.left + 1]) if len(value) > self.left else repr(value))
        elif cls is bytearray:
            self.put(f"bytearray({bytes(value[: self.left + 1])!r})")
        elif is_kind(cls, type):
            self.put(f"<class {_clean(public_name(value, self.module))}>")
        elif id(value) in self.open or (depth >= _DEPTH and id(cls) not in _FLAT):
            self.put(_MORE)
        else:
            self.open.append(id(value))
            self._write_parts(cls, value, depth)
            self.open.pop()

    def _write_parts(self, cls: type, value: Any, depth: int) -> None:
        mro = class_mro(cls)
        for base in mro:
            brackets = _BRACKETS.get(id(base))
            if brackets is not None:
                return self._collection(cls, base, value, brackets, depth)
        kind = _library_kind(cls)
        if kind:
            return getattr(self, kind.lower())(value, depth)
        if cls is types.FunctionType:
            return self.put(_clean(_function(value, self.module)))
        if id(cls) in _BY_TYPE:
            return self.put(_clean(_BY_TYPE[id(cls)](value)))
        if any(each is types.ModuleType for each in mro):
            name = module_dict(value).get("__name__")
            return self.put(f"<module {_clean(name) if type(name) is str else '?'}>")
        zoned = any(cls is one for one in _ZONED)
        zone = value.tzinfo if zoned else value
        known_zone = zone is None or type(zone) is dt.timezone or class_module(class_of(zone)) == "zoneinfo"
        if is_any(cls, ("numpy", "dtype")):
            return self.put(f"dtype({str(value)!r})")
        if _is_library_scalar(cls, value) or (zoned and known_zone):
            return self.put(repr(value))
        if class_module(cls).startswith("ctxkernel."):
            return self.put(f"<{_clean(public_name(cls, self.module).rpartition('.')[2])}>")
        return self._instance(cls, value, depth)

    def _items(self, items: Iterable[Any], depth: int) -> None:
        for number, item in enumerate(items):
            self.put(", " if number else "")
            self.write(item, depth + 1)

    def _collection(self, cls: type, base: type, value: Any, brackets: str, depth: int) -> None:
        left, right = brackets.split(_MORE) if cls is base or base is not tuple else ("", "")
        length = _LENGTHS[id(base)](value)
        if cls is not base:
            self.put(f"{_clean(public_name(cls, self.module).rpartition('.')[2])}(")
        if not length and base in (set, frozenset):
            self.put(f"{base.__name__}()")
        else:
            self.put(left)
            if base is dict:
                for number, (key, held) in enumerate(list(islice(dict_items(value), self.left))):
                    self.put(", " if number else "")
                    self.write(key, depth + 1)
                    self.put(": ")
                    self.write(held, depth + 1)
            else:
                is_small_set = base in (set, frozenset) and length <= self.left
                items = _members(value, base, length, depth + 1) if is_small_set else _first(value, base, self.left)
                self._items(items, depth)
            self.put("," + right if cls is tuple and length == 1 else right)
        if cls is not base:
            self.put(")")

    def _instance(self, cls: type, value: Any, depth: int) -> None:
        plan = AttributePlan(cls, is_own_class(cls, self.module))
        if is_kind(cls, enum.Enum):
            return self.put(_clean(f"{public_name(cls, self.module)}.{enum_name(value)}"))
        if base := next((base for base in (str, bytes, bytearray, int, float) if is_kind(cls, base)), None):
            sized: Any = base
            plain: Any = (
                sized.__pos__(value) if base in (int, float) else sized.__getitem__(value, slice(self.left + 1))
            )
            self.put(_clean(public_name(cls, self.module)) + "(")
            self.write(plain, depth + 1)
            return self.put(")")
        self.put(f"<{_clean(public_name(cls, self.module))} object>")
        before = " "
        for name, held in plan.attributes(value):
            if type(name) is str and not name.startswith("_"):
                self.put(f"{before}{_clean(name)}=")
                self.write(held, depth + 1)
                before = ", "
        return None

    def array(self, value: Any, depth: int) -> None:
        plain = _plain_array(value)
        self.put(f"{plain.dtype}{list(plain.shape)}")
        if plain.size:
            self.put(" ")
            self._items(first_items(plain, 8), depth)
        self.put(f", {_MORE}" if plain.size > 8 else "")

    def dataframe(self, value: Any, depth: int) -> None:
        manager = _manager(value)
        columns, rows = manager.axes[0], len(manager.axes[1])
        kinds: dict[int, str] = {}
        schema: list[tuple[str, str]] = []
        for number, name in enumerate(islice(columns, _SCHEMA_CHARS) if _of_pandas(columns) else ()):
            block = int(manager.blknos[number])
            kind = kinds[block] = kinds.get(block) or str(manager.blocks[block].dtype)  # naming a dtype is slow
            schema.append((_clean(name) if type(name) is str else brief(name, 40), kind))
        self._schema(f"DataFrame {rows}×{len(columns)}", schema, depth)

    def _schema(self, head: str, columns: Iterable[tuple[str, str]], depth: int) -> None:
        """Write the columns of a frame, neighbours of one type together: `a, b int64; c float64`.

        The schema of a frame that is no part of another value has a limit of its own.
        """
        if depth == 0:
            self.room += _SCHEMA_CHARS
            self.left += _SCHEMA_CHARS
        groups = [", ".join([name for name, _ in run]) + f" {kind}" for kind, run in groupby(columns, itemgetter(1))]
        self.put(f"{head}: {'; '.join(groups)}" if groups else head)

    def series(self, value: Any, depth: int) -> None:
        block = _manager(value).blocks[0]
        self.put(f"Series {len(_manager(value).axes[0])} {block.dtype}: ")
        some: Any = block.values[:8] if _of_pandas(block.values) else []
        self._items(some.tolist() if _library_kind(class_of(some)) == "array" else list(some), depth)
        self.put(f", {_MORE}" if len(_manager(value).axes[0]) > 8 else "")

    def index(self, value: Any, depth: int) -> None:
        self.put(f"{class_of(value).__name__} {len(value)}: ")
        self._items(list(value[:8]) if _of_pandas(value) else (), depth)

    def tensor(self, value: Any, depth: int) -> None:
        self.put(f"{value.dtype}{list(value.shape)} {value.device}")

    def polars_frame(self, value: Any, depth: int) -> None:
        columns = [(_clean(name), str(kind)) for name, kind in islice(value.schema.items(), _SCHEMA_CHARS)]
        self._schema(f"DataFrame {value.height}×{value.width}", columns, depth)

    def polars_series(self, value: Any, depth: int) -> None:
        self.put(f"Series {len(value)} {value.dtype}")


_FLAT = frozenset(id(kind) for kind in (*_ZONED, types.FunctionType, types.ModuleType))
"""Types that are written at any depth, as they have no items."""


def _is_library_scalar(cls: type, value: Any) -> bool:
    module = class_module(cls)
    if module == "numpy" or module.startswith("numpy."):
        return is_any(cls, ("numpy", "generic")) and value.dtype.kind in "biufcmMSU"
    if module in _TRUSTED:
        return importable(cls)
    scalars = ("Timestamp", "Timedelta", "Period", "Interval")
    return module.startswith("pandas._libs.") or (module == "pandas" and class_name(cls) in scalars)


def _of_pandas(value: object) -> bool:
    module = class_module(class_of(value))
    return module == "pandas" or module.startswith(("pandas.", "numpy"))


def _function(value: types.FunctionType, module: str) -> str:
    code = value.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = list(code.co_varnames[:count])
    if code.co_flags & 0x04:
        names.append("*" + code.co_varnames[count])
    if code.co_flags & 0x08:
        names.append("**" + code.co_varnames[count + bool(code.co_flags & 0x04)])
    return f"<function {_home(value, module)}{value.__qualname__}({', '.join(names)})>"


def _home(value: Any, module: str) -> str:
    """Return the module of a function with a dot, without its private parts; empty for one of the notebook."""
    home: object = value.__module__
    if type(home) is not str or home in (module, "__main__", "builtins"):
        return ""
    return ".".join(islice(takewhile(lambda part: not part.startswith("_"), home.split(".")), 8)) + "."


_BRACKETS = {
    id(list): "[…]",
    id(tuple): "(…)",
    id(set): "{…}",
    id(frozenset): "frozenset({…})",
    id(dict): "{…}",
    id(collections.deque): "deque([…])",
    id(array.array): "array([…])",
    **{id(kind): f"{kind.__name__}([…])" for kind in _VIEWS},
}
_BY_TYPE: dict[int, Callable[[Any], str]] = {
    id(types.BuiltinFunctionType): lambda value: f"<built-in function {_home(value, '')}{value.__name__}>",
    id(types.MethodType): lambda value: (
        f"<method {value.__func__.__qualname__}>" if type(value.__func__) is types.FunctionType else "<method>"
    ),
    id(types.GeneratorType): lambda value: f"<generator {value.__name__}>",
    id(types.CoroutineType): lambda value: f"<coroutine {value.__name__}>",
    id(functools.partial): lambda _: "<partial>",
}
