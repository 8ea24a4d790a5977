"""`ctxkernel gc`: what the data of checkpoints take, and bringing them under their limit.

Rule 1: the data of a session that a living kernel writes are left alone.
Rule 2: what a session without a notebook has is removed on the user's explicit word only.
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
    """Carry out `ctxkernel gc`: status 1 where the data are over the limit even so, or a session cannot be thinned."""
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
    """What there is, by session, and what was done about it."""

    root: Path
    report: quota.Report
    sizes: dict[str, int]
    used: dict[str, float]
    live: set[str]
    gone: dict[str, str]
    """Sessions that nobody can need any more, and why."""
    removed: dict[str, int]
    """Those that were removed, or would be, and their bytes."""


def _remove(
    root: Path, gone: Iterable[str], sizes: dict[str, int], *, dry_run: bool
) -> tuple[dict[str, int], list[str]]:
    """Remove the data of sessions; return the bytes of each that went, and what could not be removed."""
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
    """Return the sessions whose data a living kernel writes."""
    found: set[str] = set()
    for name in quota.usage(root):
        if not lock_path(root / name).exists():
            continue
        try:
            lock = SessionLock.take(root / name)
        except OSError:  # no locks here: nobody can tell, so it is left alone
            lock = None
        if lock is None:
            found.add(name)
        else:
            lock.release()
    return found


def _as_json(found: _Found) -> dict[str, object]:
    report = found.report
    sessions = [
        {
            "session": name,
            "bytes": nbytes,
            "last_use": found.used[name],
            "live": name in found.live,
            "gone": found.gone.get(name),
        }
        for name, nbytes in found.sizes.items()
    ]
    thinned = [
        {"session": one.session_id, "bytes": one.bytes, "chunks": len(one.addresses), "why": one.why}
        for one in report.thinned
    ]
    return {
        "folder": str(found.root),
        "limit": report.limit,
        "before": report.before,
        "after": report.after,
        "enough": report.enough,
        "dry_run": report.dry_run,
        "sessions": sessions,
        "thinned": thinned,
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
    rows = [
        (
            name,
            format_size(sizes[name]),
            format_date(found.used[name]) if found.used[name] else "unknown",
            told.get(name, ""),
        )
        for name in largest
    ]
    lines = [table(("session", "takes", "last used", ""), rows, right=frozenset({1})) + "\n"] if rows else []
    for fault in report.faults:
        say(f"not done: {clip(safe_line(fault), 300)}")
    now = f"{format_size(report.after)} of {format_size(report.limit)}"
    if report.thinned or found.removed:
        lines.append(f"{format_size(report.before)} → {now}{' (planned)' if report.dry_run else ''} · {found.root}")
    else:
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
