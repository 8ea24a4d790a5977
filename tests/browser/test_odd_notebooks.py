"""Notebooks whose data of ours are not as we write them: JupyterLab draws every cell, and nothing fails."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hostile_texts import BUNDLES
from scale import QUICK

pytestmark = [pytest.mark.browser, pytest.mark.scaled, pytest.mark.timeout(280)]

ODD: list[Any] = [None, True, 5, -1, 1e308, "", "x", "s1.1", [], {}, [None], [[]], {"a": None}, {"length": 3}]
"""What stands in the place of a value."""
CELL: dict[str, Any] = {
    "ctxkernel": {
        "shows": {"execution": "s1.1", "newest": "s2.1", "digest": "0" * 16},
        "statement": "s1",
        "session": "0" * 16,
        "digest": "0" * 16,
        "kind": "meta",
        "ask": {"statement": "s1", "state": "waits"},
        "after": ["s1"],
        "run": {"statement": "s1", "author": "user", "receipt": {"tokens": 1}},
    },
    "ctxkernel-kept-1": {"source": "a = 1", "of": "s1", "at": 1.0},
    "ctxkernel-kept-2": {"source": "a = 2", "of": "", "at": 2.0},
    "trusted": True,
}
NOTEBOOK: dict[str, Any] = {"ctxkernel": {"session": "0" * 16, "version": "0.1.0", "texts": {"a": ["b"]}}}
OUTPUTS = [data for data in BUNDLES.values() if any("ctxkernel" in kind for kind in data)]


def changed(value: Any, chance: random.Random) -> Any:
    """Return a value in which some parts are others, or are gone."""
    if chance.random() < 0.15:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {key: changed(one, chance) for key, one in value.items() if chance.random() > 0.1}
    if isinstance(value, list):
        return [changed(one, chance) for one in value for _ in range(chance.choice([0, 1, 1, 1, 2]))]
    return value


def odd_notebook(seed: int, count: int) -> dict[str, Any]:
    """Return a notebook of so many cells."""
    chance = random.Random(seed)
    cells: list[dict[str, Any]] = []
    for number in range(count):
        said = changed(CELL, chance)
        metadata = said if isinstance(said, dict) else {"ctxkernel": said}
        data = {
            kind: changed(one, chance) if isinstance(one, dict | list) else one
            for kind, one in chance.choice(OUTPUTS).items()
        }
        output = {"output_type": "display_data", "data": data, "metadata": {"ctxkernel": chance.choice(ODD)}}
        cells.append({"cell_type": "code", "id": f"c{number}", "metadata": metadata, "source": f"x = {number}",
                      "outputs": [output], "execution_count": number})  # fmt: skip
    spec = {"name": "ctxkernel", "display_name": "ctxkernel", "language": "python"}
    about = changed(NOTEBOOK, chance)
    about = about if isinstance(about, dict) else {"ctxkernel": about}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {**about, "kernelspec": spec}, "cells": cells}


@pytest.mark.parametrize("seed", [1] if QUICK else [1, 2])
def test_odd_data_of_ours_in_a_notebook_hide_no_cell_and_fail_nothing(desk: Any, seed: int):
    count = 20 if QUICK else 40
    desk.show_cells(f"odd{seed}.ipynb", odd_notebook(seed, count))

    sources = "jupyterapp.shell.currentWidget.content.widgets.map((one) => one.model.sharedModel.getSource())"
    assert desk.page.evaluate(sources) == [f"x = {number}" for number in range(count)]
    assert desk.errors == []
