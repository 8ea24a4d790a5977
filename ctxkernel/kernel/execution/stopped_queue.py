"""Refuse execute requests that were sent before an ask stopped the queue, and that arrive later.

    %%ask sent ──(date)── the ask runs ── its reply stops the queue ── a cell below it, sent meanwhile, arrives

ipykernel aborts the requests that have arrived when a reply with an error is sent. On a busy machine the cells of a Run
All can arrive after that moment. They would then run although the ask above them waits for the user.

Rule 1: only dates of one client are compared; the kernel's clock only measures how long the ask took. So it does not
        matter how far the two clocks are apart.
Rule 2: a client can know of the reply at the earliest at (date of the ask + time that it took). A request with a later
        date runs. So does one with an earlier date than the ask: that clock was set.
Rule 3: the reply of any other cell that fails aborts what ipykernel aborts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

_CUT = 0.001
"""Seconds by which a browser's date can be too early: it has whole milliseconds."""
_DRIFT = 0.001
"""The most that the rates of two clocks differ, relative."""
_CLIENTS = 16
"""Most clients whose last stop is kept."""


class StoppedQueue:
    """The stops of the queue, the newest of each client."""

    def __init__(self) -> None:
        self._stops: dict[str, tuple[float, float]] = {}
        """Client's session → the dates between which its requests were sent before the stop."""

    def stop(self, header: Mapping[str, Any], began: float) -> None:
        """Note that the reply to a request stops the queue; `began` is the monotonic time when it was begun."""
        session, date = header.get("session"), _seconds(header.get("date"))
        if not isinstance(session, str) or date is None:
            return
        took = (time.monotonic() - began) * (1 - _DRIFT) - _CUT
        self._stops.pop(session, None)
        self._stops[session] = date, date + took
        while len(self._stops) > _CLIENTS:
            del self._stops[next(iter(self._stops))]

    def has_stopped(self, header: Mapping[str, Any]) -> bool:
        """Return whether an execute request was sent before its client can have known of the stop."""
        date = _seconds(header.get("date"))
        between = self._stops.get(str(header.get("session")))
        return between is not None and date is not None and between[0] <= date <= between[1]


def _seconds(date: object) -> float | None:
    return date.timestamp() if isinstance(date, datetime) else None
