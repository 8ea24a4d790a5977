"""`%ctx SUB …`: one magic, a table of subcommands, each with help and completion.

Rule 1: a subcommand gets plain strings and returns what shall be shown; it raises BadCommand with the next move.
Rule 2: those in `reading.READING` change nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.inputtransformer2 import make_tokens_by_line
from IPython.core.magic import no_var_expand
from IPython.display import display

from ctxkernel._version import __version__
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.settings import MODES
from ctxkernel.core.text import align, format_duration, format_size, format_table
from ctxkernel.core.timeline import statement_to_json
from ctxkernel.core.timeline_table import RIGHT, timeline_table
from ctxkernel.kernel.asking.answer_display import DECIDED, NOTE
from ctxkernel.kernel.commands import configuration, navigation, projection
from ctxkernel.kernel.commands.handle_magics import handle_line, matcher, paths_from
from ctxkernel.kernel.commands.position_names import fitting, place_names
from ctxkernel.kernel.display import widgets
from ctxkernel.kernel.execution.cell import DECIDING, MOVING

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime


class Shown:
    """What a command shows: text, and the same as HTML where a front end has it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f'<pre style="margin:0;text-align:left;white-space:pre-wrap">{escape(self._text)}</pre>'


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: what to call, how it is written, one line of help, and what can follow it."""

    run: Callable[[Runtime, Sequence[str]], Shown | None]
    usage: str
    help: str
    options: tuple[str, ...] = ()


def _status(ctx: Runtime, args: Sequence[str]) -> Shown:
    loop, projection = ctx.loop, ctx.loop.projection
    store = ctx.store
    place = str(store.path) if store.path else "in memory only: nothing is kept when the kernel ends"
    rows = [
        ("ctxkernel", f"{__version__}, Python {ctx.environment()['python']}"),
        ("session", f"{store.session_id} · {place}"),
        ("timeline", f"{len(loop.log)} statements in this run, head {loop.log.head or 'none yet'}"),
        ("handles", f"{len(loop.handles())} of {len(loop.graph.nodes())} living"),
    ]
    if projection is not None:
        checks = "all checks passed" if projection.report.ok else f"{len(projection.report.violations)} checks failed"
        rows.append(("projection", f"~{projection.tokens:,} of {ctx.settings.projection_tokens:,} tokens, {checks}"))
    rows.append(("model", f"{ctx.settings.model}, mode {ctx.settings.mode}; {_sent(ctx)}"))
    if ctx.asked is not None and ctx.asked.parked:
        rows.append(("waiting", "a cell of the model's, for your yes: %ctx approve, %ctx edit or %ctx reject"))
    held = ctx.health.storage()
    if ctx.returning is not None and held is not None:
        pending = f", {format_size(held['pending_bytes'])} on their way to the disk" if held["pending_bytes"] else ""
        rows.append(
            (
                "checkpoints",
                f"{format_size(held['bytes'])} of {format_size(held['quota'])}{pending} · {held['folder']}",
            )
        )
        offer = ctx.returning.resumption.offer
        if offer is not None and offer["statements"]:
            rows.append(("earlier", f"a kernel before this one left {offer['statements']} statements; %ctx resume"))
    if store.signer.fault:
        rows.append(("unsigned", f"checkpoints cannot be signed ({store.signer.fault}): a later kernel will ask first"))
    seconds = ctx.timeout.seconds
    rows.append(("time-out", f"{seconds:g} s a cell" if seconds else "none; %ctx timeout SECONDS sets one"))
    rows += ctx.health.rows()
    rows += [("step", line) for line in ctx.guard.lines()]
    rows += [("notice", notice) for notice in ctx.notices.kept[-5:]]
    return Shown(format_table([(f"{key}:", value) for key, value in rows]))


def _sent(ctx: Runtime) -> str:
    ctx.collect_summaries()
    if ctx.asked is None or not ctx.asked.spent:
        return "nothing has been sent to any model by this kernel"
    first, *others = ctx.asked.spent.values()
    return sum(others, first).told()


def _timeline(ctx: Runtime, args: Sequence[str]) -> Shown | None:
    flags, rest = _split(args, ("--json",), "timeline")
    log = ctx.loop.log
    if "--json" in flags:
        statements = [statement_to_json(statement, log.executions(statement.statement_id)) for statement in log]
        print(json.dumps({"session": ctx.store.session_id, "head": log.head, "statements": statements}, indent=1))
        return None
    limit = 30
    if rest:
        if not rest[0].isdecimal() or int(rest[0]) < 1:
            raise BadCommand(f"%ctx timeline {rest[0]}: how many rows? Use a whole number from 1")
        limit = int(rest[0])
    statements = list(log)
    if not statements:
        return Shown("no statement yet: run a cell")
    latest = statements[-limit:]
    shown: list[dict[str, Any]] = [statement_to_json(one, log.executions(one.statement_id)) for one in latest]
    for run in (run for one in shown for run in one["executions"]):
        info = ctx.health.info(run["execution_id"])
        run["checkpoint"] = info and {"state": info.state, "missing": info.missing}
    here = {execution.execution_id for _, execution in log.path()}
    made = timeline_table(shown, log.head, here, ctx.returning.named if ctx.returning is not None else {})
    older = len(statements) - limit
    head = f"… {older} older; %ctx timeline {len(statements)} shows all\n" if older > 0 else ""
    return Shown(head + "\n".join(align(made.rows, right=RIGHT)) + f"\n{made.legend()}")


def _show(ctx: Runtime, args: Sequence[str]) -> Shown:
    if not args:
        raise BadCommand("%ctx show N: which statement? %ctx timeline lists them")
    key = args[0] if args[0].startswith("s") else f"s{args[0]}"
    try:
        statement = ctx.loop.log.statement(key)
    except KeyError:
        raise BadCommand(f"no statement {args[0]!r} in this run; %ctx timeline lists them") from None
    lines = [f"{key} · {statement.author} · {statement.kind} · cell {statement.cell_id or 'unknown'}", statement.source]
    for run in ctx.loop.log.executions(key):
        lines.append(f"-- {run.execution_id}: {run.status}, {format_duration(run.cost.time_ms / 1000)}")
        lines += [f"{name}:\n{text}" for name, text in (("stdout", run.stdout), ("stderr", run.stderr)) if text]
        lines += [f"late {name}:\n{text}" for name, text in run.late.items()]
        if run.exception is not None:
            lines.append(f"{run.exception.type}: {run.exception.message}")
        diff = run.state_diff
        lines += [f"+ {name}: {info.type} {info.repr}" for name, info in diff.added.items()]
        lines += [f"~ {name} ({info.how}): {info.type} {info.repr}" for name, info in diff.changed.items()]
        lines += [f"− {name}" for name in diff.deleted]
        lines += [f"{a.kind} {a.name}: {a.mime}, {a.size:,} bytes" for a in run.artifacts]
        lines += [f"notice: {notice}" for notice in run.notices]
    return Shown("\n".join(lines))


def _timeout(ctx: Runtime, args: Sequence[str]) -> Shown:
    if args:
        if args[0].lower() in ("off", "none", "0"):
            ctx.timeout.seconds = None
        else:
            try:
                seconds = float(args[0].removesuffix("s"))
            except ValueError:
                seconds = -1.0
            if not 0 < seconds < 10**9:
                raise BadCommand(f"%ctx timeout {args[0]}: use seconds above 0, or off")
            ctx.timeout.seconds = seconds
    seconds = ctx.timeout.seconds
    told = f"cells are stopped after {seconds:g} s (from the next one on)" if seconds else "cells may run without end"
    return Shown(told)


def _panel(ctx: Runtime, args: Sequence[str]) -> Any:
    from ctxkernel.kernel.display.inline_panel import inline_panel

    return inline_panel(ctx)


def _help(ctx: Runtime, args: Sequence[str]) -> Shown:
    if args:
        name = args[0].rstrip("?")
        command = _command(name)
        return Shown(f"%ctx {command.usage}\n{command.help}")
    rows = [[f"%ctx {command.usage}", command.help] for command in COMMANDS.values()]
    return Shown(
        format_table(rows) + "\n%ctx SUB? shows one; functions: view group note ls show pin tick (view? for help)"
    )


def _saying(run: Callable[[Runtime, Sequence[str]], str | None]) -> Callable[[Runtime, Sequence[str]], Shown | None]:
    """Show what a command says; JSON as it is, for who reads it."""

    def shown(ctx: Runtime, args: Sequence[str]) -> Shown | None:
        text = run(ctx, args)
        if text is not None and "--json" in args:
            print(text)
            return None
        return Shown(text) if text is not None else None

    return shown


def _deciding(name: str) -> Callable[[Runtime, Sequence[str]], str | None]:
    """Return a command on the model. Most kernels ask none, so what it needs is loaded when it is given."""

    def run(ctx: Runtime, args: Sequence[str]) -> str | None:
        from ctxkernel.kernel.commands import model

        return getattr(model, name)(ctx, args)

    return run


COMMANDS: dict[str, Command] = {
    "status": Command(_status, "status", "what works, where the session is kept, what the projection costs"),
    "timeline": Command(
        _timeline, "timeline [ROWS] [--json]", "the statements of this run with status, time and changes", ("--json",)
    ),
    "show": Command(_show, "show N", "one statement: source, outputs, changes, artifacts (10, or s10)"),
    "projection": Command(
        _saying(projection.projection),
        "projection [--json]",
        "exactly what the model would be sent, block by block",
        ("--json",),
    ),
    "why": Command(
        _saying(projection.why), "why BLOCK | why not NAME", "why a block is in the projection, or why something is not"
    ),
    "whatif": Command(
        _saying(projection.whatif),
        "whatif CHANGE … [--json]",
        "tokens and cost of the projection with HANDLE.lod=1, budget=N, model=NAME, redact=N or condense=1",
    ),
    "condense": Command(
        _saying(projection.condense),
        "condense [--show|--undo|--list] [ID]",
        "put a summary in the place of old events; open it, or take it back",
    ),
    "redact": Command(
        _saying(projection.redact),
        "redact N SUMMARY | redact --undo N",
        "put a note in the place of an output of the history, or take that back",
    ),
    "approve": Command(
        _saying(_deciding("approve")),
        "approve [--all]",
        "run the cell that the model proposed; all of this ask",
        ("--all",),
    ),
    "edit": Command(
        _saying(_deciding("edit")), "edit", "change what the model proposed, then run it (%%ctx edit, and the code)"
    ),
    "reject": Command(
        _saying(_deciding("reject")),
        "reject [REASON]",
        "do not run what the model proposed; it is told why, and goes on",
    ),
    "stop": Command(_saying(_deciding("stop")), "stop", "end the ask that waits; the stop button ends one that runs"),
    "model": Command(
        _saying(_deciding("model")), "model [NAME]", "which model is asked, where, at what price; or another one"
    ),
    "mode": Command(
        _saying(_deciding("mode")), "mode [ask|auto|off]", "whether a cell of the model waits for your yes", MODES
    ),
    "private": Command(
        _saying(_deciding("private")), "private [NAME …] [--off]", "keep names out of every projection", ("--off",)
    ),
    "cost": Command(_saying(_deciding("cost")), "cost", "what the asks and summaries of this kernel have cost"),
    "summaries": Command(
        _saying(_deciding("summaries")),
        "summaries [HANDLE]",
        "which summaries a model was asked for; of one, what was sent and answered",
    ),
    "record": Command(
        _saying(_deciding("record")),
        "record [FILE]",
        "write the answered asks to a file (NOTEBOOK.turns.json), from which they replay without a model",
    ),
    "timeout": Command(
        _timeout, "timeout [SECONDS|off]", "stop cells after so many seconds; status `timeout`", ("off",)
    ),
    "goto": Command(
        _saying(navigation.goto),
        "goto N [--before] [--dry-run]",
        "return to the state after statement N (10, s10, a name; 0: before all)",
        ("--before", "--dry-run", "--json"),
    ),
    "undo": Command(
        _saying(navigation.undo), "undo [K]", "take back the last K statements and returns", ("--dry-run",)
    ),
    "rerun": Command(
        _saying(navigation.rerun),
        "rerun N[..M] [--dry-run]",
        "return to the state before N, run N..M again, and say what came out differently",
        ("--dry-run", "--json", "--yes"),
    ),
    "diff": Command(
        _saying(lambda ctx, a: projection.diff(ctx, a[1:]) if a[:1] == ["projection"] else navigation.diff(ctx, a)),
        "diff [projection] N [M]",
        "what lies between two states: names, outputs, handles; or between two projections: blocks, tokens, cost",
        ("projection", "--json"),
    ),
    "branches": Command(_saying(navigation.branches), "branches", "the branches of the timeline", ("--json",)),
    "checkpoint": Command(
        _saying(navigation.checkpoint), "checkpoint [NAME]", "name the state after the last statement"
    ),
    "mark": Command(
        _saying(navigation.mark), "mark N differs|asks|none", "what a re-run of N should know", navigation.MARKS
    ),
    "resume": Command(
        _saying(navigation.resume),
        "resume [--dry-run]",
        "bring back what the last kernel of this notebook had: timeline, handles, state",
        ("--dry-run", "--trust"),
    ),
    "config": Command(
        _saying(configuration.configure),
        "config [NAME [VALUE|--reset]]",
        "the settings, what one means, or one set anew for this session",
    ),
    "properties": Command(
        _saying(configuration.properties),
        "properties [on|off|add|remove NAME]",
        "the rules that the model's history obeys, in order; switch extensions, add one of your own",
    ),
    "pin": Command(
        _saying(lambda ctx, a: projection.pin(ctx, a, "pin")),
        "pin NAME [REASON]",
        "keep a handle in the projection before others, or a statement as it is",
    ),
    "unpin": Command(_saying(lambda ctx, a: projection.pin(ctx, a, "unpin")), "unpin NAME", "end a pin"),
    "set": Command(
        _saying(widgets.set_policy),
        "set HANDLE.lod=1 …",
        "set lod, tokens, mode, freq or pos of handles: what the controls of a handle do",
    ),
    "refresh": Command(_saying(widgets.refresh), "refresh HANDLE …", "have handles look again at what they show"),
    "panel": Command(_panel, "panel", "the side panel as a widget in the notebook"),
    "help": Command(_help, "help [SUB]", "this table, or one line of it"),
}


OF_THE_PERSON = MOVING | DECIDING | {"mode", "model", "config", "properties", "private", "record"}
"""Commands that a cell of the model cannot give."""


def _command(name: str) -> Command:
    if name not in COMMANDS:
        raise BadCommand(f"%ctx has no {name!r}{projection.suggest(name, COMMANDS)}; %ctx help lists what there is")
    return COMMANDS[name]


def _split(args: Sequence[str], known: Sequence[str], sub: str) -> tuple[list[str], list[str]]:
    flags = [arg for arg in args if arg.startswith("-")]
    for flag in flags:
        if flag not in known:
            raise BadCommand(f"%ctx {sub} has no option {flag}; it has {', '.join(known) or 'none'}")
    return flags, [arg for arg in args if not arg.startswith("-")]


def dispatch(ctx: Runtime, line: str) -> Any:
    """Run one `%ctx` line. Raises CtxError."""
    try:
        words = shlex.split(line)
    except ValueError as fault:
        raise BadCommand(f"%ctx {line}: {fault}; close the quotation mark") from None
    if not words:
        words = ["help"]
    name, *args = words
    if name in _HELP:
        name, args = "help", []
    if name.endswith("?") or args[:1] == ["?"] or "--help" in args:
        name, args = "help", [name.rstrip("?")]
    running = ctx.turns.running
    if name in OF_THE_PERSON and running is not None and running.statement.author == "model":
        raise BadCommand(f"%ctx {name} is the person's to say, not a model's")
    return _command(name).run(ctx, args)


def _with_body(ctx: Runtime, line: str, cell: str) -> Any:
    """Run `%%ctx edit` with the code below it."""
    if line.split() != ["edit"]:
        raise BadCommand(f"%%ctx {line}: only %%ctx edit has something below it; write %ctx {line}")
    from ctxkernel.kernel.commands.model import edit

    return Shown(told) if (told := edit(ctx, (), cell)) else None


_QUESTION = re.compile(r"^(\s*)%ctx[ \t]+([\w-]+)[ \t]*\?+[ \t]*$", re.MULTILINE)
_HELP = ("?", "??", "--help", "-h")
_OURS = re.compile(r"^[ \t]*(?:[\w.\[\], ]+=[ \t]*)?(%{1,2}(?:view|group|ask|ctx))\b", re.MULTILINE)


def magic_at(code: str, cursor: int) -> str | None:
    """Return which magic of ours, `%view`, a cursor is on; None for none."""
    found = (one for one in _OURS.finditer(code) if one.start(1) <= cursor <= one.end(1))
    return next((one[1] for one in found), None)


def _question(lines: list[str]) -> list[str]:
    if lines and lines[0].startswith(("%%ask ", "%ask ")) and not "".join(lines[1:]).strip():
        # IPython refuses a cell magic without a body, and takes a line that ends in ? for a request for help.
        return ["%%ask " + lines[0].partition(" ")[2].rstrip("\n") + "\n", "\n"]
    # IPython would take `%ctx timeline?` for a question about a variable `timeline`.
    if not any(_QUESTION.match(line) for line in lines) or lines[0].startswith("%%"):
        return lines
    # At the start of a logical line only: one within a string is the user's text.
    starts = {tokens[0].start[0] - 1 for tokens in make_tokens_by_line(lines) if tokens}
    return [_QUESTION.sub(r"\1%ctx help \2", line) if at in starts else line for at, line in enumerate(lines)]


def _handle_of(ctx: Runtime, magic: str, line: str) -> Any:
    values, given = handle_line(ctx, magic, line)
    return getattr(ctx.loop, magic)(*values, **given)


def _refusing(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except CtxError as refused:
        # A wrong command is an error of the cell, so that Run All stops; but not a traceback of ours.
        raise UserRefusal(str(refused)) from None


def register(ctx: Runtime) -> None:
    """Give the shell `%ctx`, its `?` help and its completion; gestures become its commands."""
    shell = ctx.shell
    ctx.gestures.dispatch = lambda line: dispatch(ctx, line)

    def ctx_magic(line: str, cell: str | None = None) -> None:
        shown = _refusing(lambda: dispatch(ctx, line) if cell is None else _with_body(ctx, line, cell))
        if shown is not None:
            # Not returned: a command that only reads must leave `_` and `Out` as they are.
            display(shown, metadata=NOTE if repr(shown) == DECIDED else None)

    @no_var_expand
    def ask_magic(line: str, cell: str | None = None) -> None:
        """Ask the model: it sees the projection (%ctx projection), and works in this kernel.

        Usage:
          %%ask [--model NAME] [--mode ask|auto] [--max-turns N] [--budget 0.50|50k] [--again]
          the question, in as many lines as it takes

        Each cell that it writes is a statement of the timeline.

        Options:
          --model NAME      which model, this time (default: %ctx model)
          --mode ask|auto   whether each cell waits for your yes, or runs (default: %ctx mode)
          --max-turns N     how often it is called at most, from 1
          --budget B        what it may cost at most: dollars (0.50, $2), or tokens (50k); 0 is no bound
          --again           ask anew what was answered before, rather than replay the answer
        """
        if cell is None and _helping("%%ask", line):
            return
        from ctxkernel.kernel.commands.model import ask

        _refusing(lambda: ask(ctx, line, cell))

    def view_magic(line: str) -> Any:
        """Look at a file, a folder, a URI or a variable: what view(…) does, on a line.

        Usage:
          %view TARGET [--pos P] [--tokens N] [--lod N] [--mode M] [--freq F]
          h = %view paper.md --lod 1     keeps the handle

        TARGET is a path, a pattern (data/*.csv), a URI, or a variable; one with spaces stands in quotes.

        Options:
          --pos P     where: a line from 0, line:col, a name (Model.fit, a heading, a row label), a pattern (/def fit/)
          --tokens N  budget of the rendering in estimated tokens, from 1, or All (default: the setting view_tokens)
          --lod N     0 raw excerpt (default), 1 structure, 2 summary, 3 what changed since the last rendering
          --mode M    paused (default: changes by calls only) or running (looks again after every cell)
          --freq F    Sync, Async or Periodic(seconds): when a running one looks; giving one sets it running

        view? shows the function, and what the handle can do.
        """
        return None if _helping("%view", line) else _refusing(lambda: _handle_of(ctx, "view", line))

    def group_magic(line: str) -> Any:
        """Sum up handles within one budget: what group(…) does, on a line.

        Usage:
          %group HANDLE … [--tokens N] [--lod N] [--mode M] [--freq F]
          g = %group code table --tokens 600     keeps the handle

        HANDLE is a variable that holds a view, a note or a group; at least one.

        Options:
          --tokens N  budget of the summary in estimated tokens, from 1, or All (default: the setting group_tokens)
          --lod N     level at which the members are shown, whatever their own: 0, 1, 2 (default) or 3
          --mode M    running (default: follows its members) or paused
          --freq F    Sync, Async or Periodic(seconds)

        group? shows the function.
        """
        return None if _helping("%group", line) else _refusing(lambda: _handle_of(ctx, "group", line))

    def _helping(name: str, line: str) -> bool:
        """Show the help of a magic where its line asks for that. Returns whether it did."""
        if line.strip() not in _HELP:
            return False
        shell.run_line_magic("pinfo", name)
        return True

    shell.register_magic_function(view_magic, magic_kind="line", magic_name="view")
    shell.register_magic_function(group_magic, magic_kind="line", magic_name="group")
    rows = "\n".join(f"    %ctx {command.usage:<28} {command.help}" for command in COMMANDS.values())
    ctx_magic.__doc__ = f"The timeline, the projection and the session of this notebook.\n\n{rows}\n"
    shell.register_magic_function(ctx_magic, magic_kind="line_cell", magic_name="ctx")
    shell.register_magic_function(ask_magic, magic_kind="line_cell", magic_name="ask")
    shell.set_custom_exc((UserRefusal, CtxError), _tell_refusal)
    shell.input_transformers_cleanup.append(_question)
    shell.Completer.custom_matchers += [_matcher(ctx), matcher(ctx)]
    from ctxkernel.kernel.commands.shell_aliases import keep_ls

    keep_ls(shell)


class UserRefusal(CtxError):
    """What `%ctx` refused, in one sentence."""


def _tell_refusal(shell: Any, etype: type, value: BaseException, tb: Any, tb_offset: Any = None) -> list[str]:
    """Show an error of ours as one line, with the user's own line where there is one: no frames of ours."""
    name = "ctxkernel" if etype is UserRefusal else etype.__name__
    lines = [f"{name}: {value}"]
    frame = tb
    while frame is not None:
        code = frame.tb_frame.f_code
        if frame.tb_frame.f_globals is shell.user_ns and etype is not UserRefusal:
            lines.insert(0, f"in line {frame.tb_lineno} of the cell, {code.co_name}:")
        frame = frame.tb_next
    shell._showtraceback(etype, value, lines)
    return lines


def _handle_called(ctx: Runtime, name: str) -> NodeBase | None:
    value = ctx.shell.user_ns.get(name)
    return value if isinstance(value, NodeBase) else ctx.loop.graph.node(name)


def _matcher(ctx: Runtime) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """Return what completes a `%ctx` line. A hook would let Python's own names stand beside ours."""

    @context_matcher(identifier="ctxkernel", priority=1000)
    def match(context: CompletionContext) -> SimpleMatcherResult:
        line, token = context.text_until_cursor, context.token
        if not line.lstrip().startswith("%ctx "):
            return {"completions": []}
        if (given := re.search(r" (?:whatif|set) (?:.* )?(\w+)\.(\w+)=([\"']?)([^\"']*)$", line)) is not None:
            node = _handle_called(ctx, given[1]) if given[2] == "pos" else None
            names = () if node is None else place_names(node)
            values = fitting(names or projection.SUPPOSED_VALUES.get(given[2], ()), given[4], token, given[3])
            return {"completions": [SimpleCompletion(one) for one in values], "suppress": True, "ordered": True}
        if line.endswith("="):
            return {"completions": []}
        found = complete(ctx, SimpleNamespace(line=line.lstrip(), symbol=token))
        known = [one for one in found if one.startswith(token)]
        known = known or [one for one in found if one.lower().startswith(token.lower())]
        return {"completions": [SimpleCompletion(one) for one in known], "suppress": bool(known), "ordered": True}

    return match


def complete(ctx: Runtime, event: Any) -> list[str]:
    """Return what may follow on a `%ctx` line."""
    before = event.line[: event.line.rfind(event.symbol)] if event.symbol else event.line
    words = before.split()
    if len(words) <= 1:
        return list(COMMANDS)
    sub = words[1]
    if sub in ("pin", "unpin", "why", "whatif", "condense", "redact"):
        return projection.complete(ctx, sub, words)
    if sub in ("set", "refresh", "summaries"):
        return widgets.complete(ctx, sub)
    if sub in ("config", "properties"):
        return configuration.complete(ctx, sub, words)
    if sub == "help":
        return list(COMMANDS)
    if sub == "record":
        return list(paths_from(event.symbol))
    statements = [statement.statement_id for statement in ctx.loop.log][-50:]
    if sub == "show":
        return statements
    if sub == "diff":
        first = [] if len(words) > 2 else ["projection"]
        return [*first, *statements, "--json"]
    return list(COMMANDS[sub].options) if sub in COMMANDS else []
