"""Cells and what holds of their names when these come back: plain data, arrays, code."""

from __future__ import annotations

from pickling_rows import rows

PLAIN = rows(r"""
## numbers and text
a = [1, 2.5, True, None, 'ä', b'x', 10**30, 1j, ..., NotImplemented]
=> a == [1, 2.5, True, None, 'ä', b'x', 10**30, 1j, ..., NotImplemented]
## NaN is found by its identity
import math, numpy as np
nan = float('nan'); s = np.float64('nan'); other = float('nan')
l = [nan, np.nan, math.nan, s]; d = {nan: 1}; t = {(nan, other)}; o = type('O', (), {})(); o.x = nan
=> nan in l and np.nan in l and __import__('math').nan in l and s in l and other not in l and nan != nan
=> d[nan] == 1 and (nan, other) in t and o.x is nan and type(s) is np.float64
## a text that is compared by its identity
import argparse
p = argparse.ArgumentParser(); p.add_argument('--x', default=argparse.SUPPRESS); same = '==SUPPRESS=='[:]
=> vars(p.parse_args([])) == {} and vars(p.parse_args(['--x', '1'])) == {'x': '1'} and same == '==SUPPRESS=='
## objects that libraries compare others with
import configparser, functools, numpy as np
a = [functools._initial_missing, configparser._UNSET, np._NoValue, object()]; o = a[3]
=> a[0] is __import__('functools')._initial_missing and a[1] is __import__('configparser')._UNSET
=> a[2] is np._NoValue and a[3] is o and type(o) is object
## two names for one list
a = [1]; b = a
=> a is b
## a cycle
a = [1]; a.append(a)
=> a[1] is a
## a cycle through a tuple
a = []; t = (a, 1); a.append(t)
=> t[0][0] is t and t[0] is a
## a list in a dict beside a set
a = [1]; d = {'k': a, 's': {1, 2}}
=> d['k'] is a and d['s'] == {1, 2}
## large bytes
a = b'x' * 300_000; b = [a]
=> a == b'x' * 300_000 and b[0] is a
## a large bytearray
a = bytearray(300_000); a[7] = 9; b = [a]
=> a[7] == 9 and len(a) == 300_000 and b[0] is a
## a large text
a = 'é' * 200_000; b = [a]
=> a == 'é' * 200_000 and b[0] is a
## a set of tuples and a frozenset
a = {(1, 2), frozenset({3})}
=> a == {(1, 2), frozenset({3})}
## collections
from collections import Counter, OrderedDict, defaultdict, deque, ChainMap
a = [defaultdict(list, k=[1]), OrderedDict(b=1, a=2), Counter('aab'), deque([1, 2], maxlen=3), ChainMap({'a': 1})]
b = a[0]['k']; o = OrderedDict(a=1, b=b, c=3); o.move_to_end('a')
=> a[0]['new'] == [] and a[0]['k'] is b and a[2]['a'] == 2 and a[3].maxlen == 3 and a[4]['a'] == 1
=> list(o) == ['b', 'c', 'a'] and list(dict.keys(o)) == ['a', 'b', 'c'] and o['b'] is b
=> list(a[1]) == ['b', 'a'] and type(a[1]).__name__ == 'OrderedDict'
## views of an ordered dict, and the format of a record
from collections import OrderedDict
import struct
o = OrderedDict(a=1, b=2); v = [o.keys(), o.values(), o.items()]; record = struct.Struct('<if')
=> [*map(list, v)] == [['a', 'b'], [1, 2], [('a', 1), ('b', 2)]] and o.popitem() == ('b', 2) and list(v[0]) == ['a']
=> record.format == '<if' and record.unpack(record.pack(1, 2.0)) == (1, 2.0)
## dates, decimals, paths, patterns
import datetime as dt, decimal, fractions, pathlib, re, uuid
a = [dt.datetime(2020, 1, 2, tzinfo=dt.timezone.utc), dt.timedelta(1), decimal.Decimal('1.10'), fractions.Fraction(1,
    3),
     pathlib.Path('x/y'), re.compile('a+', re.I), uuid.UUID(int=5), range(3), slice(1, None, 2)]
b = a[:]
=> a == b and a[5].match('AA') and str(a[2]) == '1.10' and a[0].tzinfo is not None
## views of a dict, and a mapping proxy
import types
d = {'a': 1}; k = d.keys(); v = d.values(); i = d.items(); m = types.MappingProxyType(d)
=> d.update(b=2) is None and list(k) == ['a', 'b'] and list(v) == [1, 2] and len(i) == 2 and m['b'] == 2
## iterators
import itertools
a = iter([1, 2, 3]); next(a); b = itertools.count(5, 2); c = map(str, [1, 2]); z = zip([1], 'a'); e = enumerate('ab')
next(b); next(e); cy = itertools.cycle([1, 2]); next(cy); x = [a, a]
=> list(a) == [2, 3] and next(b) == 7 and list(c) == ['1', '2'] and list(z) == [(1, 'a')] and next(e) == (1, 'b')
=> next(cy) == 2 and x[0] is a and x[1] is a
## iterators in the lists that they go over
a = [1, 2, 3]; b = iter(a); next(b); a.append(b); c = [4, 5]; r = reversed(c); next(r); c.append(r)
e = [6, 7, 8]; z = zip(e, 'xyz'); next(z); e.append(z)
=> a[3] is b and next(b) == 2 and c[2] is r and next(r) == 4 and e[3] is z and next(z) == (7, 'y')
## iterators of lists that are shorter now
a = [1, 2, 3]; b = iter(a); next(b); next(b); r = reversed(a); del a[1:]
=> len(a) == 1 and a.append(4) is None and next(b, None) is None and next(r, None) is None
## iterators of dicts at their ends
d = {'a': 1}; k = iter(d); next(k); e = {'b': 2}; v = iter(e.values()); list(v)
=> type(k) is type(iter({})) and next(k, 5) == 5
=> type(v) is type(iter({}.values())) and e.update(c=3) is None and next(v, 5) == 5
## memory files
import io
a = io.StringIO('abc'); a.read(1); b = io.BytesIO(b'x' * 100_000); b.seek(5); c = io.StringIO(); c.close(); d = [a]
=> a.read() == 'bc' and b.tell() == 5 and len(b.getvalue()) == 100_000 and c.closed and d[0] is a
## an array.array and views of it
from array import array
a = array('d', range(20_000)); m = memoryview(a); n = m[5:9]; r = m[::-1]; t = n.tobytes()
=> n.tolist() == [5, 6, 7, 8] and a.__setitem__(6, 0.5) is None and n[1] == 0.5 and m[6] == 0.5 and r[-7] == 0.5
=> m.obj is a and n.format == 'd'
## memoryviews
b = bytearray(b'abcdef'); m = memoryview(b)[1:4]; ro = m.toreadonly(); g = memoryview(bytes(range(6))).cast('B', (2, 3))
f = memoryview(bytes(8)).cast('i'); gone = memoryview(b'x'); gone.release()
=> b.__setitem__(1, 90) is None and m[0] == 90 and ro[0] == 90 and ro.readonly and not m.readonly
=> g.tolist() == [[0, 1, 2], [3, 4, 5]] and f.tolist() == [0, 0] and m.obj is b
## generators of random numbers
import random
a = random.Random(5); a.random(); b = a.getstate(); c = random.random; d = random._inst
=> a.getstate() == b and c.__self__ is d and d is __import__('random')._inst
## locks
import threading, queue
a = threading.Lock(); b = [a]; c = threading.RLock(); d = threading.Condition(); e = threading.Event()
e.set()
q = queue.Queue(); q.put(5)
=> not a.locked() and b[0] is a and c.acquire() and e.is_set() and q.get() == 5 and d.acquire()
## exceptions
class Odd(ValueError):
    def __init__(self, one, *, two):
        super().__init__(f'{one} {two}')
        self.one, self.two = one, two
try:
    try:
        raise KeyError('k')
    except KeyError as k:
        raise Odd(1, two=2) from k
except Odd as fault:
    e = fault
e.add_note('n')
u = UnicodeDecodeError('utf-8', b'x', 0, 1, 'r'); o = FileNotFoundError(2, 'no', 'f'); g = ExceptionGroup('g', [o, e])
s = SystemExit(3); st = StopIteration(4)
=> e.args == ('1 2',) and e.two == 2 and type(e.__cause__) is KeyError and e.__notes__ == ['n']
=> e.__traceback__ is None
=> u.end == 1 and o.filename == 'f' and o.errno == 2 and g.exceptions == (o, e) and s.code == 3 and st.value == 4
## modules and what they hold
import math, os.path, json
m = [math, os.path]
f = [math.sin, json.dumps, len, str.upper, [].append, dict.fromkeys, 'x'.join, int.__add__, (3).__add__]
=> m[0] is __import__('math') and f[0] is m[0].sin and f[3]('a') == 'A' and f[6]('ab') == 'axb' and f[8](4) == 7
=> f[5]('a') == {'a': None} and f[7](1, 2) == 3
## what the interpreter holds by name
import sys, os, builtins
a = sys.modules; b = sys.path; c = os.environ; d = globals(); e = [sys.stdout, vars(builtins)]
=> a is __import__('sys').modules and b is __import__('sys').path and c is __import__('os').environ
=> e[0] is __import__('sys').stdout and e[1] is vars(__import__('builtins'))
## types
from typing import Any, Callable, Generic, List, NewType, Optional, TypeVar
import typing, types
a = [int, type(None), type(...), List[int], list[int], int | None, Optional[str], Any, Callable[[int], str],
    typing.Union[int, str],
     types.FunctionType, type(lambda: 0), types.ModuleType, type({}.keys())]
b = list(a); T = TypeVar('T', bound=int); U = NewType('U', int); c = [T, List[T]]
=> a == b and c[0] is T and T.__bound__ is int and U(5) == 5 and U.__supertype__ is int and c[1].__args__ == (T,)
## partials and operators
import functools, operator
def f(a, b): return a - b
p = functools.partial(f, 5); q = [p, operator.itemgetter(1), operator.attrgetter('x'), operator.methodcaller('upper')]
=> p(2) == 3 and q[0] is p and q[1]('ab') == 'b' and q[3]('a') == 'A' and p.func is f
""")

ARRAYS = rows(r"""
## universal functions, also one of several
import numpy as np, scipy.special as sc
a, b = [np.add, sc.gamma], sc.assoc_legendre_p
=> a[0] is np.add and a[1] is sc.gamma and b is sc.assoc_legendre_p
## an array
import numpy as np
a = np.arange(10.)
=> a.tolist() == list(range(10)) and a.dtype == 'f8'
## a large array
import numpy as np
a = np.arange(100_000)
=> a.sum() == 4999950000 and a.flags.writeable
## a view
import numpy as np
a = np.arange(10.); v = a[2:5]
=> np.shares_memory(a, v) and v.base is a and v.tolist() == [2, 3, 4]
## a view whose owner has no name
import numpy as np
a = np.arange(100_000.)[::-2]; b = a[5:]; c = a.base[:9]
=> np.shares_memory(a, b) and a.strides == (-16,) and b[0] == a[5] and c[3] == 3
## views of views, turned, reshaped, strided, broadcast
import numpy as np
a = np.arange(24.); b = a.reshape(2, 3, 4); c = b.T; d = b[:, ::2, ::-1]; e = np.broadcast_to(a[:4], (1000, 1000, 4))
f = d[1]
=> a.__setitem__(3, 77) is None and b[0, 0, 3] == 77 and c[3, 0, 0] == 77 and d[0, 0, 0] == 77 and e[5, 5, 3] == 77
=> e.strides == (0, 0, 8) and not e.flags.writeable and np.shares_memory(f, a) and c.flags.f_contiguous and b.base is a
## order, flags, 0-d, empty
import numpy as np
a = np.asfortranarray(np.arange(12.).reshape(3, 4)); v = a[1:]; b = np.arange(3); b.flags.writeable = False
c = np.array(5)
d = np.empty((0, 3)); e = np.empty((3, 0), order='F'); f = d[:0]; big = np.asfortranarray(np.ones((300, 400)))
=> a.flags.f_contiguous and a[1, 2] == 6 and np.shares_memory(a, v) and not b.flags.writeable and c.shape == ()
=> c == 5
=> d.shape == (0, 3) and e.shape == (3, 0) and f.shape == (0, 3) and big.flags.f_contiguous and big.sum() == 120000
## kinds of elements
import numpy as np
a = [np.array(['2020-01-01'], 'M8[D]'), np.array([5], 'm8[ns]'), np.array(['ä', 'bc']), np.array([b'x']),
    np.array([1], '>i4'),
     np.array([True]), np.array([1j]), np.array([1], 'f2'), np.zeros(2, 'V3'), np.longdouble([1.5])]
b = [(one.dtype, one.tolist()) for one in a]
=> [(one.dtype, one.tolist()) for one in a] == b
## structured arrays
import numpy as np
a = np.array([(1, 2.5, 'x'), (3, 4.5, 'y')], dtype=[('a', 'i4'), ('b', 'f8'), ('c', 'U3')]); v = a['b']; one = a[:1]
n = np.zeros(2, dtype=np.dtype([('p', [('q', 'i2')]), ('s', 'f4', (2,))], align=True))
r = np.rec.array([(1, 2.)], dtype=[('a', 'i4'), ('b', 'f8')])
=> a.__setitem__(0, (9, 9, 'z')) is None and v[0] == 9 and one['c'][0] == 'z' and n['p']['q'].tolist() == [0, 0]
=> r.a[0] == 1 and type(r) is np.recarray and r[0].b == 2 and n.dtype.isalignedstruct
## columns of texts that come again and again
import numpy as np
words = [f'{i % 7} {i % 3}' for i in range(3000)]; a = np.array(words, dtype=object); v = a[::2]
b = np.array([None, 'x', np.nan] * 1000, dtype=object); c = np.array([0.0, -0.0, 'y'] * 1000, dtype=object)
d = np.array([f'{i}' for i in range(3000)], dtype=object); e = a.reshape(2, -1, order='F')
f = np.array([f'{i % 1400}' for i in range(3000)], dtype=object); g = np.array([1, True, 'y'] * 1000, dtype=object)
=> a.tolist() == words and e[1, 0] == words[1] and np.shares_memory(v, a) and v[1] == words[2]
=> b.tolist()[:2] == [None, 'x'] and b[2] != b[2] and b[2] is b[5] and str(c.tolist()[:3]) == "[0.0, -0.0, 'y']"
=> d[2999] == '2999' and f[2999] == f'{2999 % 1400}' and g[0] is not True and g[1] is True
## arrays of objects
import numpy as np
x = [1]; a = np.array([x, None, 'a'], dtype=object); v = a[::2]; a[1] = a
s = np.array([(1, x)], dtype=[('a', 'i4'), ('o', object)])
ro = np.array([x, 2], dtype=object); ro.flags.writeable = False; m = np.empty((2, 2), object); m[0, 0] = x; t = m.T
fo = np.array([[1, 'a'], [x, None]], dtype=object, order='F'); zero = np.array(None, dtype=object); zero[()] = x
=> a[0] is x and v[0] is x and a[1] is a and a.__setitem__(2, 'q') is None and v[1] == 'q' and s['o'][0] is x
=> not ro.flags.writeable and ro[0] is x and t[0, 0] is x and m.__setitem__((0, 1), 5) is None and t[1, 0] == 5
=> fo[0, 1] == 'a' and fo[1, 0] is x and fo.flags.f_contiguous and zero[()] is x and zero.shape == ()
## structured arrays of objects
import numpy as np
x = [1]; inner = np.arange(2.)
kind = [('a', 'i4'), ('b', 'f8', (2,)), ('o', object, (2,)), ('n', [('p', object), ('q', 'M8[ns]')])]
s = np.zeros((2, 2), dtype=kind, order='F'); s['b'][1, 0] = 4, 5; v = s['b']
s['o'][0, 1, 1] = x; s['n']['p'][0, 0] = inner
s['n']['q'][1] = '2020-01-01'; one = s[:1]['n']['p']; s['o'][1, 1, 0] = s; r = np.zeros(1, kind).view(np.recarray)
=> s['b'][1, 0].tolist() == [4, 5] and v[1, 0, 1] == 5 and s['o'][0, 1].tolist() == [0, x] and s['o'][0, 1, 1] is x
=> s['n']['p'][0, 0] is inner and one[0, 0] is inner and s.flags.f_contiguous and np.shares_memory(s, v)
=> s['o'][1, 1, 0] is s and str(s['n']['q'][1, 0])[:4] == '2020' and type(r) is np.recarray and r.b.shape == (1, 2)
## masked arrays
import numpy as np
d = np.arange(5.); a = np.ma.masked_array(d, mask=[0, 1, 0, 0, 1], fill_value=-1, copy=False); b = a[1:3]
n = np.ma.array([1, 2])
m = np.ma.masked; h = np.ma.array([1, 2], mask=[1, 0], hard_mask=True)
=> a.filled().tolist() == [0, -1, 2, 3, -1] and d.__setitem__(0, 50) is None and a[0] == 50 and np.shares_memory(b, d)
=> n.mask is np.ma.nomask and m is np.ma.masked and h.hardmask and a.fill_value == -1
=> np.shares_memory(b.mask, a.mask)
## matrices, subclasses with attributes
import numpy as np
class Unit(np.ndarray):
    def __new__(cls, data, unit):
        made = np.asarray(data).view(cls)
        made.unit = unit
        return made
    def __array_finalize__(self, other):
        self.unit = getattr(other, 'unit', None)
m = np.matrix([[1, 2], [3, 4]]); row = m[0]; u = Unit([1., 2.], 'kg'); w = u[1:]; p = np.asarray(u)
=> type(m) is np.matrix and (m * m)[0, 0] == 7 and m.__setitem__((0, 0), 5) is None and row[0, 0] == 5
=> u.unit == 'kg' and w.unit == 'kg' and p.__setitem__(1, 9) is None and w[0] == 9 and u[1] == 9 and type(w) is type(u)
## arrays over other memory
import numpy as np
from array import array
b = bytearray(range(16)); a = np.frombuffer(b, 'u1'); v = a[4:8]; c = np.frombuffer(b'abcd' * 4, 'u1')
m = array('d', [1, 2, 3]); n = np.frombuffer(m); o = np.asarray(memoryview(b)[2:6])
=> b.__setitem__(5, 99) is None and a[5] == 99 and v[1] == 99 and o[3] == 99 and not c.flags.writeable and c[1] == 98
=> m.__setitem__(1, 7.5) is None and n[1] == 7.5
## the order of the members of a class with slots
class Slotted:
    __slots__ = ('v',)
    k = 1
    def get(self): return self.v
o = Slotted(); o.v = 3
=> [one for one in vars(Slotted) if one not in ('__doc__', '__firstlineno__')][1:4] == ['__slots__', 'k', 'get']
=> o.get() == 3 and type(o) is Slotted
## a view of an array that was protected later
import numpy as np
a = np.arange(4.0); m = memoryview(a); a.setflags(write=False); n = memoryview(a)
=> not m.readonly and n.readonly and not a.flags.writeable and m.__setitem__(0, 5.0) is None and a[0] == 5
## windows
import numpy as np
a = np.arange(10.); w = np.lib.stride_tricks.sliding_window_view(a, 3)
s = np.lib.stride_tricks.as_strided(a, (4, 2), (16, 8))
=> a.__setitem__(2, 55) is None and w[0, 2] == 55 and w[2, 0] == 55 and s[1, 0] == 55 and w.shape == (8, 3)
## scalars and dtypes
import numpy as np
a = [np.float64(1.5), np.int8(3), np.str_('x'), np.datetime64('2020-01-01'), np.bool_(True), np.dtype('f8'), np.nan,
    np.newaxis]
b = np.dtype([('a', 'f8')]); c = [np.add, np.float32, np.sin, np.linalg.norm, np.ndarray]
=> a[:6] == [1.5, 3, 'x', np.datetime64('2020-01-01'), True, np.dtype('f8')] and type(a[1]) is np.int8
=> b.names == ('a',)
=> c[0] is np.add and c[1] is np.float32 and c[2] is np.sin and c[3] is np.linalg.norm and a[4] is np.True_
## generators
import numpy as np
g = np.random.default_rng(5); g.random(); h = [g]; r = np.random.RandomState(5); r.rand(); x = g.bit_generator
g2 = np.random.Generator(x)
w1 = np.random.default_rng(5); w1.random(); want = w1.random(); w2 = np.random.RandomState(5); w2.rand()
want2 = w2.rand()
rand = np.random.rand
=> g.random() == want and h[0] is g and r.rand() == want2 and g2.bit_generator is g.bit_generator
=> rand.__self__ is np.random.mtrand._rand
## text of variable width
import numpy as np
a = np.array(['a', 'bcd' * 20], dtype=np.dtypes.StringDType()); b = a[1:]
=> a.tolist() == ['a', 'bcd' * 20] and b.tolist() == ['bcd' * 20] and a.dtype.kind == 'T'
""")

CODE = rows(r"""
## a function
def f(x, y=2, *, z=3):
    'doc'
    return x + y + z
f.tag = 5
=> f(1) == 6 and f.__doc__ == 'doc' and f.tag == 5 and f.__module__ == '__main__'
## a cell that two functions share
def make():
    n = [0]
    k = 0
    def inc():
        nonlocal k
        k += 1
    def get():
        return k, n
    return inc, get
inc, get = make()
=> inc() is None and get() == (1, [0]) and inc.__closure__[0] is get.__closure__[0]
## a recursive inner function
def make():
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)
    return fact
fact = make()
=> fact(5) == 120 and fact.__closure__[0].cell_contents is fact
## an instance
class A:
    def __init__(self):
        self.x = [1]
    def m(self):
        return self.x
a = A(); b = [a, a.x]; m = a.m
=> a.m() == [1] and b[0] is a and b[1] is a.x and m() is a.x
## an object with a hash of its own that is a key of what it holds
class Key:
    name = 'no name'
    def __init__(self, name): self.name = name; self.d = {self: 1}; self.s = {self}; self.f = frozenset([self])
    def __hash__(self): return hash(self.name)
    def __eq__(self, other): return isinstance(other, Key) and self.name == other.name
class Node:
    __slots__ = ('children', 'name', 'parent')
    def __init__(self, *name, parent=None):
        self.name, self.parent, self.children = name, parent, set()
        if parent: parent.children.add(self)
    def __hash__(self): return hash(('node', self.name))
    def __eq__(self, other): return type(other) is Node and self.name == other.name
class Table(dict): pass
k = Key('k'); leaf = Node('l', 2, parent=Node('top')); k.t = Table({k: 2}); k.t.k = k
=> k in k.d and k in k.s and k in k.f and k.t[k] == 2 and list(k.d)[0] is k
=> leaf in leaf.parent.children and [*leaf.parent.children][0] is leaf
## a hash that attrs keeps, in an instance that is a key of what it holds
import attrs
@attrs.define(frozen=True, cache_hash=True)
class Ref:
    key: tuple
    seen: dict = attrs.field(factory=dict, hash=False, eq=False)
r = Ref(('x', 1)); r.seen[r] = 1
=> r.seen[r] == 1 and r in r.seen and r.key == ('x', 1)
## a random generator of the user's class
import random
class Dice(random.Random):
    def __init__(self, seed, *, sides):
        super().__init__(seed); self.sides, self.log = sides, []
    def roll(self):
        self.log.append(self.randint(1, self.sides)); return self.log[-1]
d = Dice(1, sides=6); d.roll(); d.gauss(0, 1); d.me = d; roll = d.roll
twin = Dice(0, sides=6); twin.setstate(d.getstate())
=> len(d.log) == 1 and d.sides == 6 and d.me is d and roll.__self__ is d
=> d.getstate() == twin.getstate() and [roll() for _ in range(9)] == [twin.roll() for _ in range(9)]
## slots, weak references, properties
import weakref
class P:
    __slots__ = ('x', '__y', '__weakref__')
    def __init__(self): self.x = [1]; self.__y = 2
    @property
    def y(self): return self.__y
class Q(P):
    __slots__ = ('z',)
class R(Q):
    kind = 'r'
p = P(); q = Q(); q.z = p; r = R(); r.w = r; ref = weakref.ref(p); other = weakref.ref(p); gone = weakref.ref(P())
prox = weakref.proxy(p); wv = weakref.WeakValueDictionary(a=p); wk = weakref.WeakKeyDictionary(); wk[q] = 5
ws = weakref.WeakSet([p])
wm = weakref.WeakMethod(r.__init__)
=> p.y == 2 and q.z is p and r.w is r and r.x == [1] and ref() is p and other is ref and gone() is None and prox.y == 2
=> wv['a'] is p and wk[q] == 5 and list(ws) == [p] and wm()() is None and not hasattr(q, '__dict__')
## subclasses of what is built in
class L(list):
    def __init__(self, n): super().__init__(range(n)); self.n = n
    def append(self, x): raise RuntimeError
class D(dict):
    def __init__(self, a): self.log = []; super().__init__(); self['a'] = a
    def __setitem__(self, k, v): self.log.append(k); super().__setitem__(k, v)
class S(set): pass
class T(tuple):
    def __new__(cls, a, b): return super().__new__(cls, (a, b))
class I(int): pass
class X(str): pass
class F(float): pass
class B(bytearray): pass
class Attr(dict):
    def __init__(self): self.__dict__ = self
from collections import OrderedDict, defaultdict, deque, Counter, UserDict
class O(OrderedDict): pass
class DD(defaultdict): pass
class DQ(deque): pass
class C(Counter): pass
class U(UserDict): pass
l = L(3); l[0] = l; d = D(1); s = S({1}); s.t = 1; t = T(1, [2]); i = I(5); i.u = 'm'; x = X('a'); f = F(1.5)
b = B(b'ab'); a = Attr(); a.k = 1
o = O(b=1, a=2); o.move_to_end('b'); dd = DD(list); dd['x'].append(1); dq = DQ([1], 2); dq.n = 'q'; c = C('aab')
c.m = 1; u = U(a=1)
=> l[0] is l and l.n == 3 and l[1:] == [1, 2] and d == {'a': 1} and d.log == ['a'] and s == {1} and s.t == 1
=> t == (1, [2])
=> i == 5 and i.u == 'm' and x == 'a' and f == 1.5 and b == b'ab' and a['k'] == 1 and a.__setattr__('j', 2) is None
=> a['j'] == 2
=> list(o) == ['a', 'b'] and dd['new'] == [] and dd['x'] == [1] and dq.maxlen == 2 and dq.n == 'q' and c['a'] == 2
=> c.m == 1 and u['a'] == 1
=> ' '.join(type(one).__name__ for one in (l, d, s, t, i, x, f, b)) == 'L D S T I X F B'
## named tuples, dataclasses, enumerations
from collections import namedtuple
from dataclasses import dataclass, field, fields, replace
from enum import Enum, Flag, IntEnum, StrEnum, auto, unique
from typing import NamedTuple
N = namedtuple('N', 'a b', defaults=[5])
class M(NamedTuple):
    x: int
    y: list = []
@dataclass
class A:
    x: int = 1
    y: list = field(default_factory=list)
@dataclass(frozen=True, slots=True, order=True)
class Z:
    x: int
    y: str = 'a'
class Color(Enum):
    RED = 1; GREEN = 2; ROT = 1
    def other(self): return Color.GREEN
class Perm(Flag):
    R = auto(); W = auto()
class Num(IntEnum):
    ONE = 1
class Word(StrEnum):
    A = 'a'
class Planet(Enum):
    EARTH = (1, 2)
    def __init__(self, m, r): self.m, self.r = m, r
n = N(1); m = M(1); a = A(); a.y.append(a.x); z = Z(1); c = Color.RED; cs = [Color.RED, Color.ROT, c]
p = Perm.R | Perm.W; o = Num.ONE; w = Word.A
e = Planet.EARTH
=> n == (1, 5) and n._replace(a=3).a == 3 and m.y == [] and a.y == [1] and type(a)(2).x == 2 and z == type(z)(1)
=> z < type(z)(2) and hash(z)
=> c is cs[0] is cs[1] and c.other().name == 'GREEN' and type(c)(2).name == 'GREEN' and type(c)['ROT'] is c
=> len(type(c)) == 2
=> p.value == 3 and type(p).R in p and o == 1 and type(o)(1) is o and w == 'a' and e.r == 2 and type(e)((1, 2)) is e
=> [f.name for f in __import__('dataclasses').fields(a)] == ['x', 'y'] and isinstance(w, str)
## abstract, generic, nested, with metaclasses
import abc
from typing import ClassVar, Generic, Protocol, TypeVar, runtime_checkable
T = TypeVar('T')
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
    @classmethod
    def make(cls): return cls()
    @staticmethod
    def one(): return 1
class Square(Shape):
    def area(self): return super().__class__.__name__ + 'Square'
class Virtual: pass
Shape.register(Virtual)
class Box(Generic[T]):
    items: list[T]
    def __init__(self): self.items = []
class IntBox(Box[int]): pass
@runtime_checkable
class Has(Protocol):
    def area(self) -> int: ...
class Meta(type):
    made = []
    def __new__(mcs, name, bases, ns, **kw):
        cls = super().__new__(mcs, name, bases, ns)
        mcs.made.append(name)
        return cls
    def __len__(cls): return 7
class WithMeta(metaclass=Meta, flag=1): pass
class Outer:
    class Inner:
        def who(self): return type(self).__qualname__
    def __init__(self): self.inner = Outer.Inner()
class Base:
    seen = []
    def __init_subclass__(cls, *, tag, **kw): super().__init_subclass__(**kw); Base.seen.append((cls.__name__, tag))
class Sub(Base, tag='t'):
    def own(self): return super().__init__()
sq = Square(); vi = Virtual(); ib = IntBox(); wm = WithMeta(); ou = Outer(); su = Sub(); md = Square.make; so = sq.one
cm = Shape.__dict__['make']
=> sq.area() and isinstance(sq, type(sq).__mro__[1]) and isinstance(vi, type(sq).__mro__[1]) and md().area()
=> so() == 1
=> type(sq).__mro__[1].__abstractmethods__ == {'area'} and isinstance(sq, Has) and not isinstance(ib, Has)
=> ib.items == [] and type(ib).__orig_bases__[0].__args__ == (int,) and len(type(wm)) == 7
=> type(type(wm)).made == ['WithMeta']
=> ou.inner.who() == 'Outer.Inner' and type(ou).Inner is type(ou.inner) and type(su).seen == [('Sub', 't')]
=> su.own() is None
## what decorates
import functools
from contextlib import contextmanager
def deco(f):
    @functools.wraps(f)
    def inner(*a): return f(*a) + 1
    return inner
@deco
def f(x): return x
@functools.lru_cache(maxsize=5)
def g(x): return x * 2
@functools.cache
def h(): return [1]
@functools.singledispatch
def k(x): return 'any'
@k.register(int)
def _k(x): return 'int'
@contextmanager
def cm(): yield 5
class A:
    @functools.cached_property
    def slow(self): return [2]
    @functools.lru_cache
    def m(self): return 3
    @property
    def p(self): return 4
    @p.setter
    def p(self, v): self.v = v
    pm = functools.partialmethod(lambda self, x: x, 6)
g(1); h(); a = A(); s = a.slow; a.p = 9
=> f(1) == 2 and f.__wrapped__(1) == 1 and f.__name__ == 'f' and g(4) == 8 and g.cache_info().maxsize == 5
=> g.cache_info().currsize == 1
=> h() == [1] and k(1) == 'int' and k('a') == 'any' and cm().__enter__() == 5 and a.slow is s and a.m() == 3
=> a.p == 4 and a.v == 9 and a.pm() == 6
## functions with annotations, made by exec, lambdas, async
def f(x: int, *args: str, key: 'list' = None) -> dict: return {}
scope = {}; exec('y = 5\ndef g(): return y\nclass K:\n    def m(self): return y', scope); g = scope['g']
k = scope['K']()
l = [lambda: 1, lambda x=[]: x]; l.append(l[1].__defaults__[0])
async def co(): return 8
def answer(coroutine):
    try: coroutine.send(None)
    except StopIteration as end: return end.value
def gen(): yield 1
x = 10
def uses(): return x
=> f.__annotations__ == {'x': int, 'args': str, 'key': 'list', 'return': dict} and g() == 5 and g.__globals__ is scope
=> scope['g'] is g
=> l[1]() is l[2] and answer(co()) == 8 and list(gen()) == [1] and k.m() == 5 and uses() == 10
## an instance whose dict has a name
class A: pass
a = A(); v = vars(a); v['x'] = 1; d = A.__dict__
class S: __slots__ = ('x', '__weakref__')
s = vars(S)
=> s == vars(S) and setattr(S, 'later', 1) is None and s['later'] == 1
=> v['x'] == 1 and a.__dict__ is v and a.__setattr__('y', 2) is None and v['y'] == 2 and 'x' not in d
## its own way of being stored
import copyreg
class R:
    def __init__(self, x): self.x = x
    def __reduce__(self): return R, (self.x,)
class G:
    def __getstate__(self): return {'x': 5}
    def __setstate__(self, s): self.y = s['x']
class H:
    def __init__(self, v): self.v = v
def _reduce_h(h): return H, (h.v + 1,)
copyreg.pickle(H, _reduce_h)
class One:
    def __reduce__(self): return 'only'
only = One(); r = R([1]); g = G(); h = H(1); o = [only, r.x]
=> r.x == [1] and vars(g) == {} and h.v == 2 and o[0] is only and o[1] is r.x
## descriptors of the user's own, typed dicts
import abc, functools
from typing import TypedDict
class mine(property):
    def __init__(self, f, tag=None): super().__init__(f); self.tag = tag
class A:
    @mine
    def p(self): return 4
    class Desc:
        def __set_name__(self, owner, name): self.name = name
        def __get__(self, obj, cls): return self.name
    d = Desc()
    @functools.cached_property
    def c(self): return [1]
    __name__ = property(lambda self: 'named')
class TD(TypedDict, total=False):
    x: int
a = A(); td = TD(x=5); kinds = [TD, A]
=> a.p == 4 and a.d == 'd' and a.c is a.c and a.__name__ == 'named' and kinds[0](x=1) == {'x': 1} and td == {'x': 5}
=> kinds[0].__total__ is False and type(type(a).__dict__['p']).__name__ == 'mine' and type(a) is kinds[1]
## structures of ctypes
import ctypes
class P(ctypes.Structure):
    _fields_ = [('x', ctypes.c_int), ('y', ctypes.c_double)]
    def total(self): return self.x + self.y
p = P(1, 2.5); a = (ctypes.c_int * 3)(1, 2, 3); c = ctypes.c_double(1.5); b = [p, a]
=> p.total() == 3.5 and list(a) == [1, 2, 3] and c.value == 1.5 and b[0] is p and b[1] is a
## arrays in the memory of structures of ctypes
import ctypes, numpy as np
buffer = ctypes.create_string_buffer(b'hello'); text = np.frombuffer(buffer, 'u1')
numbers = (ctypes.c_int * 4)(1, 2, 3, 4); view = np.ctypeslib.as_array(numbers)[1:]
=> buffer.__setitem__(0, b'H') is None and chr(text[0]) == 'H' and text.tobytes() == buffer.raw
=> numbers.__setitem__(3, 9) is None and view.tolist() == [2, 3, 9]
## models of pydantic and attrs
import attrs
from pydantic import BaseModel, Field
class M(BaseModel):
    x: int = 1
    y: list[str] = Field(default_factory=list)
    def double(self): return self.x * 2
@attrs.define
class A:
    x: int
    y: list = attrs.field(factory=list)
    def who(self): return __class__.__name__
m = M(x='5'); l = m.y; a = A(1); b = [a.y, type(m)]
=> m.x == 5 and m.y is l and m.double() == 10 and b[1](x='7').x == 7 and a.y is b[0]
=> a.who() == 'A' and a == type(a)(1)
## classes of attrs, in a notebook of much else
import attrs, typing
big = list(range(9))
def at_least(instance, attribute, value):
    if value < limit: raise ValueError(value)
limit = 2; unit = str.upper
@attrs.define(order=True, unsafe_hash=True)
class A:
    x: int = attrs.field(validator=at_least)
    y: 'list' = attrs.field(factory=lambda: [limit], eq=False)
    z: str = attrs.field(default='m', converter=unit)
@attrs.frozen(kw_only=True)
class B(A):
    of: 'A | None' = None
@attrs.define(slots=False)
class C:
    w: float = 1.5
    @property
    def double(self): return self.w * factor
factor = 2
a = A(3); b = B(x=4, of=a, z='k'); c = [A, B, C(2.5)]
=> repr(a) == "A(x=3, y=[2], z='M')" and a < c[0](4) and hash(a) == hash(c[0](3)) and b.of is a
=> repr(b) == "B(x=4, y=[2], z='K', of=A(x=3, y=[2], z='M'))" and c[1](x=9).of is None and c[2].double == 5
=> c[0].__init__.__globals__ is not c[1].__init__.__globals__ and c[2] == type(c[2])(2.5)
=> __import__('typing').get_type_hints(c[0].__init__) == {'x': int, 'y': list, 'return': type(None)}
## functions of a copy of the namespace that has a name
count = [0]
here = dict(globals())
exec("def up():\n    global n\n    n = len(count)\n    return n", here)
f = here['up']; f()
=> f.__globals__ is here and here['n'] == 1 and here['count'] is count
## functions of a copy of the namespace that something else has
count = [0]; other = [1]
here = dict(globals())
exec("def up(): return len(count) + n", here)
held = [here]; f = here['up']; here['n'] = 1; del here
=> f() == 2 and f.__globals__ is held[0] and held[0]['count'] is count and held[0]['other'] is other
=> [held[0].update(n=5), f()][1] == 6
## functions of a copy of the namespace that has none
count = [0]; other = [1]
def make():
    scope = dict(globals())
    exec("def up():\n    global n\n    n = len(count)\n    return n", scope)
    exec("def now(): return n\ndef all(): return globals()", scope)
    return scope['up'], scope['now'], scope['all']
f, g, h = make(); f()
=> g() == 1 and f.__globals__ is g.__globals__ and f.__globals__['count'] is count and h()['other'] is other
=> h() is f.__globals__
""")

FRAMES = rows(r"""
## frames that look into one array without a copy
import numpy as np, pandas as pd
a = np.arange(6.0).reshape(3, 2); f = pd.DataFrame(a, copy=False); c = pd.Series(a[:, 0], copy=False); view = c[:]
i = pd.Index(a[:, 1], copy=False); late = pd.Series(i, copy=False)
=> f.iloc.__setitem__((0, 0), 9) is None and a[0, 0] == 9 and view[0] == 9
=> c.__setitem__(1, 9) is None and a[1, 0] == 2 and view[1] == 2
=> late.__setitem__(1, 9) is None and i[1] == 3 and a[1, 1] == 3
## a frame
import numpy as np, pandas as pd
d = pd.DataFrame({'a': [1, 2], 'b': [1.5, None], 'c': ['x', 'y'], 'd': pd.to_datetime(['2020-01-01', None])},
    index=['p', 'q'])
d.attrs['k'] = [1]; d.flags.allows_duplicate_labels = False; same = d.copy(); l = d.attrs['k']
=> d.equals(same) and d.attrs['k'] == [1] and not d.flags.allows_duplicate_labels and d.index.tolist() == ['p', 'q']
=> d.dtypes.tolist() == same.dtypes.tolist()
## frames that share blocks keep their copies on write
import numpy as np, pandas as pd
d = pd.DataFrame({'a': np.arange(4.), 'b': np.arange(4.)}); e = d[:]; s = d['a']; r = d.rename(columns={'a': 'z'})
v = d.to_numpy()
=> np.shares_memory(s.values, d['a'].values) and np.shares_memory(e['b'].values, d['b'].values)
=> d.__setitem__('q', 1) is None and d.iloc.__setitem__((0, 0), 99) is None
=> e.iloc[0, 0] == 0 and s.iloc[0] == 0 and r.iloc[0, 0] == 0 and d.iloc[0, 0] == 99
=> s.iloc.__setitem__(1, 7) is None and s.iloc[1] == 7 and d.iloc[1, 0] == 1 and e.iloc[1, 0] == 1
## an index made from a column
import pandas as pd
s = pd.Series([1, 2, 3], name='k'); i = pd.Index(s); j = i
=> s.iloc.__setitem__(0, 50) is None and i.tolist() == [1, 2, 3] and j is i and i.name == 'k'
## indexes
import pandas as pd
a = [pd.RangeIndex(5), pd.MultiIndex.from_product([['a', 'b'], [1, 2]], names=['x', 'y']), pd.date_range('2020',
    periods=3, freq='D'),
     pd.CategoricalIndex(['a', 'b']), pd.interval_range(0, 3), pd.period_range('2020', periods=2, freq='M'),
         pd.Index(['x'])]
b = list(a); c = pd.DataFrame({'v': range(4)}, index=a[1])
=> all(one.equals(other) for one, other in zip(a, b)) and a[2].freq is not None and c.loc[('b', 2), 'v'] == 3
=> c.index is a[1]
## extension arrays
import pandas as pd
a = pd.DataFrame({'i': pd.array([1, None], dtype='Int64'), 's': pd.array(['a', None], dtype='string'),
    'c': pd.Categorical(['x', 'y']),
                  'b': pd.array([True, None], dtype='boolean'), 't': pd.to_datetime(['2020',
                      '2021']).tz_localize('UTC')})
sp = pd.Series(pd.arrays.SparseArray([0, 0, 1])); n = pd.NA; nt = pd.NaT; ts = pd.Timestamp('2020', tz='UTC')
same = a.copy()
=> a.equals(same) and sp.sum() == 1 and n is __import__('pandas').NA and nt is __import__('pandas').NaT
=> ts.year == 2020
=> a.dtypes.tolist() == same.dtypes.tolist()
## columns of Arrow have names
import pyarrow as pa
t = pa.table({'a': [1, 2], 'b': pa.array(['x', 'y']).dictionary_encode()}); c = t['a']; d = t['b']
r = t.to_batches()[0].column(1); p = pa.array([1, 2])
=> [one.to_pandas().name for one in (c, d, r, p)] == ['a', 'b', 'b', None] and c.to_pylist() == [1, 2]
=> type(r) is pa.DictionaryArray and r.to_pylist() == d.to_pylist() == ['x', 'y'] and type(d) is pa.ChunkedArray
## a grouping and a large frame
import numpy as np, pandas as pd
d = pd.DataFrame({'k': np.arange(50_000) % 3, 'v': np.arange(50_000.)}); g = d.groupby('k'); q = d.v.rolling(3)
c = d.columns
=> g.v.sum().sum() == d.v.sum() and d.v.sum() == 1249975000 and q.sum().iloc[2] == 3 and d.columns is c
""")

THINGS = rows(r"""
## values of a thread
import threading
class Own(threading.local):
    kind = 'own'
    def __init__(self, size): self.size = size
a = [1]; t = threading.local(); t.rows = a; o = Own(3); o.size = 4; o.rows = a
=> t.rows is a and vars(t) == {'rows': [1]} and (o.kind, o.size) == ('own', 4) and o.rows is a
=> (s := [], h := threading.Thread(target=lambda: s.append(o.size)), h.start(), h.join(), s)[-1] == [3]
=> not hasattr(t, 'other') and type(t) is threading.local
## matches of expressions
import re
text = 'key=1; other=22'; p = re.compile(r'(?P<k>\w+)=(?P<v>\d+)'); m = p.match(text); s = p.search(text, 3)
every = list(p.finditer(text)); both = [every[1], m]; t = text
f = re.fullmatch('a|ab', 'ab'); b = re.match(b'x', b'xy')
=> m['k'] == 'key' and s.groupdict() == {'k': 'other', 'v': '22'} and s.pos == 3 and f.span() == (0, 2) and b[0] == b'x'
=> [one['v'] for one in every] == ['1', '22'] and both[0] is every[1] and both[1] is m and m.string is t and m.re is p
=> every[1].pos == 0 and m.expand(r'\2') == '1'
## a file that is read
import pathlib, tempfile
p = pathlib.Path(tempfile.mkdtemp()) / 'f.txt'; p.write_text('one\ntwo\nthree\n')
f = open(p); f.readline(); b = open(p, 'rb'); b.seek(4); r = open(p, 'rb', buffering=0); done = open(p); done.close()
w = open(p, 'a'); w.close()
g = [f]
=> f.readline() == 'two\n' and g[0] is f and b.read(3) == b'two' and r.read(3) == b'one' and done.closed and w.closed
=> w.mode == 'a'
=> done.name == f.name == str(p) and f.mode == 'r'
## databases
import pathlib, sqlite3, tempfile
m = sqlite3.connect(':memory:'); m.execute('create table t(x)'); m.execute('insert into t values (5)'); m.commit()
p = str(pathlib.Path(tempfile.mkdtemp()) / 'd.db'); f = sqlite3.connect(p); f.execute('create table t(x)')
f.execute('insert into t values (6)')
f.commit(); f.row_factory = sqlite3.Row; both = [m, f]
=> m.execute('select x from t').fetchall() == [(5,)] and f.execute('select x from t').fetchone()['x'] == 6
=> both[0] is m
## a map without a file
import mmap, numpy as np
m = mmap.mmap(-1, 4096); m[5:8] = b'abc'; a = np.frombuffer(m, 'u1'); m.seek(3)
=> m[5:8] == b'abc' and m.tell() == 3 and m.__setitem__(5, 90) is None and a[5] == 90
## maps of a file
import numpy as np, pathlib, tempfile
p = str(pathlib.Path(tempfile.mkdtemp()) / 'a.npy'); np.save(p, np.arange(100.)); a = np.load(p, mmap_mode='r')
v = a[5:9]; w = np.asarray(a)[::2]
q = p + '.raw'; b = np.memmap(q, 'i4', 'w+', shape=(50, 2)); b[3] = 7; b.flush()
c = np.memmap(q, 'i4', 'c', shape=(50, 2)); c[4] = 1
=> type(a) is np.memmap and a[7] == 7 and type(v) is np.memmap and v[2] == 7 and w[3] == 6 and np.shares_memory(a, w)
=> np.shares_memory(a, v)
=> b[3, 1] == 7 and b.__setitem__((3, 1), 8) is None and b.flush() is None and np.fromfile(q, 'i4')[7] == 8
=> c[4, 0] == 1 and c[3, 0] == 7
=> a.filename == p and b.mode in ('w+', 'r+') and a.offset == 128
## a figure
import matplotlib
matplotlib.use('agg')
import matplotlib.pyplot as plt
fig, ax = plt.subplots(); line, = ax.plot([1, 2], [3, 4]); ax.set_title('t'); rc = plt.rcParams
n = len(plt.get_fignums()); plt.close('all')
fig2 = plt.figure(); nums = plt.get_fignums()
=> fig.axes[0] is ax and ax.lines[0] is line and ax.get_title() == 't' and rc is __import__('matplotlib').rcParams
=> fig.canvas.manager is None and fig2.canvas.manager is None
=> __import__('matplotlib.pyplot').pyplot.get_fignums() == nums
=> ax.plot([1], [2]) and fig.canvas.draw() is None
## models
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
X = np.arange(20.).reshape(10, 2); y = np.arange(10) % 2
m = RandomForestClassifier(5, random_state=1).fit(X, y)
l = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y); e = m.estimators_[0]
want = m.predict(X).tolist(); want2 = l.predict(X).tolist()
=> m.predict(X).tolist() == want and l.predict(X).tolist() == want2 and m.estimators_[0] is e
## the shell and a logger
import logging
log = logging.getLogger('some.where'); root = logging.getLogger()
=> log is __import__('logging').getLogger('some.where') and root is __import__('logging').getLogger()
""")

ROWS = [*PLAIN, *ARRAYS, *FRAMES, *CODE, *THINGS]
