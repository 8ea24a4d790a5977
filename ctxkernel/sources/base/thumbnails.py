"""A small picture of an image, for a model that sees: made by Pillow where that is installed.

Rule 1: an image that would take long or much memory to decode is told and not decoded; its header says so beforehand.
Rule 2: only formats that Pillow reads by itself, whatever plug-ins somebody added to it.
Rule 3: the same file, room and Pillow give the same bytes; no date, no metadata of the file goes along.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import os
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.image_headers import Image, image_of
from ctxkernel.core.ports import Picture
from ctxkernel.history.capabilities import image_tokens
from ctxkernel.sources.base.file_reader import Gone, read_regular

MOST_SIDE = 512
"""Pixels: more are seldom worth their tokens before anybody asked."""
NO_ROOM = "no picture: too few tokens for one"
_MOST_PNG = 150_000  # bytes
_MOST_SENT = 400_000  # bytes of an image that a cell displayed, before it is made a JPEG
_PHOTO = 0.8  # characters of base64 a pixel: a PNG of more is no drawing, and is made a JPEG at once
_LEAST_SIDE = 32  # smaller ones show nothing
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
_MOST_PIXELS = 24_000_000
_PIXELS_AT_ONCE = 4_000_000
_MOST_JPEG = 80_000_000  # a JPEG is decoded at a fraction of its size


@dataclass(frozen=True, slots=True)
class Decoded:
    """An image file as the background decoded it, of at most `MOST_SIDE` pixels a side; None for one that is broken."""

    stamp: str
    image: Any


def decodes_long(image: Image) -> bool:
    """Return whether to decode an image takes so long that it is left to the background."""
    takes_long = image.format.upper() in _FORMATS and image.format != "JPEG" and importlib.util.find_spec("PIL")
    return bool(takes_long) and _PIXELS_AT_ONCE < image.width * image.height <= _MOST_PIXELS


def decoded(path: str, stamp: str) -> Decoded:
    """Return an image file as it is now, for a worker."""
    found = read_regular(path, lambda descriptor, _: _small(descriptor, MOST_SIDE))
    return Decoded(stamp, None if isinstance(found, Gone) else found)


def picture(path: str, image: Image, room: int, known: Decoded | None = None) -> tuple[Picture | None, str]:
    """Return a picture of at most `room` tokens and `MOST_SIDE` pixels a side, or None and why, in a few words.

    `known` is the image decoded in the background.
    """
    size = image.width * image.height
    if image.format.upper() not in _FORMATS:
        return None, f"no picture: {image.format} is not decoded"
    if size > (_MOST_JPEG if image.format == "JPEG" else _MOST_PIXELS):
        return None, f"no picture: {size / 1e6:,.0f} million pixels are not decoded"
    side = side_within(image.width, image.height, room)
    if not side:
        return None, NO_ROOM
    if importlib.util.find_spec("PIL") is None:
        return None, "no picture: pip install pillow"
    small = known.image if known is not None else read_regular(path, lambda descriptor, _: _small(descriptor, side))
    if isinstance(small, Gone):
        return None, f"no picture: {small.reason}"
    if small is None:
        return None, "no picture: it cannot be decoded"
    small = small.copy()
    small.thumbnail((side, side))
    return encoded(small, "JPEG" if small.mode == "RGB" else "PNG"), ""


def _small(descriptor: int, side: int) -> Any:
    """Return an image of at most `side` pixels a side in a mode that can be encoded, or None for a broken one."""
    import PIL.Image  # late: costs 50 ms, and most views are of no image
    import PIL.ImageOps

    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file, PIL.Image.open(file, formats=_FORMATS) as found:
            found.draft("RGB", (2 * side, 2 * side))
            PIL.ImageOps.exif_transpose(found, in_place=True)
            plain = found.mode in ("RGB", "YCbCr", "CMYK")
            mode = "RGB" if plain else "L" if found.mode in ("1", "L") else "RGBA"
            small = found if found.mode == mode else found.convert(mode)  # no second copy of a large image
            small.thumbnail((side, side))
            return small
    except Exception:  # broken data, or a format within the format: the header's facts stay
        return None


def encoded(image: Any, kind: str, *, most: int = _MOST_PNG) -> Picture:
    """Return a PIL image as a picture: `kind` is PNG or JPEG; a PNG of more bytes is made a JPEG, if it can be."""
    out = io.BytesIO()
    image.save(out, kind, **({"quality": 80} if kind == "JPEG" else {}))
    if kind == "PNG" and image.mode in ("RGB", "L") and out.tell() > most:
        return encoded(image, "JPEG")
    data = base64.b64encode(out.getvalue()).decode("ascii")
    width, height = image.size
    return Picture(f"image/{kind.lower()}", data, width, height, image_tokens(width, height))


def scaled_down(data: str, side: int, tokens: int) -> Picture | str:
    """Return an image in base64 as one of at most so many pixels a side and tokens, or why that is not possible."""
    header = image_of(data)
    if header is None:
        return "its header cannot be read"
    if header.width * header.height > _MOST_JPEG:
        return f"{header.width * header.height / 1e6:,.0f} million pixels are not decoded"
    try:
        import PIL.Image
    except ImportError:
        return "too large, and Pillow, which would scale it down, is not installed"
    most = side_within(header.width, header.height, tokens, side)
    if not most:
        return "image_tokens has no room for it"
    try:
        with PIL.Image.open(io.BytesIO(base64.b64decode(data)), formats=_FORMATS) as found:
            is_photo = found.format == "JPEG" or len(data) > _PHOTO * header.width * header.height
            found.draft("RGB", (2 * most, 2 * most))
            has_alpha = "A" in found.getbands() or "transparency" in found.info
            plain = found.convert("RGBA" if has_alpha else "L" if found.mode in ("1", "L") else "RGB")
            if has_alpha and plain.getchannel("A").getextrema() == (255, 255):
                plain, has_alpha = plain.convert("RGB"), False
            small = plain.resize(scaled(header.width, header.height, most), reducing_gap=2.0)
            made = encoded(small, "JPEG" if is_photo and small.mode != "RGBA" else "PNG", most=_MOST_SENT)
            if len(made.data) > 2 * _MOST_SENT and has_alpha:
                white = PIL.Image.new("RGBA", small.size, "white")
                made = encoded(PIL.Image.alpha_composite(white, small).convert("RGB"), "JPEG")
            return made
    except Exception:  # broken data, or a format within the format
        return "it cannot be decoded"


def side_within(width: int, height: int, room: int, most: int = MOST_SIDE) -> int:
    """Return the pixels of the longer side of a picture of at most `room` tokens; 0 where it would be too small."""
    side = most
    while side >= _LEAST_SIDE and image_tokens(*scaled(width, height, side)) > room:
        side -= side // 8
    return side if side >= _LEAST_SIDE else 0


def scaled(width: int, height: int, side: int) -> tuple[int, int]:
    """Return the dimensions of an image that is scaled down, never up, to `side` pixels."""
    scale = min(1.0, side / max(width, height, 1))
    return max(1, round(width * scale)), max(1, round(height * scale))
