"""Executions with their statements and checkpoints as JSON, on their way from a worker's kernel to the timeline.

Rule: a record comes from a message whose signature was verified; its form is checked all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.timeline_events import StatementExecuted, plain
from ctxkernel.core.typed_json import read_json
from ctxkernel.state.checkpoints.checkpoints import Checkpointer
from ctxkernel.state.checkpoints.units import VERSION, Unit, unit_to_json
from ctxkernel.store.log.row_masking import dump_json
from ctxkernel.store.log.rows import event_from_row


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One execution of a task."""

    statement: Statement
    execution: Execution
    manifest: Mapping[str, Any]
    info: CheckpointInfo
    origin: str = ""
    """The statement of the timeline that it runs again, perhaps with another value of a parameter; else empty."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        execution: dict[str, Any] = plain(self.execution)
        execution["events"] = [{"type": type(one).__name__, "body": dump_json(one)} for one in self.execution.events]
        made: dict[str, Any] = {"statement": plain(self.statement), "execution": execution, "info": plain(self.info)}
        return {**made, "manifest": self.manifest, "origin": self.origin}

    def renamed(self, statement: Statement, execution_id: str, parent: str | None) -> RunRecord:
        """Return it as an execution of a statement of another timeline."""
        old, new = self.execution.execution_id, execution_id
        events = tuple(
            replace(one, statement_id=statement.statement_id, execution_id=new)
            if isinstance(one, StatementExecuted)
            else one
            for one in self.execution.events
        )
        ids = {"execution_id": new, "statement_id": statement.statement_id, "parent_execution_id": parent}
        units = [
            {**unit, "l": [[token, new if version == old else version] for token, version in unit["l"]]}
            if "l" in unit
            else unit
            for unit in self.manifest["units"]
        ]
        manifest = {**self.manifest, "units": units, "base": f"c{parent}" if parent is not None else None}
        info = replace(self.info, checkpoint_id=f"c{new}", execution_id=new)
        return replace(
            self,
            statement=statement,
            execution=replace(self.execution, **ids, events=events),
            manifest=manifest,
            info=info,
        )


def record_from_json(value: Mapping[str, Any]) -> RunRecord:
    """Return the record. Raises KeyError, TypeError, ValueError."""
    execution = dict(value["execution"])
    events = tuple(map(event_from_row, execution.pop("events")))
    ended = replace(read_json(Execution, {**execution, "events": []}), events=events)
    info = read_json(CheckpointInfo, value["info"])
    manifest = read_json(dict[str, Any], value["manifest"], "the manifest")
    if ended.status == "running" or manifest.get("v") != VERSION:
        raise ValueError(f"{ended.execution_id} has no end, or no checkpoint of this version")
    return RunRecord(read_json(Statement, value["statement"]), ended, manifest, info, str(value.get("origin", "")))


def manifest_of(checkpoints: Checkpointer, execution_id: str) -> dict[str, Any]:
    """Return the manifest of a state after all its data were written: the difference to the state before."""
    known = checkpoints.states.known[execution_id]
    made = [one for unit in known.units for one in checkpoints.states.made_of(unit) or (unit,)]
    base = None if known.base is None else f"c{known.base}"
    return {"v": VERSION, "base": base, "units": units_json(checkpoints, made), "gone": list(known.gone)}


def units_json(checkpoints: Checkpointer, units: list[Unit]) -> list[dict[str, Any]]:
    """Return units in the form of a manifest."""
    return [unit_to_json(unit, checkpoints.storage.recipe) for unit in units]
