"""Figures compared as a reader sees them: PNG and JPEG by pixels, SVG by its drawing, without ids and dates.

Pillow decodes the images if it is installed (matplotlib needs it); without it only equal bytes count as equal.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from functools import reduce

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.image_headers import pixels

MAX_PIXELS = 40_000_000
"""A larger image is not decoded."""


@dataclass(frozen=True, slots=True)
class PixelDifference:
    """The distance of two images: the share of pixels that differ by more than the step, and the root mean square
    of the differences of all others, in 0 … 255.
    """

    share: float
    drift: float
    sizes: tuple[tuple[int, int], tuple[int, int]]

    def within(self, share: float, drift: float) -> bool:
        """Return whether both have the same size and differ by no more than this."""
        return self.sizes[0] == self.sizes[1] and self.share <= share and self.drift <= drift


def compare_images(old: str, new: str, *, step: int = 8) -> PixelDifference | None:
    """Return how far two base64 images are apart; None if they cannot be decoded here.

    `step` is the difference of one channel, of 255, up to which a pixel counts as the same.
    """
    sizes = pixels(old), pixels(new)
    if sizes[0] is None or sizes[1] is None:
        return None
    if sizes[0] != sizes[1]:
        return PixelDifference(1.0, 255.0, (sizes[0], sizes[1]))
    if sizes[0][0] * sizes[0][1] > MAX_PIXELS:
        return None
    try:
        from PIL import Image, ImageChops
    except ImportError:
        return None
    try:
        first, second = (
            Image.open(io.BytesIO(base64.b64decode(data)), formats=("PNG", "JPEG", "GIF")).convert("RGBA")
            for data in (old, new)
        )
        difference = ImageChops.difference(first, second)
    except (OSError, ValueError, SyntaxError, binascii.Error, Image.DecompressionBombError):
        return None
    counts = reduce(ImageChops.lighter, difference.split()).histogram()
    total, near = sum(counts), sum(counts[: step + 1])
    squares = sum(count * value * value for value, count in enumerate(counts[: step + 1]))
    return PixelDifference(
        share=1 - near / total if total else 0.0,
        drift=(squares / near) ** 0.5 if near else 0.0,
        sizes=(sizes[0], sizes[1]),
    )


_ID = re.compile(r"\b(?:id|xlink:href|href)=\"#?([^\"]{1,200})\"|url\(#([^)]{1,200})\)")
_DATE = re.compile(r"<dc:date>[^<]*</dc:date>|<!-- Created with [^>]*-->|<dc:title>Matplotlib v[^<]*</dc:title>")


def plain_svg(text: str) -> str:
    """Return an SVG text with ids in their order of appearance and without its date."""
    text = _DATE.sub("", text)
    known: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name.startswith(("http:", "https:", "data:")):
            return found[0]
        return found[0].replace(name, known.setdefault(name, f"id{len(known)}"))

    return _ID.sub(renamed, text)
