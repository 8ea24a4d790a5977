"""The values of one turn, frozen: the loop makes them for projection, store and panel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.ports import Expired, Picture, TableRow, VariableLine
from ctxkernel.core.replay import CheckpointInfo, Comparison, HeadMove, Restored
from ctxkernel.core.text import format_table
from ctxkernel.core.timeline import Artifact, Cost, ExceptionInfo, Execution, NamespaceDiff, Statement, Status
from ctxkernel.core.timeline_events import NONE, Event, Json

DeltaKind = Literal["variable", "node", "tick", "error", "file", "late", "notice", "divergence"]


@dataclass(frozen=True, slots=True)
class DeltaItem:
    """One line of the delta feed: a change, and the statement that made it."""

    statement_id: str
    kind: DeltaKind
    subject: str
    """Name of the variable, handle or file."""
    summary: str
    """One line, at most 200 characters."""
    text: str = ""
    """A bounded unified diff of the rendering of a view, where there is one."""


@dataclass(frozen=True, slots=True)
class HandleState:
    """A node after the tick."""

    name: str
    """The user's name for it, or its obj_id where it has none (a member of a group)."""
    obj_id: str
    obj_type: str
    statement_id: str
    """The statement that made it."""
    digest: Mapping[str, Json]
    """`GetDigest()`: target, mode, freq, lod, tokens, pos, revision, … (small, JSON)."""
    text: str
    """Its rendering at its own policy, within its own budget."""
    rendered_tokens: int
    pinned: bool
    pin_reason: str
    changed: bool
    """Whether it changed in this turn."""
    requested: bool
    """Whether `show(...)` requested its content since the last answer of a model."""
    members: tuple[str, ...] = ()
    """obj_ids of a group's members; empty for a view."""
    notes: tuple[str, ...] = ()
    picture: Picture | None = None
    """The picture shown beside the text; `rendered_tokens` counts it."""
    rows: Mapping[str, TableRow] = field(default=NONE, repr=False, compare=False)
    """The lines of the text that are rows of tables."""


class HandleTable(tuple[HandleState, ...]):
    """The handles, and a table of them as text: `ls()` returns it."""

    __slots__ = ()

    def rows(self) -> list[list[str]]:
        """Return the table, its head first."""
        rows = [["name", "id", "type", "target", "lod", "size", "budget", "state"]]
        for state in self:
            digest = state.digest
            mode = f"running {digest['freq']}" if digest["mode"] == "running" else "paused"
            marks = [mode, *(["pinned"] if state.pinned else []), *(["changed"] if state.changed else [])]
            target = str(digest["target"])
            rows.append(
                [
                    state.name,
                    state.obj_id,
                    state.obj_type,
                    target if len(target) <= 60 else "…" + target[-59:],
                    str(digest["lod"]),
                    f"~{state.rendered_tokens}",
                    str(digest["tokens"]),
                    ", ".join(marks),
                ]
            )
        return rows

    def __repr__(self) -> str:
        if not self:
            return "no handles yet; make one with view(path) or view(df)"
        return format_table(self.rows())

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Turn:
    """The state after the tick: all that a projection is built from.

    Holds: `history` is the path from the root to HEAD, oldest first. It grows at its end while HEAD moves forward;
    after a move of HEAD it is another list.
    """

    history: Sequence[tuple[Statement, Execution]]
    handles: tuple[HandleState, ...]
    variables: tuple[VariableLine, ...]
    """The user's variables, newest change first: at most `Settings.variable_rows` imported ones, and as many others."""
    variables_total: int
    deltas: tuple[DeltaItem, ...]
    """Changes since the model was last asked, or HEAD moved; most important first."""
    records: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    """Execution → the events of the model's history that were recorded with it, in order. The lists only grow."""
    coarser: Callable[[str, int], str | None] = lambda obj_id, lod: None
    """Returns the text of a handle at another level of detail, None where there is none. It changes nothing."""
    cache_cold: bool = True
    """Whether the provider's cache holds nothing of this session: no request was sent in the last minutes."""
    pending: Collection[str] = ()
    """Ids of the model's calls without a result yet: they wait for the user, or run."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A finished turn, for the store and the panel."""

    turn_id: int
    statement: Statement
    execution: Execution
    handles: tuple[HandleState, ...]
    deltas: tuple[DeltaItem, ...]
    events: tuple[Event, ...]
    """All events of the turn, those of the tick included."""
    projection: Any = None
    """A `Projection`, or None where it could not be built (`notices` says why)."""
    notices: tuple[str, ...] = ()
    outside: tuple[Statement, Execution] | None = field(default=None)
    """The meta statement for names that changed outside of any cell, if there were any."""
    moved: HeadMove | None = None
    """The move of HEAD at the end of the statement, if any; handles and projection are those of the target."""
    checkpoint: CheckpointInfo | None = None
    """The checkpoint that was taken of the state after it, or None where there is none."""
    recorded: tuple[Any, ...] = ()
    """The events that were recorded in the model's history with this execution, those of its end included."""
    comparison: Comparison | None = None
    """The comparison with the earlier run, where it was a re-run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a statement's code."""

    status: Status
    stdout: str = ""
    stderr: str = ""
    exception: ExceptionInfo | None = None
    artifacts: tuple[Artifact, ...] = ()
    cost: Cost = field(default_factory=Cost)
    cut: Mapping[str, int] = NONE
    notices: tuple[str, ...] = ()

    def ended(self, running: Execution, now: float, **more: Any) -> Execution:
        """Return `running` as it ended at `now` with this outcome; `more` are further fields."""
        facts = {name: getattr(self, name) for name in self.__slots__}
        return dataclasses.replace(running, ended_at=now, **{**facts, **more})


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A running statement; `outside` is the meta statement that was written before it, if any."""

    statement: Statement
    execution: Execution
    outside: tuple[Statement, Execution] | None


class Variables(NamedTuple):
    """The rows of the variable table."""

    rows: tuple[VariableLine, ...] = ()
    total: int = 0
    """The number of variables; the table may have fewer rows."""


class Changes(NamedTuple):
    """The delta feed."""

    deltas: tuple[DeltaItem, ...] = ()
    """The lines of this turn."""
    untold: tuple[DeltaItem, ...] = ()
    """The lines of all turns since the model was last asked."""


Observe = Callable[[Execution], Iterable[Any]]
"""Returns the events of the model's history that follow from how an execution ended."""


NO_EXECUTION = Execution("", "", None, 0.0)
"""Placeholder for an execution that has not ended yet."""


@dataclass(slots=True)
class TurnEnding:
    """The record of a turn that ends: the arguments of `Loop.end`, then the results of its steps."""

    turn: OpenTurn
    outcome: Outcome
    now: float
    expired: Expired = lambda: False
    move: HeadMove | None = None
    restored: Restored = field(default_factory=Restored)
    observe: Observe = lambda execution: ()
    notices: list[str] = field(default_factory=list[str])
    """Notices for the user; every step may add some."""
    diff: NamespaceDiff = field(default_factory=NamespaceDiff)
    ticked: Sequence[str] = ()
    """Notices of the tick."""
    execution: Execution = field(default=NO_EXECUTION)
    moved: HeadMove | None = None
    """The move, if it took place."""
    handles: tuple[HandleState, ...] = ()
    changes: Changes = field(default_factory=Changes)
    variables: Variables = field(default_factory=Variables)
    state: Turn = Turn((), (), (), 0, ())
    tended: Sequence[str] = ()
    """Notices of the model's history."""
    projection: Any = None


class Projector(Protocol):
    """Builds projections (`projection.engine`)."""

    def tend(self, turn: Turn, moment: str) -> Sequence[Any]:
        """Return the events to record in the model's history before it is projected: repairs, a condensation.

        `moment` is `load`, `rewind` or `request`.
        """
        ...

    def project(self, turn: Turn) -> Any:
        """Return the frozen projection after `turn`."""
        ...
