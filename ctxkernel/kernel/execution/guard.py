"""Keeps internal faults away from the user's cells: a part that failed is tried again at the next cell.

Rule 1: a fault costs its step, in this cell only; after `MOST` failures in a row the part is switched off.
Rule 2: each failure is told once, in the cell in which it happened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 3
"""Cells in a row in which a part may fail before it is switched off."""


class Guard:
    """Runs the steps around a cell."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.off: dict[str, str] = {}
        """Part → its last failure in one line, for the parts that are off until the kernel restarts."""
        self.failed: dict[str, str] = {}
        """Part → its failure, for the parts that failed when they last ran and are tried again."""
        self._in_a_row: dict[str, int] = {}
        self._ran: set[str] = set()
        self._failed_now: set[str] = set()

    @property
    def clean(self) -> bool:
        """Return whether no part is off, and none failed when it last ran."""
        return not self.off and not self.failed

    def turn(self) -> None:
        """Begin a cell: try every part again that is not off."""
        for part in self._ran - self._failed_now:
            self._in_a_row.pop(part, None)
        self._ran.clear()
        self._failed_now.clear()

    def __call__(self, part: str, run: Callable[..., T], otherwise: T, *arguments: Any) -> T:
        """Return `run(*arguments)`, or `otherwise` if the part fails or is off."""
        if part in self.off:
            return otherwise
        self._ran.add(part)
        try:
            result = run(*arguments)
        except BaseException as fault:  # also SystemExit of a user's object; interrupts are masked here
            self.fail(part, fault)
            return otherwise
        if part not in self._failed_now:
            self.failed.pop(part, None)
        return result

    def once(self, part: str, run: Callable[[], T], otherwise: T) -> T:
        """Return `run()`, or `otherwise`: a failure switches the part off, as for an installation."""
        try:
            return run()
        except BaseException as fault:
            self._switch_off(part, line_of(fault))
            return otherwise

    def fail(self, part: str, fault: BaseException) -> None:
        """Count a failure of `part`, at most one a cell, and tell the user."""
        if part in self.off or part in self._failed_now:
            return
        self._failed_now.add(part)
        line = self.failed[part] = line_of(fault)
        self._in_a_row[part] = self._in_a_row.get(part, 0) + 1
        if self._in_a_row[part] >= MOST:
            self._switch_off(part, line)
        else:
            self._say(f"{part} failed in this cell ({line}); it is tried again at the next one.")

    def why(self, part: str) -> str:
        """Return the failure of a part that is off or failed when it last ran; else an empty text."""
        return self.off.get(part) or self.failed.get(part, "")

    def lines(self) -> list[str]:
        """Return a line for each part that does not work now."""
        off = [f"{part} is off until the kernel restarts: {why}" for part, why in self.off.items()]
        return off + [f"{part} failed, and is tried again at the next cell: {why}" for part, why in self.failed.items()]

    def _switch_off(self, part: str, line: str) -> None:
        self.failed.pop(part, None)
        self.off[part] = line
        self._say(f"{part} is off until the kernel restarts ({line}). %ctx status shows what works.")

    def _say(self, text: str) -> None:
        try:
            self._tell(f"ctxkernel: {text}")
        except Exception as unheard:  # the failure cannot be told; the cell must go on all the same
            self.off["notices"] = line_of(unheard)


def line_of(fault: BaseException) -> str:
    """Return an exception in one line."""
    try:
        return f"{type(fault).__name__}: {fault}"[:300]
    except Exception:  # the exception's own `__str__` fails
        return type(fault).__name__
