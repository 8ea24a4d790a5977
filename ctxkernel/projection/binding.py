"""The blocks that the thinking of a response is bound to: all of its request, and the blocks of the response before it.

`BoundBlocks` decides while the history is laid out; `BindingCheck` looks at the blocks that would be sent, and at the
responses as they are stored, and knows nothing of that decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ctxkernel.history.events import Action, AssistantMessage, Context, HistoryEvent
from ctxkernel.history.responses import block_json
from ctxkernel.history.rules import Violation
from ctxkernel.projection.layout import attribute
from ctxkernel.projection.receipt import Binding
from ctxkernel.projection.value import Piece

BoundTo = tuple[str, str, str]
"""Model, tools and system text."""


class BoundBlocks:
    """The blocks of a history of a model that binds thinking, as they are laid out."""

    def __init__(self, bound_to: BoundTo) -> None:
        self._binding = Binding(*bound_to)
        self._sent: tuple[str, list[Piece]] = "", []
        """(basis, blocks) of the state that was sent right before the next response."""
        self._response = ""
        self._fits = False
        """Whether the newest response stands after the blocks of its request, and so far as it came."""

    def send(self, basis: str, state: list[Piece]) -> None:
        """Note the state that was sent with a request. It is laid out with the response, if that fits."""
        self._sent = basis, state

    def add(self, pieces: Sequence[Piece]) -> None:
        """Add blocks that are no response."""
        self._binding.add(pieces)
        self._sent, self._response = ("", []), ""

    def respond(
        self, response_id: str, pieces: list[Piece], note: Sequence[Piece], *, verbatim: bool
    ) -> tuple[list[Piece], int]:
        """Return the blocks of a part of a response, and the number of those before it.

        With its request they are the state, `note` among it, and the thinking; without it neither.
        """
        (basis, state), self._sent = self._sent, ("", [])
        before = [*state, *note]
        if response_id != self._response or not response_id:
            self._response, self._fits = response_id, bool(basis and pieces) and self._is_bound_to(basis, before)
        if not self._fits:
            before, pieces = [], [piece for piece in pieces if piece.kind != "thinking"]
        self._fits = self._fits and verbatim
        self._binding.add((*before, *pieces))
        return [*before, *pieces], len(before)

    def _is_bound_to(self, basis: str, before: Sequence[Piece]) -> bool:
        """Return whether the digest of the blocks until now, and `before`, is `basis`."""
        binding = self._binding.copy()
        binding.add(before)
        return binding.digest() == basis


class StoredResponse(NamedTuple):
    """A part of a response as it is stored, and the digest of its request."""

    response_id: str
    blocks: Sequence[Mapping[str, Any]]
    basis: str


class StoredResponses(dict[str, StoredResponse]):
    """The parts of responses on a path, by the name of their event in blocks."""

    def __init__(self) -> None:
        super().__init__()
        self._basis = self._of = self._response = ""

    def note(self, event: HistoryEvent) -> None:
        """Add an event of the path, in the order of recording."""
        if isinstance(event, Context):
            self._basis, self._response = event.basis, ""
        elif isinstance(event, Action | AssistantMessage):
            if event.llm_response_id != self._response or not self._response:
                self._response, self._of, self._basis = event.llm_response_id, self._basis, ""
            if event.blocks:
                self[attribute(event.event_id)] = StoredResponse(event.llm_response_id, event.blocks, self._of)


class BindingCheck:
    """Checks that each block of thinking stands after what was sent before it, unchanged."""

    def __init__(self, bound_to: BoundTo) -> None:
        self._binding = Binding(*bound_to)
        self._response: str | None = None
        self._event = ""
        self._next = 0
        """The next block of the event's part of the response."""
        self._fits = False

    def copy(self) -> BindingCheck:
        """Return a check that continues from here."""
        made = object.__new__(BindingCheck)
        made.__dict__.update(self.__dict__, _binding=self._binding.copy())
        return made

    def faults(self, new: Sequence[Piece], stored: Mapping[str, StoredResponse]) -> list[Piece]:
        """Return the blocks of thinking among the next blocks that the API would refuse."""
        found: list[Piece] = []
        for piece in new:
            if piece.role == "assistant" and not self._is_as_stored(piece, stored) and piece.kind == "thinking":
                found.append(piece)
            self._binding.add((piece,))
        return found

    def _is_as_stored(self, piece: Piece, stored: Mapping[str, StoredResponse]) -> bool:
        """Return whether a block stands where it stood in its response, after the same blocks."""
        name = piece.id.partition("#")[0]
        response = stored.get(name)
        if response is None:
            self._response, self._fits = None, False
            return False
        if response.response_id != self._response:
            self._response, self._fits = response.response_id, self._binding.digest() == response.basis
        if name != self._event:
            self._event, self._next = name, 0
        block: Mapping[str, Any] = response.blocks[self._next] if self._next < len(response.blocks) else {}
        self._next += 1
        self._fits = self._fits and piece.raw and piece.text == block_json(block)
        return self._fits


def refusal(path: str) -> Violation:
    """Return the violation for a block of thinking at `path`."""
    return Violation(
        "bound_thinking",
        path,
        "the thinking stands after other blocks than those that were sent before it",
        "leave the thinking out",
    )
