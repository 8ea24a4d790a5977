"""How handles show in a notebook: as text and HTML that stay current, and live where somebody looks.

Rule 1: everything that is shown goes through `html.escape`; nothing of a target is ever markup.
Rule 2: text and HTML stand in every output, so that a notebook can be read where there is no kernel and no widget.
Rule 3: to show a handle changes no node, and what is told once a turn is only what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.nodes.base import LODS
from ctxkernel.core.ports import Rendered
from ctxkernel.core.turn import HandleTable
from ctxkernel.kernel.display.widgets import Gestures
from ctxkernel.kernel.execution.capture import HANDLE_MIME, WIDGET_MIME, Capture
from ctxkernel.kernel.execution.guard import Guard

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
_PICTURE = "display:block;max-width:100%;max-height:24em;padding:0 8px 8px"
_DIM = "color:var(--jp-ui-font-color2,#777)"

GONE = "This handle is no more; this is what it showed last."


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
    if (seen := shown.picture) is not None:
        source = escape(f"data:{seen.media_type};base64,{seen.data}")
        parts.append(f'<img alt="The picture that a model is shown" style="{_PICTURE}" src="{source}">')
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


@dataclass(slots=True)
class Shown:
    """A handle that stands in the notebook."""

    memento: Mapping[str, Any]
    """The node's state as it was told: another object where that changed."""
    bundle: dict[str, Any]
    """What stands in the output; nothing where the handle is no more."""
    told: tuple[Any, ...]
    """What a widget says that is not in the state."""
    used: int
    before: int | None = None
    """Tokens of the rendering, and of the one before it."""
    widget: Any = None


class LiveDisplays:
    """Shows handles under display ids, and shows them again when they changed."""

    def __init__(
        self,
        *,
        shell: Any,
        loop: Loop,
        guard: Guard,
        capture: Capture,
        gestures: Gestures,
        attended: Callable[[], bool],
        name_of: Callable[[str], str],
    ) -> None:
        self._shell = shell
        self._loop = loop
        self._guard = guard
        self._capture = capture
        self._gestures = gestures
        self._attended = attended
        self._name_of = name_of
        self._shown: dict[str, Shown] = {}

    def install(self) -> None:
        """Register the formatters."""
        formatter = self._shell.display_formatter
        formatter.ipython_display_formatter.for_type(NodeBase, self._show)
        formatter.formatters["text/plain"].for_type(Rendered, lambda obj, p, cycle: p.text(obj.text))
        formatter.formatters["text/html"].for_type(Rendered, rendered_html)
        formatter.formatters["text/plain"].for_type(HandleTable, lambda obj, p, cycle: p.text(str(obj)))
        formatter.formatters["text/html"].for_type(HandleTable, table_html)

    def _show(self, node: NodeBase) -> None:
        shown = self._shown.get(node.obj_id)
        if shown is None:
            shown = self._shown[node.obj_id] = Shown({}, {}, (), node.rendered.tokens)
        self._bring_up_to_date(node, shown, live=self._attended())
        self._publish(node.obj_id, shown.bundle, update=False)

    def _bring_up_to_date(self, node: NodeBase, shown: Shown, *, live: bool = False) -> bool:
        """Make what is shown of a handle anew where it changed, and tell its widget. Returns whether the output did.

        Where it is to be `live` it has a widget from now on.
        """
        graph = self._loop.graph
        memento = node.memento()
        aside = graph.node(node.obj_id) is None
        changed = bool(node.changed_in) and node.changed_in == graph.statement_id
        told = (self._name_of(node.obj_id), aside, changed)
        wanted = live and shown.widget is None
        if shown.bundle and memento is shown.memento and told == shown.told and not wanted:
            return False
        used = node.rendered.tokens
        if used != shown.used:
            shown.used, shown.before = used, shown.used
        shown.memento, shown.told, old = memento, told, shown.bundle
        shown.bundle = dict(bundle(node))
        if shown.widget is not None or wanted:
            self._guard("live widgets", self._tell, None, node, shown)
        if shown.widget is not None:
            model_id = shown.widget.model_id
            shown.bundle[HANDLE_MIME] = {"model_id": model_id}
            shown.bundle[WIDGET_MIME] = {"version_major": 2, "version_minor": 0, "model_id": model_id}
        return shown.bundle != old

    def _tell(self, node: NodeBase, shown: Shown) -> None:
        """Tell the widget of a handle what it is now, or make one."""
        from ctxkernel.kernel.display.widgets import TEXT_CHARS, facts, handle_widget

        name, aside, changed = shown.told
        state = facts(node, name, aside=aside, changed=changed, before=shown.before)
        text = node.rendered.text[:TEXT_CHARS]
        if shown.widget is None:
            shown.widget = handle_widget(self._gestures, node.obj_id, facts=state, text=text)
            return
        with shown.widget.hold_sync():
            shown.widget.facts, shown.widget.text = state, text

    def _publish(self, obj_id: str, made: dict[str, Any], *, update: bool) -> None:
        transient = {"display_id": f"ctxkernel-{obj_id}"}
        self._shell.display_pub.publish(data=made, metadata={}, transient=transient, update=update)

    def update(self) -> None:
        """Bring what stands in the notebook up to date with the handles."""
        graph = self._loop.graph
        for obj_id, shown in list(self._shown.items()):
            node = graph.node(obj_id) or graph.aside(obj_id)
            with self._capture.ours():
                if node is not None:
                    back = not shown.bundle
                    if self._bring_up_to_date(node, shown, live=back and self._attended()):
                        self._publish(obj_id, shown.bundle, update=True)
                elif shown.bundle:
                    self._gone(obj_id, shown)

    def _gone(self, obj_id: str, shown: Shown) -> None:
        """Leave the text of a handle that is no more, and no controls; a return may bring it back."""
        text, html = shown.bundle["text/plain"], shown.bundle["text/html"]
        told = f'<div style="{_DIM};font-size:var(--jp-ui-font-size1,13px)">{escape(GONE)}</div>'
        self._publish(obj_id, {"text/plain": f"{text}\n-- {GONE}", "text/html": html + told}, update=True)
        widget, shown.widget, shown.bundle = shown.widget, None, {}
        if widget is not None:
            widget.close()
