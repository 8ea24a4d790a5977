"""What `ctxkernel rerun --affected --inplace` writes into a notebook is what a run of all its cells leaves there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from ctxkernel.cli import main

_VARYING = re.compile(r"\b[0-9a-f]{32}\b")


def written(path: Path, cells: list[str]) -> None:
    """Write a notebook."""
    book = new_notebook(cells=[new_code_cell(source, id=f"c{at}") for at, source in enumerate(cells)])
    nbformat.write(book, path)


def edited(path: Path, edit: dict[int, str]) -> None:
    """Change cells of a notebook."""
    book = nbformat.read(path, as_version=4)
    for at, source in edit.items():
        book.cells[at].source = source
    nbformat.write(book, path)


def shown(path: Path) -> list[Any]:
    """Return the outputs of a notebook and the texts in its Output widgets, without identifiers and numbers."""
    book = nbformat.read(path, as_version=4)
    outputs = [[{**one, "execution_count": None} for one in cell.outputs] for cell in book.cells]
    found = _VARYING.sub("ID", repr(outputs))
    names = re.findall(r"'model_id': '(\w+)'", repr(outputs))
    states = next(iter(book.metadata.get("widgets", {}).values()), {}).get("state", {})
    lost = [name for name in names if name not in states]
    return [found, lost, sorted(repr(one.state.outputs) for one in states.values() if one.model_name == "OutputModel")]


def by_both(folder: Path, cells: list[str], *edits: dict[int, str]) -> tuple[list[Any], list[Any]]:
    """Return what a notebook shows after edits: after re-runs of the affected cells, and after a run of all."""
    path, other = folder / "note.ipynb", folder / "other.ipynb"
    written(path, cells)
    assert main(["run", str(path), "--inplace"]) == 0
    for edit in edits:
        edited(path, edit)
        assert main(["rerun", str(path), "--affected", "--inplace"]) == 0
    other.write_text(path.read_text())
    assert main(["run", str(other), "--inplace"]) == 0
    return shown(path), shown(other)


UPDATES = [
    "x, y, z = 1, 1, 1",
    "first = display('waiting', display_id='first')",
    "second = display('waiting', display_id=True)\nx",
    "from IPython.display import update_display\nupdate_display(f'done {y}', display_id='first')",
    "second.update(f'ready {z}')\nprint(z)",
]


@pytest.mark.parametrize(
    "edits",
    [
        pytest.param([{0: "x, y, z = 1, 2, 1"}], id="the cell that updates runs"),
        pytest.param([{0: "x, y, z = 2, 1, 1"}], id="the cell that displays runs"),
        pytest.param([{1: UPDATES[1] + " # edited"}], id="the cell that displays is edited"),
        pytest.param([{0: "x, y, z = 2, 1, 2"}, {0: "x, y, z = 1, 1, 2"}], id="twice"),
        pytest.param([{3: "pass"}], id="the update is gone"),
        pytest.param([{4: "display('again', display_id='first')"}], id="a later cell displays it, too"),
    ],
)
def test_a_display_that_a_later_cell_updates_has_its_last_content(tmp_path, capsys, edits):
    part, whole = by_both(tmp_path, UPDATES, *edits)

    assert part == whole


def test_a_display_keeps_its_metadata(tmp_path, capsys):
    """Such as the size at which an image is drawn."""
    picture = "from IPython.display import SVG, display\ndisplay({'text/plain': str(x)}, metadata={'w': 3}, raw=True)"

    part, whole = by_both(tmp_path, ["x = 1", picture], {0: "x = 2"})

    assert part == whole


OUTPUT_WIDGETS = [
    "x = 1",
    "import ipywidgets as w\nout = w.Output()\nprint('before')\nwith out:\n    print('inside', x)\nprint('after')\nout",
    "with out:\n    display(x)\n    print('later', x)",
    "@w.interact(n=(0, 5))\ndef f(n=2):\n    print('n is', n, x)",
    "with out:\n    print('cleared')\nout.clear_output()\nwith out:\n    print('last', x)\nprint('end')",
]


@pytest.mark.parametrize("count", [4, 5])
def test_what_an_output_widget_captures_is_in_the_widget_alone(tmp_path, capsys, count):
    part, whole = by_both(tmp_path, OUTPUT_WIDGETS[:count], {0: "x = 2"})

    assert part == whole


CLEARED = [
    "from IPython.display import clear_output\nx = 1",
    "for n in range(3):\n    clear_output(wait=True)\n    print('step', n, x)",
    "print('gone')\ndisplay('gone')\nclear_output(wait=True)\nprint('a', x)\ndisplay('b')\nprint('c')",
    "import sys\nprint('gone')\nprint('gone', file=sys.stderr)\nclear_output()\nprint('left', x, file=sys.stderr)",
]


def test_outputs_that_a_cell_clears_are_gone(tmp_path, capsys):
    part, whole = by_both(tmp_path, CLEARED, {0: CLEARED[0].replace("1", "2")})

    assert part == whole


FIGURE = [
    "import matplotlib.pyplot as plt",
    "fig, ax = plt.subplots(figsize=(1, 1)); plt.close(fig)",
    "ax.plot([1, 2]); n = 1",
    "fig",
    "k = n + 1; k",
]


def test_a_figure_of_a_kept_cell_is_shown_as_an_image_in_a_new_process(tmp_path, capsys):
    """The process has not drawn anything yet, and a cell that only computes is kept."""
    part, whole = by_both(tmp_path, FIGURE, {2: "ax.plot([2, 1]); n = 1"})

    assert part == whole
    assert "cell 5 ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "option", ["figure_format = 'svg'", "print_figure_kwargs = {'bbox_inches': None}", "close_figures = False"]
)
def test_figures_are_shown_in_the_way_that_a_kept_cell_set(tmp_path, capsys, option):
    cells = [
        f"import matplotlib.pyplot as plt\nplt.rcParams['svg.hashsalt'] = 'x'\n%config InlineBackend.{option}",
        "n = 1",
        "fig, ax = plt.subplots(figsize=(1, 1)); ax.plot([n, 1]);",
        "print(plt.get_fignums())",
    ]

    part, whole = by_both(tmp_path, cells, {1: "n = 2"})

    date = re.compile("<dc:date>.*?</dc:date>")
    assert date.sub("", part[0]) == date.sub("", whole[0])


def test_an_exported_notebook_shows_the_last_content_of_displays(tmp_path, capsys):
    path, exported = tmp_path / "note.ipynb", tmp_path / "exported.ipynb"
    written(path, UPDATES)
    assert main(["run", str(path), "--inplace"]) == 0

    assert main(["export", str(path), "--ipynb", "--output", str(exported)]) == 0

    assert [shown(exported)[0], "done 1" in shown(exported)[0]] == [shown(path)[0], True]
