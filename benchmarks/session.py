"""What redaction saves over a session: a simulation of 60 calls of a model, and of the provider's prompt cache.

    python benchmarks/session.py

Nothing is sent and no clock is read; the same numbers come out at every run. A scripted model asks, calls tools, and
marks outputs that went stale with the real `redact` tool. Whether that is accepted, when it takes effect, and what is
shown then, is decided by `ctxkernel.history.redact` and `redact_tool`; tokens are counted with
`ctxkernel.projection.tokens`. `layout` makes the blocks of a request; `simulate` takes another one in its place.

The cache, as the provider documents it: it holds prefixes that ended at a breakpoint; from each breakpoint (at most 4)
it looks back over 20 blocks for the longest that it holds; a prefix below the model's minimum is not held; what is used
lives on for its 5 minutes or its hour. Output tokens cost the same in every row and are not counted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from statistics import mean
from typing import NamedTuple

from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.events import (
    Action,
    AssistantMessage,
    Events,
    HistoryEvent,
    Observation,
    UserQuestion,
)
from ctxkernel.history.redact import THRESHOLD, Prices, Redactions, apply, content, due, outlook, strip_thinking
from ctxkernel.history.redact_tool import TOOL, answer
from ctxkernel.history.view import HistoryView
from ctxkernel.projection.tokens import count_tokens

# -- parameters: name, value, reason; all of them are printed ------------------------------------------

MODEL = "claude-sonnet-5-5"
ROUNDS = 60
ROUNDS_PER_ASK = 4
OUTPUT_TOKENS = (300, 600, 1200, 2400, 5000)
STALE_SHARE = 0.7
STALE_AFTER = 2
STATIC_TOKENS = 5000
STATE_TOKENS = 500
QUESTION_TOKENS = 60
THINKING_TOKENS = 150
CALL_TOKENS = 120
ANSWER_TOKENS = 200
ROUND_SECONDS = 25
PAUSE_SECONDS = 120
LONG_PAUSE_SECONDS = 1200
LONG_PAUSE_EVERY = 5
EXPECTED_ROUNDS = 15
CONTEXT_LIMIT = 200_000
SESSIONS = 8

REASONS = {
    "MODEL": "binds thinking to what stands before it, and needs the longest prefix to cache one: the strictest row",
    "ROUNDS": "calls of the model, as the aim names them",
    "ROUNDS_PER_ASK": "three tool calls and the answer: an edit can take effect at every fourth call only",
    "OUTPUT_TOKENS": "a printed number, a traceback, a table, a plot's data, a file; drawn evenly",
    "STALE_SHARE": "of the output tokens, as the aim names it",
    "STALE_AFTER": "calls after which an output is stale; the model says so in its next response that calls a tool",
    "STATIC_TOKENS": "tools and system text",
    "STATE_TOKENS": "handles and changes; new at every call",
    "QUESTION_TOKENS": "two sentences",
    "THINKING_TOKENS": "of each response",
    "CALL_TOKENS": "a cell of ten lines",
    "ANSWER_TOKENS": "a paragraph",
    "ROUND_SECONDS": "between two calls of one ask",
    "PAUSE_SECONDS": "between two asks: shorter than the cache's five minutes",
    "LONG_PAUSE_SECONDS": "in the third table: longer than five minutes",
    "LONG_PAUSE_EVERY": "asks; in the third table",
    "EXPECTED_ROUNDS": "what the cost model is told: nobody knows how long a session will be",
    "CONTEXT_LIMIT": "a limit is near from 80 % of it on",
    "SESSIONS": "other sizes and other stale outputs in each; rows are means",
}

LOOKBACK = 20
FIVE_MINUTES, HOUR = 300.0, 3600.0
WRITE = {FIVE_MINUTES: 1.25, HOUR: 2.0}
READ = {"opus-5-5 and sonnet-5-5": 0.05, "most other models": 0.1}

count = cache(count_tokens)

# -- the provider's cache --------------------------------------------------------------------------------


class Block(NamedTuple):
    """One block of a request; `ttl` in seconds makes it a breakpoint, 0 does not."""

    text: str
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
            total += count(block.text)
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


# -- from events to blocks -------------------------------------------------------------------------------

Layout = Callable[[Events, str, Sequence[Block], bool], list[Block]]
"""Shown events, state, the blocks of the request before, whether state belongs into the system text → blocks."""


def blocks_of(event: HistoryEvent) -> list[Block]:
    if isinstance(event, Action | AssistantMessage):
        thought = [Block(json.dumps(block)) for block in event.thinking]
        said = [Block(event.text)] if event.text else []
        called = [Block(f"{event.tool_name} {json.dumps(event.input)}")] if isinstance(event, Action) else []
        return thought + said + called
    shown = event.text if isinstance(event, UserQuestion) else content(event)
    return [Block(f"{event.event_id} {shown}")]


def layout(events: Events, state: str, before: Sequence[Block], state_first: bool) -> list[Block]:
    """Tools and system text | history, breakpoints at its end and where it parts from the request before | state.

    With `state_first`, state stands in the system text: nothing after it is ever read again, so nothing is written.
    """
    head = [Block(json.dumps(TOOL)), Block(text_of(STATIC_TOKENS - count(json.dumps(TOOL)), 1), HOUR)]
    history = [block for event in events for block in blocks_of(event)]
    if state_first:
        return [*head, Block(state), *history]
    blocks = head + history
    same = next(
        (at for at, (new, old) in enumerate(zip(blocks, before, strict=False)) if new.text != old.text),
        min(len(blocks), len(before)),
    )
    for at in {same - 1, len(blocks) - 1}:
        if at >= len(head):
            blocks[at] = Block(blocks[at].text, FIVE_MINUTES)
    return [*blocks, Block(state)]


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
    """What is done about stale outputs; `threshold` as in `due`, None for nothing at all."""

    name: str
    threshold: int | None
    state_first: bool = False
    whole: bool = False
    """Whether all stale outputs go at once, as in `outlook`."""


STRATEGIES = (
    Strategy("rebuilt each call, state in system", 0, state_first=True, whole=True),
    Strategy("never redacted", None),
    Strategy("redacted at every turn", 0, whole=True),
    Strategy("batched by the cost model alone", 10**9),
    Strategy(f"batched from {THRESHOLD:,} stale on, whole", THRESHOLD, whole=True),
    Strategy(f"batched from {THRESHOLD:,} stale on", THRESHOLD),
)


@dataclass
class Session:
    """What a session cost."""

    usages: list[Usage] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
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


def simulate(
    strategy: Strategy,
    read: float,
    *,
    seed: int = 1,
    layout: Layout = layout,
    breaks: bool = False,
    shared: bool = True,
) -> Session:
    """Return what one session cost under `strategy`, with long pauses where `breaks`; `shared` as in `Cache`."""
    capabilities = capabilities_for(MODEL)
    cached = Cache(capabilities.min_cache_tokens, shared=shared)
    session, plan = Session(), outputs(seed)
    history: list[HistoryEvent] = []
    view, redactions = HistoryView(), Redactions()
    blocks: list[Block] = []
    now = last = -PAUSE_SECONDS * 1.0
    stale: dict[int, str] = {}

    def add(*events: HistoryEvent) -> None:
        for event in events:
            history.append(event)
            view.append(event)
            redactions.append(event)

    def decide(at: int) -> None:
        if strategy.threshold is None or not redactions.at_boundary:
            return
        seen = apply(list(view.events), redactions, count=count).events
        cold = now - last > FIVE_MINUTES
        near = bool(session.usages) and session.usages[-1].context > 0.8 * CONTEXT_LIMIT
        decision = due(
            outlook(seen, redactions, count=count, whole=strategy.whole or cold or near),
            cache_cold=cold,
            limit_near=near,
            prices=Prices(WRITE[FIVE_MINUTES], read),
            expected_turns=EXPECTED_ROUNDS,
            threshold=strategy.threshold,
        )
        session.decisions.append(f"call {at + 1}: {'yes' if decision.pays else 'no'}, {decision.reason}")
        if decision.pays:
            add(decision.batch(f"b{at}"))

    for at in range(ROUNDS):
        ask, step = divmod(at, ROUNDS_PER_ASK)
        if step == 0:
            long = breaks and ask and ask % LONG_PAUSE_EVERY == 0
            now += LONG_PAUSE_SECONDS if long else PAUSE_SECONDS
            add(UserQuestion(f"q{ask}", text_of(QUESTION_TOKENS, 100 + ask)))
            decide(at)
        else:
            now += ROUND_SECONDS
        done = apply(list(view.events), redactions, count=count)
        changed = {view.events[0].event_id: len(redactions.numbers)} if strategy.state_first else done.changed
        events = strip_thinking(done.events, changed, redactions.numbers, capabilities)
        blocks = layout(events, text_of(STATE_TOKENS, 10_000 + at), blocks, strategy.state_first)
        session.usages.append(cached.send(blocks, now))
        last = now
        thinking = ({"type": "thinking", "thinking": text_of(THINKING_TOKENS, 200 + at), "signature": f"s{at}"},)
        if step == ROUNDS_PER_ASK - 1:
            add(AssistantMessage(f"m{at}", text_of(ANSWER_TOKENS, 300 + at), f"r{at}", thinking))
            continue
        size, goes_stale = plan[at]
        run = Action(f"a{at}", f"c{at}", "run", {"code": text_of(CALL_TOKENS, 400 + at)}, f"r{at}", thinking)
        marked = [event_id for since, event_id in stale.items() if since + STALE_AFTER <= at]
        if strategy.threshold is None or not marked:
            add(run)
        else:
            why = "The values were read and a later table supersedes them; the drift begins in 2019."
            mark = Action(f"d{at}", f"e{at}", "redact", {"event_id": list(marked), "summary_text": why}, f"r{at}")
            add(run, mark)
            told = answer(mark, shown=list(view.events), redactions=redactions, count=count)
            assert len(told.directives) == len(marked), told.content
            add(*told.directives, Observation(f"p{at}", f"e{at}", told.content, told.status))
            stale = {since: event_id for since, event_id in stale.items() if event_id not in marked}
        add(Observation(f"o{at}", f"c{at}", text_of(size, 1000 + at)))
        if goes_stale:
            stale[at] = f"o{at}"
    made = [(event, plan[int(event.event_id[1:])][1]) for event in history if event.event_id[0] == "o"]
    spent = sum(count(content(event)) for event, _ in made)
    session.stale_share = sum(count(content(event)) for event, gone in made if gone) / spent
    return session


# -- the tables ---------------------------------------------------------------------------------------------

AIM_CACHED, AIM_COST = 0.88, 0.27
SEEDS = range(1, SESSIONS + 1)


def table(title: str, read: float, *, breaks: bool = False, shared: bool = True) -> None:
    """Print a row for each strategy, and whether the last one reached the aim. Cost is relative session by session."""
    print(f"\n{title}")
    head = ("cached", "cost", "of rebuilt", "mean context", "batches")
    print(("{:36} {:>7} {:>9} {:>11} {:>13} {:>8}").format("", *head))
    rebuilt: list[float] = []
    for strategy in STRATEGIES:
        sessions = [simulate(strategy, read, seed=seed, breaks=breaks, shared=shared) for seed in SEEDS]
        costs = [session.total(read) for session in sessions]
        rebuilt = rebuilt or costs
        shares = [cost / whole for cost, whole in zip(costs, rebuilt, strict=True)]
        cached = [session.cached for session in sessions]
        batches = mean([sum(": yes" in one for one in session.decisions) for session in sessions])
        context = mean([session.context for session in sessions])
        print(
            f"{strategy.name:36} {mean(cached):7.1%} {mean(costs) / 1e3:8,.0f}k {mean(shares):11.1%}"
            f" {context:13,.0f} {batches:8.1f}"
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
    print(
        f"minimum to cache: {capabilities_for(MODEL).min_cache_tokens:,} tokens; cost is in input tokens at full price"
    )
    cheap = min(READ.values())
    for models, read in READ.items():
        table(f"reading costs {read} ({models})", read)
    table(f"reading costs {cheap}, with long pauses", cheap, breaks=True)
    table(f"reading costs {cheap}, each prefix lives for itself", cheap, shared=False)
    session = simulate(STRATEGIES[-1], cheap)
    print(
        f"\nthe first session, batched, reading at {cheap}; {session.stale_share:.1%} of its output tokens went stale:"
    )
    for decision in session.decisions:
        print(f"  {decision}")


if __name__ == "__main__":
    main()
