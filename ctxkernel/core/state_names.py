"""The names of the entries of a stored state: variables, and the other things that belong to it by a prefix."""

from __future__ import annotations

import re
from collections.abc import Collection

AMBIENT = "ambient:"
"""A part of the process outside of the namespace, such as a generator of random numbers or an option."""
MODULE = "module:"
"""The variables of a module of the user's, and objects of libraries that are treated as such."""
HANDLE = "handle:"
"""The policies of a handle, by its obj_id."""
TARGET = "target:"
"""The object that a handle shows, by its obj_id."""
CLASS = "class:"
"""A class that a cell defined, by an id of its own: a name can be bound to another class later."""
SHARED = "shared:"
"""An object that several entries share."""
RESULT = "Out["
"""The result of a cell in `Out`."""
LABELS = (CLASS, SHARED)
"""Prefixes of the entries that only others refer to."""
FILES = AMBIENT + "files"
"""The contents of files that cells wrote."""
LAST = AMBIENT + "last results"
"""The results that `_`, `__`, `___` and the user's own names of that form stand for."""
LAST_RESULTS = ("_", "__", "___")
NUMBERED_RESULT = re.compile(r"_(\d+)")


def is_bound(name: str) -> bool:
    """Return whether an entry is a variable or a result: a value that the user's namespace leads to."""
    return ":" not in name


def is_of_result(name: str) -> bool:
    """Return whether IPython gives a name to results."""
    return name in LAST_RESULTS or NUMBERED_RESULT.fullmatch(name) is not None


def is_variable(name: str) -> bool:
    """Return whether an entry is a variable, under no name that IPython gives to results."""
    return is_bound(name) and not name.startswith(RESULT) and not is_of_result(name)


def without(prefix: str, names: Collection[str]) -> list[str]:
    """Return the names that begin with a prefix, without it."""
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
