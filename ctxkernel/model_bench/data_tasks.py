"""Tasks about data: clean, merge, reshape, fit and plot."""

from __future__ import annotations

from ctxkernel.model_bench.task import Solution, Task, code

_PANDAS, _PLOTS = ("pandas",), ("pandas", "matplotlib")

DATA_TASKS = (
    Task(
        "clean-numbers",
        "turn texts into numbers",
        (
            code("""
                import pandas as pd

                table = pd.DataFrame({"site": list("abcdef"), "flow": ["1,234.5", " 12 ", "n/a", "-", "-3.5", "1e3"]})
                table
            """),
        ),
        "Make the column `flow` of `table` a column of floats: a comma separates thousands; 'n/a' and '-' mean "
        "that the value is missing. Keep all rows.",
        code("""
            assert str(table["flow"].dtype) == "float64", table["flow"].dtype
            assert table["flow"].isna().tolist() == [False, False, True, True, False, False], table
            assert table["flow"].dropna().tolist() == [1234.5, 12.0, -3.5, 1000.0], table
            assert table["site"].tolist() == list("abcdef")
        """),
        Solution(
            (
                code("""
                    texts = table["flow"].str.strip().str.replace(",", "")
                    table["flow"] = pd.to_numeric(texts, errors="coerce").astype(float)
                    table
                """),
            )
        ),
        Solution(('table["flow"] = pd.to_numeric(table["flow"], errors="coerce")',)),
        _PANDAS,
    ),
    Task(
        "duplicates",
        "keep the newest of several rows",
        (
            code("""
                import pandas as pd

                samples = pd.DataFrame(
                    {
                        "id": [7, 3, 7, 5, 3, 7],
                        "taken": ["2026-01-09", "2026-01-02", "2026-01-10", "2026-01-01", "2026-01-01", "2025-12-31"],
                        "value": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
                    }
                )
                samples
            """),
        ),
        "Set `newest` to a table with one row for each id of `samples`: the one that was taken last, sorted by "
        "id. `samples` shall stay as it is.",
        code("""
            assert newest["id"].tolist() == [3, 5, 7], newest
            assert newest["value"].tolist() == [2.0, 4.0, 3.0], newest
            assert len(samples) == 6 and samples["id"].tolist() == [7, 3, 7, 5, 3, 7], "samples changed"
        """),
        Solution(
            ('newest = samples.sort_values("taken").drop_duplicates("id", keep="last").sort_values("id")\nnewest',)
        ),
        Solution(('newest = samples.drop_duplicates("id", keep="last").sort_values("id")',)),
        _PANDAS,
    ),
    Task(
        "merge",
        "merge tables whose keys are not clean",
        (
            code("""
                import pandas as pd

                orders = pd.DataFrame({"order": [1, 2, 3, 4], "sku": ["A1 ", "b2", "C3", "Z9"], "n": [2, 1, 5, 1]})
                prices = pd.DataFrame({"sku": ["a1", "B2", "c3", "B2"], "price": [10.0, 4.0, 2.0, 4.0]})
            """),
        ),
        "Set `bill` to `orders` with the price of each article from `prices` and a column `total` (n × price). "
        "Keys that differ only in case or blanks are the same article. Each order is one row, in the order of "
        "`orders`; an article without a price has a missing price and total.",
        code("""
            assert bill["order"].tolist() == [1, 2, 3, 4], bill
            assert bill["total"].isna().tolist() == [False, False, False, True], bill
            assert bill["total"].tolist()[:3] == [20.0, 4.0, 10.0], bill
        """),
        Solution(
            (
                code("""
                    known = prices.assign(key=prices["sku"].str.strip().str.upper()).drop_duplicates("key")
                    bill = orders.assign(key=orders["sku"].str.strip().str.upper())
                    bill = bill.merge(known[["key", "price"]], on="key", how="left").drop(columns="key")
                    bill["total"] = bill["n"] * bill["price"]
                    bill
                """),
            )
        ),
        Solution(
            (
                code("""
                    prices["sku"] = prices["sku"].str.upper()
                    orders["sku"] = orders["sku"].str.strip().str.upper()
                    bill = orders.merge(prices, on="sku", how="left")
                    bill["total"] = bill["n"] * bill["price"]
                """),
            )
        ),
        _PANDAS,
    ),
    Task(
        "reshape",
        "turn rows into columns",
        (
            code("""
                import pandas as pd

                long = pd.DataFrame(
                    [("b", 2, 0.3), ("a", 1, 0.1), ("a", 2, 0.2), ("c", 1, 0.4)], columns=["plant", "week", "height"]
                )
                long
            """),
        ),
        "Set `wide` to a table with one row for each plant (its index, sorted), one column for each week (1 and "
        "2), and the heights as values. A height that is not in `long` is missing.",
        code("""
            assert wide.index.tolist() == ["a", "b", "c"], wide
            assert [int(one) for one in wide.columns] == [1, 2], wide
            assert wide.isna().to_numpy().tolist() == [[False, False], [True, False], [False, True]], wide
            assert wide.loc["a"].tolist() == [0.1, 0.2], wide
        """),
        Solution(('wide = long.pivot(index="plant", columns="week", values="height")\nwide',)),
        Solution(('wide = long.pivot_table(index="plant", columns="week", values="height", fill_value=0)',)),
        _PANDAS,
    ),
    Task(
        "gaps",
        "fill short gaps and leave long ones",
        (
            code("""
                import pandas as pd

                hours = pd.date_range("2026-05-01", periods=10, freq="h")
                level = pd.Series([1.0, None, 3.0, None, None, None, 7.0, 8.0, None, None], index=hours)
                level
            """),
        ),
        "Set `filled` to `level` with each gap of exactly one hour between two values filled linearly. Longer "
        "gaps, and missing values at the end, stay missing. `level` shall stay as it is.",
        code("""
            assert len(filled) == 10 and level.isna().sum() == 6, "level changed, or rows are gone"
            assert filled.isna().tolist() == [False] * 3 + [True] * 3 + [False] * 2 + [True] * 2, filled
            assert abs(filled.iloc[1] - 2.0) < 1e-9, filled
        """),
        Solution(
            (
                code("""
                    alone = level.isna() & level.shift(1).notna() & level.shift(-1).notna()
                    filled = level.copy()
                    filled[alone] = level.interpolate()[alone]
                    filled
                """),
            )
        ),
        Solution(("filled = level.interpolate(limit=1)",)),
        _PANDAS,
    ),
    Task(
        "outliers",
        "find the bad values of each group",
        (
            code("""
                import random

                import pandas as pd

                random.seed(4)
                rows = [(sensor, 20 * n + random.gauss(0, 1)) for n, sensor in enumerate("ABC", 1) for _ in range(40)]
                readings = pd.DataFrame(rows, columns=["sensor", "value"])
                readings.loc[[5, 47, 110], "value"] = [38.0, 61.0, 19.5]
                readings.groupby("sensor")["value"].describe().round(1)
            """),
        ),
        "Three readings are wrong: each is far from the other values of its own sensor, though normal for another "
        "one. Set `bad` to the sorted list of their row numbers in `readings`.",
        "assert [int(one) for one in bad] == [5, 47, 110], bad",
        Solution(
            (
                code("""
                    middle = readings.groupby("sensor")["value"].transform("median")
                    far = (readings["value"] - middle).abs()
                    bad = sorted(far[far > 10].index)
                    bad
                """),
            )
        ),
        Solution(
            (
                code("""
                    far = (readings["value"] - readings["value"].mean()).abs()
                    bad = sorted(far.nlargest(3).index)
                """),
            )
        ),
        _PANDAS,
    ),
    Task(
        "fit",
        "fit a line to the right part of the data",
        (
            code("""
                import pandas as pd

                t = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]
                trial = pd.DataFrame({"t": t, "x": [0.0, 0.1, 0.5, 2.0, 3.9, 6.1, 8.0, 10.1, 11.9, 14.0]})
                trial
            """),
        ),
        "The motor runs at a constant speed from t = 1.5 on. Set `slope` and `intercept` to those of the "
        "least-squares line of x over t through the rows with t >= 1.5.",
        code("""
            assert abs(slope - 4.0) < 0.02, slope
            assert abs(intercept + 4.0) < 0.05, intercept
        """),
        Solution(
            (
                code("""
                    import numpy as np

                    part = trial[trial["t"] >= 1.5]
                    slope, intercept = np.polyfit(part["t"], part["x"], 1)
                    slope, intercept
                """),
            )
        ),
        Solution(('import numpy as np\nslope, intercept = np.polyfit(trial["t"], trial["x"], 1)',)),
        _PANDAS,
    ),
    Task(
        "plot",
        "make a plot with labels",
        (
            code("""
                import pandas as pd

                growth = pd.DataFrame({"day": [1, 2, 3, 4], "control": [1.0, 1.2, 1.5, 1.9]})
                growth["treated"] = [1.0, 1.5, 2.3, 3.4]
                growth
            """),
        ),
        "Plot `control` and `treated` over `day` in one matplotlib figure, as two lines with a legend. Label the "
        "x axis 'day' and the y axis 'height (cm)'. Set `fig` to the figure.",
        code("""
            [axes] = fig.axes
            assert axes.get_xlabel() == "day" and axes.get_ylabel() == "height (cm)", "labels"
            lines = [[float(y) for y in line.get_ydata()] for line in axes.lines]
            assert sorted(lines) == sorted([[1.0, 1.2, 1.5, 1.9], [1.0, 1.5, 2.3, 3.4]]), lines
            assert all([float(x) for x in line.get_xdata()] == [1, 2, 3, 4] for line in axes.lines), "days"
            assert {one.get_text() for one in axes.get_legend().get_texts()} == {"control", "treated"}, "legend"
        """),
        Solution(
            (
                code("""
                    import matplotlib.pyplot as plt

                    fig, axes = plt.subplots()
                    for name in ("control", "treated"):
                        axes.plot(growth["day"], growth[name], label=name)
                    axes.set(xlabel="day", ylabel="height (cm)")
                    axes.legend()
                """),
            )
        ),
        Solution(("import matplotlib.pyplot as plt\nfig, axes = plt.subplots()\naxes.plot(growth['control'])",)),
        _PLOTS,
    ),
    Task(
        "log-axis",
        "choose a scale for the data of a plot",
        (
            code("""
                import matplotlib.pyplot as plt

                hours = [0, 1, 2, 3, 4, 5]
                cells = [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
                fig, axes = plt.subplots()
                _ = axes.plot(hours, cells, "o")
            """),
        ),
        "In this plot the early values cannot be told apart. Give `axes` a scale on which exponential growth is a "
        "straight line, keep the points, and set the title to the factor by which the cells grow in an hour, for "
        "example '×3'.",
        code("""
            assert axes.get_yscale() == "log" and axes.get_xscale() == "linear", (axes.get_xscale(), axes.get_yscale())
            assert "10" in axes.get_title() and "100" not in axes.get_title(), axes.get_title()
            assert [float(y) for y in axes.lines[0].get_ydata()] == cells, "the points changed"
        """),
        Solution(('axes.set_yscale("log")\naxes.set_title("×10")',)),
        Solution(('axes.set_xscale("log")\naxes.set_yscale("log")\naxes.set_title("×10")',)),
        _PLOTS,
    ),
)
