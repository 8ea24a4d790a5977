"""Values of variables masked where their name or content says that they are credentials."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ctxkernel.core.timeline import ChangeInfo, NamespaceDiff, TypeInfo

Mask = Callable[[str], str]
"""Returns a text with secrets masked: the same object where there are none."""
NO_DIFF = NamespaceDiff()
"""The diff of every statement that changed nothing."""


def mask_diff(diff: NamespaceDiff, mask: Callable[[str, str], str]) -> NamespaceDiff:
    """Return the diff with credentials masked: values whose name or content says that they are."""
    if not diff:
        return diff if diff.incomplete else NO_DIFF
    added: dict[str, TypeInfo] = {}
    changed: dict[str, ChangeInfo] = {}
    for name, new in diff.added.items():
        if (safe := mask(name, new.repr)) != new.repr:
            added[name] = dataclasses.replace(new, repr=safe)
    for name, info in diff.changed.items():
        safe, before = mask(name, info.repr), info.before and mask(name, info.before)
        if (safe, before) != (info.repr, info.before):
            changed[name] = dataclasses.replace(info, repr=safe, before=before)
    if not added and not changed:  # as nearly always
        return diff
    return dataclasses.replace(diff, added={**diff.added, **added}, changed={**diff.changed, **changed})
