"""Steps: the order of a turn as a table, and the one function that walks it.

Rule 1: order lives in tables of `Step`; a step does not call the next one.
Rule 2: a step writes nothing into the record of its turn: what it returns is put there under the name that it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Guard(Protocol):
    """Runs a step and bears its failure."""

    def __call__(self, part: str, run: Callable[..., T], otherwise: T, *arguments: Any) -> T:
        """Return `run(*arguments)`, or `otherwise` if it raised or the part is switched off."""
        ...


def no_guard(part: str, run: Callable[..., T], otherwise: T, *arguments: Any) -> T:
    """Let exceptions through: for tests, and where nobody's cell is at stake."""
    return run(*arguments)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a turn."""

    part: str
    """What the user is told has failed. Steps of one part are switched off together."""
    run: Callable[[Any, Any], Any]
    """Takes the owner of the table and the record of the turn; returns what it gives."""
    gives: str = ""
    """The field of the record that gets what `run` returns; empty: nothing is kept."""
    needs: tuple[str, ...] = ()
    """Fields that earlier steps give, and that this one reads."""
    otherwise: Any = None
    """What it gives if it fails."""
    bounded: bool = False
    """Whether it shares the time limit of the end of a cell, and goes on with less when that is over."""
    essential: bool = False
    """Whether the turn cannot go on without it: what it raises ends the walk."""


def run_steps(steps: Sequence[Step], guard: Guard, owner: Any, record: Any) -> None:
    """Run the steps in their order. Raises what an essential step raised."""
    clean = getattr(guard, "clean", False)
    for step in steps:
        if step.essential:
            given = step.run(owner, record)
        elif clean:  # without a call of the guard, which has nothing to say
            try:
                given = step.run(owner, record)
            except BaseException as fault:
                given, clean = guard(step.part, _raise, step.otherwise, fault), False
        else:
            given = guard(step.part, step.run, step.otherwise, owner, record)
        if step.gives:
            setattr(record, step.gives, given)


def _raise(fault: BaseException) -> None:
    raise fault


def unmet_needs(steps: Sequence[Step], given: Sequence[str]) -> list[str]:
    """Return a line for each need that neither `given` nor an earlier step fulfils: a table in the wrong order."""
    known, found = set(given), list[str]()
    for step in steps:
        found += [f"{step.part} ({step.run.__name__}) needs {need}" for need in step.needs if need not in known]
        known.add(step.gives)
    return found
