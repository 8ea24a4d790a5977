"""Which cells are stale: a graph of the names and files that executions read and wrote. Pure; runs nothing.

Rule 1: cells have an order: that of their first executions on the path, but for cells of which it is known that they
        stand above another one that ran (`before`). A cell is fresh only if its newest execution,
        repeated in the state in which it ran, with all that the cells before it wrote since, would read what it read.
        Where the records cannot tell, it is unknown, with the reason. It is stale if a cell before it, or something
        outside of the notebook, changed what it read, and if it reads from a stale cell before it. Files have no place
        in the order: whoever changes one, it stays so.
Rule 2: a name is the same again when its content is. A name without a fingerprint has a new version at every change.
Rule 3: the cost of adding the first execution of a cell grows with what it reads and writes; that of a later execution
        also with the readers of what it writes. Neither grows with the length of the session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import chain

from ctxkernel.core.state_names import MODULE
from ctxkernel.core.text import join_names, one_line
from ctxkernel.replay.dependency_nodes import CellRun, Change, Freshness, Node, Version

MOST_REASONS = 3
MOST_DOUBTS = 8
"""Executions in a row that may have changed a name, and of which the results of the background still count."""
FILE = "file:"
"""Prefix of the names of files."""
MOST_CAUSES = 16
MANY = frozenset(("many",))
"""More causes than are kept one by one."""
GONE = "gone"
"""The version of a deleted name."""


class DependencyGraph:
    """The cells on one path of the timeline, and what each of them reads from the others."""

    def __init__(self, runs: Iterable[CellRun] = (), *, before: Mapping[str, str] | None = None) -> None:
        """`before`: cell → a cell that stands below it in the notebook."""
        self._before = before or {}
        self._nodes: dict[str, Node] = {}
        self._readers: dict[str, set[str]] = {}
        """Cell → the cells that read what it made."""
        self._now: dict[str, Version] = {}
        self._users: dict[str, dict[str, None]] = {}
        """Name → the cells that read it."""
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
        node = Node(run, self._places, self._place(run.cell) if old is None else old.first)
        self._places += 1
        for name in run.reads:
            # A variable that no execution of the path made is of before the session.
            node.reads[name] = self._now.setdefault(name, Version("@start", ""))
        for name, text in run.files.items():
            self._see_file(FILE + name, text)
            node.reads[FILE + name] = self._now[FILE + name]
        if old is not None:
            self._forget(old)
            node.causes = old.causes
        self._nodes[run.cell] = node
        node.repeated = _repeated(run, node.reads)
        affected = {run.cell}
        for name, told, text in _writes(run, list(self._now) if run.blind else run.doubtful):
            change = Change(run.statement_id, told, told != DOUBT, run.execution_id)
            # Files stay as they are when a notebook starts anew.
            after = None if run.outside or name.startswith(FILE) else node
            before = list(self._now.setdefault(name, Version("@start", "")).chain()) if told == DOUBT else []
            version = Version(text, run.cell, run, before[0] if 0 < len(before) < MOST_DOUBTS else None)
            affected |= self._move(name, version, change, after=after)
        affected |= self._bind_again(node)
        self._register(node)
        if old is not None and old.run.execution_id != run.execution_id:
            affected |= self._replace(old.run, run)
        self._settle(affected)

    def amend(self, run: CellRun) -> None:
        """Take in what became known of an execution since it was added, if it is the newest one of its cell."""
        node = self._nodes.get(run.cell)
        if node is None or node.run.execution_id != run.execution_id or node.run == run:
            return
        old, node.run = node.run, run
        affected = {run.cell}
        for name in {*run.made, *old.doubtful}.difference(run.doubtful) & self._now.keys():
            readers = {cell: self._nodes[cell] for cell in self._users.get(name, ())}
            self._identify(name, old, run, readers.values())
            now, after = self._now[name], set(self._readers_after(name, node))
            change = Change(run.statement_id, "was changed", True, run.execution_id)
            for cell, reader in readers.items():
                changes = reader.changes.get(name, ())
                at = next((n for n, one in enumerate(changes) if one.execution == run.execution_id), -1)
                text = run.made.get(name) or f"@{run.execution_id}"
                if at < 0:
                    if name in run.made and now.run is run and cell in after:
                        self._judge(reader, name, text, change)
                elif name not in run.made:
                    reader.changes[name] = changes[:at] + changes[at + 1 :]
                else:
                    reader.changes[name] = changes[at + 1 :] if text == reader.reads[name].text else (change,)
            affected |= readers.keys()
        node.repeated = _repeated(run, node.reads)
        self._settle(affected)

    def _identify(self, name: str, old: CellRun, run: CellRun, readers: Iterable[Node]) -> None:
        """Give the version that an execution made its content, or that of the version before it."""
        held = [self._now[name], *(one.reads[name] for one in readers)]
        version = next((one for top in held for one in top.chain() if one.run is old), None)
        if version is None:  # nobody has read it, and there is another one
            return
        if (before := version.before) is None or name in run.made:
            version.text, version.run, version.before = run.made.get(name) or version.text, run, None
        else:
            version.text, version.cell, version.run, version.before = before.text, before.cell, before.run, None
        for one in readers:
            if one.reads[name] is version:
                self._readers.get(run.cell, set()).discard(one.run.cell)
                self._note_sources(one)

    def _place(self, cell: str) -> int | Fraction:
        """Return the place of a new cell: below all others, or right above the one that it stands above."""
        below = self._nodes.get(self._before.get(cell, ""))
        if below is None:
            return self._places
        above = max((one.first for one in self._nodes.values() if one.first < below.first), default=-1)
        return (Fraction(above) + below.first) / 2

    def stands_above(self, cell: str, other: str) -> bool:
        """Return whether the graph has both cells, the first one above the other."""
        upper, lower = self._nodes.get(cell), self._nodes.get(other)
        return upper is not None and lower is not None and upper.first < lower.first

    def doubt(self, names: Iterable[str], told: str) -> None:
        """Note that these names may not be as the path left them."""
        affected: set[str] = set()
        for name in names:
            affected |= self._move(name, Version(f"?{told}", ""), Change("", told, certain=False), after=None)
        self._settle(affected)

    def see_file(self, name: str, version: str) -> None:
        """Note that a file has this version now, which no statement of the path has written."""
        self._settle(self._see_file(FILE + name, version))

    def _see_file(self, name: str, version: str) -> set[str]:
        now = self._now.get(name)
        if now is not None and now.text == version:
            return set()
        if now is not None and now.text.startswith("@"):
            return self._learn_content(name, now, version)
        # Which cell removed a file is not seen.
        told = "is gone" if version == GONE else "was changed outside of the notebook"
        return self._move(name, Version(version, ""), Change("", told), after=None)

    def _learn_content(self, name: str, now: Version, version: str) -> set[str]:
        """Take the content of a file that a statement wrote; return the cells that read this content before."""
        self._now[name] = Version(version, now.cell, now.run)
        same = {one for one in self._users.get(name, ()) if self._nodes[one].reads[name].text == version}
        for cell in same:
            self._nodes[cell].changes.pop(name, None)
        return same

    def _readers_after(self, name: str, writer: Node | None) -> list[str]:
        """Return the cells that read a name and come after the writer; all if no cell wrote it."""
        users = self._users.get(name, {})
        if writer is None:
            return list(users)
        if writer.first == self._places - 1:  # most cells run for the first time below all others
            return []
        return [cell for cell in users if self._nodes[cell].first > writer.first]

    def _move(self, name: str, new: Version, change: Change, *, after: Node | None) -> set[str]:
        """Give a name a new version; return the cells after a node, or all, whose reads this changes."""
        self._now[name] = new
        concerned = self._readers_after(name, after)
        return {cell for cell in concerned if self._judge(self._nodes[cell], name, new.text, change)}

    def _judge(self, node: Node, name: str, version: str, change: Change) -> bool:
        """Note that a cell would read this version; return whether that changes anything."""
        before = node.changes.pop(name, ())
        if version == node.reads[name].text:
            return bool(before)
        if before and before[0].certain:  # the first change explains it
            now = before
        elif change.certain:
            now = (change,)
        else:  # the last one of many stands for those that follow: it stays, whatever becomes known
            now = (*before, change) if len(before) < MOST_DOUBTS else (*before[:-1], replace(change, execution=""))
        node.changes[name] = now
        return now != before

    def _bind_again(self, writer: Node) -> set[str]:
        """Follow the names that a cell bound without a change of content; return the cells whose reads this changes.

        A cell after it may have read another content: a later cell changed it since. A binding may not have been
        reached, so it takes no reason away.
        """
        run = writer.run
        affected: set[str] = set()
        for name in {*run.bound} - {*run.made} - {*run.deleted}:
            if (now := self._now.get(name)) is None:
                continue
            for cell in self._readers_after(name, writer):
                node = self._nodes[cell]
                if node.reads[name].text != now.text and not node.changes.get(name):
                    node.changes[name] = (Change(run.statement_id, "was changed", True, run.execution_id),)
                    affected.add(cell)
        return affected

    def _register(self, node: Node) -> None:
        """Note what a new node reads."""
        for name in node.reads:
            self._users.setdefault(name, {})[node.run.cell] = None
        self._note_sources(node)

    def _note_sources(self, node: Node) -> None:
        """Note which cells a node reads from, or may read from."""
        for source in {one.cell for version in node.reads.values() for one in version.chain()} - {"", node.run.cell}:
            self._readers.setdefault(source, set()).add(node.run.cell)

    def _forget(self, node: Node) -> None:
        """Remove what an earlier execution of a cell read."""
        cell = node.run.cell
        for name, version in node.reads.items():
            self._users[name].pop(cell, None)
            for one in version.chain():
                self._readers.get(one.cell, set()).discard(cell)

    def _replace(self, old: CellRun, new: CellRun) -> set[str]:
        """Note which readers of a cell read what its newest execution no longer makes; return those that change."""
        again = {*new.made, *new.deleted, *(FILE + name for name in new.written)}
        if new.ended_well:
            again |= {*new.bound}
            if new.source == old.source:
                return self._restore_readers(new.cell)
        affected: set[str] = set()
        first = self._nodes[new.cell].first
        for cell in self._readers.get(new.cell, ()):
            node = self._nodes[cell]
            if node.first < first:
                continue
            reads = {n: v for n, v in node.reads.items() if n not in again}
            if lost := {n: v for n, v in reads.items() if any(one.cell == new.cell for one in v.chain())}:
                made = [name for name, version in lost.items() if version.cell == new.cell and version.text[0] != "?"]
                told = (
                    f"{_named(made or lost)} {'came' if made else 'may have come'} from {old.statement_id}; "
                    f"its cell ran again as {new.statement_id} without it"
                )
                node.replaced[new.cell] = Change(new.statement_id, told, bool(made), new.execution_id)
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
        while todo:
            cell = todo.pop()
            node = self._nodes[cell]
            if (causes := self._causes(cell)) != node.causes:
                node.causes = causes
                self._changed.add(cell)
                todo |= self._readers.get(cell, set())

    def _causes(self, cell: str) -> frozenset[str]:
        """Return the executions that make a cell stale, its own excepted.

        A cell below it counts no more when the notebook starts anew.
        """
        node = self._nodes[cell]
        changes = (*chain.from_iterable(node.changes.values()), *node.replaced.values())
        found = {one.execution for one in changes if one.certain}
        for source in {version.cell for version in node.reads.values()}:
            if source and self._nodes[source].first < node.first:
                found |= self._nodes[source].causes
        found.discard(node.run.execution_id)
        return frozenset(found) if len(found) <= MOST_CAUSES else MANY

    # -- answers ---------------------------------------------------------------------------------

    def freshness(self, cell: str) -> Freshness:
        """Return the state of a cell. Raises KeyError."""
        node = self._nodes[cell]
        because: list[str] = []
        upstream: dict[str, None] = {}
        for name, change in [(name, one) for name, each in node.changes.items() for one in each]:
            if change.certain:
                by = f" by {change.by}" if change.by else ""
                because.append(f"{_named([name])} {change.told}{by}")
                upstream |= {change.by: None} if change.by else {}
        for change in node.replaced.values():
            if change.certain:
                because.append(change.told)
                upstream[change.by] = None
        if node.causes:
            for source, names in self._stale_sources(cell).items():
                because.append(f"it reads {_named(names)} of {source}, which is stale")
                upstream[source] = None
        if because:
            return Freshness("stale", tuple(because[:MOST_REASONS]), tuple(upstream))
        unknown = [node.run.unknown] if node.run.unknown else []
        unknown += (change.told for change in node.replaced.values())
        if node.repeated:
            unknown.append(f"it read {_named(node.repeated)} as its own earlier run left it")
        if own := [name for name in node.reads if _is_lasting(node.run, name)]:
            unknown.append(f"it reads and changes {_named(own)}, whose content cannot be compared")
        for name, one in [(name, each[-1]) for name, each in node.changes.items() if each]:
            unknown.append(f"{_named([name])} {one.told}{f' by {one.by}' if one.by else ''}")
        return Freshness("unknown" if unknown else "fresh", tuple(unknown[:MOST_REASONS]))

    def _stale_sources(self, cell: str) -> dict[str, list[str]]:
        """Return the stale statements that a cell reads from, with the names."""
        found: dict[str, list[str]] = {}
        node = self._nodes[cell]
        for name, version in node.reads.items():
            source = self._nodes.get(version.cell)
            if source is not None and source.first < node.first and source.causes - {node.run.execution_id}:
                found.setdefault(source.run.statement_id, []).append(name)
        return found

    def newest(self, cell: str) -> CellRun:
        """Return the newest execution of a cell. Raises KeyError."""
        return self._nodes[cell].run

    def cells(self) -> list[CellRun]:
        """Return the newest execution of each cell, in the order of the path."""
        return [node.run for node in sorted(self._nodes.values(), key=lambda node: node.place)]

    def in_order(self) -> list[CellRun]:
        """Return the newest execution of each cell, in the order of the notebook."""
        return [node.run for node in sorted(self._nodes.values(), key=lambda node: node.first) if not node.run.outside]

    def links(self, cell: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Return the cells that a cell reads from, and those that read from it, with the names. Raises KeyError."""
        sources: dict[str, list[str]] = {}
        for name, version in self._nodes[cell].reads.items():
            if version.cell and version.cell != cell:
                sources.setdefault(version.cell, []).append(name.removeprefix(FILE))
        readers: dict[str, list[str]] = {}
        for reader in self._readers.get(cell, ()):
            names = [name for name, version in self._nodes[reader].reads.items() if version.cell == cell]
            if names and reader != cell:
                readers[reader] = [name.removeprefix(FILE) for name in names]
        return self._sorted(sources), self._sorted(readers)

    def _sorted(self, cells: Mapping[str, list[str]]) -> dict[str, list[str]]:
        """Return cells in the order of the notebook, with sorted names."""
        ordered = sorted(cells, key=lambda one: self._nodes[one].first)
        return {cell: sorted(cells[cell]) for cell in ordered}

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


def _is_lasting(run: CellRun, name: str) -> bool:
    """Return whether an execution changed a file, or a name whose content cannot be compared."""
    return run.made.get(name) == "" or (name.startswith(FILE) and name.removeprefix(FILE) in run.written)


def _repeated(run: CellRun, reads: Mapping[str, Version]) -> tuple[str, ...]:
    """Return the names that an execution read as an earlier one of its cell left them.

    If it left them as they were, and its text is the one that made them, the first execution gave the same.
    """
    again = {*run.deleted, *run.doubtful, *(FILE + name for name in run.written)}
    return tuple(
        name
        for name, version in reads.items()
        if version.cell == run.cell
        and version.run is not None
        and (
            run.blind
            or name in again
            or run.made.get(name, version.text) != version.text
            or version.run.source != run.source
        )
    )


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
    shown = {name.removeprefix(FILE).removeprefix(MODULE) for name in names}
    return join_names([one_line(name, 40) for name in sorted(shown)])
