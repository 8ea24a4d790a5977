"""Renderings as HTML that needs no script and no style sheet: for saved notebooks, and where no widgets are.

Rule 1: every text passes through `show_hidden` and `html.escape`.
Rule 2: colours are those of the theme, or the text's own: readable on light and on dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from ctxkernel.core.text import show_hidden
from ctxkernel.kernel.display.blocks import BAR_HEIGHT, BAR_WIDTH

if TYPE_CHECKING:
    from ctxkernel.kernel.messages.wire import CodeBlock, Distribution, RenderingBlock, TableBlock

_PRE = (
    "margin:0;padding:6px 8px;text-align:left;font-family:var(--jp-code-font-family,monospace);"
    "background:transparent;color:inherit"
)
_KEPT = _PRE + ";white-space:pre"
_WRAPPED = _PRE + ";white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
_SCROLL = "max-height:24em;overflow:auto"
_TABLE = (
    "border-collapse:separate;border-spacing:10px 1px;width:auto;font-family:var(--jp-code-font-family,monospace);"
    "font-variant-numeric:tabular-nums;font-size:inherit;white-space:pre"
)
_COLOURS = {
    "keyword": "color:var(--jp-mirror-editor-keyword-color,inherit);font-weight:600",
    "string": "color:var(--jp-mirror-editor-string-color,inherit)",
    "number": "color:var(--jp-mirror-editor-number-color,inherit)",
    "comment": "color:var(--jp-mirror-editor-comment-color,inherit);font-style:italic",
    "definition": "color:var(--jp-mirror-editor-def-color,inherit);font-weight:600",
    "inserted": "color:var(--jp-success-color0,inherit)",
    "deleted": "color:var(--jp-error-color0,inherit)",
}


def blocks_html(blocks: Sequence[RenderingBlock], *, wraps: bool) -> str:
    """Return blocks as HTML; lines of text are wrapped where `wraps` says so, and beside tables and code."""
    wraps, parts = wraps or len(blocks) > 1, list[str]()
    for block in blocks:
        if block["kind"] == "text":
            parts.append(f'<pre style="{_WRAPPED if wraps else _KEPT}">{_safe(block["text"])}</pre>')
        elif block["kind"] == "code":
            parts.append(_code(block))
        else:
            parts.append(_table(block))
    # A box that scrolls is to be reached by the keyboard.
    return f'<div style="{_SCROLL}" tabindex="0">{"".join(parts)}</div>'


def _safe(text: str) -> str:
    return escape(show_hidden(text))


def _code(block: CodeBlock) -> str:
    spans = [
        f'<span style="{_COLOURS[style]}">{_safe(text)}</span>' if style in _COLOURS else _safe(text)
        for style, text in block["spans"]
    ]
    return f'<pre style="{_KEPT}">{"".join(spans)}</pre>'


def _table(block: TableBlock) -> str:
    right, bars = frozenset(block["right"]), block["bars"]
    head = [f'<th scope="col" style="{_side(at, right)}">{_safe(cell)}</th>' for at, cell in enumerate(block["head"])]
    if bars:
        head.insert(block["labels"], f'<th scope="col" style="{_side(-1, right)}">distribution</th>')
    rows: list[str] = []
    for number, row in enumerate(block["rows"]):
        cells = [
            f'<th scope="row" style="{_side(at, right)}">{_safe(cell)}</th>'
            if at < block["labels"]
            else f'<td style="{_side(at, right)}">{_safe(cell)}</td>'
            for at, cell in enumerate(row)
        ]
        if bars:
            cells.insert(block["labels"], f'<td style="{_side(-1, right)}">{_bar(bars[number])}</td>')
        rows.append(f'<tr style="background:none">{"".join(cells)}</tr>')
    header = f"<thead><tr>{''.join(head)}</tr></thead>" if head else ""
    return f'<table style="{_TABLE}">{header}<tbody>{"".join(rows)}</tbody></table>'


def _side(at: int, right: frozenset[int]) -> str:
    # A page may have an alignment, a wrapping and an indentation of its own for cells: JupyterLab has.
    return f"text-align:{'right' if at in right else 'left'};white-space:pre;padding:0"


def _bar(bar: Distribution | None) -> str:
    if bar is None:
        return ""
    label = escape(show_hidden(bar["label"]))
    shapes = "".join(
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" opacity="{opacity:g}"/>'
        for x, y, width, height, opacity in bar["shapes"]
    )
    return (
        f'<svg style="vertical-align:middle" role="img" aria-label="{label}" width="{BAR_WIDTH}" height="{BAR_HEIGHT}" '
        f'viewBox="0 0 {BAR_WIDTH} {BAR_HEIGHT}" fill="currentColor"><title>{label}</title>{shapes}</svg>'
    )
