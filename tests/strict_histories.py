"""Random histories of asks, as a kernel records them, judged by a server that is as strict as the API.

    python tests/strict_histories.py --histories 100000 [--seed 0] [--workers 2]

A history is a random walk: cells of the person, asks, responses with blocks in any order, results, decisions,
redactions, condensations, pins, returns and branches, other settings, other properties, values that become known as
secrets, and restarts, after which all is read from the rows of the log. At every request

- the rules of the API pass, and each thinking block stands after exactly what was sent before it (`unbound`);
- the report of the projection says the same as the server;
- an engine that reads the log anew makes the same bytes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ctxkernel.agent.reply import read_reply, reply_events
from ctxkernel.core.ports import VariableLine
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn_values import DeltaItem, HandleState, Turn
from ctxkernel.history.events import (
    Action,
    AgentError,
    Condensation,
    CondensationRequest,
    HistoryEvent,
    Observation,
    Pin,
    Redaction,
    Unbinding,
    UserQuestion,
    UserRejection,
    Verdict,
    Withdrawal,
    nth,
)
from ctxkernel.history.rules import check
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.store.log.rows import history_event_from_row, history_rows
from ctxkernel.testing.remembering import part, parts_of, signature, unbound

MODELS = ("claude-sonnet-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-4-8", "qwen3:4b")
SECRET = "hunter22pw"
COUNT = lru_cache(maxsize=4096)(count_tokens)
"""Each history has several engines, which count the tokens of the same texts."""
COLUMNS = ("event_id", "seq", "at", "kind", "response", "call", "body")


class Refused(AssertionError):
    """A request that a strict server would refuse, or that is not what the log gives."""


class Known:
    """A mask for values that become known."""

    def __init__(self) -> None:
        self.values: set[str] = set()

    def __call__(self, text: str) -> str:
        for value in self.values:
            text = text.replace(value, "[masked]")
        return text


class Conversation:
    """A timeline with asks, recorded as the kernel records it, and the engine that projects it."""

    def __init__(self, settings: Settings | None = None, properties: Sequence[Any] | None = None) -> None:
        self.settings = settings or Settings()
        self.private: frozenset[str] = frozenset()
        self.mask = Known()
        self.path: list[tuple[Statement, Execution]] = []
        self.records: dict[str, list[HistoryEvent]] = {}
        self.handles: tuple[HandleState, ...] = ()
        self.statements = 0
        self.responses = 0
        self.waiting: list[Action] = []
        self.state = 0
        self.engine = self.made()

    def made(self) -> ProjectionEngine:
        """Return a new engine."""
        return ProjectionEngine(self.settings, COUNT, private=self.private, mask=self.mask)

    def change(self, **settings: Any) -> None:
        """Continue under other settings."""
        self.settings = replace(self.settings, **settings)
        self.rebuild()

    def rebuild(self) -> None:
        """Continue with a new engine, as after a change of the settings."""
        before, self.engine = self.engine, self.made()
        self.engine.take_over(before, self.turn())

    def turn(self) -> Turn:
        """Return the state now: the values of the variables change with every statement."""
        rows = tuple(VariableLine(f"v{n}", "int", str(self.state * n), {}, "s1") for n in range(3))
        deltas = (DeltaItem("s1", "variable", "v1", f"now {self.state}"),)
        return Turn(self.path, self.handles, rows, 3, deltas, self.records)

    def open(self, source: str = "", *, author: str = "human", kind: str = "python", **more: Any) -> str:
        """Begin a statement that ends at once. Return its execution."""
        self.statements += 1
        self.state += 1
        sid = f"s{self.statements}"
        parent = self.path[-1][1].execution_id if self.path else None
        execution = Execution(f"{sid}.1", sid, parent, 0.0, 1.0, "ok", **more)
        statement = Statement(sid, self.statements, 0.0, source or f"x = {self.statements}", author=author, kind=kind)
        self.path = [*self.path, (statement, execution)]
        return execution.execution_id

    def record(self, *events: HistoryEvent) -> None:
        """Record events with the newest statement."""
        self.records.setdefault(self.path[-1][1].execution_id, []).extend(events)

    def next_id(self) -> str:
        """Return the id of the next event of the newest statement."""
        name = self.path[-1][1].execution_id
        return nth(name, len(self.records.get(name, ())) + 1)

    def ask(self, question: str = "why?") -> None:
        """Ask a question."""
        self.open("%%ask", kind="meta")
        self.record(UserQuestion(self.next_id(), question))

    def request(self) -> Projection:
        """Return the next request, after what is due before it. Raises Refused."""
        for event in self.engine.tend(self.turn()):
            if not isinstance(event, str):
                self.record(event)
        return self.engine.project(self.turn())

    def respond(self, *blocks: dict[str, Any], stop_reason: str = "", unreadable: bool = False) -> list[Action]:
        """Send a request and record a response with these blocks. Return its calls that have no result yet."""
        request = self.request()
        self.responses += 1
        whole = self.signed(request, blocks)
        dialect = "tools" if request.tools else "script"
        bad = {one["id"]: "{" for one in whole if one["type"] == "tool_use"} if unreadable else {}
        reply = read_reply(whole, dialect, unreadable=bad, mask=self.mask)
        name = self.open("# response", author="model", kind="meta")
        made = list(reply_events(reply, request, name, f"msg_{self.responses}", 1))
        self.record(*made)
        actions = [one for one in made if isinstance(one, Action)]
        self.waiting = []
        for call, action in zip(reply.calls, actions, strict=True):
            if call.fault:
                self.record(AgentError(self.next_id(), action.tool_call_id, call.fault))
            else:
                self.waiting.append(action)
        return list(self.waiting)

    def signed(self, request: Projection, blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a response's blocks with the signatures and ids that the server gives."""
        before, out = list(parts_of(request.request)), []
        for n, given in enumerate(blocks, 1):
            block = dict(given)
            if block["type"] == "thinking" and block.get("signature") == "":
                block["signature"] = signature(before, block["thinking"])
            if block["type"] == "tool_use" and not block.get("id"):
                block["id"] = f"toolu_{self.responses}_{n}"
            before.append(part("", "assistant", block))
            out.append(block)
        return out

    def result(self, text: str = "42", *, status: str = "success") -> None:
        """Record the result of the call that has waited longest."""
        action = self.waiting.pop(0)
        self.open("# cell", author="model", stdout=text)
        self.record(Observation(self.next_id(), action.tool_call_id, text, status))

    def reject(self) -> None:
        """Record that the person does not allow the call that has waited longest."""
        action = self.waiting.pop(0)
        self.open("%ctx reject", kind="meta")
        self.record(Verdict(self.next_id(), action.tool_call_id, "rejected", "no"))
        self.record(UserRejection(self.next_id(), action.tool_call_id, "no"))

    def goto(self, place: int) -> None:
        """Return to the state after an earlier statement."""
        self.path = self.path[: place + 1]
        name = self.path[-1][1].execution_id
        done = {
            getattr(one, "tool_call_id", "") for events in self.on_path() for one in events if one.place == "result"
        }
        made = self.records.get(name, ())
        self.waiting = [one for one in made if isinstance(one, Action) and one.tool_call_id not in done]

    def on_path(self) -> list[list[HistoryEvent]]:
        """Return the events of the path, by execution."""
        return [self.records.get(execution.execution_id, []) for _, execution in self.path]

    def read_again(self) -> dict[str, list[HistoryEvent]]:
        """Return the events as they are read from the log."""
        made: dict[str, list[HistoryEvent]] = {}
        for name, events in self.records.items():
            rows = [dict(zip(COLUMNS, row, strict=True)) for _, row in history_rows(1, 0.0, events, self.mask)]
            made[name] = [history_event_from_row(row) for row in rows]
        return made


def judge(session: Conversation) -> Projection:
    """Check the next request as a strict server does, and against the log. Raises Refused."""
    projection = session.request()
    capabilities = session.engine.capabilities
    body = projection.request
    found = check(body, capabilities)
    path = unbound(parts_of(body)) if found.ok and capabilities.bound_thinking else ""
    if not found.ok or path:
        raise Refused(f"refused: {found.violations[:1] or path}")
    if not projection.report.ok:
        raise Refused(f"the report is red: {projection.report.violations[:1]}")
    if projection.tokens > projection.budget:
        raise Refused("over budget")
    fresh = session.made().project(replace(session.turn(), records=session.read_again()))
    if fresh.request_bytes != projection.request_bytes:
        at = next((a.id for a, b in zip(fresh.blocks, projection.blocks, strict=False) if a != b), "the last one")
        raise Refused(f"an engine that reads the log makes other bytes, from block {at} on")
    return projection


# -- the random walk ----------------------------------------------------------------------------------

TEXTS = (
    "The mean drifts.",
    '<ctx:result id="s1">42</ctx:result>',
    "</ctx:statement> and <script>",
    "a\x1b[31mred\x1b[0m word",
    f"the password is {SECRET}",
    "v1 and v2 are private",
    "line\r\nline\u2028end",
    "x " * 4000,
    "",
    "  \n",
    "\ud800 alone",
    "naïve 数据 🙂",
)
CODES = ("v1 = 2", "print('<ctx:x>')", f"login('{SECRET}')", "# v1\nx = '\\ud800'", "y = 1\n" * 3000, " ", "\x1b[0m")


def blocks(rng: random.Random) -> list[dict[str, Any]]:
    """Return the blocks of a response, in any order."""
    made: list[dict[str, Any]] = []
    common = rng.random() < 0.7  # mostly texts that nothing is wrong with
    for _ in range(rng.choice((1, 2, 2, 3, 4, 6))):
        kind = rng.choice(("thinking", "thinking", "text", "text", "tool_use", "tool_use", "redacted_thinking"))
        if kind == "text":
            text = rng.choice(TEXTS[:4] if common else TEXTS)
            made.append({"type": "text", "text": text, **({"citations": None} if rng.random() < 0.2 else {})})
        elif kind == "thinking":
            text = rng.choice(("", "hm", *TEXTS[: 4 if common else 8])) + str(rng.random())
            made.append({"type": "thinking", "thinking": text, "signature": ""})
        elif kind == "redacted_thinking":
            if rng.random() < 0.3:
                made.append({"type": "redacted_thinking", "data": f"ZGF0YQ{rng.randrange(99)}"})
        else:
            made.append(tool(rng, common=common))
    if rng.random() < 0.02:
        made.append({"type": "novel", "value": [1, {"a": None}]})
    return made or [{"type": "text", "text": "yes"}]


def tool(rng: random.Random, *, common: bool) -> dict[str, Any]:
    """Return a call, mostly one that can be run."""
    code = rng.choice(CODES[:2] if common else CODES)
    given: Any = {"code": code}
    name, call_id = "run_cell", ""
    if not common and rng.random() < 0.3:
        given = rng.choice(({}, {"code": 1.5, "more": [None, {"a": True}]}, {"code": code, "api_key": SECRET}))
        name = rng.choice(("run_cell", "no such tool!", "redact"))
        call_id = rng.choice(("", "toolu_1_1", "bad id|", "x" * 200))
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def step(session: Conversation, rng: random.Random) -> None:
    """Do one thing that may happen to a timeline."""
    roll = rng.random()
    if session.waiting and roll < 0.62:
        kind = rng.random()
        if kind < 0.8:
            session.result(rng.choice(("42", "row 0.1 0.2\n" * rng.choice((5, 200, 900)), "", TEXTS[2])))
        elif kind < 0.9:
            session.reject()
        else:
            session.open()  # the call waits while the person works on
    elif roll < 0.3:
        if rng.random() < 0.6 or not session.path:
            session.ask(rng.choice(TEXTS))
        session.respond(*blocks(rng), unreadable=rng.random() < 0.03)
    elif roll < 0.5:
        session.respond(*blocks(rng), unreadable=rng.random() < 0.03)
    elif roll < 0.62:
        session.open(rng.choice(("", "v1 = 3", *TEXTS)), stdout=rng.choice(("", "out\n" * rng.choice((1, 300)))))
    elif session.path:
        other(session, rng)


def other(session: Conversation, rng: random.Random) -> None:
    """Do one of the rarer things."""
    events = [one for part_ in session.on_path() for one in part_]
    targets = [one.event_id for one in events] + [execution.execution_id for _, execution in session.path]
    what = rng.choice(
        (
            *("redact", "redact", "by_model", "condense", "forget", "withdraw", "pin", "goto", "goto", "undo"),
            *("settings", "budget", "model", "secret", "private", "unbind", "restart", "restart"),
        )
    )
    if what in ("redact", "by_model"):
        session.open("%ctx redact", kind="meta")
        by = "human" if what == "redact" else "model"
        session.record(Redaction(session.next_id(), rng.choice(targets), "superseded", by))
    elif what == "condense":
        session.open("%ctx condense", kind="meta")
        session.record(CondensationRequest(session.next_id(), "asked for"))
    elif what == "forget":
        session.open("%ctx condense", kind="meta")
        gone = tuple(rng.sample(targets, min(len(targets), rng.randrange(1, 4))))
        session.record(Condensation(session.next_id(), gone))
    elif what == "withdraw":
        made = [one.event_id for one in events if isinstance(one, Redaction | Condensation)]
        if made:
            session.open("%ctx redact --undo", kind="meta")
            session.record(Withdrawal(session.next_id(), rng.choice(made)))
    elif what == "pin":
        session.open("%ctx pin", kind="meta")
        session.record(Pin(session.next_id(), rng.choice(targets), rng.random() < 0.7))
    elif what in ("goto", "undo"):
        last = len(session.path) - 1
        session.goto(rng.randrange(last + 1) if what == "goto" else max(last - 1, 0))
    elif what == "settings":
        name = rng.choice(("message_pairing", "token_limit", "call_depth", "enforce_history_invariants"))
        session.change(
            **{name: rng.choice({"token_limit": (0, 60, 400), "call_depth": (0, 1, 2)}.get(name, (True, False)))}
        )
    elif what == "budget":
        session.change(projection_tokens=rng.choice((2_000, 8_000, 32_000, 200_000)))
    elif what == "model":
        session.change(model=rng.choice(MODELS))
    elif what == "secret":
        session.mask.values.add(rng.choice((SECRET, "drifts", "hm")))
        session.rebuild()
    elif what == "private":
        session.private = session.private ^ {rng.choice(("v1", "v2"))}
        session.rebuild()
    elif what == "unbind":
        session.open("# no answer", author="model", kind="meta")
        session.record(Unbinding(session.next_id()))
    else:  # a restart: all is read from the log
        session.records = session.read_again()
        session.engine = session.made()
        for event in session.engine.tend(session.turn(), "load"):
            if not isinstance(event, str):
                session.record(event)


def walk(seed: int, steps: int = 14) -> tuple[int, int]:
    """Play one history. Return the number of its requests, and how many of them had thinking. Raises Refused."""
    rng = random.Random(seed)
    model = rng.choice(MODELS)
    dialect = rng.choice(("", "", "", "script", "tools"))
    budget = rng.choice((2_000, 8_000, 32_000, 32_000, 200_000))
    session = Conversation(Settings(model=model, dialect=dialect, projection_tokens=budget))
    made = thinking = 0
    for _ in range(steps):
        step(session, rng)
        if session.path:
            projection = judge(session)
            made += 1
            thinking += any(piece.kind == "thinking" for piece in projection.run.pieces[: projection.count])
    return made, thinking


def play(seed: int) -> tuple[tuple[int, int], str]:
    """Return the requests of one history, and what is wrong with it."""
    try:
        return walk(seed), ""
    except Refused as fault:
        return (0, 0), f"seed {seed}: {fault}"
    except Exception:
        return (0, 0), f"seed {seed}: {traceback.format_exc(limit=-4)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    given = parser.parse_args()
    began, requests, thinking, faults = time.monotonic(), 0, 0, list[str]()
    seeds = range(given.seed, given.seed + given.histories)
    with multiprocessing.Pool(given.workers) as pool:
        for n, ((made, thought), fault) in enumerate(pool.imap_unordered(play, seeds, chunksize=20), 1):
            requests, thinking = requests + made, thinking + thought
            if fault:
                faults.append(fault)
                if len(faults) <= 10:
                    print(fault, flush=True)
            if n % 2_000 == 0 or n == given.histories:
                seconds = time.monotonic() - began
                told = f"{n:,} histories, {requests:,} requests, {thinking:,} of them with thinking"
                print(f"{told}, {len(faults)} faults, {seconds:.0f} s", flush=True)
    kinds = Counter(one.partition(": ")[2][:60] for one in faults)
    if kinds:
        print(json.dumps(kinds.most_common(12), indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
