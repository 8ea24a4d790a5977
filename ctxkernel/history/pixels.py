"""Width and height of an image from its first bytes, without a decoder. Pure, bounded, never raises."""

from __future__ import annotations

import base64
import binascii

_PIXELS_A_TOKEN = 750
"""The provider's rule of thumb for an image that it need not scale down."""
_JPEG_SCAN = 64 * 1024
"""Characters of base64 in which the frame header of a JPEG is looked for."""


def pixels(data: str) -> tuple[int, int] | None:
    """Return (width, height) of a base64 PNG, GIF or JPEG; None where that cannot be seen."""
    try:
        start = base64.b64decode(data[:32], validate=False)
        if start.startswith(b"\x89PNG\r\n\x1a\n"):
            return int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
        if start.startswith((b"GIF87a", b"GIF89a")):
            return int.from_bytes(start[6:8], "little"), int.from_bytes(start[8:10], "little")
        if start.startswith(b"\xff\xd8"):
            return _jpeg(base64.b64decode(data[: min(len(data), _JPEG_SCAN) // 4 * 4], validate=False))
    except (binascii.Error, ValueError):
        pass
    return None


def image_tokens(width: int, height: int) -> int:
    """Return what a model takes an image of so many pixels for, ≥ 1."""
    return max(1, -(-width * height // _PIXELS_A_TOKEN))


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(raw) and raw[at] == 0xFF:
        marker = raw[at + 1]
        # Start of frame: C0 … CF but for the tables C4, C8 and CC, which share the range.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(raw[at + 7 : at + 9], "big"), int.from_bytes(raw[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(raw[at + 2 : at + 4], "big")
    return None
