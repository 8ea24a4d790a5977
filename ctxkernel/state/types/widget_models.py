"""The widgets of ipywidgets that are open, and how one is opened again with its id in another process."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ctxkernel.core.reflection import class_of, is_kind, loaded


def is_stock_widget(widget: Any) -> bool:
    """Return whether a widget can be opened again: its class is one of ipywidgets, and its traits are all of it."""
    cls = class_of(widget)
    is_public = cls.__module__.startswith("ipywidgets.") and loaded(cls.__module__).get(cls.__name__) is cls
    return is_public and cls.__name__ not in ("interactive", "Link", "DirectionalLink")


def open_widget(name: str, module: str, model_id: str) -> Any:
    """Return the widget with an id, opened if there is none. Raises ValueError, or what its class raises.

    The return sets its traits later, with those of all widgets.
    """
    cls: Any = getattr(importlib.import_module(module), name, None) if module.startswith("ipywidgets.") else None
    if not (is_kind(class_of(cls), type) and is_kind(cls, sys.modules["ipywidgets"].Widget)):
        raise ValueError(f"{module}.{name} is no widget of ipywidgets")
    known = living_widgets().get(model_id)
    return known if known is not None else cls(model_id=model_id)


def living_widgets() -> dict[str, Any]:
    """Return the widgets that are open, by id."""
    module: Any = sys.modules.get("ipywidgets.widgets.widget")
    found: Any = getattr(module, "_instances", None)
    return found if found is not None else getattr(getattr(module, "Widget", None), "widgets", {})
