"""`python -m benchmarks`: figures, their table, comparisons, and the page that shows them. Nothing is measured here."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from benchmarks.registry import BENCHMARKS, HERE  # noqa: E402
from benchmarks.results import Aim, Figure, Measured, Run, comparison, page_with, read, table  # noqa: E402

PAGE = ROOT / "docs" / "performance.md"


def run(*figures: Figure, commit: str = "a1", error: str = "") -> Run:
    return Run(commit, "0.1.0", "2026-01-01", "small", "a machine", {"cells": Measured(figures, 1.0, error)})


CELL = Figure("`pass`", 4.0, "ms", "ipykernel", 2.0, Aim(1.3, "ratio"))


def test_a_figure_stands_beside_its_peer_and_its_aim():
    assert CELL.ratio == 2.0
    assert CELL.reached is False
    assert dataclasses.replace(CELL, value=2.2).reached is True
    assert Figure("facts", 90, "", aim=Aim(80, at_least=True)).reached is True
    assert Figure("alone", 90, "", aim=Aim(1.3, "ratio")).reached is None
    assert "| cells | `pass` | 4 ms | ipykernel: 2 | 2.00 | ≤ 1.30 ×, missed |" in table(run(CELL))
    assert "not measured: it broke \\| here" in table(run(error="Traceback\nit broke | here"))


def test_what_was_written_is_read_again(tmp_path: Path):
    made = run(CELL, Figure("b", 1.5, "s"))
    made.write(tmp_path / "run.json")

    assert read(tmp_path / "run.json") == made


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"benchmarks": {"a": 1}}', '{"benchmarks": {}, "other": 1}'])
def test_a_file_of_another_kind_is_refused_with_its_name(tmp_path: Path, text: str):
    (tmp_path / "x.json").write_text(text)

    with pytest.raises(ValueError, match=r"x\.json is no file of `python -m benchmarks"):
        read(tmp_path / "x.json")


def test_two_runs_are_compared_by_the_ratio_to_the_peer():
    """A machine of half the speed changes nothing; a cell that costs twice as much beside its peer is worse."""
    slow = dataclasses.replace(CELL, value=8.0, peer_value=4.0)
    assert comparison(run(CELL), run(slow), 0.25)[1] == 0
    worse = dataclasses.replace(CELL, value=8.0)
    told, count = comparison(run(CELL), run(worse, commit="b2"), 0.25)
    assert count == 1
    assert "| a1 | b2 |" in told
    assert "worse" in told
    facts = Figure("facts", 100, "", more_is_better=True)
    assert comparison(run(facts), run(dataclasses.replace(facts, value=50)), 0.25)[1] == 1
    assert comparison(run(facts), run(dataclasses.replace(facts, value=200)), 0.25)[1] == 0
    none = Figure("wrong", 0, "")
    assert comparison(run(none), run(dataclasses.replace(none, value=1)), 0.25)[1] == 1
    assert "not measured" in comparison(run(CELL), run(), 0.25)[0]


def test_the_page_shows_the_figures_that_were_measured():
    """`python -m benchmarks --write` writes both."""
    measured = read(PAGE.with_suffix(".json"))
    page = PAGE.read_text(encoding="utf-8")

    assert page_with(page, measured) == page
    assert measured.benchmarks.keys() <= BENCHMARKS.keys()
    assert not [name for name, one in measured.benchmarks.items() if one.error]


def test_the_command_says_what_there_is_and_refuses_what_there_is_not():
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = (sys.executable, "-m", "benchmarks", *words)
        return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert all(name in command("--help").stdout for name in BENCHMARKS)
    refused = command("--only", "nothing")
    assert refused.returncode == 2
    assert "invalid choice: 'nothing'" in refused.stderr
    absent = command("--compare", "no-such-file.json", "neither.json")
    assert absent.returncode == 2
    assert "no-such-file.json" in absent.stderr
    assert "Traceback" not in absent.stderr
    assert HERE == ROOT / "benchmarks"
