"""Takes the state after every cell. `state.restore` brings one back.

    names that may differ (`tracker.dirty`) → units of names that share objects → pickled, large buffers out of band
    → what is not stored yet goes to the chunk store, large data outside of the user's time

Rule 1: nothing is stored twice: an equal stream or chunk is the one that is there.
Rule 2: what cannot be stored is named with the reason, in the state and in every plan.
Rule 3: the user's time is bounded: what takes longer than a moment is pickled in the background, or named as skipped.
"""

from __future__ import annotations

import pickle
import sys
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from xxhash import xxh3_128_hexdigest

from ctxkernel.core.errors import CtxError, StoreError
from ctxkernel.core.replay import CheckpointInfo, CheckpointState
from ctxkernel.state import units
from ctxkernel.state.digest import CHUNK
from ctxkernel.state.pickling import OutOfTime, Packed, Packer
from ctxkernel.state.reflect import class_module
from ctxkernel.state.tracker import NamespaceTracker
from ctxkernel.state.units import Buffer, State, Unit
from ctxkernel.state.variables import NOTHING, is_atom
from ctxkernel.state.verification import Verifier

PACK_SECONDS = 0.03
"""What pickling one unit may cost the user; longer ones are pickled in the background."""
INLINE_BYTES = 4 * 1024 * 1024
"""Up to so many new bytes are written at once; more go to the background."""
BACKGROUND_SECONDS = 120.0
PATIENCE_SECONDS = 0.05
"""What the user waits for an earlier job to end, where as many as may be are under way."""
VERIFIED_BYTES = 8 * 1024 * 1024
"""Largest pack of a type not seen before of which a copy is made, to see whether it comes back equal."""
UNEQUAL = "unequal:"
"""Begins the token of a name whose stored value is not used: it is had back only while nobody touched it."""
PLAIN = "p:"
"""Begins the digest of a plain value: many of these share a stream, a dict by digest."""


class Chunks(Protocol):
    """Where data lie by their content (`store.chunks`)."""

    def has(self, address: str) -> bool: ...  # noqa: D102
    def put(self, address: str, data: Any, *, base: str | None = None) -> int: ...  # noqa: D102
    def read(self, address: str) -> memoryview: ...  # noqa: D102
    def read_into(self, address: str, target: memoryview) -> None: ...  # noqa: D102
    def map_run(self, addresses: Sequence[str]) -> Any: ...  # noqa: D102
    def missing(self, addresses: Iterable[str]) -> list[str]: ...  # noqa: D102


class Background(Protocol):
    """Runs a job outside of the user's time (`store.background`)."""

    def submit(  # noqa: D102
        self, job: Callable[[Any], Any], *, nbytes: int, seconds: float, addresses: Collection[str], patience: float
    ) -> Any: ...
    def poll(self) -> list[Any]: ...  # noqa: D102
    def wait(self, seconds: float) -> list[Any]: ...  # noqa: D102
    def has_or_pending(self, address: str) -> bool: ...  # noqa: D102


class CheckpointError(CtxError):
    """A state that cannot be had, with the reason."""


@dataclass(slots=True)
class Taken:
    """What `take` gives: the row for the log, and what it says."""

    info: CheckpointInfo
    manifest: dict[str, Any]


@dataclass(slots=True)
class _Known:
    """The state after one execution, as a difference to that of another."""

    base: str | None
    units: list[Unit]
    gone: list[str]
    info: CheckpointInfo


@dataclass(slots=True)
class _Job:
    """Units that are being pickled in the background."""

    execution_id: str
    ticket: Any
    units: dict[str, Unit] = field(default_factory=dict[str, Unit])


class Checkpointer:
    """The states of one session.

    `value(name)` gives a variable, or what a pseudo-name (`Out[5]`, `target:v1`) stands for; NOTHING where there is
    none.
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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tracker = tracker
        self._packer = packer
        self._chunks = chunks
        self._background = background
        self._address = address
        self._value = value
        self._clock = clock
        self._verifier = Verifier(packer, tracker.look)
        self._known: dict[str, _Known] = {}
        self._current: State = {}
        """What is live now, by what was stored of it last."""
        self._base: str | None = None
        """The execution whose state `_current` is, but for `_apart`."""
        self._apart: set[str] = set()
        """Names in which `_current` differs from the state of `_base`."""
        self._streams: dict[str, tuple[str, int]] = {}
        """Digest → where the stream lies."""
        self._buffers: dict[tuple[int, int], tuple[str, ...]] = {}
        """(address, bytes) of live memory → its chunks, as of the last look."""
        self._live: dict[str, tuple[Any, str]] = {}
        """Token → (weak reference, version)."""
        self._jobs: dict[str, _Job] = {}
        self._resolved: dict[str, dict[str, Unit]] = {}
        self._failed: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        """Execution → how many checkpoints had been taken by then …"""
        self._class_from: dict[str, int] = {}
        """… and by the time of what `_current` has of a class."""
        self._writing: dict[str, list[Any]] = {}
        """Checkpoint → tickets that write data of it."""
        self._plain: dict[str, Any] = {}
        """Pseudo-names whose plain value is given to `take`: as last stored."""
        self.on_durable: Callable[[CheckpointInfo], None] = lambda _: None

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
        taking = _Taking(execution_id)
        self._numbers[execution_id] = len(self._numbers) + 1
        dirty, unsure = self._tracker.take_dirty()
        taking.gone |= {name for name in self._apart if self._value(name) is NOTHING}
        self._apart = set()
        taking.dirty = dirty | unsure
        for name in (*gone, *[name for name in sorted(dirty) if self._value(name) is NOTHING]):
            dirty |= set(self._drop(name, taking))
            dirty.discard(name)
        fault = ""
        try:
            self._atoms(dirty, plain, taking)
            for names in self._groups(dirty):
                values = {name: value for name in names if (value := self._value(name)) is not NOTHING}
                if values:
                    self._unit(values, taking, later=not unsure.isdisjoint(names))
            self._write(taking)
        except StoreError as error:  # no room, a folder that is gone: the next checkpoint tries again
            fault = str(error)
        fault = fault or next((one.fault for one in taking.tickets if one.done and one.fault), "")
        elapsed = (self._clock() - start) * 1000
        listed = list({id(unit): unit for unit in self._current.values()}.values()) if whole else taking.units
        manifest = {
            "v": units.VERSION,
            "base": None if whole or self._base is None else f"c{self._base}",
            "units": [units.unit_to_json(unit, self._recipe) for unit in listed],
            "gone": [] if whole else sorted(taking.gone),
        }
        under_way = [one for one in taking.tickets if not (one.done and one.fault)]
        state: CheckpointState = "skipped" if fault else "writing" if under_way else "durable"
        info = CheckpointInfo(
            f"c{execution_id}", execution_id, state, taking.written, round(elapsed, 3), taking.missing, fault
        )
        known = self._known[execution_id] = _Known(self._base, taking.units, sorted(taking.gone), info)
        self._base = execution_id
        if fault:
            self._forget_failed(known, fault)
        if under_way:
            self._writing[execution_id] = under_way
        return Taken(info, manifest)

    def _drop(self, name: str, taking: _Taking) -> Iterator[str]:
        """Take a name out of the state; yield those that shared a unit with it, and are to be stored without it."""
        unit = self._current.pop(name, None)
        if unit is not None:
            taking.gone.add(name)
            yield from (other for other in unit.names if other != name and other in self._current)

    def _atoms(self, dirty: set[str], plain: Mapping[str, Any], taking: _Taking) -> None:
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
        fresh: list[str] = []
        for name, value in values.items():
            digest = PLAIN + self._address(pickle.dumps(value, 5))
            if digest not in self._streams:
                stored[digest] = value
            fresh.append(name)
            unit = Unit((name,), digest, self._streams.get(digest, ("", 0)))
            if not unit.equals(self._current.get(name)):
                taking.add(unit)
        if stored:
            taking.streams.append(("", pickle.dumps(stored, 5), tuple(stored)))
        for unit in taking.units:
            for name in unit.names:
                self._current[name] = unit

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

    def _unit(self, values: dict[str, Any], taking: _Taking, *, later: bool = False) -> None:
        """Store values that share objects."""
        if not later:
            # The processor's time: on a busy machine a fork costs more than the wait.
            end = time.thread_time() + PACK_SECONDS
            try:
                packed = self._packer.pack(values, expired=lambda: time.thread_time() > end)
            except OutOfTime:
                later = True
            except Exception as fault:  # ours, or of a class that breaks the rules: it costs this unit
                self._lost(tuple(values), f"{type(fault).__name__} while it was stored: {fault}"[:200], taking)
                return
            else:
                self._keep(tuple(values), packed, taking)
                return
        unit = Unit(tuple(values), job=f"{taking.execution_id}:{len(taking.later)}")
        taking.later[unit.job] = values
        taking.add(unit)
        for name in values:
            self._current[name] = unit

    def _lost(self, names: tuple[str, ...], why: str, taking: _Taking) -> None:
        unit = Unit(names, missing=dict.fromkeys(names, why))
        taking.missing.update(unit.missing)
        taking.add(unit)
        for name in names:
            self._current[name] = unit

    def _keep(self, names: tuple[str, ...], packed: Packed, taking: _Taking) -> None:
        """Make a packed group the unit of its names."""
        old = self._current.get(names[0])
        digest = self._address(packed.stream)
        unequal = self._unequal(names, packed)
        buffers = tuple(self._buffer(at, view, names, old, taking) for at, view in enumerate(packed.buffers))
        live = tuple((token, self._version(token, thing, taking.execution_id)) for token, thing in packed.live.items())
        for name in unequal:
            self._live[UNEQUAL + name] = (lambda: True), taking.execution_id
            live = (*live, (UNEQUAL + name, taking.execution_id))
        missing = {**packed.faults, **unequal}
        unit = Unit(names, digest, self._streams.get(digest, ("", 0)), buffers, missing, packed.parts, live)
        for uid, cls in packed.classes.items():
            self._class(uid, cls, taking)
        taking.missing |= missing_of(unit)
        if unit.equals(old):
            return
        if digest not in self._streams:
            taking.streams.append((digest, packed.stream, ()))
        taking.add(unit)
        for name in names:
            self._current[name] = unit

    def _unequal(self, names: tuple[str, ...], packed: Packed) -> dict[str, str]:
        """Return the names whose value can be stored and does not come back equal; each type is tried once."""
        if self._verifier.known(packed) or packed.nbytes > VERIFIED_BYTES:
            return {}
        found = self._verifier.check(packed, {name: self._value(name) for name in names if ":" not in name})
        return {name: f"it can be stored, but {why}" for name, why in found.items()}

    def _class(self, uid: str, cls: type, taking: _Taking) -> None:
        name = f"class:{uid}"
        if name in taking.classes:
            return
        taking.classes.add(name)
        self._class_from[name] = self._numbers[taking.execution_id]
        self._unit({name: cls}, taking)

    def _version(self, token: str, thing: Any, execution_id: str) -> str:
        try:
            reference: Any = weakref.ref(thing)
        except TypeError:
            reference = lambda: None  # noqa: E731 - it cannot be followed, so it cannot be had again
        self._live[token] = reference, execution_id
        return execution_id

    # -- large data ---------------------------------------------------------------------------

    def _buffer(self, at: int, view: memoryview, names: tuple[str, ...], old: Unit | None, taking: _Taking) -> Buffer:
        """Return the chunks of a buffer, and note those that have to be written."""
        key = _address_of(view), view.nbytes
        chunks = self._chunks_of(key, view, taking.dirty)
        before: Sequence[str] = ()
        if old is not None and at < len(old.buffers) and old.buffers[at].nbytes == view.nbytes:
            before = old.buffers[at].chunks
        for place, chunk in enumerate(chunks):
            if chunk in taking.fresh or self._background.has_or_pending(chunk):
                continue
            base = before[place] if place < len(before) else None
            taking.fresh[chunk] = view[place * CHUNK : (place + 1) * CHUNK], base
        return Buffer(view.nbytes, chunks)

    def _chunks_of(self, key: tuple[int, int], view: memoryview, dirty: set[str]) -> tuple[str, ...]:
        hashed = self._tracker.hashes(*key) if key[0] else None
        if hashed is not None:
            chunks = tuple(f"x{one:032x}" for one in hashed)
        else:
            known = self._buffers.get(key)
            owners = self._tracker.owners_of_memory(key[0])
            if known is not None and owners and owners.isdisjoint(dirty):
                return known
            chunks = chunks_of(view)
        if key[0]:
            self._buffers[key] = chunks
        return chunks

    def _recipe(self, chunks: Sequence[str]) -> str:
        blob = units.recipe(chunks)
        address = self._address(blob)
        if not self._chunks.has(address):
            self._chunks.put(address, blob)
        return address

    def _write(self, taking: _Taking) -> None:
        """Store what is new: small data now, large data in the background."""
        if taking.streams:
            self._bundle(taking)
        fresh, later = taking.fresh, taking.later
        nbytes = sum(view.nbytes for view, _ in fresh.values())
        if nbytes <= INLINE_BYTES:
            for chunk, (view, base) in fresh.items():
                taking.written += self._chunks.put(chunk, view, base=base)
            fresh = {}
        if not fresh and not later:
            return
        packer, address = self._packer, self._address
        if later:  # a class that the child names by itself would be another one here
            for cls in own_classes(packer.module):
                packer.uid(cls)

        def job(writer: Any) -> dict[str, Any]:
            for chunk, (view, base) in fresh.items():
                writer.put(chunk, view, base=base)
            return {name: pack_and_put(packer, address, writer, values) for name, values in later.items()}

        ticket = self._background.submit(
            job, nbytes=nbytes, seconds=BACKGROUND_SECONDS, addresses=tuple(fresh), patience=PATIENCE_SECONDS
        )
        taking.written += nbytes
        taking.tickets.append(ticket)
        for name in later:
            self._jobs[name] = _Job(taking.execution_id, ticket)

    def _bundle(self, taking: _Taking) -> None:
        blob = units.bundle([stream for _, stream, _ in taking.streams])
        address = self._address(blob)
        if not self._chunks.has(address):
            taking.written += self._chunks.put(address, blob)
        for part, (digest, _, atoms) in enumerate(taking.streams):
            for one in atoms or (digest,):
                self._streams[one] = address, part
        for at, unit in enumerate(taking.units):
            if unit.digest and not unit.stream[0]:
                placed = taking.units[at] = replace(unit, stream=self._streams[unit.digest])
                for name in unit.names:
                    if self._current.get(name) is unit:
                        self._current[name] = placed

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
            if not all(ticket.done for ticket in tickets):
                continue
            del self._writing[execution_id]
            known = self._known[execution_id]
            faults = [str(ticket.fault) for ticket in tickets if ticket.fault]
            rows: dict[str, Any] = {}
            missing = dict(known.info.missing)
            for ticket in tickets:
                for name, result in (ticket.result or {}).items() if not ticket.fault else ():
                    rows[name] = result
                    self._resolve(name, result, known, missing)
            if faults:
                self._forget_failed(known, faults[0])
            info = replace(
                known.info,
                state="damaged" if faults else "durable",
                missing=missing,
                reason=f"its data could not be written: {faults[0]}" if faults else "",
            )
            known.info = info
            self.on_durable(info)
            done.append((info, rows))
        return done

    def wait(self, seconds: float) -> None:
        """Wait until everything is durable, for `seconds` at most."""
        self._background.wait(seconds)

    def _resolve(self, job: str, result: Mapping[str, Any], known: _Known, missing: dict[str, str]) -> None:
        self._jobs.pop(job, None)
        made = [
            units.unit_from_json(unit, lambda blob: units.read_recipe(self._chunks.read(blob)))
            for unit in result["units"]
        ]
        self._resolved[job] = {name: unit for unit in made for name in unit.names}
        for unit in made:
            missing |= missing_of(unit)
            if unit.digest:
                self._streams.setdefault(unit.digest, unit.stream)
        number = self._numbers[known.info.execution_id]
        for name, unit in self._resolved[job].items():
            now = self._current.get(name)
            if name.startswith("class:"):
                if number >= self._class_from.get(name, 0):
                    self._current[name], self._class_from[name] = unit, number
            elif now is not None and now.job == job:
                self._current[name] = unit

    def _forget_failed(self, known: _Known, fault: str) -> None:
        """Data of a checkpoint were lost: what is live of it is stored again with the next one."""
        for unit in known.units:
            if unit.job:
                self._failed[unit.job] = fault
            stored = unit.stream[0] and not self._chunks.missing([unit.stream[0]])
            if not stored or any(self.absent(buffer.chunks) for buffer in unit.buffers):
                for name in unit.names:
                    if self._current.get(name) is unit:
                        del self._current[name]
                        self._tracker.dirty.add(name)
        self._buffers.clear()

    # -- states -------------------------------------------------------------------------------

    @property
    def base(self) -> str | None:
        """The execution whose state is the present one, as far as is known."""
        return self._base

    def info(self, execution_id: str) -> CheckpointInfo | None:
        """What is known of the checkpoint after an execution; None where there is none."""
        known = self._known.get(execution_id)
        return known.info if known else None

    def load(self, execution_id: str, manifest: Mapping[str, Any], info: CheckpointInfo) -> None:
        """Take in a manifest of an earlier kernel. Raises KeyError, TypeError, ValueError or what reading raises."""
        if manifest.get("v") != units.VERSION:
            raise ValueError(f"{info.checkpoint_id} has the format {manifest.get('v')!r}, not {units.VERSION}")
        base = manifest.get("base")
        made = [
            units.unit_from_json(unit, lambda blob: units.read_recipe(self._chunks.read(blob)))
            for unit in manifest["units"]
        ]
        self._known[execution_id] = _Known(
            str(base).removeprefix("c") if base else None, made, list(manifest.get("gone", ())), info
        )
        for unit in made:
            if unit.digest:
                self._streams.setdefault(unit.digest, unit.stream)

    def load_results(self, rows: Mapping[str, Any]) -> None:
        """Take in what background jobs of an earlier kernel gave."""
        for job, result in rows.items():
            made = [
                units.unit_from_json(unit, lambda blob: units.read_recipe(self._chunks.read(blob)))
                for unit in result["units"]
            ]
            self._resolved[job] = {name: unit for unit in made for name in unit.names}

    def state(self, execution_id: str | None) -> State:
        """Return the state after an execution; that before all of them for None. Raises CheckpointError."""
        chain: list[_Known] = []
        at = execution_id
        while at is not None:
            known = self._known.get(at)
            if known is None:
                raise CheckpointError(f"there is no checkpoint of {at}; %ctx timeline shows which statements have one")
            chain.append(known)
            at = known.base
        state: State = {}
        for known in reversed(chain):
            # In their order: each job also gives the classes as they were then.
            made = [one for unit in known.units for one in (self._finished(unit) if unit.job else [unit])]
            units.apply(state, made, known.gone)
        return state

    def _finished(self, unit: Unit) -> Iterable[Unit]:
        """Return what a background job made of a unit."""
        if unit.job in self._resolved:
            return self._resolved[unit.job].values()
        if unit.job in self._jobs:
            self._background.wait(BACKGROUND_SECONDS)
            self.poll()
            if unit.job in self._resolved:
                return self._resolved[unit.job].values()
        why = self._failed.get(unit.job, "it was being stored when the kernel ended")
        return [Unit((name,), missing={name: why}) for name in unit.names]

    def known_now(self) -> State:
        """Return what is live, by what is stored of it."""
        current = dict(self._current)
        for unit in {id(unit): unit for unit in current.values() if unit.job}.values():
            current |= self._resolved.get(unit.job, {})
        return current

    @property
    def writing(self) -> bool:
        """Whether data of a checkpoint are on their way to the store."""
        return bool(self._writing)

    def absent(self, addresses: Sequence[str]) -> list[str]:
        """Return those addresses whose data are not there, nor on their way."""
        return [one for one in self._chunks.missing(addresses) if not self._background.has_or_pending(one)]

    def settle_writes(self, target: Mapping[str, Unit]) -> None:
        """Wait for data of `target` that are still on their way to the store."""
        if self._writing:
            needed = (chunk for unit in target.values() for buffer in unit.buffers for chunk in buffer.chunks)
            if self._chunks.missing(needed):
                self._background.wait(BACKGROUND_SECONDS)

    @property
    def unstored(self) -> set[str]:
        """Names whose live value may differ from what is stored."""
        return self._tracker.dirty | self._apart

    def chunks(self) -> Iterator[str]:
        """Yield the chunks of all states."""
        for known in self._known.values():
            for unit in known.units:
                for one in self._resolved[unit.job].values() if unit.job in self._resolved else (unit,):
                    for buffer in one.buffers:
                        yield from buffer.chunks

    def needed_now(self) -> set[str]:
        """Return the addresses of the present state."""
        found: set[str] = set()
        for unit in self.known_now().values():
            found.add(unit.stream[0])
            found.update(chunk for buffer in unit.buffers for chunk in buffer.chunks)
        return found

    def thin(self, gone: set[str]) -> list[CheckpointInfo]:
        """Note that chunks were given up for space; returns the checkpoints that lost some of their own."""
        out: list[CheckpointInfo] = []
        for known in self._known.values():
            lost = [one.names[0] for one in known.units if any(not gone.isdisjoint(b.chunks) for b in one.buffers)]
            if lost and known.info.state == "durable":
                told = f"large data were given up for space: {', '.join(lost[:5])}"
                known.info = replace(known.info, state="thinned", reason=told)
                out.append(known.info)
        return out

    def made_again(self, names: Iterable[str]) -> None:
        """These are live again, made anew: the next checkpoint stores them."""
        self._apart.difference_update(names)
        self._tracker.dirty.update(names)

    def living(self, unit: Unit) -> dict[str, Any]:
        """Return by token what of a unit is not stored, but lives and was not used since."""
        found: dict[str, Any] = {}
        for token, version in unit.live:
            reference, now = self._live.get(token, (lambda: None, ""))
            thing = reference() if now == version else None
            if thing is not None:
                found[token] = thing
        return found

    def settled(self, execution_id: str | None, target: Mapping[str, Unit], lost: set[str]) -> None:
        """The present is `target` now, but for the names that were lost."""
        self._current = {name: unit for name, unit in target.items() if name not in lost}
        self._base = execution_id
        self._apart = {name for name in lost if name in target}
        self._class_from = dict.fromkeys(target, len(self._numbers))
        self._buffers.clear()
        self._tracker.take_dirty()


@dataclass(slots=True)
class _Taking:
    """What one `take` collects."""

    execution_id: str
    dirty: set[str] = field(default_factory=set[str])
    units: list[Unit] = field(default_factory=list[Unit])
    gone: set[str] = field(default_factory=set[str])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    streams: list[tuple[str, bytes, tuple[str, ...]]] = field(default_factory=list[tuple[str, bytes, tuple[str, ...]]])
    """(digest, stream, digests of the atoms in it)."""
    fresh: dict[str, tuple[memoryview, str | None]] = field(default_factory=dict[str, tuple[memoryview, str | None]])
    """Chunks to be written: data, and the chunk that stood there before."""
    later: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    classes: set[str] = field(default_factory=set[str])
    tickets: list[Any] = field(default_factory=list[Any])
    written: int = 0

    def add(self, unit: Unit) -> None:
        """Note a unit that differs from the state before."""
        self.units.append(unit)
        self.gone.difference_update(unit.names)


def pack_and_put(
    packer: Packer, address: Callable[[Any], str], writer: Any, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Pickle a group and store all of it; returns the manifest's form of what it gave. For a background job."""
    made: list[Unit] = []
    todo: list[dict[str, Any]] = [dict(values)]
    seen: set[str] = set()

    def put_recipe(chunks: Sequence[str]) -> str:
        blob = units.recipe(chunks)
        writer.put(address(blob), blob)
        return address(blob)

    while todo:
        group = todo.pop()
        packed = packer.pack(group)
        blob = units.bundle([packed.stream])
        writer.put(address(blob), blob)
        buffers: list[Buffer] = []
        for view in packed.buffers:
            chunks = chunks_of(view)
            for at, chunk in enumerate(chunks):
                writer.put(chunk, view[at * CHUNK : (at + 1) * CHUNK])
            buffers.append(Buffer(view.nbytes, chunks))
        # What only lives in this process has no token that holds outside of the child that pickles it.
        parts = (*packed.parts, *packed.live)
        made.append(
            Unit(tuple(group), address(packed.stream), (address(blob), 0), tuple(buffers), packed.faults, parts)
        )
        for uid, cls in packed.classes.items():
            if uid not in seen:
                seen.add(uid)
                todo.append({f"class:{uid}": cls})
    return {"units": [units.unit_to_json(unit, put_recipe) for unit in made]}


def missing_of(unit: Unit) -> dict[str, str]:
    """Return what of a unit is not stored: names, and places in values (`d['x']`), with the reason."""
    parts = [part.rpartition(" in ") for part in unit.parts]
    return {**unit.missing, **{where: f"{what} cannot be stored" for what, _, where in parts}}


def own_classes(module: str) -> Iterator[type]:
    """Yield the living classes that say they are of the namespace's module."""
    todo, seen = [object], {id(object)}
    while todo:
        for cls in type.__subclasses__(todo.pop()):
            if id(cls) not in seen:
                seen.add(id(cls))
                todo.append(cls)
                if class_module(cls) == module:
                    yield cls


def chunks_of(view: memoryview) -> tuple[str, ...]:
    """Return the addresses of the chunks of a buffer."""
    return tuple(f"x{xxh3_128_hexdigest(view[at : at + CHUNK])}" for at in range(0, view.nbytes, CHUNK))


def _address_of(view: memoryview) -> int:
    """Return where a buffer lies in memory; 0 where that cannot be told."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return 0
    return int(numpy.frombuffer(view, numpy.uint8).__array_interface__["data"][0])
