"""The table of `%ctx` subcommands, with help and completion, and the function that runs one line.

Rule 1: a command gets the words after its name and returns the text to show, or None; it raises BadCommand, which names
        the next step.
Rule 2: the commands in `READING` change nothing.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.settings import MODES
from ctxkernel.core.text import format_table, suggest
from ctxkernel.kernel.commands.context import MARKS, CommandContext
from ctxkernel.kernel.commands.handle_magics import paths_from
from ctxkernel.kernel.execution.cell import DECIDING, MOVING

HELP_WORDS = ("?", "??", "--help", "-h")
_STATEMENTS = 50
"""Most statements and events among the completions: the newest."""


class CommandOutput:
    """The text of a command, and the same as HTML for front ends."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f'<pre style="margin:0;text-align:left;white-space:pre-wrap">{escape(self._text)}</pre>'


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its function, its usage, one line of help, and its options."""

    run: Callable[[CommandContext, Sequence[str]], Any]
    """Returns a text, None, or an object to display."""
    usage: str
    help: str
    options: tuple[str, ...] = ()


def _late(place: str) -> Callable[[CommandContext, Sequence[str]], Any]:
    """Return a command whose module is imported when it runs first: a kernel starts without the commands."""

    module, name = place.split(".")

    def run(ctx: CommandContext, args: Sequence[str]) -> Any:
        return getattr(importlib.import_module(f"ctxkernel.kernel.commands.{module}"), name)(ctx, args)

    return run


def _panel(ctx: CommandContext, args: Sequence[str]) -> object:
    from ctxkernel.kernel.display.inline_panel import inline_panel

    return inline_panel(ctx.panel)


def _diff(ctx: CommandContext, args: Sequence[str]) -> str:
    from ctxkernel.kernel.commands import inspection, navigation

    if args[:1] == ["projection"]:
        return inspection.diff_projections(ctx, args[1:])
    return navigation.diff_states(ctx, args)


def _help(ctx: CommandContext, args: Sequence[str]) -> str:
    if args:
        command = _command(args[0].rstrip("?"))
        return f"%ctx {command.usage}\n{command.help}"
    rows = [[f"%ctx {command.usage}", command.help] for command in COMMANDS.values()]
    functions = "functions: view group note ls show pin tick (view? for help)"
    return f"{format_table(rows)}\n%ctx SUB? shows one; {functions}"


_TABLE = (
    Command(_late("status.status"), "status", "what works, where the session is kept, what the projection costs"),
    Command(
        _late("status.timeline"),
        "timeline [ROWS] [--json]",
        "the statements of this run with status, time and changes",
        ("--json",),
    ),
    Command(_late("status.show"), "show N", "one statement: source, outputs, changes, artifacts (10, or s10)"),
    Command(
        _late("inspection.projection"),
        "projection [--json]",
        "exactly what the model would be sent, block by block",
        ("--json",),
    ),
    Command(
        _late("inspection.why"),
        "why BLOCK | why not NAME",
        "why a block is in the projection, or why something is not",
    ),
    Command(
        _late("whatif.whatif"),
        "whatif CHANGE … [--json]",
        "tokens and cost of the projection with HANDLE.lod=1, budget=N, model=NAME, redact=N or condense=1",
    ),
    Command(
        _late("history.condense"),
        "condense [--show|--undo|--list] [ID]",
        "put a summary in the place of old events; open it, or take it back",
        ("--undo", "--show", "--list"),
    ),
    Command(
        _late("history.redact"),
        "redact N SUMMARY | redact --undo N",
        "put a note in the place of an output of the history, or take that back",
        ("--undo", "--list"),
    ),
    Command(
        _late("model.approve"),
        "approve [--all]",
        "run the cell that the model proposed; all of this ask",
        ("--all",),
    ),
    Command(_late("model.edit"), "edit", "change what the model proposed, then run it (%%ctx edit, and the code)"),
    Command(
        _late("model.reject"), "reject [REASON]", "do not run what the model proposed; it is told why, and goes on"
    ),
    Command(_late("model.stop"), "stop", "end the ask that waits; the stop button ends one that runs"),
    Command(_late("model.model"), "model [NAME]", "which model is asked, where, at what price; or another one"),
    Command(_late("model.mode"), "mode [ask|auto|off]", "whether a cell of the model waits for your yes", MODES),
    Command(_late("model.private"), "private [NAME …] [--off]", "keep names out of every projection", ("--off",)),
    Command(_late("model.cost"), "cost", "what the asks and summaries of this kernel have cost"),
    Command(
        _late("model.summaries"),
        "summaries [HANDLE]",
        "which summaries a model was asked for; of one, what was sent and answered",
    ),
    Command(
        _late("model.record"),
        "record [FILE]",
        "write the answered asks to a file (NOTEBOOK.turns.json), from which they replay without a model",
    ),
    Command(
        _late("status.timeout"),
        "timeout [SECONDS|off]",
        "stop cells after so many seconds; status `timeout`",
        ("off",),
    ),
    Command(
        _late("navigation.goto"),
        "goto N [--before] [--dry-run]",
        "return to the state after statement N (10, s10, a name; 0: before all)",
        ("--before", "--dry-run", "--json"),
    ),
    Command(_late("navigation.undo"), "undo [K]", "take back the last K statements and returns", ("--dry-run",)),
    Command(
        _late("navigation.rerun"),
        "rerun N[..M] [--dry-run]",
        "return to the state before N, run N..M again, and say what came out differently",
        ("--dry-run", "--json", "--yes"),
    ),
    Command(
        _diff,
        "diff [projection] N [M]",
        "what lies between two states: names, outputs, handles; or between two projections: blocks, tokens, cost",
    ),
    Command(_late("navigation.branches"), "branches", "the branches of the timeline", ("--json",)),
    Command(_late("navigation.checkpoint"), "checkpoint [NAME]", "name the state after the last statement"),
    Command(_late("navigation.mark"), "mark N differs|asks|none", "what a re-run of N should know", tuple(MARKS)),
    Command(
        _late("navigation.resume"),
        "resume [--dry-run]",
        "bring back what the last kernel of this notebook had: timeline, handles, state",
        ("--dry-run", "--trust"),
    ),
    Command(
        _late("configuration.configure"),
        "config [NAME [VALUE|--reset]]",
        "the settings, what one means, or one set anew for this session",
    ),
    Command(
        _late("configuration.properties"),
        "properties [on|off|add|remove NAME]",
        "the rules that the model's history obeys, in order; switch extensions, add one of your own",
    ),
    Command(
        _late("history.pin"),
        "pin NAME [REASON]",
        "keep a handle in the projection before others, or a statement as it is",
    ),
    Command(_late("history.unpin"), "unpin NAME", "end a pin"),
    Command(
        _late("handles.set_policy"),
        "set HANDLE.lod=1 …",
        "set lod, tokens, mode, freq or pos of handles: what the controls of a handle do",
    ),
    Command(_late("handles.refresh"), "refresh HANDLE …", "have handles look again at what they show"),
    Command(_panel, "panel", "the side panel as a widget in the notebook"),
    Command(_help, "help [SUB]", "this table, or one line of it"),
)
COMMANDS = {command.usage.partition(" ")[0]: command for command in _TABLE}
"""The commands by name: the first word of the usage."""
OF_THE_PERSON = MOVING | DECIDING | {"mode", "model", "config", "properties", "private", "record"}
"""Commands that a cell of the model must not run."""


def _command(name: str) -> Command:
    if name not in COMMANDS:
        raise BadCommand(f"%ctx has no {name!r}{suggest(name, COMMANDS)}; %ctx help lists what there is")
    return COMMANDS[name]


def dispatch(ctx: CommandContext, line: str) -> object:
    """Run one `%ctx` line. Return the object to display, or None. Raises CtxError."""
    try:
        words = shlex.split(line)
    except ValueError as fault:
        raise BadCommand(f"%ctx {line}: {fault}; close the quotation mark") from None
    name, *args = words or ["help"]
    if name in HELP_WORDS:
        name, args = "help", []
    if name.endswith("?") or args[:1] == ["?"] or "--help" in args:
        name, args = "help", [name.rstrip("?")]
    running = ctx.turns.running
    if name in OF_THE_PERSON and running is not None and running.statement.author == "model":
        raise BadCommand(f"a cell of the model cannot run %ctx {name}: only a person can")
    shown = _command(name).run(ctx, args)
    if isinstance(shown, str) and "--json" in args:
        print(shown)
        return None
    return CommandOutput(shown) if isinstance(shown, str) else shown


def complete(ctx: CommandContext, event: Any) -> list[str]:
    """Return the completions of a `%ctx` line."""
    from ctxkernel.kernel.commands import configuration, handles, whatif

    before = event.line[: event.line.rfind(event.symbol)] if event.symbol else event.line
    words = before.split()
    if len(words) <= 1:
        return list(COMMANDS)
    match words[1]:
        case "help":
            return list(COMMANDS)
        case "record":
            return list(paths_from(event.symbol))
        case "config" | "properties":
            return configuration.complete_setting(ctx, words[1], words)
        case "set":
            return handles.policy_words(ctx, handles.SETTABLE)
        case "refresh" | "summaries":
            return ctx.handle_names()
        case "why":
            return _complete_why(ctx, after_not=words[2:3] == ["not"])
        case "pin":
            return [*ctx.handle_names(), *_events(ctx)]
        case "unpin":
            return [*ctx.handle_names(), *ctx.past.pins]
        case "redact":
            return [*COMMANDS["redact"].options, *_events(ctx)]
        case "whatif":
            attributes = ("lod", "tokens", "pos", "pinned", "shown")
            return [*handles.policy_words(ctx, attributes), *whatif.SUPPOSED_SETTINGS]
        case "show":
            return _statements(ctx)
        case "diff":
            return [*(["projection"] if len(words) <= 2 else []), *_statements(ctx), "--json"]
        case sub:
            return list(COMMANDS[sub].options) if sub in COMMANDS else []


def _complete_why(ctx: CommandContext, *, after_not: bool) -> list[str]:
    found = ctx.loop.projection
    if after_not:
        left = [one.id for one in found.left_out] if found is not None else []
        return [*left, *(name for name in ctx.namespace if not name.startswith("_"))]
    return ["not", *(block.id for block in found.blocks)] if found is not None else ["not"]


def _statements(ctx: CommandContext) -> list[str]:
    return [statement.statement_id for statement in ctx.loop.log][-_STATEMENTS:]


def _events(ctx: CommandContext) -> list[str]:
    return [event.event_id for event in ctx.past.shown][-_STATEMENTS:]
