"""A property of the user's own, which may be wrong: the history stays sound, and a fault switches it off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, get_args

from ctxkernel.core.errors import BadPolicy
from ctxkernel.history.events import Events, HistoryEvent
from ctxkernel.history.invariants.base import Property

METHODS = ("enforce", "validate", "manipulation_indices")
_EVENTS = get_args(HistoryEvent)


class OwnProperty(Property):
    """What a property of the user's says, with the properties before it enforced again on what it leaves.

    So one that takes a result away takes the call with it, and needs to know nothing of that. One that raises, or
    gives what are no events or gaps, restricts nothing from then on, and has a `fault`. It is never `local`.
    """

    def __init__(
        self,
        name: str,
        inner: Any,
        before: Sequence[Property],
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """`around` is entered whenever the user's code runs. Raises BadPolicy where a method is missing."""
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
        """Try it on a history, whatever it raises is let through. Raises BadPolicy where it breaks what must hold."""
        once = self._enforce(events, events)
        if list(map(id, self._enforce(once, events))) != list(map(id, once)):
            raise BadPolicy(f"{self.name}: `enforce` of what it gave must change nothing, and it does")
        self._gaps(once)

    def enforce(self, events: Events, source: Events) -> Events:
        """Return what the user's property leaves; `events` where it is faulty."""
        return self._guarded(lambda: self._enforce(events, source), events)

    def manipulation_indices(self, events: Events) -> Iterable[int]:
        """Return the gaps of the user's property; all where it is faulty."""
        return self._guarded(lambda: self._gaps(events), range(len(events) + 1))

    def _enforce(self, events: Events, source: Events) -> Events:
        given = list(events)  # it may change what it gets
        with self._around():
            left: Events = list(self.inner.enforce(given, list(source)))
        strange = next((one for one in left if not isinstance(one, _EVENTS)), None)
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
            raise BadPolicy(f"{self.name}.manipulation_indices gave what are no gaps from 0 to {len(events)}")
        return gaps

    def _guarded(self, run: Callable[[], Any], otherwise: Any) -> Any:
        if self.fault:
            return otherwise
        try:
            return run()
        except BaseException as fault:  # the user's code, in our part of the cell; SystemExit and an interrupt too
            self.fault = f"{type(fault).__name__}: {fault}"[:300]
            return otherwise
