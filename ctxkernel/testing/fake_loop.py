"""A loop without a kernel: in-memory sources, a tracker by identity, and a projector that records its turns.

`Turns` keeps the state after every cell and returns to it like a kernel. Plain values take the place of a checkpoint:
handles by their id, mementos as JSON, sources by reference with their text.
"""

from __future__ import annotations

import builtins
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import Graph, NodeBase
from ctxkernel.core.nodes.node_base import digest_hash
from ctxkernel.core.ports import AllTokens, Rendered, RenderRequest, Source
from ctxkernel.core.replay import HeadMove, Restored
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import ChangeInfo, NamespaceDiff, TypeInfo
from ctxkernel.core.turn_values import Outcome, Turn, TurnResult


def count_words(text: str) -> int:
    """Return the number of words: a simple token count for tests."""
    return max(1, len(text.split())) if text else 0


def trim_words(text: str, budget: int) -> str:
    """Cut to `budget` words."""
    return text if count_words(text) <= budget else " ".join(text.split()[: max(1, budget)])


class FakeSource:
    """A source with a text that a test can change."""

    kind = "fake"

    def __init__(self, text: str = "one two three", label: str = "fake") -> None:
        self.text = text
        self.label = label
        self.renders = 0
        self.fault: Exception | None = None

    def stamp(self) -> str:
        """Return the text."""
        return self.text

    def render(self, request: RenderRequest) -> Rendered:
        """Return the level and the text; at level 3 the unified diff against the basis."""
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
    """Compares a namespace before and after by identity; a value is described when it is bound."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._known: dict[str, tuple[Any, TypeInfo]] = {}

    def before(self, source: str) -> NamespaceDiff:
        """Return the changes since the last call of `after`."""
        return self.after(lambda: False)

    def after(self, expired: Callable[[], bool]) -> NamespaceDiff:
        """Return the changes since the last call."""
        old = self._known
        self._known = new = {
            name: old[name] if name in old and old[name][0] is value else (value, _info(value))
            for name, value in self._namespace.items()
        }
        return NamespaceDiff(
            {name: info for name, (_, info) in new.items() if name not in old},
            {
                name: ChangeInfo(type(value).__name__, repr(value))
                for name, (value, _) in new.items()
                if name in old and old[name][0] is not value
            },
            tuple(name for name in old if name not in new),
        )

    def suspect_all(self, reason: str) -> None:
        """Do nothing: all names are always compared."""

    def adopt(self) -> None:
        """Accept the restored namespace without reporting changes."""
        self.after(lambda: False)

    def variables(self, limit: int) -> Sequence[tuple[str, TypeInfo]]:
        """Return the variables in the order of the namespace."""
        return [(name, self._known[name][1]) for name in self._namespace if name in self._known][:limit]

    @property
    def total(self) -> int:
        """The number of names."""
        return len(self._namespace)


def _info(value: object) -> TypeInfo:
    return TypeInfo(type(value).__name__, repr(value)[:80])


class KeepingProjector:
    """Records the turns that it receives."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def tend(self, turn: Turn, moment: str) -> Sequence[Any]:
        """Return no records."""
        return ()

    def project(self, turn: Turn) -> Any:
        """Return the number of the turn."""
        self.turns.append(turn)
        return len(self.turns)


@dataclass(frozen=True)
class HandleRef:
    """A handle in a stored state."""

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
        given: dict[str, Any] = {"status": "ok", **outcome}
        scope = self.namespace
        scope["__builtins__"] = {**vars(builtins), **names}
        try:
            exec(compile(code, "<cell>", "exec"), scope)  # a test's own code
        finally:
            del scope["__builtins__"]
            self.now += seconds
            result = loop.end(Outcome(**given), self.now)
            self.states[result.execution.execution_id] = self.keep()
        return result

    def keep(self) -> KeptState:
        """Return the present state."""
        graph = self.loop.graph
        kept = {name: _kept(value) for name, value in self.namespace.items()}
        sources = [one for one in (*self.namespace.values(), *graph.targets().values()) if isinstance(one, FakeSource)]
        return KeptState(
            kept, json.dumps(graph.memento()), dict(graph.targets()), {source: source.text for source in sources}
        )

    def put_back(self, state: KeptState) -> list[str]:
        """Restore a stored state, and return the notices of the handles."""
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
        """Run a cell that returns to the state after `to`."""
        self.loop.begin(f"%ctx {reason} {to}", now=self.now, kind="meta")
        notices = self.put_back(self.states[to])
        self.now += 1.0
        move = HeadMove(to, reason, self.now)
        result = self.loop.end(Outcome("ok"), self.now, move=move, restored=Restored(lost or {}, tuple(notices)))
        self.states[result.execution.execution_id] = self.states[to]
        return result

    def resumed(self, projector: Any = None) -> Turns:
        """Return the turns of a next kernel that resumes from the log and the stored states, at the same HEAD."""
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
    return [_kept(item) for item in cast("list[object]", value)] if isinstance(value, list) else value


def _bound(value: object, graph: Graph) -> object:
    if isinstance(value, HandleRef):
        return graph.node(value.obj_id)
    return [_bound(item, graph) for item in cast("list[object]", value)] if isinstance(value, list) else value


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
