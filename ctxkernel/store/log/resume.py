"""What an earlier kernel left, for the next one to go on with.

Rule 1: reading only: nothing is unpickled, written or restored here.
Rule 2: what cannot be returned to is named with its reason (law 9); whether the state may be loaded is told apart from
        whether it is there. The newest state of which a variable is there is offered, with its gaps named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctxkernel.core.errors import StoreError
from ctxkernel.core.events import Json
from ctxkernel.core.replay import CheckpointInfo, CheckpointState, Comparison, HeadMove
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.history.events import HistoryEvent
from ctxkernel.store.chunks import manifest
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.manifest import Manifest, References
from ctxkernel.store.chunks.presence import Presence
from ctxkernel.store.log.opening import DIED
from ctxkernel.store.log.reader import SessionReader, movers_of, names_of


@dataclass(frozen=True, slots=True)
class Resumable:
    """The timeline of the newest root, and how near to its end one can return."""

    session_id: str
    path: Path
    statements: tuple[tuple[Statement, tuple[Execution, ...]], ...]
    """In the order of their index, branches and all."""
    head: str | None
    names: Mapping[str, str]
    """The user's names of states: name → execution."""
    marks: Mapping[tuple[str, str], Json]
    moves: tuple[HeadMove, ...]
    """All that HEAD did, oldest first."""
    movers: tuple[str, ...]
    """The executions that did nothing but move HEAD."""
    comparisons: tuple[Comparison, ...]
    records: Mapping[str, Sequence[HistoryEvent]]
    """The model's history: execution → the events that were recorded with it."""
    checkpoints: Mapping[str, CheckpointInfo]
    target: str | None
    """The newest execution on HEAD's path of whose state anything is there; None where there is none."""
    gaps: Mapping[str, str]
    """The names of that state whose data are not there, and why."""
    not_restorable: tuple[tuple[str, str], ...]
    """The executions after `target` on HEAD's path, newest first, each with the reason."""
    interrupted: Execution | None
    trusted: bool
    """Whether all that the state of `target` consists of was signed, or trusted by word, by this user."""
    why_not: str
    """Why it is not trusted, and the next move; else empty."""

    @property
    def path_to_head(self) -> tuple[str, ...]:
        """The executions from HEAD back to its reader."""
        return tuple(_back({one.execution_id: one for _, runs in self.statements for one in runs}, self.head))


def load_run(
    session: Path | SessionReader,
    *,
    before: int | None = None,
    chunks: ChunkStore | None = None,
    references: References | None = None,
) -> Resumable | None:
    """Return what the newest root of a session left, or None where nothing was ever executed in it.

    `before` is the run of the kernel that asks: its own statements are left out (a reader has its own). With `chunks`
    and `references` the data of checkpoints are looked for, not read: where loading those of `target` finds them
    damaged, ask again, and an older one is offered. Without, the log is believed. Raises StoreError.
    """
    if not isinstance(session, SessionReader):
        with SessionReader(session, before=before) as reader:
            return load_run(reader, chunks=chunks, references=references)
    reader = session
    with reader.snapshot():
        statements = tuple(reader.statements())
        if not statements:
            return None
        executions = {one.execution_id: one for _, runs in statements for one in runs}
        head, checkpoints, marks = reader.head(), reader.checkpoints(), reader.marks()
        manifests = reader.all_manifests()
        presence = Presence(chunks, references, verify=False) if chunks and references else None
        target, lost, chain, gaps = None, list[tuple[str, str]](), list[Manifest](), dict[str, str]()
        for execution_id in _back(executions, head):
            try:
                chain, gaps = _chain(manifests, execution_id, executions[execution_id], checkpoints, presence)
                target = execution_id
                break
            except StoreError as error:
                lost.append((execution_id, str(error)))
        unsigned, why_not = [one.checkpoint_id for one in chain if not one.signed], ""
        if unsigned and reader.signer.fault:
            why_not = f"whose state it is cannot be told: {reader.signer.fault}"
        elif unsigned:
            why_not = (
                f"its state was not stored by you here ({len(unsigned)} of its checkpoints are not signed by you), and "
                "loading it can run any code; trust it only where you know where it comes from"
            )
        newest = max(executions.values(), key=lambda one: one.started_at)
        return Resumable(
            reader.session_id,
            reader.path,
            statements,
            head,
            {name: at for name, at in names_of(marks).items() if at in executions},
            marks,
            tuple(reader.head_moves()),
            tuple(movers_of(marks)),
            tuple(reader.comparisons()),
            reader.records(),
            checkpoints,
            target,
            gaps,
            tuple(lost),
            newest if _died(newest) else None,
            not why_not,
            why_not,
        )


def unsettled(
    reader: SessionReader, chunks: ChunkStore, references: References
) -> list[tuple[str, CheckpointState, str]]:
    """Return (checkpoint, state, reason) of those that a dead kernel was still writing: what became of them.

    For a kernel that has the session to itself, which hands each to `SessionStore.checkpoint_state`.
    """
    out: list[tuple[str, CheckpointState, str]] = []
    with reader.snapshot():
        manifests, infos = reader.all_manifests(all_roots=True), reader.checkpoints(all_roots=True)
    presence = Presence(chunks, references, verify=True)
    for execution_id, info in infos.items():
        if info.state == "writing":
            try:
                fault = manifest.some_gaps(presence.gaps(manifest.resolve(manifest.chain(manifests, execution_id))))
            except StoreError as error:
                fault = str(error)
            told = f"the kernel died while its data were written: {fault}" if fault else ""
            out.append((info.checkpoint_id, "damaged" if fault else "durable", told))
    return out


def _back(executions: Mapping[str, Execution], at: str | None) -> Iterator[str]:
    """Yield an execution and those that it came after, newest first."""
    left = dict(executions)
    while at is not None and (execution := left.pop(at, None)) is not None:
        yield at
        at = execution.parent_execution_id


def _chain(
    manifests: Mapping[str, Manifest],
    execution_id: str,
    execution: Execution,
    checkpoints: Mapping[str, CheckpointInfo],
    presence: Presence | None,
) -> tuple[list[Manifest], dict[str, str]]:
    """Return what the state after an execution consists of, and its gaps.

    Raises StoreError with the reason where nothing of it is there.
    """
    info = checkpoints.get(execution_id)
    if info is None:
        raise StoreError("the kernel died while it ran" if _died(execution) else "no checkpoint was taken after it")
    chain = manifest.chain(manifests, execution_id)
    if why := chain[0].skipped:
        raise StoreError(f"skipped: {why}")
    if presence is None:
        if info.state != "durable":
            raise StoreError(f"{info.state}: {info.reason}" if info.reason else f"it is {info.state}")
        return chain, {}
    state = manifest.resolve(chain)
    gaps = presence.gaps(state)
    if gaps and gaps.keys() >= ({name for name in state if ":" not in name} or state.keys()):
        raise StoreError(f"{info.state}: {info.reason}" if info.reason else next(iter(gaps.values())))
    return chain, gaps


def _died(execution: Execution) -> bool:
    return execution.status == "running" or (execution.exception is not None and execution.exception.type == DIED)
