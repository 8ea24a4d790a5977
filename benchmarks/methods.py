"""The ways to keep a namespace that are compared, each behind the same five questions.

Rule 1: a method is asked from outside, through its kernel; nothing here knows what a notebook holds.
Rule 2: what a method says of itself (its own times, what it could not restore) is kept apart from what was measured.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels import Cell, Kernel, on_disk

LIBRARIES = ("numpy", "pandas", "scipy", "scikit-learn", "matplotlib", "seaborn", "ipykernel", "ipython", "xxhash")


@dataclass
class Returned:
    """One way back."""

    wall_ms: float
    named: set[str] = field(default_factory=set)
    """Names that the method itself says are not, or not exactly, what they were."""
    error: str = ""
    text: str = ""


class Method:
    """Nothing is kept: a plain ipykernel, which all others are measured against."""

    label = "ipykernel"
    module = "ipykernel_launcher"
    rounds = True
    """Whether it is cheap enough to be measured in several rounds."""

    def __init__(self, python: str = sys.executable) -> None:
        self.python = python

    def start(self, folder: Path, cells: Sequence[str], keep: Sequence[int]) -> Kernel:
        """Start a kernel below `folder` that is ready for the first of `cells`. Returns are to `keep`."""
        kernel = Kernel(self.module, folder, python=self.python, env=self.env(folder))
        self.attach(kernel, cells, keep)
        return kernel

    def env(self, folder: Path) -> dict[str, str]:
        """Return the variables of the kernel's environment."""
        return {}

    def attach(self, kernel: Kernel, cells: Sequence[str], keep: Sequence[int]) -> None:
        """Set the method up in a kernel that has run nothing."""

    def stored(self, kernel: Kernel) -> int:
        """Return the bytes that were stored so far."""
        return 0

    def own_times(self, kernel: Kernel) -> list[float]:
        """Return what each cell was charged, in ms, by the method's own clock; empty where it has none."""
        return []

    def durable_s(self, kernel: Kernel) -> float:
        """Wait until all is on the disk, and return how long that took."""
        return 0.0

    def goto(self, kernel: Kernel, number: int) -> Returned:
        """Go back to the state after cell `number`. Raises NotImplementedError where there is no way back."""
        raise NotImplementedError

    def faults(self, kernel: Kernel) -> list[str]:
        """Return what went wrong inside the method, where it tells."""
        return []


class Dill(Method):
    """The whole namespace, less what does not pickle, into a file after each cell."""

    label = "dill, whole"
    rounds = False
    pickler = "dill"

    def attach(self, kernel: Kernel, cells: Sequence[str], keep: Sequence[int]) -> None:
        pickles = kernel.folder / "pickles"
        pickles.mkdir()
        _silently(
            kernel, f"__import__('dill_driver').attach(get_ipython(), {str(pickles)!r}, {list(keep)}, {self.pickler!r})"
        )

    def _told(self, kernel: Kernel) -> dict[str, Any]:
        return json.loads(kernel.evaluate("__import__('dill_driver').told()"))

    def stored(self, kernel: Kernel) -> int:
        return self._told(kernel)["bytes"]

    def own_times(self, kernel: Kernel) -> list[float]:
        return self._told(kernel)["times"]

    def goto(self, kernel: Kernel, number: int) -> Returned:
        start = time.perf_counter()
        try:
            left_out = json.loads(kernel.evaluate(f"__import__('dill_driver').goto({number})"))
        except RuntimeError as error:
            return Returned(_ms(start), error=str(error))
        return Returned(_ms(start), named=set(left_out))


class Cloudpickle(Dill):
    """The same by cloudpickle, which needs no environment of its own."""

    label = "cloudpickle, whole"
    pickler = "cloudpickle"


class Kishu(Method):
    """Kishu as it comes."""

    label = "Kishu 0.3.4"
    rounds = False
    settings = ""

    def env(self, folder: Path) -> dict[str, str]:
        home = folder / "kishu"
        (home / ".kishu").mkdir(parents=True, exist_ok=True)
        if self.settings:
            (home / ".kishu" / "config.ini").write_text(self.settings)
        return {
            "KISHU_PATH_ROOT": str(home),
            "ENV_KISHU_TEST_MODE": "1",
            "TEST_NOTEBOOK_PATH": str(folder / "work" / "note.ipynb"),
        }

    def attach(self, kernel: Kernel, cells: Sequence[str], keep: Sequence[int]) -> None:
        import nbformat
        from nbformat.v4 import new_code_cell, new_notebook

        notebook = kernel.work / "note.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), notebook)
        _silently(kernel, f"__import__('kishu_driver').attach(get_ipython(), {str(notebook)!r})")

    def stored(self, kernel: Kernel) -> int:
        return on_disk(kernel.work / "note.kishudb", kernel.work / "note.kishudb-wal")

    def own_times(self, kernel: Kernel) -> list[float]:
        return json.loads(kernel.evaluate("__import__('kishu_driver').told()"))["times"]

    def faults(self, kernel: Kernel) -> list[str]:
        return json.loads(kernel.evaluate("__import__('kishu_driver').told()"))["faults"]

    def goto(self, kernel: Kernel, number: int) -> Returned:
        start = time.perf_counter()
        code = f"get_ipython().user_ns['_kishu'].checkout('1:0:{number}', skip_notebook=True)"
        try:
            text = kernel.evaluate(code)
        except RuntimeError as error:
            return Returned(_ms(start), error=str(error)[:500])
        return Returned(_ms(start), text=text)


class FastKishu(Kishu):
    """Kishu with its experimental tracker, which its authors call faster and less exact."""

    label = "Kishu, fast tracker"
    settings = "[IDGRAPH]\nexperimental_tracker = True\n"


class Ours(Method):
    """A ctxkernel."""

    label = "ctxkernel"
    module = "ctxkernel.kernel"

    def stored(self, kernel: Kernel) -> int:
        return on_disk(kernel.folder / "cache" / "ctxkernel", kernel.work / ".ctxkernel")

    def _statements(self, kernel: Kernel) -> list[dict[str, Any]]:
        """Return the cells that were run, as the session has them; not what changed between two cells."""
        from ctxkernel.store.log.session import SessionReader

        [session] = (kernel.work / ".ctxkernel").glob("*.sqlite")
        with SessionReader(session) as reader:
            return [one for one in reader.timeline()["statements"] if one["kind"] != "meta"]

    def _checkpoints(self, kernel: Kernel) -> list[dict[str, Any]]:
        return [one["executions"][-1].get("checkpoint") or {} for one in self._statements(kernel)]

    def own_times(self, kernel: Kernel) -> list[float]:
        return [one["time_ms"] for one in self._checkpoints(kernel) if "time_ms" in one]

    def durable_s(self, kernel: Kernel) -> float:
        start = time.perf_counter()
        while any(one.get("state") == "writing" for one in self._checkpoints(kernel)):
            if time.perf_counter() - start > 120:
                raise TimeoutError("a checkpoint is still being written after 120 s")
            time.sleep(0.1)
            kernel.evaluate("0")
        return time.perf_counter() - start

    def goto(self, kernel: Kernel, number: int) -> Returned:
        statement = self._statements(kernel)[number - 1]["statement_id"]
        cell: Cell = kernel.run(f"%ctx goto {statement}")
        if cell.status != "ok":
            return Returned(cell.wall_ms, error=cell.error, text=cell.text)
        lines = re.findall(r"^not restored: (.*?) \(", cell.text, flags=re.MULTILINE)
        named = {name for line in lines for name in line.split(", ")}
        return Returned(cell.wall_ms, named=named, text=cell.text)


def _silently(kernel: Kernel, code: str) -> None:
    """Run code that leaves no name and no statement. Raises RuntimeError where it fails."""
    cell = kernel.run(code, silent=True)
    if cell.status != "ok":
        raise RuntimeError(cell.error or json.dumps(kernel.reply)[:500])


def _ms(start: float) -> float:
    return (time.perf_counter() - start) * 1000


def environment(folder: Path, *packages: str) -> str:
    """Return the Python of an environment with `packages` and this one's own libraries, made where it is not there."""
    python = folder / "bin" / "python"
    done = folder / "made"
    if not done.exists():
        print(f"making {folder} with {', '.join(packages)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pins = [f"{name}=={importlib.metadata.version(name)}" for name in LIBRARIES if _installed(name)]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *pins, *packages], check=True)
        done.touch()
    return str(python)


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
