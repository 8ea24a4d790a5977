"""Scales the images that a cell displayed to what a model is sent, when the cell has ended.

Rule 1: an image within the limits is sent as it is: nothing is recorded for it, and nothing is decoded.
Rule 2: any other gets an artifact of kind `picture`, with the image scaled down by Pillow, or with the reason why it
        is not sent. It is recorded with the execution, so it is the same in each projection
        (`projection/displayed_images.py`).
Rule 3: the newest images first, as far as the images of the history have room, and as long as the time limit allows.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ctxkernel.core.image_headers import image_of, is_whole
from ctxkernel.core.ports import Expired
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Artifact
from ctxkernel.history.capabilities import capabilities_for, image_tokens
from ctxkernel.projection.displayed_images import (
    MOST_CHARS,
    MOST_SIDE,
    PICTURE,
    ImageLimits,
    base64_of,
    image_displays,
    image_limits,
)
from ctxkernel.sources.base.thumbnails import scaled_down


def scaled_pictures(
    artifacts: tuple[Artifact, ...], dropped: Mapping[str, str], settings: Settings, expired: Expired
) -> tuple[Artifact, ...]:
    """Return the artifacts of kind `picture` for the displays of a cell.

    `dropped` are the payloads of images that were too large for the log, by the hash of the display.
    """
    displays = image_displays(artifacts)
    if not displays:
        return ()
    row = capabilities_for(settings.model)
    limits = image_limits(settings, row)
    if not limits.total:
        return ()
    made = list(_scaled(displays, dropped, limits, row.image_tokens, expired))
    return tuple(reversed(made))


def _scaled(
    displays: list[Artifact], dropped: Mapping[str, str], limits: ImageLimits, most_tokens: int, expired: Expired
) -> Iterator[Artifact]:
    room = limits.history()
    for display in reversed(displays):
        if room <= 0:
            return
        kept = display.data is not None
        data = base64_of(display if kept else replace(display, data=dropped.get(display.hash, "")))
        header = image_of(data)
        reason = _broken(data) if data else "too large to be kept"
        if header is not None and not reason:
            tokens = image_tokens(header.width, header.height)
            if kept and max(header.width, header.height) <= limits.side and tokens <= limits.one:
                room -= tokens
                continue
            found = scaled_down(data, limits.side, limits.one) if not expired() else "no time was left to scale it down"
            if not isinstance(found, str):
                room -= found.tokens
                yield _picture(display, found.media_type, found.data)
                continue
            if kept and max(header.width, header.height) <= MOST_SIDE and tokens <= most_tokens:
                room -= tokens
                continue
            reason = found
        yield _picture(display, "text/plain", reason or "its header cannot be read")


def _picture(display: Artifact, mime: str, data: str) -> Artifact:
    digest = "sha256:" + hashlib.sha256(data.encode()).hexdigest()
    size = len(data) if mime == "text/plain" else len(data) * 3 // 4
    return Artifact(PICTURE, display.name, mime, size, digest, data)


def _broken(data: str) -> str:
    """Return why an image in base64 would be refused, or empty."""
    if len(data) > 8 * MOST_CHARS:
        return "too large"
    try:
        raw = base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        return "it is not base64"
    return "" if is_whole(raw) else "it is incomplete"
