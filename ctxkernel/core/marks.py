"""The mark of a truncated rendering: `[… 12 more lines, ~90 tokens; h.tokens shows more]`.

Rule 1: a text that is truncated again keeps the mark at its end.
Rule 2: where the mark exceeds the budget, a shorter one replaces it, and at last `…`.
Rule 3: where the text above a mark is truncated, a mark without a count replaces it: the count would be too low.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ctxkernel.core.ports import CountTokens, Trim

_COUNT = re.compile(r"\[… [\d,]+\+? more ")
_AMOUNT = re.compile(r"~[\d,]+ tokens")


def parted(text: str) -> tuple[str, str]:
    """Return (the text before it, the mark at the end of a text); the mark is empty where there is none."""
    head, _, last = text.rpartition("\n")
    return (head, last) if last.startswith("[… ") and last.endswith("]") else (text, "")


def shorter(mark: str, holder: str = "h") -> list[str]:
    """Return the marks that may replace `mark`, the longest first; `holder` is the handle with the budget."""
    amount = _AMOUNT.search(mark)
    told = [mark] if mark else []
    told += [f"[… {amount[0]}; {holder}.tokens shows more]"] if amount else []
    return [*told, f"[… {holder}.tokens shows more]"]


def cut_to(text: str, marks: Sequence[str], budget: int, count: CountTokens, trim: Trim, *, items: bool = True) -> str:
    """Return as much of `text` as fits before the first of `marks` that is within `budget` tokens.

    Where none is, return `text` as `trim` truncates it. If `text` has `items` that the first mark does not count, that
    mark stays only below the whole of it. Holds: count(result) <= budget, for the count of `trim`.
    """
    if items and marks and _COUNT.match(marks[0]):
        whole = f"{text}\n{marks[0]}"
        if count(whole) <= budget:
            return whole
        marks = marks[1:]
    mark = next((one for one in marks if count(one) <= budget), None)
    if mark is None:
        return trim(f"{text}\n…" if marks else text, budget)
    room = budget - count(mark) - count("\n")
    above = trim(text, room) if room > 0 else ""
    last = above.count("\n")
    if above != text and text.split("\n")[last].startswith("[…"):  # a part of a mark tells nothing
        above = above.rpartition("\n")[0]
    whole = f"{above}\n{mark}"
    return whole if above.strip("…") and count(whole) <= budget else mark
