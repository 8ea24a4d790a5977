"""Places in a timeline, as a user writes them: `10`, `s10`, `s10.2`, a name, `0` before all statements.

Rule 1: An unknown place is refused with the next step, before a kernel is started.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ctxkernel.cli import Unusable
from ctxkernel.cli.output import safe_line
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.timeline import Execution, StatementLog
from ctxkernel.store.log.reader import SessionReader

_NUMBER = re.compile(r"s?(?P<index>\d+)(?P<run>\.\d+)?")
_RANGE = re.compile(r"(?P<first>.+?)\.\.(?P<last>.+)")


@dataclass(frozen=True, slots=True)
class TimelinePlace:
    """A state of the timeline."""

    execution_id: str | None
    """None for the state before all statements."""
    told: str
    """`s10`, `before s10`, a name, `the start`."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The tree of a session and the user's names of states."""

    log: StatementLog
    names: Mapping[str, str]
    session: str

    @classmethod
    def of(cls, reader: SessionReader, *, all_roots: bool = False, details: bool = True) -> Timeline:
        """Return the timeline of a session: of the newest root, or of all; `details` as for `SessionReader.log`."""
        with reader.snapshot():
            return cls(reader.log(all_roots=all_roots, details=details), reader.names(), reader.session_id)

    def place(self, text: str, *, before: bool = False) -> TimelinePlace:
        """Return the state after a statement, or before it. Raises Unusable."""
        if text in ("0", "s0") and not before:
            return TimelinePlace(None, "the start")
        execution = self.execution(text)
        if before:
            return TimelinePlace(execution.parent_execution_id, f"before {execution.statement_id}")
        if execution.status == "running":
            raise Unusable(f"{execution.statement_id} is running, or its kernel died in it; give an earlier statement.")
        return TimelinePlace(execution.execution_id, text if text in self.names else execution.statement_id)

    def execution(self, text: str) -> Execution:
        """Return an execution, also one that runs. Raises Unusable."""
        try:
            if text in self.names:
                return self.log.execution(self.names[text])
            if match := _NUMBER.fullmatch(text):
                key = f"s{int(match['index'])}"
                if match["run"]:
                    return self.log.execution(key + match["run"])
                return self.log.newest_execution(key, self.log.path())
        except KeyError:
            pass
        some = f" or a name ({', '.join(sorted(self.names)[:5])})" if self.names else ""
        raise Unusable(
            f"there is no statement {safe_line(text)[:40]} in this session; "
            f"give a number that `ctxkernel timeline` lists{some}."
        )

    def between(self, text: str) -> tuple[TimelinePlace, TimelinePlace | None]:
        """Return the first and the last statement of `N..M`; for `N` the last is None. Raises Unusable."""
        match = _RANGE.fullmatch(text)
        first = self.place(match["first"] if match else text)
        last = self.place(match["last"]) if match else None
        if first.execution_id is None or (last is not None and last.execution_id is None):
            raise Unusable("statements begin at 1; `ctxkernel timeline` lists them.")
        if last is not None:
            path = [execution.execution_id for _, execution in self.log.path(last.execution_id)]
            if first.execution_id not in path:
                raise Unusable(
                    f"{last.told} does not come after {first.told} on one branch; give the earlier one first."
                )
        return first, last
