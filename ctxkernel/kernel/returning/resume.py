"""Continues the session of an earlier kernel of this notebook: its timeline, its handles, its state.

Rule 1: reading what is offered costs nothing before somebody asks, and loads no state.
Rule 2: a state that this user's kernels did not sign is loaded only on the user's word (`--trust`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ctxkernel.agent.asks import earlier_state
from ctxkernel.core.collector import without_collector
from ctxkernel.core.errors import BadCommand, StoreError
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.core.state_names import SHARED
from ctxkernel.core.text import format_size, join_names
from ctxkernel.core.timeline import StatementLog, run_name
from ctxkernel.kernel.execution.guard import line_of
from ctxkernel.kernel.returning.comparisons import RunFacts
from ctxkernel.kernel.returning.return_services import ReturnServices
from ctxkernel.kernel.returning.targets import ReturnJob, Target
from ctxkernel.state.checkpoints import units
from ctxkernel.state.checkpoints.checkpoints import Checkpointer
from ctxkernel.state.checkpoints.comparison import Difference
from ctxkernel.store.chunks import late_results
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.manifest import GIVEN_UP, Manifest, advance, some_gaps
from ctxkernel.store.chunks.presence import Presence
from ctxkernel.store.log.resumable_runs import IMPORTED, Resumable, load_run, unsettled
from ctxkernel.store.log.session import SessionReader
from ctxkernel.store.log.session_marks import swept_of

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import plan_messages as messages

_WRITERS_SECONDS = 20.0
"""The most that a resume waits for processes that write data of the earlier kernel."""


class Resumption:
    """The way to the session of an earlier kernel."""

    def __init__(self, session: ReturnServices, checkpoints: Checkpointer, chunks: ChunkStore, facts: RunFacts) -> None:
        self._session = session
        self._store = session.store
        self._checkpoints = checkpoints
        self._chunks = chunks
        self._facts = facts
        self.done = False
        self._offer: tuple[messages.Resume | None] | None = None

    @property
    def offer(self) -> messages.Resume | None:
        """The facts about the earlier session; None if there is none, or it is back already."""
        if self.done:
            return None
        if self._offer is None:
            self._offer = (self._read_offer(),)
        return self._offer[0]

    def _read_offer(self) -> messages.Resume | None:
        try:
            found = self._find()
        except Exception as fault:  # the panel shows it where the offer would stand
            return {
                "statements": 0,
                "head": None,
                "at": 0.0,
                "interrupted": None,
                "restorable": None,
                "reason": str(fault) if isinstance(fault, StoreError) else line_of(fault),
            }
        if found is None:
            return None
        sources = {run.execution_id: statement.source for statement, runs in found.statements for run in runs}
        interrupted = found.interrupted
        return {
            "statements": len(found.statements),
            "head": found.head,
            "at": max(run.ended_at or run.started_at for run in found.statements[-1][1]),
            "interrupted": sources[interrupted.execution_id] if interrupted is not None else None,
            "restorable": found.target,
            "reason": found.why_not or "; ".join([*missing(found), *([some_gaps(found.gaps)] if found.gaps else [])]),
        }

    def _find(self) -> Resumable | None:
        """Return the session that an earlier kernel left, or None. Raises StoreError."""
        path = self._store.path
        if path is None:
            return None
        self._take_late_results(path)
        return load_run(path, before=self._store.run, chunks=self._chunks, references=units.references)

    def _wait_for_writers(self) -> None:
        """Wait for background jobs of the earlier kernel, which may have outlived it. Raises BadCommand."""
        path, end = self._store.path, time.monotonic() + _WRITERS_SECONDS
        self._checkpoints.storage.background.wait(_WRITERS_SECONDS)
        if path is None or not self._chunks.growing:
            return
        with SessionReader(path, before=self._store.run) as reader:
            states = {info.state for info in reader.checkpoints(all_roots=True).values()}
        while "writing" in states and self._chunks.growing:
            if time.monotonic() > end:
                raise BadCommand(
                    "data of the earlier kernel are still being written; %ctx resume brings them back in a moment"
                )
            time.sleep(0.05)

    def _take_late_results(self, path: Path) -> None:
        """Store in the log what background jobs of the earlier kernel finished when it had ended.

        The files stay: the log may be a copy that only a dry run reads.
        """
        folder = self._chunks.folder
        jobs = late_results.jobs(folder)
        if not jobs:
            return
        with SessionReader(path, before=self._store.run) as reader:
            infos, manifests = reader.stored_checkpoints(all_roots=True)
        if not any(infos[job].state == "writing" for job in jobs & infos.keys()):
            return
        labelled = False
        """Whether a later checkpoint gives objects labels: which of a job's own they are the earlier kernel knew."""
        for job, made in reversed(manifests.items()):
            text = made.text + made.results_text
            is_lost = job in jobs & infos.keys() and infos[job].state == "writing" and not made.results_text
            found = late_results.kept(folder, job) if is_lost and made.signed and not labelled else None
            if found is not None:
                found = units.without_kernel(found)
                self._store.checkpoint_state(made.checkpoint_id, "writing", "", time.time(), results=found)
                text += json.dumps(found)
            labelled = labelled or SHARED in text

    @without_collector()
    def job(self, difference: Callable[[str | None], Difference], *, trust: bool) -> ReturnJob:
        """Return the job that brings the session back, and take in its checkpoints. Raises BadCommand."""
        if self.done:
            raise BadCommand("the earlier session is back already; %ctx timeline shows it")
        try:
            self._wait_for_writers()
            if trust:
                from ctxkernel.agent.logged_asks import trust_log

                if told := trust_log(self._store):
                    raise BadCommand(told)
            found = self._find()
            lacks = found is not None and (found.gaps or found.not_restorable or found.target is None)
            if lacks and self._session.mirror.on:
                self._bring()
                found = self._find()
        except StoreError as fault:
            raise BadCommand(f"the earlier session cannot be read: {fault}") from None
        if found is None:
            why = self._store.notice or "no earlier kernel of this notebook left a statement here"
            raise BadCommand(f"there is nothing to resume: {why}")
        if not found.trusted:
            raise BadCommand(
                f"{found.why_not}. Its state is a pickle, which runs code: `ctxkernel trust {found.path}` shows and "
                "trusts it, as %ctx trust does here; %ctx resume --trust trusts and loads it"
            )
        if self._session.loop.graph.nodes():
            raise BadCommand(
                "this kernel has handles already, whose ids are those of the earlier ones; restart, and resume first"
            )
        assert self._store.path is not None
        with SessionReader(self._store.path, before=self._store.run) as reader:
            for checkpoint_id, state, reason in unsettled(reader, self._chunks, units.references):
                self._store.checkpoint_state(checkpoint_id, state, reason, time.time())
            self._take_in(found)
        target = found.target
        log = StatementLog()
        log.load(found.statements, found.head)
        place = Target(target, run_name(target) if target else "before all statements")
        return ReturnJob("resume", place, difference(target), resumable=found, log=log)

    def _bring(self) -> None:
        """Bring the data that are missing here from the second place, and tell what came."""
        url = self._session.configuration.settings.store
        try:
            done = self._session.mirror.pull(self._chunks)
        except StoreError as fault:
            self._session.notices.tell(f"ctxkernel: nothing came from {url}: {fault}")
            return
        if done.chunks:
            self._session.notices.tell(f"ctxkernel: {format_size(done.received)} of checkpoint data came from {url}")

    def _take_in(self, found: Resumable) -> None:
        """Take in the signed manifests of the earlier kernel; note why a checkpoint cannot be restored."""
        health = self._session.health
        presence = Presence(self._chunks, units.references, verify=False)
        lost: dict[str, str] = {}
        """Checkpoint → why it cannot be restored."""
        for execution_id, why in found.not_restorable:
            if execution_id in found.checkpoints:
                health.know(replace(found.checkpoints[execution_id], state="damaged", reason=why))
            elif why != IMPORTED:
                health.know(CheckpointInfo(f"c{execution_id}", execution_id, "skipped", 0, 0.0, reason=why))
        for execution_id, made in found.manifests.items():
            info = found.checkpoints[execution_id]
            try:
                if made.skipped:
                    health.know(replace(info, state="skipped", reason=made.skipped))
                elif made.signed:
                    if why := lost.get(str(made.parse().get("base"))):
                        raise StoreError(why)
                    self._load(execution_id, made, self._as_found(made, info, presence))
            except (StoreError, KeyError, TypeError, ValueError) as fault:
                lost[made.checkpoint_id] = str(fault)
                health.know(replace(info, state="damaged", reason=str(fault)))

    def _as_found(self, made: Manifest, info: CheckpointInfo, presence: Presence) -> CheckpointInfo:
        """Return the facts about a checkpoint, with what became of its data since; the log is told of that."""
        gaps = dict[str, str]()
        if info.state == "durable":
            advance(gaps, made, lambda unit: {unit["n"][0]: presence.fault(unit)})
        gone = {name: why for name, why in gaps.items() if why}
        if not gone:
            return info
        given_up = all(why.startswith(GIVEN_UP) for why in gone.values())
        found = replace(info, state="thinned" if given_up else "damaged", reason=some_gaps(gone))
        if given_up:  # if the session was moved without its data, they may still come
            self._store.checkpoint_state(info.checkpoint_id, found.state, found.reason, time.time())
        return found

    def _load(self, execution_id: str, made: Manifest, info: CheckpointInfo) -> None:
        manifest = made.parse()
        self._checkpoints.load(execution_id, manifest, info)
        for job_id, result in made.results().items():
            self._checkpoints.states.finish(job_id, result)
        self._facts.take_in(execution_id, manifest)
        self._facts.add_prints({job_id: result.get("f", {}) for job_id, result in made.results().items()})

    def join(self, found: Resumable) -> None:
        """Put the earlier timeline in front of this kernel's own."""
        self._session.loop.join(found.statements, movers=found.movers, records=found.records)
        self._session.remember(found.comparisons)
        marks = {subject: str(value) for (subject, mark), value in found.marks.items() if mark == "rerun"}
        self._facts.marks |= marks
        self._facts.swept.update(swept_of(found.marks))
        for (subject, mark), value in found.marks.items():
            if mark == "ask" and (state := earlier_state(value)) is not None:
                self._session.account.endings.setdefault(subject, state)
        self.done = True


def missing(found: Resumable) -> list[str]:
    """Return the lines that tell which states after the restored one are not there, and why."""
    reasons: dict[str, list[str]] = {}
    for execution_id, why in found.not_restorable:
        if execution_id not in found.movers:
            reasons.setdefault(why, []).append(execution_id.rpartition(".")[0])
    lines = [f"no state after {join_names(names[::-1], 5)}: {why}" for why, names in reasons.items()]
    if found.target is None and lines:
        many = sum(map(len, reasons.values()))
        told = f"none of the states that the earlier kernel left is there ({many} of {many} are missing)"
        if IMPORTED in reasons:
            told = "the notebook was imported, and has not run here"
        first = next((statement.statement_id for statement, _ in found.statements), "s1")
        lines.insert(0, f"{told}: only its timeline comes back; %ctx rerun {first} makes the states")
    return lines


def unfinished(found: Resumable) -> list[str]:
    """Return the lines that tell what is missing of an earlier session, and what waited for the user there."""
    from ctxkernel.agent.unfinished import left_open

    runs = {run.execution_id: (statement, run) for statement, made in found.statements for run in made}
    path = [runs[name] for name in reversed(found.path_to_head)]
    waited = left_open(path, found.records, [statement for statement, _ in found.statements])
    return missing(found) + _killed(found) + waited


def _killed(found: Resumable) -> list[str]:
    """Return a line about a cell of the model that ran when the kernel died."""
    if found.interrupted is None:
        return []
    statement, run = next(
        (one, run)
        for one, runs in found.statements
        for run in runs
        if run.execution_id == found.interrupted.execution_id
    )
    if statement.author != "model" or statement.kind == "meta":
        return []
    told = f"{statement.statement_id}, a cell of the model, ran until the kernel died ({run.status})"
    return [f"{told}: its changes to variables are lost, those to files are not"]
