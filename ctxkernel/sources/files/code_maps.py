"""A map of code: the symbols of a package or of a folder of sources, the most important first.

Rule 1: level 1 has all symbols in the order of `code_ranking.py`, with their methods and docstrings as far as all of
        them fit; level 2 has what each part of the tree is for, and its first symbols.
Rule 2: a position `@k` is the symbol k of that order, and so is its name: `linear_model.Ridge`.
Rule 3: until the background has read all of a large tree, the first line says how much was, with a `~`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import islice
from typing import Any, Self

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.jobs import Preparation
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import plural, truncate
from ctxkernel.projection.tokens import count_tokens, largest
from ctxkernel.sources.base.amounts import FULL_ADVICE, Line, NamedLine, lines_within, marked, more, moved
from ctxkernel.sources.base.file_reader import content_hash, file_stamp
from ctxkernel.sources.base.fitting import NO_CAP, advised, advises, beginning, fit, fullest
from ctxkernel.sources.base.planner import said_of
from ctxkernel.sources.base.rendering import EMPHASIS, BaseSource, Draft, Place, parse_place
from ctxkernel.sources.files.code_trees import ACCEPTED, CodeTree, brought_up, listed, read_tree
from ctxkernel.sources.files.files import FileSource
from ctxkernel.sources.outlines.code_files import CodeFile
from ctxkernel.sources.outlines.code_ranking import ASIDE, Ranked

WATCHED = 2_000
"""Files that are asked at each tick whether they changed."""
_DETAILED = 400
"""Of more symbols the methods and docstrings are not tried."""
_SIGNATURE_CHARS, _SHORT_CHARS = 160, 36
_SIGNED = 0.4
"""The share of a budget for the first symbols with their signatures; others have their names only, by module."""
_SIGNED_TOKENS, _LINE_TOKENS = 24, 6
"""The tokens of a line with a signature, about, and the fewest tokens of a line."""
_LEAST_SIGNED = 140
"""In a smaller budget no line has a signature, and the mark does not say so: the name of a symbol has its room."""
_NAMED = 8
_ASKED = 8
"""So many symbols that the last question names come before the order."""
_PARTS_SHARE = 6
"""The names of the parts of a tree take at most one part in so many of a budget."""
_ABOUT_CHARS = 120


@dataclass(frozen=True, slots=True)
class MapEntry:
    """An entry directly in a tree: a folder or a file."""

    name: str
    """As the listing has it, a folder with / at its end."""
    about: str
    symbols: Sequence[Ranked]

    def line(self, package: str = "") -> NamedLine:
        """Return the part as a bullet: what it is for, and its first symbols."""
        stem = self.name.removesuffix("/").removesuffix(".py")
        name = (f"{package}.{stem}" if stem != "__init__" else package) if package else self.name
        names = list(dict.fromkeys(one.symbol.name for one in self.symbols))
        shown, rest = names[:_NAMED], len(names[_NAMED:])
        listing = ", ".join([*shown, *([f"… {plural(rest, 'others')}"] if rest else [])])
        short = f"- {name}{f': {truncate(self.about, _ABOUT_CHARS)}' if self.about else ''}"
        listed = name.removeprefix(f"{package}.") if package else name  # a list of names is within the package
        return NamedLine(f"{short}{f' — {listing}' if listing else ''}", listed, "parts", short=short)


class CodeMap:
    """The map of one folder, kept up to date."""

    def __init__(self, root: str, package: str = "") -> None:
        """`package` is the dotted name of the package that the folder is, if it is one."""
        self._tree = ACCEPTED.get(root) or CodeTree(root, package)
        if self._tree.package != package:
            self._tree = CodeTree(root, package)
        self._listing = self._tree.listing

    @property
    def root(self) -> str:
        """The folder."""
        return self._tree.root

    def stamp(self) -> str:
        """Return a hash of the stats of the folders and of the first `WATCHED` files. Never raises."""
        folders = content_hash(" ".join(map(file_stamp, self._listing.folders)).encode())
        if not self._listing.folders or folders != self._listing.stamp:
            self._listing = listed(self.root)
        some = islice(self._listing.sizes, WATCHED)
        files = " ".join(file_stamp(os.path.join(self.root, path)) for path in some)
        return f"{self._listing.stamp} {content_hash(files.encode())}"

    @property
    def watches_all(self) -> bool:
        """Return whether the stamp is of all files."""
        return len(self._listing.sizes) <= WATCHED

    def tree(self) -> CodeTree:
        """Return the tree as it is now, as far as it is read at once."""
        self.stamp()
        self._tree = brought_up(self._tree, self._listing)
        return self._tree

    @property
    def known(self) -> CodeTree:
        """The tree as it was looked at last."""
        return self._tree

    def preparation(self) -> Preparation | None:
        """Return the pass over what was not read yet; None where all was, or where nobody looked."""
        tree = self._tree
        if not tree.listing.folders or tree.complete:
            return None
        return Preparation(f"code {tree.root}", lambda stopped, publish: read_tree(tree, stopped, publish))

    def take(self, result: CodeTree) -> bool:
        """Take what the background read. Returns whether no more of it is needed."""
        if (
            result.root != self.root
            or result.package != self._tree.package
            or (self._tree.complete and not result.whole)
        ):
            return False
        self._tree = ACCEPTED[self.root] = result
        self._listing = result.listing
        return result.complete

    def find(self, pos: str) -> Place | None:
        """Return the place of a symbol by its name, or that of a member of a class; None where there is no such."""
        symbols = self.tree().symbols
        for at, one in enumerate(symbols):
            if pos in (one.name, one.symbol.name):
                return Place(offset=at)
        ends = [at for at, one in enumerate(symbols) if one.name.endswith(f".{pos}") or _has_member(one, pos)]
        return Place(offset=ends[0]) if ends else None

    def further(self, place: Place, tokens: int) -> str:
        """Return the position that is `tokens` after `place`, by the lines of the map."""
        lines = [_line(one, _SHORT_CHARS) for one in self._tree.symbols]
        return f"@{moved(lines, self.at(place, place.shift), tokens)}"

    def at(self, place: Place, shift: int = 0) -> int:
        """Return which symbol a place is, from 0; at level 1 also a line is one, and a shift counts them."""
        at = place.line if place.offset is None else place.offset
        return min(max(at + shift, 0), max(len(self._tree.symbols) - 1, 0))

    def headed(self, head: str) -> str:
        """Return a first line with the number of symbols, and how much was read."""
        tree = self._tree
        count = plural(len(tree.symbols), "symbols") if tree.whole else f"{len(tree.symbols):,}+ symbols"
        return " · ".join([head, count, *tree.remarks()])

    def source(self, place: Place, budget: int) -> Draft:
        """Return level 0 at a symbol: its source."""
        one = self._tree.symbols[self.at(place)]
        file = FileSource(os.path.join(self.root, *one.path.split("/")), f"{one.name} · {one.path}")
        start = Place(one.symbol.line + max(place.shift, 0), place.col)
        draft = file.draft(RenderRequest(0, str(start), budget), start, budget)
        after = parse_place(draft.next_pos or "")
        if after is None:
            return draft
        # A line of that file is no position here: lines are counted from the symbol.
        further = f"@{place.offset or 0}+{after.line - one.symbol.line}"
        told = draft.text.replace(f'h.pos = "{draft.next_pos}"', f'h.pos = "{further}"')
        return replace(draft, text=told, next_pos=further)

    def structure(self, head: Sequence[str], place: Place, budget: int) -> Draft:
        """Return level 1: the symbols from `place` on."""
        tree, first = self._tree, self.at(place, place.shift)
        order = self._asked_first(range(first, len(tree.symbols)))
        ranked = [tree.symbols[at] for at in order]
        head = [*head, *self._named_parts(budget // _PARTS_SHARE)] if not first else head
        while len(head) > 1 and 2 * count_tokens("\n".join(head)) > budget:
            head = head[:-1]
        unread = [] if tree.whole else [Line("[… what follows was not read yet]", 0, "symbols", exact=False)]
        before = [f"[… {plural(first, 'symbols')} before]"] if first else []
        nested = sum(len(one.symbol.members) for one in ranked)
        for methods, docs in ((True, True), (True, False), (False, True)) if len(ranked) <= _DETAILED else ():
            lines = [line for one in ranked for line in _detailed(one, methods, docs)]
            left = "" if methods else more(nested, "nested symbols")
            if methods and not docs:
                left = _details(ranked, len(ranked), 0, len(ranked))
            dropped = (len(ranked) * _SIGNED_TOKENS if methods else nested * _LINE_TOKENS) if left else 0
            text = "\n".join([*head, *before, *lines, *unread, *([marked(left, dropped)] if left else [])])
            if count_tokens(text) <= budget:
                return Draft(text, cut_tokens=dropped)
        lines = [_line(one, _SHORT_CHARS) for one in ranked[: budget // _LINE_TOKENS + 1]]
        room = budget - count_tokens("\n".join([*head, *before]))
        signed = lines_within(lines, max(1, int(room * _SIGNED))) if budget >= _LEAST_SIGNED else 0
        if budget >= NO_CAP:
            lines = [_line(one, _SIGNATURE_CHARS) for one in ranked]
            signed = len(ranked)
        listed = _SymbolList(tree, [*head, *before], ranked, order, first, lines, unread)
        return fullest(budget, lambda grows, placed: listed.within(budget, signed, grows, placed))

    def _asked_first(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the numbers of symbols with those first that the last question names."""
        emphasis = EMPHASIS.get()
        if emphasis is None or not emphasis.asked:
            return numbers
        symbols = self._tree.symbols
        asked = [at for at in numbers if not emphasis.asked.isdisjoint(said_of(symbols[at].name))]
        first = asked[:_ASKED]
        return [*first, *(at for at in numbers if at not in first)]

    def _named_parts(self, budget: int) -> list[str]:
        """Return the line with the names of the parts, those that are for tests last, as many as fit."""
        names = [part.name for part in self.parts()]
        if len(names) < 2:
            return []

        def build(k: int) -> str:
            rest = [f"… {len(names) - k:,} more"] if k < len(names) else []
            return f"parts: {', '.join([*names[:k], *rest])}"

        k, text = fit(len(names), build, budget)
        return [text] if k > 0 else []

    def parts(self) -> list[MapEntry]:
        """Return what lies in the tree, the most important first; in a tree of one folder, what lies in that."""
        groups: dict[str, list[Ranked]] = {}
        prefix = ""
        while True:
            groups = {}
            for one in self._tree.symbols:
                groups.setdefault(_part(one.path, prefix), []).append(one)
            only = next(iter(groups), "")
            if len(groups) != 1 or not only.endswith("/"):
                break
            prefix = only
        codes = self._tree.codes
        found = [
            MapEntry(name, _about(name, codes), [one for one in symbols if one.tier < ASIDE] or symbols)
            for name, symbols in groups.items()
        ]
        weight = {part.name: sum(one.score for one in part.symbols) for part in found}
        return sorted(found, key=lambda part: (min(one.tier for one in part.symbols), -weight[part.name], part.name))


def _about(name: str, codes: Mapping[str, CodeFile]) -> str:
    code = codes.get(f"{name}__init__.py" if name.endswith("/") else name)
    return code.about if code is not None else ""


@dataclass(frozen=True)
class _SymbolList:
    """Symbols of which the first have their signatures, and the next ones their names, by module."""

    tree: CodeTree
    head: Sequence[str]
    ranked: Sequence[Ranked]
    order: Sequence[int]
    """The number of each of them in the map."""
    first: int
    lines: Sequence[str]
    """Those of the first, with short signatures."""
    unread: Sequence[str]

    def within(self, budget: int, signed: int, grows: bool, placed: bool) -> Draft:
        """Return as many as fit, `signed` of them with their signatures, and how the next one begins."""
        count, pos = len(self.ranked), placed and advises(budget)

        def text(
            k: int, signed: int, begun: int = 0, advice: str = FULL_ADVICE * grows, told: tuple[int, int] = (0, 0)
        ) -> str:
            return self._text(k, signed, begun, advice, pos, told, budget >= _LEAST_SIGNED)

        k, found = fit(count, lambda k: text(k, signed), budget, guess=signed)
        told = 0, 0
        if k >= 0:
            if k == count <= len(self.lines):  # all have room: more of them may have their signatures
                signed = max(signed, largest(k, lambda n: count_tokens(text(k, n)) <= budget, signed))
            least = len(self.ranked[k].name) + 2 if k < count and budget < NO_CAP else 0
            most = len(self._next(k, signed)) if least else 0
            begun = largest(most, lambda n: count_tokens(text(k, signed, n)) <= budget, least)
            begun = begun if begun >= least else 0
            if k == count <= signed and count <= _DETAILED:
                told = self._told(budget, lambda told: text(k, signed, told=told))
            found = (
                text(k, signed) if budget >= NO_CAP else advised(lambda one: text(k, signed, begun, one, told), budget)
            )
        cut = self._cut(max(k, 0), told) if k < count or self._nested(told) else 0
        return Draft(found, cut_tokens=cut, next_pos=self._after(k))

    def _told(self, budget: int, text: Callable[[tuple[int, int]], str]) -> tuple[int, int]:
        """Return how many symbols have room for members and docstrings, and how many for all of their signatures."""
        count = len(self.ranked)
        deep = max(0, largest(count, lambda n: count_tokens(text((n, n))) <= budget, 1))
        return deep, max(deep, largest(count, lambda n: count_tokens(text((deep, max(deep, n)))) <= budget, deep + 1))

    @cached_property
    def _members(self) -> list[int]:
        return [len(one.symbol.members) for one in self.ranked]

    def _nested(self, told: tuple[int, int]) -> int:
        """Return how many symbols there are within others, of those whose members are not shown."""
        return sum(self._members[told[0] :])

    def _text(
        self, k: int, signed: int, begun: int, advice: str, placed: bool, told: tuple[int, int], details: bool
    ) -> str:
        whole, nested, (deep, long) = self.tree.whole, self._nested(told), told
        left = [
            more(len(self.ranked) - k - bool(begun), "symbols", exact=whole),
            more(nested, "nested symbols", exact=whole),
            _details(self.ranked[: k + bool(begun)], signed, *told) if details else "",
        ]
        amount = ", ".join(filter(None, left))
        mark = (
            [marked(amount, self._cut(k, told), self._after(k) if placed else None, advice=advice)]
            if amount
            else self.unread
        )
        part = [beginning(self._next(k, signed), begun)] if begun else []
        shown = [line for one in self.ranked[:deep] for line in _detailed(one, True, True)]
        shown += [_line(one, _SIGNATURE_CHARS) for one in self.ranked[deep:long]]
        shown += [*self.lines[long : min(signed, k)], *_grouped(self.ranked[signed:k]), *part]
        return "\n".join([*self.head, *shown, *mark])

    def _next(self, k: int, signed: int) -> str:
        """Return the line that is begun after `k` symbols."""
        return _line(self.ranked[k], _SIGNATURE_CHARS) if k <= signed else _grouped(self.ranked[k : k + 1])[0]

    def _after(self, k: int) -> str | None:
        return f"@{self.order[k]}" if 0 < k < len(self.ranked) and self.order[k] > self.first else None

    def _cut(self, k: int, told: tuple[int, int]) -> int:
        return max(1, (len(self.ranked) - k) * _SIGNED_TOKENS + self._nested(told) * _LINE_TOKENS)


class MappedSource(BaseSource):
    """The frame of a source with a map of code, `map`."""

    map: CodeMap | None = None

    def preparation(self) -> Preparation | None:
        """Return the pass over code that was not read yet."""
        found = self.map.preparation() if self.map is not None else None
        return super().preparation() if found is None else found

    def accept(self, result: Any) -> bool:
        """Take code that the background read."""
        if not isinstance(result, CodeTree):
            return super().accept(result)
        self._renderings.clear()
        return self.map is not None and self.map.take(result)

    def fact_names(self) -> Collection[str]:
        """Return the symbols of the map as it was looked at last, and what the folder has besides."""
        symbols = self.map.known.symbols if self.map is not None else ()
        return [*(one.name for one in symbols), *super().fact_names()]

    def twin(self) -> Self:
        """Return a source of the same target for another thread."""
        other = super().twin()
        other.map = copy(self.map)
        return other

    def absorb(self, twin: BaseSource) -> None:
        """Take over what a twin read; what the background gave meanwhile stays."""
        own = self.map
        super().absorb(twin)
        if own is not None and own.known.complete and not (self.map is not None and self.map.known.complete):
            self.map = own


def _has_member(one: Ranked, pos: str) -> bool:
    of, _, name = pos.rpartition(".")
    return (
        bool(of)
        and (one.name == of or one.name.endswith(f".{of}"))
        and any(inner.name.rpartition(".")[2] == name for inner in one.symbol.members)
    )


def _part(path: str, prefix: str) -> str:
    head, below, _ = path.removeprefix(prefix).partition("/")
    return f"{prefix}{head}{below}"


def _details(ranked: Sequence[Ranked], signed: int, deep: int = 0, long: int = 0) -> str:
    """Return of how many symbols more is known than is shown.

    The first `deep` are shown whole, those up to `long` with their signatures, those up to `signed` with short ones.
    """
    count = sum(
        bool(one.symbol.doc) or (at >= long and len(one.symbol.signature) > (_SHORT_CHARS if at < signed else 0))
        for at, one in enumerate(ranked)
        if at >= deep
    )
    return f"details of {plural(count, 'symbols')}" if count else ""


def _grouped(ranked: Sequence[Ranked]) -> list[str]:
    """Return a line for each module with the names of its symbols, in the order of the first of each."""
    groups: dict[str, list[str]] = {}
    for one in ranked:
        groups.setdefault(one.name[: len(one.name) - len(one.symbol.name)].rstrip(". :"), []).append(one.symbol.name)
    return [f"{module}: {', '.join(names)}" for module, names in groups.items()]


def _line(one: Ranked, most: int) -> str:
    kind = "class " if one.symbol.kind == "class" else ""
    return f"{kind}{one.name}{truncate(one.symbol.signature, most)}"


def _detailed(one: Ranked, methods: bool, docs: bool) -> Iterator[str]:
    def about(doc: str) -> str:
        return f" — {doc}" if docs and doc else ""

    yield _line(one, _SIGNATURE_CHARS) + about(one.symbol.doc)
    for inner in one.symbol.members if methods else ():
        name = inner.name.rpartition(".")[2]
        line = f"  {name}{truncate(inner.signature, _SIGNATURE_CHARS)}{about(inner.doc)}"
        yield Line(line, 1, "nested symbols")
