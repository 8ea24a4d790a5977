"""A session made from a notebook's file: its code cells as statements that did not run here.

Rule 1: Nothing is executed. Texts stay texts, and are masked on their way into the session, as those of cells.
Rule 2: An imported execution has the status `imported`, no checkpoint, and no changes of variables: nothing is known of
        them. What the file says of authors is kept as its claim.
Rule 3: Outputs beyond a bound are left out or cut, and the result says so.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ctxkernel.core.cell_tags import cell_tags, kind_of, statement_tags
from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.errors import StoreError
from ctxkernel.core.timeline import (
    Artifact,
    Author,
    Execution,
    Statement,
    environment_text,
    statement_fingerprint,
)
from ctxkernel.core.turn_values import TurnResult
from ctxkernel.export.documents import MARK, SUBJECT, document, exception_of
from ctxkernel.projection.masker import Masker
from ctxkernel.replay.notebook_outputs import KIND, RESULT, STREAMS, OutputPart
from ctxkernel.store.log.session import SessionStore
from ctxkernel.store.notebook_file import as_object, as_objects, cell_id

STREAM_CHARS = 1024**2
"""Most characters of one stream of a cell."""
PAYLOAD_BYTES = 8 * 1024**2
"""The largest rich output."""
PAYLOADS_BYTES = 64 * 1024**2
"""All rich outputs of a cell."""
TRACE_CHARS = 20_000
MOST_CELLS = 20_000
_CUT = "\n[... {:,} characters cut by the import ...]\n"
_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"))
_AUTHORS: tuple[Author, ...] = ("human", "model", "agent")
Cell = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    session: Path
    session_id: str
    statements: int
    left_out: list[str]


@dataclass(slots=True)
class NotebookImport:
    """Writes a notebook into a session."""

    notebook: Mapping[str, Any]
    """In format 4, with joined texts, as nbformat reads it."""
    name: str
    """The file name of the notebook that the session belongs to."""
    environment: Mapping[str, str]
    left_out: list[str] = field(default_factory=list[str])

    def write(self, path: Path, *, now: float, masker: Masker, named: bool) -> Imported:
        """Write the session at `path`, as a new kernel start if it exists. Raises StoreError."""
        store = SessionStore.open(
            path, now=lambda: now, environment=self.environment, notebook=self.name, named=named, mask=masker
        )
        try:
            if store.path is None:
                raise StoreError(store.notice or "the session cannot be written")
            made = dict(self._statements(store, now))
            bounded = self._bounded()
            images = frozenset(_images(bounded["cells"]))
            kept = document(bounded, made)
            told = store.mark(SUBJECT, MARK, kept, now, mask=lambda text: text if text in images else masker(text))
            self.left_out += [told] if told else []
        finally:
            store.close()
        return Imported(store.path, store.session_id, len(made), self.left_out)

    def _bounded(self) -> dict[str, Any]:
        """Return the notebook without what is too large for a session."""
        cells = [{**one, "outputs": self._outputs(at, one)} if "outputs" in one else one for at, one in self._cells()]
        return {**self.notebook, "cells": cells}

    def _cells(self) -> Iterator[tuple[int, Cell]]:
        cells = as_objects(self.notebook["cells"])
        if len(cells) > MOST_CELLS:
            raise StoreError(f"the notebook has {len(cells):,} cells; at most {MOST_CELLS:,} are imported")
        yield from enumerate(cells)

    def _statements(self, store: SessionStore, now: float) -> Iterator[tuple[int, tuple[str, Execution]]]:
        """Write the statements, and yield each with its position in the notebook."""
        index, before = store.last_index, None
        text = environment_text(self.environment)
        for at, cell in self._cells():
            source = str(cell.get("source", ""))
            if cell["cell_type"] != "code" or not source.strip():
                continue
            index += 1
            # Executions are ordered by their time.
            begun = now + index * 1e-6
            statement = Statement(
                f"s{index}",
                index,
                begun,
                source,
                kind=kind_of(tags := cell_tags(cell["metadata"])),
                author=_author(cell),
                parent_id=before.statement_id if before is not None else None,
                cell_id=cell_id(cell),
                tags={"imported": True, **statement_tags(tags)},
                fingerprint=statement_fingerprint(source, text),
            )
            running = Execution(f"s{index}.1", f"s{index}", before.execution_id if before else None, begun)
            ended = self._execution(at, cell, running)
            for told in (
                store.begin(statement, running),
                store.end(TurnResult(0, statement, ended, (), (), ())),
            ):
                if told:
                    raise StoreError(told)
            before = ended
            yield at, (f"s{index}", ended)

    def _execution(self, at: int, cell: Cell, running: Execution) -> Execution:
        outputs = self._outputs(at, cell)
        texts = dict.fromkeys(STREAMS, "")
        artifacts: list[Artifact] = []
        parts: list[OutputPart] = []
        shown = 0
        for one in outputs:
            kind = one["output_type"]
            if kind == "stream":
                texts[one["name"]] += one["text"]
                parts.append((one["name"], len(one["text"]), ""))
            elif kind in ("display_data", "execute_result"):
                shown += 1
                parts.append((f"out{shown}", 0, RESULT if kind == "execute_result" else ""))
                artifacts += [_artifact(f"out{shown}", mime, value) for mime, value in one["data"].items()]
        data: list[Any] = [list(part) for part in parts]
        if parts:
            artifacts.append(replace(_artifact("outputs", "application/json", data), kind=KIND))
        return replace(
            running,
            ended_at=running.started_at,
            status="imported",
            exception=exception_of(outputs, TRACE_CHARS),
            artifacts=tuple(artifacts),
            **texts,
        )

    def _outputs(self, at: int, cell: Cell) -> list[dict[str, Any]]:
        """Return the outputs of a cell within the bounds."""
        made: list[dict[str, Any]] = []
        room = PAYLOADS_BYTES
        for one in as_objects(cell.get("outputs")):
            if one["output_type"] == "stream":
                if one["name"] not in STREAMS:
                    self._tell(f"cell {at + 1}: a stream of the name {one['name'][:40]!r} is left out")
                    continue
                text = one["text"]
                if (over := len(text) - STREAM_CHARS) > 0:
                    half = STREAM_CHARS // 2
                    text = f"{text[:half]}{_CUT.format(over)}{text[-half:]}"
                    self._tell(f"cell {at + 1}: {over:,} characters of {one['name']} are cut")
                made.append({**one, "text": text})
                continue
            data: dict[str, Any] = {}
            for mime, value in one.get("data", {}).items():
                size = _size(value)
                if size > min(PAYLOAD_BYTES, room):
                    self._tell(f"cell {at + 1}: {mime[:60]} of {size:,} bytes is left out")
                else:
                    room -= size
                    data[mime] = value
            made.append({**one, "data": data} if "data" in one else dict(one))
        return made

    def _tell(self, line: str) -> None:
        if line not in self.left_out:
            self.left_out.append(line)


def _images(cells: Iterable[Cell]) -> Iterator[str]:
    """Yield the images in base64 of attachments and outputs: a part of one could look like a key."""
    for cell in cells:
        bundles: list[Any] = list(cell.get("attachments", {}).values())
        bundles += [one.get("data", {}) for one in cell.get("outputs", ())]
        for bundle in bundles:
            yield from (data for mime, data in bundle.items() if mime in _IMAGES and isinstance(data, str))


def _author(cell: Cell) -> Author:
    """Return the author that our export wrote into a cell's metadata."""
    name = as_object(as_object(as_object(cell.get("metadata")).get("ctxkernel")).get("run")).get("author")
    for author in _AUTHORS:
        if author == name:
            return author
    return "human"


def _size(value: object) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value))


def _artifact(name: str, mime: str, value: Any) -> Artifact:
    raw = value if isinstance(value, str) else json.dumps(value)
    encoded = raw.encode("utf-8", "surrogatepass")
    digest = f"sha256:{hashlib.sha256(encoded).hexdigest()}"
    return Artifact("display", name, mime, len(encoded), digest, value)


def import_notebook(
    notebook: Mapping[str, Any], path: Path, *, name: str, environment: Mapping[str, str], masker: Masker, named: bool
) -> Imported:
    """Write the session of a notebook to `path`. Raises StoreError."""
    done = NotebookImport(notebook, name, environment)
    return done.write(path, now=time.time(), masker=masker, named=named)
