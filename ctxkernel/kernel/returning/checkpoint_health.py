"""Which states of a session cannot be returned to or lack data, and whether its data keep within the quota.

Rule 1: a trouble is told once, in the cell in which it began; `%ctx status` and the panel show it until it is over.
Rule 2: the quota never costs what the present state needs. What was given up is written to the log, and told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.loop import Loop
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.store.chunks import quota
from ctxkernel.store.chunks.manifest import CheckpointRow, skipped_manifest

if TYPE_CHECKING:  # the ambient state remembers the process as it is when it is imported
    from ctxkernel.kernel.messages import plan_messages as messages
    from ctxkernel.state.checkpoints.checkpoints import Checkpointer
    from ctxkernel.state.checkpoints.states import States
    from ctxkernel.store.chunks.background import Background
    from ctxkernel.store.chunks.chunk_store import ChunkStore

_QUOTA_SECONDS = 60.0
"""Seconds after which the quota is checked again if anything was stored: other kernels store too."""
_QUOTA_STEP = 20
"""If too little can be given up, the quota is checked again when one in so many parts of the limit was added."""


class Health:
    """The states of a kernel's session that cannot be returned to or lack data, and why."""

    def __init__(self, loop: Loop, quota_gb: Callable[[], float]) -> None:
        self._loop = loop
        self._quota_gb = quota_gb
        self._states: States | None = None
        self._chunks: ChunkStore | None = None
        self._background: Background | None = None
        self._skipped: dict[str, CheckpointInfo] = {}
        """Execution → the checkpoint that was skipped after it, or whose data are all lost."""
        self.fault = ""
        """Why data cannot be stored now; empty if they can."""
        self._since = ""
        """The first statement whose data could not be stored."""
        self._thinned: dict[str, None] = {}

    def start(self, states: States, chunks: ChunkStore, background: Background) -> None:
        """Begin with the checkpoints and their data."""
        self._states, self._chunks, self._background = states, chunks, background

    def skip(self, execution_id: str, why: str) -> CheckpointRow:
        """Note that no checkpoint was taken after an execution, and return the row for the log."""
        self.know(CheckpointInfo(f"c{execution_id}", execution_id, "skipped", reason=why))
        return CheckpointRow(f"c{execution_id}", skipped_manifest(why), state="skipped", reason=why)

    def know(self, info: CheckpointInfo) -> None:
        """Note that a checkpoint was skipped, or that the data of one of an earlier kernel are lost."""
        self._skipped[info.execution_id] = info

    def info(self, execution_id: str) -> CheckpointInfo | None:
        """Return the facts about the checkpoint after an execution; None if there is none."""
        states = self._states
        return self._skipped.get(execution_id) or (states.info(execution_id) if states is not None else None)

    def stored(self, info: CheckpointInfo | CheckpointRow, statement_id: str) -> str:
        """Note whether the data of a checkpoint were stored; return the text to tell, once for each trouble."""
        if info.state in ("durable", "writing"):
            if not self.fault or info.state == "writing":  # data that are being written may still fail
                return ""
            since, self.fault, self._since = self._since, "", ""
            return f"checkpoint data are stored again (they were not from {since} on)"
        if self.fault:
            return ""
        self.fault, self._since = info.reason, statement_id
        return f"the state after {statement_id} is not stored: {info.reason}"

    def thinned(self, execution_id: str) -> None:
        """Note that large data of a state were given up for space."""
        self._thinned[execution_id] = None

    def check(self, execution_id: str | None) -> None:
        """Raise BadCommand, with what to do instead, if there is no state after an execution."""
        info = self._skipped.get(execution_id or "")
        if info is None:
            return
        path = self._loop.log.path(execution_id)
        name = path[-1][0].statement_id
        first = len(path) - 1
        while first and path[first - 1][1].execution_id in self._skipped:
            first -= 1
        near = path[first - 1][0].index if first else 0
        raise BadCommand(
            f"the state after {name} is not there: {info.reason}. %ctx goto {near} is the nearest state before it; "
            f"%ctx rerun {path[first][0].index}..{path[-1][0].index} makes this one again"
        )

    @property
    def has_skipped(self) -> bool:
        """Return whether there are states that cannot be returned to."""
        return bool(self._skipped)

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of `%ctx status`."""
        rows: list[tuple[str, str]] = []
        chunks = self._chunks
        if self.fault:
            rows.append(("not stored", f"since {self._since}: {self.fault}"))
        elif chunks is not None and (why := chunks.why_unwritable()):
            rows.append(("not stored", why))
        if chunks is not None and chunks.losses:
            rows.append(("lost", f"checkpoint data in {chunks.folder} were deleted while the kernel ran"))
        if self._skipped:
            rows.append(("not there", f"the states after {_some(self._skipped)}; %ctx goto says why"))
        if self._thinned:
            rows.append(("thinned", f"large data of {_some(self._thinned)} were given up for space"))
        return rows

    def storage(self) -> messages.Storage | None:
        """Return the facts about stored data, and about those that are not durable yet; None if there are none."""
        chunks, background = self._chunks, self._background
        if chunks is None or background is None:
            return None
        return {
            "bytes": chunks.bytes_stored,
            "quota": int(self._quota_gb() * 10**9),
            "pending_bytes": background.pending_bytes,
            "pending_s": max((time.monotonic() - one.started for one in background.running), default=0.0),
            "folder": str(chunks.folder),
            "faults": [f"{name}: {text}" for name, text in self.rows()],
        }


def _some(executions: Iterable[str]) -> str:
    names = list(dict.fromkeys(one.rpartition(".")[0] for one in executions))
    return ", ".join(names[-5:]) + (f" and {len(names) - 5} before" if len(names) > 5 else "")


class Room:
    """Keeps the data of all sessions within the quota, as far as this kernel adds to them."""

    def __init__(self, quota_gb: Callable[[], float], thinned: Callable[[CheckpointInfo], None]) -> None:
        self._quota_gb = quota_gb
        self._thinned = thinned
        """Called with each state whose large data were given up."""
        self.added = 0
        """Bytes that were stored since the last check."""
        self._left = 0
        """Bytes that may be added before the next check."""
        self._checked = -_QUOTA_SECONDS

    @property
    def due(self) -> bool:
        """Return whether it is time to check."""
        late = time.monotonic() - self._checked > _QUOTA_SECONDS
        return self.added > 0 and (late or self.added > self._left)

    def look(self, checkpoints: Checkpointer, own: ChunkStore) -> None:
        """Give up old large data if all sessions together exceed the quota. For idle time."""
        limit = int(self._quota_gb() * 10**9)
        self.added, self._checked = 0, time.monotonic()
        total = sum(quota.usage(own.folder.parent).values())
        if total > limit:
            keep = {address for unit in checkpoints.known_now().values() for address in unit.addresses}
            before = set(checkpoints.states.chunks())
            report = quota.collect(own.folder.parent, limit, live=(), own={own.folder.name: own}, keep=keep)
            total = report.after
            for info in checkpoints.states.thin(set(own.missing(before))):
                self._thinned(info)
        self._left = max(limit - total, limit // _QUOTA_STEP)
