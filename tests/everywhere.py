"""Every kind of target at every level, hashed: the same in every process and on every version of Python.

    python tests/everywhere.py [--write]

prints a line for each target, made anew in a temporary folder: name and hash of its renderings. `--write` makes them
those that the tests expect (`everywhere.txt`): do that when a rendering was changed on purpose, and look at which names
differ. What a library decides (`own: no`) is compared between processes only: its next version may say it otherwise.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import io
import json
import os
import struct
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ctxkernel.core.ports import All, RenderRequest
from ctxkernel.sources import open_source

EXPECTED = Path(__file__).with_suffix(".txt")
MODULE = '''
    """Ships and what they carry.

    Second paragraph.
    """
    import os
    from dataclasses import dataclass, field as made

    LIMIT: int = 40

    @dataclass(frozen=True)
    class Ship(object):
        """A ship of the fleet."""

        name: str
        tons: float = 1.5

        async def load(self, tons: int, /, *rest: "str", where: dict[str, int] | None = None) -> bool:
            """Take aboard. Then more."""
            return f"{tons!r:>{LIMIT}}" != 'x'

        class Log:
            def write(self, line): return line

    def depart(ship, *, now=lambda: {1, 2, 3}): yield from ()
    if os.name == "nt":
        def only_there(): ...
'''
OUTPUT = {"output_type": "execute_result", "data": {"text/plain": "2"}, "metadata": {}, "execution_count": 2}
CODE = {"cell_type": "code", "metadata": {}}
CELLS = [
    {"cell_type": "markdown", "metadata": {}, "source": "# Title\nwords"},
    {**CODE, "execution_count": 1, "source": ["def f(x):\n", "    return x"], "outputs": []},
    {**CODE, "execution_count": 2, "source": "f(2)", "outputs": [OUTPUT]},
]
TEXTS: dict[str, str | bytes] = {
    "ships.py": textwrap.dedent(MODULE) * 3,
    "broken.py": "def f(:\n  x = (1,\n'''\n" * 5,
    "notes.md": "# Head\n\nSome text here. And more.\n\n## Sub\n\n* a\n* b\n" * 20,
    "guide.rst": "Title\n=====\n\nWords of it.\n\nPart\n----\n\n.. note:: x\n" * 3,
    "table.csv": "id,name,x\n" + "".join(f"{i},n{i % 3},{i / 7}\n" for i in range(500)),
    "data.json": '{"a": [1, 2, {"b": "c"}], "d": {"e": 1.5, "f": null, "g": [true, false]}}',
    "rows.jsonl": "".join(json.dumps({"k": i, "v": None if i % 5 else i / 3}) + "\n" for i in range(99)),
    "run.log": "".join(f"2026-03-0{i % 9 + 1} {'INFO' if i % 2 else 'ERROR'} step {i}\n" for i in range(400)),
    "long.txt": "x" * 100_000 + "\nend",
    "utf.txt": "größe 漢字 ünïcödé …\r\n" * 200 + "one\rtwo\n",
    "bytes.txt": b"caf\xe9 \x00 \xff\xfe\n" * 20,
    "wide.txt": "größe 漢字\n".encode("utf-16"),
    "config.toml": '[a]\nb = 1\n[a.c]\nd = "x"\n',
    "empty.txt": "",
    "image.png": b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 30, 20, 8, 6),
    "data.bin": bytes(range(256)) * 4,
    "tour.ipynb": json.dumps({"cells": CELLS, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
    "ships.ts": "export class Ship {\n  load(tons: number): void {}\n}\nexport function depart(ship: Ship) {}\n" * 3,
    "ships.rs": "/// A ship.\npub struct Ship { tons: f64 }\nimpl Ship { pub fn load(&mut self) {} }\n" * 3,
}
FOREIGN = ("ships.ts", "ships.rs")


@dataclasses.dataclass
class Point:
    """Where it is."""

    x: int
    y: float = 0.5


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


def objects() -> Iterator[tuple[str, Any]]:
    """Yield name and value of each kind of Python object."""
    yield "text in memory", io.StringIO("one\ntwo\n" * 30)
    yield "dict", {f"k{i}": [i, i / 3, None, "é" * i] for i in range(40)}
    yield "list", [1, -0.0, float("inf"), 10**30, "x" * 500, b"\0\1", (1, {2: 3})] * 5
    yield "nested", {"a": {"b": [{"c": {1, 2, 3}}]}}
    yield "set", {"a", "b", "c", "d", 1, 2.5, None}
    yield "frozenset", frozenset(f"name {i}" for i in range(30))
    yield "dataclass", Point(3)
    yield "enum", Colour.BLUE
    yield "class", Point
    yield "function", objects
    yield "number", 2**200
    yield "bytes", bytes(range(200))
    yield "nothing", None


def foreign() -> Iterator[tuple[str, Any]]:
    """Yield what libraries make, as far as they are there."""
    try:
        import numpy as np
    except ImportError:
        return
    yield "array", np.arange(4000, dtype="float32").reshape(40, 100) / 7
    yield "large array", np.zeros(3_000_000)
    try:
        import pandas as pd
    except ImportError:
        return
    frame = pd.DataFrame({"a": range(300), "b": [i / 7 for i in range(300)], "c": [f"n{i % 3}" for i in range(300)]})
    yield "frame", frame.assign(t=pd.date_range("2026-01-01", periods=300), d=frame["c"].astype("category"))
    yield "large frame", pd.DataFrame({f"c{i}": np.arange(1_000_000.0) for i in range(6)})


def targets(folder: Path) -> Iterator[tuple[str, bool, Any]]:
    """Yield (name, whether it is all our own, target), the files written into `folder`."""
    for name, text in TEXTS.items():
        path = folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.utime(path, (10**9, 10**9))
        yield name, name not in FOREIGN, name
    yield "folder", True, "."
    yield "pattern", True, "*.txt"
    yield from ((name, True, value) for name, value in objects())
    yield from ((name, False, value) for name, value in foreign())


def rendered(name: str, target: Any) -> str:
    """Return the hash of the renderings of a target at all levels, and some positions and budgets."""
    state = hashlib.sha256()
    for lod in range(4):
        for pos, tokens in (("0", 300), ("3", 40), ("2", All)):
            source = open_source(target, namespace_name=name.replace(" ", "_"))
            one = source.render(RenderRequest(lod, pos, tokens))
            state.update(json.dumps([one.text, one.tokens, one.cut_tokens, one.next_pos, one.notes]).encode())
    return state.hexdigest()[:16]


def lines() -> Iterator[str]:
    """Yield `name<tab>own: yes|no<tab>hash` for each target."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, own, target in targets(Path(folder)):
                yield f"{name}\town: {'yes' if own else 'no'}\t{rendered(name, target)}"
        finally:
            os.chdir(before)


if __name__ == "__main__":
    found = list(lines())
    if "--write" in sys.argv:
        EXPECTED.write_text("".join(f"{line}\n" for line in found if "\town: yes\t" in line), encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    print("\n".join(found))
