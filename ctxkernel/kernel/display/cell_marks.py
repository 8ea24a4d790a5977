"""The marks of the notebook's cells (`CellMark` of `docs/panel-protocol.md`), and the marks that changed.

Rule 1: a mark describes the newest execution of a cell that ran in the notebook, none of a sweep; `on_head` is
        the newest one on the path to HEAD.
Rule 2: the work of a turn grows with the cells whose marks change, not with the session. Only a move of HEAD reads all.
Rule 3: what is told of a turn has at most `MOST_TOLD` bytes.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.replay import CheckpointInfo, Comparison
from ctxkernel.core.text import one_line
from ctxkernel.core.timeline import Execution, Run, Statement, StatementLog
from ctxkernel.kernel.display.mark_table import MarkChange, mark_table
from ctxkernel.replay.dependencies import GONE, MOST_REASONS, DependencyGraph
from ctxkernel.replay.dependency_nodes import CellRun, Freshness

if TYPE_CHECKING:
    from ctxkernel.kernel.messages.cells import CellMark, CellState, CellTable

MOST_TOLD = 3000
"""Most bytes of the marks in a message; a page asks for the rest."""
FILES = 32
"""Files that cells read and that are looked at after each turn: the newest."""


@dataclass(frozen=True, slots=True)
class CellQueries:
    """The questions of the marks to the other parts of the kernel."""

    info: Callable[[str], CheckpointInfo | None]
    """Execution → the checkpoint after it."""
    run: Callable[[Statement, Execution], CellRun]
    """Returns the reads and writes of an execution."""
    marks: Callable[[], Mapping[str, str]]
    """Returns the marks of a person: statement or cell → `differs` or `asks`."""
    swept: Callable[[], Collection[str]]
    """Returns the executions of sweeps, whose outputs the notebook does not have."""
    uncertain: Callable[[], tuple[str | None, tuple[str, ...]]]
    """Returns the place of the last return, and the names that it could not restore."""
    file_version: Callable[[str], str]
    """Path → the version of the file now; empty if it is gone."""


@dataclass(slots=True)
class _WatchedFile:
    path: str
    stamp: tuple[int, int] | None = None


@dataclass(eq=False)
class CellMarks:
    """Keeps the marks of all cells."""

    current_log: Callable[[], StatementLog]
    """Returns the log; a resume replaces it."""
    queries: CellQueries
    graph: DependencyGraph = field(default_factory=DependencyGraph)
    before: dict[str, str] = field(default_factory=dict[str, str])
    """Cell → a cell that ran earlier and stands below it in the notebook, as a page told."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Execution → the number of its prompt."""
    _marks: dict[str, CellMark] = field(default_factory=dict[str, "CellMark"])
    _told: dict[str, CellMark] = field(default_factory=dict[str, "CellMark"])
    """The marks that the messages told, as the last one left them."""
    _numbers: dict[str, int] = field(default_factory=dict[str, int])
    """Cell → its number in the messages."""
    _named: int = 0
    """The number of cells that the messages named."""
    _unsent: set[str] = field(default_factory=set[str])
    _newest: dict[str, Run] = field(default_factory=dict[str, Run])
    _on_head: dict[str, str] = field(default_factory=dict[str, str])
    _at: str | None = None
    """The last execution of the path that the graph has."""
    _later: frozenset[str] = frozenset()
    """The executions that continue from HEAD: after a return, those that were left."""
    _due: set[str] = field(default_factory=set[str])
    """Cells whose marks are made anew."""
    _files: OrderedDict[str, _WatchedFile] = field(default_factory=OrderedDict[str, _WatchedFile])
    _diverged: dict[str, str] = field(default_factory=dict[str, str])
    """Execution → how it differs from the one that it repeats."""
    _person: Mapping[str, str] = field(default_factory=dict[str, str])
    _known: StatementLog | None = None
    """The timeline of the graph."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def log(self) -> StatementLog:
        """The log of the session."""
        return self.current_log()

    def all(self) -> CellTable:
        """Return the marks of all cells."""
        with self._lock:
            self._update()
            return self._table(self._marks, ids=list(self._numbers))

    def of(self, cells: Iterable[str]) -> CellTable:
        """Return the marks of some cells, with their reasons."""
        with self._lock:
            self._update()
            return self._table([cell for cell in cells if cell in self._marks])

    def place(self, cell: str, before: str) -> CellTable:
        """Note that a cell stands above another one in the notebook; return the marks of all if that changes some."""
        with self._lock:
            self._update()
            known = cell in self._on_head and before in self._on_head
            if not known or self.graph.stands_above(cell, before):
                return self._table(())
            self.before[cell] = before
            self._known = None
            self._update()
            for one in self._unsent:  # only this page has them: the next message contains them whole
                self._told.pop(one, None)
            return self._table(self._marks, ids=list(self._numbers))

    def changed(self) -> CellTable:
        """Return the marks that changed since the last call."""
        with self._lock:
            self._update()
            changes = [MarkChange(self._numbers[one], self._marks[one], self._told.get(one)) for one in self._unsent]
            first = self._named
            new = list(islice(self._numbers, first, None))
            self._note_told()
            return mark_table(changes, ids=new, first=first, limit=MOST_TOLD)

    def forget_changes(self) -> None:
        """Tell nobody of what changed until now: the first page takes all marks."""
        with self._lock:
            self._update()
            self._note_told()

    def _note_told(self) -> None:
        self._told |= {cell: self._marks[cell] for cell in self._unsent}
        self._unsent, self._named = set(), len(self._numbers)

    def _table(self, cells: Iterable[str], *, ids: Sequence[str] = ()) -> CellTable:
        return mark_table([MarkChange(self._numbers[cell], self._marks[cell]) for cell in cells], ids=ids)

    def current_graph(self, *, every_file: bool = False) -> DependencyGraph:
        """Return the graph of the path to HEAD; `every_file`: look at all files that its cells read."""
        with self._lock:
            self._update(every_file=every_file)
            return self.graph

    def compared(self, comparison: Comparison) -> None:
        """Note the result of a re-run. A difference that follows from an edit or a changed input is no divergence."""
        first = next((one for one in comparison.differences if one.cause not in ("edited", "upstream")), None)
        if comparison.expected or first is None:
            self._diverged.pop(comparison.execution_id, None)
            return
        cause = f" ({first.cause})" if first.cause else ""
        self._diverged[comparison.execution_id] = f"{first.subject}: {one_line(first.summary, 100)}{cause}"

    def look_again(self, execution_id: str) -> None:
        """Make the mark of an execution's cell anew: its checkpoint changed."""
        if execution_id not in self.log:
            return
        execution = self.log.execution(execution_id)
        statement = self.log.statement(execution.statement_id)
        if statement.cell_id is not None:
            self._due.add(statement.cell_id)
        self.graph.amend(self.queries.run(statement, execution))

    # -- keeping up -------------------------------------------------------------------------------

    def _update(self, *, every_file: bool = False) -> None:
        if replaced := self.log is not self._known:
            self._known, self._at = self.log, None
            self._start_anew()
        new, follows = self._new_executions()
        if not follows:
            self._start_anew()
        if replaced or not follows or (new and self._later):
            self._find_later()
        anchor, uncertain = self.queries.uncertain()
        for statement, execution in new:
            self._take(statement, execution)
            if execution.execution_id == anchor and uncertain:
                self.graph.doubt(uncertain, "could not be restored")
        self._look_at_files(every_file=every_file)
        self._due |= self.graph.take_changed()
        person = self.queries.marks()
        if person != self._person:
            subjects = {one for one, _ in {*person.items()} ^ {*self._person.items()}}
            self._due |= {cell for one in subjects if (cell := self._subject(one)) is not None}
            self._person = dict(person)
        due, self._due = self._due, set()
        for cell in due:
            if (run := self._newest.get(cell)) is not None and (mark := self._mark(cell, *run)) != self._marks.get(
                cell
            ):
                self._marks[cell] = mark
                self._unsent.add(cell)

    def _subject(self, subject: str) -> str | None:
        statement = self.log.get(subject)
        return statement.cell_id if statement is not None else subject

    def _new_executions(self) -> tuple[list[Run], bool]:
        """Return the ended executions of the path that the graph lacks; whether they come after those that it has."""
        log, new, at = self.log, list[Run](), self.log.head
        while at is not None and at != self._at and at in log and len(new) <= log.executed:
            execution = log.execution(at)
            if execution.status != "running":
                new.append((log.statement(execution.statement_id), execution))
            at = execution.parent_execution_id
        new.reverse()
        return new, at == self._at

    def _start_anew(self) -> None:
        """Forget the graph: HEAD has moved."""
        self.graph, self._on_head, self._at = DependencyGraph(before=self.before), {}, None
        self._files.clear()
        others = self.log.movers.union(self.queries.swept())
        for statement in tuple(self.log):
            runs = self.log.executions(statement.statement_id)
            ended = [one for one in runs if one.status != "running" and one.execution_id not in others]
            if statement.cell_id is not None and ended:
                self._note_newest(statement, ended[-1])
        self._due |= self._newest.keys()

    def _find_later(self) -> None:
        """Find the executions that continue from HEAD."""
        later = [one.execution_id for one in self.log.children(self.log.head)]
        for one in later:  # the list grows meanwhile
            later += (child.execution_id for child in self.log.children(one))
        changed, self._later = self._later.symmetric_difference(later), frozenset(later)
        self._due |= {cell for cell, (_, run) in self._newest.items() if run.execution_id in changed}

    def _take(self, statement: Statement, execution: Execution) -> None:
        run = self.queries.run(statement, execution)
        self.graph.add(run)
        self._at = execution.execution_id
        for name in run.files:
            if not name.endswith(" more)"):
                self._files[name] = _WatchedFile(os.path.abspath(name))
                self._files.move_to_end(name)
        if statement.cell_id is not None:
            self._note_newest(statement, execution)
            self._on_head[statement.cell_id] = execution.execution_id
            self._due.add(statement.cell_id)

    def _note_newest(self, statement: Statement, execution: Execution) -> None:
        cell = str(statement.cell_id)
        self._numbers.setdefault(cell, len(self._numbers))
        known = self._newest.get(cell)
        if known is not None and execution.execution_id in self.queries.swept():
            return
        if known is None or execution.started_at >= known[1].started_at:
            self._newest[cell] = statement, execution

    def _look_at_files(self, *, every_file: bool) -> None:
        """Tell the graph which files are not as they were read."""
        for name, file in islice(reversed(self._files.items()), None if every_file else FILES):
            try:
                status = os.stat(file.path)
                stamp = status.st_mtime_ns, status.st_size
            except (OSError, ValueError):
                stamp = (0, -1)
            if stamp != file.stamp:
                file.stamp = stamp
                self.graph.see_file(name, self.queries.file_version(file.path) or GONE)

    # -- marks ------------------------------------------------------------------------------------

    def _mark(self, cell: str, statement: Statement, execution: Execution) -> CellMark:
        execution_id, on_head = execution.execution_id, self._on_head.get(cell)
        info = self.queries.info(execution_id)
        fresh = self.graph.freshness(cell) if on_head is not None else None
        on_path = statement
        if fresh is None or on_head == execution_id:
            here, (state, because) = None, self._state(statement, execution, fresh)
        else:
            run = self.log.execution(str(on_head))
            on_path = self.log.statement(run.statement_id)
            state = self._away(execution)
            here, because = self._state(on_path, run, fresh)
        return {
            "statement_id": statement.statement_id,
            "execution_id": execution_id,
            "on_head": on_head,
            "here": here,
            "author": statement.author,
            "state": state,
            "because": because[:MOST_REASONS],
            "upstream": list(fresh.upstream) if fresh is not None else [],
            "source": source_digest(statement.source),
            "checkpoint": info.state if info is not None else None,
            "count": self.counts.get(execution_id),
            "marked": self._marked(on_path),
            "failed": execution.status == "error",
        }

    def _state(
        self, statement: Statement, execution: Execution, fresh: Freshness | None
    ) -> tuple[CellState, list[str]]:
        if fresh is None:
            return self._away(execution), []
        because = list(fresh.because)
        if fresh.state == "stale":
            return "stale", because
        if told := self._diverged.get(execution.execution_id):
            return "diverged", [told, *because]
        if self._marked(statement) == "asks" or statement.tags.get("asks") is True:
            return "asks", ["it is marked as one that asks before it runs again", *because]
        return fresh.state, because

    def _away(self, execution: Execution) -> CellState:
        """Return where an execution is that is not on the path to HEAD."""
        return "later" if execution.execution_id in self._later else "branch"

    def _marked(self, statement: Statement) -> Literal["asks", "differs"] | None:
        """Return the mark of a person on a statement or its cell."""
        own = self._person.get(statement.statement_id) or self._person.get(statement.cell_id or "")
        return "asks" if own == "asks" else "differs" if own == "differs" else None


def source_digest(source: str) -> str:
    """Return the first 16 hex digits of the SHA-256 of a cell's text."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]
