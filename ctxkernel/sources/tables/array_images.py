"""Arrays that are images: which ones are, and their picture.

| array | picture |
|---|---|
| (height, width, 3 or 4), or (3 or 4, height, width), of bytes or of floats from 0 to 1 | in colour |
| (height, width), or with one channel, of bytes or of booleans | in grey |
| (height, width) of floats or of 16 bits, at least 64 a side, neighbours alike | in grey from least to greatest |
| several images of one of the first two rows | the first 16, side by side |

Rule: of a large array rows and columns are left out before anything is computed of it.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.ports import Picture
from ctxkernel.sources.base.thumbnails import MOST_SIDE, encoded, scaled, side_within
from ctxkernel.sources.tables.columns import cells, modules

_LEAST_SIDE = 16
"""Pixels: a smaller array of three columns is a table rather than an image."""
_LEAST_FIELD = 64
_CHANNELS = (1, 3, 4)
_SHEET = 4
"""So many images a side of a sheet."""
_ALIKE = 0.5
"""Neighbours of a field of numbers differ by less than this part of its standard deviation."""


@dataclass(frozen=True, slots=True)
class ArrayImage:
    """Pixels, (height, width) or (height, width, 3 or 4) of bytes; and what is said of them."""

    pixels: Any
    width: int
    height: int
    about: str = ""

    def picture(self, room: int) -> Picture | None:
        """Return the picture within `room` tokens; None where it has no room, or Pillow is not installed."""
        side = side_within(self.width, self.height, room)
        if not side:
            return None
        try:
            pillow: Any = importlib.import_module("PIL.Image")
        except ImportError:
            return None
        numpy, _ = modules()
        image = pillow.fromarray(numpy.ascontiguousarray(self.pixels))
        return encoded(image.resize(scaled(self.width, self.height, side), reducing_gap=2.0), "PNG")


def image_of(array: Any) -> ArrayImage | None:
    """Return the image that an array is, or None."""
    if not 2 <= array.ndim <= 4 or array.dtype.kind not in "bfu" or array.dtype.itemsize > 8:
        return None
    if array.ndim == 2:
        found = _grey(array) if array.dtype.kind == "b" or array.dtype == "uint8" else None
        return found or _field(array)
    ordered = _channels_last(array)
    if ordered is None:
        return None
    return _one(ordered) if ordered.ndim == 3 else _sheet(ordered)


def _channels_last(array: Any) -> Any:
    """Return images with their channels as the last axis; None where no axis can be the channels."""
    numpy, _ = modules()
    first = array.ndim - 3
    if array.shape[-1] in _CHANNELS and min(array.shape[first : first + 2]) >= _LEAST_SIDE:
        return array
    if array.shape[first] in _CHANNELS and min(array.shape[-2:]) >= _LEAST_SIDE:
        return numpy.moveaxis(array, first, -1)
    return None


def _thinned(array: Any, most: int = 2 * MOST_SIDE) -> Any:
    """Return an image with rows and columns left out, so that about twice the pixels of a picture are left."""
    step = max(1, max(array.shape[:2]) // most)
    return array[::step, ::step]


def _bytes_of(array: Any) -> Any:
    """Return pixels as bytes; None where they are neither bytes, nor booleans, nor floats from 0 to 1."""
    if array.dtype == "uint8":
        return array
    if array.dtype.kind == "b":
        return array.astype("uint8") * 255
    if array.dtype.kind != "f" or not bool(((array >= 0) & (array <= 1)).all()):
        return None
    return (array * 255).round().astype("uint8")


def _one(array: Any) -> ArrayImage | None:
    if array.shape[2] == 1:
        return _grey(array[:, :, 0])
    if array.dtype.kind == "b":
        return None
    pixels = _bytes_of(_thinned(array))
    return None if pixels is None else ArrayImage(pixels, array.shape[1], array.shape[0])


def _grey(array: Any) -> ArrayImage | None:
    if min(array.shape) < _LEAST_SIDE:
        return None
    pixels = _bytes_of(_thinned(array))
    return None if pixels is None else ArrayImage(pixels, array.shape[1], array.shape[0])


def _field(array: Any) -> ArrayImage | None:
    """Return the image of a field of numbers, whose neighbours are alike: a matrix of anything else is none."""
    numpy, _ = modules()
    short, long = sorted(array.shape)
    if array.dtype == "uint8" or array.dtype.kind == "b" or short < _LEAST_FIELD or long > 4 * short:
        return None
    if array.dtype.kind == "u" and array.dtype.itemsize != 2:
        return None
    top, left = (side // 2 - _LEAST_FIELD // 2 for side in array.shape)
    middle = array[top : top + _LEAST_FIELD, left : left + _LEAST_FIELD].astype("float64")
    steps = [numpy.abs(numpy.diff(middle, axis=axis)) for axis in (0, 1)]
    spread = float(middle.std())
    if not all(float(step.mean()) < _ALIKE * spread for step in steps):  # NaN, and a constant, are not
        return None
    some = _thinned(array)
    low, high = some.min(), some.max()
    if not math.isfinite(float(high) - float(low)):
        return None
    pixels = ((some.astype("float64") - float(low)) * (255 / (float(high) - float(low)))).round().astype("uint8")
    mark = "" if some.shape == array.shape else "~"
    ends = [f"{mark}{end}" for end in cells(numpy.array([low, high], dtype=array.dtype))]
    return ArrayImage(pixels, array.shape[1], array.shape[0], f"grey from {ends[0]} to {ends[1]}, ")


def _sheet(array: Any) -> ArrayImage | None:
    """Return the first images, side by side."""
    numpy, _ = modules()
    count = min(len(array), _SHEET * _SHEET)
    if not count or (array.dtype.kind == "b" and array.shape[-1] != 1):
        return None
    pixels: list[Any] = []
    for one in array[:count]:
        made = _bytes_of(_thinned(one, 2 * MOST_SIDE // _SHEET))
        if made is None:
            return None
        pixels.append(made[:, :, 0] if made.shape[2] == 1 else made)
    across = min(count, _SHEET)
    while len(pixels) % across:
        pixels.append(numpy.zeros_like(pixels[0]))
    rows = [numpy.concatenate(pixels[at : at + across], axis=1) for at in range(0, len(pixels), across)]
    sheet = numpy.concatenate(rows, axis=0)
    about = f"the first {count:,} of {len(array):,} images, " if count < len(array) else f"{count:,} images, "
    return ArrayImage(sheet, sheet.shape[1], sheet.shape[0], about)
