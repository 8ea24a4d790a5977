"""A text with what its levels of detail are made from: language, outline, facts, points.

Rule 1: each is found once. All of a text that takes long is left to the background; until then levels 1 and 2 are of
        its beginning, and say so with a `~`.
Rule 2: what the background found is a value, `Outlined`: views of the same text share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.jobs import Preparation
from ctxkernel.core.text import format_size, plural
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.amounts import LAST, Line, NamedLine
from ctxkernel.sources.base.file_reader import EXCERPT, Text, content_hash, make_text
from ctxkernel.sources.base.positions import (
    Outline,
    entry_lines,
    find_pattern,
    keys_of,
    no_place,
    pattern_of,
    symbols_of,
)
from ctxkernel.sources.base.rendering import Names, NotFound, Place
from ctxkernel.sources.files.bullets import Points, points_of, points_of_log
from ctxkernel.sources.outlines.json_facts import JsonFacts
from ctxkernel.sources.outlines.json_records import RecordFacts
from ctxkernel.sources.outlines.logs import LogFacts
from ctxkernel.sources.outlines.outline import (
    Language,
    language_of,
    log_facts,
    outline_of_json,
    outline_of_table,
    prose_outline,
)
from ctxkernel.sources.outlines.tabular import TableText, read_table

_RECORDS = ("table", "json", "jsonlines", "log")
_PRICED_CHARS, _PRICED_PARTS = 128 << 10, 16
"""Of a longer text so many characters, in so many parts, tell how many tokens it has."""
_AT_ONCE = {
    **dict.fromkeys(("json", "jsonlines", "table"), 0),
    **dict.fromkeys(("python", "markdown"), 96 << 10),
    **dict.fromkeys(("log", "text"), 384 << 10),
}
_OTHERS_AT_ONCE = 64 << 10
"""Characters that levels 1 and 2 are made of at once; 0 for all."""
_NAMED_AT_ONCE: dict[str, int] = dict.fromkeys(("python", "markdown", "text", "log"), 1 << 20)
"""Characters of a text whose names are found at once: its outline alone is quick."""


@dataclass(frozen=True, slots=True)
class TextFacts:
    """Facts about a text of which only the beginning is at hand."""

    facts: LogFacts | TableText | JsonFacts | RecordFacts | None
    """None for what turned out to be neither."""
    size: int
    sample: str = ""
    """Which parts it is of; empty for the whole text."""
    lines: int = 0
    """The number of lines, an estimate for a sample."""


@dataclass(frozen=True, slots=True)
class Outlined:
    """What the background found in a text."""

    fingerprint: str
    facts: LogFacts | TableText | JsonFacts | RecordFacts | None
    outline: Outline
    entries: Sequence[NamedLine]
    points: Points


class Document:
    """A text with its language and outline, each found once."""

    def __init__(
        self,
        label: str,
        path: str,
        text: Text,
        known: TextFacts | None = None,
        sample: Callable[[], TextFacts | None] | None = None,
        *,
        later: bool = False,
        outlined: Outlined | None = None,
        of: Document | None = None,
    ) -> None:
        """`known` is about the whole of a text that may not be whole in `text`; `sample` finds what is known else.

        `of` is the document of all of a text of which `text` is the beginning.
        `later` says that its source asks for `preparation`, so that what takes long can be left to that.
        """
        self.label = label
        self.text = text
        self._path, self._later, self._outlined, self._of = path, later, outlined, of
        self._awaited = False
        """Whether the beginning was asked for in place of all of it."""
        self.partial = False
        """Whether equal lines may be of different targets: of what is shown they are only a part."""
        self.language: Language = language_of(path, text)
        self._surveyed, self._sample = known, sample
        self.surveyed = known is not None
        """Whether facts were looked for in the whole text."""

    @property
    def whole(self) -> bool:
        """Return whether all of the text is at hand."""
        return self.text.whole or self._of is not None

    @property
    def begun(self) -> Document:
        """The document of the beginning, where all of the text takes long and is not prepared yet; else this one."""
        self._awaited = self._awaited or self._beginning is not self
        return self._beginning

    @cached_property
    def _beginning(self) -> Document:
        text, most = self.text, _AT_ONCE.get(self.language.name, _OTHERS_AT_ONCE)
        if not self._later or self._outlined is not None or self._is_sampled or not 0 < most < len(text.text):
            return self
        end = text.text.rfind("\n", 0, most) + 1 or most
        lines = text.lines[: text.text.count("\n", 0, end)] or [text.text[:end]]
        part = replace(text, text=text.text[:end], lines=lines, whole=False)
        return Document(self.label, self._path, part, of=self)

    def remarked(self, remark: str) -> Document:
        """Return this document with another remark on its text."""
        other = copy(self)
        other.text = replace(self.text, remarks=(*self.text.remarks, remark))
        other.__dict__.pop("_beginning", None)
        return other

    def preparation(self) -> Preparation | None:
        """Return the work that finds what takes long, where a rendering needed it."""
        path, text = self._path, self.text
        if not self._awaited or self._outlined is not None:
            return None
        return Preparation(
            f"outline {path} {text.fingerprint}", lambda stopped, publish: _outlined(path, text), "parse"
        )

    def taken(self, found: Outlined) -> Document | None:
        """Return this document with what was found; None where that is about another text."""
        if found.fingerprint != self.text.fingerprint:
            return None
        return Document(self.label, self._path, self.text, later=True, outlined=found)

    @property
    def worded(self) -> bool:
        """Return whether it is prose or code, rather than records of numbers."""
        return self.language.name not in _RECORDS and bool(self.text.text.strip())

    @property
    def _is_sampled(self) -> bool:
        """Return whether what is known of a large text is not from `text`."""
        return self._surveyed is not None or self._sample is not None

    @cached_property
    def _known(self) -> TextFacts | None:
        found = self._surveyed or (self._sample() if self._sample is not None else None)
        return found if found is not None and found.facts is not None else None

    @cached_property
    def facts(self) -> LogFacts | TableText | JsonFacts | RecordFacts | None:
        """Facts about all lines of a log, a table or a large JSON text."""
        if self._outlined is not None:
            return self._outlined.facts
        if self._known is not None:
            return self._known.facts
        if self.language.name == "log":
            return log_facts(self.text)
        return read_table(self.text) if self.language.name == "table" else None

    @cached_property
    def outline(self) -> Outline:
        """The structure."""
        if self._outlined is not None:
            return self._outlined.outline
        facts, known = self.facts, self._known
        if isinstance(facts, LogFacts):
            return facts.outline(known.sample, known.lines) if known is not None else facts.outline(self.read)
        if isinstance(facts, TableText):
            return outline_of_table(facts)
        if isinstance(facts, JsonFacts):
            return outline_of_json(facts, known.sample if known is not None else "")
        if isinstance(facts, RecordFacts) and known is not None:
            sample = "~" * bool(known.sample)
            return facts.outline(f"{sample}{plural(known.lines if sample else facts.values, 'lines')}", sample)
        by_lines = self.language.name in ("log", "table")
        return prose_outline(self.text) if by_lines else self.language.outline(self.text)

    @cached_property
    def entries(self) -> Sequence[NamedLine]:
        """The lines of the outline's entries."""
        return (
            entry_lines(self.outline.entries, self.outline.what) if self._outlined is None else self._outlined.entries
        )

    @cached_property
    def points(self) -> Points:
        """The most informative lines, best first."""
        if self._outlined is not None:
            return self._outlined.points
        if isinstance(self.facts, LogFacts):
            return points_of_log(self.facts.ranked(), "~" * bool(self.read))
        return points_of(self.text, self.language, self.outline)

    @property
    def table(self) -> TableText | None:
        """Facts about its columns, where it is a table."""
        return self.facts if isinstance(self.facts, TableText) else None

    @property
    def is_log(self) -> bool:
        """Return whether it has the entries of a log."""
        return isinstance(self.facts, LogFacts)

    @cached_property
    def read(self) -> str:
        """The part of the text that structure and summary are made from, where that is not all of it."""
        if self._of is not None:
            return f"~ of its first {format_size(len(self.text.text.encode('utf-8', 'replace')))} so far"
        if self._known is not None:
            return f"a sample: {self._known.sample}" if self._known.sample else ""
        return "" if self.text.whole else f"only its first {format_size(self.text.read)} were read"

    def unread(self, what: str) -> list[Line]:
        """Return the line below a list of `what` that may have more of them in the part that was not read."""
        if not self.read and self.outline.whole:
            return []
        yet = " yet" * (self._of is not None)
        return [Line(f"[… the rest was not read{yet}]", 0, what, exact=False, rank=LAST)]

    @cached_property
    def tokens(self) -> int:
        """Estimated tokens of the text; of a long one from evenly spread parts."""
        text = self.text.text
        if len(text) <= _PRICED_CHARS:
            return count_tokens(text)
        part = _PRICED_CHARS // _PRICED_PARTS
        some = [text[at : at + part] for at in range(0, len(text) - part, (len(text) - part) // _PRICED_PARTS)]
        return sum(map(count_tokens, some)) * len(text) // sum(map(len, some))

    def names(self) -> Names:
        """Return the symbols and headings; of JSON the keys."""
        if self.language.name == "json":
            return Names("keys", [(name, Place(line, col)) for name, line, col in keys_of(self.text.lines)])
        outline = self._named.outline
        return Names(outline.what, [(name, Place(line)) for name, line in symbols_of(outline)])

    @property
    def _named(self) -> Document:
        """The document whose names are those of this one so far."""
        return self if len(self.text.text) <= _NAMED_AT_ONCE.get(self.language.name, 0) else self.begun

    def find(self, pos: str) -> Place:
        """Return the line of a symbol, heading, key or "/pattern/". Raises BadPolicy, NotFound."""
        pattern = pattern_of(pos)
        if pattern is None:
            try:
                return self.names().find(self.label, pos)
            except BadPolicy as fault:
                if self._named is not self:
                    raise NotFound(f"{pos!r} not found yet, {self._named.read}") from None
                if not self.read:
                    raise
                raise BadPolicy(f"{fault} ({self.read})") from None
        line = find_pattern(pattern, self.text.lines)
        if line is None:
            if not self.text.whole:
                raise BadPolicy(f"{self.label} has no position {pos!r} in what was read of it: {self.read}")
            raise no_place(self.label, pos)
        return Place(line)

    def tokens_of(self, chars: int) -> int:
        """Return an estimate for `chars` characters of this text, from the price of its average one."""
        return max(1, self.tokens * chars // max(len(self.text.text), 1))

    def headline(self, shown: str = "", *, read: bool = False) -> str:
        """Return the first line of a rendering; `read` says that it tells how much of the text was read."""
        text, known = (self.text if self._of is None else self._of.text), self._known
        if read and known is not None and not known.sample:
            lines = plural(known.lines, "lines")
            others = [remark for remark in text.remarks if not remark.startswith(EXCERPT)]
            return " · ".join(filter(None, (self.label, lines, format_size(known.size), *others)))
        lines = plural(len(text.lines), "lines") if text.whole else ""
        # Of an excerpt the remark says the size; of an object's text it says nothing.
        size = format_size(text.size) if text.whole and text.size >= 0 else ""
        return " · ".join(
            part for part in (self.label, shown or lines, size, *text.remarks, read and self.read) if part
        )


def _outlined(path: str, text: Text) -> Outlined:
    """Return what takes long, for a worker."""
    found = Document("", path, text)
    return Outlined(text.fingerprint, found.facts, found.outline, found.entries, found.points)


def lines_document(
    label: str, lines: Sequence[str], fingerprint: str = "", size: int = -1, *, partial: bool = False
) -> Document:
    """Return some lines as a text in no language; of size -1 no size is shown.

    `partial`: whether the lines are only a part of what is shown, or were cut.
    """
    whole = "\n".join(lines)
    text = make_text(whole, size=size, fingerprint=fingerprint or content_hash(whole.encode("utf-8", "replace")))
    if len(text.lines) == len(lines):  # they keep what they stand for
        text.lines[:] = [line if line == own else own for line, own in zip(lines, text.lines, strict=True)]
    document = Document(label, "", text)
    document.partial = partial
    return document
