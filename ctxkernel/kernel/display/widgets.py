"""Handles as live widgets, and the gestures that come from them.

Rule 1: a message of a widget only queues. What is queued is carried out where no cell runs, as a meta statement.
Rule 2: what a page says is a stranger's: only what is checked here becomes the text of a statement.
Rule 3: a widget holds texts and numbers, never a node; no variable of the user's holds a widget.
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.ports import All
from ctxkernel.kernel import messages
from ctxkernel.kernel.display.bundle import bundle
from ctxkernel.kernel.execution.cell import CellRequest

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

FOLDER = Path(__file__).parents[2] / "lab"
TEXT_CHARS = 50_000
"""So much of a rendering is in a widget; the output beside it has all."""
CHANGE_CHARS = 4_000
SETTABLE = ("lod", "tokens", "mode", "freq", "pos")
QUEUED = 100
"""Gestures that wait, at most: a page that sends more than that is not a person's."""


# -- what a widget is ------------------------------------------------------------------------------


@functools.cache
def widget_module() -> str:
    """Return the widget's script as one module, without its comments: each widget carries it."""
    return bundle(FOLDER / "widget/handle.js", comments=False)


@functools.cache
def widget_class() -> type[Any]:
    """Return the class of the widgets. Raises ImportError where anywidget cannot be had."""
    # Imported here: it costs 0.2 s, and a run without anybody who looks never shows one.
    import anywidget
    import traitlets

    class HandleWidget(anywidget.AnyWidget):
        """Shows one handle, in as many places as it is displayed in."""

        _esm = widget_module()
        _css = (FOLDER / "widget/handle.css").read_text(encoding="utf-8")
        facts = traitlets.Dict().tag(sync=True)
        text = traitlets.Unicode().tag(sync=True)
        own_id = traitlets.Unicode().tag(sync=True)
        """Its `model_id`, which a page does not tell it."""

        def set_state(self, sync_data: Any) -> None:
            """Take nothing from a page: it shows what the kernel says (rule 2)."""

    return HandleWidget


def facts(node: NodeBase, name: str, *, aside: bool, changed: bool, before: int | None) -> messages.HandleFacts:
    """Return what a widget shows of a handle besides its text, as JSON values.

    `before` is the size of the rendering before the last one, in estimated tokens. A budget of null is `All`.
    """
    shown, seen = node.rendered, node.rendered.picture
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
        "picture": None if seen is None else {"media_type": seen.media_type, "data": seen.data},
        "aside": aside,
    }


# -- gestures --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gesture:
    """What a person did to a widget, checked."""

    obj_id: str
    lines: Callable[[str], list[str]]
    """The lines of the statement, for the name of the handle."""
    done: Callable[[str], None]
    """Called when it is carried out, with why it could not be, or with nothing."""


def asked_lines(change: object) -> Callable[[str], list[str]]:
    """Return what gives the lines of a statement for what a page asks for. Raises BadCommand."""
    wanted: Mapping[str, Any] = change if isinstance(change, dict) else {}
    policy = {key: wanted[key] for key in ("lod", "tokens", "mode") if key in wanted}
    if not wanted or wanted.keys() - {"lod", "tokens", "mode", "refresh"}:
        raise BadCommand("a gesture sets lod, tokens or mode, or refreshes")
    for key in ("lod", "tokens"):
        value = policy.get(key, 1)
        if not (isinstance(value, int) and not isinstance(value, bool)) and not (key == "tokens" and value is None):
            raise BadCommand(f"{key} of a gesture is a whole number")
    if policy.get("mode", "paused") not in ("paused", "running"):
        raise BadCommand("mode of a gesture is paused or running")
    told = {key: str(All) if value is None else str(value) for key, value in policy.items()}

    def lines(name: str) -> list[str]:
        made = ["%ctx set " + " ".join(f"{name}.{key}={value}" for key, value in told.items())] if told else []
        return [*made, f"%ctx refresh {name}"] if wanted.get("refresh") else made

    if not lines(""):
        raise BadCommand("a gesture sets lod, tokens or mode, or refreshes")
    return lines


class Gestures:
    """What people did to widgets, until it is carried out."""

    def __init__(self, ctx: Runtime) -> None:
        self._ctx = ctx
        self.dispatch: Callable[[str], object]
        """Carries out a line of `%ctx`; set by the commands."""
        # Appended to from any thread: a stock kernel may serve comms on a thread of their own.
        self._queue: deque[Gesture] = deque()

    def take(self, obj_id: str, content: object, answer: Callable[[messages.GestureDone], None]) -> None:
        """Queue what a widget of `obj_id` says; `answer` is sent when it is carried out. Callable from any thread."""
        said: Mapping[str, Any] = content if isinstance(content, dict) else {}
        if said.get("type") != "gesture":
            return
        key = str(said.get("id"))[:64]

        def done(error: str) -> None:
            answer({"type": "done", "id": key, "error": error[:500]})

        try:
            lines = asked_lines(said.get("change"))
            if len(self._queue) >= QUEUED:
                raise BadCommand("too many gestures wait already; try again when the cell has ended")
        except BadCommand as refusal:
            done(str(refusal))
            return
        self._queue.append(Gesture(obj_id, lines, done))
        if threading.current_thread() is threading.main_thread():
            self.carry_out()
        else:
            self._ctx.kernel.io_loop.add_callback(self.carry_out)

    def carry_out(self) -> None:
        """Carry out what is queued, unless a cell runs: then its end does. On the main thread only."""
        ctx = self._ctx
        while self._queue and not ctx.turns.executing:
            gesture = self._queue.popleft()
            try:
                gesture.done(ctx.guard("gestures", self._one, "gestures are off", gesture))
            except Exception as unheard:  # the page is gone; what was to be done is done
                ctx.kernel.log.debug("nobody heard of a gesture: %s", unheard)

    def _one(self, gesture: Gesture) -> str:
        """Carry one out as a statement. Returns why it could not be, or nothing."""
        ctx = self._ctx
        graph = ctx.loop.graph
        if graph.node(gesture.obj_id) is None:
            where = "is not on this branch" if graph.aside(gesture.obj_id) is not None else "is gone"
            return f"{gesture.obj_id} {where}"
        name = ctx.name_of(gesture.obj_id)
        if handle_named(ctx, name, "a gesture").obj_id != gesture.obj_id:
            return f"another handle has the name {name}: give this one a name of its own, and show that"
        lines = gesture.lines(name)

        def run() -> None:
            for line in lines:
                self.dispatch(line.removeprefix("%ctx "))

        source = "\n".join(lines)
        request = CellRequest(source, new_request_id(), recorded=True, kind="meta", author="panel")
        return ctx.turns.gesture(request, run)


# -- the commands that gestures are ------------------------------------------------------------------


def handle_named(ctx: Runtime, name: str, usage: str) -> NodeBase:
    """Return the handle of that name or id. Raises BadCommand."""
    value = ctx.shell.user_ns.get(name)
    node = value if isinstance(value, NodeBase) else ctx.loop.graph.node(name)
    if node is None:
        from ctxkernel.core.text import suggest

        close_ones = suggest(name, [state.name for state in ctx.loop.ls()])
        raise BadCommand(f"{usage}: no handle {name!r}{close_ones}; ls() lists them")
    return node


def set_policy(ctx: Runtime, args: Sequence[str]) -> None:
    """`%ctx set HANDLE.lod=1 …`: set the policy of handles, each handle's at once. Raises BadCommand, BadPolicy."""
    usage = "%ctx set HANDLE.lod=1 HANDLE.tokens=300|All HANDLE.mode=running|paused HANDLE.freq=Sync HANDLE.pos=120"
    policies: dict[str, dict[str, Any]] = {}
    for word in args:
        key, sign, value = word.partition("=")
        name, dot, what = key.rpartition(".")
        if not (sign and dot and name and value):
            raise BadCommand(f"%ctx set {word}: write HANDLE.NAME=VALUE; {usage}")
        number = what in ("lod", "tokens") and value.isdecimal()
        policies.setdefault(name, {})[what] = All if value == str(All) else int(value) if number else value
    if not policies:
        raise BadCommand(f"{usage}: what shall be set?")
    nodes = {name: handle_named(ctx, name, f"%ctx set {name}") for name in policies}
    for name, policy in policies.items():
        try:
            nodes[name].set(**policy)
        except CtxError as refusal:
            raise BadCommand(f"%ctx set: {refusal}") from None


def refresh(ctx: Runtime, args: Sequence[str]) -> None:
    """`%ctx refresh HANDLE …`: look again. Raises BadCommand."""
    if not args:
        raise BadCommand("%ctx refresh HANDLE: which handle? ls() lists them")
    for node in [handle_named(ctx, name, f"%ctx refresh {name}") for name in args]:
        node.refresh()


def complete(ctx: Runtime, sub: str) -> list[str]:
    """Return what may follow on a line of these commands."""
    states = ctx.loop.ls()
    if sub != "set":
        return [state.name for state in states]
    return [
        f"{state.name}.{what}=" for state in states for what in SETTABLE if what != "pos" or state.obj_type == "view"
    ]


def handle_widget(gestures: Gestures, obj_id: str, **state: Any) -> Any:
    """Return a widget for the handle of that id; what is done to it is queued in `gestures`."""
    own_id = uuid.uuid4().hex
    widget = widget_class()(model_id=own_id, own_id=own_id, **state)
    widget.on_msg(lambda widget, content, buffers: gestures.take(obj_id, content, widget.send))
    return widget


def new_request_id() -> str:
    """Return an id that no request has: what a gesture shows belongs to no cell."""
    return f"gesture-{uuid.uuid4().hex}"
