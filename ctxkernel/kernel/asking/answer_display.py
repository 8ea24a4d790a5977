"""Where a turn is seen in the notebook: the model's words as they come, its cells, what is asked of the user.

Rule 1: what a model says is untrusted: it is shown as Markdown that can load nothing and holds no HTML.
Rule 2: the first words are shown when they come; then the display is renewed at most every `PACE` seconds, and less
        often where it is long, so that an answer of any length costs a front end no more than it can draw.
Rule 3: all of this is ours: it is no output of a statement, and the log has the response itself.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from ctxkernel.agent.markdown import safe_markdown
from ctxkernel.agent.scripts import Part, Scripts
from ctxkernel.agent.streaming import CallDelta, Retrying, StreamEvent, TextDelta, ThinkingDelta
from ctxkernel.kernel.display.notices import Notices

PACE = 0.05
"""Seconds between two drawings of an answer of up to `EASY` characters; in proportion for a longer one."""
EASY = 10_000
PROPOSAL_MIME = "application/vnd.ctxkernel.proposal+json"
DECIDED = "the ask was replayed from a recorded turn, with what was decided then: nothing waits"
NOTE = {"ctxkernel": {"note": True}}
"""Metadata of what is said of a turn and is no part of it: its cost, what waits. It differs at a replay."""


class Answers:
    """Shows the responses of one turn, and what is done about them, each in a display of its own."""

    def __init__(self, notices: Notices, *, scripts: bool) -> None:
        self._notices = notices
        self._scripts = scripts
        self._id = ""
        """The display that is free to be filled: it says what goes on until then."""
        self._text = ""
        self._parted = False
        """Whether something else came after the text so far: what follows is a paragraph of its own."""
        self._drawn = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reader: Scripts | None = None
        self._doing = ""

    def begin(self) -> None:
        """A request is sent."""
        self._text, self._drawn, self._parted = "", 0.0, False
        self._reader = Scripts() if self._scripts else None
        self.doing("asking the model …")

    def doing(self, told: str) -> None:
        """Say what goes on, until something else is shown."""
        if told != self._doing and not self._text.strip():
            self._doing = told
            self.show({"text/plain": told}, keep=True)

    def show(self, data: dict[str, Any], *, keep: bool = False) -> str:
        """Show something in the free display, else in a new one; with `keep` that stays free. Returns its id."""
        kind = "update_display_data" if self._id else "display_data"
        name = self._id = self._id or uuid.uuid4().hex
        self._notices.display(kind, data, _metadata(data), name)
        if not keep:
            self._id, self._doing = "", ""
        return name

    def change(self, display_id: str, data: dict[str, Any]) -> None:
        """Show something in the place of what was shown before."""
        self._notices.display("update_display_data", data, _metadata(data), display_id)

    def event(self, event: StreamEvent) -> None:
        """Something of the response came."""
        match event:
            case TextDelta():
                self._more(event.text)
            case ThinkingDelta():
                self._parted = True
                self.doing("the model is thinking …")
            case CallDelta():
                self._parted = True
                self.doing(f"the model is writing a call of {event.name} …")
            case Retrying():
                self.doing(f"{event.why}; trying again in {event.seconds:.0f} s (attempt {event.attempt})")

    def _more(self, text: str) -> None:
        parts = [Part("text", text)] if self._reader is None else self._reader.feed(text)
        if any(part.kind == "script" for part in parts):
            self.doing("the model is writing a cell …")
        if not self._grown(parts):
            return
        pace = PACE * max(1.0, len(self._text) / EASY)
        wait = self._drawn + pace - time.monotonic()
        if wait <= 0:
            self._draw()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait, self._draw)

    def _grown(self, parts: Iterable[Part]) -> bool:
        """Add the prose of what came; whether there was any."""
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
            self.show({"text/markdown": safe_markdown(self._text), "text/plain": self._text}, keep=True)
            self._drawn = time.monotonic()

    def end(self, note: str = "") -> None:
        """The response is over."""
        if self._reader is not None:
            self._grown(self._reader.close())
        self._draw()
        if self._text.strip():
            self._id, self._doing, self._text = "", "", ""
        if note:
            self.show({"text/plain": note})

    def close(self) -> None:
        """Nothing more comes: a display that still says what goes on is emptied."""
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
"""What becomes of a proposal, and how its cell is then called."""
WAYS = "%ctx approve [--all] · %ctx edit · %ctx reject REASON · %ctx stop"


def shown(proposal: Mapping[str, Any]) -> dict[str, Any]:
    """Return the MIME bundle of a proposal, or of what has become of it. Its reason and code are untrusted."""
    state, code, reason = proposal["state"], proposal["code"], proposal["reason"]
    waits = state == "waits"
    if proposal["kind"] == "send":
        ways = "\n\nIt waits for your yes: `%ctx approve` sends it, `%ctx stop` does not." if waits else ""
        markdown = plain = f"{proposal['told']}{ways}"
    else:
        longest = max(map(len, re.findall("`+", code)), default=0)
        fence = "`" * max(3, longest + 1)
        markdown = f"**{TITLES[state]}**\n\n{fence}python\n{code.rstrip()}\n{fence}"
        plain = f"{TITLES[state]}\n{code}"
        if reason:
            markdown += f"\n\n{safe_markdown(reason)}"
            plain += f"\n{reason}"
        if waits:
            markdown += f"\n\nIt waits: `{WAYS.replace(' · ', '` · `')}`"
            plain += f"\nIt waits: {WAYS}"
    return {PROPOSAL_MIME: dict(proposal), "text/markdown": markdown, "text/plain": plain}


def _metadata(data: dict[str, Any]) -> dict[str, Any]:
    return NOTE if PROPOSAL_MIME in data or list(data) == ["text/plain"] else {}
