"""`view("s12")`: the outputs of a statement as a source.

Rule 1: it shows the execution on the path to HEAD; for a statement on another branch it says so.
Rule 2: the projection applies redactions to such a view, not this module: the person who redacted an output may
        read it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ctxkernel.core.errors import BadTarget
from ctxkernel.core.ports import Picture, RenderRequest
from ctxkernel.core.text import format_duration, format_size, one_line, plural
from ctxkernel.core.timeline import Execution, Statement, StatementLog
from ctxkernel.projection.displayed_images import images_of
from ctxkernel.projection.layout import diff_line, sections
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources.base.file_reader import Text, text_in_memory
from ctxkernel.sources.base.rendering import Draft, Place, fit_lines, less
from ctxkernel.sources.base.thumbnails import MOST_SIDE, scaled_down
from ctxkernel.sources.files.files import TextSource

PLACE = re.compile(r"(s\d{1,12})(\.\d{1,9})?")
"""The id of a statement, or of one execution."""

PathSource = Callable[[], Sequence[tuple[Statement, Execution]]]


def open_output(place: str, log: StatementLog, history: PathSource) -> OutputSource:
    """Return the source for `s12`, or `s12.2` for one execution. Raises BadTarget if there is none."""
    found = PLACE.fullmatch(place)
    if found is None or log.get(found[1]) is None or (found[2] and place not in log):
        known = [statement.statement_id for statement in log]
        close = difflib.get_close_matches(place, known[-1000:], 1)
        newest = f"the newest statement is {known[-1]}" if known else "there is no statement yet"
        is_it = f"; is it {close[0]}?" if close else ""
        raise BadTarget(f"there is no {place} in this timeline: {newest}{is_it} %ctx timeline lists them")
    return OutputSource(place, log, history)


class OutputSource(TextSource):
    """The outputs of a statement.

    0: as text, with the last image; 1: each with its size, and what changed; 2: a summary; 3: a diff.
    """

    kind = "statement"

    def __init__(self, place: str, log: StatementLog, history: PathSource) -> None:
        super().__init__(place)
        self.spec = place
        self._log, self._history = log, history

    @property
    def statement_id(self) -> str:
        """The statement."""
        return self.spec.partition(".")[0]

    def stamp(self) -> str:
        """Return the execution, its status, and the size of its late output. Never raises."""
        found = self._run()
        if isinstance(found, str):
            return found
        late = sum(map(len, found.late.values()))
        return f"{found.execution_id} {found.status} {late}"

    def _run(self) -> Execution | str:
        """Return the execution, or the reason why there is none."""
        sid = self.statement_id
        for _, execution in reversed(self._history()):
            if self.spec in (execution.statement_id, execution.execution_id):
                return execution if execution.status != "running" else f"{sid} is still running"
        runs = self._log.executions(sid)
        if runs and runs[-1].status == "running":
            return f"{sid} is still running"
        return f"{self.spec} is on another branch; %ctx goto {sid} goes there"

    def text(self) -> Text:
        """Return the outputs, each under its kind in brackets; one line if there is none."""
        found = self._run()
        if isinstance(found, str):
            text = f"[{found}]"
        else:
            parts = [f"[{what}]\n{text.strip(chr(10))}" for _, what, text in sections(found)]
            parts += [f"[{stream}, after its end]\n{text.strip(chr(10))}" for stream, text in found.late.items()]
            text = "\n".join(parts) or "[no output]"
        return text_in_memory(text)

    def worded(self) -> bool:
        """Return False: an output can be redacted, but a model's summary of it would not be."""
        return False

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the current outputs."""
        found = self._run()
        images = images_of(found) if isinstance(found, Execution) else ()
        if images and request.lod == 0 and request.pictured:
            return self._pictured(images, request, place, budget)
        shown = super().draft(request, place, budget)
        if request.lod != 1 or isinstance(found, str):
            return shown
        listed = fit_lines([], self._structure(found), budget, "lines")
        return Draft(listed.text, listed.cut_tokens, None, shown.fingerprint, shown.basis, shown.notes)

    def _pictured(self, images: Sequence[Picture], request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the outputs with the last image."""
        last = f"the last of {plural(len(images), 'images')}, " if images[1:] else ""
        line = f"[{last}shown as 9,999 × 9,999, ~9,999 tokens]"
        room, picture = (budget - count_tokens(line)) // 2, images[-1]
        if picture.tokens > room:
            found = scaled_down(picture.data, MOST_SIDE * 3, room)
            picture = found if isinstance(found, Picture) else None
        if picture is None:
            return super().draft(request, place, budget)
        shown = super().draft(request, place, less(budget, picture.tokens + count_tokens(line)))
        return replace(shown, text=f"{shown.text}\n[{last}{picture.shown}]", picture=picture)

    def _structure(self, execution: Execution) -> list[str]:
        statement = self._log.statement(self.statement_id)
        took = format_duration(execution.cost.time_ms / 1000)
        lines = [
            f"{execution.execution_id} · {statement.author} · {execution.status} · {took}",
            f"source: {one_line(statement.source)}",
        ]
        for _, what, text in sections(execution):
            rows = text.strip("\n").split("\n")
            lines.append(f"{what}: {plural(len(rows), 'lines')}, {_size(text)}: {one_line(rows[0])}")
        lines += [f"{stream}, after its end: {_size(text)}" for stream, text in execution.late.items()]
        if changes := diff_line(execution.changes):
            lines.append(f"changes: {changes}")
        return lines


def _size(text: str) -> str:
    return format_size(len(text.encode("utf-8", "replace")))
