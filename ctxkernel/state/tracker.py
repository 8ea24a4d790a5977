"""What a cell did to the user's names: the one change detection, for the namespace diff and for checkpoints.

The namespace is not hooked; the user's code runs at full speed. Before a cell, its text says which names it can touch
(`state.candidates`): those that it mentions, those that the functions, classes and instances behind them use, and
every name that shares an object with one of these. After it, those are looked into (`state.digest`), and every other
name is checked for standing at another address (`state.snapshot`).

Rule 1: nothing of the user's is run, kept alive or copied; small immutables alone are kept.
Rule 2: a name is reported as changed where its content differs from the content before. Binding it to another object
with equal content is no change of a name; `rebound` has those, as a checkpoint cares. What has no content that can
be read (a lock, a socket) is changed where it is another object.
Rule 3: an address is not an identity, since the next object may lie where the last one was: what a cell may have
bound anew is compared by content as well, and by weak reference where its type allows.
Rule 4: a fault with one object costs that name its digest, nothing else. What was left out is said in `incomplete`.
Rule 5: what a cell does not touch costs nothing that grows with its size.
Rule 6: a checkpoint needs more than the diff: `dirty` also has the names that stand for equal content in other
objects, whose content cannot be read, or that were not looked at whole. `watch` follows values that are no variables
(`Out[5]`, what a view looks at) as if they were.

Not found: what has no state that can be read (the position in an open file or in `itertools.cycle`, rows in a database,
a C extension's own data, text that was moved in a figure); what a cell changes in a module or in a class that can be
imported; what it reaches through `sys.modules` or attributes of modules only; what lies in the part that was left out
of something too large to be looked at whole. What threads, callbacks and widgets do between two cells is found when a
later cell touches the variable, or by `sweep`, as a change outside of a cell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, Literal

from ctxkernel.core.ports import Expired
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import ChangeInfo, NamespaceDiff, TypeInfo
from ctxkernel.state.candidates import Cell, Transform, reachable, read_cell
from ctxkernel.state.digest import Batch, Look
from ctxkernel.state.looking import HANDLE, Looker
from ctxkernel.state.sharing import NO_IDS, Ids, Sharing
from ctxkernel.state.snapshot import Hidden, Names, Snapshot, differences
from ctxkernel.state.survey import Survey, compare, fingerprint
from ctxkernel.state.variables import NOTHING, Found, Variable, is_atom, same_atoms, some_of, weak_reference

_REFRESH_S = 0.002
"""Time for looking again, before a cell, at small things that it touches: what changed outside of any cell."""
_ANYTHING_BYTES = 1024 * 1024
_ANYTHING_OBJECTS = 5000
"""Bounds on what is looked into for a cell that may touch anything."""


class NamespaceTracker:
    """Implements `core.ports.Tracker` for one namespace, a plain dict.

    `hidden`: names that are not the user's, as a set or a function. `transform`: IPython's rewriting of a cell into
    plain Python. `is_handle(value)` says which objects are ours: they are followed by name, not looked into; it is
    only asked of objects whose class leaves `isinstance` alone.
    """

    def __init__(
        self,
        namespace: dict[str, Any],
        *,
        hidden: Hidden = frozenset(),
        settings: Settings | None = None,
        transform: Transform | None = None,
        is_handle: Callable[[object], bool] = lambda _: False,
        clock: Callable[[], float] = time.perf_counter,
        extras: Callable[[str], Any] = lambda _: NOTHING,
    ) -> None:
        self.settings = settings or Settings()
        self.rebound: frozenset[str] = frozenset()
        """Names that the last cell bound to another object, whether its content is another or not."""
        self.touched: frozenset[str] = frozenset()
        """Names that the last cell may have touched."""
        self.dirty: set[str] = set()
        """Names whose state may not be the one of the last `take_dirty`."""
        self.unsure: set[str] = set()
        """Those of `dirty` that were not looked at whole."""
        self._namespace = namespace
        self._names = Names(hidden)
        self._transform = transform
        self._looker = Looker(namespace, self.settings, is_handle)
        self._clock = clock
        self._variables: dict[str, Variable] = {}
        """Oldest change first."""
        self._extras = extras
        self._watched: set[str] = set()
        self._hashed: dict[tuple[int, int], tuple[int, ...]] = {}
        self._sharing = Sharing()
        self._unlooked: set[str] = set()
        """Names that were not looked at yet: there before us, or time had run out."""
        self._cut: set[str] = set()
        """Names of which it is not known what they hold now: time ran out in the middle of the last look."""
        self._snapshot = Snapshot(namespace)
        self._cell = Cell()
        self._candidates: set[str] = set()
        self._maybe: set[str] = set()
        """Those of the candidates that the cell does not mention, but may reach as it may reach anything."""
        self._left_out: list[str] = []
        self._last: NamespaceDiff = NamespaceDiff()
        for name in self._names.filter(self._snapshot.names):
            variable = self._variables[name] = Variable()
            value = namespace.get(name)
            if is_atom(value):
                variable.atom = value
            else:
                self._unlooked.add(name)

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
            variable.info = self._looker.info(self._namespace.get(name))
        return variable.info

    def changed_objects(self) -> Iterator[tuple[str, Any]]:
        """The names that the last diff says were added or changed, with the live values."""
        for name in (*self._last.added, *self._last.changed):
            value = self._namespace.get(name, NOTHING)
            if value is not NOTHING:
                yield name, value

    def group(self, name: str) -> frozenset[str]:
        """The names that share an object with `name`, itself among them, directly or by way of others.

        As of their last looks; what was not looked at to its end is, now. Raises KeyError for what is no name of the
        user's.
        """
        if name not in self._variables:
            raise KeyError(name)
        todo, found = [name], {name}
        self._baseline([one for one in self._unlooked if one in self._variables], lambda: False, hash_bodies=False)
        if self._cut:
            self._look_for_ids()
        while todo:
            ids = self._sharing.held(todo.pop())
            if len(ids):
                fresh = self._sharing.owners(ids) - found
                found |= fresh
                todo += fresh
        return frozenset(found)

    def _look_for_ids(self) -> None:
        """Find out what the names hold whose last look was cut short.

        Only that is taken: what the last whole look saw is still what the next one is compared with. Large data hold
        nothing, so they are not read.
        """
        batch = self._looker.batch(lambda: False)
        for name in self._cut:
            survey = self._looker.finish(self._looker.start(batch, self._value(name)), hash_bodies=False)
            if survey is not None:
                self._sharing.put(name, survey.ids)
        self._cut.clear()

    def hashes(self, address: int, nbytes: int) -> tuple[int, ...] | None:
        """The hashes (xxh3_128, one every `digest.CHUNK` bytes) of a block of memory that the last look read whole."""
        return self._hashed.get((address, nbytes))

    @property
    def named_nothing(self) -> bool:
        """Whether the last cell mentioned no global name at all."""
        return not self._cell.names and not self._cell.anything

    def look(self, value: object, expired: Expired = lambda: False) -> Survey | None:
        """Look at any value as at one of the namespace; None where that cannot be done."""
        return self._looker.look(self._looker.batch(expired), value)

    def owners_of_memory(self, address: int) -> set[str]:
        """The names whose values lie in the block of memory that begins at `address`."""
        return self._sharing.owners(frozenset((-address,)))

    def watch(self, name: str) -> None:
        """Follow what `extras(name)` gives, as if it were a variable. Never in a diff."""
        if name not in self._variables:
            self._variables[name] = Variable()
            self._watched.add(name)
            self._unlooked.add(name)
        self.dirty.add(name)

    def unwatch(self, name: str) -> None:
        """End `watch`."""
        if name in self._watched:
            self._watched.discard(name)
            self._forget(name)
            self.dirty.discard(name)

    def reconfigure(self, settings: Settings) -> None:
        """Have other settings from now on."""
        self.settings = self._looker.settings = settings

    def take_dirty(self) -> tuple[set[str], set[str]]:
        """Return `dirty` and `unsure`, and begin them anew."""
        taken = self.dirty, self.unsure
        self.dirty, self.unsure = set(), set()
        return taken

    def _value(self, name: str) -> Any:
        return self._extras(name) if name in self._watched else self._namespace.get(name, NOTHING)

    def survey(self, name: str) -> Survey | None:
        """The last look at a variable; None for a small immutable, or where there was none yet."""
        return self._variables[name].survey

    def fingerprint(self, name: str) -> str:
        """A short text for the content, equal for equal content in any session; empty where it has none."""
        variable = self._variables[name]
        if variable.atom is not NOTHING:
            return fingerprint(Look(self._looker.batch(lambda: False), variable.atom).finish())
        return fingerprint(variable.survey) if variable.survey else ""

    # -- around a cell ----------------------------------------------------------------------------

    def before(self, source: str) -> NamespaceDiff:
        """Get ready for `source`; returns what changed since the last `after`, outside of any cell."""
        added, moved, deleted = self._moved()
        self._left_out = []
        self._hashed = {}
        cell = self._cell = read_cell(source, self._transform)
        if not (cell.names or cell.anything or added or moved or deleted):
            self._candidates = set()
            return NamespaceDiff()
        start, limit = self._clock(), self.settings.end_phase_ms / 1000
        expired: Expired = lambda: self._clock() - start > limit  # noqa: E731 - one line says it
        diff = self._settle(added, moved, deleted, (), Cell(), expired)
        touched = self._touched(cell, expired)
        stale, refresh = self._lacking(touched)
        self._baseline(stale, expired)
        soon = self._clock() + _REFRESH_S
        refreshed = self._settle((), (), (), refresh, Cell(), lambda: self._clock() > soon)
        self._candidates = touched
        self._hashed = {}  # of before the cell
        if refreshed.changed:
            diff = NamespaceDiff(diff.added, {**diff.changed, **refreshed.changed}, diff.deleted, diff.incomplete)
        return diff

    def after(self, expired: Expired) -> NamespaceDiff:
        """Return what changed since `before`. Goes on with less once `expired()`."""
        added, moved, deleted = self._moved()
        touched, self._candidates = self._candidates, set()
        self.rebound = frozenset(moved)
        if added or moved or deleted or touched:
            diff = self._settle(added, moved, deleted, touched, self._cell, expired)
        else:
            diff = NamespaceDiff()
        if self._left_out:
            self.unsure.update(self._left_out)
            said = f"{self._cell.anything} may have changed what is too large to look into: {some_of(self._left_out)}"
            diff = NamespaceDiff(
                diff.added, diff.changed, diff.deleted, "; ".join(filter(None, (diff.incomplete, said)))
            )
        self.touched = frozenset(touched)
        self.dirty |= self.unsure
        self._last = diff
        return diff

    def sweep(self, expired: Expired) -> NamespaceDiff:
        """Look at everything, for idle time: finds what changed without any cell that touched it."""
        added, moved, deleted = self._moved()
        self._baseline([name for name, kept in self._variables.items() if kept.survey is None], expired)
        known = [name for name, kept in self._variables.items() if kept.survey is not None]
        return self._settle(added, moved, deleted, known, Cell(), expired)

    def rebase(self, names: Iterable[str] | None = None) -> None:
        """Take the namespace as it is, after a restore: nothing is reported; `names` (None: all) are looked at anew."""
        added, moved, deleted = self._moved()
        for name in deleted:
            self._forget(name)
        known = [name for name in (self._variables if names is None else names) if self._value(name) is not NOTHING]
        for name in (*added, *moved, *known):
            self._variables[name] = Variable()
            self._sharing.remove(name)
            self._cut.discard(name)
            self._unlooked.add(name)

    # -- which names --------------------------------------------------------------------------------

    def _moved(self) -> tuple[list[str], list[str], list[str]]:
        """Return the user's names that were added, moved to another address, deleted since the last call."""
        for _ in range(3):
            try:
                new = Snapshot(self._namespace)
                break
            except RuntimeError:  # a thread came between
                continue
        else:
            return [], [], []
        added, moved, deleted = differences(self._snapshot, new)
        self._snapshot = new
        names = self._names.filter
        fresh = [name for name in names(added) if name not in self._variables]
        again = [name for name in names(moved) if name in self._variables]
        again += [name for name in names(added) if name in self._variables]
        fresh += [name for name in names(moved) if name not in self._variables]
        return fresh, again, [name for name in deleted if name in self._variables]

    def _touched(self, cell: Cell, expired: Expired) -> set[str]:
        """Return the names that the cell can touch, and note those that are too large to be looked at for a maybe."""

        def survey_of(name: str) -> Survey | None:
            variable = self._variables.get(name)
            if variable is None:  # not the user's, such as `_`: it can lead to what is
                value = self._namespace.get(name)
                return None if is_atom(value) else self._looker.look(self._looker.batch(expired), value)
            if name in self._unlooked:
                self._baseline((name,), expired, hash_bodies=False)
            return variable.survey

        def owners(ids: Ids) -> set[str]:
            # What shares an object with another is only known where all were looked at.
            self._baseline(list(self._unlooked), expired, hash_bodies=False)
            return self._sharing.owners(ids)

        self._maybe = set()
        names, anything = reachable(cell, self._namespace, survey_of, owners)
        touched = {name for name in names if name in self._variables}
        if anything:
            self._cell = Cell(cell.names, cell.replaced, anything)
            for name, variable in self._variables.items():
                if name in touched or variable.atom is not NOTHING:
                    continue
                survey = variable.survey
                if survey is not None and (survey.nbytes > _ANYTHING_BYTES or survey.objects > _ANYTHING_OBJECTS):
                    self._left_out.append(name)
                else:
                    self._maybe.add(name)
        return touched | self._maybe

    def _lacking(self, touched: set[str]) -> tuple[list[str], list[str]]:
        """Return the touched names that have no whole look yet, and those that are cheap to look at again."""
        stale: list[str] = []
        cheap: list[str] = []
        for name in touched:
            variable = self._variables[name]
            survey = variable.survey
            if variable.atom is not NOTHING or survey is HANDLE:
                continue
            if survey is None or (survey.nbytes and not survey.body and survey.walked):
                stale.append(name)
            elif survey.cheap:
                cheap.append(name)
        return stale, cheap

    # -- looking ------------------------------------------------------------------------------------

    def _keep(self, name: str, variable: Variable, value: object, survey: Survey | None) -> None:
        self._unlooked.discard(name)
        self._cut.discard(name)
        if is_atom(value):
            variable.atom, variable.survey, variable.weak = value, None, None
            self._sharing.remove(name)
        else:
            variable.atom, variable.survey, variable.weak = NOTHING, survey, weak_reference(value)
            if survey is None:
                self._unlooked.add(name)
            elif survey.ran_out:
                self._cut.add(name)
            self._sharing.put(name, NO_IDS if survey is None else survey.ids)

    def _baseline(self, names: Collection[str], expired: Expired, *, hash_bodies: bool = True) -> None:
        """Look at names that have no whole look yet; reports nothing."""
        if not names:
            return
        batch = self._looker.batch(expired)
        large: list[_Waiting] = []
        for name in names:
            variable, value = self._variables[name], self._value(name)
            if value is NOTHING:
                continue
            if is_atom(value):
                self._keep(name, variable, value, None)
            elif not expired():
                look = self._looker.start(batch, value)
                if look is not None and look.nbytes and hash_bodies:
                    large.append((name, variable, value, look))
                else:
                    self._keep(name, variable, value, self._looker.finish(look, hash_bodies=hash_bodies))
        for name, variable, value, look in sorted(large, key=_cost):
            self._keep(name, variable, value, self._looker.finish(look))

    # -- changes ------------------------------------------------------------------------------------

    def _settle(
        self,
        added: Collection[str],
        moved: Collection[str],
        deleted: Collection[str],
        touched: Collection[str],
        cell: Cell,
        expired: Expired,
    ) -> NamespaceDiff:
        """Look at all these names, take what is there as the state from now on, and return what is different."""
        found = Found(moved, cell.replaced, expired)
        for name in deleted:
            self._forget(name)
        batch: Batch | None = None
        large: list[_Waiting] = []
        for name in self._in_order(added, moved, touched):
            value = self._value(name)
            if value is NOTHING:
                continue
            variable = self._variables.get(name)
            fresh = variable is None
            if variable is None:
                variable = self._variables[name] = Variable()
            elif variable.atom is not NOTHING and value is variable.atom:
                continue
            elif variable.survey is HANDLE and variable.weak is not None and variable.weak() is value:
                continue  # a handle or a module: nothing inside is the user's
            if is_atom(value):
                self._atom(name, variable, value, fresh, found)
                continue
            look: Look | Survey | None = None
            if expired():
                if not fresh and name not in found.moved:
                    found.late.append(name)
            else:
                batch = batch or self._looker.batch(expired)
                look = self._looker.start(batch, value)
                if look is None:
                    found.faulty.append(name)
            if fresh:
                found.added[name] = self._describe_now(variable, value, expired)
            if look is not None and look.nbytes:
                large.append((name, variable, value, look))
            else:
                self._conclude(name, variable, value, look, found)
        # Large buffers last, and the smaller ones first: by now every structure has been seen.
        for name, variable, value, look in sorted(large, key=_cost):
            self._conclude(name, variable, value, look, found)
        for name in (*found.added, *found.changed):
            self._variables[name] = self._variables.pop(name)
        if batch is not None:
            self._hashed = batch.memo
        self.dirty.update(found.added, found.changed, moved, deleted, found.unknown)
        self.unsure.update(found.late, found.faulty)
        changed = found.changed
        if not self._watched.isdisjoint(changed):
            changed = {name: info for name, info in changed.items() if name not in self._watched}
        return NamespaceDiff(found.added, changed, tuple(deleted), found.said())

    def _conclude(self, name: str, variable: Variable, value: object, look: Look | Survey | None, found: Found) -> None:
        """Finish a look, say whether the name is different, and take what was seen as its state."""
        survey = self._looker.finish(look)
        old = variable.survey
        if survey is None or not survey.whole:
            self.unsure.add(name)
        elif survey.by_identity or old is None or survey.order != old.order:
            self.dirty.add(name)
        if name not in found.added:
            self._judge(name, variable, value, survey, found)
            seen_less = survey is None or (old is not None and old.extent > survey.extent)
            if seen_less and name not in found.changed and name not in found.moved:
                # As far as was seen the old look still holds, and it saw more: but not what the value holds now.
                if survey is None or survey.ran_out:
                    self._cut.add(name)
                else:
                    self._sharing.put(name, survey.ids)
                return
        self._keep(name, variable, value, survey)

    def _in_order(self, added: Collection[str], moved: Collection[str], touched: Collection[str]) -> Iterable[str]:
        """Return all these names once, what is known to be large last: a small change is not lost to a large object."""

        def size(name: str) -> tuple[bool, int, str]:
            survey = self._variables[name].survey if name in self._variables else None
            return name in self._maybe, 1000 if survey is None else survey.objects, name

        known = [name for name in touched if name in self._variables]
        return dict.fromkeys((*added, *sorted({*moved, *known}, key=size)))

    def _atom(self, name: str, variable: Variable, value: object, fresh: bool, found: Found) -> None:
        """Settle a name that now stands for a small immutable."""
        old, known = variable.atom, variable.atom is not NOTHING or variable.survey is not None
        before = self._before(variable)
        self._keep(name, variable, value, None)
        if old is not NOTHING and same_atoms(old, value):
            return
        variable.info = info = self._looker.info(value)
        if fresh:
            found.added[name] = info
        elif known or name in found.moved:
            found.changed[name] = ChangeInfo(info.type, info.repr, info.size, "rebound", before)

    def _before(self, variable: Variable) -> str:
        if variable.info is not None:
            return variable.info.repr
        return self._looker.info(variable.atom).repr if variable.atom is not NOTHING else ""

    def _judge(self, name: str, variable: Variable, value: object, survey: Survey | None, found: Found) -> None:
        """Say whether a name that was there before is different now."""
        old = variable.survey
        gone = variable.weak is not None and variable.weak() is not value
        another = name in found.moved or gone or variable.atom is not NOTHING
        if old is None or survey is None:
            # Nothing to compare with: another object counts as a change; the same one may be one.
            differs, whole = another, another
            if not another and survey is not None:
                found.unknown.append(name)
        else:
            differs, whole = compare(old, survey)
            if survey is HANDLE or old is HANDLE or survey.opaque:
                differs = differs or another or (survey is HANDLE) is not (old is HANDLE)
            elif another and not differs and not whole:
                differs = True
            if not whole and not differs:
                found.partly(name, survey if not survey.whole else old)
        if not differs:
            return
        how: Literal["rebound", "mutated"] = "rebound" if another or name in found.replaced else "mutated"
        before = self._before(variable)
        info = self._describe_now(variable, value, found.expired)
        found.changed[name] = ChangeInfo(info.type, info.repr, info.size, how, before)

    def _describe_now(self, variable: Variable, value: object, expired: Expired) -> TypeInfo:
        if expired():
            variable.info = None
            return TypeInfo(type(value).__name__ if type(type(value)) is type else "object", "")
        variable.info = self._looker.info(value)
        return variable.info

    def _forget(self, name: str) -> None:
        self._variables.pop(name, None)
        self._unlooked.discard(name)
        self._cut.discard(name)
        self._sharing.remove(name)


_Waiting = tuple[str, Variable, Any, Look | Survey]
"""A name with a look that has large buffers to hash."""


def _cost(waiting: _Waiting) -> int:
    return waiting[3].nbytes
