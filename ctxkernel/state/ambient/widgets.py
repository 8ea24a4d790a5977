"""Values and observers of the widgets of ipywidgets that are alive.

Rule 1: a restore sets the values and tells the front end; it runs no observer, whose effects the state has already.
Rule 2: a widget that the state did not have stays as it is, and one that was closed since is named.
Rule 3: in a new process, widgets of stock classes are opened again with their ids, so that the outputs that show them
        are live. What they refer to only by a token of the earlier process (observers) is named.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from ctxkernel.core.reflection import class_of
from ctxkernel.core.text import plural
from ctxkernel.state.ambient.part import LiveObjects, NotRestored, Part
from ctxkernel.state.types.widget_models import is_stock_widget, living_widgets, open_widget

_DEFAULTS = "_static_immutable_initial_values"
_PLAIN = (str, int, float, bool, type(None))
_MOST_TEXT = 10_000
"""Longest text that is stored; a longer one is kept alive, and a new process does not have it."""
_MOST_OUTPUT = 1_000_000
"""The same for the texts that an Output widget shows, such as figures."""
_LEFT_OUT = frozenset(("comm", "keys", "log", "_property_lock", "_states_to_send", "_msg_callbacks"))
_OWN = ("_options_full", "_options_values")
"""Attributes of selections that are no traits."""
_CALLBACKS = ("_click_handlers", "_submission_callbacks")
_TOKEN, _WIDGET, _TUPLE, _DICT = "token", "widget", "tuple", "dict"


class _Values(list[Any]):
    """Values that are compared as traitlets does: by identity, then by equality. They are kept alive meanwhile."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        try:
            return isinstance(other, _Values) and list[Any].__eq__(self, other)
        except Exception:  # arrays, and classes whose equality fails: `capture` looks closer
            return False

    def __ne__(self, other: object) -> bool:
        return not self == other


class WidgetValues(Part):
    """All traits of living widgets, and who observes them."""

    name = "widgets"
    needs = "ipywidgets"
    imports = False

    def __init__(self) -> None:
        self.live = LiveObjects(20_000)
        self._known = set[str]()
        """Ids of the widgets that this process had: one of them that is missing was closed."""
        self.open_handle: Callable[[str, str], object] = lambda obj_id, model_id: None
        """Opens the widget of a handle, by the ids of both: a container may refer to it."""
        self._expected = dict[str, tuple[Any, tuple[dict[str, Any], ...]]]()
        """Output widget → its outputs now, and those that the front end will set: it sends them after the cell."""

    def expect(self, captured: Mapping[str, Sequence[dict[str, Any]]], cleared: Collection[str]) -> None:
        """Take in what Output widgets captured in the cell that ended, and those that were cleared before that."""
        for model_id, outputs in captured.items():
            widget = living_widgets().get(model_id)
            if widget is not None:
                now = self._outputs(model_id, widget)
                before = [] if model_id in cleared else [*now]
                if before and outputs and _is_continued(before[-1], outputs[0]):  # as the front end joins them
                    before[-1] = {**before[-1], "text": before[-1]["text"] + outputs[0]["text"]}
                    outputs = outputs[1:]
                self._expected[model_id] = widget.__dict__["_trait_values"].get("outputs"), (*before, *outputs)

    def settle(self) -> None:
        """Forget what was expected of widgets whose outputs the front end has set: before a cell can set them."""
        for model_id in [*self._expected]:
            widget = living_widgets().get(model_id)
            if widget is None or widget.__dict__["_trait_values"].get("outputs") is not self._expected[model_id][0]:
                del self._expected[model_id]

    def _outputs(self, model_id: str, widget: Any) -> Any:
        """Return the outputs of an Output widget, as the front end has them or will have them."""
        now = widget.__dict__["_trait_values"].get("outputs", ())
        then, expected = self._expected.get(model_id, (None, ()))
        return expected if then is now else now

    def stamp(self) -> object:
        """Return all values and observers with their widgets: about a microsecond a widget."""
        seen = _Values([expected for _, expected in self._expected.values()])
        for model_id, widget in list(living_widgets().items()):
            own = widget.__dict__
            seen.append(model_id)
            if not _follows_handle(widget):
                seen += own["_trait_values"].values()
            for by_type in own["_trait_notifiers"].values():
                for observers in by_type.values():
                    seen += observers
            for name in _CALLBACKS:
                if name in own:
                    seen += own[name].callbacks
        return seen

    def capture(self) -> Any:
        """Return the differences from the defaults of each widget's class, by model id."""
        self._known |= living_widgets().keys()
        return {model_id: self._told(widget) for model_id, widget in list(living_widgets().items())}

    def default(self) -> Any:
        """Return that there was no widget."""
        return {}

    def absent(self, value: Any) -> str:
        """Name the widgets that there were."""
        return _closed(value.values())

    def matches(self, value: Any) -> bool:
        """Return whether all widgets of the state are as they were."""
        widgets = living_widgets()
        return all(one in widgets and not self._differs(widgets[one], told) for one, told in value.items())

    def restore(self, value: Any) -> None:
        """Set values and observers. Raises NotRestored that names the widgets that are not there, or not whole."""
        opened = self._open_again(value)
        widgets, first = living_widgets(), _layouts_and_styles(opened.values())
        lacking = Counter(value[one]["kind"] for one, widget in opened.items() if self._lacks(widget, value[one]))
        again = f"opened again without their observers and callbacks: {_counted(lacking)}; run the cells that add them"
        closed = _closed(told for one, told in value.items() if one not in widgets)
        missing = [again] * bool(lacking) + [closed] * bool(closed)
        for model_id, told in value.items():
            widget = widgets.get(model_id)
            if widget is not None and self._differs(widget, told):
                try:
                    self._set(widget, told)
                except KeyError:
                    missing.append(f"{told['kind']}: a value or an observer is not held any more")
        for model_id in first.keys() - value.keys():
            first[model_id].close()
        if missing:
            raise NotRestored("; ".join(missing))

    def _open_again(self, value: Any) -> dict[str, Any]:
        """Open the widgets of an earlier process with their ids, and return them."""
        opened = dict[str, Any]()
        for model_id, told in value.items():
            if told.get("stock") and model_id not in self._known:
                with contextlib.suppress(Exception):  # the library's: it is named as missing
                    opened[model_id] = open_widget(told["kind"], told["stock"], model_id)
        used = {content for told in value.values() for content in _referred(told.get("traits"))}
        for model_id in used - living_widgets().keys():
            if obj_id := value.get(model_id, {}).get("handle"):
                self.open_handle(obj_id, model_id)
        self._known |= opened.keys()
        return opened

    def _lacks(self, widget: Any, told: dict[str, Any]) -> bool:
        """Return whether a widget that was just opened has fewer observers or callbacks than it had."""
        have = {tuple(names): len(tokens) for *names, tokens in _called(self._told(widget))}
        return any(len(tokens) > have.get(tuple(names), 0) for *names, tokens in _called(told))

    def _differs(self, widget: Any, told: dict[str, Any]) -> bool:
        now = self._told(widget)
        return now != told and (self._is_own(told) or any(now.get(one) != told.get(one) for one in ("traits", "own")))

    def _is_own(self, told: dict[str, Any]) -> bool:
        """Return whether the observers and callbacks of a state are of this process."""
        return all(self.live.here(token) for *_, tokens in _called(told) for token in tokens)

    def _told(self, widget: Any) -> dict[str, Any]:
        own, defaults = widget.__dict__, getattr(class_of(widget), _DEFAULTS, {})
        values = dict(own["_trait_values"])
        if self._expected and own["_model_id"] in self._expected:
            values["outputs"] = self._outputs(own["_model_id"], widget)
        traits = {
            name: self._stored(value, _MOST_OUTPUT if name == "outputs" else _MOST_TEXT)
            for name, value in ({} if _follows_handle(widget) else values).items()
            if name not in _LEFT_OUT and not (name in defaults and defaults[name] is value)
        }
        told = {
            "kind": type(widget).__name__,
            "stock": type(widget).__module__ if is_stock_widget(widget) else "",
            "traits": traits,
            "handle": own.get("obj_id", "") if _follows_handle(widget) else "",
            "observers": self._observers(own["_trait_notifiers"]),
            "callbacks": {name: [*map(self.live.token, own[name].callbacks)] for name in _CALLBACKS if name in own},
            "own": {name: self._stored(own[name]) for name in _OWN if name in own},
        }
        return {name: one for name, one in told.items() if one}

    def _observers(self, notifiers: Any) -> list[Any]:
        found = [
            [*(one if isinstance(one, str) else "" for one in (name, kind)), [*map(self.live.token, observers)]]
            for name, by_type in notifiers.items()
            for kind, observers in by_type.items()
            if observers
        ]
        return sorted(found, key=lambda one: (one[0], one[1]))

    def _set(self, widget: Any, told: dict[str, Any]) -> None:
        """Set the differing values. Raises KeyError for an object that is not held; nothing is changed then."""
        own, defaults = widget.__dict__, getattr(class_of(widget), _DEFAULTS, {})
        now, then = self._told(widget).get("traits", {}), told.get("traits", {})
        names = [name for name in {**now, **then} if now.get(name) != then.get(name)]
        # A trait that is neither stored nor has a simple default was made when somebody asked for it: it stays.
        values = {
            name: self._value(then[name]) if name in then else defaults[name]
            for name in names
            if name in then or name in defaults
        }
        every = sys.modules["traitlets"].All  # type: ignore[attr-defined]
        notifiers: dict[Any, Any] = {}
        is_own = self._is_own(told)
        for name, kind, tokens in told.get("observers", ()) if is_own else ():
            notifiers.setdefault(name or every, {})[kind or every] = [*map(self.live.get, tokens)]
        called: dict[str, list[str]] = told.get("callbacks", {}) if is_own else {}
        callbacks = {name: [*map(self.live.get, tokens)] for name, tokens in called.items()}
        attributes = {name: self._value(one) for name, one in told.get("own", {}).items()}
        own["_trait_values"].update(values)
        own["_trait_notifiers"] = notifiers if is_own else own["_trait_notifiers"]
        own.update(attributes)
        for name, ones in callbacks.items():
            own[name].callbacks[:] = ones
        synced = [name for name in values if name in widget.keys]
        if synced and widget.comm is not None:
            widget.send_state(synced)

    def _stored(self, value: Any, most: int = _MOST_TEXT) -> Any:
        """Return a value as plain data: itself, or a list of its kind and its content."""
        kind = class_of(value)
        if kind in _PLAIN and (kind is not str or len(value) <= most):
            return value
        if (model_id := getattr(value, "_model_id", None)) is not None and living_widgets().get(model_id) is value:
            return [_WIDGET, model_id]
        if kind in (tuple, list) and len(value) <= 100:
            return [kind.__name__, [self._stored(one, most) for one in value]]
        if kind is dict and len(value) <= 100 and all(class_of(key) is str for key in value):
            return [_DICT, {key: self._stored(one, most) for key, one in value.items()}]
        return [_TOKEN, self.live.token(value)]

    def _value(self, stored: Any) -> Any:
        """Return the argument of `_stored`, or an equal value. Raises KeyError where it is not held any more."""
        if class_of(stored) is not list:
            return stored
        kind, content = stored
        if kind == _WIDGET:
            return living_widgets()[content]
        if kind == _DICT:
            return {key: self._value(one) for key, one in content.items()}
        if kind == _TOKEN:
            return self.live.get(content)
        return (tuple if kind == _TUPLE else list)(map(self._value, content))


def _called(told: Mapping[str, Any]) -> list[Any]:
    """Return the observers and callbacks of a widget: the names for which they are called, and their tokens last."""
    return [*told.get("observers", ()), *told.get("callbacks", {}).items()]


def _follows_handle(widget: Any) -> bool:
    """Return whether it is the widget of a handle: a return restores the handle, and the widget shows that."""
    return getattr(class_of(widget), "follows_handle", False)


def _is_continued(last: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Return whether two outputs are texts of one stream."""
    return last.get("output_type") == first.get("output_type") == "stream" and last.get("name") == first.get("name")


def _layouts_and_styles(widgets: Iterable[Any]) -> dict[str, Any]:
    """Return the layouts and styles of widgets, by id."""
    held = [widget.__dict__["_trait_values"].get(name) for widget in widgets for name in ("layout", "style")]
    return {one._model_id: one for one in held if getattr(one, "_model_id", None)}


def _referred(stored: Any) -> Iterator[str]:
    """Yield the ids of the widgets that stored traits refer to."""
    if isinstance(stored, dict):
        for one in cast("dict[str, Any]", stored).values():
            yield from _referred(one)
    elif isinstance(stored, list):
        kind, content = cast("list[Any]", stored)
        if kind == _WIDGET:
            yield content
        elif kind == _DICT:
            yield from _referred(content)
        elif kind != _TOKEN:
            yield from itertools.chain.from_iterable(map(_referred, content))


def _closed(told: Iterator[Any] | Any) -> str:
    """Return the names of missing widgets, but for layouts and styles, and those that come back with their handles."""
    kinds = Counter(one["kind"] for one in told if not one["kind"].endswith(("Layout", "Style", "HandleWidget")))
    return f"closed since, or of an earlier kernel: {_counted(kinds)}; run the cells that made them" if kinds else ""


def _counted(kinds: Counter[str]) -> str:
    named = ", ".join(f"{kind} ({count})" if count > 1 else kind for kind, count in kinds.most_common(6))
    return named + (f" and {plural(len(kinds) - 6, 'more kinds')}" if len(kinds) > 6 else "")
