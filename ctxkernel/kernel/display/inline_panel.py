"""The panel as a widget in the notebook (`%ctx panel`), for front ends without a side panel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ctxkernel.core.text import without_surrogates
from ctxkernel.export.bundle import bundle_modules
from ctxkernel.kernel.display.panel import Panel

APP = Path(__file__).parents[2] / "lab" / "app"
STYLES = (
    "panel.css",
    "timeline.css",
    "details.css",
    "handles.css",
    "changes.css",
    "projection.css",
    "history.css",
    "cost.css",
    "branches.css",
    "returning.css",
    "comparisons.css",
    "sweeps.css",
    "proposal.css",
    "differences.css",
    "rendering.css",
)


def renderer() -> str:
    """Return the widget's script: one module."""
    return bundle_modules(APP / "inline.js")


def inline_panel(panel: Panel) -> Any:
    """Return a widget that shows the panel and follows the session."""
    # Imported late: anywidget costs 0.2 s, and most sessions never need it.
    import anywidget
    import traitlets

    class InlinePanel(anywidget.AnyWidget):
        _esm: Any = renderer()
        _css: Any = "\n".join((APP / name).read_text(encoding="utf-8") for name in STYLES)
        state: Any = traitlets.Dict().tag(sync=True)

        def set_state(self, sync_data: Any) -> None:
            """Ignore values from a page: they would be sent to other pages, as data or as the widget's script."""

    widget = InlinePanel(state=without_surrogates(panel.snapshot()))
    panel.follow(widget)
    return widget
