"""The messages between kernel and front end: their types, the declarations made from these, and what a kernel sends."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, Union, get_args, get_origin

import pytest
from frontend.message_types import TARGET, declarations
from test_panel import Front

from ctxkernel.core import replay, timeline
from ctxkernel.core import turn_values as turn
from ctxkernel.history import rules
from ctxkernel.kernel.messages import plan_messages, projection, wire
from ctxkernel.kernel.messages import timeline_messages as rows
from ctxkernel.replay import plan


def faults(value: Any, hint: Any, where: str) -> list[str]:
    """Return the places at which a JSON value is not of a type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return []
    if typing.is_typeddict(hint):
        return _faults_of_fields(value, hint, where)
    if origin is Literal:
        return [] if value in args else [f"{where}: {value!r} is none of {args}"]
    if origin in (Union, types.UnionType):
        found = [faults(value, one, where) for one in args]
        return [] if [] in found else min(found, key=len)
    if origin is Sequence:
        if not isinstance(value, list):
            return [f"{where}: {value!r} is no list"]
        return [fault for i, one in enumerate(value) for fault in faults(one, args[0], f"{where}[{i}]")]
    if origin is Mapping:
        if not isinstance(value, dict):
            return [f"{where}: {value!r} is no object"]
        return [fault for key, one in value.items() for fault in faults(one, args[1], f"{where}.{key}")]
    wanted = (int, float) if hint is float else hint
    fits = isinstance(value, wanted) and (hint is bool or not isinstance(value, bool))
    return [] if fits else [f"{where}: {value!r} is no {hint}"]


def _faults_of_fields(value: Any, hint: Any, where: str) -> list[str]:
    fields = typing.get_type_hints(hint, include_extras=True)
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no {hint.__name__}"]
    found = [f"{where}.{name}: {hint.__name__} has no such field" for name in value.keys() - fields.keys()]
    for name, field in fields.items():
        optional = get_origin(field) is NotRequired
        if name in value:
            found += faults(value[name], get_args(field)[0] if optional else field, f"{where}.{name}")
        elif hint.__total__ and not optional:
            found.append(f"{where}.{name} is missing")
    return found


def test_the_declarations_are_those_of_the_types():
    """Run `python tests/frontend/message_types.py` where they differ: scripts are checked against messages.d.ts."""
    assert TARGET.read_text(encoding="utf-8") == declarations()


def test_nothing_of_the_checkers_names_a_registry():
    """The lock file holds for any registry: the one that npm is configured for."""
    lock = (Path(__file__).parent / "frontend/package-lock.json").read_text(encoding="utf-8")

    assert '"resolved"' not in lock


@pytest.mark.parametrize(
    ("value", "hint", "fits"),
    [
        ({"to": None, "reason": "goto"}, rows.Move, True),
        ({"to": 1, "reason": "goto"}, rows.Move, False),
        ({"to": None}, rows.Move, False),
        ({"to": None, "reason": "goto", "more": 1}, rows.Move, False),
        ({"ask": "s1.1"}, rows.Tags, True),
        (True, int, False),
        (1, float, True),
        ([{"id": "b", "why": 1}], Sequence[projection.LeftOut], False),
    ],
)
def test_a_value_of_another_type_is_found(value: Any, hint: Any, fits: bool):
    assert (faults(value, hint, "it") == []) is fits


SERIALISED = [
    (replay.Comparison, rows.Comparison, {"same"}),
    (replay.Divergence, rows.Divergence, set()),
    (timeline.ChangeInfo, rows.NameChange, set()),
    (timeline.ExceptionInfo, rows.Failure, set()),
    (timeline.NamespaceDiff, rows.NamespaceDiff, {"more"}),
    (turn.DeltaItem, rows.DeltaItem, {"execution_id"}),
    (rules.Violation, projection.Violation, {"block", "origin"}),
    (plan.Plan, plan_messages.Plan, {"action", "text", "nbytes", "again"}),
    (plan.Load, plan_messages.Load, set()),
    (plan.Written, plan_messages.WrittenFile, set()),
    (plan.FileChange, plan_messages.FileChange, set()),
    (plan.PlannedStep, plan_messages.Step, set()),
]
"""Dataclasses that are sent as they are, their types, and the fields that are added."""


@pytest.mark.parametrize(("kept", "sent", "added"), SERIALISED, ids=[row[1].__name__ for row in SERIALISED])
def test_a_dataclass_that_is_sent_has_the_fields_of_its_type(kept: Any, sent: Any, added: set[str]):
    """`plain` makes these messages, so that the type checker cannot compare the two."""
    assert {field.name for field in dataclasses.fields(kept)} | added == set(sent.__annotations__)


CELLS = [
    "import random",
    "data = {'a': [1, 2]}; print(data)",
    "v = view(data); note('remember', pinned=True); data['a'].append(3)",
    "open('made.txt', 'w').write('x'); g = (i for i in range(3)); data",
    "1 / 0",
    "from IPython.display import HTML; HTML('<b>x</b>')",
    "value = random.random()",
    "del value; data = 5",
    '%ctx redact s2 "what it printed"',
    "%ctx checkpoint here",
    "%ctx goto s3",
    "value = random.random()",
    "%ctx rerun s4..s5",
    "%ctx condense",
    "1",
]


def test_what_a_kernel_sends_is_of_the_types(kernel: Any):
    """Rows, comparisons, plans, projections and records of the history, of every kind that a session can have."""
    front = Front(kernel)
    found = faults(front.snapshot, wire.SnapshotMessage, "snapshot")
    begun: list[dict[str, Any]] = []
    told = front._told
    front._told = lambda wanted, seconds=30: told(lambda data: begun.append(data) or wanted(data), seconds)
    rows: list[dict[str, Any]] = []
    for source in CELLS:
        told_turn = front.run(source, gesture=source.startswith("%"))
        rows.append(told_turn["statement"])
        found += faults(told_turn, wire.TurnMessage, f"turn of {source}")
    found += [fault for one in begun for fault in faults(one, wire.KernelMessage, one["type"])]
    found += faults(front.ask(type="snapshot"), wire.SnapshotMessage, "snapshot")
    for request in ({"action": "goto", "target": "s2"}, {"action": "rerun", "target": "s2"}, {"action": "burn"}):
        found += faults(front.ask(type="plan", **request), wire.PlanAnswer, f"plan {request}")
    found += faults(front.ask(type="compare", old="s2", new=None), wire.CompareAnswer, "compare")
    for names in ({}, {"names": ["no such name"]}):
        asked = front.ask(type="difference", old="s1", new=None, **names)
        found += faults(asked, wire.DifferenceAnswer, f"difference {names}")
    found += faults(front.ask(type="events", of="none"), wire.EventsAnswer, "events")

    assert found == []
    # The session has one of each, or the claim above says little.
    assert any(row["exception"] for row in rows)
    assert any(row["moved"] for row in rows)
    assert any(row["artifacts"] for row in rows)
    assert any(row["comparison"] for row in front.rows().values())
