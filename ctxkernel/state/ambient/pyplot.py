"""Which figures pyplot has open, in which order, and their current axes. What a figure shows is not part of this."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.reflection import class_of
from ctxkernel.state.ambient.live_objects import LiveObjects
from ctxkernel.state.ambient.part import NotRestored, Part

MOST_FIGURES = 64
"""Figures that are kept alive for a return, those that are open included."""


class OpenFigures(Part):
    """The figures of `matplotlib.pyplot`; the last one is the current one."""

    name = "pyplot"
    needs = "matplotlib.pyplot"
    imports = False

    def __init__(self) -> None:
        self.live = LiveObjects(MOST_FIGURES)
        """Token → figure. Give the token another figure with `adopt` where one was loaded from a checkpoint."""

    def stamp(self) -> object:
        """Return the open figures and their axes by identity; captured ones are alive, so no id is used twice."""
        return [(number, id(one), one.get_label(), id(_axes(one))) for number, one in _figures()]

    def capture(self) -> Any:
        """Return number, label, token and the position of the current axes of each figure, the current one last."""
        found: list[Any] = []
        for number, figure in _figures():
            position = next((at for at, one in enumerate(figure.axes) if one is _axes(figure)), None)
            found.append([number, figure.get_label(), self.live.token(figure), position])
        return found

    def default(self) -> Any:
        """Return that no figure is open."""
        return []

    def absent(self, value: Any) -> str:
        """Name the figures that were open."""
        return "; ".join(_missing(number, label) for number, label, *_ in value)

    def restore(self, value: Any) -> None:
        """Open and close figures in pyplot. No figure is changed but for its number and label.

        Raises NotRestored for figures that are not held.
        """
        figures, missing = _gcf().figs, list[str]()
        before = {id(manager.canvas.figure): manager for manager in figures.values()}
        wanted: list[Any] = []
        for number, label, token, position in value:
            if token not in self.live:
                missing.append(_missing(number, label))
                continue
            figure = self.live.get(token)
            manager = before.pop(id(figure), None)
            if manager is None or manager.num != number:
                manager = _manager(number, figure)
            if figure.get_label() != label:
                figure.set_label(label)
            axes = figure.axes
            if position is not None and position < len(axes) and _axes(figure) is not axes[position]:
                figure.sca(axes[position])
            wanted.append(manager)
        for manager in before.values():
            _gcf().destroy(manager)
        figures.clear()
        for manager in wanted:
            _gcf()._set_new_active_manager(manager)
        if missing:
            raise NotRestored("; ".join(missing))


def _gcf() -> Any:
    return sys.modules["matplotlib._pylab_helpers"].Gcf  # type: ignore[attr-defined]


def _figures() -> Iterator[tuple[Any, Any]]:
    """Yield the open figures with their numbers."""
    return ((number, manager.canvas.figure) for number, manager in _gcf().figs.items())


def _axes(figure: Any) -> Any:
    """Return the current axes, None where there are none; `gca` would make some."""
    return figure._axstack.current()


def _missing(number: Any, label: str) -> str:
    named = f"figure {number}" + (f" ({label})" if label else "")
    return f"{named} is not open: it is not held any more; draw it again"


def _manager(number: Any, figure: Any) -> Any:
    """Return a manager for a figure: its own one where closing has not destroyed that."""
    base = sys.modules["matplotlib.backend_bases"].FigureManagerBase  # type: ignore[attr-defined]
    manager = figure.canvas.manager
    kind: Any = class_of(manager)
    if manager is not None and manager.num == number and kind.destroy is base.destroy:
        manager.__dict__.pop("_cidgcf", None)  # pyplot connected the canvas, and closing disconnected it
        return manager
    backend = sys.modules["matplotlib.pyplot"]._get_backend_mod()  # type: ignore[attr-defined]
    return backend.new_figure_manager_given_figure(number, figure)
