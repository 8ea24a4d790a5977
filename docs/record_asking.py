"""Record the turns of the notebooks that ask: run each notebook with the answers in this file.

    python docs/record_asking.py

Run it when the projection has changed, because the files contain the receipts of its requests; then
`pytest --ctx notebooks/04-asking.ipynb --ctx-strict` reports the difference. The outputs of that notebook are stored
too. No model is asked: a server on this machine gives the answers of a good model. Up to its last ask, neither a
notebook nor its answers may show values that differ between machines and versions: results of `sum` (Python 3.12 adds
differently), frames of comprehensions, addresses, the size of a figure, or more digits of a float than libraries agree
on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell

from ctxkernel.agent import turn_files
from ctxkernel.store.trust_registry import content_digest
from ctxkernel.testing import MessagesServer, call, say

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def cell(code: str) -> dict[str, Any]:
    """Return a call that runs a cell."""
    return call("run_cell", {"code": code.strip()})


TOUR = [
    # Which of them tell it in advance when they are taken together?
    [
        say(
            "One by one `bmi` and `s5` lead; but serum values go together, and two that do tell little more than one. "
            "So I add them one after the other, each time the one that helps most, and judge by patients that the fit "
            "has not seen."
        ),
        cell("""
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

def explained(names):
    return cross_val_score(LinearRegression(), patients[names], patients["target"], cv=5, scoring="r2").mean()

measurements = list(correlation.index)
chosen = []
while len(chosen) < 3:
    left = [name for name in measurements if name not in chosen]
    chosen.append(max(left, key=lambda name: explained([*chosen, name])))
    print(f"{' + '.join(chosen):15} R² {explained(chosen):.2f}")
print(f"{'all ten':15} R² {explained(measurements):.2f}")
"""),
    ],
    say(
        "Three of the ten: **`bmi`, `s5` and `bp`** explain 0.46 of the variance in patients that the fit has not "
        "seen; all ten explain 0.48. By correlation alone `s4` is nearly as good as `bp`, but beside `s5` it has "
        "little left to tell.\n\nHalf of the variance is in none of the ten: good enough for groups, not for one "
        "patient."
    ),
    # Is `obese` as good as `bmi`?
    [
        say("I hold one against the other, alone and beside the other two."),
        cell("""
for names in (["bmi"], ["obese"], ["bmi", "s5", "bp"], ["obese", "s5", "bp"]):
    print(f"{' + '.join(names):15} R² {explained(names):.2f}")

lean = patients[~patients["obese"]]
print(f"bmi and target, the {len(lean)} who are not obese: {lean['bmi'].corr(lean['target']):.2f}")
"""),
    ],
    say(
        "No: alone it explains **0.15** where `bmi` explains **0.32**, and beside `s5` and `bp` 0.41 instead of 0.46. "
        "A line at 30 drops what lies below it: among the 343 who are not obese, `bmi` and the progression still go "
        "together, with 0.46. For a table `obese` is handy; for a model I would keep `bmi`."
    ),
]

ASKING = [
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

ANSWERS = {"01-tour": TOUR, "04-asking": ASKING}


def turns_of(notebook: Path) -> Path:
    """Return the file of a notebook's recorded turns, beside it."""
    return notebook.with_suffix(".turns.json")


def record(folder: Path, notebook: Path) -> Path:
    """Run a copy of the notebook in `folder`, as with a key, and return the file of turns."""
    copy = nbformat.read(notebook, as_version=4)
    copy.cells.append(new_code_cell("%ctx record"))
    nbformat.write(copy, folder / notebook.name)
    with MessagesServer(ANSWERS[notebook.stem]) as server:
        given = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "any", "CTXKERNEL_MODE": "auto"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CTXKERNEL_")}
        command = [sys.executable, "-m", "ctxkernel", "run", notebook.name]
        subprocess.run(command, cwd=folder, env={**environment, **given}, check=True)
        if server.faults or server.script:
            raise SystemExit(f"the notebook asked otherwise than the answers foresee: {server.faults or server.script}")
    return turns_of(folder / notebook.name)


def write_digest(turns: Path) -> None:
    """Write the digest of a file of turns into the module that knows those of the package."""
    module = Path(turn_files.__file__)
    row = rf'("{re.escape(turns.name)}": ")[0-9a-f]*'
    text = re.sub(row, rf"\g<1>{content_digest(turns.read_bytes())}", module.read_text("utf-8"))
    module.write_text(text, "utf-8")


def replay(folder: Path, notebook: Path) -> nbformat.NotebookNode:
    """Run a copy of the notebook in `folder` as a reader without a key does, and return it with its outputs."""
    for path in (notebook, turns_of(notebook)):
        (folder / path.name).write_bytes(path.read_bytes())
    none = ("CTXKERNEL_", "ANTHROPIC_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(none)}
    command = [sys.executable, "-m", "ctxkernel", "run", notebook.name, "--inplace", "--trust"]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    made = nbformat.read(folder / notebook.name, as_version=4)
    for one in made.cells:
        one.metadata.pop("execution", None)
        if one.cell_type == "code":
            # No counts and no tracebacks: they differ between versions, and a test compares neither.
            one.execution_count = None
            for output in one.outputs:
                output.update(_PLAIN.get(output.output_type, {}))
    return made


_PLAIN: dict[str, dict[str, Any]] = {"error": {"traceback": []}, "execute_result": {"execution_count": None}}
WITH_OUTPUTS = ("04-asking",)
"""The notebooks whose outputs are stored, so that `pytest --ctx` finds a wrong result."""


if __name__ == "__main__":
    for stem in ANSWERS:
        book = NOTEBOOKS / f"{stem}.ipynb"
        with tempfile.TemporaryDirectory() as made:
            turns_of(book).write_bytes(record(Path(made), book).read_bytes())
        write_digest(turns_of(book))
        print(f"{turns_of(book)} is made anew")
        if stem in WITH_OUTPUTS:
            with tempfile.TemporaryDirectory() as made:
                nbformat.write(replay(Path(made), book), book)
            print(f"{book} has the outputs of a replay")
