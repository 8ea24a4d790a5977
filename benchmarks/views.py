"""What looking costs: huge files, large modules, a thousand running views, a large frame.

    python benchmarks/views.py [--log GB] [--table GB] [--frame GB] [--folder DIR] [--only ROW] [--json]

Each group of rows runs in a process of its own, against a plain way to do the same in that process. Times are CPU
times, user and system, since the machine may be shared: median and worst of the repetitions. *Memory* is the most that
the process had beyond what it had before, sampled every millisecond. The log is real text, written to a temporary
folder (so it is in the page cache, as a log in use is); the frame is in memory: `--frame` is bounded by what is free.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from ctxkernel.core import scheduler
from ctxkernel.core.loop import Loop
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.scheduler import Tick
from ctxkernel.core.settings import Settings
from ctxkernel.core.turn_values import Outcome
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.sources import open_named, open_source
from ctxkernel.testing import AtOnce
from ctxkernel.testing.fake_loop import FakeTracker, KeepingProjector

Row = dict[str, Any]
TOKENS = 2000
VIEWS = 1000


def timed(run: Callable[[], Any], times: int = 1) -> list[float]:
    """Return milliseconds of each of `times` runs."""
    out: list[float] = []
    for _ in range(times):
        start = time.process_time()
        run()
        out.append((time.process_time() - start) * 1000)
    return out


@contextmanager
def memory() -> Iterator[list[float]]:
    """Give a list that has, after the block, the megabytes that it took at its worst."""
    process, most, done = psutil.Process(), [0.0], threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not done.wait(0.001):
            most[0] = max(most[0], (process.memory_info().rss - before) / 1e6)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        most[0] = max(most[0], (process.memory_info().rss - before) / 1e6)
        done.set()
        thread.join()


def row(
    name: str, times: list[float], aim: float | None = None, peer: str = "", peers: list[float] | None = None
) -> Row:
    """Return a line of the table."""
    found: Row = {"name": name, "median": statistics.median(times), "worst": max(times), "aim": aim}
    if peers:
        found |= {"peer": peer, "peer_ms": statistics.median(peers)}
    return found


def write_log(path: Path, size: int) -> int:
    """Write a log of about `size` bytes; returns its lines."""
    random.seed(1)
    words = ["INFO", "DEBUG", "WARN"]
    block = "".join(
        f"2026-03-0{i % 9 + 1} 12:{i % 60:02}:{i % 59:02},{i % 1000:03} {random.choice(words)} run=RUN_NUMBR step {i} "
        f"loss={random.random():.5f}{' retry' * random.randrange(4)}\n"
        for i in range(40_000)
    ).encode()
    written = lines = 0
    with path.open("wb") as file:
        for number in itertools.count():
            if written >= size:
                return lines
            file.write(block.replace(b"RUN_NUMBR", b"%09d" % number))
            written, lines = written + len(block), lines + 40_000
    raise AssertionError("unreachable")


def log(folder: Path, gigabytes: float) -> Iterator[Row]:
    """Level 0 anywhere in a log."""
    path = folder / "run.log"
    lines = write_log(path, int(gigabytes * 1e9))
    places = [random.randrange(lines) for _ in range(50)]
    scan = timed(lambda: next(itertools.islice(path.open("rb"), places[0], None)))
    source: Any = open_source(str(path))
    first = timed(lambda: source.render(RenderRequest(0, str(places[0]), TOKENS)))
    yield row(f"{gigabytes:g} GB log: first look, somewhere", first, 50, "reading on to that line", scan)
    with memory() as most:
        sample = timed(lambda: open_source(str(path)).render(RenderRequest(1, "0", TOKENS)), 5)
    yield row("… level 1, of a sample", sample, 150) | {"mb": most[0], "mb_aim": 64}
    with path.open("ab") as file:
        file.write(b"2026-03-09 23:59:59,999 CRITICAL the last line\n")
    pattern = RenderRequest(0, "/CRITICAL/", TOKENS)
    yield row("… a pattern, what is searched at once", timed(lambda: source.render(pattern)), 150)
    with path.open("rb") as file:
        peer = timed(lambda: any(b"CRITICAL" in part for part in iter(lambda: file.read(1 << 20), b"")))
    search = timed(lambda: source.accept(source.preparation().work(lambda: False, lambda part: None)))
    assert "CRITICAL the last line" in source.render(pattern).text
    yield row("… the rest, in the background", search, None, "reading, and b'CRITICAL' in it", peer)
    source.render(RenderRequest(0, "0", TOKENS))
    with memory() as most:
        index = timed(lambda: source.accept(source.preparation().work(lambda: False, lambda part: None)))
        assert source.preparation() is None
        told = source.render(RenderRequest(1, "0", TOKENS)).text.split("\n")
        assert told[1].startswith(f"log, {lines + 1:,} entries")
        assert "CRITICAL 1 · " in told[2]
        times = [timed(lambda at=at: source.render(RenderRequest(0, str(at), TOKENS)))[0] for at in places]
    with path.open("rb") as file:
        peer = timed(lambda: sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b"")))
    yield row("… the pass over it, in the background", index, None, "reading and counting", peer)
    yield row("… then level 0 at 50 places", times, 50, "reading on to one", scan) | {"mb": most[0]}
    exact = source.render(RenderRequest(0, str(places[0]), TOKENS)).text.split("\n")[1]
    assert exact == next(itertools.islice(path.open("rb"), places[0], None)).decode().rstrip("\n")


def table(folder: Path, gigabytes: float) -> Iterator[Row]:
    """Level 1 of a CSV file of 10 columns."""
    path = folder / "data.csv"
    random.seed(1)
    block = "".join(
        f"{i},{random.random():.6f},{random.randrange(1000)},{'south' if i % 3 else 'north'},2026-01-{i % 28 + 1:02d},"
        f"{random.gauss(0, 1):.4f},{i % 7},,user{random.randrange(10**6)},{i % 2 == 0}\n"
        for i in range(40_000)
    ).encode()
    rows = int(gigabytes * 1e9 / len(block)) * 40_000
    with path.open("wb") as file:
        file.write(b"a,b,c,d,e,f,g,h,i,j\n")
        for _ in range(rows // 40_000):
            file.write(block)
    source: Any = open_source(str(path))
    with memory() as most:
        sample = timed(lambda: open_source(str(path)).render(RenderRequest(1, "0", TOKENS)), 5)
    yield row(f"{gigabytes:g} GB CSV, 10 columns: level 1, of a sample", sample, 150) | {"mb": most[0], "mb_aim": 64}
    source.render(RenderRequest(1, "0", TOKENS))
    with path.open("rb") as file:
        peer = timed(lambda: sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b"")))
    with memory() as most:
        found = timed(lambda: source.accept(source.preparation().work(lambda: False, lambda part: None)))
    assert f"{rows:,} rows × 10 columns" in source.render(RenderRequest(1, "0", TOKENS)).text
    yield row("… the pass over it, in the background", found, None, "reading and counting", peer) | {"mb": most[0]}


def module(folder: Path) -> Iterator[Row]:
    """Level 1 of a module of 10,000 lines."""
    path = folder / "big.py"
    method = (
        '    def method{i}(self, a: int, *, b: str = \'x\') -> dict[str, int]:\n        """Do it."""\n'
        + "        a += 1\n" * 4
    )
    path.write_text("".join(f"class C{i}(Base):\n" + method.replace("{i}", str(i)) * 3 + "\n" for i in range(510)))
    assert path.read_text().count("\n") >= 10_000
    parse = timed(lambda: ast.parse(path.read_text()), 5)
    first = [timed(lambda: open_source(str(path)).render(RenderRequest(1, "0", TOKENS)))[0] for _ in range(7)]
    yield row("10,000 lines of Python, level 1: first", first, 150, "read and ast.parse", parse)
    source = open_source(str(path))
    source.render(RenderRequest(1, "0", TOKENS))
    again = timed(lambda: source.render(RenderRequest(1, "0", TOKENS)), 100)
    yield row("… unchanged", again, 2, "reading it", timed(path.read_text, 20))


def looked_at(folder: Path, kind: str, freq: str) -> tuple[Any, list[Any]]:
    """Return a loop with a thousand running views, and the views."""
    names: dict[str, Any] = {}
    loop = Loop(
        namespace=names,
        tracker=FakeTracker(names),
        projector=KeepingProjector(),
        open_source=lambda target: open_named(target, names),
        count_tokens=count_tokens,
        trim=trim_to_tokens,
        settings=Settings(ready_per_turn=VIEWS),
    )
    loop.begin("", now=1.0)
    views: list[Any] = []
    for number in range(VIEWS):
        path = folder / f"{number}.py"
        path.write_text(f"def f{number}(x):\n    return x\n" * 20)
        values = ({"a": number}, list(range(50)), {"text": f"text {number}"}, {"k": [1, 2, 3]})
        target = str(path) if kind == "files" or (kind == "mixed" and number % 2) else values[number % 4]
        views.append(loop.view(target, freq=freq))
    loop.end(Outcome("ok"), 2.0)
    return loop, views


def idle(folder: Path) -> Iterator[Row]:
    """A tick at which nothing changed."""
    for kind in ("files", "mixed", "objects"):
        loop, views = looked_at(folder, kind, "Sync")
        turns = itertools.count(3)

        def tick(loop: Any = loop, turns: Iterator[int] = turns) -> None:
            turn = next(turns)
            assert not scheduler.run_tick(
                Tick(loop.graph, loop.ready, float(turn), turn, lambda: False, AtOnce(loop.ready))
            )

        paths = [view.path for view in views if view.kind == "file"]
        peer = timed(lambda paths=paths: [os.stat(path) for path in paths], 20) if kind == "files" else None
        said = {"files": "files", "mixed": "half files, half objects", "objects": "small objects"}[kind]
        yield row(f"idle tick, {VIEWS:,} running views: {said}", timed(tick, 20), 20, "a stat of each", peer)


def apply(folder: Path) -> Iterator[Row]:
    """What a worker prepared for a thousand files that changed."""
    loop, views = looked_at(folder, "files", "Async")
    worker = AtOnce(loop.ready)
    for view in views:
        Path(view.path).write_text("def other(): ...\n")
    jobs = [job for view in views for job in view.jobs()]
    prepare = timed(lambda: worker.want(jobs))
    assert len(loop.ready) == VIEWS
    tick = Tick(loop.graph, loop.ready, 9.0, 9, lambda: False)
    with loop.graph.opened("tick"):
        times = timed(lambda: scheduler.apply_ready(tick))
    assert all(view.revision == 2 for view in views)
    yield row(f"{VIEWS:,} payloads applied by one tick", times, None, "preparing them", prepare)


def frame(gigabytes: float) -> Iterator[Row]:
    """A view of a large frame."""
    import numpy as np
    import pandas as pd

    rows = int(gigabytes * 1e9 / 80)
    for kind in ("columns", "one block"):
        if kind == "columns":
            data = pd.DataFrame({f"c{i}": np.arange(rows, dtype=float) * (i + 1) for i in range(10)})
        else:
            data = pd.DataFrame(np.arange(rows * 10, dtype=float).reshape(rows, 10), columns=list("abcdefghij"))
        peer = timed(lambda data=data: repr(data), 5)
        with memory() as most:
            sources = [open_source(data) for _ in range(6)]
            for lod in (0, 1, 2):
                times = [timed(lambda s=s, lod=lod: s.render(RenderRequest(lod, "0", TOKENS)))[0] for s in sources]
                found = row(f"{gigabytes:g} GB frame, {kind}, level {lod}", times, 20, "repr(frame)", peer)
                yield found | {"mb": most[0], "mb_aim": 64}
            source: Any = sources[0]
            ranges = timed(
                lambda source=source: source.accept(source.preparation().work(lambda: False, lambda _: None))
            )
        found = row("… ranges of all rows, in the background", ranges, None, "frame.agg of min and max")
        peers = timed(lambda data=data: (data.min(), data.max()))
        yield found | {"peer": "frame.min() and max()", "peer_ms": peers[0], "mb": most[0], "mb_aim": 64}
        del data, sources, source


ROWS: dict[str, Callable[[argparse.Namespace, Path], Iterator[Row]]] = {
    "log": lambda args, folder: log(folder, args.log),
    "table": lambda args, folder: table(folder, args.table),
    "module": lambda args, folder: module(folder),
    "idle": lambda args, folder: idle(folder),
    "apply": lambda args, folder: apply(folder),
    "frame": lambda args, folder: frame(args.frame),
}


def told(found: Row) -> str:
    """Return a row as text."""
    aim = "" if found["aim"] is None else f"{found['aim']:g}"
    peer = f"{found['peer']}: {found['peer_ms']:,.2f}" if "peer" in found else ""
    ratio = f"{found['median'] / found['peer_ms']:.3g}×" if "peer" in found else ""
    took = f"{found['mb']:.1f} MB" if "mb" in found else ""
    return f"{found['name']:52}{found['median']:10,.2f}{found['worst']:10,.2f}{aim:>6}{took:>10}  {ratio:>9}  {peer}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=float, default=2.0, help="gigabytes of the log (default 2)")
    parser.add_argument("--table", type=float, default=1.0, help="gigabytes of the CSV file (default 1)")
    parser.add_argument("--frame", type=float, default=5.0, help="gigabytes of the frame (default 5)")
    parser.add_argument("--folder", help="where the log is written (default: the temporary folder)")
    parser.add_argument("--only", choices=ROWS, help="one group of rows, in this process")
    parser.add_argument("--json", action="store_true", help="numbers as JSON, a row a line")
    args = parser.parse_args()
    if not args.only:
        if not args.json:
            head = f"{'milliseconds of CPU time':52}{'median':>10}{'worst':>10}{'aim':>6}{'memory':>10}"
            print(f"{head}  {'ratio':>9}  against", flush=True)
        for name in ROWS:
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], check=True)
        return
    free = psutil.virtual_memory().available / 1e9
    if args.only == "frame" and args.frame * 1.2 > free:
        sys.exit(f"a frame of {args.frame:g} GB does not fit into the {free:.1f} GB that are free; give --frame less")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for found in ROWS[args.only](args, Path(folder)):
            print(json.dumps(found) if args.json else told(found), flush=True)


if __name__ == "__main__":
    main()
