"""Notebooks without a front end: nbclient, nbconvert and papermill, on our kernel and on a stock one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from ctxkernel.store.log.session import SessionReader
from ctxkernel.testing import MessagesServer, call, say

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
    "ctxkernel": ["-m", "ctxkernel", "run", "in.ipynb", "--output", "out.ipynb"],
}


def execute(folder: Path, environ: dict[str, str], tool: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *TOOLS[tool]]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize("kernel", ["ctxkernel", "python3"])
@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != "ctxkernel"])
def test_a_notebook_runs_headless_and_leaves_its_timeline(desk, tool, kernel):
    folder, environ = desk
    cells = CELLS if kernel == "ctxkernel" else ["%load_ext ctxkernel", *CELLS]
    write(folder / "in.ipynb", kernel, cells)

    done = execute(folder, environ, tool)

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


# -- asks ----------------------------------------------------------------------------------------------

ASKS = ["n = 20", "%%ask\ndouble n, then add two", "print('after', n)"]


@contextlib.contextmanager
def model(environ: dict[str, str], **more: str) -> Iterator[tuple[MessagesServer, dict[str, str]]]:
    """A strict server that answers the ask of `ASKS`, and the environment in which it is found."""
    run = call("run_cell", {"code": "n = n * 2\nprint(n)\nn + 2"})
    with MessagesServer([[say("I double it."), run], say("It is **42**.")]) as server:
        yield server, {**environ, "ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "any", **more}


@pytest.mark.parametrize("tool", TOOLS)
def test_an_ask_that_would_wait_for_a_yes_fails_at_once_and_says_what_to_do(desk, tool):
    folder, environ = desk
    write(folder / "in.ipynb", "ctxkernel", ASKS)
    with model(environ) as (server, given):
        done = execute(folder, given, tool)

    assert done.returncode != 0
    assert "CTXKERNEL_MODE=auto" in done.stderr
    assert "%ctx record" in done.stderr
    assert server.requests == []
    if tool == "ctxkernel":
        assert done.returncode == 1
        assert "Cell 2 asks the model" in done.stderr
        assert "Waiting" not in done.stderr


@pytest.mark.parametrize(("tool", "kernel"), [*((tool, "ctxkernel") for tool in TOOLS), ("nbclient", "python3")])
def test_in_mode_auto_an_ask_is_answered_and_the_saved_notebook_needs_no_kernel(desk, tool, kernel):
    folder, environ = desk
    write(folder / "in.ipynb", kernel, ASKS if kernel == "ctxkernel" else ["%load_ext ctxkernel", *ASKS])
    with model(environ, CTXKERNEL_MODE="auto") as (server, given):
        done = execute(folder, given, tool)

    assert done.returncode == 0, done.stderr[-2000:]
    assert server.faults == []
    assert len(server.requests) == 2
    out = nbformat.read(folder / "out.ipynb", 4)
    nbformat.validate(out)
    ask, after = [cell for cell in out.cells if cell.cell_type == "code"][-2:]
    data = [output.data for output in ask.outputs if "data" in output]
    assert all("text/plain" in one for one in data)
    markdown = "\n".join(one.get("text/markdown", "") for one in data)
    assert "I double it." in markdown
    assert "n = n * 2" in markdown
    assert "It is **42**." in markdown
    assert [output.text for output in ask.outputs if output.output_type == "stream"] == ["40\n"]
    assert [output.data["text/plain"] for output in ask.outputs if output.output_type == "execute_result"] == ["42"]
    assert after.outputs[0].text == "after 40\n"
    [session] = (folder / ".ctxkernel").glob("*.sqlite")
    with SessionReader(session) as reader:
        statements = reader.timeline()["statements"]
    assert [one["author"] for one in statements][-5:] == ["human", "model", "model", "model", "human"]
