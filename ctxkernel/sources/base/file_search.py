"""Searching a file of any size for the lines that match a pattern.

Rule 1: a search is a value: the matches in the first `offset` bytes, which end where a line does. Who searches further
        makes another one.
Rule 2: a line matches as in a text in memory: the same characters of it are looked through.
Rule 3: a search is believed for a file that can have grown only; then the new part is searched.
"""

from __future__ import annotations

import os
import re
from array import array

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.jobs import IsCancelled, Publish
from ctxkernel.core.text import plural
from ctxkernel.sources.base.file_reader import Gone, read_at, read_regular
from ctxkernel.sources.base.large_files import begins_same, proof_of, shown_line
from ctxkernel.sources.base.positions import Pattern, chars_for, literal_of
from ctxkernel.sources.base.surveys import PART_BYTES, Rest

SEARCHED_AT_ONCE = 8 << 20
"""So much of a file is searched where a position is asked for; the background searches the rest."""
KEPT = 10_000
"""Of so many first matches, and last ones, the places are known."""


@dataclass(slots=True)
class Search:
    """The lines that match a pattern, by where they begin. Only `further` changes one, which it has just made."""

    pattern: re.Pattern[str]
    offset: int = 0
    inode: int = 0
    proof: str = ""
    whole: bool = False
    """Whether the file ended there, but for a line that has no end yet."""
    count: int = 0
    first: array[int] = field(default_factory=lambda: array("Q"))
    last: array[int] = field(default_factory=lambda: array("Q"))
    """Empty as long as `first` has all of them."""
    open_end: int = -1
    """The offset of a line that has no end yet, if it matches."""
    _chars: int = field(init=False)
    _literal: bytes = field(init=False)

    def __post_init__(self) -> None:
        self._chars, self._literal = chars_for(self.pattern), literal_of(self.pattern)

    @property
    def notice(self) -> str:
        """The message for a user who waits for it."""
        total = self.count + (self.open_end >= 0)
        return f"/{self.pattern.pattern}/: {plural(total, 'matches') if total != 1 else '1 match'} found"

    def holds(self, descriptor: int, found: os.stat_result) -> bool:
        """Return whether the file still begins with what was searched."""
        return begins_same(descriptor, found, self.inode, self.offset, self.proof)

    def place(self, number: int) -> int | None:
        """Return where a match begins: the first is 1, the last -1; None where it is not there, or not known."""
        total = self.count + (self.open_end >= 0)
        if number < 0:
            number = total + number + 1 if self.whole else 0
        if not 0 < number <= total:
            return None
        if number > self.count:
            return self.open_end
        if number <= len(self.first):
            return self.first[number - 1]
        back = self.count - number
        return self.last[-1 - back] if back < len(self.last) else None

    def settled(self, number: int) -> bool:
        """Return whether searching on would not change where a match is."""
        return self.whole or (number > 0 and self.place(number) is not None)

    def further(self, descriptor: int, inode: int, number: int, most: int) -> Search:
        """Return a search of about `most` bytes more, or up to match `number`."""
        look = replace(self, inode=inode, first=self.first[:], last=self.last[:], open_end=-1, whole=False)
        end = look.offset + most
        while look.offset < end and not look.whole and not (0 < number <= look.count):
            data = read_at(descriptor, look.offset, PART_BYTES)
            look.whole = len(data) < PART_BYTES
            cut = data.rfind(b"\n") + 1
            if cut:
                look._take(data[:cut])
            elif not look.whole:
                look._skip(descriptor, data)
            if look.whole and look._matches(rest := data[cut:]) and rest:
                look.open_end = look.offset
        look.proof = proof_of(descriptor, look.offset)
        return look

    def _matches(self, line: bytes) -> bool:
        """Return whether a line without its end matches."""
        return self.pattern.search(shown_line(line), 0, self._chars) is not None

    def _take(self, data: bytes) -> None:
        """Search whole lines."""
        if self._literal:
            at = data.find(self._literal)
            while at >= 0:
                start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
                if self._matches(data[start:end]):
                    self._found(self.offset + start)
                at = data.find(self._literal, end)
        else:
            start = 0
            for line in data[:-1].split(b"\n"):
                if self._matches(line):
                    self._found(self.offset + start)
                start += len(line) + 1
        self.offset += len(data)

    def _skip(self, descriptor: int, data: bytes) -> None:
        """Search the beginning of a line that is longer than a part, and go to the next, if there is one."""
        if self._matches(data):
            self._found(self.offset)
        at = self.offset + len(data)
        while part := read_at(descriptor, at, PART_BYTES):
            end = part.find(b"\n")
            if end >= 0:
                self.offset = at + end + 1
                return
            at += len(part)
        self.offset, self.whole = at, True

    def _found(self, offset: int) -> None:
        self.count += 1
        if len(self.first) < KEPT:
            self.first.append(offset)
            return
        self.last.append(offset)
        if len(self.last) > 2 * KEPT:
            self.last = self.last[-KEPT:]


def search_file(path: str, known: Search, pattern: Pattern, stopped: IsCancelled, publish: Publish) -> Search:
    """Return `known` searched up to the match that is meant, or to the end; for a worker.

    Raises OSError for a file that can be read no more.
    """

    def found_in(descriptor: int, found: os.stat_result) -> Search:
        search = known if known.holds(descriptor, found) else Search(known.pattern)
        rest = Rest()
        while not search.settled(pattern.number) and not stopped():
            search = search.further(descriptor, found.st_ino, pattern.number, 8 * PART_BYTES)
            publish(None)  # a sign of life
            rest()
        return search

    result = read_regular(path, found_in)
    if isinstance(result, Gone):
        raise OSError(f"{path}: {result.reason}")
    return result
