"""Real kernels of this interpreter, and a client that runs cells in them as a person would."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager
from warm import warm_all

warm_all()


@dataclass
class Ran:
    """What one execute request gave."""

    reply: dict[str, Any]
    outputs: list[dict[str, Any]] = field(default_factory=list)
    """The IOPub messages between busy and idle, as `{"type": …, **content}`."""

    @property
    def status(self) -> str:
        """`ok`, `error` or `aborted`."""
        return self.reply["status"]

    def stream(self, name: str) -> str:
        """Return all text of one stream."""
        return "".join(o["text"] for o in self.outputs if o["type"] == "stream" and o["name"] == name)

    @property
    def stdout(self) -> str:
        """All text of standard output."""
        return self.stream("stdout")

    @property
    def stderr(self) -> str:
        """All text of standard error."""
        return self.stream("stderr")

    @property
    def error(self) -> dict[str, Any]:
        """The error message's content. Raises where there was no error."""
        return next(o for o in self.outputs if o["type"] == "error")

    @property
    def data(self) -> list[dict[str, Any]]:
        """The MIME bundles of displays and of the result, in order."""
        return [o["data"] for o in self.outputs if "data" in o]


class RunningKernel:
    """A live ctxkernel and a blocking client of it."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient, folder: Path):
        self.manager = manager
        self.client = client
        self.folder = folder
        self._stdin_connected = False

    def _connect_stdin(self) -> None:
        """Wait until the kernel can ask this client: what it asks before that is dropped, and it waits for ever."""
        stdin: Any = self.client.stdin_channel.socket
        url = self.client._make_url("stdin")
        stdin.disconnect(url)
        monitor = stdin.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        stdin.connect(url)
        assert monitor.poll(30_000), "the kernel's stdin channel did not connect"
        stdin.disable_monitor()
        self._stdin_connected = True

    def run(
        self,
        source: str,
        *,
        timeout: float = 60,
        answer: str | None = None,
        at_output: Callable[[], object] | None = None,
        metadata: Any = None,
        **options: Any,
    ) -> Ran:
        """Execute `source` as a cell and return what it gave. `answer` is typed at `input()`.

        `at_output` is called once, when the first text that the cell prints has come: from then on it surely runs.
        """
        client = self.client
        if answer is not None and not self._stdin_connected:
            self._connect_stdin()
        if metadata is None:
            msg_id = client.execute(source, allow_stdin=answer is not None, **options)
        else:
            content = {"code": source, "silent": False, "store_history": True, "user_expressions": {}, **options}
            message = client.session.msg("execute_request", {**content, "allow_stdin": False}, metadata=metadata)
            client.shell_channel.send(message)
            msg_id = message["header"]["msg_id"]
        ran = Ran({})
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no idle within {timeout} s after: {source[:200]!r}")
            if answer is not None:
                with contextlib.suppress(queue.Empty):  # the cell has not asked yet
                    client.get_stdin_msg(timeout=0.05)
                    client.input(answer)
            try:
                message = client.get_iopub_msg(timeout=min(left, 0.1 if answer is not None else 1))
            except Exception:  # the queue's Empty: time is checked above
                if not self.manager.is_alive():
                    raise RuntimeError(f"the kernel died in: {source[:200]!r}") from None
                continue
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            ran.outputs.append({"type": kind, **content})
            if kind == "stream" and at_output is not None:
                at_output()
                at_output = None
        while True:
            reply = client.get_shell_msg(timeout=max(0.1, deadline - time.monotonic()))
            if reply["parent_header"].get("msg_id") == msg_id:
                break
        if reply["content"]["status"] == "aborted":
            # Right after an error a kernel refuses what was queued, and for a moment what comes next.
            return self.run(source, timeout=timeout, answer=answer, at_output=at_output, metadata=metadata, **options)
        ran.reply = reply["content"]
        return ran

    @contextlib.contextmanager
    def running(self, source: str) -> Iterator[None]:
        """Begin a cell, and stop it at the end; in between it runs, as the stop is what ends it."""
        msg_id = self.client.execute(f"{source}\nprint('it runs', flush=True)\nimport time; time.sleep(100)")
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") == msg_id and message["msg_type"] == "stream":
                break
        yield
        self.manager.interrupt_kernel()
        while (reply := self.client.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != msg_id:
            pass
        assert reply["content"]["status"] == "error"

    def evaluate(self, expression: str) -> str:
        """Return `repr` of an expression by a silent request: it leaves no statement."""
        msg_id = self.client.execute("", silent=True, user_expressions={"value": f"repr({expression})"})
        while True:
            reply = self.client.get_shell_msg(timeout=30)
            if reply["parent_header"].get("msg_id") == msg_id:
                break
        value = reply["content"]["user_expressions"]["value"]
        if value["status"] != "ok":
            raise AssertionError(f"{expression}: {value['ename']}: {value['evalue']}")
        import ast

        return ast.literal_eval(value["data"]["text/plain"])

    def stop(self) -> None:
        """Shut the kernel down and wait for it."""
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel()


def once(condition: Callable[[], object], then: Callable[[], object], *, after: float = 0) -> threading.Thread:
    """Do `then` in a thread, `after` so many seconds since `condition` holds; not, if it does not within a minute."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not condition():
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)
        time.sleep(after)
        then()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


class _ThisInterpreter(KernelSpecManager):
    """Finds one kernelspec, whatever name is asked for: a module run by this interpreter."""

    module = "ctxkernel.kernel"

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-m", self.module, "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name=kernel_name, language="python", metadata={"debugger": True})


class _StockIpykernel(_ThisInterpreter):
    module = "ipykernel_launcher"


StartKernel = Callable[..., RunningKernel]


def wait_for_ready(client: BlockingKernelClient, *, timeout: float = 60) -> None:
    """Wait until the kernel answers and its output arrives.

    `client.wait_for_ready` does so too, and then waits until there is no message for 0.2 s.
    """
    deadline = time.monotonic() + timeout
    while client.is_alive():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the kernel did not answer within {timeout} s")
        asked = client.kernel_info()
        with contextlib.suppress(queue.Empty):  # then the output is not connected yet
            while (reply := client.get_shell_msg(timeout=1))["parent_header"].get("msg_id") != asked:
                pass
            client._handle_kernel_info_reply(reply)
            while True:
                message = client.get_iopub_msg(timeout=0.05)
                idle = message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
                if idle and message["parent_header"].get("msg_id") == asked:
                    return
    raise RuntimeError("the kernel died before it was ready")


def starter(default_folder: Path) -> Iterator[StartKernel]:
    running: list[RunningKernel] = []

    def start(
        folder: Path | None = None,
        *,
        stock: bool = False,
        env: dict[str, str] | None = None,
        notebook: str = "note.ipynb",
        history: str = ":memory:",
    ) -> RunningKernel:
        """Start a kernel in `folder` for `notebook`; `stock` gives a plain ipykernel instead of a ctxkernel."""
        folder = folder or default_folder
        specs = (_StockIpykernel if stock else _ThisInterpreter)()
        # With this variable ipykernel takes itself for a part of pytest, and does not watch fd 1 and 2.
        environ = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
        for tries_left in (2, 1, 0):
            manager = KernelManager(kernel_name="ctxkernel", kernel_spec_manager=specs)
            manager.start_kernel(
                cwd=str(folder),
                env={**environ, "JPY_SESSION_NAME": str(folder / notebook), **(env or {})},
                extra_arguments=[f"--HistoryManager.hist_file={history}"],
            )
            client = manager.client()
            kernel = RunningKernel(manager, client, folder)
            running.append(kernel)
            client.start_channels()
            client.shell_channel.socket.setsockopt(zmq.SNDTIMEO, 20_000)
            try:
                wait_for_ready(client, timeout=30)
            except (RuntimeError, TimeoutError, zmq.Again) as died:
                # Jupyter lets go of the ports it picked until the kernel binds them: two workers can get the same one.
                if tries_left == 0 or not (isinstance(died, TimeoutError | zmq.Again) or "died" in str(died)):
                    raise
                continue
            return kernel
        raise AssertionError("unreachable")

    yield start
    for kernel in running:
        with contextlib.suppress(Exception):  # the test has killed it
            kernel.stop()
