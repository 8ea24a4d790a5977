"""What all tests share: an isolated Jupyter, hypothesis profiles, and real kernels of this interpreter.

Rule 1: no test reads or writes the settings, kernelspecs, sessions or keys of the person who runs it.
Rule 2: a kernel here is a real process of this interpreter, found without any installed kernelspec.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager

import ctxkernel

ROOT = Path(__file__).resolve().parent.parent

# `ci` is the default: the same examples at every run, so that a red run can be run again. `thorough` looks further.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def isolated_environment(folder: Path) -> dict[str, str]:
    """Return the variables that keep Jupyter, IPython and ctxkernel inside `folder`."""
    names = {
        "JUPYTER_CONFIG_DIR": "jupyter/config",
        "JUPYTER_DATA_DIR": "jupyter/data",
        "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
        "JUPYTERLAB_SETTINGS_DIR": "jupyter/lab/settings",
        "JUPYTERLAB_WORKSPACES_DIR": "jupyter/lab/workspaces",
        "IPYTHONDIR": "ipython",
        "XDG_CACHE_HOME": "cache",
        "CTXKERNEL_HOME": "ctxkernel",
        "MPLCONFIGDIR": "matplotlib",
    }
    made = {name: folder / below for name, below in names.items()}
    for path in made.values():
        path.mkdir(parents=True, exist_ok=True)
    return {name: str(path) for name, path in made.items()}


# At import, not in a fixture: child processes and module-level constants of Jupyter must see it too.
_home = Path(tempfile.mkdtemp(prefix="ctxkernel-tests-"))
os.environ.update(isolated_environment(_home))
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
# A key in the environment would otherwise be one slip away from a bill.
for _name in [n for n in os.environ if n.startswith(("CTXKERNEL_", "ANTHROPIC_", "JPY_", "JUPYTER_TOKEN"))]:
    if _name not in ("CTXKERNEL_CHROMIUM", "CTXKERNEL_HOME"):
        del os.environ[_name]
# In a source tree that is not installed the kernels shall be those of the tree too.
if Path(ctxkernel.__file__).resolve().is_relative_to(ROOT):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the isolated folders."""
    shutil.rmtree(_home, ignore_errors=True)


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
        """All text of one stream."""
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

    def run(self, source: str, *, timeout: float = 60, answer: str | None = None, **options: Any) -> Ran:
        """Execute `source` as a cell and return what it gave. `answer` is typed at `input()`."""
        client = self.client
        msg_id = client.execute(source, allow_stdin=answer is not None, **options)
        ran = Ran({})
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no idle within {timeout} s after: {source[:200]!r}")
            if answer is not None:
                with contextlib.suppress(Exception):
                    client.get_stdin_msg(timeout=0.05)
                    client.input(answer)
            try:
                message = client.get_iopub_msg(timeout=min(left, 0.1 if answer is not None else left))
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
        while True:
            reply = client.get_shell_msg(timeout=max(0.1, deadline - time.monotonic()))
            if reply["parent_header"].get("msg_id") == msg_id:
                break
        if reply["content"]["status"] == "aborted":
            # Right after an error a kernel refuses what was queued, and for a moment what comes next.
            return self.run(source, timeout=timeout, answer=answer, **options)
        ran.reply = reply["content"]
        return ran

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


class _ThisInterpreter(KernelSpecManager):
    """Finds one kernelspec, whatever name is asked for: a module run by this interpreter."""

    module = "ctxkernel.kernel"

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-m", self.module, "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name=kernel_name, language="python", metadata={"debugger": True})


class _StockIpykernel(_ThisInterpreter):
    module = "ipykernel_launcher"


StartKernel = Callable[..., RunningKernel]


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the kernels of one module."""
    return tmp_path_factory.mktemp("kernel")


def _starter(default_folder: Path) -> Iterator[StartKernel]:
    running: list[RunningKernel] = []

    def start(
        folder: Path | None = None,
        *,
        stock: bool = False,
        env: dict[str, str] | None = None,
        notebook: str = "note.ipynb",
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
                extra_arguments=["--HistoryManager.hist_file=:memory:"],
            )
            client = manager.client()
            kernel = RunningKernel(manager, client, folder)
            running.append(kernel)
            client.start_channels()
            try:
                client.wait_for_ready(timeout=60)
            except RuntimeError as died:
                # Jupyter lets go of the ports it picked until the kernel binds them: two workers can get the same one.
                if tries_left == 0 or "died" not in str(died):
                    raise
                continue
            return kernel
        raise AssertionError("unreachable")

    yield start
    for kernel in running:
        with contextlib.suppress(Exception):
            kernel.stop()


@pytest.fixture
def start_kernel(tmp_path: Path) -> Iterator[StartKernel]:
    """Start real kernels that end with the test: `start_kernel(folder=…, stock=False, env=…, notebook=…)`."""
    yield from _starter(tmp_path)


@pytest.fixture
def kernel(start_kernel: StartKernel) -> RunningKernel:
    """A fresh real ctxkernel in the test's own folder."""
    return start_kernel()


@pytest.fixture(scope="module")
def shared_kernel(module_folder: Path) -> Iterator[RunningKernel]:
    """One real ctxkernel for a module, for tests that do not mind each other."""
    with contextlib.contextmanager(_starter)(module_folder) as start:
        yield start()
