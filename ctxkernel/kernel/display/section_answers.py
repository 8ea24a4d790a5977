"""The answers to what the sections Projection, Handles and Cost of the panel ask when they are open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.masking import Mask
from ctxkernel.core.turn_values import HandleState
from ctxkernel.kernel.display.blocks import state_blocks
from ctxkernel.kernel.display.panel_rows import TEXT_CHARS
from ctxkernel.kernel.display.projection_rows import image_of_digest, projection_blocks, request_body
from ctxkernel.projection.value import Projection

if TYPE_CHECKING:
    from ctxkernel.agent.asks import Account
    from ctxkernel.kernel.messages.projection import Costs, Prices
    from ctxkernel.kernel.messages.wire import HandleText, SavedPage

AnswerTable = dict[str, Callable[[Mapping[str, Any]], Any]]


@dataclass(frozen=True, slots=True)
class SectionAnswers:
    """Answers about the state at the end of the last turn."""

    projection: Callable[[], Projection]
    """The newest projection. Raises BadCommand if there is none."""
    handles: Callable[[], Sequence[HandleState]]
    base_url: Callable[[], str | None]
    prices: Callable[[str], Prices]
    """Supposed changes, one a line → what each would cost."""
    page: Callable[[], SavedPage]
    """The session as an HTML page. Raises CtxError if it is in memory only."""
    log: Path | None
    account: Account
    mask: Mask

    def answers(self) -> AnswerTable:
        """Return what answers each kind of request."""
        return {
            "projection": lambda asked: projection_blocks(self.projection()),
            "request": lambda asked: request_body(self.projection(), self.base_url()),
            "image": lambda asked: image_of_digest(self.projection(), asked.get("of")),
            "cost": lambda asked: self._costs(),
            "handle": lambda asked: self._handle_text(asked.get("of")),
            "export": lambda asked: self.page(),
            "whatif": lambda asked: self.prices(str(asked.get("changes") or "")),
        }

    def _costs(self) -> Costs:
        from ctxkernel.agent.books import costs_json

        return cast("Costs", costs_json(self.log, tuple(self.account.booked)))

    def _handle_text(self, obj_id: object) -> HandleText:
        for one in self.handles():
            if one.obj_id == obj_id:
                text = self.mask(one.text)
                return {"blocks": state_blocks(one, text[:TEXT_CHARS]), "more": max(0, len(text) - TEXT_CHARS)}
        raise BadCommand(f"there is no handle {obj_id!r} here now")
