"""Two projections compared: which blocks came, went or changed, what that costs, and where the cached prefix ends."""

from __future__ import annotations

from dataclasses import dataclass

from ctxkernel.projection.value import Projection


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is different in a newer projection. Blocks are named by their ids, in the order they stand in."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    tokens: int
    """Tokens of the new one less those of the old one."""
    prefix_tokens: int
    """Tokens of the blocks that both begin with."""
    breaks_at: str | None
    """The first block of the new one that the old one did not have in that place; None where it has none."""


def compare(old: Projection, new: Projection) -> Comparison:
    """Return what is different in `new`. Linear."""
    before, after = old.blocks, new.blocks
    texts = {block.id: block.text for block in before}
    prefix = 0
    while prefix < min(len(before), len(after)) and before[prefix].text == after[prefix].text:
        prefix += 1
    ids = {block.id for block in after}
    return Comparison(
        added=tuple(block.id for block in after if block.id not in texts),
        removed=tuple(block.id for block in before if block.id not in ids),
        changed=tuple(block.id for block in after if texts.get(block.id, block.text) != block.text),
        tokens=new.tokens - old.tokens,
        prefix_tokens=sum(block.tokens for block in after[:prefix]),
        breaks_at=after[prefix].id if prefix < len(after) else None,
    )
