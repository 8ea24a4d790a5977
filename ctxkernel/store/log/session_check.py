"""The check of a whole session for damage, without writing to it: `ctxkernel verify`.

Rule 1: A finding is a sentence that names the row; without findings everything was checked and is sound.
Rule 2: Damage is a difference to the data that were stored. A checkpoint that was skipped or thinned out on purpose,
        and a row that this user has not signed, are remarks.
Rule 3: Nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadHistory, StoreError
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.core.text import join_names, plural
from ctxkernel.store.chunks import manifest
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.manifest import Manifest, References, Unit
from ctxkernel.store.chunks.presence import Presence
from ctxkernel.store.log import rows, schema
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.log.session_file import UNSIGNED

_REFERENCES = {
    "statements.idx": "executions.idx",
    "executions.execution_id": "executions.parent_execution_id heads.execution_id runs.resumed_from",
    "executions.seq": "endings.seq late_output.seq checkpoints.seq divergences.seq divergences.against",
    "endings.seq": "endings.nodes_base events.seq artifacts.seq node_states.seq projections.seq",
    "blocks.address": "artifacts.block node_states.block",
    "projections.seq": "projections.base",
    "runs.run": "statements.run executions.run",
    "checkpoints.checkpoint_id": "checkpoint_states.checkpoint_id",
    "receipts.id": "responses.receipt_id",
}
"""Columns, and the columns that refer to them."""
_MOST = 100
"""The most findings of one kind in a report."""


@dataclass(slots=True)
class SessionReport:
    """The result of the check."""

    path: Path
    damage: list[str] = field(default_factory=list[str])
    """One sentence for each damage."""
    remarks: list[str] = field(default_factory=list[str])
    """Other facts that the user should know."""
    session_id: str = ""
    statements: int = 0
    projections: int = 0
    """Projections that were rebuilt from the stored rows with the same receipts."""
    checkpoints: int = 0
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """Checkpoints of which nothing can be restored, by id, and why."""
    gaps: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Checkpoints that can be restored without some names, by id: name → why."""

    @property
    def sound(self) -> bool:
        """Return whether there is no damage."""
        return not self.damage

    @property
    def restorable(self) -> int:
        """The number of checkpoints that can be restored, as far as was checked."""
        return self.checkpoints - len(self.lost)

    def lines(self) -> list[str]:
        """Return the lines of the report."""
        out = [f"damaged: {line}" for line in self.damage]
        if self.projections:
            out.append(f"projections: {self.projections} rebuilt from the stored rows, byte for byte the same")
        if self.checkpoints:
            whole = f", {self.restorable - len(self.gaps)} of them whole" if self.gaps else ""
            out.append(f"restorable: {self.restorable} of {self.checkpoints} checkpoints{whole}")
            damaged = "\n".join(self.damage)
            without = {one: manifest.some_gaps(names) for one, names in self.gaps.items()}
            for verb, found in (("cannot", self.lost), ("without", without)):
                given_up = {one: why for one, why in found.items() if why not in damaged}
                out += [f"  {_called(ids)} {verb}: {why}" for why, ids in manifest.by_reason(given_up).items()]
        out += self.remarks
        many = plural(self.statements, "statements")
        out.append(f"{many}, all sound" if self.sound else f"{many} can be read; the damage is listed above")
        return out


def _called(ids: list[str]) -> str:
    return f"checkpoint{'s' if len(ids) > 1 else ''} {join_names(ids, 6)}"


def verify(path: Path, chunks: ChunkStore | None = None, references: References | None = None) -> SessionReport:
    """Check a whole session; with `chunks` and `references` also all data of its checkpoints.

    Raises StoreError if it cannot be opened.
    """
    with SessionReader(path) as reader:
        report = SessionReport(path, session_id=reader.session_id)
        found = [*_structure(reader), *_rows(reader, report), *_missing(reader), *_projections(reader, report)]
        found += _history(reader)
        try:
            found += _checkpoints(reader, report, chunks, references)
        except StoreError as error:
            found.append(f"checkpoints: {error}")
        try:
            report.statements = len(reader.statements(all_roots=True))
        except StoreError as error:
            found.append(f"the timeline: {error}")
        report.damage += dict.fromkeys(found)
        return report


def _structure(reader: SessionReader) -> list[str]:
    try:
        lines = reader.select(f"PRAGMA integrity_check({_MOST})")
    except sqlite3.Error as error:
        lines = [(error,)]
    return [f"SQLite: {line}" for (line,) in lines if line != "ok"]


def _rows(reader: SessionReader, report: SessionReport) -> Iterator[str]:
    reader.unsigned, signed = 0, 0
    for table in schema.TABLES:
        reader.damage.clear()
        other: list[str] = []
        try:
            for row in reader.each(table):
                signed += row["signed"] and table not in UNSIGNED
                if table == "blocks" and rows.text_address(str(row["text"])) != row["address"]:
                    other += [row["address"]]
        except sqlite3.Error as error:
            yield f"{table}: not all rows can be read ({error})"
        yield from (f"{one}: the row does not match its checksum" for one in reader.damage[:_MOST])
        yield from (f"blocks {one}: the text does not match its address" for one in other[:_MOST])
    reader.damage.clear()
    report.remarks += _unsigned(reader, signed)


def _missing(reader: SessionReader) -> Iterator[str]:
    references = ((one, *key.split(".")) for key, columns in _REFERENCES.items() for one in columns.split())
    for one, there, key in references:
        table, _, column = one.partition(".")
        named = f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"
        with contextlib.suppress(sqlite3.Error):  # reported by _rows
            missing = reader.select(f"{named} EXCEPT SELECT {key} FROM {there} LIMIT {_MOST}")
            yield from (f"{table}: {column} {str(value)[:80]} is not in {there}" for (value,) in missing)


def _projections(reader: SessionReader, report: SessionReport) -> Iterator[str]:
    """Rebuild every projection from the stored rows, and count those with equal receipts."""
    with contextlib.suppress(sqlite3.Error):  # reported by _rows
        for execution_id, receipt, made in reader.stored_projections():
            if isinstance(made, StoreError):
                yield str(made)
            elif made.receipt == receipt:
                report.projections += 1
            else:
                yield f"projection after {execution_id}: its bytes give {made.receipt[:19]}, not {str(receipt)[:19]}"


def _history(reader: SessionReader) -> Iterator[str]:
    """Yield the events of the model's history that cannot be read."""
    with contextlib.suppress(sqlite3.Error):  # reported by _rows
        for row in reader.each("history"):
            try:
                rows.history_event_from_row(row)
            except (BadHistory, ValueError, TypeError) as fault:
                yield f"history event {row['event_id']}: {fault}"


def _checkpoints(
    reader: SessionReader, report: SessionReport, chunks: ChunkStore | None, references: References | None
) -> Iterator[str]:
    """Check the checkpoints of a session. Raises StoreError if they cannot be read."""
    infos, manifests = reader.stored_checkpoints(all_roots=True)
    report.checkpoints = len(infos)
    outdated = {cid: why for cid, why in map(_outdated, manifests.values()) if why}
    report.lost |= outdated
    presence = Presence(chunks, references, verify=True) if chunks and references else None

    def faults(unit: Unit) -> dict[str, tuple[str, list[str]]]:
        fault = presence.fault(unit) if presence is not None else ""
        return dict.fromkeys(unit["n"], (fault, unit.get("r", [])))

    damaged: dict[str, str] = {}
    for execution_id, state in manifest.each_state(manifests, faults):
        made = manifests[execution_id]
        if not isinstance(state, StoreError):
            _judge(report, damaged, infos[execution_id], made, _with_shared(state), looked=presence is not None)
        elif made.checkpoint_id not in outdated:
            report.lost[made.checkpoint_id] = str(state)
            if str(state) not in outdated.values():
                damaged[made.checkpoint_id] = str(state)
    for why, ids in manifest.by_reason(damaged).items():
        yield f"{_called(ids)} cannot be returned to{' whole' * (ids[0] in report.gaps)}: {why}"


def _with_shared(state: Mapping[str, tuple[str, list[str]]]) -> dict[str, str]:
    """Return the names of a state with the faults of their data, and of the objects that they share with others.

    `state` has for each name its fault and the labels of these objects, which are names of the state, too.
    """
    found: dict[str, str] = {}
    shared: set[str] = set()
    for name, (fault, labels) in state.items():
        todo, seen = list(labels), set(labels)
        while todo:
            why, others = state.get(todo.pop(), ("", []))
            fault = fault or why
            todo += [one for one in others if one not in seen]
            seen.update(others)
        found[name] = fault
        shared |= seen
    return {name: why for name, why in found.items() if name not in shared}


def _outdated(made: Manifest) -> tuple[str, str]:
    """Return the checkpoint of a manifest, and why this version cannot load it or an empty text."""
    try:
        return made.checkpoint_id, made.outdated
    except StoreError:
        return made.checkpoint_id, ""


def _judge(
    report: SessionReport,
    damaged: dict[str, str],
    info: CheckpointInfo,
    made: Manifest,
    state: Mapping[str, str],
    *,
    looked: bool,
) -> None:
    """Record a checkpoint that cannot be restored whole.

    `state` has the fault of each name's data, or an empty text; `looked` says whether the data were checked.
    """
    cid = info.checkpoint_id
    gaps = {name: why for name, why in state.items() if why}
    told = f"{info.state}: {info.reason}" if info.reason else info.state
    if made.skipped or (not looked and info.state in ("skipped", "thinned", "damaged")):
        report.lost[cid] = told
    elif not looked and info.state == "writing":
        report.lost[cid] = "its data were being written when the kernel ended"
    elif gaps and len(gaps) == len(state):
        report.lost[cid] = manifest.some_gaps(gaps) if info.state == "durable" else told
    elif gaps:
        report.gaps[cid] = gaps
    hurt = {name: why for name, why in gaps.items() if not why.startswith(manifest.GIVEN_UP)}
    if hurt and info.state == "durable":
        damaged[cid] = manifest.some_gaps(hurt)


def _unsigned(reader: SessionReader, signed: int) -> Iterator[str]:
    """Yield the remark about rows that this user has not signed."""
    not_loaded = "it is not resumed, and no state of it is loaded, unless you say that you trust it: `ctxkernel trust`"
    if not reader.unsigned:
        return
    if reader.signer.fault:
        yield f"the owner of the session is unknown: {reader.signer.fault}"
    elif not signed:
        yield f"none of its rows is signed by you: {not_loaded}"
    else:
        some = f"{reader.unsigned} of {plural(reader.unsigned + signed, 'rows')} are not signed by you"
        yield f"{some}: added by someone else, or changed; {not_loaded}"
