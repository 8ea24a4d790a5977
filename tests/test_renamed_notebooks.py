"""A notebook that is renamed keeps its session: timeline and states are there for its next kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SOURCES = {"c1": "x = [1, 2]", "c2": "total = sum(x)"}


def write(path: Path, sources: dict[str, str], *, executed: bool = True) -> None:
    """Write a notebook whose cells ran."""
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": cell,
            "metadata": {},
            "source": source,
            "outputs": [],
            "execution_count": number if executed else None,
        }
        for number, (cell, source) in enumerate(sources.items(), 1)
    ]
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}), "utf-8")


@pytest.fixture
def ran(start_kernel, tmp_path: Path) -> Path:
    """A folder with the notebook `Untitled.ipynb`, whose cells ran in a kernel that has ended."""
    kernel = start_kernel(tmp_path, notebook="Untitled.ipynb")
    for cell, source in SOURCES.items():
        assert kernel.run(source, metadata={"cellId": cell}).status == "ok"
    kernel.stop()
    write(tmp_path / "Untitled.ipynb", SOURCES)
    return tmp_path


def sessions(folder: Path) -> set[str]:
    return {path.name for path in (folder / ".ctxkernel").glob("*.sqlite")}


def test_a_renamed_notebook_finds_its_session(start_kernel, ran: Path):
    """One cell was edited since; the others are those that ran."""
    (ran / "Untitled.ipynb").unlink()
    write(ran / "study.ipynb", {**SOURCES, "c3": "total"})
    kernel = start_kernel(ran, notebook="study.ipynb")
    assert kernel.run("%ctx resume").status == "ok"
    assert kernel.evaluate("total") == "3"
    kernel.run("y = 1")
    assert sessions(ran) == {"study.sqlite"}


@pytest.mark.parametrize(("before", "after"), [(".", "sub"), ("sub", "."), ("a", "b"), ("sub/deep", ".")])
def test_a_notebook_that_is_moved_finds_its_session(start_kernel, tmp_path: Path, before: str, after: str):
    """To a folder below, above or beside; a session that is too far away is not looked for."""
    old, new = tmp_path / "all" / before, tmp_path / "all" / after
    for folder in (old, new):
        folder.mkdir(parents=True, exist_ok=True)
    kernel = start_kernel(old, notebook="study.ipynb")
    for cell, source in SOURCES.items():
        kernel.run(source, metadata={"cellId": cell})
    kernel.stop()
    write(new / "study.ipynb", SOURCES)

    kernel = start_kernel(new, notebook="study.ipynb")

    resumed = kernel.run("%ctx resume").status
    if before == "sub/deep":
        assert (resumed, sessions(old), sessions(new)) == ("error", {"study.sqlite"}, {"study.sqlite"})
    else:
        assert (resumed, sessions(old), sessions(new)) == ("ok", set(), {"study.sqlite"})
        assert kernel.evaluate("total") == "3"


def test_a_session_of_a_killed_kernel_follows_whole(start_kernel, tmp_path: Path):
    kernel = start_kernel(tmp_path, notebook="Untitled.ipynb")
    for cell, source in SOURCES.items():
        kernel.run(source, metadata={"cellId": cell})
    kernel.manager.shutdown_kernel(now=True)
    write(tmp_path / "study.ipynb", SOURCES)
    kernel = start_kernel(tmp_path, notebook="study.ipynb")
    assert kernel.run("%ctx resume").status == "ok"
    assert kernel.evaluate("total") == "3"


@pytest.mark.parametrize("case", ["a copy", "other cells", "cells that did not run", "a kernel uses it"])
def test_a_session_of_another_notebook_stays_where_it_is(start_kernel, ran: Path, case: str):
    if case != "a copy":
        (ran / "Untitled.ipynb").unlink()
    sources = {"c1": "import os", "c2": "os.getcwd()"} if case == "other cells" else SOURCES
    write(ran / "study.ipynb", sources, executed=case != "cells that did not run")
    if case == "a kernel uses it":
        start_kernel(ran, notebook="Untitled.ipynb").run("z = 1")
    kernel = start_kernel(ran, notebook="study.ipynb")
    kernel.run("y = 1")
    assert sessions(ran) == {"Untitled.sqlite", "study.sqlite"}
    assert "total = sum(x)" not in str(kernel.run("%ctx timeline").outputs)
