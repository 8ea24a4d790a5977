"""The meaning of a session's marks. `SessionStore.mark` lists their kinds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ctxkernel.core.timeline import NamespaceDiff
from ctxkernel.core.timeline_events import Json
from ctxkernel.core.typed_json import read_json
from ctxkernel.store.log import rows


def names_of(marks: Mapping[tuple[str, str], Json]) -> dict[str, str]:
    """Return name → execution of the marks of a session."""
    return {value: subject for (subject, mark), value in marks.items() if mark == "name" and isinstance(value, str)}


def asks_of(marks: Mapping[tuple[str, str], Json]) -> dict[str, dict[str, Json]]:
    """Return execution → how its ask ended, or that it waits; `told` is a text for people."""
    found = {subject: cast("object", value) for (subject, mark), value in marks.items() if mark == "ask"}
    asks = {name: cast("dict[str, Json]", value) for name, value in found.items() if isinstance(value, dict)}
    return {name: ask for name, ask in asks.items() if isinstance(ask.get("told"), str)}


def movers_of(marks: Mapping[tuple[str, str], Json]) -> list[str]:
    """Return the executions that only moved HEAD."""
    return [subject for subject, mark in marks if mark == "moved"]


def swept_of(marks: Mapping[tuple[str, str], Json]) -> list[str]:
    """Return the executions of sweeps."""
    tasks = [
        cast("dict[str, Any]", one) for (_, mark), one in marks.items() if mark == "sweep" and isinstance(one, dict)
    ]
    return [str(run) for task in tasks for run in task.get("runs") or ()]


def late_diffs(found: Iterable[Mapping[str, Any]]) -> dict[str, NamespaceDiff]:
    """Return by execution the changes that were found after its end, from rows of `marks`."""
    diffs: dict[str, NamespaceDiff] = {}
    for row in found:
        with contextlib.suppress(ValueError, TypeError):  # damaged: the row's checksum says so
            diffs[row["subject"]] = read_json(NamespaceDiff, rows.loaded(row["value"]))
    return diffs
