"""A cell: the request to run it, which `%ctx` commands its text consists of, and its transformed source."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.timeline import Author, Cost, Execution, Kind, Statement
from ctxkernel.core.turn_values import Observe

ExecuteReply = dict[str, Any]
"""The content of an execute reply."""


@dataclass(slots=True)
class CellRequest:
    """A request to run a cell."""

    code: str
    msg_id: str
    silent: bool = False
    recorded: bool = False
    """Whether the cell becomes a statement; the fields below describe that statement."""
    cell_id: str | None = None
    kind: Kind = "python"
    author: Author = "human"
    tags: dict[str, Any] = field(default_factory=dict[str, Any])
    rerun: bool = False
    """Whether it is one of the cells that a notebook runs again from a checkpoint on."""
    rerun_of: Statement | None = None
    """The statement that the log runs again."""
    against: str = ""
    """The execution that the re-run is compared with."""
    affected: bool = False
    """Whether a front end sends it in a stepwise re-run of the affected cells: it may keep its result."""
    kept: Execution | None = None
    """The execution whose result the cell takes instead of running."""
    recalled: str = ""
    """The time that this saves, for people, where the result is of any execution in the tree."""
    only_logged: bool = False
    """Whether its output goes to the log, and not to the front end."""
    observe: Observe | None = None
    """Returns the events to record in the model's history when the cell has ended."""
    cost: Cost | None = None
    """The cost of the cell, where it is not the cell's own time."""
    keeps_number: bool = False
    """Whether it gets a number in `In` and `Out` even if the request that it runs under does not."""
    moves_head: bool = field(init=False)
    """Whether the cell is a command that moves HEAD."""

    @property
    def by_model(self) -> bool:
        """Return whether a model wrote the cell: ours, or that of an agent."""
        return self.author in ("model", "agent")

    def __post_init__(self) -> None:
        code = str(self.code)  # a malformed request may hold anything
        self.moves_head = "%ctx" in code and moves_head(code)


class Then(Protocol):
    """Work that continues after the turn of a cell."""

    async def carry_out(
        self, execute: Callable[[CellRequest], Awaitable[ExecuteReply]], outer: CellRequest, reply: ExecuteReply
    ) -> ExecuteReply:
        """Run further cells, each as a turn of its own, and return the reply to the cell that asked for it."""
        ...


# -- commands ----------------------------------------------------------------------------------------

READING = frozenset(
    (
        *("status", "timeline", "projection", "why", "whatif", "help", "show", "panel", "branches", "diff", "cost"),
        *("summaries", "stale"),
    )
)
"""Subcommands of `%ctx` that change nothing: a cell of these leaves no statement and never branches (law 8)."""
MOVING = frozenset(("goto", "undo", "rerun", "resume"))
"""Subcommands that must be alone in a cell: they move HEAD, and may run other cells."""
DECIDING = frozenset(("approve", "edit", "reject", "stop"))
"""Subcommands that decide about a cell proposed by the model."""
HANDLING = frozenset(("set", "refresh"))
"""Subcommands that change a handle as a cell could: a re-run repeats them."""
NAMING = frozenset(("pin", "unpin", "checkpoint"))
"""Subcommands that keep a handle in the projection, or name a state."""

_COMMAND = re.compile(r"%ctx(?:\s+(?P<sub>[\w-]+))?(?:\s|\?|$)")
_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*\"""")
"""Quoted text is never an option."""
_ASKS = re.compile(r"%ctx\s+(?:config(?:\s+[\w-]+)?|properties|model|mode|private|allow)(?:\s+#.*)?")
_LOOKS = re.compile(r"%ctx\s+(?:condense|redact)\s(?!(?:.*\s)?--undo(?:\s|$))(?:.*\s)?--(?:show|list)(?:\s|$)")
_DRY = re.compile(rf"%ctx\s+(?:{'|'.join(sorted(MOVING))})\s(?:.*\s)?--dry-run(?:\s|$)")


def only_reads(code: str) -> bool:
    """Return whether the cell consists of `%ctx` commands that only read, and of comments."""
    lines = _lines(code)
    return bool(lines) and all(map(_reads, lines))


def only_commands(code: str) -> bool:
    """Return whether the cell consists of `%ctx` commands and comments."""
    lines = _lines(code)
    return bool(lines) and None not in map(_subcommand, lines)


def on_handles(code: str) -> bool:
    """Return whether a line of the cell is a command that changes a handle as a cell could."""
    return any(_subcommand(line) in HANDLING for line in _lines(code))


def moves_head(code: str) -> bool:
    """Return whether the cell is one `%ctx` command that moves HEAD; comments may stand beside it."""
    lines = _lines(code)
    return len(lines) == 1 and _subcommand(lines[0]) in MOVING


def asks(code: str) -> bool:
    """Return whether the cell asks the model, or decides about a proposal of the model: it runs no code itself."""
    return code.lstrip().startswith(("%%ask", "%ask ", "%%ctx edit")) or _subcommand(code.strip()) in DECIDING


def _lines(code: str) -> list[str]:
    if "%ctx" not in code:
        return []
    return [text for line in code.splitlines() if (text := line.strip()) and not text.startswith("#")]


def _subcommand(line: str) -> str | None:
    match = _COMMAND.match(line)
    return None if match is None else match["sub"] or "help"


def _reads(line: str) -> bool:
    command = _subcommand(line)
    return command is not None and bool(
        line.endswith("?")
        or command in READING
        or _DRY.search(line)
        or _LOOKS.match(_QUOTED.sub("", line))
        or _ASKS.fullmatch(line)
    )


# -- the transformed source --------------------------------------------------------------------------


class SingleTransform:
    """Replaces `shell.transform_cell`, and transforms each cell only once.

    ipykernel transforms a cell to see whether it awaits, and IPython transforms it again to run it. No code runs
    between the two calls, and a transformation takes longer than storing the cell.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._stock = shell.transform_cell
        self.expected = False
        """Whether the next call is the first one for a cell."""
        self._cached: tuple[str, list[Any], str] | None = None
        """Source, transformers and result of the last call; valid for the next call only."""

    def install(self) -> None:
        """Replace `transform_cell`."""
        self._shell.transform_cell = self

    def __call__(self, raw_cell: str) -> str:
        """Return a cell's source as Python."""
        cached, self._cached = self._cached, None
        expected, self.expected = self.expected, False
        if not expected and cached is None:
            return self._stock(raw_cell)
        manager = self._shell.input_transformer_manager
        transformers = [
            *manager.cleanup_transforms,
            *manager.line_transforms,
            *manager.token_transformers,
            *self._shell.input_transformers_post,
        ]
        if not expected and cached is not None and cached[:2] == (raw_cell, transformers):
            return cached[2]
        made = self._stock(raw_cell)
        if expected:
            self._cached = raw_cell, transformers, made
        return made
