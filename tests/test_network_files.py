"""Sessions and checkpoint data on a file system without locks, as many network ones: real kernels, real SQLite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kernels import StartKernel

from ctxkernel.store.log.session_check import verify

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(
    COMPILER is None or not sys.platform.startswith("linux"), reason="run on Linux with gcc"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes a folder a file system without locks for the processes that preload it."""
    made = tmp_path_factory.mktemp("library") / "no_locks.so"
    source = Path(__file__).with_name("no_locks.c")
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True)
    return made


@pytest.mark.parametrize("mappings", [True, False], ids=["with mappings", "without mappings"])
def test_a_session_goes_on_and_returns_load_large_arrays(
    start_kernel: StartKernel, library: Path, tmp_path: Path, mappings: bool
):
    env = {
        "LD_PRELOAD": str(library),
        "NO_LOCKS_ROOT": str(tmp_path),
        "CTXKERNEL_CACHE": str(tmp_path / "cache"),
        **({} if mappings else {"NO_MMAP": "1"}),
    }
    folder = tmp_path / "home"
    folder.mkdir()
    kernel = start_kernel(folder, env=env)
    assert kernel.run("import fcntl; fcntl.flock(open('f', 'w'), fcntl.LOCK_EX)").error["ename"] == "OSError"
    kernel.run("import numpy as np; arr = np.arange(1_000_000.0); rows = [{'n': n} for n in range(100)]")
    kernel.run("arr[7] = -1; rows[3]['n'] = 'changed'")
    second = start_kernel(folder, env=env)
    assert "in use" in second.run("%ctx status").data[0]["text/plain"]
    second.stop()
    assert kernel.run("%ctx goto 2").status == "ok"
    assert kernel.evaluate("(arr[7], rows[3])") in ("(7.0, {'n': 3})", "(np.float64(7.0), {'n': 3})")
    kernel.manager.shutdown_kernel(now=True)  # its process leaves its file behind

    third = start_kernel(folder, env={**env, "CTXKERNEL_RESUME": "1"})
    assert third.evaluate("rows[3]") == "{'n': 3}"
    assert third.run("%ctx goto 3").status == "ok"
    assert third.evaluate("rows[3]") == "{'n': 'changed'}"
    third.stop()
    assert sorted(one.name for one in (folder / ".ctxkernel").glob("*.sqlite")) == ["note-2.sqlite", "note.sqlite"]
    assert verify(folder / ".ctxkernel" / "note.sqlite").sound


def test_the_commands_read_such_a_session_without_waiting_for_locks(
    start_kernel: StartKernel, library: Path, tmp_path: Path
):
    env = {"LD_PRELOAD": str(library), "NO_LOCKS_ROOT": str(tmp_path), "CTXKERNEL_CACHE": str(tmp_path / "cache")}
    kernel = start_kernel(tmp_path, env=env)
    kernel.run("x = 1")
    for command in (["timeline"], ["verify"], ["timeline", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "ctxkernel", command[0], str(tmp_path / ".ctxkernel/note.sqlite"), *command[1:]],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0 and done.stdout, done
