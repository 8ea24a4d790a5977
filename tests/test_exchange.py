"""A session as a notebook and a notebook as a session: nothing that both can hold is lost on the way."""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from command_line import ctxkernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels import RunningKernel
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from scale import examples

from ctxkernel.cli import main
from ctxkernel.cli.notebook_files import read_notebook
from ctxkernel.core.timeline import Artifact, ExceptionInfo, Execution, Statement
from ctxkernel.core.turn_values import TurnResult
from ctxkernel.export import BranchNotebook, import_notebook, notebook_text
from ctxkernel.export import imports as limits
from ctxkernel.projection.masker import Masker
from ctxkernel.store.log.session import SessionReader, SessionStore
from ctxkernel.testing import MessagesServer, call, say

# -- any notebook ------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
WORD = st.text("abcdefgh-_", min_size=1, max_size=10)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(200)).decode()
PLAIN_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(WORD.filter(lambda word: word not in ("id", "name")), PLAIN_JSON, max_size=3)
BUNDLE = st.fixed_dictionaries(
    {},
    optional={
        "text/plain": TEXT,
        "text/html": TEXT,
        "text/markdown": TEXT,
        "image/png": st.just(PNG),
        "image/svg+xml": st.just("<svg/>"),
        "application/json": PLAIN_JSON,
        "application/vnd.plotly.v1+json": st.dictionaries(WORD, PLAIN_JSON, max_size=2),
        "application/vnd.jupyter.widget-view+json": st.just({"model_id": "m", "version_major": 2}),
        "application/javascript": st.just("alert(1)"),
    },
)
OUTPUT = st.one_of(
    st.builds(
        lambda name, text: {"output_type": "stream", "name": name, "text": text},
        st.sampled_from(["stdout", "stderr"]),
        TEXT,
    ),
    st.builds(lambda data, about: {"output_type": "display_data", "data": data, "metadata": about}, BUNDLE, METADATA),
    st.builds(
        lambda data, about, count: {
            "output_type": "execute_result",
            "data": data,
            "metadata": about,
            "execution_count": count,
        },
        BUNDLE,
        METADATA,
        st.none() | st.integers(0, 999),
    ),
    st.builds(
        lambda name, value, lines: {"output_type": "error", "ename": name, "evalue": value, "traceback": lines},
        WORD,
        TEXT,
        st.lists(TEXT | st.just("\x1b[31mTraceback\x1b[0m"), max_size=4),
    ),
)
TAGS = st.lists(
    st.sampled_from(["parameters", "injected-parameters", "raises-exception", "ctx-differs", "own"]), unique=True
)
ATTACHMENTS = st.dictionaries(WORD, st.just({"image/png": PNG}), max_size=2)


def with_tags(metadata: dict[str, Any], tags: list[str]) -> dict[str, Any]:
    return {**metadata, "tags": tags} if tags else metadata


CODE = st.builds(
    lambda source, about, tags, outputs, count: {
        "cell_type": "code",
        "source": source,
        "metadata": with_tags(about, tags),
        "outputs": outputs,
        "execution_count": count,
    },
    TEXT | st.just("x = 1\nprint(x)"),
    METADATA,
    TAGS,
    st.lists(OUTPUT, max_size=4),
    st.none() | st.integers(0, 999),
)
MARKDOWN = st.builds(
    lambda source, about, files: {
        "cell_type": "markdown",
        "source": source,
        "metadata": about,
        **({"attachments": files} if files else {}),
    },
    TEXT,
    METADATA,
    ATTACHMENTS,
)
RAW = st.builds(lambda source, about: {"cell_type": "raw", "source": source, "metadata": about}, TEXT, METADATA)


@st.composite
def notebooks(draw: st.DrawFn) -> dict[str, Any]:
    """Any notebook of the formats 4.0 to 4.5."""
    minor = draw(st.integers(0, 5))
    cells = draw(st.lists(CODE | MARKDOWN | RAW, max_size=6))
    for number, cell in enumerate(cells):
        if minor == 5:
            cell["id"] = f"{draw(WORD)}-{number}"
        if minor == 0:
            cell.pop("attachments", None)
    return {"nbformat": 4, "nbformat_minor": minor, "metadata": draw(METADATA), "cells": cells}


def imported(notebook: dict[str, Any], folder: Path, number: int) -> Path:
    path = folder / f"n{number}.ipynb"
    path.write_text(json.dumps(notebook))
    made = import_notebook(
        json.loads(json.dumps(read_notebook(path))),
        folder / f"n{number}.sqlite",
        name=path.name,
        environment={},
        masker=Masker(),
        named=True,
    )
    assert made.left_out == []
    return made.session


def exported(session: Path) -> dict[str, Any]:
    with SessionReader(session) as reader:
        made = BranchNotebook(reader, Masker())
        notebook = made.build(None)
    assert made.left_out == []
    return json.loads(notebook_text(notebook))


def as_lines(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook as Jupyter writes it."""
    return json.loads(nbformat.v4.writes(nbformat.from_dict(json.loads(json.dumps(notebook)))))


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(notebook=notebooks())
def test_a_notebook_comes_back_from_a_session_as_it_was(notebook: dict[str, Any], tmp_path: Path):
    number = len(list(tmp_path.iterdir()))
    session = imported(notebook, tmp_path, number)
    back = exported(session)

    nbformat.validate(back)
    assert back == as_lines(notebook)
    assert exported(imported(back, tmp_path, number + 1)) == back
    with SessionReader(session) as reader:
        runs = [(statement, run) for statement, made in reader.statements() for run in made]
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and cell["source"].strip()]
    assert [statement.source for statement, _ in runs] == [cell["source"] for cell in code]
    assert {run.status for _, run in runs} <= {"imported"}
    assert [statement.tags.get("cell_tags", []) for statement, _ in runs] == [
        cell["metadata"].get("tags", []) for cell in code
    ]


# -- any session ---------------------------------------------------------------------------------------------


@st.composite
def sessions(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The executions of a tree, each with its parent, cell and outcome."""
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 6))):
        order = [[name, len(text), ""] for name, text in draw(st.lists(st.tuples(STREAM, TEXT), max_size=3))]
        displays = draw(st.lists(BUNDLE, max_size=2))
        made.append(
            {
                "parent": draw(st.none() | st.integers(0, number - 1)) if number else None,
                "source": draw(TEXT.filter(str.strip)),
                "cell": draw(st.sampled_from([None, "a", "b", "not/valid id", "a@3"])),
                "kind": draw(st.sampled_from(["python", "parameters", "meta"])),
                "author": draw(st.sampled_from(["human", "model", "agent", "panel"])),
                "status": draw(st.sampled_from(["ok", "error", "cancelled", "timeout"])),
                "stdout": draw(TEXT),
                "stderr": draw(TEXT),
                "displays": displays,
                "order": order,
                "error": draw(st.booleans()),
            }
        )
    return made


STREAM = st.sampled_from(["stdout", "stderr"])


def stored(runs: list[dict[str, Any]], path: Path) -> list[str]:
    """Write a session with these executions; return their ids."""
    store = SessionStore.open(path, named=True)
    ids: list[str] = []
    for index, run in enumerate(runs, 1):
        parent = ids[run["parent"]] if run["parent"] is not None else None
        statement = Statement(
            f"s{index}", index, float(index), run["source"], run["kind"], run["author"], None, run["cell"]
        )
        running = Execution(f"s{index}.1", f"s{index}", parent, float(index))
        artifacts = [
            Artifact("display", f"out{n}", mime, 1, "", data)
            for n, bundle in enumerate(run["displays"], 1)
            for mime, data in bundle.items()
        ]
        artifacts += [Artifact("order", "outputs", "application/json", 1, "", run["order"])] if run["order"] else []
        fault = ExceptionInfo("ValueError", "wrong", "line 1\nline 2") if run["error"] else None
        texts = {name: run[name] for name in ("stdout", "stderr")}
        ended = replace(
            running, ended_at=index + 0.5, status=run["status"], artifacts=tuple(artifacts), exception=fault, **texts
        )
        assert store.begin(statement, running) is None
        assert store.end(TurnResult(index, statement, ended, (), (), ())) is None
        ids.append(running.execution_id)
    store.close()
    return ids


def is_cell(statement: Statement) -> bool:
    """Return whether a statement is a cell: no gesture of the panel, and of commands only those that a person typed."""
    return statement.author == "human" if statement.kind == "meta" else statement.author != "panel"


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(runs=sessions(), data=st.data())
def test_any_branch_of_any_session_is_a_notebook_that_comes_back(runs, data: st.DataObject, tmp_path: Path):
    number = len(list(tmp_path.iterdir()))
    session = tmp_path / f"r{number}.sqlite"
    ids = stored(runs, session)
    leaf = data.draw(st.sampled_from(ids))
    with SessionReader(session) as reader:
        made = BranchNotebook(reader, Masker())
        first = json.loads(notebook_text(made.build(None, leaf)))
        path = reader.log().path(leaf)
    nbformat.validate(first)
    newest = {run[0].cell_id or run[0].statement_id: run for run in path if is_cell(run[0])}
    assert sorted("".join(cell["source"]) for cell in first["cells"]) == sorted(
        run[0].source for run in newest.values()
    )

    second = exported(imported(first, tmp_path, number + 1))

    assert second == first


# -- a session that ran --------------------------------------------------------------------------------------


FIRST = "x = 1\nprint('one')"
CELLS = {
    "a": FIRST,
    "b": "from IPython.display import display, HTML\ndisplay(HTML('<b>bold</b>'))\nprint('after')\nx + 1",
    "c": "password = 'hunter2-correct-horse-battery'; print(password)",
    "d": "1 / 0",
    "gone": "'this cell was deleted'",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook with a session of two branches: `x = 2` follows the state after the second cell."""
    folder = tmp_path_factory.mktemp("ran")
    path = folder / "study.ipynb"
    cells = [new_markdown_cell("# Study", id="title", attachments={"i.png": {"image/png": PNG}})]
    cells += [new_code_cell(text, id=name) for name, text in CELLS.items() if name != "gone"]
    cells[1].metadata["tags"] = ["parameters"]
    cells.append(new_code_cell("never = 'ran'", id="never"))
    nbformat.write(new_notebook(cells=cells), path)
    environ = {**os.environ, "JPY_SESSION_NAME": str(path)}
    run_cells(path, environ, [*((name, text) for name, text in CELLS.items()), ("", "%ctx goto 2"), ("e", "x = 2\nx")])
    return path


def run_cells(path: Path, environ: dict[str, str], cells: list[tuple[str, str]]) -> None:
    from jupyter_client.manager import KernelManager
    from kernels import _ThisInterpreter

    manager = KernelManager(kernel_name="x", kernel_spec_manager=_ThisInterpreter())
    manager.start_kernel(env=environ, cwd=str(path.parent))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready()
    kernel = RunningKernel(manager, client, path.parent)
    try:
        for name, text in cells:
            metadata = (
                {"cellId": name, "tags": ["parameters"] if text == FIRST else []}
                if name
                else {"ctxkernel": {"kind": "meta"}}
            )
            kernel.run(text, metadata=metadata, **({} if name else {"store_history": False}))
    finally:
        kernel.stop()


def sources(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, 4).cells]


def test_head_is_exported_with_outputs_authors_and_the_texts_of_the_notebook(ran: Path, tmp_path: Path):
    out = tmp_path / "out.ipynb"
    assert main(["export", str(ran), "--ipynb", "--output", str(out)]) == 0

    made = nbformat.read(out, 4)

    nbformat.validate(made)
    cells = {cell.id: cell for cell in made.cells}
    assert list(cells) == ["title", "a", "b", "e", "c", "d", "never"]
    assert cells["title"].attachments == {"i.png": {"image/png": PNG}}
    assert [one.output_type for one in cells["b"].outputs] == ["display_data", "stream", "execute_result"]
    assert [cell.get("execution_count") for cell in made.cells] == [None, 1, 2, 3, None, None, None]
    assert cells["c"].outputs == cells["never"].outputs == [], "they did not run on this branch"
    run = cells["a"].metadata.ctxkernel.run
    assert (run.execution, run.author, run.status) == ("s1.1", "human", "ok")
    assert cells["a"].metadata.tags == ["parameters"]
    assert made.metadata.ctxkernel.export.branch == cells["e"].metadata.ctxkernel.run.execution
    again = tmp_path / "again.ipynb"
    main(["export", str(ran), "--output", str(again)])
    assert again.read_bytes() == out.read_bytes(), "the same branch gives the same bytes"


def test_another_branch_is_exported_by_its_statement(ran: Path, tmp_path: Path):
    out = tmp_path / "out.ipynb"
    assert main(["export", str(ran), "--branch", "5", "--output", str(out)]) == 0

    made = nbformat.read(out, 4)

    cells = {cell.id: cell for cell in made.cells}
    assert list(cells) == ["title", "a", "b", "c", "d", "gone", "never"]
    assert cells["d"].outputs[0].ename == "ZeroDivisionError"
    assert "hunter2" not in out.read_text()
    page = tmp_path / "out.html"
    assert main(["export", str(ran), "--html", "--branch", "5", "--output", str(page)]) == 0
    assert '"head":"s5.1"' in page.read_text()


def test_an_unknown_branch_and_a_missing_output_are_refused(ran: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["export", str(ran), "--ipynb"]) == 2
    assert "--output FILE" in capsys.readouterr().err
    assert main(["export", str(ran), "--ipynb", "--branch", "99", "--output", "never.ipynb"]) == 2
    assert "there is no statement 99" in capsys.readouterr().err
    assert not Path("never.ipynb").exists()


def test_a_session_comes_back_from_its_notebook(ran: Path, tmp_path: Path):
    """session → ipynb → session → ipynb: the second notebook is the first."""
    first, second = tmp_path / "first.ipynb", tmp_path / "second.ipynb"
    main(["export", str(ran), "--branch", "5", "--output", str(first)])

    assert main(["import", str(first)]) == 0
    assert main(["export", str(first), "--output", str(second)]) == 0

    assert second.read_bytes() == first.read_bytes()
    with SessionReader(tmp_path / ".ctxkernel" / "first.sqlite") as reader:
        made = reader.statements()
    assert [one.cell_id for one, _ in made] == ["a", "b", "c", "d", "gone", "never"]
    assert made[0][0].kind == "parameters"
    assert made[3][1][0].exception.type == "ZeroDivisionError"


def test_other_tools_handle_the_metadata(ran: Path, tmp_path: Path):
    """nbstripout removes it by its name, and nbdime sees no other difference between two exports."""
    one, two = tmp_path / "one.ipynb", tmp_path / "two.ipynb"
    main(["export", str(ran), "--branch", "2", "--output", str(one)])
    notebook = nbformat.read(one, 4)
    for cell in notebook.cells:
        if "ctxkernel" in cell.metadata:
            cell.metadata.ctxkernel.run["ms"] = 99.0
    nbformat.write(notebook, two)

    def run_tool(*words: str) -> str:
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "ms" in run_tool("nbdime", "diff", str(one), str(two))
    assert run_tool("nbdime", "diff", "--ignore-metadata", str(one), str(two)).strip() == ""
    run_tool("nbstripout", "--extra-keys", "metadata.ctxkernel cell.metadata.ctxkernel", str(one))
    assert "ctxkernel" not in one.read_text()
    assert sources(one) == sources(two)
    nbformat.validate(nbformat.read(one, 4))


def test_cells_and_texts_of_a_model_are_exported_with_author_and_receipt(tmp_path: Path):
    run = call("run_cell", {"code": "n = n * 2\nprint(n)"})
    path = tmp_path / "asked.ipynb"
    cells = [new_code_cell("n = 20", id="a"), new_code_cell("%%ask\ndouble n", id="b"), new_code_cell("n", id="c")]
    nbformat.write(new_notebook(cells=cells), path)
    with MessagesServer([[say("I double it."), run], say("It is **40**.")]) as server:
        environ = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "any", "CTXKERNEL_MODE": "auto"}
        done = ctxkernel("run", path, env=environ)
        assert done.returncode == 0, done.stderr

    assert main(["export", str(path), "--output", str(tmp_path / "out.ipynb")]) == 0

    made = nbformat.read(tmp_path / "out.ipynb", 4)
    nbformat.validate(made)
    runs = [cell.metadata.get("ctxkernel", {}).get("run", {}) for cell in made.cells]
    assert [(cell.cell_type, cell.source) for cell in made.cells] == [
        ("code", "n = 20"),
        ("code", "%%ask\ndouble n"),
        ("markdown", "I double it."),
        ("code", "n = n * 2\nprint(n)"),
        ("markdown", "It is **40**."),
        ("code", "n"),
    ]
    assert [one["author"] for one in runs] == ["human", "human", "model", "model", "model", "human"]
    receipts = runs[1]["receipts"]
    assert len(receipts) == 2
    assert runs[3]["receipt"] == receipts[0]
    assert runs[4]["receipt"] == receipts[1]
    assert main(["import", str(tmp_path / "out.ipynb")]) == 0
    main(["export", str(tmp_path / "out.ipynb"), "--output", str(tmp_path / "again.ipynb")])
    assert (tmp_path / "again.ipynb").read_bytes() == (tmp_path / "out.ipynb").read_bytes()


# -- an imported notebook --------------------------------------------------------------------------------------


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    """A stranger's notebook that ran elsewhere."""
    cells = [
        new_markdown_cell("# <img src=x onerror=alert(1)>"),
        new_code_cell("n = 20", execution_count=1, metadata={"trusted": True}),
        new_code_cell("print(n)\nn + 1", execution_count=2, metadata={"ctxkernel": {"run": {"author": "model"}}}),
        new_code_cell("n * 2", execution_count=3),
    ]
    cells[2].outputs = [
        new_output("stream", text="20\n"),
        new_output("execute_result", {"text/plain": "21"}, execution_count=2),
    ]
    cells[3].outputs = [new_output("execute_result", {"text/plain": "41"}, execution_count=3)]
    path = tmp_path / "strange.ipynb"
    path.write_text(json.dumps({**new_notebook(cells=cells), "metadata": {"signature": "sha256:forged"}}))
    return path


def test_the_commands_that_an_import_names_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A path with a space is quoted."""
    path = tmp_path / "my study.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")]), path)
    assert main(["import", str(path)]) == 0
    [line] = [one for one in capsys.readouterr().err.splitlines() if one.startswith("  ctxkernel timeline")]
    assert main(shlex.split(line.split("   ")[0])[1:]) == 0


def test_an_imported_session_says_that_nothing_ran_here(strange: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["import", str(strange)]) == 0
    shown = capsys.readouterr()
    assert "3 statements imported, none of them run here" in shown.out
    assert "ctxkernel rerun" in shown.err
    assert main(["timeline", str(strange)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("imported ") == 3
    assert "none ran here" in shown
    assert "durable" not in shown
    assert main(["import", str(strange)]) == 1
    assert "--add" in capsys.readouterr().err
    assert main(["import", str(strange), "--add", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["statements"] == 3


def test_a_rerun_of_an_imported_notebook_compares_its_outputs(strange: Path, capsys: pytest.CaptureFixture[str]):
    main(["import", str(strange)])
    capsys.readouterr()

    assert main(["rerun", str(strange), "1", "--json"]) == 1

    told = json.loads(capsys.readouterr().out)
    assert [one["same"] for one in told["comparisons"]] == [True, True, False]
    assert [one["subject"] for one in told["comparisons"][2]["divergences"]] == ["result"]
    assert main(["timeline", str(strange)]) == 0
    assert "durable" in capsys.readouterr().out, "from now on there are states to return to"
    assert main(["goto", str(strange), "2"]) == 0


def test_a_run_with_resume_runs_every_imported_cell(strange: Path, capsys: pytest.CaptureFixture[str]):
    main(["import", str(strange)])
    assert main(["run", str(strange), "--resume"]) == 0
    told = capsys.readouterr().err
    assert "Cell 1 and those after it run: it has not run" in told
    assert "kept" not in told


def test_a_kernel_resumes_only_the_timeline_of_an_imported_notebook(strange: Path):
    main(["import", str(strange)])
    seen: list[str] = []
    from jupyter_client.manager import KernelManager
    from kernels import _ThisInterpreter

    manager = KernelManager(kernel_name="x", kernel_spec_manager=_ThisInterpreter())
    manager.start_kernel(env={**os.environ, "JPY_SESSION_NAME": str(strange)}, cwd=str(strange.parent))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready()
    kernel = RunningKernel(manager, client, strange.parent)
    try:
        for line in ("%ctx resume", "%ctx timeline", "%ctx rerun s1", "n"):
            ran = kernel.run(line)
            seen.append(ran.stdout + "".join(one.get("text/plain", "") for one in ran.data))
    finally:
        kernel.stop()
    assert "the notebook was imported, and has not run here" in seen[0]
    assert "imported" in seen[1]
    assert "3 run again: 2 as before, 1 different" in seen[2]
    assert seen[3] == "20"


def test_no_trust_is_carried_over(strange: Path, tmp_path: Path):
    out = tmp_path / "out.ipynb"
    main(["import", str(strange)])
    main(["export", str(strange), "--output", str(out)])

    made = json.loads(out.read_text())

    assert "signature" not in made["metadata"]
    assert not any("trusted" in cell["metadata"] for cell in made["cells"])
    with SessionReader(tmp_path / ".ctxkernel" / "strange.sqlite") as reader:
        statements = [statement for statement, _ in reader.statements()]
    assert [one.author for one in statements] == ["human", "model", "human"], "a claim of the file, shown as one"
    assert all(one.tags["imported"] for one in statements)


def test_large_outputs_are_cut_and_the_import_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "STREAM_CHARS", 1000)
    monkeypatch.setattr(limits, "PAYLOAD_BYTES", 500)
    cell = new_code_cell("x", execution_count=1)
    cell.outputs = [
        new_output("stream", text="a" * 5000),
        new_output("display_data", {"text/plain": "kept", "text/html": "b" * 5000}),
    ]
    path = tmp_path / "n.ipynb"
    nbformat.write(new_notebook(cells=[cell]), path)

    made = import_notebook(
        json.loads(json.dumps(read_notebook(path))),
        tmp_path / "n.sqlite",
        name="n.ipynb",
        environment={},
        masker=Masker(),
        named=True,
    )

    assert made.left_out == [
        "cell 1: 4,000 characters of stdout are cut",
        "cell 1: text/html of 5,000 bytes is left out",
    ]
    [back] = exported(made.session)["cells"]
    assert "4,000 characters cut by the import" in "".join(back["outputs"][0]["text"])
    assert back["outputs"][1]["data"] == {"text/plain": ["kept"]}


def test_what_is_no_notebook_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, content in {
        "deep.ipynb": "[" * 100_000,
        "text.ipynb": "hello",
        "list.ipynb": "[]",
        "cells.ipynb": '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code"}]}',
    }.items():
        (tmp_path / name).write_text(content)
        assert main(["import", str(tmp_path / name)]) == 2
        assert "not a valid notebook" in capsys.readouterr().err
    assert not (tmp_path / ".ctxkernel").exists()


def test_secrets_of_a_notebook_do_not_reach_the_session(tmp_path: Path):
    key = "sk-ant-api03-" + "a1B2" * 20
    cells = [new_markdown_cell(f"the key is {key}"), new_code_cell(f"token = '{key}'")]
    path = tmp_path / "n.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    assert main(["import", str(path)]) == 0
    assert key.encode() not in (tmp_path / ".ctxkernel" / "n.sqlite").read_bytes()


# -- jupytext -----------------------------------------------------------------------------------------------------

PERCENT = '# %% [markdown]\n# # Study\n\n# %% tags=["parameters"]\nn = 3\n\n# %%\nprint(n)\n'
MARKDOWN_NOTEBOOK = '# Study\n\n```python tags=["parameters"]\nn = 3\n```\n\n```python\nprint(n)\n```\n'


@pytest.mark.parametrize(("name", "text"), [("study.py", PERCENT), ("study.md", MARKDOWN_NOTEBOOK)])
def test_a_text_notebook_is_run_and_imported(name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / name
    path.write_text(text)

    assert main(["run", str(path), "--output", str(tmp_path / "out.ipynb")]) == 0
    capsys.readouterr()
    assert main(["timeline", str(path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["statements"]
    assert [(one["kind"], one["source"]) for one in made] == [("parameters", "n = 3"), ("python", "print(n)")]
    assert nbformat.read(tmp_path / "out.ipynb", 4).cells[-1].outputs[0].text == "3\n"
    assert main(["import", str(path), "--session", str(tmp_path / "other.sqlite")]) == 0
    assert "2 statements imported" in capsys.readouterr().out
    assert main(["run", str(path), "--inplace"]) == 2
    assert "holds no outputs" in capsys.readouterr().err


def test_a_return_to_an_imported_statement_is_refused_with_the_next_step(
    strange: Path, capsys: pytest.CaptureFixture[str]
):
    main(["import", str(strange)])
    before = (strange.parent / ".ctxkernel" / "strange.sqlite").read_bytes()
    for words in (["goto", str(strange), "2"], ["rerun", str(strange), "2"]):
        assert main(words) == 1
        assert "was imported, and has not run here" in capsys.readouterr().err
    assert (strange.parent / ".ctxkernel" / "strange.sqlite").read_bytes() == before
    assert main(["projection", str(strange)]) == 1
    assert "no projection" in capsys.readouterr().err


def test_the_notebook_itself_is_never_overwritten(ran: Path, capsys: pytest.CaptureFixture[str]):
    before = ran.read_bytes()
    assert main(["export", str(ran), "--output", str(ran)]) == 2
    assert "another file than the notebook" in capsys.readouterr().err
    assert ran.read_bytes() == before


def test_the_magic_writes_a_notebook_of_head(kernel: RunningKernel):
    kernel.run("x = 1", metadata={"cellId": "a", "tags": ["own"]})
    kernel.run("x + 1", metadata={"cellId": "b"})
    out = kernel.folder / "copy.ipynb"

    ran = kernel.run(f"%ctx export {out}")

    assert ran.status == "ok", ran.outputs
    made = nbformat.read(out, 4)
    nbformat.validate(made)
    assert [cell.source for cell in made.cells] == ["x = 1", "x + 1"]
    assert made.cells[0].metadata.tags == ["own"]
    assert made.cells[1].outputs[0].data["text/plain"] == "2"
    nbformat.write(new_notebook(), kernel.folder / "note.ipynb")
    assert "the notebook itself" in kernel.run("%ctx export note.ipynb").error["evalue"]


def test_what_changed_outside_of_cells_is_no_cell_of_the_exported_notebook(kernel):
    kernel.run("import threading, time; threading.Timer(0.2, lambda: globals().update(late=1)).start()")
    time.sleep(0.6)
    kernel.run("x = late")
    kernel.run("%ctx export out.ipynb")

    assert "# outside" in kernel.run("%ctx timeline").data[0]["text/plain"]
    cells = json.loads((kernel.folder / "out.ipynb").read_text("utf-8"))["cells"]
    assert ["".join(one["source"])[:8] for one in cells] == ["import t", "x = late"]
