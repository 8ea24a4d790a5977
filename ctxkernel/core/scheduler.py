"""The tick: four phases, in this order, on the caller's thread (seed 002 §6).

Rule 1: node state changes only in a statement or a tick; a worker only enqueues.
Rule 2: times are arguments.
Rule 3: a node that fails gets a notice, and the tick goes on with the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.jobs import Job, JobKind, Preparer, Summarise, Summarised
from ctxkernel.core.nodes.graph import Graph
from ctxkernel.core.nodes.group import GroupHandle
from ctxkernel.core.nodes.node_base import Async, Freq, NodeBase, Periodic, Sync, TickResult
from ctxkernel.core.nodes.view_handle import ViewHandle
from ctxkernel.core.ports import Expired
from ctxkernel.core.settings import EXTRACTIVE
from ctxkernel.core.timeline_events import (
    AsyncPayloadApplied,
    AsyncPayloadPrepared,
    Delta,
    GroupRecomputed,
    Json,
    TickApplied,
)


@dataclass(frozen=True, slots=True)
class UpdatePayload:
    """An update that a worker prepared. A tick applies it."""

    payload_id: str
    obj_id: str
    prepared_at: float
    basis: Mapping[str, str]
    """`obj_digest_hash`, `policy_hash` and `deps_hash` of the node that it was made from."""
    kind: JobKind
    data: Any
    """The value that `Job.run` returned or published, or the exception that it raised."""
    cost: Mapping[str, float] = field(default_factory=dict[str, float])
    """`time_ms` and `bytes`."""
    payload_hash: str = ""

    def meta(self) -> dict[str, Json]:
        """Return its description for an event."""
        return {"payload_id": self.payload_id, "kind": self.kind, "payload_hash": self.payload_hash, **self.cost}


class ReadyQueue:
    """Finished payloads, from any thread to the tick."""

    def __init__(self) -> None:
        # deque's append and popleft are atomic, so workers need no lock, and core no threads.
        self._ready: deque[UpdatePayload] = deque()

    def put(self, payload: UpdatePayload) -> None:
        """Enqueue a payload. Any thread may call it."""
        self._ready.append(payload)

    def __len__(self) -> int:
        return len(self._ready)

    def waiting(self) -> set[tuple[str, str]]:
        """Return (object, kind) of the payloads that were not taken yet."""
        return {(payload.obj_id, payload.kind) for payload in tuple(self._ready)}

    def take(self, limit: int, wanted: Callable[[UpdatePayload], bool] = lambda payload: True) -> list[UpdatePayload]:
        """Return at most `limit` payloads, oldest first, the newest of each (object, kind) only.

        Those that are not `wanted` are dropped and do not count.
        """
        newest: dict[tuple[str, str], UpdatePayload] = {}
        while self._ready:
            payload = self._ready.popleft()
            newest[payload.obj_id, payload.kind] = payload  # in the place of an older one, so that the order stays
        payloads = [payload for payload in newest.values() if wanted(payload)]
        # Payloads over the limit stay first in the queue, so that each is applied at last.
        self._ready.extendleft(reversed(payloads[limit:]))
        return payloads[:limit]


@dataclass(slots=True)
class Tick:
    """One run of the phases: its time, its turn and its notices."""

    graph: Graph
    ready: ReadyQueue
    now: float
    turn_id: int
    expired: Expired
    preparer: Preparer | None = None
    """The background worker; None where there is none (then the tick renders Async views)."""
    summarise: Summarise | None = None
    """Requests summaries from a model; None where no model writes summaries."""
    notices: list[str] = field(default_factory=list[str])

    def apply(self, node: NodeBase, tick_kind: str, step: Callable[[], TickResult]) -> None:
        """Run one step of a node and record what it did."""
        try:
            result = step()
        except Exception as fault:  # one broken source must not stop the others
            self.failed(node, fault)
            return
        if node.fault:
            node.fault = ""
        if result.notice:
            self.notices.append(f"{node.obj_id} ({node.target}): {result.notice}")
        if result.delta is not None:
            self.graph.emit(tick_event(node, tick_kind, result.delta))
            self.graph.changed(node, result.delta)
        elif result.looked:
            self.graph.looked(node)

    def failed(self, node: NodeBase, fault: BaseException) -> None:
        """Record why `node` could not be updated."""
        node.fault = f"{type(fault).__name__}: {fault}"[:200]
        self.notices.append(
            f"{node.obj_id} ({node.target}) was not updated: {node.fault}; {node.obj_id}.refresh() tries again"
        )


def tick_event(node: NodeBase, tick_kind: str, delta: Delta) -> TickApplied | GroupRecomputed:
    """Return the event for a change by the tick."""
    if isinstance(node, GroupHandle):
        return GroupRecomputed(node.obj_id, delta)
    return TickApplied(node.obj_id, tick_kind, delta)


def apply_ready(tick: Tick) -> None:
    """Apply prepared payloads whose basis still holds; drop the others."""
    graph = tick.graph

    def wanted(payload: UpdatePayload) -> bool:
        node = graph.node(payload.obj_id)
        if not isinstance(node, ViewHandle):
            return False
        if not isinstance(payload.data, BaseException):
            graph.emit(AsyncPayloadPrepared(node.obj_id, payload.meta()))
        return payload.basis == node.basis(payload.kind)

    applied: set[str] = set()
    for payload in tick.ready.take(graph.settings.ready_per_turn, wanted):
        node = graph.node(payload.obj_id)
        if not isinstance(node, ViewHandle):
            continue
        if node.obj_id in applied and payload.basis != node.basis(payload.kind):
            continue  # the payload that was just applied made this one stale
        applied.add(node.obj_id)
        if isinstance(payload.data, BaseException):
            tick.failed(node, payload.data)
            continue

        def step(node: ViewHandle = node, payload: UpdatePayload = payload) -> TickResult:
            node.last_tick_turn, node.last_tick_time = tick.turn_id, tick.now
            result = node.apply(payload.data)
            if result.delta is not None:
                graph.emit(AsyncPayloadApplied(node.obj_id, payload.meta(), result.delta))
            return result

        tick.apply(node, "async", step)


def _running(tick: Tick, kind: type[Freq]) -> list[NodeBase]:
    nodes = [
        node
        for node in tick.graph.nodes()
        if node.mode == "running" and isinstance(node.freq, kind) and not isinstance(node, GroupHandle)
    ]
    # The longest-waiting ones first, so that each is updated at last if time runs out at every turn.
    return sorted(nodes, key=lambda node: node.last_tick_turn)


def _out_of_time(tick: Tick, left: int, what: str = "running view") -> bool:
    if not tick.expired():
        return False
    tick.notices.append(
        f"{left} {what}{'s' * (left != 1)} not looked at: the time after a cell ran out; tick() looks now"
    )
    return True


def tick_sync(tick: Tick) -> None:
    """Update running Sync nodes that were not updated within their `min_turn_interval`."""
    nodes = _running(tick, Sync)
    for position, node in enumerate(nodes):
        if _out_of_time(tick, len(nodes) - position):
            return
        if node.dirty or node.last_tick_turn == 0 or tick.turn_id - node.last_tick_turn >= node.min_turn_interval:
            tick.apply(node, "sync", lambda node=node: node.tick(tick.now, tick.turn_id, "sync"))


def tick_periodic(tick: Tick) -> None:
    """Update Periodic nodes that are due; and Async ones where there is no worker."""
    due = [
        node
        for node in _running(tick, Periodic)
        if isinstance(node.freq, Periodic)
        and (node.last_tick_time is None or tick.now - node.last_tick_time >= node.freq.seconds)
    ]
    for position, node in enumerate(due):
        if _out_of_time(tick, len(due) - position):
            break
        tick.apply(node, "periodic", lambda node=node: node.tick(tick.now, tick.turn_id, "periodic"))
    if tick.preparer is None:
        for node in _running(tick, Async):
            tick.apply(node, "async", lambda node=node: node.tick(tick.now, tick.turn_id, "async"))


def recompute_groups(tick: Tick) -> None:
    """Compute the summaries of dirty groups, inner groups first."""
    groups = [node for node in tick.graph.nodes() if isinstance(node, GroupHandle)]
    groups.sort(key=lambda group: sum(isinstance(node, GroupHandle) for node in group.nested()))
    for position, group in enumerate(groups):
        if group.dirty and _out_of_time(tick, sum(late.dirty for late in groups[position:]), "changed group"):
            return
        tick.apply(group, "sync", lambda group=group: group.tick(tick.now, tick.turn_id, "sync"))


PHASES = (apply_ready, tick_sync, tick_periodic, recompute_groups)


def hand_out(tick: Tick) -> None:
    """Give the worker the jobs that the nodes want after the tick; it cancels all others."""
    if tick.preparer is None:
        return
    jobs: list[Job] = []
    for node in tick.graph.nodes():
        if isinstance(node, ViewHandle):
            try:
                jobs += node.jobs()
            except Exception as fault:  # such as a stamp that raises; `apply` would clear an earlier fault
                tick.failed(node, fault)
    jobs += _summaries(tick)
    try:
        tick.notices += tick.preparer.want(jobs)
    except Exception as fault:  # no thread could be started
        tick.notices.append(f"nothing is prepared in the background: {type(fault).__name__}: {fault}"[:200])


def _summaries(tick: Tick) -> list[Job]:
    """Return the jobs for summaries by a model: of what is shown at level 2, as itself or in a group."""
    if tick.summarise is None:
        return []
    views: dict[ViewHandle, Summarised] = {}
    # Where no model writes summaries, earlier requests are cancelled.
    for node in tick.graph.nodes() if tick.graph.settings.summary_model != EXTRACTIVE else ():
        if node.lod == 2:
            for one in (node, *(node.nested() if isinstance(node, GroupHandle) else ())):
                try:
                    if isinstance(one, ViewHandle) and (found := one.summarised()) is not None:
                        views[one] = found
                except Exception as fault:  # a stamp that raises, say
                    tick.failed(one, fault)
    try:
        wanted, notices = tick.summarise(list(views.values()))
    except Exception as fault:  # the extractive ones stay
        tick.notices.append(f"no summary is asked for: {type(fault).__name__}: {fault}"[:200])
        return []
    tick.notices += notices
    return [view.job(one) for view, one in zip(views, wanted, strict=True) if one is not None]


def run_tick(tick: Tick) -> list[str]:
    """Run all phases. Returns notices for the user."""
    with tick.graph.opened("tick"):
        for phase in PHASES:
            phase(tick)
        hand_out(tick)
    return tick.notices
