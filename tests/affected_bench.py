"""A process that runs notebooks, edits and re-runs them, and compares with running all: one JSON line a request.

A request is `{"cells": [source …], "edited": [[number of the cell or null, source] …], "ran": [place in these …]}`.
Two forks of this process run the notebook, and then the edited cells at the places `ran`, as a user tries them. Then
one re-runs the affected cells of the edited notebook, and the other one returns to the start and runs all of them. The
answer says what differs, and which cells ran though nothing was different before them.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import shutil
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from oracle import Bench, Failure, Kernel, _in_a_fork
from oracle_graph import Difference, Snapshot, Tags, differences, snapshot

Cells = list[tuple[str, str]]
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_BY_CHANCE = re.compile(
    r"(?<=0x)[0-9a-f]+|^CPU times: .*|^Wall time: .*|^(?:Overw|W)riting (?=\w+\.\w+$)", re.MULTILINE
)
"""What a cell prints otherwise when it runs again: addresses, times, and whether a file was there."""


class Printed(io.StringIO):
    """Sends what cells print as messages, as ipykernel's stream does."""

    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self._kernel = kernel

    def write(self, text: str) -> int:
        """Send a text."""
        kernel = self._kernel
        content = {"name": "stdout", "text": text}
        kernel.session.send(kernel.iopub_socket, "stream", content, parent=kernel.get_parent("shell"))
        return len(text)


class Desk:
    """A notebook in a kernel in this process."""

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        os.chdir(folder)
        os.environ["JPY_SESSION_NAME"] = str(folder / "note.ipynb")
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        random.seed(5)
        self.kernel, self.folder = kernel, folder
        kernel.switch_on()
        sys.stdout = Printed(kernel.kernel)
        self._tags = Tags()

    @property
    def log(self) -> Any:
        return self.kernel.kernel.ctx.loop.log

    def run(self, source: str, cell: str | None = None) -> str:
        """Run a cell; return what it printed."""
        self.kernel._sent.seek(0)
        self.kernel._sent.truncate()
        self.kernel.kernel.set_parent([], {"header": {"msg_id": uuid.uuid4().hex}, "metadata": {}, "content": {}})
        running = self.kernel.kernel.do_execute(source, False, True, cell_id=cell)
        asyncio.get_event_loop().run_until_complete(running)
        return self.kernel._sent.getvalue()

    def state(self) -> Snapshot:
        """Return the variables, the generator of `random`, the environment, and the files."""
        files = {
            f"file {one.name}": one.read_text()
            for one in sorted(self.folder.iterdir())
            if one.suffix in (".txt", ".csv")
        }
        # As one text: the 625 numbers of the generator are a third of the objects of such a state.
        names = {**self.kernel.roots(outputs=False), "random state": repr(random.getstate()), **files}
        names["environment"] = dict(os.environ)
        names = {
            name: f"module {value.__name__}" if type(value).__name__ == "module" else value
            for name, value in names.items()
        }
        return snapshot(names, self.kernel.names, self._tags, str(self.folder))

    def outputs(self, execution_id: str) -> list[str]:
        """Return what an execution showed."""
        one = self.log.execution(execution_id)
        shown = [json.dumps(a.data, sort_keys=True, default=str) for a in one.artifacts if a.kind == "display"]
        told = f"{one.exception.type}: {one.exception.message}" if one.exception is not None else ""
        return [_BY_CHANCE.sub("", text) for text in (one.stdout, *shown, told)]

    def run_all(self, cells: Cells, *, states: bool = True) -> tuple[list[Snapshot], list[str]]:
        """Run cells in order; return what was there before each of them, if `states`, and their executions."""
        before: list[Snapshot] = []
        for cell, source in cells:
            if states:
                before.append(self.state())
            self.run(source, cell)
        return before, [
            self.log.newest_execution(self._statement(cell), self.log.path()).execution_id for cell, _ in cells
        ]

    def _statement(self, cell: str) -> str:
        return next(s.statement_id for s, _ in reversed(self.log.path()) if s.cell_id == cell)


def write(folder: Path, cells: Cells) -> Path:
    listed = [
        {"cell_type": "code", "id": cell, "source": source, "metadata": {"tags": ["raises-exception"]}, "outputs": []}
        for cell, source in cells
    ]
    path = folder / "note.ipynb"
    path.write_text(json.dumps({"cells": listed, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def affected(kernel: Kernel, folder: Path, cells: Cells, edited: Cells, ran: list[int]) -> dict[str, Any]:
    """Run a notebook, some edited cells, and the affected cells of the edited one."""
    desk = Desk(kernel, folder)
    before, _ = desk.run_all(cells)
    for at in ran:
        desk.run(edited[at][1], edited[at][0])
    path = write(folder, edited)
    printed = desk.run(f"%ctx rerun --affected --json --notebook {path}")
    at = printed.rfind('{\n "head"')
    if at < 0:
        return {"fault": printed[-2000:]}
    told = json.JSONDecoder().raw_decode(printed[at:])[0]
    shown = {at: desk.outputs(one) for at, one in told["executions"].items()}
    return {**told, "before": before, "state": desk.state(), "shown": shown, "printed": printed[:at]}


def everything(kernel: Kernel, folder: Path, cells: Cells, edited: Cells, ran: list[int]) -> dict[str, Any]:
    """Run a notebook and some edited cells, return to its start, and run the edited one."""
    desk = Desk(kernel, folder)
    desk.run_all(cells, states=False)
    for at in ran:
        desk.run(edited[at][1], edited[at][0])
    desk.run("%ctx goto 0")
    before, runs = desk.run_all(edited)
    return {
        "before": before,
        "state": desk.state(),
        "shown": {str(at): desk.outputs(one) for at, one in enumerate(runs)},
    }


def _is_address(one: Difference) -> bool:
    """Return whether two texts differ by the address of an object alone."""
    return "0x" in one.then and _ADDRESS.sub("0x", one.then) == _ADDRESS.sub("0x", one.now)


def compared(cells: Cells, edited: Cells, part: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between a re-run of the affected cells and one of all cells."""
    if "fault" in part:
        return {"failed": [part["fault"]]}
    # The parameters of a cache are a function of functools, of which a snapshot knows only that it is one object.
    found = [one for one in differences(whole["state"], part["state"]) if ".cache_parameters" not in one.path]
    # A text with the address of an object is another one in each process.
    failed = [f"state: {one}" for one in found if not _is_address(one)]
    for at, shown in whole["shown"].items():
        if part["shown"].get(at) != shown:
            failed.append(f"output of cell {at}: {shown} by all, {part['shown'].get(at)} by the affected ones")
    place = {cell: (at, source) for at, (cell, source) in enumerate(cells)}
    needless: list[str] = []
    for at in part["ran"]:
        cell, source = edited[at]
        old, text = place.get(cell, (0, None))
        # A snapshot has no results, and no settings but the environment, and does not tell two generators apart.
        if re.search(r"(?<!the environment) settings|\b[qr_] changed", part["why"][str(at)]):
            continue
        if text == source and not differences(part["before"][old], whole["before"][at]):
            needless.append(f"cell {at} ran ({part['why'][str(at)]})")
    return {
        "failed": failed + ([part["stopped"]] if part["stopped"] else []),
        "needless": needless,
        "ran": part["ran"],
        "kept": part["kept"],
        "opaque": part["opaque"],
        "why": part["why"],
    }


class AffectedBench(Bench):
    """Answers requests."""

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what a request asks for."""
        cells = [(f"c{at}", source) for at, source in enumerate(request["cells"])]
        edited = [
            (f"c{number}" if number is not None else f"n{at}", source)
            for at, (number, source) in enumerate(request["edited"])
        ]
        found: list[Any] = []
        folder = Path(tempfile.mkdtemp(prefix="affected-"))
        try:
            for action in (affected, everything):
                # One path for both: texts may name it.
                place = folder / "book"
                place.mkdir()
                found.append(_in_a_fork(lambda a=action, p=place: a(self._kernel, p, cells, edited, request["ran"])))
                shutil.rmtree(place, ignore_errors=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for one in found:
            if isinstance(one, Failure):
                return {"failed": [one.text()]}
        return compared(cells, edited, *found)


def main() -> None:
    """Answer the requests on standard input."""
    bench = AffectedBench(Path(tempfile.mkdtemp(prefix="affected-bench-")), twins=False)
    answers = sys.__stdout__
    assert answers is not None
    for line in sys.stdin:
        print(json.dumps(bench.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
