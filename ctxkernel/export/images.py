"""The images of an exported session, within a bound of bytes.

Rule 1: Each image is stored once. A large one is scaled down by Pillow; without it, or where no room is left, the image
        is left out, and the page says so.
Rule 2: SVG is shown as an image, where its scripts do not run.
"""

from __future__ import annotations

import base64
import hashlib

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.ports import Picture
from ctxkernel.core.timeline import Artifact
from ctxkernel.projection.displayed_images import FORMS, base64_of
from ctxkernel.sources.base.thumbnails import scaled_down

ALL_BYTES = 2_800_000
"""Characters of all images together, as base64."""
SVG = "image/svg+xml"
_SIDES = (1000, 640, 320)
_MOST_TOKENS = 4000
_SMALL = 30_000
"""An image of at most so many characters is kept as it is, while there is room."""


@dataclass(slots=True)
class _Image:
    mime: str
    data: str
    first: bool


@dataclass(slots=True)
class ImageShelf:
    """Collects images, and packs them into the bound."""

    _images: dict[str, _Image] = field(default_factory=dict[str, _Image])

    def keep(self, forms: list[Artifact], *, first: bool) -> str | None:
        """Keep the image of a display; return its key, None if it has none. `first`: before others if room is short."""
        # A picture that was scaled when the cell ended comes after the display itself.
        images = [one for one in forms if one.mime in FORMS]
        svg = [one for one in forms if one.mime == SVG and isinstance(one.data, str)]
        if images:
            mime, data = images[-1].mime, base64_of(images[-1])
        elif svg:
            mime, data = SVG, base64.b64encode(str(svg[0].data).encode("utf-8", "replace")).decode()
        else:
            return None
        if not data:
            return None
        key = hashlib.sha256(data.encode()).hexdigest()[:16]
        known = self._images.get(key)
        self._images[key] = _Image(mime, data, first or (known is not None and known.first))
        return key

    def packed(self) -> tuple[dict[str, str], list[str]]:
        """Return key → data URI, and lines on the images that are scaled or left out."""
        room, made = ALL_BYTES, dict[str, str]()
        scaled = lost = 0
        order = sorted(self._images, key=lambda key: not self._images[key].first)
        for place, key in enumerate(order):
            image = self._images[key]
            share = max(room // (len(order) - place), _SMALL)
            shown = image if len(image.data) <= min(share, room) else _smaller(image, share)
            if shown is None or len(shown.data) > room:
                lost += 1
                continue
            scaled += shown is not image
            room -= len(shown.data)
            made[key] = f"data:{shown.mime};base64,{shown.data}"
        told = [f"{scaled} images are scaled down"] if scaled else []
        return made, told + ([f"{lost} images are left out: the page has no room for them"] if lost else [])


def _smaller(image: _Image, share: int) -> _Image | None:
    found: Picture | str = ""
    for side in _SIDES if image.mime != SVG else ():
        found = scaled_down(image.data, side, _MOST_TOKENS)
        if isinstance(found, Picture) and len(found.data) <= share:
            break
    return _Image(found.media_type, found.data, image.first) if isinstance(found, Picture) else None
