"""A tool loop that began with thinking cannot be divided."""

from __future__ import annotations

from collections.abc import Iterable

from ctxkernel.history.events import Events, batch_of
from ctxkernel.history.invariants.property import Property
from ctxkernel.history.pairing import outside


class ToolLoopAtomicity(Property):
    """Thinking binds all batches that follow it without a message between them.

    As long as the model continues from a response, the API wants the thinking of that response back with its calls.
    After a cut behind its first batch, a loop would begin without the thinking it is based on. This property removes
    nothing (seed 001): a cut at its indices keeps loops whole.
    """

    local = True

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return all gaps except those inside a run of calls and results, from its first thinking batch on."""
        spans: list[tuple[int, int]] = []
        first: dict[str, int] = {}
        start: int | None = None
        last = 0
        for place, event in enumerate(events):
            if event.place == "call":
                last = place
                begin = first.setdefault(batch_of(event), place)
                if start is None and event.thinking:
                    start = begin
            elif event.place == "result":
                last = place
            elif event.place == "message" and start is not None:  # a record does not end a loop: it is not shown
                spans.append((start, last))
                start = None
        if start is not None:
            spans.append((start, last))
        # A batch whose thinking comes with a late call begins before the loop that ended in between.
        return outside(len(events), sorted(spans))
