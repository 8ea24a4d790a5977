"""The notebook about going back is executed as a reader would execute it, and does what its prose says."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from command_line import ctxkernel
from executed import assert_clean, execute, shown

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "02-going-back.ipynb"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the notebook was executed: its session, and the executed notebook as `done.ipynb`."""
    folder = tmp_path_factory.mktemp("going-back")
    return execute(NOTEBOOK, folder)


def test_the_notebook_is_clean():
    assert_clean(NOTEBOOK)


def test_no_cell_fails(desk: Path):
    timeline = json.loads(ctxkernel("timeline", NOTEBOOK.name, "--json", cwd=desk).stdout)

    assert {run["status"] for s in timeline["statements"] for run in s["executions"]} == {"ok"}


def test_the_plan_and_the_return_say_what_they_do(desk: Path):
    plan, went = shown(desk, "plan"), shown(desk, "goto")

    for name in ("patients", "log", "notes", "mean_bmi"):
        assert name in next(line for line in plan.splitlines() if line.startswith("load"))
        assert name in went
    assert "not restored" not in plan + went


def test_the_mistake_is_gone_and_two_names_are_one_list_again(desk: Path):
    assert shown(desk, "check").endswith("['loaded'], True)")


def test_undo_leads_back_to_the_mistake(desk: Path):
    """Nothing is lost: what was left is a branch, and the way back leads to it."""
    assert ast.literal_eval(shown(desk, "undone")) == (["loaded", "oops"], False)
    assert len([line for line in shown(desk, "branches").splitlines() if " s1.1 " in line]) >= 2


def test_the_difference_of_two_states_names_what_changed(desk: Path):
    lines = shown(desk, "diff").splitlines()

    assert any(line.startswith("~ patients") for line in lines)
    assert any(line.startswith("~ log") for line in lines)


def test_the_table_names_the_seed_and_what_follows_from_it_and_nothing_else(desk: Path):
    rows = [line.split() for line in shown(desk, "rerun").splitlines()]
    timeline = json.loads(ctxkernel("timeline", NOTEBOOK.name, "--json", cwd=desk).stdout)
    of = {s["cell_id"]: s["executions"][-1]["comparison"] for s in timeline["statements"] if len(s["executions"]) > 1}
    causes = {cell: {d["subject"]: d["cause"] for d in one["divergences"]} for cell, one in of.items()}

    assert causes["sample"].items() >= {"sample": "seed", "estimate": "seed"}.items()
    assert causes["error"].items() >= {"stdout": "upstream", "error": "upstream"}.items()
    assert of["truth"]["same"]
    assert any(row[2:4] == ["estimate", "seed"] for row in rows)


def test_a_generator_is_made_again_where_it_was(desk: Path):
    plan = shown(desk, "generator-plan")

    assert any(line.startswith("make again") and "squares" in line for line in plan.splitlines())
    assert shown(desk, "generator-next") == "4"


def test_a_file_stays_and_is_named(desk: Path):
    assert "findings.md" in next(
        line for line in shown(desk, "files-plan").splitlines() if line.startswith("file stays")
    )
    assert (desk / "findings.md").is_file()


def test_the_next_kernel_goes_on_where_it_ended(desk: Path):
    """The state is the one after the last cell: the plan of the way to a name says that it can be loaded."""
    done = ctxkernel("goto", NOTEBOOK.name, "clean", "--dry-run", cwd=desk)

    assert done.returncode == 0, done.stderr
    assert "patients" in done.stdout
    assert "not restored" not in done.stdout
