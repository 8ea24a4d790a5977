"""The objects that commands use, and helpers that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.nodes import NodeBase
from ctxkernel.kernel.asking import Models
from ctxkernel.kernel.display.handle_widgets import named_handle, require_handle
from ctxkernel.kernel.execution.interrupts import Timeout
from ctxkernel.kernel.returning.checkpoint_health import Health
from ctxkernel.kernel.returning.checkpoint_service import CheckpointService
from ctxkernel.kernel.returning.store_mirror import StoreMirror
from ctxkernel.kernel.services import KernelServices
from ctxkernel.projection.value import Projection

MARKS = {
    "differs": "is expected to differ when it runs again",
    "asks": "is not run again unasked",
    "none": "has no mark",
}


@dataclass(frozen=True, slots=True)
class CommandContext(KernelServices):
    """The session, and the parts of the kernel that only commands use."""

    models: Models
    checkpoints: CheckpointService
    health: Health
    timeout: Timeout
    mirror: StoreMirror

    @property
    def namespace(self) -> dict[str, Any]:
        """The user's variables."""
        return self.shell.user_ns

    def handle_names(self) -> list[str]:
        """Return the names of the handles."""
        return [state.name for state in self.loop.ls()]

    def handle(self, name: str) -> NodeBase | None:
        """Return the handle in a variable, or with an id."""
        return named_handle(self.loop, self.namespace, name)

    def required_handle(self, name: str, usage: str) -> NodeBase:
        """Return the handle in a variable, or with an id. Raises BadCommand, which begins with `usage`."""
        return require_handle(self.loop, self.namespace, name, usage)

    def projection(self) -> Projection:
        """Return the newest projection. Raises BadCommand if there is none."""
        if self.loop.projection is None:
            raise BadCommand("there is no projection yet: run a cell first")
        return self.loop.projection


def split_flags(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of a command, none of which takes a value, and its other words.

    `dispatch` has refused options that the command does not have. Raises BadCommand for an option with a value.
    """
    flags = [arg for arg in args if arg.startswith("--")]
    for flag in flags:
        name, equals, _ = flag.partition("=")
        if equals:
            raise BadCommand(f"{name} takes no value: write {name} alone, not {flag}")
    return flags, [arg for arg in args if not arg.startswith("--")]


def matches(word: str, event_id: str) -> bool:
    """Return whether a word names an event: by its id, or by its statement's, with or without the s."""
    statement = event_id.partition(".")[0]
    return word in (event_id, statement, statement.removeprefix("s"))
