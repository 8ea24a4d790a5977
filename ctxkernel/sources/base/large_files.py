"""The lines of a text from a position on, whether the text is held whole or read from a huge file.

Rule 1: of a large file at most `SCAN_BYTES` beyond its index are looked through for line ends; positions so far are
        exact, later ones estimated from the average line, and said to be so (`~`).
Rule 2: one window reads at most `WINDOW_BYTES`, wherever it lies.
Rule 3: an index, how many line ends come before each megabyte, is a value. Who scans further makes another one, so
        that threads may share it. Eight bytes a megabyte are kept: 16 kB for 2 GB.
Rule 4: an index is believed for a file that can have grown only: the same inode, as long at least, and its bytes the
        same at the beginning and where the scan ended. A change between them that kept the length is not seen.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Sequence

import xxhash

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.projection.tokens import most_chars
from ctxkernel.sources.base.amounts import lines_within
from ctxkernel.sources.base.file_reader import Gone, Text, read_at, read_regular
from ctxkernel.sources.base.rendering import Place

CHUNK = 1 << 20
SCAN_BYTES = 16 << 20
"""So much of what is not in the index yet is looked through where it is asked for."""
INDEX_BYTES = 64 << 30
"""A larger file is not read through unasked; its numbers of lines stay estimates."""
_PROOF_BYTES = 4096


@dataclass(frozen=True, slots=True)
class LineIndex:
    """The line ends of the first `scanned` bytes of a file."""

    before: array[int] = field(default_factory=lambda: array("Q", (0,)))
    """Line ends before each chunk; one entry more than chunks."""
    scanned: int = 0
    inode: int = 0
    proof: str = ""
    whole: bool = False
    """Whether the file ended where the scan did."""

    @property
    def lines(self) -> int:
        """Line ends that were found."""
        return self.before[-1]

    def holds(self, descriptor: int, found: os.stat_result) -> bool:
        """Return whether the file still begins with what was scanned."""
        return begins_same(descriptor, found, self.inode, self.scanned, self.proof)

    def further(self, descriptor: int, inode: int, *, line: int | None = None, offset: int, most: int) -> LineIndex:
        """Return an index up to line `line`, or up to byte `offset`; or, where that is further, up to byte `most`."""
        if self.scanned >= most or (self.lines >= line if line is not None else self.scanned >= offset):
            return self
        full = self.scanned // CHUNK  # the last chunk may have been cut short by the end of the file
        before, scanned, whole = array("Q", self.before[: full + 1]), full * CHUNK, False
        while scanned < most and (before[-1] < line if line is not None else scanned < offset):
            chunk = read_at(descriptor, scanned, CHUNK)
            if chunk:
                scanned += len(chunk)
                before.append(before[-1] + chunk.count(b"\n"))
            if len(chunk) < CHUNK:
                whole = True
                break
        return LineIndex(before, scanned, inode, proof_of(descriptor, scanned), whole)


EMPTY = LineIndex()


def proof_of(descriptor: int, scanned: int) -> str:
    """Return a hash that the first `scanned` bytes of a file are known by: of their beginning and end."""
    state = xxhash.xxh3_64(read_at(descriptor, 0, min(scanned, _PROOF_BYTES)))
    start = max(0, scanned - _PROOF_BYTES)
    state.update(read_at(descriptor, start, scanned - start))
    return state.hexdigest()


def begins_same(descriptor: int, found: os.stat_result, inode: int, scanned: int, proof: str) -> bool:
    """Return whether a file is the one that was scanned, and its first `scanned` bytes are known by this proof."""
    same = inode == found.st_ino and scanned <= found.st_size
    return same and (not scanned or proof == proof_of(descriptor, scanned))


WINDOW_BYTES = 4 << 20
_ALIGN_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Window:
    """Lines from a position on. `lines[0]` begins at `col` of line `line`."""

    lines: Sequence[str]
    line: int
    col: int = 0
    exact: bool = True
    """Whether `line` is the number of the line, or an estimate."""
    total: int | None = None
    """Lines of the whole text, where known; else `estimate` holds a guess."""
    estimate: int = 0
    past_end: bool = False
    offset: int | None = None
    """Byte offset of the window in a large file."""
    widths: Sequence[int] = ()
    """Bytes of each line, line end included, in a large file."""
    left: int = 0
    """Bytes of a large file from `offset` on."""
    cut: bool = False
    """Whether its only line goes on after it."""
    reach: int = 0
    """Byte of a large file up to which positions by line are exact."""
    indexed: int | None = None
    """Percent of a large file that were indexed, while that goes on."""

    @property
    def about(self) -> str:
        """The sign before its line number: `~` where that is an estimate."""
        return "" if self.exact else "~"

    @property
    def of(self) -> str:
        """The number of lines of the whole text, `~` before an estimate and `+` after a lower bound."""
        if self.total is not None:
            return f"{self.total:,}"
        if self.offset is None:
            return f"{self.known:,}+"
        return f"~{self.estimate:,}" + (f" (indexing, {self.indexed} %)" if self.indexed is not None else "")

    @property
    def known(self) -> int:
        """The number of lines up to the end of `lines`: in memory the least that the text has."""
        return self.line + len(self.lines)

    def place_after(self, count: int, chars: int = 0) -> str | None:
        """Return the position after `count` lines and `chars` characters of the next; None at the end."""
        if self.offset is None:
            if count >= len(self.lines) and self.total in (None, self.known):
                return None
            return str(Place(self.line + count, (self.col if count == 0 else 0) + chars))
        used = sum(self.widths[:count])
        if chars and count < len(self.lines):
            used += min(len(self.lines[count][:chars].encode("utf-8", "replace")), self.widths[count])
        if used >= self.left:
            return None
        if self.exact and not chars and not self.cut and (count or not self.col) and self.offset + used < self.reach:
            return str(self.line + count)
        return f"@{self.offset + used}"


def whole_window(text: Text, place: Place) -> Window:
    """Return the window of a text that is held in memory, whole or its beginning."""
    lines, line, col = text.lines, place.line, place.col
    if place.offset is not None:  # a position in a file that was larger once
        start = text.text.rfind("\n", 0, place.offset) + 1
        line = text.text.count("\n", 0, start)
        col = 0 if place.shift else min(place.offset, len(text.text)) - start
        line = max(0, line + place.shift)
    total = len(lines)
    past = line >= total > 0
    if past:
        line, col = total - 1, 0
    rest = lines[line:]
    if col and rest:
        col = min(col, len(rest[0]))
        rest[0] = rest[0][col:]
    return Window(rest, line, col, total=total if text.whole else None, past_end=past)


class LargeFile:
    """A file too large to hold: where its lines begin, as far as they were looked for."""

    def __init__(self, path: str, known: LineIndex | None = None) -> None:
        """`known` is believed as far as it still holds."""
        self._path = path
        held = known is not None and read_regular(path, known.holds) is True
        self.index = known if known is not None and held else EMPTY
        """Replaced, never changed: a worker may look at the same file."""
        self._reach = self.index.scanned + SCAN_BYTES

    @property
    def indexed(self) -> int:
        """Bytes from the beginning in which lines are found at once."""
        return self._reach

    def window(self, place: Place, budget: int) -> Window | Gone:
        """Return the lines from `place` on, as many as `budget` tokens could hold."""
        count = min(WINDOW_BYTES, most_chars(budget) + 8192)
        return read_regular(self._path, lambda descriptor, found: self._window(descriptor, found.st_size, place, count))

    def end(self, count: int | None, tokens: int) -> Place | None:
        """Return the place of the last `count` lines, or of as many as are within `tokens`; None if it is gone."""

        def place(descriptor: int, found: os.stat_result) -> Place:
            size = found.st_size
            start = max(0, size - WINDOW_BYTES if count is not None else size - most_chars(tokens) - 8192)
            start = max(start, size - WINDOW_BYTES)
            pieces = read_at(descriptor, start, size - start).removesuffix(b"\n").split(b"\n")
            whole = pieces[bool(start) :]
            steps = count or lines_within([shown_line(piece) for piece in whole], tokens, last=True)
            if steps <= len(whole):
                ends = _ends_with_break(descriptor, size)
                return Place(offset=max(0, size - sum(len(piece) + 1 for piece in whole[-steps:]) + (not ends)))
            self._scan(descriptor, offset=size)
            total = self.index.lines if self.index.scanned >= size else self._estimate(size)
            return Place(max(0, total - steps))

        found = read_regular(self._path, place)
        return None if isinstance(found, Gone) else found

    def further(self, place: Place, tokens: int) -> str | None:
        """Return the position that is `tokens` after `place` (before, if negative), at most `WINDOW_BYTES`.

        By the rules of `rendering`. A line that is longer than a window is moved through by windows. None where the
        file cannot be read.
        """
        place = Place(place.line, 0, place.offset, place.shift)
        count = min(WINDOW_BYTES, most_chars(abs(tokens)) + 8192)
        step = self._before if tokens < 0 else self._after
        moved = read_regular(
            self._path, lambda descriptor, found: step(descriptor, found.st_size, place, count, tokens)
        )
        return None if isinstance(moved, Gone) else moved

    def _after(self, descriptor: int, size: int, place: Place, count: int, tokens: int) -> str:
        window = self._window(descriptor, size, place, count)
        if len(window.lines) < 2:  # how the line ends is further on
            window = self._window(descriptor, size, place, WINDOW_BYTES)
        if not tokens or window.past_end:
            return str(place)
        steps = lines_within(window.lines, tokens)
        return window.place_after(steps) or window.place_after(steps - 1) or str(place)

    def _before(self, descriptor: int, size: int, place: Place, count: int, tokens: int) -> str:
        if place.offset is None:
            offset, _ = self._offset_of(descriptor, place.line, size)
        else:
            offset = _shifted(descriptor, place.offset, place.shift) if place.shift else place.offset
        offset = min(offset, size)
        for most in (count, WINDOW_BYTES):
            start = max(0, offset - most)
            # With the byte before, so that what stands up to the first line end is never a whole line.
            pieces = read_at(descriptor, max(0, start - 1), offset - max(0, start - 1)).split(b"\n")
            whole = pieces[bool(start) : -1]
            if whole or not start:
                break
        if not whole:  # within a very long line, or its beginning
            return f"@{start}" if start else "0"
        steps = lines_within([shown_line(piece) for piece in whole], -tokens, last=True)
        offset -= sum(len(piece) + 1 for piece in whole[-steps:]) + len(pieces[-1])
        line, exact = self._line_of(descriptor, offset) if offset < self._reach else (0, False)
        return str(line) if exact else f"@{offset}"

    def _window(self, descriptor: int, size: int, place: Place, count: int) -> Window:
        past = False
        if place.offset is None:
            offset, exact = self._offset_of(descriptor, place.line, size)
            line, col = place.line, place.col
        else:
            offset, exact, line, col = place.offset, True, -1, 0
            if place.shift:
                offset = _shifted(descriptor, offset, place.shift)
        if offset >= size:
            past, exact, line, col = True, True, -1, 0
            offset = _line_start(descriptor, max(0, size - min(count, 4096)))
        if col:
            offset, col = _advance(descriptor, offset, col, size)
        raw = read_at(descriptor, offset, count)
        skip = next((i for i, byte in enumerate(raw[:4]) if byte & 0xC0 != 0x80), 0)
        raw, offset = raw[skip:], offset + skip
        if line < 0:
            line, exact = self._line_of(descriptor, offset)
        pieces = raw.split(b"\n")
        at_end = offset + len(raw) >= size
        if len(pieces) > 1 and (not at_end or not pieces[-1]):
            pieces.pop()  # cut short by the window, or the nothing after a last line end
        cut = len(pieces) == 1 and not at_end and b"\n" not in raw
        widths = [len(piece) + (not cut) for piece in pieces]
        lines = [shown_line(piece) for piece in pieces]
        if size <= self._reach:
            self._scan(descriptor, offset=size)
        index = self.index
        total = index.lines + (not _ends_with_break(descriptor, size)) if index.scanned >= size else None
        begun = total is None and self._reach > SCAN_BYTES
        return Window(
            lines,
            line,
            col,
            exact,
            total=total,
            estimate=self._estimate(size),
            past_end=past,
            offset=offset,
            widths=widths,
            left=size - offset,
            cut=cut,
            reach=self._reach,
            indexed=100 * index.scanned // size if begun else None,
        )

    def _scan(self, descriptor: int, *, line: int | None = None, offset: int = 0) -> None:
        """Look for line ends until line `line` or byte `offset` is reached, or the bound."""
        inode = os.fstat(descriptor).st_ino
        self.index = self.index.further(descriptor, inode, line=line, offset=offset, most=self._reach)

    def _average(self) -> float:
        return self.index.scanned / max(self.index.lines, 1)

    def _estimate(self, size: int) -> int:
        return max(1, round(size / self._average())) if self.index.scanned else 0

    def _offset_of(self, descriptor: int, line: int, size: int) -> tuple[int, bool]:
        """Return where line `line` begins, and whether that is exact."""
        if line == 0:
            self._scan(descriptor, offset=1)  # for the estimate of lines
            return 0, True
        self._scan(descriptor, line=line)
        index = self.index
        if index.lines >= line:
            chunk = bisect_left(index.before, line) - 1
            data = read_at(descriptor, chunk * CHUNK, CHUNK)
            rest = data.split(b"\n", line - index.before[chunk])[-1]
            return chunk * CHUNK + len(data) - len(rest), True
        if index.scanned >= size:
            return size, True
        guess = index.scanned + int((line - index.lines) * self._average())
        return (size, True) if guess >= size else (_line_start(descriptor, guess), False)

    def _line_of(self, descriptor: int, offset: int) -> tuple[int, bool]:
        """Return the number of the line that `offset` lies in, and whether that is exact."""
        self._scan(descriptor, offset=min(offset, self._reach))
        index = self.index
        if offset <= index.scanned:
            chunk = min(offset // CHUNK, len(index.before) - 1)
            part = read_at(descriptor, chunk * CHUNK, offset - chunk * CHUNK)
            return index.before[chunk] + part.count(b"\n"), True
        return index.lines + round((offset - index.scanned) / self._average()), False


def _line_start(descriptor: int, offset: int) -> int:
    """Return where the first line after `offset` begins; `offset` itself within a very long line."""
    if offset == 0:
        return 0
    data = read_at(descriptor, offset, _ALIGN_BYTES)
    return offset + data.find(b"\n") + 1


def _shifted(descriptor: int, offset: int, lines: int) -> int:
    """Return the beginning of the line that is `lines` after (before, if negative) `offset`."""
    if lines > 0:
        data = read_at(descriptor, offset, WINDOW_BYTES)
        return offset + len(data) - len(data.split(b"\n", lines)[-1])
    start = max(0, offset - WINDOW_BYTES)
    data = read_at(descriptor, start, offset - start).removesuffix(b"\n")
    pieces = data.rsplit(b"\n", -lines)
    return start if len(pieces) <= -lines else start + len(pieces[0]) + 1


def _advance(descriptor: int, offset: int, col: int, size: int) -> tuple[int, int]:
    """Return (offset of, column) for column `col` of the line at `offset`; its end where it is shorter."""
    data = read_at(descriptor, offset, min(4 * col + 4, SCAN_BYTES))
    line = data.split(b"\n", 1)[0]
    if len(line) < len(data) or offset + len(data) >= size or len(line) >= 4 * col:
        if line.isascii():
            return offset + min(col, len(line)), min(col, len(line))
        shown = line.decode("utf-8", "replace")[:col]
        return offset + len(shown.encode("utf-8", "replace")), len(shown)
    return min(offset + col, size), col  # a line too long to decode up to there: bytes for characters


def _ends_with_break(descriptor: int, size: int) -> bool:
    return read_at(descriptor, max(0, size - 1), 1) in (b"\n", b"")


def shown_line(raw: bytes) -> str:
    """Return a line as it is shown, without its end."""
    return raw.removesuffix(b"\r").decode("utf-8", "replace").replace("\0", "\u2400").replace("\r", "\u240d")
