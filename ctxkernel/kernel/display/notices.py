"""Texts of ctxkernel in a cell: output of commands, notices, refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ctxkernel.core.masking import Mask
from ctxkernel.core.report import Report
from ctxkernel.core.text import join_names, show_hidden
from ctxkernel.kernel.execution.capture import Capture
from ctxkernel.store.log.row_masking import masked_json

DECIDED = "the ask was replayed from a recorded turn, with what was decided then: nothing waits"
NOTE = {"ctxkernel": {"note": True}}
"""Metadata of remarks on a turn, such as its cost. They differ in a replay."""


def masked_notice(kinds: Sequence[str]) -> str:
    """Return the notice about kinds of secrets that were masked for the first time, and how to show them."""
    named = join_names(kinds, 8)
    first = f'"{kinds[0]}"' if " " in kinds[0] else kinds[0]
    return (
        f"masked in the log, the projection and the panel: {named}. "
        f"If it is not a secret, %ctx allow {first} shows it; %ctx status counts what is masked"
    )


class Notices:
    """Writes to the running cell as ctxkernel, masked: none of it counts as the cell's output.

    A notice can contain a name, a path or an error of somebody else's: characters that are not seen are shown as marks.
    """

    def __init__(self, kernel: Any, capture: Callable[[], Capture], mask: Mask) -> None:
        self._kernel = kernel
        self._mask = mask
        self._capture = capture
        self.kept: list[str] = []
        """Notices that `%ctx status` and the panel show later too."""
        self.due: list[str] = []
        """Notices from the start of the kernel that the first cell shows."""

    def write(self, text: str) -> None:
        """Write to the cell's stdout."""
        self._stream("stdout", text)

    def report(self, report: Report) -> None:
        """Show a report in the cell: HTML, with text for terminals and logs."""
        text = show_hidden(self._mask(report.text()))
        self.display("display_data", {"text/plain": text, "text/html": report.masked(self._mask).html()}, {}, "")

    def tell(self, text: str) -> None:
        """Write one line to the cell's stderr."""
        self._stream("stderr", text + "\n")

    def keep(self, notice: str | None) -> None:
        """Show a notice, if there is one, and keep it."""
        if notice:
            self.kept.append(notice)
            self.tell(f"ctxkernel: {notice}")

    def tell_due(self) -> None:
        """Show the notices that are due."""
        due, self.due = self.due, []
        for notice in due:
            self.tell(f"ctxkernel: {notice}")

    def refuse(self, why: str, name: str = "CtxError") -> dict[str, Any]:
        """Show the reason of a refusal as an error, and return the cell's reply."""
        why = show_hidden(self._mask(why))
        content = {"ename": name, "evalue": why, "traceback": [why]}
        self._kernel.send_response(self._kernel.iopub_socket, "error", content)
        return {"status": "error", "execution_count": self._kernel.execution_count, **content}

    def display(
        self, kind: str, data: dict[str, Any], metadata: dict[str, Any], display_id: str, *, masked: bool = True
    ) -> None:
        """Display a MIME bundle in the cell; `kind` is `display_data` or `update_display_data`."""
        if masked:
            data = {mime: masked_json(one, self._mask) for mime, one in data.items()}
        transient = {"display_id": display_id} if display_id else {}
        content = {"data": data, "metadata": metadata, "transient": transient}
        with self._capture().ours():
            self._kernel.send_response(self._kernel.iopub_socket, kind, content)

    def _stream(self, name: str, text: str) -> None:
        content = {"name": name, "text": show_hidden(self._mask(text))}
        with self._capture().ours():
            self._kernel.send_response(self._kernel.iopub_socket, "stream", content)
