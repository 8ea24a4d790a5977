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
    """A cell that the front end inserts below the ask, or puts into the cell `after` itself."""

    after: str | None
    into: bool
    ask: str
    statement: str
    ends: bool
    cell_type: Literal["code", "markdown"]
    source: str
    outputs: Sequence[Mapping[str, Any]]
    execution_count: int | None


class ValueTable(TypedDict):
    """A table of a difference; `right` are the columns that are aligned right, `more` rows are left out."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str
    right: Sequence[int]
    more: int


class ValuePicture(TypedDict):
    """A picture in base64: before, after, or the pixels that differ."""

    label: str
    media_type: str
    data: str


class ValueDifference(TypedDict):
    """The difference of a name's value, or of a part of it; `differs` is null where that is not known."""

    name: str
    summary: str
    known: Literal["complete", "pending", "unknown"]
    differs: bool | None
    reason: str
    counts: Mapping[str, int]
    columns: Mapping[str, int]
    step: int
    tables: Sequence[ValueTable]
    diff: Sequence[str]
    pictures: Sequence[ValuePicture]
    parts: Sequence[Any]
    more: int
    notes: Sequence[str]


class NameDifference(TypedDict):
    """A variable that differs; `value` is null where its values were not compared."""

    name: str
    told: str
    value: ValueDifference | None


class OutputDifference(NameDifference):
    """An output of a cell that differs, and the executions whose output it is."""

    before: str
    after: str


class OtherDifference(TypedDict):
    """A handle that differs."""

    name: str
    how: Literal["added", "changed", "removed"]
    told: str


class FileDifference(OtherDifference):
    """A file that differs; `value` has its lines or its table, or why they were not compared."""

    value: ValueDifference | None


class StateDifference(TypedDict):
    """The differences between two states; `more` of them are left out."""

    old: str | None
    new: str | None
    added: Sequence[NameDifference]
    changed: Sequence[NameDifference]
    deleted: Sequence[NameDifference]
    outputs: Sequence[OutputDifference]
    handles: Sequence[OtherDifference]
    files: Sequence[FileDifference]
    notes: Sequence[str]
    more: int
