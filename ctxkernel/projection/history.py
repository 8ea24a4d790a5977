"""The history of a projection: events rendered once, folded under a cap, and grown block by block.

    path to HEAD → events → view (what the invariants leave) → entries (blocks of each) → fold (whole, masked, dropped)
    → run (the blocks of a projection)

Rule 1: what stands here is a function of the path from the root to HEAD, of what was recorded with it, and of the cap.
        What is kept from the last projection saves time and changes nothing (law 3).
Rule 2: each stage only grows at its end. Where something earlier changes, the stage and those after it are made anew.
Rule 3: of models that bind thinking to all before it, see `BoundThinking`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.history.capabilities import Capabilities
from ctxkernel.history.events import (
    RESULTS,
    Action,
    AssistantMessage,
    Condensation,
    CondensationRequest,
    Context,
    HistoryEvent,
    Pin,
    Redaction,
    Summary,
    UserQuestion,
    Verdict,
    Withdrawal,
    from_execution,
)
from ctxkernel.history.invariants import PROPERTIES, Condensations, MessagePairing, Property
from ctxkernel.history.redact import Redactions
from ctxkernel.history.view import HistoryView
from ctxkernel.projection.bound_thinking import BoundThinking, Edits
from ctxkernel.projection.budget import HistoryFold
from ctxkernel.projection.dialect import Rendered, call_name, short
from ctxkernel.projection.event_blocks import EventBlocks, Views
from ctxkernel.projection.layout import attribute, is_status
from ctxkernel.projection.receipt import ANCHOR, Receipts
from ctxkernel.projection.value import LeftOut, Piece, Run

Path = Sequence[tuple[Statement, Execution]]
Records = Mapping[str, Sequence[Any]]
"""Execution → the history events that were recorded with it, in order."""

_OPENING = "[What came before is condensed or left out.]"
_STANDS_FOR = (UserQuestion, Context, AssistantMessage, Action, *RESULTS)
"""Events that show what a statement was, in its place: an ask, a response or a cell of the model."""
_COMMANDS = (Redaction, CondensationRequest, Withdrawal, Verdict, Pin)


def _stands_for(event: HistoryEvent) -> bool:
    # A result that mends an earlier call says nothing of the statement that it was recorded with.
    return isinstance(event, _STANDS_FOR) and not getattr(event, "synthetic", False)


def _bookkeeping(statement: Statement, records: Sequence[HistoryEvent]) -> bool:
    """Whether a statement only gave directives on the history itself: what they do is seen, and they say no more."""
    if statement.author == "model" and statement.kind == "meta":  # a response that came to nothing
        return True
    if not records or not any(isinstance(one, _COMMANDS) for one in records):
        return False
    if any(isinstance(one, Verdict) for one in records):
        return True
    lines = [line.strip() for line in statement.source.splitlines()]
    return all(line.startswith(("%ctx ", "#")) for line in lines if line)


class Past:
    """The rendered history of one engine."""

    def __init__(
        self,
        blocks: EventBlocks,
        opening: str,
        capabilities: Capabilities,
        properties: Sequence[Property] = PROPERTIES,
        basis: str = "",
    ) -> None:
        self.blocks = blocks
        self._basis = basis
        self._opening = opening
        self.count = blocks.dialect.count
        self._bound = capabilities.bound_thinking and blocks.dialect.name == "tools"
        self._turn_notes = self._bound and bool(capabilities.turn_notes)
        self.properties = tuple(properties)
        self._hides = [
            getattr(one, "name", "") or type(one).__name__
            for one in properties
            if not one.local and not isinstance(one, Condensations | MessagePairing)
        ]
        """The names of the properties that may leave out anything, wherever it stands."""
        self._key: tuple[Any, ...] = ()
        """What the entries rest on besides the events: where it is another, they are made anew."""
        self._begin()
        self._begin_entries(0, 0)

    def _begin(self) -> None:
        """Forget the path."""
        self.view = HistoryView(properties=self.properties)
        self.events: list[HistoryEvent] = []
        """All events of the path, in order, recorded ones among them."""
        self._fed: list[str] = []
        """The executions that the view was given."""
        self._partial: dict[int, tuple[bool, int]] = {}
        """Of the newest of them, and of those that have not ended, by place: whether it ended, how many records."""
        self.pins: dict[str, str] = {}
        """The pinned events, each with the reason."""
        self.redactions = Redactions()
        """The directives of the history, and which of them are in effect."""
        self._reshaped: list[int] = []
        """When condensations were made and directives taken back."""
        self._mark = 0, 0, 0
        self._edits = Edits()
        self.blocks.sources, self.blocks.notes = {}, {}
        self.tried = 0
        """How many events were shown when a condensation was tried in vain; not tried again before there are more."""
        self.has_calls = False
        """Whether a call or a result was ever recorded: without, nothing can be broken."""
        self.newest = ""
        """The newest statement, or empty."""

    def _begin_entries(self, cap: int, spare: int) -> None:
        """Forget the entries, and all that was made of them."""
        self._shown: list[HistoryEvent] = []
        self._entries: list[Rendered] = []
        self._fold = HistoryFold(cap)
        self._thinking = BoundThinking(self._edits, self._basis, spare, on=self._bound)
        self._names: set[str] = set()
        """The ids of calls in the request."""
        self._waiting: dict[str, deque[str]] = {}
        """Ids of calls in the history → what those that have no result yet are named in the request."""
        self._begin_run(())

    def _begin_run(self, left_out: tuple[LeftOut, ...]) -> None:
        self.run = Run(left_out)
        self.receipts = Receipts(self._opening)
        self.tokens = 0
        """Tokens of all blocks of the run."""
        self._places: list[int] = []
        """Where in the run the blocks of each entry begin."""
        self._live = self._thinking.live
        """`BoundThinking.live` when the run was begun."""
        self.edge = -1
        """The last block before the newest edit, as long as no more than `ANCHOR` came after the edit; else -1."""

    # -- reading ---------------------------------------------------------------------------------

    @property
    def context_sent(self) -> bool:
        """Whether the state stands in the history, since it was sent with the open loop."""
        thinking = self._thinking
        if not self._bound or thinking.question < 0:
            return False
        return any(isinstance(one, Context) for one in self._shown[max(thinking.question, thinking.live) :])

    def left_out(self) -> list[LeftOut]:
        """Return the statements that have not ended, then what properties leave out."""
        left: list[LeftOut] = []
        for place, (ended, _) in self._partial.items():
            if not ended:
                left.append(LeftOut(attribute(self._fed[place]), "still running"))
        if not self._hides:
            return left
        view = self.view
        gone = {event.event_id for event in (*self._shown, *view.waiting)}
        gone.update(one for made in view.condensations for one in made.forgotten_event_ids)
        why = f"left out by a property: {' or '.join(self._hides)} (%ctx properties)"
        hidden = (event.event_id for event in self.events if event.place != "meta" and event.event_id not in gone)
        return [*left, *(LeftOut(attribute(one), why) for one in hidden)]

    @property
    def shown(self) -> Sequence[HistoryEvent]:
        """The events that the view shows, as they were recorded."""
        return self._shown

    @property
    def cap(self) -> int:
        """Tokens that the history may take."""
        return self._fold.cap

    @property
    def fold_tokens(self) -> int:
        """Tokens that the history takes of these."""
        return self._fold.tokens

    def _is_masked(self, place: int) -> bool:
        """Whether the entry at `place` is masked, or was dropped."""
        return place < self._fold.masked and not self._fold.is_kept(place)

    def unmasked(self) -> Sequence[HistoryEvent]:
        """Return the events that stand whole."""
        return [event for place, event in enumerate(self._shown) if not self._is_masked(place)]

    def tokens_after_bound(self) -> int:
        """Return the tokens of the blocks from the first on that is bound to what stands before it."""
        for place in range(self._live, len(self._entries) if self._bound else 0):
            if self._entries[place].thinking or self._entries[place].context:
                return sum([piece.tokens for piece in self.run.pieces[self._places[place] :]])
        return 0

    @property
    def is_untouched(self) -> bool:
        """Whether nothing can be due: no calls, no directives that wait, no request to condense, nothing dropped."""
        quiet = not self.has_calls and not self.redactions.waiting and not self.view.unhandled_request
        return quiet and not self._fold.dropped

    @property
    def drops(self) -> bool:
        """Whether something is left out that neither a summary nor a mark stands for."""
        return any(not self._fold.stands(place) for place in range(self._fold.dropped))

    def sizes(self) -> dict[str, int]:
        """Return the tokens of each shown event: masked where it is, or was dropped; whole where it is not."""
        return {
            one.id: one.masked_tokens if self._is_masked(place) else one.tokens
            for place, one in enumerate(self._entries)
        }

    def blocks_in_place(self) -> set[str]:
        """Return the ids of the blocks that views have in the run."""
        return {piece.id for piece in self.run.pieces if piece.kind == "view"} if self.blocks.views else set()

    def in_place(self, there: Collection[str]) -> set[str]:
        """Return the objects of the views whose `blocks_in_place` these are, whole, where they were made."""
        every = [one for views in self.blocks.views.values() for one in views]
        return {one.obj_id for one in every if f"view:{attribute(one.name)}" in there}

    def size(self, event: HistoryEvent) -> int:
        """Return the tokens of an event, as `EventBlocks.tokens`."""
        return self.blocks.tokens(event)

    @property
    def redacted(self) -> Mapping[str, str]:
        """Statement → the summary that stands for what it gave."""
        return {short(target_id): summary for target_id, summary in self.blocks.notes.items()}

    # -- growing ---------------------------------------------------------------------------------

    def catch_up(
        self,
        path: Path,
        records: Records,
        cap: int,
        spare: int,
        views: Views = MappingProxyType({}),
    ) -> None:
        """Bring the run up to the end of `path`, under `cap` tokens.

        The thinking of an open loop, and the state that was sent with it, may take `spare` tokens besides. `views` are
        shown where they were made, by statement.
        """
        given = cap, spare, views
        goes_on = bool(self._key) and self._continues(path, records)
        if not goes_on:  # what was pinned, redacted or edited there says nothing of here
            self._begin()
        known = len(self.events)
        self._feed(path, records)
        if goes_on and known == len(self.events) and given == self._key[0]:
            return
        self._find_edits()
        shown = self.view.events
        key = given, self._edits, self.blocks.notes, self.pins.copy()
        if not goes_on or key != self._key or shown[: len(self._shown)] != self._shown:
            self._key = key
            self.blocks.views, self.blocks.most = views, 2 * len(shown)
            self._begin_entries(cap, spare)
        self._grow(shown)

    def _continues(self, path: Path, records: Records) -> bool:
        """Whether `path` is what was fed, with something added at its end."""
        newest = len(self._fed) - 1
        if len(path) <= newest or (newest >= 0 and path[newest][1].execution_id != self._fed[newest]):
            return False
        # What was still open before the newest place must be as it was: what it adds would stand before other events.
        for place, (_, told) in self._partial.items():
            _, execution = path[place]
            if place != newest and (execution.status != "running" or len(records.get(self._fed[place], ())) != told):
                return False
        return True

    def _feed(self, path: Path, records: Records) -> None:
        """Take in what the path has beyond what was fed."""
        fed, partial = self._fed, self._partial
        for place in range(max(len(fed) - 1, 0), len(path)):
            statement, execution = path[place]
            name = execution.execution_id
            told = records.get(name, ())
            had_ended, known = partial.get(place, (False, 0))
            ended = execution.status != "running"
            if place == len(fed):
                fed.append(name)
            if ended and not had_ended:
                self.newest = attribute(statement.statement_id)
                if not any(map(_stands_for, told)) and not _bookkeeping(statement, told):
                    self.blocks.sources[name] = path[place]
                    self._append(from_execution(statement, execution))
            for event in told[known:]:
                self._append(event)
            if partial.get(place - 1, (False, 0))[0]:
                del partial[place - 1]
            partial[place] = ended, len(told)

    def _append(self, event: HistoryEvent) -> None:
        self.events.append(event)
        self.view.append(event)
        self.redactions.append(event)
        self.has_calls = self.has_calls or event.place in ("call", "result")
        number = len(self.redactions.numbers)
        if isinstance(event, Withdrawal):
            self.redactions.withdraw(event.target_id)
            self._reshaped.append(number)
        elif isinstance(event, Condensation):
            if event.forgotten_event_ids or event.summaries:
                self._reshaped.append(number)
        elif isinstance(event, Pin):
            self._edits = self._edits._replace(pinned=number)
            if event.pinned:
                self.pins[event.target_id] = event.reason
            else:
                self.pins.pop(event.target_id, None)

    def _find_edits(self) -> None:
        """Find the notes of the directives in effect, of several for one output the first, and when edits were made."""
        edits, undone = self.redactions.edits, self.redactions.undone
        mark = len(edits), len(undone), len(self._reshaped)
        if mark == self._mark:
            return
        self._mark = mark
        newest_first = [*reversed(edits.values())]
        self.blocks.notes = {one.directive.target_id: one.directive.summary_text for one in newest_first}
        since = {one.directive.target_id: one.since for one in (*undone, *newest_first)}
        before, newest = sorted({-1, 0, *self._reshaped, *since.values()})[-2:]
        self._edits = Edits(newest, max(before, 0), self._edits.pinned, since)

    # -- entries ---------------------------------------------------------------------------------

    def _grow(self, shown: Sequence[HistoryEvent]) -> None:
        """Take the events that are shown beyond those known, and lay their blocks; all of them where earlier change."""
        start = len(self._entries)
        for place in range(start, len(shown)):
            self._take(shown, place)
        if self._fold.last_batch >= start or self._thinking.live != self._live:
            self._begin_run(self._folded())
            start = 0
        self._lay(start)

    def _take(self, shown: Sequence[HistoryEvent], place: int) -> None:
        """Render the event at `place`, and fold it in."""
        event = shown[place]
        name, joined = "", event.place == "result"
        if isinstance(event, Action):
            name = call_name(event, self._names)
            self._names.add(name)
            self._waiting.setdefault(event.tool_call_id, deque()).append(name)
            joined = place > 0 and shown[place - 1].place == "call"
        elif joined and (waiting := self._waiting.get(event.tool_call_id)):  # type: ignore[union-attr]
            name = waiting.popleft()
        blocks = self.blocks
        entry = blocks.render_with_views(shown, place, name) if blocks.views else blocks.render(event, name)
        # Of models that bind thinking it stands in the open loop only, and is not the fold's.
        size = 0 if entry.context else entry.tokens - (entry.thinking_tokens if self._bound else 0)
        firm = bool(self.pins) and self._pinned_unit(shown, place)
        kept = entry.question or firm
        least = entry.masked_tokens if entry.masked is not entry.whole and not kept else size
        self._shown.append(event)
        self._entries.append(entry)
        batch = self._fold.append(size, least, joined=joined, kept=kept, firm=firm)
        name = event.condensation_id if isinstance(event, Summary) else event.event_id
        number = self.redactions.numbers.get(name, 0)
        self._thinking.append(event, entry, name, number, batch=batch, batches=self._fold.last_batch >= 0)

    def _pinned_unit(self, shown: Sequence[HistoryEvent], place: int) -> bool:
        """Whether an event is pinned, or one of the batch that it stands and falls with."""
        if shown[place].place == "message":
            return shown[place].event_id in self.pins
        first = end = place
        while first and not (shown[first].place == "call" and shown[first - 1].place != "call"):
            first -= 1
        while end + 1 < len(shown) and (
            shown[end + 1].place == "result" or (shown[end + 1].place == "call" and shown[end].place == "call")
        ):
            end += 1
        return any(one.event_id in self.pins for one in shown[first : end + 1])

    # -- blocks ----------------------------------------------------------------------------------

    def _lay(self, start: int) -> None:
        """Add the blocks of the entries from `start` on to the run."""
        pieces = self.run.pieces
        for place in range(start, len(self._entries)):
            self._places.append(len(pieces))
            new = [*self._note_before(place), *self._pieces(place)]
            if new and not pieces and new[0].role != "user":
                new.insert(0, self._piece_of_ours("opening", "empty", _OPENING, "a request begins with the user"))
            pieces += new
            self.tokens += sum([piece.tokens for piece in new])
        first, after = self._thinking.edge
        since = self._places[after] if after >= 0 else len(pieces)
        self.edge = self._places[first] - 1 if first > 0 and len(pieces) - since <= ANCHOR else -1

    def _pieces(self, place: int) -> Sequence[Piece]:
        """Return the blocks of an entry as they stand now."""
        entry = self._entries[place]
        if not self._fold.stands(place):
            return ()
        gone = not self._bound or place < self._live
        if entry.context and gone:
            return ()
        pieces = entry.masked if self._is_masked(place) else entry.whole
        return pieces[entry.thinking :] if self._bound and gone else pieces

    def _note_before(self, place: int) -> Sequence[Piece]:
        """Return the system message that was sent right before what the model said, where the API takes one there."""
        before = self._shown[place - 1] if place else None
        if not self._turn_notes or not isinstance(before, Context) or not is_status(before.status):
            return ()
        here = self._pieces(place)
        if not here or here[0].role != "assistant" or not self.run.pieces or self.run.pieces[-1].role != "user":
            return ()
        why = "the state in our own words, as it was sent with that turn; the API forgets it when the turn is over"
        return (self._piece_of_ours(before.event_id, "status", before.status, why, "system"),)

    def _piece_of_ours(self, name: str, kind: str, text: str, why: str, role: str = "user") -> Piece:
        return Piece(attribute(name), kind, "ctxkernel", self.count(text), why, text, role)

    def _folded(self) -> tuple[LeftOut, ...]:
        """Return what the fold drops, then the outputs that it masks."""
        fold, entries = self._fold, self._entries
        dropped = f"older than what the history's {fold.cap:,} tokens hold; dropped in a batch"
        hidden = f"outputs masked in a batch: the history came to its {fold.cap:,} tokens"
        gone = [LeftOut(entries[at].name, dropped) for at in range(fold.dropped) if not fold.stands(at)]
        # Before `dropped` only what is kept stands, and that is whole.
        stubs = [at for at in range(fold.dropped, fold.masked) if not fold.is_kept(at) and entries[at].masks]
        return (*gone, *[LeftOut(f"{entries[at].name}:outputs", hidden) for at in stubs])
