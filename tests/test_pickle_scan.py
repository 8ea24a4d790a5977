"""NaN in a stream is found exactly, since streams with it are packed in a slower way."""

from __future__ import annotations

import argparse
import math
import pickle
import random
import struct
import time

import numpy as np
import pytest

from ctxkernel.state.types.pickle_scan import needs_identities

_BY_CHANCE = struct.unpack(">d", b"\x3f\xe0G\x7f\xf8\x01\x02\x03")[0]
"""A number whose bytes contain those of NaN."""


def scanned(value: object) -> bool:
    return needs_identities([pickle.dumps(value, 5)])


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        -math.nan,
        np.float64("nan"),
        [1.5, _BY_CHANCE, math.nan],
        {"a": [np.float64("nan")], "b": "x" * 300},
        argparse.SUPPRESS,
        ["text" * 100, 2**80, b"\0\0\xf8\x7f", {1.5: (math.nan,)}],
    ],
    ids=repr,
)
def test_a_value_that_is_compared_by_identity_is_found(value: object):
    assert scanned(value)


@pytest.mark.parametrize(
    "value",
    [
        _BY_CHANCE,
        [_BY_CHANCE] * 3000,
        "G\x7f",
        ["a" * 300, b"G\x7f\xf8", 2**80, -5, {1: (2.5, None)}, {3, 4}, _BY_CHANCE],
        b"G\x7f\xf8" * 1000,
        np.array([math.nan] * 5),
        bytearray(b"\0\0\xf8\x7f" * 9),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_bytes_that_look_like_nan_by_chance_are_not(value: object):
    assert not scanned(value)


def test_a_content_that_is_stored_apart_is_skipped():
    whole = pickle.dumps([b"x" * 100_000, _BY_CHANCE, 1.5], 5)
    at = whole.index(b"x" * 100_000)

    assert not needs_identities([whole[:at], whole[at + 100_000 :]], {at})
    assert needs_identities(
        [whole[:at], whole[at + 100_000 :].replace(struct.pack(">d", 1.5), struct.pack(">d", math.nan))], {at}
    )


def test_reading_the_opcodes_of_many_numbers_takes_less_time_than_packing_them_with_tokens():
    numbers = [random.random() for _ in range(300_000)] + [_BY_CHANCE]

    class Tokens(pickle.Pickler):
        def persistent_id(self, obj: object) -> None:
            return None

    import io

    stream = pickle.dumps(numbers, 5)
    scans: list[float] = []
    packs: list[float] = []
    for _ in range(7):  # the fastest of each: another process may take the processor's caches
        begun = time.process_time()
        assert not needs_identities([stream])
        scans.append(time.process_time() - begun)
        begun = time.process_time()
        Tokens(io.BytesIO(), 5).dump(numbers)
        packs.append(time.process_time() - begun)

    assert min(scans) < min(packs)
