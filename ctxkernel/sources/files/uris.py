"""Fetching a URI into a bounded local copy, on threads of its own.

Rule 1: nothing here waits for a server but `fetch`, and that at most `seconds`.
Rule 2: at most `MOST_BYTES` are read, and for at most `seconds`; a copy that ends before its whole says so.
Rule 3: a `State` is replaced, never changed: a reader sees the old one or the new one.
Rule 4: no credential of a URI gets into a text (`shown_uri`).

A URI as a source: fetched through fsspec into a local copy, which is then shown as the file that it is.

Rule 1: `stamp()` never waits: it says what is known, and lets a thread look whether that is still so.
Rule 2: the first rendering and `fetch()`, which a view's refresh calls, wait for the server, at most `fetch_seconds`.
Rule 3: what cannot be reached is a line in the rendering; what was fetched before stays below it.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import importlib
import itertools
import mimetypes
import os
import re
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import xxhash

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import BadTarget
from ctxkernel.core.jobs import ModelSummary, Preparation
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.projection.secrets import mask
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.rendering import BaseSource, Draft, Names, Place, less, with_remark
from ctxkernel.sources.files.files import FileSource
from ctxkernel.sources.files.text_levels import PlainBasis

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
class UriState:
    """Facts about a URI."""

    version: int = 0
    """Counts what was found: it differs where the content does."""
    path: str | None = None
    """The local copy, or None where there never was one, or the target is gone."""
    fault: str = ""
    """The reason why the last request found nothing, in a few words."""
    about: str = ""
    """The part of the whole that the copy holds; empty for all of it."""
    token: str = ""
    """The server's mark that changes with the content; empty where it gives none."""
    digest: str = ""


class Remote:
    """One URI: its last known state, and the looks that renew it."""

    def __init__(self, filesystem: Any, path: str, uri: str, seconds: float) -> None:
        self.state = UriState()
        self._filesystem, self._path, self._uri, self._seconds = filesystem, path, uri, seconds
        self._lock = threading.Lock()
        self._look: threading.Event | None = None
        """Set when the look under way ends."""
        self._began = float("-inf")
        self._unopened: set[str] = set()
        """Copies that nobody shows: they are removed with this object, others with what shows them."""
        weakref.finalize(self, _remove_all, self._unopened)

    def look(self) -> None:
        """Begin to look for a change, unless the last look is younger than CHECK_SECONDS. Waits for nothing."""
        if time.monotonic() - self._began >= CHECK_SECONDS:
            self._begin()

    def fetch(self) -> None:
        """Look now, and wait for it: at most `seconds`, then the look goes on without us."""
        self._begin().wait(self._seconds)

    def opened(self, path: str) -> None:
        """Leave the removal of a copy to the caller, who shows it."""
        self._unopened.discard(path)

    @property
    def fault(self) -> str:
        """The reason why there is nothing newer than the copy; empty where the last request was answered."""
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
            kept = UriState() if said == "missing" else before
            after = replace(kept, fault=said)
        changed = (after.path, after.fault) != (before.path, before.fault)
        with self._lock:
            if self._look is look:  # not one that was given up
                self.state = replace(after, version=before.version + changed)
        look.set()

    def _looked(self, before: UriState) -> UriState:
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
        self._unopened.add(path)
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
    global _folder  # noqa: PLW0603
    if _folder is None or not os.path.isdir(_folder):
        _folder = tempfile.mkdtemp(prefix="ctxkernel-fetched-")
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    return _folder


T = TypeVar("T")
_AGAIN = "h.refresh() tries again"
OpenCopy = Callable[[str, str], FileSource]


class UriSource(BaseSource):
    """A view of what a URI leads to."""

    kind = "uri"

    def __init__(self, uri: str, seconds: float, open_copy: OpenCopy) -> None:
        """`open_copy(path, label)` makes the source of the local copy. Raises BadTarget where fsspec cannot open it."""
        self.spec = shown_uri(uri)
        super().__init__(self.spec)
        self._remote = Remote(*_filesystem(uri, seconds), uri, seconds)
        self._open_copy = open_copy
        self._copy: FileSource | None = None
        self._asked = False
        self._lock = threading.Lock()  # an Async view is rendered on a worker's thread

    def stamp(self) -> str:
        """Return what is known, and begin to look again if that is some seconds old. Never waits."""
        self._remote.look()
        return f"{self._remote.state.version} {self._remote.fault}"

    def covers(self, stamp: str) -> bool:
        """Return whether there is a copy: a missing file may come at any time."""
        return self._remote.state.path is not None

    def worded(self) -> bool:
        """Return whether what was fetched is prose or code."""
        return self._copy is not None and self._copy.worded()

    def fetch(self) -> None:
        """Ask the server now; wait at most `fetch_seconds`."""
        self._remote.fetch()

    def find(self, pos: str) -> Place | None:
        """Return where a symbol, a heading or a pattern is in what was fetched last."""
        return self._asked_of_copy(self._known, lambda copy: copy.find(pos), None)

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`, in what was fetched last. Never raises."""
        return self._asked_of_copy(lambda: self._remote.state, lambda copy: copy.further(place, tokens, lod), None)

    def end(self, count: int | None, request: RenderRequest) -> Place:
        """Return the place of the last lines of what was fetched last. Raises BadPolicy."""
        return self._asked_of_copy(self._known, lambda copy: copy.end(count, request), Place())

    def preparation(self) -> Preparation | None:
        """Return what the local copy needs from the background."""
        return None if self._copy is None else self._copy.preparation()

    def accept(self, result: Any) -> bool:
        """Give the local copy what was prepared for it. Returns whether no more of it is needed."""
        if isinstance(result, ModelSummary) or self._copy is None:
            return super().accept(result)
        self._renderings.clear()
        return self._copy.accept(result)

    def names(self) -> Names:
        """Return what positions are called in what was fetched last."""
        return self._asked_of_copy(lambda: self._remote.state, lambda copy: copy.names(), Names())

    def _asked_of_copy(self, state: Callable[[], UriState], ask: Callable[[FileSource], T], otherwise: T) -> T:
        """Return what the local copy answers, `otherwise` where there is none."""
        with self._lock:
            path = state().path
            return otherwise if path is None else ask(self._copy_at(path, self.label))

    def _known(self) -> UriState:
        """Return what was fetched last; fetch where nothing ever was."""
        if self._remote.state == UriState() and not self._asked:
            self._asked = True  # waited for once; then h.refresh() does
            self._remote.fetch()
        return self._remote.state

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render what was fetched last."""
        with self._lock:
            state = self._known()
            fault = self._remote.fault
            if state.path is None:
                return self._without(fault, request)
            label = f"{self.label} ({state.about})" if state.about else self.label
            copy = self._copy_at(state.path, label)
            if not fault:
                return copy.draft(request, place, budget)
            line = f"[{fault} at the last look; below is what was fetched before; {_AGAIN}]"
            return with_remark(copy.draft(request, place, less(budget, count_tokens(line) + 2)), line)

    def _without(self, fault: str, request: RenderRequest) -> Draft:
        fault = fault or "nothing fetched"
        was = f"; was {request.basis.about}" if request.lod == 3 and isinstance(request.basis, PlainBasis) else ""
        hint = "" if fault == "missing" and not was else f"; {_AGAIN}"
        basis = PlainBasis(f"gone:{fault}", fault)
        return Draft(f"{self.label} · {fault}{was}{hint}", fingerprint=basis.fingerprint, basis=basis, notes=(fault,))

    def _copy_at(self, path: str, label: str) -> FileSource:
        if self._copy is None or self._copy.path != os.path.abspath(path):
            self._copy = self._open_copy(path, label)
            weakref.finalize(self._copy, _remove, path)  # as long as anybody shows it
            self._remote.opened(path)
        self._copy.label = label
        return self._copy


def _remove_all(paths: set[str]) -> None:
    for path in paths:
        _remove(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # Windows: somebody still reads it; its folder goes with the process
        os.unlink(path)


def _filesystem(uri: str, seconds: float) -> tuple[Any, str]:
    """Return fsspec's file system for a URI and the path in it. Raises BadTarget with the next move."""
    shown, scheme = shown_uri(uri), uri.partition(":")[0].lower()
    if "[masked" in uri:
        raise BadTarget(f"{shown!r}: its credentials were not kept; view it again with them")
    try:
        fsspec: Any = importlib.import_module("fsspec")
    except ImportError:
        raise BadTarget(
            f"{shown!r}: {scheme}: is read by fsspec, which is not installed; "
            f'%pip install "jupyter-ctxkernel[uris]", and view it again'
        ) from None
    try:
        fsspec.get_filesystem_class(scheme)
        # Own instances and no listings: what was cached elsewhere is not what is there now.
        options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
        if scheme in ("http", "https"):
            # Each part has its time; of a body that never ends, what came until then is kept.
            each = dict.fromkeys(("connect", "sock_connect", "sock_read"), SHARE * seconds)
            timeout = importlib.import_module("aiohttp").ClientTimeout(total=None, **each)
            options["client_kwargs"] = {"timeout": timeout}
        return fsspec.core.url_to_fs(uri, **options)
    except ImportError as fault:
        raise BadTarget(f"{shown!r} cannot be read: {shown_uri(str(fault))}; install it, and view it again") from None
    except Exception as fault:
        raise BadTarget(
            f"{shown!r} cannot be read ({shown_uri(str(fault)[:160]) or type(fault).__name__}); supported are paths, "
            f"file:, http(s): and what fsspec knows; download it to a file, and view that"
        ) from None
