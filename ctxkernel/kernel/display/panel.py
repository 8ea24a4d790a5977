"""The panel's side in the kernel: frozen rows, one comm a front end, and a control message for while a cell runs.

Rule 1: handlers only read what the last turn left (law 1); they may run on another thread. A plan reads too.
Rule 2: messages are those of `docs/panel-protocol.md`; all texts in them are untrusted.
Rule 3: nothing is made that nobody looks at, and a kernel without checkpoints has a panel without them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ctxkernel._version import __version__
from ctxkernel.agent.markdown import safe_markdown
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.events import plain
from ctxkernel.core.replay import CheckpointInfo, Comparison, HeadMove
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn import DeltaItem, HandleState, OpenTurn, TurnResult
from ctxkernel.history.events import Action, AssistantMessage
from ctxkernel.kernel import messages
from ctxkernel.kernel.display.history_rows import Recorded, Recording
from ctxkernel.kernel.turn.classification import moves_head
from ctxkernel.projection.compare import compare
from ctxkernel.projection.value import Projection
from ctxkernel.store.log.reader import stored_projection

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

T = TypeVar("T")

TARGET = "ctxkernel.panel"
PROTOCOL = 1
ROWS = 500
"""Rows of a snapshot: the newest ones …"""
ROWS_OF_PATH = 100
"""… of which so many may be the last of the way to HEAD, where that lies further back."""
DELTAS = 300
STREAM_CHARS = 2000
TEXT_CHARS = 4000
CHANGES = 500
"""Blocks of a comparison that are told."""
ACTIONS = ("goto", "undo", "rerun")
TAGS = tuple(messages.Tags.__annotations__)
"""Tags of a statement of the model that a row tells."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a turn said of an execution that the timeline does not keep."""

    deltas: tuple[DeltaItem, ...] = ()
    moved: HeadMove | None = None
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What a person said: names of states by execution, marks by statement or cell."""

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    marks: Mapping[str, str] = field(default_factory=dict[str, str])

    def of(self, statement: Statement, execution_id: str) -> messages.Said:
        """Return what a row tells of it; that may change when the row is old."""
        own = {self.marks.get(statement.statement_id), self.marks.get(statement.cell_id or "")}
        return {
            "names": sorted(name for name, where in self.names.items() if where == execution_id),
            "marks": {
                "differs": "differs" in own or statement.tags.get("differs") is True,
                "asks": "asks" in own or statement.tags.get("asks") is True,
            },
        }


class Panel:
    """Keeps what a panel shows, and tells those that are open."""

    def __init__(self, ctx: Runtime) -> None:
        self._ctx = ctx
        self.comms: dict[str, Any] = {}
        self._widgets: weakref.WeakSet[Any] = weakref.WeakSet()
        self._told: dict[str, Told] = {}
        self._said = Said()
        """What a person had said of states and statements at the last turn."""
        self._recording = Recording()
        self._was_sent = False
        self._looked = 0
        """How many statements it was looked at whether they are answers of a model."""
        self._recorded: Recorded | None = None
        """What had been recorded in the model's history at the last turn."""
        self._answers: dict[str, Callable[[Mapping[str, Any]], messages.KernelMessage]] = {
            "snapshot": lambda _: self.snapshot(),
            "plan": self.plan,
            "events": self.events,
            "compare": self.compare,
        }
        """What a front end may ask for; nothing of it changes anything."""

    def install(self) -> None:
        """Listen for front ends."""
        kernel = self._ctx.kernel
        kernel.comm_manager.register_target(TARGET, self._opened)
        for name, make in self._answers.items():
            kernel.control_handlers[f"ctxkernel_{name}_request"] = self._control(f"ctxkernel_{name}_reply", make)

    def _opened(self, comm: Any, message: Any) -> None:
        self.comms[comm.comm_id] = comm
        comm.on_close(lambda _: self.comms.pop(comm.comm_id, None))
        comm.on_msg(lambda message: self.answer(comm.send, _data(message)))
        comm.send(self.snapshot())

    def answer(self, send: Callable[[messages.KernelMessage], None], asked: Mapping[str, Any]) -> None:
        """Answer what a front end asks by its comm, or an inline panel by its widget."""
        make = self._answers.get(str(asked.get("type")))
        if make is not None:
            send(make(asked))

    def _control(self, reply: str, make: Callable[[Mapping[str, Any]], messages.KernelMessage]) -> Callable[..., None]:
        """Answer on the control channel: it is served while a cell runs, the comm is not."""

        def handle(stream: Any, ident: Any, parent: Any) -> None:
            asked = parent.get("content") if isinstance(parent, dict) else None
            answer = make(asked if isinstance(asked, dict) else {})
            self._ctx.kernel.session.send(stream, reply, answer, parent, ident=ident)

        return handle

    def plan(self, asked: Mapping[str, Any]) -> messages.PlanAnswer:
        """Return what a return or a re-run would do, or why it cannot be done. Changes nothing."""
        plan, error = _answered(asked, self._plan)
        return {"type": "plan", "id": asked.get("id"), "plan": plan, "error": error}

    def events(self, asked: Mapping[str, Any]) -> messages.EventsAnswer:
        """Return what a condensation stands for, or why that cannot be said. Changes nothing."""
        events, error = _answered(asked, self._events)
        return {"type": "events", "id": asked.get("id"), "events": events, "error": error}

    def compare(self, asked: Mapping[str, Any]) -> messages.CompareAnswer:
        """Return how two projections differ, or why that cannot be said. Changes nothing."""
        compared, error = _answered(asked, self._compare)
        return {"type": "compare", "id": asked.get("id"), "compare": compared, "error": error}

    def _plan(self, asked: Mapping[str, Any]) -> messages.Plan:
        action, target, upto = asked.get("action"), asked.get("target"), asked.get("upto")
        back = self._ctx.returning
        if action not in ACTIONS or not isinstance(target, str):
            raise BadCommand(f"there is no plan for {action!r} of {target!r}")
        if back is None:
            raise BadCommand("checkpoints are off in this kernel; %ctx status says why")
        return back.plan_json(
            action, target, before=asked.get("before") is True, upto=upto if isinstance(upto, str) else None
        )

    def _events(self, asked: Mapping[str, Any]) -> messages.CondensedEvents:
        """Return what a condensation stands for, as it was at the last turn."""
        if self._recorded is None:
            raise BadCommand("nothing is condensed here")
        return self._recorded.condensed(str(asked.get("of")))

    def _compare(self, asked: Mapping[str, Any]) -> messages.Compared:
        """Return what is different between the projections after two statements; no `new` is that of the last turn."""
        old, new = self._after(asked.get("old")), self._after(asked.get("new"))
        found = cast("messages.Compared", compare(old, new).to_json())
        more = max(0, len(found["changes"]) - CHANGES)
        return {**found, "changes": found["changes"][:CHANGES], "more": more, "sizes": [old.tokens, new.tokens]}

    def _after(self, place: Any) -> Projection:
        if isinstance(place, str):
            return stored_projection(self._ctx.store.path, place)
        last = self._ctx.turns.last
        if last is None or last.projection is None:
            raise BadCommand("there is no projection yet: run a cell first")
        return last.projection

    def _send(self, message: messages.KernelMessage) -> None:
        with self._ctx.capture.ours():
            for comm in tuple(self.comms.values()):
                comm.send(message)
            for widget in tuple(self._widgets):
                widget.send(message)

    def follow(self, widget: Any) -> None:
        """Send later turns to an inline panel too."""
        self._widgets.add(widget)
        widget.on_msg(lambda widget, content, buffers: self.answer(widget.send, content))

    @property
    def _watched(self) -> bool:
        return bool(self.comms or self._widgets)

    @property
    def pages(self) -> frozenset[str]:
        """The front ends that are open now."""
        return frozenset((*self.comms, *(str(id(widget)) for widget in self._widgets)))

    def proposal(self) -> None:
        """Something of the model's waits for the user, or does not any more."""
        if self._watched:
            self._send({"type": "proposal", "proposal": self._ctx.asking.proposal})

    def asking(self) -> None:
        """The model is being asked, or is not any more."""
        if self._watched:
            self._send({"type": "asking", "asking": self._ctx.asking.under_way})

    def begin(self, turn: OpenTurn) -> None:
        """A statement began."""
        if self._watched:
            self._send({"type": "begin", "statement": _begun(turn), "head": self._ctx.loop.log.head})

    def turn(self, result: TurnResult) -> None:
        """A turn is over."""
        self._recorded = self._recording.take(self._ctx.engine.past)
        execution = result.execution
        if result.deltas or result.moved is not None or result.comparison is not None:
            self._told[execution.execution_id] = Told(result.deltas, result.moved, result.comparison)
            if len(self._told) > ROWS:
                del self._told[next(iter(self._told))]
        if not self._watched:
            return
        before, said = self._said, self._says()
        self._said = said
        message: messages.TurnMessage = {
            "type": "turn",
            "statement": self._row(result.statement, execution, said),
            **self._state(result),
        }
        if result.outside is not None:
            message["outside"] = self._row(*result.outside, said)
        if before != said:
            message["rows"] = self._amended(before, said)
        if result.moved is not None:
            message["branches"] = self._branches()
        if self._ctx.settings.insert_cells and (copy := self._copy(result.statement, execution)) is not None:
            message["insert"] = copy
        self._send(message)
        if result.moved is not None and result.moved.reason == "resume":
            self._looked = 0
            # The log has an earlier kernel's executions now, which no front end knows.
            self._send(self.snapshot())

    def _copy(self, statement: Statement, execution: Execution) -> messages.Copy | None:
        """Return the cell that a front end puts below the ask for what the model said or ran; None for all else."""
        ask = statement.tags.get("ask")
        if statement.author != "model" or not isinstance(ask, str) or statement.tags.get("held"):
            return None
        asked = self._ctx.loop.log.statement(ask.partition(".")[0])
        copy: messages.Copy = {
            "after": asked.cell_id,
            "ask": ask,
            "statement": statement.statement_id,
            "ends": False,
            "cell_type": "code",
            "source": statement.source,
            "outputs": [],
            "execution_count": None,
        }
        if statement.kind == "meta":
            records = self._ctx.loop.log.records.get(execution.execution_id, ())
            said = [one for one in records if isinstance(one, (Action, AssistantMessage))]
            if execution.status != "ok" or not any(one.text.strip() for one in said):
                return None  # it only called, or came to nothing
            calls = any(isinstance(one, Action) for one in said)
            ends = not calls and statement.tags.get("stop_reason") != "pause_turn"
            return {**copy, "ends": ends, "cell_type": "markdown", "source": safe_markdown(statement.source)}
        number = self._ctx.kernel.execution_count - 1
        return {**copy, "outputs": notebook_outputs(execution), "execution_count": number}

    def checkpoint(self, info: CheckpointInfo) -> None:
        """The data of a checkpoint have come to the disk, or did not."""
        if not self._watched:
            return
        told = _checkpoint(info)
        storage = self._storage()
        self._send({"type": "checkpoint", "execution_id": info.execution_id, "checkpoint": told, "storage": storage})

    def remember(self, comparisons: Iterable[Comparison]) -> None:
        """Take in what an earlier kernel's re-runs came to: the log has their executions, and not this."""
        for one in comparisons:
            self._told.setdefault(one.execution_id, Told(comparison=one))

    def _state(self, result: TurnResult | None) -> messages.State:
        ctx = self._ctx
        projection = result.projection.to_json() if result and result.projection is not None else None
        recorded = self._recorded
        state: messages.State = {
            "head": ctx.loop.log.head,
            "handles": [handle(state, result.handles) for state in result.handles] if result else [],
            "deltas": [_delta(item) for item in result.deltas] if result else [],
            "projection": cast("messages.Projection | None", projection),
            "notices": [*ctx.notices.kept, *ctx.guard.lines()],
            "storage": self._storage(),
            "resume": self._resume(),
            "sent": self._sent(),
        }
        if recorded is not None:
            state["history"] = recorded.to_json()
        return state

    def _sent(self) -> bool:
        """Whether anything of this session has been sent to a model, by this kernel or by one before it."""
        asked, log = self._ctx.asked, self._ctx.loop.log
        if not self._was_sent:
            new, first = islice(log, self._looked, None), not self._looked
            self._looked = len(log)
            self._was_sent = (
                (asked is not None and asked.sent)
                or any(one.author == "model" and one.tags.get("replayed") is False for one in new)
                or (first and self._ctx.store.summaries_sent)
            )
        return self._was_sent

    def snapshot(self) -> messages.SnapshotMessage:
        """Return all that a panel shows."""
        ctx = self._ctx
        running, said = ctx.turns.running, self._says()
        chosen, others = self._chosen()
        return {
            "type": "snapshot",
            "protocol": PROTOCOL,
            "version": __version__,
            "python": ctx.environment()["python"],
            "session": ctx.store.session_id,
            "path": str(ctx.store.path) if ctx.store.path else None,
            "running": _begun(running) if running else None,
            "statements": [self._row(*one, said) for one in chosen],
            "timeline_truncated": others,
            "proposal": ctx.asked.proposal if ctx.asked is not None else None,
            "asking": ctx.asked.under_way if ctx.asked is not None else None,
            **self._state(ctx.turns.last),
            "branches": self._branches(),
            # All that is remembered, where a turn tells its own: a page that was reloaded shows the whole feed.
            "deltas": [_delta(item) for told in tuple(self._told.values()) for item in told.deltas][-DELTAS:],
        }

    # -- rows ---------------------------------------------------------------------------------

    def _chosen(self) -> tuple[list[tuple[Statement, Execution]], int]:
        """Return the executions that a snapshot shows, oldest first, and how many more there are."""
        log = self._ctx.loop.log
        ended = [(s, e) for s in tuple(log) for e in log.executions(s.statement_id) if e.status != "running"]
        if len(ended) > ROWS:
            # HEAD may lie far back: what leads to it must be seen.
            path = {e.execution_id for _, e in log.path()[-ROWS_OF_PATH:]}
            newest = nlargest(ROWS - len(path), ended, key=_started)
            shown = path | {e.execution_id for _, e in newest}
            chosen = [one for one in ended if one[1].execution_id in shown]
        else:
            chosen = ended
        return sorted(chosen, key=_started), len(ended) - len(chosen)

    def _row(self, statement: Statement, execution: Execution, said: Said) -> messages.Row:
        told = self._told.get(execution.execution_id, Told())
        moved: messages.Move | None = None
        if told.moved is not None:
            moved = {"to": told.moved.to, "reason": told.moved.reason}
        elif execution.status == "ok" and moves_head(statement.source):  # by an earlier kernel
            moved = {"to": None, "reason": "goto"}
        info = self._ctx.health.info(execution.execution_id)
        return {
            **row(statement, execution, told.deltas),
            "moved": moved,
            "checkpoint": _checkpoint(info) if info is not None else None,
            "comparison": _comparison(told.comparison) if told.comparison is not None else None,
            **said.of(statement, execution.execution_id),
        }

    def _says(self) -> Said:
        back = self._ctx.returning
        return Said(back.names(), dict(back.marks)) if back is not None else Said()

    def _amended(self, before: Said, now: Said) -> list[messages.AmendedRow]:
        """Return what rows that are told already say otherwise now."""
        rows, _ = self._chosen()
        told = [(run.execution_id, before.of(s, run.execution_id), now.of(s, run.execution_id)) for s, run in rows]
        return [{"execution_id": execution_id, **says} for execution_id, said, says in told if says != said]

    def _branches(self) -> list[messages.Branch]:
        return [
            {"leaf": one.leaf, "fork": one.fork, "statements": list(one.statements), "head": one.has_head}
            for one in self._ctx.loop.log.branches()
        ]

    def _resume(self) -> messages.Resume | None:
        back = self._ctx.returning
        try:
            return back.resume_offer if back is not None else None
        except Exception:  # what an earlier kernel left cannot be read: nothing to offer, and the rest is told
            return None

    def _storage(self) -> messages.Storage | None:
        return self._ctx.health.storage()


def _answered(asked: Mapping[str, Any], make: Callable[[Mapping[str, Any]], T]) -> tuple[T | None, str | None]:
    """Return what `make` gives and None, or None and why it cannot."""
    try:
        return make(asked), None
    except CtxError as refusal:
        return None, str(refusal)
    except Exception as fault:  # a fault of ours is told; the kernel goes on
        return None, f"the answer failed: {type(fault).__name__}: {fault}"


def _data(message: Any) -> Mapping[str, Any]:
    data = (message.get("content") or {}).get("data") if isinstance(message, dict) else None
    return data if isinstance(data, dict) else {}


def _started(one: tuple[Statement, Execution]) -> float:
    return one[1].started_at


def _delta(item: DeltaItem) -> messages.DeltaItem:
    return cast("messages.DeltaItem", plain(item))


def _comparison(found: Comparison) -> messages.Comparison:
    return cast("messages.Comparison", {**plain(found), "same": found.same})


def _checkpoint(info: CheckpointInfo) -> messages.Checkpoint:
    return {
        "state": info.state,
        "bytes_new": info.bytes_new,
        "time_ms": info.time_ms,
        "missing": dict(info.missing),
        "reason": info.reason,
    }


def _begun(turn: OpenTurn) -> messages.BegunStatement:
    statement = turn.statement
    return {
        "statement_id": statement.statement_id,
        "execution_id": turn.execution.execution_id,
        "parent_execution_id": turn.execution.parent_execution_id,
        "index": statement.index,
        "source": statement.source,
        "author": statement.author,
        "kind": statement.kind,
        "cell_id": statement.cell_id,
        "started_at": turn.execution.started_at,
        "tags": _tags(statement),
    }


def _tags(statement: Statement) -> messages.Tags:
    return cast("messages.Tags", {name: statement.tags[name] for name in TAGS if name in statement.tags})


def row(statement: Statement, execution: Execution, deltas: tuple[DeltaItem, ...]) -> messages.ExecutionRow:
    """Return the panel's row of one execution."""
    return {
        "statement_id": statement.statement_id,
        "index": statement.index,
        "execution_id": execution.execution_id,
        "parent_execution_id": execution.parent_execution_id,
        "cell_id": statement.cell_id,
        "author": statement.author,
        "kind": statement.kind,
        "status": execution.status,
        "source": statement.source[:20_000],
        "timestamp": statement.timestamp,
        "started_at": execution.started_at,
        "ended_at": execution.ended_at,
        "time_ms": execution.cost.time_ms,
        "tokens": execution.cost.tokens,
        "usd": execution.cost.tool_cost,
        "tags": _tags(statement),
        "stdout": execution.stdout[:STREAM_CHARS],
        "stderr": execution.stderr[:STREAM_CHARS],
        "cut": dict(execution.cut),
        "late": dict(execution.late),
        "exception": cast("messages.Failure | None", plain(execution.exception)),
        "diff": cast("messages.NamespaceDiff", plain(execution.state_diff)),
        "artifacts": [
            {"kind": artifact.kind, "name": artifact.name, "mime": artifact.mime, "size": artifact.size}
            for artifact in execution.artifacts
            if artifact.kind != "read"
        ],
        "notices": list(execution.notices),
        "nodes": [{"name": item.subject, "summary": item.summary} for item in deltas if item.kind in ("node", "tick")],
    }


def notebook_outputs(execution: Execution) -> list[dict[str, Any]]:
    """Return what was kept of an execution's output, as a notebook has it."""
    streams = (("stdout", execution.stdout), ("stderr", execution.stderr))
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": name, "text": text} for name, text in streams if text
    ]
    shown: dict[str, dict[str, Any]] = {}
    for one in execution.artifacts:
        if one.kind == "display" and one.data is not None:
            shown.setdefault(one.name, {})[one.mime] = one.data
    outputs += [{"output_type": "display_data", "data": data, "metadata": {}} for data in shown.values()]
    if execution.exception is not None:
        fault = execution.exception
        trace = fault.trace_summary.splitlines()
        outputs.append({"output_type": "error", "ename": fault.type, "evalue": fault.message, "traceback": trace})
    return outputs


def handle(state: HandleState, all_states: tuple[HandleState, ...]) -> messages.Handle:
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
