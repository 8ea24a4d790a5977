"""The places where HEAD was, on which `%ctx undo` walks back.

Rule 1: a step is one thing that the user did: a cell, an ask with all that the model did then, or a return with all
        that was run again after it.
Rule 2: a command that changed nothing of the state is no step: HEAD is elsewhere, the last step is the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.events import MethodCalled
from ctxkernel.core.replay import HeadMove
from ctxkernel.core.timeline import Execution, Statement, StatementLog
from ctxkernel.kernel.turn.classification import only_commands


class Trail:
    """Places, oldest first, and which of them HEAD is at."""

    def __init__(self) -> None:
        self._places: list[str | None] = [None]
        self._at = 0
        self._returned = False
        """Whether the last step is a return."""

    @property
    def here(self) -> str | None:
        """The place of HEAD."""
        return self._places[self._at]

    def ran(self, statement: Statement, execution: Execution, *, again: bool) -> None:
        """An execution ended that moved HEAD nowhere else; `again`: it is part of a re-run."""
        if statement.author == "model" or _did_nothing(statement, execution) or (again and self._returned):
            del self._places[self._at :]
            self._places.append(execution.execution_id)
        else:
            self._step(execution.execution_id)
            self._returned = False

    def went(self, place: str | None) -> None:
        """HEAD went to another place."""
        self._step(place)
        self._returned = True

    def undone(self, steps: int) -> tuple[str | None, int]:
        """Return where HEAD was before the last `steps`, and the number of that place. Raises BadCommand."""
        if steps > self._at:
            most = f"; {self._at} can be" if self._at else ""
            raise BadCommand(f"{steps} steps cannot be undone{most}")
        return self._places[self._at - steps], self._at - steps

    def undo(self, at: int) -> None:
        """HEAD went back to a place that `undone` told."""
        self._at = at
        self._returned = False

    def follow(self, moves: Iterable[HeadMove], log: StatementLog) -> None:
        """Follow what HEAD did in an earlier kernel; what `log` has not is passed over."""
        for move in moves:
            if move.to is not None and move.to not in log:
                continue
            if move.to is not None and move.reason == "run":
                if move.to not in log.movers:
                    execution = log.execution(move.to)
                    again = not move.to.endswith(".1")
                    self.ran(log.statement(execution.statement_id), execution, again=again)
            elif move.reason == "undo" and move.to in self._places[: self._at]:
                self.undo(max(at for at in range(self._at) if self._places[at] == move.to))
            else:
                self.went(move.to)

    def extend(self, later: Trail) -> None:
        """Put what a later kernel did behind this."""
        self._places[self._at + 1 :] = later._places[1 : later._at + 1]
        self._at = len(self._places) - 1

    def _step(self, place: str | None) -> None:
        del self._places[self._at + 1 :]
        self._places.append(place)
        self._at += 1


def _did_nothing(statement: Statement, execution: Execution) -> bool:
    """Whether an execution left the state as it was: a command that names, marks, or was refused."""
    called = any(isinstance(event, MethodCalled) for event in execution.events)
    command = only_commands(statement.source) or statement.source.startswith("%%ctx")
    return command and not called and not execution.state_diff
