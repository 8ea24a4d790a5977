"""A cell in one line: its main line, the names that it made, and the last line of its output. Pure."""

from __future__ import annotations

import re

from ctxkernel.core.text import join_names, one_line

_READ_CHARACTERS = 20_000
"""Maximal characters of a source or an output that are read."""
_QUIET = ("#", "%", "@", "import ", "from ", '"""', "'''")
_WORD = re.compile(r"\w+")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*(?::[^=]*)?=(?!=)")
_DEFINED = re.compile(r"(?:async\s+)?(?:def|class)\s+([A-Za-z_]\w*)")


def main_line(source: str, chars: int = 100) -> str:
    """Return the first line that is no comment, import, decorator, magic or docstring; or else the first one."""
    lines = [line.strip() for line in source[:_READ_CHARACTERS].splitlines() if line.strip()]
    return one_line(next((line for line in lines if not line.startswith(_QUIET)), lines[0] if lines else ""), chars)


def last_line(text: str, chars: int = 120) -> str:
    """Return the last line of an output, in at most `chars` characters."""
    lines = text.rstrip()[-_READ_CHARACTERS:].splitlines()
    return one_line(lines[-1] if lines else "", chars)


def names_made(source: str) -> list[str]:
    """Return the names that unindented lines assign or define, in order."""
    names: dict[str, None] = {}
    quoted = False
    for line in source[:_READ_CHARACTERS].splitlines():
        if not quoted:
            if found := _DEFINED.match(line):
                names[found[1]] = None
            elif found := _ASSIGNED.match(line):
                names.update(dict.fromkeys(name.strip() for name in found[1].split(",")))
        quoted ^= (line.count('"""') + line.count("'''")) % 2 == 1
    return list(names)


def brief_line(said: str, source: str, outcome: str) -> str:
    """Return one line for a cell: `said`, the names of `source` that it does not mention, and the outcome."""
    told = set(_WORD.findall(said))
    made = [name for name in names_made(source) if name not in told]
    names = f"made {join_names(made, 6)}" if made else ""
    return " · ".join(part for part in (said, names, outcome) if part)
