"""The record of one cell's turn, and how the cell ended, read from its execute reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.ports import Expired
from ctxkernel.core.replay import Comparison, HeadMove, Restored
from ctxkernel.core.text import strip_ansi, truncate_middle
from ctxkernel.core.timeline import Artifact, Cost, ExceptionInfo, Execution, Status
from ctxkernel.core.turn_values import OpenTurn, Outcome, TurnResult
from ctxkernel.kernel.execution.capture import Collector
from ctxkernel.kernel.execution.cell import CellRequest, ExecuteReply
from ctxkernel.store.chunks.manifest import CheckpointRow

TRACE_CHARS = 4000
"""Characters of a traceback that are kept."""


@dataclass(slots=True)
class CellTurn:
    """The record of one cell's turn: its request, then the results of the steps of `Turns.BEGIN` and `Turns.END`."""

    request: CellRequest
    now: float
    """Unix time at which the turn began."""
    ran: str = ""
    """Which of the user's code ran outside of cells since the last one; empty: none."""
    open: OpenTurn | None = None
    """The open statement; None where the timeline failed."""
    outside_row: CheckpointRow | None = None
    """The checkpoint after the statement for changes that happened outside of any cell."""
    collector: Collector | None = None
    connections: Mapping[str, str] = field(default_factory=dict[str, str])
    """The environment variables that decide where requests to models go, before a cell of the model."""
    started: float = 0.0
    """Value of the performance counter when the user's code began, in seconds."""

    reply: ExecuteReply = field(default_factory=dict[str, Any])
    interrupted: bool = False
    timed_out: float | None = None
    """Seconds after which the time limit stopped the cell; None: it did not."""
    elapsed: float = 0.0
    """Seconds."""
    expired: Expired = lambda: False
    """Returns whether the time limit of the end of the cell is reached."""
    committed: tuple[HeadMove, Restored] | None = None
    """The result of the return that the cell asked for."""
    read: Sequence[Artifact] = ()
    written: Sequence[Artifact] = ()
    pictures: Sequence[Artifact] = ()
    """Scaled copies of displayed images that are too large for a model."""
    outcome: Outcome | None = None
    result: TurnResult | None = None
    row: CheckpointRow | None = None
    """The checkpoint after the cell; None: none was taken."""
    comparison: Comparison | None = None


def outcome_of(cell: CellTurn, *, none_came: bool) -> Outcome:
    """Return how a cell ended. `none_came`: it is certain that no interrupt came while it ran."""
    collector = cell.collector
    assert collector is not None
    status, exception = status_of(cell.reply, cell.interrupted, cell.timed_out is not None, none_came=none_came)
    notices: list[str] = []
    if cell.timed_out is not None:
        told = "stopped" if status == "timeout" else "interrupted, and went on,"
        notices.append(f"{told} after {cell.timed_out:g} s; %ctx timeout off lets cells run on")
    if collector.dropped:
        notices.append(f"{collector.dropped} rich outputs not kept: more than the first were shown by one cell")
    streams = collector.streams
    return Outcome(
        status=status,
        stdout=streams["stdout"].text(),
        stderr=streams["stderr"].text(),
        exception=exception,
        artifacts=(*collector.artifacts(), *cell.pictures, *cell.written, *cell.read, *collector.arrangement()),
        cost=cell.request.cost or Cost(time_ms=round(cell.elapsed * 1000, 3)),
        cut={name: stream.cut for name, stream in streams.items() if stream.cut},
        notices=tuple(notices),
    )


def outcome_of_kept(execution: Execution, recalled: str = "") -> Outcome:
    """Return the outcome of an execution whose result is kept; `recalled`: the saved time as a text."""
    told = f"not run again: nothing that it reads has changed since {execution.execution_id}"
    if recalled:
        told = f"recalled from {execution.execution_id}, which read the same: {recalled} saved"
    return Outcome(
        status=execution.status,
        stdout=execution.stdout,
        stderr=execution.stderr,
        exception=execution.exception,
        artifacts=execution.artifacts,
        cut=execution.cut,
        notices=(told,),
    )


def with_named_error(reply: ExecuteReply) -> ExecuteReply:
    """Return a reply with the error that was raised while the result was displayed: ipykernel knows its trace only."""
    if reply.get("ename") != "NoneType":
        return reply
    trace = strip_ansi("\n".join(map(str, reply.get("traceback", ()))))
    name, _, message = trace.rstrip().rpartition("\n")[2].partition(": ")
    return {**reply, "ename": name, "evalue": message}


def status_of(
    reply: ExecuteReply, interrupted: bool, timed_out: bool, *, none_came: bool = False
) -> tuple[Status, ExceptionInfo | None]:
    """Return the status and the exception for an execute reply.

    With `none_came` no interrupt came: the code itself raised a KeyboardInterrupt, which is an error like any other.
    """
    if reply.get("status") == "ok":
        return "ok", None
    name, message = str(reply.get("ename", "")), str(reply.get("evalue", ""))
    trace = strip_ansi("\n".join(map(str, reply.get("traceback", ()))))
    info = ExceptionInfo(name, message[:2000], truncate_middle(trace, TRACE_CHARS))
    if timed_out:
        return "timeout", info
    if not none_came and (name == "KeyboardInterrupt" or (name == "CancelledError" and interrupted)):
        return "cancelled", info
    return ("cancelled" if reply.get("status") in ("abort", "aborted") else "error"), info
