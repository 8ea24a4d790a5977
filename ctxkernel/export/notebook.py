"""A branch of a session as a notebook: its cells with their outputs, and between them the texts of the notebook's file.

Rule 1: Nothing is executed or unpickled. Texts are masked, and have none of the private names.
Rule 2: Own facts are in `metadata.ctxkernel.run` of a cell and `metadata.ctxkernel.export` of the notebook, and nowhere
        else. They hold no time of the export: the same branch gives the same bytes.
Rule 3: A cell that was imported, and has not run here, comes out as it came in.
Rule 4: Nothing in the result says that it is trusted.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import plural
from ctxkernel.core.timeline import Execution, Run, Statement, StatementLog
from ctxkernel.core.timeline import Path as TimelinePath
from ctxkernel.export.documents import MARK, STATEMENT, SUBJECT, cells_of, metadata_of, with_forms
from ctxkernel.export.page import replace_text
from ctxkernel.history.events import Action, AssistantMessage
from ctxkernel.projection.masker import Masker
from ctxkernel.projection.privacy import Hiding
from ctxkernel.replay.notebook_outputs import NotebookCellOutputs, outputs_of_cells
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.notebook_file import as_count, as_object, as_objects, cell_id, joined, read_notebook_json

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PYTHON = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""The notebook is to open where there is no ctxkernel."""
_TRANSIENT = ("signature", "orig_nbformat", "orig_nbformat_minor", "trusted")
Cell = dict[str, Any]


@dataclass(slots=True)
class BranchNotebook:
    """Builds the notebook of one branch."""

    reader: SessionReader
    masker: Masker
    private: frozenset[str] = frozenset()
    left_out: list[str] = field(default_factory=list[str])
    _hidden: int = 0
    _count: int = 0
    """The number of the newest prompt."""
    _outputs: dict[str, NotebookCellOutputs] = field(default_factory=dict[str, NotebookCellOutputs])
    """Execution → its outputs at the end of the branch: a later cell may have updated a display."""
    _said: dict[str, str] = field(default_factory=dict[str, str])
    """Execution → the text that a model wrote in it."""
    _receipts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def build(self, file: Path | None, branch: str | None = None) -> dict[str, Any]:
        """Return the notebook up to the execution `branch` (default: HEAD). `file` is that of the notebook.

        Raises StoreError for a damaged tree, and KeyError for an unknown execution.
        """
        with self.reader.snapshot():
            log = self.reader.log()
            marks = self.reader.marks()
            records = self.reader.records()
        for name, events in records.items():
            said = [event.text for event in events if isinstance(event, AssistantMessage | Action)]
            self._said[name] = "\n\n".join(filter(str.strip, said))
        found = log.path(branch) if branch is not None else log.path()
        # The command that exports the session still runs.
        path = [run for run in found if run[1].status != "running"]
        made = outputs_of_cells((execution, None) for _, execution in path)
        self._outputs = {run[1].execution_id: one for run, one in zip(path, made, strict=True)}
        kept = marks.get((SUBJECT, MARK))
        ids = {statement.statement_id for statement, _ in path}
        cells = cells_of(kept)
        if kept is not None and (not ids or any(cell.get(STATEMENT) in ids for cell in cells)):
            metadata, minor = metadata_of(kept)
            built = list(self._of_document(cells, path, log))
        else:
            metadata, listed, minor = self._file(file)
            built = list(self._of_file(listed, path, log))
        if not all(execution.status == "imported" for _, execution in path):
            own = {"session": self.reader.session_id, "branch": path[-1][1].execution_id}
            metadata = _with(metadata or _PYTHON, "export", own)
            minor = 5
        if self._hidden:
            self.left_out.append(f"private names are hidden in {plural(self._hidden, 'texts')}")
        return {
            "nbformat": 4,
            "nbformat_minor": minor,
            "metadata": {key: value for key, value in metadata.items() if key not in _TRANSIENT},
            "cells": list(_with_ids(built, minor)),
        }

    # -- the order of the cells -------------------------------------------------------------------

    def _of_document(self, cells: list[Cell], path: TimelinePath, log: StatementLog) -> Iterator[Cell]:
        """Yield the cells of an imported notebook, and those that ran after the import where they belong."""
        runs = {statement.statement_id: (statement, execution) for statement, execution in path}
        known = {str(cell[STATEMENT]): cell for cell in cells if STATEMENT in cell}
        told = {run[0].cell_id: run for run in runs.values() if run[0].statement_id not in known and run[0].cell_id}
        done: set[str] = set()
        for cell in cells:
            name = str(cell.get(STATEMENT, ""))
            if not name:
                yield self._text_cell(cell)
                continue
            run = told.get(cell_id(cell) or "") or runs.get(name)
            statement = log.get(name)
            if run is not None:
                done.add(run[0].statement_id)
                yield self._run_cell(run, {key: value for key, value in cell.items() if key != STATEMENT})
            elif statement is not None:  # HEAD is before it
                bare = {key: value for key, value in cell.items() if key != STATEMENT}
                yield {**bare, "source": self.text(statement.source), "outputs": [], "execution_count": None}
        done |= known.keys()
        rest = [run for run in runs.values() if run[0].statement_id not in done and self._is_cell(run, log)]
        yield from (self._run_cell(run, None) for run in rest)

    def _of_file(self, cells: list[Cell], path: TimelinePath, log: StatementLog) -> Iterator[Cell]:
        """Yield the cells of the file with the newest runs of the branch, and runs without a cell where they came."""
        newest: dict[object, Run] = {}
        for run in path:
            if self._is_cell(run, log):
                key = run[0].cell_id or run[0].statement_id
                newest.pop(key, None)
                newest[key] = run
        pairs = _pairs(cells, newest)
        placed = {id(run[1]): at for at, run in pairs.items()}
        after: dict[int, list[Run]] = {}
        at = -1
        for run in newest.values():
            at = placed.get(id(run[1]), at)
            if id(run[1]) not in placed:
                after.setdefault(at, []).append(run)
        yield from (self._run_cell(run, None) for run in after.get(-1, ()))
        for at, cell in enumerate(cells):
            if at in pairs:
                yield self._run_cell(pairs[at], cell)
            elif cell.get("cell_type") == "code":
                source = self.text(joined(cell.get("source")))
                yield {**cell, "source": source, "outputs": [], "execution_count": None}
            else:
                yield self._text_cell(cell)
            yield from (self._run_cell(run, None) for run in after.get(at, ()))

    # -- cells --------------------------------------------------------------------------------------

    def _text_cell(self, cell: Cell) -> Cell:
        return {**cell, "metadata": _trustless(cell.get("metadata")), "source": self.text(joined(cell.get("source")))}

    def _run_cell(self, run: Run, cell: Cell | None) -> Cell:
        """Return the cell of an execution; `cell` is the one of the file or document."""
        statement, execution = run
        if statement.kind == "meta" and statement.author == "model":
            metadata = _with({}, "run", self._facts(statement, execution))
            source = self.text(self._said[execution.execution_id])
            return {"cell_type": "markdown", "id": None, "metadata": metadata, "source": source}
        stored = cell or {}
        if execution.status == "imported":
            count = as_count(stored.get("execution_count"))
            outputs = with_forms(execution, stored)
            metadata = _trustless(stored.get("metadata"))
        else:
            self._count += 1
            count = self._count
            made = self._outputs[execution.execution_id]
            outputs = _as_in_file(made.everything, stored)
            outputs = [{**one, "execution_count": count} if "execution_count" in one else one for one in outputs]
            if not made.is_whole:
                self.left_out.append(f"{execution.execution_id}: its output is not kept whole in the session")
            tags = statement.tags.get("cell_tags")
            metadata = _trustless(stored.get("metadata")) if cell else {"tags": tags} if tags else {}
            metadata = _with(metadata, "run", self._facts(statement, execution))
        return {
            "id": statement.cell_id,
            **stored,
            "cell_type": "code",
            "metadata": metadata,
            "source": self.text(statement.source),
            "outputs": self._safe(outputs),
            "execution_count": count,
        }

    def _is_cell(self, run: Run, log: StatementLog) -> bool:
        """Return whether a run is that of a cell, or a text of a model, and not a gesture."""
        statement, execution = run
        if statement.kind == "meta":
            if statement.author == "model":
                return bool(self._said.get(execution.execution_id))
            is_typed = statement.author == "human" and not statement.tags.get("outside")
            return is_typed and execution.execution_id not in log.movers
        return statement.author != "panel" and not statement.tags.get("outside")

    def _facts(self, statement: Statement, execution: Execution) -> dict[str, Any]:
        """Return what the metadata of a cell say of its run."""
        receipt = statement.tags.get("receipt")
        facts: dict[str, Any] = {
            "execution": execution.execution_id,
            "author": statement.author,
            "status": execution.status,
            "at": round(execution.started_at, 3),
            "ms": round(execution.cost.time_ms, 1),
            "model": statement.tags.get("model") if statement.author == "model" else None,
            "agent": statement.tags.get("agent"),
            "receipt": receipt,
            "receipts": self._asked().get(execution.execution_id),
        }
        return {name: value for name, value in facts.items() if value is not None and value != ""}

    def _asked(self) -> dict[str, list[str]]:
        """Return the receipts of the requests of each ask."""
        if not self._receipts:
            query = "SELECT e.execution_id, r.receipt FROM receipts r JOIN executions e ON e.seq = r.seq ORDER BY r.id"
            self._receipts = {"": []}
            for name, receipt in self.reader.select(query):
                self._receipts.setdefault(str(name), []).append(str(receipt))
        return self._receipts

    # -- texts ----------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Return a text as the notebook shows it."""
        shown = self.masker(text)
        if self.private and (hidden := Hiding(self.private).text(shown)) != shown:
            self._hidden += 1
            return hidden
        return shown

    def _safe(self, value: Any, name: str = "") -> Any:
        """Return an output with its texts masked."""
        if isinstance(value, str):
            return value if name.startswith("image/") and name != "image/svg+xml" else self.text(value)
        if isinstance(value, list):
            return [self._safe(one, name) for one in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {key: self._safe(one, str(key)) for key, one in cast("dict[str, Any]", value).items()}
        return value

    def _file(self, file: Path | None) -> tuple[dict[str, Any], list[Cell], int]:
        """Return metadata, cells and minor format of the notebook's file; empty ones if it cannot be read."""
        if file is None or file.suffix != ".ipynb":
            return {}, [], 5
        try:
            found = read_notebook_json(file)
        except (OSError, ValueError):
            self.left_out.append("the notebook's file cannot be read: the texts between the cells are left out")
            return {}, [], 5
        cells = [one for one in as_objects(found.get("cells")) if one.get("cell_type") in ("code", "markdown", "raw")]
        return as_object(found.get("metadata")), cells, 5


def _pairs(cells: list[Cell], newest: Mapping[object, Run]) -> dict[int, Run]:
    """Return position → run: by the id of the cell, else by its text, in order."""
    code = [(at, cell) for at, cell in enumerate(cells) if cell.get("cell_type") == "code"]
    pairs = {at: newest[name] for at, cell in code if (name := cell_id(cell)) in newest}
    used = {id(run[1]) for run in pairs.values()}
    left = [run for run in newest.values() if id(run[1]) not in used]
    for at, cell in code:
        if at not in pairs:
            found = next((run for run in left if run[0].source == joined(cell.get("source"))), None)
            if found is not None:
                left.remove(found)
                pairs[at] = found
    return pairs


def _as_in_file(outputs: list[dict[str, Any]], cell: Cell) -> list[dict[str, Any]]:
    """Return the outputs of the file where they show the same: those also have metadata, and colours of a traceback."""
    stored = as_objects(cell.get("outputs"))
    same = len(stored) == len(outputs) and all(map(operator.eq, map(_shows, stored), map(_shows, outputs)))
    return stored if same else outputs


def _shows(output: Mapping[str, Any]) -> Any:
    """Return what an output shows."""
    bundle = as_object(output.get("data"))
    texts = {mime: one if mime.endswith("json") else joined(one) for mime, one in bundle.items()}
    errors = [output.get(name) for name in ("ename", "evalue")]
    return output.get("output_type"), output.get("name"), joined(output.get("text")).rstrip("\n"), texts, errors


def _trustless(metadata: object) -> dict[str, Any]:
    """Return the metadata of a cell without a claim of trust."""
    return {key: value for key, value in as_object(metadata).items() if key not in _TRANSIENT}


def _with(metadata: Mapping[str, Any], name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with a value in our part of it."""
    return {**metadata, "ctxkernel": {**as_object(metadata.get("ctxkernel")), name: value}}


def _with_ids(cells: list[Cell], minor: int) -> Iterator[Cell]:
    """Yield the cells with ids that format 4.5 allows; without ids for older ones."""
    taken: set[str] = set()
    for number, cell in enumerate(cells, 1):
        if minor < 5:
            yield {key: value for key, value in cell.items() if key != "id"}
            continue
        name = str(cell.get("id") or "")
        if not _ID.fullmatch(name):
            name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:48].strip("-") or f"cell-{number}"
        while name in taken:
            name = f"{name[:48]}-{number}"
        taken.add(name)
        yield {**cell, "id": name}


def notebook_text(notebook: dict[str, Any]) -> str:
    """Return a notebook as Jupyter writes it: texts as lists of lines, keys in order."""
    import nbformat

    jupyter: Any = nbformat
    return jupyter.v4.writes(jupyter.from_dict(notebook)) + "\n"


def write_notebook(
    reader: SessionReader,
    output: Path,
    *,
    notebook: Path | None,
    masker: Masker,
    private: Collection[str] = (),
    branch: str | None = None,
) -> list[str]:
    """Write a branch to `output`, whole or not at all; return lines on what it leaves out.

    Names that the session's marks make private are hidden too. Raises StoreError, KeyError and OSError.
    """
    marked = {subject for (subject, mark), _ in reader.marks().items() if mark == "private"}
    made = BranchNotebook(reader, masker, frozenset((*private, *marked)))
    replace_text(output, notebook_text(made.build(notebook, branch)))
    return made.left_out
