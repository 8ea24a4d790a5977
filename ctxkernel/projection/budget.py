"""Who gets how many tokens: cutting one text, sharing a budget, and masking old outputs in batches.

Rule 1: a budget is a hard cap: nothing here returns more than it was given.
Rule 2: what the history looks like is a function of the statements' sizes and of one cap, folded from the oldest to
        the newest: built step by step or anew, it comes out the same (law 3).
Rule 3: outputs are masked in batches. Masking one at a time would change the prompt's prefix at every turn, and a
        provider's cache would be lost each time; a batch makes room for many turns.
"""

from __future__ import annotations

from array import array
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
LOOSE = 0.5
"""Kept entries that are not firm take at most this part of a batch's goal where nothing else is left to go …"""
LOOSE_REFILL = 0.25
"""… and then go, the oldest first, down to this part."""
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
    """Which entries of the history stand whole, masked or not at all: the fold of rule 2.

    State: of the first `dropped` entries those that are kept stand, and the others are left out; those before `masked`
    that stand are masked, all others whole. Entries are dropped by units: a call goes with its results.
    Holds: tokens <= cap after every `append`.
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.dropped = 0
        self.masked = 0
        self.tokens = 0
        self.last_batch = -1
        """The newest entry whose coming changed earlier ones; -1 where none did."""
        self._stubs = 0
        """Tokens of masked entries that could be dropped."""
        self._whole, self._least = array("q"), array("q")
        """The tokens of each entry, whole and masked."""
        self._joined: list[bool] = []
        """Whether an entry stands and falls with the one before it."""
        self._kept: dict[int, int] = {}
        """Entries that are kept → the tokens that they take, oldest first."""
        self._loose: dict[int, None] = {}
        """Those of them that are not firm, and …"""
        self._loose_tokens = 0
        """… the tokens that these take."""

    def __len__(self) -> int:
        return len(self._whole)

    def stands(self, index: int) -> bool:
        """Whether an entry is shown at all."""
        return index >= self.dropped or index in self._kept

    def is_kept(self, index: int) -> bool:
        """Whether an entry is neither masked nor dropped, as long as there is any other to be."""
        return index in self._kept

    def append(self, whole: int, masked: int, *, joined: bool = False, kept: bool = False, firm: bool = True) -> bool:
        """Add an entry by its tokens whole and masked. Returns whether that changed earlier ones.

        `joined`: it stands and falls with the entry before it; `kept`: it is dropped after all others only, and in
        batches too unless it is `firm`.
        """
        newest = len(self._whole)
        if joined and newest and not self.stands(newest - 1):  # what it stands with is gone: so is it
            whole = masked = 0
            kept = False
            self.dropped, self.masked = newest + 1, max(self.masked, newest + 1)
            self.last_batch = newest
        self._whole.append(whole)
        self._least.append(masked)
        self._joined.append(joined)
        if kept:
            self._kept[newest] = whole
            if not firm:
                self._loose[newest] = None
                self._loose_tokens += whole
        self.tokens += whole
        if self.tokens <= self.cap:
            return False
        self.last_batch = newest
        goal = int(self.cap * REFILL)
        while self.tokens > goal and self.masked < newest:
            self._mask()
            if self._stubs > self.cap * STUBS:
                self._drop_to(int(self.cap * STUBS_REFILL))
        while self.tokens > goal and self.dropped < self.masked and self._unit() <= self.masked:
            self._drop()
        # Where nothing else is left to go, and these alone would bring a batch at each turn, they make room for many.
        if self.tokens > goal and self._loose_tokens > goal * LOOSE:
            while self._loose_tokens > goal * LOOSE_REFILL and next(iter(self._loose)) < self.dropped:
                self._let_go(next(iter(self._loose)))
        # The newest alone is over the cap: it is masked, and dropped, only if it must be.
        while self.tokens > self.cap and self.masked <= newest:
            self._mask()
        while self.tokens > self.cap and self.dropped <= newest:
            self._drop()
        if self.tokens > self.cap:
            while self.tokens > goal and self._kept:
                self._let_go(next(iter(self._loose or self._kept)))
        return True

    def _let_go(self, index: int) -> None:
        """Drop an entry that is kept, with all that it stands and falls with."""
        first, end = index, index + 1
        while first and self._joined[first]:
            first -= 1
        while end < len(self._joined) and self._joined[end]:
            end += 1
        for at in range(first, end):
            size = self._kept.pop(at, None)
            if size is None:
                continue
            self.tokens -= size
            if at in self._loose:
                del self._loose[at]
                self._loose_tokens -= size

    def _mask(self) -> None:
        whole, masked = self._whole[self.masked], self._least[self.masked]
        self.tokens += masked - whole
        if self.masked in self._kept:
            self._kept[self.masked] = masked
        elif self.masked >= self.dropped:
            self._stubs += masked
        self.masked += 1

    def _unit(self) -> int:
        """Return where the unit that would be dropped next ends."""
        end = self.dropped + 1
        while end < len(self._joined) and self._joined[end]:
            end += 1
        return end

    def _drop(self) -> None:
        for index in range(self.dropped, self._unit()):
            if index not in self._kept:
                self.tokens -= (self._least if index < self.masked else self._whole)[index]
                self._stubs -= self._least[index] if index < self.masked else 0
            self.dropped += 1
        self.masked = max(self.masked, self.dropped)

    def _drop_to(self, goal: int) -> None:
        while self._stubs > goal and self.dropped < self.masked and self._unit() <= self.masked:
            self._drop()
