"""The blocks of all events of the history: statements by the layout, other events by the dialect.

Rule: the blocks of an event are a function of the event, of the name of its call, of the note that replaces its
outputs, and of the views that are shown where they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ctxkernel.core.ports import Picture
from ctxkernel.core.text import join_names
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.history.events import Action, Context, HistoryEvent, HumanStatement, Observation, Summary
from ctxkernel.history.redact import Edit, note
from ctxkernel.projection.budget import REFILL
from ctxkernel.projection.dialect import Dialect, EventRendering, picture_tokens, short, with_images
from ctxkernel.projection.displayed_handles import DisplayedHandles, EndedExecutions, with_references
from ctxkernel.projection.displayed_images import ImageLimits
from ctxkernel.projection.layout import StatementLayout, attribute, redacted_block
from ctxkernel.projection.placed_views import Placed, rewritten
from ctxkernel.projection.privacy import Hiding
from ctxkernel.projection.toolset import EXPAND
from ctxkernel.projection.value import Piece

Views = Mapping[str, tuple[Placed, ...]]
"""The views that are shown where they were made, by statement."""

_MOST_KEPT = 1_000
"""At least so many rendered events are kept, those of other branches included."""


class EventBlocks:
    """Renders events, and keeps what it rendered."""

    def __init__(
        self, layout: StatementLayout, dialect: Dialect, limits: ImageLimits, hiding: Hiding | None = None
    ) -> None:
        self.dialect = dialect
        self.limits = limits
        self.sources: dict[str, tuple[Statement, Execution]] = {}
        """The statements of human events, by the event's id."""
        self.images: dict[str, tuple[Picture, ...]] = {}
        """The images that executions displayed, by the execution's id; none where the model gets none."""
        self.notes: Mapping[str, str] = {}
        """The redacted events, each with the summary that replaces it."""
        self.displays = DisplayedHandles(EndedExecutions())
        """The displays of handles on the path."""
        self.views: Views = {}
        self.most = 0
        """At least so many rendered events are kept, if above `_MOST_KEPT`."""
        self.layout = layout
        self._hiding = hiding
        self._rendered: dict[tuple[str, str, str, Collection[str]], EventRendering] = {}

    def render(self, event: HistoryEvent, call_id: str = "c", *, whole: bool = False) -> EventRendering:
        """Return the blocks of an event, `whole` also where its outputs are redacted."""
        summary = None if whole else self.notes.get(event.event_id)
        hidden = () if whole else self._hidden(event)
        key = event.event_id, call_id, summary or "", hidden
        entry = self._rendered.get(key)
        if entry is None:
            source = self.sources.get(event.event_id) if isinstance(event, HumanStatement) else None
            instead = "" if summary is None else note(summary, event)
            if self._hiding is not None:
                event = self._hiding.event(event)
                source = self._hiding.statement(*source) if source else None
                instead = self._hiding.text(instead)
            images = self._images_of(event)
            if source:
                entry = self._statement(*source, instead, hidden, images)
            else:
                entry = self.dialect.render(self._shortened(event, hidden), call_id, instead, images)
            if entry.image_tokens:
                entry = entry._replace(image_weight=self._weight(event, images))
            if len(self._rendered) >= max(_MOST_KEPT, self.most):
                self._rendered.clear()
            self._rendered[key] = entry
        return entry

    def _hidden(self, event: HistoryEvent) -> Collection[str]:
        """Return the handles whose displays in a statement or result are references."""
        if not self.displays.by_execution or not isinstance(event, HumanStatement | Observation):
            return ()
        name = event.event_id.partition(":")[0]
        displayed = self.displays.by_execution.get(name)
        if displayed is None:
            return ()
        hidden = self.displays.hidden[name]
        if self.views:  # each view is shown where it was made
            placed = {one.obj_id for views in self.views.values() for one in views}
            hidden |= placed.intersection([obj_id for obj_id, _ in displayed])
        return hidden or ()

    def _shortened(self, event: HistoryEvent, hidden: Collection[str]) -> HistoryEvent:
        if not hidden or not isinstance(event, Observation):
            return event
        displayed = self.displays.by_execution[event.event_id.partition(":")[0]]
        text = with_references(event.content, [one for one in displayed if one[0] in hidden])
        return replace(event, content=text)

    def expand(self, result: HistoryEvent, events: Sequence[HistoryEvent], edits: Iterable[Edit]) -> None:
        """Give the result of a call of `expand` the images of the statement that it shows, unless it is redacted."""
        if not self.images or not isinstance(result, Observation):
            return
        calls = (one for one in reversed(events) if isinstance(one, Action))
        call = next((one for one in calls if one.tool_call_id == result.tool_call_id), None)
        if call is None or call.tool_name != EXPAND:
            return
        target = str(call.input.get("id", "")).strip().partition(":")[0]
        redacted = {one.directive.target_id.partition(":")[0] for one in edits}
        for name in (one for one in (*self.images,) if target in (one, short(one)) and one not in redacted):
            self.images[result.event_id] = self.images[name]

    def _images_of(self, event: HistoryEvent) -> tuple[Picture, ...]:
        """Return the images that an event shows: the newest of its execution that one event has room for."""
        if not self.images or not isinstance(event, HumanStatement | Observation):
            return ()
        name = event.event_id
        if isinstance(event, Observation):
            execution_id, _, number = name.partition(":")
            name = execution_id if number == "1" else name  # the others are results of calls that ran no cell
        limits = self.limits
        found, room = list[Picture](), int(limits.history() * REFILL)
        for one in reversed(self.images.get(name, ())):
            room -= limits.weight(one.tokens, len(one.data))
            if room < 0:
                break
            found.append(one)
        return tuple(reversed(found))

    def _weight(self, event: HistoryEvent, images: Sequence[Picture]) -> int:
        """Return the weight of the images of an event."""
        sizes = [(one.tokens, len(one.data)) for one in images]
        if isinstance(event, Context):
            texts = [event.texts[n] for n in event.pictures if n < len(event.texts)]
            sizes = [(picture_tokens(text) or 0, len(text)) for text in texts]
        return sum([self.limits.weight(*size) for size in sizes])

    def any_text(self, test: Callable[[str], bool]) -> bool:
        """Return whether the test holds for the text of a block that was rendered."""
        entries = self._rendered.values()
        return any(test(piece.text) for one in entries for piece in (*one.whole, *one.masked))

    def tokens(self, event: HistoryEvent) -> int:
        """Return the tokens that an event takes, rendered whole, or as it was redacted; of a summary uncut.

        Summaries are not cached, since several may be tried.
        """
        return self.dialect.summary_tokens(event) if isinstance(event, Summary) else self.render(event).tokens

    def render_with_views(self, shown: Sequence[HistoryEvent], place: int, call_id: str) -> EventRendering:
        """Return the blocks of `shown[place]` with the views that its statement made, as they are now."""
        event = shown[place]
        entry = self.render(event, call_id)
        if not self.views:
            return entry
        if isinstance(event, Action):
            given = event.tool_call_id
            results = (one for one in shown[place + 1 :] if getattr(one, "tool_call_id", "") == given)
            views = self.views.get(short(getattr(next(results, None), "event_id", "")), ())
            code = event.input.get("code")
            if not views or not isinstance(code, str):
                return entry
            again = replace(event, input={**event.input, "code": rewritten(code, views, short(event.event_id))})
            return self.dialect.render(again, entry.call_id)
        views = self.views.get(short(event.event_id), ()) if isinstance(event, HumanStatement | Observation) else ()
        source = self.sources.get(event.event_id)
        if not views or (source is None and isinstance(event, HumanStatement)):
            return entry
        if source is not None and event.event_id not in self.notes:
            statement, execution = source
            code = rewritten(statement.source, views, statement.statement_id)
            again = replace(statement, source=code)
            entry = self._statement(again, execution, "", self._hidden(event), self._images_of(event))
        pieces = [self.dialect.view(one, entry.origin) for one in views]
        tokens = sum([piece.tokens for piece in pieces])
        bare = (*entry.bare, *pieces) if entry.bare else ()
        return entry._replace(whole=(*entry.whole, *pieces), bare=bare, tokens=entry.tokens + tokens)

    def _statement(
        self,
        statement: Statement,
        execution: Execution,
        instead: str,
        hidden: Collection[str],
        images: Sequence[Picture] = (),
    ) -> EventRendering:
        """Return the block of a statement, whole and masked; `instead` replaces redacted outputs and images."""
        text = self.layout.text(statement, execution, hidden)
        name, origin = attribute(execution.execution_id), attribute(statement.statement_id)
        why = f"statement {origin}{f'; {join_names(sorted(hidden), 8)} by reference' if hidden else ''}"
        whole, tokens = text.text, text.tokens
        shown = sum([one.tokens for one in images])
        shorter, fewer = redacted_block(text, instead, self.layout) if instead else ("", tokens + shown)
        redacted = fewer < tokens + shown
        if redacted:
            whole, tokens, told, images = shorter, fewer, f"{why}; its outputs redacted", ()
        else:
            told = "; ".join([why, *text.notes])
        blocks = (Piece(name, "statement", origin, tokens, told, whole),)
        rendered = EventRendering(execution.execution_id, origin, blocks, blocks, tokens, tokens)
        if text.masks and not redacted:
            told = f"{why}, in one line, as it is old"
            less = (Piece(name, "statement", origin, text.short_tokens, told, text.short),)
            rendered = rendered._replace(masked=less, masked_tokens=text.short_tokens)
        return with_images(rendered, images)
