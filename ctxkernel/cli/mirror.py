"""`ctxkernel store`: sessions in a second place, which outlives this machine.

Rule 1: Nothing here is replaced: a session file that exists stays, and only what is missing of its data is brought.
Rule 2: A session that was pulled is trusted as any other: by the signatures of its rows.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ctxkernel.cli import Failed, Unusable
from ctxkernel.cli.output import safe_line, say, show, show_json, show_result, terminal_table
from ctxkernel.cli.read import find_session
from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import format_date, format_size
from ctxkernel.store.chunks.data_folder import data_folder
from ctxkernel.store.chunks.quota import root_folder
from ctxkernel.store.config import read_settings, user_file
from ctxkernel.store.log.location import session_path
from ctxkernel.store.log.newest_session import newest_session
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.mirror import (
    MirrorHead,
    Pulled,
    RemoteFiles,
    list_heads,
    pull_data,
    pull_session,
    push_session,
)


def store(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel store`."""
    url = arguments.at or read_settings(os.environ).settings.store
    if not url:
        raise Unusable(
            f'no place is set: give --at URL, or set store = "s3://bucket/folder" in {user_file()} or CTXKERNEL_STORE.'
        )
    if arguments.notebook is None and arguments.action != "list" and arguments.id is None:
        raise Unusable(f"ctxkernel store {arguments.action}: which notebook?")
    try:
        return _ACTIONS[arguments.action](arguments, RemoteFiles(url))
    except StoreError as fault:
        raise Failed(f"{fault}.") from None


def _push(arguments: argparse.Namespace, files: RemoteFiles) -> int:
    if arguments.notebook is None:
        raise Unusable("ctxkernel store push: which notebook?")
    session = find_session(arguments.notebook, None)
    with SessionReader(session) as reader:
        session_id, name = reader.session_id, reader.notebook or ""
    given = arguments.notebook.absolute()
    notebook = str(session.absolute().parent.parent / name) if given.suffix == ".sqlite" and name else str(given)
    data = data_folder(root_folder(), session_id)
    done = push_session(session, data, files, notebook=notebook, force=arguments.force)
    value = {"session": session_id, "at": files.url, "sent": done.sent, "bytes": done.head.bytes, "end": done.end}
    told = f"{safe_line(files.url)} has {session_id} up to {done.end}: {format_size(done.sent)} sent"
    show_result(value, lambda: told, as_json=arguments.json)
    return 0


def _pull(arguments: argparse.Namespace, files: RemoteFiles) -> int:
    here = None
    if arguments.notebook is not None and arguments.output is None:
        is_session = arguments.notebook.suffix == ".sqlite"
        here = arguments.notebook if is_session else newest_session(arguments.notebook, tell=say)
        here = here if here is not None and here.is_file() else None
    progress = None if arguments.json or not sys.stderr.isatty() else _show_progress
    if here is not None and arguments.id is None:
        with SessionReader(here) as reader:
            session_id = reader.session_id
        done = pull_data(session_id, root_folder(), files, progress=progress)
        path = here
    else:
        head = _chosen(arguments, files)
        path = arguments.output or _place_of(arguments.notebook)
        done = pull_session(head.folder, path, root_folder(), files, progress)
    if progress is not None and done.received:
        say("")
    _show_pulled(arguments, files, path, done)
    return 1 if done.faults else 0


def _place_of(notebook: Path | None) -> Path:
    """Return the session file of a notebook, as a kernel would name it."""
    if notebook is None:
        raise Unusable("where to? Give the notebook that it belongs to, or --output FILE.")
    return notebook if notebook.suffix == ".sqlite" else session_path(str(notebook), {}, os.getcwd())


def _show_progress(received: int, total: int) -> None:
    sys.stderr.write(f"\r{format_size(received)} of {format_size(total)} …")
    sys.stderr.flush()


def _show_pulled(arguments: argparse.Namespace, files: RemoteFiles, path: Path, done: Pulled) -> None:
    value = {
        "session": done.head.session,
        "file": str(path),
        "at": files.url,
        "received": done.received,
        "chunks": done.chunks,
        "end": done.head.end.execution_id,
        "faults": list(done.faults),
    }
    if arguments.json:
        show_json(value)
        return
    told = f"{safe_line(str(path))}: {done.chunks} chunks brought, {format_size(done.received)}"
    show(f"{told}; the session is up to {done.head.end.execution_id} of {format_date(done.head.at)}")
    for fault in done.faults[:20]:
        say(f"not brought: {safe_line(fault)[:300]}")


def _chosen(arguments: argparse.Namespace, files: RemoteFiles) -> MirrorHead:
    """Return the session that `--id` or the notebook means. Raises Failed or Unusable."""
    heads, _ = list_heads(files)
    if arguments.id is not None:
        found = [head for head in heads if head.session == arguments.id]
    else:
        wanted = arguments.notebook.absolute()
        named = [head for head in heads if Path(head.notebook).name == wanted.name]
        found = [head for head in named if head.notebook == str(wanted)] or named
    if not found:
        what = arguments.id or arguments.notebook.name
        raise Failed(f"{files.url} has no session of {what}; `ctxkernel store list` shows those that it has.")
    if len(found) > 1 and arguments.id is None and found[0].notebook != str(arguments.notebook.absolute()):
        some = ", ".join(f"{head.session} ({head.notebook} of {head.host})" for head in found[:5])
        raise Unusable(f"several sessions fit: {safe_line(some)}; say which with --id.")
    return found[0]


def _list(arguments: argparse.Namespace, files: RemoteFiles) -> int:
    heads, faults = list_heads(files)
    if arguments.notebook is not None:
        heads = [head for head in heads if Path(head.notebook).name == arguments.notebook.name]
    sessions = [_row(head) for head in heads]
    if arguments.json:
        show_json({"at": files.url, "sessions": sessions, "faults": faults})
        return 0
    for fault in faults:
        say(f"not read: {safe_line(fault)[:300]}")
    if not sessions:
        show(f"{safe_line(files.url)} has no session")
        return 0
    rows = [
        (one["session"], safe_line(one["notebook"]), one["end"], format_size(one["bytes"]), format_date(one["time"]))
        for one in sessions
    ]
    show(terminal_table(("session", "notebook", "up to", "takes", "pushed"), rows, right=frozenset({3})))
    return 0


def _row(head: MirrorHead) -> dict[str, Any]:
    return {
        "session": head.session,
        "notebook": head.notebook,
        "host": head.host,
        "end": head.end.execution_id,
        "time": head.at,
        "bytes": head.bytes,
    }


def _drop(arguments: argparse.Namespace, files: RemoteFiles) -> int:
    head = _chosen(arguments, files)
    files.remove(head.folder)
    told = f"{safe_line(files.url)}: removed {head.session}, {format_size(head.bytes)}"
    show_result({"session": head.session, "removed": head.bytes}, lambda: told, as_json=arguments.json)
    return 0


_ACTIONS: dict[str, Callable[[argparse.Namespace, RemoteFiles], int]] = {
    "push": _push,
    "pull": _pull,
    "list": _list,
    "drop": _drop,
}
