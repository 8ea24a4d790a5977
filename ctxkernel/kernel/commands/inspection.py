"""Commands that look at the projection and change nothing: `projection`, `why`, `why not`, `diff projection`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.report import CellLink, Preformatted, Report, ReportTable
from ctxkernel.core.text import suggest
from ctxkernel.core.turn_values import HandleState
from ctxkernel.history.events import RESULTS, Action, Condensation, Events, HistoryEvent, Repair, Withdrawal
from ctxkernel.history.invariants import Condensations
from ctxkernel.kernel.commands.context import CommandContext, split_flags
from ctxkernel.kernel.commands.handle_magics import is_hidden
from ctxkernel.projection.compare import ProjectionComparison, compare_projections
from ctxkernel.projection.displayed_tokens import estimate_tokens, vocabulary
from ctxkernel.projection.rendered_history import Past
from ctxkernel.projection.value import Block, Projection
from ctxkernel.store.log.reader import stored_projection

TEXT_LINES = 40
"""Most rows of a comparison."""
_STATELESS = ("handles", "variables", "deltas", "view", "group", "note", "shown", "status", "system")
"""Kinds of blocks that belong to no statement."""


def projection(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """Show the request to the model, block by block."""
    flags, rest = split_flags(args)
    if rest:
        raise BadCommand(
            f"%ctx projection takes no name: %ctx why {rest[0]} says what is in, %ctx diff projection N compares"
        )
    found = ctx.projection()
    if "--json" in flags:
        return json.dumps(found.to_json(), indent=1)
    rows = [["block", "kind", "role", "from", "tokens", "", "why"]]
    for block in found.blocks:
        cached = "cached" if block.cached else "fresh"
        rows.append([block.id, block.kind, block.role, _link(ctx, block.origin), f"~{block.tokens}", cached, block.why])
    settings, sent = ctx.settings, "" if ctx.account.booked else " (nothing was)"
    size = f"~{found.tokens:,} of {found.budget:,} tokens{_corrected(ctx, found)}, {found.cost.told()}"
    return Report(
        f"what {settings.model} would be sent{sent}: {size}, receipt {found.receipt[:19]}",
        *_images(ctx, found),
        ReportTable(rows, frozenset({4})),
        *(f"left out {item.id}: {item.why}" for item in found.left_out),
        *(f"red: {one.told()}" for one in found.violations),
        *(f"not sent: {told}" for told in (ctx.configuration.too_small(),) if told),
        "checks: " + ("all passed" if found.report.ok else f"{len(found.report.violations)} failed"),
        *(Preformatted(f"\n--- {block.id}\n{block.text}") for block in found.blocks),
    )


def _link(ctx: CommandContext, origin: str) -> str:
    """Return the origin of a block; that of a statement as a link to its cell."""
    statement = ctx.loop.log.get(origin.partition(".")[0])
    return CellLink(origin, statement.cell_id if statement is not None else None)


def _images(ctx: CommandContext, found: Projection) -> list[str]:
    """Return a line on the images that are sent, if there are any."""
    count, tokens = found.image_tokens
    if not count:
        return []
    return [f"images: {count}, ~{tokens:,} of {ctx.settings.image_tokens:,} tokens, {found.image_cost.told()} uncached"]


def _corrected(ctx: CommandContext, found: Projection) -> str:
    """Return the size by the model's vocabulary and the last answer's usage; empty if neither is known."""
    anchor, by_vocabulary = ctx.account.anchor, vocabulary() is not None
    if not by_vocabulary and anchor is None:
        return ""
    counted = found.counted(lambda text: estimate_tokens(text, found.model))
    by = "the model's vocabulary" if by_vocabulary else "the last answer's usage"
    return f" (~{anchor.correct(counted) if anchor is not None else counted:,} by {by})"


# -- why a block is in, or is not --------------------------------------------------------------------


def why(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """Explain why a block is in the projection; `not`: why something is left out; `stale`: the state of a cell."""
    if args[:1] == ["stale"] and len(args) > 1:  # else a block of that name
        from ctxkernel.kernel.commands.stale import why_stale

        return why_stale(ctx, args[1:])
    if flags := split_flags(args)[0]:
        raise BadCommand(f"%ctx why has no option {flags[0]}; %ctx why stale N has --json")
    if args[:1] == ["not"]:
        return _why_not(ctx, args[1:])
    if len(args) != 1:
        raise BadCommand(
            "%ctx why BLOCK: which block? %ctx projection lists them; %ctx why not NAME for what is not in"
        )
    name, found = args[0], ctx.projection()
    names = _names_of(ctx, name)
    if blocks := _blocks(found, names):
        prefixes = tuple(f"{one}:" for one in names)
        lines = [f"{one.id}: in, ~{one.tokens} tokens, from {one.origin}: {_reason(one)}" for one in blocks]
        rows = [["block", "tokens", "from", "why"]]
        rows += [[one.id, f"~{one.tokens}", _link(ctx, one.origin), _reason(one)] for one in blocks]
        left = [one for one in found.left_out if one.id.startswith(prefixes)]
        lines += [f"left out {one.id}: {one.why}" for one in left]
        rows += [[one.id, "left out", "", one.why] for one in left]
        return Report(ReportTable(rows, as_text=lines))
    left = {item.id: item.why for item in found.left_out}
    if lines := [f"{one}: left out: {left[one]}" for one in names if one in left]:
        return "\n".join(lines)
    known = [*left, *(block.id for block in found.blocks)]
    raise BadCommand(f"no block {name!r} in the projection{suggest(name, known)}; %ctx why not {name} explains it")


_REASONS = {
    "statement": "a cell on the way to HEAD, shown while the history has room",
    "question": "what you asked the model, shown while the history has room",
    "call": "what the model called, shown with its result",
    "result": "the result of a call of the model, shown with the call",
    "answer": "what the model said, shown while the history has room",
}
"""Kind of a block of the history → why it is in."""


def _reason(block: Block) -> str:
    """Return why a block is in: the reason of its kind, and what is special about this one."""
    named, _, rest = block.why.partition("; ")
    return "; ".join(filter(None, (_REASONS.get(block.kind, named), rest)))


def _names_of(ctx: CommandContext, name: str) -> tuple[str, ...]:
    """Return the blocks that `name` may mean: a block, a statement by its number, or a handle's block."""
    numbered = [f"s{name}"] if name.isdecimal() else []
    return (name, *numbered, *(f"{one.obj_type}:{one.name}" for one in _states(ctx, name)))


def _states(ctx: CommandContext, name: str) -> list[HandleState]:
    """Return the states of a handle in the last projection."""
    value = ctx.namespace.get(name)
    obj_id = value.obj_id if isinstance(value, NodeBase) else ""
    return [
        one for one in ctx.loop.state.handles if (one.obj_id == obj_id if obj_id else name in (one.name, one.obj_id))
    ]


def _blocks(found: Projection, names: Sequence[str]) -> list[Block]:
    """Return the blocks with one of these ids, else those of a statement with one of them."""
    named = [block for block in found.blocks if block.id in names or block.id.partition("#")[0] in names]
    return named or [block for block in found.blocks if block.origin in names and block.kind not in _STATELESS]


def _why_not(ctx: CommandContext, args: Sequence[str]) -> str:
    """Explain why a name, a statement, an event or a block is not in the projection."""
    if len(args) != 1:
        raise BadCommand("%ctx why not NAME: which variable, handle, statement or block? One at a time")
    name, found = args[0], ctx.projection()
    if name in ctx.configuration.private:
        return f"{name} is private: it is kept out of every projection; %ctx private {name} --off shows it again"
    names = _names_of(ctx, name)
    lines, excluded = _excluded(ctx.past, names)
    shown = {block.id for block in found.blocks}  # a view may be left out of one place, and in at another
    lines += [
        f"left out {one.id}: {one.why}"
        for one in found.left_out
        # A property that excludes an event is listed already.
        if one.id not in excluded | shown
        and {one.id, one.id.partition(":")[0], one.id.partition(".")[0]}.intersection(names)
    ]
    lines += condensed_away(ctx.past, name)
    if isinstance(value := ctx.namespace.get(name), NodeBase):
        lines += _why_no_handle(ctx, name, value, found)
    elif name in ctx.namespace:
        lines.append(_why_no_row(ctx, name))
    if lines:
        return "\n".join(dict.fromkeys(lines))
    if inside := _blocks(found, names):
        return f"{name} is in: " + "; ".join(f"{block.id} ({_reason(block)})" for block in inside[:5])
    statement_id = name.partition(".")[0].partition(":")[0]
    if ctx.loop.log.get(statement_id) is None:
        known = [*(block.id for block in found.blocks), *(one.id for one in found.left_out), *ctx.namespace]
        more = "give a variable, handle, statement or block"
        raise BadCommand(f"nothing is called {name!r}{suggest(name, known)}; {more}")
    if statement_id not in {statement.statement_id for statement, _ in ctx.loop.history}:
        return (
            f"{statement_id} is on another branch: the projection shows the way to HEAD only; "
            f"%ctx goto {statement_id} goes there"
        )
    return f"{statement_id} has no block of its own: what it records stands in the history (%ctx projection)"


def _why_no_handle(ctx: CommandContext, name: str, node: NodeBase, found: Projection) -> list[str]:
    states = _states(ctx, name)
    names = {f"{state.obj_type}:{state.name}" for state in states} | {node.obj_id}
    lines = [f"{name} is in: block {block.id} ({_reason(block)})" for block in found.blocks if block.id in names]
    inside = {block.id for block in found.blocks}
    lines += [
        f"left out {one.id}: {one.why}"
        for one in found.left_out
        if one.id.partition("#")[0] in names and one.id not in inside
    ]
    return lines if states else [*lines, f"{name} was made after the last projection; it is in the next one"]


def _why_no_row(ctx: CommandContext, name: str) -> str:
    state = ctx.loop.state
    if name in [row.name for row in state.variables]:
        return f"{name} is in: the table of variables has a row for it (%ctx why variables)"
    if name.startswith("_") or is_hidden(ctx, name):
        return f"{name} is IPython's or hidden: names that begin with _ and what IPython put there have no row"
    return (
        f"{name} has no row: the table holds the {len(state.variables)} of {state.variables_total} variables that "
        "changed last. Change it, look at it with view(…), or print what matters"
    )


def condensed_away(past: Past, name: str) -> list[str]:
    """Return which condensation or repair removed an event or a statement, a line each."""
    withdrawn = {one.target_id for one in past.events if isinstance(one, Withdrawal)}
    lines: list[str] = []
    for event in past.events:
        if isinstance(event, Condensation) and event.event_id not in withdrawn:
            gone = next((one for one in event.forgotten_event_ids if name in (one, one.partition(".")[0])), None)
            if gone is not None:
                instead = "a summary replaces it" if event.summaries else "no summary replaces it"
                undo = f"{instead}; %ctx condense --undo {event.event_id} brings it back"
                lines.append(f"{gone} was condensed in {event.event_id} ({event.reason or 'asked for'}): {undo}")
        elif isinstance(event, Repair) and name in (event.target_id, event.tool_call_id):
            lines.append(f"{event.target_id} was {event.fix} by a repair: {event.reason}")
    return lines


def _excluded(past: Past, names: Sequence[str]) -> tuple[list[str], set[str]]:
    """Return which property of the history excludes the named events, a line each; and the ids of these events."""
    shown = {event.event_id for event in past.view.events}
    shown.update(one for made in past.view.condensations for one in made.forgotten_event_ids)
    source: Events = [event for event in past.events if event.place != "meta"]
    wanted = {
        one.event_id: one for one in source if one.event_id not in shown and _event_names(one).intersection(names)
    }
    excluded: dict[str, str] = {}
    events = source
    for rule in past.properties if wanted else ():
        if not isinstance(rule, Condensations):
            events = rule.enforce(events, source)
        left = wanted.keys() - excluded.keys() - {event.event_id for event in events}
        excluded |= dict.fromkeys(left, getattr(rule, "name", "") or type(rule).__name__)
    answered = {event.tool_call_id for event in source if isinstance(event, RESULTS)}
    called = {event.tool_call_id for event in source if isinstance(event, Action)}
    lines: list[str] = []
    for event_id, event in list(wanted.items())[:8]:
        if isinstance(event, Action) and event.tool_call_id not in answered:
            lines.append(f"{event_id} waits for its result: a call is shown with its results only")
        elif isinstance(event, RESULTS) and event.tool_call_id not in called:
            lines.append(f"{event_id} is the result of {event.tool_call_id}, and no such call is in the history")
        elif event_id in excluded:
            lines.append(f"{event_id}: left out by a property: {excluded[event_id]} (%ctx properties)")
    return lines, set(excluded)


def _event_names(event: HistoryEvent) -> set[str]:
    return {event.event_id, event.event_id.partition(".")[0], getattr(event, "tool_call_id", "")}


# -- comparing ---------------------------------------------------------------------------------------


def diff_projections(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """Compare two projections: `diff projection s10 s14`, or one with the newest."""
    flags, rest = split_flags(args)
    if not 1 <= len(rest) <= 2:
        raise BadCommand("%ctx diff projection N [M]: after which statements? %ctx timeline lists them")
    old = stored_projection(ctx.store.path, rest[0])
    new = stored_projection(ctx.store.path, rest[1]) if len(rest) == 2 else ctx.projection()
    found = compare_projections(old, new)
    if "--json" in flags:
        return json.dumps(found.to_json(), indent=1)
    return comparison_report(found, rest[0], rest[1] if len(rest) == 2 else "now", old.tokens, new.tokens)


def comparison_report(found: ProjectionComparison, old: str, new: str, before: int, after: int) -> Report:
    """Return a comparison of two projections."""
    a, b = found.costs
    lines = [
        f"{old} → {new}: ~{before:,} → ~{after:,} tokens ({found.tokens:+,}); alone {a.told()} → {b.told()}",
        f"sent right after {old}: {found.cost_after.told()}; ~{found.prefix_tokens:,} tokens come from the cache"
        + (f", which breaks at {found.breaks_at}" if found.breaks_at else ": nothing differs"),
    ]
    rows = [["", "block", "kind", "from", "tokens"]]
    for one in found.changes[:TEXT_LINES]:
        sign = "+" if one.before is None else "-" if one.after is None else "~"
        sizes = " → ".join(f"~{size:,}" for size in (one.before, one.after) if size is not None)
        rows.append([sign, one.id, one.kind, one.origin, sizes])
    table = [ReportTable(rows, frozenset({4}))] if found.changes else []
    left = len(found.changes) - TEXT_LINES
    return Report(*lines, *table, f"… {left} more; --json has all" if left > 0 else "")
