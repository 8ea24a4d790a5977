"""`%ctx whatif`: the projection with other policies, settings or events. Nothing is applied."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.nodes import NodeBase, ViewHandle
from ctxkernel.core.nodes.states import handle_state, suppose
from ctxkernel.core.ports import All
from ctxkernel.core.settings import Settings
from ctxkernel.core.turn import HandleState, Turn
from ctxkernel.history.events import CondensationRequest, HistoryEvent, Redaction
from ctxkernel.kernel.commands.context import CommandContext, split_flags
from ctxkernel.kernel.commands.history import event_named, redaction_of
from ctxkernel.kernel.commands.inspection import comparison_text
from ctxkernel.projection.compare import compare_projections

USAGE = "%ctx whatif HANDLE.lod=1 HANDLE.tokens=300 HANDLE.pinned=yes budget=64000 model=NAME redact=s12 condense=now"
SUPPOSED_VALUES = {
    "lod": ("0", "1", "2", "3"),
    "tokens": ("All", "300", "1000"),
    "mode": ("paused", "running"),
    "freq": ("Sync", "Async"),
    "pinned": ("yes", "no"),
    "shown": ("yes", "no"),
}
"""Values for the completion of a handle's policy."""
SUPPOSED_SETTINGS = ("budget=", "model=", "dialect=", "redact=", "condense=1")
_YES, _NO = ("1", "yes", "true", "on"), ("0", "no", "false", "off")


def whatif(ctx: CommandContext, args: Sequence[str]) -> str:
    """Compare the projection with one under other policies, settings or events; nothing is applied."""
    flags, rest = split_flags(args, ("--json",), "whatif")
    if not rest:
        raise BadCommand(f"%ctx whatif: give at least one change; {USAGE}")
    turn, settings = ctx.loop.state, ctx.settings
    events: list[HistoryEvent] = []
    policies: dict[str, dict[str, Any]] = {}
    for word in rest:
        key, sign, value = word.partition("=")
        if not sign or not value:
            raise BadCommand(f"%ctx whatif {word}: write NAME=VALUE; {USAGE}")
        name, dot, attribute = key.rpartition(".")
        if dot:
            node, meant = _handle_policy(ctx, name, attribute, value)
            # `h.lod=1 h.tokens=300` is one policy.
            policies.setdefault(node.obj_id, {})["shown" if attribute == "requested" else attribute] = meant
        elif key in ("redact", "condense"):
            events.append(_supposed_event(ctx, key, value))
        else:
            settings = _with_setting(settings, key, value)
    if policies:
        turn = with_handles(turn, ctx.loop.graph.nodes(), policies)
    old = ctx.projection()
    try:
        engine = ctx.configuration.built(settings)
    except CtxError as fault:
        raise BadCommand(str(fault)) from None
    if events and turn.history:
        turn = _with_events(turn, events)
        turn = _with_events(turn, [one for one in engine.tend(turn) if not isinstance(one, str)])
    new = engine.project(turn)
    found = compare_projections(old, new)
    if "--json" in flags:
        return json.dumps(found.to_json(), indent=1)
    text = comparison_text(found, "now", " ".join(rest), old.tokens, new.tokens)
    return "\n".join([text, *(f"red: {one.told()}" for one in new.violations), "nothing was applied"])


def _with_events(turn: Turn, events: Sequence[HistoryEvent]) -> Turn:
    """Return `turn` with further events in its last execution."""
    last = turn.history[-1][1].execution_id
    return dataclasses.replace(turn, records={**turn.records, last: [*turn.records.get(last, ()), *events]})


def _handle_policy(ctx: CommandContext, name: str, attribute: str, value: str) -> tuple[NodeBase, Any]:
    """Return the handle, and the value as `set` takes it. Raises BadCommand."""
    place = f"%ctx whatif {name}.{attribute}"
    node = ctx.required_handle(name, place)
    match attribute:
        case "lod" | "tokens":
            return node, All if (attribute, value) == ("tokens", str(All)) else _number(value, f"{name}.{attribute}")
        case "pos" if not isinstance(node, ViewHandle):
            raise BadCommand(f"{place}: a {node.obj_type} has no position")
        case "pos":
            return node, value
        case "mode" | "freq":
            values = SUPPOSED_VALUES[attribute]
            if value not in values and not (attribute == "freq" and value.startswith("Periodic(")):
                raise BadCommand(f"{place}={value}: say {' or '.join(values)}")
            return node, value
        case "pinned" | "shown" | "requested":
            if value.lower() not in (*_YES, *_NO):
                raise BadCommand(f"{place}={value}: say yes or no")
            return node, value.lower() in _YES
        case _:
            raise BadCommand(f"{place}: expected lod, tokens, pos, mode, freq, pinned or shown")


def with_handles(turn: Turn, nodes: Iterable[NodeBase], policies: Mapping[str, Mapping[str, Any]]) -> Turn:
    """Return `turn` as if its cell had set `policies` (by obj_id) too, with the effect on groups of these handles.

    `shown` in a policy is the effect of `show(h)`. Nothing is changed. Raises BadPolicy, BadCommand.
    """
    for obj_id in policies.keys() - {state.obj_id for state in turn.handles}:
        raise BadCommand(f"%ctx whatif {obj_id}: it is not in the projection yet; run a cell first")
    own = {obj_id: {k: v for k, v in policy.items() if k != "shown"} for obj_id, policy in policies.items()}
    found = suppose(nodes, own)
    states: list[HandleState] = []
    for state in turn.handles:
        node, policy = found.get(state.obj_id), policies.get(state.obj_id, {})
        shown = policy.get("shown", state.requested)
        states.append(state if node is None else handle_state(node, state.name, shown))
    return dataclasses.replace(turn, handles=tuple(states))


def _number(value: str, key: str) -> int:
    if not value.lstrip("-").isdecimal():
        raise BadCommand(f"%ctx whatif {key}={value}: give a whole number")
    return int(value)


def _with_setting(settings: Settings, key: str, value: str) -> Settings:
    if key in ("budget", "projection_tokens"):
        return dataclasses.replace(settings, projection_tokens=_number(value.replace("_", ""), "budget"))
    if key == "model":
        return dataclasses.replace(settings, model=value)
    if key == "dialect":
        return dataclasses.replace(settings, dialect=value)
    raise BadCommand(f"%ctx whatif {key}={value}: what is {key!r}? {USAGE}")


def _supposed_event(ctx: CommandContext, key: str, value: str) -> HistoryEvent:
    if key == "condense":
        if value.lower() not in ("now", *_YES):
            raise BadCommand(f"%ctx whatif condense={value}: say condense=now, or leave it out")
        return CondensationRequest("whatif~condense", "what if")
    made = redaction_of(ctx, event_named(ctx, value), "superseded", "whatif~redact")
    if not isinstance(made, Redaction):
        raise BadCommand(f"%ctx whatif redact={value}: it is redacted already")
    return made
