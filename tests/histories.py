"""Histories for tests: small builders, random histories that are broken in every known way, and the laws they keep.

Rule 1: a law takes a history and a list of properties, and asserts; it never asks a property what is right.
Rule 2: a random history is made from a list of small moves, so that a failing one shrinks to a few events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.events import (
    Action,
    AgentError,
    AssistantMessage,
    Condensation,
    CondensationRequest,
    Context,
    HistoryEvent,
    HumanStatement,
    Observation,
    Output,
    Redaction,
    Repair,
    Summary,
    SummaryText,
    UserQuestion,
    UserRejection,
    Withdrawal,
)
from ctxkernel.history.invariants import PROPERTIES, MessagePairing, Property, TokenLimit, ToolCallDepth
from ctxkernel.history.repair import HistoryReport, report
from ctxkernel.history.rules import check
from ctxkernel.history.view import HistoryView
from ctxkernel.projection.receipt import Binding
from ctxkernel.projection.value import Piece, Projection

Json = Any
History = Sequence[HistoryEvent]
MODEL = capabilities_for("claude-sonnet-5-5")
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}

# -- builders --------------------------------------------------------------------------------------


def note(n: int) -> HumanStatement:
    return HumanStatement(f"s{n}.1", f"s{n}", f"x = {n}", (Output("stdout", str(n)),))


def question(n: int) -> UserQuestion:
    return UserQuestion(f"q{n}", "why?")


def answer(n: int) -> AssistantMessage:
    return AssistantMessage(f"m{n}", "since")


def call(n: int, batch: str = "", *, thinking: bool = False, id: str = "") -> Action:
    call_id = id or f"c{n}"
    blocks = (THOUGHT, {"type": "tool_use", "id": call_id, "name": "run", "input": {"n": n}}) if thinking else ()
    return Action(f"a{n}", call_id, "run", {"n": n}, batch or f"r{n}", blocks)


def result(n: int, *, of: str = "", event: str = "") -> Observation:
    return Observation(event or f"o{n}", of or f"c{n}", f"result {n}")


def forget(*ids: str, summary: str = "", offset: int = 0, event: str = "k1") -> Condensation:
    return Condensation(event, ids, (SummaryText(summary, offset),) if summary else ())


def ids(events: History) -> list[str]:
    return [event.event_id for event in events]


def batch(action: Action) -> str:
    return action.llm_response_id or "alone " + action.event_id


def sent_with(events: History, project: Callable[[History], Projection]) -> list[HistoryEvent]:
    """Return the events with the digests of the requests that had their states; `project` projects a history."""
    out: list[HistoryEvent] = []
    for event in events:
        if isinstance(event, Context):
            before = project(out)
            binding = Binding(before.model, before.tools, before.system.text)
            binding.add(before.run.pieces[: before.count])
            binding.add(Piece("", "", "", 0, "", text) for text in event.texts)
            binding.add([Piece("", "", "", 0, "", event.status, "system")] if event.status else [])
            event = replace(event, basis=binding.digest())
        out.append(event)
    return out


# -- random histories --------------------------------------------------------------------------------

MOVES = (
    *("note", "question", "answer"),
    *("response",) * 3,
    *("more calls", "result", "result", "result"),
    *("duplicate", "orphan", "early"),
    *("reused id", "recorded twice"),
    *("forget", "forget cut", "withdraw", "request", "redact", "record"),
)
CLEAN = frozenset({"note", "question", "answer", "response", "result"})
NO_CONDENSATION = frozenset(MOVES) - {"forget", "forget cut", "withdraw"}


class _Builder:
    """Plays moves. `a` and `b` choose among what a move can act on."""

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []
        self.n = 0
        self.open: list[Action] = []
        self.actions: list[Action] = []

    def next(self) -> int:
        self.n += 1
        return self.n

    def add(self, event: HistoryEvent) -> None:
        self.events.append(event)

    def play(self, move: str, a: int, b: int) -> None:
        getattr(self, "_" + move.replace(" ", "_"))(a, b)

    def _note(self, a: int, b: int) -> None:
        self.add(note(self.next()))

    def _question(self, a: int, b: int) -> None:
        self.add(question(self.next()))

    def _answer(self, a: int, b: int) -> None:
        self.add(answer(self.next()))

    def _call(self, batch: str, *, thinking: bool = False, id: str = "") -> None:
        action = call(self.next(), batch, thinking=thinking, id=id)
        self.open.append(action)
        self.actions.append(action)
        self.add(action)

    def _response(self, a: int, b: int) -> None:
        response = f"r{self.n + 1}"
        for n in range(1 + a % 3):
            self._call(response, thinking=n == 0 and b % 3 == 0)

    def _more_calls(self, a: int, b: int) -> None:
        """A call of an earlier response, however far back."""
        if self.actions:
            self._call(batch(self.actions[a % len(self.actions)]), thinking=b % 4 == 0)

    def _reused_id(self, a: int, b: int) -> None:
        if self.actions:
            of = self.actions[a % len(self.actions)]
            self._call(of.llm_response_id if b % 4 == 0 else "", id=of.tool_call_id)

    def _answer_to(self, call_id: str, kind: int) -> None:
        n = self.next()
        kinds: tuple[HistoryEvent, ...] = (
            result(n, of=call_id),
            result(n, of=call_id),
            UserRejection(f"o{n}", call_id, "no"),
            AgentError(f"o{n}", call_id, "no such tool"),
        )
        self.add(kinds[kind % 4])

    def _result(self, a: int, b: int) -> None:
        if self.open:
            self._answer_to(self.open.pop(a % len(self.open)).tool_call_id, b)

    def _duplicate(self, a: int, b: int) -> None:
        if self.actions:
            self._answer_to(self.actions[a % len(self.actions)].tool_call_id, b)

    def _orphan(self, a: int, b: int) -> None:
        self._answer_to(f"lost{self.n}", b)

    def _early(self, a: int, b: int) -> None:
        """The result of a call that comes two events later, or never."""
        self._answer_to(f"c{self.n + 2}", b)

    def _recorded_twice(self, a: int, b: int) -> None:
        if self.events:
            self.add(self.events[a % len(self.events)])

    def _forget(self, a: int, b: int) -> None:
        """Any ids at all: halves of batches, results without their calls, summaries, ids that are not there."""
        if not self.events:
            return
        named = [event for event in self.events if not isinstance(event, Condensation)]
        chosen = {named[(a * 7 + b * 3 * k) % len(named)].event_id for k in range(a % 5)} if named else set()
        chosen |= {
            one.event_id
            for event in self.events
            if isinstance(event, Condensation) and a % 2
            for one in event.summary_events()
        }
        texts = tuple(SummaryText(f"summary {k}", b % 7 + k) for k in range(b % 3))
        self.add(Condensation(f"k{self.next()}", tuple(sorted(chosen)), texts))

    def _forget_cut(self, a: int, b: int) -> None:
        """What a condenser does: a range between two boundaries, and a summary in its place."""
        view = HistoryView(self.events)
        gaps = list(view.boundaries)
        first, last = sorted((gaps[a % len(gaps)], gaps[b % len(gaps)]))
        gone = ids(view.events[first:last])
        self.add(Condensation(f"k{self.next()}", tuple(gone), (SummaryText("shorter", first),) if gone else ()))

    def _withdraw(self, a: int, b: int) -> None:
        """Of a condensation, as a rule; of anything, or again, now and then."""
        made = [event for event in self.events if isinstance(event, Condensation) or b % 8 == 0]
        if made:
            self.add(Withdrawal(f"w{self.next()}", made[a % len(made)].event_id))

    def _request(self, a: int, b: int) -> None:
        self.add(CondensationRequest(f"k{self.next()}"))

    def _redact(self, a: int, b: int) -> None:
        if self.events:
            self.add(Redaction(f"d{self.next()}", self.events[a % len(self.events)].event_id, "short"))

    def _record(self, a: int, b: int) -> None:
        self.add(Repair(f"p{self.next()}", "removed", "o1", "c1", "an earlier repair"))


def build(moves: Sequence[tuple[str, int, int]]) -> list[HistoryEvent]:
    builder = _Builder()
    for move in moves:
        builder.play(*move)
    return builder.events


def histories(
    moves: frozenset[str] = frozenset(MOVES), *, least: int = 0, most: int = 24
) -> st.SearchStrategy[list[HistoryEvent]]:
    """Histories of `least` to `most` moves; a crash may fall anywhere, since a history may end anywhere."""
    allowed = [move for move in MOVES if move in moves]
    number = st.integers(0, 30)
    return st.lists(st.tuples(st.sampled_from(allowed), number, number), min_size=least, max_size=most).map(build)


# -- the oracle: what would be sent --------------------------------------------------------------------


def request(events: History) -> dict[str, Json]:
    """Return the request that the events make. Call ids are made unique by batch, as a projection must."""
    messages: list[dict[str, Json]] = [{"role": "user", "content": [{"type": "text", "text": "begin"}]}]
    current = ""
    wire: dict[str, list[str]] = {}
    seen: dict[str, int] = {}
    count = 0
    answered: list[Json] = []

    def flush() -> None:
        nonlocal answered, current
        if answered:
            messages.append({"role": "user", "content": answered})
        answered, current = [], ""

    for event in events:
        if isinstance(event, Action):
            if batch(event) != current:
                flush()
                current, wire, seen = batch(event), {}, {}
                messages.append({"role": "assistant", "content": []})
            count += 1
            wire.setdefault(event.tool_call_id, []).append(f"t{count}")
            block = {"type": "tool_use", "id": f"t{count}", "name": event.tool_name, "input": event.input}
            messages[-1]["content"] += [*event.thinking, block]
        elif isinstance(event, Observation | UserRejection | AgentError):
            known = wire.get(event.tool_call_id, ["unknown"])
            of = known[min(seen.get(event.tool_call_id, 0), len(known) - 1)]
            seen[event.tool_call_id] = seen.get(event.tool_call_id, 0) + 1
            answered.append({"type": "tool_result", "tool_use_id": of, "content": "ok"})
            if not current:
                flush()
        else:
            flush()
            role = "assistant" if isinstance(event, AssistantMessage) else "user"
            messages.append({"role": role, "content": [{"type": "text", "text": type(event).__name__}]})
    flush()
    messages.append({"role": "user", "content": [{"type": "text", "text": "go on"}]})
    return {"model": "m", "max_tokens": 100, "messages": messages}


# -- the laws --------------------------------------------------------------------------------------------

Law = Callable[[History, Sequence[Property]], None]


def recorded(history: History) -> list[HistoryEvent]:
    """Return the events of a history, each once, without the condensations that were withdrawn."""
    first: dict[str, HistoryEvent] = {}
    withdrawn: set[str] = set()
    for event in history:
        if event.event_id not in first and isinstance(event, Withdrawal) and event.target_id in first:
            withdrawn.add(event.target_id)
        first.setdefault(event.event_id, event)
    return [event for event in first.values() if not (isinstance(event, Condensation) and event.event_id in withdrawn)]


def legal_request(history: History, properties: Sequence[Property]) -> None:
    """What is shown makes a request that the API takes."""
    found = check(request(HistoryView(history, properties=properties).events), MODEL)
    assert found.ok, found.violations


def whole_batches(history: History, properties: Sequence[Property]) -> None:
    """A response is shown with all of its calls, or not at all."""
    shown = HistoryView(history, properties=properties).events
    for one in {batch(event) for event in shown if isinstance(event, Action)}:
        of_it = [event for event in recorded(history) if isinstance(event, Action) and batch(event) == one]
        assert [event for event in shown if isinstance(event, Action) and batch(event) == one] == of_it


def results_in_call_order(history: History, properties: Sequence[Property]) -> None:
    """The results of a batch follow its calls in their order, and nothing stands between them, nor within a batch."""
    met: set[str] = set()
    shown = list(HistoryView(history, properties=properties).events)
    place = 0
    while place < len(shown):
        first = shown[place]
        if not isinstance(first, Action):
            assert first.place != "result"
            place += 1
            continue
        assert batch(first) not in met
        met.add(batch(first))
        calls, results = [], []
        while place < len(shown) and (
            shown[place].place == "result" or (isinstance(shown[place], Action) and batch(shown[place]) == batch(first))
        ):
            (calls if isinstance(shown[place], Action) else results).append(shown[place].tool_call_id)
            assert len(results) <= len(calls)
            place += 1
        assert calls == results


def nothing_lost(history: History, properties: Sequence[Property]) -> None:
    """What stands alone and was not forgotten is shown, in the order of the history; and so are summaries."""
    kept: list[str] = []
    for event in recorded(history):
        if isinstance(event, Condensation):
            kept = [one for one in kept if one not in event.forgotten_event_ids]
            kept += ids(event.summary_events())
        elif event.place == "message":
            kept.append(event.event_id)
    shown = [event for event in HistoryView(history, properties=properties).events if event.place == "message"]
    summaries = {event.event_id for event in shown if isinstance(event, Summary)}

    assert sorted(kept) == sorted(ids(shown))
    assert [one for one in kept if one not in summaries] == [one for one in ids(shown) if one not in summaries]


def answered_is_shown(history: History, properties: Sequence[Property]) -> None:
    """A response whose calls all have their results is shown, unless something of it was forgotten."""
    events = recorded(history)
    gone = {one for event in events if isinstance(event, Condensation) for one in event.forgotten_event_ids}
    shown = set(ids(HistoryView(history, properties=properties).events))
    call_ids = [event.tool_call_id for event in events if isinstance(event, Action)]
    answered: dict[str, list[bool]] = {}
    for place, event in enumerate(events):
        if isinstance(event, Action):
            later = [
                one.event_id
                for one in events[place:]
                if one.place == "result" and one.tool_call_id == event.tool_call_id  # type: ignore[union-attr]
            ]
            simple = call_ids.count(event.tool_call_id) == 1 and not gone.intersection([event.event_id, *later])
            answered.setdefault(batch(event), []).append(simple and bool(later))
    for event in events:
        if isinstance(event, Action) and all(answered[batch(event)]):
            assert event.event_id in shown


def forgotten_is_gone(history: History, properties: Sequence[Property]) -> None:
    """Nothing that was forgotten is shown, and no record ever."""
    shown = HistoryView(history, properties=properties).events
    assert all(event.place != "meta" for event in shown)
    gone = {one for event in recorded(history) if isinstance(event, Condensation) for one in event.forgotten_event_ids}
    # A condensation can only forget what came before it.
    before: set[str] = set()
    forgotten: set[str] = set()
    for event in recorded(history):
        if isinstance(event, Condensation):
            forgotten |= before.intersection(event.forgotten_event_ids)
            before.update(ids(event.summary_events()))
        before.add(event.event_id)
    assert forgotten <= gone
    assert not forgotten.intersection(ids(shown))


def loops(events: History) -> list[list[str]]:
    """Return the ids of each tool loop that began with thinking."""
    found: list[list[str]] = []
    inside = False
    for event in events:
        if event.place == "message":
            inside = False
        elif inside:
            found[-1].append(event.event_id)
        elif isinstance(event, Action) and event.thinking:
            inside = True
            found.append([event.event_id])
    return found


def sound(events: History) -> HistoryReport:
    """Return what repair would say, except of repeated ids: a view shows those, a projection tells them apart."""
    found = report(events)
    return HistoryReport(
        found.missing_outputs,
        found.orphan_outputs,
        found.duplicate_outputs,
        found.misplaced,
        (),
        found.duplicate_events,
    )


def legal_cuts(history: History, properties: Sequence[Property]) -> None:
    """Whatever lies between two boundaries can be taken out: no repair is needed, no batch and no loop is torn."""
    view = HistoryView(history, properties=properties)
    events, gaps = list(view.events), list(view.boundaries)
    assert gaps[0] >= 0
    assert gaps[-1] <= len(events)
    whole = [frozenset(one) for one in loops(events)]
    sizes: dict[str, int] = {}
    for event in events:
        if isinstance(event, Action):
            sizes[batch(event)] = sizes.get(batch(event), 0) + 1
    pairs = [(first, last) for first in gaps for last in gaps if first < last]
    for first, last in pairs if len(pairs) < 60 else pairs[:: len(pairs) // 40]:
        left = events[:first] + events[last:]
        assert sound(left).is_valid(), sound(left).summary()
        assert check(request(left), MODEL).ok
        kept = set(ids(left))
        assert all(loop <= kept or not loop & kept for loop in whole)
        for one in {batch(event) for event in left if isinstance(event, Action)}:
            assert sum(isinstance(event, Action) and batch(event) == one for event in left) == sizes[one]


LAWS: tuple[Law, ...] = (
    legal_request,
    whole_batches,
    results_in_call_order,
    nothing_lost,
    answered_is_shown,
    forgotten_is_gone,
    legal_cuts,
)


# -- the laws of the extensions ---------------------------------------------------------------------------

MOST_DEEP = 1
MOST_TOKENS = 6


def no_nesting(history: History, properties: Sequence[Property]) -> None:
    """With a depth of one no batch that is shown began while another one that is shown waited."""
    shown = set(ids(HistoryView(history, properties=properties).events))
    spans: dict[str, tuple[int, int]] = {}
    events = recorded(history)
    for place, event in enumerate(events):
        if isinstance(event, Action) and event.event_id in shown:
            end = next(
                n
                for n, one in enumerate(events)
                if n > place and one.event_id in shown and getattr(one, "tool_call_id", "") == event.tool_call_id
            )
            first, last = spans.get(batch(event), (place, end))
            spans[batch(event)] = (first, max(last, end))
    for one, (first, last) in spans.items():
        assert not any(first < other[0] < last for name, other in spans.items() if name != one)


def turns_alternate(history: History, properties: Sequence[Property]) -> None:
    """No two messages of one role in a row, results and what follows them being one; nor after a legal cut."""
    view = HistoryView(history, properties=properties)
    events, gaps = list(view.events), list(view.boundaries)
    cuts = [events[:first] + events[last:] for first in gaps for last in gaps if first < last]
    for left in [events, *cuts[:40]]:
        for before, event in pairwise(left):
            if before.place == event.place == "message":
                assert isinstance(before, AssistantMessage) != isinstance(event, AssistantMessage)


def within_tokens(history: History, properties: Sequence[Property]) -> None:
    """What is shown costs no more than the limit, and is as legal as before."""
    assert len(HistoryView(history, properties=properties).events) <= MOST_TOKENS
    legal_request(history, properties)


def one_token(event: HistoryEvent) -> int:
    return 1


EXTENDED: tuple[tuple[Law, tuple[Property, ...]], ...] = (
    (no_nesting, (*PROPERTIES[:3], ToolCallDepth(MOST_DEEP), *PROPERTIES[3:])),
    (turns_alternate, (*PROPERTIES, MessagePairing())),
    (within_tokens, (*PROPERTIES, TokenLimit(MOST_TOKENS, one_token, within=PROPERTIES))),
)
