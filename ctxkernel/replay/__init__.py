"""Plans of returns, and the differences between an execution and its re-run. Pure; no I/O.

`RULES` holds the rules that make texts comparable; add your own with `RULES["name"] = function`.
"""

from ctxkernel.replay.cause_finder import Details
from ctxkernel.replay.divergence import compare, table, to_json
from ctxkernel.replay.normalise import RULES, normalise
from ctxkernel.replay.outputs import DivergenceSettings

__all__ = ["RULES", "Details", "DivergenceSettings", "compare", "normalise", "table", "to_json"]
