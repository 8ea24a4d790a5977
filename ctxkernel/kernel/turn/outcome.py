"""How a cell ended: its status and exception, read from the execute reply."""

from __future__ import annotations

from typing import Any

from ctxkernel.core.text import strip_ansi, truncate_middle
from ctxkernel.core.timeline import Cost, ExceptionInfo, Status
from ctxkernel.core.turn import Outcome
from ctxkernel.kernel.turn.cell import CellTurn

TRACE_CHARS = 4000
"""Characters of a traceback that are kept."""


def outcome_of(cell: CellTurn, *, none_came: bool) -> Outcome:
    """Return how a cell ended. `none_came`: no interrupt came while it ran."""
    assert cell.collector is not None
    status, exception = status_of(cell.reply, cell.interrupted, cell.timed_out is not None, none_came=none_came)
    collector = cell.collector
    streams = collector.streams
    notices: list[str] = []
    if cell.timed_out is not None:
        told = "stopped" if status == "timeout" else "interrupted, and went on,"
        notices.append(f"{told} after {cell.timed_out:g} s; %ctx timeout off lets cells run on")
    if collector.dropped:
        notices.append(f"{collector.dropped} rich outputs not kept: more than the first were shown by one cell")
    return Outcome(
        status=status,
        stdout=streams["stdout"].text(),
        stderr=streams["stderr"].text(),
        exception=exception,
        artifacts=(*collector.artifacts(), *cell.written, *cell.read),
        cost=cell.request.cost or Cost(time_ms=round(cell.elapsed * 1000, 3)),
        cut={name: stream.cut for name, stream in streams.items() if stream.cut},
        notices=tuple(notices),
    )


def status_of(
    reply: dict[str, Any], interrupted: bool, timed_out: bool, *, none_came: bool = False
) -> tuple[Status, ExceptionInfo | None]:
    """Return the seed's status and the exception for an execute reply.

    With `none_came` no interrupt did: a KeyboardInterrupt is the code's own, an error like any other.
    """
    if reply.get("status") == "ok":
        return "ok", None
    name, message = str(reply.get("ename", "")), str(reply.get("evalue", ""))
    trace = strip_ansi("\n".join(map(str, reply.get("traceback", ()))))
    if name == "NoneType":  # raised while the result was displayed: ipykernel knows the trace only
        name, _, message = trace.rstrip().rpartition("\n")[2].partition(": ")
    info = ExceptionInfo(name, message[:2000], truncate_middle(trace, TRACE_CHARS))
    if timed_out:
        return "timeout", info
    if not none_came and (name == "KeyboardInterrupt" or (name == "CancelledError" and interrupted)):
        return "cancelled", info
    return ("cancelled" if reply.get("status") in ("abort", "aborted") else "error"), info
