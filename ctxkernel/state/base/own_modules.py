"""The user's own modules, and their variables as part of a state.

Own modules are those whose file is neither Python's nor an installed library's.
A module is a variable of the tracker's, `module:<name>`, whose value is made here: the differences of the module from
the definitions in its file, and the data of its names, classes and functions. Libraries are no part of it.

Rule: a function or class that the file defines keeps its path, even where a cell replaced it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from xxhash import xxh3_64_hexdigest

from ctxkernel.core.reflection import (
    DEFINED,
    HEAP_TYPE,
    class_dict,
    class_flags,
    class_module,
    class_of,
    class_qualname,
    class_setter,
    function_of,
    is_kind,
    is_of_library,
    module_dict,
    register,
    registered,
)
from ctxkernel.state.base.namespace import NOTHING

PYPLOT = "matplotlib.pyplot"
"""Its open figures are treated as its variables: they share objects with the user's names."""
LOGGING = "logging"
"""So are stored handlers, and attributes that the user gave to loggers: they share objects with the user's names."""
ATTRIBUTES = "library attributes"
"""The objects that cells put into attributes of installed libraries are treated as the variables of one module …"""
SHELL = "IPython callback"
"""… and so are those that cells registered with the shell."""
_CACHED: Any = type(functools.lru_cache(lambda: None))
_FUNCTIONS = (types.FunctionType, _CACHED)
_BY_IDENTITY = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, property, staticmethod, classmethod)
_LAYOUT = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)
_NOT_OF_A_MODULE = frozenset(
    ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__", "__cached__", "__builtins__")
).union(("__path__", "__warningregistry__"))
_REGISTRY = "_abc_impl"
_NOT_OF_A_CLASS = frozenset(
    ("__dict__", "__weakref__", "__module__", "__slotnames__", "__annotations__", "__annotations_cache__")
).union(("__annotate_func__", _REGISTRY))
_OF_A_FUNCTION: dict[str, Any] = {"__dict__": {}, "__defaults__": None, "__kwdefaults__": None}
"""Attributes of a function that hold data, and their defaults."""
_REACHES = frozenset(
    ("run_cell", "run_code", "user_ns", "user_global_ns", "user_module", "f_globals", "f_locals", "__main__")
).union(("get_objects", "get_referrers"))
_REACHES_BY_SHELL = frozenset(("ev", "ex", "push", "drop_by_id", "run_line_magic", "run_cell_magic", "run_cell_async"))
"""Words of code that can reach any variable of the notebook; the second set only together with `get_ipython`."""
_ABOUT = ""
"""The place of the module, which a new process imports to load it, when it was loaded again, and which places were
deleted."""
_NOTHING_KNOWN: Any = None, "", ()
_MOST_BYTES = 4_000_000
"""Larger files of modules are not hashed."""


def is_own(module: types.ModuleType) -> bool:
    """Return whether a module comes from a file of the user, an editable install included, or was made by a cell."""
    file = getattr(module, "__file__", None)
    if file is None and class_of(module) is types.ModuleType and getattr(module, "__spec__", None) is None:
        main = sys.modules.get("__main__")  # extension modules make such modules too, but no variable refers to them
        return main is not module and any(one is module for one in list(vars(main).values()))
    if not isinstance(file, str) or is_of_library(file) or file.startswith("<"):
        return False
    return os.path.isabs(file) or os.path.isfile(file)  # `torch.ops` is an object whose file is "_ops.py"


class OwnModules:
    """The user's own modules that are loaded. Each module is judged once."""

    def __init__(self) -> None:
        self._judged: dict[str, tuple[types.ModuleType, bool]] = {}
        self._found: tuple[types.ModuleType, ...] = ()

    def __call__(self) -> tuple[types.ModuleType, ...]:
        """Return them in the order in which they were loaded."""
        if len(sys.modules) != len(self._judged):
            before, self._judged = self._judged, {}
            for name, module in list(sys.modules.items()):
                known = before.get(name)
                self._judged[name] = known if known is not None and known[0] is module else (module, is_own(module))
            main = sys.modules.get("__main__")
            self._found = tuple(module for module, own in self._judged.values() if own and module is not main)
        return self._found


loaded_own_modules = OwnModules()
"""Those of this process: who asks for them shares the judgements, of which there are some thousand."""


def _figures() -> Any:
    if (helpers := sys.modules.get("matplotlib._pylab_helpers")) is None:
        return NOTHING
    managers: dict[int, Any] = helpers.Gcf.figs
    return {str(number): manager.canvas.figure for number, manager in managers.items()}


IN_PLACE: dict[str, Callable[[], Any]] = {PYPLOT: _figures}
"""Libraries of which only some objects count, and what returns these; the ambient part of each puts them in place."""


class OwnModule:
    """An own module: the definitions in its file, and its variables."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._loaded = ""
        """A hash of its file when it was loaded; without one, another text for each time that it was loaded again."""
        self.reaches = False
        """Whether one of its functions can reach any variable of the notebook."""
        self._spec: object = NOTHING
        self._defined: dict[str, Any] = {}
        """By place: objects that are known by identity, and not stored while they are in their place."""
        self._definitions: dict[str, Any] = {}
        """By path: its functions and classes."""
        if (module := sys.modules.get(name)) is not None and name not in IN_PLACE:
            self._learn(module)

    def _learn(self, module: types.ModuleType) -> None:
        self._loaded = _hash_of_file(module) or ("" if self._spec is NOTHING else uuid.uuid4().hex)
        self._spec = getattr(module, "__spec__", None)
        self._defined, self._definitions = {}, {}
        self._learn_members("", module_dict(module).items())
        DEFINED[self.name] = self._definitions

    def _learn_members(self, prefix: str, members: Iterable[tuple[Any, Any]]) -> None:
        for name, value in list(members):
            if class_of(name) is not str or (prefix and name in _NOT_OF_A_CLASS):
                continue
            place, inner = prefix + name, function_of(value)
            is_class = is_kind(class_of(inner), type) and bool(class_flags(inner) & HEAP_TYPE)
            if is_class and (class_module(inner), class_qualname(inner)) == (self.name, place):
                self._definitions[place] = self._defined[place] = inner
                self._learn_members(f"{place}.", class_dict(inner).items())
            elif isinstance(inner, _FUNCTIONS) and (inner.__module__, inner.__qualname__) == (self.name, place):
                self._defined[place] = value
                self._learn_function(place, inner)
            elif prefix and _is_code(name, value):
                self._defined[place] = value

    def _learn_function(self, place: str, function: Any) -> None:
        self._definitions[place] = function
        if class_of(function) is types.FunctionType:
            self._defined[f"{place}.__code__"] = function.__code__
            words = set(_words(function.__code__))
            shell = "get_ipython" in words and not words.isdisjoint(_REACHES_BY_SHELL)
            self.reaches = self.reaches or shell or not words.isdisjoint(_REACHES)
        for name, held in _cells(f"{place}.", function):
            if isinstance(held, (*_BY_IDENTITY, type, types.ModuleType)):
                self._defined[name] = held
            # The function that a decorator wraps, and the functions that it made.
            local = isinstance(held, types.FunctionType) and (held.__module__ == self.name or "<" in held.__qualname__)
            if local and not any(held is known for known in self._definitions.values()):
                self._learn_function(name, held)

    def variables(self) -> Any:
        """Return a new dict of places and values; NOTHING where the module is not loaded."""
        if (objects := IN_PLACE.get(self.name)) is not None:
            return objects()
        if (module := sys.modules.get(self.name)) is None:
            return NOTHING
        if getattr(module, "__spec__", None) is not self._spec:
            self._learn(module)
        found = {
            name: value
            for name, value in list(module_dict(module).items())
            if class_of(name) is str and name not in _NOT_OF_A_MODULE
        }
        for path, obj in self._definitions.items():
            found.update(
                _members(f"{path}.", obj) if is_kind(class_of(obj), type) else self._attributes(f"{path}.", obj)
            )
        deleted = [place for place in self._defined if place not in found]
        found = {place: value for place, value in found.items() if self._defined.get(place, NOTHING) is not value}
        return found | {_ABOUT: (module, self._loaded, deleted)}

    def _attributes(self, prefix: str, function: Any) -> Iterator[tuple[str, Any]]:
        if class_of(function) is not types.FunctionType:
            return
        before, now = self._defined[f"{prefix}__code__"], function.__code__
        if before is not now and before.co_filename == now.co_filename:  # `%autoreload` read the file again
            self._defined[f"{prefix}__code__"], self._loaded = now, uuid.uuid4().hex
        yield f"{prefix}__code__", now
        yield from _cells(prefix, function)
        for name in _OF_A_FUNCTION:
            if value := getattr(function, name):
                yield prefix + name, value

    def put_back(self, values: Mapping[str, Any]) -> None:
        """Make its variables those of a state. A module that is not loaded is left alone."""
        now = self.variables()
        if now is NOTHING or self.name in IN_PLACE:
            return
        there, wanted = (
            {**self._defined, **one, **dict.fromkeys(one.get(_ABOUT, _NOTHING_KNOWN)[2], NOTHING)}
            for one in (now, values)
        )
        for place in (there.keys() | wanted.keys()) - {_ABOUT}:
            if there.get(place, NOTHING) is not (value := wanted.get(place, NOTHING)):
                self._put(place, value)

    def unload(self) -> bool:
        """Remove the module from the process: the next import runs its file. Return whether it has a Python file."""
        file = getattr(sys.modules.get(self.name), "__file__", None)
        if self.name in IN_PLACE or not isinstance(file, str) or not file.endswith(".py"):
            return False
        _UNLOADED[self.name] = sys.modules.pop(self.name)
        DEFINED.pop(self.name, None)
        return True

    def is_loaded_again(self, values: Mapping[str, Any] | None) -> bool:
        """Return whether it was loaded again, or from another file, since a state had these values."""
        # Earlier versions stored no hash.
        return values is not None and values.get(_ABOUT, _NOTHING_KNOWN)[1] not in ("", self._loaded)

    def _put(self, place: str, value: Any) -> None:
        """Set the object in a place; NOTHING removes it."""
        path, _, name = place.rpartition(".")
        if not path:
            names = module_dict(sys.modules[self.name])
            if value is NOTHING:
                names.pop(name, None)
            else:
                names[name] = value
        elif (owner := self._definitions.get(path)) is None:
            return  # the file does not define it any more
        elif not is_kind(class_of(owner), type):
            value = _OF_A_FUNCTION.get(name) if value is NOTHING else value
            if name.startswith("<"):
                cells = dict(zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True))
                if name[1:-1] in cells:  # else its code is another now
                    cells[name[1:-1]].cell_contents = value
            elif name == "__dict__":
                members = dict(value)
                owner.__dict__.clear()
                owner.__dict__.update(members)
            else:
                setattr(owner, name, value)
        elif name == _REGISTRY:
            register(owner, [] if value is NOTHING else value)
        elif value is not NOTHING:
            class_setter(owner, "__setattr__")(owner, name, value)
        elif name in class_dict(owner):
            class_setter(owner, "__delattr__")(owner, name)


_UNLOADED: dict[str, types.ModuleType] = {}
"""The modules that were unloaded last."""


def load(name: str) -> types.ModuleType:
    """Return a module, imported where it is not loaded. If that fails, return the one that was unloaded."""
    if (found := sys.modules.get(name)) is not None:
        return found
    try:
        return importlib.import_module(name)
    except Exception:  # its file was changed, and has an error now
        if name not in _UNLOADED:
            raise
        return sys.modules.setdefault(name, _UNLOADED[name])


def _hash_of_file(module: types.ModuleType) -> str:
    """Return a hash of the file of a module; empty where there is none, or a large one."""
    try:
        with io.FileIO(module.__file__ or "") as opened:  # `open` would note that the cell reads it
            return xxh3_64_hexdigest(opened.readall()) if os.path.getsize(opened.fileno()) <= _MOST_BYTES else ""
    except (OSError, AttributeError, TypeError, ValueError):
        return ""


def _is_code(name: str, value: Any) -> bool:
    """Return whether a member of a class is known by its identity, rather than by its content."""
    return name.startswith("__") or isinstance(value, _BY_IDENTITY) or class_of(value) in _LAYOUT


def _members(prefix: str, cls: type) -> Iterator[tuple[str, Any]]:
    for name, value in list(class_dict(cls).items()):
        if name not in _NOT_OF_A_CLASS:
            yield prefix + name, value
    if classes := registered(cls):
        yield prefix + _REGISTRY, classes


def _words(code: types.CodeType) -> Iterator[str]:
    """Yield the global names and attributes that code mentions, and `__main__` where a text is that."""
    yield from code.co_names
    for const in code.co_consts:
        if class_of(const) is types.CodeType:
            yield from _words(const)
        elif class_of(const) is str and const == "__main__":
            yield const


def _cells(prefix: str, function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables of enclosing functions that a function uses, but for unset ones."""
    if class_of(function) is types.FunctionType:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):
                yield f"{prefix}<{name}>", cell.cell_contents
