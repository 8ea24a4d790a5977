"""The commands on the model, and `%%ask`: what the model may do, its proposals, its cost.

Rule 1: `approve`, `edit`, `reject` and `stop` record the decision in their own statement; the turn continues after that
        cell. No code of a model runs within a cell of the user's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ctxkernel.agent.ask_turn import source
from ctxkernel.agent.asks import Bounds
from ctxkernel.agent.books import cost_table
from ctxkernel.core.errors import BadCommand, BadPolicy
from ctxkernel.core.report import Report
from ctxkernel.core.settings import MODES, from_text
from ctxkernel.core.text import escape_hidden, one_line, suggest
from ctxkernel.history.capabilities import MODELS, capabilities_for
from ctxkernel.history.events import Verdict
from ctxkernel.kernel.commands.context import CommandContext, split_flags
from ctxkernel.kernel.display.notices import DECIDED
from ctxkernel.projection.prices import price_of

OPTIONS = ("--model", "--mode", "--max-turns", "--budget", "--again")
USAGE = "%%ask [--model NAME] [--mode ask|auto] [--max-turns N] [--budget 0.50|50k] [--again], and the question below"
_MODES = {
    "ask": "each cell of the model waits for your approval",
    "auto": "cells of the model run at once",
    "off": "no model is asked",
}


def ask(ctx: CommandContext, line: str, cell: str | None) -> None:
    """`%%ask`: ask the model, from a cell that contains nothing else."""
    given, words = _options(line)
    question = "\n".join(part for part in (" ".join(words), (cell or "").strip("\n")) if part.strip())
    if not question.strip():
        raise BadCommand(f"%%ask: what is the question? {USAGE}")
    settings = ctx.settings
    usd, tokens = _budget(given["--budget"]) if "--budget" in given else (settings.ask_usd, settings.ask_tokens)
    rounds = settings.ask_rounds
    if "--max-turns" in given:
        if not given["--max-turns"].isdecimal() or int(given["--max-turns"]) < 1:
            raise BadCommand(f"%%ask --max-turns {given['--max-turns']}: give a whole number from 1")
        rounds = int(given["--max-turns"])
    mode = given.get("--mode", "")
    if mode not in ("", "ask", "auto"):
        raise BadCommand(f"%%ask --mode {mode}: say ask or auto")
    asked = given.get("--model", settings.model)
    if "--budget" in given and usd and price_of(asked).input is None:
        raise BadCommand(
            f"%%ask --budget {given['--budget']}: the price of {asked} is not known, so a bound in USD cannot be kept; "
            "give tokens, as in --budget 50k"
        )
    if asked != settings.model:
        _set(ctx, "model", asked)
        ctx.notices.tell(f"ctxkernel: the model is {asked} from now on; %ctx model {settings.model} sets the old one")
    bounds = Bounds(rounds, tokens, usd, settings.ask_seconds)
    ctx.models.asks.ask(ctx.masker(question), bounds=bounds, mode=mode, again="--again" in given)


def _options(line: str) -> tuple[dict[str, str], list[str]]:
    """Return the options of an `%%ask` line, and the words after them."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()  # a question on the line may hold an apostrophe
    given: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name, sign, value = words.pop(0).partition("=")
        if name not in OPTIONS:
            raise BadCommand(f"%%ask has no option {name}{suggest(name, OPTIONS)}; {USAGE}")
        if name == "--again":
            given[name] = "yes"
            continue
        if not sign:
            if not words:
                raise BadCommand(f"%%ask {name}: a value is missing; {USAGE}")
            value = words.pop(0)
        given[name] = value
    return given, words


_MONEY = re.compile(r"\$?(\d+(?:\.\d+)?)(?:usd|\$)?", re.IGNORECASE)
_TOKENS = re.compile(r"(\d[\d_,]*)(k?)(?:tok(?:ens)?)?", re.IGNORECASE)


def _budget(text: str) -> tuple[float, int]:
    """Return (USD, tokens) of a budget: money with a decimal point or a currency, else tokens; 0 is no bound."""
    money, tokens = _MONEY.fullmatch(text), _TOKENS.fullmatch(text)
    if money and ("." in text or not text.replace("_", "").replace(",", "").isdecimal()):
        return float(money[1]), 0
    if tokens:
        return 0.0, int(tokens[1].replace("_", "").replace(",", "")) * (1000 if tokens[2] else 1)
    raise BadCommand(f"%%ask --budget {text}: give USD as 0.50 or $2, or tokens as 50000 or 50k")


def _set(ctx: CommandContext, name: str, text: str) -> None:
    try:
        ctx.configuration.set(name, from_text(name, text))
    except BadPolicy as fault:
        raise BadCommand(f"%ctx {name} {text}: {fault}; nothing was changed") from None


# -- deciding ----------------------------------------------------------------------------------------


def _require_alone(ctx: CommandContext, sub: str) -> None:
    """Raise BadCommand unless the cell contains nothing but the command."""
    running = ctx.turns.running
    lines = running.statement.source.strip().splitlines() if running is not None else []
    if not lines or not (lines[0].lstrip("%").startswith("ctx") and (len(lines) == 1 or lines[0].startswith("%%"))):
        raise BadCommand(f"%ctx {sub} continues the model's work, so it needs a cell of its own")


def approve(ctx: CommandContext, args: Sequence[str]) -> str | None:
    """Run the cell that waits; with `--all` all later cells of the ask too."""
    for word in args:
        if word != "--all":
            raise BadCommand(f"%ctx approve has no {word}; it has --all: this cell and all that follow in this ask")
    if (agents := ctx.models.waiting_agents) is not None:
        _require_alone(ctx, "approve")
        agents.approve(rest="--all" in args)
        return None
    turn = ctx.models.asks.waiting
    if turn is None:
        return DECIDED
    _require_alone(ctx, "approve")
    ctx.models.asks.approve(turn, rest="--all" in args)
    return None


def edit(ctx: CommandContext, args: Sequence[str], code: str | None = None) -> str | None:
    """Run the cell that waits as edited; without code, put it into a cell for editing."""
    agents = ctx.models.waiting_agents
    turn = ctx.models.asks.waiting if agents is None else None
    if turn is None and agents is None:
        return DECIDED
    waits = (
        [one.code for one in agents.waiting]
        if agents is not None
        else [source(one) for one in turn.waiting[:1]]
        if turn
        else []
    )
    if args or not waits:
        raise BadCommand("write %%ctx edit, and the code below it: that code replaces the proposed cell")
    if code is None or not code.strip():
        ctx.shell.set_next_input(f"%%ctx edit\n{escape_hidden(waits[0])}")
        return "the code is in the next cell: change it, and run it"
    _require_alone(ctx, "edit")
    if agents is not None:
        agents.approve(code=code)
    elif turn is not None:
        ctx.models.asks.approve(turn, code=code)
    return None


def reject(ctx: CommandContext, args: Sequence[str]) -> str | None:
    """Do not run the cell that waits; the model is told the reason."""
    if (agents := ctx.models.waiting_agents) is not None:
        return agents.reject(ctx.masker(" ".join(args)))
    turn = ctx.models.asks.waiting
    if turn is None:
        return DECIDED
    _require_alone(ctx, "reject")
    if not turn.waiting:
        return stop(ctx, ())
    ctx.models.asks.reject(turn, ctx.masker(" ".join(args)))
    return None


def stop(ctx: CommandContext, args: Sequence[str]) -> str:
    """End the ask that waits: none of its cells runs, and the model is not asked again."""
    if args:
        raise BadCommand("%ctx stop takes no argument; %ctx reject REASON tells the model the reason, and it continues")
    if (agents := ctx.models.waiting_agents) is not None:
        return agents.reject("the person ended the work here", rest=True)
    turn = ctx.models.asks.waiting
    if turn is None:
        return DECIDED
    ctx.models.asks.stop(turn)
    return f"the ask of {turn.ask.execution_id.partition('.')[0]} has ended; its results remain ({turn.spent.text()})"


# -- the model ---------------------------------------------------------------------------------------


def model(ctx: CommandContext, args: Sequence[str]) -> str:
    """Show which model is asked, or set another one."""
    if len(args) > 1:
        raise BadCommand("%ctx model takes one name; %ctx model alone shows the current one")
    if args:
        _set(ctx, "model", args[0])
    settings = ctx.settings
    name = settings.model
    row, price = capabilities_for(name), price_of(name)
    known = f"known as {row.model}" if row.model else f"not in the table of {MODELS[0].as_of}: the cautious rules hold"
    key, url = ctx.models.connections.key(), ctx.models.connections.base_url()
    server = f"at {url}" if url else "at the provider's own server"
    reach = f"{server}, with{'' if key else 'out'} a key" if key or url else "no key and no server: recorded turns only"
    cost = "price not known: ask_usd bounds nothing, ask_tokens does"
    if price.input is not None:
        cost = f"${price.input:g} in, ${price.output:g} out a million tokens, cached reads at {price.read:g}"
    dialect = ctx.configuration.engine.dialect
    return f"{name} ({known}), {reach}\n{cost}; acts by {dialect}, mode {settings.mode}"


def mode(ctx: CommandContext, args: Sequence[str]) -> str:
    """Show whether cells of the model wait for approval, or set it."""
    if len(args) > 1 or (args and args[0] not in MODES):
        raise BadCommand(f"%ctx mode {' '.join(args)}: say {', '.join(MODES)}")
    if args:
        _set(ctx, "mode", args[0])
    return f"mode {ctx.settings.mode}: {_MODES[ctx.settings.mode]}"


def cost(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """Add up the cost of the requests of this session, by ask and by model."""
    if args:
        raise BadCommand("%ctx cost takes no argument: it lists all asks of the session")
    ctx.models.collect()
    return cost_table(ctx.store.path, ctx.account.booked)


def summaries(ctx: CommandContext, args: Sequence[str]) -> str:
    """List the requests for summaries, or show one with its answer."""
    if len(args) > 1:
        raise BadCommand("%ctx summaries [HANDLE]: one handle, or none for the list")
    ctx.models.collect()
    found = ctx.models.summaries
    return found.whole(args[0]) if args else found.table()


def record(ctx: CommandContext, args: Sequence[str]) -> str:
    """Write the answered asks on the path to HEAD to a file of recorded turns."""
    if len(args) > 1 or (args and args[0].startswith("-")):
        raise BadCommand("%ctx record [FILE]: one file; without it NOTEBOOK.turns.json beside the notebook")
    path = Path(args[0]).expanduser() if args else ctx.models.connections.path
    if path is None:
        raise BadCommand("%ctx record: the notebook is unknown; name the file: %ctx record FILE")
    try:
        asks, left, notices = ctx.models.connections.record(path)
    except OSError as fault:
        raise BadCommand(f"%ctx record: {path} cannot be written ({fault.strerror})") from None
    rounds = sum(len(one.rounds) for one in asks)
    many = f"{len(asks)} ask{'s' * (len(asks) != 1)}, {rounds} response{'s' * (rounds != 1)}"
    lines = [f"{many} → {path}", *notices, *(f"left out, not answered: {one_line(question, 60)}" for question in left)]
    log = ctx.loop.log
    events = [event for _, one in log.path() for event in log.records.get(one.execution_id, ())]
    numbers = [one.index for one, _ in log.path()]
    if numbers != list(range(1, len(numbers) + 1)) or any(isinstance(event, Verdict) for event in events):
        lines.append(
            "A replay numbers its statements otherwise (here are returns, decisions or an earlier run), which it will "
            "tell as drift: pytest --ctx NOTEBOOK --ctx-update writes the requests of a replay."
        )
    lines.append("Questions, answers and cells stand in it as plain text: read it before you share it.")
    return "\n".join(lines)


def private(ctx: CommandContext, args: Sequence[str]) -> str:
    """Keep names out of every projection, or show them again."""
    flags, names = split_flags(args)
    for name in names:
        if not name.isidentifier():
            raise BadCommand(f"%ctx private {name}: give the name of a variable or a handle")
    if names:
        ctx.configuration.hide(names, hidden=not flags)
    held = sorted(ctx.configuration.private)
    return f"kept out of every projection: {', '.join(held)}" if held else "no name is private"


def allow(ctx: CommandContext, args: Sequence[str]) -> str:
    """Show values or kinds of credentials that are masked, or mask them again."""
    flags, names = split_flags(args)
    masker = ctx.masker
    known = masker.allowed if flags else {*masker.counts, *masker.known.names}
    for name in names:
        if name not in known:
            there = ", ".join(sorted(known)) or "nothing"
            what = "allowed" if flags else "masked or known as a secret"
            raise BadCommand(
                f"%ctx allow {name}: no such name or kind; {what}: {there}. Write one with spaces in quotes"
            )
    if names:
        ctx.configuration.allow(names, allowed=not flags)
    held = sorted(masker.allowed)
    return f"not masked: {', '.join(held)}; --off masks it again" if held else "all that looks like a secret is masked"
