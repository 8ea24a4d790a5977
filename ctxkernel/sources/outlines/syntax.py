"""The outline of source in the languages of `grammars`, from a syntax tree.

Rule 1: the text of an entry is a part of the source without comments and bodies, its white space collapsed to one
        blank. Text after a body (the name that a C typedef gives) follows an ellipsis.
Rule 2: broken source is outlined too: first what the tree contains, then lines that look like definitions within its
        errors. A head line says so, and names the line of the first error.
Rule 3: at most `_PARSED_BYTES` are parsed, in at most `_STEPS` steps. Steps are counted, so that every process stops at
        the same place; the clock is a second limit, for garbage on which one step takes long. The rest is guessed from
        its lines, and marked as guessed.
Rule 4: grammars are loaded when they are needed. One that is missing or of an unsupported version is no error.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

from ctxkernel.core.text import one_line, truncate
from ctxkernel.sources.base.positions import Outline, OutlineEntry
from ctxkernel.sources.outlines.grammars import Grammar, types

_PARSED_BYTES = 256 << 10
_STEPS = 16_000
"""A dense file of `_PARSED_BYTES` takes 6,000; error recovery, which is slow, takes more."""
_SECONDS = 3.0
"""Of the processor, for one parse. The steps above take 1 s of a source that any person wrote."""
_SOUND_BINDING = (0, 26, 1)
"""Older ones crash the process: 0.25 where a parse may be stopped, 0.26.0 where a tree is walked."""
_DEPTH = 24
_HEADER_BYTES = 8000
_SHOWN_CHARS = 240
_FIELD_CHARS = 120
_DEFINITION = re.compile(
    r"^(?P<indent>[ \t]{0,8})"
    r"(?:(?:export|default|public|private|protected|internal|static|abstract|final|async|pub(?:\([a-z]+\))?"
    r"|unsafe|extern|inline|const|override|virtual|partial|sealed|open|data|case|declare)\s+)*"
    r"(?:class|struct|enum|interface|trait|impl|fn|func|function\*?|def|fun|module|namespace|type|record"
    r"|protocol|object|sub|macro_rules!)"
    r"\s+[A-Za-z_$*&(<'][^;]*"
    r"|^(?:[A-Za-z.][\w.]*|`[^`]+`)\s*(?:<-|=)\s*function\s*\(.*"  # R
    r"|^[A-Za-z_][\w:.-]*\s*\(\)\s*\{.*$"  # a shell
    r"|^(?i:create)\s+(?i:(?:or\s+replace|temp(?:orary)?|unique|materialized|external|virtual)\s+)*"
    r"(?i:table|view|index|function|procedure|trigger|schema|type)\s+\S.*"  # SQL
)
_FALSE_FRIENDS = re.compile(r"^\s*(?:type|object|module|sub|record)\s+(?:of|is|the|to|and|or|in|a|an)\b")
_FUNCTIONS = types("arrow_function function_expression function generator_function class")
_CALLS = types("call_expression where_expression typed_expression")
_ATTRIBUTES = types("attribute_item decorator")
# Nodes that wrap one entry, whose text begins with theirs: `export`, `template <…>`, `type`. With brackets: a group.
_WRAPS = types(
    "export_statement ambient_declaration template_declaration expression_statement lexical_declaration "
    "variable_declaration macrocall_expression macro_argument_list type_declaration const_declaration var_declaration"
)
# Nodes whose name is in their first child.
_NAMED_WITHIN = types(
    "reference_declarator parenthesized_declarator init_declarator variadic_declarator attributed_declarator "
    "signature call_expression type_head binary_expression parametrized_type_expression typed_expression "
    "where_expression assignment const_statement function_definition macro_definition struct_definition "
    "abstract_definition primitive_definition type_elem"
)
_NAMES_TYPE = types("type_definition field_declaration declaration function_definition")
# Nodes with children that are a name as a whole.
_WHOLE_NAMES = types("destructor_name operator_name operator_cast")
# A header ends after a node of `_HEADS`, or before one of `_TAILS`.
_HEADS = types("signature type_head")
_TAILS = types("field_initializer_list declaration_list field_declaration_list macro_rule")
_MARKS = re.compile(
    r'^(?:/\*+!?|//[/!]*<?|\*+/|\*+|#+(?!\w)|=begin|=end|"""|")?\s*(?:[@\\]brief\s+)?|\s*(?:\*+/|"""|")$'
)
_NO_SENTENCE = re.compile(
    r"[@\\!#]|node:|istanbul|c8 |eslint|tslint|prettier|nolint|clang-format|frozen_string_literal|ts-|go:|rubocop"
)
_LICENCE = re.compile(r"copyright|licen[sc]e|SPDX|all rights", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[^\d\s][.!?])\s")


def definition_at(line: str, at: int) -> OutlineEntry | None:
    """Return the entry of a line that looks like a definition in some language, by its words alone."""
    found = _DEFINITION.match(line)
    if not found or _FALSE_FRIENDS.match(line):
        return None
    return OutlineEntry(at, 1 if found["indent"] else 0, one_line(line.strip().rstrip("{ ")))


def syntax_outline(source: str, grammar: Grammar) -> Outline | str:
    """Return imports as the head and definitions as entries; where it cannot be parsed, why."""
    language = _language(grammar)
    if language is None:
        return f"no grammar of {grammar.name} is installed (extra `languages`)"
    data = source.encode("utf-8", "replace")
    most = min(_PARSED_BYTES, grammar.most or _PARSED_BYTES)
    cut = len(data) > most
    part = data[: data.rfind(b"\n", 0, most) + 1 or most] if cut else data
    tree = _parsed(part, language)
    if tree is None:
        return f"as {grammar.name} it takes too long to parse"
    root = tree.root_node
    walk = _Walk(part, grammar)
    entries = walk.entries(root)
    head: list[str] = []
    guessed: list[OutlineEntry] = []
    lines = source.split("\n")
    if cut:
        last = part.count(b"\n")
        head.append(f"{grammar.name} was parsed up to line {last}; after it: lines that look like definitions")
        found = (definition_at(line, at) for at, line in enumerate(lines[last:50_000], last))
        guessed = [entry for entry in found if entry]
    elif root.has_error:
        line = _first_error(root)
        head.append(f"not all of it could be parsed as {grammar.name}, first at line {line}: what could be read")
    taken = {entry.line for entry in entries}
    found = (definition_at(lines[at], at) for at in sorted(walk.unread - taken) if at < len(lines))
    entries = sorted([*entries, *(entry for entry in found if entry), *guessed], key=lambda entry: entry.line)
    if walk.about:
        head.append(walk.about)
    if walk.imports:
        head.append("imports: " + one_line(", ".join(dict.fromkeys(walk.imports)), 300))
    return Outline(head, entries, "symbols")


@cache
def _language(grammar: Grammar) -> Any:
    """Return the grammar, loaded once; None if it cannot be loaded."""
    try:
        binding = importlib.import_module("tree_sitter")
        if tuple(int(part) for part in re.findall(r"\d+", binding.__version__)[:3]) < _SOUND_BINDING:
            return None
        return binding.Language(getattr(importlib.import_module(grammar.module), grammar.entry)())
    # Missing, built for another system, or of a version that this tree_sitter cannot read.
    except (ImportError, AttributeError, ValueError, TypeError, OSError):
        return None


def _parsed(data: bytes, language: Any) -> Any:
    """Return the tree, or None after too many steps. Its nodes live as long as it does."""
    steps, began = 0, time.thread_time()

    def stop(_offset: int, _error: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > _STEPS or time.thread_time() - began > _SECONDS

    def read(at: int, _point: Any) -> bytes:
        return data[at : at + 65536]

    # A parser of its own each time: sources are also looked at from a background thread.
    parser = importlib.import_module("tree_sitter").Parser(language)
    try:
        return parser.parse(read, encoding="utf8", progress_callback=stop)
    except ValueError:  # what a parse that was stopped raises
        return None


class _Walk:
    """One walk through a tree."""

    def __init__(self, data: bytes, grammar: Grammar) -> None:
        self._data = data
        self._language = grammar.name
        self._shown = types(grammar.shown)
        self._holds = types(grammar.holds)
        self._level = types(grammar.level)
        self._through = types(grammar.through) | {"ERROR"}
        self._imports = {kind: field for kind, _, field in (part.partition(":") for part in grammar.imports.split())}
        self.imports: list[str] = []
        self.about = ""
        """The beginning of the comment before everything else."""
        self.unread: set[int] = set()
        """Lines at which text begins that the parser could not read."""

    def entries(self, root: Any) -> list[OutlineEntry]:
        return list(self._below(root, "", 0, 0, -1, ""))

    def _below(self, node: Any, above: str, depth: int, nested: int, lead: int, doc: str) -> Iterator[OutlineEntry]:
        """Yield the entries below `node`. `lead` is where the text of the first begins, if not -1; `doc` its sentence.

        `above` is what `node` is in. (A node's `parent` is looked for from the root on: quadratic in a long file.)
        """
        if nested > _DEPTH:
            return
        comments: list[Any] = []
        ended = -1
        """The line on which the last thing but a comment ended."""
        for child in node.children:
            kind = child.type
            if "comment" in kind or (kind == "string_literal" and self._language == "Julia"):
                if child.start_point.row != ended:
                    self._comment(comments, child)
                continue
            if kind in _ATTRIBUTES:
                if kind == "decorator" and lead >= 0:
                    lead = child.end_byte
                if comments and _last_row(comments[-1]) + 1 >= child.start_point.row:
                    comments.append(child)
                ended = child.end_point.row
                continue
            if node.type == "ERROR":
                self.unread.add(child.start_point.row)
            if not child.is_named:
                continue
            near = bool(comments) and _last_row(comments[-1]) + 1 >= child.start_point.row
            apart = kind in self._imports or kind.startswith("package_")
            of_file = bool(comments) and (not near or apart or self._text(comments[0])[:3] in ("//!", "/*!"))
            if of_file and not nested and ended < 0 and comments[0].start_point.row < 3:
                self.about = self._sentence(comments, of_file=True)
            said = self._sentence(comments) if near and not of_file else doc
            begin = lead if lead >= 0 else child.start_byte
            if kind in self._imports:
                self._import(child, kind)
            elif (kind in self._shown or kind in self._holds) and self._counts(child, node.type, above):
                # Where the tree is broken, an indented line is taken to be in something.
                at = max(depth, int(child.start_point.column > 0)) if node.type == "ERROR" else depth
                yield self._entry(child, begin, at, said)
                lead, doc = -1, ""
                held = self._held(child)
                if kind in self._holds or held is not child:
                    yield from self._below(held, child.type, at + (kind not in self._level), nested + 1, -1, "")
            elif kind in self._through or kind in self._level:
                wraps = kind in _WRAPS and not any(part.type in ("(", "var_spec_list") for part in child.children)
                yield from self._below(
                    child, node.type, depth, nested + 1, begin if wraps else -1, said if wraps else ""
                )
                lead, doc = -1, ""
            elif child.has_error:
                self.unread.add(child.start_point.row)
            comments = []
            ended = _last_row(child)

    def _comment(self, comments: list[Any], comment: Any) -> None:
        """Add a comment to those directly above it, or begin a new group."""
        if comments:
            mark, before = (self._data[at.start_byte : at.start_byte + 3] for at in (comment, comments[-1]))
            block = mark[:2] in (b"/*", b'""')
            if block or mark[:1] != before[:1] or (b"!" in before) != (b"!" in mark) or _gap(comments[-1], comment):
                # Only a comment at the beginning can describe the file.
                first = not self.about and comments[0].start_point.row < 3
                if first and (b"!" in before or _gap(comments[-1], comment)):
                    self.about = self._sentence(comments, of_file=True)
                comments.clear()
        comments.append(comment)

    def _counts(self, node: Any, parent: str, above: str) -> bool:
        """Return whether a node is shown, whose type is one of those that may be."""
        kind = node.type
        if kind in ("variable_declarator", "assignment_expression"):
            value = node.child_by_field_name("value") or node.child_by_field_name("right")
            exported = above in ("export_statement", "ambient_declaration")
            if value is not None and value.type in _FUNCTIONS:
                return True
            return kind == "variable_declarator" and (exported or self._name(node).isupper())
        if kind == "assignment" and node.children:
            left = node.children[0].type
            return left == "constant" if self._language == "Ruby" else left in _CALLS
        if kind in ("typed_expression", "identifier"):  # Julia: the fields of a struct stand in it as they are
            return "struct_definition" in (parent, above)
        if kind == "property_identifier":
            return parent == "enum_body"
        if kind == "namespace_definition":
            return node.child_by_field_name("name") is not None
        if kind.endswith("_specifier"):
            return node.child_by_field_name("body") is not None
        # A macro without a value, such as the guard of a header, says nothing.
        return kind != "preproc_def" or node.child_by_field_name("value") is not None

    def _held(self, node: Any) -> Any:
        """Return what holds the members of `node`: itself, or the type that it names."""
        inner = node.child_by_field_name("type") if node.type in _NAMES_TYPE else None
        if inner is not None and inner.type.endswith("_specifier"):
            if node.type == "function_definition":
                # `class EXPORT Name : public Base { … }`: a macro makes it look like a function that returns a class.
                body, declared = node.child_by_field_name("body"), node.child_by_field_name("declarator")
                looks_so = body is not None and declared is not None and "declarator" not in declared.type
                return body if looks_so else node
            return inner if inner.child_by_field_name("body") is not None else node
        return node

    def _entry(self, node: Any, begin: int, depth: int, doc: str) -> OutlineEntry:
        for child in node.children:  # leave decorators out: one may be longer than the definition
            if child.type == "decorator":
                begin = max(begin, child.end_byte)
        begin += len(self._data[begin : node.end_byte]) - len(self._data[begin : node.end_byte].lstrip())
        line = self._line(begin, node)
        end, after = self._span(node)
        text = self._cut(begin, end, node)
        if after:
            text += " {…} " + self._cut(after, node.end_byte, node)
        text = re.sub(r"(?<=[(\[]) | (?=[)\]])", "", text).replace(",)", ")").rstrip(" ;,{")
        text = text.removesuffix("=>").removesuffix("=").rstrip()
        if self._language in ("Ruby", "Julia"):
            text = re.sub(r"[\s;]+end$", "", text)
        most = _SHOWN_CHARS if end < node.end_byte or b"(" in self._data[begin:end] else _FIELD_CHARS
        return OutlineEntry(line, depth, truncate(text, most), doc, self._name(node))

    def _line(self, begin: int, node: Any) -> int:
        if begin >= node.start_byte:
            return node.start_point.row + self._data.count(b"\n", node.start_byte, begin)
        return node.start_point.row - self._data.count(b"\n", begin, node.start_byte)

    def _span(self, node: Any) -> tuple[int, int]:
        """Return (where the header ends, where text after the body begins or 0)."""
        for child in node.children:
            if child.type in _HEADS or (node.type == "module_definition" and child.type == "identifier"):
                return child.end_byte, 0
            if child.type in _TAILS:
                return child.start_byte, 0
            if node.type == "assignment" and self._language == "Julia" and child.type == "operator":
                return (
                    child.start_byte if node.children[0].type in _CALLS - {"typed_expression"} else node.end_byte
                ), 0
        body = self._body(node)
        if body is None:
            return self._stop(node, node.end_byte), 0
        rest = self._data[body.end_byte : node.end_byte].strip(b" ;\n,)")
        return self._stop(node, body.start_byte), body.end_byte if rest and self._held(node) is not node else 0

    def _stop(self, node: Any, end: int) -> int:
        """Return the end of a header, at most `end`: where macros confuse the parser, its node may contain more."""
        wrong = node.has_error or self._language in ("C", "C++")
        stop = self._data.find(b";", node.start_byte, end) if wrong else -1
        return stop if stop > 0 else end

    def _body(self, node: Any, nested: int = 0) -> Any:
        if node.type == "enum_variant":  # Some(T): what it holds is its signature
            return None
        if node.type == "struct_item" and (body := node.child_by_field_name("body")) is not None:
            return body if body.type == "field_declaration_list" else None
        if (body := node.child_by_field_name("body")) is not None or nested > 2:
            return body
        if node.type in ("interface_type", "struct_type"):
            return next((child for child in node.children if child.type in ("{", "field_declaration_list")), None)
        for field in ("value", "right", "type"):
            inner = node.child_by_field_name(field)
            if inner is not None and (inner.type in _FUNCTIONS or inner.type.endswith(("_specifier", "_type"))):
                return self._body(inner, nested + 1)
        return None

    def _cut(self, begin: int, end: int, node: Any) -> str:
        """Return the text of a span on one line, its comments left out."""
        end = min(end, begin + _HEADER_BYTES)
        out: list[bytes] = []
        at = begin
        for comment in _comments(node, begin, end, 0):
            out.append(self._data[at : comment.start_byte])
            at = comment.end_byte
        out.append(self._data[at:end])
        return " ".join(b" ".join(out).decode("utf-8", "replace").split())

    def _name(self, node: Any) -> str:
        """Return what other lines call the symbol: its last part, as in A::f, a.b.c or M.f."""
        at = node
        if node.type == "function_definition" and self._held(node) is not node:  # the base stands where the name should
            at = next((child for child in node.children if child.type == "ERROR" and child.named_children), node)
            at = at.named_children[0] if at is not node else at
        for _ in range(12):
            fields = (at.child_by_field_name(field) for field in ("name", "property", "declarator", "left"))
            named = next((field for field in fields if field is not None), None)
            inner = [child for child in at.children if child.is_named and "comment" not in child.type]
            if named is None and at.type in ("impl_item", "field_declaration"):
                named = at.child_by_field_name("type")
            elif named is None and inner and at.type in ("field_expression", *_NAMED_WITHIN):
                named = inner[-1] if at.type == "field_expression" else inner[0]
            if named is None or at.type in _WHOLE_NAMES:
                break
            at = named
        return one_line(self._text(at), 80) if at is not node or at.type.endswith("identifier") else ""

    def _text(self, node: Any) -> str:
        return self._data[node.start_byte : node.end_byte][:_HEADER_BYTES].decode("utf-8", "replace")

    def _import(self, node: Any, kind: str) -> None:
        field = self._imports[kind]
        part = node.child_by_field_name(field) if field else node
        if part is None:
            return
        text = self._text(part)
        if kind == "call" and not text.startswith("require"):
            return
        if not field:
            text = text.partition(" ")[2]
        self.imports.append(one_line(text.strip("'\"<>;() \n"), 80))

    def _sentence(self, comments: list[Any], *, of_file: bool = False) -> str:
        """Return the first sentence on the first line that says something, its comment marks left out."""
        text = "\n".join(self._text(comment) for comment in comments if comment.type not in _ATTRIBUTES)
        if of_file and _LICENCE.search(text):
            return ""
        for line in text.split("\n")[:40]:
            plain = _MARKS.sub("", line.strip()).strip()
            if re.search(r"\w\w", plain) and not _NO_SENTENCE.match(plain):
                return one_line(_SENTENCE_END.split(plain, maxsplit=1)[0], 120)
        return ""


def _comments(node: Any, begin: int, end: int, nested: int) -> Iterator[Any]:
    if nested > _DEPTH:
        return
    for child in node.children:
        if child.start_byte >= end:
            return
        if child.end_byte <= begin:
            continue
        if "comment" in child.type:
            yield child
        else:
            yield from _comments(child, begin, end, nested + 1)


def _gap(before: Any, after: Any) -> bool:
    return _last_row(before) + 1 < after.start_point.row


def _last_row(node: Any) -> int:
    """Return the line on which a node ends; the span of some includes the line break after them."""
    return node.end_point.row - (node.end_point.column == 0 and node.end_point.row > node.start_point.row)


def _first_error(root: Any) -> int:
    node = root
    while True:
        inner = next((child for child in node.children if child.has_error or child.is_missing), None)
        if inner is None or node.is_missing:
            return node.start_point.row
        node = inner
