"""A session to export: branches, secrets, hostile outputs, images, a re-run that differs."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

GESTURE = {"ctxkernel": {"kind": "meta"}}
SECRET = "hunter2-correct-horse-battery"
KEY = "sk-ant-api03-" + "a1B2" * 20
HOSTILE = "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'></script>"
SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'><script>window.broken = 3</script>"
    "<rect width='40' height='20'/></svg>"
)


def png(side: int, seed: int = 0) -> str:
    """Return a PNG in base64 that does not compress."""
    import random

    rows = b"".join(b"\0" + random.Random(seed + y).randbytes(3 * side) for y in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = side.to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")
    return base64.b64encode(raw).decode()


CELLS = [
    ("a", "import time\nx = 1"),
    ("b", f"password = {SECRET!r}; print('it is', password); token = {KEY!r}"),
    ("c", f"from IPython.display import HTML, SVG, display; display(HTML({HOSTILE!r})); print({HOSTILE!r})"),
    ("d", f"display(SVG({SVG!r}))"),
    ("e", f"display({{'image/png': {png(24)!r}, 'text/plain': 'a small picture'}}, raw=True)"),
    ("f", "salary = 'private-value-4711'; x = 2\nsalary"),
    ("g", "1 / 0"),
    ("h", "t = time.perf_counter(); t"),
]


def fill(kernel: Any) -> None:
    """Run the session in a kernel."""
    for cell, source in CELLS:
        kernel.run(source, metadata={"cellId": cell})
    for gesture in ("%ctx private salary", "%ctx rerun s8", "%ctx goto s5"):
        kernel.run(gesture, metadata=GESTURE)
    kernel.run("other = 'of another branch'", metadata={"cellId": "i"})


SWEEP = f"""
from ctxkernel.sweeps.sweep_table import MARK, SweepRow, SweepTable
context = get_ipython().kernel.ctx
figure = {{"told": "figure", "image/png": {png(8)!r}}}
rows = [SweepRow({{"alpha": n, "sal" + "ary": 1}}, {{"r2": -n, "fig": figure}}, "ok", f"s1.{{n}}") for n in (2, 10, 1)]
rows.append(SweepRow({{"alpha": {HOSTILE!r}, "sal" + "ary": 4712}}, {{}}, "error", why={HOSTILE!r}))
context.keep_mark(context.loop.opened.execution.execution_id, MARK, SweepTable(rows).to_mark())
"""


def sweep(kernel: Any) -> None:
    """Run a cell that leaves the table of a sweep."""
    assert kernel.run(SWEEP, metadata={"cellId": "swept"}).status == "ok"


def exported(kernel: Any, path: Path) -> str:
    """Export the session of a kernel and return the page."""
    ran = kernel.run(f"%ctx export {path}", metadata=GESTURE)
    assert ran.status == "ok", ran.error
    return path.read_text("utf-8")
