"""The exact bytes of a request, and their hash: the receipt.

Rule 1: the bytes are JSON in UTF-8 without white space, keys in the order: model, max_tokens, system, messages. Their
        `json.loads` dumped again so gives them back, so whoever sends the request as a dict sends these bytes.
Rule 2: a projection grows by one block a turn. Its hash goes on from a copy of the hash of the blocks before, so a
        receipt costs what is new, not what is there.
Rule 3: breakpoints of the prompt cache: on the system text (1 h); on the last block of the history; and on one that
        moves by `ANCHOR` blocks at a time, since a provider looks at most 20 blocks back for what it has cached.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence

ANCHOR = 16

_text: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode

END = "]}]}"
_MARK = ',"cache_control":{"type":"ephemeral"}}'


def head(model: str, max_tokens: int, system: str) -> str:
    """Return the body up to its first block."""
    return (
        f'{{"model":{_text(model)},"max_tokens":{max_tokens},"system":[{{"type":"text","text":{_text(system)},'
        '"cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[{"role":"user","content":['
    )


def fragment(text: str) -> str:
    """Return one text block."""
    return f'{{"type":"text","text":{_text(text)}}}'


def anchor(count: int) -> int:
    """Return the place of the second breakpoint in a history of `count` blocks, or -1 where it has none yet."""
    return max(count - 1, 0) // ANCHOR * ANCHOR - 1


def marks(count: int) -> tuple[int, ...]:
    """Return the places of all breakpoints in a history of `count` blocks."""
    second = anchor(count)
    return () if count == 0 else (second, count - 1) if second >= 0 else (count - 1,)


def body(opening: str, history: Sequence[str], tail: Sequence[str]) -> bytes:
    """Return the bytes of a request: `opening` (see `head`), the texts of the history, those of the tail."""
    marked = marks(len(history))
    blocks = [fragment(text) for text in history]
    for place in marked:
        blocks[place] = blocks[place][:-1] + _MARK
    blocks += [fragment(text) for text in tail]
    return (opening + ",".join(blocks) + END).encode()


class Receipts:
    """Receipts of a growing history: the hash of what stands before the last block is kept."""

    def __init__(self, opening: str) -> None:
        self._plain = hashlib.sha256(opening.encode())
        """Of all blocks before the anchor, or of none."""
        self._plain_count = 0
        self._near = self._plain.copy()
        """Of all blocks before the last one, with the anchor's mark."""
        self._near_count = 0
        self._anchor: int = -1
        self.bytes = len(opening.encode()) + len(END)
        """An upper bound on the bytes of the last request, the tail left out."""

    def receipt(self, history: Sequence[str], tail: Sequence[str]) -> str:
        """Return `sha256:…` of the body of these texts; `history` may only have grown since the last call."""
        count = len(history)
        last = max(count - 1, 0)
        place = anchor(count)
        if place != self._anchor:
            for index in range(self._plain_count, place):
                self._plain.update(_block(index, history[index]))
            self._plain_count = place
            self._near = self._plain.copy()
            self._near.update(_block(place, history[place], mark=True))
            self._near_count = place + 1
            self._anchor = place
        for index in range(self._near_count, last):
            piece = _block(index, history[index])
            self.bytes += len(piece) + len(_MARK)
            self._near.update(piece)
        self._near_count = max(last, self._near_count)
        whole = self._near.copy()
        if count:
            whole.update(_block(last, history[last], mark=True))
        rest = "".join([f",{fragment(text)}" for text in tail]) + END
        whole.update((rest if count else rest[1:]).encode())
        return "sha256:" + whole.hexdigest()


def _block(index: int, text: str, *, mark: bool = False) -> bytes:
    """Return the bytes of a block with the comma before it."""
    piece = fragment(text)
    if mark:
        piece = piece[:-1] + _MARK
    return (f",{piece}" if index else piece).encode()
