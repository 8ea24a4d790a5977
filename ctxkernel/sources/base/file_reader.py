"""Reading a file that may be anything: bounded in time and memory, never blocking, never raising.

Rule 1: only a regular file is opened, and opened so that a FIFO put in its place could not block.
Rule 2: at most `WHOLE_BYTES` are kept; a larger file is read in windows (`large_files.py`).
Rule 3: nothing is mapped into memory: a mapped file that shrinks kills the process.
Rule 4: a text is kept with its line ends as `\n`; what they were is a remark, and the fingerprint is of
        the bytes as they are.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar

import xxhash

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.image_headers import Image, read_image
from ctxkernel.core.text import format_size

T = TypeVar("T")
WHOLE_BYTES = 4 << 20
"""Largest file that is held as a whole."""
EXCERPT_BYTES = 1 << 20
"""The beginning of a larger one that structure and summary are made from."""
EXCERPT = "excerpt of"
"""The beginning of the remark on a text of which only the first part was read."""
_SNIFF_BYTES = 8192
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_SPECIAL = (
    (stat.S_ISFIFO, "fifo"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "character device"),
    (stat.S_ISBLK, "block device"),
    (stat.S_ISDIR, "directory"),
)
_REASONS = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ELOOP: "symlink loop",
}
_MAGIC = (
    (b"\x89PNG\r\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"II*\0", "TIFF image"),
    (b"MM\0*", "TIFF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"\x7fELF", "ELF binary"),
    (b"MZ", "Windows executable"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"\x93NUMPY", "NumPy array file"),
    (b"\x89HDF\r\n", "HDF5 file"),
    (b"PAR1", "Parquet file"),
    (b"ARROW1", "Arrow file"),
    (b"RIFF", "RIFF media"),
    (b"\xca\xfe\xba\xbe", "Java class or Mach-O binary"),
    (b"\0asm", "WebAssembly module"),
)
_ALSO_TEXT = (b"MZ", b"BZh", b"GIF8", b"RIFF", b"PAR1", b"ARROW1")  # letters only: a text may begin so
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Gone:
    """A file that cannot be read, and why in a word or two: `missing`, `fifo`, `permission denied`, …"""

    reason: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint of a missing file."""
        return f"gone:{self.reason}"


@dataclass(frozen=True, slots=True)
class Binary:
    """A file that is no text."""

    what: str
    size: int
    head: bytes
    fingerprint: str
    image: Image | None = None
    """The facts in its header, of an image."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text, as a whole or (`whole` False) the beginning of a larger one."""

    text: str
    size: int
    fingerprint: str
    encoding: str = "utf-8"
    remarks: tuple[str, ...] = ()
    whole: bool = True
    lines: list[str] = field(default_factory=list[str], compare=False)

    @property
    def read(self) -> int:
        """About how many bytes of it are here."""
        return len(self.text.encode(self.encoding, "replace"))


def split_lines(text: str) -> list[str]:
    """Return the lines of a text whose line ends are `\\n`; a last line end does not begin another line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def make_text(
    text: str,
    *,
    size: int,
    fingerprint: str,
    encoding: str = "utf-8",
    remarks: tuple[str, ...] = (),
    whole: bool = True,
) -> Text:
    """Return a Text of `text`, its line ends made `\\n` and remarked on."""
    text, ends = _same_ends(text, "" if whole else "~")
    return Text(text, size, fingerprint, encoding, (*remarks, *ends), whole, split_lines(text))


def text_in_memory(text: str) -> Text:
    """Return a Text of all of `text`."""
    data = text.encode("utf-8", "replace")
    return make_text(text, size=len(data), fingerprint=content_hash(data))


def content_hash(data: bytes) -> str:
    """Return the fingerprint of some bytes."""
    return "xxh3:" + xxhash.xxh3_64_hexdigest(data)


def reason_of(fault: OSError) -> str:
    """Return what a file's error says in a word or two, without a path."""
    return _REASONS.get(fault.errno or 0) or (os.strerror(fault.errno).lower() if fault.errno else "unreadable")


def file_stamp(path: str) -> str:
    """Return a text that differs when the file may have changed. A stat (2 µs); never raises."""
    try:
        found = os.stat(path)
    except OSError as fault:
        return f"error {fault.errno}"
    except ValueError:
        return "error"
    return f"{found.st_mtime_ns:x}.{found.st_size:x}.{found.st_ino:x}.{found.st_ctime_ns:x}"


def read_regular(path: str, read: Callable[[int, os.stat_result], T]) -> T | Gone:
    """Return what `read(descriptor, stat)` gives for a regular file, or why it cannot be read. Never blocks."""
    try:
        # Before opening: to open a device or a FIFO can already have effects.
        before = os.stat(path)
        if not stat.S_ISREG(before.st_mode):
            return Gone(next((name for test, name in _SPECIAL if test(before.st_mode)), "special file"))
        descriptor = os.open(path, _OPEN_FLAGS)
    except OSError as fault:
        return Gone(reason_of(fault))
    except ValueError:
        return Gone("missing")
    try:
        found = os.fstat(descriptor)
        return read(descriptor, found) if stat.S_ISREG(found.st_mode) else Gone("special file")
    except OSError as fault:
        return Gone(reason_of(fault))
    finally:
        os.close(descriptor)


def read_opened(path: str, read: Callable[[BinaryIO, int], T]) -> T | Gone:
    """Return what `read(file, size)` gives for a regular file, or why it cannot be read; see `read_regular`."""

    def opened(descriptor: int, found: os.stat_result) -> T:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return read(file, found.st_size)

    return read_regular(path, opened)


def line_parts(data: bytes, nbytes: int) -> Iterator[bytes]:
    """Yield whole lines of about `nbytes` together: small parts stay in the processor's cache."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at + nbytes) + 1 or len(data)
        yield data[at:end]
        at = end


def read_at(descriptor: int, offset: int, count: int) -> bytes:
    """Return up to `count` bytes from `offset`; fewer where the file ends, or is cut short meanwhile."""
    parts: list[bytes] = []
    os.lseek(descriptor, offset, os.SEEK_SET)
    while count > 0 and (part := os.read(descriptor, min(count, 1 << 20))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Data:
    """The bytes of a file, all of them or (`whole` False) its beginning."""

    data: bytes
    size: int
    """Bytes of the whole file."""
    fingerprint: str

    @property
    def whole(self) -> bool:
        """Return whether all of the file was read."""
        return len(self.data) >= self.size


def load_bytes(path: str, most: int) -> Gone | Data:
    """Return the first `most` bytes of a file, and the fingerprint of the whole. Never raises, never blocks."""

    def read(descriptor: int, found: os.stat_result) -> Data:
        data = read_at(descriptor, 0, most)
        size = max(found.st_size, len(data)) if len(data) >= most else len(data)
        return Data(data, size, content_hash(data) if len(data) >= size else _sampled_hash(descriptor, found))

    return read_regular(path, read)


def load(path: str) -> Gone | Binary | Text:
    """Return what is in the file: whole up to WHOLE_BYTES, else the first EXCERPT_BYTES, cut at a line end."""
    return read_regular(path, lambda descriptor, before: _load(descriptor, before, path))


def _load(descriptor: int, before: os.stat_result, path: str) -> Binary | Text:
    head = read_at(descriptor, 0, _SNIFF_BYTES)
    small = before.st_size <= WHOLE_BYTES
    encoding, what = sniff(head, path)
    if what:
        fingerprint = content_hash(read_at(descriptor, 0, WHOLE_BYTES)) if small else _sampled_hash(descriptor, before)
        image = read_image(lambda offset, count: read_at(descriptor, offset, count))
        return Binary(what, max(before.st_size, len(head)), head[:64], fingerprint, image)
    # The size is asked of the data: files of /proc say 0 and have content.
    most = WHOLE_BYTES if small else EXCERPT_BYTES
    data = head + read_at(descriptor, len(head), most + 1 - len(head)) if len(head) == _SNIFF_BYTES else head
    after = os.fstat(descriptor)
    changed = (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns)
    remarks = ("changed while it was read",) if changed else ()
    if len(data) <= most:
        return _decoded(data, encoding, path, len(data), content_hash(data), remarks, whole=True)
    size = max(after.st_size, len(data))
    remarks = (*remarks, f"{EXCERPT} {format_size(size)}")
    return _decoded(data[:EXCERPT_BYTES], encoding, path, size, _sampled_hash(descriptor, after), remarks, whole=False)


def text_of(data: bytes, size: int, name: str = "", remark: str = "") -> Binary | Text:
    """Return what bytes in memory are. `size` is of the whole: of more bytes, `data` is the beginning.

    `remark` says how much of the whole it is; without one the size does.
    """
    encoding, what = sniff(data[:_SNIFF_BYTES], name)
    if what:
        image = read_image(lambda offset, count: data[offset : offset + count])
        return Binary(what, size, data[:64], content_hash(data), image)
    whole = len(data) >= size and not remark
    remarks = () if whole else (remark or f"{EXCERPT} {format_size(size)}",)
    return _decoded(data, encoding, name, size, content_hash(data), remarks, whole=whole)


def _decoded(
    data: bytes, encoding: str, path: str, size: int, fingerprint: str, remarks: tuple[str, ...], *, whole: bool
) -> Text:
    text, encoding, own = decode(data if whole else cut_at_line(data, encoding), encoding, path, whole=whole)
    return make_text(text, size=size, fingerprint=fingerprint, encoding=encoding, remarks=(*own, *remarks), whole=whole)


def sniff(head: bytes, path: str = "") -> tuple[str, str]:
    """Return (encoding, "") for the beginning of a text, ("", kind) for anything else."""
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding, ""
    for magic, what in _MAGIC:
        if head.startswith(magic) and (magic not in _ALSO_TEXT or _looks_binary(head)):
            return "", what
    if b"\0" in head:
        for encoding, letters, highs in (("utf-16-le", head[0::2], head[1::2]), ("utf-16-be", head[1::2], head[0::2])):
            if highs.count(0) > 0.4 * len(highs) and not _looks_binary(letters):
                return encoding, ""
    if _looks_binary(head):
        suffix = os.path.splitext(path)[1].lower()
        return "", f"binary data ({suffix})" if suffix else "binary data"
    return "utf-8", ""


# What UTF-8 has for a character of more than one byte; and bytes that Windows-1252 has for none, or that are as good as
# never meant by it.
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_UNLIKELY = re.compile(rb"[\x81\x8d\x8f\x90\x9d\xfe\xff]")
_HIGH = bytes(range(128, 256))


def _is_western(data: bytes) -> bool:
    """Return whether bytes that are no UTF-8 are likely Windows-1252: few are above 127, and no two are one character.

    What is broken UTF-8 has whole characters of it too; a text in Cyrillic or Chinese letters is above 127 mostly.
    """
    few = len(data) - len(data.translate(None, _HIGH)) <= len(data) // 3
    return few and not _UNLIKELY.search(data) and not _MULTIBYTE.search(data)


def decode(data: bytes, encoding: str, path: str = "", *, whole: bool = False) -> tuple[str, str, tuple[str, ...]]:
    """Return (text, encoding, remarks). What cannot be decoded becomes U+FFFD and is remarked on.

    Another encoding than UTF-8 and those with a mark is guessed of a `whole` text only: parts are read one by one.
    """
    mark = next((bom for bom, name in _BOMS if name == encoding and data.startswith(bom)), b"")
    data = data[len(mark) :]
    remarks = (f"{encoding} with BOM",) if mark else (encoding,) if encoding != "utf-8" else ()
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        if declared := _declared(data, path):
            return *declared, (*remarks, declared[1])
        if whole and encoding == "utf-8" and not mark and _is_western(data):
            return data.decode("cp1252"), "cp1252", (*remarks, "windows-1252, as it seems")
        text = data.decode(encoding, "replace")
        remarks = (*remarks, f"invalid {encoding}: shown with U+FFFD")
    if "\0" in text:
        text = text.replace("\0", "\u2400")
        remarks = (*remarks, "NUL bytes: shown as U+2400")
    return text, encoding, remarks


def _declared(data: bytes, path: str) -> tuple[str, str] | None:
    """Return text and encoding as the coding line of a Python file says."""
    cookie = _COOKIE.search(b"\n".join(data[:1024].split(b"\n", 2)[:2])) if path.endswith((".py", ".pyw")) else None
    try:
        named = codecs.lookup(cookie[1].decode("ascii", "replace")).name if cookie else ""
        return (data.decode(named), named) if named else None
    except (LookupError, ValueError):
        return None


def _looks_binary(head: bytes) -> bool:
    if b"\0" in head:
        return True
    strange = len(head) - len(head.translate(None, bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b"))))
    return strange > len(head) // 20


def cut_at_line(data: bytes, encoding: str) -> bytes:
    """Return the beginning of a text cut at its last line end; within one long line, between two characters."""
    if encoding.startswith("utf-8"):
        end = data.rfind(b"\n") + 1
        if end:
            return data[:end]
        while data and data[-1] & 0xC0 == 0x80:  # not in the middle of a character
            data = data[:-1]
        return data[:-1] if data and data[-1] >= 0xC0 else data
    letter = len("\n".encode(encoding))
    end = data.rfind("\n".encode(encoding))
    while end > 0 and end % letter:  # its bytes are parts of two letters
        end = data.rfind("\n".encode(encoding), 0, end)
    return data[: end + letter] if end > 0 else data[: len(data) // 4 * 4]


def _sampled_hash(descriptor: int, found: os.stat_result) -> str:
    """Fingerprint what is too large to hash: its stat, its beginning and its end."""
    state = xxhash.xxh3_64(f"{found.st_size}.{found.st_mtime_ns}".encode())
    state.update(read_at(descriptor, 0, 65536))
    state.update(read_at(descriptor, max(0, found.st_size - 65536), 65536))
    return "sampled:" + state.hexdigest()


def _same_ends(text: str, about: str) -> tuple[str, tuple[str, ...]]:
    if "\r" not in text:
        return text, ()
    both, returns, feeds = text.count("\r\n"), text.count("\r"), text.count("\n")
    counts = ((both, "CRLF"), (feeds - both, "LF"), (returns - both, "CR"))
    there = [f"{about}{count:,} {name}" for count, name in counts if count]
    remark = "mixed line ends: " + ", ".join(there) if len(there) > 1 else f"{there[0].split()[1]} line ends"
    return text.replace("\r\n", "\n").replace("\r", "\n"), (remark,)
