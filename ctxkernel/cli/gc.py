"""`ctxkernel gc`: show the size of checkpoint data, and reduce it to the limit.

Rule 1: The data of a session that a running kernel writes are not changed.
Rule 2: The data of a session without a notebook are removed only with `--gone`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxkernel.cli import Failed
from ctxkernel.cli.output import safe_line, say, show, show_json, terminal_table
from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import clip, format_date, format_size
from ctxkernel.store import lock
from ctxkernel.store.chunks import quota
from ctxkernel.store.log import origin

_GB = 10**9


def gc(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel gc`: status 1 if the data still exceed the limit, or a session cannot be thinned."""
    root = quota.root_folder()
    limit = quota.limit_bytes() if arguments.limit is None else int(arguments.limit * _GB)
    sizes = quota.usage(root)
    if root.exists() and not os.access(root, os.R_OK | os.X_OK):
        raise Failed(f"{root} cannot be read; make it readable, or set CTXKERNEL_CACHE to another folder.")
    used = {name: quota.last_use(root / name) for name in sizes}
    live = living(root)
    gone = {name: why for name in sizes if name not in live and (why := origin.why_gone(root / name))}
    removed, faults = _remove(root, gone, sizes, dry_run=arguments.dry_run) if arguments.gone else ({}, [])
    report = quota.collect(root, limit, live=live, used=used, dry_run=arguments.dry_run)
    report = replace(report, before=sum(sizes.values()), faults=(*report.faults, *faults))
    if arguments.dry_run:
        report = replace(report, after=report.after - sum(removed.values()))
    sessions = [
        {"session": name, "bytes": size, "last_use": used[name], "live": name in live, "gone": gone.get(name)}
        for name, size in sizes.items()
    ]
    thinned = [
        {"session": one.session_id, "bytes": one.bytes, "chunks": len(one.addresses), "why": one.why}
        for one in report.thinned
    ]
    value = {
        "folder": str(root),
        **{name: getattr(report, name) for name in ("limit", "before", "after", "enough", "dry_run")},
        "sessions": sessions,
        "thinned": thinned,
        "removed": [{"session": name, "bytes": size} for name, size in removed.items()],
        "faults": list(report.faults),
    }
    if arguments.json:
        show_json(value)
    else:
        for fault in report.faults:
            say(f"not done: {clip(safe_line(fault), 300)}")
        show(_as_text(value))
    return 0 if report.enough and not report.faults else 1


def _remove(
    root: Path, gone: Iterable[str], sizes: dict[str, int], *, dry_run: bool
) -> tuple[dict[str, int], list[str]]:
    """Remove the data of sessions; return the bytes of each, and the faults."""
    removed: dict[str, int] = {}
    faults: list[str] = []
    for name in gone:
        try:
            if dry_run or origin.remove_data(root / name):
                removed[name] = sizes[name]
        except (StoreError, OSError) as fault:
            faults.append(f"{name}: {fault}")
    return removed, faults


def living(root: Path) -> set[str]:
    """Return the sessions whose data a running kernel writes."""
    return {name for name in quota.usage(root) if lock.is_locked(root / name, unknown=True)}


def _as_text(value: dict[str, Any]) -> str:
    """Return the JSON of the command as text."""
    thin, remove = ("would delete", "would be removed") if value["dry_run"] else ("deleted", "removed")
    removed = {one["session"] for one in value["removed"]}
    told: dict[str, str] = {}
    for one in value["sessions"]:
        gone = f"{remove}: {one['gone']}" if one["session"] in removed else one["gone"]
        told[one["session"]] = gone or ("in use" if one["live"] else "")
    for one in value["thinned"]:
        if one["session"] not in removed:
            told[one["session"]] = f"{thin} {format_size(one['bytes'])}: {one['why']}"
    rows: list[tuple[str, ...]] = []
    for one in sorted(value["sessions"], key=lambda one: -one["bytes"]):
        date = format_date(one["last_use"]) if one["last_use"] else "unknown"
        rows.append((one["session"], format_size(one["bytes"]), date, told[one["session"]]))
    lines = [terminal_table(("session", "takes", "last used", ""), rows, right=frozenset({1})) + "\n"] if rows else []
    now = f"{format_size(value['after'])} of {format_size(value['limit'])}"
    if value["thinned"] or removed:
        now = f"{format_size(value['before'])} → {now}{' (planned)' if value['dry_run'] else ''}"
    lines.append(f"{now} · {value['folder']}")
    if left := [one["bytes"] for one in value["sessions"] if one["gone"] and one["session"] not in removed]:
        lines.append(
            f"The notebook or the log of {len(left)} is gone, {format_size(sum(left))}: --gone removes their data."
        )
    if not value["enough"]:
        lines.append(
            "Still over the limit: the rest is small data, or belongs to kernels that run. "
            "Shut those down and call this again, or raise --limit."
        )
    return "\n".join(lines)
