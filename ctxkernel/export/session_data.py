"""The data of an exported session: its executions, branches, comparisons and newest projection, as JSON values.

Rule 1: Nothing is unpickled or executed. Every text is masked, and has none of the private names.
Rule 2: The result is bounded, whatever the session holds. What is cut or left out is listed in `left_out`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import StoreError
from ctxkernel.core.replay import Comparison
from ctxkernel.core.text import one_line, plural, strip_ansi
from ctxkernel.core.timeline import Artifact, Execution, Statement, StatementLog
from ctxkernel.core.timeline_table import other_notices
from ctxkernel.export.images import ImageShelf
from ctxkernel.projection.masker import Masker
from ctxkernel.projection.privacy import Hiding
from ctxkernel.replay.differences import differences
from ctxkernel.replay.notebook_outputs import display_ids, display_updates
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.sweeps.shown_table import SWEEP_MIME, ShownSweep, shown_sweep
from ctxkernel.sweeps.sweep_table import SweepTable, stored_tables

TEXT_CHARS = 20_000
"""Most characters of one text at first …"""
LEAST_CHARS = 400
"""… and where the session is large."""
ALL_CHARS = 1_400_000
"""Characters of all texts together."""
MOST_EXECUTIONS = 20_000
LEAST_EXECUTIONS = 1_000
"""The newest ones, which a page has however long their texts are."""
BRANCHES = 20
"""Most branches that are compared with HEAD."""
BLOCKS = 400
"""Most blocks of the projection."""
TEXTS = ("text/plain", "text/markdown", "text/latex", "application/json")
NOTEBOOK_BYTES = 100_000_000


@dataclass(slots=True)
class SessionData:
    """Builds the data of one session."""

    reader: SessionReader
    masker: Masker
    private: frozenset[str]
    branch: str | None = None
    """The execution that is shown as HEAD; None for HEAD itself."""
    images: ImageShelf = field(default_factory=ImageShelf)
    limit: int = TEXT_CHARS
    chars: int = 0
    most: int = MOST_EXECUTIONS
    lengths: list[int] = field(default_factory=list[int])
    """The characters of each text of the last build."""
    cut: int = 0
    sweeps: dict[str, SweepTable] = field(default_factory=dict[str, SweepTable])
    displays: dict[str, int] = field(default_factory=dict[str, int])
    """Identifier of a display → its number in the page: the code can have any text as an identifier."""
    left_out: list[str] = field(default_factory=list[str])

    def build(self, notebook: Path | None) -> dict[str, Any]:
        """Return the data, with texts short enough for one page. Raises StoreError for a damaged tree."""
        with self.reader.snapshot():
            log = self.reader.log()
            if self.branch is not None:
                log.move_head(self.branch)
            compared = self._branch_differences(log)
            self.most = min(MOST_EXECUTIONS, len(log.ended()))
            while True:
                self.chars = self.cut = 0
                self.lengths.clear()
                self.left_out = []
                made = self._build(log, notebook, compared)
                if self.chars <= ALL_CHARS or (self.limit <= LEAST_CHARS and self.most <= LEAST_EXECUTIONS):
                    break
                self._lower_limits()
        if self.cut:
            self.left_out.append(f"{plural(self.cut, 'texts')} cut to {self.limit:,} characters")
        made["images"], told = self.images.packed()
        return {**made, "left_out": [*self.left_out, *told]}

    def _lower_limits(self) -> None:
        """Halve the limit of a text until those of the last build fit; where none fits, take fewer executions."""
        fits = False
        while not fits and self.limit > LEAST_CHARS:
            self.limit = max(self.limit // 2, LEAST_CHARS)
            fits = sum(min(length, self.limit) for length in self.lengths) <= ALL_CHARS
        if not fits and self.most > LEAST_EXECUTIONS:
            self.most = max(self.most // 2, LEAST_EXECUTIONS)

    def _build(self, log: StatementLog, notebook: Path | None, compared: Mapping[str, str]) -> dict[str, Any]:
        on_head = {execution.execution_id for _, execution in log.path()}
        comparisons = {one.execution_id: one for one in self.reader.comparisons()}
        sizes, self.sweeps = self._sizes(), stored_tables(self.reader)
        names = {where: name for name, where in self.reader.names().items()}
        runs = log.ended()
        if len(runs) > self.most:
            self.left_out.append(f"the oldest {len(runs) - self.most} executions are left out")
        executions = [
            {
                **self._execution(s, e, e.execution_id in on_head),
                "sweep": self._sweep(e.execution_id),
                "comparison": self._comparison(comparisons.get(e.execution_id)),
                "tokens": sizes.get(e.execution_id),
                "name": self.text(names.get(e.execution_id, "")),
                "mover": e.execution_id in log.movers,
            }
            for s, e in runs[-self.most :]
        ]
        return {
            "session": self.reader.session_id,
            "head": _last_ended(log, log.head),
            "executions": executions,
            "branches": [
                {
                    "leaf": _last_ended(log, one.leaf),
                    "fork": one.fork,
                    "head": one.has_head,
                    "statements": len(one.statements),
                }
                for one in log.branches()
            ],
            "notebook": self._notebook(notebook),
            "differences": [{"leaf": leaf, "text": self.text(text)} for leaf, text in compared.items()],
            "projection": self._projection(),
        }

    # -- texts ------------------------------------------------------------------------------------

    def text(self, text: str, prefix: str = "") -> str:
        """Return a text as the page shows it: masked, without private names and colours, and not too long."""
        plain = strip_ansi(text)
        shown = self.masker.mask_value(prefix, plain) if prefix else self.masker(plain)
        if self.private:
            shown = Hiding(self.private).text(shown)
        if len(shown) > self.limit:
            self.cut += 1
            shown = f"{shown[: self.limit]}\n… {len(shown) - self.limit:,} more characters"
        self.chars += len(shown)
        self.lengths.append(len(shown))
        return shown

    # -- executions -------------------------------------------------------------------------------

    def _execution(self, statement: Statement, execution: Execution, on_head: bool) -> dict[str, Any]:
        failure, missing = execution.exception, execution.changes.incomplete
        notices = [*other_notices(execution), *([f"changes may be missing: {missing}"] if missing else [])]
        return {
            "id": execution.execution_id,
            "statement": statement.statement_id,
            "parent": execution.parent_execution_id,
            "cell": statement.cell_id,
            "author": statement.author,
            "kind": statement.kind,
            "status": execution.status,
            "source": self.text(statement.source),
            "at": execution.started_at,
            "ms": round(execution.cost.time_ms, 1),
            "outputs": list(self._outputs(execution, on_head)),
            "updates": list(self._updates(execution, on_head)),
            "changes": list(self._changes(execution)),
            "error": self.text(f"{failure.trace_summary}\n{failure.type}: {failure.message}".strip())
            if failure
            else "",
            "notices": [self.text(one) for one in notices],
            "files": [self.text(one.name) for one in execution.artifacts if one.kind == "file"],
        }

    def _changes(self, execution: Execution) -> Iterable[dict[str, str]]:
        diff = execution.changes
        for name, info in (*diff.added.items(), *diff.changed.items()):
            if name not in self.private:
                how = getattr(info, "how", "new")
                before = self.text(getattr(info, "before", ""), name)
                yield {
                    "name": name,
                    "how": how,
                    "before": before,
                    "after": self.text(info.repr, name),
                    "type": info.type,
                }
        yield from ({"name": name, "how": "deleted"} for name in diff.deleted if name not in self.private)

    def _outputs(self, execution: Execution, on_head: bool) -> Iterable[dict[str, Any]]:
        for stream in ("stdout", "stderr"):
            late = execution.late.get(stream, "")
            text = getattr(execution, stream) + late
            if text and not (execution.execution_id in self.sweeps and text.startswith('{"rows": [')):
                yield {"kind": stream, "text": self.text(text)}
        displays: dict[str, list[Artifact]] = {}
        for one in execution.artifacts:
            if one.kind in ("display", "picture"):
                displays.setdefault(one.name, []).append(one)
        ids = display_ids(execution)
        for name, forms in displays.items():
            if execution.execution_id in self.sweeps and any(one.mime == SWEEP_MIME for one in forms):
                continue  # `_sweep` has the table
            number = {"display": self._number(ids[name])} if name in ids else {}
            yield self._display(forms, execution.execution_id, on_head) | number

    def _updates(self, execution: Execution, on_head: bool) -> Iterable[dict[str, Any]]:
        """Yield the new contents of displays of earlier cells."""
        for display_id, data in display_updates(execution):
            forms = [Artifact("display", display_id, mime, 0, "", content) for mime, content in data.items()]
            yield self._display(forms, execution.execution_id, on_head) | {"display": self._number(display_id)}

    def _number(self, display_id: str) -> int:
        return self.displays.setdefault(display_id, len(self.displays))

    def _display(self, forms: list[Artifact], execution_id: str, on_head: bool) -> dict[str, Any]:
        """Return a display as an image or a text. HTML and scripts are never shown."""
        by_mime = {
            one.mime: one for one in sorted(forms, key=lambda one: one.kind == "picture") if one.data is not None
        }
        told = next((by_mime[mime].data for mime in TEXTS if mime in by_mime), "")
        text = self.text(told if isinstance(told, str) else json.dumps(told, indent=1))
        if (key := self.images.keep(list(by_mime.values()), first=on_head)) is not None:
            return {"kind": "image", "image": key, "text": text}
        if not text:
            kinds = ", ".join(sorted({one.mime for one in forms}))
            self.left_out.append(f"{execution_id}: an output of type {kinds[:80]} has no text or image")
            text = f"[{kinds} is not shown]"
        return {"kind": "text", "text": text}

    def _sweep(self, execution_id: str) -> ShownSweep | None:
        table = self.sweeps.get(execution_id)
        return shown_sweep(table, without=self.private, text=self.text) if table is not None else None

    def _comparison(self, found: Comparison | None) -> dict[str, Any] | None:
        if found is None:
            return None
        rows = [
            {
                "kind": one.kind,
                "subject": self.text(one.subject),
                "summary": self.text(one.summary, one.subject),
                "cause": one.cause,
                "before": self.text(one.before, one.subject),
                "after": self.text(one.after, one.subject),
            }
            for one in found.divergences
            if one.subject not in self.private and one.kind != "timing"
        ]
        return {"against": found.against, "same": found.same, "expected": found.expected, "rows": rows}

    # -- branches, projection, notebook --------------------------------------------------------------

    def _branch_differences(self, log: StatementLog) -> dict[str, str]:
        """Return how the end of each other branch differs from HEAD, in lines: leaf → text."""
        others = [one for one in log.branches() if not one.has_head][-BRANCHES:]
        if not others or log.head is None:
            return {}
        prints = self.reader.fingerprints()
        made: dict[str, str] = {}
        here = log.path()
        for one, path in zip(others, log.paths(one.leaf for one in others), strict=True):
            found = differences(path, here, fingerprints=prints, old_handles=(), new_handles=())
            lines = [line for line in found.text().splitlines() if not self._is_private(line)]
            made[one.leaf] = "\n".join(lines)
        return made

    def _is_private(self, line: str) -> bool:
        return bool(self.private) and Hiding(self.private).text(line) != line

    def _sizes(self) -> dict[str, int]:
        query = "SELECT e.execution_id, p.tokens FROM projections p JOIN executions e ON e.seq = p.seq"
        return {str(name): int(tokens) for name, tokens in self.reader.select(query)}

    def _projection(self) -> dict[str, Any] | None:
        try:
            found = self.reader.stored_projection()
        except StoreError:
            if self._sizes():  # else none was stored
                self.left_out.append("the projection is damaged, or of a newer ctxkernel: it is left out")
            return None
        blocks = found.blocks
        if len(blocks) > BLOCKS:
            self.left_out.append(f"{len(blocks) - BLOCKS} blocks of the projection are left out")
        return {
            "model": found.model,
            "tokens": found.tokens,
            "budget": found.budget,
            "cost": found.cost.told(),
            "receipt": found.receipt,
            "ok": found.report.ok,
            "left_out": [{"id": self.text(one.id), "why": self.text(one.why)} for one in found.left_out[:BLOCKS]],
            "blocks": [
                {
                    "id": self.text(one.id),
                    "kind": one.kind,
                    "role": one.role,
                    "origin": self.text(one.origin),
                    "tokens": one.tokens,
                    "cached": one.cached,
                    "why": self.text(one.why),
                    "text": self.text(one.text),
                }
                for one in blocks[-BLOCKS:]
            ],
        }

    def _notebook(self, path: Path | None) -> list[dict[str, Any]]:
        """Return the cells of the notebook file; empty if it cannot be read."""
        try:
            if path is None or path.suffix != ".ipynb" or path.stat().st_size > NOTEBOOK_BYTES:
                return []
            cells: Any = json.loads(path.read_text("utf-8"))["cells"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self.left_out.append("the notebook file cannot be read: its texts between the cells are left out")
            return []
        made: list[dict[str, Any]] = []
        for cell in cast("list[Any]", cells) if isinstance(cells, list) else []:
            one: Mapping[str, Any] = cast("Mapping[str, Any]", cell) if isinstance(cell, dict) else {}
            source = one.get("source", "")
            text = "".join(map(str, cast("list[Any]", source))) if isinstance(source, list) else str(source)
            if one.get("cell_type") in ("markdown", "code"):
                made.append({"type": one["cell_type"], "cell": str(one.get("id", "")), "source": self.text(text)})
        return made


def _last_ended(log: StatementLog, execution_id: str | None) -> str | None:
    """Return the last execution on the path to one that has ended: the command that exports the session still runs."""
    if execution_id is None or log.execution(execution_id).status != "running":
        return execution_id
    return next((e.execution_id for _, e in reversed(log.path(execution_id)) if e.status != "running"), None)


def title_of(path: Path | None, mask: Callable[[str], str]) -> str:
    """Return the title of the page."""
    return one_line(mask(path.stem if path is not None else "session"), 100)
