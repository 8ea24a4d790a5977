"""The tutorials about reading, about the next day and about sharing are executed, and show what their prose says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from executed import assert_clean, execute, shown

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
NAMES = ("08-reading", "06-next-day", "07-sharing")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory):
    """A function that returns the folder in which a notebook was executed."""
    done: dict[str, Path] = {}

    def executed(name: str) -> Path:
        if name not in done:
            done[name] = execute(NOTEBOOKS / f"{name}.ipynb", tmp_path_factory.mktemp(name))
        return done[name]

    return executed


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_is_clean(name: str):
    assert_clean(NOTEBOOKS / f"{name}.ipynb")


def test_what_is_read_costs_a_small_part_of_its_text_and_shows_the_wrong_row(desk):
    folder = desk("08-reading")

    told = re.search(r"([\d,]+) tokens as text, ([\d,]+) as views", shown(folder, "compare"))
    assert told is not None
    text, views = (int(number.replace(",", "")) for number in told.groups())
    assert text > 20 * views
    assert "999.9" in shown(folder, "july")
    assert "def signature" in shown(folder, "place")
    assert "handles" in shown(folder, "projection")


def test_the_next_day_continues_where_the_kernel_died_and_repeats_nothing(desk):
    folder = desk("06-next-day")

    assert re.search(r"(?m)^s3", shown(folder, "left"))
    assert "all sound" in shown(folder, "verify")
    resumed = shown(folder, "resume")
    assert resumed.count("kept") == 2
    assert "computed" not in resumed
    assert re.search(r"\[4/4\].*ok", resumed)


def test_a_shared_notebook_is_plain_fails_in_ci_where_it_is_stale_and_is_one_page(desk):
    folder = desk("07-sharing")

    assert "1 passed" in shown(folder, "test")
    assert "1 failed" in shown(folder, "fails")
    assert "1 passed" in shown(folder, "passes")
    assert json.loads((folder / "result.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
    assert "<html" in (folder / "result.html").read_text(encoding="utf-8")
