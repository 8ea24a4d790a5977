"""`ctxkernel branches` and `ctxkernel diff`: the tree of a session, and the differences between two of its states.

Rule 1: Nothing is unpickled, executed or written: names and outputs are compared by their records in the session.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, cast

from ctxkernel.cli.output import Colour, paint, safe_block, show, show_json, table
from ctxkernel.cli.places import Place, Timeline
from ctxkernel.cli.read import find_session
from ctxkernel.core.errors import StoreError
from ctxkernel.core.timeline_table import gist
from ctxkernel.replay.differences import Differences, differences
from ctxkernel.store.log.reader import SessionReader


def branches(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel branches`."""
    with SessionReader(find_session(arguments.notebook, arguments.session)) as reader:
        timeline = Timeline.of(reader, all_roots=arguments.all)
        path = reader.path
    if arguments.json:
        show_json(_as_json(timeline))
    elif found := _table(timeline):
        show(f"{found}\n\n* has HEAD · {path}")
    else:
        show(f"No statement in this session ({path}).")
    return 0


def _as_json(timeline: Timeline) -> dict[str, object]:
    found = [
        {"leaf": one.leaf, "fork": one.fork, "statements": list(one.statements), "head": one.has_head}
        for one in timeline.log.branches()
    ]
    return {
        "session": timeline.session,
        "head": timeline.log.head,
        "branches": found,
        "names": {name: at for name, at in timeline.names.items() if at in timeline.log},
    }


def _table(timeline: Timeline) -> str:
    log = timeline.log
    rows: list[tuple[str, ...]] = []
    colours: list[Colour | None] = []
    for one in log.branches():
        last = log.statement(log.execution(one.leaf).statement_id)
        on_path = {execution.execution_id for _, execution in log.path(one.leaf)}
        names = ", ".join(name for name, at in timeline.names.items() if at in on_path)
        mark = "*" if one.has_head else ""
        rows.append((one.leaf + mark, one.fork or "the start", str(len(one.statements)), names, gist(last.source)))
        colours.append(None if one.has_head else "dim")
    if not rows:
        return ""
    heads = ("ends at", "since", "statements", "names", "last")
    return table(heads, rows, right=frozenset({2}), caps={3: 32}, colours=colours, coloured=0)


def diff(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel diff`."""
    with SessionReader(find_session(arguments.notebook, arguments.session)) as reader, reader.snapshot():
        timeline = Timeline.of(reader, all_roots=True)
        old = timeline.place(arguments.old)
        new = timeline.place(arguments.new) if arguments.new is not None else Place(timeline.log.head, "HEAD")
        found = compare(reader, timeline, old, new)
    if arguments.json:
        show_json({"session": timeline.session, "from": old.execution_id, "to": new.execution_id, **found.to_json()})
    else:
        show(paint(f"{old.told} → {new.told}", "bold"))
        show(safe_block(found.text()))
    return 0


def compare(reader: SessionReader, timeline: Timeline, old: Place, new: Place) -> Differences:
    """Return the differences between two states of a session."""
    paths = [timeline.log.path(place.execution_id) for place in (old, new)]
    wanted = {execution.execution_id for path in paths for _, execution in path}
    before, after = (reader.handles(one.execution_id) if one.execution_id is not None else () for one in (old, new))
    return differences(*paths, fingerprints=fingerprints(reader, wanted), old_handles=before, new_handles=after)


def fingerprints(reader: SessionReader, wanted: set[str]) -> dict[str, dict[str, str]]:
    """Return execution → name → content hash, from the checkpoints of the executions."""
    found: dict[str, dict[str, str]] = {}
    for execution_id, made in reader.all_manifests(all_roots=True).items():
        if execution_id not in wanted:
            continue
        try:
            said: Any = made.parse().get("f")
        except StoreError:  # damaged: its contents are not known, and `verify` reports it
            continue
        if isinstance(said, Mapping):
            found[execution_id] = {str(name): str(one) for name, one in cast("Mapping[Any, Any]", said).items()}
    return found
