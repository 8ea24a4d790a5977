"""The projection engine: what goes into a projection, in which order, and why.

    system text → history, oldest first → tail (handles, variables, groups, pinned, deltas, shown)

Rule 1: a projection is a function of the turn and of the settings; the engine's memory only saves time (law 3). The
        one exception is `cached`, which compares with the projection before.
Rule 2: an idle turn gives the same bytes and the same receipt (law 6): nothing here reads a clock or counts calls.
Rule 3: the budget is a hard cap on the tokens of the system text and of all blocks.
Rule 4: every projection is checked (law 5). The body has the same few shapes at every turn, and the rules see no more
        of a text block than whether its text may stand alone, so shapes and new texts are what is looked at; the
        outcome is that of the whole check, which a test holds us to.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import CountTokens
from ctxkernel.core.settings import Settings
from ctxkernel.core.turn import Turn
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.clauses import text_fault
from ctxkernel.history.rules import Report, check
from ctxkernel.projection import receipt as receipts
from ctxkernel.projection.budget import HISTORY_SHARES, history_cap
from ctxkernel.projection.layout import BRIEF_SYSTEM_TEXT, SYSTEM_TEXT, StatementLayout
from ctxkernel.projection.past import Past
from ctxkernel.projection.tail import Tail
from ctxkernel.projection.value import Block, LeftOut, Piece, Projection, Run, from_record

__all__ = ["Block", "LeftOut", "Projection", "ProjectionEngine", "from_record"]

SYSTEM_SHARE = 0.2
"""The whole system text is used where it takes at most this part of the budget; else the brief one."""
_FAR_FROM_LIMITS = 8_000_000
"""Bytes of the history below which no rule on sizes can be near."""


class ProjectionEngine:
    """Builds the projection after every turn. One engine serves one timeline."""

    def __init__(self, settings: Settings, count_tokens: CountTokens) -> None:
        self.settings = settings
        self.capabilities = capabilities_for(settings.model)
        self._count = count_tokens
        budget = settings.projection_tokens
        whole = count_tokens(SYSTEM_TEXT)
        text = SYSTEM_TEXT if whole <= budget * SYSTEM_SHARE else BRIEF_SYSTEM_TEXT
        tokens = count_tokens(text)
        why = "says how to read the rest; static, so that it is cached for an hour"
        self._system = Piece("system", "system", "ctxkernel", tokens, why, text)
        self._empty = _empty(count_tokens)
        self._room = budget - tokens
        if self._room < self._empty.tokens:
            least = tokens + self._empty.tokens
            raise BadPolicy(f"projection_tokens is {budget}; an empty projection takes {least}: give more")
        # The bounds rest on the settings alone, so that a block's text never depends on what else there is. A whole
        # statement is at most two thirds of the largest cap.
        most = int(self._room * HISTORY_SHARES[0]) // 3
        self._layout = StatementLayout(
            count_tokens,
            source_tokens=min(2 * settings.statement_tokens, most),
            output_tokens=min(settings.statement_tokens, most),
        )
        self._opening = receipts.head(settings.model, settings.max_tokens, text)
        self._past = Past(self._layout, self._opening)
        self._tail = Tail(count_tokens, settings.variable_rows)
        self._shapes: dict[tuple[int, int], bool] = {}
        self._checked: tuple[Run | None, int] = (None, 0)
        self._before: Projection | None = None

    def project(self, turn: Turn) -> Projection:
        """Return the frozen projection after `turn`."""
        past = self._past
        pinned = sum([handle.rendered_tokens for handle in turn.handles if handle.pinned])
        past.catch_up(turn.history, history_cap(self._room, pinned))
        run, count = past.run, len(past.run.pieces)
        tail, left = self._tail.build(turn, self._room - past.tokens, past.newest or "session")
        if not tail and not count:
            tail = (self._empty,)
        texts = [piece.text for piece in tail]
        receipt = past.receipts.receipt(run.texts, texts)
        projection = Projection(
            model=self.settings.model,
            max_tokens=self.settings.max_tokens,
            system=self._system,
            tail=tail,
            report=_FINE,
            tokens=self._system.tokens + past.tokens + sum([piece.tokens for piece in tail]),
            budget=self.settings.projection_tokens,
            receipt=receipt,
            run=run,
            count=count,
            cached=self._cached(run),
            tail_left_out=(*past.running(turn.history), *left),
        )
        if not self._fine(run, count, texts):
            projection = _with_report(projection, check(projection.request, self.capabilities))
        self._before = projection
        return projection

    def _cached(self, run: Run) -> int:
        """Return how many pieces of the history begin it as they began the one before."""
        before = self._before
        if before is None:
            return -1
        if before.run is run:
            return before.count
        for index, (old, new) in enumerate(zip(before.run.texts[: before.count], run.texts, strict=False)):
            if old != new:
                return index
        return min(before.count, len(run.texts))

    def _fine(self, run: Run, count: int, tail: list[str]) -> bool:
        """Whether the rules find nothing: by the body's shape, and by each text that was not looked at before."""
        shape = len(receipts.marks(count)), min(len(tail), 1)
        fine = self._shapes.get(shape)
        if fine is None:
            fine = self._shapes[shape] = check(self._shaped(count, len(tail)), self.capabilities).ok
        of, done = self._checked
        start = done if of is run else 0
        if not fine or _near_limits(self._past.receipts.bytes, tail):
            return False
        if any(map(text_fault, run.texts[start:count])) or any(map(text_fault, tail)):
            return False
        self._checked = (run, count)
        return True

    def _shaped(self, count: int, tail: int) -> dict[str, Any]:
        """Return a body with as many breakpoints as the real one, each text of which is a dot."""
        marked = {"type": "text", "text": ".", "cache_control": {"type": "ephemeral"}}
        content = [dict(marked) for _ in receipts.marks(count)] + [{"type": "text", "text": "."} for _ in range(tail)]
        control = {"type": "ephemeral", "ttl": "1h"}
        return {
            "model": self.settings.model,
            "max_tokens": self.settings.max_tokens,
            "system": [{"type": "text", "text": ".", "cache_control": control}],
            "messages": [{"role": "user", "content": content}],
        }


_FINE = Report(ok=True)


def _empty(count: CountTokens) -> Piece:
    text, why = "Nothing has run yet.", "there is nothing else, and a message may not be empty"
    return Piece("empty", "empty", "ctxkernel", count(text), why, text)


def _near_limits(history_bytes: int, tail: list[str]) -> bool:
    """Whether a body is so large that only the whole check can tell what the rules say of its size."""
    return history_bytes + 6 * sum(map(len, tail)) > _FAR_FROM_LIMITS


def _with_report(projection: Projection, report: Report) -> Projection:
    return dataclasses.replace(projection, report=report)
