"""The parts of one kernel that asks and commands use."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.loop import Loop
from ctxkernel.core.settings import Settings
from ctxkernel.kernel.configuration import Configuration
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.kernel.display.panel import Panel
from ctxkernel.kernel.execution.guard import Guard
from ctxkernel.kernel.execution.interrupts import Interrupts
from ctxkernel.kernel.turn.turns import Turns
from ctxkernel.projection.masker import Masker
from ctxkernel.projection.rendered_history import Past
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:
    from ctxkernel.agent.asks import Account, Spent
    from ctxkernel.agent.failures import ModelFailure
    from ctxkernel.agent.streaming import Response


@dataclass(frozen=True, slots=True)
class KernelServices:
    """The parts of one kernel that asks and commands use."""

    kernel: Any
    loop: Loop
    store: SessionStore
    configuration: Configuration
    turns: Turns
    interrupts: Interrupts
    guard: Guard
    notices: Notices
    panel: Panel
    account: Account
    masker: Masker
    keep_mark: Callable[[str, str, str | None], None]
    """(subject, mark, value): store what the user said about an object of the session."""

    @property
    def shell(self) -> Any:
        """The kernel's IPython shell."""
        return self.kernel.shell

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self.configuration.settings

    @property
    def past(self) -> Past:
        """The rendered history of the model."""
        return self.configuration.engine.past

    def record(self, write: Callable[..., str | None], *arguments: object) -> None:
        """Write to the log by a method of the store, and show its notice."""
        self.notices.keep(self.guard("session store", write, None, *arguments))

    def store_response(
        self, row: int | None, status: str, outcome: Response | ModelFailure | None, spent: Spent, **body: Any
    ) -> str | None:
        """Store the outcome and the cost of a request in the log, with more fields of the body. Return a notice."""
        usd = spent.usd if spent.tokens else None
        more: dict[str, Any] = {"usd": usd, "request_id": (outcome.request_id if outcome else None) or ""}
        from ctxkernel.agent.streaming import Response

        if isinstance(outcome, Response):
            body |= {"id": outcome.llm_response_id, "model": outcome.model}
            more |= {"stop_reason": outcome.stop_reason, "usage": dict(outcome.usage)}
        else:
            body = {}
        more["body"] = {**body, "spent": spent.to_json()}
        store = self.store
        return self.guard("session store", lambda: store.response(row, status, time.time(), **more), None)
