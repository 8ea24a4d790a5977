"""IPython's history of inputs, written to its file for several cells at once: a write costs as much as a small cell.

The timeline's log has each cell before its reply is sent. `%history -g` of other sessions sees the cells up to
`SECONDS` later.
"""

from __future__ import annotations

from typing import Any

from ctxkernel.kernel.execution.guard import Guard

SECONDS = 1.0
"""The longest time from a cell to the writing of its input."""
_MANY = 200
"""So many inputs are written without waiting."""


class InputHistory:
    """Writes the history a moment after a cell."""

    def __init__(self, kernel: Any, guard: Guard) -> None:
        self._kernel, self._guard = kernel, guard
        self._due: Any = None
        history: Any = kernel.shell.history_manager
        self.gathers = getattr(history, "db_cache_size", None) == 0
        """Whether inputs are gathered. A user who set the size of IPython's cache has it as it was set."""
        if self.gathers:
            history.db_cache_size = _MANY

    def write_soon(self) -> None:
        """Have the history written, unless it is about to be."""
        if self._due is None and (loop := getattr(self._kernel, "io_loop", None)) is not None:
            self._due = loop.call_later(SECONDS, self._write)

    def _write(self) -> None:
        self._due, history = None, self._kernel.shell.history_manager
        if history.save_flag is not None:
            history.save_flag.set()  # IPython's thread writes
        else:  # the thread is stopped before a fork
            self._guard("history of inputs", history.writeout_cache, None)
