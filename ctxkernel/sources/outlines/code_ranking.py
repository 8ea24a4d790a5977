"""The order of importance of the symbols in a tree of code.

Rule 1: files are the nodes of a graph; who imports or mentions what another file defines has an edge to it. Ranks flow
        along the edges as in PageRank; what a file gives to another goes to the symbols that it uses there.
Rule 2: where a program begins, what packages export and other public symbols come first, then private ones, at last
        those of tests, of vendored and of generated code; within each by rank, ties by name.
Rule 3: pure, and the same for the same files.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.sources.outlines.code_files import PYTHON, CodeFile, Import, Symbol

PUBLIC, PRIVATE, ASIDE = range(3)
_ROUNDS = 6
_DAMPING = 0.3
"""Low: with more of it all ranks flow to the few helpers that everything leads to."""
_INNER = 0.3
"""The rank that a file has by itself; a test, which uses the code as others do, has 1."""
_ENTRY, _EXPORT = 1_000.0, 3.0
_SAME_MODULE = 0.15
_LEAST = 0.02
"""The value of a symbol that nothing uses."""
_KINDS = {"class": 2.0, "": 1.0, "constant": 0.2}
_FAULT = re.compile(r"\w*(?:Error|Warning|Exception)")
_HELPERS = frozenset(
    ("util", "utils", "helper", "helpers", "compat", "testing", "misc", "exception", "exceptions", "errors")
)
"""Modules of what others need: seldom what a package is for."""
_HELPER = 0.2
_DISTINCT = re.compile(r"[A-Z]\w*[a-z]\w*|\w+_\w+")
"""A name that is hardly that of a local variable."""
_MOST_HOMES = 4
"""A name that more files define says nothing about which one is meant."""
_IMPORTED, _MENTIONED, _PERHAPS = 4.0, 1.0, 0.05
_FEW = 4 * _IMPORTED
"""So that a file that uses one symbol only does not give all of its rank to it."""
_DEEPEST = 40
"""So many re-exports of one name are followed."""
_MOST_LOOKUPS, _MOST_STARS = 1_000_000, 500
"""Bounds on the work for a tree that was made to cost much."""
_PARTS = re.compile(r"[./]")
_INIT = "__init__"


@dataclass(frozen=True, slots=True)
class Ranked:
    """A symbol and what it is called."""

    name: str
    """The shortest name by which it can be imported; in another language its file and its own name."""
    path: str
    symbol: Symbol
    tier: int
    score: float


SymbolKey = tuple[str, str]
"""A file and the name of a top-level symbol in it."""


Weights = Mapping[SymbolKey, float]
"""The use of each symbol of a tree."""


def weigh(files: Mapping[str, CodeFile], root: str = "") -> Weights:
    """Return the weights of a tree. `root` is the name of the package that its folder is, if it is one."""
    tree = _Tree(files, root)
    uses = {path: _uses(tree, path) for path in files}
    ranks = _flow(files, uses)
    scores: dict[SymbolKey, float] = defaultdict(float)
    for path, used in uses.items():
        share = ranks[path] / (sum(used.values()) + _FEW)
        for key, weight in used.items():
            scores[key] += share * weight
    return dict(scores)


def in_order(
    files: Mapping[str, CodeFile], weights: Weights, root: str = "", entries: Iterable[str] = (), *, whole: bool = True
) -> list[Ranked]:
    """Return the top-level symbols of a tree, the most important first; `weights` may be those of an earlier state.

    `entries` are entry points as packaging has them: `package.module:function`. Of a tree that is not `whole`, what
    packages export from files that were not read is among them, by name.
    """
    tree = _Tree(files, root)
    called = _exported(tree)
    begins = {tree.home(*entry.partition(":")[::2]) for entry in entries}
    begins |= {
        (path, "main")
        for path, file in files.items()
        if (file.main or path.endswith("__main__.py")) and not _hidden(path)
    }
    found: list[Ranked] = []
    for path, file in files.items():
        module = tree.named.get(path)
        for symbol in file.symbols:
            key = (path, symbol.name)
            own = f"{module}.{symbol.name}" if module is not None else f"{path}: {symbol.name}"
            name = called.get(key, own)
            score = (weights.get(key, 0.0) + _LEAST) * _KINDS[symbol.kind] * (_EXPORT if key in called else 1.0)
            helper = not _HELPERS.isdisjoint(_PARTS.split(path)) or _FAULT.fullmatch(symbol.name) is not None
            score = score * (_HELPER if helper else 1.0) + (_ENTRY if key in begins else 0.0)
            shown = key in called or key in begins or (symbol.public and not _hidden(path))
            found.append(Ranked(name, path, symbol, ASIDE if file.aside else PUBLIC if shown else PRIVATE, score))
    if not whole:
        found += _promised(tree)
    found.sort(key=_order)
    return _spread(found)


def _promised(tree: _Tree) -> list[Ranked]:
    """Return what packages say that they export and no file defines that was read."""
    names: dict[str, Ranked] = {}
    for path, module in tree.named.items():
        if not path.endswith(f"{_INIT}.py") or tree.files[path].aside or _hidden(path):
            continue
        for name in tree.files[path].exported:
            whole = f"{module}.{name}"
            if name.startswith("_") or whole in tree.modules or tree.home(module, name) is not None:
                continue
            kind = "class" if name[:1].isupper() and not name.isupper() else ""
            names[whole] = Ranked(whole, path, Symbol(name, 0, "", kind), PUBLIC, _LEAST * _KINDS[kind] * _EXPORT)
    return list(names.values())


def _order(one: Ranked) -> tuple[int, float, bool, str, str]:
    return one.tier, -one.score, one.symbol.kind == "constant", one.name, one.path


def _spread(ranked: list[Ranked]) -> list[Ranked]:
    """Return them in an order in which the second and third of a module come later: breadth before depth."""
    before: Counter[str] = Counter()
    spread: list[Ranked] = []
    for one in ranked:
        module = one.name.rpartition(".")[0]
        spread.append(replace(one, score=one.score / (1.0 + _SAME_MODULE * before[module])))
        before[module] += 1
    return sorted(spread, key=_order)


def _hidden(path: str) -> bool:
    """Return whether the name of a file, or of a folder that it is in, begins with an underscore."""
    return any(part.startswith("_") and not part.startswith("__") for part in path.split("/"))


def module_name(path: str, packages: frozenset[str], root: str) -> str:
    """Return the dotted name of a Python file: from the outermost package that it is in, or below `root`."""
    parts = path.rpartition(".")[0].split("/")
    if parts[-1] == _INIT and (root or len(parts) > 1):
        parts.pop()
    if root:
        return ".".join([root, *parts])
    first = next((at for at in range(1, len(parts)) if "/".join(parts[:at]) in packages), len(parts))
    return ".".join(parts[first - 1 :])


class _Tree:
    """The files of a tree, and what is where."""

    def __init__(self, files: Mapping[str, CodeFile], root: str) -> None:
        self.files = files
        packages = frozenset(path.rpartition("/")[0] for path in files if path.endswith(f"/{_INIT}.py"))
        self.modules: dict[str, str] = {}
        self.named: dict[str, str] = {}
        """The module of each Python file."""
        self.homes: dict[str, list[str]] = defaultdict(list)
        """The files that define a name at top level."""
        self.owned: dict[str, frozenset[str]] = {}
        self._imported: dict[str, dict[str, Import]] = {}
        self._stars: dict[str, list[str]] = {}
        self._found: dict[SymbolKey, SymbolKey | None] = {}
        self._depth = 0
        for path, file in files.items():
            if path.endswith(PYTHON):
                self.named[path] = module_name(path, packages, root)
                self.modules.setdefault(self.named[path], path)
            self.owned[path] = frozenset(symbol.name for symbol in file.symbols)
            if not file.aside:
                for name in self.owned[path]:
                    self.homes[name].append(path)

    def module_of(self, module: str, path: str) -> str:
        """Return the whole name of a module that a file imports, a relative one from where the file is."""
        if not module.startswith("."):
            return module
        parts = self.named[path].split(".")
        if not path.endswith(f"{_INIT}.py"):
            parts.pop()
        level = len(module) - len(module.lstrip("."))
        return ".".join([*parts[: len(parts) - level + 1], *filter(None, module.lstrip(".").split("."))])

    def imported(self, path: str) -> dict[str, Import]:
        """Return what a file imports, by the name that it has there."""
        if path not in self._imported:
            imports = [one for one in self.files[path].imports if not one.example]
            self._imported[path] = {one.known_as: one for one in imports if one.known_as != "*"}
            stars = dict.fromkeys(self.module_of(one.module, path) for one in imports if one.name == "*")
            self._stars[path] = [module for module in stars if module in self.modules]
        return self._imported[path]

    def home(self, module: str, name: str) -> SymbolKey | None:
        """Return where a name of a module is defined, through the imports of other modules."""
        key = (module, name)
        if key not in self._found:
            self._found[key] = None  # where imports go in a circle
            if self._depth < _DEEPEST and len(self._found) < _MOST_LOOKUPS:
                self._depth += 1
                self._found[key] = self._home(module, name)
                self._depth -= 1
        return self._found[key]

    def _home(self, module: str, name: str) -> SymbolKey | None:
        path = self.modules.get(module)
        if path is None:
            return None
        if name in self.owned[path]:
            return path, name
        one = self.imported(path).get(name)
        if one is not None:
            return self.home(self.module_of(one.module, path), one.name) if one.name else None
        return next(filter(None, (self.home(star, name) for star in self._stars[path])), None)

    def attribute(self, path: str, of: str, name: str) -> SymbolKey | None:
        """Return where `of.name` is defined that a file mentions, if `of` is a module that it imports."""
        one = self.imported(path).get(of)
        if one is None:
            return None
        module = self.module_of(one.module, path)
        return self.home(f"{module}.{one.name}" if one.name else module, name)

    def public_names(self, module: str) -> list[str]:
        """Return the names that a module offers: those of `__all__`, else its own, and of a package what it imports."""
        names: list[str] = []
        todo, seen = [module], {module}
        while todo and len(seen) < _MOST_STARS:
            path = self.modules.get(todo.pop(), "")
            if not path:
                continue
            file = self.files[path]
            names += file.exported or (symbol.name for symbol in file.symbols)
            if not file.exported and path.endswith(f"{_INIT}.py"):
                names += self.imported(path)
                todo += [star for star in self._stars[path] if star not in seen]
                seen.update(self._stars[path])
        return [name for name in dict.fromkeys(names) if not name.startswith("_")]


def _uses(tree: _Tree, path: str) -> dict[SymbolKey, float]:
    """Return what a file uses of the others, with the weight of each."""
    used: dict[SymbolKey, float] = {}
    own = tree.owned[path]
    python = path in tree.named
    for one in tree.files[path].imports if python else ():
        key = tree.home(tree.module_of(one.module, path), one.name) if one.name else None
        if key is not None and key[0] != path:
            used[key] = _IMPORTED
    for name in tree.files[path].names:
        of, dot, attribute = name.partition(".")
        if dot:
            key = tree.attribute(path, of, attribute)
            if key is not None and key[0] != path:
                used[key] = _IMPORTED
            continue
        homes = tree.homes.get(name, ())
        if name in own or not 0 < len(homes) <= _MOST_HOMES:
            continue
        weight = (_MENTIONED if _DISTINCT.fullmatch(name) else _PERHAPS) / len(homes)
        for home in homes:
            if home != path:
                used.setdefault((home, name), weight)
    if path.endswith(f"{_INIT}.py"):  # it hands on all that it names: that is no use
        return {key: weight / 8 for key, weight in used.items()}
    return used


def _flow(files: Mapping[str, CodeFile], uses: Mapping[str, Mapping[SymbolKey, float]]) -> dict[str, float]:
    """Return the rank of each file."""
    edges: dict[str, list[tuple[str, float]]] = {}
    for path, used in uses.items():
        to: dict[str, float] = defaultdict(float)
        for (home, _), weight in used.items():
            to[home] += weight
        some = {home: math.sqrt(weight) for home, weight in to.items()}
        total = sum(some.values())
        edges[path] = [(home, weight / total) for home, weight in some.items()]
    own = {path: (1.0 if file.aside else _INNER) for path, file in files.items()}
    ranks = own
    for _ in range(_ROUNDS):
        following = {path: rank * (1.0 - _DAMPING) for path, rank in own.items()}
        for path, to_files in edges.items():
            rank = ranks[path] * _DAMPING
            for home, weight in to_files:
                following[home] += rank * weight
        ranks = following
    return ranks


def _exported(tree: _Tree) -> dict[SymbolKey, str]:
    """Return the shortest public name of each symbol that a module lists in `__all__`, or a package imports."""
    called: dict[SymbolKey, str] = {}
    for path, module in tree.named.items():
        file = tree.files[path]
        if file.aside or any(part.startswith("_") for part in module.split(".")):
            continue
        if not file.exported and not path.endswith(f"{_INIT}.py"):
            continue
        for name in tree.public_names(module):
            key = None if name.startswith("_") else tree.home(module, name)
            if key is not None and not tree.files[key[0]].aside:
                whole = f"{module}.{name}"
                known = called.get(key)
                if known is None or (whole.count("."), whole) < (known.count("."), known):
                    called[key] = whole
    return called
