"""The panel inside of a notebook (`%ctx panel`), where there is no side panel: the same renderer as a widget."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

APP = Path(__file__).parents[2] / "lab" / "app"
PARTS = (
    "base.js",
    "menu.js",
    "tree.js",
    "details.js",
    "timeline.js",
    "changes.js",
    "comparisons.js",
    "handles.js",
    "blocks.js",
    "against.js",
    "projection.js",
    "history.js",
    "proposal.js",
    "returning.js",
    "render.js",
)
"""The renderer's modules, each after those that it imports."""
STYLES = ("style.css", "projection.css", "returning.css", "proposal.css")


def renderer() -> str:
    """Return the renderer as one module: a widget's module can import nothing beside it."""
    text = "\n".join((APP / name).read_text(encoding="utf-8") for name in PARTS)
    text = re.sub(r"^import \{[^}]*\} from '\./[^']+';\n", "", text, flags=re.MULTILINE)
    return re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE)


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
