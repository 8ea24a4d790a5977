"""The rich outputs of two executions compared as a reader sees them: figures by pixels, tables by cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.replay import Divergence, DivergenceKind
from ctxkernel.core.text import one_line, plural
from ctxkernel.core.timeline import Artifact, Execution
from ctxkernel.core.timeline_events import Json
from ctxkernel.replay.cause_finder import CauseFinder, Details
from ctxkernel.replay.image_comparison import compare_images, plain_svg
from ctxkernel.replay.normalisation import RULES, normalise
from ctxkernel.replay.text_comparison import Tolerance, as_json, compare_grids, read_html, same_json, same_text

EXCERPT = 400
"""Characters of `before` and of `after`."""
_PLAIN = 50
_FORMS = ("image/png", "image/jpeg", "image/svg+xml", "image/", "text/html", "text/markdown", "text/latex")
"""Prefixes of MIME types, the form that a reader sees first."""


@dataclass(frozen=True, slots=True)
class DivergenceSettings:
    """The tolerance within which two results count as the same."""

    rel: float = 1e-12
    """Tolerance of floats, relative to the larger one."""
    abs: float = 1e-12
    """Tolerance of floats, absolute."""
    pixel_step: int = 8
    """Difference of one colour value, of 255, that nobody sees: the pixel counts as the same."""
    pixel_share: float = 0.0
    """Share of a figure's pixels that may differ by more. One point that moved is some 20 of 300,000."""
    pixel_drift: float = 2.0
    """Root mean square of the differences of the other pixels, of 255, up to which they are the same."""
    timing_factor: float = 2.0
    timing_ms: float = 100.0
    """A time is reported if it is longer or shorter by this factor and by more than these milliseconds."""
    expected: bool = False
    """Whether the cell is marked as expected to differ."""
    rules: tuple[str, ...] | None = None
    """Names of the rules for texts; None for all."""

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance of floats."""
        return Tolerance(self.rel, self.abs)


def divergence(
    kind: DivergenceKind, subject: str, summary: str, cause: str, before: str = "", after: str = ""
) -> Divergence:
    """Return a divergence with its texts in bounds."""
    return Divergence(kind, subject, one_line(summary), cause, before[:EXCERPT], after[:EXCERPT])


class OutputComparison:
    """Two executions of one statement, `new` being the re-run, and their rich outputs compared."""

    def __init__(self, old: Execution, new: Execution, details: Details, settings: DivergenceSettings) -> None:
        self.old, self.new, self.details, self.settings = old, new, details, settings
        self.tolerance = settings.tolerance
        self.causes = CauseFinder(details)
        self.cause = self.causes.cause

    # -- texts --------------------------------------------------------------------------------

    def text(self, text: str, run: Execution) -> str:
        """Return a text of a run as it is compared. A time that the cell asked for itself is a result, and stays."""
        rules = RULES if self.settings.rules is None else self.settings.rules
        if self.causes.flow.reads_clock:
            rules = [name for name in rules if name != "now"]
        return normalise(text, rules, span=(run.started_at, run.ended_at or run.started_at))

    def texts(self, old: str, new: str) -> tuple[str, str]:
        """Return two texts, one of each execution, as they are compared."""
        return self.text(old, self.old), self.text(new, self.new)

    def near(self, old: str, new: str) -> bool:
        """Return whether two texts are the same except for floats within the tolerance."""
        return same_text(old, new, self.tolerance)

    def same(self, old: str, new: str) -> bool:
        """Return whether two texts, one of each execution, say the same."""
        return old == new or self.near(*self.texts(old, new))

    def compare_texts(self, subject: str, before: str, after: str, reached: str) -> Divergence | None:
        """Return how two texts differ, None if they do not; `reached` is the subject of the cause."""
        if self.near(before, after):
            return None
        first, second = before.split("\n"), after.split("\n")
        pairs = list(zip_longest(first, second))
        differing = [n for n, (a, b) in enumerate(pairs) if a is None or b is None or not (a == b or self.near(a, b))]
        place = differing[0] if differing else -1
        if not after.strip():
            summary = f"nothing any more ({plural(len(first), 'lines')} before)"
        elif not before.strip():
            summary = f"{plural(len(second), 'lines')} where there was nothing"
        elif len(pairs) == 1:
            summary = f"{one_line(before, 60)} → {one_line(after, 60)}"
        else:
            old, new = (one_line(lines[place], 60) if place < len(lines) else "(end)" for lines in (first, second))
            total = plural(len(pairs), "lines")
            summary = f"{len(differing)} of {total} differ, first {place + 1}: {old} → {new}"
        begin = max(0, place - 1)
        excerpts = "\n".join(first[begin:]), "\n".join(second[begin:])
        return divergence("output", subject, summary, self.cause(reached, (before, after)), *excerpts)

    # -- rich outputs ---------------------------------------------------------------------------

    def outputs(self) -> Iterable[Divergence]:
        """Yield the differences of the rich outputs, in their order."""
        before, after = _displays(self.old), _displays(self.new)
        for n, (old, new) in enumerate(zip_longest(before, after), 1):
            subject = "result" if len(before) <= 1 and len(after) <= 1 else f"output {n}"
            if old is None or new is None:
                what = f"{_main_form(new or old)}: " + ("not there before" if old is None else "not there any more")
                yield divergence("output", subject, what, self.cause("result"), _plain_text(old), _plain_text(new))
            elif (found := self._output(subject, old, new)) is not None:
                yield found

    def _output(self, subject: str, old: Mapping[str, Artifact], new: Mapping[str, Artifact]) -> Divergence | None:
        """Compare two rich outputs. They differ if a form that both have does, or if they share none."""
        common = [mime for mime in old if mime in new]
        if not common:
            return divergence("output", subject, f"{_main_form(old)} → {_main_form(new)}", self.cause("result"))
        # The form that a reader sees counts first; a plain text is cut where the HTML table is not.
        for mime in sorted(common, key=_richness):
            a, b = old[mime], new[mime]
            if (a.hash and a.hash == b.hash) or (a.data is not None and a.data == b.data):
                continue
            found = self._form(subject, mime, a, b)
            if found is not None or _richness(mime) < _PLAIN:
                return found
        return None

    def _form(self, subject: str, mime: str, old: Artifact, new: Artifact) -> Divergence | None:
        if old.data is None or new.data is None:
            # HTML of one length and another hash mostly differs in random ids: it is too large to see more.
            if old.size == new.size and (not (old.hash and new.hash) or not mime.startswith("image/")):
                return None
            summary = f"{mime} differs; too large to say where"
            return divergence("output", subject, summary, self.cause("result"), old.hash, new.hash)
        before, after = _text(old.data), _text(new.data)
        if mime == "image/svg+xml":
            if self.near(plain_svg(before), plain_svg(after)):
                return None
            return divergence("output", subject, "figure (SVG) differs", self.cause("result"))
        if mime.startswith("image/"):
            return self._image(subject, mime, before, after)
        if mime == "text/html":
            return self._html(subject, *self.texts(before, after))
        if mime.endswith("json"):
            # A widget view names a widget; its plain text and the state of its variable describe it.
            if mime == "application/vnd.jupyter.widget-view+json" or same_json(
                as_json(old.data), as_json(new.data), self.tolerance, self.same
            ):
                return None
            cause = self.cause("result")
            return divergence("output", subject, f"{mime} differs", cause, str(old.data), str(new.data))
        return self.compare_texts(subject, *self.texts(before, after), "result")

    def _image(self, subject: str, mime: str, old: str, new: str) -> Divergence | None:
        found = compare_images(old, new, step=self.settings.pixel_step)
        cause = self.cause("result")
        if found is None:
            return divergence("output", subject, f"figure ({mime}) differs; its pixels could not be compared", cause)
        if found.within(self.settings.pixel_share, self.settings.pixel_drift):
            return None
        if found.sizes[0] != found.sizes[1]:
            sizes = [f"{width} × {height}" for width, height in found.sizes]
            return divergence("output", subject, f"figure of {sizes[0]} pixels → {sizes[1]}", cause, *sizes)
        told = f"{found.share:.2%} of the pixels differ" if found.share else "many pixels differ a little"
        return divergence("output", subject, f"figure: {told}", cause)

    def _html(self, subject: str, old: str, new: str) -> Divergence | None:
        if old == new:
            return None
        first, second = read_html(old), read_html(new)
        if len(first.tables) == len(second.tables):
            for a, b in zip(first.tables, second.tables, strict=True):
                found = compare_grids(a, b, self.near)
                if found is not None:
                    cause = self.cause("result", ("\n".join(map(" ".join, a)), "\n".join(map(" ".join, b))))
                    return divergence("output", subject, found.summary, cause, found.before, found.after)
        elif first.tables or second.tables:
            counts = f"{len(first.tables)} tables → {len(second.tables)}"
            return divergence("output", subject, counts, self.cause("result"))
        if (found := self.compare_texts(subject, first.text, second.text, "result")) is not None:
            return found
        if not self.near(first.code, second.code):
            return divergence("output", subject, "text/html differs in its scripts or links", self.cause("result"))
        return None


def _richness(mime: str) -> int:
    if mime == "text/plain":
        return 99
    return next((n for n, form in enumerate(_FORMS) if mime.startswith(form)), _PLAIN)


def _displays(run: Execution) -> list[dict[str, Artifact]]:
    """Return the rich outputs, each as a mapping from its MIME types."""
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


def _main_form(output: Mapping[str, Artifact] | None) -> str:
    return min(output, key=_richness) if output else "nothing"
