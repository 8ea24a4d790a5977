"""Thinking that a model's API binds to all that stands before it.

For models that bind thinking, the history keeps thinking and the state that was sent with it until something before
them changes, or they become too many. Then all of them are removed together: the API compares what is before thinking,
so that is never edited. Each removal makes the provider cache the rest again; so they are not removed at the end of
their loop, unless the state that was sent with it is not known. For other models the state is only in the tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from ctxkernel.history.events import AssistantMessage, Context, HistoryEvent, HumanStatement, Summary, UserQuestion
from ctxkernel.projection.dialect import EventRendering


class Edits(NamedTuple):
    """When shown events were edited, as numbers of events in the order of recording."""

    newest: int = 0
    """Of the newest edit: events with a lower number are older."""
    before: int = 0
    """Of the edit before that."""
    pinned: int = 0
    """Of the newest pin, which is an edit only where something was masked or dropped."""
    since: Mapping[str, int] = MappingProxyType({})
    """Outputs that are, or were, redacted → the number since when they are shown so."""


@dataclass(eq=False)
class BoundThinking:
    """The thinking that the history keeps, as a fold over its entries."""

    edits: Edits
    basis: str
    """The basis of new requests."""
    spare: int
    """Tokens that it may take."""
    on: bool
    """Whether the model binds thinking."""
    live: int = field(default=0, init=False)
    """The first entry that keeps its thinking and the state that was sent with it."""
    question: int = field(default=-1, init=False)
    """The entry of the question of the open loop, -1 where none is open."""
    edge: tuple[int, int] = field(default=(-1, -1), init=False)
    """The first entry that the newest edit changed, and the first entry after it; -1 where there is none."""
    _place: int = field(default=-1, init=False)
    _tokens: int = field(default=0, init=False)
    _newest: int = field(default=-1, init=False)
    """The number of the newest event so far, in the order of recording."""
    _known: bool = field(default=False, init=False)
    """Whether the state was sent before the first thinking of the newest loop."""
    _foreign: bool = field(default=False, init=False)
    """Whether the newest request had another basis, to which its thinking is bound."""

    def append(
        self, event: HistoryEvent, entry: EventRendering, name: str, number: int, *, batch: bool, batches: bool
    ) -> None:
        """Add the next entry, whose event has the number `number` in the order of recording.

        `batch`: the fold masked or dropped earlier entries for it; `batches`: it has done so for any entry.
        """
        self._place = place = self._place + 1
        held = self.on and (entry.context or entry.thinking > 0)
        if isinstance(event, Context):
            self._foreign = event.basis not in ("", self.basis)
        first, after = self.edge
        if number >= self.edits.newest:
            self.edge = first, place if after < 0 else after
        elif first < 0 and self._is_edited(event, name, number, held=held):
            self.edge = place, after
        ends = False
        if isinstance(event, UserQuestion):
            if self._tokens > self.spare // 2:  # make room for the new loop
                self.live, self._tokens = place, 0
            self.question, self._known = place, False
        elif isinstance(event, AssistantMessage | HumanStatement):
            ends, self.question = self.question >= 0 and not self._known, -1
        self._known = self._known or entry.context
        if held:
            self._tokens += entry.tokens if entry.context else entry.thinking_tokens
        edited = max(self._newest, self.edits.newest, self.edits.pinned if batches else 0)
        stale = held and (number < edited or self._foreign)
        if self.on and (stale or ends or batch or self._tokens > self.spare):
            self.live, self._tokens = place + 1, 0
        self._newest = max(self._newest, number)

    def _is_edited(self, event: HistoryEvent, name: str, number: int, *, held: bool) -> bool:
        """Whether the newest edit changed an entry that is older."""
        edits = self.edits
        return (
            (held and number >= edits.before)
            or (isinstance(event, Summary) and number == edits.newest - 1)
            or edits.since.get(name) == edits.newest
        )
