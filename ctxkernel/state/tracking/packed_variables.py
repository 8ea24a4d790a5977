"""Content of the variables as it was packed last, and its comparison with new packs.

Rule 1: equal bytes mean unchanged. Of different bytes, fingerprints tell whether the content differs for a person.
Rule 2: a class of the user's, and an object with a pack of its own, has a group of its own under its label.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from ctxkernel.core.dataclasses import KW_ONLY, dataclass, field, replace
from ctxkernel.core.descriptions import describe
from ctxkernel.core.reflection import class_of, is_kind
from ctxkernel.core.settings import Settings
from ctxkernel.core.state_names import CLASS, LABELS, SHARED
from ctxkernel.core.timeline import ChangeInfo, TypeInfo
from ctxkernel.state.base.namespace import NOTHING, Hidden, Variable, some_of, weak_reference
from ctxkernel.state.tracking import fingerprints
from ctxkernel.state.tracking.cell_names import Transform
from ctxkernel.state.tracking.fingerprints import LIVE
from ctxkernel.state.tracking.found_changes import FoundChanges, Pending
from ctxkernel.state.tracking.groups import Group, Moment, PackPiece, distinct, holders_of, is_pack_of, print_of
from ctxkernel.state.tracking.late_changes import OpenChange, OwnContent, content_of
from ctxkernel.state.tracking.piece_prints import PiecePrints
from ctxkernel.state.types.memory_blocks import MemoryBlocks, WrittenMemory
from ctxkernel.state.types.packer import Packer

PACK_SHARE = 0.4
"""Of the time that work after a cell may take: processor time for packing on the user's thread."""
DEFERRED_SHARE = 0.25
"""Of the time for packing: more time to compare deferred names, each by itself."""
_LEAST_SHARE = 1e-4


@dataclass(eq=False, repr=False)
class PackedVariables:
    """The variables of one namespace, a plain dict, and their content as it was packed last.

    `hidden`: names that are not the user's, as a set or a function. `transform`: IPython's rewriting of a cell into
    plain Python. `packer`: made here where none is given. `extras(name)`: the value of a name that is watched.
    `may_defer()`: whether packing can go on outside of the user's time; where it cannot, it is never deferred.
    `chunks(view, expired, prove=…)`: gives the addresses of a buffer's chunks; to `prove` them it hashes all of it.
    `catch_up(names)`: waits a moment for the background to pack these names, and takes in what it found.
    """

    namespace: dict[str, Any]
    _: KW_ONLY
    hidden: Hidden = frozenset()
    settings: Settings = field(default_factory=Settings)
    transform: Transform | None = None
    packer: Packer = None  # type: ignore[assignment]
    extras: Callable[[str], Any] = lambda _: NOTHING
    may_defer: Callable[[], bool] = lambda: False
    chunks: Callable[..., tuple[str, ...]] | None = None
    catch_up: Callable[[Collection[str]], None] = lambda _: None

    def __post_init__(self) -> None:
        self.packer = self.packer or Packer(self.namespace, module=str(self.namespace.get("__name__", "__main__")))
        self.pending = Pending()
        self.turn: int = 0
        self._variables: dict[str, Variable] = {}
        """Oldest change first."""
        self._watched: set[str] = set()
        self._groups: dict[str, Group] = {}
        """By name, of variables, classes of the user's and objects with packs of their own."""
        self._prints = PiecePrints(self.packer, self._groups)
        self._written = WrittenMemory()

    @property
    def _pack_seconds(self) -> float:
        return self.settings.end_phase_ms / 1000 * PACK_SHARE

    def _value(self, name: str) -> Any:
        return self.extras(name) if name in self._watched else self.namespace.get(name, NOTHING)

    def _is_complex(self, name: str) -> bool:
        variable = self._variables.get(name)
        return variable is not None and variable.atom is NOTHING

    def _complex(self) -> set[str]:
        return {name for name, variable in self._variables.items() if variable.atom is NOTHING}

    def whole_groups(self, names: Iterable[str]) -> list[tuple[str, ...]]:
        """Return the groups that these names are in, each once.

        Names that wait for their shared objects to be found are returned each by itself: that finds them.
        """
        found: dict[tuple[str, ...], None] = {}
        taken: set[int] = set()
        for name in names:
            group = self._groups.get(name)
            if group is None:
                found[(name,)] = None
            elif id(group) not in taken:  # once for all of its names
                taken.add(id(group))
                whole = tuple(n for n in group.names if self._groups.get(n) is group)
                found |= dict.fromkeys([whole] if group.key else [(each,) for each in whole])
        return list(found)

    def _dissolve(self, *names: str) -> set[str]:
        """Take names out of their groups; return the others, which have to be packed without them."""
        left = {id(group): group for name in names if (group := self._groups.pop(name, None)) is not None}
        return {other for group in left.values() for other in group.names if self._groups.get(other) is group}

    def _is_slow(self, names: Sequence[str]) -> bool:
        """Return whether a group is deferred at once, since packing it took too long the last time."""
        group = self._groups.get(names[0])
        return group is not None and group.seconds >= self._pack_seconds

    def _await(self, names: Collection[str], moment: Moment) -> None:
        """Treat names as one group while their shared objects are unknown."""
        groups = {name: group for name in names if (group := self._groups.get(name))}
        known = list(groups.values())
        labels = dict.fromkeys(label for group in known for label in group.labels)
        deps = frozenset[str]().union(*(group.deps for group in known))
        # Only names that were slow themselves are deferred at once the next time.
        slow = moment.slow.intersection(names)
        seconds = self._pack_seconds if slow else 0.0
        group = Group(tuple(sorted(names)), b"", tuple(labels), deps, seconds, deferrals=1)
        # Of names that were packed together it is not known which one was slow.
        group.slow = {name for name in slow if name not in groups or len(groups[name].names) == 1}
        for one in known:
            group.slow |= one.slow
            group.waited |= one.waited
            group.deferrals = max(group.deferrals, one.deferrals + 1)
            if one.key and len(one.names) == 1 and (alone := self._known_content(one)) is not None:
                group.contents[one.names[0]] = alone
            group.contents |= one.contents
        self._groups |= dict.fromkeys(group.names, group)

    def _moment(self, seconds: float | None) -> Moment:
        bounded = seconds is not None and self.may_defer()
        # A return needs hashes; for a cell, the system's record of written memory is enough.
        chunks = functools.partial(self.chunks, prove=seconds is None) if self.chunks is not None else None
        blocks = MemoryBlocks(self._written)
        return Moment(self.packer, self._value, seconds if bounded else None, chunks, blocks, self.whole_groups)

    def _baseline(self, names: Sequence[str]) -> None:
        """Pack names that were not packed yet; reports nothing."""
        moment = self._moment(self._pack_seconds)
        moment.pack(self.whole_groups(names), fresh=names)
        self._await(moment.all_deferred(self._groups), moment)
        fresh = {name for name in moment.pieces if name.startswith(SHARED) and name not in self._groups}
        for piece in distinct(moment.pieces):
            if not any(name in self._groups for name in piece.names):
                self._keep(piece)
                self.pending.put(piece)
            if not fresh.isdisjoint((*piece.names, *piece.packed.labels)):  # stored, but under another label or in one
                self.pending.names.update(piece.names)

    def _keep(self, piece: PackPiece) -> Group:
        """Take a piece as the known content of its names."""
        group = Group(piece.names, piece.key, piece.packed.labels, piece.packed.deps, piece.seconds, piece.hashing)
        for name in piece.names:
            self._groups[name] = group
            if (variable := self._variables.get(name)) is not None:
                variable.turn = self.turn
        self._prints.give(group, piece)
        return group

    def _store(self, piece: PackPiece) -> None:
        """Have the next checkpoint store a piece."""
        self.pending.put(piece)
        self.pending.names.update(piece.names)

    def store_again(self, name: str) -> None:
        """Have the next checkpoint store a name, whatever is known of it, and what was stored together with it."""
        for one in (name, *self._dissolve(name)):
            self._groups.pop(one, None)
            if one in self._variables:
                self.pending.names.add(one)

    def settle_loaded(self, groups: Collection[Sequence[str]]) -> None:
        """Take loaded names as stored: they are packed to see later whether they changed."""
        self._written.clear()
        moment = Moment(self.packer, self._value)
        new = {tuple(names) for names in groups if any(self._is_complex(n) and n not in self._groups for n in names)}
        new |= {tuple(names) for names in groups if names[0].startswith(LABELS)}
        moment.pack(new, join=False)
        for piece in distinct(moment.pieces):
            # Objects that these refer to are packed by themselves here; they may be stored together with others.
            if piece.names in new or any(name not in self._groups for name in piece.names):
                self._keep(piece)
        loaded = {name for names in new for name in names}
        for names in self.whole_groups(holders_of(loaded, self._groups) - loaded):
            self._prints.renew(self._groups[names[0]], moment)

    def _is_same(self, piece: PackPiece, name: str, old: Mapping[str, Group]) -> bool:
        return is_pack_of(self._groups.get(name) or old.get(name), piece)

    def _unchanged(self, names: Iterable[str], first: Mapping[str, PackPiece], old: Mapping[str, Group]) -> set[str]:
        """Return the names whose first pieces are those that are known."""
        told: dict[tuple[int, int], bool] = {}
        unchanged: set[str] = set()
        for name in names:
            group, piece = self._groups.get(name) or old.get(name), first[name]
            if (same := told.get(key := (id(group), id(piece)))) is None:  # once for all names of a group
                same = told[key] = is_pack_of(group, piece)
            if same:
                unchanged.add(name)
        return unchanged

    def _compare(
        self,
        names: Collection[str],
        old: Mapping[str, Group],
        found: FoundChanges,
        *,
        seconds: float | None,
        hurry: bool,
    ) -> None:
        """Pack names with their groups, take the packs as known, and add what differs to `found`.

        `old`: the groups of names before they were bound anew. `seconds`: processor time, None for no bound.
        """
        groups = self.whole_groups(names)
        moment = self._moment(seconds)
        for each in groups:
            labels = dict.fromkeys(label for name in each if (one := self._groups.get(name)) for label in one.labels)
            moment.forget(*each, *labels)
        slow = {name for each in groups if self._is_slow(each) for name in each}
        if seconds is not None and self.may_defer() and (hurry or slow):
            moment.deferred, moment.slow = groups, slow
        else:
            known = {name: self._groups.get(name) or old.get(name) for each in groups for name in each}
            fresh = {name for name, one in known.items() if one is None or len(one.names) > 1}
            moment.pack(groups, refer=any(group.labels for group in old.values()), fresh=fresh)
        deferred = moment.all_deferred(self._groups, old)
        found.deferred |= deferred
        self._await(deferred, moment)
        self._take_pieces(moment, old, found)
        if found.parts:
            self._store_users(found.parts, moment)
        if deferred:
            self._compare_deferred(deferred, found)
        self.pending.defer(deferred)
        self.pending.fail(moment.faults)

    def _compare_deferred(self, names: Collection[str], found: FoundChanges) -> None:
        """Compare deferred names by what each holds, as far as time is left: how they are stored is found later."""
        left = most = self._pack_seconds * DEFERRED_SHARE
        for name in sorted(names):
            group = self._groups[name]
            if name not in self._variables or name in self._watched or name in found.added:
                group.contents.pop(name, None)
                continue
            now = None
            if name not in group.slow and left >= most * _LEAST_SHARE:  # else the background compares it
                moment = self._moment(left / 2)
                moment.pack([(name,)], join=False)
                if name not in moment.pieces and left > most / 2:
                    group.slow.add(name)
                left = left / 2 + (moment.seconds or 0.0)
                now = self.content_in(moment, name)
            self._compare_content(name, group, now, found)
            found.open[name] = found.open[name][0], None
            if now is not None:
                group.contents[name] = now

    def _compare_content(self, name: str, group: Group | None, now: OwnContent | None, found: FoundChanges) -> None:
        """Compare what a name holds now with what it held after the cell before, as far as both are known."""
        before = group.contents.pop(name, None) if group is not None else None
        if (first := self.pending.open.get(name)) is not None:  # names of this cell were compared before these
            before = first.before
        found.open[name] = before, now
        changed = before.differs(now) if before is not None and now is not None else None
        if changed:
            self._change(name, found)
        elif changed is False:
            found.told.add(name)

    def content_in(self, moment: Moment, name: str, *, by_bytes: bool = False) -> OwnContent | None:
        """Return what a name holds by itself, as packed at a moment; None where that is not known.

        `by_bytes`: without a fingerprint.
        """
        piece = moment.first.get(name) or moment.pieces.get(name)
        if piece is None:
            return None

        def find(label: str) -> tuple[bytes, Sequence[str]] | None:
            one = moment.pieces.get(label)
            return None if one is None else (one.key, one.packed.labels)

        text = "" if by_bytes else self._prints.of(piece, moment).get(name, "")
        return content_of((piece.key, piece.packed.labels), find, text)

    def _known_content(self, group: Group) -> OwnContent | None:
        """Return what the single name of a group holds."""

        def find(label: str) -> tuple[bytes, Sequence[str]] | None:
            one = self._groups.get(label)
            return None if one is None or not one.key else (one.key, one.labels)

        return content_of((group.key, group.labels), find, group.text_of(group.names[0]))

    def _take_pieces(self, moment: Moment, old: Mapping[str, Group], found: FoundChanges) -> None:
        """Take in the pieces of a moment."""
        # Unknown after a return to a state before it was shared: its users are stored with it.
        fresh = {name for name in moment.pieces if name.startswith(SHARED) and name not in self._groups}
        altered: set[str] = set()
        for piece in distinct(moment.pieces):
            before = self._groups.get(piece.names[0]) or old.get(piece.names[0])
            several = len({id(self._groups.get(name) or old.get(name)) for name in piece.names}) > 1
            if before is None or several or not self._is_same(piece, piece.names[0], old):
                altered.update(piece.names)
                self._take_altered(piece, moment, old, found, altered)
                continue
            if not altered.isdisjoint(piece.packed.labels):  # its fingerprints have those of other content in them
                altered.update(piece.names)
                found.parts |= fresh.intersection(piece.packed.labels)  # of unknown content: the fingerprints tell
                found.prints |= {name: before.text_of(name) for name in piece.names}
                self._prints.give(before, piece)
            before.seconds, before.hashing = piece.seconds, piece.hashing
            # Or it was not stored when it was packed.
            if not (fresh.isdisjoint(piece.packed.labels) and self.pending.names.isdisjoint(piece.names)):
                self._store(piece)
            for name in piece.names:
                self._groups[name] = before
                if (variable := self._variables.get(name)) is None:
                    continue
                variable.turn = self.turn
                if piece.packed.rebuilt and self._is_another(name, found):
                    self._change(name, found)  # an object that is made anew has no content that tells two apart
                elif name in found.moved:
                    self._rebind(name)
                    self._store(piece)

    def _take_altered(
        self, piece: PackPiece, moment: Moment, old: Mapping[str, Group], found: FoundChanges, altered: set[str]
    ) -> None:
        """Take in a piece that is not the one that is known; `altered`: the names and labels of all such pieces."""
        before = self._groups.get(piece.names[0]) or old.get(piece.names[0])
        awaited = before is not None and not before.key
        unchanged = self._unchanged(piece.names, moment.first, old)
        there = {name: group for name in piece.names if (group := self._groups.get(name) or old.get(name))}
        same = {name for name, one in there.items() if (one.names, one.key) == (piece.names, piece.key)}
        # Equal bytes may refer to a shared object that differs now.
        known = unchanged if altered.isdisjoint(piece.packed.labels) else ()
        prints = {name: group.text_of(name) for name, group in there.items() if name not in known}
        found.prints |= prints
        self._store(piece)
        now = self._keep(piece)
        # One content may be written in two ways; attributes that follow from others are in no fingerprint.
        untold = any(map(self._prints.hidden, piece.packed.classes))
        if not awaited:
            differs = {n for n, text in prints.items() if not text or untold or text != now.text_of(n)}
            found.altered |= differs - unchanged
        now.contents = self._contents_alone(piece, now, moment)
        for name in piece.names:
            print_before = prints.get(name, "")
            print_now = self._prints.text_of(now, piece, name) if print_before else ""
            if name not in self._variables:
                as_before = name in unchanged or (print_before and print_before == print_now)
                if name in there and before is not None and before.key != piece.key and not as_before:
                    found.parts.add(name)
            elif name in found.added:
                continue
            elif found.parts and self._holds_changed(name, found.parts):
                self._change(name, found)
            elif name in unchanged or (print_before == print_now if print_before and print_now else name in same):
                self._rebind(name)
            elif awaited:
                self._compare_awaited(name, there.get(name), moment, found)
            elif (changed := self._differs_alone(name, there.get(name), now, moment)) is False:
                self._rebind(name)
            # Else it was packed only since it shares something now, or lost what it shared.
            elif changed or name in old or name in found.moved:
                self._change(name, found)

    def _contents_alone(self, piece: PackPiece, group: Group, moment: Moment) -> dict[str, OwnContent]:
        """Return what each of several names that have no fingerprints holds by itself, as far as time is left."""
        if len(piece.names) == 1 or group.make_prints is not None:
            return {}
        todo = [name for name in piece.names if name in self._variables and not group.prints.get(name)]
        left = moment.seconds if moment.seconds is not None else self._pack_seconds
        found: dict[str, OwnContent] = {}
        for most in (0.0, left / 20, left):  # those that were packed by themselves already, then the small ones
            for name in [one for one in todo if one not in found]:
                alone, began = self._moment(min(most, left)) if most else moment, time.thread_time()
                if most and left > 0:
                    alone.pack([(name,)], join=False)
                first = alone.first.get(name)
                if (
                    first is not None
                    and first.names == (name,)
                    and (now := self.content_in(alone, name, by_bytes=True))
                ):
                    found[name] = now
                left -= time.thread_time() - began
        return found

    def _differs_alone(self, name: str, before: Group | None, now: Group, moment: Moment) -> bool | None:
        """Return whether a name holds another content than before, whatever it is stored with; None if unknown."""
        if before is None or len(before.names) == len(now.names) == 1:
            return None
        known = self._known_content(before) if before.names == (name,) and before.key else before.contents.get(name)
        content = self.content_in(moment, name, by_bytes=True) if len(now.names) == 1 else now.contents.get(name)
        return known.differs(content) if known is not None and content is not None else None

    def _compare_awaited(self, name: str, group: Group | None, moment: Moment, found: FoundChanges) -> None:
        """Compare a name with what it held when its group was deferred, if that is known already."""
        if name in self._watched:
            return
        now = self.content_in(moment, name)
        self._compare_content(name, group, now, found)
        if (first := self.pending.open.get(name)) is not None:  # no process packs it any more
            self.pending.open[name] = replace(first, now=now)
        if name in found.told:
            self._rebind(name)

    def _store_users(self, labels: Collection[str], moment: Moment) -> None:
        """Have the next checkpoint store the groups that refer to members of classes that differ now."""
        groups = {group.names for group in self._groups.values() if not group.deps.isdisjoint(labels)}
        for name in {name for names in groups if moment.pieces.keys().isdisjoint(names) for name in names}:
            self.store_again(name)

    def _holds_changed(self, name: str, labels: Collection[str]) -> bool:
        """Return whether a dict holds a class of the user's that differs now: the scope of an `exec`."""
        value: Any = self._value(name)
        if class_of(value) is not dict:
            return False
        classes = [self.packer.part_of(label) for label in labels if label.startswith(CLASS)]
        return any(one is cls for one in list(value.values()) for cls in classes)

    def _compare_users(self, found: FoundChanges) -> None:
        """Report variables that hold a shared object whose content differs, or a class of that name."""
        labels = found.parts.union(one for one in holders_of(found.parts, self._groups) if one.startswith(SHARED))
        users: list[str] = []
        for name, variable in self._variables.items():
            group = self._groups.get(name)
            held = labels.intersection((*group.labels, *group.names)) if group is not None else ()
            if variable.atom is not NOTHING or not held:
                continue
            value = self._value(name)
            is_one = is_kind(class_of(value), type) and self.packer.part_of(next(iter(held))) is value
            if is_one or not all(one.startswith(CLASS) for one in held):
                users.append(name)
        late = {name for name in users if self._variables[name].turn != self.turn}  # not packed now
        moment = self._moment(self._pack_seconds * DEFERRED_SHARE)
        for names in self.whole_groups((*sorted(late), *sorted(labels - found.parts - found.prints.keys()))):
            found.prints |= self._prints.renew(self._groups[names[0]], moment)
        for name in users:
            if any(name in one for one in (found.changed, found.added, found.open, found.told)):
                continue
            # It may hold none of what differs: a frame of a part of an array.
            before = found.prints.get(name, "")
            if not before or before.startswith(LIVE) or before != self._groups[name].text_of(name):
                self._change(name, found)

    def _rebind(self, name: str) -> None:
        variable = self._variables[name]
        variable.atom, variable.weak = NOTHING, weak_reference(self._value(name))

    def _is_another(self, name: str, found: FoundChanges) -> bool:
        variable = self._variables[name]
        gone = variable.weak is not None and variable.weak() is not self._value(name)
        return gone or name in found.moved or variable.atom is not NOTHING

    def _change(self, name: str, found: FoundChanges) -> None:
        """Report a variable as changed."""
        found.changed[name] = change = self._describe_change(name, found)
        self._variables[name].info = TypeInfo(change.type, change.repr, change.size)
        self._rebind(name)

    def _describe_change(self, name: str, found: FoundChanges) -> ChangeInfo:
        rebound = self._is_another(name, found) or name in found.replaced
        how: Literal["rebound", "mutated"] = "rebound" if rebound else "mutated"
        info = self._info(self._value(name))
        return ChangeInfo(info.type, info.repr, info.size, how, self._text_before(self._variables[name]))

    def _open_changes(self, found: FoundChanges) -> str:
        """Leave the changes that are not known yet to the next checkpoint; return one line that names them."""
        unknown = found.unknown()
        for name in unknown:
            self.pending.open[name] = OpenChange(self._describe_change(name, found), *found.open[name])
        return f"still being compared: {some_of(unknown)}" if unknown else ""

    def _text_before(self, variable: Variable) -> str:
        if variable.info is not None:
            return variable.info.repr
        return self._info(variable.atom).repr if variable.atom is not NOTHING else ""

    def _info(self, value: object) -> TypeInfo:
        return describe(value, self.settings.repr_chars, self.packer.module)

    def fingerprint(self, name: str) -> str:
        """Return a short text, equal for equal content in any session; empty for content without one."""
        variable = self._variables[name]
        if variable.atom is not NOTHING:
            return fingerprints.content_fingerprint(variable.atom, buffers=(), shared=str, hidden=self._prints.hidden)
        group = self._groups.get(name)
        return print_of(group, self._groups, name) if group is not None else ""
