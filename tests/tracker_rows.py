"""Cells and what they change, as rows of data; and a notebook that runs them in a tracked namespace."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ctxkernel.core.timeline import NamespaceDiff
from ctxkernel.state.tracking.tracker import NamespaceTracker


class Notebook:
    """Runs cells in a namespace that is tracked."""

    def __init__(self, *cells: str, namespace: dict[str, Any] | None = None, **options: Any) -> None:
        self.namespace: dict[str, Any] = (
            {"__name__": "__main__", "np": np, "pd": pd} if namespace is None else namespace
        )
        self.tracker = NamespaceTracker(self.namespace, **options)
        self.outside = NamespaceDiff()
        for cell in cells:
            self.run(cell)

    def run(self, cell: str, expired: Callable[[], bool] = lambda: False) -> NamespaceDiff:
        cell = textwrap.dedent(cell)
        self.outside = self.tracker.before(cell)
        exec(compile(cell, "<cell>", "exec"), self.namespace)
        return self.tracker.after(expired)


def names(text: str) -> set[str]:
    return set(text.split())


@dataclass(frozen=True)
class Case:
    id: str
    setup: str
    cell: str
    changed: str = ""
    added: str = ""
    deleted: str = ""
    how: str = ""


# One row a kind of change. Every setup has names beside those that change: they must not be named.
# fmt: off
CHANGES = [
    Case("a new name", "a = 1", "b = a + 1", added="b"),
    Case("an int", "x = 1; y = 2", "x = 5", "x", how="rebound"),
    Case("an equal number of another type", "x = 1", "x = 1.0", "x"),
    Case("zero to minus zero", "x = 0.0", "x = -0.0", "x"),
    Case("a name deleted", "x = 1; y = [x]", "del x", deleted="x"),
    Case("deleted and made again", "x = [1]; y = [2]", "del x; x = [3]", "x"),
    Case("a name moves", "x = [1]", "y = x; del x", added="y", deleted="x"),
    Case("append", "a = [1]; b = [1]", "a.append(2)", "a", how="mutated"),
    Case("an item", "a = [1, 2]; b = [1, 2]", "a[1] = 3", "a"),
    Case("extend in place", "a = [1]; b = [1]", "a += [2]", "a", how="mutated"),
    Case("a sort", "a = [3, 1, 2]", "a.sort()", "a"),
    Case("deep in a list", "a = [[1, [2, {'k': [3]}]]]", "a[0][1][1]['k'].append(4)", "a"),
    Case("deep in a dict", "d = {'a': {'b': {'c': 1}}}; e = {}", "d['a']['b']['c'] = 2", "d"),
    Case("the order of a dict", "d = {'a': 1, 'b': 2}", "d['a'] = d.pop('a')", "d"),
    Case("a key that is a tuple", "d = {(1, 2): 'a'}", "d[(1, 2)] = 'b'", "d"),
    Case("an alias", "a = [1]; b = a; c = [1]", "b.append(2)", "a b"),
    Case("an alias made in the cell", "a = [1]; c = [1]", "b = a; b.append(2)", "a", added="b"),
    Case("in a container", "a = [1]; d = {'k': a}; e = {'k': [1]}", "a.append(2)", "a d"),
    Case("through a container", "a = [1]; d = {'k': a}; e = {'k': [1]}", "d['k'].append(2)", "a d"),
    Case("in a container of a container", "a = [1]; d = {'k': (a,)}; e = [d]", "a.append(2)", "a d e"),
    Case("one of many records with names", "r = [{'t': [i]} for i in range(3000)]; one = r[1]; b = r[2]; c = [b]",
         "one['x'] = 1", "r one"),
    Case("a list beside a long one", "words = [str(i) for i in range(3000)]; n = [1]; both = {'w': words, 'n': n}",
         "n.append(2)", "n both"),
    Case("a set", "s = {1}; t = {1}", "s.add(2)", "s"),
    Case("a set of tuples", "s = {(1, 2)}", "s.add((3, 4))", "s"),
    Case("a set loses and gains", "s = {1, 'a', None}", "s.remove(None); s.add('b')", "s"),
    Case("a deque", "from collections import deque; q = deque([1], 3)", "q.appendleft(0)", "q"),
    Case("a bytearray", "b = bytearray(b'ab'); c = bytearray(b'ab')", "b[0] = 0", "b"),
    Case("a long bytearray", "b = bytearray(5000); c = [bytearray(5000)]", "b[4000] = 7; c[0][4000] = 7", "b c"),
    Case("a memoryview", "b = bytearray(b'ab'); m = memoryview(b)", "m[0] = 0", "b m"),
    Case("an array.array", "from array import array; a = array('i', [1, 2])", "a[0] = 5", "a"),
    Case("a Counter", "from collections import Counter; c = Counter('ab')", "c.update('a')", "c"),
    Case("a defaultdict by reading", "from collections import defaultdict; d = defaultdict(list)", "d['k']", "d"),
    Case(
        "the order of an OrderedDict",
        "from collections import OrderedDict; o = OrderedDict(a=1, b=2)",
        "o.move_to_end('a')",
        "o",
    ),
    Case("an attribute", "class P: pass\np = P(); q = P()", "p.x = 1", "p", how="mutated"),
    Case("an attribute in slots", "class P:\n __slots__ = ('x',)\np = P(); p.x = 1; q = P()", "p.x = 2", "p"),
    Case("an inherited slot", "class A:\n __slots__ = ('x',)\nclass B(A): pass\nb = B()", "b.x = 2", "b"),
    Case("a deleted attribute", "class P: pass\np = P(); p.x = 1", "del p.x", "p"),
    Case("by vars()", "class P: pass\np = P(); v = vars(p)", "v['x'] = 1", "p v"),
    Case("nested objects", "class P: pass\np = P(); p.q = P(); p.q.r = [1]", "p.q.r.append(2)", "p"),
    Case(
        "a dataclass",
        "from dataclasses import dataclass\n@dataclass\nclass D:\n x: int\nd = D(1); e = D(1)",
        "d.x = 2",
        "d",
    ),
    Case("a subclass of list", "class L(list): pass\nl = L([1]); m = L([1])", "l.append(2)", "l"),
    Case("an attribute of a subclass of dict", "class D(dict): pass\nd = D(a=1)", "d.x = 2", "d"),
    Case("a method", "class P:\n def go(self): self.x = 1\np = P(); q = P()", "p.go()", "p"),
    Case("a class attribute", "class P:\n n = 0\np = P(); q = [p]", "P.n = 1", "P"),
    Case("a class attribute by a method", "class P:\n n = 0\n def go(self): type(self).n += 1\np = P()", "p.go()", "P"),
    Case(
        "a registry of a class", "class P:\n all = []\n def __init__(self): P.all.append(1)\nx = 1", "q = P()", "P", "q"
    ),
    Case(
        "a registry by __init_subclass__",
        "class P:\n all = []\n def __init_subclass__(cls): P.all.append(1)",
        "class Q(P): pass",
        "P",
        "Q",
    ),
    Case("global in a function", "def f():\n global x\n x = [2]\nx = [1]; y = [1]", "f()", "x"),
    Case("a new name by a function", "def f():\n global x\n x = [2]\ny = [1]", "f()", added="x"),
    Case("a function mutates", "def f(): a.append(1)\na = []; b = []", "f()", "a"),
    Case("through two functions", "def g(): a.append(1)\ndef f(): g()\na = []; b = []", "f()", "a"),
    Case("a function in a dict", "def f(): a.append(1)\nd = {'run': f}; a = []; b = []", "d['run']()", "a"),
    Case("a lambda in an object", "class P: pass\np = P(); p.f = lambda: a.append(1)\na = []; b = []", "p.f()", "a"),
    Case("a partial", "from functools import partial\na = []; p = partial(list.append, a)", "p(1)", "a p"),
    Case("a bound method", "a = []; add = a.append; b = []", "add(1)", "a add"),
    Case("an own bound method", "class P:\n def go(self): self.x = 1\np = P(); go = p.go; q = P()", "go()", "p go"),
    Case(
        "a decorated function",
        "from functools import wraps\ndef deco(f):\n @wraps(f)\n def w(): return f()\n return w\n"
        "@deco\ndef g(): a.append(1)\na = []",
        "g()",
        "a",
    ),
    Case(
        "a memoised function", "from functools import lru_cache\n@lru_cache\ndef g(): a.append(1)\na = []", "g()", "a"
    ),
    Case(
        "a closure's variable",
        "def make():\n n = 0\n def f():\n  nonlocal n\n  n += 1\n return f\nf = make(); g = make()",
        "f()",
        "f",
    ),
    Case(
        "a closure's list", "def make(l):\n def f(): l.append(1)\n return f\na = []; f = make(a); b = []", "f()", "a f"
    ),
    Case("a default argument", "def f(l=[]): l.append(1)\nx = 1", "f()", "f"),
    Case("a function attribute", "def f(): pass\nx = 1", "f.n = 1", "f"),
    Case("a function defined anew", "def f(): return 1\nx = 1", "def f(): return 2", "f", how="rebound"),
    Case(
        "a call moved from try to else",
        "def f():\n try: g(); return h()\n except ValueError: return 0",
        "def f():\n try: g()\n except ValueError: return 0\n else: return h()",
        "f",
        how="rebound",
    ),
    Case("a property writes", "class P:\n @property\n def x(self): self.n = 1\np = P(); q = P()", "p.x", "p"),
    Case("an operator writes", "class P:\n def __add__(self, o): a.append(1)\np = P(); a = []", "p + 1", "a"),
    Case("globals().update", "x = 1; y = 2", "globals().update(x=3, z=4)", "x", "z"),
    Case("globals() mutates", "x = [1]; y = [2]", "globals()['x'].append(3)", "x"),
    Case("exec", "x = [1]; y = 2", "exec('x.append(2); z = 1')", "x", "z"),
    Case("exec in a function", "def f(): exec('x.append(2)', globals())\nx = [1]; y = [2]", "f()", "x"),
    Case("a function of exec's own scope", "d = {'a': []}\nexec('def f(): a.append(1)', d)\nf = d['f']", "f()", "d"),
    Case(
        "an object of a class of exec's own scope",
        "d = {}\nexec('class K:\\n n = 0\\n def go(self): K.n += 1', d)\nk = d['K']()",
        "k.go()",
        "d",
    ),
    Case("setattr on the main module", "import sys; x = [1]", "sys.modules.get('__none__'); x.append(1)", "x"),
    Case("a walrus in a comprehension", "x = 1", "[y := i for i in range(3)]; [x := i for i in range(3)]", "x", "y"),
    Case("a loop's variable", "i = 0; x = 1", "for i in range(3): j = i", "i", "j"),
    Case("with, except, import as", "x = 1", "import os as o\nfrom os import path as p", added="o p"),
    Case("unpacking", "a, b, c = 1, 2, 3", "a, b = b, a", "a b"),
    Case("a swap of lists", "a, b, c = [1], [2], [3]", "a, b = b, a", "a b"),
    Case("augmented", "n = 1; m = 1", "n += 1", "n"),
    Case("a generator advances", "g = (i for i in range(9)); h = (i for i in range(9))", "next(g)", "g"),
    Case("an iterator advances", "g = iter([1, 2, 3]); h = iter([1, 2, 3])", "next(g)", "g"),
    Case("a count advances", "import itertools; c = itertools.count(); d = itertools.count()", "next(c)", "c"),
    Case("a zip advances", "z = zip([1, 2], 'ab')", "next(z)", "z"),
    Case("a StringIO", "import io; s = io.StringIO(); t = io.StringIO()", "s.write('x')", "s"),
    Case("a BytesIO's position", "import io; s = io.BytesIO(b'abc')", "s.read(1)", "s"),
    Case("a random generator", "import random; r = random.Random(1); q = random.Random(1)", "r.random()", "r"),
    Case("NumPy's generator", "r = np.random.default_rng(1); q = np.random.default_rng(1)", "r.random()", "r"),
    Case("an element of an array", "a = np.arange(5); b = np.arange(5)", "a[3] = 0", "a"),
    Case("a large array", "a = np.ones(300_000); b = np.ones(300_000)", "a[123_457] = 0", "a"),
    Case("an array in place", "a = np.ones(3); b = np.ones(3)", "a *= 2", "a"),
    Case("through a view", "a = np.arange(9); v = a[2:5]; w = np.arange(9)", "v[0] = 99", "a v"),
    Case("through a view of a view", "a = np.arange(9); v = a[2:8][::2]; w = a[:1]", "a[4] = 99", "a v"),
    Case("a view made in the cell", "a = np.arange(9); b = np.arange(9)", "v = a.reshape(3, 3); v[1] = 0", "a", "v"),
    Case("a transposed large array", "a = np.ones((600, 700)).T[::2]; b = np.ones(9)", "a[77, 77] = 0", "a"),
    Case("an array in Fortran order", "a = np.asfortranarray(np.ones((600, 700)))", "a[77, 77] = 0", "a"),
    Case("an object array", "a = np.array([[1], 'x', None], dtype=object); b = a.copy()", "a[1] = 'y'", "a"),
    Case("in an object array", "l = [1]; a = np.array([l, None], dtype=object)", "l.append(2)", "l a"),
    Case("a view of a structured array",
         "a = np.zeros(30, [('x', 'i4'), ('y', 'f8')]); v = a.reshape(-1); b = np.broadcast_to(a, (2, 30))",
         "a[2] = (9, 9)", "a v b"),
    Case("one of two names for a long list", "a = list(range(9000)); b = a", "b = 5", "b"),
    Case("one of two names for a long bytearray", "a = bytearray(40_000); b = a", "b = 5", "b"),
    Case("what is in a dict beside an array gets a name", "s = [1]; a = np.zeros(3); d = {'a': a, 's': s}",
         "a[0] = 5; t = s", "a d", "t"),
    Case("a structured array", "a = np.zeros(3, dtype=[('x', 'i4'), ('y', 'f8')])", "a['y'][1] = 5", "a"),
    Case("a masked array", "a = np.ma.array([1, 2, 3], mask=[0, 0, 1])", "a.mask[0] = True", "a"),
    Case("a view of a masked array", "m = np.ma.array([1, 2]); a = m[1:]; v = a.view(np.ndarray)", "a[0] = 9", "m a v"),
    Case("a view of a matrix", "class A(np.ndarray): pass\na = np.zeros(4).view(A); v = a[1:][1:]", "v[0] = 9", "a v"),
    Case("an array over a bytearray", "b = bytearray(8); a = np.frombuffer(b, dtype='u1')", "b[3] = 7", "a b"),
    Case("an array's shape", "a = np.arange(6); b = np.arange(6)", "a = a.reshape(2, 3)", "a"),
    Case("an array's dtype", "a = np.zeros(4, 'i4')", "a = np.zeros(4, 'f4')", "a"),
    Case("a column", "df = pd.DataFrame({'a': [1, 2]}); dg = df.copy()", "df['b'] = 3", "df"),
    Case("a cell of a frame", "df = pd.DataFrame({'a': [1, 2]}); dg = df.copy()", "df.loc[0, 'a'] = 9", "df"),
    Case("a text in a frame", "df = pd.DataFrame({'a': ['x', 'y']}); dg = df.copy()", "df.loc[0, 'a'] = 'z'", "df"),
    Case("a column popped", "df = pd.DataFrame({'a': [1, 2], 'b': 1})", "df.pop('b')", "df"),
    Case("columns renamed", "df = pd.DataFrame({'a': [1, 2]})", "df.columns = ['b']", "df"),
    Case("the index's name", "df = pd.DataFrame({'a': [1, 2]})", "df.index.name = 'n'", "df"),
    Case("a frame's attrs", "df = pd.DataFrame({'a': [1, 2]})", "df.attrs['unit'] = 'm'", "df"),
    Case("a series", "s = pd.Series([1.0, 2.0]); t = s.copy()", "s.iloc[0] = 5", "s"),
    Case("a category", "s = pd.Series(['a', 'b'], dtype='category')", "s.iloc[0] = 'b'", "s"),
    Case("categories", "s = pd.Series(['a', 'b'], dtype='category')", "s = s.cat.add_categories('c')", "s"),
    Case("a missing value", "s = pd.Series([1, None], dtype='Int64')", "s.iloc[1] = 0", "s"),
    Case(
        "a time zone",
        "s = pd.Series(pd.date_range('2020', periods=2, tz='UTC'))",
        "s = s.dt.tz_convert('Asia/Tokyo')",
        "s",
    ),
    Case("a period", "s = pd.Series(pd.period_range('2020', periods=3, freq='M'))", "s.iloc[0] = s.iloc[1]", "s"),
    Case("an interval", "s = pd.Series(pd.interval_range(0, 3))", "s.iloc[0] = s.iloc[1]", "s"),
    Case(
        "a sparse series",
        "s = pd.Series(pd.arrays.SparseArray([0, 0, 1]))",
        "s = pd.Series(pd.arrays.SparseArray([0, 1, 0]))",
        "s",
    ),
    Case("a level of an index", "i = pd.MultiIndex.from_tuples([(1, 'a')])", "i = i.set_levels(['b'], level=1)", "i"),
    Case("frames in a dict", "d = {'k': pd.DataFrame({'a': [1]})}; e = dict(d)", "d['k'].loc[0, 'a'] = 2", "d e"),
    Case("an array of a frame's own object", "class M: pass\nm = M(); m.w = np.zeros(3)", "m.w[0] = 1", "m"),
    Case("a recursive list", "a = [1]; a.append(a); b = [1]", "a[0] = 2", "a"),
    Case("sharing inside", "x = [1]; a = [x, x]; del x", "a[1] = [1]", "a"),
    Case("a huge int", "n = 10 ** 5000; m = 1", "n += 1", "n"),
    Case("a huge text", "s = 'x' * 100_000; t = 'x'", "s = s[:-1] + 'y'", "s"),
    Case("the tail of a long list", "a = list(range(50_000)); b = [1]", "a[-1] = -1", "a"),
    Case("the middle of a long list", "a = list(range(50_000)); b = [1]", "a[31_111] = -1", "a"),
    Case("one record of many", "a = [{'k': i} for i in range(9_000)]; b = [1]", "a[8_888]['k'] = -1", "a"),
    Case("one record by its own name", "a = [{'k': i} for i in range(9_000)]; r = a[4_444]", "r['k'] = -1", "a r"),
    Case("an exception's arguments", "e = ValueError([1])", "e.args[0].append(2)", "e"),
    Case("a namespace object", "import types; n = types.SimpleNamespace(a=1)", "n.a = 2", "n"),
    Case("an enum is bound anew", "from enum import Enum\nclass E(Enum):\n A = 1\n B = 2\ne = E.A", "e = E.B", "e"),
    Case("a date", "import datetime as dt; d = dt.datetime(2020, 1, 1)", "d = d.replace(year=2021)", "d"),
    Case("a path", "from pathlib import Path; p = Path('a'); q = Path('a')", "p = p / 'b'", "p"),
    Case("an opaque object bound anew", "import threading; l = threading.Lock(); k = [1]", "l = threading.Lock()", "l"),
    Case("an own class loses an attribute", "class P:\n x = 1\np = P()", "del P.x", "P"),
    Case("another class", "class P: pass\nclass Q: pass\np = P()", "p.__class__ = Q", "p"),
    Case("a type alias of a class", "class P:\n x = []\nR = P", "R.x.append(1)", "P R"),
]
# fmt: on

# Libraries that may be absent: module, setup, cell, what changed.
# fmt: off
LIBRARIES = [
    ("matplotlib", "fig, ax = plt.subplots(); n = 1", "ax.plot([1, 2])", "fig ax"),
    ("matplotlib", "fig, ax = plt.subplots(); ax.bar([1, 2], [3, 4])", "ax.patches[0].set_height(9)", "fig ax"),
    ("matplotlib", "fig, ax = plt.subplots()", "ax.set_xlim(0, 5); ax.set_xlabel('x')", "fig ax"),
    ("matplotlib", "fig, ax = plt.subplots(); ax.plot([1, 2]); ax.scatter([1], [2]); ax.imshow([[1, 2]])",
     "ax.get_ylabel(); ax.get_title()", ""),
    ("matplotlib", "fig, ax = plt.subplots(); n = [1]; held = [fig, n]", "n.append(2)", "n held"),
    ("matplotlib", "fig, ax = plt.subplots(); n = [1]; held = [fig, n]", "ax.set_title('x')", "fig ax held"),
    ("matplotlib", "fig, axes = plt.subplots(1, 2); n = [1]; held = [axes, n]", "n.append(2)", "n held"),
    ("matplotlib", "held = [plt.subplots() for _ in range(3)]; fig, ax = held[0]; other, n = held[2]",
     "ax.set_title('x')", "fig ax held"),
    ("matplotlib", "fig, ax = plt.subplots(); held = [fig]; axes = {'a': ax}",
     "fig, ax = plt.subplots(); ax.plot([1])", "fig ax"),
    ("matplotlib", "class P: pass\np = P(); p.fig, p.ax = plt.subplots(); p.n = n = [1]; line = p.ax.plot([1, 2])[0]",
     "n.append(2)", "n p"),
    ("ipywidgets", "import ipywidgets as w; s = w.IntSlider(value=1); b = w.VBox([s])", "s.value = 5", "s"),
    ("ipywidgets", "import ipywidgets as w; s = w.IntSlider(value=1)", "s.comm; repr(s); s.keys; s.value = 1", ""),
    ("sklearn", "from sklearn.linear_model import Ridge; m = Ridge(); x = [[1.0], [2.0]]", "m.fit(x, [1, 2])", "m"),
    ("sklearn", "from sklearn.linear_model import Ridge; m = Ridge(); x = [[1.0], [2.0]]; m.fit(x, [1, 2])",
     "m.predict(x); m.fit(x, [1, 2]); repr(m)", ""),
    ("scipy", "import scipy.sparse as sp; a = sp.eye(9, format='csr'); b = a.copy()", "a[0, 0] = 5", "a"),
    ("scipy", "import scipy.sparse as sp; a = sp.eye(9, format='csr')", "a.sum(); a @ a; a.has_sorted_indices", ""),
    ("pyarrow", "import pyarrow as pa; t = pa.table({'a': [1]})", "t = pa.table({'a': [1]})", ""),
    ("pyarrow", "import pyarrow as pa; t = pa.table({'a': [1]})", "t = pa.table({'a': [2]})", "t"),
    ("pyarrow", "s = pd.Series(['a', 'b'] * 999, dtype='string[pyarrow]')", "s.iloc[5] = 'cc'", "s"),
    ("polars", "import polars as pl; p = pl.DataFrame({'a': [1], 's': ['x']}); q = p.clone()", "p[0, 'a'] = 9", "p"),
    ("polars", "import polars as pl; p = pl.DataFrame({'a': [1]})", "p = pl.DataFrame({'a': [1]}); p.describe()", ""),
    ("torch", "import torch; t = torch.zeros(3); u = torch.zeros(3)", "t[0] = 5", "t"),
    ("torch", "import torch; t = torch.zeros(3)", "t = torch.zeros(3); t.sum()", ""),
    ("torch", "import torch; a = np.zeros(3); t = torch.from_numpy(a); v = t[1:]", "a[1] = 5", "a t v"),
    ("torch", "import torch; t = torch.zeros(3, dtype=torch.bfloat16, requires_grad=True)", "t.data[0] = 5", "t"),
    ("torch", "import torch; m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters(), 0.1)",
     "m(torch.ones(1, 2)).sum().backward(); o.step()", "m o"),
    ("torch", "import torch; m = torch.nn.Linear(2, 2); m.eval()", "m(torch.ones(1, 2)); repr(m)", ""),
]
# fmt: on

# fmt: off
UNCHANGED = [
    ("the same int", "x = 1000; y = 1", "x = 1000"),
    ("the same text", "x = 'a b'", "x = 'a' + ' b'"),
    ("nan", "x = float('nan')", "x = float('nan')"),
    ("an equal list", "x = [1, [2], {'k': 3}]", "x = [1, [2], {'k': 3}]"),
    ("an equal list in the place of the old one", "x = [1]", "x = None; x = [1]"),
    ("an equal set of another history", "x = {1, 2, 3}", "x = {9, 3, 2, 1}; x.remove(9)"),
    ("an equal array", "x = np.arange(5)", "x = np.arange(5)"),
    ("an equal frame", "df = pd.DataFrame({'a': [1], 'b': ['x']})", "df = pd.DataFrame({'a': [1], 'b': ['x']})"),
    ("reading a frame", "df = pd.DataFrame({c: np.ones(20_000) for c in 'abc'}); df['d'] = 1.5",
     "df.describe(); df.values; df.mean(); df.sum(axis=1); df['a']; repr(df)"),
    ("a frame from one array", "df = pd.DataFrame(np.ones((40_000, 4))); df['n'] = 1.0",
     "df.values; df.describe(); df.mean()"),
    ("copies of frames", "df = pd.DataFrame({'a': [1, 2]}); dg = df[:]", "dg.loc[0, 'a']; df.head()"),
    ("the same function", "def f(x):\n return x + 1", "def f(x):\n    return x + 1"),
    ("the same class", "class P:\n def f(self): return 1", "class P:\n\n    def f(self): return 1"),
    ("a cached property",
     "from functools import cached_property\nclass P:\n @cached_property\n def x(self): return 1\np = P()", "p.x"),
    ("a memoised call", "from functools import lru_cache\n@lru_cache\ndef f(x): return x", "f(1); f(2)"),
    ("calls that only read", "a = [3, 1]; d = {'k': a}; s = {1}",
     "len(a), sorted(a), d['k'], d.get('z'), 1 in s, a == [1]"),
    ("an instance of a class made anew", "class P: pass\np = P()", "class P: pass"),
    ("a logger", "import logging; log = logging.getLogger('x')", "log.debug('y'); log.isEnabledFor(10)"),
    ("a regular expression", "import re; r = re.compile('a+')", "r.match('aa'); r = re.compile('a+')"),
    ("a path", "from pathlib import Path; p = Path('a/b')", "str(p); p.parts; p.name; hash(p)"),
    ("the locals of a generator", "import inspect\ndef f(k):\n while True: yield k\ng = f([1]); next(g)",
     "inspect.getgeneratorlocals(g)"),
    ("an iterator untouched", "g = (i for i in range(3)); i = iter([1]); z = zip([1], [2])", "g; i; z"),
    ("a local of the same name", "x = [1]", "def f(x): x.append(1)\nf([])"),
]
# fmt: on

DECORATORS = """
    from abc import ABC, abstractmethod
    from dataclasses import dataclass, field
    from enum import Enum
    from functools import cached_property, lru_cache, partial
    from typing import NamedTuple, Optional
    """
DECORATED = """
    @dataclass
    class D:
        x: int = 0
        y: list[int] = field(default_factory=list)
        z: Optional[int] = None
    class E(Enum):
        A = 1
    class N(NamedTuple):
        a: int
    class B(ABC):
        @abstractmethod
        def f(self): ...
        @cached_property
        def g(self): return 1
        @property
        def h(self): ...
        @staticmethod
        def i(): ...
        @classmethod
        def j(cls): ...
    @lru_cache
    def q(x): return x
    d, n, e, p = D(), N(1), E.A, partial(q, 1)
    """
