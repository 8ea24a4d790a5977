"""What redaction saves over a session: 60 calls of a model through the real engine, and the provider's cache simulated.

    python benchmarks/session.py

Nothing is sent and no clock is read; the same numbers come out at every run. A scripted model asks, calls tools, and
marks outputs that went stale with the real `redact` tool. All else is the product's own: what happens is recorded in a
turn, `ProjectionEngine.tend` says what is to be recorded before a request, `ProjectionEngine.project` makes it. The
blocks and breakpoints are those of the request's bytes, the tokens those that the engine counted.

The cache, as the provider documents it: it holds prefixes that ended at a breakpoint; from each breakpoint (at most 4)
it looks back over 20 blocks for the longest that it holds; a prefix below the model's minimum is not held; what is used
lives on for its 5 minutes or its hour. Output tokens cost the same in every row and are not counted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from statistics import mean
from typing import NamedTuple

from ctxkernel.core.ports import VariableLine
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn_values import DeltaItem, Turn
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.events import (
    Action,
    AssistantMessage,
    Condensation,
    Context,
    HistoryEvent,
    Observation,
    RedactionBatch,
    UserQuestion,
)
from ctxkernel.history.redact import content
from ctxkernel.history.redact_tool import answer
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.prices import price_of
from ctxkernel.projection.tokens import count_tokens

# -- parameters: name, value, reason; all of them are printed ------------------------------------------

MODELS = ("claude-sonnet-5-5", "claude-opus-5")
ROUNDS = 60
ROUNDS_PER_ASK = 4
OUTPUT_TOKENS = (300, 600, 1200, 2400, 5000)
STALE_SHARE = 0.7
STALE_AFTER = 2
STATE_ROWS = 24
CHANGES = 3
QUESTION_TOKENS = 60
THINKING_TOKENS = 150
CALL_TOKENS = 120
ANSWER_TOKENS = 200
ROUND_SECONDS = 25
PAUSE_SECONDS = 120
LONG_PAUSE_SECONDS = 1200
LONG_PAUSE_EVERY = 5
SETTINGS = {"projection_tokens": 200_000, "statement_tokens": 6000}
SESSIONS = 8

REASONS = {
    "MODELS": "the first reads at 0.05, binds thinking to what stands before it, and caches no short prefix",
    "ROUNDS": "calls of the model, as the aim names them",
    "ROUNDS_PER_ASK": "three tool calls and the answer: an edit can take effect at every fourth call only",
    "OUTPUT_TOKENS": "a printed number, a traceback, a table, a plot's data, a file; drawn evenly",
    "STALE_SHARE": "of the output tokens, as the aim names it",
    "STALE_AFTER": "calls after which an output is stale; the model says so in its next response that calls a tool",
    "STATE_ROWS": "variables, each with another value at every call: some 500 tokens of state",
    "CHANGES": "of which the delta feed tells, at every call",
    "QUESTION_TOKENS": "two sentences",
    "THINKING_TOKENS": "of each response",
    "CALL_TOKENS": "a cell of ten lines",
    "ANSWER_TOKENS": "a paragraph",
    "ROUND_SECONDS": "between two calls of one ask",
    "PAUSE_SECONDS": "between two asks: shorter than the cache's five minutes",
    "LONG_PAUSE_SECONDS": "in the third table: longer than five minutes",
    "LONG_PAUSE_EVERY": "asks; in the third table",
    "SETTINGS": "so that the longest output stands whole and nothing reaches a limit; the defaults are run too",
    "SESSIONS": "other sizes and other stale outputs in each; rows are means",
}

LOOKBACK = 20
FIVE_MINUTES, HOUR = 300.0, 3600.0
WRITE = {FIVE_MINUTES: 1.25, HOUR: 2.0}

count = cache(count_tokens)

# -- the provider's cache --------------------------------------------------------------------------------


class Block(NamedTuple):
    """One block of a request; `ttl` in seconds makes it a breakpoint, 0 does not."""

    text: str
    tokens: int
    ttl: float = 0


class Usage(NamedTuple):
    """The input tokens of one request, by what they cost."""

    read: int
    written: dict[float, int]
    plain: int

    @property
    def context(self) -> int:
        return self.read + sum(self.written.values()) + self.plain

    def cost(self, read: float) -> float:
        return self.read * read + sum(WRITE[ttl] * tokens for ttl, tokens in self.written.items()) + self.plain


class Cache:
    """Prefixes that ended at a breakpoint, and until when they live.

    Reading a prefix keeps it alive, and `shared` those of it that are shorter: it is the same content. Otherwise each
    lives for itself.
    """

    def __init__(self, minimum: int, *, shared: bool = True) -> None:
        self.minimum = minimum
        self.shared = shared
        self.held: dict[bytes, tuple[float, float]] = {}

    def send(self, blocks: Sequence[Block], now: float) -> Usage:
        keys, ends = [], []
        hashed, total = blake2b(digest_size=16), 0
        for block in blocks:
            hashed.update(block.text.encode() + b"\0")
            total += block.tokens
            keys.append(hashed.digest())
            ends.append(total)
        marks = [at for at, block in enumerate(blocks) if block.ttl]
        assert len(marks) <= 4
        held = {at for at, key in enumerate(keys) if self.held.get(key, (0.0, 0.0))[0] > now}
        found = {at for mark in marks for at in range(mark, max(mark - LOOKBACK, -1), -1) if at in held}
        hit = max(found, default=-1)
        for at in held if self.shared else {hit} & held:
            if at <= hit:
                ttl = self.held[keys[at]][1]
                self.held[keys[at]] = (now + ttl, ttl)
        read = done = ends[hit] if hit >= 0 else 0
        written: dict[float, int] = {}
        for mark in marks:
            if mark > hit and ends[mark] >= self.minimum:
                ttl = blocks[mark].ttl
                written[ttl] = written.get(ttl, 0) + ends[mark] - done
                self.held[keys[mark]] = (now + ttl, ttl)
                done = ends[mark]
        return Usage(read, written, total - done)


# -- from a projection to blocks --------------------------------------------------------------------------


def blocks_of(projection: Projection, state_first: bool) -> list[Block]:
    """Return the blocks of the bytes that would be sent, each with its breakpoint and its tokens.

    With `state_first`, the tail stands behind the system text: nothing after it is ever read again, so nothing is
    written.
    """
    body = projection.request
    tail = len(projection.tail)
    pieces = [*projection.run.pieces[: projection.count], *projection.tail]
    sent = [(message["role"], block) for message in body["messages"] for block in message["content"]]
    assert len(sent) == len(pieces)
    [system] = body["system"]
    head = Block(json.dumps([body.get("tools"), system["text"]]), projection.system.tokens, HOUR)
    made: list[Block] = []
    for (role, block), piece in zip(sent, pieces, strict=True):
        mark = block.pop("cache_control", None)
        ttl = 0 if mark is None or state_first else HOUR if mark.get("ttl") == "1h" else FIVE_MINUTES
        made.append(Block(json.dumps([role, block]), piece.tokens, ttl))
    parts = [made[-tail:], made[:-tail]] if state_first and tail else [made]
    return [head, *(block for part in parts for block in part)]


# -- the session -------------------------------------------------------------------------------------------

WORDS = ("mean", "drift", "batch", "sensor", "0.173", "2019", "residual", "table", "frame", "41", "NaN", "year")


@cache
def text_of(tokens: int, seed: int) -> str:
    """Return a text of about `tokens` tokens, another one for each seed."""
    rng = random.Random(seed)
    words: list[str] = []
    size = 0
    while size < tokens:
        line = " ".join(rng.choices(WORDS, k=10)) + "\n"
        words.append(line)
        size += count(line)
    return "".join(words)


@dataclass
class Strategy:
    """What is done about stale outputs."""

    name: str
    redacts: bool = True
    """Whether the model marks what is stale."""
    eager: bool = False
    """Whether that takes effect at the next question; else when the engine finds that it pays."""
    state_first: bool = False
    """Whether the state stands in the system text. Then what was sent is not kept, nor thinking that is bound to it."""


STRATEGIES = (
    Strategy("rebuilt each call, state in system", eager=True, state_first=True),
    Strategy("never redacted", redacts=False),
    Strategy("redacted at every turn", eager=True),
    Strategy("batched"),
)


@dataclass
class Session:
    """What a session cost."""

    usages: list[Usage] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    state: list[int] = field(default_factory=list)
    """Tokens of each request's tail."""
    stale_share: float = 0.0

    def total(self, read: float) -> float:
        return sum(usage.cost(read) for usage in self.usages)

    @property
    def context(self) -> float:
        return sum(usage.context for usage in self.usages) / len(self.usages)

    @property
    def cached(self) -> float:
        return sum(usage.read for usage in self.usages) / sum(usage.context for usage in self.usages)


def outputs(seed: int) -> list[tuple[int, bool]]:
    """Return size and staleness of the output of each call, `STALE_SHARE` of the tokens stale, as near as it goes."""
    rng = random.Random(seed)
    sizes = [rng.choice(OUTPUT_TOKENS) for _ in range(ROUNDS)]
    order = rng.sample(range(ROUNDS), ROUNDS)
    asked = [at for at in order if at % ROUNDS_PER_ASK < ROUNDS_PER_ASK - 1]
    left = STALE_SHARE * sum(sizes[at] for at in asked)
    stale: set[int] = set()
    for at in asked:
        if sizes[at] <= left:
            stale.add(at)
            left -= sizes[at]
    return [(size, at in stale) for at, size in enumerate(sizes)]


def variables(at: int) -> tuple[VariableLine, ...]:
    """Return the table of variables before one call: other values at every call."""
    rng = random.Random(10_000 + at)
    return tuple(
        VariableLine(f"name_{n}", "float", f"{rng.random():.6f}", {}, f"s{at // ROUNDS_PER_ASK + 1}")
        for n in range(STATE_ROWS)
    )


def changes(at: int) -> tuple[DeltaItem, ...]:
    """Return what the call before has changed."""
    rng = random.Random(20_000 + at)
    sid = f"s{at // ROUNDS_PER_ASK + 1}"
    return tuple(DeltaItem(sid, "variable", f"name_{n}", f"now {rng.random():.6f}") for n in range(CHANGES))


class Timeline:
    """Asks, each a statement of its own, and the events that are recorded with it."""

    def __init__(self) -> None:
        self.path: list[tuple[Statement, Execution]] = []
        self.records: dict[str, list[HistoryEvent]] = {}

    def ask(self, number: int) -> None:
        """Open the statement of the next ask; the one before has ended."""
        self.end()
        sid = f"s{number + 1}"
        before = self.path[-1][1].execution_id if self.path else None
        execution = Execution(f"{sid}.1", sid, before, 0.0, None, "running")
        self.path.append((Statement(sid, number + 1, 0.0, "%%ask"), execution))
        self.records[execution.execution_id] = []

    def end(self) -> None:
        if self.path:
            statement, execution = self.path[-1]
            self.path[-1] = statement, replace(execution, ended_at=1.0, status="ok")

    def record(self, *events: HistoryEvent) -> None:
        self.records[self.path[-1][1].execution_id].extend(events)

    def turn(self, at: int, *, cold: bool) -> Turn:
        """Return the turn before one call."""
        return Turn(self.path, (), variables(at), STATE_ROWS, changes(at), self.records, cache_cold=cold)


def simulate(
    strategy: Strategy,
    settings: Settings,
    *,
    seed: int = 1,
    breaks: bool = False,
    shared: bool = True,
) -> Session:
    """Return what one session cost under `strategy`, with long pauses where `breaks`; `shared` as in `Cache`."""
    capabilities = capabilities_for(settings.model)
    cached = Cache(capabilities.min_cache_tokens, shared=shared)
    session, plan = Session(), outputs(seed)
    engine, timeline = ProjectionEngine(settings, count), Timeline()
    now = last = -PAUSE_SECONDS * 1.0
    stale: dict[int, str] = {}
    for at in range(ROUNDS):
        ask, step = divmod(at, ROUNDS_PER_ASK)
        if step == 0:
            long = breaks and ask and ask % LONG_PAUSE_EVERY == 0
            now += LONG_PAUSE_SECONDS if long else PAUSE_SECONDS
            timeline.ask(ask)
            timeline.record(UserQuestion(f"q{ask}", text_of(QUESTION_TOKENS, 100 + ask)))
        else:
            now += ROUND_SECONDS
        cold = now - last > FIVE_MINUTES or strategy.eager
        for event in engine.tend(timeline.turn(at, cold=cold)):
            if isinstance(event, str):
                continue
            timeline.record(event)
            if isinstance(event, RedactionBatch | Condensation):
                session.decisions.append(f"call {at + 1}: {type(event).__name__}, {event.reason}")
        projection = engine.project(timeline.turn(at, cold=cold))
        assert projection.report.ok
        session.usages.append(cached.send(blocks_of(projection, strategy.state_first), now))
        session.state.append(sum(piece.tokens for piece in projection.tail))
        last = now
        thinking = ({"type": "thinking", "thinking": text_of(THINKING_TOKENS, 200 + at), "signature": f"s{at}"},)
        if strategy.state_first:
            # What stands before it is never what it was: a model that binds thinking would refuse it.
            thinking = () if capabilities.bound_thinking else thinking
        else:
            texts = tuple(piece.text for piece in projection.tail if piece.role == "user")
            status = "".join(piece.text for piece in projection.tail if piece.role == "system")
            timeline.record(Context(f"x{at}", texts, status, projection.basis))
        if step == ROUNDS_PER_ASK - 1:
            said = text_of(ANSWER_TOKENS, 300 + at)
            blocks = (*thinking, {"type": "text", "text": said})
            timeline.record(AssistantMessage(f"m{at}", said, f"r{at}", blocks))
            continue
        size, goes_stale = plan[at]
        code = {"code": text_of(CALL_TOKENS, 400 + at)}
        blocks = (*thinking, {"type": "tool_use", "id": f"c{at}", "name": "run_cell", "input": code})
        run = Action(f"a{at}", f"c{at}", "run_cell", code, f"r{at}", blocks)
        shown = list(engine.past.view.events)
        seen = {event.event_id for event in shown}  # the model cannot cite what was condensed
        marked = [event_id for since, event_id in stale.items() if since + STALE_AFTER <= at and event_id in seen]
        if not strategy.redacts or not marked:
            timeline.record(run)
        else:
            why = "The values were read and a later table supersedes them; the drift begins in 2019."
            mark = Action(f"d{at}", f"e{at}", "redact", {"event_id": list(marked), "summary_text": why}, f"r{at}")
            timeline.record(run, mark)
            told = answer(mark, shown=shown, redactions=engine.past.redactions, count=count)
            assert len(told.directives) == len(marked), told.content
            timeline.record(*told.directives, Observation(f"p{at}", f"e{at}", told.content, told.status))
            stale = {since: event_id for since, event_id in stale.items() if event_id not in marked}
        timeline.record(Observation(f"o{at}", f"c{at}", text_of(size, 1000 + at)))
        if goes_stale:
            stale[at] = f"o{at}"
    made = [event for events in timeline.records.values() for event in events if event.event_id[0] == "o"]
    spent = sum(count(content(event)) for event in made)
    session.stale_share = sum(count(content(event)) for event in made if plan[int(event.event_id[1:])][1]) / spent
    return session


# -- the tables ---------------------------------------------------------------------------------------------

AIM_CACHED, AIM_COST = 0.88, 0.27
SEEDS = range(1, SESSIONS + 1)


def table(title: str, settings: Settings, *, breaks: bool = False, shared: bool = True) -> None:
    """Print a row for each strategy, and whether the last one reached the aim. Cost is relative session by session."""
    read = price_of(settings.model).read
    print(f"\n{title}")
    head = ("cached", "cost", "of rebuilt", "mean context", "batches", "condensed")
    print(("{:36} {:>7} {:>9} {:>11} {:>13} {:>8} {:>10}").format("", *head))
    rebuilt: list[float] = []
    for strategy in STRATEGIES:
        sessions = [simulate(strategy, settings, seed=seed, breaks=breaks, shared=shared) for seed in SEEDS]
        costs = [session.total(read) for session in sessions]
        rebuilt = rebuilt or costs
        shares = [cost / whole for cost, whole in zip(costs, rebuilt, strict=True)]
        cached = [session.cached for session in sessions]
        batches = mean([sum(": RedactionBatch" in one for one in session.decisions) for session in sessions])
        condensed = mean([sum(": Condensation" in one for one in session.decisions) for session in sessions])
        context = mean([session.context for session in sessions])
        print(
            f"{strategy.name:36} {mean(cached):7.1%} {mean(costs) / 1e3:8,.0f}k {mean(shares):11.1%}"
            f" {context:13,.0f} {batches:8.1f} {condensed:10.1f}"
        )
    good = sum(one >= AIM_CACHED and share <= AIM_COST for one, share in zip(cached, shares, strict=True))
    reached = mean(cached) >= AIM_CACHED and mean(shares) <= AIM_COST
    verdict = "reached" if reached else "NOT reached"
    print(
        f"aim, last row: ≥ {AIM_CACHED:.0%} cached and ≤ {AIM_COST:.0%} of rebuilt: {verdict} on the mean,"
        f" in {good} of {len(sessions)} sessions; {min(cached):.1%} … {max(cached):.1%} cached,"
        f" {min(shares):.1%} … {max(shares):.1%} of rebuilt"
    )


def main() -> None:
    for name, reason in REASONS.items():
        print(f"{name:18} {globals()[name]!s:30} {reason}")
    print(f"write {WRITE[FIVE_MINUTES]} for 5 minutes, {WRITE[HOUR]} for an hour; look-back {LOOKBACK} blocks")
    print("cost is in input tokens at full price")
    for model in MODELS:
        row = f"{model}: reading costs {price_of(model).read}"
        print(f"\n{row}; {capabilities_for(model).min_cache_tokens:,} tokens are the least that is cached", end="")
        roomy = replace(Settings(model=model), **SETTINGS)
        table(f"{row}; {told(roomy)}", roomy)
        table(f"{row}; {told(Settings(model=model))}: the defaults", Settings(model=model))
    first = replace(Settings(model=MODELS[0]), **SETTINGS)
    table(f"{MODELS[0]}, {told(first)}, with long pauses", first, breaks=True)
    table(f"{MODELS[0]}, {told(first)}, each prefix lives for itself", first, shared=False)
    session = simulate(STRATEGIES[-1], first)
    tails = f"tails of {min(session.state)} … {max(session.state)} tokens"
    print(f"\nthe first session, batched, {MODELS[0]}; {session.stale_share:.1%} of its output went stale; {tails}:")
    for decision in session.decisions:
        print(f"  {decision}")


def told(settings: Settings) -> str:
    budget = ProjectionEngine(settings, count).settings.projection_tokens
    return f"budget {budget:,}, an output at most {settings.statement_tokens:,}"


if __name__ == "__main__":
    main()
