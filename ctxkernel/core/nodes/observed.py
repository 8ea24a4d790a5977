"""The widget of a node, as far as the core knows it: a service of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ctxkernel.core.nodes.graph_base import GraphBase
from ctxkernel.core.nodes.policy import Identified

WIDGET_TRAITS = ("lod", "tokens", "pos", "running", "rendered")
"""The traits of a handle's widget that follow the handle; all but the last can be set."""


class Observed(Identified):
    """A base for nodes: each has a widget."""

    graph: GraphBase

    @property
    def widget(self) -> Any:
        """Its widget, for `VBox`, `link`, `jslink` and `interact`: traits lod, tokens, pos, running and rendered.

        A trait that is set changes the handle. Of tokens, None is `All`; a pos at the start of a line is its number.
        Raises CtxError where there are no widgets.
        """
        return self.graph.widget_of(self)

    @property
    def value(self) -> str:
        """The text that `widget` shows, under the name that `interactive_output` reads."""
        return self.widget.value

    @property
    def layout(self) -> Any:
        """The layout of its widget: a grid of ipywidgets asks for it."""
        return self.widget.layout

    def observe(self, handler: Callable[[Any], object], names: object = WIDGET_TRAITS, type: str = "change") -> None:
        """Call `handler` when a trait of its `widget` changes."""
        self.widget.observe(handler, names, type)

    def unobserve(self, handler: Callable[[Any], object], names: object = WIDGET_TRAITS, type: str = "change") -> None:
        """End `observe`."""
        self.widget.unobserve(handler, names, type)
