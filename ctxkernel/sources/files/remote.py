"""Fetching a URI into a bounded local copy, on threads of its own.

Rule 1: nothing here waits for a server but `fetch`, and that at most `seconds`.
Rule 2: at most `MOST_BYTES` are read, and for at most `seconds`; a copy that ends before its whole says so.
Rule 3: a `State` is replaced, never changed: a reader sees the old one or the new one.
Rule 4: no credential of a URI gets into a text (`shown_uri`).
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import itertools
import mimetypes
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import xxhash

from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.projection.secrets import mask

MOST_BYTES = 64 << 20
"""Most bytes of a URI that are fetched."""
CHECK_SECONDS = 5.0
"""A running view asks the server at most so often."""
SHARE = 0.8
"""Of the seconds that a fetch may take, what the server gets: it ends before the one who waits for it gives up."""
_PART = 1 << 18
_LISTED = 1_000
_GIVEN_UP = 3  # a look under way for so many times the seconds that it may take: another one begins
_USER = re.compile(r"(?<=://)[^\s/@]{1,500}@")
_SECRET = re.compile(
    r"(?i)([?&;#][^=&;#\s]*(?:token|key|secret|sig|signature|passw|pwd|auth|cred|session|code)[^=&;#\s]*=)[^&;#\s]+"
)
_VALIDATORS = (
    *("ETag", "etag", "Last-Modified", "LastModified", "Content-MD5", "Digest", "md5Hash", "generation"),
    *("mtime", "modified", "updated", "created", "sha", "content_md5"),
)
_ids = itertools.count()
_folder: str | None = None


def shown_uri(uri: str) -> str:
    """Return a URI as it may be shown: user, password and values of secret-looking parameters masked."""
    return mask(_SECRET.sub(r"\1[masked]", _USER.sub("[masked]@", uri)))


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a URI."""

    version: int = 0
    """Counts what was found: it differs where the content does."""
    path: str | None = None
    """The local copy, or None where there never was one, or the target is gone."""
    fault: str = ""
    """Why the last look found nothing, in a few words."""
    about: str = ""
    """How much of the whole the copy is; empty for all of it."""
    token: str = ""
    """What the server says that changes with the content; empty where it says nothing."""
    digest: str = ""


class Remote:
    """One URI: its last known state, and the looks that renew it."""

    def __init__(self, filesystem: Any, path: str, uri: str, seconds: float) -> None:
        self.state = State()
        self._filesystem, self._path, self._uri, self._seconds = filesystem, path, uri, seconds
        self._lock = threading.Lock()
        self._look: threading.Event | None = None
        """Set when the look under way ends."""
        self._began = float("-inf")

    def look(self) -> None:
        """Begin to look for a change, unless the last look is younger than CHECK_SECONDS. Waits for nothing."""
        if time.monotonic() - self._began >= CHECK_SECONDS:
            self._begin()

    def fetch(self) -> None:
        """Look now, and wait for it: at most `seconds`, then the look goes on without us."""
        self._begin().wait(self._seconds)

    @property
    def fault(self) -> str:
        """Why there is nothing newer than the copy; empty where the last look was answered."""
        under_way = self._look is not None and not self._look.is_set()
        late = under_way and time.monotonic() - self._began >= self._seconds
        return self._timed_out if late else self.state.fault

    @property
    def _timed_out(self) -> str:
        return f"timed out after {self._seconds:g} s"

    def _begin(self) -> threading.Event:
        with self._lock:
            given_up = time.monotonic() - self._began > _GIVEN_UP * self._seconds
            if self._look is None or self._look.is_set() or given_up:
                self._look, self._began = threading.Event(), time.monotonic()
                # Not `Thread.start`, which waits until the thread runs: a tick shall not.
                _thread.start_new_thread(self._run, (self._look,))
            return self._look

    def _run(self, look: threading.Event) -> None:
        before = self.state
        try:
            after = self._looked(before)
        except BaseException as fault:  # whatever a file system of somebody's raises: told in a line
            said = self._said(fault)
            kept = State() if said == "missing" else before
            after = replace(kept, fault=said)
        changed = (after.path, after.fault) != (before.path, before.fault)
        with self._lock:
            if self._look is look:  # not one that was given up
                self.state = replace(after, version=before.version + changed)
        look.set()

    def _looked(self, before: State) -> State:
        deadline = time.monotonic() + SHARE * self._seconds
        info: Mapping[str, Any] = self._filesystem.info(self._path)
        token = _token(info)
        there = before.path is not None and os.path.exists(before.path)  # some system empties its folder for such files
        if token and token == before.token and there:
            return replace(before, fault="")
        path, digest, about = self._copied(info, deadline)
        if digest == before.digest and there:
            os.unlink(path)
            return replace(before, fault="", token=token)
        # What a server says of the whole is not what a part of it is known by.
        return replace(before, path=path, fault="", about=about, token="" if about else token, digest=digest)

    def _copied(self, info: Mapping[str, Any], deadline: float) -> tuple[str, str, str]:
        """Return path and hash of a local copy, and how much of the whole it is."""
        path = os.path.join(_own_folder(), f"{next(_ids)}{self._suffix(info)}")
        size = info.get("size")
        state = xxhash.xxh3_64()
        count, about = 0, ""
        part: bytes | None = None
        with open(path, "xb") as out:
            if info.get("type") == "directory":
                data = _listing(self._filesystem.ls(self._path, detail=True)).encode("utf-8", "replace")
                out.write(data)
                return path, xxhash.xxh3_64_hexdigest(data), ""
            with self._opened(size) as file:
                while part := _read(file, min(_PART, MOST_BYTES + 1 - count), count):
                    state.update(part)
                    out.write(part)
                    count += len(part)
                    if count > MOST_BYTES or time.monotonic() > deadline:
                        break
                else:
                    size = count if part is not None else size
            whole = f" of {format_size(size)}" if isinstance(size, int) and size >= count else ""
            if count > MOST_BYTES:
                out.truncate(MOST_BYTES)
                about = f"its first {format_size(MOST_BYTES)}{whole}"
            elif size != count:
                about = f"its first {format_size(count)}{whole}, after {self._seconds:g} s"
        with contextlib.suppress(OSError):  # a file system whose time begins later
            os.utime(path, ns=(0, 0))  # the same content gives the same fingerprint, whenever it was fetched
        return path, state.hexdigest(), about

    def _opened(self, size: Any) -> Any:
        if self._is_http:  # as a stream: a server that knows no ranges would else send all of it
            return self._filesystem.open(self._path, "rb", block_size=0, size=size or 1)
        return self._filesystem.open(self._path, "rb")

    @property
    def _is_http(self) -> bool:
        return self._uri.lower().startswith(("http:", "https:"))

    def _suffix(self, info: Mapping[str, Any]) -> str:
        """Return the end of the copy's name, which says its format."""
        if info.get("type") == "directory":
            return ".txt"
        named = os.path.splitext(re.split(r"[?#]", self._path)[0])[1] if self._is_http else ""
        named = named or os.path.splitext(self._path)[1]
        if re.fullmatch(r"\.[A-Za-z0-9]{1,10}", named):
            return named.lower()
        kind = info.get("mimetype")
        return (mimetypes.guess_extension(kind) or "") if isinstance(kind, str) else ""

    def _said(self, fault: BaseException) -> str:
        """Return in a few words what went wrong."""
        # fsspec says "not found" whatever it was; the cause knows more.
        if isinstance(fault, FileNotFoundError) and fault.__cause__ is not None:
            fault = fault.__cause__
        status = getattr(fault, "status", None)
        if isinstance(status, int) and status:
            return "missing" if status in (404, 410) else f"HTTP {status} {one_line(getattr(fault, 'message', ''), 60)}"
        if isinstance(fault, TimeoutError):
            return self._timed_out
        if isinstance(fault, FileNotFoundError):
            return "missing"
        if isinstance(fault, PermissionError):
            return "permission denied"
        text = str(fault).replace(self._uri, shown_uri(self._uri))
        return one_line(shown_uri(f"{type(fault).__name__}: {text}"), 160)


def _read(file: Any, most: int, before: int) -> bytes | None:
    """Return the next bytes, empty at the end, None where no more came in time after the first."""
    try:
        return file.read(most)
    except TimeoutError:
        if not before:
            raise
        return None


def _token(info: Mapping[str, Any]) -> str:
    """Return what changes with the content, or empty: a size alone proves nothing."""
    found = [f"{name}={info[name]}" for name in _VALIDATORS if info.get(name)]
    return " ".join([*found, f"size={info.get('size')}"]) if found else ""


def _listing(entries: list[Mapping[str, Any]]) -> str:
    """Return a folder's entries, a line each."""
    rows = sorted((str(entry["name"]).rstrip("/").rpartition("/")[2], entry) for entry in entries)
    lines = [
        f"{name}/" if entry.get("type") == "directory" else f"{name} · {format_size(int(entry.get('size') or 0))}"
        for name, entry in rows[:_LISTED]
    ]
    rest = len(rows) - len(lines)
    return "\n".join([*lines, *([f"[… {plural(rest, 'more entries')}]"] if rest else [])]) + "\n"


def _own_folder() -> str:
    global _folder
    if _folder is None or not os.path.isdir(_folder):
        _folder = tempfile.mkdtemp(prefix="ctxkernel-fetched-")
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    return _folder
