"""Real kernels of any interpreter, for measuring: cells are run and timed one by one, as a client sees them.

Rule 1: wall time is from the request to idle. CPU time is the kernel process's own, all threads, without children.
Rule 2: what is asked between cells goes by silent requests, which leave no statement and no output.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager

HERE = Path(__file__).resolve().parent


class GaveUp(Exception):
    """A cell took longer than it may, or the kernel died in it."""


@dataclass
class Cell:
    """What one request gave."""

    wall_ms: float
    status: str
    text: str
    """All streams and plain results, joined."""
    error: str = ""
    """`Name: message`, where it raised."""


class _Spec(KernelSpecManager):
    python = ""
    module = ""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [self.python, "-m", self.module, "-f", "{connection_file}"]
        if shutil.which("prlimit"):
            # A method that asks for more memory than there is gets a MemoryError, and the machine goes on.
            argv = ["prlimit", f"--as={max(4 << 30, free_bytes() - (1 << 30))}", *argv]
        return KernelSpec(argv=argv, language="python")


class Kernel:
    """A kernel process and its client. Files that it writes lie below `folder`."""

    def __init__(self, module: str, folder: Path, *, python: str = sys.executable, env: dict[str, str] | None = None):
        spec = _Spec()
        spec.python, spec.module = python, module
        self.folder = folder
        self.module = module
        for name in ("work", "cache", "ipython", "matplotlib"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.work = folder / "work"
        self.manager = KernelManager(kernel_name="k", kernel_spec_manager=spec)
        self.manager.start_kernel(
            cwd=str(self.work),
            env={
                **os.environ,
                "IPYTHONDIR": str(folder / "ipython"),
                "XDG_CACHE_HOME": str(folder / "cache"),
                "MPLCONFIGDIR": str(folder / "matplotlib"),
                "JPY_SESSION_NAME": str(self.work / "note.ipynb"),
                "MPLBACKEND": "module://matplotlib_inline.backend_inline",
                # One place for what runs inside kernels; the same threads for all.
                "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")])),
                **(env or {}),
            },
            extra_arguments=["--log-level=ERROR"],
        )
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)
        self.pid: int = json.loads(self.evaluate("__import__('os').getpid()"))

    def run(self, code: str, *, timeout: float = 600, **options: Any) -> Cell:
        """Run a cell. Raises GaveUp where it took longer than `timeout` seconds, or the kernel died."""
        texts: list[str] = []
        error = ""
        start = time.perf_counter()
        msg_id = self.client.execute(code, allow_stdin=False, **options)
        while True:
            message = self._next("iopub", start + timeout, code)
            if message["parent_header"].get("msg_id") != msg_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "stream":
                texts.append(content["text"])
            elif kind == "error":
                error = f"{content['ename']}: {content['evalue']}"
            elif "data" in content:
                texts.append(str(content["data"].get("text/plain", "")))
        wall_ms = (time.perf_counter() - start) * 1000
        while True:
            message = self._next("shell", start + timeout, code)
            if message["parent_header"].get("msg_id") == msg_id:
                break
        self.reply = message["content"]
        if self.reply["status"] == "aborted":  # right after an error a kernel refuses what comes within a moment
            return self.run(code, timeout=timeout, **options)
        return Cell(wall_ms, self.reply["status"], "".join(texts), error)

    def _next(self, channel: str, deadline: float, code: str) -> dict[str, Any]:
        while True:
            left = deadline - time.perf_counter()
            if left <= 0:
                raise GaveUp(f"no answer in time: {code[:80]!r}")
            try:
                get = self.client.get_iopub_msg if channel == "iopub" else self.client.get_shell_msg
                return get(timeout=min(left, 1.0))
            except queue.Empty:
                if not self.manager.is_alive():
                    raise GaveUp(f"the kernel died in {code[:80]!r}") from None

    def evaluate(self, expression: str, *, timeout: float = 600) -> str:
        """Return what a silent expression gives, as `str` of a string or `repr` of anything else."""
        self.run("", silent=True, user_expressions={"value": expression}, timeout=timeout)
        value = self.reply["user_expressions"]["value"]
        if value["status"] != "ok":
            raise RuntimeError(f"{expression[:200]}: {value['ename']}: {value['evalue']}")
        text = value["data"]["text/plain"]
        with contextlib.suppress(ValueError, SyntaxError):
            read = ast.literal_eval(text)
            return read if isinstance(read, str) else text
        return text

    def cpu(self) -> float:
        """CPU seconds of the kernel process so far."""
        return float(self.evaluate("__import__('time').process_time()"))

    def peak_bytes(self) -> int:
        """The most memory that the process has held (Linux)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self) -> None:
        """End the process."""
        self.client.stop_channels()
        with contextlib.suppress(Exception):  # it has ended
            self.manager.shutdown_kernel(now=True)


def on_disk(*places: Path) -> int:
    """Bytes that the files below `places` take on the disk."""
    total = 0
    for place in places:
        for path in [place] if place.is_file() else place.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    total += path.stat().st_blocks * 512
    return total


def free_bytes() -> int:
    """Memory that could be taken now (Linux)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


def warm(nbytes: int) -> None:
    """Touch memory once and give it back: in a virtual machine the first touch of a page is several times slower."""
    code = (
        "import mmap\nm = mmap.mmap(-1, %d)\nfor i in range(0, len(m), 4096): m[i] = 1" % nbytes  # noqa: UP031
    )
    subprocess.run([sys.executable, "-c", code], check=False)
