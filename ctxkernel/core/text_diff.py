"""Unified differences of two lists of lines, in bounded time (level of detail 3).

Rule 1: never quadratic in the file: common ends are set aside, lines that are unique in both anchor the rest
        (patience diff), and only small gaps between anchors go to difflib.
Rule 2: applying the difference to the old lines gives the new ones (a test does).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

_GAP_PRODUCT = 40_000
"""Old × new lines of a gap that difflib is asked about; a larger gap is replaced as a whole."""
_ROUNDS = 8
"""The number of times that a gap is anchored again by its unique lines."""

Hunk = tuple[int, int, int, int]
"""Old lines [a, b) become new lines [c, d)."""


def changes(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Return what changed, in order."""
    out: list[Hunk] = []
    stack: list[tuple[Hunk, int]] = [((0, len(old), 0, len(new)), 0)]
    while stack:
        (a, b, c, d), depth = stack.pop()
        while a < b and c < d and old[a] == new[c]:
            a, c = a + 1, c + 1
        while a < b and c < d and old[b - 1] == new[d - 1]:
            b, d = b - 1, d - 1
        if a == b and c == d:
            continue
        anchors = _anchors(old, new, a, b, c, d) if a < b and c < d and depth < _ROUNDS else []
        if anchors:
            gaps: list[Hunk] = []
            for x, y in anchors:
                gaps.append((a, x, c, y))
                a, c = x + 1, y + 1
            stack += [(gap, depth + 1) for gap in reversed([*gaps, (a, b, c, d)])]
        elif a < b and c < d and (b - a) * (d - c) <= _GAP_PRODUCT:
            matcher = SequenceMatcher(None, old[a:b], new[c:d])
            out += [(a + i, a + j, c + k, c + m) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"]
        else:
            out.append((a, b, c, d))
    return _joined(out)


def unified(old: Sequence[str], new: Sequence[str], context: int = 2, first: int = 0) -> list[str]:
    """Return the lines of a unified diff without its file headers; `first` is the number of line 0."""
    lines: list[str] = []
    for group in _groups(changes(old, new), context):
        a, b = max(0, group[0][0] - context), min(len(old), group[-1][1] + context)
        c, d = max(0, group[0][2] - context), min(len(new), group[-1][3] + context)
        lines.append(f"@@ -{_span(a + first, b - a)} +{_span(c + first, d - c)} @@")
        at = a
        for i, j, k, m in group:
            lines += [" " + line for line in old[at:i]]
            lines += ["-" + line for line in old[i:j]]
            lines += ["+" + line for line in new[k:m]]
            at = j
        lines += [" " + line for line in old[at:b]]
    return lines


def counted(hunks: Sequence[Hunk]) -> str:
    """Return the numbers of added and removed lines: `+3 −1 lines`."""
    return f"+{sum(d - c for _, _, c, d in hunks):,} −{sum(b - a for a, b, _, _ in hunks):,} lines"


def _anchors(old: Sequence[str], new: Sequence[str], a: int, b: int, c: int, d: int) -> list[tuple[int, int]]:
    """Return the longest rising chain of lines that are unique on both sides."""
    there = Counter(old[a:b])
    here = Counter(new[c:d])
    where = {new[y]: y for y in range(c, d) if here[new[y]] == 1}
    pairs = [(x, where[old[x]]) for x in range(a, b) if there[old[x]] == 1 and old[x] in where]
    tails: list[int] = []  # the last new line of the best chain of each length
    ends: list[int] = []  # the index of its last pair
    previous: list[int] = []
    for at, (_, y) in enumerate(pairs):
        length = bisect_left(tails, y)
        previous.append(ends[length - 1] if length else -1)
        tails[length : length + 1] = [y]
        ends[length : length + 1] = [at]
    chain: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        chain.append(pairs[at])
        at = previous[at]
    return chain[::-1]


def _joined(hunks: list[Hunk]) -> list[Hunk]:
    out: list[Hunk] = []
    for hunk in sorted(hunks):
        if out and out[-1][1] == hunk[0] and out[-1][3] == hunk[2]:
            out[-1] = (out[-1][0], hunk[1], out[-1][2], hunk[3])
        else:
            out.append(hunk)
    return out


def _groups(hunks: Sequence[Hunk], context: int) -> Iterator[list[Hunk]]:
    group: list[Hunk] = []
    for hunk in hunks:
        if group and hunk[0] - group[-1][1] > 2 * context:
            yield group
            group = []
        group.append(hunk)
    if group:
        yield group


def _span(start: int, count: int) -> str:
    # As diff(1) has it: lines from 1, an empty side by the line before it.
    return f"{start + 1 if count else start},{count}" if count != 1 else str(start + 1)
