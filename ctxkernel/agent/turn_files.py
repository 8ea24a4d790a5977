"""Files of recorded turns beside a notebook: which there are, and whether the user trusts their content.

Rule 1: trust is in a content, never in a name or a place: a changed file is a new one.
Rule 2: a link out of the notebook's folder is not followed, and a pipe or a device is not opened.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ctxkernel.agent.recorded import MOST_BYTES, SUFFIX, RecordedAsk, load_turns
from ctxkernel.core.errors import StoreError
from ctxkernel.store.regular_files import read_bounded, read_within
from ctxkernel.store.trust_registry import TURNS, content_digest, is_trusted

SHIPPED: Mapping[str, str] = {
    "01-tour.turns.json": "9700c350027bfdc52f93f7f99fd37a2b8656315d6a42ab8f4b2e37c16223dc66",
    "04-asking.turns.json": "9e51b58347880e8f7a5e1bc7f7ec7f1e837bd88e8d7a6411ab107fdb0b11f496",
}
"""The files of turns that come with ctxkernel → the digests of their contents. `docs/record_asking.py` writes them."""
_MOST_ENTRIES = 10_000
"""Most entries of a folder that are searched for files of turns."""
_MOST_FILES = 50


def is_shipped(content: bytes) -> bool:
    """Return whether a file of turns came with ctxkernel; a checkout may have converted its line ends."""
    return content_digest(content.replace(b"\r\n", b"\n")) in SHIPPED.values()


def read_turn_file(path: Path, folder: Path | None) -> bytes:
    """Return the content of a file of turns in `folder`; None if the user named the file. Raises OSError."""
    return read_bounded(path.resolve(), MOST_BYTES) if folder is None else read_within(path, MOST_BYTES, folder)


def asks_in(content: bytes, path: Path) -> list[RecordedAsk]:
    """Return the asks in the content of the file `path`, trusted if the user trusts the content. Raises StoreError."""
    try:
        asks = load_turns(content.decode("utf-8"), path.name)
    except UnicodeError as fault:
        raise StoreError(f"{path.name} is no file of recorded turns: {fault}") from None
    trusted = is_shipped(content) or is_trusted(TURNS, content_digest(content))
    return [replace(ask, source=str(path), trusted=trusted) for ask in asks]


def turn_files(folder: Path) -> list[Path]:
    """Return the files of turns in a folder, sorted by name: at most 50, of at most 10,000 entries."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MOST_ENTRIES) if entry.name.endswith(SUFFIX)]
    except OSError:
        return []
    return [folder / name for name in sorted(names)[:_MOST_FILES]]
