"""What goes on from turn to turn: handles and projections, each turn as what differs from the one before.

Rule 1: what a turn stores grows with what changed in it, not with what there is.
Rule 2: a chain of differences is at most CHAIN long; then the whole is stored again, so reading stays short too.
Rule 3: a batch of rows that was not stored must be told by `reset`, or later turns build on nothing.
Rule 4: `restore(base, compress(base, new)) == new`, whatever the two are. Equal is the same here: a series that holds
        both 1 and 1.0 in one place is not for this module. Lists are compared from their start, since the lists of a
        projection's record grow at their end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Generic, TypeVar

from ctxkernel.core.events import Json
from ctxkernel.core.turn import HandleState
from ctxkernel.store.log.rows import Mask, Row, dump, node_row

CHAIN = 64
T = TypeVar("T")


class _Series(Generic[T]):
    def __init__(self) -> None:
        self._last: Mapping[str, T] = {}
        self._base: int | None = None
        self._length = 0

    def reset(self) -> None:
        """Store the whole next time."""
        self._base = None


class HandleSeries(_Series[HandleState]):
    """The handles after each turn, for `node_states` and `turns.nodes_base`."""

    def changed(self, handles: Sequence[HandleState]) -> list[HandleState]:
        """Return those of `handles` that will be stored."""
        last = self._last
        if not handles and not last:
            return []
        if self._whole(handles):
            return list(handles)
        known = {key: _lasting(one) for key, one in last.items()}
        return [one for one in handles if one.changed or one.requested or known.get(one.obj_id) != _lasting(one)]

    def _whole(self, handles: Sequence[HandleState]) -> bool:
        """Say whether removing, replacing in place and adding at the end do not make `handles` of the last ones."""
        now = dict.fromkeys(one.obj_id for one in handles)
        in_order = list(now) == [
            *(key for key in self._last if key in now),
            *(key for key in now if key not in self._last),
        ]
        return self._base is None or self._length >= CHAIN or not in_order

    def rows(
        self, seq: int, handles: Sequence[HandleState], changed: Sequence[HandleState], mask: Mask
    ) -> tuple[int | None, list[Row], dict[str, str]]:
        """Return `nodes_base` of turn `seq`, its rows of `node_states`, and their texts by address.

        `changed` is what `changed(handles)` gave.
        """
        if not handles and (self._base is None or not self._last):
            return self._base, [], {}
        whole = self._whole(handles)
        there = {one.obj_id for one in handles}
        gone = [] if whole else [one for key, one in self._last.items() if key not in there]
        self._last = {one.obj_id: one for one in handles}
        if not changed and not gone and not whole:
            return self._base, [], {}
        made: list[Row] = [(seq, n, one.obj_id, one.name, None, None) for n, one in enumerate(gone)]
        texts: dict[str, str] = {}
        for one in changed:
            row, text = node_row(seq, len(made), one, mask)
            made.append(row)
            texts[str(row[-1])] = text
        base = seq if whole else self._base
        self._base, self._length = seq, 0 if whole else self._length + 1
        return base, made, texts


_lasting = attrgetter(
    *("text", "digest", "name", "pinned", "pin_reason", "members", "notes", "rendered_tokens", "statement_id"),
    "obj_type",
)
"""What a handle says of more than its turn."""


class RecordSeries(_Series[Json]):
    """The projections, for `projections.base` and `projections.record`."""

    def row(self, seq: int, record: Mapping[str, Json]) -> tuple[int | None, str]:
        """Return `base` and `record` of the projection of turn `seq`."""
        different = None if self._base is None or self._length >= CHAIN else compress(self._last, record)
        base = None if different is None else self._base
        self._last, self._base, self._length = record, seq, 0 if different is None else self._length + 1
        return base, dump(record if different is None else different)


Record = Mapping[str, Json]


def compress(base: Record, new: Record) -> dict[str, Json] | None:
    """Return `{key: [n, rest]}` for what differs: the first n items of the base's list and then `rest`.

    n is -1 where the value is `rest` itself. None where `new` lacks a key of `base`, so that no delta says it.
    """
    if not base.keys() <= new.keys():
        return None
    out: dict[str, Json] = {}
    for key, value in new.items():
        old = base.get(key)
        if old == value and key in base:
            continue
        n = _common(old, value) if isinstance(old, list) and isinstance(value, list) else 0  # pyright: ignore[reportUnknownArgumentType]
        out[key] = [n, value[n:]] if n else [-1, value]
    return out


def restore(base: Record, delta: Record) -> dict[str, Json]:
    """Return the object that `compress(base, …)` made `delta` of. Raises KeyError, TypeError, ValueError."""
    out = dict(base)
    for key, (n, rest) in delta.items():
        out[key] = rest if n < 0 else base[key][:n] + rest
    return out


def _common(a: Sequence[Json], b: Sequence[Json]) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(a), len(b)))
