"""A loop without a kernel: in-memory sources, a tracker by equality, and a projector that keeps what it was given."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ctxkernel.core.events import EventBus
from ctxkernel.core.loop import Loop, Outcome
from ctxkernel.core.nodes import Graph
from ctxkernel.core.nodes.base import digest_hash
from ctxkernel.core.ports import AllTokens, Rendered, RenderRequest, Source
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import ChangeInfo, NamespaceDiff, TypeInfo
from ctxkernel.core.turn import Turn, TurnResult


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
    """Compares a namespace of plain values before and after, by equality."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._before: dict[str, Any] = {}

    def before(self, source: str) -> NamespaceDiff:
        """Remember; what changed meanwhile is the diff."""
        return self.after(lambda: False)

    def after(self, expired: Callable[[], bool]) -> NamespaceDiff:
        """Return the difference to the last call."""
        old, new = self._before, dict(self._namespace)
        self._before = new
        return NamespaceDiff(
            {name: _info(value) for name, value in new.items() if name not in old},
            {
                name: ChangeInfo(type(value).__name__, repr(value))
                for name, value in new.items()
                if name in old and old[name] is not value
            },
            tuple(name for name in old if name not in new),
        )

    def variables(self, limit: int) -> Sequence[tuple[str, TypeInfo]]:
        """The names in the order of the namespace."""
        return [(name, _info(value)) for name, value in self._namespace.items()][:limit]

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

    def project(self, turn: Turn) -> Any:
        """Return the number of the turn."""
        self.turns.append(turn)
        return len(self.turns)


class Turns:
    """A loop whose cells are Python functions: `turns.run("h = view(src)", lambda ns: …)`."""

    def __init__(self, settings: Settings | None = None, guard: Any = None) -> None:
        self.namespace: dict[str, Any] = {}
        self.projector = KeepingProjector()
        self.now = 1000.0
        more = {} if guard is None else {"guard": guard}
        self.loop = Loop(
            namespace=self.namespace,
            tracker=FakeTracker(self.namespace),
            projector=self.projector,
            open_source=_as_source,
            count_tokens=count_words,
            trim=trim_words,
            settings=settings,
            **more,
        )

    def run(self, code: str = "pass", seconds: float = 1.0, **outcome: Any) -> TurnResult:
        """Run `code` as a cell: plain Python with view, group, show, pin, tick and ls."""
        loop = self.loop
        loop.begin(code, now=self.now)
        names = {name: getattr(loop, name) for name in ("view", "group", "show", "pin", "tick", "ls")}
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
        return result


def _as_source(target: object) -> Source:
    return target if isinstance(target, FakeSource) else FakeSource(str(target), str(target))


def graph_with(settings: Settings | None = None) -> Graph:
    """Return a graph without a loop."""
    return Graph(
        settings=settings or Settings(),
        bus=EventBus(),
        open_source=_as_source,
        count_tokens=count_words,
        trim=trim_words,
    )
