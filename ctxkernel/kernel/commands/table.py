"""The table of `%ctx` subcommands, with help and completion, and the function that runs one line.

Rule 1: a command gets the words after its name and returns the text to show, or None; it raises BadCommand, which names
        the next step.
Rule 2: the commands in `READING` change nothing.
Rule 3: only a person runs a command that is not in `OF_ALL`: no cell of a model, no thread, no callback.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand
from ctxkernel.core.masking import Mask
from ctxkernel.core.report import WIDTH, Preformatted, Report, ReportTable
from ctxkernel.core.settings import MODES
from ctxkernel.core.text import show_hidden, suggest
from ctxkernel.kernel.commands.context import MARKS, CommandContext
from ctxkernel.kernel.commands.handle_magics import paths_from, variable_names
from ctxkernel.kernel.execution.authority import AUTHOR, require_person
from ctxkernel.kernel.execution.cell import HANDLING, MOVING, NAMING, READING
from ctxkernel.store.log.row_masking import masked_json

HELP_WORDS = ("?", "??", "--help", "-h")
_OPTION = re.compile(r"-[A-Za-z][\w-]*|--[\w-]*")
_STATEMENTS = 50
"""Most statements and events among the completions: the newest."""


class CommandOutput:
    """The answer of a command: text for terminals, and HTML for front ends that show it.

    Characters that are not seen are shown as marks.
    """

    def __init__(self, shown: str | Report, mask: Mask = str) -> None:
        report = shown if isinstance(shown, Report) else Report(Preformatted(shown))
        width = shutil.get_terminal_size((WIDTH, 24)).columns
        self._text = show_hidden(mask(report.text(width)))
        self._html = report.masked(mask).html()

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return self._html


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its function, its usage, one line of help, and its options."""

    run: Callable[[CommandContext, Sequence[str]], Any]
    """Returns a text, None, or an object to display."""
    usage: str
    help: str
    options: tuple[str, ...] = ()
    """Its options (`--json`), all of them, and words that completion offers. Others are refused before it runs."""
    takes_text: bool = False
    """Whether text follows its options, which may have any word."""


def _late(place: str) -> Callable[[CommandContext, Sequence[str]], Any]:
    """Return a command whose module is imported when it runs first: a kernel starts without the commands."""

    module, name = place.split(".")

    def run(ctx: CommandContext, args: Sequence[str]) -> Any:
        return getattr(importlib.import_module(f"ctxkernel.kernel.commands.{module}"), name)(ctx, args)

    return run


def _panel(ctx: CommandContext, args: Sequence[str]) -> object:
    from ctxkernel.kernel.display.inline_panel import inline_panel

    return inline_panel(ctx.panel)


def _diff(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    from ctxkernel.kernel.commands import inspection, navigation

    if args[:1] == ["projection"]:
        return inspection.diff_projections(ctx, args[1:])
    return navigation.diff_states(ctx, args)


def _help(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    if args:
        command = _command(args[0].rstrip("?"))
        return f"%ctx {command.usage}\n{command.help}"
    rows = [[f"%ctx {command.usage}", command.help] for command in COMMANDS.values()]
    functions = "functions: view group note ls show pin tick (view? for help)"
    return Report(ReportTable(rows, has_head=False, is_fitted=False), f"%ctx SUB? shows one; {functions}")


_TABLE = (
    # -- the timeline
    Command(
        _late("status.status"), "status", "show the parts that work, the session's file and the cost of the projection"
    ),
    Command(
        _late("status.timeline"),
        "timeline [ROWS] [--json]",
        "list the statements of this run with status, time and changes",
        ("--json",),
    ),
    Command(_late("status.show"), "show N", "show one statement: source, outputs, changes, artifacts (10, or s10)"),
    Command(
        _late("navigation.goto"),
        "goto N [--before] [--dry-run]",
        "return to the state after statement N (10, s10, a name; 0: before all)",
        ("--before", "--dry-run", "--json", "--lose"),
    ),
    Command(
        _late("navigation.undo"),
        "undo [K]",
        "take back the last K statements and returns",
        ("--dry-run", "--json", "--lose"),
    ),
    Command(
        _late("navigation.rerun"),
        "rerun N[..M] | --affected [--dry-run]",
        "return to the state before N, run N..M again, list differences; --affected: run the cells that changes affect",
        ("--affected", "--dry-run", "--json", "--yes", "--lose", "--notebook", "--stepwise"),
    ),
    Command(_late("navigation.branches"), "branches", "list the branches of the timeline", ("--json",)),
    Command(_late("navigation.checkpoint"), "checkpoint [NAME]", "name the state after the last statement"),
    Command(
        _diff,
        "diff [projection] N [M] [NAME …]",
        "compare two states (names by their values, outputs, handles, files) or two projections (blocks, tokens, cost)",
        ("--json",),
    ),
    Command(
        _late("navigation.mark"),
        "mark N differs|asks|none",
        "mark N for re-runs: it differs as expected, or it asks before it runs",
        tuple(MARKS),
    ),
    Command(
        _late("stale.stale"),
        "stale [--graph] [--json]",
        "list the cells that are stale or unknown, with the reasons; --graph: all, with what they read from others",
        ("--graph", "--json"),
    ),
    Command(
        _late("sweep.sweep"),
        "sweep --from N NAME=VALUE,… [--collect NAMES]",
        "run the cells after N for each combination of the values, as branches; docs/sweeps.md has all options",
        (
            *("--from", "--until", "--collect", "--file", "--samples", "--seed", "--scheduler", "--store", "--workers"),
            *("--timeout", "--memory", "--dry-run", "--json", "--again"),
        ),
    ),
    Command(
        _late("navigation.resume"),
        "resume [--dry-run]",
        "restore the session of this notebook's last kernel: timeline, handles, state",
        ("--dry-run", "--trust", "--json"),
    ),
    # -- handles and the projection
    Command(
        _late("handles.set_policy"),
        "set HANDLE.lod=1 …",
        "set lod, tokens, mode, freq or pos of handles, as the controls of a handle do",
    ),
    Command(_late("handles.refresh"), "refresh HANDLE …", "read the targets of handles again"),
    Command(
        _late("history.pin"),
        "pin NAME [REASON]",
        "keep a handle in the projection before others, or a statement as it is",
        takes_text=True,
    ),
    Command(_late("history.unpin"), "unpin NAME", "end a pin"),
    Command(
        _late("inspection.projection"),
        "projection [--json]",
        "show exactly what the model would be sent, block by block",
        ("--json",),
    ),
    Command(
        _late("inspection.why"),
        "why BLOCK | why not NAME | why stale N [--json]",
        "say why a block is in the projection, why something is not, or why cell N is stale, with what reads from it",
        ("--json",),
    ),
    Command(
        _late("whatif.whatif"),
        "whatif CHANGE … [--json]",
        "show tokens and cost of the projection with HANDLE.lod=1, budget=N, image_tokens=N, model=NAME, redact=N …",
        ("--json",),
    ),
    Command(
        _late("history.condense"),
        "condense [--show|--undo|--list] [ID] | condense --leave N",
        "replace old events by a summary; leave one statement out; show what was replaced, or undo it",
        ("--undo", "--show", "--list", "--leave"),
    ),
    Command(
        _late("history.redact"),
        "redact N SUMMARY | redact --undo N",
        "replace an output in the history by a note, or undo this",
        ("--undo", "--list"),
    ),
    # -- a model
    Command(_late("model.model"), "model [NAME]", "show the model, its server and its price; or set another model"),
    Command(
        _late("model.mode"),
        "mode [ask|auto|off]",
        "show or set whether a cell of the model waits for your approval",
        MODES,
    ),
    Command(
        _late("model.approve"),
        "approve [--all]",
        "run the cell that the model proposed; --all: and the later ones of this ask",
        ("--all",),
    ),
    Command(_late("model.edit"), "edit", "run another code in place of the proposed cell (%%ctx edit, and the code)"),
    Command(
        _late("model.reject"),
        "reject [REASON]",
        "reject the cell that the model proposed; the model gets the reason and continues",
        takes_text=True,
    ),
    Command(_late("model.stop"), "stop", "end the ask that waits; the stop button ends one that runs"),
    Command(_late("model.cost"), "cost", "show the cost of this session by ask and by model; an estimate has a ~"),
    Command(_late("model.private"), "private [NAME …] [--off]", "keep names out of every projection", ("--off",)),
    Command(
        _late("model.allow"),
        "allow [NAME|KIND …] [--off]",
        "show a masked value, or a kind of masked key, that is not a secret",
        ("--off",),
    ),
    Command(
        _late("model.summaries"),
        "summaries [HANDLE]",
        "list the summaries that a model wrote; of one, show request and answer",
    ),
    Command(
        _late("model.record"),
        "record [FILE]",
        "write the answered asks to a file (NOTEBOOK.turns.json), from which they replay without a model",
    ),
    # -- the session and the kernel
    Command(
        _late("export.export"),
        "export [FILE]",
        "write the session as one HTML file (NOTEBOOK.html) that opens without a network, or HEAD as FILE.ipynb",
    ),
    Command(
        _late("mirror.store"),
        "store [push|pull] [--force]",
        "show the second place of the session (setting `store`), push to it, or pull what is missing here",
        ("push", "pull", "--force"),
    ),
    Command(
        _late("trust.trust"),
        "trust [PATH] [--revoke|--list]",
        "show what the files beside this notebook could run or decide, and trust them",
        ("--revoke", "--list"),
    ),
    Command(
        _late("status.timeout"),
        "timeout [SECONDS|off]",
        "stop each cell after this number of seconds, with the status `timeout`",
        ("off",),
    ),
    Command(
        _late("configuration.configure"),
        "config [NAME [VALUE|--reset]]",
        "list the settings, explain one, or set one for this session",
        ("--reset",),
    ),
    Command(
        _late("configuration.properties"),
        "properties [on|off|add|remove NAME]",
        "list the rules for the model's history, in order; switch extensions, or add your own",
    ),
    Command(_panel, "panel", "show the side panel as a widget in the notebook"),
    Command(_help, "help [SUB]", "show this table, or one line of it"),
)
COMMANDS = {command.usage.partition(" ")[0]: command for command in _TABLE}
"""The commands by name: the first word of the usage."""
OF_ALL = READING | HANDLING | NAMING
"""Commands that a cell of the model may run too. A new command is the person's alone."""
OF_AGENTS = MOVING - {"resume"} | {"redact"}
"""Commands that a cell of an agent may run as well: it waits for the user, or the user lets it run."""


def _command(name: str) -> Command:
    if name not in COMMANDS:
        raise BadCommand(f"%ctx has no {name!r}{suggest(name, COMMANDS)}; %ctx help lists what there is")
    return COMMANDS[name]


def _refuse_unknown(name: str, command: Command, args: Sequence[str]) -> None:
    """Raise BadCommand for the first option that the command does not have, with those that it has."""
    known = [option for option in command.options if option.startswith("--")]
    first_text = next((at for at, arg in enumerate(args) if not arg.startswith("--")), len(args))
    for arg in args[:first_text] if command.takes_text else args:
        option = arg.partition("=")[0]
        if _OPTION.fullmatch(option) and option not in known:
            close = suggest(option, known)
            raise BadCommand(f"%ctx {name} has no option {option}{close}; it has {', '.join(known) or 'none'}")


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
    command = _command(name)
    _refuse_unknown(name, command, args)
    if name not in OF_ALL and not (name in OF_AGENTS and AUTHOR.get() == "agent"):
        require_person(f"%ctx {name}")
    shown = command.run(ctx, args)
    if isinstance(shown, str) and "--json" in args:
        if ctx.masker(shown) != shown:
            shown = json.dumps(masked_json(json.loads(shown), ctx.masker), indent=1)
        print(shown)
        return None
    return CommandOutput(shown, ctx.masker) if isinstance(shown, str | Report) else shown


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
        case "export":
            from ctxkernel.kernel.commands import export

            return export.complete(ctx, event.symbol)
        case "trust":
            return [*COMMANDS["trust"].options, *paths_from(event.symbol)]
        case "config" | "properties":
            return configuration.complete_setting(ctx, words[1], words)
        case "set":
            return handles.policy_words(ctx, handles.SETTABLE)
        case "refresh" | "summaries":
            return ctx.handle_names()
        case "allow":
            names = ctx.masker.allowed if "--off" in words else ctx.masker.counts
            return ["--off", *(f'"{one}"' if " " in one else one for one in sorted(names))]
        case "private":
            return ["--off", *variable_names(ctx)]
        case "sweep":
            return list(paths_from(event.symbol)) if words[-1] == "--file" else _complete_sweep(ctx, words[-1])
        case "why":
            return _statements(ctx) if words[2:3] == ["stale"] else _complete_why(ctx, after_not=words[2:3] == ["not"])
        case "pin":
            return [*ctx.handle_names(), *_events(ctx)]
        case "unpin":
            return [*ctx.handle_names(), *ctx.past.pins]
        case "redact":
            return [*COMMANDS["redact"].options, *_events(ctx)]
        case "whatif":
            attributes = ("lod", "tokens", "pos", "pinned", "shown")
            return [*handles.policy_words(ctx, attributes), *whatif.SUPPOSED_SETTINGS]
        case "show" | "goto" | "rerun" | "mark" as sub:
            places = [] if words[2:] else [*_statements(ctx), *(_state_names(ctx) if sub != "show" else [])]
            return [*places, *COMMANDS[sub].options]
        case "diff":
            return [*(["projection"] if len(words) <= 2 else []), *_statements(ctx), *_state_names(ctx), "--json"]
        case sub:
            return list(COMMANDS[sub].options) if sub in COMMANDS else []


def _complete_why(ctx: CommandContext, *, after_not: bool) -> list[str]:
    found = ctx.loop.projection
    if after_not:
        left = [one.id for one in found.left_out] if found is not None else []
        return [*left, *variable_names(ctx)]
    return ["not", "stale", *(block.id for block in found.blocks)] if found is not None else ["not", "stale"]


def _complete_sweep(ctx: CommandContext, last: str) -> list[str]:
    match last:
        case "--from" | "--until":
            return [*_statements(ctx), *_state_names(ctx)]
        case "--collect":
            return variable_names(ctx)
        case _:
            return [*COMMANDS["sweep"].options, *(f"{name}=" for name in variable_names(ctx))]


def _statements(ctx: CommandContext) -> list[str]:
    return [statement.statement_id for statement in ctx.loop.log][-_STATEMENTS:]


def _state_names(ctx: CommandContext) -> list[str]:
    return list(ctx.checkpoints.returning.named) if ctx.checkpoints.returning is not None else []


def _events(ctx: CommandContext) -> list[str]:
    return [event.event_id for event in ctx.past.shown][-_STATEMENTS:]
