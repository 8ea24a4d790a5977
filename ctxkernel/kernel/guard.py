"""Keeps faults of ours away from the user's cells: a step that fails is switched off, and told once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Guard:
    """Runs the steps round a cell. A step that raised once is off until the kernel restarts."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.off: dict[str, str] = {}
        """Step → what went wrong, in one line."""

    def __call__(self, step: str, run: Callable[[], T], otherwise: T) -> T:
        """Return `run()`, or `otherwise` where the step fails now or failed before."""
        if step in self.off:
            return otherwise
        try:
            return run()
        except BaseException as fault:  # SystemExit too, out of a user's object; interrupts are masked here
            self.switch_off(step, fault)
            return otherwise

    def switch_off(self, step: str, fault: BaseException) -> None:
        """Note that `step` is off because of `fault`, and tell the user."""
        if step in self.off:
            return
        self.off[step] = f"{type(fault).__name__}: {fault}"[:300]
        try:
            self._tell(
                f"ctxkernel: {step} is off until the kernel restarts ({self.off[step]}). "
                "Your cells run as always; %ctx status shows what works."
            )
        except Exception as unheard:  # nobody is left to tell; the cell goes on all the same
            self.off["notices"] = f"{type(unheard).__name__}: {unheard}"[:300]
