"""Plans, storage and asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Load(TypedDict):
    """Names that are loaded together."""

    names: Sequence[str]
    nbytes: int


class WrittenFile(TypedDict):
    """A file that was written since; a return does not change it."""

    name: str
    statement_id: str
    size: int


class FileChange(TypedDict):
    """The effect of a return on a file whose content is stored."""

    name: str
    action: Literal["back", "remove", "stays"]
    statement_id: str
    size: int
    reason: str


class Step(TypedDict):
    """A statement of a re-run."""

    statement_id: str
    action: Literal["run", "skip", "ask"]
    reason: str
    expected: bool
    seconds: float
    source: str


class Plan(TypedDict):
    """The effect of a return or a re-run."""

    action: str
    text: str
    target: str | None
    told: str
    keep: Sequence[str]
    load: Sequence[Load]
    drop: Sequence[str]
    rerun: Mapping[str, Sequence[str]]
    connect: Mapping[str, str]
    lost: Mapping[str, str]
    as_now: Mapping[str, str]
    ambient: Sequence[str]
    files: Sequence[WrittenFile]
    file_changes: Sequence[FileChange]
    statements: Sequence[Step]
    seconds: float
    nbytes: int
    again: Sequence[str]


class CheckpointStorage(TypedDict):
    """The size of the checkpoints, and of the data that are not on the disk yet."""

    bytes: int
    quota: int
    pending_bytes: int
    pending_s: float
    folder: str


class Storage(CheckpointStorage):
    """The same, with a line for people on each state that could not be stored, was deleted or skipped."""

    faults: Sequence[str]


class Resume(TypedDict):
    """The session of an earlier kernel of this notebook."""

    statements: int
    head: str | None
    at: float
    interrupted: str | None
    restorable: str | None
    reason: str


class Proposal(TypedDict):
    """A cell of the model, or its first request, that waits for the user, or its state after the decision."""

    id: str
    kind: str
    ask: str
    code: str
    told: str
    more: int
    state: str
    reason: str


class Asking(TypedDict):
    """The ask that a model works on now."""

    ask: str
    model: str
    since: float


class Copy(TypedDict):
    """A cell that the front end inserts below the ask."""

    after: str | None
    ask: str
    statement: str
    ends: bool
    cell_type: Literal["code", "markdown"]
    source: str
    outputs: Sequence[Mapping[str, Any]]
    execution_count: int | None
