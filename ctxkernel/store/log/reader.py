"""The reader of a session: its timeline, projections and handles, also while a kernel writes it.

Rule 1: Nothing is written, executed or unpickled, and no lock is taken: a session is data.
Rule 2: The values that are read equal those that the kernel had (law 3), except for masked credentials.
Rule 3: A damaged row is read as far as possible, and named: in the notices of its execution, and in `damage`.
Each call sees one state of the log, even if a kernel writes it meanwhile.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.errors import BadCommand, BadHistory, CtxError, StoreError
from ctxkernel.core.replay import CheckpointInfo, Comparison, HeadMove
from ctxkernel.core.text import one_line
from ctxkernel.core.timeline import Artifact, Execution, Statement, StatementLog
from ctxkernel.core.timeline_events import Event, Json, plain
from ctxkernel.core.timeline_json import statement_to_json
from ctxkernel.core.turn_values import HandleState
from ctxkernel.core.typed_json import read_json
from ctxkernel.history.events import HistoryEvent
from ctxkernel.projection.value import Projection, Rebuilder, from_record
from ctxkernel.store import signatures
from ctxkernel.store.chunks import manifest
from ctxkernel.store.chunks.data_folder import is_session_id
from ctxkernel.store.chunks.manifest import Manifest
from ctxkernel.store.log import rows, session_marks
from ctxkernel.store.log.location import CHECK
from ctxkernel.store.log.session_file import LogRow, SessionFile

_MOST_TEXTS = 4096
_NUMBER = re.compile(r"[0-9]{1,18}")


class SessionReader(SessionFile):
    """A session, open for reading. A context manager; raises StoreError if it cannot be read.

    `signer` recognises this user's rows (default: by this user's secret). `before` hides that run and later
    ones: a kernel gives its own run to read the earlier ones.
    """

    def __init__(self, path: Path, *, signer: signatures.Signer | None = None, before: int | None = None) -> None:
        super().__init__(path)
        self.before = before
        self.signer = signer or signatures.signer()
        self._texts: dict[str, str] = {}
        self._records: dict[int, dict[str, Json]] = {}
        """The record that was read last: the next one is often a difference to it."""
        with self.snapshot():
            meta = {row["key"]: row["value"] for row in self.rows("session")}
        found = meta.get("id")
        self.session_id = found if is_session_id(found) else ""
        """Empty if the id has another form than a ctxkernel gives: it would name a folder."""
        self.notebook: str | None = meta.get("notebook")
        self.sign = self.signer.row_signer(self.session_id)

    @property
    def last_write(self) -> float:
        """The newest time in this log (Unix seconds)."""
        query = (
            "SELECT max(coalesce((SELECT max(started_at) FROM runs), 0),"
            " coalesce((SELECT started_at FROM executions ORDER BY seq DESC LIMIT 1), 0),"
            " coalesce((SELECT ended_at FROM endings ORDER BY seq DESC LIMIT 1), 0))"
        )
        with self.snapshot():
            return float(self.select(query)[0][0])

    def timeline(self, all_roots: bool = False, *, newest: int | None = None) -> dict[str, Json]:
        """Return the timeline of the newest kernel start with statements, or of all (`docs/schemas.md`).

        `newest`: only so many statements.
        """
        with self.snapshot():
            listed = self.statements(all_roots=all_roots, newest=newest)
            statements = [statement_to_json(one, executions) for one, executions in listed]
            checkpoints = self.checkpoints(all_roots=all_roots)
            compared = {one.execution_id: one for one in self.comparisons(all_roots=all_roots)}
            asks = session_marks.asks_of(self.marks())
            for statement in statements:
                for execution in cast("list[dict[str, Json]]", statement["executions"]):
                    key = str(execution["execution_id"])
                    if key in checkpoints:
                        execution["checkpoint"] = _without_id(checkpoints[key])
                    if key in compared:
                        execution["comparison"] = {"same": compared[key].same, **_without_id(compared[key])}
                    if key in asks:
                        execution["ask"] = asks[key]
            return {"session": self.session_id, "head": self.head(all_roots=all_roots), "statements": statements}

    def statements(
        self, *, all_roots: bool = False, details: bool = True, newest: int | None = None
    ) -> list[tuple[Statement, tuple[Execution, ...]]]:
        """Return the statements in order, each with its executions, as in the kernel's log.

        Without `details` an execution has its place, times and status alone. `newest`: only so many statements.
        """
        with self.snapshot():
            runs = self._runs(all_roots)
            where = f"run IN ({_marks(runs)})"
            if newest is not None:
                where += f" AND idx > coalesce((SELECT DISTINCT idx FROM executions WHERE {where}"
                where += f" ORDER BY idx DESC LIMIT 1 OFFSET {newest}), -1)"
                runs = [*runs, *runs]
            starts = self.rows("executions", f"{where} ORDER BY seq", *runs)
            executions = self._executions(starts, details) if starts else {}
            made: list[tuple[Statement, tuple[Execution, ...]]] = []
            bounds = min(executions, default=0), max(executions, default=-1)
            for row in self.rows("statements", "idx BETWEEN ? AND ? ORDER BY idx", *bounds):
                if of_this := executions.get(row["idx"], []):
                    told = self.told("statements", row)
                    try:
                        found = rows.statement_from_row(row)
                    except ValueError as fault:
                        told = (*told, f"the stored statement s{row['idx']} is damaged: {fault}")
                        found = Statement(f"s{row['idx']}", row["idx"], row["timestamp"], row["source"])
                    made.append((found, tuple(_with_notices(one, told) for one in of_this)))
            return made

    def head(self, *, all_roots: bool = False) -> str | None:
        """Return the execution at HEAD, or None."""
        with self.snapshot():
            runs = self._runs(all_roots)
            newest = self.rows("heads", f"run IN ({_marks(runs)}) ORDER BY id DESC LIMIT 1", *runs)
        return newest[0]["execution_id"] if newest else None

    def _runs(self, all_roots: bool) -> list[int]:
        """Return the kernel starts of the newest root, or of all roots, oldest first.

        A kernel start that resumed an earlier one belongs to the root of that.
        """
        bound = 2**62 if self.before is None else self.before
        runs: list[int] = [row["run"] for row in self.rows("runs", "run < ? ORDER BY run", bound)]
        if all_roots:
            return runs
        newest = self.select("SELECT run FROM heads WHERE run < ? ORDER BY id DESC LIMIT 1", bound)
        # Two starts are of one root if the HEAD of one was ever at an execution of the other.
        together: dict[int, set[int]] = defaultdict(set)
        query = "SELECT DISTINCT h.run, e.run FROM heads h JOIN executions e ON e.execution_id = h.execution_id"
        for run, of in self.select(f"{query} WHERE h.run < ?", bound):
            together[run].add(of)
            together[of].add(run)
        found: set[int] = set()
        open_ones: set[int] = {newest[0][0] if newest else max(runs, default=0)} & set(runs)
        while open_ones:
            run = open_ones.pop()
            found.add(run)
            open_ones |= together[run] & set(runs) - found
        return sorted(found)

    def head_moves(self, *, all_roots: bool = False) -> list[HeadMove]:
        """Return all moves of HEAD, oldest first: to each execution that began, and by returns."""
        with self.snapshot():
            runs = self._runs(all_roots)
            found = self.rows("heads", f"run IN ({_marks(runs)}) ORDER BY id", *runs)
        return [HeadMove(row["execution_id"], row["reason"], row["at"]) for row in found]

    def log(self, *, all_roots: bool = False, details: bool = True) -> StatementLog:
        """Return the tree of executions with HEAD, as in the kernel; `details` as for `statements`."""
        log = StatementLog()
        with self.snapshot():
            try:
                head = self.head(all_roots=all_roots)
                listed = self.statements(all_roots=all_roots, details=details)
                log.load(listed, head, movers=session_marks.movers_of(self.marks("moved")))
            except (CtxError, KeyError) as error:
                why = one_line(str(error), 200)
                raise StoreError(
                    f"{self.path}: its executions are no tree ({why}); `{CHECK} {self.path}` says more"
                ) from error
        return log

    def marks(self, kind: str | None = None) -> dict[tuple[str, str], Json]:
        """Return the marks of the session: (subject, mark) → value, without those that were taken back.

        `kind`: the only mark that is read; None for all.
        """
        out: dict[tuple[str, str], Json] = {}
        with self.snapshot():
            found = self.rows("marks", "mark = coalesce(?, mark) ORDER BY id", kind)
        for row in found:
            with contextlib.suppress(ValueError, TypeError):  # damaged: the row's checksum says so
                key = row["subject"], row["mark"]
                out.pop(key, None)  # so the newest is the last
                if (value := rows.loaded(row["value"])) is not None:
                    out[key] = value
        return out

    def names(self) -> dict[str, str]:
        """Return the user's names of states: name → execution. The newer of two equal names counts."""
        return session_marks.names_of(self.marks())

    def checkpoints(self, *, all_roots: bool = False) -> dict[str, CheckpointInfo]:
        """Return the checkpoints by their execution, oldest first."""
        return self.stored_checkpoints(all_roots=all_roots)[0]

    def stored_checkpoints(self, *, all_roots: bool = False) -> tuple[dict[str, CheckpointInfo], dict[str, Manifest]]:
        """Return the checkpoints and their manifests by execution, oldest first."""
        with self.snapshot():
            manifests = list(self._manifests(all_roots))
            states = {row["checkpoint_id"]: row for row in self.rows("checkpoint_states", "1 ORDER BY id")}
        lacks: dict[str, manifest.Lacks] = {}
        out: dict[str, CheckpointInfo] = {}
        for row, made in manifests:
            cid = made.checkpoint_id
            last = states.get(cid)
            state, reason = (last["state"], last["reason"]) if last else ("durable", "")
            told = " ".join(self.told("checkpoints", row))
            try:
                before = dict(lacks.get(made.parse().get("base") or "", {}))
                lacks[cid] = manifest.advance(before, made, manifest.lacks_of)
            except StoreError as error:
                told = told or str(error)
            if told:
                state, reason = "damaged", told
            missing = {name: why for of_name in lacks.get(cid, {}).values() for name, why in of_name.items()}
            of_it = made.execution_id
            out[of_it] = CheckpointInfo(cid, of_it, state, row["bytes"] or 0, row["time_ms"] or 0.0, missing, reason)
        return out, {made.execution_id: made for _, made in manifests}

    def all_manifests(self, *, all_roots: bool = False) -> dict[str, Manifest]:
        """Return the manifests of all checkpoints by their execution, oldest first."""
        with self.snapshot():
            return {made.execution_id: made for _, made in self._manifests(all_roots)}

    def has_unsettled(self) -> bool:
        """Return whether data of any checkpoint were being written, by its newest state."""
        if "checkpoint_states" in self._empty:
            return False
        with self.snapshot():
            newest = self.select("SELECT state, max(id) FROM checkpoint_states GROUP BY checkpoint_id")
        return any(state == "writing" for state, _ in newest)

    def fingerprints(self) -> dict[str, dict[str, str]]:
        """Return execution → name → content hash, from the checkpoints of all executions; damaged ones are skipped."""
        found: dict[str, dict[str, str]] = {}
        for execution_id, made in self.all_manifests(all_roots=True).items():
            with contextlib.suppress(StoreError):  # `verify` reports it
                found[execution_id] = {str(name): str(one) for name, one in made.parse().get("f", {}).items()}
        return found

    def _manifests(self, all_roots: bool) -> Iterator[tuple[LogRow, Manifest]]:
        runs = self._runs(all_roots)
        ids = dict(self.select(f"SELECT seq, execution_id FROM executions WHERE run IN ({_marks(runs)})", *runs))
        results = {
            row["checkpoint_id"]: row for row in self.rows("checkpoint_states", "results IS NOT NULL ORDER BY id")
        }
        for row in self.rows("checkpoints", "1 ORDER BY seq"):
            if row["seq"] in ids:
                cid, given = row["checkpoint_id"], results.get(row["checkpoint_id"])
                signed, text = row["signed"], ""
                if given is not None:
                    signed, text = signed and given["signed"], given["results"]
                yield row, Manifest(cid, ids[row["seq"]], row["manifest"], row["format"], signed, text)

    def comparisons(self, *, all_roots: bool = False) -> list[Comparison]:
        """Return the comparisons of re-runs, oldest first."""
        found, names = self._with_executions("divergences", all_roots)
        with contextlib.suppress(ValueError, KeyError, TypeError):  # damaged: the row's checksum says so
            return rows.comparisons_from_rows(found, names)
        return []

    def _with_executions(self, table: str, all_roots: bool) -> tuple[list[LogRow], dict[int, str]]:
        """Return the rows of a table with a `seq`, in order, and the ids of all executions by `seq`."""
        with self.snapshot():
            runs = self._runs(all_roots)
            where = f"seq IN (SELECT seq FROM executions WHERE run IN ({_marks(runs)})) ORDER BY id"
            found = self.rows(table, where, *runs)
            return found, dict(self.select("SELECT seq, execution_id FROM executions")) if found else {}

    def records(self, *, all_roots: bool = False) -> dict[str, list[HistoryEvent]]:
        """Return the model's history: execution → the events that were recorded with it, in order.

        Events that cannot be read are left out; `verify` names them.
        """
        made: dict[str, list[HistoryEvent]] = {}
        found, names = self._with_executions("history", all_roots)
        for row in found:
            with contextlib.suppress(BadHistory, ValueError, TypeError):  # damaged: the row's checksum says so
                made.setdefault(names[row["seq"]], []).append(rows.history_event_from_row(row))
        return made

    def _executions(self, starts: Sequence[LogRow], details: bool) -> dict[int, list[Execution]]:
        """Return the executions of rows of `executions` by the index of their statement."""
        first, last = starts[0]["seq"], starts[-1]["seq"]
        between = "seq BETWEEN ? AND ?"
        if not details:
            query = f"SELECT seq, ended_at, status FROM endings WHERE {between}"
            ends = {seq: end for seq, *end in self.select(query, first, last)}
            brief: dict[int, list[Execution]] = defaultdict(list)
            for start in starts:
                brief[start["idx"]].append(rows.brief_execution(start, ends.get(start["seq"])))
            return brief
        endings = {row["seq"]: row for row in self.rows("endings", between, first, last)}
        events: dict[int, list[Event]] = defaultdict(list)
        for row in self.rows("events", between + " AND own = 1 ORDER BY seq, n", first, last):
            with contextlib.suppress(KeyError, ValueError, TypeError):  # damaged: the row's checksum says so
                events[row["seq"]].append(rows.event_from_row(row))
        artifacts: dict[int, list[Artifact]] = defaultdict(list)
        for row in self.rows("artifacts", between + " ORDER BY seq, n", first, last):
            with contextlib.suppress(ValueError, KeyError):  # as above
                text = self._text(row["block"]) if row["block"] is not None else None
                artifacts[row["seq"]].append(rows.artifact_from_row(row, text))
        late: dict[int, dict[str, str]] = defaultdict(lambda: defaultdict(str))
        for row in self.rows("late_output", between + " ORDER BY seq, n", first, last):
            late[row["seq"]][row["stream"]] += row["text"]
        diffs = session_marks.late_diffs(self.rows("marks", "mark = 'changes' ORDER BY id"))
        out: dict[int, list[Execution]] = defaultdict(list)
        for start in starts:
            seq, execution_id = start["seq"], start["execution_id"]
            statement_id = execution_id.rpartition(".")[0]
            told = self.told("executions", start)
            ending = endings.get(seq)
            found = events[seq], artifacts[seq], dict(late[seq]), diffs.get(execution_id)
            try:
                made = rows.execution_from_row(start, statement_id, ending, *found)
            except (ValueError, TypeError, KeyError):
                made = replace(rows.execution_from_row(start, statement_id, None), status="cancelled")
                told = (*told, f"how {execution_id} ended cannot be read")
            if ending is not None:
                told = (*told, *self.told("endings", ending))
            out[start["idx"]].append(_with_notices(made, told))
        return out

    def projection(self, statement: str | int | None = None) -> dict[str, Json]:
        """Return the stored projection as JSON, equal to the kernel's own to the byte. Raises StoreError if none is."""
        return self.stored_projection(statement).to_json()

    def stored_projection(self, statement: str | int | None = None) -> Projection:
        """Return the projection after `statement` (None: the newest). Raises StoreError if there is none."""
        with self.snapshot():
            seq = self._seq(statement, "projections")
            if seq is None:
                raise StoreError(f"{self.path}: {self._why_no_projection(statement)}")
            try:
                return from_record(self._record(seq), self._text)
            except (KeyError, ValueError, TypeError, StoreError) as error:
                which = f"statement {statement}" if statement is not None else "the newest statement"
                raise self._damaged(which, error) from error

    def _damaged(self, which: str, error: Exception) -> StoreError:
        return StoreError(f"{self.path}: the projection of {which} is damaged ({error}); take another's")

    def receipts(self) -> list[tuple[str, str]]:
        """Return (execution, receipt) of every stored projection, oldest first. Raises sqlite3.Error."""
        query = "SELECT e.execution_id, p.receipt FROM projections p JOIN executions e ON e.seq = p.seq ORDER BY p.seq"
        return self.select(query)

    def stored_projections(self) -> Iterator[tuple[str, str, Projection | StoreError]]:
        """Yield (execution, receipt, projection or why it is damaged) of all, oldest first. Raises sqlite3.Error.

        Each text of a history is read once, not once for each projection with it.
        """
        rebuilder = Rebuilder(self._text)
        query = "SELECT p.seq, e.execution_id, p.receipt FROM projections p JOIN executions e ON e.seq = p.seq"
        for seq, execution_id, receipt in self.select(f"{query} ORDER BY p.seq"):
            found: Projection | StoreError
            try:
                found = rebuilder.projection(self._record(seq))
            except (KeyError, ValueError, TypeError, StoreError) as error:
                found = self._damaged(f"statement {execution_id}", error)
            yield execution_id, receipt, found

    def requests(self) -> list[dict[str, Any]]:
        """Return every request to a model with its response, oldest first. Raises sqlite3.Error.

        `{id, source, execution_id, cell_id, ask_key, round, at, model, receipt}`, and `{status, stop_reason,
        request_id, usage, cost, body}` of the response, None if there is none.
        """
        query = """SELECT r.id, t.source, e.execution_id, t.cell_id, r.ask_key, r.round, r.at, r.model, r.receipt,
            a.status, a.stop_reason, a.request_id, a.usage, a.cost, a.body FROM receipts r
            JOIN executions e ON e.seq = r.seq JOIN statements t ON t.idx = e.idx
            LEFT JOIN responses a ON a.receipt_id = r.id ORDER BY r.id"""
        names = ("id", "source", "execution_id", "cell_id", "ask_key", "round", "at", "model", "receipt", "status",
                 "stop_reason", "request_id", "usage", "cost", "body")  # fmt: skip
        made: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in self.select(query)]
        for one in made:
            one |= {name: _object(one[name]) for name in ("usage", "body")}
        return made

    def _why_no_projection(self, statement: str | int | None) -> str:
        if statement is None:
            return "there is no projection of this session; run a cell first"
        index = int(str(statement).removeprefix("s").partition(".")[0])
        if not self.rows("statements", "idx = ?", index):
            return f"there is no statement {statement}; `ctxkernel timeline` lists statements"
        after = self.rows("statements", "idx > ? AND kind = 'python' ORDER BY idx LIMIT 1", index)
        what = f"statement {statement} has no projection of its own"
        return f"{what}; take {after[0]['statement_id']}, the cell after it" if after else f"{what}; take one before it"

    def handles(self, statement: str | int | None = None) -> tuple[HandleState, ...]:
        """Return the handles after `statement`: after its newest execution, or the one named (`s10.2`)."""
        with self.snapshot():
            asked = seq = self._seq(statement, "endings")
            chain = list[int]()
            while seq is not None and seq not in chain:
                ending = next(iter(self.rows("endings", "seq = ?", seq)), None)
                if ending is None or ending["nodes_base"] is None:
                    break
                chain.append(seq)
                seq = ending["nodes_base"]
            made: dict[str, HandleState] = {}
            for at in reversed(chain):
                for row in self.rows("node_states", "seq = ? ORDER BY n", at):
                    if row["state"] is None:
                        made.pop(row["obj_id"], None)
                        continue
                    try:
                        text = self._text(row["block"])
                        made[row["obj_id"]] = rows.handle_from_row(row, text, same_turn=at == asked)
                    except (KeyError, ValueError, TypeError) as error:
                        which = str(row["obj_id"])[:40]
                        raise StoreError(f"{self.path}: the handle {which} is damaged ({str(error)[:200]})") from error
        return tuple(made.values())

    def _record(self, seq: int) -> dict[str, Json]:
        chain: list[dict[str, Json]] = []
        at: int | None = seq
        seen = set[int]()
        while at is not None and at not in self._records:
            if at in seen:
                raise ValueError(f"the projection {seq} builds on itself")
            seen.add(at)
            row = next(iter(self.rows("projections", "seq = ?", at)), None)
            if row is None:
                raise KeyError(f"there is no projection {at}")
            chain.append(read_json(dict[str, Any], rows.loaded(row["record"]), "the projection"))
            at = row["base"]
        record = chain.pop() if at is None else self._records[at]
        while chain:
            record = rows.restore(record, chain.pop())
        self._records = {at: self._records[at], seq: record} if at is not None else {seq: record}
        return record

    def _seq(self, statement: str | int | None, table: str) -> int | None:
        """Return the newest execution (of `statement`, or of all) with a row in `table`."""
        query = f"SELECT max(t.seq) FROM {table} t JOIN executions e ON e.seq = t.seq WHERE "
        if statement is None:
            runs = self._runs(all_roots=False)
            return self.select(query + f"e.run IN ({_marks(runs)})", *runs)[0][0]
        digits, dot, run = str(statement).removeprefix("s").partition(".")
        if not _NUMBER.fullmatch(digits) or (dot and not _NUMBER.fullmatch(run)):
            raise StoreError(f"{str(statement)[:60]!r} is no statement; give its number, as `10` or `s10`")
        if dot:
            return self.select(query + "e.execution_id = ?", f"s{digits}.{run}")[0][0]
        return self.select(query + "e.idx = ?", int(digits))[0][0]

    def _text(self, address: str) -> str:
        """Return the text of an address. Raises KeyError."""
        if address not in self._texts:
            found = self.rows("blocks", "address = ?", address)
            if not found:
                raise KeyError(f"there is no text {address}")
            if rows.text_address(text := found[0]["text"]) != address:
                raise KeyError(f"the text {address} was changed")
            if len(self._texts) >= _MOST_TEXTS:
                self._texts.clear()
            self._texts[address] = text
        return self._texts[address]


def _object(text: object) -> dict[str, Json]:
    """Return the JSON object of a column; empty for anything else."""
    with contextlib.suppress(ValueError):
        return read_json(dict[str, Any], rows.loaded(text))
    return {}


def _without_id(fact: CheckpointInfo | Comparison) -> dict[str, Json]:
    made = plain(fact)
    del made["execution_id"]
    return made


def _with_notices(execution: Execution, told: Sequence[str]) -> Execution:
    return replace(execution, notices=(*execution.notices, *told)) if told else execution


def _marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)


def stored_projection(path: Path | None, place: str) -> Projection:
    """Return the stored projection after a statement of the session `path`. Raises CtxError if there is none."""
    if path is None:
        raise BadCommand("this session is in memory only: there are no earlier projections to compare with")
    with SessionReader(path) as reader:
        return reader.stored_projection(place)
