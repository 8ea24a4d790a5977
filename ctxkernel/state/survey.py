"""The outcome of a look at one value: a small fingerprint that another one can be compared with.

Rule: equal content gives equal fingerprints, with two exceptions. The order of a dict counts, and so does whether two
places hold one object or two equal ones: a restored or re-run program would tell them apart.
"""

from __future__ import annotations

from typing import NamedTuple

from xxhash import xxh3_128_intdigest

from ctxkernel.state.sharing import NO_IDS, Ids


# A named tuple: there is one for every variable, and a frozen dataclass takes five times as long to make.
class Survey(NamedTuple):
    """The fingerprint of one value, and what it is connected with."""

    structure: tuple[int, ...]
    """Hashes of the structure, in order, each over some kilobytes."""
    body: tuple[int, ...] = ()
    """Hashes of large buffers, in order, each over some megabytes."""
    layout: int = 0
    """Hash of how large buffers lie in memory: `body` can be compared only where this is equal."""
    whole: bool = True
    """All was seen. Otherwise equal means: equal as far as was seen."""
    walked: bool = True
    """The structure was seen whole, whatever became of the large buffers."""
    reason: str = ""
    """Why not all was seen; empty where it is only the time."""
    by_identity: bool = False
    """Holds something opaque, so that an equal object made anew would not compare equal."""
    opaque: bool = False
    """The value itself is opaque: another object is another value."""
    order: int = 0
    """Hash of `ids` in the order in which they were reached: another one says that other objects lie there, be they
    equal. Ids of what was made for the look count too, so it may differ where nothing did."""
    ids: Ids = NO_IDS
    """Ids of everything reached that can be changed or hold what can; negative: start of a memory block."""
    leads: Ids = NO_IDS
    """Ids of what the code of the value reaches without the value holding it: its class, what that holds."""
    deps: frozenset[str] = frozenset()
    """Global names that the code reached through the value mentions."""
    objects: int = 0
    nbytes: int = 0
    """Bytes of large buffers."""

    @property
    def extent(self) -> tuple[bool, bool, int, int]:
        """Orders looks at one value by how much they saw."""
        return self.whole, self.walked, len(self.structure), len(self.body)

    @property
    def ran_out(self) -> bool:
        """Time ran out before the structure was seen: `ids` lacks some, and another look finds them."""
        return not (self.walked or self.reason)

    @property
    def cheap(self) -> bool:
        """Another look costs well under a millisecond."""
        return self.objects <= 300 and self.nbytes <= 256 * 1024


def compare(old: Survey, new: Survey) -> tuple[bool, bool]:
    """Return whether `new` differs from `old`, and whether all of both was compared."""
    whole = old.whole and new.whole
    common = min(len(old.structure), len(new.structure))
    if old.walked and new.walked:
        if old.structure != new.structure:
            return True, True
    elif old.structure[:common] != new.structure[:common]:
        return True, True
    elif (old.walked and len(new.structure) > common) or (new.walked and len(old.structure) > common):
        return True, True  # one ended where the other went on
    if old.layout != new.layout:
        # The same content in other memory (pandas consolidates its blocks on reading): the samples in `structure`,
        # which do not depend on the layout, have to do.
        return False, False
    common = min(len(old.body), len(new.body))
    if old.body[:common] != new.body[:common]:
        return True, True
    return False, whole


def fingerprint(survey: Survey) -> str:
    """Return a short text for the content; empty where it is not known whole or holds what has no content."""
    if not survey.whole or survey.by_identity:
        return ""
    return f"xxh3:{xxh3_128_intdigest(repr((survey.structure, survey.body, survey.layout)).encode()):032x}"
