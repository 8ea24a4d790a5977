"""The frame of an object that a model is shown a picture of at level 0: a figure, an image in memory.

Rule 1: a picture is drawn once for one revision of the object; every budget gets it scaled down.
Rule 2: lines and picture share the budget; where both do not fit, each has a half.
Rule 3: why there is no picture is a line.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from ctxkernel.core.ports import RenderRequest
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.file_reader import content_hash
from ctxkernel.sources.base.rendering import NO_CAP, Draft, Place
from ctxkernel.sources.base.thumbnails import NO_ROOM, encoded, scaled, side_within
from ctxkernel.sources.files.text_levels import TextBasis
from ctxkernel.sources.objects.drawing import NotDrawn
from ctxkernel.sources.objects.facts import FactsSource

_SEEN = "picture: "


class PicturedSource(FactsSource):
    """A view of an object with a picture. A subclass has `revision`, `draw` and the lists of `FactsSource`."""

    most_side = 512

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._revision = ""
        self._drawn: tuple[str, Any, str] | None = None

    def revision(self) -> str:
        """Return a text that differs where the object would look different; with `~` where that is not sure."""
        raise NotImplementedError(f"{type(self).__name__}.revision")

    def draw(self) -> Any:
        """Return a PIL image (RGB, RGBA or L) of at most `most_side` pixels a side. Raises NotDrawn."""
        raise NotImplementedError(f"{type(self).__name__}.draw")

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
        if self._drawn is None or self._drawn[0] != revision:
            try:
                importlib.import_module("PIL.Image")
                self._drawn = revision, self.draw(), ""
            except ImportError:
                self._drawn = revision, None, "none, pip install pillow"
            except NotDrawn as reason:
                self._drawn = revision, None, f"none, {reason}"
        return self._drawn[1:]

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
        left = budget if budget >= NO_CAP else budget - picture.tokens
        told = f"[shown as {size[0]:,} × {size[1]:,}, ~{picture.tokens:,} tokens]"
        return replace(self._with(request, place, left, told), picture=picture)

    def _with(self, request: RenderRequest, place: Place, budget: int, line: str, *notes: str) -> Draft:
        room = budget - count_tokens(line) - 1
        if 2 * room < budget and budget < NO_CAP:
            line, room = "", budget
        draft = super().draft(request, place, room)
        text = f"{draft.text}\n{line}" if line else draft.text
        return replace(draft, text=text, notes=(*notes, *draft.notes))
