"""Arrays that share memory through an object of a library: a return keeps what they share, or names them."""

from __future__ import annotations

from typing import Any

import pytest
from kernels import RunningKernel

pytestmark = pytest.mark.usefixtures("loaded_libraries")
SHARED = {
    "DLPack": "y = np.from_dlpack(base)",
    "a part by DLPack": "y = np.from_dlpack(base[:10])",
    "an array of Arrow": "import pyarrow as pa; y = pa.array(base).to_numpy()",
    "a buffer of Arrow": "import pyarrow as pa; y = np.frombuffer(pa.py_buffer(base), base.dtype)",
    "a series of Polars": "import polars as pl; y = pl.Series(base).to_numpy()",
    "an address": (
        "import ctypes\naddress = ctypes.cast(base.ctypes.data, ctypes.POINTER(ctypes.c_long))\n"
        "y = np.ctypeslib.as_array(address, (9,))"
    ),
    "an array interface": (
        "class Window:\n    def __init__(self, seen):\n"
        "        self.seen, self.__array_interface__ = seen, seen.__array_interface__\n"
        "y = np.asarray(Window(base))"
    ),
}
SHOWN = "print(base[:2], y[:2], np.shares_memory(base, y))"


@pytest.mark.parametrize("size", [1_000, 1_000_000])
@pytest.mark.parametrize("makes", SHARED.values(), ids=SHARED)
def test_arrays_that_share_memory_through_a_library_share_it_after_a_return(
    kernel: RunningKernel, makes: str, size: int
):
    cells = [f"import numpy as np\nbase = np.arange({size})\n{makes}", SHOWN, "base[0] = 5", SHOWN]
    shown = [kernel.run(cell).stdout for cell in cells]
    assert [one.endswith("True\n") for one in shown] == [False, True, False, True]

    for place, expected in [("2", shown[1]), ("4", shown[3])]:
        assert kernel.run(f"%ctx goto {place}").status == "ok"
        assert kernel.run(SHOWN).stdout == expected


def test_arrays_in_containers_share_memory_after_a_return(kernel: RunningKernel):
    kernel.run("import numpy as np\nd = {'base': np.arange(1000)}\nl = [np.from_dlpack(d['base'])]")
    kernel.run("d['base'][0] = 5")
    assert kernel.run("%ctx goto 1").status == "ok"
    assert kernel.run("d['base'][1] = 7; print(l[0][:2])").stdout == "[0 7]\n"


SEEN = {
    "an array of Arrow": ("import pyarrow as pa; t = pa.array(base)", "t[0].as_py()"),
    "a table of Arrow": ("import pyarrow as pa; t = pa.table({'a': base})", "t['a'][0].as_py()"),
    "a table of a frame": ("import pyarrow as pa; t = pa.Table.from_pandas(frame)", "t['a'][0].as_py()"),
    "a buffer of Arrow": ("import pyarrow as pa; t = pa.py_buffer(base)", "np.frombuffer(t)[0]"),
    "a slice of a buffer of Arrow": ("import pyarrow as pa; t = pa.py_buffer(base)[:80]", "np.frombuffer(t)[0]"),
    "a series of Polars": ("import polars as pl; t = pl.Series(base)", "t[0]"),
    "a frame of Polars": ("import polars as pl; t = pl.DataFrame({'a': base, 's': ['x'] * len(base)})", "t['a'][0]"),
    "a table of a dict of arrays": (
        "import pyarrow as pa; d = {'a': base}; del base\nt = pa.table(d)",
        "t['a'][0].as_py()",
    ),
    "a frame of Polars of a dict of arrays": (
        "import polars as pl; d = {'a': base}; del base\nt = pl.DataFrame(d)",
        "t['a'][0]",
    ),
    "a frame of Polars of one of pandas": ("import polars as pl; t = pl.from_pandas(frame)", "t['a'][0]"),
}


@pytest.mark.parametrize(("makes", "sees"), SEEN.values(), ids=SEEN)
def test_a_table_over_the_memory_of_an_array_sees_what_is_written_after_a_return(
    kernel: RunningKernel, makes: str, sees: str
):
    write = f"(d['a'] if 'd' in globals() else base)[0] = 5.0; frame.loc[0, 'a'] = 5.0; print({sees})"
    first = "import numpy as np, pandas as pd\nbase = np.arange(1000.0); frame = pd.DataFrame({'a': base.copy()})"
    for cell in (f"{first}\n{makes}", write, write):
        ran = kernel.run(cell)
        assert ran.status == "ok"
    assert ran.stdout == "5.0\n"

    assert kernel.run("%ctx goto 1").status == "ok"

    assert kernel.run(f"print({sees})").stdout == "0.0\n"
    assert kernel.run(write).stdout == "5.0\n"


@pytest.mark.parametrize("kind", ["KDTree", "cKDTree"])
def test_a_tree_of_points_sees_points_that_are_moved_after_a_return(kernel: RunningKernel, kind: str):
    moved = "points[0] = 9; print(tree.data[0], tree.query([0.0, 0.0])[1])"
    makes = f"import numpy as np\nfrom scipy.spatial import {kind}\npoints = np.eye(2) * 3; tree = {kind}(points)"
    shown = [kernel.run(cell).stdout for cell in (makes, moved)]
    assert shown[1].startswith("[9. 9.]")

    assert kernel.run("%ctx goto 1").status == "ok"

    assert kernel.run("print(tree.data[0])").stdout == "[3. 0.]\n"
    assert kernel.run(moved).stdout == shown[1]


def test_an_attribute_of_a_tree_of_points_comes_back(kernel: RunningKernel):
    makes = "from scipy.spatial import KDTree; import numpy as np; tree = KDTree(np.eye(2)); tree.note = 'mine'"
    assert kernel.run(makes).status == "ok"
    kernel.run("tree.note = 'yours'")
    assert kernel.run("%ctx goto 1").status == "ok"
    assert kernel.run("print(tree.note)").stdout == "mine\n"


OPENED = """
import sqlite3
a = sqlite3.connect(':memory:')
a.execute('create table t (v)')
a.execute('insert into t values (1)')
"""
INEXACT: dict[str, tuple[str, str, str]] = {
    "a view of strings": (
        "import numpy as np\na = np.array(['x', 'y'], dtype=np.dtypes.StringDType()); b = a[:1]",
        "b[0] = 'z'",
        "a, b",
    ),
    "memory of a library's object": (
        "import sklearn.tree\na = sklearn.tree.ExtraTreeClassifier().fit([[0], [1]], [0, 1]); b = a.tree_.value",
        "b[0, 0] = 7",
        "a, b",
    ),
    "a query of a frame in memory": (
        "import numpy as np, polars as pl\na = np.arange(9.0); b = pl.DataFrame({'a': a}).lazy()",
        "a[0] = 5; b.collect()",
        "b",
    ),
    "an open transaction": (
        OPENED,
        "a.execute('insert into t values (2)')",
        "a",
    ),
}


@pytest.mark.parametrize(("makes", "change", "named"), INEXACT.values(), ids=INEXACT)
def test_what_a_copy_lacks_is_named_at_the_return(kernel: RunningKernel, makes: str, change: str, named: str):
    for cell in (makes, change):
        assert kernel.run(cell).status == "ok"
    told: Any = kernel.run("%ctx goto 1").stdout
    assert f"as their libraries store them: {named}\n" in told


def test_a_view_that_took_the_name_of_the_memorys_owner_shares_it_after_a_return(kernel: RunningKernel):
    """A view of a part, packed before the array whose memory it is, is not taken for memory of its own."""
    kernel.run("import numpy as np\nbase = np.arange(200_000.0)\nwhole = np.from_dlpack(base); part = whole[100:120]")
    kernel.run("base, part = part, base")
    kernel.run("whole[:] = 0")
    assert kernel.run("%ctx goto 2").status == "ok"
    kernel.run("whole[100] = -1")
    assert kernel.run("print(base[0], part[100])").stdout == "-1.0 -1.0\n"


def test_a_class_that_refuses_to_be_compared_disturbs_no_table(kernel: RunningKernel):
    kernel.run(
        "import numpy as np, pyarrow as pa\nclass Refusing(type):\n    def __eq__(self, other): raise RuntimeError\n"
        "    def __hash__(self): raise RuntimeError\nclass One(metaclass=Refusing): pass\n"
        "one = [One()]; base = np.arange(9); t = pa.array(base)"
    )
    kernel.run("base[0] = 5")
    assert kernel.run("%ctx goto 1").stdout.splitlines()[0].startswith("at s1: ")
    kernel.run("base[0] = 7")
    assert kernel.run("print(t[0], type(one[0]) is One)").stdout == "7 True\n"


ANEW = {
    "a column": "frame['b'] = np.arange(1000.0)",
    "a column through a list": "held = [frame]; held[0]['b'] = np.arange(1000.0)",
    "a column through a result": "Out[2]['b'] = np.arange(1000.0)",
    "the frame": "frame = pd.DataFrame({'b': np.arange(1000.0)})",
    "a column in a function": "def add():\n    frame['b'] = np.arange(1000.0)\nadd()",
    "a return": "frame['b'] = np.arange(1000.0)\nlater = 1",
}


@pytest.mark.parametrize("change", ANEW.values(), ids=ANEW)
def test_a_table_over_new_memory_of_a_frame_sees_what_is_written_after_a_return(kernel: RunningKernel, change: str):
    """The memory of a frame is noted when a table is first stored, and a change of the frame replaces that memory."""
    kernel.run("import numpy as np, pandas as pd, pyarrow as pa\nframe = pd.DataFrame({'a': np.arange(1000.0)})")
    kernel.run("frame")
    kernel.run("first = pa.array(frame['a'].to_numpy()); names = pd.Series(['x', 'y'])")
    kernel.run(change)
    if "later" in change:
        kernel.run("names.loc[0] = 'z'")
        kernel.run("%ctx goto 3")
        kernel.run(change)
    kernel.run("table = pa.array(frame['b'].to_numpy())")
    kernel.run("names.loc[1] = 'z'")
    write = "frame.loc[0, 'b'] = 5.0; print(table[0], frame['b'].iloc[0])"
    assert kernel.run(write).stdout == "5.0 5.0\n"

    assert kernel.run("%ctx undo").status == "ok"

    assert kernel.run("print(table[0], frame['b'].iloc[0])").stdout == "0.0 0.0\n"
    assert kernel.run(write).stdout == "5.0 5.0\n"


def test_an_array_whose_memory_is_noted_can_be_resized(kernel: RunningKernel):
    """NumPy refuses that for an array with a weak reference."""
    kernel.run("import numpy as np, pandas as pd\na = np.arange(5); names = pd.Series(['x', 'y'])")
    kernel.run("names.loc[0] = 'z'")

    assert kernel.run("a.resize(9); print(a.size)").stdout == "9\n"


OBJECTS = {
    "a series of Polars": "import polars as pl; a = pl.Series([f'text {i}' for i in range(9)]).to_numpy()",
    "a frame of Polars": (
        "import polars as pl; a = pl.DataFrame({'n': range(9), 's': [f'text {i}' for i in range(9)]}).to_numpy()"
    ),
    "an array interface": (
        "class Window:\n    def __init__(self, seen):\n"
        "        self.seen, self.__array_interface__ = seen, seen.__array_interface__\n"
        "a = np.asarray(Window(np.array([f'text {i}' for i in range(9)], dtype=object)))"
    ),
}


@pytest.mark.parametrize("makes", OBJECTS.values(), ids=OBJECTS)
def test_objects_in_memory_of_a_library_come_back_as_objects(kernel: RunningKernel, makes: str):
    """Such memory holds addresses of objects, which mean nothing once the objects are gone."""
    shown = "print(a.tolist(), frame.values.tolist(), np.shares_memory(a, b))"
    makes = f"import numpy as np, pandas as pd, gc\n{makes}\nb = a[2:5]; frame = pd.DataFrame(a[:3], copy=False)"
    assert kernel.run(makes).status == "ok"
    before = kernel.run(shown).stdout
    kernel.run("a[:] = 'x'; gc.collect(); new = [f'other {i}' for i in range(10_000)]")

    assert kernel.run("%ctx goto 1").status == "ok"

    assert kernel.run(shown).stdout == before
    kernel.run("del a, b, frame; gc.collect()")
    assert kernel.run("%ctx goto 1").status == "ok"
    assert kernel.run(f"gc.collect(); {shown}").stdout == before
