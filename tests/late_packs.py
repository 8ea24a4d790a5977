"""Packs that run out of time, chosen by a test and not by the load of the machine."""

from __future__ import annotations

from collections.abc import Callable

from ctxkernel.state.tracking.groups import Moment


def late_where(is_late: Callable[[tuple[str, ...], bool], object]) -> Callable[..., None]:
    """Return a method in place of `Moment._pack`: `is_late(names, identities)` decides on each that has a bound."""
    pack = Moment._pack

    def timed(moment: Moment, names: tuple[str, ...], *, identities: bool) -> None:
        if moment.seconds is not None and is_late(names, identities):
            moment.deferred.append(names)
        else:
            pack(moment, names, identities=identities)

    return timed


def late_if(is_late: Callable[[], bool]) -> Callable[..., None]:
    """Return a method in place of `Moment._pack`: `is_late()` decides on each that has a bound."""
    return late_where(lambda *_: is_late())
