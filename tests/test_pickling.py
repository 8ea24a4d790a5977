"""What is packed comes back as it was: content, and what is one object with what."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import scipy.special as sc
from pickling_cells import ROWS
from pickling_rows import Box, Row

CHANGING = ("a figure",)
"""What is changed by being asked for its state."""


def unmet(row: Row, found: dict[str, Any]) -> list[str]:
    """Return the expressions of a row that are not true."""
    return [each for each in row.holds if not eval(each, {"np": np, **found})]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_is_packed_comes_back_in_the_same_process(row: Row):
    """Content and identity are those of before; the values themselves are other objects."""
    box = Box(row.cell)

    found = box.back()

    assert not unmet(row, found)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_is_packed_comes_back_in_another_process(row: Row):
    """Nothing that is alive is needed: classes come from packs of their own."""
    box = Box(row.cell)

    found = box.elsewhere()

    assert not unmet(row, found)


@pytest.mark.parametrize("row", [row for row in ROWS if row.id not in CHANGING], ids=lambda row: row.id)
def test_what_did_not_change_is_packed_alike(row: Row):
    """Two packs of the same values are the same bytes, so that a checkpoint sees that nothing changed."""
    box = Box(row.cell)

    first = box.pack()
    for value in box.values().values():
        getattr(value, "__dict__", None)  # a partial makes its dict where one asks for it
    second = box.pack()

    assert first.stream == second.stream
    assert list(map(bytes, first.buffers)) == list(map(bytes, second.buffers))
    assert (first.parts, first.rebuilt, first.runs) == (*(second.parts, second.rebuilt, second.runs),)


def test_a_new_array_of_the_users_class_runs_no_code():
    """`__array_finalize__` may use a name that is not there yet, or count the arrays."""
    box = Box(
        "class Field(np.ndarray):\n    def __array_finalize__(self, other):\n"
        "        made.append(1); self.unit = getattr(other, 'unit', None)\n"
        "made = []; a = np.arange(5.0).view(Field); a.unit = ['m']; b = a[1:]; c = a[:0]\n"
        "o = np.array([a], object).view(Field)",
        np=np,
    )
    before = len(box.namespace["made"])

    found = box.back("a", "b", "c", "o")
    elsewhere = box.elsewhere("a", "b", "c", "o")

    assert len(box.namespace["made"]) == before
    for each in (found, elsewhere):
        assert each["b"].unit is each["a"].unit and each["a"].unit == ["m"] and np.shares_memory(each["a"], each["b"])
        assert {type(one).__name__ for one in each.values()} == {"Field"} and each["c"].shape == (0,)


BIG = """
import attrs, numpy as np
table = np.arange(6_000_000.0)
"""
CLASS = """
@attrs.define
class A:
    x: int
    y: list = attrs.field(factory=list)
    def total(self): return table.sum()
"""
FUNCTION = """
def A():
    scope = dict(globals())
    exec("def total(): return table.sum()", scope)
    return scope["total"]
A = A()
"""


@pytest.mark.parametrize(("cell", "least", "most"), [(CLASS, 0, 100_000), (FUNCTION, 48e6, 49e6)])
def test_of_a_copy_of_the_namespace_only_what_the_code_names_is_stored(cell: str, least: float, most: float):
    """attrs gives its functions a copy of all names as their globals: a class would weigh what the notebook does."""
    box = Box(BIG + cell)
    packs = [box.pack("A")]
    packs += [box.packer.pack({f"class:{uid}": one}) for uid, one in packs[0].classes.items()]

    size = sum(len(packed.stream) + sum(len(bytes(one)) for one in packed.buffers) for packed in packs)

    assert least <= size <= most


def test_no_module_is_asked_for_a_universal_function(monkeypatch: pytest.MonkeyPatch):
    """A universal function has no module: to ask thousands of others for it takes minutes, and may import more."""
    asked: list[str] = []
    monkeypatch.setattr(sys, "__getattr__", asked.append, raising=False)
    box = Box("import numpy as np, scipy.special as sc\nfunctions = [np.sin, sc.gamma, sc.erf]\n")

    functions = box.elsewhere("functions")["functions"]

    assert functions == [np.sin, sc.gamma, sc.erf]
    assert {"sin", "gamma", "erf"}.isdisjoint(asked)
