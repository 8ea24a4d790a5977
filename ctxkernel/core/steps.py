"""Steps: the order of a turn as a table, and the function that runs it.

Rule 1: order lives in tables of `Step`; a step does not call the next one.
Rule 2: a step does not write into the record of its turn: `run_steps` stores what it returns, under `Step.gives`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from ctxkernel.core.dataclasses import dataclass

T = TypeVar("T")


class StepGuard(Protocol):
    """Runs a step and handles its failure."""

    def __call__(self, part: str, run: Callable[..., T], otherwise: T, *arguments: Any) -> T:
        """Return `run(*arguments)`, or `otherwise` if it raised or the part is switched off."""
        ...


def no_guard(part: str, run: Callable[..., T], otherwise: T, *arguments: Any) -> T:
    """Run a step and let its exceptions through: for tests, and where no cell of a user runs."""
    return run(*arguments)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a turn."""

    part: str
    """The name of the failed part for the user. Steps of one part are switched off together."""
    run: Callable[[Any, Any], Any] | str
    """A function of the table's owner and the turn's record that returns what the step gives.

    Or the dotted path of a method from the owner on, which is called with what the step needs.
    """
    gives: str = ""
    """The field of the record that gets what `run` returns; empty: it is dropped."""
    needs: tuple[str, ...] = ()
    """Fields of earlier steps that this one reads."""
    otherwise: Any = None
    """The value for `gives` if the step fails."""
    bounded: bool = False
    """Whether it shares the time limit of the end of a cell, and does less work when the limit is reached."""
    essential: bool = False
    """Whether the turn cannot go on without it: what it raises ends the walk."""
    when: str = ""
    """The dotted path of an attribute from the owner on: if it is false, there is nothing to do."""

    @property
    def name(self) -> str:
        """The name of the function, or the path of the method."""
        return self.run if isinstance(self.run, str) else self.run.__name__


_path = functools.cache(attrgetter)
"""Makes the function that follows a dotted path from an owner on, once for each path."""


def run_steps(steps: Sequence[Step], guard: StepGuard, owner: Any, record: Any) -> None:
    """Run the steps in their order. Raises what an essential step raised."""
    clean = getattr(guard, "clean", False)
    for step in steps:
        if step.when and not _path(step.when)(owner):
            continue
        run, arguments = step.run, (owner, record)
        if isinstance(run, str):
            run, arguments = _path(run)(owner), [getattr(record, name) for name in step.needs]
        if step.essential:
            given = run(*arguments)
        elif clean:  # call the step directly: the guard has nothing to do
            try:
                given = run(*arguments)
            except BaseException as fault:
                given, clean = guard(step.part, _raise, step.otherwise, fault), False
        else:
            given = guard(step.part, run, step.otherwise, *arguments)
        if step.gives:
            setattr(record, step.gives, given)


def _raise(fault: BaseException) -> None:
    raise fault


def unmet_needs(steps: Sequence[Step], given: Sequence[str]) -> list[str]:
    """Return a line for each need that neither `given` nor an earlier step provides."""
    known, found = set(given), list[str]()
    for step in steps:
        found += [f"{step.part} ({step.name}) needs {need}" for need in step.needs if need not in known]
        known.add(step.gives)
    return found
