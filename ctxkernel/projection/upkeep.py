"""What is recorded in the model's history before it is projected: repairs, redactions that take effect, a condensation.

    what is broken is mended → redactions that waited take effect, if that pays → what is too long is condensed

Rule 1: nothing is changed here: what is due is returned, and whoever keeps the log records it. So it is replayed.
Rule 2: each step looks at the history as it stands; what the steps before it yield counts from the next turn on.
Rule 3: no repair is made twice, and none that the switches do not want; what is sent is checked whatever they say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.errors import NothingToCondense
from ctxkernel.core.settings import Settings
from ctxkernel.core.turn import Turn
from ctxkernel.history.events import Action, Condensation, HistoryEvent, nth
from ctxkernel.history.redact import Outlook, Prices, apply, due, outlook
from ctxkernel.projection.history import Past

if TYPE_CHECKING:
    from ctxkernel.history.repair import Moment

EXPECTED_TURNS = 10
"""Turns that a session is expected to go on for, where the cost model asks."""
NEAR = 0.9
"""From this share of its cap on the history is near its limit."""
_KEEP_FIRST = 1
"""Events at the beginning that are not condensed: the first one is nearly always what the work is about."""


def upkeep(past: Past, turn: Turn, moment: str, settings: Settings, prices: Prices) -> Iterator[HistoryEvent | str]:
    """Yield what is to be recorded, in order, and texts that the user is to be told."""
    if not turn.history:
        return
    execution = turn.history[-1][1].execution_id
    # After a return the calls of the newest statement wait, and those that the user decides on; others never end.
    made = turn.records.get(execution, ())
    number = len(made)
    pending = {*turn.pending, *(one.tool_call_id for one in made if isinstance(one, Action))}
    for event in _mended(past, cast("Moment", moment), settings, pending):
        number += not isinstance(event, str)
        yield event
    redactions = past.redactions
    if redactions.waiting and redactions.at_boundary:
        near = past.fold_tokens > NEAR * past.cap
        ahead = _ahead(past, settings.statement_tokens, whole=turn.cache_cold or near)
        decision = due(ahead, cache_cold=turn.cache_cold, limit_near=near, prices=prices, expected_turns=EXPECTED_TURNS)
        if decision.pays:
            number += 1
            yield decision.batch(nth(execution, number))
    yield from _condensed(past, nth(execution, number + 1))


def _ahead(past: Past, output_tokens: int, *, whole: bool) -> Outlook:
    """Return what a batch would do to the request: by what is sent of each output, not by what was recorded."""
    redactions = past.redactions

    def count(text: str) -> int:
        return min(past.count(text), output_tokens)

    # To redact what is masked already would save nothing.
    shown = past.unmasked()
    if redactions.edits:
        shown = apply(shown, redactions, count=count).events
    ahead = outlook(shown, redactions, count=count, whole=whole)
    # What is bound to what stands before it goes with the batch, and what follows that is written again, too.
    return replace(ahead, tokens_after_first_edit=max(ahead.tokens_after_first_edit, past.tokens_after_bound()))


def _mended(past: Past, moment: Moment, settings: Settings, pending: Collection[str]) -> Sequence[HistoryEvent | str]:
    # Unless it is to be mended, nobody is told at every turn what is broken: the view leaves it out, and that shows.
    from ctxkernel.history.repair import Switches, maintain

    if not past.has_calls or (moment == "request" and not settings.enforce_history_invariants):
        return ()
    switches = Switches(
        settings.enforce_history_invariants, settings.auto_recover_from_crash, settings.warn_on_invariant_violations
    )
    if moment == "request":  # between two statements a call without a result is one that runs, or waits for approval
        pending = [action.tool_call_id for action in past.view.waiting]
    known = {event.event_id for event in past.events}
    done = maintain([one for one in past.events if one.place != "meta"], moment, switches=switches, pending=pending)
    repairs = [repair for repair in done.repairs if repair.event_id not in known]
    if done.repairs and not repairs:
        return ()
    told = [done.warning] if done.warning and (repairs or moment != "request") else []
    return [*done.added, *repairs, *told]


def _condensed(past: Past, event_id: str) -> Iterator[Any]:
    from ctxkernel.history.condense import Condensing, Limits, Record, condense

    asked = past.view.unhandled_request
    if not asked and (not past.drops or len(past.shown) < past.tried * 9 // 8):
        return
    past.tried = len(past.shown)
    sizes = past.sizes()
    limit = None if asked else min(sum(sizes.values()) - 1, int(past.cap * Condensing().target * 2))
    try:
        step = condense(
            past.view,
            event_id,
            lambda event: sizes[event.event_id] if event.event_id in sizes else past.size(event),
            Limits(tokens=limit),
            policy=Condensing(keep_first=_KEEP_FIRST),
            pinned=past.pins.keys(),
        )
    except NothingToCondense as fault:
        yield Condensation(event_id, reason=str(fault))
        yield str(fault)
        return
    if isinstance(step, Record):
        past.tried = 0
        yield step.condensation
