"""The chunks of a folder, as the indexes of its packs list them, and those that were removed for space.

Rule 1: A record of a pack whose files are gone is not listed; a damaged record is listed no more once it was reported.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ctxkernel.core.errors import StoreError
from ctxkernel.store.chunks import packs
from ctxkernel.store.chunks.manifest import GIVEN_UP
from ctxkernel.store.chunks.packs import UNREAD, ChunkEntry, ReadTo, depth_of, entry_of
from ctxkernel.store.regular_files import ForeignFileError, open_regular, read_bounded

MOST_LINKS = 8
"""Deltas between a chunk and one that is stored whole."""
GIVEN_UP_FILE = "given-up"
"""The file that lists the chunks removed for space: a line each time with the day, the chunks, a tab and the reason."""
_MOST_GIVEN_UP = 16 * 1024 * 1024


class ChunkIndex:
    """The records of a folder by the address of their chunk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records: dict[str, bytes] = {}
        self.read_to: dict[int, ReadTo] = {}
        """The known packs, and how much of their indexes was read."""
        self._damaged: dict[str, set[bytes]] = {}

    def has(self, address: str) -> bool:
        """Return whether a chunk is listed, with all chunks that it is a delta of."""
        for _ in range(2 * MOST_LINKS):
            record = self.records.get(address)
            if record is None or not depth_of(record):
                return record is not None
            address = entry_of(record).base
        return False

    def entry(self, address: str) -> ChunkEntry:
        """Return the entry of a chunk. Raises StoreError if it is missing or damaged."""
        record = self.records.get(address)
        if record is not None and self.has(address):
            entry = entry_of(record)
            if not entry.depth or self._has_true_size(entry):
                return entry
        state = "damaged" if address in self._damaged else "missing"
        state = state if record is None else "a delta of one that is damaged"
        raise StoreError(
            f"chunk {address} of {self.folder} is {state}; re-run the cells that made its data, "
            "or return to another checkpoint"
        )

    def _has_true_size(self, entry: ChunkEntry) -> bool:
        """Return whether a delta and its base have together the bytes of the content; the bases too."""
        for base in bases_of(entry, self._listed):
            if entry.size > base.size + entry.stored:
                return False
            entry = base
        return True

    def entries(self) -> list[ChunkEntry]:
        """Return the entries of all chunks in the order in which they were written."""
        return sorted(map(entry_of, self.records.values()), key=lambda entry: (entry.pack, entry.offset))

    def load(self, number: int) -> int:
        """Read the new records of a pack; return their number. Raises OSError."""
        try:
            known = self.read_to.get(number, UNREAD)
            found, read_to = packs.read_index(self.folder, number, known)
        except (FileNotFoundError, ForeignFileError):  # removed since it was listed, or no pack
            return 0
        if known.mark and known.mark != read_to.mark:
            self.forget({number})
        self.read_to[number] = read_to
        if not self._damaged and self.records.keys().isdisjoint(found):  # the usual case, and fast
            self.records.update(found)
            return len(found)
        for address, record in found.items():
            if record in self._damaged.get(address, ()):
                continue
            # A whole chunk replaces its delta, and a later record replaces a damaged one.
            if (old := self.records.get(address)) is None or depth_of(record) <= depth_of(old):
                self.records[address] = record
        return len(found)

    def forget(self, numbers: Iterable[int]) -> bool:
        """Remove packs from the index; return whether chunks were lost."""
        gone = set(numbers)
        for number in gone:
            self.read_to.pop(number, None)
        lost = [address for address, record in self.records.items() if entry_of(record).pack in gone]
        for address in lost:
            del self.records[address]
        if lost:  # a removed record may have hidden a second copy in another pack: the next refresh finds it
            self.read_to = dict.fromkeys(self.read_to, UNREAD)
        return bool(lost)

    def mark_damaged(self, entry: ChunkEntry) -> None:
        """Remove a chunk whose data are damaged, so that it can be stored again."""
        self.records.pop(entry.address, None)
        self._damaged.setdefault(entry.address, set()).add(packs.body_of(entry))

    def is_damaged(self, address: str) -> bool:
        """Return whether a record of a chunk was found to be damaged."""
        return address in self._damaged

    def droppable(self, addresses: Iterable[str]) -> set[str]:
        """Return those of `addresses` that no other chunk is a delta of."""
        doomed = {address for address in addresses if address in self.records}
        for address, record in self.records.items():
            if depth_of(record) and address not in doomed:
                doomed.difference_update(base.address for base in bases_of(entry_of(record), self._listed))
        return doomed

    def _listed(self, address: str) -> ChunkEntry | None:
        record = self.records.get(address)
        return None if record is None else entry_of(record)


def bases_of(entry: ChunkEntry, listed: Callable[[str], ChunkEntry | None]) -> Iterator[ChunkEntry]:
    """Yield the chunks that a delta builds on, nearest first. Forged records can build a circle: it is left."""
    for _ in range(2 * MOST_LINKS):
        base = listed(entry.base) if entry.depth else None
        if base is None:
            return
        yield base
        entry = base


class RemovedChunks:
    """The chunks of a folder that were removed for space."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / GIVEN_UP_FILE
        self._reasons: dict[str, str] | None = None
        """By chunk; None until it is read."""

    def why(self, address: str) -> str:
        """Return why a chunk was removed; empty if it was not, or nobody knows."""
        if not self._reasons:
            self._reasons = {}
            with contextlib.suppress(OSError):
                for line in read_bounded(self._path, _MOST_GIVEN_UP).decode("utf-8", "replace").splitlines():
                    listed, _, why = line.partition("\t")
                    day, *addresses = listed.split() or ("",)
                    reason = f"{GIVEN_UP} on {day[:10]}{f' ({why[:200]})' if why else ''}"
                    self._reasons.update(dict.fromkeys(addresses, reason))
        return self._reasons.get(address, "")

    def record(self, addresses: Iterable[str], why: str) -> None:
        """Record that chunks are removed, unless the disk is too full for it."""
        line = " ".join((time.strftime("%Y-%m-%d"), *sorted(addresses))) + f"\t{' '.join(why.split())}\n"
        with contextlib.suppress(OSError):
            descriptor = open_regular(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with os.fdopen(descriptor, "ab") as file:
                file.write(line.encode())
        self._reasons = None
