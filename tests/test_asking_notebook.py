"""Notebooks that ask are executed as a reader without a key would, and ask what was recorded, to the byte.

The tour is executed by its own tests, which say the same of its asks.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

from ctxkernel.agent.recorded import RecordedAsk, load_turns

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = [path for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if "%%ask" in path.read_text("utf-8")]
NOTEBOOK = ROOT / "notebooks" / "04-asking.ipynb"
TOUR = ROOT / "notebooks" / "01-tour.ipynb"
AGAIN = "python docs/record_asking.py makes the file anew"


@pytest.mark.parametrize("notebook", [path for path in NOTEBOOKS if path != TOUR], ids=lambda path: path.stem)
def test_a_notebook_that_asks_is_replayed_without_drift(
    notebook: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for path in (notebook, notebook.with_suffix(".turns.json")):
        (pytester.path / path.name).write_bytes(path.read_bytes())
    given = ("-p", "ctxkernel.cli.pytest_plugin", "--ctx", notebook.name, "--ctx-strict")
    done = pytester.runpytest_subprocess(*given, timeout=240)

    done.assert_outcomes(passed=1)


def test_the_notebook_is_clean():
    notebook = nbformat.read(NOTEBOOK, as_version=4)

    assert notebook.metadata.kernelspec.name == "ctxkernel"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count is None for cell in code)
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.get("execution_count") or output.get("traceback")]
    text = json.dumps(outputs)
    assert not [word for word in (str(ROOT), "/home/", "/tmp/", "sk-ant", "Traceback") if word in text]
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


@pytest.mark.parametrize(("cell_id", "code"), [("data", "sensor = [value + 0.1 for value in sensor]"), ("check", "1")])
def test_a_wrong_result_is_found_by_the_stored_outputs(
    cell_id: str, code: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    """Also in a cell of the model, which computes with what the person's cells made."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (changed,) = [cell for cell in notebook.cells if cell.id == cell_id]
    changed.source += f"\n{code}"
    nbformat.write(notebook, pytester.path / NOTEBOOK.name)
    (pytester.path / f"{NOTEBOOK.stem}.turns.json").write_bytes(NOTEBOOK.with_suffix(".turns.json").read_bytes())
    done = pytester.runpytest_subprocess(
        "-p", "ctxkernel.cli.pytest_plugin", "--ctx", NOTEBOOK.name, "--ctx-trust", timeout=240
    )

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*Outputs differ from those in the notebook*"])


def turns(path: Path) -> list[RecordedAsk]:
    return load_turns(path.read_text("utf-8"), path.name)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """`docs/record_asking.py`."""
    spec = importlib.util.spec_from_file_location("record_asking", ROOT / "docs" / "record_asking.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_the_model_says_is_written_in_the_script(notebook: Path, script: ModuleType):
    """To the word; and with no path of a machine, and no key."""

    def said(blocks: Any) -> list[Any]:
        return [block.get("text") or block["input"] for block in ([blocks] if isinstance(blocks, dict) else blocks)]

    stored = notebook.with_suffix(".turns.json")
    rounds = [one for ask in turns(stored) for one in ask.rounds]

    assert [said(one.blocks) for one in rounds] == [said(one) for one in script.ANSWERS[notebook.stem]], AGAIN
    text = stored.read_text("utf-8")
    assert not [word for word in (str(ROOT), "/home/", "/tmp/", "sk-ant", "3.11", "Linux") if word in text]


def test_a_file_of_turns_is_what_the_script_makes(tmp_path: Path, script: ModuleType):
    """Two asks, cells in parallel, one that fails and is mended. That of the tour is made in the same way."""
    stored = NOTEBOOK.with_suffix(".turns.json")
    made = script.record(tmp_path, NOTEBOOK)

    def sent(path: Path) -> list[object]:
        return [(ask.key, ask.question, one.receipt, one.blocks) for ask in turns(path) for one in ask.rounds]

    assert sent(made) == sent(stored), AGAIN
    assert [len(ask.rounds) for ask in turns(stored)] == [4, 2]
