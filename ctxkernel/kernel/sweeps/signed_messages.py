"""The signed messages of one sweep: tasks on their way to the workers, results on their way back."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.loop import Loop
from ctxkernel.core.state_names import HANDLE, RESULT, SHARED, TARGET, is_variable
from ctxkernel.kernel.returning.returns import Returning
from ctxkernel.kernel.sweeps.run_records import RunRecord, units_json
from ctxkernel.kernel.sweeps.task_runs import path_json
from ctxkernel.kernel.sweeps.task_states import TaskStates
from ctxkernel.state.checkpoints.units import VERSION, State
from ctxkernel.store.mirror import RemoteFiles
from ctxkernel.sweeps.chunk_exchange import ChunkExchange
from ctxkernel.sweeps.combinations import Combination
from ctxkernel.sweeps.seal import Unsealed, seal, unseal
from ctxkernel.sweeps.sweep_plan import SweepPlan, SweepTask, digest


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """The request for a sweep."""

    start: str
    """The statement after which it begins."""
    combinations: Sequence[Combination]
    until: str = ""
    collect: tuple[str, ...] = ()
    scheduler: str | None = None
    store: str | None = None
    workers: int = 0
    """0: as many as there are cores and tasks."""
    seconds: float = 0.0
    """Most seconds of a task; 0 is no limit."""
    memory: float = 0.0
    """Most GB of a task; 0: the free memory, divided among the workers."""
    again: bool = False
    """Whether tasks run that an earlier sweep has done."""


@dataclass(frozen=True, slots=True)
class MessageContext:
    """The parts of the kernel that messages are made of."""

    session_id: str
    notebook: str
    back: Returning
    loop: Loop
    needed: frozenset[str] | None
    """The variables that the cells may use; None for all."""
    key: bytes
    """Signs the messages."""
    chunks: str | None
    """The folder of the data, where the workers share it."""
    memory: int
    """Most bytes of the kernel of a worker; 0 is no limit."""


class Messages:
    """The messages of one sweep."""

    def __init__(self, context: MessageContext, plan: SweepPlan, request: SweepRequest, store: RemoteFiles) -> None:
        self._context, self._request, self._store = context, request, store
        self.collect = list(request.collect)
        self._key, self._chunks = context.key, context.chunks
        self._exchange = ChunkExchange(context.back.chunks, store)
        self._tasks = {task.key: task for task in plan.tasks}
        self._roots: dict[tuple[str | None, bool], tuple[str, list[str]]] = {}
        self.whole: set[str] = set()
        """Tasks that need all variables of the state that they begin with."""
        self._id = digest(time.time(), os.getpid())

    def task(self, task: SweepTask, states: TaskStates) -> bytes:
        """Return the message of a task."""
        chain = [task]
        while chain[-1].parent is not None:
            chain.append(self._tasks[chain[-1].parent])
        path = [one for above in reversed(chain[1:]) for one in states.paths[above.key]]
        root, omitted = self._root(chain[-1].place, whole=task.key in self.whole)
        message = {
            "sweep": self._id,
            "session": self._context.session_id,
            "notebook": self._context.notebook,
            "folder": os.getcwd(),
            "store": self._store.url,
            "chunks": self._chunks,
            "root": root,
            "omitted": omitted,
            "path": path,
            "cells": [one.to_json() for one in task.cells],
            "collect": self.collect if task.rows else [],
            "limits": {"seconds": self._request.seconds, "bytes": self._context.memory},
        }
        return seal(self._key, f"task {task.key}", message)

    def result(self, task: SweepTask, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result in a driver's message; one that cannot be used says why."""
        if "failed" in message:
            return {"status": "error", "fault": f"no worker could run it: {message['why']}"}
        try:
            found = unseal(self._key, f"result {task.key}", base64.b64decode(message["result"]))
        except (Unsealed, ValueError) as fault:
            return {"status": "error", "fault": str(fault)}
        return {**found, "status": "error"} if "fault" in found and "status" not in found else found

    def keep(self, records: Sequence[RunRecord]) -> None:
        """Bring the data of records into the kernel's own store, if the workers have another one."""
        if self._chunks is None:
            self._exchange.fetch(one.manifest for one in records)

    def _root(self, place: str | None, *, whole: bool) -> tuple[str, list[str]]:
        """Store the path to a state, with its manifest; return its name, and the variables that are left out."""
        if (place, whole) not in self._roots:
            context = self._context
            checkpoints = context.back.checkpoints
            state = checkpoints.state(place)
            chosen, omitted = (state, []) if whole else _needed(state, context.needed)
            units = list({id(unit): unit for unit in chosen.values()}.values())
            manifest = {"v": VERSION, "base": None, "units": units_json(checkpoints, units), "gone": []}
            path: Sequence[Any] = context.loop.log.path(place) if place is not None else ()
            listed = [path_json(statement, run, None) for statement, run in path]
            if listed:
                listed[-1]["manifest"] = manifest
            if self._chunks is None:
                self._exchange.send([manifest])
            name = f"root-{digest(listed)}"
            self._store.write(name, seal(self._key, name, {"path": listed}))
            self._roots[place, whole] = name, omitted
        return self._roots[place, whole]


def _needed(state: State, names: frozenset[str] | None) -> tuple[State, list[str]]:
    """Return the part of a state that cells may use, and the variables that are left out."""
    if names is None or any(name.startswith((HANDLE, TARGET)) for name in state):
        return state, []
    chosen: State = {}
    todo = [name for name in state if not is_variable(name) and not name.startswith((RESULT, SHARED))]
    todo += [name for name in names if name in state]
    while todo:
        name = todo.pop()
        if name not in chosen and name in state:
            chosen[name] = state[name]
            todo += [*state[name].names, *state[name].labels]
    omitted = sorted(name for name in state if name not in chosen and is_variable(name))
    return ({name: state[name] for name in state if name in chosen}, omitted) if omitted else (state, [])
