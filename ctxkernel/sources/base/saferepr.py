"""Showing any Python object without running its code.

Rule 1: no `__repr__`, `__str__`, `__len__`, `__iter__`, `__getattr__`, property or `__class__` of a class that we
        do not know is called: containers are read through the methods of `dict`, `list` and their kin.
Rule 2: bounded: depth, items and characters, before anything is made into text.
Rule 3: no addresses and no order of hashing: sets are sorted by their text.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

_ITEMS = 6
_DEPTH = 2
_SORTED_SET = 1000
# Modules whose classes have a `__repr__` that is quick, bounded and without effects.
_TRUSTED = frozenset({"datetime", "decimal", "fractions", "pathlib", "pathlib._local", "uuid", "zoneinfo", "ipaddress"})
_PLAIN = (bool, float, complex, type(None), range, slice, type(...), type(NotImplemented))


def type_name(kind: type) -> str:
    """Return `module.Class`, without the module for built-in ones and for `__main__`."""
    name = type.__dict__["__qualname__"].__get__(kind)
    module = type.__dict__["__module__"].__get__(kind)
    return name if module in ("builtins", "__main__") or not isinstance(module, str) else f"{module}.{name}"


def is_a(value: object, *kinds: type) -> bool:
    """Say whether the type of `value` descends from one of `kinds`; asks no metaclass and no `__class__`."""
    return any(kind in type.__dict__["__mro__"].__get__(type(value)) for kind in kinds)


def defines(value: object, name: str) -> bool:
    """Say whether the class of `value`, or one that it descends from, defines `name`."""
    bases = type.__dict__["__mro__"].__get__(type(value))
    return any(name in type.__dict__["__dict__"].__get__(base) for base in bases)


def brief(value: Any, chars: int = 80, depth: int = _DEPTH) -> str:
    """Return one line of at most `chars` characters that shows `value`."""
    try:
        text = _shown(value, chars, depth)
    except Exception as fault:  # an object changed by another thread meanwhile, for one
        text = f"<{type_name(type(value))}: {type(fault).__name__} while it was read>"
    line = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= chars else line[: max(chars - 1, 0)] + "…"


def attributes(value: Any) -> dict[str, Any]:
    """Return the instance's own attributes, from its dict and its slots."""
    found: dict[str, Any] = {}
    kind = type(value)
    for base in reversed(type.__dict__["__mro__"].__get__(kind)):
        for name, member in list(type.__dict__["__dict__"].__get__(base).items()):
            if type(member) is types.MemberDescriptorType and isinstance(name, str) and not name.startswith("__"):
                try:
                    found[name] = member.__get__(value, kind)
                except AttributeError:
                    continue
            elif name == "__dict__" and type(member) is types.GetSetDescriptorType:
                own = member.__get__(value, kind)
                items = own.items() if type(own) is types.MappingProxyType else dict.items(own)  # of a class, of others
                found.update((key, item) for key, item in list(items) if type(key) is str)
    return found


def length_of(value: Any) -> int | None:
    """Return the length of a known container, None for anything else."""
    for kind in (dict, list, tuple, set, frozenset, str, bytes, bytearray, deque):
        if is_a(value, kind):
            return kind.__len__(value)
    return None


def items_of(value: Any, most: int) -> Iterator[tuple[str, Any]]:
    """Yield (how the item is reached, item) for the first `most` items of a known container."""
    if is_a(value, dict):
        for key, item in list(islice(dict.items(value), most)):
            yield f"[{brief(key, 60)}]", item
    elif is_a(value, set, frozenset):
        kind = set if is_a(value, set) else frozenset
        some = list(islice(kind.__iter__(value), max(most, _SORTED_SET)))
        for item in sorted(some, key=brief)[:most]:
            yield "", item
    elif is_a(value, list, tuple, deque):
        kind = next(kind for kind in (list, tuple, deque) if is_a(value, kind))
        for at, item in enumerate(list(islice(kind.__iter__(value), most))):
            yield f"[{at}]", item


def _shown(value: Any, chars: int, depth: int) -> str:
    kind = type(value)
    if kind is str or kind is bytes:
        return repr(value if len(value) <= chars else value[:chars]) + ("" if len(value) <= chars else "…")
    if kind is int:
        return repr(value) if value.bit_length() <= 512 else f"<int of {value.bit_length():,} bits>"
    if kind in _PLAIN or _trusted(kind):
        return repr(value)
    if is_a(value, type):
        return f"<class {type_name(value)}>"
    if kind is types.ModuleType:
        return f"<module {types.ModuleType.__getattribute__(value, '__name__')}>"
    if kind in (types.FunctionType, types.BuiltinFunctionType):
        return f"<function {value.__qualname__}>"
    if kind is types.MethodType:
        return f"<method {type_name(type(value.__self__))}.{brief(value.__func__, 60)}>"
    if (shape := array_like(value)) is not None:
        return shape
    if is_a(value, str, bytes, bytearray, int, float):
        base: Any = next(base for base in (str, bytes, bytearray, int, float) if is_a(value, base))
        plain: Any = (
            base.__getitem__(value, slice(chars)) if base in (str, bytes, bytearray) else base.__add__(value, 0)
        )
        name = enum_name(value)
        return f"{type_name(kind)}{f'.{name}' if name else ''}({brief(base(plain), chars, depth)})"
    length = length_of(value)
    if length is not None:
        return _container(value, kind, length, chars, depth)
    if name := enum_name(value):
        return f"{type_name(kind)}.{name}"
    own = attributes(value)
    if depth <= 0 or not own:
        return f"<{type_name(kind)}>"
    shown = [f"{key}={brief(item, chars // 2, depth - 1)}" for key, item in islice(own.items(), _ITEMS)]
    return f"<{type_name(kind)} {', '.join(shown)}{', …' if len(own) > _ITEMS else ''}>"


def _container(value: Any, kind: type, length: int, chars: int, depth: int) -> str:
    left, right = {list: "[]", tuple: "()", set: "{}", dict: "{}"}.get(kind, "()")
    name = "" if kind in (list, tuple, set, dict) else type_name(kind)
    if depth <= 0:
        return f"{name or type_name(kind)} of {length:,}"
    keyed = is_a(value, dict)
    parts: list[str] = []
    for where, item in items_of(value, _ITEMS):
        text = brief(item, chars // 2, depth - 1)
        parts.append(f"{where[1:-1]}: {text}" if keyed else text)
    if length > len(parts):
        parts.append(f"… {length - len(parts):,} more")
    if kind is tuple and length == 1:
        parts.append("")
    return f"{name}{left}{', '.join(parts).rstrip() if kind is tuple else ', '.join(parts)}{right}"


def _trusted(kind: type) -> bool:
    """Say whether a class is one of a module that we trust, and not one that only says so."""
    module, name = type.__dict__["__module__"].__get__(kind), type.__dict__["__qualname__"].__get__(kind)
    if not isinstance(module, str) or module not in _TRUSTED:
        return False
    return getattr(sys.modules.get(module), name, None) is kind


def enum_name(value: Any) -> str:
    """Return the name of a member of an enumeration, "" for anything else."""
    enum = sys.modules.get("enum")
    if enum is None or not is_a(value, enum.Enum):
        return ""
    name = attributes(value).get("_name_")
    return name if isinstance(name, str) else ""


def array_like(value: Any) -> str | None:
    """Return shape and type of a NumPy or pandas object, None for anything else. Imports neither."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and hasattr(numpy, "ndarray"):
        if is_a(value, numpy.ndarray):
            array = numpy.asarray(value)
            return f"<{type_name(type(value))} {'×'.join(map(str, array.shape)) or 'scalar'} {array.dtype}>"
        if is_a(value, numpy.generic):
            name = type_name(type(value))
            return f"{name}({value!s})" if value.dtype.kind in "biufcmMSU" else f"<{name}>"
        if is_a(value, numpy.dtype):
            return f"dtype({str(value)!r})"
    if pandas is not None and hasattr(pandas, "DataFrame"):
        if is_a(value, pandas.DataFrame):
            return f"<DataFrame {value.shape[0]:,} rows × {value.shape[1]:,} columns>"
        if is_a(value, pandas.Series, pandas.Index):
            return f"<{type_name(type(value)).rsplit('.', 1)[-1]} of {len(value):,} {value.dtype}>"
        if type(value) in (pandas.Timestamp, pandas.Timedelta, pandas.Period, pandas.Interval):
            return repr(value)
        if value is pandas.NaT or value is pandas.NA:
            return repr(value)
    return _library_like(value)


def _library_like(value: Any) -> str | None:
    """Return shape and type of a torch tensor or a polars frame, not of a subclass: that may run code of its own."""
    torch, polars, name = sys.modules.get("torch"), sys.modules.get("polars"), type(value).__name__
    if type(value) in (getattr(torch, "Tensor", None), getattr(getattr(torch, "nn", None), "Parameter", None)):
        shape, kind = "×".join(map(str, value.shape)) or "scalar", str(value.dtype).removeprefix("torch.")
        where = "" if value.device.type == "cpu" else f" {value.device}"
        return f"<{name} {shape} {kind}{where}>"
    if type(value) is getattr(polars, "DataFrame", None):
        return f"<DataFrame {value.height:,} rows × {value.width:,} columns>"
    if type(value) is getattr(polars, "Series", None):
        return f"<Series of {len(value):,} {value.dtype}>"
    return None
