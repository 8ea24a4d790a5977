"""A tool loop that began with thinking is one piece."""

from __future__ import annotations

from collections.abc import Iterable

from ctxkernel.history.events import Events, batch_of
from ctxkernel.history.invariants.base import Property
from ctxkernel.history.pairing import outside


class ToolLoopAtomicity(Property):
    """Thinking binds all batches that follow it without a message between them.

    The API wants the thinking of a response back together with its calls, for as long as the model goes on from it:
    a loop that was cut after its first batch is one that begins without the thinking it rests on. Nothing is left out
    here (seed 001): a cut at the indices keeps loops whole.
    """

    local = True

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """All gaps but those between the first thinking batch of a run of calls and results and the run's end."""
        spans: list[tuple[int, int]] = []
        first: dict[str, int] = {}
        start: int | None = None
        last = 0
        for place, event in enumerate(events):
            if event.place == "call":
                last = place
                batch = event.llm_response_id or batch_of(event)  # type: ignore[arg-type, union-attr]
                begin = first.setdefault(batch, place)
                if start is None and event.thinking:  # type: ignore[union-attr]
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
