"""Notebooks are run, and run again from three places: what is deterministic comes out the same, what is not is named.

Each notebook says of itself, in `metadata.ctxkernel_test`, what is true of it:
- `deterministic`: whether a re-run gives the same.
- `expected`: statement number → the cause of its differences (`a|b` where either is right).
- `depends`: statement number → the statement whose re-run makes it differ; without that one it comes out the same.
- `files`: what lies in its folder at first; `appends`: what is added to them before each re-run.
- `restart`: each re-run is by a new process that resumes the session.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from scale import share

NOTEBOOKS = Path(__file__).resolve().parent / "notebooks"
TOUR = NOTEBOOKS.parent.parent / "notebooks" / "01-tour.ipynb"


class Desk:
    """A notebook in its own folder, and the kernels that run it."""

    def __init__(self, path: Path, folder: Path, start_kernel):
        self.book = nbformat.read(path, as_version=4)
        self.says: dict[str, Any] = self.book.metadata.get("ctxkernel_test", {"deterministic": True})
        self.folder = folder
        self.name = path.name
        self._start = start_kernel
        for name, text in self.says.get("files", {}).items():
            (folder / name).write_text(text)
        (folder / path.name).write_bytes(path.read_bytes())
        turns = path.with_suffix(".turns.json")
        if turns.is_file():
            (folder / turns.name).write_bytes(turns.read_bytes())
        self.runs = 0
        self.kernel = self._kernel()

    def _kernel(self):
        # Another order of sets, and another label, in each process.
        # However busy the machine is, time does not run out after a cell: what is left out then cannot be compared.
        env = {"PYTHONHASHSEED": str(self.runs + 1), "RUN_LABEL": f"run {self.runs}", "CTXKERNEL_END_PHASE_MS": "60000"}
        return self._start(folder=self.folder, notebook=self.name, env=env)

    def run(self) -> None:
        """Execute all cells as a reader would."""
        for cell in self.book.cells:
            if cell.cell_type != "code":
                continue
            ran = self.kernel.run(cell.source, timeout=120)
            # A reader takes longer than the background, which looks through large files.
            self.kernel.evaluate("get_ipython().kernel.ctx.worker.wait(60)")
            may_fail = "raises-exception" in cell.metadata.get("tags", [])
            assert ran.status == "ok" or may_fail, ran.error

    def timeline(self) -> list[dict[str, Any]]:
        """Return the statements as the kernel lists them."""
        return json.loads(self.kernel.run("%ctx timeline --json").stdout)["statements"]

    def rerun(self, first: int, last: int) -> dict[int, list[dict[str, Any]]]:
        """Re-run statements; returns their divergences, less those of time, by statement number."""
        self.runs += 1
        for name, text in self.says.get("appends", {}).items():
            with (self.folder / name).open("a") as file:
                file.write(text.replace("{n}", str(self.runs)))
        if self.says.get("restart"):
            self.kernel.stop()
            self.kernel = self._kernel()
            assert self.kernel.run("%ctx resume").status == "ok"
        ran = self.kernel.run(f"%ctx rerun {first}..{last} --json", timeout=120)
        answer = last_json(ran.stdout or json.dumps(ran.reply))
        # A cell that raised and did not before ends the re-run, and its cell, with its error.
        assert (ran.status == "ok") == (answer["stopped"] is None), ran.reply
        found: dict[int, list[dict[str, Any]]] = {}
        for one in answer["comparisons"]:
            number = int(one["execution_id"].removeprefix("s").partition(".")[0])
            found[number] = [d for d in one["divergences"] if d["kind"] != "timing"]
            assert one["same"] == (not found[number])
            assert one["execution_id"] != one["against"]
        return found


def last_json(text: str) -> dict[str, Any]:
    """Return the object that a text ends with; what the cells printed stands before it."""
    lines = text.rstrip().split("\n")
    for at in reversed(range(len(lines))):
        if lines[at].startswith("{"):
            try:
                return json.loads("\n".join(lines[at:]))
            except ValueError:
                continue
    raise AssertionError(f"no object at the end of {text[-2000:]!r}")


def places(count: int) -> list[int]:
    """Return where re-runs begin: in the first third, in the middle, in the last third. Never at the imports."""
    return sorted({max(2, count // 3), count // 2, 2 * count // 3 + 1})


def due(says: dict[str, Any], first: int) -> dict[int, str]:
    """Return which statements must differ when all from `first` on run again, and by which cause."""
    depends = says.get("depends", {})
    return {
        int(number): cause
        for number, cause in says.get("expected", {}).items()
        if min(int(number), depends.get(number, int(number))) >= first
    }


def test_the_notebooks_are_as_many_and_as_various_as_they_should_be():
    says = [nbformat.read(path, as_version=4).metadata.ctxkernel_test for path in NOTEBOOKS.glob("*.ipynb")]

    assert len([one for one in says if one.deterministic]) >= 12
    assert len([one for one in says if not one.deterministic]) >= 8
    assert all(bool(one.get("expected")) != one.deterministic for one in says)


@pytest.mark.scaled
@pytest.mark.parametrize("name", share(sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")), 6))
def test_a_re_run_says_what_differs_and_why(name, tmp_path, start_kernel):
    """From three places: no false divergence, and each true one with its cause."""
    desk = Desk(NOTEBOOKS / f"{name}.ipynb", tmp_path, start_kernel)
    desk.run()
    count = len([cell for cell in desk.book.cells if cell.cell_type == "code"])

    for first in places(count):
        found = desk.rerun(first, count)

        assert sorted(found) == list(range(first, count + 1)), "all that follows ran again"
        expected = due(desk.says, first)
        told = {number: divergences for number, divergences in found.items() if divergences}
        assert sorted(told) == sorted(expected), (first, told)
        for number, causes in expected.items():
            named = {divergence["cause"] for divergence in told[number]}
            assert named & set(causes.split("|")), (first, number, told[number])
            assert named <= {*causes.split("|"), "upstream"}, (first, number, told[number])


def test_the_tour_runs_again_without_a_difference(tmp_path, start_kernel):
    """Handles, models, figures: all is deterministic but a file that one cell makes and another rewrites."""
    desk = Desk(TOUR, tmp_path, start_kernel)
    desk.run()
    sources = [one["source"] for one in desk.timeline()]
    [made] = [
        n for n, source in enumerate(sources, 1) if "findings.write_text(" in source and "read_text" not in source
    ]
    [rewritten] = [n for n, source in enumerate(sources, 1) if "findings.read_text(" in source]

    for first in places(len(sources)):
        found = desk.rerun(first, len(sources))

        told = {number: divergences for number, divergences in found.items() if divergences}
        if first <= made or first > rewritten:
            assert told == {}
        else:  # the file is as the last run left it, since files are not rolled back
            assert min(told) == rewritten
            causes = {divergence["cause"] for divergences in told.values() for divergence in divergences}
            assert causes <= {"file", "upstream"}
