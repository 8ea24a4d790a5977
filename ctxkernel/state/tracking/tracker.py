"""What a cell did to the user's variables: the one detection of changes, for the namespace diff and for checkpoints.

The namespace is not hooked; the user's code runs at full speed. Before a cell, its text says which variables it can
touch (`candidates`): those that it mentions, those that the functions, classes and instances behind them use, and those
that are stored together with one of these. After it, these are packed (`groups`), and every other variable is checked
for another address (`state.base.snapshot`). Equal bytes mean unchanged.

Rule 1: nothing of the user's is run but what packing runs (a `__reduce__`); nothing but small immutables is kept.
Rule 2: a variable is reported as changed where its content differs. Binding it to another object with equal content is
no change; `rebound` has those, as a checkpoint cares. What has no readable content (a socket) is compared by identity.
Rule 3: an address is not an identity: what a cell may have bound anew is compared by content as well.
Rule 4: no truncated result is believed. What could not be packed in time is `deferred`: a checkpoint finishes it.
Rule 5: what a cell does not touch costs nothing that grows with its size.

What changes without a cell that touches it (threads, callbacks, C code) is found when it is packed the next time: by a
cell that touches it, by `verify`, which every return calls, or after `suspect_all`. The states in between are `doubts`.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from types import FunctionType
from typing import Any, Literal

from xxhash import xxh3_128_digest

from ctxkernel.core.descriptions import describe
from ctxkernel.core.events import NONE
from ctxkernel.core.ports import Expired
from ctxkernel.core.reflection import Plan, is_kind
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import ChangeInfo, NamespaceDiff, TypeInfo
from ctxkernel.state.base.code_objects import code_facts
from ctxkernel.state.base.snapshot import Hidden, Snapshot, differences, of_user
from ctxkernel.state.base.variables import NOTHING, Variable, is_atom, same_atoms, some_of, weak_reference
from ctxkernel.state.tracking import fingerprints
from ctxkernel.state.tracking.candidates import ANYTHING_IN_A_FUNCTION, Cell, Transform, read_cell
from ctxkernel.state.tracking.groups import Moment, Piece
from ctxkernel.state.types.packer import Packer

PACK_SHARE = 0.25
"""Of the time that work after a cell may take: processor time for packing on the user's thread."""
REFRESH_SECONDS = 0.001
"""Processor time for packing again, before a cell, what it touches: changes outside of any cell."""
COMPARED_BYTES = 512 * 1024
PLAIN_BYTES = 16 * 1024
"""Largest stream, and largest one of plain data, of which a fingerprint is made: to tell whether content differs."""
VISIBLE_BYTES = 1024 * 1024
_VERIFY = "a return"


@dataclass(slots=True)
class Group:
    """Variables that are stored together, as they were packed last."""

    names: tuple[str, ...]
    key: bytes
    labels: tuple[str, ...]
    deps: set[str] | frozenset[str]
    seconds: float
    """Processor time that packing took …"""
    hashing: float = 0.0
    """… and hashing."""
    prints: dict[str, str] = field(default_factory=dict[str, str])
    """Fingerprints by name, as far as they were asked for."""


@dataclass(slots=True)
class Pending:
    """What the next checkpoint has to store."""

    pieces: dict[str, Piece] = field(default_factory=dict[str, Piece])
    """By name."""
    names: set[str] = field(default_factory=set[str])
    """Names whose state may not be the stored one."""
    deferred: set[str] = field(default_factory=set[str])
    """Those of them that have to be packed yet."""
    faults: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(eq=False, repr=False)
class NamespaceTracker:
    """Implements `core.ports.Tracker` for one namespace, a plain dict.

    `hidden`: names that are not the user's, as a set or a function. `transform`: IPython's rewriting of a cell into
    plain Python. `packer`: made here where none is given. `extras(name)`: the value of a name that is watched.
    `may_defer()`: whether packing can go on outside of the user's time; where it cannot, it is never deferred.
    `chunks(view, expired, prove=…)`: gives the addresses of a buffer's chunks; to `prove` them it hashes all of it.
    """

    namespace: dict[str, Any]
    _: KW_ONLY
    hidden: Hidden = frozenset()
    settings: Settings = field(default_factory=Settings)
    transform: Transform | None = None
    packer: Packer = None  # type: ignore[assignment]
    extras: Callable[[str], Any] = lambda _: NOTHING
    may_defer: Callable[[], bool] = lambda: False
    chunks: Callable[..., tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        self.packer = self.packer or Packer(self.namespace, module=str(self.namespace.get("__name__", "__main__")))
        self.rebound: frozenset[str] = frozenset()
        """Names that the last cell bound to another object, whether its content is another or not."""
        self.touched: frozenset[str] = frozenset()
        """Names that the last cell may have touched."""
        self.pending = Pending()
        self.doubts: dict[str, int] = {}
        """Names that changed without a cell that touched them, and the turn in which they were last known."""
        self.turn = 0
        self._variables: dict[str, Variable] = {}
        """Oldest change first."""
        self._watched: set[str] = set()
        self._new: set[str] = set()
        """Watched names since the last cell."""
        self._groups: dict[str, Group] = {}
        """By name, of variables, classes of the user's and objects with packs of their own."""
        self._snapshot = Snapshot(self.namespace)
        self._cell = Cell()
        self._candidates: set[str] = set()
        self._suspect = ""
        self._outside = ""
        self.refresh = False
        """Whether the next cell begins with a look at what it may touch, as far as that is quick: silent code ran."""
        self.quiet = False
        """Whether no code of the user's ran since the last cell, so that names stand for what they stood for."""
        self._bound: set[str] | None = None
        self._verified = False
        """Whether everything was packed since the last cell."""
        self._unpacked = True
        self._last = NamespaceDiff()
        for name in of_user(self._snapshot.names, self.hidden):
            self._add(name)

    @property
    def _pack_seconds(self) -> float:
        return self.settings.end_phase_ms / 1000 * PACK_SHARE

    # -- what the kernel asks ---------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many variables the user has."""
        return len(self._variables) - len(self._watched)

    def names(self) -> list[str]:
        """The user's names, newest change first."""
        return [name for name in reversed(self._variables) if name not in self._watched]

    def variables(self, limit: int | None = None) -> list[tuple[str, TypeInfo]]:
        """The user's variables, newest change first, at most `limit`."""
        names = (name for name in reversed(self._variables) if name not in self._watched)
        return [(name, self.describe(name)) for name in islice(names, limit)]

    def describe(self, name: str) -> TypeInfo:
        """Describe a variable as of its last change. Raises KeyError for what is no name of the user's."""
        variable = self._variables[name]
        if variable.info is None:
            variable.info = self._info(self.namespace.get(name))
        return variable.info

    @property
    def named_nothing(self) -> bool:
        """Whether the last cell mentioned no global name and called no magic."""
        return not self._cell.names and not self._cell.anything and not self._cell.magics

    def may_bind(self, names: re.Pattern[str]) -> bool:
        """Say whether the last cell may have bound or deleted names of this form."""
        cell = self._cell
        return bool(cell.anything or cell.magics or any(map(names.fullmatch, cell.names)))

    def watch(self, name: str) -> None:
        """Follow what `extras(name)` gives, as if it were a variable. Never in a diff."""
        if name not in self._variables:
            self._watched.add(name)
            self._add(name)
            self._new.add(name)
        self.pending.names.add(name)

    def unwatch(self, name: str) -> None:
        """End `watch`."""
        if name in self._watched:
            self._watched.discard(name)
            self._forget(name)
            self.pending.names.discard(name)

    def contents(self) -> dict[str, object]:
        """Return by name what is equal for equal values. Changes nothing."""
        values = {name: self._value(name) for name in self.names()}
        moment = Moment(self.packer, self._value)
        moment.pack([(name,) for name, value in values.items() if not is_atom(value)], join=False)
        found: dict[str, object] = {name: repr(value) for name, value in values.items() if is_atom(value)}
        return found | {name: (piece.key, piece.packed.labels) for name, piece in moment.pieces.items()}

    def changed_since(self) -> set[str]:
        """Return the names that are not what they were when they were packed last. Changes nothing."""
        if self._verified:
            return set()
        moment = Moment(self.packer, self._value)
        names = self._complex()
        moment.pack(self._whole_groups(sorted(names)), join=False)
        same = {name for name, piece in moment.pieces.items() if self._is_same(piece, name, {})}
        atoms = {
            name
            for name, variable in self._variables.items()
            if variable.atom is not NOTHING and not same_atoms(variable.atom, self._value(name))
        }
        return {*(moment.pieces.keys() - same), *(names - moment.pieces.keys()), *atoms}

    def suspect_all(self, reason: str) -> None:
        """Have the next cell treat every variable as touched: something may have changed any of them."""
        self._suspect = self._suspect or reason

    def pack_rest(self) -> None:
        """Pack what the next checkpoint has to store and that is not packed yet."""
        ready = self.pending.pieces.keys() | self.pending.deferred | self.pending.faults.keys()
        lacking = [name for name in self.pending.names if name not in ready and self._is_complex(name)]
        if not lacking:
            return
        moment = self._moment(self._pack_seconds)
        # They may share objects with what the cell touched or bound, and with nothing else.
        ran = {*self.touched, *self.rebound, *self._last.added, *self._last.changed}
        moment.pack(self._whole_groups(sorted({*lacking, *filter(self._is_complex, ran)})))
        deferred = {name for names in moment.deferred for name in names}
        self._await(deferred, moment)
        self._take_pieces(moment, deferred, {}, _Found(frozenset(), ()))
        self.pending.deferred |= deferred
        self.pending.faults |= moment.faults

    def settle(self, target: Collection[str], loaded: Sequence[Sequence[str]], held: Collection[str]) -> None:
        """Take a state that a return put in place as what is stored; `target` are all its names.

        `loaded`: the groups of names that it loaded. `held`: names that come back as they are and are not stored.
        """
        names = (*(name for group in loaded for name in group), *held)
        self.rebase([name for name in names if ":" not in name or name.startswith(("target:", "module:"))])
        self.take_pending()
        for name in [one for one in self._groups if one.startswith(("class:", "shared:")) and one not in target]:
            del self._groups[name]
        self.settle_loaded(loaded)
        for name in held:
            self.store_again(name)

    def settle_loaded(self, groups: Collection[Sequence[str]]) -> None:
        """Take what a restore loaded as what is stored: it is packed to see later whether it changed."""
        moment = Moment(self.packer, self._value)
        new = {tuple(names) for names in groups if any(self._is_complex(n) and n not in self._groups for n in names)}
        new |= {tuple(names) for names in groups if names[0].startswith(("class:", "shared:"))}
        moment.pack(new, join=False)
        for piece in _distinct(moment.pieces):
            # What these refer to is packed by itself here; it may be stored together with others.
            if piece.names in new or any(name not in self._groups for name in piece.names):
                self._keep(piece)

    def accept(self, names: Iterable[str]) -> None:
        """Take what names hold now as what is stored: the process that they belong to was put back since."""
        groups = self._whole_groups(name for name in names if name in self._groups)
        for name in {name for group in groups for name in group}:
            del self._groups[name]
        self.settle_loaded(groups)

    def store_again(self, name: str) -> None:
        """Have the next checkpoint store a name, whatever is known of it."""
        self._groups.pop(name, None)
        if name in self._variables:
            self.pending.names.add(name)

    def store_unchanged(self, names: Iterable[str]) -> None:
        """Have the next checkpoint store names that are what is known of them, and what refers to one of them."""
        more = set(names)
        while more:
            self.pending.names |= more
            users = {name for name, group in self._groups.items() if not more.isdisjoint(group.labels)}
            more = users - self.pending.names

    def take_result(self, names: Sequence[str], listed: Mapping[str, Any]) -> None:
        """Take in what a background job found these names to be, where no later cell touched them."""
        if not self.pending.names.isdisjoint(names):
            return
        shared = [label for label in (*names, *listed["a"]) if label.startswith("shared:")]
        if any(self.packer.labels.object(label) is None for label in shared):
            # The job found that they share something, and gave it a label: this process has to find that itself.
            for name in names:
                self._groups.pop(name, None)
            self._unpacked = True
            return
        known = bytes.fromhex(listed["k"]), tuple(listed["a"]), frozenset(listed["e"]), float(listed["z"])
        if (group := self._groups.get(names[0])) is not None and group.key == known[0]:
            return
        self._groups |= dict.fromkeys(names, Group(tuple(names), *known))

    def take_bound(self) -> set[str] | None:
        """Return the names that were bound anew or deleted since the last call; None where that is not known."""
        taken, self._bound = self._bound, set[str]()
        return taken

    def take_pending(self) -> Pending:
        """Return what the next checkpoint has to store, and begin it anew."""
        taken, self.pending = self.pending, Pending()
        return taken

    def fingerprint(self, name: str) -> str:
        """Return a short text for the fingerprints, equal for equal content in any session; empty where it has none."""
        variable = self._variables[name]
        if variable.atom is not NOTHING:
            return fingerprints.fingerprint(variable.atom, buffers=(), shared=str, hidden=self._hidden_attributes)
        group = self._groups.get(name)
        found = group.prints.get(name, "") if group is not None else ""
        return "" if found.startswith(fingerprints.LIVE) else found

    # -- around a cell ----------------------------------------------------------------------------

    def before(self, source: str) -> NamespaceDiff:
        """Get ready for `source`; returns what changed since the last `after`, outside of any cell."""
        self.release()
        diff = self._before(source)
        if not diff:
            self.release()
        return diff

    def release(self) -> None:
        """Drop what was packed and not stored: the user's code runs next, and may resize it."""
        self.pending.pieces = {}
        self.packer.tokens.release()

    def _everything(self, moved: list[str]) -> tuple[list[str], list[str], list[str], set[str]]:
        """Return all names as added, moved, deleted and touched: by the namespace, and not by the last look at it."""
        there = of_user(tuple(self.namespace), self.hidden)
        added = [name for name in there if name not in self._variables]
        gone = self._variables.keys() - self._watched - set(there)
        return added, moved, sorted(gone), self._variables.keys() - gone - set(moved)

    def verify_next(self) -> None:
        """Have the next cell begin with a look at everything, however long it takes."""
        self._outside = _VERIFY

    def look_outside(self, reason: str) -> None:
        """Have the next cell begin with a look at everything: something ran that no cell shows."""
        self._outside = self._outside or reason

    def _before(self, source: str) -> NamespaceDiff:
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
        if not (cell.names or cell.anything):
            self._candidates = set()
            return diff
        if self._unpacked:
            # What a name shares with another is known only where both were packed at one moment.
            self._unpacked = False
            self._baseline([name for name in sorted(self._complex()) if name not in self._groups])
        self._candidates, anything = self._reachable(cell)
        if anything:
            self._cell = replace(cell, anything=anything)
            self._candidates |= self._complex()
        new = [name for name in self._candidates if name not in self._groups and self._is_complex(name)]
        if new:
            self._baseline(new)
        refresh, self.refresh = self.refresh, False
        quick = self._quick() if refresh and not outside and not self._suspect else ()
        if quick:
            refreshed = self._settle((), (), (), quick)
            if refreshed.changed:
                diff = NamespaceDiff(diff.added, {**diff.changed, **refreshed.changed}, diff.deleted, diff.incomplete)
        return diff

    def after(self, expired: Expired = lambda: False) -> NamespaceDiff:
        """Return what changed since `before`."""
        added, moved, deleted = self._moved()
        touched, self._candidates = self._candidates | (self._new & self._variables.keys()), set()
        self._new = set()
        suspect, self._suspect = self._suspect, ""
        if suspect:
            added, moved, deleted, touched = self._everything(moved)
        self.rebound = frozenset(moved)
        self._verified = False
        self.turn += 1
        diff = NamespaceDiff()
        if added or moved or deleted or touched:
            diff = self._settle(added, moved, deleted, touched, self._cell, hurry=expired())
        # A function that the cell got hold of may have run, and what that uses was not known before.
        further, _ = self._reachable(Cell(frozenset((*added, *moved))))
        further = further.difference(touched, added, moved)
        if further:
            more = self._settle((), (), (), further, self._cell, hurry=expired())
            touched = touched | further
            said = "; ".join(filter(None, (diff.incomplete, more.incomplete)))
            diff = NamespaceDiff(diff.added, {**diff.changed, **more.changed}, diff.deleted, said)
        self.touched = frozenset(touched)
        self._last = diff
        return diff

    def rebase(self, names: Iterable[str]) -> None:
        """Take the namespace as it is, after a restore: nothing is reported; `names` are new."""
        added, moved, deleted = self._moved()
        for name in deleted:
            self._forget(name)
        for name in (*added, *moved, *names):
            if self._value(name) is not NOTHING:
                self._dissolve(name)
                self._add(name)

    # -- which names ------------------------------------------------------------------------------

    def _value(self, name: str) -> Any:
        return self.extras(name) if name in self._watched else self.namespace.get(name, NOTHING)

    def _add(self, name: str) -> None:
        variable = self._variables[name] = Variable()
        variable.turn = self.turn
        self.pending.names.add(name)
        if is_atom(value := self._value(name)):
            variable.atom = value

    def _is_complex(self, name: str) -> bool:
        variable = self._variables.get(name)
        return variable is not None and variable.atom is NOTHING

    def _complex(self) -> set[str]:
        return {name for name, variable in self._variables.items() if variable.atom is NOTHING}

    def _quick(self) -> list[str]:
        """Return those of the candidates that are packed again in a moment, the quickest first."""
        known = {name: group for name in self._candidates if (group := self._groups.get(name)) is not None}
        each = {id(group): group for group in known.values() if group.key}
        left, quick = REFRESH_SECONDS, set[int]()
        for group in sorted(each.values(), key=lambda one: one.seconds + one.hashing):
            left -= group.seconds + group.hashing
            if left < 0:
                break
            quick.add(id(group))
        return [name for name, group in known.items() if id(group) in quick]

    def _forget(self, name: str) -> None:
        self._variables.pop(name, None)
        self._dissolve(name)

    def _dissolve(self, name: str) -> set[str]:
        """Take a name out of its group; returns the others, which have to be packed without it."""
        group = self._groups.pop(name, None)
        if group is None:
            return set()
        return {other for other in group.names if other != name and self._groups.get(other) is group}

    def _moved(self) -> tuple[list[str], list[str], list[str]]:
        """Return the user's names that were added, moved to another address, deleted since the last call."""
        for _ in range(3):
            try:
                new = Snapshot(self.namespace)
                break
            except RuntimeError:  # a thread came between
                continue
        else:
            return [], [], []
        added, moved, deleted = differences(self._snapshot, new)
        self._snapshot = new
        if self._bound is not None:
            self._bound.update(added, moved, deleted)
        both = [*of_user(moved, self.hidden), *of_user(added, self.hidden)]
        fresh = [name for name in both if name not in self._variables]
        again = [name for name in both if name in self._variables]
        return fresh, again, [name for name in deleted if name in self._variables and name not in self._watched]

    def _reachable(self, cell: Cell) -> tuple[set[str], str]:
        """Return the variables that a cell can touch, and why it may touch any, or an empty text."""
        anything = cell.anything
        touched: set[str] = set()
        todo, seen = list(cell.names), set[str]()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            group = self._groups.get(name)
            if group is None and name not in self._variables:
                todo += self._behind(name)
                continue
            if name in self._variables:
                touched.add(name)
            if group is None:
                if self._is_complex(name):
                    self._baseline([name])
                    group = self._groups.get(name)
                if group is None:
                    continue
            todo += group.names
            todo += (label for label in group.labels if label.startswith("class:"))
            reached = ANYTHING_IN_A_FUNCTION & group.deps
            if reached and not anything:
                anything = f"{name} ({min(reached)})"
            todo += group.deps
        return touched, anything

    def _behind(self, name: str) -> list[str]:
        """Return what a name leads to that is no variable of the user's: `_5`, a function of a start-up file."""
        value = self.namespace.get(name, NOTHING)
        if type(value) is FunctionType and value.__globals__ is self.namespace:
            return list(code_facts(value.__code__).names)
        if name.startswith("_") and value is not NOTHING and not is_atom(value):
            same = [one for one in self._variables if self._value(one) is value]
            return same or list(self._complex())  # a part of something, or of nothing
        if name.startswith("module:"):
            return [name] if name in self._variables else []
        return []

    # -- packing ----------------------------------------------------------------------------------

    def _moment(self, seconds: float | None) -> Moment:
        bounded = seconds is not None and self.may_defer()
        # What a return rests on is hashed; what a cell did may be proven by what the system knows was written.
        chunks = functools.partial(self.chunks, prove=seconds is None) if self.chunks is not None else None
        return Moment(self.packer, self._value, seconds if bounded else None, chunks)

    def _whole_groups(self, names: Iterable[str]) -> list[tuple[str, ...]]:
        """Return the groups that these names are in, each once, with what each refers to."""
        found: dict[tuple[str, ...], None] = {}
        for name in names:
            group = self._groups.get(name)
            names = (name,) if group is None else tuple(one for one in group.names if self._groups.get(one) is group)
            found[names] = None
        return list(found)

    def _baseline(self, names: Sequence[str]) -> None:
        """Pack names that were not packed yet; reports nothing."""
        moment = self._moment(self._pack_seconds)
        moment.pack(self._whole_groups(names))
        self._await({name for group in moment.deferred for name in group}, moment)
        for piece in _distinct(moment.pieces):
            if not any(name in self._groups for name in piece.names):
                self._keep(piece)
                for name in piece.names:
                    self.pending.pieces[name] = piece

    def _keep(self, piece: Piece) -> Group:
        packed = piece.packed
        group = Group(piece.names, piece.key, packed.labels, packed.deps, piece.seconds, piece.hashing)
        for name in piece.names:
            self._groups[name] = group
            if (variable := self._variables.get(name)) is not None:
                variable.turn = self.turn
                variable.visible = _visible(self._value(name)) if packed.shared else b""
        if len(packed.stream) <= (COMPARED_BYTES if packed.noted else PLAIN_BYTES):
            group.prints = self._prints(piece)
        return group

    def _settle(
        self,
        added: Collection[str],
        moved: Collection[str],
        deleted: Collection[str],
        touched: Collection[str],
        cell: Cell | None = None,
        *,
        seconds: float | None = 0,
        hurry: bool = False,
    ) -> NamespaceDiff:
        """Pack all these names, take what is there as the state from now on, and return what is different.

        `cell`: what may have changed them; None for something outside of any cell. `seconds`: of processor time for it;
        None for no bound, 0 for what a cell may take.
        """
        seconds = self._pack_seconds if seconds == 0 else seconds
        outside = cell is None
        found = _Found(frozenset(moved), cell.replaced if cell is not None else ())
        self.pending.names |= {*added, *moved, *deleted}
        # A small immutable is known by its address, which is looked at after every cell.
        known = ((name, self.turn if one.atom is not NOTHING else one.turn) for name, one in self._variables.items())
        turns = dict(known) if outside else {}
        old: dict[str, Group] = {name: group for name in (*moved, *touched) if (group := self._groups.get(name))}
        # What these referred to may have changed before they were bound anew.
        left = [group for name in (*moved, *deleted) if (group := self._groups.get(name))]
        again = {label for group in left for label in group.labels if label in self._groups}
        for name in deleted:
            again |= self._dissolve(name)
            self._forget(name)
        todo = self._atoms(added, moved, touched, found)
        for name in moved:
            again |= self._dissolve(name)
        groups = self._whole_groups(dict.fromkeys((*todo, *(again - set(deleted)))))
        moment = self._moment(seconds)
        if seconds is not None and self.may_defer() and (hurry or any(self._is_slow(names) for names in groups)):
            moment.deferred = [names for names in groups if hurry or self._is_slow(names)]
            moment.slow.update(name for names in groups if self._is_slow(names) for name in names)
            groups = [names for names in groups if names not in moment.deferred]
        moment.pack(groups, refer=any(group.labels for group in old.values()))
        deferred = {name for names in moment.deferred for name in names}
        if deferred and len(groups) + len(moment.deferred) > 1:
            # What these share is only known when all are packed at one moment.
            deferred |= {name for names in groups for name in names}
        self._await(deferred, moment)
        changed_parts = self._take_pieces(moment, deferred, old, found)
        if changed_parts:
            self._store_users(changed_parts, moment)
        for name in added:
            if name in self._variables and name not in found.added:
                self._rebind(name, variable := self._variables[name])
                variable.info = found.added[name] = self._info(self._value(name))
        for name in deferred & found.moved & self._variables.keys():  # another object, and not packed yet
            self._change(name, found)
        self._relatives(changed_parts, moment, found)
        for name in found.altered - found.changed.keys() if outside else ():
            if name in self._variables and name not in found.added:
                self._change(name, found)
        for name in found.changed if outside else ():
            together = self._groups[name].names if name in self._groups else (name,)
            turn = max(turns.get(one, self.turn) for one in together)  # a cell that touched one may have changed all
            if turn < self.turn:
                self.doubts[name] = min(turn, self.doubts.get(name, turn))
        for name in (*found.added, *found.changed):
            if name in self._variables:
                self._variables[name] = self._variables.pop(name)
        self.pending.deferred |= deferred
        self.pending.names |= {*found.changed, *deferred, *moment.faults}
        self.pending.faults |= moment.faults
        changed = {name: info for name, info in found.changed.items() if name not in self._watched}
        if outside and not changed:  # a module's variables, say: the state that they are part of is another
            changed = found.changed
        shown = {name: info for name, info in found.added.items() if name not in self._watched}
        said = found.said(sorted(deferred - self._watched))
        return NamespaceDiff(shown or NONE, changed or NONE, tuple(deleted), said)

    def _await(self, names: Collection[str], moment: Moment) -> None:
        """Treat names as one group until it is known what they share."""
        if not names:
            return
        known = [group for name in names if (group := self._groups.get(name))]
        labels = dict.fromkeys(label for group in known for label in group.labels)
        deps = frozenset().union(*(group.deps for group in known)) if known else frozenset[str]()
        # Only what was slow itself is deferred at once the next time.
        seconds = 0.0 if moment.slow.isdisjoint(names) else self._pack_seconds
        group = Group(tuple(sorted(names)), b"", tuple(labels), deps, seconds)
        self._groups |= dict.fromkeys(group.names, group)

    def _is_slow(self, names: Sequence[str]) -> bool:
        """Say whether a group is deferred at once, as packing it took long the last time: a fork costs less."""
        group = self._groups.get(names[0])
        return group is not None and group.seconds > self._pack_seconds / 2

    def _take_pieces(
        self, moment: Moment, deferred: Collection[str], old: Mapping[str, Group], found: _Found
    ) -> set[str]:
        """Take in what was packed; returns the labels of shared objects whose content is another."""
        changed_parts: set[str] = set()
        # What a return to a state before it was shared left out of what is known: its users are stored with it.
        fresh = {name for name in moment.pieces if name.startswith("shared:") and name not in self._groups}
        for piece in _distinct(moment.pieces):
            if not set(piece.names).isdisjoint(deferred):
                continue
            before = self._groups.get(piece.names[0]) or old.get(piece.names[0])
            awaited = before is not None and not before.key
            same = before is not None and before.names == piece.names and before.key == piece.key
            unchanged = {name for name in piece.names if self._is_same(moment.first[name], name, old)}
            if same and before is not None and before.labels == piece.packed.labels:
                before.seconds, before.hashing = piece.seconds, piece.hashing
                # Or it was not stored when it was packed.
                if not (fresh.isdisjoint(piece.packed.labels) and self.pending.names.isdisjoint(piece.names)):
                    self._store(piece)
                for name in piece.names:
                    self._groups[name] = before
                    if (variable := self._variables.get(name)) is not None:
                        variable.turn = self.turn
                        if piece.packed.rebuilt and self._is_another(name, variable, found):
                            self._change(name, found)  # what is made anew has no content that tells two apart
                        elif name in found.moved:
                            self._rebind(name, variable)
                            self._store(piece)
                continue
            known = {name: self._groups.get(name) or old.get(name) for name in piece.names}
            prints = {name: group.prints.get(name, "") if group is not None else "" for name, group in known.items()}
            there = {name for name, group in known.items() if group is not None}
            self._store(piece)
            group = self._keep(piece)
            # One content may be written in two ways; attributes that follow from others are in no fingerprint.
            told = {} if any(map(self._hidden_attributes, piece.packed.classes)) else group.prints
            same_prints = {name for name in there if prints[name] and prints[name] == told.get(name)}
            found.altered |= there - unchanged - same_prints if not awaited else set()
            for name in piece.names:
                if name not in self._variables:
                    as_before = name in unchanged or (prints[name] and prints[name] == group.prints.get(name))
                    if name in there and before is not None and before.key != piece.key and not as_before:
                        changed_parts.add(name)
                    continue
                if name in found.added:
                    continue
                if changed_parts and self._holds_changed(name, changed_parts):
                    self._change(name, found)
                    continue
                now = group.prints.get(name, "")
                if name in unchanged or (prints[name] == now if prints[name] and now else same):
                    self._rebind(name, self._variables[name])
                    continue
                if awaited or (name not in old and name not in found.moved):
                    continue  # it was packed since it shares something now, or lost who it shared with
                self._change(name, found)
        return changed_parts

    def _store_users(self, labels: Collection[str], moment: Moment) -> None:
        """Have the next checkpoint store what refers by name to members of classes that are others now."""
        groups = {group.names for group in self._groups.values() if not group.deps.isdisjoint(labels)}
        for name in {name for names in groups if moment.pieces.keys().isdisjoint(names) for name in names}:
            self.store_again(name)

    def _holds_changed(self, name: str, labels: Collection[str]) -> bool:
        """Say whether a dict holds a class of the user's that is another now: the scope of an `exec`."""
        value = self._value(name)
        if type(value) is not dict:
            return False
        classes = [self.packer.part_of(label) for label in labels if label.startswith("class:")]
        return any(one is cls for one in dict.values(value) for cls in classes)

    def _is_same(self, piece: Piece, name: str, old: Mapping[str, Group]) -> bool:
        group = self._groups.get(name) or old.get(name)
        known = group is not None and (group.names, group.key, group.labels)
        return known == (piece.names, piece.key, piece.packed.labels)

    def _store(self, piece: Piece) -> None:
        for name in piece.names:
            self.pending.pieces[name] = piece
            self.pending.names.add(name)

    def _rebind(self, name: str, variable: Variable) -> None:
        value = self._value(name)
        variable.atom, variable.weak = NOTHING, weak_reference(value)

    def _is_another(self, name: str, variable: Variable, found: _Found) -> bool:
        gone = variable.weak is not None and variable.weak() is not self._value(name)
        return gone or name in found.moved or variable.atom is not NOTHING

    def _change(self, name: str, found: _Found) -> None:
        variable, value = self._variables[name], self._value(name)
        another = self._is_another(name, variable, found)
        how: Literal["rebound", "mutated"] = "rebound" if another or name in found.replaced else "mutated"
        before = self._text_before(variable)
        variable.info = info = self._info(value)
        self._rebind(name, variable)
        found.changed[name] = ChangeInfo(info.type, info.repr, info.size, how, before)

    def _relatives(self, changed_parts: Collection[str], moment: Moment, found: _Found) -> None:
        """Report variables that hold a shared object whose content is another, or a class of that name."""
        if not changed_parts:
            return
        changed_parts = set(changed_parts)
        shared = {group.names[0]: group.labels for name, group in self._groups.items() if name.startswith("shared:")}
        while more := {one for one, labels in shared.items() if not changed_parts.isdisjoint(labels)} - changed_parts:
            changed_parts |= more
        for name, variable in list(self._variables.items()):
            group = self._groups.get(name)
            if variable.atom is not NOTHING or group is None or changed_parts.isdisjoint(group.labels):
                continue
            labels = changed_parts & set(group.labels)
            value = self._value(name)
            of_class = is_kind(type(value), type) and self.packer.part_of(next(iter(labels)))
            if all(label.startswith("class:") for label in labels) and of_class is not value:
                continue
            if name in found.changed or name in found.added:
                continue
            visible = _visible(value)
            if not visible or visible != variable.visible:
                self._change(name, found)
            variable.visible = visible

    def _atoms(
        self, added: Collection[str], moved: Collection[str], touched: Collection[str], found: _Found
    ) -> list[str]:
        """Settle the names that stand for a small immutable; returns the others."""
        todo: list[str] = []
        for name in dict.fromkeys((*added, *moved, *sorted(touched))):
            value = self._value(name)
            variable = self._variables.get(name)
            if value is NOTHING:
                continue
            if not is_atom(value):
                if variable is None:
                    variable = self._variables[name] = Variable()
                    variable.turn = self.turn
                todo.append(name)
                continue
            if variable is None:
                variable = self._variables[name] = Variable()
                variable.atom, variable.info = value, self._info(value)
                found.added[name] = variable.info
            elif variable.atom is NOTHING or not same_atoms(variable.atom, value):
                before = self._text_before(variable)
                variable.atom, variable.weak = value, None
                variable.info = info = self._info(value)
                found.changed[name] = ChangeInfo(info.type, info.repr, info.size, "rebound", before)
            else:
                variable.atom = value
            variable.turn = self.turn
        return todo

    def _text_before(self, variable: Variable) -> str:
        if variable.info is not None:
            return variable.info.repr
        return self._info(variable.atom).repr if variable.atom is not NOTHING else ""

    def _info(self, value: object) -> TypeInfo:
        return describe(value, self.settings.repr_chars, self.packer.module)

    # -- fingerprints -----------------------------------------------------------------------------

    def _prints(self, piece: Piece) -> dict[str, str]:
        packed = piece.packed
        try:
            trees = fingerprints.values_of(packed.stream, [one.nbytes for one in packed.buffers], piece.chunks)
        except Exception:  # a stream with what only its maker can read: nothing is known then
            return {}
        return {name: self._fingerprint(tree, piece) for name, tree in trees.items()}

    def _fingerprint(self, tree: Any, piece: Piece) -> str:
        if isinstance(tree, type) and not hasattr(tree, "content") and (uid := getattr(tree, "label", "")):
            return self._shared_print(f"class:{uid}")
        return fingerprints.fingerprint(
            tree, buffers=piece.chunks, shared=self._shared_print, hidden=self._hidden_attributes
        )

    def _shared_print(self, label: str) -> str:
        group = self._groups.get(label)
        return group.prints.get(label, "") or group.key.hex() if group is not None else label

    def _hidden_attributes(self, label: str) -> frozenset[str]:
        """Return the attributes of instances of a class that follow from the others: of cached properties."""
        cls = self.packer.classes.object(label)
        return Plan(cls, own=True).skip if cls is not None else frozenset()


@dataclass(slots=True)
class _Found:
    """What `_settle` has found so far."""

    moved: frozenset[str]
    """Names that stand for another object."""
    replaced: Collection[str]
    """Names that the cell binds anew, at whatever address."""
    added: dict[str, TypeInfo] = field(default_factory=dict[str, TypeInfo])
    changed: dict[str, ChangeInfo] = field(default_factory=dict[str, ChangeInfo])
    altered: set[str] = field(default_factory=set[str])
    """Names whose bytes are others, whether that tells a person anything or not."""

    def said(self, deferred: list[str]) -> str:
        """One line on what is not known yet; empty where all is."""
        unknown = [name for name in deferred if name not in self.added and name not in self.changed]
        return f"still being compared: {some_of(unknown)}" if unknown else ""


def _visible(value: Any) -> bytes:
    """Return a hash of what an array shows of memory that others share; empty for what is large, or no array."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.nbytes > VISIBLE_BYTES or value.dtype.hasobject:
        return b""
    return xxh3_128_digest(value.tobytes())


def _distinct(pieces: Mapping[str, Piece]) -> list[Piece]:
    """Return each piece once, those that others refer to first: their fingerprints need them."""
    once = list({id(one): one for one in pieces.values()}.values())
    return sorted(once, key=lambda piece: not piece.names[0].startswith(("shared:", "class:")))
