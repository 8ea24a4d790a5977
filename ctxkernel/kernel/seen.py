"""What the model saw when it last looked, and what has changed of it since."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime


class Seen:
    """The last look of the model."""

    def __init__(self, ctx: Runtime) -> None:
        self._ctx = ctx

    def look(self) -> None:
        """A request is sent."""

    def changed(self, code: str) -> str:
        return ""
