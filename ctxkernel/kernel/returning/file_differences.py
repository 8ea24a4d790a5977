"""Two contents of a file that cells wrote, compared: tables by their cells, texts by their lines.

Rule 1: the contents are those that were kept; the file itself is not read.
Rule 2: no library is imported for it: tables are read with pandas where the session has imported it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from ctxkernel.core.value_difference import ValueDifference, unknown_difference
from ctxkernel.replay.value_comparer import text_difference

MOST_TEXT = 2 * 1024 * 1024
"""Most bytes of a text that is compared by lines."""
MOST_BYTES = 64 * 1024 * 1024
"""Most bytes of a content that is read."""
_READERS: dict[str, Callable[[Any, io.BytesIO], Any]] = {
    ".csv": lambda pandas, data: pandas.read_csv(data),
    ".tsv": lambda pandas, data: pandas.read_csv(data, sep="\t"),
    ".parquet": lambda pandas, data: pandas.read_parquet(data),
}
"""Suffix of a file → what reads it as a frame."""


def file_difference(
    name: str, old: bytes, new: bytes, compare: Callable[[str, Any, Any], ValueDifference]
) -> ValueDifference:
    """Return how two contents of a file differ; `compare` compares two frames."""
    suffix = PurePath(name).suffix.lower()
    frames = [_frame(suffix, content) for content in (old, new)]
    if all(frame is not None for frame in frames):
        found = compare(name, *frames)
        if found.differs:
            return replace(found, name=name)
    texts = [_text(content) for content in (old, new)]
    if texts[0] is not None and texts[1] is not None:
        return text_difference(name, texts[0], texts[1])
    if max(len(old), len(new)) > MOST_TEXT and frames == [None, None]:
        reason = f"it has more than {MOST_TEXT:,} bytes"
    elif suffix in _READERS and "pandas" not in sys.modules:
        reason = f"{suffix} is read with pandas, which this session has not imported"
    else:
        reason = "it is not a text"
    return unknown_difference(name, "content differs", f"not compared: {reason}")


def _frame(suffix: str, content: bytes) -> Any:
    """Return a content as a frame; None if it cannot be read as one."""
    pandas, read = sys.modules.get("pandas"), _READERS.get(suffix)
    if pandas is None or read is None:
        return None
    try:
        return read(pandas, io.BytesIO(content))
    except Exception:  # whatever the library raises: it is no such table
        return None


def _text(content: bytes) -> str | None:
    if len(content) > MOST_TEXT or b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
