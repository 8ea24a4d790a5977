"""Make `notebooks/04-asking.turns.json` anew: run the notebook with answers that are written here, and record them.

    python docs/record_asking.py

To be run when the projection has changed, since the file holds the receipts of its requests: then
`pytest --ctx notebooks/04-asking.ipynb --ctx-strict` says that they are others. No model is asked: the answers are what
a good one would say, and a server on this machine says them. Neither notebook nor answers may show what differs
between machines and versions of Python: results of `sum` (3.12 adds otherwise), frames of comprehensions, addresses.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell

from ctxkernel.testing import MessagesServer, call, say

NOTEBOOK = Path(__file__).resolve().parent.parent / "notebooks" / "04-asking.ipynb"


def cell(code: str) -> dict[str, Any]:
    """Return a call that runs a cell."""
    return call("run_cell", {"code": code.strip()})


ANSWERS = [
    # Why do the residuals drift after 2019?
    [
        say("I look at the residuals by year, and at how much a single month scatters."),
        cell("""
for year in range(2015, 2024):
    print(year, f"{fmean(r for r, (y, _) in zip(residuals, months) if y == year):+.2f}")
"""),
        cell("""
steps = [abs(b - a) for a, b in zip(residuals, residuals[1:])]
print(f"from month to month: {fmean(steps):.2f} K, at most {max(steps):.2f} K")
"""),
    ],
    [
        say(
            "Level until 2018, another level from 2020 on, and 2019 between them: a step rather than a drift. I look "
            "for the month at which two means fit best."
        ),
        cell("""
def misfit(at):
    left, right = residuals[:at], residuals[at:]
    low, high = sum(left) / len(left), sum(right) / len(right)
    return fsum((r - low) * (r - low) for r in left) + fsum((r - high) * (r - high) for r in right)

at = min(range(len(residuals)), key=misfit)
print(months[at])
"""),
    ],
    [
        say("At 0 one part is empty. I leave a year at each end, and correct with the line from before the step."),
        cell("""
at = min(range(12, len(residuals) - 12), key=misfit)
print("the first month of the new level:", months[at])
"""),
        cell("""
slope, intercept = line(reference[:at], sensor[:at])
step = fmean(value - intercept - slope * true for true, value in zip(reference[at:], sensor[at:]))
corrected = [value - step * (n >= at) for n, value in enumerate(sensor)]
residuals = [value - intercept - slope * true for true, value in zip(reference, corrected)]
print(f"step {step:+.2f} K; residuals before {fmean(residuals[:at]):+.2f}, after {fmean(residuals[at:]):+.2f}")
"""),
    ],
    say(
        "It is no drift but a **step of +0.71 K in September 2019**; fitted by one line over both levels it looks like "
        "a drift, and the years before it look too cold. A changed sensor, or a changed shield, would do that; the "
        "station's log should say which.\n\n`corrected` is the sensor without the step, `residuals` are now those of "
        "`corrected` against the line from before it. What I cannot tell is which of the two levels is right."
    ),
    # Could it be chance?
    [
        cell("""
from math import sqrt

spread = sqrt(fsum(r * r for r in residuals) / (len(residuals) - 2))
error = spread * sqrt(1 / at + 1 / (len(months) - at))
needed = next(n for n in range(1, 50) if step > 3 * spread * sqrt(1 / at + 1 / n))
print(f"spread {spread:.2f} K, step {step / error:.0f} standard errors, three of them after {needed} months")
"""),
    ],
    say(
        "No: the step is 15 standard errors, with a spread of 0.25 K a month. **Two months** after the change would "
        "have been enough for three standard errors, had one known where to look; in a search over all months, a few "
        "more."
    ),
]


def record(folder: Path, notebook: Path = NOTEBOOK) -> Path:
    """Run a copy of the notebook in `folder`, as it would be run with a key; return the file of turns."""
    copy = nbformat.read(notebook, as_version=4)
    copy.cells.append(new_code_cell("%ctx record"))
    nbformat.write(copy, folder / notebook.name)
    with MessagesServer(ANSWERS) as server:
        given = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "any", "CTXKERNEL_MODE": "auto"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CTXKERNEL_")}
        command = [sys.executable, "-m", "ctxkernel", "run", notebook.name]
        subprocess.run(command, cwd=folder, env={**environment, **given}, check=True)
        if server.faults or server.script:
            raise SystemExit(f"the notebook asked otherwise than the answers foresee: {server.faults or server.script}")
    return folder / f"{notebook.stem}.turns.json"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        NOTEBOOK.with_suffix(".turns.json").write_bytes(record(Path(made)).read_bytes())
    print(f"{NOTEBOOK.with_suffix('.turns.json')} is made anew")
