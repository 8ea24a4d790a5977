"""Thinking that a model's API binds to all blocks before it.

Such thinking may only be sent back after exactly the blocks that were sent before it (`receipt.Binding`). So the
history keeps the thinking of a response, and the state that was sent with its request, as long as nothing before them
changes (`binding.BoundBlocks`), and as long as these are not too many: then all of them are removed together, since
each time the provider must cache the rest again. For models that do not bind thinking the state is only in the tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.timeline_events import NONE
from ctxkernel.history.events import AssistantMessage, HistoryEvent, HumanStatement, Summary, UserQuestion
from ctxkernel.projection.dialect import EventRendering


class Edits(NamedTuple):
    """When shown events were edited, as numbers of events in the order of recording."""

    newest: int = 0
    """Of the newest edit: events with a lower number are older."""
    unbound: int = 0
    """Of the newest `Unbinding`."""
    since: Mapping[str, int] = NONE
    """Outputs that are, or were, redacted → the number since when they are shown so."""


@dataclass(eq=False)
class BoundThinking:
    """The thinking that the history keeps, as a fold over its entries."""

    edits: Edits
    spare: int
    """Tokens that it may take, with the state that was sent with it."""
    image_spare: int
    """Weight that the pictures in the state that was sent may take when a new loop begins."""
    on: bool
    """Whether the model binds thinking."""
    live: int = field(default=0, init=False)
    """The first entry that may keep its thinking and the state that was sent with it."""
    question: int = field(default=-1, init=False)
    """The entry of the question of the open loop, -1 where none is open."""
    edge: tuple[int, int] = field(default=(-1, -1), init=False)
    """The first entry that the newest edit changed, and the first entry after it; -1 where there is none."""
    _place: int = field(default=-1, init=False)
    _tokens: int = field(default=0, init=False)
    _images: int = field(default=0, init=False)
    """Weight of the pictures in the state that it may keep."""

    def append(self, event: HistoryEvent, entry: EventRendering, name: str, number: int, *, batch: bool) -> None:
        """Add the next entry, whose event has the number `number` in the order of recording.

        `batch`: the fold masked or dropped earlier entries for it. All is removed with an edit or a batch: the
        provider must cache most of the rest again in any case.
        """
        self._place = place = self._place + 1
        held = self.on and (entry.context or entry.thinking_tokens > 0)
        first, after = self.edge
        if number >= self.edits.newest:
            self.edge = first, place if after < 0 else after
        elif first < 0 and self._is_edited(event, name, number):
            self.edge = place, after
        if isinstance(event, UserQuestion):
            if self._tokens > self.spare // 2 or self._images > self.image_spare:  # make room for the new loop
                self._restart(place)
            self.question = place
        elif isinstance(event, AssistantMessage | HumanStatement):
            self.question = -1
        older = (held and number < self.edits.newest) or (entry.thinking_tokens and number < self.edits.unbound)
        if older or (self.on and batch):
            self._restart(place + 1)
        elif held and place >= self.live:
            self._tokens += entry.tokens if entry.context else entry.thinking_tokens
            self._images += entry.image_weight if entry.context else 0
            if self._tokens > self.spare:
                self._restart(place + 1)

    def _restart(self, place: int) -> None:
        self.live, self._tokens, self._images = place, 0, 0

    def _is_edited(self, event: HistoryEvent, name: str, number: int) -> bool:
        """Return whether the newest edit changed an entry that is older."""
        edits = self.edits
        return (isinstance(event, Summary) and number == edits.newest - 1) or edits.since.get(name) == edits.newest
