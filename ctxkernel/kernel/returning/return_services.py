"""The parts of a kernel that returns use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ctxkernel.agent.asks import Account
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.loop import Loop
from ctxkernel.core.replay import Comparison
from ctxkernel.kernel.configuration import Configuration
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.kernel.execution.interrupts import Interrupts
from ctxkernel.kernel.execution.read_files import FileReads
from ctxkernel.kernel.returning.checkpoint_health import Health
from ctxkernel.kernel.returning.file_states import FileStates
from ctxkernel.kernel.returning.store_mirror import StoreMirror
from ctxkernel.state.base.namespace import StartNames
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.state.types.packer import Packer
from ctxkernel.store.log.session import SessionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnServices:
    """The parts of a session that returns read and change."""

    shell: Any
    namespace: dict[str, Any]
    """The user's variables."""
    at_start: StartNames
    loop: Loop
    tracker: NamespaceTracker
    packer: Packer
    store: SessionStore
    configuration: Configuration
    notices: Notices
    interrupts: Interrupts
    file_states: FileStates
    reads: FileReads
    health: Health
    account: Account
    mirror: StoreMirror
    remember: Callable[[Iterable[Comparison]], None]
    """Shows comparisons of an earlier kernel in the panel."""
