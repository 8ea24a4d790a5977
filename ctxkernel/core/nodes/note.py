"""A note: a text of the user's in the projection (seed 002 §2.1)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Self

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.nodes.node_base import GraphBase, NodeBase, digest_hash, parse_lod, parse_tokens, recorded
from ctxkernel.core.ports import AllTokens, Budget, Rendered
from ctxkernel.core.timeline_events import Json

MOST_CHARS = 100_000
"""Longest text of a note; a longer one belongs in a file with a view."""
_TARGET = 60
_OPENING = 200


def check_text(text: object) -> str:
    """Return `text` if it is a valid text of a note: not empty, at most `MOST_CHARS`. Raises BadPolicy."""
    if not isinstance(text, str):
        raise BadPolicy(f"a note takes a text, and {type(text).__name__} is none; an object is for view(…)")
    if not text.strip():
        raise BadPolicy("the note is empty; give it a text, or delete it: del …")
    if len(text) > MOST_CHARS:
        raise BadPolicy(
            f"a note of {len(text):,} characters is too long (at most {MOST_CHARS:,}); view(io.StringIO(text)) shows it"
        )
    return str(text)


class NoteHandle(NodeBase):
    """A text of the user's. See `note`."""

    obj_type = "note"
    _text = _before = ""
    aliases = {"SetText": "set_text"}  # noqa: RUF012 — read by the base class only

    def __init__(
        self, graph: GraphBase, text: object, *, tokens: object = None, lod: object = 0, pinned: object = False
    ) -> None:
        budget = graph.settings.view_tokens if tokens is None else tokens
        super().__init__(graph, tokens=budget, lod=lod, mode="paused", freq=None)
        self._text = check_text(text)
        self._pinned = bool(pinned)
        self.lasting = True
        graph.adopt(self)
        self._update()

    def _state(self) -> dict[str, Json]:
        return {**super()._state(), "text": self._text, "before": self._before, "lasting": self.lasting}

    def take(self, memento: Mapping[str, Json]) -> None:
        """Set the state of `memento`. Only `Graph.restore` calls it."""
        super().take(memento)
        self._text, self._before, self.lasting = memento["text"], memento["before"], memento["lasting"]
        if self.lasting:
            self.graph.keep(self)
        else:
            self.graph.let_go(self)

    @property
    def text(self) -> str:
        """The whole text; setting it changes the note."""
        return self._text

    @text.setter
    def text(self, text: str) -> None:
        self.set(text=text)

    def set_text(self, text: str) -> Self:
        """Set another text. Raises BadPolicy; chains."""
        return self.set(text=text)

    @property
    def target(self) -> str:
        """The beginning of the text, in one line."""
        line = " ".join(self._text[: 4 * _TARGET].split())
        return line if len(line) <= _TARGET else line[: _TARGET - 1] + "…"

    def digest(self) -> dict[str, Json]:
        """Return a small JSON digest of identity, state and policy."""
        return {**super().digest(), "kind": "note"}

    def settable(self) -> frozenset[str]:
        """Return the names that `set` takes."""
        return (super().settable() - {"mode", "freq", "min_turn_interval"}) | {"text", "pinned"}

    def _set(self, policy: dict[str, Any]) -> None:
        text = check_text(policy["text"]) if "text" in policy else self._text
        pinned = policy.get("pinned", self._pinned)
        super()._set({key: value for key, value in policy.items() if key not in ("text", "pinned")})
        if text != self._text:
            self._before, self._text = self._text, text
            self._update()
        if bool(pinned) != self._pinned:
            self._pinned, self._pin_reason = bool(pinned), ""

    @recorded
    def drop(self) -> Self:
        """Remove it from the projection, as `del` of its last name does. Chains."""
        self.graph.let_go(self)
        return self

    @recorded
    def run(self, freq: object = None) -> Self:
        """Raise BadPolicy: a note only changes when its text is set."""
        raise BadPolicy(
            f"{self.obj_id} is a note: it looks at nothing, so nothing runs; {self.obj_id}.text = … sets it"
        )

    def render(self, lod: int | None = None, tokens: Budget | None = None) -> Rendered:
        """Return its text: 0 whole, 1 the first line of each paragraph, 2 the first line, 3 what the last edit did.

        Changes nothing. Raises BadPolicy.
        """
        level = self._lod if lod is None else parse_lod(lod)
        budget = self._tokens if tokens is None else parse_tokens(tokens)
        graph = self.graph
        text = self._at(level)
        cut = 0
        if not isinstance(budget, AllTokens) and (whole := graph.count_tokens(text)) > budget:
            mark = f"\n[… of ~{whole:,} tokens; {self.obj_id}.tokens shows more]"
            room = budget - graph.count_tokens(mark)
            # No mark where it would leave little of the text.
            text = graph.trim(text, room) + mark if room > budget // 2 else graph.trim(text, budget)
            text = graph.trim(text, budget)
            cut = max(1, whole - graph.count_tokens(text))
        fingerprint = digest_hash({"text": self._text})
        return Rendered(text, graph.count_tokens(text), level, "", cut, None, fingerprint)

    def _at(self, level: int) -> str:
        if level == 0:
            return self._text
        if level == 3:
            old, new = self._before.splitlines(), self._text.splitlines()
            lines = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]  # without the names of two files
            return "\n".join(lines) if self._before else "not changed since it was written"
        paragraphs = [part.strip().splitlines()[0] for part in self._text.split("\n\n") if part.strip()]
        return "\n".join(paragraphs) if level == 1 else paragraphs[0][:_OPENING]
