"""The blocks of all events of the history: statements by the layout, other events by the dialect.

Rule: the blocks of an event are a function of the event, of what its call is named, of the note that stands for its
outputs, and of the views that are shown where they were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.history.events import Action, HistoryEvent, HumanStatement, Observation, Summary
from ctxkernel.history.redact import note
from ctxkernel.projection.dialect import Dialect, Rendered, short
from ctxkernel.projection.in_place import Placed, rewritten
from ctxkernel.projection.layout import StatementLayout, attribute, masked, redacted
from ctxkernel.projection.privacy import Hiding
from ctxkernel.projection.value import Piece

Views = Mapping[str, tuple[Placed, ...]]
"""The views that are shown where they were made, by statement."""

_MOST_KEPT = 1_000
"""At least so many rendered events are kept, those of other branches included."""


class EventBlocks:
    """Renders events, and keeps what it rendered."""

    def __init__(self, layout: StatementLayout, dialect: Dialect, hiding: Hiding | None = None) -> None:
        self.dialect = dialect
        self.sources: dict[str, tuple[Statement, Execution]] = {}
        """The statements that events stand for, by the event's id."""
        self.notes: Mapping[str, str] = {}
        """The redacted events, each with the summary that stands in its place."""
        self.views: Views = {}
        self.most = 0
        """At least so many rendered events are kept, where this is above `_MOST_KEPT`."""
        self.layout = layout
        self._hiding = hiding
        self._rendered: dict[tuple[str, str, str], Rendered] = {}

    def render(self, event: HistoryEvent, call_id: str = "c", *, whole: bool = False) -> Rendered:
        """Return the blocks of an event, `whole` also where its outputs are redacted."""
        summary = None if whole else self.notes.get(event.event_id)
        key = event.event_id, call_id, summary or ""
        entry = self._rendered.get(key)
        if entry is None:
            source = self.sources.get(event.event_id) if isinstance(event, HumanStatement) else None
            instead = "" if summary is None else note(summary, event)
            if self._hiding is not None:
                event = self._hiding.event(event)
                source = self._hiding.statement(*source) if source else None
                instead = self._hiding.text(instead)
            entry = self._statement(*source, instead) if source else self.dialect.render(event, call_id, instead)
            if len(self._rendered) >= max(_MOST_KEPT, self.most):
                self._rendered.clear()
            self._rendered[key] = entry
        return entry

    def tokens(self, event: HistoryEvent) -> int:
        """Return the tokens that an event takes, rendered whole, or as it was redacted; of a summary uncut.

        A summary may be one of several that are tried: none of them is kept.
        """
        return self.dialect.summary_tokens(event) if isinstance(event, Summary) else self.render(event).tokens

    def render_with_views(self, shown: Sequence[HistoryEvent], place: int, call_id: str) -> Rendered:
        """Return the blocks of `shown[place]` with the views that its statement made, as they are now."""
        event = shown[place]
        entry = self.render(event, call_id)
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
            entry = self._statement(replace(statement, source=code), execution, "")
        pieces = [self.dialect.view(one, entry.origin) for one in views]
        tokens = sum([piece.tokens for piece in pieces])
        return entry._replace(whole=(*entry.whole, *pieces), tokens=entry.tokens + tokens)

    def _statement(self, statement: Statement, execution: Execution, instead: str) -> Rendered:
        """Return the block of a statement, whole and masked; `instead` stands in the place of redacted outputs."""
        text = self.layout.text(statement, execution)
        name, origin = attribute(execution.execution_id), attribute(statement.statement_id)
        why = f"statement {origin}"
        whole, tokens = text.text, text.tokens
        shorter, fewer = redacted(text, instead, self.layout) if instead else ("", tokens)
        if fewer < tokens:
            whole, tokens, told = shorter, fewer, f"{why}; its outputs redacted"
        else:
            told = "; ".join([why, *text.notes])
        blocks = (Piece(name, "statement", origin, tokens, told, whole),)
        if fewer < text.tokens or not text.masks:
            return Rendered(execution.execution_id, origin, blocks, blocks, tokens, tokens)
        told = "; ".join([f"{why}; its outputs masked", *text.notes])
        less = (Piece(name, "statement", origin, text.masked_tokens, told, masked(text)),)
        return Rendered(execution.execution_id, origin, blocks, less, tokens, text.masked_tokens)
