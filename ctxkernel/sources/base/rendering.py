"""Common parts of all sources: positions, fitting a text to its budget, moving by tokens, and the frame of a rendering.

Rule 1: `Rendered.tokens`, those of the text and of its picture, are at most `request.tokens`, whatever a source hands
        in; a source that builds too long a text is cut here, so no fault of one can break a budget.
Rule 2: what a budget cut is said in the text itself (`marked`), with the next move; however small the budget, a mark
        of it stays (`core.marks`).
Rule 3: a source's own fault becomes one line of text and a note; only `BadPolicy` gets out.
Rule 4: renderings are cached by stamp, so an unchanged target costs one `stamp()`.
Rule 5: a move forward skips as many lines (rows, entries, cells) after the position as fit into the tokens; a move
        back as many before it. It skips at least one, and never goes past the last one. A line counts as a whole
        wherever the position is in it, so a move back shows exactly what the same move forward skipped.
"""

from __future__ import annotations

import copy
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import Any, Self

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.jobs import ModelSummary, Preparation
from ctxkernel.core.ports import AllTokens, Picture, Rendered, RenderRequest, TableRow
from ctxkernel.core.reflection import class_of, type_name
from ctxkernel.core.text import one_line
from ctxkernel.core.timeline_events import NONE
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.amounts import Line, NamedLine, lines_within, moved
from ctxkernel.sources.base.fitting import NO_CAP, squeezed
from ctxkernel.sources.base.planner import Emphasis, plan, said, said_of
from ctxkernel.sources.base.positions import (
    find_name,
    find_pattern,
    lines_from_end,
    no_place,
    pattern_of,
    unbracketed,
)

EMPHASIS: ContextVar[Emphasis | None] = ContextVar("emphasis", default=None)
"""The emphasis of the rendering that is being made."""


class NotFound(Exception):
    """A position that was not found, or not yet; the text of the exception is the remark that says so."""


PAST_END = " (the position is past the end)"
RESERVE = 4
"""One part in so many of a budget is left free, so that it holds under a model's own vocabulary too …"""
SMALL_RESERVE = 24
"""… and of a small budget two fifths, up to so many tokens: its text is mostly a path and numbers."""
LAST_PARTS = 500
"""Lines that are looked at for the position "end"."""
_MOST_ASKED = 20
"""So many names that a question names get room before others."""
_HEAD_TOKENS = 48
_WAS = "; this is where it was, h.pos sets another"
_GONE = ("any more", "?)")
_CACHED_RENDERINGS = 8
_CACHED_CHARS = 256 * 1024
_PLACE = re.compile(r"(?:(?P<line>\d{1,15})(?::(?P<col>\d{1,15}))?|@(?P<offset>\d{1,18})(?P<shift>[+-]\d{1,12})?)")


@dataclass(frozen=True, slots=True)
class Place:
    """A position: a line (row, entry) and column from 0, or a byte offset with a shift in lines."""

    line: int = 0
    col: int = 0
    offset: int | None = None
    shift: int = 0

    def __str__(self) -> str:
        if self.offset is not None:
            return f"@{self.offset}" + (f"{self.shift:+d}" if self.shift else "")
        return f"{self.line}:{self.col}" if self.col else str(self.line)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of positions in a target, with their places, in its order."""

    what: str = "symbols"
    """The word for them: entries, headings, columns, …"""
    places: Sequence[tuple[str, Place]] = ()
    within: str = "."
    """The sign between a name and the one that contains it, so that `fit` is `Model.fit`."""

    def find(self, label: str, pos: str) -> Place:
        """Return the place of a name, "[name]" or "/pattern/". Raises BadPolicy with what is like it."""
        pattern = pattern_of(pos)
        if pattern is not None:
            at = find_pattern(pattern, (name for name, _ in self.places))
            found = None if at is None else self.places[at][1]
        else:
            names = dict.fromkeys((pos, unbracketed(pos)))
            found = next((at for name in names if (at := find_name(self.places, name, self.within))), None)
        if found is None:
            raise no_place(label, pos, [name for name, _ in self.places], self.what)
        return found


@dataclass(frozen=True, slots=True)
class Draft:
    """A source's rendering before its budget is enforced."""

    text: str
    cut_tokens: int = 0
    next_pos: str | None = None
    fingerprint: str = ""
    basis: Any = None
    notes: tuple[str, ...] = ()
    picture: Picture | None = None
    rows: Mapping[str, TableRow] = NONE
    """Lines that are rows of tables, also ones that the text does not have."""


def parse_place(pos: str) -> Place | None:
    """Return the place that `pos` names by numbers: "line", "line:col", or "@offset" with an optional "+lines"."""
    found = _PLACE.fullmatch(pos.strip())
    if not found:
        return None
    if found["offset"] is not None:
        return Place(offset=int(found["offset"]), shift=int(found["shift"] or 0))
    return Place(line=int(found["line"]), col=int(found["col"] or 0))


def fit_lines(
    head: Sequence[str],
    lines: Sequence[str],
    budget: int,
    what: str,
    *,
    place: Callable[[int], str | None] | None = None,
    hidden: Sequence[Line] = (),
) -> Draft:
    """Return as much of `lines` after `head` as fits, as `planner` chooses it, with a mark of what was left out.

    A line is one of `what` unless it is a `Line`; `hidden` are counted and never shown. `place(k)` is the position that
    shows line k first; without it, or where no line is shown and so the position would be the same one again, the mark
    only names `tokens`.
    """
    planned = plan(head, lines, budget, what, place=place, hidden=hidden, emphasis=EMPHASIS.get())
    facts = [line for line in lines if isinstance(line, NamedLine) and line.what == "columns"]
    rows: dict[str, TableRow] = {line: TableRow((line.name, line.kind), is_facts=True) for line in facts}
    return Draft(planned.text, planned.cut_tokens, planned.next_pos, rows=rows)


def as_now(draft: Draft, before: str = "nothing rendered before") -> Draft:
    """Return what stands for a diff where there is nothing to compare with."""
    return replace(draft, text=f"[{before}; as it is now:]\n{draft.text}")


def with_remark(draft: Draft, line: str) -> Draft:
    """Return a draft with a line below its first one."""
    first, _, rest = draft.text.partition("\n")
    return replace(draft, text="\n".join([first, line, *([rest] if rest else [])]))


def within_reserve(budget: int) -> int:
    """Return the part of a budget that a rendering fills by the estimate: a model's own count may be higher."""
    if budget >= NO_CAP:
        return budget
    return budget - max(budget // RESERVE, min(2 * budget // 5, SMALL_RESERVE))


def less(budget: int, tokens: int) -> int:
    """Return what is left of a budget; of no cap, no cap."""
    return budget if budget >= NO_CAP else max(1, budget - tokens)


def short_type(target: object) -> str:
    """Return the name of the type of an object, without what it is in."""
    return type_name(class_of(target)).rpartition(".")[2]


def titled(label: str, target: object) -> str:
    """Return label and type, the type once."""
    name = short_type(target)
    return label if label == name else f"{label} · {name}"


class BaseSource:
    """The frame of a source: checks the request, keeps the budget, caches by stamp, survives faults.

    A subclass has `kind`, `label`, `stamp()` and `draft(request, place, budget)`.
    """

    kind = "object"

    def __init__(self, label: str) -> None:
        self._label = label
        self.named = False
        """Whether the label is a variable's name."""
        self.stands_for: Callable[[str], bool | None] | None = None
        """Says whether a variable's name stands for the target now; None where there is no such name."""
        self._renderings: OrderedDict[tuple[Any, ...], Rendered] = OrderedDict()
        self._found_at: tuple[tuple[str, str], Place] | None = None
        self.prepared: dict[str, Any] = {}
        """The values prepared in the background and accepted, by kind. A twin has the same one."""

    @property
    def label(self) -> str:
        """The user's name of the target. A view holds the object, so it says when the name went to another one."""
        there = self.stands_for(self._label) if self.named and self.stands_for is not None else True
        if there is None:
            return f"{self._label} (deleted; this view still holds it)"
        return self._label if there else f"{self._label} (no longer this object's name)"

    @label.setter
    def label(self, label: str) -> None:
        self._label = label

    @property
    def given_label(self) -> tuple[str, bool]:
        """The label as it was given, and whether that is a variable's name: what `relabel` takes."""
        return self._label, self.named

    def relabel(self, label: str, named: bool) -> None:
        """Be called as an earlier source for the same target was; a label is what the user called it then."""
        self._label, self.named = label, named

    def twin(self) -> Self:
        """Return a source of the same target for another thread, with caches of its own."""
        other = copy.copy(self)
        other._renderings = self._renderings.copy()
        return other

    def absorb(self, twin: BaseSource) -> None:
        """Take over what a twin read, found and rendered."""
        self.__dict__.update(twin.__dict__)

    def preparation(self) -> Preparation | None:
        """Return slow work for the background that renderings would be better for, or None."""
        return None

    def accept(self, result: Any) -> bool:
        """Take what a preparation gave, as far as it still holds; returns whether renderings are others for it."""
        if not isinstance(result, ModelSummary):
            return False
        return self.take("summary", result)

    def take(self, kind: str, result: Any) -> bool:
        """Keep what was prepared, and forget the renderings without it."""
        self.prepared[kind] = result
        self._renderings.clear()
        return True

    def worded(self) -> bool:
        """Return whether it is a text as it was rendered last, whose summary a model may write: never numbers."""
        return False

    def stamp(self) -> str:
        """Return a cheap text that differs when the target may have changed. Never raises."""
        raise NotImplementedError(f"{type(self).__name__}.stamp")

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render; may raise anything."""
        raise NotImplementedError(f"{type(self).__name__}.draft")

    def covers(self, stamp: str) -> bool:
        """Return whether an equal stamp means equal content: a `~` in it says that only a sample was hashed.

        Where it does not, nothing is cached by it.
        """
        return bool(stamp) and "~" not in stamp

    def render(self, request: RenderRequest) -> Rendered:
        """Render within `request.tokens`. Raises BadPolicy for a level, budget or position that cannot be."""
        if request.lod not in (0, 1, 2, 3):
            raise BadPolicy(f"{self.label}: lod is {request.lod!r}; choose 0 raw, 1 structure, 2 summary or 3 diff")
        budget = NO_CAP if isinstance(request.tokens, AllTokens) else request.tokens
        if budget < 1:
            raise BadPolicy(f"{self.label}: tokens is {budget}; give a budget of at least 1, or All")
        budget = within_reserve(budget)
        place, missed = parse_place(request.pos), ""
        stamp = self.stamp()
        if place is None:
            place, missed = self._placed(request, stamp)
        basis = request.basis if request.lod == 3 else None
        before = (getattr(basis, "fingerprint", None), getattr(basis, "where", None))
        key = (stamp, request.lod, request.pos, str(place), missed, budget, before, self.label, request.pictured)
        key = (*key, request.asked, hash(tuple(request.seen.items())))
        if (hit := self._renderings.get(key)) is not None:
            self._renderings.move_to_end(key)
            return hit
        rendered = self._render(request, place, missed, budget)
        if request.pos == "end" and (later := self._nearer(place, rendered)) is not None:
            rendered = self._render(request, later, missed, budget)
        # What was read may be newer than the stamp; then the next stamp differs, and this entry is never hit.
        if self.covers(stamp) and "failed" not in rendered.notes and len(rendered.text) <= _CACHED_CHARS:
            self._renderings[key] = rendered
            if len(self._renderings) > _CACHED_RENDERINGS:
                self._renderings.popitem(last=False)
        return rendered

    def names(self) -> Names:
        """Return what positions are called in the target, bounded. May raise anything."""
        return Names()

    def asked(self, phrases: frozenset[str], facts: Collection[str] = ()) -> tuple[str, ...]:
        """Return the names in the target that are among some phrases of a question. Never raises.

        `facts` are the names that the last rendering was made from, where it was cut.
        """
        try:
            names = facts or self.fact_names()
        except Exception:  # a target that is gone: nothing of it can be shown either
            return ()
        named = (name for name in names if not phrases.isdisjoint(said_of(name)))
        return tuple(islice(dict.fromkeys(named), _MOST_ASKED))

    def fact_names(self) -> Collection[str]:
        """Return the names of what levels 1 and 2 tell about. May raise anything."""
        return [name for name, _ in self.names().places]

    def find(self, pos: str) -> Place | None:
        """Return the place of a name or "/pattern/"; None where nothing can be said, as of a file that is gone.

        Raises BadPolicy with what is there where it is not.
        """
        return self.names().find(self.label, pos)

    def end(self, count: int | None, request: RenderRequest) -> Place:
        """Return the place of the last `count` lines (rows, entries, cells); of None, of as many as have room.

        Raises BadPolicy where that is not known.
        """
        total, last = self.length(), self.last_parts(LAST_PARTS)
        if count is None:
            count = lines_within(last, self.room(request), last=True) if last else 1
        if not total:
            raise BadPolicy(f"{self.label} has no end that is known; give a line, or a name")
        return Place(max(0, total - count))

    def room(self, request: RenderRequest) -> int:
        """Return about how many tokens a rendering has for lines: all but a few of its head, at other levels a part."""
        budget = NO_CAP if isinstance(request.tokens, AllTokens) else within_reserve(request.tokens)
        return max(1, (budget - count_tokens(self.label) - _HEAD_TOKENS) // (1 if request.lod == 0 else 4))

    def length(self) -> int:
        """Return the number of lines, entries or cells that positions count; 0 where it is not known. May raise."""
        return len(self.parts())

    def last_parts(self, most: int) -> Sequence[str]:
        """Return the text of at most `most` of the last ones. May raise anything."""
        return self.parts()[-most:]

    def parts(self) -> Sequence[str]:
        """Return the text of each line, entry or cell that positions count; none where it is not at hand. May raise."""
        return ()

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place` (before, if negative), by rule 5.

        `lod` is the level at which it is looked at: the tree of a folder has other lines than the folder. None where
        there is no text to measure by. Never raises.
        """
        at = parse_place(place)
        if at is None or at.offset is not None:
            return None
        try:
            parts = self.parts()
        except Exception:  # a target that went meanwhile: its rendering says so
            return None
        return str(moved(parts, at.line, tokens)) if parts else None

    def _placed(self, request: RenderRequest, stamp: str) -> tuple[Place, str]:
        """Return where `pos` is; where it is no more, where it was and a remark. Raises BadPolicy."""
        from_end = lines_from_end(request.pos)
        if from_end:
            return self._end(from_end, request), ""
        key = stamp, request.pos
        if from_end is None and self._found_at is not None and self._found_at[0] == key and self.covers(stamp):
            return self._found_at[1], ""
        last = parse_place(request.last)
        try:
            found = self.find(request.pos)
        except NotFound as fault:
            if from_end is not None:
                return self._end(None, request), ""
            return last or parse_place(request.near) or Place(), str(fault)
        except BadPolicy as fault:
            if from_end is not None:
                return self._end(None, request), ""
            if last is None:
                raise
            close = re.search(r"\. Is it (.*?\?) You can", str(fault))
            return last, f"position {request.pos!r} is not there any more" + (f" (is it {close[1]})" if close else "")
        except Exception as fault:  # a target that changes while it is read, a hostile label
            raise BadPolicy(
                f"{self.label}: {request.pos!r} could not be looked for ({type(fault).__name__}); give a line"
            ) from None
        if found is None:
            return last or Place(), ""
        self._found_at = key, found
        return found, ""

    def _nearer(self, place: Place, shown: Rendered) -> Place | None:
        """Return a later place where the end was not reached from `place`: by as many lines as there were too many."""
        after = parse_place(shown.next_pos or "")
        if after is None or after.offset is not None or place.offset is not None or after.line <= place.line:
            return None
        try:
            return Place(place.line + max(self.length() - after.line, 0))
        except Exception:  # a target that changes meanwhile
            return None

    def _end(self, count: int | None, request: RenderRequest) -> Place:
        try:
            return self.end(count, request)
        except BadPolicy:
            raise
        except Exception as fault:  # a target that changes while it is read
            raise BadPolicy(
                f"{self.label}: its end could not be looked for ({type(fault).__name__}); give a line"
            ) from None

    def _render(self, request: RenderRequest, place: Place, missed: str, budget: int) -> Rendered:
        remark = f"[{missed}{_WAS if missed.endswith(_GONE) else ''}]\n" if missed else ""
        room = budget - count_tokens(remark)
        if 2 * room < budget:  # a remark must not take the place of what it is about: the notes have it
            remark, room = "", budget
        emphasis = Emphasis(frozenset(said(name) for name in request.asked), request.seen)
        token = EMPHASIS.set(emphasis)
        try:
            draft = self.draft(request, place, room)
        except BadPolicy:
            raise
        except Exception as fault:  # whatever a target does, the tick goes on
            what = one_line(f"{type(fault).__name__}: {fault}")
            draft = Draft(f"{self.label}: could not be rendered ({what})", notes=("failed",))
        finally:
            EMPHASIS.reset(token)
        summary: ModelSummary | None = self.prepared.get("summary") if request.lod == 2 else None
        if summary is not None and summary.fingerprint == draft.fingerprint:
            head = f"{draft.text.partition(chr(10))[0]} · summary by {summary.model}"
            made = fit_lines([head], summary.lines, room, "lines")
            draft = replace(draft, text=made.text, cut_tokens=made.cut_tokens, next_pos=None)
        text = (remark + draft.text).encode("utf-8", "replace").decode()  # without surrogates
        tokens, cut, picture = count_tokens(text), draft.cut_tokens, draft.picture
        if tokens > budget:
            text = squeezed(text, budget, cut > 0 or "\n" in text, items=True)
            cut += max(1, tokens - budget)
            tokens = count_tokens(text)
        if picture is not None and tokens + picture.tokens > budget:
            picture = None
        return Rendered(
            text=text,
            tokens=tokens + (picture.tokens if picture is not None else 0),
            lod=request.lod,
            pos=request.pos,
            cut_tokens=cut,
            next_pos=draft.next_pos,
            fingerprint=draft.fingerprint,
            basis=draft.basis,
            notes=(missed, *draft.notes) if missed else draft.notes,
            picture=picture,
            place=str(place),
            facts=emphasis.facts if cut else NONE,
            rows={line: draft.rows[line] for line in text.split("\n") if line in draft.rows} if draft.rows else NONE,
        )


class TargetSource(BaseSource):
    """The frame of a source for a Python object, which is held as long as the source lives."""

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(label)
        self.target = target
