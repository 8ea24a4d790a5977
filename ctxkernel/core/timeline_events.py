"""The events of a timeline, as frozen facts in the past tense. The seven kinds are those of seed 002 §3.3.

Rule: an event is never changed after it was made, and holds plain JSON values only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass

Json = Any  # None | bool | int | float | str | list[Json] | dict[str, Json]


class _Empty(dict[str, Any]):
    """An empty mapping that a dataclass takes as a default."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


NONE: Mapping[str, Any] = _Empty()
"""The mapping of every fact that holds nothing: facts are never changed, and a long session has many."""


@dataclass(frozen=True, slots=True)
class Delta:
    """A change of a node, small enough for one line of the delta feed.

    `summary` is one line; `fields` maps a changed digest field to (before, after); `text` is an
    optional bounded unified diff of the rendering.
    """

    summary: str
    fields: Mapping[str, tuple[Json, Json]] = NONE
    text: str = ""


@dataclass(frozen=True, slots=True)
class StatementExecuted:
    """A statement's execution ended, with whatever status."""

    statement_id: str
    execution_id: str
    status: str


@dataclass(frozen=True, slots=True)
class MethodCalled:
    """A method of a node was called; the digests are those before and after the call."""

    obj_id: str
    obj_type: str
    method: str
    args: tuple[Json, ...]
    kwargs: Mapping[str, Json]
    before_digest: Mapping[str, Json]
    after_digest: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node's digest changed."""

    obj_id: str
    delta: Delta


@dataclass(frozen=True, slots=True)
class TickApplied:
    """A tick phase changed a node. `tick_kind` is `sync`, `periodic` or `async`."""

    obj_id: str
    tick_kind: str
    delta: Delta


@dataclass(frozen=True, slots=True)
class AsyncPayloadPrepared:
    """A worker prepared an update; it is not applied yet."""

    obj_id: str
    payload_meta: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class AsyncPayloadApplied:
    """The tick applied a prepared update to its node."""

    obj_id: str
    payload_meta: Mapping[str, Json]
    delta: Delta


@dataclass(frozen=True, slots=True)
class GroupRecomputed:
    """A group's summary was computed again from its members."""

    group_id: str
    delta: Delta


Event = (
    StatementExecuted
    | MethodCalled
    | NodeChanged
    | TickApplied
    | AsyncPayloadPrepared
    | AsyncPayloadApplied
    | GroupRecomputed
)


def plain(value: Any) -> Json:
    """Return `value`, made of dataclasses, mappings and tuples of JSON values, as plain JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    return value


def event_to_json(event: Event) -> dict[str, Json]:
    """Return `{"type": <class name>, **fields}` for one event."""
    return {"type": type(event).__name__, **plain(event)}
