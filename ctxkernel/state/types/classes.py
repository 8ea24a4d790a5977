"""Reducers and constructors of classes of the user's, and of type variables.

Rule 1: a class of the user's is its uid. Its content is stored once, by the pack that is asked for `class:<uid>`, and
comes back as it was: neither its metaclass nor `__init_subclass__` nor `__set_name__` is run a second time.
Rule 2: a living class takes the content in a stream, so that its instances stay its instances.
"""

from __future__ import annotations

import abc
import ctypes
import gc
import opcode
import sys
import types
import typing
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.reflection import (
    HEAP_TYPE,
    class_dict,
    class_flags,
    class_module,
    class_mro,
    class_name,
    class_of,
    class_qualname,
    class_setter,
    is_kind,
    loaded,
    method_of,
    register,
    registered,
)
from ctxkernel.core.state_names import CLASS
from ctxkernel.state.types.code import CodeParts, by_name
from ctxkernel.state.types.enums import EnumKey, enum_held, enum_key
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, Reduction


def class_(pack: PackState, obj: Any) -> Reduction:
    """A class: a name that can be imported, a uid, or, where this pack stores it, its content."""
    if id(obj) in pack.by_value:
        return _class_content(pack, obj)
    singleton = _SINGLETONS.get(id(obj))
    if singleton is not None:
        return type, (singleton[0],)
    if (named := by_name(pack, class_module(obj), class_qualname(obj), obj)) is not None:
        return named
    if _NAMELESS.get(class_name(obj)) is obj:
        return PARTS.nameless_type, (class_name(obj),)
    if not class_flags(obj) & HEAP_TYPE:
        raise TypeError("a type that no module has under its name")
    uid = pack.packer.uid(obj)
    pack.classes[uid] = obj
    return PARTS.own_class, (pack.label(f"{CLASS}{uid}"), class_qualname(obj))


_SINGLETONS = {id(type(one)): (one,) for one in (None, Ellipsis, NotImplemented)}
_DICT: dict[Any, Any] = {}
_DICTS: tuple[Any, ...] = _DICT, OrderedDict[Any, Any]()
_ITERATED: Any = (
    list[Any](),
    (),
    "",
    b"",
    bytearray(),
    _DICT.values(),
    _DICT.items(),
    set[Any](),
    range(0),
    range(1 << 70),
)
_SAMPLES: tuple[Any, ...] = (
    *(view for made in _DICTS for view in (made.keys(), made.values(), made.items())),
    *(
        *map(iter, (*_DICTS, *_ITERATED)),
        reversed(list[Any]()),
        iter(int, 0),
        memoryview(b""),
        weakref.ref(OrderedDict[Any, Any]),
    ),
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


def bases_first(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the values of a pack in the order of its stream: classes before their subclasses and before instances.

    A class with a pack of its own requests its bases while an instance of it is loaded: they must be made by then.
    """

    def place(one: tuple[str, Any]) -> int:
        return len(class_mro(one[1])) if one[0].startswith(CLASS) else sys.maxsize

    return sorted(values.items(), key=place)


def _class_content(pack: PackState, obj: type) -> Reduction:
    meta = class_of(obj)
    members = _members(obj)
    names = list(members)
    if names[-1:] == ["__doc__"] and members["__doc__"] is None:
        del members[names.pop()]  # `type` adds it where it did
    bases = type.__dict__["__bases__"].__get__(obj)
    args = (
        *(pack.by_value[id(obj)], meta, class_name(obj), class_qualname(obj), bases, class_module(obj)),
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
        and class_of(member).__name__ != "CField"
        and not (class_of(member) in layout and member.__objclass__ is obj)
    }


def _slots(obj: type) -> list[str] | None:
    """Return the names of the slots of a class; None where it does not say them."""
    members = class_dict(obj)
    if "__slots__" not in members:
        return None
    kind = types.MemberDescriptorType
    slots = [name for name, member in members.items() if class_of(member) is kind and member.__objclass__ is obj]
    return [*slots, *(name for name in ("__dict__", "__weakref__") if name in members)]


_SETTABLE = frozenset(("__doc__", "__abstractmethods__", "__annotations__", "__type_params__"))


def _early(meta: type, members: dict[str, Any]) -> dict[str, Any]:
    """Return the members that a class must have from its beginning: later, to set one would set the class's own."""
    found = {"__orig_bases__": members["__orig_bases__"]} if "__orig_bases__" in members else {}
    native = class_module(meta) == "_ctypes"
    for name, member in members.items():
        of_meta = next((class_dict(base)[name] for base in class_mro(meta) if name in class_dict(base)), None)
        data = of_meta is not None and any("__set__" in class_dict(base) for base in class_mro(class_of(of_meta)))
        if (data and name not in _SETTABLE) or (native and name.startswith("_") and not name.startswith("__")):
            found[name] = member
    return found


def type_variable(pack: PackState, obj: Any) -> Reduction:
    """A TypeVar, ParamSpec or TypeVarTuple."""
    module, name = obj.__module__, obj.__name__
    if module != pack.module and loaded(module).get(name) is obj:
        return name
    lazy = [one for one in gc.get_referents(obj) if class_of(one) is types.FunctionType]
    kind, has_default = class_of(obj).__name__, getattr(obj, "has_default", bool)()
    if len(lazy) == 1 and kind == "TypeVar" and obj.__infer_variance__ and not has_default and not obj.__constraints__:
        return PARTS.bound_parameter, (name, lazy[0])  # of `[T: bound]`: as in a type alias
    extra: dict[str, Any] = {}
    if kind in ("TypeVar", "ParamSpec"):
        extra = {"bound": obj.__bound__, "covariant": obj.__covariant__, "contravariant": obj.__contravariant__}
    if getattr(obj, "__infer_variance__", False):
        extra["infer_variance"] = True
    if has_default:
        extra["default"] = obj.__default__
    return PARTS.type_variable, (
        class_of(obj).__module__,
        kind,
        name,
        getattr(obj, "__constraints__", ()),
        extra,
        module,
    )


def new_type(pack: PackState, obj: Any) -> Reduction:
    """A typing.NewType."""
    name, module = obj.__name__, obj.__module__
    if module != pack.module and loaded(module).get(name) is obj:
        return name
    return PARTS.new_type, (name, obj.__supertype__, module, obj.__qualname__)


def type_alias(pack: PackState, obj: Any) -> Reduction:
    """A type alias. Of a `type` statement: the function that computes its value, whether or not it was computed yet.

    To compute it here would be too early: it may refer to the alias itself, and to names that are defined later.
    """
    name, module, variables = obj.__name__, obj.__module__, obj.__type_params__
    if module != pack.module and loaded(module).get(name) is obj:
        return name
    compute = next((one for one in gc.get_referents(obj) if class_of(one) is types.FunctionType), None)
    if compute is None:
        return PARTS.type_alias, (name, obj.__value__, variables, module)
    return PARTS.type_statement, (name, variables or None, compute)


KINDS: dict[Any, Kind] = {
    type: class_,
    typing.TypeVar: type_variable,
    typing.ParamSpec: type_variable,
    typing.TypeVarTuple: type_variable,
    typing.NewType: new_type,
}
if sys.version_info >= (3, 12):
    KINDS[typing.TypeAliasType] = type_alias


def _negated(parts: Any) -> Any:
    return -parts


def _same(one: Any, other: Any) -> bool:
    return one is other


def _intrinsic(model: Callable[..., Any], replaced: str, arguments: int, name: str) -> Callable[..., Any]:
    """Return a function that calls what only the compiler can call: `model` with another instruction in it.

    Raises ValueError or AttributeError where this version of Python has no such function.
    """
    code, number = model.__code__, getattr(opcode, f"_intrinsic_{arguments}_descs").index(name)
    change = bytes((opcode.opmap[replaced], 0)), bytes((opcode.opmap[f"CALL_INTRINSIC_{arguments}"], number))
    return types.FunctionType(code.replace(co_code=code.co_code.replace(*change)), {})


def _nothing(*_: Any, **__: Any) -> None:
    pass


_NO_HOOK = classmethod(_nothing)
_HARMLESS = frozenset(("typing", "typing_extensions", "enum", "abc", "builtins"))


class ClassParts(CodeParts):
    """The constructors of classes and type variables."""

    class_dict = vars
    nameless_type = _NAMELESS.__getitem__

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
        """Return a type alias, as a call of `typing.TypeAliasType` makes it."""
        return typing.TypeAliasType(name, value, type_params=variables)  # type: ignore[attr-defined]

    def type_statement(self, *parts: Any) -> Any:
        """Return a type alias, as `type X = …` makes it."""
        return _intrinsic(_negated, "UNARY_NEGATIVE", 1, "INTRINSIC_TYPEALIAS")(parts)

    def bound_parameter(self, name: str, compute: Any) -> Any:
        """Return a TypeVar, as `[T: bound]` makes it."""
        return _intrinsic(_same, "IS_OP", 2, "INTRINSIC_TYPEVAR_WITH_BOUND")(name, compute)

    def enum_member(self, base: Any, cls: Any, content: Any, key: EnumKey | None = None) -> Any:
        """Return a member of an enumeration: the living one, or a new one without its attributes."""
        if (
            self.again_of(cls) is not None
            and key is not None
            and (living := enum_held(class_dict(cls), key)) is not None
        ):
            return living
        return base.__new__(cls) if base is object else base.__new__(cls, content)

    def fill_member(self, obj: Any, state: tuple[Any, ...]) -> None:
        """Give a member of an enumeration its attributes; a living one gets them with its class."""
        again = self.again_of(class_of(obj))
        if again is None or not again.fill_member(obj, state[0]):
            obj.__dict__.update(state[0])

    def enum_named(self, cls: Any, key: EnumKey) -> Any:
        """Return the member of an enumeration. Raises LookupError where it has none of this name."""
        if (found := enum_held(self.members_of(cls), key)) is None:
            raise LookupError(f"{class_qualname(cls)} has no member {key} any more")
        return found

    def make_class(
        self, uid: str, meta: Any, name: str, path: str, bases: Any, module: str, names: Any, slots: Any, early: Any
    ) -> Any:
        """Return a class without its members, and register its uid: a member may refer to it."""
        uid = self.renames.get(f"{CLASS}{uid}", f"{CLASS}{uid}").removeprefix(CLASS)
        if uid not in self.known and (meanwhile := self.packer.classes.object(uid)) is not None:
            return meanwhile  # made by an object that one of its bases holds
        if (again := self.again.get(uid)) is not None and again.fits(bases, slots):
            self.made[uid] = again.cls
            return again.begin()
        members: dict[str, Any] = {**dict.fromkeys(names), "__module__": module, "__qualname__": path}
        if slots is None:  # else they keep their place among the members
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


_OF_FUNCTION = (
    *("__code__", "__defaults__", "__kwdefaults__", "__annotations__", "__doc__"),
    *("__name__", "__qualname__", "__module__"),
)


@dataclass(slots=True)
class Again:
    """A living class that takes the content that a stream has of it. Nothing is changed before `redefine`.

    Its functions stay the same objects where their cells do: bound methods that are kept, and others, may hold them.
    """

    cls: Any
    members: dict[str, Any] | None = None
    """None before `take`, and where they do not fit."""
    _functions: dict[int, tuple[Any, Any]] = field(default_factory=dict[int, tuple[Any, Any]])
    """By id: living functions, and functions with their new content."""
    _cells: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    """By id: living cells, each with its new content."""
    _enum_members: list[tuple[Any, dict[str, Any]]] = field(default_factory=list[tuple[Any, dict[str, Any]]])
    """Living members of an enumeration, and their new attributes."""
    _registered: list[Any] = field(default_factory=list[Any])

    def begin(self) -> Any:
        """Return the class, whose content follows in the stream."""
        self._functions, self._cells, self._enum_members = {}, {}, []
        return self.cls

    def fits(self, bases: tuple[Any, ...], slots: list[str] | None) -> bool:
        """Return whether instances of a class with these bases and slots are laid out as those of this one."""
        return self.cls.__bases__ == bases and _slots(self.cls) == slots

    def take(self, members: dict[str, Any], classes: list[Any]) -> None:
        """Take the content in a stream."""
        old = _members(self.cls)
        named: dict[str, Any] = members.get("_member_map_", {})
        held: dict[str, Any] = old.get("_member_map_", {})
        if named.keys() != held.keys() or not all(one is held[name] for name, one in named.items()):
            return
        self.members, self._registered = members, classes

    def cell(self, name: str, at: int) -> Any:
        """Return a cell of a living function, once; None where there is none."""
        living = method_of(self.cls, name)
        cells = (living.__closure__ or ())[at : at + 1] if living is not None else ()
        if not cells or id(cells[0]) in self._cells:
            return None
        self._cells[id(cells[0])] = [cells[0]]
        return cells[0]

    def fill_cell(self, cell: Any, content: Any) -> bool:
        """Take the content of a living cell; return False for any other."""
        found = self._cells.get(id(cell))
        if found is None:
            return False
        found[1:] = [content]
        return True

    def function(self, name: str, made: Any) -> Any:
        """Return the living function that is to become `made`, once; None where there is none."""
        living = method_of(self.cls, name)
        if living is None or id(living) in self._functions or living.__globals__ is not made.__globals__:
            return None
        cells, others = living.__closure__ or (), made.__closure__ or ()
        if len(cells) != len(others) or any(one is not other for one, other in zip(cells, others, strict=True)):
            return None
        self._functions[id(living)] = living, made
        return living

    def content_of(self, func: Any) -> Any:
        """Return the function that holds the new content of a living one; None for any other."""
        return self._functions.get(id(func), (None, None))[1]

    def fill_member(self, member: Any, attributes: dict[str, Any]) -> bool:
        """Take the attributes of a member of an enumeration; return False for one that is not living."""
        living = enum_key(member) is not None
        if living:
            self._enum_members.append((member, attributes))
        return living

    def redefine(self) -> bool:
        """Give the class the content that was taken; return False where none was."""
        if self.members is None:
            return False
        cls, old = self.cls, _members(self.cls)
        for one, attributes in self._enum_members:
            one.__dict__.clear()
            one.__dict__.update(attributes)
        for live, made in self._functions.values():
            for name in _OF_FUNCTION:
                setattr(live, name, getattr(made, name))
            live.__dict__ = made.__dict__
        for cell, *content in self._cells.values():
            if content:
                cell.cell_contents = content[0]
            else:
                del cell.cell_contents
        members = {"__doc__": None, **self.members}
        for name in old.keys() - members.keys() - {"__abstractmethods__"}:
            type.__delattr__(cls, name)
        if old.get("__module__") == members.get("__module__"):  # to set it removes `__firstlineno__`
            members.pop("__module__", None)
        for name, value in members.items():
            if class_dict(cls).get(name) is not value:
                type.__setattr__(cls, name, value)
        register(cls, self._registered)
        return True


def _without_hooks(meta: Any, name: str, bases: tuple[Any, ...], members: dict[str, Any]) -> Any:
    """Make a class as `type` does, without the hooks of metaclasses and bases."""
    above = {id(each): each for base in bases for each in class_mro(base) if class_flags(each) & HEAP_TYPE}
    hooks = [
        (each, class_dict(each)["__init_subclass__"])
        for each in above.values()
        if "__init_subclass__" in class_dict(each) and class_module(each) not in _HARMLESS
    ]
    try:
        for each, _ in hooks:
            type.__setattr__(each, "__init_subclass__", _NO_HOOK)
        try:
            made = type.__new__(meta, name, bases, members)
        except TypeError:  # a metaclass that is made in C
            made = meta.__new__(meta, name, bases, members)
    finally:
        for each, hook in hooks:
            type.__setattr__(each, "__init_subclass__", hook)
    found = (class_dict(base).get("__init__") for base in class_mro(meta))
    init: Any = next(one for one in found if class_of(one) is types.WrapperDescriptorType)
    if init is not type.__init__:
        init(made, name, bases, members)
    return made
