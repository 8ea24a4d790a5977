"""Texts from the session's log for an agent, each within a budget of tokens.

Rule 1: they are read from the file, so they are there while a cell runs, and without a kernel.
Rule 2: private names are left out, and outputs that were redacted; secrets are masked in the log already.
Rule 3: a text that is cut says how much is left out, and how to get it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import nbformat

from ctxkernel.cli.notebook_files import read_notebook
from ctxkernel.cli.places import Timeline
from ctxkernel.cli.tree import compare_states
from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.text import format_duration, one_line, plural
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.timeline_table import gist
from ctxkernel.history.events import Redaction, Withdrawal
from ctxkernel.projection.displayed_images import images_of
from ctxkernel.projection.layout import diff_line, sections
from ctxkernel.projection.privacy import Hiding
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.store.log.reader import SessionReader

MOST_TOKENS = 8_000
_ID = 8
"""Characters of a cell's id that are told."""
_OUTPUT_TOKENS = 300
"""Of the outputs of a cell in `notebook`."""


@dataclass(frozen=True, slots=True)
class AgentCellResult:
    """The outcome of a cell that an agent sent."""

    state: str
    """`waits`, `approved`, `edited`, `rejected`, `stale`, `full`, `off`; empty where nothing is known."""
    name: str = ""
    reason: str = ""


class Log:
    """The log of a session, as an agent sees it."""

    def __init__(self, reader: SessionReader) -> None:
        self.reader = reader
        self.timeline = Timeline.of(reader)
        self.marks = reader.marks()
        private = {subject for (subject, mark), value in self.marks.items() if mark == "private" and value}
        self.hiding = Hiding(private) if private else None
        self.redacted: dict[str, str] = {}
        withdrawn: set[str] = set()
        events = [event for listed in reader.records().values() for event in listed]
        for event in events:
            if isinstance(event, Withdrawal):
                withdrawn.add(event.target_id)
        for event in events:
            if isinstance(event, Redaction) and event.event_id not in withdrawn:
                self.redacted[event.target_id.partition(".")[0]] = event.summary_text

    @property
    def head(self) -> str | None:
        """The execution at HEAD."""
        return self.timeline.log.head

    def shown(self, statement: Statement, execution: Execution) -> tuple[Statement, Execution]:
        """Return a statement and its execution without private names."""
        return (statement, execution) if self.hiding is None else self.hiding.statement(statement, execution)

    def executions(self) -> list[tuple[Statement, Execution]]:
        """Return all executions, in the order of their statements."""
        log = self.timeline.log
        return [(statement, run) for statement in log for run in log.executions(statement.statement_id)]

    def cell_state(self, call: str) -> AgentCellResult:
        """Return what became of a cell, by the id that it was sent with, or by the name that it waits under."""
        for (subject, mark), value in reversed(self.marks.items()):
            if mark == "cell" and isinstance(value, dict):
                found = {key: str(one) for key, one in cast("dict[str, Any]", value).items() if isinstance(one, str)}
                if call in (subject.removeprefix("agent "), found.get("name")):
                    return AgentCellResult(*(found.get(field, "") for field in ("state", "name", "reason")))
        return AgentCellResult("")

    def execution_of_call(self, call: str) -> Execution | None:
        """Return the execution of a cell of an agent, by the id that it was sent with."""
        for statement, run in reversed(self.executions()):
            if statement.tags.get("call") == call:
                return run
        return None


class KeptLog:
    """The log of a session, read again only when its file has changed: a long one takes long to read."""

    def __init__(self) -> None:
        self._stamp: object = None
        self._log: Log | None = None

    @contextmanager
    def opened(self, session: Path) -> Generator[Log]:
        """Yield the log of a session at this moment."""
        stamp = session, stamp_of(session)  # before it is read: what comes meanwhile is read the next time
        if self._log is None or self._stamp != stamp:
            if self._log is not None:
                self._log.reader.close()
            self._log = None
            reader = SessionReader(session)
            with reader.snapshot():
                self._log, self._stamp = Log(reader), stamp
        with self._log.reader.snapshot():
            yield self._log


def stamp_of(session: Path) -> object:
    """Return what differs when the file of a session has changed."""
    files = [session, session.with_name(f"{session.name}-wal")]
    return [(one.stat().st_mtime_ns, one.stat().st_size) for one in files if one.exists()]


# -- tools -------------------------------------------------------------------------------------------


def timeline_text(log: Log, budget: int, since: str | None) -> str:
    """Return a line for each execution, newest last; `since`: only those after that one."""
    listed = log.executions()
    if since is not None:
        known = [run.execution_id for _, run in listed]
        place = log.timeline.place(since).execution_id
        listed = listed[known.index(place) + 1 :] if place in known else listed
    on_path = {run.execution_id for _, run in log.timeline.log.path()}
    names = {where: name for name, where in log.timeline.names.items()}
    lines = [_line(log, statement, run, run.execution_id in on_path, names) for statement, run in listed]
    head = f"HEAD {log.head or 'before all'}; {plural(len(listed), 'executions')}{f' since {since}' if since else ''}"
    return _newest(head, lines, budget, "give since=… or a larger budget")


def _line(log: Log, statement: Statement, run: Execution, on_path: bool, names: dict[str, str]) -> str:
    statement, run = log.shown(statement, run)
    took = format_duration(run.cost.time_ms / 1000) if run.ended_at is not None else ""
    author = statement.tags.get("agent") if statement.author == "agent" else statement.author
    name = names.get(run.execution_id)
    parts = [
        run.execution_id if on_path else f"({run.execution_id})",
        str(author),
        run.status,
        took,
        f"[{name}]" if name else "",
        diff_line(run.changes),
        f"| {gist(statement.source)}",
        f"→ {run.exception.type}: {one_line(run.exception.message, 80)}" if run.exception else "",
    ]
    return " ".join(filter(None, parts))


def statement_text(log: Log, run: Execution, budget: int) -> tuple[str, list[Any]]:
    """Return a statement with its outputs and changes, and the images that it displayed."""
    statement = log.timeline.log.statement(run.statement_id)
    images = list(images_of(run))
    statement, run = log.shown(statement, run)
    took = format_duration(run.cost.time_ms / 1000) if run.ended_at is not None else "running"
    author = statement.tags.get("agent") or statement.author
    parts = [f"{run.execution_id} · {author} · {run.status} · {took}", statement.source]
    if (note := log.redacted.get(run.statement_id)) is not None:
        return trimmed("\n".join([*parts, f"[its outputs are redacted: {note}]"]), budget), []
    parts += [f"[{what}]\n{text.strip(chr(10))}" for _, what, text in sections(run)]
    parts += [f"[{stream}, after its end]\n{text}" for stream, text in run.late.items()]
    if changes := diff_line(run.changes):
        parts.append(f"[changes] {changes}")
    parts += [f"[notice] {one}" for one in run.notices]
    return trimmed("\n".join(parts), budget), images


def projection_text(log: Log, statement: str | None, budget: int) -> str:
    """Return the blocks of a projection: what the notebook's own model would be sent."""
    made = log.reader.projection(statement)
    blocks = cast("list[dict[str, Any]]", made["blocks"])
    report = cast("dict[str, Any]", made["report"])
    checks = "all checks pass" if report["ok"] else "not fit to be sent"
    head = f"~{made['tokens']:,} tokens of {made['budget']:,}; {checks}"
    lines = [f"{one['id']} · {one['kind']} · {one['tokens']:,} tokens · {one['why']}" for one in blocks]
    request = cast("dict[str, Any]", made["request"])
    texts = [text for message in request.get("messages", ()) for text in _texts(message.get("content"))]
    return trimmed("\n".join([head, *lines, "", *texts]), budget)


def _texts(content: Any) -> Iterable[str]:
    if isinstance(content, str):
        yield content
        return
    for one in content or ():
        if isinstance(one, dict):
            block = cast("dict[str, Any]", one)
            if block.get("type") == "text":
                yield str(block.get("text", ""))
            elif block.get("type") == "tool_use":
                yield str(block.get("input", ""))
            elif block.get("type") == "tool_result":
                yield from _texts(block.get("content"))


def handles_text(log: Log, budget: int) -> str:
    """Return the handles at HEAD with their renderings."""
    handles = log.reader.handles(log.head) if log.head is not None else ()
    private = log.hiding.names if log.hiding is not None else frozenset[str]()
    shown = [one for one in handles if one.name not in private]
    parts = [f"{one.name} · {one.rendered_tokens:,} tokens\n{one.text}" for one in shown]
    if log.hiding is not None:
        parts = [log.hiding.text(part) for part in parts]
    return _newest(f"{plural(len(shown), 'handles')} at {log.head}", parts, budget, "use view", newest=False)


def diff_text(log: Log, old: str, new: str | None, budget: int) -> str:
    """Return how two states differ. Raises CtxError."""
    first = log.timeline.place(old)
    second = log.timeline.place(new or str(log.head))
    found = compare_states(log.reader, log.timeline, first, second)
    lines = found.text().splitlines()
    if log.hiding is not None:
        lines = [line for line in lines if log.hiding.text(line) == line]
    return trimmed("\n".join([f"{first.told} → {second.told}", *lines]), budget)


def notebook_text(log: Log | None, notebook: Path, budget: int) -> str:
    """Return the cells of a notebook's file, with the statement that ran each last. Raises CtxError."""
    cells: Sequence[Any] = read_notebook(notebook).cells
    ran: dict[str, tuple[Statement, Execution]] = {}
    if log is not None:
        for statement, run in log.timeline.log.path():
            if statement.cell_id:
                ran[statement.cell_id] = statement, run
    lines = [_cell(log, number, cell, ran.get(str(cell.get("id", "")))) for number, cell in enumerate(cells)]
    head = f"{notebook.name}: {plural(len(cells), 'cells')}"
    return _newest(head, lines, budget, "give a larger budget", newest=False)


def _cell(log: Log | None, number: int, cell: nbformat.NotebookNode, ran: tuple[Statement, Execution] | None) -> str:
    source = str(cell.source)
    if log is not None and log.hiding is not None:
        source = log.hiding.text(source)
    if cell.cell_type != "code":
        return f"[{number}] {cell.cell_type}\n{source}"
    if ran is None or log is None:
        return f"[{number}] code {short_id(cell)}, not run on this branch\n{source}"
    statement, run = log.shown(*ran)
    same = "" if ran[0].source == str(cell.source) else ", with another text than it has now"
    outputs = [text.strip("\n") for _, _, text in sections(run)]
    if statement.statement_id in log.redacted:
        outputs = ["[redacted]"]
    told = "\n".join(f"→ {trimmed(text, _OUTPUT_TOKENS)}" for text in outputs)
    head = f"[{number}] code {short_id(cell)}, ran as {run.execution_id}{same}"
    return "\n".join([head, source, *([told] if told else [])])


def short_id(cell: nbformat.NotebookNode) -> str:
    """Return the beginning of a cell's id: few tokens that tell the cells of a notebook apart."""
    return str(cell.get("id", ""))[:_ID]


def cell_id(notebook: Path, short: str) -> str:
    """Return the id of the only code cell whose id begins so. Raises CtxError."""
    ids = [str(cell.get("id", "")) for cell in read_notebook(notebook).cells if cell.cell_type == "code"]
    found = [one for one in ids if short and one.startswith(short)]
    if len(found) != 1:
        many = f"{len(found)} code cells have" if found else "no code cell of the saved notebook has"
        raise BadCommand(f"{many} an id that begins with {short!r}: notebook lists them")
    return found[0]


# -- budgets -----------------------------------------------------------------------------------------


def trimmed(text: str, budget: int) -> str:
    """Return a text within a budget; a cut says how much is left out."""
    budget = max(50, min(budget, MOST_TOKENS))
    if count_tokens(text) <= budget:
        return text
    kept = trim_to_tokens(text, max(10, budget - 30))
    return f"{kept}\n[… {len(text) - len(kept):,} characters left out: give a larger budget (at most {MOST_TOKENS:,})]"


def _newest(head: str, parts: Sequence[str], budget: int, more: str, *, newest: bool = True) -> str:
    """Return a head and as many parts as fit: the newest, or the first ones."""
    budget = max(50, min(budget, MOST_TOKENS))
    left = budget - count_tokens(head) - 30
    kept: list[str] = []
    for part in reversed(parts) if newest else parts:
        if (left := left - count_tokens(part) - 1) < 0:
            break
        kept.append(part)
    if newest:
        kept.reverse()
    gone = len(parts) - len(kept)
    told = [f"[… {gone:,} {'older' if newest else 'more'} left out: {more}]"] if gone else []
    return "\n".join([head, *told, *kept] if newest else [head, *kept, *told])


def refusing(make: Callable[[], Any]) -> Any:
    """Return what `make` gives. Raises CtxError for whatever went wrong."""
    try:
        return make()
    except CtxError:
        raise
    except Exception as fault:
        raise BadCommand(f"{type(fault).__name__}: {one_line(str(fault), 200)}") from None
