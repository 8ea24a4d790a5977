"""The data classes of ctxkernel are those of the standard library, made at less cost."""

from __future__ import annotations

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
    """What can be seen of two instances."""
    names = [f"f{at}" for at in range(count)]
    one, two = (kind(**dict(zip(names, values[start:], strict=False))) for start in (0, 3))
    seen: list[object] = [one == two, one == one, one != two, one == 5, kind.__match_args__, kind.__hash__ is None]
    seen += [repr(one).replace(hex(id(one)), ""), dataclasses.asdict(one), dataclasses.replace(one) == one]
    seen += [hash(one) == hash(two) if kind.__hash__ not in (None, object.__hash__) and one == two else None]
    for change in (lambda: setattr(one, "f0", 7), lambda: delattr(one, "f0"), lambda: setattr(one, "other", 7)):
        try:
            change()
            seen.append("changed")
        except (AttributeError, TypeError) as fault:
            seen.append(isinstance(fault, dataclasses.FrozenInstanceError))
    return seen


@given(OPTIONS, FIELDS, st.sets(st.sampled_from(["__repr__", "__eq__", "__hash__"])), VALUES)
def test_a_data_class_behaves_as_one_of_the_standard_library(options, fields, methods, values):
    theirs = dataclasses.dataclass(**options)(type("Made", (), body(fields, methods)))
    ours = dataclass(**options)(type("Made", (), body(fields, methods)))

    assert told(ours, values, len(fields)) == told(theirs, values, len(fields))


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
