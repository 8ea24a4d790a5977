"""What a cell changed is found, and nothing else is named."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optional_libraries import optional
from tracker_rows import CHANGES, DECORATED, DECORATORS, LIBRARIES, UNCHANGED, Case, Notebook, names

from ctxkernel.state.base.namespace import NameSnapshot, name_differences
from ctxkernel.state.tracking import fingerprints
from ctxkernel.state.tracking.groups import Group, print_of
from ctxkernel.state.tracking.packed_variables import PACK_SHARE
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.state.types.packer import Packer


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.id)
def test_a_change_is_found_and_no_other_name_is_said(case: Case):
    """Exactly the names that a cell added, changed and deleted are in its diff."""
    notebook = Notebook(case.setup)

    diff = notebook.run(case.cell)

    assert set(diff.added) == names(case.added)
    assert set(diff.changed) == names(case.changed)
    assert set(diff.deleted) == names(case.deleted)
    assert diff.incomplete == ""
    assert not notebook.outside
    if case.how:
        assert {change.how for change in diff.changed.values()} == {case.how}


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case.id)
def test_looking_again_finds_nothing(case: Case):
    """A look changes nothing that another look would see; mentioning every name is no change."""
    notebook = Notebook(case.setup, case.cell)

    mentioned = "; ".join(name for name in notebook.tracker.names() if name not in ("np", "pd")) or "pass"
    diffs = [notebook.run(mentioned), notebook.run("pass"), notebook.run(mentioned)]

    assert [bool(diff) for diff in diffs] == [False] * 3


@pytest.mark.parametrize(("setup", "cell"), [row[1:] for row in UNCHANGED], ids=[row[0] for row in UNCHANGED])
def test_what_is_equal_afterwards_is_no_change(setup: str, cell: str):
    """Reading, and binding a name to equal content, name nothing that was there before."""
    notebook = Notebook(setup)

    diff = notebook.run(cell)

    assert not diff.changed
    assert not diff.deleted


@pytest.mark.parametrize(("module", "setup", "cell", "changed"), LIBRARIES)
def test_changes_in_objects_of_libraries(module: str, setup: str, cell: str, changed: str):
    """What a library keeps for itself while its objects are read, drawn or used to predict is no change."""
    start = ""
    if module == "torch":
        optional("torch")
    if module == "matplotlib":
        start = "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt\n"
    notebook = Notebook(start + setup)

    diff = notebook.run(cell)

    assert set(diff.changed) == names(changed)
    assert diff.incomplete == ""


def test_a_cell_of_definitions_can_be_run_again():
    """Running the same definitions again changes no name."""
    notebook = Notebook(DECORATORS, DECORATED)

    diff = notebook.run(DECORATED)

    assert not diff


def test_a_new_object_with_equal_content_is_told_to_checkpoints_only():
    """`rebound` has what the diff leaves out: the object is another one."""
    notebook = Notebook("x = [1]; keep = x; y = [1]")

    diff = notebook.run("x = [1]")

    assert not diff
    assert notebook.tracker.rebound == {"x"}


# -- addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "cell"),
    [
        ("x = [0]", "x = None; x = [{i}]"),
        ("x = {{'a': 0}}", "del x; x = {{'a': {i}}}"),
        ("x = {i}.5", "x = None; x = {i} + 1.5"),
        ("class P: pass\nx = P(); x.i = 0", "x = None; x = P(); x.i = {i}"),
        ("def f():\n global x\n x = None; x = [{i}]\nx = [0]", "f(); x[0] = {i} + 7"),
        ("x = np.zeros(3)", "x = None; x = np.full(3, {i})"),
    ],
)
def test_an_object_at_the_address_of_the_last_one_is_another_one(setup: str, cell: str):
    """Python reuses an address at once; the content, or the weak reference, tells."""
    for i in range(1, 30):
        notebook = Notebook(setup.format(i=i))

        assert set(notebook.run(cell.format(i=i)).changed) == {"x"}


def test_opaque_objects_at_one_address_are_told_apart_by_weak_reference():
    """Two objects of a type without attributes have no content that differs."""
    notebook = Notebook("import threading; x = threading.Lock()")

    told = [set(notebook.run("x = None; x = threading.Lock()").changed) for _ in range(20)]

    assert told == [{"x"}] * 20


# -- names -------------------------------------------------------------------------------------


def test_only_the_users_names_count():
    """What IPython keeps in the namespace, and what is hidden, is no variable; a private name is one."""
    notebook = Notebook(hidden=lambda: {"injected"})

    diff = notebook.run(
        "_ = _i = _ii = _i12 = _7 = In = Out = _oh = _dh = __nonzero__ = injected = 1\n_mine = __version__ = _x1 = 2"
    )

    assert set(diff.added) == {"_mine", "__version__", "_x1"}


def test_annotations_are_no_variable():
    """`x: int = 1` makes `__annotations__`, which is not the user's."""
    assert set(Notebook().run("x: int = 1").added) == {"x"}


def test_variables_come_newest_change_first():
    """The order is that of the last change, and descriptions are those of that moment."""
    notebook = Notebook("a = 1", "b = [2]", "c = 3", "a = 10")

    rows = notebook.tracker.variables(3)

    assert [name for name, _ in rows] == ["a", "c", "b"]
    assert [info.repr for _, info in rows] == ["10", "3", "[2]"]
    assert notebook.tracker.total == 5  # np and pd were there before


def test_handles_are_followed_by_name_only():
    """A handle is added, rebound and deleted, but what happens inside it is not a change of the name."""

    class Handle:
        obj_id = "v1"

    namespace: dict[str, Any] = {"__name__": "__main__"}
    packer = Packer(namespace, is_handle=lambda value: type(value) is Handle)
    notebook = Notebook(namespace=namespace, packer=packer)
    notebook.namespace["Handle"] = Handle
    notebook.run("h = Handle(); k = h")

    assert not notebook.run("h.x = [1]")
    assert set(notebook.run("h = Handle(); h.obj_id = 'v2'").changed) == {"h"}
    assert notebook.run("del h").deleted == ("h",)


def stored_with(notebook: Notebook, name: str) -> set[str]:
    """Return the names that are stored together with one."""
    return set(notebook.tracker._groups[name].names)


def test_a_group_is_what_shares_objects():
    """Checkpoints save together what shares an object; an array that several names look into has a pack of its own."""
    notebook = Notebook("a = [1]; d = {'k': a}; v = np.arange(9); w = v[2:]; z = [1]")

    assert stored_with(notebook, "a") == {"a", "d"}
    assert stored_with(notebook, "w") == {"w"}
    assert stored_with(notebook, "z") == {"z"}


@pytest.mark.parametrize(
    "cell", ["a.append(b)", "a += [[n] for n in range(5_000)] + [b]", "a = [[n] for n in range(5_000)] + [b]"]
)
def test_names_that_come_to_share_an_object_are_one_group(cell: str):
    """They are packed at one moment, so an id is one object."""
    notebook = Notebook("a = []; b = [1]; z = [1]")
    notebook.run(cell)

    assert stored_with(notebook, "b") == stored_with(notebook, "a") == {"a", "b"}


def plotted(*cells: str) -> Notebook:
    return Notebook(
        "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt; plt.close('all')", *cells
    )


@pytest.mark.parametrize(
    "drawn",
    [
        "plot([1, 2])",
        "imshow(np.eye(2))",
        "bar(['a', 'b'], [1, 2])",
        "pie([1, 2])",
        "plot(pd.date_range('2020', periods=2), [1, 2])",
    ],
)
def test_figures_that_a_cell_touches_at_once_are_no_group(drawn: str):
    """They have paths, colors and settings of matplotlib in common, which nobody changes."""
    notebook = plotted(*(f"f{n}, a{n} = plt.subplots(); p{n} = a{n}.{drawn}; f{n}.canvas.draw()" for n in (0, 1)))
    notebook.run("f0, f1")

    assert [stored_with(notebook, f"f{n}") for n in (0, 1)] == [{f"f{n}", f"a{n}", f"p{n}"} for n in (0, 1)]


def test_lists_of_matplotlib_that_variables_hold_are_shared_objects():
    notebook = plotted("limits = plt.rcParams['axes.formatter.limits']; again = [limits]; other = [limits]")

    assert stored_with(notebook, "limits") == stored_with(notebook, "other") == {"limits", "again", "other"}


def test_a_new_figure_is_packed_once_however_many_of_its_parts_have_names(monkeypatch: pytest.MonkeyPatch):
    """Together with the names that lie in it."""
    packs: list[tuple[str, ...]] = []
    pack = Packer.pack
    monkeypatch.setattr(
        Packer, "pack", lambda self, values, **how: packs.append((*values,)) or pack(self, values, **how)
    )
    plotted("f, a = plt.subplots(3, 3); lines = a[0, 0].plot([1, 2]); title = a[0, 1].set_title('t'); n = [1]")

    of_figure = [names for names in packs if not {"f", "a", "lines", "title"}.isdisjoint(names)]
    assert of_figure == [("a", "f", "lines", "title")], packs


def test_a_long_cell_gives_as_much_time_for_packing_as_it_took_within_bounds():
    notebook = Notebook("import time")
    notebook.run("x = 1")
    short = notebook.tracker._cell_seconds
    notebook.run("end = time.thread_time() + 0.2\nwhile time.thread_time() < end: pass")

    bound = notebook.tracker.settings.end_phase_ms / 1000
    assert (short, notebook.tracker._cell_seconds) == (bound * PACK_SHARE, bound * 0.6)


def test_a_fingerprint_is_equal_for_equal_content():
    """Divergence compares variables of two runs by content."""
    one, other = Notebook("x = [1, {'k': 2.5}]; y = 3"), Notebook("x = [1, {'k': 2.5}]; y = 4")

    assert one.tracker.fingerprint("x") == other.tracker.fingerprint("x") != ""
    assert one.tracker.fingerprint("y") != other.tracker.fingerprint("y")


@pytest.mark.parametrize("shared", ["[1]", "np.arange(9)", "[np.arange(9)]"])
def test_the_fingerprint_of_a_class_that_shares_an_object_with_a_variable_is_that_of_its_content(shared: str):
    """Its label differs in each run, so a re-run of its cell would differ each time."""
    one, again, other = (
        Notebook(f"c = {shared}", f"class A:\n    z, n = c, {n}", "B = A; i = [A, c]") for n in (1, 1, 2)
    )

    for name in "AB":
        assert one.tracker.fingerprint(name) == again.tracker.fingerprint(name) != other.tracker.fingerprint(name)


@pytest.mark.parametrize(
    "cell",
    ["A.z = {}", "type(a).z = {}", "bump({})", "A.f = lambda s, k={}: k", "v[2] = {}", "w[0] = {}", "d['v'][2] = {}"],
)
def test_a_fingerprint_follows_a_change_inside_of_an_object_with_a_pack_of_its_own(cell: str):
    """The pack of a variable stays the same then, as it only refers to the class or to the memory."""
    setup = """
        class A:
            pass
        a = A(); B = A; l = [A]
        def bump(by):
            A.n = by
        v = np.arange(5.); w = v[2:]; d = {'v': v}
    """
    one, again, other = (Notebook(setup, cell.format(n)) for n in (7, 7, 8))

    known = {name: one.tracker.fingerprint(name) for name in (("v", "w", "d") if cell[0] in "vwd" else ("A", "B"))}
    assert any(known.values())
    for name, text in known.items():
        assert text == again.tracker.fingerprint(name)
        assert not text or text != other.tracker.fingerprint(name)


# -- outside of a cell -------------------------------------------------------------------------


def test_what_changed_between_two_cells_is_said_before_the_next():
    """A callback or thread that adds, binds or deletes a name is no part of a cell."""
    notebook = Notebook("a = 1; b = 2; c = [3]")
    notebook.namespace.update(a=5, z=6)
    del notebook.namespace["b"]

    diff = notebook.run("pass")

    assert not diff
    assert set(notebook.outside.added) == {"z"}
    assert set(notebook.outside.changed) == {"a"}
    assert notebook.outside.deleted == ("b",)


def test_a_small_object_that_silent_code_changed_is_not_blamed_on_the_next_cell():
    """The next cell that touches it finds it different before it runs."""
    notebook = Notebook("c = [3]")
    notebook.namespace["c"].append(4)
    notebook.tracker.refresh = True

    diff = notebook.run("c.append(5)")

    assert set(notebook.outside.changed) == {"c"}
    assert set(diff.changed) == {"c"}
    assert diff.changed["c"].before == "[3, 4]"


def test_what_was_there_before_the_tracker_is_known():
    """Loaded into a running kernel, the tracker takes what it finds as it is."""
    namespace: dict[str, Any] = {"__name__": "__main__", "a": [1], "n": 1, "b": [2]}
    namespace["c"] = {"k": namespace["a"]}
    tracker = NamespaceTracker(namespace)

    assert not tracker.before("a.append(2)")
    namespace["a"].append(2)
    diff = tracker.after(lambda: False)

    assert tracker.total == 4
    assert set(diff.changed) == {"a", "c"}


def test_rebase_takes_a_restored_namespace_as_it_is():
    """After a restore nothing is reported, and the next change is."""
    notebook = Notebook("a = [1]; b = [2]; c = 3")
    notebook.namespace.update(a=[9], c=8, d=7)
    del notebook.namespace["b"]

    notebook.tracker.rebase(["a", "c"])
    quiet = notebook.run("pass")
    diff = notebook.run("a.append(1); c = 9")

    assert not quiet
    assert not notebook.outside
    assert set(diff.changed) == {"a", "c"}


@pytest.mark.parametrize("how", ["verify_next", "look_outside"])
def test_what_no_cell_touched_is_found_when_everything_is_looked_at(how: str):
    """C code or a thread may change a list that no cell mentions: the next look is told, and says since when."""
    notebook = Notebook("a = [1]; b = [2]", "b.append(1)")
    notebook.namespace["a"].append(5)

    look = getattr(notebook.tracker, how)
    look(*(["a thread ran"] if how == "look_outside" else []))
    notebook.run("pass")

    assert set(notebook.outside.changed) == {"a"}
    assert notebook.tracker.doubts == {"a": 1}
    assert not notebook.run("a")


# -- snapshots ---------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3)), max_size=12), st.data())
def test_a_snapshot_tells_names_added_moved_and_gone(items: list[tuple[str, int]], data: st.DataObject):
    """By order of the names or not, the differences are those of two dicts compared by identity."""
    pool = [object() for _ in range(4)]
    old = {name: pool[at] for name, at in items}
    new = dict(old)
    for name, at in data.draw(st.lists(st.tuples(st.sampled_from("abcdefghij"), st.integers(-1, 3)), max_size=6)):
        if at < 0:
            new.pop(name, None)
        else:
            new[name] = pool[at]

    added, moved, gone = name_differences(NameSnapshot(old), NameSnapshot(new))

    assert set(added) == new.keys() - old.keys()
    assert set(gone) == old.keys() - new.keys()
    assert set(moved) == {name for name in old.keys() & new.keys() if old[name] is not new[name]}


# -- any program -------------------------------------------------------------------------------

NAMES = "abcde"
NAME = st.sampled_from(NAMES)
TEMPLATES = [
    "{a} = [{n}, {m}]",
    "{a} = {{'k': {n}}}",
    "{a} = {n}",
    "{a} = {b}",
    "{a} = [{b}, {c}]",
    "{a} = {{'x': {b}, 'y': {c}}}",
    "{a} = ({b}, {n})",
    "{a} = np.arange({n} + 2)",
    "{a} = {b}[1:]",
    "{a} = {b}.reshape(-1, 1)",
    "{a} = {{{n}, {m}}}",
    "{a}.append({n})",
    "{a}.append({b})",
    "{a}.add({n})",
    "{a}[0] = {n}",
    "{a}[0] = {b}",
    "{a}['k'] = {b}",
    "{a}[...] = {n}",
    "{a} += [{n}]",
    "{a} += {n}",
    "{a}.clear()",
    "{a}.update(z={b})",
    "{a}[0].append({n})",
    "{a}['x'].append({n})",
    "{a}.pop()",
    "del {a}",
    "{a} = None; {a} = [{n}]",
    "{a}, {b} = {b}, {a}",
    "{a} = P(); {a}.v = {b}",
    "{a}.v.append({n})",
    "{a}.v = {n}",
    "{a} = pd.Series([{n}, {m}])",
    "{a}.iloc[0] = {n}",
    "{a} = lambda: {b}.append({n})",
    "{a}()",
    "globals()['{a}'] = [{n}]",
    "pass",
    "{a}; {b}",
]
LINE = st.builds(
    lambda template, a, b, c, n, m: template.format(a=a, b=b, c=c, n=n, m=m),
    st.sampled_from(TEMPLATES), NAME, NAME, NAME, st.integers(0, 4), st.integers(0, 4),
)  # fmt: skip
PROGRAM = st.lists(st.lists(LINE, min_size=1, max_size=3), min_size=1, max_size=8)


def content(value: Any, seen: dict[int, int]) -> Any:
    """Write a value down plainly: the oracle that the tracker is compared with."""
    kind = type(value)
    if kind in (int, float, str, type(None), bool, type(...)):
        return kind.__name__, repr(value)
    if kind is tuple and all(type(item) in (int, str) for item in value):
        return "tuple", repr(value)
    if id(value) in seen:
        return "again", seen[id(value)]
    seen[id(value)] = len(seen)
    if kind in (list, tuple):
        return kind.__name__, [content(item, seen) for item in value]
    if kind is dict:
        return "dict", [(content(key, seen), content(item, seen)) for key, item in value.items()]
    if kind is set:
        return "set", sorted(map(repr, value))
    if kind is np.ndarray:
        return "array", value.dtype.str, value.shape, value.tolist()
    if kind is pd.Series:
        more = {name: item for name, item in vars(value).items() if name not in ("_mgr", "_attrs", "_flags", "_name")}
        return "series", str(value.dtype), value.tolist(), repr(more)
    if kind.__name__ in ("P", "function"):
        code = getattr(value, "__code__", None)
        text = code and (code.co_code, code.co_names, code.co_consts)
        return kind.__name__, text, [(name, content(item, seen)) for name, item in vars(value).items()]
    raise AssertionError(kind)


@given(PROGRAM)
def test_any_program_is_followed_exactly(program: list[list[str]]):
    """For programs over lists, dicts, sets, arrays, series, objects, aliases and functions the diff is what an oracle
    finds that writes everything down before and after."""
    notebook = Notebook("class P: pass")
    namespace = notebook.namespace
    for lines in program:
        before = {name: content(namespace[name], {}) for name in NAMES if name in namespace}
        cell = "\n".join(f"try:\n    {line}\nexcept Exception:\n    pass" for line in lines)

        diff = notebook.run(cell)

        after = {name: content(namespace[name], {}) for name in NAMES if name in namespace}
        assert set(diff.added) == after.keys() - before.keys(), cell
        assert set(diff.deleted) == before.keys() - after.keys(), cell
        assert set(diff.changed) == {name for name in before.keys() & after.keys() if before[name] != after[name]}, cell
        assert diff.incomplete == ""
        assert not notebook.outside


def test_another_module_being_imported_half_way_does_no_harm(monkeypatch: pytest.MonkeyPatch):
    """A library that is only half there is treated as absent."""
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "pyarrow", types.ModuleType("pyarrow"))

    assert set(Notebook("a = [1]").run("a.append(1)").changed) == {"a"}


def chain(length: int, last: tuple[str, ...] = (), key: bytes = b"last") -> dict[str, Group]:
    """Return groups of which each refers to the next one by two objects that both share."""
    made = {"x": Group(("x",), b"first", ("shared:0a", "shared:0b"), frozenset(), 0.0)}
    for n in range(length):
        below = (f"shared:{n + 1}a", f"shared:{n + 1}b") if n + 1 < length else last
        for part in "ab":
            name = f"shared:{n}{part}"
            made[name] = Group((name,), key if n + 1 == length else b"%d" % n, below, frozenset(), 0.0)
    return made


def test_the_fingerprint_of_large_data_has_all_that_they_share_and_looks_at_each_once():
    class Counted(dict[str, Group]):
        looks = 0

        def get(self, *given):
            self.looks += 1
            return super().get(*given)

    def of(groups: dict[str, Group]) -> str:
        return print_of(groups["x"], groups, "x")

    counted = Counted(chain(30))
    assert of(counted) == of(chain(30)) != of(chain(30, key=b"other"))
    assert counted.looks == 60
    renamed = {"x": Group(("x",), b"first", ("shared:y",), frozenset(), 0.0)}
    renamed["shared:y"] = Group(("shared:y",), b"last", (), frozenset(), 0.0)
    assert of(renamed).startswith("pack:")
    circle, longer = chain(3, last=("shared:0a",)), chain(4, last=("shared:0a",))
    assert of(chain(3)) != of(circle) != of(longer) != of(chain(4, last=("shared:0b",)))
    assert of(chain(5000)) == ""  # too many
    waits = chain(3) | {"shared:2b": Group(("shared:2b",), b"", (), frozenset(), 0.0)}
    assert of(waits) == "pack:"


ALIAS_CELLS = (
    *(
        "a = w[{n}]",
        "b = w[{n}]['k']",
        "c = w[1:3]",
        "a = {m}",
        "w = list(w)",
        "for r in w: pass",
        "del a",
        "a = b = 0",
    ),
    *("w[{n}]['v'] = {m}", "a['v'] = {m}", "b.append({m})", "w.append({{'k': [], 'v': 0}})", "len(w), a, b, c"),
)


@pytest.mark.parametrize("bytes_compared", [None, 0], ids=["small", "large"])
@given(st.lists(st.tuples(st.sampled_from(ALIAS_CELLS), st.integers(0, 4), st.integers(1, 3)), max_size=8))
def test_names_of_parts_of_one_value_are_listed_only_where_their_own_content_differs(
    bytes_compared: int | None, steps: list[tuple[str, int, int]]
):
    """Whatever they are stored with, and also where they are too large for fingerprints."""
    with pytest.MonkeyPatch.context() as patch:
        if bytes_compared is not None:
            patch.setattr(fingerprints, "COMPARED_BYTES", bytes_compared)
            patch.setattr(fingerprints, "PLAIN_BYTES", bytes_compared)
        notebook = Notebook("w = [{'k': [n], 'v': n} for n in range(5)]; a, b, c, r = {}, [], [], {}")
        for step, n, m in steps:
            before = {name: repr(notebook.namespace[name]) for name in "wabcr" if name in notebook.namespace}
            cell = step.format(n=n, m=m)
            found = notebook.run(f"try:\n    {cell}\nexcept (NameError, TypeError, AttributeError): pass")
            after = {name: repr(notebook.namespace[name]) for name in "wabcr" if name in notebook.namespace}
            differ = {name for name in before.keys() & after.keys() if before[name] != after[name]}
            assert ({*found.changed}, found.incomplete) == (differ, ""), cell
