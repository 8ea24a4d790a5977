"""The display of handles in a notebook: text and HTML that stay current, and widgets where a person uses it.

Rule 1: all displayed text passes through `show_hidden` and, in HTML, `html.escape`; nothing of a target is markup.
Rule 2: every output has text and HTML, so that a notebook is readable without a kernel and without widgets.
Rule 3: displaying a handle changes no node; after a turn only handles that changed are sent.
"""

from __future__ import annotations

import base64
import importlib
import re
import uuid
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import CtxError
from ctxkernel.core.loop import Loop
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.nodes.handle_states import handle_state
from ctxkernel.core.nodes.node_base import LODS
from ctxkernel.core.ports import Picture, Rendered
from ctxkernel.core.text import show_hidden, without_surrogates
from ctxkernel.core.turn_values import HandleTable, TurnResult
from ctxkernel.kernel.display.blocks import blocks_of, state_blocks
from ctxkernel.kernel.display.blocks_html import blocks_html
from ctxkernel.kernel.display.handle_widgets import (
    TEXT_CHARS,
    Gestures,
    handle_facts,
    handle_widget,
    trait_values,
)
from ctxkernel.kernel.execution.capture import HANDLE_MIME, WIDGET_MIME, Capture
from ctxkernel.kernel.execution.guard import Guard
from ctxkernel.replay.notebook_outputs import display_ids
from ctxkernel.state.ambient import WIDGETS

if TYPE_CHECKING:
    from ctxkernel.kernel.messages.wire import RenderingBlock

_DISPLAY_ID = re.compile(r"ctxkernel-(\w+)-([0-9a-f]{32})")
_BOX = (
    "border:1px solid var(--jp-border-color2,#ddd);border-radius:4px;overflow:hidden;"
    "font-size:var(--jp-code-font-size,13px);margin:2px 0"
)
_HEAD = (
    "padding:4px 8px;background:var(--jp-layout-color2,#f3f3f3);color:var(--jp-ui-font-color1,#333);"
    "display:flex;flex-wrap:wrap;gap:2px 10px;align-items:baseline"
)
_PICTURE = "display:block;max-width:100%;max-height:24em;padding:0 8px 8px"
_DIM = "color:var(--jp-ui-font-color2,#777)"

_AS_TEXT = 'class="mathjax_ignore tex2jax_ignore"'
"""Keeps front ends from typesetting what looks like LaTeX in names, which could make links and styles of it."""

GONE = "This handle is no more; this is what it showed last."


def node_blocks(node: NodeBase, mask: Callable[[str], str], most: int | None = None) -> list[RenderingBlock]:
    """Return the rendering of a handle as blocks: of its text at most so many characters."""
    return state_blocks(handle_state(node, "", False), mask(node.rendered.text)[:most])


def mime_bundle(node: NodeBase, mask: Callable[[str], str]) -> dict[str, Any]:
    """Return the MIME bundle of a handle, text/plain and text/html; `mask` masks secrets."""

    def safe(text: str) -> str:
        return show_hidden(mask(text))

    shown, change = node.rendered, node.last_change if node.lod != 3 else ""
    rendered = safe(shown.text)
    limit = f" of {node.tokens} tokens" if isinstance(node.tokens, int) else " tokens"
    facts = [
        f"lod {node.lod} {LODS[node.lod]}",
        f"~{shown.tokens:,}{limit}",
        f"running {node.freq}" if node.mode == "running" else "paused",
        *(["pinned"] if node.pinned else []),
        *([f"revision {node.revision}"] if node.revision > 1 else []),
        *shown.notes,
    ]
    picture = shown.picture
    parts = [
        f'<div style="{_HEAD}"><b>{escape(node.obj_id)}</b><span>{escape(safe(node.target))}</span>',
        *(f'<span style="{_DIM}">{escape(safe(fact))}</span>' for fact in facts),
        "</div>",
        blocks_html(node_blocks(node, mask), wraps=node.lod > 1),
    ]
    parts += [picture_html(picture)] if picture is not None else []
    text = f"{safe(repr(node))}\n{rendered}"
    if change:
        change = safe(change)
        border = "border-top:1px solid var(--jp-border-color2,#ddd);"
        told = blocks_html(blocks_of(f"last change\n{change}", {}), wraps=True)
        parts.append(f'<div style="{border}{_DIM}">{told}</div>')
        text += f"\n-- last change\n{change}"
    html = f'<div {_AS_TEXT} style="{_BOX}">{"".join(parts)}</div>'
    return {"text/plain": text, "text/html": html, **picture_form(picture)}


def picture_form(picture: Picture | None) -> dict[str, str]:
    """Return a picture as a form of an output, which a model is sent like that of any other output."""
    return {} if picture is None else {picture.media_type: picture.data}


def picture_html(picture: Picture) -> str:
    """Return a picture as HTML."""
    source = escape(f"data:{picture.media_type};base64,{picture.data}")
    return f'<img alt="The picture that a model is shown" style="{_PICTURE}" src="{source}">'


def rendered_html(rendered: Rendered, mask: Callable[[str], str]) -> str:
    """Return a rendering as HTML, with its picture."""
    image = picture_html(rendered.picture) if rendered.picture is not None else ""
    blocks = blocks_html(blocks_of(mask(rendered.text), rendered.rows), wraps=False)
    return f'<div {_AS_TEXT} style="{_BOX}">{blocks}{image}</div>'


def table_html(table: HandleTable, safe: Callable[[str], str]) -> str:
    """Return the table of `ls()` as HTML; `safe` makes a text safe to show."""
    if not table:
        return f"<p {_AS_TEXT}>{escape(str(table))}</p>"
    cell = "padding:2px 8px;text-align:left;white-space:nowrap"
    lines: list[str] = []
    for number, row in enumerate(table.rows()):
        tag = "td" if number else 'th scope="col"'
        cells = "".join(f'<{tag} style="{cell}">{escape(safe(text))}</{tag[:2]}>' for text in row)
        lines.append(f"<tr>{cells}</tr>")
    return f'<table {_AS_TEXT} style="border-collapse:collapse">{"".join(lines)}</table>'


def _text_printer(text_of: Callable[[Any], str]) -> Callable[[Any, Any, bool], None]:
    """Return a formatter for IPython's text printer."""
    return lambda obj, printer, cycle: printer.text(text_of(obj))


@dataclass(slots=True)
class DisplayedHandle:
    """A handle that an output of the notebook displays."""

    memento: Mapping[str, Any]
    """The node's state as displayed; a changed node has another object."""
    bundle: dict[str, Any]
    """The MIME bundle of the output; empty after the handle was removed."""
    facts: tuple[str, bool, bool]
    """Name, whether it is on another branch, whether it changed: data of a widget that the state does not contain."""
    used: int
    before: int | None = None
    """Tokens of the rendering, and of the one before it."""
    widget: Any = None
    displayed: bool = False
    """Whether an output displays it: else it has a widget only."""
    held: NodeBase | None = None
    """The handle, where code has its widget: it lives as long as the widget is open."""
    model_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The id of its widget."""
    display_id: str = ""
    """The id of its displays. It has that of the first widget: so the log has it for a later kernel."""


@dataclass(eq=False, kw_only=True)
class LiveDisplays:
    """Displays handles under display ids, and updates the outputs after a change."""

    shell: Any
    loop: Loop
    guard: Guard
    capture: Capture
    gestures: Gestures
    attended: Callable[[], bool]
    mask: Callable[[str], str]
    run_between: Callable[[Callable[[], None]], None] = lambda run: run()
    """Runs code of the user's while no cell runs: the observers of widgets."""
    _shown: dict[str, DisplayedHandle] = field(default_factory=dict[str, DisplayedHandle])
    _due: dict[str, None] = field(default_factory=dict[str, None])
    """The handles that their widgets do not follow yet."""
    _earlier: dict[str, str] = field(default_factory=dict[str, str])
    """Handle that an output of an earlier kernel displays → the id of its widget there."""

    def install(self) -> None:
        """Register the formatters."""
        formatter = self.shell.display_formatter
        formatter.ipython_display_formatter.for_type(NodeBase, self._show)
        plain, html = formatter.formatters["text/plain"], formatter.formatters["text/html"]

        def rendering_html(rendered: Rendered) -> str:
            return rendered_html(rendered, self.mask)

        def rendering_image(media_type: str) -> Callable[[Rendered], bytes | None]:
            def data(rendered: Rendered) -> bytes | None:
                found = picture_form(rendered.picture).get(media_type)
                return base64.b64decode(found) if found is not None else None

            return data

        def handles_html(table: HandleTable) -> str:
            return table_html(table, self._safe)

        plain.for_type(Rendered, _text_printer(lambda rendered: self._safe(rendered.text)))
        html.for_type(Rendered, rendering_html)
        for media_type in ("image/png", "image/jpeg"):
            formatter.formatters[media_type].for_type(Rendered, rendering_image(media_type))
        plain.for_type(HandleTable, _text_printer(lambda table: self._safe(str(table))))
        html.for_type(HandleTable, handles_html)
        self.loop.graph.widget_of, self.loop.graph.followed = self.widget_of, self._follow_call
        self.gestures.between = self.follow
        WIDGETS.open_handle = self._open_again

    def _safe(self, text: str) -> str:
        """Return a text masked, with invisible characters shown."""
        return show_hidden(self.mask(text))

    def _show(self, node: NodeBase) -> None:
        shown = self._entry(node)
        shown.displayed = True
        self._refresh(node, shown, live=self.attended())
        self._publish(node.obj_id, shown.bundle, update=False)
        self._follow_one(node.obj_id)

    def _entry(self, node: NodeBase) -> DisplayedHandle:
        shown = self._shown.get(node.obj_id)
        if shown is None:
            shown = self._shown[node.obj_id] = DisplayedHandle({}, {}, ("", False, False), node.rendered.tokens)
            if (earlier := self._earlier.pop(node.obj_id, None)) is not None:
                shown.model_id, shown.displayed = earlier, True
            shown.display_id = f"ctxkernel-{node.obj_id}-{shown.model_id}"
        if shown.widget is not None and shown.widget.comm is None:  # the user closed it
            shown.widget = shown.held = None
        return shown

    def widget_of(self, node: NodeBase) -> Any:
        """Return the widget of a handle, which lives as long as the widget is open. Raises CtxError."""
        shown = self._entry(node)
        if shown.widget is None:
            try:
                importlib.import_module("ctxkernel.kernel.display.handle_widget")
            except ImportError as missing:
                raise CtxError(
                    f"{node.obj_id}.widget needs a package that is missing ({missing}): "
                    "%pip install ipywidgets anywidget, then restart the kernel"
                ) from None
            self._refresh(node, shown, live=True)
        shown.held = node
        self._follow_one(node.obj_id)
        return shown.widget

    def _open_again(self, obj_id: str, model_id: str) -> None:
        """Open the widget of a handle that had one in an earlier kernel, where another widget contains it."""
        node = self.loop.graph.node(obj_id)
        if node is not None and obj_id not in self._shown:
            self._entry(node).model_id = model_id
            self.widget_of(node)

    def _refresh(self, node: NodeBase, shown: DisplayedHandle, *, live: bool = False) -> bool:
        """Update what is displayed of a handle. Return whether the output changed; the widget is to follow then.

        With `live` the handle gets a widget.
        """
        graph = self.loop.graph
        memento = node.memento()
        name = self.loop.names.first_names().get(node.obj_id, node.obj_id)
        changed = bool(node.changed_in) and node.changed_in == graph.statement_id
        facts = (name, graph.node(node.obj_id) is None, changed)
        needs_widget = live and shown.widget is None
        if shown.bundle and memento is shown.memento and facts == shown.facts and not needs_widget:
            return False
        used = node.rendered.tokens
        if used != shown.used:
            shown.used, shown.before = used, shown.used
        shown.memento, shown.facts, old = memento, facts, shown.bundle
        shown.bundle = mime_bundle(node, self.mask)
        if needs_widget:
            shown.widget = self.guard(
                "live widgets",
                lambda: handle_widget(self.gestures, graph, node, shown.model_id, self._state(node, shown)),
                None,
            )
        elif shown.widget is not None:
            self._due[node.obj_id] = None
        if shown.widget is not None:
            model_id = shown.widget.model_id
            shown.bundle[HANDLE_MIME] = {"model_id": model_id}
            shown.bundle[WIDGET_MIME] = {"version_major": 2, "version_minor": 0, "model_id": model_id}
        return shown.bundle != old

    def _state(self, node: NodeBase, shown: DisplayedHandle) -> dict[str, Any]:
        """Return the state of the widget of a handle."""
        name, aside, changed = shown.facts
        told = handle_facts(node, name, aside=aside, changed=changed, before=shown.before)
        facts: dict[str, Any] = {key: self.mask(one) if isinstance(one, str) else one for key, one in told.items()}
        facts["notes"] = list(map(self.mask, told["notes"]))
        text = self.mask(node.rendered.text)[:TEXT_CHARS]
        made = {"facts": facts, "rendered": text, "blocks": node_blocks(node, self.mask, TEXT_CHARS)}
        return {**without_surrogates(made), **trait_values(node)}

    # -- widgets --------------------------------------------------------------------------------

    def _follow_call(self, node: NodeBase) -> None:
        """Have a widget that code uses follow its handle at once."""
        shown = self._shown.get(node.obj_id)
        if shown is not None and shown.held is not None and not self.loop.graph.ticking:
            self._due[node.obj_id] = None
            self._follow_one(node.obj_id)

    def _follow_one(self, obj_id: str, *, returned: bool = False) -> None:
        """Have the widget of a handle follow it, if it is due; unless a return changed it, its observers are called."""
        shown, node = self._shown.get(obj_id), self.loop.graph.node(obj_id) or self.loop.graph.aside(obj_id)
        if obj_id not in self._due or shown is None or shown.widget is None or node is None:
            return
        del self._due[obj_id]
        state = self._state(node, shown)
        if returned:
            shown.widget.follow_return(state)
        else:
            shown.widget.follow(state)

    def follow(self) -> None:
        """Have the widgets follow their handles, while no cell runs."""
        for obj_id in list(self._due):
            self.run_between(lambda obj_id=obj_id: self._follow_one(obj_id))

    def _publish(self, obj_id: str, bundle: dict[str, Any], *, update: bool) -> None:
        transient = {"display_id": self._shown[obj_id].display_id}
        self.shell.display_pub.publish(data=bundle, metadata={}, transient=transient, update=update)

    def take_over(self) -> None:
        """Take in which handles the outputs of an earlier kernel display: their widgets get the ids that they had."""
        for _, execution in self.loop.log.ended():
            for display_id in display_ids(execution).values():
                if (found := _DISPLAY_ID.fullmatch(display_id)) is not None and found[1] not in self._shown:
                    self._earlier[found[1]] = found[2]

    def update(self, result: TurnResult) -> None:
        """Update the outputs of handles that changed; their widgets follow when the turn has ended."""
        graph, returned = self.loop.graph, result.moved is not None
        if result.moved is not None and result.moved.reason == "resume":
            self.take_over()
        for node in [*filter(None, map(graph.node, self._earlier))]:
            self._entry(node)
        for obj_id, shown in list(self._shown.items()):
            node = graph.node(obj_id) or graph.aside(obj_id)
            with self.capture.ours():
                if node is None:
                    self._remove(obj_id, shown)
                    continue
                shown = self._entry(node)
                live = not shown.bundle and self.attended() and shown.displayed
                if self._refresh(node, shown, live=live) and shown.displayed:
                    self._publish(obj_id, shown.bundle, update=True)
                if returned:
                    self._follow_one(obj_id, returned=True)

    def _remove(self, obj_id: str, shown: DisplayedHandle) -> None:
        """Keep the last text of a removed handle, without controls; a return can restore the handle."""
        if not shown.bundle:
            return
        text, html = shown.bundle["text/plain"], shown.bundle["text/html"]
        note = f'<div style="{_DIM};font-size:var(--jp-ui-font-size1,13px)">{escape(GONE)}</div>'
        self._publish(obj_id, {"text/plain": f"{text}\n-- {GONE}", "text/html": html + note}, update=True)
        widget, shown.widget, shown.bundle = shown.widget, None, {}
        if widget is not None:
            widget.close()
            shown.model_id = uuid.uuid4().hex
