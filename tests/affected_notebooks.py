"""Affected cells of real notebooks: `python tests/affected_notebooks.py FILE.ipynb …`.

Each notebook runs in a kernel of its own. Then cells are edited, one at a time: a comment, another number, a cell that
is deleted, doubled, or moved up. The affected cells run again; after that the kernel returns to the start and runs all
cells of the edited notebook. Outputs and variables of both are compared. Prints the share of the cells that ran.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from kernels import RunningKernel, starter

_VARYING = re.compile(
    r"0x[0-9a-f]+|\d[\d.,]*\s*(?:ns|µs|us|ms|s)\b|\d+ loops?|cell line: \d+|In\[\d+\]|Cell In ?\[\d+\]"
)
_UNRUN = re.compile(r"^\s*(?:%timeit|%%timeit|%prun|%lprun|%memit|%run|!|%%bash)|input\(", re.MULTILINE)
_SEED = "import random, numpy\nrandom.seed(1)\nnumpy.random.seed(1)"
"""Without it, running all cells twice gives different numbers in notebooks that draw some."""
Cells = list[tuple[str, str]]


def edited_cells(choose: random.Random, cells: Cells, kind: str, at: int) -> Cells:
    """Return the cells after an edit."""
    edited = list(cells)
    name, source = edited[at]
    match kind:
        case "number" if re.search(r"\d", source):
            edited[at] = name, re.sub(r"\d(?=\D*$)", lambda found: str((int(found[0]) + 1) % 10), source, count=1)
        case "delete":
            del edited[at]
        case "double":
            edited.insert(at, (f"n{at}", source))
        case "move" if at:
            edited.insert(choose.randrange(1, at + 1), edited.pop(at))
        case _:
            edited[at] = name, f"{source}\n# a comment"
    return edited


class Desk:
    """A notebook in a running kernel."""

    def __init__(self, kernel: RunningKernel, folder: Path) -> None:
        self.kernel, self.folder = kernel, folder

    def run_all(self, cells: Cells) -> list[str]:
        """Run cells in order; return what each of them showed."""
        return [self.shown(self.kernel.run(source, timeout=300, metadata={"cellId": cell})) for cell, source in cells]

    @staticmethod
    def shown(ran: Any) -> str:
        """Return what a cell showed, without what varies."""
        found = [ran.stdout, *(json.dumps(one, sort_keys=True) for one in ran.data), str(ran.reply.get("evalue", ""))]
        return _VARYING.sub("", "\n".join(found))

    def logged(self, executions: dict[str, str]) -> dict[str, str]:
        """Return what executions showed, by position."""
        timeline = json.loads(self.kernel.run("%ctx timeline --json").stdout)["statements"]
        runs = {run["execution_id"]: run for one in timeline for run in one["executions"]}
        return {at: self._of_log(runs[one]) for at, one in executions.items() if one in runs}

    @staticmethod
    def _of_log(run: dict[str, Any]) -> str:
        texts = [one["data"] for one in run["artifacts"] if one["kind"] == "display" and one["mime"] == "text/plain"]
        fault = (run.get("exception") or {}).get("message", "")
        return _VARYING.sub("", "\n".join([run["stdout"], *map(str, texts), fault]))

    def head(self) -> str:
        """Return the execution that is HEAD."""
        return json.loads(self.kernel.run("%ctx timeline --json").stdout)["head"]

    def differing(self, one: str, other: str) -> list[str]:
        """Return the variables that differ between the states after two executions, by their values."""
        found = json.loads(self.kernel.run(f"%ctx diff {one} {other} --json", timeout=300).stdout)
        return [
            f"{each['name']}: {each['told']}"
            for kind in ("added", "changed", "deleted")
            for each in found["namespace"].get(kind, ())
            if not re.search(r"the same( cells| elements|)$|may differ|_time", each["told"])
        ]

    def affected(self, cells: Cells) -> dict[str, Any]:
        """Run the affected cells of an edited notebook."""
        listed = [
            {"cell_type": "code", "id": cell, "source": text, "metadata": {"tags": ["raises-exception"]}, "outputs": []}
            for cell, text in cells
        ]
        path = self.folder / "edited.ipynb"
        path.write_text(json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        ran = self.kernel.run(f"%ctx rerun --affected --json --yes --notebook {path}", timeout=600)
        printed = ran.stdout
        at = printed.rfind('{\n "head"')
        if at < 0:
            raise RuntimeError(f"{printed[-500:]} {ran.reply.get('evalue', '')[:500]}")
        return json.JSONDecoder().raw_decode(printed[at:])[0]


def measure(path: Path, edits: int, seed: int, show: Any, *, verbose: bool) -> list[tuple[float, float, bool]]:
    """Return for each edit: the share of the cells below it that ran, the share of all cells, whether it was right."""
    book = nbformat.read(path, as_version=4)
    sources = [one.source for one in book.cells if one.cell_type == "code" and one.source.strip()]
    cells: Cells = [("seed", _SEED)]
    cells += [(f"c{at}", source) for at, source in enumerate(sources) if not _UNRUN.search(source)]
    choose = random.Random(f"{seed} {path.name}")
    found: list[tuple[float, float, bool]] = []
    folder = Path(tempfile.mkdtemp(prefix="affected-"))
    if (path.parent / "data").is_dir():
        shutil.copytree(path.parent / "data", folder / "data")
    with contextlib.contextmanager(starter)(folder) as start:
        kernel = start()
        desk = Desk(kernel, folder)
        desk.run_all(cells)
        home = desk.head()
        for kind in ("comment", "number", "delete", "double", "move")[:edits]:
            at = choose.randrange(1, len(cells))
            edited = edited_cells(choose, cells, kind, at)
            first = next((n for n, (one, other) in enumerate(zip(cells, edited, strict=False)) if one != other), at)
            told = desk.affected(edited)
            shown, part = desk.logged(told["executions"]), desk.head()
            kernel.run("%ctx goto 0", timeout=300)
            desk.run_all(edited)
            timeline = json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]
            newest = {one["cell_id"]: one["executions"][-1]["execution_id"] for one in timeline}
            whole = desk.logged({str(n): newest[cell] for n, (cell, _) in enumerate(edited)})
            wrong = [f"output {n}: {shown[n][:80]!r}, {whole[n][:80]!r}" for n in shown if whole[n] != shown[n]]
            wrong += desk.differing(part, desk.head())
            wrong += [told["stopped"]] if told["stopped"] else []
            ran = len(told["ran"]) + len(told["opaque"])
            below, everything = ran / max(1, len(edited) - first), ran / len(edited)
            found.append((below, everything, not wrong))
            print(
                f"  {below:4.0%} {everything:4.0%}  {kind:8} of cell {at + 1}/{len(cells)}",
                *wrong[:3],
                file=show,
                flush=True,
            )
            for n, why in told["why"].items() if verbose else ():
                print(f"        {n}: {why}  {edited[int(n)][1][:60]!r}", file=show)
            kernel.run(f"%ctx goto {home}", timeout=300)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the status is 1 if a result is wrong, or more than 40 % of the cells ran at the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--edits", type=int, default=5, help="edits of each notebook")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="say why each cell ran")
    chosen = parser.parse_args(arguments)
    found: list[tuple[float, float, bool]] = []
    for path in chosen.files:
        print(path.name, flush=True)
        try:
            found += measure(path, chosen.edits, chosen.seed, sys.stdout, verbose=chosen.verbose)
        except (RuntimeError, TimeoutError) as fault:
            print(f"  failed: {fault}")
            found.append((1.0, 1.0, False))
    below, everything = statistics.median(one[0] for one in found), statistics.median(one[1] for one in found)
    wrong = sum(not one[2] for one in found)
    print(
        f"{len(chosen.files)} notebooks, {len(found)} edits, {wrong} wrong; at the median {everything:.0%} of all "
        f"cells ran, {below:.0%} of those from the edited one on"
    )
    return int(wrong > 0 or everything > 0.4)


if __name__ == "__main__":
    sys.exit(main())
