"""A Python `str` as a source: the text itself, at the four levels of a text file.

Rule 1: a text is what no path can be (see `is_text`); any other `str` is a path, a pattern or a URI.
Rule 2: of more than `MOST_CHARS` characters the beginning is shown, and said so.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import xxhash

from ctxkernel.core.reflection import is_a
from ctxkernel.sources.base.file_reader import Text, make_text, text_in_memory
from ctxkernel.sources.base.rendering import TargetSource
from ctxkernel.sources.files.files import TextSource

MOST_CHARS = 1 << 22
_NAME_CHARS = 255
"""The most characters of a file's name, on every system that this runs on."""
_PATH_CHARS = 4096
_NAMES_CHARS = 1 << 16
_HASHED_CHARS = 1 << 20
_HEADING = re.compile(r"^(?:#{1,6} |```)", re.MULTILINE)


def is_text(target: Any) -> bool:
    """Return whether it is a `str` that cannot be a path: it has a line end, or a name of more than 255 characters.

    A file that has such a name is found first.
    """
    if not is_a(target, str):
        return False
    text = str.__str__(target)
    if len(text) > _NAMES_CHARS:  # no path, list of names or pattern, of whatever parts
        return "\n" in text or "\0" not in text
    if "\n" in text:
        return len(text) > _PATH_CHARS or not os.path.lexists(os.path.expanduser(text))
    return "\0" not in text and any(len(part) > _NAME_CHARS for part in re.split(r"[/\\]", text))


class StringValueSource(TargetSource, TextSource):
    """A text. 0: its lines; 1: headings, keys or symbols; 2: its most informative lines."""

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._text: Text | None = None

    def stamp(self) -> str:
        """Return the identity: a text never changes."""
        return f"{id(self.target):x} {str.__len__(self.target):x}"

    def text(self) -> Text:
        """Return the text, or the beginning of a large one."""
        if self._text is None:
            self._text = self._beginning()
        return self._text

    def _beginning(self) -> Text:
        text = str.__str__(self.target)
        if len(text) <= MOST_CHARS:
            return text_in_memory(text)
        end = text.rfind("\n", 0, MOST_CHARS)
        part = text[: end if end > 0 else MOST_CHARS]
        remark = f"the first {len(part):,} of {len(text):,} characters"
        state = xxhash.xxh3_64()
        for at in range(0, len(text), _HASHED_CHARS):
            state.update(text[at : at + _HASHED_CHARS].encode("utf-8", "replace"))
        fingerprint = f"xxh3:{state.hexdigest()}"
        return make_text(part, size=len(text), fingerprint=fingerprint, remarks=(remark,), whole=False)

    def path_hint(self) -> str:
        """Return a file name whose suffix says the language: JSON, or Markdown where it has headings or fences."""
        beginning = str.__str__(self.target)[: 1 << 16]
        if beginning.lstrip()[:1] in ("{", "[") and len(self.target) <= MOST_CHARS:
            try:
                json.loads(self.target)
            except (ValueError, RecursionError):
                pass
            else:
                return "text.json"
        return "text.md" if _HEADING.search(beginning) else ""
