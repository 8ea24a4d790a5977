"""Targets of returns, requests by cells, and the trail of HEAD that `%ctx undo` walks back.

Rule 1: a step of the trail is one thing that the user did: a cell, an ask with everything that the model did then, or
        a return with everything that ran again after it.
Rule 2: a command that changed nothing of the state is no step: HEAD is elsewhere, the last step is the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.replay import HeadMove
from ctxkernel.core.timeline import Execution, Statement, StatementLog, run_name
from ctxkernel.core.timeline_events import MethodCalled
from ctxkernel.kernel.execution.cell import only_commands

if TYPE_CHECKING:  # the ambient state remembers the process as it is when it is imported
    from ctxkernel.kernel.returning.affected_notebook import AffectedNotebook
    from ctxkernel.state.checkpoints.comparison import Difference
    from ctxkernel.store.log.resumable_runs import Resumable

ReturnAction = Literal["goto", "undo", "rerun", "resume"]


@dataclass(frozen=True, slots=True)
class Target:
    """A place in the timeline to return to."""

    execution_id: str | None
    """None is the state before all statements."""
    told: str
    """Its name for the user: `s10`, `before s10`, `fitted`."""


@dataclass(slots=True)
class ReturnJob:
    """A return that a cell asked for."""

    action: ReturnAction
    target: Target
    difference: Difference
    statements: tuple[tuple[Statement, Execution], ...] = ()
    """The statements that run again afterwards."""
    at: int | None = None
    """The index on HEAD's trail that an undo goes to."""
    as_json: bool = False
    lose: frozenset[str] = frozenset()
    """Names that may be lost, as their data are missing."""
    confirmed: bool = False
    """Whether statements that are marked `asks` may run."""
    resumable: Resumable | None = None
    """The session of an earlier kernel that this one continues."""
    log: StatementLog | None = None
    """The timeline of that session."""
    affected: AffectedNotebook | None = None
    """The notebook of which the affected cells run again afterwards."""
    stepwise: bool = False
    """Whether a front end sends these cells one by one."""


class Trail:
    """The places where HEAD was, oldest first, and which of them it is at."""

    def __init__(self) -> None:
        self.places: list[str | None] = [None]
        self.at = 0
        self._returned = False
        """Whether the last step is a return."""

    def ran(self, statement: Statement, execution: Execution, *, again: bool) -> None:
        """Add an execution that ended and moved HEAD nowhere else; `again`: it is part of a re-run."""
        if self.places[self.at] == execution.execution_id:
            return
        is_command = "%" in statement.source and _did_nothing(statement, execution)
        if is_command or statement.author == "model" or (again and self._returned):
            self.places[self.at :] = [execution.execution_id]
        else:
            self._step(execution.execution_id)
            self._returned = False

    def went(self, place: str | None) -> None:
        """Add a return to another place."""
        self._step(place)
        self._returned = True

    def undone(self, steps: int) -> tuple[Target, int]:
        """Return where HEAD was before the last `steps`, and the index of that place. Raises BadCommand."""
        if steps > self.at:
            most = f"; {self.at} can be" if self.at else ""
            raise BadCommand(f"{steps} steps cannot be undone{most}")
        place = self.places[self.at - steps]
        return Target(place, run_name(place) if place else "before all statements"), self.at - steps

    def undo(self, at: int) -> None:
        """Move HEAD back to an index given by `undone`."""
        self.at = at
        self._returned = False

    def follow(self, moves: Iterable[HeadMove], log: StatementLog) -> None:
        """Repeat the moves of HEAD in an earlier kernel, except those to places that are not in `log`."""
        for move in moves:
            if move.to is not None and move.to not in log:
                continue
            if move.to is not None and move.reason == "run":
                if move.to not in log.movers:
                    execution = log.execution(move.to)
                    again = not move.to.endswith(".1")
                    self.ran(log.statement(execution.statement_id), execution, again=again)
            elif move.reason == "undo" and move.to in self.places[: self.at]:
                self.undo(max(at for at in range(self.at) if self.places[at] == move.to))
            else:
                self.went(move.to)

    def extend(self, later: Trail) -> None:
        """Append the trail of a later kernel."""
        self.places[self.at + 1 :] = later.places[1 : later.at + 1]
        self.at = len(self.places) - 1

    def _step(self, place: str | None) -> None:
        self.at += 1
        self.places[self.at :] = [place]


def _did_nothing(statement: Statement, execution: Execution) -> bool:
    """Return whether an execution left the state as it was: a command that names, marks, or was refused."""
    called = any(isinstance(event, MethodCalled) for event in execution.events)
    command = only_commands(statement.source) or statement.source.startswith("%%ctx")
    return command and not called and not execution.state_diff


def place_in(path: Sequence[tuple[Statement, Execution]], execution_id: str | None, *, exact: bool) -> int:
    """Return the index of an execution on a path, else -1; unless `exact`, of any execution of its statement."""
    wanted = (execution_id or "").rpartition(".")[0]
    for at, (statement, execution) in enumerate(path):
        if execution.execution_id == execution_id or (not exact and statement.statement_id == wanted):
            return at
    return -1
