"""Display a turn in the notebook: the model's text as it arrives, its cells, and proposals that wait for the user.

Rule 1: a model's text is untrusted: it is displayed as Markdown that loads nothing and contains no HTML.
Rule 2: the first words are displayed at once; then the display is updated at most every `PACE` seconds, less often for
        a long answer, so that an answer of any length costs a front end no more than it can draw.
Rule 3: none of this is output of a statement; the log contains the response itself.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ctxkernel.agent.markdown import safe_markdown
from ctxkernel.agent.scripts import ScriptPart, Scripts
from ctxkernel.agent.streaming import CallDelta, Retrying, StreamEvent, TextDelta, ThinkingDelta
from ctxkernel.core.text import show_hidden
from ctxkernel.kernel.display.notices import NOTE, Notices

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import plan_messages as messages

PACE = 0.05
"""Seconds between two updates of an answer of up to `EASY` characters; more for a longer one, in proportion."""
EASY = 10_000
PROPOSAL_MIME = "application/vnd.ctxkernel.proposal+json"


class AnswerDisplay:
    """Displays the responses, cells and remarks of one turn, each in a display of its own (`agent.ask_turn.Screen`)."""

    def __init__(self, notices: Notices, *, scripts: bool) -> None:
        self._notices = notices
        self._scripts = scripts
        self._id = ""
        """The display that shows the progress, until a result replaces that."""
        self._text = ""
        self._parted = False
        """Whether something else followed the text so far, so that later text begins a new paragraph."""
        self._drawn = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reader: Scripts | None = None
        self._progress = ""

    def begin(self) -> None:
        """Show that a request is sent."""
        self._text, self._drawn, self._parted = "", 0.0, False
        self._reader = Scripts() if self._scripts else None
        self.progress("asking the model …")

    def progress(self, text: str) -> None:
        """Show what happens now, until something else is shown."""
        if text != self._progress and not self._text.strip():
            self._progress = text
            self.show({"text/plain": text}, keep=True)

    def show(self, data: dict[str, Any], *, keep: bool = False) -> str:
        """Show data in the progress display, else in a new one; `keep` lets later data replace it. Return its id."""
        kind = "update_display_data" if self._id else "display_data"
        name = self._id = self._id or uuid.uuid4().hex
        # What waits for approval is shown as it runs, since a mask could hide any code; once decided, it is masked.
        proposal: dict[str, Any] = data.get(PROPOSAL_MIME) or {}
        self._notices.display(kind, data, _metadata(data), name, masked=proposal.get("state") != "waits")
        if not keep:
            self._id, self._progress = "", ""
        return name

    def change(self, display_id: str, data: dict[str, Any]) -> None:
        """Replace the data of an earlier display."""
        self._notices.display("update_display_data", data, _metadata(data), display_id)

    def event(self, event: StreamEvent) -> None:
        """Show an event of the response."""
        match event:
            case TextDelta():
                self._more(event.text)
            case ThinkingDelta():
                self._parted = True
                self.progress("the model is thinking …")
            case CallDelta():
                self._parted = True
                self.progress(f"the model is writing a call of {event.name} …")
            case Retrying():
                self.progress(f"{event.why}; trying again in {event.seconds:.0f} s (attempt {event.attempt})")

    def _more(self, text: str) -> None:
        parts = [ScriptPart("text", text)] if self._reader is None else self._reader.feed(text)
        if any(part.kind == "script" for part in parts):
            self.progress("the model is writing a cell …")
        if not self._grown(parts):
            return
        pace = PACE * max(1.0, len(self._text) / EASY)
        wait = self._drawn + pace - time.monotonic()
        if wait <= 0:
            self._draw()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait, self._draw)

    def _grown(self, parts: Iterable[ScriptPart]) -> bool:
        """Add the prose of new parts. Return whether there was any."""
        before = self._text
        for part in parts:
            if part.kind != "text":
                self._parted = True
            elif part.text:
                parted = self._parted and self._text.strip()
                self._text = f"{self._text.rstrip()}\n\n{part.text.lstrip()}" if parted else self._text + part.text
                self._parted = False
        return self._text != before

    def _draw(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._text.strip():
            text = show_hidden(self._text)
            self.show({"text/markdown": safe_markdown(text), "text/plain": text}, keep=True)
            self._drawn = time.monotonic()

    def end(self, note: str = "", text: str | None = None) -> None:
        """Show the end of the response, and a remark on it; `text` replaces its text if cells were read from that."""
        if self._reader is not None:
            self._grown(self._reader.close())
        self._text = self._text if text is None else text
        self._draw()
        if self._text.strip():
            self._id, self._progress, self._text = "", "", ""
        if note:
            self.show({"text/plain": note})

    def close(self) -> None:
        """Empty a display that still shows the progress."""
        if self._id:
            self.show({"text/plain": ""})


TITLES = {
    "waits": "the model proposes a cell",
    "approved": "the model's cell",
    "edited": "the model's cell, edited by you",
    "rejected": "a cell of the model, not run: you rejected it",
    "stopped": "a cell of the model, not run",
    "held": "a cell of the model was held back, and not run",
}
"""State of a proposal → the title of its cell."""
FENCED = "Read from a fenced block, since the answer has no script tag."
WAYS = "%ctx approve [--all] · %ctx edit · %ctx reject REASON · %ctx stop"


def proposal_bundle(proposal: messages.Proposal) -> dict[str, Any]:
    """Return the MIME bundle of a proposal in its state. All of its texts are untrusted.

    The code is shown as it runs: characters that are not seen, or that reorder it, are shown as marks.
    """
    state, code, reason = proposal["state"], show_hidden(proposal["code"]), show_hidden(proposal["reason"])
    waits = state == "waits"
    if proposal["kind"] == "send":
        ways = "\n\nIt waits for your approval: `%ctx approve` sends it, `%ctx stop` does not." if waits else ""
        told = show_hidden(proposal["told"])
        markdown, plain = f"{safe_markdown(told)}{ways}", f"{told}{ways}"
    else:
        longest = max(map(len, re.findall("`+", code)), default=0)
        fence = "`" * max(3, longest + 1)
        markdown = f"**{TITLES[state]}**\n\n{fence}python\n{code.rstrip()}\n{fence}"
        plain = f"{TITLES[state]}\n{code}"
        if FENCED in proposal["told"]:
            markdown += f"\n\n{FENCED}"
            plain += f"\n{FENCED}"
        if reason:
            markdown += f"\n\n{safe_markdown(reason)}"
            plain += f"\n{reason}"
        if waits:
            markdown += f"\n\nIt waits: `{WAYS.replace(' · ', '` · `')}`"
            plain += f"\nIt waits: {WAYS}"
    return {PROPOSAL_MIME: dict(proposal), "text/markdown": markdown, "text/plain": plain}


def _metadata(data: dict[str, Any]) -> dict[str, Any]:
    return NOTE if PROPOSAL_MIME in data or list(data) == ["text/plain"] else {}
