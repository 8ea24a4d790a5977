"""How many cells run after an edit, by the kind of the edited cell: `PYTHONPATH=tests python benchmarks/affected.py`.

Each kind of cell of `tests/affected_programs.py` is edited once in a notebook of 30 cells, and the result is compared
with that of running all cells. Prints the share of the cells that ran, of the edited cell and those below it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from affected_bench import AffectedBench
from affected_programs import TEMPLATES, cell, notebook


def measured(kinds: int, seed: int) -> Iterator[tuple[str, float, list[str]]]:
    """Yield the template of each edited cell, the share of the cells that ran, and how the result was wrong."""
    bench = AffectedBench(Path(tempfile.mkdtemp(prefix="affected-")), twins=False)
    for number, template in enumerate(TEMPLATES[:kinds]):
        choose = random.Random(seed + number)
        cells = notebook(choose, 20)
        at = choose.randrange(10, 20)
        cells[at] = cell(choose, template)
        edited: list[list[object]] = [[n, source] for n, source in enumerate(cells)]
        others = (cell(choose, template) for _ in range(20))
        edited[at][1] = next((one for one in others if one != cells[at]), f"{cells[at]}\n# edited")
        told = bench.answer({"cells": cells, "edited": edited})
        ran = len(told.get("ran", ())) + len(told.get("opaque", ()))
        yield template, ran / (len(cells) - at), list(told["failed"])


def main() -> int:
    """Measure; the status is 1 if a result is wrong, or more than 40 % of the cells run at the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", type=int, default=len(TEMPLATES), help="measure only the first N kinds")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shown = sys.__stdout__
    shares: list[float] = []
    wrong = 0
    for template, share, failed in measured(arguments.kinds, arguments.seed):
        wrong += bool(failed)
        shares.append(share)
        print(f"{share:4.0%}  {template[:90]}", *failed[:2], sep="  ", file=shown, flush=True)
    median = statistics.median(shares)
    print(
        f"{len(shares)} kinds, {wrong} wrong; {median:.0%} of the cells from the edited one on run (median)", file=shown
    )
    return int(wrong > 0 or median > 0.4)


if __name__ == "__main__":
    sys.exit(main())
