"""Whether what was packed comes back as it is: a copy is unpacked and looked at as the original is.

For idle time: it finds the types that can be stored and do not come back equal.

Rule 1: a copy is made only where it is small, and where no more of the user's code runs than a return would run: not
        where something in it has a `__del__`, which would run when the copy goes.
Rule 2: what cannot be compared (a lock, what a look does not reach) is no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ctxkernel.state.pickle_core import said
from ctxkernel.state.pickling import Lost, Packed, Packer
from ctxkernel.state.survey import Survey, compare

MOST_BYTES = 64 * 1024 * 1024
"""Largest pack of which a copy is made."""
_OF_PICKLE = frozenset(("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__"))
Look = Callable[[object], Survey | None]


class Verifier:
    """Remembers which types were found good, and looks at others."""

    def __init__(self, packer: Packer, look: Look) -> None:
        self._packer = packer
        self._look = look
        self._good: set[str] = set()
        self.bad: dict[str, str] = {}
        """Types of which a value came back unequal, and what was said of it."""

    def known(self, packed: Packed) -> bool:
        """Say whether a pack holds nothing but plain data and types that were found good."""
        return packed.types <= self._good

    def check(
        self, packed: Packed, values: Mapping[str, object], *, handles: Callable[[str], object] | None = None
    ) -> dict[str, str]:
        """Return the names whose copy is not equal to their value, and why. Never raises but KeyboardInterrupt.

        `values` are those that were packed, and must not have changed since.
        """
        more = [one for one in packed.runs if one.rpartition(".")[2] not in _OF_PICKLE]
        if self.known(packed) or more or packed.nbytes > MOST_BYTES:
            return {}
        report: list[str] = []
        try:
            copies = self._packer.unpack(
                packed.stream,
                [one.toreadonly() for one in packed.buffers],
                live=packed.live.get,
                classes=packed.classes.get,
                report=report,
                handles=handles or Lost,
                trial=True,
            )
        except KeyboardInterrupt:
            raise
        except BaseException as fault:
            return dict.fromkeys(values, f"it cannot be unpacked: {said(fault)}")
        found = self._differing(packed, values, copies)
        if report:
            found |= dict.fromkeys(found or copies, f"a part of it does not come back: {report[0]}")
        for name in packed.types - self._good:
            if found:
                self.bad.setdefault(name, next(iter(found.values())))
            else:
                self._good.add(name)
        return found

    def _differing(self, packed: Packed, values: Mapping[str, object], copies: Mapping[str, object]) -> dict[str, str]:
        names = [name for name in values if name not in packed.faults]
        found = {name: "it does not come back" for name in names if name not in copies}
        for name in names:
            if name in copies and self._differ(values[name], copies[name]):
                found[name] = "its copy is not equal to it"
        if (
            not found
            and len(names) > 1
            and self._differ(*({name: one[name] for name in names} for one in (values, copies)))
        ):
            # Each by itself is equal: what they share is not.
            found = dict.fromkeys(names, "the copies do not share what the originals share")
        return found

    def _differ(self, one: object, other: object) -> bool:
        if type(one) is not type(other):
            return True
        looks = self._look(one), self._look(other)
        if looks[0] is None or looks[1] is None or looks[0].by_identity or looks[1].by_identity:
            return False
        return compare(*looks)[0]  # type: ignore[arg-type]
