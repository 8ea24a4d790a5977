"""A cell that only reads an object of a library is not told as one that changed it, whatever the library computed."""

from __future__ import annotations

import textwrap
import warnings

import pytest
from tracker_rows import Notebook

PANDAS = "import pandas as pd"
XARRAY = "import numpy as np, xarray as xr"
FIGURE = "import matplotlib\nmatplotlib.use('Agg')\nfrom matplotlib.figure import Figure"
READ_ALL = """
for name in dir(o):
    if not name.startswith("_"):
        try:
            getattr(o, name)
        except Exception:
            pass
"""
READS = ("text = repr(o), str(o)", "same = (o == o) is None", READ_ALL)
COLUMNS = "pd.DataFrame({'t': pd.date_range('2020', periods=5), 'c': pd.Categorical(list('ababa'))})"
OBJECTS = {
    "dates": (PANDAS, "pd.date_range('2020', periods=5)"),
    "dates with a time zone": (PANDAS, "pd.date_range('2020', periods=5, tz='Europe/Berlin')"),
    "columns of dates and kinds": (PANDAS, COLUMNS),
    "a series of dates": (PANDAS, "pd.Series(pd.date_range('2020', periods=5))"),
    "time spans": (PANDAS, "pd.timedelta_range('1D', periods=3)"),
    "a time span": (PANDAS, "pd.Timedelta('1D')"),
    "periods": (PANDAS, "pd.period_range('2020', periods=3, freq='M')"),
    "texts": (PANDAS, "pd.Index(list('xyz'))"),
    "a masked array": ("import numpy as np", "np.ma.array([1, 2], mask=[0, 1])"),
    "a graph": ("import networkx as nx", "nx.path_graph(4)"),
    "a graph with directions": ("import networkx as nx", "nx.DiGraph([(1, 2)])"),
    "an array with names": (XARRAY, "xr.DataArray(np.arange(4.0), dims='x', coords={'x': [1, 2, 3, 4]})"),
    "a data set": (XARRAY, "xr.Dataset({'a': ('x', [1, 2])})"),
    "a frame in parts": (
        "import pandas as pd, dask.dataframe as dd",
        "dd.from_pandas(pd.DataFrame({'a': [1, 2]}), npartitions=1)",
    ),
    "a scale of colours": ("import matplotlib.colors as colors", "colors.Normalize(0, 1)"),
}  # fmt: skip


@pytest.mark.parametrize("read", READS, ids=["its text", "a comparison", "all its attributes"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_reading_an_object_changes_no_variable(kind: str, read: str):
    imports, expression = OBJECTS[kind]
    notebook = Notebook(imports, f"o = {expression}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = notebook.run(f"try:\n{textwrap.indent(read, '    ')}\nexcept Exception: pass")

    assert "o" not in found.changed


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("dates", "o.name = 'day'"),
        ("a series of dates", "o.iloc[0] = pd.Timestamp('2021')"),
        ("a masked array", "o.fill_value = 7"),
        ("a graph", "o.add_edge(8, 9)"),
        ("an array with names", "o.attrs['unit'] = 'm'"),
        ("a data set", "o['a'].attrs['unit'] = 'm'"),
        ("a scale of colours", "o.vmax = 5"),
    ],
)
def test_a_change_of_such_an_object_is_told(kind: str, change: str):
    imports, expression = OBJECTS[kind]
    notebook = Notebook(imports, f"o = {expression}")
    notebook.run("text = repr(o)")

    assert "o" in notebook.run(change).changed


@pytest.mark.parametrize("kind", ["u1", "i2", "f2", "f8", "?", "S3", "U4", "M8[ns]", "c16"])
def test_the_fill_value_of_a_masked_array_of_any_type_is_no_change(kind: str, recwarn: pytest.WarningsRecorder):
    notebook = Notebook("import numpy as np", f"o = np.ma.masked_array(np.zeros(3, {kind!r}), mask=[0, 1, 0])")
    before = len(recwarn)

    found = notebook.run("value = o.fill_value")

    assert "o" not in found.changed
    assert [str(one.message) for one in recwarn][before:] == []
    assert "o" in notebook.run("o[0] = np.ones(1, o.dtype)[0]").changed


def test_a_cache_of_a_class_of_the_user_s_is_content_also_where_the_class_leaves_it_out():
    notebook = Notebook(
        """
        class Own:
            def __init__(self):
                self.cache, self.count = {}, 0
            def __reduce__(self):
                return Own, ()
        o = Own()
        """
    )

    assert "o" in notebook.run("o.cache['a'] = 1").changed
    assert "o" in notebook.run("o.count = 5").changed


def test_a_figure_that_is_drawn_again_is_not_told_as_changed_and_one_with_a_title_is():
    notebook = Notebook(FIGURE, "import io\nfig = Figure()\nax = fig.add_subplot()\nline, = ax.plot([1, 2, 3])")
    notebook.run("fig.savefig(io.BytesIO())")

    assert not notebook.run("fig.savefig(io.BytesIO())").changed.keys() & {"fig", "ax", "line"}
    assert "ax" in notebook.run("title = ax.set_title('x')").changed
    assert "fig" in notebook.run("fig.subplots_adjust(left=0.3)").changed
