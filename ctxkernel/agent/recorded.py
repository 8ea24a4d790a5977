"""Recorded turns: the answers of a model, and a stand-in for the model that repeats them.

Rule 1: an ask is found by its position among the asks before it and by its question, else by its question in the same
        cell. If its cells have other results now, the requests differ from the recorded ones. That is reported as
        drift, not refused.
Rule 2: a recorded turn that ends too early is an error that names the request without an answer.
Rule 3: a file of turns may be a stranger's: it is read with bounds, and an error names the place that is not of the
        expected form.
Rule 4: an ask that the user neither recorded nor trusts decides nothing: its approvals and edits do not count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from ctxkernel.agent.failures import ModelFailure
from ctxkernel.agent.streaming import Response, StreamEvent, TextDelta, UsageReport
from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.errors import StoreError
from ctxkernel.core.json_input import load_json
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.history.events import Action, AssistantMessage, HistoryEvent, Ruling, UserQuestion, Verdict
from ctxkernel.projection.dialect import RUN_CELL
from ctxkernel.projection.secrets import mask
from ctxkernel.projection.value import Projection
from ctxkernel.store.log.row_masking import masked_json
from ctxkernel.store.log.rows import SUMMARY

VERSION = 1
ROUND_FIELDS = ("receipt", "model", "stop_reason", "usage", "response_id", "blocks", "verdicts")
"""The fields of a round in a file of turns, in order."""
SUFFIX = ".turns.json"
"""The file of a notebook's recorded turns has this instead of `.ipynb`."""
MOST_BYTES = 8 * 1024 * 1024
"""Largest file of turns that is read."""
_MOST_ENTRIES = 1000
"""Most asks of a file, rounds of an ask, blocks and verdicts of a round."""
_MOST_DEPTH = 32
_MOST_NAME = 1000
"""Most characters of a name, an id or a receipt."""
_KEY = re.compile(r"[0-9]{1,9}:[0-9a-f]{16}")


def ask_key(position: int, question: str) -> str:
    """Return the key of an ask: its position among the asks, and a hash of its question."""
    digest = hashlib.sha256(question.strip().encode("utf-8", "surrogatepass")).hexdigest()
    return f"{position}:{digest[:16]}"


RecordedRuling = tuple[Ruling, str]
"""A ruling, and its reason or code."""


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
    verdicts: tuple[RecordedRuling, ...] = ()
    """The decision on each cell of the response, in order."""


@dataclass(frozen=True, slots=True)
class RecordedAsk:
    """An ask, and its rounds."""

    key: str
    question: str
    rounds: tuple[Round, ...]
    cell_id: str | None = None
    execution_id: str = ""
    source: str = ""
    """The file that it is from."""
    trusted: bool = False
    """Whether the user recorded it, or trusts its source."""

    @property
    def answered(self) -> bool:
        """Return whether its last response has no calls."""
        return bool(self.rounds) and self.rounds[-1].stop_reason not in ("tool_use", "pause_turn", "")


def find_recorded(
    asks: Iterable[RecordedAsk], key: str, question: str, cell_id: str | None = None
) -> RecordedAsk | None:
    """Return the newest answered ask with the question in the same cell, else with the key; a trusted one first."""
    digest = ask_key(0, question).partition(":")[2]
    same = [one for one in asks if one.answered and one.key.partition(":")[2] == digest]
    for trusted in (True, False):
        of_kind = [one for one in same if one.trusted == trusted]
        by_key = [one for one in of_kind if one.key == key]
        by_cell = [one for one in of_kind if cell_id is not None and one.cell_id == cell_id]
        if found := by_cell or by_key:
            return found[-1]
    return None


class _Decisions:
    """The questions of a history, and the decisions on the cells of each response."""

    def __init__(self, records: Iterable[tuple[str, Sequence[HistoryEvent]]]) -> None:
        """`records` are the events of each execution, in order."""
        self.questions: dict[str, str] = {}
        self._batches: dict[str, list[tuple[str, list[str]]]] = {}  # by ask: the cells of each response
        self._verdicts: dict[tuple[str, str], list[RecordedRuling]] = {}  # in order: ids may come again
        ask = ""
        for execution_id, events in records:
            for event in events:
                match event:
                    case UserQuestion():
                        ask = execution_id
                        self.questions[ask] = event.text
                    case Action() if event.tool_name == RUN_CELL:
                        made = self._batches.setdefault(ask, [])
                        if not made or made[-1][0] != event.llm_response_id:
                            made.append((event.llm_response_id, []))
                        made[-1][1].append(event.tool_call_id)
                    case Verdict():
                        self._verdicts.setdefault((ask, event.tool_call_id), []).append((event.ruling, event.text))
                    case _:
                        pass

    def take(self, ask: str, response_id: str, otherwise: RecordedRuling) -> tuple[RecordedRuling, ...]:
        """Return the decisions on the cells of the next response with this id; `otherwise` for cells without one."""
        waiting = self._batches.get(ask, [])
        at = next((n for n, (batch, _) in enumerate(waiting) if batch.partition("~")[0] == response_id), -1)
        calls = waiting.pop(at)[1] if at >= 0 else []
        given = [self._verdicts.get((ask, call), []) for call in calls]
        return tuple(one.pop(0) if one else otherwise for one in given)


def of_session(requests: Iterable[Mapping[str, Any]], records: Mapping[str, Sequence[Any]]) -> list[RecordedAsk]:
    """Return the asks of a session, from `SessionReader.requests()` and the events of each execution.

    An ask with a response that is not of the expected form is left out.
    """
    decisions = _Decisions(records.items())
    asks: dict[str, RecordedAsk] = {}
    unfit: set[str] = set()
    for row in requests:
        name = row["execution_id"]
        if row["status"] != "ok" or name not in decisions.questions or row["ask_key"] == SUMMARY:
            continue
        try:
            one = _stored_round(row)
        except _Misfit:
            unfit.add(name)
            continue
        decided = decisions.take(name, one.response_id, ("approved", ""))
        before = asks.get(name) or RecordedAsk(row["ask_key"], decisions.questions[name], (), row["cell_id"], name)
        asks[name] = replace(before, rounds=(*before.rounds, replace(one, verdicts=decided)))
    return [ask for name, ask in asks.items() if name not in unfit]


def _stored_round(row: Mapping[str, Any]) -> Round:
    """Return the round of a request and its response in a session. Raises _Misfit."""
    body = row["body"]
    fields = {
        "receipt": row["receipt"],
        "model": row["model"],
        "stop_reason": row["stop_reason"] or "",
        "usage": row["usage"],
        "response_id": _field(body, "id", "body"),
        "blocks": body.get("blocks", []),
    }
    return replace(_round(fields, "response"), request_id=str(row["request_id"] or ""))


def has_decisions(ask: RecordedAsk, records: Mapping[str, Sequence[HistoryEvent]]) -> bool:
    """Return whether the decisions of an ask are those in `records`, the events of each execution."""
    decisions = _Decisions(records.items())
    name = ask.execution_id
    return all(one.verdicts == decisions.take(name, one.response_id, ("approved", "")) for one in ask.rounds)


HistoryRecords = Mapping[str, Sequence[HistoryEvent]]
Path = Iterable[tuple[Statement, Execution]]


def questions(path: Path, records: HistoryRecords) -> Iterator[tuple[Statement, Execution, str, int]]:
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


def position_of(statement: Statement, path: Path, records: HistoryRecords) -> int:
    """Return the position of a new ask at the end of `path`."""
    found = [(one.cell_id, position) for one, _, _, position in questions(path, records)]
    same = [position for cell_id, position in found if cell_id is not None and cell_id == statement.cell_id]
    return same[0] if same else max((position + 1 for _, position in found), default=0)


_NOT_RUN: RecordedRuling = ("rejected", "it was not run")


def of_path(
    path: Sequence[tuple[Statement, Execution]],
    records: HistoryRecords,
    known: Sequence[RecordedAsk],
    receipts: Mapping[str, str],
) -> tuple[list[RecordedAsk], list[str]]:
    """Return the answered asks of a path with their current positions and requests, and the questions of the others.

    Of a cell that asked again the last ask counts. `known` are the asks whose responses are stored, the newest last;
    `receipts` are those of projections, by execution. The decisions of an untrusted ask are those that the user made on
    this path.
    """
    decisions = _Decisions((run.execution_id, records.get(run.execution_id, ())) for _, run in path)
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
        rounds = [replace(one, receipt=sent) for one, (sent, _) in zip(found.rounds, responses, strict=True)]
        if not found.trusted:
            name = ask.execution_id
            rounds = [replace(one, verdicts=decisions.take(name, one.response_id, _NOT_RUN)) for one in rounds]
        made[ask.key.partition(":")[0]] = replace(ask, rounds=tuple(rounds))
    return list(made.values()), left


def _response_id(events: Iterable[HistoryEvent]) -> str:
    batches = (event.llm_response_id for event in events if isinstance(event, Action | AssistantMessage))
    return next(batches, "").partition("~")[0]


def _is_response(one: Round, response_id: str) -> bool:
    """Return whether a response on the path is that of a round. An empty response has no event with its id."""
    said = any(block.get("type") == "tool_use" or str(block.get("text", "")).strip() for block in one.blocks)
    return one.response_id == response_id or (not said and not response_id)


def _same(known: Sequence[RecordedAsk], ask: RecordedAsk, responses: Sequence[str]) -> RecordedAsk | None:
    """Return the answered ask with these responses: this one itself, else the newest that it may have replayed."""
    fits = [
        one
        for one in known
        if one.answered
        and one.question == ask.question
        and len(one.rounds) == len(responses)
        and all(map(_is_response, one.rounds, responses))
    ]
    return next((one for one in fits if one.execution_id == ask.execution_id), fits[-1] if fits else None)


class Recorded:
    """Repeats the recorded answers of a model."""

    live = False

    def __init__(self, ask: RecordedAsk) -> None:
        self.ask = ask
        self.trusted = ask.trusted
        self.drift: list[int] = []
        """The requests, numbered from 1, that differ from the recorded ones."""
        self._given = 0

    async def send(self, request: Projection, on_event: Callable[[StreamEvent | UsageReport], None]) -> Response:
        """Return the next recorded response. Raises ModelFailure if there is none."""
        rounds, n = self.ask.rounds, self._given
        if n >= len(rounds):
            text = f"the recorded turn has {len(rounds)} responses, and request {n + 1} has none"
            raise ModelFailure("no_recording", text)
        self._given += 1
        one = rounds[n]
        blocks = one.blocks
        drift = one.receipt != request.receipt
        if drift or not self.trusted:
            # Thinking is valid only with the recorded request, and is sent again as it is.
            blocks = tuple(block for block in blocks if block.get("type") not in ("thinking", "redacted_thinking"))
        if drift:
            self.drift.append(n + 1)
            # The recorded calls may be part of the same history.
            known = request.request_bytes
            mark = request.receipt.rpartition(":")[2][:8]
            blocks = tuple(
                {**block, "id": f"{block['id']}-{mark}"}
                if "id" in block and json.dumps(block["id"]).encode() in known
                else block
                for block in blocks
            )
        for block in one.blocks:
            if block.get("type") == "text":
                on_event(TextDelta(str(block.get("text", ""))))
        return Response(one.response_id, one.request_id, one.model, blocks, one.stop_reason, one.usage, 0.0, None)

    def verdict(self, action: Action, place: int) -> Verdict | None:
        """Return the recorded decision; a cell without one is approved. An untrusted ask decides nothing."""
        if not self.trusted:
            return None
        verdicts = self.ask.rounds[self._given - 1].verdicts if self._given else ()
        ruling, text = verdicts[place] if place < len(verdicts) else ("approved", "")
        return Verdict("", action.tool_call_id, ruling, text)


# -- as a file ---------------------------------------------------------------------------------------


def dump_turns(asks: Sequence[RecordedAsk], mask: Callable[[str], str] = mask) -> str:
    """Return the text of a file of turns; text that looks like a credential is masked, as in the log."""
    rows = [
        {
            "key": ask.key,
            "question": ask.question,
            "rounds": [{name: getattr(one, name) for name in ROUND_FIELDS} for one in ask.rounds],
        }
        for ask in asks
    ]
    made = masked_json({"ctxkernel_turns": VERSION, "asks": rows}, mask)
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def load_turns(text: str, name: str) -> list[RecordedAsk]:
    """Return the asks of a file of turns with the name `name`. Raises StoreError, which names the wrong place."""
    try:
        data = load_json(text, most_bytes=MOST_BYTES, most_depth=_MOST_DEPTH)
    except ValueError as fault:
        raise StoreError(f"{name} is no file of recorded turns: {fault}") from None
    if not isinstance(data, dict) or cast("Any", data).get("ctxkernel_turns") != VERSION:
        raise StoreError(f"{name} is no file of recorded turns of version {VERSION}")
    try:
        return [_ask(one, f"asks[{n}]") for n, one in enumerate(_entries(data, "asks", ""))]
    except _Misfit as fault:
        raise StoreError(f"{name}: {fault}") from None


class _Misfit(ValueError):
    """A part of recorded turns is not of the expected form."""


def _ask(row: Any, at: str) -> RecordedAsk:
    key = _text(row, "key", at, most=_MOST_NAME)
    if not _KEY.fullmatch(key):
        raise _Misfit(f"{at}.key is not of the form of a key: position, colon, 16 hexadecimal digits")
    rounds = [_round(one, f"{at}.rounds[{n}]") for n, one in enumerate(_entries(row, "rounds", at))]
    return RecordedAsk(key, _text(row, "question", at), tuple(rounds))


def _round(row: Any, at: str) -> Round:
    names = [_text(row, name, at, most=_MOST_NAME) for name in ("receipt", "model", "stop_reason", "response_id")]
    blocks = [_block(one, f"{at}.blocks[{n}]") for n, one in enumerate(_entries(row, "blocks", at))]
    given = _entries(row, "verdicts", at) if "verdicts" in row else []
    verdicts = [_verdict(one, f"{at}.verdicts[{n}]") for n, one in enumerate(given)]
    usage = row.get("usage", {})
    if not isinstance(usage, dict):
        raise _Misfit(f"{at}.usage is no object")
    receipt, model, stop_reason, response_id = names
    usage = cast("dict[str, Any]", usage)
    return Round(receipt, model, tuple(blocks), stop_reason, usage, response_id, verdicts=tuple(verdicts))


_BLOCK_TEXTS = {
    "text": ("text",),
    "tool_use": ("id", "name"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
"""Type of a block → its texts."""


def _block(row: Any, at: str) -> Mapping[str, Any]:
    kind = _text(row, "type", at, most=_MOST_NAME)
    for name in _BLOCK_TEXTS.get(kind, ()):
        _text(row, name, at, most=_MOST_NAME if kind == "tool_use" else MOST_BYTES)
    return row


def _verdict(row: Any, at: str) -> RecordedRuling:
    ruling, text = cast("Any", row if isinstance(row, list | tuple) and len(cast("Any", row)) == 2 else (None, None))
    if ruling not in ("approved", "edited", "rejected"):
        raise _Misfit(f"{at}: invalid verdict: expected 'approved', 'edited' or 'rejected', and a text")
    if not isinstance(text, str):
        raise _Misfit(f"{at}[1] is not a text")
    return ruling, text


def _field(row: Any, name: str, at: str) -> Any:
    if not isinstance(row, dict):
        raise _Misfit(f"{at} is no object")
    if name not in row:
        raise _Misfit(f"{f'{at}.' * bool(at)}{name} is missing")
    return cast("Any", row)[name]


def _text(row: Any, name: str, at: str, *, most: int = MOST_BYTES) -> str:
    value = _field(row, name, at)
    if not isinstance(value, str):
        raise _Misfit(f"{at}.{name} is not a text")
    if len(value) > most:
        raise _Misfit(f"{at}.{name} has more than {most:,} characters")
    return value


def _entries(row: Any, name: str, at: str) -> list[Any]:
    value = _field(row, name, at)
    place = f"{f'{at}.' * bool(at)}{name}"
    if not isinstance(value, list):
        raise _Misfit(f"{place} is no list")
    entries = cast("list[Any]", value)
    if len(entries) > _MOST_ENTRIES:
        raise _Misfit(f"{place} has more than {_MOST_ENTRIES:,} entries")
    return entries
