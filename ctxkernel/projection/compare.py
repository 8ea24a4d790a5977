"""The comparison of two projections: added, removed and changed blocks, the costs, and the common prefix."""

from __future__ import annotations

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.timeline_events import Json, plain
from ctxkernel.projection.prices import RequestCost
from ctxkernel.projection.value import Block, Projection


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A block that was added, removed or changed."""

    id: str
    kind: str
    origin: str
    before: int | None
    """Its tokens in the older one; None where it was not there."""
    after: int | None
    """Its tokens in the newer one; None where it is not there."""


@dataclass(frozen=True, slots=True)
class ProjectionComparison:
    """The differences of a newer projection, in the order of its blocks; removed blocks come last."""

    changes: tuple[BlockChange, ...]
    tokens: int
    """Tokens of the new one minus those of the old one."""
    prefix_tokens: int
    """Tokens of the common prefix: a provider that has cached the old one reads these from the cache."""
    breaks_at: str | None
    """The first block of the new one after the common prefix, or None."""
    costs: tuple[RequestCost, RequestCost]
    """The cost of each with nothing in the cache."""
    cost_after: RequestCost
    """The cost of the new one right after the old one."""

    def _ids(self, *, before: bool, after: bool) -> tuple[str, ...]:
        return tuple(
            one.id for one in self.changes if (one.before is not None, one.after is not None) == (before, after)
        )

    @property
    def added(self) -> tuple[str, ...]:
        """The blocks that only the newer one has."""
        return self._ids(before=False, after=True)

    @property
    def removed(self) -> tuple[str, ...]:
        """The blocks that only the older one has."""
        return self._ids(before=True, after=False)

    @property
    def changed(self) -> tuple[str, ...]:
        """The blocks that have another text."""
        return self._ids(before=True, after=True)

    def to_json(self) -> dict[str, Json]:
        """Return the fields; a change as `{id, kind, origin, before, after}`, a cost as `{usd, units, told, as_of}`."""
        return {
            "changes": plain(self.changes),
            "tokens": self.tokens,
            "prefix_tokens": self.prefix_tokens,
            "breaks_at": self.breaks_at,
            "costs": [cost.to_json() for cost in self.costs],
            "cost_after": self.cost_after.to_json(),
        }


def compare_projections(old: Projection, new: Projection) -> ProjectionComparison:
    """Return the differences of `new`, in linear time."""
    before, after = old.blocks, new.blocks
    prefix = 0
    most = min(len(before), len(after)) if (old.model, old.tools) == (new.model, new.tools) else 0  # else another cache
    while prefix < most and _same(before[prefix], after[prefix]):
        prefix += 1
    was = {block.id: block for block in before}
    ids = {block.id for block in after}
    changes = [
        BlockChange(block.id, block.kind, block.origin, was[block.id].tokens if block.id in was else None, block.tokens)
        for block in after
        if block.id not in was or not _same(was[block.id], block)
    ]
    changes += [BlockChange(one.id, one.kind, one.origin, one.tokens, None) for one in before if one.id not in ids]
    # The system text is a block, and stands before the history.
    return ProjectionComparison(
        changes=tuple(changes),
        tokens=new.tokens - old.tokens,
        prefix_tokens=sum(block.tokens for block in after[:prefix]),
        breaks_at=after[prefix].id if prefix < len(after) else None,
        costs=(old.cost_alone, new.cost_alone),
        cost_after=new.cost_with(min(prefix - 1, new.count, old.count)),
    )


def _same(a: Block, b: Block) -> bool:
    return (a.text, a.role) == (b.text, b.role)
