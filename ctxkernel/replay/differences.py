"""The differences between two places of a timeline: names, outputs, handles. Pure.

Rule 1: the same content is no difference, whatever happened to a name in between; if the content is not known, the
        difference says so.
Rule 2: a place is the path of executions that leads to it; the common part of two paths is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, cast

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.nodes.handle_history import delta_of
from ctxkernel.core.replay import equal_content
from ctxkernel.core.text import join_names, one_line
from ctxkernel.core.timeline import Artifact, ChangeInfo, Path, Run, TypeInfo
from ctxkernel.core.timeline_events import Json, plain
from ctxkernel.core.turn_values import HandleState
from ctxkernel.core.value_difference import ValueDifference
from ctxkernel.replay.divergence import compare
from ctxkernel.replay.outputs import DivergenceSettings

Fingerprints = Mapping[str, Mapping[str, str]]
"""Execution → name → content hash of each name that it added or changed; an empty hash means: not known."""

MOST = 50
"""Most differences of each kind in a text."""
_SHORT = 60
_CHARS = 6000
"""Characters of the text about values, all names together: some 1,500 tokens."""
_LEAST = 300
"""Characters that each name may take at least."""
_SHOWN = ("output", "error")
_COUNTS = ("revision", "rendered_tokens")
"""Fields of a digest about its renderings, not about the target."""
_WHOLE = frozenset(("NoneType", "bool", "int", "float", "complex", "str", "bytes"))
"""Types whose description is the complete value, unless it is cut."""


@dataclass(frozen=True, slots=True)
class NameDifference:
    """A variable that only one place has, or whose content differs."""

    name: str
    told: str
    """One line: `int 3`, `was int 3`, `int 3 → 4`, `DataFrame 3×2 → 3×3`."""
    value: ValueDifference | None = None
    """The difference of its values, where they were compared."""


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """An output of a cell that differs between the two places."""

    name: str
    """Statement and part of its output: `s5 result`."""
    told: str
    before: str
    """The execution whose output it was at the first place."""
    after: str
    """The execution whose output it is at the second place."""
    value: ValueDifference | None = None
    """Its lines or pictures, where they were compared."""


@dataclass(frozen=True, slots=True)
class HandleDifference:
    """A handle that only one place has, or whose state differs."""

    name: str
    how: Literal["added", "changed", "removed"]
    told: str
    """One line: its target, or the fields of its digest that differ."""
    fields: Mapping[str, tuple[Json, Json]]
    """Field of the digest → (before, after); empty if only one place has the handle."""
    value: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class FileDifference:
    """A file that cells wrote, and that only one place has or whose content differs."""

    name: str
    how: Literal["added", "changed", "removed"]
    told: str
    value: ValueDifference | None = None
    """Its lines or its table, where they were compared, or why not."""


Difference = NameDifference | OutputDifference | HandleDifference | FileDifference


@dataclass(frozen=True, slots=True)
class Differences:
    """All differences between two places."""

    added: tuple[NameDifference, ...] = ()
    changed: tuple[NameDifference, ...] = ()
    deleted: tuple[NameDifference, ...] = ()
    outputs: tuple[OutputDifference, ...] = ()
    handles: tuple[HandleDifference, ...] = ()
    files: tuple[FileDifference, ...] = ()
    notes: tuple[str, ...] = ()
    """Why differences of names may be missing."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.deleted or self.outputs or self.handles or self.files)

    @property
    def without_lines(self) -> str:
        """The text where no difference was found."""
        return "no difference is known" if self.notes else "no difference"

    def only(self, names: Collection[str]) -> Differences:
        """Return the differences of some variables and files.

        Raises BadCommand if one of them does not differ, unless changes may be missing.
        """
        added, changed, deleted = (
            tuple(one for one in each if one.name in names) for each in (self.added, self.changed, self.deleted)
        )
        files = tuple(one for one in self.files if one.name in names)
        there = {one.name for one in (*added, *changed, *deleted, *files)}
        if (same := [name for name in names if name not in there]) and not self.notes:
            raise BadCommand(f"{join_names(same)}: no difference between these two states; {self._named()}")
        return Differences(added, changed, deleted, files=files, notes=self.notes)

    def _named(self) -> str:
        names = [one.name for one in (*self.added, *self.changed, *self.deleted)]
        return f"{join_names(names)} differ" if names else "no name differs"

    def to_json(self) -> dict[str, Json]:
        """Return `{namespace: {added, changed, deleted}, outputs, handles, files, notes}`, of lists of objects.

        Pictures are left out.
        """
        groups = {"added": self.added, "changed": self.changed, "deleted": self.deleted}
        names = {key: [_plain(one) for one in each] for key, each in groups.items()}
        whole = {"namespace": names, "outputs": [_plain(one) for one in self.outputs], "handles": self.handles}
        whole |= {"files": [_plain(one) for one in self.files]} if self.files else {}
        return {key: plain(value) for key, value in {**whole, "notes": self.notes}.items()}

    def by_sign(self) -> Iterator[tuple[str, Sequence[Difference]]]:
        """Yield the differences of each kind with the word that stands before them."""
        yield "+", self.added
        yield "~", self.changed
        yield "−", self.deleted
        yield "handle", self.handles
        yield "file", self.files
        yield "output of", self.outputs

    def text(self) -> str:
        """Return a line for each difference; or `without_lines`."""
        room = _CHARS // max(1, len(self.changed) + len(self.outputs) + len(self.files))
        lines: list[str] = []
        for sign, differences in self.by_sign():
            for one in differences[:MOST]:
                lines += [f"{sign} {one.name}: {one.told}", *_more(one.value, room)]
            lines += more_of(sign, differences, MOST)
        return "\n".join([*(lines or [self.without_lines]), *(f"note: {note}" for note in self.notes)])


def more_of(sign: str, differences: Sequence[Difference], most: int) -> list[str]:
    """Return a line that says how many differences of a kind are left out; empty if none are."""
    left = len(differences) - most
    return [f"{sign} … {left:,} more; diff --json has all"] if left > 0 else []


def _plain(one: NameDifference | OutputDifference | FileDifference) -> Json:
    made = cast("dict[str, Json]", plain(replace(one, value=None)))
    del made["value"]
    return made if one.value is None else {**made, "value": replace(one.value, pictures=()).to_json()}


def _more(value: ValueDifference | None, chars: int) -> list[str]:
    """Return the lines below the summary of a difference of values, within so many characters."""
    return value.text(max(chars, _LEAST)).split("\n")[1:] if value is not None else []


def with_values(
    found: Differences,
    name: Callable[[str], ValueDifference],
    output: Callable[[OutputDifference], ValueDifference | None],
    file: Callable[[FileDifference], ValueDifference | None],
) -> Differences:
    """Return the differences with those of the values of changed names, of outputs, and of the contents of files.

    A name whose values are equal, although its content was stored otherwise, stays and says so.
    """
    changed: list[NameDifference] = []
    for one in found.changed:
        value = name(one.name)
        has_more = value.differs is False or (value.differs and (value.counts or value.diff))
        changed.append(replace(one, told=value.summary if has_more else one.told, value=value))
    outputs = tuple(replace(one, value=output(one)) for one in found.outputs)
    return replace(found, changed=tuple(changed), outputs=outputs, files=tuple(_with_content(found.files, file)))


def _with_content(
    files: Iterable[FileDifference], compare: Callable[[FileDifference], ValueDifference | None]
) -> Iterator[FileDifference]:
    for one in files:
        value = compare(one)
        more = f": {value.summary}" if value is not None and value.differs else ""
        yield replace(one, told=one.told + more, value=value)


def differences(
    old: Path,
    new: Path,
    *,
    fingerprints: Fingerprints,
    old_handles: Iterable[HandleState] = (),
    new_handles: Iterable[HandleState] = (),
    settings: DivergenceSettings | None = None,
) -> Differences:
    """Return the differences of the place at the end of `new` from that at the end of `old`.

    Both are paths from a root on (`StatementLog.path`), oldest first; an empty one is the place before all statements.
    """
    before, after = _names(old, fingerprints), _names(new, fingerprints)
    return Differences(
        added=tuple(NameDifference(name, _said(after[name].info)) for name in after if name not in before),
        changed=tuple(_changed(before, after)),
        deleted=tuple(
            NameDifference(name, f"was {_said(one.info)}") for name, one in before.items() if name not in after
        ),
        outputs=tuple(_outputs(old, new, settings)),
        handles=tuple(_handles(old_handles, new_handles)),
        files=tuple(_files(old, new)),
        notes=tuple(_notes(old, new)),
    )


# -- names ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Value:
    info: TypeInfo | ChangeInfo
    fingerprint: str
    since: str
    """The execution that added or changed it last."""


def _names(path: Path, fingerprints: Fingerprints) -> dict[str, _Value]:
    found: dict[str, _Value] = {}
    for _, execution in path:
        diff, known = execution.changes, fingerprints.get(execution.execution_id, {})
        for name in diff.deleted:
            found.pop(name, None)
        for name, info in (*diff.added.items(), *diff.changed.items()):
            found[name] = _Value(info, known.get(name, ""), execution.execution_id)
    return found


def _changed(before: Mapping[str, _Value], after: Mapping[str, _Value]) -> Iterator[NameDifference]:
    for name, two in after.items():
        one = before.get(name)
        if one is None or one.since == two.since or (equal := equal_content(one.fingerprint, two.fingerprint)):
            continue
        if equal is False or _told(one.info) != _told(two.info):
            yield NameDifference(name, _change(one.info, two.info, "content differs"))
        elif not _is_whole(one.info):
            yield NameDifference(name, _change(one.info, two.info, "may differ: its content was not kept"))


def _told(info: TypeInfo | ChangeInfo) -> tuple[object, ...]:
    return info.type, info.repr, info.size.get("shape"), info.size.get("len")


def _is_whole(info: TypeInfo | ChangeInfo) -> bool:
    return info.type in _WHOLE and not info.repr.endswith(("…", "…'", '…"'))


def _said(info: TypeInfo | ChangeInfo) -> str:
    text = one_line(info.repr, _SHORT)
    # The description of a frame, a handle or an instance begins with its type.
    return text if text.lstrip("<").startswith(info.type) else f"{info.type} {text}".rstrip()


def _change(one: TypeInfo | ChangeInfo, two: TypeInfo | ChangeInfo, otherwise: str) -> str:
    if one.type != two.type:
        return f"{_said(one)} → {_said(two)}"
    shapes = [_shape(info) for info in (one, two)]
    if shapes[0] != shapes[1]:
        return f"{one.type} {shapes[0]} → {shapes[1]}"
    texts = [one_line(info.repr, _SHORT) for info in (one, two)]
    if texts[0] != texts[1]:
        return f"{_said(one)} → {texts[1].removeprefix(f'{one.type} ')}"
    return f"{one.type} {shapes[1]}, {otherwise}" if shapes[1] else f"{_said(two)}, {otherwise}"


def _shape(info: TypeInfo | ChangeInfo) -> str:
    """Return `3×2`, or `1,000 items` for a collection whose description is cut; else an empty text."""
    shape, length = info.size.get("shape"), info.size.get("len")
    if isinstance(shape, list):
        return "×".join(str(each) for each in cast("list[Json]", shape)) or "0-dimensional"
    return f"{length:,} items" if isinstance(length, int) and "…" in info.repr else ""


# -- outputs ----------------------------------------------------------------------------------------


def _outputs(old: Path, new: Path, settings: DivergenceSettings | None) -> Iterator[OutputDifference]:
    for (_, before), (statement, after) in _pairs(old, new):
        # Names are compared above, so no fingerprints here; and only the shown output of a cell counts.
        found = compare(before, after, old_state={}, new_state={}, settings=settings)
        for one in found.divergences:
            if one.kind in _SHOWN:
                told = f"{one.subject} {one.summary}" if one.kind == "error" else one.summary
                subject = "error" if one.kind == "error" else one.subject
                name = f"{statement.statement_id} {subject}"
                yield OutputDifference(name, told, before.execution_id, after.execution_id)


OutputKey = tuple[str, str]


def _pairs(old: Path, new: Path) -> Iterator[tuple[Run, Run]]:
    """Yield the newest runs of each cell, by cell or else by source, that differ between the two paths."""
    before, after = _newest(old), _newest(new)
    by_source = {_source(run): run for key, run in before.items() if key not in after}
    for key, run in after.items():
        was = before.get(key) or by_source.get(_source(run))
        if was is not None and was[1].execution_id != run[1].execution_id:
            yield was, run


def _newest(path: Path) -> dict[OutputKey, Run]:
    cells = (run for run in path if run[0].kind != "meta")
    return {("cell", run[0].cell_id) if run[0].cell_id else _source(run): run for run in cells}


def _source(run: Run) -> OutputKey:
    return "source", run[0].source.strip()


# -- handles ----------------------------------------------------------------------------------------


def _handles(old: Iterable[HandleState], new: Iterable[HandleState]) -> Iterator[HandleDifference]:
    before, after = ({state.obj_id: state for state in states} for states in (old, new))
    for obj_id, state in after.items():
        was = before.get(obj_id)
        if was is None:
            yield HandleDifference(state.name, "added", f"added, {_looks_at(state)}", {})
            continue
        fields = {key: pair for key, pair in delta_of(was.digest, state.digest).fields.items() if key not in _COUNTS}
        if fields:
            told = [f"{key} {one} → {two}" for key, (one, two) in fields.items() if key != "fingerprint"]
            told += ["content changed"] if "fingerprint" in fields else []
            yield HandleDifference(state.name, "changed", one_line(", ".join(told)), fields)
    for obj_id, state in before.items():
        if obj_id not in after:
            yield HandleDifference(state.name, "removed", f"not there any more, {_looks_at(state)}", {})


def _looks_at(state: HandleState) -> str:
    return one_line(f"{state.obj_type} of {state.digest.get('target', '?')}", _SHORT)


# -- files ------------------------------------------------------------------------------------------


def _files(old: Path, new: Path) -> Iterator[FileDifference]:
    before, after = (_written(path) for path in (old, new))
    for name, (statement, one) in after.items():
        if name not in before:
            yield FileDifference(name, "added", f"written by {statement}, {one.size:,} bytes")
            continue
        was, then = before[name]
        if (then.size, then.hash) != (one.size, one.hash):
            sizes = f"{then.size:,} → {one.size:,} bytes" if then.size != one.size else f"{one.size:,} bytes"
            yield FileDifference(name, "changed", f"content differs: {sizes} (written by {was} → {statement})")
    for name, (statement, one) in before.items():
        if name not in after:
            yield FileDifference(name, "removed", f"was written by {statement}, {one.size:,} bytes")


def _written(path: Path) -> dict[str, tuple[str, Artifact]]:
    """Return the files that cells wrote, by their newest content, and the statements that wrote it."""
    return {
        one.name: (statement.statement_id, one)
        for statement, execution in path
        for one in execution.artifacts
        if one.kind == "file"
    }


# -- notes ----------------------------------------------------------------------------


def _notes(old: Path, new: Path) -> Iterator[str]:
    shared = {execution.execution_id for _, execution in old} & {execution.execution_id for _, execution in new}
    for path in (old, new):
        for statement, execution in path:
            if execution.changes.incomplete and execution.execution_id not in shared:
                why = one_line(execution.changes.incomplete, _SHORT)
                yield f"changes of {statement.statement_id} may be missing: {why}"
