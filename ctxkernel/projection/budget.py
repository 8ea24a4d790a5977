"""Who gets how many tokens: cutting one text, sharing a budget, and masking old outputs in batches.

Rule 1: a budget is a hard cap: nothing here returns more than it was given.
Rule 2: what the history looks like is a function of the statements' sizes and of one cap, folded from the oldest to
        the newest: built step by step or anew, it comes out the same (law 3).
Rule 3: outputs are masked in batches. Masking one at a time would change the prompt's prefix at every turn, and a
        provider's cache would be lost each time; a batch makes room for many turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ctxkernel.core.ports import CountTokens

HISTORY_SHARES = (0.6, 0.45, 0.3, 0.15)
"""Shares of the budget that the history may take; a smaller one where pinned content needs the room.

Few steps, so that a pinned text that grows by a line does not move the cut: that would be a new prefix each time.
"""
REFILL = 0.7
"""A batch goes on until the history is down to this part of its cap."""
STUBS = 0.25
"""Statements whose outputs are masked take at most this part; then the oldest of them are dropped …"""
STUBS_REFILL = 0.125
"""… down to this part, at once."""

_CHARS_A_TOKEN = 8
"""A text with more characters a token than this is cut without being counted: few are, and all lose is accuracy."""
_LINE = 100
"""A cut is moved to a line break that is at most so many characters away."""


class Fitted(NamedTuple):
    """A text within its budget, its tokens, and how many characters of the middle were left out."""

    text: str
    tokens: int
    cut: int


def fit(text: str, limit: int, count: CountTokens) -> Fitted:
    """Return `text`, or its head and tail round a mark that says how much is missing; "" where not even that fits.

    Holds: tokens == count(text of the result) <= max(limit, 0).
    """
    if len(text) <= max(limit, 0) * _CHARS_A_TOKEN:
        tokens = count(text)
        if tokens <= limit:
            return Fitted(text, tokens, 0)
        keep = len(text) * limit // tokens
    else:
        keep = max(limit, 0) * 3
    while keep > 16:
        shorter, cut = _ends(text, keep)
        tokens = count(shorter)
        if tokens <= limit:
            return Fitted(shorter, tokens, cut)
        keep = min(keep * limit // tokens, keep * 9 // 10)
    mark = _mark(len(text))
    tokens = count(mark)
    return Fitted(mark, tokens, len(text)) if tokens <= limit else Fitted("", 0, len(text))


def _mark(cut: int) -> str:
    return f"[… {cut:,} characters left out …]\n"


def _ends(text: str, keep: int) -> tuple[str, int]:
    """Return about `keep` characters of `text`, half from each end, cut at lines where one is near."""
    head = keep // 2
    tail = len(text) - (keep - head)
    near = text.rfind("\n", max(head - _LINE, head // 2), head)
    if near >= 0:
        head = near + 1
    near = text.find("\n", tail, min(tail + _LINE, (tail + len(text)) // 2))
    if near >= 0:
        tail = near + 1
    lead = text[:head] if head == 0 or text[head - 1] == "\n" else text[:head] + "\n"
    return lead + _mark(tail - head) + text[tail:], tail - head


def level(total: int, wants: Sequence[int]) -> list[int]:
    """Share `total` so that small wants are met and the large ones get the same; never more than wanted.

    Holds: sum(result) <= max(total, 0); where sum(wants) <= total, result == wants.
    """
    total = max(total, 0)
    if sum(wants) <= total:
        return list(wants)
    grants = [0] * len(wants)
    left = len(wants)
    for index in sorted(range(len(wants)), key=lambda i: wants[i]):
        grants[index] = min(wants[index], total // left)
        total -= grants[index]
        left -= 1
    return grants


def shares(total: int, wants: Sequence[int], parts: Sequence[float]) -> list[int]:
    """Share `total`: everyone first up to its part of it, then the rest in order, each up to what it wants.

    Holds: sum(result) <= max(total, 0) where sum(parts) <= 1; no result exceeds its want.
    """
    total = max(total, 0)
    if sum(wants) <= total:
        return list(wants)
    grants = [min(want, int(total * part)) for want, part in zip(wants, parts, strict=True)]
    rest = total - sum(grants)
    for index, want in enumerate(wants):
        more = min(want - grants[index], rest)
        grants[index] += more
        rest -= more
    return grants


def history_cap(room: int, pinned: int) -> int:
    """Return the cap of the history, of `room` tokens for all but the system text, with `pinned` tokens pinned."""
    for share in HISTORY_SHARES:
        # What is pinned, and a third of the tail beside it for tables and deltas, shall fit.
        if pinned * 3 <= (room - int(room * share)) * 2:
            return int(room * share)
    return int(room * HISTORY_SHARES[-1])


class HistoryFold:
    """Which statements stand whole, masked or not at all: the fold of rule 2.

    State: the first `dropped` statements are left out, those from there to `masked` are masked, the others whole.
    Holds: tokens <= cap after every `append`.
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.dropped = 0
        self.masked = 0
        self.tokens = 0
        self._stubs = 0
        self._sizes: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._sizes)

    def append(self, whole: int, masked: int) -> bool:
        """Add a statement by its tokens whole and masked. Returns False where that was one more whole block."""
        self._sizes.append((whole, masked))
        self.tokens += whole
        if self.tokens <= self.cap:
            return False
        newest = len(self._sizes) - 1
        goal = int(self.cap * REFILL)
        while self.tokens > goal and self.masked < newest:
            self._mask()
            if self._stubs > self.cap * STUBS:
                self._drop_to(int(self.cap * STUBS_REFILL))
        while self.tokens > goal and self.dropped < self.masked:
            self._drop()
        # The newest alone is over the cap: it is masked, and dropped, only if it must be.
        if self.tokens > self.cap:
            self._mask()
        if self.tokens > self.cap:
            self._drop()
        return True

    def _mask(self) -> None:
        whole, masked = self._sizes[self.masked]
        self.masked += 1
        self.tokens += masked - whole
        self._stubs += masked

    def _drop(self) -> None:
        masked = self._sizes[self.dropped][1]
        self.dropped += 1
        self.tokens -= masked
        self._stubs -= masked

    def _drop_to(self, goal: int) -> None:
        while self._stubs > goal and self.dropped < self.masked:
            self._drop()
