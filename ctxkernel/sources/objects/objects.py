"""Any Python object as a source: its source code where it has some, else its value and its structure.

Rule 1: looking runs no code of the object (see `core/reflection.py`): no property, no `__repr__`, no `__len__`.
Rule 2: the object is held by reference, as long as the view lives.
Rule 3: the stamp is of the bounded text of the value; a change deep inside of a large container may not show in
        it, and does at the next refresh.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import operator
import sys
import textwrap
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, repeat
from typing import Any

from ctxkernel.core.descriptions import brief, enum_name, items_of, length_of
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.reflection import (
    CONTAINERS,
    HEAP_TYPE,
    NUMBERS,
    Classes,
    attributes,
    class_dict,
    class_flags,
    class_module,
    class_mro,
    class_of,
    class_qualname,
    function_of,
    is_a,
    module_dict,
    type_name,
)
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import LAST, Line, NamedLine, is_cut, more_lines
from ctxkernel.sources.base.file_reader import Text, content_hash, text_in_memory
from ctxkernel.sources.base.large_files import Window
from ctxkernel.sources.base.rendering import Draft, Place, TargetSource, fit_lines, parse_place, titled
from ctxkernel.sources.files.files import TextSource
from ctxkernel.sources.files.text_documents import lines_document
from ctxkernel.sources.files.text_levels import render_document, render_text, with_basis
from ctxkernel.sources.objects.facts import LinesSource

_MOST_LINES = 2_000
_LINE_CHARS = 200
_ITEMS = 1_000
_FEW = 8
_NAME_CHARS = 40
_STAMP_ITEMS = 200
_ALIKE = Classes(int, float, str)
_PLAIN = Classes(int, float, str, bool)
_SCALARS = Classes(int, float, bool, complex, types.NoneType)
_FUNCTIONS = Classes(types.FunctionType, types.MethodType)
_METHODS = Classes(types.FunctionType, types.MethodDescriptorType, staticmethod, classmethod)


class CodeSource(TargetSource, TextSource):
    """A function or class: the source code that it was made from."""

    kind = "code"

    def stamp(self) -> str:
        """Return which code it is: a function's code object, the members of a class."""
        target: Any = self.target
        function = target.__func__ if is_a(target, types.MethodType) else target
        if is_a(function, types.FunctionType):
            return f"code {id(function.__code__):x}"
        members = class_dict(target)
        return f"class {id(target):x} {hash(tuple((str(name), id(value)) for name, value in list(members.items()))):x}"

    def path_hint(self) -> str:
        """Return a name that says: Python."""
        return "code.py"

    def text(self) -> Text:
        """Return the source. Raises OSError or TypeError where there is none."""
        return text_in_memory(textwrap.dedent(_source_of(self.target)))


class StringSource(TargetSource, TextSource):
    """A text in memory that may change: an `io.StringIO`."""

    def stamp(self) -> str:
        """Return a hash of the text (a closed one has its own)."""
        try:
            return content_hash(self.target.getvalue().encode("utf-8", "replace"))
        except ValueError:
            return "closed"

    def text(self) -> Text:
        """Return the whole text. Raises ValueError when it was closed."""
        return text_in_memory(self.target.getvalue())


class ObjectSource(LinesSource):
    """Any other object. 0: its value, an item a line; 1: attributes and items by type; 2: names; 3: a diff."""

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._plain: tuple[list[Any], str] | None = None
        """The parts of a small plain value, and its stamp: the same objects in the same places are the same value."""

    def stamp(self) -> str:
        """Return a hash of the beginning of the value's text. Never raises."""
        parts = plain_parts(self.target)
        if parts is not None and self._plain is not None and same_parts(parts, self._plain[0]):
            return self._plain[1]
        lines = list(islice(value_lines(self.target), _STAMP_ITEMS))
        stamp = content_hash("\n".join([str(length_of(self.target)), *lines]).encode("utf-8", "replace"))
        self._plain = None if parts is None else (parts, stamp)
        return stamp

    def covers(self, stamp: str) -> bool:
        """Return False for a long container, which may have changed beyond what the stamp saw."""
        return (length_of(self.target) or 0) < _STAMP_ITEMS

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the object as it is now."""
        lines = self.parts()
        partial = len(lines) < line_count(self.target) or is_cut(lines)
        document = lines_document(_headline(self.label, self.target), lines, partial=partial)
        if request.lod == 0:
            return render_text(document, self._window(place, budget), request, place, budget)
        if request.lod == 3:
            return render_document(document, request, place, budget)
        if request.lod == 1:
            what = "lines" if length_of(self.target) is None else "items"
            draft = fit_lines([document.label], list(structure_lines(self.target)), budget, what)
        else:
            draft = fit_lines([document.label], list(summary_lines(self.target)), budget, "points")
        return with_basis(draft, document)

    def _window(self, place: Place, budget: int) -> Window:
        """Return the lines of the value from `place` on, at most as many as could be within a budget."""
        total = line_count(self.target)
        start = min(place.line, max(total - 1, 0))
        lines = list(islice(value_lines(self.target, start), min(_MOST_LINES, budget + 1)))
        past, col = place.line >= total > 0, 0
        if place.col and lines and not past:
            col = min(place.col, len(lines[0]))
            lines[0] = lines[0][col:]
        return Window(lines, start, col, total=max(total, start + len(lines)), past_end=past)

    def length(self) -> int:
        """Return the number of lines of the value."""
        return line_count(self.target)

    def last_parts(self, most: int) -> list[str]:
        """Return the last lines of the value."""
        return list(islice(value_lines(self.target, max(0, self.length() - most)), most))

    def parts(self) -> list[str]:
        """Return the first lines of the value."""
        return list(islice(value_lines(self.target), _MOST_LINES))

    def further(self, place: str, tokens: int, lod: int = 0) -> str | None:
        """Return the position that is `tokens` after `place`; None beyond the first lines. Never raises."""
        at = parse_place(place)
        known = at is not None and at.line < _MOST_LINES // 2
        return super().further(place, tokens, lod) if known or line_count(self.target) <= _MOST_LINES else None


def plain_parts(target: Any) -> list[Any] | None:
    """Return all that built-in containers of short immutable values hold, themselves included; None for anything else.

    At most 400 objects. Runs no code of anybody's; a microsecond or two.
    """
    found: list[Any] = [target]
    todo: list[Any] = [target]
    while todo:
        one = todo.pop()
        kind = class_of(one)
        if kind in CONTAINERS:
            if len(found) + len(one) > _STAMP_ITEMS:
                return None
            items: list[Any] = [*one, *one.values()] if kind is dict else [*one]
            found += items
            if not _SCALARS.hold(map(type, items)):
                todo += [item for item in items if type(item) not in _SCALARS]
        elif kind not in _SCALARS and not ((kind is str or kind is bytes) and len(one) <= _LINE_CHARS):
            return None
    return found


def same_parts(parts: list[Any], known: list[Any]) -> bool:
    """Return whether two lists hold the same objects: then a value made of them did not change."""
    return len(parts) == len(known) and all(map(operator.is_, parts, known))


def _headline(label: str, target: Any) -> str:
    """Return label, type and length."""
    length = length_of(target)
    return " · ".join([titled(label, target), *([plural(length, "items")] if length is not None else [])])


def line_count(target: Any) -> int:
    """Return the number of lines of the value."""
    length = length_of(target)
    if length is None:
        own = members_of(target) if type(target) is types.ModuleType else attributes(target)
        return len(own) if own and not enum_name(target) else 1
    if is_a(target, str):
        return str.count(target, "\n") + 1
    return -(-length // 64) if is_a(target, bytes, bytearray) else length


def value_lines(target: Any, start: int = 0) -> Iterator[str]:
    """Yield the value from line `start` on, an item or attribute a line."""
    if is_a(target, str):
        yield from str.__str__(target).split("\n")[start:]
    elif is_a(target, bytes, bytearray):
        base = bytes if is_a(target, bytes) else bytearray
        for at in range(64 * start, base.__len__(target), 64):
            yield repr(bytes(base.__getitem__(target, slice(at, at + 64))))
    elif length_of(target) is not None:
        for where, item in items_of(target, _MOST_LINES, start):
            yield f"{where[1:-1]}: {brief(item, _LINE_CHARS)}" if where else brief(item, _LINE_CHARS)
    elif type(target) is types.ModuleType:
        for name, item in islice(members_of(target).items(), start, None):
            yield f"{name} = {brief(item, _LINE_CHARS)}"
    elif (own := attributes(target)) and not enum_name(target):
        for name, item in islice(own.items(), start, None):
            yield f".{name} = {brief(item, _LINE_CHARS)}"
    elif not start:
        yield brief(target, _LINE_CHARS)


def structure_lines(target: Any) -> Iterator[str]:
    """Yield documentation, attributes and items by type, and public methods."""
    kind = class_of(target)
    if doc := _doc(target, kind):
        yield Line(f'"""{doc}"""', rank=1)
    own = members_of(target) if kind is types.ModuleType else attributes(target)
    public, more = _public(own)
    for name, item in public.items():
        yield NamedLine(f".{name}: {_typed(item)}", name, type_name(class_of(item)), what="attributes")
    yield from more_lines(more, "attributes")
    keyed, items = is_a(target, dict), list(items_of(target, _ITEMS))
    kinds = {id(class_of(item)): class_of(item) for _, item in items}
    alike = len(items) > _FEW and len(kinds) == 1 and _ALIKE.hold(kinds.values())
    for where, item in items:
        line = f"{where}: {_typed(item)}" if where else _typed(item)
        name = _key_name(where) if keyed else brief(item, _NAME_CHARS)
        yield NamedLine(line, name, type_name(class_of(item))) if keyed or alike else line
    if is_a(target, bytes, bytearray):
        yield from (Line(line, 1, "lines") for line in islice(value_lines(target), _FEW))
        yield from more_lines(line_count(target) - _FEW, "lines")
    elif (length := length_of(target)) is not None and not is_a(target, str):
        yield from more_lines(length - _ITEMS, "items")
    length = length_of(target)
    methods = [] if is_a(target, type) else [name for name in _methods(kind) if name not in own]
    if enum_name(target) or (length is None and not public):
        yield Line(brief(target, _LINE_CHARS))
    if length is None and class_flags(kind) & HEAP_TYPE:
        yield from (NamedLine(f"{name}: method", name, "method", what="methods", rank=2) for name in methods)
    private = 0 if is_a(target, type) else len(own) - len(public) - more
    if private and kind is not types.ModuleType and not enum_name(target):
        yield Line(f"[… {plural(private, 'private attributes')}]", private, "private attributes", rank=LAST)


def summary_lines(target: Any) -> Iterator[str]:
    """Yield what it is, in a few lines."""
    kind = class_of(target)
    if doc := _doc(target, kind):
        yield f"- {doc}"
    own = members_of(target) if kind is types.ModuleType else attributes(target)
    public, more = _public(own)
    yield from map(_typed_name, public.items(), repeat("attributes"))
    yield from more_lines(more, "attributes")
    items, length = list(items_of(target, _ITEMS)), length_of(target) or 0
    if is_a(target, dict):
        yield from map(_typed_name, ((_key_name(where), item) for where, item in items), repeat("items"))
        yield from more_lines(length - len(items), "items")
    elif items:
        counts = Counter(type_name(class_of(item)) for _, item in items)
        some = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:8]
        part = f"of the first {len(items):,} " if length > len(items) else ""
        others = f", {plural(len(counts) - len(some), 'more types')}" if len(counts) > len(some) else ""
        yield f"- {part}items: " + ", ".join(f"{often:,} {name}" for name, often in some) + others
    texts = Counter(item for _, item in items if type(item) is str)
    if texts and texts.total() == len(items) > _FEW:
        part = f" among the first {len(items):,}" if length > len(items) else ""
        often = ", ".join(f"{brief(text, _NAME_CHARS)} ×{count:,}" for text, count in texts.most_common(_FEW))
        yield f"- {len(texts):,} distinct{part}: {often}{', …' if len(texts) > _FEW else ''}"
    numbers = [item for _, item in items if type(item) in NUMBERS]
    if numbers and len(numbers) == len(items):
        part = f"the first {len(items):,} are " if length > len(items) else ""
        yield f"- {part}from {brief(min(numbers))} to {brief(max(numbers))}"
    if not public and not items:
        yield f"- {brief(target, _LINE_CHARS)}"


def _public(own: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the first public attributes and the last, and how many more there are."""
    names = [name for name in own if not name.startswith("_")]
    shown = names if len(names) <= _MOST_LINES else [*names[: _MOST_LINES - 1], names[-1]]
    return {name: own[name] for name in shown}, len(names) - len(shown)


def _key_name(where: str) -> str:
    """Return the key of an item as it stands in a list of names."""
    return where[2:-2] if where[1:2] == "'" else where[1:-1]


def _typed_name(named: tuple[str, Any], what: str) -> NamedLine:
    """Return the line of a name that says its type and nothing else."""
    kind = type_name(class_of(named[1]))
    return NamedLine(f"{named[0]}: {kind}", named[0], kind, what=what)


def members_of(module: types.ModuleType) -> dict[str, Any]:
    """Return what a module defines, without importing anything that it would load lazily."""
    return {name: item for name, item in list(vars(module).items()) if not name.startswith("__")}


def _typed(item: Any) -> str:
    kind = type_name(class_of(item))
    text = brief(item, 80)
    return text if text.startswith((f"<{kind}", f"{kind}(", "<")) else f"{kind} = {text}"


def _doc(target: Any, kind: type) -> str:
    if kind is types.ModuleType:
        doc: Any = module_dict(target).get("__doc__")
    elif is_a(target, type):
        doc = class_dict(target).get("__doc__")
    else:  # what `dict` or `list` is need not be said
        own = class_dict(kind)
        doc = own.get("__doc__") if own.get("__module__") is not None else None
    if not isinstance(doc, str):
        return ""
    return next((one_line(line, 120) for line in doc.splitlines() if line.strip()), "")


def _methods(kind: type) -> list[str]:
    found: dict[str, None] = {}
    for base in class_mro(kind)[:-1]:
        for name, member in list(class_dict(base).items()):
            if class_of(name) is str and not name.startswith("_") and type(member) in _METHODS:
                found.setdefault(name)
    return sorted(found)


def has_source(target: Any) -> bool:
    """Return whether `target` is a function or class whose source code can be found."""
    if type(target) not in _FUNCTIONS and not is_a(target, type):
        return False
    try:
        _source_of(target)
    except (OSError, TypeError, SyntaxError, IndentationError):
        return False
    except Exception:  # a class with a lying metaclass
        return False
    return True


def _source_of(target: Any) -> str:
    """Return the source code of a function or class. Raises what `inspect` does where there is none."""
    # `inspect` looks into the file of the module: a session has none, or that of what started it.
    found = None
    if is_a(target, type) and class_module(target) == "__main__":
        found = _class_in_cell(target) or _class_in(target, _cells())
    elif is_a(target, type) and _answers_itself(class_of(target)):
        found = _class_in(target, filter(None, [source_file(sys.modules.get(class_module(target)))]))
    if found is None and is_a(target, type) and _answers_itself(class_of(target)):
        raise TypeError("its metaclass answers for it")
    return found or inspect.getsource(target)


def _cells() -> list[str]:
    """Return the names of the sources that are in memory only, the newest first: those of cells."""
    return [name for name, entry in reversed(linecache.cache.items()) if len(entry) == 4 and entry[1] is None]


def _class_in(target: type, files: Iterable[str]) -> str | None:
    """Return the source of a class from the first of some files that has one like it, or None."""
    *outer, name = class_qualname(target).replace("<locals>.", "").split(".")
    for file in files:
        lines = linecache.getlines(file)
        if not any(f"class {name}" in line for line in lines):
            continue
        nodes: list[ast.AST] = [ast.parse("".join(lines))]
        for one in (*outer, name):
            nodes = [inner for node in nodes for inner in ast.walk(node) if getattr(inner, "name", None) == one]
        for node in reversed(nodes):
            if isinstance(node, ast.ClassDef) and _may_make(node, class_dict(target)):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                return "".join(lines[first - 1 : node.end_lineno])
    return None


def _may_make(node: ast.ClassDef, members: Mapping[str, Any]) -> bool:
    """Return whether a statement may have made a class with these members: another one may have had its name since."""
    typed = members.get("__annotations__", {})
    for one in node.body:
        names = [one.name] if isinstance(one, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) else []
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign) else []
        names += [name.id for name in targets if isinstance(name, ast.Name)]
        value = one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None
        for name in names:
            if name.startswith("_"):
                continue
            if name not in members and (name not in typed if typed else not isinstance(one, ast.AnnAssign)):
                return False
            known = members.get(name)
            if isinstance(value, ast.Constant) and class_of(known) in _PLAIN and known != value.value:
                return False
    return True


def _class_in_cell(target: type) -> str | None:
    """Return the source of a class that was made in a cell, or None: its methods know where it is."""
    name = class_qualname(target)
    for member in list(class_dict(target).values()):
        function = function_of(member)
        if type(function) is not types.FunctionType or function.__qualname__.rpartition(".")[0] != name:
            continue
        lines = linecache.getlines(function.__code__.co_filename)
        at = function.__code__.co_firstlineno
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.ClassDef) and node.name == name.rpartition(".")[2]:
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                if first <= at <= (node.end_lineno or at):
                    return "".join(lines[first - 1 : node.end_lineno])
    return None


def _answers_itself(metaclass: type) -> bool:
    """Return whether asking a class of it for an attribute runs code of somebody's: `inspect` does ask."""
    for base in class_mro(metaclass):
        own, module = class_dict(base), class_module(base)
        if ("__getattribute__" in own or "__getattr__" in own) and module not in ("builtins", "enum"):
            return True
    return False


def source_file(target: Any) -> str | None:
    """Return the .py file of a module, or None."""
    if type(target) is not types.ModuleType:
        return None
    path = vars(target).get("__file__")
    return path if isinstance(path, str) and path.endswith((".py", ".pyw")) else None
