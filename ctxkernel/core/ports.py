"""Protocols that the layers above implement for the core.

Rule: values that cross a port are frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import format_size
from ctxkernel.core.timeline_events import NONE, Json

if TYPE_CHECKING:
    from ctxkernel.core.timeline import NamespaceDiff, TypeInfo

Tell = Callable[[str], object]
"""Receives how far a long step is, as a text for the user."""
silent: Tell = str
"""Tells nobody."""
Expired = Callable[[], bool]
"""Returns whether the time limit of the end of a cell is reached."""

CountTokens = Callable[[str], int]
"""Estimates the tokens of a text, ≥ 0; 0 for the empty text only."""

Trim = Callable[[str, int], str]
"""Truncates a text to a budget in tokens; the mark of the truncation counts."""


class AllTokens:
    """The type of `All`: an unlimited token budget. There is one such value."""

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
    """The level, position and budget of a rendering."""

    lod: int
    """0 raw excerpt, 1 structure, 2 summary, 3 diff against `basis`."""
    pos: str
    """"line", "line:col" (both from 0), "-20" or "end", a name, "/pattern/", or a token that a rendering gave."""
    tokens: Budget
    """Limit on the rendered text, in estimated tokens (≥ 1), or `All`."""
    basis: Any = None
    """The `Rendered.basis` to compare with at level 3; None where nothing was rendered before."""
    last: str = ""
    """The last place of a name or pattern, shown when it is gone; if empty, a missing one raises BadPolicy."""
    near: str = ""
    """The last place of another position, shown while a pattern is searched for in the background."""
    pictured: bool = True
    """Whether a picture may be added; if not, the text has the whole budget and mentions none."""
    asked: tuple[str, ...] = ()
    """Names in the target that the last question to the model names: they get room before others."""
    seen: Mapping[str, int] = field(default=NONE, repr=False)
    """`Rendered.facts` of an earlier rendering: facts that differ from it get room before others."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A small picture of a target, for the model."""

    media_type: str
    """`image/png` or `image/jpeg`."""
    data: str = field(repr=False)
    """Base64."""
    width: int
    height: int
    tokens: int
    """The tokens that a model counts for it, ≥ 1."""

    @property
    def shown(self) -> str:
        """The rendering's remark about it."""
        return f"shown as {self.width:,} × {self.height:,}, ~{self.tokens:,} tokens"

    def told_instead(self, text: str, place: str = "") -> str:
        """Return the text of a rendering that shows this picture as one that says what it is, and where it is shown."""
        size = format_size(len(self.data) * 3 // 4)
        return text.replace(self.shown, f"{self.media_type} {self.width:,}×{self.height:,}, {size}{place}")


@dataclass(frozen=True, slots=True)
class TableRow:
    """The cells of a line of a table in a rendering, for people: the line has them beside each other."""

    cells: tuple[str, ...]
    right: tuple[int, ...] = ()
    """The columns that are aligned right."""
    is_head: bool = False
    names: tuple[str, ...] = ()
    """The names of the columns, where no line of the table has them."""
    is_facts: bool = False
    """Whether the line tells facts of a column, as `name: type, …`: the cells are its name and its type."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendering: text within its budget, and the data for the next rendering."""

    text: str
    tokens: int
    """Of the text and of the picture."""
    lod: int
    pos: str
    cut_tokens: int = 0
    """Estimated tokens beyond the budget; the text says so where it is not 0."""
    next_pos: str | None = None
    """The position of the rest, or None."""
    fingerprint: str = ""
    """Content hash of the target, or a cheap stamp where it is too large to hash."""
    basis: Any = field(default=None, repr=False)
    """Bounded private data of the source for a later diff. Never shown, never sent."""
    notes: tuple[str, ...] = ()
    """Short remarks: `missing`, `binary`, `excerpt of 2.0 GB`, …"""
    place: str = ""
    """The place of `pos` in numbers; empty where the source does not know it."""
    picture: Picture | None = None
    rows: Mapping[str, TableRow] = field(default=NONE, repr=False, compare=False)
    """The lines of the text that are rows of tables. A model never gets them."""
    facts: Mapping[str, int] = field(default=NONE, repr=False, compare=False)
    """A hash of each fact with a name, if something was cut: a later rendering finds by it what changed."""

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the text where IPython shows a result."""
        printer.text(self.text)


class Source(Protocol):
    """The reader of a view's target. `sources.open_source` makes it. It never writes.

    Optional members, for a view that returns to an earlier state: `target`, the Python object, or `spec`, a path that
    opens it again; and `given_label` with `relabel(label, named)`, which restore its label. A source that shows a
    copy has `fetch()`, which renews the copy and may block.

    For background work: `twin()` returns a source of the same target for another thread (without it, that thread uses
    this one), and `absorb(twin)` takes over what the twin read; `preparation()` returns the `Preparation` of
    `core.jobs` that it needs, or None, and `accept(result)` takes a result as far as it is still valid, and returns
    whether the next rendering differs because of it. Only the tick calls `accept` and `absorb`.

    To show first what a question names: `asked(phrases, facts)` returns the names in the target that are among some
    phrases (in lower case, with one space between words), from the last `Rendered.facts` where there are some.

    To scroll by tokens: `further(place, tokens, lod)` returns the position so many tokens on, or None.
    """

    kind: str
    """`file`, `directory`, `frame`, `array`, `object`, …"""

    @property
    def label(self) -> str:
        """The path or expression, in one line, as the user knows it."""
        ...

    def stamp(self) -> str:
        """Return a cheap text that differs when the target may have changed (a stat, ids, shapes).

        Never raises: a missing target has its own stamp.
        """
        ...

    def render(self, request: RenderRequest) -> Rendered:
        """Return a rendering. A missing or unreadable target gives a one-line text and a note, not an error.

        Raises BadPolicy for a `pos` that this target cannot have.
        """
        ...


class OpenSource(Protocol):
    """Finds the source for a target. Raises BadTarget that says what to do."""

    def __call__(self, target: object) -> Source:
        """Return the source for `target`."""
        ...


class Tracker(Protocol):
    """Finds the changes of the user's names by a statement (`state.tracking.tracker`)."""

    def before(self, source: str) -> NamespaceDiff:
        """Prepare for `source`; return what changed since the last `after`, outside of cells."""
        ...

    def after(self, expired: Expired) -> NamespaceDiff:
        """Return what changed since `before`. Does less work once `expired()`."""
        ...

    def variables(self, limit: int) -> Sequence[tuple[str, TypeInfo]]:
        """Return at most `limit` of the user's variables, newest change first."""
        ...

    @property
    def total(self) -> int:
        """The number of the user's variables."""
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
