"""The answers to what a page asks the panel for: plans, rows, comparisons, cells, and what the sections show.

Rule: a request reads only what the last turn left, and may be answered on another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.masking import Mask
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.core.turn_values import TurnResult
from ctxkernel.kernel.display.cell_marks import CellMarks
from ctxkernel.kernel.display.cell_versions import cell_versions
from ctxkernel.kernel.display.history_rows import HistorySnapshot
from ctxkernel.kernel.display.panel_rows import StateNotes
from ctxkernel.kernel.display.section_answers import AnswerTable, SectionAnswers
from ctxkernel.kernel.display.sweep_tables import RunningSweep, stored_sweeps, sweep_answer
from ctxkernel.kernel.display.timeline_pages import TimelinePages
from ctxkernel.projection.value import Projection
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:
    from ctxkernel.agent.asks import Account
    from ctxkernel.kernel.messages import wire as messages
    from ctxkernel.kernel.messages.cells import CellTable, CellVersions
    from ctxkernel.kernel.messages.projection import Prices
    from ctxkernel.kernel.messages.sweeps import SweepTables

PageRequest = Mapping[str, Any]

CHANGES = 500
"""Most blocks of a comparison."""
ACTIONS = ("goto", "undo", "rerun")


@dataclass(frozen=True, slots=True)
class StateQueries:
    """Questions of the panel about the states of the session. None of them changes anything."""

    info: Callable[[str], CheckpointInfo | None]
    """Execution → the checkpoint after it."""
    storage: Callable[[], messages.Storage | None]
    notes: Callable[[], StateNotes]
    plan: Callable[..., messages.Plan]
    """(action, target, before, upto) → the plan. Raises CtxError."""
    resume_offer: Callable[[], messages.Resume | None]
    prices: Callable[[str], Prices]
    """Supposed changes, one a line → what each would cost. Runs the sources of handles, so only between cells."""
    page: Callable[[], messages.SavedPage]
    """The session as an HTML page. Raises CtxError if it is in memory only."""
    base_url: Callable[[], str | None]
    summaries: Callable[[], int]
    """The number of summaries that are being written."""
    comparing: Callable[[], list[str]]
    """Returns the variables that are compared in the background."""
    difference: Callable[[str, str | None, list[str]], messages.StateDifference]
    """(old, new, names) → the differences of two states. Raises CtxError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelAnswers:
    """Answers about the session as the last turn left it."""

    timeline: TimelinePages
    store: SessionStore
    states: StateQueries
    marks: CellMarks
    account: Account
    mask: Mask
    last: Callable[[], TurnResult | None]
    history: Callable[[], HistorySnapshot | None]
    """The model's history at the end of the last turn."""
    verdicts: Callable[[], dict[str, str]]
    """The results of the comparisons of re-runs, by execution."""
    sweep: Callable[[], RunningSweep | None]

    def answers(self) -> AnswerTable:
        """Return what answers each kind of request."""
        sections = SectionAnswers(
            projection=lambda: self._projection_after(None),
            handles=lambda: last.handles if (last := self.last()) is not None else (),
            base_url=self.states.base_url,
            prices=self.states.prices,
            page=self.states.page,
            log=self.store.path,
            account=self.account,
            mask=self.mask,
        )
        return {
            "plan": self._plan,
            "events": self._events,
            "compare": self._compare,
            "cells": self._cells,
            "marks": self._marks,
            "difference": self._difference,
            "rows": lambda asked: self.timeline.rows(asked, self.states.notes()),
            "details": self.timeline.details,
            "search": lambda asked: self.timeline.search(asked, self.verdicts(), self.states.notes()),
            "sweep": self._sweep,
            **sections.answers(),
        }

    def _plan(self, asked: PageRequest) -> messages.Plan:
        action, target, upto = asked.get("action"), asked.get("target"), asked.get("upto")
        if action not in ACTIONS or not isinstance(target, str):
            raise BadCommand(f"there is no plan for {action!r} of {target!r}")
        before, upto = asked.get("before") is True, upto if isinstance(upto, str) else None
        return self.states.plan(action, target, before=before, upto=upto)

    def _sweep(self, asked: PageRequest) -> SweepTables:
        return sweep_answer(stored_sweeps(self.store.path), self.sweep(), asked.get("of"))

    def _events(self, asked: PageRequest) -> messages.CondensedEvents:
        """Return the events behind a condensation, as of the last turn."""
        history = self.history()
        if history is None:
            raise BadCommand("nothing is condensed here")
        return history.condensed(str(asked.get("of")))

    def _compare(self, asked: PageRequest) -> messages.Compared:
        """Compare the projections after two statements; a `new` of None is that of the last turn."""
        from ctxkernel.projection.compare import compare_projections

        old, new = self._projection_after(asked.get("old")), self._projection_after(asked.get("new"))
        found = cast("messages.Compared", compare_projections(old, new).to_json())
        more = max(0, len(found["changes"]) - CHANGES)
        return {**found, "changes": found["changes"][:CHANGES], "more": more, "sizes": [old.tokens, new.tokens]}

    def _cells(self, asked: PageRequest) -> CellVersions:
        """Return the cells as they were at an execution."""
        at, cell = asked.get("at"), asked.get("cell")
        if not isinstance(at, str | None) or not isinstance(cell, str | None):
            raise BadCommand(f"there are no cells at {at!r}: expected the id of an execution, or null for HEAD")
        return cell_versions(self.timeline.log, self.marks.counts, self.mask, at=at, cell_id=cell)

    def _marks(self, asked: PageRequest) -> CellTable:
        """Return the marks of some cells, or of all; of those that change where it is told how two cells stand."""
        names, cell, before = asked.get("names"), asked.get("cell"), asked.get("before")
        if isinstance(cell, str) and isinstance(before, str):
            return self.marks.place(cell, before)
        return self.marks.all() if names is None else self.marks.of(names)

    def _difference(self, asked: PageRequest) -> messages.StateDifference:
        """Compare two states by the values in their checkpoints; the variables are not read."""
        old, new = asked.get("old"), asked.get("new")
        if not isinstance(old, str) or not (new is None or isinstance(new, str)):
            raise BadCommand("the difference request needs an old place, and a new one or null")
        return self.states.difference(old, new, asked.get("names", []))

    def _projection_after(self, place: Any) -> Projection:
        from ctxkernel.store.log.reader import stored_projection

        if isinstance(place, str):
            return stored_projection(self.store.path, place)
        last = self.last()
        if last is None or last.projection is None:
            raise BadCommand("there is no projection yet: run a cell first")
        return last.projection
