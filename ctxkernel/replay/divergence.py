"""What came out differently: an execution against the re-run of the same statement. Pure.

Rule 1: texts are compared after the rules of `replay.normalise`, numbers with a tolerance, figures by pixels, tables
        by cells. The raw output stays what it is; only the comparison looks at it so.
Rule 2: nothing that differs is left out, and an honest re-run of a deterministic cell gives nothing.
Rule 3: a cause is named only where there is ground for it; where there is none it is empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from ctxkernel.core.events import Json, plain
from ctxkernel.core.replay import Comparison, Divergence, DivergenceKind
from ctxkernel.core.text import format_duration, format_table, one_line, plural
from ctxkernel.core.timeline import Artifact, ChangeInfo, Execution, TypeInfo
from ctxkernel.replay.causes import NONE, Causes, Flow, flow, names_used
from ctxkernel.replay.figures import compare_images, plain_svg
from ctxkernel.replay.normalise import RULES, normalise
from ctxkernel.replay.texts import Tolerance, as_json, compare_grids, read_html, same_json, same_text

EXCERPT = 400
"""Characters of `before` and of `after`."""


@dataclass(frozen=True, slots=True)
class DivergenceSettings:
    """How near two results must be to count as the same."""

    rel: float = 1e-12
    """Tolerance of floats, relative to the larger one."""
    abs: float = 1e-12
    """Tolerance of floats, absolute."""
    pixel_step: int = 8
    """Difference of one colour value, of 255, that nobody sees: a pixel counts as the same."""
    pixel_share: float = 0.0
    """Share of a figure's pixels that may differ by more. One point that moved is some 20 of 300,000."""
    pixel_drift: float = 2.0
    """Root mean square of the differences of the others, of 255, up to which they are the same."""
    timing_factor: float = 2.0
    timing_ms: float = 100.0
    """A time is told where it is longer or shorter by this factor and by more than these milliseconds."""
    expected: bool = False
    """The cell is marked as expected to differ."""
    rules: tuple[str, ...] | None = None
    """Names of the rules for texts; None for all."""

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance of floats."""
        return Tolerance(self.rel, self.abs)


@dataclass(frozen=True, slots=True)
class Details:
    """What is known about the statement beyond its executions. Each may be left out; then fewer causes are named."""

    source: str = ""
    """The text that ran again."""
    old_source: str | None = None
    """The text that ran before, where it was another."""
    functions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sources of the functions and classes of the namespace that it may call."""
    meaning: Mapping[str, str] = field(default_factory=dict[str, str])
    """Dotted names that names of the namespace stand for: `np` → `numpy`."""
    upstream: Collection[str] = ()
    """Names whose values differed already before it ran; a mapping may say by which cause."""
    generators: Collection[str] | None = None
    """Ambient parts (`random`, `numpy random`, `torch random`) that differed before it ran; None where not known."""
    environment: Sequence[str] = ()
    """What is another in the environment: `numpy 1.26 → 2.4`."""
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of the types of the names that it uses: `set`, `DataFrame`."""
    equal: Callable[[str], bool | None] | None = None
    """Compares the values of a name after both, with the tolerance; None from it where that cannot be told."""


def compare(
    old: Execution,
    new: Execution,
    *,
    old_state: Mapping[str, str],
    new_state: Mapping[str, str],
    details: Details | None = None,
    settings: DivergenceSettings | None = None,
) -> Comparison:
    """Return what differs in `new`, the re-run, against `old`.

    `old_state` and `new_state` map names to fingerprints of their content after each; an empty one means: not known.
    Only names that one of the two added, changed or deleted are looked at.
    """
    work = _Comparing(old, new, old_state, new_state, details or Details(), settings or DivergenceSettings())
    return Comparison(
        execution_id=new.execution_id,
        against=old.execution_id,
        divergences=tuple(work.all()),
        expected=work.settings.expected,
        time_ms=(old.cost.time_ms, new.cost.time_ms),
    )


class _Comparing:
    def __init__(
        self,
        old: Execution,
        new: Execution,
        old_state: Mapping[str, str],
        new_state: Mapping[str, str],
        details: Details,
        settings: DivergenceSettings,
    ) -> None:
        self.old, self.new = old, new
        self.old_state, self.new_state = old_state, new_state
        self.details, self.settings = details, settings
        self.tolerance = settings.tolerance
        self._files = list(self.files())

    def all(self) -> Iterable[Divergence]:
        """In the order in which a reader wants them: what was read, what failed, what came out, what stayed."""
        yield from self._files
        yield from self.errors()
        yield from self.streams()
        yield from self.outputs()
        yield from self.artifacts()
        yield from self.state()
        yield from self.timing()

    # -- texts --------------------------------------------------------------------------------

    def old_text(self, text: str) -> str:
        return self.text(text, self.old)

    def new_text(self, text: str) -> str:
        return self.text(text, self.new)

    def text(self, text: str, run: Execution) -> str:
        """Return a text of a run as it is compared. A time that the cell asked for itself is a result, and stays."""
        rules = RULES if self.settings.rules is None else self.settings.rules
        if self.flow.reads_clock:
            rules = [name for name in rules if name != "now"]
        return normalise(text, rules, span=_span(run))

    def same(self, old: str, new: str) -> bool:
        """Whether two texts, one of each execution, say the same."""
        return old == new or same_text(self.old_text(old), self.new_text(new), self.tolerance)

    # -- the kinds ----------------------------------------------------------------------------

    def files(self) -> Iterable[Divergence]:
        before = {self.old_text(one.name): one for one in self.old.artifacts if one.kind == "read"}
        for name, new in _by_name(self.new.artifacts, "read").items():
            old = before.get(self.new_text(name))
            if old is None:
                # The other way round says little: what is imported or cached is not read again.
                yield _divergence("file", name, "read file was not read before", "file", "", new.hash)
                continue
            if old.hash == new.hash:
                continue
            if old.size == new.size and old.hash[:5] != new.hash[:5]:
                continue  # one by content, one by its stamp: that cannot be told
            if old.size == new.size and old.hash.startswith("stat:"):
                summary = f"read file was written anew, of the same size ({new.size:,} bytes)"
            else:
                summary = f"read file changed: {_sizes(old.size, new.size)}"
            yield _divergence("file", name, summary, "file", old.hash, new.hash)

    def errors(self) -> Iterable[Divergence]:
        old, new = self.old.exception, self.new.exception
        if old is None and new is None:
            if self.old.status != self.new.status:
                change = f"{self.old.status} → {self.new.status}"
                yield _divergence("error", "status", change, self.cause("error"), self.old.status, self.new.status)
            return
        before, after = (f"{one.type}: {one.message}" if one is not None else "" for one in (old, new))
        if old is None and new is not None:
            yield _divergence("error", new.type, f"appeared: {after}", self.cause("error"), before, after)
        elif new is None and old is not None:
            yield _divergence("error", old.type, f"went: {before}", self.cause("error"), before, after)
        elif old is not None and new is not None and not self.same(before, after):
            yield _divergence("error", new.type, f"another: {before} → {after}", self.cause("error"), before, after)

    def streams(self) -> Iterable[Divergence]:
        for name in ("stdout", "stderr"):
            old, new = (
                getattr(run, name) + run.late.get(name, "")  # both are the cell's, whenever they came
                for run in (self.old, self.new)
            )
            if old == new:
                continue
            before, after = self.old_text(old), self.new_text(new)
            if name == "stderr":
                before = _without_repeated(before, after)
            if same_text(before, after, self.tolerance):
                continue
            yield self.text_divergence(name, before, after, self.cause("printed", text=(before, after)))

    def text_divergence(self, subject: str, before: str, after: str, cause: str) -> Divergence:
        first, second = before.split("\n"), after.split("\n")
        differing = 0
        place = -1
        for n in range(max(len(first), len(second))):
            a = first[n] if n < len(first) else None
            b = second[n] if n < len(second) else None
            if a is None or b is None or not (a == b or same_text(a, b, self.tolerance)):
                differing += 1
                place = n if place < 0 else place
        if not after.strip():
            summary = f"nothing any more ({plural(len(first), 'lines')} before)"
        elif not before.strip():
            summary = f"{plural(len(second), 'lines')} where there was nothing"
        elif len(first) == len(second) == 1:
            summary = f"{one_line(before, 60)} → {one_line(after, 60)}"
        else:
            pair = [one_line(lines[place], 60) if place < len(lines) else "(end)" for lines in (first, second)]
            total = plural(max(len(first), len(second)), "lines")
            summary = f"{differing} of {total} differ, first {place + 1}: {pair[0]} → {pair[1]}"
        begin = max(0, place - 1)
        return _divergence("output", subject, summary, cause, "\n".join(first[begin:]), "\n".join(second[begin:]))

    def outputs(self) -> Iterable[Divergence]:
        before, after = _displays(self.old), _displays(self.new)
        for n in range(max(len(before), len(after))):
            subject = "result" if len(before) <= 1 and len(after) <= 1 else f"output {n + 1}"
            old = before[n] if n < len(before) else None
            new = after[n] if n < len(after) else None
            if old is None or new is None:
                one = new or old or {}
                what = f"{_said(one)}: " + ("not there before" if old is None else "not there any more")
                texts = _plain_text(old), _plain_text(new)
                yield _divergence("output", subject, what, self.cause("result"), *texts)
                continue
            found = self.output(subject, old, new)
            if found is not None:
                yield found

    def output(self, subject: str, old: Mapping[str, Artifact], new: Mapping[str, Artifact]) -> Divergence | None:
        """Compare two rich outputs. They differ where a form that both have does, or where they share none."""
        common = [mime for mime in old if mime in new]
        if not common:
            return _divergence("output", subject, f"{_said(old)} → {_said(new)}", self.cause("result"))
        # The form that a reader sees counts first; a plain text is cut where the HTML table is not.
        for mime in sorted(common, key=_richness):
            a, b = old[mime], new[mime]
            if (a.hash and a.hash == b.hash) or (a.data is not None and a.data == b.data):
                continue
            found = self.form(subject, mime, a, b)
            if found is not None:
                return found
            if _richness(mime) < _PLAIN:
                return None
        return None

    def form(self, subject: str, mime: str, old: Artifact, new: Artifact) -> Divergence | None:
        if old.data is None or new.data is None:
            # HTML of one length and another hash mostly differs in ids made at random: it is too large to see more.
            if old.size == new.size and (not (old.hash and new.hash) or not mime.startswith("image/")):
                return None
            return _divergence(
                "output", subject, f"{mime} differs; too large to say where", self.cause("result"), old.hash, new.hash
            )
        if mime.startswith("image/") and mime != "image/svg+xml":
            return self.image(subject, mime, _text(old.data), _text(new.data))
        if mime == "image/svg+xml":
            before, after = (plain_svg(_text(one)) for one in (old.data, new.data))
            if same_text(before, after, self.tolerance):
                return None
            return _divergence("output", subject, "figure (SVG) differs", self.cause("result"))
        if mime == "text/html":
            return self.html(subject, self.old_text(_text(old.data)), self.new_text(_text(new.data)))
        if mime.endswith(("json", "+json")):
            if mime == "application/vnd.jupyter.widget-view+json":
                return None  # names a widget; its plain text and the state of its variable say what it is
            if same_json(as_json(old.data), as_json(new.data), self.tolerance, self.same):
                return None
            return _divergence("output", subject, f"{mime} differs", self.cause("result"), str(old.data), str(new.data))
        before, after = self.old_text(_text(old.data)), self.new_text(_text(new.data))
        if same_text(before, after, self.tolerance):
            return None
        return self.text_divergence(subject, before, after, self.cause("result", text=(before, after)))

    def image(self, subject: str, mime: str, old: str, new: str) -> Divergence | None:
        found = compare_images(old, new, step=self.settings.pixel_step)
        cause = self.cause("result")
        if found is None:
            return _divergence("output", subject, f"figure ({mime}) differs; its pixels could not be compared", cause)
        if found.within(self.settings.pixel_share, self.settings.pixel_drift):
            return None
        if found.sizes[0] != found.sizes[1]:
            sizes = [f"{width} × {height}" for width, height in found.sizes]
            return _divergence("output", subject, f"figure of {sizes[0]} pixels → {sizes[1]}", cause, *sizes)
        told = f"{found.share:.2%} of the pixels differ" if found.share else "many pixels differ a little"
        return _divergence("output", subject, f"figure: {told}", cause)

    def html(self, subject: str, old: str, new: str) -> Divergence | None:
        if old == new:
            return None
        first, second = read_html(old), read_html(new)

        def near(a: str, b: str) -> bool:
            return same_text(a, b, self.tolerance)

        if len(first.tables) == len(second.tables):
            for a, b in zip(first.tables, second.tables, strict=True):
                found = compare_grids(a, b, near)
                if found is not None:
                    text = ("\n".join(map(" ".join, a)), "\n".join(map(" ".join, b)))
                    cause = self.cause("result", text=text)
                    return _divergence("output", subject, found.summary, cause, found.before, found.after)
        elif first.tables or second.tables:
            counts = f"{len(first.tables)} tables → {len(second.tables)}"
            return _divergence("output", subject, counts, self.cause("result"))
        if not near(first.text, second.text):
            cause = self.cause("result", text=(first.text, second.text))
            return self.text_divergence(subject, first.text, second.text, cause)
        if not near(first.code, second.code):
            return _divergence("output", subject, "text/html differs in its scripts or links", self.cause("result"))
        return None

    def artifacts(self) -> Iterable[Divergence]:
        before, after = (_by_name(run.artifacts, "file") for run in (self.old, self.new))
        names = {self.old_text(name): name for name in before}, {self.new_text(name): name for name in after}
        for name in sorted(names[0].keys() | names[1].keys()):
            old = before.get(names[0].get(name, ""))
            new = after.get(names[1].get(name, ""))
            if old is None and new is not None:
                yield _divergence("artifact", new.name, f"written now, {new.size:,} bytes", self.cause("file"))
            elif new is None and old is not None:
                yield _divergence(
                    "artifact", old.name, f"not written any more ({old.size:,} bytes)", self.cause("file")
                )
            elif old is not None and new is not None and (old.hash, old.size) != (new.hash, new.size):
                if old.size == new.size and not (old.hash and new.hash):
                    continue
                summary = f"content differs: {_sizes(old.size, new.size)}"
                cause = self.cause("file") or ("clock" if _DATED.search(new.name) else "")
                yield _divergence("artifact", new.name, summary, cause, old.hash, new.hash)

    def state(self) -> Iterable[Divergence]:
        one, two = self.old.state_diff, self.new.state_diff
        touched = {*one.added, *one.changed, *one.deleted, *two.added, *two.changed, *two.deleted}
        for name in sorted(touched):
            before, after = self.old_state.get(name), self.new_state.get(name)
            first = one.added.get(name) or one.changed.get(name)
            second = two.added.get(name) or two.changed.get(name)
            there = (
                _there(name, before, one.deleted, first, name in two.added),
                _there(name, after, two.deleted, second, name in one.added),
            )
            if there[0] and there[1] is False:
                yield _divergence("state", name, "is not there any more", self.cause(name), _said_of(first))
            elif there[1] and there[0] is False:
                yield _divergence("state", name, "was not there before", self.cause(name), "", _said_of(second))
            elif there[0] or there[1]:
                yield from self.value(name, before or "", after or "", first, second)

    def value(
        self,
        name: str,
        before: str,
        after: str,
        first: TypeInfo | ChangeInfo | None,
        second: TypeInfo | ChangeInfo | None,
    ) -> Iterable[Divergence]:
        if before and before == after:
            return
        if self.details.equal is not None and self.details.equal(name):
            return
        texts = _said_of(first), _said_of(second)
        if before and after:
            # A scalar stands whole in its description, so it can be compared with the tolerance.
            whole = first is not None and second is not None and first.type == second.type and first.type in _SCALARS
            if whole and texts[0] != texts[1] and same_text(*texts, self.tolerance):
                return
        elif first is None or second is None or self.same(*texts) or _undescribed(first, second):
            return  # nothing is known of the content, and what is told of it is the same
        if not any(texts) or texts[0] == texts[1]:
            summary = f"content differs: {texts[1]}" if texts[1] else "content differs"
        elif first is not None and second is not None and first.type != second.type:
            summary = f"{first.type} → {second.type}"
        else:
            summary = f"{one_line(texts[0], 60)} → {one_line(texts[1], 60)}"
        yield _divergence("state", name, summary, self.cause(name, text=texts), *texts)

    def timing(self) -> Iterable[Divergence]:
        before, after = self.old.cost.time_ms, self.new.cost.time_ms
        low, high = sorted((before, after))
        if high - low > self.settings.timing_ms and high > self.settings.timing_factor * low:
            yield _divergence(
                "timing", "time", f"{format_duration(before / 1000)} → {format_duration(after / 1000)}", ""
            )

    # -- causes -------------------------------------------------------------------------------

    @cached_property
    def flow(self) -> Flow:
        """Which causes reach what in this statement."""
        details = self.details
        return flow(
            details.source,
            functions=details.functions,
            meaning=details.meaning,
            upstream=tuple(details.upstream),
            sets=[name for name, kind in details.types.items() if kind in ("set", "frozenset")],
        )

    def cause(self, subject: str, *, text: tuple[str, str] | None = None) -> str:
        """Return what the difference comes from: `subject` is a name, `printed`, `result`, `file` or `error`."""
        details = self.details
        if details.old_source is not None and details.old_source != details.source:
            return "edited"
        found = self.reaching(subject)
        if self._files and ("file" in found or not found):
            return "file"
        if _seeds(found, details.generators):
            return "seed"
        if text is not None and _permuted(*text) and ("set order" in found or _SET_REPR.search(text[0])):
            return "set order"
        roots = self.roots() if "upstream" in found else set[str]()
        for cause in ("clock", "network", "input"):
            if cause in found and (not roots or cause in roots or "upstream" not in found):
                return cause
        if "upstream" in found:
            return "upstream"
        for cause in ("set order", "address", "threads", "environment", "file"):
            if cause in found:
                return cause
        return "environment" if details.environment else ""

    def reaching(self, subject: str) -> Causes:
        """Return the causes that reach the subject; those of the whole cell where it cannot be followed."""
        everything = self.flow.anything
        if set(self.details.upstream) & names_used(self.details.source):
            everything |= {"upstream"}
        match subject:
            case "printed":
                found = self.flow.printed | self.flow.result
            case "result":
                found = self.flow.result
            case "file" | "error":
                found = everything
            case _:
                found = self.flow.names.get(subject, NONE)
        # Where nothing is known to reach it, it may be what a function did; but not so a set that is only counted.
        return found or everything - {"set order", "address"}

    def roots(self) -> set[str]:
        """Return why the names that differed before do."""
        upstream = self.details.upstream
        if not isinstance(upstream, Mapping):
            return set()
        return {cause for cause in cast("Mapping[str, str]", upstream).values() if cause}


# -- small helpers --------------------------------------------------------------------------------


def _sizes(old: int, new: int) -> str:
    return f"{new:,} bytes, as many as before" if old == new else f"{old:,} → {new:,} bytes"


_SCALARS = frozenset(("float", "complex", "float64", "float32", "numpy.float64", "numpy.float32", "longdouble"))
_DATED = re.compile(r"\.(?:pdf|svg|xlsx|docx|pptx|zip|gz|tgz|h5|hdf5|html)$", re.IGNORECASE)
"""Files that hold the time at which they were written."""
_SET_REPR = re.compile(r"\{[^:{}]+(?:, [^:{}]+)+\}|frozenset\(")
_WORDS = re.compile(r"[^\s,\[\](){}]+")
_PLAIN = 50
_FORMS = (
    "image/png",
    "image/jpeg",
    "image/svg+xml",
    "image/",
    "text/html",
    "text/markdown",
    "text/latex",
    "text/plain",
)


def _richness(mime: str) -> int:
    for n, form in enumerate(_FORMS[:-1]):
        if mime.startswith(form):
            return n
    return 99 if mime == "text/plain" else _PLAIN


def _span(run: Execution) -> tuple[float, float]:
    return run.started_at, run.ended_at if run.ended_at is not None else run.started_at


def _by_name(artifacts: Iterable[Artifact], kind: str) -> dict[str, Artifact]:
    return {one.name: one for one in artifacts if one.kind == kind}


def _displays(run: Execution) -> list[dict[str, Artifact]]:
    """The rich outputs, each as a mapping from its MIME types."""
    found: dict[str, dict[str, Artifact]] = {}
    for one in run.artifacts:
        if one.kind == "display":
            found.setdefault(one.name, {})[one.mime] = one
    return list(found.values())


def _text(data: Json) -> str:
    # A notebook file holds a long text as a list of lines.
    return "".join(cast("list[str]", data)) if isinstance(data, list) else str(data)


def _plain_text(output: Mapping[str, Artifact] | None) -> str:
    one = (output or {}).get("text/plain")
    return _text(one.data) if one is not None and one.data is not None else ""


def _said(output: Mapping[str, Artifact]) -> str:
    return min(output, key=_richness) if output else "nothing"


def _undescribed(first: TypeInfo | ChangeInfo, second: TypeInfo | ChangeInfo) -> bool:
    """Whether one of them was not described, as time had run out after its cell, and the types are the same."""
    return not (first.repr and second.repr) and first.type.rpartition(".")[2] == second.type.rpartition(".")[2]


def _said_of(info: TypeInfo | ChangeInfo | None) -> str:
    return (
        f"{info.type} {info.repr}".strip()
        if info is not None and info.type not in _SCALARS
        else info.repr
        if info
        else ""
    )


def _there(name: str, fingerprint: str | None, deleted: Collection[str], info: object, new: bool) -> bool | None:
    """Whether a name was there after a run; `new`: the other run made it. None where nothing is known."""
    if name in deleted:
        return False
    if info is not None or fingerprint:
        return True
    return False if new else None


def _divergence(
    kind: DivergenceKind, subject: str, summary: str, cause: str, before: str = "", after: str = ""
) -> Divergence:
    return Divergence(kind, subject, one_line(summary), cause, before[:EXCERPT], after[:EXCERPT])


_WARNING = re.compile(r"^[^\n]+:\d+: \w*Warning: [^\n]*(?:\n[ \t]+[^\n]*)*\n?", re.MULTILINE)


def _without_repeated(before: str, after: str) -> str:
    """Return `before` without warnings that `after` lacks: Python shows most of them once a process."""
    known = Counter(_message(one) for one in _WARNING.findall(after))
    return _WARNING.sub(lambda found: found[0] if known[_message(found[0])] else "", before)


def _message(warning: str) -> str:
    return warning.partition("\n")[0].partition("Warning: ")[2]


def _permuted(before: str, after: str) -> bool:
    """Whether both say the same words in another order."""
    return before != after and Counter(_WORDS.findall(before)) == Counter(_WORDS.findall(after))


_PARTS = {
    "random": ("random",),
    "numpy": ("numpy random", "numpy"),
    "torch": ("torch random", "torch"),
    "tensorflow": ("tensorflow",),
}


def _seeds(found: Causes, generators: Collection[str] | None) -> bool:
    """Whether an unseeded generator reaches the subject: one that is new at each run, or whose state was another."""
    for cause in found:
        kind, _, name = cause.partition(":")
        if kind == "seed" and (name == "entropy" or generators is None or set(_PARTS.get(name, ())) & set(generators)):
            return True
    return False


# -- for people -----------------------------------------------------------------------------------

HEAD: tuple[str, ...] = ("statement", "what", "subject", "difference", "cause")


def table(comparisons: Iterable[Comparison]) -> list[list[str]]:
    """Return the divergences as rows of text, a head first; a statement that is the same has one row, `same`."""
    rows = [list(HEAD)]
    for one in comparisons:
        sid = one.execution_id.partition(".")[0]
        first = f"{sid} (expected)" if one.expected and not one.same else sid
        if one.same:
            rows.append([sid, "same", "", "", ""])
        for found in one.divergences:
            rows.append([first, found.kind, one_line(found.subject, 40), one_line(found.summary, 90), found.cause])
            first = ""
    return rows


def text_table(comparisons: Iterable[Comparison]) -> str:
    """Return `table` as text in columns."""
    return format_table(table(comparisons))


def summary(comparisons: Sequence[Comparison]) -> str:
    """Return one line: how many are the same, how many differ, and by what."""
    differ = [one for one in comparisons if not one.same]
    expected = sum(one.expected for one in differ)
    causes = Counter(_first_cause(one) for one in differ)
    parts = [f"{len(comparisons)} run again", f"{len(comparisons) - len(differ)} same"]
    if differ:
        named = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
        parts.append(f"{len(differ)} {'differs' if len(differ) == 1 else 'differ'} ({named})")
    if expected:
        parts.append(f"{expected} of them expected")
    return ", ".join(parts)


def _first_cause(one: Comparison) -> str:
    named = [found.cause for found in one.divergences if found.kind != "timing" and found.cause]
    return named[0] if named else "unknown"


def to_json(comparisons: Iterable[Comparison]) -> list[dict[str, Json]]:
    """Return the comparisons as JSON, with `same` added."""
    return [{**plain(one), "same": one.same} for one in comparisons]
