"""What the text of a return says: which names it did not give back as they were."""

from __future__ import annotations

import re
from collections.abc import Collection

_DONE = re.compile(r"at .*?(restored|kept)|made again: |loaded later, |file ")
"""The beginnings of lines that say what a return did; any other line names what it did not do."""


def named_by(printed: str, names: Collection[str]) -> dict[str, str]:
    """Return which of `names` a return's text names as not restored, not known or as they are now, with the line.

    What stands in brackets is the reason: it can mention other names.
    """
    found: dict[str, str] = {}
    for line in printed.splitlines():
        if _DONE.match(line.strip()):
            continue
        for word in re.findall(r"[^\W\d]\w*", line.partition(" (")[0]):
            if word in names:
                found.setdefault(word, line)
        for place in re.findall(r"Out\[\d+\]", line.partition(" (")[0]):
            if place in names:
                found.setdefault(place, line)
    return found


def listed(printed: str, beginning: str) -> dict[str, str]:
    """Return the places in the lines that begin so, each with the reason that follows in brackets."""
    found: dict[str, str] = {}
    for line in printed.splitlines():
        if line.startswith(beginning):
            places, _, why = line.removeprefix(beginning).removesuffix(")").partition(" (")
            found |= dict.fromkeys(map(str.strip, places.split(",")), why)
    return found
