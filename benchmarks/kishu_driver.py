"""Inside the kernel of the benchmark: Kishu, attached without a front end, its hooks timed."""

from __future__ import annotations

import json
import time
from typing import Any

times: list[float] = []
faults: list[str] = []
_begun = [0.0]


def attach(shell: Any, notebook: str) -> None:
    """Begin, for the notebook at that path. Kishu's own test mode spares it the waits for a front end."""
    from kishu import init_kishu

    init_kishu(notebook)
    kishu = shell.user_ns["_kishu"]
    for event, hook in (("pre_run_cell", kishu.pre_run_cell), ("post_run_cell", kishu.post_run_cell)):
        shell.events.unregister(event, hook)
        shell.events.register(event, _timed(hook, event))


def _timed(hook: Any, event: str) -> Any:
    def timed(argument: Any) -> None:
        start = time.perf_counter()
        try:
            hook(argument)
        except Exception as fault:
            faults.append(f"{type(fault).__name__}: {fault}"[:200])
            raise
        finally:
            spent = (time.perf_counter() - start) * 1000
            if event == "pre_run_cell":
                _begun[0] = spent
            else:
                times.append(_begun[0] + spent)

    return timed


def told() -> str:
    """Return `{"times": ms a cell, "faults": of its hooks}` as JSON."""
    return json.dumps({"times": times, "faults": faults})
