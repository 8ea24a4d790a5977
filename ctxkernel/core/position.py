"""The position in the timeline: the log, the path to HEAD, and the events recorded with the open statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ctxkernel.core.handle_functions import HandleFunctions
from ctxkernel.core.names import UserNames
from ctxkernel.core.nodes import Graph
from ctxkernel.core.nodes.identity import made_again, made_counts
from ctxkernel.core.text import one_line
from ctxkernel.core.timeline import Execution, Statement, StatementLog
from ctxkernel.core.timeline_events import Event
from ctxkernel.core.turn_values import OpenTurn


class Position(HandleFunctions):
    """The timeline of one session, and the place of HEAD in it."""

    def __init__(self, graph: Graph, names: UserNames) -> None:
        super().__init__(graph, names)
        graph.events = self._on_the_way
        self.log = StatementLog()
        self._open: OpenTurn | None = None
        self._history: list[tuple[Statement, Execution]] = []
        self._ahead: list[tuple[Statement, Execution]] | None = None
        self._passed: set[str] | None = set()
        """The executions of the history; None until `_on_path` needs them."""
        self._late: dict[str, str] = {}
        self._recorded: list[Any] = []
        self._recording: str | None = None
        """The execution that events are recorded with."""
        self._moment = "request"
        self.question_of: Callable[[Any], str] = lambda event: ""
        """Returns the question in a recorded event, empty for any other event; the kernel sets it."""
        self._question: str = ""

    @property
    def opened(self) -> OpenTurn | None:
        """The statement that is open."""
        return self._open

    @property
    def history(self) -> Sequence[tuple[Statement, Execution]]:
        """The path from the root to HEAD, oldest first; in the tick of a cell that moves HEAD, to the target."""
        return self._history if self._ahead is None else self._ahead

    def _on_the_way(self) -> Iterable[tuple[str, Event]]:
        """Return the events of the path to HEAD, those of the open statement last."""
        for statement, execution in self._history:
            for event in execution.events:
                yield statement.statement_id, event
        if self._open is not None:
            for event in tuple(self._events):
                yield self._open.statement.statement_id, event

    def _finish(self, statement: Statement, execution: Execution) -> None:
        self.log.finish(execution)
        self._history.append((statement, execution))
        self._passed = None
        self.names.follow(statement.statement_id, execution.state_diff)

    def _on_path(self, execution_id: str) -> bool:
        """Return whether an execution that ended leads to HEAD."""
        if self._passed is None:
            self._passed = {execution.execution_id for _, execution in self._history}
        return execution_id in self._passed

    def late(self, execution_id: str, stream: str, text: str, limit: int = 10_000) -> None:
        """Keep output that arrived after its execution had ended; the next delta feed reports it.

        Raises KeyError for an execution that is not in this log.
        """
        execution = self.log.execution(execution_id)
        kept = (execution.late.get(stream, "") + text)[:limit]
        self.log.replace_late(execution_id, {**execution.late, stream: kept})
        if self._on_path(execution_id) or execution.status == "running":  # not for another branch
            self._late[execution.statement_id] = one_line(f"printed after its end: {kept}", 102)

    # -- the model's history ------------------------------------------------------------------

    def record(self, event: Any) -> None:
        """Record an event of the model's history with the open statement.

        Raises RuntimeError where none is open: state changes only in a statement or in its tick.
        """
        if self._recording is None:
            raise RuntimeError(f"{type(event).__name__} {event.event_id} can be recorded in a statement only")
        self.log.record(self._recording, event)
        self._recorded.append(event)
        self._question = self.question_of(event) or self._question

    @property
    def next_event_id(self) -> str:
        """Return the id that the next event of the open statement has. Raises RuntimeError where none is open."""
        if self._recording is None:
            raise RuntimeError("no statement is open; an event belongs to one")
        return f"{self._recording}:{len(self.log.records.get(self._recording, ())) + 1}"

    # -- other places in the timeline ------------------------------------------------------------

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

        Ids of turns continue after `turn_id` (by default, after the number of executions), those of handles after the
        newest ones in the events. The caller restores namespace and handles, and then calls `move`.
        """
        self.log.load(statements, head, movers=movers, records=records)
        self._moment = "load"
        self.turn_id = max(self.turn_id, self.log.executed if turn_id is None else turn_id)
        self._continue_ids()
        self._replay()

    def join(
        self,
        statements: Iterable[tuple[Statement, Sequence[Execution]]],
        *,
        movers: Iterable[str] = (),
        records: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Put the timeline of an earlier kernel before the own one, which becomes a branch.

        HEAD stays where it is. Raises what `StatementLog.load` raises; then nothing has changed.
        """
        own = [(statement, self.log.executions(statement.statement_id)) for statement in self.log]
        log = StatementLog()
        both = {**(records or {}), **self.log.records}
        log.load([*statements, *own], self.log.head, movers=[*movers, *self.log.movers], records=both)
        self.log = log
        self._moment = "load"
        self.turn_id = max(self.turn_id, log.executed)
        self._continue_ids()

    def _continue_ids(self) -> None:
        """Start the ids of new handles after those in the log."""
        for statement in self.log:
            for execution in self.log.executions(statement.statement_id):
                self.graph.continue_after(made_counts(execution.events))
        self.graph.continue_after(made_again(self.log))

    def _replay(self) -> None:
        """Recompute what depends on the path to HEAD."""
        self._history = self.log.path()
        self._passed = None
        self.names.replay(self._history)
        self.graph.release()
        self._question = self._last_question()

    def _last_question(self) -> str:
        """Return the last question on the path to HEAD, or to the target of a cell that moves HEAD."""
        records = self.log.records
        events = (one for _, run in reversed(self.history) for one in reversed(records.get(run.execution_id, ())))
        return next((asked for one in events if (asked := self.question_of(one))), "")
