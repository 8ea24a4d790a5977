"""The quota of checkpoint data in a running kernel: looked at when no cell runs, as soon as it may be exceeded.

Rule 1: what the present state needs stays. What was given up is written to the log, and told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctxkernel.core.replay import CheckpointInfo
from ctxkernel.store.chunks import quota

if TYPE_CHECKING:
    from ctxkernel.kernel.returning.returns import Returning

_SECONDS = 60.0
"""After so long it is looked again, where anything was stored: other kernels store too."""
_STEP = 20
"""Where too little can be given up, it is tried again when a part of the limit, one of so many, was added."""


class Room:
    """Keeps the data of all sessions within the quota, as far as this kernel adds to them."""

    def __init__(self, quota_gb: Callable[[], float], thinned: Callable[[CheckpointInfo], None]) -> None:
        self._quota_gb = quota_gb
        self._thinned = thinned
        """Is told of each state of which large data were given up."""
        self._added = 0
        self._left = 0
        """Bytes that may be added before it is looked again."""
        self._looked = -_SECONDS

    def stored(self, nbytes: int) -> None:
        """Take in that a checkpoint added data."""
        self._added += nbytes

    @property
    def due(self) -> bool:
        """Whether it is time to look."""
        late = time.monotonic() - self._looked > _SECONDS
        return self._added > 0 and (late or self._added > self._left)

    def look(self, back: Returning) -> None:
        """Give up old large data where all sessions together take more than they may. For idle time."""
        limit, own = int(self._quota_gb() * 10**9), back.chunks
        self._added, self._looked = 0, time.monotonic()
        total = sum(quota.usage(own.folder.parent).values())
        if total > limit:
            keep = back.checkpoints.needed_now()
            before = set(back.checkpoints.states.chunks())
            report = quota.collect(own.folder.parent, limit, live=(), own={own.folder.name: own}, keep=keep)
            total = report.after
            self._tell(back, set(own.missing(before)))
        self._left = max(limit - total, limit // _STEP)

    def _tell(self, back: Returning, gone: set[str]) -> None:
        thinned = back.checkpoints.states.thin(gone)
        for info in thinned:
            self._thinned(info)
