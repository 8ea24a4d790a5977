"""Carry out the calls of a model that run no cell: redact, expand, condense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.loop import Loop
from ctxkernel.core.text import one_line, suggest
from ctxkernel.history.events import (
    Action,
    CondensationRequest,
    HistoryEvent,
    Observation,
    OutputStatus,
    content_of,
    nth,
)
from ctxkernel.history.redact import Redactions
from ctxkernel.history.redact_tool import answer as answer_redact
from ctxkernel.kernel.display.handle_widgets import named_handle
from ctxkernel.projection.engine import EXPANSION
from ctxkernel.projection.layout import clean
from ctxkernel.projection.rendered_history import Past
from ctxkernel.projection.secrets import mask
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.projection.toolset import CONDENSE, EXPAND


@dataclass(frozen=True, slots=True)
class ModelTools:
    """The tools that a model can call besides cells, and the objects that they use."""

    loop: Loop
    past: Past
    namespace: Mapping[str, Any]
    statement_tokens: int

    def answer(self, action: Action, made: Sequence[HistoryEvent], number: int) -> Sequence[HistoryEvent]:
        """Return the events of a call, its result last; `made` are the events of its response before it.

        The first event gets `number` among the events of the execution.
        """
        execution_id = action.event_id.rpartition(":")[0]

        def result(text: str, status: OutputStatus = "success", *, at: int = number, wide: bool = False) -> Observation:
            return Observation(nth(execution_id, at), action.tool_call_id, text, status, wide=wide)

        if action.tool_name == CONDENSE:
            reason = mask(one_line(str(action.input.get("reason") or "asked for by the model"), 200))
            text = "old parts of the history will be summed up before the next request"
            return [CondensationRequest(nth(execution_id, number), reason), result(text, at=number + 1)]
        if action.tool_name == EXPAND:
            try:
                return [result(self._expanded(str(action.input.get("id", "")).strip()), wide=True)]
            except BadCommand as refused:
                return [result(str(refused), "failed")]
        past, most = self.past, self.statement_tokens
        redactions = Redactions(past.events)
        for event in made:
            redactions.append(event)
        found = answer_redact(
            action,
            shown=past.shown,
            redactions=redactions,
            count=lambda text: min(count_tokens(clean(text).text), most),
            pinned=past.pins,
        )
        return [*found.directives, result(found.content, found.status)]

    def _expanded(self, name: str) -> str:
        """Return the text of an event, a statement or a handle, up to a bound. Raises BadCommand."""
        events, most = self.past.events, EXPANSION * self.statement_tokens
        node = named_handle(self.loop, self.namespace, name)
        if node is not None:
            return node.render(lod=0, tokens=most).text
        found = [one for one in events if one.event_id == name]
        found = found or [one for one in events if one.event_id.startswith(f"{name}.")]
        text = "\n".join(content_of(one) for one in found if one.place != "meta")
        if not text.strip():
            known = [*(one.event_id for one in events), *(state.name for state in self.loop.state.handles)]
            raise BadCommand(
                f"there is no {name!r}{suggest(name, known)}: give the id of a statement, or a handle's name"
            )
        if count_tokens(text) <= most:
            return text
        kept = trim_to_tokens(text, most)
        return f"{kept}\n[… {len(text) - len(kept):,} characters left out: print the part that you need]"
