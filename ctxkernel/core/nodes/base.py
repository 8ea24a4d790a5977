"""What every node is: identity, state, policy, recorded methods. And the graph that nodes live in.

Rule 1: node state changes in a statement or a tick, nowhere else (law 1); `Graph.call` is the one door.
Rule 2: a method validates before it changes anything, so a refused call leaves the node as it was.
Rule 3: every call through the door is a MethodCalled with the digests before and after it.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Concatenate, Final, Literal, ParamSpec, Self, TypeVar, cast

from ctxkernel.core.errors import BadPolicy, NotPicklable, OutsideTurn
from ctxkernel.core.events import Delta, Event, EventBus, Json, MethodCalled, NodeChanged
from ctxkernel.core.ports import All, AllTokens, Budget, CountTokens, OpenSource, Rendered, Trim
from ctxkernel.core.settings import Settings

Mode = Literal["paused", "running"]
LODS = {0: "raw excerpt", 1: "structure", 2: "summary", 3: "diff"}
_BASES = 64
"""So many bases of diffs are kept for views that may be set back."""


@dataclass(frozen=True, slots=True)
class Sync:
    """Updated once a turn."""

    def __str__(self) -> str:
        return "Sync"


@dataclass(frozen=True, slots=True)
class Periodic:
    """Updated at the first tick at which `seconds` have passed since the last update."""

    seconds: float

    def __str__(self) -> str:
        return f"Periodic({self.seconds:g})"


@dataclass(frozen=True, slots=True)
class Async:
    """Prepared in the background, applied by the tick."""

    def __str__(self) -> str:
        return "Async"


Freq = Sync | Periodic | Async


def parse_freq(freq: object) -> Freq:
    """Return the frequency for "Sync", "Async", ("Periodic", s), "Periodic(s)", or one as it is.

    Raises BadPolicy for anything else, and for a period that is not above 0 seconds.
    """
    if isinstance(freq, Periodic):
        return parse_freq(("Periodic", freq.seconds))
    if isinstance(freq, Sync | Async):
        return freq
    if isinstance(freq, str):
        name = freq.strip()
        if name.lower() == "sync":
            return Sync()
        if name.lower() == "async":
            return Async()
        if name.lower().startswith("periodic(") and name.endswith(")"):
            freq = ("Periodic", name[len("periodic(") : -1])
    pair = list(cast("Sequence[Any]", freq)) if isinstance(freq, tuple | list) else []
    if len(pair) == 2 and str(pair[0]).lower() == "periodic":
        try:
            seconds = float(pair[1])
        except (TypeError, ValueError):
            seconds = 0.0
        if seconds > 0:
            return Periodic(seconds)
    raise BadPolicy(f'freq={freq!r} is not known; use "Sync", ("Periodic", seconds above 0) or "Async"')


def parse_lod(lod: object) -> int:
    """Return a level of detail, 0 to 3. Raises BadPolicy."""
    if isinstance(lod, int) and not isinstance(lod, bool) and lod in LODS:
        return lod
    ladder = ", ".join(f"{level} {name}" for level, name in LODS.items())
    raise BadPolicy(f"lod={lod!r} is not a level of detail; use {ladder}")


def parse_tokens(tokens: object) -> Budget:
    """Return a token budget: an int from 1, or `All`. Raises BadPolicy."""
    if isinstance(tokens, AllTokens):
        return tokens
    if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 1:
        return tokens
    raise BadPolicy(f"tokens={tokens!r} is not a budget; use a whole number from 1, or All")


def digest_hash(digest: Mapping[str, Json]) -> str:
    """Return 16 hex digits that differ where the digest differs."""
    text = json.dumps(digest, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


P = ParamSpec("P")
R = TypeVar("R")
N = TypeVar("N", bound="NodeBase")


def recorded(method: Callable[Concatenate[N, P], R]) -> Callable[Concatenate[N, P], R]:
    """Send calls of `method` through `Graph.call`, so that each is checked and recorded."""

    @functools.wraps(method)
    def wrapper(self: N, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.graph.call(self, method, args, kwargs)

    return wrapper


class Graph:
    """The nodes of a session, the door to their state, and the bus for what happens to them."""

    def __init__(
        self,
        *,
        settings: Settings,
        bus: EventBus,
        open_source: OpenSource,
        count_tokens: CountTokens,
        trim: Trim,
        owner: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings = settings
        self.owner = owner
        """Says whether the caller is on the thread that may change nodes; core knows none."""
        self.bus = bus
        self.open_source = open_source
        self.count_tokens = count_tokens
        self.trim = trim
        # Weak: a handle lives as long as the user (or a group, or Out) holds it, not longer.
        self._nodes: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        self._aside: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        self._listening: weakref.WeakValueDictionary[str, NodeBase] = weakref.WeakValueDictionary()
        """Those of the nodes that want to hear of others: a thousand changed views must not cost a million calls."""
        self._held: dict[str, NodeBase] = {}
        self._bases: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._counts: dict[str, int] = {}
        self._door: str | None = None
        self._calls: list[NodeBase] = []
        self.statement_id = ""
        self.requested: set[str] = set()
        self.restores = 0
        """How often `restore` was called: what was prepared before is stale after."""

    def nodes(self) -> list[NodeBase]:
        """The living nodes, in the order of their creation."""
        if not self._nodes:  # most notebooks, most of the time; asked several times a cell
            return []
        return sorted(self._nodes.values(), key=lambda node: node.serial)

    def node(self, obj_id: str) -> NodeBase | None:
        """The living node of that id, one that is held to be restored included, or None."""
        return self._nodes.get(obj_id) or self._held.get(obj_id)

    def adopt(self, node: NodeBase) -> None:
        """Give a new node its identity. Raises OutsideTurn."""
        self.check_open(node.obj_type, "new")
        number = self._counts.get(node.obj_type, 0) + 1
        self._counts[node.obj_type] = number
        node.obj_id = f"{node.obj_type[0]}{number}"
        node.serial = sum(self._counts.values())
        node.statement_id = self.statement_id
        self._add(node)

    def _add(self, node: NodeBase) -> None:
        self._nodes[node.obj_id] = node
        if type(node).on_member_changed is not NodeBase.on_member_changed:
            self._listening[node.obj_id] = node

    # -- going back ---------------------------------------------------------------------------

    @property
    def counts(self) -> Mapping[str, int]:
        """How many nodes of each type were ever made: the numbers of their newest ids. They never go back."""
        return dict(self._counts)

    def continue_after(self, counts: Mapping[str, int]) -> None:
        """Give no new node an id that these counts cover: another branch, or an earlier kernel, has it."""
        for obj_type, count in counts.items():
            self._counts[obj_type] = max(self._counts.get(obj_type, 0), count)

    def memento(self) -> Mapping[str, Mapping[str, Json]]:
        """Return the state of each living node by its id, as JSON values (see `nodes.memento`).

        An unchanged node gives the same object again, so that it can be told by identity.
        """
        return {node.obj_id: node.memento() for node in self.nodes()}

    def targets(self) -> Mapping[str, object]:
        """Return by obj_id what each living view looks at: the Python object, or the path as text.

        A view whose target is lost has none. (A path is in the view's memento too.)
        """
        found = {node.obj_id: node.looks_at for node in self.nodes()}
        return {obj_id: target for obj_id, target in found.items() if target is not NOTHING}

    def revive(self, mementos: Mapping[str, Mapping[str, Json]]) -> list[str]:
        """Let `node(obj_id)` give a node for each memento until `release`, blank where none lived; returns notices.

        For whoever unpickles objects that hold handles, before `restore` is told what the handles look at. It changes
        no node: the blank ones are no part of `nodes()` before `restore`.
        """
        from ctxkernel.core.nodes import memento

        with self.opened("tick"):
            return memento.revive(self, mementos)

    def restore(self, mementos: Mapping[str, Mapping[str, Json]], targets: Callable[[str], object]) -> list[str]:
        """Bring the nodes to the state of `mementos`, in place where they live; returns notices.

        `targets(obj_id)` gives the object that a view looks at, and may raise (a path stands in the memento, so it is
        not asked for one): a target that is not there leaves the view with what it showed and a fault. New nodes are
        held until `release`. Other living nodes stand aside: they are whoever's holds them, and no part of the
        timeline until they are called or restored.
        """
        from ctxkernel.core.nodes import memento

        with self.opened("tick"):
            self.restores += 1
            return memento.restore(self, mementos, targets)

    def release(self) -> None:
        """Hold restored nodes no longer: by now a name, a group or a list does, or nobody."""
        self._held = {}

    def aside(self, obj_id: str) -> NodeBase | None:
        """The node of that id that stands aside, or None."""
        return self._aside.get(obj_id)

    def rejoin(self, node: NodeBase) -> None:
        """Let a node that stands aside be one of the nodes again: the user has it, and uses it."""
        if node.obj_id not in self._nodes:
            self._add(node)
            self._aside.pop(node.obj_id, None)

    def hold(self, node: NodeBase) -> None:
        """Keep a node alive until `release`."""
        self._held[node.obj_id] = node

    def replace(self, nodes: Sequence[NodeBase]) -> None:
        """Make these the nodes; all others stand aside. For `restore` only."""
        stay = {node.obj_id: node for node in nodes}
        for node in list(self._nodes.values()):
            if node.obj_id not in stay:
                self._aside[node.obj_id] = node
        self._nodes, self._listening = weakref.WeakValueDictionary(), weakref.WeakValueDictionary()
        for node in nodes:
            self._add(node)
            self._aside.pop(node.obj_id, None)
            if node.obj_id[1:].isdecimal():
                self.continue_after({node.obj_type: int(node.obj_id[1:])})

    def keep_basis(self, key: tuple[Any, ...], basis: object) -> None:
        """Keep what a view compares with at level 3, for when it is set back to this state."""
        self._bases[key] = basis
        self._bases.move_to_end(key)
        if len(self._bases) > _BASES:
            self._bases.popitem(last=False)

    def kept_basis(self, key: tuple[Any, ...]) -> Any:
        """The basis that was kept under `key`, or None."""
        return self._bases.get(key)

    @contextmanager
    def opened(self, door: Literal["statement", "tick"]) -> Generator[None]:
        """Let node state change while this holds."""
        before, self._door = self._door, door
        try:
            yield
        finally:
            self._door = before

    def open(self, statement_id: str) -> None:
        """A statement begins: node state may change until `close`."""
        self._door = "statement"
        self.statement_id = statement_id
        self.requested = set()

    def close(self) -> None:
        """The turn is over."""
        self._door = None

    def check_open(self, what: str, method: str) -> None:
        """Raise OutsideTurn unless a statement or a tick is under way, and this is its thread."""
        self.check_owner(what, method)
        if self._door is None:
            raise OutsideTurn(
                f"{what}.{method}(…) was called outside of a statement; "
                "call it in a cell, so that it stands in the timeline"
            )

    def check_owner(self, what: str, name: str) -> None:
        """Raise OutsideTurn on any thread but the one that cells and ticks run on."""
        if not self.owner():
            raise OutsideTurn(
                f"{what}.{name} was used from another thread, and handles change in cells and at the tick after them; "
                "prepare data there, and change the handle in a cell"
            )

    def emit(self, event: Event) -> None:
        """Publish an event of a node."""
        self.bus.publish(event)

    def call(self, node: NodeBase, method: Callable[..., R], args: Any, kwargs: Any) -> R:
        """Run a state-changing method of `node` with its record. Raises OutsideTurn."""
        self.check_open(node.obj_id, method.__name__)
        self.rejoin(node)
        if node in self._calls:  # a method that calls another one of its node is one call
            return method(node, *args, **kwargs)
        before = node.digest()
        self._calls.append(node)
        try:
            result = method(node, *args, **kwargs)
        finally:
            self._calls.remove(node)
        after = node.digest()
        shown_kwargs = {key: show_value(value) for key, value in kwargs.items()}
        self.emit(
            MethodCalled(
                node.obj_id, node.obj_type, method.__name__, tuple(map(show_value, args)), shown_kwargs, before, after
            )
        )
        if before != after:
            self.changed(node, delta_of(before, after))
        return result

    def changed(self, node: NodeBase, delta: Delta) -> None:
        """Record that `node` is not what it was, and tell the groups that it is in."""
        node.changed_in = self.statement_id
        self.emit(NodeChanged(node.obj_id, delta))
        self.looked(node)

    def looked(self, node: NodeBase) -> None:
        """Tell the groups that `node` is in that its target is not what it was."""
        for other in list(self._listening.values()):
            other.on_member_changed(node)


def show_value(value: object) -> Json:
    """Return an argument as a short JSON value for an event."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= 200 else value[:199] + "…"
    if isinstance(value, NodeBase):
        return value.obj_id
    if isinstance(value, AllTokens | Sync | Periodic | Async):
        return str(value)
    if isinstance(value, tuple | list):
        return [show_value(item) for item in cast("Sequence[object]", value)[:20]]
    return f"<{type(value).__name__}>"  # never the repr of a stranger: it may run for minutes


def delta_of(before: Mapping[str, Json], after: Mapping[str, Json], text: str = "") -> Delta:
    """Return what differs between two digests, as fields and one line."""
    fields = {key: (before.get(key), after.get(key)) for key in after if before.get(key) != after.get(key)}
    told = [f"{key} {old} → {new}" for key, (old, new) in fields.items() if key not in ("fingerprint", "revision")]
    return Delta(", ".join(told) or "content changed", fields, text)


@dataclass(frozen=True, slots=True)
class TickResult:
    """What a tick did to a node: nothing (`delta` is None), or the change."""

    delta: Delta | None = None
    looked: bool = False
    """Its target was another one, though it shows the same: a group, which shows more of it, may differ."""


NOTHING: Final = object()
KINDS: dict[str, type[NodeBase]] = {}
"""The classes of nodes by `obj_type`, for mementos."""

_NOT_KEPT = frozenset(("last_tick_turn", "last_tick_time", "_stamp", "_basis", "_set_back", "_accepted", "_memento"))
"""Attributes that no memento holds: a restored node looks at its target at the next tick, whatever these were."""


class NodeBase:
    """A node (seed 002 §5.1). Properties set policy, verbs act, both chain with `set(**policy)`."""

    obj_type = "node"
    aliases: Mapping[str, str] = {}

    graph: Graph
    obj_id: str = ""
    serial: int = 0
    statement_id: str = ""
    changed_in: str = ""
    """The statement in whose turn it changed last."""
    min_turn_interval: int = 1
    """Turns from one Sync update to the next, from 1."""
    last_tick_turn: int = 0
    last_tick_time: float | None = None
    """Unix seconds of the last tick that looked at it, or None."""
    dirty: bool = False
    """Whether the next tick must render it, whatever its source says."""
    revision: int = 0
    """How often its content changed."""
    fault: str = ""
    """What went wrong at the last tick, or empty."""
    _memento: Mapping[str, Json] | None = None

    def __init__(self, graph: Graph, *, tokens: object, lod: object, mode: object, freq: object) -> None:
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
        self._pinned = False
        self._pin_reason = ""
        self._rendered = Rendered("", 0, level, "")
        self._change = ""

    @classmethod
    def blank(cls, graph: Graph, obj_id: str) -> Self:
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

    def _update(self) -> bool:
        """Render anew. Returns whether the content differs from the last rendering."""
        raise NotImplementedError

    def on_member_changed(self, member: NodeBase) -> None:
        """Called on every node of a class that has its own when `member` changed; groups mark themselves dirty."""

    def tick(self, now: float, turn_id: int, tick_kind: str) -> TickResult:
        """Bring it up to date if its target changed; called by the scheduler, in a tick only."""
        raise NotImplementedError

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
            "min_turn_interval": self.min_turn_interval,
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
                "text": shown.text,
                "tokens": shown.tokens,
                "lod": shown.lod,
                "pos": shown.pos,
                "cut_tokens": shown.cut_tokens,
                "next_pos": shown.next_pos,
                "fingerprint": shown.fingerprint,
                "notes": list(shown.notes),
            },
        }

    def take(self, memento: Mapping[str, Json]) -> None:
        """Become what `memento` says. For `Graph.restore` only; raises what a damaged one raises."""
        self.graph.check_open(self.obj_id, "take")
        tokens, shown = memento["tokens"], memento["rendered"]
        budget = All if tokens == str(All) else parse_tokens(tokens)
        lod, freq = parse_lod(memento["lod"]), parse_freq(memento["freq"])
        rendered = Rendered(
            text=shown["text"],
            tokens=shown["tokens"],
            lod=shown["lod"],
            pos=shown["pos"],
            cut_tokens=shown["cut_tokens"],
            next_pos=shown["next_pos"],
            fingerprint=shown["fingerprint"],
            notes=tuple(shown["notes"]),
        )
        self._tokens, self._lod, self._freq, self._rendered = budget, lod, freq, rendered
        self._mode = "running" if memento["mode"] == "running" else "paused"
        self._pinned, self._pin_reason, self._change = memento["pinned"], memento["pin_reason"], memento["change"]
        for name in ("serial", "statement_id", "changed_in", "min_turn_interval", "dirty", "revision", "fault"):
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
    def pinned(self) -> bool:
        """Whether the projection keeps it before others."""
        return self._pinned

    @property
    def pin_reason(self) -> str:
        """Why it is pinned, in the user's words."""
        return self._pin_reason

    @recorded
    def set(self, **policy: Any) -> Self:
        """Set any of lod, tokens, mode, freq (and pos, on a view) at once. Raises BadPolicy; chains."""
        self._set(policy)
        return self

    def _set(self, policy: dict[str, Any]) -> None:
        unknown = policy.keys() - self._settable()
        if unknown:
            known = ", ".join(sorted(self._settable()))
            raise BadPolicy(f"{self.obj_id} has no policy {', '.join(sorted(unknown))}; it has {known}")
        lod = parse_lod(policy["lod"]) if "lod" in policy else self._lod
        tokens = parse_tokens(policy["tokens"]) if "tokens" in policy else self._tokens
        freq = parse_freq(policy["freq"]) if policy.get("freq") is not None else self._freq
        mode = policy.get("mode") or ("running" if policy.get("freq") is not None else self._mode)
        if mode not in ("paused", "running"):
            raise BadPolicy(f'mode={mode!r} is not known; use "paused" or "running"')
        before = self._lod, self._tokens, self._freq, self._mode
        self._lod, self._tokens, self._freq, self._mode = lod, tokens, freq, mode
        try:
            if (lod, tokens) != before[:2] or "pos" in policy:
                self._update()
        except BaseException:
            self._lod, self._tokens, self._freq, self._mode = before
            raise

    def _settable(self) -> frozenset[str]:
        return frozenset(("lod", "tokens", "mode", "freq"))

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

    # A handle is one node of one graph: a copy would have its id, and the state of nobody.

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: object) -> str:
        raise NotPicklable(
            f"{self.obj_id} ({self.target}) is a handle of this session and cannot be pickled; "
            f"pickle what it looks at, or its text: show({self.obj_id}).text"
        )

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
    "Add": "add",
    "Remove": "remove",
    "OnMemberChanged": "on_member_changed",
}
"""The seed's CamelCase spellings, each another name of one method."""
