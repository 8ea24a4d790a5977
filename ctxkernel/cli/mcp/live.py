"""The live kernel of a notebook, as one client among others.

Rule 1: the kernel is found anew where it is gone: a restart of the notebook's kernel is no failure of the agent.
Rule 2: only shell replies to our own messages are read; what cells gave is in the session's log.
"""

# jupyter_client is typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from jupyter_client.manager import AsyncKernelManager
from jupyter_core.paths import jupyter_runtime_dir

from ctxkernel.cli.kernel import RESUME, STARTUP_SECONDS, KernelClient, OwnKernelManager, last_line
from ctxkernel.cli.output import safe_line
from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import CtxError
from ctxkernel.store.log.location import HINT

_ALIVE_SECONDS = 3.0
_ABOUT = (
    "(lambda ctx: __import__('json').dumps({'session': str(ctx.store.path or ''), "
    "'attended': ctx.panel.attended}))(get_ipython().kernel.ctx)"
)


class NoKernel(CtxError):
    """There is no kernel for a call, and what to do."""


@dataclass(frozen=True, slots=True)
class About:
    """A kernel's description of itself."""

    session: Path | None
    attended: bool
    """Whether a front end shows its panel."""


@dataclass(eq=False)
class LiveKernel:
    """The kernel of one notebook, or the one of a connection file."""

    notebook: Path | None
    connection: Path | None = None
    mode: str | None = None
    """The mode of a kernel that is started here."""
    may_start: bool = True
    _client: KernelClient | None = None
    _file: Path | None = None
    _own: AsyncKernelManager | None = None
    _replies: dict[str, asyncio.Future[dict[str, Any]]] = field(default_factory=dict[str, Any])
    _reader: asyncio.Task[None] | None = None
    _about: About | None = None
    _log: IO[bytes] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    # -- finding -----------------------------------------------------------------------------

    async def client(self, *, start: bool = True) -> KernelClient:
        """Return a client of the kernel that lives now; with `start`, one is started where there is none.

        Raises NoKernel.
        """
        async with self._lock:
            if self._client is not None and await self._is_current():
                return self._client
            await self._leave()
            for file in self._files():
                client = _client_of(file)
                if await _is_ctxkernel(client):
                    return self._join(client, file)
                client.stop_channels()
            if self.connection is not None:
                raise NoKernel(f"no ctxkernel answers at {self.connection}: give the connection file of a live one")
            if not start or not self.may_start or self.notebook is None:
                raise NoKernel(f"no ctxkernel runs for {self.notebook}: open the notebook in JupyterLab, and try again")
            return await self._start(self.notebook)

    async def _is_current(self) -> bool:
        """Return whether the client's kernel lives, and no front end has begun another one for the notebook."""
        assert self._client is not None
        if self._own is not None:
            return await self._own.is_alive() and not await self._has_other()
        return self._file is not None and self._file.exists() and await _is_ctxkernel(self._client)

    async def _has_other(self) -> bool:
        for file in self._files():
            if await _answers(file):
                return True
        return False

    def _files(self) -> list[Path]:
        """Return the connection files of kernels for the notebook, newest first."""
        if self.connection is not None:
            return [self.connection]
        own = Path(self._own.connection_file) if self._own is not None else None
        found: list[tuple[float, Path]] = []
        for file in Path(jupyter_runtime_dir()).glob("kernel-*.json"):
            named = notebook_of(file)
            if named is not None and self.notebook is not None and file != own and named == self.notebook.resolve():
                with contextlib.suppress(OSError):  # gone meanwhile
                    found.append((file.stat().st_mtime, file))
        return [file for _, file in sorted(found, reverse=True)]

    def _join(self, client: KernelClient, file: Path | None) -> KernelClient:
        self._client, self._file, self._about = client, file, None
        self._reader = asyncio.ensure_future(self._read(client))
        return client

    async def _start(self, notebook: Path) -> KernelClient:
        manager = OwnKernelManager(kernel_name="ctxkernel")
        environ = {
            **os.environ,
            HINT: str(notebook.resolve()),
            RESUME: "1",
        }
        if self.mode is not None:
            environ["CTXKERNEL_MODE"] = self.mode
        self._log = self._log or tempfile.TemporaryFile()  # noqa: SIM115  standard output is the protocol's
        log = self._log
        await manager.start_kernel(
            cwd=str(notebook.resolve().parent),
            env=environ,
            extra_arguments=["--HistoryManager.hist_file=:memory:"],
            stdout=log,
            stderr=log,
        )
        client: Any = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=STARTUP_SECONDS)
        except RuntimeError as fault:
            await manager.shutdown_kernel(now=True)
            why = safe_line(last_line(log)) or str(fault)
            raise NoKernel(f"a kernel for {notebook} did not start ({why}); `ctxkernel doctor` says more") from None
        self._own = manager
        return self._join(client, None)

    async def _leave(self) -> None:
        """Leave the kernel; one that was started here ends."""
        if self._reader is not None:
            self._reader.cancel()
        if self._client is not None:
            self._client.stop_channels()
        if self._own is not None:
            with contextlib.suppress(Exception):  # it has died already
                await self._own.shutdown_kernel()
        for reply in self._replies.values():
            reply.cancel()
        self._client = self._file = self._own = self._reader = self._about = None
        self._replies.clear()

    async def close(self) -> None:
        """Leave the kernel."""
        async with self._lock:
            await self._leave()

    @property
    def is_own(self) -> bool:
        """Return whether the kernel was started here, so that no front end shows it."""
        return self._own is not None

    @property
    def file(self) -> Path | None:
        """The connection file of the kernel."""
        return Path(self._own.connection_file) if self._own is not None else self._file

    # -- talking -----------------------------------------------------------------------------

    async def _read(self, client: KernelClient) -> None:
        while True:
            message = await client.get_shell_msg(timeout=None)
            reply = self._replies.pop(message["parent_header"].get("msg_id", ""), None)
            if reply is not None and not reply.done():
                reply.set_result(message["content"])

    async def send(
        self, code: str, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> asyncio.Future[dict[str, Any]]:
        """Send an execute request; return the future content of its reply. Raises NoKernel."""
        client = await self.client()
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = client.session.msg(
            "execute_request", {**content, "stop_on_error": False, **options}, metadata=dict(metadata or {})
        )
        reply = self._replies[message["header"]["msg_id"]] = asyncio.get_running_loop().create_future()
        client.shell_channel.send(message)
        return reply

    async def value(self, expression: str, seconds: float) -> Any:
        """Return the JSON that an expression gives in the kernel, by a silent request. Raises NoKernel."""
        sent = await self.send("", silent=True, store_history=False, user_expressions={"value": expression})
        try:
            reply = await asyncio.wait_for(asyncio.shield(sent), seconds)
        except (TimeoutError, asyncio.CancelledError):
            raise NoKernel(
                f"the kernel is running a cell and has not answered within {seconds:g} s; try again"
            ) from None
        found = reply["user_expressions"]["value"]
        if found.get("status") != "ok":
            raise NoKernel(f"the kernel failed to answer ({found.get('ename')}); %ctx status in the notebook says why")
        return json.loads(ast.literal_eval(found["data"]["text/plain"]))

    async def about(self, seconds: float = 5.0, *, start: bool = True, anew: bool = False) -> About:
        """Return what the kernel says of itself; `anew`: now, not when it was found. Raises NoKernel."""
        await self.client(start=start)
        if self._about is None or anew:
            found = await self.value(_ABOUT, seconds)
            path = str(found["session"])
            self._about = About(Path(path) if path else None, bool(found["attended"]))
        return self._about


def notebook_of(file: Path) -> Path | None:
    """Return the notebook that a connection file names; None where it names none."""
    with contextlib.suppress(OSError, ValueError):
        named = json.loads(file.read_text("utf-8")).get("jupyter_session")
        return Path(named).resolve() if isinstance(named, str) and named else None
    return None


async def live_notebooks() -> list[Path]:
    """Return the notebooks for which a ctxkernel of this user lives, by their paths."""

    async def named(file: Path) -> Path | None:
        if (notebook := notebook_of(file)) is None:
            return None
        with contextlib.suppress(OSError, ValueError):  # gone meanwhile, or damaged
            return notebook if await _answers(file) else None
        return None

    found = await asyncio.gather(*map(named, Path(jupyter_runtime_dir()).glob("kernel-*.json")))
    return sorted({one for one in found if one is not None and one.is_file()})


def _client_of(file: Path) -> KernelClient:
    client = KernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels(iopub=False, stdin=False, hb=False)
    return client


async def _answers(file: Path) -> bool:
    """Return whether a ctxkernel answers at a connection file."""
    client = _client_of(file)
    try:
        return await _is_ctxkernel(client)
    finally:
        client.stop_channels()


async def _is_ctxkernel(client: KernelClient) -> bool:
    """Return whether a ctxkernel answers: by the control channel, which answers while a cell runs."""
    message = client.session.msg("kernel_info_request", {})
    client.control_channel.send(message)
    end = time.monotonic() + _ALIVE_SECONDS
    with contextlib.suppress(Exception):  # no answer
        while (left := end - time.monotonic()) > 0:
            answer = await client.control_channel.get_msg(timeout=left)
            if answer["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return answer["content"].get("implementation") == "ctxkernel"
    return False
