"""Detection of the changes that a cell made to variables, for the namespace diff and for checkpoints.

The namespace is not hooked; the user's code runs at full speed. Before a cell, its text gives the variables that it can
touch (`cell_names`). These are:
- the variables that it mentions,
- those that the functions, classes and instances behind them use,
- those that are stored together with one of these.
After the cell, these are packed (`groups`). Equal bytes mean unchanged. All other variables are only checked for
another address (`state.base.namespace`).

Rule 1: of the user's code, only methods of pickling run (`__reduce__`); only small immutables are kept.
Rule 2: a variable is reported as changed where its content differs. Binding it to another object with equal content is
no change; `rebound` has those, for checkpoints. Objects without readable content (a socket) are compared by identity.
Rule 3: an address is not an identity: names that a cell may have bound anew are compared by content as well.
Rule 4: no truncated result is used. Names that could not be packed in time are `deferred`: a checkpoint finishes them.
Rule 5: the cost of variables that a cell does not touch does not grow with their size.

If a variable changes and no cell touched it (threads, callbacks, C code), the change is found at its next pack: by a
cell that touches it, by `verify_next`, which every return calls, or after `suspect_all`. The states in between
are `doubts`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from ctxkernel.core.ports import Expired
from ctxkernel.core.state_names import LABELS, MODULE, TARGET, is_bound
from ctxkernel.core.timeline import ChangeInfo, NamespaceDiff, TypeInfo
from ctxkernel.core.timeline_events import NONE
from ctxkernel.state.base.namespace import (
    NOTHING,
    NameSnapshot,
    Variable,
    is_atom,
    name_differences,
    of_user,
    same_atoms,
)
from ctxkernel.state.tracking.candidates import CandidateNames
from ctxkernel.state.tracking.cell_names import CellNames, read_cell
from ctxkernel.state.tracking.fingerprints import LIVE
from ctxkernel.state.tracking.found_changes import FoundChanges, Pending
from ctxkernel.state.tracking.groups import Group, Moment

_VERIFY = "a return"
_LONG_CELL_SHARE = 0.6
"""Of the time that work after a cell may take: for packing after a cell that took as long itself."""


class NamespaceTracker(CandidateNames):
    """Implements `core.ports.Tracker` for one namespace. For the arguments see `PackedVariables`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rebound: frozenset[str] = frozenset()
        """Names that the last cell bound to another object, whether its content differs or not."""
        self.touched: frozenset[str] = frozenset()
        """Names that the last cell may have touched."""
        self.read: frozenset[str] = frozenset()
        """Those of them whose earlier value it may have used."""
        self.beyond: frozenset[str] = frozenset()
        """Names that it may have read and that were no variables: classes by their labels, and absent names."""
        self.ran_beside: str = ""
        """Why code that is not of the last cell may have changed variables while it ran; empty for none."""
        self.turn_outside = -1
        """The turn in which code outside of any cell ran last, such as that of a thread; -1 for none."""
        self.altered_parts: frozenset[str] = frozenset()
        """Watched names that the last cell changed: the user's modules."""
        self.doubts: dict[str, int] = {}
        """Names that changed without a cell that touched them, and the turn in which they were last known."""
        self.refresh = False
        """Whether the next cell begins with a quick look at what it may touch: silent code ran."""
        self.quiet = False
        """Whether no code of the user's ran since the last cell, so that names stand for the same objects."""
        self._new: set[str] = set()
        """Watched names since the last cell."""
        self._always: set[str] = set()
        """Watched names that any cell may use."""
        self._told: NamespaceDiff | None = None
        """The changes of the running cell, where they are known."""
        self._snapshot = NameSnapshot(self.namespace)
        self._first: set[str] | None = None
        """The variables that the cell can read before it binds them; None for all candidates."""
        self._suspect = ""
        self._began = self._took = 0.0
        """The processor time at which the running cell began, and that of the last one."""
        self._outside = ""
        self._bound: set[str] | None = None
        self._verified = False
        """Whether everything was packed since the last cell."""
        self._last = NamespaceDiff()
        for name in of_user(self._snapshot.names, self.hidden):
            self._add(name)

    @property
    def total(self) -> int:
        """The number of the user's variables."""
        return len(self._variables) - len(self._watched)

    def names(self) -> list[str]:
        """Return the user's names, newest change first."""
        return [name for name in reversed(self._variables) if name not in self._watched]

    def variables(self, limit: int | None = None) -> list[tuple[str, TypeInfo]]:
        """Return the user's variables, newest change first, at most `limit`."""
        names = (name for name in reversed(self._variables) if name not in self._watched)
        return [(name, self.describe(name)) for name in islice(names, limit)]

    def describe(self, name: str) -> TypeInfo:
        """Describe a variable as of its last change. Raises KeyError for any other name."""
        variable = self._variables[name]
        if variable.info is None:
            variable.info = self._info(self.namespace.get(name))
        return variable.info

    @property
    def anything(self) -> str:
        """Why the last cell may have touched any variable, or an empty text."""
        return self._cell.anything

    def is_live(self, name: str) -> bool:
        """Return whether a variable holds something whose content may change by itself and cannot be compared."""
        group = self._groups.get(name)
        return group is not None and not group.is_by_data(name) and group.text_of(name).startswith(LIVE)

    @property
    def named_nothing(self) -> bool:
        """Return whether the last cell mentioned no global name and called no magic."""
        return not self._cell.names and not self._cell.anything and not self._cell.magics

    @property
    def _cell_seconds(self) -> float:
        """Processor time to pack what a cell touched: it may take as long again, rather than make the next one wait."""
        return max(self._pack_seconds, min(self._took, self.settings.end_phase_ms / 1000 * _LONG_CELL_SHARE))

    def may_bind(self, names: re.Pattern[str]) -> bool:
        """Return whether the last cell may have bound or deleted names of this form."""
        cell = self._cell
        return bool(cell.anything or cell.magics or any(map(names.fullmatch, cell.names)))

    def watch(self, name: str, *, always: bool = False) -> None:
        """Follow the value of `extras(name)`, as a variable that is in no diff. `always`: any cell may use it."""
        if always:
            self._always.add(name)
        if name not in self._variables:
            self._watched.add(name)
            self._add(name)
            self._new.add(name)
        self.pending.names.add(name)

    def unwatch(self, name: str) -> None:
        """End `watch`. The cell may have handed on the objects that it shared with others: these are compared."""
        if name in self._watched:
            self._new.update(self._groups[name].names if name in self._groups else ())
            self._watched.discard(name)
            self._always.discard(name)
            self._forget(name)
            self.pending.names.discard(name)

    def contents(self) -> dict[str, object]:
        """Return by name a value that is equal for equal content. Changes nothing."""
        values = {name: self._value(name) for name in self.names()}
        moment = Moment(self.packer, self._value)
        moment.pack([(name,) for name, value in values.items() if not is_atom(value)], join=False)
        found: dict[str, object] = {name: repr(value) for name, value in values.items() if is_atom(value)}
        return found | {name: (piece.key, piece.packed.labels) for name, piece in moment.pieces.items()}

    def changed_since(self) -> set[str]:
        """Return the names whose content differs from their last pack. Changes nothing."""
        if self._verified:
            return set()
        moment = Moment(self.packer, self._value)
        names = self._complex() | self._labels()
        moment.pack(self.whole_groups(sorted(names)), join=False)
        same = {name for name, piece in moment.pieces.items() if self._is_same(piece, name, {})}
        atoms = {name: one.atom for name, one in self._variables.items() if one.atom is not NOTHING}
        changed = {name for name, atom in atoms.items() if not same_atoms(atom, self._value(name))}
        return {*(moment.pieces.keys() - same), *(names - moment.pieces.keys()), *changed}

    def suspect_all(self, reason: str) -> None:
        """Have the next cell treat every variable as touched: something may have changed any of them."""
        self._suspect = self._suspect or reason

    def verify_next(self) -> None:
        """Have the next cell begin with a look at everything, however long it takes."""
        self._outside = _VERIFY

    def look_outside(self, reason: str) -> None:
        """Have the next cell begin with a look at everything: code ran outside of any cell."""
        self._outside, self.turn_outside = self._outside or reason, self.turn + 1

    def take_bound(self) -> set[str] | None:
        """Return the names that were bound or deleted since the last call; None where that is not known."""
        taken, self._bound = self._bound, set[str]()
        return taken

    def pack_rest(self) -> None:
        """Pack the names that the next checkpoint stores and that are not packed yet."""
        if not self.pending.names:
            return
        ready = self.pending.pieces.keys() | self.pending.deferred | self.pending.faults.keys()
        lacking = [name for name in self.pending.names if name not in ready and self._is_complex(name)]
        if not lacking:
            return
        moment = self._moment(None if self._verified else self._pack_seconds)
        # They may share objects only with names that the cell touched or bound.
        ran = {*self.touched, *self.rebound, *self._last.added, *self._last.changed}
        moment.pack(self.whole_groups(sorted({*lacking, *filter(self._is_complex, ran)})))
        deferred = moment.all_deferred(self._groups)
        self._await(deferred, moment)
        self._take_pieces(moment, {}, FoundChanges())
        self.pending.defer(deferred)
        self.pending.fail(moment.faults)

    def take_pending(self) -> Pending:
        """Return the content of the next checkpoint, and begin a new one."""
        taken, self.pending = self.pending, Pending()
        return taken

    def settle(self, target: Collection[str], loaded: Sequence[Sequence[str]], held: Collection[str]) -> None:
        """Take a state that a return restored as the stored one; `target` are all its names.

        `loaded`: the groups of names that it loaded. `held`: names that come back as they are and are not stored.
        """
        names = (*(name for group in loaded for name in group), *held)
        self.rebase([name for name in names if is_bound(name) or name.startswith((TARGET, MODULE))])
        self.take_pending()
        for name in [one for one in self._groups if one.startswith(LABELS) and one not in target]:
            del self._groups[name]
        self.settle_loaded(loaded)
        for name in held:
            self.store_again(name)

    def rebase(self, names: Iterable[str]) -> None:
        """Take the namespace as it is, after a restore: nothing is reported; `names` are new."""
        added, moved, deleted = self._moved()
        for name in deleted:
            self._forget(name)
        for name in (*added, *moved, *names):
            if self._value(name) is not NOTHING:
                self.store_again(name)
                self._add(name)

    def accept(self, names: Iterable[str]) -> None:
        """Take the present values of names as the stored ones: the process that they belong to was restored since."""
        groups = self.whole_groups(name for name in names if name in self._groups)
        for name in {name for group in groups for name in group}:
            del self._groups[name]
        self.settle_loaded(groups)

    def store_unchanged(self, names: Iterable[str]) -> None:
        """Have the next checkpoint store names that did not change, and the names that refer to one of them."""
        more = set(names)
        while more:
            self.pending.names |= more
            users = {name for name, group in self._groups.items() if not more.isdisjoint(group.labels)}
            more = users - self.pending.names

    def users_of(self, label: str) -> list[str]:
        """Return the names that refer to a class, to an object that several share, or to a module of the user's."""
        return sorted(name for name, group in self._groups.items() if label in group.labels or label in group.deps)

    def changed_late(self, changed: Mapping[str, ChangeInfo]) -> None:
        """Take in changes that a background process has found."""
        for name, one in changed.items():
            if name in self._variables and name not in self.pending.open:
                self._variables[name].info = TypeInfo(one.type, one.repr, one.size)

    def tell(self, changes: NamespaceDiff) -> None:
        """Report these as the changes of the running cell: they were loaded, and nothing else ran."""
        self._told = changes

    def release(self) -> None:
        """Drop pieces that are not stored: the user's code runs next, and may resize the packed memory."""
        self.pending.pieces = {}
        if self.packer.tokens.held:
            self.packer.tokens.release()

    def before(self, source: str) -> NamespaceDiff:
        """Get ready for `source`; return what changed since the last `after`, outside of any cell."""
        self.release()
        quiet, self.quiet = self.quiet, False
        added, moved, deleted = ([], [], []) if quiet else self._moved()
        cell = self._cell = read_cell(source, self.transform)
        outside, self._outside = self._outside, ""
        diff = NamespaceDiff()
        if outside:
            seconds = None if outside == _VERIFY else self._pack_seconds
            diff = self._settle(*self._everything(moved), seconds=seconds)
            self._verified = outside == _VERIFY
        elif added or moved or deleted:
            diff = self._settle(added, moved, deleted, ())
        self._candidates, self._first, self._beyond = set(), None, set()
        if cell.names or cell.anything:
            self._find_candidates(cell)
            self._first = self._read_first(source, cell)
            refresh, self.refresh = self.refresh and not outside and not self._suspect, False
            if refresh and not self._groups.keys().isdisjoint(self._candidates) and (quick := self._quick()):
                changed = self._settle((), (), (), quick).changed
                diff = replace(diff, changed={**diff.changed, **changed}) if changed else diff
        if not diff:
            self.release()
        self._began = time.thread_time()
        return diff

    def after(self, expired: Expired = lambda: False) -> NamespaceDiff:
        """Return what changed since `before`."""
        if self._told is not None:
            return self._take_told(self._told)
        self._took = time.thread_time() - self._began
        added, moved, deleted = self._moved()
        read = self._candidates if self._first is None else self._first
        touched, self._candidates = self._candidates | ((self._new | self._always) & self._variables.keys()), set()
        self._new = set()
        suspect, self._suspect = self._suspect, ""
        self.ran_beside, beyond = suspect, self._beyond
        if suspect:
            added, moved, deleted, touched = self._everything(moved)
        self.rebound = frozenset(moved)
        self._verified = False
        self.turn += 1
        self.altered_parts = frozenset()
        diff = NamespaceDiff()
        if added or moved or deleted or touched:
            diff = self._settle(added, moved, deleted, touched, self._cell, hurry=expired())
        if added or moved:
            # A function that the cell bound may have run, and the names that it uses were not known before.
            reached, _, more_beyond = self._reachable(CellNames(frozenset((*added, *moved))))
            further, beyond = reached.difference(touched, added, moved), beyond | more_beyond
            if further:
                more = self._settle((), (), (), further, self._cell, hurry=expired())
                touched, read = touched | further, read | (further - self._cell.replaced)
                said = "; ".join(filter(None, (diff.incomplete, more.incomplete)))
                diff = NamespaceDiff(diff.added, {**diff.changed, **more.changed}, diff.deleted, said)
        self.touched = frozenset(touched)
        self.read = frozenset(read).difference(diff.added)
        self.beyond = frozenset(beyond)
        self._last = diff
        return diff

    def _take_told(self, told: NamespaceDiff) -> NamespaceDiff:
        self._told, self._candidates, self._new = None, set(), set()
        self._moved()
        self.turn += 1
        self.rebound = self.touched = self.read = self.beyond = self.altered_parts = frozenset()
        self._last = told
        return told

    def _moved(self) -> tuple[list[str], list[str], list[str]]:
        """Return the user's names that were added, moved to another address, deleted since the last call."""
        for _ in range(3):
            try:
                new = NameSnapshot(self.namespace)
                break
            except RuntimeError:  # a thread came between
                continue
        else:
            return [], [], []
        added, moved, deleted = name_differences(self._snapshot, new)
        self._snapshot = new
        if self._bound is not None:
            self._bound.update(added, moved, deleted)
        fresh: list[str] = []
        again: list[str] = []
        changed = (*moved, *added)
        users = of_user(changed, self.hidden)
        for name in users:
            (again if name in self._variables else fresh).append(name)
        if len(users) < len(changed):  # a hidden name can have its first value again
            deleted = [*deleted, *set(changed).difference(users)]
        if deleted:
            deleted = [name for name in deleted if name in self._variables and name not in self._watched]
        return fresh, again, deleted

    def _everything(self, moved: list[str]) -> tuple[list[str], list[str], list[str], set[str]]:
        """Return all names as added, moved, deleted and touched: by the namespace, and not by the last snapshot.

        Labels are among them: a class may have been changed before its last variable was bound anew.
        """
        there = of_user(tuple(self.namespace), self.hidden)
        added = [name for name in there if name not in self._variables]
        gone = self._variables.keys() - self._watched - set(there)
        return added, moved, sorted(gone), (self._variables.keys() - gone - set(moved)) | self._labels()

    def _settle(
        self,
        added: Collection[str],
        moved: Collection[str],
        deleted: Collection[str],
        touched: Collection[str],
        cell: CellNames | None = None,
        *,
        seconds: float | None = 0,
        hurry: bool = False,
    ) -> NamespaceDiff:
        """Take all these names as they are from now on, and return what differs.

        `cell`: the cell that may have changed them; None for changes outside of any cell. `seconds`: of processor time
        for it; None for no bound, 0 for what a cell may take.
        """
        found = FoundChanges(frozenset(moved), cell.replaced if cell is not None else (), cell is None)
        self.pending.names.update(added, moved, deleted)
        # The address of a small immutable is looked at after every cell: it is known until now.
        known = self._variables.items() if found.outside else ()
        turns = {name: self.turn if one.atom is not NOTHING else one.turn for name, one in known}
        old: dict[str, Group] = {}
        for name in (*moved, *touched):
            if (group := self._groups.get(name)) is not None:
                old[name] = group
        again: set[str] = set()
        for name in (*moved, *deleted):
            if (group := self._groups.get(name)) is not None:
                # Objects that it referred to may have changed before it was bound anew.
                again |= self._groups.keys() & set(group.labels)
        again |= self._dissolve(*deleted)
        for name in deleted:
            self._forget(name)
        todo = self._take_atoms((*added, *moved, *sorted(touched)), found)
        again |= self._dissolve(*moved)
        if todo or again:
            names = dict.fromkeys((*todo, *(again - set(deleted))))
            self._compare(names, old, found, seconds=self._cell_seconds if seconds == 0 else seconds, hurry=hurry)
            for name in added:
                if name in self._variables and name not in found.added:
                    self._rebind(name)
                    self._variables[name].info = found.added[name] = self._info(self._value(name))
            for name in found.deferred & found.moved & self._variables.keys():  # another object, and not packed yet
                self._change(name, found)
            if found.parts:
                self._compare_users(found)
        return self._report(found, turns, deleted)

    def _take_atoms(self, names: Iterable[str], found: FoundChanges) -> list[str]:
        """Take in the names that stand for a small immutable; return the others."""
        todo: list[str] = []
        for name in dict.fromkeys(names):
            value = self._value(name) if name in self._watched else self.namespace.get(name, NOTHING)
            if value is NOTHING:
                continue
            variable = self._variables.get(name)
            new = variable is None
            if variable is None:
                variable = self._variables[name] = Variable(turn=self.turn)
            if not is_atom(value):
                todo.append(name)
                continue
            before, variable.turn = variable.atom, self.turn
            if not new and before is not NOTHING and same_atoms(before, value):
                variable.atom = value
                continue
            text = self._text_before(variable)
            variable.atom, variable.weak = value, None
            variable.info = info = self._info(value)
            if new:
                found.added[name] = info
            else:
                found.changed[name] = ChangeInfo(info.type, info.repr, info.size, "rebound", text)
        return todo

    def _report(self, found: FoundChanges, turns: Mapping[str, int], deleted: Collection[str]) -> NamespaceDiff:
        """Return the findings as a diff, and note the changes for the next checkpoint."""
        if found.outside:
            for name in found.altered - found.changed.keys():
                if name in self._variables and name not in found.added:
                    self._change(name, found)
            latest: dict[tuple[str, ...], int] = {}
            for name in found.changed:
                together = self._groups[name].names if name in self._groups else (name,)
                if (turn := latest.get(together)) is None:  # a cell that touched one may have changed all
                    turn = latest[together] = max(turns.get(one, self.turn) for one in together)
                if turn < self.turn:
                    self.doubts[name] = min(turn, self.doubts.get(name, turn))
        for name in (*found.added, *found.changed):
            if name in self._variables:
                self._variables[name] = self._variables.pop(name)
        self.pending.names.update(found.changed)
        added, changed = found.added, found.changed
        if not self._watched.isdisjoint((*added, *changed)):
            self.altered_parts |= self._watched & {*added, *changed}
            added = {name: info for name, info in added.items() if name not in self._watched}
            changed = {name: info for name, info in changed.items() if name not in self._watched}
            if found.outside and not changed:  # a module's variables, say: the state that they are part of is another
                changed = found.changed
        incomplete = self._open_changes(found) if found.open else ""
        return NamespaceDiff(added or NONE, changed or NONE, tuple(deleted), incomplete)
