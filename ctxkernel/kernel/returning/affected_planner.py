"""The plan of a re-run of the affected cells: where it begins, and what becomes of each cell from there on.

Rule 1: cells above the first change keep their state: nothing that they read can have changed by it.
Rule 2: from there on the result is that of running every cell in order; a cell that is not proven to give its old
        result runs.
Rule 3: planning reads; only `take` changes the state, to that after an execution whose result is kept.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ctxkernel.core.errors import CtxError
from ctxkernel.core.state_names import AMBIENT
from ctxkernel.core.timeline import Execution, Path, Statement, run_name
from ctxkernel.kernel.execution.cell import asks
from ctxkernel.kernel.execution.read_files import FileReads
from ctxkernel.kernel.returning.affected_notebook import AffectedNotebook, is_command, is_silent
from ctxkernel.kernel.returning.recorded_runs import CALLS, RecordedRuns, is_option
from ctxkernel.kernel.returning.return_plans import name_of
from ctxkernel.kernel.returning.targets import ReturnJob, Target
from ctxkernel.replay.affected import (
    MAYBE,
    CellDecision,
    NotebookCell,
    PlannedCell,
    RecordedRun,
    World,
    decide,
    foresee,
)
from ctxkernel.state.ambient import LIBRARY_CALLS, first_value
from ctxkernel.state.checkpoints.unit_contents import Matching
from ctxkernel.state.tracking.cell_names import read_cell
from ctxkernel.state.tracking.read_names import names_read_first

if TYPE_CHECKING:
    from ctxkernel.kernel.returning.returns import Returning
    from ctxkernel.state.checkpoints.units import Unit

_BLOCK = 1 << 20
_MOST_BRANCHES = 3
"""Other branches of which the executions are read for one plan."""


class AffectedPlanner:
    """Plans re-runs of affected cells."""

    def __init__(self, back: Returning, *, files: FileReads) -> None:
        self._back = back
        self._files = files
        states, storage = back.checkpoints.states, back.checkpoints.storage
        self._recorded = RecordedRuns(states, back.facts, storage.absent)
        self._first: dict[str, bool] = {}
        """Digest of a part of the process → whether it has the value from before any cell changed it."""

    def plan(self, cells: Sequence[NotebookCell], path: Path) -> AffectedNotebook:
        """Return what must run so that the notebook is as if all its cells had run in order. Reads only."""
        back = self._back
        back.checkpoints.state(back.checkpoints.base)  # waits for what is still being compared
        found = AffectedNotebook(cells, path, self._recorded.of(path), self._first_settings(path))
        self._add_unreached(found)
        self._find_first(found)
        self._plan_from(found, found.first)
        return found

    def _add_unreached(self, found: AffectedNotebook) -> None:
        """Add the newest executions of cells that have none on the path: a re-run that was stopped left these out."""
        wanted = {cell.cell: cell for cell in found.cells if cell.source not in found.by_text and not is_command(cell)}
        if not wanted:
            return
        log, newest = self._back.log, dict[str, tuple[Statement, Execution]]()
        by_text = {cell.source: name for name, cell in wanted.items() if name.startswith("#")}  # it has no id
        for statement, run in log.ended():
            name = by_text.get(statement.source) or statement.cell_id or statement.statement_id
            if name in wanted and not is_silent(statement):
                newest[name] = statement, run
        left = {run.execution_id: name for name, (one, run) in newest.items() if one.source == wanted[name].source}
        for _ in range(_MOST_BRANCHES):
            if not left:
                return
            path = log.path(max(left, key=lambda name: log.execution(name).started_at))
            for (statement, execution), run in zip(path, self._recorded.of(path), strict=True):
                if (name := left.pop(execution.execution_id, None)) is not None:
                    found.by_text.setdefault(run.source, []).append(run)
                    found.newest[name] = statement, execution

    def _first_settings(self, path: Path) -> dict[str, Unit]:
        """Return the settings of the process with which a path begins.

        A cell that ran first after a return to before all statements is recorded without those that it did not change:
        they are as they were before the first cells of earlier branches.
        """
        log = self._back.log
        first = [(log.statement(run.statement_id), run) for run in log.children(None)] if path else []
        units = (unit for one in first for unit in self._recorded.first_settings([one]))
        options = {unit.names[0]: unit for unit in units if is_option(unit.names[0])}
        return options | {unit.names[0]: unit for unit in self._recorded.first_settings(path)}

    def _plan_from(self, found: AffectedNotebook, first: int | None) -> None:
        """Plan the cells from `first` on, or from above it, where a file must be written anew for one that runs."""
        while first is not None:
            if first < len(found.before):
                found.first, found.place = first, found.before[first]
            found.planned = self._foreseen(found)
            first = self._writer_above(found)

    def _writer_above(self, found: AffectedNotebook) -> int | None:
        """Return the last cell above the first change whose file a cell below uses, and that was changed since."""
        used, made, texts = set[str](), set[str](), list[str]()
        by_cell = {run.cell: run for run in found.runs}
        for cell in found.cells[found.first :]:
            runs = found.candidates(cell)[0]
            texts += [] if runs else [cell.source]
            run = runs[0] if runs else by_cell.get(cell.cell)
            if run is not None:
                used.update({*map(os.path.realpath, _used_files(run))} - made)
                made.update(map(os.path.realpath, run.written))
        seen = set[str]()
        for at in reversed(range(found.first)):
            run = found.matched[at]
            for name, version in run.written.items() if run is not None else ():
                path = os.path.realpath(name)
                is_used = path in used or any(os.path.basename(name) in text for text in texts)
                if is_used and path not in seen and self.written(name) != version:
                    return at
                seen.add(path)
        return None

    def job(
        self, cells: Sequence[NotebookCell], path: Sequence[tuple[Statement, Execution]], flags: Collection[str]
    ) -> ReturnJob:
        """Return the job that returns to the state before the first change. Raises CtxError."""
        back, found = self._back, self.plan(cells, list(path))
        while True:
            told = f"after {run_name(found.place)}" if found.place is not None else "before all statements"
            target = Target(found.place, told)
            try:
                back.health.check(found.place)
                difference = back.restorer.compare(found.place)
            except CtxError:
                if not self.begin_above(found, None):
                    raise
                continue
            job = ReturnJob(
                "rerun", target, difference, as_json="--json" in flags, confirmed="--yes" in flags, affected=found
            )
            plan = back.plan(job)
            lost = {name_of(name) for name in (*plan.lost, *plan.as_now, *difference.absent)}
            if self._lacks_calls(found.place):
                lost.add(CALLS)
            if not lost or not self.begin_above(found, lost):
                return job

    def _lacks_calls(self, place: str | None) -> bool:
        """Return whether a state needs calls of libraries that this process has not made."""
        unit = self._back.checkpoints.state(place).get(CALLS)
        return unit is not None and LIBRARY_CALLS.lacks(self._back.restorer.plain(unit))

    def begin_above(self, found: AffectedNotebook, lost: Collection[str] | None) -> bool:
        """Begin above the cell that made one of these names, which cannot be restored; None: above the last cell.

        Return whether there is such a cell.
        """
        for at in reversed(range(found.first)):
            run = found.matched[at]
            if run is not None and (lost is None or not run.effects.keys().isdisjoint(lost)):
                self._plan_from(found, at)
                return True
        return False

    def _find_first(self, found: AffectedNotebook) -> None:
        """Find the first cell that is not the one that ran at its place, or whose files changed."""
        at, place, written = 0, None, set[str]()
        cells, back = found.cells, self._back
        last_writer = {name: n for n, run in enumerate(found.runs) for name in run.written}
        for number, ((statement, execution), run) in enumerate(zip(found.path, found.runs, strict=True)):
            if is_silent(statement):
                place = execution.execution_id
                continue
            while at < len(cells) and is_command(cells[at]):
                found.matched.append(None)
                found.before.append(place)
                at += 1
            if at == len(cells) or cells[at].source != run.source or execution.status != "ok":
                break
            if back.has_failed(execution.execution_id):
                break
            if any(name not in written and self.file(name) != version for name, version in run.files.items()):
                break
            if any(
                last_writer[name] == number and self.written(name) != version for name, version in run.written.items()
            ):
                break
            written.update(run.written)
            found.matched.append(run)
            found.before.append(place)
            at, place = at + 1, execution.execution_id
        found.first, found.place = at, place
        texts, old = {cell.source for cell in cells}, {run.source for run in found.runs}
        if any("logg" in source for source in texts ^ old):
            found.reconfigured = "what is logged may differ"

    def _foreseen(
        self, found: AffectedNotebook, now: Mapping[str, Any] | None = None, first: int | None = None
    ) -> list[PlannedCell]:
        """Return what would become of the cells from the first change on, or from `first` on in the state `now`."""
        first = found.first if first is None else first
        now = self._back.checkpoints.state(found.place) if now is None else now
        state = {**found.settings, **now}
        rest = [one for one in found.cells[first:] if not is_command(one)]

        def touched(source: str) -> Collection[str]:
            read = read_cell(source)
            names = {name for name in read.names if name in state} | read.replaced
            return names.union(*(state[name].names for name in names if name in state))

        planned = iter(foresee(rest, found.candidates, self.world(state), touched))
        out: list[PlannedCell] = []
        for cell in found.cells[first:]:
            one = PlannedCell("keep", ("a command",), 0.0) if is_command(cell) else next(planned)
            if one.seconds is None and cell.cell in found.newest:
                one = replace(one, seconds=found.newest[cell.cell][1].cost.time_ms / 1000)
            out.append(one)
        return out

    def rest(self, found: AffectedNotebook) -> AffectedNotebook:
        """Return the plan for the cells that a stepwise re-run has not reached yet."""
        planned = self._foreseen(found, self._back.checkpoints.known_now(), found.done)
        done = [PlannedCell("keep", (), 0.0)] * (found.done - found.first)
        return replace(found, planned=[*done, *planned])

    def recorded(self, path: Path) -> list[RecordedRun]:
        """Return what the executions of a path have read and written."""
        return self._recorded.of(path)

    def recall(self, runs: Iterable[RecordedRun], path: Path) -> CellDecision:
        """Return whether the result of one of these executions holds in the present state."""
        world = self._present_world({**self._first_settings(path), **self._back.checkpoints.known_now()})
        kept = (found for run in runs if (found := decide([run], world, missing="")).action == "keep")
        return next(kept, CellDecision("run"))

    def decide(self, found: AffectedNotebook, cell: NotebookCell) -> CellDecision:
        """Return what becomes of a cell in the present state."""
        runs, missing = found.candidates(cell)
        if asks(cell.source):
            return CellDecision("run", ("it asks a model",), runs[0] if runs else None)
        state = {**found.settings, **self._back.checkpoints.known_now()}
        return decide(runs, self._present_world(state), missing=missing)

    def world(self, state: Mapping[str, Any]) -> World:
        """Return what a cell would find in a state, with the files as they are now."""
        return World(state, self._same, self._match, names_read_first, self.file, self.written)

    def _present_world(self, state: Mapping[str, Any]) -> World:
        """Return what a cell finds in the present state, floats within the tolerance that the user set."""
        return replace(self.world(state), match=self._match_nearly)

    def _same(self, one: Any, other: Any) -> bool:
        """Return whether two units, or None for no value, are known to hold equal content."""
        if one is MAYBE or other is MAYBE:
            return False
        if one is None or other is None:
            unit: Unit | None = one or other
            return unit is None or self._is_first(unit)
        if one.names[0].startswith(AMBIENT) and other.names == one.names and one.digest != other.digest:
            plain = self._back.restorer.plain  # equal values of settings need not have equal bytes
            return bool(plain(one) == plain(other))
        return one.equals(other)

    def _is_first(self, unit: Unit) -> bool:
        """Return whether a unit is a part of the process with the value that it had before any cell changed it."""
        name = unit.names[0]
        if not name.startswith(AMBIENT):
            return False
        if unit.digest not in self._first:
            first = first_value(name.removeprefix(AMBIENT))
            self._first[unit.digest] = first is not None and bool(self._back.restorer.plain(unit) == first)
        return self._first[unit.digest]

    def _match(
        self, run: RecordedRun, state: Mapping[str, Any], names: Collection[str]
    ) -> tuple[Collection[str], Mapping[str, str]]:
        """Return which inputs of an execution differ in a state, and the labels of objects that were made again."""
        matching = Matching(self._back.kept.contents, run.inputs, state, run.effects, run.classes, run.binds)
        differing = matching.differing(names)
        return differing, {label: now for label, now in matching.renames.items() if label != now}

    def _match_nearly(
        self, run: RecordedRun, state: Mapping[str, Any], names: Collection[str]
    ) -> tuple[Collection[str], Mapping[str, str]]:
        differing, renames = self._match(run, state, names)
        known = self._back.checkpoints.states.known.get(run.execution_id)

        def is_near(name: str) -> bool:
            one, now = run.inputs.get(name), state.get(name)
            if known is None or one is None or now is None or not one.names == now.names == (name,):
                return False
            return not (one.labels or now.labels) and self._back.comparisons.near(known.base, name)

        return [name for name in differing if not is_near(name)], renames

    def file(self, name: str) -> str:
        """Return the version of a file that a cell read."""
        return self._files.version(os.path.abspath(name))

    def written(self, name: str) -> str:
        """Return the hash of a file that a cell wrote; empty if it is gone."""
        digest = hashlib.sha256()
        try:
            with io.FileIO(name) as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
        except OSError:
            return ""
        return "sha256:" + digest.hexdigest()


def _used_files(run: RecordedRun) -> Iterator[str]:
    """Yield the files whose earlier content an execution may have used: an opaque one may have changed a part of it."""
    yield from run.files
    yield from run.written if run.opaque else ()
