"""Packing and unpacking run code of libraries and of the user's, whose warnings are not those of a cell."""

from __future__ import annotations

import warnings

import pytest
from pickling_rows import Box


@pytest.mark.parametrize("action", ["always", "default", "error"])
def test_a_warning_while_a_value_is_packed_or_unpacked_reaches_nobody(action: str):
    """Libraries warn in `__reduce__`. The same warning of a later cell is shown, and so is its place still unknown."""
    box = Box("""
        import warnings
        class A:
            def __reduce__(self):
                warnings.warn("packed")
                return made, ()
        def made():
            warnings.warn("unpacked")
            return A()
        a = A()
    """)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        before = [*warnings.filters]
        packed = box.pack("a")
        loaded = box.packer.unpack(packed.stream)

        assert not found and [*warnings.filters] == before
    assert not packed.faults and type(loaded["a"]).__name__ == "A"
    assert not {*box.namespace.get("__warningregistry__", ())} - {"version"}
