"""Objects of libraries, where these are loaded: polars, xarray, scikit-learn, matplotlib, Dask, Ray, torch."""
# ruff: noqa: DTZ001 -- what polars makes of times without a zone

from __future__ import annotations

import base64
import datetime
import io
import logging
import re
import subprocess
import sys
import threading
import warnings
from decimal import Decimal
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
from optional_libraries import optional

from ctxkernel.core.ports import All
from ctxkernel.sources import open_source
from ctxkernel.testing import HeldJobs, Turns
from ctxkernel.testing.renderings import opened, render


def levels(target: Any, tokens: Any = All) -> list[str]:
    """Return the renderings at levels 0, 1 and 2, and assert that level 3 then says that nothing changed."""
    source = open_source(target, namespace_name="it")
    before = render(source, 0, tokens=tokens)
    texts = [before.text, *(render(source, lod, tokens=tokens).text for lod in (1, 2))]
    assert "no change" in render(source, 3, basis=before.basis).text
    assert source.stamp() == source.stamp()
    for budget in (1, 8, 30):  # which render() holds them to
        for lod in range(4):
            render(source, lod, "1", budget, before.basis if lod == 3 else None)
    assert not any("could not be rendered" in text or re.search(r"0x[0-9a-f]{6}", text) for text in texts)
    return texts


def test_looking_imports_no_library():
    """A kernel's start, and a view of a list, would else cost seconds."""
    libraries = {"polars", "torch", "xarray", "sklearn", "matplotlib", "dask", "ray", "fsspec", "pypdf", "numpy"}
    code = (
        f"import sys; from ctxkernel.sources import open_source; open_source([1]).stamp(); "
        f"print(sorted({libraries} & set(sys.modules)))"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


# --- polars


@pytest.fixture
def pl() -> Any:
    return import_module("polars")


def mixed(pl: Any) -> Any:
    """Return a frame with a column of each kind that is shown in its own way."""
    return pl.DataFrame(
        {
            "n": [1, None, 3],
            "x": [0.1, float("nan"), 1e-7],
            "f": pl.Series([0.1, 2.0, 3.0], dtype=pl.Float32),
            "s": ["a", None, "a"],
            "when": [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2, 3, 4, 5, 678901), None],
            "took": [datetime.timedelta(seconds=90)] * 3,
            "price": pl.Series([Decimal("1.20"), None, Decimal("3.00")]),
            "ok": [True, False, None],
            "l": [[1, 2], [], None],
            "c": pl.Series(["u", "v", "u"], dtype=pl.Categorical),
        }
    )


def test_a_polars_frame_is_its_rows_columns_and_statistics(pl: Any):
    rows, columns, statistics = levels(mixed(pl))

    assert rows.split("\n")[0].startswith("it · DataFrame (polars) · 3 rows × 10 columns · ")
    assert rows.split("\n")[2].split() == [
        "0",
        "1",
        "0.1",
        "0.1",
        "a",
        "2024-01-01",
        "1m",
        "30s",
        "1.20",
        "True",
        "[1,",
        "2]",
        "u",
    ]
    assert "2024-01-02 03:04:05.678901" in rows
    assert "n: Int64, 1 null, 1 … 3" in columns
    assert "x: Float64, 1 NaN, 1e-07 … 0.1" in columns
    assert "f: Float32, 0.1 … 3.0" in columns
    assert "price: Decimal(precision=38, scale=2), 1 null, 1.20 … 3.00" in columns
    assert "s: String, 1 null, 1 distinct, most often 'a' ×2" in statistics
    assert "n: Int64, 1 null, 1, 1.5, 2, 2.5, 3, 2, 1.414213562" in statistics
    assert "ok: Boolean, 1 null, 1 True, 1 False" in statistics


def test_a_change_in_a_polars_frame_is_told_by_column_row_and_value(pl: Any):
    frame = pl.DataFrame({"n": range(100), "x": [i / 7 for i in range(100)]})
    source = open_source(frame, namespace_name="df")
    before = render(source, pos="5")
    stamp = source.stamp()
    frame[7, "x"] = 99.0
    frame.insert_column(2, pl.Series("ok", [True] * 100))

    text = render(source, 3, basis=before.basis).text

    assert source.stamp() != stamp
    assert "shape 100 × 2 → 100 × 3" in text
    assert "columns added: ok" in text
    assert "x: changed within rows 0-15" in text
    assert "row 7 (7), x: 1.0 → 99.0" in text


def test_a_polars_series_and_odd_frames_are_shown(pl: Any):
    assert "3 rows · 2" in levels(pl.Series("n", [1, 2, 3]))[0]
    assert "no cells" in levels(pl.DataFrame())[0]
    assert "n: Null" in levels(pl.DataFrame({"n": []}))[1]
    objects = levels(pl.DataFrame({"o": pl.Series([object(), 1], dtype=pl.Object)}))[0]
    assert "<object object>" in objects


def test_every_row_and_column_of_a_polars_frame_is_reached(pl: Any):
    frame, pos, seen = pl.DataFrame({f"c{i}": range(40) for i in range(3)}), "0", []
    while pos is not None:
        rendered = render(frame, pos=pos, tokens=150)
        seen += re.findall(r"^(\d+) +\d.*[^…]$", rendered.text, re.MULTILINE)
        pos = rendered.next_pos
    wide = pl.DataFrame({f"c{i}": [i] for i in range(1000)})

    assert seen == [str(i) for i in range(40)]
    assert "c500" in render(wide, pos="0:500", tokens=150).text.split("\n")[1]
    assert re.search(r"\nc999: Int64\nInt64 × \d+: c\d+–c998\n\[… details of ", render(wide, 1, tokens=400).text)
    assert "\nc999: Int64\n" in render(wide, 1, tokens=All).text


def test_a_large_polars_frame_is_sampled_and_says_so(pl: Any):
    big = pl.DataFrame({f"c{i}": pl.int_range(1_200_000, eager=True) for i in range(5)})

    rendered = render(big, 1)

    assert " · sampled: 100 stretches of 1,000 rows" in rendered.text
    assert "c0: Int64, ~0 … 1199999" in rendered.text


def test_frames_within_other_objects_are_told_by_their_shape(pl: Any):
    text = levels({"df": pl.DataFrame({"n": [1]}), "s": pl.Series([1.5])})[0]

    assert "'df': DataFrame 1×1: n Int64\n's': Series 1 Float64" in text


def test_a_lazy_frame_is_its_plan_and_is_never_run(pl: Any, tmp_path):
    ran: list[Any] = []
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    lazy = pl.scan_csv(tmp_path / "a.csv").filter(pl.col("a") > 0).map_batches(lambda frame: ran.append(1) or frame)

    plan, columns, summary = levels(lazy)

    assert 'FILTER col("a") > 0' in plan
    assert columns.endswith("\na: Int64\nb: Int64")
    assert "- 2 columns" in summary
    assert "- reads Csv SCAN [" in summary
    assert ran == []


def test_the_plan_over_a_file_that_is_gone_is_a_line(pl: Any, tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    lazy = pl.scan_csv(tmp_path / "a.csv")
    (tmp_path / "a.csv").unlink()

    assert "[not known: FileNotFoundError: " in levels(lazy)[1]


# --- xarray


@pytest.fixture
def xr() -> Any:
    return import_module("xarray")


def dataset(xr: Any) -> Any:
    return xr.Dataset(
        {"t": (("x", "y"), np.arange(24.0).reshape(8, 3), {"units": "K"}), "name": ("x", list("abcdefgh"))},
        coords={"x": range(8), "when": ("x", pd.date_range("2024", periods=8))},
        attrs={"title": "Temperatures"},
    )


def test_a_dataset_is_its_dimensions_coordinates_variables_and_attributes(xr: Any):
    values, structure, summary = levels(dataset(xr))

    assert values.startswith("it · Dataset · x 8 × y 3 · ")
    assert "\n  [1]  3.0  4.0  5.0\n" in values
    assert "variables:\n  t (x, y): 8 × 3 float64 [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, …], 0.0 … 23.0, content " in structure
    assert "\n  t.units = 'K'\n" in structure
    assert structure.endswith("attributes:\n  title = 'Temperatures'")
    assert "- t: min 0.0, 25% 5.75" in summary
    assert render(dataset(xr), pos="/^when/").text.split("\n")[1].startswith("when (x): ")


def test_a_changed_value_of_a_dataset_is_in_the_diff(xr: Any):
    data = dataset(xr)
    source = open_source(data)
    before, stamp = render(source), source.stamp()
    data["t"][3, 1] = 99

    text = render(source, 3, basis=before.basis).text

    assert "-  [3]  9.0 10.0 11.0\n+  [3]  9.0 99.0 11.0" in text
    assert source.stamp() != stamp


def test_labels_in_several_levels_are_told(xr: Any):
    stacked = xr.Dataset({"t": (("a", "b"), np.zeros((2, 2)))}, {"a": [1, 2], "b": ["u", "v"]}).stack(z=("a", "b"))

    _, structure, _ = levels(stacked)

    assert "z (z): 4 object [(1, 'u'), (1, 'v'), (2, 'u'), (2, 'v')]" in structure
    assert "a (z): 4 int64 [1, 1, 2, 2]" in structure
    assert "b (z): 4 <U1 ['u', 'v', 'u', 'v']" in structure


def test_a_tree_of_datasets_is_each_of_them_by_its_path(xr: Any):
    tree = xr.DataTree.from_dict({"/": xr.Dataset({"t": ("x", [1, 2])}), "/a/b": xr.Dataset({"u": ("x", [3, 9])})})

    value, structure, summary = levels(tree)

    assert value.startswith("it · DataTree · 3 nodes · ")
    assert "/a/b · Dataset · x 2 · 16 B\n  variables:\n    u (x): 2 int64 [3, 9]" in structure
    assert "  - u: min 3, " in summary


def test_an_array_with_labels_is_its_rows(xr: Any):
    assert "\n  [7] 21.0 22.0 23.0\n" in levels(dataset(xr)["t"])[0]


def test_what_is_not_loaded_stays_so(xr: Any):
    lazy = dataset(xr).chunk({"x": 4})

    structure = levels(lazy)[1]

    assert "t (x, y): 8 × 3 float64, not loaded (dask, 2 chunks)" in structure
    assert not lazy["t"].variable._in_memory


# --- scikit-learn


def test_an_estimator_is_what_was_set_and_learnt():
    linear = import_module("sklearn.linear_model")
    scaling, pipeline = import_module("sklearn.preprocessing"), import_module("sklearn.pipeline")
    model = pipeline.make_pipeline(scaling.StandardScaler(), linear.Ridge(alpha=0.5))

    parts = "standardscaler: StandardScaler\nridge: Ridge\n  alpha = 0.5 (default 1.0)"
    assert levels(model)[0] == f"it · Pipeline · not fitted · 3 lines\n{parts}"
    model.fit(np.arange(20.0).reshape(10, 2), np.arange(10.0))
    source = open_source(model, namespace_name="it")
    before = render(source)
    value, structure, summary = levels(model)

    assert "\n  coef_: 2 float64 [" in value
    assert "\n  fit_intercept = True (default)\n" in structure
    assert "\n  coef_: 2 float64\n" in structure
    assert "- part ridge: Ridge (alpha = 0.5)" in summary
    model.steps[1][1].coef_[1] = 7.0
    assert ", 7.0]" in render(source, 3, basis=before.basis).text


def test_a_forest_is_its_trees_counted():
    ensemble = import_module("sklearn.ensemble")
    forest = ensemble.RandomForestClassifier(n_estimators=3, random_state=0).fit([[0.0], [1.0]] * 5, [0, 1] * 5)

    value, _, summary = levels(forest)

    assert "estimators_: 3 × DecisionTreeClassifier" in value
    assert "- 2 parameters set: n_estimators = 3, random_state = 0" in summary


def test_an_estimator_of_the_users_is_read_without_running_it():
    base = import_module("sklearn.base")

    class Own(base.BaseEstimator):
        def __init__(self, depth: int = 3) -> None:
            self.depth = depth

        def get_params(self, deep: bool = True) -> Any:
            raise AssertionError("was called")

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"was asked for {name}")

        def __repr__(self) -> str:
            raise AssertionError("was called")

    assert levels(Own(5))[0].endswith("\ndepth = 5 (default 3)")


# --- matplotlib


def test_a_figure_is_its_axes_artists_and_ranges():
    figures = import_module("matplotlib.figure")
    figure = figures.Figure()
    left, right = figure.subplots(1, 2)
    left.set(title="Residuals", xlabel="year", yscale="log")
    left.plot([1, 2, 3], [4.0, 5.0, 6.5], label="fit")
    left.scatter([1, 2], [3, 4])
    left.bar([1, 2], [3, 4], label="counts")
    left.legend()
    right.imshow(np.zeros((4, 5)))
    source = open_source(figure, namespace_name="it")
    before = render(source)

    value, structure, summary = levels(figure)

    assert "line 'fit': x 3 int64 [1, 2, 3]; y 3 float64 [4.0, 5.0, 6.5]" in value
    assert "scatter: x 2 float64 [1.0, 2.0]; y 2 float64 [3.0, 4.0]" in value
    assert "2 bars 'counts': heights 2 int64 [3, 4]" in value
    assert "image: 4 × 5 float64" in value
    assert "axes 0: 'Residuals' · x 'year' · y log\n  2 bars, 1 line, 1 scatter, a legend\n" in structure
    assert summary.endswith("- axes 1: untitled; 1 image")
    left.lines[0].set_ydata([4, 5, 9])
    assert "+  line 'fit': x 3 int64 [1, 2, 3]; y 3 int64 [4, 5, 9]" in render(source, 3, basis=before.basis).text
    assert "it · Axes" in levels(left)[0]


def test_looking_at_a_figure_changes_nothing_in_it():
    """Axis limits are computed when they are first asked for: a look that did would show as a change of the figure."""
    figures = import_module("matplotlib.figure")
    axes = figures.Figure().subplots()
    axes.plot([1, 100], [1, 100])

    levels(axes.figure)

    assert any(axes._stale_viewlims.values())


def seen(rendered: Any) -> Any:
    """Return the picture of a rendering as a PIL image."""
    image = import_module("PIL.Image")
    return image.open(io.BytesIO(base64.b64decode(rendered.picture.data)))


def plotted(colour: str = "red", **options: Any) -> Any:
    figure = import_module("matplotlib.figure").Figure(**options)
    axes = figure.subplots()
    axes.plot([1, 2, 3], [4.0, 5.0, 6.5], color=colour, linewidth=figure.get_figwidth())
    axes.set_title("Residuals")
    return figure


@pytest.mark.parametrize(
    ("size", "tokens", "side"), [((6.4, 4.8), 2000, 640), ((6.4, 4.8), 195, 240), ((200, 200), 2000, 768)]
)
def test_a_figure_is_seen_within_the_budget_whatever_its_size(size: Any, tokens: int, side: int):
    rendered = render(open_source(plotted(figsize=size), namespace_name="it"), tokens=tokens)
    picture = seen(rendered)

    assert side * 0.8 <= max(picture.size) <= side
    colours = picture.convert("RGB").getcolors(1 << 20)
    assert min(abs(red - 255) + green + blue for _, (red, green, blue) in colours) < 60
    assert rendered.text.endswith(
        f"[shown as {picture.size[0]} × {picture.size[1]}, ~{rendered.picture.tokens} tokens]"
    )


def test_two_equal_figures_have_the_same_picture_and_no_date():
    one, two = (render(plotted()) for _ in range(2))

    assert one.picture is not None and one.picture == two.picture
    assert not seen(one).info


def test_axes_are_seen_alone():
    figure = plotted()
    figure.set_size_inches(12, 4)
    figure.clear()
    left, _ = figure.subplots(1, 2)

    assert seen(render(left)).size[0] < 0.5 * seen(render(figure)).size[0]


CHANGES = {
    "a colour": lambda axes: axes.lines[0].set_color("blue"),
    "limits": lambda axes: axes.set_xlim(0, 9),
    "a style": lambda axes: axes.spines["top"].set_visible(False),
    "data": lambda axes: axes.lines[0].set_ydata([9, 9, 9]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("shown", [False, True], ids=["never drawn", "drawn"])
def test_a_figure_is_drawn_again_where_it_changed_and_only_there(monkeypatch, change: Any, shown: bool):
    figure = plotted()
    if shown:
        figure.savefig(io.BytesIO())
    source = open_source(figure, namespace_name="it")
    calls: list[Any] = []
    drawing = type(source).drawing
    monkeypatch.setattr(type(source), "drawing", lambda self: calls.append(self) or drawing(self))
    before = render(source)
    again = render(source, tokens=300)
    assert len(calls) == 1 and again.picture is not None
    change(figure.axes[0])

    after = render(source)

    assert before.picture != after.picture
    assert len(calls) == 2
    assert "picture: 640 × 480, content " in render(source, 3, basis=before.basis).text


def test_a_figure_is_drawn_on_a_worker_without_a_trace_in_what_a_cell_uses_meanwhile(monkeypatch):
    """Warnings, log levels and the reader of formulas are of the whole process: a cell runs at the same time."""
    figure = plotted()
    axes, met = figure.axes[0], list[Any]()
    mathtext = import_module("matplotlib.mathtext")
    monkeypatch.setattr(mathtext.MathTextParser, "_parser", "the cell's own, in the middle of a formula")

    def told(value: float, _: int) -> str:
        met.append((list(warnings.filters), logging.root.manager.disable))
        return rf"$\alpha_{{{value:g}}}$"

    axes.xaxis.set_major_formatter(told)
    rendered = list[Any]()
    worker = threading.Thread(target=lambda: rendered.append(render(figure)))
    before = list(warnings.filters), logging.root.manager.disable
    worker.start()
    worker.join()

    assert seen(rendered[0])
    assert met and all(one == before for one in met)


def test_a_figure_is_the_same_after_it_was_drawn_for_a_model():
    pyplot = import_module("matplotlib.pyplot")
    drawing = import_module("ctxkernel.sources.libraries.figures")
    options = (plotted, lambda: plotted(layout="constrained"), lambda: pyplot.figure(dpi=50))
    for make in options:
        figure = make()
        canvas, before = figure.canvas, drawing.Snapshot(figure).revision
        windows = pyplot.get_fignums()
        rendered = render(figure)

        assert rendered.picture is not None
        assert drawing.Snapshot(figure).revision == before
        assert figure.canvas is canvas and figure.stale
        assert pyplot.get_fignums() == windows
        pyplot.close("all")


def failing(axes: Any) -> None:
    axes.xaxis.set_major_formatter(lambda value, at: 1 / 0)


def every_tick(axes: Any) -> None:
    axes.xaxis.set_major_locator(sys.modules["matplotlib.ticker"].MultipleLocator(1e-3))


NOT_SEEN = {
    "drawing fails": (failing, "drawing failed, ZeroDivisionError: division by zero"),
    "too many points": (lambda axes: axes.scatter(range(300_000), range(300_000)), "so many points are not drawn"),
    "too many artists": (lambda axes: [axes.text(0, 0, "a") for _ in range(2001)], "2,002 artists are not drawn"),
    "too many ticks": (every_tick, "so many ticks are not drawn"),
    "too many axes": (lambda axes: axes.figure.subplots(8, 8), "65 axes are not drawn"),
    "LaTeX": (lambda axes: axes.set_title("a", usetex=True), "its text is for LaTeX, which is not run"),
    "too large": (lambda axes: axes.figure.set_size_inches(1e5, 1e5), "it is too large"),
}


@pytest.mark.parametrize(("spoil", "why"), NOT_SEEN.values(), ids=NOT_SEEN)
def test_a_figure_that_is_not_drawn_says_why_in_a_line(spoil: Any, why: str):
    figure = plotted()
    spoil(figure.axes[0])

    rendered = render(figure)

    assert rendered.picture is None
    assert rendered.text.endswith(f"[picture: none, {why}]")
    assert f"no picture: {why}" in rendered.notes


# --- images in memory


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "LA", "YCbCr"])
def test_an_image_in_memory_is_its_facts_and_a_picture(mode: str):
    image = import_module("PIL.Image")
    picture = image.new(mode, (1600, 1200))
    rendered = render(open_source(picture, namespace_name="it"))

    assert rendered.text.startswith(f"it · Image · 1,600 × 1,200 · {mode} · ")
    assert seen(rendered).size == (512, 384)
    levels(picture)
    picture.paste(picture.getpixel((0, 0)), (0, 0, 1, 1))
    assert render(picture).picture == rendered.picture


def test_an_image_that_is_drawn_on_is_seen_anew():
    image = import_module("PIL.Image")
    picture = image.new("RGB", (4000, 3000), "red")
    source = open_source(picture, namespace_name="it")
    before = render(source)
    picture.paste("blue", (0, 0, 2000, 3000))

    assert render(source).picture != before.picture
    assert "picture: 512 × 384, content " in render(source, 3, basis=before.basis).text


def test_an_image_that_is_not_loaded_yet_stays_so(tmp_path):
    image = import_module("PIL.Image")
    image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    with image.open(tmp_path / "a.png") as picture:
        rendered = render(open_source(picture, namespace_name="it"))

        assert picture.tile
        assert rendered.text.endswith("[picture: none, it.load() reads it first]")


# --- Dask and Ray


def test_a_dask_frame_is_its_expressions_and_nothing_is_computed():
    frames = import_module("dask.dataframe")
    ran: list[int] = []

    def double(part: pd.DataFrame) -> pd.DataFrame:
        ran.append(len(part))
        return part * 2

    whole = frames.from_pandas(pd.DataFrame({"a": range(100), "b": 1.5}), npartitions=4).map_partitions(double)
    indexed = whole[whole.a > 3].set_index("a")
    ran.clear()

    value, columns, summary = levels(whole)
    lazy = levels(indexed)

    assert value.startswith("it · DataFrame (dask) · 4 partitions · not computed")
    assert "MapPartitions(func=<function " in value
    assert "test_a_dask_frame_is" in value
    assert columns.endswith("\na: int64\nb: float64")
    assert "- from FromPandas(frame=DataFrame 100×2: a int64; b float64, npartitions=4)" in summary
    assert "partitions not known yet" in lazy[0], "to know them, the whole graph would have to run"
    assert "SetIndex(" in lazy[0]
    assert ran == []


def test_dask_arrays_bags_and_delayed_values_are_their_graphs():
    arrays, bags = import_module("dask.array"), import_module("dask.bag")
    dask = import_module("dask")
    ran: list[int] = []
    array = arrays.ones((1000, 1000), chunks=(100, 300)) + 1
    bag = bags.from_sequence(range(10), npartitions=3).map(ran.append)
    delayed = dask.delayed(ran.append)(1)

    shown = levels(array)

    assert shown[0].startswith("it · Array (dask) · 1,000 × 1,000 · float64 · 8.0 MB · not computed")
    assert "\nadd · Blockwise · of ones_like" in shown[0]
    assert "chunks of axis 0: 10 of 100\nchunks of axis 1: 300, 300, 300, 100" in shown[1]
    assert "? · float64 · size not known" in levels(array[array > 1])[0]
    assert levels(bag)[1].endswith("\n3 partitions")
    assert levels(delayed)[1].endswith("\nmakes append")
    assert ran == []


def test_a_ray_reference_is_not_fetched():
    ray = optional("ray")

    value, structure, _ = levels(ray.ObjectRef.from_random())

    assert value.startswith("it · ObjectRef (ray) · not fetched · 2 lines\nid ")
    assert structure.endswith("\na reference: ray.get(…) fetches what it stands for")


def test_a_remote_function_of_ray_is_its_source():
    ray = optional("ray")
    function = ray.remote(test_a_ray_reference_is_not_fetched)

    value, structure, _ = levels(function)

    assert 'ray = optional("ray")' in value
    assert "def test_a_ray_reference_is_not_fetched()" in structure


# --- torch


@pytest.fixture
def torch() -> Any:
    return optional("torch")


def test_a_tensor_is_the_array_that_it_is(torch: Any):
    tensor = torch.arange(6.0).reshape(2, 3).requires_grad_()
    source = open_source(tensor, namespace_name="w")
    before, stamp = render(source), source.stamp()

    assert before.text.split("\n")[0] == "w · Tensor · 2 × 3 · float32 · 24 B · cpu · requires_grad · rows 0-1 of 2"
    assert "max 5.0" in levels(tensor)[2]
    with torch.no_grad():
        tensor[1, 1] = 9
    assert source.stamp() != stamp
    assert "row 1 ([1]), 1: 4.0 → 9.0" in render(source, 3, basis=before.basis).text


def test_tensors_within_other_objects_are_told_by_their_shape(torch: Any):
    state = list(torch.nn.Linear(3, 2).state_dict().values())

    assert "0: torch.float32[2, 3] cpu\n1: torch.float32[2] cpu" in levels(state)[0]


FAR = [
    ("bfloat16", lambda torch: torch.arange(2, dtype=torch.bfloat16), "first elements: [0.0, 1.0]"),
    ("without data", lambda torch: torch.empty(3, 4, device="meta"), "elements are not shown"),
    ("sparse", lambda torch: torch.eye(3).to_sparse(), "elements are not shown"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "said"), FAR, ids=[row[0] for row in FAR])
def test_a_tensor_that_is_no_array_is_told_by_its_facts(torch: Any, name: str, make: Any, said: str):
    value, structure, summary = levels(make(torch))

    assert said in value
    assert "layout: " in structure
    assert "- no statistics" in summary


def test_a_change_of_a_tensor_that_is_no_array_is_seen_without_looking_at_an_element(torch: Any, monkeypatch):
    tensor = torch.zeros(3, dtype=torch.bfloat16)
    source = open_source(tensor)
    stamp = source.stamp()
    monkeypatch.setattr(torch.Tensor, "tolist", None)

    tensor.add_(1)

    assert source.stamp() != stamp


def test_a_subclass_of_tensor_runs_no_code_of_its_own(torch: Any):
    ran: list[Any] = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ran.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    own = torch.ones(3).as_subclass(Own)
    ran.clear()
    levels(own)

    assert ran == []


def test_a_network_is_its_parameters_and_modules_and_is_not_run(torch: Any):
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.BatchNorm1d(3))
            self.again = self.inner[0]

        def forward(self, x: Any) -> Any:
            raise AssertionError("was run")

        __repr__ = extra_repr = named_parameters = forward

    network = Own()
    source = open_source(network, namespace_name="it")
    before = render(source)

    value, structure, summary = levels(network)

    assert value.startswith("it · Own · 15 parameters · 60 B · ")
    assert re.search(r"^inner\.0\.bias: 3 float32 \[", value, re.MULTILINE)
    assert "inner.2.running_mean: 3 float32 [0.0, 0.0, 0.0]" in value
    assert "    0: Linear · weight 3 × 2, bias 3\n    1: ReLU\n" in structure
    assert (
        "- 1 Sequential, 1 Linear, 1 ReLU, 1 BatchNorm1d\n- 15 parameters with a gradient; in training mode" in summary
    )
    with torch.no_grad():
        network.again.bias[1] = 7
    assert re.search(r"^\+inner\.0\.bias: .*, 7\.0, ", render(source, 3, basis=before.basis).text, re.MULTILINE)


def many_axes() -> Any:
    figure, axes = import_module("matplotlib.pyplot").subplots(4, 4)
    for one in axes.flat:
        one.plot(range(50))
    return figure


def long_line() -> Any:
    figure, axes = import_module("matplotlib.pyplot").subplots()
    axes.plot(range(1_000_000))
    return figure


def test_axes_within_others_are_never_said_to_be_drawn_soon():
    """Nor where their figure takes long to draw."""
    figure = many_axes()
    inner = figure.axes[0].inset_axes((0, 0, 1, 1))

    assert "[picture: none, these axes are within others]" in render(opened(inner, "it")).text


@pytest.mark.parametrize("make", [many_axes, long_line])
def test_a_figure_that_takes_long_is_drawn_in_the_background_and_says_so_until_then(make: Any):
    figure = make()
    source = opened(figure, "it")
    first = render(source)
    assert first.picture is None
    assert first.text.endswith("[picture: none yet, it is being drawn]")
    wanted = source.preparation()
    assert wanted is not None
    result = wanted.work(lambda: False, lambda _: None)

    assert source.accept(result)

    assert render(source).picture is not None
    assert source.preparation() is None
    figure.axes[0].set_title("another one")
    assert render(source).picture is None, "the picture is of an earlier state"
    assert not source.accept(result)


def test_a_running_view_of_a_large_figure_shows_its_picture_at_a_later_tick():
    turns = Turns()
    turns.loop.graph.open_source = opened
    turns.namespace["figure"] = many_axes()
    held = turns.loop.preparer = HeldJobs(turns.loop.ready)
    turns.run("h = view(figure, lod=0, tokens=2000).run()")
    h = turns.namespace["h"]
    first = h.rendered

    held.finish()
    turns.run()

    assert first.picture is None
    assert h.rendered.picture is not None
    assert not held.jobs
