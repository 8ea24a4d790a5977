"""Classes whose metaclass refuses to be compared or hashed: they cost no other variable anything."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pandas as pd
import pytest
from kernels import RunningKernel

from ctxkernel.testing.renderings import opened, render

REFUSES = "raise RuntimeError('it refuses')"
MAKES = """
class Refusing(type):
    def __eq__(self, other): {equal}
    def __hash__(self): raise RuntimeError('it refuses')
class One(metaclass=Refusing):
    def __init__(self, v=0): self.v = v
"""


def made() -> Any:
    namespace: dict[str, Any] = {}
    exec(MAKES.format(equal=REFUSES), namespace)
    return namespace["One"]


One = made()
OBJECTS = np.empty(1, dtype=object)
OBJECTS[0] = One()
TARGETS = [
    *(
        One(),
        One,
        [One(1), 2],
        {"a": One(3)},
        [{"id": One(1)}, {"id": One(2)}] * 20,
        (One(),),
        {"x": {"y": [One()] * 3}},
    ),
    *(pd.DataFrame({"o": [One(1), One(2)]}), pd.Series([One()]), OBJECTS),
    *({One(1)}, collections.deque([One()]), ValueError(One())),
]


@pytest.mark.parametrize("lod", range(4))
@pytest.mark.parametrize("at", range(len(TARGETS)))  # pytest compares what it passes on
def test_a_view_shows_what_holds_them(at: int, lod: int):
    assert "refuses" not in render(opened(TARGETS[at]), lod, tokens=200).text


@pytest.mark.parametrize("equal", [REFUSES, "return True"], ids=["refuses", "always equal"])
def test_a_notebook_with_one_is_tracked_restored_and_run_again(kernel: RunningKernel, equal: str):
    cells = [MAKES.format(equal=equal) + "one, many = One(), [One(1), 2]", "one.v = 1", "many.append(One(4))"]
    for cell in cells:
        assert kernel.run(cell).outputs[2:] == []

    assert kernel.run("%ctx goto 2").stdout.startswith("at s2: 1 name restored (many), ")
    assert kernel.run("print(one.v, type(one) is One, len(many))").stdout == "1 True 2\n"
    assert "2 as before, 0 different" in kernel.run("%ctx rerun 2..3").stdout
