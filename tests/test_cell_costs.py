"""The work around a cell does not grow with what the session holds: counts of looks, in place of times."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tracker_rows import Notebook

from ctxkernel.core.settings import Settings
from ctxkernel.state.tracking import fingerprints, piece_prints
from ctxkernel.state.tracking.fingerprints import content_fingerprint
from ctxkernel.state.tracking.groups import Moment
from ctxkernel.state.tracking.stream_trees import values_of
from ctxkernel.state.types import written_memory
from ctxkernel.state.types.memory_blocks import WrittenMemory

HELD = {
    "arrays": "np.arange(9.0)",
    "frames": "pd.DataFrame({'a': [n]})",
    "lists of arrays": "[np.arange(9.0)]",
    "instances": "Own(n)",
}


def calls_of(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, run: Callable[[], object]) -> int:
    """Return how often a function is called while `run` runs."""
    called, real = list[None](), getattr(owner, name)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *args, **more: (called.append(None), real(*args, **more))[1])
        run()
    return len(called)


@pytest.mark.parametrize("made", HELD.values(), ids=HELD)
def test_a_cell_that_changes_a_frame_examines_the_memory_of_no_other_variable(
    monkeypatch: pytest.MonkeyPatch, made: str
):
    """Whether a variable can write to the names of its columns is known from earlier cells."""
    own = "class Own:\n    def __init__(self, n): self.n = np.full(9, n)\n"
    notebook = Notebook(
        own + f"df = pd.DataFrame({{'a': range(9)}})\nfor n in range(300): globals()[f'v{{n}}'] = {made}"
    )
    notebook.run("df.loc[1, 'a'] = -1")

    def cell() -> None:
        assert set(notebook.run("df.loc[2, 'a'] = -2").changed) == {"df"}

    assert calls_of(monkeypatch, written_memory, "_memory", cell) < 5


def test_the_class_of_many_instances_is_examined_once_for_their_fingerprint(monkeypatch: pytest.MonkeyPatch):
    """Which of its attributes are no content is the same for each of them."""
    notebook = Notebook("class Own:\n    def __init__(self, n): self.n = [n]\nrows = [Own(n) for n in range(500)]")

    def cell() -> None:
        assert set(notebook.run("rows[7].n.append(1)").changed) == {"rows"}

    assert calls_of(monkeypatch, piece_prints, "AttributePlan", cell) < 5


def test_the_fingerprint_of_many_instances_causes_no_collection_of_all_objects():
    """Its thousands of nodes are freed together, and a collection looks at all objects of a long session."""
    notebook = Notebook("class Own:\n    def __init__(self, n): self.n = [n]\nrows = [Own(n) for n in range(2000)]")
    collected: list[int] = []

    def note(phase: str, _info: object) -> None:
        frame = sys._getframe()
        while phase == "start" and (frame := frame.f_back) is not None:
            if frame.f_code is content_fingerprint.__code__ or frame.f_code is values_of.__code__:
                collected.append(1)

    gc.callbacks.append(note)
    try:
        notebook.run("rows[7].n.append(1)")
    finally:
        gc.callbacks.remove(note)

    assert not collected
    assert gc.isenabled()


def test_names_that_are_compared_one_by_one_examine_the_memory_of_the_others_once(monkeypatch: pytest.MonkeyPatch):
    """Three hundred frames that were deferred: each is packed at a moment of its own."""
    notebook = Notebook(
        "for n in range(300): globals()[f'v{n}'] = pd.DataFrame({'a': [n]})",
        may_defer=lambda: True,
        settings=Settings(end_phase_ms=10),
    )
    everything = "; ".join(f"v{n}" for n in range(300))

    def cell() -> None:
        notebook.run(f"{everything}; v7.loc[0, 'a'] = -1", lambda: True)

    assert calls_of(monkeypatch, written_memory, "_memory", cell) < 1000


def test_deferred_names_are_compared_one_by_one_only_while_time_is_left(monkeypatch: pytest.MonkeyPatch):
    """Each of two thousand lists is quick, and all of them are not: the rest is left to the background."""
    notebook = Notebook(
        "for n in range(2000): globals()[f'v{n}'] = [[n]]", may_defer=lambda: True, settings=Settings(end_phase_ms=10)
    )
    everything = "; ".join(f"v{n}" for n in range(2000))

    def cell() -> None:
        assert "still being compared" in notebook.run(f"{everything}; v7.append(1)", lambda: True).incomplete

    assert calls_of(monkeypatch, type(notebook.tracker.packer), "pack", cell) < 1000


class CountedGroups(dict[str, Any]):
    """Groups by name, and how often one was asked for."""

    asked = 0

    def get(self, *args: Any) -> Any:
        self.asked += 1
        return super().get(*args)


def asked_for(count: int, cell: str) -> int:
    """Return how often a group is asked for when a cell runs beside `count` lists that share an object."""
    notebook = Notebook("shared = {}", f"for n in range({count}): globals()[f'v{{n}}'] = [shared, n]")
    notebook.run("v1.append(1)")
    groups = notebook.tracker._groups = CountedGroups(notebook.tracker._groups)
    notebook.run(cell)
    return groups.asked


@pytest.mark.parametrize("cell", ["v1.append(2)", "shared['a'] = 1", "v1 = 5", "del v1", "x = f"], ids=str)
def test_variables_that_share_an_object_are_looked_up_a_few_times_each(cell: str):
    """Twice as many of them need twice the look-ups, and not four times."""
    cell = cell.replace("x = f", "for n in range(20): globals()[f'v{n}'] = n")

    assert asked_for(400, cell) < 2.2 * asked_for(200, cell)


def test_once_the_time_for_packing_has_passed_nothing_more_is_packed_together(monkeypatch: pytest.MonkeyPatch):
    """The names that are left are deferred without a try, and each is compared by itself as far as time is left."""
    notebook = Notebook("for n in range(2000): globals()[f'v{n}'] = [[n]]", "for n in range(2000): globals()[f'v{n}']")
    tracker = notebook.tracker
    moment = Moment(tracker.packer, tracker._value, seconds=1e-9)

    names = [(f"v{n}",) for n in range(2000)]
    packed = calls_of(monkeypatch, type(tracker.packer), "pack", lambda: moment.pack(names))

    assert packed == 1
    assert not moment.pieces
    assert sorted(moment.deferred) == sorted(names)


def visits_of(monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """Return how many numbers are written to compare `count` functions over one dict that a cell changes."""
    notebook = Notebook(
        "def make(held):\n    return lambda: held",
        f"held = {{n: n for n in range(5000)}}\nfor n in range({count}): globals()[f'v{{n}}'] = make(held)",
        "held[0] = 1",
    )

    def cell() -> None:
        diff = notebook.run("held[0] = 2")
        assert set(diff.changed) == {"held", *(f"v{n}" for n in range(count))}

    return calls_of(monkeypatch, fingerprints, "_written", cell)


def test_an_object_that_many_variables_share_is_not_compared_anew_for_each(monkeypatch: pytest.MonkeyPatch):
    """The functions beyond a bound count as changed by their bytes, so that no change is missed."""
    assert 2 * 10 * fingerprints.MOST_NODES > visits_of(monkeypatch, 100) < 1.2 * visits_of(monkeypatch, 50)


# -- what is known of the memory of variables is what is there ------------------------------------


def known(memory: WrittenMemory, *values: Any) -> list[Any]:
    """Return the values that are to be examined, and take in the memory of those that are arrays."""
    found = [values[at] for at in memory.unexamined(values)]
    for one in found:
        if isinstance(one, np.ndarray):
            memory.put(one, [(one.ctypes.data, one.ctypes.data + one.nbytes)])
    return found


def holds(memory: WrittenMemory, arr: np.ndarray[Any, Any]) -> bool:
    return memory.overlaps(arr.ctypes.data, arr.ctypes.data + 1)


def test_memory_is_known_until_its_last_variable_is_gone():
    """An array that two names stand for, and many more than a few that go at once."""
    memory, a, b = WrittenMemory(), np.ones(9), np.ones(9)
    many = [np.ones(3) for _ in range(100)]
    assert len(known(memory, a, b, a, *many)) == 102
    assert holds(memory, a)
    assert holds(memory, many[99])

    assert known(memory, b, a) == []
    assert holds(memory, a)
    assert holds(memory, b)
    assert not any(holds(memory, one) for one in many)

    known(memory, b)
    assert not holds(memory, a)
    assert holds(memory, b)


def test_a_value_is_examined_again_once_it_was_touched_or_another_has_its_address():
    """A resized array lies elsewhere; a new one may get the address of a collected one."""
    memory, held = WrittenMemory(), [np.ones(9)]
    known(memory, held[0], "text")
    assert known(memory, held[0], "text") == []

    memory.forget(held[0])
    assert len(known(memory, held[0], "text")) == 1

    held[0] = pd.Series([1.0])
    memory.put(held[0], [(1, 2)])
    held.clear()
    assert len(memory._again) == 1


def test_values_that_nobody_asks_about_are_not_noted_for_ever():
    """A session without frames touches values in each cell, and never asks."""
    memory = WrittenMemory()
    known(memory, np.ones(3))
    kept = [object() for _ in range(20_000)]

    for one in kept:
        memory.forget(one)

    assert len(memory._again) <= 10_000
    assert known(memory, *kept[:3]) == kept[:3]


def test_an_object_of_a_background_job_that_is_gone_is_searched_near_the_values_only(monkeypatch: pytest.MonkeyPatch):
    """Classes and functions lead to modules, and so to all objects of the process."""
    notebook = Notebook("import json\nclass Own:\n    def look(self): return json\nowns = [Own() for _ in range(9)]")
    packer = notebook.tracker.packer

    def search() -> None:
        assert packer.adopt([("shared:gone", 1, "ndarray")], [notebook.namespace["owns"]]) == {}

    assert calls_of(monkeypatch, gc, "get_referents", search) < 100


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("held = [{'a': (array,)}]", id="containers"),
        pytest.param("def held(one=[array]): pass", id="default"),
        pytest.param("def outer():\n    inner = array\n    return lambda: inner\nheld = outer()", id="closure"),
        pytest.param("class Own:\n    of_class = [array]\nheld = Own()", id="class"),
        pytest.param("class Own: pass\nheld = Own(); held.a = array[1:]", id="view"),
    ],
)
def test_an_array_of_a_background_job_is_found_wherever_a_value_holds_it(made: str):
    """The garbage collector does not know arrays."""
    notebook = Notebook(f"import numpy as np\narray = np.arange(9.0)\n{made}")
    packer, array = notebook.tracker.packer, notebook.namespace["array"]

    others = packer.adopt([("shared:found", id(array), "ndarray")], [notebook.namespace["held"]])

    assert packer.part_of(others.get("shared:found", "shared:found")) is array


TOGETHER = {
    "a figure and its axes": "fig, ax = plt.subplots(2, 2)",
    "axes, and the figure of one": "first = plt.subplots(2, 2)[1]; second = first[0, 0].figure",
    "two names of axes": "first = second = plt.subplots()[1]",
    "lines, and a text": "first = plt.plot([1, 2]); second = plt.title('t')",
}


@pytest.mark.parametrize("cell", TOGETHER.values(), ids=TOGETHER)
def test_names_that_a_cell_gives_to_parts_of_one_figure_are_packed_once_together(
    monkeypatch: pytest.MonkeyPatch, cell: str
):
    """Each by itself, and then together, would be three packs of a figure."""
    notebook = Notebook("import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt")
    notebook.run("made = plt.subplots()")

    packed: list[set[str]] = []
    pack = type(notebook.tracker.packer).pack
    monkeypatch.setattr(
        type(notebook.tracker.packer),
        "pack",
        lambda self, values, **more: (packed.append({*values}), pack(self, values, **more))[1],
    )
    notebook.run(cell)

    assert [names for names in packed if names & {"fig", "ax", "first", "second"}] in (
        [{"fig", "ax"}],
        [{"first", "second"}],
    )
