"""Handles as live widgets, and the gestures of people on them.

Rule 1: a message of a widget only queues a gesture. It is carried out while no cell runs, as a meta statement.
Rule 2: a page is untrusted: only checked values become the text of a statement.
Rule 3: a widget contains texts and numbers, never a node; no variable of the user refers to a widget.
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.ports import All
from ctxkernel.core.text import suggest
from ctxkernel.kernel.display.bundle import bundle_modules
from ctxkernel.kernel.execution.cell import CellRequest
from ctxkernel.kernel.execution.guard import Guard
from ctxkernel.kernel.messages import wire as messages
from ctxkernel.kernel.messages.page_input import short_fields, short_text

FOLDER = Path(__file__).parents[2] / "lab"
TEXT_CHARS = 50_000
"""Most characters of a rendering in a widget; the output beside it has all."""
CHANGE_CHARS = 4_000
QUEUED = 100
"""Most queued gestures: a page that sends more is not used by a person."""
_WRONG_CHANGE = "a gesture sets lod, tokens or mode, or refreshes"


def named_handle(loop: Loop, namespace: Mapping[str, Any], name: str) -> NodeBase | None:
    """Return the handle in a variable, or with an id."""
    value = namespace.get(name)
    return value if isinstance(value, NodeBase) else loop.graph.node(name)


def require_handle(loop: Loop, namespace: Mapping[str, Any], name: str, usage: str) -> NodeBase:
    """Return the handle in a variable, or with an id. Raises BadCommand, which begins with `usage`."""
    node = named_handle(loop, namespace, name)
    if node is None:
        close_ones = suggest(name, [state.name for state in loop.ls()])
        raise BadCommand(f"{usage}: no handle {name!r}{close_ones}; ls() lists them")
    return node


# -- widgets ---------------------------------------------------------------------------------------


@functools.cache
def widget_module() -> str:
    """Return the widget's script as one module without comments: each widget contains a copy."""
    return bundle_modules(FOLDER / "widget/handle.js", comments=False)


@functools.cache
def widget_class() -> Any:
    """Return the class of the widgets. Raises ImportError if anywidget is missing."""
    # Imported late: it costs 0.2 s, and a run without a front end shows no widget.
    import anywidget
    import traitlets

    class HandleWidget(anywidget.AnyWidget):
        """Shows one handle, in every output that displays it."""

        _esm: Any = widget_module()
        _css: Any = (FOLDER / "widget/handle.css").read_text(encoding="utf-8")
        facts: Any = traitlets.Dict().tag(sync=True)
        text: Any = traitlets.Unicode().tag(sync=True)
        own_id: Any = traitlets.Unicode().tag(sync=True)
        """Its `model_id`, which a page cannot read otherwise."""

        def set_state(self, sync_data: Any) -> None:
            """Ignore values from a page (rule 2)."""

    return HandleWidget


def handle_facts(node: NodeBase, name: str, *, aside: bool, changed: bool, before: int | None) -> messages.HandleFacts:
    """Return the data of a widget, other than its text, as JSON values.

    `before` is the size of the rendering before the last one, in estimated tokens. A budget of None is `All`.
    """
    shown, picture = node.rendered, node.rendered.picture
    return {
        "name": name,
        "obj_id": node.obj_id,
        "type": node.obj_type,
        "target": node.target,
        "lod": node.lod,
        "tokens": node.tokens if isinstance(node.tokens, int) else None,
        "mode": node.mode,
        "freq": str(node.freq),
        "pinned": node.pinned,
        "used": shown.tokens,
        "before": before,
        "changed": changed,
        "change": node.last_change[:CHANGE_CHARS] if node.lod != 3 else "",
        "notes": [*shown.notes, *([node.fault] if node.fault else [])],
        "more": max(0, len(shown.text) - TEXT_CHARS),
        "picture": None if picture is None else {"media_type": picture.media_type, "data": picture.data},
        "aside": aside,
    }


# -- gestures --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gesture:
    """A checked gesture on a widget."""

    obj_id: str
    lines: Callable[[str], list[str]]
    """Handle's name → the lines of the statement."""
    done: Callable[[str], None]
    """Called when the gesture was carried out, with an error or an empty text."""


def gesture_lines(change: object) -> Callable[[str], list[str]]:
    """Return a function from a handle's name to the lines of the statement. Raises BadCommand for a wrong change."""
    wanted = short_fields(change, "the change of a gesture")
    policy = {key: wanted[key] for key in ("lod", "tokens", "mode") if key in wanted}
    if not (policy or wanted.get("refresh")) or wanted.keys() - {"lod", "tokens", "mode", "refresh"}:
        raise BadCommand(_WRONG_CHANGE)
    for key in ("lod", "tokens"):
        value = policy.get(key, 1)
        if not (isinstance(value, int) and not isinstance(value, bool)) and not (key == "tokens" and value is None):
            raise BadCommand(f"{key} of a gesture is a whole number")
    if policy.get("mode", "paused") not in ("paused", "running"):
        raise BadCommand("mode of a gesture is paused or running")
    values = {key: str(All) if value is None else str(value) for key, value in policy.items()}

    def lines(name: str) -> list[str]:
        setting = "%ctx set " + " ".join(f"{name}.{key}={value}" for key, value in values.items())
        refresh = [f"%ctx refresh {name}"] if wanted.get("refresh") else []
        return [setting, *refresh] if values else refresh

    return lines


class Gestures:
    """Queues the gestures of people on widgets until they can be carried out."""

    def __init__(self, kernel: Any, loop: Loop, guard: Guard) -> None:
        self._kernel, self._loop, self._guard = kernel, loop, guard
        self._busy: Callable[[], bool]
        self._run: Callable[[CellRequest, Callable[[], None]], str]
        self._dispatch: Callable[[str], object]
        # Any thread may append: a stock kernel may serve comms on a thread of their own.
        self._queue: deque[Gesture] = deque()

    def connect(self, run: Callable[[CellRequest, Callable[[], None]], str], *, busy: Callable[[], bool]) -> None:
        """Set the function that runs a gesture as a statement, and the one that tells whether a cell runs."""
        self._run, self._busy = run, busy

    def set_dispatch(self, dispatch: Callable[[str], object]) -> None:
        """Set the function that runs a line of `%ctx`."""
        self._dispatch = dispatch

    def take(self, obj_id: str, content: object, answer: Callable[[messages.GestureDone], None]) -> None:
        """Queue a widget's gesture; `answer` is called when it was carried out. Callable from any thread."""
        message: Mapping[str, Any] = cast("Mapping[str, Any]", content) if isinstance(content, dict) else {}
        if message.get("type") != "gesture":
            return
        key = (short_text(message.get("id")) or "")[:64]

        def done(error: str) -> None:
            answer({"type": "done", "id": key, "error": error[:500]})

        try:
            lines = gesture_lines(message.get("change"))
            if len(self._queue) >= QUEUED:
                raise BadCommand("too many gestures are queued; try again when the cell has ended")
        except BadCommand as refusal:
            done(str(refusal))
            return
        self._queue.append(Gesture(obj_id, lines, done))
        if threading.current_thread() is threading.main_thread():
            self.carry_out()
        else:
            self._kernel.io_loop.add_callback(self.carry_out)

    def carry_out(self) -> None:
        """Carry out the queue, unless a cell runs: then its end does. On the main thread only."""
        while self._queue and not self._busy():
            gesture = self._queue.popleft()
            try:
                gesture.done(self._guard("gestures", self._carry_out_one, "gestures are off", gesture))
            except Exception as unheard:  # the page is closed; the gesture was carried out
                self._kernel.log.debug("the page of a gesture is closed: %s", unheard)

    def _carry_out_one(self, gesture: Gesture) -> str:
        """Carry out a gesture as a statement. Return an error, or an empty text."""
        graph = self._loop.graph
        if graph.node(gesture.obj_id) is None:
            where = "is not on this branch" if graph.aside(gesture.obj_id) is not None else "is gone"
            return f"{gesture.obj_id} {where}"
        name = self._loop.names.first_names().get(gesture.obj_id, gesture.obj_id)
        if require_handle(self._loop, self._kernel.shell.user_ns, name, "a gesture").obj_id != gesture.obj_id:
            return f"another handle has the name {name}: give this one a name of its own, and show that"
        lines = gesture.lines(name)

        def run() -> None:
            for line in lines:
                self._dispatch(line.removeprefix("%ctx "))

        # No request has this id: the output of a gesture belongs to no cell.
        request_id = f"gesture-{uuid.uuid4().hex}"
        return self._run(CellRequest("\n".join(lines), request_id, recorded=True, kind="meta", author="panel"), run)


def handle_widget(gestures: Gestures, obj_id: str, **state: Any) -> Any:
    """Return a widget for a handle; gestures on it are queued in `gestures`."""
    own_id = uuid.uuid4().hex
    widget = widget_class()(model_id=own_id, own_id=own_id, **state)

    def receive(widget: Any, content: Any, buffers: Any) -> None:
        gestures.take(obj_id, content, widget.send)

    widget.on_msg(receive)
    return widget
