"""Random graphs of objects come back equal, and with the same objects shared: checked by the tracker's looks, and by a
comparison of its own that walks both graphs side by side.
"""

from __future__ import annotations

import collections
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pickling_rows import Box, Elsewhere

from ctxkernel.state.types import reducers

CLASSES = """
import numpy as np
class Node:
    def method(self): return self
class Slots:
    __slots__ = ('a', 'b', '__weakref__')
class Both(Slots):
    pass
class Items(list):
    pass
class Table(dict):
    pass
class Unit(np.ndarray):
    pass
def make_pair(held):
    def get(): return held
    def set_(value):
        nonlocal held
        held = value
    return get, set_
"""


class Graph:
    """Objects that refer to each other, made step by step from what is drawn."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.box = Box(CLASSES)
        self.space = self.box.namespace
        self.made: list[Any] = [1, "text", None, 2.5, b"x" * 10, (1, 2)]

    def some(self) -> Any:
        return self.made[self.draw(st.integers(0, len(self.made) - 1))]

    def of(self, *kinds: type) -> Any:
        found = [one for one in self.made if type(one) in kinds]
        return found[self.draw(st.integers(0, len(found) - 1))] if found else None

    def arrays(self) -> list[Any]:
        return [one for one in self.made if isinstance(one, np.ndarray) and one.dtype == "f8" and one.ndim]

    def make(self) -> None:
        self.made.append(getattr(self, self.draw(st.sampled_from(MAKERS)))())

    def link(self) -> None:
        """Change something that was made, so that it may refer to what came later."""
        holder, value = self.some(), self.some()
        if isinstance(holder, list):
            holder.append(value)
        elif isinstance(holder, dict):
            holder[f"k{len(holder)}"] = value
        elif type(holder).__name__ in ("Node", "Both", "Slots"):
            holder.a = value
        elif isinstance(holder, types.FunctionType) and holder.__name__ == "set_":
            holder(value)
        elif isinstance(holder, np.ndarray) and holder.dtype == object and holder.size:
            holder[0] = value
        elif isinstance(holder, collections.deque):
            holder.append(value)

    # -- what is made -------------------------------------------------------------------------------

    def a_list(self) -> Any:
        return [self.some(), self.some()]

    def a_dict(self) -> Any:
        return {"a": self.some(), 5: self.some()}

    def a_tuple(self) -> Any:
        return (self.some(), self.some(), self.some())

    def a_node(self) -> Any:
        made = self.space["Node"]()
        made.x, made.y = self.some(), self.some()
        return made

    def with_slots(self) -> Any:
        made = self.space[self.draw(st.sampled_from(["Slots", "Both"]))]()
        made.b = self.some()
        return made

    def items(self) -> Any:
        made = self.space["Items"]([self.some()])
        made.x = self.some()
        return made

    def table(self) -> Any:
        return self.space["Table"](a=self.some())

    def a_getter(self) -> Any:
        get, set_ = self.space["make_pair"](self.some())
        self.made.append(get)
        return set_

    def a_method(self) -> Any:
        node = self.of(self.space["Node"])
        return None if node is None else node.method

    def a_partial(self) -> Any:
        return functools.partial(self.space["make_pair"], self.some())

    def a_reference(self) -> Any:
        node = self.of(self.space["Node"], self.space["Slots"], self.space["Both"])
        if node is None:
            return None
        self.made.append([node])
        return weakref.ref(node)

    def a_deque(self) -> Any:
        return collections.deque([self.some()], maxlen=4)

    def a_default_dict(self) -> Any:
        return collections.defaultdict(list, a=self.some())

    def bytes_of(self) -> Any:
        return bytearray(self.draw(st.sampled_from([b"", b"abcdef" * 4, b"q" * 70_000])))

    def a_memoryview(self) -> Any:
        below = self.of(bytearray, memoryview)
        if below is None or len(below) < 8:
            return None
        start, step = self.draw(st.integers(0, 4)), self.draw(st.sampled_from([1, 2, -1]))
        return memoryview(below)[start::step]

    def an_array(self) -> Any:
        shape = self.draw(st.sampled_from([(4,), (3, 4), (2, 3, 4), (0,), (10_000,), (100, 120), ()]))
        made = np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
        if self.draw(st.booleans()):
            made = np.asfortranarray(made)
        made = made.copy(order="K")
        if self.draw(st.integers(0, 5)) == 0:
            made.flags.writeable = False
        return made

    def a_view(self) -> Any:
        arrays = self.arrays()
        if not arrays:
            return None
        one = arrays[self.draw(st.integers(0, len(arrays) - 1))]
        for _ in range(self.draw(st.integers(1, 2))):
            kind = self.draw(
                st.sampled_from(["slice", "reverse", "turn", "reshape", "row", "broadcast", "bytes", "unit"])
            )
            if kind == "slice":
                one = one[self.draw(st.integers(0, 2)) :: self.draw(st.integers(1, 2))]
            elif kind == "reverse":
                one = one[..., ::-1]
            elif kind == "turn":
                one = one.T
            elif kind == "reshape":
                one = one.reshape(-1)
            elif kind == "row" and one.ndim > 1 and len(one):
                one = one[-1]
            elif kind == "broadcast" and one.ndim == 1:
                one = np.broadcast_to(one, (3, *one.shape))
            elif kind == "bytes" and one.flags.c_contiguous:
                one = one.view("i8")
            elif kind == "unit":
                one = one.view(self.space["Unit"])
                one.unit = self.some()
        return one

    def of_objects(self) -> Any:
        made = np.empty(self.draw(st.integers(1, 3)), dtype=object)
        made[0] = self.some()
        return made if self.draw(st.booleans()) else made[::-1]

    def over_bytes(self) -> Any:
        below = self.of(bytearray)
        return None if not below else np.frombuffer(below, "u1")[1:]

    def a_frame(self) -> Any:
        size = self.draw(st.sampled_from([3, 9000]))
        return pd.DataFrame({"a": np.arange(size), "b": np.arange(float(size)), "c": ["x"] * size})

    def of_a_frame(self) -> Any:
        frame = self.of(pd.DataFrame)
        if frame is None:
            return None
        kind = self.draw(st.sampled_from(["shallow", "column", "rows", "values", "index"]))
        if kind == "values":
            return frame["b"].to_numpy()
        return {"shallow": frame[:], "column": frame["a"], "rows": frame.iloc[1:], "index": frame.index}[kind]


MAKERS = [name for name, one in vars(Graph).items() if callable(one) and not name.startswith("_")]
for _name in ("some", "of", "arrays", "make", "link"):
    MAKERS.remove(_name)


WITHOUT = (types.FunctionType, types.MethodType, pd.DataFrame, pd.Series, pd.Index)
"""What is compared by what it is, not by its `__dict__`."""

# -- the comparison -------------------------------------------------------------------------------


class Pairs:
    """Walks two graphs side by side: what is one object in one must be one object in the other."""

    def __init__(self) -> None:
        self.to: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.held: list[Any] = []
        self.memory: list[tuple[Any, Any]] = []
        self.blocks: list[tuple[Any, Any]] = []
        """What pandas keeps of who shares a block: a write to one of them copies it first."""
        self.todo: list[tuple[Any, Any, str]] = []

    def compare(self, one: Any, other: Any) -> None:
        self.todo.append((one, other, "it"))
        while self.todo:
            self.pair(*self.todo.pop())
        self.memories()

    def add(self, one: Any, other: Any, where: str) -> None:
        self.todo.append((one, other, where))

    def each(self, one: Any, other: Any, where: str) -> None:
        assert len(one) == len(other), where
        for at, (left, right) in enumerate(zip(one, other, strict=True)):
            self.add(left, right, f"{where}[{at}]")

    def pair(self, one: Any, other: Any, where: str) -> None:
        kind = type(one)
        assert kind.__qualname__ == type(other).__qualname__, where
        if kind in (int, float, str, bytes, type(None), bool):
            assert one == other, where
            return
        if kind is not tuple or any(type(item) not in (int, str, float) for item in one):
            known = self.to.get(id(one))
            assert known in (None, id(other)), f"{where}: another object"
            assert self.back.get(id(other)) in (None, id(one)), f"{where}: one object for two"
            if known is not None:
                return
            self.to[id(one)], self.back[id(other)] = id(other), id(one)
            self.held += [one, other]
        self.inside(one, other, where)
        members, others = getattr(one, "__dict__", None), getattr(other, "__dict__", None)
        if isinstance(members, dict) and not isinstance(one, WITHOUT):
            self.add(members, others, f"{where}.__dict__")

    def inside(self, one: Any, other: Any, where: str) -> None:
        if isinstance(one, list | tuple | collections.deque):
            self.each(list(one), list(other), where)
        elif isinstance(one, dict):
            assert list(one) == list(other), where
            self.each(list(one.values()), list(other.values()), where)
        elif isinstance(one, np.ndarray):
            assert (one.dtype, one.shape, steps(one)) == (other.dtype, other.shape, steps(other)), where
            assert one.flags.writeable == other.flags.writeable, where
            self.memory.append((one, other))
            if one.dtype == object:
                self.each(one.ravel().tolist(), other.ravel().tolist(), where)
            else:
                assert np.array_equal(one, other), where
        elif isinstance(one, types.FunctionType):
            assert one.__code__.co_code == other.__code__.co_code, where
            self.each(one.__closure__ or (), other.__closure__ or (), where)
        elif isinstance(one, types.CellType):
            self.add(one.cell_contents, other.cell_contents, f"{where}.cell")
        elif isinstance(one, types.MethodType):
            self.add(one.__self__, other.__self__, f"{where}.__self__")
        elif isinstance(one, functools.partial):
            self.add(one.args, other.args, f"{where}.args")
        elif isinstance(one, weakref.ref):
            self.add(one(), other(), f"{where}()")
        elif isinstance(one, memoryview):
            assert (one.format, one.shape, one.strides, one.readonly) == (
                other.format,
                other.shape,
                other.strides,
                other.readonly,
            )
            assert one.tobytes() == other.tobytes(), where
            self.add(one.obj, other.obj, f"{where}.obj")
            self.memory.append((np.asarray(one), np.asarray(other)))
        elif isinstance(one, bytearray):
            assert one == other, where
            if one:
                self.memory.append((np.frombuffer(one, "u1"), np.frombuffer(other, "u1")))
        elif isinstance(one, pd.DataFrame | pd.Series | pd.Index):
            assert one.equals(other), where
            if not isinstance(one, pd.Index):
                for left, right in zip(one._mgr.blocks, other._mgr.blocks, strict=True):
                    self.blocks.append((left.refs, right.refs))
                    if isinstance(left.values, np.ndarray):
                        self.memory.append((left.values, right.values))
        elif hasattr(one, "b"):
            self.add(one.b, other.b, f"{where}.b")
            self.add(getattr(one, "a", None), getattr(other, "a", None), f"{where}.a")

    def memories(self) -> None:
        """What shared memory shares it, at the same distance; what did not, does not."""
        for at, (one, other) in enumerate(self.blocks):
            for one2, other2 in self.blocks[:at]:
                assert (one is one2) == (other is other2)
        for at, (one, other) in enumerate(self.memory):
            for one2, other2 in self.memory[:at]:
                shared = np.may_share_memory(one, one2)
                assert shared == np.may_share_memory(other, other2)
                if shared:
                    assert start(one) - start(one2) == start(other) - start(other2)


def steps(array: Any) -> list[int]:
    """Strides, of axes along which there is a step to take."""
    return [step for step, size in zip(array.strides, array.shape, strict=True) if size > 1 and array.size]


def start(array: Any) -> int:
    return np.asarray(array).__array_interface__["data"][0]


@given(st.data())
def test_random_graphs_come_back_as_they_were(data: st.DataObject):
    """Content, identity and shared memory, of several names in one pack, in a process that knows nothing of them."""
    graph = Graph(data.draw)
    for _ in range(data.draw(st.integers(1, 25))):
        graph.make()
        if data.draw(st.integers(0, 2)) == 0:
            graph.link()
    made = [one for one in graph.made if one is not None]
    chosen = data.draw(st.lists(st.integers(0, len(made) - 1), min_size=1, max_size=8))
    values = {f"n{at}": made[number] for at, number in enumerate(chosen)}
    # A weak reference to something outside of the pack is alive only.
    values["targets"] = [one() for one in made if isinstance(one, weakref.ref)]

    packed = graph.box.packer.pack(values)
    other = Elsewhere(graph.box, packed)
    found = other.load()

    assert not packed.faults
    assert not packed.parts
    assert not other.report
    Pairs().compare(values, found)


HOLDERS: dict[str, Callable[[Any, Any], Any]] = {
    "list": lambda one, other: [one, other],
    "dict": lambda one, other: {"a": one, 5: other},
    "tuple": lambda one, other: (one, [other]),
    "deque": lambda one, _: collections.deque([one]),
    "counter": lambda *_: collections.Counter("text"),
    "bytearray": lambda *_: bytearray(b"abc"),
    "set": lambda *_: {1, 2},
    "namespace": lambda one, other: types.SimpleNamespace(a=one, b=(other,)),
    "defaultdict": lambda one, _: collections.defaultdict(list, a=one),
}


@pytest.mark.parametrize("shown", [True, False], ids=["memo shown by the collector", "memo copied"])
@given(st.lists(st.tuples(st.sampled_from(sorted(HOLDERS)), st.integers(0, 99), st.integers(0, 99)), max_size=12))
def test_the_identities_of_a_pack_are_those_of_all_containers_in_it(shown: bool, steps: list[tuple[str, int, int]]):
    """And of none that the pickler made. What two names share is found by them."""
    made: list[Any] = [1, "text", b"bytes", None]
    for kind, one, other in steps:
        made.append(HOLDERS[kind](made[one % len(made)], made[other % len(made)]))
    value = made[4:]
    assert reducers._shows_memo()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reducers, "_shows_memo", lambda: shown)
        packed = Box("").packer.pack({"value": value}, identities=True)

    found, todo = dict[int, Any](), [value]
    while todo:
        one = todo.pop()
        if id(one) in found or isinstance(one, (int, str, bytes, type(None))):
            continue
        found[id(one)] = one
        if isinstance(one, types.SimpleNamespace):
            todo.append(vars(one))
        else:
            todo += one.values() if isinstance(one, dict) else one
    assert packed.identities.keys() == {key for key, one in found.items() if not isinstance(one, tuple)}
