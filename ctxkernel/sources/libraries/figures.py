"""A matplotlib figure drawn small, for a model that sees, without a trace in the figure.

Rule 1: what is drawn is a copy: to draw computes limits, ticks and layouts, and a look at a figure changes nothing in
        it. Data are not copied, and cannot be written to; what is matplotlib's is.
Rule 2: pyplot is not imported, and no figure is added to those that it knows; no LaTeX is run.
Rule 3: at most `SIDE` pixels a side, whatever the figure's size, and bounded by what it holds, then by time.
Rule 4: the same figure, fonts and options give the same bytes.

A matplotlib Figure or Axes as a source: 0 every artist with its data's range, 1 axes, titles and counts, 2 in short.

At level 0 a picture goes along (`drawing.py`).

Rule 1: it is not drawn itself, and nothing that drawing would compute is asked for: axis limits are told where they
        were set.
Rule 2: data are told by number of points, range, and a hash of all, so that a diff sees any change.
"""

from __future__ import annotations

import importlib
import io
import logging
import math
import pickle
import sys
import threading
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import xxhash

from ctxkernel.core.collector import without_collector
from ctxkernel.core.descriptions import brief, first_items
from ctxkernel.core.reflection import attributes, class_of, is_a
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import indented, more_lines
from ctxkernel.sources.base.rendering import short_type, titled
from ctxkernel.sources.objects.facts import NotDrawn, PicturedSource, array_line, is_array
from ctxkernel.sources.tables.columns import STAMP_BYTES, hash_column, modules

SIDE = 768
"""Pixels: letters of a usual figure can be read."""
_MOST_ARTISTS = 2_000
_MOST_AXES = 50
_MOST_WEIGHT = 200_000  # some two seconds
_AXES_MS, _ARTIST_MS, _POINT_MS = 30.0, 0.3, 0.01
"""What it takes to draw, about."""
_AT_ONCE_MS = 80.0
"""What takes longer is drawn in the background."""
_MOST_PIXELS = 12_000_000
_LEAST_DPI = 16  # letters of a smaller size than a pixel are an error
_SECONDS = 3.0
_MOST_TICKS = 300  # of an axis
_IMAGE_VALUES = 4_000_000
_SMALL_BYTES = 4096
_COPIED = frozenset(("collections", "functools", "itertools"))


class Snapshot:
    """A figure as it is now: what it takes to draw it, and a revision that differs where it would look different.

    As long as it is kept, no other object has the identity of one that the figure holds.
    Raises NotDrawn for one of too many artists, and whatever pickling it raises.
    """

    def __init__(self, figure: Any) -> None:
        count = sum(len(axes.__dict__.get("_children", ())) for axes in figure.axes)
        if count > _MOST_ARTISTS:
            raise NotDrawn(f"{count:,} artists are not drawn")
        if len(figure.axes) > _MOST_AXES:
            raise NotDrawn(f"{len(figure.axes):,} axes are not drawn")
        out = io.BytesIO()
        pickler = _Copier(out)
        with without_collector():
            pickler.dump(figure)
        self._stream, self._held = out.getvalue(), pickler.held
        state = xxhash.xxh3_64(self._stream)
        exact = [_add(state, one) for one in self._held]
        self.revision = ("" if all(exact) else "~") + state.hexdigest()

    def copy(self) -> Any:
        """Return a figure of its own, with the same data."""
        return _Loader(io.BytesIO(self._stream), self._held).load()


def _held(at: int) -> Any:
    """Stand for what is not copied, in a stream; `_Loader` puts it in."""
    raise NotImplementedError(at)


class _Copier(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5)
        self.held: list[Any] = []
        self._ways: dict[type, Callable[[Any], Any]] = {}
        self._numpy, _ = modules()
        self._registry: Any = sys.modules["matplotlib.cbook"].CallbackRegistry
        self._transform: Any = sys.modules["matplotlib.transforms"].TransformNode
        self._figure: Any = sys.modules["matplotlib.figure"].Figure

    def reducer_override(self, obj: Any, /) -> Any:
        kind = class_of(obj)
        way = self._ways.get(kind)
        if way is None:
            way = self._ways[kind] = self._way_of(kind)
        return NotImplemented if way is _as_it_is or obj is _held else way(obj)

    def _way_of(self, kind: type) -> Callable[[Any], Any]:
        """Return the function that reduces objects of a class; found once for each, since a figure has thousands."""
        if kind is types.MethodType:
            return _as_it_is
        if issubclass(kind, self._registry):
            return lambda _: (self._registry, ())  # to ask one for its state gives it another number
        if issubclass(kind, self._figure):
            return _reduced_figure
        if issubclass(kind, self._transform):
            return _reduced_transform
        code = kind is types.FunctionType or kind is types.BuiltinFunctionType or issubclass(kind, type)
        bases: tuple[type, ...] = () if code else type.__dict__["__mro__"].__get__(kind)
        if bases and (kind.__module__ in _COPIED or any(_of_matplotlib(base) for base in bases)):
            return _as_it_is
        return self._reduced_array if kind is self._numpy.ndarray else self._hold

    def _reduced_array(self, array: Any) -> Any:
        if array.nbytes <= _SMALL_BYTES and not array.dtype.hasobject:
            return NotImplemented  # limits and matrices, which drawing sets in place
        array = array.view()
        array.flags.writeable = False
        return self._hold(array)

    def _hold(self, obj: Any) -> Any:
        self.held.append(obj)
        return _held, (len(self.held) - 1,)


def _as_it_is(obj: Any) -> Any:
    raise NotImplementedError(type(obj).__name__)


def _reduced_figure(figure: Any) -> Any:
    state = figure.__getstate__()
    state.pop("_restore_to_pylab", None)  # or the copy would be a window of pyplot's
    return object.__new__, (class_of(figure),), state


def _reduced_transform(transform: Any) -> Any:
    # Whether it was computed meanwhile is nobody's matter.
    state = {**transform.__getstate__(), "_invalid": getattr(transform, "_INVALID_FULL", 3)}
    return object.__new__, (class_of(transform),), state


class _Loader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, held: list[Any]) -> None:
        super().__init__(file)
        self._held = held

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        if (module_name, global_name) == (_held.__module__, _held.__name__):
            return self._held.__getitem__
        return super().find_class(module_name, global_name)


def _of_matplotlib(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("matplotlib", "mpl_toolkits", "cycler")


def _add(state: xxhash.xxh3_64, one: Any) -> bool:
    """Add the content of an array or number, else the identity. Returns whether it was looked at whole."""
    numpy, _ = modules()
    if not isinstance(one, (numpy.ndarray, numpy.generic)):
        state.update(b"%x" % id(one))
        return True
    found = numpy.ma.getdata(one)
    state.update(f"{found.shape} {found.dtype.str}".encode())
    if isinstance(one, numpy.ma.MaskedArray):
        _add(state, numpy.ma.getmaskarray(one))
    column = hash_column(numpy.atleast_1d(found), STAMP_BYTES)
    state.update(repr(column.chunks).encode())
    return column.exact


def drawn(snapshot: Snapshot, axes: int | None) -> Any:
    """Return a PIL image of a figure, or of one of its axes, on white. Raises NotDrawn."""
    with _quietly():
        try:
            return _drawn(snapshot.copy(), axes)
        except NotDrawn:
            raise
        except Exception as fault:  # of a formatter of the user's, a text that is no mathematics, …
            raise NotDrawn(f"drawing failed, {one_line(f'{type(fault).__name__}: {fault}', 120)}") from None


@contextmanager
def _quietly() -> Generator[None]:
    """Keep warnings back, of a glyph that is missing: they are for whoever draws it himself.

    Not on a worker's thread: filters and levels are of the whole process, so a cell would lose its own warnings, and
    one that sets filters meanwhile would find ours for good.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(max(before, logging.WARNING))
        try:
            yield
        finally:
            logging.disable(before)


def _drawn(figure: Any, axes: int | None) -> Any:
    image: Any = importlib.import_module("PIL.Image")  # matplotlib needs it itself
    agg: Any = importlib.import_module("matplotlib.backends.backend_agg")
    matplotlib: Any = sys.modules["matplotlib"]
    for axis in (getattr(axes, name, None) for axes in figure.axes for name in ("xaxis", "yaxis", "zaxis")):
        if axis is not None and len(axis.get_majorticklocs()) + len(axis.get_minorticklocs()) > _MOST_TICKS:
            raise NotDrawn("so many ticks are not drawn")
    parts = figure.findobj()
    for part in parts:
        if type(part).__name__ == "AxesImage":
            _thin(part)
    weight = sum(map(_weight, parts))
    if weight > _MOST_WEIGHT:
        raise NotDrawn("so many points are not drawn")
    if matplotlib.rcParams["text.usetex"] or any(part.get_usetex() for part in parts if hasattr(part, "get_usetex")):
        raise NotDrawn("its text is for LaTeX, which is not run")
    wide, high = (float(side) for side in figure.get_size_inches())
    dpi = min(float(figure.dpi), max(SIDE / max(wide, high), _LEAST_DPI))
    if not wide * high * dpi * dpi <= _MOST_PIXELS:
        raise NotDrawn("it is too large")
    figure.set_dpi(dpi)
    canvas = agg.FigureCanvasAgg(figure)
    renderer = agg.RendererAgg(max(1, round(wide * dpi)), max(1, round(high * dpi)), dpi)
    canvas.get_renderer = lambda: renderer
    # matplotlib has one for the process, which a cell may be using in the middle of a formula.
    renderer.mathtext_parser._parser = importlib.import_module("matplotlib._mathtext").Parser()
    end = time.monotonic() + _SECONDS

    def bounded(step: Callable[..., Any]) -> Callable[..., Any]:
        def bound(*args: Any, **options: Any) -> Any:
            if time.monotonic() > end:
                raise NotDrawn(f"drawing takes more than {_SECONDS:g} s")
            return step(*args, **options)

        return bound

    for name in ("new_gc", "get_text_width_height_descent"):  # which every artist, and every layout, asks for
        setattr(renderer, name, bounded(getattr(renderer, name)))
    figure.draw(renderer)
    found = image.fromarray(modules()[0].asarray(renderer.buffer_rgba()))
    white = image.new("RGB", found.size, "white")
    white.paste(found, mask=found)
    if axes is None:
        white.thumbnail((SIDE, SIDE))
        return white
    box = figure.axes[axes].get_tightbbox(renderer)
    if box is None:
        raise NotDrawn("these axes are not visible")
    bottom = white.size[1]
    sides = box.x0 - 4, bottom - box.y1 - 4, box.x1 + 4, bottom - box.y0 + 4
    part = white.crop(tuple(max(0, int(side)) for side in sides))
    part.thumbnail((SIDE, SIDE))
    return part


def _thin(image: Any) -> None:
    """Leave out rows and columns of a large image that is shown in a few pixels."""
    values = image.__dict__.get("_A")
    if values is not None and values.size > _IMAGE_VALUES:
        step = math.ceil(math.sqrt(values.size / _IMAGE_VALUES))
        image.set_extent(image.get_extent())  # which would follow from the number of values
        image._A = values[::step, ::step]


def _weight(artist: Any) -> float:
    """Return about how many markers an artist costs as much as."""
    own = artist.__dict__
    if "_xorig" in own:
        count = len(own["_xorig"])
        return count if artist.get_marker() not in ("None", "none", " ", "", None) else count / 20
    values = own.get("_A")
    if "_offsets" in own:  # a collection
        paths: Any = own.get("_paths") or ()
        offsets: Any = own["_offsets"]
        most = max(len(paths), 0 if offsets is None else len(offsets), getattr(values, "size", 0) / 2)
        return most + sum(len(path.vertices) for path in paths) / 20
    return getattr(values, "size", 0) / 50 + 1


_ARTISTS = 200
_TEXTS = 20


class FigureSource(PicturedSource):
    """A view of a Figure, or of one Axes."""

    kind = "figure"
    most_side = SIDE

    def __init__(self, target: Any, label: str) -> None:
        super().__init__(target, label)
        self._snapshot: Snapshot | None = None

    def revision(self) -> str:
        """Return a hash of all that is drawn, as far as it was not computed yet: some milliseconds."""
        self._snapshot = None
        try:
            self._snapshot = _snapshot(_figure_of(self.target))
        except NotDrawn as reason:
            return str(reason)
        return self._snapshot.revision

    def drawing(self) -> Callable[[], Any]:
        """Return the function that draws the figure as `revision` saw it, or what is within these axes."""
        figure = _figure_of(self.target)
        if figure is not self.target and self.target not in figure.axes:
            raise NotDrawn("these axes are within others")
        axes = None if figure is self.target else figure.axes.index(self.target)
        snapshot = self._snapshot or _snapshot(figure)
        return lambda: drawn(snapshot, axes)

    def draws_long(self) -> bool:
        """Return whether it has many axes, artists or points."""
        if self._snapshot is None:  # it is not drawn at all
            return False
        axes = _figure_of(self.target).axes
        weights = [_weight(artist) for one in axes for artist in _children(one)]
        points = sum(weights)
        took = len(axes) * _AXES_MS + len(weights) * _ARTIST_MS + points * _POINT_MS
        return took > _AT_ONCE_MS and points <= _MOST_WEIGHT

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
            found += [f"axes {at}: {_titles(axes)}", *indented(_artists(axes))]
        return found

    def structure(self) -> list[str]:
        """Return each axes with titles, labels and how many artists of each kind."""
        found: list[str] = []
        for at, axes in enumerate(self._axes()):
            found += [f"axes {at}: {_titles(axes)}", f"  {_counts(axes) or 'empty'}"]
            labels = _labels(axes)
            found += [f"  labelled: {labels}"] if labels else []
        return found

    def summary(self) -> list[str]:
        """Return a line an axes."""
        found: list[str] = []
        for at, axes in enumerate(self._axes()):
            labels = _labels(axes)
            found.append(f"- axes {at}: {_titles(axes)}; {_counts(axes) or 'empty'}{f' ({labels})' if labels else ''}")
        return found


def is_figure(target: Any) -> bool:
    """Return whether it is a figure rather than an axes."""
    return "get_size_inches" in dir(class_of(target))


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


def _labels(axes: Any) -> str:
    """Return the labels of what is drawn, as a legend has them."""
    return one_line(", ".join(label for artist in _children(axes) if (label := _label(artist))), 200)


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
    yield from more_lines(len(shown) - _ARTISTS, "artists")
    legend = attributes(axes).get("legend_")
    if legend is not None:
        texts = legend.get_texts()
        yield f"legend: {', '.join(brief(text.get_text()) for text in texts[:_TEXTS])}{_others(len(texts) - _TEXTS)}"


def _others(count: int) -> str:
    return f", … {count:,} more" if count > 0 else ""


def _kind(artist: Any) -> str:
    name = short_type(artist)
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
        return f"{plural(plain.size, 'values')}: {brief(first_items(plain, 6), 120)}"
    return array_line(plain)
