"""The way of one cell through the code: files, functions and calls of ctxkernel from its request to its reply.

    python benchmarks/walk.py [--cell 'x = 1'] [--setup CODE] [--tree DEPTH] [--json]

A real kernel runs the setup and some cells, so that caches are filled. Then a silent request installs a profile
function (`sys.setprofile`), the cell runs as a client would run it, and another silent request collects the counts.
Only Python functions whose source lies in the package are counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import tempfile

from latency import Kernel

COUNTER = r"""
def _install():
    import sys, os, collections, ctxkernel
    root = os.path.dirname(ctxkernel.__file__) + os.sep
    state = {"on": False, "stack": [], "calls": collections.Counter(), "tree": collections.Counter()}
    def hook(frame, event, arg):
        code = frame.f_code
        if not code.co_filename.startswith(root):
            return
        if event == "call":
            if code.co_name == "pre_handler_hook":
                state["calls"].clear(); state["tree"].clear(); state["stack"].clear(); state["on"] = True
            if state["on"]:
                name = code.co_filename[len(root):] + ":" + code.co_qualname
                state["stack"].append(name)
                state["calls"][name] += 1
                state["tree"][tuple(state["stack"][:DEPTH])] += 1
        elif event == "return" and state["on"]:
            if state["stack"]:
                state["stack"].pop()
            if code.co_name == "post_handler_hook":
                state["on"] = False
                state["done"] = (dict(state["calls"]), list(state["tree"].items()))
    sys._walk = state
    sys.setprofile(hook)
_install(); del _install
"""
DONE = "(__import__('sys').setprofile(None), __import__('sys')._walk['done'])[1]"


def walk(cell: str, setup: str, depth: int) -> tuple[dict[str, int], list[tuple[list[str], int]]]:
    """Return calls by function, and by the first `depth` functions of the way to them."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = Kernel("ctxkernel.kernel", folder)
        try:
            kernel.run(setup)
            for _ in range(5):
                kernel.run(cell)
            kernel.run(COUNTER.replace("DEPTH", str(depth)), silent=True)
            kernel.run(cell)
            kernel.run("", silent=True, user_expressions={"done": DONE})
            text = kernel.reply["user_expressions"]["done"]["data"]["text/plain"]
        finally:
            kernel.stop()
    return ast.literal_eval(text)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", default="x = 1")
    parser.add_argument("--setup", default="pass")
    parser.add_argument("--tree", type=int, default=0, metavar="DEPTH", help="print calls below each way")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    calls, tree = walk(options.cell, options.setup, max(options.tree, 1))
    found = {
        "files": len({name.partition(":")[0] for name in calls}),
        "functions": len(calls),
        "calls": sum(calls.values()),
    }
    if options.json:
        json.dump({**found, "by_function": calls}, sys.stdout, indent=1)
        return
    print(f"{options.cell!r}: {found['files']} files, {found['functions']} functions, {found['calls']} calls")
    if options.tree:
        ways: dict[tuple[str, ...], int] = {}
        for way, count in tree:
            for length in range(1, len(way) + 1):
                ways[tuple(way[:length])] = ways.get(tuple(way[:length]), 0) + count
        for way in sorted(ways):
            if ways[way] > 2:
                print(f"{ways[way]:6} {'  ' * (len(way) - 1)}{way[-1]}")


if __name__ == "__main__":
    main()
