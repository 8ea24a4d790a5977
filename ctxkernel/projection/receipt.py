"""The exact bytes of a request, and their hash: the receipt.

Rule 1: the bytes are JSON in UTF-8 without white space, keys in the order: model, max_tokens, stream, tools, system,
        messages; answers are always streamed. `json.loads` and `json.dumps` in the same form give the same bytes.
Rule 2: a projection grows by few blocks a turn. Its hash continues from a copy of the hash of the blocks before, so the
        cost of a receipt depends on the new blocks.
Rule 3: breakpoints of the prompt cache, four as the API allows: on the system text (1 h), which includes the
        tools before it; on the last block of the history; and on two that move by `ANCHOR` blocks at a time, since a
        provider looks at most 20 blocks back for a cached prefix. So a turn of up to 50 blocks finds the turn before
        it. Right after an edit of sent blocks, the earlier of the two is on the last block before the edit instead, so
        that the cached prefix up to there is found. None is on a thinking block, where the API refuses it.
Rule 4: neighbours of one role are one message; `system` messages within the conversation stand alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

ANCHOR = 16

_text: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode

END = "]}]}"
_MARK = ',"cache_control":{"type":"ephemeral"}}'
_OPEN = {
    "user": '{"role":"user","content":[',
    "assistant": '{"role":"assistant","content":[',
    "system": '{"role":"system","clear_at":"next_user_message","content":[',
}
"""The beginning of a message. A system message within the conversation is valid for the turn."""
_THINKING = ('{"type":"thinking"', '{"type":"redacted_thinking"')


class SentReceipt(Protocol):
    """The part of a piece that is written."""

    @property
    def text(self) -> str:
        """A text, or, where `raw`, the JSON of a block."""
        ...

    @property
    def role(self) -> str:
        """`user`, `assistant` or `system`."""
        ...

    @property
    def raw(self) -> bool:
        """Return whether `text` is the JSON of a block."""
        ...


def head(model: str, max_tokens: int, system: str, tools: str = "") -> str:
    """Return the body up to its first message; `tools` is the JSON of a list, or empty."""
    given = f'"tools":{tools},' if tools else ""
    return (
        f'{{"model":{_text(model)},"max_tokens":{max_tokens},"stream":true,{given}'
        f'"system":[{{"type":"text","text":{_text(system)},'
        '"cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":['
    )


def marks(history: Sequence[SentReceipt], edge: int = -1) -> tuple[int, ...]:
    """Return the places of all breakpoints in a history; `edge` is the last block before a new edit, or -1."""
    last = len(history) - 1
    near = max(last, 0) // ANCHOR * ANCHOR - 1
    moving = (near, near - ANCHOR)
    if 0 <= edge <= last:
        moving = (near if near >= ANCHOR else -1, edge)
    found: set[int] = set()
    for place in (*moving, last):
        while place >= 0 and history[place].raw and history[place].text.startswith(_THINKING):
            place -= 1
        found.add(max(place, -1))
    return tuple(sorted(found - {-1}))


def _written(pieces: Sequence[SentReceipt], marked: Collection[int], before: str = "", start: int = 0) -> str:
    """Return the blocks of `pieces`, the first of which has the place `start`, with the JSON between them."""
    parts: list[str] = []
    for place, piece in enumerate(pieces, start):
        role = piece.role
        if role == before:
            parts.append(",")
        else:
            parts += ["]},", _OPEN[role]] if before else [_OPEN[role]]
            before = role
        block = piece.text if piece.raw else f'{{"type":"text","text":{_text(piece.text)}}}'
        parts.append(block[:-1] + _MARK if place in marked else block)
    return "".join(parts)


def body(opening: str, history: Sequence[SentReceipt], tail: Sequence[SentReceipt], edge: int = -1) -> bytes:
    """Return the bytes of a request: `opening` (see `head`), the history, the tail; `edge` as in `marks`."""
    before = _written(history, marks(history, edge))
    return (opening + before + _written(tail, (), history[-1].role if history else "") + END).encode()


class Binding:
    """A digest of the beginning of a request: model, tools, system text, and the blocks so far, without breakpoints."""

    def __init__(self, model: str, tools: str, system: str) -> None:
        self._hash = hashlib.sha256(f"{model}\0{tools}\0{system}".encode("utf-8", "surrogatepass"))

    def add(self, pieces: Iterable[SentReceipt]) -> None:
        """Add the next blocks."""
        for piece in pieces:
            data = piece.text.encode("utf-8", "surrogatepass")
            self._hash.update(f"\0{piece.role} {piece.raw} {len(data)}\0".encode())
            self._hash.update(data)

    def copy(self) -> Binding:
        """Return a digest that continues from here."""
        made = object.__new__(Binding)
        made._hash = self._hash.copy()
        return made

    def digest(self) -> str:
        """Return the digest, 32 hexadecimal digits."""
        return self._hash.copy().hexdigest()[:32]


class _Point(NamedTuple):
    """A hash of the first `blocks` blocks, and how many bytes these are."""

    blocks: int
    hash: Any
    """A hash object of hashlib."""
    bytes: int

    def grown(self, history: Sequence[SentReceipt], end: int, marked: Collection[int] = ()) -> _Point:
        """Return the hash of the blocks before `end`."""
        role = history[self.blocks - 1].role if self.blocks else ""
        text = _written(history[self.blocks : end], marked, role, self.blocks).encode()
        more = self.hash.copy()
        more.update(text)
        return _Point(max(end, self.blocks), more, self.bytes + len(text))


class Receipts:
    """Receipts of a history that only grows: the hashes of two of its prefixes are kept."""

    def __init__(self, opening: str) -> None:
        raw = opening.encode()
        self._start = self._plain = _Point(0, hashlib.sha256(raw), len(raw))
        """The hash of the opening, and of the blocks before the first breakpoint."""
        self._marked: tuple[tuple[int, ...], _Point] = (), self._start
        """The breakpoints but for the last, and the hash of the blocks before that with them."""
        self.bytes = len(raw) + len(END)
        """Bytes of the last request, the tail left out."""
        self.marks = 0
        """The number of breakpoints in the last request."""

    def receipt(self, history: Sequence[SentReceipt], tail: Sequence[SentReceipt], edge: int = -1) -> str:
        """Return `sha256:…` of the body; the history may only have grown since the last call."""
        last = max(len(history) - 1, 0)
        marked = marks(history, edge)
        self.marks = len(marked)
        moving = marked[:-1] if marked and marked[-1] == last else marked
        if self._marked[0] != moving:
            first = moving[0] if moving else 0
            point = self._plain if self._plain.blocks <= first else self._start
            self._plain = point.grown(history, first)
            self._marked = moving, self._plain
        near = self._marked[1].grown(history, last, moving)
        self._marked = moving, near
        whole = near.grown(history, len(history), marked)
        self.bytes = whole.bytes + len(END)
        rest = _written(tail, (), history[-1].role if history else "") + END
        whole.hash.update(rest.encode())
        return "sha256:" + whole.hash.hexdigest()
