"""How one pack takes objects apart: which reducer is for which object, and what becomes of what has none.

Rule 1: a fault in the user's code costs the object it is of: a stand-in is written in its place, never less.
Rule 2: nothing of the user's is changed, not even by what the standard library remembers on a class.
Rule 3: the C pickler sees exact lists, dicts, tuples, sets, text and numbers by itself; only what else there is comes
here. So a reducer may be called a million times: the way to it is one look into a dict.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ctxkernel.state import pickle_arrays, pickle_code, pickle_frames, pickle_instances, pickle_things
from ctxkernel.state.pickle_core import SMALL, Expired, OutOfTime, Part, Reduction, said, short
from ctxkernel.state.reflect import Plan, class_module, class_mro, class_qualname, is_kind, is_own_class, public_name

if TYPE_CHECKING:
    from ctxkernel.state.pickling import Packer

Kind = Callable[["Taking", Any], Reduction] | None
"""A reducer; None leaves the object to the pickler."""

_LIVE = Part("live")
_HANDLE = Part("handle")


class Taking:
    """What one pack has come to know. `reduce` is the pickler's `reducer_override`."""

    def __init__(self, packer: Packer, expired: Expired, tops: dict[int, list[str]], by_value: dict[int, str]) -> None:
        self.packer = packer
        self.namespace = packer.namespace
        self.module = packer.module
        self.expired = expired
        self.tops = tops
        """By id of the value of a name: the names."""
        self.by_value = by_value
        """By id: uids of the classes that this pack stores themselves."""
        self.kinds: dict[int, Kind] = dict(_exact())
        self.plans: dict[int, Plan] = {}
        self.metas: list[type] = []
        self.held: list[type] = []
        """Classes, so that an id stays what it is while the pack is made."""
        self.buffers: list[memoryview] = []
        self.ordered: list[int] = []
        """Which buffers the stream asks for one after the other."""
        self.refused: dict[int, str] = {}
        """By id: why an object cannot be stored, as an earlier try found."""
        self.missing: list[tuple[object, str]] = []
        """What is not stored, and what it is."""
        self.left_out: list[tuple[object, str]] = []
        """What is stored without a part of it, and which."""
        self.faults: dict[str, str] = {}
        self.fault_names: list[str] = []
        """Their names, in the stream."""
        self.live: dict[str, object] = {}
        self.classes: dict[str, type] = {}
        self.rebuilt: dict[str, None] = {}
        self.members: set[int] | None = None
        """Ids of the targets of weak references that are in the pack; None until that is known."""
        self.targets: list[object] = []
        self.cells: set[int] = set()
        """Cells whose content comes with a function."""
        self.copied: dict[int, tuple[dict[str, Any], dict[str, Any] | None]] = {}
        """By id: dicts that functions have as their globals and that are copies of the namespace, and what is stored
        in their place; None where they are stored as they are."""
        self.blocks: list[Any] = []
        """Memory that is stored by itself, as arrays met it."""
        self.runs: dict[str, None] = {}
        """Code of the user's that runs when it is unpacked, or when what was unpacked goes."""
        self.current: object = None
        self.deep = False
        self._asked = 0
        self.known_types: set[str] = set()
        """Names of library classes met whose reducer was known."""

    def reduce(self, obj: Any) -> Reduction:
        """Take one object apart. Raises OutOfTime; KeyboardInterrupt and RecursionError go through."""
        cls = type(obj)
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
            return self.refuse(obj, self.refused[id(obj)])
        try:
            return kind(self, obj)
        except (OutOfTime, KeyboardInterrupt):
            raise
        except RecursionError as fault:
            if not self.deep:
                raise  # most likely not of this object's making: it lies deep down
            return self.refuse(obj, said(fault))
        except BaseException as fault:  # SystemExit too: the user's code may raise anything
            return self.refuse(obj, said(fault))

    def recurses(self, obj: object) -> bool:
        """Say whether the code of `obj` itself knows no end, rather than that it lies deep down."""
        kind = self.kinds.get(id(type(obj)))
        try:
            if kind is not None:
                kind(self, obj)
        except RecursionError:
            return True
        except Exception:  # it fails, but not for its depth
            return False
        return False

    # -- outcomes ---------------------------------------------------------------------------------

    def refuse(self, obj: object, reason: str) -> Reduction:
        """Write a stand-in for `obj`; a restore in this process takes the object itself while it lives."""
        what = short(public_name(type(obj), self.module), 80)
        names = self.tops.get(id(obj), ())
        self.fault_names.extend(names)
        for name in names:
            self.faults[name] = f"{what}: {reason}" if not reason.startswith(what) else reason
        self.missing.append((obj, what))
        token = self.packer.token(obj)
        self.live[token] = obj
        return _LIVE, (token, f"{what} ({reason})")

    def note(self, text: str) -> None:
        """Say that something is made anew rather than restored."""
        self.rebuilt.setdefault(text)

    def leave_out(self, obj: object, what: str) -> None:
        """Say that `obj` is stored without `what`."""
        self.left_out.append((obj, what))

    def buffer(self, memory: memoryview) -> int:
        """Keep memory outside of the stream; returns its number."""
        self.buffers.append(memory)
        return len(self.buffers) - 1

    def keep_out(self, pickle_buffer: Any) -> bool:
        """Decide on a buffer that a library hands out: the pickler's `buffer_callback`. True: it goes in-band."""
        memory = pickle_buffer.raw()
        if memory.nbytes < SMALL:
            return True
        self.ordered.append(self.buffer(memory))
        return False

    def plan(self, cls: type) -> Plan:
        """Return how instances of `cls` are read."""
        plan = self.plans.get(id(cls))
        if plan is None:
            plan = self.plans[id(cls)] = Plan(cls, is_own_class(cls, self.module))
        return plan

    def types(self) -> frozenset[str]:
        """Return what the classes met are called; those of the user's with their uids."""
        found: set[str] = set()
        for cls in self.held:
            name = f"{class_module(cls)}.{class_qualname(cls)}"
            found.add(f"{name} {self.packer.uid(cls)}" if self.plan(cls).own else name)
        return frozenset(found) | self.known_types

    # -- which reducer ----------------------------------------------------------------------------

    def _make_kind(self, cls: type, obj: object) -> Kind:
        libraries = _libraries()
        cache = self.packer.cache
        if cache.libraries is not libraries or cache.registered != len(copyreg.dispatch_table):
            cache.renew(libraries, len(copyreg.dispatch_table))
        known = cache.kinds.get(id(cls))
        if known is not None:
            self.known_types.add(known[2])
            kind = known[1]
        elif is_kind(cls, type):
            kind = pickle_code.class_
            self.metas.append(cls)
        else:
            kind = self._find_kind(cls, obj, libraries)
            if self.plan(cls).own or "<locals>" in class_qualname(cls):
                self.held.append(cls)
            else:
                cache.kinds[id(cls)] = cls, kind, f"{class_module(cls)}.{class_qualname(cls)}"
                self.known_types.add(cache.kinds[id(cls)][2])
        self.kinds[id(cls)] = kind
        return kind

    def _find_kind(self, cls: type, obj: object, libraries: dict[int, Kind]) -> Kind:
        mro = class_mro(cls)
        for base in mro:
            kind = libraries.get(id(base), _MISSING)
            if kind is not _MISSING:
                return kind
        plan = self.plan(cls)
        if plan.honest and self.packer.is_handle(obj):
            return _handle
        below = _below()
        for base in mro:
            kind = below.get(id(base))
            if kind is not None:
                return kind
        return pickle_instances.kind_of(self, cls, plan)


class Cache:
    """Reducers of library classes, which stay what they are until other libraries are there."""

    def __init__(self) -> None:
        self.libraries: object = None
        self.registered = 0
        self.kinds: dict[int, tuple[type, Kind, str]] = {}
        """By id of a class: it, its reducer, its name."""

    def renew(self, libraries: object, registered: int) -> None:
        """Forget all: another library is there, or `copyreg` was told something."""
        self.libraries, self.registered = libraries, registered
        self.kinds.clear()


_MISSING: Any = object()


def _handle(taking: Taking, obj: Any) -> Reduction:
    return _HANDLE, (obj.obj_id,)


def _part(taking: Taking, obj: Part) -> Reduction:
    return taking.packer.part, (obj.name,)


_EXACT: dict[int, Kind] = {}


def _exact() -> dict[int, Kind]:
    if not _EXACT:
        _EXACT.update({id(cls): None for cls in pickle_things.PLAIN})
        for table in (pickle_things.KINDS, pickle_code.KINDS):
            _EXACT.update({id(cls): kind for cls, kind in table.items()})
        _EXACT[id(Part)] = _part
        _EXACT[id(type)] = pickle_code.class_
    return _EXACT


_BELOW: dict[int, Kind] = {}


def _below() -> dict[int, Kind]:
    if not _BELOW:
        for table in (pickle_things.BELOW, pickle_code.BELOW):
            _BELOW.update({id(cls): kind for cls, kind in table.items()})
    return _BELOW


_found: tuple[tuple[bool, ...], dict[int, Kind]] | None = None
_TABLE: tuple[tuple[str, str, Kind], ...] = (*pickle_arrays.TABLE, *pickle_frames.TABLE, *pickle_things.TABLE)
_MODULES = tuple(dict.fromkeys(row[0] for row in _TABLE))


def _libraries() -> dict[int, Kind]:
    """Return the reducers for classes of those libraries that are imported by now, and what is below them."""
    global _found
    imported = tuple(name in sys.modules for name in _MODULES)
    if _found is None or _found[0] != imported:
        found: dict[int, Kind] = {}
        for module, name, kind in _TABLE:
            cls = getattr(sys.modules.get(module), name, None)
            if isinstance(cls, type):
                found[id(cls)] = kind
        _found = imported, found
    return _found[1]
