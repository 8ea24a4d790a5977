"""A property of the user, which may have bugs: the history stays valid, and an exception switches the property off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, get_args

from ctxkernel.core.errors import BadPolicy
from ctxkernel.history.events import Events, HistoryEvent
from ctxkernel.history.invariants.property import Property

METHODS = ("enforce", "validate", "manipulation_indices")
_EVENTS = get_args(HistoryEvent)


class OwnProperty(Property):
    """A property of the user; the properties before it are enforced again on its result.

    So if it removes a result, the call is removed too, and the user's code need not care. If it raises, or returns
    invalid events or gaps, it restricts nothing from then on, and has a `fault`. It is never `local`.
    """

    def __init__(
        self,
        name: str,
        inner: Any,
        before: Sequence[Property],
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """`around` is entered whenever the user's code runs. Raises BadPolicy if a method is missing."""
        missing = [method for method in METHODS if not callable(getattr(inner, method, None))]
        if missing:
            raise BadPolicy(
                f"{name} is no property: it has no {' and no '.join(missing)}; "
                "`from ctxkernel.history.invariants import Property`, and write `class … (Property)`"
            )
        self.name = name
        self.inner = inner
        self.fault = ""
        self._before = tuple(before)
        self._around = around

    def attempt(self, events: Events) -> None:
        """Try the property on a history; let its exceptions pass. Raises BadPolicy if `enforce` is not idempotent."""
        once = self._enforce(events, events)
        if list(map(id, self._enforce(once, events))) != list(map(id, once)):
            raise BadPolicy(f"{self.name}: `enforce` must not change its own result, but it does")
        self._gaps(once)

    def enforce(self, events: Events, source: Events) -> Events:
        """Return the result of the user's property; `events` if it has a fault."""
        return self._guarded(lambda: self._enforce(events, source), events)

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return the gaps of the user's property; all gaps if it has a fault."""
        return self._guarded(lambda: self._gaps(events), range(len(events) + 1))

    def _enforce(self, events: Events, source: Events) -> Events:
        given = list(events)  # the user's code may change the list
        with self._around():
            left: Events = list(self.inner.enforce(given, list(source)))
        strange: object = next((one for one in left if not isinstance(one, _EVENTS)), None)
        if strange is not None:
            raise BadPolicy(f"{self.name}.enforce gave a {type(strange).__name__}; give events of the history")
        if list(map(id, left)) == list(map(id, events)):
            return events
        for one in self._before:
            left = one.enforce(left, left)
        return left

    def _gaps(self, events: Events) -> list[int]:
        with self._around():
            gaps = sorted(set(self.inner.manipulation_indices(list(events))))
        if gaps and not (all(type(gap) is int for gap in gaps) and gaps[0] >= 0 and gaps[-1] <= len(events)):
            raise BadPolicy(f"{self.name}.manipulation_indices gave values that are no gaps from 0 to {len(events)}")
        return gaps

    def _guarded(self, run: Callable[[], Any], otherwise: Any) -> Any:
        if self.fault:
            return otherwise
        try:
            return run()
        except BaseException as fault:  # the user's code runs inside an internal step; also SystemExit and an interrupt
            self.fault = f"{type(fault).__name__}: {fault}"[:300]
            return otherwise
