"""Handles where widgets are expected: the traits of containers and links take the widget of a handle instead.

Rule: only a handle is replaced, and only where a widget, or the end of a link, is expected.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import traitlets

from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.reflection import is_a

_MARK = "_takes_handles"


def accept_handles() -> None:
    """Let `VBox([h])`, `link((slider, "value"), (h, "tokens"))` and the like take handles. May be called again."""
    of_widgets: Any = traitlets.Instance
    if not hasattr(of_widgets.validate, _MARK):
        of_widgets.validate = _validate_of(of_widgets.validate)
    kinds: tuple[Any, ...] = (traitlets.link, traitlets.directional_link)
    for kind in kinds:
        if not hasattr(kind.__init__, _MARK):
            kind.__init__ = _link_of(kind.__init__)


def _validate_of(stock: Any) -> Any:
    @functools.wraps(stock)
    def validate(trait: Any, obj: Any, value: Any) -> Any:
        if isinstance(value, NodeBase) and _is_of_widgets(trait.klass):
            value = value.widget
        return stock(trait, obj, value)

    setattr(validate, _MARK, True)
    return validate


def _is_of_widgets(kind: Any) -> bool:
    """Return whether a trait of this class holds any widget, rather than one of a certain kind such as a layout."""
    module = sys.modules.get("ipywidgets")
    return module is not None and isinstance(kind, type) and kind in (module.Widget, module.DOMWidget)


def _link_of(stock: Any) -> Any:
    @functools.wraps(stock)
    def init(self: Any, source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, _end(source), _end(target), *args, **kwargs)

    setattr(init, _MARK, True)
    return init


def _end(end: Any) -> Any:
    """Return the end of a link with the widget in place of a handle."""
    parts: list[Any] = [*end] if is_a(end, tuple) else []
    return (parts[0].widget, *parts[1:]) if parts and isinstance(parts[0], NodeBase) else end
