"""Captures output: wraps `session.send`, and keeps a bounded copy of the messages of each cell.

Rule 1: the message goes out first, unchanged; a copy of it is kept, and a fault in keeping it is told once.
Rule 2: output is attributed by the parent header that the front end sees, so both always agree.
Rule 3: a collector is filled from any thread, under its lock, and read once it is closed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.settings import Settings
from ctxkernel.core.text import without_surrogates
from ctxkernel.core.timeline import Artifact
from ctxkernel.kernel.execution.output_order import OutputOrder, displays_artifact
from ctxkernel.kernel.execution.widget_texts import widget_text
from ctxkernel.projection.displayed_images import FORMS

HANDLE_MIME = "application/vnd.ctxkernel.handle+json"
"""Says `model_id`, the widget of a handle: our front end shows that where this kernel has it, and else the text."""
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
CLOSED_KEPT = 2000
"""The number of ended cells that late output can still find."""
DISPLAYS_KEPT = 200
"""The number of rich outputs that are kept of one cell; animations send thousands."""

IMAGES_HELD = 4
"""The number of images, too large for the log, that are held until the cell ends, to be scaled down."""
LARGEST_IMAGE = 40_000_000
"""Characters of base64 of the largest of them."""


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
        """Bytes (UTF-8) that were left out between head and tail."""

    def add(self, text: str) -> None:
        """Take in more; O(len(text))."""
        if self._head_bytes < self._head_limit and not self._tail:
            part = _first(text, self._head_limit - self._head_bytes)
            self._head.append(part)
            self._head_bytes += _size(part)
            text = text[len(part) :]
            if not text:
                return
        size = _size(text)
        if size > self._tail_limit:
            part = _last(text, self._tail_limit)
            self._cut += self._tail_bytes + size - _size(part)
            self._tail.clear()
            self._tail_bytes = 0
            text, size = part, _size(part)
        self._tail.append(text)
        self._tail_bytes += size
        while (over := self._tail_bytes - self._tail_limit) > 0:
            first = self._tail.popleft()
            kept = _last(first, _size(first) - over)
            if kept:
                self._tail.appendleft(kept)
            gone = _size(first) - _size(kept)
            self._tail_bytes -= gone
            self._cut += gone

    @property
    def cut(self) -> int:
        """Bytes (UTF-8) left out between head and tail."""
        return self._parts()[2]

    def text(self) -> str:
        """Return the kept text, with a mark where something was cut."""
        head, tail, cut = self._parts()
        # ASCII only: one other character would double the memory of the whole text.
        return f"{head}\n[... {cut:,} bytes cut ...]\n{tail}" if cut else head + tail

    def _parts(self) -> tuple[str, str, int]:
        """Return head, tail and the bytes between them. A word at the cut is left out: half a key is not recognised."""
        head, tail = "".join(self._head), "".join(self._tail)
        if not self._cut:
            return head, tail, 0
        before, after = _LAST_WORD.search(head, max(0, len(head) - _WORD - 1)), _FIRST_WORD.match(tail)
        gone = _size(before[0] if before else "") + _size(after[0] if after else "")
        return head[: before.start() if before else None], tail[after.end() if after else 0 :], self._cut + gone


_WORD = 256
"""Characters of the longest word that is left out at a cut."""
_LAST_WORD = re.compile(rf"(?<=\s)\S{{1,{_WORD}}}\Z")
_FIRST_WORD = re.compile(rf"\S{{1,{_WORD}}}(?=\s)")


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _first(text: str, limit: int) -> str:
    if text.isascii():
        return text[:limit]
    encoded = text[: limit + 1].encode("utf-8", "surrogatepass")
    return text if len(encoded) <= limit else encoded[:limit].decode("utf-8", "ignore")


def _last(text: str, limit: int) -> str:
    if limit <= 0:
        return ""
    if text.isascii():
        return text[-limit:]
    encoded = text[-limit - 1 :].encode("utf-8", "surrogatepass")
    return text if len(encoded) <= limit else encoded[-limit:].decode("utf-8", "ignore")


@dataclass(frozen=True, slots=True)
class _Display:
    """A rich output, or an update of one of an earlier cell."""

    artifacts: tuple[Artifact, ...]
    display_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    widget: str = ""
    """The Output widget that shows it; empty for the cell itself."""

    @property
    def size(self) -> int:
        return sum(one.size for one in self.artifacts if one.data is not None)


class Collector:
    """The output of one cell, as far as it is kept."""

    def __init__(self, execution_id: str, settings: Settings, msg_id: str = "") -> None:
        self.execution_id = execution_id
        self.msg_id = msg_id
        self.order = OutputOrder()
        self.streams = {"stdout": HeadTail(settings.stream_bytes), "stderr": HeadTail(settings.stream_bytes)}
        self.dropped = 0
        """Rich outputs that were over DISPLAYS_KEPT."""
        self._settings = settings
        self._displays: list[_Display] = []
        self._updates: dict[str, _Display] = {}
        """Display id → its newest content, for displays that this cell does not show."""
        self._bytes = 0
        self._shown = 0
        self._widgets: list[str] = []
        """The Output widgets that capture now, the one that gets the output last."""
        self._cleared = dict[str, None]()
        """The Output widgets that were cleared: what they captured in earlier cells is gone, too."""
        self._clear_next = set[str]()
        """The widgets, and an empty text for the cell, whose content goes with their next output."""
        self.dropped_images: dict[str, str] = {}
        """The newest images that were too large to be kept, by their hash, until the cell has ended."""
        self.closed = False
        """Whether the cell is over: nothing more is taken in, and the output can be read."""
        # Re-entrant: a payload's own __str__ may display something.
        self.lock = threading.RLock()

    def take(self, msg_type: str, content: dict[str, Any]) -> bool:
        """Take in one iopub message. Return False if the cell is over."""
        with self.lock:
            if not self.closed:
                self._take(msg_type, content)
                return True
        return False

    def _take(self, msg_type: str, content: dict[str, Any]) -> None:
        if msg_type == WIDGET_STATE:
            self._follow_capture(content)
            return
        widget = self._widgets[-1] if self._widgets else ""
        if msg_type == "clear_output" and content.get("wait"):
            self._clear_next.add(widget)
            return
        if msg_type == "clear_output" or (widget in self._clear_next and msg_type != "update_display_data"):
            self._clear(widget)
        if msg_type == "stream":
            stream = self.streams.get(content.get("name", ""))
            if stream is not None:
                stream.add(content.get("text", ""))
                self.order.stream(content["name"], content.get("text", ""), widget)
        elif msg_type == "error":
            self.order.error()
        elif msg_type != "clear_output":
            self._display(msg_type, content, widget)

    def _clear(self, widget: str) -> None:
        self._clear_next.discard(widget)
        self._cleared |= {widget: None} if widget else {}
        self._displays = [one for one in self._displays if one.widget != widget]
        self._bytes = sum(one.size for one in (*self._displays, *self._updates.values()))
        self.order.clear(widget)

    def _follow_capture(self, content: Mapping[str, Any]) -> None:
        """Note that an Output widget begins or ends to capture: its state names the request of the cell."""
        data: dict[str, Any] = content.get("data") or {}
        state: dict[str, Any] = data.get("state") or {}
        if "msg_id" in state:
            name = str(content.get("comm_id"))
            self._widgets = [one for one in self._widgets if one != name]
            if state["msg_id"] == self.msg_id:
                self._widgets.append(name)

    def _display(self, msg_type: str, content: Mapping[str, Any], widget: str) -> None:
        transient: dict[str, Any] = content.get("transient") or {}
        display_id = str(transient.get("display_id") or "")
        data: dict[str, Any] = content.get("data") or {}
        metadata: dict[str, Any] = content.get("metadata") or {}
        if HANDLE_MIME in data:  # the widget that shows a handle is not part of the result
            data = {mime: payload for mime, payload in data.items() if mime not in (HANDLE_MIME, WIDGET_MIME)}
            metadata = {}
        known = [at for at, one in enumerate(self._displays) if display_id and one.display_id == display_id]
        for at in known:
            old = self._displays[at]
            self._bytes -= old.size
            made = self._artifacts(old.artifacts[0].name, data) if old.artifacts else ()
            self._displays[at] = replace(old, artifacts=made, metadata=metadata)
        if msg_type == "update_display_data":
            if display_id and not known:
                self._update(display_id, data, metadata)
        elif len(self._displays) == DISPLAYS_KEPT:
            self.dropped += 1
        else:
            self._shown += 1
            name = f"out{self._shown}"
            self.order.display(name, is_result=msg_type == "execute_result", widget=widget)
            self._displays.append(_Display(self._artifacts(name, data), display_id, metadata, widget))
            self._updates.pop(display_id, None)

    def _update(self, display_id: str, data: dict[str, Any], metadata: Mapping[str, Any]) -> None:
        """Note an update of a display that an earlier cell shows."""
        old = self._updates.pop(display_id, None)
        self._bytes -= old.size if old is not None else 0
        if len(self._updates) < DISPLAYS_KEPT:
            self._updates[display_id] = _Display(self._artifacts("update", data), display_id, metadata)

    def _artifacts(self, name: str, data: dict[str, Any]) -> tuple[Artifact, ...]:
        # Made now, not at the end, so that a cell that shows a thousand figures holds bounded memory.
        made: list[Artifact] = []
        for mime, payload in data.items():
            if isinstance(payload, bytes):
                payload = base64.b64encode(payload).decode("ascii")
            bound = min(self._settings.artifact_bytes, self._settings.artifacts_bytes - self._bytes)
            artifact = _artifact(name, mime, payload, bound)
            if artifact.data is not None:
                self._bytes += artifact.size
            elif mime in FORMS and isinstance(payload, str) and len(payload) <= LARGEST_IMAGE:
                self.dropped_images[artifact.hash] = payload
                if len(self.dropped_images) > IMAGES_HELD:
                    del self.dropped_images[next(iter(self.dropped_images))]
            made.append(artifact)
        return tuple(made)

    def follow_widgets(self) -> None:
        """Give each widget that the cell displayed the text that it has now."""
        with self.lock:
            for position, display in enumerate(self._displays):
                shown = display.artifacts
                widget: Any = next((one.data for one in shown if one.mime == WIDGET_MIME), None)
                view = cast("dict[str, Any]", widget) if isinstance(widget, dict) else {}
                text = widget_text(view.get("model_id"))
                if text is not None:
                    made = tuple([_with_text(one, text) if one.mime == "text/plain" else one for one in shown])
                    self._displays[position] = replace(display, artifacts=made)

    @property
    def has_displays(self) -> bool:
        """Return whether the cell has rich outputs."""
        return bool(self._displays)

    def artifacts(self) -> tuple[Artifact, ...]:
        """Return the rich outputs as artifacts, one a MIME type, within the bounds of the settings."""
        return tuple([one for display in self._displays for one in display.artifacts])

    def arrangement(self) -> tuple[Artifact, ...]:
        """Return the order of the outputs, and what displays have beside their content."""
        about: list[Any] = [
            [one.artifacts[0].name, one.display_id, one.metadata]
            for one in self._displays
            if one.artifacts and (one.display_id or one.metadata)
        ]
        updates: list[Any] = [
            [name, {each.mime: each.data for each in one.artifacts}, one.metadata]
            for name, one in self._updates.items()
        ]
        found = self.order.artifact(), displays_artifact(about, updates, list(self._cleared))
        return tuple([one for one in found if one is not None])


def _with_text(artifact: Artifact, text: str) -> Artifact:
    return _artifact(artifact.name, artifact.mime, text, max(len(text) * 4, 1))


def _artifact(name: str, mime: str, payload: Any, bound: int) -> Artifact:
    raw = payload if isinstance(payload, str) else json.dumps(payload, default=str)
    encoded = raw.encode("utf-8", "surrogatepass")
    digest = "sha256:" + hashlib.sha256(encoded).hexdigest()
    size = len(encoded)
    if mime.startswith("image/") and not mime.endswith("+xml"):
        size = len(encoded) * 3 // 4  # base64, as a Jupyter message carries it
    return Artifact("display", name, mime, size, digest, payload if size <= bound else None)


WIDGET_STATE = "comm_msg"
SHOWN = frozenset(("stream", "display_data", "execute_result", "update_display_data", "clear_output", "error"))
KEPT = SHOWN | {WIDGET_STATE}


class Capture:
    """Sees every message to iopub and keeps those that belong to a cell."""

    def __init__(
        self,
        kernel: Any,
        settings: Settings,
        on_fault: Callable[[Exception], None],
        from_handler: Callable[[BaseException], bool],
    ) -> None:
        self._kernel = kernel
        self.settings = settings
        self._on_fault = on_fault
        self._from_handler = from_handler
        """Whether a signal handler of the user's raised an exception: then it is for the user's code."""
        self._session: Any = None
        self._open: dict[str, Collector] = {}
        self._closed: dict[str, str] = {}
        self._local = threading.local()
        """`ours`: this thread's messages are not the user's. `depth`: calls of the wrapped `send` under way."""
        self._unsent: set[str] = set()
        """Requests whose output is kept and not sent: statements that the log runs again."""
        self.late: deque[tuple[str, str, str]] = deque(maxlen=10_000)
        """(execution_id, stream or `display`, text) that arrived after the end, not yet fetched."""

    def install(self) -> None:
        """Wrap the kernel's functions that send."""
        session = self._session = self._kernel.session
        thread = self._kernel.iopub_thread
        iopub = {id(thread), id(self._kernel.iopub_socket)}
        stock, send_multipart, local, unsent = session.send, thread.send_multipart, self._local, self._unsent

        def send(stream: Any, msg_or_type: Any, content: Any, parent: Any, *args: Any, **kw: Any) -> Any:
            try:
                return stock(stream, msg_or_type, content, parent, *args, **kw)
            except UnicodeEncodeError:  # a lone surrogate, which no message can carry: also a reply would be lost
                message, given = without_surrogates(msg_or_type), without_surrogates(content)
                return stock(stream, message, given, without_surrogates(parent), *args, **kw)

        def tapped_send(
            stream: Any, msg_or_type: Any, content: Any = None, parent: Any = None, *args: Any, **kw: Any
        ) -> Any:
            if id(stream) not in iopub:
                return send(stream, msg_or_type, content, parent, *args, **kw)
            ours = getattr(local, "ours", False)
            if unsent and not ours and _is_shown(msg_or_type):
                message = cast("dict[str, Any]", msg_or_type) if isinstance(msg_or_type, dict) else {}
                header: Any = message.get("parent_header") or parent or {}
                if header.get("header", header).get("msg_id") in unsent:
                    self._keep(msg_or_type, content, parent)
                    return None
            # The message also passes send_multipart; it must be kept only once.
            local.depth = getattr(local, "depth", 0) + 1
            try:
                sent = send(stream, msg_or_type, content, parent, *args, **kw)
            finally:
                local.depth -= 1
            if not ours and (isinstance(msg_or_type, dict) or msg_or_type in KEPT):
                self._keep(msg_or_type, content, parent)
            return sent

        def tapped_multipart(frames: Any, *args: Any, **kw: Any) -> Any:
            send_multipart(frames, *args, **kw)
            if not getattr(local, "depth", 0) and isinstance(frames, list):
                self._keep_frames(cast("list[Any]", frames))

        session.send = tapped_send
        thread.send_multipart = tapped_multipart

    @contextmanager
    def ours(self) -> Generator[None]:
        """Mark this thread's messages as not the user's: they are not kept."""
        self._local.ours = True
        try:
            yield
        finally:
            self._local.ours = False

    def _keep(self, msg_or_type: Any, content: Any, parent: Any) -> None:
        try:
            if isinstance(msg_or_type, dict):
                message = cast("dict[str, Any]", msg_or_type)
                msg_type = message["header"]["msg_type"]
                if msg_type in KEPT:
                    self._take(message.get("parent_header"), msg_type, message.get("content"))
            elif parent:
                self._take(parent.get("header", parent), msg_or_type, content)
        except Exception as fault:
            if self._from_handler(fault):
                raise
            self._on_fault(fault)

    def _keep_frames(self, frames: list[Any]) -> None:
        """Keep a message of a forked child: its frames reach the I/O thread already packed."""
        try:
            _, rest = self._session.feed_identities(frames, copy=True)
            # rest: signature, header, parent header, metadata, content
            if len(rest) < 5:
                return
            msg_type = self._session.unpack(rest[1]).get("msg_type")
            if msg_type in KEPT:
                self._take(self._session.unpack(rest[2]), msg_type, self._session.unpack(rest[4]))
        except (ValueError, AttributeError):
            return  # not a Jupyter message
        except Exception as fault:
            self._on_fault(fault)

    def _take(self, header: Any, msg_type: str, content: Any) -> None:
        msg_id = header.get("msg_id") if header else None
        if msg_id is None or content is None:
            return
        collector = self._open.get(msg_id)
        if collector is not None and collector.take(msg_type, content):
            return
        execution_id = self._closed.get(msg_id)
        if not execution_id:
            return
        if msg_type == "stream":
            self.late.append((execution_id, content["name"], content["text"]))
        elif msg_type in ("display_data", "execute_result"):  # an update is of a display that was kept
            data: dict[str, Any] = content.get("data") or {}
            self.late.append((execution_id, "display", f"{data.get('text/plain') or ', '.join(data)}\n"))

    def open(self, msg_id: str, execution_id: str, *, unsent: bool = False) -> Collector:
        """Begin to collect for a cell; if it is `unsent`, no front end gets its output."""
        if unsent:
            self._unsent.add(msg_id)
        collector = self._open[msg_id] = Collector(execution_id, self.settings, msg_id)
        return collector

    def close(self, collector: Collector) -> None:
        """End the collection for a cell: output that still comes for it is late."""
        msg_id = collector.msg_id
        if collector.has_displays:
            collector.follow_widgets()
        self._unsent.discard(msg_id)
        if self._open.get(msg_id) is collector:
            # In this order, no message falls between: late output has a place before the collector closes.
            self._closed[msg_id] = collector.execution_id
            if len(self._closed) > CLOSED_KEPT:
                del self._closed[next(iter(self._closed))]
            with collector.lock:
                collector.closed = True
            del self._open[msg_id]


def _is_shown(msg_or_type: Any) -> bool:
    message: Any = msg_or_type
    return (message["header"]["msg_type"] if isinstance(msg_or_type, dict) else message) in SHOWN
