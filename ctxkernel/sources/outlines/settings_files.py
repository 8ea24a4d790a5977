"""The structure of settings files: sections and keys of TOML and INI, keys of YAML by their indentation.

Rule: it is read line by line and nothing is parsed; so half a file, or one with an error, has an outline too. What is
      inside of a text of several lines, or of a list, is not looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ctxkernel.core.text import truncate
from ctxkernel.sources.base.file_reader import Text
from ctxkernel.sources.base.positions import OutlineEntry

_SECTION = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:[#;].*)?$")
_KEY = re.compile(r"""\s*([\w.\-/ ]+?|"[^"]*"|'[^']*')\s*[=:]\s*(.*)$""")
_YAML = re.compile(r"""(\s*(?:- )*)([\w.\-/$]+|"[^"]*"|'[^']*'):(?:\s+(.*))?$""")
_BLOCK = re.compile(r"[|>][+\-\d]*\s*(?:#.*)?$")
_TEXTS = ('"""', "'''")
_LINE_CHARS = 100


def sections_of(text: Text) -> Iterator[OutlineEntry]:
    """Yield the sections of TOML or INI, and their keys."""
    section, until = "", ""
    for at, line in enumerate(text.lines):
        if until:
            until = "" if until in line else until
        elif found := _SECTION.match(line):
            section = found[2]
            yield OutlineEntry(at, 0, truncate(line.strip(), _LINE_CHARS), name=section)
        elif line.lstrip()[:1] not in ("#", ";") and (found := _KEY.match(line)):
            until = next((mark for mark in _TEXTS if found[2].count(mark) == 1), "")
            yield OutlineEntry(at, int(bool(section)), truncate(line.strip(), _LINE_CHARS), name=found[1].strip("\"'"))


def keys_of_yaml(text: Text) -> Iterator[OutlineEntry]:
    """Yield the keys of YAML."""
    within: list[int] = []
    """The indentations of the keys that the next one may be in."""
    block = -1
    for at, line in enumerate(text.lines):
        indent = len(line) - len(line.lstrip())
        if not line.strip() or line.lstrip().startswith("#") or 0 <= block < indent:
            continue
        block = -1
        found = _YAML.match(line)
        if found is None:
            continue
        while within and within[-1] >= len(found[1]):
            within.pop()
        yield OutlineEntry(at, len(within), truncate(line.strip(), _LINE_CHARS), name=found[2].strip("\"'"))
        within.append(len(found[1]))
        if found[3] and _BLOCK.fullmatch(found[3]):
            block = indent
