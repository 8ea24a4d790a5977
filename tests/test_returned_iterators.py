"""A return gives back iterators at the place where they were, or names them."""

from __future__ import annotations

from told import named_by


def test_a_groupby_inside_a_group_is_kept_or_named(start_kernel):
    """Within a group, the stored form of `groupby` has lost the key, so that a copy would give the group again."""
    kernel = start_kernel()
    kernel.run("import itertools\ngroups = itertools.groupby('aabbc'); key, group = next(groups); first = next(group)")
    kernel.run("rest = [key for key, _ in groups]")

    told = kernel.run("%ctx goto 1").stdout

    assert {"groups", "group"} <= named_by(told, ("groups", "group")).keys()
