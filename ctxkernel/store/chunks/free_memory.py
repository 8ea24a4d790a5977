"""The free memory: the least that the system and the limits of the container allow.

Rule 1: Nothing here raises; None means unknown.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

_ROOT = Path("/")


def free_memory(root: Path = _ROOT) -> int | None:
    """Return the bytes that can be allocated within the limits of system and container, or None.

    Reclaimable page cache counts as free. `root` is the folder of `proc` and `sys`.
    """
    known = [free for free in (_system(root), *_containers(root)) if free is not None]
    return max(0, min(known)) if known else None


def _system(root: Path) -> int | None:
    if match := re.search(r"^MemAvailable:\s*(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE):
        return int(match[1]) * 1024
    with contextlib.suppress(AttributeError, ValueError, OSError):
        pages = os.sysconf("SC_AVPHYS_PAGES")  # not on macOS, and none on Windows
        if pages > 0:
            return pages * os.sysconf("SC_PAGE_SIZE")
    return None


def _containers(root: Path) -> list[int | None]:
    """Return the free bytes of each control group of this process, its parents included."""
    found: list[int | None] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # In a container the path is often the host's, and the container's own group is at the mount.
        folder = mount / group.strip("/")
        while True:
            found.append(_left(folder, *names))
            if folder == mount or mount not in folder.parents:
                break
            folder = folder.parent
    return found


def _left(folder: Path, limit: str, usage: str, cache: str) -> int | None:
    most, used = _number(folder / limit), _number(folder / usage)
    if most is None or used is None:
        return None
    match = re.search(rf"^{cache} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
    return most - used + (int(match[1]) if match else 0)


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None  # `max` is no limit


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace")
    return ""
