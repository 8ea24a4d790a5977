"""What the core asks of the world: protocols that the layers above implement.

Rule 1: nothing here does anything. Rule 2: values that cross a port are frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ctxkernel.core.events import Json

if TYPE_CHECKING:
    from ctxkernel.core.timeline import NamespaceDiff, TypeInfo

Expired = Callable[[], bool]
"""Says whether the time that the end of a cell may take is used up."""

CountTokens = Callable[[str], int]
"""Estimates the tokens of a text, ≥ 0; 0 for the empty text only."""

Trim = Callable[[str, int], str]
"""Cuts a text to a budget in tokens, a mark of what was cut included."""


class AllTokens:
    """The type of `All`: a token budget without a bound. There is one such value."""

    _one: AllTokens | None = None

    def __new__(cls) -> AllTokens:
        """Return the one value."""
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "All"

    def __reduce__(self) -> str:
        return "All"


All = AllTokens()
Budget = int | AllTokens


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """How a source shall be rendered."""

    lod: int
    """0 raw excerpt, 1 structure, 2 summary, 3 diff against `basis`."""
    pos: str
    """"line", "line:col" (lines and columns from 0), a name, "/pattern/", or an opaque token that a rendering gave."""
    tokens: Budget
    """Hard cap on the rendered text, in estimated tokens (≥ 1), or `All`."""
    basis: Any = None
    """The `Rendered.basis` to diff against at LOD 3; None where nothing was rendered before."""
    last: str = ""
    """Where a name or pattern was found last, which is shown where it is gone; empty: then that is a BadPolicy."""
    pictured: bool = True
    """Whether a picture may go along; where not, the text has the whole budget and names none."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A small picture of what is looked at, as a model can be shown it."""

    media_type: str
    """`image/png` or `image/jpeg`."""
    data: str
    """Base64."""
    width: int
    height: int
    tokens: int
    """What a model takes it for, ≥ 1."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendering: text within its budget, and what it takes to render the next one."""

    text: str
    tokens: int
    """Of the text, and of the picture where there is one."""
    lod: int
    pos: str
    cut_tokens: int = 0
    """Estimated tokens that the budget left out; the text says so where it is not 0."""
    next_pos: str | None = None
    """Where the rest begins, or None."""
    fingerprint: str = ""
    """Content hash (or cheap stamp, for what is too large to hash) of what was looked at."""
    basis: Any = None
    """Bounded private data of the source for a later diff. Never shown, never sent."""
    notes: tuple[str, ...] = ()
    """Short remarks: `missing`, `binary`, `excerpt of 2.0 GB`, …"""
    place: str = ""
    """Where `pos` is now, in numbers; empty where the source does not say."""
    picture: Picture | None = None


class Source(Protocol):
    """What a view looks at. Made by `sources.open_source`; reads, never writes.

    A source may have more, for a view that is set back to an earlier state: `target`, the Python object that it looks
    at, or `spec`, a path that opens it again; and `given_label` with `relabel(label, named)`, so that one that was
    opened again is called as it was. One that shows a copy has `fetch()`, which renews it and may wait for that.

    For work in the background: `twin()`, a source of the same target for another thread (without it, that thread is
    given this one), and `absorb(twin)`, which takes over what that one read; `preparation()`, the `Preparation` of
    `core.jobs` that it would have done, or None, and `accept(result)`, which takes one as far as it still holds, and
    says whether the next rendering is another one for it. Only the tick calls `accept` and `absorb`.

    To move by tokens: `further(place, tokens, lod)`, the position so many tokens on, or None (`ViewHandle.scroll`).
    """

    kind: str
    """`file`, `directory`, `frame`, `array`, `object`, …"""

    @property
    def label(self) -> str:
        """One line for people: the path or expression as the user knows it."""
        ...

    def stamp(self) -> str:
        """Return a cheap text that differs when the target may have changed (a stat, ids, shapes).

        Never raises: a target that is gone has a stamp of its own.
        """
        ...

    def render(self, request: RenderRequest) -> Rendered:
        """Render. A missing or unreadable target gives a one-line text and a note, not an error.

        Raises BadPolicy for a `pos` that this target cannot have.
        """
        ...


class OpenSource(Protocol):
    """Finds the source for a target. Raises BadTarget with the next move."""

    def __call__(self, target: object) -> Source:
        """Return the source for `target`."""
        ...


class Tracker(Protocol):
    """Finds what a statement did to the user's names (`state.tracking.tracker`)."""

    def before(self, source: str) -> NamespaceDiff:
        """Get ready for `source`; returns what changed since the last `after`, outside of any cell."""
        ...

    def after(self, expired: Expired) -> NamespaceDiff:
        """Return what changed since `before`. Goes on with less once `expired()`."""
        ...

    def variables(self, limit: int) -> Sequence[tuple[str, TypeInfo]]:
        """Return at most `limit` of the user's variables, newest change first."""
        ...

    @property
    def total(self) -> int:
        """How many variables the user has."""
        ...


@dataclass(frozen=True, slots=True)
class VariableLine:
    """One line of the variable table: a name of the user's with type, short value and size hints."""

    name: str
    type: str
    repr: str
    size: Mapping[str, Json] = field(default_factory=dict[str, Json])
    statement_id: str = ""
    """The statement that last added or changed it."""
