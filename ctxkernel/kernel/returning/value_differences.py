"""Values of two states compared: copies loaded from the checkpoints, within bounds of memory and time.

Rule 1: the user's variables are not touched: a value of another state is a copy, and is dropped after the comparison.
Rule 2: a value that cannot be loaded is unknown, with the reason; one for which no time was left is pending.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import CtxError, StoreError
from ctxkernel.core.replay import Comparison
from ctxkernel.core.text import one_line
from ctxkernel.core.timeline import Execution
from ctxkernel.core.turn_values import HandleState
from ctxkernel.core.value_difference import ValueDifference, unknown_difference
from ctxkernel.kernel.returning.return_services import ReturnServices
from ctxkernel.kernel.returning.targets import Target
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.checkpoints.restore import Restorer
from ctxkernel.store.log.session import SessionReader

if TYPE_CHECKING:
    from ctxkernel.replay.differences import Differences, Fingerprints, OutputDifference
    from ctxkernel.replay.outputs import DivergenceSettings

COMMAND_SECONDS = 20.0
"""Time for all values that `%ctx diff` compares."""
MOST_BYTES = 1024 * 1024 * 1024
"""Most bytes of one value that is loaded for a comparison that was asked for."""


@dataclass(frozen=True, slots=True)
class ComparedPlace:
    """A state whose values are compared. `is_now`: its values are the variables themselves."""

    execution_id: str | None
    is_now: bool = False


class StateValues:
    """Compares the values that names have in two states."""

    def __init__(self, restorer: Restorer, live: Callable[[str], Any], tolerance: Callable[[], float]) -> None:
        self._restorer = restorer
        self._live = live
        self._tolerance = tolerance

    def between(
        self, name: str, old: ComparedPlace, new: ComparedPlace, *, until: float, most: int = MOST_BYTES
    ) -> ValueDifference:
        """Return how the value of a name differs; `until` is a time of `time.monotonic`."""
        if time.monotonic() > until:
            return unknown_difference(
                name, "not compared", f"no time was left; %ctx diff … {name} compares it", "pending"
            )
        values: list[Any] = []
        for place in (old, new):
            try:
                values.append(self._value(name, place, most))
            except Exception as fault:  # code of the user's may run: a `__setstate__`
                told = str(fault) if isinstance(fault, CtxError) else f"{type(fault).__name__} while loading: {fault}"
                return unknown_difference(name, "not compared", one_line(told, 200))
        return self.compare(name, values[0], values[1], until=until)

    def compare(self, name: str, old: Any, new: Any, *, until: float) -> ValueDifference:
        """Return how two values of a name differ."""
        from ctxkernel.replay.text_comparison import Tolerance
        from ctxkernel.replay.value_comparer import ValueComparer

        tolerance = self._tolerance()
        comparer = ValueComparer(
            tolerance=Tolerance(tolerance, tolerance), expired=lambda: time.monotonic() > until, source=source_of
        )
        return comparer.compare(name, old, new)

    def part(self, name: str, place: ComparedPlace) -> Any:
        """Return the value that a part of the ambient state has at a place. Raises CtxError."""
        return None if place.execution_id is None else self._restorer.part(place.execution_id, name)

    def _value(self, name: str, place: ComparedPlace, most: int) -> Any:
        if place.is_now and (found := self._live(name)) is not NOTHING:
            return found
        if place.execution_id is None:
            raise CtxError("there was no state before all statements that could be loaded")
        return self._restorer.load_copy(place.execution_id, name, most)


class StateDifferences:
    """Compares two states of a session: names by their values, outputs, handles, files."""

    def __init__(self, session: ReturnServices, fingerprints: Fingerprints, values: StateValues) -> None:
        self._session, self._fingerprints, self._values = session, fingerprints, values

    def between(
        self,
        old: Target,
        new: Target,
        *,
        names: Sequence[str] = (),
        is_now: bool = False,
        seconds: float = COMMAND_SECONDS,
        settings: DivergenceSettings | None = None,
    ) -> Differences:
        """Return the differences of `new` from `old`; only of `names`, if some are given.

        `is_now`: the values of `new` are the variables. `seconds`: the time for all values together.
        """
        from ctxkernel.replay.differences import differences, with_values
        from ctxkernel.replay.output_values import output_difference

        log = self._session.loop.log
        found = differences(
            log.path(old.execution_id),
            log.path(new.execution_id),
            fingerprints=self._fingerprints,
            old_handles=self._handles(old.execution_id),
            new_handles=self._handles(new.execution_id),
            settings=settings,
        )
        if names:
            found = found.only(names)
        until = time.monotonic() + seconds
        places = ComparedPlace(old.execution_id), ComparedPlace(new.execution_id, is_now)

        def output(one: OutputDifference) -> ValueDifference | None:
            if time.monotonic() > until:
                return None
            runs = log.execution(one.before), log.execution(one.after)
            return output_difference(one.name.partition(" ")[2], one.told, *runs)

        return with_values(
            found,
            name=lambda name: self._values.between(name, *places, until=until),
            output=output,
            file=lambda one: self.file(one.name, one.told, *places, until=until) if one.how == "changed" else None,
        )

    def file(self, name: str, told: str, old: ComparedPlace, new: ComparedPlace, *, until: float) -> ValueDifference:
        """Return how the content of a file differs; `told` is the summary where the contents are not kept."""
        from ctxkernel.kernel.returning.file_differences import MOST_BYTES, file_difference

        try:
            if time.monotonic() > until:
                raise CtxError("no time was left")
            states = self._session.file_states
            before, after = (
                states.content_in(self._values.part("files", place), name, MOST_BYTES) for place in (old, new)
            )
        except (CtxError, OSError) as missing:
            return unknown_difference(name, told, f"not compared: {one_line(str(missing), 200)}")
        return file_difference(name, before, after, partial(self._values.compare, until=until))

    def _handles(self, execution_id: str | None) -> Sequence[HandleState]:
        """Return the handles after an execution, from the log."""
        path = self._session.store.path
        if execution_id is None or path is None:
            return ()
        try:
            with SessionReader(path) as reader:
                return reader.handles(execution_id)
        except StoreError:  # its row could not be written; the names are still worth comparing
            return ()


def source_of(value: Any) -> str:
    """Return the source of a function of a cell; empty if it is not known."""
    try:
        return inspect.getsource(value)
    except (OSError, TypeError, ValueError, IndexError):
        return ""


def outputs_of(comparison: Comparison, old: Execution, new: Execution) -> Iterable[ValueDifference]:
    """Yield the outputs of a re-run that differ and have more to show than their summary: figures, long texts."""
    from ctxkernel.replay.output_values import output_difference

    for one in comparison.divergences:
        if one.kind == "output" and (found := output_difference(one.subject, one.summary, old, new)) is not None:
            yield found
