"""Rows of a session from values of the core, and back; checksums; differences between successive turns.

Rule 1: A value that became a row and is read back is equal, for every value of the core whose free parts are plain
        JSON (law 3).
Rule 2: No connection and no clock is used here.
Rule 3: A text on its way into a row is masked here, or was masked by the caller.
Rule 4: Turns build on each other: handles and projections are stored as differences to the turn before, so a turn
        stores only its changes. A chain of differences has at most CHAIN links, so reading stays short. After rows were
        lost, the caller begins new series.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, cast, get_args

from xxhash import xxh3_64_intdigest

from ctxkernel.core.dataclasses import dataclass, fields, replace
from ctxkernel.core.json_input import load_json
from ctxkernel.core.masking import Mask
from ctxkernel.core.replay import Comparison, Divergence
from ctxkernel.core.timeline import (
    Artifact,
    Cost,
    ExceptionInfo,
    Execution,
    NamespaceDiff,
    Statement,
    Status,
)
from ctxkernel.core.timeline_events import NONE, Event, Json
from ctxkernel.core.turn_values import DeltaItem, HandleState
from ctxkernel.core.typed_json import read_json
from ctxkernel.history.events import HistoryEvent, event_from_json, event_to_json
from ctxkernel.history.responses import as_it_came
from ctxkernel.store.chunks.manifest import FACT_KEYS
from ctxkernel.store.log.row_masking import (
    as_assignment,
    dump_json,
    first_quote,
    mask_for,
    mask_named,
    masked_json,
    unmasked,
)
from ctxkernel.store.log.schema import ColumnValue
from ctxkernel.store.signatures import RowSigner

Row = tuple[ColumnValue, ...]
Rows = list[tuple[str, Row]]
"""Rows, each with its table."""
SUMMARY, NOT_SENT = "summary", "not sent"
"""The `ask_key` of requests for summaries, and the status of a request that was given up before it was sent."""
REQUEST = "request"
"""`request <id>` is the subject of a mark of a request to a model."""
CHAIN = 64

_NONE_DIFF = NamespaceDiff()


class Batch(NamedTuple):
    """Rows of one transaction, with their checksums and signatures."""

    rows: Rows
    nbytes: int
    """The bytes of the rows as text."""


def with_signature(rows: Iterable[tuple[str, Row]], sign: RowSigner) -> Batch:
    """Return rows with their checksum and their signature as the last values.

    The checksum is 63 bits of xxh3 over the texts of the values. A text of `blocks` has no signature: its address is
    its hash.
    """
    made: Rows = []
    nbytes = 0
    for table, row in rows:
        text = "\x1f".join(map(str, row)).encode("utf-8", "surrogatepass")
        made.append((table, (*row, xxh3_64_intdigest(text) >> 1, None if table == "blocks" else sign(table, row))))
        nbytes += len(text)
    return Batch(made, nbytes)


def text_address(text: str) -> str:
    """Return the content address of a text: its sha256 in hex, as in the record of a projection."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def statement_row(statement: Statement, run: int, mask: Mask) -> Row:
    """Return the row of `statements`. A masked source gets the tag `masked`, since its replay would differ."""
    source, tags = mask(statement.source), statement.tags
    if source != statement.source:
        tags = {**tags, "masked": True}
    ids = statement.index, statement.statement_id, run, float(statement.timestamp)
    about = statement.kind, statement.author, statement.parent_id, statement.cell_id
    return (*ids, source, *about, dump_json(tags, mask) if tags else "{}", statement.fingerprint)


def ending_row(
    seq: int,
    execution: Execution,
    mask: Mask,
    *,
    turn_id: int | None = None,
    nodes_base: int | None = None,
    deltas: Sequence[DeltaItem] = (),
) -> Row:
    """Return the row of `endings`; without `turn_id` it is not the end of a turn."""
    diff = execution.state_diff
    return (
        seq,
        None if execution.ended_at is None else float(execution.ended_at),
        execution.status,
        mask(execution.stdout),
        mask(execution.stderr),
        None if execution.exception is None else dump_json(execution.exception, mask),
        "{}" if diff == _NONE_DIFF else dump_json(diff, mask),
        dump_json(execution.cost),
        dump_json(execution.cut) if execution.cut else "{}",
        dump_json(execution.notices, mask) if execution.notices else "[]",
        turn_id,
        nodes_base,
        dump_json(deltas, mask) if deltas else "[]",
    )


def event_rows(seq: int, own: Sequence[Event], all_of_turn: Sequence[Event], mask: Mask) -> Rows:
    """Return the rows of `events`: the events of the execution, then those that only the turn has."""
    known = set(map(id, own))
    made: Rows = []
    for event in (*own, *all_of_turn):
        mine = len(made) < len(own)
        if mine or id(event) not in known:
            obj_id = getattr(event, "obj_id", None) or getattr(event, "group_id", None)
            made.append(("events", (seq, len(made), int(mine), type(event).__name__, obj_id, dump_json(event, mask))))
    return made


def artifact_rows(seq: int, artifacts: Sequence[Artifact], mask: Mask) -> Rows:
    """Return the rows of `artifacts`, with those of their payloads."""
    made: Rows = []
    for n, one in enumerate(artifacts):
        block = None
        if one.data is not None:
            # Base64 of an image contains no words, and is long.
            safe = unmasked if one.mime.startswith(("image/png", "image/jpeg", "image/gif")) else mask
            text = dump_json(one.data, safe)
            block = text_address(text)
            made.append(("blocks", (block, text)))
        made.append(("artifacts", (seq, n, one.kind, mask(one.name), one.mime, one.size, one.hash, block)))
    return made


_NODE_STATE = tuple(field.name for field in fields(HandleState) if field.name not in {"obj_id", "name", "text"})
_lasting = operator.attrgetter(
    *("text", "digest", "name", "pinned", "pin_reason", "members", "notes", "rendered_tokens", "statement_id"),
    "obj_type",
)
"""Returns the facts of a handle that hold for more than its turn."""


class HandleSeries:
    """The handles after each turn, for `node_states` and `endings.nodes_base`."""

    def __init__(self) -> None:
        self.base: int | None = None
        """The newest turn with rows; None if the next turn stores all handles."""
        self._last: Mapping[str, HandleState] = {}
        self._length = 0

    def rows(self, seq: int, handles: Sequence[HandleState], mask: Mask) -> tuple[int | None, Rows]:
        """Return `nodes_base` of turn `seq`, and its rows of `node_states` with those of their texts."""
        last = self._last
        if not handles and not last:
            return self.base, []
        now = {one.obj_id: one for one in handles}
        # Rows can remove a handle, replace it in place and add one at the end; another order is stored whole.
        in_order = list(now) == [*(key for key in last if key in now), *(key for key in now if key not in last)]
        whole = self.base is None or self._length >= CHAIN or not in_order
        gone = [] if whole else [one for key, one in last.items() if key not in now]
        changed = [
            one
            for one in handles
            if whole
            or one.changed
            or one.requested
            or one.obj_id not in last
            or _lasting(last[one.obj_id]) != _lasting(one)
        ]
        self._last = now
        if not (changed or gone or whole):
            return self.base, []
        mask = mask_for(changed, mask)
        made: Rows = [("node_states", (seq, n, one.obj_id, one.name, None, None)) for n, one in enumerate(gone)]
        for n, one in enumerate(changed, len(gone)):
            state = {name: getattr(one, name) for name in _NODE_STATE}
            text = mask(one.text)
            block = text_address(text)
            made.append(("node_states", (seq, n, one.obj_id, one.name, dump_json(state, mask), block)))
            made.append(("blocks", (block, text)))
        base = seq if whole else self.base
        self.base, self._length = seq, 0 if whole else self._length + 1
        return base, made


class RecordSeries:
    """The projections, for `projections.base` and `projections.record`."""

    def __init__(self) -> None:
        self._base: int | None = None
        self._last: Record = {}
        self._length = 0

    def next(self, seq: int, record: Record) -> tuple[int | None, str]:
        """Return `base` and `record` of the projection of turn `seq`."""
        delta = None if self._base is None or self._length >= CHAIN else compress(self._last, record)
        base = None if delta is None else self._base
        self._last, self._base, self._length = record, seq, 0 if delta is None else self._length + 1
        return base, dump_json(record if delta is None else delta)


Record = Mapping[str, Json]


def compress(base: Record, new: Record) -> dict[str, Json] | None:
    """Return `{key: [n, rest]}` for each key that differs: the first n items of the base's list, then `rest`.

    n is -1 if the value is `rest` itself. Return None if `new` lacks a key of `base`, which no delta can express.
    Values that are equal count as the same (1 and 1.0). `restore(base, compress(base, new)) == new` always holds.
    """
    if not base.keys() <= new.keys():
        return None
    out: dict[str, Json] = {}
    for key, value in new.items():
        old = base.get(key)
        if old == value and key in base:
            continue
        n = 0
        if isinstance(old, list) and isinstance(value, list):  # the lists of a record grow at their end
            equal = map(operator.eq, cast("list[Json]", old), cast("list[Json]", value))
            n = len(list(takewhile(bool, equal)))
        out[key] = [n, value[n:]] if n else [-1, value]
    return out


def restore(base: Record, delta: Record) -> dict[str, Json]:
    """Return the object that `compress(base, …)` made `delta` of. Raises KeyError, TypeError, ValueError."""
    out = dict(base)
    for key, (n, rest) in delta.items():
        out[key] = rest if n < 0 else base[key][:n] + rest
    return out


_REASONS = (FACT_KEYS["unknown"], FACT_KEYS["opaque"])


def manifest_text(manifest: Mapping[str, Json], mask: Mask) -> str:
    """Return the text of a checkpoint's manifest. Reasons quote the user's values, so they are masked."""
    text = dump_json(manifest)
    facts = cast("Mapping[str, Json]", manifest.get("r") or {})
    if '"m":' not in text and '"p":' not in text and facts.keys().isdisjoint(_REASONS):
        return text
    units = cast("Sequence[Mapping[str, Json]]", manifest.get("units", ()))
    safe: dict[str, Json] = {"units": [_masked_fields(one, "mp", mask) for one in units]}
    if facts:
        safe["r"] = _masked_fields(facts, _REASONS, mask)
    return dump_json({**manifest, **safe})


def _masked_fields(value: Mapping[str, Json], fields: Collection[str], mask: Mask) -> dict[str, Json]:
    return {key: masked_json(one, mask) if key in fields else one for key, one in value.items()}


def results_text(results: Mapping[str, Mapping[str, Json]], mask: Mask) -> str:
    """Return the text of the results of background jobs, masked in the same way."""
    return "{" + ",".join(f"{dump_json(job)}:{manifest_text(made, mask)}" for job, made in results.items()) + "}"


SAME, DIFFERS = "same", "differs"
"""The kinds of the row of `divergences` that begins a comparison; its divergences follow it."""


def comparison_rows(seq: int, against: int, made: Comparison, mask: Mask) -> Rows:
    """Return the rows of `divergences` of one comparison."""
    head = dump_json({"expected": made.expected, "time_ms": list(made.time_ms)})
    rows: list[Row] = [(seq, against, SAME if made.same else DIFFERS, "", head)]
    for one in made.divergences:
        name, summary = one.subject + " = ", one.summary
        if mask(shown := as_assignment(one)) != shown:
            summary = summary[: first_quote(summary)] + "[masked]"
        before, after = mask_named(name, one.before, mask), mask_named(name, one.after, mask)
        body: dict[str, Json] = {"summary": mask(summary), "cause": one.cause, "before": before, "after": after}
        if one.detail is not None and mask(shown) == shown:
            body["detail"] = one.detail.masked(mask).to_json()
        rows.append((seq, against, one.kind, mask(one.subject), dump_json(body)))
    return [("divergences", row) for row in rows]


def history_rows(seq: int, at: float, events: Iterable[HistoryEvent], mask: Mask) -> Rows:
    """Return the rows of `history`, without the blocks of a response with a secret: it does not go back as it came."""
    made: Rows = []
    for event in events:
        body = event_to_json(event)
        kind, blocks = str(body.pop("type")), body.pop("blocks", None)
        text = dump_json(body, mask)
        if blocks and all(as_it_came(block, mask) for block in cast("list[dict[str, Json]]", blocks)):
            text = f'{text[:-1]},"blocks":{dump_json(blocks)}}}'
        names = (getattr(event, "llm_response_id", None), getattr(event, "tool_call_id", None))
        made.append(("history", (event.event_id, seq, at, kind, *names, text)))
    return made


def history_event_from_row(row: Mapping[str, Any]) -> HistoryEvent:
    """Return the event of a row of `history`. Raises BadHistory, ValueError."""
    body = read_json(dict[str, Any], loaded(row["body"]), "the event")
    return event_from_json({**body, "type": row["kind"]})


def comparisons_from_rows(rows: Iterable[Mapping[str, Any]], executions: Mapping[int, str]) -> list[Comparison]:
    """Return the comparisons of rows of `divergences` in the order of their ids; `executions` are ids by `seq`.

    Raises ValueError.
    """
    made: list[Comparison] = []
    for row in rows:
        body = read_json(dict[str, Any], loaded(row["body"]), "the comparison")
        if row["kind"] in (SAME, DIFFERS):
            ids = {"execution_id": executions.get(row["seq"], ""), "against": executions.get(row["against"], "")}
            made.append(read_json(Comparison, {**body, **ids, "divergences": ()}))
        elif made:
            found = read_json(Divergence, {**body, "kind": row["kind"], "subject": row["subject"]})
            made[-1] = replace(made[-1], divergences=(*made[-1].divergences, found))
    return made


def statement_from_row(row: Mapping[str, Any]) -> Statement:
    """Return the statement of a row of `statements`. Raises ValueError."""
    tags = loaded(row["tags"])
    return read_json(Statement, {**{name: row[name] for name in _STATEMENT}, "index": row["idx"], "tags": tags})


_STATEMENT = ["statement_id", "timestamp", "source", "kind", "author", "parent_id", "cell_id", "fingerprint"]


def execution_from_row(
    start: Mapping[str, Any],
    statement_id: str,
    ending: Mapping[str, Any] | None,
    events: Iterable[Event] = (),
    artifacts: Iterable[Artifact] = (),
    late: Mapping[str, str] | None = None,
    late_diff: NamespaceDiff | None = None,
) -> Execution:
    """Return the execution of a row of `executions`; without an `ending` it is running. Raises ValueError."""
    begun = Execution(start["execution_id"], statement_id, start["parent_execution_id"], start["started_at"])
    if ending is None:
        return begun
    given = {name: text for name in _ENDING if (text := ending[name]) is not None and text != _EMPTY.get(name)}
    found = {name: loaded(text) if name in _EMPTY else text for name, text in given.items()}
    ended = read_json(_Ending, found)
    return Execution(
        *(start["execution_id"], statement_id, start["parent_execution_id"], start["started_at"]),
        *(ended.ended_at, ended.status, ended.stdout, ended.stderr, ended.exception, tuple(events), ended.state_diff),
        *(tuple(artifacts), ended.cost, ended.cut, late or {}, ended.notices, late_diff),
    )


@dataclass(frozen=True, slots=True)
class _Ending:
    """The fields of an execution that its row of `endings` has."""

    status: Status
    stdout: str
    stderr: str
    cost: Cost
    ended_at: float | None = None
    exception: ExceptionInfo | None = None
    state_diff: NamespaceDiff = _NONE_DIFF
    cut: Mapping[str, int] = NONE
    notices: tuple[str, ...] = ()


def brief_execution(start: Mapping[str, Any], end: Sequence[Any] | None) -> Execution:
    """Return the place, times and status of an execution; `end` are the last two columns, None while it runs."""
    ended_at, status = end or (None, "running")
    known: Status = status if status in get_args(Status) else "cancelled"
    ids = start["execution_id"], start["execution_id"].rpartition(".")[0], start["parent_execution_id"]
    return Execution(*ids, start["started_at"], ended_at if isinstance(ended_at, float) else None, known)


_ENDING = tuple(field.name for field in fields(_Ending))
_EMPTY = {"exception": "", "state_diff": "{}", "cost": "", "cut": "{}", "notices": "[]"}
"""The columns of `endings` with JSON → the text of most rows, which is not parsed."""


_EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


def event_from_row(row: Mapping[str, Any]) -> Event:
    """Return the event of a row of `events`. Raises KeyError for a type that this version does not know, ValueError."""
    return read_json(_EVENTS[row["type"]], loaded(row["body"]))


def artifact_from_row(row: Mapping[str, Any], text: str | None) -> Artifact:
    """Return the artifact of a row of `artifacts` and the text of its block. Raises ValueError."""
    names = {name: row[name] for name in ("kind", "name", "mime", "size")}
    return read_json(Artifact, {**names, "hash": row["sha"], "data": None if text is None else loaded(text)})


def handle_from_row(row: Mapping[str, Any], text: str, *, same_turn: bool) -> HandleState:
    """Return the handle of a row of `node_states`. In a later turn it is neither changed nor requested.

    Raises ValueError.
    """
    state = read_json(dict[str, Any], loaded(row["state"]), "the handle")
    if not same_turn:
        state = {**state, "changed": False, "requested": False}
    return read_json(HandleState, {**state, "name": row["name"], "obj_id": row["obj_id"], "text": text})


_MOST_DEPTH = 500
"""Nested lists and objects: the interpreter's own limit is about a thousand."""
_MOST_BYTES = 10**9


def loaded(text: object) -> Json:
    """Return the JSON of a column. Raises ValueError."""
    return load_json(text, most_bytes=_MOST_BYTES, most_depth=_MOST_DEPTH, infinite=True)
