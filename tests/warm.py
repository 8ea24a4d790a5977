"""Real kernels at a third of the price: forked from a process that has imported what every kernel imports.

Rule 1: that process has modules and nothing else when it forks: no thread, no socket, no event loop. What a module
        remembers of its process is read again in the fork (`ctxkernel.state.ambient` does so before the first cell).
Rule 2: what Python itself reads at its start cannot be given to a fork: there is such a process for each set of
        `PYTHON…` variables. Kernels that need more modules are forked from a fork of it that has imported them.
Rule 3: stock ipykernels, kernels of other programs (nbconvert, `python -m ctxkernel`), and all kernels on macOS and
        Windows, where a fork is not safe or not there, start as ever: what a start from nothing needs is seen, too.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import inspect
import io
import itertools
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import tokenize
from collections.abc import Mapping
from typing import Any, TextIO

import zmq
from jupyter_client.connect import ConnectionFileMixin, LocalPortCache
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from pygments.lexers import get_lexer_by_name

KERNEL = "ctxkernel.kernel"
START = [
    "ctxkernel.kernel.app",
    "ctxkernel.kernel.commands.magics",
    "ctxkernel.kernel.returning.return_plans",
    "ctxkernel.kernel.returning.returns",
    "ctxkernel.kernel.returning.resume",
    "ctxkernel.state.checkpoints.checkpoints",
    "ctxkernel.store.log.renamed_notebooks",
    "ipykernel.debugger",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "faulthandler",
    "psutil",
    "tornado.platform.asyncio",
]
"""What every kernel has imported after its first cell."""
CELLS = [
    "ctxkernel.kernel.commands.inspection",
    "ctxkernel.kernel.commands.navigation",
    "ctxkernel.kernel.commands.status",
    "ctxkernel.kernel.display.output_source",
    "ctxkernel.kernel.execution.pictures",
    "ctxkernel.kernel.turn.affected_reruns",
    "ctxkernel.agent.rerun",
    "ctxkernel.replay.cause_finder",
    "ctxkernel.replay.divergence",
    "ctxkernel.replay.output_values",
    "ctxkernel.replay.plan",
    "ctxkernel.sources.objects.nested",
    "ctxkernel.sources.objects.objects",
    "ctxkernel.sources.objects.own_renderings",
    "ctxkernel.sources.registry",
    "pygments.formatters.html",
    "pygments.formatters.terminal256",
    "pygments.lexers.python",
    "stack_data",
]
"""What kernels import for an error, a view, a return, a re-run."""
ASK = [
    "ctxkernel.agent.middleware",
    "ctxkernel.kernel.asking.ask_runner",
    "ctxkernel.kernel.asking.model_connections",
    "ctxkernel.kernel.commands.model",
    "anyio._backends._asyncio",
    "httpcore2",
]
"""What a kernel imports for its first ask, with the SDK of the model: two seconds."""
QUIET = {
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Variables without which the debugger warns, and NumPy and Arrow start threads."""
LIBRARIES = ["numpy", "pandas", "matplotlib.pyplot"]
"""What a kernel has loaded at its start where a test says so, as with a file of IPython's for its start."""
loaded: list[str] = []
"""The libraries that kernels have loaded at their start."""

_parents: dict[str, subprocess.Popen[str]] = {}


def parent(env: Mapping[str, str]) -> subprocess.Popen[str]:
    """Return the process that forks kernels with such `PYTHON…` variables."""
    given = {name: value for name, value in env.items() if name.startswith("PYTHON")}
    key = json.dumps(given, sort_keys=True)
    if key not in _parents:
        others = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
        _parents[key] = subprocess.Popen(
            [sys.executable, __file__, *START, *CELLS],
            env={**others, **given, **QUIET},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # it ends when we do, not by a Ctrl-C of its own
        )
        atexit.register(_parents[key].communicate)
    return _parents[key]


def fork(arguments: list[str], env: Mapping[str, str], cwd: str, outputs: list[str]) -> int:
    """Start a kernel whose outputs go to two files, where they are named; returns its process id."""
    forks = parent(env)
    assert forks.stdin
    assert forks.stdout
    further = [names for names in (ASK if "ANTHROPIC_BASE_URL" in env else [], loaded) if names]
    forks.stdin.write(json.dumps([further, [arguments, dict(env), cwd, outputs]]) + "\n")
    forks.stdin.flush()
    return int(forks.stdout.readline())


class Forked:
    """What jupyter_client wants to know of a process. Its parent reaps it: one that is gone takes no signal."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """Return None while it is there."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self) -> int:
        """Wait until it is gone: until then it holds its session."""
        while self.poll() is None:
            time.sleep(0.002)
        return 0

    def send_signal(self, signum: int) -> None:
        """Send it a signal; nothing where it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signum)


COLD = LocalProvisioner.launch_kernel


async def launch_kernel(self: Any, cmd: list[str], **kwargs: Any) -> Any:
    """Start a kernel; fork it where that can be done."""
    # A library is preloaded when a process starts. A kernel of another Python cannot be a fork of this one.
    if sys.platform != "linux" or cmd[:3] != [sys.executable, "-m", KERNEL] or "LD_PRELOAD" in kwargs["env"]:
        return await COLD(self, cmd, **kwargs)
    # As Jupyter passes them on; a program may read in them why its kernel did not start.
    given = [kwargs.get(name) for name in ("stdout", "stderr")]
    outputs = [f"/proc/{os.getpid()}/fd/{one.fileno()}" if hasattr(one, "fileno") else "" for one in given]
    self.pid = self.pgid = fork(cmd[3:], kwargs["env"], kwargs.get("cwd") or os.getcwd(), outputs)
    self.process = Forked(self.pid)
    self.cwd = kwargs.get("cwd")
    return self.connection_info


async def shutdown_requested(self: Any, restart: bool = False) -> None:
    """Wait for the end of the process, at most a second: jupyter_client polls it each 0.1 s, and does so twice."""
    deadline = time.monotonic() + 1
    while await self.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110 - a process sets no event
        await asyncio.sleep(0.005)


_CONNECT = ConnectionFileMixin._create_connected_socket
_PORTS = 1_400


class OwnPorts(LocalPortCache):
    """Ports that no other process takes: Jupyter releases those that it picks until a kernel binds them."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        # Below those that the system gives out: two ranges for each worker of pytest, the second for its JupyterLab.
        first = 10_000 + _PORTS * (2 * (worker % 8) + ("pytest" not in sys.modules))
        # Other runs of tests on this machine have the same ranges, and begin elsewhere in them.
        begin = 97 * os.getpid() % _PORTS
        self._ports = itertools.cycle([first + (begin + n) % _PORTS for n in range(_PORTS)])

    def find_available_port(self, ip: str) -> int:
        """Return the next port that nothing listens at."""
        for port in itertools.islice(self._ports, _PORTS):
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind((ip, port))
                return port
        raise OSError("no port is free")


def _create_connected_socket(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Connect a socket that tries again after 10 ms, not 100: a kernel listens soon after its start."""
    self.context.setsockopt(zmq.RECONNECT_IVL, 10)
    return _CONNECT(self, *args, **kwargs)


def warm_all() -> None:
    """Let all kernel managers of this process fork their kernels where that can be done."""
    LocalProvisioner.launch_kernel = launch_kernel
    LocalProvisioner.shutdown_requested = shutdown_requested
    ConnectionFileMixin._create_connected_socket = _create_connected_socket
    if not LocalPortCache.initialized():
        LocalPortCache._instance = OwnPorts()


@functools.cache
def read_certificates_once() -> None:
    """Let all clients of a model share one SSL context: each would read all certificates of this machine, in 20 ms."""
    import httpcore2
    import httpx2

    with contextlib.suppress(AttributeError):  # there is none in some versions
        httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)
    httpx2.create_ssl_context()


# ---------------------------------------------------------------- in the process that forks


def reap(signum: int, frame: object) -> None:
    """Let go of the children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def become(arguments: list[str], env: dict[str, str], cwd: str, outputs: list[str]) -> None:
    """Go on as `python -m ctxkernel.kernel` would, by default with our standard error for its output."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for descriptor, path in enumerate(outputs, 1):
        if path:
            os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), descriptor)
    os.environ.clear()
    os.environ.update({**env, "JPY_PARENT_PID": str(os.getppid())})
    os.chdir(cwd)
    sys.path[0] = cwd
    # ipykernel reads the variable when it is imported: before there was this parent.
    sys.argv[1:] = [*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"]
    runpy.run_module(KERNEL, run_name="__main__", alter_sys=True)
    # As at the end of a Python, but for its modules: to take them apart copies their memory, which is shared.
    threading._shutdown()
    gc.freeze()  # IPython collects twice at its end
    atexit._run_exitfuncs()
    os._exit(0)


def fill_caches() -> None:
    """Compute once what each kernel would compute anew.

    For its start and its first cell: the patterns of the tokenizer and of the command line. For its first traceback:
    the files of all modules, and the lexer of Python. Where the SDK of the model is imported, the certificates of this
    machine. Which modules are the user's, and the `__init__` of our data classes, which the first instance compiles.
    """
    list(tokenize.generate_tokens(io.StringIO("a = 'b'\n").readline))
    argparse.ArgumentParser().format_help()
    inspect.getmodule(compile("", "<of no module>", "exec"))
    get_lexer_by_name("python3")
    if "httpcore2" in sys.modules:
        read_certificates_once()
    importlib.import_module("ctxkernel.state.base.own_modules").loaded_own_modules()
    for name in [name for name in sys.modules if name.startswith("ctxkernel.")]:
        for one in [*vars(sys.modules[name]).values()]:
            if isinstance(one, type) and "__data_values__" in vars(one):
                with contextlib.suppress(TypeError):  # it needs arguments, but has its `__init__` now
                    one()


class Further:
    """A fork that has imported more modules and forks kernels in its turn."""

    def __init__(self, names: list[str], ours: list[Further]) -> None:
        requests, self._asks = os.pipe()
        self._answers, answers = os.pipe()
        if os.fork() == 0:
            for other in [*ours, self]:
                other.close()
            os.dup2(requests, 0)
            os.dup2(answers, 1)
            os.close(requests)
            os.close(answers)
            serve(names, open(0, closefd=False), open(1, "w", closefd=False))  # noqa: SIM115 - until the process ends
            os._exit(0)
        os.close(requests)
        os.close(answers)

    def close(self) -> None:
        """Close the pipes in a fork, so that the other process sees when we end."""
        os.close(self._asks)
        os.close(self._answers)

    def ask(self, request: object) -> str:
        """Return its answer to a request."""
        os.write(self._asks, (json.dumps(request) + "\n").encode())
        return os.read(self._answers, 100).decode()


def serve(names: list[str], requests: TextIO, answers: TextIO) -> None:
    """Import what is named, then fork for each line that comes: a kernel, or what forks kernels with more modules."""
    for name in names:
        importlib.import_module(name)
    fill_caches()
    assert len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    gc.freeze()  # else each collection in a fork, and its end, copies the memory of all modules: 0.2 s
    further: dict[str, Further] = {}
    for line in requests:
        more, kernel = json.loads(line)
        if more:
            key = json.dumps(more[0])
            if key not in further:
                further[key] = Further(more[0], list(further.values()))
            answers.write(further[key].ask([more[1:], kernel]))
            answers.flush()
            continue
        leads, lead = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.close(leads)
            os.close(lead)
            for other in further.values():
                other.close()
            become(*kernel)
        os.close(lead)
        os.read(leads, 1)  # until it leads its own group, which is what is sent signals
        os.close(leads)
        print(pid, file=answers, flush=True)


def main() -> None:
    """Serve what standard input asks for."""
    signal.signal(signal.SIGCHLD, reap)
    serve(sys.argv[1:], sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
