"""Packs as trees of plain containers and nodes, without making any object of them."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from ctxkernel.core.state_names import CLASS
from ctxkernel.state.types.object_names import value_of_label
from ctxkernel.state.types.packer import Opened
from ctxkernel.state.types.parts import SEEDS, plain_name

MOST_TEXT = 4 * 1024 * 1024


class TooLarge(Exception):
    """A value with more content than the limit."""


class Node:
    """An object as its pack describes it. Its class has the name of the constructor."""

    label = ""

    def __new__(cls, *args: Any, **keywords: Any) -> Node:
        """Make a node with the arguments of the constructor. Keyword arguments become the last one, as a dict."""
        one = object.__new__(cls)
        args = (*args, keywords) if keywords else args
        one.made, one.args, one.state, one.items = cls.__name__, args, [], []
        return one

    made: str
    args: tuple[Any, ...]
    state: list[Any]
    items: list[Any]

    def __setstate__(self, state: Any) -> None:
        self.state.append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items.append((key, value))

    def append(self, item: Any) -> None:
        """Add an item."""
        self.items.append(item)

    def extend(self, items: Any) -> None:
        """Add items."""
        self.items.extend(items)

    add = append

    def __call__(self, *args: Any) -> Node:
        """Return a node for what a call of this one gives."""
        return named("call")(self, *args)


_FILLS = ("fill", "update_dict", "adopt", "index_references", "position", "skip")
"""Prefixes of constructors that set the content of an existing object."""


class _Reader(pickle.Unpickler):
    """Reads a pack as nodes."""

    def find_class(self, module: str, name: str) -> Any:
        return named(f"{module}.{name}")

    labels: Sequence[str]
    exact = False

    def persistent_load(self, pid: Any) -> object:
        label = self.labels[int(pid)]
        # The value does not tell which object it is.
        return named("identical")(label) if self.exact else value_of_label(label)


@functools.lru_cache(5000)
def named(name: str, label: str = "") -> type[Node]:
    """Return the class of nodes with a name."""
    return type(name, (Node,), {"label": label})


def values_of(
    stream: Any,
    sizes: Sequence[int],
    chunks: Sequence[Sequence[str]],
    *,
    most: float = MOST_TEXT,
    exact: bool = False,
) -> dict[str, Any]:
    """Return the values of a stream by name, as trees.

    `sizes` are those of its buffers in bytes, `chunks` their addresses, which stand for the content. `most`: bytes of
    long texts. `exact`: trees for `exact_fingerprint`.

    Raises ValueError for what is no stream of ours, and TooLarge.
    """
    opened = Opened(stream)
    cut: set[int] = {number for _, number in opened.cuts}
    if sum(sizes[number] for number in cut) > most:
        raise TooLarge

    def part(name: str) -> Callable[..., Any]:
        return lambda *args: _make(name, opened.labels, args)

    seeds = [part if name == "part" else named(f"seed {name}")() for name in SEEDS]
    held = [b"buffer %d" % at for at in range(len(sizes))]
    for at in cut:  # a text of that size that stands for a long one
        text = "".join(chunks[at]).encode()
        held[at] = (text * (sizes[at] // len(text) + 1))[: sizes[at]]
    reader = _Reader(opened.source(held), buffers=opened.turns(seeds, [memoryview(one) for one in held]))
    reader.labels, reader.exact = opened.labels, exact
    return {plain_name(name): value for name, value in reader.load()[0].items()}


def _make(name: str, labels: Sequence[str], args: tuple[Any, ...]) -> Any:
    if name.startswith(_FILLS):
        made = getattr(args[0], "content", args[0]) if isinstance(args[0], type) else args[0]
        if isinstance(made, Node):
            made.state.append(args[1] if name == "adopt" else args[1:])
        return None
    if name == "make_class":
        return type(f"own {args[3]}", (Node,), {"label": args[0], "content": named(name)(*args)})
    first: Any = args[0] if args else None
    if name == "definition":
        return named(".".join(args))
    if name == "own_class":
        return named(f"own {args[1]}", labels[int(first)].removeprefix(CLASS))
    if name in ("new", "keyed", "value") and args:
        cls, *given = args[1:] if name == "value" else args if name == "new" else args[:1]
        if isinstance(cls, type) and issubclass(cls, Node):
            return cls.__new__(cls, *given)
    if name in ("shared", "live"):
        return named(name)(labels[int(first)])
    return named(name)(*args)
