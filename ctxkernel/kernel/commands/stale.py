"""Commands that tell which cells are stale, and why. They change nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.report import CellLink, Report, ReportTable
from ctxkernel.core.text import first_lines, join_names, plural
from ctxkernel.core.timeline_table import gist
from ctxkernel.kernel.commands.context import CommandContext, split_flags
from ctxkernel.replay.dependencies import DependencyGraph
from ctxkernel.replay.dependency_nodes import CellRun, Freshness

_DEPTH = 10
"""Most stale cells in the chain of an explanation."""
_LINKS = 30
"""Most cells that an explanation names as read, as readers, or as affected."""


def stale(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """List the cells on the path to HEAD that are stale or unknown."""
    flags, rest = split_flags(args)
    if rest:
        raise BadCommand(f"%ctx stale takes no name; %ctx why stale {rest[0]} explains one cell")
    graph = ctx.panel.marks.current_graph(every_file=True)
    if "--graph" in flags:
        nodes = [_node(graph, run) for run in graph.in_order()]
        return json.dumps(nodes, indent=1) if "--json" in flags else Report(*_drawn(nodes))
    cells = [(run, graph.freshness(run.cell)) for run in graph.cells()]
    shown = [(run, found) for run, found in cells if found.state != "fresh"]
    if "--json" in flags:
        return json.dumps([_as_json(run, found) for run, found in shown], indent=1)
    count = {state: sum(found.state == state for _, found in cells) for state in ("fresh", "stale", "unknown")}
    head = f"{plural(len(cells), 'cells')} on the path to HEAD: " + ", ".join(f"{n} {one}" for one, n in count.items())
    rows: list[Sequence[str]] = [("", "state", "because", "source")]
    lines: list[str] = []
    for run, found in shown:
        because, source = "; ".join(found.because), gist(run.source, 80)
        link = CellLink(run.statement_id, ctx.loop.log.statement(run.statement_id).cell_id)
        rows.append((link, found.state, because, source))
        lines += [f"{run.statement_id:5} {found.state:8} {because}", f"      {source}"]
    return Report(head, ReportTable(rows, as_text=lines)) if shown else Report(head)


def why_stale(ctx: CommandContext, args: Sequence[str]) -> str:
    """Explain the state of one cell, back to the statements that caused it, and what depends on it."""
    flags, args = split_flags(args)
    graph = ctx.panel.marks.current_graph(every_file=True)
    if len(args) != 1:
        raise BadCommand("%ctx why stale N: which statement? %ctx stale lists the stale ones")
    name = args[0] if args[0].startswith("s") else f"s{args[0]}"
    runs = {run.statement_id: run for run in graph.cells()}
    if ctx.loop.log.get(name) is None:
        raise BadCommand(f"there is no statement {args[0]!r} here; use its number from %ctx timeline")
    if name not in runs:
        raise BadCommand(
            f"{name} is not the newest execution of a cell on the path to HEAD; %ctx stale lists the stale ones"
        )
    if "--json" in flags:
        return json.dumps(_node(graph, runs[name]))
    lines = _explained(graph, runs, name, 0, set())
    sources, readers = graph.links(runs[name].cell)
    lines += first_lines([f"reads {join_names(names)} of {_id(graph, one)}" for one, names in sources.items()], _LINKS)
    lines += first_lines(
        [f"{_id(graph, one)} reads {join_names(names)} of it" for one, names in readers.items()], _LINKS
    )
    again = [run.statement_id for run in graph.affected([runs[name].cell])][1:]
    if again:
        lines.append(f"read from it: {join_names(again, _LINKS)}")
    return "\n".join(lines)


def _explained(graph: DependencyGraph, runs: dict[str, CellRun], name: str, depth: int, seen: set[str]) -> list[str]:
    run = runs[name]
    found, indent = graph.freshness(run.cell), "  " * depth
    seen.add(name)
    lines = [f"{indent}{name} is {found.state}: {gist(run.source, 80)}"]
    lines += [f"{indent}  {one}" for one in found.because]
    for source in found.upstream:
        upstream = runs.get(source)
        if upstream is None or source in seen or depth >= _DEPTH:
            continue
        if graph.freshness(upstream.cell).state == "stale":
            lines += _explained(graph, runs, source, depth + 1, seen)
    return lines


def _id(graph: DependencyGraph, cell: str) -> str:
    return graph.newest(cell).statement_id


def _node(graph: DependencyGraph, run: CellRun) -> dict[str, Any]:
    """Return a cell with the cells that it reads from, and those that read from it."""
    sources, readers = graph.links(run.cell)

    def told(links: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
        cells = ((graph.newest(one), names) for one, names in links.items())
        return [
            {"statement": one.statement_id, "cell": one.cell, "source": gist(one.source, 80), "names": names}
            for one, names in cells
        ]

    state = _as_json(run, graph.freshness(run.cell))
    return {**state, "source": gist(run.source, 80), "reads": told(sources), "read_by": told(readers)}


def _drawn(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the graph as lines: each cell below the cells that it reads from."""
    lines: list[str] = []
    for row in rows:
        lines.append(f"{row['statement']:5} {row['state']:8} {row['source']}")
        lines += [f"        ↑ {one['statement']}: {join_names(one['names'])}" for one in row["reads"]]
    return first_lines(lines) or ["no cell ran yet"]


def _as_json(run: CellRun, found: Freshness) -> dict[str, object]:
    names = {"statement": run.statement_id, "execution": run.execution_id, "cell": run.cell}
    return {**names, "state": found.state, "because": found.because, "upstream": found.upstream}
