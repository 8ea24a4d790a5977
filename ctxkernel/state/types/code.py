"""How functions, classes and what code is made of are taken apart and put together.

Rule 1: what a module that can be imported has under its name is that name.
Rule 2: a function of the namespace comes back with the namespace as its globals; one of a module's code with the
module's; one that was made by `exec` in a dict of its own with that dict. Of the copy of the namespace that attrs makes
for the functions of a class, only what their code names is stored.
Rule 3: a class of the user's is its uid. Its content is stored once, by the pack that is asked for `class:<uid>`, and
comes back as it was: neither its metaclass nor `__init_subclass__` nor `__set_name__` is run a second time.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import functools
import gc
import importlib
import marshal
import operator
import re
import sys
import types
import typing
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ctxkernel.core.reflection import (
    DEFINED,
    HEAP_TYPE,
    class_dict,
    class_flags,
    class_module,
    class_mro,
    class_name,
    class_qualname,
    class_setter,
    function_of,
    is_kind,
    loaded,
    module_dict,
    register,
    registered,
)
from ctxkernel.state.base.code_objects import code_facts
from ctxkernel.state.types.pack_state import Kind, Taking
from ctxkernel.state.types.parts import PARTS, Constructors, Reduction


def function(taking: Taking, obj: types.FunctionType) -> Reduction:
    """A function: a name, a member of a class, or its code with all that it holds."""
    scope: Any = obj.__globals__
    used: tuple[dict[str, Any], ...] = ()
    module, path = obj.__module__, obj.__qualname__
    if (named := _by_name(taking, module, path, obj)) is not None:
        return named
    if scope is taking.namespace:
        taking.deps |= code_facts(obj.__code__).names
        owner = _owner(taking, path, obj)
        if owner is not None:
            taking.deps.add(f"class:{taking.packer.uid(owner)}")
            return PARTS.member, (owner, path.rpartition(".")[2])
    else:
        name = dict.get(scope, "__name__")
        if type(name) is str and loaded(name) is scope:
            scope = name
            taking.uses_module(name)
        elif (
            # Only of those that attrs writes nobody else holds the globals: what others share stays shared.
            obj.__code__.co_filename.startswith("<attrs generated ")
            and (copied := _copied(taking, scope)) is not None
            and (names := _names(obj)) is not None
        ):
            scope, used = copied, ({one: scope[one] for one in sorted(names) if one in scope},)
    cells = obj.__closure__ or ()
    taking.cells.update(map(id, cells))
    content = tuple([(cell, held[0]) for cell in cells if (held := _held(cell))])
    more = (obj.__dict__ or None, getattr(obj, "__type_params__", ()) or None)
    about = obj.__name__, path, module, obj.__doc__, obj.__defaults__, obj.__kwdefaults__, obj.__annotations__ or None
    state = (*about, content, *more, *used)
    return PARTS.function, (obj.__code__, scope, cells), state, None, None, PARTS.fill_function


def _copied(taking: Taking, scope: dict[str, Any]) -> dict[str, Any] | None:
    """Return what stands for a copy of the namespace that no name of the user's has; None for any other dict."""
    own = taking.namespace
    if "__name__" not in scope or scope["__name__"] != dict.get(own, "__name__"):
        return None
    if id(scope) not in taking.copied:
        named = any(value is scope for value in list(own.values()))
        some = {one: scope[one] for one in ("__name__", "__builtins__") if one in scope}
        taking.copied[id(scope)] = scope, None if named else some
    return taking.copied[id(scope)][1]


def _names(func: types.FunctionType) -> set[str] | None:
    """Return the names that a function may look up in its globals; None where it may look up any."""
    names = set(code_facts(func.__code__).names)
    for text in func.__annotations__.values():  # `typing.get_type_hints` looks for what they name
        if type(text) is str:
            with contextlib.suppress(SyntaxError, ValueError):
                names.update(compile(text, "<annotation>", "eval", dont_inherit=True).co_names)
    return None if names & _ANY else names


_ANY = frozenset(("eval", "exec", "globals", "locals", "vars", "__import__"))


def _by_name(taking: Taking, module: Any, path: Any, obj: object) -> Reduction | None:
    """Return the name of what a module defines; NotImplemented where the pickler writes it, None for anything else."""
    if type(module) is not str or type(path) is not str or module == taking.module:
        return None
    own = path in DEFINED.get(module, ())
    if not (DEFINED[module][path] is obj if own else _by_import(module, path, obj)):
        return None
    taking.uses_module(module)
    return (PARTS.definition, (module, path)) if own else NotImplemented


def _by_import(module: str, path: str, obj: object) -> bool:
    """Say whether the pickler finds `obj` by its name: it asks as `getattr` does, so nothing may be in between."""
    parts = path.split(".")
    if "<locals>" in parts:
        return False
    found: Any = loaded(module).get(parts[0])
    for part in parts[1:]:
        if not is_kind(type(found), type):
            return False
        found = next((class_dict(base)[part] for base in class_mro(found) if part in class_dict(base)), None)
        found = found.__func__ if type(found) is staticmethod else found
    return found is obj


def _owner(taking: Taking, path: str, obj: object) -> type | None:
    """Return the class of the user's that has a function as its member, where it is stored by itself."""
    holder, _, name = path.rpartition(".")
    if not holder or "<" in path:
        return None
    parts = holder.split(".")
    found: Any = dict.get(taking.namespace, parts[0])
    for part in parts[1:]:
        found = class_dict(found).get(part) if is_kind(type(found), type) else None
    if not is_kind(type(found), type) or id(found) in taking.by_value:
        return None
    return found if function_of(class_dict(found).get(name)) is obj else None


def _held(cell: types.CellType) -> tuple[Any] | None:
    try:
        return (cell.cell_contents,)
    except ValueError:  # empty
        return None


def cell(taking: Taking, obj: types.CellType) -> Reduction:
    """A cell of a closure. With a function it is made empty: its content may be that function."""
    held = _held(obj)
    if id(obj) in taking.cells or held is None:
        return PARTS.cell, ()
    return PARTS.cell, (), held, None, None, PARTS.fill_cell


def code(taking: Taking, obj: types.CodeType) -> Reduction:
    """A code object."""
    try:
        # The second version of the format: later ones depend on who else refers to a constant.
        return PARTS.code, (sys.version_info[:2], marshal.dumps(obj, 2))
    except ValueError:  # a constant that no compiler makes
        names = """argcount posonlyargcount kwonlyargcount nlocals stacksize flags code consts names varnames filename
            name qualname firstlineno linetable exceptiontable freevars cellvars"""
        return PARTS.code_from, (sys.version_info[:2], tuple([getattr(obj, f"co_{name}") for name in names.split()]))


def method(taking: Taking, obj: types.MethodType) -> Reduction:
    """A bound method: found again in the class where it is the class's own, else the function and what it is of."""
    func, owner = obj.__func__, obj.__self__
    name = getattr(func, "__name__", None)
    cls: Any = owner if is_kind(type(owner), type) else type(owner)
    if type(name) is str and id(cls) not in taking.by_value:
        base = next((base for base in class_mro(cls) if name in class_dict(base)), None)
        if base is not None and function_of(class_dict(base)[name]) is func:
            if class_module(base) == taking.module:
                taking.deps.add(f"class:{taking.packer.uid(base)}")
            return PARTS.bound, (owner, name)
    return types.MethodType, (func, owner)


def remembering(taking: Taking, obj: Any) -> Reduction:
    """A function under `functools.lru_cache`: the cache starts empty."""
    module, path = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if (named := _by_name(taking, module, path, obj)) is not None:
        return named
    members = {name: one for name, one in obj.__dict__.items() if name not in ("__wrapped__", "cache_parameters")}
    wrapped = obj.__wrapped__
    if obj.cache_info().currsize:
        taking.note(f"the cache of {getattr(wrapped, '__name__', 'a function')}: empty")
        held = (one for some in held_by_cache(obj) for one in some)
        taking.noted += [one for one in held if type(one) not in _UNCHANGED]  # the cache may give it out again
    settings = obj.cache_parameters()
    return PARTS.remembering, (wrapped, settings["maxsize"], settings["typed"]), members, None, None, PARTS.update_dict


def held_by_cache(obj: Any) -> tuple[list[Any], list[Any]]:
    """Return what the cache of a function holds: links, results and the dict of entries; and what is in that."""
    own = (obj.__wrapped__, obj.__dict__)
    held = [one for one in gc.get_referents(obj) if not any(one is known for known in own)]
    return held, [one for entries in held if type(entries) is dict for one in gc.get_referents(entries)]


_UNCHANGED = frozenset((type, types.FunctionType, tuple, str, bytes, int, float, complex, bool, type(None)))


def property_(taking: Taking, obj: Any) -> Reduction:
    """A property."""
    cls, get = type(obj), property.__dict__
    doc = get["__doc__"].__get__(obj)
    texts = [one for one in gc.get_referents(obj) if type(one) is str and one is not doc]
    parts = (*(get[name].__get__(obj) for name in ("fget", "fset", "fdel")), doc, texts[0] if texts else None)
    members = None if cls is property else taking.plan(cls).dict_of(obj) or None
    return PARTS.property, (cls, *parts), members, None, None, PARTS.update_dict


def mapping_proxy(taking: Taking, obj: Any) -> Reduction:
    """A read-only view of a mapping: of the same mapping again."""
    (below,) = gc.get_referents(obj)
    owner = getattr(below.get("__dict__"), "__objclass__", None) if type(below) is dict else None
    if owner is not None and class_dict(owner) == obj:
        return PARTS.class_dict, (owner,)
    return types.MappingProxyType, (below,)


def class_(taking: Taking, obj: Any) -> Reduction:
    """A class: a name that can be imported, a uid, or, where this pack stores it, its content."""
    if id(obj) in taking.by_value:
        return _class_content(taking, obj)
    singleton = _SINGLETONS.get(id(obj))
    if singleton is not None:
        return type, (singleton[0],)
    if (named := _by_name(taking, class_module(obj), class_qualname(obj), obj)) is not None:
        return named
    if _NAMELESS.get(class_name(obj)) is obj:
        return PARTS.nameless_type, (class_name(obj),)
    if not class_flags(obj) & HEAP_TYPE:
        raise TypeError("a type that no module has under its name")
    uid = taking.packer.uid(obj)
    taking.classes[uid] = obj
    return PARTS.own_class, (taking.label(f"class:{uid}"), class_qualname(obj))


_SINGLETONS = {id(type(one)): (one,) for one in (None, Ellipsis, NotImplemented)}
_DICTS: tuple[Any, ...] = {}, OrderedDict()
_ITERATED: tuple[Any, ...] = [], (), "", b"", bytearray(), {}, {}.values(), {}.items(), set(), range(0), range(1 << 70)
_SAMPLES: tuple[Any, ...] = (
    *(view for made in _DICTS for view in (made.keys(), made.values(), made.items())),
    *(*map(iter, _ITERATED), reversed([]), iter(int, 0), memoryview(b""), weakref.ref(OrderedDict)),
)
_NAMELESS: dict[str, Any] = {
    class_name(one): one
    for one in (
        *map(type, _SAMPLES),
        *(one for one in vars(types).values() if type(one) is type),
        *map(type, (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes.c_int, ctypes.POINTER(ctypes.c_int))),
        type(ctypes.CFUNCTYPE(None)),
    )
}
"""Types of the interpreter that no module has under their name, by that name."""

_OF_THE_TYPE = frozenset(("__dict__", "__weakref__", "_abc_impl", "__slotnames__"))


def _class_content(taking: Taking, obj: type) -> Reduction:
    meta = type(obj)
    members = _members(obj)
    names = list(members)
    if names[-1:] == ["__doc__"] and members["__doc__"] is None:
        del members[names.pop()]  # `type` adds it where it did
    bases = type.__dict__["__bases__"].__get__(obj)
    args = (
        *(taking.by_value[id(obj)], meta, class_name(obj), class_qualname(obj), bases, class_module(obj)),
        *(names, _slots(obj), _early(meta, members)),
    )
    return PARTS.make_class, args, (members, registered(obj)), None, None, PARTS.fill_class


def _members(obj: type) -> dict[str, Any]:
    """Return the members of a class, but for those that are made with it."""
    layout = (types.MemberDescriptorType, types.GetSetDescriptorType)
    return {
        name: member
        for name, member in list(class_dict(obj).items())
        if name not in _OF_THE_TYPE
        and type(member).__name__ != "CField"
        and not (type(member) in layout and member.__objclass__ is obj)
    }


def _slots(obj: type) -> list[str] | None:
    """Return the names of the slots of a class; None where it does not say them."""
    members = class_dict(obj)
    if "__slots__" not in members:
        return None
    kind = types.MemberDescriptorType
    slots = [name for name, member in members.items() if type(member) is kind and member.__objclass__ is obj]
    return [*slots, *(name for name in ("__dict__", "__weakref__") if name in members)]


_SETTABLE = frozenset(("__doc__", "__abstractmethods__", "__annotations__", "__type_params__"))


def _early(meta: type, members: dict[str, Any]) -> dict[str, Any]:
    """Return the members that a class must have from its beginning: later, to set one would set the class's own."""
    found = {"__orig_bases__": members["__orig_bases__"]} if "__orig_bases__" in members else {}
    native = class_module(meta) == "_ctypes"
    for name, member in members.items():
        of_meta = next((class_dict(base)[name] for base in class_mro(meta) if name in class_dict(base)), None)
        data = of_meta is not None and any("__set__" in class_dict(base) for base in class_mro(type(of_meta)))
        if (data and name not in _SETTABLE) or (native and name.startswith("_") and not name.startswith("__")):
            found[name] = member
    return found


def type_variable(taking: Taking, obj: Any) -> Reduction:
    """A TypeVar, ParamSpec or TypeVarTuple."""
    module, name = obj.__module__, obj.__name__
    if module != taking.module and loaded(module).get(name) is obj:
        return name
    kind = type(obj).__name__
    extra: dict[str, Any] = {}
    if kind in ("TypeVar", "ParamSpec"):
        extra = {"bound": obj.__bound__, "covariant": obj.__covariant__, "contravariant": obj.__contravariant__}
    if getattr(obj, "__infer_variance__", False):
        extra["infer_variance"] = True
    if getattr(obj, "has_default", bool)():
        extra["default"] = obj.__default__
    return PARTS.type_variable, (type(obj).__module__, kind, name, getattr(obj, "__constraints__", ()), extra, module)


def new_type(taking: Taking, obj: Any) -> Reduction:
    """A typing.NewType."""
    name, module = obj.__name__, obj.__module__
    if module != taking.module and loaded(module).get(name) is obj:
        return name
    return PARTS.new_type, (name, obj.__supertype__, module, obj.__qualname__)


def module_(taking: Taking, obj: Any) -> Reduction:
    """A module that can be imported: its name."""
    for name in (module_dict(obj).get("__name__"), getattr(module_dict(obj).get("__spec__"), "name", None)):
        if type(name) is str and sys.modules.get(name) is obj:
            taking.uses_module(name)
            return PARTS.module, (name,)
    return taking.refuse(obj, "a module that is made by hand cannot be imported again")


KINDS: dict[Any, Kind] = {
    types.FunctionType: function,
    types.CellType: cell,
    types.CodeType: code,
    types.MethodType: method,
    # What it keeps is in the instances.
    functools.cached_property: lambda _, obj: (PARTS.cached_property, (obj.func, obj.attrname, obj.__doc__)),
    types.MappingProxyType: mapping_proxy,
    type({}.keys()): lambda _, obj: (PARTS.dict_view, (*gc.get_referents(obj), "keys")),
    type({}.values()): lambda _, obj: (PARTS.dict_view, (*gc.get_referents(obj), "values")),
    type({}.items()): lambda _, obj: (PARTS.dict_view, (*gc.get_referents(obj), "items")),
    functools._lru_cache_wrapper: remembering,  # type: ignore[attr-defined]
    typing.TypeVar: type_variable,
    typing.ParamSpec: type_variable,
    typing.TypeVarTuple: type_variable,
    typing.NewType: new_type,
}
if sys.version_info >= (3, 12):
    KINDS[typing.TypeAliasType] = lambda _, obj: (
        PARTS.type_alias,
        (obj.__name__, obj.__value__, obj.__type_params__, obj.__module__),
    )
BELOW: dict[Any, Kind] = {
    types.ModuleType: module_,
    property: property_,
    **dict.fromkeys((staticmethod, classmethod), lambda _, obj: (PARTS.wrapper, (type(obj), obj.__func__))),
}

# Bases that keep `__init_subclass__` of the other bases from running; the second is laid out without a dict.
_DEAF = {"__init_subclass__": lambda *_, **__: None}
_QUIET = type("_Quiet", (), _DEAF), type("_QuietSlots", (), {**_DEAF, "__slots__": ()})
_HARMLESS = frozenset(("typing", "typing_extensions", "enum", "abc", "builtins", __name__))


class CodeParts(Constructors):
    """The constructors of functions and classes."""

    cell = types.CellType
    class_dict = vars
    nameless_type = _NAMELESS.__getitem__
    wrapper = operator.call

    def code(self, version: tuple[int, int], data: bytes) -> Any:
        """Return a code object. Raises ValueError for one of another Python."""
        _same_version(version)
        return marshal.loads(data)  # noqa: S302 - as trusted as the pickle that it stands in

    def code_from(self, version: tuple[int, int], args: tuple[Any, ...]) -> Any:
        """Return a code object from its parts."""
        _same_version(version)
        return types.CodeType(*args)

    def fill_cell(self, cell: Any, held: tuple[Any]) -> None:
        """Put its content into a cell."""
        cell.cell_contents = held[0]

    def function(self, code: Any, scope: Any, cells: tuple[Any, ...]) -> Any:
        """Return a function without its attributes; `scope` is its globals or the name of a module."""
        if type(scope) is str:
            scope = vars(self.module(scope))
        return types.FunctionType(code, scope, None, None, cells or None)

    def fill_function(self, func: Any, state: tuple[Any, ...]) -> None:
        """Give a function its attributes, and its cells their content."""
        name, path, module, doc, defaults, keyword, annotations, content, members, variables, *used = state
        func.__name__, func.__qualname__, func.__module__, func.__doc__ = name, path, module, doc
        func.__defaults__, func.__kwdefaults__ = defaults, keyword
        if annotations:
            func.__annotations__ = annotations
        if members:
            func.__dict__.update(members)
        if variables:
            func.__type_params__ = variables
        for cell, held in content:
            cell.cell_contents = held
        for names in used:
            func.__globals__.update(names)

    def member(self, cls: Any, name: str) -> Any:
        """Return a function that is a member of a class."""
        return function_of(self._members_of(cls)[name])

    def _members_of(self, cls: Any) -> Mapping[str, Any]:
        """Return the members that a class has after the return."""
        again = next((one for one in self.again.values() if one.cls is cls), None)
        return class_dict(cls) if again is None or again.members is None else again.members

    def bound(self, owner: Any, name: str) -> Any:
        """Return a bound method, as the class of `owner` has it."""
        cls: Any = owner if is_kind(type(owner), type) else type(owner)
        for base in class_mro(cls):
            if name in (members := self._members_of(base)):
                return types.MethodType(function_of(members[name]), owner)
        raise AttributeError(f"{class_qualname(cls)} has no {name} any more")

    def remembering(self, func: Any, size: int | None, typed: bool) -> Any:
        """Return a function under a new, empty `functools.lru_cache`."""
        return functools.lru_cache(maxsize=size, typed=typed)(func)

    def update_dict(self, obj: Any, members: dict[str, Any]) -> None:
        """Give an object the attributes that it had."""
        obj.__dict__.update(members)

    def property(self, cls: Any, get: Any, set_: Any, delete: Any, doc: Any, name: str | None) -> Any:
        """Return a property, with the name that its class gave it."""
        made = property.__new__(cls)
        property.__init__(made, get, set_, delete, doc)
        if name is not None:
            property.__set_name__(made, type(made), name)  # type: ignore[attr-defined]
        return made

    def cached_property(self, func: Any, name: str | None, doc: str | None) -> Any:
        """Return a functools.cached_property."""
        made = functools.cached_property(func)
        made.attrname, made.__doc__ = name, doc
        return made

    def dict_view(self, below: dict[Any, Any], which: str) -> Any:
        """Return `keys`, `values` or `items` of a dict."""
        return getattr(below, which)()

    def type_variable(
        self, home: str, kind: str, name: str, constraints: tuple[Any, ...], extra: dict[str, Any], module: str
    ) -> Any:
        """Return a TypeVar, ParamSpec or TypeVarTuple."""
        made = getattr(self.module(home), kind)(name, *constraints, **extra)
        made.__module__ = module
        return made

    def new_type(self, name: str, base: Any, module: str, path: str) -> Any:
        """Return a typing.NewType."""
        made: Any = typing.NewType(name, base)  # type: ignore[misc]
        made.__module__, made.__qualname__ = module, path
        return made

    def type_alias(self, name: str, value: Any, variables: tuple[Any, ...], module: str) -> Any:
        """Return what `type X = …` makes."""
        return typing.TypeAliasType(name, value, type_params=variables)  # type: ignore[attr-defined]

    def module(self, name: str) -> Any:
        """Return a module, imported where it is not yet."""
        return sys.modules.get(name) or importlib.import_module(name)

    def definition(self, module: str, path: str) -> Any:
        """Return what a module of the user's defines."""
        if path in (own := DEFINED.get(module, {})):
            return own[path]
        return operator.attrgetter(path)(self.module(module))

    def make_class(
        self, uid: str, meta: Any, name: str, path: str, bases: Any, module: str, names: Any, slots: Any, early: Any
    ) -> Any:
        """Return a class without its members, and know it by its uid from here on: a member may refer to it."""
        if uid not in self.known and (meanwhile := self.packer.classes.object(uid)) is not None:
            return meanwhile  # by what one of its bases holds
        if (again := self.again.get(uid)) is not None and again.fits(bases, slots):
            self.made[uid] = again.cls
            return again.cls
        members: dict[str, Any] = {**dict.fromkeys(names), "__module__": module, "__qualname__": path}
        members.pop("__slots__", None)
        members |= early if slots is None else {"__slots__": tuple(slots), **early}
        made = _without_hooks(meta, name, bases, members)
        if is_kind(meta, abc.ABCMeta):
            abc._abc_init(made)  # type: ignore[attr-defined]
        self.made[uid] = made
        if not self.trial:
            self.packer.classes.add(uid, made)
        return made

    def fill_class(self, cls: Any, state: tuple[dict[str, Any], list[Any]]) -> None:
        """Give a class its members."""
        uid = next((uid for uid, made in self.made.items() if made is cls), None)
        if uid is None:
            return  # it was made meanwhile, and is whole
        members, classes = state
        if (again := self.again.get(uid)) is not None and again.cls is cls:
            again.take(members, classes)
            return
        set_member = class_setter(cls, "__setattr__")
        for name, value in members.items():
            if class_dict(cls).get(name) is not value:
                set_member(cls, name, value)
        register(cls, classes)


_OF_FUNCTION = ("__code__", "__defaults__", "__kwdefaults__", "__annotations__", "__doc__", "__name__", "__qualname__")


@dataclass(slots=True)
class Again:
    """A living class that is to become what a stream has of it. Nothing is changed before `redefine`.

    Its functions stay the same objects where the class is stored `alone`: else what is stored with it may hold others.
    """

    cls: Any
    alone: bool
    members: dict[str, Any] | None = None
    """None before `take`, and where they do not fit."""
    _functions: list[tuple[Any, Any]] = field(default_factory=list[tuple[Any, Any]])
    """Living functions, and what they become."""
    _registered: list[Any] = field(default_factory=list[Any])

    def fits(self, bases: tuple[Any, ...], slots: list[str] | None) -> bool:
        """Whether instances of a class with these bases and slots are laid out as those of this one."""
        return self.cls.__bases__ == bases and _slots(self.cls) == slots

    def take(self, members: dict[str, Any], classes: list[Any]) -> None:
        """Take what a stream has."""
        old = _members(self.cls)
        if self._is_enum and old["_member_map_"].keys() != members["_member_map_"].keys():
            return
        self.members, self._registered = dict(members), classes
        for name, value in members.items():
            live, made = function_of(old.get(name)), function_of(value)
            if self.alone and type(old.get(name)) is type(value) and _can_become(live, made):
                self._functions.append((live, made))
                self.members[name] = old[name]

    @property
    def _is_enum(self) -> bool:
        return (enum := sys.modules.get("enum")) is not None and is_kind(self.cls, enum.Enum)

    def redefine(self) -> bool:
        """Make the class what was taken; False where nothing fitted."""
        if self.members is None:
            return False
        cls, own, old = self.cls, {"__doc__", "__abstractmethods__"}, _members(self.cls)
        if self._is_enum:  # a class that holds its instances keeps them, with the others' attributes
            for name, one in old["_member_map_"].items():
                attributes = dict(vars(self.members["_member_map_"][name]))
                vars(one).clear()
                vars(one).update(attributes)
            own |= {*old["_member_map_"], *(one for one in {**old, **self.members} if re.fullmatch(r"_[a-z]\w*_", one))}
        for live, made in self._functions:
            for name in _OF_FUNCTION:
                setattr(live, name, getattr(made, name))
            live.__dict__ = made.__dict__
        for name in old.keys() - self.members.keys() - own:
            type.__delattr__(cls, name)
        for name, value in self.members.items():
            if name not in own and old.get(name) is not value:
                type.__setattr__(cls, name, value)
        register(cls, self._registered)
        return True


def _can_become(live: Any, made: Any) -> bool:
    """Say whether a function can become another making of it."""
    if type(made) is not types.FunctionType or type(live) is not types.FunctionType:
        return False
    return not made.__closure__ and not live.__closure__ and made.__globals__ is live.__globals__


def _same_version(version: tuple[int, int]) -> None:
    if tuple(version) != sys.version_info[:2]:
        raise ValueError(f"made by Python {version[0]}.{version[1]}, and this is another one")


def _without_hooks(meta: Any, name: str, bases: tuple[Any, ...], members: dict[str, Any]) -> Any:
    """Make a class as `type` does, without what a metaclass or a base does on top of it."""
    make = type.__new__
    hooked = any(
        "__init_subclass__" in class_dict(each) and class_module(each) not in _HARMLESS
        for base in bases
        for each in class_mro(base)
        if class_flags(each) & HEAP_TYPE
    )
    for quiet in _QUIET if hooked else ():
        try:
            made = make(meta, name, (quiet, *bases), dict(members))
            type.__dict__["__bases__"].__set__(made, bases)
            return made
        except TypeError:  # memory laid out in another way
            continue
    try:
        made = make(meta, name, bases, members)
    except TypeError:  # a metaclass that is made in C
        made = meta.__new__(meta, name, bases, members)
    found = (class_dict(base).get("__init__") for base in class_mro(meta))
    init: Any = next(one for one in found if type(one) is types.WrapperDescriptorType)
    if init is not type.__init__:
        init(made, name, bases, members)
    return made
