"""The kit for views of objects of libraries: a kind of object is a small table of facts.

    GRAPH = Adapter(
        head=lambda graph: f"{len(nodes(graph)):,} nodes",
        facts=(Fact("degree", degrees, brief=True), Fact("node attributes", node_attributes)),
        value=edges,
    )
    class GraphSource(AdaptedSource):
        kind, adapter = "graph", GRAPH

Rule 1: level 0 shows `value`, level 1 every fact, level 2 the brief ones; head, budget, positions and diffs are of
        `FactsSource`.
Rule 2: a fact reads what the object holds, bounded; it runs no code of a user's class and computes nothing that the
        library would store in the object. One that fails is a line that says so, and the others stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.ports import Rendered, RenderRequest
from ctxkernel.core.reflection import class_of, type_name
from ctxkernel.core.text import one_line
from ctxkernel.sources.base.amounts import Line, indented
from ctxkernel.sources.base.rendering import titled
from ctxkernel.sources.objects.facts import FactsSource


@dataclass(frozen=True, slots=True)
class Fact:
    """One row of an adapter."""

    name: str
    read: Callable[[Any], str | Iterable[str] | None]
    """Returns a text, lines to stand below the name, or None where there is nothing to say."""
    brief: bool = False
    """Whether level 2 shows it."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """The facts to show of one kind of object."""

    head: Callable[[Any], str]
    """The text after label and type in the first line."""
    facts: tuple[Fact, ...]
    value: Callable[[Any], Iterable[str]]
    """The lines of level 0. The last one says what is left out, where that is something: `[… 20 more nodes]`."""
    read: Callable[[Any], Any] = lambda target: target
    """Returns what `head`, `facts` and `value` get: the target, or what was read from it once for all of them."""
    stamp: Callable[[Any], str] | None = None
    """Returns of the target a text that is made in a millisecond and differs when it may have changed, with `~` where
    it is of a part only. Without one the lines of level 0 are the stamp."""


class AdaptedSource(FactsSource):
    """A view of an object by its adapter. A subclass names `kind` and `adapter`."""

    adapter: ClassVar[Adapter]

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._held: list[Any] = []
        """The values read during one rendering."""

    def render(self, request: RenderRequest) -> Rendered:
        """Render within `request.tokens`; the target is read once."""
        try:
            return super().render(request)
        finally:
            self._held = []

    def stamp(self) -> str:
        """Return the adapter's stamp, or a hash of level 0. Never raises."""
        self._held = []
        if self.adapter.stamp is None:
            return super().stamp()
        try:
            return f"{id(self.target):x} {self.adapter.stamp(self.target)}"
        except Exception as fault:  # an object half made
            return f"unreadable {type(fault).__name__}"

    def _read(self) -> Any:
        if not self._held:
            self._held = [self.adapter.read(self.target)]
        return self._held[0]

    def headline(self) -> str:
        """Return label, type, and what the adapter says in short."""
        about = _said(lambda _: self.adapter.head(self._read()), None)
        return " · ".join([titled(self.label, self.target), *([about] if isinstance(about, str) and about else [])])

    def value(self) -> list[str]:
        """Return the lines of level 0."""
        found = _said(lambda _: self.adapter.value(self._read()), None)
        return [found] if isinstance(found, str) else found or ["nothing in it"]

    def covers(self, stamp: str) -> bool:
        """Return whether the stamp covers all that is shown: it has nothing of lines that are left out."""
        return super().covers(stamp) and (self.adapter.stamp is not None or not self.value()[-1].startswith("[…"))

    def structure(self) -> list[str]:
        """Return every fact."""
        return self._facts(self.adapter.facts)

    def summary(self) -> list[str]:
        """Return the brief facts."""
        lines: list[str] = []
        for line in self._facts(tuple(fact for fact in self.adapter.facts if fact.brief)):
            lines += [line] if line[:1] == " " else indented([line], "- ")
        return lines

    def _facts(self, facts: tuple[Fact, ...]) -> list[str]:
        try:
            found = self._read()
        except Exception as fault:  # an object half made, a version of the library that has it elsewhere
            return [_unknown(fault)]
        return [line for fact in facts for line in _lines(fact, found)]


def _lines(fact: Fact, target: Any) -> Iterator[str]:
    found = _said(fact.read, target)
    if isinstance(found, str):
        yield f"{fact.name}: {found}"
    elif lines := list(found or ()):
        yield Line(f"{fact.name}:")
        yield from indented(lines)


def _said(read: Callable[[Any], str | Iterable[str] | None], target: Any) -> str | list[str] | None:
    try:
        found = read(target)
        return found if found is None or isinstance(found, str) else list(found)
    except Exception as fault:
        return _unknown(fault)


def _unknown(fault: Exception) -> str:
    return f"[not known: {type_name(class_of(fault))}: {one_line(str(fault), 120)}]"
