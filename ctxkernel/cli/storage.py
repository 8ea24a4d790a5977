"""`ctxkernel gc`: show the size of checkpoint data, and reduce it to the limit.

Rule 1: The data of a session that a running kernel writes are not changed.
Rule 2: The data of a session without a notebook are removed only with `--gone`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ctxkernel.cli import Failed
from ctxkernel.cli.output import clip, safe_line, say, show, show_json, table
from ctxkernel.core.errors import StoreError
from ctxkernel.core.text import format_date, format_size
from ctxkernel.store.chunks import quota
from ctxkernel.store.lock import SessionLock, lock_path
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
    found = _Found(root, report, sizes, used, live, gone, removed)
    if arguments.json:
        show_json(_as_json(found))
    else:
        show(_as_text(found))
    return 0 if report.enough and not report.faults else 1


@dataclass(frozen=True, slots=True)
class _Found:
    """The data of the sessions, and the changes to them."""

    root: Path
    report: quota.Report
    sizes: dict[str, int]
    used: dict[str, float]
    live: set[str]
    gone: dict[str, str]
    """Sessions that nobody can need any more, and why."""
    removed: dict[str, int]
    """Sessions that were removed, or would be, and their bytes."""


def _remove(
    root: Path, gone: Iterable[str], sizes: dict[str, int], *, dry_run: bool
) -> tuple[dict[str, int], list[str]]:
    """Remove the data of sessions; return the bytes of each, and the faults."""
    removed: dict[str, int] = {}
    faults: list[str] = []
    for name in gone:
        try:
            if dry_run or origin.remove(root / name):
                removed[name] = sizes[name]
        except (StoreError, OSError) as fault:
            faults.append(f"{name}: {fault}")
    return removed, faults


def living(root: Path) -> set[str]:
    """Return the sessions whose data a running kernel writes."""
    found: set[str] = set()
    for name in quota.usage(root):
        if not lock_path(root / name).exists():
            continue
        try:
            lock = SessionLock.take(root / name)
        except OSError:  # no locks here: it may be in use, so it is not changed
            lock = None
        if lock is None:
            found.add(name)
        else:
            lock.release()
    return found


def _as_json(found: _Found) -> dict[str, object]:
    report = found.report
    names = "limit before after enough dry_run"
    return {
        "folder": str(found.root),
        **{name: getattr(report, name) for name in names.split()},
        "sessions": [
            {"session": name, "bytes": nbytes, "last_use": found.used[name]}
            | {"live": name in found.live, "gone": found.gone.get(name)}
            for name, nbytes in found.sizes.items()
        ],
        "thinned": [
            {"session": one.session_id, "bytes": one.bytes, "chunks": len(one.addresses), "why": one.why}
            for one in report.thinned
        ],
        "removed": [{"session": name, "bytes": nbytes} for name, nbytes in found.removed.items()],
        "faults": list(report.faults),
    }


def _as_text(found: _Found) -> str:
    report, sizes = found.report, found.sizes
    verbs = ("would give up", "would be removed") if report.dry_run else ("gave up", "removed")
    told = dict.fromkeys(found.live, "in use") | found.gone
    told |= {one.session_id: f"{verbs[0]} {format_size(one.bytes)}: {one.why}" for one in report.thinned}
    told |= {name: f"{verbs[1]}: {found.gone[name]}" for name in found.removed}
    largest = sorted(sizes, key=lambda name: -sizes[name])
    dates = {name: format_date(when) if when else "unknown" for name, when in found.used.items()}
    rows = [(name, format_size(sizes[name]), dates[name], told.get(name, "")) for name in largest]
    lines = [table(("session", "takes", "last used", ""), rows, right=frozenset({1})) + "\n"] if rows else []
    for fault in report.faults:
        say(f"not done: {clip(safe_line(fault), 300)}")
    now = f"{format_size(report.after)} of {format_size(report.limit)}"
    if report.thinned or found.removed:
        now = f"{format_size(report.before)} → {now}{' (planned)' if report.dry_run else ''}"
    lines.append(f"{now} · {found.root}")
    if left := found.gone.keys() - found.removed.keys():
        lines.append(
            f"The notebook or the log of {len(left)} is gone, {format_size(sum(sizes[name] for name in left))}: "
            "--gone removes their data."
        )
    if not report.enough:
        lines.append(
            "Still over the limit: the rest is small data, or belongs to kernels that run. "
            "Shut those down and call this again, or raise --limit."
        )
    return "\n".join(lines)
