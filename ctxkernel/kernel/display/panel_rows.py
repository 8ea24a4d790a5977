"""Convert statements, executions and handles to the rows of the panel (`docs/panel-protocol.md`).

Rule 1: long texts are cut here, so that a message stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ctxkernel.core.events import plain
from ctxkernel.core.replay import CheckpointInfo, Comparison, HeadMove
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn import DeltaItem, HandleState, OpenTurn
from ctxkernel.kernel.messages import timeline as messages

SOURCE_CHARS = 20_000
STREAM_CHARS = 2000
TEXT_CHARS = 4000
TAGS = tuple(messages.Tags.__annotations__)
"""Tags of a model's statement that a row contains."""
_DIGEST = ("target", "kind", "mode", "freq", "lod", "tokens", "pos", "revision")


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """Facts about an execution that its turn reported and the timeline does not keep."""

    deltas: tuple[DeltaItem, ...] = ()
    moved: HeadMove | None = None
    comparison: Comparison | None = None


@dataclass(frozen=True, slots=True)
class StateNotes:
    """Names that a person gave to states, by execution, and marks that a person set, by statement or cell."""

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    marks: Mapping[str, str] = field(default_factory=dict[str, str])

    def of(self, statement: Statement, execution_id: str) -> messages.Said:
        """Return the names and marks of one row. They can change after the row was sent."""
        own = {self.marks.get(statement.statement_id), self.marks.get(statement.cell_id or "")}
        own |= {mark for mark in ("differs", "asks") if statement.tags.get(mark) is True}
        return {
            "names": sorted(name for name, where in self.names.items() if where == execution_id),
            "marks": {"differs": "differs" in own, "asks": "asks" in own},
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
    artifacts = [one for one in execution.artifacts if one.kind != "read"]
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
        "diff": plain(execution.state_diff),
        "artifacts": [_fields(one, "kind", "name", "mime", "size") for one in artifacts],
        "notices": list(execution.notices),
        "nodes": [{"name": item.subject, "summary": item.summary} for item in deltas if item.kind in ("node", "tick")],
    }
    return cast("messages.ExecutionRow", row)


def panel_delta(item: DeltaItem) -> messages.DeltaItem:
    """Return one line of the feed of changes."""
    return cast("messages.DeltaItem", plain(item))


def comparison_row(found: Comparison) -> messages.Comparison:
    """Return the comparison of a re-run."""
    return cast("messages.Comparison", {**plain(found), "same": found.same})


def checkpoint_row(info: CheckpointInfo) -> messages.Checkpoint:
    """Return the facts about a checkpoint that a row contains."""
    names = ("state", "bytes_new", "time_ms", "reason")
    return cast("messages.Checkpoint", {**_fields(info, *names), "missing": dict(info.missing)})


def panel_handle(state: HandleState, names: Mapping[str, str]) -> messages.Handle:
    """Return the panel's row of one handle; `names` are those of all handles, by id."""
    row = {
        **_fields(state, "name", "obj_id", "obj_type", "pinned", "pin_reason", "changed", "rendered_tokens"),
        **{name: state.digest.get(name) for name in _DIGEST},
        "members": [names.get(member, member) for member in state.members],
        "text": state.text[:TEXT_CHARS],
        "notes": list(state.notes),
    }
    return cast("messages.Handle", row)


def notebook_outputs(execution: Execution) -> list[dict[str, Any]]:
    """Return the kept output of an execution as outputs of a notebook cell."""
    streams = (("stdout", execution.stdout), ("stderr", execution.stderr))
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": name, "text": text} for name, text in streams if text
    ]
    displays: dict[str, dict[str, Any]] = {}
    for one in execution.artifacts:
        if one.kind == "display" and one.data is not None:
            displays.setdefault(one.name, {})[one.mime] = one.data
    outputs += [{"output_type": "display_data", "data": data, "metadata": {}} for data in displays.values()]
    if (fault := execution.exception) is not None:
        trace = fault.trace_summary.splitlines()
        outputs.append({"output_type": "error", "ename": fault.type, "evalue": fault.message, "traceback": trace})
    return outputs
