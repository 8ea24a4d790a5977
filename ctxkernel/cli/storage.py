"""`ctxkernel gc`: what the data of checkpoints take, and bringing them under their limit.

Rule 1: the data of a session that a living kernel writes are left alone.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from ctxkernel.cli import Failed
from ctxkernel.cli.output import clip, one_line, say, show, show_json, size, table
from ctxkernel.store import quota
from ctxkernel.store.lock import SessionLock, lock_path

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
    report = quota.collect(root, limit, live=live, used=used, dry_run=arguments.dry_run)
    if arguments.json:
        show_json(_as_json(root, report, sizes, used, live))
    else:
        show(_as_text(root, report, sizes, used, live))
    return 0 if report.enough and not report.faults else 1


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


def _as_json(
    root: Path, report: quota.Report, sizes: dict[str, int], used: dict[str, float], live: set[str]
) -> dict[str, object]:
    sessions = [{"session": name, "bytes": sizes[name], "last_use": used[name], "live": name in live} for name in sizes]
    thinned = [
        {"session": one.session_id, "bytes": one.bytes, "chunks": len(one.addresses), "why": one.why}
        for one in report.thinned
    ]
    return {
        "folder": str(root),
        "limit": report.limit,
        "before": report.before,
        "after": report.after,
        "enough": report.enough,
        "dry_run": report.dry_run,
        "sessions": sessions,
        "thinned": thinned,
        "faults": list(report.faults),
    }


def _as_text(root: Path, report: quota.Report, sizes: dict[str, int], used: dict[str, float], live: set[str]) -> str:
    given = {one.session_id: one for one in report.thinned}
    verb = "would give up" if report.dry_run else "gave up"
    rows = []
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        told = f"{verb} {size(given[name].bytes)}: {given[name].why}" if name in given else ""
        rows.append((name, size(sizes[name]), _day(used[name]), "in use" if name in live else told))
    lines = [table(("session", "takes", "last used", ""), rows, right=frozenset({1})) + "\n"] if rows else []
    for fault in report.faults:
        say(f"not thinned: {clip(one_line(fault), 300)}")
    now = size(report.after)
    if report.thinned:
        lines.append(
            f"{size(report.before)} → {now} of {size(report.limit)}{' (planned)' if report.dry_run else ''} · {root}"
        )
    else:
        lines.append(f"{now} of {size(report.limit)} · {root}")
    if not report.enough:
        lines.append(
            "Still over the limit: the rest is small data, or belongs to kernels that run. "
            "Shut those down and call this again, or raise --limit."
        )
    return "\n".join(lines)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)) if seconds else "unknown"
