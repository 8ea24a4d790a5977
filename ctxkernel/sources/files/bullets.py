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
from dataclasses import dataclass

from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.file_reader import Text
from ctxkernel.sources.base.positions import Outline
from ctxkernel.sources.outlines.logs import Kind
from ctxkernel.sources.outlines.outline import Language
from ctxkernel.sources.outlines.tabular import Table

_WORD = re.compile(r"[^\W\d_]{4,}")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
_DIGITS = re.compile(r"\d+")
_SCAN_LINES = 10_000
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


@dataclass(frozen=True, slots=True)
class Points:
    """The bullets of a text, best first."""

    bullets: Sequence[Bullet]
    scanned: str = ""
    """How much of the text they were chosen from; empty for all of it."""


def points_of_log(kinds: Sequence[Kind], about: str) -> Points:
    """Return a bullet for each kind of entries, in their order; `about` stands before estimates."""
    found: list[Bullet] = []
    for at, kind in enumerate(kinds):
        like = f" (and {about}{plural(kind.count - 1, 'lines')} like it, the last at {about}{kind.last})"
        found.append(Bullet(kind.first, kind.text + like * (kind.count > 1), -at, about))
    return Points(found)


def points_of_table(table: Table) -> Points:
    """Return a bullet for each column."""
    return Points([Bullet(0, line, -at) for at, line in enumerate(table.statistic_lines())])


def points_of(text: Text, language: Language, outline: Outline) -> Points:
    """Return the bullets of any other text."""
    scanned = ""
    if language.name in ("json", "jsonlines") and outline.lines:
        found = [Bullet(at, line.strip(), -_indent(line)) for at, line in enumerate(outline.lines)]
    elif outline.what == "symbols":
        found = _definitions(text, outline)
    elif outline.what == "headings":
        found = [
            Bullet(entry.line, entry.text.lstrip("# ") + (f" — {entry.doc}" if entry.doc else ""), -entry.depth)
            for entry in outline.entries
        ]
    else:
        found = _sentences(text.lines)
        if len(text.lines) > _SCAN_LINES:
            scanned = f"chosen from {_SCAN_LINES:,} of its lines: beginning, middle and end"
    return Points(sorted(found, key=lambda bullet: (-bullet.score, bullet.line)), scanned)


def _spread(lines: Sequence[str]) -> list[range]:
    """Return the numbers of the lines that are ranked: all, or those at the beginning, in the middle and at the end."""
    count, share = len(lines), _SCAN_LINES // 4
    if count <= _SCAN_LINES:
        return [range(count)]
    middle = max((count - share) // 2, 2 * share)
    return [range(2 * share), range(middle, middle + share), range(count - share, count)]


def _definitions(text: Text, outline: Outline) -> list[Bullet]:
    """Rank definitions by how often the text names them; a docstring counts like four namings."""
    named = Counter(_NAME.findall(text.text))
    entries = outline.entries
    found: list[Bullet] = []
    for at, entry in enumerate(entries):
        uses = named[entry.name] - 1
        members = 0
        if entry.depth == 0 and " " in entry.text and "class " in entry.text:
            members = next((i for i, e in enumerate(entries[at + 1 :]) if e.depth == 0), len(entries) - at - 1)
        facts = [f"named {uses}×"] * (uses > 0) + [plural(members, "members")] * (members > 0)
        private = entry.name.startswith("_") and not entry.name.startswith("__")
        score = min(uses, 40) + 4 * bool(entry.doc) + min(members, 20) - 12 * entry.depth - 6 * private
        tail = f" ({', '.join(facts)})" if facts else ""
        found.append(Bullet(entry.line, f"{entry.text}{f' — {entry.doc}' if entry.doc else ''}{tail}", score))
    return found


def _sentences(lines: Sequence[str]) -> list[Bullet]:
    """Rank first sentences and lines by the weight of their words; lines alike but for numbers count once."""
    candidates: dict[str, tuple[int, str, int]] = {}
    numbers = _spread(lines)
    about = "~" * (len(numbers) > 1)
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


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
