"""`%ctx sweep`: run the cells that follow on a statement for each combination of parameters."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.report import Report, ReportTable
from ctxkernel.core.text import one_line, plural, show_hidden
from ctxkernel.kernel.commands.context import CommandContext
from ctxkernel.kernel.display.progress import ProgressLine
from ctxkernel.kernel.execution.authority import require_person
from ctxkernel.kernel.sweeps.signed_messages import SweepRequest
from ctxkernel.store.log.row_masking import masked_json
from ctxkernel.sweeps.combinations import (
    Combination,
    combinations_of,
    combinations_of_words,
    combine,
    lists_of,
)
from ctxkernel.sweeps.plots import plots_html
from ctxkernel.sweeps.shown_table import SWEEP_MIME, SweepOutput, shown_sweep
from ctxkernel.sweeps.sweep_table import Sweep, SweepTable

_VALUES = (
    *("--from", "--until", "--collect", "--file", "--samples", "--seed", "--scheduler", "--store", "--workers"),
    *("--timeout", "--memory"),
)
_MOST_REASONS = 5
_FLAGS = ("--dry-run", "--json", "--again")


def sweep(ctx: CommandContext, args: Sequence[str]) -> object:
    """Run a sweep, and return its table."""
    options, flags, words = _read(args)
    request = _request(options, flags, words)
    sweeper = _sweeper(ctx)
    if "--dry-run" in flags:
        return _plan(ctx, request, "--json" in flags)
    table = _run(ctx, sweeper, request)
    return json.dumps(table.to_json()) if "--json" in flags else SweepView(table, ctx)


def _run(ctx: CommandContext, sweeper: Any, request: SweepRequest) -> SweepTable:
    """Run a sweep with its progress, and tell what is not in the table."""
    line = ProgressLine(ctx.notices)

    def tell(table: SweepTable, done: int, total: int, workers: int) -> None:
        if ctx.loop.opened is not None:
            ctx.panel.sweep(ctx.loop.opened.execution.execution_id, table, done, total, workers)
        line.show(f"sweep: {done} of {plural(total, 'tasks')} done, {plural(workers, 'workers')}")

    try:
        table: SweepTable = sweeper.run(request, tell)
    finally:
        line.end()
        ctx.panel.swept()
    for note in (*table.notes, *table.losses(), *failures(table)):
        ctx.notices.tell(f"ctxkernel: {note}")
    return table


def run_task(path: str) -> None:
    """Run the cells of a task after this request: what the worker has its kernel do. Raises BadCommand elsewhere."""
    from ctxkernel.kernel.sweeps.task_runs import TaskRun

    turns = _context().turns
    turns.then = TaskRun(turns, path)


def _read(args: Sequence[str]) -> tuple[dict[str, str], set[str], list[str]]:
    """Return options with a value, flags and other words. Raises BadCommand."""
    options: dict[str, str] = {}
    flags, words = set[str](), list[str]()
    rest = list(args)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in _VALUES:
            if not equals and not rest:
                raise BadCommand(f"%ctx sweep {name}: a value must follow")
            options[name] = value if equals else rest.pop(0)
        elif word in _FLAGS:
            flags.add(word)
        else:
            words.append(word)
    return options, flags, words


def _request(options: dict[str, str], flags: set[str], words: Sequence[str]) -> SweepRequest:
    if "--from" not in options:
        raise BadCommand("%ctx sweep --from N NAME=VALUE,…: after which statement? %ctx timeline lists them")
    file = Path(options["--file"]).expanduser() if "--file" in options else None
    seed = int(_number(options, "--seed", 0))
    listed = combinations_of_words(words, file=file, samples=_samples(options), seed=seed)
    return _made(options, flags, listed)


def _samples(options: dict[str, str]) -> int | None:
    return int(_number(options, "--samples", 0)) if "--samples" in options else None


def _made(options: dict[str, str], flags: set[str], listed: list[Combination]) -> SweepRequest:
    collect = tuple(filter(None, (name.strip() for name in options.get("--collect", "").split(","))))
    if bad := next((name for name in collect if not name.isidentifier()), None):
        raise BadCommand(f"--collect {bad}: names of variables with commas are expected")
    return SweepRequest(
        options["--from"],
        listed,
        options.get("--until", ""),
        collect,
        options.get("--scheduler"),
        options.get("--store"),
        int(_number(options, "--workers", 0)),
        _number(options, "--timeout", 0.0),
        _number(options, "--memory", 0.0),
        "--again" in flags,
    )


def _number(options: dict[str, str], name: str, default: float) -> float:
    try:
        found = float(options.get(name, default))
    except ValueError:
        found = -1.0
    if not 0 <= found < 10**9 or (name in ("--samples", "--seed", "--workers") and found != int(found)):
        kind = "a whole number" if name in ("--samples", "--seed", "--workers") else "a number"
        raise BadCommand(f"{name} {options[name]}: {kind} from 0 is expected")
    return found


def _sweeper(ctx: CommandContext) -> Any:
    from ctxkernel.kernel.sweeps.sweeper import Sweeper

    hint = os.environ.get("JPY_SESSION_NAME", "")
    return Sweeper(
        loop=ctx.loop,
        store=ctx.store,
        checkpoints=ctx.checkpoints,
        interrupts=ctx.interrupts,
        notebook=hint,
        keep_mark=ctx.keep_mark,
    )


def _plan(ctx: CommandContext, request: SweepRequest, as_json: bool) -> str | Report:
    from ctxkernel.sweeps.sweep_plan import expected_seconds, told

    plan, cells = _sweeper(ctx).remaining(request)
    workers = request.workers or max(1, min(os.cpu_count() or 1, len(plan.tasks)))
    if as_json:
        return json.dumps(
            {
                "combinations": len(plan.combinations),
                "tasks": len(plan.tasks),
                "cells_run": plan.cells_run,
                "cells_shared": plan.cells_shared,
                "seconds": round(expected_seconds(plan, workers), 3),
                "workers": workers,
            }
        )
    return Report(*told(plan, cells, workers))


_PYTHON = ("until", "scheduler", "store", "workers", "timeout", "memory", "samples", "seed")


def sweep_from_python(start: int | str, parameters: Any, options: dict[str, Any]) -> Sweep:
    """Run the sweep of a call of `ctxkernel.sweep`. Raises CtxError."""
    ctx = _context()
    require_person("sweep(...)")
    given = {name: str(options.pop(name)) for name in _PYTHON if options.get(name) is not None}
    collect, again = options.pop("collect", ()), bool(options.pop("again", False))
    if not isinstance(collect, Iterable):
        raise BadCommand(f"collect={collect!r}: a list of names of variables is expected")
    names = [collect] if isinstance(collect, str) else list(cast("Iterable[Any]", collect))
    texts = {"--from": str(start), "--collect": ",".join(map(str, names))} | {
        f"--{name}": one for name, one in given.items()
    }
    listed = None if isinstance(parameters, dict) or parameters is None else combinations_of(parameters)
    if listed is not None and options:
        raise BadCommand(f"a list of combinations has all parameters: {next(iter(options))}=… does not go with it")
    if listed is None:
        lists = lists_of({**(parameters or {}), **options})
        listed = combine(lists, samples=_samples(texts), seed=int(_number(texts, "--seed", 0)))
    request = _made(texts, {"--again"} if again else set(), listed)
    table = _run(ctx, _sweeper(ctx), request)
    return Sweep(table, SweepView(table, ctx))


def _context() -> CommandContext:
    from IPython.core.getipython import get_ipython

    kernel: Any = getattr(get_ipython(), "kernel", None)
    runtime = getattr(kernel, "ctx", None)
    if runtime is None:
        raise BadCommand("sweep(...) runs in a notebook on the ctxkernel; elsewhere use `ctxkernel sweep NOTEBOOK …`")
    return runtime.context


def failures(table: SweepTable) -> list[str]:
    """Return why combinations did not end well: a line for each reason."""
    found: dict[str, int] = {}
    for row in table.rows:
        if row.status not in ("ok", "cancelled"):
            why = f"{row.status}: {one_line(row.why, 300)}" if row.why else row.status
            found[why] = found.get(why, 0) + 1
    told = [f"{plural(count, 'combinations')} ended with {why}" for why, count in list(found.items())[:_MOST_REASONS]]
    more = sum(list(found.values())[_MOST_REASONS:])
    return [*told, f"{plural(more, 'more combinations')} ended with other reasons"] if more else told


class SweepView:
    """A table for people: our front end draws it as in the panel, others show it as HTML with small plots, or text."""

    def __init__(self, table: SweepTable, ctx: CommandContext) -> None:
        self._report = report_of(table).masked(ctx.masker)
        self._plots = plots_html(table) if self._report.text() == report_of(table).text() else ""
        drawn: SweepOutput = {"session": ctx.store.session_id, "sweep": shown_sweep(table)}
        self._drawn = masked_json(drawn, ctx.masker)

    def __repr__(self) -> str:
        return show_hidden(self._report.text())

    def _repr_html_(self) -> str:
        return self._report.html() + self._plots

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {SWEEP_MIME: self._drawn}


def report_of(table: SweepTable) -> Report:
    """Return the table for people."""
    return Report(ReportTable(table.table(), table.right()), table.told())
