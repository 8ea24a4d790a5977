"""The head of a mirrored session: a JSON file that names all parts of its log and of its packs.

Rule 1: a head comes from a place that others may write: each field is checked, and sizes are bounded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ctxkernel.core.dataclasses import asdict, dataclass
from ctxkernel.core.errors import StoreError
from ctxkernel.store.chunks.data_folder import folder_name, is_session_id
from ctxkernel.store.chunks.file_contents import is_whole_content
from ctxkernel.store.mirror.remote_files import RemoteFiles

PART_BYTES = 4 * 1024 * 1024
"""Most bytes of a part."""
LOG_PART_BYTES = 256 * 1024
"""Most bytes of a part of a log, in which most parts stay as they are between two pushes."""
_FORMAT = 1
_HEAD = "head.json"
_MOST_HEAD = 64 * 1024 * 1024
_MOST_HEADS = 10_000
_HASH = re.compile(r"[0-9a-f]{40}")
_FOLDER = re.compile(r"s[0-9a-f]{16}")
_MOST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes of a file, stored under the hash of their content."""

    hash: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PackParts:
    """The parts of a pack and of its index, in order."""

    number: int
    mark: int
    """The random mark of the index: a number is used again, a mark is not."""
    data: tuple[FilePart, ...]
    index: tuple[FilePart, ...]


@dataclass(frozen=True, slots=True)
class ContentParts:
    """The parts of a kept file (`FileContents`), in order."""

    name: str
    parts: tuple[FilePart, ...]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The last execution in a log."""

    seq: int
    execution_id: str
    started_at: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class MirrorHead:
    """A mirror's content of one session."""

    session: str
    notebook: str
    """The path of the notebook on the machine that pushed; empty if it has none."""
    host: str
    at: float
    """The time of the push, in seconds since the epoch."""
    end: LogEnd
    log: tuple[FilePart, ...]
    packs: tuple[PackParts, ...]
    contents: tuple[ContentParts, ...]

    @property
    def folder(self) -> str:
        """The name of the session's folder in the mirror."""
        return folder_name(self.session)

    @property
    def bytes(self) -> int:
        """The bytes of all parts."""
        return sum(one.bytes for one in self.parts())

    def parts(self) -> Iterable[FilePart]:
        """Return all parts of the log and of the packs."""
        yield from self.log
        for pack in self.packs:
            yield from pack.data
            yield from pack.index
        for content in self.contents:
            yield from content.parts


def part_hash(content: bytes | memoryview) -> str:
    """Return the name of a part."""
    return hashlib.blake2b(content, digest_size=20).hexdigest()


def read_head(files: RemoteFiles, folder: str) -> MirrorHead | None:
    """Return the head in a folder of a mirror; None if there is none. Raises StoreError."""
    content = files.read(f"{folder}/{_HEAD}", _MOST_HEAD)
    if content is None:
        return None
    try:
        head = _parsed(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise StoreError(f"{files.url}/{folder}/{_HEAD} is damaged: no ctxkernel wrote it ({fault})") from None
    if head.folder != folder:
        raise StoreError(f"{files.url}/{folder}/{_HEAD} is that of another session")
    return head


def write_head(files: RemoteFiles, head: MirrorHead) -> None:
    """Write a head. Raises StoreError."""
    content = json.dumps({"format": _FORMAT, **asdict(head)}, separators=(",", ":")).encode()
    files.write(f"{head.folder}/{_HEAD}", content)


def list_heads(files: RemoteFiles) -> tuple[list[MirrorHead], list[str]]:
    """Return the heads of a mirror, the newest first, and why others cannot be read. Raises StoreError."""
    found: list[MirrorHead] = []
    faults: list[str] = []
    for name in sorted(filter(_FOLDER.fullmatch, files.names("")))[:_MOST_HEADS]:
        try:
            if (head := read_head(files, name)) is not None:
                found.append(head)
        except StoreError as fault:
            faults.append(str(fault))
    return sorted(found, key=lambda head: -head.at), faults


def _parsed(value: Any) -> MirrorHead:
    if value["format"] != _FORMAT:
        raise ValueError(f"format {value['format']!r:.20}: a newer ctxkernel wrote it")
    if not is_session_id(value["session"]):
        raise ValueError("its session has no valid id")
    end = value["end"]
    return MirrorHead(
        session=value["session"],
        notebook=_text(value["notebook"]),
        host=_text(value["host"]),
        at=float(value["at"]),
        end=LogEnd(_count(end["seq"]), _text(end["execution_id"]), float(end["started_at"])),
        log=_parts(value["log"]),
        packs=tuple(
            PackParts(_count(one["number"]), _count(one["mark"]), _parts(one["data"]), _parts(one["index"]))
            for one in value["packs"]
        ),
        contents=tuple(ContentParts(_content_name(one["name"]), _parts(one["parts"])) for one in value["contents"]),
    )


def _parts(value: Sequence[Any]) -> tuple[FilePart, ...]:
    made = tuple(FilePart(one["hash"], _count(one["bytes"])) for one in value)
    if not all(_HASH.fullmatch(one.hash) and 0 < one.bytes <= PART_BYTES for one in made):
        raise ValueError("a part has no valid hash or size")
    return made


def _content_name(value: object) -> str:
    if not isinstance(value, str) or not is_whole_content(value):
        raise ValueError("a kept file has no valid name")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MOST_TEXT:
        raise ValueError("a text is missing")
    return value


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**64:
        raise ValueError("a number is missing")
    return value
