"""The mutation check: every rule and every property, taken out alone, must make a test fail.

    python tests/mutate_rules.py [NAME …]

For each it runs the fitting tests in a process of its own, up to the first that fails, and prints a row. Exit status 1
if one of them could be taken out unnoticed. Tests that themselves take something out do not count.

What is taken out is the thing itself, not an entry of a list: everybody who holds the rule or the property sees it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WITHOUT = "MUTATE_WITHOUT"
"""Names what the tests' processes do without; `conftest.py` looks at it."""
ROOT = Path(__file__).resolve().parent.parent
_METHODS = ("enforce", "validate", "manipulation_indices")


def rules() -> dict[str, Any]:
    """Return the rules by name."""
    from ctxkernel.history.rules import RULES

    return {rule.__name__: rule for rule in RULES}


def properties() -> dict[str, type]:
    """Return the classes of the properties and of the three extensions by name."""
    from ctxkernel.history.invariants import PROPERTIES, MessagePairing, TokenLimit, ToolCallDepth

    found = [*map(type, PROPERTIES), ToolCallDepth, MessagePairing, TokenLimit]
    return {one.__name__: one for one in found}


def take_out(name: str) -> list[tuple[Any, str, Any]]:
    """Make a rule find nothing, or a property restrict nothing. Returns what was there: owner, attribute, value."""
    from ctxkernel.history.invariants import Property

    def nothing(request: object, capabilities: object) -> Iterator[Any]:
        return
        yield

    if name in rules():
        rule = rules()[name]
        before = [(rule, "__code__", rule.__code__)]
        rule.__code__ = nothing.__code__
        return before
    owner = properties()[name]
    before = [(owner, method, vars(owner)[method]) for method in _METHODS if method in vars(owner)]
    for method in _METHODS:
        setattr(owner, method, getattr(Property, method))
    return before


@contextmanager
def without(name: str) -> Iterator[None]:
    """Do without a rule for a while (a property's inherited methods would not be put back as they were)."""
    before = take_out(name)
    try:
        yield
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)


# -- the script --------------------------------------------------------------------------------------

_TAKES_OUT = "not every_rule_is_needed and not taken_out and not without_any_one and not without_an_extension"


def fitting(name: str) -> list[list[str]]:
    """Return the arguments of pytest that find tests for `name`, the likeliest first."""
    if name in rules():
        return [
            ["tests/test_rules.py", "-k", f"refused_by_that_rule_alone and {name} and {_TAKES_OUT}"],
            ["tests/test_rules.py", "-k", _TAKES_OUT],
        ]
    return [
        ["tests/test_history_view.py"],
        ["tests/test_history_repair.py"],
        ["tests/test_history_laws.py", "-k", _TAKES_OUT],
    ]


def killer(name: str) -> str:
    """Return the first test that fails without `name`, or ""."""
    for arguments in fitting(name):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=ROOT,
            env={**os.environ, WITHOUT: name, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])},
            capture_output=True,
            text=True,
            check=False,
        )
        failed = re.search(r"(?m)^FAILED (\S+)", done.stdout)
        if done.returncode == 1 and failed:
            return failed[1]
        if done.returncode not in (0, 1):
            sys.exit(f"pytest could not run for {name}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return ""


def main(names: list[str]) -> int:
    """Take out each, print the table, and return the exit status."""
    known = [*rules(), *properties()]
    if unknown := set(names) - set(known):
        sys.exit(f"no such rule or property: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    survivors: list[str] = []
    for name in names or known:
        start = time.monotonic()
        found = killer(name)
        survivors += [] if found else [name]
        kind = "rule" if name in rules() else "property"
        print(f"{kind:9}{name:24}{time.monotonic() - start:5.1f} s  {found or 'SURVIVES'}", flush=True)
    print(f"{len(names or known)} taken out, {len(survivors)} unnoticed" + "".join(f" · {one}" for one in survivors))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
