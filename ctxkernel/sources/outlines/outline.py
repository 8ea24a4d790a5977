"""Outlines: the structure of a text (level of detail 1), as entries with line numbers.

Rule 1: an outline is found once a revision, and rendered for any budget afterwards.
Rule 2: what an entry says is cut out of the text, never rewritten; its line counts from 0, as `pos` does.
Rule 3: every outliner is tolerant: of half a file, of a file that does not parse, of no structure at all.
Rule 4: a language is one row of `LANGUAGES`; one that a grammar is needed for is one of `GRAMMARS`.
Rule 5: of a large log, table or JSON text the background finds `FACTS` about all of it, for the outline.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, takewhile

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.text import one_line
from ctxkernel.sources.base.amounts import Line
from ctxkernel.sources.base.file_reader import Text
from ctxkernel.sources.base.positions import Outline, OutlineEntry
from ctxkernel.sources.outlines.grammars import GRAMMARS, Grammar
from ctxkernel.sources.outlines.json_facts import JsonFacts
from ctxkernel.sources.outlines.json_outline import is_object, json_lines, parsed
from ctxkernel.sources.outlines.json_records import RecordFacts, record_outline
from ctxkernel.sources.outlines.logs import LogFacts
from ctxkernel.sources.outlines.prose import is_prose_line
from ctxkernel.sources.outlines.python_outline import python_outline
from ctxkernel.sources.outlines.sentences import first_sentence
from ctxkernel.sources.outlines.settings_files import keys_of_yaml, sections_of
from ctxkernel.sources.outlines.syntax import definition_at, syntax_outline
from ctxkernel.sources.outlines.tabular import SampleFacts, TableText, read_table

_SCAN_LINES = 50_000
_PART_CHARS = 1 << 20
_SENTENCE_LINES = 8
_METADATA_LINES = 200
_PARAGRAPH_CHARS = 100
_LOG_LINES, _LOG_CHARS = 200, 200
"""So much is looked at to see whether a text is a log."""
_ANOTHER = re.compile(r"\s*(?:[-*+]\s|\d{1,3}[.)]\s|#|```|~~~|\||>|([=\-~])\1\1)")
"""The beginning of a line that does not continue a paragraph."""
_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_ATX = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_LATEX = re.compile(
    r"^\s*\\(?:(title|part|chapter|section|subsection|subsubsection|paragraph)\*?(?:\[[^\]]*\])?\{(.+?)\}\s*"
    r"(?:\\label\{[^}]*\}\s*)?(?:%.*)?$|begin\{abstract\})"
)
_LATEX_DEPTHS = {"part": 1, "chapter": 2, "section": 3, "subsection": 4, "subsubsection": 5, "paragraph": 6}
_UNDERLINE = re.compile(r"^([=\-~^\"'`#*+.:_])\1{2,}\s*$")


def log_facts(text: Text) -> LogFacts | None:
    """Return the facts about a text that is a log; None for any other."""
    facts = LogFacts()
    at, whole = 0, text.text
    while at < len(whole) and (facts.is_log or facts.lines < 1_000):
        end = whole.find("\n", at + _PART_CHARS) + 1 or len(whole)
        facts.take(whole[at:end].encode("utf-8", "replace"))
        at = end
    return facts if facts.is_log else None


def log_outline(text: Text) -> Outline | None:
    """Return the levels of a log and its kinds of entries; None for no log."""
    facts = log_facts(text)
    return None if facts is None else facts.outline()


def markdown_outline(text: Text) -> Outline:
    """Return the headings, ATX and underlined, outside of code fences and of metadata at the beginning."""
    entries: list[OutlineEntry] = []
    fence = ""
    lines = text.lines
    begin = _end_of_metadata(lines)
    for at, line in enumerate(lines):
        if at < begin:
            continue
        if found := _FENCE.match(line):
            mark = found[1]
            fence = "" if fence and mark.startswith(fence) else fence or mark
        elif fence:
            continue
        elif found := _ATX.match(line):
            entries.append(OutlineEntry(at, len(found[1]) - 1, line.strip(), _first_sentence(lines, at + 1)))
        elif at > begin and line[:3] in ("===", "---") and set(line.strip()) <= set("=-") and lines[at - 1].strip():
            before = lines[at - 1]
            if not before.startswith((" ", "\t", "|", "-", "#", ">")):
                depth = 0 if line[0] == "=" else 1
                entries.append(OutlineEntry(at - 1, depth, before.strip(), _first_sentence(lines, at + 1)))
    return Outline([], entries, "headings") if entries else prose_outline(text)


def _end_of_metadata(lines: list[str]) -> int:
    """Return the number of the first line after YAML at the beginning: between `---` and `---` or `...`."""
    if not lines or lines[0].rstrip() != "---":
        return 0
    some = enumerate(lines[1:_METADATA_LINES], 2)
    return next((at for at, line in some if line.rstrip() in ("---", "...")), 0)


def latex_outline(text: Text) -> Outline:
    """Return the title, the abstract and the sections."""
    entries: list[OutlineEntry] = []
    for at, line in enumerate(text.lines):
        if found := _LATEX.match(line):
            kind, title = found[1] or "", found[2] or "Abstract"
            entries.append(OutlineEntry(at, _LATEX_DEPTHS.get(kind, 0), title, _first_sentence(text.lines, at + 1)))
    sections = [entry.depth for entry in entries if entry.depth]
    top = min(sections, default=1) - 1
    entries = [replace(entry, depth=max(entry.depth - 1 - top, 0)) for entry in entries]
    return Outline([], entries, "headings") if entries else prose_outline(text)


def prose_outline(text: Text) -> Outline:
    """Return underlined headings and definition-like lines; where there are none, how paragraphs begin."""
    headings: list[OutlineEntry] = []
    paragraphs: list[OutlineEntry] = []
    levels: dict[str, int] = {}
    lines = text.lines[:_SCAN_LINES]
    for at, line in enumerate(lines):
        if not line or line.isspace():
            continue
        previous = lines[at - 1] if at else ""
        if (rule := _UNDERLINE.match(line)) and previous.strip() and len(line.rstrip()) >= len(previous.rstrip()) - 1:
            if not _UNDERLINE.match(previous):
                depth = levels.setdefault(rule[1], len(levels))
                headings.append(OutlineEntry(at - 1, depth, one_line(previous), _first_sentence(lines, at + 1)))
        elif found := definition_at(line, at):
            headings.append(found)
        if not previous or previous.isspace():
            paragraphs.append(OutlineEntry(at, 0, one_line(line, _PARAGRAPH_CHARS)))
    found, what = (headings, "headings") if headings else (paragraphs, "paragraphs")
    part = len(lines) < len(text.lines)
    head = [f"{what} of the first {len(lines):,} of {len(text.lines):,} lines"] if part else []
    begun = not headings and any(_goes_on(lines, entry.line) for entry in paragraphs)
    return Outline(head, found, what, whole=not part, begun=begun)


def table_outline(text: Text) -> Outline:
    """Return the columns of a CSV file with their types, ranges and nulls, and its first rows."""
    table = read_table(text)
    return prose_outline(text) if table is None else outline_of_table(table)


def outline_of_table(table: TableText) -> Outline:
    """Return columns and first rows."""
    first, *rows = table.head_lines() or [""]
    head = [Line(line, rank=2) for line in (f"first rows:\n{first}", *rows)]
    lines = [*table.column_lines(), *head]
    return Outline([table.headline], [], "columns", lines, unit="columns", table=table.head_table())


def json_outline(text: Text) -> Outline:
    """Return the shape of the top levels of a JSON text."""
    shape = json_lines(text.text) if text.whole else None
    if shape is None:
        return replace(prose_outline(text), head=["not valid JSON"])
    return Outline([], [], "keys", shape, unit="keys")


def outline_of_json(facts: JsonFacts, sample: str) -> Outline:
    """Return the shape of a large JSON text, of which a sample may be known only."""
    return Outline([], [], "keys", facts.outline_lines("~" * bool(sample)), unit="keys")


def fields_outline(text: Text) -> Outline:
    """Return the fields of a text with a JSON value a line: types, shares of nulls, ranges."""
    return record_outline(text) or replace(prose_outline(text), head=["not a JSON value a line as far as it was read"])


def keys_outline(entries_of: Callable[[Text], Iterator[OutlineEntry]], text: Text) -> Outline:
    """Return the sections and keys of a settings file; of one without any how its paragraphs begin."""
    entries = list(entries_of(text))
    return Outline([], entries, "keys") if entries else prose_outline(text)


def code_outline(grammar: Grammar, text: Text) -> Outline:
    """Return the definitions of a source with a grammar; where that cannot be, a guess that says what it is."""
    found = syntax_outline(text.text, grammar)
    if isinstance(found, Outline):
        return found
    guess = prose_outline(text)
    shown = "lines that look like definitions" if guess.what == "headings" else "how its paragraphs begin"
    return replace(guess, head=[f"{found}: {shown}"])


def markup_outline(name: str, text: Text) -> Outline:
    """Return the structure of HTML or XML. Their parsers are imported here: few sessions need them."""
    found: Callable[[Text], Outline] = getattr(importlib.import_module("ctxkernel.sources.outlines.markup"), name)
    return found(text)


@dataclass(frozen=True, slots=True)
class Language:
    """The outlining of texts of one kind."""

    name: str
    outline: Callable[[Text], Outline]
    suffixes: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=())


LANGUAGES: list[Language] = [
    Language("python", lambda text: python_outline(text.text), (".py", ".pyi", ".pyw")),
    Language("markdown", markdown_outline, (".md", ".markdown", ".qmd", ".rmd", ".txt")),
    Language("latex", latex_outline, (".tex", ".ltx")),
    Language("table", table_outline, (".csv", ".tsv", ".tab")),
    Language("toml", partial(keys_outline, sections_of), (".toml", ".ini", ".cfg", ".conf", ".properties")),
    Language("yaml", partial(keys_outline, keys_of_yaml), (".yaml", ".yml")),
    Language("json", json_outline, (".json", ".geojson", ".ipynb")),
    Language("jsonlines", fields_outline, (".jsonl", ".ndjson")),
    Language("log", lambda text: log_outline(text) or prose_outline(text), (".log", ".out", ".err")),
    Language("html", partial(markup_outline, "html_outline"), (".html", ".htm", ".xhtml")),
    Language("xml", partial(markup_outline, "xml_outline"), (".xml", ".svg", ".gpx", ".kml", ".rss", ".xsd", ".xsl")),
    *(Language(row.name.lower(), partial(code_outline, row), row.suffixes, row.names) for row in GRAMMARS),
    Language("text", prose_outline),
]


_NAMED = {language.name: language for language in LANGUAGES}


FACTS: dict[str, Callable[[], LogFacts | SampleFacts | JsonFacts | RecordFacts]] = {
    "log": LogFacts,
    "table": SampleFacts,
    "json": JsonFacts,
    "jsonlines": RecordFacts,
}
"""The survey of a large text in the background, by its language."""


def language_of(path: str, text: Text) -> Language:
    """Return the language of a file by its name, else by its first lines: `syslog` or `run.log.1` may be a log."""
    name = os.path.basename(path).lower()
    suffix = os.path.splitext(name)[1]
    for language in LANGUAGES:
        if (suffix in language.suffixes or name in language.names) and not (suffix == ".txt" and _begins_as_log(text)):
            return _NAMED["jsonlines"] if language.name == "json" and _has_json_lines(text) else language
    first = text.lines[0] if text.lines else ""
    is_script = first.startswith("#!") and "python" in first
    wanted = "python" if is_script else "log" if _begins_as_log(text) else "text"
    return _NAMED[wanted]


def _has_json_lines(text: Text) -> bool:
    """Return whether each of the first two lines begins a value, and the first one is an object that is whole."""
    first, second = [*islice((line for line in text.lines if line.strip()), 2), "", ""][:2]
    try:
        return second.lstrip()[:1] == "{" and is_object(parsed(first))
    except (ValueError, RecursionError):
        return False


def _goes_on(lines: list[str], start: int) -> bool:
    """Return whether a paragraph has more than the beginning of its first line that an outline shows."""
    more = start + 1 < len(lines) and lines[start + 1].strip() != ""
    return more or len(one_line(lines[start], _PARAGRAPH_CHARS + 1)) > _PARAGRAPH_CHARS


def _begins_as_log(text: Text) -> bool:
    facts = LogFacts()
    facts.take("\n".join(line[:_LOG_CHARS] for line in text.lines[:_LOG_LINES]).encode("utf-8", "replace"))
    return facts.is_surely_log


def _first_sentence(lines: list[str], start: int) -> str:
    """Return the first sentence of the paragraph after line `start`, cut out of the text."""
    for at, line in enumerate(lines[start : start + 6], start):
        plain = line.strip()
        if plain.startswith("#") or _LATEX.match(plain):
            return ""
        if not plain or not is_prose_line(plain) or plain.startswith(("```", "..")) or _UNDERLINE.match(plain):
            continue
        if at + 1 < len(lines) and lines[at + 1][:3] in ("===", "---"):
            return ""
        rest = lines[at + 1 : at + _SENTENCE_LINES]
        more = takewhile(lambda one: one.strip() and is_prose_line(one) and not _ANOTHER.match(one), rest)
        return first_sentence([plain, *more])
    return ""
