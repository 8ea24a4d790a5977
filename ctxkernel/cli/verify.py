"""`ctxkernel verify`: check a session for damage, and report the states that can be restored.

Rule 1: Nothing is unpickled, executed or written.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ctxkernel.cli.output import has_colour, paint, safe_line, show_result
from ctxkernel.cli.read import find_session
from ctxkernel.core.errors import StoreError
from ctxkernel.state.checkpoints import units
from ctxkernel.store.chunks import quota
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.data_folder import data_folder
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.log.session_check import SessionReport
from ctxkernel.store.log.session_check import verify as look


def verify(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel verify`; status 1 if there is damage."""
    path = find_session(arguments.notebook, arguments.session)
    report, data = _report(path)
    show_result(_as_json(report, data), lambda: _as_text(report, data), as_json=arguments.json)
    return 0 if report.sound else 1


def _report(path: Path) -> tuple[SessionReport, Path | None]:
    """Return the report, and the folder of the checkpoint data if there is one."""
    try:
        with SessionReader(path) as reader:
            session_id = reader.session_id
        try:
            folder = data_folder(quota.root_folder(os.environ), session_id)
        except StoreError as error:
            report = look(path)
            report.damage.append(str(error))
            return report, None
        if not folder.is_dir():
            return look(path), None
        return look(path, ChunkStore(folder, readonly=True), units.references), folder
    except StoreError as error:
        return SessionReport(path, [str(error)]), None


def _as_json(report: SessionReport, data: Path | None) -> dict[str, Any]:
    names = "sound damage remarks statements projections checkpoints lost gaps"
    return {
        "session": report.session_id,
        "path": str(report.path),
        **{name: getattr(report, name) for name in names.split()},
        "restorable": report.restorable if data else 0,
        "data": str(data) if data else None,
    }


def _as_text(report: SessionReport, data: Path | None) -> str:
    lines = report.lines()
    if report.checkpoints and data is None:
        told = f"restorable: none of {report.checkpoints} checkpoints: their data are not on this machine"
        lines = [told if line.startswith("restorable:") else line for line in lines if not line.startswith("  ")]
    colour = "green" if report.sound else "red"
    lines = [safe_line(line) if not line.startswith("  ") else "  " + safe_line(line) for line in lines]
    verdict = paint(lines.pop(), colour if has_colour() else None)
    return "\n".join([*lines, f"{verdict} · {report.path}"])
