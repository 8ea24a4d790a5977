"""Storage of the state after every cell. `state.checkpoints.restore` restores one.

    pieces that the tracker packed after the cell → units → new data go to the chunk store; large data, and names that
    could not be packed in time, outside of the user's time (`state.checkpoints.storage`)

Rule 1: a value that cannot be stored is named with the reason, in the state and in every plan.
Rule 2: a state is complete, or its unknown parts are named: no value is assumed to be unchanged.
Rule 3: an object without a stored form is held while a state within reach has it, and returns in its present condition.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import StoreError
from ctxkernel.core.replay import CheckpointInfo, CheckpointState
from ctxkernel.core.state_names import LABELS, MODULE, SHARED, is_bound
from ctxkernel.state.base.namespace import NOTHING, is_atom
from ctxkernel.state.checkpoints import units
from ctxkernel.state.checkpoints.copy_check import Unequal
from ctxkernel.state.checkpoints.states import Known, States
from ctxkernel.state.checkpoints.storage import BACKGROUND_SECONDS, StateChanges, Storage, unit_of
from ctxkernel.state.checkpoints.units import PLAIN, State, Unit, missing_of
from ctxkernel.state.tracking.found_changes import Pending
from ctxkernel.state.tracking.groups import PackPiece
from ctxkernel.state.tracking.late_changes import LateChanges, content_from_json
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.state.types import connections
from ctxkernel.state.types.connections import is_released

MOST_HELD = 1000
"""Objects without a stored form that are held for a return to them, the newest ones."""
MOST_STATES_HELD = 20
"""States of which values without stored data are held."""


@dataclass(slots=True)
class Taken:
    """The result of `take`: the facts for the log, and the manifest."""

    info: CheckpointInfo
    manifest: dict[str, Any]


class Checkpointer:
    """The states of one session, and the stored units of the present one."""

    def __init__(self, tracker: NamespaceTracker, storage: Storage) -> None:
        self.states = States(storage.chunks.read)
        self.tracker = tracker
        self.storage = storage
        self._packer, self._value = storage.packer, storage.value_of
        self._current: State = {}
        """The present state, by the units that were stored last."""
        self.base: str | None = None
        """The execution whose state is the present one, as far as is known, but for `_apart`."""
        self._labels: set[str] = set()
        """Shared objects that `_current` has."""
        self._apart: set[str] = set()
        """Names of the state of `base` that could not be restored."""
        self._others: set[str] = set()
        """Names whose units in `_current` are not those that the state of `base` has."""
        self._lacks = False
        """Whether there may be units in `_current` whose data are not stored."""
        self._plain: dict[str, Any] = {}
        """Plain values of the last checkpoint: those that could not be stored are tried again."""
        self._turns: dict[str, int] = {}
        """Execution → the tracker's turn when its checkpoint was taken."""
        self._numbers: dict[str, int] = {}
        """Execution → the number of its checkpoint."""
        self._stored: dict[str, int] = {}
        """Name → the number of the checkpoint that its unit in `_current` is of."""
        self._used: dict[str, int] = {}
        """Token → the turn in which a cell that may have used it ran last."""
        self._touched: dict[str, int] = {}
        """Name → the turn in which a cell touched it last."""
        self.shelf: dict[str, Any] = {}
        """Token → an object that has no stored form, held so that a return finds it."""
        self.held: dict[str | None, dict[str, Any]] = {}
        """Execution → values of its state whose data are not stored, by name."""
        self.prints: dict[tuple[str | None, tuple[str, ...]], Any] = {}
        """Keys that show whether such values changed: by execution and the names of a unit."""
        self.left: tuple[str | None, int] = ("", -1)
        """The state that was left last, and the tracker's turn then."""
        self.writing: dict[str, list[Any]] = {}
        """Execution → tickets that write data of its checkpoint."""
        self.late = LateChanges()
        """The changes that the cells have not told, as their variables are packed in the background."""

    def take(
        self, execution_id: str, plain: Mapping[str, Any], gone: Iterable[str] = (), *, whole: bool = False
    ) -> Taken:
        """Take the state after `execution_id`.

        `plain`: pseudo-names with plain values that changed since the last call; `gone`: those that went away. The
        manifest is a difference, or the `whole` state. A value that cannot be stored is named in the info.
        """
        before, self._plain = self._plain, {}
        if self._lacks:
            lacking = [name for name, unit in self._current.items() if unit.digest and not unit.stream[0]]
            self._lacks = bool(lacking)
            self._plain = {name: before[name] for name in lacking if name in before}
            self.tracker.store_unchanged(set(lacking).difference(before))
        self.tracker.pack_rest()
        pending = self.tracker.take_pending()
        try:
            return self._make_manifest(execution_id, pending, plain, gone, whole=whole)
        except BaseException:
            self.tracker.pending.names |= pending.names
            raise

    def _make_manifest(
        self, execution_id: str, pending: Pending, plain: Mapping[str, Any], gone: Iterable[str], *, whole: bool
    ) -> Taken:
        start = time.perf_counter()
        changes = StateChanges(execution_id)
        self._turns[execution_id] = self.tracker.turn
        self._numbers[execution_id] = len(self._numbers) + 1
        doubts: dict[str, list[str]] = {}
        if found := self.tracker.doubts:
            doubts, self.tracker.doubts = self.states.find_doubts(found, self._turns, self.base, execution_id), {}
        plain = self._plain = {**self._plain, **plain}
        if self._apart or self._labels or gone or pending.names:
            self._drop_gone(pending, gone, changes)
        self._touched |= dict.fromkeys(self.tracker.touched, self.tracker.turn)
        for name in self.tracker.touched & self._current.keys():
            for token, _ in self._current[name].live:
                self._used[token] = self.tracker.turn
        fault = ""
        try:
            if plain or self._others or pending.names or pending.pieces or pending.deferred or pending.faults:
                self._add_changes(pending, plain, changes)
        except StoreError as error:  # no room, a folder that is gone: the next checkpoint tries again
            fault = str(error)
        under_way: list[Any] = []
        for ticket in changes.tickets:
            if not ticket.done or not ticket.fault:
                under_way.append(ticket)
            else:
                fault = fault or ticket.fault
        state: CheckpointState = "skipped" if fault else "writing" if under_way else "durable"
        elapsed = round((time.perf_counter() - start) * 1000, 3)
        info = CheckpointInfo(f"c{execution_id}", execution_id, state, changes.written, elapsed, changes.missing, fault)
        known = Known(self.base, changes.units, sorted(changes.gone), info)
        if fault:
            self._fail(known, fault)
        listed = list({id(unit): unit for unit in self._current.values()}.values()) if whole else known.units
        manifest: dict[str, Any] = {
            "v": units.VERSION,
            "base": None if whole or self.base is None else f"c{self.base}",
            "units": [*map(partial(units.unit_to_json, recipe=self.storage.recipe), listed)],
            "gone": [] if whole else known.gone,
        }
        if doubts:
            manifest["u"] = doubts
        self.states.known[execution_id] = known
        self.base = execution_id
        self.late.ask(execution_id, pending.deferred if under_way else (), pending.open)
        if under_way:
            self.writing[execution_id] = under_way
        else:
            self.late.answer(execution_id, {})
        return Taken(info, manifest)

    def _add_changes(self, pending: Pending, plain: Mapping[str, Any], changes: StateChanges) -> None:
        """Make units of the changes, and write new data. Raises StoreError."""
        others, self._others = self._others, set[str]()
        for unit in {id(one): one for name in others if (one := self._current.get(name))}.values():
            self._put(units.within(unit, self._current), changes)
        self._atoms(pending, plain, changes)
        for piece in {id(one): one for one in pending.pieces.values()}.values():
            unequal = self.storage.unequal(piece)
            if unequal is None:
                pending.defer(piece.names)
            else:
                self._unit(piece, unequal, changes)
        self._defer(pending, changes)
        for name, why in pending.faults.items():
            self._put(Unit((name,), missing={name: why}), changes)
        self.storage.write(changes, self._current)

    def _drop_gone(self, pending: Pending, gone: Iterable[str], changes: StateChanges) -> None:
        changes.gone |= {name for name in self._apart if self._value(name) is NOTHING}
        self._apart = set()
        dead = {label for label in self._labels if self._packer.part_of(label) is None}
        # One that a unit still refers to is a part of that, even where the live values have it not.
        while dead and (used := {one for n, u in self._current.items() if n not in dead for one in u.labels} & dead):
            dead -= used
        for label in dead:
            self._labels.discard(label)
            if self._current.pop(label, None) is not None:
                changes.gone.add(label)
        for name in (*gone, *sorted(pending.names)):
            if name in self._current and not name.startswith(LABELS) and self._value(name) is NOTHING:
                self._current.pop(name)
                changes.gone.add(name)

    def _put(self, unit: Unit, changes: StateChanges) -> None:
        """Make a unit that of its names."""
        changes.add(unit)
        changes.missing |= missing_of(unit)
        self._current |= dict.fromkeys(unit.names, unit)
        self._stored |= dict.fromkeys(unit.names, len(self._numbers))
        self._labels.update(name for name in unit.names if name.startswith(SHARED))

    def _atoms(self, pending: Pending, plain: Mapping[str, Any], changes: StateChanges) -> None:
        """Store small immutables, and plain values, together in one stream."""
        values = dict(plain)
        for name in sorted(pending.names):
            value = self._value(name)
            if value is not NOTHING and is_atom(value):
                values[name] = value
        stored: dict[str, Any] = {}
        for name, value in values.items():
            digest = PLAIN + self.storage.address(pickle.dumps(value, 5))
            place = self.storage.place(digest)
            if place is None:
                stored[digest] = value
            unit = Unit((name,), digest, place or ("", 0))
            if place is None or not unit.equals(self._current.get(name)):
                self._put(unit, changes)
        if stored:
            changes.streams.append(("", pickle.dumps(stored, 5), tuple(stored)))

    def _unit(self, piece: PackPiece, unequal: Unequal, changes: StateChanges) -> None:
        """Make a piece the unit of its names."""
        packed, names = piece.packed, piece.names
        self.late.forget(names)
        old = self._current.get(names[0])
        digest = self.storage.address(packed.stream)
        place = self.storage.place(digest)
        again = {one.token for one in packed.again}
        for token, thing in packed.live.items():
            self._note_use(token, names, self.tracker.turn)
            if token not in again or self._packer.tokens.object(token) is None:
                self._hold(token, thing)  # a connection is released with the user's last reference to it
        self.storage.note(piece, old, changes)
        unit = unit_of(piece, digest, place or ("", 0), changes.execution_id, unequal)
        if unequal.lost:
            live = *unit.live, *self._hold_unequal(unequal.lost, changes.execution_id, self.tracker.turn)
            unit = replace(unit, live=live)
        # A job that is under way may have another content of a label, of an earlier state.
        waits = bool(self.writing) and names[0].startswith(LABELS)
        if unit.equals(old) and place is not None and old is not None and old.stream[0] and not waits:
            return
        if place is None:
            changes.streams.append((digest, packed.stream, ()))
        self._put(unit, changes)

    def _hold_unequal(self, names: Iterable[str], version: str, turn: int) -> Iterator[tuple[str, str]]:
        """Hold the values whose copies are not equal to them; yields their tokens.

        `version`: the execution that stores them. `turn`: that of the last cell that may have used them.
        """
        for name in names:
            value = self._value(name)
            token = f"unequal:{name}:{self._packer.token(value)}"
            self._hold(token, value)
            if name.startswith(MODULE):  # a new dict each time, of the same objects
                self._used |= {one: turn for one in self._used if one.startswith(f"unequal:{name}:")}
            self._used[token] = turn
            yield token, version

    def _note_use(self, token: str, names: Iterable[str], turn: int) -> None:
        """Note when a token in a unit of these names was used last: a new one in `turn`, or when a cell touched a name.

        A cell that touched a name while a job packed it could not know the token.
        """
        self._used[token] = max(self._used.get(token, turn), *(self._touched.get(name, 0) for name in names))

    def _hold(self, token: str, thing: Any) -> None:
        """Hold an object without a stored form, unless the user ends it by releasing it."""
        if token in self.shelf or is_released(thing):
            return
        self.shelf[token] = thing
        while len(self.shelf) > MOST_HELD:
            del self.shelf[next(iter(self.shelf))]

    def _defer(self, pending: Pending, changes: StateChanges) -> None:
        """Have names that could not be packed in time packed outside of the user's time."""
        names = sorted(name for name in pending.deferred if self._value(name) is not NOTHING)
        if not names:
            return
        changes.groups, changes.before = tuple((name,) for name in names), dict(self._current)
        self._put(Unit(tuple(names), job=changes.execution_id), changes)

    def poll(self) -> list[tuple[CheckpointInfo, dict[str, Any]]]:
        """Return (info, rows for the log) of checkpoints that the background completed.

        The rows map jobs to units, as JSON: they are to be signed and stored with the state of the checkpoint.
        """
        if not self.writing:
            return []
        self.storage.background.poll()
        done: list[tuple[CheckpointInfo, dict[str, Any]]] = []
        for execution_id, tickets in list(self.writing.items()):
            if all(ticket.done for ticket in tickets):
                del self.writing[execution_id]
                done.append(self._finish(execution_id, tickets))
        return done

    def wait_for_names(self, names: Iterable[str], seconds: float) -> None:
        """Wait until the background has packed names, for some time at most."""
        jobs = {unit.job for name in names if (unit := self._current.get(name)) is not None and unit.job}
        self.storage.background.wait(seconds, [one for job in jobs for one in self.writing.get(job, ())])

    def _finish(self, execution_id: str, tickets: Sequence[Any]) -> tuple[CheckpointInfo, dict[str, Any]]:
        known = self.states.known[execution_id]
        rows: dict[str, dict[str, Any]] = {}
        for one in tickets:
            rows |= (one.result or {}) if not one.fault else {}
        fault = next((str(one.fault) for one in tickets if one.fault), "")
        missing = dict(known.info.missing)
        try:
            for job, result in rows.items():
                for unit in self._taken_in(job, result):
                    missing |= missing_of(unit)
        except (StoreError, LookupError, ValueError, TypeError) as error:
            fault = fault or str(error)
        self.late.answer(execution_id, {})  # what has no answer by now
        if any(one.hangs for one in tickets):
            self.storage.never_forked.update(name for unit in known.units if unit.job for name in unit.names)
        if fault:
            self._fail(known, fault)
        told = f"its data could not be written: {fault}" if fault else ""
        known.info = replace(known.info, state="damaged" if fault else "durable", missing=missing, reason=told)
        return known.info, rows

    def _taken_in(self, job: str, result: dict[str, Any]) -> list[Unit]:
        if job in self.states.made:
            return self.states.finish(job, result)
        contents = {name: content_from_json(one) for name, one in result.get("f", {}).items()}
        self.late.answer(job, contents)
        result["f"] = {name: one.fingerprint for name, one in contents.items()}
        names = [name for listed in result["units"] if listed.get("i") for name in listed["n"]]
        labels = [one for listed in result["units"] for one in listed.pop("i", ())]
        renamed = self._packer.adopt(labels, map(self._value, names))
        for listed in result["units"]:
            self.storage.rename_labels(listed, renamed)
            unequal, fresh = listed.pop("u", {}), self._is_fresh(listed["n"], job)
            alive = [name for name, at in unequal.items() if fresh or id(self._value(name)) == at]
            turn = self._turns.get(job, self.tracker.turn) if fresh else self.tracker.turn
            held = self._hold_unequal(alive, job, turn)
            listed["l"] = [*listed.get("l", ()), *map(list, held)]
        made = self.states.finish(job, result)
        for unit, listed in zip(made, result["units"], strict=True):
            self.storage.streams.setdefault(unit.digest, unit.stream)
            fresh = self._is_fresh(unit.names, job)
            for token, _ in unit.live:  # where a cell touched it since, it may be another object by now
                turn = self._turns.get(job, self.tracker.turn) if fresh else self.tracker.turn
                self._note_use(token, unit.names, turn)
                if (thing := self._packer.tokens.object(token)) is not None:
                    self._hold(token, thing)
            if fresh:
                self._current |= dict.fromkeys(unit.names, unit)
                self._stored |= dict.fromkeys(unit.names, self._numbers.get(job, 0))
                if "k" in listed:
                    self.tracker.take_result(unit.names, listed)
        return made

    def _is_fresh(self, names: Iterable[str], job: str) -> bool:
        """Return whether no later checkpoint has stored any of these names again."""
        number = self._numbers.get(job, 0)
        return all(
            self._stored.get(name, 0) <= number and (name.startswith(LABELS) or name in self._current) for name in names
        )

    def _fail(self, known: Known, fault: str) -> None:
        """Note that data of a checkpoint could not be written: its live units are stored with the next one."""
        self._lacks = True
        for at, unit in enumerate(known.units):
            gone = unit.digest and self.storage.absent(unit.addresses)
            if not (self.states.made_of(unit) is None if unit.job else gone):
                continue
            # A unit of unknown content is equal to itself only.
            digest, missing = unit.digest or f"{unit.job} {at}", dict.fromkeys(unit.names, fault)
            failed = self.states.replace(known, at, digest=digest, stream=("", 0), missing=missing, job="")
            for name in unit.names:
                if self._current.get(name) is unit:
                    self._current[name] = failed

    @property
    def unstored(self) -> set[str]:
        """Names whose live value may differ from the stored one."""
        return self.tracker.pending.names | self._apart

    @property
    def comparing(self) -> list[str]:
        """The variables whose content a background process compares with the earlier one."""
        if not self.writing:
            return []
        return sorted(name for name, unit in self._current.items() if unit.job in self.writing and is_bound(name))

    def state(self, execution_id: str | None, seconds: float = BACKGROUND_SECONDS) -> State:
        """Return the state after an execution, None for the first one; waits `seconds` for data that are written.

        Raises CheckpointError.
        """

        def settle() -> None:
            self.storage.background.wait(seconds)
            self.storage.background.poll()
            done = [one for tickets in self.writing.values() for one in tickets if one.done and not one.fault]
            results: list[dict[str, Any]] = [ticket.result or {} for ticket in done]
            for job, result in (row for rows in results for row in rows.items()):
                self._taken_in(job, result)

        return self.states.state(execution_id, settle)

    def known_now(self) -> State:
        """Return the present state, by its stored units."""
        current = dict(self._current)
        for unit in {id(unit): unit for unit in current.values() if unit.job}.values():
            current |= units.units_by_name(self.states.made_of(unit) or ())
        return current

    def load(self, execution_id: str, manifest: Mapping[str, Any], info: CheckpointInfo) -> None:
        """Take in a manifest of an earlier kernel. Raises KeyError, TypeError, ValueError or an error of reading."""
        for unit in self.states.load(execution_id, manifest, info):
            if unit.digest:
                self.storage.streams.setdefault(unit.digest, unit.stream)

    def living(self, unit: Unit) -> dict[str, Any]:
        """Return by token the living objects of a unit that are not stored. A closed connection does not count."""
        found: dict[str, Any] = {}
        again = {one.token for one in unit.again}
        for token in (*(token for token, _ in unit.live), *again):
            thing = self.shelf.get(token)
            if thing is None:
                thing = self._packer.tokens.object(token)
            if thing is not None and (token not in again or connections.REGISTRY.describe(thing) != connections.CLOSED):
                found[token] = thing
        return found

    def hold_connections(self, leaving: Iterable[Unit]) -> None:
        """Hold the connections that a return is about to remove, so that a return to this state finds them."""
        for unit in leaving:
            living = self.living(unit)
            for one in unit.again:
                if one.token in living:
                    self._hold(one.token, living[one.token])

    def connected(self, token: str, thing: Any) -> None:
        """Take a new object in place of the one with this token."""
        self.shelf.pop(token, None)
        try:
            self._packer.tokens.replace(token, thing)
        except TypeError:  # it has no weak references
            self.shelf[token] = thing

    def used_since(self, unit: Unit, execution_id: str | None) -> bool:
        """Return whether the living objects of a unit may have been used after that state, in a cell or outside."""
        turn = self._turns.get(execution_id or "", -1)
        outside = self.tracker.turn_outside > turn
        return any(outside or self._used.get(token, turn) > turn for token, _ in unit.live)

    def made_again(self, names: Iterable[str]) -> None:
        """Have the next checkpoint store names that were made again."""
        self._apart.difference_update(names)
        state = self.state(self.base)
        for name in names:
            unit, value = state.get(name), self._value(name)
            # Of a value that is stored, the object is a part.
            alone = unit is not None and name in unit.missing and len(unit.live) == 1
            if unit is not None and alone and all(self._value(one) is value for one in unit.names):
                self.connected(unit.live[0][0], value)  # it is the object of that state from now on
            self.tracker.store_again(name)

    def hold(self, at: str | None, values: Mapping[str, Any], prints: Mapping[tuple[str, ...], Any]) -> None:
        """Hold values without stored data, of the state after the execution `at`, which is about to be left."""
        self.left = at, self.tracker.turn
        if values:
            self.held[at] = {**self.held.pop(at, {}), **values}
        self.prints |= {(at, names): one for names, one in prints.items()}
        while len(self.held) > MOST_STATES_HELD:
            del self.held[next(iter(self.held))]
        self.prints = {key: one for key, one in self.prints.items() if key[0] in self.held}

    def settled(
        self, execution_id: str | None, target: Mapping[str, Unit], lost: set[str], others: Iterable[str]
    ) -> None:
        """Take `target` as the present state, but for the names that were lost. `others` differ from the state."""
        self._lacks = True
        self._others = {name for name in others if name in target}
        self._current = {name: unit for name, unit in target.items() if name not in lost}
        self._labels = {name for name in target if name.startswith(SHARED)}
        self._stored = dict.fromkeys(
            target, self.tracker.turn + 1
        )  # a job of the state that was left is under way, perhaps
        self.late.forget(list(target))
        self.base = execution_id
        self._apart = {name for name in lost if name in target}
        for token in {one.token for unit in target.values() for one in unit.again}:
            if self._packer.tokens.object(token) is not None:
                self.shelf.pop(token, None)  # the user holds it again
