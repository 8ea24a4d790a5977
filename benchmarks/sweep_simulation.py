"""What a sweep of 10,000 combinations on 1,000 workers with a state of 5 GB would load, simulated.

The costs of one task are measured on the cluster of this machine first: the time of the client for a branch, the bytes
of the messages, what a task takes beside its cells. Rates of networks and stores are arguments, with common values as
defaults. The scheduler's time a task is that of an empty task of Dask, measured too.

    python benchmarks/sweep_simulation.py [--state GB] [--touched SHARE] [--made MB] [--seconds S …]
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import shutil
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from kernels import Kernel

CHUNK = 4 * 1024 * 1024
GB = 1e9


@dataclass
class Costs:
    """Measured on this machine, in seconds and bytes."""

    client: float = 0.006
    """Processor time of the kernel that sweeps, for each task: message, signature, branch."""
    overhead: float = 0.05
    """What a task takes on a worker beside its cells."""
    start: float = 2.0
    """From the first task of a worker to its first cell."""
    task_bytes: int = 6000
    result_bytes: int = 12000
    scheduler: float = 0.003
    """Time of Dask's scheduler for a task."""


def measure(tasks: int) -> Costs:
    """Return the costs of a sweep of small cells on two workers."""
    folder = Path(tempfile.mkdtemp(prefix="sweep-costs-"))
    kernel = Kernel("ctxkernel.kernel", folder, env={"CTXKERNEL_CACHE": str(folder)})
    for source in ("rows = list(range(1000))", "alpha = 1", "fit = sum(rows) * alpha", "r2 = fit / 3"):
        kernel.run(source)
    told = kernel.run(
        "import json, time\nfrom ctxkernel import sweep\nfrom ctxkernel.kernel.sweeps.signed_messages import Messages\n"
        "sizes = {'task': [], 'result': []}\nstock = Messages.task, Messages.result\n"
        "def task(self, *given):\n    made = stock[0](self, *given); sizes['task'].append(len(made)); return made\n"
        "def result(self, task, message):\n    sizes['result'].append(len(message.get('result', '')) * 3 // 4)\n"
        "    return stock[1](self, task, message)\n"
        "Messages.task, Messages.result = task, result\nbegun = time.process_time()\n"
        f"table = sweep(1, alpha=list(range({tasks})), collect='r2', workers=2)\n"
        "used = time.process_time() - begun\nMessages.task, Messages.result = stock\n"
        "over = sorted(table._table.overheads)\n"
        "print('COSTS', json.dumps([used, over, sizes]))"
    )
    kernel.stop()
    shutil.rmtree(folder, ignore_errors=True)
    used, over, sizes = json.loads(told.text.partition("COSTS ")[2].splitlines()[0])
    return Costs(
        client=used / tasks,
        overhead=over[len(over) // 2],
        start=over[-1],
        task_bytes=max(sizes["task"]),
        result_bytes=max(sizes["result"]),
        scheduler=empty_task(),
    )


def empty_task(tasks: int = 400) -> float:
    """Return the time of Dask's scheduler for an empty task."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as one,
    ):
        one.gather(one.map(int, range(20), pure=False))
        begun = time.process_time()
        one.gather(one.map(int, range(tasks), pure=False))
        return (time.process_time() - begun) / tasks


@dataclass
class Load:
    """What was used, in seconds and bytes."""

    seconds: float = 0.0
    client: float = 0.0
    scheduler: float = 0.0
    store_out: float = 0.0
    store_in: float = 0.0
    requests: int = 0
    waited: float = 0.0
    """Seconds that workers waited for the store, all together."""
    queue: int = 0
    """Most results that waited for the client."""


@dataclass(frozen=True)
class Machine:
    workers: int
    combinations: int
    state: float
    touched: float
    made: float
    store_rate: float
    worker_rate: float
    requests: float


def simulate(costs: Costs, machine: Machine, seconds: float, seed: int = 1) -> Load:
    """Return the load of a sweep: events in order of time; client, scheduler and store serve one after another."""
    choose, load = random.Random(seed), Load()
    free_client = free_scheduler = free_store = 0.0
    base = machine.state * machine.touched
    idle = deque(range(machine.workers))
    cold = [True] * machine.workers
    left, ended = machine.combinations, 0
    events: list[tuple[float, int, str, int]] = []
    waiting_results = 0
    order = 0

    def serve(at: float, free: float, cost: float) -> float:
        return max(at, free) + cost

    def give(at: float) -> None:
        """Hand a task to a worker that waits."""
        nonlocal left, free_client, free_scheduler, free_store, order
        while left and idle:
            left -= 1
            worker = idle.popleft()
            free_client = serve(at, free_client, costs.client / 2)
            free_scheduler = serve(free_client, free_scheduler, costs.scheduler / 2)
            load.client += costs.client / 2
            load.scheduler += costs.scheduler / 2
            begin = free_scheduler
            if cold[worker]:
                cold[worker] = False
                alone = base / machine.worker_rate
                free_store = serve(begin, free_store, base / machine.store_rate)
                there = max(free_store, begin + alone)
                load.waited += there - begin - alone
                load.store_out += base
                load.requests += int(base / CHUNK) + 1
                begin = there + costs.start
            took = max(0.1 * seconds, choose.gauss(seconds, 0.2 * seconds)) + costs.overhead
            send = machine.made / machine.worker_rate
            load.store_in += machine.made
            load.requests += int(machine.made / CHUNK) + 1
            order += 1
            heapq.heappush(events, (begin + took + send, order, "ended", worker))

    give(0.0)
    now = 0.0
    while events:
        now, _, what, worker = heapq.heappop(events)
        if what == "ended":
            waiting_results += 1
            load.queue = max(load.queue, waiting_results)
            free_scheduler = serve(now, free_scheduler, costs.scheduler / 2)
            free_client = serve(free_scheduler, free_client, costs.client / 2)
            load.client += costs.client / 2
            load.scheduler += costs.scheduler / 2
            idle.append(worker)
            order += 1
            heapq.heappush(events, (free_client, order, "taken", worker))
            give(now)
        else:
            waiting_results -= 1
            ended += 1
    load.seconds = now
    assert ended == machine.combinations
    return load


def first_limit(costs: Costs, machine: Machine, load: Load, seconds: float) -> str:
    """Return what bounds the sweep."""
    ideal = machine.combinations * (seconds + costs.overhead) / machine.workers
    parts = {
        "the client, which takes one branch after another": load.client / load.seconds,
        "the scheduler": load.scheduler / load.seconds,
        "the store, while the workers load the state": load.store_out / machine.store_rate / load.seconds,
        "requests to the store": load.requests / machine.requests / load.seconds,
    }
    name, share = max(parts.items(), key=lambda one: one[1])
    return f"{name} ({share:.0%} of the time)" if load.seconds > 1.3 * ideal else "the cells"


def main(given: list[str] | None = None) -> int:
    """Measure, simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--combinations", type=int, default=10_000)
    parser.add_argument("--state", type=float, default=5.0, metavar="GB")
    parser.add_argument("--touched", type=float, default=0.2, help="share of the state that the cells use")
    parser.add_argument("--made", type=float, default=2.0, metavar="MB", help="new data of a task")
    parser.add_argument("--store", type=float, default=10.0, metavar="GB/S", help="what the store sends in all")
    parser.add_argument("--worker", type=float, default=0.1, metavar="GB/S", help="what one worker receives")
    parser.add_argument("--requests", type=float, default=5500.0, help="requests a second that the store answers")
    parser.add_argument("--seconds", type=float, nargs="*", default=[0.5, 5.0, 60.0, 600.0], help="time of the cells")
    parser.add_argument("--tasks", type=int, default=40, help="tasks of the measurement; 0: use stored costs")
    arguments = parser.parse_args([] if given is None else given)
    costs = measure(arguments.tasks) if arguments.tasks else Costs()
    print(
        f"measured: client {costs.client * 1e3:.1f} ms, scheduler {costs.scheduler * 1e3:.1f} ms, beside its cells "
        f"{costs.overhead * 1e3:.0f} ms a task; {costs.start:.1f} s for the first task of a worker; "
        f"{costs.task_bytes:,} B to a worker, {costs.result_bytes:,} B back"
    )
    for touched in (1.0, arguments.touched):
        machine = Machine(
            arguments.workers,
            arguments.combinations,
            arguments.state * GB,
            touched,
            arguments.made * 1e6,
            arguments.store * GB,
            arguments.worker * GB,
            arguments.requests,
        )
        print(f"\ncells use {touched:.0%} of {arguments.state:g} GB; {arguments.workers:,} workers")
        print("  cells      ideal       sweep   from the store   to it   requests   results waiting   limited by")
        for seconds in arguments.seconds:
            load = simulate(costs, machine, seconds)
            ideal = machine.combinations * seconds / machine.workers
            print(
                f"{seconds:6g} s {ideal:8.0f} s {load.seconds:9.0f} s {load.store_out / 1e12:12.2f} TB "
                f"{load.store_in / 1e9:7.0f} GB {load.requests:9,} {load.queue:13,}      "
                f"{first_limit(costs, machine, load, seconds)}"
            )
    messages = arguments.combinations * (costs.task_bytes + costs.result_bytes)
    print(f"\nthrough the scheduler: {messages / 1e6:.0f} MB; the states never pass it")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
