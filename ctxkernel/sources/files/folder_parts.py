"""The entries of a folder: one of a listing, and the facts of level 2 about all of them.

Rule 1: of prose and tables the beginning is read, of at most `_OPENED` files, the first in the order of the listing.
Rule 2: a total is of the files that were listed; the first line of a rendering says where that is not all.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.amounts import LAST, Line, NamedLine, more_lines
from ctxkernel.sources.base.file_reader import Data, Text, cut_at_line, load_bytes, text_of
from ctxkernel.sources.outlines.code_files import is_code
from ctxkernel.sources.outlines.outline import language_of
from ctxkernel.sources.outlines.prose import sections_of

_SUFFIXES = 20
_AFTER = LAST - 1
"""The rank of totals: what the parts are comes before."""
_KINDS = 4
_OPENED = 40
_HEAD_BYTES = 8192
_ABOUT_CHARS = 160
_READABLE = frozenset((".md", ".markdown", ".qmd", ".rmd", ".rst", ".txt", ".csv", ".tsv", ".tab"))
_READMES = ("readme.md", "readme.rst", "readme.txt", "readme")


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One entry of a directory."""

    name: str
    """Relative to the directory that is viewed, with / between."""
    depth: int
    folder: bool
    size: int
    changed: int
    note: str = ""

    def line(self) -> str:
        """Return the entry as a line of the tree."""
        base = printable(self.name.split("/", self.depth)[-1])
        if self.folder:
            return f"{'  ' * self.depth}{base}/{f' ({self.note})' if self.note else ''}"
        return f"{'  ' * self.depth}{base} · {self.note or format_size(self.size)}"


def tree_line(entry: FolderEntry) -> NamedLine:
    """Return the line of an entry of a tree: names come before sizes, and outer entries before inner ones."""
    *above, base = entry.name.split("/", entry.depth)
    kind = f"in {printable('/'.join(above))}/" if above else "entries"
    name = f"{printable(base)}{'/' * entry.folder}"
    return NamedLine(entry.line(), name, kind, depth=entry.depth, rank=2 * entry.depth, worth=int(entry.folder))


def printable(name: str) -> str:
    """Return the name of a file in one line, with escapes for characters that are not seen."""
    return name if name.isprintable() else repr(name)[1:-1]


def readme_line(folder: str, found: Sequence[FolderEntry]) -> list[str]:
    """Return the line that says what a folder is for, by its README; none where there is no such."""
    name = _readme(found)
    about = _about(os.path.join(folder, name)) if name else ""
    return [f"{name}: {about}" if about else name] if name else []


def _readme(found: Sequence[FolderEntry]) -> str:
    names = {entry.name.lower(): entry.name for entry in found if not entry.folder and not entry.note}
    return next((names[name] for name in _READMES if name in names), "")


def other_files(files: Sequence[FolderEntry]) -> list[str]:
    """Return the line that says how many files of which kinds are no code; none where all are."""
    others = [entry for entry in files if not is_code(entry.name)]
    return [f"other files: {_kinds(others)}"] if others else []


def _kinds(files: Sequence[FolderEntry]) -> str:
    kinds = Counter(os.path.splitext(entry.name)[1] or os.path.basename(entry.name) for entry in files)
    ranked = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(count for _, count in ranked[_KINDS:])
    of = [f"{count:,} {suffix}" for suffix, count in ranked[:_KINDS]]
    return ", ".join([*of, *([f"{rest:,} others"] if rest else [])])


def part_lines(
    folder: str, found: Sequence[FolderEntry], mapped: Collection[str], *, part: bool = False
) -> Iterator[NamedLine]:
    """Yield a bullet for each entry of a folder but those that a map has: what is in it, or how it begins.

    `part` says that there are more entries than `found`: what is in the last one is not all known.
    """
    last = found[-1].name.partition("/")[0] if part else None
    below: dict[str, list[FolderEntry]] = {}
    for entry in found:
        if entry.depth and (not entry.folder or entry.note):
            below.setdefault(entry.name.partition("/")[0], []).append(entry)
    opened, readme = 0, _readme(found)
    for entry in sorted(found, key=lambda entry: entry.name.startswith(".")):
        if entry.depth or entry.name in mapped or f"{entry.name}/" in mapped or entry.name == readme:
            continue
        if entry.folder:
            inner, name = below.get(entry.name, []), printable(entry.name)
            contents = entry.note or _contents(inner, part=entry.name == last)
            yield NamedLine(f"- {name}/: {contents}", f"{name}/", "parts")
            continue
        about = ""
        if not entry.note and opened < _OPENED and os.path.splitext(entry.name)[1].lower() in _READABLE:
            opened += 1
            about = _about(os.path.join(folder, entry.name))
        name = printable(entry.name)
        short = f"- {name} · {entry.note or format_size(entry.size)}"
        yield NamedLine(f"{short}{f' — {about}' if about else ''}", name, "parts", short=short)


def _contents(below: Sequence[FolderEntry], *, part: bool) -> str:
    """Return the number, kinds and size of the files in a folder; with a `+` where not all of it was entered."""
    files = [entry for entry in below if not entry.folder]
    plus = "+" if part or len(files) < len(below) else ""
    if not files:
        return "not entered" if plus else "no file"
    about = f" ({_kinds(files) if len(files) > 1 else os.path.basename(files[0].name)})"
    count = f"{len(files):,}+ files" if plus else plural(len(files), "files")
    return f"{count}{about}, {format_size(sum(entry.size for entry in files))}"


def _about(path: str) -> str:
    """Return the title and the first sentence of prose, or the columns of a table."""
    loaded = load_bytes(path, _HEAD_BYTES)
    text = text_of(cut_at_line(loaded.data, "utf-8"), loaded.size, path) if isinstance(loaded, Data) else None
    if not isinstance(text, Text) or not text.lines:
        return ""
    language = language_of(path, text)
    if language.name == "table":
        return one_line(text.lines[0], _ABOUT_CHARS)
    outline = language.outline(text)
    headings = outline.entries if outline.what == "headings" else ()
    sections, _ = sections_of(enumerate(text.lines), headings)
    title = next((section.title for section in sections if section.title), "")
    first = next((paragraph[0].text for section in sections for paragraph in section.paragraphs), "")
    return one_line(": ".join(filter(None, (title, first))), _ABOUT_CHARS)


def totals(files: list[FolderEntry]) -> Iterator[str]:
    """Yield what a listing comes to: counts and sizes by suffix, the largest, the newest."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for entry in files:
        suffix = os.path.splitext(entry.name)[1] or "no suffix"
        counts[suffix] += 1
        sizes[suffix] += entry.size
    ranked = sorted(counts.items(), key=lambda item: (-sizes[item[0]], item[0]))
    for suffix, count in ranked[:_SUFFIXES]:
        yield Line(f"- {suffix}: {plural(count, 'files')}, {format_size(sizes[suffix])}", 1, rank=_AFTER)
    yield from more_lines(len(ranked) - _SUFFIXES, "kinds of files")
    for entry in sorted(files, key=lambda entry: (-entry.size, entry.name))[:5]:
        yield Line(f"- large: {printable(entry.name)} · {format_size(entry.size)}", 1, rank=_AFTER)
    # The newest, by order only: a time would differ from copy to copy.
    for entry in sorted(files, key=lambda entry: (-entry.changed, entry.name))[:3]:
        yield Line(f"- changed last: {printable(entry.name)}", 1, rank=_AFTER)
