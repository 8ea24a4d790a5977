"""The panel's side in the kernel: frozen rows, one comm a front end, and a control message for while a cell runs.

Rule 1: handlers only read what the last turn left (law 1); they may run on another thread.
Rule 2: messages are those of `docs/panel-protocol.md`; all texts in them are untrusted.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from ctxkernel._version import __version__
from ctxkernel.core.events import plain
from ctxkernel.core.loop import OpenTurn
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn import DeltaItem, HandleState, TurnResult

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

TARGET = "ctxkernel.panel"
PROTOCOL = 1
ROWS = 500
DELTAS = 300
STREAM_CHARS = 2000
TEXT_CHARS = 4000
CONTROL = "ctxkernel_snapshot_request"


class Panel:
    """Keeps what a panel shows, and tells those that are open."""

    def __init__(self, ctx: Runtime) -> None:
        self._ctx = ctx
        self._comms: dict[str, Any] = {}
        self._widgets: weakref.WeakSet[Any] = weakref.WeakSet()
        self._turns: deque[tuple[Statement, Execution, tuple[DeltaItem, ...]]] = deque(maxlen=ROWS)
        self._seen = 0

    def install(self) -> None:
        """Listen for front ends."""
        kernel = self._ctx.kernel
        kernel.comm_manager.register_target(TARGET, self._opened)
        kernel.control_handlers[CONTROL] = self._control

    def _opened(self, comm: Any, message: Any) -> None:
        self._comms[comm.comm_id] = comm
        comm.on_close(lambda _: self._comms.pop(comm.comm_id, None))
        comm.on_msg(lambda message: self._asked(comm, message))
        comm.send(self.snapshot())

    def _asked(self, comm: Any, message: Any) -> None:
        if ((message.get("content") or {}).get("data") or {}).get("type") == "snapshot":
            comm.send(self.snapshot())

    def _control(self, stream: Any, ident: Any, parent: Any) -> None:
        """Answer on the control channel: it is served while a cell runs, the comm is not."""
        kernel = self._ctx.kernel
        kernel.session.send(stream, "ctxkernel_snapshot_reply", self.snapshot(), parent, ident=ident)

    def _send(self, message: dict[str, Any]) -> None:
        with self._ctx.capture.ours():
            for comm in tuple(self._comms.values()):
                comm.send(message)
            for widget in tuple(self._widgets):
                widget.send(message)

    def follow(self, widget: Any) -> None:
        """Send later turns to an inline panel too."""
        self._widgets.add(widget)

    @property
    def _watched(self) -> bool:
        return bool(self._comms or self._widgets)

    def begin(self, turn: OpenTurn) -> None:
        """A statement began."""
        if turn.outside is not None:
            self._add(*turn.outside, ())
        if self._watched:
            self._send({"type": "begin", "statement": _begun(turn)})

    def turn(self, result: TurnResult) -> None:
        """A turn is over."""
        self._add(result.statement, result.execution, result.deltas)
        if self._watched:
            told = row(result.statement, result.execution, result.deltas)
            message = {"type": "turn", "statement": told, **self._state(result)}
            if result.outside is not None:
                message["outside"] = row(*result.outside, ())
            self._send(message)

    def _add(self, *turn: Any) -> None:
        self._turns.append(turn)  # rows are made of it when somebody looks
        self._seen += 1

    def _state(self, result: TurnResult | None) -> dict[str, Any]:
        ctx = self._ctx
        projection = result.projection.to_json() if result and result.projection is not None else None
        return {
            "head": ctx.loop.log.head,
            "handles": [handle(state, result.handles) for state in result.handles] if result else [],
            "deltas": [plain(item) for item in result.deltas] if result else [],
            "projection": projection,
            "notices": [*ctx.notices, *(f"{step} is off: {why}" for step, why in ctx.guard.off.items())],
        }

    def snapshot(self) -> dict[str, Any]:
        """Return all that a panel shows."""
        ctx = self._ctx
        running = ctx.running
        return {
            "type": "snapshot",
            "protocol": PROTOCOL,
            "version": __version__,
            "python": ctx.environment()["python"],
            "session": ctx.store.session_id,
            "path": str(ctx.store.path) if ctx.store.path else None,
            "running": _begun(running) if running else None,
            "statements": [row(*turn) for turn in tuple(self._turns)],
            "timeline_truncated": max(0, self._seen - ROWS),
            "sent": False,
            **self._state(ctx.last),
            # All that is remembered, where a turn tells its own: a page that was reloaded shows the whole feed.
            "deltas": [plain(item) for *_, deltas in tuple(self._turns) for item in deltas][-DELTAS:],
        }


def _begun(turn: OpenTurn) -> dict[str, Any]:
    statement = turn.statement
    return {
        "statement_id": statement.statement_id,
        "index": statement.index,
        "source": statement.source,
        "author": statement.author,
        "kind": statement.kind,
        "cell_id": statement.cell_id,
        "started_at": turn.execution.started_at,
    }


def row(statement: Statement, execution: Execution, deltas: tuple[DeltaItem, ...]) -> dict[str, Any]:
    """Return the panel's row of one execution."""
    return {
        "statement_id": statement.statement_id,
        "index": statement.index,
        "execution_id": execution.execution_id,
        "cell_id": statement.cell_id,
        "author": statement.author,
        "kind": statement.kind,
        "status": execution.status,
        "source": statement.source[:20_000],
        "timestamp": statement.timestamp,
        "started_at": execution.started_at,
        "ended_at": execution.ended_at,
        "time_ms": execution.cost.time_ms,
        "stdout": execution.stdout[:STREAM_CHARS],
        "stderr": execution.stderr[:STREAM_CHARS],
        "cut": dict(execution.cut),
        "late": dict(execution.late),
        "exception": plain(execution.exception),
        "diff": plain(execution.state_diff),
        "artifacts": [
            {"kind": artifact.kind, "name": artifact.name, "mime": artifact.mime, "size": artifact.size}
            for artifact in execution.artifacts
            if artifact.kind != "read"
        ],
        "notices": list(execution.notices),
        "nodes": [{"name": item.subject, "summary": item.summary} for item in deltas if item.kind in ("node", "tick")],
    }


def handle(state: HandleState, all_states: tuple[HandleState, ...]) -> dict[str, Any]:
    """Return the panel's view of one handle."""
    names = {other.obj_id: other.name for other in all_states}
    digest = state.digest
    return {
        "name": state.name,
        "obj_id": state.obj_id,
        "obj_type": state.obj_type,
        "target": digest.get("target"),
        "kind": digest.get("kind"),
        "mode": digest.get("mode"),
        "freq": digest.get("freq"),
        "lod": digest.get("lod"),
        "tokens": digest.get("tokens"),
        "pos": digest.get("pos"),
        "pinned": state.pinned,
        "pin_reason": state.pin_reason,
        "changed": state.changed,
        "revision": digest.get("revision"),
        "members": [names.get(member, member) for member in state.members],
        "rendered_tokens": state.rendered_tokens,
        "text": state.text[:TEXT_CHARS],
        "notes": list(state.notes),
    }
