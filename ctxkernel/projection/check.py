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
        self._shapes: dict[tuple[int, bool, tuple[str, ...]], bool] = {}
        self._run = Run()
        self._done = 0
        """So many of the run's blocks are fine."""
        self._starts: list[int] = []
        """Where in them messages begin."""
        self._models: list[int] = []
        """Where in them the model's messages begin."""
        self._calls: list[tuple[int, str]] = []
        """Where the calls stand, with their ids."""
        self._ids: set[str] = set()

    def report(self, projection: Projection, history_bytes: int) -> Report:
        """Return what the rules find in a projection; `history_bytes` bounds the bytes of all but its tail."""
        tail = projection.tail
        if projection.run is not self._run:
            most = min(self._done, projection.count)
            self._forget(projection.run.same_as(self._run, most))
            self._run = projection.run
        small = history_bytes + 6 * sum(len(piece.text) for piece in tail) < _FAR_BYTES
        pieces = projection.run.pieces
        pieces = pieces if len(pieces) == projection.count else pieces[: projection.count]
        marks = len(receipts.marks(pieces, projection.edge))
        few = len(self._starts) + len(pieces) - self._done + len(tail) < _FAR_MESSAGES
        if small and few and self._fine(pieces, tail, marks):
            return _FINE
        found = check(projection.request, self._capabilities)
        if found.ok:
            self._keep(pieces)
        return found

    def _forget(self, count: int) -> None:
        """Look again at all but the first `count` blocks, and at the messages that these end with."""
        pieces = self._run.pieces
        # Where two runs part another message may begin: what stood beside it is looked at again.
        while count and pieces[count - 1].role == "user":
            count -= 1
        while count and pieces[count - 1].role != "user":
            count -= 1
        self._done = count
        while self._starts and self._starts[-1] >= count:
            self._starts.pop()
        while self._models and self._models[-1] >= count:
            self._models.pop()
        while self._calls and self._calls[-1][0] >= count:
            self._ids.discard(self._calls.pop()[1])

    def _keep(self, pieces: Sequence[Piece]) -> None:
        for at in range(self._done, len(pieces)):
            piece = pieces[at]
            if at == 0 or pieces[at - 1].role != piece.role:
                self._starts.append(at)
            if piece.role == "assistant":
                if at == 0 or pieces[at - 1].role != "assistant":
                    self._models.append(at)
                if piece.kind == "call" and piece.raw:
                    self._calls.append((at, _call_id(piece)))
                    self._ids.add(self._calls[-1][1])
        self._done = len(pieces)

    def _fine(self, pieces: Sequence[Piece], tail: Sequence[Piece], marks: int) -> bool:
        new = pieces[self._done :]
        if any(text_fault(piece.text) for piece in (*new, *tail) if not piece.raw):
            return False
        ids = [_call_id(piece) for piece in new if piece.kind == "call" and piece.raw]
        if any(name in self._ids for name in ids) or len(set(ids)) < len(ids):
            return False
        if all(piece.role == "user" and not piece.raw for piece in (*new, *pieces[-1:])):
            beside = pieces[-1:]  # texts of the user's: only what they stand beside can matter
        else:
            start = self._models[-1] if self._models else 0
            beside = [piece for at, piece in enumerate(pieces[start:], start) if at >= self._done - 1 or _counts(piece)]
        if not self._shape(beside, tail, marks):
            return False
        self._keep(pieces)
        return True

    def _shape(self, beside: Sequence[Piece], tail: Sequence[Piece], marks: int) -> bool:
        """Whether a body of these blocks, each text a dot, is fine with so many breakpoints."""
        texts = plain = all(piece.role == "user" and not piece.raw for piece in beside)
        plain = plain and not any(piece.raw for piece in tail)
        key = marks, bool(beside), tuple(dict.fromkeys(piece.role for piece in tail))
        if plain and key in self._shapes:
            return self._shapes[key]
        # A user's message first: what the window begins with may be the model's.
        window = [_DOT, *(piece if piece.raw else piece._replace(text=".") for piece in beside)]
        window = [*([_DOT] * (marks - 1) * receipts.ANCHOR), *window] if texts else window
        after = [piece if piece.raw else piece._replace(text=".") for piece in tail]
        body: Any = json.loads(receipts.body(self._opening, window, after))
        fine = check(body, self._capabilities).ok
        if plain:
            self._shapes[key] = fine
        return fine


def _counts(piece: Piece) -> bool:
    """Whether a block can matter to the ones after it."""
    return piece.raw or piece.role != "user"


def _call_id(piece: Piece) -> str:
    return json.loads(piece.text)["id"]


_FINE = Report(ok=True)
