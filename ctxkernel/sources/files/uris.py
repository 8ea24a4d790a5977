"""A URI as a source: fetched through fsspec into a local copy, which is then shown as the file that it is.

Rule 1: `stamp()` never waits: it says what is known, and lets a thread look whether that is still so.
Rule 2: the first rendering and `fetch()`, which a view's refresh calls, wait for the server, at most `fetch_seconds`.
Rule 3: what cannot be reached is a line in the rendering; what was fetched before stays below it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ctxkernel.core.errors import BadTarget
from ctxkernel.core.ports import RenderRequest
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.rendering import BaseSource, Draft, Names, Place
from ctxkernel.sources.files.files import FileSource, PlainBasis
from ctxkernel.sources.files.formats import less
from ctxkernel.sources.files.remote import SHARE, Remote, State, shown_uri

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
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
        """What is not there may come at any time."""
        return self._remote.state.path is not None

    def worded(self) -> bool:
        """Whether what was fetched is prose or code."""
        return self._copy is not None and self._copy.worded()

    def fetch(self) -> None:
        """Ask the server now; wait at most `fetch_seconds`."""
        self._remote.fetch()

    def find(self, pos: str) -> Place | None:
        """Return where a symbol, a heading or a pattern is in what was fetched last."""
        with self._lock:
            state = self._known()
            return None if state.path is None else self._copy_at(state.path, self.label).find(pos)

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`, in what was fetched last. Never raises."""
        with self._lock:
            path = self._remote.state.path
            return None if path is None else self._copy_at(path, self.label).further(place, tokens, lod)

    def names(self) -> Names:
        """Return what positions are called in what was fetched last."""
        with self._lock:
            path = self._remote.state.path
            return Names() if path is None else self._copy_at(path, self.label).names()

    def _known(self) -> State:
        """Return what was fetched last; fetch where nothing ever was."""
        if self._remote.state == State() and not self._asked:
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
            draft = copy.draft(request, place, less(budget, count_tokens(line) + 2))
            first, _, rest = draft.text.partition("\n")
            return replace(draft, text="\n".join([first, line, *([rest] if rest else [])]))

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
        self._copy.label = label
        return self._copy


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # Windows: somebody still reads it; its folder goes with the process
        os.unlink(path)


def scheme_of(text: str) -> str:
    """Return the scheme of a URI in lower case, or empty: of a path, and of a drive."""
    found = _SCHEME.match(text)
    return found[1].lower() if found and len(found[1]) > 1 else ""


def _filesystem(uri: str, seconds: float) -> tuple[Any, str]:
    """Return fsspec's file system for a URI and the path in it. Raises BadTarget with the next move."""
    shown, scheme = shown_uri(uri), scheme_of(uri)
    if "[masked" in uri:
        raise BadTarget(f"{shown!r}: its credentials were not kept; view it again with them")
    try:
        import fsspec  # pyright: ignore[reportMissingImports]
        from fsspec.core import url_to_fs  # pyright: ignore[reportMissingImports]
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
            import aiohttp  # pyright: ignore[reportMissingImports]

            # Each part has its time; of a body that never ends, what came until then is kept.
            each = SHARE * seconds
            timeout = aiohttp.ClientTimeout(total=None, connect=each, sock_connect=each, sock_read=each)
            options["client_kwargs"] = {"timeout": timeout}
        return url_to_fs(uri, **options)
    except ImportError as fault:
        raise BadTarget(f"{shown!r} cannot be read: {shown_uri(str(fault))}; install it, and view it again") from None
    except Exception as fault:
        raise BadTarget(
            f"{shown!r} cannot be read ({shown_uri(str(fault)[:160]) or type(fault).__name__}); supported are paths, "
            f"file:, http(s): and what fsspec knows; download it to a file, and view that"
        ) from None
