"""Texts of ctxkernel in a cell: output of commands, notices, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctxkernel.kernel.execution.capture import Capture


class Notices:
    """Writes to the running cell as ctxkernel: none of it counts as the cell's output."""

    def __init__(self, kernel: Any, capture: Callable[[], Capture]) -> None:
        self._kernel = kernel
        self._capture = capture
        self.kept: list[str] = []
        """Notices that `%ctx status` and the panel show later too."""

    def write(self, text: str) -> None:
        """Write to the cell's stdout."""
        self._stream("stdout", text)

    def tell(self, text: str) -> None:
        """Write one line to the cell's stderr."""
        self._stream("stderr", text + "\n")

    def keep(self, notice: str | None) -> None:
        """Show a notice, if there is one, and keep it."""
        if notice:
            self.kept.append(notice)
            self.tell(f"ctxkernel: {notice}")

    def refuse(self, why: str, name: str = "CtxError") -> dict[str, Any]:
        """Show the reason of a refusal as an error, and return the cell's reply."""
        content = {"ename": name, "evalue": why, "traceback": [why]}
        self._kernel.send_response(self._kernel.iopub_socket, "error", content)
        return {"status": "error", "execution_count": self._kernel.execution_count, **content}

    def display(self, kind: str, data: dict[str, Any], metadata: dict[str, Any], display_id: str) -> None:
        """Display a MIME bundle in the cell; `kind` is `display_data` or `update_display_data`."""
        content = {"data": data, "metadata": metadata, "transient": {"display_id": display_id}}
        with self._capture().ours():
            self._kernel.send_response(self._kernel.iopub_socket, kind, content)

    def _stream(self, name: str, text: str) -> None:
        with self._capture().ours():
            self._kernel.send_response(self._kernel.iopub_socket, "stream", {"name": name, "text": text})
