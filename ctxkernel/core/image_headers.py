"""Images: format, dimensions and mode from the header alone.

Rule 1: nothing is decoded, so the cost does not depend on the dimensions; the decoded size of large images is shown.
Rule 2: at most `HEADER_BYTES` are read at a place of a file, and at most `_STEPS` segments or tags.
Rule 3: no library: anybody can add formats to Pillow, and their code would run.
Rule 4: the result is None only if the dimensions are missing; any other part of a header may be.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.text import format_size

HEADER_BYTES = 64 << 10
"""Most bytes that are read at one place of a file."""
_STEPS = 500
_LARGE = 1 << 30  # least decoded bytes that are shown
_PNG_MODES = {0: ("greyscale", 1), 2: ("RGB", 3), 3: ("palette", 1), 4: ("greyscale + alpha", 2), 6: ("RGBA", 4)}
_JPEG_BASE64 = "/9j/"
"""The beginning of a JPEG in base64. Its dimensions may be far from its beginning, after a thumbnail."""
_JPEG_MODES = {1: "greyscale", 3: "colour", 4: "CMYK"}
_TIFF_MODES = {0: "white is zero", 1: "greyscale", 2: "RGB", 3: "palette", 4: "mask", 5: "CMYK", 6: "YCbCr", 8: "Lab"}
_TIFF_SIZES = {1: "B", 3: "H", 4: "I", 16: "Q"}

ReadAt = Callable[[int, int], bytes]
"""`read(offset, count)` returns up to `count` bytes of the file."""


@dataclass(frozen=True, slots=True)
class Image:
    """The data of a header."""

    format: str
    width: int
    height: int
    mode: str = ""
    depth: int = 0
    """Bits of a decoded pixel; 0 where unknown."""
    more: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.format} image", f"{self.width:,} × {self.height:,}"]
        parts += [part for part in (self.mode, *self.more) if part]
        plain = self.width * self.height * max(self.depth, 8) // 8
        if plain >= _LARGE:
            parts.append(f"{format_size(plain)} decoded")
        return ", ".join(parts)


def read_image(read: ReadAt) -> Image | None:
    """Return the data of an image header, or None where the format is unknown or the header broken. Never raises."""
    try:
        head = read(0, 64)
    except OSError:
        return None
    for magic, reader in _READERS:
        if head.startswith(magic):
            try:
                found = reader(read, head)
            except (struct.error, IndexError, OSError, OverflowError):  # it is truncated, or has an offset past its end
                return None
            return found if found and found.width > 0 and found.height > 0 else None
    return None


def image_of(data: str) -> Image | None:
    """Return the header of an image in base64; None where its beginning does not have it. Never raises."""
    try:
        raw = base64.b64decode(data[: HEADER_BYTES if data.startswith(_JPEG_BASE64) else 4096])
    except ValueError:
        return None
    return read_image(lambda at, count: raw[at : at + count])


def pixels(data: str) -> tuple[int, int] | None:
    """Return (width, height) of an image in base64; None where its beginning does not have them. Never raises."""
    found = image_of(data)
    return (found.width, found.height) if found else None


def is_whole(raw: bytes) -> bool:
    """Return whether an image has its end: of a PNG, whether all its chunks are there and have the right checksums."""
    if raw.startswith(b"\xff\xd8\xff"):
        return raw.rstrip(b"\0\r\n").endswith(b"\xff\xd9")
    if raw.startswith(b"RIFF"):
        return len(raw) >= 8 + struct.unpack_from("<I", raw, 4)[0] if len(raw) >= 8 else False
    if raw.startswith(b"GIF8"):
        return raw.rstrip(b"\0").endswith(b";")
    at = 8
    while at + 12 <= len(raw):
        size, kind = struct.unpack_from(">I4s", raw, at)
        end = at + 12 + size
        if end > len(raw) or zlib.crc32(raw[at + 4 : end - 4]) != int.from_bytes(raw[end - 4 : end], "big"):
            return False
        if kind == b"IEND":
            return True
        at = end
    return False


def _png(read: ReadAt, head: bytes) -> Image | None:
    if head[12:16] != b"IHDR":
        return None
    width, height, bits, colour = struct.unpack_from(">IIBB", head, 16)
    name, channels = _PNG_MODES.get(colour, (f"colour type {colour}", 1))
    moving = ("animated",) if b"acTL" in read(33, 4096) else ()
    return Image("PNG", width, height, f"{name} {bits} bit", bits * channels, moving)


def _jpeg(read: ReadAt, head: bytes) -> Image | None:
    at = 2
    for _ in range(_STEPS):
        mark = read(at, 10)
        if len(mark) < 4 or mark[0] != 0xFF:
            return None
        kind = mark[1]
        if kind == 0xFF:  # filling
            at += 1
        elif kind in (0xC4, 0xC8, 0xCC) or not 0xC0 <= kind <= 0xCF:
            if kind in (0xD9, 0xDA):  # the image data begin without a frame
                return None
            alone = kind == 0x01 or 0xD0 <= kind <= 0xD8
            at += 2 if alone else 2 + int.from_bytes(mark[2:4], "big")
        else:
            bits, height, width, channels = struct.unpack_from(">BHHB", mark, 4)
            way = ("progressive",) if kind == 0xC2 else ()
            mode = _JPEG_MODES.get(channels, f"{channels} channels")
            return Image("JPEG", width, height, f"{mode} {bits} bit", bits * channels, way)
    return None


def _gif(read: ReadAt, head: bytes) -> Image | None:
    if head[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    width, height, flags = struct.unpack_from("<HHB", head, 6)
    moving = ("animated",) if b"NETSCAPE2.0" in read(0, 2048) else ()
    return Image("GIF", width, height, f"palette of {2 << (flags & 7)}" if flags & 0x80 else "palette", 8, moving)


def _webp(read: ReadAt, head: bytes) -> Image | None:
    if head[8:12] != b"WEBP":
        return None
    kind = head[12:16]
    if kind == b"VP8X":
        flags = head[20]
        width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
        if len(head) < 30:
            return None
        mode = "RGBA" if flags & 0x10 else "RGB"
        return Image("WebP", width, height, mode, 32, ("animated",) if flags & 0x02 else ())
    if kind == b"VP8L" and head[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", head, 21)
        mode = "RGBA" if bits >> 28 & 1 else "RGB"
        return Image("WebP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, mode, 32, ("lossless",))
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", head, 26)
        return Image("WebP", width & 0x3FFF, height & 0x3FFF, "RGB", 24)
    return None


def _bmp(read: ReadAt, head: bytes) -> Image | None:
    (size,) = struct.unpack_from("<I", head, 14)
    if size == 12:
        width, height, _, bits = struct.unpack_from("<HHHH", head, 18)
    elif size in (40, 52, 56, 64, 108, 124):
        width, height, _, bits = struct.unpack_from("<iiHH", head, 18)
    else:
        return None
    return Image("BMP", abs(width), abs(height), f"{'palette' if bits <= 8 else 'RGB'} {bits} bit", bits)


def _tiff(read: ReadAt, head: bytes) -> Image | None:
    order = "<" if head[:2] == b"II" else ">"
    (version,) = struct.unpack_from(order + "H", head, 2)
    if version not in (42, 43):
        return None
    # Version 43 is for more than 4 GB.
    word, first, count_of, entry, inner = ("I", 4, "H", 12, 8) if version == 42 else ("Q", 8, "Q", 20, 12)
    (start,) = struct.unpack_from(order + word, head, first)
    wide = struct.calcsize(count_of)
    if start >= 1 << 62:
        return None
    block = read(start, min(HEADER_BYTES, wide + _STEPS * entry))
    (count,) = struct.unpack_from(order + count_of, block, 0)
    tags: dict[int, int] = {}
    for at in range(wide, min(wide + count * entry, len(block) - entry + 1), entry):
        tag, kind = struct.unpack_from(order + "HH", block, at)
        if kind in _TIFF_SIZES and tag in (256, 257, 258, 262, 277):
            (amount,) = struct.unpack_from(order + word, block, at + 4)
            # Values that do not fit are elsewhere: the bits of each channel, of which the first is enough.
            where = at + inner
            data = block
            if amount * struct.calcsize(_TIFF_SIZES[kind]) > struct.calcsize(word):
                (far,) = struct.unpack_from(order + word, block, where)
                data, where = read(min(far, 1 << 62), 8), 0
            (tags[tag],) = struct.unpack_from(order + _TIFF_SIZES[kind], data, where)
    channels, bits = tags.get(277, 1), tags.get(258, 1)
    mode = _TIFF_MODES.get(tags.get(262, -1), "")
    alpha = " + alpha" if (tags.get(262), channels) in ((2, 4), (1, 2)) else ""
    return Image("TIFF", tags.get(256, 0), tags.get(257, 0), f"{mode}{alpha} {bits} bit".strip(), bits * channels)


_READERS: tuple[tuple[bytes, Callable[[ReadAt, bytes], Image | None]], ...] = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"\xff\xd8\xff", _jpeg),
    (b"GIF8", _gif),
    (b"RIFF", _webp),
    (b"BM", _bmp),
    (b"II*\0", _tiff),
    (b"MM\0*", _tiff),
    (b"II+\0", _tiff),
    (b"MM\0+", _tiff),
)
