"""What can be read from a cell before it runs, and how a variable is shown."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tracker_rows import Notebook, names

from ctxkernel.core.descriptions import describe
from ctxkernel.state.base.own_modules import is_own
from ctxkernel.state.tracking.cell_names import binds_literals, read_cell
from ctxkernel.state.tracking.read_names import names_bound, names_read_first
from ctxkernel.state.tracking.tracker import NamespaceTracker

# -- reading a cell ----------------------------------------------------------------------------


def _ipython() -> Callable[[str], str]:
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell


@pytest.mark.parametrize("transform", [None, _ipython()], ids=["by itself", "by IPython"])
@pytest.mark.parametrize(
    ("source", "mentioned", "anything"),
    [
        ("x = 1\ny.append(z)", "x y z", False),
        ("def f(local): return outer\nf(1)", "f outer", False),
        ("def f(): exec('x')\nclass_ = 1", "f class_", False),
        ("%%time\nx.append(1)", "x", False),
        ("%%timeit -n 1 y = 1\nx.append(y)", "x", False),
        ("%time x.append(1)", "x", False),
        ("if a:\n    %timeit -n 10 x.sort()", "a x", False),
        ("files = !ls {folder}\nx = files", "files folder x", False),
        ("!rm $name", "name", False),
        ("x?", "x", False),
        ("%matplotlib inline\nx = 1", "x", False),
        ("%%bash\necho $x", "x", False),
        ("%%html\n<b>(", "", False),
        ("%run other.py", "", True),
        ("%unknown x", "x", True),
        ("%%unknown\nx", "", True),
        ("exec('x = 1')", "", True),
        ("globals()['x']", "", True),
        ("get_ipython().user_ns['x']", "", True),
        ("import sys; sys._getframe()", "sys", True),
        ("import sys; sys.modules[name].x.append(1)", "sys name", True),
        ("for part in model.modules(): pass", "model", False),
        ("def f(): return outer\nc.at = f", "f c outer", False),
        ("c.__add__ = lambda self, other: outer\nc + 1", "c outer", False),
        ("df.eval('a + b')", "df", False),
        ("await x\nasync with y: z = 1", "x y z", False),
        ("    x = y", "x y", False),
        ("", "", False),
    ],
)
def test_a_cell_tells_which_names_it_can_touch(source: str, mentioned: str, anything: bool, transform: Any):
    """Magics, shell lines and cells that do not parse are read as well as can be."""
    cell = read_cell(source, transform)

    assert names(mentioned) <= cell.names
    assert bool(cell.anything) == anything


def test_a_cell_that_ipython_cannot_compile_will_not_run():
    """So it can touch nothing; without IPython nobody knows, and it may touch anything."""
    rewritten = read_cell("x = (", lambda source: source)
    unknown = read_cell("x = (")

    assert (rewritten.anything, bool(unknown.anything)) == ("", True)
    assert "x" in rewritten.names & unknown.names


def test_reading_a_cell_shows_and_hides_no_warning(recwarn: pytest.WarningsRecorder):
    """The text is compiled twice; a warning about it is for IPython to give, once."""
    filters = list(warnings.filters)

    read_cell("x = '\\d'\nx is 'a'\nassert (x, 'y')")

    assert not recwarn.list
    assert warnings.filters == filters


@pytest.mark.parametrize(
    "cell",
    [
        "%time a.append(2)",
        "%%time\na.append(2)",
        "%timeit -n1 -r1 a.append(2)",
        "eval('a.append(2)')",
        "!true\na.append(2)",
    ],
)
def test_magics_are_seen_through_in_a_real_shell(cell: str):
    """What a magic runs is found, whether IPython rewrites the cell or not."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))
    tracker = NamespaceTracker(shell.user_ns, hidden=lambda: shell.user_ns_hidden, transform=shell.transform_cell)
    diffs = []
    for source in ("a = [1]; b = [1]; c = a", cell, "a", "_", "_.append(5); b", "%reset -f"):
        tracker.before(source)
        shell.run_cell(source, store_history=True)
        diffs.append(tracker.after(lambda: False))

    assert set(diffs[0].added) == {"a", "b", "c"}
    assert set(diffs[1].changed) == {"a", "c"}
    assert not diffs[2]
    assert not diffs[3]
    assert set(diffs[4].changed) == {"a", "c"}
    assert set(diffs[5].deleted) == {"a", "b", "c", *(["_exit_code"] if cell.startswith("!") else [])}


# -- descriptions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "kind", "shown"),
    [
        ("x = 5", "int", "5"),
        ("x = 10 ** 1_000_000", "int", "<int of 3,321,929 bits>"),
        ("x = 'a' * 500", "str", "'" + "a" * 118 + "…"),
        ("x = [1, 'a', None, (1,), {2}]", "list", "[1, 'a', None, (1,), {2}]"),
        ("x = []; x.append(x)", "list", "[…]"),
        ("x = set()", "set", "set()"),
        ("x = {'k': [1]}", "dict", "{'k': [1]}"),
        ("x = np.zeros((1000, 3))", "numpy.ndarray", "float64[1000, 3] 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, …"),
        (
            "x = np.array(['a' * 20, 'b'], dtype=np.dtypes.StringDType())",
            "numpy.ndarray",
            f"StringDType()[2] '{'a' * 20}', 'b'",
        ),
        ("x = np.float32(1.5)", "numpy.float32", "np.float32(1.5)"),
        ("x = pd.DataFrame({'a': [1], 'b': [0.5]})", "pandas.DataFrame", "DataFrame 1×2: a int64; b float64"),
        (
            "x = pd.DataFrame({'a': [1], 'b': [2], 'c': [.5]})",
            "pandas.DataFrame",
            "DataFrame 1×3: a, b int64; c float64",
        ),
        (
            "x = pd.DataFrame({f'column_{n}': [n] for n in range(40)})",
            "pandas.DataFrame",
            f"DataFrame 1×40: {', '.join(f'column_{n}' for n in range(40))} int64",
        ),
        (
            "import polars as pl; x = pl.DataFrame({'a': [1]})",
            "polars.DataFrame",
            "DataFrame 1×1: a Int64",
        ),
        ("from textwrap import dedent as x", "function", "<function textwrap.dedent(text)>"),
        ("from math import sqrt as x", "builtin_function_or_method", "<built-in function math.sqrt>"),
        ("x = pd.Series([1, 2])", "pandas.Series", "Series 2 int64: 1, 2"),
        ("x = pd.Timestamp('2020-01-01')", "pandas.Timestamp", "Timestamp('2020-01-01 00:00:00')"),
        ("import os as x", "module", "<module os>"),
        ("def x(a, *b, c=1, **d): pass", "function", "<function x(a, c, *b, **d)>"),
        ("class x: pass", "type", "<class x>"),
        ("class P:\n def __repr__(self): 1 / 0\nx = P(); x.a = 1; x._b = 2", "P", "<P object> a=1"),
        ("from enum import Enum\nclass E(Enum):\n A = 1\nx = E.A", "E", "E.A"),
        ("from typing import NamedTuple\nclass N(NamedTuple):\n a: int\nx = N(1)", "N", "N(1)"),
        ("class L(list):\n def __len__(self): 1 / 0\nx = L([1])", "L", "L([1])"),
        ("x = type('\\x1b[31m', (), {})()", "\\x1b[31m", "<\\x1b[31m object>"),
        ("import datetime as dt; x = dt.date(2020, 1, 2)", "datetime.date", "datetime.date(2020, 1, 2)"),
    ],
)
def test_a_variable_is_one_short_line(setup: str, kind: str, shown: str):
    """Type and value are shown without running the user's code."""
    info = Notebook(setup).tracker.describe("x")

    assert info.type == kind
    assert info.repr == shown


def test_size_hints_are_cheap_and_plain():
    """Bytes, length and shape are there where they cost nothing."""
    assert describe(np.zeros((3, 4)), 80).size == {"shape": [3, 4], "bytes": 96}
    assert describe([1, 2], 80).size["len"] == 2
    assert describe(pd.DataFrame({"a": [1, 2]}), 80).size["shape"] == [2, 1]
    assert describe(5, 80).size == {}


def test_the_value_before_is_kept():
    """A change shows what was there; numbers and lists alike."""
    notebook = Notebook("x = 1; y = [1]")

    diff = notebook.run("x = 2; y.append(2)")

    assert (diff.changed["x"].before, diff.changed["x"].repr) == ("1", "2")
    assert (diff.changed["y"].before, diff.changed["y"].repr) == ("[1]", "[1, 2]")


def test_a_library_of_another_environment_is_no_module_of_the_users(tmp_path, monkeypatch):
    """A `.pth` file, `PYTHONPATH` or an environment with system packages adds such folders."""
    for folder in ("env/lib/python3.12/site-packages", "usr/lib/python3/dist-packages", "work"):
        place = tmp_path / folder
        place.mkdir(parents=True)
        name = f"helper_{place.name.replace('-', '_')}"
        (place / f"{name}.py").write_text("history = []\n")
        monkeypatch.syspath_prepend(str(place))
        module = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        assert is_own(module) == (folder == "work")


LITERALS = ["x = 1", "x = y = -2; z = 'a' * 3", "x = [1, (2, None), {'a': 60 * 60}]", "x = not True"]
OTHERS = [
    "x = f(1)",
    "x += 1",
    "x, y = z",
    "x",
    "x = y + 1",
    "x = {y: 1}",
    "x = {**y}",
    "x = {1}",
    "x = f'{y}'",
    "a.b = 3",
]
OTHERS += ["%matplotlib inline\nx = 1", "import os", "x: int = 3", "x = (", "x = [y for y in z]", "x = 1\nx.y"]


@pytest.mark.parametrize("source", [*LITERALS, *OTHERS])
def test_a_cell_binds_only_literals_if_none_of_its_values_calls_anything(source):
    assert binds_literals(source) == (source in LITERALS)


@pytest.mark.parametrize(
    ("source", "bound"),
    [
        ("x = y = 1\n(a, [b, c]), d = z", {"x", "y", "d"}),
        ("def f(): g = 1\nclass C: h = 1", {"f", "C"}),
        ("if z: x = 1\nfor i in z: y = 1", set()),
        ("x = 1\ndel x", set()),
        ("%%time\nx = 1", {"x"}),
        ("%%timeit\nx = 1", set()),
        ("x = 1\nt = '''\n%%time'''", {"x", "t"}),
        ("%matplotlib inline\nx = 1", set()),
        ("x.a = 1; z[0] = 2", set()),
    ],
)
def test_names_that_a_cell_binds_in_any_case_are_read_from_its_text(source, bound):
    assert names_bound(source) == bound


@pytest.mark.parametrize(
    ("context", "is_read"),
    [
        ("contextlib.suppress(OSError)", True),
        ("raises(OSError) as e, open(p) as file", True),
        ("open(p) as file", False),
    ],
)
def test_a_name_that_is_bound_where_an_exception_is_suppressed_is_read_after_it(context: str, is_read: bool):
    """The block may have ended before: then the name has its earlier value, and the cell is stale if that changes."""
    assert ("x" in names_read_first(f"with {context}:\n    x = load()\ny = x")) is is_read
