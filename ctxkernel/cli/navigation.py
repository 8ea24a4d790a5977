"""`ctxkernel goto` and `ctxkernel rerun`: return to a state of a session, or run it again, without a front end.

Rule 1: A kernel of this interpreter restores the session's state and executes the same `%ctx` command as in a notebook.
        A place that the session does not have is refused before a kernel is started.
Rule 2: `--dry-run` works on a copy of the log, so the session does not change by a byte.
"""

# nbformat, nbclient and jupyter_client are typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import shlex
import sqlite3
import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import from_dict
from nbformat.v4 import new_code_cell, new_notebook

from ctxkernel.cli import INTERRUPTED, Failed, Unusable
from ctxkernel.cli.kernel import RESUME, OwnKernel, keep_off, kernel_log, resumed_at
from ctxkernel.cli.notebook_files import read_notebook, write_notebook
from ctxkernel.cli.output import safe_block, safe_line, say, show, show_json
from ctxkernel.cli.places import Timeline
from ctxkernel.cli.read import find_session
from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import plural
from ctxkernel.replay.notebook_outputs import outputs_of_cells
from ctxkernel.store.log.location import FOLDER, OVERRIDE
from ctxkernel.store.log.reader import SessionReader


def goto(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel goto`."""
    session = find_session(arguments.notebook, arguments.session)
    with SessionReader(session) as reader:
        timeline = Timeline.of(reader, details=False)
    # With `before` the kernel gets the statement, and finds its parent itself.
    place = timeline.place(arguments.place, before=arguments.before)
    _check_ran(timeline, place.execution_id)
    where = arguments.place if arguments.place in timeline.names or arguments.before else place.execution_id or "0"
    command = ["goto", where, *(["--before"] if arguments.before else [])]
    done = carry_out(command, session, arguments)
    _tell(done, arguments, timeline.session)
    return done.status


def rerun(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel rerun`: status 1 if a re-run differs unexpectedly, or was stopped."""
    if arguments.affected:
        return _rerun_affected(arguments)
    if arguments.place is None or arguments.inplace:
        raise Unusable(
            "rerun NOTEBOOK N, N..M or --affected: what is to run again? --inplace goes with --affected only."
        )
    session = find_session(arguments.notebook, arguments.session)
    with SessionReader(session) as reader:
        timeline = Timeline.of(reader, details=False)
        before = {one.execution_id for one in reader.comparisons(all_roots=True)}
    first, last = timeline.between(arguments.place)
    _check_ran(timeline, timeline.log.execution(first.execution_id or "").parent_execution_id)
    where = f"{first.execution_id}..{last.execution_id}" if last is not None else str(first.execution_id)
    done = carry_out(["rerun", where, *(["--yes"] if arguments.yes else [])], session, arguments)
    _tell(done, arguments, timeline.session)
    if done.status or arguments.dry_run:
        return done.status
    with SessionReader(session) as reader:
        made = [one for one in reader.comparisons(all_roots=True) if one.execution_id not in before]
    stopped = done.told.get("stopped") or _STOPPED.search(done.text)
    return 1 if stopped or any(not one.same and not one.expected for one in made) else 0


def _check_ran(timeline: Timeline, execution_id: str | None) -> None:
    """Raise Failed if there is no state to return to, because a statement was imported."""
    if execution_id is not None and timeline.log.execution(execution_id).status == "imported":
        first = next(iter(timeline.log)).statement_id
        raise Failed(
            f"{execution_id.partition('.')[0]} was imported, and has not run here: there is no state after it. "
            f"`ctxkernel rerun NOTEBOOK {first}` runs the statements from the first one."
        )


def _rerun_affected(arguments: argparse.Namespace) -> int:
    """Run the cells of a notebook's file that its changes since the session's HEAD affect."""
    if arguments.place is not None:
        raise Unusable(f"--affected begins at the first change of the notebook, and not at {arguments.place}.")
    path: Path = arguments.notebook
    notebook = read_notebook(path)
    session = find_session(path, arguments.session)
    as_json = arguments.json
    arguments.json = as_json or not arguments.dry_run  # the positions are needed to write the outputs
    command = ["rerun", "--affected", "--notebook", str(path.resolve()), *(["--yes"] if arguments.yes else [])]
    done = carry_out(command, session, arguments)
    arguments.json = as_json
    with SessionReader(session) as reader:
        session_id = Timeline.of(reader, details=False).session
    if as_json or arguments.dry_run or not done.text.strip():
        _tell(done, arguments, session_id)
    if arguments.dry_run:
        return done.status
    told = done.parsed()
    if arguments.inplace and "executions" in told:
        _write_outputs(notebook, path, session, told, done.widgets)
    if not as_json and told:
        show(_affected_text(told))
        if done.message:
            say(f"ctxkernel {arguments.command}: {done.message}")
    return done.status or (1 if told.get("stopped") else 0)


def _affected_text(told: dict[str, Any]) -> str:
    lines = [
        f"cell {int(at) + 1} ran: {why}" + (" (opaque)" if int(at) in told["opaque"] else "")
        for at, why in told["why"].items()
    ]
    lines += [safe_line(told["stopped"])] if told["stopped"] else []
    ran = len(told["ran"]) + len(told["opaque"])
    lines.append(f"{plural(ran, 'cells')} ran, {len(told['kept'])} kept · HEAD is {told['head']}")
    return safe_block("\n".join(lines))


def _write_outputs(notebook: Any, path: Path, session: Path, told: dict[str, Any], widgets: dict[str, Any]) -> None:
    """Write the outputs of the executions into the notebook, except those that the session has only in part."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    with SessionReader(session) as reader:
        log = reader.log()
    ran = sorted((int(at), log.execution(name)) for at, name in told["executions"].items())
    found = outputs_of_cells((execution, cells[at].execution_count) for at, execution in ran)
    for (at, _), made in zip(ran, found, strict=True):
        if not made.is_whole:
            say(f"cell {at + 1}: its output is not kept whole; the notebook keeps what it shows")
            continue
        if at not in told["kept"] or _content(made.outputs) != _content(cells[at].outputs):
            cells[at].outputs = [from_dict(one) for one in made.outputs]
        for widget, captured in made.captured.items():
            if state := widgets.get(widget, {}).get("state"):
                state["outputs"] = [*state.get("outputs", ()), *captured]
    _write_widgets(notebook, widgets)
    write_notebook(notebook, path)


def _write_widgets(notebook: Any, widgets: dict[str, Any]) -> None:
    """Write the states of new widgets into the notebook, and remove those of widgets that no output shows any more."""
    if not widgets:
        return
    kept = notebook.metadata.setdefault("widgets", {}).setdefault(
        _WIDGET_STATES, {"state": {}, "version_major": 2, "version_minor": 0}
    )
    used, texts = set[str](), [json.dumps([cell.get("outputs") for cell in notebook.cells])]
    while texts:
        names = {name for name in _WIDGET.findall(texts.pop()) if name in kept["state"]} - used
        used |= names
        texts += [json.dumps(kept["state"][name]) for name in names]
    kept["state"] = from_dict({**{name: kept["state"][name] for name in sorted(used)}, **widgets})


def _content(outputs: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return what outputs show, without their metadata; the text of neighbouring streams is one."""
    found: list[Any] = []
    for one in outputs:
        if one["output_type"] == "stream":
            is_more = bool(found) and isinstance(found[-1], tuple) and found[-1][0] == one["name"]
            before = found.pop()[1] if is_more else ""
            found.append((one["name"], before + one["text"]))
        else:
            found.append({key: one[key] for key in ("data", "ename", "evalue") if key in one})
    return found


_WIDGET_STATES = "application/vnd.jupyter.widget-state+json"
_WIDGET = re.compile(r'"(?:IPY_MODEL_)?([0-9a-f]{32})"')
"""A widget's identifier in an output, or in the state of another widget."""
_STOPPED = re.compile(r"^stopped (?:at|before) s\d+", re.MULTILINE)
"""The beginning of the kernel's line about a re-run that ended early. No cell's output is in that text."""


@dataclass(slots=True)
class CommandResult:
    """The result of a command in the kernel."""

    status: int = 0
    text: str = ""
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    """The text, if it is JSON."""
    message: str = ""
    """Why it failed."""
    notices: str = ""
    """Messages of the kernel beside its result."""
    head: str | None = None
    widgets: dict[str, Any] = field(default_factory=dict[str, Any])
    """Widget → its state in a notebook, for the widgets that cells made."""

    def parsed(self) -> dict[str, Any]:
        """Return the text as JSON; empty for none. Raises Failed."""
        try:
            return json.loads(self.text) if self.text.strip() else {}
        except ValueError as fault:
            raise Failed(f"the kernel answered something else than JSON: {safe_line(self.text)[:200]}") from fault


class _Watched(OwnKernel):
    """A kernel whose progress displays are shown."""

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Process a message as nbclient does, but write progress to standard error."""
        if msg["msg_type"] in ("display_data", "update_display_data"):
            text = msg["content"].get("data", {}).get("text/plain", "")
            if msg["content"].get("transient", {}).get("display_id"):
                if text:
                    say(safe_line(text))
                return None
        return super().process_message(msg, cell, cell_index)


def carry_out(command: list[str], session: Path, arguments: argparse.Namespace) -> CommandResult:
    """Execute a `%ctx` command in a kernel on the session. Raises Failed if it could not begin."""
    command += [option for option in ("--dry-run", "--json") if getattr(arguments, option[2:].replace("-", "_"))]
    if not arguments.dry_run:
        keep_off(session)
    used = _copied(session) if arguments.dry_run else contextlib.nullcontext(session)
    with used as place, kernel_log() as log:
        try:
            done = asyncio.run(_execute(f"%ctx {shlex.join(command)}", place, session, arguments, log))
        except Failed as fault:  # a message names the session, and not its copy
            raise Failed(str(fault).replace(str(place), str(session))) from fault
        done.message = done.message.replace(str(place), str(session))
        return done


async def _execute(
    line: str, place: Path, session: Path, arguments: argparse.Namespace, log: IO[bytes]
) -> CommandResult:
    notebook, folder = _notebook_of(arguments.notebook, session)
    environment = {"JPY_SESSION_NAME": str(notebook), OVERRIDE: str(place.resolve()), RESUME: "1"}
    cell = new_code_cell(line)
    done = CommandResult()
    async with _Watched.started(new_notebook(cells=[cell]), folder, environment, log) as kernel:
        done.head = await resumed_at(kernel, place)
        await kernel.limit(getattr(arguments, "timeout", None))
        try:
            await kernel.async_execute_cell(cell, 0)
        except CellExecutionError as fault:
            done.status = 1
            done.message = safe_line(fault.evalue if fault.ename == "UserRefusal" else f"{fault.ename}: {fault.evalue}")
        except (DeadKernelError, CellTimeoutError, RuntimeError, AssertionError):
            done.status = 1
            done.message = "the kernel died; what had run before is in the session"
        else:
            done.head = (await kernel.about()).get("head")
        kernel.set_widgets_metadata()
        done.widgets = kernel.nb.metadata.get("widgets", {}).get(_WIDGET_STATES, {}).get("state", {})
        if kernel.interrupted:
            done.status, done.message = INTERRUPTED, done.message or "interrupted"
    done.text = "".join(map(_shown_text, cell.outputs))
    done.notices = "".join(one.text for one in cell.outputs if one.output_type == "stream" and one.name == "stderr")
    return done


def _shown_text(output: Any) -> str:
    """Return what an output of a command shows on standard output."""
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else ""
    return output.data.get("text/plain", "") + "\n" if "data" in output else ""


def _notebook_of(given: Path, session: Path) -> tuple[Path, Path]:
    """Return the notebook of a session, and the folder in which its kernel runs."""
    if given.suffix == ".ipynb":
        return given.resolve(), given.resolve().parent
    folder = session.resolve().parent
    folder = folder.parent if folder.name == FOLDER else folder
    with SessionReader(session) as reader:
        return folder / (reader.notebook or f"{session.stem}.ipynb"), folder


@contextlib.contextmanager
def _copied(session: Path) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="ctxkernel-plan-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / session.name
        with SessionReader(session) as reader, contextlib.closing(sqlite3.connect(copy)) as target:
            reader.connection.backup(target)
        yield copy


def _tell(done: CommandResult, arguments: argparse.Namespace, session: str) -> None:
    if arguments.json and (done.text or not done.message):
        done.told = done.parsed()
        show_json({"session": session, "head": done.head, **done.told})
    elif done.text:
        show(safe_block(done.text.rstrip("\n")))
    if done.message:
        say(f"ctxkernel {arguments.command}: {done.message}")
