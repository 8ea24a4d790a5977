"""The timeline in parts: the shape of the whole tree, rows on request, and a search over all executions.

Rule 1: everything here only reads, and may run on the control channel's thread while a cell runs.
Rule 2: an answer is bounded. Only the shape grows with the session, by a few bytes an execution, in a snapshot alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.timeline import Execution, Run, Statement, StatementLog
from ctxkernel.history.events import content_of
from ctxkernel.kernel.display import panel_rows as rows
from ctxkernel.kernel.display.history_rows import event_kind
from ctxkernel.kernel.display.panel_rows import StateNotes
from ctxkernel.kernel.execution.cell import moves_head
from ctxkernel.kernel.messages.page_input import Field
from ctxkernel.replay.notebook_outputs import notebook_outputs

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import timeline_messages as messages

PAGE = 200
"""Most rows of a snapshot and of one answer."""
FOUND = 5000
"""Most executions that a search names: the newest."""
AMENDED = 40
"""Most rows of a message whose names, marks or asks changed: the newest."""
EVENTS = 50
EVENT_CHARS = 2000
OUTPUT_BYTES = 4_000_000
"""Most output of one execution that its details contain."""


class RowMaker(Protocol):
    """Make the row of an execution."""

    def __call__(self, statement: Statement, execution: Execution, notes: StateNotes) -> messages.Row:
        """Return the row."""
        ...


@dataclass(frozen=True, slots=True)
class TimelinePages:
    """Answers questions of the panel about all executions of the log."""

    log: StatementLog
    row: RowMaker

    def shape(self, ended: list[Run], verdicts: Mapping[str, str]) -> messages.Shape:
        """Return the tree of executions without their content; `verdicts` are those of re-runs, by execution."""
        cells: dict[str, int] = {}
        spans: list[messages.Span] = []
        follows: tuple[str, str | None] | None = None
        moved: list[int] = []
        for at, (statement, run) in enumerate(ended):
            if follows != (run.execution_id, run.parent_execution_id):
                spans.append({"first": run.execution_id, "count": 0, "parent": run.parent_execution_id})
            spans[-1]["count"] += 1
            follows = (_next(run.execution_id), run.execution_id)
            if run.status == "ok" and moves_head(statement.source):
                moved.append(at)
        return {
            "spans": spans,
            "cells": cells,
            "cell": [-1 if s.cell_id is None else cells.setdefault(s.cell_id, len(cells)) for s, _ in ended],
            "time_ms": [round(run.cost.time_ms) for _, run in ended],
            "meta": [at for at, (statement, _) in enumerate(ended) if statement.kind == "meta"],
            "moved": moved,
            "usd": {run.execution_id: usd for _, run in ended if (usd := run.cost.tool_cost) is not None},
            "responses": {run.execution_id: spent for one, run in ended if (spent := _spent(one, run)) is not None},
            "verdicts": {
                run.execution_id: verdicts[run.execution_id] for _, run in ended if run.execution_id in verdicts
            },
        }

    def rows(self, asked: Mapping[str, Field], notes: StateNotes) -> list[messages.Row]:
        """Return the rows of the executions that `runs` names, such as `s1.1+20 s40.2`. Unknown ones are left out."""
        spans = asked.get("runs")
        if not isinstance(spans, str):
            raise BadCommand("rows: the field `runs` names executions, such as 's1.1+20 s40.2'")
        found: list[messages.Row] = []
        for execution_id in _named(spans):
            if execution_id in self.log:
                execution = self.log.execution(execution_id)
                found.append(self.row(self.log.statement(execution.statement_id), execution, notes))
        return found

    def details(self, asked: Mapping[str, Field]) -> messages.Details:
        """Return what a row leaves out: source, output and changes in full, and the events of the model's history."""
        of = asked.get("of")
        if not isinstance(of, str) or of not in self.log:
            raise BadCommand(f"details: there is no execution {of!r} in this session")
        execution = self.log.execution(of)
        statement = self.log.statement(execution.statement_id)
        outputs, left = notebook_outputs(execution), OUTPUT_BYTES
        kept: list[dict[str, Any]] = []
        for output in outputs:
            left -= len(json.dumps(output, default=str))
            if left >= 0:
                kept.append(output)
        events = tuple(self.log.records.get(of, ()))
        return {
            "row": rows.full_row(statement, execution),
            "outputs": kept,
            "outputs_more": len(outputs) - len(kept),
            "events": [
                {"id": event.event_id, "kind": event_kind(event), "text": content_of(event)[:EVENT_CHARS]}
                for event in events[:EVENTS]
            ],
            "events_more": max(0, len(events) - EVENTS),
        }

    def search(self, asked: Mapping[str, Field], verdicts: Mapping[str, str], notes: StateNotes) -> messages.Found:
        """Return the executions to which all given fields apply: text, name, author, status, verdict, branch."""
        told = {name: value for name, value in asked.items() if isinstance(value, str) and value}
        runs: Iterable[Run] = self.log.ended()
        if "branch" in told:
            runs = self._of_branch(runs, told["branch"])
        found = [run for _, run in _matching(runs, told, verdicts, notes)]
        return {"runs": [run.execution_id for run in found[-FOUND:]], "total": len(found)}

    def _of_branch(self, runs: Iterable[Run], branch: str) -> list[Run]:
        """Return those on the path to `branch`: an execution, a statement, or `head`; `other` is all others."""
        if branch in ("head", "other"):
            path = {run.execution_id for _, run in self.log.path()}
            return [one for one in runs if (one[1].execution_id in path) == (branch == "head")]
        if branch in self.log:
            leaf = branch
        elif self.log.get(branch) is not None:
            leaf = self.log.newest_execution(branch).execution_id
        else:
            raise BadCommand(f"search: there is no statement {branch!r}; expected one such as s12, or head, or other")
        path = {run.execution_id for _, run in self.log.path(leaf)}
        return [one for one in runs if one[1].execution_id in path]

    def amended(self, before: StateNotes, now: StateNotes) -> list[messages.AmendedRow]:
        """Return the newest rows, sent before, whose names, marks or asks have changed. Costs what changed."""
        if before == now:
            return []
        runs = {now.names.get(name) for name in _changed(before.names, now.names)}
        runs |= {before.names.get(name) for name in _changed(before.names, now.names)}
        runs |= set(_changed(before.asks, now.asks))
        if marked := set(_changed(before.marks, now.marks)):
            of_cell = {s.statement_id for s in tuple(self.log) if s.cell_id in marked}
            known = [one for one in marked | of_cell if self.log.get(one) is not None]
            runs |= {run.execution_id for one in known for run in self.log.executions(one)}
        found = [self.log.execution(run) for run in runs if run is not None and run in self.log]
        newest = sorted((one for one in found if one.status != "running"), key=lambda run: run.started_at)[-AMENDED:]
        return [
            {"execution_id": run.execution_id, **now.of(self.log.statement(run.statement_id), run.execution_id)}
            for run in newest
        ]


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [name for name in {*before, *now} if before.get(name) != now.get(name)]


def _spent(statement: Statement, run: Execution) -> messages.SpentByAsk | None:
    """Return the tokens of a response of a model; None for any other execution."""
    ask, tags = statement.tags.get("ask"), statement.tags
    if statement.author != "model" or statement.kind != "meta" or tags.get("held") or not run.cost.tokens:
        return None
    return {"ask": str(ask), "tokens": run.cost.tokens}


def _next(execution_id: str) -> str:
    """Return the id of the same run of the next statement: `s8.2` of `s7.2`."""
    statement, _, run = execution_id.partition(".")
    return f"s{int(statement[1:]) + 1}.{run}" if statement[1:].isdecimal() else ""


def _named(spans: str) -> Iterator[str]:
    """Yield the ids of `s1.1+20 s40.2`: twenty runs from `s1.1` on and one more; at most a page of them."""
    left = PAGE
    for word in spans.split():
        at, _, many = word.partition("+")
        for _ in range(int(many) if many.isdecimal() and len(many) < 6 else 1):
            if left == 0 or not at:
                return
            left -= 1
            yield at
            at = _next(at)


def _matching(
    runs: Iterable[Run], told: Mapping[str, str], verdicts: Mapping[str, str], notes: StateNotes
) -> Iterator[Run]:
    text, name = told.get("text", "").casefold(), told.get("name", "")
    wanted = {key: told[key] for key in ("author", "status", "verdict") if key in told}
    labels: dict[str, str] = {}
    for label, execution_id in notes.names.items():
        labels[execution_id] = f"{labels.get(execution_id, '')} {label}"
    for statement, run in runs:
        facts = {"author": statement.author, "status": run.status, "verdict": verdicts.get(run.execution_id)}
        if any(facts[key] != value for key, value in wanted.items()):
            continue
        if name and not _changes(run, name):
            continue
        if text and not any(text in part.casefold() for part in _texts(statement, run, labels)):
            continue
        yield statement, run


def _changes(run: Execution, name: str) -> bool:
    diff = run.changes
    return any(fnmatchcase(one, name) for names in (diff.added, diff.changed, diff.deleted) for one in names)


def _texts(statement: Statement, run: Execution, labels: Mapping[str, str]) -> Iterator[str]:
    yield statement.source
    yield run.execution_id
    yield labels.get(run.execution_id, "")
    yield run.stdout
    yield run.stderr
    if run.exception is not None:
        yield f"{run.exception.type}: {run.exception.message}"
    for one in run.artifacts:
        if one.kind == "file" or (one.mime == "text/plain" and isinstance(one.data, str)):
            yield one.name if one.kind == "file" else str(one.data)
