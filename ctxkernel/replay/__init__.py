"""Plans of returns, and the differences between an execution and its re-run. Pure; no I/O.

`RULES` holds the rules that make texts comparable; add your own with `RULES["name"] = function`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxkernel.replay.cause_finder import StatementDetails
    from ctxkernel.replay.divergence import compare, table, to_json
    from ctxkernel.replay.normalisation import RULES, normalise
    from ctxkernel.replay.outputs import DivergenceSettings

__all__ = ["RULES", "DivergenceSettings", "StatementDetails", "compare", "normalise", "table", "to_json"]

# A kernel starts without them: each name is imported when it is asked for.
_HOMES = {
    "StatementDetails": "cause_finder",
    "DivergenceSettings": "outputs",
    **dict.fromkeys(("compare", "table", "to_json"), "divergence"),
    **dict.fromkeys(("RULES", "normalise"), "normalisation"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
