"""Which cells must run again after edits, proven by the content of what their executions read. Pure; runs nothing.

Rule 1: a cell is kept only if a recorded execution of its text had inputs that are all equal to those of now. In doubt
        it runs.
Rule 2: versions are opaque: `World.same` says whether two of them hold equal content. None stands for no value.
Rule 3: an opaque execution may depend on more than its inputs: its cell runs from the first change on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.state_names import is_bound
from ctxkernel.core.text import join_names, one_line

AffectedAction = Literal["run", "keep", "opaque"]
Version = Any
MAYBE: Version = object()
"""The version of a name that a cell which runs may change: equal to none."""
GONE: Version = None
"""The version of a name without a value."""


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """A code cell as it is now."""

    cell: str
    """Its id, or the statement where it has none."""
    source: str
    tags: Mapping[str, Any] = field(default_factory=dict[str, Any])
    may_fail: bool = False


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The reads and writes of one execution, with versions."""

    execution_id: str
    cell: str
    source: str
    inputs: Mapping[str, Version] = field(default_factory=dict[str, Version])
    """Names that it may have used, with their versions before it."""
    classes: Mapping[str, Version] = field(default_factory=dict[str, Version])
    """The user's classes before it, by label: a value that it used may be of a class that it did not name."""
    parts: Mapping[str, Version] = field(default_factory=dict[str, Version])
    """Parts of the process on which it may depend, with their versions before it."""
    effects: Mapping[str, Version] = field(default_factory=dict[str, Version])
    """Names and parts that differ after it."""
    regrouped: Collection[str] = ()
    """Names and labels in `effects` with equal content, stored differently since other variables share a part of it."""
    new_parts: Collection[str] = ()
    """Parts among those that the process had not before it, such as the settings of a library that it loaded."""
    gone: Collection[str] = ()
    """Names that it deleted."""
    binds: Collection[str] = ()
    """Names that its text binds."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files that it read, with their versions."""
    written: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files that it wrote, with their hashes."""
    opaque: str = ""
    """Why equal inputs do not prove that it need not run; empty if they do."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class World:
    """The names, files and other inputs that a cell would find now."""

    state: Mapping[str, Version]
    same: Callable[[Version, Version], bool]
    match: Callable[[RecordedRun, Mapping[str, Version], Collection[str]], tuple[Collection[str], Mapping[str, str]]]
    """Returns which of these inputs differ in a state, and the names of equal objects made again: then → now."""
    reads_first: Callable[[str], Collection[str] | None]
    """Returns the names that a text reads before it binds them; None for any."""
    file: Callable[[str], str]
    """Returns the version of a file that was read."""
    written: Callable[[str], str]
    """Returns the hash of a file that was written."""


@dataclass(frozen=True, slots=True)
class CellDecision:
    """The decision on one cell, with the reason."""

    action: AffectedAction
    why: tuple[str, ...] = ()
    run: RecordedRun | None = None
    """The execution whose result is kept, or the one that the cell repeats."""
    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of objects in that result → the names of the equal objects of now."""


def decide(candidates: Sequence[RecordedRun], world: World, *, missing: str) -> CellDecision:
    """Return whether the result of one of these executions of a cell's text holds, the first one preferred.

    `missing`: why the cell runs if there are none.
    """
    if not candidates:
        return CellDecision("run", (missing,))
    first: CellDecision | None = None
    for run in candidates:
        changed, renames = changed_names(run, world)
        why = *_told(changed, world.state), *_changed_parts(run, world)
        if not why and not run.opaque:
            return CellDecision("keep", (), run, renames)
        first = first or CellDecision("run" if why else "opaque", why or (run.opaque,), run)
    assert first is not None
    return first


def changed_names(run: RecordedRun, world: World) -> tuple[Collection[str], Mapping[str, str]]:
    """Return the names that an execution read and that differ now; if none does, the objects that were made again."""
    state, same = world.state, world.same
    get = state.get
    # Most versions are the same object: nothing is called for these.
    names = [name for name, one in run.inputs.items() if (now := get(name)) is not one and not same(one, now)]
    names = [name for name in names if not _is_only_bound(run, name, world)]
    known = [name for name in names if get(name) is not MAYBE]
    if not known:
        return names, {}
    changed, renames = world.match(run, state, known)
    # A name with unchanged content may refer to a class that has changed.
    found = [name for name in dict.fromkeys((*names, *changed)) if name in changed or get(name) is MAYBE]
    found = [name for name in found if name in names or not _is_only_bound(run, name, world)]
    return found, {} if found else renames


def _changed_parts(run: RecordedRun, world: World) -> Iterator[str]:
    """Yield, as text, the parts of the process and the files that differ from those that an execution found."""
    state, same = world.state, world.same
    get = state.get
    parts = [name for name, one in run.parts.items() if (now := get(name)) is not one and not same(one, now)]
    parts += [name for name in run.new_parts if name in state and not same(run.effects[name], state[name])]
    for part in dict.fromkeys(one.partition(":")[2] for one in parts):
        yield f"the {part} differ" if part.endswith("attributes") else f"the {part} settings differ"
    for name, version in run.files.items():
        if world.file(name) != version:
            yield f"file {one_line(name, 60)} changed"
    for name, version in run.written.items():
        if world.written(name) != version:
            yield f"file {one_line(name, 60)} is not as it left it"


def _is_only_bound(run: RecordedRun, name: str, world: World) -> bool:
    """Return whether an execution bound a name that had no value, and did not read it before."""
    if run.inputs[name] is not GONE or name not in run.binds:
        return False
    first = world.reads_first(run.source)
    return first is not None and name not in first


def _told(names: Collection[str], state: Mapping[str, Version]) -> Iterator[str]:
    plain = [name for name in names if is_bound(name)]
    absent = [name for name in plain if name not in state]
    for told, chosen in (
        ("may change", [name for name in plain if state.get(name) is MAYBE]),
        ("has no value" if len(absent) == 1 else "have no value", absent),
        ("changed", [name for name in plain if name in state and state[name] is not MAYBE]),
    ):
        if chosen:
            yield f"{join_names(sorted(one_line(name, 40) for name in chosen))} {told}"
    if len(plain) < len(names) and not plain:
        yield "an object or a class that it uses differs"


# -- the plan ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell in a plan."""

    action: AffectedAction
    why: tuple[str, ...]
    seconds: float | None
    """The time that its last execution took; None if it never ran."""


def foresee(
    cells: Sequence[NotebookCell],
    candidates: Callable[[NotebookCell], tuple[Sequence[RecordedRun], str]],
    world: World,
    touched: Callable[[str], Collection[str]],
) -> list[PlannedCell]:
    """Return what would become of cells that follow on a state, as far as it is known before any of them runs.

    A cell that runs may give its old result after all: then the cells that depend on it alone will be kept.
    `candidates` returns the executions of a cell's text, and why there are none; `touched` the names in a text.
    """
    state: dict[str, Version] = dict(world.state)
    files: dict[str, str] = {}
    now = World(
        state,
        world.same,
        world.match,
        world.reads_first,
        lambda name: files.get(name) or world.file(name),
        lambda name: files.get(name) or world.written(name),
    )
    found: list[PlannedCell] = []
    for cell in cells:
        runs, missing = candidates(cell)
        decision = decide(runs, now, missing=missing)
        run = decision.run
        found.append(PlannedCell(decision.action, decision.why, run.seconds if run is not None else None))
        if run is None:
            state |= dict.fromkeys(touched(cell.source), MAYBE)
        elif decision.action == "keep" and not decision.renames:
            take_effects(state, run)
        else:
            state |= dict.fromkeys((name for name in (*run.effects, *run.gone) if name not in run.regrouped), MAYBE)
            files |= dict.fromkeys(run.written, "may change")
    return found


def take_effects(state: dict[str, Version], run: RecordedRun) -> None:
    """Change a state as an execution did."""
    for name in run.gone:
        state.pop(name, None)
    state |= run.effects
