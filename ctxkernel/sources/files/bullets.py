"""The bullets of a text: its most informative lines, for a summary (level 2).

Rule 1: nothing is paraphrased: a bullet is cut out of the text, with the line it stands on.
Rule 2: ties go to the earlier line. No model, no randomness.
Rule 3: of a text without symbols or headings `_SCAN_LINES` lines are ranked; of a longer one these are from its
        beginning, middle and end, and `Points.scanned` says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.text import one_line, plural, truncate
from ctxkernel.sources.base.amounts import Line, NamedLine
from ctxkernel.sources.base.file_reader import Text
from ctxkernel.sources.base.positions import Outline, OutlineEntry
from ctxkernel.sources.outlines.code_files import is_callable, kind_of, qualified
from ctxkernel.sources.outlines.logs import EntryKind
from ctxkernel.sources.outlines.outline import Language
from ctxkernel.sources.outlines.prose import points_of_prose, sections_of
from ctxkernel.sources.outlines.python_outline import exported_names

_WORD = re.compile(r"[^\W\d_]{4,}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_DIGITS = re.compile(r"\d+")
_SCAN_LINES = 10_000
_SENTENCE_CHARS = 300
_PROSE = 0.5
"""The share of the words of a text that are in sentences, if it is prose."""
_OF_MEMBERS = re.compile(r"(?:\w+ )*(?:enum|module|mod|namespace|package)\b|class \w+\(.*(?:Enum|Flag)\)")
_TYPE = re.compile(r"(?:@.* )?(?:\w+ )*(?:class|struct|enum|interface|trait|union|type|module|mod|namespace) \w")
_METHODS = 12
_HEADER_CHARS = 140
_RANKS = (400, 300, 200, 100, 0)
"""Of what `__all__` names, of other public definitions, public methods, private definitions, and constants."""
_ALERTS = re.compile(
    r"\b(?:error|warning|warn|fatal|critical|exception|traceback|failed|TODO|FIXME|XXX)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Bullet:
    """One extracted line."""

    line: int
    text: str
    score: float
    about: str = ""
    """`~` where the number of the line is an estimate."""
    part: int = 0
    """The order of bullets that stand on one line."""
    short: str = ""
    """The beginning that stands for it before others are shown whole; empty for all of it."""
    rank: int = 0
    """Bullets of a lower rank come first, whatever their score."""


@dataclass(frozen=True, slots=True)
class Points:
    """The bullets of a text, best first."""

    bullets: Sequence[Bullet]
    scanned: str = ""
    """The part of the text that they were chosen from; empty for all of it."""
    others: Sequence[Line] = ()
    """Lines that say how many more there are."""


def points_of_log(kinds: Sequence[EntryKind], about: str) -> Points:
    """Return a bullet for each kind of entries, in their order; `about` stands before estimates."""
    found: list[Bullet] = []
    for at, kind in enumerate(kinds):
        like = f" (and {about}{plural(kind.count - 1, 'lines')} like it, the last at {about}{kind.last})"
        found.append(Bullet(kind.first, kind.text + like * (kind.count > 1), -at, about))
    return Points(found)


def points_of(text: Text, language: Language, outline: Outline) -> Points:
    """Return the bullets of any other text."""
    scanned, others = "", list[Line]()
    if language.name in ("json", "jsonlines", "xml", "html") and outline.lines:
        found = [Bullet(at, *_of_key(line)) for at, line in enumerate(outline.lines) if not line.endswith("]")]
        others = [line for line in outline.lines if isinstance(line, Line) and line.endswith("]") and line.items]
    elif language.name == "html":
        told = [(entry, f" — {entry.doc}" if entry.doc else "") for entry in outline.entries]
        found = [Bullet(entry.line, f"{entry.text}{doc}", -entry.depth, short=entry.text) for entry, doc in told]
    elif outline.what == "keys":
        found = [Bullet(entry.line, entry.text, -entry.depth) for entry in outline.entries]
    elif outline.what == "symbols":
        found = _definitions(text, outline)
    else:
        found, scanned = _prose(text.lines, outline, whole=text.whole)
    return Points(sorted(found, key=lambda bullet: (-bullet.score, bullet.line)), scanned, others)


def _of_key(line: str) -> tuple[str, float]:
    """Return the line of a key with the path of the key, and its score: the lower its rank, the higher."""
    if not isinstance(line, NamedLine):
        return line.strip(), 0
    key, of, told = line.strip().partition(": ")
    return f"{line.name if line.name.endswith(key) else key}{of}{told}", -line.rank


def _prose(lines: Sequence[str], outline: Outline, *, whole: bool) -> tuple[list[Bullet], str]:
    """Return the points of prose; of another text its headings, else its lines; and how much of it was looked at."""
    numbers = _spread(lines)
    scanned = f"chosen from {_SCAN_LINES:,} of its lines: beginning, middle and end" * (len(numbers) > 1)
    headings = outline.entries if outline.what == "headings" else ()
    sections, share = sections_of(((at, lines[at]) for part in numbers for at in part), headings)
    if share >= _PROSE or (headings and any(section.paragraphs for section in sections)):
        points = points_of_prose(sections)
        return [
            Bullet(
                point.line,
                one_line(point.text, _SENTENCE_CHARS),
                point.score,
                part=point.part,
                short=one_line(point.short, _SENTENCE_CHARS),
                rank=point.rank,
            )
            for point in points
        ], scanned
    if headings:
        return [Bullet(entry.line, entry.text.lstrip("# "), -entry.depth) for entry in headings], ""
    return _sentences(lines, numbers, "~" * (bool(scanned) or not whole)), scanned


def _spread(lines: Sequence[str]) -> list[range]:
    """Return the numbers of the lines that are ranked: all, or those at the beginning, in the middle and at the end."""
    count, share = len(lines), _SCAN_LINES // 4
    if count <= _SCAN_LINES:
        return [range(count)]
    middle = max((count - share) // 2, 2 * share)
    return [range(2 * share), range(middle, middle + share), range(count - share, count)]


def _definitions(text: Text, outline: Outline) -> list[Bullet]:
    """Rank what a file of code defines: public classes and functions first, then methods, private ones, constants.

    Of these, what the file names often, what has members or a docstring. A method has its class before its name.
    """
    named = Counter(_NAME.findall(text.text)) - Counter(entry.name for entry in outline.entries)
    exported, about = frozenset(exported_names(text.text)), "" if text.whole else "~"
    found: list[Bullet] = []
    within: list[tuple[int, str, bool]] = []
    """Depth, name, and whether it is public, of what an entry is in."""
    for at, entry in enumerate(outline.entries):
        while within and within[-1][0] >= entry.depth:
            within.pop()
        kind, public = kind_of(entry), not entry.name.startswith("_") and all(one[2] for one in within)
        if not (kind == "other" or (within and (kind == "constant" or not public))):
            inner = _inside(outline.entries, at)
            uses = named[entry.name]
            facts = [f"named {about}{uses}×"] * (uses > 0 and not within) + _members(entry, inner)
            name = ".".join([*(name for _, name, _ in within), entry.name])
            tail = f" ({'; '.join(facts)})" if facts else ""
            line = f"{truncate(qualified(entry, name), _HEADER_CHARS)}{f' — {entry.doc}' if entry.doc else ''}{tail}"
            rank = _RANKS[0 if entry.name in exported and not within else 1 + bool(within) if public else 3]
            rank = _RANKS[4] if kind == "constant" else rank
            score = rank + min(max(uses, 0), 40) + 4 * bool(entry.doc) + min(len(inner), 20) - 12 * entry.depth
            found.append(Bullet(entry.line, line, score))
        within.append((entry.depth, entry.name, public))
    return found


def _inside(entries: Sequence[OutlineEntry], at: int) -> Sequence[OutlineEntry]:
    """Return what is in an entry, however deep."""
    end = at + 1
    while end < len(entries) and entries[end].depth > entries[at].depth:
        end += 1
    return entries[at + 1 : end]


def _members(entry: OutlineEntry, inner: Sequence[OutlineEntry]) -> list[str]:
    """Return the public fields and methods of a class, the members of an enumeration or module, or how many it has."""
    direct = [one for one in inner if one.depth == entry.depth + 1]
    public = [one for one in direct if not one.name.startswith("_")]
    if _OF_MEMBERS.match(entry.text):
        of_kind = {"members": [one.name for one in public]}
    else:
        public = [one for one in public if not _TYPE.match(one.text)]
        of_kind = {
            "fields": [one.name for one in public if not is_callable(one)],
            "methods": [one.name for one in public if is_callable(one)],
        }
    said = [f"{plural(len(names), what)}: {_listed(names)}" for what, names in of_kind.items() if names]
    return said or ([plural(len(direct), "members")] if direct and "class " in entry.text else [])


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _METHODS
    return ", ".join([*names[:_METHODS], *([f"… {plural(rest, 'others')}"] if rest > 0 else [])])


def _sentences(lines: Sequence[str], numbers: Sequence[range], about: str) -> list[Bullet]:
    """Rank first sentences and lines by the weight of their words; lines alike but for numbers count once."""
    candidates: dict[str, tuple[int, str, int]] = {}
    for at in (at for part in numbers for at in part):
        line, previous = lines[at], lines[at - 1] if at else ""
        plain = line.strip()
        if plain:
            opens = not previous.strip()
            sentence = _SENTENCE_END.split(plain, maxsplit=1)[0] if opens else plain
            key = _DIGITS.sub("0", sentence[:200])
            first, kept, often = candidates.get(key, (at, sentence, 0))
            candidates[key] = (first, kept, often + 1)
    weights: Counter[str] = Counter()
    words = {key: set(_WORD.findall(kept[:400].lower())) for key, (_, kept, _) in candidates.items()}
    for found in words.values():
        weights.update(found)
    out: list[Bullet] = []
    for key, (at, sentence, often) in candidates.items():
        said = words[key]
        score = sum(weights[word] for word in said) / (len(said) + 4) if said else 0.0
        if not at or not lines[at - 1].strip():
            score *= 2  # how a paragraph begins says what it is about
        if _ALERTS.search(sentence[:200]):
            score += 5
        alike = f" (and {about}{plural(often - 1, 'lines')} like it)" if often > 1 else ""
        out.append(Bullet(at, one_line(sentence, 200) + alike, round(score, 6)))
    return out
