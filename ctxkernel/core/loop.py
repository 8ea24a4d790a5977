"""One turn, from `begin(source)` to a frozen TurnResult. Start reading here.

    begin   the statement enters the log, running; names that changed outside of any cell get one of their own
    (the kernel runs the code; handles record what is done to them)
    end     namespace diff → tick (ready, sync, periodic, groups) → projection → TurnResult

Rule 1: no clock, I/O, thread or Jupyter: times, outcomes and ports come in as arguments.
Rule 2: each step is guarded on its own; a fault in one costs that step, never the turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ctxkernel.core.delta import Feed, format_deltas, format_move
from ctxkernel.core.errors import BadTarget
from ctxkernel.core.events import NONE, Event, EventBus, Json, MethodCalled, NodeChanged, StatementExecuted, none
from ctxkernel.core.jobs import Preparer, Summarise
from ctxkernel.core.names import Names
from ctxkernel.core.nodes import Graph, GroupHandle, NodeBase, NoteHandle, ViewHandle
from ctxkernel.core.nodes.base import Delta, show_value
from ctxkernel.core.nodes.comparisons import tell_groups
from ctxkernel.core.nodes.identity import Constructors, made_again, made_counts
from ctxkernel.core.nodes.question_names import named_in
from ctxkernel.core.nodes.states import handle_states
from ctxkernel.core.ports import (
    Budget,
    CountTokens,
    Expired,
    OpenSource,
    Projector,
    Rendered,
    Tracker,
    Trim,
    VariableLine,
)
from ctxkernel.core.replay import Comparison, HeadMove, Restored
from ctxkernel.core.scheduler import ReadyQueue, Tick, run
from ctxkernel.core.settings import Settings
from ctxkernel.core.text import one_line
from ctxkernel.core.timeline import (
    Artifact,
    Author,
    ChangeInfo,
    Cost,
    ExceptionInfo,
    Execution,
    Kind,
    NamespaceDiff,
    Statement,
    StatementLog,
    Status,
    TypeInfo,
    fingerprint,
)
from ctxkernel.core.turn import DeltaItem, HandleState, HandleTable, Turn, TurnResult

T = TypeVar("T")


class Guard(Protocol):
    """Runs a step of the turn."""

    def __call__(self, step: str, run: Callable[..., T], otherwise: T, *arguments: Any) -> T:
        """Return `run(*arguments)`, or `otherwise` where the step failed or is switched off."""
        ...


CACHE_SECONDS = 300.0
"""How long a provider keeps what it has cached."""
UNKNOWN = NamespaceDiff(incomplete="the namespace diff failed, so what this cell changed is not known")
UNSEEN = NamespaceDiff(incomplete="the namespace diff failed before this cell, so what it changed is not known")
NO_DIFF = NamespaceDiff()
"""That of every statement that changed nothing."""


def no_guard(step: str, run: Callable[..., T], otherwise: T, *arguments: Any) -> T:
    """Let faults through: for tests, and where nobody's cell is at stake."""
    return run(*arguments)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the code of a statement ended, as the kernel saw it."""

    status: Status
    stdout: str = ""
    stderr: str = ""
    exception: ExceptionInfo | None = None
    artifacts: tuple[Artifact, ...] = ()
    cost: Cost = field(default_factory=Cost)
    cut: Mapping[str, int] = field(default_factory=none)
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A statement that began; `outside` is the meta statement written before it, if any."""

    statement: Statement
    execution: Execution
    outside: tuple[Statement, Execution] | None


class Loop:
    """The turns of one session."""

    def __init__(
        self,
        *,
        namespace: Mapping[str, Any],
        tracker: Tracker,
        projector: Projector,
        open_source: OpenSource,
        count_tokens: CountTokens,
        trim: Trim,
        owner: Callable[[], bool] = lambda: True,
        settings: Settings | None = None,
        environment: Mapping[str, Json] | None = None,
        guard: Guard = no_guard,
        mask_value: Callable[[str, str], str] = lambda name, value: value,
    ) -> None:
        self.settings = settings or Settings()
        self.log = StatementLog()
        self.bus = EventBus()
        self.ready = ReadyQueue()
        self.graph = Graph(
            settings=self.settings,
            bus=self.bus,
            open_source=open_source,
            count_tokens=count_tokens,
            trim=trim,
            owner=owner,
        )
        self.graph.events = self._on_the_way
        self._constructors: Constructors | None = None
        """What the open statement's calls of `view`, `group` and `note` gave, and give."""
        self.preparer: Preparer | None = None
        """Who prepares updates in the background; None: everything is done by the tick itself."""
        self.summarise: Summarise | None = None
        """Who has summaries written by a model, where `summary_model` names one."""
        self.turn_id = 0
        self.now = 0.0
        self.blind = ""
        """Why it is not known as a whole what the last statement changed; empty where it is."""
        self._suspected = ""
        """Why the tracker is to look at every name, until it was told so."""
        self.projection: Any = None
        self.state = Turn((), (), (), 0, ())
        """What the projection was built from."""
        self._namespace = namespace
        self._tracker = tracker
        self._projector = projector
        self._environment = environment or {}
        self._guard = guard
        self._mask_value = mask_value
        self.names = Names(namespace, self.graph, tracker, rows=self.settings.variable_rows, mask_value=mask_value)
        self._events: list[Event] = []
        self.bus.subscribe(self._events.append)
        self._open: OpenTurn | None = None
        self._history: list[tuple[Statement, Execution]] = []
        self._ahead: list[tuple[Statement, Execution]] | None = None
        self._passed: set[str] | None = set()
        """The executions of the history; None until somebody asks, see `_on_path`."""
        self._late: dict[str, str] = {}
        self._feed = Feed()
        """What changed since the model was last asked."""
        self._compared: list[Comparison] = []
        self._recorded: list[Any] = []
        self.requested_at: float | None = None
        """When the model was last sent a request; None where it never was."""
        self._recording: str | None = None
        """The execution that events are recorded with now."""
        self._moment = "request"
        self.question_of: Callable[[Any], str] = lambda event: ""
        """Returns what a recorded event asks the model, empty for any other event; whoever records them sets it."""
        self._question: str = ""
        self.pending: Callable[[], Collection[str]] = tuple
        """Says which calls of the model wait here for their results; whoever runs its cells sets it."""

    def reconfigure(self, settings: Settings) -> None:
        """Have other settings from now on."""
        self.settings = self.graph.settings = settings
        self.names.resize(settings.variable_rows)

    @property
    def opened(self) -> OpenTurn | None:
        """The statement that is open."""
        return self._open

    # -- the turn -----------------------------------------------------------------------------

    def begin(
        self,
        source: str,
        *,
        now: float,
        author: Author = "human",
        kind: Kind = "python",
        cell_id: str | None = None,
        tags: Mapping[str, Json] | None = None,
        rerun_of: str | None = None,
    ) -> OpenTurn:
        """Append a running statement for `source`, ready for its code to run.

        `rerun_of` is the statement that this is a re-run of: with the same text it becomes a new execution of that
        one, with another text a statement of its own that is tagged with it. An unknown one counts for nothing.
        """
        if self._open is not None:  # the kernel lost the end of a turn; close it as what it was
            self.end(
                Outcome("cancelled", exception=ExceptionInfo("LostEnd", "the end of this cell was not seen", "")), now
            )
        self.now = now
        self._warn_tracker()
        self.blind = self._suspected
        outside = self._guard("namespace diff", self._before, UNSEEN, source)
        if outside is UNSEEN:
            self.blind = UNSEEN.incomplete
            self.suspect(self.blind)
        other = self._outside(outside, now) if outside else None
        again = self.log.get(rerun_of) if rerun_of is not None else None
        if again is not None and again.source == source:
            statement, execution = self._append_run(again, now)
        else:
            tagged = {**(tags or {}), "rerun_of": again.statement_id} if again is not None else tags or NONE
            statement, execution = self._append(source, now, kind, author, cell_id, tagged)
        self._events.clear()
        self.graph.open(statement.statement_id)
        self._constructors = Constructors(statement, self._history, self.log, self.graph.node)
        self.graph.again = self._constructors.again
        self._open = OpenTurn(statement, execution, other)
        self._recording = execution.execution_id
        return self._open

    def _before(self, source: str) -> NamespaceDiff:
        return self._masked(self._tracker.before(source))

    def _after(self, expired: Expired) -> NamespaceDiff:
        return self._masked(self._tracker.after(expired))

    def _append(
        self, source: str, now: float, kind: Kind, author: Author, cell_id: str | None, tags: Mapping[str, Json]
    ) -> tuple[Statement, Execution]:
        parent = self._history[-1] if self._history else None
        index = self.log.next_index
        statement = Statement(
            statement_id=f"s{index}",
            index=index,
            timestamp=now,
            source=source,
            kind=kind,
            author=author,
            parent_id=parent[0].statement_id if parent else None,
            cell_id=cell_id,
            tags=tags,
            fingerprint=fingerprint(source, self._environment),
        )
        parent_execution = parent[1].execution_id if parent else None
        execution = Execution(f"s{index}.1", statement.statement_id, parent_execution, now)
        self.log.append(statement, execution)
        return statement, execution

    def _append_run(self, statement: Statement, now: float) -> tuple[Statement, Execution]:
        parent = self._history[-1][1].execution_id if self._history else None
        execution = Execution(self.log.next_execution_id(statement.statement_id), statement.statement_id, parent, now)
        self.log.append_execution(execution)
        return statement, execution

    def _outside(self, diff: NamespaceDiff, now: float) -> tuple[Statement, Execution]:
        """Give names that changed between two cells a meta statement of their own."""
        told = [*diff.added, *diff.changed, *diff.deleted]
        source = f"# outside a cell: {', '.join(told[:20])}{' …' if len(told) > 20 else ''}"
        statement, running = self._append(source, now, "meta", "human", None, {"outside": True})
        execution = dataclasses.replace(running, ended_at=now, status="ok", state_diff=diff)
        self._finish(statement, execution)
        return statement, execution

    def suspect(self, reason: str) -> None:
        """Say that names may have changed without being seen: the tracker is to look at every one of them."""
        self._suspected = reason
        self._warn_tracker()

    def _warn_tracker(self) -> None:
        reason, look_at_all = self._suspected, getattr(self._tracker, "suspect_all", None)
        if reason and (
            look_at_all is None or self._guard("namespace diff", lambda: (look_at_all(reason), True)[1], False)
        ):
            self._suspected = ""

    def _masked(self, diff: NamespaceDiff) -> NamespaceDiff:
        """Mask values whose name or content says that they are credentials: nobody downstream sees them."""
        if not diff:
            return diff if diff.incomplete else NO_DIFF
        mask = self._mask_value
        added: dict[str, TypeInfo] = {}
        changed: dict[str, ChangeInfo] = {}
        for name, new in diff.added.items():
            if (safe := mask(name, new.repr)) != new.repr:
                added[name] = dataclasses.replace(new, repr=safe)
        for name, info in diff.changed.items():
            safe, before = mask(name, info.repr), info.before and mask(name, info.before)
            if (safe, before) != (info.repr, info.before):
                changed[name] = dataclasses.replace(info, repr=safe, before=before)
        if not added and not changed:  # as nearly always
            return diff
        return dataclasses.replace(diff, added={**diff.added, **added}, changed={**diff.changed, **changed})

    def _finish(self, statement: Statement, execution: Execution) -> None:
        self.log.finish(execution)
        self._history.append((statement, execution))
        self._passed = None
        self.names.follow(statement.statement_id, execution.state_diff)

    def end(
        self,
        outcome: Outcome,
        now: float,
        expired: Expired = lambda: False,
        *,
        move: HeadMove | None = None,
        restored: Restored | None = None,
        observe: Callable[[Execution], Iterable[Any]] = lambda execution: (),
    ) -> TurnResult:
        """Close the open statement. Raises RuntimeError where none is open.

        `observe` gives the events of the model's history that follow from how it ended, recorded before the
        projection is built. With `move`, HEAD goes elsewhere when the execution has finished, which stays as a leaf
        where HEAD was. The namespace and the handles are those of that place already; `restored` says what could not
        be had back.
        """
        if self._open is None:
            raise RuntimeError("no statement is open; call begin first")
        turn, self._open = self._open, None
        self.turn_id += 1
        self.now = now
        guard = self._guard
        diff = guard("namespace diff", self._after, UNKNOWN, expired)
        if diff is UNKNOWN:
            self.blind = self.blind or diff.incomplete
            self.suspect(self.blind)
        elif self.blind:
            self.suspect(self.blind)
            diff = dataclasses.replace(diff, incomplete="; ".join(filter(None, (self.blind, diff.incomplete))))
        sid, eid = turn.statement.statement_id, turn.execution.execution_id
        notices = [*outcome.notices, *([diff.incomplete] if diff.incomplete else [])]
        restored = restored or Restored()
        notices += restored.notices
        comparisons, self._compared = self._compared, []
        if comparisons:
            guard("divergences", self._tell_groups, None, comparisons)
        tick = Tick(self.graph, self.ready, now, self.turn_id, expired, self.preparer, self.summarise)
        # The handles are those of where HEAD goes; what they look at is, too.
        self._ahead = guard("timeline", self.log.path, None, move.to) if move is not None else None
        self.graph.named = guard("question", self._asked_about, frozenset())
        try:
            notices += guard("tick", run, [], tick)
        finally:
            self._ahead = None
            self.graph.close()
        self.bus.publish(StatementExecuted(sid, eid, outcome.status))
        events = tuple(self._events)
        self._events.clear()
        execution = Execution(
            eid,
            sid,
            turn.execution.parent_execution_id,
            turn.execution.started_at,
            ended_at=now,
            status=outcome.status,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            exception=outcome.exception,
            events=events,
            state_diff=diff,
            artifacts=outcome.artifacts,
            cost=outcome.cost,
            cut=outcome.cut or NONE,
            notices=tuple(notices),
        )
        self._finish(turn.statement, execution)
        guard("history", lambda: [self.record(event) for event in observe(execution)], [])
        if diff.incomplete and self.graph.nodes():
            guard("handles", self.names.scan, None)
        moved = guard("timeline", self._move, None, move, eid) if move is not None else None
        handles = guard("handles", self.handles, ())
        late, self._late = self._late, {}
        if moved is not None:
            deltas = guard("delta feed", self._move_feed, (), moved, restored, late, comparisons)
            self._feed.clear()  # what the model knew, and what it did not, was of another place
        else:
            names = {obj_id: name for name, obj_id in self.names.handles.items()}
            sizes = {row.name: row.size for row in self.state.variables} if diff.changed else {}
            deltas = guard("delta feed", format_deltas, (), execution, events, names, late, comparisons, sizes)
        self._feed.add(deltas)
        state = self._state(handles, guard("delta feed", self._feed.items, deltas))
        if moved is None:
            notices += guard("history", self._tend, [], state)
        else:
            self._moment = "load" if self._moment == "load" else "rewind"
        self._recording = None
        self._project(state)
        recorded, self._recorded = tuple(self._recorded), []
        return TurnResult(
            self.turn_id,
            turn.statement,
            execution,
            handles,
            deltas,
            events,
            self.projection,
            tuple(notices),
            turn.outside,
            moved,
            recorded=recorded,
        )

    def close(self, turn: OpenTurn, outcome: Outcome, now: float) -> TurnResult:
        """Close a statement of which `end` failed: how it ended is kept, and nothing else."""
        self._open = self._recording = self._ahead = None
        self.blind = self.blind or UNKNOWN.incomplete
        self.suspect(self.blind)
        self._guard("tick", self.graph.close, None)
        self._events.clear()
        execution = self.log.execution(turn.execution.execution_id)
        if execution.status == "running":
            told = (*outcome.notices, UNKNOWN.incomplete)
            execution = dataclasses.replace(
                execution,
                ended_at=now,
                status=outcome.status,
                stdout=outcome.stdout,
                stderr=outcome.stderr,
                exception=outcome.exception,
                state_diff=UNKNOWN,
                artifacts=outcome.artifacts,
                cost=outcome.cost,
                cut=outcome.cut,
                notices=told,
            )
            self._finish(turn.statement, execution)
        recorded, self._recorded = tuple(self._recorded), []
        handles = self._guard("handles", self.handles, ())
        notices, events = execution.notices, execution.events
        return TurnResult(
            self.turn_id,
            turn.statement,
            execution,
            handles,
            (),
            events,
            None,
            notices,
            turn.outside,
            recorded=recorded,
        )

    def _state(self, handles: tuple[HandleState, ...], deltas: tuple[DeltaItem, ...]) -> Turn:
        variables, total = self._guard("variables", lambda: (self.variables(), self.names.total), ((), 0))
        cold = self.requested_at is None or self.now - self.requested_at > CACHE_SECONDS
        pending = self._guard("history", self.pending, ())
        return Turn(self._history, handles, variables, total, deltas, self.log.records, self._coarser, cold, pending)

    def answered(self) -> None:
        """The model has answered: what the next request tells of changes begins here."""
        self._feed.clear()

    def _coarser(self, obj_id: str, lod: int) -> str | None:
        node = self.graph.node(obj_id)
        return self._guard("projection", lambda: node.render(lod=lod).text, None) if node is not None else None

    def _project(self, state: Turn) -> None:
        self.state = state
        self.projection = self._guard("projection", self._projector.project, None, state)

    # -- the model's history ------------------------------------------------------------------

    def record(self, event: Any) -> None:
        """Record an event of the model's history with the open statement.

        Raises RuntimeError where none is open: state changes in a statement or in its tick only.
        """
        if self._recording is None:
            raise RuntimeError(f"{type(event).__name__} {event.event_id} can be recorded in a statement only")
        self.log.record(self._recording, event)
        self._recorded.append(event)
        self._question = self.question_of(event) or self._question

    def _asked_about(self) -> frozenset[str]:
        if not self._question or not any(node.listens for node in self.graph.nodes()):
            return frozenset()
        return named_in(self._question, self._namespace, self.graph.nodes())

    @property
    def next_event_id(self) -> str:
        """The id that the next event of the open statement has. Raises RuntimeError where none is open."""
        if self._recording is None:
            raise RuntimeError("no statement is open; an event belongs to one")
        return f"{self._recording}:{len(self.log.records.get(self._recording, ())) + 1}"

    def _tend(self, state: Turn) -> list[str]:
        """Have the history mended and condensed where that is due; returns what to tell the user."""
        moment, self._moment = self._moment, "request"
        told: list[str] = []
        for event in self._projector.tend(state, moment):
            if isinstance(event, str):
                told.append(event)
            else:
                self.record(event)
        return told

    # -- elsewhere in the timeline ------------------------------------------------------------

    def load(
        self,
        statements: Iterable[tuple[Statement, Sequence[Execution]]],
        head: str | None,
        *,
        movers: Iterable[str] = (),
        turn_id: int | None = None,
        records: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Take over the timeline that an earlier kernel wrote; see `StatementLog.load` for what it takes and raises.

        Ids of turns go on after `turn_id` (where that is unknown, after as many as there are executions), those of
        handles after the newest ones that the events tell of. Namespace and handles come by themselves; `move` then
        says that they are there.
        """
        self.log.load(statements, head, movers=movers, records=records)
        self._moment = "load"
        self.turn_id = max(self.turn_id, self.log.executed if turn_id is None else turn_id)
        for statement in self.log:
            for execution in self.log.executions(statement.statement_id):
                self.graph.continue_after(made_counts(execution.events))
        self.graph.continue_after(made_again(self.log))
        self._replay()

    def join(
        self,
        statements: Iterable[tuple[Statement, Sequence[Execution]]],
        *,
        movers: Iterable[str] = (),
        records: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Put the timeline of an earlier kernel in front of this one's own, which stays as a branch of its own.

        HEAD stays where it is. Raises what `StatementLog.load` raises; then nothing has changed.
        """
        own = [(statement, self.log.executions(statement.statement_id)) for statement in self.log]
        earlier = list(statements)
        log = StatementLog()
        both = {**(records or {}), **self.log.records}
        log.load([*earlier, *own], self.log.head, movers=[*movers, *self.log.movers], records=both)
        self.log = log
        self._moment = "load"
        self.turn_id = max(self.turn_id, log.executed)
        for _, executions in earlier:
            for execution in executions:
                self.graph.continue_after(made_counts(execution.events))
        self.graph.continue_after(made_again(log))

    def move(self, move: HeadMove, restored: Restored | None = None) -> None:
        """Move HEAD without a turn: when a session goes on. Builds the projection.

        Raises KeyError for an unknown place, RuntimeError while a statement is open.
        """
        if self._open is not None:
            raise RuntimeError("a statement is open; give the move to end")
        moved = self._move(move, None)
        late, self._late = self._late, {}
        comparisons, self._compared = self._compared, []
        handles = self._guard("handles", self.handles, ())
        deltas = self._move_feed(moved, restored or Restored(), late, comparisons)
        self._feed.clear()
        self._feed.add(deltas)
        self._project(self._state(handles, deltas))

    def _move(self, move: HeadMove, by: str | None) -> HeadMove:
        self.log.move_head(move.to, by=by)
        self._replay()
        return move

    def _replay(self) -> None:
        """Be where HEAD is, whatever was before."""
        self._history = self.log.path()
        self._passed = None
        self.names.replay(self._history)
        self.graph.release()
        records = self.log.records
        events = (one for _, run in reversed(self._history) for one in reversed(records.get(run.execution_id, ())))
        self._question = next((asked for one in events if (asked := self.question_of(one))), "")

    def _move_feed(
        self, move: HeadMove, restored: Restored, late: Mapping[str, str], comparisons: Sequence[Comparison]
    ) -> tuple[DeltaItem, ...]:
        here = {statement.statement_id for statement, _ in self._history}
        told = {statement_id: line for statement_id, line in late.items() if statement_id in here}
        return format_move(move, restored, told, [one for one in comparisons if self._on_path(one.execution_id)])

    def _on_path(self, execution_id: str) -> bool:
        """Whether an execution that ended leads to HEAD."""
        if self._passed is None:
            self._passed = {execution.execution_id for _, execution in self._history}
        return execution_id in self._passed

    def compared(self, comparison: Comparison) -> None:
        """Tell what a re-run came out with, in the next delta feed and in the groups over what it changed.

        Raises KeyError for an execution that is not in this log.
        """
        self.log.execution(comparison.execution_id)
        self._compared.append(comparison)

    def _tell_groups(self, comparisons: Sequence[Comparison]) -> None:
        tell_groups(self.graph.nodes(), self._namespace, comparisons)

    def late(self, execution_id: str, stream: str, text: str, limit: int = 10_000) -> None:
        """Keep output that came after the end of its execution; told in the next delta feed.

        Raises KeyError for an execution that is not in this log.
        """
        execution = self.log.execution(execution_id)
        kept = (execution.late.get(stream, "") + text)[:limit]
        self.log.replace_late(execution_id, {**execution.late, stream: kept})
        if self._on_path(execution_id) or execution.status == "running":  # on another branch it is no news here
            self._late[execution.statement_id] = one_line(kept, 80)

    # -- the state that a projection is built from -------------------------------------------

    def variables(self) -> tuple[VariableLine, ...]:
        """The user's variables, newest change first, handles left out."""
        return self.names.variables()

    def handles(self) -> tuple[HandleState, ...]:
        """The handles as they stand: named ones, members of their groups, and running or pinned ones."""
        nodes = self.graph.nodes()
        return handle_states(nodes, self.names.first_names(), self.graph.requested) if nodes else ()

    @property
    def history(self) -> Sequence[tuple[Statement, Execution]]:
        """The path from the root to HEAD, oldest first; in the tick of a cell that moves HEAD, to where it goes."""
        return self._history if self._ahead is None else self._ahead

    def _on_the_way(self) -> Iterable[tuple[str, Event]]:
        """Return the events of the path to HEAD, those of the open statement last."""
        for statement, execution in self._history:
            for event in execution.events:
                yield statement.statement_id, event
        if self._open is not None:
            for event in tuple(self._events):
                yield self._open.statement.statement_id, event

    # -- what the user calls -----------------------------------------------------------------

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
        pos     where: a line from 0, "line:col", a name ("Model.fit", a heading, a row label, an entry), "/pattern/"
        tokens  budget of the rendering in estimated tokens, or All
        lod     0 raw excerpt · 1 structure · 2 summary · 3 diff against the last rendering
        mode    "paused" (changes by calls only) or "running" (the tick after each cell updates it)
        freq    "Sync" each turn · ("Periodic", seconds) · "Async"; giving one sets it running

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
        freq    "Sync" each turn · ("Periodic", seconds) · "Async"

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
        self.bus.publish(MethodCalled(node.obj_id, node.obj_type, how, tuple(map(show_value, args)), given, {}, digest))
        made = f"made, lod {node.lod}, ~{node.rendered.tokens} tokens: {node.target}"
        self.graph.changed(node, Delta(made))
        return node

    def show(self, obj: object, lod: int | None = None, tokens: Budget | None = None) -> Rendered:
        """Return the content of a handle now, and put it into the next projection.

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
        mark = len(self._events)
        run(Tick(self.graph, self.ready, self.now, self.turn_id + 1, lambda: False, self.preparer, self.summarise))
        return tuple(f"{e.obj_id}: {e.delta.summary}" for e in self._events[mark:] if isinstance(e, NodeChanged))

    def ls(self) -> HandleTable:
        """Return the handles with their digests; shows as a table."""
        self.names.scan()
        return HandleTable(self.handles())


for _name in ("view", "group", "note", "show", "pin", "tick", "ls"):
    # The user calls `view(…)`: an error about its arguments must not speak of a `Loop.view`.
    getattr(Loop, _name).__qualname__ = _name


def _handle(obj: object, verb: str) -> NodeBase:
    if isinstance(obj, NodeBase):
        return obj
    raise BadTarget(f"{verb} takes a handle, and {type(obj).__name__} is none; make one: {verb}(view(…))")
