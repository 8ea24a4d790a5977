"""Random notebooks: cells that make objects and write into them by any route, and moves between their states.

Rule 1: a program is data, made from a seed alone: cells as a person would type them, and moves, each with the cell
        whose state it goes to.
Rule 2: a row of the tables below is a kind of object, the statement that makes or changes one, and the definitions that
        it needs. `{x}` is a name to bind, `{n}` and `{m}` are small numbers, `{any}` is any name, `{list}` one of
        that kind.
Rule 3: no row has an effect outside of the process and its folder, and none depends on time, addresses or hash seeds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

DEFINITIONS = {
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "collections": "import collections",
    "functools": "import functools",
    "itertools": "import itertools",
    "array": "import array",
    "threading": "import threading",
    "ctypes": "import ctypes",
    "io": "import io",
    "weakref": "import weakref",
    "random": "import random",
    "ET": "import xml.etree.ElementTree as ET",
    "types": "import types",
    "hashlib": "import hashlib",
    "decimal": "import decimal",
    "contextvars": "import contextvars",
    "queue": "import queue",
    "logging": "import logging",
    "abc": "import abc",
    "heapq": "import heapq",
    "struct": "import struct",
    "operator": "import operator",
    "sys": "import sys",
    "ThreadPoolExecutor": "from concurrent.futures import ThreadPoolExecutor",
    "Figure": "from matplotlib.figure import Figure",
    "widgets": "import ipywidgets as widgets",
    "dataclass": "from dataclasses import dataclass, field",
    "LinearRegression": "from sklearn.linear_model import LinearRegression",
    "DecisionTreeClassifier": "from sklearn.tree import DecisionTreeClassifier",
    "StandardScaler": "from sklearn.preprocessing import StandardScaler",
    "Plain": """
class Plain:
    shared = []
    def __init__(self, k): self.k = k
    def put(self, v): self.k = v""",
    "Slots": """
class Slots:
    __slots__ = ('one', 'two', '__weakref__')
    def __init__(self, one, two): self.one, self.two = one, two""",
    "Both": """
class Base:
    __slots__ = ('slot',)
class Both(Base):
    def __init__(self, k): self.slot, self.k = [k], k""",
    "Partly": """
class Partly:
    def __init__(self, n): self.n, self.cache = n, {}
    def look(self, key): return self.cache.setdefault(key, [key])
    def __getstate__(self): return {**self.__dict__, 'cache': {}}""",
    "Lossy": """
class Lossy:
    def __init__(self, n): self.n = n
    def __reduce__(self): return Lossy, (self.n,)""",
    "Cached": """
import functools
class Cached:
    def __init__(self, rows): self.rows = rows
    @functools.cached_property
    def total(self): return [sum(self.rows)]""",
    "Data": """
from dataclasses import dataclass, field
@dataclass
class Data:
    n: int
    rows: list = field(default_factory=list)""",
    "Frozen": """
from dataclasses import dataclass
@dataclass(frozen=True, slots=True)
class Frozen:
    n: int
    rows: list""",
    "Rows": """
class Rows(list):
    def total(self): return sum(self)""",
    "Table": """
class Table(dict):
    def __missing__(self, key): return key""",
    "Equal": """
class Equal:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return True
    __hash__ = None""",
    "Proxy": """
class Proxy:
    def __init__(self, inner): self.__dict__['inner'] = inner
    def __getattr__(self, name): return getattr(self.inner, name)
    def __setattr__(self, name, value): setattr(self.inner, name, value)""",
    "Tree": """
class Tree:
    def __init__(self, parent=None):
        self.parent, self.children = parent, []
        if parent is not None: parent.children.append(self)""",
    "Color": """
import enum
class Color(enum.Enum):
    RED = 1
    BLUE = 2""",
    "Point": "import collections\nPoint = collections.namedtuple('Point', 'x y')",
    "Registry": """
class Registry:
    known = {}
    def __init_subclass__(cls): Registry.known[cls.__name__] = cls""",
    "Frame": """
import pandas as pd
class Frame(pd.DataFrame):
    @property
    def _constructor(self): return Frame""",
    "Shape": """
import abc
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...""",
    "counter": """
def counter(start):
    held = [start]
    def step():
        held.append(len(held))
        return held
    return step""",
    "pair": """
def pair(n):
    def up():
        nonlocal n
        n += 1
        return n
    def see(): return n
    return up, see""",
    "numbers": """
def numbers(rows):
    for row in rows:
        rows.append(row) if len(rows) < 9 else None
        yield row""",
    "memo": """
import functools
@functools.lru_cache(maxsize=None)
def memo(key): return [key]""",
    "bounded": """
import functools
@functools.lru_cache(maxsize=4)
def bounded(key): return {'key': key}""",
    "told": """
import functools
@functools.singledispatch
def told(value): return 'any'""",
    "with_default": "def with_default(value, seen=[]):\n    seen.append(value)\n    return seen",
    "timed": """
import functools
def timed(function):
    calls = []
    @functools.wraps(function)
    def inner(*args):
        calls.append(args)
        return function(*args)
    inner.calls = calls
    return inner""",
    "Keep": """
import logging
class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []
    def emit(self, record): self.texts.append(record.getMessage())""",
}
HELPER = """%%writefile helper.py
history = []
limits = {'low': 0}
count = 0
class Part:
    made = 0
    def __init__(self, n):
        self.n = n
        Part.made += 1
def step(value):
    global count
    count += 1
    history.append(value)
    return history
def part(n): return Part(n)
"""
FILES = {"helper": HELPER}
LATER = "import threading\ndef later(action): threading.Timer(0.5, action).start()  # then wait a second"
"""What a person pastes first where a program calls `later`."""

_MAKES = """
list | {x} = [{n}, 'x', [{m}]]
list | {x} = [[k] for k in range({n})] + [0]
list | {x} = list(range({n}, 60)) + [[{m}]]
dict | {x} = {'k': [{n}], 'n': {n}}
dict | {x} = dict(k=[], n=[[{n}]])
set | {x} = {1, {n}, 'k'}
tuple | {x} = ([{n}], {m}, {'t': {n}})
records | {x} = [{'id': k, 'v': 0} for k in range(30)]
records | {x} = [{'id': k, 'v': [k]} for k in range(400)]
deque | {x} = collections.deque([[{n}], {m}], maxlen=5) | collections
odict | {x} = collections.OrderedDict(k=[{n}], n={m}) | collections
ddict | {x} = collections.defaultdict(list, k=[{n}]) | collections
tally | {x} = collections.Counter('abca') | collections
udict | {x} = collections.UserDict(k=[{n}]) | collections
ulist | {x} = collections.UserList([{n}, [{m}]]) | collections
chain | {x} = collections.ChainMap({}, {'k': [{n}]}) | collections
bytearray | {x} = bytearray(b'abc' * {n})
numbers | {x} = array.array('d', [1.0, {n}]) | array
simple | {x} = types.SimpleNamespace(k=[{n}], n={m}) | types
plain | {x} = Plain([{n}]) | Plain
plain | {x} = Plain({'k': {n}}) | Plain
slots | {x} = Slots([{n}], {m}) | Slots
nested_slots | {x} = Slots(([{n}],), ({m}, {'k': [{m}]})) | Slots
both | {x} = Both({n}) | Both
partly | {x} = Partly({n}) | Partly
lossy | {x} = Lossy({n}) | Lossy
cached | {x} = Cached([{n}, {m}]) | Cached
data | {x} = Data({n}) | Data
frozen | {x} = Frozen({n}, [{m}]) | Frozen
rows | {x} = Rows([{n}, {m}]) | Rows
table | {x} = Table(k=[{n}]) | Table
equal | {x} = Equal({n}) | Equal
proxy | {x} = Proxy(Plain([{n}])) | Proxy Plain
tree | {x} = Tree(); Tree({x}); Tree({x}) | Tree
color | {x} = [Color.RED, Color(2)] | Color
point | {x} = Point([{n}], {m}) | Point
klass | class {x}:\\n    rows = [{n}]\\n    def see(self): return self.rows
registered | {x} = type('Made{n}', (Registry,), {'n': {n}}) | Registry
instances | {x} = [Plain([k]) for k in range(40)] | Plain
nested | {x} = {'a': [{'b': [{n}]}, ({m}, [{n}])]}
looped | {x} = [{n}]; {x}.append({x})
ndarray | {x} = np.arange({n}, {n} + 20.0) | np
ndarray | {x} = np.zeros((4, 5)) + {n} | np
ndarray | {x} = np.asfortranarray(np.arange(20.0).reshape(4, 5)) | np
ndarray | {x} = np.arange(30_000.0) * {n} | np
large | {x} = np.arange(200_000.0) + {n} | np
objects | {x} = np.array([[{n}], {'k': {m}}, None], dtype=object) | np
structured | {x} = np.zeros(6, dtype=[('a', 'i4'), ('b', 'f8')]) | np
masked | {x} = np.ma.array(np.arange(6.0), mask=[0, 1, 0, 0, 1, 0]) | np
ndarray | {x} = np.frombuffer({bytearray}, dtype=np.uint8) | np
large | {x} = np.from_dlpack({large}) | np
view | {x} = {ndarray}[1:3] | np
view | {x} = {ndarray}[::-1] | np
view | {x} = {ndarray}.T | np
view | {x} = {ndarray}.reshape(-1)[1:] | np
view | {x} = {large}[100:120] | np
frame | {x} = pd.DataFrame({'p': range(5), 'q': [float({n})] * 5}) | pd
frame | {x} = pd.DataFrame({'p': np.arange(400), 'q': np.linspace(0, {n}, 400), 's': ['t'] * 400}) | pd np
frame | {x} = pd.DataFrame({'p': [1, 2, 3], 'q': [0.5, 1.5, {n}]}, index=['u', 'v', 'w']) | pd
frame | {x} = {frame}.assign(z={n}) | pd
frame | {x} = {frame}.copy() | pd
frame | {x} = {frame}[['q', 'p']] | pd
frame | {x} = {frame}.iloc[1:] | pd
frame | {x} = {frame}.describe()[['q', 'p']] | pd
aframe | {x} = pd.DataFrame({ndarray}, copy=False) | pd np
myframe | {x} = Frame({'p': [1, 2, {n}], 'q': 0.5}) | Frame
series | {x} = {frame}['q'] | pd
series | {x} = pd.Series([0.5, {n}, {m}], name='s') | pd
category | {x} = pd.Series(['a', 'b', 'a'], dtype='category') | pd
index | {x} = {frame}.index | pd
index | {x} = pd.Index([{n}, {m}, 3], name='i') | pd
view | {x} = {frame}['q'].values | pd np
oframe | {x} = pd.DataFrame({'o': [[{n}], {'k': 1}, None]}) | pd
closure | {x} = counter({n}) | counter
closure | {x} = lambda held={list}: held.append({n}) or held
closure | {x} = lambda: {list}.append({n})
ups | {x}, {y} = pair({n}) | pair
closure | {x} = functools.partial({list}.append, {n}) | functools
closure | {x} = {list}.append
closure | {x} = timed(lambda *a: {n}) | timed
closure | def {x}(value=0, seen=[{n}]):\\n    seen.append(value)\\n    return seen
closure | def {x}(*_):\\n    {list}.append({n})\\n    return {list}
function | def {x}(k): return k + {n}
memo | {x} = memo | memo
memo | {x} = bounded | bounded
told | {x} = told | told
shape | {x} = Shape | Shape
generator | {x} = (k for k in range({n}, 20)) | !
generator | {x} = numbers([{n}, [{m}]]) | numbers !
iterator | {x} = iter([{n}, [{m}], 3, 4])
iterator | {x} = iter({list})
iterator | {x} = iter({dict})
iterator | {x} = itertools.count({n}) | itertools
iterator | {x} = itertools.cycle([[{n}], {m}]) | itertools
iterator | {x} = itertools.chain([{n}], [[{m}], 5, 6]) | itertools
iterator | {x} = zip({list}, itertools.count()) | itertools
iterator | {x} = enumerate({list})
iterator | {x} = map(str, [{n}, 4, 5])
iterator | {x} = reversed({list})
element | {x} = ET.fromstring('<a><b k="1">t</b><c/></a>') | ET
element | {x} = {element}[0] | ET
etree | {x} = ET.ElementTree({element}) | ET
bytesio | {x} = io.BytesIO(b'abcdef' * {n}) | io
stringio | {x} = io.StringIO('abc' * {n}) | io
buffer | {x} = memoryview({bytearray})
buffer | {x} = {bytesio}.getbuffer() | io
cbuffer | {x} = (ctypes.c_ubyte * 3).from_buffer({bytearray}) | ctypes
carray | {x} = (ctypes.c_int * 3)(1, {n}, 3) | ctypes
weak | {x} = weakref.ref({plain}) | weakref Plain
weaks | {x} = weakref.WeakValueDictionary(k={plain}) | weakref Plain
weakkeys | {x} = weakref.WeakKeyDictionary({{plain}: [{n}]}) | weakref Plain
random | {x} = random.Random({n}) | random
npgen | {x} = np.random.default_rng({n}) | np
hash | {x} = hashlib.sha256(b'{n}') | hashlib !
context | {x} = decimal.Context(prec={n}) | decimal
contextvar | {x} = contextvars.ContextVar('v', default={list}) | contextvars !
lock | {x} = threading.Lock() | threading !
event | {x} = threading.Event() | threading !
queue | {x} = queue.Queue(); {x}.put([{n}]) | queue !
squeue | {x} = queue.SimpleQueue(); {x}.put([{n}]) | queue !
local | {x} = threading.local(); {x}.k = {list} | threading
executor | {x} = ThreadPoolExecutor(1) | ThreadPoolExecutor !
future | {x} = {executor}.submit(pow, 2, {n}); {x}.result() | ThreadPoolExecutor !
logger | {x} = logging.getLogger('own{n}'); {x}.handlers[:] = [Keep()]; {x}.propagate = False | Keep
helper | import helper as {x} | helper
history | from helper import history as {x} | helper
hstep | from helper import step as {x} | helper
hpart | from helper import part; {x} = part({n}) | helper
model | {x} = LinearRegression().fit([[0.0], [1.0], [{n}]], [0, 1, 2]) | LinearRegression
dtree | {x} = DecisionTreeClassifier(random_state=0).fit([[0], [1], [{n}]], [0, 1, 0]) | DecisionTreeClassifier
scaler | {x} = StandardScaler().fit([[0.0], [{n}]]) | StandardScaler
exception | {x} = ValueError([{n}])
figure | {x} = Figure(); {x}.subplots().plot([1, {n}, {m}]) | Figure
axes | {x} = {figure}.axes[0] | Figure
slider | {x} = widgets.IntSlider() | widgets !
watched | {x} = []; {slider}.observe(lambda change, held={x}: held.append(change.new), 'value') | widgets
bound | {x} = {plain}.put | Plain
dview | {x} = {dict}.items()
dview | {x} = vars({plain}) | Plain
proxyview | {x} = types.MappingProxyType({dict}) | types
property | {x} = property(lambda self: {list})
list | {x} = [{any}, {any}]
dict | {x} = {'k': {any}, 'n': [{any}]}
tuple | {x} = ({any}, [{n}])
plain | {x} = Plain({any}) | Plain
slots | {x} = Slots({any}, {any}) | Slots
nested_slots | {x} = Slots({nested_slots}.one, {nested_slots}.two) | Slots
deque | {x} = collections.deque([{any}]) | collections
objects | {x} = np.array([{any}, None, {any}, 0], dtype=object)[:3] | np
inner | {x} = {nested}['a'][0]['b']
inner | {x} = {plain}.k | Plain
inner | {x} = {slots}.one | Slots
inner | {x} = {nested_slots}.two[1] | Slots
inner | {x} = {dict}['k']
inner | {x} = {list}[-1]
inner | {x} = {tuple}[0]
inner | {x} = {instances}[7].k | Plain
inner | {x} = {partly}.look('k') | Partly
inner | {x} = {memo}(1) | memo
inner | {x} = {cached}.total | Cached
inner | {x} = {data}.rows | Data
record | {x} = {records}[{n}]
record | {x} = {records}[-1]
plain | {x} = {instances}[{n}] | Plain
tree | {x} = {tree}.children[0] | Tree
number | {x} = {n}
text | {x} = 'text {n}' * {m}
"""
_WRITES = """
list | {list}.append({n})
list | {list}[0] = {n}
list | {list}[-1].append({n})
list | {list}.insert(0, [{n}])
list | {list}.reverse()
list | {list} += [{n}]
list | {list}.append({any})
list | heapq.heappush({list}, {n}) | heapq
list | operator.setitem({list}, 0, [{n}]) | operator
list | {list}[:] = [[{n}], {m}]
inner | {inner}.append({n})
inner | {inner}.extend([[{n}], {m}])
inner | {inner}['w'] = {n}
dict | {dict}['k'] = {n}
dict | {dict}['n'] = [{any}]
dict | {dict}.update(w=[{n}])
dict | {dict}.pop('k')
dict | {dict}.setdefault('z', []).append({n})
dict | {dict}['k'].append({n})
set | {set}.add({n})
set | {set}.discard(1)
tuple | {tuple}[0].append({n})
records | {records}[{n}]['v'] = {m}
records | {records}[-2]['id'] = [{n}]
records | {records}.append({'id': {n}, 'v': {m}})
records | for r in {records}[5:9]: r['v'] = {n}
record | {record}['v'] = {n}
record | {record}['w'] = [{m}]
deque | {deque}.appendleft([{n}])
deque | {deque}.rotate(1)
odict | {odict}.move_to_end('k')
odict | {odict}['w'] = {n}
ddict | {ddict}['new{n}'].append({n})
tally | {tally}.update('ab')
udict | {udict}['k'].append({n})
udict | {udict}['w'] = {n}
ulist | {ulist}.append({n})
chain | {chain}['w'] = {n}
chain | {chain}.maps[1]['k'].append({n})
bytearray | {bytearray}[0] = {n}
bytearray | struct.pack_into('B', {bytearray}, 1, {n}) | struct
bytearray | ctypes.memset((ctypes.c_char * 2).from_buffer({bytearray}), {n}, 2) | ctypes
bytearray | memoryview({bytearray})[2:3] = b'z'
numbers | {numbers}[0] = {n}
numbers | memoryview({numbers})[1] = {n}.5
simple | {simple}.k.append({n})
simple | {simple}.w = {n}
plain | {plain}.k = [{n}]
plain | {plain}.k.append({n})
plain | {plain}.put([{n}])
plain | {plain}.new = {any}
plain | {plain}.__dict__['w'] = {n}
plain | Plain.shared.append({n}) | Plain
plain | Plain.shared = [{n}] | Plain
plain | Plain.put = lambda self, v: setattr(self, 'k', [v, {n}]) | Plain
plain | {plain}.__class__ = type('Other', (Plain,), {}) | Plain
slots | {slots}.one = [{n}]
slots | {slots}.one.append({n})
nested_slots | {nested_slots}.one[0].append({n})
nested_slots | {nested_slots}.two[1]['k'].append({n})
both | {both}.slot.append({n})
both | {both}.w = {n}
partly | {partly}.look({n})
partly | {partly}.look('k').append({n})
partly | {partly}.n = {n}
lossy | {lossy}.extra = [{n}]
lossy | {lossy}.n = {n}
cached | {cached}.rows.append({n})
cached | {cached}.total.append({n})
cached | del {cached}.total
data | {data}.rows.append({n})
data | {data}.n = {n}
frozen | {frozen}.rows.append({n})
rows | {rows}.append({n})
rows | {rows}.note = [{n}]
table | {table}['w'] = {n}
table | {table}.note = {n}
equal | {equal}.n = {n}
equal | {equal}.w = [{n}]
proxy | {proxy}.k = [{n}]
proxy | {proxy}.k.append({n})
tree | Tree({tree}) | Tree
tree | {tree}.children[0].note = {n}
color | Color.RED.note = {n} | Color
point | {point}.x.append({n})
klass | {klass}.rows.append({n})
klass | {klass}.n = {n}
klass | {klass}.see = lambda self: {n}
registered | {registered}.n = {n}
registered | class Sub{n}(Registry): pass | Registry
instances | {instances}[{n}].k.append({m})
instances | {instances}[-1].w = {n}
nested | {nested}['a'][0]['b'].append({n})
nested | {nested}['a'][1][1].append({n})
looped | {looped}[-1].insert(0, {n})
ndarray | {ndarray}[...] = {n}
ndarray | {ndarray}.flat[2] = {n}
ndarray | {ndarray}.reshape(-1)[3:5] += {n}
ndarray | np.add({ndarray}, 1, out={ndarray}) | np
ndarray | np.copyto({ndarray}, {m}) | np
ndarray | {ndarray}.sort()
ndarray | {ndarray}.flags.writeable = False
ndarray | {ndarray}.setflags(write=True)
ndarray | ctypes.memset({ndarray}.ctypes.data, {n}, 8) | ctypes
ndarray | memoryview({ndarray}.reshape(-1))[0] = {n}
ndarray | {ndarray}.shape = (-1,)
ndarray | {ndarray} = {ndarray} + {n}
ndarray | {ndarray} *= {n}
large | {large}[{n}] = {m}
large | {large}[150_000:] = {n}
large | ctypes.memset({large}.ctypes.data + 8000, {n}, 16) | ctypes
objects | {objects}[0] = [{n}]
objects | {objects}[0].append({n})
structured | {structured}['a'][2] = {n}
masked | {masked}[1] = {n}
masked | {masked}.mask[0] = True
view | {view}[...] = {n}
view | {view}[0] = {m}
frame | {frame}.iloc[1, 0] = {n}
frame | {frame}['q'] = {n}.5
frame | {frame}['new'] = {n}
frame | {frame}.loc[{frame}.index[0], 'q'] = {m}
frame | {frame}.index.name = 'name{n}'
frame | {frame}.columns = ['p', 'q', *{frame}.columns[2:]][::1]
frame | {frame}.attrs['note'] = [{n}]
frame | {frame}.note = [{n}]
frame | {frame}.sort_values('q', ascending=False, inplace=True)
frame | {frame}.drop(columns='p', inplace=True)
frame | {frame} *= 2
frame | {frame}.describe()
aframe | {aframe}.iloc[0, 0] = {n}
myframe | {myframe}.note = [{n}]
myframe | {myframe}.iloc[0, 0] = {n}
series | {series}.iloc[0] = {n}
series | {series}.name = 'n{n}'
category | {category}.iloc[1] = 'a'
index | {index}.name = 'i{n}'
oframe | {oframe}.iloc[0, 0].append({n})
closure | {closure}()
closure | {closure}.note = [{n}]
ups | {ups}()
function | {function}.calls = {n}
function | {function}.__defaults__ = ({n},)
function | {function}.__code__ = (lambda k: k * {n}).__code__
memo | {memo}({n})
memo | {memo}(1)
memo | {memo}.cache_clear()
told | {told}.register(int, lambda value: 'int {n}')
told | {told}.register(str)(lambda value: 'str {n}')
shape | {shape}.register(int)
shape | {shape}.register(str)
generator | next({generator})
iterator | next({iterator})
element | {element}.text = 'q{n}'
element | {element}.set('w', '{n}')
element | ET.SubElement({element}, 'new') | ET
etree | {etree}.getroot().text = 'r{n}'
etree | {etree}.getroot()[0].tail = 'q{n}'
bytesio | {bytesio}.seek(1); {bytesio}.write(b'{n}')
bytesio | {bytesio}.getbuffer()[0:1] = b'z'
bytesio | {bytesio}.read(2)
stringio | {stringio}.write('{n}')
buffer | {buffer}[0] = {n}
cbuffer | {cbuffer}[1] = {n}
carray | {carray}[0] = {n}
weak | {weak}().k = [{n}]
weaks | {weaks}['k'].k = [{n}]
weakkeys | list({weakkeys}.values())[0].append({n})
random | {random}.random()
npgen | {npgen}.random()
hash | {hash}.update(b'{n}')
context | {context}.prec = {n}
contextvar | {contextvar}.set([{n}])
lock | {lock}.acquire(blocking=False)
event | {event}.set()
queue | {queue}.put([{n}])
queue | {queue}.get_nowait()
squeue | {squeue}.put([{n}])
local | {local}.k.append({n})
executor | {executor}.submit({list}.append, {n}).result()
executor | {executor}.submit(pow, 2, 3).result()
future | {future}.result()
logger | {logger}.warning('text {n}')
logger | {logger}.setLevel({n})
helper | {helper}.step([{n}])
helper | {helper}.limits['low'] = {n}
helper | {helper}.count = {n}
history | {history}.append({n})
hstep | {hstep}({n})
hpart | {hpart}.n = [{n}]
hpart | part({n}) | helper
model | {model}.coef_[0] = {n}
model | {model}.note = [{n}]
dtree | {dtree}.tree_.value[0, 0, 0] = {n}
scaler | {scaler}.partial_fit([[{n}.0]])
exception | {exception}.args[0].append({n})
figure | {figure}.axes[0].set_title('title {n}')
figure | {figure}.axes[0].plot([{n}, {m}])
axes | {axes}.set_xlabel('x {n}')
axes | {axes}.lines[0].set_ydata([{n}, 1, {m}])
slider | {slider}.value = {n}
watched | {watched}.append({n})
exception | {exception}.note = {n}
bound | {bound}([{n}])
dview | {plain}.k = {n}
proxyview | {dict}['k'] = {n}
property | {list}.append({n})
number | {number} += {n}
text | {text} += 'x'
any | {new} = {any}
any | {new} = {any}
any | del {any}
any | {any}
any | {any}, {any2} = {any2}, {any}
"""

NAMES = tuple("bcdefghk")
"""No word of English among them: what a return prints is searched for them."""
_PLACE = re.compile(r"\{([a-z]+2?)\}")


@dataclass(frozen=True, slots=True)
class Row:
    """A statement of the tables."""

    kind: str
    source: str
    needs: tuple[str, ...]
    stored: bool
    """Whether what it makes has a stored form."""

    @property
    def kinds(self) -> list[str]:
        """The kinds of the names that must be there."""
        return [place for place in _PLACE.findall(self.source) if place in KINDS]


def _rows(table: str) -> list[Row]:
    found: list[Row] = []
    for line in table.strip().splitlines():
        kind, source, *rest = (part.strip() for part in line.split(" | "))
        words = rest[0].split() if rest else []
        found.append(Row(kind, source.replace("\\n", "\n"), tuple(w for w in words if w != "!"), "!" not in words))
    return found


KINDS = frozenset(line.partition(" |")[0] for line in _MAKES.strip().splitlines())
MAKES, WRITES = _rows(_MAKES), _rows(_WRITES)
_BY_KIND: dict[str, list[Row]] = {kind: [row for row in MAKES if row.kind == kind] for kind in sorted(KINDS)}
_WRITES_OF: dict[str, list[Row]] = {}
for _row in WRITES:
    for _kind in {_row.kind, *_row.kinds}:
        _WRITES_OF.setdefault(_kind, []).append(_row)
UNSTORED = frozenset(row.kind for row in MAKES if not row.stored)

ROUTES = (
    "exec({source!r})",
    "run = threading.Thread(target=lambda: {source}); run.start(); run.join(); del run",
    "list(map(lambda _: {source}, [0]))",
    "later(lambda: {source})",
    "later(lambda: {source})",
    "eval({source!r}, sys.modules['__main__'].__dict__)",
    "(lambda run: run())(lambda: {source})",
)
_ROUTE_NEEDS = {"threading": "threading.", "sys": "sys.modules"}


# -- programs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell; `key` is what moves call its state."""

    key: int
    source: str


@dataclass(frozen=True, slots=True)
class Goto:
    """`%ctx goto` the state after a cell."""

    key: int
    dry: bool = False
    """With a dry run before it."""


@dataclass(frozen=True, slots=True)
class Undo:
    """`%ctx undo`."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The kernel ends, and a new one resumes."""


Step = Cell | Goto | Undo | Resume


@dataclass(frozen=True, slots=True)
class Program:
    """A notebook, in the order in which it is run."""

    seed: int
    steps: tuple[Step, ...]
    rows: frozenset[Row] = frozenset()
    """What it is made from."""

    @property
    def unstored(self) -> bool:
        """Return whether something in it has no stored form."""
        return any(not row.stored for row in self.rows)

    @property
    def threads(self) -> bool:
        """Return whether it has threads that a forked process would lack."""
        return any(
            "Executor" in step.source or "threading" in step.source for step in self.steps if isinstance(step, Cell)
        )

    def text(self) -> str:
        """Return the program as a person would paste it: the numbers are those of a fresh kernel's statements."""
        numbers: dict[int, int] = {}
        lines: list[str] = []
        later = any("later(" in step.source for step in self.steps if isinstance(step, Cell))
        shift = 1 if later else 0
        if later:
            lines.append(f"# cell 1\n{LATER}")
        for number, step in enumerate(self.steps, 1 + shift):
            if isinstance(step, Cell):
                numbers[step.key] = number
                source = step.source
            elif isinstance(step, Goto):
                source = f"%ctx goto {numbers.get(step.key, 0)}"
            else:
                source = "%ctx undo" if isinstance(step, Undo) else "%ctx resume   # in a new kernel"
            lines.append(f"# cell {number}\n{source}")
        return "\n".join(lines)

    def smaller(self) -> Iterator[Program]:
        """Yield programs with less in them."""
        for at in reversed(range(len(self.steps))):
            yield self._without(at)
        for at, step in enumerate(self.steps):
            if isinstance(step, Goto) and step.dry:
                yield self._with(at, replace(step, dry=False))
            if not isinstance(step, Cell) or step.source.startswith("%%"):
                continue
            parts = _parts(step.source)
            for drop in range(len(parts)):
                if len(parts) > 1:
                    yield self._with(at, replace(step, source="\n".join(parts[:drop] + parts[drop + 1 :])))
            if step.source != "pass":
                yield self._with(at, replace(step, source="pass"))
            plain = _PLAIN_ROUTE.sub(lambda found: found[1] or found[2], step.source)
            if plain != step.source:
                yield self._with(at, replace(step, source=plain))

    def _with(self, at: int, step: Step) -> Program:
        return replace(self, steps=(*self.steps[:at], step, *self.steps[at + 1 :]))

    def _without(self, at: int) -> Program:
        gone = self.steps[at]
        key = gone.key if isinstance(gone, Cell) else None
        before = [step.key for step in self.steps[:at] if isinstance(step, Cell)]
        steps: list[Step] = []
        for number, step in enumerate(self.steps):
            if number == at:
                continue
            if isinstance(step, Goto) and step.key == key:
                if not before:
                    continue
                step = replace(step, key=before[-1])
            steps.append(step)
        return replace(self, steps=tuple(steps))


_PLAIN_ROUTE = re.compile(r"list\(map\(lambda _: (.*), \[0\]\)\)|\(lambda run: run\(\)\)\(lambda: (.*)\)")


def _parts(source: str) -> list[str]:
    """Split a cell into its statements."""
    parts: list[str] = []
    for line in source.splitlines():
        if parts and (line.startswith((" ", ")")) or re.fullmatch("@.*", parts[-1])):
            parts[-1] += f"\n{line}"
        else:
            parts.append(line)
    return parts


def program(seed: int, *, resume: float = 0.06) -> Program:
    """Return the program of a seed."""
    return _Maker(random.Random(seed), seed, resume).make()


class _Maker:
    def __init__(self, rng: random.Random, seed: int, resume: float) -> None:
        self._rng, self._seed, self._resume = rng, seed, resume
        kinds = sorted(KINDS)
        self._focus = [
            *rng.sample(kinds, rng.randint(2, 4)),
            *rng.choices(("list", "dict", "plain", "ndarray", "frame"), k=1),
        ]
        self._env: dict[str, str] = {}
        """Name → kind, as the cells so far leave it; a definition stands for itself, with no kind."""
        self._files: set[str] = set()
        self._used: set[Row] = set()
        self._keys = 0

    def make(self) -> Program:
        rng = self._rng
        steps: list[Step] = []
        states: dict[int, dict[str, str]] = {}
        trail: list[dict[str, str]] = []
        cells = rng.randint(3, 6)
        moves = rng.randint(1, 3)
        resumed = rng.random() < self._resume
        body: list[str] = ["cell"] * cells + ["move"] * moves + ["resume"] * resumed
        first, rest = body[:2], body[2:]
        rng.shuffle(rest)
        plan = first + rest + ["move"]
        for what in plan:
            if what == "cell":
                trail.append(dict(self._env))
                for cell in self._cell():
                    steps.append(cell)
                    states[cell.key] = dict(self._env)
            elif what == "resume":
                steps.append(Resume())
                trail.clear()
                self._env = {name: kind for name, kind in self._env.items() if kind not in UNSTORED}
            elif (
                trail
                and isinstance(steps[-1], (Goto, Cell))
                and rng.random() < (0.5 if isinstance(steps[-1], Goto) else 0.15)
            ):
                steps.append(Undo())
                self._env = trail.pop()
            else:
                key = rng.choice(list(states))
                steps.append(Goto(key, dry=rng.random() < 0.15))
                trail.append(dict(self._env))
                self._env = dict(states[key])
        return Program(self._seed, tuple(steps), frozenset(self._used))

    def _cell(self) -> list[Cell]:
        rng = self._rng
        lines: list[str] = []
        before: list[Cell] = []
        for _ in range(rng.randint(1, 3)):
            self._write(self._row(), lines, before)
        self._keys += 1
        return [*before, Cell(self._keys, "\n".join(lines))]

    def _define(self, need: str, lines: list[str]) -> list[Cell]:
        if need in FILES:
            if need in self._files:
                return []
            self._files.add(need)
            self._keys += 1
            return [Cell(self._keys, FILES[need])]
        if f" {need}" not in self._env:
            self._env[f" {need}"] = ""
            lines.insert(0, DEFINITIONS[need].strip("\n"))
        return []

    @property
    def _names(self) -> list[str]:
        return sorted(name for name, kind in self._env.items() if kind)

    def _row(self) -> Row:
        rng = self._rng
        there = sorted({kind for kind in self._env.values() if kind})
        if len(there) < 2 or rng.random() < 0.3:
            return rng.choice(_BY_KIND[rng.choice(self._focus)])
        return rng.choice(_WRITES_OF[rng.choice((*there, *there, "any"))])

    def _write(self, row: Row, lines: list[str], before: list[Cell], *, spare: bool = False) -> None:
        """Add a row's statement, after those that make what it needs. With `spare` it binds no name that is in use."""
        for _ in range(4):  # what makes one kind can bind the name of another
            missing = [kind for kind in row.kinds if kind not in self._env.values()]
            for kind in missing:
                self._write(self._rng.choice(_BY_KIND[kind]), lines, before, spare=True)
            if not missing:
                break
        else:
            return
        if "{any" in row.source and not self._names:
            self._write(_BY_KIND["list"][0], lines, before)
        for need in row.needs:
            before += self._define(need, lines)
        lines.append(self._filled(row, spare=spare))
        self._used.add(row)

    def _filled(self, row: Row, *, spare: bool) -> str:
        rng = self._rng
        chosen: dict[str, str] = {}

        def put(found: re.Match[str]) -> str:
            place = found[1]
            if place in ("n", "m"):
                return str(rng.randint(1, 9))
            if place in ("x", "y", "new"):
                free = [name for name in NAMES if name not in self._env and name not in chosen.values()]
                names = (
                    free if free and (spare or rng.random() < 0.85) else [n for n in NAMES if n not in chosen.values()]
                )
                return chosen.setdefault(place, rng.choice(names))
            if place in ("any", "any2"):
                name = rng.choice([name for name in self._names if name not in chosen.values()] or self._names)
                return chosen.setdefault(place, name) if row.kind == "any" else name
            if place in KINDS:
                names = sorted(name for name, kind in self._env.items() if kind == place)
                return chosen.setdefault(place, rng.choice(names))
            return found[0]

        source = _PLACE.sub(put, row.source)
        if row in MAKES:
            for place in ("x", "y"):
                if place in chosen:
                    self._env[chosen[place]] = row.kind
        elif row.kind == "any":
            if "new" in chosen:
                self._env[chosen["new"]] = self._env[chosen["any"]]
            elif source.startswith("del "):
                self._env.pop(chosen["any"], None)
            elif "any2" in chosen:
                one, two = chosen["any"], chosen["any2"]
                self._env[one], self._env[two] = self._env[two], self._env[one]
        else:
            source = self._routed(source)
        return source

    def _routed(self, source: str) -> str:
        """Return a write, sometimes by a route that its text does not show."""
        if self._rng.random() > 0.3:
            return source
        try:
            compile(source, "", "eval")
        except SyntaxError:
            return source if "\n" in source or ";" in source else f"exec({source!r})"
        routed = self._rng.choice(ROUTES).format(source=source)
        needed = [f"import {module}" for module, used in _ROUTE_NEEDS.items() if used in routed]
        return "\n".join([*needed, routed])
