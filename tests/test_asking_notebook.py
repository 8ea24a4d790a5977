"""Notebooks that ask are executed as a reader without a key would, and ask what was recorded, to the byte."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import nbformat
import pytest

from ctxkernel.agent.recorded import RecordedAsk, load

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = [path for path in sorted((ROOT / "notebooks").glob("*.ipynb")) if "%%ask" in path.read_text("utf-8")]
NOTEBOOK = ROOT / "notebooks" / "04-asking.ipynb"
AGAIN = "python docs/record_asking.py makes the file anew"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
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
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)


def turns(path: Path) -> list[RecordedAsk]:
    return load(path.read_text("utf-8"), path.name)


def test_its_file_of_turns_is_what_the_script_makes(tmp_path: Path):
    """Two asks, cells in parallel, one that fails and is mended; and no path of a machine, no key."""
    spec = importlib.util.spec_from_file_location("record_asking", ROOT / "docs" / "record_asking.py")
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    stored = NOTEBOOK.with_suffix(".turns.json")
    made = script.record(tmp_path)

    def sent(path: Path) -> list[object]:
        return [(ask.key, ask.question, one.receipt, one.blocks) for ask in turns(path) for one in ask.rounds]

    assert sent(made) == sent(stored), AGAIN
    assert [len(ask.rounds) for ask in turns(stored)] == [4, 2]
    text = stored.read_text("utf-8")
    assert not [word for word in (str(ROOT), "/home/", "/tmp/", "sk-ant", "3.11", "Linux") if word in text]
