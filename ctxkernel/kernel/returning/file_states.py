"""Files under the notebook's folder that cells wrote, as a part of the state: the setting `files = restore`.

Rule 1: only files that a cell wrote or moved are changed, and only regular ones inside of the folder; no symbolic
        link is followed.
Rule 2: before a file is replaced or removed its content is kept, whoever wrote it; else it stays, and is named.
Rule 3: a return to before a cell removes the files that did not exist before the cell wrote them. If it is not known
        whether a file existed, it stays.
Rule 4: databases are never changed: the program that wrote them may have them open.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from ctxkernel.core.errors import StoreError
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Artifact
from ctxkernel.kernel.execution.written_files import CLOCK_SLACK_NS, FileListing, FileScan
from ctxkernel.kernel.returning.file_facts import is_database, is_file, is_followed, written_here
from ctxkernel.state.ambient import UNKNOWN, Part
from ctxkernel.state.base.namespace import some_of
from ctxkernel.store.chunks.file_contents import FileContents

if TYPE_CHECKING:
    from ctxkernel.replay.plan import FileChange, Written

MOST_FILES = 10_000
"""Files of one session that are tracked."""
_EARLY_BYTES = 64 * 1024 * 1024
"""Most bytes that are copied before a cell writes over a file; a larger one is kept only where it can be cloned."""
_FOREIGN = "something else left it"


class FileState(NamedTuple):
    """One file in one state."""

    kind: Literal["file", "absent", "unknown"]
    address: str = ""
    """The address of its content, if that is kept."""
    size: int = 0
    mode: int = 0o644
    mtime_ns: int = 0
    by: str = ""
    """The statement that left it so; empty for a file that existed before."""
    reason: str = ""
    """Why its content is not kept."""


_States = dict[str, FileState]


class FileStates(Part):
    """The files of one kernel. `register` it with the ambient state."""

    name = "files"

    def __init__(self, folder: Path, contents: FileContents, scan: FileScan, settings: Settings) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.contents = contents
        self._scan = scan
        self.settings = settings
        self._files: _States = {}
        """Files that cells wrote, in their state at HEAD."""
        self._base: _States = {}
        """Their states before the first cell wrote them."""
        self._left: dict[str, _States] = {}
        """File → key of a state → the file as another program had changed it when that state was left."""
        self._stamps: dict[str, tuple[int, ...]] = {}
        self._early: _States = {}
        """Files before the running cell opened them for writing."""
        self._opened: dict[str, tuple[int, ...]] = {}
        """Files that the running cell opened for writing, with their stamps before that."""
        self._listing = FileListing()
        """The listing before the running cell."""
        self._began_ns = 0
        self._version = 0
        self._fault = ""
        """Why the files that the last cell wrote are not known."""
        self._follows = False
        """Whether earlier states have a value of this part."""

    @property
    def on(self) -> bool:
        """Return whether returns restore files."""
        return self.settings.files == "restore"

    # -- as a part of the state -----------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Return whether the part is on, or was when an earlier state was taken."""
        return self.on or self._follows

    def stamp(self) -> object:
        """Return a number that changes with each change."""
        return self._version, self.on

    def capture(self) -> Any:
        """Return the files that cells wrote, with content addresses: now, before the cells, and as they were left."""
        if not self.on:
            return {UNKNOWN: "the setting files was leave"}
        if self._fault:
            return {UNKNOWN: self._fault}
        self._follows = True
        return {
            "files": _stored(self._files),
            "base": _stored(self._base),
            "left": {name: _stored(states) for name, states in self._left.items()},
        }

    def matches(self, value: Any) -> bool:
        """Return whether a return changes no file."""
        if not self.on:
            self._follows = True  # later states must not claim that value
            return True
        return value["files"] == _stored(self._files) and not self.plan(value)

    def restore(self, value: Any) -> Sequence[str]:
        """Restore files, and remove those that did not exist; return what was done, and which files stay."""
        before, then = self._files, _states(value["files"])
        planned = list(self._changes(value))
        self._base = _states(value["base"]) | self._base
        for name, ones in value["left"].items():
            self._left[name] = _states(ones) | self._left.get(name, {})
        self._files = then
        changes: list[FileChange] = []
        for change, wanted, have in planned:
            done = self._carry_out(change, wanted, have)
            changes.append(done)
            if done.action == "stays":
                then.pop(change.name, None)
                if change.name in before:
                    then[change.name] = before[change.name]
                elif wanted.kind != "absent":
                    then[change.name] = FileState("unknown", by=wanted.by, reason=done.reason)
        for name in then:
            self._stamps.setdefault(name, self._stamp_of(name))
        self._version += 1
        lines = _lines(changes)
        if self._scan.listing.is_cut:
            lines.append("files may be missing here: not all of the folder was looked at (file_scan_entries, time)")
        return lines

    # -- what a cell did ------------------------------------------------------------------------

    def begin(self) -> None:
        """Prepare for a cell: list the existing files."""
        self._early, self._opened = {}, {}
        if self.on:
            self._began_ns = time.time_ns() - CLOCK_SLACK_NS
            end = time.perf_counter() + self.settings.end_phase_ms / 1000
            for path, found in self._scan.look(_working_folder(self.folder), lambda: time.perf_counter() > end):
                self._scan.note(path, found)  # whatever its time of change, the cell did not write it
            self._listing = self._scan.listing

    def before_write(self, path: str) -> None:
        """Keep the content of a file that a cell is about to overwrite, also through a link. Raises nothing."""
        name = self._name_of(os.path.realpath(path)) if self.on else None
        if name is None or name in self._opened or not is_followed(name):
            return
        self._opened[name] = self._stamp_of(name)
        if name not in self._files and name not in self._base:
            self._early[name] = self._keep(name, "", copy_bytes=_EARLY_BYTES)

    def record(self, statement_id: str, artifacts: Sequence[Artifact]) -> None:
        """Keep the files that a cell wrote or moved; artifacts are named relative to the working folder."""
        if not self.on:
            return
        self._fault = "keeping the files of a cell failed"
        self._version += 1
        folder = _working_folder(self.folder)
        paths = {os.path.join(folder, one.name) for one in artifacts if one.kind == "file"}
        # A folder that was renamed does not change the stamps of its files.
        paths |= {path for path in self._scan.listing.names if self._listing.lacks(path) and is_file(path)}
        written = {name for name in map(self._name_of, paths) if name is not None and is_followed(name)}
        # Also files that a scan does not find, and deleted ones.
        written |= {name for name in self._files if self._stamp_of(name) != self._stamps.get(name)}
        written |= {name for name, stamp in self._opened.items() if self._stamp_of(name) != stamp}
        written = {name for name in written if self._stamps.get(name) != self._stamp_of(name)}  # not by a return
        moved = {name: found for name in sorted(written) if (found := self._moved_from(name)) is not None}
        for name, (origin, is_whole) in moved.items():
            if origin not in self._files and origin not in self._base:
                lost = FileState("unknown", reason="a cell moved or deleted it")
                self._base[origin] = self._keep(name, "") if is_whole else lost
            self._set(origin, FileState("absent", by=statement_id))
        for name in self._deleted():
            lost = FileState("unknown", reason=f"{statement_id} deleted it")
            self._base.setdefault(name, self._early.get(name) or lost)
            self._set(name, FileState("absent", by=statement_id))
        for name in sorted(written):
            if name not in self._files and len(self._files) >= MOST_FILES:
                continue
            if name not in self._files and name not in self._base:
                origin = moved[name][0] if name in moved else ""
                self._base[name] = self._early.get(name) or self._before_cell(name, origin)
            self._set(name, self._keep(name, statement_id))
        self._early, self._opened = {}, {}
        self._fault = ""

    def _deleted(self) -> Iterator[str]:
        """Yield the files that the running cell deleted and that no cell wrote; only if the whole folder was listed."""
        if self._listing.is_cut or self._scan.listing.is_cut:
            return
        for path in sorted({one.path for one in self._listing.files.values()} - self._scan.listing.names):
            name = self._name_of(path)
            if name is None or name in self._files or not is_followed(name) or os.path.lexists(path):
                continue
            if name not in self._base or self._base[name].kind != "absent":  # not removed by a return
                yield name

    def _moved_from(self, name: str) -> tuple[str, bool] | None:
        """Return the name of a file before the cell moved it, and whether it is unchanged; None if it was not moved.

        A new file can also have the inode of a deleted one.
        """
        with contextlib.suppress(OSError):
            found = (self.folder / name).lstat()
            old = self._listing.files.get((found.st_dev, found.st_ino))
            if old is not None and not os.path.lexists(old.path):
                origin = self._name_of(old.path)
                is_whole = (old.size, old.mtime_ns) == (found.st_size, found.st_mtime_ns)
                return (origin, is_whole) if origin is not None else None
        return None

    def _before_cell(self, name: str, origin: str) -> FileState:
        """Return the state before the running cell of a file that it did not open through Python.

        `origin` is the name that the file had before the cell moved it, or empty.
        """
        if not self._listing.lacks(str(self.folder / name)):
            return FileState("unknown", reason="what was in it before was not kept")
        if origin:
            is_lost = origin in self._base and self._base[origin].kind == "unknown"
            return FileState("unknown", reason=f"it may be {origin}, moved here") if is_lost else FileState("absent")
        stamp = self._stamp_of(name)
        if stamp and stamp[2] < self._began_ns:
            return FileState("unknown", reason="it is older than the cell, which may have moved it here")
        return FileState("absent")

    def _set(self, name: str, now: FileState) -> None:
        self._files[name] = now
        self._stamps[name] = self._stamp_of(name)
        self._version += 1

    def _keep(self, name: str, by: str, *, copy_bytes: int | None = None) -> FileState:
        """Keep the present content of a file, and return its state."""
        path = self.folder / name
        try:
            found = path.lstat()
        except FileNotFoundError:
            return FileState("absent", by=by)
        except OSError as fault:
            return FileState("unknown", by=by, reason=str(fault.strerror or fault))
        state = FileState("unknown", "", found.st_size, stat.S_IMODE(found.st_mode), found.st_mtime_ns, by)
        if not stat.S_ISREG(found.st_mode):
            return state._replace(reason="it is no regular file")
        most = self.settings.file_keep_bytes
        if found.st_size > most:
            return state._replace(reason=f"it has more than {most:,} bytes (file_keep_bytes)")
        try:
            if is_database(path):
                return state._replace(reason="it is a database")
            address = self.contents.keep(path, found, copy_bytes=copy_bytes)
        except (StoreError, OSError) as fault:
            return state._replace(reason=str(fault))
        return state._replace(kind="file", address=address)

    # -- what a return does ---------------------------------------------------------------------

    def plan(self, value: Any) -> list[FileChange]:
        """Return the changes of files by a return to a state with this value of the part. Reads only."""
        if not self.on or not isinstance(value, Mapping) or UNKNOWN in value:
            return []
        return [change for change, _, _ in self._changes(value)]

    def content_in(self, value: Any, name: str, most: int) -> bytes:
        """Return the content that a file had in a state with this value of the part; `name` is that of an artifact.

        Raises StoreError with the reason if it is not kept, or has more than `most` bytes; OSError.
        """
        if not isinstance(value, Mapping) or UNKNOWN in value:
            raise StoreError("contents of files are only kept with %ctx config files restore")
        path = self._name_of(os.path.join(_working_folder(self.folder), name))
        found = _states(cast("Mapping[str, Any]", value)["files"]).get(path or "")
        if found is None or found.kind != "file":
            raise StoreError((found.reason if found is not None else "") or "its content is not kept")
        return self.contents.read(found.address, most)

    def plan_files(self, value: Any, written: Sequence[Written]) -> tuple[list[Written], list[FileChange]]:
        """Return the files that statements wrote since and that stay, and what a return does with the others.

        `value` is the target state's value of this part, or None. Reads only.
        """
        if not self.on or not isinstance(value, Mapping) or UNKNOWN in value:
            return list(written), []
        then = cast("Mapping[str, Mapping[str, Any]]", value)
        followed = {*then["files"], *then["base"], *self._base}
        return [one for one in written if one.name not in followed], self.plan(value)

    def _changes(self, value: Any) -> Iterator[tuple[FileChange, FileState, FileState | None]]:
        """Yield the change of each file, the state that it is to have, and the one that cells left it in."""
        from ctxkernel.replay.plan import FileChange

        then, base = _states(value["files"]), _states(value["base"]) | self._base
        in_use: frozenset[tuple[int, int]] | None = None
        for name in sorted({*then, *self._files}):
            have = self._files.get(name)
            wanted = then.get(name) or base.get(name) or FileState("unknown", reason="not known")
            wrote = "" if have is not None and have.kind == "absent" else (have or wanted).by
            if have is not None and have.kind == "unknown" and have == wanted:  # such as a file that is too large
                continue
            left = self._left.get(name, {}).get(_key(wanted)) or _left(value, name, wanted)
            wanted = left or wanted
            expected = have or base.get(name)
            now = self._now(name, expected, wanted)
            if expected is not None and (now.kind, now.address) == (expected.kind, expected.address):
                have = expected  # no cell wrote it on this branch
            if now.kind == wanted.kind != "unknown" and now.address == wanted.address:
                continue
            size = max(wanted.size, now.size)
            in_use = written_here() if in_use is None else in_use
            if wanted.kind == "unknown" or now.kind == "unknown":
                reason = wanted.reason if wanted.kind == "unknown" else now.reason
                yield FileChange(name, "stays", wrote, size, reason), wanted, have
            elif have is None and now.kind == "file":
                yield FileChange(name, "stays", "", size, "no cell wrote it as it is now"), wanted, have
            elif in_use and self._inode_of(name) in in_use:
                yield FileChange(name, "stays", wrote, size, "this kernel has it open to write"), wanted, have
            elif wanted.kind == "absent":
                yield FileChange(name, "remove", wrote, now.size), wanted, have
            elif not self.contents.has(wanted.address):
                yield FileChange(name, "stays", wrote, size, self.contents.why_not(wanted.address)), wanted, have
            else:
                yield FileChange(name, "back", wanted.by, wanted.size, wanted.reason), wanted, have

    def _now(self, name: str, have: FileState | None, wanted: FileState | None = None) -> FileState:
        """Return the present state of a file; its address is that of its content, whether or not that is kept."""
        if self._name_of(str(self.folder / name)) != name:
            return FileState("unknown", reason="a symbolic link leads there")
        is_unchanged = have is not None and self._stamps.get(name) == self._stamp_of(name)
        if have is not None and is_unchanged and have.kind != "unknown":
            return have
        now = self._look(name, have, wanted)
        # A file whose state at HEAD is unknown may still be in the wanted state.
        is_wanted = wanted is not None and (now.kind, now.address) == (wanted.kind, wanted.address)
        return have if have is not None and is_unchanged and not is_wanted else now

    def _look(self, name: str, *known: FileState | None) -> FileState:
        """Return the state that a file has on the disk; the one of `known` that it has, if it is large."""
        path = self.folder / name
        try:
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode):
                return FileState("unknown", reason="it is no regular file any more")
            if is_database(path):
                return FileState("unknown", reason="it is a database")
            for one in known:  # a large file's address does not tell its content in another kernel
                if one is not None and found.st_mtime_ns == one.mtime_ns and self.contents.equals(one.address, path):
                    return one
            return FileState("file", self.contents.address(path, found), found.st_size)
        except FileNotFoundError:
            return FileState("absent")
        except OSError as fault:
            return FileState("unknown", reason=str(fault.strerror or fault))

    def _carry_out(self, change: FileChange, wanted: FileState, have: FileState | None) -> FileChange:
        """Carry out the change of one file; return what was done."""
        name, path = change.name, self.folder / change.name
        if change.action == "stays":
            return change
        try:
            reason = self._keep_now(name, have)
            if not reason and self._name_of(str(path)) != name:
                reason = "a symbolic link leads there"
            if reason:
                return replace(change, action="stays", reason=reason)
            if change.action == "remove":
                path.unlink(missing_ok=True)
                self._stamps[name] = ()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                found = self.contents.put(wanted.address, path, mode=wanted.mode, mtime_ns=wanted.mtime_ns)
                self._scan.note(str(path), found)
                self._set(name, wanted)
        except (StoreError, OSError) as fault:
            told = str(fault) if isinstance(fault, StoreError) else str(fault.strerror or fault)
            return replace(change, action="stays", reason=told)
        return change

    def _keep_now(self, name: str, have: FileState | None) -> str:
        """Keep the present content of a file; return why it could not be restored later, or an empty text."""
        if have is None:  # the file does not exist: nothing else is replaced
            return ""
        if self._now(name, have) == have and (have.kind == "absent" or self.contents.settled(have.address)):
            return ""
        now = self._keep(name, have.by)
        if now.kind == "unknown":
            return now.reason
        if now.kind == "file" and not self.contents.settled(now.address):
            return self.contents.why_not(now.address)
        if (now.kind, now.address) != (have.kind, have.address):
            self._left.setdefault(name, {})[_key(have)] = now._replace(by="", reason=_FOREIGN)
        return ""

    # -- places ---------------------------------------------------------------------------------

    def _name_of(self, path: str) -> str | None:
        """Return a path relative to the notebook's folder; None if it is elsewhere, or leads through a link."""
        parent, last = os.path.split(os.path.abspath(path))
        folder = str(self.folder)
        if os.path.realpath(parent) != parent:
            parent = os.path.realpath(parent)
            if os.path.abspath(path).startswith(folder + os.sep):
                return None  # a link inside of the folder
        if parent != folder and not parent.startswith(folder + os.sep):
            return None
        return os.path.relpath(os.path.join(parent, last), folder)

    def _inode_of(self, name: str) -> tuple[int, int] | None:
        try:
            found = os.lstat(self.folder / name)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _stamp_of(self, name: str) -> tuple[int, ...]:
        try:
            found = os.lstat(self.folder / name)
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _working_folder(otherwise: Path) -> str:
    try:
        return os.getcwd()
    except OSError:  # a cell removed it
        return str(otherwise)


def _key(state: FileState) -> str:
    """Return a key that differs between the states of one file."""
    return f"{state.by}/{state.address or state.kind}"


def _left(value: Any, name: str, wanted: FileState) -> FileState | None:
    stored = value["left"].get(name, {}).get(_key(wanted))
    return _state(stored) if stored is not None else None


def _stored(states: _States) -> dict[str, list[Any]]:
    return {name: list(one) for name, one in states.items()}


def _states(stored: Mapping[str, Sequence[Any]]) -> _States:
    return {name: made for name, one in stored.items() if _is_name(name) and (made := _state(one)) is not None}


def _is_name(name: object) -> bool:
    """Return whether a stored name can be that of a file in the notebook's folder."""
    return isinstance(name, str) and bool(name) and "\0" not in name and not os.path.isabs(name)


def _state(stored: Sequence[Any]) -> FileState | None:
    """Return a stored state; None if its fields are not of their types."""
    numbers, texts = (stored[2:5], (*stored[:2], *stored[5:])) if len(stored) == 7 else ((None,), ())
    if not all(type(one) is int and 0 <= one < 2**63 for one in numbers) or not all(type(one) is str for one in texts):
        return None
    made = FileState(*stored)
    return made if made.kind in ("file", "absent", "unknown") else None


def _lines(changes: Sequence[FileChange]) -> list[str]:
    lines: list[str] = []
    for action, told in (("back", "back"), ("remove", "removed"), ("stays", "stays")):
        names = [str(one) for one in changes if one.action == action]
        if names:
            lines.append(f"{told}: {some_of(names)}")
    return lines
