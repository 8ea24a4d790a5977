"""The check of a projection, whose cost depends on the new blocks.

Rule 1: the outcome is that of `history.rules.check` on the whole body; a test compares them.
Rule 2: a projection that is not fine is checked whole at every turn, until it is.

For a text in a user's message, the rules look at the text alone and at its size. Rules on pairs look at neighbouring
messages. So of the blocks that were fine only the newest message of the model and the blocks after it are checked
again, together with the new blocks; ids of calls and the numbers of bytes, messages and images are kept. An image in
a user's message is checked once, by its dimensions; beside other blocks it counts like a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ctxkernel.core.timeline_events import NONE
from ctxkernel.history.capabilities import Capabilities
from ctxkernel.history.clauses import MAX_IMAGE_BASE64, MAX_PIXELS_OF_MANY
from ctxkernel.history.request import text_fault
from ctxkernel.history.rules import RuleReport, check
from ctxkernel.projection import receipt as receipts
from ctxkernel.projection.binding import BindingCheck, BoundTo, StoredResponse, refusal
from ctxkernel.projection.displayed_images import IMAGE_START, number_of_images, picture_extent
from ctxkernel.projection.value import BlockRun, Piece, Projection

_FAR_BYTES = 24_000_000
_FAR_MESSAGES = 90_000
"""Below these, no limit of the API is near: 32 MB, 100,000 messages."""
_DOT = Piece("", "", "", 0, "", ".")


class ProjectionCheck:
    """Checks the projections of one engine."""

    def __init__(self, opening: str, capabilities: Capabilities, bound_to: BoundTo | None = None) -> None:
        """`bound_to` is what thinking is bound to besides blocks, None if it is not bound."""
        self._opening = opening
        self._capabilities = capabilities
        self._bound_to = bound_to
        self._shapes: dict[tuple[int, bool, tuple[tuple[str, bool], ...]], bool] = {}
        self._begin(BlockRun())

    def _begin(self, run: BlockRun) -> None:
        self._run = run
        self._done = 0
        """The number of blocks of the run that pass."""
        self._messages = 0
        """The number of messages that these make."""
        self._newest = 0
        """The first of them in the model's newest message."""
        self._ids: set[str] = set()
        """The ids of their calls."""
        self._images = 0
        """The number of images in them."""
        self._bound = BindingCheck(self._bound_to) if self._bound_to is not None else None

    def report(
        self, projection: Projection, sent: receipts.Receipts, stored: Mapping[str, StoredResponse] = NONE
    ) -> RuleReport:
        """Return what the rules find in a projection; `sent` has made its receipt, `stored` are its responses."""
        tail, pieces = projection.tail, projection.run.pieces
        if projection.run is not self._run:
            self._begin(projection.run)
        new = pieces[self._done :]
        size = sent.bytes + 6 * sum(map(len, [piece.text for piece in tail]))
        few = size < _FAR_BYTES and self._messages + len(new) + len(tail) < _FAR_MESSAGES
        found = _FINE if few and self._is_fine(tail, new, sent.marks) else check(projection.request, self._capabilities)
        if self._bound is not None:
            bound = self._bound.copy()
            if found.ok and (faults := bound.faults(new, stored)):
                return RuleReport(False, tuple([refusal(path_of(projection, piece)) for piece in faults]))
            self._bound = bound
        if found.ok:
            self._keep(new)
        return found

    def _keep(self, new: Sequence[Piece]) -> None:
        """Note that all blocks, the last of them `new`, are fine."""
        before = self._run.pieces[self._done - 1].role if self._done else ""
        for place, piece in enumerate(new, self._done):
            if piece.role != before:
                self._messages += 1
                before = piece.role
                if piece.role == "assistant":
                    self._newest = place
            self._images += _images_in(piece)
            if piece.kind == "call" and piece.raw:
                self._ids.add(_call_id(piece))
        self._done += len(new)

    def _is_fine(self, tail: Sequence[Piece], new: Sequence[Piece], marks: int) -> bool:
        pieces, ids = self._run.pieces, set[str]()
        plain = not pieces or _is_plain(pieces[-1])
        images = self._images
        for piece in (*new, *tail):
            images += _images_in(piece)
            if text_fault(piece.text) if not piece.raw else not _is_fine_image(piece):
                return False
        if images > self._capabilities.max_images:
            return False
        for piece in new:
            plain = plain and _is_plain(piece)
            if piece.kind == "call" and piece.raw:
                name = _call_id(piece)
                if name in ids or name in self._ids:
                    return False
                ids.add(name)
        if plain:  # texts of the user: only the block before them matters
            return self._is_fine_shape(pieces[-1:], tail, marks)
        start = self._newest
        beside = [
            piece for at, piece in enumerate(pieces[start:], start) if at >= self._done - 1 or not _is_plain(piece)
        ]
        return self._is_fine_shape(beside, tail, marks)

    def _is_fine_shape(self, beside: Sequence[Piece], tail: Sequence[Piece], marks: int) -> bool:
        """Return whether a body of these blocks, each text a dot, is fine with so many breakpoints."""
        texts = all(map(_is_plain, beside))
        key = marks, bool(beside), tuple(dict.fromkeys([(piece.role, piece.raw) for piece in map(_dotted, tail)]))
        known = self._shapes.get(key) if texts else None
        if known is not None:
            return known
        # A user's message first, since the window may begin with one of the model.
        window = [_DOT, *map(_dotted, beside)]
        window = [*([_DOT] * (marks - 1) * receipts.ANCHOR), *window] if texts else window
        body: Any = json.loads(receipts.body(self._opening, window, [*map(_dotted, tail)]))
        fine = check(body, self._capabilities).ok
        if texts and not any(piece.raw and not _is_image(piece) for piece in tail):
            self._shapes[key] = fine
        return fine


def path_of(projection: Projection, block: Piece) -> str:
    """Return the place of a block of the history in the body."""
    message, place, before = -1, 0, ""
    for piece in projection.run.pieces[: projection.count]:
        message, place = (message, place + 1) if piece.role == before else (message + 1, 0)
        before = piece.role
        if piece is block:
            return f"messages[{message}].content[{place}]"
    return ""


def _is_plain(piece: Piece) -> bool:
    """Return whether a block is a text or an image of the user: the blocks after it do not depend on it."""
    return (not piece.raw or _is_image(piece)) and piece.role == "user"


def _dotted(piece: Piece) -> Piece:
    """Return a block with its text, or an image, replaced by a dot."""
    return piece if piece.raw and not _is_image(piece) else piece._replace(text=".", raw=False)


def _is_image(piece: Piece) -> bool:
    return piece.raw and piece.text.startswith(IMAGE_START)


def _images_in(piece: Piece) -> int:
    """Return the number of images in a block: an image itself, or a result with some."""
    return number_of_images(piece.text) if piece.raw else 0


def _is_fine_image(piece: Piece) -> bool:
    """Return whether an image passes the rules in any request; True for other blocks."""
    if not _is_image(piece):
        return True
    extent = picture_extent(piece.text)
    return extent is not None and max(extent) <= MAX_PIXELS_OF_MANY and len(piece.text) < MAX_IMAGE_BASE64


def _call_id(piece: Piece) -> str:
    return json.loads(piece.text)["id"]


_FINE = RuleReport(ok=True)
