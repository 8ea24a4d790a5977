"""Reducers and constructors of instances whose classes are in no table.

Rule 1: methods of the class (`__reduce__`, `__getstate__`, `copyreg`, …) are used, as pickle uses them.
Rule 2: without such methods, an instance is its attributes and the content of a built-in base. The base's own methods
read and set these: no `__setattr__`, `__setitem__` or `__iter__` of the user's runs.
Rule 3: `object.__reduce_ex__` remembers the names of slots on the class: not on the user's.
"""

from __future__ import annotations

import builtins
import collections
import copyreg
import enum
import functools
import random
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any, cast

from ctxkernel.core.reflection import (
    HEAP_TYPE,
    AttributePlan,
    class_dict,
    class_flags,
    class_module,
    class_mro,
    class_of,
    class_qualname,
    importable,
    is_any,
    is_kind,
    loaded,
    python_made,
)
from ctxkernel.state.types.derived_attributes import content_attributes
from ctxkernel.state.types.enums import enum_key
from ctxkernel.state.types.module_objects import holder_of, in_module, of_module
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, Reduction, StreamConstructors

_NEWOBJ: Any = copyreg.__newobj__  # type: ignore[attr-defined]

_B: Any = builtins
_C: Any = collections
_AS_BASE: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: lambda obj: complex.__add__(obj, 0),
    str: str.__str__,
    bytes: lambda obj: bytes.__getitem__(obj, slice(None)),
    tuple: lambda obj: _B.tuple.__getitem__(obj, slice(None)),
    frozenset: lambda obj: frozenset(_B.frozenset.__iter__(obj)),
}
"""Immutable bases, and how an exact copy of the base's part is made."""
_FACTORY: Any = collections.defaultdict.__dict__["default_factory"]
_MOST: Any = collections.deque.__dict__["maxlen"]


def _put_ordered(obj: Any, content: dict[Any, Any]) -> None:
    for key, value in content.items():
        _C.OrderedDict.__setitem__(obj, key, value)


def _put_default(obj: Any, content: tuple[Any, dict[Any, Any]]) -> None:
    _FACTORY.__set__(obj, content[0])
    _B.dict.update(obj, content[1])


_GENERATOR: Any = random.Random.__base__

_CONTAINERS: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    list: (lambda obj: _B.list.__getitem__(obj, slice(None)), _B.list.extend),
    collections.OrderedDict: (lambda obj: _C.OrderedDict(_C.OrderedDict.items(obj)), _put_ordered),
    collections.defaultdict: (lambda obj: (_FACTORY.__get__(obj), _B.dict(_B.dict.items(obj))), _put_default),
    dict: (lambda obj: _B.dict(_B.dict.items(obj)), _B.dict.update),
    set: (lambda obj: _B.set(_B.set.__iter__(obj)), _B.set.update),
    collections.deque: (
        lambda obj: (_MOST.__get__(obj), _B.list(_C.deque.__iter__(obj))),
        lambda obj, content: _C.deque.__init__(obj, content[1], content[0]),
    ),
    bytearray: (lambda obj: bytearray.__getitem__(obj, slice(None)), bytearray.extend),
    _GENERATOR: (_GENERATOR.getstate, _GENERATOR.setstate),
}
"""Built-in bases whose content is written down, how it is read and put back. The more special ones come first."""

_OF_STATE = frozenset(("__getstate__", "__setstate__"))
_CUSTOM = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")

_ROW_ARGS = class_dict(_C.namedtuple("_Row", "field"))["__getnewargs__"].__code__
"""The method of every named tuple, which adds nothing to the tuple itself."""

_ALL_IN_ATTRIBUTES = (
    *(("plotly.basedatatypes", "BaseFigure"), ("plotly.basedatatypes", "BasePlotlyType")),
    *(("dask.array", "Array"), ("bs4.element", "PageElement"), ("toolz.functoolz", "curry")),
)
"""Classes of libraries in Python that are stored by their attributes: their own methods lose what objects share."""


def _customs(cls: type) -> set[str]:
    """Return the methods of the pickling protocol that the classes above built-in ones define."""
    losing = id(collections.Counter), id(random.Random)  # their own way loses attributes
    made = [base for base in class_mro(cls) if class_flags(base) & HEAP_TYPE and id(base) not in losing]
    found = [(name, class_dict(base).get(name)) for base in made for name in _CUSTOM]
    return {name for name, one in found if one is not None and getattr(one, "__code__", None) is not _ROW_ARGS}


def _registered(cls: type) -> bool:
    """Return whether `copyreg` has a reducer for `cls`, without asking a metaclass for a hash."""
    meta = class_of(cls)
    if meta is not type and class_defines(meta, "__hash__", "__eq__"):
        return any(each is cls for each in copyreg.dispatch_table)
    return cls in copyreg.dispatch_table


def reducer_of(pack: PackState, cls: type, plan: AttributePlan) -> Kind:
    """Return the reducer for instances of `cls`."""
    if is_kind(cls, enum.Enum) and (id(cls) in pack.by_value or plan.own):
        return _enum_member if id(cls) in pack.by_value else _enum_by_name
    customs = _customs(cls)
    solid = next(base for base in class_mro(cls) if not python_made(base))
    known = solid is object or any(is_kind(solid, base) for base in _CONTAINERS) or solid in _AS_BASE
    if known and (pack.plain or is_any(cls, *_ALL_IN_ATTRIBUTES)):
        customs = set[str]()
    elif customs and customs <= _OF_STATE and known and plan.own and id(cls) not in pack.own_way:
        # Its `__getstate__` may leave something out, and all that an instance holds are its attributes.
        by_attributes = _by_attributes(pack, cls, plan, solid)
        if by_attributes is not None:

            def reduce(pack: PackState, obj: Any) -> Reduction:
                pack.by_attributes.append(obj)
                return by_attributes(pack, obj)

            return reduce
    if plan.own:
        for name in sorted({*customs, *(one for one in ("__new__", "__del__") if class_defines(cls, one))}):
            pack.runs.setdefault(f"{class_qualname(cls)}.{name}")
    of_library = class_module(cls) != pack.module and class_module(cls) not in pack.packer.own_modules
    if customs and known and of_library and not (_registered(cls) or importable(cls)):
        return _of_nameless_class(cls, _by_attributes(pack, cls, plan, solid), _way_of(plan))
    if (_registered(cls) and not (pack.plain and known)) or customs:
        return _way_of(plan)
    if not plan.own and class_defines(cls, "__del__"):
        return lambda pack, obj: pack.refuse(obj, "it cleans up when it goes, and a copy of it would do so too")
    return _by_attributes(pack, cls, plan, solid) or _way_of(plan)


def _of_nameless_class(cls: type, by_attributes: Any, its_way: Any) -> Kind:
    """Return the reducer for a class that a library made, such as Pint for each registry: copies are of it, too."""

    def reduce(pack: PackState, obj: Any) -> Reduction:
        made: Any = obj.__reduce_ex__(5)
        forgotten = class_of(made) is tuple and not any(one is cls for one in (made[0], *made[1]))
        return (by_attributes if forgotten else its_way)(pack, obj)

    return reduce if by_attributes and its_way else its_way


def _way_of(plan: AttributePlan) -> Kind:
    """Return the reducer that uses the methods of the class."""
    own = _careful_own if plan.honest else guarded
    return own if plan.own else careful


def guarded(pack: PackState, obj: Any) -> Reduction:
    """Refuse an object whose class overrides the access to its attributes: reading them runs code of the user's."""
    return pack.refuse(obj, "its class answers itself for what it is and has")


def _by_attributes(pack: PackState, cls: type, plan: AttributePlan, solid: type) -> Kind:
    """Return the reducer that stores attributes and the content of a built-in base; None where a base holds more."""
    if solid is object:
        return _plain(pack, cls, plan)
    for base, (read, _) in _CONTAINERS.items():
        if is_kind(solid, base):
            return _container(plan, base, read)
    return _value(plan, solid) if solid in _AS_BASE else None


def careful(pack: PackState, obj: Any) -> Reduction:
    """Reduce `obj` as its class defines, or as its type does. Raises any exception of the class."""
    cls = class_of(obj)
    reducer = copyreg.dispatch_table.get(cls) if _registered(cls) else None
    reduction = checked_reduction(pack, obj, reducer(obj) if reducer is not None else obj.__reduce_ex__(5))
    if class_of(reduction) is tuple and not pack.claimed and not _holds_all(pack.plan(cls), obj, reduction):
        pack.unproven.append((obj, f"{class_qualname(cls)} says itself how it is stored"))
        plan = pack.plan(cls)
        of_user = plan.own or class_module(cls) in pack.packer.own_modules
        # A change of an attribute that it left out would not be found.
        left_out = plan.attributes(obj) if of_user else content_attributes(plan, obj)
        attributes = {str(name): _seen(one, 3) for name, one in left_out}
        if len(reduction) == 2:
            return (*reduction, attributes, None, None, PARTS.skip)
        if of_user:
            func, args, *rest = reduction
            return PARTS.made_by, (func, args, attributes), *rest
    return reduction


def _seen(value: Any, depth: int) -> Any:
    """Return plain data that differs when a value changes: all of the value, or its type and length."""
    if class_of(value) in _ATOMS:
        return value
    if class_of(value) in (list, tuple, dict, set) and depth and len(value) <= 1000:
        pairs = value.items() if class_of(value) is dict else ((one,) for one in value)
        return [class_of(value).__name__, *([_seen(one, depth - 1) for one in pair] for pair in pairs)]
    size = len(value) if class_of(value) in (list, tuple, dict, set) else 0
    return [class_of(value).__name__, size]


_ATOMS = frozenset((bool, int, float, complex, str, bytes, type(None)))


def instance_or(*known: tuple[str, str], otherwise: Callable[[PackState, Any], Reduction] = careful) -> Kind:
    """Return a reducer that writes objects which live in a module as their name, and others as `otherwise` does."""

    def reduce(pack: PackState, obj: Any) -> Reduction:
        for module, name in known:
            if loaded(module).get(name) is obj:
                return PARTS.found, (module, name)
        return otherwise(pack, obj)

    return reduce


_TRUSTED = frozenset(
    ("matplotlib", "polars", "pyarrow", "datetime", "zoneinfo", "decimal", "pathlib", "numpy", "torch", "uuid")
)
"""Libraries whose objects store all of their content, but for data of a front end."""


def _holds_all(plan: AttributePlan, obj: Any, reduction: tuple[Any, ...]) -> bool:
    """Return whether a reduction holds all attributes of an object, as the same objects."""
    if not python_made(plan.cls) or class_module(plan.cls).partition(".")[0] in _TRUSTED:
        return True  # to ask an object made in C for its attributes could give it some
    attributes = content_attributes(plan, obj)
    if not attributes:
        return True
    there: set[int] = set()
    named: set[tuple[object, int]] = set()
    for one in (one for part in reduction[1:3] for one in (part if class_of(part) is tuple else (part,))):
        there.add(id(one))
        if class_of(one) is dict:
            there.update(map(id, one.values()))
            named.update((name, id(value)) for name, value in one.items() if class_of(name) is str)
        elif class_of(one) in (list, tuple):
            there.update(map(id, one))
    # Numbers and texts that are equal are often one object: those that the user added count only under their name.
    by_name = _ATOMS if plan.own else frozenset[type]()
    return all(
        (name, id(one)) in named or (id(one) in there and class_of(one) not in by_name) for name, one in attributes
    )


def _careful_own(pack: PackState, obj: Any) -> Reduction:
    before = [base for base in class_mro(class_of(obj)) if "__slotnames__" not in class_dict(base)]
    try:
        return careful(pack, obj)
    finally:
        for base in before:
            if "__slotnames__" in class_dict(base) and not importable(base):
                type.__delattr__(base, "__slotnames__")


_ITERATORS: Any = (iter([]), iter(_B.dict().items()), iter(_C.OrderedDict().items()), iter(_C.deque()))
_KNOWN_ITERATORS = frozenset(map(id, map(class_of, _ITERATORS)))


def checked_reduction(pack: PackState, obj: Any, reduction: Any) -> Reduction:
    """Return a reduction that the pickler accepts. Raises TypeError for an invalid one."""
    if class_of(reduction) is str:
        return _by_name(pack, obj, reduction)
    if not is_kind(class_of(reduction), tuple) or not 2 <= len(reduction) <= 6:
        raise TypeError(f"its __reduce__ returned {class_of(reduction).__name__}, not a string or a tuple of 2 to 6")
    func, args, *rest = cast("tuple[Any, ...]", reduction)
    if not callable(func) or not isinstance(args, tuple):
        raise TypeError("its __reduce__ did not return a callable and a tuple of arguments")
    for at in (1, 2):
        if len(rest) > at and rest[at] is not None and id(class_of(rest[at])) not in _KNOWN_ITERATORS:
            rest[at] = iter(list(rest[at]))  # the user's iterator runs here, where a fault is his
    if is_kind(class_of(obj), functools.partial) and rest and class_of(rest[0]) is tuple and rest[0][-1:] == ({},):
        rest[0] = (*rest[0][:-1], None)  # its dict is made where one asks for it
    if func is _NEWOBJ and (
        not args or not isinstance(args[0], type) or args[0] is not getattr(obj, "__class__", None)
    ):
        func = PARTS.new
    return (func, args, *rest)


def _by_name(pack: PackState, obj: Any, name: str) -> Reduction:
    module: Any = getattr(obj, "__module__", None)
    if module is None:  # a universal function of NumPy: pickle would ask all modules for it, by `getattr`
        if (module := holder_of(obj, name, but=("__main__", "__mp_main__", pack.module))) is None:
            raise TypeError(f"it says that it is {name}, and no module has it under that name")
        return PARTS.found, (module, name)
    if module == pack.module:
        # A name of the user's, perhaps the very one that is stored here: by its attributes then.
        return PARTS.new, (class_of(obj),), _state(pack, obj), None, None, PARTS.fill
    if class_of(module) is str and in_module(module, name) is obj:
        return name
    raise TypeError(f"it says that it is {name}, and no module has it under that name")


def _state(pack: PackState, obj: Any, base: type | None = None, content: Any = None) -> tuple[Any, ...]:
    """Return the state for `StreamRestorer.fill`: the dict, the slots, and the content of a built-in base."""
    plan = pack.plan(class_of(obj))
    return plan.dict_of(obj) or None, dict(plan.slots_of(obj)) or None, base, content


def _references() -> int:
    """Return the reference count of a `__dict__` to which only its object and one local variable refer."""
    probe: Any = type("Probe", (), {})()
    probe.x = 1
    members = probe.__dict__
    return sys.getrefcount(members)


_ALONE = _references()


def _plain(pack: PackState, cls: type, plan: AttributePlan) -> Kind:
    """Return the reducer for an instance without a built-in base."""
    reduce: Any = _attributes_only(cls, plan)
    hashed = next(class_dict(base)["__hash__"] for base in class_mro(cls) if "__hash__" in class_dict(base))
    if not plan.own or class_of(hashed) is not types.FunctionType:
        return reduce

    def with_key(pack: PackState, obj: Any) -> Reduction:
        """Give the instance what its hash likely needs when it is made: it may be a key of a dict that it holds."""
        members, slots = plan.dict_of(obj) or {}, plan.slots_of(obj)
        key = [{name: one for name, one in part if _is_constant(one, 3)} for part in (members.items(), slots)]
        reduction = reduce(pack, obj)
        return (PARTS.keyed, (cls, *key), *reduction[2:]) if any(key) else reduction

    return with_key


def _is_constant(value: Any, depth: int) -> bool:
    if class_of(value) in (tuple, frozenset):
        return depth > 0 and all(_is_constant(one, depth - 1) for one in value)
    # attrs keeps the hash of a frozen instance in a number of a class of its own.
    return class_of(value) in (*_ATOMS, loaded("attr._make").get("_CacheHashWrapper"))


def _attributes_only(cls: type, plan: AttributePlan) -> Kind:
    get = plan.get_dict
    new: Any = PARTS.new if class_defines(cls, "__new__") or not plan.honest else _NEWOBJ
    args = (cls,)
    single = new is PARTS.new and not plan.own
    # The unpickler would ask the empty instance for `__setstate__`.
    asked = class_defines(cls, "__getattr__", "__getattribute__", "__setstate__")
    if not plan.slots and get is not None and not asked:

        def reduce(pack: PackState, obj: Any) -> Reduction:
            members = get(obj)
            if sys.getrefcount(members) > _ALONE or class_of(members) is not dict:
                return PARTS.new, args, members, None, None, PARTS.adopt  # `vars(obj)` has a name of its own
            if single and not members and (found := of_module(pack, obj)):
                return found
            return new, args, members or None

        return reduce
    if not plan.slots and get is None:
        return lambda pack, obj: of_module(pack, obj) or (new, args)
    return lambda pack, obj: (PARTS.new, args, _state(pack, obj), None, None, PARTS.fill)


def class_defines(cls: type, *names: str) -> bool:
    """Return whether a class statement above `cls`, or its own, has any of these members."""
    return any(name in class_dict(base) for base in class_mro(cls) if class_flags(base) & HEAP_TYPE for name in names)


def _container(plan: AttributePlan, base: type, read: Callable[[Any], Any]) -> Kind:
    def reduce(pack: PackState, obj: Any) -> Reduction:
        itself = plan.dict_of(obj) is obj  # `self.__dict__ = self`
        state = (obj, None, base, read(obj)) if itself else _state(pack, obj, base, read(obj))
        return PARTS.new, (plan.cls,), state, None, None, PARTS.fill

    return reduce


def _value(plan: AttributePlan, base: type) -> Kind:
    bare = not plan.slots and plan.get_dict is None
    as_base = _AS_BASE[base]

    def reduce(pack: PackState, obj: Any) -> Reduction:
        # An exact copy of the base's part: the same object must not come back here.
        args = (base, plan.cls, as_base(obj))
        if bare:
            return PARTS.value, args
        return PARTS.value, args, _state(pack, obj), None, None, PARTS.fill

    return reduce


def _enum_member(pack: PackState, obj: Any) -> Reduction:
    """A member of an enumeration that is itself in this pack: by its attributes."""
    cls = class_of(obj)
    solid = next((base for base in _AS_BASE if is_kind(cls, base)), object)
    content = None if solid is object else _AS_BASE[solid](obj)
    state = pack.plan(cls).dict_of(obj), None, None, None
    return PARTS.enum_member, (solid, cls, content, enum_key(obj)), state, None, None, PARTS.fill_member


def _enum_by_name(pack: PackState, obj: Any) -> Reduction:
    """A member of an enumeration of the user's that has a pack of its own: its value may be changed."""
    key = enum_key(obj)
    return careful(pack, obj) if key is None else (PARTS.enum_named, (class_of(obj), key))


class InstanceParts(StreamConstructors):
    """The constructors of instances."""

    def new(self, cls: Any, *args: Any) -> Any:
        """Make an empty instance. Only with arguments by a `__new__` of Python, which may return another instance."""
        solid: Any = cls if args else next(base for base in class_mro(cls) if not python_made(base))
        try:
            return solid.__new__(cls, *args)
        except TypeError:
            native: Any = next(base for base in class_mro(cls) if not class_flags(base) & HEAP_TYPE)
            return native.__new__(cls)

    def keyed(self, cls: Any, members: dict[str, Any], slots: dict[str, Any]) -> Any:
        """Make an instance with its constant attributes. All attributes are set later."""
        made = self.new(cls)
        self.fill(made, (members or None, slots, None, None))
        return made

    def made_by(self, func: Any, args: tuple[Any, ...], _: Any) -> Any:
        """Make an instance as its class says; the rest was stored for comparisons only."""
        return func(*args)

    def value(self, base: Any, cls: Any, content: Any) -> Any:
        """Make an instance of a subclass of a built-in immutable."""
        return base.__new__(cls, content)

    def adopt(self, obj: Any, members: Any) -> None:
        """Make `members` the `__dict__` of `obj`, as an object and not as a copy."""
        held = (class_dict(base).get("__dict__") for base in class_mro(class_of(obj)))
        found = next((one for one in held if class_of(one) is types.GetSetDescriptorType), None)
        if found is not None:
            found.__set__(obj, members)
        else:
            obj.__dict__ = members

    def fill(self, obj: Any, state: tuple[Any, ...]) -> None:
        """Set the attributes of an instance, and the content of a built-in base."""
        members, slots, base, content = state
        held: Mapping[str, Any] = slots or {}
        if base is not None:
            _CONTAINERS[base][1](obj, content)
        if members is obj:
            self.adopt(obj, members)
        elif members is not None:
            AttributePlan(class_of(obj), False).dict_of(obj).update(members)  # type: ignore[union-attr]
        for name, value in held.items():
            there = (class_dict(each).get(name) for each in class_mro(class_of(obj)))
            member = next((one for one in there if class_of(one) is types.MemberDescriptorType), None)
            if member is not None:  # else the library that it is of has no such slot any more
                member.__set__(obj, value)
