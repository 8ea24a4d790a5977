"""Thinking that a model's API binds to all that stands before it.

Of models that bind thinking, thinking and the state that was sent with it stand until something before them changes, or
they become too many. Then all of them go together, so what the API compares is never edited. Each time they go, what
follows is written to the provider's cache once more; so they do not go when their loop is over, unless the state that
was sent with it is not known. Of other models the state is in the tail at each request, and never here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ctxkernel.history.events import AssistantMessage, Context, HistoryEvent, HumanStatement, Summary, UserQuestion
from ctxkernel.projection.dialect import Rendered


class Edits(NamedTuple):
    """When what is shown was edited, as numbers of events in the order of recording."""

    newest: int = 0
    """What has a lower number was made before the newest edit."""
    before: int = 0
    """The same of the edit before that."""
    pinned: int = 0
    """The same of the newest pin: an edit only where something was masked or dropped."""
    since: Mapping[str, int] = MappingProxyType({})
    """Outputs that are, or were, notes → since when they are shown as they are."""


class BoundThinking:
    """Which thinking stands, as a fold over the entries of the history."""

    def __init__(self, edits: Edits, basis: str, spare: int, *, on: bool) -> None:
        self._edits = edits
        self._basis = basis
        self._spare = spare
        self._on = on
        """Whether the model binds thinking."""
        self.live = 0
        """From this entry on, thinking and the state that was sent with it stand."""
        self.question = -1
        """The entry of the question that the open loop began with, -1 where none is open."""
        self.edge = -1, -1
        """Of the newest edit: the first entry that it changed, and the first that came after it; -1 where none did."""
        self._place = -1
        self._tokens = 0
        """Tokens of what stands."""
        self._newest = -1
        """The number of the newest event so far, in the order of recording."""
        self._known = False
        """Whether the state was sent before the first thinking of the newest loop."""
        self._foreign = False
        """Whether the newest request was built otherwise than those of now: what was thought then is bound to that."""

    def append(
        self, event: HistoryEvent, entry: Rendered, name: str, number: int, *, batch: bool, batches: bool
    ) -> None:
        """Take the next entry, whose event was the `number`th that was recorded.

        `batch` says whether it made the fold mask or drop earlier ones, `batches` whether any entry has.
        """
        self._place = place = self._place + 1
        held = self._on and (entry.context or entry.thinking > 0)
        if isinstance(event, Context):
            self._foreign = event.basis not in ("", self._basis)
        self._find_edge(event, name, number, held=held)
        ends = False
        if isinstance(event, UserQuestion):
            if self._tokens > self._spare // 2:  # the new loop shall have room
                self.live, self._tokens = place, 0
            self.question, self._known = place, False
        elif isinstance(event, AssistantMessage | HumanStatement):
            ends, self.question = self.question >= 0 and not self._known, -1
        self._known = self._known or entry.context
        if held:
            self._tokens += entry.tokens if entry.context else entry.thinking_tokens
        edited = max(self._newest, self._edits.newest, self._edits.pinned if batches else 0)
        stale = held and (number < edited or self._foreign)
        if self._on and (stale or ends or batch or self._tokens > self._spare):
            self.live, self._tokens = place + 1, 0
        self._newest = max(self._newest, number)

    def _find_edge(self, event: HistoryEvent, name: str, number: int, *, held: bool) -> None:
        first, after = self.edge
        edits = self._edits
        if number >= edits.newest:
            self.edge = first, self._place if after < 0 else after
        elif first < 0 and (
            (held and number >= edits.before)
            or (isinstance(event, Summary) and number == edits.newest - 1)
            or edits.since.get(name) == edits.newest
        ):
            self.edge = self._place, after
