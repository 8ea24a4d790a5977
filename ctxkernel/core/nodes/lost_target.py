"""The source of a view whose target could not be opened again: one line, until it can be."""

from __future__ import annotations

from collections.abc import Callable

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadTarget
from ctxkernel.core.ports import AllTokens, CountTokens, Rendered, RenderRequest, Source, Trim

FINGERPRINT = "lost"


@dataclass(eq=False)
class LostSource:
    """A source whose target is gone. Each call tries to open the target; then this source forwards to it."""

    kind: str
    label: str
    reason: str
    count_tokens: CountTokens
    trim: Trim
    spec: str | None = None
    """The path of the target, or None where it had none."""
    reopen: Callable[[], Source] | None = None
    _found: Source | None = field(default=None, init=False)

    def _find(self) -> Source | None:
        if self._found is None and self.reopen is not None:
            try:
                self._found = self.reopen()
            except BadTarget as fault:
                self.reason = str(fault)
        return self._found

    def stamp(self) -> str:
        """Return the target's stamp, or that it is lost. Never raises."""
        found = self._find()
        return FINGERPRINT if found is None else found.stamp()

    def render(self, request: RenderRequest) -> Rendered:
        """Return the target's rendering, or a line that says that it is gone."""
        found = self._find()
        if found is not None:
            return found.render(request)
        text = f"{self.label} · gone: {self.reason}"
        if not isinstance(request.tokens, AllTokens):
            text = self.trim(text, request.tokens)
        return Rendered(
            text, self.count_tokens(text), request.lod, request.pos, fingerprint=FINGERPRINT, notes=("missing",)
        )
