"""`ctxkernel branches` and `ctxkernel diff`: the tree of a session, and what lies between two of its states.

Rule 1: nothing is unpickled, executed or written: names and outputs are compared by what the session says of them.
"""

from __future__ import annotations

import argparse

from ctxkernel.cli.output import paint, safe_block, show, show_json, table
from ctxkernel.cli.places import Place, Timeline
from ctxkernel.cli.read import find_session
from ctxkernel.core.errors import StoreError
from ctxkernel.core.timeline_table import gist
from ctxkernel.core.turn import HandleState
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
    rows, colours = [], []
    for one in log.branches():
        last = log.statement(log.execution(one.leaf).statement_id)
        on_path = {execution.execution_id for _, execution in log.path(one.leaf)}
        names = ", ".join(name for name, at in timeline.names.items() if at in on_path)
        mark = "*" if one.has_head else ""
        rows.append((one.leaf + mark, one.fork or "the start", str(len(one.statements)), names, gist(last.source)))
        colours.append(None if one.has_head else "dim")
    if not rows:
        return ""
    return table(
        ("ends at", "since", "statements", "names", "last"),
        rows,
        right=frozenset({2}),
        caps={3: 32},
        colours=colours,
        coloured=0,
    )


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
    """Return what differs between two states of a session."""
    paths = [timeline.log.path(place.execution_id) for place in (old, new)]
    wanted = {execution.execution_id for path in paths for _, execution in path}
    return differences(
        *paths,
        fingerprints=fingerprints(reader, wanted),
        old_handles=_handles(reader, old),
        new_handles=_handles(reader, new),
    )


def fingerprints(reader: SessionReader, wanted: set[str]) -> dict[str, dict[str, str]]:
    """Return execution → name → content hash, as the checkpoints of these executions say."""
    found: dict[str, dict[str, str]] = {}
    for execution_id, made in reader.all_manifests(all_roots=True).items():
        if execution_id not in wanted:
            continue
        try:
            said = made.parse().get("f")
        except StoreError:  # damaged: its contents are not known, and `verify` says so
            continue
        if isinstance(said, dict):
            found[execution_id] = {str(name): str(one) for name, one in said.items()}
    return found


def _handles(reader: SessionReader, place: Place) -> tuple[HandleState, ...]:
    return reader.handles(place.execution_id) if place.execution_id is not None else ()
