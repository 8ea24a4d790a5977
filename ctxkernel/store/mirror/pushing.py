"""Copy the content of a session from this machine to the mirror.

Rule 1: the log is copied before the packs are read, so the packs have all data that the copy refers to.
Rule 2: the end of a pack is that of its last record: what follows may still be taken back.
Rule 3: the packs of the former head stay, also those that are not here any more.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import format_time
from ctxkernel.store.chunks import packs
from ctxkernel.store.chunks.data_folder import folder_name
from ctxkernel.store.chunks.file_contents import is_whole_content
from ctxkernel.store.lock import SessionLock, holder
from ctxkernel.store.log.session_file import SessionFile
from ctxkernel.store.mirror.head import (
    LOG_PART_BYTES,
    PART_BYTES,
    ContentParts,
    FilePart,
    LogEnd,
    MirrorHead,
    PackParts,
    part_hash,
    read_head,
    write_head,
)
from ctxkernel.store.mirror.remote_files import RemoteFiles
from ctxkernel.store.regular_files import open_regular

_WAIT_SECONDS = 600.0
"""Most seconds that a push waits for another one."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push."""

    head: MirrorHead
    sent: int
    """Bytes that the mirror lacked."""

    @property
    def end(self) -> str:
        """The statement that the mirror ends with."""
        return self.head.end.execution_id.rpartition(".")[0]


class _Sender:
    """Sends parts that the mirror lacks."""

    def __init__(self, files: RemoteFiles, folder: str, known: set[str]) -> None:
        self._files = files
        self._blobs = f"{folder}/blobs"
        self._known = known
        self.sent = 0

    def parts(self, file: BinaryIO, start: int, end: int, most: int = PART_BYTES) -> tuple[FilePart, ...]:
        """Send the bytes of a file from `start` to `end`, and return their parts."""
        return tuple(self._part(content) for content in _pieces(file, start, end, most))

    def _part(self, content: bytes) -> FilePart:
        part = FilePart(part_hash(content), len(content))
        if part.hash not in self._known:
            self._files.write(f"{self._blobs}/{part.hash}", content)
            self._known.add(part.hash)
            self.sent += part.bytes
        return part


def push_session(session: Path, data: Path, files: RemoteFiles, *, notebook: str = "", force: bool = False) -> Pushed:
    """Bring a session to a mirror: its log `session`, and the packs in its folder `data`, which may not exist.

    Raises StoreError if the mirror has statements that the log here lacks, unless `force`, and if something cannot be
    read or written. The earlier head stays valid then.
    """
    with _one_push(data), tempfile.TemporaryDirectory(prefix="ctxkernel-push-") as scratch:
        copy = Path(scratch) / "session.sqlite"
        _copy_log(session, copy)
        with closing(sqlite3.connect(copy)) as log:
            found = dict(log.execute("SELECT key, value FROM session"))
            end = _end_of(log)
            earlier = read_head(files, data.name)
            if earlier is not None and not force:
                _refuse_lost_statements(log, earlier, files.url)
        if end is None:
            raise StoreError(f"{session} has no statement yet: there is nothing to push")
        if folder_name(found["id"]) != data.name:
            raise StoreError(f"{data} is not the folder of the session {found['id'][:40]!a}")
        sender = _Sender(files, data.name, {part.hash for part in earlier.parts()} if earlier is not None else set())
        with copy.open("rb") as file:
            parts = sender.parts(file, 0, copy.stat().st_size, LOG_PART_BYTES)
        stored = _push_packs(data, sender, earlier.packs if earlier is not None else ())
        contents = _push_contents(data, sender, earlier.contents if earlier is not None else ())
        head = MirrorHead(found["id"], notebook, platform.node(), time.time(), end, parts, stored, contents)
        write_head(files, head)
        if earlier is not None:  # a reader of the earlier head that misses them begins anew
            needed = {part.hash for part in head.parts()}
            files.discard(f"{data.name}/blobs/{part.hash}" for part in earlier.log if part.hash not in needed)
    return Pushed(head, sender.sent)


@contextlib.contextmanager
def _one_push(data: Path) -> Generator[None]:
    """Wait until no other process of this machine pushes the session: each removes what only the head before needs."""
    sidecar, until = data.with_name(f"{data.name}.push"), time.monotonic() + _WAIT_SECONDS
    lock: SessionLock | None = None
    with contextlib.suppress(OSError):  # the folder may only be read: no kernel works with it
        data.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while (lock := SessionLock.take(sidecar)) is None:
            if time.monotonic() > until:
                raise StoreError(f"another process pushes this session ({holder(sidecar) or 'unknown'}); wait for it")
            time.sleep(0.1)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _copy_log(session: Path, copy: Path) -> None:
    """Copy a log as it is at one moment, also while a kernel writes it. Raises StoreError."""
    try:
        with SessionFile(session) as source, closing(sqlite3.connect(copy)) as target:
            source.connection.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as fault:
        raise StoreError(f"{session} cannot be copied ({fault})") from fault


def _end_of(log: sqlite3.Connection) -> LogEnd | None:
    row = log.execute("SELECT seq, execution_id, started_at FROM executions ORDER BY seq DESC LIMIT 1").fetchone()
    return LogEnd(*row) if row is not None else None


def _refuse_lost_statements(log: sqlite3.Connection, earlier: MirrorHead, url: str) -> None:
    """Raise StoreError if the mirror ends with a statement that the log here does not have."""
    end = earlier.end
    row = log.execute("SELECT execution_id, started_at FROM executions WHERE seq = ?", (end.seq,)).fetchone()
    if row == (end.execution_id, end.started_at):
        return
    raise StoreError(
        f"{url} has statements of this session that are not here: up to {end.execution_id}, pushed by "
        f"{earlier.host or 'another machine'} at {format_time(earlier.at)}. `ctxkernel store pull NOTEBOOK "
        "--output FILE` brings them as another session; `ctxkernel store push NOTEBOOK --force` replaces them"
    )


def _push_packs(data: Path, sender: _Sender, earlier: tuple[PackParts, ...]) -> tuple[PackParts, ...]:
    """Send what the mirror lacks of the packs here; return all packs of the mirror in the order of their making."""
    stored = {pack.mark: pack for pack in earlier}
    for number, files in packs.listing(data).items():
        if files != {"pack", "index"}:
            continue
        try:
            _push_pack(data, number, sender, stored)
        except FileNotFoundError:  # another process rewrote it meanwhile: its chunks are in a later pack
            continue
        except OSError as fault:
            raise StoreError(f"{packs.pack_path(data, number)} cannot be read ({fault})") from fault
    return tuple(stored.values())


def _push_contents(data: Path, sender: _Sender, earlier: tuple[ContentParts, ...]) -> tuple[ContentParts, ...]:
    """Send the kept files that the mirror lacks; return all of the mirror."""
    stored = {content.name: content for content in earlier}
    names = os.listdir(data) if data.is_dir() else []
    for name in sorted(name for name in names if is_whole_content(name) and name not in stored):
        with contextlib.suppress(FileNotFoundError), open(open_regular(data / name, os.O_RDONLY), "rb") as file:
            stored[name] = ContentParts(name, sender.parts(file, 0, os.fstat(file.fileno()).st_size))
    return tuple(stored.values())


def _push_pack(data: Path, number: int, sender: _Sender, stored: dict[int, PackParts]) -> None:
    records, read = packs.read_index(data, number)
    if not records:
        return
    known = stored.get(read.mark, PackParts(number, read.mark, (), ()))
    end = max(entry.offset + entry.stored for entry in map(packs.entry_of, records.values()))
    with (
        open(open_regular(packs.pack_path(data, number), os.O_RDONLY), "rb") as pack,
        open(open_regular(packs.index_path(data, number), os.O_RDONLY), "rb") as index,
    ):
        stored[read.mark] = PackParts(
            number,
            read.mark,
            (*known.data, *sender.parts(pack, sum(part.bytes for part in known.data), end)),
            (*known.index, *sender.parts(index, sum(part.bytes for part in known.index), read.offset)),
        )


def _pieces(file: BinaryIO, start: int, end: int, most: int) -> Iterator[bytes]:
    """Return the bytes of a file from `start` to `end` in pieces. Raises OSError if the file ends before."""
    file.seek(start)
    while start < end:
        content = file.read(min(most, end - start))
        if not content:
            raise OSError(f"it ends at {start:,} of {end:,} bytes")
        yield content
        start += len(content)
