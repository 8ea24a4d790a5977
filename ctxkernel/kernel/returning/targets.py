"""Where a return goes, and what a cell asked for. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ctxkernel.core.timeline import Execution, Statement, StatementLog
from ctxkernel.state.checkpoints.comparison import Difference
from ctxkernel.store.log.resume import Resumable

Action = Literal["goto", "undo", "rerun", "resume"]


@dataclass(frozen=True, slots=True)
class Target:
    """A place in the timeline to return to."""

    execution_id: str | None
    """None is the state before all statements."""
    told: str
    """How the user knows it: `s10`, `before s10`, `fitted`."""


@dataclass(slots=True)
class Job:
    """A return that a cell asked for."""

    action: Action
    target: Target
    difference: Difference
    statements: tuple[tuple[Statement, Execution], ...] = ()
    """What runs again afterwards."""
    at: int | None = None
    """Where on HEAD's trail an undo goes."""
    as_json: bool = False
    lose: frozenset[str] = frozenset()
    """Names that may be lost, as their data are missing."""
    confirmed: bool = False
    """Statements that are marked as ones that ask may run."""
    resumable: Resumable | None = None
    """What an earlier kernel left, that this one goes on with …"""
    log: StatementLog | None = None
    """… and its timeline."""
