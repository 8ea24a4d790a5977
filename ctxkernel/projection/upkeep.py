"""The events to record in the model's history before it is projected.

    repairs → pending redactions take effect, if that pays → a condensation, if the history is too long

Rule 1: nothing is changed here: the caller records the events, so they are replayed with the log.
Rule 2: each step uses the present history; the events of the steps before it count from the next turn on.
Rule 3: no repair is made twice, and none that the switches forbid; every request is checked in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.errors import NothingToCondense
from ctxkernel.core.settings import Settings
from ctxkernel.core.turn_values import Turn
from ctxkernel.history.events import Action, Condensation, HistoryEvent, nth
from ctxkernel.history.redact import CachePrices, Outlook, apply, due, outlook
from ctxkernel.projection.rendered_history import Past

if TYPE_CHECKING:
    from ctxkernel.history.repair import RepairTrigger

EXPECTED_TURNS = 10
"""Expected number of further turns, for the cost model."""
NEAR = 0.9
"""From this share of its cap on the history is near its limit."""
_KEEP_FIRST = 1
"""Events at the beginning that are not condensed: the first one usually describes the task."""


def upkeep(
    past: Past, turn: Turn, moment: str, settings: Settings, prices: CachePrices
) -> Iterator[HistoryEvent | str]:
    """Yield the events to record, in order, and texts for the user."""
    if not turn.history:
        return
    execution = turn.history[-1][1].execution_id
    # After a return, only the calls of the newest statement and those before the user are pending.
    made = turn.records.get(execution, ())
    number = len(made)
    pending = {*turn.pending, *(one.tool_call_id for one in made if isinstance(one, Action))}
    for event in _mended(past, cast("RepairTrigger", moment), settings, pending):
        number += not isinstance(event, str)
        yield event
    redactions = past.redactions
    if redactions.waiting and redactions.at_boundary:
        near = past.fold.tokens > NEAR * past.fold.cap
        ahead = _ahead(past, settings.statement_tokens, whole=turn.cache_cold or near)
        decision = due(ahead, cache_cold=turn.cache_cold, limit_near=near, prices=prices, expected_turns=EXPECTED_TURNS)
        if decision.pays:
            number += 1
            yield decision.batch(nth(execution, number))
    yield from _condensed(past, nth(execution, number + 1))


def _ahead(past: Past, output_tokens: int, *, whole: bool) -> Outlook:
    """Return the effect of a batch on the request, by the sent part of each output."""
    redactions = past.redactions

    def count(text: str) -> int:
        return min(past.count(text), output_tokens)

    # Redacting masked outputs saves nothing.
    shown = past.unmasked()
    if redactions.edits:
        shown = apply(shown, redactions, count=count).events
    ahead = outlook(shown, redactions, count=count, whole=whole)
    # Bound thinking is removed with the batch, so the blocks after it are written to the cache again, too.
    return replace(ahead, tokens_after_first_edit=max(ahead.tokens_after_first_edit, past.tokens_after_bound()))


def _mended(
    past: Past, moment: RepairTrigger, settings: Settings, pending: Collection[str]
) -> Sequence[HistoryEvent | str]:
    from ctxkernel.history.repair import Switches, maintain

    # Without repairs there are no warnings at every turn: the view hides broken events.
    if not past.has_calls or (moment == "request" and not settings.enforce_history_invariants):
        return ()
    switches = Switches(
        settings.enforce_history_invariants, settings.auto_recover_from_crash, settings.warn_on_invariant_violations
    )
    if moment == "request":  # between two statements, a call without a result is running or waits for approval
        pending = [action.tool_call_id for action in past.view.waiting]
    known = {event.event_id for event in past.events}
    done = maintain([one for one in past.events if one.place != "meta"], moment, switches=switches, pending=pending)
    repairs = [repair for repair in done.repairs if repair.event_id not in known]
    if done.repairs and not repairs:
        return ()
    told = [done.warning] if done.warning and (repairs or moment != "request") else []
    return [*done.added, *repairs, *told]


def _condensed(past: Past, event_id: str) -> Iterator[Any]:
    from ctxkernel.history.condense import DEFAULT, Condensing, HistoryLimits, RecordCondensation, condense

    asked = past.view.unhandled_request
    if not asked and (not past.drops or len(past.shown) < past.tried * 9 // 8):
        return
    past.tried = len(past.shown)
    sizes = past.sizes()
    limit = None if asked else min(sum(sizes.values()) - 1, int(past.fold.cap * DEFAULT.target * 2))
    try:
        step = condense(
            past.view,
            event_id,
            lambda event: sizes[event.event_id] if event.event_id in sizes else past.blocks.tokens(event),
            HistoryLimits(tokens=limit),
            policy=Condensing(keep_first=_KEEP_FIRST),
            pinned=past.pins.keys(),
        )
    except NothingToCondense as fault:
        yield Condensation(event_id, reason=str(fault))
        yield str(fault)
        return
    if isinstance(step, RecordCondensation):
        past.tried = 0
        yield step.condensation
