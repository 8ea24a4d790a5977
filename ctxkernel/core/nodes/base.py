"""What every node is: identity, state, policy, recorded methods.

Rule 1: a method validates before it changes anything, so a refused call leaves the node as it was.
Rule 2: every method that changes state is `recorded`: it goes through the door of the graph.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.events import Delta, Json
from ctxkernel.core.nodes import detached
from ctxkernel.core.nodes.door import NOTHING as NOTHING
from ctxkernel.core.nodes.door import Door as Door
from ctxkernel.core.nodes.policy import LODS as LODS
from ctxkernel.core.nodes.policy import Async as Async
from ctxkernel.core.nodes.policy import Freq as Freq
from ctxkernel.core.nodes.policy import (
    Identified,
    Mode,
    Periodic,
    Sync,
    parse_freq,
    parse_interval,
    parse_lod,
    parse_tokens,
    show_value,
)
from ctxkernel.core.nodes.policy import digest_hash as digest_hash
from ctxkernel.core.nodes.record import ROWS, History, history_of
from ctxkernel.core.ports import All, Budget, Picture, Rendered

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
    """What a tick did to a node: nothing (`delta` is None), or the change."""

    delta: Delta | None = None
    looked: bool = False
    """Its target was another one, though it shows the same: a group, which shows more of it, may differ."""
    notice: str = ""
    """What the user is to know of it, beside the delta feed."""


KINDS: dict[str, type[NodeBase]] = {}
"""The classes of nodes by `obj_type`, for mementos."""


def tick(node: NodeBase, now: float, turn_id: int, tick_kind: str) -> TickResult:
    """What a call of `tick` in a cell does, under the name that its record has."""
    return node._tick(now, turn_id, tick_kind)  # pyright: ignore[reportPrivateUsage]


_NOT_KEPT = frozenset(
    ("last_tick_turn", "last_tick_time", "_stamp", "_called", "_basis", "_set_back", "_accepted", "_memento")
)
"""Attributes that no memento holds: a restored node looks at its target at the next tick, whatever these were."""


_SHOWN = ("text", "tokens", "lod", "pos", "cut_tokens", "next_pos", "fingerprint")
"""What a memento holds of a rendering, beside its notes and its picture."""


class NodeBase(Identified):
    """A node (seed 002 §5.1). Properties set policy, verbs act, both chain with `set(**policy)`."""

    obj_type = "node"
    aliases: Mapping[str, str] = {}

    graph: Door
    serial: int = 0
    statement_id: str = ""
    changed_in: str = ""
    """The statement in whose turn it changed last."""
    last_tick_turn: int = 0
    last_tick_time: float | None = None
    """Unix seconds of the last tick that looked at it, or None."""
    dirty: bool = False
    """Whether the next tick must render it, whatever its source says."""
    revision: int = 0
    """How often its content changed."""
    listens: ClassVar[bool] = False
    """Whether `on_member_changed` is to be called at every change of another node."""
    lasting: bool = False
    """Whether it lives though nobody holds it: a note does, until its last name is deleted."""
    fault: str = ""
    """What went wrong at the last tick, or empty."""
    _memento: Mapping[str, Json] | None = None

    def __init__(self, graph: Door, *, tokens: object, lod: object, mode: object, freq: object) -> None:
        budget, level = parse_tokens(tokens), parse_lod(lod)
        if mode not in (None, "paused", "running"):
            raise BadPolicy(f'mode={mode!r} is not known; use "paused" or "running"')
        if isinstance(freq, str) and freq.strip().lower() == "paused":  # the seed's default value
            freq, mode = None, mode or "paused"
        frequency = parse_freq(freq) if freq is not None else Sync()
        object.__setattr__(self, "graph", graph)
        self._tokens: Budget = budget
        self._lod: int = level
        # A frequency alone means that it shall run: nobody gives one to a node that shall stand still.
        self._mode: Mode = "running" if mode == "running" or (mode is None and freq is not None) else "paused"
        self._freq: Freq = frequency
        self._interval = 1
        self._pinned = False
        self._pin_reason = ""
        self._rendered = Rendered("", 0, level, "")
        self._change = ""

    @classmethod
    def blank(cls, graph: Door, obj_id: str) -> Self:
        """Return a node that has an id and nothing else, for a memento to fill."""
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
        # A misspelt policy (`h.token = 300`) must not pass for a set one.
        if not name.startswith("_") and not hasattr(type(self), name):
            close = difflib.get_close_matches(name, [n for n in dir(type(self)) if n.islower()], 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise AttributeError(f"a {self.obj_type} has no {name!r}{hint}")
        if (graph := self.__dict__.get("graph")) is not None and not graph.owner():
            graph.check_owner(self.obj_id or self.obj_type, name)
        # Ticks set fields to what they are already; only what differs makes another memento.
        if self._memento is not None and name not in _NOT_KEPT and getattr(self, name, None) is not value:
            object.__setattr__(self, "_memento", None)
        object.__setattr__(self, name, value)

    # -- what it is ---------------------------------------------------------------------------

    @property
    def target(self) -> str:
        """What it shows, in one line."""
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
        """The bounded diff of the last change that a tick found, or empty."""
        return self._change

    @property
    def rendered(self) -> Rendered:
        """The rendering as it stands: what the projection would take."""
        return self._rendered

    def render(self, lod: int | None = None, tokens: Budget | None = None) -> Rendered:
        """Return a rendering at another level or budget; changes nothing. Raises BadPolicy."""
        raise NotImplementedError

    def render_part(self, lod: int, tokens: Budget) -> Rendered:
        """Return the rendering that a group shows of it: text only, a group has no pictures."""
        return self.render(lod, tokens)

    def _fetch(self) -> None:
        """Have the target itself looked at, where what is known of it is kept elsewhere."""

    def _update(self) -> bool:
        """Render anew. Returns whether the content differs from the last rendering."""
        changed = self._show(self.render())
        self.dirty = False
        return changed

    def _show(self, new: Rendered) -> bool:
        """Show a rendering from now on. Returns whether its content differs from what was shown."""
        old, self._rendered = self._rendered, new
        changed = (old.text, old.fingerprint) != (new.text, new.fingerprint)
        self.revision += changed
        return changed

    def on_member_changed(self, member: NodeBase) -> None:
        """Called on every node that `listens` when `member` changed; groups mark themselves dirty."""

    def tick(self, now: float, turn_id: int, tick_kind: str) -> TickResult:
        """Bring it up to date if its target changed: unix seconds, number of the turn, `sync`, `periodic` or `async`.

        The scheduler calls it in its tick; called in a cell it is recorded like any other method.
        """
        if self.graph.ticking:
            return self._tick(now, turn_id, tick_kind)
        return self.graph.call(self, tick, (now, turn_id, tick_kind), {})

    def _tick(self, now: float, turn_id: int, tick_kind: str) -> TickResult:
        raise NotImplementedError

    def history(self, limit: object = ROWS) -> History:
        """Return what was done to it on the way to HEAD: method calls and changes by ticks, the last `limit`.

        Raises BadPolicy for a limit below 1.
        """
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise BadPolicy(f"history({show_value(limit)!r}): how many rows? Use a whole number from 1")
        return history_of(self.obj_id, self.graph.events(), limit)

    def basis(self, kind: str = "render") -> dict[str, str]:
        """Return what a payload of this kind must have been made from to be applied (seed 002 §6.2)."""
        raise NotImplementedError

    # -- going back ---------------------------------------------------------------------------

    @property
    def looks_at(self) -> object:
        """The Python object that it looks at, or a path as text; NOTHING for a group, and where the target is lost."""
        return NOTHING

    def memento(self) -> Mapping[str, Json]:
        """Return its state as JSON values, the same object until it changes. Not to be written to."""
        if self._memento is None:
            object.__setattr__(self, "_memento", self._state())  # no change of state: any thread may look
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
        """Become what `memento` says. For `Graph.restore` only; raises what a damaged one raises."""
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
        """Open what it looks at, `target()`, anew if it is another one. Returns why that failed, or empty."""
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
        """`paused` (changes by calls only) or `running` (the tick updates it too)."""
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
        """When it is updated while it runs: `Sync`, `Periodic(seconds)` or `Async`."""
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
        """Whether the projection keeps it before others."""
        return self._pinned

    @property
    def pin_reason(self) -> str:
        """Why it is pinned, in the user's words."""
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
        """Return a stand-in as this node would be if the open, or last, statement had set `policy` too.

        `policy` is what `set` takes, and `pinned`; `instead` has stand-ins of other nodes by obj_id. This node stays as
        it is, nothing is recorded, and no list of nodes has the stand-in. Raises BadPolicy.
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
        """Return what `set` takes."""
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
        """Look again and render anew, now. Chains."""
        self._fetch()
        self._update()
        self.dirty = False
        return self

    @recorded
    def run(self, freq: object = None) -> Self:
        """Let ticks update it: `Sync` (the default), ("Periodic", seconds) or "Async". Chains."""
        if freq is not None:
            self._freq = parse_freq(freq)
        self._mode = "running"
        return self

    @recorded
    def pause(self) -> Self:
        """Keep what it shows now, until a call changes it. Chains."""
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

    # A handle is one node of one graph: a copy would have its id, and the state of nobody. A pickle refers to it.

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


ALIASES = {
    "GetDigest": "digest",
    "Render": "render",
    "SetLod": "set_lod",
    "SetTokens": "set_tokens",
    "SetPos": "set_pos",
    "Scroll": "scroll",
    "Refresh": "refresh",
    "Run": "run",
    "Pause": "pause",
    "Tick": "tick",
    "History": "history",
    "Add": "add",
    "Remove": "remove",
    "OnMemberChanged": "on_member_changed",
}
"""The seed's CamelCase spellings, each another name of one method."""
