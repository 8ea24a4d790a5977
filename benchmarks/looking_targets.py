"""The targets of `looking.py`, with facts that were named in advance and totals that are counted independently.

A fact is a text that a person, or a model, would look for first. Most are from the parts that a cut at the beginning
or the end of a text loses: the last column, the main class among helpers, a rare line, a conclusion.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sizes:
    """How large the large targets are."""

    log_bytes: int = 2_000_000_000
    table_bytes: int = 5_000_000_000
    json_bytes: int = 50_000_000
    records: int = 100_000
    rows: int = 1_000_000


QUICK = Sizes(5_000_000, 5_000_000, 1_000_000, 20_000, 20_000)


@dataclass(frozen=True)
class Total:
    """How many items of a kind a target has at a level: what marks call them, and how the text shows one."""

    level: int
    what: str
    total: int
    shown: str
    named: str = r"(?!in )\S+"


@dataclass(frozen=True)
class Target:
    """Something to look at."""

    name: str
    make: Callable[[Path, Sizes], Any]
    """Return it: a path for a file or folder."""
    facts: tuple[str, ...]
    totals: tuple[Total, ...] = field(default=())
    prepared: bool = True
    """Whether the background's pass over it is waited for."""


def package(name: str) -> Path:
    """Return the folder of an installed package."""
    return Path(str(__import__(name).__file__)).parent


def in_sklearn(path: str) -> Callable[[Path, Sizes], Path]:
    """Return what returns a part of scikit-learn's source tree."""
    return lambda folder, sizes: package("sklearn") / path


def write(path: Path, text: str | bytes) -> Path:
    """Write a file and return its path."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def write_blocks(path: Path, head: bytes, block: bytes, size: int, rare: bytes = b"", tail: bytes = b"") -> Path:
    """Write a file of about `size` bytes: a block again and again, a rare line after two thirds."""
    with path.open("wb") as file:
        file.write(head)
        many = max(1, size // len(block))
        for at in range(many):
            file.write(block)
            if at == 2 * many // 3:
                file.write(rare)
        file.write(tail)
    return path


# -- logs and tables as files


def log(folder: Path, sizes: Sizes) -> Path:
    """Return a log with one rare line."""
    chance = random.Random(1)
    block = "".join(
        f"2026-03-0{at % 9 + 1} 12:{at // 60 % 60:02}:{at % 60:02} {('INFO', 'DEBUG', 'INFO', 'WARNING')[at % 4]} "
        f"step {at} loss={chance.random():.5f}{' retry' * (at % 3 == 0)}\n"
        for at in range(20_000)
    )
    rare = b"2026-03-09 23:59:59 CRITICAL disk failure on node 17\n"
    end = b"2026-03-09 23:59:59 INFO shutdown complete\n"
    return write_blocks(folder / "run.log", b"", block.encode(), sizes.log_bytes, rare, end)


def table(folder: Path, sizes: Sizes) -> Path:
    """Return a CSV file of ten columns."""
    chance = random.Random(1)
    block = "".join(
        f"{at},{chance.random():.6f},{chance.randrange(1000)},{('north', 'south')[at % 3 > 0]},2026-01-{at % 28 + 1:02}"
        f",{chance.gauss(0, 1):.4f},{at % 7},,user{chance.randrange(10**6)},{at % 2}\n"
        for at in range(20_000)
    )
    head = b"order,price,stock,region,day,score,weekday,comment,customer,returned\n"
    return write_blocks(folder / "orders.csv", head, block.encode(), sizes.table_bytes)


def wide_csv(folder: Path, sizes: Sizes) -> Path:
    """Return a CSV file of 300 features and a target."""
    names = [*(f"feature_{at}" for at in range(300)), "target"]
    rows = [",".join(str((at * row) % 17 / 4) for at in range(300)) + f",{row % 2}" for row in range(200)]
    return write(folder / "wide.csv", "\n".join([",".join(names), *rows, ""]))


def cancer_csv(folder: Path, sizes: Sizes) -> Path:
    """Return the breast cancer data as a CSV file."""
    cancer(folder, sizes).to_csv(folder / "cancer.csv", index=False)
    return folder / "cancer.csv"


def parquet(folder: Path, sizes: Sizes) -> Path:
    """Return the breast cancer data as a Parquet file."""
    cancer(folder, sizes).to_parquet(folder / "cancer.parquet")
    return folder / "cancer.parquet"


def lines_of_json(folder: Path, sizes: Sizes) -> Path:
    """Return events, one a line."""
    events = (
        {
            "id": at,
            "event": ("view", "buy")[at % 9 == 0],
            "user": {"name": f"u{at % 50}", "country": "DE"},
            "ms": at % 900,
        }
        for at in range(sizes.records)
    )
    return write(folder / "events.jsonl", "".join(json.dumps(event) + "\n" for event in events))


# -- JSON


def nested_value(count: int) -> dict[str, Any]:
    """Return what an API would answer: settings, users with addresses and orders."""
    users = [
        {
            "name": f"user {at}",
            "email": f"u{at}@example.org",
            "address": {"city": ("Berlin", "Paris", "Rome")[at % 3], "zip": 10_000 + at},
            "orders": [{"sku": f"A{at % 90}", "quantity": at % 5 + 1, "price": at / 4}] * (at % 3),
        }
        for at in range(count)
    ]
    flags = {f"flag_{at}": at % 2 == 0 for at in range(60)}
    return {
        "meta": {"version": 3, "license": "CC-BY", "pages": {"next": None}},
        "users": users,
        "flags": flags,
        "quota": 5,
    }


def nested_json(folder: Path, sizes: Sizes) -> Path:
    """Return it as a file."""
    return write(folder / "answer.json", json.dumps(nested_value(sizes.json_bytes // 170)))


def config_json(folder: Path, sizes: Sizes) -> Path:
    """Return a configuration with many sections."""
    sections = {f"section_{at}": {f"option_{one}": one for one in range(30)} for at in range(12)}
    return write(
        folder / "config.json", json.dumps(sections | {"database": {"host": "db.local", "port": 5432}}, indent=1)
    )


# -- texts


PARTS = ("Introduction", "Related work", "Method", "Data", "Experiments", "Results", "Discussion", "Conclusion")
CONCLUSION = "We conclude that drift halves the accuracy within nine days."


def paper(folder: Path, sizes: Sizes) -> Path:
    """Return a paper of eight pages."""
    pages = [["Drift in deployed models", "A. Author, B. Author", "Abstract", "We measure drift in deployed models."]]
    for at, part in enumerate(PARTS, 1):
        last = CONCLUSION if part == "Conclusion" else f"The {part.lower()} ends with remark {at}."
        pages.append(
            [f"{at} {part}", *(f"Sentence {one} of part {at} tells of step {one * at}." for one in range(30)), last]
        )
    return write(folder / "paper.pdf", pdf(pages))


def pdf(pages: list[list[str]]) -> bytes:
    """Return a PDF file with the lines of each page."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, lines in enumerate(pages):
        content = f"BT /F1 12 Tf 14 TL 50 700 Td {' '.join(f'({line}) Tj T*' for line in lines)} ET"
        font = "/Resources << /Font << /F1 3 0 R >> >>"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] {font} /Contents {5 + 2 * at} 0 R >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    out, places = b"%PDF-1.4\n", list[int]()
    for number, text in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode()
    entries = "".join(f"{place:010d} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{entries}"
    tail = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + (head + tail).encode()


def markdown(folder: Path, sizes: Sizes) -> Path:
    """Return a guide with many sections."""
    words = "This part tells how a step is done. It goes on with details that few people need.\n\n" * 6
    parts = "".join(f"## {part}\n\n{part} in one sentence. More of it.\n\n{words}" for part in PARTS * 2)
    return write(folder / "guide.md", f"# A guide to drift\n\n{parts}## Licence\n\n{CONCLUSION}\n")


def notebook(folder: Path, sizes: Sizes) -> Path:
    """Return a notebook of 60 cells."""
    cells: list[dict[str, Any]] = []
    for at, part in enumerate(PARTS * 3):
        cells.append({"cell_type": "markdown", "metadata": {}, "source": f"## {part} {at}\nWhat is done here."})
        source = f"def step_{at}(frame):\n    return frame.assign(n={at})\n\nresult_{at} = step_{at}(frame)"
        output = {"output_type": "stream", "name": "stdout", "text": f"rows: {at}\n" * 5}
        cells.append(
            {"cell_type": "code", "metadata": {}, "execution_count": at, "source": source, "outputs": [output]}
        )
    return write(
        folder / "work.ipynb", json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )


def script(folder: Path, sizes: Sizes) -> Path:
    """Return a TypeScript module."""
    helpers = "".join(
        f"function helper{at}(value: number): number {{\n  return value + {at}\n}}\n\n" for at in range(60)
    )
    main = "export class Fleet {\n  depart(ship: string): void {}\n  arrive(ship: string): boolean { return true }\n}\n"
    return write(folder / "fleet.ts", helpers + main)


def prose(folder: Path, sizes: Sizes) -> Path:
    """Return plain prose of 200 paragraphs."""
    text = "".join(f"Paragraph {at} opens with a claim. It goes on for a while, then ends.\n\n" for at in range(200))
    return write(folder / "notes.txt", text)


# -- objects


def cancer(folder: Path, sizes: Sizes) -> Any:
    """Return a frame of 31 columns."""
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(as_frame=True).frame


def wide_frame(folder: Path, sizes: Sizes) -> Any:
    """Return a frame of 301 columns."""
    import numpy as np
    import pandas as pd

    return pd.DataFrame({f"c{at}": np.arange(5.0) * at for at in range(300)} | {"target": [1, 0, 1, 0, 1]})


HOUSES = """MSSubClass MSZoning LotFrontage LotArea Street Alley LotShape LandContour Utilities LotConfig LandSlope
Neighborhood Condition1 Condition2 BldgType HouseStyle OverallQual OverallCond YearBuilt YearRemodAdd RoofStyle RoofMatl
Exterior1st Exterior2nd MasVnrType MasVnrArea ExterQual ExterCond Foundation BsmtQual BsmtCond BsmtExposure BsmtFinType1
BsmtFinSF1 BsmtUnfSF TotalBsmtSF Heating HeatingQC CentralAir Electrical 1stFlrSF 2ndFlrSF LowQualFinSF GrLivArea
BsmtFullBath FullBath HalfBath BedroomAbvGr KitchenAbvGr KitchenQual TotRmsAbvGrd Functional Fireplaces GarageType
GarageYrBlt GarageFinish GarageCars GarageArea"""


def houses(folder: Path, sizes: Sizes) -> Any:
    """Return a frame of 60 columns with the names of a data set of houses."""
    import numpy as np
    import pandas as pd

    columns = {name: np.arange(500) % (at + 2) for at, name in enumerate(HOUSES.split())}
    weight = np.where(np.arange(500) % 50, 1.0, np.nan)
    return pd.DataFrame(columns | {"weight": weight, "outcome": ["yes", "no"] * 250})


def long_frame(folder: Path, sizes: Sizes) -> Any:
    """Return a long frame of eight columns."""
    import numpy as np
    import pandas as pd

    chance = np.random.default_rng(0)
    rows = sizes.rows
    return pd.DataFrame(
        {
            "when": pd.date_range("2024-01-01", periods=rows, freq="min"),
            "sensor": pd.Categorical(chance.choice(["roof", "cellar", "yard"], rows)),
            **{f"reading_{at}": chance.normal(at, 1, rows) for at in range(5)},
            "alarm": chance.random(rows) < 0.001,
        }
    )


def polars_frame(folder: Path, sizes: Sizes) -> Any:
    """Return the breast cancer data in polars."""
    import polars

    return polars.from_pandas(cancer(folder, sizes))


def records(folder: Path, sizes: Sizes) -> Any:
    """Return a list of dicts."""
    return [
        {"id": at, "name": f"user {at % 1000}", "score": at / 7, "ok": at % 2 == 0, "city": ("Berlin", "Rome")[at % 2]}
        | {"tag": None if at % 5 else "x", "churned": at % 11 == 0}
        for at in range(sizes.records)
    ]


def array(folder: Path, sizes: Sizes) -> Any:
    """Return a matrix of random numbers."""
    import numpy as np

    return np.random.default_rng(0).random((100, 50))


def numbers(folder: Path, sizes: Sizes) -> Any:
    """Return a long array."""
    import numpy as np

    return np.arange(sizes.rows, dtype="float32") / 7


def classifier(folder: Path, sizes: Sizes) -> Any:
    """Return a fitted forest."""
    from sklearn.ensemble import RandomForestClassifier

    frame = cancer(folder, sizes)
    return RandomForestClassifier(n_estimators=7, max_depth=4, random_state=0).fit(
        frame.drop(columns="target"), frame["target"]
    )


def pipeline(folder: Path, sizes: Sizes) -> Any:
    """Return a fitted pipeline with a model at its end."""
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = cancer(folder, sizes)
    columns = ColumnTransformer([("scale", StandardScaler(), ["mean area"]), ("code", OneHotEncoder(), ["target"])])
    return Pipeline([("columns", columns), ("model", LogisticRegression(C=0.5))]).fit(frame, frame["target"])


def search(folder: Path, sizes: Sizes) -> Any:
    """Return a search for parameters."""
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV

    frame = cancer(folder, sizes)
    grid = {"alpha": [0.1, 1.0, 10.0], "fit_intercept": [True, False]}
    return GridSearchCV(Ridge(), grid, cv=3).fit(frame.drop(columns="target"), frame["target"])


def figure(folder: Path, sizes: Sizes) -> Any:
    """Return a figure of two axes."""
    from matplotlib.figure import Figure

    made = Figure()
    left, right = made.subplots(1, 2)
    left.plot([1, 2, 3], [3, 1, 2], label="training")
    left.set(title="Loss by epoch", xlabel="epoch", ylabel="loss")
    right.hist([1, 2, 2, 3])
    right.set(title="Residuals")
    return made


def graph(folder: Path, sizes: Sizes) -> Any:
    """Return a graph of people."""
    import networkx

    return networkx.karate_club_graph()


def dataset(folder: Path, sizes: Sizes) -> Any:
    """Return labelled arrays."""
    import numpy as np
    import xarray

    days, cells = np.arange(30), np.arange(4)
    values = {
        name: (("day", "cell"), np.ones((30, 4)) * at) for at, name in enumerate(("temperature", "humidity", "wind"))
    }
    return xarray.Dataset(values, coords={"day": days, "cell": cells}, attrs={"station": "Potsdam"})


def exception(folder: Path, sizes: Sizes) -> Any:
    """Return an error with its traceback."""
    try:
        json.loads("{broken")
    except ValueError as fault:
        return fault
    raise AssertionError("unreachable")


def instance(folder: Path, sizes: Sizes) -> Any:
    """Return an object of a class of one's own, with 40 attributes."""
    names = [*(f"option_{at}" for at in range(38)), "learning_rate", "checkpoint"]
    return make_dataclass("Settings", [(name, float, at / 10) for at, name in enumerate(names)])()


def thousand(folder: Path, sizes: Sizes) -> Any:
    """Return a dict of 1,000 items."""
    return {f"key_{at}": at for at in range(999)} | {"winner": "key_17"}


def function(folder: Path, sizes: Sizes) -> Any:
    """Return a function of the standard library."""
    return json.JSONEncoder


def columns_of(width: int) -> tuple[Total, ...]:
    """Return what a table of so many columns has."""
    return tuple(Total(level, "columns", width, r"^(?:- )?[\w ]+: ") for level in (1, 2))


TARGETS: tuple[Target, ...] = (
    Target("tree of scikit-learn", in_sklearn(""), ("linear_model/", "ensemble/", "svm/", "cluster/")),
    Target("module sklearn", lambda folder, sizes: __import__("sklearn"), ("linear_model", "BaseEstimator", "clone")),
    Target(
        "sklearn/linear_model/_ridge.py",
        in_sklearn("linear_model/_ridge.py"),
        ("Ridge", "class Ridge(", "RidgeCV", "RidgeClassifier", "ridge_regression", "resolve_solver"),
    ),
    Target(
        "sklearn/pipeline.py",
        in_sklearn("pipeline.py"),
        ("class Pipeline(", "FeatureUnion", "make_pipeline", "make_union"),
    ),
    Target("sklearn/ensemble", in_sklearn("ensemble"), ("_forest.py", "_gb.py", "_stacking.py")),
    Target("log", log, ("CRITICAL", "disk failure on node 17", "WARNING")),
    Target(
        "CSV, 10 columns", table, ("order", "region", "north", "customer", "returned"), columns_of(10), prepared=False
    ),
    Target("CSV, 301 columns", wide_csv, ("feature_0", "target", "301 columns"), columns_of(301)),
    Target("CSV, 31 columns", cancer_csv, ("target", "mean radius", "worst area", "569 rows"), columns_of(31)),
    Target("Parquet, 31 columns", parquet, ("target", "mean radius", "worst area"), columns_of(31)),
    Target("JSON lines", lines_of_json, ("event", "user.country", "buy", "ms")),
    Target("nested JSON", nested_json, ("license", "quota", "orders", "city", "flag_0")),
    Target("configuration in JSON", config_json, ("section_11", "database", "port")),
    Target("paper in PDF", paper, ("Drift in deployed models", "Abstract", "Method", "Conclusion", CONCLUSION)),
    Target("guide in Markdown", markdown, ("A guide to drift", "Method", "Licence")),
    Target("notebook", notebook, ("Introduction 0", "step_0", "Conclusion 23")),
    Target(
        "TypeScript",
        script,
        ("class Fleet", "Fleet", "depart"),
        (Total(1, "symbols", 61, r"^\d+ (?:export|function)"),),
    ),
    Target("prose", prose, ("Paragraph 0", "Paragraph 1 ")),
    Target("pattern *.py", lambda folder, sizes: str(package("sklearn") / "svm/*.py"), ("_classes.py", "_base.py")),
    Target(
        "frame, 31 columns", cancer, ("target", "mean radius", "worst area", "fractal dimension error"), columns_of(31)
    ),
    Target("frame, 301 columns", wide_frame, ("target", "c0", "c299"), columns_of(301)),
    Target("frame, 60 names", houses, ("weight", "outcome", "yes", "10 nulls"), columns_of(60)),
    Target("frame, a million rows", long_frame, ("when", "cellar", "reading_4", "alarm"), columns_of(8)),
    Target("Series", lambda folder, sizes: cancer(folder, sizes)["mean area"], ("mean area", "143.5", "2501")),
    Target("polars frame", polars_frame, ("target", "worst area"), columns_of(31)),
    Target("GroupBy", lambda folder, sizes: cancer(folder, sizes).groupby("target"), ("target", "357", "mean radius")),
    Target("records", records, ("churned", "Berlin", "score", "records")),
    Target("nested dict", lambda folder, sizes: nested_value(3_000), ("license", "quota", "sku", "zip")),
    Target("dict of 1,000", thousand, ("1,000", "winner", "key_0")),
    Target("array 100 × 50", array, ("100 × 50", "float64", "0.6369")),
    Target("long array", numbers, ("float32", "max")),
    Target("classifier", classifier, ("max_depth", "estimators_", "n_estimators", "30")),
    Target("pipeline", pipeline, ("LogisticRegression", "StandardScaler", "C = 0.5", "OneHotEncoder")),
    Target("search", search, ("Ridge", "alpha", "best_score_")),
    Target("figure", figure, ("Loss by epoch", "epoch", "Residuals", "training")),
    Target("graph", graph, ("34", "78", "club")),
    Target("labelled arrays", dataset, ("temperature", "wind", "Potsdam")),
    Target("exception", exception, ("JSONDecodeError", "column 2")),
    Target("instance", instance, ("learning_rate", "checkpoint", "option_0")),
    Target("class", function, ("class JSONEncoder", "iterencode", "default")),
)
