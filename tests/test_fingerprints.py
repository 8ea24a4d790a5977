"""Fingerprints of content do not depend on what else holds the parts of a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tracker_rows import Notebook

from ctxkernel.state.tracking.groups import Moment
from ctxkernel.state.tracking.piece_prints import PiecePrints
from ctxkernel.state.types.packer import Packer

DAYS = pd.date_range("2024-01-01", periods=5)
PARTS = {
    "an array": np.arange(5.0),
    "a view of an array": np.arange(50)[5:10],
    "a column": np.arange(10.0).reshape(5, 2)[:, 1],
    "a table": np.arange(10.0).reshape(2, 5).T,
    "bytes as numbers": np.frombuffer(bytearray(range(40)), "<i8"),
    "a large array": np.arange(6_000.0),
    "a part of a large array": np.arange(6_000.0)[100:],
    "a very large array": np.arange(30_000.0),
    "a part of a very large array": np.arange(30_000.0)[5:],
    "many days": pd.date_range("1950-01-01", periods=20_000),
    "an index of numbers": pd.Index([5, 6, 7, 8, 9]),
    "a range": pd.RangeIndex(5),
    "an index of texts": pd.Index(list("abcde")),
    "an index of objects": pd.Index([1, "b", None, (), 2.5], dtype=object),
    "days": DAYS,
    "days of a time zone": DAYS.tz_localize("UTC"),
    "spans": DAYS - DAYS[0],
    "months": pd.period_range("2024-01", periods=5, freq="M"),
    "intervals": pd.interval_range(0, 5),
    "several levels": pd.MultiIndex.from_product([["a"], [1, 2, 3, 4, 5]]),
    "categories": pd.CategoricalIndex(list("aabbc")),
    "a categorical": pd.Categorical(list("aabbc")),
    "integers with gaps": pd.array([1, None, 3, 4, 5]),
    "flags with gaps": pd.array([True, None, False, True, True]),
    "texts with gaps": pd.array(["a", None, "c", "d", "e"], dtype="string"),
    "few values": pd.arrays.SparseArray([0, 0, 1, 0, 2]),
}


def whole(part: Any) -> Any:
    """Return a frame or a list with a part in it."""
    if isinstance(part, pd.Index):
        return pd.DataFrame({"a": np.arange(float(len(part))), "b": 1}, index=part)
    return [(pd.DataFrame if part.ndim > 1 else pd.Series)(part, copy=False), part]


def prints(namespace: dict[str, Any], packer: Packer) -> dict[str, str]:
    moment = Moment(packer, namespace.__getitem__)
    moment.pack([(name,) for name in namespace])
    maker = PiecePrints(packer, {})
    return {name: maker.of(moment.pieces[name], moment).get(name, "") for name in namespace}


@pytest.mark.parametrize("kind", PARTS)
def test_a_value_has_one_fingerprint_whether_or_not_others_share_its_parts(kind):
    """An array or an index has a pack of its own from when a second name holds it."""
    part, held = PARTS[kind], whole(PARTS[kind])
    packer = Packer({"__name__": "__main__"})
    before = prints({"held": held}, packer) | prints({"part": part}, packer)
    both = prints({"held": held, "part": part, "more": [part], "index": getattr(held, "index", None)}, packer)
    after = prints({"held": held}, packer) | prints({"part": part}, packer)

    assert all(before.values())
    assert before == {name: both[name] for name in before} == after


@pytest.mark.parametrize("kind", PARTS)
def test_another_part_makes_another_fingerprint(kind):
    """One of the other kinds, or the same one backwards, in a pack of its own or not."""
    packer = Packer({"__name__": "__main__"})
    part = PARTS[kind]
    held, backwards = whole(part), whole(part[::-1])
    alone = [prints({"held": one}, packer)["held"] for one in (held, backwards)]
    shared = [
        prints({"held": one, "part": one.index if hasattr(one, "index") else one}, packer)["held"]
        for one in (held, backwards)
    ]

    assert alone[0] != alone[1]
    assert shared[0] != shared[1]


def test_texts_as_keys_and_texts_as_values_make_different_fingerprints():
    """A dict whose keys are all texts is written in a way of its own."""
    packer = Packer({"__name__": "__main__"})
    values = [{"a": "c", 1: 2}, {"a": 1, "c": 2}, {"c": 1, "a": 2}, {"a": 2, "c": 1}, {"a": "c"}, ["a", "c"]]
    found = [prints({"held": [one]}, packer)["held"] for one in values]

    assert len({*found}) == len(values)
    assert "" not in found


def test_an_object_of_a_library_that_keeps_its_hash_has_the_same_content_after_it_was_asked_for():
    """Its attribute is empty before, and again in a copy."""
    notebook = Notebook("import pint; length = pint.util.UnitsContainer(metre=1)")

    assert not notebook.run("hash(length)").changed
    assert set(notebook.run("length._d['metre'] = 2").changed) == {"length"}
