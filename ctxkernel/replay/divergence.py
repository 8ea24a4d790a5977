"""The differences between an execution and the re-run of the same statement. Pure.

Rule 1: texts are compared after the rules of `replay.normalisation`, numbers with a tolerance, figures by pixels,
        tables by cells. The raw output stays as it is.
Rule 2: nothing that differs is left out, and an honest re-run of a deterministic cell gives no difference.
Rule 3: a cause is named only if there is evidence for it; otherwise it is empty.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ctxkernel.core.descriptions import with_type
from ctxkernel.core.replay import Comparison, Divergence, equal_content
from ctxkernel.core.text import format_duration, format_table, one_line
from ctxkernel.core.timeline import Artifact, ChangeInfo, Execution, TypeInfo
from ctxkernel.core.timeline_events import Json, plain
from ctxkernel.replay.cause_finder import Details
from ctxkernel.replay.outputs import DivergenceSettings, OutputComparison, divergence


def compare(
    old: Execution,
    new: Execution,
    *,
    old_state: Mapping[str, str],
    new_state: Mapping[str, str],
    details: Details | None = None,
    settings: DivergenceSettings | None = None,
) -> Comparison:
    """Return the differences of `new`, the re-run, from `old`.

    `old_state` and `new_state` map names to fingerprints of their content after each; an empty one means: not known.
    Only names that one of the two added, changed or deleted are compared.
    """
    settings = settings or DivergenceSettings()
    work = _RunComparison(old, new, details or Details(), settings)
    return Comparison(
        execution_id=new.execution_id,
        against=old.execution_id,
        divergences=tuple(work.all(old_state, new_state)),
        expected=settings.expected,
        time_ms=(old.cost.time_ms, new.cost.time_ms),
    )


class _RunComparison(OutputComparison):
    """All differences between two executions."""

    def all(self, old_state: Mapping[str, str], new_state: Mapping[str, str]) -> Iterable[Divergence]:
        """Yield in the order that helps a reader: files read, errors, outputs, files written, state, time."""
        read_files = list(self._read_files()) if self.old.status != "imported" else []
        self.causes.read_files = bool(read_files)
        yield from read_files
        yield from self._errors()
        yield from self._streams()
        yield from self.outputs()
        if self.old.status == "imported":  # of its variables, files and time nothing is known
            return
        yield from self._written_files()
        yield from self._state(old_state, new_state)
        yield from self._timing()

    def _read_files(self) -> Iterable[Divergence]:
        before = {self.text(one.name, self.old): one for one in self.old.artifacts if one.kind == "read"}
        for name, new in _by_name(self.new, "read").items():
            old = before.get(self.text(name, self.new))
            if old is None:
                # A file that is not read again says little: what is imported or cached is not.
                yield divergence("file", name, "read file was not read before", "file", "", new.hash)
                continue
            if old.hash == new.hash or (old.size == new.size and old.hash[:5] != new.hash[:5]):
                continue  # equal, or known by content once and by its stamp once: that cannot be told
            if old.size == new.size and old.hash.startswith("stat:"):
                summary = f"read file was written anew, of the same size ({new.size:,} bytes)"
            else:
                summary = f"read file changed: {_sizes(old, new)}"
            yield divergence("file", name, summary, "file", old.hash, new.hash)

    def _errors(self) -> Iterable[Divergence]:
        old, new = self.old.exception, self.new.exception
        before, after = (f"{one.type}: {one.message}" if one is not None else "" for one in (old, new))
        if old is None and new is None:
            subject, before, after = "status", self.old.status, self.new.status
            before = "ok" if before == "imported" else before
            summary = f"{before} → {after}" if before != after else ""
        elif new is None:
            subject, summary = before.partition(": ")[0], f"went: {before}"
        else:
            told = f"another: {before} → {after}" if old is not None else f"appeared: {after}"
            subject, summary = new.type, "" if self.same(before, after) else told
        if summary:
            yield divergence("error", subject, summary, self.cause("error"), before, after)

    def _streams(self) -> Iterable[Divergence]:
        for name in ("stdout", "stderr"):
            # Late output is the cell's too.
            old, new = (str(getattr(run, name)) + run.late.get(name, "") for run in (self.old, self.new))
            if old == new:
                continue
            before, after = self.texts(old, new)
            if name == "stderr":
                before = _without_repeated(before, after)
            if (found := self.compare_texts(name, before, after, "printed")) is not None:
                yield found

    def _written_files(self) -> Iterable[Divergence]:
        before, after = (
            {self.text(name, run): one for name, one in _by_name(run, "file").items()} for run in (self.old, self.new)
        )
        for name in sorted(before.keys() | after.keys()):
            old, new = before.get(name), after.get(name)
            cause = self.cause("file")
            if old is None or new is None:
                one = old or new
                assert one is not None
                told = (
                    f"written now, {one.size:,} bytes" if old is None else f"not written any more ({one.size:,} bytes)"
                )
                yield divergence("artifact", one.name, told, cause)
            elif old.size != new.size or (old.hash and new.hash and old.hash != new.hash):
                cause = cause or ("clock" if _DATED.search(new.name) else "")
                detail = self.details.file(new.name) if self.details.file is not None else None
                known = detail is not None and bool(detail.differs)
                summary = detail.summary if detail is not None and known else f"content differs: {_sizes(old, new)}"
                found = divergence("artifact", new.name, summary, cause, old.hash, new.hash)
                yield replace(found, detail=detail)

    def _state(self, old_state: Mapping[str, str], new_state: Mapping[str, str]) -> Iterable[Divergence]:
        one, two = self.old.changes, self.new.changes
        told = {*one.added, *one.changed, *one.deleted, *two.added, *two.changed, *two.deleted}
        for name in sorted(told.union(self.details.pending)):
            before, after = old_state.get(name), new_state.get(name)
            first = one.added.get(name) or one.changed.get(name)
            second = two.added.get(name) or two.changed.get(name)
            was = _is_there(name, before, one.deleted, first, name in two.added)
            now = _is_there(name, after, two.deleted, second, name in one.added)
            if was and now is False:
                yield divergence("state", name, "is not there any more", self.cause(name), _description(first))
            elif now and was is False:
                yield divergence("state", name, "was not there before", self.cause(name), "", _description(second))
            elif was or now:
                yield from self._value(name, before or "", after or "", first, second)

    def _value(
        self,
        name: str,
        before: str,
        after: str,
        first: TypeInfo | ChangeInfo | None,
        second: TypeInfo | ChangeInfo | None,
    ) -> Iterable[Divergence]:
        told = equal_content(before, after)
        equal = told or (self.details.equal(name) if self.details.equal is not None else None)
        if equal:
            return
        texts = _description(first), _description(second)
        if told is False:
            # The description of a scalar is complete, so it can be compared with the tolerance.
            scalar = first is not None and second is not None and first.type == second.type and first.type in _SCALARS
            if scalar and texts[0] != texts[1] and self.near(*texts):
                return
        elif equal is None and (first is None or second is None or self.same(*texts) or _is_undescribed(first, second)):
            if before and after:  # else it has no content that tells two apart
                yield divergence("unknown", name, "its content could not be compared", "")
            return
        if not all(texts) or texts[0] == texts[1]:
            summary = f"content differs: {texts[1] or texts[0]}" if any(texts) else "content differs"
        elif first is not None and second is not None and first.type != second.type:
            summary = f"{first.type} → {second.type}"
        else:
            summary = f"{one_line(texts[0], 60)} → {one_line(texts[1], 60)}"
        detail = self.details.difference(name) if self.details.difference is not None else None
        if detail is not None and detail.differs and detail.counts:  # else the values are short, or not compared
            summary = detail.summary
        found = divergence("state", name, summary, self.cause(name, texts), *texts)
        yield replace(found, detail=detail)

    def _timing(self) -> Iterable[Divergence]:
        before, after = self.old.cost.time_ms, self.new.cost.time_ms
        low, high = sorted((before, after))
        if high - low > self.settings.timing_ms and high > self.settings.timing_factor * low:
            told = f"{format_duration(before / 1000)} → {format_duration(after / 1000)}"
            yield divergence("timing", "time", told, "")


# -- small helpers --------------------------------------------------------------------------------


def _sizes(old: Artifact, new: Artifact) -> str:
    return f"{new.size:,} bytes, as many as before" if old.size == new.size else f"{old.size:,} → {new.size:,} bytes"


_SCALARS = frozenset(("float", "complex", "float64", "float32", "numpy.float64", "numpy.float32", "longdouble"))
_DATED = re.compile(r"\.(?:pdf|svg|xlsx|docx|pptx|zip|gz|tgz|h5|hdf5|html)$", re.IGNORECASE)
"""Files that hold the time at which they were written."""


def _by_name(run: Execution, kind: str) -> dict[str, Artifact]:
    return {one.name: one for one in run.artifacts if one.kind == kind}


def _is_undescribed(first: TypeInfo | ChangeInfo, second: TypeInfo | ChangeInfo) -> bool:
    """Return whether one of them has no description, as time had run out after its cell, and the types are equal."""
    return not (first.repr and second.repr) and first.type.rpartition(".")[2] == second.type.rpartition(".")[2]


def _description(info: TypeInfo | ChangeInfo | None) -> str:
    if info is None:
        return ""
    return info.repr if info.type in _SCALARS else with_type(info)


def _is_there(name: str, fingerprint: str | None, deleted: Collection[str], info: object, new: bool) -> bool | None:
    """Return whether a name was there after a run; `new`: the other run made it. None: not known."""
    if name in deleted:
        return False
    if info is not None or fingerprint:
        return True
    return False if new else None


_WARNING = re.compile(r"^[^\n]+:\d+: \w*Warning: [^\n]*(?:\n[ \t]+[^\n]*)*\n?", re.MULTILINE)


def _without_repeated(before: str, after: str) -> str:
    """Return `before` without warnings that `after` lacks: Python shows most of them once a process."""
    known = {_message(one) for one in _WARNING.findall(after)}
    return _WARNING.sub(lambda found: found[0] if _message(found[0]) in known else "", before)


def _message(warning: str) -> str:
    return warning.partition("\n")[0].partition("Warning: ")[2]


# -- for people -----------------------------------------------------------------------------------

HEAD: tuple[str, ...] = ("statement", "what", "subject", "difference", "cause")


def table(comparisons: Iterable[Comparison]) -> list[list[str]]:
    """Return the divergences as rows of text after a head; a statement that is the same has one row, `same`."""
    rows = [list(HEAD)]
    for one in comparisons:
        sid = one.execution_id.partition(".")[0]
        first = f"{sid} (expected)" if one.expected and not one.same else sid
        if one.same:
            unknown = any(found.kind == "unknown" for found in one.divergences)
            rows.append([sid, "same", "", "as far as it could be compared" if unknown else "", ""])
            first = ""
        for found in one.divergences:
            rows.append([first, found.kind, one_line(found.subject, 40), one_line(found.summary, 90), found.cause])
            first = ""
    return rows


def text_table(comparisons: Iterable[Comparison]) -> str:
    """Return `table` as text in columns."""
    return format_table(table(comparisons))


def to_json(comparisons: Iterable[Comparison]) -> list[dict[str, Json]]:
    """Return the comparisons as JSON, with `same` added."""
    return [{**plain(one), "same": one.same} for one in comparisons]
