"""The projection engine: the blocks of a projection, their order, and the reason for each.

    system text → history, oldest first → tail (handles, variables, groups, pinned, deltas, shown)

Rule 1: a projection is a function of the turn and of the settings; the engine's caches only save time (law 3). The
        one exception is `cached`, which compares with the projection before.
Rule 2: an idle turn gives the same bytes and the same receipt (law 6): nothing here reads a clock or counts calls.
Rule 3: the budget limits the tokens of the system text and of all blocks.
Rule 4: every projection is checked (law 5), see `projection_check.py`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.masking import Mask
from ctxkernel.core.ports import CountTokens
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline_events import NONE
from ctxkernel.core.turn_values import HandleState, Turn
from ctxkernel.history.capabilities import budget_of, capabilities_for
from ctxkernel.history.events import HistoryEvent
from ctxkernel.history.invariants import PROPERTIES, Property, with_extensions
from ctxkernel.history.redact import CachePrices
from ctxkernel.history.rules import RuleReport
from ctxkernel.projection import receipt as receipts
from ctxkernel.projection.budget import HISTORY_SHARES, history_cap
from ctxkernel.projection.dialect import Dialect, DialectName
from ctxkernel.projection.displayed_images import image_limits
from ctxkernel.projection.event_blocks import EventBlocks
from ctxkernel.projection.layout import BRIEF_SYSTEM_TEXT, DIALECT_TEXTS, SYSTEM_TEXT, StatementLayout, status_text
from ctxkernel.projection.placed_views import placed
from ctxkernel.projection.prefix import common, prefix_break
from ctxkernel.projection.prices import WRITE_5M, price_of
from ctxkernel.projection.privacy import Hiding, withheld
from ctxkernel.projection.projection_check import ProjectionCheck
from ctxkernel.projection.rendered_history import Past
from ctxkernel.projection.secrets import mask as mask_credentials
from ctxkernel.projection.tail import ShownHistory, Tail
from ctxkernel.projection.toolset import tools_json
from ctxkernel.projection.upkeep import upkeep
from ctxkernel.projection.value import Block, LeftOut, Piece, Projection, from_record

__all__ = ["Block", "LeftOut", "Projection", "ProjectionEngine", "from_record"]

SYSTEM_SHARE = 0.2
"""Largest part of the budget for the whole system text with the tools; else the brief text is used."""
STATUS_SHARE = 0.02
"""Largest part of the budget for the system message of the turn; else there is none."""
EXPANSION = 4
"""A result that was requested in full may take so many times the limit of a statement's outputs."""
LOOP_SHARE = 0.4
"""Part of the rest of the budget for the thinking of an open loop and the state that was sent with it."""


class ProjectionEngine:
    """Builds the projection after every turn. One engine serves one timeline.

    `mask` hides secrets.
    """

    def __init__(
        self,
        settings: Settings,
        count_tokens: CountTokens,
        *,
        properties: Sequence[Property] = PROPERTIES,
        private: Collection[str] = (),
        mask: Mask = mask_credentials,
    ) -> None:
        self._hiding = Hiding(private) if private else None
        settings = dataclasses.replace(settings, projection_tokens=budget_of(settings))
        self.settings = settings
        """The settings; a budget that depends on the model is that of the model."""
        row = capabilities_for(settings.model)
        self.capabilities = capabilities_for(settings.model, betas=[row.turn_notes] if row.turn_notes else ())
        self._count = count_tokens
        self.dialect: DialectName
        self.dialect, text, self._tools = self._opening_texts()
        given = count_tokens(self._tools) if self._tools else 0
        tokens = count_tokens(text) + given
        why = "says how to read the rest; static, so that it is cached for an hour"
        self._system = Piece("system", "system", "ctxkernel", tokens, why, text, "system")
        if given:
            self._system = self._system._replace(why=f"{why}; with the tools, which take {given:,} of its tokens")
        self._nothing = _nothing(count_tokens)
        most = max(piece.tokens for piece in self._nothing.values())
        budget = settings.projection_tokens
        self._room = budget - tokens
        if self._room < most:
            least = tokens + most
            raise BadPolicy(f"projection_tokens is {budget}; an empty projection takes {least}: give more")
        self._cap = history_cap(self._room, 0)
        """Tokens that the history may take where nothing is pinned."""
        self.images = image_limits(settings, self.capabilities)
        """The budget of images."""
        blocks = self._event_blocks(mask)
        opening = receipts.head(settings.model, settings.max_tokens, text, self._tools)
        listed = with_extensions(
            properties,
            depth=settings.call_depth or None,
            message_pairing=settings.message_pairing,
            tokens=settings.token_limit or None,
            count=lambda event: blocks.render(event, whole=True).tokens,
        )
        bound = self.capabilities.bound_thinking and self.dialect == "tools"
        bound_to = (settings.model, self._tools, text) if bound else None
        self.past = Past(blocks, opening, self.capabilities, listed, bound_to, settings.recent_tokens)
        script = self.dialect == "script"
        self._tail = Tail(count_tokens, settings.variable_rows, self.images, script=script, mask=mask)
        self._checking = ProjectionCheck(opening, self.capabilities, bound_to)
        self._prices = CachePrices(WRITE_5M, price_of(settings.model).read)
        self._before: Projection | None = None
        self._shown: tuple[Turn, Turn] | None = None
        """The turn that the past is up to date with, if nothing was recorded since, and its state for the model."""

    def _event_blocks(self, mask: Mask) -> EventBlocks:
        """Return the blocks of events, with the limits of their texts."""
        settings = self.settings
        # The limits depend on the settings alone, so that a block's text does not depend on other blocks. A whole
        # statement is at most two thirds of the largest cap.
        share = int(self._room * HISTORY_SHARES[0]) // 3
        source, outputs = min(2 * settings.statement_tokens, share), min(settings.statement_tokens, share)
        layout = StatementLayout(
            self._count, source_tokens=source, output_tokens=outputs, script=self.dialect == "script", mask=mask
        )
        wide = min(EXPANSION * settings.statement_tokens, share)
        limits = {"text_tokens": source, "output_tokens": outputs, "wide_tokens": wide, "response_tokens": share}
        dialect = Dialect(self.dialect, self._count, **limits, mask=mask)
        return EventBlocks(layout, dialect, self.images, self._hiding)

    def forget_masked(self, reveals: Callable[[str], bool]) -> bool:
        """Forget the texts of the tail. Return whether a block of the history shows what is masked now."""
        self._tail.forget()
        return self.past.blocks.any_text(reveals)

    def take_over(self, other: ProjectionEngine, turn: Turn) -> None:
        """Replace another engine, whose last projection was that of `turn`."""
        before = other._before
        if before is not None and (before.model, before.tools, before.system) == (
            self.settings.model,
            self._tools,
            self._system,
        ):
            self._before = before
        self._catch_up(turn)

    def _opening_texts(self) -> tuple[DialectName, str, str]:
        """Return the dialect, the system text, and the tools as JSON."""
        settings, count = self.settings, self._count
        if settings.dialect not in ("", "tools", "script"):
            raise BadPolicy(f"dialect is {settings.dialect!r}; say tools or script, or leave it empty")
        name: DialectName = "tools" if (settings.dialect or "tools") == "tools" else "script"
        if not settings.dialect and not self.capabilities.tools:
            name = "script"
        tools = tools_json() if name == "tools" else ""
        text = SYSTEM_TEXT + DIALECT_TEXTS[name]
        self.least_budget = math.ceil((count(text) + (count(tools) if tools else 0)) / SYSTEM_SHARE)
        """The least budget with which a model is asked: below it there are no instructions and no tools."""
        if settings.projection_tokens >= self.least_budget:
            return name, text, tools
        return "script", BRIEF_SYSTEM_TEXT, ""

    def tend(self, turn: Turn, moment: str = "request") -> list[HistoryEvent | str]:
        """Return the events to record before `turn` is projected, and texts for the user.

        `moment` is `load`, `rewind` or `request`.
        """
        shown, past = self._catch_up(turn), self.past
        made = [] if past.is_untouched else list(upkeep(past, turn, moment, self.settings, self._prices))
        self._shown = None if made else (turn, shown)
        return made

    def _catch_up(self, turn: Turn) -> Turn:
        """Bring the past up to date; return the state without texts that the model may not see."""
        if self._hiding is not None:
            turn = self._hiding.turn(turn)
        self._follow(turn)
        shown = withheld(turn, lambda: self.past.redacted) if turn.handles else turn
        if shown is not turn and self.dialect == "script":  # its past has views, too
            self._follow(shown)
        return shown

    def _follow(self, turn: Turn) -> None:
        cap, views, pictures = self._cap, NONE, 0
        if turn.handles:
            pinned = sum([handle.rendered_tokens for handle in turn.handles if handle.pinned])
            cap = history_cap(self._room, pinned)
            shown = [handle.picture for handle in turn.handles if handle.pinned and handle.picture is not None]
            pictures = sum([self.images.weight(one.tokens, len(one.data)) for one in shown])
            views = placed(turn.handles) if self.dialect == "script" else NONE
        images = min(self.images.history(pictures), cap // 3)
        self.past.catch_up(turn.history, turn.records, cap, int((self._room - cap) * LOOP_SHARE), views, images)

    def project(self, turn: Turn) -> Projection:
        """Return the frozen projection after `turn`."""
        past, tended, self._shown = self.past, self._shown, None
        turn = tended[1] if tended is not None and tended[0] is turn else self._catch_up(turn)
        run, count = past.run, len(past.run.pieces)
        status = self._status()
        room = self._room - past.tokens - (status.tokens if status else 0)
        # The history has the state that was sent with the open loop: add only what changed since.
        shown = dataclasses.replace(turn, handles=(), variables=(), variables_total=0) if past.context_sent else turn
        there, objects = past.in_place()
        if there:  # nothing is asked of those that the history shows where they were made
            asked = {"pinned": False, "requested": False}
            # A picture is only in the tail.
            objects = {one.obj_id for one in shown.handles if one.obj_id in objects and not self._sends_picture(one)}
            handles = [dataclasses.replace(one, **asked) if one.obj_id in objects else one for one in shown.handles]
            shown = dataclasses.replace(shown, handles=tuple(handles))
        changed = past.blocks.displays.changed
        if objects:
            changed = {obj_id: since for obj_id, since in changed.items() if obj_id not in objects}
        seen = past.image_blocks() if any(one.picture is not None for one in shown.handles) else NONE
        shows = ShownHistory(past.stands, past.shows, changed, self.images.total - past.image_weight, seen)
        tail, left = self._tail.build(shown, room, past.newest or "session", there, shows)
        if not tail and (not count or run.pieces[count - 1].role != "user"):
            tail = (self._nothing["left" if past.newest else "new"] if not count else self._nothing["same"],)
        tail = (*tail, status) if status else tail
        projection = Projection(
            model=self.settings.model,
            max_tokens=self.settings.max_tokens,
            tools=self._tools,
            # Also where the tail has no system message: the history may have earlier ones.
            betas=tuple(sorted(self.capabilities.betas)),
            system=self._system,
            tail=tail,
            report=_FINE,
            tokens=self._system.tokens + past.tokens + sum([piece.tokens for piece in tail]),
            budget=self.settings.projection_tokens,
            receipt=past.receipts.receipt(run.pieces, tail, past.edge),
            run=run,
            count=count,
            cached=-1,
            tail_left_out=(*past.left_out(), *left),
            edge=past.edge,
        )
        before, more = self._before, dict[str, Any]()
        if before is not None:
            shared = common(before, projection)
            found = prefix_break(before, projection, shared)
            more = {"cached": shared, "broke": found.told() if found is not None else ""}
        report = self._checking.report(projection, past.receipts, past.responses)
        self._before = dataclasses.replace(projection, report=report, **more)
        return self._before

    def _sends_picture(self, handle: HandleState) -> bool:
        return handle.picture is not None and self.images.total > 0

    def _status(self) -> Piece | None:
        """Return the system message for the turn: only our own words, ids and numbers, since it has authority."""
        if not self.capabilities.turn_notes:
            return None
        text = status_text(self.past.newest)
        why = "the state in our own words, for this turn only; the API forgets it afterwards"
        piece = Piece("status", "status", "ctxkernel", self._count(text), why, text, "system")
        return piece if piece.tokens <= self._room * STATUS_SHARE else None


_FINE = RuleReport(ok=True)


def _nothing(count: CountTokens) -> dict[str, Piece]:
    """Return the block for a projection without others: the last message is the user's, and may not be empty."""
    texts = {"new": "Nothing has run yet.", "left": "What has run is left out.", "same": "Nothing has changed since."}
    why = "there is nothing else, and a request ends with a message of the user's that is not empty"
    return {key: Piece("empty", "empty", "ctxkernel", count(text), why, text) for key, text in texts.items()}
