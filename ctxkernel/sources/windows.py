"""Windows: the lines of a text from a position on, whether the text is held whole or read from a huge file.

Rule 1: of a large file at most `SCAN_BYTES` are looked through for line ends, once; positions within them are
        exact, later ones estimated from the average line, and said to be so (`~`).
Rule 2: one window reads at most `WINDOW_BYTES`, wherever it lies.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ctxkernel.projection.tokens import most_chars
from ctxkernel.sources.reading import Gone, Text, open_regular, read_at, reason_of
from ctxkernel.sources.rendering import Place

SCAN_BYTES = 16 << 20
WINDOW_BYTES = 4 << 20
_CHUNK = 1 << 20
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

    def place_after(self, count: int, chars: int = 0) -> str | None:
        """Return the position after `count` lines and `chars` characters of the next; None at the end."""
        if self.offset is None:
            if count >= len(self.lines):
                return None
            return str(Place(self.line + count, (self.col if count == 0 else 0) + chars))
        used = sum(self.widths[:count])
        if chars and count < len(self.lines):
            used += min(len(self.lines[count][:chars].encode("utf-8", "replace")), self.widths[count])
        if used >= self.left:
            return None
        if self.exact and not chars and (count or not self.col) and self.offset + used < SCAN_BYTES:
            return str(self.line + count)
        return f"@{self.offset + used}"


def whole_window(text: Text, place: Place) -> Window:
    """Return the window of a text that is held in memory."""
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
    return Window(rest, line, col, total=total, past_end=past)


class LargeFile:
    """A file too large to hold: where its lines begin, as far as they were looked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Line ends before each chunk that was scanned; one entry more than chunks.
        self._before = [0]
        self._scanned = 0

    def window(self, place: Place, budget: int) -> Window | Gone:
        """Return the lines from `place` on, as many as `budget` tokens could hold."""
        opened = open_regular(self._path)
        if isinstance(opened, Gone):
            return opened
        descriptor, found = opened
        try:
            return self._window(descriptor, found.st_size, place, min(WINDOW_BYTES, most_chars(budget) + 8192))
        except OSError as fault:
            return Gone(reason_of(fault))
        finally:
            os.close(descriptor)

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
            line, exact = self._line_of(descriptor, offset, size)
        pieces = raw.split(b"\n")
        at_end = offset + len(raw) >= size
        if len(pieces) > 1 and (not at_end or not pieces[-1]):
            pieces.pop()  # cut short by the window, or the nothing after a last line end
        widths = [len(piece) + 1 for piece in pieces]
        lines = [_shown(piece) for piece in pieces]
        total = self._before[-1] + (not _ends_with_break(descriptor, size)) if self._scanned >= size else None
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
        )

    def _scan(self, descriptor: int, *, line: int | None = None, offset: int = 0) -> None:
        """Look for line ends until line `line` or byte `offset` is reached, or the bound."""
        while self._scanned < SCAN_BYTES and (self._before[-1] < line if line is not None else self._scanned < offset):
            chunk = read_at(descriptor, self._scanned, _CHUNK)
            if not chunk:
                break
            self._scanned += len(chunk)
            self._before.append(self._before[-1] + chunk.count(b"\n"))
            if len(chunk) < _CHUNK:
                break

    def _average(self) -> float:
        return self._scanned / max(self._before[-1], 1)

    def _estimate(self, size: int) -> int:
        return max(1, round(size / self._average())) if self._scanned else 0

    def _offset_of(self, descriptor: int, line: int, size: int) -> tuple[int, bool]:
        """Return where line `line` begins, and whether that is exact."""
        if line == 0:
            self._scan(descriptor, offset=1)  # for the estimate of lines
            return 0, True
        self._scan(descriptor, line=line)
        if self._before[-1] >= line:
            chunk = bisect_left(self._before, line) - 1
            data = read_at(descriptor, chunk * _CHUNK, _CHUNK)
            rest = data.split(b"\n", line - self._before[chunk])[-1]
            return chunk * _CHUNK + len(data) - len(rest), True
        if self._scanned >= size:
            return size, True
        guess = self._scanned + int((line - self._before[-1]) * self._average())
        return (size, True) if guess >= size else (_line_start(descriptor, guess), False)

    def _line_of(self, descriptor: int, offset: int, size: int) -> tuple[int, bool]:
        """Return the number of the line that `offset` lies in, and whether that is exact."""
        self._scan(descriptor, offset=min(offset, SCAN_BYTES))
        if offset <= self._scanned:
            chunk = max(0, bisect_right(range(0, self._scanned + 1, _CHUNK), offset) - 1)
            part = read_at(descriptor, chunk * _CHUNK, offset - chunk * _CHUNK)
            return self._before[min(chunk, len(self._before) - 1)] + part.count(b"\n"), True
        return self._before[-1] + round((offset - self._scanned) / self._average()), False


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


def _shown(raw: bytes) -> str:
    return raw.removesuffix(b"\r").decode("utf-8", "replace").replace("\0", "\u2400").replace("\r", "\u240d")
