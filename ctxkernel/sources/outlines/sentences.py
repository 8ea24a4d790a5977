"""Sentences of prose: where they end, and the first one of a text.

Rule: a sentence is cut out of the text; only its line breaks become blanks. Linear in the length of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.text import one_line

SENTENCE_CHARS = 160
_AFTER_END = "\"')]*_`”’»"
_BEFORE_WORD = "([\"'*_`“‘«"
_NO_END = frozenset(
    (
        "e.g",
        "i.e",
        "cf",
        "vs",
        "al",
        "fig",
        "figs",
        "eq",
        "eqs",
        "dr",
        "mr",
        "mrs",
        "prof",
        "no",
        "sec",
        "approx",
        "resp",
    )
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and the line that it begins on."""

    line: int
    text: str
    part: int = 0
    """Which sentence of its paragraph it is."""

    @property
    def begins(self) -> bool:
        """Return whether it begins as a sentence does."""
        return not self.text.lstrip(_BEFORE_WORD)[:1].islower()

    @property
    def ends(self) -> bool:
        """Return whether it ends as a sentence does, and has at least three words."""
        return self.text.rstrip(_AFTER_END)[-1:] in (".", "!", "?", "。") and self.text.count(" ") >= 2


def sentences_of(lines: Iterable[tuple[int, str]]) -> list[Sentence]:
    """Return the sentences of lines, given with their numbers; a word that is hyphenated at a line end is joined."""
    words: list[str] = []
    at: list[int] = []
    for number, line in lines:
        for position, word in enumerate(line.split()):
            if not position and words and _is_parted(words[-1]) and word[0].islower():
                words[-1] = words[-1][:-1] + word
            else:
                words.append(word)
                at.append(number)
    starts = [0] if words else []
    for end in range(1, len(words)):
        # A number at the beginning of a sentence is its number in a list (`1. First …`), and does not end it.
        if not words[end][0].islower() and _ends(words[end - 1], counts=starts[-1] == end - 1):
            starts.append(end)
    return [
        Sentence(at[start], " ".join(words[start:end]), part)
        for part, (start, end) in enumerate(pairwise([*starts, len(words)]))
    ]


def first_sentence(lines: Sequence[str] | str) -> str:
    """Return the first sentence of a paragraph, at most `SENTENCE_CHARS` characters of it."""
    found = sentences_of(enumerate([lines] if isinstance(lines, str) else lines))
    return one_line(found[0].text, SENTENCE_CHARS) if found else ""


def _is_parted(word: str) -> bool:
    return len(word) > 2 and word[-1] == "-" and word[-2].isalpha()


def _ends(word: str, *, counts: bool) -> bool:
    word = word.rstrip(_AFTER_END)
    if word[-1:] in ("!", "?", "。"):
        return True
    plain = word[:-1].lstrip(_BEFORE_WORD).lower()
    if word[-1:] != "." or plain in _NO_END:
        return False
    return not counts if plain.isdigit() else len(plain) > 1
