"""The pass over a large file in the background: what all levels of detail need of it, found in one reading.

Rule 1: a survey is a value: facts about the first `offset` bytes of a file, which end where a line does. Who reads
        further makes another one, so that threads may share it.
Rule 2: a survey is believed for a file that can have grown only, as an index of lines is (`large_files.py`). Of a file
        that grew, only the new part is read.
Rule 3: between two parts the pass sleeps for a share of the time that it took: the cell that runs needs the
        interpreter too.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol, Self

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.jobs import IsCancelled, Publish
from ctxkernel.sources.base.file_reader import Gone, read_at, read_regular
from ctxkernel.sources.base.large_files import CHUNK, EMPTY, LineIndex, begins_same, proof_of

PART_BYTES = 1 << 20
LONGEST_LINE = 16 << 20
"""Of a longer line the facts have the beginning only."""
CATCH_UP_BYTES = 4 << 20
"""So much of a file that grew is read at once; more is left to the background."""
_PUBLISH_SECONDS = 0.5
_REST = 0.5
"""The pass sleeps for this share of the time that a part took."""


class Facts(Protocol):
    """Facts about the lines of a text."""

    @property
    def by_lines(self) -> bool:
        """Return whether it takes whole lines only, rather than any bytes."""
        ...

    def copy(self) -> Self:
        """Return facts that can take more lines without a change of these."""
        ...

    def take(self, data: bytes, line: int | None = None) -> None:
        """Take the next whole lines; `line` is the number of the first one, where that is not the next."""
        ...


@dataclass(frozen=True, slots=True)
class Survey:
    """Facts about the first `offset` bytes of a file."""

    facts: Any
    offset: int = 0
    inode: int = 0
    proof: str = ""
    whole: bool = False
    """Whether the file ended there, but for a line that has no end yet."""

    def holds(self, descriptor: int, found: os.stat_result) -> bool:
        """Return whether the file still begins with what was read."""
        return begins_same(descriptor, found, self.inode, self.offset, self.proof)

    def further(self, descriptor: int, inode: int, most: int) -> Survey:
        """Return a survey of about `most` bytes more; a last line without an end is left for later."""
        facts, offset, end, whole = self.facts.copy(), self.offset, self.offset + most, False
        while offset < end and not whole:
            data = read_at(descriptor, offset, PART_BYTES)
            whole = len(data) < PART_BYTES
            cut = data.rfind(b"\n") + 1 if facts.by_lines else len(data)
            if cut:
                facts.take(data[:cut])
                offset += cut
            elif not whole:
                offset = _skip(descriptor, facts, offset)
        return Survey(facts, offset, inode, proof_of(descriptor, offset), whole)

    def with_last_line(self, descriptor: int) -> Any:
        """Return the facts with the last line, which has no end yet; they can take no more."""
        data = read_at(descriptor, self.offset, LONGEST_LINE) if self.facts.by_lines else b""
        if not data:
            return self.facts
        facts = self.facts.copy()
        facts.take(data)
        return facts


def _skip(descriptor: int, facts: Facts, offset: int) -> int:
    """Take a line that is longer than a part; return where the next one begins, or `offset` if that is not known."""
    at, first = offset, b""
    while data := read_at(descriptor, at, PART_BYTES):
        first = first if len(first) >= LONGEST_LINE else first + data
        end = data.find(b"\n")
        if end >= 0:
            facts.take(first.partition(b"\n")[0] + b"\n")
            return at + end + 1
        at += len(data)
    facts.take(first)  # the last line
    return at


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Pass:
    """Facts that the background found in a file so far."""

    index: LineIndex = EMPTY
    survey: Survey | None = None
    """None for a kind of text that has no facts."""

    @property
    def whole(self) -> bool:
        """Return whether the end of the file was reached."""
        return self.index.whole and (self.survey is None or self.survey.whole)


ACCEPTED: weakref.WeakValueDictionary[str, Pass] = weakref.WeakValueDictionary()
"""By path, what a tick accepted for a view last, while that view has it: another one of the file begins with it."""


def run_pass(path: str, known: Pass, facts: Callable[[], Facts] | None, stopped: IsCancelled, publish: Publish) -> Pass:
    """Return the index and the facts of the whole file, `known` taken further; for a worker.

    What is found so far is published twice a second. Raises OSError for a file that can be read no more.
    """

    def found_in(descriptor: int, found: os.stat_result) -> Pass:
        # What was the end of the file may not be any more.
        index = replace(known.index, whole=False) if known.index.holds(descriptor, found) else EMPTY
        survey = replace(known.survey, whole=False) if known.survey is not None else None
        if facts is not None and (survey is None or not survey.holds(descriptor, found)):
            survey = Survey(facts(), inode=found.st_ino)
        rest = Rest()
        result = Pass(index, survey)
        due = time.monotonic() + _PUBLISH_SECONDS
        while not result.whole and not stopped():
            if not index.whole:
                top = index.scanned // CHUNK * CHUNK + 8 * CHUNK
                index = index.further(descriptor, found.st_ino, offset=top, most=top)
            if survey is not None and not survey.whole and (index.whole or survey.offset < index.scanned):
                survey = survey.further(descriptor, found.st_ino, 4 * PART_BYTES)
                rest()
            result = Pass(index, survey)
            if time.monotonic() >= due:
                publish(result)
                due = time.monotonic() + _PUBLISH_SECONDS
        return result

    result = read_regular(path, found_in)
    if isinstance(result, Gone):
        raise OSError(f"{path}: {result.reason}")
    return result


@dataclass(slots=True)
class Rest:
    """Sleeps between the steps of a pass."""

    begun: float = field(default_factory=time.thread_time)

    def __call__(self) -> None:
        """Sleep for a share of the processor time since the last call."""
        time.sleep(min(0.1, _REST * max(0.0, time.thread_time() - self.begun)))
        self.begun = time.thread_time()
