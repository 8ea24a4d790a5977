"""`%ctx whatif`: the projection with other policies, settings or events. Nothing is applied."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.nodes import NodeBase, ViewHandle
from ctxkernel.core.nodes.handle_states import handle_state, suppose
from ctxkernel.core.ports import All
from ctxkernel.core.report import Report
from ctxkernel.core.settings import Settings
from ctxkernel.core.turn_values import HandleState, Turn
from ctxkernel.history.events import CondensationRequest, HistoryEvent, Pin, Redaction, Withdrawal
from ctxkernel.kernel.commands.context import CommandContext, split_flags
from ctxkernel.kernel.commands.history import event_named, left_out_event, redaction_of
from ctxkernel.kernel.commands.inspection import comparison_report
from ctxkernel.projection.compare import compare_projections
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.prefix import common, prefix_break
from ctxkernel.projection.value import Projection

if TYPE_CHECKING:
    from ctxkernel.kernel.messages import projection as messages

USAGE = (
    "%ctx whatif HANDLE.lod=1 HANDLE.tokens=300 HANDLE.pinned=yes budget=64000 image_tokens=0 model=NAME private=NAME "
    "redact=s12 leave=s12 pin=s12 unpin=s12 condense=now withdraw=s14.1:1"
)
SUPPOSED_VALUES = {
    "lod": ("0", "1", "2", "3"),
    "tokens": ("All", "300", "1000"),
    "mode": ("paused", "running"),
    "freq": ("Sync", "Async", "Periodic"),
    "pinned": ("yes", "no"),
    "shown": ("yes", "no"),
}
"""Values for the completion of a handle's policy."""
SUPPOSED_SETTINGS = (
    *("budget=", "image_tokens=", "model=", "dialect=", "private="),
    *("redact=", "leave=", "pin=", "unpin=", "condense=now", "withdraw="),
)
MOST_CHANGES = 12
"""Most changes of one request for prices."""
_EVENTS = frozenset(("redact", "leave", "pin", "unpin", "condense", "withdraw"))
_MOST_ERROR = 300
_YES, _NO = ("1", "yes", "true", "on"), ("0", "no", "false", "off")


@dataclass(frozen=True, slots=True)
class Supposition:
    """Changes that are supposed together."""

    settings: Settings
    policies: Mapping[str, Mapping[str, Any]]
    """By obj_id."""
    events: Sequence[HistoryEvent]
    private: frozenset[str]

    def only_handles(self, settings: Settings) -> bool:
        """Return whether nothing but handles differs: an engine with `settings` can project several of these."""
        return not (self.private or self.events) and self.settings == settings


def whatif(ctx: CommandContext, args: Sequence[str]) -> str | Report:
    """Compare the projection with one under other policies, settings or events; nothing is applied."""
    flags, rest = split_flags(args)
    if not rest:
        raise BadCommand(f"%ctx whatif: give at least one change; {USAGE}")
    supposed, old = _supposition(ctx, rest), ctx.projection()
    new = _projected(ctx, supposed, _engine(ctx, supposed))
    found = compare_projections(old, new)
    if "--json" in flags:
        return json.dumps(found.to_json(), indent=1)
    report = comparison_report(found, "now", " ".join(rest), old.tokens, new.tokens)
    return Report(*report.parts, *(f"red: {one.told()}" for one in new.violations), "nothing was applied")


def prices(ctx: CommandContext, changes: Sequence[str]) -> messages.Prices:
    """Return the effect of each change on the next request, each supposed alone; nothing is applied.

    A change is a line of words as for `%ctx whatif`. Raises BadCommand if there is no projection.
    """
    old, shared = ctx.projection(), None
    made: list[messages.Price] = []
    for change in changes[:MOST_CHANGES]:
        try:
            supposed = _supposition(ctx, shlex.split(change))
            if supposed.only_handles(ctx.settings):
                engine = shared = shared or _engine(ctx, supposed)
            else:  # an engine follows records that are added, not records that are replaced
                engine = _engine(ctx, supposed)
            made.append(_price(change, old, _projected(ctx, supposed, engine)))
        except (CtxError, ValueError) as fault:
            made.append(_no_price(change, str(fault), old))
    return {"prices": made}


def _price(change: str, old: Projection, new: Projection) -> messages.Price:
    shared = common(old, new)
    broke = prefix_break(old, new, shared)
    return {
        "change": change,
        "error": None,
        "tokens": new.tokens - old.tokens,
        "total": new.tokens,
        "budget": new.budget,
        "before": cast("messages.Cost", old.cost_with(old.count).to_json()),
        "after": cast("messages.Cost", new.cost_with(-1 if broke and broke.block == "system" else shared).to_json()),
        "rewritten": broke.tokens if broke is not None else 0,
        "violations": len(new.violations),
    }


def _no_price(change: str, error: str, old: Projection) -> messages.Price:
    return {
        "change": change,
        "error": error[:_MOST_ERROR],
        "tokens": 0,
        "total": old.tokens,
        "budget": old.budget,
        "before": None,
        "after": None,
        "rewritten": 0,
        "violations": 0,
    }


def _supposition(ctx: CommandContext, words: Sequence[str]) -> Supposition:
    """Return what the words of a `%ctx whatif` line suppose. Raises BadCommand."""
    settings = ctx.settings
    events: list[HistoryEvent] = []
    policies: dict[str, dict[str, Any]] = {}
    private: set[str] = set()
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not value:
            raise BadCommand(f"%ctx whatif {word}: write NAME=VALUE; {USAGE}")
        name, dot, attribute = key.rpartition(".")
        if dot:
            node, meant = _handle_policy(ctx, name, attribute, value)
            # `h.lod=1 h.tokens=300` is one policy.
            policies.setdefault(node.obj_id, {})["shown" if attribute == "requested" else attribute] = meant
        elif key in _EVENTS:
            events.append(_supposed_event(ctx, key, value))
        elif key == "private":
            private.add(value)
        else:
            settings = _with_setting(settings, key, value)
    return Supposition(settings, policies, events, frozenset(private))


def _engine(ctx: CommandContext, supposed: Supposition) -> ProjectionEngine:
    try:
        return ctx.configuration.built(supposed.settings, supposed.private)
    except CtxError as fault:
        raise BadCommand(str(fault)) from None


def _projected(ctx: CommandContext, supposed: Supposition, engine: ProjectionEngine) -> Projection:
    """Return the projection of the newest turn under what is supposed. Raises BadCommand, BadPolicy."""
    turn = ctx.loop.state
    if supposed.policies:
        turn = with_handles(turn, ctx.loop.graph.nodes(), supposed.policies)
    if supposed.events and turn.history:
        turn = _with_events(turn, supposed.events)
        turn = _with_events(turn, [one for one in engine.tend(turn) if not isinstance(one, str)])
    return engine.project(turn)


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
    if key == "image_tokens":
        return dataclasses.replace(settings, image_tokens=max(0, _number(value.replace("_", ""), key)))
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
    if key == "withdraw":
        if not any(one.event_id == value for one in ctx.past.events):
            raise BadCommand(f"%ctx whatif withdraw={value}: there is no such redaction or condensation")
        return Withdrawal("whatif~withdraw", value, "what if")
    if key in ("pin", "unpin"):
        return Pin("whatif~pin", event_named(ctx, value), key == "pin")
    if key == "leave":
        return left_out_event(ctx, event_named(ctx, value), "whatif~leave")
    made = redaction_of(ctx, event_named(ctx, value), "superseded", "whatif~redact")
    if not isinstance(made, Redaction):
        raise BadCommand(f"%ctx whatif redact={value}: it is redacted already")
    return made
