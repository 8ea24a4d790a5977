"""Content fingerprints of packed values, for messages about changes and for checks of copies.

A pack is read as a tree of plain containers and nodes, without making any object of it, and the tree is hashed. Equal
fingerprints mean equal content: the order of a dict counts and so does which places hold one mutable object, but not
how a set is ordered, which texts are one object, what a library keeps in caches, or where code stood in its file.
"""

from __future__ import annotations

import functools
import itertools
import marshal
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from xxhash import xxh3_128_digest

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.reflection import AttributePlan, class_of, is_kind, loaded
from ctxkernel.core.state_names import CLASS, LABELS
from ctxkernel.state.base.code_objects import code_facts
from ctxkernel.state.tracking.array_nodes import (
    ARRAYS,
    FindBuffer,
    as_array,
    buffer_in_stream,
    is_default_fill,
    is_part,
    objects_of,
)
from ctxkernel.state.tracking.stream_trees import Node, TooLarge
from ctxkernel.state.types.derived_attributes import is_cache, made_by_reading

MOST_NODES = 50_000
COMPARED_BYTES = 384 * 1024
PLAIN_BYTES = 16 * 1024
"""Largest stream, and largest one of plain data of one name, of which a fingerprint is made: to tell whether content
differs."""
FIGURE = b"matplotlib.figure"
"""In a stream with a figure."""
MORE_IN_FIGURES = 4
"""As many times these bytes and nodes are compared of figures: most is not data, but settings of their parts."""


@dataclass(slots=True)
class NodeBudget:
    """Nodes that fingerprints of one stream may still visit: what many of its names share is visited for each."""

    left: float = 10 * MOST_NODES


def content_fingerprint(
    value: Any,
    *,
    buffers: Sequence[Sequence[str]],
    shared: Callable[[str], str],
    hidden: Hidden,
    memory: FindBuffer = buffer_in_stream,
    most: float = MOST_NODES,
    budget: NodeBudget | None = None,
    places: dict[int, int] | None = None,
    part: Callable[[Node], str] | None = None,
) -> str:
    """Return a short text for the content of one value of a stream; empty where it has none or more than `most` nodes.

    `buffers`: the chunks of the buffers of the stream. `shared(label)`: the fingerprint of an object with a pack of its
    own. `memory(node)`: that of an array or a block, which views are in. `hidden(class name)`: attributes that are no
    content. `most`: nodes of a value that is not too large. `budget`: those for several values together. `places`: is
    given the number of each node, by id. `part(node)`: the fingerprint of a part of a figure, empty for a node that is
    none; raises TooLarge.
    """
    if isinstance(value, type):
        value = getattr(value, "content", value)
    budget = budget or NodeBudget(most)
    places = {} if places is None else places
    most = min(most, budget.left)
    walker = _Walker(buffers, shared, functools.cache(hidden), most, memory=memory, part=part, seen=places)
    value = objects_of(value) or value
    try:
        if isinstance(value, Node) and value.made == "shared":
            return shared(value.args[0])
        if isinstance(value, Node) and is_part(value):
            return walker.part_text(value)
        walker.walk(value)
    except (TooLarge, RecursionError):
        return ""
    finally:
        budget.left -= min(walker.count, budget.left)
    return f"{walker.alive or 'xxh3:'}{xxh3_128_digest(bytes(walker.out)).hex()}"


def exact_fingerprint(
    values: dict[str, Any], buffers: Sequence[Sequence[str]], *, most: float = 10 * MOST_NODES
) -> tuple[str, tuple[str, ...]]:
    """Return a text for the content of all values of a stream and what they share, and the labels in it in order.

    Values with equal texts cannot be told apart, but by where code stood in its file, if the objects that their labels
    stand for cannot. The text is empty where that is not known: the order of a set is not.
    """
    own = [name for name in values if name.startswith(LABELS)]
    paths = {name: _class_path(values[name]) for name in own}
    if len(own) > 1 and (len({*paths.values()}) < len(own) or "" in paths.values()):
        return "", ()
    own.sort(key=paths.__getitem__)
    walker = _Walker(buffers, str, lambda _: frozenset(), most, exact=True)
    for label in own:
        walker.number(label)
    try:
        walker.walk((tuple(sorted(values.keys() - own)), *(values[name] for name in sorted(values.keys() - own))))
        walker.walk(tuple(values[label] for label in own))
    except (TooLarge, RecursionError):
        return "", ()
    return "" if walker.alive else xxh3_128_digest(bytes(walker.out)).hex(), tuple(walker.labels)


def graph_fingerprint(roots: Sequence[str], resolve: Resolve, *, most: float = 10 * MOST_NODES) -> Graph:
    """Return the content of several names together, wherever the objects are stored that they share.

    `resolve` returns the tree of a name or a label, and the chunks of the buffers of its stream. Raises TooLarge and
    RecursionError.
    """
    walker = _Walker((), str, lambda _: frozenset(), most, exact=True, resolve=resolve)
    for name in roots:
        walker.walk_all(walker.stored(name))
    if walker.alive:
        raise TooLarge
    return Graph(xxh3_128_digest(bytes(walker.out)).hex(), tuple(walker.labels), walker.places)


def _class_path(value: Any) -> str:
    content = getattr(value, "content", None) if isinstance(value, type) else None
    return str(content.args[3]) if isinstance(content, Node) else ""


Resolve = Callable[[str], tuple[Any, Sequence[Sequence[str]]]]


@dataclass(frozen=True, slots=True)
class Graph:
    """The content of several names, and of all that they share."""

    text: str
    classes: tuple[str, ...]
    """The labels of classes, in the order of their numbers in the text."""
    places: Mapping[int, str]
    """The number of an object in the text → its label, if it is stored by itself."""


LIVE = "live:"
"""Prefix of a fingerprint that depends on something outside of the namespace: its content may change by itself …"""
DRAWN = "drawn:"
"""… and of one that depends on a figure, which counts and numbers what it draws."""
Hidden = Callable[[str], frozenset[str]]
_NO_CONTENT = frozenset(
    ("__dict__", "__weakref__", "__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotate__")
)
_SPECIAL = frozenset(
    (
        *("shared", "identical", "array", "memory_block", "machine_values", "live", "database", "file", "code"),
        *("code_from", "make_class", "dask._expr.Expr._reconstruct", "remembering", "cached_property", "function"),
    )
)
"""Constructors whose arguments are written in a way of their own."""
_MOST_KEYS = 100
"""Keys of the largest dict whose keys are written together, and remembered."""
_VALUES = frozenset(("builtins.slice",))
"""Immutable objects of which it makes no difference whether two are one: blocks of frames have them."""
_NUMBERS = frozenset((bool, int, float, complex, type(None)))
_SCALAR = frozenset((int, float, complex, bytes))


@dataclass(slots=True)
class _Walker:
    """Writes a tree as bytes, depth first."""

    buffers: Sequence[Sequence[str]]
    shared: Callable[[str], str]
    hidden: Hidden
    most: float
    exact: bool = False
    """Whether what cannot be told is TooLarge, all that is shared counts, and labels count by their order."""
    labels: dict[str, int] = field(default_factory=dict[str, int])
    """Label → its number."""
    memory: FindBuffer = buffer_in_stream
    part: Callable[[Node], str] | None = None
    """Gives the fingerprint of a part of a figure, which leads to all of it."""
    resolve: Resolve | None = None
    """Gives the tree of an object that is stored by itself: it counts where it is held. None: its label counts."""
    places: dict[int, str] = field(default_factory=dict[int, str])
    out: bytearray = field(default_factory=bytearray)
    texts: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Text → how it is written."""
    seen: dict[int, int] = field(default_factory=dict[int, int])
    made: list[Any] = field(default_factory=list[Any])
    """Keeps the objects that are made for this walk alive, so that ids stay unique."""
    count: int = 0
    alive: str = ""
    """Why the content says nothing about another run: `LIVE` or `DRAWN`; empty where it does."""

    def walk(self, root: Any) -> None:
        self.walk_all(iter((root,)))

    def walk_all(self, roots: Iterator[Any]) -> None:
        out, texts, stack = self.out, self.texts, [roots]
        while stack:
            for one in stack[-1]:
                self.count += 1
                if self.count > self.most:
                    raise TooLarge
                kind = class_of(one)
                if kind is str:  # most are names of attributes
                    out += texts.get(one) or texts.setdefault(one, _written(one))
                elif kind is bool or one is None:
                    out += _CONSTANTS[one]
                elif kind in _SCALAR:
                    out += _written(one)
                elif (inner := self.visit(one, kind)) is not None:
                    stack.append(inner)
                    break
            else:
                stack.pop()

    def visit(self, one: Any, kind: type) -> Iterator[Any] | None:
        out = self.out
        if kind is tuple:
            out += b"(%d;" % len(one)
            return iter(one)
        if isinstance(one, Node):
            if one.made in _VALUES:
                return self.node(one)
            if not self.exact and (objects := objects_of(one)) is not None:
                return self.visit(objects, class_of(objects))
            if self.resolve is not None and one.made == "shared":
                return self.stored(one.args[0])
        elif kind in (set, frozenset):
            if self.exact and len(one) > 1:
                raise TooLarge
            out += b"{%d;" % len(one)
            if self.exact:
                return iter(one)
            out += b"".join(sorted(map(self.alone, one)))
            return None
        elif isinstance(one, type):
            return self.type_of(one)
        again = self.seen.get(id(one))
        if again is not None:
            out += b"R%d;" % again
            return None
        if kind is memoryview:
            number = int(bytes(cast("memoryview", one)).split()[1])
            out += "".join(self.buffers[number]).encode()
            return None
        self.seen[id(one)] = len(self.seen)
        return self.node(one) if isinstance(one, Node) else self.container(one)

    def container(self, one: Any) -> Iterator[Any] | None:
        out, kind = self.out, class_of(one)
        if kind is dict:
            if len(one) <= _MOST_KEYS and (keys := _written_keys(tuple(one))):
                out += b"K%d;" % len(one) + keys
                return iter(one.values())
            out += b"D%d;" % len(one)
            return itertools.chain.from_iterable(one.items())
        if kind is list:
            if set(map(type, one)) <= _NUMBERS:  # without references: a number is written out where it stands
                out += b"L%d;" % len(one) + marshal.dumps(one, 2)
                return None
            out += b"[%d;" % len(one)
            return iter(one)
        if kind is bytearray:
            out += b"B%d:" % len(one) + one
            return None
        if self.exact:
            raise TooLarge
        out += f"?{kind.__name__}:{one!r}".encode("utf-8", "replace")
        return None

    def type_of(self, one: Any) -> Iterator[Any] | None:
        label: str = getattr(one, "label", "")
        number = f" {self.number(f'class:{label}')}" if self.exact and label else ""
        self.out += f"<{one.__name__}{number}>".encode()
        content = getattr(one, "content", None) if self.exact else None
        if content is None or id(content) in self.seen:
            return None
        self.seen[id(content)] = len(self.seen)
        return self.node(content)

    def stored(self, name: str) -> Iterator[Any]:
        """Yield the tree of a name or a label, with its own buffers."""
        assert self.resolve is not None
        before = self.buffers
        tree, self.buffers = self.resolve(name)
        if name.startswith(LABELS):
            self.places.setdefault(self.seen.get(id(tree), len(self.seen)), name)
        yield tree
        self.buffers = before

    def number(self, label: str) -> int:
        """Return the number of a label."""
        return self.labels.setdefault(label, len(self.labels))

    def alone(self, one: Any) -> bytes:
        inner = self.inner()
        inner.walk(one)
        return self.take(inner)

    def inner(self) -> _Walker:
        """Return a walker for a part that counts by itself."""
        made = _Walker(self.buffers, self.shared, self.hidden, self.most, memory=self.memory, part=self.part)
        made.texts, made.count = self.texts, self.count
        return made

    def take(self, inner: _Walker) -> bytes:
        """Return the hash of what a walker wrote."""
        self.count = inner.count
        self.alive = self.alive if self.alive == LIVE else inner.alive or self.alive
        return xxh3_128_digest(bytes(inner.out))

    def node(self, one: Node) -> Iterator[Any] | None:
        out = self.out
        if not self.exact and is_part(one):
            out += self.part_text(one).encode()
            return None
        if (
            one.made == "enum_member" and not self.exact
        ):  # where its class is stored by the same stream; else it is a call of its class
            members: Any = one.state[0][0][0]
            out += f"N{one.args[1].__name__};".encode("utf-8", "replace")
            return iter((members["_value_"],))
        if one.made.startswith("matplotlib."):
            text = self.part(one) if self.part is not None else ""
            if self.alive != LIVE:  # two runs are compared by their pixels
                self.alive = LIVE if text.startswith(LIVE) else DRAWN
            if text:
                out += text.encode()
                return None
        if one.made == "shared" and not self.exact:  # an array counts the same where it is part of this stream
            out += self.shared(one.args[0]).encode()
            return None
        return self.node_itself(one)

    def node_itself(self, one: Node) -> Iterator[Any] | None:
        out = self.out
        out += f"N{one.made};".encode("utf-8", "replace")
        if self.exact and one.label:
            out += b"%d;" % self.number(f"{CLASS}{one.label}")
        match one.made if one.made in _SPECIAL else "":
            case "shared" | "identical":
                out += b"%d;" % self.number(one.args[0])
                return None
            case "array" | "memory_block" | "machine_values":  # of an exact fingerprint: with its memory
                at = int(one.made == "machine_values")
                if class_of(one.args[at]) is int:
                    out += ",".join(self.buffers[int(one.args[at])]).encode()
                    return itertools.chain(one.args[:at], one.args[at + 1 :], one.state)
            case "live":
                self.alive = LIVE
                out += one.args[0].encode()
            case "database" | "file":
                self.alive = LIVE  # its content is elsewhere
            case "code" | "code_from":
                out += b"%d;" % _code_digest(one)
                return None
            case "make_class":  # without its uid
                return itertools.chain(self.class_of(one), one.args[5:] if self.exact else ())
            case "dask._expr.Expr._reconstruct" if not self.exact and one.args and class_of(one.args[-1]) is dict:
                return iter(one.args[:-1])  # the last one has cached properties
            case "remembering" | "cached_property" if not self.exact:
                return iter(one.args[:1])
            case "function" if not self.exact:
                # Its code says where it is from; its globals are named, not held.
                return itertools.chain(one.args[:1], one.args[2:], one.state, one.items)
            case _:
                pass
        shown = [visible for state in one.state if (visible := self.visible(one, state)) not in ({}, None)]
        self.made += shown
        return itertools.chain(one.args, shown, one.items)

    def part_text(self, one: Node) -> str:
        """Return the fingerprint of an array or an index, which is the same whether or not it has a pack of its own."""
        one = (as_array(one, self.memory) if one.made == "array_view" else None) or one
        inner = self.inner()
        if one.made in ARRAYS:
            self.write_array(inner, one)
        else:
            inner.walk_all(inner.node_itself(one) or iter(()))
        self.made.append(one)
        digest = self.take(inner).hex()
        return f"{inner.alive or 'xxh3:'}{digest}"

    def write_array(self, inner: _Walker, one: Node) -> None:
        at = int(one.made == "machine_values")
        rest: Any = one.args
        if one.made != "array_view" and class_of(rest[at]) is not bytes:
            told: Any = self.buffers[rest[at]] if class_of(rest[at]) is int else rest[at]
            inner.out += "".join(told).encode()
            rest = rest[:at] + rest[at + 1 :]
        inner.walk((rest, *(self.visible(one, state) for state in one.state)))

    def class_of(self, one: Node) -> Iterator[Any]:
        _, meta, name, path, bases, *_ = one.args
        members = [
            {key: value for key, value in part.items() if key not in _NO_CONTENT} if class_of(part) is dict else part
            for state in one.state
            for part in (state[0] if len(state) == 1 else state)
        ]
        self.made.append(members)
        return iter((meta, name, path, bases, members))

    def visible(self, one: Node, state: Any) -> Any:
        """Return the attributes of an instance that are content."""
        own = one.made.startswith("own ")
        name = _class_name(one)
        hidden = self.hidden(one.label) if own else _cached_properties(name) | made_by_reading(name)

        def shown(members: Any, depth: int = 0) -> Any:
            if class_of(members) is tuple and depth < 2:
                inner = [(item, shown(item, depth + 1)) for item in members]
                return tuple([now for item, now in inner if now != {} or item == {}])  # nothing but caches: left out
            if class_of(members) is not dict:
                return members
            if own:
                return {key: value for key, value in members.items() if class_of(key) is not str or key not in hidden}
            content = {key: members[key] for key in _content_keys(hidden, tuple(members))}
            for key in _MADE_BY_READING & content.keys():
                if _is_made(key, content[key]):
                    del content[key]
            return content

        return shown(state)


def _written(one: Any) -> bytes:
    kind = class_of(one)
    text = f"{one:x}" if kind is int else repr(one)  # a long int has no other text
    return f"{kind.__name__[0]}{len(text)}:{text};".encode("utf-8", "replace")


@functools.lru_cache(5000)
def _written_keys(keys: tuple[Any, ...]) -> bytes:
    """Return the keys of a dict; empty where one is no text."""
    return b"".join(map(_written, keys)) if all(class_of(key) is str for key in keys) else b""


_CONSTANTS: dict[bool | None, bytes] = {one: _written(one) for one in (None, False, True)}


@functools.lru_cache(5000)
def _content_keys(hidden: frozenset[str], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the attributes of a library's object that are no caches: a copy may have got them in another order."""
    kept = [key for key in keys if class_of(key) is not str or not (key in hidden or is_cache(key))]
    return tuple(sorted(kept, key=str))


_HASHES = frozenset(("_hash", "_mhash"))
_MADE_BY_READING = frozenset(("_attrs", "_encoding", "_fill_value")) | _HASHES


def _is_made(name: str, value: Any) -> bool:
    """Return whether an attribute of a library's object has what its library makes where it is read.

    xarray makes empty attributes, a masked array of NumPy the fill value of its type, and others keep their hash.
    """
    if name in _HASHES:
        return value is None or class_of(value) is int
    if name == "_fill_value" and getattr(value, "made", "") == "array" and class_of(value.args[0]) is bytes:
        return is_default_fill(*value.args[:2])
    return value in (None, {})


def _class_name(one: Node) -> str:
    """Return the full name of the class of a library whose instance a node stands for, or of what makes it."""
    made = one.args[0] if one.made == "new" and one.args else None
    return made.__name__ if isinstance(made, type) else one.made


def _cached_properties(name: str) -> frozenset[str]:
    """Return the cached properties of a class of a library: reading them gives an instance more attributes."""
    module, _, path = name.rpartition(".")
    return _cached_properties_in(module, path) if module in sys.modules else frozenset()


@functools.lru_cache(5000)
def _cached_properties_in(module: str, path: str) -> frozenset[str]:
    cls = loaded(module).get(path)
    return AttributePlan(cast("type", cls), own=False).skip if is_kind(class_of(cls), type) else frozenset()


def _code_digest(one: Node) -> int:
    data = one.args[1]
    if class_of(data) is bytes:
        code = marshal.loads(data)  # noqa: S302 - of a pack that was made in this process, or is signed
        if class_of(code) is types.CodeType:
            return code_facts(code).digest
    return int.from_bytes(xxh3_128_digest(repr(data).encode("utf-8", "replace"))[:8], "little")
