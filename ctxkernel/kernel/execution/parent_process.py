"""The program that started this kernel: its command line, working directory and environment.

Rule 1: Only the processes above this one are read. A fault gives no program.
Rule 2: A launcher of this kernel (`conda run`, that of a virtual environment on Windows) is not the program: the one
        above it is. Any other program ends the search: one above it did not start this kernel.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_MOST = 4
_MOST_BYTES = 100_000
_MOST_ENVIRONMENT = 4_000_000


class CommandLine(NamedTuple):
    """The command line of a process."""

    words: list[str]
    folder: str
    """The working directory; empty if it is not known."""
    pid: int


def parent_commands() -> list[CommandLine]:
    """Return the launchers of this kernel and the program above them, the nearest first."""
    found: list[CommandLine] = []
    own = {word for word in sys.argv[1:] if word.endswith(".json")}
    with contextlib.suppress(Exception):  # another user's process, or a platform without these facts
        for command in _from_proc() if os.path.isdir("/proc/self") else _from_elsewhere():
            found.append(command)
            if own.isdisjoint(command.words) or len(found) == _MOST:
                break
    return found


def has_variable(command: CommandLine, name: str, value: str) -> bool:
    """Return whether a process was started with an environment variable of this value; False if that is not known."""
    with contextlib.suppress(Exception):  # another user's process, or one that has ended
        if os.path.isdir("/proc/self"):
            with (Path("/proc") / str(command.pid) / "environ").open("rb") as file:
                return os.fsencode(f"{name}={value}") in file.read(_MOST_ENVIRONMENT).split(b"\0")
        import psutil  # pyright: ignore[reportMissingModuleSource]: it need not be installed

        process: Any = psutil.Process(command.pid)
        return process.environ().get(name) == value
    return False


def _from_proc() -> Iterator[CommandLine]:
    pid = os.getppid()
    while pid > 1:
        folder = Path("/proc") / str(pid)
        with (folder / "cmdline").open("rb") as file:
            words = os.fsdecode(file.read(_MOST_BYTES)).split("\0")
        yield CommandLine(words[:-1], os.readlink(folder / "cwd"), pid)
        # "pid (name) state ppid …": the name may contain spaces and parentheses.
        pid = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])


def _from_elsewhere() -> Iterator[CommandLine]:
    try:
        import psutil  # pyright: ignore[reportMissingModuleSource]: it need not be installed
    except ImportError:
        yield from _from_ps()
        return
    process: Any = psutil.Process(os.getppid())
    while process is not None:
        yield CommandLine(list(process.cmdline()), str(process.cwd()), int(process.pid))
        process = process.parent()


def _from_ps() -> Iterator[CommandLine]:
    """Yield what `ps` tells: a word with a space in it comes as several, and no working directory."""
    pid = os.getppid()
    while pid > 1:
        command = ["ps", "-ww", "-o", "ppid=,args=", "-p", str(pid)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=2, check=True).stdout.split()  # noqa: S603
        yield CommandLine(told[1:], "", pid)
        pid = int(told[0])
