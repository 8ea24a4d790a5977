"""The benchmarks that `python -m benchmarks` runs: one entry each, in the order of the table.

To add one: write a function that takes a `Size` and yields figures, each with its peer of the same run, and put
`@benchmark(NAME)` above it. It runs in a process of its own.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import Aim, Figure

HERE = Path(__file__).resolve().parent
Figures = Iterator[Figure]


@dataclass(frozen=True)
class Size:
    """How much is measured: a small run takes minutes, a full one most of an hour."""

    full: bool

    def of(self, small: int, full: int) -> int:
        """Return the number for this size."""
        return full if self.full else small


BENCHMARKS: dict[str, Callable[[Size], Figures]] = {}


def benchmark(name: str) -> Callable[[Callable[[Size], Figures]], Callable[[Size], Figures]]:
    """Enter a function under `name`."""

    def enter(measure: Callable[[Size], Figures]) -> Callable[[Size], Figures]:
        BENCHMARKS[name] = measure
        return measure

    return enter


def measure(name: str, size: Size) -> list[Figure]:
    """Run a benchmark in this process."""
    # The scripts beside this file import each other, and those of the tests, by their plain names.
    sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
    return list(BENCHMARKS[name](size))


@benchmark("start")
def start(size: Size) -> Figures:
    """From the start of a kernel to its first reply."""
    from start import medians

    aims = {"CPU of the tree, s": Aim(1.25, "ratio"), "memory, MB": Aim(58)}
    for row, (stock, ours) in medians(size.of(4, 10)).items():
        what, unit = row.rsplit(", ", 1)
        yield Figure(what, ours, unit, "ipykernel", stock, aims.get(row))


@benchmark("cells")
def cells(size: Size) -> Figures:
    """CPU time of the process tree for ordinary cells."""
    from cells import MIX, keep_orphans, measured_mix

    keep_orphans()
    small = ("`pass`", "`x = i`", "`lst.append(i)`", "`own.value = i`")
    with tempfile.TemporaryDirectory() as folder:
        for name, stock, ours in measured_mix(Path(folder), size.of(40, 200)):
            of_tree = [statistics.median(side.cpu_ms) for side in (stock, ours)]
            large = "48 MB" in name
            aim = None if large else Aim(1.3 if name in small else 1.5, "ratio")
            yield Figure(f"{name}, CPU", of_tree[1], "ms", "ipykernel", of_tree[0], aim)
    assert MIX.keys() >= set(small)


@benchmark("run all")
def run_all(size: Size) -> Figures:
    """Whole notebooks, one cell after another."""
    from run_all import NOTEBOOKS, measured

    for name in NOTEBOOKS:
        stock, ours = measured(name, size.of(1, 3)).values()
        yield Figure(f"{name}, wall", ours[0], "s", "ipykernel", stock[0])


@benchmark("checkpoints")
def checkpoints(size: Size) -> Figures:
    """34 cells around an array: what a checkpoint after each of them adds."""
    from methods import Cloudpickle, Method, Ours

    program = _program(size)
    plain, kept, ours = (_pass(method(), program) for method in (Method, Cloudpickle, Ours))
    peer = "cloudpickle of the namespace"

    def added(one: Any) -> list[float]:
        return [mine - stock for mine, stock in zip(one.wall_ms, plain.wall_ms, strict=True)]

    yield Figure("own time of a checkpoint, median", statistics.median(ours.own_ms), "ms", aim=Aim(2))
    yield Figure(
        "added to a cell, median", statistics.median(added(ours)), "ms", peer, statistics.median(added(kept)), Aim(10)
    )
    yield Figure("added to a cell, worst", max(added(ours)), "ms", peer, max(added(kept)), Aim(250))
    yield Figure("stored", ours.stored / 1e6, "MB", peer, kept.stored / 1e6, Aim(650))


@benchmark("going back")
def going_back(size: Size) -> Figures:
    """Returns among the 34 cells, against running the cells again."""
    from checkpoints import STOPS
    from methods import Method, Ours

    program = _program(size)
    plain = _pass(Method(), program)
    ways = [place for stop in STOPS for place in (stop, len(program))]
    ours = _pass(Ours(), program, ways)
    failed = sum(bool(one["error"]) for one in ours.gotos)
    back = statistics.median(one["ms"] for one in ours.gotos)
    again = statistics.median(sum(plain.wall_ms[: place - 1]) for place in ways)
    yield Figure("a return, median of 8", back, "ms", "running the cells again", again, Aim(150))
    yield Figure("returns that failed", failed, "of 8", aim=Aim(0))


@benchmark("affected")
def affected(size: Size) -> Figures:
    """One cell of a notebook of 30 is edited: which share of the cells below runs."""
    from affected import measured

    shares: list[float] = []
    wrong = 0
    for _, share, failed in measured(size.of(12, 1000), 1):
        shares.append(100 * share)
        wrong += bool(failed)
    yield Figure(
        f"cells that ran, median of {len(shares)} kinds of edits", statistics.median(shares), "%",
        "all cells from the edited one on", 100, Aim(40),
    )  # fmt: skip
    yield Figure("results that differ from those of running all", wrong, "", aim=Aim(0))


if (HERE / "sweeps.py").exists():

    @benchmark("sweeps")
    def sweeps(size: Size) -> Figures:
        """A grid of parameters on two workers, against the cells that must run and against papermill."""
        from sweeps import papermill, sweep

        count = size.of(24, 200)
        with tempfile.TemporaryDirectory() as folder:
            swept = sweep(Path(folder) / "sweep", count)
            _, theirs, _ = papermill(Path(folder), count, size.of(4, 0))
        aim = Aim(1.15, "ratio") if size.full else None
        yield Figure(f"{count} combinations, CPU", swept.cpu, "s", "the cells that must run", swept.cells, aim)
        yield Figure(f"{count} combinations, CPU, beside papermill", swept.cpu, "s", "papermill", theirs)
        yield Figure("tasks that failed", sum(row["status"] != "ok" for row in swept.table["rows"]), "", aim=Aim(0))


@benchmark("history")
def history(size: Size) -> Figures:
    """What the model's history costs, with thinking in a fifth of its rounds."""
    from history import append, seconds, with_boundaries
    from history import history as events_of
    from history import turns as turns_of

    count = size.of(10_000, 100_000)
    events = events_of(count, 20)
    rebuilt = seconds(lambda: with_boundaries(events))
    read = seconds(lambda: append(events, read=True)) / count
    yield Figure(
        f"a view of {count:,} events, rebuilt, CPU", rebuilt * 1e3, "ms",
        aim=Aim(500) if count == 100_000 else None,
    )  # fmt: skip
    yield Figure("an event that is appended and read, CPU", read * 1e6, "µs", "rebuilding the view", rebuilt * 1e6)
    _, first, turns, _ = turns_of(count, 200_000)
    yield Figure(
        f"the projection of a turn, {count:,} events, CPU, median", statistics.median(turns), "ms",
        "from the first event on", first * 1e3, Aim(10),
    )  # fmt: skip


@benchmark("projection")
def projection(size: Size) -> Figures:
    """The length of a projection beside the text of its notebook, and the questions that it answers."""
    from projection import NAMES, Session, measure

    for name in NAMES if size.full else ("cleaning", "long"):
        with tempfile.TemporaryDirectory() as folder:
            one = measure(Session.read(name), Path(folder))
        asked = len(one.session.questions)
        yield Figure(
            f"{name}, {len(one.session.cells)} cells", one.tokens, "tokens", "text of the notebook", one.plain,
            Aim(one.aim, "ratio"),
        )  # fmt: skip
        yield Figure(
            f"{name}: questions answered", asked - len(one.open), f"of {asked}",
            aim=Aim(asked, at_least=True), more_is_better=True,
        )  # fmt: skip


@benchmark("looking")
def looking(size: Size) -> Figures:
    """What views of 40 targets show for their tokens."""
    from looking import TARGETS, quick, sums

    found = sums(list(quick(TARGETS)))
    facts = found["facts"]
    yield Figure(
        f"of {facts} facts, in 800 tokens", found["either"], "facts", "info(), describe(), head and tail",
        found["plain"], Aim(0.9 * facts, at_least=True), more_is_better=True,
    )  # fmt: skip
    yield Figure("used of a budget, mean", 100 * found["used"], "%", aim=Aim(95, at_least=True), more_is_better=True)
    yield Figure(f"over budget, of {found['renderings']:,} renderings", sum(found["over"].values()), "", aim=Aim(0))
    yield Figure("false marks", len(found["false"]), "", aim=Aim(0))


@benchmark("panel")
def panel(size: Size) -> Figures:
    """The panel beside a long session, in JupyterLab in Chromium."""
    from panel import measured

    results = {
        what: (value, aim, unit) for what, value, aim, unit in measured(size.of(600, 10_000), size.of(200, 2000))
    }
    whole = results.pop(PAGE)[0]
    for what, (value, aim, unit) in results.items():
        peer = ("JupyterLab, a cell that runs", whole) if what == "main thread a turn" else ("", None)
        if aim is not None:
            yield Figure(what, value, unit, *peer, aim=Aim(aim))


PAGE = "main thread, a cell that is run in the page, all of JupyterLab"


def _program(size: Size) -> Sequence[str]:
    """Return the 34 cells; of a small run with an array of 56 instead of 500 MB."""
    from checkpoints import HERE, read_program

    cells = read_program(HERE / "notebooks" / "state34.py").cells
    return cells if size.full else [cell.replace("62_500_000", "7_000_000") for cell in cells]


def _pass(method: Any, cells: Sequence[str], gotos: Sequence[int] = ()) -> Any:
    from checkpoints import run_cells

    with tempfile.TemporaryDirectory() as folder:
        done = run_cells(method, Path(folder), cells, gotos=gotos)
    if done.gave_up:
        raise RuntimeError(f"{method.label}: {done.gave_up}")
    return done
