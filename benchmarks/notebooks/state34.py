# A notebook of 34 cells whose state is hard to keep: one large array that is written in parts, views and aliases,
# frames, models, a figure, and things that no pickle holds. `benchmarks/checkpoints.py` runs it.
#
# `# %%` begins a cell. A `#?` line is no part of the cell: it is an expression that is looked at after every cell, and
# again after each return. What it was then, it must be again; an expression that raises must raise the same again.
# `#~` is the same for what surrounds the variables: generators, folder, environment, options; not all claim that.

# %% 1 imports
import itertools, os, random, sqlite3, threading, weakref
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

# %% 2 generators
random.seed(5)
np.random.seed(3)
rng = np.random.default_rng(7)

# %% 3 500 MB
arr = rng.standard_normal(62_500_000)

# %% 4 views
v = arr[1_000:2_000_000:2]
w = arr.reshape(1_000, -1)
row = w[3]
#? np.shares_memory(v, arr)
#? np.shares_memory(w, arr)
#? np.shares_memory(row, w)
#? row.base is arr

# %% 5 aliases
shared = [1, [2, 3], {"k": 4}]
alias = shared
nested = {"a": shared, "b": shared[1]}
#? alias is shared
#? nested["a"] is shared
#? nested["b"] is shared[1]

# %% 6 classes
class Account:
    """Holds a lock, and a log that others hold too."""

    opened = 0

    def __init__(self, owner):
        Account.opened += 1
        self.owner, self.balance, self.log, self.partner = owner, 0, [], None
        self.lock = threading.Lock()

    def deposit(self, amount):
        with self.lock:
            self.balance += amount
            self.log.append((self.owner, amount))


class Point:
    __slots__ = ("x", "y", "__weakref__")

    def __init__(self, x, y):
        self.x, self.y = x, y
#? Account.opened
#? isinstance(acc, Account) and type(acc) is Account
#? type(points[0]) is Point

# %% 7 instances
acc = Account("ada")
accounts = [acc, Account("ben")]
acc.partner, accounts[1].partner = accounts[1], acc
points = [Point(i, i * i) for i in range(100)]
audit = acc.log
#? accounts[0] is acc
#? acc.partner.partner is acc
#? audit is acc.log
#? acc.balance, audit

# %% 8 lock and connection
lock = threading.Lock()
con = sqlite3.connect(":memory:")
con.execute("create table t (a integer)").connection.executemany("insert into t values (?)", [(1,), (2,)])
con.commit()
#? lock.locked()
#? con.execute("select a from t order by a").fetchall()

# %% 9 generator
def squares():
    for i in itertools.count():
        yield i * i


gen = squares()
first = [next(gen) for _ in range(3)]
#? gen.gi_frame.f_locals["i"]

# %% 10 open file
with open("notes.txt", "w") as out:
    out.write("one\ntwo\nthree\nfour\n")
del out
notes = open("notes.txt")
line = notes.readline()
#? notes.closed, notes.tell(), notes.name

# %% 11 frame
df = pd.DataFrame(
    {
        "price": rng.gamma(2.0, 20.0, 200_000),
        "qty": rng.integers(1, 100, 200_000),
        "kind": pd.Categorical.from_codes(rng.integers(0, 4, 200_000), ["a", "b", "c", "d"]),
        "name": [f"item {i % 500}" for i in range(200_000)],
    }
)

# %% 12 parts of the frame
price = df["price"]
sub = df[df.qty > 50]
means = df.groupby("kind", observed=True).price.mean()
frames = {"all": df, "sub": sub}
#? frames["all"] is df
#? frames["sub"] is sub

# %% 13 functions
factor = 2.0


def scale(x):
    return x * factor


def make_counter():
    count = 0

    def up():
        nonlocal count
        count += 1
        return count

    def read():
        return count

    return up, read


up, read = make_counter()
double = lambda x: scale(x) + scale(x)
#? scale(1.0), double(1.0)
#? scale.__globals__ is globals()
#? read()
#? up.__closure__[0] is read.__closure__[0]

# %% 14 a slice of the array
arr[5_000_000:5_200_000] *= 2

# %% 15 through a view
v[:100] = 0.0

# %% 16 scattered
idx = rng.integers(0, arr.size, 10_000)
arr[idx] = idx

# %% 17 a column
df["total"] = df.price * df.qty

# %% 18 cells of a frame
df.loc[10:20, "price"] = -1.0
#? df.price[15], price[15]

# %% 19 through an alias
alias.append("tail")
nested["b"].append(99)

# %% 20 forest
data_x = rng.standard_normal((2_000, 10))
data_y = data_x @ np.arange(10.0) + rng.standard_normal(2_000)
forest = RandomForestRegressor(30, random_state=0).fit(data_x, data_y)
#? float(forest.predict(data_x[:20]).sum())

# %% 21 figure
fig, ax = plt.subplots()
[curve] = ax.plot(np.arange(1000), np.sin(np.arange(1000) / 50))
#? ax is fig.axes[0] and curve is ax.lines[0]
#? ax.get_title(), len(ax.lines), float(curve.get_ydata().sum())

# %% 22 more of the figure
ax.set_title("waves")
ax.plot(np.arange(1000), np.cos(np.arange(1000) / 50))
curve.set_ydata(np.zeros(1000))
fig.canvas.draw_idle()

# %% 23 a global that functions read
factor = 3.0
up()
scaled = [scale(x) for x in row[:10]]

# %% 24 cycle, weak reference, iterators, memory
nested["self"] = nested
ref = weakref.ref(acc)
steps = itertools.count(10, 5)
next(steps)
raw = bytearray(b"0123456789" * 10)
window = memoryview(raw)[10:20]
#? nested["self"] is nested
#? ref() is acc
#? window.obj is raw
#? repr(steps)

# %% 25 deletes
del sub, idx
frames.pop("sub")

# %% 26 consume
line = notes.readline()
first.append(next(gen))

# %% 27 the connection
con.execute("insert into t values (3)")
con.commit()

# %% 28 global generators
noise = np.random.rand(1_000)
pick = random.choice(range(1_000_000))
#~ random.getstate()[1][-1], random.getstate()[1][0], np.random.get_state()[2]
#? rng.bit_generator.state["state"]["state"]

# %% 29 models that share
linear = make_pipeline(StandardScaler(), LinearRegression()).fit(data_x, data_y)
models = {"forest": forest, "linear": linear}
#? models["forest"] is forest
#? float(models["linear"].predict(data_x[:20]).sum())

# %% 30 a block of the array
w[500, :1_000] = 7.0
window[0] = 0x41

# %% 31 an alias ends
alias = list(alias)
alias[1] = [0]
shared.insert(0, "head")

# %% 32 by a function alone
def settle():
    acc.deposit(5)
    points[0].x += 1
    points.reverse()


settle()

# %% 33 a frame made anew
df = df.sort_values("total", ignore_index=True)
df.attrs["note"] = "sorted"
frames["sorted"] = df

# %% 34 surroundings
os.makedirs("below", exist_ok=True)
os.chdir("below")
os.environ["BENCHMARK_MODE"] = "late"
plt.rcParams["lines.linewidth"] = 3.0
pd.set_option("display.max_rows", 7)
summary = {"rows": len(df), "sum": float(arr[::1_000].sum())}
#~ os.path.basename(os.getcwd()) == "below"
#~ os.environ.get("BENCHMARK_MODE")
#~ plt.rcParams["lines.linewidth"], pd.get_option("display.max_rows")
