"""A rendering for people: its text as blocks of plain text, tables, and code. The model gets the text.

Rule 1: the blocks have all of the text, in its order, and no number that it does not have. What is not surely a table
        stays text.
Rule 2: a block has texts and numbers only, which a page sets as text. They are masked as the text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.ports import TableRow
from ctxkernel.core.turn_values import HandleState

if TYPE_CHECKING:
    from ctxkernel.kernel.messages.wire import Distribution, RenderingBlock, TableBlock

TABLE_ROWS = 300
"""Most rows of a table; those after them are text."""
BAR_WIDTH, BAR_HEIGHT = 90, 12
_LINE_CHARS = 1_000
"""Longest line in which facts are looked for."""
CODE_CHARS = 20_000
"""Most characters of code that is highlighted."""
_MARK = re.compile(r"\[….*\]")
_LINES = re.compile(r" · (?:[\d,]+ )?lines?\b")
_STYLES = (
    ("Token.Keyword", "keyword"),
    ("Token.Operator.Word", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Comment", "comment"),
    ("Token.Name.Function", "definition"),
    ("Token.Name.Class", "definition"),
    ("Token.Generic.Heading", "definition"),
    ("Token.Generic.Subheading", "comment"),
    ("Token.Generic.Inserted", "inserted"),
    ("Token.Generic.Deleted", "deleted"),
)
_PLAIN_LEXERS = frozenset(("Text only", "CSV", "TSV"))

# -- facts of columns: `age: int64, 1,000 values, 0 nulls, min 18, …` --------------------------------------

_SHARE = r"~[\d.]+ %"
_COUNT = re.compile(rf"(~?[\d,]+\+?|{_SHARE}) (values?|nulls?|NaN|distinct|True|False)(?: \((.*)\))?")
_NUMBER = re.compile(r"(min|25%|50%|75%|max|mean|std) (.+)")
_PLAIN = re.compile(r"~?-?[\d.]+(?:e[+-]?\d+)?|-?inf")
_STATISTICS = ("min", "25%", "50%", "75%", "max", "mean", "std")
_ENTRIES = re.compile(rf"(?:'[^']*'|\"[^\"]*\") (?:×~?[\d,]+|{_SHARE})")
_SPAN = re.compile(r".+ … .+")
_LENGTHS = re.compile(r"~?[\d,]+–[\d,]+ characters")
_ORDER = (
    *(
        "column",
        "type",
        "values",
        "nulls",
        "NaN",
        "distinct",
        "True",
        "False",
        "min",
        "25%",
        "50%",
        "75%",
        "max",
        "mean",
        "std",
    ),
    *("range", "characters", "most often", "example", "also"),
)
_TEXTS = frozenset(("column", "type", "range", "most often", "example", "characters", "also"))
_LABELS = ("", "row", "column")
"""Names of first columns whose cells name their row."""
_ONE = {"value": "values", "null": "nulls"}


@dataclass(frozen=True, slots=True)
class FactsByName:
    """The facts of a column, by their names."""

    facts: Mapping[str, str]
    bar: Distribution | None = None


def column_facts(line: str, row: TableRow) -> FactsByName | None:
    """Return the facts of a column that a line tells; None where it is too long to be looked at."""
    name, kind = row.cells
    at = line.find(f"{name}: ")
    if at < 0 or len(line) > _LINE_CHARS:
        return None
    told = line[at + len(name) + 2 :]
    if f"{told}, ".startswith(f"{kind}, "):
        facts = {"column": name, "type": kind} | _facts(told[len(kind) + 2 :])
    else:
        first, *rest = _parts(told)
        facts = {"column": name, "type": first} | _facts(", ".join(rest))
    return FactsByName(facts, _distribution(facts))


def _parts(told: str) -> list[str]:
    """Return the parts between commas and semicolons, those in quotes and brackets left out."""
    parts, start, depth, quote, before = list[str](), 0, 0, "", " "
    for at, char in enumerate(told):
        if quote:
            quote = "" if char == quote and before != "\\" else quote
        elif char in "'\"" and before in " (":
            quote = char
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == " " and before in ",;" and not depth:
            parts.append(told[start : at - 1])
            start = at + 1
        before = char
    return [*parts, told[start:]]


def _facts(told: str) -> dict[str, str]:
    facts: dict[str, str] = {}
    for part in _parts(told) if told else ():
        if count := _COUNT.fullmatch(part):
            facts[_ONE.get(count[2], count[2])] = count[1]
            if count[3]:
                facts["most often"] = count[3]
        elif number := _NUMBER.fullmatch(part):
            facts[number[1]] = number[2]
        elif _PLAIN.fullmatch(part) and (unnamed := [name for name in _STATISTICS if name not in facts]):
            facts[unnamed[0]] = part  # below a line that names them once
        elif _ENTRIES.fullmatch(part.removeprefix("most often ")):
            entry = part.removeprefix("most often ")
            facts["most often"] = f"{facts['most often']}, {entry}" if "most often" in facts else entry
        elif _SPAN.fullmatch(part):
            facts["range"] = part
        elif _LENGTHS.fullmatch(part):
            facts["characters"] = part.removesuffix(" characters")
        elif part.startswith("such as "):
            facts["example"] = part.removeprefix("such as ")
        else:
            facts["also"] = f"{facts['also']}, {part}" if "also" in facts else part
    return facts


def _float(text: str) -> float | None:
    try:
        return float(text.removeprefix("~").replace(",", ""))
    except ValueError:
        return None


def _distribution(facts: Mapping[str, str]) -> Distribution | None:
    """Return the bar of a column: where the quartiles are between min and max, or shares of the values."""
    told = [facts.get(name, "") for name in ("min", "25%", "50%", "75%", "max")]
    low, *quartiles, high = [_float(one) for one in told]
    if low is not None and high is not None and high > low and None not in quartiles:
        at = [(one - low) / (high - low) for one in cast("list[float]", quartiles)]
        if all(0 <= one <= 1 for one in at):
            label = f"half of the values are from {told[1]} to {told[3]}, median {told[2]}, of {told[0]} to {told[4]}"
            return {"shapes": _box(*at), "label": label}
    counts = [re.split(r"[×~]", one)[-1] for one in _ENTRIES.findall(facts.get("most often", ""))]
    counts = counts or [facts[name] for name in ("True", "False") if name in facts]
    numbers = [_float(one.removesuffix(" %")) or 0.0 for one in counts]
    total = _float(facts.get("values", "")) or (sum(numbers) if "distinct" not in facts else None)
    total = 100.0 if any(one.endswith(" %") for one in counts) else total
    if not numbers or not total or sum(numbers) > total:
        return None
    shares = [one / total for one in numbers]
    percent = ", ".join(f"{share:.0%}" for share in shares)
    return {"shapes": _stack(shares), "label": f"{percent} of the values"}


def _box(low: float, middle: float, high: float) -> list[list[float]]:
    """Return a line from min to max, a box from the first to the third quartile, and the median."""
    box = [low * BAR_WIDTH, 2, max(1, (high - low) * BAR_WIDTH), BAR_HEIGHT - 4, 0.45]
    median = [min(middle * BAR_WIDTH, BAR_WIDTH - 2), 0, 2, BAR_HEIGHT, 1]
    return _rounded([[0, BAR_HEIGHT / 2 - 0.5, BAR_WIDTH, 1, 0.6], box, median])


def _stack(shares: Sequence[float]) -> list[list[float]]:
    """Return shares beside each other, darkest first, on the whole."""
    shapes: list[list[float]] = [[0, 2, BAR_WIDTH, BAR_HEIGHT - 4, 0.12]]
    x = 0.0
    for at, share in enumerate(shares):
        shapes.append([x, 2, max(1, share * BAR_WIDTH), BAR_HEIGHT - 4, max(0.25, 0.75 - 0.2 * at)])
        x += share * BAR_WIDTH
    return _rounded(shapes)


def _rounded(shapes: Sequence[Sequence[float]]) -> list[list[float]]:
    return [[round(one, 2) for one in shape] for shape in shapes]


# -- blocks ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Lines:
    """Blocks under way."""

    made: list[RenderingBlock] = field(default_factory=list["RenderingBlock"])
    text: list[str] = field(default_factory=list[str])

    def flush(self) -> None:
        if self.text:
            self.made.append({"kind": "text", "text": "\n".join(self.text)})
            self.text = []

    def add(self, block: RenderingBlock) -> None:
        self.flush()
        self.made.append(block)


def state_blocks(state: HandleState, text: str) -> list[RenderingBlock]:
    """Return the rendering of a handle as blocks; `text` is its text, masked and bounded."""
    digest, is_raw = state.digest, state.digest["lod"] in (0, 3)
    kind = digest.get("kind")
    file, code = str(digest["target"]) if kind == "file" and is_raw else "", kind == "code" and is_raw
    return blocks_of(text, state.rows, file=file, code=code)


def blocks_of(text: str, rows: Mapping[str, TableRow], *, file: str = "", code: bool = False) -> list[RenderingBlock]:
    """Return a masked rendering as blocks.

    `rows` are the lines that are rows of tables; `file` names the file whose text it is; `code` says that it is the
    source of an object.
    """
    lines = text.split("\n")
    language = _language(file, lines, code=code)
    if language and not rows:
        return _code_blocks(lines, language)
    blocks, at, left = _Lines(), 0, TABLE_ROWS
    while at < len(lines):
        taken, block = _table_at(lines, at, rows, left)
        if block is None:
            blocks.text.append(lines[at])
            at += 1
        else:
            blocks.add(block)
            at, left = at + taken, left - taken
    blocks.flush()
    return blocks.made


def _table_at(lines: Sequence[str], at: int, rows: Mapping[str, TableRow], most: int) -> tuple[int, TableBlock | None]:
    """Return how many lines are a table, and the table; None where the line begins none."""
    first = rows.get(lines[at])
    if first is None:
        return 0, None
    found = list(_run((rows.get(line) for line in lines[at : at + most]), first))
    if first.is_facts:
        pairs = zip(lines[at:], found, strict=False)
        told = list(takewhile(bool, (column_facts(line, row) for line, row in pairs)))
        return len(told), _facts_table([one for one in told if one]) if told else None
    if len(found) > first.is_head:
        head = first.cells if first.is_head else first.names
        body = [list(row.cells) for row in found[first.is_head :]]
        return len(found), _table(list(head), body, first.right)
    return 0, None


def _run(rows: Iterable[TableRow | None], first: TableRow) -> Iterator[TableRow]:
    """Yield the rows of one table."""
    kind = first.is_facts, len(first.cells)
    for at, row in enumerate(rows):
        if row is None or (at and row.is_head) or (row.is_facts, len(row.cells)) != kind:
            return
        yield row


def _table(head: list[str], body: list[list[str]], right: Sequence[int]) -> TableBlock:
    labels = not head or head[0] in _LABELS
    return {"kind": "table", "head": head, "rows": body, "right": list(right), "bars": [], "labels": int(labels)}


def _facts_table(found: Sequence[FactsByName]) -> TableBlock:
    names = [name for name in _ORDER if any(name in one.facts for one in found)]
    table = _table(names, [[one.facts.get(name, "") for name in names] for one in found], ())
    table["right"] = [at for at, name in enumerate(names) if name not in _TEXTS]
    if any(one.bar for one in found):
        table["bars"] = [one.bar for one in found]
    return table


# -- code -----------------------------------------------------------------------------------------------


def _language(file: str, lines: Sequence[str], *, code: bool) -> str:
    """Return the alias of the lexer of pygments for these lines; empty for text."""
    body = lines[1:]
    if any(line.startswith("@@ ") for line in body[:3]):
        return "diff"
    if code:
        return "python"
    if not file or not _LINES.search(lines[0]):
        return ""
    from pygments.lexers import find_lexer_class_for_filename

    lexer = find_lexer_class_for_filename(file)
    return lexer.aliases[0] if lexer is not None and lexer.name not in _PLAIN_LEXERS and lexer.aliases else ""


def _code_blocks(lines: Sequence[str], language: str) -> list[RenderingBlock]:
    """Return the heading, the code between, and the marks as blocks."""
    end = len(lines)
    while end > 1 and (_MARK.fullmatch(lines[end - 1]) or not lines[end - 1]):
        end -= 1
    blocks: list[RenderingBlock] = [{"kind": "text", "text": lines[0]}]
    if end > 1:
        blocks.append({"kind": "code", "spans": _spans("\n".join(lines[1:end]), language)})
    if end < len(lines):
        blocks.append({"kind": "text", "text": "\n".join(lines[end:])})
    return blocks


def _spans(code: str, language: str) -> list[list[str]]:
    """Return code as (style, text); what is too long, or cannot be read, has no style."""
    from pygments import lexers
    from pygments.util import ClassNotFound

    lexer_of: Any = vars(lexers)["get_lexer_by_name"]
    head, rest = (code, "") if len(code) <= CODE_CHARS else (code[:CODE_CHARS], code[CODE_CHARS:])
    try:
        tokens = list(lexer_of(language, stripnl=False, ensurenl=False).get_tokens(head))
    except ClassNotFound:
        tokens = []
    if "".join(text for _, text in tokens) != head:  # a lexer replaces line ends, say
        return [["", code]]
    spans: list[list[str]] = []
    for token, text in tokens:
        name = str(token)
        style = next((style for prefix, style in _STYLES if name.startswith(prefix)), "")
        if spans and (spans[-1][0] == style or not text.strip()):
            spans[-1][1] += text
        else:
            spans.append([style, text])
    return [*spans, *([["", rest]] if rest else [])]
