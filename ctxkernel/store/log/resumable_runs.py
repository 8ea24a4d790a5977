"""The timeline of an earlier kernel, and the newest state from which the next one can continue.

Rule 1: Nothing is unpickled, written or restored here.
Rule 2: A state that cannot be restored is named with the reason (law 9); whether a state may be loaded is separate from
        whether its data exist. The newest state with any variable is offered, with its gaps named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import StoreError
from ctxkernel.core.replay import CheckpointInfo, CheckpointState, Comparison, HeadMove
from ctxkernel.core.state_names import is_bound
from ctxkernel.core.text import plural
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.timeline_events import Json
from ctxkernel.history.events import HistoryEvent
from ctxkernel.store.chunks import manifest
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.manifest import Manifest, References
from ctxkernel.store.chunks.presence import Presence
from ctxkernel.store.log.opening import DIED
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.log.session_marks import movers_of, names_of

IMPORTED = "it was imported from a notebook, and has not run here"
"""Why there is no state after an imported execution."""


@dataclass(frozen=True, slots=True)
class Resumable:
    """The timeline of the newest root, and the newest state in it that can be restored."""

    session_id: str
    path: Path
    statements: tuple[tuple[Statement, tuple[Execution, ...]], ...]
    """In the order of their index, on all branches."""
    head: str | None
    names: Mapping[str, str]
    """The user's names of states: name → execution."""
    marks: Mapping[tuple[str, str], Json]
    moves: tuple[HeadMove, ...]
    """All moves of HEAD, oldest first."""
    comparisons: tuple[Comparison, ...]
    records: Mapping[str, Sequence[HistoryEvent]]
    """The model's history: execution → the events that were recorded with it."""
    checkpoints: Mapping[str, CheckpointInfo]
    manifests: Mapping[str, Manifest]
    """The manifests of the checkpoints."""
    target: str | None
    """The newest execution on HEAD's path whose state has any data; None if there is none."""
    gaps: Mapping[str, str]
    """The names of that state without data, and why."""
    not_restorable: tuple[tuple[str, str], ...]
    """The executions after `target` on HEAD's path, newest first, each with the reason."""
    interrupted: Execution | None
    why_not: str
    """Why that state is not trusted, and the next step; empty if it is."""

    @property
    def trusted(self) -> bool:
        """Return whether this user signed all parts of the state of `target`, or trusted them by word."""
        return not self.why_not

    @property
    def movers(self) -> tuple[str, ...]:
        """The executions that only moved HEAD."""
        return tuple(movers_of(self.marks))

    @property
    def path_to_head(self) -> tuple[str, ...]:
        """The executions from HEAD back to the first one."""
        return tuple(_back({one.execution_id: one for _, runs in self.statements for one in runs}, self.head))


def load_run(
    session: Path | SessionReader,
    *,
    before: int | None = None,
    chunks: ChunkStore | None = None,
    references: References | None = None,
) -> Resumable | None:
    """Return the newest root of a session, or None if nothing was ever executed in it.

    `before` is the run of the kernel that asks, whose statements are left out (a reader has its own). With `chunks` and
    `references` the data of checkpoints must exist; they are not read: if loading those of `target` finds damage, call
    again, and an older state is the target. Without them the log decides. Raises StoreError.
    """
    if not isinstance(session, SessionReader):
        with SessionReader(session, before=before) as reader:
            return load_run(reader, chunks=chunks, references=references)
    reader = session
    with reader.snapshot():
        reader.unsigned = 0
        statements = tuple(reader.statements())
        if not statements:
            return None
        executions = {one.execution_id: one for _, runs in statements for one in runs}
        head, marks = reader.head(), reader.marks()
        checkpoints, manifests = reader.stored_checkpoints()
        presence = Presence(chunks, references, verify=False) if chunks and references else None
        target, gaps, lost = _newest_with_data(_back(executions, head), executions, manifests, checkpoints, presence)
        newest = max(executions.values(), key=lambda one: one.started_at)
        return Resumable(
            reader.session_id,
            reader.path,
            statements,
            head,
            {name: at for name, at in names_of(marks).items() if at in executions},
            marks,
            tuple(reader.head_moves()),
            tuple(reader.comparisons()),
            reader.records(),
            checkpoints,
            manifests,
            target,
            gaps,
            tuple(lost),
            newest if _died(newest) else None,
            _why_untrusted(reader),
        )


def _why_untrusted(reader: SessionReader) -> str:
    if not reader.unsigned:
        return ""
    if reader.signer.fault:
        return f"the owner of the earlier session is unknown: {reader.signer.fault}"
    return (
        f"you did not write the earlier session here ({plural(reader.unsigned, 'rows')} are not signed by you), and "
        "loading its state can run any code; trust it only if you know its origin"
    )


def unsettled(
    reader: SessionReader, chunks: ChunkStore, references: References
) -> list[tuple[str, CheckpointState, str]]:
    """Return (checkpoint, new state, reason) of those that a dead kernel was writing.

    The kernel that now has the session stores each with `SessionStore.checkpoint_state`.
    """
    out: list[tuple[str, CheckpointState, str]] = []
    if not reader.has_unsettled():
        return out
    infos, manifests = reader.stored_checkpoints(all_roots=True)
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
    """Yield an execution and its ancestors, newest first."""
    left = dict(executions)
    while at is not None and (execution := left.pop(at, None)) is not None:
        yield at
        at = execution.parent_execution_id


def _newest_with_data(
    path: Iterator[str],
    executions: Mapping[str, Execution],
    manifests: Mapping[str, Manifest],
    checkpoints: Mapping[str, CheckpointInfo],
    presence: Presence | None,
) -> tuple[str | None, dict[str, str], list[tuple[str, str]]]:
    """Return the first execution of a path whose state has any data, its gaps, and the ones before it with reasons."""
    lost: list[tuple[str, str]] = []
    without_data: dict[str, str] = {}
    for execution_id in path:
        why = _never_stored(executions[execution_id], checkpoints) or without_data.get(execution_id, "")
        try:
            if not why:
                return execution_id, _gaps(manifests, execution_id, checkpoints[execution_id], presence), lost
        except StoreError as error:  # many may have none
            why, without_data = str(error), _without_data(manifests, checkpoints, presence)
        lost.append((execution_id, why))
    return None, {}, lost


def _never_stored(execution: Execution, checkpoints: Mapping[str, CheckpointInfo]) -> str:
    """Return why no checkpoint was taken after an execution; empty if one was."""
    if execution.execution_id in checkpoints:
        return ""
    if execution.status == "imported":
        return IMPORTED
    return "the kernel died while it ran" if _died(execution) else "no checkpoint was taken after it"


def _gaps(
    manifests: Mapping[str, Manifest], execution_id: str, info: CheckpointInfo, presence: Presence | None
) -> dict[str, str]:
    """Return the gaps of the state after an execution.

    Raises StoreError with the reason if it has no data at all.
    """
    chain = manifest.chain(manifests, execution_id)
    if told := chain[0].skipped:
        raise StoreError(f"skipped: {told}")
    if why := next(filter(None, (one.outdated for one in chain)), ""):
        raise StoreError(why)
    state = manifest.resolve(chain) if presence is not None else {}
    faults = {name: presence.fault(unit) for name, unit in state.items()} if presence is not None else None
    if why := _no_data(info, faults):
        raise StoreError(why)
    return {name: why for name, why in (faults or {}).items() if why}


def _without_data(
    manifests: Mapping[str, Manifest], checkpoints: Mapping[str, CheckpointInfo], presence: Presence | None
) -> dict[str, str]:
    """Return the executions whose states have no data at all, and why.

    Each manifest is read a few times, not once for each state that builds on it.
    """

    def fault(unit: manifest.Unit) -> dict[str, str]:
        return dict.fromkeys(unit["n"], presence.fault(unit) if presence is not None else "")

    out: dict[str, str] = {}
    for execution_id, faults in manifest.each_state(manifests, fault):
        if isinstance(faults, StoreError):
            out[execution_id] = str(faults)
        elif why := manifests[execution_id].skipped:
            out[execution_id] = f"skipped: {why}"
        elif why := _no_data(checkpoints[execution_id], faults if presence is not None else None):
            out[execution_id] = why
    return out


def _no_data(info: CheckpointInfo, faults: Mapping[str, str] | None) -> str:
    """Return why a state has no data at all; empty if it has some. `faults`: of each name, None if unknown."""
    told = f"{info.state}: {info.reason}" if info.reason else ""
    if faults is None:
        return "" if info.state == "durable" else told or f"it is {info.state}"
    first = next(filter(None, faults.values()), "")
    of_variables = [why for name, why in faults.items() if is_bound(name)] or faults.values()
    return (told or first) if first and all(of_variables) else ""


def _died(execution: Execution) -> bool:
    return execution.status == "running" or (execution.exception is not None and execution.exception.type == DIED)
