"""Returns that users reported as wrong, cell by cell, in a real kernel. Each gives back what was there, or names it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import ctxkernel
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager
from kernels import RunningKernel
from told import listed, named_by

linux = pytest.mark.skipif(sys.platform != "linux", reason="mounts and cgroups are Linux's")


@dataclass(frozen=True)
class Reported:
    """Cells, a return, and what is true after it."""

    id: str
    cells: tuple[str, ...]
    holds: str
    names: tuple[str, ...] = ()
    """Where the return names all of these, it need not hold."""
    goto: str = "2"
    forward: str = ""
    """What is true after going forward to the last cell again."""
    before: str = ""
    """What is true right before the return."""


def rows(*reported: Reported):
    return pytest.mark.parametrize("row", [pytest.param(one, id=one.id) for one in reported])


def run_all(kernel, cells):
    for cell in cells:
        ran = kernel.run(textwrap.dedent(cell).strip("\n"), timeout=120)
        assert ran.status == "ok", (cell, ran.outputs)


def is_true(kernel, expression: str) -> bool:
    """Return whether an expression is true in the kernel; one that raises is not."""
    try:
        return kernel.evaluate(f"bool({expression})") == "True"
    except AssertionError:
        return False


def hold(kernel, row: Reported) -> None:
    """Run a row's cells and its returns."""
    run_all(kernel, row.cells)
    if row.before:
        assert is_true(kernel, row.before)
    went = kernel.run(f"%ctx goto {row.goto}", timeout=120)
    assert went.status == "ok", went.outputs
    holds = is_true(kernel, row.holds)
    named = named_by(went.stdout + went.stderr, row.names)
    assert holds or (row.names and set(row.names) <= set(named)), went.stdout
    if row.forward:
        there = kernel.run(f"%ctx goto {len(row.cells)}", timeout=120)
        assert there.status == "ok", there.outputs
        assert is_true(kernel, row.forward), there.stdout


# -- a variable that the state does not have -----------------------------------------------------


def test_a_return_removes_a_variable_that_holds_none(kernel):
    run_all(kernel, ("a = 1", "gone = None"))

    went = kernel.run("%ctx goto 1")

    assert went.status == "ok", went.outputs
    assert is_true(kernel, "a == 1 and 'gone' not in globals()")


# -- 1: an element of a large container ------------------------------------------------------------

HELPER_CLASS = "class Record:\n    def __init__(self, n):\n        self.id, self.v = n, 0\n"


@rows(
    Reported(
        "records",
        ("recs=[{'id':i,'v':0} for i in range(300_000)]", "hit=recs[290_000]", "hit['v']=99"),
        "recs[290_000]['v'] == 0 and hit is recs[290_000]",
        forward="recs[290_000]['v'] == 99 and hit is recs[290_000]",
    ),
    Reported(
        "instances of a class of a helper module",
        ("from helper import Record\nrecs=[Record(i) for i in range(6000)]", "hit=recs[5_900]", "hit.v=99"),
        "recs[5_900].v == 0 and hit is recs[5_900]",
        forward="recs[5_900].v == 99 and hit is recs[5_900]",
    ),
    Reported(
        "UserDicts",
        (
            "from collections import UserDict\nrecs=[UserDict(id=i, v=0) for i in range(6000)]",
            "hit=recs[5_900]",
            "hit['v']=99",
        ),
        "recs[5_900]['v'] == 0 and hit is recs[5_900]",
        forward="recs[5_900]['v'] == 99 and hit is recs[5_900]",
    ),
)
def test_an_element_that_was_written_through_its_own_name_comes_back(start_kernel, tmp_path, row):
    (tmp_path / "helper.py").write_text(HELPER_CLASS)
    hold(start_kernel(), row)


# -- 2: what changes out of sight ------------------------------------------------------------------

THREAD = """
import os, threading, time
def grow():
    while not os.path.exists('go'): time.sleep(0.01)
    lst.append(1)
threading.Thread(target=grow, daemon=True).start()
"""
TASK = """
import asyncio, os
async def grow():
    while not os.path.exists('go'): await asyncio.sleep(0.01)
    lst.append(1)
task = asyncio.ensure_future(grow())
"""


@rows(
    Reported("a thread", ("lst = []", THREAD), "lst == []", ("lst",), forward="lst == []"),
    Reported("an asyncio task", ("lst = []", TASK), "lst == []", ("lst",), forward="lst == []"),
)
def test_what_ran_on_after_its_cell_is_put_back(kernel, row):
    """The file `go` lets it run when the cell has ended and its state is taken."""
    run_all(kernel, row.cells)
    (kernel.folder / "go").touch()
    until(lambda: kernel.evaluate("lst") == "[1]")

    went = kernel.run("%ctx goto 2")

    assert kernel.evaluate("lst") == "[]" or named_by(went.stdout, row.names), went.stdout


def until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


BY_IDENTITY = """
import argparse, functools, numpy as np
l = [np.nan]; nan = float('nan'); own = [nan]; d = {nan: 5}; s = np.float64('nan'); t = [s]
p = argparse.ArgumentParser(); p.add_argument('--x', default=argparse.SUPPRESS)
missing = [functools._initial_missing]
"""
CHANGED = "l.append(1); own.append(1); d[3] = 3; t.append(2); p.add_argument('--y'); missing.append(1)"


def test_what_is_compared_by_identity_is_found_after_a_return(start_kernel):
    """Also in another kernel: NaN in lists and as a key, argparse's marker, a library's sentinel."""
    holds = "np.nan in l and nan in own and d[nan] == 5 and s in t and missing[0] is functools._initial_missing"
    first = start_kernel()
    run_all(first, [BY_IDENTITY, CHANGED, "%ctx goto 1"])
    assert is_true(first, f"{holds} and vars(p.parse_args([])) == {{}} and len(own) == 1")
    assert "l" not in json.loads(first.run("%ctx goto 1 --dry-run --json").stdout)["load"]
    first.stop()

    second = start_kernel()
    run_all(second, ["%ctx resume"])

    assert is_true(second, f"{holds} and vars(p.parse_args([])) == {{}}")


@pytest.mark.parametrize("between", [(), ("x = 1",)], ids=["at once", "after a cell"])
def test_what_was_loaded_without_a_part_is_named_by_each_return(kernel, between):
    """A copy that lacks the traceback is not taken for the value of the state."""
    raised = "import time\nnow = time.time()\ntry: 1 / 0\nexcept ZeroDivisionError as fault: err = fault"
    run_all(kernel, [raised, "err = 5", "%ctx goto 1"])
    assert kernel.evaluate("err.__traceback__") == "None"

    run_all(kernel, between)
    again = kernel.run("%ctx goto 1")

    assert named_by(again.stdout, ("err",)), again.stdout


LOGGER_CLASS = """
import logging
class Counting(logging.Logger):
    def __init__(self, name):
        super().__init__(name)
        self.count = 0
logging.setLoggerClass(Counting)
"""


def test_a_logger_of_an_own_class_keeps_its_attributes_before_it_was_made(kernel):
    """`getLogger` still finds it after the return, which names it."""
    run_all(kernel, [LOGGER_CLASS, "log = logging.getLogger('counted'); log.count += 1"])

    went = kernel.run("%ctx goto 1")

    assert "as it is now: logger counted" in went.stdout
    assert kernel.evaluate("logging.getLogger('counted').count") == "1"


DISPATCH_AGAIN = """
import functools
class A: version = 1
@functools.singledispatch
def told(one): return 'any'
@told.register(A)
def of_a(one): return 'a'
old = A()
"""
REDEFINED = """
class A: version = 2
@told.register(A)
def of_new(one): return 'new'
"""


def test_singledispatch_finds_the_functions_of_a_class_that_was_redefined(kernel):
    """The registry is by class: it goes back, and forward again, with the class of each name."""
    run_all(kernel, [DISPATCH_AGAIN, REDEFINED])
    assert kernel.evaluate("(told(old), told(A()))") == "('a', 'new')"

    run_all(kernel, ["%ctx goto 1"])
    assert kernel.evaluate("(told(old), told(A()))") == "('a', 'a')"

    run_all(kernel, ["%ctx undo"])
    assert kernel.evaluate("(told(old), told(A()))") == "('a', 'new')"


ENDS = """
class Ends:
    def __init__(self, log): self.log = log
    def __del__(self): self.log.append('gone')
ended, other = [], [0]
"""


@rows(
    Reported("of a name that goes", (ENDS, "x = Ends(ended)"), "ended == []", ("ended",), goto="1"),
    Reported("of a name that is replaced", (ENDS, "x = 5", "x = Ends(ended)"), "ended == []", ("ended",)),
    Reported(
        "of a class that was deleted",
        (ENDS, "box = []", "x = y = {'k': [Ends(ended)]}; box.append(x['k']); del Ends"),
        "ended == []",
        ("ended",),
    ),
)
def test_what_a_del_changes_during_a_return_is_named(kernel, row):
    """It runs when the return lets go of the object, after the state was put in place."""
    hold(kernel, row)
    assert kernel.evaluate("other") == "[0]"
    again = kernel.run("%ctx goto 1")
    assert kernel.evaluate("ended") == "[]" or named_by(again.stdout, row.names), again.stdout


HELPER_LIST = "history = []\ndef step(x):\n    history.append(x)\n    return len(history)\n"
CACHED = """
import functools
class Cached:
    def __init__(self, rows): self.rows = rows
    @functools.cached_property
    def total(self): return [sum(self.rows)]
c = Cached([1, 2])
"""
LRU = "import functools\n@functools.lru_cache\ndef f(k): return [k]"
DISPATCH = "import functools\n@functools.singledispatch\ndef told(value): return 'any'"
SHAPE = "import abc\nclass Shape(abc.ABC): pass"
LOGGING = """
import io, logging
out = io.StringIO()
log = logging.getLogger('own')
log.propagate = False
log.addHandler(logging.StreamHandler(out))
"""
FIGURE = """
import matplotlib
matplotlib.use('agg')
import matplotlib.pyplot as plt
fig, ax = plt.subplots()
"""
WIDGET = "import ipywidgets as w\nseen = []\ns = w.IntSlider()\ns.observe(lambda new: seen.append(new.new), 'value')"


@rows(
    Reported(
        "a list of a helper module",
        ("from helper import step, history", "step(1);", "step(2);"),
        "history == [1] and __import__('helper').history is history and step(7) == 2 and history == [1, 7]",
        ("history", "step"),
    ),
    Reported(
        "a list that only the helper module has",
        ("from helper import step", "step(1);", "step(2);"),
        "__import__('helper').history == [1]",
        ("step",),
    ),
    Reported(
        "what a widget's observer appended", (WIDGET, "s.value = 5"), "seen == [] and s.value == 0", ("seen", "s"), "1"
    ),
    Reported(
        "plt.title on a figure in a name",
        (FIGURE, "plt.title('new');"),
        "ax.get_title() == '' and ax.figure is fig",
        ("fig", "ax"),
        "1",
        before="ax.get_title() == 'new'",
    ),
    Reported(
        "plt.title draws on the figure in the name after the return",
        (FIGURE, "x = 1", "plt.title('new');"),
        "plt.gcf() is fig and plt.gca() is ax and ax.get_title() == ''",
        ("fig", "ax"),
    ),
    Reported(
        "an element of a tree of xml.etree",
        ("import xml.etree.ElementTree as ET\nroot = ET.fromstring('<a><b>p</b></a>')", "b = root[0]", "b.text = 'q'"),
        "root[0].text == 'p' and b is root[0]",
        forward="root[0].text == 'q' and b is root[0]",
    ),
    Reported(
        "a cached_property that was not there yet", (CACHED, "c.total.append(9)"), "'total' not in vars(c)", goto="1"
    ),
    Reported(
        "a value of a cached_property",
        (CACHED, "t = c.total", "t.append(9)"),
        "c.total == [3] and c.total is t",
        forward="c.total == [3, 9] and c.total is t",
    ),
    Reported("a value of a function with an lru_cache", (LRU, "v = f(1)", "v.append(2)"), "f(1) == [1] and v == [1]"),
    Reported(
        "a value that only the lru_cache has",
        (LRU, "f(1);", "f(1).append(2)"),
        "f(1) == [1]",
        before="f(1) == [1, 2]",
    ),
    Reported(
        "singledispatch.register",
        (DISPATCH, "told.register(int, lambda v: 'int');"),
        "told(1) == 'any'",
        ("told",),
        "1",
    ),
    Reported("ABC.register", (SHAPE, "Shape.register(int);"), "not issubclass(int, Shape)", ("Shape",), "1"),
    Reported("the target of a logging handler", (LOGGING, "log.warning('x')"), "out.getvalue() == ''", ("out",), "1"),
    Reported(
        "a logging handler writes into its target again",
        (LOGGING, "log.warning('x')"),
        "log.warning('y') or out.getvalue() == 'y\\n'",
        ("out", "log"),
        "1",
    ),
    Reported(
        "BytesIO.getbuffer",
        ("import io\nb = io.BytesIO(b'abc')", "m = b.getbuffer()", "m[0] = 122"),
        "b.getvalue() == b'abc' and bytes(m) == b'abc'",
        forward="b.getvalue() == b'zbc' and bytes(m) == b'zbc' and m.obj is not None",
    ),
    Reported(
        "a record of an array",
        ("import numpy as np\na = np.zeros(3, 'i4,f8')\nr = a[1]", "r['f0'] = 5", "a['f0'][1] = 9"),
        "a['f0'][1] == r['f0'] == 5 and not r.__setitem__('f0', 7) and a['f0'][1] == 7",
    ),
    Reported(
        "records of views with steps, and of a record array, which is of a module that NumPy loads late",
        (
            "import numpy as np\na = np.zeros(4, 'i4,f8')\nr = a.view(np.recarray)\nx, y = r[1], a[::-2][1]",
            "r.f0[:] = 5",
            "a['f0'] = 9",
        ),
        "list(a['f0']) == [0] * 4 and not r.__setitem__(1, (7, 0)) and a['f0'][1] == x['f0'] == y['f0'] == 7",
        goto="1",
        forward="list(a['f0']) == [9] * 4 and x['f0'] == y['f0'] == 9 and type(r) is np.recarray",
    ),
    Reported(
        "a record of an array that holds objects",
        ("import numpy as np\na = np.zeros(3, 'i4,O')\nr = a[1]", "r['f0'] = 5", "a['f0'][1] = 9"),
        "r['f0'] == 0",
        ("r",),
        goto="1",
    ),
    Reported(
        "flags.writeable",
        ("import numpy as np\na = np.arange(3)", "a.flags.writeable = False"),
        "a.flags.writeable",
        goto="1",
        forward="not a.flags.writeable",
    ),
    Reported(
        "ctypes",
        ("import numpy as np\na = np.arange(1000)", "p = a.ctypes.data", "import ctypes; ctypes.memset(p, 1, 8);"),
        "a[0] == 0",
        ("a",),
        before="a[0] != 0",
    ),
)
def test_what_the_names_in_the_cell_do_not_show_is_put_back_or_named(start_kernel, tmp_path, row):
    (tmp_path / "helper.py").write_text(HELPER_LIST)
    hold(start_kernel(), row)


def test_a_plan_does_not_say_keep_of_what_a_thread_changed(kernel):
    run_all(kernel, ("lst = []", THREAD))
    (kernel.folder / "go").touch()
    until(lambda: kernel.evaluate("lst") == "[1]")

    plan = json.loads(kernel.run("%ctx goto 2 --dry-run --json").stdout)

    assert "lst" not in plan["keep"]


HOOKED = """
class Slider:
    def __init__(self): self.changed, self._at = None, 0
    @property
    def at(self): return self._at
    @at.setter
    def at(self, at):
        self._at = at
        if self.changed: self.changed(at)
slider, log = Slider(), []
"""


@rows(
    Reported(
        "a function that a setter calls",
        (HOOKED, "slider.changed = lambda at: log.append(at)\nslider.at = 3", "log.append(9)"),
        "log == [3]",
    ),
    Reported(
        "a function that an operator calls",
        (
            "class C: pass\nc, log = C(), []",
            "C.__add__ = lambda self, other: log.append(other)\nc + 1",
            "log.append(9)",
        ),
        "log == [1]",
    ),
    Reported(
        "sys.modules",
        ("import sys\nlog = []", "getattr(sys.modules[__name__], 'log').append(1)", "log.append(9)"),
        "log == [1]",
    ),
    Reported(
        "sys.modules in a function",
        (
            "import sys\nlog = []\ndef add(name, item): getattr(sys.modules[__name__], name).append(item)",
            "add('l' + 'og', 1)",
            "log.append(9)",
        ),
        "log == [1]",
    ),
    Reported(
        "csv.writer",
        ("import csv, io\nout = io.StringIO()\nw = csv.writer(out)", "n = w.writerow([1])", "n = out.write('x')"),
        "out.getvalue() == '1\\r\\n'",
    ),
    Reported(
        "TextIOWrapper",
        (
            "import io\nout = io.BytesIO()\nw = io.TextIOWrapper(out)",
            "w.write('abc'); w.flush()",
            "n = out.write(b'x')",
        ),
        "out.getvalue() == b'abc'",
    ),
    Reported(
        "ZipFile",
        (
            "import io, zipfile\nout = io.BytesIO()\nw = zipfile.ZipFile(out, 'w')",
            "w.writestr('a', 'b')",
            "out.write(b'x')",
        ),
        "len(out.getvalue()) == 32",
    ),
    Reported(
        "a callback of a Future",
        (
            "import concurrent.futures as c\nlog = []\nf = c.Future()\nf.add_done_callback(lambda _: log.append(1))",
            "f.set_result(3)",
            "log.append(9)",
        ),
        "len(log) == 1",
    ),
    Reported(
        "a callback of ctypes",
        (
            "import ctypes\nlog = []\n@ctypes.CFUNCTYPE(None, ctypes.c_int)\ndef call(n): log.append(n)",
            "call(5)",
            "log.append(9)",
        ),
        "log == [5]",
    ),
    Reported("%cd", ("import os; here = os.getcwd()", "%cd ..", "x = 1"), "os.getcwd() != here"),
    Reported(
        "%precision",
        ("import numpy as np", "%precision 3", "x = 1"),
        "np.get_printoptions()['precision'] == 3",
    ),
)
def test_what_a_cell_changed_without_naming_it_comes_back(kernel, row):
    """The cell after it changes the same again, or changes nothing."""
    hold(kernel, row)


# -- 3: copies that lose something -----------------------------------------------------------------

EMPTIES = """
class Empties:
    def __init__(self): self.cache = {}
    def __getstate__(self): return {'cache': {}}
g = Empties()
"""
FORGETS = """
class Forgets:
    def __init__(self): self.kept, self.left_out = 1, 0
    def __reduce__(self): return Forgets, (), {'kept': self.kept}
p = Forgets()
"""
FRAME = """
import pandas as pd
class Frame(pd.DataFrame):
    @property
    def _constructor(self): return Frame
f = Frame({'a': [1, 2]})
"""


@rows(
    Reported(
        "the values of a thread",
        ("import threading", "rows = [1]; t = threading.local(); t.rows = rows", "rows.append(2)", "t.new = 1"),
        "t.rows is rows and vars(t) == {'rows': [1]}",
        forward="t.rows is rows and vars(t) == {'rows': [1, 2], 'new': 1}",
    ),
    Reported(
        "the default of a context variable",
        ("import contextvars", "rows = [1]; v = contextvars.ContextVar('v', default=rows)", "rows.append(2)"),
        "v.get() is rows",
        ("v",),
    ),
    Reported(
        "the value of a context variable",
        ("import contextvars", "rows = [1]; v = contextvars.ContextVar('v'); t = v.set(rows)", "rows.append(2)"),
        "v.get() is rows",
        ("v",),
    ),
    Reported(
        "a handler of logging that writes to memory",
        (
            "import io, logging",
            "out = io.StringIO(); h = logging.StreamHandler(out); log = logging.getLogger('own'); log.addHandler(h)",
            "log.warning('one')",
            "log.warning('two')",
        ),
        "out.getvalue() == 'one\\n' and h.stream is out and log.handlers[0] is h",
        goto="3",
        forward="out.getvalue() == 'one\\ntwo\\n' and h.stream is out and log.handlers[0] is h",
    ),
    Reported(
        "a handler of logging that no name holds",
        (
            "import io, logging",
            "log = logging.getLogger('own'); log.addHandler(logging.StreamHandler(io.StringIO()))",
            "log.warning('one')",
        ),
        "log.handlers[0].stream.getvalue() == ''",
        forward="log.handlers[0].stream.getvalue() == 'one\\n'",
    ),
    Reported(
        "records that a handler of logging keeps",
        (
            "import logging.handlers",
            "log = logging.getLogger('own'); log.addHandler(logging.handlers.MemoryHandler(9))",
            "log.warning('one')",
        ),
        "log.handlers[0].buffer == []",
        forward="len(log.handlers[0].buffer) == 1",
    ),
    Reported(
        "attributes of a logger",
        (
            "import logging; rows = [1]",
            "log = logging.getLogger('own'); log.rows = rows",
            "log.rows.append(2); log.propagate = False; log.more = 1",
        ),
        "log.rows is rows and rows == [1] and log.propagate and not hasattr(log, 'more')",
        forward="log.rows is rows and rows == [1, 2] and not log.propagate and log.more == 1",
    ),
    Reported(
        "attributes of a logger that a later cell gave it",
        ("import logging", "log = logging.getLogger('own')", "log.rows = []"),
        "not hasattr(log, 'rows')",
        forward="log.rows == []",
    ),
    Reported(
        "attributes of a logger that `getLogger` does not know",
        ("import logging", "log = logging.Logger('other')", "log.propagate = False; log.rows = []"),
        "log.propagate and not hasattr(log, 'rows') and log.manager is logging.root.manager",
        forward="not log.propagate and log.rows == []",
    ),
    Reported(
        "functions of a database",
        ("import sqlite3", "c = sqlite3.connect(':memory:')", "c.create_function('f', 0, lambda: 1)"),
        "'f' not in [row[0] for row in c.execute('PRAGMA function_list')]",
        ("c",),
    ),
    Reported(
        "a cursor of a database",
        ("import sqlite3", "c = sqlite3.connect(':memory:'); u = c.cursor()", "u.execute('create table t(a)')"),
        "u.connection is c and u.execute('select count(*) from sqlite_master').fetchall() == [(0,)]",
    ),
    Reported(
        "a cursor that ran a statement",
        (
            "import sqlite3",
            "c = sqlite3.connect(':memory:'); u = c.cursor(); u.execute('create table t(a)')",
            "c.execute('insert into t values(1)')",
        ),
        "u.connection is c",
        ("u",),
    ),
    Reported(
        "an instance with a finalizer",
        (
            "import weakref\nclass A: pass",
            "rows = []; a = A(); a.rows = rows; seen = []; f = weakref.finalize(a, seen.append, 1)",
            "rows.append(2); a.x = 1",
        ),
        "seen == [] and f.alive and a.rows is rows and not hasattr(a, 'x')",
        ("a", "f"),
    ),
    Reported(
        "an instance with a finalizer that no name holds",
        ("import weakref\nclass A: pass", "a = A(); seen = []; weakref.finalize(a, seen.append, 1); 0", "a.x = 1"),
        "seen == [] and not hasattr(a, 'x')",
        ("a",),
    ),
    Reported(
        "callbacks of a figure",
        (
            "import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt",
            """
            fig, ax = plt.subplots(); seen = []
            c = ax.callbacks.connect('xlim_changed', lambda _: seen.append('x'))
            d = fig.canvas.mpl_connect('draw_event', lambda _: seen.append('d'))
            """,
            "line = ax.plot([1]); fig.canvas.mpl_disconnect(d)",
        ),
        "ax.set_xlim(0, 9) and fig.canvas.draw() is None and seen == ['x', 'd']",
        forward="ax.set_xlim(0, 8) and fig.canvas.draw() is None and set(seen) == {'x'}",
    ),
)
def test_what_shares_an_object_with_a_name_comes_back_with_it(kernel, row):
    hold(kernel, row)


def test_a_value_of_a_module_that_does_not_come_back_stays_in_its_module(kernel):
    (kernel.folder / "helper.py").write_text(FORGETS + "p.left_out = 7\nq = 1\n")
    run_all(kernel, ("import helper", "helper.q = 2", "helper.q = 3", "%ctx goto 2"))

    assert kernel.evaluate("('module' in globals(), helper.p.left_out)") == "(False, 7)"


@rows(
    Reported(
        "a __getstate__ that empties a cache, first seen empty",
        (EMPTIES, "g.cache['k'] = [1]", "g.cache['k'].append(2)"),
        "g.cache == {'k': [1]}",
        ("g",),
    ),
    Reported(
        "an attribute that the state of a __reduce__ leaves out",
        (FORGETS, "p.left_out = 5", "q = 1"),
        "p.left_out == 0",
        goto="1",
    ),
    Reported(
        "an attribute that the state of a __reduce__ leaves out, later",
        (FORGETS, "p.left_out = 5", "p = None"),
        "p.left_out == 5",
    ),
    Reported(
        "an attribute of a DataFrame",
        ("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})", "df.note = 'x'"),
        "not hasattr(df, 'note')",
        goto="1",
        forward="df.note == 'x'",
    ),
    Reported(
        "an attribute of a DataFrame's subclass",
        (FRAME, "f.note = 'x'"),
        "not hasattr(f, 'note') and type(f) is Frame",
        goto="1",
        forward="f.note == 'x' and type(f) is Frame",
    ),
)
def test_what_a_copy_would_lose_is_there_or_named(kernel, row):
    hold(kernel, row)


def test_a_value_that_was_dropped_is_not_restored_as_an_empty_one(kernel):
    """What a return could not give back, a later one does not give back as something else."""
    run_all(kernel, (EMPTIES + "g.cache['k'] = [1]", "g.cache['k'].append(2)", "x = 1"))
    kernel.run("%ctx goto 1")
    went = kernel.run("%ctx goto 3")

    there = kernel.evaluate("globals().get('g') and g.cache")

    assert there == "{'k': [1, 2]}" or "g" in named_by(went.stdout, ["g"]), (there, went.stdout)
    if "g" not in named_by(went.stdout, ["g"]):
        again = kernel.run("%ctx goto 1")
        there = kernel.evaluate("globals().get('g') and g.cache")
        assert there == "{'k': [1]}" or "g" in named_by(again.stdout, ["g"]), (there, again.stdout)


# -- 4: healthy things stay ------------------------------------------------------------------------

EXECUTOR = "from concurrent.futures import ThreadPoolExecutor\nex = ThreadPoolExecutor(2)"
CLIENT = """
from dask.distributed import Client
c = Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
"""
POPEN = "import subprocess\np = subprocess.Popen(['sleep', '100'])"


@rows(
    Reported(
        "a ThreadPoolExecutor",
        (EXECUTOR, "b=1", "ex.submit(pow,2,3).result()", "b=3"),
        "b == 1 and ex.submit(pow, 2, 2).result() == 4",
        forward="b == 3 and ex.submit(pow, 2, 2).result() == 4",
    ),
    Reported(
        "a Dask client",
        (CLIENT, "b=1", "c.submit(pow,2,3).result()", "b=3"),
        "b == 1 and c.submit(pow, 2, 2).result() == 4",
        forward="b == 3 and c.submit(pow, 2, 2).result() == 4",
    ),
    Reported(
        "a process that was polled",
        (POPEN, "b=1", "p.poll()", "b=3"),
        "b == 1 and p.poll() is None",
        forward="b == 3 and p.poll() is None",
    ),
)
def test_what_has_no_stored_form_and_is_well_stays(kernel, row):
    try:
        hold(kernel, row)
        undone = kernel.run("%ctx undo")
        assert undone.status == "ok"
        assert is_true(kernel, row.holds), undone.stdout
    finally:
        kernel.run("p.kill(); p.wait()" if "Popen" in row.cells[0] else "pass")


def test_a_bunch_with_lazy_caches_comes_back_by_undo(kernel):
    """scikit-learn's Bunch holds frames whose Index objects share caches that `describe` fills."""
    run_all(
        kernel,
        (
            "from sklearn.datasets import load_wine\nraw = load_wine(as_frame=True); df = raw.frame.copy()",
            "df.describe()",
            "df['alcohol'] *= 100",
            "%ctx goto 2",
            "x = 1",
        ),
    )
    assert kernel.evaluate("bool(df['alcohol'].max() < 100)") == "True"
    plan = json.loads(kernel.run("%ctx undo 2 --dry-run --json").stdout)
    comes = {name for one in plan["load"] for name in one["names"]} | set(plan["keep"])

    undone = kernel.run("%ctx undo 2")

    assert not comes & set(plan["lost"])
    assert undone.status == "ok", undone.outputs
    assert kernel.evaluate("bool(df['alcohol'].max() > 1000 and raw.frame['alcohol'].max() < 100)") == "True"
    assert kernel.evaluate("raw.data.shape") == "(178, 13)"
    assert not named_by(undone.stdout, ("raw", "df"))


# -- 5: moves without the data ---------------------------------------------------------------------

COUNT = ("x = [1]", "y = [2]", "z = [3]")
NOT_STORED = (
    "not stored",
    "could not be stored",
    "cannot be stored",
    "cannot be written",
    "could not be written",
    "No space",
    "Read-only",
)


@contextlib.contextmanager
def kernel_on(mount: str, folder: Path) -> Iterator[RunningKernel]:
    """A kernel whose cache folder is a mount of its own: `mount` says how."""
    cache = folder / "cache"
    cache.mkdir()

    class Mounted(KernelSpecManager):
        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            then = f"exec {sys.executable} -m ctxkernel.kernel -f {{connection_file}}"
            argv = ["unshare", "-rm", "sh", "-c", f"mount -t tmpfs {mount} tmpfs {cache} && {then}"]
            return KernelSpec(argv=argv, display_name=kernel_name, language="python")

    manager = KernelManager(kernel_name="ctxkernel", kernel_spec_manager=Mounted())
    environ = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    manager.start_kernel(
        cwd=str(folder),
        env={**environ, "JPY_SESSION_NAME": str(folder / "note.ipynb"), "CTXKERNEL_CACHE": str(cache)},
        extra_arguments=["--HistoryManager.hist_file=:memory:"],
    )
    client = manager.client()
    kernel = RunningKernel(manager, client, folder)
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield kernel
    finally:
        kernel.stop()


def can_mount() -> bool:
    command = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    return False


def moves_without_loss(kernel, told: str) -> None:
    """Check a return to s2 and its undo where nothing could be stored; `told` is what the cells printed."""
    status = kernel.run("%ctx status").data[0]["text/plain"]
    went = kernel.run("%ctx goto 2")
    here = kernel.evaluate("[globals().get(name) for name in 'xyz']")
    undone = kernel.run("%ctx undo") if went.status == "ok" else None
    back = kernel.evaluate("[globals().get(name) for name in 'xyz']")
    assert here in ("[[1], [2], None]", "[[1], [2], [3]]"), went.stdout
    if went.status == "ok":
        assert here == "[[1], [2], None]", went.stdout
        assert undone is not None
        assert undone.status == "ok", undone.outputs
    assert back == "[[1], [2], [3]]", went.stdout
    assert any(words.lower() in told.lower() for words in NOT_STORED), told
    assert any(words.lower() in status.lower() for words in NOT_STORED), status


@linux
@pytest.mark.parametrize("mount", [pytest.param("-o nr_inodes=1", id="full"), pytest.param("-o ro", id="read-only")])
def test_a_cache_folder_that_takes_nothing_costs_no_variable(tmp_path, mount):
    """What is live and equal stays, undo gives back the rest, or it is refused. A cell and `%ctx status` say so."""
    if not can_mount():
        pytest.skip("run as root, or where users may mount: unshare -rm is refused here")
    with kernel_on(mount, tmp_path) as kernel:
        told = "".join(kernel.run(cell).stderr for cell in COUNT)

        moves_without_loss(kernel, told)


def test_a_cache_folder_that_was_deleted_costs_no_variable(start_kernel, tmp_path):
    cache = tmp_path / "cache"
    kernel = start_kernel(env={"CTXKERNEL_CACHE": str(cache)})
    run_all(kernel, COUNT)
    shutil.rmtree(cache)

    went = kernel.run("%ctx goto 2")
    here = kernel.evaluate("[globals().get(name) for name in 'xyz']")
    undone = kernel.run("%ctx undo") if went.status == "ok" else None

    assert here == ("[[1], [2], None]" if went.status == "ok" else "[[1], [2], [3]]"), went.stdout
    assert undone is None or undone.status == "ok"
    assert kernel.evaluate("[globals().get(name) for name in 'xyz']") == "[[1], [2], [3]]"


def test_the_states_after_the_cache_folder_was_deleted_are_stored_whole(start_kernel, tmp_path):
    """The variables, results, handles and parts of the process that did not change since are stored again."""
    cells = ("import own", "own.n = [1]", "x = [1]", "y = {'x': x}", "x", "v = view(list(range(99)))", "import random")
    environ = {"CTXKERNEL_CACHE": str(tmp_path / "cache")}
    (tmp_path / "own.py").write_text("n = 0\n")
    kernel = start_kernel(env=environ)
    run_all(kernel, cells)
    shutil.rmtree(tmp_path / "cache")
    run_all(kernel, ("a = 1", "b = 2"))
    kernel.manager.provisioner.process.send_signal(signal.SIGKILL)

    told = start_kernel(env=environ).run("%ctx resume").stdout

    assert "not restored" not in told
    assert "made again" not in told
    assert "0 kept" in told


def test_a_dry_run_and_the_return_name_the_same_names(start_kernel):
    """Names that IPython gives to results, such as `_` and `__`, are in neither."""
    kernel = start_kernel()
    for cell in ("x = [1]", "y = 2\ny", "x.append(3)\nx", "z = 1\n5"):
        kernel.run(cell)

    plan = json.loads(kernel.run("%ctx goto 1 --dry-run --json").stdout)
    told = json.loads(kernel.run("%ctx goto 1 --json").stdout)

    loaded = [name for one in plan["load"] for name in one["names"]]
    assert (loaded, sorted(plan["drop"])) == (["x"], ["y", "z"])
    assert (told["restored"], sorted(told["removed"])) == (["x"], ["y", "z"])


def test_a_statement_during_which_the_kernel_died_has_no_state_and_says_so(start_kernel, tmp_path):
    """With the way to the state before it, and the way to make it."""
    kernel = start_kernel(tmp_path)
    kernel.run("x = 1")
    with pytest.raises(RuntimeError, match="the kernel died"):
        kernel.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    kernel = start_kernel(tmp_path)
    kernel.run("%ctx resume")

    told = kernel.run("%ctx goto s2").error["evalue"]

    assert "the state after s2 is not there: the kernel died while it ran. %ctx goto 1" in told
    assert "%ctx rerun 2..2" in told


THINNED = (
    "import numpy as np\nx = 1",
    "big = np.random.default_rng(0).random(2_000_000)",
    *(f"x = {number}" for number in range(3, 14)),
)


@pytest.fixture
def thinned(start_kernel, tmp_path):
    """A session of 13 statements whose kernel has ended, without its large data; gives what its environment is."""
    environ = {"CTXKERNEL_CACHE": str(tmp_path / "cache")}
    (tmp_path / "note.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    kernel = start_kernel(env=environ)
    run_all(kernel, THINNED)
    kernel.stop()
    ctxkernel("gc", "--limit", "0.001", cwd=tmp_path, env=environ)
    return environ


def test_a_session_without_its_large_data_resumes_at_its_newest_state(start_kernel, thinned):
    """It names what is gone."""
    kernel = start_kernel(env=thinned)

    resumed = kernel.run("%ctx resume")

    assert resumed.status == "ok", resumed.outputs
    assert kernel.evaluate("x") == "13", resumed.stdout
    assert kernel.evaluate("'big' in globals()") == "True" or named_by(resumed.stdout, ["big"]), resumed.stdout


def test_verify_says_of_a_state_with_a_gap_that_it_can_be_returned_to_without_it(tmp_path, thinned):
    """One name of twelve states is gone: that is one name, not twelve states."""
    told = ctxkernel("verify", "note.ipynb", cwd=tmp_path, env=thinned).stdout

    assert "big" in told
    assert "restorable: 1 of 13" not in told


MOVED = {
    "plain": ("x = [1]", "y = [x]", "x.append(2)"),
    "random": ("import numpy as np", "x = np.random.rand(1000)", "y = [x]"),
    "handle": ("x = [1]", "h = view(x)", "x.append(2); h.lod = 2"),
}


@pytest.fixture(params=MOVED)
def moved(request, start_kernel, tmp_path):
    """A kernel in a copy of a notebook's folder, without the data of its checkpoints."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    kernel = start_kernel(first, env={"CTXKERNEL_CACHE": str(first / "cache")})
    run_all(kernel, MOVED[request.param])
    kernel.stop()
    shutil.copytree(first / ".ctxkernel", second / ".ctxkernel")
    return start_kernel(second, env={"CTXKERNEL_CACHE": str(second / "cache")})


def test_the_plan_of_a_resume_says_that_every_state_is_missing(moved):
    ran = moved.run("%ctx resume --dry-run")

    told = ran.stdout + ran.data[0]["text/plain"] if ran.status == "ok" else ran.error["evalue"]
    assert any(words in told for words in ("missing", "gone", "not on this machine", "not there")), told


@pytest.mark.parametrize("again", ["%ctx rerun 1..3", "%ctx rerun 2..3", "%ctx rerun 3"])
def test_a_rerun_in_a_session_without_data_leaves_the_checkpoints_on(moved, again):
    moved.run("%ctx resume")
    ran = moved.run(again)
    run_all(moved, ("u = [1]", "u.append(2)"))
    before = moved.evaluate("sorted(name for name in globals() if len(name) < 3)")

    undone = moved.run("%ctx undo")

    assert undone.status == "ok", (ran.stdout, ran.stderr, undone.outputs)
    assert moved.evaluate("u") == "[1]"
    assert moved.evaluate("sorted(name for name in globals() if len(name) < 3)") == before
    assert " off" not in ran.stdout + ran.stderr


# -- 8: a module of the user's that a cell patches -------------------------------------------------

REACHING = """
def by_run_cell():
    from IPython import get_ipython
    get_ipython().run_cell('log.append(1)')
def by_main():
    import __main__
    __main__.log.append(1)
def by_frame():
    import sys
    sys._getframe(1).f_globals['log'].append(1)
def maker():
    def made(): kept.append(1)
    return made
kept = []
"""


@rows(
    Reported(
        "a macro", ("log = []", "log.append(1)", "%macro -q m 2", "m", "log.append(9)"), "log == [1, 1]", goto="4"
    ),
    *(
        Reported(
            f"a function of an own module that reaches the notebook {name}",
            ("log = []", "import helper", f"helper.{name}()", "log.append(9)"),
            "log == [1]",
            goto="3",
        )
        for name in ("by_run_cell", "by_main", "by_frame")
    ),
    Reported(
        "a function that a function of an own module made",
        ("import helper\nadd = helper.maker()", "add()", "helper.kept.append(9)"),
        "helper.kept == [1]",
    ),
)
def test_what_a_cell_runs_that_is_not_in_its_text_comes_back(kernel, row):
    (kernel.folder / "helper.py").write_text(REACHING)
    hold(kernel, row)


PATCHED = """
import abc, functools
def plain(a=[1], *, k={'k': 1}): return 'plain'
def removed(): return 'removed'
def counted(f):
    count = 0
    @functools.wraps(f)
    def inner():
        nonlocal count
        count += 1
        return count
    return inner
@counted
def wrapped(more=[]): pass
@functools.singledispatch
def told(value): return 'any'
class Shape(abc.ABC): pass
class Kept:
    items = [1]
    def method(self): return 'method'
    @property
    def value(self): return 'value'
    @classmethod
    def made(cls): return 'made'
    def __len__(self): return 3
    class Inner:
        def deep(self): return 'deep'
class Replaced:
    pass
"""
PATCHES = {
    "helper.plain = lambda: 'x'": "helper.plain() == plain() == 'plain'",
    "plain.__defaults__ = ([5],)": "plain.__defaults__ == ([1],)",
    "plain.__kwdefaults__['k'] = 2": "plain.__kwdefaults__ == {'k': {'k': 1}}",
    "plain.cache = {}": "not hasattr(plain, 'cache')",
    "plain.__code__ = (lambda a=1, *, k=1: 'code').__code__": "plain() == 'plain'",
    "del helper.removed": "helper.removed() == 'removed'",
    "helper.new = lambda: 1": "not hasattr(helper, 'new')",
    "wrapped()": "wrapped() == 1",
    "wrapped.__wrapped__.__defaults__[0].append(1)": "wrapped.__wrapped__.__defaults__ == ([],)",
    "told.register(int, lambda value: 'int')": "told(1) == 'any'",
    "helper.Shape.register(int)": "not issubclass(int, helper.Shape)",
    "helper.Kept.items = []": "kept.items == [1]",
    "helper.Kept.method = lambda self: 'x'": "kept.method() == 'method'",
    "helper.Kept.value = property(lambda self: 'x')": "kept.value == 'value'",
    "helper.Kept.made = classmethod(lambda cls: 'x')": "helper.Kept.made() == 'made'",
    "helper.Kept.__len__ = lambda self: 9": "len(kept) == 3",
    "helper.Kept.new = 1": "not hasattr(kept, 'new')",
    "helper.Kept.Inner.deep = lambda self: 'x'": "helper.Kept.Inner().deep() == 'deep'",
    "helper.Replaced = type('Replaced', (replaced,), {'__module__': 'helper'})": "helper.Replaced is replaced",
}


def test_a_module_of_the_users_that_a_cell_patched_is_as_its_file_defines_it(kernel):
    (kernel.folder / "helper.py").write_text(PATCHED)
    first = "import helper\nfrom helper import plain, wrapped, told\nkept, replaced = helper.Kept(), helper.Replaced"
    run_all(kernel, (first, *PATCHES))

    run_all(kernel, ("%ctx goto 1",))

    assert [one for one in PATCHES.values() if not is_true(kernel, one)] == []
    run_all(kernel, (f"%ctx goto {1 + len(PATCHES)}",))
    still = "helper.plain() == 'x' and kept.method() == 'x' and issubclass(int, helper.Shape) and len(kept) == 9"
    assert is_true(kernel, still)
    assert is_true(kernel, "not hasattr(helper, 'removed') and plain() == 'code' and helper.Replaced is not replaced")


def test_a_resume_names_a_module_whose_file_was_edited_after_it_was_loaded(start_kernel, tmp_path):
    """The function that the state had is not stored: the new kernel has that of the file."""
    file = tmp_path / "edited_later.py"
    file.write_text("def rate(): return 1\n")
    kernel = start_kernel()
    for cell in ("import edited_later", "from edited_later import rate", "x = rate()"):
        assert kernel.run(cell).status == "ok"
    kernel.stop()

    same = start_kernel(tmp_path)
    assert "edited_later" not in same.run("%ctx resume").stdout.partition("\n")[2]
    file.write_text("# an editor saved it\ndef rate(): return 22\n")
    same.run("y = rate()")
    same.stop()

    again = start_kernel(tmp_path)
    told = again.run("%ctx resume").stdout
    assert again.evaluate("(x, y, rate())") == "(1, 1, 22)"
    assert "loaded later, and as it is now: module edited_later" in told


def test_a_return_names_a_module_that_was_loaded_again(kernel):
    """What its file defines is as it is now: a return does not bring back code that the user has edited."""
    (kernel.folder / "helper.py").write_text("def f(): return 1\n")
    run_all(kernel, ("import helper, importlib", "x = 1"))
    (kernel.folder / "helper.py").write_text("def f(): return 'edited'\n")
    run_all(kernel, ("importlib.reload(helper)",))

    went = kernel.run("%ctx goto 2")

    assert "loaded later, and as it is now: module helper" in went.stdout
    assert is_true(kernel, "helper.f() == 'edited'")


def test_a_widget_that_a_return_sets_back_is_not_said_to_be_as_it_is_now(kernel):
    """All that a stock widget has are traits, which each state has. A class of the user's may have more."""
    kernel.run("import ipywidgets as w\ns = w.IntSlider()\nbox = w.VBox([s])\nbox")
    kernel.run("class Own(w.IntSlider): pass\nown = Own()\nown.more = 1")
    kernel.run("t = w.Text(); t.note = 1; texts = [t]; late = w.Text()")
    kernel.run("s.value = 5; own.value = 5; own.more = 2; t.note = 2; t.value = late.value = 'b'; late.note = 1")

    told = kernel.run("%ctx goto 3").stdout

    assert listed(told, "as it is now: ").keys() == {"late", "own", "t", "texts[0]"}, told
    assert kernel.evaluate("(s.value, box.children[0] is s, own.value, own.more)") == "(0, True, 0, 2)"


def test_names_of_an_array_that_is_written_back_in_place_are_told_as_restored(kernel):
    """They stay bound to it, and it has the content of the state again."""
    run_all(kernel, ["import numpy as np; a = np.arange(100_000); v = a[1:]; w = [a]; n = 1", "w, v", "a[2] = 9"])

    plan = json.loads(kernel.run("%ctx goto 2 --dry-run --json").stdout)
    went = kernel.run("%ctx goto 2").stdout

    assert went.startswith("at s2: 3 names restored (a, v, w), 2 kept as they are")
    assert (set(plan["keep"]), [{*one["names"]} for one in plan["load"]]) == ({"n", "np"}, [{"a", "v", "w"}])
    assert kernel.evaluate("(int(a[2]), int(v[1]), w[0] is a)") == "(2, 2, True)"
