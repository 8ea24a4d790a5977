"""Handles as live widgets, and the gestures of people on them.

Rule 1: a message of a widget only queues a gesture. It is carried out while no cell runs, as a meta statement.
Rule 2: a page is untrusted: only checked values become the text of a statement.
Rule 3: a widget contains texts and numbers, never a node; no variable of the user refers to a widget.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand, BadTarget
from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import Graph, NodeBase
from ctxkernel.core.nodes.asked import Asked, AskedChanges
from ctxkernel.core.ports import All
from ctxkernel.core.text import suggest
from ctxkernel.core.timeline import Author
from ctxkernel.kernel.display.handle_traits import accept_handles
from ctxkernel.kernel.execution.cell import CellRequest
from ctxkernel.kernel.execution.guard import Guard
from ctxkernel.kernel.messages.page_input import short_fields, short_text

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import wire as messages

TEXT_CHARS = 50_000
"""Most characters of a rendering in a widget; the output beside it has all."""
CHANGE_CHARS = 4_000
QUEUED = 100
"""Most queued gestures: a page that sends more is not used by a person."""
REST_SECONDS, MOST_SECONDS = 0.4, 5.0
"""A statement makes the changes of callbacks this long after the last of them, and at most so long after the first."""
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


def trait_values(node: NodeBase) -> dict[str, Any]:
    """Return the policy of a handle as the traits of its widget."""
    pos = str(getattr(node, "pos", "")) or None
    line = re.fullmatch(r"(\d{1,15})(:0)?", pos or "")
    return {
        "lod": node.lod,
        "tokens": node.tokens if isinstance(node.tokens, int) else None,
        "pos": pos if line is None else int(line[1]),
        "running": node.mode == "running",
    }


def set_trait(node: NodeBase, name: str, value: object) -> None:
    """Set the policy of a trait, unless it is so. Raises what `node.set` raises."""
    if trait_values(node)[name] != value:
        if name == "running":
            name, value = "mode", "running" if value else "paused"
        node.set(**{name: All if value is None and name == "tokens" else value})


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


_NO_WIDGET = re.compile(r"\b(?:View|Group|Note)Handle\b")


def widget_advice(error: str, message: str) -> str:
    """Return what to do where widgets refuse a handle, which is none; else an empty text."""
    if error not in ("TraitError", "TypeError") or not _NO_WIDGET.search(message):
        return ""
    return "ctxkernel: a handle is no widget; write h.widget for the handle h: VBox([h.widget]), (h.widget, 'tokens')"


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
    """Queues the gestures of people on widgets, and the changes that callbacks ask for, until no cell runs."""

    def __init__(self, kernel: Any, loop: Loop, guard: Guard, tell: Callable[[str], None]) -> None:
        self._kernel, self._loop, self._guard, self._tell = kernel, loop, guard, tell
        self._is_busy: Callable[[], bool]
        self._run: Callable[[CellRequest, Callable[[], None]], str]
        self._dispatch: Callable[[str], object]
        # Any thread may append: a stock kernel may serve comms on a thread of their own.
        self._queue: deque[Gesture] = deque()
        self.asked = AskedChanges(loop.graph, self._soon, busy=self._busy)
        self._due: Any = None
        """The timer for what was asked."""
        self._first_asked = 0.0
        self.between: Callable[[], None] = lambda: None
        """Called while no cell runs, before and after each statement: widgets follow their handles then."""

    def install(self) -> None:
        """Take the changes that callbacks ask for, and let containers of widgets take handles."""
        graph = self._loop.graph
        graph.ask_later, graph.put_back = self.asked.ask, self.asked.put_back
        accept_handles()

    def connect(self, run: Callable[[CellRequest, Callable[[], None]], str], *, busy: Callable[[], bool]) -> None:
        """Set the function that runs a gesture as a statement, and the one that tells whether a cell runs."""
        self._run, self._is_busy = run, busy

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

    def _busy(self) -> bool:
        return self._is_busy()

    def _soon(self) -> None:
        """Carry out what was asked when no more of it comes, and at last after `MOST_SECONDS`."""
        now = time.monotonic()
        if self._due is None:
            self._first_asked = now
        else:
            self._kernel.io_loop.remove_timeout(self._due)
        wait = max(0.0, min(REST_SECONDS, self._first_asked + MOST_SECONDS - now))
        self._due = self._kernel.io_loop.call_later(wait, self.carry_out)

    def carry_out(self) -> None:
        """Carry out what was asked and the queue, unless a cell runs: then its end does. On the main thread only."""
        while not self._busy():
            self.between()
            if self.asked:
                if error := self._guard("gestures", self._make_asked, "gestures are off", self.asked.take()):
                    self._tell(f"ctxkernel: what a callback changed between two cells was not done: {error}")
            elif self._queue:
                self._carry_out_next()
            else:
                return

    def _make_asked(self, asked: list[Asked]) -> str:
        """Make the changes that callbacks asked for, as one statement. Return an error, or an empty text."""
        if self._due is not None:
            self._kernel.io_loop.remove_timeout(self._due)
            self._due = None
        names = self._loop.names.first_names()
        try:
            lines = [line for one in asked for line in one.lines(names)]
        except BadTarget as nameless:
            return str(nameless)

        def run() -> None:
            for one in asked:
                one.make()

        if not lines[-1].startswith("%"):
            lines[-1] += ";"  # where it runs again, it shows nothing either
        return self._run(_request(lines, "human"), run)

    def _carry_out_next(self) -> None:
        gesture = self._queue.popleft()
        error = self._guard("gestures", self._carry_out_one, "gestures are off", gesture)
        self.between()
        try:
            gesture.done(error)
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

        return self._run(_request(lines, "panel"), run)


def _request(lines: list[str], author: Author) -> CellRequest:
    # No request has this id: the output of a gesture belongs to no cell.
    request_id = f"gesture-{uuid.uuid4().hex}"
    return CellRequest("\n".join(lines), request_id, recorded=True, kind="meta", author=author)


def handle_widget(gestures: Gestures, graph: Graph, node: NodeBase, model_id: str, state: Mapping[str, Any]) -> Any:
    """Return a widget for a handle; gestures on it are queued in `gestures`. It refers to the handle by its id.

    Raises ImportError if anywidget is missing.
    """
    from ctxkernel.kernel.display.handle_widget import HandleWidget

    obj_id = node.obj_id

    def set_policy(name: str, value: object) -> None:
        found = graph.node(obj_id) or graph.aside(obj_id)
        if found is None:
            raise BadTarget(f"{obj_id} is gone, and its widget changes nothing; make the handle again")
        set_trait(found, name, value)

    widget = HandleWidget(set_policy, obj_id, model_id, state)

    def receive(widget: Any, content: Any, buffers: Any) -> None:
        gestures.take(obj_id, content, widget.send)

    widget.on_msg(receive)
    return widget
