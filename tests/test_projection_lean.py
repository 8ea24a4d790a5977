"""The state stands once: what the history shows is not told again, and what is old takes a line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.ports import VariableLine
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Artifact, ChangeInfo, ExceptionInfo, Execution, NamespaceDiff, Statement, TypeInfo
from ctxkernel.core.timeline_events import Delta, MethodCalled, NodeChanged
from ctxkernel.core.turn_values import DeltaItem, HandleState, Turn
from ctxkernel.history.events import Action, Observation
from ctxkernel.projection.budget import HistoryFold
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.layout import DIALECT_TEXTS, OLD_ERROR_TOKENS, SYSTEM_TEXT, result_text
from ctxkernel.projection.tail_rows import VariableFacts, imported_row, variable_row, variable_rows
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.projection.toolset import tools_json

ROOT = Path(__file__).resolve().parent.parent
History = list[tuple[Statement, Execution]]


def ran(index: int, source: str = "x = 1", **execution: Any) -> tuple[Statement, Execution]:
    sid = f"s{index}"
    return Statement(sid, index, 0.0, source), Execution(
        f"{sid}.1", sid, None, 0.0, 1.0, **{"status": "ok", **execution}
    )


def engine(**settings: Any) -> ProjectionEngine:
    return ProjectionEngine(Settings(**settings), count_tokens)


def project(path: History, *handles: HandleState, records: Any = None, **more: Any) -> Projection:
    turn = Turn(path, handles, more.get("variables", ()), 0, more.get("deltas", ()), records or {})
    return engine(**more.get("settings", {})).project(turn)


def texts(projection: Projection, kind: str) -> list[str]:
    return [block.text for block in projection.blocks if block.kind == kind]


def why_not(projection: Projection) -> dict[str, str]:
    return {one.id: one.why for one in projection.left_out}


# -- results of cells of the model ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "(no output, and no name changed)"),
        ({"added": {"total": TypeInfo("int", "1")}}, "(no output)"),
        (
            {"added": {"total": TypeInfo("int", "1")}, "changed": {"rows": ChangeInfo("list", "[]", how="mutated")}},
            "[changes] ~ rows: list (mutated)",
        ),
        ({"incomplete": "still being compared: rows"}, "(no output)"),
        ({"deleted": ("total", "old")}, "[changes] - old"),
    ],
)
def test_the_result_of_a_cell_tells_only_the_changes_of_names_that_its_source_lacks(changes: Any, told: str):
    execution = ran(1, state_diff=NamespaceDiff(**changes))[1]
    assert result_text(execution, "total = add(first)") == told


# -- variables -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (VariableLine("x", "int", "1", {}, "s3"), "x = 1 # s3"),
        (VariableLine("x", "list", "[1, 2]", {"len": 2}, "s3"), "x = [1, 2] # s3"),
        (VariableLine("x", "list", "[1, 2, …", {"len": 900}, "s3"), "x = [1, 2, … # len=900 s3"),
        (VariableLine("f", "function", "<function f(a)>"), "f = <function f(a)>"),
        (VariableLine("x", "lab.Store", "<lab.Store object> path=1", {}, "s1"), "x = <lab.Store object> # s1"),
        (VariableLine("x", "Own", "<Own object> a=1", {}, "s1"), "x = <Own object> a=1 # s1"),
        (VariableLine("x", "Money", "5 €", {}, "s1"), "x = 5 € # Money s1"),
        (VariableLine("a", "numpy.ndarray", "int64[3] 1, 2, 3", {"shape": [3], "bytes": 24}), "a = int64[3] 1, 2, 3"),
        (
            VariableLine("a", "numpy.ndarray", "float64[9] 1.25, 2.25, 3.25, 4.25, 5.25, …", {"shape": [9]}),
            "a = float64[9] 1.25, 2.25, …",
        ),
        (VariableLine("a", "numpy.ndarray", "float64[60, 5] 19.682261817766282, 1.0, …"), "a = float64[60, 5]"),
        (
            VariableLine(
                "d", "pandas.DataFrame", "DataFrame 3×1: a int64", {"shape": [3, 1], "bytes": 2_000_000}, "s1"
            ),
            "d = DataFrame 3×1: a int64 # 2.0 MB s1",
        ),
    ],
)
def test_a_row_has_type_and_size_only_where_the_value_does_not_show_them(line: VariableLine, row: str):
    assert variable_row(line) == row


def test_imports_take_one_line_and_frames_with_the_same_columns_share_one():
    frame = ("pandas.DataFrame", "DataFrame {}×2: day, value float64")
    rows = [
        VariableLine("b", frame[0], frame[1].format(7), {}, "s9"),
        VariableLine("np", "module", "<module numpy>"),
        VariableLine("n", "int", "5"),
        VariableLine("a", frame[0], frame[1].format(3), {}, "s4"),
        VariableLine("Path", "type", "<class pathlib.Path>"),
        VariableLine("fit", "function", "<function scipy.optimize.curve_fit(f, x)>"),
        VariableLine("own", "function", "<function own(x)>"),
    ]

    assert variable_rows(list(map(VariableFacts.of, rows))) == [
        "b 7×2 s9, a 3×2 s4 = DataFrame: day, value float64",
        "n = 5",
        "own = <function own(x)>",
        "imported: numpy as np, pathlib.Path, scipy.optimize.curve_fit as fit",
    ]


def test_a_module_of_its_own_name_is_imported_without_another():
    rows = [
        VariableLine(*one) for one in [("os", "module", "<module os>"), ("stats", "module", "<module scipy.stats>")]
    ]

    assert imported_row(rows) == "imported: os, scipy.stats"


# -- changes ---------------------------------------------------------------------------------------------


def test_a_change_that_the_history_or_a_table_shows_is_not_told_again():
    path = [ran(1, "x = 1"), ran(2, "open('f', 'w')", artifacts=(Artifact("file", "f", "", 1, ""),))]
    deltas = (
        DeltaItem("s1", "error", "ValueError", "no"),
        DeltaItem("s1", "variable", "x", "new int 1"),
        DeltaItem("s1", "variable", "gone", "deleted"),
        DeltaItem("s2", "file", "f", "written, 1 bytes"),
        DeltaItem("s2", "tick", "v", "+3 −1 lines"),
        DeltaItem("s2", "late", "s1", "printed after its end: done"),
        DeltaItem("s9", "variable", "elsewhere", "new int 2"),
    )
    variables = (VariableLine("x", "int", "1", {}, "s1"),)

    projection = project(path, variables=variables, deltas=deltas)

    told = (
        "<ctx:deltas>\ns2 tick v: +3 −1 lines\ns2 late s1: printed after its end: done\n"
        "s9 variable elsewhere: new int 2\n"
    )
    assert texts(projection, "deltas") == [told]
    assert why_not(projection)["deltas"] == "4 changes that the history or a table has"


# -- old statements ------------------------------------------------------------------------------------------

LONG = "reading 12.5\n" * 60


def test_old_statements_take_one_line_and_a_batch_makes_room_for_many():
    path = [ran(n, f"value_{n} = read({n})\nvalue_{n}", stdout=LONG + f"{n} is the last\n") for n in range(1, 41)]
    stepwise, batches, before = engine(), 0, 0
    for n in range(1, 41):
        projection = stepwise.project(Turn(path[:n], (), (), 0, ()))
        fresh = project(path[:n])
        assert projection.request_bytes == fresh.request_bytes
        old = sum(" short>" in text for text in texts(projection, "statement"))
        batches += old > before
        before = old

    shown = texts(projection, "statement")
    assert shown[0] == "<ctx:s1 short>\nvalue_1 = read(1) → 1 is the last\n"
    assert LONG in shown[-1]
    assert len(shown) == 40
    assert batches <= 40 * count_tokens(LONG) / (Settings().recent_tokens / 2)
    assert why_not(projection)["s1.1:outputs"] == "old, so masked in a batch; expand brings it whole"
    assert projection.blocks[1].why == "statement s1, in one line, as it is old"


def test_the_newest_statement_is_whole_whatever_its_size_and_a_setting_keeps_more():
    path = [ran(n, "read()", stdout=LONG * 3) for n in range(1, 9)]

    assert " short>" not in texts(project(path, settings={"recent_tokens": 0}), "statement")[-1]
    assert not any(" short>" in text for text in texts(project(path, settings={"recent_tokens": 90_000}), "statement"))


def test_the_error_of_an_old_statement_stays_within_its_bound():
    trace = "Cell In[1], line 1\n" + "File lab.py\n----> 1 read()\n" * 200 + "ValueError: no header"
    failed = ran(1, "read()", status="error", exception=ExceptionInfo("ValueError", "no header", trace))
    path = [failed, *(ran(n, "more()", stdout=LONG) for n in range(2, 20))]

    shown = texts(project(path), "statement")[0]

    assert shown.startswith('<ctx:s1 status="error" short>\nread()\n<ctx:error>\nCell In[1], line 1\n')
    assert shown.endswith("ValueError: no header\n")
    assert count_tokens(shown) < OLD_ERROR_TOKENS + 30


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans()), max_size=80), st.integers(0, 900))
def test_the_whole_statements_stay_within_their_limit_but_for_the_newest(sizes: list[tuple[int, bool]], limit: int):
    fold = HistoryFold(10**9, limit=limit)
    for place, (size, statement) in enumerate(sizes):
        before = fold.masked
        assert fold.append(size, min(size, 20), fresh=size if statement else 0) == (fold.masked > before)
        whole = [one for at, (one, is_statement) in enumerate(sizes[: place + 1]) if at >= fold.masked and is_statement]
        assert sum(one for one in whole if one > 20) <= max(limit, size)
        assert fold.masked <= place


# -- displays of handles ------------------------------------------------------------------------------------


def view(obj_id: str, text: str, lod: int = 0, kind: str = "view") -> tuple[Artifact, ...]:
    """Return the output that displays a handle."""
    shown = f"<{kind} {obj_id} a.py lod={lod} tokens=2000 paused ~{count_tokens(text)} tokens>\n{text}"
    return (Artifact("display", "out1", "text/plain", len(shown), "", shown),)


def handle(name: str, obj_id: str, text: str, lod: int = 0, **more: Any) -> HandleState:
    digest = {"target": "a.py", "mode": "paused", "lod": lod, "tokens": 2000}
    facts = {"pinned": False, "pin_reason": "", "changed": False, "requested": False, "obj_type": "view", **more}
    return HandleState(name, obj_id, facts.pop("obj_type"), "s1", digest, text, count_tokens(text), **facts)


def changed(obj_id: str) -> NodeChanged:
    return NodeChanged(obj_id, Delta("lod 0 → 2"))


CODE = "def parse(line):\n    return line.split(';')\n" * 60
SHORT = "a.py: 60 functions\n"


def test_a_display_stays_where_it_is_while_it_shows_the_handle_as_it_is():
    path = [ran(1, "v = view('a.py')\nv", artifacts=view("v1", CODE)), ran(2)]

    projection = project(path, handle("v", "v1", CODE))

    assert CODE in texts(projection, "statement")[0]
    assert texts(projection, "view") == []


def test_a_view_that_was_turned_down_is_in_the_tail_and_its_old_display_is_a_reference():
    path = [
        ran(1, "v = view('a.py')\nv", artifacts=view("v1", CODE)),
        ran(2, "v.lod = 2", events=(changed("v1"),)),
    ]
    before = project(path[:1], handle("v", "v1", CODE))

    projection = project(path, handle("v", "v1", SHORT, lod=2))

    assert texts(projection, "statement")[0] == (
        "<ctx:s1>\nv = view('a.py')\nv\n<ctx:display>\n<view v1 lod=0; see handles>\n"
    )
    assert texts(projection, "view") == [f'<ctx:view id="view:v">\n{SHORT}']
    assert "v v1 view a.py lod=2 s1" in texts(projection, "handles")[0]
    [block] = [one for one in projection.blocks if one.kind == "view"]
    assert block.why.startswith("v as it is now: it has changed since s1 displayed it")
    assert projection.blocks[1].why == "statement s1; v1 by reference"
    assert projection.tokens < 0.6 * before.tokens


def test_of_two_displays_of_a_handle_the_newest_has_the_content():
    path = [
        ran(1, "v", artifacts=view("v1", CODE)),
        ran(2, "v.lod = 2\nv", artifacts=view("v1", SHORT, 2), events=(changed("v1"),)),
    ]

    projection = project(path, handle("v", "v1", SHORT, lod=2))

    assert [SHORT in text for text in texts(projection, "statement")] == [False, True]
    assert "<view v1 lod=0; see handles>" in texts(projection, "statement")[0]
    assert texts(projection, "view") == []


@pytest.mark.parametrize(
    ("display", "state", "events"),
    [
        pytest.param(view("g1", SHORT, 2, "group"), {"obj_type": "group"}, (), id="a group"),
        pytest.param(view("n1", SHORT, 0, "note"), {"obj_type": "note"}, (), id="a note"),
        pytest.param(
            view("v1", SHORT),
            {"pinned": True},
            (MethodCalled("v1", "view", "pin", (), {}, {}, {}),),
            id="a view that is pinned",
        ),
    ],
)
def test_a_display_of_what_the_tail_has_is_a_reference_at_once(display: Any, state: Any, events: Any):
    path = [ran(1, "h", artifacts=display, events=events)]
    obj_id = display[0].data.split()[1]

    projection = project(path, handle("h", obj_id, SHORT, **state))

    assert [SHORT in block.text for block in projection.blocks[1:]].count(True) == 1
    assert "; see handles>" in texts(projection, "statement")[0]


def test_what_show_asks_for_is_not_in_the_tail_where_the_history_displays_it():
    state = handle("v", "v1", SHORT, requested=True)
    there = project([ran(1, "show(v)", artifacts=(Artifact("display", "o", "text/plain", 9, "", SHORT),))], state)
    elsewhere = project([ran(1, "s = show(v)")], state)

    assert texts(there, "shown") == []
    assert why_not(there)["view:v"] == "show(v) asked for it, and the history displays it"
    assert texts(elsewhere, "shown") != []


def test_an_old_display_in_a_result_of_the_models_is_a_reference_too():
    shown = view("v1", CODE)
    path = [
        ran(1, "%%ask"),
        ran(2, "v", artifacts=shown),
        ran(3, "v.lod = 2", events=(changed("v1"),)),
    ]
    records = {
        "s1.1": [Action("s1.1:1", "c1", "run_cell", {"code": "v"}, "r1")],
        "s2.1": [Observation("s2.1:1", "c1", f"[display]\n{shown[0].data.strip()}")],
    }

    projection = project(path, handle("v", "v1", SHORT, lod=2), records=records)

    [result] = texts(projection, "result")
    assert "<view v1 lod=0; see handles>" in result
    assert "def parse" not in result


SESSIONS = st.lists(
    st.tuples(st.sampled_from(["show", "change", "pin", "unpin", "other"]), st.sampled_from(["v1", "v2", "g1"])),
    max_size=24,
)


@given(SESSIONS, st.sampled_from(["tools", "script"]), st.data())
@profile(max_examples=examples(120))
def test_displays_are_the_same_step_by_step_anew_and_after_a_return(
    steps: Sequence[tuple[str, str]], dialect: str, data: st.DataObject
):
    path: History = []
    text = dict.fromkeys(("v1", "v2", "g1"), CODE)
    pinned: set[str] = set()
    turns: list[Turn] = []
    for n, (what, obj_id) in enumerate(steps, 1):
        kind = "group" if obj_id == "g1" else "view"
        more: dict[str, Any] = {"stdout": LONG} if what == "other" else {}
        if what == "show":
            more["artifacts"] = view(obj_id, text[obj_id], 0, kind)
        elif what == "change":
            text[obj_id] = f"revision {n}\n" * (1 + 7 * n % 100)
            more["events"] = (changed(obj_id),)
        elif what in ("pin", "unpin"):
            (pinned.add if what == "pin" else pinned.discard)(obj_id)
            more["events"] = (MethodCalled(obj_id, kind, what, (), {}, {}, {}),)
        path = [*path, ran(n, f"{obj_id}.{what}()", **more)]
        states = [
            handle(f"h{one}", one, text[one], pinned=one in pinned, obj_type="group" if one == "g1" else "view")
            for one in text
        ]
        turns.append(Turn(path, tuple(states), (), 0, ()))
    stepwise = engine(dialect=dialect)
    bodies = [stepwise.project(turn).request_bytes for turn in turns]

    assert bodies == [engine(dialect=dialect).project(turn).request_bytes for turn in turns]
    if turns:
        at = data.draw(st.integers(0, len(turns) - 1))
        assert stepwise.project(turns[at]).request_bytes == bodies[at]
        assert stepwise.project(turns[-1]).request_bytes == bodies[-1]


# -- words for the model --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", ["%ctx model local", "%ctx mode auto\n# later\n%ctx cost", "# cheap\n%ctx config x 1"]
)
def test_a_cell_that_only_steers_the_kernel_is_not_sent_and_says_why(source: str):
    projection = project([ran(1), ran(2, source), ran(3)])

    assert [block.origin for block in projection.blocks if block.kind == "statement"] == ["s1", "s3"]
    assert why_not(projection)["s2.1"] == "it only steers the kernel, which is of no use to the model"


@pytest.mark.parametrize(
    "source", ["%ctx mode auto\nx = 1", "%ctx goto 1", "x = '%ctx mode auto'", "%ctx modes", "# x"]
)
def test_a_cell_that_does_more_is_sent(source: str):
    assert len(texts(project([ran(1, source)]), "statement")) == 1


@pytest.mark.parametrize("dialect", ["tools", "script"])
def test_the_words_for_a_model_are_few_and_constant_and_have_an_example(dialect: str):
    first = engine(dialect=dialect).project(Turn((), (), (), 0, ()))
    later = engine(dialect=dialect).project(Turn([ran(1)], (), (), 0, ()))
    words = SYSTEM_TEXT + DIALECT_TEXTS[dialect]  # type: ignore[index]

    assert first.system.text == later.system.text == words
    assert "Example: " in words
    assert ('<script type="text/x-python">\n' in words) == (dialect == "script")
    fixed = count_tokens(words) + (count_tokens(tools_json()) if dialect == "tools" else 0)
    assert fixed < 900
    assert max(len(sentence.split()) for sentence in re.split(r"[.:;]\s", SYSTEM_TEXT)) <= 25


# -- the recorded sessions -------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", ["cleaning", "fitting", "debugging", "literature", "images", "long"])
def test_a_recorded_session_is_short_and_answers_every_question(name: str):
    command = [sys.executable, str(ROOT / "benchmarks" / "projection.py"), name, "--check"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 of 10 questions" in done.stdout
