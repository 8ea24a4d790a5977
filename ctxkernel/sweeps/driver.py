"""`python -m ctxkernel.sweeps.driver`: the process between a kernel that sweeps and the workers.

Lines of JSON come on standard input and go to standard output. The scheduler of Dask runs here and not in the kernel:
it answers whoever reaches its port, and costs processor time while it waits.

    in    {"submit": key, "task": base64} · {"describe": [store, probe]} · the end of input: stop
    out   {"ready": workers} · {"done": key, "result": base64} · {"failed": key, "why": text} · {"workers": count}
          · {"described": {worker: base64}} · {"fault": text}
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_WAIT = 0.5
_REPORT_SECONDS = 1.0


def main() -> int:
    """Serve one kernel until its end of input."""
    # Libraries print to standard output, too. Send that to stderr, so that the kernel reads only these messages.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def tell(message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            answers.write(json.dumps(message) + "\n")
            answers.flush()

    options = json.loads(sys.argv[1])
    try:
        from ctxkernel.sweeps.executors import DaskExecutor

        executor = DaskExecutor(
            scheduler=options["scheduler"],
            workers=options["workers"],
            memory=options["memory"],
        )
    except ImportError as fault:
        tell({"fault": f"{fault}; install the extra: pip install 'jupyter-ctxkernel[sweeps]'"})
        return 1
    except Exception as fault:
        tell({"fault": f"{type(fault).__name__}: {fault}"})
        return 1
    try:
        threading.Thread(target=_read, args=(lines, executor.wake), daemon=True).start()
        tell({"ready": executor.workers()})
        _serve(executor, lines, tell)
    finally:
        from ctxkernel.sweeps.worker import end_kernels

        with contextlib.suppress(Exception):  # the scheduler is gone; a kernel ends with its worker
            executor.call_on_workers(end_kernels)
        with contextlib.suppress(Exception):  # this process ends, and its cluster with it
            executor.close()
    return 0


def _serve(executor: Any, lines: queue.Queue[dict[str, Any] | None], tell: Any) -> None:
    from ctxkernel.sweeps.worker import describe, run_task

    reported, count = time.monotonic(), -1
    while True:
        with contextlib.suppress(queue.Empty):
            while True:
                line = lines.get_nowait()
                if line is None:
                    return
                if "submit" in line:
                    executor.submit(line["submit"], run_task, base64.b64decode(line["task"]))
                elif "describe" in line:
                    found = executor.call_on_workers(describe, *line["describe"])
                    tell({"described": {name: base64.b64encode(one).decode() for name, one in found.items()}})
        ended = executor.done(_WAIT)
        if ended is not None:
            key, result, why = ended
            if result is None:
                tell({"failed": key, "why": why})
            else:
                tell({"done": key, "result": base64.b64encode(result).decode()})
        if time.monotonic() - reported > _REPORT_SECONDS:
            reported, before = time.monotonic(), count
            count = executor.workers()
            if count != before:
                tell({"workers": count})


def _read(lines: queue.Queue[dict[str, Any] | None], wake: Callable[[], None]) -> None:
    for line in sys.stdin:
        lines.put(json.loads(line))
        wake()
    lines.put(None)
    wake()


if __name__ == "__main__":
    sys.exit(main())
