"""Whole notebooks on ipykernel and on ctxkernel: their cells one after another, as with "Run All". Prints a table.

    python benchmarks/run_all.py [--only NAME] [--rounds N] [--pause SECONDS] [--cells]

Rule 1: the kernels run in turns, each notebook in a kernel of its own, so a busy moment of the machine hits both. The
        table has the fastest of the rounds.
Rule 2: CPU is the kernel's own; wall time is from each request to idle, and so has what the next cell waits for.
`--pause`: after each cell, as a person does who reads its output; it counts in no time. `--cells`: also prints the
cells that took at least 0.1 s longer than on ipykernel.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from cells import KERNELS
from kernels import Kernel

COLUMNS = "notebook", "cells", "ipykernel s", "ctxkernel s", "×", "ipykernel CPU s", "ctxkernel CPU s", "×"

PLOTS = [
    "import matplotlib.pyplot as plt, numpy as np, pandas as pd\n%matplotlib inline",
    (
        "rng = np.random.default_rng(0)\ndf = pd.DataFrame({c: rng.normal(size=2000) for c in 'xy'})\n"
        "df['g'] = rng.choice(list('abcde'), 2000)"
    ),
    *(
        cell.format(n=n)
        for n in range(8)
        for cell in (
            (
                "fig{n}, ax{n} = plt.subplots(2, 2)\nax{n}[0, 0].plot(df.x[:200])\nax{n}[0, 1].hist(df.y, bins=30)\n"
                "ax{n}[1, 0].scatter(df.x, df.y)\nax{n}[1, 1].set_title('t')"
            ),
            "bars = df.groupby('g').y.mean().plot.bar()\nplt.title('{n}')",
            "ax{n}[0, 0].set_xlabel('x')",
            "mean = df.x.mean()",
            "plt.plot(df.x.rolling(50).mean())\nplt.show()",
            "fig, ax = plt.subplots()\nax.plot(np.sin(np.arange(100)))\nplt.show()",
        )
    ),
]
TABLES = [
    "import numpy as np, pandas as pd, matplotlib.pyplot as plt\n%matplotlib inline",
    (
        "rng = np.random.default_rng(0); n = 200_000\ndf = pd.DataFrame({'id': np.arange(n), "
        "'t': pd.date_range('2020', periods=n, freq='min'), 'city': rng.choice(['Paris', 'London', 'Rome'], n), "
        "'name': [f'user {i % 5000}' for i in range(n)], **{f'x{i}': rng.normal(size=n) for i in range(8)}})"
    ),
    "df.head()",
    "df.info()",
    "df.describe()",
    "df.isna().sum()",
    "df.loc[rng.choice(n, 5000), 'x1'] = np.nan",
    "df['x1'] = df['x1'].fillna(df['x1'].median())",
    "df['hour'] = df.t.dt.hour",
    "df['total'] = df[['x0', 'x1', 'x2']].sum(axis=1)",
    "by = df.groupby('city')[['x0', 'x1', 'total']].agg(['mean', 'std']); by",
    "df['name'].value_counts().head(10)",
    "users = df.groupby('name').total.sum().reset_index()",
    "m = df.merge(users, on='name', suffixes=('', '_user'))",
    "m = m[m.x3 > 0].copy()",
    "m.sort_values('total', inplace=True)",
    "m.total.plot.hist(bins=50)",
    "pivot = df.pivot_table(index='city', columns='hour', values='total'); pivot.round(2)",
    "plt.imshow(pivot.values, aspect='auto'); plt.colorbar()",
    "df['city'] = df['city'].astype('category')",
    "df.drop(columns=['x7'], inplace=True)",
    "corr = df.select_dtypes('number').corr(); corr",
    "daily = df.set_index('t').resample('D').total.mean()",
    "daily.plot()",
    "for c in df.select_dtypes('float').columns: df[c] = (df[c] - df[c].mean()) / df[c].std()",
    "top = df.nlargest(10, 'total'); top",
]
MODELS = [
    (
        "import numpy as np, matplotlib.pyplot as plt, pandas as pd\n%matplotlib inline\n"
        "from sklearn.datasets import load_breast_cancer, make_classification\n"
        "from sklearn.ensemble import RandomForestClassifier\nfrom sklearn.linear_model import LogisticRegression\n"
        "from sklearn.metrics import classification_report, confusion_matrix, roc_curve\n"
        "from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split\n"
        "from sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler"
    ),
    "data = load_breast_cancer(as_frame=True); df = data.frame",
    "X, y = data.data, data.target",
    "Xtr, Xte, ytr, yte = train_test_split(X, y, random_state=0)",
    "pipe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))",
    "pipe.fit(Xtr, ytr)",
    "pipe.score(Xte, yte)",
    "rf = RandomForestClassifier(200, random_state=0).fit(Xtr, ytr); rf.score(Xte, yte)",
    "scores = cross_val_score(pipe, X, y, cv=5); scores.mean()",
    "gs = GridSearchCV(pipe, {'logisticregression__C': [.1, 1, 10]}, cv=3).fit(Xtr, ytr); gs.best_params_",
    "proba = rf.predict_proba(Xte)[:, 1]",
    "fpr, tpr, _ = roc_curve(yte, proba); plt.plot(fpr, tpr)",
    "confusion_matrix(yte, rf.predict(Xte))",
    "print(classification_report(yte, rf.predict(Xte)))",
    "imp = pd.Series(rf.feature_importances_, X.columns).sort_values(); imp.plot.barh(figsize=(5, 8))",
    "models = {'lr': pipe, 'rf': rf}",
    "results = []\nfor name, m in models.items():\n    results.append((name, m.score(Xte, yte)))\nresults",
    "models['rf50'] = RandomForestClassifier(50).fit(Xtr, ytr)",
    "pd.DataFrame(results)",
    "B, c = make_classification(100_000, 20, random_state=0)",
    "big = LogisticRegression(max_iter=200).fit(B, c)",
    "pred = big.predict(B)",
    "(pred == c).mean()",
]
TEXTS = [
    "import collections, json, random\nrandom.seed(0)",
    "words = [''.join(random.choices('abcdefghij', k=random.randint(2, 8))) for _ in range(20_000)]",
    "docs = [' '.join(random.choices(words, k=30)) for _ in range(20_000)]",
    "tokens = [d.split() for d in docs]",
    "counts = collections.Counter(w for t in tokens for w in t)",
    "counts.most_common(5)",
    "index = collections.defaultdict(list)\nfor i, t in enumerate(tokens):\n    for w in set(t): index[w].append(i)",
    "len(index)",
    "index[words[0]][:5]",
    "recs = [{'id': i, 'text': d, 'n': len(d)} for i, d in enumerate(docs)]",
    "recs[5]['label'] = 'x'",
    "for r in recs: r['len2'] = r['n'] ** 2",
    "short = [r for r in recs if r['n'] < 150]",
    "recs.sort(key=lambda r: r['n'])",
    "text = json.dumps(recs[:1000])",
    "vocab = {w: i for i, w in enumerate(sorted(counts))}",
    "ids = [[vocab[w] for w in t] for t in tokens]",
    "ids[0][:5]",
    "del tokens",
]
OBJECTS = [
    "import random\nfrom dataclasses import dataclass, field",
    (
        "@dataclass\nclass Agent:\n    id: int\n    x: float = 0\n    y: float = 0\n"
        "    friends: list = field(default_factory=list)\n"
        "    def step(self):\n        self.x += random.random() - .5; self.y += random.random() - .5\n"
        "class World:\n    def __init__(self, n):\n        self.agents = [Agent(i) for i in range(n)]; self.t = 0\n"
        "    def step(self):\n        for a in self.agents: a.step()\n        self.t += 1"
    ),
    "w = World(20_000)",
    *(
        cell.format(n=n, m=n + 1)
        for n in range(10)
        for cell in ("w.step()", "a = w.agents[{n}]; a.friends.append(w.agents[{m}])", "len(a.friends), w.t")
    ),
]
ARRAYS = [
    "import numpy as np\nrng = np.random.default_rng(1)",
    "a = np.zeros((2000, 2000))",
    *(
        cell.format(n=n * 10)
        for n in range(8)
        for cell in (
            "a[{n}:{n} + 100] += rng.normal(size=(100, 2000))",
            "for _ in range(5): a[1:-1, 1:-1] = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) / 4",
            "mean = a.mean()",
        )
    ),
    "hist = []",
    "for s in range(100): hist.append(a[s].copy())",
    "u, s, vt = np.linalg.svd(a[:400, :400])",
]
GRAPHS = [
    "import networkx as nx, matplotlib.pyplot as plt\n%matplotlib inline",
    "G = nx.barabasi_albert_graph(5000, 3, seed=0)",
    "deg = dict(G.degree())",
    "G.add_edge(1, 2, weight=3)",
    "pr = nx.pagerank(G)",
    "nx.set_node_attributes(G, pr, 'pr')",
    "sub = G.subgraph(range(60)).copy()",
    "nx.draw(sub, node_size=20)",
    "H = G.copy()",
    "H.remove_nodes_from(range(100))",
    "nx.shortest_path(G, 10, 4000)",
    "comm = list(nx.community.label_propagation_communities(H))",
    "len(comm)",
]
NOTEBOOKS = {
    "tables": TABLES,
    "plots": PLOTS,
    "models": MODELS,
    "arrays": ARRAYS,
    "texts": TEXTS,
    "objects": OBJECTS,
    "graphs": GRAPHS,
}

Run = tuple[float, float, list[float]]
"""Wall time and CPU time in seconds, and the wall time of each cell."""


def run(module: str, cells: list[str], pause: float) -> Run:
    """Run the cells of a notebook in a kernel of its own."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = Kernel(module, Path(folder))
        try:
            before = _seconds(kernel)
            walls: list[float] = []
            for cell in cells:
                ran = kernel.run(cell)
                if ran.status != "ok":
                    raise RuntimeError(f"{cell[:60]!r}: {ran.error}")
                walls.append(ran.wall_ms / 1000)
                time.sleep(pause)
            return sum(walls), _seconds(kernel) - before, walls
        finally:
            kernel.stop()


def _seconds(kernel: Kernel) -> float:
    return float(json.loads(kernel.evaluate("__import__('time').process_time()")))


def measured(name: str, rounds: int, pause: float = 0.0) -> dict[str, Run]:
    """Return the fastest run of a notebook on each kernel."""
    found: dict[str, list[Run]] = {kernel: [] for kernel in KERNELS}
    for _ in range(rounds):
        for kernel, module in KERNELS.items():
            found[kernel].append(run(module, NOTEBOOKS[name], pause))
    return {kernel: min(runs) for kernel, runs in found.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=NOTEBOOKS, action="append", help="this notebook; may be given again")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--cells", action="store_true")
    args = parser.parse_args()
    slow: list[str] = []
    print(f"| {' | '.join(COLUMNS)} |\n|---{'|--:' * (len(COLUMNS) - 1)}|")
    for name in args.only or NOTEBOOKS:
        (stock, stock_cpu, before), (ours, ours_cpu, after) = measured(name, args.rounds, args.pause).values()
        ratios = ours / stock, ours_cpu / stock_cpu
        shown = f"{stock:.2f} | {ours:.2f} | {ratios[0]:.2f} | {stock_cpu:.2f} | {ours_cpu:.2f} | {ratios[1]:.2f}"
        print(f"| {name} | {len(before)} | {shown} |", flush=True)
        each = zip(NOTEBOOKS[name], before, after, strict=True)
        slow += [f"{name}: {a:.2f} → {b:.2f} s  {cell[:70]!r}" for cell, a, b in each if b - a > 0.1]
    if args.cells:
        print("", *slow, sep="\n")


if __name__ == "__main__":
    main()
