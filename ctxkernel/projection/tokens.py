"""Offline estimate of tokens: the count for all budgets in ctxkernel.

Rule 1: the count is an ESTIMATE, displayed with a `~`. It needs no network and no vocabulary.
Rule 2: it is monotone: no part of a text counts more than the text (`trim_to_tokens` relies on it).
Rule 3: it is a pure function of the text, in integers, so sums of blocks are the same everywhere.
Rule 4: the result of `trim_to_tokens` never exceeds its budget, its mark included.

The method: each class of characters (letters, digits, …) has a price per byte and a price per run of such
characters, since tokenisers count words, numbers and line breaks, not bytes; long words and words with
accents cost more, since fewer of them are in a vocabulary. Characters of rare scripts and symbols, which
vocabularies hold as bytes, have a price each. The prices were fitted (asymmetric least squares
on the relative error: too few tokens count more than too many) to the counts of `ctok` 1.3.0, an offline
reconstruction of Claude's tokenisers, for the newest vocabulary (Claude 4.7 and later), over 800 texts of
150 to 3,000 characters: code, prose in English and German, JSON, logs, tables of numbers, renderings of
views, and eight other languages.

The error on texts of 3,000 characters from files that were not fitted, 24 of each kind:

| kind | newest Claude: mean error | all together | Claude 3 | o200k | cl100k | DeepSeek |
|---|---|---|---|---|---|---|
| Python | 6.6 % | −2 % | +23 % | +51 % | +52 % | +45 % |
| JavaScript, C | 4.7 % | −2 % | +32 % | +82 % | +85 % | +62 % |
| English prose | 7.6 % | +7 % | +40 % | +54 % | +54 % | +50 % |
| German prose | 9.0 % | −9 % | +26 % | +75 % | +52 % | +56 % |
| JSON | 7.1 % | −13 % | −4 % | +8 % | +6 % | +8 % |
| logs | 4.9 % | +2 % | +27 % | +38 % | +38 % | +36 % |
| tables of numbers | 5.5 % | +4 % | +5 % | +2 % | +2 % | +8 % |

So it holds for the newest vocabulary, and is too high for others: they take fewer tokens for words. The worst
are vocabularies that split numbers into single digits (Qwen, Gemma), with −40 % on tables of numbers, and base64
and other random letters, undercounted by up to a factor of six. `python benchmarks/tokens.py` measures again.

Of 855 renderings of views with budgets of 60 to 2,000 tokens, none was over its budget by the vocabularies of
Claude 2, Claude 3, the newest Claude, o200k, cl100k, p50k and DeepSeek (`sources/base/rendering.py` keeps a reserve
for it); 80 were by a vocabulary that splits numbers into single digits, most of them tables of numbers.

Counts for display are corrected by the vocabulary or the `usage` of an answer (`projection/displayed_tokens.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

BYTES_PER_TOKEN_X10 = {"code": 26, "prose": 28, "json": 18, "log": 16, "table": 21}
"""Tenths of bytes per token by kind of text, as measured for the newest tokeniser over whole corpora."""

_UPPER = bytes(range(65, 91))
_LETTER = bytes(range(97, 123)) + _UPPER
_DIGIT = b"0123456789"
_SPACE = b" \t\r\f\v"
_BREAK = b"\n"
_LATIN = b"\xc3"  # the first byte of ä, é, ñ, …: words with them are rare in a vocabulary, and cost more
_OTHER = bytes(set(range(128, 256)) - set(_LATIN))
_SIGN = bytes(set(range(128)) - set(_LETTER + _DIGIT + _SPACE + _BREAK))

# (characters, thousandths of a token a byte, thousandths a run of them). At most eight classes: each is
# one bit of a byte.
_PRICES: tuple[tuple[bytes, int, int], ...] = (
    (_LETTER, 103, 870),  # a run of letters is a word
    (_UPPER, 100, 2212),
    (_DIGIT, 243, 1160),
    (_SIGN, 200, 956),
    (_SPACE, 79, 0),
    (_BREAK, 50, 699),
    (_LATIN, 1600, 0),
    (_OTHER, 285, 143),  # bytes of UTF-8 beyond ASCII
)
_LONG_WORD = 124
"""Thousandths of a token for each letter of a word after the seventh: long words are in few vocabularies.

A seventh of the price of a run is the most: else the parts of a word would count less than the word (rule 2).
"""
_RARE = re.compile("[\u1000-\u109f\u1200-\u1e9f\u1f00-\u1fff\u2190-\u2bff\ua000-\uabff\U00010000-\U0010ffff]")
_RARE_CHARACTER = 2200
"""Thousandths of a token for each character of a script or a set of symbols that vocabularies hold by bytes."""
_LEAST = min(each for _, each, _ in _PRICES if each)
_CLASSES = bytes(sum(1 << bit for bit, (members, _, _) in enumerate(_PRICES) if byte in members) for byte in range(256))
_CHUNK = 1 << 15  # stays in the cache of a core
_COLUMNS = tuple(
    (int.from_bytes(bytes([1 << bit]) * _CHUNK, "little"), each, run) for bit, (_, each, run) in enumerate(_PRICES)
)
_LETTERS = _COLUMNS[0][0]
_BEFORE = 7 * 8
"""The bits of the seven bytes before a chunk."""


def count_tokens(text: str, kind: str = "auto") -> int:
    """Return the estimated tokens of `text`: 0 for the empty text, ≥ 1 for any other.

    `kind` "auto" prices characters (see the module); a kind of `BYTES_PER_TOKEN_X10` divides bytes.
    Holds for "auto": count(part) <= count(whole). Raises ValueError for another kind.
    """
    data = text.encode("utf-8", "surrogatepass")
    if kind in BYTES_PER_TOKEN_X10:
        return -(-10 * len(data) // BYTES_PER_TOKEN_X10[kind])
    if kind != "auto":
        raise ValueError(f"count_tokens: kind {kind!r} is none of auto, {', '.join(BYTES_PER_TOKEN_X10)}")
    total = before = letters_before = 0
    # All classes at C speed: the classes of a chunk are one big integer, whose bits are counted.
    for at in range(0, len(data), _CHUNK):
        classes = int.from_bytes(data[at : at + _CHUNK].translate(_CLASSES), "little")
        starts = classes ^ (classes & (classes << 8 | before))  # a bit is left where its run begins
        for column, each, run in _COLUMNS:
            if each:
                total += each * (classes & column).bit_count()
            if run:
                total += run * (starts & column).bit_count()
        letters = (classes & _LETTERS) << _BEFORE | letters_before
        pairs = letters & letters << 8
        fours = pairs & pairs << 16
        total += _LONG_WORD * ((fours & fours << 32) >> _BEFORE).bit_count()  # the eighth in a row, and each after it
        before = _CLASSES[data[min(at + _CHUNK, len(data)) - 1]]
        letters_before = letters >> 8 * _CHUNK
    if len(data) > len(text):
        total += _RARE_CHARACTER * _RARE.subn("", text)[1]
    return -(-total // 1000)


def most_chars(budget: int) -> int:
    """Return an upper bound on the characters of a text of `budget` tokens."""
    return max(budget, 0) * 1000 // _LEAST


def longest_prefix(text: str, budget: int, suffix: str = "") -> int:
    """Return the largest n with count_tokens(text[:n] + suffix) <= budget, or -1 if there is none.

    O(b log b) in the budget, whatever the length of `text`.
    """
    top = min(len(text), most_chars(budget))
    return largest(top, lambda n: count_tokens(text[:n] + suffix) <= budget, guess=2 * budget)


def largest(high: int, fits: Callable[[int], bool], guess: int = 64) -> int:
    """Return the largest n in 0 … high that fits, or -1. Begins near `guess`, so it never tries values far above.

    Holds: the answer fits (or is -1), also where `fits` is not quite monotone.
    """
    best, probe = -1, max(0, min(guess, high))
    while best < probe <= high:  # gallop, since fits() of large values is slow
        if not fits(probe):
            high = probe - 1
            break
        best, probe = probe, min(high, 2 * probe + 1)
    while best < high:
        middle = (best + high + 1) // 2
        if fits(middle):
            best = middle
        else:
            high = middle - 1
    return best


def trim_to_tokens(text: str, budget: int, mark: str = "…") -> str:
    """Return `text`, or its longest prefix that fits together with `mark`.

    Holds: count_tokens(result) <= max(budget, 0). Where `mark` does not fit, "…" replaces it, which a
    budget of 1 can hold.
    """
    if budget <= 0:
        return ""
    if len(text) <= most_chars(budget) and count_tokens(text) <= budget:
        return text
    suffix = mark if count_tokens(mark) <= budget else "…"
    return text[: max(longest_prefix(text, budget, suffix), 0)] + suffix
