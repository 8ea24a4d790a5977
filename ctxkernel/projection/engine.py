"""The projection engine: what goes into a projection, in which order, and why.

    system text → history, oldest first → tail (handles, variables, groups, pinned, deltas, shown)

Rule 1: a projection is a function of the turn and of the settings; the engine's memory only saves time (law 3). The
        one exception is `cached`, which compares with the projection before.
Rule 2: an idle turn gives the same bytes and the same receipt (law 6): nothing here reads a clock or counts calls.
Rule 3: the budget is a hard cap on the tokens of the system text and of all blocks.
Rule 4: every projection is checked (law 5). A rule that looks beyond one block looks at neighbouring messages, at ids,
        or at totals; so what is checked is what is new, with the messages that it stands beside, and of what was
        checked before the ids and the bytes. The outcome is that of the whole check, which a test holds us to.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Sequence

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.events import NONE
from ctxkernel.core.ports import CountTokens
from ctxkernel.core.settings import Settings
from ctxkernel.core.turn import HandleState, Turn
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.events import HistoryEvent
from ctxkernel.history.invariants import PROPERTIES, Property, with_extensions
from ctxkernel.history.redact import Prices
from ctxkernel.history.rules import Report
from ctxkernel.projection import receipt as receipts
from ctxkernel.projection.budget import HISTORY_SHARES, history_cap
from ctxkernel.projection.check import Checking
from ctxkernel.projection.dialect import Dialect, DialectName
from ctxkernel.projection.event_blocks import EventBlocks
from ctxkernel.projection.history import Past
from ctxkernel.projection.in_place import placed
from ctxkernel.projection.layout import BRIEF_SYSTEM_TEXT, DIALECT_TEXTS, SYSTEM_TEXT, StatementLayout, status_text
from ctxkernel.projection.prices import WRITE_5M, price_of
from ctxkernel.projection.privacy import Hiding, withheld
from ctxkernel.projection.tail import Tail
from ctxkernel.projection.toolset import tools_json
from ctxkernel.projection.upkeep import upkeep
from ctxkernel.projection.value import Block, LeftOut, Piece, Projection, Run, from_record, same_until

__all__ = ["Block", "LeftOut", "Projection", "ProjectionEngine", "from_record"]

SYSTEM_SHARE = 0.2
"""The whole system text, and the tools, are used where they take at most this part of the budget; else a brief one."""
STATUS_SHARE = 0.02
"""Most of the budget that the system message for the turn takes; else there is none."""
EXPANSION = 4
"""What is asked for in full may take so many times what a statement's outputs may."""
LOOP_SHARE = 0.25
"""Part of the budget's rest that the thinking of an open loop, and the state that was sent with it, may take."""


class ProjectionEngine:
    """Builds the projection after every turn. One engine serves one timeline."""

    def __init__(
        self,
        settings: Settings,
        count_tokens: CountTokens,
        *,
        properties: Sequence[Property] = PROPERTIES,
        private: Collection[str] = (),
    ) -> None:
        self._hiding = Hiding(private) if private else None
        self.settings = settings
        row = capabilities_for(settings.model)
        self.capabilities = capabilities_for(settings.model, betas=[row.turn_notes] if row.turn_notes else ())
        self._count = count_tokens
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
        # The bounds rest on the settings alone, so that a block's text never depends on what else there is. A whole
        # statement is at most two thirds of the largest cap.
        share = int(self._room * HISTORY_SHARES[0]) // 3
        source, outputs = min(2 * settings.statement_tokens, share), min(settings.statement_tokens, share)
        script = self.dialect == "script"
        layout = StatementLayout(count_tokens, source_tokens=source, output_tokens=outputs, script=script)
        wide = min(EXPANSION * settings.statement_tokens, share)
        dialect = Dialect(self.dialect, count_tokens, text_tokens=source, output_tokens=outputs, wide_tokens=wide)
        blocks = EventBlocks(layout, dialect, self._hiding)
        opening = receipts.head(settings.model, settings.max_tokens, text, self._tools)
        listed = with_extensions(
            properties,
            depth=settings.call_depth or None,
            message_pairing=settings.message_pairing,
            tokens=settings.token_limit or None,
            count=lambda event: blocks.render(event, whole=True).tokens,
        )
        self.basis = _basis(opening, settings, listed, private)
        """Names all but the history that a request rests on. Thinking is bound to it: where it is another, it goes."""
        self.past = Past(blocks, opening, self.capabilities, listed, self.basis)
        self._tail = Tail(count_tokens, settings.variable_rows, script=script)
        self._checking = Checking(opening, self.capabilities)
        self._prices = Prices(WRITE_5M, price_of(settings.model).read)
        self._before: Projection | None = None
        self._shown: tuple[Turn, Turn] | None = None
        """A turn that the past is up to date with, nothing recorded since, and the state that may be shown of it."""

    def take_over(self, other: ProjectionEngine, turn: Turn) -> None:
        """Go on in the place of another engine, whose last projection was that of `turn`."""
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
        if count(text) + (count(tools) if tools else 0) <= settings.projection_tokens * SYSTEM_SHARE:
            return name, text, tools
        # Too small a budget for tools: scripts need none.
        return "script", BRIEF_SYSTEM_TEXT, ""

    def tend(self, turn: Turn, moment: str = "request") -> list[HistoryEvent | str]:
        """Return what is to be recorded before `turn` is projected, and what the user is to be told.

        `moment` is `load`, `rewind` or `request`.
        """
        shown, past = self._catch_up(turn), self.past
        made = [] if past.is_untouched else list(upkeep(past, turn, moment, self.settings, self._prices))
        self._shown = None if made else (turn, shown)
        return made

    def _catch_up(self, turn: Turn) -> Turn:
        """Bring the past up to date. Returns the state without what the model may not see."""
        if self._hiding is not None:
            turn = self._hiding.turn(turn)
        self._follow(turn)
        shown = withheld(turn, lambda: self.past.redacted) if turn.handles else turn
        if shown is not turn and self.dialect == "script":  # views stand in the past, too
            self._follow(shown)
        return shown

    def _follow(self, turn: Turn) -> None:
        cap, views = self._cap, NONE
        if turn.handles:
            pinned = sum([handle.rendered_tokens for handle in turn.handles if handle.pinned])
            cap = history_cap(self._room, pinned)
            views = placed(turn.handles) if self.dialect == "script" else NONE
        self.past.catch_up(turn.history, turn.records, cap, int((self._room - cap) * LOOP_SHARE), views)

    def project(self, turn: Turn) -> Projection:
        """Return the frozen projection after `turn`."""
        past, tended, self._shown = self.past, self._shown, None
        turn = tended[1] if tended is not None and tended[0] is turn else self._catch_up(turn)
        run, count = past.run, len(past.run.pieces)
        status = self._status(turn)
        room = self._room - past.tokens - (status.tokens if status else 0)
        # What was sent with the open loop stands in the history; beside it only what changed since is told.
        shown = dataclasses.replace(turn, handles=(), variables=(), variables_total=0) if past.context_sent else turn
        there = past.blocks_in_place()
        if there:
            shown = dataclasses.replace(shown, handles=self._elsewhere(shown.handles, past.in_place(there)))
        tail, left = self._tail.build(shown, room, past.newest or "session", there)
        if not tail and (not count or run.pieces[count - 1].role != "user"):
            tail = (self._nothing["left" if past.newest else "new"] if not count else self._nothing["same"],)
        tail = (*tail, status) if status else tail
        projection = Projection(
            model=self.settings.model,
            max_tokens=self.settings.max_tokens,
            tools=self._tools,
            # Also where the tail has no note for the turn: earlier ones may stand in the history.
            betas=tuple(sorted(self.capabilities.betas)),
            system=self._system,
            tail=tail,
            report=_FINE,
            tokens=self._system.tokens + past.tokens + sum([piece.tokens for piece in tail]),
            budget=self.settings.projection_tokens,
            receipt=past.receipts.receipt(run.pieces, tail, past.edge),
            run=run,
            count=count,
            cached=self._cached(run),
            tail_left_out=(*past.left_out(), *left),
            edge=past.edge,
            basis=self.basis,
        )
        report = self._checking.report(projection, past.receipts)
        self._before = projection if report.ok else dataclasses.replace(projection, report=report)
        return self._before

    def _elsewhere(self, handles: tuple[HandleState, ...], there: Collection[str]) -> tuple[HandleState, ...]:
        """Return the handles with nothing asked of those that stand where they were made."""
        return tuple(
            dataclasses.replace(one, pinned=False, requested=False) if one.obj_id in there else one for one in handles
        )

    def _status(self, turn: Turn) -> Piece | None:
        """Return the system message for the turn: our own words, ids and numbers only, since it has authority."""
        if not self.capabilities.turn_notes:
            return None
        running = [handle for handle in turn.handles if handle.digest.get("mode") == "running"] if turn.handles else ()
        text = status_text(
            self.past.newest,
            handles=len(turn.handles),
            running=len(running),
            variables=turn.variables_total,
            changes=len(turn.deltas),
        )
        why = "the state in our own words, for this turn only; the API forgets it afterwards"
        piece = Piece("status", "status", "ctxkernel", self._count(text), why, text, "system")
        return piece if piece.tokens <= self._room * STATUS_SHARE else None

    def _cached(self, run: Run) -> int:
        """Return how many pieces of the history begin it as they began the one before."""
        before = self._before
        if before is None:
            return -1
        if before.run is run:
            return before.count
        most = min(before.count, len(run.pieces))
        for index in range(same_until(before.run.pieces, run.pieces, most), most):
            old, new = before.run.pieces[index], run.pieces[index]
            if (old.text, old.role) != (new.text, new.role):
                return index
        return most


def _basis(opening: str, settings: Settings, properties: Sequence[Property], private: Collection[str]) -> str:
    listed = [getattr(one, "name", "") or type(one).__name__ for one in properties]
    shaping = [settings.projection_tokens, settings.statement_tokens, settings.token_limit, settings.call_depth]
    text = "\0".join([opening, settings.dialect, *map(str, shaping), *listed, "\1", *sorted(private)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


_FINE = Report(ok=True)


def _nothing(count: CountTokens) -> dict[str, Piece]:
    """Return what stands where there is nothing else: a message may not be empty, and the last one is the user's."""
    texts = {"new": "Nothing has run yet.", "left": "What has run is left out.", "same": "Nothing has changed since."}
    why = "there is nothing else, and a request ends with a message of the user's that is not empty"
    return {key: Piece("empty", "empty", "ctxkernel", count(text), why, text) for key, text in texts.items()}
