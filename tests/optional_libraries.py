"""Libraries that the extra [test] leaves out: too large, or in need of packages of the system.

A test that needs one is skipped without it, and the reason says how to run it.
"""

from __future__ import annotations

from typing import Any

import pytest

NOT_IN_TEST = ("ctok", "lightgbm", "ray", "torch")
"""ctok has packages for Python 3.12 and later only; there the extra installs it."""


def optional(name: str) -> Any:
    """Return a module of these, or skip the test."""
    assert name in NOT_IN_TEST
    how = "with Python 3.12 or later" if name == "ctok" else f"after: .venv/bin/pip install {name}"
    return pytest.importorskip(name, reason=f"run this file with {name}, {how}")
