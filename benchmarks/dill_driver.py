"""Inside the kernel of the benchmark: after every cell a pickle, by dill or cloudpickle, of all that pickles."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from typing import Any

state: dict[str, Any] = {"times": [], "bytes": 0, "left_out": {}, "count": 0, "bad": {}}


def attach(shell: Any, folder: str, keep: list[int], pickler: str) -> None:
    """Begin. Pickles of cells that are not in `keep` are counted and removed."""
    state.update(shell=shell, folder=Path(folder), keep=set(keep), pickler=importlib.import_module(pickler))
    shell.events.register("post_run_cell", _after)


def _users() -> dict[str, Any]:
    hidden = state["shell"].user_ns_hidden
    return {
        name: value
        for name, value in state["shell"].user_ns.items()
        if not name.startswith("_") and (name not in hidden or value is not hidden[name])
    }


def _after(result: Any) -> None:
    start = time.perf_counter()
    state["count"] += 1
    number = state["count"]
    path = state["folder"] / f"{number}.pkl"
    # What did not pickle before is not tried again, so long as the name holds the same object.
    values = {name: value for name, value in _users().items() if state["bad"].get(name) != id(value)}
    try:
        _dump(values, path)
    except Exception:
        for name, value in list(values.items()):
            if type(value).__name__ == "ndarray":
                continue
            try:
                state["pickler"].dumps(value)
            except Exception:  # dill cannot store it: the variable is left out, and counted
                state["bad"][name] = id(value)
                del values[name]
        _dump(values, path)
    state["left_out"][number] = sorted(set(_users()) - set(values))
    state["bytes"] += path.stat().st_size
    if number not in state["keep"]:
        path.unlink()
    state["times"].append((time.perf_counter() - start) * 1000)


def _dump(values: dict[str, Any], path: Path) -> None:
    with path.open("wb") as out:
        state["pickler"].dump(values, out, protocol=5)


def goto(number: int) -> str:
    """Load the namespace as it was after cell `number`; returns the names that were left out, as JSON."""
    with (state["folder"] / f"{number}.pkl").open("rb") as file:
        values = state["pickler"].load(file)
    namespace = state["shell"].user_ns
    for name in _users():
        del namespace[name]
    namespace.update(values)
    return json.dumps(state["left_out"][number])


def told() -> str:
    """Return `{"times": ms a cell, "bytes": …}` as JSON."""
    return json.dumps({"times": state["times"], "bytes": state["bytes"]})
