"""The line that says what a budget cut, `[… 12 more lines, ~90 tokens; h.tokens shows more]`, and how it survives.

Rule 1: a text that is cut once more keeps the mark at its end: what stands before it gives way.
Rule 2: where the mark is more than the budget, a shorter one stands for it, and at last the … of the cut itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ctxkernel.core.ports import CountTokens, Trim

_AMOUNT = re.compile(r"~[\d,]+ tokens")


def parted(text: str) -> tuple[str, str]:
    """Return (what stands before it, the mark at the end of a text); the mark is empty where there is none."""
    head, _, last = text.rpartition("\n")
    return (head, last) if last.startswith("[… ") and last.endswith("]") else (text, "")


def shorter(mark: str, holder: str = "h") -> list[str]:
    """Return the marks that may stand for `mark`, the longest first; `holder` is the handle whose budget it was."""
    amount = _AMOUNT.search(mark)
    told = [mark] if mark else []
    told += [f"[… {amount[0]}; {holder}.tokens shows more]"] if amount else []
    return [*told, f"[… {holder}.tokens shows more]"]


def cut_to(text: str, marks: Sequence[str], budget: int, count: CountTokens, trim: Trim) -> str:
    """Return as much of `text` as fits above the first of `marks` that is within `budget` tokens.

    Where none is, `text` as `trim` cuts it. Holds: count(result) <= budget, for the count that `trim` keeps to.
    """
    mark = next((one for one in marks if count(one) <= budget), None)
    if mark is None:
        return trim(f"{text}\n…" if marks else text, budget)
    room = budget - count(mark) - count("\n")
    above = trim(text, room) if room > 0 else ""
    whole = f"{above}\n{mark}"
    return whole if above.strip("…") and count(whole) <= budget else mark
