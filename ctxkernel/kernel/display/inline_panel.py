"""The panel inside of a notebook (`%ctx panel`), where there is no side panel: the same renderer as a widget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ctxkernel.kernel.display.bundle import bundle

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

APP = Path(__file__).parents[2] / "lab" / "app"
STYLES = ("style.css", "projection.css", "returning.css", "proposal.css")


def renderer() -> str:
    """Return the widget's script: one module."""
    return bundle(APP / "inline.js")


def inline_panel(ctx: Runtime) -> Any:
    """Return a widget that shows the panel and follows the session."""
    # Imported here: anywidget costs 0.2 s, and most sessions never ask for it.
    import anywidget
    import traitlets

    class InlinePanel(anywidget.AnyWidget):
        _esm = renderer()
        _css = "\n".join((APP / name).read_text(encoding="utf-8") for name in STYLES)
        state = traitlets.Dict().tag(sync=True)

    widget = InlinePanel(state=ctx.panel.snapshot())
    ctx.panel.follow(widget)
    return widget
