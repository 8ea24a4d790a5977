"""Commands that record an event of the model's history: `condense`, `redact`, `pin`, `unpin`.

Rule 1: a command changes nothing itself: it records an event with the statement that contains it, and the projection
        after the cell shows the effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.text import format_table, join_names, one_line, suggest
from ctxkernel.history.events import (
    Condensation,
    CondensationRequest,
    HumanStatement,
    Pin,
    Redaction,
    Withdrawal,
    content_of,
)
from ctxkernel.history.redact_tool import Acknowledged, Refusal, validate
from ctxkernel.kernel.commands.context import CommandContext, matches, split_flags
from ctxkernel.kernel.commands.inspection import condensed_away
from ctxkernel.projection.layout import clean
from ctxkernel.projection.tokens import count_tokens


def event_named(ctx: CommandContext, word: str) -> str:
    """Return the event that a person means: its id, or the newest execution of a statement. Raises BadCommand."""
    past = ctx.past
    shown = [event.event_id for event in past.shown]
    if word in shown:
        return word
    statement_id = word if word.startswith("s") else f"s{word}"
    if found := [event_id for event_id in shown if event_id.startswith(f"{statement_id}.")]:
        return found[-1]
    if gone := condensed_away(past, word) or condensed_away(past, statement_id):
        raise BadCommand(gone[0])
    if any(event.event_id == word for event in past.events):
        return word
    raise BadCommand(f"no event {word!r} is shown{suggest(word, shown)}; %ctx projection lists them")


def _next_id(ctx: CommandContext) -> str:
    """Return the id of the next event. Raises BadCommand if no statement is open to record it."""
    try:
        return ctx.loop.next_event_id
    except RuntimeError:
        raise BadCommand("this command changes the history: run it in a cell of its own") from None


def _require_untouched(ctx: CommandContext, *words: str) -> None:
    """Raise BadCommand if this cell has a command on one of these already: that is not in effect yet."""
    directives = {one.event_id: one.target_id for one in ctx.past.events if isinstance(one, Redaction)}
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
        if any(matches(word, one) for one in touched):
            target = "a condensation" if word == "condense" else word
            raise BadCommand(f"this cell has a command on {target} already: one at a time, run it in a cell of its own")


def _only_option(flags: Iterable[str], sub: str) -> str:
    """Return the option of a command that takes one at a time; empty for none. Raises BadCommand for two."""
    given = dict.fromkeys(flags)
    if len(given) > 1:
        raise BadCommand(f"%ctx {sub} {' '.join(given)}: use one option at a time")
    return "".join(given)


def condense(ctx: CommandContext, args: Sequence[str]) -> str:
    """Ask for a condensation, leave one statement out, take this back, or show the events behind it."""
    flags, rest = split_flags(args)
    flag = _only_option(flags, "condense")
    past = ctx.past
    if flag == "--leave":
        return _leave_out(ctx, rest)
    if flag in ("", "--undo"):
        _require_untouched(ctx, "condense")
    if not flag:
        ctx.loop.record(CondensationRequest(_next_id(ctx), ctx.masker(" ".join(rest))))
        return (
            "the history will be condensed at the end of this cell; %ctx condense --show opens it, --undo takes it back"
        )
    withdrawn = {one.target_id for one in past.events if isinstance(one, Withdrawal)}
    made = [
        one
        for one in past.events
        if isinstance(one, Condensation) and one.event_id not in withdrawn and one.forgotten_event_ids
    ]
    if not made:
        raise BadCommand("nothing is condensed; %ctx condense asks for it")
    if flag == "--list":
        rows = [[one.event_id, str(len(one.forgotten_event_ids)), one.reason or "asked for"] for one in made]
        return format_table([["condensation", "events", "why"], *rows])
    named = [one for one in made if not rest or rest[0] in (one.event_id, one.event_id.partition(".")[0])]
    if not named:
        raise BadCommand(f"no condensation {rest[0]!r}{suggest(rest[0], [one.event_id for one in made])}")
    chosen = named[-1]
    gone = set(chosen.forgotten_event_ids)
    if flag == "--undo":
        ctx.loop.record(Withdrawal(_next_id(ctx), chosen.event_id, "asked for"))
        return f"{chosen.event_id} is taken back: its {len(gone)} events are in the projection again after this cell"
    lines = [f"{chosen.event_id} stands for {len(gone)} events ({chosen.reason or 'asked for'})"]
    lines += [f"--- summary\n{one.text}" for one in chosen.summaries]
    lines += [f"--- {event.event_id}\n{content_of(event)}" for event in past.events if event.event_id in gone]
    return "\n".join(lines)


def _leave_out(ctx: CommandContext, words: Sequence[str]) -> str:
    if len(words) != 1:
        raise BadCommand("%ctx condense --leave N: name one statement; %ctx projection lists them")
    event_id = event_named(ctx, words[0])
    _require_untouched(ctx, words[0], event_id)
    made = left_out_event(ctx, event_id, _next_id(ctx))
    ctx.loop.record(made)
    return f"{event_id} is left out after this cell; %ctx condense --undo {made.event_id} brings it back"


def left_out_event(ctx: CommandContext, event_id: str, condensation_id: str) -> Condensation:
    """Return the condensation that removes one statement, without a summary. Raises BadCommand."""
    event = next((one for one in ctx.past.shown if one.event_id == event_id), None)
    if not isinstance(event, HumanStatement):
        raise BadCommand(f"{event_id} is not a statement of yours, so it cannot be left out alone; redact its output")
    if event_id in ctx.past.pins:
        raise BadCommand(f"{event_id} is pinned: %ctx unpin {event_id} first")
    return Condensation(condensation_id, (event_id,), reason="left out by the user")


def redact(ctx: CommandContext, args: Sequence[str]) -> str:
    """Replace an output by a note, or take that back."""
    flag = _only_option([arg for arg in args if arg in ("--undo", "--list")], "redact")
    rest = [arg for arg in args if arg != flag]  # the summary may have any other word, as --important
    redactions = ctx.past.redactions
    if flag == "--list":
        rows = [
            [one.event_id, one.target_id, one.by, one_line(one.summary_text, 60)] for one in redactions.live.values()
        ]
        return format_table([["directive", "output", "by", "summary"], *rows]) if rows else "nothing is redacted"
    if not rest and flag == "--undo":
        live = [one.target_id for one in redactions.live.values()]
        told = f"which one? Redacted are {join_names(live)}" if live else "nothing is redacted"
        raise BadCommand(f"%ctx redact --undo N: {told}")
    if not rest:
        raise BadCommand("%ctx redact N SUMMARY: which statement or event, and what mattered in its output?")
    _require_untouched(ctx, rest[0])
    when = "after this cell" if redactions.at_boundary else "when the open loop of calls has ended"
    if flag == "--undo":
        named = [one for one in redactions.live.values() if rest[0] == one.event_id or matches(rest[0], one.target_id)]
        if not named:
            raise BadCommand(f"%ctx redact --undo {rest[0]}: it is not redacted; %ctx redact --list shows what is")
        ctx.loop.record(Withdrawal(_next_id(ctx), named[-1].event_id, "asked for"))
        return f"{named[-1].target_id}: its output is in the projection again {when}"
    event_id, summary = event_named(ctx, rest[0]), " ".join(rest[1:])
    if not summary.strip():
        raise BadCommand(f"%ctx redact {rest[0]}: give a summary after it: %ctx redact {rest[0]} WHAT MATTERED IN IT")
    _require_untouched(ctx, event_id)
    made = redaction_of(ctx, event_id, summary, _next_id(ctx))
    if isinstance(made, Acknowledged):
        return f"{made.event_id} is redacted already, by {made.directive_id}"
    ctx.loop.record(made)
    return f"{made.target_id}: its output is a note {when}; %ctx redact --undo {rest[0]} takes it back"


def redaction_of(ctx: CommandContext, event_id: str, summary: str, directive_id: str) -> Redaction | Acknowledged:
    """Return the event that redacts an output, or the redaction that exists already. Raises BadCommand."""
    past, most = ctx.past, ctx.settings.statement_tokens
    made = validate(
        event_id,
        ctx.masker(summary),
        shown=past.shown,
        redactions=past.redactions,
        by="human",
        directive_id=directive_id,
        count=lambda text: min(count_tokens(clean(text).text), most),
        pinned=past.pins,
    )
    if isinstance(made, Refusal):
        raise BadCommand(f"%ctx redact: {made.message.replace('summary_text', 'the summary')}")
    return made


def pin(ctx: CommandContext, args: Sequence[str]) -> str:
    """Pin a handle, or a statement or event of the history."""
    name, reason = _pin_target(ctx, args, "pin")
    node = ctx.handle(name)
    if node is not None:
        node.pin(reason)
        return f"{name} is {'pinned' if node.pinned else 'not pinned'}"
    _require_untouched(ctx, name)
    try:
        event_id = event_named(ctx, name)
    except BadCommand as fault:
        if "condensed" in str(fault):
            raise
        names = [*ctx.handle_names(), *(event.event_id for event in ctx.past.shown)]
        raise BadCommand(f"no handle or statement {name!r}{suggest(name, names)}; ls() lists handles") from None
    ctx.loop.record(Pin(_next_id(ctx), event_id, True, reason))
    return f"{event_id} is pinned: it is never condensed, masked or redacted"


def unpin(ctx: CommandContext, args: Sequence[str]) -> str:
    """End a pin."""
    name, _ = _pin_target(ctx, args, "unpin")
    node = ctx.handle(name)
    if node is not None:
        node.unpin()
        return f"{name} is {'pinned' if node.pinned else 'not pinned'}"
    pins = ctx.past.pins
    _require_untouched(ctx, name)
    event_id = next((one for one in pins if matches(name, one)), None)
    if event_id is None:
        raise BadCommand(f"{name} is not pinned; " + (f"pinned: {', '.join(pins)}" if pins else "no statement is"))
    ctx.loop.record(Pin(_next_id(ctx), event_id, False))
    return f"{event_id} is not pinned"


def _pin_target(ctx: CommandContext, args: Sequence[str], verb: str) -> tuple[str, str]:
    """Return the name and the reason. Raises BadCommand if the reason is the name of another object."""
    if not args:
        raise BadCommand(f"%ctx {verb} NAME: which handle or statement? ls() and %ctx timeline list them")
    if len(args) == 2 and (
        ctx.handle(args[1]) is not None or any(matches(args[1], event.event_id) for event in ctx.past.events)
    ):
        raise BadCommand(f"%ctx {verb} takes one name, then a reason; run %ctx {verb} {args[1]} separately")
    return args[0], ctx.masker(" ".join(args[1:]))
