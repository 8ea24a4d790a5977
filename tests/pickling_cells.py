"""Cells and what holds of their names when these come back: plain data, arrays, code."""

from __future__ import annotations

from pickling_rows import rows

PLAIN = rows("""
## numbers and text
a = [1, 2.5, True, None, 'ä', b'x', 10**30, 1j, ..., NotImplemented]
=> a == [1, 2.5, True, None, 'ä', b'x', 10**30, 1j, ..., NotImplemented]
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
""")

ARRAYS = rows("""
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
""")

CODE = rows("""
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
""")

ROWS = [*PLAIN, *ARRAYS, *CODE]
