"""Recorded turns: the answers of a model, and a stand-in for the model that repeats them.

Rule 1: an ask is found by its position among the asks before it and by its question, else by its question in the same
        cell. If its cells have other results now, the requests differ from the recorded ones. That is reported as
        drift, not refused.
Rule 2: a recorded turn that ends too early is an error that names the request without an answer.
Rule 3: a file of turns is untrusted: an error names the place that is not of the expected form.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ctxkernel.agent.failures import ModelFailure
from ctxkernel.agent.streaming import Response, StreamEvent, TextDelta
from ctxkernel.core.errors import StoreError
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.history.events import Action, AssistantMessage, HistoryEvent, Ruling, UserQuestion, Verdict
from ctxkernel.projection.dialect import RUN_CELL
from ctxkernel.projection.secrets import mask
from ctxkernel.projection.value import Projection
from ctxkernel.store.log.rows import SUMMARY, masked_json

VERSION = 1
_ROUND_FIELDS = ("receipt", "model", "stop_reason", "usage", "response_id", "blocks", "verdicts")
"""The fields of a round in a file of turns, in order."""
SUFFIX = ".turns.json"
"""The file of a notebook's recorded turns has this instead of `.ipynb`."""


def ask_key(position: int, question: str) -> str:
    """Return the key of an ask: its position among the asks, and a hash of its question."""
    digest = hashlib.sha256(question.strip().encode("utf-8", "surrogatepass")).hexdigest()
    return f"{position}:{digest[:16]}"


@dataclass(frozen=True, slots=True)
class Round:
    """A request and its response."""

    receipt: str
    model: str
    blocks: tuple[Mapping[str, Any], ...]
    stop_reason: str
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    response_id: str = ""
    request_id: str = ""
    verdicts: tuple[tuple[Ruling, str], ...] = ()
    """The decision on each cell of the response, in order: the ruling, and its reason or code."""


@dataclass(frozen=True, slots=True)
class RecordedAsk:
    """An ask, and its rounds."""

    key: str
    question: str
    rounds: tuple[Round, ...]
    cell_id: str | None = None
    execution_id: str = ""

    @property
    def answered(self) -> bool:
        """Whether its last response has no calls."""
        return bool(self.rounds) and self.rounds[-1].stop_reason not in ("tool_use", "pause_turn", "")


def find_recorded(
    asks: Iterable[RecordedAsk], key: str, question: str, cell_id: str | None = None
) -> RecordedAsk | None:
    """Return the newest answered ask with the key, else with the question in the same cell."""
    digest = ask_key(0, question).partition(":")[2]
    same = [one for one in asks if one.answered and one.key.partition(":")[2] == digest]
    by_key = [one for one in same if one.key == key]
    by_cell = [one for one in same if cell_id is not None and one.cell_id == cell_id]
    return (by_cell or by_key or [None])[-1]


def of_session(requests: Iterable[Mapping[str, Any]], records: Mapping[str, Sequence[Any]]) -> list[RecordedAsk]:
    """Return the asks of a session, from `SessionReader.requests()` and the events of each execution."""
    questions: dict[str, str] = {}
    batches: dict[str, list[tuple[str, list[str]]]] = {}  # by ask: the cells of each response
    verdicts: dict[tuple[str, str], list[tuple[Ruling, str]]] = {}  # in order: ids may come again
    allowed: tuple[Ruling, str] = ("approved", "")
    ask = ""
    for execution_id, events in records.items():
        for event in events:
            match event:
                case UserQuestion():
                    ask = execution_id
                    questions[ask] = event.text
                case Action() if event.tool_name == RUN_CELL:
                    made = batches.setdefault(ask, [])
                    if not made or made[-1][0] != event.llm_response_id:
                        made.append((event.llm_response_id, []))
                    made[-1][1].append(event.tool_call_id)
                case Verdict():
                    verdicts.setdefault((ask, event.tool_call_id), []).append((event.ruling, event.text))
                case _:
                    pass
    asks: dict[str, RecordedAsk] = {}
    for row in requests:
        name = row["execution_id"]
        if row["status"] != "ok" or name not in questions or row["ask_key"] == SUMMARY:
            continue
        body, waiting = row["body"], batches.get(name, [])
        at = next((n for n, (batch, _) in enumerate(waiting) if batch.partition("~")[0] == body.get("id")), -1)
        calls = waiting.pop(at)[1] if at >= 0 else []
        given = [verdicts.get((name, call), []) for call in calls]
        decided = tuple(one.pop(0) if one else allowed for one in given)
        blocks = tuple(body.get("blocks", ()))
        one = Round(
            row["receipt"],
            row["model"],
            blocks,
            row["stop_reason"] or "",
            row["usage"],
            str(body.get("id", "")),
            row["request_id"] or "",
            decided,
        )
        before = asks.get(name) or RecordedAsk(row["ask_key"], questions[name], (), row["cell_id"], name)
        asks[name] = replace(before, rounds=(*before.rounds, one))
    return list(asks.values())


Records = Mapping[str, Sequence[HistoryEvent]]
Path = Iterable[tuple[Statement, Execution]]


def questions(path: Path, records: Records) -> Iterator[tuple[Statement, Execution, str, int]]:
    """Yield the asks of a path, each with its question and its position among the others.

    A cell that asks again keeps its position.
    """
    seen: list[str] = []
    for statement, execution in path:
        for event in records.get(execution.execution_id, ()):
            if isinstance(event, UserQuestion):
                name = statement.cell_id or execution.execution_id
                if name not in seen:
                    seen.append(name)
                yield statement, execution, event.text, seen.index(name)


def position_of(statement: Statement, path: Path, records: Records) -> int:
    """Return the position of a new ask at the end of `path`."""
    found = [(one.cell_id, position) for one, _, _, position in questions(path, records)]
    same = [position for cell_id, position in found if cell_id is not None and cell_id == statement.cell_id]
    return same[0] if same else max((position + 1 for _, position in found), default=0)


def of_path(
    path: Sequence[tuple[Statement, Execution]],
    records: Records,
    known: Sequence[RecordedAsk],
    receipts: Mapping[str, str],
) -> tuple[list[RecordedAsk], list[str]]:
    """Return the answered asks of a path with their current positions and requests, and the questions of the others.

    Of a cell that asked again the last ask counts. `known` are the asks whose responses are stored, the newest last;
    `receipts` are those of projections, by execution.
    """
    path_asks: list[tuple[RecordedAsk, list[tuple[str, str]]]] = []  # with request and id of each response
    asks = {execution.execution_id: (text, at) for _, execution, text, at in questions(path, records)}
    for statement, execution in path:
        events = records.get(execution.execution_id, ())
        if execution.execution_id in asks:
            question, position = asks[execution.execution_id]
            key = ask_key(position, question)
            ask = RecordedAsk(key, question, (), statement.cell_id, execution_id=execution.execution_id)
            path_asks.append((ask, []))
        elif path_asks and statement.author == "model" and "round" in statement.tags:
            receipt = receipts.get(execution.parent_execution_id or "") or str(statement.tags.get("receipt", ""))
            path_asks[-1][1].append((receipt, _response_id(events)))
    made, left = dict[str, RecordedAsk](), list[str]()
    for ask, responses in path_asks:
        found = _same(known, ask, [response for _, response in responses])
        if found is None:
            left.append(ask.question)
            continue
        rounds = (replace(one, receipt=sent) for one, (sent, _) in zip(found.rounds, responses, strict=True))
        made[ask.key.partition(":")[0]] = replace(ask, rounds=tuple(rounds))
    return list(made.values()), left


def _response_id(events: Iterable[HistoryEvent]) -> str:
    batches = (event.llm_response_id for event in events if isinstance(event, Action | AssistantMessage))
    return next(batches, "").partition("~")[0]


def _same(known: Sequence[RecordedAsk], ask: RecordedAsk, responses: Sequence[str]) -> RecordedAsk | None:
    """Return the answered ask with these responses: this one itself, else the newest that it may have replayed."""
    fits = [
        one
        for one in known
        if one.answered
        and one.question == ask.question
        and len(one.rounds) == len(responses)
        # An empty response has no event with its id.
        and all(given in ("", each.response_id) for each, given in zip(one.rounds, responses, strict=True))
    ]
    return next((one for one in fits if one.execution_id == ask.execution_id), fits[-1] if fits else None)


class Recorded:
    """Repeats the recorded answers of a model."""

    live = False

    def __init__(self, ask: RecordedAsk) -> None:
        self.ask = ask
        self.drift: list[int] = []
        """The requests, numbered from 1, that differ from the recorded ones."""
        self._given = 0

    async def send(self, request: Projection, on_event: Callable[[StreamEvent], None]) -> Response:
        """Return the next recorded response. Raises ModelFailure if there is none."""
        rounds, n = self.ask.rounds, self._given
        if n >= len(rounds):
            text = f"the recorded turn has {len(rounds)} responses, and request {n + 1} has none"
            raise ModelFailure("no_recording", text)
        self._given += 1
        one = rounds[n]
        blocks = one.blocks
        if one.receipt != request.receipt:
            self.drift.append(n + 1)
            # Thinking is valid only with the recorded request.
            blocks = tuple(block for block in blocks if block.get("type") not in ("thinking", "redacted_thinking"))
            # The recorded calls may be part of the same history.
            known = request.request_bytes
            mark = request.receipt.rpartition(":")[2][:8]
            blocks = tuple(
                {**block, "id": f"{block['id']}-{mark}"} if f'"{block.get("id")}"'.encode() in known else block
                for block in blocks
            )
        for block in one.blocks:
            if block.get("type") == "text":
                on_event(TextDelta(str(block.get("text", ""))))
        return Response(one.response_id, one.request_id, one.model, blocks, one.stop_reason, one.usage, 0.0, None)

    def verdict(self, action: Action, place: int) -> Verdict | None:
        """Return the recorded decision; a cell without one is approved."""
        verdicts = self.ask.rounds[self._given - 1].verdicts if self._given else ()
        ruling, text = verdicts[place] if place < len(verdicts) else ("approved", "")
        return Verdict("", action.tool_call_id, ruling, text)


# -- as a file ---------------------------------------------------------------------------------------


def dump_turns(asks: Sequence[RecordedAsk]) -> str:
    """Return the text of a file of turns; text that looks like a credential is masked, as in the log."""
    rows = [
        {
            "key": ask.key,
            "question": ask.question,
            "rounds": [{name: getattr(one, name) for name in _ROUND_FIELDS} for one in ask.rounds],
        }
        for ask in asks
    ]
    made = masked_json({"ctxkernel_turns": VERSION, "asks": rows}, mask)
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def load_turns(text: str, name: str) -> list[RecordedAsk]:
    """Return the asks of a file of turns with the name `name`. Raises StoreError, which names the wrong place."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise StoreError(f"{name} is no file of recorded turns: {fault}") from None
    if not isinstance(data, dict) or cast("Any", data).get("ctxkernel_turns") != VERSION:
        raise StoreError(f"{name} is no file of recorded turns of version {VERSION}")
    at = "asks"
    try:
        asks: list[RecordedAsk] = []
        for n, ask in enumerate(cast("Any", data)["asks"]):
            at = f"asks[{n}]"
            rounds = [_round(one) for one in ask["rounds"]]
            asks.append(RecordedAsk(_text(ask["key"]), _text(ask["question"]), tuple(rounds)))
        return asks
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise StoreError(f"{name}: {at} is not of the form of a recorded ask ({fault!r})") from None


def _round(one: Any) -> Round:
    blocks = tuple(dict(block) for block in one["blocks"])
    verdicts: tuple[tuple[Ruling, str], ...] = tuple(
        (_ruling(ruling), _text(text)) for ruling, text in one.get("verdicts", ())
    )
    stop, usage = _text(one["stop_reason"]), dict(one.get("usage", {}))
    return Round(
        _text(one["receipt"]), _text(one["model"]), blocks, stop, usage, _text(one["response_id"]), verdicts=verdicts
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text")
    return value


def _ruling(value: Any) -> Ruling:
    if value not in ("approved", "edited", "rejected"):
        raise ValueError(f"invalid verdict {value!r}: expected 'approved', 'edited' or 'rejected'")
    return value
