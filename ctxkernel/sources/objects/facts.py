"""The frame of an object that is known by lines about it: 0 its value, 1 its structure, 2 a summary, 3 a diff of these.

Rule 1: a subclass has three lists of lines, each bounded and deterministic, and computes nothing for them.
Rule 2: the diff is of value and structure together, so that it shows what level 0 and level 1 would show anew.
Rule 3: a picture (of a figure, of an image in memory) is drawn once for one revision of the object; every budget gets
        it scaled down. One that takes long to draw is left to the background. Lines and picture share the budget; where
        both do not fit, each has a half. Why there is none is a line.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any, TypeGuard

import xxhash

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.jobs import Preparation
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.reflection import is_a
from ctxkernel.core.text import format_shape, one_line
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.amounts import bounded, is_cut
from ctxkernel.sources.base.file_reader import content_hash
from ctxkernel.sources.base.positions import key_of, pattern_of
from ctxkernel.sources.base.rendering import Draft, Names, Place, TargetSource, fit_lines, less, titled
from ctxkernel.sources.base.thumbnails import NO_ROOM, encoded, scaled, side_within
from ctxkernel.sources.files.text_documents import lines_document
from ctxkernel.sources.files.text_levels import TextBasis, render_document, with_basis
from ctxkernel.sources.tables.columns import STAMP_BYTES, cells, hash_column, modules

MOST_LINES = 2_000
ASKED_SECONDS = 5.0
"""So long a library is waited for that is asked for what it may have to look up."""
_SHOWN = 6
_SAMPLED = "content ~"
_RANGED = 1_000_000


def array_line(array: Any, limit: int = STAMP_BYTES // 8, *, ranged: bool = True) -> str:
    """Return shape, type and values of an ndarray; of more than a few, the first, the range and a hash.

    The hash is of all, or of pages of `limit` bytes together, with a `~`.
    """
    numpy, _ = modules()
    array = numpy.asarray(array)
    about = f"{format_shape(array.shape)} {array.dtype}"
    if array.size <= _SHOWN:
        return f"{about} [{', '.join(cells(array.ravel()))}]"
    column = hash_column(array, limit)
    content = f"{xxhash.xxh3_64_intdigest(repr(column.chunks).encode()) & 0xFFFFFFFF:08x}"
    span = span_of(array) if ranged else ""
    parts = [
        f"{about} [{', '.join(cells(array.reshape(-1)[:_SHOWN]))}, …]",
        *([span] if span else []),
        f"content {'' if column.exact else '~'}{content}",
    ]
    return ", ".join(parts)


def span_of(array: Any) -> str:
    """Return `min … max` of an array of numbers or times, NaN left out; empty where there is none, or it is large."""
    if array.dtype.kind not in "iufmM" or not 0 < array.size <= _RANGED:
        return ""
    there = array[array == array]  # a copy of at most 8 MB
    numpy, _ = modules()
    return " … ".join(cells(numpy.array([there.min(), there.max()], dtype=array.dtype))) if there.size else ""


def is_array(value: Any) -> TypeGuard[Any]:
    """Return whether it is an ndarray."""
    numpy, _ = modules()
    return numpy is not None and is_a(value, numpy.ndarray)


def within(ask: Callable[[], list[str]]) -> list[str]:
    """Return the lines that `ask()` gives, or one line that says why it gave none in ASKED_SECONDS."""
    found: list[list[str]] = []

    def run() -> None:
        try:
            found.append(ask())
        except BaseException as fault:  # a library raises its own: for a file that is gone, say
            found.append([f"[not known: {type(fault).__name__}: {one_line(str(fault), 160)}]"])

    thread = threading.Thread(target=run, name="ctxkernel ask", daemon=True)
    thread.start()
    thread.join(ASKED_SECONDS)
    return found[0] if found else [f"[not known: no answer in {ASKED_SECONDS:g} s]"]


class LinesSource(TargetSource):
    """The frame of a view of an object whose `parts` are lines about what they begin with."""

    names_are = "keys"
    """The word for what a line is about."""

    def names(self) -> Names:
        """Return what the lines are about."""
        lines = enumerate(self.parts())
        return Names(self.names_are, [(name, Place(at)) for at, line in lines if (name := key_of(line))])

    def find(self, pos: str) -> Place | None:
        """Return the line that is about a name, or that a pattern is in."""
        return super().find(pos) if pattern_of(pos) is None else lines_document(self.label, self.parts()).find(pos)


class FactsSource(LinesSource):
    """A view of an object by its facts. A subclass has `value`, `structure` and `summary`."""

    unit = "lines"
    """The kind that each line of levels 1 and 2 belongs to, in the plural; a line of no kind is a `Line`."""
    names_are = "names"

    def headline(self) -> str:
        """Return the first line of every level."""
        return titled(self.label, self.target)

    def value(self) -> list[str]:
        """Return the lines of level 0."""
        raise NotImplementedError(f"{type(self).__name__}.value")

    def structure(self) -> list[str]:
        """Return the lines of level 1."""
        raise NotImplementedError(f"{type(self).__name__}.structure")

    def summary(self) -> list[str]:
        """Return the lines of level 2."""
        raise NotImplementedError(f"{type(self).__name__}.summary")

    def seen(self, request: RenderRequest) -> list[str]:
        """Return lines that only a diff shows, of what level 0 shows besides its lines."""
        return []

    def stamp(self) -> str:
        """Return a hash of the value's lines. Never raises."""
        try:
            lines = [self.headline(), *self.value()]
        except Exception as fault:  # an object that another thread changes meanwhile
            return f"unreadable {type(fault).__name__}"
        mark = "~" if any(_SAMPLED in line for line in lines) else ""
        return f"{id(self.target):x} {mark}{content_hash(chr(10).join(lines).encode('utf-8', 'replace'))}"

    def parts(self) -> list[str]:
        """Return the lines of the value."""
        return bounded(self.value(), MOST_LINES)

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the object as it is now."""
        head = self.headline()
        value, structure = bounded(self.value(), MOST_LINES), bounded(self.structure(), MOST_LINES)
        said = {line.strip() for line in structure}
        beside = [*(line for line in value if line.strip() not in said), *self.seen(request)]
        compared = [*structure, "--- value ---", *beside]
        fingerprint = content_hash("\n".join([head, *compared]).encode("utf-8", "replace"))
        document = lines_document(head, compared, fingerprint, partial=is_cut(compared))
        if request.lod == 3:
            return render_document(document, request, place, budget)
        if request.lod == 0:
            draft = render_document(lines_document(head, value), request, place, budget)
        else:
            draft = fit_lines([head], structure if request.lod == 1 else self.summary(), budget, self.unit)
        return with_basis(draft, document)


_SEEN = "picture: "


class NotDrawn(Exception):
    """Why there is no picture, in a few words."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The picture of an object as it was at a revision, or None and why."""

    revision: str
    image: Any
    why: str = ""


def _drawn(revision: str, draw: Callable[[], Any]) -> Drawn:
    try:
        importlib.import_module("PIL.Image")
        return Drawn(revision, draw())
    except ImportError:
        return Drawn(revision, None, "none, pip install pillow")
    except NotDrawn as reason:
        return Drawn(revision, None, f"none, {reason}")


class PicturedSource(FactsSource):
    """A view of an object with a picture. A subclass has `revision`, `draw` and the lists of `FactsSource`."""

    most_side = 512

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._revision = ""
        self._drawn: Drawn | None = None
        self._awaited: tuple[str, Callable[[], Any]] | None = None
        """The revision that the background should draw, and what draws it."""

    def revision(self) -> str:
        """Return a text that differs where the object would look different; with `~` where that is not sure."""
        raise NotImplementedError(f"{type(self).__name__}.revision")

    def drawing(self) -> Callable[[], Any]:
        """Return what gives a PIL image (RGB, RGBA or L) of at most `most_side` pixels a side. Both raise NotDrawn."""
        raise NotImplementedError(f"{type(self).__name__}.drawing")

    def draws_long(self) -> bool:
        """Return whether to draw takes so long that it is left to the background."""
        return False

    def preparation(self) -> Preparation | None:
        """Return the drawing that takes long, where a rendering needed it."""
        if self._awaited is None or self._awaited[0] != self._revision:
            return None
        revision, draw = self._awaited
        return Preparation(
            f"picture {id(self.target):x} {revision}", lambda stopped, publish: _drawn(revision, draw), "render"
        )

    def accept(self, result: Any) -> bool:
        """Take a picture of what the object looked like at the last stamp."""
        if not isinstance(result, Drawn):
            return super().accept(result)
        if result.revision != self._revision:
            return False
        self._drawn, self._awaited = result, None
        self._renderings.clear()
        return True

    def stamp(self) -> str:
        """Return a hash of the lines, and the revision. Never raises."""
        self._revision = self.revision()
        return f"{super().stamp()} {self._revision}"

    def seen(self, request: RenderRequest) -> list[str]:
        """Return a line that tells pictures apart, where the last rendering had one."""
        before = request.basis
        asked = request.lod == 0 or (isinstance(before, TextBasis) and f"\n{_SEEN}" in (before.text or f"\n{_SEEN}"))
        if not asked:
            return []
        image, why = self._picture()
        if image is None:
            return [f"{_SEEN}{why}"]
        content = content_hash(image.mode.encode() + image.tobytes())
        return [f"{_SEEN}{image.size[0]} × {image.size[1]}, content {content[-8:]}"]

    def _picture(self) -> tuple[Any, str]:
        """Return the picture as large as it is drawn, or None and why."""
        revision = self._revision  # `render` asked for the stamp just now
        if self._drawn is None or self._drawn.revision != revision:
            try:
                draw = self.drawing()
            except NotDrawn as reason:
                return None, f"none, {reason}"
            if threading.current_thread() is threading.main_thread() and self.draws_long():
                self._awaited = revision, draw
                return None, "none yet, it is being drawn"
            self._drawn = _drawn(revision, draw)
        return self._drawn.image, self._drawn.why

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the object as it is now, at level 0 with its picture."""
        if request.lod != 0 or not request.pictured:
            return super().draft(request, place, budget)
        image, why = self._picture()
        if image is None:
            return self._with(request, place, budget, f"[picture: {why}]", f"no picture: {why.removeprefix('none, ')}")
        lines = super().draft(request, place, budget)
        told = "[shown as 9,999 × 9,999, ~9,999 tokens]"
        room = budget - count_tokens(told)
        width, height = image.size
        side = side_within(width, height, max(room - count_tokens(lines.text), room // 2), self.most_side)
        if not side:
            return replace(lines, notes=(NO_ROOM, *lines.notes))
        size = scaled(width, height, side)
        small = image if size == image.size else image.resize(size)
        picture = encoded(small, "PNG")
        lines = self._with(request, place, less(budget, picture.tokens), f"[{picture.shown}]")
        return replace(lines, picture=picture)

    def _with(self, request: RenderRequest, place: Place, budget: int, line: str, *notes: str) -> Draft:
        room = budget - count_tokens(line) - 1
        if 2 * room < budget:
            line, room = "", budget
        draft = super().draft(request, place, room)
        text = f"{draft.text}\n{line}" if line else draft.text
        return replace(draft, text=text, notes=(*notes, *draft.notes))
