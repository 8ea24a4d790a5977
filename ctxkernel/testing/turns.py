"""A loop without a kernel: in-memory sources, a tracker by equality, and a projector that keeps what it was given.

`Turns` takes the state after every cell and goes back to it as a kernel does, with plain values in the place of a
checkpoint: handles by their id, mementos as JSON, sources by reference with their text.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import Graph, NodeBase
from ctxkernel.core.nodes.base import digest_hash
from ctxkernel.core.ports import AllTokens, Rendered, RenderRequest, Source
from ctxkernel.core.replay import HeadMove, Restored
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import ChangeInfo, NamespaceDiff, TypeInfo
from ctxkernel.core.turn import Outcome, Turn, TurnResult


def count_words(text: str) -> int:
    """Count a token a word: enough for tests, and easy to do in one's head."""
    return max(1, len(text.split())) if text else 0


def trim_words(text: str, budget: int) -> str:
    """Cut to `budget` words."""
    words = text.split(" ")
    return text if count_words(text) <= budget else " ".join(text.split()[: max(1, budget)]) if words else ""


class FakeSource:
    """A source with a text that a test can change."""

    kind = "fake"

    def __init__(self, text: str = "one two three", label: str = "fake") -> None:
        self.text = text
        self.label = label
        self.renders = 0
        self.fault: Exception | None = None

    def stamp(self) -> str:
        """The text itself."""
        return self.text

    def render(self, request: RenderRequest) -> Rendered:
        """The text, its level before it; at level 3 the unified diff against the basis."""
        if self.fault is not None:
            raise self.fault
        self.renders += 1
        text = f"L{request.lod} {self.text}"
        if request.lod == 3:
            lines = difflib.unified_diff((request.basis or "").splitlines(), self.text.splitlines(), lineterm="", n=0)
            text = "\n".join(lines) or "no change"
        cut = 0
        if not isinstance(request.tokens, AllTokens):
            whole = count_words(text)
            text = trim_words(text, request.tokens)
            cut = whole - count_words(text)
        return Rendered(
            text, count_words(text), request.lod, request.pos, cut, None, digest_hash({"t": self.text}), self.text
        )


class FakeTracker:
    """Compares a namespace before and after by identity; what a value is like is looked at when it is bound."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._before: dict[str, Any] = {}
        self._infos: dict[str, TypeInfo] = {}

    def before(self, source: str) -> NamespaceDiff:
        """Remember; what changed meanwhile is the diff."""
        return self.after(lambda: False)

    def after(self, expired: Callable[[], bool]) -> NamespaceDiff:
        """Return the difference to the last call."""
        old, new = self._before, dict(self._namespace)
        self._before = new
        self._look(old, new)
        return NamespaceDiff(
            {name: self._infos[name] for name in new if name not in old},
            {
                name: ChangeInfo(type(value).__name__, repr(value))
                for name, value in new.items()
                if name in old and old[name] is not value
            },
            tuple(name for name in old if name not in new),
        )

    def suspect_all(self, reason: str) -> None:
        """Nothing to do: all names are always compared."""

    def adopt(self) -> None:
        """Take the namespace as what it was: it was restored, and no cell changed it."""
        old, self._before = self._before, dict(self._namespace)
        self._look(old, self._before)

    def _look(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        infos = self._infos
        self._infos = {
            name: infos[name] if name in old and old[name] is value else _info(value) for name, value in new.items()
        }

    def variables(self, limit: int) -> Sequence[tuple[str, TypeInfo]]:
        """The names in the order of the namespace."""
        return [(name, self._infos[name]) for name in self._namespace if name in self._infos][:limit]

    @property
    def total(self) -> int:
        """How many names."""
        return len(self._namespace)


def _info(value: object) -> TypeInfo:
    return TypeInfo(type(value).__name__, repr(value)[:80])


class KeepingProjector:
    """Keeps the turns that it was given."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def tend(self, turn: Turn, moment: str) -> Sequence[Any]:
        """Record nothing."""
        return ()

    def project(self, turn: Turn) -> Any:
        """Return the number of the turn."""
        self.turns.append(turn)
        return len(self.turns)


@dataclass(frozen=True)
class HandleRef:
    """A handle in a kept state."""

    obj_id: str


@dataclass(frozen=True)
class KeptState:
    """The state after an execution."""

    namespace: dict[str, Any]
    mementos: str
    targets: dict[str, Any]
    texts: dict[FakeSource, str]


class Turns:
    """A loop whose cells are text: `turns.run("h = view(src)")`."""

    def __init__(self, settings: Settings | None = None, guard: Any = None, projector: Any = None) -> None:
        self.namespace: dict[str, Any] = {}
        self.projector: Any = projector or KeepingProjector()
        self.tracker = FakeTracker(self.namespace)
        self.states: dict[str | None, KeptState] = {None: KeptState({}, "{}", {}, {})}
        self.now = 1000.0
        more = {} if guard is None else {"guard": guard}
        self.loop = Loop(
            namespace=self.namespace,
            tracker=self.tracker,
            projector=self.projector,
            open_source=_as_source,
            count_tokens=count_words,
            trim=trim_words,
            settings=settings,
            **more,
        )

    def run(
        self, code: str = "pass", seconds: float = 1.0, *, rerun_of: str | None = None, **outcome: Any
    ) -> TurnResult:
        """Run `code` as a cell: plain Python with view, group, note, show, pin, tick and ls."""
        loop = self.loop
        loop.begin(code, now=self.now, rerun_of=rerun_of)
        names = {name: getattr(loop, name) for name in ("view", "group", "note", "show", "pin", "tick", "ls")}
        given = {"status": "ok", **outcome}
        builtins = {**__builtins__, **names} if isinstance(__builtins__, dict) else {**vars(__builtins__), **names}
        scope = self.namespace
        scope["__builtins__"] = builtins
        try:
            exec(compile(code, "<cell>", "exec"), scope)  # a test's own code
        finally:
            del scope["__builtins__"]
            self.now += seconds
            result = loop.end(Outcome(**given), self.now)
            self.states[result.execution.execution_id] = self.keep()
        return result

    def keep(self) -> KeptState:
        """Return the state as it is now."""
        graph = self.loop.graph
        kept = {name: _kept(value) for name, value in self.namespace.items()}
        sources = [one for one in (*self.namespace.values(), *graph.targets().values()) if isinstance(one, FakeSource)]
        return KeptState(
            kept, json.dumps(graph.memento()), dict(graph.targets()), {source: source.text for source in sources}
        )

    def put_back(self, state: KeptState) -> list[str]:
        """Make a kept state the present one; returns what the handles say."""
        graph = self.loop.graph
        for source, text in state.texts.items():
            source.text = text
        mementos = json.loads(state.mementos)
        notices = graph.revive(mementos)
        back = {name: _bound(value, graph) for name, value in state.namespace.items()}
        self.namespace.clear()
        self.namespace.update(back)
        notices += graph.restore(mementos, state.targets.__getitem__)
        self.tracker.adopt()
        return notices

    def goto(self, to: str | None, reason: Any = "goto", *, lost: Mapping[str, str] | None = None) -> TurnResult:
        """Run a cell that goes to the state after `to`."""
        self.loop.begin(f"%ctx {reason} {to}", now=self.now, kind="meta")
        notices = self.put_back(self.states[to])
        self.now += 1.0
        move = HeadMove(to, reason, self.now)
        result = self.loop.end(Outcome("ok"), self.now, move=move, restored=Restored(lost or {}, tuple(notices)))
        self.states[result.execution.execution_id] = self.states[to]
        return result

    def resumed(self, projector: Any = None) -> Turns:
        """Return what the next kernel makes of the log and of the kept states, at the same HEAD."""
        new = Turns(self.loop.settings, projector=projector)
        log = self.loop.log
        pairs = [(statement, log.executions(statement.statement_id)) for statement in log]
        new.loop.load(pairs, log.head, movers=log.movers, records=log.records)
        new.states = dict(self.states)
        new.now = self.now
        notices = new.put_back(self.states[log.head])
        new.loop.move(HeadMove(log.head, "resume", self.now), Restored({}, tuple(notices)))
        return new


def _kept(value: object) -> object:
    if isinstance(value, NodeBase):
        return HandleRef(value.obj_id)
    return [_kept(item) for item in value] if isinstance(value, list) else value


def _bound(value: object, graph: Graph) -> object:
    if isinstance(value, HandleRef):
        return graph.node(value.obj_id)
    return [_bound(item, graph) for item in value] if isinstance(value, list) else value


def _as_source(target: object) -> Source:
    return target if isinstance(target, FakeSource) else FakeSource(str(target), str(target))


def graph_with(settings: Settings | None = None) -> Graph:
    """Return a graph without a loop."""
    return Graph(
        settings=settings or Settings(),
        open_source=_as_source,
        count_tokens=count_words,
        trim=trim_words,
    )
