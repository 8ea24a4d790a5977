"""Going back and running again: the plan of a return, and what came out differently. Pure; no I/O.

`RULES` holds the rules by which text is made comparable; add your own with `RULES["name"] = function`.
"""

from ctxkernel.replay.divergence import Details, DivergenceSettings, compare, table, to_json
from ctxkernel.replay.normalise import RULES, normalise

__all__ = ["RULES", "Details", "DivergenceSettings", "compare", "normalise", "table", "to_json"]
