"""The changes of variables that could not be compared in time, found when a background process has packed them.

Rule 1: a cell changed a variable if what it held before and after the cell is known, and differs.
Rule 2: what stays unknown is said to be so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from xxhash import xxh3_128

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.replay import PACKED
from ctxkernel.core.timeline import ChangeInfo, NamespaceDiff
from ctxkernel.state.base.namespace import some_of
from ctxkernel.state.tracking.fingerprints import LIVE

KeyAndLabels = tuple[bytes, Sequence[str]]
"""Key and labels of a name or of a shared object."""


@dataclass(frozen=True, slots=True)
class OwnContent:
    """The own content of a variable."""

    key: bytes
    """Hash of its pack and of those of the shared objects that it refers to."""
    labels: tuple[str, ...]
    """The shared objects that it refers to."""
    print: str = ""
    """Fingerprint, equal for equal content; empty where none was made."""

    def differs(self, later: OwnContent) -> bool | None:
        """Return whether a later content is another one; None where that cannot be told."""
        if self.key == later.key or (self.print and self.print == later.print):
            return False
        return True if (self.print and later.print) or self.labels == later.labels else None

    @property
    def fingerprint(self) -> str:
        """A text of its data: equal only for equal content, empty for content that may change by itself.

        `print` is of the variable alone, and can be compared with others of that kind only.
        """
        return "" if self.print.startswith(LIVE) else f"{PACKED}{self.key.hex()}"

    def to_json(self) -> list[Any]:
        """Return the content as JSON."""
        return [self.key.hex(), list(self.labels), self.print]


def content_from_json(made: Sequence[Any]) -> OwnContent:
    """Return the content of `OwnContent.to_json`."""
    key, labels, text = made
    return OwnContent(bytes.fromhex(key), tuple(map(str, labels)), str(text))


def content_of(known: KeyAndLabels, find: Callable[[str], KeyAndLabels | None], text: str = "") -> OwnContent | None:
    """Return the content of a pack; None where a shared object is not known. `find(label)` gives that object's."""
    key, labels = known
    if not labels:
        return OwnContent(key, (), text)
    found: dict[str, bytes] = {}
    todo = list(labels)
    while todo:
        label = todo.pop()
        if label in found or label.startswith("live:"):
            continue
        if (one := find(label)) is None:
            return None
        found[label] = one[0]
        todo += one[1]
    digest = xxh3_128(key)
    for label in sorted(found):
        digest.update(f"\0{label}\0".encode() + found[label])
    return OwnContent(digest.digest(), tuple(labels), text)


@dataclass(frozen=True, slots=True)
class OpenChange:
    """A variable that a cell may have changed."""

    info: ChangeInfo
    """The report if it has changed."""
    before: OwnContent | None
    """None: what the background process found for the cell before."""
    now: OwnContent | None = None
    """None: the background process packs it."""


@dataclass(slots=True)
class _Pack:
    """A variable as it is after a cell."""

    execution_id: str
    change: OpenChange | None
    """None: whether the cell changed it is known."""
    now: OwnContent | None = None
    is_done: bool = False


@dataclass(slots=True)
class LateChanges:
    """The open changes of a session."""

    _packs: defaultdict[str, list[_Pack]] = field(default_factory=lambda: defaultdict(list))
    """By variable, in the order of the cells: what the background packs, and what waits for that."""
    _last: dict[str, OwnContent] = field(default_factory=dict[str, OwnContent])
    """The content of each variable when the background packed it, and since then, as far as is known."""
    _open: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """By execution, the variables whose change is not known yet."""
    _prints: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """By execution, the fingerprints of what the background packed."""
    _changed: defaultdict[str, dict[str, ChangeInfo]] = field(default_factory=lambda: defaultdict(dict))
    _unknown: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def ask(self, execution_id: str, packed: Iterable[str], changes: Mapping[str, OpenChange]) -> None:
        """Note what a cell may have changed. `packed`: the names that the background packs for its checkpoint."""
        if changes:
            self._open[execution_id] = set(changes)
        for name in dict.fromkeys((*changes, *packed)):
            one = changes.get(name)
            if one is not None and one.before is not None and name not in self._packs:
                self._last[name] = one.before
            self._packs[name].append(_Pack(execution_id, one, one and one.now, one is not None and one.now is not None))
            self._decide(name)

    def open_names(self, execution_id: str) -> set[str]:
        """Return the variables of which it is not known yet whether a cell changed them."""
        return set(self._open.get(execution_id, ()))

    def answer(self, execution_id: str, contents: Mapping[str, OwnContent]) -> None:
        """Take in what a background process packed after a cell; what is lacking stays unknown."""
        if contents:
            self._prints[execution_id] = {name: one.fingerprint for name, one in contents.items()}
        for name in list(self._packs):
            for one in self._packs[name]:
                if one.execution_id == execution_id and not one.is_done:
                    one.now, one.is_done = contents.get(name), True
            self._decide(name)

    def _decide(self, name: str) -> None:
        """Decide on the changes of a variable, as far as all packs before them are done."""
        packs = self._packs[name]
        while packs and packs[0].is_done:
            one = packs.pop(0)
            before, now = self._last.pop(name, None), one.now
            if now is not None:
                self._last[name] = now
            if one.change is None:
                continue
            changed = before.differs(now) if before is not None and now is not None else None
            if changed:
                self._changed[one.execution_id][name] = one.change.info
            elif changed is None:
                self._unknown[one.execution_id].append(name)
            self._open[one.execution_id].discard(name)
        if not packs:
            del self._packs[name]

    def forget(self, names: Iterable[str]) -> None:
        """Forget what the background found for names that were packed or restored since."""
        for name in names:
            if name not in self._packs:
                self._last.pop(name, None)

    def take_prints(self) -> dict[str, dict[str, str]]:
        """Return by execution the fingerprints of variables that are new since the last call."""
        taken, self._prints = self._prints, {}
        return taken

    def take(self) -> dict[str, NamespaceDiff]:
        """Return by execution what is known now, once all of its variables are decided."""
        done = [execution_id for execution_id, names in self._open.items() if not names]
        found: dict[str, NamespaceDiff] = {}
        for execution_id in done:
            del self._open[execution_id]
            unknown = sorted(self._unknown.pop(execution_id, ()))
            told = f"could not be compared: {some_of(unknown)}" if unknown else ""
            found[execution_id] = NamespaceDiff(changed=self._changed.pop(execution_id, {}), incomplete=told)
        return found
