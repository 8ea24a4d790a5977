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


def test_a_copy_of_a_renamed_notebook_leaves_it_its_session(start_kernel, ran: Path):
    (ran / "Untitled.ipynb").rename(ran / "study.ipynb")
    kernel = start_kernel(ran, notebook="study.ipynb")
    assert kernel.run("%ctx resume").status == "ok"
    kernel.stop()
    write(ran / "study-Copy1.ipynb", SOURCES)

    kernel = start_kernel(ran, notebook="study-Copy1.ipynb")
    kernel.run("y = 1")

    assert sessions(ran) == {"study.sqlite", "study-Copy1.sqlite"}
    assert "total = sum(x)" not in str(kernel.run("%ctx timeline").outputs)


@pytest.mark.parametrize("first", ["the renamed one", "the new one"])
def test_a_notebook_that_gets_the_earlier_name_of_another_has_a_session_of_its_own(start_kernel, ran: Path, first: str):
    """As when JupyterLab calls the next new notebook `Untitled.ipynb` again, also while the first one's kernel runs."""
    kernels = {"study.ipynb": start_kernel(ran, notebook="Untitled.ipynb")}
    (ran / "Untitled.ipynb").rename(ran / "study.ipynb")
    write(ran / "Untitled.ipynb", {"n1": "mine = 7"}, executed=False)
    kernels["Untitled.ipynb"] = start_kernel(ran, notebook="Untitled.ipynb")
    kernels["Untitled.ipynb"].run("mine = 7", metadata={"cellId": "n1"})
    write(ran / "Untitled.ipynb", {"n1": "mine = 7"})
    for kernel in kernels.values():
        kernel.stop()

    names = ["study.ipynb", "Untitled.ipynb"]
    for name in names if first == "the renamed one" else reversed(names):
        kernels[name] = start_kernel(ran, notebook=name)
        assert kernels[name].run("%ctx resume").status == "ok"

    assert kernels["study.ipynb"].evaluate("total") == "3"
    assert kernels["Untitled.ipynb"].evaluate("mine") == "7"
    assert sessions(ran) == {"study.sqlite", "Untitled.sqlite"}


def test_a_new_notebook_is_offered_no_session_of_one_that_had_its_name(start_kernel, ran: Path):
    """And the other one still has it."""
    (ran / "Untitled.ipynb").rename(ran / "study.ipynb")
    write(ran / "Untitled.ipynb", {"n1": ""}, executed=False)
    new = start_kernel(ran, notebook="Untitled.ipynb")
    assert new.run("%ctx resume").status == "error"
    new.run("mine = 7", metadata={"cellId": "n1"})

    kernel = start_kernel(ran, notebook="study.ipynb")

    assert kernel.run("%ctx resume").status == "ok"
    assert kernel.evaluate("total") == "3"


@pytest.mark.parametrize("change", ["other ids", "no cell ran", "other cells"])
def test_a_notebook_keeps_its_session_where_no_other_has_its_cells(start_kernel, ran: Path, change: str):
    sources = {f"n{cell}": source for cell, source in SOURCES.items()} if change == "other ids" else SOURCES
    if change == "other cells":
        sources = {"n1": "import os"}
    else:
        write(ran / "copy.ipynb", SOURCES)
    write(ran / "Untitled.ipynb", sources, executed=change != "no cell ran")
    kernel = start_kernel(ran, notebook="Untitled.ipynb")
    assert kernel.run("%ctx resume").status == "ok"
    assert kernel.evaluate("total") == "3"
    assert sessions(ran) == {"Untitled.sqlite"}


def test_a_session_that_cannot_follow_its_notebook_is_told_and_left_as_it_is(start_kernel, ran: Path):
    """There is a file where the notebook's new folder should have one for sessions."""
    (ran / "Untitled.ipynb").unlink()
    (folder := ran / "new").mkdir()
    (folder / ".ctxkernel").touch()
    write(folder / "study.ipynb", SOURCES)

    kernel = start_kernel(folder, notebook="study.ipynb")

    told = "the session that study.ipynb had under an earlier name or in another folder could not be taken over"
    assert told in kernel.run("x = 1").stderr
    assert told in kernel.run("%ctx status").data[-1]["text/plain"]
    assert sessions(ran) == {"Untitled.sqlite"}


def test_an_empty_file_is_opened_as_a_new_notebook_without_a_word(start_kernel, ran: Path):
    (ran / "new.ipynb").touch()
    assert start_kernel(ran, notebook="new.ipynb").run("x = 1").stderr == ""
