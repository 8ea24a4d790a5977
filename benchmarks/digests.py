"""What a kernel's namespace holds, as digests that another kernel, or the same one after a return, must give again.

Rule 1: it runs inside the kernels that are measured, and changes nothing there: no name, no generator, no position.
Rule 2: it knows nothing of the methods that are measured, and shares no code with them.

A digest covers content and the identity structure below one name: an object that is met twice is written as a
reference. What two names share is a matter of facts, expressions that the notebook itself lists.
"""

from __future__ import annotations

import collections
import io
import json
import sqlite3
import sys
import types
import weakref
from typing import Any

import xxhash

UNSAID = {"__dict__", "__weakref__", "__module__", "__slotnames__"}
"""Of a class. The last is a note that `copyreg` leaves at the first pickling."""
NOT_THE_USERS = {"In", "Out", "exit", "quit", "get_ipython", "open", "kishu", "init_kishu"}


class Digester:
    """Writes one value, in a canonical form, into a hash."""

    def __init__(self) -> None:
        self.hash = xxhash.xxh3_128()
        self.seen: dict[int, int] = {}
        self.alive: list[object] = []

    def text(self, *words: object) -> None:
        self.hash.update("\x1f".join(map(str, words)).encode("utf-8", "surrogatepass") + b"\x1e")

    def raw(self, data: Any) -> None:
        self.hash.update(data)

    def met(self, value: object) -> bool:
        """Return whether `value` was written before; if so, a reference was written now."""
        number = self.seen.get(id(value))
        if number is not None:
            self.text("ref", number)
            return True
        self.seen[id(value)] = len(self.seen)
        self.alive.append(value)
        return False

    def all(self, tag: str, values: Any) -> None:
        self.text(tag)
        for value in values:
            self.feed(value)
        self.text("end")

    def feed(self, value: Any) -> None:
        kind = type(value)
        if value is None or kind in (bool, int, float, complex, str, bytes, range, slice, type(...)):
            self.text(kind.__name__, repr(value))
        elif kind is tuple:
            self.all("tuple", value)
        elif kind is frozenset or kind is set:
            self.text(kind.__name__, *sorted(digest(item) for item in value))
        elif isinstance(value, types.ModuleType):
            self.text("module", value.__name__)
        elif isinstance(value, (types.BuiltinFunctionType, types.CodeType)):
            self.code(value) if isinstance(value, types.CodeType) else self.text("builtin", value.__qualname__)
        elif not self.met(value):
            self.once(value)

    def once(self, value: Any) -> None:
        kind = type(value)
        numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
        if kind in (list, collections.deque):
            self.all(kind.__name__, value)
        elif isinstance(value, dict):
            self.text(kind.__qualname__)
            for key, item in value.items():
                self.feed(key)
                self.feed(item)
            self.text("end")
        elif kind in (bytearray, memoryview):
            self.text(kind.__name__, bytes(value).hex())
        elif numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            self.array(value)
        elif pandas is not None and isinstance(value, pandas.DataFrame):
            self.all("frame", [list(value.columns), value.index, dict(value.attrs)])
            for place in range(value.shape[1]):
                self.column(value.iloc[:, place])
        elif pandas is not None and isinstance(value, pandas.Series):
            self.all("series", [value.name, value.index])
            self.column(value)
        elif pandas is not None and isinstance(value, pandas.Index):
            self.text("index", value.name, value.dtype)
            self.raw(pandas.util.hash_pandas_object(value).to_numpy().tobytes())
        elif isinstance(value, types.FunctionType):
            self.function(value)
        elif isinstance(value, types.MethodType):
            self.all("method", [value.__func__, value.__self__])
        elif isinstance(value, type):
            self.own_class(value)
        elif isinstance(value, types.GeneratorType):
            frame = value.gi_frame
            self.text("generator", value.__qualname__, None if frame is None else frame.f_lasti)
            if frame is not None:
                self.feed(dict(sorted(frame.f_locals.items())))
        elif isinstance(value, weakref.ref):
            self.text("weak reference")
            self.feed(value())
        elif isinstance(value, io.IOBase):
            self.text("file", getattr(value, "name", ""), value.closed or value.tell())
        elif isinstance(value, sqlite3.Connection):
            self.text("connection", *value.iterdump())
        elif kind.__name__ in ("lock", "RLock"):
            self.text("lock", value.locked() if hasattr(value, "locked") else "")
        elif kind.__module__ == "itertools":
            self.text(repr(value))
        elif _is(value, "matplotlib.artist", "Artist"):
            self.artist(value)
        else:
            self.instance(value)

    def array(self, value: Any) -> None:
        self.text(type(value).__name__, value.dtype.str, value.shape)
        if isinstance(value, sys.modules["numpy"].ndarray):
            self.text(value.flags.writeable)
        if value.dtype.hasobject:
            self.all("objects", value.ravel().tolist() if value.dtype.names is None else [value.tolist()])
        elif value.dtype.names:  # field by field: what lies between the fields is no content
            for name in value.dtype.names:
                self.array(value[name])
        else:
            numpy = sys.modules["numpy"]
            self.raw(numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8))

    def column(self, series: Any) -> None:
        pandas = sys.modules["pandas"]
        self.text(series.dtype)
        plain = isinstance(series.array, pandas.arrays.NumpyExtensionArray)
        self.raw(pandas.util.hash_array(series.to_numpy() if plain else series.array).tobytes())

    def code(self, value: types.CodeType) -> None:
        self.text("code", value.co_name, value.co_code.hex(), value.co_names, value.co_varnames)
        self.all("constants", value.co_consts)

    def function(self, value: types.FunctionType) -> None:
        if value.__module__ != "__main__":
            self.text("function", value.__module__, value.__qualname__)
            return
        self.text("own function", value.__qualname__, value.__doc__)
        self.code(value.__code__)
        self.all("rest", [value.__defaults__, value.__kwdefaults__, dict(value.__dict__)])
        for cell in value.__closure__ or ():
            if not self.met(cell):
                try:
                    self.feed(cell.cell_contents)
                except ValueError:
                    self.text("empty cell")

    def own_class(self, value: type) -> None:
        self.text("class", value.__module__, value.__qualname__)
        if value.__module__ == "__main__":
            self.all("bases", value.__bases__)
            for name, item in sorted(vars(value).items()):
                if name not in UNSAID and not isinstance(item, types.MemberDescriptorType):
                    self.text(name)
                    self.feed(item)

    def artist(self, value: Any) -> None:
        self.text("artist", type(value).__qualname__, value.get_visible(), value.get_zorder())
        if _is(value, "matplotlib.lines", "Line2D"):
            self.array(value.get_xydata())
            self.text(value.get_color(), value.get_linewidth(), value.get_linestyle())
        elif _is(value, "matplotlib.text", "Text"):
            self.text(value.get_text())
        else:
            self.all("children", value.get_children())

    def instance(self, value: Any) -> None:
        self.text("instance", type(value).__module__, type(value).__qualname__)
        if type(value).__module__ == "__main__":
            self.feed(type(value))
        slots = {
            name: getattr(value, name)
            for base in type(value).__mro__
            for name in _names(vars(base).get("__slots__", ()))
            if name not in ("__dict__", "__weakref__") and hasattr(value, name)
        }
        state = {**getattr(value, "__dict__", {}), **slots}
        if state:
            for name, item in sorted(state.items(), key=lambda pair: str(pair[0])):
                self.text(name)
                self.feed(item)
            return
        try:  # an extension type: what it tells pickle
            reduced = value.__reduce_ex__(2)
        except Exception as refused:
            self.text("opaque", type(refused).__name__)
            return
        if isinstance(reduced, str):
            self.text(reduced)
        else:
            self.all("reduced", [list(part) if hasattr(part, "__next__") else part for part in reduced])


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is(value: object, module: str, name: str) -> bool:
    known = getattr(sys.modules.get(module), name, None)
    return known is not None and isinstance(value, known)


def digest(value: object) -> str:
    """Return 32 hex digits that depend on content and inner identity only."""
    digester = Digester()
    digester.feed(value)
    return digester.hash.hexdigest()


def report(namespace: dict[str, Any], facts: list[str]) -> str:
    """Return `{"names": {name: digest}, "facts": {expression: repr}}` as JSON."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 20_000))
    names: dict[str, str] = {}
    told: dict[str, str] = {}
    try:
        for name in sorted(dict.keys(namespace)):
            if name.startswith("_") or name in NOT_THE_USERS:
                continue
            try:
                names[name] = digest(dict.__getitem__(namespace, name))
            except Exception as error:
                names[name] = f"{type(error).__name__}: {error}"
        for fact in facts:
            try:
                told[fact] = repr(eval(fact, namespace))
            except Exception as error:
                told[fact] = type(error).__name__
    finally:
        sys.setrecursionlimit(limit)
    return json.dumps({"names": names, "facts": told})
