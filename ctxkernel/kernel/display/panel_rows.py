"""Convert statements, executions and handles to the rows of the panel (`docs/panel-protocol.md`).

Rule 1: long texts are cut here, so that a message stays small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.agent.asks import AskState
from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.replay import CheckpointInfo, Comparison, HeadMove
from ctxkernel.core.text import join_names
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.timeline_events import plain
from ctxkernel.core.timeline_table import other_notices
from ctxkernel.core.turn_values import DeltaItem, HandleState, OpenTurn

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import timeline_messages as messages

SOURCE_CHARS = 20_000
STREAM_CHARS = 2000
TEXT_CHARS = 20_000
"""Most characters of a handle's text."""
ROW_BYTES = 4000
"""A row with more is shortened; its details contain the rest."""
_SHORT_CHARS = {"source": 1000, "stdout": 200, "stderr": 200}
_SHORT_NAMES = 12
MOST_WORK = 6
_INDEXING = re.compile(r"\((indexing, \d+ %)\)")
_HEADING = 2000
"""Characters of a rendering that may contain its heading."""
TAGS = (
    *("agent", "ask", "response", "round", "model", "receipt", "request_id", "usage", "stop_reason", "held", "fenced"),
    "replayed",
)
"""Tags of a model's statement that a row contains: the fields of `messages.Tags`."""
_DIGEST = ("target", "kind", "mode", "freq", "lod", "tokens", "pos", "revision")


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """Facts about an execution that its turn reported and the timeline does not keep."""

    deltas: tuple[DeltaItem, ...] = ()
    moved: HeadMove | None = None
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class StateNotes:
    """Notes on executions after they ended: names and marks by a person, and the states of asks."""

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    marks: Mapping[str, str] = field(default_factory=dict[str, str])
    asks: Mapping[str, AskState] = field(default_factory=dict[str, AskState])
    """By execution: how an ask ended, or that it waits."""

    def of(self, statement: Statement, execution_id: str) -> messages.Said:
        """Return the names and marks of one row. They can change after the row was sent."""
        own = {self.marks.get(statement.statement_id), self.marks.get(statement.cell_id or "")}
        own |= {mark for mark in ("differs", "asks") if statement.tags.get(mark) is True}
        return {
            "names": sorted(name for name, where in self.names.items() if where == execution_id),
            "marks": {"differs": "differs" in own, "asks": "asks" in own},
            "ask": cast("messages.AskState | None", ask.to_json() if (ask := self.asks.get(execution_id)) else None),
        }


def _fields(value: object, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _begun(statement: Statement, execution: Execution) -> dict[str, Any]:
    return {
        **_fields(statement, "statement_id", "index", "source", "author", "kind", "cell_id"),
        **_fields(execution, "execution_id", "parent_execution_id", "started_at"),
        "tags": {name: statement.tags[name] for name in TAGS if name in statement.tags},
    }


def begun_row(turn: OpenTurn) -> messages.BegunStatement:
    """Return the row of a statement that runs now."""
    return cast("messages.BegunStatement", _begun(turn.statement, turn.execution))


def execution_row(statement: Statement, execution: Execution, deltas: tuple[DeltaItem, ...]) -> messages.ExecutionRow:
    """Return the fields of a row that depend on the execution alone."""
    cost = execution.cost
    artifacts = [one for one in execution.artifacts if not one.arranges and one.kind not in ("read", "picture")]
    row = {
        **_begun(statement, execution),
        **_fields(execution, "status", "ended_at"),
        "timestamp": statement.timestamp,
        "source": statement.source[:SOURCE_CHARS],
        "time_ms": cost.time_ms,
        "tokens": cost.tokens,
        "usd": cost.tool_cost,
        "stdout": execution.stdout[:STREAM_CHARS],
        "stderr": execution.stderr[:STREAM_CHARS],
        "cut": dict(execution.cut),
        "late": dict(execution.late),
        "exception": plain(execution.exception),
        "diff": changes_row(execution),
        "artifacts": [_fields(one, "kind", "name", "mime", "size") for one in artifacts],
        "notices": other_notices(execution),
        "nodes": [{"name": item.subject, "summary": item.summary} for item in deltas if item.kind in ("node", "tick")],
    }
    return cast("messages.ExecutionRow", row)


def changes_row(execution: Execution) -> messages.NamespaceDiff:
    """Return the changes of an execution, as they are known now."""
    return cast("messages.NamespaceDiff", plain(execution.changes))


def full_row(statement: Statement, execution: Execution) -> messages.ExecutionRow:
    """Return the fields of a row with the whole source and the whole kept output."""
    row = execution_row(statement, execution, ())
    return {**row, "source": statement.source, "stdout": execution.stdout, "stderr": execution.stderr}


def bounded_row(row: messages.Row) -> messages.Row:
    """Return a row that is as short as the list of rows needs it; `brief` says that its details have more."""
    if len(json.dumps(row, default=str)) <= ROW_BYTES:
        return row
    fields = cast("dict[str, Any]", row)
    short = {name: fields[name][:chars] for name, chars in _SHORT_CHARS.items()}
    diff = row["diff"]
    fault = row["exception"]
    return cast(
        "messages.Row",
        {
            **row,
            **short,
            "brief": True,
            "diff": {
                **{kind: _short_changes(diff[kind]) for kind in ("added", "changed")},
                "deleted": list(diff["deleted"])[:_SHORT_NAMES],
                "incomplete": diff["incomplete"][:200],
                "more": {kind: max(0, len(diff[kind]) - _SHORT_NAMES) for kind in ("added", "changed", "deleted")},
            },
            "late": {},
            "exception": fault and {"type": fault["type"], "message": fault["message"][:300], "trace_summary": ""},
            "artifacts": list(row["artifacts"])[:_SHORT_NAMES],
            "notices": [text[:200] for text in row["notices"][:3]],
            "nodes": [{"name": one["name"], "summary": one["summary"][:80]} for one in row["nodes"][:_SHORT_NAMES]],
        },
    )


def _short_changes(changes: Mapping[str, messages.NameChange]) -> dict[str, Any]:
    """Return the first names without values: a closed row shows names only."""
    return {name: {"type": changes[name]["type"], "repr": "", "size": {}} for name in list(changes)[:_SHORT_NAMES]}


def panel_delta(item: DeltaItem, execution_id: str) -> messages.DeltaItem:
    """Return one line of the feed of changes, of the turn of an execution."""
    is_own = execution_id.rpartition(".")[0] == item.statement_id
    return cast("messages.DeltaItem", {**plain(item), "execution_id": execution_id if is_own else None})


def comparison_row(found: Comparison) -> messages.Comparison:
    """Return the comparison of a re-run, without the details of values: a page asks for them (`difference`)."""
    row = cast("dict[str, Any]", plain(replace(found, divergences=())))
    fields = ("kind", "subject", "summary", "cause", "before", "after")
    row["divergences"] = [{**_fields(one, *fields), "detail": None} for one in found.divergences]
    return cast("messages.Comparison", {**row, "same": found.same})


def verdict(found: Comparison) -> str:
    """Return the result of a re-run in one word: same, expected or differs."""
    if found.same:
        return "same"
    return "expected" if found.expected else "differs"


def checkpoint_row(info: CheckpointInfo) -> messages.Checkpoint:
    """Return the facts about a checkpoint that a row contains."""
    names = ("state", "bytes_new", "time_ms", "reason")
    return cast("messages.Checkpoint", {**_fields(info, *names), "missing": dict(info.missing)})


def panel_handle(state: HandleState, names: Mapping[str, str], shares: Mapping[str, int]) -> messages.Handle:
    """Return the panel's row of one handle; `names` are those of all handles, by id, `shares` those of a group."""
    row = {
        **_fields(state, "name", "obj_id", "obj_type", "pinned", "pin_reason", "changed", "rendered_tokens"),
        **{name: state.digest.get(name) for name in _DIGEST},
        "members": [names.get(member, member) for member in state.members],
        "shares": [{"name": names.get(member, member), "tokens": tokens} for member, tokens in shares.items()],
        "notes": list(state.notes),
    }
    return cast("messages.Handle", row)


def background_work(handles: Iterable[HandleState], summaries: int, comparing: Sequence[str]) -> list[str]:
    """Return what is done in the background, a line each: at most `MOST_WORK`."""
    found = ((one.name, _INDEXING.search(one.text, 0, _HEADING)) for one in handles)
    lines = [f"{name}: {match[1]}" for name, match in found if match is not None]
    if summaries:
        lines.insert(0, f"a model writes {'a summary' if summaries == 1 else f'{summaries} summaries'}")
    if comparing:
        lines.insert(0, f"comparing {join_names(comparing)}")
    return lines[:MOST_WORK]
