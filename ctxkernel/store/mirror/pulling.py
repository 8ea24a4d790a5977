"""Copy the content of a session from a mirror to this machine.

Rule 1: nothing here is replaced: chunks, files and logs that are here stay.
Rule 2: chunks are checked by their addresses as they come in; one that is damaged in the mirror is named, and left out.
Rule 3: a log is written whole or not at all. Whether it is trusted, the signatures of its rows decide.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import format_size
from ctxkernel.store.chunks import packs
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.data_folder import data_folder
from ctxkernel.store.log.session_file import SessionFile
from ctxkernel.store.mirror.head import PART_BYTES, FilePart, MirrorHead, PackParts, part_hash, read_head
from ctxkernel.store.mirror.remote_files import RemoteFiles

ReportProgress = Callable[[int, int], None]
"""Called with the bytes that were read, and those that will be."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull."""

    head: MirrorHead
    received: int
    """Bytes that were read from the mirror."""
    chunks: int
    """Chunks that were missing here."""
    faults: tuple[str, ...]
    """Chunks and files that could not be brought, and why."""


class _Receiver:
    """Reads parts of a mirror. Raises StoreError if one is missing or damaged."""

    def __init__(self, files: RemoteFiles, head: MirrorHead, progress: ReportProgress | None) -> None:
        self._files = files
        self._folder = head.folder
        self._progress = progress
        self.total = 0
        self.received = 0

    def parts(self, parts: Sequence[FilePart]) -> Iterator[bytes]:
        for part in parts:
            content = self._files.read(f"{self._folder}/blobs/{part.hash}", PART_BYTES)
            if content is None or len(content) != part.bytes or part_hash(content) != part.hash:
                what = "missing" if content is None else "damaged"
                raise StoreError(f"part {part.hash} in {self._files.url} is {what}; pull again, or push from elsewhere")
            self.received += len(content)
            if self._progress is not None:
                self._progress(self.received, self.total)
            yield content

    def write(self, path: Path, parts: Sequence[FilePart]) -> None:
        """Write a new file from parts."""
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.writelines(self.parts(parts))
        except OSError as fault:
            raise StoreError(f"{path} cannot be written ({fault.strerror or fault}); free some space there") from fault


def pull_session(
    folder: str, session: Path, root: Path, files: RemoteFiles, progress: ReportProgress | None = None
) -> Pulled:
    """Bring a session from its folder in a mirror to the new file `session`, its data to its folder in `root`.

    Raises StoreError if the mirror does not have it, if `session` exists, or if something cannot be read or written.
    """
    head = _head(files, folder)
    if os.path.lexists(session):
        raise StoreError(f"{session} exists, and nothing is replaced; give another file with --output")
    session.parent.mkdir(parents=True, exist_ok=True)
    fresh = session.with_name(f".{session.name}.pulled")
    fresh.unlink(missing_ok=True)
    receiver = _Receiver(files, head, progress)
    data = data_folder(root, head.session, writing=True)
    new = _new_packs(head, data)
    receiver.total = _size([*head.log, *_parts_of(new)])
    try:
        receiver.write(fresh, head.log)
        with SessionFile(fresh) as found:
            if dict(found.select("SELECT key, value FROM session")).get("id") != head.session:
                raise StoreError(f"{files.url}/{folder} has the log of another session")
        chunks, faults = _pull(head, data, new, receiver)
        os.link(fresh, session)
    except OSError as fault:
        raise StoreError(f"{session} cannot be written ({fault.strerror or fault})") from fault
    finally:
        fresh.unlink(missing_ok=True)
    return Pulled(head, receiver.received, chunks, tuple(faults))


def pull_data(
    session_id: str,
    root: Path,
    files: RemoteFiles,
    store: ChunkStore | None = None,
    progress: ReportProgress | None = None,
) -> Pulled:
    """Bring the checkpoint data of a session whose log is here; `store`: its open store, if there is one.

    Raises StoreError if the mirror does not have it, or if something cannot be read or written.
    """
    data = data_folder(root, session_id, writing=True)
    head = _head(files, data.name)
    receiver = _Receiver(files, head, progress)
    new = _new_packs(head, data)
    receiver.total = _size(_parts_of(new))
    chunks, faults = _pull(head, data, new, receiver, store)
    return Pulled(head, receiver.received, chunks, tuple(faults))


def _head(files: RemoteFiles, folder: str) -> MirrorHead:
    head = read_head(files, folder)
    if head is None:
        raise StoreError(f"{files.url} does not have this session; `ctxkernel store list` shows those that it has")
    return head


def _parts_of(new: Sequence[PackParts]) -> Iterator[FilePart]:
    for pack in new:
        yield from pack.data
        yield from pack.index


def _size(parts: Sequence[FilePart] | Iterator[FilePart]) -> int:
    return sum(part.bytes for part in parts)


def _new_packs(head: MirrorHead, data: Path) -> list[PackParts]:
    """Return the packs that are not here as they are in the mirror."""
    here: set[tuple[int, int]] = set()
    for number, parts in packs.listing(data).items():
        if parts == {"pack", "index"}:
            read = packs.read_index(data, number)[1]
            here.add((read.mark, read.offset))
    return [
        pack for pack in head.packs if not any(mark == pack.mark and end >= _size(pack.index) for mark, end in here)
    ]


def _pull(
    head: MirrorHead, data: Path, new: Sequence[PackParts], receiver: _Receiver, store: ChunkStore | None = None
) -> tuple[int, list[str]]:
    """Bring packs and kept files; return the number of chunks that were missing, and the faults."""
    faults: list[str] = []
    root = data.parent
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    need, free = receiver.total * 2, shutil.disk_usage(root).free
    if need > free:
        raise StoreError(f"{root} has {format_size(free)} free, and the pull needs {format_size(need)}")
    with nullcontext(store) if store is not None else closing(ChunkStore(data)) as local:
        chunks = 0
        for layer in _layers(new):
            with tempfile.TemporaryDirectory(prefix=".pull-", dir=root) as scratch:
                for pack in layer:
                    _receive_pack(pack, Path(scratch), receiver, local)
                with closing(ChunkStore(Path(scratch), readonly=True)) as source:
                    chunks += _copy_chunks(source, local, faults)
    for content in head.contents:
        path = data / content.name
        if not path.exists():
            data.mkdir(mode=0o700, exist_ok=True)
            fresh = path.with_suffix(".pulled")
            fresh.unlink(missing_ok=True)
            receiver.write(fresh, content.parts)
            fresh.replace(path)
    return chunks, faults


def _receive_pack(pack: PackParts, folder: Path, receiver: _Receiver, local: ChunkStore) -> None:
    """Bring a pack to a folder, without its data if all its chunks are here."""
    path = packs.pack_path(folder, pack.number)
    receiver.write(packs.index_path(folder, pack.number), pack.index)
    path.touch(mode=0o600)
    os.truncate(path, _size(pack.data))  # a record counts if its data are within the pack
    if all(map(local.has, packs.read_index(folder, pack.number)[0])):
        receiver.total -= _size(pack.data)
        return
    path.unlink()
    receiver.write(path, pack.data)


def _layers(new: Sequence[PackParts]) -> Iterator[list[PackParts]]:
    """Return the packs in groups without equal numbers: a machine without the data begins at 1 again.

    A delta and its base are of one machine, so they are in one group.
    """
    layer: list[PackParts] = []
    for pack in new:
        if any(pack.number == other.number for other in layer):
            yield layer
            layer = []
        layer.append(pack)
    if layer:
        yield layer


def _copy_chunks(source: ChunkStore, target: ChunkStore, faults: list[str]) -> int:
    copied = 0
    for entry in source.entries():
        if target.has(entry.address):
            continue
        try:
            content = source.read(entry.address)  # checked by its address
        except StoreError as fault:
            faults.append(str(fault))
            continue
        target.put(entry.address, content, base=entry.base or None)
        copied += 1
    return copied
