"""`ctxkernel sweep`: run the cells that follow on a statement for each combination of parameters.

Rule: a kernel of this interpreter restores the session's state and executes the same `%ctx sweep` as in a notebook.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ctxkernel.cli import INTERRUPTED, Failed, Interrupted, Unusable
from ctxkernel.cli.navigation import carry_out
from ctxkernel.cli.output import safe_block, say, show, show_result
from ctxkernel.cli.places import Timeline
from ctxkernel.cli.read import find_session
from ctxkernel.core.errors import BadCommand
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.sweeps.combinations import combinations_of_words

_OPTIONS = ("until", "collect", "file", "samples", "seed", "scheduler", "store", "workers", "task_timeout", "memory")


def sweep(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel sweep`: status 1 if a combination did not end well, 130 if the user interrupted it."""
    session = find_session(arguments.notebook, arguments.session)
    _check(arguments, session)
    command = ["sweep", "--from", arguments.start]
    for name in _OPTIONS:
        if (value := getattr(arguments, name)) is not None:
            command += [f"--{name.removeprefix('task_')}", str(value)]
    command += ["--again"] if arguments.again else []
    as_json = arguments.json
    arguments.json = as_json or not arguments.dry_run  # the status follows from the rows
    done = carry_out([*command, *arguments.parameters], session, arguments)
    if done.notices:
        say(safe_block(done.notices.rstrip("\n")))
    interrupted = done.status == INTERRUPTED
    if interrupted and not done.text.strip():
        raise Interrupted
    if (done.message and not interrupted) or not done.text.strip():
        raise Failed(done.message or "the kernel gave no table")
    if not arguments.json:
        show(safe_block(done.text.strip()))
        return 0
    told = done.parsed()
    show_result(told, lambda: _text(told), as_json=as_json)
    failed = [row for row in told.get("rows", ()) if row["status"] != "ok"]
    if failed and not as_json:
        say(f"ctxkernel sweep: {len(failed)} of {len(told['rows'])} combinations did not end well")
    return INTERRUPTED if interrupted else 1 if failed else 0


def _check(arguments: argparse.Namespace, session: Path) -> None:
    """Refuse what cannot be swept before a kernel is started; make paths absolute, as the kernel has another folder."""
    if arguments.file is not None:
        arguments.file = arguments.file.expanduser().resolve()
    if arguments.store is not None and "://" not in arguments.store:
        arguments.store = str(Path(arguments.store).expanduser().resolve())
    try:
        combinations_of_words(
            arguments.parameters, file=arguments.file, samples=arguments.samples, seed=arguments.seed or 0
        )
    except BadCommand as fault:
        raise Unusable(str(fault)) from None
    with SessionReader(session) as reader:
        timeline = Timeline.of(reader, details=False)
    timeline.place(arguments.start)
    if arguments.until is not None:
        timeline.place(arguments.until)


def _text(told: dict[str, Any]) -> str:
    from ctxkernel.core.report import fitted_lines
    from ctxkernel.sweeps.sweep_table import SweepRow, SweepTable

    table = SweepTable([SweepRow(**row) for row in told["rows"]], told["cells_run"], told["cells_shared"])
    lines = fitted_lines(table.table(has_cpu=False), 120, table.right(has_cpu=False))  # JSON has no processor time
    return safe_block("\n".join([*lines, "", table.told()]))
