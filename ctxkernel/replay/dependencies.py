"""Which cells are stale: a graph of the names and files that executions read and wrote. Pure; runs nothing.

Rule 1: a cell is fresh only if its newest execution, repeated in the present state, would read what it read before.
        Where the records cannot tell, it is unknown, with the reason. It is stale if a later statement changed what it
        read, and if it reads from a stale cell.
Rule 2: a name is the same again when its content is. A name without a fingerprint has a new version at every change.
Rule 3: the cost of adding an execution grows with what it reads and writes and with the cells whose state changes, not
        with the length of the session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ctxkernel.core.text import join_names, one_line

State = Literal["fresh", "stale", "unknown"]
MOST_REASONS = 3
FILE = "file:"
"""Prefix of the names of files."""
MOST_CAUSES = 16
MANY = frozenset(("many",))
"""More causes than are kept one by one."""
NONE: frozenset[str] = frozenset()
GONE = "gone"
"""The version of a deleted name."""


@dataclass(frozen=True, slots=True)
class CellRun:
    """The reads and writes of one execution."""

    execution_id: str
    statement_id: str
    cell: str
    """The notebook cell, or the statement where there is none: a later execution of it replaces this one."""
    source: str = ""
    reads: Collection[str] = ()
    """Names whose earlier value it may have used."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files that it read, with their version."""
    made: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that it added or changed, with their fingerprints after it; an empty one is not known."""
    deleted: Collection[str] = ()
    written: Collection[str] = ()
    """Files that it wrote."""
    bound: Collection[str] = ()
    """Names that its text binds, whether their content changed or not."""
    doubtful: Collection[str] = ()
    """Names that it may have changed: they could not be compared."""
    blind: bool = False
    """Whether it may have changed any name."""
    ended_well: bool = True
    unknown: str = ""
    """Why a repetition may give another result even if it reads the same."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """Whether a cell is stale, and why."""

    state: State
    because: tuple[str, ...] = ()
    """At most three lines."""
    upstream: tuple[str, ...] = ()
    """The statements that changed what it read, and the stale ones that it reads from."""


@dataclass(frozen=True, slots=True)
class _Change:
    """The change of a name that a cell had read."""

    by: str
    """The statement; empty for a change outside of all statements."""
    told: str
    certain: bool = True
    execution: str = "outside"


@dataclass(slots=True)
class _Version:
    text: str
    cell: str
    """The cell that made it."""


@dataclass(slots=True)
class _Node:
    """A cell, as of its newest execution."""

    run: CellRun
    place: int
    """Executions that were added before."""
    reads: dict[str, _Version] = field(default_factory=dict[str, _Version])
    own: dict[str, str] = field(default_factory=dict[str, str])
    """Names that it read and then changed, with the version that it left."""
    changes: dict[str, _Change] = field(default_factory=dict[str, _Change])
    """Names that it read and that are not as they were."""
    replaced: dict[str, _Change] = field(default_factory=dict[str, _Change])
    """Cells that made what it read, and that ran again without making it."""
    direct: frozenset[str] | None = None
    """The executions that changed what it read; None for a new node."""
    causes: frozenset[str] = frozenset()
    """The executions that make it stale, directly or through the cells that it reads from."""


class DependencyGraph:
    """The cells on one path of the timeline, and what each of them reads from the others."""

    def __init__(self, runs: Iterable[CellRun] = ()) -> None:
        self._nodes: dict[str, _Node] = {}
        self._readers: dict[str, set[str]] = {}
        """Cell → the cells that read what it made."""
        self._now: dict[str, _Version] = {}
        self._waiting: dict[tuple[str, str], set[str]] = {}
        """(name, version) → the cells to which it matters whether the name has this version."""
        self._places = 0
        self._changed: set[str] = set()
        for run in runs:
            self.add(run)

    def __contains__(self, cell: str) -> bool:
        return cell in self._nodes

    def take_changed(self) -> set[str]:
        """Return the cells whose state may have changed since the last call."""
        taken, self._changed = self._changed, set()
        return taken

    # -- growing ------------------------------------------------------------------------------

    def add(self, run: CellRun) -> None:
        """Add the next execution of the path."""
        old = self._nodes.get(run.cell)
        node = _Node(run, self._places)
        self._places += 1
        for name in run.reads:
            # A variable that no execution of the path made is of before the session.
            node.reads[name] = self._now.setdefault(name, _Version("@start", ""))
        for name, text in run.files.items():
            self._see_file(FILE + name, text, "")
            node.reads[FILE + name] = self._now[FILE + name]
        if old is not None:
            self._forget(old)
            node.causes = old.causes
        self._nodes[run.cell] = node
        affected = {run.cell}
        for name, told, text in _writes(run, list(self._now) if run.blind else run.doubtful):
            affected |= self._move(
                name, _Version(text, run.cell), _Change(run.statement_id, told, told != DOUBT, run.execution_id)
            )
        self._register(node)
        if old is not None and old.run.execution_id != run.execution_id:
            affected |= self._replace(old.run, run)
        self._settle(affected)

    def doubt(self, names: Iterable[str], told: str) -> None:
        """Note that these names may not be as the path left them."""
        affected: set[str] = set()
        for name in names:
            affected |= self._move(name, _Version(f"?{told}", ""), _Change("", told, certain=False))
        self._settle(affected)

    def see_file(self, name: str, version: str) -> None:
        """Note that a file has this version now, which no statement of the path has written."""
        self._settle(self._see_file(FILE + name, version, ""))

    def _see_file(self, name: str, version: str, cell: str) -> set[str]:
        now = self._now.get(name)
        if now is not None and now.text == version:
            return set()
        if now is not None and now.text.startswith("@"):
            return self._learn_content(name, now, version)
        return self._move(name, _Version(version, cell), _Change("", "was changed outside of the notebook"))

    def _learn_content(self, name: str, now: _Version, version: str) -> set[str]:
        """Take the content of a file that a statement wrote; return the cells that read this content before."""
        self._now[name] = _Version(version, now.cell)
        for cell in self._waiting.pop((name, now.text), ()):
            self._nodes[cell].own[name] = version
            self._waiting.setdefault((name, version), set()).add(cell)
        same = {one for one in self._waiting.get((name, version), ()) if self._nodes[one].reads[name].text == version}
        for cell in same:
            self._nodes[cell].changes.pop(name, None)
        return same

    def _move(self, name: str, new: _Version, change: _Change) -> set[str]:
        """Give a name a new version; return the cells whose reads this changes."""
        old = self._now.get(name)
        self._now[name] = new
        if old is None or old.text == new.text:
            return set()
        concerned = self._waiting.get((name, old.text), set()) | self._waiting.get((name, new.text), set())
        for cell in concerned:
            self._judge(self._nodes[cell], name, new.text, change)
        return set(concerned)

    def _judge(self, node: _Node, name: str, version: str, change: _Change) -> None:
        before = node.changes.pop(name, None)
        if version == node.reads[name].text:
            return
        if version == node.own.get(name):
            node.changes[name] = _Change(node.run.statement_id, "", certain=False)
        elif before is not None and before.certain:
            node.changes[name] = before  # the first change explains it
        else:
            node.changes[name] = change

    def _register(self, node: _Node) -> None:
        """Note what a new node reads."""
        run = node.run
        for name, version in node.reads.items():
            now = self._now[name].text
            self._waiting.setdefault((name, version.text), set()).add(run.cell)
            if now != version.text:
                node.own[name] = now
                node.changes[name] = _Change(run.statement_id, DOUBT if now.startswith("?") else "", certain=False)
                self._waiting.setdefault((name, now), set()).add(run.cell)
            if version.cell and version.cell != run.cell:
                self._readers.setdefault(version.cell, set()).add(run.cell)

    def _forget(self, node: _Node) -> None:
        """Remove what an earlier execution of a cell read."""
        cell = node.run.cell
        for name, version in node.reads.items():
            for text in (version.text, node.own.get(name, "")):
                if (waiting := self._waiting.get((name, text))) is not None:
                    waiting.discard(cell)
                    if not waiting:
                        del self._waiting[name, text]
            if (readers := self._readers.get(version.cell)) is not None:
                readers.discard(cell)

    def _replace(self, old: CellRun, new: CellRun) -> set[str]:
        """Note which readers of a cell read what its newest execution no longer makes; return those that change."""
        again = {*new.made, *new.deleted, *(FILE + name for name in new.written)}
        if new.ended_well:
            again |= {*new.bound}
            if new.source == old.source:
                return self._restore_readers(new.cell)
        affected: set[str] = set()
        for cell in self._readers.get(new.cell, ()):
            node = self._nodes[cell]
            lost = [n for n, version in node.reads.items() if version.cell == new.cell and n not in again]
            if lost:
                told = (
                    f"{_named(lost)} came from {old.statement_id}; its cell ran again as {new.statement_id} without it"
                )
                node.replaced[new.cell] = _Change(new.statement_id, told, execution=new.execution_id)
                affected.add(cell)
        return affected | self._restore_readers(new.cell, besides=affected)

    def _restore_readers(self, cell: str, besides: Collection[str] = ()) -> set[str]:
        found = {one for one in self._readers.get(cell, ()) if one not in besides and cell in self._nodes[one].replaced}
        for one in found:
            del self._nodes[one].replaced[cell]
        return found

    # -- who is stale ----------------------------------------------------------------------------

    def _settle(self, cells: Iterable[str]) -> None:
        """Bring the states of cells whose reads changed, and of their readers, up to date."""
        todo = set(cells)
        self._changed |= todo
        for cell in list(todo):
            node, before = self._nodes[cell], self._nodes[cell].direct
            node.direct = self._direct_causes(node)
            if before is None or not before <= node.direct:
                todo |= self._withdraw(cell)
        while todo:
            cell = todo.pop()
            node = self._nodes[cell]
            if (causes := self._causes(cell)) != node.causes:
                node.causes = causes
                self._changed.add(cell)
                todo |= self._readers.get(cell, set())

    def _causes(self, cell: str) -> frozenset[str]:
        """Return the executions that make a cell stale, its own excepted: `df["y"] = …` is no reason against itself."""
        node = self._nodes[cell]
        found = {*self._direct_causes(node)}
        for source in {version.cell for version in node.reads.values()} - {"", cell}:
            found |= self._nodes[source].causes
        found.discard(node.run.execution_id)
        return frozenset(found) if len(found) <= MOST_CAUSES else MANY

    def _direct_causes(self, node: _Node) -> frozenset[str]:
        certain = [one.execution for one in node.changes.values() if one.certain]
        return frozenset((*certain, *(one.execution for one in node.replaced.values())))

    def _withdraw(self, cell: str) -> set[str]:
        """Forget why a cell and those that read from it are stale; return them: cells that read from each other in
        a circle would keep each other stale."""
        region, todo = {cell}, [cell]
        while todo:
            for reader in self._readers.get(todo.pop(), ()):
                if reader not in region and self._nodes[reader].causes:
                    region.add(reader)
                    todo.append(reader)
        for one in region:
            self._nodes[one].causes = NONE
        self._changed |= region
        return region

    # -- answers ---------------------------------------------------------------------------------

    def freshness(self, cell: str) -> Freshness:
        """Return the state of a cell. Raises KeyError."""
        node = self._nodes[cell]
        because: list[str] = []
        upstream: dict[str, None] = {}
        for name, change in node.changes.items():
            if change.certain:
                by = f" by {change.by}" if change.by else ""
                because.append(f"{_named([name])} {change.told}{by}")
                upstream |= {change.by: None} if change.by else {}
        for change in node.replaced.values():
            because.append(change.told)
            upstream[change.by] = None
        if node.causes:
            for source, names in self._stale_sources(cell).items():
                because.append(f"it reads {_named(names)} of {source}, which is stale")
                upstream[source] = None
        if because:
            return Freshness("stale", tuple(because[:MOST_REASONS]), tuple(upstream))
        unknown = [node.run.unknown] if node.run.unknown else []
        own = [name for name, change in node.changes.items() if not change.told]
        unknown += [f"it changes {_named(own)}, which it also reads"] if own else []
        doubts = [(name, one) for name, one in node.changes.items() if one.told]
        unknown += [f"{_named([name])} {one.told}{f' by {one.by}' if one.by else ''}" for name, one in doubts]
        return Freshness("unknown" if unknown else "fresh", tuple(unknown[:MOST_REASONS]))

    def _stale_sources(self, cell: str) -> dict[str, list[str]]:
        """Return the stale statements that a cell reads from, with the names."""
        found: dict[str, list[str]] = {}
        for name, version in self._nodes[cell].reads.items():
            source = self._nodes.get(version.cell)
            if source is not None and version.cell != cell and source.causes - {self._nodes[cell].run.execution_id}:
                found.setdefault(source.run.statement_id, []).append(name)
        return found

    def cells(self) -> list[CellRun]:
        """Return the newest execution of each cell, in the order of the path."""
        return [node.run for node in sorted(self._nodes.values(), key=lambda node: node.place)]

    def affected(self, cells: Iterable[str]) -> list[CellRun]:
        """Return the newest executions of these cells and of all that read from them, in the order of the path."""
        found, todo = set[str](), [cell for cell in cells if cell in self._nodes]
        while todo:
            cell = todo.pop()
            if cell not in found:
                found.add(cell)
                todo += self._readers.get(cell, ())
        nodes = sorted((self._nodes[cell] for cell in found), key=lambda node: node.place)
        return [node.run for node in nodes]


DOUBT = "may have been changed"


def _writes(run: CellRun, doubtful: Collection[str]) -> Iterable[tuple[str, str, str]]:
    """Return the names that an execution wrote, how, and the version of each; one without content is its own."""
    for name, text in run.made.items():
        yield name, "was changed", text or f"@{run.execution_id}"
    for name in run.deleted:
        yield name, "was deleted", GONE
    for name in run.written:
        yield FILE + name, "was written", f"@{run.execution_id}"
    for name in doubtful:
        yield name, DOUBT, f"?{run.execution_id}"


def _named(names: Iterable[str]) -> str:
    return join_names([one_line(name.removeprefix(FILE), 40) for name in sorted(set(names))])
