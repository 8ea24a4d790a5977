"""The results of a return, and the text that its cell prints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.state_names import AMBIENT, MODULE, is_variable
from ctxkernel.core.text import join_names
from ctxkernel.kernel.returning.targets import ReturnJob
from ctxkernel.state.base import own_modules
from ctxkernel.state.checkpoints.restore import Fetched
from ctxkernel.state.types.connections import WIDGET
from ctxkernel.store.chunks.manifest import by_reason

if TYPE_CHECKING:
    from ctxkernel.replay.plan import Plan


@dataclass(slots=True)
class PreparedReturn:
    """A return with everything that it needs in memory."""

    job: ReturnJob
    fetched: Fetched
    plan: Plan
    """Which of the missing names are made again, and which are lost."""


@dataclass(slots=True)
class DoneReturn:
    """The results of a return, name by name."""

    lost: dict[str, str]
    as_now: dict[str, str]
    made: list[str] = field(default_factory=list[str])
    """Names that were made again."""
    modules: list[str] = field(default_factory=list[str])
    """Modules that stay as they are."""
    loggers: list[str] = field(default_factory=list[str])
    """Loggers that stay as they are."""
    notices: list[str] = field(default_factory=list[str])


def return_text(prepared: PreparedReturn, done: DoneReturn, lost: Mapping[str, str]) -> str:
    """Return the text that a return prints in its cell; JSON if the job asks for it."""
    from ctxkernel.kernel.returning.resume import unfinished
    from ctxkernel.kernel.returning.return_plans import name_of

    job, plan, fetched = prepared.job, prepared.plan, prepared.fetched
    not_as_it_was = done.lost.keys() | set(map(name_of, done.as_now))
    names = set(job.difference.restored)
    loaded = sorted(name for name in names if is_variable(name) and name not in not_as_it_was)
    dropped = list(filter(is_variable, job.difference.drop))
    kept = sum(is_variable(name) and name not in names for name in job.difference.keep)
    inexact = sorted({name for unit in job.difference.load for name in unit.inexact if name in loaded})
    connected = {one.places[0]: one.told for one in fetched.connected.values()}
    if job.as_json:
        if job.statements or job.affected is not None:
            return ""
        whole = {"head": job.target.execution_id, "restored": loaded, "removed": dropped, "lost": done.lost}
        whole |= {"as_now": done.as_now, "as_stored": inexact, "connected": connected}
        return json.dumps(whole, indent=1) + "\n"
    count = f"{len(loaded)} name{'s' * (len(loaded) != 1)}"
    told = [f"at {job.target.told}: {count} restored{_some(loaded)}, {kept} kept as they are"]
    if dropped:
        told[0] += f", {len(dropped)} removed{_some(dropped)}"
    if done.made:
        told.append(f"made again: {', '.join(done.made)} by {', '.join(plan.again)}")
    opened = [one.places[0] for one in fetched.connected.values() if one.kind == WIDGET]
    told += [f"opened again: {join_names(opened)} (widgets)"] if opened else []
    told += [f"connected again: {place} ({what})" for place, what in connected.items() if place not in opened]
    kinds = AMBIENT, MODULE
    missing = {name.replace(":", " ", 1) if name.startswith(kinds) else name: why for name, why in lost.items()}
    told += [f"not restored: {', '.join(names)} ({why})" for why, names in by_reason(missing).items()]
    told += [f"as it is now: {', '.join(names)} ({why})" for why, names in by_reason(done.as_now).items()]
    if inexact:
        told.append(f"as their libraries store them: {join_names(inexact)}")
    if later := [name for name in done.modules if name not in own_modules.IN_PLACE]:
        told.append(f"loaded later, and as it is now: module {join_names(later)}")
    told += [f"loaded later, and as it is now: logger {name}" for name in done.loggers]
    told += [*filter(None, [plan.files_that_stay()]), *done.notices]
    told += unfinished(job.resumable) if job.resumable is not None else []
    return "\n".join(told) + "\n"


def _some(names: Sequence[str]) -> str:
    return f" ({join_names(names)})" if names else ""
