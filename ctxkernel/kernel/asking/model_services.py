"""The asks and the summaries of one kernel. Both are loaded when they are first needed: most kernels ask no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctxkernel.core.jobs import Preparation, Summarised
from ctxkernel.core.timeline import Execution
from ctxkernel.kernel.services import KernelServices

if TYPE_CHECKING:
    from ctxkernel.kernel.asking.agent_cells import AgentCells
    from ctxkernel.kernel.asking.ask_runner import AskRunner
    from ctxkernel.kernel.asking.model_connections import ModelConnections
    from ctxkernel.kernel.asking.summaries import Summaries


class Models:
    """The asks and the summaries of one kernel."""

    def __init__(self, session: KernelServices) -> None:
        self._session = session
        self._connections: ModelConnections | None = None
        self._asks: AskRunner | None = None
        self._summaries: Summaries | None = None
        self._agents: AgentCells | None = None

    @property
    def connections(self) -> ModelConnections:
        """Keys, servers and recorded turns."""
        if self._connections is None:
            from ctxkernel.kernel.asking.model_connections import ModelConnections

            self._connections = ModelConnections(self._session.loop, self._session.store)
        return self._connections

    @property
    def asks(self) -> AskRunner:
        """The asks."""
        if self._asks is None:
            from ctxkernel.kernel.asking.ask_runner import AskRunner

            self._asks = AskRunner(self._session, self.connections)
        return self._asks

    @property
    def summaries(self) -> Summaries:
        """The summaries by a model."""
        if self._summaries is None:
            from ctxkernel.kernel.asking.summaries import Summaries

            self._summaries = Summaries(self._session, self.connections)
        return self._summaries

    @property
    def agents(self) -> AgentCells:
        """The cells of other agents."""
        if self._agents is None:
            from ctxkernel.kernel.asking.agent_cells import AgentCells

            self._agents = AgentCells(self._session, lambda: self.parked)
            self.asks.unparked = self._agents.show
        return self._agents

    def view(self, target: str, lod: int, tokens: int, pos: str) -> dict[str, Any]:
        """Return a rendering for an agent, or why there is none."""
        from ctxkernel.kernel.asking.agent_views import render_for_agent

        return render_for_agent(self._session, target, lod, tokens, pos)

    @property
    def waiting_agents(self) -> AgentCells | None:
        """The cells of other agents, where one is shown that waits for the user."""
        return self._agents if self._agents is not None and self._agents.waiting and not self.parked else None

    @property
    def parked(self) -> bool:
        """Return whether an ask waits for the user."""
        return self._asks is not None and self._asks.parked

    @property
    def unanswered_summaries(self) -> int:
        """The number of summaries that a model writes in the background."""
        return self._summaries.unanswered if self._summaries is not None else 0

    @property
    def pending(self) -> tuple[str, ...]:
        """The calls of the newest turn whose results are still to come."""
        return self._asks.pending if self._asks is not None else ()

    def copied(self, code: str) -> Execution | None:
        """Return the execution of a model's cell of which a notebook cell is the copy, once for each copy."""
        return self._asks.copied(code) if self._asks is not None else None

    def forget_copies(self) -> None:
        """Run later copies of the model's cells again: the state has changed since these ran."""
        if self._asks is not None:
            self._asks.forget_copies()

    def want(self, shown: Sequence[Summarised]) -> tuple[Sequence[Preparation | None], Sequence[str]]:
        """Return the summaries to prepare for what is shown, and notices."""
        return self.summaries.want(shown) if shown or self._summaries is not None else ((), ())

    def collect(self) -> None:
        """Store the summaries that arrived, and their cost."""
        if self._summaries is not None:
            self._session.guard("summaries by a model", self._summaries.collect, None)
