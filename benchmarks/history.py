"""What the history view costs: run it, read the tables. CPU time; best of `ROUNDS`; the machine should be quiet.

    python benchmarks/history.py [--peer PYTHON]

A history is questions of which each leads to rounds of tool calls, a fifth of them with two calls, and ends with a
message. At 0, 20 and 100 % thinking that share of the rounds begins with a thinking block. `--peer` names an
interpreter that has `openhands-sdk`; the same histories then go through its view too, up to 10,000 events.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from ctxkernel.history.events import Action, AssistantMessage, HistoryEvent, Observation, UserQuestion
from ctxkernel.history.repair import normalise
from ctxkernel.history.view import HistoryView

SIZES = (1_000, 10_000, 100_000)
SHARES = (0, 20, 100)
ROUNDS = 5
PEER_MOST = 10_000
THOUGHT = ({"type": "thinking", "thinking": "let me see", "signature": "c2ln"},)


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
            thinking = THOUGHT if rounds * share // 100 > (rounds - 1) * share // 100 else ()
            for n in range(calls):
                call_id = f"c{rounds}_{n}"
                events.append(Action(f"a{rounds}.{n}", call_id, "run", {"n": n}, f"r{rounds}", () if n else thinking))
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
    if peer:
        sizes = [str(size) for size in SIZES if size <= PEER_MOST]
        quiet = {"OPENHANDS_SUPPRESS_BANNER": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        driver = str(Path(__file__).with_name("openhands_driver.py"))
        subprocess.run([peer, driver, *sizes], env={**os.environ, **quiet}, check=False)


if __name__ == "__main__":
    main()
