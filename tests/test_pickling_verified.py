"""A copy of what was packed is compared with it, once for every type."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
from pickling_rows import Box

from ctxkernel.core.settings import Settings
from ctxkernel.state.looking import Looker
from ctxkernel.state.verification import Verifier

LIBRARY = """
class Forgets:
    def __init__(self, x): self.x = x
    def __reduce__(self): return Forgets, (0,)
class Keeps:
    def __init__(self, x): self.x = x
class Fails:
    def __init__(self, x): self.x = x
    def __setstate__(self, state): raise ValueError('never')
class Alone:
    def __init__(self, x): self.x = x
    def __reduce__(self): return Alone, (list(self.x),)
"""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module as if it had been imported."""
    module = types.ModuleType("some_library")
    exec(LIBRARY, module.__dict__)
    monkeypatch.setitem(sys.modules, "some_library", module)
    return module


def verifier(box: Box) -> Verifier:
    looker = Looker(box.namespace, Settings(), lambda _: False)
    return Verifier(box.packer, lambda value: looker.look(looker.batch(lambda: False), value))


def check(box: Box, one: Verifier, *names: str) -> dict[str, str]:
    return one.check(box.pack(*names), box.values(*names))


def test_a_type_that_does_not_come_back_equal_is_found(library: Any):
    """Of the names in a pack those are named whose copy differs; the type is remembered as bad."""
    box = Box("from some_library import *\na = Forgets(5); b = [Fails(1)]; c = Keeps([1]); d = [1]")
    one = verifier(box)

    found = check(box, one, "a"), check(box, one, "b"), check(box, one, "c", "d")

    assert found[0] == {"a": "its copy is not equal to it"}
    assert "ValueError: never" in found[1]["b"]
    assert found[2] == {}
    assert set(one.bad) == {"some_library.Forgets", "some_library.Fails"}


def test_values_that_share_no_more_are_found(library: Any):
    """Each copy is equal by itself, and they have stopped sharing an object."""
    box = Box("from some_library import *\nx = [1]; a = Alone(x)")

    assert set(check(box, verifier(box), "a", "x")) == {"a", "x"}


def test_a_type_that_was_good_is_not_looked_at_again(library: Any, monkeypatch: pytest.MonkeyPatch):
    """Plain data never, a library's type once."""
    box = Box("from some_library import *\nimport numpy as np\na = Keeps(1); b = Keeps(2); c = [1]; e = np.arange(5)")
    one = verifier(box)
    check(box, one, "a")
    check(box, one, "e")
    monkeypatch.setattr(box.packer, "unpack", None)

    assert check(box, one, "b") == check(box, one, "c") == check(box, one, "e", "a") == {}


def test_a_trial_runs_no_more_of_the_users_code_than_a_return_would():
    """What would run when the copy goes, and constructors, are left alone; the methods of pickling are run."""
    box = Box("""
        ran = []
        class A:
            def __setstate__(self, state): ran.append('setstate'); self.__dict__.update(state)
        class B:
            def __del__(self): ran.append('del')
        class C:
            def __new__(cls): ran.append('new'); return object.__new__(cls)
        class D:
            def __init__(self): self.x = 1
        a = A(); a.x = 1; b = B(); c = C(); d = D(); ran.clear()
    """)
    one = verifier(box)

    found = [check(box, one, name) for name in "abcd"]

    assert found == [{}] * 4
    assert box.namespace["ran"] == ["setstate"]
    assert box.pack("a", "b", "c", "d").runs == ("A.__setstate__", "B.__del__", "C.__new__")
    assert {label.split()[0] for label in one._good} == {"__main__.A", "__main__.D"}


def test_a_trial_leaves_classes_as_they_are():
    """The class that is in a pack is not taken for the one that has its uid."""
    box = Box("class A: pass\na = A()")
    cls = box.namespace["A"]
    uid = box.packer.uid(cls)
    packed = box.packer.pack({f"class:{uid}": cls})

    verifier(box).check(packed, {f"class:{uid}": cls})

    assert box.packer.class_of(uid) is cls


def test_arrays_and_what_is_alive_only_are_no_faults():
    """A lock is another one afterwards, and a generator itself: neither is a difference."""
    box = Box("""
        import numpy as np, threading
        a = np.arange(20_000.); v = a[::2]; d = {'lock': threading.Lock(), 'gen': (i for i in a), 'x': [v]}
    """)

    assert check(box, verifier(box), "a", "v", "d") == {}
    assert np.array_equal(box.namespace["a"], np.arange(20_000.0))
