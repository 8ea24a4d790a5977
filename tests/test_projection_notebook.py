"""The notebook about the projection is executed as a reader would execute it, and does what its prose says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import ctxkernel
from executed import assert_clean, execute, shown

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "notebooks" / "03-projection.ipynb"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the notebook was executed, and the executed notebook as `done.ipynb`."""
    folder = tmp_path_factory.mktemp("projection")
    return execute(NOTEBOOK, folder)


def test_the_notebook_is_clean():
    assert_clean(NOTEBOOK)


SAID = [
    ("why", "s2.1: in"),
    ("why-not", "pd"),
    ("whatif", "nothing was applied"),
    ("whatif", "view:table"),
    ("redacted", "its outputs redacted"),
    ("diff", "breaks at s2.1"),
    ("open", "stands for"),
    ("open", "for number, row in patients"),
    ("where", "was condensed"),
    ("back", "taken back"),
]


@pytest.mark.parametrize(("cell", "told"), SAID)
def test_each_step_says_what_the_prose_promises(desk: Path, cell: str, told: str):
    assert told in shown(desk, cell)


def test_every_projection_can_be_made_again(desk: Path):
    told = json.loads(ctxkernel("verify", NOTEBOOK.name, "--json", cwd=desk).stdout)

    assert told["sound"]
    assert told["projections"] == told["statements"]


def test_why_not_says_that_a_name_is_private(kernel):
    kernel.run("hidden = 42")
    kernel.run("%ctx private hidden")
    told = kernel.run("%ctx why not hidden").data[-1]["text/plain"]
    assert "hidden is private" in told
    assert "is in" not in told
