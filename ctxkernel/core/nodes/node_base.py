"""The base class of nodes: identity, state, policy, recorded methods.

Rule 1: a method validates before it changes anything, so a refused call changes nothing.
Rule 2: every method that changes state is `recorded`: it goes through `Graph.call`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadAttribute, BadPolicy
from ctxkernel.core.nodes import detached
from ctxkernel.core.nodes.graph_base import NOTHING as NOTHING
from ctxkernel.core.nodes.graph_base import GraphBase as GraphBase
from ctxkernel.core.nodes.handle_history import ROWS, HandleHistory, history_of
from ctxkernel.core.nodes.observed import Observed
from ctxkernel.core.nodes.policy import (
    ALIASES,
    Mode,
    Periodic,
    Sync,
    parse_freq,
    parse_interval,
    parse_lod,
    parse_tokens,
    show_value,
)
from ctxkernel.core.nodes.policy import LODS as LODS
from ctxkernel.core.nodes.policy import Async as Async
from ctxkernel.core.nodes.policy import Freq as Freq
from ctxkernel.core.nodes.policy import digest_hash as digest_hash
from ctxkernel.core.ports import All, Budget, Picture, Rendered
from ctxkernel.core.timeline_events import Delta, Json

P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N", bound="NodeBase")


def recorded(method: Callable[Concatenate[N, P], R]) -> Callable[Concatenate[N, P], R]:
    """Send calls of `method` through `Graph.call`, so that each is checked and recorded."""

    @functools.wraps(method)
    def wrapper(self: N, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.graph.call(self, method, args, kwargs)

    return wrapper


@dataclass(frozen=True, slots=True)
class TickResult:
    """The result of a tick of one node: the change, or None."""

    delta: Delta | None = None
    looked: bool = False
    """Whether its target changed though its text did not: a group may show more of the target."""
    notice: str = ""
    """A notice for the user, beside the delta feed."""


KINDS: dict[str, type[NodeBase]] = {}
"""The classes of nodes by `obj_type`, for mementos."""


def tick(node: NodeBase, now: float, turn_id: int, tick_kind: str) -> TickResult:
    """Run a tick of `node`: a call of `NodeBase.tick` in a cell is recorded under the name of this function."""
    return node._tick(now, turn_id, tick_kind)  # pyright: ignore[reportPrivateUsage]


_NOT_KEPT = frozenset(
    ("last_tick_turn", "last_tick_time", "_stamp", "_called", "_basis", "_set_back", "_accepted", "_memento")
) | {"question", "_facts", "_seen", "_was_seen"}
"""Attributes that are not in mementos: a restored node checks its target at the next tick in any case."""


_SHOWN = ("text", "tokens", "lod", "pos", "cut_tokens", "next_pos", "fingerprint")
"""The fields of a rendering in a memento, beside notes and picture."""


class NodeBase(Observed):
    """A node (seed 002 §5.1). Properties set policy, verbs act, both chain with `set(**policy)`."""

    obj_type = "node"
    aliases: Mapping[str, str] = {}

    graph: GraphBase
    serial: int = 0
    statement_id: str = ""
    changed_in: str = ""
    """The statement of its last change."""
    last_tick_turn: int = 0
    last_tick_time: float | None = None
    """Unix seconds of the last tick that checked it, or None."""
    dirty: bool = False
    """Whether the next tick must render it even if its source is unchanged."""
    revision: int = 0
    """The number of changes of its content."""
    listens: ClassVar[bool] = False
    """Whether `on_member_changed` is called at every change of another node."""
    lasting: bool = False
    """Whether the graph keeps it alive: a note, until its last name is deleted."""
    fault: str = ""
    """The failure of the last tick, or empty."""
    _memento: Mapping[str, Json] | None = None

    def __init__(self, graph: GraphBase, *, tokens: object, lod: object, mode: object, freq: object) -> None:
        budget, level = parse_tokens(tokens), parse_lod(lod)
        if mode not in (None, "paused", "running"):
            raise BadPolicy(f'mode={mode!r} is not known; use "paused" or "running"')
        if isinstance(freq, str) and freq.strip().lower() == "paused":  # the seed's default value
            freq, mode = None, mode or "paused"
        frequency = parse_freq(freq) if freq is not None else Sync()
        object.__setattr__(self, "graph", graph)
        self._tokens: Budget = budget
        self._lod: int = level
        # A frequency alone sets it running.
        self._mode: Mode = "running" if mode == "running" or (mode is None and freq is not None) else "paused"
        self._freq: Freq = frequency
        self._interval = 1
        self._pinned = False
        self._pin_reason = ""
        self._rendered = Rendered("", 0, level, "")
        self._change = ""

    @classmethod
    def blank(cls, graph: GraphBase, obj_id: str) -> Self:
        """Return a node with an id and nothing else; `take` fills it from a memento."""
        node = cls.__new__(cls)
        NodeBase.__init__(node, graph, tokens=1, lod=0, mode="paused", freq=None)
        node.obj_id = obj_id
        return node

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "obj_type" in cls.__dict__:
            KINDS[cls.obj_type] = cls
        for alias, name in {**ALIASES, **cls.aliases}.items():
            if hasattr(cls, name):
                setattr(cls, alias, getattr(cls, name))

    def __setattr__(self, name: str, value: object) -> None:
        # A misspelt policy (`h.token = 300`) must raise.
        if not name.startswith("_") and not hasattr(type(self), name):
            close = difflib.get_close_matches(name, [n for n in dir(type(self)) if n.islower()], 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise BadAttribute(f"a {self.obj_type} has no {name!r}{hint}")
        if (graph := self.__dict__.get("graph")) is not None and not graph.owner():
            graph.check_owner(self.obj_id or self.obj_type, name)
        # Ticks set fields to equal values; only a difference makes the memento invalid.
        if self._memento is not None and name not in _NOT_KEPT and getattr(self, name, None) is not value:
            object.__setattr__(self, "_memento", None)
        object.__setattr__(self, name, value)

    # -- reading ---------------------------------------------------------------------------

    @property
    def target(self) -> str:
        """The target, in one line."""
        raise NotImplementedError

    def digest(self) -> dict[str, Json]:
        """Return a small JSON digest of identity, state and policy."""
        return {
            "obj_id": self.obj_id,
            "obj_type": self.obj_type,
            "target": self.target,
            "mode": self._mode,
            "freq": str(self._freq),
            "min_turn_interval": self._interval,
            "lod": self._lod,
            "tokens": show_value(self._tokens),
            "pinned": self._pinned,
            "revision": self.revision,
            "rendered_tokens": self._rendered.tokens,
            "fingerprint": self._rendered.fingerprint,
        }

    @property
    def last_change(self) -> str:
        """The bounded diff of the last change found by a tick, or empty."""
        return self._change

    @property
    def rendered(self) -> Rendered:
        """The current rendering, which the projection uses."""
        return self._rendered

    def render(self, lod: int | None = None, tokens: Budget | None = None) -> Rendered:
        """Return a rendering at another level or budget. Changes nothing. Raises BadPolicy."""
        raise NotImplementedError

    def render_part(self, lod: int, tokens: Budget) -> Rendered:
        """Return its rendering in a group: text only, since a group has no pictures."""
        return self.render(lod, tokens)

    def _fetch(self) -> None:
        """Renew the copy of the target, where the source keeps one."""

    def _update(self) -> bool:
        """Render again; return whether the content differs from the last rendering."""
        changed = self._show(self.render())
        self.dirty = False
        return changed

    def _show(self, new: Rendered) -> bool:
        """Replace the rendering; return whether the content differs."""
        old, self._rendered = self._rendered, new
        changed = (old.text, old.fingerprint) != (new.text, new.fingerprint)
        self.revision += changed
        return changed

    def on_member_changed(self, member: NodeBase) -> None:
        """React to a change of `member`. The graph calls it on every node that `listens`."""

    def tick(self, now: float, turn_id: int, tick_kind: str) -> TickResult:
        """Update it if its target changed; `now` is in Unix seconds, `tick_kind` is `sync`, `periodic` or `async`.

        The scheduler calls it in its tick; a call in a cell is recorded like any other method.
        """
        if self.graph.ticking:
            return self._tick(now, turn_id, tick_kind)
        return self.graph.call(self, tick, (now, turn_id, tick_kind), {})

    def _tick(self, now: float, turn_id: int, tick_kind: str) -> TickResult:
        return TickResult()

    def history(self, limit: object = ROWS) -> HandleHistory:
        """Return its history on the path to HEAD: the last `limit` method calls and changes by ticks.

        Raises BadPolicy for a limit below 1.
        """
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise BadPolicy(f"history({show_value(limit)!r}): how many rows? Use a whole number from 1")
        return history_of(self.obj_id, self.graph.events(), limit)

    # -- mementos ---------------------------------------------------------------------------

    @property
    def looks_at(self) -> object:
        """The target: a Python object, or a path as text; NOTHING for a group, and where the target is lost."""
        return NOTHING

    def memento(self) -> Mapping[str, Json]:
        """Return its state as JSON values, the same object until it changes. Do not change the result."""
        if self._memento is None:
            object.__setattr__(self, "_memento", self._state())  # no change of state: any thread may do it
        return cast("Mapping[str, Json]", self._memento)

    def _state(self) -> dict[str, Json]:
        shown, freq = self._rendered, self._freq
        return {
            "obj_id": self.obj_id,
            "obj_type": self.obj_type,
            "serial": self.serial,
            "statement_id": self.statement_id,
            "changed_in": self.changed_in,
            "min_turn_interval": self._interval,
            "dirty": self.dirty,
            "revision": self.revision,
            "fault": self.fault,
            "lod": self._lod,
            "tokens": show_value(self._tokens),
            "mode": self._mode,
            "freq": ["Periodic", freq.seconds] if isinstance(freq, Periodic) else str(freq),
            "pinned": self._pinned,
            "pin_reason": self._pin_reason,
            "change": self._change,
            "rendered": {
                **{name: getattr(shown, name) for name in _SHOWN},
                "notes": list(shown.notes),
                "picture": None if shown.picture is None else dataclasses.asdict(shown.picture),
            },
        }

    def take(self, memento: Mapping[str, Json]) -> None:
        """Set the state of `memento`. Only `Graph.restore` calls it. Raises for a damaged memento."""
        self.graph.check_open(self.obj_id, "take")
        tokens, shown = memento["tokens"], memento["rendered"]
        budget = All if tokens == str(All) else parse_tokens(tokens)
        lod, freq = parse_lod(memento["lod"]), parse_freq(memento["freq"])
        picture = Picture(**found) if (found := shown.get("picture")) else None
        rendered = Rendered(**{name: shown[name] for name in _SHOWN}, notes=tuple(shown["notes"]), picture=picture)
        self._tokens, self._lod, self._freq, self._rendered = budget, lod, freq, rendered
        self._mode = "running" if memento["mode"] == "running" else "paused"
        self._pinned, self._pin_reason, self._change = memento["pinned"], memento["pin_reason"], memento["change"]
        self._interval = memento["min_turn_interval"]
        for name in ("serial", "statement_id", "changed_in", "dirty", "revision", "fault"):
            setattr(self, name, memento[name])
        self.last_tick_turn, self.last_tick_time = 0, None

    def look_again(self, memento: Mapping[str, Json], target: Callable[[], object]) -> str:
        """Open the target `target()` if it differs from the present one; return why that failed, or empty."""
        return ""

    # -- policy -------------------------------------------------------------------------------

    @property
    def lod(self) -> int:
        """Level of detail: 0 raw excerpt, 1 structure, 2 summary, 3 diff."""
        return self._lod

    @lod.setter
    def lod(self, value: int) -> None:
        self.set(lod=value)

    @property
    def tokens(self) -> Budget:
        """Budget of the rendering in estimated tokens, from 1, or `All`."""
        return self._tokens

    @tokens.setter
    def tokens(self, value: Budget) -> None:
        self.set(tokens=value)

    @property
    def mode(self) -> Mode:
        """`paused` (only calls change it) or `running` (the tick updates it too)."""
        return self._mode

    @mode.setter
    def mode(self, value: Mode) -> None:
        if value == "running":
            self.run()
        elif value == "paused":
            self.pause()
        else:
            raise BadPolicy(f'mode={value!r} is not known; use "paused" or "running"')

    @property
    def freq(self) -> Freq:
        """When it is updated while it is running: `Sync`, `Periodic(seconds)` or `Async`."""
        return self._freq

    @freq.setter
    def freq(self, value: object) -> None:
        self.run(freq=value)

    @property
    def min_turn_interval(self) -> int:
        """Turns from one Sync update to the next, from 1."""
        return self._interval

    @min_turn_interval.setter
    def min_turn_interval(self, value: int) -> None:
        self.set(min_turn_interval=value)

    @property
    def pinned(self) -> bool:
        """Return whether the projection keeps it before others."""
        return self._pinned

    @property
    def pin_reason(self) -> str:
        """The user's reason for pinning it."""
        return self._pin_reason

    @recorded
    def set(self, **policy: Any) -> Self:
        """Set any of lod, tokens, mode, freq, min_turn_interval (of a view pos) at once. Raises BadPolicy; chains."""
        self._set(policy)
        return self

    def _set(self, policy: dict[str, Any]) -> None:
        unknown = policy.keys() - self.settable()
        if unknown:
            known = ", ".join(sorted(self.settable()))
            raise BadPolicy(f"{self.obj_id} has no policy {', '.join(sorted(unknown))}; it has {known}")
        lod = parse_lod(policy["lod"]) if "lod" in policy else self._lod
        tokens = parse_tokens(policy["tokens"]) if "tokens" in policy else self._tokens
        freq = parse_freq(policy["freq"]) if policy.get("freq") is not None else self._freq
        mode = policy.get("mode") or ("running" if policy.get("freq") is not None else self._mode)
        if mode not in ("paused", "running"):
            raise BadPolicy(f'mode={mode!r} is not known; use "paused" or "running"')
        interval = parse_interval(policy.get("min_turn_interval", self._interval))
        before = vars(self).copy()
        self._lod, self._tokens, self._freq, self._mode, self._interval = lod, tokens, freq, mode, interval
        try:
            if (lod, tokens) != (before["_lod"], before["_tokens"]) or "pos" in policy:
                self._update()
        except BaseException:
            vars(self).update(before)
            raise

    def supposed(self, policy: Mapping[str, Any], instead: Mapping[str, NodeBase]) -> Self:
        """Return a copy of this node as if the open, or last, statement had set `policy` too.

        `policy` has the keys of `set`, and `pinned`; `instead` maps obj_id to such copies of other nodes. This node
        does not change, nothing is recorded, and no list of nodes contains the copy. Raises BadPolicy.
        """
        twin = self._stand_in(instead)
        rest = {name: value for name, value in policy.items() if name != "pinned"}
        if "pinned" in policy and bool(policy["pinned"]) != self._pinned:
            twin._pinned, twin._pin_reason = bool(policy["pinned"]), ""
        if rest:
            twin._set(rest)
        if twin.digest() != self.digest():
            twin.changed_in = self.graph.statement_id
        return twin

    def _stand_in(self, instead: Mapping[str, NodeBase]) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        object.__setattr__(twin, "_memento", None)
        return twin

    def settable(self) -> frozenset[str]:
        """Return the names that `set` takes."""
        return frozenset(("lod", "tokens", "mode", "freq", "min_turn_interval"))

    def set_lod(self, lod: int) -> Self:
        """Set the level of detail, 0 to 3. Chains."""
        return self.set(lod=lod)

    def set_tokens(self, tokens: Budget) -> Self:
        """Set the token budget, from 1, or `All`. Chains."""
        return self.set(tokens=tokens)

    # -- verbs --------------------------------------------------------------------------------

    @recorded
    def refresh(self) -> Self:
        """Read the target and render it again, now. Chains."""
        self._fetch()
        self._update()
        self.dirty = False
        return self

    @recorded
    def run(self, freq: object = None) -> Self:
        """Let ticks update it: "Sync" (the default), "Periodic", ("Periodic", seconds) or "Async". Chains."""
        if freq is not None:
            self._freq = parse_freq(freq)
        self._mode = "running"
        return self

    @recorded
    def pause(self) -> Self:
        """Keep the present rendering until a call changes it. Chains."""
        self._mode = "paused"
        return self

    @recorded
    def pin(self, reason: str = "") -> Self:
        """Keep it in the projection before others. Chains."""
        self._pinned, self._pin_reason = True, str(reason)[:200]
        return self

    @recorded
    def unpin(self) -> Self:
        """End `pin`. Chains."""
        self._pinned, self._pin_reason = False, ""
        return self

    # A handle is one node of one graph, so a copy is the handle itself; a pickle is a reference.

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return detached.put(self.graph.session, self.obj_id, self.obj_type, self.target, self._rendered.text)

    def __repr__(self) -> str:
        budget = self._tokens
        state = f"running {self._freq}" if self._mode == "running" else "paused"
        return (
            f"<{self.obj_type} {self.obj_id} {self.target} lod={self._lod} tokens={budget} {state} "
            f"~{self._rendered.tokens} tokens>"
        )
