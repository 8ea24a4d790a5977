"""A line in the output of a cell that tells how far a long step is."""

from __future__ import annotations

import time
import uuid

from ctxkernel.kernel.display.notices import Notices


class ProgressLine:
    """A line that later texts replace; `end` empties it.

    The first text is shown `after` seconds, and later ones are at least `every` seconds apart. `hidden`: show none.
    """

    def __init__(self, notices: Notices, *, after: float = 0.0, every: float = 0.0, hidden: bool = False) -> None:
        self._notices = notices
        self._id = uuid.uuid4().hex
        self._every = every
        self._next = float("inf") if hidden else time.monotonic() + after
        self._text = ""
        self._is_shown = False

    def show(self, text: str) -> None:
        """Show a text in place of the last one."""
        if text != self._text and (now := time.monotonic()) >= self._next:
            self._next = now + self._every
            self._display(text)

    def end(self) -> None:
        """Empty the line, if anything was shown."""
        if self._text:
            self._display("")

    def _display(self, text: str) -> None:
        kind = "update_display_data" if self._is_shown else "display_data"
        self._notices.display(kind, {"text/plain": text}, {}, self._id)
        self._text, self._is_shown = text, True
