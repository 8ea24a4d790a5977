"""The states of a session: the changes of each checkpoint, and the results of background jobs.

Rule: a state is put together from the differences on its way, oldest first. Nothing is unpickled here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.errors import CtxError
from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.core.state_names import SHARED
from ctxkernel.state.checkpoints import units
from ctxkernel.state.checkpoints.units import State, Unit

_MOST_BUILT = 8


class CheckpointError(CtxError):
    """A state is not available, with the reason."""


@dataclass(slots=True)
class Known:
    """The state after one execution, as a difference to that of another."""

    base: str | None
    units: list[Unit]
    gone: list[str]
    info: CheckpointInfo
    doubts: dict[str, str] = field(default_factory=dict[str, str])
    """Names whose value then is uncertain, and the execution in which their change was found."""


@dataclass(slots=True, eq=False)
class States:
    """The checkpoints of one session. `read(blob)` gives the content of a blob."""

    _read: Callable[[str], bytes | memoryview]
    known: dict[str, Known] = field(default_factory=dict[str, Known])
    """By execution."""
    made: dict[str, list[Unit]] = field(default_factory=dict[str, list[Unit]])
    """The results of background jobs."""
    _built: dict[str, State] = field(default_factory=dict[str, State])
    """The states that were put together last: others are put together from them, and not from the first one on."""

    def info(self, execution_id: str) -> CheckpointInfo | None:
        """Return the known facts of the checkpoint after an execution; None where there is none."""
        known = self.known.get(execution_id)
        return known.info if known else None

    def load(self, execution_id: str, manifest: Mapping[str, Any], info: CheckpointInfo) -> list[Unit]:
        """Take in a manifest, and return its units. Raises KeyError, TypeError, ValueError or an error of reading."""
        if manifest.get("v") != units.VERSION:
            raise ValueError(f"{info.checkpoint_id} has the format {manifest.get('v')!r}, not {units.VERSION}")
        base = manifest.get("base")
        made = self._units(manifest)
        gone = list(manifest.get("gone", ()))
        self._built.clear()
        self.known[execution_id] = Known(str(base).removeprefix("c") if base else None, made, gone, info)
        doubts: dict[str, list[str]] = manifest.get("u") or {}
        self.doubt({str(name): list(map(str, between)) for name, between in doubts.items()}, execution_id)
        return made

    def find_doubts(
        self, changed: Mapping[str, int], turns: Mapping[str, int], base: str | None, later: str
    ) -> dict[str, list[str]]:
        """Note names that changed without a cell that touched them; return the states in which each is uncertain.

        `changed`: the turn in which each was last known. `turns`: those of the states. `base`: the state before the
        execution `later`, which found the changes.
        """
        found: dict[str, list[str]] = {}
        for name, turn in changed.items():
            between = [one for one, at in turns.items() if at > turn and one != later and self.follows(base, one)]
            if between:
                found[name] = between
        self.doubt(found, later)
        return found

    def doubt(self, found: Mapping[str, Iterable[str]], later: str) -> None:
        """Note that names whose change was found in the execution `later` changed during these executions."""
        for name, between in found.items():
            for execution_id in between:
                if execution_id in self.known:
                    self.known[execution_id].doubts.setdefault(name, later)

    def doubts(self, execution_id: str | None) -> Mapping[str, str]:
        """Return the names whose value in a state is uncertain, and the executions in which their change was found."""
        known = self.known.get(execution_id or "")
        return known.doubts if known is not None else {}

    def follows(self, execution_id: str | None, earlier: str) -> bool:
        """Return whether a state follows from an earlier one."""
        for _ in range(len(self.known) + 1):  # forged manifests can be in a circle
            if execution_id is None or execution_id == earlier:
                break
            known = self.known.get(execution_id)
            execution_id = known.base if known is not None else None
        return execution_id == earlier

    def finish(self, job: str, result: Mapping[str, Any]) -> list[Unit]:
        """Take in the result of a background job, and return its units. Raises as `load`."""
        self._built.clear()
        made = self.made[job] = self._units(result)
        return made

    def replace(self, known: Known, at: int, **changes: Any) -> Unit:
        """Replace fields of a unit of a checkpoint, whose data could not be written; return the new unit."""
        self._built.clear()
        known.units[at] = replace(known.units[at], **changes)
        return known.units[at]

    def _units(self, listed: Mapping[str, Any]) -> list[Unit]:
        return [units.unit_from_json(one, lambda blob: units.read_recipe(self._read(blob))) for one in listed["units"]]

    def made_of(self, unit: Unit) -> list[Unit] | None:
        """Return the result of a unit: itself, or that of its job; None while the job runs."""
        return self.made.get(unit.job) if unit.job else [unit]

    def state(self, execution_id: str | None, settle: Callable[[], None]) -> State:
        """Return the state after an execution. `settle()` waits for jobs. Raises CheckpointError."""
        chain: list[Known] = []
        at = execution_id
        while at is not None and at not in self._built:
            known = self.known.get(at)
            if known is None:
                raise CheckpointError(f"there is no checkpoint of {at}; %ctx timeline shows which statements have one")
            chain.append(known)
            if len(chain) > len(self.known):
                raise CheckpointError(f"the checkpoint of {execution_id} is damaged: its bases are in a circle")
            at = known.base
        if any(self.made_of(unit) is None for known in chain for unit in known.units):
            settle()
            if at is not None and at not in self._built:  # a job ended, which can change earlier states too
                return self.state(execution_id, lambda: None)
        state: State = dict(self._built[at]) if at is not None else {}
        for known in reversed(chain):
            for name in known.gone:
                state.pop(name, None)
            state |= units.units_by_name(self.changes(known))
        if execution_id is not None and all(self.made_of(unit) is not None for known in chain for unit in known.units):
            self._built.pop(execution_id, None)
            self._built[execution_id] = dict(state)
            while len(self._built) > _MOST_BUILT:
                del self._built[next(iter(self._built))]
        return _without_earlier(state)

    def changes(self, known: Known) -> Iterator[Unit]:
        """Yield what an execution changed, in order: each job also gives the classes as they were then."""
        for unit in known.units:
            if (made := self.made_of(unit)) is None:
                why = "it was still being stored when the kernel ended"
                made = [Unit((name,), missing={name: why}) for name in unit.names]
            yield from made

    def chunks(self) -> Iterator[str]:
        """Yield the chunks of all states."""
        for known in self.known.values():
            yield from (chunk for unit in self.changes(known) for chunk in unit.chunks)

    def thin(self, gone: set[str]) -> list[CheckpointInfo]:
        """Note that chunks were deleted for space; return the checkpoints that lost some of their own."""
        out: list[CheckpointInfo] = []
        for known in self.known.values():
            lost = [unit.names[0] for unit in self.changes(known) if not gone.isdisjoint(unit.chunks)]
            if lost and known.info.state == "durable":
                told = f"large data were deleted for space: {', '.join(lost[:5])}"
                known.info = replace(known.info, state="thinned", reason=told)
                out.append(known.info)
        return out


def _without_earlier(state: State) -> State:
    """Return a state in which each unit holds only names that have no later unit.

    A job found objects that its names share; a later checkpoint, which did not know of them, stored these names again.
    """
    parted = {id(unit): unit for unit in state.values() if any(state.get(one) is not unit for one in unit.names)}
    if not parted:
        return state
    referred = {label for unit in state.values() if id(unit) not in parted for label in unit.labels}
    for unit in parted.values():
        left = units.within(unit, state)
        if all(name.startswith(SHARED) for name in left.names) and referred.isdisjoint(left.names):
            for name in left.names:
                del state[name]
        else:
            state |= units.units_by_name([left])
    return state
