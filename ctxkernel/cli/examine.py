"""The execution of a notebook for a test: cells that fail, outputs that differ, requests that were not recorded.

Rule 1: No model is asked: asks replay recorded turns, and the kernel gets no key and no server.
Rule 2: Nothing is left behind: the session and its data are in a temporary folder, and the notebook is not written.
        Recorded turns are written only with `update`.
Rule 3: Settings are those beside the notebook, not the user's own or those of the environment.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import nbformat

from ctxkernel.agent.recorded import SUFFIX
from ctxkernel.agent.trust_review import give, review, trusted_subjects
from ctxkernel.cli import INTERRUPTED, Failed
from ctxkernel.cli.kernel import OwnKernel, kernel_log
from ctxkernel.cli.notebook_files import read_notebook
from ctxkernel.cli.run import Cells, Progress, RunOutcome, code_cells, run_cells
from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import StoreError
from ctxkernel.core.replay import Comparison
from ctxkernel.core.timeline import Artifact, ExceptionInfo, Execution
from ctxkernel.replay.divergence import compare, text_table
from ctxkernel.store.log.location import HINT, OVERRIDE
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.trust_registry import TRUSTED, TURNS

DIFFERS = "ctx-differs"
"""The tag of a cell that is expected to differ."""
_DECIDES = ("%ctx approve", "%ctx edit", "%%ctx edit", "%ctx reject", "%ctx stop")


class NotebookFailed(Failed):
    """The faults of a notebook."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of the execution of a notebook."""

    faults: list[str] = field(default_factory=list[str])
    """One paragraph for each; empty if there are none."""
    drift: str = ""
    """The requests that differ from the recorded ones; empty if there are none."""


def examine(path: Path, *, update: bool = False, trust: bool = False) -> Examined:
    """Execute a copy of a notebook in its folder, and return the differences. Raises CtxError, KeyboardInterrupt.

    With `update` the recorded turns are written anew, with the present requests. With `trust` the recorded turns and
    settings beside the notebook count as trusted.
    """
    stored = read_notebook(path)
    ran = read_notebook(path)
    for _, cell in code_cells(ran):
        cell.outputs = []
    with tempfile.TemporaryDirectory(prefix="ctxkernel-test-", ignore_cleanup_errors=True) as kept:
        session = Path(kept) / "session.sqlite"
        with kernel_log() as log:
            outcome = asyncio.run(_execute(ran, path, session, log, update=update, trust=trust))
        if outcome.status == INTERRUPTED:
            raise KeyboardInterrupt
        faults = [outcome.message] if outcome.message else []
        differing = list(_differing(code_cells(stored), code_cells(ran)))
        # After a failed cell all later ones lack their outputs.
        if differing and not faults:
            faults.append(f"Outputs differ from those in the notebook:\n{text_table(differing)}")
        try:
            with SessionReader(session) as reader:
                red, drift = list(_refused(reader)), _drift(reader)
        except (StoreError, sqlite3.Error) as fault:
            raise Failed(f"the kernel wrote no session that can be read: {fault}") from fault
    if red:
        faults.append("Projections that the model's API would refuse:\n" + "\n".join(red))
    return Examined(faults, "" if update and not outcome.status else drift)


async def _execute(
    notebook: nbformat.NotebookNode, path: Path, session: Path, log: IO[bytes], *, update: bool, trust: bool
) -> RunOutcome:
    foreign = [name for name in os.environ if name.startswith(("ANTHROPIC_", "CTXKERNEL_")) or name == _UNDER_PYTEST]
    environment: dict[str, str | None] = {
        **dict.fromkeys(foreign),
        HINT: str(path.resolve()),
        OVERRIDE: str(session),
        "CTXKERNEL_HOME": str(session.parent / "home"),
        "CTXKERNEL_CACHE": str(session.parent / "cache"),
        "CTXKERNEL_ANSWERS": "recorded",
        TRUSTED: trusted_subjects(path, give=trust),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }
    outcome = RunOutcome()
    async with OwnKernel.started(notebook, path.resolve().parent, environment, log) as kernel:
        cells = code_cells(notebook)
        await run_cells(kernel, cells, 0, outcome, Progress(len(cells)))
        if update and not outcome.status and any(cell.source.lstrip().startswith("%%ask") for _, cell in cells):
            reply = await kernel.command("%ctx record")
            if reply.get("status") != "ok":
                raise Failed(f"the recorded turns could not be written: {reply.get('evalue')}")
            # The kernel's home is not the user's.
            give(review(TURNS, path.resolve().with_suffix(SUFFIX)))
    return outcome


_UNDER_PYTEST = "PYTEST_CURRENT_TEST"
"""With this variable ipykernel behaves as a part of pytest, and does not capture fd 1 and 2."""


def _refused(reader: SessionReader) -> Iterator[str]:
    for execution_id, _, projection in reader.stored_projections():
        if isinstance(projection, StoreError):
            raise projection
        yield from (f"after {execution_id}: {found.told()}" for found in projection.violations)


def _drift(reader: SessionReader) -> str:
    by_ask: dict[str, list[str]] = {}
    for statement, _ in reader.statements():
        if statement.tags.get("drift"):
            by_ask.setdefault(str(statement.tags["ask"]), []).append(str(statement.tags["round"]))
    if not by_ask:
        return ""
    lines = [f"the ask of {ask.partition('.')[0]}: request {', '.join(rounds)}" for ask, rounds in by_ask.items()]
    told = "Requests to the model are not those that were recorded (drift), since what stands before them differs"
    return f"{told}:\n" + "\n".join(lines) + "\n--ctx-update writes the turns anew."


def _differing(stored: Cells, ran: Cells) -> Iterator[Comparison]:
    """Yield the differences of outputs. An ask and the cells that decide on it are one group: a replay shows all there.

    A group without outputs is not compared.
    """
    starts = [at for at, (_, cell) in enumerate(stored) if not at or not cell.source.lstrip().startswith(_DECIDES)]
    for first, last in pairwise([*starts, len(stored)]):
        old = [cell for _, cell in stored[first:last]]
        new = [cell for _, cell in ran[first:last]]
        tags = {tag for cell in old for tag in cell.metadata.get("tags", ())}
        if DIFFERS in tags or not any(_told(cell) for cell in old):
            continue
        names = f"cell {first + 1}" if last - first == 1 else f"cells {first + 1}-{last}"
        found = compare(_execution(names, old), _execution(names, new), old_state={}, new_state={})
        if not found.same:
            yield found


def _told(cell: nbformat.NotebookNode) -> list[Mapping[str, Any]]:
    """Return the outputs of a cell without the kernel's notes about an ask."""
    return [one for one in cell.outputs if not one.get("metadata", {}).get("ctxkernel", {}).get("note")]


def _execution(name: str, cells: list[nbformat.NotebookNode]) -> Execution:
    """Return the outputs of cells as an execution."""
    stdout = stderr = ""
    exception: ExceptionInfo | None = None
    artifacts: list[Artifact] = []
    times: list[float] = []
    for cell in cells:
        timing = cell.metadata.get("execution", {})
        times += [datetime.fromisoformat(timing[at]).timestamp() for at in _TIMES if at in timing]
        for number, output in enumerate(_told(cell)):
            match output["output_type"]:
                case "stream" if output["name"] == "stdout":
                    stdout += output["text"]
                case "stream":
                    stderr += output["text"]
                case "error":
                    exception = ExceptionInfo(output["ename"], output["evalue"], "")
                case _:
                    artifacts += _artifacts(f"{cell.id}-{number}", output["data"])
    begin, end = (min(times), max(times)) if times else (0.0, None)
    ids, status = (name, name, None), "error" if exception is not None else "ok"
    return Execution(*ids, begin, end, status, stdout, stderr, exception, artifacts=tuple(artifacts))


_TIMES = ("iopub.execute_input", "shell.execute_reply")


def _artifacts(name: str, data: Mapping[str, Any]) -> Iterator[Artifact]:
    for mime, value in data.items():
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        yield Artifact("display", name, mime, len(text), f"sha256:{digest}", value)
