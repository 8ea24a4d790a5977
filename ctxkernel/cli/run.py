"""`ctxkernel run NOTEBOOK`: execute a notebook without a front end, on the kernel of this interpreter.

Rule 1: A cell does the same here as in JupyterLab; only `input()` is refused, since nobody can answer.
Rule 2: The kernel writes the session, as always; this module only reads it at the end.
"""

# nbformat, nbclient and jupyter_client are typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from pathlib import Path
from typing import IO, Any

import nbformat
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from ctxkernel.agent.asks import ask_state
from ctxkernel.agent.logged_asks import trust_session_file
from ctxkernel.agent.trust_review import trusted_subjects
from ctxkernel.cli import INTERRUPTED, Failed, Unusable
from ctxkernel.cli.continuation import MAY_FAIL, CodeCell, continuation
from ctxkernel.cli.kernel import RESUME, OwnKernel, has_statements, keep_off, kernel_log, last_line, resumed_at
from ctxkernel.cli.notebook_files import is_text_form, read_notebook, write_notebook
from ctxkernel.cli.output import has_colour, paint, safe_block, safe_line, say, show_result, status_colour
from ctxkernel.cli.parameters import inject_parameters
from ctxkernel.cli.read import check_folder, timeline_text
from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import clip, format_duration, plural, strip_ansi
from ctxkernel.core.timeline_table import gist
from ctxkernel.store.log.location import FOLDER, HINT, OVERRIDE
from ctxkernel.store.log.newest_session import newest_session
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.trust_registry import TRUSTED

GRACE_SECONDS = 30
"""Seconds after its time-out for which a cell may still run before its kernel is ended."""
_ANSI = re.compile(r"(\x1b\[[0-9;]*m)")

Cells = list[tuple[int, nbformat.NotebookNode]]
"""Cells with code, each with its place among all cells."""


class Progress:
    """One line a cell on standard error: on a terminal it is overwritten while the cell runs."""

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._live = sys.stderr.isatty()
        self._started = 0.0

    def _line(self, number: int, status: str, took: str, source: str) -> str:
        mark = paint(f"{status:<9}", status_colour(status), sys.stderr)
        place = f"[{number:>{len(str(self._cells))}}/{self._cells}]"
        return f"{place} {mark} {took:>9}  {clip(safe_line(gist(source)), 80)}"

    def begin(self, number: int, source: str) -> None:
        """Show that a cell starts."""
        self._started = time.monotonic()
        if self._live:
            print(self._line(number, "running", "", source), end="", file=sys.stderr, flush=True)

    def kept(self, number: int, source: str, statement_id: str) -> None:
        """Show that a cell is not executed, since the session has it as this statement."""
        say(self._line(number, "kept", statement_id, source))

    def end(self, number: int, source: str, status: str) -> None:
        """Show that a cell ended."""
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr)
        say(self._line(number, status, format_duration(time.monotonic() - self._started), source))


@dataclass(slots=True)
class RunOutcome:
    """The end of the run."""

    status: int = 0
    message: str = ""
    session: Path | None = None
    failed: list[int] = field(default_factory=list[int])
    """The cells that failed, and were allowed to."""


async def _execute(
    notebook: nbformat.NotebookNode, path: Path, arguments: argparse.Namespace, log: IO[bytes]
) -> RunOutcome:
    outcome = RunOutcome()
    environment: dict[str, str | None] = {HINT: str(path.resolve())}
    if arguments.trust:
        environment[TRUSTED] = trusted_subjects(path, give=True)
    session: Path | None = arguments.session
    if arguments.resume and session is None:
        session = newest_session(path, tell=say)
    resumed: Path | None = None
    if session is not None:
        environment[OVERRIDE] = str(session.resolve())
        if arguments.resume and has_statements(session):
            keep_off(session)
            if arguments.trust and (fault := trust_session_file(session)):
                raise Failed(f"{session} cannot be trusted: {safe_line(fault)}")
            environment[RESUME] = "1"
            resumed = session
    seconds = None if arguments.timeout is None else int(arguments.timeout + GRACE_SECONDS)
    folder = path.resolve().parent
    async with OwnKernel.started(notebook, folder, environment, log, seconds=seconds) as kernel:
        kernel.allow_errors = arguments.allow_errors
        await kernel.limit(arguments.timeout)
        cells = code_cells(notebook)
        progress = Progress(len(cells))
        first = await _resume(kernel, resumed, cells, progress) if resumed is not None else 0
        if arguments.resume and resumed is None:
            say("Nothing to resume: this notebook has no session with statements yet. Every cell runs.")
        await run_cells(kernel, cells[first:], first, outcome, progress)
        if kernel.kc is not None:
            said = (await kernel.about()).get("session")
            outcome.session = Path(said) if said else None
    return outcome


def code_cells(notebook: nbformat.NotebookNode) -> Cells:
    """Return the cells that run, each with its place among all cells."""
    return [(at, one) for at, one in enumerate(notebook.cells) if one.cell_type == "code" and one.source.strip()]


async def _resume(kernel: OwnKernel, session: Path, cells: Cells, progress: Progress) -> int:
    """Go to the state from which the notebook continues; return how many cells need not run. Raises Failed."""
    head = await resumed_at(kernel, session)
    with SessionReader(session) as reader:
        path, states = reader.log().path(head), reader.marks("ask")
    codes = [CodeCell(cell.get("id"), cell.source, MAY_FAIL in cell.metadata.get("tags", ())) for _, cell in cells]
    answered = {ask for (ask, _), value in states.items() if (one := ask_state(value)) and one.result == "answered"}
    found = continuation(codes, path, answered)
    for number, (done, (_, cell)) in enumerate(zip(found.done, cells, strict=False), 1):
        progress.kept(number, cell.source, done.statement_id)
    kept = len(found.done)
    if not found.why:
        say(f"All {kept} cells are in the session as they are: nothing is executed.")
        return kept
    if found.moves:
        reply = await kernel.command(f"%ctx goto {found.back_to or 0}")
        if reply.get("status") != "ok":
            raise Failed(
                f"the state before cell {kept + 1} cannot be brought back: {safe_line(str(reply.get('evalue')))}. "
                "Without --resume every cell runs."
            )
    say(f"Cell {kept + 1} and those after it run: {found.why}.")
    return kept


async def run_cells(kernel: OwnKernel, cells: Cells, before: int, outcome: RunOutcome, progress: Progress) -> None:
    """Execute cells in order; `before` is the number of cells with code above the first one."""
    for number, (index, cell) in enumerate(cells, before + 1):
        kernel.client.cell_id, kernel.client.cell_tags = cell.get("id"), cell.metadata.get("tags", ())
        progress.begin(number, cell.source)
        status, message = "ok", ""
        try:
            await kernel.async_execute_cell(cell, index, execution_count=kernel.code_cells_executed + 1)
        except CellExecutionError as fault:
            status, message = "error", _cell_error(number, cell, fault)
        except CellTimeoutError:
            status = "timeout"
            message = (
                f"Cell {number} did not stop {GRACE_SECONDS} s after its time-out; its kernel was ended. "
                "What ran before it is in the session."
            )
        except (DeadKernelError, RuntimeError, AssertionError):
            # After an interrupt that shut the kernel down nbclient finds no client any more.
            status = "cancelled"
            message = (
                f"The kernel died in cell {number}. What ran before it is in the session; "
                "memory that ran out and native code that crashed are the usual causes."
            )
        else:
            # An ask may show an error of the model's cell, which the model has corrected.
            may_fail = kernel.allow_errors or MAY_FAIL in cell.metadata.get("tags", ())
            if may_fail and _errors(cell):
                status = "error"
                outcome.failed.append(number)
        progress.end(number, cell.source, status)
        if kernel.interrupted and status != "timeout":  # also if the cell caught the KeyboardInterrupt, or just ended
            outcome.status = INTERRUPTED
            return
        if message:
            outcome.status, outcome.message = 1, message
            return
    kernel.set_widgets_metadata()


def _errors(cell: nbformat.NotebookNode) -> list[Any]:
    return [output for output in cell.outputs if output.output_type == "error"]


def _cell_error(number: int, cell: nbformat.NotebookNode, fault: CellExecutionError) -> str:
    """Return the kernel's traceback, with its colours on a terminal only, and every other control character shown."""
    if fault.ename == "Waiting":
        return (
            f"Cell {number} asks the model, whose cells wait for an approval (mode ask), which nobody can give here. "
            "CTXKERNEL_MODE=auto, or %%ask --mode auto, lets them run; with recorded turns (%ctx record, in the "
            "notebook) no model is asked."
        )
    summary = f"{fault.ename}: {fault.evalue}"
    lines = next(("\n".join(error.traceback) for error in _errors(cell)), summary)
    if has_colour(sys.stderr):
        lines = "".join(part if _ANSI.fullmatch(part) else safe_block(part) for part in _ANSI.split(lines))
    else:
        lines = safe_block(strip_ansi(lines))
    return f"{lines}\n\nCell {number} failed: {safe_line(summary)[:300]}"


def _why_none(notebook: Path) -> str:
    """Return why a notebook can have no session in its folder; empty if it can."""
    from ctxkernel.cli.doctor import is_writable

    folder = notebook.resolve().parent / FOLDER
    return "" if is_writable(folder) else f"{folder} cannot be written: name a file of your own with --session FILE."


def run(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel run`."""
    path: Path = arguments.notebook
    notebook = read_notebook(path)
    if arguments.parameter and (unknown := inject_parameters(notebook, arguments.parameter)):
        say(f"No cell with the tag `parameters` sets {', '.join(map(safe_line, unknown))}.")
    target: Path | None = path if arguments.inplace else arguments.output
    if target is not None and is_text_form(target):
        raise Unusable(f"{target} holds no outputs, as a text file; --output FILE.ipynb writes a notebook with them.")
    check_folder("--output", target)
    check_folder("--session", arguments.session)
    with kernel_log() as log:
        outcome = asyncio.run(_execute(notebook, path, arguments, log))
        complaint = last_line(log)
    if target is not None:
        write_notebook(notebook, target)
    if arguments.allow_errors and outcome.failed:
        say(f"{plural(len(outcome.failed), 'cells')} failed: {', '.join(map(str, outcome.failed[:20]))}")
    if outcome.message:
        say(f"\n{safe_block(outcome.message)}")
    session = outcome.session or arguments.session or newest_session(path)
    if session is None or not Path(session).is_file():
        raise Failed(f"the kernel wrote no session, so there is no timeline to show. {_why_none(path) or complaint}")
    with SessionReader(Path(session)) as reader, reader.snapshot():
        value, log = reader.timeline(), reader.log(details=False)
    show_result(value, lambda: timeline_text(value, reader.path, {}, log), as_json=arguments.json)
    return outcome.status
