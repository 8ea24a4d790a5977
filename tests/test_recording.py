"""`%ctx record`: what was asked and answered, as a file from which another kernel replays it without a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kernels import RunningKernel, StartKernel
from test_kernel_asking import KEY, Bench, bench_in, cell, shown

from ctxkernel.agent.recorded import RecordedAsk, ask_key, dump_turns, load_turns
from ctxkernel.kernel.asking.model_connections import ModelConnections
from ctxkernel.kernel.commands.table import complete
from ctxkernel.store.log.location import HINT
from ctxkernel.testing import call, say, think


def told(statements: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what a statement is, times aside."""
    return [
        (one["statement_id"], one["source"], one["author"], one["kind"], run["status"], run["stdout"])
        for one in statements
        for run in one["executions"]
    ]


def statements(kernel: RunningKernel) -> list[dict[str, Any]]:
    return json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]


CELLS = [
    "from pathlib import Path\nimport sys\nvalues = [3, 1, 2]\nPath('data.csv').write_text('t,x\\n1,2\\n')",
    "class Trial: pass\ntrial = Trial()\ndata = view('data.csv')",
    "%%ask --mode auto\nsort my values, and tell their mean",
    "half = mean / 2\nprint(half)",
    "%%ask --mode auto\nand what is in the file?",
]


def answers(bench: Bench) -> None:
    bench.answers(
        [think("two cells"), say("I sort."), cell("values.sort()\nprint(values)"), cell("mean = sum(vals)")],
        [say("A slip."), cell("mean = sum(values) / len(values)\nprint(mean)")],
        say("Sorted; the mean is **2**."),
        [call("expand", {"id": "data"}), cell("print(open('data.csv').read())")],
        say("One row."),
    )


def test_what_is_recorded_replays_elsewhere_without_a_key_and_nothing_differs(
    tmp_path: Path, start_kernel: StartKernel
):
    here, there = tmp_path / "here", tmp_path / "some" / "where" / "else"
    here.mkdir()
    there.mkdir(parents=True)
    with bench_in(here) as bench:
        answers(bench)
        for source in CELLS:
            assert bench.kernel.run(source).status == "ok"
        before = told(bench.statements)
        ran = bench.run("%ctx record")
        bench.sound()
    assert "2 asks, 5 responses" in shown(ran)
    assert "--ctx-update" not in shown(ran)
    turns = here / "note.turns.json"
    assert turns.is_file()
    assert KEY not in turns.read_text("utf-8")
    assert [path.name for path in here.iterdir() if "turns" in path.name] == ["note.turns.json"]
    (there / "note.turns.json").write_bytes(turns.read_bytes())

    kernel = start_kernel(there, env={"CTXKERNEL_ANSWERS": "recorded"})
    outputs = [shown(kernel.run(source)) for source in CELLS]
    assert told(statements(kernel)) == before
    assert "replayed from a recorded turn" in outputs[2]
    assert not [text for text in outputs if "drift" in text]


def test_a_kernel_that_is_not_told_its_notebook_finds_the_turns_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As with nbconvert and papermill; a kernel that knows its notebook reads that one's file alone."""
    monkeypatch.chdir(tmp_path)
    for name, question in (("a", "first?"), ("b", "second?")):
        (tmp_path / f"{name}.turns.json").write_text(dump_turns([RecordedAsk(ask_key(0, question), question, ())]))
    turns = ModelConnections(cast("Any", None), cast("Any", None))

    monkeypatch.delenv(HINT, raising=False)
    assert [ask.question for ask in turns.asks()] == ["first?", "second?"]
    monkeypatch.setenv(HINT, str(tmp_path / "b.ipynb"))
    assert [ask.question for ask in turns.asks()] == ["second?"]


def test_a_replayed_ask_is_recorded_again_with_the_requests_of_now(tmp_path: Path, start_kernel: StartKernel):
    with bench_in(tmp_path) as bench:
        bench.answers([cell("print(n)")], say("seen"))
        bench.run("n = 1", "%%ask --mode auto\nlook at n", "%ctx record")
    recorded = {"CTXKERNEL_ANSWERS": "recorded", "CTXKERNEL_TURNS": "note.turns.json"}
    second = start_kernel(tmp_path, env=recorded, notebook="other.ipynb")
    second.run("n = 2")
    assert "(drift in request 1, 2), so the answer may no longer fit" in shown(second.run("%%ask\nlook at n"))
    assert second.run("%ctx record").status == "ok"
    third = start_kernel(tmp_path, env=recorded, notebook="third.ipynb")
    third.run("n = 2")

    again = third.run("%%ask\nlook at n")
    assert again.stdout == "2\n"
    assert "drift" not in shown(again)


def test_only_what_was_answered_on_the_way_to_head_is_written_and_the_rest_is_named(tmp_path: Path):
    with bench_in(tmp_path) as bench:
        nothing = bench.kernel.run("%ctx record")
        bench.answers(say("one"), say("two"), [cell("1")])
        bench.run("%%ask --mode auto\nfirst", "%%ask --mode auto\naside", "%ctx goto 3")
        bench.answers(say("three"), [cell("1")])
        bench.run("%%ask --mode auto\nsecond")
        bench.kernel.run("%%ask --mode ask\nwaits for ever")
        ran = bench.run("%ctx record kept.json")

    assert "nothing was asked" in nothing.error["evalue"]
    asks = load_turns((tmp_path / "kept.json").read_text("utf-8"), "kept.json")
    assert [(ask.key.partition(":")[0], ask.question) for ask in asks] == [("0", "first"), ("1", "second")]
    assert "left out, not answered: waits for ever" in shown(ran)


def test_what_a_person_decided_is_recorded_and_replayed(tmp_path: Path, start_kernel: StartKernel):
    with bench_in(tmp_path) as bench:
        bench.answers(say("yes"), [cell("a = 1"), cell("b = 1")], say("One."))
        bench.run("%%ask --mode auto\nhello?")
        bench.kernel.run("%%ask --mode ask\nset a and b")
        bench.kernel.run("%%ctx edit\na = 5")
        bench.kernel.run("%ctx reject no b please")
        assert "pytest --ctx NOTEBOOK --ctx-update" in shown(bench.run("%ctx record"))
    kernel = start_kernel(tmp_path, env={"CTXKERNEL_ANSWERS": "recorded", "CTXKERNEL_SESSION": "new.sqlite"})
    kernel.run("%%ask\nhello?")
    kernel.run("%%ask\nset a and b")
    assert kernel.run("a, 'b' in globals()").data[-1]["text/plain"] == "(5, False)"


def test_what_looks_like_a_key_is_masked_and_another_file_is_not_written_over(tmp_path: Path):
    planted = "sk-proj-" + "abcdefgh12345678"
    (tmp_path / "data.json").write_text('{"a": 1}', "utf-8")
    with bench_in(tmp_path) as bench:
        bench.answers([cell(f"service = '{planted}'")], say(f"It is {planted}."))
        bench.run(f"%%ask --mode auto\nuse {planted}")
        refused = bench.kernel.run("%ctx record data.json")
        bench.run("%ctx record")
        bench.run("%ctx record")

    assert "not a file of recorded turns; give another name" in refused.error["evalue"]
    assert (tmp_path / "data.json").read_text("utf-8") == '{"a": 1}'
    assert planted not in (tmp_path / "note.turns.json").read_text("utf-8")


@pytest.mark.parametrize(
    "broken", [b'{"ctxkernel_turns": 1, "asks": [{"key"', b"\xff\xfe no text", b'{"ctxkernel_turns": 9}']
)
def test_a_damaged_file_of_turns_is_told_and_kept_aside_and_recording_goes_on(recording: Bench, broken: bytes):
    turns, aside = recording.folder / "note.turns.json", recording.folder / "note.turns.json.damaged"
    turns.write_bytes(broken)
    aside.unlink(missing_ok=True)
    recording.run("%ctx config answers recorded")
    refused = recording.kernel.run("%%ask\nnever asked before").error["evalue"]
    recording.run("%ctx config answers --reset")
    elsewhere = shown(recording.run("%ctx record elsewhere.json"))
    assert turns.read_bytes() == broken
    ran = shown(recording.run("%ctx record"))
    turns.write_bytes(broken + b" ")
    recording.run("%ctx record")

    assert "note.turns.json" in refused and "have %ctx record write it anew" in refused
    assert f"{turns} was damaged" in ran and "note.turns.json.damaged" in ran
    assert "what only the file beside the notebook has is not in it" in elsewhere
    assert aside.read_bytes() == broken
    assert aside.with_name(f"{aside.name}-2").read_bytes() == broken + b" "
    assert len(load_turns(turns.read_text("utf-8"), turns.name)) == 1
    aside.with_name(f"{aside.name}-2").unlink()


@pytest.fixture(scope="module")
def recording(module_folder: Path) -> Iterator[Bench]:
    """One kernel in which something was asked."""
    with bench_in(module_folder) as bench:
        bench.answers(say("one"))
        bench.run("%%ask --mode auto\nfirst")
        yield bench


@pytest.mark.parametrize(("line", "error"), [("%ctx record a b", "one file"), ("%ctx record --all", "no option --all")])
def test_what_cannot_be_recorded_is_said_with_the_next_move(shared_kernel: RunningKernel, line: str, error: str):
    assert error in shared_kernel.run(line).error["evalue"]


def test_the_file_to_record_to_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "note.turns.json").touch()
    monkeypatch.chdir(tmp_path)
    event: Any = SimpleNamespace(line="%ctx record no", symbol="no")

    assert complete(cast("Any", None), event) == ["note.turns.json"]
