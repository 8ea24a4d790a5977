"""Snapshots of a namespace as graphs, and their comparison: the oracle's eyes, independent of the checkpoints.

Rule 1: nothing of ctxkernel is imported or asked here. Objects are read by the methods of their base types, so that no
        code of a user's class runs and nothing is changed.
Rule 2: a snapshot holds plain values only. It can be pickled and compared with one of another process.
Rule 3: two snapshots are equal where no code could tell the namespaces apart: same types and contents, same identities
        of all objects that can change, same overlaps of memory, same cells, frames, order and caches.
"""

from __future__ import annotations

import _abc
import array
import collections
import ctypes
import dataclasses
import datetime
import decimal
import fractions
import functools
import gc
import hashlib
import inspect
import io
import itertools
import logging
import os
import pathlib
import random
import re
import sys
import threading
import types
import uuid
import weakref
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

Edge = tuple[str, "int | str"]
"""What it is called on the way down, and the node there or the text of a plain value."""
_LONG = 120
"""Longer texts are kept as a hash with their beginning."""
_KERNEL = ("ctxkernel", "IPython", "ipykernel", "traitlets", "comm", "zmq", "tornado", "jupyter_client")
"""Packages whose objects are the kernel's own: not looked into."""
_PLAIN_CLASS = frozenset(
    (
        "__dict__",
        "__weakref__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "_abc_impl",
        "__firstlineno__",
        "__slotnames__",
    )
)
"""Entries of a class that nobody changes, or that are looked at otherwise."""
_LIBRARY_CACHES = frozenset(("dispatch_cache", "cache_token"))
"""Cells of `functools.singledispatch` that are only fast ways to what the registry says."""


class Tags:
    """Numbers for live objects without a comparable content: the same number is the same object."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, Callable[[], Any]]] = {}
        self._count = itertools.count(os.getpid() * 1_000_000)  # another kernel's objects have other numbers

    def of(self, obj: Any) -> int:
        """Return the number of `obj`."""
        found = self._known.get(id(obj))
        if found is None or found[1]() is not obj:
            try:
                holder: Callable[[], Any] = weakref.ref(obj)
            except TypeError:
                holder = functools.partial(_same, obj)  # else its address could become another's
            found = self._known[id(obj)] = (next(self._count), holder)
        return found[0]


def _same(obj: Any) -> Any:
    return obj


@dataclasses.dataclass(slots=True)
class Node:
    """One object."""

    label: str
    """Its type and all plain content."""
    edges: list[Edge]
    own: bool
    """Whether it matters which object it is: one that can change, or be told apart by `is`."""
    unordered: bool = False
    stored: bool = True
    """Whether its type has a stored form. What has none can be lost: it is named once, not by each of its names."""
    memory: tuple[int, int, bool] | None = None
    """First and last address of its bytes, and whether a write there reaches others that share them."""
    weak: int | None = None
    """A weak reference: the node that it leads to."""


@dataclasses.dataclass(slots=True)
class Snapshot:
    """A namespace at one moment."""

    nodes: list[Node]
    roots: dict[str, int | str]


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as it was."""

    root: str
    """The name that it was found under."""
    path: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.root}{self.path}: was {self.then}, is {self.now}"


def snapshot(names: Mapping[str, Any], live: Mapping[str, Any], tags: Tags, folder: str = "") -> Snapshot:
    """Return what `names` hold. `live` is the namespace of the cells; modules below `folder` are the user's own."""
    return _Walk(live, tags, folder).walk(names)


# -- taking ----------------------------------------------------------------------------------------


def _text(value: str) -> str:
    if len(value) <= _LONG:
        return value
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"{value[:40]}…{len(value)}:{digest}"


def _bytes(value: Any) -> str:
    raw = bytes(value)
    return (
        repr(raw) if len(raw) <= 64 else f"{raw[:24]!r}…{len(raw)}:{hashlib.blake2b(raw, digest_size=12).hexdigest()}"
    )


def _name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _repr(value: Any) -> str:
    return _text(repr(value))


def _typed_repr(value: Any) -> str:
    return f"{type(value).__name__} {_text(repr(value))}"


def _scalar(value: Any) -> str:
    return f"{value.dtype.str} {_bytes(value.tobytes())}" if not value.dtype.hasobject else _typed_repr(value)


def _code(code: types.CodeType) -> str:
    consts = [_code(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    parts = (code.co_code.hex(), consts, code.co_names, code.co_varnames, code.co_freevars, code.co_flags)
    return f"code {code.co_name} {hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()}"


_LEAVES: dict[type, Callable[[Any], str]] = {
    **dict.fromkeys((type(None), bool, int, float, complex, type(...), type(NotImplemented), range), _repr),
    **dict.fromkeys((str,), _repr),
    **dict.fromkeys((bytes,), _bytes),
    **dict.fromkeys(
        (datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone), _typed_repr
    ),
    **dict.fromkeys((decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern, re.Match), _typed_repr),
    **dict.fromkeys((pd.Timestamp, pd.Timedelta, type(pd.NaT), type(pd.NA), pd.Interval, pd.Period), _typed_repr),
    **dict.fromkeys((pathlib.PosixPath, pathlib.PurePosixPath, types.GenericAlias), _typed_repr),
    types.CodeType: _code,
}


class _Walk:
    def __init__(self, live: Mapping[str, Any], tags: Tags, folder: str) -> None:
        self._live, self._tags, self._folder = live, tags, folder
        self._nodes: list[Node] = []
        self._known: dict[int, int] = {}
        self._held: list[Any] = []
        """Everything looked at: no address is used twice."""
        self._todo: list[tuple[Any, Node]] = []
        self._weak: list[tuple[Node, Any]] = []
        self._late: list[tuple[Node, Any]] = []

    def walk(self, names: Mapping[str, Any]) -> Snapshot:
        roots = {name: self._ref(value) for name, value in names.items()}
        self._drain()
        while self._late:  # what weak containers hold counts where something else holds it
            late, self._late = self._late, []
            for node, obj in late:
                self._fill_weak(obj, node)
            self._drain()
        for node, target in self._weak:
            node.weak = self._known.get(id(target)) if target is not None else None
            node.label += " to a live object" if node.weak is not None else " to nothing"
        return Snapshot(self._nodes, roots)

    def _drain(self) -> None:
        while self._todo:
            obj, node = self._todo.pop()
            _walker(type(obj))(self, obj, node)

    def _ref(self, obj: Any) -> int | str:
        leaf = _LEAVES.get(type(obj))
        if leaf is not None:
            return leaf(obj)
        known = self._known.get(id(obj))
        if known is not None:
            return known
        found = self._leaf(obj)
        if found is not None:
            return found
        index = self._known[id(obj)] = len(self._nodes)
        node = Node("", [], True)
        self._nodes.append(node)
        self._held.append(obj)
        self._todo.append((obj, node))
        return index

    def _leaf(self, obj: Any) -> str | None:
        """Return the text of a value that is not looked into, or None."""
        if isinstance(obj, np.generic):
            return _scalar(obj)
        if isinstance(obj, np.dtype):
            return f"dtype {obj!r}"
        if isinstance(obj, type):
            return None if self._is_own_class(obj) else f"class {_name_of(obj)}"
        if isinstance(obj, types.ModuleType):
            return None if self._is_own_module(obj) else f"module {obj.__name__}"
        if isinstance(obj, types.BuiltinFunctionType) and (
            obj.__self__ is None or isinstance(obj.__self__, types.ModuleType)
        ):
            return f"builtin {obj.__module__}.{obj.__qualname__}"
        if isinstance(obj, (np.ufunc, types.WrapperDescriptorType, types.MethodDescriptorType)):
            return f"builtin {getattr(obj, '__objclass__', '')}.{obj.__name__}"
        if isinstance(obj, (types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType)):
            return f"descriptor {obj.__name__}"
        if isinstance(obj, types.FunctionType) and self._is_library_function(obj):
            return f"function {obj.__module__}.{obj.__qualname__}"
        if type(obj).__module__.partition(".")[0] in _KERNEL:
            return f"kernel's {_name_of(type(obj))}"
        if obj is self._live:
            return "the namespace"
        return None

    def _is_own_class(self, cls: type) -> bool:
        module = sys.modules.get(cls.__module__)
        return cls.__module__ == "__main__" or (module is not None and self._is_own_module(module))

    def _is_own_module(self, module: types.ModuleType) -> bool:
        path = vars(module).get("__file__")
        return bool(self._folder) and isinstance(path, str) and path.startswith(self._folder)

    def _is_library_function(self, function: types.FunctionType) -> bool:
        found: Any = sys.modules.get(function.__module__ or "")
        if found is None or function.__module__ == "__main__" or self._is_own_module(found):
            return False
        for part in function.__qualname__.split("."):
            found = inspect.getattr_static(found, part, None)
        return found is function or getattr(found, "__func__", None) is function

    def _pairs(self, items: Iterable[tuple[Any, Any]]) -> Iterator[Edge]:
        for key, value in items:
            name = self._ref(key)
            if isinstance(name, int):
                yield "key", name
                yield "value", self._ref(value)
            else:
                yield f"[{name}]", self._ref(value)

    def _each(self, values: Iterable[Any]) -> list[Edge]:
        return [(f"[{number}]", self._ref(value)) for number, value in enumerate(values)]

    # -- what each type is ------------------------------------------------------------------------

    def _list(self, obj: Any, node: Node) -> None:
        node.label, node.edges = "list", self._each(obj)

    def _tuple(self, obj: Any, node: Node) -> None:
        node.label, node.edges, node.own = "tuple", self._each(obj), False

    def _dict(self, obj: Any, node: Node) -> None:
        node.label, node.edges = "dict", list(self._pairs(obj.items()))

    def _set(self, obj: Any, node: Node) -> None:
        node.label, node.unordered = type(obj).__name__, True
        node.edges = sorted((("{}", self._ref(value)) for value in obj), key=lambda edge: str(edge[1]))
        node.own = isinstance(obj, set)

    def _bytearray(self, obj: Any, node: Node) -> None:
        node.label = f"bytearray {_bytes(obj)}"
        if obj:
            node.memory = _interval(np.frombuffer(obj, dtype=np.uint8))

    def _array_array(self, obj: Any, node: Node) -> None:
        node.label = f"array.array {obj.typecode} {_bytes(obj.tobytes())}"
        if len(obj):
            node.memory = _interval(np.frombuffer(obj, dtype=np.uint8))

    def _memoryview(self, obj: Any, node: Node) -> None:
        try:
            node.label = f"memoryview {obj.format} {obj.shape} {obj.strides} {obj.readonly} {_bytes(obj)}"
        except ValueError:
            node.label = "memoryview, released"
            return
        node.edges = [("obj", self._ref(obj.obj))]
        if obj.nbytes and obj.format in ("B", "b", "d", "f", "i", "l", "q"):
            node.memory = _interval(np.asarray(obj))

    def _ctypes(self, obj: Any, node: Node) -> None:
        node.label, node.stored = f"{_name_of(type(obj))} {_bytes(obj)}", bool(obj._b_needsfree_)  # memory of its own
        address = ctypes.addressof(obj)
        node.memory = (address, address + ctypes.sizeof(obj), True)

    def _ndarray(self, obj: np.ndarray, node: Node) -> None:
        strides = [step if size > 1 else 0 for size, step in zip(obj.shape, obj.strides, strict=True)]
        node.label = f"{_name_of(type(obj))} {obj.dtype!r} {obj.shape} {strides} {obj.flags.writeable}"
        if obj.dtype.hasobject:
            node.edges = self._each(np.asarray(obj).ravel())
        else:
            node.label += f" {_bytes(np.asarray(obj).tobytes())}"
        if obj.size:
            node.memory = _interval(np.asarray(obj))
        if type(obj) is not np.ndarray:
            found = {key: value for key, value in vars(obj).items() if key not in ("_optinfo", "_basedict")}
            node.edges += [(f".{key}", self._ref(value)) for key, value in found.items()]

    def _frame(self, obj: pd.DataFrame | pd.Series, node: Node) -> None:
        node.label = f"{_name_of(type(obj)) if not self._is_own_class(type(obj)) else ''} {obj.shape}"
        inside = vars(obj)
        edges = [("type", self._ref(type(obj))), (".index", self._ref(obj.index))]
        if isinstance(obj, pd.DataFrame):
            edges.append((".columns", self._ref(obj.columns)))
            columns = range(obj.shape[1])
            edges += [(f".iloc[:, {at}]", self._column(inside["_mgr"].iget_values(at))) for at in columns]
        else:
            edges += [(".name", self._ref(obj.name)), (".values", self._column(obj._values))]
        edges += list(self._pairs((f"attrs {key}", value) for key, value in inside.get("_attrs", {}).items()))
        node.label += f" {obj.flags.allows_duplicate_labels}"
        hidden = ("_mgr", "_attrs", "_flags", "_item_cache", "_name", "_cacher", "_typ", "_metadata")
        edges += [(f".{key}", self._ref(value)) for key, value in inside.items() if key not in hidden]
        node.edges = edges

    def _column(self, values: Any) -> int | str:
        """Return a node for a column: its memory counts where an array outside of pandas shares it."""
        node = Node("column", [], False)
        index = len(self._nodes)
        self._nodes.append(node)
        self._held.append(values)
        if isinstance(values, np.ndarray):
            node.label = f"column {values.dtype!r}"
            if values.dtype.hasobject:
                node.edges = self._each(values.ravel())
            else:
                node.label += f" {_bytes(values.tobytes())}"
            if values.size:
                node.memory = (*_interval(values)[:2], False)
        else:
            node.label = f"column {values.dtype!r}"
            node.edges = self._each(values)
        return index

    def _index(self, obj: pd.Index, node: Node) -> None:
        node.label = f"{_name_of(type(obj))} {obj.dtype!r} {getattr(obj, 'freq', None)}"
        node.edges = [*self._each(obj.names), *self._each(obj)]

    def _function(self, obj: types.FunctionType, node: Node) -> None:
        there = obj.__globals__ is self._live
        module = sys.modules.get(obj.__module__ or "")
        node.label = f"function {obj.__module__} {obj.__qualname__} {_code(obj.__code__)} live={there} {obj.__doc__}"
        node.edges = [("defaults", self._ref(obj.__defaults__)), ("kwdefaults", self._ref(obj.__kwdefaults__))]
        node.edges += self._closure(obj)
        node.edges += [(f".{key}", self._ref(value)) for key, value in sorted(vars(obj).items())]
        if module is not None and self._is_own_module(module):
            node.edges.append(("module", self._ref(module)))

    def _closure(self, obj: types.FunctionType) -> Iterator[Edge]:
        for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
            if not (obj.__module__ == "functools" and name in _LIBRARY_CACHES):
                yield f"cell {name}", self._ref(cell)

    def _cell(self, obj: Any, node: Node) -> None:
        node.label = "cell"
        try:
            node.edges = [("", self._ref(obj.cell_contents))]
        except ValueError:
            node.label = "cell, empty"

    def _method(self, obj: types.MethodType, node: Node) -> None:
        node.label, node.own = "method", False
        node.edges = [("function", self._ref(obj.__func__)), ("self", self._ref(obj.__self__))]

    def _builtin_method(self, obj: Any, node: Node) -> None:
        node.label, node.own, node.edges = f"method {obj.__name__}", False, [("self", self._ref(obj.__self__))]

    def _partial(self, obj: functools.partial, node: Node) -> None:
        node.label = "partial"
        node.edges = [
            (name, self._ref(getattr(obj, name))) for name in ("func", "args", "keywords") if hasattr(obj, name)
        ]
        node.edges += list(self._pairs(vars(obj).items()))

    def _wrapped_attribute(self, obj: Any, node: Node) -> None:
        node.label = type(obj).__name__
        held = ("fget", "fset", "fdel") if isinstance(obj, property) else ("__func__",)
        node.edges = [(name, self._ref(getattr(obj, name))) for name in held]

    def _lru_cache(self, obj: Any, node: Node) -> None:
        node.label = f"lru_cache {obj.cache_parameters()}"
        # Its own type; where it is bounded key, value and the type of a link for each entry; the dict of all entries.
        inside = gc.get_referents(obj)[1:]
        count = 3 * obj.cache_info().currsize
        bounded = obj.cache_parameters()["maxsize"] is not None
        entries = zip(inside[:count:3], inside[1:count:3], strict=True) if bounded else inside[0].items()
        node.edges = [(f".{key}", self._ref(value)) for key, value in sorted(vars(obj).items())]
        for key, value in entries:
            node.edges += [("cached for", self._ref(key)), ("cached", self._ref(value))]

    def _class(self, obj: type, node: Node) -> None:
        node.label = f"class {_name_of(obj)}"
        node.edges = [("metaclass", self._ref(type(obj))), *self._each(obj.__bases__)]
        for key, value in sorted(vars(obj).items()):
            if key not in _PLAIN_CLASS:
                node.edges.append((f".{key}", self._ref(value)))
        if "_abc_impl" in vars(obj):
            registry = {cls for ref in _abc._get_dump(obj)[0] if (cls := ref()) is not None}
            node.edges += sorted((("registered", self._ref(cls)) for cls in registry), key=str)

    def _module(self, obj: types.ModuleType, node: Node) -> None:
        node.label = f"module {obj.__name__}"
        found = sorted((key, value) for key, value in vars(obj).items() if not key.startswith("__"))
        node.edges = [(f".{key}", self._ref(value)) for key, value in found]

    def _generator(self, obj: Any, node: Node) -> None:
        node.stored = False
        kind = {"gi": "generator", "cr": "coroutine", "ag": "async generator"}
        short = next(one for one in kind if hasattr(obj, f"{one}_code"))
        frame = getattr(obj, f"{short}_frame")
        node.label = f"{kind[short]} {_code(getattr(obj, f'{short}_code'))} at {frame.f_lasti if frame else 'its end'}"
        if frame is not None:
            node.edges = list(self._pairs(dict(frame.f_locals).items()))

    def _weakref(self, obj: Any, node: Node) -> None:
        node.label, node.own = type(obj).__name__, False
        target = weakref.ref.__call__(obj)
        self._held.append(target)
        self._weak.append((node, target))

    def _weak_container(self, obj: Any, node: Node) -> None:
        node.label, node.unordered = f"{_name_of(type(obj))}", True
        self._late.append((node, obj))

    def _fill_weak(self, obj: Any, node: Node) -> None:
        data = obj.data
        if isinstance(obj, weakref.WeakSet):
            found = [(one,) for ref in data if (one := ref()) is not None and id(one) in self._known]
        elif isinstance(obj, weakref.WeakValueDictionary):
            found = [(key, one) for key, ref in data.items() if (one := ref()) is not None and id(one) in self._known]
        else:
            found = [
                (one, value) for ref, value in data.items() if (one := ref()) is not None and id(one) in self._known
            ]
        node.edges = [("{}", self._ref(one)) for pair in found for one in pair]

    def _etree(self, obj: ET.Element, node: Node) -> None:
        node.label = "Element"
        plain = {"tag": obj.tag, "text": obj.text, "tail": obj.tail}
        node.edges = [(f".{key}", self._ref(value)) for key, value in plain.items()]
        node.edges += [*self._pairs(obj.items()), *self._each(obj)]

    def _bytes_io(self, obj: io.BytesIO | io.StringIO, node: Node) -> None:
        name = _name_of(type(obj))
        node.label = f"{name}, closed" if obj.closed else f"{name} {obj.getvalue()!r} at {obj.tell()}"
        node.edges = list(self._pairs(vars(obj).items()))

    def _file(self, obj: Any, node: Node) -> None:
        node.label = f"file {getattr(obj, 'name', '')} {obj.closed}"

    def _lock(self, obj: Any, node: Node) -> None:
        node.label = repr(obj).partition(" object")[0]

    def _simple_queue(self, obj: Any, node: Node) -> None:
        node.stored = False
        node.label, node.edges = "SimpleQueue", self._each(one for one in gc.get_referents(obj) if type(one) is list)

    def _random(self, obj: random.Random, node: Node) -> None:
        node.label = f"Random {_text(repr(obj.getstate()))}"

    def _generator_of_numbers(self, obj: Any, node: Node) -> None:
        node.label = _name_of(type(obj))
        node.edges = [("bits", self._ref(obj.bit_generator))]

    def _bit_generator(self, obj: Any, node: Node) -> None:
        node.label = f"{_name_of(type(obj))} {_text(repr(obj.state))}"

    def _hash(self, obj: Any, node: Node) -> None:
        node.stored = False
        node.label = f"hash {obj.name} {obj.hexdigest()}"

    def _context(self, obj: decimal.Context, node: Node) -> None:
        node.label = repr(obj)

    def _context_variable(self, obj: Any, node: Node) -> None:
        node.label, node.stored = f"ContextVar {obj.name}", False
        node.edges = [("value", self._ref(obj.get("no value"))), *self._each(gc.get_referents(obj))]  # name and default

    def _logger(self, obj: logging.Logger, node: Node) -> None:
        node.label = f"logger {obj.name} {obj.level} {obj.propagate} {obj.disabled}"
        node.edges = [*self._each(obj.handlers), *self._each(obj.filters)]

    def _bytes_io_buffer(self, obj: Any, node: Node) -> None:
        node.label, node.own, node.edges = "buffer", False, self._each(gc.get_referents(obj)[-1:])

    def _local(self, obj: Any, node: Node) -> None:
        node.label = "local"
        node.edges = list(self._pairs(obj.__dict__.items()))

    def _figure(self, obj: Any, node: Node) -> None:
        node.label = f"Figure {tuple(obj.get_size_inches())} {obj.get_suptitle()!r}"
        node.edges = self._each(obj.axes)

    def _axes(self, obj: Any, node: Node) -> None:
        node.label = (
            f"Axes {obj.get_title()!r} {obj.get_xlabel()!r} {obj.get_ylabel()!r} {obj.get_xlim()} {obj.get_ylim()}"
        )
        node.edges = [("figure", self._ref(obj.figure)), *self._each(obj.lines), *self._each(obj.texts)]

    def _artist(self, obj: Any, node: Node) -> None:
        node.label = f"{_name_of(type(obj))} {obj.get_label()!r} {obj.get_visible()}"
        if hasattr(obj, "get_xydata"):
            node.label += f" {obj.get_color()} {_bytes(np.asarray(obj.get_xydata()).tobytes())}"
        if hasattr(obj, "get_text"):
            node.label += f" {obj.get_text()!r}"

    def _widget(self, obj: Any, node: Node) -> None:
        node.label, node.stored = _name_of(type(obj)), False
        values = {key: value for key, value in obj._trait_values.items() if key in obj.keys}
        node.edges = [(f".{key}", self._ref(value)) for key, value in sorted(values.items())]
        for name, kinds in sorted(obj._trait_notifiers.items(), key=str):
            for one in kinds.get("change", ()):
                if isinstance(one, types.FunctionType):
                    node.edges.append((f"observer of {name}", self._ref(one)))

    def _thread(self, obj: threading.Thread, node: Node) -> None:
        self._opaque(obj, node)
        node.label += f" {obj.is_alive()}"

    def _executor(self, obj: Any, node: Node) -> None:
        self._opaque(obj, node)
        node.label += f" shut={obj._shutdown}"

    def _future(self, obj: Any, node: Node) -> None:
        node.label = f"Future {obj._state}"
        node.edges = [("result", self._ref(obj._result)), ("exception", self._ref(obj._exception))]

    def _cached_property(self, obj: functools.cached_property, node: Node) -> None:
        node.label, node.edges = f"cached_property {obj.attrname}", [("func", self._ref(obj.func))]

    def _mappingproxy(self, obj: Any, node: Node) -> None:
        node.label, node.own, node.edges = "mappingproxy", False, self._each(gc.get_referents(obj))

    def _view(self, obj: Any, node: Node) -> None:
        node.label, node.own, node.edges = type(obj).__name__, False, self._each(gc.get_referents(obj))

    def _slice(self, obj: slice, node: Node) -> None:
        node.label, node.own, node.edges = "slice", False, self._each((obj.start, obj.stop, obj.step))

    def _hash_iterator(self, obj: Any, node: Node) -> None:
        """Look at an iterator of a dict or set: what is left of it, and what it goes over."""
        try:
            left = obj.__reduce__()[1][0]
        except RuntimeError:  # what it goes over has another size now: it can go no further
            self._opaque(obj, node)
            return
        self._held.append(left)
        over = [one for one in gc.get_referents(obj) if isinstance(one, (dict, set, frozenset))] if left else []
        node.label = type(obj).__name__
        node.edges = [*self._each(over), ("left", self._ref(left))]

    def _list_iterator(self, obj: Any, node: Node) -> None:
        """Look at an iterator of a list. At its end it holds no list, or an empty one that nobody else can extend."""
        over = gc.get_referents(obj)
        if not over or (over == [[]] and sys.getrefcount(over[0]) <= 3):
            node.label = "list_iterator at its end"
        else:
            self._reduced(obj, node)

    def _reduced(self, obj: Any, node: Node) -> None:
        """Look at what pickle would be told of an object of a type without a look of its own."""
        try:
            told = obj.__reduce_ex__(4)
        except Exception:  # it has no stored form
            self._opaque(obj, node)
            return
        node.label = f"{_name_of(type(obj))}"
        if isinstance(told, str):
            node.label += f" {told}"
            return
        told = [list(one) if number > 2 and one is not None else one for number, one in enumerate(told)]
        self._held.append(told)
        node.edges = self._each(told)

    def _opaque(self, obj: Any, node: Node) -> None:
        node.label, node.stored = f"{_name_of(type(obj))} #{self._tags.of(obj)}", False

    def _instance(self, obj: Any, node: Node) -> None:
        cls = type(obj)
        solid = _solid(cls)
        edges: list[Edge] = []
        if issubclass(solid, BaseException):
            edges = [("args", self._ref(obj.args)), ("cause", self._ref(obj.__cause__))]
        elif solid is not object:
            content = _CONTENT.get(solid)
            if content is None:
                self._reduced(obj, node)
                return
            content(self, obj, node)
            edges = node.edges
        node.label = f"{node.label} instance" if self._is_own_class(cls) else f"{node.label} {_name_of(cls)}"
        node.own = True
        edges.append(("type", self._ref(cls)))
        try:
            inside = object.__getattribute__(obj, "__dict__")
        except AttributeError:
            inside = None
        if type(inside) is dict and (inside or not issubclass(solid, BaseException)):  # an exception's comes when asked
            edges.append(("vars", self._ref(inside)))
        for base in cls.__mro__:
            if "__slots__" in vars(base):
                for key, slot in vars(base).items():
                    if isinstance(slot, types.MemberDescriptorType) and key != "__weakref__":
                        try:
                            edges.append((f".{key}", self._ref(slot.__get__(obj, cls))))
                        except AttributeError:
                            continue
        node.edges = edges

    def _ordered(self, obj: Any, node: Node) -> None:
        node.label = "OrderedDict"
        node.edges = list(self._pairs(collections.OrderedDict.items(obj)))

    def _default(self, obj: Any, node: Node) -> None:
        node.edges = [("default", self._ref(obj.default_factory)), *self._pairs(dict.items(obj))]

    def _deque(self, obj: Any, node: Node) -> None:
        node.label = f"deque {obj.maxlen}"
        node.edges = self._each(collections.deque.__iter__(obj))

    def _plain_base(self, obj: Any, node: Node) -> None:
        base = _solid(type(obj))
        node.label = f"{base.__name__} {_text(base.__repr__(obj))}"

    def _dict_base(self, obj: Any, node: Node) -> None:
        node.label, node.edges = "dict", list(self._pairs(dict.items(obj)))

    def _list_base(self, obj: Any, node: Node) -> None:
        node.label, node.edges = "list", self._each(list.__iter__(obj))

    def _tuple_base(self, obj: Any, node: Node) -> None:
        node.label, node.edges = "tuple", self._each(tuple.__iter__(obj))

    def _set_base(self, obj: Any, node: Node) -> None:
        base = set if isinstance(obj, set) else frozenset
        node.label, node.unordered = base.__name__, True
        node.edges = sorted((("{}", self._ref(value)) for value in base.__iter__(obj)), key=lambda edge: str(edge[1]))


def _interval(values: np.ndarray) -> tuple[int, int, bool]:
    low, high = np.lib.array_utils.byte_bounds(values)
    return low, high, True


def _is_python_class(cls: type) -> bool:
    inside = vars(cls)
    return bool(cls.__flags__ & (1 << 9)) and (
        any(name in inside for name in ("__slots__", "__dict__", "__weakref__"))
        or any(_is_python_class(base) for base in cls.__bases__)
    )


@functools.cache
def _solid(cls: type) -> type:
    """Return the nearest base that is not written in Python."""
    return next(base for base in cls.__mro__ if not _is_python_class(base))


_CONTENT: dict[type, Callable[[_Walk, Any, Node], None]] = {
    dict: _Walk._dict_base,
    collections.OrderedDict: _Walk._ordered,
    collections.defaultdict: _Walk._default,
    collections.deque: _Walk._deque,
    list: _Walk._list_base,
    tuple: _Walk._tuple_base,
    set: _Walk._set_base,
    frozenset: _Walk._set_base,
    **dict.fromkeys((int, float, complex, str, bytes), _Walk._plain_base),
    bytearray: _Walk._bytearray,
}
_EXACT: dict[type, Callable[[_Walk, Any, Node], None]] = {
    list: _Walk._list,
    tuple: _Walk._tuple,
    dict: _Walk._dict,
    set: _Walk._set,
    frozenset: _Walk._set,
    bytearray: _Walk._bytearray,
    array.array: _Walk._array_array,
    memoryview: _Walk._memoryview,
    types.FunctionType: _Walk._function,
    types.CellType: _Walk._cell,
    types.MethodType: _Walk._method,
    types.BuiltinMethodType: _Walk._builtin_method,
    types.MethodWrapperType: _Walk._builtin_method,
    types.GeneratorType: _Walk._generator,
    types.CoroutineType: _Walk._generator,
    types.AsyncGeneratorType: _Walk._generator,
    types.MappingProxyType: _Walk._mappingproxy,
    **dict.fromkeys((type({}.keys()), type({}.values()), type({}.items())), _Walk._view),
    **dict.fromkeys((type(iter({})), type(iter({}.values())), type(iter({}.items()))), _Walk._hash_iterator),
    type(iter(set())): _Walk._hash_iterator,
    type(iter([])): _Walk._list_iterator,
    type(io.BytesIO().getbuffer().obj): _Walk._bytes_io_buffer,
    threading.local: _Walk._local,
    slice: _Walk._slice,
    **dict.fromkeys((property, classmethod, staticmethod), _Walk._wrapped_attribute),
    functools.cached_property: _Walk._cached_property,
    type(functools.lru_cache(len)): _Walk._lru_cache,
    weakref.ref: _Walk._weakref,
    type(threading.Lock()): _Walk._lock,
    type(threading.RLock()): _Walk._lock,
    random.Random: _Walk._random,
    decimal.Context: _Walk._context,
    type(hashlib.sha256()): _Walk._hash,
    np.random.Generator: _Walk._generator_of_numbers,
}
_FAMILIES: tuple[tuple[Callable[[], type | tuple[type, ...] | None], Callable[[_Walk, Any, Node], None]], ...] = (
    (lambda: type, _Walk._class),
    (lambda: types.ModuleType, _Walk._module),
    (lambda: (pd.DataFrame, pd.Series), _Walk._frame),
    (lambda: pd.Index, _Walk._index),
    (lambda: np.ndarray, _Walk._ndarray),
    (lambda: functools.partial, _Walk._partial),
    (lambda: ET.Element, _Walk._etree),
    (lambda: (io.BytesIO, io.StringIO), _Walk._bytes_io),
    (lambda: io.IOBase, _Walk._file),
    (lambda: (weakref.WeakSet, weakref.WeakValueDictionary, weakref.WeakKeyDictionary), _Walk._weak_container),
    (lambda: weakref.ref, _Walk._weakref),
    (lambda: np.random.BitGenerator, _Walk._bit_generator),
    (lambda: (ctypes.Array, ctypes.Structure, ctypes._SimpleCData), _Walk._ctypes),
    (lambda: logging.Logger, _Walk._logger),
    (lambda: threading.Thread, _Walk._thread),
    (lambda: _late("concurrent.futures", "Executor"), _Walk._executor),
    (lambda: _late("concurrent.futures", "Future"), _Walk._future),
    (lambda: _late("_contextvars", "ContextVar"), _Walk._context_variable),
    (lambda: _late("_queue", "SimpleQueue"), _Walk._simple_queue),
    (lambda: _late("subprocess", "Popen"), _Walk._opaque),
    (lambda: _late("ipywidgets", "Widget"), _Walk._widget),
    (lambda: _late("matplotlib.figure", "Figure"), _Walk._figure),
    (lambda: _late("matplotlib.axes", "Axes"), _Walk._axes),
    (lambda: _late("matplotlib.artist", "Artist"), _Walk._artist),
)
_WALKERS: dict[type, Callable[[_Walk, Any, Node], None]] = {}


def _late(module: str, name: str) -> type | None:
    found = sys.modules.get(module)
    return getattr(found, name, None) if found is not None else None


def _walker(cls: type) -> Callable[[_Walk, Any, Node], None]:
    found = _EXACT.get(cls) or _WALKERS.get(cls)
    if found is None:
        found = _Walk._instance
        for family, walker in _FAMILIES:
            types_ = family()
            if types_ is not None and issubclass(cls, types_):
                found = walker
                break
        _WALKERS[cls] = found
    return found


# -- comparing -------------------------------------------------------------------------------------


def differences(
    then: Snapshot, now: Snapshot, *, exempt: Collection[str] = (), only: Collection[str] | None = None, most: int = 8
) -> list[Difference]:
    """Return what is not as it was, at most `most`. `only` looks at these names alone.

    Names in `exempt` are left out, and so is what they hold that has no stored form, under whatever name.
    """
    names = [name for name in (only or sorted({*then.roots, *now.roots})) if name not in exempt]
    return _Comparison(then, now, most, _unstored(then, exempt)).compare(names)


def stored(there: Snapshot, name: str) -> bool:
    """Return whether what a name holds has a stored form, and so can be compared by what it is."""
    node = there.roots[name]
    return not isinstance(node, int) or there.nodes[node].stored


def _unstored(then: Snapshot, names: Collection[str]) -> set[int]:
    """Return the nodes without a stored form that are reached from `names`."""
    todo = [then.roots[name] for name in names if name in then.roots]
    seen: set[int] = set()
    while todo:
        at = todo.pop()
        if isinstance(at, int) and at not in seen:
            seen.add(at)
            todo += [edge for _, edge in then.nodes[at].edges]
    return {at for at in seen if not then.nodes[at].stored}


class _Comparison:
    def __init__(self, then: Snapshot, now: Snapshot, most: int, excused: set[int]) -> None:
        self._then, self._now, self._most, self._excused = then, now, most, excused
        self._new: dict[int, int] = {}
        """Node then → node now, of objects that matter which they are …"""
        self._old: dict[int, int] = {}
        self._seen: set[tuple[int, int]] = set()
        self._memory: list[tuple[Node, Node, str, str]] = []
        self._weak: list[tuple[Node, Node, str, str]] = []
        self._found: list[Difference] = []

    def compare(self, names: Iterable[str]) -> list[Difference]:
        for name in names:
            then, now = self._then.roots.get(name), self._now.roots.get(name)
            if then is None or now is None:
                self._differ(name, "", "there" if then is not None else "absent", "absent" if now is None else "there")
            else:
                self._pair(name, "", then, now)
            if len(self._found) >= self._most:
                return self._found
        self._compare_weak()
        self._compare_memory()
        return self._found

    def _differ(self, root: str, path: str, then: str, now: str) -> None:
        self._found.append(Difference(root, path, _text(then), _text(now)))

    def _pair(self, root: str, path: str, then: int | str, now: int | str) -> None:
        todo = [(path, then, now)]
        found = len(self._found)
        while todo and len(self._found) < found + 2:
            path, old, new = todo.pop()
            if old in self._excused:
                continue
            if isinstance(old, str) or isinstance(new, str):
                if old != new:
                    self._differ(root, path, self._told(self._then, old), self._told(self._now, new))
                continue
            if (old, new) in self._seen:
                continue
            self._seen.add((old, new))
            a, b = self._then.nodes[old], self._now.nodes[new]
            if a.label != b.label:
                self._differ(root, path, a.label, b.label)
                continue
            if a.own:
                if self._new.setdefault(old, new) != new:
                    self._differ(root, path, "one object with what it shared", f"another {b.label}")
                    continue
                if self._old.setdefault(new, old) != old:
                    self._differ(root, path, "an object of its own", f"a {b.label} that is also something else")
                    continue
            if a.memory is not None and b.memory is not None:
                self._memory.append((a, b, root, path))
            if a.weak is not None:
                self._weak.append((a, b, root, path))
            edges = b.edges
            if len(a.edges) == len(b.edges) and a.unordered:
                edges = self._matched(a, b)
            if [name for name, _ in a.edges] != [name for name, _ in edges]:
                self._differ(root, path, *self._unlike(a, b))
                continue
            for (name, one), (_, two) in zip(a.edges, edges, strict=True):
                todo.append((f"{path}{name if name[:1] in '.[' else f'({name})' if name else ''}", one, two))

    def _unlike(self, a: Node, b: Node) -> tuple[str, str]:
        """Return what two objects hold, without what is the same by its name at the begin and at the end."""
        one, two = list(a.edges), list(b.edges)
        for at in (0, -1):
            while one and two and one[at][0] == two[at][0]:
                del one[at], two[at]
        return (
            self._all(self._then, dataclasses.replace(a, edges=one)) + (" without more" if not one else ""),
            self._all(self._now, dataclasses.replace(b, edges=two)) + (" without more" if not two else ""),
        )

    def _matched(self, a: Node, b: Node) -> list[Edge]:
        """Return the edges of `b` in the order of those of `a` that they look like."""
        left = list(b.edges)
        found: list[Edge] = []
        for _, one in a.edges:
            sketch = self._sketch(self._then, one)
            alike = [edge for edge in left if self._sketch(self._now, edge[1]) == sketch]
            known = [edge for edge in alike if isinstance(one, int) and self._new.get(one) == edge[1]]
            edge = (known or alike or left)[0]
            left.remove(edge)
            found.append(edge)
        return found

    def _sketch(self, where: Snapshot, one: int | str, depth: int = 2) -> Any:
        if isinstance(one, str):
            return one
        node = where.nodes[one]
        inside = (
            [(name, self._sketch(where, edge, depth - 1)) for name, edge in node.edges] if depth else len(node.edges)
        )
        return node.label, sorted(inside, key=str) if node.unordered and depth else inside

    def _told(self, where: Snapshot, one: int | str) -> str:
        return one if isinstance(one, str) else self._all(where, where.nodes[one])

    def _all(self, where: Snapshot, node: Node) -> str:
        parts = [
            f"{name} {edge if isinstance(edge, str) else where.nodes[edge].label}" for name, edge in node.edges[:8]
        ]
        more = f", … {len(node.edges)}" if len(node.edges) > 8 else ""
        return f"{node.label} ({', '.join(parts)}{more})" if parts else node.label

    def _compare_weak(self) -> None:
        for a, b, root, path in self._weak:
            if a.weak in self._new and self._new[a.weak] != b.weak:
                self._differ(root, path, "a reference to what it shared", "one to another object")

    def _compare_memory(self) -> None:
        """Find pairs that shared bytes and do not now, or the other way round."""
        entries = self._memory
        for at, (a, b, root, path) in enumerate(entries):
            for c, d, root2, path2 in entries[:at]:
                if a is c or not (a.memory[2] or c.memory[2]):
                    continue
                then, now = _offset(a.memory, c.memory), _offset(b.memory, d.memory)
                if then != now:
                    told = f"with {root2}{path2}"
                    self._differ(root, path, f"shared memory {told}: {then}", f"shared memory {told}: {now}")
                    return


def _offset(a: tuple[int, int, bool], b: tuple[int, int, bool]) -> int | None:
    """Return how far apart two areas begin that overlap; None where they do not."""
    return a[0] - b[0] if a[0] < b[1] and b[0] < a[1] else None
