"""The benchmark of looking in its quick mode: budgets, marks and facts over 40 targets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_forty_targets_keep_their_budgets_and_marks_and_show_what_matters():
    """None over its budget, no false mark, most of a budget used, 90 % of the facts in 800 tokens."""
    command = [sys.executable, str(ROOT / "benchmarks" / "looking.py"), "--quick", "--json-sums"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    sums = json.loads(done.stdout)

    assert sums["targets"] == 40
    assert sums["facts"] >= 100
    assert set(sums["over"].values()) == {0}
    assert sums["false"] == []
    assert sums["used"] >= 0.98
    assert sums["well used"] >= 0.98 * sums["cut"]
    assert sums["either"] >= 0.9 * sums["facts"] > 1.5 * sums["plain"]
