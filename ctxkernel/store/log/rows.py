"""Values of the core as rows of a session, and back.

Rule 1: back(there(value)) == value, for every value of the core whose free parts are plain JSON (law 3).
Rule 2: pure: no connection here, no clock.
Rule 3: a text on its way into a row goes through a mask, or was masked by whoever made it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, cast, get_args

from ctxkernel.core.events import Delta, Event, Json
from ctxkernel.core.replay import Comparison, Divergence
from ctxkernel.core.timeline import (
    Artifact,
    ChangeInfo,
    Cost,
    ExceptionInfo,
    Execution,
    NamespaceDiff,
    Statement,
    TypeInfo,
)
from ctxkernel.core.turn import DeltaItem, HandleState
from ctxkernel.history.events import HistoryEvent, event_from_json, event_to_json
from ctxkernel.store.log.schema import Value

Row = tuple[Value, ...]
Mask = Callable[[str], str]
SUMMARY, NOT_SENT = "summary", "not sent"
"""The `ask_key` of requests for summaries, and the status of one that was given up before it went out."""

_NONE_DIFF = NamespaceDiff()


def unmasked(text: str) -> str:
    """Return `text` as it is."""
    return text


def mask_for(values: Iterable[object], mask: Mask) -> Mask:
    """Return `mask` where it finds something in the texts of `values`, however deep; else the identity.

    So the texts of a turn cost one look in the common case.
    """
    texts: list[str] = []
    for value in values:
        if value:  # most of what a turn may hold is empty
            plain(value, lambda text: texts.append(text) or text)
    joined = "\n".join(filter(None, texts))
    return mask if joined and mask(joined) != joined else unmasked


_ATOMS = frozenset({int, float, bool, type(None)})


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Return the fields of a dataclass, None for another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


def plain(value: Any, mask: Mask) -> Json:
    """Return `value` (dataclasses, mappings, sequences of JSON values) as JSON values, its texts masked."""
    kind = cast("type[Any]", type(value))
    if kind is str:
        return mask(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, Mapping):
        return {str(key): _named(str(key), item, mask) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(item, mask) for item in cast("Sequence[Any]", value)]
    if names := _names(kind):
        if kind is DeltaItem and mask(shown := _as_assignment(value)) != shown:
            value = replace(value, summary=value.summary[: _quote(value.summary)] + "[masked]", text="")
        return {name: plain(getattr(value, name), mask) for name in names}
    return _stranger(value)


def _as_assignment(item: DeltaItem | Divergence) -> str:
    """Return a line about a name (`db_password`: `new str '…'`) so that its name speaks for its value."""
    return f"{item.subject} = {item.summary[_quote(item.summary) :]}"


def _quote(summary: str) -> int:
    """Return where the first quoted text of a summary begins; its end where there is none."""
    found = [at for at in (summary.find("'"), summary.find('"')) if at >= 0]
    return min(found, default=len(summary))


def _stranger(value: object) -> Json:
    """Return JSON for what `json` does not know: a dataclass by its fields, and for the rest no more than the type.

    Not its repr: that may be code of the user's, and may hang.
    """
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    names = _names(type(value))
    return f"<{type(value).__name__}>" if names is None else {name: getattr(value, name) for name in names}


# ASCII only, so that a lone surrogate survives. Nothing here can hold itself.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_stranger).encode


def _named(name: str, value: Any, mask: Mask) -> Json:
    if type(value) is str:
        return _beside(name + "=", value, mask)
    out = plain(value, mask)
    if isinstance(value, TypeInfo | ChangeInfo):
        for part in ("repr", "before") if isinstance(value, ChangeInfo) else ("repr",):
            out[part] = _beside(name + " = ", getattr(value, part), mask)
    return out


def _beside(prefix: str, value: str, mask: Mask) -> str:
    """Return `value` masked as it would be after `prefix`, where a name may give away what the value is."""
    together = mask(prefix + value)
    return together.removeprefix(prefix) if together.startswith(prefix) else mask(value)


def dump(value: Any, mask: Mask = unmasked) -> str:
    """Return `value` as compact JSON text."""
    return _encode(value if mask is unmasked else plain(value, mask))


def address(text: str) -> str:
    """Return the content address of a text: its sha256 in hex, as a projection's record has it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def statement_row(statement: Statement, run: int, mask: Mask) -> Row:
    """Return the row of `statements`. A masked source is marked by the tag `masked`: a replay of it would differ."""
    source, tags = mask(statement.source), statement.tags
    if source != statement.source:
        tags = {**tags, "masked": True}
    ids = statement.index, statement.statement_id, run, float(statement.timestamp)
    about = statement.kind, statement.author, statement.parent_id, statement.cell_id
    return (*ids, source, *about, dump(tags, mask) if tags else "{}", statement.fingerprint)


def ending_row(
    seq: int,
    execution: Execution,
    mask: Mask,
    *,
    turn_id: int | None = None,
    nodes_base: int | None = None,
    deltas: Sequence[DeltaItem] = (),
) -> Row:
    """Return the row of `endings`, without a turn where there was none."""
    diff = execution.state_diff
    return (
        seq,
        None if execution.ended_at is None else float(execution.ended_at),
        execution.status,
        mask(execution.stdout),
        mask(execution.stderr),
        None if execution.exception is None else dump(execution.exception, mask),
        "{}" if diff == _NONE_DIFF else dump(diff, mask),
        dump(execution.cost),
        dump(execution.cut) if execution.cut else "{}",
        dump(execution.notices, mask) if execution.notices else "[]",
        turn_id,
        nodes_base,
        dump(deltas, mask) if deltas else "[]",
    )


def event_rows(seq: int, own: Sequence[Event], all_of_turn: Sequence[Event], mask: Mask) -> list[Row]:
    """Return the rows of `events`: the execution's own, and those that only the turn has."""
    known = {id(event) for event in own}
    rest = () if all_of_turn is own else [event for event in all_of_turn if id(event) not in known]
    rows: list[Row] = []
    for mine, events in ((1, own), (0, rest)):
        for event in events:
            obj_id = getattr(event, "obj_id", None) or getattr(event, "group_id", None)
            rows.append((seq, len(rows), mine, type(event).__name__, obj_id, dump(event, mask)))
    return rows


def artifact_rows(seq: int, artifacts: Sequence[Artifact], mask: Mask) -> tuple[list[Row], dict[str, str]]:
    """Return the rows of `artifacts` and the texts of their payloads by address."""
    rows: list[Row] = []
    texts: dict[str, str] = {}
    for n, one in enumerate(artifacts):
        block = None
        if one.data is not None:
            # Base64 holds no words, and a figure's worth of it is long.
            safe = unmasked if one.mime.startswith(("image/png", "image/jpeg", "image/gif")) else mask
            text = dump(one.data, safe)
            block = address(text)
            texts[block] = text
        rows.append((seq, n, one.kind, mask(one.name), one.mime, one.size, one.hash, block))
    return rows, texts


def node_row(seq: int, n: int, handle: HandleState, mask: Mask) -> tuple[Row, str]:
    """Return a row of `node_states`, and the rendered text that it addresses."""
    state = {name: getattr(handle, name) for name in _NODE_STATE}
    text = mask(handle.text)
    return (seq, n, handle.obj_id, handle.name, dump(state, mask), address(text)), text


_NODE_STATE = tuple(field.name for field in fields(HandleState) if field.name not in {"obj_id", "name", "text"})


def manifest_text(manifest: Mapping[str, Json], mask: Mask) -> str:
    """Return the text of a checkpoint's manifest. Reasons quote the user's values, so they are masked."""
    units = cast("Sequence[Mapping[str, Json]]", manifest.get("units", ()))
    if not any("m" in unit or "p" in unit for unit in units):
        return dump(manifest)
    safe = [{key: plain(value, mask) if key in ("m", "p") else value for key, value in one.items()} for one in units]
    return dump({**manifest, "units": safe})


def results_text(results: Mapping[str, Mapping[str, Json]], mask: Mask) -> str:
    """Return the text of what background jobs gave, masked in the same way."""
    return "{" + ",".join(f"{dump(job)}:{manifest_text(made, mask)}" for job, made in results.items()) + "}"


SAME, DIFFERS = "same", "differs"
"""The kinds of the row of `divergences` that begins a comparison; its divergences follow it."""


def comparison_rows(seq: int, against: int, made: Comparison, mask: Mask) -> list[Row]:
    """Return the rows of `divergences` of one comparison."""
    head = dump({"expected": made.expected, "time_ms": list(made.time_ms)})
    rows: list[Row] = [(seq, against, SAME if made.same else DIFFERS, "", head)]
    for one in made.divergences:
        name, summary = one.subject + " = ", one.summary
        if mask(shown := _as_assignment(one)) != shown:
            summary = summary[: _quote(summary)] + "[masked]"
        before, after = _beside(name, one.before, mask), _beside(name, one.after, mask)
        body = {"summary": mask(summary), "cause": one.cause, "before": before, "after": after}
        rows.append((seq, against, one.kind, mask(one.subject), dump(body)))
    return rows


def history_rows(seq: int, at: float, events: Iterable[HistoryEvent], mask: Mask) -> list[Row]:
    """Return the rows of `history`. A signed thought that would be masked is left out: it may only come back whole."""
    made: list[Row] = []
    for event in events:
        body = event_to_json(event)
        if body.get("thinking") and dump(body["thinking"], mask) != dump(body["thinking"]):
            body["thinking"] = []
        names = (getattr(event, "llm_response_id", None), getattr(event, "tool_call_id", None))
        made.append((event.event_id, seq, at, str(body.pop("type")), *names, dump(body, mask)))
    return made


def history_event_of(row: Mapping[str, Any]) -> HistoryEvent:
    """Return the event of a row of `history`. Raises BadHistory, ValueError."""
    return event_from_json({**json.loads(row["body"]), "type": row["kind"]})


def comparisons_of(rows: Iterable[Mapping[str, Any]], executions: Mapping[int, str]) -> list[Comparison]:
    """Return the comparisons of rows of `divergences` in the order of their ids; `executions` are ids by `seq`."""
    made: list[Comparison] = []
    for row in rows:
        body = json.loads(row["body"])
        if row["kind"] in (SAME, DIFFERS):
            before, after = body["time_ms"]
            ids = executions.get(row["seq"], ""), executions.get(row["against"], "")
            made.append(Comparison(*ids, (), bool(body["expected"]), (before, after)))
        elif made:
            found = Divergence(row["kind"], row["subject"], **body)
            made[-1] = replace(made[-1], divergences=(*made[-1].divergences, found))
    return made


def statement_of(row: Mapping[str, Any]) -> Statement:
    """Return the statement of a row of `statements`."""
    plain_ones = {name: row[name] for name in _STATEMENT}
    return Statement(index=row["idx"], tags=json.loads(row["tags"]), **plain_ones)


_STATEMENT = ["statement_id", "timestamp", "source", "kind", "author", "parent_id", "cell_id", "fingerprint"]


def execution_of(
    start: Mapping[str, Any],
    statement_id: str,
    ending: Mapping[str, Any] | None,
    events: Iterable[Event] = (),
    artifacts: Iterable[Artifact] = (),
    late: Mapping[str, str] | None = None,
) -> Execution:
    """Return the execution of a row of `executions` with what is known of its end; running, where nothing is."""
    begun = Execution(start["execution_id"], statement_id, start["parent_execution_id"], start["started_at"])
    if ending is None:
        return begun
    exception = ending["exception"]
    return replace(
        begun,
        **{name: ending[name] for name in ("ended_at", "status", "stdout", "stderr")},
        exception=None if exception is None else ExceptionInfo(**json.loads(exception)),
        events=tuple(events),
        state_diff=diff_of(json.loads(ending["state_diff"])),
        artifacts=tuple(artifacts),
        cost=Cost(**json.loads(ending["cost"])),
        cut=json.loads(ending["cut"]),
        late=late or {},
        notices=tuple(json.loads(ending["notices"])),
    )


def diff_of(value: Mapping[str, Any]) -> NamespaceDiff:
    """Return the namespace diff of its JSON."""
    if not value:
        return _NONE_DIFF
    return NamespaceDiff(
        added={name: TypeInfo(**info) for name, info in value["added"].items()},
        changed={name: ChangeInfo(**info) for name, info in value["changed"].items()},
        deleted=tuple(value["deleted"]),
        incomplete=value["incomplete"],
    )


_EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}


def event_of(row: Mapping[str, Any]) -> Event:
    """Return the event of a row of `events`. Raises KeyError for a type that this version does not know."""
    body: dict[str, Any] = json.loads(row["body"])
    if "delta" in body:
        delta = body["delta"]
        pairs = {name: tuple(pair) for name, pair in delta["fields"].items()}
        body["delta"] = Delta(delta["summary"], pairs, delta["text"])
    if "args" in body:
        body["args"] = tuple(body["args"])
    return _EVENTS[row["type"]](**body)


def artifact_of(row: Mapping[str, Any], text: str | None) -> Artifact:
    """Return the artifact of a row of `artifacts` and the text of its block."""
    data = None if text is None else json.loads(text)
    return Artifact(row["kind"], row["name"], row["mime"], row["size"], row["sha"], data)


def handle_of(row: Mapping[str, Any], text: str, *, same_turn: bool) -> HandleState:
    """Return the handle of a row of `node_states`. In a later turn it is neither changed nor asked for."""
    state: dict[str, Any] = json.loads(row["state"])
    if not same_turn:
        state["changed"] = state["requested"] = False
    state |= {name: tuple(state[name]) for name in ("members", "notes")}
    return HandleState(name=row["name"], obj_id=row["obj_id"], text=text, **state)
