"""The properties that a model's history has, one file each, in the order in which they are enforced.

First what no request can have, then what belongs together, then order, then what concerns the whole. The three
extensions of seed 001 are built and off: `ToolCallDepth` belongs before `ResultAdjacency`, `MessagePairing` and
`TokenLimit` at the end; `with_extensions` puts each in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ctxkernel.history.events import HistoryEvent
from ctxkernel.history.invariants.adjacency import ResultAdjacency
from ctxkernel.history.invariants.base import Property
from ctxkernel.history.invariants.batches import BatchAtomicity
from ctxkernel.history.invariants.condensation import Condensations, unhandled_request
from ctxkernel.history.invariants.depth import ToolCallDepth
from ctxkernel.history.invariants.loops import ToolLoopAtomicity
from ctxkernel.history.invariants.matching import ToolCallMatching
from ctxkernel.history.invariants.messages import MessagePairing
from ctxkernel.history.invariants.own import OwnProperty
from ctxkernel.history.invariants.tokens import TokenLimit
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
    """Return `properties` with the extensions that are asked for; None and False leave one off.

    `tokens` needs `count`, which returns the tokens of an event. Raises TypeError without it, BadPolicy for limits that
    nothing can meet.
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
    "unhandled_request",
    "with_extensions",
]
