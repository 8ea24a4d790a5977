"""Notebooks without a front end: nbclient, nbconvert and papermill, on our kernel and on a stock one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from ctxkernel.store.session import SessionReader

CELLS = [
    "x = [1]",
    "x.append(2); print('said')",
    "h = view('data.md', tokens=200).run()\nh",
    "open('data.md', 'w').write('other')",
    "x",
]


@pytest.fixture
def desk(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with a data file, and an environment in which `ctxkernel` and `python3` are kernelspecs."""
    for name, module in (("ctxkernel", "ctxkernel.kernel"), ("python3", "ipykernel_launcher")):
        spec = tmp_path / "share" / "kernels" / name
        spec.mkdir(parents=True)
        argv = [sys.executable, "-m", module, "-f", "{connection_file}"]
        (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": name, "language": "python"}))
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "data.md").write_text("# Title\n\nwords\n")
    environ = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    return folder, {**environ, "JUPYTER_PATH": str(tmp_path / "share")}


def write(path: Path, kernel: str, cells: list[str]) -> None:
    """Write a notebook of code cells."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
    nbformat.write(notebook, path)


TOOLS = {
    "nbconvert": ["-m", "nbconvert", "--to", "notebook", "--execute", "in.ipynb", "--output", "out.ipynb"],
    "papermill": ["-m", "papermill", "in.ipynb", "out.ipynb"],
    "nbclient": [
        "-c",
        (
            "import nbformat, nbclient; nb = nbformat.read('in.ipynb', 4); "
            "nbclient.NotebookClient(nb).execute(); nbformat.write(nb, 'out.ipynb')"
        ),
    ],
}


@pytest.mark.parametrize("kernel", ["ctxkernel", "python3"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_notebook_runs_headless_and_leaves_its_timeline(desk, tool, kernel):
    folder, environ = desk
    cells = CELLS if kernel == "ctxkernel" else ["%load_ext ctxkernel", *CELLS]
    write(folder / "in.ipynb", kernel, cells)

    done = subprocess.run(
        [sys.executable, *TOOLS[tool]],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    out = nbformat.read(folder / "out.ipynb", 4)
    code = [cell for cell in out.cells if cell.cell_type == "code"][-len(CELLS) :]
    assert code[1].outputs[0].text == "said\n"
    assert "other" in code[2].outputs[0].data["text/plain"], "the display of a running view follows its file"
    assert code[4].outputs[0].data["text/plain"] == "[1, 2]"
    [session] = (folder / ".ctxkernel").glob("*.sqlite")
    with SessionReader(session) as reader:
        statements = reader.timeline()["statements"]
    assert [s["source"] for s in statements][-len(CELLS) :] == CELLS
    assert list(statements[-4]["executions"][0]["state_diff"]["changed"]) == ["x"]
    assert [a["name"] for a in statements[-2]["executions"][0]["artifacts"] if a["kind"] == "file"] == ["data.md"]
