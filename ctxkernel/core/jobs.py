"""Jobs of the tick for background workers, and their results (seed 002 §6.2).

Rule 1: a job holds a source and a request, never the node: a worker can neither change a handle nor keep it alive.
Rule 2: all of it is frozen, or a source for the worker alone (`Source.twin`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.ports import Rendered, RenderRequest, Source

JobKind = Literal["diff", "render", "parse", "index", "other"]
RENDERING: Mapping[int, JobKind] = {0: "render", 1: "parse", 2: "render", 3: "diff"}
"""The kind of a rendering in the background, by its level of detail."""

IsCancelled = Callable[[], bool]
"""Returns whether the result is not wanted any more."""
Publish = Callable[[Any], None]
"""Publishes a partial result; a later one replaces it. None only shows that the worker is alive."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """Slow work for a source as a whole, such as an index of lines; it does not depend on the policy of a view."""

    made_from: str
    """Names the target: equal for sources that can use the same result, so that it is made once for all of them.
    Each source checks which part of a result is still valid."""
    work: Callable[[IsCancelled, Publish], Any]
    """Does the work, on a worker's thread. Must call `stopped` often; returns the last result."""
    kind: JobKind = "index"


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """A summary of a target by a model, for level 2."""

    fingerprint: str
    """Of the content that it summarises; it is not valid for any other."""
    model: str
    lines: tuple[str, ...]

    @property
    def notice(self) -> str:
        """The message for the user of a paused view."""
        return f"{self.model} has written its summary"


@dataclass(frozen=True, slots=True)
class Summarised:
    """A target that is shown at level 2: a model can be asked for its summary."""

    obj_id: str
    label: str
    source: Source
    fingerprint: str
    """Of the shown content."""


Summarise = Callable[[Sequence[Summarised]], tuple[Sequence[Preparation | None], Sequence[str]]]
"""Returns the work for each (`kernel.asking.summaries`), and notices. Requests that are missing are cancelled."""


@dataclass(frozen=True, slots=True)
class PreparedRendering:
    """A rendering that was made in the background."""

    stamp: str
    """The target's stamp before it was read."""
    rendered: Rendered
    change: Rendered
    """The difference to the rendering before, for the delta feed."""
    source: Source
    """The source that rendered it, with all that it read and parsed."""


@dataclass(frozen=True, slots=True)
class Job:
    """Work for a worker: a rendering of `source`, or its `preparation`."""

    obj_id: str
    label: str
    """The name of the target in notices."""
    kind: JobKind
    basis: Mapping[str, str]
    source: Source
    request: RenderRequest
    change: RenderRequest
    preparation: Preparation | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for two jobs with interchangeable results, such as those of two views of one huge file."""
        if self.preparation is not None:
            return self.kind, self.preparation.made_from
        return (self.obj_id, self.kind, *self.basis.values())

    def run(self, stopped: IsCancelled = lambda: False, publish: Publish = lambda data: None) -> Any:
        """Do the work and return the payload's data. Raises what the source raises."""
        if self.preparation is not None:
            return self.preparation.work(stopped, publish)
        # The stamp first: so the next tick notices a write between the two.
        stamp = self.source.stamp()
        change = self.source.render(self.change)
        return PreparedRendering(stamp, self.source.render(self.request), change, self.source)


class Preparer(Protocol):
    """The background worker (`kernel.execution.workers`)."""

    def want(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Do these jobs and cancel all others. Returns notices, such as jobs that hang and what to do."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until all jobs have their results, at most `seconds`."""
        ...
