"""Find where a projection no longer continues an earlier one, and why.

A provider reads the common prefix of two requests from its cache and writes the rest to it again. What may change
earlier blocks: a batch of redactions or of masked outputs, a condensation, the removal of thinking, a command of the
user on the history or its settings, a return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctxkernel.history.events import THINKING
from ctxkernel.projection.value import Piece, Projection, same_until

_HELD = ("context", "picture", "status", *THINKING)
"""The kinds of blocks that are removed together."""


class PrefixBreak(NamedTuple):
    """The first block of an earlier projection that a newer one does not have at its place."""

    block: str
    tokens: int
    """Tokens of the earlier one from there on, its tail left out: they are written to the cache again."""
    why: str

    def told(self) -> str:
        """Return it as one sentence without a full stop."""
        return f"the cached prefix breaks at {self.block} (~{self.tokens:,} tokens are written again): {self.why}"


def prefix_break(old: Projection, new: Projection, at: int) -> PrefixBreak | None:
    """Return the break of `new`, which has the first `at` blocks of the history of `old`; None if it has all."""
    before = old.run.pieces[: old.count]
    if (old.model, old.tools, old.system.text) != (new.model, new.tools, new.system.text):
        tokens = old.system.tokens + sum([piece.tokens for piece in before])
        return PrefixBreak("system", tokens, "another model, other tools or other instructions (settings)")
    if at == old.count:
        return None
    return PrefixBreak(before[at].id, sum([piece.tokens for piece in before[at:]]), _why(before[at:], new, at))


def common(old: Projection, new: Projection) -> int:
    """Return how many blocks at the beginning of both histories are the same."""
    most = min(old.count, new.count)
    if old.run is new.run:
        return most
    before, after = old.run.pieces, new.run.pieces
    for index in range(same_until(before, after, most), most):
        if (before[index].text, before[index].role) != (after[index].text, after[index].role):
            return index
    return most


def _why(old: Sequence[Piece], new: Projection, at: int) -> str:
    """Return why the blocks `old` are not those of `new` from `at` on."""
    here = {piece.id: piece for piece in new.run.pieces[at : new.count]}
    first = old[0]
    if first.kind not in _HELD or first.id in here:
        return _reason(first, here, new)
    # Thinking is removed with other changes, or because it takes too many tokens.
    others = (one for one in old if one.kind not in _HELD and (one.id not in here or here[one.id].text != one.text))
    changed = next(others, None)
    why = f"with {changed.id}: {_reason(changed, here, new)}" if changed is not None else "because it reached its limit"
    return f"thinking of earlier answers, and the state that was sent with it, are removed, {why}"


def _reason(was: Piece, here: Mapping[str, Piece], new: Projection) -> str:
    """Return why a block is not where it was; `here` are the blocks from there on, by their ids."""
    now = here.get(was.id)
    if now is not None and now.text != was.text:
        return now.why
    if now is not None:
        before = next(iter(here.values()))
        return f"{before.id} stands before it now: {before.why}"
    reasons = (one.why for one in new.left_out if one.id == was.id or one.id.startswith(f"{was.id}:"))
    if reason := next(reasons, ""):
        return reason
    if any(piece.kind == "summary" for piece in here.values()):
        return "earlier events were condensed"
    return "it is not on this path, or was hidden (%ctx why not says more)"
