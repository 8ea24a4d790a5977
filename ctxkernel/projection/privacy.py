"""Private names, and quotes of redacted outputs in views: both are kept out of every projection.

Rule 1: a private name is written `[private]` in every text, as a word; its rows and changes are left out.
Rule 2: all functions are pure, so a projection can be built again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from ctxkernel.core.timeline import Execution, NamespaceDiff, Statement
from ctxkernel.core.turn_values import Turn
from ctxkernel.history.events import Action, AssistantMessage, Context, HistoryEvent
from ctxkernel.projection.displayed_images import FORMS

T = TypeVar("T")
STATEMENT = "statement"
"""The kind of a view of a statement's outputs."""
MARK = "[private]"


class Hiding:
    """Removes private names from what is projected."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = frozenset(names)
        words = "|".join(map(re.escape, sorted(self.names)))
        self._word = re.compile(rf"(?<!\w)(?:{words})(?!\w)")

    def text(self, text: str) -> str:
        """Return `text` without the names."""
        return self._word.sub(MARK, text)

    def value(self, value: T) -> T:
        """Return a text, or a structure with texts, without the names; the same object where it has none."""
        made: Any = self._made(value)
        return value if made == value else made

    def _made(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            pairs = cast("Mapping[Any, Any]", value).items()
            return {self.value(key): self.value(item) for key, item in pairs}
        if isinstance(value, list):
            return [self.value(item) for item in cast("list[Any]", value)]
        if isinstance(value, tuple):
            items = tuple([self.value(item) for item in cast("tuple[Any, ...]", value)])
            return items if type(value) is tuple else value._make(items)  # type: ignore[attr-defined]
        if hasattr(value, "__dataclass_fields__"):
            old = {one.name: getattr(value, one.name) for one in fields(value)}
            changed = {name: new for name, item in old.items() if (new := self.value(item)) is not item}
            return replace(value, **changed) if changed else value
        return value

    def event(self, event: HistoryEvent) -> HistoryEvent:
        """Return an event without the names; ids and images stay. A response with one does not go back as it came."""
        given = self.value(event)
        if given is event:
            return event
        kept: dict[str, Any] = {
            one.name: getattr(event, one.name)
            for one in fields(event)
            if one.name.endswith("_id") or one.name == "tool_name"
        }
        if isinstance(event, Action | AssistantMessage):
            kept["blocks"] = ()
        if isinstance(event, Context):
            pairs = enumerate(zip(event.texts, cast("Context", given).texts, strict=True))
            kept["texts"] = tuple(old if n in event.pictures else new for n, (old, new) in pairs)
        return cast("HistoryEvent", replace(cast("Any", given), **kept))

    def statement(self, statement: Statement, execution: Execution) -> tuple[Statement, Execution]:
        """Return a statement and its execution without the names."""
        late = execution.late_diff
        shown = replace(
            execution,
            stdout=self.text(execution.stdout),
            stderr=self.text(execution.stderr),
            exception=self.value(execution.exception),
            artifacts=tuple(one if one.mime in FORMS else self.value(one) for one in execution.artifacts),
            state_diff=self._diff(execution.state_diff),
            late_diff=self._diff(late) if late is not None else None,
        )
        return replace(statement, source=self.text(statement.source)), shown

    def _diff(self, diff: NamespaceDiff) -> NamespaceDiff:
        return NamespaceDiff(
            {name: info for name, info in diff.added.items() if name not in self.names},
            {name: info for name, info in diff.changed.items() if name not in self.names},
            tuple(name for name in diff.deleted if name not in self.names),
            diff.incomplete,
        )

    def turn(self, turn: Turn) -> Turn:
        """Return the state without the names and their rows."""
        gone = {handle.obj_id for handle in turn.handles if handle.name in self.names}
        handles = tuple(
            replace(
                handle,
                text=self.text(handle.text),
                digest=self.value(handle.digest),
                notes=self.value(handle.notes),
                pin_reason=self.text(handle.pin_reason),
                members=tuple(one for one in handle.members if one not in gone),
            )
            for handle in turn.handles
            if handle.obj_id not in gone
        )
        variables = tuple(self.value(row) for row in turn.variables if row.name not in self.names)
        deltas = tuple(self.value(item) for item in turn.deltas if item.subject not in self.names)
        total = turn.variables_total - (len(turn.variables) - len(variables))

        def coarser(obj_id: str, lod: int) -> str | None:
            text = turn.coarser(obj_id, lod)
            return self.text(text) if text is not None else None

        return replace(
            turn, handles=handles, variables=variables, variables_total=total, deltas=deltas, coarser=coarser
        )


def withheld(turn: Turn, redacted: Callable[[], Mapping[str, str]]) -> Turn:
    """Return the state without quotes of redacted outputs in views and their groups; the same object if there are none.

    `redacted()` maps a statement to the summary that replaces its outputs; it is called only if a view shows outputs.
    The handles themselves do not change: the person who redacted an output may look at it.
    """
    looks = {one.obj_id: str(one.digest["target"]) for one in turn.handles if one.digest.get("kind") == STATEMENT}
    notes: Mapping[str, str] = redacted() if looks else {}
    told = {
        obj_id: f"[{target} is redacted: {json.dumps(notes[sid], ensure_ascii=False)}]"
        for obj_id, target in looks.items()
        if (sid := target.partition(".")[0]) in notes
    }
    if not told:
        return turn
    held = {one.obj_id: one.members for one in turn.handles}
    found = set(told)
    while more := {obj_id for obj_id, members in held.items() if obj_id not in found and found.intersection(members)}:
        found |= more
        told |= {obj_id: f"[not shown: a member of {obj_id} quotes an output that is redacted]" for obj_id in more}
    handles = tuple(
        replace(one, text=told[one.obj_id], picture=None) if one.obj_id in told else one for one in turn.handles
    )
    names = {one.name for one in handles if one.obj_id in told}
    deltas = tuple(replace(item, text="") if item.subject in names else item for item in turn.deltas)

    def coarser(obj_id: str, lod: int) -> str | None:
        return told[obj_id] if obj_id in told else turn.coarser(obj_id, lod)

    return replace(turn, handles=handles, deltas=deltas, coarser=coarser)
