"""The timeline: statements, executions, the log and HEAD.

Rule 1: a Statement is immutable. An Execution is replaced once, when it ends; later only what is found late is added.
Rule 2: the log is append-only; a return moves HEAD and rewrites nothing (law 2).
Rule 3: no clock here: times are Unix seconds (UTC), given as arguments.
The fields are those of seed 002 §3, with author, cell and parents added.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import CtxError
from ctxkernel.core.timeline_events import NONE, Event, Json

Kind = Literal["python", "meta", "parameters", "injected-parameters"]
"""`meta` is a command or a gesture. papermill tags cells as `parameters` (defaults) and `injected-parameters`."""
PARAMETERS: tuple[Kind, ...] = ("parameters", "injected-parameters")
Author = Literal["human", "model", "panel", "agent"]
Status = Literal["running", "ok", "error", "timeout", "cancelled", "imported"]
"""`imported`: it did not run here; its outputs, and its error if there is one, are those of a notebook's file."""


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """A variable: Python type name, truncated repr, best-effort size (a hint, not a sum)."""

    type: str
    repr: str
    size: Mapping[str, Json] = NONE
    """Any of `bytes` (int), `len` (int), `shape` (list of int)."""


@dataclass(frozen=True, slots=True)
class ChangeInfo:
    """A variable that changed: `rebound` to another object, or `mutated` in place."""

    type: str
    repr: str
    size: Mapping[str, Json] = NONE
    how: Literal["rebound", "mutated"] = "rebound"
    before: str = ""
    """The truncated repr before the change; empty where none was kept."""


@dataclass(frozen=True, slots=True)
class NamespaceDiff:
    """The changes of the user's names by a statement (seed 002 §3.2)."""

    added: Mapping[str, TypeInfo] = NONE
    changed: Mapping[str, ChangeInfo] = NONE
    deleted: tuple[str, ...] = ()
    incomplete: str = ""
    """Why changes may be missing: a step failed, or variables are still being compared. Empty: none are."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.deleted)


@dataclass(frozen=True, slots=True)
class ExceptionInfo:
    """The failure of a statement: the type's name, its message, and a short trace without ANSI codes."""

    type: str
    message: str
    trace_summary: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """A rich output of a statement (by MIME type), a file that it wrote, or a file that it read.

    A `picture` is what a model is sent instead of the image of the display of that name: the image scaled down, or a
    `text/plain` that says why there is none. The `order` is that of the outputs, where it is not the usual one.
    `displays` has the identifiers and metadata of displays, and the updates of displays of earlier cells.

    `data` is the payload as in a Jupyter message (text, base64, or JSON), None where it is over the limit or a file;
    `size` is in bytes; `hash` is `sha256:<hex>`, or empty when too large (of a file that was read: `xxh3:<hex>`, or
    `stat:<mtime in ns>:<size>` where the content was not read).
    """

    kind: Literal["display", "file", "read", "picture", "order", "displays"]
    name: str
    mime: str
    size: int
    hash: str
    data: Json = None

    @property
    def arranges(self) -> bool:
        """Return whether it tells how outputs are arranged, and is none itself."""
        return self.kind in ("order", "displays")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an execution: wall time in milliseconds, model tokens, US dollars."""

    time_ms: float = 0.0
    tokens: int | None = None
    tool_cost: float | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """One executed cell, as text."""

    statement_id: str
    """`s<index>`: short and deterministic; `%ctx goto` takes it."""
    index: int
    """Global, monotonic, from 1. Not the prompt number."""
    timestamp: float
    source: str
    kind: Kind = "python"
    author: Author = "human"
    parent_id: str | None = None
    """Statement that the first execution came after; None at a root."""
    cell_id: str | None = None
    tags: Mapping[str, Json] = NONE
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a statement. `stdout` and `stderr` are bounded copies with a marker where they are truncated."""

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
    cut: Mapping[str, int] = NONE
    """Bytes left out, by stream; empty where nothing was truncated."""
    late: Mapping[str, str] = NONE
    """Output that arrived after the end (threads, children), by stream."""
    notices: tuple[str, ...] = ()
    """Notices for the user of this turn, such as work that was skipped, and why."""
    late_diff: NamespaceDiff | None = None
    """The result of a background process for the variables that `state_diff` names as still being compared."""

    @property
    def ended_well(self) -> bool:
        """Return whether it ended without an error, here or where the notebook ran that it was imported from."""
        return self.status == "ok" or (self.status == "imported" and self.exception is None)

    @property
    def changes(self) -> NamespaceDiff:
        """The changes as they are known now: `state_diff` with `late_diff`."""
        diff, late = self.state_diff, self.late_diff
        if late is None:
            return diff
        return NamespaceDiff(diff.added, {**diff.changed, **late.changed}, diff.deleted, late.incomplete)


def statement_fingerprint(source: str, environment: str) -> str:
    """Return `sha256:<16 hex>` of a source and the `environment_text` that it ran in (seed 002 §3.1)."""
    return "sha256:" + hashlib.sha256((source + environment).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def environment_text(environment: Mapping[str, Json]) -> str:
    """Return the environment of statements as one text, for their fingerprints."""
    return "".join([f"\0{key}={environment[key]}" for key in sorted(environment)])


def statement_number(statement_id: str) -> int:
    """Return n of `s<n>`, 0 where it is none."""
    number = statement_id.removeprefix("s")
    return int(number) if number.isdecimal() else 0


def run_name(execution_id: str) -> str:
    """Return the name of a run for people: `s10` for the first run of a statement, `s10.2` for the second."""
    return execution_id.removesuffix(".1")


class _Head(Enum):
    HEAD = "HEAD"


HEAD: Final = _Head.HEAD
"""Stands for the place of HEAD. None is another place: before all statements."""

Run = tuple[Statement, Execution]
Path = list[Run]
"""Executions from a root on, each with its statement."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of executions up to a leaf."""

    leaf: str
    """Its newest execution."""
    fork: str | None
    """The last execution that it shares with another branch; None where there is none."""
    statements: tuple[str, ...]
    """Ids of the statements after the fork, oldest first; a re-run has the id of what it re-ran."""
    has_head: bool
    """Whether HEAD is on it; where several branches share the place of HEAD, only the newest has it."""


class StatementLog:
    """The append-only tree of executions, and HEAD.

    Holds: indices of statements grow from 1; HEAD is an execution's id or None; parents of executions never change.
    """

    def __init__(self) -> None:
        self._statements: list[Statement] = []
        self._named: dict[str, Statement] = {}
        self._runs: dict[str, tuple[str, ...]] = {}
        """Statement → its executions, oldest first."""
        self._by_id: dict[str, Execution] = {}
        self._children: dict[str | None, tuple[str, ...]] = {}
        """Execution → those that began where it ended."""
        self._movers: set[str] = set()
        self.records: dict[str, list[Any]] = {}
        """Execution → the events of the model's history that were recorded with it, in order."""
        self._recorded: set[str] = set()
        self._offset = 0
        self.head: str | None = None

    def start_after(self, index: int) -> None:
        """Begin a new root whose first statement has the index `index + 1`; an earlier kernel wrote the others."""
        if self._statements:
            raise CtxError("start_after is for an empty log; this one has statements")
        self._offset = index

    def load(
        self,
        statements: Iterable[tuple[Statement, Sequence[Execution]]],
        head: str | None,
        *,
        movers: Iterable[str] = (),
        records: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """Load the timeline of an earlier kernel into this empty log, statements in the order of their indices.

        `start_after` may be called before, for roots that are not loaded. `movers` are the
        executions that moved HEAD, `records` the model's history by execution. Raises CtxError for a log with
        statements, KeyError for an unknown `head`.
        """
        if self._statements:
            raise CtxError("load is for an empty log; this one has statements")
        found = [(statement, tuple(runs)) for statement, runs in statements]
        known = {run.execution_id for _, runs in found for run in runs}
        if head is not None and head not in known:
            raise KeyError(head)
        runs: list[Execution] = []
        offset, self._offset = self._offset, 0
        for statement, of_it in sorted(found, key=lambda pair: pair[0].index):
            self._add(statement)
            runs += of_it
        # A re-run of an early statement follows the first run of a late one.
        for run in sorted(runs, key=lambda run: run.started_at):
            self._add_execution(run)
        self._runs = {name: tuple(sorted(of_it, key=_number)) for name, of_it in self._runs.items()}
        self._offset = offset
        self._movers.update(known.intersection(movers))
        for execution_id in known.intersection(records or ()):
            self.records[execution_id] = list((records or {})[execution_id])
            self._recorded.update(event.event_id for event in self.records[execution_id])
        self.head = head

    def __len__(self) -> int:
        return len(self._statements)

    def __iter__(self) -> Iterator[Statement]:
        return iter(self._statements)

    def __contains__(self, execution_id: object) -> bool:
        """Return whether an execution of that id is here."""
        return execution_id in self._by_id

    @property
    def last(self) -> Statement | None:
        """The newest statement, or None."""
        return self._statements[-1] if self._statements else None

    @property
    def next_index(self) -> int:
        """The index that the next statement will have."""
        return max(self._offset, self._statements[-1].index if self._statements else 0) + 1

    @property
    def movers(self) -> frozenset[str]:
        """The executions that only moved HEAD."""
        return frozenset(self._movers)

    @property
    def executed(self) -> int:
        """The number of executions."""
        return len(self._by_id)

    def next_execution_id(self, statement_id: str) -> str:
        """Return the id that the next execution of a statement will have. Raises KeyError."""
        return f"{statement_id}.{max(map(_number, self._runs[statement_id]), default=0) + 1}"

    def executions(self, statement_id: str) -> tuple[Execution, ...]:
        """Return the executions of one statement, oldest first."""
        return tuple([self._by_id[run] for run in self._runs.get(statement_id, ())])

    def execution(self, execution_id: str) -> Execution:
        """Return the execution of that id. Raises KeyError."""
        return self._by_id[execution_id]

    def statement(self, statement_id: str) -> Statement:
        """Return the statement of that id. Raises KeyError."""
        return self._named[statement_id]

    def get(self, statement_id: str) -> Statement | None:
        """Return the statement of that id, or None."""
        return self._named.get(statement_id)

    def append(self, statement: Statement, execution: Execution) -> None:
        """Add a statement with its first, running execution, and move HEAD to it."""
        self._add(statement)
        self._add_execution(execution)
        self.head = execution.execution_id

    def append_execution(self, execution: Execution) -> None:
        """Add one more running execution of a statement that is here, and move HEAD to it.

        Raises KeyError for an unknown statement or parent, CtxError for an id that is not the next one.
        """
        expected = self.next_execution_id(execution.statement_id)
        if execution.execution_id != expected:
            raise CtxError(f"execution {execution.execution_id} cannot be appended; the next one is {expected}")
        if execution.parent_execution_id is not None and execution.parent_execution_id not in self._by_id:
            raise KeyError(execution.parent_execution_id)
        self._add_execution(execution)
        self.head = execution.execution_id

    def graft(self, statement: Statement, execution: Execution) -> None:
        """Add an execution that ended elsewhere, after one that is here; HEAD stays.

        `statement` may be here already. Raises KeyError for an unknown parent, CtxError for an id that is not the next
        one, or an execution that runs.
        """
        parent = execution.parent_execution_id
        if parent is not None and parent not in self._by_id:
            raise KeyError(parent)
        if execution.status == "running":
            raise CtxError(f"execution {execution.execution_id} has not ended: it cannot be added")
        if self._named.get(statement.statement_id) is None:
            self._add(statement)
        expected = self.next_execution_id(statement.statement_id)
        if execution.execution_id != expected:
            raise CtxError(f"execution {execution.execution_id} cannot be added; the next one is {expected}")
        self._add_execution(execution)

    def record(self, execution_id: str, event: Any) -> None:
        """Add an event of the model's history to an execution.

        Raises KeyError for an unknown one, CtxError for an event whose id is recorded already.
        """
        if event.event_id in self._recorded:
            raise CtxError(f"event {event.event_id} is recorded already; each has an id of its own (next_event_id)")
        self._recorded.add(event.event_id)
        self.records.setdefault(self._by_id[execution_id].execution_id, []).append(event)

    def _add(self, statement: Statement) -> None:
        if statement.index < self.next_index:
            raise CtxError(f"statement {statement.statement_id} is not after {self.next_index - 1}: a log only grows")
        self._statements.append(statement)
        self._named[statement.statement_id] = statement
        self._runs[statement.statement_id] = ()

    def _add_execution(self, execution: Execution) -> None:
        parent = execution.parent_execution_id
        statement_id, execution_id = execution.statement_id, execution.execution_id
        self._runs[statement_id] = (*self._runs[statement_id], execution_id)
        self._by_id[execution_id] = execution
        self._children[parent] = (*self._children.get(parent, ()), execution_id)

    def finish(self, execution: Execution) -> None:
        """Replace the running execution by the ended one."""
        open_one = self._by_id[execution.execution_id]
        if open_one.status != "running":
            raise CtxError(f"execution {execution.execution_id} has already ended as {open_one.status}")
        if execution.parent_execution_id != open_one.parent_execution_id:
            raise CtxError(f"execution {execution.execution_id} began after {open_one.parent_execution_id}")
        self._by_id[execution.execution_id] = execution

    def replace_late(self, execution_id: str, late: Mapping[str, str]) -> None:
        """Replace the late output of an execution; its other fields stay."""
        self._by_id[execution_id] = dataclasses.replace(self._by_id[execution_id], late=late)

    def add_late_diff(self, execution_id: str, diff: NamespaceDiff) -> Execution:
        """Add the changes of an execution that were found after its end, and return it. Raises KeyError."""
        made = self._by_id[execution_id] = dataclasses.replace(self._by_id[execution_id], late_diff=diff)
        return made

    def move_head(self, execution_id: str | None, *, by: str | None = None) -> None:
        """Move HEAD to an execution, or before all of them. Raises KeyError for an unknown one.

        `by` is the execution that requested the move, if any: it did nothing else, so it makes no branch.
        """
        if unknown := {execution_id, by} - {None} - self._by_id.keys():
            raise KeyError(*unknown)
        self.head = execution_id
        if by is not None:
            self._movers.add(by)

    def ended(self) -> Path:
        """Return the executions that have ended, in the order in which they began."""
        runs = [(s, e) for s in tuple(self) for e in self.executions(s.statement_id) if e.status != "running"]
        return sorted(runs, key=lambda run: run[1].started_at)

    def path(self, execution_id: str | Literal[_Head.HEAD] | None = HEAD) -> Path:
        """Return the executions that lead to one (the default is HEAD), that one last. Raises KeyError."""
        return [*self.back(self.head if execution_id is HEAD else execution_id)][::-1]

    def paths(self, execution_ids: Iterable[str | None]) -> Iterator[Path]:
        """Yield the path of each execution; a part that it shares with the one before it is not walked again."""
        path, places = list[Run](), dict[str, int]()
        for execution_id in execution_ids:
            own, shared = list[Run](), 0
            for run in self.back(execution_id):
                at = places.get(run[1].execution_id, len(path))
                if at < len(path) and path[at][1] is run[1]:
                    shared = at + 1
                    break
                own.append(run)
            path = [*path[:shared], *reversed(own)]
            places |= {run.execution_id: at for at, (_, run) in enumerate(path[shared:], shared)}
            yield path

    def back(self, execution_id: str | None) -> Iterator[Run]:
        """Yield an execution and those that lead to it, newest first. Raises KeyError."""
        at, left = self._by_id[execution_id] if execution_id is not None else None, len(self._by_id)
        while at is not None and left:  # a damaged session may have a cycle, or the parent was not loaded
            yield self._named[at.statement_id], at
            at, left = self._by_id.get(at.parent_execution_id or ""), left - 1

    def children(self, execution_id: str | None) -> tuple[Execution, ...]:
        """Return the executions that began where this one ended, oldest first; of None, those of the roots.

        Raises KeyError for an unknown one.
        """
        if execution_id is not None:
            return self._after(self._by_id[execution_id].execution_id)
        lost = [parent for parent in self._children if parent is not None and parent not in self._by_id]
        return tuple(run for parent in (None, *lost) for run in self._after(parent))

    def _after(self, execution_id: str | None) -> tuple[Execution, ...]:
        return tuple(self._by_id[child] for child in self._children.get(execution_id, ()))

    def branches(self) -> tuple[Branch, ...]:
        """Return the branches, the one with the newest leaf last. Executions that only moved HEAD make no branch."""
        follow = {parent: [one for one in after if self._counts(one)] for parent, after in self._children.items()}
        after_head = [self.head] if self.head is not None else []
        for before in after_head:  # the list grows until it has all that follows HEAD
            after_head += [one for one in self._children.get(before, ()) if one != self.head]
        below = set(after_head)
        found: list[Branch] = []
        for leaf in self._by_id:
            if not self._counts(leaf) or follow.get(leaf):
                continue
            own: dict[str, str] = {}
            at: str | None = leaf
            while at is not None and at in self._by_id and at not in own and (at == leaf or len(follow[at]) < 2):
                own[at] = self._by_id[at].statement_id
                at = self._by_id[at].parent_execution_id
            fork = at if at in self._by_id and at not in own else None
            found.append(Branch(leaf, fork, tuple(reversed(own.values())), leaf in below))
        newest = max((at for at, branch in enumerate(found) if branch.has_head), default=-1)
        return tuple(dataclasses.replace(b, has_head=at == newest) for at, b in enumerate(found))

    def _counts(self, execution_id: str) -> bool:
        """Return whether an execution makes a branch: not if it only moved HEAD and nothing follows."""
        return execution_id not in self._movers or execution_id in self._children or execution_id == self.head

    def newest_execution(self, statement_id: str, prefer: Path | None = None) -> Execution:
        """Return the execution of a statement that lies on `prefer`, else its newest one. Raises KeyError."""
        for statement, execution in reversed(prefer or []):
            if statement.statement_id == statement_id:
                return self._by_id[execution.execution_id]
        return self._by_id[self._runs[statement_id][-1]]


def _number(execution_id: str) -> int:
    """Return n of `s3.<n>`, 0 where it is none."""
    number = execution_id.rpartition(".")[2]
    return int(number) if number.isdecimal() else 0
