"""The writer of a session. A kernel has one, and calls it on its main thread:

    open    a new run; what a dead kernel left running is closed as cancelled
    begin   statement, running execution and HEAD, durable before the code runs
    end     all that the turn made, its checkpoint included, in one transaction
    late    output that came after the end
    and between cells: checkpoint_state, mark, resume, trust

Rule 1: no fault of disk, file or value reaches the caller: every call returns a notice for the user, or None.
Rule 2: rows are added, never changed, and in the order of what happened.
Rule 3: what looks like a credential is masked here, on its way into a row; so a session is safe to keep, and a
        statement whose source was masked is tagged `masked`, since its replay would not be the same.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ctxkernel.core.events import Event, Json
from ctxkernel.core.replay import CheckpointState, Comparison
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn import TurnResult
from ctxkernel.projection.secrets import mask as mask_credentials
from ctxkernel.projection.value import Projection
from ctxkernel.store import trust
from ctxkernel.store.chunks.manifest import CheckpointRow
from ctxkernel.store.log import opening, rows
from ctxkernel.store.log.location import notebook_name, session_path
from ctxkernel.store.log.newest import newest_session
from ctxkernel.store.log.reader import SessionReader, stored_parts
from ctxkernel.store.log.rows import Mask, Row, mask_for
from ctxkernel.store.log.schema import sealed
from ctxkernel.store.log.series import HandleSeries, RecordSeries
from ctxkernel.store.log.writer import SPARE, Batch, Writer, add, both

__all__ = ["CheckpointRow", "SessionReader", "SessionStore", "newest_session", "notebook_name", "session_path"]

_MOST_KNOWN = 2_000
"""Most executions and checkpoints that are known to be stored without a look: nearly all that is asked for is
of the newest turns."""
LATE_CHARS = 10_000
"""Output after the end of its execution that is kept, a stream."""


class SessionStore:
    """An open session."""

    def __init__(self, place: opening.Place, now: float, signer: trust.Signer | None = None) -> None:
        self.session_id = place.session_id
        self.signer = signer or trust.signer()
        """Signs the checkpoints; `signer.fault` says why it cannot, where it cannot."""
        self.run = place.run
        self.last_index = place.last_index
        """Index of the newest statement of earlier runs; the first of this run has the next."""
        self._opening_notice = " ".join(place.notices) or None
        self._writer = Writer(place, self._forget)
        self._mask: Mask = mask_credentials
        self._seq = place.last_seq
        self._seqs: dict[str, int] = {}
        self._handles = HandleSeries()
        self._records = RecordSeries()
        self._projected: Projection | None = None
        self._late: dict[int, tuple[int, dict[str, int]]] = {}
        self._checkpoints: dict[str, None] = {}
        self._idle = True
        batch: Batch = []
        add(batch, "notices", [(self.run, now, None, text) for text in place.notices])
        self._writer.write(batch)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        now: Callable[[], float] = time.time,
        environment: Mapping[str, Json] | None = None,
        notebook: str | None = None,
        named: bool = False,
        signer: trust.Signer | None = None,
    ) -> SessionStore:
        """Return the store of `path`, of a sibling of it, or one in memory; `notice` says where it is not the first.

        `now` gives Unix seconds; `environment` is what statements run in (versions, not variables); `notebook` is
        the notebook's file name; `named` says that the user named `path`; `signer` signs checkpoints (default: with
        this user's secret). Never raises for what is wrong with a file.
        """
        at = float(now())
        start = opening.Start(at, secrets.token_hex(8), notebook, environment or {}, named)
        return cls(opening.open_place(path, start), at, signer)

    @property
    def path(self) -> Path | None:
        """The file that is written, or None where the session is in memory."""
        return self._writer.path

    @property
    def notice(self) -> str | None:
        """What the user should know about this session now, or None."""
        return both(self._opening_notice, self._writer.notice)

    # -- writing ------------------------------------------------------------------------------

    def begin(
        self,
        statement: Statement,
        execution: Execution,
        outside: tuple[Statement, Execution] | None = None,
    ) -> str | None:
        """Make the start of an execution durable, and of its statement where it is its first. Returns a notice.

        `outside` is the meta statement that came right before it. On return the code may run: the start survives a
        kill of the process.
        """
        moved = self._writer.see_to_file()

        def fill(batch: Batch) -> None:
            if outside is not None:
                self._add_outside(batch, *outside)
            self._add_start(batch, statement, execution)

        return both(moved, self._store(execution.execution_id, fill, retry=True))

    def end(
        self,
        result: TurnResult,
        *,
        checkpoint: CheckpointRow | None = None,
        outside_checkpoint: CheckpointRow | None = None,
    ) -> str | None:
        """Store a finished turn, with the state after it, in one transaction. Returns a notice.

        `outside_checkpoint` is the state after `result.outside`. A checkpoint that cannot be stored costs itself and a
        notice, not the turn; `has_checkpoint` tells.
        """
        if self._writer.absent:
            return None
        lost: str | None = None
        execution = result.execution
        try:
            batch, lost = self._turn(result, checkpoint, outside_checkpoint)
        except Exception as fault:  # as above; that it ended, and how, is stored all the same
            lost = self._writer.lost(execution.execution_id, fault)
            self._reset()
            for one in (checkpoint, outside_checkpoint):
                self._checkpoints.pop(one.checkpoint_id if one else "", None)
            batch = list[tuple[str, list[Row]]]()
            if execution.execution_id in self._seqs:
                bare = rows.ending_row(self._seqs[execution.execution_id], _bare(execution), self._mask)
                add(batch, "endings", [bare])
                self._add_move(batch, result)
        return both(lost, self._writer.write(batch))

    def late(self, execution_id: str, stream: str, text: str, limit: int = LATE_CHARS) -> str | None:
        """Add output that came after the end of its execution, up to `limit` characters a stream. Returns a notice."""

        def fill(batch: Batch) -> None:
            seq = self._seqs.get(execution_id) or self._find(execution_id)
            if seq not in self._late:
                query = "SELECT stream, max(n), sum(length(text)) FROM late_output WHERE seq = ? GROUP BY stream"
                found = self._writer.select(query, seq)
                so_far = {stream: length for stream, _, length in found}
                self._late[seq] = max((n + 1 for _, n, _ in found), default=0), so_far
            n, kept = self._late[seq]
            shown = text[: max(0, limit - kept.get(stream, 0))]
            if shown:
                self._late[seq] = (n + 1, {**kept, stream: kept.get(stream, 0) + len(shown)})
                add(batch, "late_output", [(seq, n, stream, self._mask(shown))])

        return self._store(f"the late output of {execution_id}", fill)

    def checkpoint_state(
        self,
        checkpoint_id: str,
        state: CheckpointState,
        reason: str,
        at: float,
        *,
        results: Mapping[str, Mapping[str, Json]] | None = None,
    ) -> str | None:
        """Say what became of a checkpoint, and what background jobs made of it: job → `{"units": […]}`, signed here.

        Returns a notice.
        """

        def row() -> Row:
            text = rows.results_text(results, self._mask) if results else None
            parts = trust.results_parts(self.session_id, checkpoint_id, text or "")
            signature = self.signer.sign(*parts) if text else None
            return (checkpoint_id, float(at), state, self._mask(reason), text, signature)

        return self._write("checkpoint_states", row, what=f"the state of {checkpoint_id}")

    def has_checkpoint(self, checkpoint_id: str) -> bool:
        """Say whether the row of a checkpoint is stored, or waits to be: whether another may build on it."""
        if self._writer.absent:
            return False
        if checkpoint_id not in self._checkpoints:
            with contextlib.suppress(Exception):  # whatever it is, a whole checkpoint is always right
                if self._writer.select("SELECT 1 FROM checkpoints WHERE checkpoint_id = ?", checkpoint_id):
                    self._checkpoints[checkpoint_id] = None
        return checkpoint_id in self._checkpoints

    def request(
        self,
        ask: str,
        key: str,
        number: int,
        receipt: str,
        model: str,
        at: float,
        body: Mapping[str, Json] | None = None,
    ) -> int | None:
        """Make a request to a model durable before it is sent: the `number`th of the ask that execution `ask` is.

        `body` is what is sent, where that is no projection, which is kept by its receipt.
        Returns what `response` names it by; None where it could not be written, which a notice tells later.
        """
        if self._writer.absent:
            return None
        try:
            seq = self._seqs.get(ask) or self._find(ask)
            sent = rows.dump(body or {}, self._mask)
            self._write("receipts", lambda: (receipt, seq, key, number, float(at), model, None, sent))
            return self._writer.select("SELECT max(id) FROM receipts WHERE receipt = ?", receipt)[0][0]
        except Exception:  # as in `begin`: an answer that is not recorded is better than none
            return None

    def answered(self, receipt: str) -> Mapping[str, Json] | None:
        """Return the newest whole answer that this session has for a request, None where there is none."""
        if self._writer.absent:
            return None
        query = """SELECT a.body FROM receipts r JOIN responses a ON a.receipt_id = r.id
            WHERE r.receipt = ? AND a.status = 'ok' ORDER BY a.id DESC LIMIT 1"""
        with contextlib.suppress(sqlite3.Error, ValueError):  # as in `begin`: then it is asked for again
            found = self._writer.select(query, receipt)
            return json.loads(found[0][0]) if found else None
        return None

    @property
    def summaries_sent(self) -> bool:
        """Whether a text was sent to a model for a summary, in this session so far."""
        query = """SELECT EXISTS (SELECT 1 FROM receipts r LEFT JOIN responses a ON a.receipt_id = r.id
            WHERE r.ask_key = ? AND coalesce(a.status, '') != ?)"""
        with contextlib.suppress(sqlite3.Error):
            return not self._writer.absent and bool(self._writer.select(query, rows.SUMMARY, rows.NOT_SENT)[0][0])
        return False

    def response(
        self,
        request: int | None,
        status: str,
        at: float,
        *,
        stop_reason: str | None = None,
        request_id: str = "",
        usage: Mapping[str, Json] | None = None,
        usd: float | None = None,
        body: Mapping[str, Json] | None = None,
    ) -> str | None:
        """Keep what came back for a request: `ok`, or the kind of failure. Returns a notice."""
        if request is None:
            return None

        def row() -> Row:
            used, said = rows.dump(usage or {}, self._mask), rows.dump(body or {}, self._mask)
            return (request, float(at), status, stop_reason, request_id, used, usd, said)

        return self._write("responses", row, what="a response of the model")

    def mark(self, subject: str, mark: str, value: Json, at: float) -> str | None:
        """Say something about a thing of the session; None takes it back. Returns a notice.

        `name` of an execution: what the user calls the state after it. `rerun` of a statement or a cell: it `differs`
        as expected, or `asks` before it runs again. `setting` of a setting: its value in this session. `property` of
        the name of a user's own property: it is in the list.
        """
        return self._write("marks", lambda: (self.run, float(at), subject, mark, rows.dump(value, self._mask)))

    def resume(self, execution_id: str | None, at: float, *, of: str | None = None) -> str | None:
        """Go on after an execution of an earlier kernel, whose timeline is this one's from now on. Returns a notice.

        None is the place before all of them; `of` then names any execution of that timeline. Where statements have run
        in this kernel they stay, as a branch of their own.
        """

        def fill(batch: Batch) -> None:
            member = execution_id or of
            if self._idle and member is not None:  # a root without statements is none: a run takes its place
                about = self._writer.select("SELECT notebook, environment FROM runs WHERE run = ?", self.run)
                add(batch, "runs", [(self.run + 1, float(at), about[0][0], member, about[0][1])])
                self.run += 1
            places = [execution_id] if execution_id == member else [member, None]
            add(batch, "heads", [(self.run, float(at), place, "resume") for place in places])
            self._idle = False

        return self._store("the return to an earlier kernel's timeline", fill)

    def trust(self, at: float) -> str | None:
        """Count all checkpoints stored by now as the user's own: on their explicit word only. Returns a notice."""
        if self.signer.fault and not self._writer.absent:
            return f"The session cannot be trusted: {self.signer.fault}."

        def row() -> Row:
            seqs = self._writer.select("SELECT max(seq) FROM checkpoints")[0][0] or 0
            ids = self._writer.select("SELECT max(id) FROM checkpoint_states")[0][0] or 0
            parts = trust.session_parts(self.session_id, stored_parts(self._writer.select, self.session_id, seqs, ids))
            value = {"checkpoints": seqs, "states": ids, "signature": self.signer.sign(*parts)}
            return (self.run, float(at), "session", "trusted", rows.dump(value))

        return self._write("marks", row, what="the trust in it")

    def _write(self, table: str, row: Callable[[], Row], *, what: str = "") -> str | None:
        """Write one row. Returns a notice, which calls the row `what`."""
        return self._store(what or table, lambda batch: add(batch, table, [row()]))

    def _store(self, what: str, fill: Callable[[Batch], None], *, retry: bool = False) -> str | None:
        """Write what `fill` adds to a batch. Returns a notice."""
        if self._writer.absent:
            return None
        batch: Batch = []
        try:
            fill(batch)
        except Exception as fault:  # a value that no row can hold must not keep the code from running
            return self._writer.lost(what, fault)
        return self._writer.write(batch, retry=retry)

    def close(self) -> None:
        """Write what waits, fold the write-ahead log into the file, and let the session go."""
        self._writer.close()

    # -- rows ---------------------------------------------------------------------------------

    def _add_start(self, batch: Batch, statement: Statement, execution: Execution) -> None:
        seq = self._seq + 1
        eid, at = execution.execution_id, float(execution.started_at)
        if eid == f"{statement.statement_id}.1":
            batch.append(("statements", [sealed(rows.statement_row(statement, self.run, self._mask))]))
        start = (seq, eid, statement.index, execution.parent_execution_id, self.run, at)
        batch.append(("executions", [sealed(start)]))
        batch.append(("heads", [sealed((self.run, at, eid, "run"))]))
        self._idle = False
        self._seq = self._seqs[eid] = seq
        if not self._writer.waits:  # the others are found in the file
            _halve(self._seqs)

    def _turn(
        self, result: TurnResult, checkpoint: CheckpointRow | None, outside_checkpoint: CheckpointRow | None
    ) -> tuple[Batch, str | None]:
        batch: Batch = []
        lost: str | None = None
        if result.outside is not None and result.outside[1].execution_id not in self._seqs:
            self._add_outside(batch, *result.outside)
        if result.outside is not None and outside_checkpoint is not None:
            lost = self._add_checkpoint(batch, result.outside[1], outside_checkpoint)
        execution = result.execution
        if execution.execution_id not in self._seqs:
            self._add_start(batch, result.statement, execution)
        changed = self._handles.changed(result.handles)
        mask = self._mask_for(execution, result.events, result.deltas, changed, result.notices)
        seq = self._seqs[execution.execution_id]
        base, states, texts = self._handles.rows(seq, result.handles, changed, mask)
        ending = rows.ending_row(seq, execution, mask, turn_id=result.turn_id, nodes_base=base, deltas=result.deltas)
        batch.append(("endings", [sealed(ending)]))
        self._add_details(batch, seq, execution, result.events, mask)
        add(batch, "node_states", states)
        self._add_blocks(batch, texts)
        if result.projection is not None:
            self._add_projection(batch, seq, result.projection)
        at = float(execution.ended_at or execution.started_at)
        add(batch, "notices", [(self.run, at, execution.execution_id, mask(text)) for text in result.notices])
        if checkpoint is not None:
            lost = both(lost, self._add_checkpoint(batch, execution, checkpoint))
        add(batch, "history", rows.history_rows(seq, float(execution.ended_at or 0.0), result.recorded, mask))
        self._add_move(batch, result)
        if result.comparison is not None:
            lost = both(lost, self._add_comparison(batch, seq, result.comparison))
        return batch, lost

    def _add_move(self, batch: Batch, result: TurnResult) -> None:
        if (moved := result.moved) is not None:
            add(batch, "heads", [(self.run, float(moved.at), moved.to, moved.reason)])
            moves = rows.dump({"to": moved.to})
            add(batch, "marks", [(self.run, float(moved.at), result.execution.execution_id, "moved", moves)])

    def _add_checkpoint(self, batch: Batch, execution: Execution, made: CheckpointRow) -> str | None:
        """Add a checkpoint, signed, and its state where it is not durable. Returns the notice of one that is lost."""
        try:
            at = float(execution.ended_at or execution.started_at)
            text = rows.manifest_text(made.manifest, self._mask)
            cid, form = made.checkpoint_id, made.format
            signature = self.signer.sign(*trust.checkpoint_parts(self.session_id, cid, text, form))
            seq = self._seqs[execution.execution_id]
            row = sealed((seq, cid, at, form, text, made.nbytes, made.time_ms, signature))
            durable = made.state == "durable" and not made.reason
            states = [] if durable else [sealed((cid, at, made.state, self._mask(made.reason), None, None))]
        except Exception as fault:  # a fault of a checkpoint costs the checkpoint
            return self._writer.lost(f"the checkpoint of {execution.execution_id}", fault)
        batch.append(("checkpoints", [row]))
        if states:
            batch.append(("checkpoint_states", states))
        self._checkpoints[cid] = None
        if not self._writer.waits:
            _halve(self._checkpoints)
        return None

    def _add_comparison(self, batch: Batch, seq: int, made: Comparison) -> str | None:
        try:
            against = self._seqs.get(made.against) or self._find(made.against)
            add(batch, "divergences", rows.comparison_rows(seq, against, made, self._mask))
        except Exception as fault:  # as above
            return self._writer.lost(f"the comparison of {made.execution_id}", fault)
        return None

    def _add_outside(self, batch: Batch, statement: Statement, execution: Execution) -> None:
        self._add_start(batch, statement, execution)
        mask = self._mask_for(execution, ())
        seq = self._seqs[execution.execution_id]
        batch.append(("endings", [sealed(rows.ending_row(seq, execution, mask))]))
        self._add_details(batch, seq, execution, execution.events, mask)

    def _mask_for(self, execution: Execution, events: Sequence[Event], *more: object) -> Mask:
        """Return the mask that the texts of an execution, and those in `more`, need."""
        texts = execution.stdout, execution.stderr, execution.exception, execution.state_diff, execution.notices
        own = execution.events
        held = own, () if events is own else events, execution.artifacts, execution.late
        return mask_for((*texts, *held, *more), self._mask)

    def _add_details(self, batch: Batch, seq: int, execution: Execution, events: Sequence[Event], mask: Mask) -> None:
        add(batch, "events", rows.event_rows(seq, execution.events, events, mask))
        made, texts = rows.artifact_rows(seq, execution.artifacts, mask)
        add(batch, "artifacts", made)
        self._add_blocks(batch, texts)
        if execution.late:
            late = enumerate(execution.late.items())
            add(batch, "late_output", [(seq, n, stream, mask(text)) for n, (stream, text) in late])
            self._late[seq] = len(execution.late), {stream: len(text) for stream, text in execution.late.items()}

    def _add_projection(self, batch: Batch, seq: int, projection: Projection) -> None:
        self._add_blocks(batch, projection.texts(beyond=self._projected))
        self._projected = projection
        base, stored = self._records.row(seq, projection.to_record())
        ok = int(projection.report.ok)
        batch.append(("projections", [sealed((seq, base, projection.receipt, projection.tokens, ok, stored))]))

    def _add_blocks(self, batch: Batch, texts: Mapping[str, str]) -> None:
        add(batch, "blocks", list(texts.items()))  # the database ignores those that it has

    def _forget(self, lost: Batch) -> None:
        """Build on nothing that was lost."""
        for row in (row for table, made in lost if table == "checkpoints" for row in made):
            self._checkpoints.pop(str(row[1]), None)
        if any(table not in SPARE for table, _ in lost):
            self._reset()

    def _reset(self) -> None:
        """Build the next turn on nothing: rows were lost that it would have been built on."""
        self._handles.reset()
        self._records.reset()
        self._projected = None

    def _find(self, execution_id: str) -> int:
        """Return the `seq` of an execution of an earlier run. Raises KeyError."""
        found = self._writer.select("SELECT seq FROM executions WHERE execution_id = ?", execution_id)
        if not found:
            raise KeyError(execution_id)
        self._seqs[execution_id] = found[0][0]
        return found[0][0]


def _halve(known: dict[str, Any]) -> None:
    """Forget the older half of what is known, where that is much."""
    for key in list(islice(known, len(known) // 2)) if len(known) > _MOST_KNOWN else ():
        del known[key]


def _bare(execution: Execution) -> Execution:
    """Return what can be stored of every execution."""
    ids = execution.execution_id, execution.statement_id, execution.parent_execution_id
    told = ("the rest of this turn could not be stored",)
    texts = str(execution.stdout), str(execution.stderr)
    return Execution(*ids, execution.started_at, execution.ended_at, execution.status, *texts, notices=told)
