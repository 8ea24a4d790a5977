"""The asks of a kernel: begin one, continue it after a cell, decide on a cell that waits.

    %%ask → a statement that asks → (the cell ends) → request, response, its cells, … → answered, or parked

Rule 1: no nested statements: the ask has ended before its first request is sent; each response is a statement of the
        model, and so is each of its cells. All of them are displayed with the ask.
Rule 2: a proposal parks: the ask ends, the kernel is free, and `%ctx approve`, `edit` or `reject` continue from there.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, cast

from ctxkernel.agent.ask_turn import AskTurn, Model
from ctxkernel.agent.asks import Ask, AskEnding, AskMode, AskState, Bounds
from ctxkernel.agent.client import ModelClient
from ctxkernel.agent.failures import ModelFailure
from ctxkernel.agent.recorded import Recorded, RecordedAsk, ask_key, find_recorded, position_of
from ctxkernel.agent.streaming import Response, StreamEvent, UsageReport
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.timeline import Execution, run_name
from ctxkernel.core.turn_values import OpenTurn
from ctxkernel.history.events import Action, Ruling, UserQuestion, Verdict
from ctxkernel.kernel.asking.answer_display import AnswerDisplay
from ctxkernel.kernel.asking.ask_session import AskSession, Execute
from ctxkernel.kernel.asking.model_connections import ModelConnections
from ctxkernel.kernel.asking.seen_state import SeenState
from ctxkernel.kernel.execution.authority import refuse_model
from ctxkernel.kernel.execution.cell import CellRequest
from ctxkernel.kernel.services import KernelServices
from ctxkernel.projection.value import Projection

_WAITS = "the ask waits for you: %ctx approve, %ctx edit or %ctx reject REASON"
_UNATTENDED = (
    f"{_WAITS}. Where nobody can, as in a run without a front end: ask with --mode auto, set CTXKERNEL_MODE=auto, or "
    "give recorded turns (%ctx record)"
)


def _first_traceback(shell: Any) -> None:
    """Build a traceback: the first of a kernel takes 0.1 to 0.3 s, for which the stop button would have to wait."""
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with suppress(Exception):  # then the first traceback takes longer
            type(shell.InteractiveTB)(mode="Context").structured_traceback(*sys.exc_info())


class LiveModel:
    """The model itself."""

    live = True
    trusted = True

    def __init__(self, client: ModelClient, too_small: Callable[[], str]) -> None:
        """`too_small` returns why the budget is too small for a request; empty if it is not."""
        self._client, self._too_small = client, too_small

    async def send(self, request: Projection, on_event: Callable[[StreamEvent | UsageReport], None]) -> Response:
        """Send the projection's bytes. Raises ModelFailure."""
        if told := self._too_small():
            raise ModelFailure("small_budget", told)
        return await self._client.send(
            request.request_bytes, model=request.model, betas=request.betas, on_event=on_event, on_usage=on_event
        )

    def verdict(self, action: Action, place: int) -> Verdict | None:
        """Return None: nothing is decided in advance."""
        return None


class AskRunner:
    """The asks of one kernel."""

    def __init__(self, session: KernelServices, connections: ModelConnections) -> None:
        self._session, self._connections = session, connections
        self._seen = SeenState(session.loop, session.shell)
        self._bench: AskSession | None = None
        """The bench of the newest turn."""
        self.parked = False
        """Whether the newest turn waits for the user."""
        self.unparked: Callable[[], None] = lambda: None
        """Shows what else waits, when the turn does not wait any more."""
        self._client: ModelClient | None = None
        self._client_settings: tuple[Any, ...] = ()

    @property
    def _turn(self) -> AskTurn | None:
        return self._bench.turn if self._bench is not None else None

    # -- beginning ---------------------------------------------------------------------------

    def ask(self, question: str, *, bounds: Bounds, mode: str, again: bool) -> None:
        """Begin an ask in the open statement. Raises BadCommand."""
        session, running = self._session, self._session.turns.running
        if running is None:
            raise BadCommand("%%ask needs a recorded cell: run it as a cell of the notebook")
        refuse_model("%%ask")
        if not running.statement.source.lstrip().startswith(("%%ask", "%ask")):
            raise BadCommand("%%ask needs a cell of its own: nothing may precede it")
        settings, loop = session.settings, session.loop
        if settings.mode == "off":
            raise BadCommand("the model is off (%ctx mode off); %ctx mode ask lets it propose cells, auto runs them")
        key = ask_key(position_of(running.statement, loop.history, loop.log.records), question)
        found = None if again and settings.answers != "recorded" else self._recorded(key, question, running)
        warning = _warning(found) if found is not None and not found.trusted else ""
        if warning and not session.panel.attended:
            raise BadCommand(
                f"{warning}. Without a front end nobody can approve its cells, so it is not replayed; "
                "`ctxkernel run --trust` and `pytest --ctx-trust` trust them in one run"
            )
        model: Model = Recorded(found) if found is not None else self._live_model()
        turn = self._turn
        if turn is not None and (self.parked or turn.waiting):
            self._end_waiting(turn, "the person asked something else", "you asked something else")
        self._unpark()
        loop.record(UserQuestion(loop.next_event_id, question))
        chosen = cast("AskMode", mode or settings.mode)
        ask = Ask(running.execution.execution_id, question, key, settings.model, chosen, bounds)
        screen = AnswerDisplay(session.notices, scripts=session.configuration.engine.dialect == "script")
        self._bench = AskSession(session, self._seen, screen, ask, model, warning)
        self._continue()

    def _recorded(self, key: str, question: str, running: OpenTurn) -> RecordedAsk | None:
        """Return the recorded turn that answers an ask. Raises BadCommand if a required one is missing."""
        asks = self._session.guard("recorded turns", self._connections.of_session, [])
        found = find_recorded(asks, key, question, running.statement.cell_id)
        required = self._session.settings.answers == "recorded"
        if (found is None or not found.trusted) and (required or not self._connections.reachable):
            beside = find_recorded(self._connections.asks(), key, question)
            found = beside if found is None or (beside is not None and beside.trusted) else found
        if found is None and required:
            position = int(key.partition(":")[0]) + 1
            raise BadCommand(
                f"no recorded turn answers ask {position} ({question.strip()[:60]!r}), and `answers` is recorded; "
                "%ctx config answers auto asks the model"
            )
        return found

    def _live_model(self) -> LiveModel:
        if not self._connections.reachable:
            raise BadCommand(
                "no model can be asked: set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL for a server of your own that "
                "speaks the Messages API, and restart the kernel (or set it with %env)"
            )
        too_small = self._session.configuration.too_small
        if told := too_small():
            raise BadCommand(f"{told}; nothing was sent. %ctx config projection_tokens N gives more")
        base_url, timeout = given = self._connections.base_url(), self._session.settings.stall_seconds
        if self._client is None:
            shell, name = self._session.shell, "ctxkernel traceback"  # by its name it is no thread of the user's
            Thread(target=_first_traceback, args=(shell,), name=name, daemon=True).start()
        if self._client is None or given != self._client_settings:
            self._client = ModelClient(model_key=self._connections.key, base_url=base_url, timeout=timeout)
            self._client_settings = given
        return LiveModel(self._client, too_small)

    # -- continuing --------------------------------------------------------------------------

    def _continue(self) -> None:
        """Continue with the turn when the running cell has ended."""
        if self._bench is not None:
            self._bench.note_request()
        self._session.turns.then = self

    async def carry_out(self, execute: Execute, outer: CellRequest, reply: dict[str, Any]) -> dict[str, Any]:
        """Continue with the turn after the cell that asked, or decided. Return that cell's reply."""
        bench = self._bench
        if bench is None or reply.get("status") != "ok":
            return reply
        self._unpark()
        with bench.working(execute, outer):
            self._show_state(bench, AskState("asking"))
            self._show_asking(bench.turn)
            try:
                ending = await bench.turn.go()
            except Exception as fault:  # internal: the cell's reply must be sent, and the history is complete
                self._session.guard.fail("asks", fault)
                ending = AskEnding("failed", f"the ask could not continue ({type(fault).__name__}: {fault})")
            return self._ended(bench, ending, reply)

    def _ended(self, bench: AskSession, ending: AskEnding, reply: dict[str, Any]) -> dict[str, Any]:
        notices, panel = self._session.notices, self._session.panel
        text = ending.text if ending.kind in ("failed", "bound") else ""
        self._show_state(bench, AskState(ending.kind, bench.turn.seconds, bench.turn.spent.requests, text))
        self._show_asking(None)
        if ending.kind == "parked":
            bench.screen.close()
            self.parked = True
            self._session.guard("panel", panel.proposal, None, bench.proposal)
            if panel.attended:
                return {**reply, "status": "error", "ename": "Waiting", "evalue": _WAITS, "traceback": [_WAITS]}
            # Displayed too: papermill searches for an error among the outputs.
            return notices.refuse(_UNATTENDED, "Waiting")
        if ending.kind == "answered" and bench.turn.live:
            name = bench.turn.ask.execution_id
            if told := self._session.guard("recorded turns", self._connections.sign, None, name, bench.responses):
                notices.tell(f"ctxkernel: {told}")
        bench.screen.show({"text/plain": _ending_text(bench, ending)})
        if ending.kind == "failed":
            return notices.refuse(ending.text, "ModelFailure")
        if ending.kind == "stopped":
            told = {"ename": "KeyboardInterrupt", "evalue": ending.text, "traceback": [ending.text]}
            return {**reply, "status": "error", **told}
        return reply

    def _show_asking(self, turn: AskTurn | None) -> None:
        """Show in the panel that a model works on an ask."""
        live = turn is not None and turn.live
        now = {"ask": turn.ask.execution_id, "model": turn.ask.model, "since": time.time()} if turn and live else None
        self._session.guard("panel", self._session.panel.asking, None, cast("Any", now))

    def _show_state(self, bench: AskSession, state: AskState) -> None:
        """Keep how an ask ended, or that it waits, for its row in the timeline."""
        session, ask = self._session, bench.turn.ask.execution_id
        session.account.endings[ask] = state
        session.record(session.store.mark, ask, "ask", state.to_json(), time.time())

    # -- deciding ----------------------------------------------------------------------------

    @property
    def pending(self) -> tuple[str, ...]:
        """The calls of the newest turn that wait, or run: their results are still to come."""
        turn = self._turn
        if turn is None or not turn.waiting or not self._on_path(turn):
            return ()
        return tuple(one.tool_call_id for one in turn.waiting)

    def _on_path(self, turn: AskTurn) -> bool:
        """Return whether the newest response of a turn, or its question, is on the path to HEAD."""
        return any(execution.execution_id == _place(turn) for _, execution in self._session.loop.history)

    @property
    def waiting(self) -> AskTurn | None:
        """The turn that waits for the user; None if the newest turn was replayed. Raises BadCommand if none waits.

        A notebook with decisions can therefore run again from its start.
        """
        turn = self._turn
        if turn is not None and not turn.live and not self.parked:
            return None
        if turn is None or not self.parked:
            raise BadCommand("nothing waits for you: %%ask asks the model, and in mode ask its cells wait here")
        if not self._on_path(turn):
            name = run_name(_place(turn))
            raise BadCommand(f"the proposal belongs to another place in the timeline: %ctx goto {name} returns there")
        return turn

    def approve(self, turn: AskTurn, *, code: str | None = None, rest: bool = False) -> None:
        """Run the cell that waits after the running cell, as it is or as `code`; with `rest` all later cells too.

        Raises BadCommand if nobody can have seen what it approves, or if a stranger recorded the later cells, each of
        which needs its own approval.
        """
        refuse_model("%ctx approve")
        if code is None and self._bench is not None and self._bench.is_unseen():
            raise BadCommand(
                "this approval was sent before the cell was shown, as with Run All: look at what waits, and run "
                "%ctx approve again"
            )
        if rest and not turn.trusted:
            raise BadCommand(
                "these recorded turns are not yours, and you have not trusted them, so each cell needs your approval: "
                "%ctx approve runs this one; %ctx trust trusts all, then ask again"
            )
        ruling: Ruling = "approved" if code is None else "edited"
        loop = self._session.loop
        if turn.waiting:
            loop.record(Verdict(loop.next_event_id, turn.waiting[0].tool_call_id, ruling, code or ""))
        else:
            self._session.account.consented = True
        self._show_decision(ruling, code=code)
        turn.approve(code=code, rest=rest)
        self._continue()

    def reject(self, turn: AskTurn, reason: str) -> None:
        """Refuse the cell that waits; the model is told the reason and continues."""
        self._refuse(turn, reason)
        self._show_decision("rejected", reason)
        self._continue()

    def stop(self, turn: AskTurn) -> None:
        """End the ask that waits."""
        self._end_waiting(turn, "the person ended the work here", "")
        self._unpark()

    def _end_waiting(self, turn: AskTurn, reason: str, shown: str) -> None:
        if self._on_path(turn):  # the history of another branch gets no events from here
            self._refuse(turn, reason, rest=True)
        self._show_decision("stopped", shown)
        if self._bench is not None:
            self._show_state(self._bench, AskState("stopped", turn.seconds, turn.spent.requests))

    def _refuse(self, turn: AskTurn, reason: str, *, rest: bool = False) -> None:
        loop = self._session.loop
        for event in turn.reject(reason, loop.next_event_id, rest=rest):
            loop.record(event)

    def _show_decision(self, state: str, reason: str = "", code: str | None = None) -> None:
        if self._bench is not None:
            self._bench.show_decision(state, reason, code)

    def _unpark(self) -> None:
        if self.parked or (self._bench is not None and self._bench.proposal is not None):
            self.parked = False
            if self._bench is not None:
                self._bench.proposal = None
            self._session.guard("panel", self._session.panel.proposal, None, None)
            self.unparked()

    # -- copies of the model's cells in the notebook -----------------------------------------

    def copied(self, code: str) -> Execution | None:
        """Return the execution of which a notebook cell is the copy, once for each copy."""
        log, ran = self._session.loop.log, self._bench.ran if self._bench is not None else []
        found = next((one for one in ran if log.statement(one.statement_id).source == code), None)
        if found is not None:
            ran.remove(found)
        return found

    def forget_copies(self) -> None:
        """Run later copies again."""
        if self._bench is not None:
            self._bench.ran.clear()


def _place(turn: AskTurn) -> str:
    """Return the execution that a proposal belongs to: the newest response of its turn, or else the ask."""
    return turn.execution_id or turn.ask.execution_id


def _warning(ask: RecordedAsk) -> str:
    """Return a text about recorded turns that are not the user's own."""
    return (
        f"The recorded turns in {ask.source} answer this ask, and you neither recorded nor trust them; "
        f"`ctxkernel trust {shlex.quote(ask.source)}` shows and trusts them"
    )


def _ending_text(bench: AskSession, ending: AskEnding) -> str:
    turn = bench.turn
    parts = [ending.text] if ending.text and ending.kind != "failed" else []
    if turn.live:
        model = bench.sent.model if bench.sent is not None else turn.ask.model
        return "\n".join([*parts, f"{model}: {turn.spent.text()}"])
    whose = "" if turn.trusted else " that you neither recorded nor trust"
    text = f"replayed from a recorded turn{whose}: nothing was sent, and it cost nothing"
    if turn.drift:
        requests = ", ".join(map(str, turn.drift))
        text += f". The state has changed since (drift in request {requests}), so the answer may no longer fit"
    return "\n".join([*parts, f"{text}. %%ask --again asks the model"])
