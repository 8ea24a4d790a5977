"""The writer of a session. A kernel has one, and calls it on its main thread:

    open    begin a new run; close as cancelled the executions that a dead kernel left running
    begin   store statement, running execution and HEAD before the code runs
    end     store the whole turn, its checkpoint included, in one transaction
    late    store output that came after the end
    and between cells: checkpoint_state, mark, resume, trust

Rule 1: No fault of disk, file or value reaches the caller: every call returns a notice for the user, or None.
Rule 2: Rows are added, never changed, in the order of the events.
Rule 3: Credentials are masked here, on their way into a row, so a session is safe to keep. A statement whose source
        was masked gets the tag `masked`, since its replay would differ.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ctxkernel.core.masking import Mask
from ctxkernel.core.replay import CheckpointState, Comparison
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.timeline_events import Event, Json
from ctxkernel.core.turn_values import TurnResult
from ctxkernel.projection.secrets import mask as mask_credentials
from ctxkernel.projection.value import Projection
from ctxkernel.store import signatures
from ctxkernel.store.chunks.manifest import CheckpointRow
from ctxkernel.store.log import opening, rows
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.log.row_masking import dump_json, mask_for
from ctxkernel.store.log.rows import HandleSeries, RecordSeries, Rows, with_signature
from ctxkernel.store.log.writer import SPARE, Writer, both

__all__ = ["CheckpointRow", "SessionReader", "SessionStore"]

LATE_CHARS = 10_000
"""Characters that are kept of each stream of output after the end of its execution."""


class SessionStore:
    """An open session."""

    def __init__(
        self, place: opening.OpenLog, now: float, signer: signatures.Signer | None = None, mask: Mask = mask_credentials
    ) -> None:
        self.session_id = place.session_id
        self.signer = signer or signatures.signer()
        """Signs the rows; `signer.fault` is the reason if it cannot."""
        self._sign = self.signer.row_signer(self.session_id)
        self.run = place.run
        self.last_index = place.last_index
        """Index of the newest statement of earlier runs; the first of this run has the next."""
        self._opening_notice = " ".join(place.notices) or None
        self.alarming = place.alarming
        """Whether the first cell tells the notice."""
        self._writer = Writer(place, self._forget)
        self._mask: Mask = mask
        self._seq = place.last_seq
        self._seqs: dict[str, int] = {}
        self._handles = HandleSeries()
        self._records = RecordSeries()
        self._projected: Projection | None = None
        self._late: dict[int, tuple[int, dict[str, int]]] = {}
        """By execution, the number of rows of late output, and the characters of each stream."""
        self._checkpoints: set[str] = set()
        """Checkpoints that are known to be stored."""
        self._idle = True
        self._stopped = False
        """Whether the checkpoints are in another timeline."""
        opened: Rows = [("notices", (self.run, now, None, text)) for text in place.notices]
        self._writer.write(with_signature(opened, self._sign))

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        now: Callable[[], float] = time.time,
        environment: Mapping[str, Json] | None = None,
        notebook: str | None = None,
        named: bool = False,
        signer: signatures.Signer | None = None,
        mask: Mask = mask_credentials,
    ) -> SessionStore:
        """Return the store of `path`, of a sibling of it, or one in memory; `notice` says if it is another.

        `now` gives Unix seconds; `environment` holds the versions that statements run with; `notebook` is the
        notebook's file name; `named` says that the user named `path`; `signer` signs rows (default: with this user's
        secret); `mask` hides secrets. Never raises for a fault of a file.
        """
        at = float(now())
        signer = signer or signatures.signer()
        start = opening.Start(at, secrets.token_hex(8), notebook, environment or {}, named, signer)
        return cls(opening.open_place(path, start), at, signer, mask)

    @property
    def mask(self) -> Mask:
        """Returns a text as it may be stored."""
        return self._mask

    @property
    def path(self) -> Path | None:
        """The file that is written; None if the session is in memory."""
        return self._writer.path

    @property
    def notice(self) -> str | None:
        """The present notices about this session for the user, or None."""
        return both(self._opening_notice, self._writer.notice)

    # -- writing ------------------------------------------------------------------------------

    def begin(
        self, statement: Statement, execution: Execution, outside: tuple[Statement, Execution] | None = None
    ) -> str | None:
        """Make the start of an execution durable, with its statement if it is the first. Return a notice.

        `outside` is the meta statement right before it. After the return the code may run: a kill of the process does
        not lose the start.
        """
        if self._writer.absent:
            return None
        moved = self._writer.ensure_file()
        made: Rows = []
        try:
            if outside is not None:
                self._add_outside(made, *outside)
            self._add_start(made, statement, execution)
            batch = with_signature(made, self._sign)
        except Exception as fault:  # a value that no row can hold must not keep the code from running
            return both(moved, self._writer.lost(execution.execution_id, fault))
        return both(moved, self._writer.write(batch, retry=True))

    def end(
        self,
        result: TurnResult,
        *,
        checkpoint: CheckpointRow | None = None,
        outside_checkpoint: CheckpointRow | None = None,
    ) -> str | None:
        """Store a finished turn and the state after it in one transaction. Return a notice.

        `outside_checkpoint` is the state after `result.outside`. If a checkpoint cannot be stored, the turn is stored
        without it; `has_checkpoint` says so.
        """
        if self._writer.absent:
            return None
        lost: str | None = None
        made: Rows = []
        try:
            lost = self._add_turn(made, result, checkpoint, outside_checkpoint)
            batch = with_signature(made, self._sign)
        except Exception as fault:  # its end is stored all the same
            execution = result.execution
            lost = self._writer.lost(execution.execution_id, fault)
            self._reset()
            self._checkpoints -= {one.checkpoint_id for one in (checkpoint, outside_checkpoint) if one is not None}
            made = []
            if execution.execution_id in self._seqs:
                seq = self._seqs[execution.execution_id]
                made.append(("endings", rows.ending_row(seq, _without_details(execution), self._mask)))
                self._add_move(made, result)
            batch = with_signature(made, self._sign)
        return both(lost, self._writer.write(batch))

    def late(self, execution_id: str, stream: str, text: str, limit: int = LATE_CHARS) -> str | None:
        """Add output that came after the end of its execution, up to `limit` characters a stream. Return a notice."""

        def make() -> Rows:
            seq = self._find(execution_id)
            if seq not in self._late:
                query = "SELECT stream, max(n), sum(length(text)) FROM late_output WHERE seq = ? GROUP BY stream"
                found = self._writer.select(query, seq)
                so_far = {stream: length for stream, _, length in found}
                self._late[seq] = max((n + 1 for _, n, _ in found), default=0), so_far
            n, kept = self._late[seq]
            shown = text[: max(0, limit - kept.get(stream, 0))]
            if not shown:
                return []
            self._late[seq] = (n + 1, {**kept, stream: kept.get(stream, 0) + len(shown)})
            return [("late_output", (seq, n, stream, self._mask(shown)))]

        return self._store(f"the late output of {execution_id}", make)

    def checkpoint_state(
        self,
        checkpoint_id: str,
        state: CheckpointState,
        reason: str,
        at: float,
        *,
        results: Mapping[str, Mapping[str, Json]] | None = None,
    ) -> str | None:
        """Store the new state of a checkpoint, and the results of background jobs: job → `{"units": […]}`.

        Return a notice.
        """

        def make() -> Rows:
            text = rows.results_text(results, self._mask) if results else None
            return [("checkpoint_states", (checkpoint_id, float(at), state, self._mask(reason), text, None))]

        return self._store(f"the state of {checkpoint_id}", make)

    def graft(
        self,
        runs: Sequence[tuple[Statement, Execution, CheckpointRow]],
        marks: Sequence[tuple[str, str, Json]],
        at: float,
    ) -> str | None:
        """Store executions that ended elsewhere, with their checkpoints and marks, in one transaction; HEAD stays.

        Return a notice; then none of them is stored.
        """

        def make() -> Rows:
            made: Rows = []
            for statement, execution, checkpoint in runs:
                self._add_start(made, statement, execution, moves=False)
                mask = mask_for((execution,), self._mask)
                made.append(("endings", rows.ending_row(self._seq, execution, mask)))
                self._add_details(made, self._seq, execution, (), mask)
                if lost := self._add_checkpoint(made, execution, checkpoint):
                    raise ValueError(lost)
            for subject, mark, value in marks:
                made.append(("marks", (self.run, float(at), subject, mark, dump_json(value, self._mask))))
            return made

        seq, known = self._seq, dict(self._seqs)
        told = self._store("a branch of a sweep", make)
        if told:
            self._seq, self._seqs = seq, known
            self._checkpoints -= {one.checkpoint_id for _, _, one in runs}
        return told

    def stop(self) -> None:
        """Write nothing any more: what this kernel does is recorded in another timeline."""
        self.close()
        self._stopped = True

    def has_checkpoint(self, checkpoint_id: str) -> bool:
        """Return whether the row of a checkpoint is stored, or waits to be: whether another may build on it."""
        if self._writer.absent:
            return self._stopped
        query = "SELECT 1 FROM checkpoints WHERE checkpoint_id = ?"
        return checkpoint_id in self._checkpoints or bool(self._writer.find(query, checkpoint_id))

    def request(
        self,
        ask: str,
        key: str,
        number: int,
        receipt: str,
        model: str,
        at: float,
        body: Mapping[str, Json] | None = None,
    ) -> tuple[int | None, str | None]:
        """Make a request to a model durable before it is sent: the `number`th of the ask in execution `ask`.

        `body` is the request if it is no projection; a projection is stored under its receipt. Return the id for
        `response`, None if the request could not be written, and a notice.
        """

        def make() -> Rows:
            stored = dump_json(body or {}, self._mask)
            return [("receipts", (receipt, self._find(ask), key, number, float(at), model, None, stored))]

        notice = self._store("a request to the model", make)
        return (self._writer.find("SELECT max(id) FROM receipts WHERE receipt = ?", receipt) or [(None,)])[0][0], notice

    def answered(self, receipt: str) -> Mapping[str, Json] | None:
        """Return the newest complete answer to a request in this session, or None."""
        query = """SELECT a.body FROM receipts r JOIN responses a ON a.receipt_id = r.id
            WHERE r.receipt = ? AND a.status = 'ok' ORDER BY a.id DESC LIMIT 1"""
        for (body,) in self._writer.find(query, receipt):
            with contextlib.suppress(ValueError):  # a damaged answer: then the model is asked again
                return json.loads(body)
        return None

    @property
    def requests_sent(self) -> bool:
        """Return whether any request of this session was sent to a model, by this kernel or an earlier one."""
        query = """SELECT 1 FROM receipts r LEFT JOIN responses a ON a.receipt_id = r.id
            WHERE coalesce(a.status, '') != ? LIMIT 1"""
        return bool(self._writer.find(query, rows.NOT_SENT))

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
        """Store the response to a request: status `ok`, or the kind of failure. Return a notice."""
        if request is None:
            return None

        def make() -> Rows:
            used, said = dump_json(usage or {}, self._mask), dump_json(body or {}, self._mask)
            return [("responses", (request, float(at), status, stop_reason, request_id, used, usd, said))]

        return self._store("a response of the model", make)

    def begun_response(self, request: int | None, spent: Mapping[str, Json]) -> str | None:
        """Store the cost until now of a request whose response still arrives. Return a notice."""
        return (
            self.mark(f"{rows.REQUEST} {request}", "spent", dict(spent), time.time()) if request is not None else None
        )

    def mark(self, subject: str, mark: str, value: Json, at: float, *, mask: Mask | None = None) -> str | None:
        """Store a mark of a subject; the value None takes it back. Return a notice.

        `name` of an execution: the user's name for the state after it. `ask` of an execution: how its ask ended, or
        waits. `spent` of a request: its cost until now. `rerun` of a statement or a cell: it `differs`
        as expected, or `asks` before it runs again. `setting` of a setting: its value in this session. `property` of
        the name of a user's own property: it is in the list. `changes` of an execution: its changes that were found
        after its end. `document` of `notebook`: the parts of an imported notebook that no statement holds. `mask` hides
        secrets in the value instead of the session's own.
        """
        used = mask or self._mask
        return self._store("marks", lambda: [("marks", (self.run, float(at), subject, mark, dump_json(value, used)))])

    def resume(self, execution_id: str | None, at: float, *, of: str | None = None) -> str | None:
        """Go on after an execution of an earlier kernel; its timeline is this one's from now on. Return a notice.

        None is the place before all executions; `of` then names any execution of that timeline. Statements that have
        run in this kernel stay, as a branch of their own.
        """

        def make() -> Rows:
            made: Rows = []
            member = execution_id or of
            if self._idle and member is not None:  # a root without statements is none: a run takes its place
                about = self._writer.select("SELECT notebook, environment FROM runs WHERE run = ?", self.run)
                made.append(("runs", (self.run + 1, float(at), about[0][0], member, about[0][1])))
                self.run += 1
            places = [execution_id] if execution_id == member else [member, None]
            made += [("heads", (self.run, float(at), place, "resume")) for place in places]
            self._idle = False
            return made

        return self._store("the return to an earlier kernel's timeline", make)

    def trust(self, *, revoke: bool = False) -> str | None:
        """Sign all rows stored by now, which only the user may ask for, or take that back. Return a notice."""
        if self._writer.absent:
            return None
        return self._writer.sign_rows(self.session_id, self.signer, revoke=revoke)

    def _store(self, what: str, make: Callable[[], Rows]) -> str | None:
        """Write the rows that `make` returns. Return a notice, which calls them `what`."""
        if self._writer.absent:
            return None
        try:
            batch = with_signature(make(), self._sign)
        except Exception as fault:  # as in `begin`
            return self._writer.lost(what, fault)
        return self._writer.write(batch)

    def close(self) -> None:
        """Write the rows that wait, move the write-ahead log into the file, and close the session."""
        self._writer.close()

    # -- rows ---------------------------------------------------------------------------------

    def _add_start(self, made: Rows, statement: Statement, execution: Execution, *, moves: bool = True) -> None:
        eid, at = execution.execution_id, float(execution.started_at)
        if eid == f"{statement.statement_id}.1":
            made.append(("statements", rows.statement_row(statement, self.run, self._mask)))
        start = (self._seq + 1, eid, statement.index, execution.parent_execution_id, self.run, at)
        made += [("executions", start), *([("heads", (self.run, at, eid, "run"))] if moves else [])]
        self._idle = False
        self._seq += 1
        self._seqs[eid] = self._seq

    def _add_turn(
        self, made: Rows, result: TurnResult, checkpoint: CheckpointRow | None, outside_checkpoint: CheckpointRow | None
    ) -> str | None:
        """Add the rows of a turn. Return the notice of the parts that cannot be stored."""
        lost: str | None = None
        if result.outside is not None:
            if result.outside[1].execution_id not in self._seqs:
                self._add_outside(made, *result.outside)
            if outside_checkpoint is not None:
                lost = self._add_checkpoint(made, result.outside[1], outside_checkpoint)
        execution = result.execution
        if execution.execution_id not in self._seqs:
            self._add_start(made, result.statement, execution)
        seq = self._seqs[execution.execution_id]
        events = () if result.events is execution.events else result.events
        mask = mask_for((execution, events, result.deltas, result.notices), self._mask)
        base, states = self._handles.rows(seq, result.handles, self._mask)
        ending = rows.ending_row(seq, execution, mask, turn_id=result.turn_id, nodes_base=base, deltas=result.deltas)
        made.append(("endings", ending))
        if execution.events or events or execution.artifacts or execution.late:
            self._add_details(made, seq, execution, events, mask)
        made += states
        if result.projection is not None:
            self._add_projection(made, seq, result.projection)
        at = float(execution.ended_at or execution.started_at)
        for text in result.notices:
            made.append(("notices", (self.run, at, execution.execution_id, mask(text))))
        if checkpoint is not None:
            lost = both(lost, self._add_checkpoint(made, execution, checkpoint))
        if result.recorded:
            made += rows.history_rows(seq, float(execution.ended_at or 0.0), result.recorded, self._mask)
        if result.moved is not None:
            self._add_move(made, result)
        if result.comparison is not None:
            lost = both(lost, self._add_comparison(made, seq, result.comparison))
        return lost

    def _add_move(self, made: Rows, result: TurnResult) -> None:
        if (moved := result.moved) is not None:
            made.append(("heads", (self.run, float(moved.at), moved.to, moved.reason)))
            move = dump_json({"to": moved.to})
            made.append(("marks", (self.run, float(moved.at), result.execution.execution_id, "moved", move)))

    def _add_checkpoint(self, made: Rows, execution: Execution, new: CheckpointRow) -> str | None:
        """Add a checkpoint, and its state if it is not durable. Return the notice of one that is lost."""
        try:
            cid, at = new.checkpoint_id, float(execution.ended_at or execution.started_at)
            text = rows.manifest_text(new.manifest, self._mask)
            seq = self._seqs[execution.execution_id]
            found: Rows = [("checkpoints", (seq, cid, at, new.format, text, new.nbytes, new.time_ms, None))]
            if new.state != "durable" or new.reason:
                found.append(("checkpoint_states", (cid, at, new.state, self._mask(new.reason), None, None)))
        except Exception as fault:  # a fault of a checkpoint costs the checkpoint
            return self._writer.lost(f"the checkpoint of {execution.execution_id}", fault)
        made += found
        self._checkpoints.add(cid)
        return None

    def _add_comparison(self, made: Rows, seq: int, comparison: Comparison) -> str | None:
        try:
            made += rows.comparison_rows(seq, self._find(comparison.against), comparison, self._mask)
        except Exception as fault:  # as above
            return self._writer.lost(f"the comparison of {comparison.execution_id}", fault)
        return None

    def _add_outside(self, made: Rows, statement: Statement, execution: Execution) -> None:
        self._add_start(made, statement, execution)
        mask = mask_for((execution,), self._mask)
        made.append(("endings", rows.ending_row(self._seq, execution, mask)))
        self._add_details(made, self._seq, execution, (), mask)

    def _add_details(self, made: Rows, seq: int, execution: Execution, of_turn: Sequence[Event], mask: Mask) -> None:
        """Add events, artifacts and late output; `of_turn` are the events of the turn."""
        made += rows.event_rows(seq, execution.events, of_turn, mask)
        if execution.artifacts:
            made += rows.artifact_rows(seq, execution.artifacts, mask)
        if execution.late:
            late = enumerate(execution.late.items())
            made += [("late_output", (seq, n, stream, mask(text))) for n, (stream, text) in late]
            self._late[seq] = len(execution.late), {stream: len(text) for stream, text in execution.late.items()}

    def _add_projection(self, made: Rows, seq: int, projection: Projection) -> None:
        for row in projection.texts(beyond=self._projected).items():
            made.append(("blocks", row))  # the database ignores those that it has
        self._projected = projection
        base, stored = self._records.next(seq, projection.to_record())
        ok = int(projection.report.ok)
        made.append(("projections", (seq, base, projection.receipt, projection.tokens, ok, stored)))

    def _forget(self, lost: Rows) -> None:
        """Build on no row that was lost."""
        self._checkpoints -= {str(row[1]) for table, row in lost if table == "checkpoints"}
        if any(table not in SPARE for table, _ in lost):
            self._reset()

    def _reset(self) -> None:
        """Build the next turn on no earlier one: rows were lost that it would build on."""
        self._handles, self._records, self._projected = HandleSeries(), RecordSeries(), None

    def _find(self, execution_id: str) -> int:
        """Return the `seq` of an execution of this run or an earlier one. Raises KeyError."""
        if execution_id not in self._seqs:
            found = self._writer.select("SELECT seq FROM executions WHERE execution_id = ?", execution_id)
            if not found:
                raise KeyError(execution_id)
            self._seqs[execution_id] = found[0][0]
        return self._seqs[execution_id]


def _without_details(execution: Execution) -> Execution:
    """Return the part of an execution that can always be stored."""
    ids = execution.execution_id, execution.statement_id, execution.parent_execution_id
    texts = str(execution.stdout), str(execution.stderr)
    notices = ("the rest of this turn could not be stored",)
    return Execution(*ids, execution.started_at, execution.ended_at, execution.status, *texts, notices=notices)
