"""The timeline in parts: shape, rows, details and search, over a made-up log; and what a turn's message costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.timeline import (
    Artifact,
    ChangeInfo,
    ExceptionInfo,
    Execution,
    NamespaceDiff,
    Statement,
    StatementLog,
    TypeInfo,
)
from ctxkernel.kernel.display import panel_rows
from ctxkernel.kernel.display.panel_rows import StateNotes
from ctxkernel.kernel.display.timeline_pages import AMENDED, PAGE, TimelinePages

NOTES = StateNotes()


def log_of(*cells: dict[str, Any]) -> StatementLog:
    """Return a log of one line; a cell with `after` begins after another execution."""
    log = StatementLog()
    for at, cell in enumerate(cells, 1):
        statement_id = f"s{at}"
        if "after" in cell:
            log.move_head(cell["after"])
        source, rest = cell.get("source", f"x{at} = {at}"), cell.get("run", {})
        statement = Statement(statement_id, at, float(at), source, author=cell.get("author", "human"), cell_id=f"c{at}")
        begun = Execution(f"{statement_id}.1", statement_id, log.head, started_at=float(at))
        log.append(statement, begun)
        fields = {"status": "ok", "ended_at": at + 0.5, **rest}
        log.finish(Execution(f"{statement_id}.1", statement_id, begun.parent_execution_id, float(at), **fields))
        log.move_head(f"{statement_id}.1")
    return log


def pages_of(log: StatementLog) -> TimelinePages:
    def row(statement: Statement, execution: Execution, notes: StateNotes) -> Any:
        return {**panel_rows.execution_row(statement, execution, ()), **notes.of(statement, execution.execution_id)}

    return TimelinePages(log, row)


def test_the_shape_of_ten_thousand_runs_is_a_few_bytes_a_run():
    """A line is one span; a branch begins another one."""
    pages = pages_of(log_of(*[{}] * 9_999, {"after": "s7.1"}))
    shape = pages.shape(pages.log.ended(), {"s3.1": "differs"})
    assert shape["spans"] == [
        {"first": "s1.1", "count": 9_999, "parent": None},
        {"first": "s10000.1", "count": 1, "parent": "s7.1"},
    ]
    assert shape["verdicts"] == {"s3.1": "differs"}
    assert len(json.dumps({**shape, "cells": {}})) < 100_000


def test_rows_come_by_place_and_one_answer_is_a_page_at_most():
    """Unknown ones are left out; anything but a text is refused."""
    pages = pages_of(log_of(*[{}] * 300))
    found = pages.rows({"runs": "s3.1+2 s300.1 s999.1 nonsense +5 s2.7"}, NOTES)
    assert [row["execution_id"] for row in found] == ["s3.1", "s4.1", "s300.1"]
    assert len(pages.rows({"runs": "s1.1+99999"}, NOTES)) == PAGE
    with pytest.raises(BadCommand, match="names executions"):
        pages.rows({"runs": None}, NOTES)


SEARCHES = [
    ({"text": "BETA"}, ["s2.1", "s3.1", "s4.1"]),  # source, output, exception
    ({"text": "beta", "status": "error"}, ["s4.1"]),
    ({"name": "df"}, ["s1.1", "s3.1"]),
    ({"name": "d*"}, ["s1.1", "s3.1", "s5.1"]),
    ({"author": "model"}, ["s5.1"]),
    ({"verdict": "differs"}, ["s3.1"]),
    ({"branch": "head"}, ["s1.1", "s2.1", "s5.1"]),
    ({"branch": "other"}, ["s3.1", "s4.1"]),
    ({"branch": "s4"}, ["s1.1", "s2.1", "s3.1", "s4.1"]),
    ({"text": "baseline"}, ["s1.1"]),
    ({"text": "table"}, ["s5.1"]),
    ({"text": "nothing such"}, []),
]


@pytest.mark.parametrize(("asked", "found"), SEARCHES)
def test_a_search_looks_through_the_whole_session(asked, found):
    """All given fields apply."""
    value = TypeInfo("int", "1")
    log = log_of(
        {"source": "alpha = 1", "run": {"state_diff": NamespaceDiff(added={"df": value})}},
        {"source": "Beta = 2"},
        {"run": {"stdout": "beta rises", "state_diff": NamespaceDiff(changed={"df": ChangeInfo("int", "2")})}},
        {"run": {"status": "error", "exception": ExceptionInfo("KeyError", "beta", "")}},
        {
            "after": "s2.1",
            "author": "model",
            "run": {
                "state_diff": NamespaceDiff(deleted=("data",)),
                "artifacts": (Artifact("display", "out", "text/plain", 5, "", data="a table"),),
            },
        },
    )
    notes = StateNotes(names={"baseline": "s1.1"})
    answer = pages_of(log).search(asked, {"s3.1": "differs"}, notes)
    assert (answer["runs"], answer["total"]) == (found, len(found))


def test_an_unknown_branch_is_refused_with_what_is_expected():
    with pytest.raises(BadCommand, match="such as s12"):
        pages_of(log_of({})).search({"branch": "s9"}, {}, NOTES)


def test_only_rows_whose_notes_changed_are_sent_again_and_only_the_newest():
    """A mark of a cell holds for all its runs."""
    pages = pages_of(log_of(*[{}] * 100))
    assert pages.amended(NOTES, NOTES) == []
    told = pages.amended(StateNotes(names={"a": "s1.1", "b": "s2.1"}), StateNotes(names={"a": "s3.1", "b": "s2.1"}))
    assert [(one["execution_id"], one["names"]) for one in told] == [("s1.1", []), ("s3.1", ["a"])]
    told = pages.amended(NOTES, StateNotes(marks={"c7": "asks", "s9": "differs"}))
    assert [(one["execution_id"], one["marks"]["asks"]) for one in told] == [("s7.1", True), ("s9.1", False)]
    many = StateNotes(marks={f"s{n}": "asks" for n in range(1, 101)})
    assert len(pages.amended(NOTES, many)) == AMENDED


def test_a_long_row_is_shortened_and_its_details_have_all():
    """What a closed row shows is kept; the row says that there is more."""
    names = {f"name{n}": TypeInfo("DataFrame", "…" * 300) for n in range(100)}
    output = Artifact("display", "out", "image/png", 5, "", data="iVBORw0KGgo=")
    log = log_of(
        {
            "source": "x" * 30_000,
            "run": {"stdout": "o" * 9_000, "state_diff": NamespaceDiff(added=names), "artifacts": (output,)},
        }
    )
    pages = pages_of(log)
    (row,) = pages.rows({"runs": "s1.1"}, NOTES)
    short = panel_rows.bounded_row(row)
    assert len(json.dumps(short)) < panel_rows.ROW_BYTES
    assert short["brief"] is True
    assert short["diff"]["more"] == {"added": 88, "changed": 0, "deleted": 0}
    details = pages.details({"of": "s1.1"})
    assert (details["row"]["source"], details["row"]["stdout"]) == ("x" * 30_000, "o" * 9_000)
    assert len(details["row"]["diff"]["added"]) == 100
    assert details["outputs"][-1]["data"] == {"image/png": "iVBORw0KGgo="}
    with pytest.raises(BadCommand, match="no execution"):
        pages.details({"of": "s2.1"})
