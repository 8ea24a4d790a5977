"""The command line: `ctxkernel run | timeline | branches | diff | goto | rerun | verify | gc | …`: `_COMMANDS` has all.

Rule 1: The exit status is 0 for success, 1 if the request fails, 2 for unusable arguments, 130 after an interrupt.
Rule 2: Results go to standard output, everything else to standard error; every reading command has `--json`.
Rule 3: A user sees a sentence that names the object and the next step, never a traceback of ours.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ctxkernel._version import __version__
from ctxkernel.cli.light import without_grammars
from ctxkernel.cli.output import safe_block, say
from ctxkernel.core.errors import CtxError

__all__ = ["Failed", "Interrupted", "Unusable", "main"]

OK, FAILED, UNUSABLE, INTERRUPTED = 0, 1, 2, 130

AddCommand = Callable[..., argparse.ArgumentParser]
"""Adds a command by name, summary and further help."""


class Failed(CtxError):
    """The request fails: exit status 1."""


class Unusable(CtxError):
    """The arguments cannot be used: exit status 2."""


class Interrupted(CtxError):
    """The user stopped the command before it began: exit status 130."""


def _number(name: str, kind: Callable[[str], float], allowed: Callable[[float], bool]) -> Callable[[str], float]:
    """Return an argparse type for numbers; argparse calls it `name`: "invalid port number value: 'x'"."""

    def convert(text: str) -> float:
        number = kind(text)
        if not allowed(number):
            raise ValueError(text)
        return number

    convert.__name__ = name
    return convert


_PORT = _number("port number", int, lambda port: 0 <= port <= 65535)
_SECONDS = _number("number of seconds", float, lambda seconds: 0 < seconds < float("inf"))
_COUNT = _number("whole number from 1", int, lambda count: 1 <= count <= 1000)
_USD = _number("amount of USD", float, lambda usd: 0 < usd < float("inf"))
_SHARE = _number(
    "share", lambda text: float(text.rstrip("%")) / (100 if "%" in text else 1), lambda share: 0 <= share <= 1
)
_GIGABYTES = _number("number of gigabytes", float, lambda size: 0 <= size < float("inf"))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of every command."""
    parser = argparse.ArgumentParser(
        prog="ctxkernel",
        description="A Jupyter kernel in which a person and a language model work on one replayable timeline.",
        epilog="Exit status: 0 success, 1 the requested result does not hold, 2 invalid arguments. "
        "`ctxkernel doctor` says what works here.",
    )
    parser.add_argument("--version", action="version", version=f"ctxkernel {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, summary: str, more: str = "") -> argparse.ArgumentParser:
        text = f"{summary[0].upper()}{summary[1:]}. {more}".strip()
        added: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=text)
        added.set_defaults(refuse=added.error)
        return added

    lab = command(
        "lab", "open JupyterLab on the tour or on a notebook", "It listens on this machine only and asks for a token."
    )
    lab.add_argument("notebook", nargs="?", type=Path, metavar="NOTEBOOK", help="notebook to open (default: the tour)")
    lab.add_argument("--no-browser", action="store_true", help="print the address, open no browser")
    lab.add_argument("--port", type=_PORT, help="port to listen on (default: 8888, or the next one that is free)")

    for add in (_add_running, _add_moving, _add_reading, _add_exchange, _add_trust, _add_bench, _add_mcp, _add_store):
        add(command)

    _add_upkeep(command)
    return parser


def _add_upkeep(command: AddCommand) -> None:
    """Add the commands for the installation and its disk space."""
    install = command(
        "install",
        "register this Python's ctxkernel with Jupyter",
        "For a JupyterLab in another environment; `pip install` has already registered it with the one of this.",
    )
    where = install.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for every Jupyter of this user (the default)")
    where.add_argument("--sys-prefix", action="store_true", help="for the Jupyter of this environment")
    where.add_argument("--prefix", type=Path, metavar="P", help="for the Jupyter of the environment at P")
    install.add_argument("--name", default="ctxkernel", help="name of the kernelspec (default: %(default)s)")
    install.add_argument("--display-name", metavar="TEXT", help="name that a person sees")

    gc = command(
        "gc",
        "show the disk space of checkpoints, and bring it under the limit",
        "Only large data are deleted, first those of the session that was used longest ago. A return to a state "
        "without them computes its values again, or lists them as lost.",
    )
    gc.add_argument(
        "--limit", type=_GIGABYTES, metavar="GB", help="bound of all data (default: CTXKERNEL_QUOTA_GB, 20)"
    )
    gc.add_argument(
        "--gone",
        action="store_true",
        help="also remove all data of sessions whose notebook or log is gone; without this they are only listed",
    )
    gc.add_argument("--dry-run", action="store_true", help="show what would be deleted, and change nothing")
    gc.add_argument("--json", action="store_true", help="print JSON (docs/cli.md)")

    doctor = command(
        "doctor", "check this installation, and report what to do next", "Starts a kernel to see that it answers."
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")


def _add_running(command: AddCommand) -> None:
    """Add the commands that start a kernel."""
    run = command(
        "run",
        "execute a notebook without a front end and print its timeline",
        "The kernel is the one of this Python, whatever kernel the notebook names. Status 1 when a cell fails.",
    )
    run.add_argument("notebook", type=Path, metavar="NOTEBOOK", help=".ipynb; with jupytext also .py, .md and others")
    run.add_argument("--json", action="store_true", help="print the timeline as JSON (docs/schemas.md)")
    run.add_argument(
        "--session", type=Path, metavar="FILE", help="session file to write (default: .ctxkernel/ beside the notebook)"
    )
    run.add_argument(
        "--timeout",
        "--cell-timeout",
        type=_SECONDS,
        metavar="S",
        help="seconds that each cell may take (default: no limit)",
    )
    run.add_argument(
        "-p",
        "--parameter",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="set a variable after the cell with the tag `parameters`, as papermill does (repeat)",
    )
    run.add_argument(
        "--allow-errors", action="store_true", help="go on after a cell that fails; the status is 0, as in nbconvert"
    )
    run.add_argument(
        "--resume",
        action="store_true",
        help="bring back the state of the last run first, and execute from the first cell on that it does not have",
    )
    run.add_argument(
        "--trust",
        action="store_true",
        help="for this run, trust the recorded turns and the settings beside the notebook; with --resume also the "
        "session, for good, as `ctxkernel trust` does (docs/trust.md)",
    )
    to = run.add_mutually_exclusive_group()
    to.add_argument("--output", type=Path, metavar="FILE", help="write the executed notebook to FILE")
    to.add_argument("--inplace", action="store_true", help="write the outputs into the notebook itself")


def _add_moving(command: AddCommand) -> None:
    """Add the commands that return to a state of a session."""

    def moving(name: str, summary: str) -> argparse.ArgumentParser:
        made = command(
            name, summary, "Starts a kernel on the newest session of the notebook, brings its state back, and ends it."
        )
        made.add_argument("notebook", type=Path, metavar="NOTEBOOK", help="notebook, or a session file (.sqlite)")
        made.add_argument("--session", type=Path, metavar="FILE", help="session file instead")
        made.add_argument("--dry-run", action="store_true", help="show the plan, and change nothing")
        made.add_argument("--json", action="store_true", help="print JSON (docs/cli.md)")
        return made

    goto = moving("goto", "return to the state after a statement")
    goto.add_argument("place", metavar="N", help="statement (10, s10, s10.2), a name, or 0: before all statements")
    goto.add_argument("--before", action="store_true", help="the state before it")
    rerun = moving("rerun", "return to the state before a statement, run it and those after it again, and compare")
    rerun.add_argument(
        "place", metavar="N[..M]", nargs="?", help="first statement, and the last one (default: to the end)"
    )
    rerun.add_argument(
        "--affected", action="store_true", help="instead: run the cells of the notebook that its changes affect"
    )
    rerun.add_argument("--inplace", action="store_true", help="write the outputs into the notebook (with --affected)")
    rerun.add_argument("--yes", action="store_true", help="run those too that are marked to ask before")
    rerun.add_argument("--timeout", type=_SECONDS, metavar="S", help="seconds that a statement may take")
    _add_sweep(moving("sweep", "run the cells after a statement for each combination of parameters, as branches"))


def _add_sweep(sweep: argparse.ArgumentParser) -> None:
    """Add the arguments of a sweep."""
    sweep.add_argument("parameters", nargs="*", metavar="NAME=VALUE,…", help="values, such as alpha=0.1,1 model=ridge")
    sweep.add_argument("--from", dest="start", required=True, metavar="N", help="statement after which it begins")
    sweep.add_argument("--until", metavar="M", help="last statement (default: to the end)")
    sweep.add_argument("--collect", metavar="NAMES", help="variables whose values the table has, with commas")
    sweep.add_argument("--file", type=Path, metavar="FILE", help="CSV, JSON or JSON Lines file with the combinations")
    sweep.add_argument("--samples", type=_COUNT, metavar="K", help="draw K combinations at random")
    sweep.add_argument("--seed", type=int, metavar="S", help="seed of --samples (default: 0)")
    sweep.add_argument("--scheduler", metavar="ADDRESS", help="Dask scheduler (default: a cluster on this machine)")
    sweep.add_argument("--store", metavar="URL", help="folder that all workers reach: a path, s3://…, gs://…")
    sweep.add_argument("--workers", type=_COUNT, metavar="W", help="workers on this machine (default: one a core)")
    sweep.add_argument(
        "--timeout", dest="task_timeout", type=_SECONDS, metavar="S", help="seconds that a task may take"
    )
    sweep.add_argument("--memory", type=_GIGABYTES, metavar="GB", help="memory that a task may take")
    sweep.add_argument("--again", action="store_true", help="run also what an earlier sweep has done")


def _add_bench(command: AddCommand) -> None:
    """Add the command that measures a model."""
    made = command(
        "bench",
        "play 30 small tasks with a model, and print how many it solves, and at what cost",
        "Each task is a small notebook and a question. The model works in a new kernel and folder, in mode auto: its "
        "cells run on this machine without approval, so use a container for a model that you do not trust. "
        "Assertions on the variables and files then judge it. Keys come from the environment, as for %%ask "
        "(ANTHROPIC_API_KEY). docs/bench.md describes the tasks.",
    )
    made.add_argument("--model", required=True, metavar="NAME", help="name of the model, as its server knows it")
    made.add_argument(
        "--base-url",
        metavar="URL",
        help="server that speaks the Messages API, such as http://localhost:11434 (default: ANTHROPIC_BASE_URL, else "
        "the provider's own)",
    )
    made.add_argument("--dialect", choices=("tools", "script"), help="how the model acts (default: what suits it)")
    made.add_argument("--tasks", metavar="NAME,…", help="play only these tasks (default: all)")
    made.add_argument("--repeat", type=_COUNT, default=1, metavar="N", help="play each task N times (default: 1)")
    made.add_argument(
        "--max-turns", type=_COUNT, default=10, metavar="N", help="most requests of a task (default: %(default)s)"
    )
    made.add_argument(
        "--timeout", type=_SECONDS, default=600.0, metavar="S", help="most seconds of a task (default: %(default)g)"
    )
    made.add_argument("--budget", type=_USD, metavar="USD", help="begin no task after this cost, for priced models")
    made.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="a setting of the kernels (repeat)"
    )
    made.add_argument("--at-least", type=_SHARE, metavar="SHARE", help="exit with 1 if fewer pass: 0.8, or 80%%")
    made.add_argument("--json", action="store_true", help="print JSON (docs/bench.md)")
    made.add_argument("--output", type=Path, metavar="FILE", help="also write the JSON to FILE")
    source = made.add_mutually_exclusive_group()
    source.add_argument("--record", type=Path, metavar="FILE", help="write the answered asks to FILE, for --replay")
    source.add_argument(
        "--replay", type=Path, metavar="FILE", help="ask no model: play the recorded answers, whose cells run again"
    )


def _add_trust(command: AddCommand) -> None:
    """Add the command that trusts files."""
    trust = command(
        "trust",
        "show what the files beside a notebook could run, send or decide, and trust them",
        "Trust holds for the content as it is now: a changed file is not trusted.",
    )
    trust.add_argument(
        "path", nargs="?", type=Path, metavar="PATH", help="notebook, session, recorded turns or ctxkernel.toml"
    )
    what = trust.add_mutually_exclusive_group()
    what.add_argument("--revoke", action="store_true", help="do not trust it any more")
    what.add_argument("--list", action="store_true", help="only show it; without PATH: all that you trust by word")
    trust.add_argument("--json", action="store_true", help="print JSON (docs/cli.md)")


def _add_mcp(command: AddCommand) -> None:
    mcp = command(
        "mcp",
        "let an agent (Claude Code, Cursor, VS Code …) work in the live kernel of a notebook, over MCP",
        "Serves on standard input and output. The agent's cells are statements of the notebook's timeline; in mode ask "
        "each waits for your approval, in the notebook or the panel.",
    )
    mcp.add_argument(
        "notebook",
        nargs="?",
        type=Path,
        metavar="NOTEBOOK",
        help="without it the agent works in the notebooks that have a live kernel, and chooses among them",
    )
    mcp.add_argument("--kernel", type=Path, metavar="CONNECTION", help="connection file of a live kernel")
    mcp.add_argument("--attach", action="store_true", help="start no kernel where the notebook has none")
    mcp.add_argument(
        "--mode", choices=("ask", "auto"), help="mode of a kernel that is started here (default: your setting)"
    )
    mcp.add_argument("--http", action="store_true", help="serve over HTTP on this machine, with a token that it prints")
    mcp.add_argument("--port", type=_PORT, default=0, help="port for --http (default: one that is free)")


def _add_store(command: AddCommand) -> None:
    made = command(
        "store",
        "keep sessions in a second place (a folder, s3://…), and bring them back on another machine",
        "A kernel pushes by itself where the setting `store` names a place. push: what the place lacks of a session; "
        "pull: a session that is not here, or what is missing of its checkpoint data; list: the sessions of the place; "
        "drop: remove a session from it.",
    )
    made.add_argument("action", choices=("push", "pull", "list", "drop"))
    made.add_argument(
        "notebook", nargs="?", type=Path, metavar="NOTEBOOK", help="notebook, or a session file (.sqlite)"
    )
    made.add_argument("--at", metavar="URL", help="the place (default: the setting `store`)")
    made.add_argument("--id", metavar="SESSION", help="a session that `list` shows, where several fit (pull, drop)")
    made.add_argument("--output", type=Path, metavar="FILE", help="session file to write (pull)")
    made.add_argument("--force", action="store_true", help="replace statements that are only there (push)")
    made.add_argument("--json", action="store_true", help="print JSON (docs/cli.md)")


def _add_reading(command: AddCommand) -> None:
    """Add the commands that read a session."""

    def reader(name: str, summary: str) -> argparse.ArgumentParser:
        made = command(
            name, summary, "Reads the newest session of the notebook; starts no kernel and executes nothing."
        )
        made.add_argument("notebook", type=Path, metavar="NOTEBOOK", help="notebook, or a session file (.sqlite)")
        made.add_argument("--session", type=Path, metavar="FILE", help="session file to read instead")
        made.add_argument("--json", action="store_true", help="print JSON (docs/schemas.md, docs/cli.md)")
        return made

    timeline = reader("timeline", "show what was executed, and with what result")
    branches = reader("branches", "list the branches of the timeline, and the names of its states")
    for each in (timeline, branches):
        each.add_argument("--all", action="store_true", help="every kernel start in the session, not only the last one")
    timeline.add_argument(
        "--rows", type=int, metavar="N", help="the newest N statements (default: 100; all of them with --json)"
    )
    projection = reader("projection", "show exactly what a model would be sent")
    projection.add_argument("--statement", metavar="N", help="as it was after statement N (default: the newest)")
    diff = reader("diff", "compare two states of the timeline: names, outputs, handles")
    diff.add_argument("old", metavar="N", help="statement (10, s10, s10.2), a name, or 0: before all statements")
    diff.add_argument("new", nargs="?", metavar="M", help="the same (default: HEAD)")
    reader("verify", "check a session: report damage, and the states that can be restored")

    check = command(
        "check",
        "check the JSON body of a Messages request against the rules of the model's API",
        "Sends nothing. Prints each violation with its place and the fix; status 1 where there is one.",
    )
    check.add_argument(
        "file", type=Path, metavar="FILE", help="a body, or several as JSON Lines; `-` is standard input (up to 64 MB)"
    )
    check.add_argument("--model", metavar="NAME", help="whose rules (default: the model that the body names)")
    check.add_argument(
        "--beta",
        action="append",
        default=[],
        metavar="NAME",
        help="a beta that the request's header will name (repeat)",
    )
    check.add_argument("--json", action="store_true", help="print JSON (docs/cli.md)")


def _add_exchange(command: AddCommand) -> None:
    """Add the commands that write a session as another file, and make one from a notebook."""
    export = command(
        "export",
        "write a session as one HTML file that opens without a network, or a branch of it as a notebook",
        "The page has notebook, timeline, branches, comparisons and the newest projection; the notebook has the cells "
        "of the branch with their outputs, and in metadata who wrote each. Secrets and private names are masked.",
    )
    export.add_argument("notebook", type=Path, metavar="NOTEBOOK", help="notebook, or a session file (.sqlite)")
    export.add_argument("--session", type=Path, metavar="FILE", help="session file to read instead")
    form = export.add_mutually_exclusive_group()
    form.add_argument("--html", action="store_true", help="write HTML (the default)")
    form.add_argument("--ipynb", action="store_true", help="write a notebook (the default for --output FILE.ipynb)")
    export.add_argument(
        "--branch", metavar="N", help="up to this statement (10, s10, s10.2) or name, on any branch (default: HEAD)"
    )
    export.add_argument("--output", type=Path, metavar="FILE", help="file to write (default: NOTEBOOK.html beside it)")
    export.add_argument("--json", action="store_true", help="print file, size and omissions as JSON")
    taken = command(
        "import",
        "make a session from a notebook's file: its cells with their outputs, as statements that did not run here",
        "Executes nothing. The statements have no checkpoints; `ctxkernel rerun NOTEBOOK 1` runs and compares them.",
    )
    taken.add_argument("notebook", type=Path, metavar="NOTEBOOK", help=".ipynb; with jupytext also .py, .md and others")
    taken.add_argument("--session", type=Path, metavar="FILE", help="session file to write instead")
    taken.add_argument("--add", action="store_true", help="into a session with statements, as a new start")
    taken.add_argument("--json", action="store_true", help="print JSON (docs/cli.md)")


_COMMANDS = {
    "lab": "lab",
    "run": "run",
    "goto": "navigation",
    "rerun": "navigation",
    "sweep": "sweep",
    "timeline": "read",
    "projection": "read",
    "branches": "tree",
    "diff": "tree",
    "export": "export",
    "import": "export:import_session",
    "verify": "verify",
    "check": "check",
    "bench": "bench",
    "mcp": "mcp.command",
    "trust": "trust",
    "gc": "gc",
    "store": "mirror",
    "install": "kernelspec",
    "doctor": "doctor",
}
"""The module of each command, and its function, if that has not the command's name."""


def _find(name: str) -> Callable[[argparse.Namespace], int]:
    """Import only what the command needs: `ctxkernel timeline` does not wait for nbclient."""
    module, _, function = _COMMANDS[name].partition(":")
    with without_grammars():
        return getattr(importlib.import_module(f"ctxkernel.cli.{module}"), function or name)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; the parameters of a sweep may stand before, between and after its options."""
    parser = build_parser()
    arguments, rest = parser.parse_known_args(argv)
    if rest and (arguments.command != "sweep" or any(one.startswith("-") for one in rest)):
        arguments.refuse(f"unrecognized arguments: {' '.join(rest)}")  # with the usage of the command
    if rest:
        arguments.parameters += rest
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        arguments = _parsed(argv)
    except SystemExit as stop:  # argparse has shown the error or the help
        return stop.code if isinstance(stop.code, int) else UNUSABLE
    try:
        status = _find(arguments.command)(arguments)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, Interrupted):
        say(f"ctxkernel {arguments.command}: interrupted")
        return INTERRUPTED
    except CtxError as refusal:
        say(f"ctxkernel {arguments.command}: {safe_block(str(refusal))}")
        return UNUSABLE if isinstance(refusal, Unusable) else FAILED
    except BrokenPipeError:
        # `ctxkernel timeline x.ipynb | head`: nobody reads on. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as fault:
        if os.environ.get("CTXKERNEL_DEBUG"):
            raise
        say(
            f"ctxkernel {arguments.command}: unexpected {type(fault).__name__}: {safe_block(str(fault))}. "
            "`ctxkernel doctor` says what works here; with CTXKERNEL_DEBUG=1 the same command shows where it happened."
        )
        return FAILED
