"""Names under which streams refer to objects that they do not hold: uids of classes, tokens and labels.

Rule 1: no object is hashed or compared.
Rule 2: no object is kept alive, except one without weak references in `Named.hold`, until the next `Named.release`, and
the objects of `Identities`.
Rule 3: a token of `Identities` is made of the address of its object, so that a forked process gives the same one.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import math
import sys
import types
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ctxkernel.core.dataclasses import KW_ONLY, dataclass
from ctxkernel.core.reflection import class_of, class_qualname, is_kind, is_own_class, loaded
from ctxkernel.core.state_names import SHARED
from ctxkernel.state.base.own_modules import OwnModule

_TEXT = "==SUPPRESS=="
MOST_IN_A_PACK = 1000
"""Objects that get a token in one pack; others are stored by value."""
_MOST = 10_000
"""Objects that are kept alive."""
_MOST_WALKED = 100_000
"""Objects among which one is searched that the garbage collector does not know."""
_CONSTANTS = (("math", "nan"), ("numpy", "nan"), ("argparse", "SUPPRESS"))


class Identities:
    """Tokens of objects that the pickler stores by value although programs compare their identity, at most `_MOST`.

    `nan in values` and a key that is NaN are found by identity; argparse compares `argparse.SUPPRESS` with `is`.
    Only a stream in which `needs_identities` finds such a value is packed with tokens.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process = f"nan-{uuid.uuid4().hex[:8]}"
        self._known: dict[str, object] = {}
        self._tokens: dict[int, str] = {}

    def token(self, obj: object) -> str:
        """Return the token of an object: for a constant of a module its name."""
        if (known := self._tokens.get(id(obj))) is None:
            names = (f"{one}.{name}" for one, name in _CONSTANTS if getattr(sys.modules.get(one), name, None) is obj)
            known = next(names, f"{self._process}-{id(obj):x}")
            self._add(known, obj)
        return known

    def object(self, token: str) -> object:
        """Return the object with a token; a new NaN where there is none. Raises ImportError for a constant."""
        if token not in self._known:
            module, _, name = token.rpartition(".")
            self._add(token, getattr(importlib.import_module(module), name) if module else float("nan"))
        return self._known[token]

    def _add(self, token: str, obj: object) -> None:
        if len(self._known) >= _MOST:
            self._begin()  # an address that is used again must not give an old token
        self._known[token] = obj
        self._tokens[id(obj)] = token


def value_of_label(label: str) -> object:
    """Return the value that a label stands for, whatever its identity."""
    return _TEXT if label.endswith(".SUPPRESS") else math.nan


_ALONE = 2
"""The result of `sys.getrefcount` for an object to which only one attribute refers."""


class ById:
    """A value for each of some objects."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[], Any], Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __setitem__(self, obj: Any, value: Any) -> None:
        """Set the value of an object. Raises TypeError for an object that has no weak references."""
        key = id(obj)
        self._known[key] = weakref.ref(obj, lambda ref: self._forget(key, ref)), value

    def _forget(self, key: int, ref: object) -> None:
        if (known := self._known.get(key)) is not None and known[0] is ref:
            del self._known[key]

    def get(self, obj: Any) -> Any:
        """Return the value of an object; None where it has none."""
        known = self._known.get(id(obj))
        return known[1] if known is not None and known[0]() is obj else None


class _Held:
    """A reference to an object that has no weak ones. The only strong reference of its table."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __call__(self) -> Any:
        return self.obj


class Named(ById):
    """A name for each of some objects, and the object of a name: the newest one of several."""

    def __init__(self) -> None:
        super().__init__()
        self._refs: dict[str, list[Callable[[], Any]]] = {}
        """By name, the newest last."""
        self.held: dict[str, _Held] = {}
        """By name, objects without weak references: those of `hold`."""

    def add(self, name: str, obj: Any) -> None:
        """Take `obj` as the newest object of a name. If it has a name, it keeps that for `get`. Raises TypeError."""
        ref = weakref.ref(obj, lambda ref: self._drop(name, ref))
        if self.get(obj) is None:
            self[obj] = name
        self._refs[name] = [*(one for one in self._refs.get(name, ()) if one() is not obj), ref]

    def hold(self, name: str, obj: Any) -> None:
        """Take an object without weak references as the only object of a name, and keep it alive until `release`."""
        held = self.held[name] = _Held(obj)
        self._known[id(obj)] = held, name
        self._refs[name] = [held]

    def release(self) -> None:
        """Drop the objects that only this table still keeps alive."""
        for name, held in [*self.held.items()]:
            if sys.getrefcount(held.obj) <= _ALONE:
                del self.held[name]
                self._drop(name, held)
                self._forget(id(held.obj), held)

    def _drop(self, name: str, ref: object) -> None:
        if left := [one for one in self._refs.pop(name, ()) if one is not ref]:
            self._refs[name] = left

    def replace(self, name: str, obj: Any) -> None:
        """Take `obj` as the only object of a name. Raises TypeError."""
        self.take_from(name)
        self.add(name, obj)

    def take_from(self, name: str) -> None:
        """Have no object of this name; the newest one that has it has no name any more."""
        before = self.object(name)
        self.forget(name)
        self._known.pop(id(before), None)

    def forget(self, name: str) -> None:
        """Have no object of this name; those that have it keep it for `get`."""
        self._refs.pop(name, None)
        self.held.pop(name, None)

    @property
    def names(self) -> frozenset[str]:
        """The names of which an object is alive."""
        return frozenset(self._refs)

    def object(self, name: str) -> Any:
        """Return the living object of a name, or None."""
        found = self._refs.get(name)
        return found[-1]() if found else None


@dataclass(eq=False, repr=False)
class ObjectNames:
    """A namespace, whose module has the name `module`, and the names of its objects."""

    namespace: dict[str, Any]
    _: KW_ONLY
    module: str = "__main__"
    is_handle: Callable[[object], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.code_files: set[str] = set()
        """File names of the code objects that were loaded."""
        self.own_modules: dict[str, OwnModule] = {}
        """Modules of the user's own, by name: files in his folder."""
        self.references = ById()
        """By number, pandas' records of the blocks that share memory, by the object that owns the memory."""
        self.classes = Named()
        """The user's classes, by uid: a class keeps its own for life; several may have been made of one."""
        self.tokens = Named()
        """Objects without a stored form, by token."""
        self.identities = Identities()
        """Objects that are stored by value and compared by identity."""
        self.labels = Named()
        """Objects with packs of their own, by label: `shared:<token>`."""
        self.process = uuid.uuid4().hex[:8]
        """Begins its tokens: a process that was forked needs another one."""
        self._count = itertools.count(1)
        self.device_copies: dict[tuple[str, int, int], tuple[list[Any], memoryview]] = {}
        """Copies of the memory of devices (`state.types.tensors`)."""
        self.is_forked = False
        """Whether this is a forked process, which cannot read the memory of devices."""

    def uid(self, cls: type) -> str:
        """Return the uid of a class of the user's."""
        if (known := self.classes.get(cls)) is None:
            self.classes.add(known := uuid.uuid4().hex[:16], cls)
        return known

    def token(self, obj: object) -> str:
        """Return the token of an object without a stored form: the same one as long as the object lives."""
        if (known := self.tokens.get(obj)) is None:
            known = f"{self.process}-{next(self._count):06x}"  # of one length, so that `relabelled` can replace it
            self._name(known, obj)
        return known

    def _name(self, token: str, obj: object) -> None:
        try:
            self.tokens.add(token, obj)
        except TypeError:
            self.tokens.hold(token, obj)

    def adopt(self, found: Iterable[tuple[str, int, str]], values: Iterable[object]) -> dict[str, str]:
        """Take over labels that a forked process gave: label (`live:<token>`, `shared:<token>`), id, type.

        Return those of objects that have another label here by now, and that one. An id is no proof, so the object is
        searched among those of the garbage collector, and in the values that it was found in: the collector does not
        know each object.
        """
        others: dict[str, str] = {}
        wanted: dict[int, dict[str, str]] = {}
        for label, key, kind in found:
            if self.part_of(label) is None:
                wanted.setdefault(key, {})[label] = kind

        def adopt(obj: object) -> None:
            for label, kind in wanted.pop(id(obj)).items():
                if kind != class_qualname(class_of(obj)):
                    continue
                is_live = label.startswith("live:")
                known = self.tokens.get(obj) if is_live else self.labels.get(obj)
                if known:
                    others[label] = f"live:{known}" if is_live else known
                elif is_live:
                    self._name(label.removeprefix("live:"), obj)
                else:
                    self.labels.add(label, obj)

        for obj in [one for one in gc.get_objects() if id(one) in wanted] if wanted else ():
            adopt(obj)
        todo, seen = deque(values), set[int]()
        while wanted and todo and len(seen) < _MOST_WALKED:
            obj = todo.popleft()  # most lie near the values
            if id(obj) in seen:
                continue
            seen.add(id(obj))
            if id(obj) in wanted:
                adopt(obj)
            todo += self._held_by(obj)
        return others

    def _held_by(self, obj: Any) -> Iterable[object]:
        """Return what an object refers to, but not what leads to all of the process: modules and their functions."""
        kind = class_of(obj)
        if kind is types.FunctionType:
            return obj.__closure__, obj.__defaults__, obj.__kwdefaults__, obj.__dict__
        if kind is loaded("numpy").get("ndarray"):
            return (obj.base,)  # the collector does not know what an array refers to
        if is_kind(kind, types.ModuleType) or (is_kind(kind, type) and not is_own_class(obj, self.module)):
            return ()
        return gc.get_referents(obj)

    def share(self, obj: object) -> None:
        """Give an object a pack of its own from now on. Raises TypeError without weak references."""
        if self.labels.get(obj) is None:
            self.labels.add(f"{SHARED}{self.token(obj)}", obj)

    def part_of(self, label: str) -> Any:
        """Return the living object with a label: a class, one with a pack of its own, or one without a stored form."""
        kind, _, name = label.partition(":")
        if kind == "shared":
            return self.labels.object(label)
        return (self.classes if kind == "class" else self.tokens).object(name)
