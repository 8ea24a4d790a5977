"""Budgets in tokens: truncating a text, sharing a budget, and masking old outputs in batches.

Rule 1: nothing here returns more tokens than its budget.
Rule 2: the fold of the history is a function of the sizes of the statements and of one cap, from the oldest to the
        newest: built step by step or at once, it is the same (law 3).
Rule 3: outputs are masked in batches. Masking one at a time would change the prompt's prefix at every turn, and the
        provider's cache would be lost each time; a batch makes room for many turns.
Rule 4: the person's newest statements are whole up to a limit of their own; a batch masks older ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from ctxkernel.core.ports import CountTokens

HISTORY_SHARES = (0.6, 0.45, 0.3, 0.15)
"""Shares of the budget that the history may take; a smaller one where pinned content needs the room.

Few steps, so that a pinned text that grows by a line does not change the prefix each time.
"""
REFILL = 0.7
"""A batch reduces the history to this part of its cap."""
RECENT_REFILL = 0.5
"""A batch reduces the whole statements to this part of their limit."""
STUBS = 0.25
"""Largest part of the cap for masked statements; beyond it the oldest of them are dropped …"""
LOOSE = 0.5
"""Largest part of a batch's goal for kept entries that are not firm, where nothing else can be dropped …"""
LOOSE_REFILL = 0.25
"""… beyond it they are dropped, the oldest first, down to this part."""
STUBS_REFILL = 0.125
"""… down to this part, at once."""

_CHARS_A_TOKEN = 8
"""A text with more characters per token is truncated without being counted; that is rare, and only less exact."""
_LINE = 100
"""A truncation is moved to a line break that is at most so many characters away."""


class Fitted(NamedTuple):
    """A text within its budget, its tokens, and the number of characters left out in the middle."""

    text: str
    tokens: int
    cut: int


def fit_text(text: str, limit: int, count: CountTokens) -> Fitted:
    """Return `text`, or its two ends with a mark between them; "" where the mark alone does not fit.

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
    """Return about `keep` characters of `text`, half from each end, truncated at line breaks where they are near."""
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
    """Share `total`: small wants are met, and large ones get equal parts; none gets more than it wants.

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
    """Share `total`: each gets up to its part of it, then the rest in order; none gets more than it wants.

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
    """Return the cap of the history, with `room` tokens for all but the system text, and `pinned` tokens pinned."""
    for share in HISTORY_SHARES:
        # Pinned content must fit, and a third of the tail is for tables and deltas.
        if pinned * 3 <= (room - int(room * share)) * 2:
            return int(room * share)
    return int(room * HISTORY_SHARES[-1])


class HistoryFold:
    """The fold of rule 2: which entries of the history are whole, masked or dropped, and which show their images.

    State: the first `dropped` entries are dropped, except kept ones; those up to `masked` are masked, except kept ones;
    all others are whole. Entries are dropped by units: a call with its results. Whole entries show their images until
    the images come to their own cap; then those of the oldest entries are left out, in a batch, too.
    Holds: tokens <= cap and images <= image_cap after every `append`.
    """

    def __init__(self, cap: int, image_cap: int = 0, limit: int = 10**9) -> None:
        self.cap = cap
        self.image_cap = image_cap
        self.images = 0
        """Weight of all images that are shown."""
        self._pictured: dict[int, tuple[int, int]] = {}
        """The entries that show images → (tokens, weight) of these, oldest first."""
        self.left_out: list[int] = []
        """The entries whose images were left out for the cap of images, or for that of the history."""
        self._aged: dict[int, None] = {}
        """Those of them whose text is masked since it is old."""
        self.limit = limit
        """Tokens of whole statements of the person; where there are more, the oldest are masked."""
        self.dropped = 0
        self.masked = 0
        self.tokens = 0
        self.last_batch = -1
        """The newest entry that made the fold change earlier ones; -1 where none did."""
        self._stubs = 0
        """Tokens of masked entries that could be dropped."""
        self._recent = 0
        """Tokens of whole statements of the person that could be masked."""
        self._fresh = array("q")
        """The tokens of each entry that count for the limit."""
        self._whole, self._least = array("q"), array("q")
        """The tokens of each entry, whole and masked."""
        self._joined: list[bool] = []
        """Whether an entry belongs to the unit of the one before it."""
        self._kept: dict[int, int] = {}
        """Kept entries → their tokens, oldest first."""
        self._loose: dict[int, None] = {}
        """The kept entries that are not firm."""

    def __len__(self) -> int:
        return len(self._whole)

    def stands(self, index: int) -> bool:
        """Return whether an entry is shown at all."""
        return index >= self.dropped or index in self._kept

    def is_kept(self, index: int) -> bool:
        """Return whether an entry is masked or dropped only after all others."""
        return index in self._kept

    def shows_images(self, index: int) -> bool:
        """Return whether an entry shows its images."""
        return index in self._pictured

    def append(
        self,
        whole: int,
        masked: int,
        *,
        images: tuple[int, int] = (0, 0),
        joined: bool = False,
        kept: bool = False,
        firm: bool = True,
        fresh: int = 0,
    ) -> bool:
        """Add an entry by its tokens whole and masked. Returns whether that changed earlier ones.

        `images`: (tokens, weight) of its images, which `whole` includes, and `masked` where that is the same. `joined`:
        it belongs to the unit of the entry before it; `kept`: it is dropped only after all others, and in batches too
        unless it is `firm`; `fresh`: the tokens of the text of a statement of the person, else 0.
        """
        newest = len(self._whole)
        if joined and newest and not self.stands(newest - 1):  # its unit was dropped
            whole = masked = 0
            images, kept = (0, 0), False
            self.dropped, self.masked = newest + 1, max(self.masked, newest + 1)
            self.last_batch = newest
        self._whole.append(whole)
        self._least.append(masked)
        self._joined.append(joined)
        self._fresh.append(fresh)
        self._recent += self._fresh[newest]
        if kept:
            self._kept[newest] = whole
            if not firm:
                self._loose[newest] = None
        self.tokens += whole
        changed = self._add_images(newest, images) if images[0] else False
        if self._recent > self.limit and self._age(newest):
            changed = True
        if self.tokens <= self.cap:
            return changed
        self._make_room(newest)
        return True

    def _make_room(self, newest: int) -> None:
        """Mask and drop entries in a batch, down to the goal of a batch."""
        self.last_batch = newest
        goal = int(self.cap * REFILL)
        while self.tokens > goal and self.masked < newest:
            self._mask()
            self._bound_stubs()
        while self.tokens > goal and self._aged:
            self._leave_images_out(next(iter(self._aged)))
        while self.tokens > goal and self.dropped < self.masked and self._unit() <= self.masked:
            self._drop()
        # Where nothing else can be dropped, these alone would cause a batch at each turn: make room for many turns.
        if self.tokens > goal and self._loose_tokens() > goal * LOOSE:
            while self._loose_tokens() > goal * LOOSE_REFILL and next(iter(self._loose)) < self.dropped:
                self._let_go(next(iter(self._loose)))
        while self.tokens > self.cap and self._pictured:
            self._leave_images_out(next(iter(self._pictured)))
        # The newest alone exceeds the cap: mask and drop it only if needed.
        while self.tokens > self.cap and self.masked <= newest:
            self._mask()
        while self.tokens > self.cap and self.dropped <= newest:
            self._drop()
        if self.tokens > self.cap:
            while self.tokens > goal and self._kept:
                self._let_go(next(iter(self._loose or self._kept)))

    def resize(self, index: int, saved: int, masked: int | None) -> None:
        """Take `saved` tokens off a whole entry, whose masked form has `masked` tokens, if it has one."""
        whole = self._whole[index] - saved
        fresh = max(self._fresh[index] - saved, 0) if masked is not None else 0
        self.tokens -= saved
        self._recent += fresh - self._fresh[index]
        if index in self._kept:
            self._kept[index], masked = whole, None
        self._whole[index], self._fresh[index] = whole, fresh
        self._least[index] = whole if masked is None else masked
        self.last_batch = len(self._whole) - 1

    def _add_images(self, newest: int, images: tuple[int, int]) -> bool:
        """Show the images of the newest entry. Return whether those of earlier ones are left out for it."""
        self._pictured[newest] = images
        self.images += images[1]
        if images[1] > self.image_cap:
            self._leave_images_out(newest)
        if self.images <= self.image_cap:
            return False
        goal = int(self.image_cap * REFILL)
        # Those of pinned entries last.
        for index in sorted(self._pictured, key=lambda index: (index in self._kept, index)):
            if self.images > goal and index != newest:
                self._leave_images_out(index)
        self.last_batch = newest
        return True

    def _leave_images_out(self, index: int) -> None:
        """Show an entry without its images."""
        self.left_out.append(index)
        tokens, weight = self._pictured.pop(index)
        self.images -= weight
        self.tokens -= tokens
        if index in self._aged:
            del self._aged[index]
            self._least[index] -= tokens
            self._stubs -= tokens if index >= self.dropped and index not in self._kept else 0
        elif self._least[index] == self._whole[index]:
            self._least[index] -= tokens
        self._whole[index] -= tokens
        if index in self._kept:
            self._kept[index] -= tokens

    def _forget_images(self, index: int) -> None:
        """Note that an entry is masked or dropped, and its images with it."""
        self.images -= self._pictured.pop(index, (0, 0))[1]
        self._aged.pop(index, None)

    def _age(self, newest: int) -> bool:
        """Mask old statements, the newest entry excepted. Return whether there were any."""
        before = self.masked
        while self._recent > self.limit * RECENT_REFILL and self.masked < newest:
            self._mask(aged=True)
            self._bound_stubs()
        if self.masked > before:
            self.last_batch = newest
        return self.masked > before

    def _bound_stubs(self) -> None:
        if self._stubs > self.cap * STUBS:
            self._drop_to(int(self.cap * STUBS_REFILL))

    def _loose_tokens(self) -> int:
        return sum([self._kept[index] for index in self._loose])

    def _let_go(self, index: int) -> None:
        """Drop a kept entry with its unit."""
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
            self._loose.pop(at, None)
            self._forget_images(at)

    def _mask(self, *, aged: bool = False) -> None:
        """Mask the next entry. A statement that is only old (`aged`) keeps its images: they have a cap of their own."""
        whole, masked = self._whole[self.masked], self._least[self.masked]
        if aged and masked != whole and self._fresh[self.masked] and self.masked in self._pictured:
            masked += self._pictured[self.masked][0]
            self._least[self.masked] = masked
            self._aged[self.masked] = None
        elif masked != whole:
            self._forget_images(self.masked)
        self.tokens += masked - whole
        self._recent -= self._fresh[self.masked]
        if self.masked in self._kept:
            self._kept[self.masked] = masked
        elif self.masked >= self.dropped:
            self._stubs += masked
        self.masked += 1

    def _unit(self) -> int:
        """Return the end of the unit that would be dropped next."""
        end = self.dropped + 1
        while end < len(self._joined) and self._joined[end]:
            end += 1
        return end

    def _drop(self) -> None:
        for index in range(self.dropped, self._unit()):
            if index not in self._kept:
                self.tokens -= (self._least if index < self.masked else self._whole)[index]
                self._stubs -= self._least[index] if index < self.masked else 0
                self._forget_images(index)
            self.dropped += 1
        self.masked = max(self.masked, self.dropped)

    def _drop_to(self, goal: int) -> None:
        while self._stubs > goal and self.dropped < self.masked and self._unit() <= self.masked:
            self._drop()
