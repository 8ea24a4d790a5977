"""The commands on the model: what it may do, what it proposed, what it cost; and `%%ask`.

Rule 1: `approve`, `edit`, `reject` and `stop` record what was decided in their own statement; the turn goes on when
        that cell is over. Nothing of a model runs within a cell of the user's.
Rule 2: a command raises BadCommand with the next move.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkernel.agent.asks import Bounds, Spent
from ctxkernel.agent.turn import Turn, source
from ctxkernel.core.errors import BadCommand, BadPolicy
from ctxkernel.core.settings import MODES, from_text
from ctxkernel.core.text import format_table, one_line, suggest
from ctxkernel.history.capabilities import MODELS, capabilities_for
from ctxkernel.history.events import Verdict
from ctxkernel.kernel.asking.answer_display import DECIDED
from ctxkernel.projection.prices import price_of
from ctxkernel.projection.secrets import mask

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

OPTIONS = ("--model", "--mode", "--max-turns", "--budget", "--again")
USAGE = "%%ask [--model NAME] [--mode ask|auto] [--max-turns N] [--budget 0.50|50k] [--again], and the question below"


def ask(ctx: Runtime, line: str, cell: str | None) -> None:
    """`%%ask`: ask the model, from a cell that holds nothing else."""
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
    if "--model" in given and given["--model"] != settings.model:
        _set(ctx, "model", given["--model"])
    bounds = Bounds(rounds, tokens, usd, settings.ask_seconds)
    ctx.asking.ask(mask(question), bounds=bounds, mode=mode, again="--again" in given)


def _options(line: str) -> tuple[dict[str, str], list[str]]:
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
    """Return (USD, tokens) of a budget: with a decimal point or a currency it is money, else tokens; 0: no bound."""
    money, tokens = _MONEY.fullmatch(text), _TOKENS.fullmatch(text)
    if money and ("." in text or not text.replace("_", "").replace(",", "").isdecimal()):
        return float(money[1]), 0
    if tokens:
        return 0.0, int(tokens[1].replace("_", "").replace(",", "")) * (1000 if tokens[2] else 1)
    raise BadCommand(f"%%ask --budget {text}: give USD as 0.50 or $2, or tokens as 50000 or 50k")


def _set(ctx: Runtime, name: str, text: str) -> None:
    try:
        ctx.configuration.set(name, from_text(name, text))
    except BadPolicy as fault:
        raise BadCommand(f"%ctx {name} {text}: {fault}; nothing was changed") from None


# -- deciding ----------------------------------------------------------------------------------------


def _alone(ctx: Runtime, sub: str) -> None:
    running = ctx.turns.running
    lines = running.statement.source.strip().splitlines() if running is not None else []
    if not lines or not (lines[0].lstrip("%").startswith("ctx") and (len(lines) == 1 or lines[0].startswith("%%"))):
        raise BadCommand(f"%ctx {sub} goes on with the model's work, so it needs a cell of its own")


def _verdict(ctx: Runtime, turn: Turn, ruling: Any, text: str = "") -> None:
    if turn.waiting:
        ctx.loop.record(Verdict(ctx.loop.next_event_id, turn.waiting[0].tool_call_id, ruling, text))


def approve(ctx: Runtime, args: Sequence[str]) -> str | None:
    """Run the cell that waits; with `--all` those that follow too."""
    for word in args:
        if word != "--all":
            raise BadCommand(f"%ctx approve has no {word}; it has --all: this cell and all that follow in this ask")
    turn = ctx.asking.waiting
    if turn is None:
        return DECIDED
    _alone(ctx, "approve")
    if not turn.waiting:
        ctx.asking.consent()
    _verdict(ctx, turn, "approved")
    ctx.asking.decided("approved")
    turn.approve(rest="--all" in args)
    ctx.asking.go_on()
    return None


def edit(ctx: Runtime, args: Sequence[str], code: str | None = None) -> str | None:
    """Run the cell that waits as edited; without code, put it into a cell for editing."""
    turn = ctx.asking.waiting
    if turn is None:
        return DECIDED
    if args or not turn.waiting:
        raise BadCommand("%%ctx edit, and the code below, runs that code in the place of what the model proposed")
    if code is None or not code.strip():
        ctx.shell.set_next_input(f"%%ctx edit\n{source(turn.waiting[0])}")
        return "the code stands in the next cell: change it, and run it"
    _alone(ctx, "edit")
    _verdict(ctx, turn, "edited", code)
    ctx.asking.decided("edited", code=code)
    turn.approve(code=code)
    ctx.asking.go_on()
    return None


def reject(ctx: Runtime, args: Sequence[str]) -> str | None:
    """Do not run the cell that waits; the model is told why."""
    turn = ctx.asking.waiting
    if turn is None:
        return DECIDED
    _alone(ctx, "reject")
    if not turn.waiting:
        return stop(ctx, ())
    reason = mask(" ".join(args))
    ctx.asking.refuse(turn, reason)
    ctx.asking.decided("rejected", reason)
    ctx.asking.go_on()
    return None


def stop(ctx: Runtime, args: Sequence[str]) -> str:
    """End the ask that waits: nothing of it runs, and the model is not asked again."""
    if args:
        raise BadCommand("%ctx stop takes nothing; %ctx reject REASON tells the model why, and lets it go on")
    turn = ctx.asking.waiting
    if turn is None:
        return DECIDED
    ctx.asking.refuse(turn, "the person ended the work here", rest=True)
    ctx.asking.decided("stopped")
    ctx.asking.unpark()
    return f"the ask of {turn.ask.execution_id.partition('.')[0]} is over; what it did stays ({turn.spent.told()})"


# -- the model ---------------------------------------------------------------------------------------


def model(ctx: Runtime, args: Sequence[str]) -> str:
    """Say which model is asked, or have another one."""
    if len(args) > 1:
        raise BadCommand("%ctx model NAME: one name; %ctx model alone says which it is")
    if args:
        _set(ctx, "model", args[0])
    name = ctx.settings.model
    row, price = capabilities_for(name), price_of(name)
    known = f"known as {row.model}" if row.model else f"not in the table of {MODELS[0].as_of}: the cautious rules hold"
    key, url = ctx.asking.turns.key(), ctx.asking.turns.base_url()
    where = f"at {url}" if url else "at the provider's own server"
    reach = (
        f"{where}, {'with a key' if key else 'without a key'}"
        if key or url
        else "no key and no server: recorded turns only"
    )
    told = "price not known"
    if price.input is not None:
        told = f"${price.input:g} in, ${price.output:g} out a million tokens, cached reads at {price.read:g}"
    return f"{name} ({known}), {reach}\n{told}; acts by {ctx.engine.dialect}, mode {ctx.settings.mode}"


def mode(ctx: Runtime, args: Sequence[str]) -> str:
    """Say whether the model's cells wait for a yes, or set it."""
    if len(args) > 1 or (args and args[0] not in MODES):
        raise BadCommand(f"%ctx mode {' '.join(args)}: say {', '.join(MODES)}")
    if args:
        _set(ctx, "mode", args[0])
    means = {
        "ask": "each cell of the model waits for your yes",
        "auto": "cells of the model run at once",
        "off": "no model is asked",
    }
    return f"mode {ctx.settings.mode}: {means[ctx.settings.mode]}"


def cost(ctx: Runtime, args: Sequence[str]) -> str:
    """Add up what the asks and summaries of this kernel have cost."""
    ctx.collect_summaries()
    spent = ctx.asking.spent
    if not spent:
        return "nothing was sent to a model by this kernel, so nothing was spent"
    rows = [["model", "spent"], *([name, one.told()] for name, one in spent.items())]
    if len(spent) > 1:
        rows.append(["all", sum(spent.values(), Spent()).told()])
    return format_table(rows)


def summaries(ctx: Runtime, args: Sequence[str]) -> str:
    """List the summaries that a model was asked for, or show one request and its answer."""
    if len(args) > 1:
        raise BadCommand("%ctx summaries [HANDLE]: one handle, or none for the list")
    ctx.collect_summaries()
    return ctx.summaries.whole(args[0]) if args else ctx.summaries.table()


def record(ctx: Runtime, args: Sequence[str]) -> str:
    """Write the answered asks on the way to HEAD as a file of recorded turns."""
    if len(args) > 1 or (args and args[0].startswith("-")):
        raise BadCommand("%ctx record [FILE]: one file; without it NOTEBOOK.turns.json beside the notebook")
    path = Path(args[0]).expanduser() if args else ctx.asking.turns.path
    if path is None:
        raise BadCommand("%ctx record: it is not known which notebook this is; name the file: %ctx record FILE")
    try:
        asks, left, notices = ctx.asking.turns.record(path)
    except OSError as fault:
        raise BadCommand(f"%ctx record: {path} cannot be written ({fault.strerror})") from None
    rounds = sum(len(one.rounds) for one in asks)
    many = f"{len(asks)} ask{'s' * (len(asks) != 1)}, {rounds} response{'s' * (rounds != 1)}"
    lines = [f"{many} → {path}", *notices, *(f"left out, not answered: {one_line(question, 60)}" for question in left)]
    path_of = ctx.loop.log.path()
    if [one.index for one, _ in path_of] != list(range(1, len(path_of) + 1)) or any(
        isinstance(event, Verdict) for _, one in path_of for event in ctx.loop.log.records.get(one.execution_id, ())
    ):
        lines.append(
            "A replay numbers its statements otherwise (here are returns, decisions or an earlier run), which it will "
            "tell as drift: pytest --ctx NOTEBOOK --ctx-update writes the requests of a replay."
        )
    lines.append("Questions, answers and cells stand in it as plain text: read it before you share it.")
    return "\n".join(lines)


def private(ctx: Runtime, args: Sequence[str]) -> str:
    """Keep a name out of every projection, or let it in again."""
    names = [arg for arg in args if not arg.startswith("--")]
    flags = [arg for arg in args if arg.startswith("--")]
    if any(flag != "--off" for flag in flags):
        raise BadCommand("%ctx private NAME … [--off]: --off lets the names in again")
    for name in names:
        if not name.isidentifier():
            raise BadCommand(f"%ctx private {name}: give the name of a variable or a handle")
    if names:
        ctx.configuration.hide(names, hidden=not flags)
    held = sorted(ctx.configuration.private)
    return f"kept out of every projection: {', '.join(held)}" if held else "no name is private"
