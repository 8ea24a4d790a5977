"""An image of Pillow's in memory as a source: 0 its facts and a picture, 1 and 2 its facts.

Rule 1: nothing is loaded: one that Pillow has not read from its file yet stays so, and says what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import attributes, class_of
from ctxkernel.core.text import format_size, one_line
from ctxkernel.sources.base.file_reader import content_hash
from ctxkernel.sources.base.rendering import titled
from ctxkernel.sources.base.thumbnails import scaled
from ctxkernel.sources.objects.facts import NotDrawn, PicturedSource
from ctxkernel.sources.tables.columns import STAMP_BYTES

_MOST_INFO = 20
_EXACT = ("1", "L", "P", "RGB", "RGBA")


class PilImageSource(PicturedSource):
    """A view of a `PIL.Image.Image`."""

    kind = "image"

    def headline(self) -> str:
        """Return label, type, dimensions, mode and size."""
        image = self.target
        width, height = image.size
        plain = width * height * len(image.getbands()) * (4 if image.mode[:1] in "IF" else 1)
        return f"{titled(self.label, image)} · {width:,} × {height:,} · {image.mode} · {format_size(plain)}"

    def value(self) -> list[str]:
        """Return format, file and what Pillow knows besides."""
        own = attributes(self.target)
        told = [f"format {own['format']}"] if isinstance(own.get("format"), str) else []
        told += [f"file {one_line(str(own['filename']), 200)}"] if own.get("filename") else []
        info: Any = own.get("info")
        items: list[tuple[Any, Any]] = list(info.items()) if class_of(info) is dict else []
        told += [f"info {one_line(str(key), 40)}: {brief(value, 80)}" for key, value in items[:_MOST_INFO]]
        return told or ["made in memory"]

    def structure(self) -> list[str]:
        """Return the same."""
        return self.value()

    def summary(self) -> list[str]:
        """Return the same."""
        return [f"- {line}" for line in self.value()]

    def revision(self) -> str:
        """Return a hash of the pixels; of a large image, of some evenly spread."""
        if _unread(self.target):
            return "not loaded"
        image = self.target
        width, height = image.size
        whole = width * height * len(image.getbands()) <= STAMP_BYTES
        some = image if whole else image.resize(scaled(width, height, 1024), 0)
        return f"{'' if whole else '~'}{image.size} {content_hash(some.tobytes())}"

    def drawing(self) -> Callable[[], Any]:
        """Return what scales it down."""
        return self._scaled

    def _scaled(self) -> Any:
        image = self.target
        if _unread(image):
            raise NotDrawn(f"{self.label}.load() reads it first")
        width, height = image.size
        if image.mode[:1] in "IF" or not width * height:
            raise NotDrawn(f"a mode of {image.mode} is not shown" if width * height else "it has no pixels")
        size = scaled(width, height, self.most_side)
        alpha = "A" in image.getbands() or "transparency" in image.info
        if image.mode not in _EXACT or image.mode in ("1", "P"):  # else their colours would not be mixed
            image = image.resize(scaled(width, height, 2 * self.most_side), 0)
        image = image.convert("L" if image.mode in ("1", "L") else "RGBA" if alpha else "RGB")
        return image.resize(size, reducing_gap=2.0)


def _unread(image: Any) -> bool:
    return bool(attributes(image).get("tile"))
