"""Which states of this session cannot be returned to, or lack data, and why: for the cell, `%ctx status` and the panel.

Rule 1: a checkpoint is taken only where what the cell changed is known as a whole; else it is skipped, with a reason.
Rule 2: a trouble is told once, in the cell in which it began; `%ctx status` and the panel show it until it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.loop import Loop
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.kernel.messages import states as messages
from ctxkernel.store.chunks.manifest import CheckpointRow, skipped_manifest

if TYPE_CHECKING:
    from ctxkernel.kernel.returning.returns import Returning


class Health:
    """What is wrong with the states of one kernel's session."""

    def __init__(self, loop: Loop, returning: Callable[[], Returning | None]) -> None:
        self._loop = loop
        self._returning = returning
        self._skipped: dict[str, CheckpointInfo] = {}
        """Execution → the checkpoint that was not taken after it, or of which nothing can be had."""
        self.fault = ""
        """Why data cannot be stored now; empty where they can."""
        self._since = ""
        """The first statement whose data could not."""
        self._thinned: dict[str, None] = {}

    def skip(self, execution_id: str, why: str) -> CheckpointRow:
        """Note that no checkpoint was taken after an execution, and return what the log keeps of that."""
        self.know(CheckpointInfo(f"c{execution_id}", execution_id, "skipped", reason=why))
        return CheckpointRow(f"c{execution_id}", skipped_manifest(why), state="skipped", reason=why)

    def know(self, info: CheckpointInfo) -> None:
        """Take in that a checkpoint was skipped, or that nothing of one of an earlier kernel can be had."""
        self._skipped[info.execution_id] = info

    def info(self, execution_id: str) -> CheckpointInfo | None:
        """Return what is known of the checkpoint after an execution; None where there is none."""
        back = self._returning()
        return self._skipped.get(execution_id) or (back.info(execution_id) if back is not None else None)

    def stored(self, info: CheckpointInfo | CheckpointRow, statement_id: str) -> str:
        """Take in whether the data of a checkpoint were stored; returns what is to be told, once for each trouble."""
        if info.state in ("durable", "writing"):
            # What is on its way says nothing yet of whether it will arrive.
            if not self.fault or info.state == "writing":
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
        """Raise BadCommand, with the next move, where it is known that there is no state after an execution."""
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

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of `%ctx status`."""
        rows: list[tuple[str, str]] = []
        back = self._returning()
        if self.fault:
            rows.append(("not stored", f"since {self._since}: {self.fault}"))
        elif back is not None and (why := back.chunks.why_unwritable()):
            rows.append(("not stored", why))
        if back is not None and (lost := back.chunks.lost):
            rows.append(("lost", lost))
        if self._skipped:
            rows.append(("not there", f"the states after {_some(self._skipped)}; %ctx goto says why"))
        if self._thinned:
            rows.append(("thinned", f"large data of {_some(self._thinned)} were given up for space"))
        return rows

    def storage(self) -> messages.Storage | None:
        """Return what the foot of the panel says of the data."""
        back = self._returning()
        if back is None:
            return None
        return {**back.storage(), "faults": [f"{name}: {text}" for name, text in self.rows()]}


def _some(executions: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(one.rpartition(".")[0] for one in executions))
    return ", ".join(names[-5:]) + (f" and {len(names) - 5} before" if len(names) > 5 else "")
