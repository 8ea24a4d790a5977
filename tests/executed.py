"""A notebook of ours that was executed as a reader would execute it: `ctxkernel run`, and what its cells showed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nbformat
from command_line import ctxkernel


def execute(notebook: Path, folder: Path) -> Path:
    """Execute a copy of `notebook` in `folder`, which then has its session and `done.ipynb`."""
    (folder / notebook.name).write_bytes(notebook.read_bytes())
    done = ctxkernel("run", notebook.name, "--output", "done.ipynb", cwd=folder)
    assert done.returncode == 0, done.stderr
    keep(folder / "done.ipynb", notebook)
    return folder


def assert_clean(notebook: Path) -> None:
    """No outputs and no counts are stored, and every cell has an id of its own: a diff shows the text alone."""
    stored = nbformat.read(notebook, as_version=4)
    assert stored.metadata.kernelspec.name == "ctxkernel"
    assert all(not cell.outputs and cell.execution_count is None for cell in stored.cells if cell.cell_type == "code")
    assert len({cell.id for cell in stored.cells}) == len(stored.cells)


def keep(executed: Path, notebook: Path) -> None:
    """Copy an executed notebook to where `docs/build.py` looks for it, if `.ci/run` says where."""
    if folder := os.environ.get("EXECUTED_NOTEBOOKS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(executed, Path(folder) / notebook.name)


def shown(folder: Path, cell_id: str) -> str:
    """Return all text that a cell showed."""
    cells = nbformat.read(folder / "done.ipynb", as_version=4).cells
    cell = next(cell for cell in cells if cell.id == cell_id)
    return "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
