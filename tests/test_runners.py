"""Notebooks that a runner executes: the session's name, its place, and the way back from every notebook to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from ctxkernel.cli import main
from ctxkernel.kernel.execution import parent_process
from ctxkernel.store.log.executed import find_run
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.log.runners import RunnerCommand, program_name, run_notebook, runner_command

PYTHON = "/opt/venv/bin/python3.12"
COMMANDS = {
    ("papermill", "in.ipynb", "out.ipynb", "-p", "data", "x.ipynb"): ("papermill", "in.ipynb", "out.ipynb"),
    ("papermill", "-p", "a", "1", "--log-output", "in.ipynb", "-k", "x", "o.ipynb"): (
        "papermill",
        "in.ipynb",
        "o.ipynb",
    ),
    (PYTHON, "/opt/venv/bin/papermill", "in.ipynb"): ("papermill", "in.ipynb", ""),
    (PYTHON, "-W", "ignore", "-m", "papermill", "in.ipynb", "-"): ("papermill", "in.ipynb", ""),
    ("papermill", "--prepare-only", "in.ipynb", "out.ipynb"): None,
    ("jupyter-nbconvert", "--to", "html", "--execute", "a/in.ipynb"): ("nbconvert", "a/in.ipynb", ""),
    ("jupyter", "nbconvert", "--to=notebook", "--execute", "in.ipynb"): ("nbconvert", "in.ipynb", "in.nbconvert.ipynb"),
    ("jupyter-nbconvert", "--execute", "--inplace", "in.ipynb"): ("nbconvert", "in.ipynb", "in.ipynb"),
    ("jupyter-nbconvert", "--execute", "--to", "notebook", "in.ipynb", "--output", "b", "--output-dir", "d"): (
        ("nbconvert", "in.ipynb", "d/b.ipynb")
    ),
    ("jupyter-nbconvert", "--execute", "a.ipynb", "b.ipynb"): None,
    (PYTHON, "-m", "nbclient", "in"): ("jupyter execute", "in.ipynb", ""),
    ("jupyter-execute", "--allow-errors", "d/in.ipynb", "--output={notebook_name}_ran"): (
        ("jupyter execute", "d/in.ipynb", "d/in_ran.ipynb")
    ),
    ("jupytext", "--to", "ipynb", "--execute", "study.py"): ("jupytext", "study.py", "study.ipynb"),
    ("jupytext", "--to", "ipynb", "study.py"): None,
    (PYTHON, "-c", "import papermill", "in.ipynb"): None,
    (PYTHON, "pipeline.py", "in.ipynb", "out.ipynb"): None,
    ("jupyter-lab", "in.ipynb"): None,
    (): None,
}


@pytest.mark.parametrize("words", COMMANDS)
def test_the_command_of_a_runner_says_which_notebook_it_executes(words):
    expected = COMMANDS[words]
    assert runner_command(words) == (RunnerCommand(*expected) if expected else None)


@given(
    st.lists(st.text(max_size=8) | st.sampled_from(["papermill", "-m", "jupyter", "nbconvert", "--", "-p", "a.ipynb"]))
)
def test_any_command_line_gives_a_notebook_or_none(words: list[str]):
    found = runner_command(words)
    assert (
        found is None
        or found.source in [*words, *(f"{word}.ipynb" for word in words)]
        or found.source.endswith(".ipynb")
    )


def test_a_relative_notebook_is_looked_for_where_the_shell_was(tmp_path: Path):
    """papermill has changed its folder (--cwd) when it starts the kernel."""
    (tmp_path / "in.ipynb").touch()
    (tmp_path / "elsewhere").mkdir()
    command = (["papermill", "in.ipynb", "runs/out.ipynb"], str(tmp_path / "elsewhere"))

    found = run_notebook([command], {"PWD": str(tmp_path)}, tmp_path / "elsewhere")

    assert found is not None
    assert found.path == tmp_path / "runs" / "out.ipynb"
    assert found.facts == {"runner": "papermill", "source": os.path.join("..", "in.ipynb")}


def test_a_remote_notebook_has_its_session_in_the_working_directory(tmp_path: Path):
    command = (["papermill", "s3://bucket/in.ipynb", "s3://bucket/run/out.ipynb"], str(tmp_path))
    found = run_notebook([command], {}, tmp_path)
    assert found is not None
    assert (found.path, found.source) == (tmp_path / "out.ipynb", tmp_path / "in.ipynb")


def test_the_programs_above_a_process_are_read_by_every_way(monkeypatch: pytest.MonkeyPatch):
    """Linux has /proc; elsewhere psutil knows, or `ps`."""
    monkeypatch.setattr(sys, "argv", ["kernel", "-f", "no-such-connection.json"])
    expected = parent_process.parent_commands()
    assert len(expected) == 1
    assert list(islice(parent_process._from_elsewhere(), 1)) == expected
    [(words, folder, pid)] = islice(parent_process._from_ps(), 1)
    assert (" ".join(words), folder, pid) == (" ".join(" ".join(expected[0].words).split()), "", os.getppid())
    assert parent_process.has_variable(expected[0], "PATH", os.environ["PATH"])
    assert not parent_process.has_variable(expected[0], "PATH", "/nowhere")


# -- real runners ------------------------------------------------------------------------------------------


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, str]]:
    """A folder with a notebook that has parameters, and an environment in which `ctxkernel` is a kernelspec.

    No other test has a session there: a notebook without one is looked for in all of them.
    """
    monkeypatch.setenv("CTXKERNEL_HOME", str(tmp_path / "home"))
    spec = tmp_path / "share" / "kernels" / "ctxkernel"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ctxkernel.kernel", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "ctxkernel", "language": "python"}))
    folder = tmp_path / "work"
    folder.mkdir()
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# Study"),
            new_code_cell("alpha = 1", metadata={"tags": ["parameters"]}, id="given"),
            new_code_cell("print(alpha + 1)", metadata={"tags": ["report", "ctx-differs"]}, id="sum"),
        ]
    )
    notebook.metadata["kernelspec"] = {"name": "ctxkernel", "display_name": "ctxkernel", "language": "python"}
    nbformat.write(notebook, folder / "in.ipynb")
    (folder / "runs").mkdir()
    monkeypatch.chdir(folder)
    environ = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    # A runner that is started in a terminal of JupyterLab inherits the name of the notebook there.
    environ |= {"JUPYTER_PATH": str(tmp_path / "share"), "JPY_SESSION_NAME": str(folder / "outer.ipynb")}
    return folder, environ


def execute(desk, *words: str) -> None:
    folder, environ = desk
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def statements(session: Path) -> list[dict]:
    with SessionReader(session) as reader:
        return reader.timeline()["statements"]


def test_papermill_gives_each_output_a_session_with_its_parameters(
    desk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")  # the columns of times are wider where the machine is slow
    folder, _ = desk
    execute(desk, "-m", "papermill", "in.ipynb", "runs/out.ipynb", "-p", "alpha", "5")

    made = statements(folder / "runs" / ".ctxkernel" / "out.sqlite")

    assert [(one["kind"], one["tags"]) for one in made] == [
        ("parameters", {"cell_tags": ["parameters"]}),
        ("injected-parameters", {"cell_tags": ["injected-parameters"]}),
        ("python", {"differs": True, "cell_tags": ["report", "ctx-differs"]}),
    ]
    out = [cell.id for cell in nbformat.read(folder / "runs" / "out.ipynb", 4).cells if cell.cell_type == "code"]
    assert [one["cell_id"] for one in made] == out
    for notebook in ("runs/out.ipynb", "in.ipynb"):
        assert main(["timeline", notebook]) == 0
        shown = capsys.readouterr()
        assert "injected-parameters: alpha = 5" in shown.out
        assert ("executed into out.ipynb" in shown.err) == (notebook == "in.ipynb")


def test_nbconvert_and_jupyter_execute_name_the_session_after_the_notebook(desk, capsys: pytest.CaptureFixture[str]):
    folder, _ = desk
    execute(desk, "-m", "nbconvert", "--to", "notebook", "--execute", "in.ipynb", "--output", "done")
    execute(desk, "-m", "jupyter", "execute", "in.ipynb")

    assert [one["cell_id"] for one in statements(folder / ".ctxkernel" / "done.sqlite")] == ["given", "sum"]
    assert [one["kind"] for one in statements(folder / ".ctxkernel" / "in.sqlite")] == ["parameters", "python"]
    for notebook in ("done.ipynb", "in.ipynb"):
        assert main(["timeline", notebook]) == 0
        assert "print(alpha + 1)" in capsys.readouterr().out


def test_the_output_of_a_run_leads_to_the_session_of_its_notebook(desk, capsys: pytest.CaptureFixture[str]):
    """So does a copy of it, by the times of its cells; another notebook with the same cells does not."""
    folder, _ = desk
    execute(desk, "-m", "ctxkernel", "run", "in.ipynb", "--output", "done.ipynb")

    assert main(["timeline", "done.ipynb"]) == 0
    shown = capsys.readouterr()
    assert "print(alpha + 1)" in shown.out
    assert "executed: " in shown.err
    assert str(folder / ".ctxkernel" / "in.sqlite") in shown.err
    same = nbformat.read(folder / "done.ipynb", 4)
    for cell in same.cells:
        cell.metadata.pop("execution", None)
    nbformat.write(same, folder / "same.ipynb")
    assert main(["timeline", "same.ipynb"]) == 1


PROGRAMS = {
    (PYTHON, "/home/me/pipeline.py", "in.ipynb"): "pipeline.program",
    (PYTHON, "-X", "dev", "-m", "flows.nightly"): "flows.nightly.program",
    (PYTHON, "/opt/venv/bin/pytest", "-q"): "pytest.program",
    (PYTHON, "-c", "import papermill"): "python.program",
    (PYTHON, "-"): "python.program",
    (PYTHON,): "python.program",
    (PYTHON, "/opt/venv/bin/jupyter-console", "--kernel", "ctxkernel"): None,
    (PYTHON, "/opt/venv/bin/jupyterhub-singleuser"): None,
    (PYTHON, "-m", "jupyterlab"): None,
    (PYTHON, "-m", "notebook"): None,
    (PYTHON, "/opt/venv/bin/ctxkernel", "run", "in.ipynb"): None,
    (PYTHON, "/opt/venv/bin/spyder"): None,
    ("/usr/share/code/code", "--type=utility"): None,
    (): None,
}


@pytest.mark.parametrize("words", PROGRAMS)
def test_a_session_without_a_notebook_is_named_after_the_program_that_started_the_kernel(words):
    """A console and a server's kernel keep the name `console`."""
    assert program_name(words) == PROGRAMS[words]


PROGRAM = """
import nbformat, nbclient, papermill, os
nb = nbformat.read("in.ipynb", 4)
nbclient.NotebookClient(nb).execute()
nbformat.write(nb, "client.ipynb")
for alpha in (7, 8):
    papermill.execute_notebook("in.ipynb", f"runs/p{alpha}.ipynb", parameters={"alpha": alpha}, progress_bar=False)
"""


def test_a_notebook_that_a_program_executes_is_found_by_its_cells(desk, capsys: pytest.CaptureFixture[str]):
    """The kernel is told no name: the three runs are kernel starts of one session, that of the program."""
    folder, _ = desk
    (folder / "pipeline.py").write_text(PROGRAM)
    execute(desk, "pipeline.py")
    assert [one.name for one in (folder / ".ctxkernel").glob("*.sqlite")] == ["pipeline.program.sqlite"]

    found: dict[str, list[str]] = {}
    kinds: dict[str, list[str]] = {}
    for notebook in ("client.ipynb", "runs/p7.ipynb", "runs/p8.ipynb"):
        assert main(["timeline", notebook, "--json"]) == 0
        listed = json.loads(capsys.readouterr().out)["statements"]
        found[notebook] = [one["source"] for one in listed]
        kinds[notebook] = [one["kind"] for one in listed]

    assert found["client.ipynb"] == ["alpha = 1", "print(alpha + 1)"]
    assert found["runs/p7.ipynb"] == ["alpha = 1", "# Parameters\nalpha = 7\n", "print(alpha + 1)"]
    assert found["runs/p8.ipynb"] == ["alpha = 1", "# Parameters\nalpha = 8\n", "print(alpha + 1)"]
    assert kinds["client.ipynb"] == ["parameters", "python"]
    assert kinds["runs/p7.ipynb"] == ["parameters", "injected-parameters", "python"]
    assert main(["goto", "client.ipynb", "1"]) == 1
    assert "earlier kernel start" in capsys.readouterr().err
    other = new_notebook(cells=[new_code_cell("alpha = 1", execution_count=1), new_code_cell("no", execution_count=2)])
    nbformat.write(other, folder / "other.ipynb")
    assert find_run(folder / "other.ipynb", {}, folder) is None
    assert main(["timeline", "other.ipynb"]) == 1


TOGETHER = """
import asyncio, nbformat, nbclient
BEGAN = "import pathlib, time\\npathlib.Path('began{}').touch()\\n"
WAIT = BEGAN + "while len(list(pathlib.Path().glob('began*'))) < 3: time.sleep(.1)"
async def main():
    books = [nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WAIT.format(n))]) for n in range(3)]
    kernels = [nbclient.NotebookClient(book, kernel_name="ctxkernel", timeout=90) for book in books]
    await asyncio.gather(*(kernel.async_execute() for kernel in kernels))
    for n, book in enumerate(books):
        nbformat.write(book, f"{n}.ipynb")
asyncio.run(main())
"""


def test_kernels_of_a_program_at_one_time_have_sessions_of_their_own(desk, capsys: pytest.CaptureFixture[str]):
    folder, _ = desk
    (folder / "together.py").write_text(TOGETHER)
    execute(desk, "together.py")

    made = {one.name for one in (folder / ".ctxkernel").glob("*.sqlite")}
    assert made == {f"together.program{end}.sqlite" for end in ("", "-2", "-3")}
    for n in range(3):
        assert main(["timeline", f"{n}.ipynb", "--json"]) == 0
        [statement] = json.loads(capsys.readouterr().out)["statements"]
        assert f"began{n}" in statement["source"]
