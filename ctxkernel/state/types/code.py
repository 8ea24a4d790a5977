"""Reducers and constructors of functions and of the parts of code.

Rule 1: an object that an importable module has under its name is stored as that name.
Rule 2: a function of the namespace comes back with the namespace as its globals; one of a module's code with the
module's; one that was made by `exec` in a dict of its own with that dict. Of the copy of the namespace that attrs makes
for the functions of a class, only what their code names is stored.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import marshal
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from ctxkernel.core.reflection import (
    CACHED,
    DEFINED,
    FOUND,
    class_dict,
    class_module,
    class_mro,
    class_of,
    class_qualname,
    definition_of,
    function_of,
    is_any,
    is_kind,
    loaded,
    module_dict,
    remember,
)
from ctxkernel.core.state_names import CLASS
from ctxkernel.state.base.code_objects import code_facts
from ctxkernel.state.base.own_modules import load
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, Reduction, StreamConstructors

_DICT: dict[Any, Any] = {}
_get: Callable[..., Any] = dict[Any, Any].get


def function(pack: PackState, obj: types.FunctionType) -> Reduction:
    """A function: a name, a member of a class, or its code with all that it holds."""
    scope: Any = obj.__globals__
    used: tuple[dict[str, Any], ...] = ()
    module, path = obj.__module__, obj.__qualname__
    if (named := by_name(pack, module, path, obj)) is not None:
        return named
    if scope is pack.namespace:
        pack.deps |= code_facts(obj.__code__).names
        home: Any = scope
    elif _is_replaced(pack, obj, module, path):
        remember(module, path, obj)
        return PARTS.definition, (module, path)
    else:
        home = loaded(module) if class_of(module) is str else {}
        name = _get(scope, "__name__")
        if class_of(name) is str and loaded(name) is scope:
            scope = name
            pack.uses_module(name)
        elif (
            # Only the globals of functions that attrs writes have no other user: shared globals stay shared.
            obj.__code__.co_filename.startswith("<attrs generated ")
            and (copied := _copied(pack, scope)) is not None
            and (names := _names(obj)) is not None
        ):
            scope, used = copied, ({one: scope[one] for one in sorted(names) if one in scope},)
    member = _member(home, path, obj)  # of a library: one under a class method, which no name leads to
    if member and id(member[0]) not in pack.by_value:
        return PARTS.member, _of_class(pack, home, *member)
    cells, method = obj.__closure__ or (), pack.methods.get(id(obj), ())
    for at, one in enumerate(cells):
        pack.cells.setdefault(id(one), (*method, at) if method else ())
    content = tuple([(cell, held[0]) for cell in cells if (held := _held(cell))])
    if "__classdict__" in obj.__code__.co_freevars:  # of a type alias in a class: the dict of that class
        content = tuple([(one, class_dict(cls) if (cls := _class_with(held)) else held) for one, held in content])
    more = (obj.__dict__ or None, getattr(obj, "__type_params__", ()) or None)
    about = obj.__name__, path, module, obj.__doc__, obj.__defaults__, obj.__kwdefaults__, obj.__annotations__ or None
    state = (*about, content, *more, *used)
    return PARTS.function, (obj.__code__, scope, cells, *method), state, None, None, PARTS.fill_function


def _copied(pack: PackState, scope: dict[str, Any]) -> dict[str, Any] | None:
    """Return a substitute for a copy of the namespace that is no variable; None for any other dict."""
    own = pack.namespace
    if "__name__" not in scope or scope["__name__"] != _get(own, "__name__"):
        return None
    if id(scope) not in pack.copied:
        named = any(value is scope for value in list(own.values()))
        some = {one: scope[one] for one in ("__name__", "__builtins__") if one in scope}
        pack.copied[id(scope)] = scope, None if named else some
    return pack.copied[id(scope)][1]


def _names(func: types.FunctionType) -> set[str] | None:
    """Return the names that a function may look up in its globals; None where it may look up any."""
    names = set(code_facts(func.__code__).names)
    for text in func.__annotations__.values():  # `typing.get_type_hints` looks these names up
        if class_of(text) is str:
            with contextlib.suppress(SyntaxError, ValueError):
                names.update(compile(text, "<annotation>", "eval", dont_inherit=True).co_names)
    return None if names & _ANY else names


_ANY = frozenset(("eval", "exec", "globals", "locals", "vars", "__import__"))


def by_name(pack: PackState, module: Any, path: Any, obj: object) -> Reduction | None:
    """Return the name of a module's definition; NotImplemented where the pickler writes it, None for other objects."""
    if class_of(module) is not str or class_of(path) is not str or module == pack.module:
        return None
    own, found = path in DEFINED.get(module, ()), _by_import(module, path, obj)
    if not (DEFINED[module][path] is obj if own else found or FOUND.get((module, path)) is obj):
        return None
    if not own:
        remember(module, path, obj)
    pack.uses_module(module)
    replaced = not found or (own and module in pack.packer.own_modules)
    return (PARTS.definition, (module, path)) if replaced else NotImplemented


def builtin(pack: PackState, obj: types.BuiltinFunctionType) -> Reduction:
    """A function in C: a name."""
    named = by_name(pack, obj.__module__, obj.__qualname__, obj)
    return NotImplemented if named is None else named


def _by_import(module: str, path: str, obj: object) -> bool:
    """Return whether the pickler finds `obj` by its name, with `getattr` and without code of the user's."""
    parts = path.split(".")
    if "<locals>" in parts:
        return False
    found: Any = loaded(module).get(parts[0])
    for part in parts[1:]:
        if not is_kind(class_of(found), type):
            return False
        found = next((class_dict(base)[part] for base in class_mro(found) if part in class_dict(base)), None)
        found = found.__func__ if class_of(found) is staticmethod else found
    return found is obj


def _is_replaced(pack: PackState, obj: types.FunctionType, module: Any, path: str) -> bool:
    """Return whether a library defines `obj` under a name that a cell, `mock.patch` or `catch_warnings` gave to others.

    What a decorator of the library itself put there does not count: it is the definition, and `obj` a part of it.
    """
    scope = obj.__globals__
    if obj.__code__.co_qualname != path or path not in scope or (module, path) in FOUND or loaded(module) is not scope:
        return False
    now = scope[path]
    if class_of(now) is types.FunctionType:
        return now.__globals__ is pack.namespace
    if class_of(now) is types.BuiltinFunctionType:
        return class_of(now.__self__) is list
    return is_any(class_of(now), ("unittest.mock", "NonCallableMock"))


def _member(scope: dict[str, Any], path: str, obj: object) -> tuple[type, str] | tuple[()]:
    """Return the class in a scope that has an object, or a method around it, as its member, and the name of that."""
    holder, _, name = path.rpartition(".")
    if not holder or "<" in path:
        return ()
    parts = holder.split(".")
    found: Any = _get(scope, parts[0])
    for part in parts[1:]:
        if not is_kind(class_of(found), type):
            return ()
        member: Callable[[str], Any] = class_dict(found).get
        found = member(part)
    held = class_dict(found).get(name) if is_kind(class_of(found), type) else None
    return (found, name) if held is not None and (obj is held or obj is function_of(held)) else ()


def _of_class(pack: PackState, scope: Any, cls: type, name: str) -> tuple[type, str]:
    if scope is pack.namespace:
        pack.deps.add(f"{CLASS}{pack.packer.uid(cls)}")
    return cls, name


def _held(cell: types.CellType) -> tuple[Any] | None:
    try:
        return (cell.cell_contents,)
    except ValueError:  # empty
        return None


def cell(pack: PackState, obj: types.CellType) -> Reduction:
    """A cell of a closure. With a function it is made empty: its content may be that function."""
    held = _held(obj)
    if id(obj) in pack.cells or held is None:
        return PARTS.cell, pack.cells.get(id(obj), ())
    return PARTS.cell, (), held, None, None, PARTS.fill_cell


def code(pack: PackState, obj: types.CodeType) -> Reduction:
    """A code object."""
    try:
        # The second version of the format: later ones depend on who else refers to a constant.
        return PARTS.code, (sys.version_info[:2], marshal.dumps(obj, 2))
    except ValueError:  # a constant that no compiler makes
        names = """argcount posonlyargcount kwonlyargcount nlocals stacksize flags code consts names varnames filename
            name qualname firstlineno linetable exceptiontable freevars cellvars"""
        return PARTS.code_from, (sys.version_info[:2], tuple([getattr(obj, f"co_{name}") for name in names.split()]))


def method(pack: PackState, obj: types.MethodType) -> Reduction:
    """A bound method: found in the class where the class has it, else the function and its owner."""
    func, owner = obj.__func__, obj.__self__
    name: Any = getattr(func, "__name__", None)
    cls: Any = owner if is_kind(class_of(owner), type) else class_of(owner)
    if class_of(name) is str and id(cls) not in pack.by_value:
        base = next((base for base in class_mro(cls) if name in class_dict(base)), None)
        if base is not None and function_of(class_dict(base)[name]) is func:
            if class_module(base) == pack.module:
                pack.deps.add(f"{CLASS}{pack.packer.uid(base)}")
            return PARTS.bound, (owner, name)
    return types.MethodType, (func, owner)


def remembering(pack: PackState, obj: Any) -> Reduction:
    """A function under `functools.lru_cache`: the cache starts empty."""
    module, path = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if (named := by_name(pack, module, path, obj)) is not None:
        return named
    members = {name: one for name, one in obj.__dict__.items() if name not in ("__wrapped__", "cache_parameters")}
    wrapped = obj.__wrapped__
    if obj.cache_info().currsize:
        pack.note(f"the cache of {getattr(wrapped, '__name__', 'a function')}: empty")
        held = (one for some in held_by_cache(obj) for one in some)
        pack.noted += [one for one in held if class_of(one) not in _UNCHANGED]  # the cache may give it out again
    settings = obj.cache_parameters()
    args = wrapped, settings["maxsize"], settings["typed"], *pack.methods.get(id(wrapped), ())
    return PARTS.remembering, args, members, None, None, PARTS.update_dict


def held_by_cache(obj: Any) -> tuple[list[Any], list[Any]]:
    """Return the content of a function's cache: links, results and the dict of entries; and the items of that dict."""
    own = (obj.__wrapped__, obj.__dict__)
    held = [one for one in gc.get_referents(obj) if not any(one is known for known in own)]
    return held, [one for entries in held if class_of(entries) is dict for one in gc.get_referents(entries)]


_UNCHANGED = frozenset((type, types.FunctionType, tuple, str, bytes, int, float, complex, bool, type(None)))


def property_(pack: PackState, obj: Any) -> Reduction:
    """A property."""
    cls, get = class_of(obj), property.__dict__
    doc = get["__doc__"].__get__(obj)
    texts = [one for one in gc.get_referents(obj) if class_of(one) is str and one is not doc]
    parts = (*(get[name].__get__(obj) for name in ("fget", "fset", "fdel")), doc, texts[0] if texts else None)
    members = None if cls is property else pack.plan(cls).dict_of(obj) or None
    return PARTS.property, (cls, *parts), members, None, None, PARTS.update_dict


def wrapper(pack: PackState, obj: Any) -> Reduction:
    """A static method or a class method: that of its class, where the class has it."""
    func = obj.__func__
    path: Any = getattr(func, "__qualname__", None)
    member = _member(pack.namespace, path, obj) if class_of(path) is str else ()
    if member and id(member[0]) not in pack.by_value:
        return PARTS.class_entry, _of_class(pack, pack.namespace, *member)
    method = pack.methods.get(id(func), ())
    return PARTS.wrapper, (class_of(obj), func, *(method if method and class_dict(method[0])[method[1]] is obj else ()))


_OF_CLASS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def mapping_proxy(pack: PackState, obj: Any) -> Reduction:
    """A read-only view of a mapping: of the same mapping again."""
    (below,) = gc.get_referents(obj)
    cls = _class_with(below)
    return (types.MappingProxyType, (below,)) if cls is None else (PARTS.class_dict, (cls,))


def _class_with(members: Any) -> type | None:
    """Return the class whose dict this is, if one of its descriptors says so."""
    for one in members.values() if class_of(members) is dict else ():
        if class_of(one) in _OF_CLASS and gc.get_referents(class_dict(one.__objclass__))[0] is members:
            return one.__objclass__
    return None


def module_(pack: PackState, obj: Any) -> Reduction:
    """A module that can be imported: its name."""
    names: tuple[Any, ...] = module_dict(obj).get("__name__"), getattr(module_dict(obj).get("__spec__"), "name", None)
    for name in names:
        if class_of(name) is str and sys.modules.get(name) is obj:
            pack.uses_module(name)
            return PARTS.module, (name,)
    return pack.refuse(obj, "a module that is made by hand cannot be imported again")


_VIEWS: dict[type, str] = {
    class_of(getattr(one, which)()): which
    for one in (_DICT, collections.OrderedDict[Any, Any]())
    for which in ("keys", "values", "items")
}
KINDS: dict[Any, Kind] = {
    types.FunctionType: function,
    types.BuiltinFunctionType: builtin,
    types.CellType: cell,
    types.CodeType: code,
    types.MethodType: method,
    # Its values are in the instances.
    functools.cached_property: lambda _, obj: (PARTS.cached_property, (obj.func, obj.attrname, obj.__doc__)),
    types.MappingProxyType: mapping_proxy,
    **dict.fromkeys(_VIEWS, lambda _, obj: (PARTS.dict_view, (*gc.get_referents(obj), _VIEWS[class_of(obj)]))),
    CACHED: remembering,
}
BELOW: dict[Any, Kind] = {
    types.ModuleType: module_,
    property: property_,
    **dict.fromkeys((staticmethod, classmethod), wrapper),
}


# Bases that keep `__init_subclass__` of the other bases from running; the second is laid out without a dict.
class CodeParts(StreamConstructors):
    """The constructors of functions and classes."""

    def code(self, version: tuple[int, int], data: bytes) -> Any:
        """Return a code object. Raises ValueError for one of another Python."""
        _same_version(version)
        made: types.CodeType = marshal.loads(data)  # noqa: S302 - as trusted as the pickle that it stands in
        self.packer.code_files.add(made.co_filename)
        return made

    def code_from(self, version: tuple[int, int], args: tuple[Any, ...]) -> Any:
        """Return a code object from its parts."""
        _same_version(version)
        return types.CodeType(*args)

    def cell(self, cls: Any = None, name: str = "", at: int = 0) -> Any:
        """Return an empty cell, or that of a living method, which gets its content with its class."""
        again = self.again_of(cls)
        living = again.cell(name, at) if again is not None else None
        return types.CellType() if living is None else living

    def fill_cell(self, cell: Any, held: tuple[Any]) -> None:
        """Put its content into a cell."""
        for again in self.again.values():
            if again.fill_cell(cell, held[0]):
                return
        cell.cell_contents = held[0]

    def function(self, code: Any, scope: Any, cells: tuple[Any, ...], cls: Any = None, name: str = "") -> Any:
        """Return a function without its attributes, or a living method, which gets its content with its class.

        `scope` is its globals or the name of a module. `cls` and `name`: the class that has it, and its name there.
        """
        if class_of(scope) is str:
            scope = self.module(scope).__dict__
        made = types.FunctionType(code, scope, None, None, cells or None)
        again = self.again_of(cls)
        living = again.function(name, made) if again is not None else None
        return made if living is None else living

    def fill_function(self, func: Any, state: tuple[Any, ...]) -> None:
        """Give a function its attributes, and its cells their content."""
        name, path, module, doc, defaults, keyword, annotations, content, members, variables, *used = state
        func = next((made for again in self.again.values() if (made := again.content_of(func)) is not None), func)
        func.__name__, func.__qualname__, func.__module__, func.__doc__ = name, path, module, doc
        func.__defaults__, func.__kwdefaults__ = defaults, keyword
        if annotations:
            func.__annotations__ = annotations
        if members:
            func.__dict__.update(members)
        if variables:
            func.__type_params__ = variables
        for cell, held in content:
            self.fill_cell(cell, (held,))
        for names in used:
            func.__globals__.update(names)

    def member(self, cls: Any, name: str) -> Any:
        """Return a function that is a member of a class."""
        return function_of(self.members_of(cls)[name])

    def wrapper(self, kind: Any, func: Any, cls: Any = None, name: str = "") -> Any:
        """Return a static method or a class method: the one around a living function in its class, or a new one."""
        again = self.again_of(cls)
        living: Any = class_dict(again.cls).get(name) if again is not None else None
        return living if class_of(living) is kind and living.__func__ is func else kind(func)

    def class_entry(self, cls: Any, name: str) -> Any:
        """Return a static method or a class method as its class has it."""
        return self.members_of(cls)[name]

    def members_of(self, cls: Any) -> Mapping[str, Any]:
        """Return the members that a class has after the return."""
        again = self.again_of(cls)
        return class_dict(cls) if again is None or again.members is None else again.members

    def bound(self, owner: Any, name: str) -> Any:
        """Return a bound method, as the class of `owner` has it."""
        cls: Any = owner if is_kind(class_of(owner), type) else class_of(owner)
        for base in class_mro(cls):
            if name in (members := self.members_of(base)):
                return types.MethodType(function_of(members[name]), owner)
        raise AttributeError(f"{class_qualname(cls)} has no {name} any more")

    def remembering(self, func: Any, size: int | None, typed: bool, cls: Any = None, name: str = "") -> Any:
        """Return a function under a new, empty `functools.lru_cache`, or that around a living function in its class."""
        again = self.again_of(cls)
        living: Any = function_of(class_dict(again.cls).get(name)) if again is not None else None
        settings = {"maxsize": size, "typed": typed}
        if class_of(living) is CACHED and living.__wrapped__ is func and living.cache_parameters() == settings:
            return living
        return functools.lru_cache(maxsize=size, typed=typed)(func)

    def update_dict(self, obj: Any, members: dict[str, Any]) -> None:
        """Give an object the attributes that it had."""
        obj.__dict__.update(members)

    def property(self, cls: Any, get: Any, set_: Any, delete: Any, doc: Any, name: str | None) -> Any:
        """Return a property, with the name that its class gave it."""
        made = property.__new__(cls)
        property.__init__(made, get, set_, delete, doc)
        if name is not None:
            property.__set_name__(made, class_of(made), name)  # type: ignore[attr-defined]
        return made

    def cached_property(self, func: Any, name: str | None, doc: str | None) -> Any:
        """Return a functools.cached_property."""
        made = functools.cached_property(func)
        made.attrname, made.__doc__ = name, doc
        return made

    def dict_view(self, below: dict[Any, Any], which: str) -> Any:
        """Return `keys`, `values` or `items` of a dict."""
        return getattr(below, which)()

    def module(self, name: str) -> Any:
        """Return a module, imported where it is not yet."""
        return load(name)

    def definition(self, module: str, path: str) -> Any:
        """Return a definition of a module of the user's, or one of a library that a cell replaced."""
        if (known := definition_of(module, path)) is not None:
            return known
        found = self.module(module)
        for name in path.split("."):
            found = function_of(class_dict(found)[name] if is_kind(class_of(found), type) else getattr(found, name))
        return found


def _same_version(version: tuple[int, int]) -> None:
    if tuple(version) != sys.version_info[:2]:
        raise ValueError(f"made by Python {version[0]}.{version[1]}, and this is another one")
