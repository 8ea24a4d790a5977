"""Inspection of objects without running their code.

Rule 1: no attribute of a user's object is read through its own class: a property, `__getattr__`, a metaclass or
`__class__` may raise, hang or have side effects. Types are read through `type`'s own descriptors, instances through
the descriptors that the interpreter made for their `__dict__` and `__slots__`.
Rule 2: a class is never hashed or compared with `==` (a metaclass may define both): lookups use its `id`.
Rule 3: `isinstance` is not used on a user's object, since it reads `__class__`.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import importlib
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

class_of: Callable[[object], type] = type
dict_items: Callable[[Any], Iterable[tuple[Any, Any]]] = dict[Any, Any].items
class_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
class_dict: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
class_flags: Callable[[type], int] = type.__dict__["__flags__"].__get__
_size: Callable[[type], int] = type.__dict__["__basicsize__"].__get__
_base: Callable[[type], type] = type.__dict__["__base__"].__get__
_module_dict: Callable[[types.ModuleType], Any] = vars(types.ModuleType)["__dict__"].__get__

_PLAIN: Any = object.__dict__["__getattribute__"]
"""The default way to read attributes."""
_LIBRARIES = [
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *site.getsitepackages(),
    site.getusersitepackages(),
    str(Path(__file__).resolve().parents[1]),
]
LIBRARY_FOLDERS = tuple({path + os.sep for folder in _LIBRARIES for path in (folder, os.path.realpath(folder))})
"""The folders of Python, of installed libraries and of ctxkernel."""
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
"""Parts of the paths of libraries, also of another environment that `PYTHONPATH` or a `.pth` file adds."""
HEAP_TYPE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: made at run time, as by every class statement."""


def _text_of(attribute: str) -> Callable[[type], str]:
    """Return a function that reads an attribute of a class; it returns an empty text where there is none."""
    get = type.__dict__[attribute].__get__

    def read(cls: type) -> str:
        try:
            found = get(cls)
        except AttributeError:  # `__module__` can be deleted
            return ""
        return found if type(found) is str else ""

    return read


class_name = _text_of("__name__")
class_qualname = _text_of("__qualname__")
class_module = _text_of("__module__")


def module_dict(module: object) -> dict[str, Any]:
    """Return the live `__dict__` of a module; an empty dict for any other object."""
    if not is_kind(type(module), types.ModuleType):
        return {}
    found: Any = _module_dict(module)  # type: ignore[arg-type]
    return found if class_of(found) is dict else {}


def loaded(name: str) -> dict[str, Any]:
    """Return the `__dict__` of an imported module; an empty dict where it is not imported."""
    module = sys.modules.get(name)
    return {} if module is None else module_dict(module)


def is_kind(cls: type, base: type) -> bool:
    """Return whether `base` is in the MRO of `cls`. Runs no metaclass."""
    return cls is base or id(base) in map(id, class_mro(cls))


class Classes:
    """Some classes, asked for by `in`. They are compared by identity: a metaclass may define `__eq__` or `__hash__`."""

    __slots__ = ("_held", "_ids")

    def __init__(self, *classes: type) -> None:
        self._held = classes
        self._ids = frozenset(map(id, classes))

    def __contains__(self, cls: object) -> bool:
        return id(cls) in self._ids

    def hold(self, classes: Iterable[type]) -> bool:
        """Return whether all of these are among them."""
        return self._ids.issuperset(map(id, classes))


SEQUENCES, SETS = Classes(list, tuple), Classes(set, frozenset)
CONTAINERS, NUMBERS = Classes(list, tuple, dict), Classes(int, float)
SHORT = Classes(str, int, float, bool, bytes, type(None))


def is_any(cls: type, *named: tuple[str, str]) -> bool:
    """Return whether `cls` is one of these classes, given as (module, name), or a subclass. Imports nothing."""
    above = {*map(id, class_mro(cls))}
    return any(id(loaded(module).get(name)) in above for module, name in named)


def is_of_library(file: str) -> bool:
    """Return whether a source file is that of Python, of an installed library or of ctxkernel."""
    return file.startswith(LIBRARY_FOLDERS) or any(part in file for part in _INSTALLED)


@functools.cache
def _deferred(name: str) -> dict[str, Any]:
    """Import a module that its library loads on first use, as the pickler would; return its `__dict__`."""
    top, _, below = name.partition(".")
    path = loaded(top).get("__file__")
    if below and type(path) is str and is_of_library(path):
        with contextlib.suppress(Exception):  # the pickler fails at the same import, and says why
            return module_dict(importlib.import_module(name))
    return {}


DEFINED: dict[str, dict[str, Any]] = {}
"""By module and path: the definitions of the user's own modules, functions and classes, even if replaced; and those of
libraries that cells replaced, None where that is not known."""
FOUND: dict[tuple[str, str], Any] = {}
"""By module and path: definitions of libraries that were found by name, also after `mock.patch` gave it to another
object; None where a library was loaded a second time."""


def remember(module: str, path: str, obj: object) -> None:
    """Take an object that a module has under its name as the definition of that library; one of a user's is ignored."""
    if FOUND.get((module, path)) is not obj:
        origin = getattr(loaded(module).get("__spec__"), "origin", None)
        if type(origin) is str and (origin in ("built-in", "frozen") or is_of_library(origin)):
            FOUND[module, path] = None if (module, path) in FOUND else obj


def definition_of(module: str, path: str) -> Any:
    """Return a known definition that may have lost its name; None where the name tells it."""
    known = DEFINED.get(module, {}).get(path)
    return FOUND.get((module, path)) if known is None and sys.modules.get(module) is not None else known


def importable(cls: type) -> bool:
    """Return whether the module of `cls` has it under its name: then it is a library's, not the user's."""
    if class_qualname(cls) in (own := DEFINED.get(class_module(cls), {})):
        return own[class_qualname(cls)] is cls
    if FOUND.get((class_module(cls), class_qualname(cls))) is cls:
        return True
    found: Any = loaded(class_module(cls)) or _deferred(class_module(cls))
    parts = class_qualname(cls).split(".")
    if "<locals>" in parts:  # made by a function: importable if the module of that function is
        return bool(found)
    if not found:
        return False
    value: Any = found.get(parts[0])
    for part in parts[1:]:
        if not is_kind(class_of(value), type):
            return False
        value = class_dict(value).get(part)
    return value is cls


class _Traits(NamedTuple):
    """The part of one class in reading its instances."""

    honest: bool
    get_dict: Callable[[object], Any] | None
    slots: tuple[tuple[str, Callable[[object], Any]], ...]
    cached: tuple[str, ...]
    python_made: bool
    """Whether a class statement made it: then its instances hold nothing but its attributes."""


_KNOWN: dict[int, tuple[type, int, _Traits]] = {}
"""Id → a class of a library, its number of members when it was inspected, and its traits."""


def _traits(cls: type) -> _Traits:
    """Return the traits of a class. Those of an installed class are cached until a member is added or removed."""
    members = class_dict(cls)
    known = _KNOWN.get(id(cls))
    if known is not None and known[1] == len(members):
        return known[2]
    slots: list[tuple[str, Callable[[object], Any]]] = []
    cached: list[str] = []
    get_dict: Callable[[object], Any] | None = None
    heap = bool(class_flags(cls) & HEAP_TYPE)
    for name, member in members.items() if heap else ():
        kind = class_of(member)
        if kind is types.MemberDescriptorType:
            slots.append((name, member.__get__))
        elif kind is types.GetSetDescriptorType and name == "__dict__":
            get_dict = member.__get__
        elif kind is functools.cached_property:
            cached.append(name)
    if not heap and type(members.get("__dict__")) in (types.GetSetDescriptorType, types.MemberDescriptorType):
        get_dict = members["__dict__"].__get__
    traits = _Traits(
        # Since Python 3.12, classes from C are made at run time, too, and have the wrapper of a plain slot.
        honest=not heap
        or ("__class__" not in members and type(members.get("__getattribute__", _PLAIN)) is type(_PLAIN)),
        get_dict=get_dict,
        slots=tuple(slots),
        cached=tuple(cached),
        python_made=heap and _python_made(cls, members),
    )
    if _installed(cls):
        _KNOWN[id(cls)] = cls, len(members), traits
    return traits


def _python_made(cls: type, members: Mapping[str, Any]) -> bool:
    own = sum(type(one) is types.MemberDescriptorType for one in members.values())
    if "__slots__" not in members and (own or not any("__dict__" in class_dict(base) for base in class_mro(cls))):
        return False
    return _size(cls) - _size(_base(cls)) <= 8 * (own + 2)  # for a dict and a list of weak references


def python_made(cls: type) -> bool:
    """Return whether a class statement made `cls`: then its instances hold nothing but its attributes."""
    return _traits(cls).python_made


def _installed(cls: type) -> bool:
    """Return whether `cls` is permanent: it is in a module that no user writes, so it need not be freed."""
    module = class_module(cls)
    if module == "builtins":
        return not class_flags(cls) & HEAP_TYPE
    path = loaded(module.partition(".")[0]).get("__file__")
    return type(path) is str and "site-packages" in path and "<locals>" not in class_qualname(cls) and importable(cls)


class AttributePlan:
    """The way to read instances of one class, made once per class and batch."""

    __slots__ = ("cls", "get_dict", "honest", "own", "skip", "slots")

    def __init__(self, cls: type, own: bool) -> None:
        self.cls = cls
        """Held so that the id of the class stays valid."""
        self.own = own
        """Whether the class is the user's: then its methods may use the user's names."""
        self.get_dict: Callable[[object], Any] | None = None
        self.slots: list[tuple[str, Callable[[object], Any]]] = []
        self.honest = True
        """Whether `isinstance` runs no code of the user on an instance."""
        cached: list[str] = []
        for base in class_mro(cls):
            traits = _traits(base)
            self.honest = self.honest and traits.honest
            self.slots += traits.slots
            self.get_dict = self.get_dict or traits.get_dict
            cached += traits.cached
        self.skip = frozenset(cached)
        """Cached properties: their values follow from other attributes, so a new one is no change."""

    def slots_of(self, obj: object) -> list[tuple[str, Any]]:
        """Return the slots of `obj` that hold something."""
        found: list[tuple[str, Any]] = []
        for name, get in self.slots:
            try:
                found.append((name, get(obj)))
            except AttributeError:
                continue
        return found

    def attributes(self, obj: object) -> list[tuple[str, Any]]:
        """Return the attributes that `obj` itself holds, slots first."""
        found = self.slots_of(obj)
        members = self.dict_of(obj)
        if members is not None:
            # The type first, since a lookup would run the `__hash__` of other keys.
            found.extend(item for item in dict_items(members) if type(item[0]) is not str or item[0] not in self.skip)
        return found

    def dict_of(self, obj: object) -> dict[Any, Any] | None:
        """Return the instance dictionary of `obj`, or None."""
        if self.get_dict is None:
            return None
        try:
            members = self.get_dict(obj)
        except AttributeError:
            return None
        return members if is_kind(class_of(members), dict) else None


CACHED: Any = type(functools.lru_cache(bool))
"""The class of functions under `functools.lru_cache`."""


def function_of(member: Any) -> Any:
    """Return the function of a static method or class method; any other object unchanged."""
    return member.__func__ if type(member) in (staticmethod, classmethod) else member


def method_of(cls: type, name: str) -> Any:
    """Return the function that a class has under a name which is that of the function, too; else None.

    Of one under `functools.lru_cache`, the function below.
    """
    found = function_of(class_dict(cls).get(name))
    found = found.__wrapped__ if type(found) is CACHED else found
    named = class_of(found) is types.FunctionType and found.__qualname__ == f"{class_qualname(cls)}.{name}"
    return found if named else None


def methods_of(cls: Any) -> dict[int, tuple[type, str]]:
    """Return by id the functions of a class for which `method_of` holds, each with the class and its name."""
    names = list(class_dict(cls)) if is_kind(class_of(cls), type) else ()
    return {id(func): (cls, name) for name in names if (func := method_of(cls, name)) is not None}


def class_setter(cls: type, name: str) -> Any:
    """Return `__setattr__` or `__delattr__` of the C code of a metaclass, never a user's."""
    found = (class_dict(base).get(name) for base in class_mro(type(cls)))
    return next(one for one in found if type(one) is types.WrapperDescriptorType)


def registered(cls: type) -> list[type]:
    """Return the living classes that were registered at an abstract class."""
    if not is_kind(type(cls), abc.ABCMeta):
        return []
    return [one for ref in abc._get_dump(cls)[0] if (one := ref()) is not None]  # type: ignore[attr-defined]


def register(cls: type, classes: Iterable[type]) -> None:
    """Replace the classes that are registered at an abstract class."""
    if is_kind(type(cls), abc.ABCMeta):
        abc._reset_registry(cls)  # type: ignore[attr-defined]
        abc._reset_caches(cls)  # type: ignore[attr-defined]
        for one in classes:
            abc._abc_register(cls, one)  # type: ignore[attr-defined]


_OF_CYTHON = "_common_types_metatype"
"""The metaclass of types that Cython modules share; no module has them under their names."""


def is_own_class(cls: type, namespace_module: str) -> bool:
    """Return whether `cls` is the user's: made in the namespace, or not found by an import."""
    if not class_flags(cls) & HEAP_TYPE or class_name(type(cls)) == _OF_CYTHON:
        return False
    return class_module(cls) == namespace_module or not importable(cls)


def type_name(cls: type) -> str:
    """Return `module.Class`, without the module for built-in classes and for those of `__main__`."""
    module, name = class_module(cls), class_qualname(cls)
    return name if module in ("builtins", "", "__main__") else f"{module}.{name}"


def is_a(value: object, *kinds: type) -> bool:
    """Return whether the type of `value` is one of `kinds` or a subclass."""
    return any(is_kind(type(value), kind) for kind in kinds)


def defines(value: object, name: str) -> bool:
    """Return whether the class of `value`, or one of its bases, defines `name`."""
    return any(name in class_dict(base) for base in class_mro(type(value)))


def attributes(value: Any) -> dict[str, Any]:
    """Return the own attributes of an instance or class, from its slots and its dict."""
    found: dict[str, Any] = {}
    cls = class_of(value)
    for base in reversed(class_mro(cls)):
        for name, member in list(class_dict(base).items()):
            if type(member) is types.MemberDescriptorType and not name.startswith("__"):
                with contextlib.suppress(AttributeError):
                    found[name] = member.__get__(value, cls)
            elif name == "__dict__" and type(member) is types.GetSetDescriptorType:
                own: Any = member.__get__(value, cls)
                pairs = own.items() if class_of(own) is types.MappingProxyType else dict_items(own)
                found.update((key, item) for key, item in list(pairs) if type(key) is str)
    return found


def public_name(cls: type, namespace_module: str) -> str:
    """Return the shortest name of `cls` that a user knows: `int`, `Point`, `numpy.ndarray`, `pandas.DataFrame`."""
    module, name = class_module(cls), class_qualname(cls)
    if module == namespace_module:
        return name
    top = module.partition(".")[0]
    if top != module and loaded(top).get(name) is cls:
        return f"{top}.{name}"
    return type_name(cls)
