"""A kernel of this interpreter for one command: start it, send requests, end it.

Rule 1: It needs no kernelspec, and is always ended.
Rule 2: Ctrl-C interrupts the running cell, which the timeline then shows as cancelled; a second one, or SIGTERM, ends
        the kernel.
"""

# nbformat, nbclient and jupyter_client are typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ast
import asyncio
import atexit
import contextlib
import json
import logging
import os
import signal
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import nbformat
import zmq
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_async
from nbclient import NotebookClient
from traitlets import Type, default

from ctxkernel.cli import Failed, Interrupted
from ctxkernel.cli.kernelspec import OwnKernelSpecs
from ctxkernel.cli.output import safe_line
from ctxkernel.store import lock
from ctxkernel.store.log.reader import SessionReader

RESUME = "CTXKERNEL_RESUME"
"""The variable that makes a kernel restore the state of an earlier one before its first cell."""
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
_WRITTEN = "(lambda ctx: ctx is None or ctx.checkpoints.wait_for_all(1.0))(get_ipython().kernel.ctx)"
"""True if no data of checkpoints are being written, after a second at most."""


class _Channel(AsyncZMQSocketChannel):
    """A channel on which a message can be sent while another coroutine waits for one."""

    def send(self, msg: dict[str, Any]) -> None:
        """Send a message.

        jupyter_client sends past asyncio, which takes the notice of a message that has arrived meanwhile: whoever waits
        for it would wait for ever. Here the socket is asked again.
        """
        super().send(msg)
        socket: Any = self.socket
        socket._schedule_remaining_events()


class KernelClient(AsyncKernelClient):
    """A client that misses no message."""

    shell_channel_class = Type(_Channel)
    control_channel_class = Type(_Channel)
    stdin_channel_class = Type(_Channel)


class _CellClient(KernelClient):
    """Sends the id and the tags of the cell that it executes, as JupyterLab does; nbclient sends neither."""

    cell_id: str | None = None
    cell_tags: Sequence[str] = ()

    def connect_shell(self, identity: bytes | None = None) -> Any:
        """Connect, with a time limit for sending: if the port is another program's, nobody takes a message."""
        socket: Any = super().connect_shell(identity)
        socket.sndtimeo = _SEND_MS
        return socket

    async def wait_for_ready(self, *given: Any, **named: Any) -> None:
        """Wait for the kernel. Raises RuntimeError also if the kernel's port is another program's."""
        try:
            await super().wait_for_ready(*given, **named)
        except zmq.Again:
            raise RuntimeError("the kernel's port was taken by another program") from None

    def execute(self, code: str, *args: Any, **options: Any) -> str:
        plain_msg = self.session.msg

        def msg(msg_type: str, *rest: Any, **named: Any) -> dict[str, Any]:
            if msg_type == "execute_request" and self.cell_id is not None:
                named["metadata"] = {**(named.get("metadata") or {}), "cellId": self.cell_id, "tags": [*self.cell_tags]}
            return plain_msg(msg_type, *rest, **named)

        self.session.msg = msg
        try:
            return super().execute(code, *args, **options)
        finally:
            del self.session.msg


class OwnKernelManager(AsyncKernelManager):
    """Starts kernels of this interpreter, whatever is registered with Jupyter."""

    @default("client_factory")
    def _factory(self) -> type[_CellClient]:
        return _CellClient

    @default("kernel_spec_manager")
    def _specs(self) -> KernelSpecManager:
        return OwnKernelSpecs(parent=self)


class OwnKernel(NotebookClient):
    """A running kernel of this interpreter, for the cells of one notebook."""

    interrupted = False
    """Whether the user pressed Ctrl-C, or the process got SIGTERM."""

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
    ) -> AsyncGenerator[OwnKernel]:
        """Start a kernel in `folder` with its output in `log`. Raises RuntimeError or TimeoutError.

        `environment` is added to this process's environment; a variable that is None in it is removed. `seconds` limits
        the wait for a cell that does not answer.
        """
        merged = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
        async with contextlib.AsyncExitStack() as stack:
            for tries_left in (2, 1, 0):
                kernel = cls._made(notebook, folder, seconds)
                # If the kernel does not start, nbclient leaves this callback registered, and it would fail at our exit.
                stack.callback(atexit.unregister, kernel._cleanup_kernel)
                try:
                    await stack.enter_async_context(
                        kernel.async_setup_kernel(env=merged, cleanup_kc=True, stdout=log, stderr=log)
                    )
                    break
                except RuntimeError:
                    if kernel.interrupted:
                        raise Interrupted("while the kernel started") from None
                    # Jupyter releases the ports that it picks until the kernel binds them: another may take one.
                    if not tries_left or _PORT_TAKEN not in last_line(log):
                        raise
            if kernel.interrupted:
                raise Interrupted("before the kernel was there")
            yield kernel
            await kernel.wait_for_data()

    @classmethod
    def _made(cls, notebook: nbformat.NotebookNode, folder: Path, seconds: int | None) -> OwnKernel:
        kernel = cls(
            notebook,
            kernel_name="ctxkernel",
            kernel_manager_class=OwnKernelManager,
            resources={"metadata": {"path": str(folder)}},
            startup_timeout=STARTUP_SECONDS,
            timeout=seconds,
            # The user's own IPython history is for lines that the user typed.
            extra_arguments=["--HistoryManager.hist_file=:memory:"],
        )
        # nbclient also raises every fault that it logs; it is shown once.
        kernel.log = logging.getLogger("ctxkernel.cli")
        kernel.log.setLevel(logging.CRITICAL + 1)
        return kernel

    @property
    def client(self) -> _CellClient:
        """The connection to the kernel."""
        assert isinstance(self.kc, _CellClient)
        return self.kc

    async def async_start_new_kernel(self, **kwargs: Any) -> None:
        """Start the kernel, with own signal handlers: those of nbclient end it at a signal, with a traceback."""
        # The second interrupt is for a cell that ignores the first.
        take_signals(lambda: self.stop(now=self.interrupted), lambda: self.stop(now=True))
        await super().async_start_new_kernel(**kwargs)

    def stop(self, *, now: bool) -> None:
        """Interrupt the running cell, or end the kernel `now`."""
        manager = self.km
        if isinstance(manager, AsyncKernelManager):
            self.interrupted = True
            task = asyncio.ensure_future(manager.shutdown_kernel(now=True) if now else manager.interrupt_kernel())
            task.add_done_callback(_take_fault)
            self._signals.append(task)

    async def ask(self, expression: str) -> str:
        """Return the `repr` of an expression by a silent request, which records no statement.

        Raises KeyError if it failed, TimeoutError and DeadKernelError if there is no answer.
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
        """Return `{session, off, notices, head}`: its session file, the parts that are off, and HEAD; or `{}`."""
        with contextlib.suppress(Exception):  # it is dead or broken
            if self.km is None or not await ensure_async(self.km.is_alive()):  # no use waiting for an answer
                return {}
            return json.loads(ast.literal_eval(await self.ask(_ABOUT)))
        return {}

    async def wait_for_data(self) -> None:
        """Wait until all checkpoint data are written, or for Ctrl-C: a kernel that ends waits for a shorter time."""
        with contextlib.suppress(Exception):  # it is dead or broken
            while not self.interrupted and self.km is not None and await ensure_async(self.km.is_alive()):
                if await self.ask(_WRITTEN) == "True":
                    break

    async def limit(self, seconds: float | None) -> None:
        """Limit the time of each cell; None is no limit."""
        if seconds is not None:
            await self.ask(f"get_ipython().run_line_magic('ctx', 'timeout {seconds:g}')")


def take_signals(interrupt: Callable[[], None], end: Callable[[], None]) -> None:
    """Call these for Ctrl-C and SIGTERM, as far as the running loop can handle signals."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows; not the main thread
        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, end)


def _take_fault(done: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a stop, else asyncio prints it: a kernel that is ending cannot be stopped again."""
    if not done.cancelled():
        done.exception()


@contextlib.contextmanager
def kernel_log() -> Generator[IO[bytes]]:
    """Give a file for the output of a kernel's process. Raises Failed if the kernel inside does not start."""
    with tempfile.TemporaryFile() as log:
        try:
            yield log
        except (RuntimeError, TimeoutError) as fault:
            why = last_line(log) or safe_line(str(fault))
            raise Failed(f"the kernel did not start: {why}\n`ctxkernel doctor` says what works here.") from fault


def last_line(log: IO[bytes]) -> str:
    """Return the last line that a kernel's process wrote outside of any cell: the reason if it failed early."""
    log.seek(0)
    lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return safe_line(lines[-1])[:500] if lines else ""


# -- on a session that is there already ----------------------------------------------------------------


def has_statements(session: Path) -> bool:
    """Return whether a session file has statements to resume."""
    if not session.is_file():
        return False
    with SessionReader(session) as reader:
        return reader.head() is not None or bool(reader.statements())


def keep_off(session: Path) -> None:
    """Raise Failed if a running kernel writes the session: a second one would begin another."""
    if lock.is_locked(session, unknown=False):  # without locks the kernel will say so
        raise Failed(
            f"{session} is in use by a running kernel ({lock.holder(session) or 'of an unknown process'}): "
            "use the same command in its notebook as `%ctx …`, or shut that kernel down first."
        )


_NEEDED = ("checkpoints", "everything", "resuming", "session store", "timeline")


async def resumed_at(kernel: OwnKernel, session: Path) -> str | None:
    """Return HEAD of a kernel that was started to resume a session. Raises Failed with the reason if it did not."""
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
