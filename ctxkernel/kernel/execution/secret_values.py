"""Finds the values of a kernel that are secrets, and teaches them to its masker: environment, variables, input, source.

Rule 1: values are read, never changed, and no code of the user's runs: no repr, no property, no `__getattr__`.
Rule 2: the cost of a cell depends on what it changed; what is nested is searched within bounds.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from types import ModuleType
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.reflection import SEQUENCES, Classes
from ctxkernel.core.timeline import NamespaceDiff
from ctxkernel.projection.known_values import names_secret
from ctxkernel.projection.masker import Masker
from ctxkernel.projection.secrets import credentials

_DEEP = 4
"""Levels of nested values that are searched."""
_MOST_SEEN = 1_000
"""Values that are looked at for one variable."""
_MOST_CHARS = 2_000
"""Characters of the longest text that is searched for passwords."""
_MOST_LISTED = 100
"""Items of the longest list that is searched."""
_ENV = re.compile(r"^[ \t]*%(?:set_)?env[ \t]+([A-Za-z_]\w*)[ \t=]+(\S+)[ \t]*$", re.MULTILINE)
_QUOTES = "\"'"


@dataclass(eq=False, kw_only=True)
class SecretValues:
    """Follows the secrets of one kernel."""

    masker: Masker
    namespace: Mapping[str, Any]
    open_names: Callable[[], Iterable[str]] = tuple
    """Returns the variables of which it is not known yet whether the cell changed them."""
    _environment: Mapping[Any, Any] = field(default_factory=dict[Any, Any])

    def start(self) -> None:
        """Read the environment, and the variables that exist already."""
        self.read_environment()
        self.read_names(list(self.namespace))

    def before_cell(self, code: str) -> None:
        """Read the assignments in the text of a cell: what they assign may be in its output."""
        masker = self.masker
        for span in credentials(code):
            if span.name:
                masker.learn(span.name, code[span.start : span.end].strip(_QUOTES))
        for name, value in _assigned(code):
            self._read_text(name, value)
        if "env" in code:
            for found in _ENV.finditer(code):
                masker.learn(found[1], found[2].strip(_QUOTES))

    def after_cell(self, diff: NamespaceDiff, every: bool) -> None:
        """Read the environment and the variables that changed, or with `every` all of them."""
        self.read_environment()
        if every:
            self.read_names(list(self.namespace))
        elif diff or diff.incomplete:
            self.read_names([*diff.added, *diff.changed, *(self.open_names() if diff.incomplete else ())])

    def typed(self, prompt: str, text: str, *, hidden: bool) -> None:
        """Take note of what the user typed: into a field for passwords, or after a prompt that asks for a secret."""
        words = re.findall(r"[A-Za-z][\w-]*(?:[ _-]key)?", prompt)
        name = next((word for word in reversed(words) if names_secret(word)), "")
        if hidden or name:
            self.masker.learn(name.replace(" ", "_") or "getpass", text, how="strong" if hidden else "")

    def read_environment(self) -> None:
        """Read the entries of the environment that changed."""
        now = cast("Mapping[Any, Any]", getattr(os.environ, "_data", os.environ))
        before = self._environment
        if now == before:
            return
        self._environment = dict(now)
        for key, value in self._environment.items():
            if before.get(key) != value:
                self._read_text(_text(key), _text(value))

    def read_names(self, names: Iterable[str]) -> None:
        """Read variables."""
        for name in names:
            if name.startswith("_") and name.lstrip("_").isdecimal():
                continue
            value: Any = self.namespace.get(name)
            kind = cast("type[Any]", type(value))
            if kind is str or kind is bytes:
                self._read_text(name, value)
            elif kind not in _ATOMS:
                self._search(name, value)

    def _read_text(self, name: str, value: str | bytes) -> None:
        """Take note of a text if its name says secret, and of the passwords in a URL or a connection string."""
        if names_secret(name):
            self.masker.learn(name, value)
        if isinstance(value, str) and len(value) <= _MOST_CHARS and ("://" in value or "=" in value):
            for span in credentials(value):
                if not span.label:
                    self.masker.learn(span.name or name, value[span.start : span.end], how="strong")

    def _search(self, name: str, value: Any) -> None:
        """Read the entries and attributes of a value, those nested in it included."""
        left: list[tuple[str, Any, int]] = [(name, value, 0)]
        seen = {id(value)}
        for count, (held, one, depth) in enumerate(left):  # nested values are appended
            if count >= _MOST_SEEN or depth > _DEEP:
                break
            for key, item in _entries(held, one, depth):
                kind = cast("type[Any]", type(item))
                if kind is str or kind is bytes:
                    self._read_text(key, item)
                elif kind not in _ATOMS and id(item) not in seen and len(left) < _MOST_SEEN:
                    seen.add(id(item))
                    left.append((key, item, depth + 1))


_SAYS_SECRET = re.compile(r"(?i)pass|pwd|secret|token|key|cred|auth")
_OPTION = re.compile(r"--?([A-Za-z][\w-]*)")
_BINDING = frozenset({ast.Assign, ast.AnnAssign, ast.keyword, ast.Dict, ast.List, ast.Tuple, ast.Call})
_MOST_CODE = 100_000
"""Characters of the longest source that is parsed."""


def _assigned(code: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the literal texts that a source binds to a name, a key, a keyword or an option."""
    if len(code) > _MOST_CODE or not ('"' in code or "'" in code) or not _SAYS_SECRET.search(code):
        return
    lines = ("" if line.lstrip()[:1] in ("%", "!", "?") else line for line in code.split("\n"))
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if type(node) not in _BINDING:  # most nodes, and a pattern takes much longer
            continue
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _texts(_name_of(target), value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _texts(_name_of(target), value)
            case ast.keyword(arg=str(name), value=value):
                yield from _texts(name, value)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    yield from _texts(_name_of(key), value)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Call(args=items):
                for option, value in pairwise(items):
                    if (found := _OPTION.fullmatch(_name_of(option))) is not None:
                        yield from _texts(found[1], value)
            case _:
                pass


def _name_of(node: ast.expr | None) -> str:
    """Return the name that an expression is, or the text of a literal; empty for others."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(slice=key):
            return _name_of(key)
        case _:
            return ""


def _texts(name: str, value: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the literal texts of an expression, each with the name."""
    if not names_secret(name):
        return
    items = value.elts if isinstance(value, ast.List | ast.Tuple | ast.Set) else [value]
    for item in items[:_MOST_LISTED]:
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield name, item.value


_ATOMS = Classes(int, float, bool, complex, type(None), type, range, slice)
_LISTS = Classes(list, tuple, set, frozenset)
_NOT_SEARCHED = frozenset(
    {"IPython", "ipykernel", "pandas", "matplotlib", "mpl_toolkits", "scipy", "sklearn", "statsmodels"}
)
"""Packages whose objects hold no secrets, or not by name, and lead far: a figure has thousands of objects in it, and
IPython's `exit` refers to the shell."""


def _entries(name: str, value: Any, depth: int) -> Iterable[tuple[str, Any]]:
    """Return the named parts of a value; the parts of a list have the list's name."""
    kind = cast("type[Any]", type(value))
    if issubclass(kind, dict):
        return _items(value)
    if kind in _LISTS:
        if kind in SEQUENCES:
            pairs = pairwise(value[:_MOST_LISTED])
            found = [(one[1], item) for key, item in pairs if type(key) is str and (one := _OPTION.fullmatch(key))]
            if found:
                return found
        return [(name, item) for item in value] if len(value) <= _MOST_LISTED else []
    if issubclass(kind, ModuleType) and (depth or not _is_own(value)):
        return []
    if kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas":
        named = [column for column in value.columns if type(column) is str and names_secret(column)]
        return [(column, item) for column in named for item in value[column].head(_MOST_LISTED).tolist()]
    if kind.__module__ in ("builtins", "numpy") or kind.__module__.partition(".")[0] in _NOT_SEARCHED:
        return []
    try:
        return _items(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return []


def _items(mapping: Any) -> list[tuple[str, Any]]:
    """Return the entries of a dict under texts; none of a large one, and of another kind of mapping."""
    plain: Any = dict  # the methods of a subclass would run the user's code
    if not issubclass(type(mapping), dict) or plain.__len__(mapping) > _MOST_SEEN:
        return []
    return [(key, item) for key, item in list(plain.items(mapping)) if type(key) is str]


def _is_own(module: Any) -> bool:
    """Return whether a module is the user's: its file is in no folder of installed packages."""
    file = object.__getattribute__(module, "__dict__").get("__file__")
    return isinstance(file, str) and "site-packages" not in file and not file.startswith(os.path.dirname(os.__file__))


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
