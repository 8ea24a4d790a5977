"""What a model's calls do that run no cell: redact, expand, condense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import NodeBase
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
from ctxkernel.projection.engine import EXPANSION
from ctxkernel.projection.history import Past
from ctxkernel.projection.layout import clean
from ctxkernel.projection.secrets import mask
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.projection.toolset import CONDENSE, EXPAND


@dataclass(frozen=True, slots=True)
class Tools:
    """What the calls work on."""

    loop: Loop
    past: Past
    namespace: Mapping[str, Any]
    statement_tokens: int


def answer(tools: Tools, action: Action, made: Sequence[HistoryEvent], number: int) -> Sequence[HistoryEvent]:
    """Return the events that a call leads to, its result last; `made` are those of its response before it.

    The first has the `number` among the events of the execution that the call is of.
    """
    execution_id = action.event_id.rpartition(":")[0]

    def result(text: str, status: OutputStatus = "success", *, at: int = number, wide: bool = False) -> Observation:
        return Observation(nth(execution_id, at), action.tool_call_id, text, status, wide=wide)

    if action.tool_name == CONDENSE:
        reason = mask(one_line(str(action.input.get("reason") or "asked for by the model"), 200))
        told = "old parts of the history will be summed up before the next request"
        return [CondensationRequest(nth(execution_id, number), reason), result(told, at=number + 1)]
    if action.tool_name == EXPAND:
        try:
            return [result(_expanded(tools, str(action.input.get("id", "")).strip()), wide=True)]
        except BadCommand as refused:
            return [result(str(refused), "failed")]
    past, most = tools.past, tools.statement_tokens
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


def _expanded(tools: Tools, name: str) -> str:
    """Return the whole text of an event, a statement or a handle, up to a bound. Raises BadCommand."""
    past, most = tools.past, EXPANSION * tools.statement_tokens
    value = tools.namespace.get(name)
    node = value if isinstance(value, NodeBase) else tools.loop.graph.node(name)
    if node is not None:
        shown = node.render(lod=0, tokens=most)
        return shown.text
    found = [one for one in past.events if one.event_id == name]
    found = found or [one for one in past.events if one.event_id.startswith(f"{name}.")]
    texts = [content_of(one) for one in found if one.place != "meta"]
    if not any(text.strip() for text in texts):
        known = [*(one.event_id for one in past.events), *(state.name for state in tools.loop.state.handles)]
        raise BadCommand(f"there is no {name!r}{suggest(name, known)}: give the id of a statement, or a handle's name")
    whole = "\n".join(texts)
    if count_tokens(whole) <= most:
        return whole
    kept = trim_to_tokens(whole, most)
    return f"{kept}\n[… {len(whole) - len(kept):,} characters left out: print the part that you need]"
