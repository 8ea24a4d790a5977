"""Content of stored units beyond their bytes: equal where objects were made again with the same content.

A function that is defined again has another place in its file; a class, and an array that several names share, has
another label. Two units hold equal content if their trees are equal with numbers in the place of labels, and the labels
of one stand for the same objects as those of the other: one to one, and with equal content themselves.

Rule: in doubt two units differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from xxhash import xxh3_128_hexdigest

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import StoreError
from ctxkernel.core.state_names import LABELS, RESULT, SHARED
from ctxkernel.state.checkpoints import units
from ctxkernel.state.checkpoints.units import Unit
from ctxkernel.state.tracking.fingerprints import Graph, exact_fingerprint, graph_fingerprint
from ctxkernel.state.tracking.stream_trees import TooLarge, values_of
from ctxkernel.state.types.packer import Opened

_MOST_BYTES = 1 << 20
"""Larger streams are compared by their bytes alone."""
_PROCESS = "live:nan-"
"""Prefix of the labels of NaN objects, which are compared by identity."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The content of a unit; empty where it is not known."""

    text: str
    labels: tuple[str, ...]
    """The labels in it, in the order of their numbers in the text."""


_UNKNOWN = _Form("", ())


@dataclass(eq=False)
class UnitContents:
    """Compares units of one session. `read(blob)` gives the content of a blob."""

    read: Callable[[str], bytes | memoryview]
    _bytes: dict[Any, _Form] = field(default_factory=dict[Any, _Form])
    _trees: dict[Any, _Form] = field(default_factory=dict[Any, _Form])

    def labels(self, unit: Unit) -> tuple[str, ...]:
        """Return the labels of everything that a unit refers to. Raises StoreError, ValueError."""
        return self._by_bytes(unit).labels

    def pair_labels(self, one: Unit, other: Unit, *, results: bool) -> list[tuple[str, str]] | None:
        """Return which labels of two units must stand for equal objects so that no cell can tell their values apart.

        None if the values differ. `results`: whether the results of cells that hold the same objects are such values.
        """
        if _values(one, results=results) != _values(other, results=results) or len(_own(one)) != len(_own(other)):
            return None
        try:
            if one is other or one.equals(other):
                labels = self.labels(one) if one.stream[0] and not one.is_plain else one.labels
                return [(label, label) for label in (*_own(one), *labels)]
            if not (_is_whole(one) and _is_whole(other)):
                return None
            if one.names == other.names:
                forms = self._by_bytes(one), self._by_bytes(other)
                if forms[0].text == forms[1].text:
                    own = [(label, label) for label in _own(one)]
                    return [*own, *zip(forms[0].labels, forms[1].labels, strict=True)]
            forms = self._as_tree(one, results=results), self._as_tree(other, results=results)
        except (StoreError, ValueError, TooLarge):
            return None
        if not forms[0].text or forms[0].text != forms[1].text:
            return None
        return [*zip(forms[0].labels, forms[1].labels, strict=True)]

    def graph(self, state: Mapping[str, Any], names: Sequence[str]) -> Graph | None:
        """Return the content of some names of a state with all that they share; None where that is not known."""
        read: dict[int, tuple[dict[str, Any], list[tuple[str, ...]]]] = {}

        def resolve(name: str) -> tuple[Any, Sequence[Sequence[str]]]:
            unit = state.get(name)
            if isinstance(unit, Unit) and unit.is_plain:
                return unit.digest, ()
            if not isinstance(unit, Unit) or not _is_whole(unit):
                raise TooLarge
            if id(unit) not in read:
                stream, chunks = self._stream(unit), [one.chunks for one in unit.buffers]
                if stream.nbytes > _MOST_BYTES:
                    raise TooLarge
                read[id(unit)] = values_of(stream, [one.nbytes for one in unit.buffers], chunks, exact=True), chunks
            values, buffers = read[id(unit)]
            return values[name], buffers

        try:
            return graph_fingerprint(names, resolve)
        except (StoreError, ValueError, KeyError, TooLarge, RecursionError):
            return None

    def _by_bytes(self, unit: Unit) -> _Form:
        key = unit.digest, *unit.chunks
        if (known := self._bytes.get(key)) is None:
            opened = Opened(self._stream(unit))
            text = f"{xxh3_128_hexdigest(opened.body)} {[one.chunks for one in unit.buffers]}"
            known = self._bytes[key] = _Form(text, tuple(opened.labels))
        return known

    def _as_tree(self, unit: Unit, *, results: bool) -> _Form:
        key = results, unit.digest, *unit.chunks
        if (known := self._trees.get(key)) is None:
            stream = self._stream(unit)
            known = _UNKNOWN
            if stream.nbytes <= _MOST_BYTES:
                chunks = [one.chunks for one in unit.buffers]
                values = values_of(stream, [one.nbytes for one in unit.buffers], chunks, exact=True)
                values = {name: value for name, value in values.items() if results or not name.startswith(RESULT)}
                known = _Form(*exact_fingerprint(values, chunks))
            self._trees[key] = known
        return known

    def _stream(self, unit: Unit) -> memoryview:
        return units.unbundle(self.read(unit.stream[0]), unit.stream[1])


@dataclass(eq=False)
class Matching:
    """Compares what an execution read with what there is now, with all that these refer to.

    `then` and `now`: name or label → unit, or None for no value.
    """

    contents: UnitContents
    then: Mapping[str, Unit | None]
    now: Mapping[str, Any]
    effects: Mapping[str, Unit]
    """The changes of the execution. One that changes an object changes the results that hold it, too."""
    classes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """All classes before the execution, by label."""
    binds: Collection[str] = ()
    """The names that the text binds. One without an effect holds an equal value after it, maybe of another object."""
    renames: dict[str, str] = field(default_factory=dict[str, str])
    """Label → the label of the equal object of now."""
    _back: dict[str, str] = field(default_factory=dict[str, str])
    _done: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def differing(self, names: Collection[str]) -> set[str]:
        """Return which of these names differ; all others are known to be as they were.

        If none does, `renames` holds for all of them.
        """
        found = self._differing(names)
        return set() if found and self._is_shared_otherwise(names) and self._has_same_graph(names) else found

    def _differing(self, names: Collection[str]) -> set[str]:
        found = {name for name in self._values(names) if not self._match(name, name)}
        reached = {label for label, _ in self._done}
        alone = [label for label in self.then if label.startswith(LABELS) and label not in reached]
        found.update(one for one in alone if one in names or not (self.then[one] is None or self._bind(one, one)))
        return found

    def _values(self, names: Collection[str]) -> list[str]:
        """Return the names of values that are compared.

        A part of the process is compared by its value; a name that is only bound needs no value.
        """
        return [
            name
            for name, one in self.then.items()
            if not name.startswith(LABELS) and (name in names or not (one is None or ":" in name))
        ]

    def _is_shared_otherwise(self, names: Collection[str]) -> bool:
        """Return whether a value may only be stored in another way: another variable, or a result, holds it, too."""
        values = self._values(names)
        return len(_reached(self.then, values)) != len(_reached(self.now, values))

    def _has_same_graph(self, names: Collection[str]) -> bool:
        """Return whether all that the execution read is equal, wherever it is stored.

        False if the execution changed a part of it that is stored otherwise now, and that variables which it did not
        read may hold.
        """
        changed = {name: unit for name, unit in self.effects.items() if not _equal(unit, self.now.get(name))}
        before = {name: one for name in (*changed, *self.binds) if (one := self.then.get(name)) is not None}
        if any(one.startswith(LABELS) and one in self.now for one in changed.keys() - before.keys()):
            return False
        if self._are_held_elsewhere([name for name, one in before.items() if not _equal(one, self.now.get(name))]):
            return False
        values = [name for name in self._values(names) if self.then[name] is not None or self.now.get(name) is not None]
        graphs = [self.contents.graph(state, values) for state in (self.then, self.now)]
        then, now = graphs
        if then is None or now is None or then.text != now.text:
            return False
        for known in (self.renames, self._back, self._done):
            known.clear()
        pairs = [(label, now.places[at]) for at, label in then.places.items() if at in now.places]
        if not all(self._bind(*both) for both in pairs):
            return False
        classes = zip(then.classes, now.classes, strict=True)
        if not all(self._bind(*both) and self._match(*both) for both in classes):
            return False
        used = {label for unit in changed.values() for label in unit.labels}
        return used <= {*self.renames, *self.effects}

    def _are_held_elsewhere(self, names: Collection[str]) -> bool:
        """Return whether a name of now that the execution has nothing to do with may hold a part of what these hold."""
        reached = _reached(self.now, names)
        shared = {one for one in reached if one.startswith(SHARED)}
        others = ((name, one) for name, one in self.now.items() if name not in self.then and name not in self.effects)
        return any(
            isinstance(one, Unit)
            and not name.startswith(LABELS)
            and (name in reached or not shared.isdisjoint(one.labels))
            for name, one in others
        )

    def _match(self, name: str, other: str) -> bool:
        todo = [(name, other)]
        while todo:
            pair = todo.pop()
            if pair in self._done:
                continue
            self._done.add(pair)
            labels = self._pair(*pair)
            if labels is None or not all(self._bind(*both) for both in labels):
                return False
            todo += [both for both in labels if both[0].startswith(LABELS)]
        return True

    def _pair(self, name: str, other: str) -> list[tuple[str, str]] | None:
        if name not in self.then and name == other:  # a class that the execution did not use
            return []
        one, now = self.then.get(name, self.classes.get(name)), self.now.get(other)
        if name not in self.then and one is None:
            return None
        if one is None or not isinstance(now, Unit):
            return [] if one is None and now is None else None
        results = any(name in self.effects for name in (*one.names, *now.names))
        return self.contents.pair_labels(one, now, results=results)

    def _bind(self, label: str, other: str) -> bool:
        """Take two labels as those of equal objects; return whether that agrees with all others."""
        kinds = label.partition(":")[0], other.partition(":")[0]
        if label != other and (kinds[0] != kinds[1] or (kinds[0] == "live" and not _of_process(label, other))):
            return False
        return self.renames.setdefault(label, other) == other and self._back.setdefault(other, label) == label


def _equal(unit: Unit, now: Any) -> bool:
    return isinstance(now, Unit) and unit.equals(now)


def _reached(state: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """Return all names and labels of what these names hold."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            unit = state.get(name)
            todo += (*unit.names, *unit.labels) if isinstance(unit, Unit) else ()
    return found


def _of_process(*labels: str) -> bool:
    return all(label.startswith(_PROCESS) for label in labels)


def _is_whole(unit: Unit) -> bool:
    """Return whether all content of a unit is in its stream."""
    return bool(unit.digest and unit.stream[0]) and not (unit.live or unit.missing or unit.job or unit.is_plain)


def _own(unit: Unit) -> list[str]:
    return [name for name in unit.names if name.startswith(LABELS)]


def _values(unit: Unit, *, results: bool) -> list[str]:
    return sorted(
        name for name in unit.names if not name.startswith(LABELS) and (results or not name.startswith(RESULT))
    )
