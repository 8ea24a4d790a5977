"""The images that cells displayed: which of them a model is sent, and what a request may take of them.

Rule 1: the image that is sent is recorded with the execution: the display itself, or the artifact of kind `picture` of
        its name, which was scaled down when the cell ended. Nothing is decoded or scaled here, so a projection that is
        built again, elsewhere or later, has the same bytes.
Rule 2: an image that the API would refuse (format, pixels a side, bytes) is none.
Rule 3: the text of a display does not depend on whether its image goes along, so that the text before an image stays
        in the provider's cache where the image is left out.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple, cast

from ctxkernel.core.image_headers import Image, image_of, pixels
from ctxkernel.core.ports import Picture
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Artifact, Execution
from ctxkernel.core.timeline_events import Json
from ctxkernel.history.capabilities import Capabilities, budget_of, image_tokens

PICTURE = "picture"
"""The kind of the artifact that replaces the image of a display."""
FORMS = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""The MIME types that the API takes; of a display with several, the first is sent."""
MOST_SIDE = 2000
"""Most pixels a side: the API's limit for a request with more than 20 images."""
MOST_CHARS = 5_000_000
"""Most characters of base64 of one image; the API takes 10 MB, other servers 5."""
_ALL_CHARS = 24_000_000
"""Most characters of base64 of all images of a request; the API takes 32 MB in all."""
_HISTORY = (0.5, 0.25)
"""Parts of `image_tokens` that the images of the history may take; a smaller one where pinned pictures need the room.

Few steps, so that a picture that changes its size does not change the prefix each time.
"""
_BEFORE = 0.25
"""Part of `image_tokens` for pictures of handles that were sent before; the rest is for those of the newest tail."""
_ONE = 0.25
"""Part of `image_tokens` that one image may take."""
_OF_BUDGET = 0.05
"""Part of `projection_tokens` that one image may take."""


class ImageLimits(NamedTuple):
    """The budget of the images of a request."""

    total: int
    """Tokens of all images; 0: none is sent."""
    most: int
    """The number of images."""
    side: int
    """Pixels of the longer side of one image."""
    one: int
    """Tokens of one image."""
    why: str = ""
    """Why none is sent, where `total` is 0."""

    def history(self, pinned: int = 0) -> int:
        """Return the largest weight of the images of the history, where pinned pictures have the weight `pinned`."""
        return next((int(self.total * part) for part in _HISTORY if pinned <= self.total * (1 - part - _BEFORE)), 0)

    @property
    def before(self) -> int:
        """The largest weight of the pictures of handles that were sent with earlier requests and are kept."""
        return int(self.total * _BEFORE)

    def weight(self, tokens: int, chars: int) -> int:
        """Return what an image takes of `total`: its tokens, or more where number or bytes are near their limits."""
        return max(tokens, self.total * chars // _ALL_CHARS, -(-self.total // max(self.most, 1)))


def image_limits(settings: Settings, capabilities: Capabilities) -> ImageLimits:
    """Return the limits of a model under these settings."""
    total, why = settings.image_tokens, ""
    if not total:
        why = "image_tokens is 0"
    elif settings.images == "no":
        why = "the setting images is no"
    elif not (capabilities.sees or settings.images == "yes"):
        why = f"it is not known that {settings.model} takes images; %ctx config images yes sends them"
    one = min(capabilities.image_tokens, int(total * _ONE), int(budget_of(settings) * _OF_BUDGET))
    side = min(capabilities.image_edge, MOST_SIDE)
    return ImageLimits(0 if why else total, capabilities.max_images, side, max(one, 1), why)


def images_of(execution: Execution) -> tuple[Picture, ...]:
    """Return the images that an execution displayed and that a model can be sent, in their order."""
    if not execution.artifacts:
        return ()
    chosen = {one.name: one for one in execution.artifacts if one.kind == PICTURE}
    for one in image_displays(execution.artifacts):
        chosen.setdefault(one.name, one)
    names = dict.fromkeys([one.name for one in execution.artifacts])
    found = [picture_of(chosen[name]) for name in names if name in chosen]
    return tuple([one for one in found if one is not None])


def image_displays(artifacts: tuple[Artifact, ...]) -> list[Artifact]:
    """Return the image of each display that has one in a form that the API takes."""
    found: dict[str, Artifact] = {}
    for one in artifacts:
        if one.kind == "display" and one.mime in FORMS:
            known = found.get(one.name)
            if known is None or FORMS.index(one.mime) < FORMS.index(known.mime):
                found[one.name] = one
    return list(found.values())


def picture_of(artifact: Artifact) -> Picture | None:
    """Return the image of an artifact, None where it has none or the API would refuse it."""
    data = base64_of(artifact) if artifact.mime in FORMS else ""
    header = image_of(data) if 0 < len(data) <= MOST_CHARS else None
    # The format by its header, since the API refuses another one than it is told.
    form = f"image/{header.format.lower()}" if header is not None else ""
    if header is None or form not in FORMS or max(header.width, header.height) > MOST_SIDE:
        return None
    return Picture(form, data, header.width, header.height, image_tokens(header.width, header.height))


def base64_of(artifact: Artifact) -> str:
    """Return the payload of an image as base64 without white space; empty where it is none."""
    data: Json = artifact.data
    text = "".join(map(str, cast("list[Json]", data))) if isinstance(data, list) else data
    return "".join(text.split()) if isinstance(text, str) else ""


def image_header(artifact: Artifact) -> Image | None:
    """Return the header of the image of an artifact."""
    return image_of(base64_of(artifact)) if artifact.mime in FORMS else None


def image_block(picture: Picture) -> str:
    """Return the JSON of the block that shows a picture."""
    source = {"type": "base64", "media_type": picture.media_type, "data": picture.data}
    return json.dumps({"type": "image", "source": source}, separators=(",", ":"))


def picture_extent(block: str) -> tuple[int, int] | None:
    """Return (width, height) of the image in the JSON of a block; None where it is none."""
    try:
        found = json.loads(block)
        return pixels(found["source"]["data"]) if found["type"] == "image" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


IMAGE_START = '{"type":"image","source":'
"""The beginning of the JSON of an image, in a block that is one, or in a result with images."""


def number_of_images(block: str) -> int:
    """Return the number of images in the JSON of a block."""
    return block.count(IMAGE_START)  # in the texts of a block, quotes are escaped


def images_in(block: str) -> list[tuple[str, str]]:
    """Return (media type, base64) of each image in the JSON of a block."""
    if IMAGE_START not in block:
        return []
    found = json.loads(block)
    images = [found] if found.get("type") == "image" else [one for one in found["content"] if one["type"] == "image"]
    return [(one["source"]["media_type"], one["source"]["data"]) for one in images]


@lru_cache(64)
def image_sizes(block: str) -> tuple[int, ...]:
    """Return the tokens of each image in the JSON of a block."""
    return tuple(without_pixels(block)[1])


def without_pixels(block: str) -> tuple[str, list[int]]:
    """Return the JSON of a block without its images, and the tokens of each of these."""
    if IMAGE_START not in block:
        return block, []
    found = json.loads(block)
    images = [found] if found.get("type") == "image" else [one for one in found["content"] if one["type"] == "image"]
    extents = [pixels(one["source"]["data"]) for one in images]
    for one in images:
        one["source"]["data"] = ""
    return json.dumps(found, ensure_ascii=False), [image_tokens(*extent) for extent in extents if extent]
