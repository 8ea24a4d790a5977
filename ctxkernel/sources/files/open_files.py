"""Open file objects, and compressed files: what they hold, without moving the place that the user reads at.

Rule 1: of a file object only what changes nothing is asked, through the methods of `io`'s own classes. A file with a
        path is looked at by its path; one without, by its descriptor (`pread`) or its buffer.
Rule 2: what was written and not flushed is not there yet; nothing is flushed for it.
Rule 3: at most `WHOLE_BYTES` are decompressed.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import stat
import tempfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import xxhash

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.reflection import attributes, is_a
from ctxkernel.core.text import format_size
from ctxkernel.sources.base.file_reader import WHOLE_BYTES, Binary, Gone, Text, read_opened, reason_of, text_of
from ctxkernel.sources.files.files import FileSource

Opener = Callable[[BinaryIO], Any]
_SAMPLE = 1 << 20
_HASHED = 8 << 20
TEMPORARY_FILE: type = getattr(tempfile, "_TemporaryFileWrapper")  # noqa: B009 - has no public name
_DEEPEST = 8  # wrappers around a file: text, buffer, compression
SUFFIXES: dict[str, Opener] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".lzma": lzma.LZMAFile,
}


class CompressedSource(FileSource):
    """A compressed file by its path: the text in it, at most its first `WHOLE_BYTES`."""

    _in_windows = False

    def __init__(self, path: str, label: str, opener: Opener | None = None) -> None:
        super().__init__(path, label)
        stem, suffix = os.path.splitext(self.path)
        self._opener = opener or SUFFIXES[suffix.lower()]
        self._name = stem if suffix.lower() in SUFFIXES else self.path

    def _load(self) -> Gone | Binary | Text:
        return read_opened(self.path, lambda file, size: _decompressed(file, self._opener, self._name, size))


class HeldSource(FileSource):
    """The content of an open file without a path: a `BytesIO`, or a file whose path is gone."""

    _in_windows = False

    def __init__(self, target: Any, held: Any, label: str, opener: Opener | None = None) -> None:
        super().__init__("", label)
        self.target = target
        self._name, self._held, self._opener = "", held, opener

    def stamp(self) -> str:
        """Return a stat of the descriptor, or a hash of the buffer: of more than 8 MB, of its ends. Never raises."""
        try:
            if is_a(self._held, io.BytesIO):
                with io.BytesIO.getbuffer(self._held) as data:
                    sampled = len(data) > _HASHED  # the middle may change
                    parts = [data[:_SAMPLE], data[-_SAMPLE:]] if sampled else [data]
                    return f"{'~' * sampled}{len(data)} {' '.join(xxhash.xxh3_64_hexdigest(part) for part in parts)}"
            found = os.fstat(io.FileIO.fileno(self._held))
            return f"{found.st_mtime_ns:x}.{found.st_size:x}.{found.st_ino:x}"
        except (ValueError, OSError):
            return "closed"

    def _load(self) -> Gone | Binary | Text:
        try:
            if is_a(self._held, io.BytesIO):
                with io.BytesIO.getbuffer(self._held) as view:
                    data, size = bytes(view[:WHOLE_BYTES]), len(view)
            else:
                data, size = _descriptor_bytes(io.FileIO.fileno(self._held))
        except ValueError:
            return Gone("closed")
        except OSError as fault:
            return Gone(reason_of(fault))
        if self._opener is not None:
            return _decompressed(io.BytesIO(data), self._opener, "", size)
        return text_of(data, size)


def _descriptor_bytes(descriptor: int) -> tuple[bytes, int]:
    size = os.fstat(descriptor).st_size
    parts: list[bytes] = []
    at = 0
    while at < WHOLE_BYTES and (part := os.pread(descriptor, min(1 << 20, WHOLE_BYTES - at), at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts), max(size, at) if at >= WHOLE_BYTES else at


def _decompressed(file: BinaryIO, opener: Opener, name: str, compressed: int) -> Binary | Text:
    parts: list[bytes] = []
    size, about = 0, f"{format_size(compressed)} compressed"
    try:
        with opener(file) as plain:
            while size <= WHOLE_BYTES and (part := plain.read(1 << 16)):
                parts.append(part)
                size += len(part)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as broken:
        if not parts:
            file.seek(0)
            raw = file.read(WHOLE_BYTES)
            found = text_of(raw, len(raw), name)
            return found if isinstance(found, Text) else replace(found, what=f"broken {found.what}", image=None)
        about += f"; broken after {format_size(size)} ({type(broken).__name__})"
    remark = f"its first {format_size(WHOLE_BYTES)} decompressed" if size > WHOLE_BYTES else ""
    found = text_of(b"".join(parts)[:WHOLE_BYTES], min(size, WHOLE_BYTES), name, remark)
    if isinstance(found, Binary):
        return replace(found, what=f"{found.what}, {about}", image=None)
    return replace(found, remarks=(*found.remarks, about))


@dataclass(frozen=True, slots=True)
class Held:
    """The target of an open file: a path, a buffer or a descriptor; and its compression."""

    path: str | None = None
    inner: Any = None
    opener: Opener | None = None


def held_by(target: Any) -> Held | None:
    """Return what an open file object leads to; None where it is a stream, or a class of somebody else's."""
    opener: Opener | None = None
    for _ in range(_DEEPEST):
        if is_a(target, io.BytesIO):
            return Held(inner=target, opener=opener)
        if is_a(target, io.FileIO):
            return _of_descriptor(target, opener)
        target, opener = _within(target, opener)
        if isinstance(target, str):
            return Held(path=target, opener=opener)
        if target is None:
            return None
    return None


def _within(target: Any, opener: Opener | None) -> tuple[Any, Opener | None]:
    """Return what a file object wraps, or the path of a compressed one."""
    with contextlib.suppress(Exception):  # detached, closed half way, a class that lacks what its base has
        own = attributes(target)
        if is_a(target, TEMPORARY_FILE):
            return own.get("file"), opener
        if is_a(target, tempfile.SpooledTemporaryFile):
            return own.get("_file"), opener
        if is_a(target, gzip.GzipFile):
            path = own.get("name")
            is_path = isinstance(path, str) and os.path.lexists(path)
            return path if is_path else own.get("fileobj"), SUFFIXES[".gz"]
        if is_a(target, bz2.BZ2File, lzma.LZMAFile):
            return own.get("_fp"), bz2.BZ2File if is_a(target, bz2.BZ2File) else lzma.LZMAFile
        if is_a(target, io.TextIOWrapper):
            return own.get("buffer"), opener
        if is_a(target, io.BufferedReader, io.BufferedWriter, io.BufferedRandom):
            return own.get("raw"), opener
    return None, opener


def _of_descriptor(file: io.FileIO, opener: Opener | None) -> Held | None:
    path: Any = attributes(file).get("name")
    path = os.fsdecode(path) if isinstance(path, bytes) else path
    if isinstance(path, str) and os.path.lexists(path):
        return Held(path=path, opener=opener)
    try:
        regular = stat.S_ISREG(os.fstat(io.FileIO.fileno(file)).st_mode)
    except (ValueError, OSError):  # closed, and its path is gone
        return Held(inner=file, opener=opener)
    return Held(inner=file, opener=opener) if regular and hasattr(os, "pread") else None
