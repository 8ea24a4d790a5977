"""Reducers of objects that show something: figures with their callbacks, parts of IPython's shell, widgets."""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.reflection import class_of, dict_items, is_kind, loaded
from ctxkernel.state.types import connections
from ctxkernel.state.types.instances import careful, reducer_of
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, Reduction
from ctxkernel.state.types.widget_models import is_stock_widget


def _figure(pack: PackState, obj: Any) -> Reduction:
    func, args, state, *rest = careful(pack, obj)
    if class_of(state) is dict:
        state.pop("_restore_to_pylab", None)  # a restored figure is nobody's current one
    return (func, args, state, *rest)


def _shell(pack: PackState, obj: Any) -> Reduction:
    return PARTS.found, ("IPython", "get_ipython", True)


def _shell_part(pack: PackState, obj: Any) -> Reduction:
    """A part of the shell is found in the shell of the process: a copy would have no effect there.

    An object of the user's that was registered there, such as his magics, is stored.
    """
    cls = class_of(obj)
    reduce: Any = reducer_of(pack, cls, pack.plan(cls))
    if pack.plan(cls).own:
        return reduce(pack, obj)
    get_shell = loaded("IPython.core.getipython").get("get_ipython")
    shell = get_shell() if get_shell is not None else None
    path = next((path for path, one in _parts_of(shell) if one is obj), None)
    return reduce(pack, obj) if path is None else (PARTS.in_shell, path)


def _parts_of(shell: Any, inner: bool = False) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the objects that the shell and its parts hold, each with its path."""
    configurable = loaded("traitlets.config.configurable").get("Configurable")
    if shell is None or configurable is None:
        return
    traits = dict_items(shell.__dict__.get("_trait_values", {}))
    for name, one in (*dict_items(shell.__dict__), *traits):
        yield (name,), one
        if inner and name in ("formatters", "registry"):
            yield from (((name, key), each) for key, each in one.items())
        elif not inner and is_kind(class_of(one), configurable):
            yield from (((name, *path), each) for path, each in _parts_of(one, inner=True))


def _macro(pack: PackState, obj: Any) -> Reduction:
    pack.deps.add("exec")  # a cell that is its name runs its text
    return careful(pack, obj)


def _widget(pack: PackState, obj: Any) -> Reduction:
    """A widget: alive, or opened again with its id in a new process; its values say whether it changed.

    Each state has all traits of living widgets: with them, one of a stock class is set back, but for what its own
    attributes and the user's observers hold. `interactive` has its result. A handle's widget shows the handle.
    """
    values = {name: one for name, one in obj._trait_values.items() if _is_simple(one)}
    listed = [one for by_type in obj._trait_notifiers.values() for observers in by_type.values() for one in observers]
    observers = [one for one in listed if _is_users(pack, one)]
    own = {name: one for name, one in obj.__dict__.items() if name not in _OF_WIDGETS}
    held: list[Any] = [values, observers, {name: one for name, one in own.items() if _is_simple(one)}]
    cls = class_of(obj)
    is_stock = is_stock_widget(obj)
    set_back = ((is_stock and not own) or getattr(cls, "follows_handle", False)) and not observers
    found = (
        connections.Description(connections.WIDGET, f"{cls.__name__} {cls.__module__} {obj._model_id}")
        if is_stock
        else None
    )
    return pack.refuse(obj, "a widget lives with its front end", held, found, more=TRAITS_ONLY * set_back)


TRAITS_ONLY = " (its traits are stored)"
"""Is said of a widget that a return sets back as a whole by setting its traits."""
_OF_WIDGETS = frozenset(
    (
        *("_trait_values", "_trait_notifiers", "_trait_validators", "_cross_validation_lock", "_initializing_traits_"),
        *("_model_id", "_options_full", "_options_values", "_property_rewrite", "_step_metadata", "equals"),
        *("_click_handlers", "_submission_callbacks"),
    )
)
"""The attributes that the widgets of ipywidgets have by themselves."""


def _is_users(pack: PackState, observer: Any) -> bool:
    """Return whether an observer is the user's: its objects may change with the widget."""
    if class_of(observer) is types.FunctionType:
        return observer.__globals__ is pack.namespace
    methods = (types.MethodType, types.BuiltinMethodType)
    owner = getattr(observer, "__self__", None) if class_of(observer) in methods else None
    return (
        owner is not None and not is_kind(class_of(owner), types.ModuleType) and not hasattr(owner, "_trait_notifiers")
    )


def _is_simple(value: Any) -> bool:
    if class_of(value) in (tuple, list):
        return all(_is_simple(one) for one in value)
    return class_of(value) in (bool, int, float, str, class_of(None))


def _callbacks(pack: PackState, obj: Any) -> Reduction:
    """A registry of callbacks of matplotlib, whose own way of being stored draws a number from its counter."""
    members: dict[str, Any] = obj.__dict__
    stored = {
        signal: {
            cid: func
            for cid, proxy in known.items()
            if (func := proxy()) is not None
            and (cid in members["_pickled_cids"] or not _is_connected_again(signal, func))
        }
        for signal, known in members["callbacks"].items()
    }
    number = int(repr(members["_cid_gen"])[6:-1])
    return PARTS.new, (class_of(obj),), {**members, "callbacks": stored, "_func_cid_map": None, "_cid_gen": number}


def _is_connected_again(signal: str, func: Any) -> bool:
    """Return whether a callback is a front end's, which a loaded figure gets again, or an animation's.

    An axis calls its artists by weak references where its units change: it has those of removed ones for a while.
    """
    while class_of(func) is functools.partial:
        func = func.func
    owner = getattr(func, "__self__", None)
    by_module = owner is None or is_kind(class_of(owner), types.ModuleType)
    name = str(getattr(func if by_module else class_of(owner), "__module__", ""))
    if not name.startswith(_DRAWING):
        return False
    called = [one for one in gc.get_referents(*(getattr(func, "__closure__", None) or ())) if callable(one)]
    return signal == "units" or name.startswith(_FRONT_ENDS) or any(_is_connected_again(signal, one) for one in called)


_DRAWING = ("matplotlib.", "mpl_toolkits.", "matplotlib_inline.", "ipympl.")
_FRONT_ENDS = (
    *("matplotlib.backend", "matplotlib._pylab_helpers", "matplotlib.pyplot", "matplotlib.animation"),
    *("matplotlib_inline.", "ipympl."),
)


TABLE: tuple[tuple[str, str, Kind], ...] = (
    ("ipywidgets", "Widget", _widget),
    ("IPython.core.interactiveshell", "InteractiveShell", _shell),
    ("IPython.core.events", "EventManager", _shell_part),
    ("traitlets.config.configurable", "Configurable", _shell_part),
    ("traitlets.config.loader", "Config", _shell_part),
    ("matplotlib.figure", "Figure", _figure),
    ("IPython.core.macro", "Macro", _macro),
    ("matplotlib.cbook", "CallbackRegistry", _callbacks),
)
