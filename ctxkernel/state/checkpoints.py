"""Takes the state after every cell. `state.restore` brings one back.

    names that may differ (`tracker.dirty`) → units of names that share objects → pickled, large buffers out of band
    → what is not stored yet goes to the chunk store, large data outside of the user's time (`state.storing`)

Rule 1: what cannot be stored is named with the reason, in the state and in every plan.
Rule 2: the user's time is bounded: what takes longer than a moment is pickled in the background, or named as skipped.
Rule 3: what cannot be stored is followed while it lives, with a version that another use of it changes.
"""

from __future__ import annotations

import pickle
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ctxkernel.core.errors import StoreError
from ctxkernel.core.replay import CheckpointInfo, CheckpointState
from ctxkernel.state import units
from ctxkernel.state.pickling import OutOfTime, Packed, Packer
from ctxkernel.state.states import Known, States
from ctxkernel.state.storing import BACKGROUND_SECONDS, Background, Chunks, Storage, Taking
from ctxkernel.state.survey import fingerprint
from ctxkernel.state.tracker import NamespaceTracker
from ctxkernel.state.units import State, Unit, missing_of
from ctxkernel.state.variables import NOTHING, is_atom
from ctxkernel.state.verification import Verifier

PACK_SECONDS = 0.06
"""What pickling one unit may cost the user; longer ones are pickled in the background."""
SLOW_SECONDS = 0.015
"""What took longer the last time is pickled in the background at once, where that is to be had: a fork costs less."""
VERIFIED_BYTES = 8 * 1024 * 1024
"""Largest pack of a type not seen before of which a copy is made, to see whether it comes back equal."""
LOOK_SECONDS = 0.005
"""What looking at something that cannot be stored may take, to see whether it was used."""
UNEQUAL = "unequal:"
"""Begins the token of a name whose stored value is not used: it is had back only while nobody touched it."""
PLAIN = "p:"
"""Begins the digest of a plain value: many of these share a stream, a dict by digest."""


@dataclass(slots=True)
class Taken:
    """What `take` gives: the row for the log, and what it says."""

    info: CheckpointInfo
    manifest: dict[str, Any]


class Checkpointer:
    """The states of one session, and what of the present one is stored.

    `value(name)` gives a variable, or what a pseudo-name (`Out[5]`, `target:v1`) stands for; NOTHING where there is
    none. `address(data)` is the address of a trusted blob.
    """

    def __init__(
        self,
        *,
        tracker: NamespaceTracker,
        packer: Packer,
        chunks: Chunks,
        background: Background,
        address: Callable[[Any], str],
        value: Callable[[str], Any],
        handle: Callable[[str], Any] = lambda _: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.states = States(chunks.read)
        self.storage = Storage(tracker=tracker, packer=packer, chunks=chunks, background=background, address=address)
        self._tracker = tracker
        self._packer = packer
        self._background = background
        self._value = value
        self._handle = handle
        self._clock = clock
        self._verifier = Verifier(packer, tracker.look)
        self._current: State = {}
        """What is live now, by what was stored of it last."""
        self._base: str | None = None
        """The execution whose state `_current` is, but for `_apart`."""
        self._apart: set[str] = set()
        """Names that the state of `_base` has and that could not be brought back."""
        self._live: dict[str, tuple[Any, str]] = {}
        """Token → (weak reference, version)."""
        self._numbers: dict[str, int] = {}
        """Execution → how many checkpoints had been taken by then …"""
        self._class_from: dict[str, int] = {}
        """… and by the time of what `_current` has of a class."""
        self._slow: set[str] = set()
        """Names whose unit took long to pickle."""
        self._writing: dict[str, list[Any]] = {}
        """Execution → tickets that write data of its checkpoint."""

    # -- taking -------------------------------------------------------------------------------

    def take(
        self, execution_id: str, plain: Mapping[str, Any], gone: Iterable[str] = (), *, whole: bool = False
    ) -> Taken:
        """Take the state after `execution_id`.

        `plain`: pseudo-names with plain values that changed since the last call; `gone`: those that went away. The
        manifest is a difference, or the `whole` state. Never raises for a value that cannot be stored: it is named in
        the info.
        """
        start = self._clock()
        dirty, unsure = self._tracker.take_dirty()
        taking = Taking(execution_id, dirty | unsure)
        self._numbers[execution_id] = len(self._numbers) + 1
        taking.gone |= {name for name in self._apart if self._value(name) is NOTHING}
        self._apart = set()
        for name in (*gone, *[name for name in sorted(dirty) if self._value(name) is NOTHING]):
            dirty |= set(self._drop(name, taking))
            dirty.discard(name)
        fault = ""
        try:
            self._atoms(dirty, plain, taking)
            for names in self._groups(dirty):
                values = {name: value for name in names if (value := self._value(name)) is not NOTHING}
                if values:
                    self._unit(values, taking)
            self.storage.write(taking, self._current)
        except StoreError as error:  # no room, a folder that is gone: the next checkpoint tries again
            fault = str(error)
        fault = fault or next((one.fault for one in taking.tickets if one.done and one.fault), "")
        listed = list({id(unit): unit for unit in self._current.values()}.values()) if whole else taking.units
        manifest = {
            "v": units.VERSION,
            "base": None if whole or self._base is None else f"c{self._base}",
            "units": [units.unit_to_json(unit, self.storage.recipe) for unit in listed],
            "gone": [] if whole else sorted(taking.gone),
        }
        under_way = [one for one in taking.tickets if not (one.done and one.fault)]
        state: CheckpointState = "skipped" if fault else "writing" if under_way else "durable"
        elapsed = round((self._clock() - start) * 1000, 3)
        info = CheckpointInfo(f"c{execution_id}", execution_id, state, taking.written, elapsed, taking.missing, fault)
        known = Known(self._base, taking.units, sorted(taking.gone), info)
        self.states.add(execution_id, known)
        self._base = execution_id
        if fault:
            self._store_again(known, fault)
        if under_way:
            self._writing[execution_id] = under_way
        return Taken(info, manifest)

    def _drop(self, name: str, taking: Taking) -> Iterator[str]:
        """Take a name out of the state; yield those that shared a unit with it, and are to be stored without it."""
        unit = self._current.pop(name, None)
        if unit is not None:
            taking.gone.add(name)
            yield from (other for other in unit.names if other != name and other in self._current)

    def _put(self, unit: Unit, taking: Taking) -> None:
        """Make a unit that of its names."""
        taking.add(unit)
        taking.missing |= missing_of(unit)
        self._current |= dict.fromkeys(unit.names, unit)

    def _atoms(self, dirty: set[str], plain: Mapping[str, Any], taking: Taking) -> None:
        """Store small immutables, and plain values, together in one stream."""
        values = dict(plain)
        for name in sorted(dirty):
            value = self._value(name)
            if is_atom(value):
                old = self._current.get(name)
                if old is not None and len(old.names) > 1:
                    dirty.update(other for other in old.names if other in self._current)
                values[name] = value
        dirty.difference_update(values)
        stored: dict[str, Any] = {}
        for name, value in values.items():
            digest = PLAIN + self.storage.address(pickle.dumps(value, 5))
            place = self.storage.streams.get(digest)
            if place is None:
                stored[digest] = value
            unit = Unit((name,), digest, place or ("", 0))
            if not unit.equals(self._current.get(name)):
                self._put(unit, taking)
        if stored:
            taking.streams.append(("", pickle.dumps(stored, 5), tuple(stored)))

    def _groups(self, dirty: set[str]) -> Iterator[tuple[str, ...]]:
        """Yield the groups of names that have to be stored anew."""
        todo, seen = sorted(dirty), set[str]()
        while todo:
            name = todo.pop()
            if name in seen or self._value(name) is NOTHING:
                continue
            try:
                group = self._tracker.group(name)
            except KeyError:  # not the user's
                continue
            seen |= group
            for member in group:
                old = self._current.get(member)
                if old is not None:
                    todo += [other for other in old.names if other not in seen]
            yield tuple(sorted(group))

    def _unit(self, values: dict[str, Any], taking: Taking) -> None:
        """Store values that share objects: now, or in the background where that took long before."""
        later = not self._slow.isdisjoint(values)
        if not later:
            # The processor's time: on a busy machine a fork costs more than the wait.
            end = time.thread_time() + PACK_SECONDS
            try:
                packed = self._packer.pack(values, expired=lambda: time.thread_time() > end)
            except OutOfTime:
                later = True
                self._slow.update(values)
            except Exception as fault:  # ours, or of a class that breaks the rules: it costs this unit
                why = f"{type(fault).__name__} while it was stored: {fault}"[:200]
                self._put(Unit(tuple(values), missing=dict.fromkeys(values, why)), taking)
                return
            else:
                if time.thread_time() - end > SLOW_SECONDS - PACK_SECONDS and self._background.can_fork:
                    self._slow.update(values)
                later = self.storage.too_much(packed, taking.dirty)
                if not later:
                    self._keep(values, packed, taking)
                    return
        unit = Unit(tuple(values), job=f"{taking.execution_id}:{len(taking.later)}")
        taking.later[unit.job] = values
        self._put(unit, taking)

    def _keep(self, values: dict[str, Any], packed: Packed, taking: Taking) -> None:
        """Make a packed group the unit of its names."""
        names = tuple(values)
        old = self._current.get(names[0])
        digest = self.storage.address(packed.stream)
        place = self.storage.streams.get(digest)
        unequal = self._unequal(values, packed)
        live = [(token, self._version(token, thing, taking.execution_id)) for token, thing in packed.live.items()]
        for name in unequal:
            self._live[UNEQUAL + name] = (lambda: True), taking.execution_id
            live.append((UNEQUAL + name, taking.execution_id))
        unit = Unit(
            names,
            digest,
            place or ("", 0),
            tuple(self.storage.buffer(at, view, old, taking) for at, view in enumerate(packed.buffers)),
            {**packed.faults, **unequal},
            packed.parts,
            tuple(live),
        )
        for uid, cls in packed.classes.items():
            self._class(uid, cls, taking)
        if unit.equals(old):
            return
        if place is None:
            taking.streams.append((digest, packed.stream, ()))
        self._put(unit, taking)

    def _unequal(self, values: dict[str, Any], packed: Packed) -> dict[str, str]:
        """Return the names whose value can be stored and does not come back equal; each type is tried once."""
        if self._verifier.known(packed) or packed.nbytes > VERIFIED_BYTES:
            return {}
        named = {name: value for name, value in values.items() if ":" not in name}
        found = self._verifier.check(packed, named, handles=self._handle)
        return {name: f"it can be stored, but {why}" for name, why in found.items()}

    def _class(self, uid: str, cls: type, taking: Taking) -> None:
        name = f"class:{uid}"
        if name not in taking.classes:
            taking.classes.add(name)
            self._class_from[name] = self._numbers[taking.execution_id]
            self._unit({name: cls}, taking)

    def _version(self, token: str, thing: Any, execution_id: str) -> str:
        """Return what tells whether something that cannot be stored was used since, and follow it."""
        try:
            reference: Any = weakref.ref(thing)
        except TypeError:
            reference = lambda: None  # noqa: E731 - it cannot be followed, so it cannot be had again
        end = self._clock() + LOOK_SECONDS
        survey = self._tracker.look(thing, lambda: self._clock() > end)
        # What has no content that can be read may have been used by whoever touched the names that hold it.
        version = (fingerprint(survey) if survey is not None else "") or execution_id
        self._live[token] = reference, version
        return version

    # -- what became of it --------------------------------------------------------------------

    def poll(self) -> list[tuple[CheckpointInfo, dict[str, Any]]]:
        """See what the background has finished. Returns (info, rows for the log) of checkpoints that are now whole.

        The rows map jobs to units, as JSON: they are to be signed and stored with the state of the checkpoint.
        """
        if not self._writing:
            return []
        self._background.poll()
        done: list[tuple[CheckpointInfo, dict[str, Any]]] = []
        for execution_id, tickets in list(self._writing.items()):
            if all(ticket.done for ticket in tickets):
                del self._writing[execution_id]
                done.append(self._finish(execution_id, tickets))
        return done

    def _finish(self, execution_id: str, tickets: Sequence[Any]) -> tuple[CheckpointInfo, dict[str, Any]]:
        known = self.states[execution_id]
        rows = {job: result for one in tickets if not one.fault for job, result in (one.result or {}).items()}
        fault = next((str(one.fault) for one in tickets if one.fault), "")
        missing = dict(known.info.missing)
        try:
            for job, result in rows.items():
                for unit in self._taken_in(job, result, self._numbers[execution_id]):
                    missing |= missing_of(unit)
        except (StoreError, LookupError, ValueError, TypeError) as error:
            fault = fault or str(error)
        if fault:
            self._store_again(known, fault)
        told = f"its data could not be written: {fault}" if fault else ""
        known.info = replace(known.info, state="damaged" if fault else "durable", missing=missing, reason=told)
        return known.info, rows

    def _taken_in(self, job: str, result: Mapping[str, Any], number: int) -> list[Unit]:
        made = self.states.finish(job, result)
        for unit in made:
            self.storage.streams.setdefault(unit.digest, unit.stream)
            for name in unit.names:
                now = self._current.get(name)
                if name.startswith("class:"):
                    if number >= self._class_from.get(name, 0):
                        self._current[name], self._class_from[name] = unit, number
                elif now is not None and now.job == job:
                    self._current[name] = unit
        return made

    def _store_again(self, known: Known, fault: str) -> None:
        """Data of a checkpoint were lost: what is live of it is stored with the next one."""
        for unit in known.units:
            if unit.job and self.states.made_of(unit) is None:
                self.states.fail(unit.job, fault)
            needed = [unit.stream[0], *(chunk for buffer in unit.buffers for chunk in buffer.chunks)]
            if not unit.stream[0] or self.storage.absent(needed):
                for name in unit.names:
                    if self._current.get(name) is unit:
                        del self._current[name]
                        self._tracker.dirty.add(name)
        self.storage.forget_memory()

    def wait(self, seconds: float) -> None:
        """Wait until everything is durable, for `seconds` at most."""
        self._background.wait(seconds)

    @property
    def writing(self) -> bool:
        """Whether data of a checkpoint are on their way to the store."""
        return bool(self._writing)

    # -- the present --------------------------------------------------------------------------

    @property
    def base(self) -> str | None:
        """The execution whose state is the present one, as far as is known."""
        return self._base

    @property
    def unstored(self) -> set[str]:
        """Names whose live value may differ from what is stored."""
        return self._tracker.dirty | self._apart

    def state(self, execution_id: str | None) -> State:
        """Return the state after an execution; that before all of them for None. Raises CheckpointError."""

        def settle() -> None:
            self._background.wait(BACKGROUND_SECONDS)
            self._background.poll()
            for one, tickets in list(self._writing.items()):
                for job, result in [
                    (j, r) for t in tickets if t.done and not t.fault for j, r in (t.result or {}).items()
                ]:
                    self._taken_in(job, result, self._numbers[one])

        return self.states.state(execution_id, settle)

    def known_now(self) -> State:
        """Return what is live, by what is stored of it."""
        current = dict(self._current)
        for unit in {id(unit): unit for unit in current.values() if unit.job}.values():
            units.apply(current, self.states.made_of(unit) or (), ())
        return current

    def needed_now(self) -> set[str]:
        """Return the addresses of the present state."""
        found: set[str] = set()
        for unit in self.known_now().values():
            found.add(unit.stream[0])
            found.update(chunk for buffer in unit.buffers for chunk in buffer.chunks)
        return found

    def load(self, execution_id: str, manifest: Mapping[str, Any], info: CheckpointInfo) -> None:
        """Take in a manifest of an earlier kernel. Raises KeyError, TypeError, ValueError or what reading raises."""
        for unit in self.states.load(execution_id, manifest, info):
            if unit.digest:
                self.storage.streams.setdefault(unit.digest, unit.stream)

    def living(self, unit: Unit) -> dict[str, Any]:
        """Return by token what of a unit is not stored, but lives and was not used since."""
        found: dict[str, Any] = {}
        for token, version in unit.live:
            reference, now = self._live.get(token, (lambda: None, ""))
            thing = reference() if now == version else None
            if thing is not None:
                found[token] = thing
        return found

    def made_again(self, names: Iterable[str]) -> None:
        """These are live again, made anew: the next checkpoint stores them."""
        self._apart.difference_update(names)
        self._tracker.dirty.update(names)

    def settled(self, execution_id: str | None, target: Mapping[str, Unit], lost: set[str]) -> None:
        """The present is `target` now, but for the names that were lost."""
        self._current = {name: unit for name, unit in target.items() if name not in lost}
        self._base = execution_id
        self._apart = {name for name in lost if name in target}
        self._class_from = dict.fromkeys(target, len(self._numbers))
        self.storage.forget_memory()
        self._tracker.take_dirty()
