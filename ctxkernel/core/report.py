"""The result of a command as lines and tables, which a terminal shows as text and a notebook as HTML.

Rule 1: every text is untrusted: it is escaped in HTML, and characters that are not seen are shown as marks.
Rule 2: a table fits the width that its text is made for: the widest columns are truncated with `…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.masking import Mask
from ctxkernel.core.text import align, clip, show_hidden, width_of
from ctxkernel.core.value_difference import ValueDifference, ValuePicture, ValueTable

WIDTH = 120
"""Columns of a text where no terminal gives another number."""
_LEAST = 6
_LEAST_FREE = 16
_GAP = "  "
_TIGHT = ' style="margin:0.2em 0"'
_LEFT = ' style="text-align:left;vertical-align:top"'
_LONG = ' style="text-align:left;vertical-align:top;overflow-wrap:anywhere"'
_DIM = ' style="opacity:0.7"'
_BASE64 = re.compile(r"[A-Za-z0-9+/]+=*")
_MEDIA = ("image/png", "image/jpeg")


class CellLink(str):
    """A text that stands for a statement; in a notebook it is a link to its cell."""

    __slots__ = ("cell",)
    cell: str

    def __new__(cls, text: str, cell: str | None) -> CellLink:
        """Return the text with the id of a notebook cell; without one it is no link."""
        made = super().__new__(cls, text)
        made.cell = cell or ""
        return made


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table: the first row is the head, unless `has_head` is false. Long text stands in the last column."""

    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()
    has_head: bool = True
    is_fitted: bool = True
    """Whether its text is fitted to the width; rows of `key: value` are not."""
    as_text: Sequence[str] = ()
    """The lines that a terminal shows instead, where they are sentences."""
    dimmed: frozenset[int] = frozenset()
    """Rows that are of another branch, from 0 without the head."""
    free: int = -1
    """The column of free text, which is truncated before the others."""


@dataclass(frozen=True, slots=True)
class Preformatted:
    """Text whose lines and blanks stay as they are."""

    text: str


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """The difference of a name's value; `sign` stands before its name."""

    sign: str
    label: str
    told: str
    value: ValueDifference | None = None
    chars: int = 1200
    """Most characters of its text."""


ReportPart = str | ReportTable | Preformatted | ComparedValue


class Report:
    """Parts of an answer, in order."""

    def __init__(self, *parts: ReportPart) -> None:
        self.parts = [one for one in parts if one != ""]

    def text(self, width: int = WIDTH) -> str:
        """Return the parts as text of lines."""
        return "\n".join(line for part in self.parts for line in _lines(part, width))

    def html(self) -> str:
        """Return the parts as HTML, every text escaped."""
        return f'<div class="ctxk-report mathjax_ignore tex2jax_ignore">{"".join(_html_parts(self.parts))}</div>'

    def masked(self, mask: Mask) -> Report:
        """Return the report with its texts masked."""
        return Report(*(_masked(part, mask) for part in self.parts))


# -- as text -----------------------------------------------------------------------------------------


def _lines(part: ReportPart, width: int) -> Iterable[str]:
    if isinstance(part, str):
        return [part]
    if isinstance(part, Preformatted):
        return [part.text]
    if isinstance(part, ComparedValue):
        first = f"{part.sign} {part.label}: {part.told}".strip()
        more = part.value.text(part.chars).split("\n")[1:] if part.value is not None else []
        return [first, *more]
    if part.as_text:
        return part.as_text
    return (
        fitted_lines(part.rows, width, part.right, part.free) if part.is_fitted else align(part.rows, right=part.right)
    )


def fitted_lines(
    rows: Sequence[Sequence[str]], width: int, right: frozenset[int] = frozenset(), free: int = -1
) -> list[str]:
    """Return rows as lines in columns of at most `width` together: `free` is truncated first, then the widest ones."""
    if not rows:
        return []
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    room = width - len(_GAP) * (len(widths) - 1)
    widths[free] = max(min(widths[free], _LEAST_FREE), widths[free] - max(0, sum(widths) - room))
    cap = max(widths)
    while cap > _LEAST and sum(min(one, cap) for one in widths) > room:
        cap -= 1
    left = max(0, room - sum(min(one, cap) for one in widths))
    widths = [min(one, cap) for one in widths[:-1]] + [min(widths[-1], cap + left)]
    cells = [[clip(cell, limit) for cell, limit in zip(row, widths, strict=True)] for row in rows]
    return align(cells, right=right, gap=_GAP, width_of=width_of)


# -- as HTML -------------------------------------------------------------------------------------------


def _safe(text: str) -> str:
    return escape(show_hidden(text))


def _html_parts(parts: Sequence[ReportPart]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield f'<p style="margin:0.2em 0;white-space:pre-wrap">{_text(part)}</p>'
        elif isinstance(part, Preformatted):
            yield _pre(part.text)
        elif isinstance(part, ComparedValue):
            yield compared_html(part)
        else:
            yield _table(part)


def _pre(text: str) -> str:
    return f'<pre style="margin:0;text-align:left;white-space:pre-wrap">{_safe(text)}</pre>'


def _text(text: str) -> str:
    """Return a text as HTML; a statement as a link to its cell, which the lab extension scrolls to."""
    cell = text.cell if isinstance(text, CellLink) else ""
    if not cell:
        return _safe(text)
    return f'<a href="#cell-id={escape(cell)}" data-ctxk-cell="{escape(cell)}">{_safe(text)}</a>'


def _table(table: ReportTable) -> str:
    rows = list(table.rows)
    head = ""
    if table.has_head and rows:
        cells = [f'<th scope="col"{_side(at, table.right)}>{_text(cell)}</th>' for at, cell in enumerate(rows.pop(0))]
        head = f"<thead><tr>{''.join(cells)}</tr></thead>"
    body = "".join(
        _row(row, table.right, dimmed=at in table.dimmed, keyed=not table.has_head) for at, row in enumerate(rows)
    )
    return f'<table style="margin:0.2em 0;table-layout:auto">{head}<tbody>{body}</tbody></table>'


def _row(row: Sequence[str], right: frozenset[int], *, dimmed: bool, keyed: bool) -> str:
    cells: list[str] = []
    for at, cell in enumerate(row):
        tag = ("th", ' scope="row"') if keyed and at == 0 else ("td", "")
        side = _LONG if at == len(row) - 1 and at not in right else _side(at, right)
        cells.append(f"<{tag[0]}{tag[1]}{side}>{_text(cell)}</{tag[0]}>")
    return f"<tr{_DIM if dimmed else ''}>{''.join(cells)}</tr>"


def _side(at: int, right: frozenset[int]) -> str:
    return ' style="text-align:right;vertical-align:top;white-space:nowrap"' if at in right else _LEFT


def compared_html(part: ComparedValue) -> str:
    """Return the difference of a name as HTML: one line, which opens where there is more."""
    head = f"<b>{_safe(part.sign)} {_text(part.label)}</b> {_safe(part.told)}"
    body = value_html(part.value) if part.value is not None else ""
    if not body:
        return f"<p{_TIGHT}>{head}</p>"
    return f"<details open{_TIGHT}><summary>{head}</summary>{body}</details>"


def value_html(value: ValueDifference) -> str:
    """Return all of a difference but its summary as HTML; empty where there is nothing more."""
    made = [f"<p{_TIGHT}>{_safe(value.known)}: {_safe(value.reason)}</p>"] if value.reason else []
    made += [f"<p{_TIGHT}>{_safe(note)}</p>" for note in value.notes]
    made += [_value_table(table) for table in value.tables]
    made += [_pre("\n".join(value.diff))] if value.diff else []
    made += ["".join(filter(None, map(_picture, value.pictures)))]
    for part in value.parts:
        made.append(compared_html(ComparedValue("", part.name, part.summary, part)))
    made += [f"<p{_TIGHT}>… {value.more:,} more</p>"] if value.more else []
    body = "".join(made)
    return f'<div style="margin-left:1.2em">{body}</div>' if body else ""


def _value_table(table: ValueTable) -> str:
    title = f"<p{_TIGHT}>{_safe(table.title)}</p>" if table.title else ""
    rows = (table.head, *table.rows) if any(table.head) else table.rows
    more = f"<p{_TIGHT}>… {table.more:,} more</p>" if table.more else ""
    return title + _table(ReportTable(rows, frozenset(table.right), has_head=any(table.head))) + more


def _picture(picture: ValuePicture) -> str:
    """Return a picture as HTML; nothing for what is no base64 image."""
    if (
        picture.media_type not in _MEDIA
        or not picture.data.replace("=", "").replace("+", "").replace("/", "").isalnum()
    ):
        return ""
    label = _safe(picture.label)
    source = f"data:{picture.media_type};base64,{picture.data}"
    return (
        f'<figure style="display:inline-block;margin:0 0.8em 0.4em 0"><img alt="{label}" src="{source}" '
        f'style="max-width:300px;background:white"><figcaption>{label}</figcaption></figure>'
    )


# -- secrets -------------------------------------------------------------------------------------------


def _masked(part: ReportPart, mask: Mask) -> ReportPart:
    if isinstance(part, str):
        return _masked_text(part, mask)
    if isinstance(part, Preformatted):
        return Preformatted(mask(part.text))
    if isinstance(part, ComparedValue):
        return masked_value(part, mask)
    return replace(part, rows=[_masked_row(row, mask) for row in part.rows], as_text=tuple(map(mask, part.as_text)))


def _masked_text(text: str, mask: Mask) -> str:
    masked = mask(str(text))
    return CellLink(masked, text.cell) if isinstance(text, CellLink) else masked


def _masked_row(row: Sequence[str], mask: Mask) -> Sequence[str]:
    """Return a row masked; where only the whole row shows a secret (a name and its value), the last cell is masked."""
    cells = [_masked_text(cell, mask) for cell in row]
    together = [" = ".join(cells), ": ".join(cells), " ".join(cells)]
    if all(mask(text) == text for text in together):
        return cells
    return [*cells[:-1], "[masked]"]


def masked_value(part: ComparedValue, mask: Mask) -> ComparedValue:
    """Return a difference masked; where only name and value together show a secret, all of it is masked."""
    whole = ValueDifference(str(part.label), part.told).masked(mask)
    value = part.value.masked(mask) if part.value is not None and whole.summary != "[masked]" else None
    return replace(part, told=whole.summary, value=value)
