"""What change detection costs a cell: run it, read the table. Medians in µs; the machine should be quiet.

    python benchmarks/tracker.py [--large]

`--large` adds cells beside, and on, an array and a frame of 1 GB each (needs 4 GB of memory).
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

from ctxkernel.state.tracking.tracker import NamespaceTracker


def cost(namespace: dict[str, Any], cell: str, rounds: int) -> tuple[float, float, str]:
    """Return the median of `before` and of `after` in microseconds, and what was said to be missing."""
    tracker = NamespaceTracker(namespace)
    code = compile(cell, "<cell>", "exec")
    before: list[float] = []
    after: list[float] = []
    incomplete = ""
    for _ in range(rounds + 1):
        start = time.perf_counter()
        tracker.before(cell)
        ready = time.perf_counter()
        exec(code, namespace)
        done = time.perf_counter()
        diff = tracker.after(lambda done=done: time.perf_counter() - done > 0.25)
        after.append(time.perf_counter() - done)
        before.append(ready - start)
        incomplete = incomplete or diff.incomplete
    # The first round looks at what was there before the tracker: once, not once a cell.
    return median(before[1:]) * 1e6, median(after[1:]) * 1e6, incomplete


def show(label: str, namespace: dict[str, Any], cell: str, rounds: int = 200) -> None:
    before, after, incomplete = cost({"__name__": "__main__", **namespace}, cell, rounds)
    print(
        f"{label:34} {cell:24} before {before:10,.0f}  after {after:10,.0f}  sum {before + after:10,.0f} {incomplete}"
    )


def main() -> None:
    for count in (10, 1_000, 10_000):
        numbers: dict[str, Any] = {f"n{i}": i * 1000 for i in range(count)}
        lists: dict[str, Any] = {f"l{i}": [i] for i in range(count)}
        show(f"{count:,} numbers", numbers, "pass")
        show(f"{count:,} numbers", numbers, "n3 = n3 + 1")
        show(f"{count:,} lists", lists, "pass")
        show(f"{count:,} lists", lists, "l3.append(1)")
    if "--large" not in sys.argv:
        return
    import numpy as np
    import pandas as pd

    large = {"a": np.ones(125_000_000), "df": pd.DataFrame(np.ones((12_500_000, 10))), "l": [1]}
    for cell in ("pass", "l.append(1)", "a[3] = 0", "df.iloc[5, 3] = 0.0"):
        show("1 GB array and 1 GB frame", large, cell, 15)


if __name__ == "__main__":
    main()
