"""How handles show in a notebook: text and HTML that stay current through `update_display`.

Rule 1: everything that is shown goes through `html.escape`; nothing of a target is ever markup.
"""

from __future__ import annotations

from html import escape
from typing import Any

from ctxkernel.core.nodes import Graph, NodeBase
from ctxkernel.core.nodes.base import LODS
from ctxkernel.core.ports import Rendered
from ctxkernel.core.turn import HandleTable

_BOX = (
    "border:1px solid var(--jp-border-color2,#ddd);border-radius:4px;overflow:hidden;"
    "font-size:var(--jp-code-font-size,13px);margin:2px 0"
)
_HEAD = (
    "padding:4px 8px;background:var(--jp-layout-color2,#f3f3f3);color:var(--jp-ui-font-color1,#333);"
    "display:flex;flex-wrap:wrap;gap:2px 10px;align-items:baseline"
)
_PRE = (
    "margin:0;padding:6px 8px;max-height:24em;overflow:auto;text-align:left;"
    "font-family:var(--jp-code-font-family,monospace);background:transparent;color:inherit"
)
# Text and tables keep their columns and scroll; statistics and changes are sentences, and wrap.
_SCROLL = _PRE + ";white-space:pre"
_WRAP = _PRE + ";white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
_DIM = "color:var(--jp-ui-font-color2,#777)"


def _budget(tokens: object, used: int) -> str:
    return f"~{used:,} of {tokens} tokens" if isinstance(tokens, int) else f"~{used:,} tokens"


def bundle(node: NodeBase) -> dict[str, str]:
    """Return the MIME bundle of a handle: text/plain and text/html."""
    shown = node.rendered
    state = f"running {node.freq}" if node.mode == "running" else "paused"
    facts = [f"lod {node.lod} {LODS[node.lod]}", _budget(node.tokens, shown.tokens), state]
    facts += ["pinned"] if node.pinned else []
    facts += [f"revision {node.revision}"] if node.revision > 1 else []
    facts += list(shown.notes)
    change = node.last_change
    parts = [
        f'<div style="{_HEAD}"><b>{escape(node.obj_id)}</b><span>{escape(node.target)}</span>'
        + "".join(f'<span style="{_DIM}">{escape(fact)}</span>' for fact in facts)
        + "</div>",
        f'<pre style="{_SCROLL if node.lod < 2 else _WRAP}">{escape(shown.text)}</pre>',
    ]
    if change and node.lod != 3:
        border = "border-top:1px solid var(--jp-border-color2,#ddd);"
        parts.append(f'<pre style="{_WRAP};{border}{_DIM}">last change\n{escape(change)}</pre>')
    text = f"{node!r}\n{shown.text}" + (f"\n-- last change\n{change}" if change and node.lod != 3 else "")
    return {"text/plain": text, "text/html": f'<div style="{_BOX}">{"".join(parts)}</div>'}


def rendered_html(rendered: Rendered) -> str:
    """Return a rendering as HTML."""
    return f'<div style="{_BOX}"><pre style="{_SCROLL}">{escape(rendered.text)}</pre></div>'


def table_html(table: HandleTable) -> str:
    """Return the table of `ls()` as HTML."""
    head, *rows = table.rows()
    cell = "padding:2px 8px;text-align:left;white-space:nowrap"
    lines = ["<tr>" + "".join(f'<th style="{cell}">{escape(text)}</th>' for text in head) + "</tr>"]
    lines += ["<tr>" + "".join(f'<td style="{cell}">{escape(text)}</td>' for text in row) + "</tr>" for row in rows]
    return f'<table style="border-collapse:collapse">{"".join(lines)}</table>'


class LiveDisplays:
    """Shows handles under display ids, and shows them again when they changed."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._shown: dict[str, dict[str, str]] = {}

    def install(self) -> None:
        """Register the formatters."""
        formatter = self._shell.display_formatter
        formatter.ipython_display_formatter.for_type(NodeBase, self._show)
        formatter.formatters["text/plain"].for_type(Rendered, lambda obj, p, cycle: p.text(obj.text))
        formatter.formatters["text/html"].for_type(Rendered, rendered_html)
        formatter.formatters["text/plain"].for_type(HandleTable, lambda obj, p, cycle: p.text(str(obj)))
        formatter.formatters["text/html"].for_type(HandleTable, table_html)

    def _show(self, node: NodeBase) -> None:
        made = self._shown[node.obj_id] = bundle(node)
        self._publish(node, made, update=False)

    def _publish(self, node: NodeBase, made: dict[str, str], *, update: bool) -> None:
        transient = {"display_id": f"ctxkernel-{node.obj_id}"}
        self._shell.display_pub.publish(data=made, metadata={}, transient=transient, update=update)

    def update(self, graph: Graph, capture: Any) -> None:
        """Bring what stands in the notebook up to date with the handles."""
        for obj_id in list(self._shown):
            node = graph.node(obj_id) or graph.aside(obj_id)
            if node is None:
                del self._shown[obj_id]
                continue
            made = bundle(node)
            if made != self._shown[obj_id]:
                self._shown[obj_id] = made
                with capture.ours():
                    self._publish(node, made, update=True)
