"""One turn, from `begin(source)` to a frozen TurnResult. Start reading here.

    begin   the statement enters the log, running; names that changed outside of any cell get a statement of their own
    (the kernel runs the code; handles record what is done to them)
    end     the steps of `Loop.END`: namespace diff → tick → timeline → delta feed → projection → TurnResult

Rule 1: no clock, I/O, threads or Jupyter: times, outcomes and ports are arguments.
Rule 2: the guard runs each step: a step that fails is skipped, and the turn goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ctxkernel.core.delta import Feed, format_deltas, format_move
from ctxkernel.core.masking import mask_diff
from ctxkernel.core.names import UserNames
from ctxkernel.core.nodes import Graph
from ctxkernel.core.nodes.identity import ConstructorCalls
from ctxkernel.core.nodes.references import named_in, tell_changes, tell_groups, tell_views
from ctxkernel.core.ports import CountTokens, Expired, OpenSource, Tracker, Trim
from ctxkernel.core.position import Position
from ctxkernel.core.replay import Comparison, HeadMove, Restored
from ctxkernel.core.scheduler import Tick, run_tick
from ctxkernel.core.settings import Settings
from ctxkernel.core.steps import Step, StepGuard, no_guard, run_steps
from ctxkernel.core.text import join_names, one_line
from ctxkernel.core.timeline import (
    Author,
    ExceptionInfo,
    Execution,
    Kind,
    NamespaceDiff,
    Statement,
    environment_text,
    statement_fingerprint,
)
from ctxkernel.core.timeline_events import NONE, Json, StatementExecuted
from ctxkernel.core.turn_values import (
    Changes,
    DeltaItem,
    HandleState,
    Observe,
    OpenTurn,
    Outcome,
    Projector,
    Turn,
    TurnEnding,
    TurnResult,
    Variables,
)

CACHE_SECONDS = 300.0
"""The time for which a provider keeps its prompt cache."""
UNKNOWN = NamespaceDiff(incomplete="the namespace diff failed, so what this cell changed is not known")
UNSEEN = NamespaceDiff(incomplete="the namespace diff failed before this cell, so what it changed is not known")


class Loop(Position):
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
        guard: StepGuard = no_guard,
        mask_value: Callable[[str, str], str] = lambda name, value: value,
        read_secrets: Callable[[NamespaceDiff, bool], None] = lambda diff, every: None,
    ) -> None:
        self.settings = settings or Settings()
        graph = Graph(
            settings=self.settings,
            open_source=open_source,
            count_tokens=count_tokens,
            trim=trim,
            owner=owner,
        )
        names = UserNames(namespace, graph, tracker, rows=self.settings.variable_rows, mask_value=mask_value)
        super().__init__(graph, names)
        self.blind = ""
        """Why the changes of the last statement are not known completely; empty where they are."""
        self._suspected = ""
        """Why the tracker must compare every name; empty once it was told so."""
        self.projects = True
        """Whether a projection is built; not where no model is asked, as in a worker of a sweep."""
        self.projection: Any = None
        self.state = Turn((), (), (), 0, ())
        """The state that the projection was built from."""
        self._namespace = namespace
        self._tracker = tracker
        self._projector = projector
        self._environment = environment_text(environment or {})
        self._guard = guard
        self._mask_value = mask_value
        self._read_secrets = read_secrets
        """(diff, every name) → take note of the values that are secrets, before the diff is masked by them."""
        self._feed = Feed()
        """The changes since the model was last asked."""
        self._compared: list[Comparison] = []
        self.requested_at: float | None = None
        """The time of the last request to the model; None where none was sent."""
        self.pending: Callable[[], Collection[str]] = tuple
        """Returns the calls of the model that wait for their results; the kernel sets it."""

    def reconfigure(self, settings: Settings) -> None:
        """Use other settings from now on."""
        self.settings = self.graph.settings = settings
        self.names.resize(settings.variable_rows)

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
        """Append a running statement for `source`; its code can run then.

        `rerun_of` is the statement that this is a re-run of: with the same text, in the same cell, it becomes a new
        execution of that statement, else a new statement that is tagged with it. An unknown id is ignored.
        """
        if self._open is not None:  # the kernel missed the end of a turn
            self.end(
                Outcome("cancelled", exception=ExceptionInfo("LostEnd", "the end of this cell was not seen", "")), now
            )
        self.now = now
        if self._suspected:
            self._warn_tracker()
        self.blind = self._suspected
        outside = self._guard("namespace diff", self._before, UNSEEN, source)
        if outside is UNSEEN:
            self.blind = UNSEEN.incomplete
            self.suspect(self.blind)
        other = self._outside(outside, now) if outside else None
        again = self.log.get(rerun_of) if rerun_of is not None else None
        if again is not None and again.source == source and cell_id in (None, again.cell_id):
            parent = self._history[-1][1].execution_id if self._history else None
            statement = again
            execution = Execution(self.log.next_execution_id(again.statement_id), again.statement_id, parent, now)
            self.log.append_execution(execution)
        else:
            tagged = {**(tags or {}), "rerun_of": again.statement_id} if again is not None else tags or NONE
            statement, execution = self._append(source, now, kind, author, cell_id, tagged)
        self._events.clear()
        self.graph.open(statement.statement_id)
        self._constructors = ConstructorCalls(statement, self._history, self.log, self.graph.node)
        self.graph.again = self._constructors.again
        self._open = OpenTurn(statement, execution, other)
        self._recording = execution.execution_id
        return self._open

    def _before(self, source: str) -> NamespaceDiff:
        diff = self._tracker.before(source)
        if diff:
            self._read_secrets(diff, False)
        return mask_diff(diff, self._mask_value)

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
            fingerprint=statement_fingerprint(source, self._environment),
        )
        execution = Execution(f"s{index}.1", statement.statement_id, parent[1].execution_id if parent else None, now)
        self.log.append(statement, execution)
        return statement, execution

    def _outside(self, diff: NamespaceDiff, now: float) -> tuple[Statement, Execution]:
        """Append a meta statement for names that changed between two cells."""
        told = [*diff.added, *diff.changed, *diff.deleted]
        source = f"# outside a cell: {', '.join(told[:20])}{' …' if len(told) > 20 else ''}"
        statement, running = self._append(source, now, "meta", "human", None, {"outside": True})
        execution = dataclasses.replace(running, ended_at=now, status="ok", state_diff=diff)
        self._finish(statement, execution)
        return statement, execution

    def suspect(self, reason: str) -> None:
        """Make the next diff compare every name, since some may have changed unnoticed."""
        self._suspected = reason
        self._warn_tracker()

    def _warn_tracker(self) -> None:
        reason, look_at_all = self._suspected, getattr(self._tracker, "suspect_all", None)
        if reason and (
            look_at_all is None or self._guard("namespace diff", lambda: (look_at_all(reason), True)[1], False)
        ):
            self._suspected = ""

    def end(
        self,
        outcome: Outcome,
        now: float,
        expired: Expired = lambda: False,
        *,
        move: HeadMove | None = None,
        restored: Restored | None = None,
        observe: Observe = lambda execution: (),
    ) -> TurnResult:
        """Close the open statement. Raises RuntimeError where none is open.

        `observe` returns the events of the model's history that follow from how the execution ended; they are recorded
        before the projection is built. With `move`, HEAD moves when the execution has finished, which stays as a leaf
        where HEAD was. Namespace and handles are those of the target already; `restored` lists what could not be
        restored.
        """
        if self._open is None:
            raise RuntimeError("no statement is open; call begin first")
        turn, self._open = self._open, None
        self.turn_id += 1
        self.now = now
        ending = TurnEnding(turn, outcome, now, expired, move, restored or Restored(), observe)
        try:
            run_steps(self.END, self._guard, self, ending)
        finally:
            self._ahead = self._recording = None
        ending.notices += ending.tended
        self.state, self.projection = ending.state, ending.projection
        return self._result(ending)

    def _find_changes(self, ending: TurnEnding) -> NamespaceDiff:
        diff = self._tracker.after(ending.expired)
        self._read_secrets(diff, ending.move is not None)
        return mask_diff(diff, self._mask_value)

    def _tick(self, ending: TurnEnding) -> list[str]:
        graph = self.graph
        if graph.is_empty and not self.ready and not self.ticked:  # most notebooks
            return []
        self.ticked = not graph.is_empty
        nodes = graph.nodes()
        if self._compared:
            tell_groups(nodes, self._namespace, self._compared)
        if ending.move is not None:  # the handles are those of the target: they see the history of the target
            self._ahead = self.log.path(ending.move.to)
        question = self._question if ending.move is None else self._last_question()
        tell_views(nodes, question)
        tell_changes(nodes, self._namespace, ending.diff)
        asked = question and any(node.listens for node in nodes)
        graph.named = named_in(question, self._namespace, nodes) if asked else frozenset()
        return run_tick(
            Tick(graph, self.ready, ending.now, self.turn_id, ending.expired, self.preparer, self.summarise)
        )

    def _finish_execution(self, ending: TurnEnding) -> Execution:
        self._ahead = None
        self.graph.close()
        diff = self._completed(ending.diff) if self.blind or ending.diff is UNKNOWN else ending.diff
        incomplete = [diff.incomplete] if diff.incomplete else []
        ending.notices += [*ending.outcome.notices, *incomplete, *ending.restored.notices, *ending.ticked]
        turn, outcome = ending.turn, ending.outcome
        started = turn.execution
        self.graph.emit(StatementExecuted(started.statement_id, started.execution_id, outcome.status))
        events, notices = tuple(self._events), tuple(ending.notices)
        self._events.clear()
        execution = outcome.ended(started, ending.now, events=events, state_diff=diff, notices=notices)
        self._finish(turn.statement, execution)
        return execution

    def _completed(self, diff: NamespaceDiff) -> NamespaceDiff:
        """Return the diff, marked as incomplete where changes of this statement, or before it, are not known."""
        if diff is UNKNOWN:
            self.blind = self.blind or diff.incomplete
        self.suspect(self.blind)
        why = "; ".join(filter(None, (self.blind, diff.incomplete)))
        return diff if diff is UNKNOWN else dataclasses.replace(diff, incomplete=why)

    def _observe(self, ending: TurnEnding) -> None:
        for event in ending.observe(ending.execution):
            self.record(event)

    def _move_head(self, ending: TurnEnding) -> HeadMove | None:
        return None if ending.move is None else self._move(ending.move, ending.execution.execution_id)

    def _list_handles(self, ending: TurnEnding) -> tuple[HandleState, ...]:
        if self.graph.is_empty:
            return ()
        if ending.execution.state_diff.incomplete:
            self.names.scan()
        return self.handles()

    def _list_changes(self, ending: TurnEnding) -> Changes:
        late, comparisons = self._taken()
        if ending.moved is not None:
            # The feed so far describes another place in the timeline.
            return self._tell_move(ending.moved, ending.restored, late, comparisons)
        execution, handles = ending.execution, self.names.handles
        names = {obj_id: name for name, obj_id in handles.items()} if handles else NONE
        sizes = {row.name: row.size for row in self.state.variables} if execution.state_diff.changed else {}
        deltas = format_deltas(execution, execution.events, names, late, comparisons, sizes)
        return Changes(deltas, self._feed.add(deltas))

    def _list_variables(self, ending: TurnEnding) -> Variables:
        return self.names.table()

    def _collect_state(self, ending: TurnEnding) -> Turn:
        return self._state(ending.handles, ending.variables, ending.changes.untold)

    def _tend_history(self, ending: TurnEnding) -> list[str]:
        """Record the repairs and condensations that are due; return notices for the user."""
        if ending.moved is not None:
            self._moment = "load" if self._moment == "load" else "rewind"
            return []
        moment, self._moment = self._moment, "request"
        told: list[str] = []
        for event in self._projector.tend(ending.state, moment):
            if isinstance(event, str):
                told.append(event)
            else:
                self.record(event)
        return told

    def _project(self, ending: TurnEnding) -> Any:
        return self._projector.project(ending.state)

    END = (
        Step("namespace diff", _find_changes, gives="diff", otherwise=UNKNOWN, bounded=True),
        Step("tick", _tick, gives="ticked", otherwise=(), bounded=True),
        Step("timeline", _finish_execution, gives="execution", needs=("diff", "ticked"), essential=True),
        Step("history", _observe, needs=("execution",)),
        Step("timeline", _move_head, gives="moved", needs=("execution",)),
        Step("handles", _list_handles, gives="handles", needs=("execution",), otherwise=()),
        Step("delta feed", _list_changes, gives="changes", needs=("execution", "moved"), otherwise=Changes()),
        Step("variables", _list_variables, gives="variables", otherwise=Variables()),
        Step("timeline", _collect_state, gives="state", needs=("handles", "variables", "changes"), essential=True),
        Step("history", _tend_history, gives="tended", needs=("state", "moved"), otherwise=(), when="projects"),
        Step("projection", _project, gives="projection", needs=("state", "tended"), when="projects"),
    )
    """The steps after the code of a statement has ended, in this order."""

    def _result(self, ending: TurnEnding) -> TurnResult:
        recorded, self._recorded = tuple(self._recorded), []
        return TurnResult(
            self.turn_id,
            ending.turn.statement,
            ending.execution,
            ending.handles,
            ending.changes.deltas,
            ending.execution.events,
            ending.projection,
            tuple(ending.notices),
            ending.turn.outside,
            ending.moved,
            recorded=recorded,
        )

    def close(self, turn: OpenTurn, outcome: Outcome, now: float) -> TurnResult:
        """Close a statement whose `end` failed. Only its outcome is kept."""
        self._open = self._recording = self._ahead = None
        self.blind = self.blind or UNKNOWN.incomplete
        self.suspect(self.blind)
        self._guard("tick", self.graph.close, None)
        self._events.clear()
        execution = self.log.execution(turn.execution.execution_id)
        if execution.status == "running":
            notices = (*outcome.notices, UNKNOWN.incomplete)
            execution = outcome.ended(execution, now, state_diff=UNKNOWN, notices=notices)
            self._finish(turn.statement, execution)
        ending = TurnEnding(turn, outcome, now, execution=execution, notices=list(execution.notices))
        ending.handles = self._guard("handles", self.handles, ())
        self.projection = None
        return self._result(ending)

    def _state(self, handles: tuple[HandleState, ...], variables: Variables, deltas: tuple[DeltaItem, ...]) -> Turn:
        cold = self.requested_at is None or self.now - self.requested_at > CACHE_SECONDS
        pending = self._guard("history", self.pending, ())
        return Turn(self._history, handles, *variables, deltas, self.log.records, self._coarser, cold, pending)

    def answered(self) -> None:
        """Begin the delta feed anew, since the model has answered; it has seen what `show` requested."""
        self._feed.clear()
        self.graph.requested.clear()

    def _coarser(self, obj_id: str, lod: int) -> str | None:
        node = self.graph.node(obj_id)
        return self._guard("projection", lambda: node.render(lod=lod).text, None) if node is not None else None

    def move(self, move: HeadMove, restored: Restored | None = None) -> None:
        """Move HEAD without a turn, when a session is resumed, and build the projection.

        Raises KeyError for an unknown place, RuntimeError while a statement is open.
        """
        if self._open is not None:
            raise RuntimeError("a statement is open; give the move to end")
        moved = self._move(move, None)
        handles = self._guard("handles", self.handles, ())
        changes = self._tell_move(moved, restored or Restored(), *self._taken())
        variables = self._guard("variables", self.names.table, Variables())
        self.state = self._state(handles, variables, changes.untold)
        if self.projects:
            self.projection = self._guard("projection", self._projector.project, None, self.state)

    def _move(self, move: HeadMove, by: str | None) -> HeadMove:
        self.log.move_head(move.to, by=by)
        self.graph.requested.clear()
        self._replay()
        return move

    def _taken(self) -> tuple[Mapping[str, str], Sequence[Comparison]]:
        """Return the late output and the comparisons that no feed has reported yet, and forget them."""
        taken = self._late, self._compared
        self._late, self._compared = {}, []
        return taken

    def _tell_move(
        self, move: HeadMove, restored: Restored, late: Mapping[str, str], comparisons: Sequence[Comparison]
    ) -> Changes:
        here = {statement.statement_id for statement, _ in self._history}
        told = {statement_id: line for statement_id, line in late.items() if statement_id in here}
        deltas = format_move(move, restored, told, [one for one in comparisons if self._on_path(one.execution_id)])
        self._feed.clear()
        return Changes(deltas, self._feed.add(deltas))

    def compared(self, comparison: Comparison) -> None:
        """Report a comparison in the next delta feed, and in the groups over what the re-run changed.

        Raises KeyError for an execution that is not in this log.
        """
        self.log.execution(comparison.execution_id)
        self._compared.append(comparison)

    def changed_late(self, execution_id: str, found: NamespaceDiff) -> NamespaceDiff:
        """Keep the changes of an execution that were found after its end; the next delta feed reports them.

        Return them with credentials masked. Raises KeyError for an execution that is not in this log.
        """
        found = mask_diff(found, self._mask_value)
        execution = self.log.add_late_diff(execution_id, found)
        if found.changed and self._on_path(execution_id):
            self.names.follow(execution.statement_id, found)
            names = join_names(list(found.changed))
            self._late[execution.statement_id] = one_line(f"was found to have changed {names}")
        return found
