"""The functions that the user calls in a cell: view, group, note, show, pin, tick, ls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxkernel.core.errors import BadTarget
from ctxkernel.core.jobs import Preparer, Summarise
from ctxkernel.core.names import UserNames
from ctxkernel.core.nodes import Graph, GroupHandle, NodeBase, NoteHandle, ViewHandle
from ctxkernel.core.nodes.handle_states import handle_states
from ctxkernel.core.nodes.identity import ConstructorCalls
from ctxkernel.core.nodes.node_base import Delta, show_value
from ctxkernel.core.ports import Budget, Rendered
from ctxkernel.core.scheduler import ReadyQueue, Tick, run_tick
from ctxkernel.core.timeline_events import Event, MethodCalled, NodeChanged
from ctxkernel.core.turn_values import HandleState, HandleTable


class HandleFunctions:
    """The functions for handles that the user calls, and the handles of one session."""

    def __init__(self, graph: Graph, names: UserNames) -> None:
        self.graph = graph
        self.names = names
        self.ready = ReadyQueue()
        self.preparer: Preparer | None = None
        """The background worker; None: the tick does everything."""
        self.summarise: Summarise | None = None
        """Requests summaries from a model, where `summary_model` names one."""
        self.ticked = False
        """Whether there were handles at the last tick: then background jobs may be running."""
        self.turn_id: int = 0
        self.now = 0.0
        self._events: list[Event] = []
        graph.emit = self._events.append
        self._constructors: ConstructorCalls | None = None
        """The calls of `view`, `group` and `note` in the open statement."""

    def handles(self) -> tuple[HandleState, ...]:
        """Return the current handles: named ones, members of their groups, and running or pinned ones."""
        nodes = self.graph.nodes()
        return handle_states(nodes, self.names.first_names(), self.graph.requested) if nodes else ()

    def view(
        self,
        target: object,
        pos: object = "0:0",
        tokens: object = None,
        lod: object = 0,
        mode: object = None,
        freq: object = None,
    ) -> ViewHandle:
        """Look at a file, a folder, a URI or a Python object, at a level of detail, within a budget.

        target  path, pattern ("data/*.csv"), URI, open file, folder, data frame, array, "s12", or any other object
        pos     where: a line from 0, "line:col", a name ("Model.fit", a heading, a row label, an entry), "/pattern/",
                -20 or "end" from the end
        tokens  budget of the rendering in estimated tokens, or All
        lod     0 raw excerpt · 1 structure · 2 summary · 3 diff against the last rendering
        mode    "paused" (changes by calls only) or "running" (the tick after each cell updates it)
        freq    "Sync" each turn · "Periodic" (60 s) or ("Periodic", seconds) · "Async"; giving one sets it running

        Raises BadTarget and BadPolicy with the next move. Returns a handle: `h.lod = 1`,
        `h.set(lod=1, tokens=300).run()`, `h.scroll(50)`, `h.refresh()`, `h.pause()`.
        """
        node = ViewHandle(self.graph, target, pos=pos, tokens=tokens, lod=lod, mode=mode, freq=freq)
        return self._made(
            node, "view", (target,), {"pos": pos, "tokens": tokens, "lod": lod, "mode": mode, "freq": freq}
        )

    def group(
        self,
        *members: NodeBase,
        tokens: object = None,
        lod: object = 2,
        mode: object = None,
        freq: object = None,
    ) -> GroupHandle:
        """Summarise one or more handles within one budget; the summary follows its members.

        tokens  budget of the whole summary in estimated tokens, or All
        lod     level at which the members are shown, whatever their own: 0, 1, 2 or 3
        mode    "running" (follows its members) or "paused"
        freq    "Sync" each turn · "Periodic" (60 s) or ("Periodic", seconds) · "Async"

        Groups nest. Raises BadTarget, BadPolicy, CyclicGroup.
        """
        node = GroupHandle(self.graph, members, tokens=tokens, lod=lod, mode=mode, freq=freq)
        return self._made(node, "group", members, {"tokens": tokens, "lod": lod, "mode": mode, "freq": freq})

    def note(self, text: str, tokens: object = None, lod: object = 0, pinned: object = False) -> NoteHandle:
        """Put a text of yours into what the model is sent, from this cell on.

        text    what it shall know or keep in mind; `n.text = "…"` writes another one
        tokens  budget in estimated tokens, or All
        lod     0 whole · 1 first lines of its paragraphs · 2 first line · 3 the last edit
        pinned  whether it stands before others where there is too little room (`n.pin()`, `n.unpin()`)

        It stays until its last name is deleted, or `n.drop()`. Raises BadPolicy with the next move.
        """
        node = NoteHandle(self.graph, text, tokens=tokens, lod=lod, pinned=pinned)
        return self._made(node, "note", (text,), {"tokens": tokens, "lod": lod, "pinned": pinned})

    def _made(self, node: Any, how: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        node = self.graph.settle(node)
        if self._constructors is not None:
            self._constructors.gave(node)
        given = {key: show_value(value) for key, value in kwargs.items() if value is not None}
        digest = node.digest()
        self.graph.emit(MethodCalled(node.obj_id, node.obj_type, how, tuple(map(show_value, args)), given, {}, digest))
        made = f"made, lod {node.lod}, ~{node.rendered.tokens} tokens: {node.target}"
        self.graph.changed(node, Delta(made))
        return node

    def show(self, obj: object, lod: int | None = None, tokens: Budget | None = None) -> Rendered:
        """Return the content of a handle now, and send it with the next request to a model.

        lod and tokens override the handle's own, for this rendering only. Raises BadTarget.
        """
        node = _handle(obj, "show")
        rendered = node.render(lod, tokens)
        self.graph.requested.add(node.obj_id)
        return rendered

    def pin(self, obj: object, reason: str = "") -> Any:
        """Keep a handle in the projection before others; `h.unpin()` ends it. Raises BadTarget."""
        return _handle(obj, "pin").pin(reason)

    def tick(self) -> tuple[str, ...]:
        """Run the tick now, inside the cell: running handles look at their targets.

        Returns one line for each that changed. (One runs by itself after every cell.)
        """
        self.graph.check_open("tick", "run")
        mark, self.ticked = len(self._events), True
        run_tick(Tick(self.graph, self.ready, self.now, self.turn_id + 1, lambda: False, self.preparer, self.summarise))
        return tuple(f"{e.obj_id}: {e.delta.summary}" for e in self._events[mark:] if isinstance(e, NodeChanged))

    def ls(self) -> HandleTable:
        """Return the handles with their digests; shows as a table."""
        self.names.scan()
        return HandleTable(self.handles())


for _name in ("view", "group", "note", "show", "pin", "tick", "ls"):
    # The user calls `view(…)`: an error about its arguments must not mention `HandleFunctions.view`.
    getattr(HandleFunctions, _name).__qualname__ = _name


def _handle(obj: object, verb: str) -> NodeBase:
    if isinstance(obj, NodeBase):
        return obj
    raise BadTarget(f"{verb} takes a handle, and {type(obj).__name__} is none; make one: {verb}(view(…))")
