"""`ctxkernel bench`: play the benchmark's tasks with a model, and print how it did.

Rule 1: a task is played as a user would: cells, then `%%ask --mode auto`. Then its assertions run silently.
Rule 2: only the arguments and the key of the environment count, no other setting of the user: results compare.
Rule 3: a request that fails is a failed task with its reason; the run goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nbclient.exceptions import CellTimeoutError, DeadKernelError

from ctxkernel.agent.asks import NOTHING, Spent
from ctxkernel.agent.books import logged_requests
from ctxkernel.agent.keys import model_key
from ctxkernel.agent.meter import spent_on
from ctxkernel.agent.recorded import RecordedAsk, dump_turns, load_turns, of_session
from ctxkernel.cli import FAILED, INTERRUPTED, OK, Failed, Unusable
from ctxkernel.cli.bench_kernels import BenchKernels, TaskKernel
from ctxkernel.cli.output import Colour, paint, safe_line, say, show, show_json, terminal_table
from ctxkernel.cli.read import check_folder
from ctxkernel.core.errors import BadPolicy, StoreError
from ctxkernel.core.settings import DEFAULTS, from_text
from ctxkernel.core.text import format_duration, one_line, suggest
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.model_bench.catalogue import TASKS
from ctxkernel.model_bench.results import HEADERS, BenchResults, PlayedTask
from ctxkernel.model_bench.task import Task, check_cell
from ctxkernel.projection.prices import price_of
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.trust_registry import TRUSTED, content_digest

GRACE_SECONDS = 60
"""Seconds after the time limit of a task until its kernel is ended."""
CELL_SECONDS = 60
"""Seconds that a cell may take."""


def bench(arguments: argparse.Namespace) -> int:
    """Play tasks and print the results. Raises Unusable, Failed."""
    plan, left_out = _plan(arguments)
    check_folder("--output", arguments.output)
    check_folder("--record", arguments.record)
    environment = _environment(arguments)
    dialect = arguments.dialect or ("tools" if capabilities_for(arguments.model).tools else "script")
    measures = {task.name: task.measures for task in plan}
    results = BenchResults(arguments.model, dialect, measures, left_out=left_out)
    player, failed = _Player(arguments, results), ""
    try:
        asyncio.run(player.play(plan, environment))
    except KeyboardInterrupt:  # where no handler takes signals, as on Windows
        player.note_stop(plan)
    except Failed as fault:
        if not results.runs:
            raise
        results.ended = failed = f"ended after {len(results.runs)} of {len(plan)} runs: {fault}"
    _write(arguments, results, player.recorded)
    if arguments.json:
        show_json(results.to_json())
    else:
        colours: list[Colour | None] = [
            "green" if all(run.passed for run in runs) else "red" for runs in results.by_task().values()
        ]
        if results.runs:
            show(terminal_table(HEADERS, results.rows(), right=frozenset(range(2, 7)), caps={0: 20}, colours=colours))
        show(f"\n{results.summary()}" if results.runs else results.summary())
    if player.interrupted:
        return INTERRUPTED
    if failed:
        return FAILED
    if arguments.at_least is not None and results.share < arguments.at_least:
        say(f"ctxkernel bench: {results.share:.1%} passed, and --at-least asks for {arguments.at_least:.1%}")
        return FAILED
    return OK


# -- arguments -----------------------------------------------------------------------------------------


def _plan(arguments: argparse.Namespace) -> tuple[list[Task], dict[str, str]]:
    """Return the tasks to play, repetitions included, and those that are left out with the reason."""
    chosen = list(TASKS)
    if arguments.tasks is not None:
        chosen = [name.strip() for name in arguments.tasks.split(",") if name.strip()]
        unknown = next((name for name in chosen if name not in TASKS), None)
        if unknown is not None or not chosen:
            raise Unusable(
                f"--tasks {arguments.tasks}: there is no task {unknown!r}{suggest(unknown or '', TASKS)}; "
                f"there are {', '.join(TASKS)}"
            )
    left_out: dict[str, str] = {}
    for name in chosen:
        missing = [package for package in TASKS[name].needs if importlib.util.find_spec(package) is None]
        if missing:
            left_out[name] = f"needs {', '.join(missing)}"
    played = [TASKS[name] for name in dict.fromkeys(chosen) if name not in left_out]
    return [task for task in played for _ in range(arguments.repeat)], left_out


def _environment(arguments: argparse.Namespace) -> dict[str, str | None]:
    """Return the changes of the environment for the kernels. Raises Unusable if no model can be asked."""
    made: dict[str, str | None] = {name: None for name in os.environ if name.startswith("CTXKERNEL_")}
    made["PYTEST_CURRENT_TEST"] = None  # with it ipykernel takes itself for a part of pytest
    made["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    made |= {f"CTXKERNEL_{name.upper()}": text for name, text in _settings(arguments).items()}
    made |= {
        "CTXKERNEL_MODE": "auto",
        "CTXKERNEL_MODEL": arguments.model,
        "CTXKERNEL_ASK_SECONDS": f"{arguments.timeout:g}",
        "CTXKERNEL_STALL_SECONDS": f"{min(arguments.timeout, 3600.0):g}",
    }
    if arguments.dialect:
        made["CTXKERNEL_DIALECT"] = arguments.dialect
    if arguments.replay is not None:
        content = _read_turns(arguments.replay)
        made |= dict.fromkeys((name for name in os.environ if name.startswith("ANTHROPIC_")), None)
        made |= {
            "CTXKERNEL_ANSWERS": "recorded",
            "CTXKERNEL_TURNS": str(arguments.replay.resolve()),
            TRUSTED: content_digest(content),  # the user named the file
        }
        return made
    if arguments.base_url is not None:
        made["ANTHROPIC_BASE_URL"] = arguments.base_url
    if arguments.base_url is None and not os.environ.get("ANTHROPIC_BASE_URL") and model_key(os.environ) is None:
        raise Unusable(
            "no model can be asked: give --base-url URL for a server of your own that speaks the Messages API, set "
            "ANTHROPIC_API_KEY, or give --replay FILE"
        )
    if arguments.budget is not None and price_of(arguments.model).input is None:
        raise Unusable(f"--budget: the price of {arguments.model} is not known, so it cannot be limited; leave it out")
    return made


def _settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the settings of `--config`. Raises Unusable."""
    made: dict[str, str] = {}
    for given in arguments.config:
        name, sign, text = given.partition("=")
        if not sign or name not in DEFAULTS:
            raise Unusable(
                f"--config {given}: write NAME=VALUE with a setting of docs/settings.md{suggest(name, DEFAULTS)}"
            )
        try:
            from_text(name, text)
        except BadPolicy as fault:
            raise Unusable(f"--config {given}: {fault}") from None
        made[name] = text
    return made


def _read_turns(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        load_turns(content.decode(), path.name)
    except (OSError, UnicodeDecodeError, StoreError) as fault:
        why = (isinstance(fault, OSError) and fault.strerror) or str(fault)
        raise Unusable(f"--replay {path}: {why}; `ctxkernel bench --record FILE` writes such a file") from None
    return content


# -- playing -------------------------------------------------------------------------------------------


class _Player:
    """Plays the tasks of one run."""

    def __init__(self, arguments: argparse.Namespace, results: BenchResults) -> None:
        self.recorded: list[RecordedAsk] = []
        self.interrupted = False
        self._arguments, self._results = arguments, results
        self._live = sys.stderr.isatty()

    async def play(self, plan: list[Task], environment: Mapping[str, str | None]) -> None:
        """Play the tasks in order until the end, a stop or the end of the budget. Raises CtxError."""
        kernels = BenchKernels(environment, seconds=int(self._arguments.timeout + GRACE_SECONDS))
        results, budget = self._results, self._arguments.budget
        try:
            for number, task in enumerate(plan, 1):
                if budget is not None and (results.spent.usd or 0.0) >= budget:
                    results.ended = f"ended before {task.name}: the budget of ${budget:g} is spent"
                    return
                self._begin(number, len(plan), task)
                async with kernels.started(more=number < len(plan)) as kernel:
                    if kernels.stopped:
                        break
                    run = await self._task(kernel, task)
                if kernels.stopped:  # its result is that of the stop
                    break
                results.runs.append(run)
                self._end(number, len(plan), run)
        finally:
            if kernels.stopped:
                self.note_stop(plan)
            await kernels.close()

    def note_stop(self, plan: list[Task]) -> None:
        """Note that the user stopped the run."""
        self.interrupted = True
        self._results.ended = f"interrupted: {len(self._results.runs)} of {len(plan)} runs were played"

    async def _task(self, kernel: TaskKernel, task: Task) -> PlayedTask:
        began = time.monotonic()
        words, why, spent, drift = "", "", NOTHING, False
        try:
            await kernel.limit(CELL_SECONDS)
            for cell in task.setup:
                await kernel.execute(cell)
            reply = await kernel.execute(f"{self._ask()}\n{task.question}")
            words, spent, drift = self._read(kernel.session)
            if reply.get("status") == "ok":
                reply = await kernel.execute(check_cell(task, words), silent=True)
            if reply.get("status") != "ok":
                why = f"{reply.get('ename')}: {reply.get('evalue')}"
        except DeadKernelError:
            why = "the kernel died"
        except RuntimeError as fault:
            why = str(fault)
        except (TimeoutError, CellTimeoutError):
            why = f"the kernel did not answer within {self._arguments.timeout + GRACE_SECONDS:g} s"
        return PlayedTask(task.name, one_line(why, 300), spent, time.monotonic() - began, words, drift)

    def _ask(self) -> str:
        budget = self._arguments.budget
        left = "" if budget is None else f" --budget {max(budget - (self._results.spent.usd or 0.0), 0.0001):.4f}"
        return f"%%ask --mode auto --max-turns {self._arguments.max_turns}{left}"

    def _read(self, session: Path) -> tuple[str, Spent, bool]:
        """Return the model's last text, the cost of its responses, and whether a request was not the recorded one."""
        words, drift = "", False
        spent = sum((one.spent for one in logged_requests(session, ())), NOTHING)
        with SessionReader(session) as reader:
            for statement, _ in reader.statements():
                if statement.author == "model" and "round" in statement.tags:
                    tags = statement.tags
                    words = statement.source
                    if tags.get("replayed"):  # nothing was sent: the cost of then
                        spent += spent_on(str(tags.get("model")), tags.get("usage") or {})
                    drift = drift or bool(tags.get("drift"))
            if self._arguments.record is not None:
                asks = of_session(reader.requests(), reader.records())
                known = {ask.key for ask in self.recorded}
                self.recorded += [ask for ask in asks if ask.answered and ask.key not in known]
        return words, spent, drift

    # -- progress ----------------------------------------------------------------------------------

    def _begin(self, number: int, total: int, task: Task) -> None:
        if self._live:
            print(f"[{number:>{len(str(total))}}/{total}] playing  {task.name}", end="", file=sys.stderr, flush=True)

    def _end(self, number: int, total: int, run: PlayedTask) -> None:
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr)
        mark = paint("passed" if run.passed else "failed", "green" if run.passed else "red", sys.stderr)
        place = f"[{number:>{len(str(total))}}/{total}]"
        say(f"{place} {mark} {format_duration(run.seconds):>8}  {run.task}  {safe_line(run.why)[:100]}".rstrip())


def _write(arguments: argparse.Namespace, results: BenchResults, recorded: list[RecordedAsk]) -> None:
    """Write the files that were asked for. Raises Failed."""
    files: dict[Path, str] = {}
    if arguments.output is not None:
        files[arguments.output] = json.dumps(results.to_json(), indent=1) + "\n"
    if arguments.record is not None:
        files[arguments.record] = dump_turns([replace(ask, cell_id=None) for ask in recorded])
    for path, text in files.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as fault:
            raise Failed(f"{path} could not be written: {fault.strerror}.") from fault
