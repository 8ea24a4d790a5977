"""The history of a projection: events rendered once, folded under a cap, and appended block by block.

    path to HEAD → events → view (the events that the invariants leave) → entries (the blocks of each)
    → fold (whole, masked, dropped) → run (the blocks of a projection)

Rule 1: the run is a function of the path from the root to HEAD, of the events recorded with it, and of the cap. All
        that is kept from the last projection only saves time (law 3).
Rule 2: each stage only grows at its end. Where something earlier changes, the stage and those after it are rebuilt.
Rule 3: of models that bind thinking to all before it, see `bound_thinking.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ctxkernel.core.text import plural
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.history.capabilities import Capabilities
from ctxkernel.history.events import (
    Action,
    AssistantMessage,
    Condensation,
    Context,
    HistoryEvent,
    HumanStatement,
    Pin,
    Summary,
    Unbinding,
    Withdrawal,
    from_execution,
)
from ctxkernel.history.invariants import PROPERTIES, Condensations, MessagePairing, Property
from ctxkernel.history.redact import Redactions
from ctxkernel.history.view import HistoryView
from ctxkernel.projection.binding import BoundBlocks, BoundTo, StoredResponses
from ctxkernel.projection.bookkeeping import STEERS, has_block, is_pinned, steers
from ctxkernel.projection.bound_thinking import BoundThinking, Edits
from ctxkernel.projection.budget import HistoryFold
from ctxkernel.projection.dialect import EventRendering, call_name, short
from ctxkernel.projection.displayed_handles import DisplayedHandles, EndedExecutions
from ctxkernel.projection.displayed_images import images_of
from ctxkernel.projection.event_blocks import EventBlocks, Views
from ctxkernel.projection.layout import attribute, is_status
from ctxkernel.projection.receipt import ANCHOR, Receipts
from ctxkernel.projection.value import BlockRun, LeftOut, Piece

Path = Sequence[tuple[Statement, Execution]]
RecordsByExecution = Mapping[str, Sequence[Any]]
"""Execution → the history events that were recorded with it, in order."""

_OPENING = "[What came before is condensed or left out.]"


class Past:
    """The rendered history of one engine."""

    def __init__(
        self,
        blocks: EventBlocks,
        opening: str,
        capabilities: Capabilities,
        properties: Sequence[Property] = PROPERTIES,
        bound_to: BoundTo | None = None,
        recent: int = 10**9,
    ) -> None:
        """`bound_to` is what thinking is bound to besides blocks, None if it is not bound.

        `recent` are the tokens of the person's newest statements that are whole.
        """
        self.blocks = blocks
        self._recent = recent
        self._opening = opening
        self._bound_to = bound_to
        self.count = blocks.dialect.count
        self._bound = bound_to is not None
        self._turn_notes = self._bound and bool(capabilities.turn_notes)
        self.properties = tuple(properties)
        self._hides = [
            getattr(one, "name", "") or type(one).__name__
            for one in properties
            if not one.local and not isinstance(one, Condensations | MessagePairing)
        ]
        """The names of the properties that may hide any event."""
        self._key: tuple[Any, ...] = ()
        """All that the entries depend on besides the events: where it changes, they are rebuilt."""
        self._begin()
        self._begin_entries(0, 0, 0)

    def _begin(self) -> None:
        """Forget the path."""
        self.view = HistoryView(properties=self.properties)
        self.events: list[HistoryEvent] = []
        """All events of the path, in order, recorded ones among them."""
        self._fed: list[str] = []
        """The executions that the view was given."""
        self._steering: list[str] = []
        """The executions that only steered the kernel."""
        self._ended = EndedExecutions()
        self.responses = StoredResponses()
        self._partial: dict[int, tuple[bool, int]] = {}
        """Place → (ended, number of records), of the newest of them and of those that have not ended."""
        self.pins: dict[str, str] = {}
        """The pinned events, each with the reason."""
        self.redactions = Redactions()
        """The directives of the history, and which are in effect."""
        self._reshaped: list[int] = []
        """The numbers of condensations and withdrawals, in the order of recording."""
        self._mark = 0, 0, 0
        self._edits = Edits()
        self.blocks.sources, self.blocks.notes, self.blocks.images = {}, {}, {}
        self._unsent = 0
        """The number of images that cells displayed, where the model gets none."""
        self.tried = 0
        """The number of shown events when a condensation last failed; it is retried when there are more."""
        self.has_calls = False
        """Whether a call or a result was ever recorded: without, nothing needs repair."""
        self.newest = ""
        """The newest statement, or empty."""

    def _begin_entries(self, cap: int, spare: int, image_cap: int) -> None:
        """Forget the entries and the run."""
        self.shown: list[HistoryEvent] = []
        """The events that the view shows, as they were recorded."""
        self._entries: list[EventRendering] = []
        self._at: dict[str, int] = {}
        """Statement → its last entry."""
        self.blocks.displays = DisplayedHandles(self._ended)
        self.fold = HistoryFold(cap, image_cap, self._recent)
        self._thinking = BoundThinking(self._edits, spare, self.blocks.limits.before, self._bound)
        self._names: set[str] = set()
        """The ids of calls in the request."""
        self._waiting: dict[str, deque[str]] = {}
        """Id of a call in the history → the names in the request of its calls without a result yet."""
        self._begin_run(())

    def _begin_run(self, left_out: tuple[LeftOut, ...]) -> None:
        self.run = BlockRun(left_out)
        self.receipts = Receipts(self._opening)
        self.tokens = 0
        """Tokens of all blocks of the run."""
        self._places: list[int] = []
        """The first block in the run of each entry."""
        self._live = self._thinking.live
        """`BoundThinking.live` when the run was begun."""
        self._laid = BoundBlocks(self._bound_to) if self._bound_to is not None else None
        """The blocks of the run; None if thinking is not bound."""
        self._sent_state = -1
        """The newest response that stands after the state that was sent with its request."""
        self._sent_images = 0
        """Weight of the pictures in these states."""
        self.edge = -1
        """The last block before the newest edit, while at most `ANCHOR` blocks follow the edit; else -1."""

    # -- reading ---------------------------------------------------------------------------------

    @property
    def context_sent(self) -> bool:
        """Return whether the history has the state that was sent with the open loop."""
        question = self._thinking.question
        return self._bound and 0 <= question <= self._sent_state

    def left_out(self) -> list[LeftOut]:
        """Return the statements that steer the kernel or have not ended, then the events that properties hide."""
        left = [LeftOut(attribute(name), STEERS) for name in self._steering]
        if self._unsent:
            left.append(LeftOut("images", f"{plural(self._unsent, 'images')} of cells: {self.blocks.limits.why}"))
        for place, (ended, _) in self._partial.items():
            if not ended:
                left.append(LeftOut(attribute(self._fed[place]), "still running"))
        if not self._hides:
            return left
        view = self.view
        gone = {event.event_id for event in (*self.shown, *view.waiting)}
        gone.update(one for made in view.condensations for one in made.forgotten_event_ids)
        why = f"left out by a property: {' or '.join(self._hides)} (%ctx properties)"
        hidden = (event.event_id for event in self.events if event.place != "meta" and event.event_id not in gone)
        return [*left, *(LeftOut(attribute(one), why) for one in hidden)]

    def _is_masked(self, place: int) -> bool:
        """Return whether the entry at `place` is masked, or was dropped."""
        return place < self.fold.masked and not self.fold.is_kept(place)

    def unmasked(self) -> Sequence[HistoryEvent]:
        """Return the events that are shown whole."""
        return [event for place, event in enumerate(self.shown) if not self._is_masked(place)]

    def tokens_after_bound(self) -> int:
        """Return the tokens of all blocks from the first bound one on."""
        for place in range(self._live, len(self._entries) if self._bound else 0):
            if self._entries[place].thinking_tokens or self._entries[place].context:
                return sum([piece.tokens for piece in self.run.pieces[self._places[place] :]])
        return 0

    @property
    def is_untouched(self) -> bool:
        """Return whether nothing can be due: no calls, waiting directives, request to condense or dropped entries."""
        quiet = not self.has_calls and not self.redactions.waiting and not self.view.unhandled_request
        return quiet and not self.fold.dropped

    @property
    def drops(self) -> bool:
        """Return whether an entry is dropped without a summary or a mark."""
        return any(not self.fold.stands(place) for place in range(self.fold.dropped))

    def stands(self, statement_id: str) -> str:
        """Return how the run shows a statement: `whole`, `short` (its outputs masked), or empty where it does not."""
        place = self._at.get(statement_id, -1)
        if place < 0 or (place < self.fold.dropped and not self.fold.stands(place)):
            return ""
        return "short" if self._is_masked(place) and self._entries[place].masks else "whole"

    def shows(self, text: str) -> bool:
        """Return whether the run has this text."""
        return any(text in piece.text for piece in self.run.pieces if piece.kind != "view")

    def sizes(self) -> dict[str, int]:
        """Return the tokens of each shown event: masked if it is masked or dropped, else whole."""
        return {
            one.id: one.masked_tokens if self._is_masked(place) else one.tokens
            for place, one in enumerate(self._entries)
        }

    def in_place(self) -> tuple[set[str], set[str]]:
        """Return the ids of the blocks of views in the run, and the obj_ids of these views."""
        if not self.blocks.views:
            return set(), set()
        there = {piece.id for piece in self.run.pieces if piece.kind == "view"}
        every = [one for views in self.blocks.views.values() for one in views]
        return there, {one.obj_id for one in every if f"view:{attribute(one.name)}" in there}

    @property
    def redacted(self) -> Mapping[str, str]:
        """Statement → the summary that replaces its outputs."""
        return {short(target_id): summary for target_id, summary in self.blocks.notes.items()}

    # -- growing ---------------------------------------------------------------------------------

    def catch_up(
        self,
        path: Path,
        records: RecordsByExecution,
        cap: int,
        spare: int,
        views: Views = MappingProxyType({}),
        image_cap: int = 0,
    ) -> None:
        """Bring the run up to the end of `path`, under `cap` tokens.

        The thinking of an open loop and the state that was sent with it may take `spare` more tokens. `views` are shown
        where they were made, by statement. Images may have the weight `image_cap`.
        """
        given = cap, spare, views, image_cap
        goes_on = bool(self._key) and self._continues(path, records)
        if not goes_on:  # pins, redactions and edits belong to the other path
            self._begin()
        known = len(self.events)
        self._feed(path, records)
        if goes_on and known == len(self.events) and given == self._key[0]:
            return
        self._find_edits()
        shown = self.view.events
        key = given, self._edits, self.blocks.notes, self.pins.copy()
        if not goes_on or key != self._key or shown[: len(self.shown)] != self.shown:
            self._key = key
            self.blocks.views, self.blocks.most = views, 2 * len(shown)
            self._begin_entries(cap, spare, image_cap)
        self._grow(shown)

    def _continues(self, path: Path, records: RecordsByExecution) -> bool:
        """Return whether `path` begins with the executions that were fed."""
        newest, name = len(self._fed) - 1, self._fed[-1] if self._fed else ""
        if len(path) <= newest or (name and path[newest][1].execution_id != name):
            return False
        # A condensation may be recorded later with a command that has no block then.
        if name in self.blocks.sources and not has_block(path[newest][0], records.get(name, ())):
            return False
        # Open executions before the newest one must be unchanged: their new events would come before others.
        return all(
            place == newest or (path[place][1].status == "running" and len(records.get(self._fed[place], ())) == told)
            for place, (_, told) in self._partial.items()
        )

    def _feed(self, path: Path, records: RecordsByExecution) -> None:
        """Append the events of the path that are new."""
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
                images = images_of(execution) if execution.artifacts else ()
                if images and self.blocks.limits.total:
                    self.blocks.images[name] = images
                self._unsent += 0 if self.blocks.limits.total else len(images)
                self.newest = attribute(statement.statement_id)
                self._ended.append(execution)
                if steers(statement):
                    self._steering.append(name)
                elif has_block(statement, told):
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
        self.responses.note(event)
        self.redactions.append(event)
        self.has_calls = self.has_calls or event.place in ("call", "result")
        number = len(self.redactions.numbers)
        if isinstance(event, Withdrawal):
            self.redactions.withdraw(event.target_id)
            self._reshaped.append(number)
        elif isinstance(event, Condensation):
            if event.forgotten_event_ids or event.summaries:
                self._reshaped.append(number)
        elif isinstance(event, Unbinding):
            self._edits = self._edits._replace(unbound=number)
        elif event.place == "result":
            self.blocks.expand(event, self.events, self.redactions.edits.values())
        elif isinstance(event, Pin):
            if event.pinned:
                self.pins[event.target_id] = event.reason
            else:
                self.pins.pop(event.target_id, None)

    def _find_edits(self) -> None:
        """Find the notes of the directives in effect (the first one of an output), and when edits were made."""
        edits, undone = self.redactions.edits, self.redactions.undone
        mark = len(edits), len(undone), len(self._reshaped)
        if mark == self._mark:
            return
        self._mark = mark
        newest_first = [*reversed(edits.values())]
        self.blocks.notes = {one.directive.target_id: one.directive.summary_text for one in newest_first}
        since = {one.directive.target_id: one.since for one in (*undone, *newest_first)}
        self._edits = Edits(max(0, *self._reshaped, *since.values()), self._edits.unbound, since)

    # -- entries ---------------------------------------------------------------------------------

    def _grow(self, shown: Sequence[HistoryEvent]) -> None:
        """Add entries and blocks for the new events; rebuild the run where earlier blocks change."""
        start = len(self._entries)
        for place in range(start, len(shown)):
            self._take(shown, place)
        self.blocks.displays.follow()
        if self.fold.last_batch >= start or self._thinking.live != self._live:
            self._begin_run(self._folded())
            start = 0
        self._lay(start)

    def _settle(self, shown: Sequence[HistoryEvent]) -> None:
        """Make references of the displays that are out of date, in the entries that are whole."""
        blocks = self.blocks
        for place in blocks.displays.settle():
            if self._is_masked(place):
                continue
            old = self._entries[place]
            entry = blocks.render_with_views(shown, place, old.call_id)
            self._entries[place] = entry
            self.fold.resize(place, old.tokens - entry.tokens, entry.masked_tokens if entry.masks else None)

    def _take(self, shown: Sequence[HistoryEvent], place: int) -> None:
        """Render the event at `place` and add it to the fold."""
        event = shown[place]
        self.blocks.displays.follow(event.event_id)
        name, joined = "", event.place == "result"
        if isinstance(event, Action):
            name = call_name(event, self._names)
            self._names.add(name)
            self._waiting.setdefault(event.tool_call_id, deque()).append(name)
            joined = place > 0 and shown[place - 1].place == "call"
        elif joined and (waiting := self._waiting.get(event.tool_call_id)):  # type: ignore[union-attr]
            name = waiting.popleft()
        blocks = self.blocks
        entry = blocks.render_with_views(shown, place, name)
        # The fold does not count bound thinking, which is only in the open loop.
        size = 0 if entry.context else entry.tokens - (entry.thinking_tokens if self._bound else 0)
        firm = bool(self.pins) and is_pinned(shown, place, self.pins)
        kept = entry.question or firm
        least = entry.masked_tokens if entry.masked is not entry.whole and not kept else size
        self.shown.append(event)
        self._entries.append(entry)
        self._at[short(event.event_id)] = place
        images = (entry.image_tokens, entry.image_weight) if entry.bare else (0, 0)
        fresh = 0
        if isinstance(event, HumanStatement):  # a redaction must not show older statements again
            redacted = event.event_id in blocks.notes
            unredacted = blocks.render(event, name, whole=True) if redacted else entry
            fresh = unredacted.whole[0].tokens if unredacted.masks else 0
        batch = self.fold.append(size, least, images=images, joined=joined, kept=kept, firm=firm, fresh=fresh)
        if blocks.displays.are_due(event.event_id, place, batch=batch):
            self._settle(shown)
            batch = True
        name = event.condensation_id if isinstance(event, Summary) else event.event_id
        number = self.redactions.numbers.get(name, 0)
        self._thinking.append(event, entry, name, number, batch=batch)

    # -- blocks ----------------------------------------------------------------------------------

    def _lay(self, start: int) -> None:
        """Add the blocks of the entries from `start` on to the run."""
        pieces = self.run.pieces
        for place in range(start, len(self._entries)):
            self._places.append(len(pieces))
            new = list(self._pieces(place))
            if self._laid is not None:
                new = self._bind(self._laid, place, new)
            if new and not pieces and new[0].role != "user":
                new.insert(0, self._piece_of_ours("opening", "empty", _OPENING, "a request begins with the user"))
                if self._bound_to is not None:  # the opening stands before what was added
                    self._laid = BoundBlocks(self._bound_to)
                    self._laid.add(new)
            pieces += new
            self.tokens += sum([piece.tokens for piece in new])
        first, after = self._thinking.edge
        since = self._places[after] if after >= 0 else len(pieces)
        self.edge = self._places[first] - 1 if first > 0 and len(pieces) - since <= ANCHOR else -1

    def _bind(self, laid: BoundBlocks, place: int, new: list[Piece]) -> list[Piece]:
        """Return the blocks of an entry as they may stand: thinking only after what was sent before it."""
        event = self.shown[place]
        if isinstance(event, Context):
            laid.send(event.basis if place >= self._live else "", new)
            return []
        if not isinstance(event, Action | AssistantMessage):
            laid.add(new)
            return new
        before = self.shown[place - 1] if place else None
        note = self._note(before) if isinstance(before, Context) else ()
        verbatim = self._entries[place].verbatim
        new, count = laid.respond(event.llm_response_id, new, note, verbatim=verbatim)
        if count:
            self._sent_state = place
            self._sent_images += self._entries[place - 1].image_weight
        return new

    def _pieces(self, place: int) -> Sequence[Piece]:
        """Return the present blocks of an entry."""
        entry = self._entries[place]
        if place < self.fold.dropped and not self.fold.stands(place):
            return ()
        gone = place < self._live
        if entry.context and (gone or not self._bound):
            return ()
        pieces = entry.whole if not entry.bare or self.fold.shows_images(place) else entry.bare
        if place < self.fold.masked and self._is_masked(place):
            shows = self.fold.shows_images(place)
            pieces = (*entry.masked, *(piece for piece in entry.whole if shows and piece.kind == "image"))
        if gone and entry.thinking_tokens:
            return [piece for piece in pieces if piece.kind != "thinking"]
        return pieces

    def _note(self, before: Context) -> Sequence[Piece]:
        """Return the system message that was sent right before a response, where the API allows one there."""
        if not self._turn_notes or not is_status(before.status):
            return ()
        why = "the state in our own words, as it was sent with that turn; the API forgets it when the turn is over"
        return (self._piece_of_ours(before.event_id, "status", before.status, why, "system"),)

    def _piece_of_ours(self, name: str, kind: str, text: str, why: str, role: str = "user") -> Piece:
        return Piece(attribute(name), kind, "ctxkernel", self.count(text), why, text, role)

    def _folded(self) -> tuple[LeftOut, ...]:
        """Return the entries that the fold drops, then the outputs that it masks."""
        fold, entries = self.fold, self._entries
        dropped = f"older than what the history's {fold.cap:,} tokens hold; dropped in a batch"
        hidden = "old, so masked in a batch; expand brings it whole"
        gone = [LeftOut(entries[at].name, dropped) for at in range(fold.dropped) if not fold.stands(at)]
        # Before `dropped` only kept entries remain, and they are whole.
        stubs = [at for at in range(fold.dropped, fold.masked) if not fold.is_kept(at) and entries[at].masks]
        masked = [LeftOut(f"{entries[at].name}:outputs", hidden) for at in stubs]
        pixels = f"left out in a batch: the images of cells came to their {fold.image_cap:,} tokens"
        bare = [LeftOut(f"{entries[at].name}:images", pixels) for at in fold.left_out if fold.stands(at)]
        return (*gone, *masked, *bare)

    def image_blocks(self) -> dict[str, str]:
        """Return the images of cells in the run that are blocks of their own: the text of each, and its id."""
        return {piece.text: piece.id for piece in self.run.pieces if piece.kind == "image"}

    @property
    def image_weight(self) -> int:
        """Weight of all images in the run: those that cells displayed, and those in the state as it was sent."""
        return self.fold.images + self._sent_images
