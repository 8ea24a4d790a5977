"""`ctxkernel branches` and `ctxkernel diff`: the tree of a session, and the differences between two of its states.

Rule 1: Nothing is unpickled, executed or written: names and outputs are compared by their records in the session.
"""

from __future__ import annotations

import argparse

from ctxkernel.cli.output import Colour, paint, safe_block, show, show_json, terminal_table
from ctxkernel.cli.places import Timeline, TimelinePlace
from ctxkernel.cli.read import open_session
from ctxkernel.core.timeline_table import gist
from ctxkernel.replay.differences import Differences, differences
from ctxkernel.store.log.reader import SessionReader


def branches(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel branches`."""
    with open_session(arguments.notebook, arguments.session) as reader:
        timeline = Timeline.of(reader, all_roots=arguments.all, details=False)
        path = reader.path
    if arguments.json:
        show_json(_as_json(timeline))
    elif found := _branch_table(timeline):
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


def _branch_table(timeline: Timeline) -> str:
    log = timeline.log
    rows: list[tuple[str, ...]] = []
    colours: list[Colour | None] = []
    found = log.branches()
    for one, path in zip(found, log.paths(one.leaf for one in found), strict=True):
        last = log.statement(log.execution(one.leaf).statement_id)
        on_path = {execution.execution_id for _, execution in path}
        names = ", ".join(name for name, at in timeline.names.items() if at in on_path)
        mark = "*" if one.has_head else ""
        rows.append((one.leaf + mark, one.fork or "the start", str(len(one.statements)), names, gist(last.source)))
        colours.append(None if one.has_head else "dim")
    if not rows:
        return ""
    heads = ("ends at", "since", "statements", "names", "last")
    return terminal_table(heads, rows, right=frozenset({2}), caps={3: 32}, colours=colours, coloured=0)


def diff(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel diff`."""
    with open_session(arguments.notebook, arguments.session) as reader, reader.snapshot():
        timeline = Timeline.of(reader, all_roots=True)
        old = timeline.place(arguments.old)
        new = timeline.place(arguments.new) if arguments.new is not None else TimelinePlace(timeline.log.head, "HEAD")
        found = compare_states(reader, timeline, old, new)
    if arguments.json:
        show_json({"session": timeline.session, "from": old.execution_id, "to": new.execution_id, **found.to_json()})
    else:
        show(paint(f"{old.told} → {new.told}", "bold"))
        show(safe_block(found.text()))
    return 0


def compare_states(reader: SessionReader, timeline: Timeline, old: TimelinePlace, new: TimelinePlace) -> Differences:
    """Return the differences between two states of a session."""
    paths = [timeline.log.path(place.execution_id) for place in (old, new)]
    before, after = (reader.handles(one.execution_id) if one.execution_id is not None else () for one in (old, new))
    return differences(*paths, fingerprints=reader.fingerprints(), old_handles=before, new_handles=after)
