"""One turn, from `begin(source)` to a frozen TurnResult. Start reading here.

    begin   the statement enters the log, running; names that changed outside of any cell get one of their own
    (the kernel runs the code; handles record what is done to them)
    end     namespace diff → tick (ready, sync, periodic, groups) → projection → TurnResult

Rule 1: no clock, I/O, thread or Jupyter: times, outcomes and ports come in as arguments.
Rule 2: each step is guarded on its own; a fault in one costs that step, never the turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from ctxkernel.core.delta import format_deltas, one_line
from ctxkernel.core.errors import BadTarget
from ctxkernel.core.events import Event, EventBus, Json, MethodCalled, NodeChanged, StatementExecuted
from ctxkernel.core.nodes import Graph, GroupHandle, NodeBase, ViewHandle
from ctxkernel.core.nodes.base import Delta, show_value
from ctxkernel.core.ports import (
    Budget,
    CountTokens,
    Expired,
    OpenSource,
    Projector,
    Rendered,
    Tracker,
    Trim,
    VariableLine,
)
from ctxkernel.core.scheduler import ReadyQueue, Tick, run
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import (
    Artifact,
    Author,
    Cost,
    ExceptionInfo,
    Execution,
    Kind,
    NamespaceDiff,
    Statement,
    StatementLog,
    Status,
    TypeInfo,
    fingerprint,
)
from ctxkernel.core.turn import HandleState, HandleTable, Turn, TurnResult

T = TypeVar("T")
Guard = Callable[[str, Callable[[], T], T], T]
"""guard(step, run, otherwise): returns run(), or `otherwise` where it failed or is switched off."""


_LOOKED_AT = 4
"""So many times the rows of the variable table are looked at, newest first, to fill it."""
_LIBRARY_TYPES = frozenset({"module", "builtin_function_or_method", "numpy.ufunc"})

OFF = NamespaceDiff(incomplete="the namespace diff is off")


def no_guard(step: str, run: Callable[[], T], otherwise: T) -> T:
    """Let faults through: for tests, and where nobody's cell is at stake."""
    return run()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the code of a statement ended, as the kernel saw it."""

    status: Status
    stdout: str = ""
    stderr: str = ""
    exception: ExceptionInfo | None = None
    artifacts: tuple[Artifact, ...] = ()
    cost: Cost = field(default_factory=Cost)
    cut: Mapping[str, int] = field(default_factory=dict[str, int])
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A statement that began; `outside` is the meta statement written before it, if any."""

    statement: Statement
    execution: Execution
    outside: tuple[Statement, Execution] | None


class Loop:
    """The turns of one session."""

    def __init__(
        self,
        *,
        namespace: Mapping[str, Any],
        tracker: Tracker,
        projector: Projector,
        open_source: OpenSource,
        count_tokens: CountTokens,
        trim: Trim,
        settings: Settings | None = None,
        environment: Mapping[str, Json] | None = None,
        guard: Guard[Any] = no_guard,
        mask_value: Callable[[str, str], str] = lambda name, value: value,
    ) -> None:
        self.settings = settings or Settings()
        self.log = StatementLog()
        self.bus = EventBus()
        self.ready = ReadyQueue()
        self.graph = Graph(
            settings=self.settings, bus=self.bus, open_source=open_source, count_tokens=count_tokens, trim=trim
        )
        self.prepare: Callable[[ViewHandle], None] | None = None
        self.turn_id = 0
        self.now = 0.0
        self.projection: Any = None
        self._namespace = namespace
        self._tracker = tracker
        self._projector = projector
        self._environment = environment or {}
        self._guard = guard
        self._mask_value = mask_value
        self._events: list[Event] = []
        self.bus.subscribe(self._events.append)
        self._open: OpenTurn | None = None
        self._history: list[tuple[Statement, Execution]] = []
        self._handle_names: dict[str, str] = {}
        self._changed_by: dict[str, str] = {}
        self._late: dict[str, str] = {}
        self._lines: dict[str, tuple[TypeInfo, VariableLine]] = {}
        self._table: tuple[VariableLine, ...] | None = None

    # -- the turn -----------------------------------------------------------------------------

    def begin(
        self,
        source: str,
        *,
        now: float,
        author: Author = "human",
        kind: Kind = "python",
        cell_id: str | None = None,
        tags: Mapping[str, Json] | None = None,
    ) -> OpenTurn:
        """Append a running statement for `source`, ready for its code to run."""
        if self._open is not None:  # the kernel lost the end of a turn; close it as what it was
            self.end(
                Outcome("cancelled", exception=ExceptionInfo("LostEnd", "the end of this cell was not seen", "")), now
            )
        self.now = now
        outside = self._guard("namespace diff", lambda: self._masked(self._tracker.before(source)), NamespaceDiff())
        other = self._outside(outside, now) if outside else None
        statement, execution = self._append(source, now, kind, author, cell_id, tags or {})
        self._events.clear()
        self.graph.open(statement.statement_id)
        self._open = OpenTurn(statement, execution, other)
        return self._open

    def _append(
        self, source: str, now: float, kind: Kind, author: Author, cell_id: str | None, tags: Mapping[str, Json]
    ) -> tuple[Statement, Execution]:
        parent = self._history[-1] if self._history else None
        index = self.log.next_index
        statement = Statement(
            statement_id=f"s{index}",
            index=index,
            timestamp=now,
            source=source,
            kind=kind,
            author=author,
            parent_id=parent[0].statement_id if parent else None,
            cell_id=cell_id,
            tags=tags,
            fingerprint=fingerprint(source, self._environment),
        )
        parent_execution = parent[1].execution_id if parent else None
        execution = Execution(f"s{index}.1", statement.statement_id, parent_execution, now)
        self.log.append(statement, execution)
        return statement, execution

    def _outside(self, diff: NamespaceDiff, now: float) -> tuple[Statement, Execution]:
        """Give names that changed between two cells a meta statement of their own."""
        told = [*diff.added, *diff.changed, *diff.deleted]
        source = f"# outside a cell: {', '.join(told[:20])}{' …' if len(told) > 20 else ''}"
        statement, running = self._append(source, now, "meta", "human", None, {"outside": True})
        execution = dataclasses.replace(running, ended_at=now, status="ok", state_diff=diff)
        self._finish(statement, execution)
        return statement, execution

    def _masked(self, diff: NamespaceDiff) -> NamespaceDiff:
        """Mask values whose name or content says that they are credentials: nobody downstream sees them."""
        if not diff:
            return diff
        mask = self._mask_value
        added = {
            name: info if (safe := mask(name, info.repr)) == info.repr else dataclasses.replace(info, repr=safe)
            for name, info in diff.added.items()
        }
        changed = {
            name: dataclasses.replace(info, repr=mask(name, info.repr), before=info.before and mask(name, info.before))
            for name, info in diff.changed.items()
        }
        return dataclasses.replace(diff, added=added, changed=changed)

    def _finish(self, statement: Statement, execution: Execution) -> None:
        self.log.finish(execution)
        self._history.append((statement, execution))
        diff = execution.state_diff
        if diff or diff.incomplete:
            self._table = None
        for name in (*diff.added, *diff.changed):
            self._changed_by[name] = statement.statement_id
            value = cast("Any", self._namespace.get(name))
            if issubclass(type(value), NodeBase):  # isinstance would run a stranger's `__class__`
                self._handle_names[name] = value.obj_id
            else:
                self._handle_names.pop(name, None)
        for name in diff.deleted:
            self._changed_by.pop(name, None)
            self._handle_names.pop(name, None)

    def end(self, outcome: Outcome, now: float, expired: Expired = lambda: False) -> TurnResult:
        """Close the open statement. Raises RuntimeError where none is open."""
        if self._open is None:
            raise RuntimeError("no statement is open; call begin first")
        turn, self._open = self._open, None
        self.turn_id += 1
        self.now = now
        guard = self._guard
        diff = guard("namespace diff", lambda: self._masked(self._tracker.after(expired)), OFF)
        sid, eid = turn.statement.statement_id, turn.execution.execution_id
        notices = [*outcome.notices, *([diff.incomplete] if diff.incomplete and diff is not OFF else [])]
        tick = Tick(self.graph, self.ready, now, self.turn_id, expired, self.prepare)
        try:
            notices += guard("tick", lambda: run(tick), [])
        finally:
            self.graph.close()
        self.bus.publish(StatementExecuted(sid, eid, outcome.status))
        events = tuple(self._events)
        self._events.clear()
        execution = dataclasses.replace(
            turn.execution,
            ended_at=now,
            status=outcome.status,
            stdout=outcome.stdout,
            stderr=outcome.stderr,
            exception=outcome.exception,
            events=events,
            state_diff=diff,
            artifacts=outcome.artifacts,
            cost=outcome.cost,
            cut=outcome.cut,
            notices=tuple(notices),
        )
        self._finish(turn.statement, execution)
        if diff.incomplete and self.graph.nodes():
            guard("handles", self._scan_names, None)
        handles = guard("handles", self.handles, ())
        names = {obj_id: name for name, obj_id in self._handle_names.items()}
        late, self._late = self._late, {}
        deltas = guard("delta feed", lambda: format_deltas(execution, events, names, late), ())
        state = Turn(self._history, handles, guard("variables", self.variables, ()), self._total(), deltas)
        self.projection = guard("projection", lambda: self._projector.project(state), None)
        return TurnResult(
            self.turn_id,
            turn.statement,
            execution,
            handles,
            deltas,
            events,
            self.projection,
            tuple(notices),
            turn.outside,
        )

    def late(self, execution_id: str, stream: str, text: str, limit: int = 10_000) -> None:
        """Keep output that came after the end of its execution; told in the next delta feed.

        Raises KeyError for an execution that is not in this log.
        """
        execution = self.log.execution(execution_id)
        kept = (execution.late.get(stream, "") + text)[:limit]
        self.log.replace_late(execution_id, {**execution.late, stream: kept})
        self._late[execution.statement_id] = one_line(kept, 80)

    def _total(self) -> int:
        return self._guard("variables", lambda: self._tracker.total - len(self._handle_names), 0)

    # -- the state that a projection is built from -------------------------------------------

    def variables(self) -> tuple[VariableLine, ...]:
        """The user's variables, newest change first, handles left out.

        Where there are more than the table has rows for, what is imported gives way: one `from math import *` would
        else leave no row for the data.
        """
        if self._table is not None:  # most cells change no name
            return self._table
        old = self._lines
        lines: dict[str, tuple[TypeInfo, VariableLine]] = {}
        rows = self.settings.variable_rows
        newest = self._tracker.variables(_LOOKED_AT * rows + len(self._handle_names))
        found = [(name, info) for name, info in newest if name not in self._handle_names]
        over = len(found) - rows
        if over > 0:
            oldest_imports = [i for i in range(len(found) - 1, -1, -1) if _imported(found[i][1])][:over]
            dropped = set(oldest_imports)
            found = [row for i, row in enumerate(found) if i not in dropped][:rows]
        for name, info in found:
            by = self._changed_by.get(name, "")
            kept = old.get(name)
            if kept is None or kept[0] is not info or kept[1].statement_id != by:
                kept = info, VariableLine(name, info.type, self._mask_value(name, info.repr), info.size, by)
            lines[name] = kept
        self._lines = lines  # most cells change few names, so most lines are those of the turn before
        self._table = tuple(line for _, line in lines.values())
        return self._table

    def handles(self) -> tuple[HandleState, ...]:
        """The handles as they stand: named ones, members of their groups, and running or pinned ones."""
        nodes = self.graph.nodes()
        if not nodes:
            return ()
        names: dict[str, str] = {}
        for name, obj_id in self._handle_names.items():
            names.setdefault(obj_id, name)
        seen: dict[str, NodeBase] = {}
        for node in nodes:
            if node.obj_id in names or node.pinned or node.mode == "running" or node.obj_id in self.graph.requested:
                for one in (node, *(node.nested() if isinstance(node, GroupHandle) else ())):
                    seen.setdefault(one.obj_id, one)
        return tuple(self._handle_state(node, names) for node in sorted(seen.values(), key=lambda node: node.serial))

    def _handle_state(self, node: NodeBase, names: Mapping[str, str]) -> HandleState:
        rendered = node.rendered
        return HandleState(
            name=names.get(node.obj_id, node.obj_id),
            obj_id=node.obj_id,
            obj_type=node.obj_type,
            statement_id=node.statement_id,
            digest=node.digest(),
            text=rendered.text,
            rendered_tokens=rendered.tokens,
            pinned=node.pinned,
            pin_reason=node.pin_reason,
            changed=node.changed_in == self.graph.statement_id,
            requested=node.obj_id in self.graph.requested,
            members=tuple(member.obj_id for member in node.members) if isinstance(node, GroupHandle) else (),
            notes=(*rendered.notes, *([node.fault] if node.fault else [])),
        )

    @property
    def history(self) -> Sequence[tuple[Statement, Execution]]:
        """The path from the root to HEAD, oldest first."""
        return self._history

    # -- what the user calls -----------------------------------------------------------------

    def view(
        self,
        target: object,
        pos: object = "0:0",
        tokens: object = None,
        lod: object = 0,
        mode: object = None,
        freq: object = None,
    ) -> ViewHandle:
        """Look at a file, a directory or a Python object, at a level of detail, within a budget.

        target  path, open file, directory, data frame, array, or any other Python object
        pos     where: a line from 0, "line:col", or a token of an earlier rendering
        tokens  budget of the rendering in estimated tokens, or All
        lod     0 raw excerpt · 1 structure · 2 summary · 3 diff against the last rendering
        mode    "paused" (changes by calls only) or "running" (the tick after each cell updates it)
        freq    "Sync" each turn · ("Periodic", seconds) · "Async"; giving one sets it running

        Raises BadTarget and BadPolicy with the next move. Returns a handle: `h.lod = 1`,
        `h.set(lod=1, tokens=300).run()`, `h.scroll(50)`, `h.refresh()`, `h.pause()`.
        """
        node = ViewHandle(self.graph, target, pos=pos, tokens=tokens, lod=lod, mode=mode, freq=freq)
        return self._made(
            node, "view", (target,), {"pos": pos, "tokens": tokens, "lod": lod, "mode": mode, "freq": freq}
        )

    def group(
        self,
        *members: NodeBase,
        tokens: object = None,
        lod: object = 2,
        mode: object = None,
        freq: object = None,
    ) -> GroupHandle:
        """Summarise one or more handles within one budget; the summary follows its members.

        tokens  budget of the whole summary; lod  level at which the members are shown, whatever
        their own; groups nest. Raises BadTarget, BadPolicy, CyclicGroup.
        """
        node = GroupHandle(self.graph, members, tokens=tokens, lod=lod, mode=mode, freq=freq)
        return self._made(node, "group", members, {"tokens": tokens, "lod": lod, "mode": mode, "freq": freq})

    def _made(self, node: Any, how: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        given = {key: show_value(value) for key, value in kwargs.items() if value is not None}
        digest = node.digest()
        self.bus.publish(MethodCalled(node.obj_id, node.obj_type, how, tuple(map(show_value, args)), given, {}, digest))
        node.changed_in = self.graph.statement_id
        made = f"made, lod {node.lod}, ~{node.rendered.tokens} tokens: {node.target}"
        self.bus.publish(NodeChanged(node.obj_id, Delta(made)))
        return node

    def show(self, obj: object, lod: int | None = None, tokens: Budget | None = None) -> Rendered:
        """Return the content of a handle now, and put it into the next projection.

        lod and tokens override the handle's own, for this rendering only. Raises BadTarget.
        """
        node = _handle(obj, "show")
        rendered = node.render(lod, tokens)
        self.graph.requested.add(node.obj_id)
        return rendered

    def pin(self, obj: object, reason: str = "") -> Any:
        """Keep a handle in the projection before others; `h.unpin()` ends it. Raises BadTarget."""
        return _handle(obj, "pin").pin(reason)

    def tick(self) -> tuple[str, ...]:
        """Run the tick now, inside the cell: running handles look at their targets.

        Returns one line for each that changed. (One runs by itself after every cell.)
        """
        self.graph.check_open("tick", "run")
        mark = len(self._events)
        run(Tick(self.graph, self.ready, self.now, self.turn_id + 1, lambda: False, self.prepare))
        return tuple(f"{e.obj_id}: {e.delta.summary}" for e in self._events[mark:] if isinstance(e, NodeChanged))

    def ls(self) -> HandleTable:
        """Return the handles with their digests; shows as a table."""
        self._scan_names()
        return HandleTable(self.handles())

    def _scan_names(self) -> None:
        """Find the names of handles without the namespace diff: within a cell, or where it is off."""
        for name, obj_id in list(self._handle_names.items()):
            if getattr(self._namespace.get(name), "obj_id", None) != obj_id:
                del self._handle_names[name]
        for node in self.graph.nodes():
            if node.obj_id not in self._handle_names.values():
                for name, value in list(self._namespace.items()):
                    if value is node and not name.startswith("_"):
                        self._handle_names[name] = node.obj_id
                        break


for _name in ("view", "group", "show", "pin", "tick", "ls"):
    # The user calls `view(…)`: an error about its arguments must not speak of a `Loop.view`.
    getattr(Loop, _name).__qualname__ = _name


def _imported(info: TypeInfo) -> bool:
    """Whether a name stands for a part of a library: a module, a function in C, a class with a module in its name."""
    return info.type in _LIBRARY_TYPES or (info.repr.startswith("<class ") and "." in info.repr)


def _handle(obj: object, verb: str) -> NodeBase:
    if isinstance(obj, NodeBase):
        return obj
    raise BadTarget(f"{verb} takes a handle, and {type(obj).__name__} is none; make one: {verb}(view(…))")
