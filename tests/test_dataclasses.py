"""The data classes of ctxkernel are those of the standard library, made at less cost."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.dataclasses import dataclass

OPTIONS = st.fixed_dictionaries(
    {},
    optional={name: st.booleans() for name in ("repr", "eq", "frozen", "slots", "kw_only")},
)
FIELDS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=3)
VALUES = st.lists(st.integers(0, 1), min_size=6, max_size=6)


def body(fields: list[tuple[bool, bool]], methods: set[str]) -> dict[str, Any]:
    """Return the body of a class with such fields, which are shown and compared or not, and methods of its own."""
    made: dict[str, Any] = {f"f{at}": dataclasses.field(repr=one[0], compare=one[1]) for at, one in enumerate(fields)}
    own = {"__repr__": lambda self: "own", "__eq__": lambda self, other: True, "__hash__": lambda self: 5}
    made["__annotations__"] = dict.fromkeys(made, "int")
    return {**made, **{name: own[name] for name in methods}, "__module__": __name__, "__qualname__": "Made"}


def told(kind: Any, values: list[int], count: int) -> list[object]:
    """Return what can be seen of two instances."""
    names = [f"f{at}" for at in range(count)]
    one, two = (kind(**dict(zip(names, values[start:], strict=False))) for start in (0, 3))
    seen: list[object] = [one == two, one == one, one != two, one == 5, kind.__match_args__, kind.__hash__ is None]
    seen += [repr(one).replace(hex(id(one)), ""), dataclasses.asdict(one), dataclasses.replace(one) == one]
    seen += [hash(one) == hash(two) if kind.__hash__ not in (None, object.__hash__) and one == two else None]
    for change in (lambda: setattr(one, "f0", 7), lambda: delattr(one, "f0")):
        try:
            change()
            seen.append("changed")
        except (AttributeError, TypeError) as fault:
            seen.append(isinstance(fault, dataclasses.FrozenInstanceError))
    try:
        one.other = 7
        seen.append("changed")
    except (AttributeError, TypeError):  # the standard library's own fault differs with slots
        seen.append("refused")
    return seen


@given(OPTIONS, FIELDS, st.sets(st.sampled_from(["__repr__", "__eq__", "__hash__"])), VALUES)
def test_a_data_class_behaves_as_one_of_the_standard_library(options, fields, methods, values):
    theirs = dataclasses.dataclass(**options)(type("Made", (), body(fields, methods)))
    ours = dataclass(**options)(type("Made", (), body(fields, methods)))

    assert told(ours, values, len(fields)) == told(theirs, values, len(fields))


def made(decorate: Any, fields: list[dict[str, Any]], options: dict[str, bool], with_hook: bool) -> Any:
    """Make a class with such fields, and with a method that is called after `__init__` or not."""
    members: dict[str, Any] = {"__annotations__": {f"f{at}": "object" for at in range(len(fields))}}
    members |= {f"f{at}": dataclasses.field(**one) for at, one in enumerate(fields)}
    hook = {"__post_init__": lambda self: CALLS.append(id(type(self)))} if with_hook else {}
    return decorate(**options)(type("Made", (), {**members, **hook, "__module__": __name__, "__qualname__": "Made"}))


CALLS: list[int] = []
KINDS = [{}, {"default": 3}, {"default_factory": list}, {"kw_only": True}, {"init": False, "default": 4}]
KINDS += [{"kw_only": True, "default_factory": dict}, {"init": False, "default_factory": set}]


@given(
    st.lists(st.sampled_from(KINDS), max_size=5),
    st.fixed_dictionaries({}, optional={name: st.booleans() for name in ("frozen", "slots", "kw_only")}),
    st.booleans(),
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.sampled_from(["f0", "f1", "f2", "f3", "f9"]), st.integers(), max_size=4),
)
def test_a_data_class_is_made_from_the_same_arguments_and_refuses_the_same(kinds, options, with_hook, values, named):
    fields = sorted(kinds, key=lambda one: "default" in one or "default_factory" in one)
    theirs, ours = (made(one, fields, options, with_hook) for one in (dataclasses.dataclass, dataclass))

    def tried(kind: Any) -> object:
        CALLS.clear()
        try:
            one = kind(*values, **named)
        except TypeError as fault:
            return str(fault)
        return dataclasses.asdict(one), [id(kind)] * with_hook == CALLS, dataclasses.asdict(copy.copy(one))

    assert tried(ours) == tried(theirs)
    assert tried(ours) == tried(theirs)  # by the method that the first instance has compiled


@dataclass
class Odd:
    """Fields with the names of what a data class is made with."""

    cls: int = 1
    set: Any = dataclasses.field(default_factory=list)
    _absent: Any = dataclasses.field(default_factory=dict)
    _set: int = 2
    _set_set: int = 3
    object: int = 4


def test_a_field_may_have_any_name():
    made = {"cls": 1, "set": [], "_absent": {}, "_set": 5, "_set_set": 3, "object": 4}
    assert dataclasses.asdict(Odd(_set=5)) == made


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values."""

    one: Any
    two: Any = None


@dataclass
class Wider:
    """A class with a list."""

    held: list[Any]


def test_a_data_class_is_pickled_nested_and_in_itself():
    assert pickle.loads(pickle.dumps(Pair(1, Pair(2)))) == Pair(1, Pair(2))
    assert {Pair(1): 2}[Pair(1)] == 2
    wider = Wider([])
    wider.held.append(wider)
    assert repr(wider) == "Wider(held=[...])"


def test_a_data_class_that_extends_another_compares_all_fields():
    @dataclass(frozen=True)
    class More(Pair):
        three: int = 0

    assert More(1, 2, 3) == More(1, 2, 3)
    assert More(1, 2, 3) != More(1, 2, 4)
    assert More(1, 2) != Pair(1, 2)


def test_an_order_is_refused():
    with pytest.raises(ValueError, match="eq must be true"):
        dataclass(order=True)(type("Made", (), {}))
