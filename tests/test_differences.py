"""What lies between two places of a timeline: names by content, outputs by cell, handles by their digest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.timeline import Artifact, ChangeInfo, ExceptionInfo, Execution, NamespaceDiff, Statement, TypeInfo
from ctxkernel.core.turn_values import HandleState
from ctxkernel.kernel.display.reports import differences_report
from ctxkernel.replay.differences import Differences, differences
from ctxkernel.testing.fake_loop import Turns

Path = list[tuple[Statement, Execution]]


def ran(
    n: int, source: str = "", *, cell: str | None = None, run: int = 1, **fields: Any
) -> tuple[Statement, Execution]:
    """Return a statement with one execution."""
    sid = f"s{n}"
    statement = Statement(sid, n, 0.0, source or f"cell {n}", kind=fields.pop("kind", "python"), cell_id=cell)
    return statement, Execution(f"{sid}.{run}", sid, None, 0.0, 1.0, "ok", **fields)


def added(**names: TypeInfo) -> NamespaceDiff:
    return NamespaceDiff(added=names)


def changed(**names: TypeInfo) -> NamespaceDiff:
    return NamespaceDiff(changed={name: ChangeInfo(one.type, one.repr, one.size) for name, one in names.items()})


def result(text: str) -> tuple[Artifact, ...]:
    return (Artifact("display", "result", "text/plain", len(text), f"sha256:{text}", text),)


def handle(obj_id: str, name: str, **digest: Any) -> HandleState:
    whole = {"obj_id": obj_id, "target": f"{name}.csv", "lod": 1, "revision": 1, "fingerprint": "f", **digest}
    return HandleState(name, obj_id, "view", "s1", whole, "", 0, False, "", False, False)


def between(old: Path, new: Path, prints: dict[str, dict[str, str]] | None = None, **handles: Any) -> Differences:
    return differences(old, new, fingerprints=prints or {}, **handles)


INT = TypeInfo("int", "3")
FRAME = TypeInfo("DataFrame", "DataFrame 3×2: a int64, b int64", {"shape": [3, 2]})

TOLD: dict[str, tuple[TypeInfo, TypeInfo, str]] = {
    "another value": (INT, TypeInfo("int", "4"), "int 3 → 4"),
    "another type": (INT, TypeInfo("str", "'a'"), "int 3 → str 'a'"),
    "another shape": (FRAME, TypeInfo("DataFrame", "…", {"shape": [3, 3]}), "DataFrame 3×2 → 3×3"),
    "another column": (
        FRAME,
        TypeInfo("DataFrame", "DataFrame 3×2: a int64, c int64", {"shape": [3, 2]}),
        "DataFrame 3×2: a int64, b int64 → 3×2: a int64, c int64",
    ),
    "a cell of the frame": (FRAME, FRAME, "DataFrame 3×2, content differs"),
    "a longer list that is cut": (
        TypeInfo("list", "[0, 1, …", {"len": 1000}),
        TypeInfo("list", "[0, 1, …", {"len": 1001}),
        "list 1,000 items → 1,001 items",
    ),
    "deep inside": (TypeInfo("list", "[[1]]"), TypeInfo("list", "[[1]]"), "list [[1]], content differs"),
    "an instance": (
        TypeInfo("Model", "<Model object> k=1"),
        TypeInfo("Model", "<Model object> k=2"),
        "<Model object> k=1 → <Model object> k=2",
    ),
}


@pytest.mark.parametrize(("one", "two", "told"), TOLD.values(), ids=TOLD.keys())
def test_a_change_is_told_in_one_line(one: TypeInfo, two: TypeInfo, told: str):
    first, second = ran(1, state_diff=added(x=one)), ran(2, state_diff=changed(x=two))

    found = between([first], [first, second], {"s1.1": {"x": "a"}, "s2.1": {"x": "b"}})

    assert [(each.name, each.told) for each in found.changed] == [("x", told)]
    assert found.text() == f"~ x: {told}"


def test_names_that_come_and_go_say_what_they_are():
    first = ran(1, state_diff=added(x=INT))
    second = ran(2, state_diff=NamespaceDiff(added={"y": FRAME}, deleted=("x",)))

    assert between([first], [first, second]).text() == "+ y: DataFrame 3×2: a int64, b int64\n− x: was int 3"
    assert between([first, second], [first]).text() == "+ x: int 3\n− y: was DataFrame 3×2: a int64, b int64"


def test_a_name_that_came_back_to_its_content_is_no_difference():
    first = ran(1, state_diff=added(x=INT))
    other, back = ran(2, state_diff=changed(x=TypeInfo("int", "4"))), ran(3, state_diff=changed(x=INT))

    found = between([first], [first, other, back], {"s1.1": {"x": "a"}, "s2.1": {"x": "b"}, "s3.1": {"x": "a"}})

    assert not found
    assert found.text() == "no difference"


def test_a_name_on_two_branches_with_one_content_is_no_difference():
    root = ran(1)
    here, there = ran(2, state_diff=added(x=FRAME)), ran(3, state_diff=added(x=FRAME))

    assert not between([root, here], [root, there], {"s2.1": {"x": "a"}, "s3.1": {"x": "a"}})


def test_where_the_content_was_not_kept_the_difference_says_so():
    first, second = ran(1, state_diff=added(x=FRAME, n=INT)), ran(2, state_diff=changed(x=FRAME, n=INT))

    found = between([first], [first, second])

    assert [(one.name, one.told) for one in found.changed] == [
        ("x", "DataFrame 3×2, may differ: its content was not kept")
    ]


def test_changes_that_may_be_missing_are_noted():
    first = ran(1, state_diff=NamespaceDiff(incomplete="time ran out"))
    second = ran(2, state_diff=NamespaceDiff(incomplete="time ran out"))

    found = between([first], [first, second])

    assert found.notes == ("changes of s2 may be missing: time ran out",)
    assert found.text() == "no difference is known\nnote: changes of s2 may be missing: time ran out"


def test_a_variable_that_is_still_being_compared_is_not_said_to_have_no_difference():
    first, second = ran(1), ran(2, state_diff=NamespaceDiff(incomplete="still being compared: records"))

    found = between([first], [first, second]).only(["records"])

    assert found.text() == "no difference is known\nnote: changes of s2 may be missing: still being compared: records"


def test_outputs_are_paired_by_cell():
    old = ran(1, "x", cell="c", artifacts=result("1"))
    new = ran(5, "x + 1", cell="c", artifacts=result("2"))

    (found,) = between([old], [old, new]).outputs

    assert (found.name, found.told, found.before, found.after) == ("s5 result", "1 → 2", "s1.1", "s5.1")


def test_outputs_of_a_cell_without_its_id_are_paired_by_source():
    old, new = ran(1, "print(x)", stdout="1\n"), ran(2, "print(x)", cell="c", stdout="2\n")

    (found,) = between([old], [new]).outputs

    assert found.name == "s2 stdout"


def test_a_copied_cell_is_not_paired_with_the_one_that_it_was_copied_from():
    old = ran(1, "x", cell="a", artifacts=result("1"))
    again, copied = ran(2, "x", cell="a", artifacts=result("1")), ran(3, "x", cell="b", artifacts=result("2"))

    assert between([old], [again, copied]).outputs == ()


def test_only_the_newest_run_of_a_cell_counts():
    failed = ran(1, cell="c", exception=ExceptionInfo("ValueError", "no", ""))
    mended, elsewhere = ran(2, cell="c", stdout="fine"), ran(3, cell="c", stdout="fine")

    assert between([failed, mended], [elsewhere]).outputs == ()


def test_an_error_that_went_is_a_difference_of_the_output():
    failed, mended = ran(1, cell="c", exception=ExceptionInfo("ValueError", "no", "")), ran(2, cell="c")

    assert between([failed], [mended]).text() == "output of s2 error: ValueError went: ValueError: no"


def test_addresses_and_times_are_no_difference_of_the_output():
    old = ran(1, cell="c", stdout="<Thing at 0x7f3a5c0d1e80>")
    new = ran(2, cell="c", stdout="<Thing at 0x7f9b1c2d3e40>")

    assert not between([old], [new])


def test_what_is_no_cell_has_no_output():
    old = ran(1, "%ctx goto 3", kind="meta", stdout="a")
    new = ran(2, "%ctx goto 3", kind="meta", stdout="b")

    assert not between([old], [new])


def test_handles_differ_by_their_digest():
    old = [handle("v1", "paper"), handle("v2", "data"), handle("v3", "gone")]
    new = [handle("v1", "paper", lod=2, revision=7), handle("v2", "data", fingerprint="g"), handle("v4", "fresh")]

    found = between([], [], old_handles=old, new_handles=new)

    assert [(one.name, one.how, one.told) for one in found.handles] == [
        ("paper", "changed", "lod 1 → 2"),
        ("data", "changed", "content changed"),
        ("fresh", "added", "added, view of fresh.csv"),
        ("gone", "removed", "not there any more, view of gone.csv"),
    ]
    assert found.handles[0].fields == {"lod": (1, 2)}


def test_a_handle_that_was_only_rendered_again_is_no_difference():
    assert not between([], [], old_handles=[handle("v1", "a")], new_handles=[handle("v1", "a", revision=9)])


def test_the_keys_of_the_json_are_the_promised_ones():
    first = ran(1, "x", cell="c", state_diff=added(x=INT), artifacts=result("3"))
    second = ran(2, "x", cell="c", state_diff=changed(x=TypeInfo("int", "4")), artifacts=result("4"))

    found = between([first], [first, second], new_handles=[handle("v1", "h")]).to_json()

    assert found == {
        "namespace": {"added": [], "changed": [{"name": "x", "told": "int 3 → 4"}], "deleted": []},
        "outputs": [{"name": "s2 result", "told": "3 → 4", "before": "s1.1", "after": "s2.1"}],
        "handles": [{"name": "h", "how": "added", "told": "added, view of h.csv", "fields": {}}],
        "notes": [],
    }


# ---------------------------------------------------------------- laws

PROGRAM = st.lists(
    st.sampled_from(
        ["a = 1", "a = 2", "b = [a] if 'a' in globals() else []", "b = []", "c = 'x'", "globals().pop('a', 0)", "back"]
    ),
    min_size=1,
    max_size=12,
)


def branched(program: list[str]) -> tuple[Turns, dict[str, dict[str, str]]]:
    """Run the cells; `back` goes to the start, so that what follows is a branch."""
    turns = Turns()
    prints: dict[str, dict[str, str]] = {}
    for code in program:
        if code == "back":
            turns.goto(None)
            continue
        done = turns.run(code).execution
        touched = [*done.state_diff.added, *done.state_diff.changed]
        prints[done.execution_id] = {name: repr(turns.namespace[name]) for name in touched}
    return turns, prints


@given(PROGRAM)
def test_the_difference_is_that_of_the_namespaces_themselves(program: list[str]):
    """Whatever lies between two places, it is what comparing their states finds, and the way back is the reverse."""
    turns, prints = branched(program)
    log = turns.loop.log
    places = [
        None,
        *(run.execution_id for one in log for run in log.executions(one.statement_id) if one.kind == "python"),
    ]
    for here in places:
        for there in places:
            old, new = (turns.states[place].namespace for place in (here, there))

            found = differences(log.path(here), log.path(there), fingerprints=prints)
            back = differences(log.path(there), log.path(here), fingerprints=prints)

            assert {one.name for one in found.added} == new.keys() - old.keys()
            assert {one.name for one in found.deleted} == old.keys() - new.keys()
            assert {one.name for one in found.changed} == {n for n in old.keys() & new.keys() if old[n] != new[n]}
            assert {one.name for one in found.added} == {one.name for one in back.deleted}
            assert {one.name for one in found.changed} == {one.name for one in back.changed}


def test_of_each_kind_the_first_differences_are_shown_and_the_others_counted():
    """In a session of 30,000 cells `%ctx diff` printed 61 KB."""
    names = {f"n{at}": TypeInfo("int", str(at)) for at in range(70)}
    old = [ran(1, artifacts=result("a"), cell="c0")]
    new = [ran(1, artifacts=result("a"), cell="c0"), ran(2, state_diff=added(**names)), ran(3, state_diff=added(z=INT))]

    found = between(old, new)
    lines = found.text().splitlines()
    shown = differences_report("s1 → s3", found).text().splitlines()

    assert lines[:2] == ["+ n0: int 0", "+ n1: int 1"]
    assert lines[50:] == ["+ … 21 more; diff --json has all"]
    assert shown == ["s1 → s3", *lines]
    assert len(found.to_json()["namespace"]["added"]) == 71  # type: ignore[index, call-overload]
