"""The notebook about variants is executed as a reader would execute it, and does what its prose says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import ctxkernel
from executed import assert_clean, execute, shown

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "05-variants.ipynb"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the notebook was executed: its session, and the executed notebook as `done.ipynb`."""
    folder = tmp_path_factory.mktemp("variants")
    return execute(NOTEBOOK, folder)


def test_the_notebook_is_clean():
    assert_clean(NOTEBOOK)


def test_no_cell_fails(desk: Path):
    timeline = json.loads(ctxkernel("timeline", NOTEBOOK.name, "--json", cwd=desk).stdout)

    assert {run["status"] for s in timeline["statements"] for run in s["executions"]} == {"ok"}


def test_the_edit_runs_four_cells_and_keeps_three(desk: Path):
    assert "4 cells may run, 3 are kept" in shown(desk, "plan")
    assert "4 cells ran, 3 kept" in shown(desk, "affected")
    assert shown(desk, "degree").startswith("(2, (442, 65), ")


def test_the_sweep_runs_the_cells_that_read_its_parameters(desk: Path):
    assert "30 cells run, 30 are shared" in shown(desk, "dry")
    table = shown(desk, "sweep")

    assert "10 combinations, 10 ok · 30 cells ran, 30 shared" in table
    assert shown(desk, "back") == "(1.0, 'ridge', 0)"


def test_the_best_row_is_gone_to_and_left_again(desk: Path):
    best = shown(desk, "python").splitlines()[1].split()

    assert shown(desk, "there").strip() == f"{best[2]}, alpha {float(best[1]):g}: r² {best[3]}, {best[4]} features"
