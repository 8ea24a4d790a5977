"""The timeline: what was executed, and with what result. Statements, executions, the log and HEAD.

Rule 1: a Statement is immutable; an Execution is replaced once, when it ends, and never after,
but for output that came late, which is added.
Rule 2: the log is append-only; going back moves HEAD and rewrites nothing (law 2).
Rule 3: no clock here: times are Unix seconds (UTC) that arrive as arguments.
The fields are those of seed 002 §3, with author, cell and parents added.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ctxkernel.core.errors import CtxError
from ctxkernel.core.events import Event, Json, event_to_json, plain

Kind = Literal["python", "meta"]
Author = Literal["human", "model", "panel"]
Status = Literal["running", "ok", "error", "timeout", "cancelled"]


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A variable as it is: Python type name, capped repr, best-effort size (a hint, not a sum)."""

    type: str
    repr: str
    size: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Any of `bytes` (int), `len` (int), `shape` (list of int)."""


@dataclass(frozen=True, slots=True)
class ChangeInfo:
    """A variable that changed. `how` is `rebound` (another object) or `mutated` (the same, changed)."""

    type: str
    repr: str
    size: Mapping[str, Json] = field(default_factory=dict[str, Json])
    how: Literal["rebound", "mutated"] = "rebound"
    before: str = ""
    """The capped repr before, where one was kept; else empty."""


@dataclass(frozen=True, slots=True)
class NamespaceDiff:
    """What a statement did to the user's names (seed 002 §3.2)."""

    added: Mapping[str, TypeInfo] = field(default_factory=dict[str, TypeInfo])
    changed: Mapping[str, ChangeInfo] = field(default_factory=dict[str, ChangeInfo])
    deleted: tuple[str, ...] = ()
    incomplete: str = ""
    """Empty, or why changes may be missing (time ran out, a name was only sampled)."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.deleted)


@dataclass(frozen=True, slots=True)
class ExceptionInfo:
    """How a statement failed: the type's name, its message, and a short trace without ANSI codes."""

    type: str
    message: str
    trace_summary: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something a statement left: a rich output (by MIME type) or a file that it wrote; or a file that it read.

    `data` is the payload as a Jupyter message carries it (text, base64, or JSON), None where it is
    over the bound or a file; `size` is in bytes, `hash` is `sha256:<hex>` or empty when too large (of a file
    that was read: `xxh3:<hex>`, or `stat:<mtime in ns>:<size>` where the content was not looked at).
    """

    kind: Literal["display", "file", "read"]
    name: str
    mime: str
    size: int
    hash: str
    data: Json = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What an execution cost: wall time in milliseconds, model tokens, money in US dollars."""

    time_ms: float = 0.0
    tokens: int | None = None
    tool_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """One executed cell, as text."""

    statement_id: str
    """`s<index>`: short, deterministic, and what `%ctx goto` takes."""
    index: int
    """Global, monotonic, from 1. Not the prompt number."""
    timestamp: float
    source: str
    kind: Kind = "python"
    author: Author = "human"
    parent_id: str | None = None
    """Statement that the first execution came after; None at a root."""
    cell_id: str | None = None
    tags: Mapping[str, Json] = field(default_factory=dict[str, Json])
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a statement. `stdout` and `stderr` are bounded copies with a marker at a cut."""

    execution_id: str
    """`<statement_id>.<n>`, n from 1."""
    statement_id: str
    parent_execution_id: str | None
    started_at: float
    ended_at: float | None = None
    status: Status = "running"
    stdout: str = ""
    stderr: str = ""
    exception: ExceptionInfo | None = None
    events: tuple[Event, ...] = ()
    state_diff: NamespaceDiff = field(default_factory=NamespaceDiff)
    artifacts: tuple[Artifact, ...] = ()
    cost: Cost = field(default_factory=Cost)
    cut: Mapping[str, int] = field(default_factory=dict[str, int])
    """Bytes left out, by stream; empty where nothing was cut."""
    late: Mapping[str, str] = field(default_factory=dict[str, str])
    """Output that arrived after the end (threads, children), by stream."""
    notices: tuple[str, ...] = ()
    """What ctxkernel did less of in this turn, and why."""


def fingerprint(source: str, environment: Mapping[str, Json]) -> str:
    """Return `sha256:<16 hex>` of the source and what it ran in (seed 002 §3.1)."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogatepass"))
    for key in sorted(environment):
        digest.update(f"\0{key}={environment[key]}".encode("utf-8", "surrogatepass"))
    return "sha256:" + digest.hexdigest()[:16]


def statement_to_json(statement: Statement, executions: tuple[Execution, ...]) -> dict[str, Json]:
    """Return the timeline schema's object for one statement (`docs/schemas.md`)."""
    return {**plain(statement), "executions": [execution_to_json(e) for e in executions]}


def execution_to_json(execution: Execution) -> dict[str, Json]:
    """Return the timeline schema's object for one execution."""
    out: dict[str, Any] = plain(execution)
    out["events"] = [event_to_json(event) for event in execution.events]
    return out


class StatementLog:
    """The append-only tree of executions, and HEAD.

    Holds: index is the position of the statement, from 1; HEAD is an execution's id or None.
    """

    def __init__(self) -> None:
        self._statements: list[Statement] = []
        self._executions: dict[str, list[Execution]] = {}
        self._by_id: dict[str, Execution] = {}
        self._offset = 0
        self.head: str | None = None

    def start_after(self, index: int) -> None:
        """Begin a new root whose first statement has `index + 1` (an earlier kernel wrote the others)."""
        if self._statements:
            raise CtxError("start_after is for an empty log; this one has statements")
        self._offset = index

    def __len__(self) -> int:
        return len(self._statements)

    def __iter__(self) -> Iterator[Statement]:
        return iter(self._statements)

    @property
    def last(self) -> Statement | None:
        """The newest statement, or None."""
        return self._statements[-1] if self._statements else None

    @property
    def next_index(self) -> int:
        """The index that the next statement will have."""
        return self._offset + len(self._statements) + 1

    def executions(self, statement_id: str) -> tuple[Execution, ...]:
        """The executions of one statement, oldest first."""
        return tuple(self._executions.get(statement_id, ()))

    def execution(self, execution_id: str) -> Execution:
        """The execution of that id. Raises KeyError."""
        return self._by_id[execution_id]

    def statement(self, statement_id: str) -> Statement:
        """The statement of that id. Raises KeyError."""
        index = int(statement_id.removeprefix("s")) if statement_id[1:].isdecimal() else 0
        position = index - self._offset - 1
        if not 0 <= position < len(self._statements):
            raise KeyError(statement_id)
        return self._statements[position]

    def append(self, statement: Statement, execution: Execution) -> None:
        """Add a statement with its first, running execution, and move HEAD to it."""
        self._statements.append(statement)
        self._executions[statement.statement_id] = [execution]
        self._by_id[execution.execution_id] = execution
        self.head = execution.execution_id

    def finish(self, execution: Execution) -> None:
        """Put the ended execution in the place of the running one."""
        open_one = self._by_id[execution.execution_id]
        if open_one.status != "running":
            raise CtxError(f"execution {execution.execution_id} has already ended as {open_one.status}")
        self._put(execution)

    def replace_late(self, execution_id: str, late: Mapping[str, str]) -> None:
        """Fold output that came after its end into an execution: facts added, none changed."""
        self._put(dataclasses.replace(self._by_id[execution_id], late=late))

    def _put(self, execution: Execution) -> None:
        runs = self._executions[execution.statement_id]
        ids = [run.execution_id for run in runs]
        runs[ids.index(execution.execution_id)] = execution
        self._by_id[execution.execution_id] = execution
