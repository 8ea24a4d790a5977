"""What the history view costs: run it, read the tables. CPU time; best of `ROUNDS`; the machine should be quiet.

    python benchmarks/history.py [--peer PYTHON]

A history is questions of which each leads to rounds of tool calls, a fifth of them with two calls, and ends with a
message. At 0, 20 and 100 % thinking that share of the rounds begins with a thinking block. `--peer` names an
interpreter that has `openhands-sdk`; the same histories then go through its view too, up to 10,000 events.

The second table is of projections: what is due is recorded and the projection made (`tend` and `project`) after each
of 30 turns of ten more events; the first one of a history that was never condensed, as one from elsewhere; and the
first one of a new engine on the same history with what was recorded, as when a session is loaded. The third is of a
view with many condensations.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn_values import Turn
from ctxkernel.history.events import (
    Action,
    AssistantMessage,
    Condensation,
    HistoryEvent,
    Observation,
    SummaryText,
    UserQuestion,
)
from ctxkernel.history.repair import normalise
from ctxkernel.history.view import HistoryView
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.tokens import count_tokens

SIZES = (1_000, 10_000, 100_000)
SHARES = (0, 20, 100)
ROUNDS = 5
PEER_MOST = 10_000
BUDGETS = (32_000, 200_000, 10_000_000)
"""Tokens of a projection; with the last of them everything stands."""
TURNS, PER_TURN, PER_STATEMENT = 30, 10, 100
CONDENSATIONS = 500
THOUGHT = {"type": "thinking", "thinking": "let me see", "signature": "c2ln"}


def history(size: int, share: int) -> list[HistoryEvent]:
    """Return `size` events, and as many more as end the last answer, of which `share` percent of the rounds think."""
    events: list[HistoryEvent] = []
    ask = rounds = 0
    while len(events) < size:
        ask += 1
        events.append(UserQuestion(f"s{ask}.1:0", "why do residuals drift?"))
        for _ in range(4):
            rounds += 1
            calls = 2 if rounds % 5 == 0 else 1
            thinks = rounds * share // 100 > (rounds - 1) * share // 100
            for n in range(calls):
                call_id = f"c{rounds}_{n}"
                used = {"type": "tool_use", "id": call_id, "name": "run", "input": {"n": n}}
                blocks = (THOUGHT, used) if thinks and not n else (used,)
                events.append(Action(f"a{rounds}.{n}", call_id, "run", {"n": n}, f"r{rounds}", blocks))
            events += [Observation(f"o{rounds}.{n}", f"c{rounds}_{n}", "ok") for n in range(calls)]
        events.append(AssistantMessage(f"m{ask}", "since the sensor was changed"))
    return events


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call, the best of several, garbage collected before each."""
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def repair(events: list[HistoryEvent]) -> None:
    assert normalise(events).events is events


def rebuild(events: list[HistoryEvent]) -> HistoryView:
    view = HistoryView(events)
    assert len(view.events) > 0
    return view


def with_boundaries(events: list[HistoryEvent]) -> HistoryView:
    view = rebuild(events)
    assert view.boundaries.length > 0
    return view


def append(events: list[HistoryEvent], *, read: bool) -> None:
    view = HistoryView()
    for event in events:
        view.append(event)
        if read:
            view.events  # noqa: B018


class Session:
    """Statements with the events that are recorded with them, and an engine."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.path: list[tuple[Statement, Execution]] = []
        self.records: dict[str, list[HistoryEvent]] = {}
        self.load()

    def load(self) -> None:
        self.engine = ProjectionEngine(Settings(projection_tokens=self.budget), count_tokens)

    def run(self, events: list[HistoryEvent]) -> None:
        """Add a statement with `events`."""
        number = len(self.path) + 1
        before = self.path[-1][1].execution_id if self.path else None
        execution = Execution(f"s{number}.1", f"s{number}", before, 0.0, 1.0, "ok")
        self.path.append((Statement(f"s{number}", number, 0.0, "%%ask"), execution))
        self.records[execution.execution_id] = events

    def project(self) -> float:
        """Return the CPU time of what comes before a request."""
        gc.collect()
        start = time.process_time()
        turn = Turn(self.path, (), (), 0, (), self.records, False)
        made = [event for event in self.engine.tend(turn) if not isinstance(event, str)]
        self.records[self.path[-1][1].execution_id] += made
        projection = self.engine.project(turn)
        spent = time.process_time() - start
        assert projection.report.ok
        return spent


def turns(size: int, budget: int) -> tuple[int, float, list[float], float]:
    """Return the blocks, seconds of the first projection, milliseconds of the turns, seconds after loading."""
    events = history(size + TURNS * PER_TURN, 20)
    session = Session(budget)
    for at in range(0, size, PER_STATEMENT):
        session.run(events[at : at + PER_STATEMENT])
    first = session.project()
    took: list[float] = []
    for at in range(size, size + TURNS * PER_TURN, PER_TURN):
        session.run(events[at : at + PER_TURN])
        took.append(session.project() * 1e3)
    blocks = len(session.engine.past.run.pieces)
    session.load()
    return blocks, first, took, session.project()


def projections(size: int, budget: int) -> None:
    """Print a row: the first projection, one after loading, and those of the turns."""
    blocks, first, took, again = turns(size, budget)
    print(
        f"{size:8,} {budget:11,} {blocks:8,} {statistics.median(took):10.1f} ms {max(took):7.1f} ms"
        f" {first:9.2f} s {again:9.2f} s"
    )


def condensed(size: int) -> list[HistoryEvent]:
    """Return a history of `size` events in which every part of a hundredth of it or so was condensed, and then more."""
    events = history(size, 20)
    out: list[HistoryEvent] = []
    step = max(len(events) // CONDENSATIONS, 1)
    for at in range(0, len(events), step):
        part = events[at : at + step]
        out += part
        view = HistoryView(part)
        begin, end = view.boundaries.find_next(0), view.boundaries.find_last(len(view.events) // 2)
        forgotten = tuple(event.event_id for event in view.events[begin:end])
        offset = max(len(out) - len(part), 0)  # past the end stands for the end: where exactly does not matter here
        out.append(Condensation(f"k{at}", forgotten, (SummaryText("what was done", offset),)))
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", metavar="PYTHON")
    peer = parser.parse_args().peer
    head = ("events", "thinking", "rebuild", "+ boundaries", "per event", "append", "append, read", "repair, clean")
    print(("{:>8} {:>9} {:>10} {:>13} {:>10} {:>9} {:>13} {:>14}").format(*head))
    for size in SIZES:
        for share in SHARES:
            events = history(size, share)
            built = seconds(lambda events=events: rebuild(events))
            both = seconds(lambda events=events: with_boundaries(events))
            blind = seconds(lambda events=events: append(events, read=False))
            read = seconds(lambda events=events: append(events, read=True))
            mended = seconds(lambda events=events: repair(events))
            print(
                f"{size:8,} {share:8}% {built * 1e3:7.1f} ms {both * 1e3:10.1f} ms {both / size * 1e6:7.2f} µs"
                f" {blind / size * 1e6:6.2f} µs {read / size * 1e6:10.2f} µs {mended * 1e3:11.1f} ms"
            )
    head = ("events", "budget", "blocks", "turn: median", "worst", "first", "loaded")
    print(("\n{:>8} {:>11} {:>8} {:>13} {:>10} {:>11} {:>11}").format(*head))
    for size in SIZES:
        for budget in BUDGETS:
            projections(size, budget)
    print(f"\nrebuild with {CONDENSATIONS} condensations")
    for size in SIZES:
        events = condensed(size)
        both = seconds(lambda events=events: with_boundaries(events))
        made = sum(isinstance(event, Condensation) for event in events)
        print(f"{size:8,} events, {made} condensations: {both * 1e3:9.1f} ms")
    if peer:
        sizes = [str(size) for size in SIZES if size <= PEER_MOST]
        quiet = {"OPENHANDS_SUPPRESS_BANNER": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        driver = str(Path(__file__).with_name("openhands_driver.py"))
        subprocess.run([peer, driver, *sizes], env={**os.environ, **quiet}, check=False)


if __name__ == "__main__":
    main()
