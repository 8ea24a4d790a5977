"""A networkx graph as a source: 0 its nodes with their edges, 1 counts, degrees and attributes, 2 in short.

Rule: its dicts are read, not its methods, which a subclass may replace. Of a graph with more than `_MOST` nodes and
edges, degrees and attributes are those of nodes spread over it, with a `~`, and components are not looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import contains
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import attributes, class_mro, class_of
from ctxkernel.core.text import plural
from ctxkernel.sources.base.amounts import more_lines
from ctxkernel.sources.base.file_reader import content_hash
from ctxkernel.sources.base.random_samples import spread
from ctxkernel.sources.objects.adapters import AdaptedSource, Adapter, Fact
from ctxkernel.sources.objects.fields import FieldFacts, key_name

_MOST = 20_000
_LISTED = 500
_STAMPED = 100
_NEIGHBOURS = 12
_NAMED = 8
_PLAIN = frozenset((int, str, float, bool, bytes, type(None)))


class _Graph:
    """The parts of a graph, read from its own attributes."""

    def __init__(self, graph: Any) -> None:
        own = attributes(graph)
        self.nodes: dict[Any, Any] = own.get("_node") or {}
        adjacent: dict[Any, dict[Any, Any]] = own.get("_adj") or {}
        self.about: dict[Any, Any] = own.get("graph") or {}
        names = {base.__name__ for base in class_mro(class_of(graph))}
        self.directed, self.multi = "DiGraph" in names, "MultiGraph" in names
        before: dict[Any, dict[Any, Any]] = (own.get("_pred") or {}) if self.directed else {}
        self.hashed = set(map(class_of, self.nodes)) <= _PLAIN
        """Whether nodes may be looked up: those of a user's class have a `__hash__` of their own."""
        # networkx adds a node to all of these at once, so that they have one order.
        self._adjacent, self._before = list(adjacent.values()), list(before.values())
        if self.hashed and not self.multi:  # the same, some ten times as fast
            self.loops = sum(map(contains, self._adjacent, self.nodes))
            entries = sum(map(len, self._adjacent))
        else:
            self.loops = sum(
                self._edges_between(self._loop(node, beside))
                for node, beside in zip(self.nodes, self._adjacent, strict=False)
            )
            entries = sum(map(self._count, self._adjacent))
        self.edges = entries if self.directed else (entries + self.loops) // 2
        self.large = len(self.nodes) + self.edges > _MOST
        self.count = min(len(self.nodes), len(self._adjacent))
        self.sample = self.rows(spread(self.count, _MOST // 10 if self.large else _MOST))
        self.mark = "~" if len(self.sample) < self.count else ""

    def rows(self, numbers: Iterable[int]) -> list[tuple[Any, dict[Any, Any], dict[Any, Any]]]:
        """Return some nodes, each with what it leads to and, in a directed graph, what leads to it."""
        nodes, before = list(self.nodes), self._before
        return [(nodes[at], self._adjacent[at], before[at] if at < len(before) else {}) for at in numbers]

    def _edges_between(self, found: Any) -> int:
        return 0 if found is None else len(found) if self.multi else 1

    def _loop(self, node: Any, beside: dict[Any, Any]) -> Any:
        if self.hashed:
            return beside.get(node)
        return next((data for other, data in beside.items() if other is node), None)

    def _count(self, beside: dict[Any, Any]) -> int:
        return sum(map(len, beside.values())) if self.multi else len(beside)

    def degree(self, node: Any, beside: dict[Any, Any], before: dict[Any, Any]) -> int:
        """Return how many ends of edges are at a node: a loop has both there."""
        if self.directed:
            return self._count(beside) + self._count(before)
        return self._count(beside) + self._edges_between(self._loop(node, beside))

    def edge_data(self) -> Iterator[dict[Any, Any]]:
        """Yield the attributes of the edges of the sample; of an undirected graph, each from both its ends."""
        for _, beside, _ in self.sample:
            for data in beside.values():
                yield from data.values() if self.multi else (data,)


def _head(found: _Graph) -> str:
    kind = ", ".join(["directed" if found.directed else "undirected", *(["parallel edges"] if found.multi else [])])
    return f"{plural(len(found.nodes), 'nodes')}, {plural(found.edges, 'edges')} · {kind}"


def _degrees(found: _Graph) -> str | None:
    if not found.nodes:
        return None
    degrees = [found.degree(*row) for row in found.sample]
    top = sorted(range(len(degrees)), key=lambda at: -degrees[at])[:_NAMED]
    named = ", ".join(f"{brief(found.sample[at][0], 40)} ({degrees[at]:,})" for at in top)
    mark = found.mark
    span = " … ".join(f"{one:,}" for one in dict.fromkeys((min(degrees), max(degrees))))
    return f"{mark}{span}, mean {mark}{sum(degrees) / len(degrees):.4g}; {mark}highest {named}"


def _components(found: _Graph) -> str | None:
    if found.large or not found.nodes or not found.hashed:
        return None
    beside_of = {node: (*beside, *before) for node, beside, before in found.rows(range(found.count))}
    sizes: list[int] = []
    seen: set[Any] = set()
    for node in found.nodes:
        if node in seen:
            continue
        waiting, before = [node], len(seen)
        seen.add(node)
        while waiting:
            fresh = [other for other in beside_of[waiting.pop()] if other not in seen]
            seen.update(fresh)
            waiting += fresh
        sizes.append(len(seen) - before)
    kind = "weakly connected" if found.directed else "connected"
    if len(sizes) == 1:
        return f"1, {kind}"
    shown = ", ".join(f"{size:,}" for size in sorted(sizes, reverse=True)[:_NAMED])
    return f"{len(sizes):,} {kind}, of {shown}{', …' if len(sizes) > _NAMED else ''} nodes"


def _loose(found: _Graph) -> str | None:
    alone = [row[0] for row in found.sample if not found.degree(*row)]
    parts = [plural(found.loops, "self-loops")] if found.loops else []
    if alone:
        many = (
            f"~{100 * len(alone) / len(found.sample):.1f} % of the nodes" if found.mark else plural(len(alone), "nodes")
        )
        named = ", ".join(brief(node, 40) for node in alone[:_NAMED])
        parts.append(f"{many} without an edge, such as {named}")
    return ", ".join(parts) or None


def _attributes(rows: Iterator[dict[Any, Any]], mark: str) -> list[str]:
    found: dict[str, FieldFacts] = {}
    count = 0
    for row in islice(rows, _MOST):
        count += 1
        for key, value in row.items():
            if len(found) < 100 or key_name(key) in found:
                found.setdefault(key_name(key), FieldFacts()).take(value)
    more = mark or ("~" if next(rows, None) is not None else "")
    return [f"{name}: {', '.join(facts.facts(count, more))}" for name, facts in found.items()]


def _node_attributes(found: _Graph) -> list[str]:
    owned = list(found.nodes.values())
    chosen = spread(len(owned), _MOST // 10 if found.large else _MOST)
    return _attributes((owned[at] for at in chosen), "~" if len(chosen) < len(owned) else "")


def _edges(found: _Graph) -> Iterator[str]:
    """Yield a line a node: its attributes, and what it leads to."""
    arrow = "→" if found.directed else "—"
    for (_, beside, _), (node, own) in zip(
        found.rows(range(min(found.count, _LISTED))), found.nodes.items(), strict=False
    ):
        said = ", ".join(f"{key_name(key)}={brief(value, 40)}" for key, value in islice(own.items(), 6))
        some = islice(beside.items(), _NEIGHBOURS)
        ends = [brief(other, 40) + _told(data, multi=found.multi) for other, data in some]
        more = f", … {len(beside) - _NEIGHBOURS:,} more" if len(beside) > _NEIGHBOURS else ""
        yield f"{brief(node, 60)}{f' ({said})' if said else ''}: {arrow} {', '.join(ends) or 'nothing'}{more}"
    yield from more_lines(found.count - _LISTED, "nodes")


def _stamp(graph: Any) -> str:
    """Return the number of nodes, and the lines of the first of them with the numbers of their neighbours."""
    own = attributes(graph)
    nodes: dict[Any, Any] = own.get("_node") or {}
    adjacent: dict[Any, dict[Any, Any]] = own.get("_adj") or {}
    ends = sum(map(len, islice(adjacent.values(), _MOST)))
    parts = [f"{len(nodes)} {ends} {brief(own.get('graph'), 200)}"]
    for (node, about), beside in zip(islice(nodes.items(), _STAMPED), adjacent.values(), strict=False):
        parts.append(
            f"{brief(node, 40)} {brief(about, 80)} {len(beside)} {brief(next(iter(beside.values()), None), 80)}"
        )
    return f"{'~' if len(nodes) else ''}{content_hash(chr(10).join(parts).encode('utf-8', 'replace'))}"


def _told(data: Any, *, multi: bool) -> str:
    if multi:
        return f" ×{len(data)}" if len(data) > 1 else ""
    said = ", ".join(f"{key_name(key)}={brief(value, 40)}" for key, value in islice(data.items(), 3))
    return f" ({said})" if said else ""


class GraphSource(AdaptedSource):
    """A view of a networkx graph."""

    kind = "graph"
    adapter = Adapter(
        head=_head,
        facts=(
            Fact("degree", _degrees, brief=True),
            Fact("components", _components, brief=True),
            Fact("loose", _loose, brief=True),
            Fact("node attributes", _node_attributes, brief=True),
            Fact("edge attributes", lambda found: _attributes(found.edge_data(), found.mark), brief=True),
            Fact("graph attributes", lambda found: brief(found.about, 200) if found.about else None),
        ),
        value=_edges,
        read=_Graph,
        stamp=_stamp,
    )
