"""The tour is executed as a reader would execute it, and does what its prose says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from command_line import ctxkernel
from executed import keep

ROOT = Path(__file__).resolve().parent.parent
TOUR = ROOT / "notebooks" / "01-tour.ipynb"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], nbformat.NotebookNode, Path]:
    """The timeline, the executed notebook and the folder of one run."""
    folder = tmp_path_factory.mktemp("tour")
    (folder / "tour.ipynb").write_bytes(TOUR.read_bytes())
    (folder / "tour.turns.json").write_bytes(TOUR.with_suffix(".turns.json").read_bytes())
    done = ctxkernel("run", "tour.ipynb", "--json", "--output", "done.ipynb", cwd=folder)
    assert done.returncode == 0, done.stderr
    keep(folder / "done.ipynb", TOUR)
    return json.loads(done.stdout), nbformat.read(folder / "done.ipynb", as_version=4), folder


def text_of(notebook: nbformat.NotebookNode, cell_id: str) -> str:
    """Return all text that a cell showed."""
    cell = next(cell for cell in notebook.cells if cell.id == cell_id)
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)


def statement(timeline: dict[str, Any], cell_id: str) -> dict[str, Any]:
    return next(s for s in timeline["statements"] if s["cell_id"] == cell_id)


def test_the_tour_is_clean():
    """No outputs and no counts are stored: a diff of the tour is a diff of its text."""
    notebook = nbformat.read(TOUR, as_version=4)

    assert notebook.metadata.kernelspec.name == "ctxkernel"
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


def test_every_cell_of_the_tour_succeeds(ran):
    timeline, notebook, _ = ran

    assert [s["cell_id"] for s in timeline["statements"] if s["executions"][-1]["status"] != "ok"] == []
    assert len(timeline["statements"]) >= 10
    assert not [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs if o.output_type == "error"]


@pytest.mark.parametrize("cell_id", ["ask", "again"])
def test_the_tour_asks_what_was_recorded_and_the_answer_is_true(ran, cell_id: str):
    """No model is there, no request is another one than then, and what is said stands in what the model's cell gave."""
    timeline, notebook, _ = ran
    asked = statement(timeline, cell_id)["executions"][0]["execution_id"]
    by_model = [s for s in timeline["statements"] if s["author"] == "model" and s["tags"].get("ask") == asked]
    _, cell, answer = by_model

    shown = text_of(notebook, cell_id)
    assert "replayed from a recorded turn" in shown
    assert "drift" not in shown, "python docs/record_asking.py makes the turns anew"
    assert cell["source"] in shown
    printed = cell["executions"][0]["stdout"]
    assert set(re.findall(r"\d+\.\d+", answer["source"])) <= set(re.findall(r"\d+\.\d+", printed))


def test_the_names_of_the_models_cell_are_in_the_readers_kernel(ran):
    [made] = [s for s in ran[0]["statements"] if "chosen = []" in s["source"]]

    assert {"chosen", "explained"} <= set(made["executions"][0]["state_diff"]["added"])


def test_the_tour_shows_a_change_in_place(ran):
    """The cell binds no name, and `patients` is found changed."""
    changed = statement(ran[0], "mutate")["executions"][0]["state_diff"]["changed"]

    assert changed["patients"]["how"] == "mutated"


def test_the_tour_shows_that_detail_has_a_price(ran):
    """All of the module costs many times what its structure costs, and a budget holds."""
    tokens = [int(line.split()[-1]) for line in text_of(ran[1], "view-code").splitlines() if "·" in line]

    text, structure, summary = tokens
    assert text > 20_000
    assert text > 5 * structure
    assert summary <= 300


def test_the_tour_shows_a_cut_at_the_budget(ran):
    text = text_of(ran[1], "budget")

    assert "tokens=100" in text
    assert "[…" in text


def test_the_tour_shows_what_differs_in_the_watched_file(ran):
    """The running view saw the rewrite at the boundary; level 3 shows the lines."""
    events = statement(ran[0], "rewrite")["executions"][0]["events"]
    shown = text_of(ran[1], "diff")

    assert any(event["type"] == "TickApplied" for event in events)
    assert "unknown" in shown
    assert "Dropped by the lasso" in shown


def test_the_tour_shows_the_projection(ran):
    text = text_of(ran[1], "projection")

    assert "token" in text
    assert "patients" in text


def test_the_tour_leaves_a_session_that_the_command_line_reads(ran):
    folder = ran[2]
    done = ctxkernel("projection", "tour.ipynb", "--json", cwd=folder)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["report"]["ok"]
