"""Frozen values about checkpoints, returns and re-runs that all layers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.value_difference import ValueDifference

CheckpointState = Literal["writing", "durable", "skipped", "thinned", "damaged"]
"""`writing`: large data are on their way to the disk · `durable`: survives the kernel · `skipped`: was not taken,
`reason` says why · `thinned`: its large data were deleted for space · `damaged`: its data are gone or changed."""

DivergenceKind = Literal["output", "state", "artifact", "error", "file", "timing", "unknown"]
"""`unknown`: a variable whose content could not be compared."""
INFORMATIVE: frozenset[DivergenceKind] = frozenset(("timing", "unknown"))
"""The kinds that are no difference."""
PACKED = "pack:"
"""The beginning of a fingerprint of the data of a large value: equal content may have been written in another way.

Nothing follows while these data are not known yet.
"""


CHECKPOINT_FORMAT = 2
"""The form of the stored states that this version writes and loads."""


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """The checkpoint after one execution."""

    checkpoint_id: str
    """`c<execution_id>`, such as `cs3.1`."""
    execution_id: str
    state: CheckpointState
    bytes_new: int = 0
    """Bytes that it added to what is stored."""
    time_ms: float = 0.0
    """Time that taking it added to the cell."""
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that cannot be stored, and why: a return re-runs the statements that made them, or reports them."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One difference between an execution and the re-run of the same statement."""

    kind: DivergenceKind
    subject: str
    """`stdout`, `stderr`, `result`, the name of a variable, an artifact, a file that was read, an exception's type."""
    summary: str
    """One line, at most 200 characters."""
    cause: str = ""
    """The cause, if known: `seed`, `clock`, `file`, `set order`, `upstream`; else empty."""
    before: str = ""
    after: str = ""
    """Bounded excerpts."""
    detail: ValueDifference | None = None
    """The difference of a variable's values, where both were compared."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A re-run compared with the execution that it repeats."""

    execution_id: str
    against: str
    """The earlier execution."""
    divergences: tuple[Divergence, ...] = ()
    """Those of `INFORMATIVE` kinds are for information only."""
    expected: bool = False
    """Whether the cell is marked as expected to differ."""
    time_ms: tuple[float, float] = (0.0, 0.0)
    """Before, after."""

    @property
    def same(self) -> bool:
        """Return whether nothing but the time differs, as far as it could be compared."""
        return not self.differences

    @property
    def differences(self) -> list[Divergence]:
        """The divergences without those that are for information only."""
        return [one for one in self.divergences if one.kind not in INFORMATIVE]


def equal_content(one: str, other: str) -> bool | None:
    """Return whether two fingerprints are of equal content; None where they cannot tell. An empty one is not known."""
    if not one or not other or PACKED in (one, other):
        return None
    if one == other:
        return True
    return None if one.startswith(PACKED) or other.startswith(PACKED) else False


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of restoring a state for a move of HEAD."""

    lost: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that could not be restored, and why: for the user and the model."""
    notices: tuple[str, ...] = ()
    """Notices for the user, those of `Graph.restore` included."""


@dataclass(frozen=True, slots=True)
class HeadMove:
    """A move of HEAD to another execution without running it."""

    to: str | None
    """An execution's id; None is the state before all statements."""
    reason: Literal["goto", "undo", "rerun", "resume", "run"]
    at: float
    """Unix seconds."""
