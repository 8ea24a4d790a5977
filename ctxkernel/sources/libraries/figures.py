"""A matplotlib Figure or Axes as a source: 0 every artist with its data's range, 1 axes, titles and counts, 2 in short.

At level 0 a picture goes along (`drawing.py`).

Rule 1: it is not drawn itself, and nothing that drawing would compute is asked for: axis limits are told where they
        were set.
Rule 2: data are told by number of points, range, and a hash of all, so that a diff sees any change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import attributes, is_a, type_name
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.rendering import titled
from ctxkernel.sources.objects.drawing import SIDE, NotDrawn, Snapshot, drawn
from ctxkernel.sources.objects.facts import array_line, is_array
from ctxkernel.sources.objects.pictured import PicturedSource
from ctxkernel.sources.tables.columns import modules

_ARTISTS = 200
_TEXTS = 20


class FigureSource(PicturedSource):
    """A view of a Figure, or of one Axes."""

    kind = "figure"
    most_side = SIDE

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._known: list[Any] = []

    def revision(self) -> str:
        """Return a hash of all that is drawn, as far as it was not computed yet: some milliseconds."""
        try:
            snapshot = _snapshot(_figure_of(self.target))
        except NotDrawn as reason:
            return str(reason)
        self._known = snapshot.known
        return snapshot.revision

    def draw(self) -> Any:
        """Return the figure, or what is within these axes, drawn. Raises NotDrawn."""
        figure = _figure_of(self.target)
        if figure is self.target:
            return drawn(_snapshot(figure), None)
        if self.target not in figure.axes:
            raise NotDrawn("these axes are within others")
        return drawn(_snapshot(figure), figure.axes.index(self.target))

    def _axes(self) -> list[Any]:
        return list(self.target.axes) if hasattr(self.target, "axes") and is_figure(self.target) else [self.target]

    def headline(self) -> str:
        """Return label, type, size and number of axes."""
        if not is_figure(self.target):
            return titled(self.label, self.target)
        box = attributes(self.target.bbox_inches)["_points"]  # `get_size_inches()` marks it as computed
        wide, high = (f"{side:g}" for side in box[1] - box[0])
        title = self.target.get_suptitle() if hasattr(self.target, "get_suptitle") else ""
        said = f" · {brief(title)}" if title else ""
        return f"{titled(self.label, self.target)}{said} · {wide} × {high} in · {len(self._axes()):,} axes"

    def value(self) -> list[str]:
        """Return each axes with its artists."""
        found: list[str] = []
        for at, axes in enumerate(self._axes()):
            found += [f"axes {at}: {_titles(axes)}", *(f"  {line}" for line in _artists(axes))]
        return found

    def structure(self) -> list[str]:
        """Return each axes with titles, labels and how many artists of each kind."""
        found: list[str] = []
        for at, axes in enumerate(self._axes()):
            found += [f"axes {at}: {_titles(axes)}", f"  {_counts(axes) or 'empty'}"]
            labels = [label for artist in _children(axes) if (label := _label(artist))]
            found += [f"  labelled: {one_line(', '.join(labels), 200)}"] if labels else []
        return found

    def summary(self) -> list[str]:
        """Return a line an axes."""
        return [f"- axes {at}: {_titles(axes)}; {_counts(axes) or 'empty'}" for at, axes in enumerate(self._axes())]


def is_figure(target: Any) -> bool:
    """Say whether it is a figure rather than an axes."""
    return "get_size_inches" in dir(type(target))


def _snapshot(figure: Any) -> Snapshot:
    try:
        return Snapshot(figure)
    except NotDrawn:
        raise
    except Exception as fault:  # what no pickle takes, or another thread changes meanwhile
        raise NotDrawn(f"it cannot be copied, {type(fault).__name__}") from None


def _figure_of(target: Any) -> Any:
    """Return the whole figure that a figure or axes is in. Raises NotDrawn."""
    found = target
    while found is not None and not is_figure(found):
        found = found.figure
    if found is None:
        raise NotDrawn("these axes are in no figure")
    return found


def _children(axes: Any) -> list[Any]:
    return list(attributes(axes).get("_children", ()))


def _titles(axes: Any) -> str:
    parts = [brief(axes.get_title())] if axes.get_title() else []
    for side in ("x", "y"):
        label, scale = getattr(axes, f"get_{side}label")(), getattr(axes, f"get_{side}scale")()
        said = [brief(label)] if label else []
        said += [scale] if scale != "linear" else []
        if not getattr(axes, f"get_autoscale{side}_on")():
            low, high = getattr(attributes(axes).get("_viewLim"), f"interval{side}", (None, None))
            said += [f"from {low:g} to {high:g}"] if low is not None else []
        parts += [f"{side} {', '.join(said)}"] if said else []
    return " · ".join(parts) or "untitled"


def _counts(axes: Any) -> str:
    bars = {id(patch) for box in axes.containers for patch in getattr(box, "patches", ())}
    kinds = Counter(_kind(artist) for artist in _children(axes) if id(artist) not in bars)
    kinds.update({"bar": len(bars)} if bars else {})
    found = [plural(count, f"{kind}s") for kind, count in sorted(kinds.items())]
    return ", ".join([*found, *(["a legend"] if attributes(axes).get("legend_") is not None else [])])


def _artists(axes: Any) -> Iterator[str]:
    """Yield a line an artist; bars of one call together."""
    bars = {id(patch) for box in axes.containers for patch in getattr(box, "patches", ())}
    for box in axes.containers:
        if patches := list(getattr(box, "patches", ())):
            heights = [attributes(patch).get("_height") for patch in patches]
            yield f"{plural(len(patches), 'bars')}{_named(box)}: heights {_told(heights)}"
    shown = [artist for artist in _children(axes) if id(artist) not in bars]
    for artist in shown[:_ARTISTS]:
        yield f"{_kind(artist)}{_named(artist)}{_data(artist)}"
    if len(shown) > _ARTISTS:
        yield f"[… {len(shown) - _ARTISTS:,} more artists]"
    legend = attributes(axes).get("legend_")
    if legend is not None:
        yield f"legend: {', '.join(brief(text.get_text()) for text in legend.get_texts()[:_TEXTS])}"


def _kind(artist: Any) -> str:
    name = type_name(type(artist)).rpartition(".")[2]
    known = {"Line2D": "line", "PathCollection": "scatter", "AxesImage": "image", "Text": "text", "Annotation": "text"}
    return known.get(name, name)


def _label(artist: Any) -> str:
    label = attributes(artist).get("_label")
    return brief(label) if isinstance(label, str) and label and not label.startswith("_") else ""


def _named(artist: Any) -> str:
    label = _label(artist)
    return f" {label}" if label else ""


def _data(artist: Any) -> str:
    own = attributes(artist)
    if "_xorig" in own:
        return f": x {_told(own['_xorig'])}; y {_told(own.get('_yorig'))}"
    if is_array(own.get("_A")):
        return f": {array_line(own['_A'])}"
    offsets = own.get("_offsets")
    if is_array(offsets) and offsets.ndim == 2 and len(offsets) > 1:
        return f": x {_told(offsets[:, 0])}; y {_told(offsets[:, 1])}"
    if isinstance(own.get("_text"), str):
        return f": {brief(own['_text'], 120)}"
    return ""


def _told(values: Any) -> str:
    """Return number, first values, range and hash of some data."""
    numpy, pandas = modules()
    if pandas is not None and is_a(values, pandas.Series, pandas.Index):
        values = values.to_numpy()
    if is_a(values, list, tuple) and all(type(item) in (int, float) or is_a(item, numpy.number) for item in values):
        values = numpy.asarray(values)
    if not is_array(values):
        return brief(values, 120)
    plain = numpy.ma.getdata(values)
    if plain.dtype.hasobject:
        return f"{plural(plain.size, 'values')}: {brief(plain.flat[:6].tolist(), 120)}"
    return array_line(plain)
