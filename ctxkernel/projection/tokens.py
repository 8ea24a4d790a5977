"""Tokens, estimated offline: one cheap count that every budget in ctxkernel is measured with.

Rule 1: the count is an ESTIMATE; people are shown it with a `~`. It needs no network and no vocabulary.
Rule 2: it is monotone: no part of a text counts more than the text (`trim_to_tokens` rests on it).
Rule 3: it is a pure function of the text, in integers, so sums of blocks are the same everywhere.
Rule 4: a budget is a hard cap: what `trim_to_tokens` returns never counts more, its mark included.

How it counts: each class of characters (lower case, upper case, digits, …) has a price a byte and a
price a run of such characters, since a tokeniser prices words, numbers and line breaks, not bytes. The
prices were fitted (non-negative least squares on relative error) to the counts of `ctok` 1.3.0, an
offline reconstruction of Claude's tokenisers, for the newest vocabulary (Claude 4.7 and later), over 825
texts: Python, JavaScript and C code, Markdown and reST prose, JSON, CSV, logs, printed data frames and
13 other languages (13 % error there).

How far off it is (`benchmarks/tokens.py`: 60 texts a kind, of 4,000 characters; in parentheses of 300):

| kind | mean error | of all together | worst |
|---|---|---|---|
| Python | 5.6 % (7.5) | −1.1 % | 37 % |
| JavaScript | 3.4 % (6.8) | −3.3 % | 45 % |
| C | 5.5 % (7.2) | −3.8 % | 15 % |
| prose | 6.7 % (9.2) | +5.4 % | 18 % |
| JSON, notebooks | 9.4 % (6.1) | −17 % | 63 % |
| CSV | 2.5 % (4.5) | −0.1 % | 16 % |
| logs | 5.1 % (5.5) | −1.1 % | 9 % |
| data frames | 6.5 % (11.7) | −2.9 % | 18 % |

Bytes / 4 undercounts by 30 to 60 %. The worst are base64 and other random letters, undercounted by up to
a factor of six. The vocabulary of models before Claude 4.7 takes fewer tokens: there the estimate is too
high, by 20 to 30 % for code and logs, 40 % for prose, 8 % for CSV. What a person is shown is corrected
(`projection/displayed_tokens.py`): scaled by the `usage` of an answer, the mean error is 1 to 8 % for either
vocabulary, but for JSON with embedded data (20 to 30 %).
"""

from __future__ import annotations

from collections.abc import Callable

BYTES_PER_TOKEN_X10 = {"code": 26, "prose": 28, "json": 18, "log": 16, "table": 21}
"""Tenths of bytes per token by kind of text, as measured for the newest tokeniser over whole corpora."""

_LOWER = bytes(range(97, 123))
_UPPER = bytes(range(65, 91))
_DIGIT = b"0123456789"
_SPACE = b" \t\r\f\v"
_BREAK = b"\n"
_OTHER = bytes(range(128, 256))
_SIGN = bytes(set(range(128)) - set(_LOWER + _UPPER + _DIGIT + _SPACE + _BREAK))

# (characters, thousandths of a token a byte, thousandths a run of them). At most eight classes: each is
# one bit of a byte.
_PRICES: tuple[tuple[bytes, int, int], ...] = (
    (_LOWER, 155, 0),
    (_UPPER, 452, 965),
    (_LOWER + _UPPER, 0, 817),  # a run of letters is a word
    (_DIGIT, 229, 924),
    (_SIGN, 377, 605),
    (_SPACE, 37, 0),
    (_BREAK, 50, 1924),
    (_OTHER, 282, 0),  # bytes of UTF-8 beyond ASCII
)
_LEAST = min(each for _, each, _ in _PRICES if each)
_CLASSES = bytes(sum(1 << bit for bit, (members, _, _) in enumerate(_PRICES) if byte in members) for byte in range(256))
_CHUNK = 1 << 15  # stays in the cache of a core
_COLUMNS = tuple(
    (int.from_bytes(bytes([1 << bit]) * _CHUNK, "little"), each, run) for bit, (_, each, run) in enumerate(_PRICES)
)


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
    total = before = 0
    # All classes at C speed: the classes of a chunk are one big integer, whose bits are counted.
    for at in range(0, len(data), _CHUNK):
        classes = int.from_bytes(data[at : at + _CHUNK].translate(_CLASSES), "little")
        starts = classes ^ (classes & (classes << 8 | before))  # a bit is left where its run begins
        for column, each, run in _COLUMNS:
            if each:
                total += each * (classes & column).bit_count()
            if run:
                total += run * (starts & column).bit_count()
        before = _CLASSES[data[min(at + _CHUNK, len(data)) - 1]]
    return -(-total // 1000)


def most_chars(budget: int) -> int:
    """Return a number of characters that no text of `budget` tokens can exceed."""
    return max(budget, 0) * 1000 // _LEAST


def longest_prefix(text: str, budget: int, suffix: str = "") -> int:
    """Return the largest n with count_tokens(text[:n] + suffix) <= budget, or -1 if there is none.

    O(b log b) in the budget, whatever the length of `text`.
    """
    top = min(len(text), most_chars(budget))
    return largest(top, lambda n: count_tokens(text[:n] + suffix) <= budget, guess=2 * budget)


def largest(high: int, fits: Callable[[int], bool], guess: int = 64) -> int:
    """Return a largest n in 0 … high that fits, or -1. Looks round `guess` first, so never far past the answer.

    Holds: the answer fits (or is -1), also where `fits` is not quite monotone.
    """
    best, probe = -1, max(0, min(guess, high))
    while best < probe <= high:  # gallop: fits() of far too much is what would cost
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
    """Return `text`, or its longest beginning that fits together with `mark`.

    Holds: count_tokens(result) <= max(budget, 0). Where even `mark` does not fit, a shorter one stands
    for it: a budget of 1 still holds "…".
    """
    if budget <= 0:
        return ""
    if len(text) <= most_chars(budget) and count_tokens(text) <= budget:
        return text
    suffix = mark if count_tokens(mark) <= budget else "…"
    return text[: max(longest_prefix(text, budget, suffix), 0)] + suffix
