"""The properties that a model's history obeys, one file each, in the order in which they are enforced.

First come properties about invalid events, then about events that belong together, then about order, then about the
whole history. The three extensions of seed 001 are off by default: `with_extensions` inserts `ToolCallDepth` before
`ResultAdjacency`, and `MessagePairing` and `TokenLimit` at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ctxkernel.history.events import HistoryEvent
from ctxkernel.history.invariants.adjacency import ResultAdjacency
from ctxkernel.history.invariants.batches import BatchAtomicity
from ctxkernel.history.invariants.condensation import Condensations
from ctxkernel.history.invariants.depth import ToolCallDepth
from ctxkernel.history.invariants.loops import ToolLoopAtomicity
from ctxkernel.history.invariants.matching import ToolCallMatching
from ctxkernel.history.invariants.message_pairing import MessagePairing
from ctxkernel.history.invariants.own import OwnProperty
from ctxkernel.history.invariants.property import Property
from ctxkernel.history.invariants.token_limit import TokenLimit
from ctxkernel.history.invariants.uniqueness import ObservationUniqueness

PROPERTIES: tuple[Property, ...] = (
    ObservationUniqueness(),
    ToolCallMatching(),
    BatchAtomicity(),
    ResultAdjacency(),
    ToolLoopAtomicity(),
    Condensations(),
)


def with_extensions(
    properties: Sequence[Property] = PROPERTIES,
    *,
    depth: int | None = None,
    message_pairing: bool = False,
    tokens: int | None = None,
    count: Callable[[HistoryEvent], int] | None = None,
) -> tuple[Property, ...]:
    """Return `properties` with the selected extensions; None and False leave an extension out.

    `tokens` needs `count`, which returns the tokens of an event. Raises TypeError without it, and BadPolicy for limits
    that no history can meet.
    """
    listed = list(properties)
    if depth is not None:
        place = next((n for n, one in enumerate(listed) if isinstance(one, ResultAdjacency)), len(listed))
        listed.insert(place, ToolCallDepth(depth))
    if message_pairing:
        listed.append(MessagePairing())
    if tokens is not None:
        if count is None:
            raise TypeError("with_extensions(tokens=…) needs count=, which returns the tokens of an event")
        listed.append(TokenLimit(tokens, count, within=tuple(listed)))
    return tuple(listed)


__all__ = [
    "PROPERTIES",
    "BatchAtomicity",
    "Condensations",
    "MessagePairing",
    "ObservationUniqueness",
    "OwnProperty",
    "Property",
    "ResultAdjacency",
    "TokenLimit",
    "ToolCallDepth",
    "ToolCallMatching",
    "ToolLoopAtomicity",
    "with_extensions",
]
