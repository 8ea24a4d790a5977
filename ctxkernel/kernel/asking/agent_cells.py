"""Cells of other agents: programs of the user's that send cells over MCP (`ctxkernel mcp`).

Rule 1: the decision is made here, not in the agent's program: in mode `ask` a cell waits for the user, in mode `auto`
        it runs at once, and after `ask_rounds` cells in a row it waits too.
Rule 2: a cell that uses what others changed since the agent last looked does not run; the agent is told.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.text import plural
from ctxkernel.core.timeline_table import gist
from ctxkernel.kernel.asking.answer_display import AnswerDisplay, proposal_bundle
from ctxkernel.kernel.asking.seen_state import SeenState
from ctxkernel.kernel.execution.authority import AUTHOR, refuse_model
from ctxkernel.kernel.execution.cell import CellRequest, ExecuteReply
from ctxkernel.kernel.services import KernelServices

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import plan_messages as messages

MOST_WAITING = 20
_NAMES = re.compile(r"%ctx checkpoint [\w.\-']+")
_UNSEEN_SECONDS = 600
"""An approval that was sent so long before the cell, by another clock, was sent before it was shown."""


@dataclass(slots=True)
class AgentCell:
    """A cell that waits."""

    name: str
    agent: str
    call: str
    """The id that the agent's program gave the cell: its mark in the log tells what became of it."""
    code: str
    sent: float | None
    """The time when it was sent, by the clock of the sender."""
    cell_id: str | None = None
    """The cell of the notebook whose text it replaces."""
    is_told: bool = False
    """Whether an approval that was sent before it was refused once."""


class AgentCells:
    """The cells of agents in one kernel."""

    def __init__(self, session: KernelServices, is_asking: Any) -> None:
        """`is_asking()` says whether a proposal of an ask waits, which is then shown instead."""
        self._session, self._is_asking = session, is_asking
        self._seen = SeenState(session.loop, session.shell, author="agent")
        self.waiting: list[AgentCell] = []
        self._count = 0
        self._approved: list[tuple[AgentCell, str]] = []
        """The run after the cell that approved it: its description, and the code."""

    # -- a cell arrives ----------------------------------------------------------------------

    def hold(self, cell: CellRequest, call: str, seen: str) -> ExecuteReply | None:
        """Return the reply to a cell that does not run now; None: it runs. `seen`: HEAD as the agent knows it."""
        session = self._session
        if session.settings.mode == "off":
            return self._refusal(call, "off", "no agent may run cells: the user has set %ctx mode off")
        if told := self._changed(cell.code, seen):
            return self._refusal(call, "stale", told)
        if is_harmless(cell.code) or (session.settings.mode == "auto" and not self._at_bound()):
            return None
        if len(self.waiting) >= MOST_WAITING:
            return self._refusal(call, "full", f"{MOST_WAITING} cells wait for the user already")
        self._count += 1
        sent = sending_time(session.kernel)
        one = AgentCell(f"a{self._count}", str(cell.tags["agent"]), call, cell.code, sent, cell.cell_id)
        self.waiting.append(one)
        self._mark(call, "waits", one.name)
        self.show()
        session.notices.due.append(f"{one.agent} proposes a cell: %ctx approve runs it, %ctx reject REASON refuses it")
        return _error("Waiting", f"{one.name} waits for the user's approval, in the notebook or the panel")

    def _changed(self, code: str, seen: str) -> str:
        """Return why a cell is not to run on what the agent saw; empty if it may."""
        if not seen:
            return ""
        loop = self._session.loop
        if all(execution.execution_id != seen for _, execution in loop.history):
            return f"HEAD is {loop.log.head or 'the start'} now: the state after {seen}, which you saw, was left"
        self._seen.look(seen)
        return self._session.guard("stale views", self._seen.changed, "", code)

    def _at_bound(self) -> bool:
        """Return whether agents have run as many cells in a row as they may."""
        most, row = self._session.settings.ask_rounds, 0
        for statement, _ in reversed(self._session.loop.history):
            if statement.author != "agent":
                break
            row += 1
        return bool(most) and row >= most

    def _refusal(self, call: str, state: str, why: str) -> ExecuteReply:
        self._mark(call, state, "", why)
        return _error("Refused", why)

    def _mark(self, call: str, state: str, name: str, reason: str = "", execution: str = "") -> None:
        """Keep in the log what became of a cell: the agent's program reads it there."""
        session = self._session
        value = {"state": state, "name": name, "reason": session.masker(reason), "execution": execution}
        session.record(session.store.mark, f"agent {call}", "cell", value, time.time())

    # -- what waits ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show the first cell that waits in the panel, unless a proposal of an ask is shown."""
        if not self._is_asking():
            card = self._card(self.waiting[0], "waits") if self.waiting else None
            self._session.guard("panel", self._session.panel.proposal, None, card)

    def _card(self, one: AgentCell, state: str, code: str | None = None, reason: str = "") -> messages.Proposal:
        return {
            "id": one.name,
            "kind": "cell",
            "ask": "",
            "code": one.code if code is None else code,
            "told": self._request(one, "wants" if state == "waits" else "wanted"),
            "more": max(0, len(self.waiting) - 1),
            "state": state,
            "reason": reason,
        }

    def _request(self, one: AgentCell, wants: str) -> str:
        """Return what an agent asks for with a cell."""
        if one.cell_id is None:
            return f"{one.agent} {wants} to run this cell."
        ran = next((made for made, _ in reversed(self._session.loop.history) if made.cell_id == one.cell_id), None)
        which = f"the cell {ran.statement_id} ({gist(ran.source)})" if ran else "a cell that has not run on this branch"
        return f"{one.agent} {wants} to replace {which} by this text, and run it."

    def approve(self, *, code: str | None = None, rest: bool = False) -> None:
        """Run the cell that waits after the running cell, or `code` instead; with `rest` all that wait.

        Raises BadCommand if the approval was sent before the cell was shown.
        """
        refuse_model("%ctx approve")
        first, sent = self.waiting[0], sending_time(self._session.kernel)
        early = first.sent is not None and sent is not None and 0 <= first.sent - sent < _UNSEEN_SECONDS
        if code is None and early and not first.is_told:
            first.is_told = True
            raise BadCommand("this approval was sent before the cell was shown: look at it, and run %ctx approve again")
        chosen = self.waiting if rest else [first]
        self._approved = [(one, one.code if code is None else code) for one in chosen]
        self.waiting = self.waiting[len(chosen) :]
        self._session.turns.then = self

    def reject(self, reason: str, *, rest: bool = False) -> str:
        """Refuse the cell that waits, or all; return what was refused."""
        refuse_model("%ctx reject")
        chosen = self.waiting if rest else self.waiting[:1]
        self.waiting = self.waiting[len(chosen) :]
        for one in chosen:
            self._mark(one.call, "rejected", one.name, reason)
        self.show()
        return f"not run: {plural(len(chosen), 'cells')} of {chosen[0].agent}"

    # -- running -------------------------------------------------------------------------------

    def no_exit(self) -> AbstractContextManager[None]:
        """Make `exit()` an error."""
        return no_exit(self._session)

    async def carry_out(self, execute: Any, outer: CellRequest, reply: ExecuteReply) -> ExecuteReply:
        """Run what was approved, each as a cell of its own. Return the reply of the cell that approved it."""
        approved, self._approved = self._approved, []
        session = self._session
        for one, code in approved:
            if reply.get("status") != "ok":
                self._mark(one.call, "rejected", one.name, "the approval failed")
                continue
            state = "approved" if code == one.code else "edited"
            AnswerDisplay(session.notices, scripts=False).show(proposal_bundle(self._card(one, state, code)))
            tags = {"agent": one.agent, "call": one.call}
            cell = CellRequest(code, outer.msg_id, recorded=True, author="agent", tags=tags, keeps_number=True)
            cell.cell_id = one.cell_id
            cell.kind = "meta" if cell.moves_head else "python"
            cell.silent = outer.silent
            before = session.turns.last
            with no_exit(session):
                done = await execute(cell)
                if (then := session.turns.take_then()) is not None:
                    await then.carry_out(execute, cell, done)
            last = session.turns.last
            execution = last.execution.execution_id if last is not None and last is not before else ""
            self._mark(one.call, state, one.name, str(done.get("evalue") or ""), execution)
        self.show()
        return reply


def is_harmless(code: str) -> bool:
    """Return whether a cell only names the state or adds a note: such a cell does not wait for the user."""
    if _NAMES.fullmatch(code):
        return True
    with suppress(SyntaxError, ValueError):
        body = ast.parse(code).body
        call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
        return (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "note"
            and not call.keywords
            and len(call.args) == 1
            and isinstance(call.args[0], ast.Constant)
            and isinstance(call.args[0].value, str)
        )
    return False


@contextmanager
def no_exit(session: KernelServices) -> Generator[None]:
    """Make `exit()` an error: a cell that no person wrote cannot end the kernel."""
    session.shell.ask_exit = _refuse_exit
    try:
        yield
    finally:
        del session.shell.ask_exit


def _refuse_exit() -> None:
    raise BadCommand(f"a cell of the {AUTHOR.get() or 'agent'} cannot end the kernel: only a person can")


def _error(name: str, text: str) -> ExecuteReply:
    return {"status": "error", "ename": name, "evalue": text, "traceback": [text]}


def sending_time(kernel: Any) -> float | None:
    """Return when the running request was sent, by the clock of its sender."""
    parent: dict[str, Any] = kernel.get_parent("shell") or {}
    header: dict[str, Any] = parent.get("header") or {}
    date = header.get("date")
    return date.timestamp() if isinstance(date, datetime) else None
