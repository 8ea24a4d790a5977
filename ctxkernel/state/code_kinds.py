"""How a look visits functions, classes, modules and instances, and which names their code uses.

Rule 1: a function or class of the user's has content: its code, defaults, closure, attributes. One of a library is a
name, as its insides are not the user's.
Rule 2: an instance is its class's name and its attributes. Its class is not part of its content, but what the class
leads to counts as reached, since its methods may change it.
"""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

from ctxkernel.state import buffers, iterator_kinds, plain_kinds
from ctxkernel.state.codes import code_facts
from ctxkernel.state.digest import Base, Batch, Body, Children, Look
from ctxkernel.state.reflect import HEAP_TYPE, Plan, class_dict, class_flags, class_mro, is_kind, loaded, module_dict


def code_body(look: Look, obj: types.CodeType) -> Children:
    """A code object."""
    look.out += b"c%d;" % code_facts(obj).digest
    return None


def _cell(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def function(look: Look, obj: types.FunctionType) -> Children:
    """A function."""
    look.tick()
    scope = obj.__globals__
    facts = code_facts(obj.__code__)
    closure = [_cell(cell) for cell in obj.__closure__ or ()]
    wrapped = dict.get(obj.__dict__, "__wrapped__")
    if scope is not look.batch.namespace:
        module = dict.get(scope, "__name__")
        if type(module) is str and loaded(module) is scope:
            look.label(b"F", f"{module}.{obj.__qualname__}")
            for one in (*closure, wrapped):
                look.lead_to(one)
            return None
        # Made by `exec` in a dict of its own: what it uses lies there, not in the namespace.
        for name in facts.names:
            look.lead_to(dict.get(scope, name))
    else:
        look.deps |= facts.names
    look.out += b"f%d;" % facts.digest
    look.also.update(map(id, obj.__closure__ or ()))  # two functions of one closure change each other's variables
    return itertools.chain((obj.__defaults__, obj.__kwdefaults__), closure, (obj.__dict__,) if obj.__dict__ else ())


def builtin(look: Look, obj: types.BuiltinFunctionType) -> Children:
    """A function made in C, or a method of an object made in C (`items.append`)."""
    look.tick()
    look.label(b"B", obj.__name__)  # the qualified name would be asked of a class
    owner = obj.__self__
    if owner is None or is_kind(type(owner), types.ModuleType):
        return None
    return iter((owner,))


def _bound(look: Look, obj: types.MethodType) -> Children:
    look.tick()
    look.out += b"M;"
    return iter((obj.__func__, obj.__self__))


def _wrapper(look: Look, obj: Any) -> Children:
    look.tick()
    look.label(b"w", type(obj).__name__)
    return iter((obj.__func__,))


def _parts(look: Look, obj: Any) -> Children:
    look.tick()
    look.label(b"w", type(obj).__name__)
    return iter([one for one in gc.get_referents(obj) if one is not type(obj)])


def _cached_property(look: Look, obj: functools.cached_property[Any]) -> Children:
    look.tick()  # its lock is another one each time that the class is made
    return iter((obj.func,))


def _memoised(look: Look, obj: Any) -> Children:
    # What it remembers follows from the function.
    look.tick()
    wrapped = dict.get(functools._lru_cache_wrapper.__dict__["__dict__"].__get__(obj), "__wrapped__")  # type: ignore[attr-defined]
    return iter((wrapped,))


def module(look: Look, obj: types.ModuleType) -> Children:
    """A module is a name: what it holds is not the user's."""
    name = module_dict(obj).get("__name__")
    look.label(b"m", name if type(name) is str else "")
    return None


def _name_only(look: Look, obj: Any) -> Children:
    look.label(b"n", type(obj).__name__)
    return None


_NOT_CONTENT_WORDS = """
__dict__ __weakref__ _abc_impl __firstlineno__ __static_attributes__ __annotate_func__
__annotations_cache__ __annotate__
"""
_NOT_CONTENT = frozenset(_NOT_CONTENT_WORDS.split())


def class_body(look: Look, obj: type) -> Children:
    """A class."""
    plan = look.batch.plan(obj)
    look.label(b"C", plan.label)
    look.tick()
    if not plan.own:
        return None
    names: list[str] = []
    members: list[object] = []
    for name, member in list(class_dict(obj).items()):
        if type(name) is str and name not in _NOT_CONTENT:
            names.append(name)
            members.append(member)
    bases = class_mro(obj)[1:]
    for base in (*bases, type(obj)):
        if class_flags(base) & HEAP_TYPE:
            look.lead_to(base)
    look.label(b"b", " ".join(look.batch.plan(base).label for base in bases))
    look.flat(names)
    return iter(members)


def instance_of(plan: Plan, base: Base | None) -> Body:
    """Return how to visit instances of one class: the part of a known base, then the attributes."""
    # What a library keeps to be faster is not content; of an own class every attribute is.
    hides_caches = not plan.own
    simple = plan.own and base is None and not (plan.slots or plan.skip or plan.opaque)
    label = b"I" + plan.label.encode("utf-8", "surrogatepass") + b"\0"

    def body(look: Look, obj: Any) -> Children:
        look.tick()
        look.out += label
        if plan.honest and look.batch.is_handle(obj):
            look.identity(obj)
            return None
        if plan.own:
            look.lead_to(plan.cls)
        elif base is None:
            look.foreign += 1
        if base is None and plan.opaque:
            look.identity(obj)
        members = plan.dict_of(obj)
        if members is not None:
            look.also.add(id(members))  # `vars(obj)` may be another name for it
            if simple and look.flat(list(members)):
                return plain_kinds.several(look, list(members.values()))
        found = plan.attributes(obj)
        if base is not None:
            found = [item for item in found if type(item[0]) is not str or not base.hidden(item[0])]
        if hides_caches:
            found = [item for item in found if type(item[0]) is not str or _is_content(item[0])]
            for name, value in found:
                if type(name) is str and name == "__wrapped__":  # a decorator's object stands for what it wraps
                    return iter((value,))
        look.out += b"%d;" % len(found)
        names = [name for name, _ in found]
        if look.flat(names):
            names.clear()
        children: Iterator[object] = itertools.chain(names, [value for _, value in found])
        first = base.body(look, obj) if base is not None else None
        return children if first is None else itertools.chain(first, children)

    return body


def _is_content(name: str) -> bool:
    return "cache" not in name and name not in ("stale", "_stale") and not name.startswith("_has_")


_OPAQUE = (
    ("logging", "Logger"),
    ("logging", "Handler"),
    ("threading", "Thread"),
    ("concurrent.futures", "Executor"),
    ("IPython.core.interactiveshell", "InteractiveShell"),
    ("ipykernel.iostream", "OutStream"),
    ("ipykernel.kernelbase", "Kernel"),
    ("traitlets.config.application", "Application"),
    ("tornado.ioloop", "IOLoop"),
    ("ctxkernel.kernel.runtime", "Runtime"),
)
"""Classes whose instances lead into a library and hold nothing of the user's."""


def make_kind(batch: Batch, cls: type) -> tuple[bool, Body]:
    """Return how to visit instances of a class that no table names."""
    mro = class_mro(cls)
    if any(each is type for each in mro):
        return True, class_body
    if any(each is types.ModuleType for each in mro):
        return False, module
    for name, attribute in _OPAQUE:
        if any(each is loaded(name).get(attribute, 0) for each in mro):
            return True, lambda look, obj: look.identity(obj)
    plan, base = batch.plan(cls), batch.base_of(mro)
    noted = base is None or base.noted or plan.get_dict is not None or bool(plan.slots)
    return noted, instance_of(plan, base)


_tables: tuple[tuple[bool, ...], dict[int, tuple[bool, Body]], dict[int, Base]] | None = None


def tables() -> tuple[dict[int, tuple[bool, Body]], dict[int, Base]]:
    """Return how to visit every known type, by id of the exact type, and by id of a base of it."""
    global _tables
    imported = tuple(name in sys.modules for name in buffers.MODULES)
    if _tables is None or _tables[0] != imported:
        kinds = {
            id(cls): kind for table in (plain_kinds.KINDS, iterator_kinds.KINDS, KINDS) for cls, kind in table.items()
        }
        bases = {id(cls): base for cls, base in plain_kinds.BASES.items()}
        more, below, whole = buffers.tables()
        if not whole:  # an import is under way in another thread
            return kinds | more, bases | below
        _tables = imported, kinds | more, bases | below
    return _tables[1], _tables[2]


KINDS: dict[type, tuple[bool, Body]] = {
    types.CodeType: (False, code_body),
    types.FunctionType: (True, function),
    types.BuiltinFunctionType: (False, builtin),
    types.MethodType: (False, _bound),
    types.ModuleType: (False, module),
    type: (True, class_body),
    staticmethod: (True, _wrapper),
    classmethod: (True, _wrapper),
    property: (True, _parts),
    functools.partial: (True, _parts),
    functools.cached_property: (True, _cached_property),
    functools._lru_cache_wrapper: (True, _memoised),  # type: ignore[attr-defined]
    **dict.fromkeys(
        (
            types.GetSetDescriptorType,
            types.MemberDescriptorType,
            types.WrapperDescriptorType,
            types.MethodDescriptorType,
            types.ClassMethodDescriptorType,
            types.MethodWrapperType,
        ),
        (False, _name_only),
    ),
}
