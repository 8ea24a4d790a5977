"""The history of a projection: events rendered once, folded under a cap, and grown block by block.

    path to HEAD → events → view (what the invariants leave) → entries (blocks of each) → fold (whole, masked, dropped)
    → run (the blocks of a projection)

Rule 1: what stands here is a function of the path from the root to HEAD, of what was recorded with it, and of the cap.
        What is kept from the last projection saves time and changes nothing (law 3).
Rule 2: a `Run` that a projection shares is only ever appended to; any other change makes a new one, which shares what
        both begin with.
Rule 3: of models that bind thinking to all before it, thinking and the state that was sent with it stand until
        something before them changes, or they become too many: then they go together, all that there are, so what the
        API compares is never edited. Each time they go, what follows is written to the provider's cache once more; so
        they do not go when their loop is over, unless the state that was sent with it is not known. Of other models
        the state is in the tail at each request, and never here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

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
    HumanStatement,
    Observation,
    Pin,
    Redaction,
    Summary,
    UserQuestion,
    Verdict,
    Withdrawal,
    from_execution,
)
from ctxkernel.history.invariants import PROPERTIES, Condensations, MessagePairing, Property
from ctxkernel.history.redact import Redactions, note
from ctxkernel.history.view import HistoryView
from ctxkernel.projection.budget import HistoryFold
from ctxkernel.projection.dialect import Dialect, Rendered, call_name, short
from ctxkernel.projection.in_place import Placed, rewritten
from ctxkernel.projection.layout import StatementLayout, attribute, is_status, masked, redacted
from ctxkernel.projection.privacy import Hiding
from ctxkernel.projection.receipt import ANCHOR, Receipts
from ctxkernel.projection.value import LeftOut, Piece, Run, same_until

Path = Sequence[tuple[Statement, Execution]]
Records = Mapping[str, Sequence[Any]]
"""Execution → the history events that were recorded with it, in order."""

_MOST_KEPT = 1_000
"""Rendered events that are kept at least, those of other branches included: coming back to one renders nothing anew."""
_OPENING = "[What came before is condensed or left out.]"
_STANDS_FOR = (UserQuestion, Context, AssistantMessage, Action, *RESULTS)
"""Events that show what a statement was, in its place: an ask, a response or a cell of the model."""


def _stands_for(event: HistoryEvent) -> bool:
    # A result that mends an earlier call says nothing of the statement that it was recorded with.
    return isinstance(event, _STANDS_FOR) and not getattr(event, "synthetic", False)


_COMMANDS = (Redaction, CondensationRequest, Withdrawal, Verdict, Pin)


def _bookkeeping(statement: Statement, records: Sequence[HistoryEvent]) -> bool:
    """Whether a statement only gave directives on the history itself: what they do is seen, and they say no more."""
    if statement.author == "model" and statement.kind == "meta":  # a response that came to nothing
        return True
    if not any(isinstance(one, _COMMANDS) for one in records):
        return False
    if any(isinstance(one, Verdict) for one in records):
        return True
    lines = [line.strip() for line in statement.source.splitlines()]
    return all(line.startswith(("%ctx ", "#")) for line in lines if line)


class Bound(NamedTuple):
    """What rule 3 comes to after an entry."""

    live: int = 0
    """From this entry on, thinking and the state that was sent with it stand."""
    tokens: int = 0
    """What they take."""
    newest: int = -1
    """The number of the newest event so far, in the order of recording."""
    question: int = -1
    """The entry of the question that the open loop began with, -1 where none is open."""
    known: bool = False
    """Whether the state was sent before the first thinking of the newest loop."""
    foreign: bool = False
    """Whether the newest request was built otherwise than those of now: what was thought then is bound to that."""


class Past:
    """The rendered history of one engine."""

    def __init__(
        self,
        layout: StatementLayout,
        dialect: Dialect,
        opening: str,
        capabilities: Capabilities,
        properties: Sequence[Property] = PROPERTIES,
        hiding: Hiding | None = None,
        basis: str = "",
    ) -> None:
        self._hiding = hiding
        self._basis = basis
        self._layout = layout
        self._dialect = dialect
        self._opening = opening
        self.count = dialect.count
        self._bound = capabilities.bound_thinking and dialect.name == "tools"
        self._turn_notes = bool(capabilities.turn_notes)
        self.properties = tuple(properties)
        self._rendered: dict[tuple[str, str, str] | str, Rendered] = {}
        self.run = Run()
        self.receipts = Receipts(opening)
        self.tokens = 0
        """Tokens of all blocks of the run."""
        self._places: list[int] = []
        """Where in the run the blocks of each entry begin."""
        self._live: int = 0
        """`Bound.live` when the run was laid."""
        self._told = False
        """Whether the run says what the fold leaves out."""
        self._spare = 0
        self._edge = -1, -1
        """Of the newest edit: the first entry that it changed, and the first that came after it; -1 where none did."""
        self.edge = -1
        """The last block before that entry, as long as no more than `ANCHOR` came after the edit; else -1."""
        self._begin()
        self._begin_entries(0)

    def _begin(self) -> None:
        self.view = HistoryView(properties=self.properties)
        self.events: list[HistoryEvent] = []
        """All that the path tells, in order, records among it."""
        self._fed: list[str] = []
        """The executions that the view was given …"""
        self._last_fed = False, 0
        """… of the last one whether its end was, and how many records …"""
        self._sources: dict[str, tuple[Statement, Execution]] = {}
        self.pins: dict[str, str] = {}
        """The pinned events, each with the reason."""
        self.redactions = Redactions()
        """The directives of the history, and which of them are in effect."""
        self._views: Mapping[str, tuple[Placed, ...]] = {}
        self._notes: dict[str, str] = {}
        """The redacted events, each with the summary that stands in its place."""
        self._mark = 0, 0, 0
        self._since: dict[str, int] = {}
        """Outputs that are, or were, notes → since when they are shown as they are."""
        self._reshaped: list[int] = []
        """When condensations were made and directives taken back."""
        self._edited = 0
        """What has a lower number in the order of recording was made before an edit of what is shown …"""
        self._edited_before = 0
        """… and before the edit before that."""
        self._repinned = 0
        """The same for pins: an edit only where something was masked or dropped."""
        self.tried = 0
        """How many events were shown when a condensation was tried in vain; not tried again before there are more."""
        self.has_calls = False
        """Whether a call or a result was ever recorded: without, nothing can be broken."""
        self.newest = ""
        """The newest statement, or empty."""
        self._open: dict[int, int] = {}
        """… and of those that had not ended: place in the path → how many records."""

    def _begin_entries(self, cap: int) -> None:
        self._shown: list[HistoryEvent] = []
        self._entries: list[Rendered] = []
        self._bounds: list[Bound] = []
        self._edge = -1, -1
        self._fold = HistoryFold(cap)
        self._gone: list[LeftOut] = []
        """What the fold has dropped."""
        self._listed = 0, 0
        """How much of the fold's `dropped` and `let_go` is in it."""
        self._told = False
        self._names: set[str] = set()
        """The ids of calls in the request."""
        self._waiting: dict[str, deque[str]] = {}
        """Ids of calls in the history → what those that have no result yet are named in the request."""

    # -- reading ---------------------------------------------------------------------------------

    @property
    def in_loop(self) -> bool:
        """Whether the model was asked and has not answered: a loop of calls is open."""
        return bool(self._bounds) and self._bounds[-1].question >= 0

    @property
    def context_sent(self) -> bool:
        """Whether the state stands in the history, since it was sent with the open loop."""
        bound = self._bounds[-1] if self._bounds else Bound()
        if not self._bound or bound.question < 0:
            return False
        return any(isinstance(one, Context) for one in self._shown[max(bound.question, bound.live) :])

    def running(self) -> list[LeftOut]:
        """Why statements that have not ended are left out."""
        return [LeftOut(attribute(self._fed[place]), "still running") for place in self._open]

    def hidden(self) -> list[LeftOut]:
        """What properties leave out that look at the whole history: extensions, and the user's own."""
        named = [
            getattr(one, "name", "") or type(one).__name__
            for one in self.properties
            if not one.local and not isinstance(one, Condensations | MessagePairing)
        ]
        if not named:
            return []
        view = self.view
        gone = {event.event_id for event in (*self._shown, *view.waiting)}
        gone.update(one for made in view.condensations for one in made.forgotten_event_ids)
        why = f"left out by a property: {' or '.join(named)} (%ctx properties)"
        left = (event.event_id for event in self.events if event.place != "meta" and event.event_id not in gone)
        return [LeftOut(attribute(one), why) for one in left]

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

    def unmasked(self) -> Sequence[HistoryEvent]:
        """Return the events that stand whole."""
        masked = self._fold.masked
        if not masked:
            return self._shown
        kept = [event for at, event in enumerate(self._shown[:masked]) if self._fold.is_kept(at)]
        return [*kept, *self._shown[masked:]]

    def tokens_after_bound(self) -> int:
        """Return the tokens of the blocks from the first on that is bound to what stands before it."""
        for at in range(self._live, len(self._entries)):
            if self._bound and (self._entries[at].thinking or self._entries[at].context):
                return sum([piece.tokens for piece in self.run.pieces[self._places[at] :]])
        return 0

    @property
    def drops(self) -> bool:
        """Whether something is left out that neither a summary nor a mark stands for."""
        return any(not self._fold.stands(at) for at in range(self._fold.dropped))

    def sizes(self) -> dict[str, int]:
        """Return the tokens of each shown event: masked where it is, or was dropped; whole where it is not."""
        end = max(self._fold.masked, self._fold.dropped)
        return {
            one.id: one.masked_tokens if at < end and not self._fold.is_kept(at) else one.tokens
            for at, one in enumerate(self._entries)
        }

    def blocks_in_place(self) -> set[str]:
        """Return the ids of the blocks that views have in the run."""
        return {piece.id for piece in self.run.pieces if piece.kind == "view"} if self._views else set()

    def in_place(self, there: Collection[str]) -> set[str]:
        """Return the objects of the views whose `blocks_in_place` these are, whole, where they were made."""
        every = [one for views in self._views.values() for one in views]
        return {one.obj_id for one in every if f"view:{attribute(one.name)}" in there}

    def size(self, event: HistoryEvent) -> int:
        """Return the tokens that an event takes, rendered whole, or as it was redacted; of a summary uncut.

        A summary may be one of several that are tried: none of them is kept.
        """
        return self._dialect.summary_tokens(event) if isinstance(event, Summary) else self._render(event, "c").tokens

    def whole_size(self, event: HistoryEvent) -> int:
        """Return the tokens that an event takes, rendered whole, whatever is done to it."""
        return self._render(event, "c", whole=True).tokens

    # -- growing ---------------------------------------------------------------------------------

    def catch_up(
        self,
        path: Path,
        records: Records,
        cap: int,
        spare: int,
        views: Mapping[str, tuple[Placed, ...]] = MappingProxyType({}),
    ) -> None:
        """Bring the run up to the end of `path`, under `cap` tokens.

        The thinking of an open loop, and the state that was sent with it, may take `spare` tokens besides. `views` are
        shown where they were made, by statement.
        """
        again = not self._continues(path, records)
        if again:  # what was pinned, redacted or edited there says nothing of here
            self._begin()
        known, edited = (self.pins.copy(), self._notes, self._views), self._edited
        so_far = len(self.events) if self._fed and views == self._views else -1
        self._views = views
        self._feed(path, records)
        if so_far == len(self.events) and (cap, spare) == (self._fold.cap, self._spare):
            return
        self._take_notes()
        shown = self.view.events
        same = self._same(shown)
        if again or self._fold.cap != cap or known != (self.pins, self._notes, self._views):
            self._begin_entries(cap)
            dirty = 0
        elif same < len(self._shown):
            dirty = self._back_to(same, cap)
        else:
            dirty = same
        if self._spare != spare or edited != self._edited:
            self._spare = spare
            self._edge = -1, -1
            del self._bounds[:]
            for place in range(len(self._entries)):
                self._bind(place, batch=place == self._fold.last_batch)
        state = self._fold.dropped, self._fold.masked
        for place in range(len(self._entries), len(shown)):
            self._take(shown, place)
        if state != (self._fold.dropped, self._fold.masked):
            dirty = 0 if state[0] != self._fold.dropped else min(dirty, state[1])
            self._told = False
        self._lay(dirty)

    def _continues(self, path: Path, records: Records) -> bool:
        """Whether `path` is what was fed, with something added at its end."""
        fed = self._fed
        if len(path) < len(fed) or (fed and path[len(fed) - 1][1].execution_id != fed[-1]):
            return False
        # What was still open before the newest place must be as it was: what it adds would stand before other events.
        newest = len(fed) - 1
        return all(
            place == newest or (path[place][1].status == "running" and len(records.get(fed[place], ())) == told)
            for place, told in self._open.items()
        )

    def _feed(self, path: Path, records: Records) -> None:
        fed = self._fed
        for place in range(max(len(fed) - 1, 0), len(path)):
            statement, execution = path[place]
            name = execution.execution_id
            told = records.get(name, ())
            if place == len(fed):
                fed.append(name)
                self._last_fed = False, 0
            known_end, known = self._last_fed
            ended = execution.status != "running"
            if ended and not known_end:
                self.newest = attribute(statement.statement_id)
                if not any(_stands_for(one) for one in told) and not _bookkeeping(statement, told):
                    self._sources[name] = path[place]
                    self._append(from_execution(statement, execution))
            for event in told[known:]:
                self._append(event)
            self._last_fed = ended, len(told)
            if ended:
                self._open.pop(place, None)
            else:
                self._open[place] = len(told)

    def _append(self, event: HistoryEvent) -> None:
        self.events.append(event)
        self.view.append(event)
        self.redactions.append(event)
        self.has_calls = self.has_calls or event.place in ("call", "result")
        if isinstance(event, Withdrawal):
            self.redactions.withdraw(event.target_id)
            self._reshaped.append(len(self.redactions.numbers))
        elif isinstance(event, Condensation):
            if event.forgotten_event_ids or event.summaries:
                self._reshaped.append(len(self.redactions.numbers))
        elif isinstance(event, Pin):
            self._repinned = len(self.redactions.numbers)
            if event.pinned:
                self.pins[event.target_id] = event.reason
            else:
                self.pins.pop(event.target_id, None)

    @property
    def redacted(self) -> Mapping[str, str]:
        """Statement → the summary that stands for what it gave."""
        return {short(target_id): summary for target_id, summary in self._notes.items()}

    def _take_notes(self) -> None:
        """Have the notes of the directives that are in effect; of several for one output the first stands."""
        edits, undone = self.redactions.edits, self.redactions.undone
        mark = len(edits), len(undone), len(self._reshaped)
        if mark != self._mark:
            if mark[:2] != self._mark[:2]:
                self._notes = {one.directive.target_id: one.directive.summary_text for one in reversed(edits.values())}
                changed = [*undone, *reversed(edits.values())]
                self._since = {one.directive.target_id: one.since for one in changed}
            self._mark = mark
            numbers = sorted({0, *self._reshaped, *self._since.values()})
            self._edited = numbers[-1]
            self._edited_before = numbers[-2] if len(numbers) > 1 else 0

    def _same(self, shown: Sequence[HistoryEvent]) -> int:
        """Return how many of the events that were shown begin what is shown."""
        old = self._shown
        if len(shown) >= len(old) and old == shown[: len(old)]:  # much faster than to look for the first that differs
            return len(old)
        return same_until(old, shown, min(len(old), len(shown)))

    # -- entries ---------------------------------------------------------------------------------

    def _back_to(self, count: int, cap: int) -> int:
        """Forget the entries after the first `count`; all, where these changed earlier ones. Returns what is left."""
        if not self._fold.cut(count):
            self._begin_entries(cap)
            return 0
        del self._shown[count:], self._entries[count:], self._bounds[count:]
        first, after = self._edge
        self._edge = (first if first < count else -1), (after if after < count else -1)
        calls = zip(self._entries, self._shown, strict=True)
        self._names = {one.call_id for one, event in calls if event.place == "call"}
        self._waiting = {}
        start = count  # the batch that the cut may have parted from its results
        while start and self._shown[start - 1].place in ("call", "result"):
            start -= 1
        for event, entry in zip(self._shown[start:], self._entries[start:], strict=True):
            self._follow(event, entry.call_id)
        return count

    def _follow(self, event: HistoryEvent, name: str) -> None:
        """Note what a call is named, and that a result took its name."""
        if event.place == "call":
            self._waiting.setdefault(event.tool_call_id, deque()).append(name)  # type: ignore[union-attr]
        elif event.place == "result":
            waiting = self._waiting.get(event.tool_call_id)  # type: ignore[union-attr]
            if waiting:
                waiting.popleft()

    def _take(self, shown: Sequence[HistoryEvent], place: int) -> None:
        """Render the event at `place`, and fold it in."""
        event = shown[place]
        name, joined = "", event.place == "result"
        if isinstance(event, Action):
            name = call_name(event, self._names)
            self._names.add(name)
            joined = place > 0 and shown[place - 1].place == "call"
        elif joined:
            waiting = self._waiting.get(event.tool_call_id)  # type: ignore[union-attr]
            name = waiting[0] if waiting else ""
        self._follow(event, name)
        entry = self._render(event, name)
        if self._views:
            entry = self._in_place(event, entry, shown, place)
        # Of models that bind thinking it stands in the open loop only, and is not the fold's.
        size = 0 if entry.context else entry.tokens - (entry.thinking_tokens if self._bound else 0)
        firm = bool(self.pins) and self._pinned_unit(shown, place)
        kept = entry.question or firm
        least = entry.masked_tokens if entry.masks and not kept else size
        self._shown.append(event)
        self._entries.append(entry)
        whole = not self._fold.append(size, least, joined=joined, kept=kept, firm=firm)
        self._bind(place, batch=not whole)

    def _bind(self, place: int, *, batch: bool) -> None:
        """Note what rule 3 comes to after the entry at `place`, whose coming changed earlier ones where `batch`."""
        event, entry = self._shown[place], self._entries[place]
        live, tokens, newest, question, known, foreign = self._bounds[-1] if self._bounds else Bound()
        name = event.condensation_id if isinstance(event, Summary) else event.event_id
        number = self.redactions.numbers.get(name, 0)
        held = self._bound and (entry.context or entry.thinking > 0)
        if isinstance(event, Context):
            foreign = event.basis not in ("", self._basis)
        first, after = self._edge
        if number >= self._edited:
            after = place if after < 0 else after
        elif first < 0 and (
            (held and number >= self._edited_before)
            or (isinstance(event, Summary) and number == self._edited - 1)
            or self._since.get(name) == self._edited
        ):
            first = place
        self._edge = first, after
        ends = False
        if isinstance(event, UserQuestion):
            if tokens > self._spare // 2:  # the new loop shall have room
                live, tokens = place, 0
            question, known = place, False
        elif isinstance(event, AssistantMessage | HumanStatement):
            ends, question = question >= 0 and not known, -1
        known = known or entry.context
        if held:
            tokens += entry.tokens if entry.context else entry.thinking_tokens
        edited = max(self._edited, self._repinned if self._fold.last_batch >= 0 else 0)
        if self._bound and (
            (held and (number < max(newest, edited) or foreign)) or ends or batch or tokens > self._spare
        ):
            live, tokens = place + 1, 0
        self._bounds.append(Bound(live, tokens, max(newest, number), question, known, foreign))

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

    def _render(self, event: HistoryEvent, name: str, *, whole: bool = False) -> Rendered:
        """Return the blocks of an event, which are the same whenever they are asked for."""
        summary = None if whole else self._notes.get(event.event_id)
        key = (event.event_id, name, summary or "") if name or summary else event.event_id
        entry = self._rendered.get(key)
        if entry is None:
            source = self._sources.get(event.event_id) if isinstance(event, HumanStatement) else None
            instead = "" if summary is None else note(summary, event)
            if self._hiding is not None:
                event = self._hiding.event(event)
                source = self._hiding.statement(*source) if source else None
                instead = self._hiding.text(instead)
            entry = self._statement(*source, instead) if source else self._dialect.render(event, name, instead)
            if len(self._rendered) >= max(_MOST_KEPT, 2 * len(self._entries)):
                self._rendered.clear()
            self._rendered[key] = entry
        return entry

    def _in_place(self, event: HistoryEvent, entry: Rendered, shown: Sequence[HistoryEvent], place: int) -> Rendered:
        """Return an entry with the views that its statement made, as they are now."""
        if isinstance(event, Action):
            given = event.tool_call_id
            results = (one for one in shown[place + 1 :] if getattr(one, "tool_call_id", "") == given)
            views = self._views.get(short(getattr(next(results, None), "event_id", "")), ())
            code = event.input.get("code")
            if not views or not isinstance(code, str):
                return entry
            again = replace(event, input={**event.input, "code": rewritten(code, views, short(event.event_id))})
            return self._dialect.render(again, entry.call_id)
        views = self._views.get(short(event.event_id), ()) if isinstance(event, HumanStatement | Observation) else ()
        source = self._sources.get(event.event_id)
        if not views or (source is None and isinstance(event, HumanStatement)):
            return entry
        if source is not None and event.event_id not in self._notes:
            statement, execution = source
            code = rewritten(statement.source, views, statement.statement_id)
            entry = self._statement(replace(statement, source=code), execution, "")
        pieces = [self._dialect.view(one, entry.origin) for one in views]
        tokens = sum([piece.tokens for piece in pieces])
        whole = (*entry.whole, *pieces)
        return entry._replace(whole=whole, tokens=entry.tokens + tokens)

    def _statement(self, statement: Statement, execution: Execution, instead: str) -> Rendered:
        text = self._layout.text(statement, execution)
        name, origin = attribute(execution.execution_id), attribute(statement.statement_id)
        why = "; ".join([f"statement {origin}", *text.notes])
        shown, tokens = redacted(text, instead, self._layout) if instead else ("", text.tokens)
        if tokens < text.tokens:
            whole = (Piece(name, "statement", origin, tokens, f"statement {origin}; its outputs redacted", shown),)
            return Rendered(execution.execution_id, origin, whole, whole, tokens, tokens)
        whole = (Piece(name, "statement", origin, text.tokens, why, text.text),)
        if not text.masks:
            return Rendered(execution.execution_id, origin, whole, whole, text.tokens, text.tokens)
        told = "; ".join([f"statement {origin}; its outputs masked", *text.notes])
        less = (Piece(name, "statement", origin, text.masked_tokens, told, masked(text)),)
        return Rendered(execution.execution_id, origin, whole, less, text.tokens, text.masked_tokens)

    # -- blocks ----------------------------------------------------------------------------------

    def _lay(self, dirty: int) -> None:
        """Make the run of the entries; those before `dirty` have their blocks already."""
        live = self._bounds[-1].live if self._bounds else 0
        if live != self._live:
            dirty = min(dirty, live, self._live)
            self._live = live
        dirty = min(dirty, len(self._places))
        place = self._places[dirty] if dirty < len(self._places) else len(self.run.pieces)
        if dirty < len(self._places) or not self._told:
            self.tokens -= sum([piece.tokens for piece in self.run.pieces[place:]])
            self.run = self.run.cut(place, self.run.left_out if self._told else self._left_out())
            self.receipts = self.receipts.cut(place) if place else Receipts(self._opening)
            del self._places[dirty:]
            self._told = True
        pieces = self.run.pieces
        for index in range(dirty, len(self._entries)):
            self._places.append(len(pieces))
            for piece in (*self._note_before(index), *self._pieces(index)):
                if not pieces and piece.role != "user":
                    pieces.append(self._piece_of_ours("opening", "empty", _OPENING, "a request begins with the user"))
                    self.tokens += pieces[-1].tokens
                pieces.append(piece)
                self.tokens += piece.tokens
        first, after = self._edge
        since = self._places[after] if after >= 0 else len(pieces)
        self.edge = self._places[first] - 1 if first > 0 and len(pieces) - since <= ANCHOR else -1

    def _pieces(self, index: int) -> Sequence[Piece]:
        """Return the blocks of an entry as they stand now."""
        entry = self._entries[index]
        if not self._fold.stands(index):
            return ()
        if entry.context and (index < self._live or not self._bound):
            return ()
        pieces = entry.masked if index < self._fold.masked and not self._fold.is_kept(index) else entry.whole
        if entry.thinking and self._bound and index < self._live:
            pieces = pieces[entry.thinking :]
        return pieces

    def _note_before(self, index: int) -> Sequence[Piece]:
        """Return the system message that was sent right before what the model said, where the API takes one there."""
        before = self._shown[index - 1] if index else None
        told = self._bound and self._turn_notes
        if not told or not isinstance(before, Context) or not is_status(before.status):
            return ()
        here = self._pieces(index)
        if not here or here[0].role != "assistant" or not self.run.pieces or self.run.pieces[-1].role != "user":
            return ()
        why = "the state in our own words, as it was sent with that turn; the API forgets it when the turn is over"
        return (self._piece_of_ours(before.event_id, "status", before.status, why, "system"),)

    def _piece_of_ours(self, name: str, kind: str, text: str, why: str, role: str = "user") -> Piece:
        return Piece(attribute(name), kind, "ctxkernel", self._dialect.count(text), why, text, role)

    def _left_out(self) -> tuple[LeftOut, ...]:
        fold, cap, entries = self._fold, self._fold.cap, self._entries
        dropped = f"older than what the history's {cap:,} tokens hold; dropped in a batch"
        hidden = f"outputs masked in a batch: the history came to its {cap:,} tokens"
        done, let_go = self._listed
        more = [at for at in range(done, fold.dropped) if not fold.stands(at)]
        more += [at for at in fold.let_go[let_go:] if at < done]
        self._gone += [LeftOut(entries[at].name, dropped) for at in more]
        self._listed = max(done, fold.dropped), len(fold.let_go)
        # Before `dropped` only what is kept stands, and that is whole.
        stubs = [at for at in range(fold.dropped, fold.masked) if not fold.is_kept(at) and entries[at].masks]
        return (*self._gone, *(LeftOut(f"{entries[at].name}:outputs", hidden) for at in stubs))
