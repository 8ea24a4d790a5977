"""Selection of the reducer for each object of a pack.

Rule 1: if the user's code fails for an object, a stand-in replaces that object, and only that one.
Rule 2: no object of the user is changed. This includes entries that the standard library caches on a class.
Rule 3: the C pickler sees exact lists, dicts, tuples, sets, text and numbers by itself; only other types reach
this code. A reducer may be called a million times, so it is found by one access to a dict.
"""

from __future__ import annotations

import collections
import copyreg
import functools
import gc
import io
import pickle
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ctxkernel.core.ports import Expired
from ctxkernel.core.reflection import class_mro, class_of, class_qualname, is_any, is_kind, is_own_class, loaded
from ctxkernel.state.types import (
    arrays,
    classes,
    code,
    connections,
    display_objects,
    file_objects,
    frames,
    instances,
    matches,
    process_objects,
    tensors,
)
from ctxkernel.state.types.object_names import MOST_IN_A_PACK, ObjectNames
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import (
    PARTS,
    SMALL,
    ConstructorName,
    NotCopied,
    OutOfTime,
    Reduction,
    part_seed,
    said,
)

_LOOKED_UP = (
    "own_class definition module code code_from found in_shell live handle shared nameless_type member enum_named"
)
_WITHOUT_IDENTITY = frozenset((*_LOOKED_UP.split(), "class_entry"))
"""Constructors of objects that are looked up, so that other references to them make no difference."""
_BUILTIN = (list, dict, set, bytearray, collections.deque, collections.defaultdict, collections.Counter)
_VALUES: dict[int, type] = {id(ConstructorName): ConstructorName}
"""By id: classes whose instances are values, so that it makes no difference whether two are one."""
_MUTABLE = frozenset(map(id, (*_BUILTIN, collections.OrderedDict, types.SimpleNamespace)))
"""Ids of the exact types that the pickler stores by itself and that can change in place."""


class FastPickler(pickle.Pickler):
    """The C pickler, as a class of its own so that it asks for `reducer_override`; without a dict of its own."""

    __slots__ = ("identity", "reducer_override")
    identity: Callable[[object], int | None]


class IdentityPickler(FastPickler):
    """Asks for the identity of each object. Python 3.13 takes no `persistent_id` of an instance."""

    __slots__ = ()

    def persistent_id(self, obj: object) -> int | None:
        """Return the number of an object that is compared by identity, None for any other."""
        return self.identity(obj)


@functools.cache
def _shows_memo() -> bool:
    """Return whether the collector shows the memo of a pickler in C; a copy of it takes twenty times as long."""
    value = list[object]()
    pickler = FastPickler(io.BytesIO())
    pickler.dump(value)
    return any(one is value for one in gc.get_referents(pickler))


class Dispatcher(PackState):
    """Calls the reducer of each object of one pack. `reduce` is the pickler's `reducer_override`."""

    def __init__(
        self,
        packer: ObjectNames,
        cache: Cache,
        values: Mapping[str, object],
        expired: Expired,
        *,
        plain: bool = False,
        claimed: bool = False,
    ) -> None:
        super().__init__(packer, values, expired, plain=plain, claimed=claimed)
        self._cache = cache
        self.kinds: dict[int, Kind] = cache.known().copy()
        self.held: list[type] = []
        """Classes that are kept alive, so that their ids stay valid."""
        self.ordered: list[int] = []
        """Which buffers the stream asks for one after the other."""
        self.refused: dict[int, str] = {}
        """By id: why an object cannot be stored, as an earlier try found."""
        self.current: object = None
        self.deep = False
        self._asked = 0
        self._identified = 0
        self._float64 = loaded("numpy").get("float64")
        self._suppress = loaded("argparse").get("SUPPRESS")
        self.shares = len(packer.labels) > 0
        """Whether there are objects with packs of their own."""
        self.identify = False
        """Whether `identities` will be asked for."""
        self.temporary: set[int] = set()
        """Ids of containers that were made for this pack: they are gone after it."""
        self.values: dict[int, type] = {}
        """As `_VALUES`, for classes of the user's."""

    def reduce(self, obj: Any) -> Reduction:
        """Take one object apart. Raises OutOfTime; KeyboardInterrupt and RecursionError go through."""
        cls = class_of(obj)
        try:
            kind = self.kinds[id(cls)]
        except KeyError:
            kind = self._make_kind(cls, obj)
        if kind is None:
            return NotImplemented
        self.current = obj
        self._asked += 1
        if not self._asked & 31 and self.expired():
            raise OutOfTime
        if self.refused and id(obj) in self.refused:
            held = self.plan(cls).dict_of(obj) if self.refused[id(obj)] is FINALIZED else None
            return self.refuse(obj, self.refused[id(obj)], held)
        if self.shares and id(obj) not in self.roots and (label := self.label_of(obj)):
            self.shared[label] = obj
            return PARTS.shared, (self.label(label),)
        try:
            reduction = kind(self, obj)
            if class_of(reduction) is tuple and id(cls) not in _VALUES and id(cls) not in self.values:
                made = reduction[0]
                if class_of(made) is not ConstructorName or made.name not in _WITHOUT_IDENTITY:
                    self.noted.append(obj)
            if self.identify and class_of(reduction) is tuple:
                _temporaries(reduction, self.temporary, 0)
            return reduction
        except (OutOfTime, NotCopied, KeyboardInterrupt):
            raise
        except RecursionError as fault:
            if not self.deep:
                raise  # most likely not of this object's making: it lies deep down
            return self.refuse(obj, said(fault))
        except BaseException as fault:  # SystemExit too: the user's code may raise anything
            return self.refuse(obj, said(fault))

    def identity(self, obj: Any) -> int | None:
        """Return the number of an object that is compared by identity, None for any other."""
        kind = class_of(obj)
        if kind is float:
            if obj == obj:
                return None
        elif kind is not str or obj is not self._suppress:
            if kind is self._float64 and obj != obj:
                self.noted.append(obj)  # the pickler has it in its memo, and names that hold it are packed together
            return None
        if self._identified >= MOST_IN_A_PACK:
            return None
        label = f"live:{self.packer.identities.token(obj)}"
        self._identified += label not in self.labels
        return self.label(label)

    def recurses(self, obj: object) -> bool:
        """Return whether the code of `obj` itself recurses without end, rather than that it is deeply nested."""
        kind = self.kinds.get(id(class_of(obj)))
        try:
            if kind is not None:
                kind(self, obj)
        except Exception as fault:  # or it fails, but not for its depth
            return isinstance(fault, RecursionError)
        return False

    def keep_out(self, pickle_buffer: Any) -> bool:
        """Decide on a buffer that a library hands out: the pickler's `buffer_callback`. True: it goes in-band."""
        memory = pickle_buffer.raw()
        if memory.nbytes < SMALL:
            return True
        self.ordered.append(self.buffer(memory))
        return False

    def identities(self, pickler: Any, seeds: Iterable[int]) -> dict[int, object]:
        """Return mutable objects by id, with None for those that the pickler stores by itself; clear its memo.

        Those that only the memo holds were made for this pack.
        """
        shown = not self.deep and _shows_memo()
        memo: Iterable[Any] = gc.get_referents(pickler) if shown else [one for _, one in pickler.memo.copy().values()]
        found = [one for one in memo if class_of(one) is not str and id(class_of(one)) in _MUTABLE]
        pickler.clear_memo()
        del memo
        while len(held := [one for one in found if sys.getrefcount(one) > _HELD_ONCE]) < len(found):
            found = held
        known: dict[int, Any] = dict.fromkeys(set(map(id, found)).difference(self.temporary, seeds))
        return known | {id(one): one for one in (*self.noted, *self.targets)}

    def _make_kind(self, cls: type, obj: object) -> Kind:
        own = is_own_class(cls, self.module)
        if is_kind(cls, type):
            kind = classes.class_
        else:
            kind = self._find_kind(cls, obj, _libraries())
            if connections.REGISTRY.names(cls):
                kind = _connection(kind)
        self.kinds[id(cls)] = kind
        if own or "<locals>" in class_qualname(cls):
            self.held.append(cls)
        else:
            self._cache.add(cls, kind)
        if not (own and len(class_mro(cls)) == 2) and is_any(cls, *_VALUE_TYPES):
            (self.values if own else _VALUES)[id(cls)] = cls
        return kind

    def _find_kind(self, cls: type, obj: object, libraries: dict[int, Kind]) -> Kind:
        plan = self.plan(cls)
        handle = plan.honest and self.packer.is_handle(obj)
        for table in (libraries, {} if handle else _BELOW):
            for base in class_mro(cls):
                kind = table.get(id(base), _MISSING)
                if kind is not _MISSING:
                    return kind if plan.honest or not plan.own else instances.guarded
        if handle:
            return lambda pack, obj: (PARTS.handle, (obj.obj_id,))
        return instances.reducer_of(self, cls, plan)


def _temporaries(parts: Any, found: set[int], depth: int) -> None:
    """Find the containers in a reduction to which nothing else refers: they were made for it."""
    for one in parts.values() if class_of(parts) is dict else parts:
        kind = class_of(one)
        if (kind is tuple or kind is dict or kind is list or kind is set) and sys.getrefcount(one) <= _HELD_ONCE:
            if kind is not tuple:
                found.add(id(one))
            if depth < _DEEPEST and (kind is tuple or len(one) < _WIDEST):
                _temporaries(one, found, depth + 1)


_HELD_ONCE = next(sys.getrefcount(one) for one in (list[Any](),))
_DEEPEST = 5
_WIDEST = 1000

_VALUE_TYPES = (
    *(("typing", "_BaseGenericAlias"), ("typing", "_SpecialForm"), ("typing", "TypeVar")),
    *(("numpy", "dtype"), ("numpy", "generic"), ("numpy", "ufunc"), ("enum", "Enum"), ("datetime", "tzinfo")),
    *(("pandas.api.extensions", "ExtensionDtype"), ("pandas", "Timestamp"), ("pandas", "Timedelta")),
    *(("pandas", "Period"), ("pandas", "Interval"), ("pandas", "DateOffset"), ("pyarrow", "DataType")),
    ("pandas._libs.tslibs.offsets", "BaseOffset"),
    *(("pyarrow", "Array"), ("pyarrow", "ChunkedArray"), ("pyarrow", "Table"), ("pyarrow", "RecordBatch")),
)


class Cache:
    """Reducers of library classes, which are valid until another library is imported."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        """The reducers of libraries, how many `copyreg` has, and the entries of `reconnect`, when these were found."""
        self._kinds: dict[int, Kind] = {}
        self._held: list[type] = []
        """Their classes, so that their ids stay valid."""

    def known(self) -> dict[int, Kind]:
        """Return the reducers that are known, by id of a class."""
        now = _libraries(), len(copyreg.dispatch_table), connections.REGISTRY.entries
        if self._of != now:
            self._of, self._kinds = now, dict(_EXACT)
            self._held.clear()
        return self._kinds

    def add(self, cls: type, kind: Kind) -> None:
        """Add the reducer of a class."""
        self._kinds[id(cls)] = kind
        self._held.append(cls)


_MISSING: Any = object()
FINALIZED = "a finalizer is registered for it, which would run when it is replaced"


def _connection(otherwise: Kind) -> Kind:
    """Return the reducer for a class that an entry of `reconnect` names: its attributes are not stored."""

    def reduce(pack: PackState, obj: Any) -> Reduction:
        found = connections.REGISTRY.describe(obj)
        if found not in ("", connections.CLOSED):
            return pack.refuse(obj, "a connection, which has no stored form", found=found)
        return NotImplemented if otherwise is None else otherwise(pack, obj)

    return reduce


_OWN: dict[type, Kind] = {ConstructorName: lambda pack, obj: (part_seed, (obj.name,))}
_KINDS = (process_objects.KINDS, file_objects.KINDS, code.KINDS, classes.KINDS, matches.KINDS, _OWN)
_EXACT: dict[int, Kind] = {id(cls): None for cls in process_objects.PLAIN} | {
    id(cls): kind for table in _KINDS for cls, kind in table.items()
}
_BELOW: dict[int, Kind] = {
    id(cls): kind for table in (process_objects.BELOW, file_objects.BELOW, code.BELOW) for cls, kind in table.items()
}
_LIBRARIES = (arrays, frames, tensors, display_objects, process_objects)
_TABLE: tuple[tuple[str, str, Kind], ...] = tuple(row for each in _LIBRARIES for row in each.TABLE)
_MODULES = tuple(dict.fromkeys(row[0] for row in _TABLE))


def _libraries() -> dict[int, Kind]:
    """Return the reducers for classes of the libraries that are imported, and for their subclasses."""
    return _of_imported(tuple(map(sys.modules.__contains__, _MODULES)))


@functools.lru_cache(1)
def _of_imported(_: tuple[bool, ...]) -> dict[int, Kind]:
    listed = ((getattr(sys.modules.get(module), name, None), kind) for module, name, kind in _TABLE)
    return {id(cls): kind for cls, kind in listed if isinstance(cls, type)}
