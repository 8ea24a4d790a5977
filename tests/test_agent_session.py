"""Engine, client and server together: a session of many asks, of which the API would refuse no request."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from asking import client

from ctxkernel.agent.client import ModelClient
from ctxkernel.agent.reply import read_reply, reply_events
from ctxkernel.core.ports import VariableLine
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn_values import DeltaItem, Turn
from ctxkernel.history.events import HistoryEvent, Observation, Redaction, UserQuestion
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.testing import MessagesServer, Received, call, say, think

ASKS, ROUNDS = 10, 4


class Session:
    """A scripted model that is asked through the real client; what comes is recorded as an ask records it."""

    def __init__(self, settings: Settings) -> None:
        self.engine = ProjectionEngine(settings, count_tokens)
        self.script: list[Any] = []
        self.server = MessagesServer(lambda request: self.script.pop())
        self.path: list[tuple[Statement, Execution]] = []
        self.records: dict[str, list[HistoryEvent]] = {}
        self.made: list[str] = []
        """Kinds of what the engine had recorded by itself."""

    async def run(self) -> list[Received]:
        with self.server:
            model = client(self.server, max_retries=0)
            for ask in range(ASKS):
                self.open(ask)
                for step in range(ROUNDS):
                    number = ask * ROUNDS + step
                    last = step == ROUNDS - 1
                    said = (
                        say(f"answer {number}")
                        if last
                        else call("run_cell", {"code": f"x = {number}"}, id=f"c{number}")
                    )
                    self.script.append([think(f"thought {number}. " * 20), said])
                    await self.round(model, number)
            await model.aclose()
        return self.server.requests

    def open(self, ask: int) -> None:
        """Begin the statement of an ask, and end the one before."""
        if self.path:
            statement, execution = self.path[-1]
            self.path[-1] = statement, replace(execution, ended_at=1.0, status="ok")
        sid = f"s{ask + 1}"
        before = self.path[-1][1].execution_id if self.path else None
        self.path.append(
            (Statement(sid, ask + 1, 0.0, "%%ask"), Execution(f"{sid}.1", sid, before, 0.0, None, "running"))
        )
        self.record(UserQuestion(f"q{ask}", f"why, {ask}?"))
        if ask % 3 == 2:
            self.record(Redaction(f"d{ask}", f"o{(ask - 2) * ROUNDS + 1}", "it went stale", "human"))

    def record(self, *events: HistoryEvent) -> None:
        self.records.setdefault(self.path[-1][1].execution_id, []).extend(events)

    def turn(self, number: int) -> Turn:
        sid = self.path[-1][0].statement_id
        variables = tuple(VariableLine(f"x{n}", "float", f"{number}.{n}", {}, sid) for n in range(9))
        deltas = (DeltaItem(sid, "variable", "x1", f"now {number}"),)
        return Turn(self.path, (), variables, 9, deltas, self.records, False)

    async def round(self, model: ModelClient, number: int) -> None:
        for event in self.engine.tend(self.turn(number)):
            if not isinstance(event, str):
                self.made.append(type(event).__name__)
                self.record(event)
        projection = self.engine.project(self.turn(number))
        response = await model.send(
            projection.request_bytes, model=projection.model, betas=projection.betas, on_event=lambda event: None
        )
        assert self.server.requests[-1].raw == projection.request_bytes
        self.record(*reply_events(read_reply(response.blocks, "tools"), projection, f"r{number}", "msg", 1))
        for block in response.blocks:
            if block["type"] == "tool_use":
                self.record(Observation(f"o{number}", block["id"], f"row {number}: 0.173 0.2\n" * 150))


@pytest.mark.parametrize("budget", [200_000, 24_000, 9_000])
@pytest.mark.parametrize("model", ["claude-sonnet-5-5", "claude-opus-5"])
def test_a_strict_server_refuses_no_request_of_a_session(model: str, budget: int):
    """Thoughts come back after what was before them, through redactions, masks and condensations."""
    session = Session(Settings(model=model, projection_tokens=budget))

    requests = asyncio.run(session.run())

    assert [request.status for request in requests] == [200] * ASKS * ROUNDS
    assert session.server.faults == []
    assert sum(b'"thinking"' in request.raw for request in requests) > len(requests) / 3
    assert "Condensation" in session.made or budget > 9_000


def test_most_of_a_session_is_read_from_the_cache():
    """The server finds what the layout promises: what was sent before is the beginning of what is sent."""
    session = Session(Settings(model="claude-sonnet-5-5", projection_tokens=200_000))

    requests = asyncio.run(session.run())

    names = ("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens")
    read, written, fresh = (sum(request.usage[name] for request in requests) for name in names)
    assert read / (read + written + fresh) > 0.85
