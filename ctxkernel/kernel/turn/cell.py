"""A cell: the request to run it, and the record of its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ctxkernel.core.ports import Expired
from ctxkernel.core.replay import Comparison, HeadMove, Restored
from ctxkernel.core.timeline import Artifact, Author, Cost, Kind, Statement
from ctxkernel.core.turn import Observe, OpenTurn, Outcome, TurnResult
from ctxkernel.kernel.execution.capture import Collector
from ctxkernel.store.chunks.manifest import CheckpointRow

Reply = dict[str, Any]
"""The content of an execute reply."""


@dataclass(slots=True)
class CellRequest:
    """A cell that is to be run."""

    code: str
    msg_id: str
    silent: bool = False
    recorded: bool = False
    """It becomes a statement; the rest says which."""
    cell_id: str | None = None
    kind: Kind = "python"
    author: Author = "human"
    tags: dict[str, Any] = field(default_factory=dict[str, Any])
    rerun: bool = False
    """It is one of the cells that a notebook runs again from a checkpoint on."""
    rerun_of: Statement | None = None
    """The statement that the log runs again …"""
    against: str = ""
    """… and the execution that it is compared with."""
    observe: Observe | None = None
    """What is recorded in the model's history when it has ended."""
    cost: Cost | None = None
    """What it cost, where that is not its own time."""
    keeps_number: bool = False
    """It counts in `In` and `Out`, whatever the request that it runs under does."""

    @property
    def again(self) -> bool:
        """Whether it is part of a re-run."""
        return self.rerun or self.rerun_of is not None


class Then(Protocol):
    """What goes on when a cell's turn is over."""

    async def carry_out(
        self, execute: Callable[[CellRequest], Awaitable[Reply]], outer: CellRequest, reply: Reply
    ) -> Reply:
        """Run further cells, each as a turn of its own; returns the reply of the cell that asked for it."""
        ...


@dataclass(slots=True)
class CellTurn:
    """The record of one cell's turn: what is given, then what the steps of `Turns.BEGIN` and `Turns.END` give."""

    request: CellRequest
    now: float
    """Unix time at which the turn began."""
    ran: str = ""
    """Which code of the user's ran since the last cell, outside of any; empty: none."""
    open: OpenTurn | None = None
    """The open statement; None where the timeline failed."""
    outside_row: CheckpointRow | None = None
    """The checkpoint after the statement for what changed outside of any cell."""
    collector: Collector | None = None
    started: float = 0.0
    """Value of the performance counter when the user's code began, in seconds."""

    reply: Reply = field(default_factory=dict[str, Any])
    interrupted: bool = False
    timed_out: float | None = None
    """Seconds after which the cell was stopped; None: it was not."""
    elapsed: float = 0.0
    """Seconds."""
    expired: Expired = lambda: False
    committed: tuple[HeadMove, Restored] | None = None
    """The return that the cell asked for, carried out."""
    read: Sequence[Artifact] = ()
    written: Sequence[Artifact] = ()
    outcome: Outcome | None = None
    result: TurnResult | None = None
    row: CheckpointRow | None = None
    """The checkpoint after the cell; None: none was taken."""
    comparison: Comparison | None = None
