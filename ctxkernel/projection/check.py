"""The check of a projection, which costs what is new in it.

Rule 1: the outcome is that of `history.rules.check` on the whole body. A test holds us to that.
Rule 2: whatever was not found fine is checked whole, at every turn, until it is.

What a rule sees of text in a user's message is whether it may stand alone and how large it is. Pairing looks from one
message to the next. So of what was found fine only the newest message of the model and what follows it are looked at
again, beside what is new; ids of calls and the number of bytes, of messages and of images are kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ctxkernel.history.capabilities import Capabilities
from ctxkernel.history.request import text_fault
from ctxkernel.history.rules import Report, check
from ctxkernel.projection import receipt as receipts
from ctxkernel.projection.value import Piece, Projection, Run

_FAR_BYTES = 24_000_000
_FAR_MESSAGES = 90_000
"""Below these no rule on sizes can be near: 32 MB, 100,000 messages."""
_DOT = Piece("", "", "", 0, "", ".")


class Checking:
    """Checks the projections of one engine."""

    def __init__(self, opening: str, capabilities: Capabilities) -> None:
        self._opening = opening
        self._capabilities = capabilities
        self._shapes: dict[tuple[int, bool, tuple[tuple[str, bool], ...]], bool] = {}
        self._begin(Run())

    def _begin(self, run: Run) -> None:
        self._run = run
        self._done = 0
        """How many of the run's blocks are fine."""
        self._messages = 0
        """How many messages these make."""
        self._newest = 0
        """Where in them the model's newest message begins."""
        self._ids: set[str] = set()
        """The ids of their calls."""

    def report(self, projection: Projection, sent: receipts.Receipts) -> Report:
        """Return what the rules find in a projection; `sent` has made its receipt."""
        tail, pieces = projection.tail, projection.run.pieces
        if projection.run is not self._run:
            self._begin(projection.run)
        new = pieces[self._done :]
        size = sent.bytes + 6 * sum(map(len, [piece.text for piece in tail]))
        few = size < _FAR_BYTES and self._messages + len(new) + len(tail) < _FAR_MESSAGES
        found = _FINE if few and self._is_fine(tail, new, sent.marks) else check(projection.request, self._capabilities)
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
            if piece.kind == "call" and piece.raw:
                self._ids.add(_call_id(piece))
        self._done += len(new)

    def _is_fine(self, tail: Sequence[Piece], new: Sequence[Piece], marks: int) -> bool:
        pieces, ids = self._run.pieces, set[str]()
        plain = not pieces or _is_plain(pieces[-1])
        for piece in (*new, *tail):
            if not piece.raw and text_fault(piece.text):
                return False
        for piece in new:
            plain = plain and _is_plain(piece)
            if piece.kind == "call" and piece.raw:
                name = _call_id(piece)
                if name in ids or name in self._ids:
                    return False
                ids.add(name)
        if plain:  # texts of the user's: only what they stand beside can matter
            return self._is_fine_shape(pieces[-1:], tail, marks)
        start = self._newest
        beside = [
            piece for at, piece in enumerate(pieces[start:], start) if at >= self._done - 1 or not _is_plain(piece)
        ]
        return self._is_fine_shape(beside, tail, marks)

    def _is_fine_shape(self, beside: Sequence[Piece], tail: Sequence[Piece], marks: int) -> bool:
        """Whether a body of these blocks, each text a dot, is fine with so many breakpoints."""
        texts = all(map(_is_plain, beside))
        key = marks, bool(beside), tuple(dict.fromkeys([(piece.role, piece.raw) for piece in tail]))
        known = self._shapes.get(key) if texts else None
        if known is not None:
            return known
        # A user's message first: what the window begins with may be the model's.
        window = [_DOT, *map(_dotted, beside)]
        window = [*([_DOT] * (marks - 1) * receipts.ANCHOR), *window] if texts else window
        body: Any = json.loads(receipts.body(self._opening, window, [*map(_dotted, tail)]))
        fine = check(body, self._capabilities).ok
        if texts and not any(piece.raw for piece in tail):
            self._shapes[key] = fine
        return fine


def _is_plain(piece: Piece) -> bool:
    """Whether a block is a text of the user's, which does not matter to the ones after it."""
    return not piece.raw and piece.role == "user"


def _dotted(piece: Piece) -> Piece:
    """Return a block as the rules on shapes see it: each text is as good as another."""
    return piece if piece.raw else piece._replace(text=".")


def _call_id(piece: Piece) -> str:
    return json.loads(piece.text)["id"]


_FINE = Report(ok=True)
