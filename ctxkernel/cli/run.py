"""`ctxkernel run NOTEBOOK`: execute a notebook without a front end, on the kernel of this interpreter.

Rule 1: what a cell would do in JupyterLab it does here; only `input()` is refused, since nobody is there to answer.
Rule 2: the session is written by the kernel, as always; this module only reads it at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import logging
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import nbformat
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from traitlets import default

from ctxkernel.cli import INTERRUPTED, Failed, Unusable
from ctxkernel.cli.kernelspec import OwnKernelSpecs
from ctxkernel.cli.output import (
    clip,
    duration,
    gist,
    has_colour,
    one_line,
    paint,
    safe_block,
    say,
    show,
    show_json,
    status_colour,
)
from ctxkernel.cli.read import timeline_table
from ctxkernel.store.session import SessionReader, newest_session

STARTUP_SECONDS = 120
GRACE_SECONDS = 30
"""How much longer than its time-out a cell may be before its kernel is taken for stuck."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class _CellClient(AsyncKernelClient):
    """Says which cell it executes, as JupyterLab does: nbclient does not, and two equal cells would be one."""

    cell_id: str | None = None

    def execute(self, code: str, *args: Any, **options: Any) -> str:  # noqa: D102
        plain_msg = self.session.msg

        def msg(msg_type: str, *rest: Any, **named: Any) -> dict[str, Any]:
            if msg_type == "execute_request" and self.cell_id is not None:
                named["metadata"] = {**(named.get("metadata") or {}), "cellId": self.cell_id}
            return plain_msg(msg_type, *rest, **named)

        self.session.msg = msg
        try:
            return super().execute(code, *args, **options)
        finally:
            del self.session.msg


class _OwnKernelManager(AsyncKernelManager):
    @default("client_factory")
    def _factory(self) -> type[_CellClient]:
        return _CellClient

    @default("kernel_spec_manager")
    def _specs(self) -> KernelSpecManager:
        return OwnKernelSpecs(parent=self)


class _Progress:
    """One line a cell on standard error: overwritten while it runs on a terminal, written once elsewhere."""

    def __init__(self, cells: int):
        self._cells = cells
        self._live = sys.stderr.isatty()
        self._started = 0.0

    def _line(self, number: int, status: str, took: str, source: str) -> str:
        mark = paint(f"{status:<9}", status_colour(status), sys.stderr)
        return f"[{number:>{len(str(self._cells))}}/{self._cells}] {mark} {took:>9}  {clip(gist(source), 80)}"

    def begin(self, number: int, source: str) -> None:
        """A cell starts."""
        self._started = time.monotonic()
        if self._live:
            print(self._line(number, "running", "", source), end="", file=sys.stderr, flush=True)

    def end(self, number: int, source: str, status: str) -> None:
        """A cell ended."""
        if self._live:
            print("\r\x1b[2K", end="", file=sys.stderr)
        say(self._line(number, status, duration((time.monotonic() - self._started) * 1000), source))


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Return the notebook at `path`, in the current format. Raises Unusable with what is wrong."""
    if not path.exists():
        raise Unusable(f"{path}: there is no such notebook.")
    if not path.is_file():
        raise Unusable(f"{path} is not a notebook; give an .ipynb file.")
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except (OSError, UnicodeDecodeError) as fault:
        raise Unusable(f"{path} cannot be read: {fault}.") from fault
    except Exception as fault:  # nbformat has many ways to say it; its first line does
        raise Unusable(f"{path} is not a valid notebook: {one_line(str(fault))[:200]}.") from fault
    language = notebook.metadata.get("kernelspec", {}).get("language") or "python"
    if language.lower() not in ("python", "python3", "ipython"):
        raise Unusable(f"{path} is a {one_line(language)} notebook; the ctxkernel runs Python.")
    return notebook


class _Outcome:
    """How the run ended."""

    def __init__(self) -> None:
        self.status = 0
        self.message = ""
        self.interrupted = False
        self.session: Path | None = None


async def _execute(
    notebook: nbformat.NotebookNode, path: Path, arguments: argparse.Namespace, log: IO[bytes]
) -> _Outcome:
    outcome = _Outcome()
    environment = {**os.environ, "JPY_SESSION_NAME": str(path.resolve())}
    if arguments.session is not None:
        environment["CTXKERNEL_SESSION"] = str(arguments.session.resolve())
    client = NotebookClient(
        notebook,
        kernel_name="ctxkernel",
        kernel_manager_class=_OwnKernelManager,
        resources={"metadata": {"path": str(path.resolve().parent)}},
        startup_timeout=STARTUP_SECONDS,
        timeout=None if arguments.timeout is None else int(arguments.timeout + GRACE_SECONDS),
        # The person's own IPython history is not for what no person typed.
        extra_arguments=["--HistoryManager.hist_file=:memory:"],
    )
    # Every fault that nbclient logs, it raises too; we say it once.
    client.log = logging.getLogger("ctxkernel.cli.run")
    client.log.setLevel(logging.CRITICAL + 1)

    with contextlib.ExitStack() as undo:
        # nbclient leaves this behind where the kernel did not start, and it would fail at our exit.
        undo.callback(atexit.unregister, client._cleanup_kernel)
        async with client.async_setup_kernel(env=environment, cleanup_kc=True, stdout=log, stderr=log):
            kernel = client.kc
            assert isinstance(kernel, _CellClient)
            _interrupt_on_sigint(client, outcome, undo)
            if arguments.timeout is not None:
                await _ask(client, f"get_ipython().run_line_magic('ctx', 'timeout {arguments.timeout:g}')")
            await _run_cells(client, kernel, notebook, outcome)
            if client.kc is not None:
                outcome.session = await _session_of(client)
    return outcome


async def _run_cells(
    client: NotebookClient, kernel: _CellClient, notebook: nbformat.NotebookNode, outcome: _Outcome
) -> None:
    total = sum(cell.cell_type == "code" and bool(cell.source.strip()) for cell in notebook.cells)
    progress = _Progress(total)
    number = 0
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        number += 1
        kernel.cell_id = cell.get("id")
        progress.begin(number, cell.source)
        try:
            await client.async_execute_cell(cell, index, execution_count=client.code_cells_executed + 1)
        except CellExecutionError as fault:
            progress.end(number, cell.source, "error")
            outcome.status = INTERRUPTED if outcome.interrupted else 1
            if not outcome.interrupted:
                outcome.message = _cell_error(number, cell, fault)
            return
        except CellTimeoutError:
            progress.end(number, cell.source, "timeout")
            outcome.status = 1
            outcome.message = (
                f"Cell {number} did not stop {GRACE_SECONDS} s after its time-out; its kernel was ended. "
                "What ran before it is in the session."
            )
            return
        except (DeadKernelError, RuntimeError, AssertionError):
            # After an interrupt that shut the kernel down nbclient finds no client any more.
            progress.end(number, cell.source, "cancelled")
            outcome.status = INTERRUPTED if outcome.interrupted else 1
            if not outcome.interrupted:
                outcome.message = (
                    f"The kernel died in cell {number}. What ran before it is in the session; "
                    "memory that ran out and native code that crashed are the usual causes."
                )
            return
        progress.end(number, cell.source, "error" if _has_error(cell) else "ok")
        if outcome.interrupted:  # the cell swallowed the KeyboardInterrupt, or had just ended
            outcome.status = INTERRUPTED
            return
    client.set_widgets_metadata()


def _has_error(cell: nbformat.NotebookNode) -> bool:
    return any(output.output_type == "error" for output in cell.outputs)


def _cell_error(number: int, cell: nbformat.NotebookNode, fault: CellExecutionError) -> str:
    """The kernel's own traceback, with its colours on a terminal only, and nothing else that a terminal would obey."""
    error = next((output for output in cell.outputs if output.output_type == "error"), None)
    lines = "\n".join(error.traceback) if error else f"{fault.ename}: {fault.evalue}"
    if not has_colour(sys.stderr):
        lines = safe_block(_ANSI.sub("", lines))
    else:
        lines = "".join(part if _ANSI.fullmatch(part) else safe_block(part) for part in _split_lines(lines))
    return f"{lines}\n\nCell {number} failed: {one_line(f'{fault.ename}: {fault.evalue}')[:300]}"


def _split_lines(text: str) -> list[str]:
    """Colour codes, line ends and the texts between them."""
    return re.split(r"(\x1b\[[0-9;]*m)", text)


def _interrupt_on_sigint(client: NotebookClient, outcome: _Outcome, undo: contextlib.ExitStack) -> None:
    """Let Ctrl-C interrupt the cell, so that the timeline has it as cancelled; nbclient would end the kernel."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Future[Any]] = set()

    def on_sigint() -> None:
        manager = client.km
        if not isinstance(manager, AsyncKernelManager):
            return
        again, outcome.interrupted = outcome.interrupted, True
        # Twice is for a cell that does not listen.
        task = asyncio.ensure_future(manager.shutdown_kernel(now=True) if again else manager.interrupt_kernel())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows; not the main thread
        loop.add_signal_handler(signal.SIGINT, on_sigint)
        undo.callback(tasks.clear)


async def _ask(client: NotebookClient, expression: str) -> dict[str, Any]:
    """Evaluate silently, which leaves no statement; returns the expression's reply."""
    kernel = client.kc
    assert isinstance(kernel, _CellClient)
    kernel.cell_id = None
    msg_id = kernel.execute("", silent=True, user_expressions={"value": expression})
    reply = await client.async_wait_for_reply(msg_id)
    return (reply or {}).get("content", {}).get("user_expressions", {}).get("value", {})


async def _session_of(client: NotebookClient) -> Path | None:
    """Return the session file that the kernel really writes, as it says."""
    import ast

    with contextlib.suppress(Exception):
        value = await _ask(client, "str(get_ipython().kernel.ctx.store.path or '')")
        text = ast.literal_eval(value["data"]["text/plain"])
        return Path(text) if text else None
    return None


def _last_line(log: IO[bytes]) -> str:
    """What the kernel's process said last outside of any cell: where it fails early that is the reason."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return one_line(lines[-1])[:500] if lines else ""


def run(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel run`."""
    path: Path = arguments.notebook
    notebook = read_notebook(path)
    target: Path | None = path if arguments.inplace else arguments.output
    if target is not None and not target.resolve().parent.is_dir():
        raise Unusable(f"--output {target}: there is no folder {target.parent}; make it first.")
    if arguments.session is not None and not arguments.session.resolve().parent.is_dir():
        raise Unusable(f"--session {arguments.session}: there is no folder {arguments.session.parent}; make it first.")
    with tempfile.TemporaryFile() as log:
        try:
            outcome = asyncio.run(_execute(notebook, path, arguments, log))
        except (RuntimeError, TimeoutError) as fault:
            why = _last_line(log) or one_line(str(fault))
            raise Failed(f"the kernel did not start: {why}\n`ctxkernel doctor` says what works here.") from fault
        complaint = _last_line(log)

    if target is not None:
        try:
            nbformat.write(notebook, target)
        except OSError as fault:
            raise Failed(f"{target} could not be written: {fault.strerror}.") from fault
    if outcome.message:
        say(f"\n{outcome.message}")
    session = outcome.session or arguments.session or newest_session(path)
    if session is None or not Path(session).is_file():
        raise Failed(f"the kernel wrote no session, so there is no timeline to show. {complaint}".rstrip())
    with SessionReader(Path(session)) as reader:
        value = reader.timeline()
    if arguments.json:
        show_json(value)
    else:
        show(timeline_table(value, reader.path))
    return outcome.status
