"""Which cells are pure commands that only read (law 8: they leave no statement and never branch)."""

from __future__ import annotations

import re

READING = frozenset(("status", "timeline", "projection", "why", "help", "show", "panel"))
"""Subcommands of `%ctx` that change nothing."""

_COMMAND = re.compile(r"%ctx(?:\s+(?P<sub>[\w-]+))?(?:\s|\?|$)")


def only_reads(code: str) -> bool:
    """Whether every line of `code` that is no comment is a `%ctx` command that only reads."""
    if "%ctx" not in code:
        return False
    seen = False
    for line in code.splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _COMMAND.match(text)
        if match is None or not (text.endswith("?") or (match["sub"] or "help") in READING):
            return False
        seen = True
    return seen
