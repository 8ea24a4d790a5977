"""A kernel of this interpreter for one command: started, spoken to, ended.

Rule 1: it needs no kernelspec, and is ended whatever happens.
Rule 2: Ctrl-C interrupts what it executes, so that the timeline has it as cancelled; twice, or SIGTERM, ends it.
"""

from __future__ import annotations

import ast
import asyncio
import atexit
import contextlib
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import IO, Any

import nbformat
import zmq
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_async
from nbclient import NotebookClient
from traitlets import default

from ctxkernel.cli import Failed, Interrupted
from ctxkernel.cli.kernelspec import OwnKernelSpecs
from ctxkernel.cli.output import safe_line
from ctxkernel.store.lock import SessionLock, holder, lock_path
from ctxkernel.store.log.reader import SessionReader

RESUME = "CTXKERNEL_RESUME"
"""The variable that makes a kernel bring back what an earlier one left, before its first cell."""
STARTUP_SECONDS = 120
_ANSWER_SECONDS = 60
_SEND_MS = 10_000
_PORT_TAKEN = "Address already in use"
_ABOUT = (
    "(lambda ctx: __import__('json').dumps("
    "{'off': {'everything': 'the session could not be begun'}} if ctx is None else "
    "{'session': str(ctx.store.path or ''), 'off': ctx.guard.off, "
    "'notices': ctx.notices.kept, 'head': ctx.loop.log.head})"
    ")(get_ipython().kernel.ctx)"
)


class _CellClient(AsyncKernelClient):
    """Says which cell it executes, as JupyterLab does: nbclient does not, and two equal cells would be one."""

    cell_id: str | None = None

    def connect_shell(self, identity: bytes | None = None) -> Any:
        """As ever, but no message waits for ever: where the port is another program's, nobody takes one."""
        socket: Any = super().connect_shell(identity)
        socket.sndtimeo = _SEND_MS
        return socket

    async def wait_for_ready(self, *given: Any, **named: Any) -> None:
        """As ever. Raises RuntimeError, too, where the kernel's port is another program's."""
        try:
            await super().wait_for_ready(*given, **named)
        except zmq.Again:
            raise RuntimeError("the kernel's port was taken by another program") from None

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


class OwnKernel(NotebookClient):
    """A running kernel of this interpreter, for the cells of one notebook."""

    interrupted = False
    """Whether the person pressed Ctrl-C, or the process was asked to end."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._signals: list[asyncio.Future[Any]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def started(
        cls,
        notebook: nbformat.NotebookNode,
        folder: Path,
        environment: Mapping[str, str | None],
        log: IO[bytes],
        *,
        seconds: int | None = None,
    ) -> AsyncIterator[OwnKernel]:
        """Start one in `folder`; `log` takes what its process says. Raises RuntimeError or TimeoutError.

        `environment` is added to this process's, and what is None in it taken away; `seconds` bounds the wait for a
        cell that does not answer.
        """
        merged = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
        async with contextlib.AsyncExitStack() as stack:
            for tries_left in (2, 1, 0):
                kernel = cls._made(notebook, folder, seconds)
                # nbclient leaves this behind where the kernel did not start, and it would fail at our exit.
                stack.callback(atexit.unregister, kernel._cleanup_kernel)
                try:
                    await stack.enter_async_context(
                        kernel.async_setup_kernel(env=merged, cleanup_kc=True, stdout=log, stderr=log)
                    )
                    break
                except RuntimeError:
                    if kernel.interrupted:
                        raise Interrupted("while the kernel started") from None
                    # Jupyter lets go of the ports that it picks until the kernel binds them: another may take one.
                    if not tries_left or _PORT_TAKEN not in last_line(log):
                        raise
            if kernel.interrupted:
                raise Interrupted("before the kernel was there")
            yield kernel

    @classmethod
    def _made(cls, notebook: nbformat.NotebookNode, folder: Path, seconds: int | None) -> OwnKernel:
        kernel = cls(
            notebook,
            kernel_name="ctxkernel",
            kernel_manager_class=_OwnKernelManager,
            resources={"metadata": {"path": str(folder)}},
            startup_timeout=STARTUP_SECONDS,
            timeout=seconds,
            # The person's own IPython history is not for what no person typed.
            extra_arguments=["--HistoryManager.hist_file=:memory:"],
        )
        # Every fault that nbclient logs, it raises too; we say it once.
        kernel.log = logging.getLogger("ctxkernel.cli")
        kernel.log.setLevel(logging.CRITICAL + 1)
        return kernel

    @property
    def client(self) -> _CellClient:
        """The connection to it."""
        assert isinstance(self.kc, _CellClient)
        return self.kc

    async def async_start_new_kernel(self, **kwargs: Any) -> None:
        """As nbclient's, whose own handlers would end the kernel at a signal, and show traces where it just starts."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows; not the main thread
            # Twice is for a cell that does not listen.
            loop.add_signal_handler(signal.SIGINT, lambda: self._stop(now=self.interrupted))
            loop.add_signal_handler(signal.SIGTERM, lambda: self._stop(now=True))
        await super().async_start_new_kernel(**kwargs)

    def _stop(self, *, now: bool) -> None:
        """Interrupt what the kernel executes, or end it `now`."""
        manager = self.km
        if isinstance(manager, AsyncKernelManager):
            self.interrupted = True
            task = asyncio.ensure_future(manager.shutdown_kernel(now=True) if now else manager.interrupt_kernel())
            self._signals.append(task)

    async def ask(self, expression: str) -> str:
        """Return the `repr` of an expression by a silent request: it leaves no statement.

        Raises KeyError where it failed, TimeoutError and DeadKernelError where there is no answer.
        """
        self.client.cell_id = None
        msg_id = self.client.execute("", silent=True, user_expressions={"value": expression})
        reply = await asyncio.wait_for(self.async_wait_for_reply(msg_id), _ANSWER_SECONDS)
        return (reply or {})["content"]["user_expressions"]["value"]["data"]["text/plain"]

    async def command(self, line: str) -> dict[str, Any]:
        """Execute a `%ctx` line as a statement; return the content of the reply."""
        self.client.cell_id = None
        reply = await self.async_wait_for_reply(self.client.execute(line))
        return (reply or {}).get("content", {})

    async def about(self) -> dict[str, Any]:
        """Return `{session, off, notices, head}`: the file that it writes, which parts are off, and where HEAD is."""
        with contextlib.suppress(Exception):  # it is gone, or broken: then nothing is known of it
            if self.km is None or not await ensure_async(self.km.is_alive()):  # no use waiting for an answer
                return {}
            return json.loads(ast.literal_eval(await self.ask(_ABOUT)))
        return {}

    async def limit(self, seconds: float | None) -> None:
        """Bound what a cell may take; None: no bound."""
        if seconds is not None:
            await self.ask(f"get_ipython().run_line_magic('ctx', 'timeout {seconds:g}')")


def last_line(log: IO[bytes]) -> str:
    """Return what a kernel's process said last outside of any cell: where it fails early that is the reason."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return safe_line(lines[-1])[:500] if lines else ""


# -- on a session that is there already ----------------------------------------------------------------


def has_statements(session: Path) -> bool:
    """Say whether there is something to resume in a session file."""
    if not session.is_file():
        return False
    with SessionReader(session) as reader:
        return reader.head() is not None or bool(reader.statements())


def keep_off(session: Path) -> None:
    """Raise Failed where a living kernel writes the session: a second one would begin another."""
    try:
        lock = SessionLock.take(session) if lock_path(session).exists() else None
    except OSError:  # no locks here, or none that we may take: the kernel says what it can do
        return
    if lock is not None:
        lock.release()
    elif lock_path(session).exists():
        raise Failed(
            f"{session} is in use by a running kernel ({holder(session) or 'of an unknown process'}): "
            "use the same command in its notebook as `%ctx …`, or shut that kernel down first."
        )


_NEEDED = ("checkpoints", "everything", "resuming", "session store", "timeline")


async def resumed_at(kernel: OwnKernel, session: Path) -> str | None:
    """Return where HEAD is in a kernel that was started to resume a session. Raises Failed with the reason."""
    about = await kernel.about()
    if not about:
        raise Failed(f"the kernel that should bring back {session} died, or does not answer; call it again.")
    reasons = [notice for notice in about.get("notices", ()) if notice.startswith("not resumed: ")]
    reasons += [f"{part} is off ({why})" for part, why in about.get("off", {}).items() if part in _NEEDED]
    if not about.get("session") or Path(about["session"]).resolve() != session.resolve():
        reasons.append(f"the kernel took {about.get('session') or 'no file'} instead")
    if reasons:
        why = safe_line(reasons[0].removeprefix("not resumed: "))
        raise Failed(f"the state of {session} could not be brought back: {why}")
    return about.get("head")
