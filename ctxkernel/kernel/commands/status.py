"""Commands on the session as a whole: `status`, `timeline`, `show`, `timeout`."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from typing import Any

from ctxkernel._version import __version__
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.report import CellLink, Report, ReportTable
from ctxkernel.core.text import format_duration, format_size, join_names, plural
from ctxkernel.core.timeline import Statement, run_name
from ctxkernel.core.timeline_json import statement_to_json
from ctxkernel.core.timeline_table import RIGHT, other_notices, timeline_table
from ctxkernel.kernel.commands.context import CommandContext, split_flags

_ROWS = 30
"""Rows of a timeline, without a number."""


def status(ctx: CommandContext, args: Sequence[str]) -> Report:
    """Show the state of the kernel: session, projection, model, checkpoints, faults."""
    loop, store, found = ctx.loop, ctx.store, ctx.loop.projection
    place = str(store.path) if store.path else "in memory only: nothing is kept when the kernel ends"
    head = run_name(loop.log.head) if loop.log.head else "none yet"
    rows = [
        ("ctxkernel", f"{__version__}, Python {platform.python_version()}"),
        ("session", f"{store.session_id} · {place}"),
        (
            "timeline",
            f"{plural(len(loop.log), 'statements')} in this run, HEAD {head}",
        ),
        ("handles", str(len(loop.handles()))),
    ]
    if found is not None:
        checks = "all checks passed" if found.report.ok else f"{len(found.report.violations)} checks failed"
        rows.append(("projection", f"~{found.tokens:,} of {found.budget:,} tokens, {checks}"))
    rows.append(("model", f"{ctx.settings.model}, mode {ctx.settings.mode}; {_sent(ctx)}"))
    if ctx.models.parked:
        rows.append(("waiting", "a cell of the model, for your approval: %ctx approve, %ctx edit or %ctx reject"))
    rows += _checkpoint_rows(ctx)
    if store.signer.fault:
        rows.append(("unsigned", f"checkpoints cannot be signed ({store.signer.fault}): a later kernel will ask first"))
    if counts := ctx.masker.counts:
        told = join_names([f"{kind} ({many})" if many > 1 else kind for kind, many in counts.items()], 12)
        rows.append(("masked", f"{plural(sum(counts.values()), 'secrets')}: {told}; %ctx allow shows one that is none"))
    if ctx.masker.allowed:
        rows.append(("not masked", f"{', '.join(sorted(ctx.masker.allowed))}, as %ctx allow said"))
    seconds = ctx.timeout.seconds
    rows.append(("time-out", f"{seconds:g} s a cell" if seconds else "none; %ctx timeout SECONDS sets one"))
    rows += ctx.health.rows()
    rows += [("step", line) for line in ctx.guard.lines()]
    rows += [("notice", notice) for notice in ctx.notices.kept[-5:]]
    return Report(ReportTable([(f"{key}:", value) for key, value in rows], has_head=False, is_fitted=False))


def _sent(ctx: CommandContext) -> str:
    ctx.models.collect()
    account = ctx.account
    return account.spent.text() if account.booked else "nothing has been sent to any model by this kernel"


def _checkpoint_rows(ctx: CommandContext) -> list[tuple[str, str]]:
    back, held = ctx.checkpoints.returning, ctx.health.storage()
    if back is None or held is None:
        return []
    offer = back.resumption.offer
    pending = f", {format_size(held['pending_bytes'])} on their way to the disk" if held["pending_bytes"] else ""
    size = f"{format_size(held['bytes'])} of {format_size(held['quota'])}{pending}"
    rows = [("checkpoints", f"{size} · {held['folder']}")]
    rows += [("store", ctx.mirror.status())] if ctx.mirror.on else []
    if offer is not None and offer["statements"]:
        rows.append(("earlier", f"a kernel before this one left {offer['statements']} statements; %ctx resume"))
    return rows


def timeline(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """Show the statements of this run."""
    flags, rest = split_flags(args)
    log = ctx.loop.log
    statements = list(log)
    if "--json" in flags:
        rows = _rows(ctx, statements)
        return json.dumps({"session": ctx.store.session_id, "head": log.head, "statements": rows}, indent=1)
    if rest and (not rest[0].isdecimal() or int(rest[0]) < 1):
        raise BadCommand(f"%ctx timeline {rest[0]}: how many rows? Use a whole number from 1")
    if not statements:
        return "no statement yet: run a cell"
    limit = int(rest[0]) if rest else _ROWS
    shown = _rows(ctx, statements[-limit:])
    for run in (run for one in shown for run in one["executions"]):
        info = ctx.health.info(run["execution_id"])
        run["checkpoint"] = info and {"state": info.state, "missing": info.missing}
    here = {execution.execution_id for _, execution in log.path()}
    back, older = ctx.checkpoints.returning, len(statements) - limit
    table = timeline_table(shown, log.head, here, back.named if back is not None else {})
    head = f"… {older} older; %ctx timeline {len(statements)} shows all" if older > 0 else ""
    cells = [one["cell_id"] for one in shown for _ in one["executions"]]
    rows = [[CellLink(row[0], cell), *row[1:]] for row, cell in zip(table.rows[1:], cells, strict=True)]
    return Report(head, ReportTable([table.rows[0], *rows], RIGHT, dimmed=table.aside), table.legend())


def _rows(ctx: CommandContext, statements: Sequence[Statement]) -> list[dict[str, Any]]:
    """Return statements as JSON, with the states of asks."""
    made: list[dict[str, Any]] = []
    for one in statements:
        made.append(statement_to_json(one, ctx.loop.log.executions(one.statement_id)))
        for run in made[-1]["executions"]:
            if (ask := ctx.account.endings.get(run["execution_id"])) is not None:
                run["ask"] = ask.to_json()
    return made


def show(ctx: CommandContext, args: Sequence[str]) -> str:
    """Show one statement with all its executions."""
    if not args:
        raise BadCommand("%ctx show N: which statement? %ctx timeline lists them")
    key = args[0] if args[0].startswith("s") else f"s{args[0]}"
    statement = ctx.loop.log.get(key)
    if statement is None:
        raise BadCommand(f"no statement {args[0]!r} in this run; %ctx timeline lists them")
    lines = [f"{key} · {statement.author} · {statement.kind} · cell {statement.cell_id or 'unknown'}", statement.source]
    for run in ctx.loop.log.executions(key):
        diff = run.changes
        ask = ctx.account.endings.get(run.execution_id)
        told = ask.told() if ask is not None else f"{run.status}, {format_duration(run.cost.time_ms / 1000)}"
        lines.append(f"-- {run.execution_id}: {told}")
        lines += [f"{name}:\n{text}" for name, text in (("stdout", run.stdout), ("stderr", run.stderr)) if text]
        lines += [f"late {name}:\n{text}" for name, text in run.late.items()]
        if run.exception is not None:
            lines.append(f"{run.exception.type}: {run.exception.message}")
        lines += [f"+ {name}: {info.type} {info.repr}" for name, info in diff.added.items()]
        lines += [f"~ {name} ({info.how}): {info.type} {info.repr}" for name, info in diff.changed.items()]
        lines += [f"− {name}" for name in diff.deleted]
        lines += [f"? changes may be missing: {diff.incomplete}"] if diff.incomplete else []
        lines += [f"{a.kind} {a.name}: {a.mime}, {a.size:,} bytes" for a in run.artifacts if not a.arranges]
        lines += [f"notice: {notice}" for notice in other_notices(run)]
    return "\n".join(lines)


def timeout(ctx: CommandContext, args: Sequence[str]) -> str:
    """Show or set the time-out of cells."""
    if args and args[0].lower() in ("off", "none", "0"):
        ctx.timeout.seconds = None
    elif args:
        try:
            seconds = float(args[0].removesuffix("s"))
        except ValueError:
            seconds = -1.0
        if not 0 < seconds < 10**9:
            raise BadCommand(f"%ctx timeout {args[0]}: use seconds above 0, or off")
        ctx.timeout.seconds = seconds
    now = ctx.timeout.seconds
    return f"cells are stopped after {now:g} s (from the next one on)" if now else "cells have no time-out"
