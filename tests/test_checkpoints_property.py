"""Law: going to N gives the namespace of N, with who shares what with whom; in any order, from any branch."""

from __future__ import annotations

import functools
import shutil
import tempfile
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples
from test_checkpoints import Bench

from ctxkernel.core.state_names import is_bound

NAMES = tuple("abcdef")
NEW_NAMES = tuple("ghi")

MAKE = (
    "{x} = {n}",
    "{x} = 'text {n}'",
    "{x} = [{n}, 'x']",
    "{x} = {{'k': {n}}}",
    "{x} = {{1, {n}}}",
    "{x} = {y}",
    "{x} = [{y}, {z}]",
    "{x} = ({y}, {z})",
    "{x} = {{'y': {y}, 'z': {z}}}",
    "{x} = np.arange({n}, {n} + 20.0)",
    "{x} = np.arange(20_000.0) * {n}",
    "{x} = {y}[1:3]",
    "{x} = {y}[::-1]",
    "{x} = {y}.T",
    "{x} = pd.DataFrame({{'p': range(5), 'q': [float({n})] * 5}})",
    "{x} = {y}['p']",
    "{x} = {y}[['q']]",
    "{x} = {y}.copy()",
    "{x} = P({y})",
    "{x} = S({y}, {z})",
    "{x} = weakref.ref({y}) if isinstance({y}, (P, S)) else None",
    "{x} = lambda k={n}, v={y}: (k, v)",
    "{x} = counter({n})",
    "{x} = functools.partial(print, {y}, end={z})",
    "{x} = {y}.append",
    "{x} = bytearray(b'abc' * {n})",
    "{x} = memoryview({y})",
    "{x} = collections.OrderedDict(k={y})",
    "{x} = collections.deque([{y}], maxlen={n} + 1)",
    "{x} = E.ONE",
    "{x} = np.array([{y}, {z}], dtype=object)",
    "{x} = slice({n}, None)",
    "{x} = iter([{n}, {y}])",
)
CHANGE = (
    "{x}.append({y})",
    "{x}[0] = {y}",
    "{x}['k'] = {y}",
    "{x}.k = {y}",
    "{x}.slot = {y}",
    "{x}[...] = {n}",
    "{x}[2] += {n}",
    "{x}.loc[1, 'q'] = {n}.5",
    "{x}['new'] = {n}",
    "{x}.reverse()",
    "{x}.clear()",
    "{x}.update(k={y})",
    "del {x}",
    "{x}()",
    "{x}.extend([{y}, {z}])",
    "{x}.pop()",
    "{x}, {y} = {y}, {x}",
    "{x} += [{n}]",
    "P.shared = {n}",
    "next({x})",
    "{x}.__dict__['w'] = {y}",
)
PRELUDE = """
import collections, functools, weakref, enum
class P:
    shared = 0
    def __init__(self, k): self.k = k
class S:
    __slots__ = ('slot', 'other', '__weakref__')
    def __init__(self, one, two): self.slot, self.other = one, two
class E(enum.Enum):
    ONE = 1
def counter(start):
    n = [start]
    def step():
        n[0] += 1
        return n[0]
    return step
a = [1, 'x']; b = {'k': a}; c = np.arange(20_000.0); d = c[5:]; e = P(a); f = pd.DataFrame({'p': range(5), 'q': 0.5})
"""

lines = st.builds(
    lambda form, x, y, z, n: form.format(x=x, y=y, z=z, n=n),
    st.sampled_from(MAKE + CHANGE),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.integers(1, 9),
)
new_lines = st.builds(
    lambda form, x, y, z, n: form.format(x=x, y=y, z=z, n=n),
    st.sampled_from(MAKE),
    st.sampled_from(NEW_NAMES),
    st.sampled_from(NAMES + NEW_NAMES),
    st.sampled_from(NAMES + NEW_NAMES),
    st.integers(1, 9),
)
cells = st.lists(lines, min_size=1, max_size=3)
steps = st.lists(st.one_of(cells, st.integers(0, 30)), min_size=3, max_size=14)


def shape(ns: dict[str, Any]) -> Any:
    """Return content and connections of the names, independent of the tracker: equal where nobody could tell apart."""
    seen: dict[int, int] = {}
    held: list[Any] = []
    memory: dict[int, int] = {}

    def block(array: np.ndarray) -> Any:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        start = owner.__array_interface__["data"][0]
        number = memory.setdefault(start, len(memory))
        return number, array.__array_interface__["data"][0] - start, array.strides

    def visit(obj: Any, depth: int = 0) -> Any:
        if obj is None or isinstance(obj, (bool, int, float, str, bytes, slice, type(...))):
            return repr(obj)
        if isinstance(obj, types.ModuleType):
            return obj.__name__
        if isinstance(obj, types.BuiltinFunctionType) and not isinstance(obj.__self__, types.ModuleType):
            return "method", obj.__name__, visit(obj.__self__, depth)
        if isinstance(obj, types.BuiltinFunctionType):
            return obj.__qualname__
        if isinstance(obj, tuple) and not obj:
            return ()
        if id(obj) in seen:
            return "again", seen[id(obj)]
        if depth > 60:
            return "deep"
        held.append(obj)
        seen[id(obj)] = len(seen)
        go = functools.partial(visit, depth=depth + 1)
        if isinstance(obj, (list, tuple, collections_deque)):
            return type(obj).__name__, getattr(obj, "maxlen", None), [go(one) for one in obj]
        if isinstance(obj, dict):
            return type(obj).__name__, [(go(key), go(value)) for key, value in obj.items()]
        if isinstance(obj, (set, frozenset)):
            return "set", sorted(map(repr, obj))
        if isinstance(obj, bytearray):
            return "bytearray", bytes(obj)
        if isinstance(obj, memoryview):
            return "memoryview", bytes(obj), go(obj.obj)
        if isinstance(obj, np.ndarray):
            values = [go(one) for one in obj.ravel()] if obj.dtype.hasobject else obj.tobytes()
            return "array", str(obj.dtype), obj.shape, values, block(obj)
        if isinstance(obj, (pd.DataFrame, pd.Series)):
            return type(obj).__name__, obj.to_json(), list(map(str, np.atleast_1d(obj.dtypes)))
        if isinstance(obj, types.FunctionType):
            cells_ = [go(cell.cell_contents) for cell in obj.__closure__ or ()]
            ids = [seen.setdefault(id(cell), len(seen)) for cell in obj.__closure__ or ()]
            held.extend(obj.__closure__ or ())
            return "function", obj.__qualname__, obj.__code__.co_code, go(obj.__defaults__), cells_, ids
        if isinstance(obj, functools.partial):
            return "partial", go(obj.func), [go(one) for one in obj.args], go(dict(obj.keywords))
        if isinstance(obj, weakref.ref):
            target = obj()
            return "weak", None if target is None else seen.get(id(target), "elsewhere") if id(
                target
            ) in seen else "later"
        if isinstance(obj, type):
            members = (
                {k: v for k, v in vars(obj).items() if not k.startswith("__")} if obj.__module__ == "__main__" else {}
            )
            return "class", obj.__qualname__, {k: v for k, v in members.items() if isinstance(v, (int, str))}
        if type(obj).__name__ == "list_iterator":
            return "iterator", obj.__reduce__()[2:], go(obj.__reduce__()[1])
        if type(obj).__module__ == "__main__":
            slots = {
                s: go(getattr(obj, s))
                for s in getattr(type(obj), "__slots__", ())
                if s != "__weakref__" and hasattr(obj, s)
            }
            return (
                "instance",
                type(obj).__qualname__,
                type(obj) is ns.get(type(obj).__qualname__),
                slots,
                go(getattr(obj, "__dict__", None)),
            )
        raise AssertionError(f"the test makes no {type(obj)}")

    return {name: visit(ns[name]) for name in sorted(ns) if name in (*NAMES, *NEW_NAMES, "P", "S", "E", "counter")}


import collections  # noqa: E402

collections_deque = collections.deque


@given(steps)
@settings(max_examples=examples(100))
def test_every_state_can_be_returned_to(program: list[Any]):
    """Cells and returns in any order: each return gives what was there, and nothing is lost."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "chunks")
        first = bench.run(PRELUDE)
        known = [(first, shape(bench.ns))]
        try:
            for step in program:
                if isinstance(step, int):
                    where, then = known[step % len(known)]
                    lost = bench.goto(where)
                    assert not lost, (where, lost)
                    assert shape(bench.ns) == then
                else:
                    source = "\n".join(f"try: {line}\nexcept Exception: pass" for line in step)
                    known.append((bench.run(source), shape(bench.ns)))
            for where, then in known:
                assert not bench.goto(where)
                assert shape(bench.ns) == then
        finally:
            bench.close()


@given(st.lists(st.lists(new_lines, min_size=1, max_size=3) | cells, min_size=1, max_size=8), st.integers(0, 30))
@settings(max_examples=examples(100))
def test_a_return_after_the_data_were_deleted_is_refused_or_can_be_taken_back(program: list[Any], at: int):
    """Whatever the left state shares with what stays."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "chunks")
        states = [bench.run(PRELUDE)]
        try:
            sources = ["\n".join(f"try: {line}\nexcept Exception: pass" for line in step) for step in program]
            states += map(bench.run, sources)
            here = shape(bench.ns)
            bench.background.wait(30)
            bench.checkpoints.poll()
            shutil.rmtree(Path(folder) / "chunks")
            where = states[at % len(states)]

            if not bench.restorer.compare(where).absent:
                bench.goto(where)
                assert not bench.restorer.compare(states[-1]).absent
                lost = bench.goto(states[-1])
                assert not [name for name in lost if is_bound(name)], lost

            assert shape(bench.ns) == here
        finally:
            bench.close()
