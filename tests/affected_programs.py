"""Random notebooks and edits for `affected_bench`: small cells that depend on each other in many ways.

Each letter in braces stands for one of a few names, which hold values of one kind unless a cell binds another one:
`{i}` numbers, `{l}` lists, `{g}` functions, `{k}` classes, `{o}` instances, `{v}` arrays, `{t}` frames, `{s}` texts,
`{a}` any of them. `{n}` is a small number, `{f}` a file.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

NAMES = {
    "{i}": ("a", "b"),
    "{l}": ("c", "d"),
    "{g}": ("f", "g"),
    "{k}": ("K", "L"),
    "{o}": ("o", "p"),
    "{v}": ("v", "w"),
    "{t}": ("t",),
    "{s}": ("s",),
    "{a}": ("a", "b", "c", "d", "o", "v", "s"),
    "{n}": ("0", "1", "2", "3", "4"),
    "{f}": ("'f0.txt'", "'f1.txt'"),
}
SETUP = (
    "import random, math, functools\nfrom pathlib import Path",
    "import numpy as np\nimport pandas as pd",
    "{i} = 1",
    "c = [1]\nd = [2, 3]",
    "def f(v=None): return v\ng = f",
    "class K:\n k = 1\n def __init__(s, v=0): s.v = v\n get = lambda s: s.v\n __repr__ = lambda s: 'K'\nL = K",
    "o = K(1)\np = o",
    "v = np.arange(5)\nw = v[1:]",
    "t = pd.DataFrame({'u': [1, 2], 'v': [3, 4]})",
    "s = 'text'\na = 1\nb = 2",
)
TEMPLATES = r"""
{i} = {n}
{i} = {i} + {n}
{i} += {n}
{i} = len({l})
{l} = [{n}, {i}]
{l} = {l}
{l} = [{i}, {l}]
{l} = list({l})
{l}.append({n})
{l}.append({a})
{l} += [{n}]
{l}[:1] = [{n}]
{s} = str({a})
print({a})
print({i}, {l})
{a}
{i}; {l}
del {i}
if {i}: {l} = [{n}]
for {i} in range({n}): pass
try: {i} = {s} + {s}\nexcept (NameError, TypeError): {i} = {n}
try: z\nexcept NameError: z = {n}
z = {n}
def {g}(v=None): return v, {i}
def {g}(v={n}):\n    global {i}\n    {i} = {n}
def {g}(v=[]):\n    v.append({n})\n    return v
def {g}(v=1):\n    # {n}\n    return {n}
def {g}(v=1): return math.floor({n}.5) + len({l})
{g} = lambda v={n}: {a}
{g} = {g}
{g} = functools.partial({g}, {n})
{l} = [{g}]
{l}[-1](1)
{i} = {n} if {g}() else 2
{g}()
print({g}({n}))
def make(k):\n    held = [k]\n    def add(v=0): held.append(v); return list(held)\n    return add\n{g} = make({n})
class {k}(K):\n    k = {n}\n    def __init__(self, v=None): self.v = v\n    def get(self): return self.v, {i}
class {k}(K):\n    def get(self): return {n}
{k}.k = {n}
{k}.get = lambda self: {i}
{o} = {k}({a})
{o}.v = {a}
{o} = {o}
print({o}.get(), {o}.k)
{l} = [{o}, {o}]
{i} = random.random()
random.seed({n})
random.seed({n}); {i} = random.random()
{v} = np.random.rand(3)
np.random.seed({n})
open({f}, 'w').write('{n}')
Path({f}).write_text(str({a}))
{s} = open({f}).read() if Path({f}).name else ''
print(open({f}).read())
with open({f}, 'w') as file: file.write(str({i}))
{v} = np.arange({n} + 3)
{v} = {v}[1:]
{v} = {v} + {n}
{v}[:1] = {n}
{v} = np.arange({n} + 100000)
{i} = int({v}.sum())
{t} = pd.DataFrame({'u': [{n}, 2], 'v': [3, {n}]})
{v} = {t}['u'].to_numpy()
{t}['v'] = {n}
{t}.loc[0, 'u'] = {n}
{t} = {t}.copy()
print({t}.sum().to_dict())
{t}
sum = lambda v: {n}
{i} = sum([{n}, 2])
%%time\n{i} = {n}
%time {i} = len({l})
%%capture out\nprint({a})
%%writefile f0.txt\n{n}
{i} = globals().get('{i}', {n})
exec('{i} = {n}')
{s} = sorted(n for n in globals() if n in 'abcdz')
{i} = _
q = iter([{n}, 7, 8])
{i} = next(q)
r = (v for v in [{n}, 5, 6])
{i} = next(r)
@functools.lru_cache\ndef {g}(v=1):\n    print('computed', v)\n    return v
pd.set_option('display.precision', {n} + 1)
import decimal\ndecimal.getcontext().prec = {n} + 3
import decimal\n{s} = str(decimal.Decimal(1) / 3)
import os\nos.environ['AFFECTED'] = '{n}'
import os\n{s} = os.environ.get('AFFECTED')
import sys; sys.argv.append(str({n}))
import sys; print(sys.argv[-1:])
h = view({s})
_ = {n}
{l} = [_, {n}]
import dataclasses\n@dataclasses.dataclass\nclass {k}:\n    v: int = {n}\n    k = 2\n    def get(self): return self.v
{g} = print
{l} = [[]] * {n}
{l} = [{l}, {l}]
print({l} is {l}, {o} is {o})
{s} = dict(zip('ab', [{a}, {a}]))
1 / {i}
assert {i}
match {i}:\n    case 1: {l} = [{n}]\n    case _: pass
if not {l}: raise ValueError({i})
{i}, {l} = {n}, [{i}]
print(t.query('u > @a').to_dict())
import json\n{s} = json.dumps({i})
print(f'{{i}:>{n}}')
""".strip().splitlines()
CLASS_TEMPLATES = r"""
class K:\n k = {n}\n def __init__(s, v=0): s.v = v\n def get(s): return s.v, s.k, {i}\n __repr__ = lambda s: 'K'
class {k}:\n k = {n}\n items = [{n}]\n def __init__(s, v=0): s.items.append(v)\n def get(s): return list(s.items)
class {k}(K):\n def get(s): return super().get(), {n}
class {k}({k}):\n def get(s): return {n}, K.k
class {k}(K):\n def __eq__(s, other): return type(other) is type(s)\n def __hash__(s): return {n}
class {k}:\n __slots__ = ('v',)\n k = {n}\n def __init__(s, v=0): s.v = v\n @property\n def get(s): return lambda: s.v
class {k}:\n k = {n}\n class Inner:\n  n = {n}\n def __init__(s, v=0): s.v = s.Inner()\n get = lambda s: s.v.n
class {k}:\n k = {n}\n @classmethod\n def make(c): return c()\n @staticmethod\n def get(): return {i}
{o} = {k}.make() if hasattr({k}, 'make') else {k}({n})
{o}.__class__ = {k}
print({k}.k, {k}.__name__, isinstance({o}, {k}), issubclass({k}, K))
print(type({o}) is {k}, {o} == {k}({n}))
{l} = [{k}, {o}]
{l} = sorted(n for n in vars({k}) if n[0] != '_')
def {g}(v=None): return {k}(v).get()
setattr({k}, 'k', {a})
{k}.items = {l}
""".strip().splitlines()
"""Definitions of classes, and what depends on them."""
ARRAY_TEMPLATES = r"""
v = np.arange({n}, {n} + 6)\nw = v[1:]
{v} = {v}[::-1]
{v} = {v}.reshape(-1, 1)
{v} *= {n}
{v} += {v}
np.add({v}, {n}, out={v})
{v}.sort()
{v}.fill({n})
{v}.flat[{n} % max({v}.size, 1):] = {n}
{v}[{v} > {n}] = {n}
{l} = [{v}, {v}[1:]]
{l}[0][:1] += 1
def {g}(v={v}):\n    v[:1] = {n}\n    return v.sum()
{o}.v = {v}
{o}.v[:2] -= 1
{t} = pd.DataFrame({'u': np.arange(4.0), 'v': {n}})\n{v} = {t}['v'].to_numpy(copy=True)
x = memoryview({v})
print({v}.tolist(), np.shares_memory(v, w), {v}.flags.owndata)
{i} = float({v}.sum() + w.sum())
{v}.setflags(write={n} != 0)
""".strip().splitlines()
"""Arrays that share memory, and changes in place."""
EDITS = ("edit", "edit", "number", "number", "comment", "insert", "delete", "move", "double")


def cell(choose: random.Random, template: str = "") -> str:
    """Return the text of a cell."""
    source = (template or choose.choice(TEMPLATES)).replace("\\n", "\n")
    for sign, values in NAMES.items():
        while sign in source:
            source = source.replace(sign, choose.choice(values), 1)
    return source


def notebook(choose: random.Random, size: int) -> list[str]:
    """Return the cells of a notebook."""
    return [*(cell(choose, one) for one in SETUP), *(cell(choose) for _ in range(size))]


def with_classes_and_arrays(choose: random.Random, cells: list[str]) -> list[str]:
    """Return a notebook with as many cells more, of `CLASS_TEMPLATES` and `ARRAY_TEMPLATES`."""
    return [*cells, *(cell(choose, choose.choice(CLASS_TEMPLATES + ARRAY_TEMPLATES)) for _ in range(len(cells)))]


def edits(choose: random.Random, cells: list[str], count: int, kinds: Sequence[str] = EDITS) -> list[list[object]]:
    """Return a notebook after some edits: cells with the numbers that they had, or None for new ones."""
    edited: list[list[object]] = [[at, source] for at, source in enumerate(cells)]
    for _ in range(count):
        at = choose.randrange(len(edited))
        match choose.choice(kinds):
            case "edit":
                edited[at][1] = cell(choose)
            case "class":
                edited[at][1] = cell(choose, choose.choice(CLASS_TEMPLATES))
            case "array":
                edited[at][1] = cell(choose, choose.choice(ARRAY_TEMPLATES))
            case "number":
                text = str(edited[at][1])
                edited[at][1] = text.replace(choose.choice("01234"), choose.choice("01234"))
            case "comment":
                edited[at][1] = f"{edited[at][1]}\n# a comment"
            case "insert":
                edited.insert(at, [None, cell(choose)])
            case "delete" if len(edited) > 1:
                del edited[at]
            case "move":
                edited.insert(choose.randrange(len(edited)), edited.pop(at))
            case _:
                edited.insert(at, [None, edited[at][1]])
    return edited
