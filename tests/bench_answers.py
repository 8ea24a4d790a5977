"""The benchmark's solutions, as the answers of a Messages server; as a script, it records the reference run.

`python tests/bench_answers.py` plays all tasks with their solutions, in the dialect of tools, and writes the answers to
`tests/recordings/bench.turns.json`, which `tests/test_model_bench_command.py` replays. Run it when a question or a
solution changed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctxkernel.cli import main
from ctxkernel.model_bench.catalogue import TASKS
from ctxkernel.model_bench.task import Solution, Task
from ctxkernel.testing import MessagesServer, call, say

RECORDING = Path(__file__).parent / "recordings" / "bench.turns.json"


def solver(pick: Callable[[Task], Solution] = lambda task: task.solution, *, fence: str = "") -> Callable[[Any], Any]:
    """Return a script that works on each task; in the script dialect by tags, or with `fence` by blocks marked so."""
    done: dict[str, int] = {}

    def script(body: dict[str, Any]) -> Any:
        sent = json.dumps(body["messages"], ensure_ascii=False)
        task = next(one for one in TASKS.values() if json.dumps(one.question, ensure_ascii=False)[1:-1] in sent)
        if not any(message["role"] == "assistant" for message in body["messages"]):
            done[task.name] = 0
        solution, at = pick(task), done[task.name]
        done[task.name] += 1
        if at >= len(solution.cells):
            return say(solution.words)
        code = solution.cells[at]
        if body.get("tools"):
            return call("run_cell", {"code": code})
        if fence:
            return say(f"I do it:\n\n```{fence}\n{code}\n```")
        return say(f'<script type="text/x-python">\n{code}\n</script>')

    return script


if __name__ == "__main__":
    RECORDING.parent.mkdir(exist_ok=True)
    os.environ["ANTHROPIC_API_KEY"] = "sk-ant-recording"
    with MessagesServer(solver()) as server:
        arguments = ["--base-url", server.base_url, "--model", "claude-sonnet-5-5", "--at-least", "1"]
        sys.exit(main(["bench", *arguments, "--record", str(RECORDING)]))
