"""The history of a projection: statements rendered once, folded under a cap, and grown block by block.

Rule 1: what stands here is a function of the path from the root to HEAD and of the cap. What is kept from the last
        projection saves time and changes nothing (law 3): where HEAD went elsewhere, the blocks that both paths begin
        with are kept, and the fold and the run are made anew.
Rule 2: a `Run` that a projection shares is only ever appended to; any other change makes a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.projection.budget import HistoryFold
from ctxkernel.projection.layout import StatementLayout, StatementText, attribute, masked
from ctxkernel.projection.receipt import Receipts
from ctxkernel.projection.value import LeftOut, Piece, Run

Path = Sequence[tuple[Statement, Execution]]

_MOST_KEPT = 10_000
"""Rendered statements that are kept, those of other branches included: coming back to one renders nothing anew."""


class Entry(NamedTuple):
    """A statement of the history, rendered."""

    id: str
    statement_id: str
    text: StatementText


class Past:
    """The rendered history of one engine."""

    def __init__(self, layout: StatementLayout, opening: str) -> None:
        self._layout = layout
        self._opening = opening
        self._entries: list[Entry] = []
        self._rendered: dict[str, Entry] = {}
        self._seen: list[str] = []
        """The executions of the path that has been looked at."""
        self._running: list[int] = []
        """Places in the path that were still running when they were looked at."""
        self._fold = HistoryFold(0)
        self.run = Run()
        self.receipts = Receipts(opening)

    @property
    def tokens(self) -> int:
        """Tokens of all blocks of the run."""
        return self._fold.tokens

    @property
    def newest(self) -> str:
        """The newest statement, or empty."""
        return self._entries[-1].statement_id if self._entries else ""

    def catch_up(self, path: Path, cap: int) -> None:
        """Bring the run up to the end of `path`, under `cap` tokens."""
        if not self._continues(path):
            self._go_back(path)
        first = len(self._entries)
        for place in range(len(self._seen), len(path)):
            statement, execution = path[place]
            self._seen.append(execution.execution_id)
            if execution.status == "running":
                self._running.append(place)
                continue
            self._entries.append(self._entry(statement, execution))
        again = self._fold.cap != cap
        if again:
            self._fold = HistoryFold(cap)
            first = 0
        changed = [self._fold.append(e.text.tokens, e.text.masked_tokens) for e in self._entries[first:]]
        if again or any(changed):
            self._renew()
        else:
            for entry in self._entries[first:]:
                self.run.append(_piece(entry, hidden=False))

    def running(self, path: Path) -> list[LeftOut]:
        """Why statements of the path that have not ended are left out."""
        return [LeftOut(attribute(path[place][1].execution_id), "still running") for place in self._running]

    def _entry(self, statement: Statement, execution: Execution) -> Entry:
        """Return the rendered execution, which has ended, so that it is the same whenever it is asked for."""
        entry = self._rendered.get(execution.execution_id)
        if entry is None:
            text = self._layout.text(statement, execution)
            entry = Entry(attribute(execution.execution_id), attribute(statement.statement_id), text)
            if len(self._rendered) >= _MOST_KEPT:
                self._rendered.clear()
            self._rendered[execution.execution_id] = entry
        return entry

    def _continues(self, path: Path) -> bool:
        """Whether `path` is what was seen, with something added at its end.

        An execution's parents never change, so the same one at the same place means the same path before it.
        """
        end = len(self._seen)
        if len(path) < end or (end and path[end - 1][1].execution_id != self._seen[-1]):
            return False
        return all(path[place][1].status == "running" for place in self._running)

    def _go_back(self, path: Path) -> None:
        """Keep what was rendered of the beginning that `path` shares with what was seen."""
        seen, same = self._seen, 0
        while same < min(len(seen), len(path)) and path[same][1].execution_id == seen[same]:
            if same in self._running and path[same][1].status != "running":
                break
            same += 1
        del seen[same:]
        self._running = [place for place in self._running if place < same]
        del self._entries[same - len(self._running) :]
        self._fold = HistoryFold(-1)

    def _renew(self) -> None:
        """Begin a new run: the fold changed more than its end."""
        fold, cap = self._fold, self._fold.cap
        dropped = f"older than what the history's {cap:,} tokens hold; dropped in a batch"
        hidden = f"outputs masked in a batch: the history came to its {cap:,} tokens"
        left = [LeftOut(entry.id, dropped) for entry in self._entries[: fold.dropped]]
        left += [LeftOut(f"{e.id}:outputs", hidden) for e in self._entries[fold.dropped : fold.masked] if e.text.masks]
        pieces = [
            _piece(entry, hidden=place < fold.masked)
            for place, entry in enumerate(self._entries[fold.dropped :], fold.dropped)
        ]
        self.run = Run(pieces, tuple(left))
        self.receipts = Receipts(self._opening)


def _piece(entry: Entry, *, hidden: bool) -> Piece:
    text = entry.text
    hidden = hidden and text.masks
    why = f"statement {entry.statement_id}; its outputs masked" if hidden else f"statement {entry.statement_id}"
    if text.notes:
        why = f"{why}; {'; '.join(text.notes)}"
    tokens = text.masked_tokens if hidden else text.tokens
    return Piece(entry.id, "statement", entry.statement_id, tokens, why, masked(text) if hidden else text.text)
