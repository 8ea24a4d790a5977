"""What it costs to be able to go back, and what is wrong after it: ctxkernel, Kishu, and a pickle of everything.

    python benchmarks/checkpoints.py [--only notebook34|namespace5gb|real|loop] [--skip-peers] [--json]

Every method runs the same cells in a real kernel of its own, in one run, beside a plain ipykernel. The peers live in
environments of their own, which the first run makes below `--environments`.

- notebook34: benchmarks/notebooks/state34.py, a 500 MB array that is written in parts, views, aliases, frames, models,
  and things that no pickle holds. Timed in rounds, least time counts; then once more with a look at every name after
  every cell and after every return.
- namespace5gb: 200 small cells beside 5 GB.
- real: the notebooks of `--notebooks DIR`; cells that fail (a download, say) fail in all kernels alike.
- loop: running code, which no method may slow down.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels import HERE, GaveUp, Kernel, free_bytes, warm
from methods import Dill, FastKishu, Kishu, Method, Ours, Returned, environment

STOPS = (30, 20, 10, 3)
"""Where notebook34 is returned to; after each, back to its end."""
REPLAY_FROM = 10
MB = 1e6


# --- the cells -------------------------------------------------------------------------------------------------


@dataclass
class Program:
    """Cells to run, and what to look at between them."""

    cells: list[str]
    facts: list[str] = field(default_factory=list)
    around: frozenset[str] = frozenset()
    """Facts of what surrounds the variables."""


def read_program(path: Path) -> Program:
    """Return the cells and facts of a file with `# %%` between its cells, and `#?` or `#~` before its facts."""
    text = path.read_text()
    found = re.findall(r"^#([?~]) (.+)$", text, flags=re.MULTILINE)
    text = re.sub(r"^#[?~] .*\n", "", text, flags=re.MULTILINE)
    cells = [cell.strip() for cell in re.split(r"^# %%.*\n", text, flags=re.MULTILINE)[1:]]
    return Program(cells, [fact for _, fact in found], frozenset(fact for sign, fact in found if sign == "~"))


SETUP_5GB = [
    "import numpy as np, pandas as pd\nrng = np.random.default_rng(1)",
    *[f"big{i} = np.empty(62_500_000)\nbig{i}[:] = rng.random(62_500_000, dtype=np.float32)" for i in range(8)],
    (
        "frame = pd.DataFrame({f'c{i}': rng.random(5_000_000) for i in range(10)})\n"
        "frame['label'] = rng.integers(0, 9, 5_000_000)"
    ),
    (
        "words = {f'key {i}': [i, str(i)] for i in range(1_000_000)}\n"
        "records = [{'id': i, 'tags': ['a', 'b']} for i in range(300_000)]"
    ),
    (
        "small, seen, table = [], {}, pd.DataFrame({'a': range(1000), 'b': 0.0})\n"
        "def mean_of(a):\n    return float(a[:1000].mean())"
    ),
]
"""4 GB of arrays, 0.45 GB of frame, and 0.5 GB of small objects."""

SMALL_CELLS = [
    "x{i} = {i}",
    "small.append({i})",
    "seen['k{i}'] = mean_of(big{b})",
    "table.loc[{i}, 'b'] = {i}.5",
    "print(len(small), small[-1:])",
    "y{i} = np.arange(1000) * {i}",
    "big{b}[{i} * 1000 : {i} * 1000 + 500] = {i}",
    "total = sum(x for x in small)",
    "def f{i}(a):\n    return a + {i}\nz = f{i}(1)",
    "top = frame['c{b}'].head(10).tolist()",
]


def small_cells(count: int) -> list[str]:
    """Return `count` small cells: names, appends, a frame's cell, a print, a slice of a large array, a function …"""
    return [SMALL_CELLS[i % len(SMALL_CELLS)].replace("{i}", str(i)).replace("{b}", str(i % 8)) for i in range(count)]


# --- running them ----------------------------------------------------------------------------------------------


@dataclass
class Pass:
    """One kernel's way through a program."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    own_ms: list[float] = field(default_factory=list)
    errors: int = 0
    stored: int = 0
    peak: int = 0
    durable_s: float = 0.0
    gotos: list[dict[str, Any]] = field(default_factory=list)
    gave_up: str = ""
    faults: list[str] = field(default_factory=list)


@contextmanager
def started(method: Method, root: Path, cells: Sequence[str], keep: Sequence[int]) -> Iterator[Kernel]:
    """A kernel with the method set up, in a folder that goes with it."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        kernel = method.start(Path(folder), cells, keep)
        try:
            yield kernel
        finally:
            kernel.stop()
    os.sync()  # what one wrote is not to slow the next one down


def run_cells(
    method: Method,
    root: Path,
    cells: Sequence[str],
    *,
    gotos: Sequence[int] = (),
    keep: Sequence[int] = (),
    timeout: float = 900,
    between: Callable[[Kernel, int], None] | None = None,
    after: Callable[[Kernel], None] | None = None,
) -> Pass:
    """Run `cells` on a new kernel of `method`, then go to each of `gotos`. `between` is called after each cell.

    `keep` are the places that `after` returns to.
    """
    done = Pass()
    with started(method, root, cells, [*gotos, *keep]) as kernel:
        try:
            cpu = kernel.cpu()
            for number, source in enumerate(cells, 1):
                cell = kernel.run(source, timeout=timeout)
                done.wall_ms.append(cell.wall_ms)
                done.errors += cell.status != "ok"
                now = kernel.cpu()
                done.cpu_ms.append((now - cpu) * 1000)
                if between is not None:
                    between(kernel, number)
                    now = kernel.cpu()
                cpu = now
            done.durable_s = method.durable_s(kernel)
            done.own_ms = method.own_times(kernel)[: len(cells)]
            done.stored = method.stored(kernel)
            done.faults = method.faults(kernel)
            for number in gotos:
                back = method.goto(kernel, number)
                done.gotos.append({"to": number, "ms": back.wall_ms, "error": back.error})
            if after is not None:
                after(kernel)
        except GaveUp as reason:
            done.gave_up = str(reason)
        if kernel.manager.is_alive():
            done.peak = kernel.peak_bytes()
    return done


def least(passes: Sequence[Pass], what: str) -> list[float]:
    """Return, cell by cell, the least time of several passes."""
    return [min(times) for times in zip(*(getattr(one, what) for one in passes), strict=False)]


def in_turns(
    methods: Sequence[Method], rounds: int, run: Callable[[Method], Pass], say: Callable[[str], None]
) -> dict[str, list[Pass]]:
    """Run each method once, and the cheap ones `rounds` times, in turns."""
    passes: dict[str, list[Pass]] = {method.label: [] for method in methods}
    for turn in range(rounds):
        for method in methods:
            if turn == 0 or method.rounds:
                start = time.perf_counter()
                passes[method.label].append(run(method))
                say(f"  {method.label}, round {turn + 1}: {time.perf_counter() - start:.1f} s")
    return passes


def summary(passes: dict[str, list[Pass]], *, first: int = 0) -> dict[str, Any]:
    """Return the figures of each method against the plain kernel, from cell `first` (counted from 0) on."""
    base_wall = least(passes[Method.label], "wall_ms")
    base_cpu = least(passes[Method.label], "cpu_ms")
    rows: dict[str, Any] = {}
    for label, runs in passes.items():
        wall, cpu, own = (least(runs, what)[first:] for what in ("wall_ms", "cpu_ms", "own_ms"))
        added = [mine - plain for mine, plain in zip(wall, base_wall[first:], strict=False)]
        last = runs[-1]
        rows[label] = {
            "cells": len(wall),
            "wall_s": sum(wall) / 1000,
            "added": _spread(added),
            "added_cpu": _spread([mine - plain for mine, plain in zip(cpu, base_cpu[first:], strict=False)]),
            "own": _spread(own),
            "stored": min(one.stored for one in runs),
            "peak": min(one.peak for one in runs),
            "durable_s": max(one.durable_s for one in runs),
            "gotos": [
                {**one, "ms": min(run.gotos[i]["ms"] for run in runs if len(run.gotos) > i)}
                for i, one in enumerate(last.gotos)
            ],
            "errors": last.errors,
            "gave_up": last.gave_up,
            "faults": last.faults,
            "added_ms": added,
            "own_ms": own,
        }
    return rows


def _spread(times: Sequence[float]) -> dict[str, float]:
    if not times:
        return {}
    return {"sum_s": sum(times) / 1000, "median_ms": statistics.median(times), "worst_ms": max(times)}


# --- what is wrong after a return ----------------------------------------------------------------------------------


def look(kernel: Kernel, facts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return digests of all names and the values of all facts."""
    return json.loads(kernel.evaluate(f"__import__('digests').report(get_ipython().user_ns, {list(facts)!r})"))


def wrongs(
    expected: dict[str, Any], found: dict[str, Any], back: Returned, around: Container[str] = ()
) -> dict[str, list[str]]:
    """Return what is wrong with the variables and around them, and what of it the method had named, as short lines."""
    got: dict[str, list[str]] = {"wrong": [], "named": [], "around": []}
    for name in sorted({*expected["names"], *found["names"]}):
        before, now = expected["names"].get(name), found["names"].get(name)
        if before == now:
            continue
        how = "gone" if now is None else "there again" if before is None else "differs"
        got["named" if name in back.named else "wrong"].append(f"{name} {how}")
    for fact, before in expected["facts"].items():
        now = found["facts"][fact]
        if before != now:
            names = {node.id for node in ast.walk(ast.parse(fact)) if isinstance(node, ast.Name)}
            kind = "named" if names & back.named else "around" if fact in around else "wrong"
            got[kind].append(f"{fact}: {now[:60]}, was {before[:60]}")
    return got


def check(method: Method, root: Path, program: Program, stops: Sequence[int], timeout: float) -> dict[str, Any]:
    """Run a program with a look after every cell, return to each of `stops`, and look again. Then replay."""
    seen: dict[int, dict[str, Any]] = {}
    result: dict[str, Any] = {"stops": [], "forward": seen}

    def between(kernel: Kernel, number: int) -> None:
        seen[number] = look(kernel, program.facts)

    def after(kernel: Kernel) -> None:
        end = len(program.cells)
        for number in [place for stop in stops for place in (stop, end)]:
            back = method.goto(kernel, number)
            # A return that failed is one mistake, not as many as there are names.
            found = seen[number] if back.error else look(kernel, program.facts)
            state = wrongs(seen[number], found, back, program.around)
            result["stops"].append({"to": number, "error": back.error, "text": back.text, **state})
        back = method.goto(kernel, REPLAY_FROM)
        if back.error:
            return
        for source in program.cells[REPLAY_FROM:]:
            kernel.run(source, timeout=timeout)
        result["replayed"] = wrongs(seen[end], look(kernel, program.facts), back, program.around)

    keep = [*stops, REPLAY_FROM, len(program.cells)]
    done = run_cells(method, root, program.cells, keep=keep, timeout=timeout, between=between, after=after)
    result["gave_up"] = done.gave_up
    return result


# --- the parts ---------------------------------------------------------------------------------------------------


def notebook34(methods: Sequence[Method], root: Path, args: argparse.Namespace, say: Callable[[str], None]) -> Any:
    """Time, bytes, ways back and mistakes on the 34 cells."""
    program = read_program(HERE / "notebooks" / "state34.py")
    ways = [place for stop in STOPS for place in (stop, len(program.cells))]

    def run(method: Method) -> Pass:
        return run_cells(
            method, root, program.cells, gotos=[] if method.label == Method.label else ways, timeout=args.timeout
        )

    rows = summary(in_turns(methods, args.rounds, run, say))
    plain: dict[int, Any] = {}
    for method in methods:
        if method.label == Method.label:
            run_cells(
                method,
                root,
                program.cells,
                between=lambda kernel, number: plain.update({number: look(kernel, program.facts)}),
            )
            continue
        checked = check(method, root, program, STOPS, args.timeout)
        forward = checked.pop("forward")
        # A method that changes what the cells themselves compute is wrong before any return.
        checked["forward_wrong"] = sorted(
            {line for n in forward for line in wrongs(plain[n], forward[n], Returned(0))["wrong"]}
        )
        rows[method.label]["checked"] = checked
        say(f"  {method.label}: looked")
    return rows


def namespace5gb(methods: Sequence[Method], root: Path, args: argparse.Namespace, say: Callable[[str], None]) -> Any:
    """What 200 small cells cost beside 5 GB, and the ways back among them."""
    needed = 12e9
    if free_bytes() < needed:
        return {"skipped": f"needs {needed / 1e9:.0f} GB of free memory, {free_bytes() / 1e9:.1f} GB are"}
    first = len(SETUP_5GB)
    rows: dict[str, Any] = {}
    passes: dict[str, list[Pass]] = {}
    for method in methods:
        # A pickle of all of it takes minutes a cell: a few say what all would.
        cells = [*SETUP_5GB, *small_cells(args.dill_cells if isinstance(method, Dill) else args.small)]
        end = len(cells)
        stops = [first + (end - first) // 2, end, first + 1, end]
        looks: dict[int, Any] = {}
        found: list[dict[str, Any]] = []

        def between(kernel: Kernel, number: int, looks: Any = looks, stops: Any = tuple(stops)) -> None:
            if number in stops:
                looks[number] = look(kernel, [])

        def after(
            kernel: Kernel, method: Method = method, looks: Any = looks, stops: Any = tuple(stops), found: Any = found
        ) -> None:
            for number in stops:
                back = method.goto(kernel, number)
                state = wrongs(looks[number], looks[number] if back.error else look(kernel, []), back)
                found.append({"to": number, "ms": back.wall_ms, "error": back.error, **state})

        plain = method.label == Method.label
        done = run_cells(
            method,
            root,
            cells,
            keep=stops,
            timeout=args.timeout,
            between=None if plain else between,
            after=None if plain else after,
        )
        passes[method.label] = [done]
        rows[method.label] = {"checked": {"stops": found}}
        say(f"  {method.label}: done {done.gave_up}")
    small = summary(passes, first=first)
    setup = summary({label: [_cut(one, first) for one in runs] for label, runs in passes.items()})
    for label, row in small.items():
        rows[label] = {**row, **rows[label], "setup": {k: setup[label][k] for k in ("added", "own")}}
        rows[label]["gotos"] = [{k: one[k] for k in ("to", "ms", "error")} for one in rows[label]["checked"]["stops"]]
    return rows


def _cut(one: Pass, count: int) -> Pass:
    return Pass(one.wall_ms[:count], one.cpu_ms[:count], one.own_ms[:count])


def real(methods: Sequence[Method], root: Path, args: argparse.Namespace, say: Callable[[str], None]) -> Any:
    """What all cells of real notebooks cost, by notebook and in all."""
    import nbformat

    notebooks = sorted(args.notebooks.rglob("*.ipynb")) if args.notebooks else []
    if not notebooks:
        return {"skipped": "no notebooks: --notebooks DIR"}
    methods = [method for method in methods if not isinstance(method, Dill | FastKishu)]
    total: dict[str, list[list[Pass]]] = {method.label: [] for method in methods}
    rows: dict[str, Any] = {"notebooks": {}}
    for path in notebooks:
        book = nbformat.read(path, as_version=4)
        cells = [cell.source for cell in book.cells if cell.cell_type == "code" and cell.source.strip()]

        def run(method: Method, cells: list[str] = cells, path: Path = path) -> Pass:
            return run_cells(method, root, [f"%cd -q {path.parent}", *cells], timeout=args.timeout)

        passes = in_turns(methods, args.rounds, run, lambda line: None)
        for label, runs in passes.items():
            total[label].append(runs)
        rows["notebooks"][path.stem] = {
            label: {
                key: row[key] for key in ("cells", "wall_s", "added", "own", "stored", "errors", "gave_up", "faults")
            }
            for label, row in summary(passes).items()
        }
        say(f"  {path.stem}: " + ", ".join(f"{k} {v['wall_s']:.2f} s" for k, v in rows["notebooks"][path.stem].items()))
    joined = {
        label: [_joined([runs[min(turn, len(runs) - 1)] for runs in books]) for turn in range(max(map(len, books)))]
        for label, books in total.items()
    }
    rows["all"] = summary(joined)
    return rows


def _joined(passes: Sequence[Pass]) -> Pass:
    all_of = Pass(stored=sum(one.stored for one in passes), peak=max(one.peak for one in passes))
    for one in passes:
        all_of.wall_ms += one.wall_ms
        all_of.cpu_ms += one.cpu_ms
        all_of.own_ms += one.own_ms
        all_of.errors += one.errors
        all_of.faults += one.faults
    return all_of


LOOP = "total = 0\nfor i in range(1_000_000):\n    total += i * i % 7"


def loop(methods: Sequence[Method], root: Path, args: argparse.Namespace, say: Callable[[str], None]) -> Any:
    """A loop at the top level of a cell, where a hooked namespace would be felt; kernels in turns."""
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=root) as folder:
        kernels = {m.label: m.start(Path(folder, str(i)), [LOOP], []) for i, m in enumerate(methods)}
        try:
            times: dict[str, list[float]] = {label: [] for label in kernels}
            for turn in range(31):
                for label, kernel in kernels.items():
                    wall = kernel.run(LOOP).wall_ms
                    if turn:
                        times[label].append(wall)
            for label, walls in times.items():
                rows[label] = {"ms": min(walls), "ratio": min(walls) / min(times[Method.label])}
        finally:
            for kernel in kernels.values():
                kernel.stop()
    return rows


PARTS: dict[str, Callable[..., Any]] = {
    "notebook34": notebook34,
    "namespace5gb": namespace5gb,
    "real": real,
    "loop": loop,
}

# --- the tables --------------------------------------------------------------------------------------------------

AIMS = {
    "notebook34": (
        "aims: median added <= 2 ms, worst <= 150 ms, all <= 0.5 s; stored <= 650 MB; "
        "back <= 50 ms where little differs; nothing wrong; both times at the median >= 100x less than Kishu's"
    ),
    "namespace5gb": "aims: as above for the small cells; durable <= 10 s",
    "real": "aim: <= 3 % of the wall time",
    "loop": "aim: <= 1.02",
}


def show(part: str, rows: dict[str, Any]) -> None:
    """Print the table of one part."""
    print(f"\n{part}: {AIMS[part]}")
    if "skipped" in rows:
        print(f"  skipped: {rows['skipped']}")
    elif part == "loop":
        for label, row in rows.items():
            print(f"  {label:22}{row['ms']:10.1f} ms{row['ratio']:8.3f}")
    elif part == "real":
        for name, row in {**rows["notebooks"], "all": rows["all"]}.items():
            base = row[Method.label]["wall_s"]
            line = f"  {name[:34]:36}{row[Method.label]['cells']:5} cells{base:8.2f} s"
            for label, one in row.items():
                if label != Method.label and one["added"]:
                    share = one["added"]["sum_s"] / base * 100
                    line += f"  | {label} {share:+6.1f} % worst {one['added']['worst_ms']:7.0f} ms"
                    line += f" {one['stored'] / MB:7.1f} MB"
            print(line)
    else:
        print(
            f"  {'':22}{'added: all s':>13}{'median ms':>11}{'worst ms':>10}{'own: all s':>12}{'median':>9}{'worst':>9}"
            f"{'stored MB':>11}{'peak MB':>9}{'durable s':>11}{'back ms (median, worst)':>26}"
            f"{'failed':>8}{'wrong':>7}{'around':>8}{'named':>7}"
        )
        for label, row in rows.items():
            print(_line(label, row))
        for label, row in rows.items():
            for stop in row.get("checked", {}).get("stops", []):
                if stop["error"] or stop["wrong"]:
                    print(f"  {label}, back at {stop['to']}: {stop['error'] or '; '.join(stop['wrong'])}"[:400])
            replayed = row.get("checked", {}).get("replayed", {}).get("wrong")
            if replayed:
                print(f"  {label}, cells {REPLAY_FROM + 1} on again: {'; '.join(replayed)}"[:400])


def _line(label: str, row: dict[str, Any]) -> str:
    added, own = row["added"], row["own"]
    line = f"  {label:22}{added['sum_s']:13.2f}{added['median_ms']:11.2f}{added['worst_ms']:10.1f}"
    line += f"{own['sum_s']:12.2f}{own['median_ms']:9.2f}{own['worst_ms']:9.1f}" if own else f"{'':30}"
    line += f"{row['stored'] / MB:11.1f}{row['peak'] / MB:9.0f}{row['durable_s']:11.1f}"
    backs = [one["ms"] for one in row["gotos"] if not one["error"]]
    line += f"{statistics.median(backs):15.1f}{max(backs):11.1f}" if backs else f"{'':26}"
    stops = row.get("checked", {}).get("stops")
    if stops:
        wrong, around, named = (sum(len(stop[kind]) for stop in stops) for kind in ("wrong", "around", "named"))
        line += f"{sum(bool(stop['error']) for stop in stops):8}{wrong:7}{around:8}{named:7}"
    return line + (f"  {row['gave_up']}" if row["gave_up"] else "")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="this part (may be given again)")
    parser.add_argument("--skip-peers", action="store_true", help="only ipykernel and ctxkernel")
    parser.add_argument("--skip-ours", action="store_true", help="only ipykernel and the peers")
    parser.add_argument("--rounds", type=int, default=3, help="of the cheap methods; the least time counts")
    parser.add_argument("--small", type=int, default=200, help="small cells of namespace5gb")
    parser.add_argument("--dill-cells", type=int, default=2, help="small cells of namespace5gb for dill")
    parser.add_argument("--notebooks", type=Path, help="folder of real notebooks")
    parser.add_argument("--environments", type=Path, default=Path.home() / ".cache" / "ctxkernel-benchmarks")
    parser.add_argument("--folder", type=Path, help="where the kernels write; a temporary folder if not given")
    parser.add_argument("--timeout", type=float, default=900, help="seconds that a cell may take")
    parser.add_argument("--json", type=Path, help="file for all figures")
    args = parser.parse_args()
    methods: list[Method] = [Method()]
    if not args.skip_ours:
        methods.append(Ours())
    if not args.skip_peers:
        kishu = environment(args.environments / "kishu", "kishu==0.3.4")
        methods += [Kishu(kishu), FastKishu(kishu), Dill(environment(args.environments / "dill", "dill==0.4.1"))]
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=args.folder) as root:
        warm(min(8 << 30, free_bytes() // 2))
        for part in args.only or PARTS:
            print(f"{part} …", file=sys.stderr)
            start = time.perf_counter()
            results[part] = PARTS[part](methods, Path(root), args, lambda line: print(line, file=sys.stderr))
            show(part, results[part])
            print(f"  ({time.perf_counter() - start:.0f} s)", flush=True)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
