"""The author of the code that runs now, for operations that only a person may start.

Rule 1: the author is a context variable, so that tasks and callbacks belong to the cell that made them, whichever cell
        runs when they do. A thread has no author.
Rule 2: this keeps a model from widening its authority by a command or a function of ours. It is no sandbox: code of a
        model that may run can do in the process what the user's code can.
"""

from __future__ import annotations

from contextvars import ContextVar

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.timeline import Author

AUTHOR: ContextVar[Author | None] = ContextVar("ctxkernel_author", default=None)
"""The author of the cell that runs now; None between cells, and in threads."""


def require_person(what: str) -> None:
    """Raise BadCommand unless code of a cell of the person's runs now. `what` is the command."""
    refuse_model(what)
    if AUTHOR.get() is None:
        raise BadCommand(f"{what} needs a cell: only a person can run it, and no thread, timer or callback")


def refuse_model(what: str) -> None:
    """Raise BadCommand if code of a cell of the model's runs now."""
    author = AUTHOR.get()
    if author in ("model", "agent"):
        raise BadCommand(f"a cell of the {author} cannot run {what}: only a person can")
