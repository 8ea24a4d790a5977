"""The tap on output: one wrap of `session.send`, and bounded copies by the cell that caused them.

Rule 1: the message goes out first, unchanged; what is kept is a copy, and a fault in keeping it is told once.
Rule 2: output is attributed by the parent header that the front end sees, so both always agree.
Rule 3: a collector is filled from any thread, under its lock, and read once it is closed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Artifact

HANDLE_MIME = "application/vnd.ctxkernel.handle+json"
"""Says `model_id`, the widget of a handle: our front end shows that where this kernel has it, and else the text."""
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
CLOSED_KEPT = 2000
"""How many ended cells late output can still find."""
DISPLAYS_KEPT = 200
"""How many rich outputs of one cell are kept; animations send thousands."""


class HeadTail:
    """A text stream of any length in bounded memory: its first and its last part."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head: list[str] = []
        self._head_bytes = 0
        self._tail: deque[str] = deque()
        self._tail_bytes = 0
        self._cut = 0

    def add(self, text: str) -> None:
        """Take in more; O(len(text))."""
        size = _size(text)
        room = self._head_limit - self._head_bytes
        if room > 0 and not self._tail:
            if size <= room:
                self._head.append(text)
                self._head_bytes += size
                return
            part = _first(text, room)
            self._head.append(part)
            self._head_bytes += _size(part)
            text = text[len(part) :]
            size = _size(text)
        if size > self._tail_limit:
            part = _last(text, self._tail_limit)
            self._cut += self._tail_bytes + size - _size(part)
            self._tail.clear()
            self._tail_bytes = 0
            text, size = part, _size(part)
        self._tail.append(text)
        self._tail_bytes += size
        while self._tail_bytes > self._tail_limit:
            first = self._tail[0]
            over = self._tail_bytes - self._tail_limit
            first_size = _size(first)
            if first_size <= over:
                self._tail.popleft()
                gone = first_size
            else:
                kept = _last(first, first_size - over)
                self._tail[0] = kept
                gone = first_size - _size(kept)
            self._tail_bytes -= gone
            self._cut += gone

    @property
    def cut(self) -> int:
        """Bytes (UTF-8) left out between head and tail."""
        return self._cut

    def text(self) -> str:
        """Return what was kept, with a mark where something was cut."""
        head, tail = "".join(self._head), "".join(self._tail)
        # ASCII only: one other character would double the memory of the whole text.
        return f"{head}\n[... {self._cut:,} bytes cut ...]\n{tail}" if self._cut else head + tail


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _first(text: str, limit: int) -> str:
    if text.isascii():
        return text[:limit]
    return text[:limit].encode("utf-8", "surrogatepass")[:limit].decode("utf-8", "ignore")


def _last(text: str, limit: int) -> str:
    if limit <= 0:
        return ""
    if text.isascii():
        return text[-limit:]
    return text[-limit:].encode("utf-8", "surrogatepass")[-limit:].decode("utf-8", "ignore")


class Collector:
    """What one cell put out, as far as it is kept."""

    def __init__(self, execution_id: str, settings: Settings) -> None:
        self.execution_id = execution_id
        self.streams = {"stdout": HeadTail(settings.stream_bytes), "stderr": HeadTail(settings.stream_bytes)}
        self.dropped = 0
        """Rich outputs that were over DISPLAYS_KEPT."""
        self._settings = settings
        self._displays: list[tuple[str | None, tuple[Artifact, ...]]] = []
        self._bytes = 0
        self._shown = 0
        self._clear_next = False
        self._closed = False
        # Re-entrant: a payload's own __str__ may display something.
        self._lock = threading.RLock()

    def take(self, msg_type: str, content: dict[str, Any]) -> bool:
        """Take in one iopub message. Returns False where it came after `close`."""
        with self._lock:
            if self._closed:
                return False
            self._take(msg_type, content)
            return True

    def close(self) -> None:
        """Take in nothing more: what stands here can be read."""
        with self._lock:
            self._closed = True

    def _take(self, msg_type: str, content: dict[str, Any]) -> None:
        if msg_type == "stream":
            stream = self.streams.get(content.get("name", ""))
            if stream is not None:
                stream.add(content.get("text", ""))
            return
        if msg_type == "clear_output":
            self._clear_next = bool(content.get("wait"))
            if not self._clear_next:
                self._clear()
            return
        if self._clear_next:
            self._clear_next = False
            self._clear()
        display_id = (content.get("transient") or {}).get("display_id")
        data = content.get("data") or {}
        if HANDLE_MIME in data:  # which widget shows a handle is nobody's result
            data = {mime: payload for mime, payload in data.items() if mime not in (HANDLE_MIME, WIDGET_MIME)}
        if msg_type == "update_display_data":
            for position, (known, old) in enumerate(self._displays):
                if known == display_id and old:
                    self._bytes -= sum(artifact.size for artifact in old if artifact.data is not None)
                    self._displays[position] = (display_id, self._artifacts(old[0].name, data))
        elif len(self._displays) == DISPLAYS_KEPT:
            self.dropped += 1
        else:
            self._shown += 1
            self._displays.append((display_id, self._artifacts(f"out{self._shown}", data)))

    def _clear(self) -> None:
        self._displays.clear()
        self._bytes = 0

    def _artifacts(self, name: str, data: dict[str, Any]) -> tuple[Artifact, ...]:
        # Made now, not at the end, so that a cell that shows a thousand figures holds bounded memory.
        made: list[Artifact] = []
        for mime, payload in data.items():
            bound = min(self._settings.artifact_bytes, self._settings.artifacts_bytes - self._bytes)
            artifact = _artifact(name, mime, payload, bound)
            if artifact.data is not None:
                self._bytes += artifact.size
            made.append(artifact)
        return tuple(made)

    def artifacts(self) -> tuple[Artifact, ...]:
        """Return the rich outputs as artifacts, one a MIME type, within the bounds of the settings."""
        return tuple(artifact for _, artifacts in self._displays for artifact in artifacts)


def _artifact(name: str, mime: str, payload: Any, bound: int) -> Artifact:
    if isinstance(payload, bytes):
        payload = base64.b64encode(payload).decode("ascii")
    raw = payload if isinstance(payload, str) else json.dumps(payload, default=str)
    encoded = raw.encode("utf-8", "surrogatepass")
    digest = "sha256:" + hashlib.sha256(encoded).hexdigest()
    size = len(encoded)
    if mime.startswith("image/") and not mime.endswith("+xml"):
        size = len(encoded) * 3 // 4  # base64, as a Jupyter message carries it
    return Artifact("display", name, mime, size, digest, payload if size <= bound else None)


KEPT = frozenset(("stream", "display_data", "execute_result", "update_display_data", "clear_output"))
SHOWN = KEPT | {"error"}


class Capture:
    """Sees every message to iopub and keeps what belongs to a cell."""

    def __init__(
        self,
        kernel: Any,
        settings: Settings,
        on_fault: Callable[[Exception], None],
        from_handler: Callable[[BaseException], bool] = lambda _: False,
    ) -> None:
        self._kernel = kernel
        self.settings = settings
        self._on_fault = on_fault
        self._from_handler = from_handler
        """Whether a signal handler of the user's raised something: it is for the user's code."""
        self._open: dict[str, Collector] = {}
        self._closed: dict[str, str] = {}
        self._mute = threading.local()
        self._unsent: set[str] = set()
        """Requests whose output is kept and not sent: statements that the log runs again."""
        self.late: deque[tuple[str, str, str]] = deque(maxlen=10_000)
        """(execution_id, stream or `display`, text) that arrived after the end, not yet fetched."""
        self._session: Any = None
        self._send: Any = None
        self._thread: Any = None
        self._send_multipart: Any = None

    def install(self) -> None:
        """Put the tap on. `uninstall` takes it off."""
        self._session = self._kernel.session
        self._thread = self._kernel.iopub_thread
        self._send = self._session.send
        self._send_multipart = self._thread.send_multipart
        iopub = {id(self._thread), id(self._kernel.iopub_socket)}
        send, send_multipart, mute, unsent = self._send, self._send_multipart, self._mute, self._unsent

        def tapped_send(
            stream: Any, msg_or_type: Any, content: Any = None, parent: Any = None, *args: Any, **kw: Any
        ) -> Any:
            if id(stream) not in iopub:
                return send(stream, msg_or_type, content, parent, *args, **kw)
            if unsent and not getattr(mute, "ours", False) and _kind(msg_or_type) in SHOWN:
                header = (msg_or_type.get("parent_header") if isinstance(msg_or_type, dict) else None) or parent or {}
                if header.get("header", header).get("msg_id") in unsent:
                    self._keep(msg_or_type, content, parent)
                    return None
            # What goes through here also passes send_multipart; it must be kept once only.
            mute.depth = getattr(mute, "depth", 0) + 1
            try:
                sent = send(stream, msg_or_type, content, parent, *args, **kw)
            finally:
                mute.depth -= 1
            if not getattr(mute, "ours", False):
                self._keep(msg_or_type, content, parent)
            return sent

        def tapped_multipart(frames: Any, *args: Any, **kw: Any) -> Any:
            send_multipart(frames, *args, **kw)
            if not getattr(mute, "depth", 0) and isinstance(frames, list):
                self._keep_frames(frames)

        self._session.send = tapped_send
        self._thread.send_multipart = tapped_multipart

    def uninstall(self) -> None:
        """Take the tap off."""
        if self._session is not None:
            self._session.send = self._send
            self._thread.send_multipart = self._send_multipart
            self._session = None

    def ours(self) -> Any:
        """Return a context in which this thread's messages are not the user's, and not kept."""
        return _Muted(self._mute)

    def _keep(self, msg_or_type: Any, content: Any, parent: Any) -> None:
        try:
            if isinstance(msg_or_type, dict):
                msg_type = msg_or_type["header"]["msg_type"]
                if msg_type in KEPT:
                    self._take(msg_or_type.get("parent_header"), msg_type, msg_or_type.get("content"))
            elif msg_or_type in KEPT and parent:
                self._take(parent.get("header", parent), msg_or_type, content)
        except Exception as fault:
            if self._from_handler(fault):
                raise
            self._on_fault(fault)

    def _keep_frames(self, frames: list[Any]) -> None:
        """Keep what a forked child sent: its frames reach the I/O thread already packed."""
        try:
            _, rest = self._session.feed_identities(frames, copy=True)
            # rest: signature, header, parent header, metadata, content
            if len(rest) < 5:
                return
            msg_type = self._session.unpack(rest[1]).get("msg_type")
            if msg_type in KEPT:
                self._take(self._session.unpack(rest[2]), msg_type, self._session.unpack(rest[4]))
        except (ValueError, AttributeError):
            return  # not a Jupyter message: nothing of ours, nothing to keep
        except Exception as fault:
            self._on_fault(fault)

    def _take(self, header: Any, msg_type: str, content: Any) -> None:
        msg_id = header.get("msg_id") if header else None
        if msg_id is None or content is None:
            return
        collector = self._open.get(msg_id)
        if collector is not None and collector.take(msg_type, content):
            return
        late = _late(msg_type, content)
        if late is not None and (execution_id := self._closed.get(msg_id)):
            self.late.append((execution_id, *late))

    def open(self, msg_id: str, execution_id: str, *, unsent: bool = False) -> Collector:
        """Begin to collect for a cell; where it is `unsent`, nothing of it reaches a front end."""
        if unsent:
            self._unsent.add(msg_id)
        collector = self._open[msg_id] = Collector(execution_id, self.settings)
        return collector

    def close(self, msg_id: str) -> None:
        """The cell is over; what still comes for it is late."""
        self._unsent.discard(msg_id)
        collector = self._open.get(msg_id)
        if collector is not None:
            # First where late output goes, then the end of the other way: nothing falls between.
            self._closed[msg_id] = collector.execution_id
            if len(self._closed) > CLOSED_KEPT:
                del self._closed[next(iter(self._closed))]
            collector.close()
            del self._open[msg_id]


def _late(msg_type: str, content: Any) -> tuple[str, str] | None:
    """Return what is kept of output that came after the end: the stream, and its text, of a display the plain one."""
    if msg_type == "stream":
        return content["name"], content["text"]
    if msg_type not in ("display_data", "execute_result"):  # an update is of a display that was kept
        return None
    data = content.get("data") or {}
    return "display", f"{data.get('text/plain') or ', '.join(data)}\n"


def _kind(msg_or_type: Any) -> Any:
    return msg_or_type["header"]["msg_type"] if isinstance(msg_or_type, dict) else msg_or_type


class _Muted:
    def __init__(self, local: threading.local) -> None:
        self._local = local

    def __enter__(self) -> None:
        self._local.ours = True

    def __exit__(self, *exc: object) -> None:
        self._local.ours = False
