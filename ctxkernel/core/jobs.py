"""What the tick hands to a worker, and what comes back (seed 002 §6.2).

Rule 1: a job holds what to look at and how, never the node: a worker has no handle to change, or to keep alive.
Rule 2: all that crosses over is frozen, or a source of the worker's own (`Source.twin`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ctxkernel.core.ports import Rendered, RenderRequest, Source

Kind = Literal["diff", "render", "parse", "index", "other"]
RENDERING: Mapping[int, Kind] = {0: "render", 1: "parse", 2: "render", 3: "diff"}
"""The kind of a rendering in the background, by its level of detail."""

Stopped = Callable[[], bool]
"""Says whether nobody wants the result any more."""
Publish = Callable[[Any], None]
"""Hands over what is ready so far; what is handed over later takes its place. None is a sign of life, and no more."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """Slow work for a source as a whole, whatever its view's policy: an index of lines, ranges of columns."""

    made_from: str
    """Names the target that it is for: equal for sources that could take each other's result, so that it is made once
    for all of them. A source checks on its own what of a result still holds."""
    work: Callable[[Stopped, Publish], Any]
    """Does it, on a worker's thread. Looks at `stopped` often; returns the last result."""
    kind: Kind = "index"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a model wrote of a target, for level 2."""

    fingerprint: str
    """Of the content that it is of; it holds for no other."""
    model: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summarised:
    """What is shown at level 2 somewhere: what a model could be asked for a summary of."""

    obj_id: str
    label: str
    source: Source
    fingerprint: str
    """Of the content that is shown."""


Summarise = Callable[[Sequence[Summarised]], tuple[Sequence[Preparation | None], Sequence[str]]]
"""Says what a worker shall do for each (`kernel.asking.summaries`), and notices. What is wanted no more is not sent."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A rendering that was made in the background."""

    stamp: str
    """The target's stamp before it was looked at."""
    rendered: Rendered
    change: Rendered
    """The difference to what the view showed, for the delta feed."""
    source: Source
    """What rendered it, with all that it read and parsed."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work for a worker: a rendering of `source`, or its `preparation`."""

    obj_id: str
    label: str
    """What a notice calls the target."""
    kind: Kind
    basis: Mapping[str, str]
    source: Source
    request: RenderRequest
    change: RenderRequest
    preparation: Preparation | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for two jobs whose results could stand for each other, those of two views of one huge file too."""
        if self.preparation is not None:
            return self.kind, self.preparation.made_from
        return (self.obj_id, self.kind, *self.basis.values())

    def run(self, stopped: Stopped = lambda: False, publish: Publish = lambda data: None) -> Any:
        """Do it, and return the payload's data. Raises what the source raises."""
        if self.preparation is not None:
            return self.preparation.work(stopped, publish)
        # The stamp first: a write between the two makes the next tick look again, never miss it.
        stamp = self.source.stamp()
        change = self.source.render(self.change)
        return Prepared(stamp, self.source.render(self.request), change, self.source)


class Preparer(Protocol):
    """Whoever works in the background (`kernel.execution.workers`)."""

    def want(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Do these jobs, and give up every other one. Returns notices: what hangs, and the next move."""
        ...
