"""What an ask costs beside the model: first words, the stop button, projection and checks; against the SDK alone.

    python benchmarks/asking.py [--asks N] [--events N] [--json]

A strict server on this machine streams scripted answers. `first words`: from the moment the server writes the first
text delta until a client of the kernel has the display message with it; its peer is the SDK alone in a process of its
own, which has it in hand. `stop`: from the interrupt until the kernel is idle again. `a request`: CPU time of
projecting after one more statement, and of the last check on the bytes, on a history of N events, under the default
budget and under one that holds all of them; its peer is the same with one event. All in one run, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from kernels import Kernel

from ctxkernel.agent.client import ModelClient
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.turn_values import Turn
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.rules import check
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.testing import MessagesServer, answer, call, say

WORDS = "One two three four five. " * 8


def _first_delta(server: MessagesServer) -> float:
    return next(sent.at for sent in server.requests[-1].sent if sent.type == "content_block_delta")


def alone(server: MessagesServer, asks: int) -> list[float]:
    """The SDK alone: milliseconds from the first delta on the wire to it in hand."""
    took: list[float] = []

    async def run() -> None:
        client = ModelClient(model_key=lambda: "key", base_url=server.base_url)
        body = json.dumps(
            {
                "model": "claude-sonnet-5-5",
                "max_tokens": 64,
                "stream": True,
                "messages": [{"role": "user", "content": "go"}],
            }
        ).encode()
        for _ in range(asks):
            server.script = [answer([say(WORDS)], delay=0.002)]
            seen: list[float] = []
            await client.send(
                body, model="claude-sonnet-5-5", on_event=lambda event, seen=seen: seen.append(time.monotonic())
            )
            took.append((seen[0] - _first_delta(server)) * 1000)
        await client.aclose()

    asyncio.run(run())
    return took


def shown(kernel: Kernel, server: MessagesServer, asks: int) -> list[float]:
    """The kernel: milliseconds from the first delta on the wire to the display message at a client."""
    took: list[float] = []
    for n in range(asks):
        server.script = [answer([say(WORDS)], delay=0.002)]
        msg_id = kernel.client.execute(f"%%ask --mode auto --again\nquestion {n}")
        at = 0.0
        while True:
            message = kernel.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            content = message["content"]
            if not at and "text/markdown" in content.get("data", {}):
                at = time.monotonic()
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                break
        took.append((at - _first_delta(server)) * 1000)
    return took


def stopped(kernel: Kernel, server: MessagesServer, script: list[Any], times: int) -> list[float]:
    """Milliseconds from the interrupt to idle."""
    took: list[float] = []
    for n in range(times):
        server.script, before = list(script), len(server.requests)
        pressed: list[float] = []

        def press(before: int = before, pressed: list[float] = pressed) -> None:
            while len(server.requests) == before:
                time.sleep(0.005)
            time.sleep(0.4)
            pressed.append(time.monotonic())
            kernel.manager.interrupt_kernel()

        thread = threading.Thread(target=press)
        thread.start()
        kernel.run(f"%%ask --mode auto --again\nstop {n}")
        took.append((time.monotonic() - pressed[0]) * 1000)
        thread.join()
    return took


def request(events: int, budget: int, times: int = 30) -> list[float]:
    """CPU milliseconds of one more projection, its bytes, and the last check on them."""
    engine = ProjectionEngine(Settings(projection_tokens=budget), count_tokens)
    path: list[tuple[Statement, Execution]] = []

    def more() -> None:
        n = len(path) + 1
        statement = Statement(f"s{n}", n, float(n), f"x{n} = measure({n})\nprint(x{n})")
        run = Execution(f"s{n}.1", f"s{n}", f"s{n - 1}.1" if n > 1 else None, float(n), n + 0.1, "ok", f"{n * 1.5}\n")
        path.append((statement, run))

    for _ in range(events):
        more()
    engine.project(Turn(path, (), (), 0, ()))
    took: list[float] = []
    for _ in range(times):
        more()
        begin = time.process_time()
        made = engine.project(Turn(path, (), (), 0, ()))
        body = made.request_bytes
        report = check(json.loads(body), capabilities_for(made.model, betas=made.betas))
        took.append((time.process_time() - begin) * 1000)
        assert report.ok
    return took


def _row(name: str, took: list[float], peer: float | None = None) -> dict[str, Any]:
    took = sorted(took)
    middle = statistics.median(took)
    high = took[int(len(took) * 0.9)]
    return {"what": name, "median_ms": middle, "p90_ms": high, "ratio": middle / peer if peer else None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--asks", type=int, default=30)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, MessagesServer() as server:
        env = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "key", "CTXKERNEL_HOME": folder}
        os.environ.update(env, XDG_CACHE_HOME=str(Path(folder, "cache")))
        kernel = Kernel("ctxkernel.kernel", Path(folder), env=dict(os.environ))
        shown(kernel, server, 2)
        peer = statistics.median(one := alone(server, given.asks))
        rows.append(_row("first words, the SDK alone", one))
        rows.append(_row("first words, shown by the kernel", shown(kernel, server, given.asks), peer))
        talking = [answer([say("word " * 20_000)], delay=0.01)]
        rows.append(_row("stop, in an answer", stopped(kernel, server, talking, 5)))
        sleeping = [[call("run_cell", {"code": "import time\nfor _ in range(3000): time.sleep(0.01)"})]]
        rows.append(_row("stop, in a cell that sleeps", stopped(kernel, server, sleeping, 5)))
        busy = [[call("run_cell", {"code": "n = 0\nwhile True: n += 1"})]]
        rows.append(_row("stop, in a cell that computes", stopped(kernel, server, busy, 5)))
        kernel.stop()
    for budget in (32_000, 2_000_000):
        peer = statistics.median(one := request(1, budget))
        rows.append(_row(f"a request on 1 event, budget {budget:,}", one))
        many = request(given.events, budget)
        rows.append(_row(f"a request on {given.events:,} events, budget {budget:,}", many, peer))
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'':<52}{'median ms':>10}{'90 % ms':>10}{'ratio':>8}")
    for row in rows:
        ratio = f"{row['ratio']:.1f}" if row["ratio"] else ""
        print(f"{row['what']:<52}{row['median_ms']:>10.1f}{row['p90_ms']:>10.1f}{ratio:>8}")


if __name__ == "__main__":
    main()
