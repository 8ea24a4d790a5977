"""The commands on the projection and on the model's history: what stands in it, why, what else it could be.

    projection  why  whatif  diff projection      look, and change nothing
    condense  redact  pin  unpin                  record an event of the history, with the statement they are in

Rule 1: a command gets words and returns a text; it raises BadCommand with the next move.
Rule 2: nothing is changed here: an event is recorded, and what it does is seen in the projection after the cell.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.nodes import NodeBase, ViewHandle
from ctxkernel.core.nodes.stand_ins import suppose
from ctxkernel.core.nodes.states import handle_state
from ctxkernel.core.ports import All
from ctxkernel.core.settings import Settings
from ctxkernel.core.text import format_table, one_line, suggest
from ctxkernel.core.turn import HandleState, Turn
from ctxkernel.history.events import (
    RESULTS,
    Action,
    Condensation,
    CondensationRequest,
    Events,
    HistoryEvent,
    Pin,
    Redaction,
    Repair,
    Withdrawal,
    content_of,
)
from ctxkernel.history.invariants import Condensations
from ctxkernel.history.redact_tool import Acknowledged, Refusal, validate
from ctxkernel.projection.compare import Comparison, compare
from ctxkernel.projection.displayed_tokens import estimate_tokens, vocabulary
from ctxkernel.projection.engine import Projection
from ctxkernel.projection.history import Past
from ctxkernel.projection.layout import clean
from ctxkernel.projection.secrets import mask
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.projection.value import Block
from ctxkernel.store.log.reader import stored_projection

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

_YES, _NO = ("1", "yes", "true", "on"), ("0", "no", "false", "off")
TEXT_LINES = 40
"""Most rows of a comparison that are shown."""


def _projection(ctx: Runtime) -> Projection:
    projection = ctx.loop.projection
    if projection is None:
        raise BadCommand("there is no projection yet: run a cell first")
    return projection


def _past(ctx: Runtime) -> Past:
    return ctx.engine.past


def _split(args: Sequence[str], known: Sequence[str], sub: str) -> tuple[list[str], list[str]]:
    flags = [arg for arg in args if arg.startswith("--")]
    for flag in flags:
        if flag not in known:
            raise BadCommand(f"%ctx {sub} has no option {flag}; it has {', '.join(known) or 'none'}")
    return flags, [arg for arg in args if not arg.startswith("--")]


# -- looking -----------------------------------------------------------------------------------------


def projection(ctx: Runtime, args: Sequence[str]) -> str:
    """Show what the model would be sent, block by block."""
    flags, rest = _split(args, ("--json",), "projection")
    if rest:
        raise BadCommand(
            f"%ctx projection takes no name: %ctx why {rest[0]} says what is in, %ctx diff projection N compares"
        )
    found = _projection(ctx)
    if "--json" in flags:
        return json.dumps(found.to_json(), indent=1)
    rows = [["block", "kind", "role", "from", "tokens", "", "why"]]
    for block in found.blocks:
        cached = "cached" if block.cached else "fresh"
        rows.append(
            [block.id, block.kind, block.role, block.origin, f"~{block.tokens}", cached, one_line(block.why, 60)]
        )
    size = f"~{found.tokens:,} of {ctx.settings.projection_tokens:,} tokens{_nearer(ctx, found)}, {found.cost.told()}"
    sent = "" if ctx.asked is not None and ctx.asked.spent else " (nothing was)"
    lines = [
        f"what {ctx.settings.model} would be sent{sent}: {size}, receipt {found.receipt[:19]}",
        format_table(rows),
    ]
    lines += [f"left out {item.id}: {item.why}" for item in found.left_out]
    lines += [f"red: {one.told()}" for one in found.violations]
    lines.append("checks: " + ("all passed" if found.report.ok else f"{len(found.report.violations)} failed"))
    lines += [f"\n--- {block.id}\n{block.text}" for block in found.blocks]
    return "\n".join(lines)


def _nearer(ctx: Runtime, found: Projection) -> str:
    """Return what it takes by the vocabulary of the model and the usage of the last answer, where either is there."""
    if vocabulary() is None and ctx.anchor is None:
        return ""
    counted = sum(estimate_tokens(text, found.model) for text in found.sent)  # each is counted once, and then known
    by = "the model's vocabulary" if vocabulary() is not None else "the last answer's usage"
    return f" (~{ctx.anchor.correct(counted) if ctx.anchor is not None else counted:,} by {by})"


def why(ctx: Runtime, args: Sequence[str]) -> str:
    """Say why a block is in the projection; with `not`, why something is left out of it."""
    if args[:1] == ["not"]:
        return _why_not(ctx, args[1:])
    _, rest = _split(args, (), "why")
    if len(rest) != 1:
        raise BadCommand(
            "%ctx why BLOCK: which block? %ctx projection lists them; %ctx why not NAME for what is not in"
        )
    name, found = rest[0], _projection(ctx)
    names = _names_of(ctx, name)
    blocks = _blocks(found, names)
    if blocks:
        lines = [f"{one.id}: in, ~{one.tokens} tokens, from {one.origin}: {one.why}" for one in blocks]
        parts = tuple(f"{one}:" for one in names)
        lines += [f"left out {one.id}: {one.why}" for one in found.left_out if one.id.startswith(parts)]
        return "\n".join(lines)
    left = {item.id: item.why for item in found.left_out}
    if told := [f"{one}: left out: {left[one]}" for one in names if one in left]:
        return "\n".join(told)
    known = [*left, *(block.id for block in found.blocks)]
    raise BadCommand(f"no block {name!r} in the projection{suggest(name, known)}; %ctx why not {name} looks further")


_OF_THE_STATE = ("handles", "variables", "deltas", "view", "group", "note", "shown", "status", "system")
"""Kinds of blocks that no statement stands in."""


def _names_of(ctx: Runtime, name: str) -> tuple[str, ...]:
    """Return what a person who says `name` may mean: a block, a statement by its number, or a handle's block."""
    value = ctx.shell.user_ns.get(name)
    states = ctx.loop.state.handles
    if isinstance(value, NodeBase):
        found = [state for state in states if state.obj_id == value.obj_id]
    else:
        found = [state for state in states if name in (state.name, state.obj_id)]
    return (name, *([f"s{name}"] if name.isdecimal() else []), *(f"{one.obj_type}:{one.name}" for one in found))


def _blocks(found: Projection, names: Sequence[str]) -> list[Block]:
    """Return the blocks with one of these ids; where there are none, those of the statement that is meant."""
    named = [block for block in found.blocks if block.id in names or block.id.partition("#")[0] in names]
    return named or [block for block in found.blocks if block.origin in names and block.kind not in _OF_THE_STATE]


def _why_not(ctx: Runtime, args: Sequence[str]) -> str:
    """Say why a name, a statement, an event or a block is not in the projection."""
    _, rest = _split(args, (), "why not")
    if len(rest) != 1:
        raise BadCommand("%ctx why not NAME: which variable, handle, statement or block? One at a time")
    name, found, loop = rest[0], _projection(ctx), ctx.loop
    names = _names_of(ctx, name)
    inside = _blocks(found, names)
    told, ruled = _ruled_out(ctx, names)
    for one in found.left_out:
        at_all = one.id in ruled  # a property leaves it out, and which one is said already
        if not at_all and any(word in (one.id, one.id.partition(":")[0], one.id.partition(".")[0]) for word in names):
            told.append(f"left out {one.id}: {one.why}")
    told += _condensed_away(ctx, name)
    value = ctx.shell.user_ns.get(name)
    if isinstance(value, NodeBase):
        states = [state for state in loop.state.handles if state.obj_id == value.obj_id]
        names = {f"{state.obj_type}:{state.name}" for state in states} | {value.obj_id}
        told += [f"left out {one.id}: {one.why}" for one in found.left_out if one.id.partition("#")[0] in names]
        told += [f"block {block.id} is in: {block.why}" for block in found.blocks if block.id in names]
        if not states:
            told.append(f"{name} was made after the last projection; it is in the next one")
    elif name in ctx.shell.user_ns:
        rows = [row.name for row in loop.state.variables]
        if name in rows:
            told.append(f"{name} is in: the table of variables has a row for it (%ctx why variables)")
        elif name.startswith("_") or name in ctx.shell.user_ns_hidden:
            told.append(
                f"{name} is IPython's or hidden: names that begin with _ and what IPython put there have no row"
            )
        else:
            told.append(
                f"{name} has no row: the table holds the {len(rows)} of {loop.state.variables_total} variables that "
                "changed last. Change it, look at it with view(…), or print what matters"
            )
    if told:
        return "\n".join(dict.fromkeys(told))
    if inside:
        return f"{name} is in: " + "; ".join(f"{block.id} ({block.why})" for block in inside[:5])
    log = loop.log
    sid = name.partition(".")[0].partition(":")[0]
    if log.get(sid) is not None:
        here = {statement.statement_id for statement, _ in loop.history}
        if sid not in here:
            return f"{sid} is on another branch: the projection shows the way to HEAD only; %ctx goto {sid} goes there"
        return f"{sid} has no block of its own: what it records stands in the history (%ctx projection)"
    known = [*(block.id for block in found.blocks), *(one.id for one in found.left_out), *ctx.shell.user_ns]
    raise BadCommand(f"nothing is called {name!r}{suggest(name, known)}; give a variable, handle, statement or block")


def _condensed_away(ctx: Runtime, name: str) -> list[str]:
    past = _past(ctx)
    withdrawn = {one.target_id for one in past.events if isinstance(one, Withdrawal)}
    told: list[str] = []
    for event in past.events:
        if isinstance(event, Condensation) and event.event_id not in withdrawn:
            gone = [one for one in event.forgotten_event_ids if name in (one, one.partition(".")[0])]
            if gone:
                kept = f"a summary stands for it; %ctx condense --undo {event.event_id} brings it back"
                told.append(f"{gone[0]} was condensed in {event.event_id} ({event.reason or 'asked for'}): {kept}")
        elif isinstance(event, Repair) and name in (event.target_id, event.tool_call_id):
            told.append(f"{event.target_id} was {event.fix} by a repair: {event.reason}")
    return told


def _ruled_out(ctx: Runtime, names: Sequence[str]) -> tuple[list[str], set[str]]:
    """Say which property of the history leaves out the events that are meant; with their ids."""
    past = _past(ctx)
    away = {event.event_id for event in past.view.events}
    away.update(one for made in past.view.condensations for one in made.forgotten_event_ids)
    events: Events = [event for event in past.events if event.place != "meta"]
    source = events
    wanted: dict[str, HistoryEvent] = {
        event.event_id: event
        for event in events
        if event.event_id not in away
        and any(
            word in (event.event_id, event.event_id.partition(".")[0], getattr(event, "tool_call_id", ""))
            for word in names
        )
    }
    told: list[str] = []
    by: dict[str, str] = {}
    for one in past.properties if wanted else ():
        if not isinstance(one, Condensations):
            events = one.enforce(events, source)
        kept = {event.event_id for event in events}
        rule = getattr(one, "name", "") or type(one).__name__
        for event_id in wanted.keys() - by.keys() - kept:
            by[event_id] = rule
    answered = {event.tool_call_id for event in source if isinstance(event, RESULTS)}
    called = {event.tool_call_id for event in source if isinstance(event, Action)}
    for event_id, event in list(wanted.items())[:8]:
        if isinstance(event, Action) and event.tool_call_id not in answered:
            told.append(f"{event_id} waits for its result: a call is shown with its results only")
        elif isinstance(event, RESULTS) and event.tool_call_id not in called:
            told.append(f"{event_id} is the result of {event.tool_call_id}, and no such call is in the history")
        elif event_id in by:
            told.append(f"{event_id}: left out by a property: {by[event_id]} (%ctx properties)")
    return told, by.keys() & wanted.keys()


# -- comparing ---------------------------------------------------------------------------------------


def diff(ctx: Runtime, args: Sequence[str]) -> str:
    """Compare two projections: `diff projection s10 s14`, or one with that of now."""
    flags, rest = _split(args, ("--json",), "diff projection")
    if not 1 <= len(rest) <= 2:
        raise BadCommand("%ctx diff projection N [M]: after which statements? %ctx timeline lists them")
    old = stored_projection(ctx.store.path, rest[0])
    new = stored_projection(ctx.store.path, rest[1]) if len(rest) == 2 else _projection(ctx)
    found = compare(old, new)
    if "--json" in flags:
        return json.dumps(found.to_json(), indent=1)
    return comparison_text(found, rest[0], rest[1] if len(rest) == 2 else "now", old.tokens, new.tokens)


def comparison_text(found: Comparison, old: str, new: str, before: int, after: int) -> str:
    """Return a comparison as people read it."""
    a, b = found.costs
    lines = [
        f"{old} → {new}: ~{before:,} → ~{after:,} tokens ({found.tokens:+,}); alone {a.told()} → {b.told()}",
        f"sent right after {old}: {found.cost_after.told()}; ~{found.prefix_tokens:,} tokens come from the cache"
        + (f", which breaks at {found.breaks_at}" if found.breaks_at else ": nothing differs"),
    ]
    rows: list[list[str]] = []
    for one in found.changes[:TEXT_LINES]:
        sign = "+" if one.before is None else "-" if one.after is None else "~"
        sizes = " → ".join(f"~{size:,}" for size in (one.before, one.after) if size is not None)
        rows.append([sign, one.id, one.kind, one.origin, sizes])
    if rows:
        lines.append(format_table([["", "block", "kind", "from", "tokens"], *rows]))
    if len(found.changes) > TEXT_LINES:
        lines.append(f"… {len(found.changes) - TEXT_LINES} more; --json has all")
    return "\n".join(lines)


def whatif(ctx: Runtime, args: Sequence[str]) -> str:
    """Say what the projection would be with some things otherwise; nothing is applied."""
    flags, rest = _split(args, ("--json",), "whatif")
    usage = (
        "%ctx whatif HANDLE.lod=1 HANDLE.tokens=300 HANDLE.pinned=yes budget=64000 model=NAME redact=s12 condense=now"
    )
    if not rest:
        raise BadCommand(f"{usage}: what should be otherwise?")
    turn, settings = ctx.loop.state, ctx.settings
    events: list[HistoryEvent] = []
    supposed: dict[str, dict[str, Any]] = {}
    for word in rest:
        key, sign, value = word.partition("=")
        if not sign or not value:
            raise BadCommand(f"%ctx whatif {word}: write NAME=VALUE; {usage}")
        name, dot, attribute = key.rpartition(".")
        if dot:
            node, meant = _handle_policy(ctx, name, attribute, value)
            # What was supposed of it before counts too: `h.lod=1 h.tokens=300` is one question.
            supposed.setdefault(node.obj_id, {})["shown" if attribute == "requested" else attribute] = meant
        elif key in ("redact", "condense"):
            events.append(_supposed(ctx, key, value))
        else:
            settings = _with_setting(settings, key, value, usage)
    if supposed:
        turn = with_handles(turn, ctx.loop.graph.nodes(), supposed)
    old = _projection(ctx)
    try:
        engine = ctx.configuration.built(settings)
    except CtxError as fault:
        raise BadCommand(str(fault)) from None
    if events and turn.history:
        last = turn.history[-1][1].execution_id
        turn = dataclasses.replace(turn, records={**turn.records, last: [*turn.records.get(last, ()), *events]})
        made = [one for one in engine.tend(turn) if not isinstance(one, str)]
        turn = dataclasses.replace(turn, records={**turn.records, last: [*turn.records[last], *made]})
    new = engine.project(turn)
    found = compare(old, new)
    if "--json" in flags:
        return json.dumps(found.to_json(), indent=1)
    text = comparison_text(found, "now", " ".join(rest), old.tokens, new.tokens)
    red = [f"red: {one.told()}" for one in new.violations]
    return "\n".join([text, *red, "nothing was applied"])


def _handle_policy(ctx: Runtime, name: str, attribute: str, value: str) -> tuple[NodeBase, Any]:
    """Return the handle that is meant, and the value as `set` takes it. Raises BadCommand."""
    node = ctx.shell.user_ns.get(name)
    node = node if isinstance(node, NodeBase) else ctx.loop.graph.node(name)
    if node is None:
        names = [state.name for state in ctx.loop.ls()]
        raise BadCommand(f"%ctx whatif {name}.{attribute}: no handle {name!r}{suggest(name, names)}; ls() lists them")
    match attribute:
        case "lod" | "tokens":
            return node, All if (attribute, value) == ("tokens", str(All)) else _number(value, name, attribute)
        case "pos" if not isinstance(node, ViewHandle):
            raise BadCommand(f"%ctx whatif {name}.pos: a {node.obj_type} has no position")
        case "pos":
            return node, value
        case "mode" | "freq":
            values = {"mode": ("paused", "running"), "freq": ("Sync", "Async")}[attribute]
            if value not in values and not (attribute == "freq" and value.startswith("Periodic(")):
                raise BadCommand(f"%ctx whatif {name}.{attribute}={value}: say {' or '.join(values)}")
            return node, value
        case "pinned" | "shown" | "requested":
            return node, _yes(value, f"{name}.{attribute}")
        case _:
            raise BadCommand(f"%ctx whatif {name}.{attribute}: say lod, tokens, pos, mode, freq, pinned or shown")


def with_handles(turn: Turn, nodes: Iterable[NodeBase], policies: Mapping[str, Mapping[str, Any]]) -> Turn:
    """Return `turn` as it would be if its cell had set `policies` (by obj_id) too, groups over these handles included.

    `shown` in a policy is what `show(h)` asks for. Nothing is changed. Raises BadPolicy, BadCommand.
    """
    there = {state.obj_id for state in turn.handles}
    for obj_id in policies:
        if obj_id not in there:
            raise BadCommand(f"%ctx whatif {obj_id}: it is not in the projection yet; run a cell first")
    own = {obj_id: {k: v for k, v in policy.items() if k != "shown"} for obj_id, policy in policies.items()}
    found = suppose(nodes, own)
    states: list[HandleState] = []
    for state in turn.handles:
        node, policy = found.get(state.obj_id), policies.get(state.obj_id, {})
        shown = policy.get("shown", state.requested)
        states.append(state if node is None else handle_state(node, state.name, shown))
    return dataclasses.replace(turn, handles=tuple(states))


def _yes(value: str, key: str) -> bool:
    if value.lower() not in (*_YES, *_NO):
        raise BadCommand(f"%ctx whatif {key}={value}: say yes or no")
    return value.lower() in _YES


def _number(value: str, name: str, attribute: str) -> int:
    if not value.lstrip("-").isdecimal():
        raise BadCommand(f"%ctx whatif {name}.{attribute}={value}: give a whole number")
    return int(value)


def _with_setting(settings: Settings, key: str, value: str, usage: str) -> Settings:
    match key:
        case "budget" | "projection_tokens":
            return dataclasses.replace(settings, projection_tokens=_number(value.replace("_", ""), "", "budget"))
        case "model":
            return dataclasses.replace(settings, model=value)
        case "dialect":
            return dataclasses.replace(settings, dialect=value)
        case _:
            raise BadCommand(f"%ctx whatif {key}={value}: what is {key!r}? {usage}")


def _supposed(ctx: Runtime, key: str, value: str) -> HistoryEvent:
    if key == "condense":
        if value.lower() not in ("now", *_YES):
            raise BadCommand(f"%ctx whatif condense={value}: say condense=now, or leave it out")
        return CondensationRequest("whatif~condense", "what if")
    made = _directive(ctx, _event_id(ctx, value), "superseded", "whatif~redact")
    if not isinstance(made, Redaction):
        raise BadCommand(f"%ctx whatif redact={value}: it is redacted already")
    return made


# -- recording ---------------------------------------------------------------------------------------


def _event_id(ctx: Runtime, word: str) -> str:
    """Return the event that a person means: its id, or the newest execution of a statement."""
    past = _past(ctx)
    if any(event.event_id == word for event in past.shown):
        return word
    sid = word if word.startswith("s") else f"s{word}"
    found = [event.event_id for event in past.shown if event.event_id.startswith(f"{sid}.")]
    if found:
        return found[-1]
    if gone := _condensed_away(ctx, word) or _condensed_away(ctx, sid):
        raise BadCommand(gone[0])
    if any(event.event_id == word for event in past.events):
        return word
    shown = [event.event_id for event in past.shown]
    raise BadCommand(f"no event {word!r} is shown{suggest(word, shown)}; %ctx projection lists them")


def _means(word: str, event_id: str) -> bool:
    """Whether a person who says `word` means this event: by its id, or by its statement's, with or without the s."""
    statement = event_id.partition(".")[0]
    return word in (event_id, statement, statement.removeprefix("s"))


def _next_id(ctx: Runtime) -> str:
    """Return the id that the next event has. Raises BadCommand where no statement is open to record it with."""
    try:
        return ctx.loop.next_event_id
    except RuntimeError:
        raise BadCommand("this changes the history, which a cell only can: run it in a cell of its own") from None


def _apart(ctx: Runtime, *words: str) -> None:
    """Raise BadCommand where this cell has said something about one of these already: that is not in force yet."""
    past = _past(ctx)
    directives = {one.event_id: one.target_id for one in past.events if isinstance(one, Redaction)}
    touched: set[str] = set()
    for one in ctx.loop.log.records.get(_next_id(ctx).rpartition(":")[0], ()):
        match one:
            case Redaction():
                touched |= {one.event_id, one.target_id}
            case Withdrawal():
                touched |= {one.target_id, directives.get(one.target_id, "condense")}
            case Pin():
                touched.add(one.target_id)
            case CondensationRequest():
                touched.add("condense")
            case _:
                pass
    for word in words:
        if any(_means(word, one) for one in touched):
            told = "a condensation" if word == "condense" else word
            raise BadCommand(f"this cell has a command on {told} already: one at a time, run it in a cell of its own")


def _one_of(flags: Sequence[str], sub: str) -> None:
    if len(set(flags)) > 1:
        raise BadCommand(f"%ctx {sub} {' '.join(flags)}: say one of them at a time")


def condense(ctx: Runtime, args: Sequence[str]) -> str:
    """Ask for a condensation, take one back, or show what one stands for."""
    flags, rest = _split(args, ("--undo", "--show", "--list"), "condense")
    _one_of(flags, "condense")
    past = _past(ctx)
    if not flags or "--undo" in flags:
        _apart(ctx, "condense")
    withdrawn = {one.target_id for one in past.events if isinstance(one, Withdrawal)}
    made = [
        one
        for one in past.events
        if isinstance(one, Condensation) and one.event_id not in withdrawn and one.forgotten_event_ids
    ]
    if not flags:
        ctx.loop.record(CondensationRequest(_next_id(ctx), mask(" ".join(rest))))
        return (
            "the history will be condensed at the end of this cell; %ctx condense --show opens it, --undo takes it back"
        )
    if not made:
        raise BadCommand("nothing is condensed; %ctx condense asks for it")
    if "--list" in flags:
        rows = [["condensation", "events", "why"]]
        rows += [[one.event_id, str(len(one.forgotten_event_ids)), one.reason or "asked for"] for one in made]
        return format_table(rows)
    chosen = made[-1]
    if rest:
        named = [one for one in made if rest[0] in (one.event_id, one.event_id.partition(".")[0])]
        if not named:
            raise BadCommand(f"no condensation {rest[0]!r}{suggest(rest[0], [one.event_id for one in made])}")
        chosen = named[-1]
    if "--undo" in flags:
        ctx.loop.record(Withdrawal(_next_id(ctx), chosen.event_id, "asked for"))
        many = len(chosen.forgotten_event_ids)
        return f"{chosen.event_id} is taken back: its {many} events stand in the projection after this cell"
    gone = set(chosen.forgotten_event_ids)
    lines = [f"{chosen.event_id} stands for {len(gone)} events ({chosen.reason or 'asked for'})"]
    lines += [f"--- summary\n{one.text}" for one in chosen.summaries]
    lines += [f"--- {event.event_id}\n{content_of(event)}" for event in past.events if event.event_id in gone]
    return "\n".join(lines)


def redact(ctx: Runtime, args: Sequence[str]) -> str:
    """Put a note in the place of an output, or take that back."""
    flags, rest = _split(args, ("--undo", "--list"), "redact")
    _one_of(flags, "redact")
    live = _past(ctx).redactions.live
    if "--list" in flags:
        if not live:
            return "nothing is redacted"
        rows = [["directive", "output", "by", "summary"]]
        rows += [[one.event_id, one.target_id, one.by, one_line(one.summary_text, 60)] for one in live.values()]
        return format_table(rows)
    if not rest:
        raise BadCommand("%ctx redact N SUMMARY: which statement or event, and what mattered in its output?")
    _apart(ctx, rest[0])
    when = "after this cell" if _past(ctx).redactions.at_boundary else "when the open loop of calls has ended"
    if "--undo" in flags:
        named = [
            one
            for one in live.values()
            if rest[0]
            in (one.event_id, one.target_id, one.target_id.partition(".")[0], one.target_id.partition(".")[0][1:])
        ]
        if not named:
            raise BadCommand(f"%ctx redact --undo {rest[0]}: it is not redacted; %ctx redact --list shows what is")
        ctx.loop.record(Withdrawal(_next_id(ctx), named[-1].event_id, "asked for"))
        return f"{named[-1].target_id}: its output stands in the projection {when}"
    event_id = _event_id(ctx, rest[0])
    if not "".join(rest[1:]).strip():
        raise BadCommand(f"%ctx redact {rest[0]}: give a summary after it: %ctx redact {rest[0]} WHAT MATTERED IN IT")
    _apart(ctx, event_id)
    made = _directive(ctx, event_id, " ".join(rest[1:]), _next_id(ctx))
    if isinstance(made, Acknowledged):
        return f"{made.event_id} is redacted already, by {made.directive_id}"
    ctx.loop.record(made)
    return f"{made.target_id}: its output is a note {when}; %ctx redact --undo {rest[0]} takes it back"


def _directive(ctx: Runtime, event_id: str, summary: str, directive_id: str) -> Redaction | Acknowledged:
    past, most = _past(ctx), ctx.settings.statement_tokens

    def count(text: str) -> int:
        """Return the tokens that are sent of an output, or of a note."""
        return min(count_tokens(clean(text).text), most)

    made = validate(
        event_id,
        mask(summary),
        shown=past.shown,
        redactions=past.redactions,
        by="human",
        directive_id=directive_id,
        count=count,
        pinned=past.pins,
    )
    if isinstance(made, Refusal):
        raise BadCommand(f"%ctx redact: {made.message.replace('summary_text', 'the summary')}")
    return made


def pin(ctx: Runtime, args: Sequence[str], verb: str) -> str:
    """Pin a handle, or a statement or event of the history; or let it go."""
    if not args:
        raise BadCommand(f"%ctx {verb} NAME: which handle or statement? ls() and %ctx timeline list them")
    value = ctx.shell.user_ns.get(args[0])
    node = value if isinstance(value, NodeBase) else ctx.loop.graph.node(args[0])
    reason = mask(" ".join(args[1:]))
    if len(args) == 2 and _names_something(ctx, args[1]):
        raise BadCommand(f"%ctx {verb} takes one name, then a reason: run %ctx {verb} {args[1]} besides")
    if node is not None:
        if verb == "pin":
            node.pin(reason)
        else:
            node.unpin()
        return f"{args[0]} is {'pinned' if node.pinned else 'not pinned'}"
    pins = _past(ctx).pins
    _apart(ctx, args[0])
    if verb == "unpin":
        named = [one for one in pins if _means(args[0], one)]
        if not named:
            raise BadCommand(f"{args[0]} is not pinned; pinned are {', '.join(pins) or 'no statements'}")
        ctx.loop.record(Pin(_next_id(ctx), named[0], False))
        return f"{named[0]} is not pinned"
    try:
        event_id = _event_id(ctx, args[0])
    except BadCommand as fault:
        if "condensed" in str(fault):
            raise
        names = [*(state.name for state in ctx.loop.ls()), *(event.event_id for event in _past(ctx).shown)]
        raise BadCommand(f"no handle or statement {args[0]!r}{suggest(args[0], names)}; ls() lists handles") from None
    ctx.loop.record(Pin(_next_id(ctx), event_id, True, reason))
    return f"{event_id} is pinned: it is never condensed, masked or redacted"


def _names_something(ctx: Runtime, word: str) -> bool:
    """Whether a word is a handle, or an event or statement of the history."""
    if isinstance(ctx.shell.user_ns.get(word), NodeBase) or ctx.loop.graph.node(word) is not None:
        return True
    return any(_means(word, event.event_id) for event in _past(ctx).events)


def complete(ctx: Runtime, sub: str, words: Sequence[str]) -> list[str]:
    """Return what may follow a command of this module."""
    past, projection = _past(ctx), ctx.loop.projection
    events = [event.event_id for event in past.shown][-50:]
    handles = [state.name for state in ctx.loop.ls()]
    match sub:
        case "why" if words[2:3] == ["not"]:
            left = [one.id for one in projection.left_out] if projection is not None else []
            return [*left, *(name for name in ctx.shell.user_ns if not name.startswith("_"))]
        case "why":
            return ["not", *(block.id for block in projection.blocks)] if projection is not None else ["not"]
        case "redact":
            return ["--undo", "--list", *events]
        case "condense":
            return ["--undo", "--show", "--list"]
        case "pin":
            return [*handles, *events]
        case "unpin":
            return [*handles, *past.pins]
        case "whatif":
            return [
                *(
                    f"{state.name}.{what}="
                    for state in ctx.loop.ls()
                    for what in ("lod", "tokens", "pos", "pinned", "shown")
                    if what != "pos" or state.obj_type == "view"
                ),
                *_SUPPOSED,
            ]
        case _:
            return []


SUPPOSED_VALUES = {
    "lod": ("0", "1", "2", "3"),
    "tokens": ("All", "300", "1000"),
    "mode": ("paused", "running"),
    "freq": ("Sync", "Async"),
    "pinned": ("yes", "no"),
    "shown": ("yes", "no"),
}
"""What may be supposed of a handle."""
_SUPPOSED: Any = ("budget=", "model=", "dialect=", "redact=", "condense=1")
