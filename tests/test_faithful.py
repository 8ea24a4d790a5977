"""A value whose class says itself how it is stored is compared with a copy, each time that it is stored.

Where only attributes differ that its library does not store, it is inexact: a return restores it, and says so.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from pickling_rows import Box

from ctxkernel.state.checkpoints.copy_check import Unequal, unfaithful

LIBRARY = """
import numpy as np
class Forgets:
    def __init__(self, x): self.x = x
    def __reduce__(self): return Forgets, (0,)
class Keeps:
    def __init__(self, x): self.x = x
class Fails:
    def __init__(self, x): self.x = x; self.y = 2
    def __getstate__(self): return {'x': self.x}
    def __setstate__(self, state): raise ValueError('never')
class Alone:
    def __init__(self, x): self.x = x
    def __reduce__(self): return Alone, (list(self.x),)
class Ordered:
    def __init__(self, a, b): self.a, self.b = a, b
    def __reduce__(self): return in_other_order, (self.a, self.b)
def in_other_order(a, b):
    made = Ordered.__new__(Ordered); made.b, made.a = b, a
    return made
class Labels:
    def __init__(self, labels):
        self.labels = np.array(labels, object)
        self.parts = [slice(0, 2)] * 2
    def __reduce__(self): return as_views, (list(self.labels),)
def as_views(labels):
    made = Labels(labels); made.labels, made.parts = made.labels[:], [slice(0, 2), slice(0, 2)]
    return made
class Changes:
    def __init__(self, x): self.x = x
    def __reduce__(self): return Changes, (self.x + 1,)
class Cached:
    def __init__(self): self.held = {}
    def __getstate__(self): return {'held': {}}
class Symbol:
    def __new__(cls, *, name):
        made = object.__new__(cls); made.name, made.held = name, {}
        return made
    def __getnewargs_ex__(self): return (), {'name': self.name}
    def __getstate__(self): return None
"""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module as if it had been imported."""
    module = types.ModuleType("some_library")
    exec(LIBRARY, module.__dict__)
    monkeypatch.setitem(sys.modules, "some_library", module)
    return module


def check(box: Box, *names: str) -> dict[str, str]:
    """Return why names are lost; "inexact" for those that come back as their libraries store them."""
    packed = box.pack(*names)
    found = unfaithful(box.packer, packed, box.values(*names)) if packed.unproven else Unequal()
    return {**found.lost, **dict.fromkeys(found.inexact, "inexact")}


@pytest.mark.parametrize(
    ("cell", "names", "told"),
    [
        ("a = Forgets(5)", "a", {"a": "inexact"}),
        ("b = [Fails(1)]", "b", {"b": "ValueError: never"}),
        ("c = Keeps([1]); d = [1]", "cd", {}),
        ("x = [1]; a = Alone(x)", "ax", {"a": "share", "x": "share"}),
        ("e = Cached()", "e", {}),
        ("e = Cached(); e.held['k'] = 1", "e", {"e": "inexact"}),
        ("s = Symbol(name='x'); s.held['k'] = 1", "s", {"s": "inexact"}),
        ("o = Ordered([1], 2)", "o", {}),
        ("v = Labels(['a', None])", "v", {}),
        ("e = Changes(1)", "e", {"e": "its copy is not equal to it"}),
        ("class Own(Forgets): pass\na = Own(5)", "a", {"a": "its copy is not equal to it"}),
        ("a = [Forgets(5), *range(30_000)]", "a", {"a": "inexact"}),
        ("c = [Cached(), *range(30_000)]", "c", {}),
    ],
)
def test_a_value_that_does_not_come_back_equal_is_named(library: Any, cell: str, names: str, told: dict[str, str]):
    """Of the names in a pack those are named whose copy differs, or that share no more."""
    found = check(Box(f"from some_library import *\n{cell}"), *names)

    assert found.keys() == told.keys()
    assert all(text in found[name] for name, text in told.items())


def test_a_number_that_equals_another_part_of_the_state_is_no_proof():
    found = check(
        Box(
            "class A:\n    def __init__(self, x): self.x = x\n    def __setstate__(self, state): pass\n"
            "    def __reduce__(self): return A, (self.x,), (3, None)\na = A([1]); a.count = 3"
        ),
        "a",
    )

    assert found == {"a": "it can be stored, but its copy is not equal to it"}


def test_an_array_in_memory_of_a_librarys_compiled_code_comes_back_in_memory_of_its_own():
    box = Box("from scipy.spatial.transform import Rotation\nr = [Rotation.from_euler('x', 1.0)]")

    assert check(box, "r") == {"r": "inexact"}


def test_a_registry_of_units_comes_back_as_it_was():
    """Its units keep their hashes, and a copy has not computed them yet."""
    box = Box("import pint; units = pint.UnitRegistry(); length = 3 * units.metre")
    packed = box.pack("units", "length")

    found = unfaithful(box.packer, packed, box.values("units", "length"), forked=True)

    assert found == Unequal({})


def test_each_value_is_compared_and_not_each_type(library: Any):
    """A cache that was empty when a value was stored first may be full the next time."""
    box = Box("from some_library import *\ne = Cached()")
    assert check(box, "e") == {}

    box.run("e.held['k'] = [1]")

    assert set(check(box, "e")) == {"e"}


def test_a_class_of_the_users_is_stored_by_its_attributes_whatever_its_getstate_says():
    """What it would leave out comes back, and its code does not run."""
    box = Box("""
        class A:
            def __init__(self): self.kept, self.lost = 1, [2]
            def __getstate__(self): raise ValueError
            def __setstate__(self, state): raise ValueError
        a = A()
    """)

    back = box.back("a")["a"]

    assert (back.kept, back.lost) == (1, [2])


def test_what_cleans_up_is_not_copied_and_counts_as_not_faithful():
    """What would run when the copy goes does not run, and the value is named."""
    box = Box("""
        ran = []
        class B:
            def __del__(self): ran.append('del')
            def __reduce__(self): return B, ()
        b = B(); b.x = 1
    """)

    assert "B.__del__" in check(box, "b")["b"]
    assert box.namespace["ran"] == []


LOSSY = """
    import numpy as np
    class R:
        def __init__(self, a): self.a, self.b = a, 5
        def __reduce__(self): return R, (self.a,)
    class Made(R):
        def __new__(cls, a): made.append(a); return super().__new__(cls)
    made = []
"""


@pytest.mark.parametrize(
    ("cell", "fork"),
    [
        ("v = [R([n]) for n in range(20_000)]", {}),
        ("v = R(np.zeros(9_000_000))", {}),
        ("v = Made(1)", {"forked": True}),
        ("v = R('x' * 5_000_000)", {}),
    ],
)
def test_a_comparison_that_a_cell_would_wait_for_is_left_out_and_says_so(cell: str, fork: dict[str, bool]):
    """No bounded look is believed: with more time it finds that the copy lacks something."""
    box = Box(f"{LOSSY}    {cell}\n    for one in v if type(v) is list else [v]: one.b = 7\n")
    packed = box.pack("v")

    assert unfaithful(box.packer, packed, box.values("v"), bounded=True) is None
    assert "not equal" in unfaithful(box.packer, packed, box.values("v"), **fork).lost["v"]


def test_a_large_value_that_comes_back_equal_is_faithful():
    """However many objects it holds, and where its stored form leaves nothing out."""
    box = Box(f"{LOSSY}    v = [R([n]) for n in range(3_000)] + [R(np.zeros(9_000_000))]\n")

    assert check(box, "v") == {}


def test_arrays_in_what_a_class_stores_itself_come_back_as_they_are():
    """Also where their class makes one of them anew, and one is read-only."""
    box = Box("""
        import numpy as np
        class R:
            def __init__(self, a): self.a, self.b = a, np.arange(90_000.0); a.flags.writeable = False
            def __reduce__(self): return R, (self.a,)
        v = R(np.ones(200_000))
    """)

    assert check(box, "v") == {}


def test_a_comparison_leaves_classes_as_they_are():
    """The class that is in a pack is not taken for the one that has its uid."""
    box = Box("class A: pass\na = A()")
    cls = box.namespace["A"]
    uid = box.packer.uid(cls)
    packed = box.packer.pack({f"class:{uid}": cls})

    unfaithful(box.packer, packed, {f"class:{uid}": cls})

    assert box.packer.classes.object(uid) is cls
