"""Adapters: exceptions, groups, searches, graphs, results of statsmodels, checkpoints of torch, arrays as images."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optional_libraries import optional
from scale import examples

from ctxkernel.core.ports import All
from ctxkernel.sources import AdaptedSource, Adapter, Fact, register, registry
from ctxkernel.testing.renderings import opened, render

if TYPE_CHECKING:  # its import takes two seconds of each worker
    from sklearn.model_selection import GridSearchCV

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
FRAME = pd.DataFrame({"k": list("abca") * 10, "j": [1, 2] * 20, "x": np.arange(40.0)})


# --- exceptions


def raised(call: Callable[[], Any]) -> BaseException:
    """Return what a call raises."""
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


def fails(value: int) -> None:
    """Raise within another exception."""
    try:
        int("z")
    except ValueError:
        raise LookupError(f"nothing for {value}") from None


def test_an_exception_is_its_message_and_the_innermost_frame_of_the_users_code():
    error = raised(lambda: pd.DataFrame({"a": [1]})["b"])

    text = render(opened(error, "error"), 1).text

    assert text.startswith("error · KeyError · ")
    assert "\nmessage: 'b'\nin your code:\n  test_sources_adapters.py, line " in text
    assert 'pd.DataFrame({"a": [1]})["b"]' in text
    assert "\nraised in:\n  base.py, line " in text
    assert "\nfrom:\n  caused by KeyError: 'b'" in text


def test_level_0_of_an_exception_is_its_traceback():
    lines = render(raised(lambda: fails(3))).text.split("\n")

    assert lines[-1] == "LookupError: nothing for 3"
    assert "test_sources_adapters.py, line" in lines[-3]
    assert lines[-2].strip() == 'raise LookupError(f"nothing for {value}") from None'


def test_an_exception_runs_none_of_its_code():
    class Odd(Exception):
        def __str__(self) -> str:
            raise SystemExit("ran")

        args = property(__str__)  # type: ignore[assignment]

    assert "Odd" in render(Odd("said"), 1).text


def test_a_group_of_exceptions_has_each_and_notes_are_shown():
    error = ExceptionGroup("many", [ValueError(1), KeyError("k")])
    error.add_note("while reading")

    text = render(error, 1).text

    assert "\nexceptions:\n  ValueError: 1\n  KeyError: 'k'\n" in text
    assert "\nnotes:\n  while reading" in text


# --- groups


def test_a_groupby_is_its_keys_groups_and_columns():
    text = render(opened(FRAME.groupby("k"), "g"), 1).text

    assert text.split("\n")[:3] == [
        "g · DataFrameGroupBy · by k · of 40 × 3",
        "groups: 3, of 10 … 20 rows, median 10",
        "largest: a ×20, b ×10, c ×10",
    ]
    assert text.endswith("columns:\n  j: int64\n  x: float64")


def test_level_0_of_a_groupby_is_each_group_in_its_order():
    assert render(FRAME.groupby(["k", "j"], sort=False)["x"]).text.split("\n")[1:] == [
        "('a', 1): 10 rows",
        "('b', 2): 10 rows",
        "('c', 1): 10 rows",
        "('a', 2): 10 rows",
    ]


def test_a_groupby_is_counted_without_its_function_and_keeps_nothing():
    calls: list[int] = []
    groups = FRAME.groupby(lambda at: calls.append(at) or at % 2)
    made, before = len(calls), set(vars(groups)) | set(vars(groups._grouper))

    text = render(groups, 1).text

    assert "groups: 2, of 20 rows each" in text
    assert len(calls) == made
    assert set(vars(groups)) | set(vars(groups._grouper)) == before


def test_groups_of_very_many_rows_are_of_a_sample():
    large = pd.DataFrame({"k": np.tile(np.array(["a", "b", "b", "c"]), 100_000)})

    text = render(large.groupby("k"), 1).text

    assert "groups: ~3 or more, from 200,000 rows" in text
    assert re.search(r"largest: b ~50 %, [ac] ~2\d %, [ac] ~2\d %", text)


# --- searches


@pytest.fixture(scope="module")
def search() -> GridSearchCV:
    """A fitted search over six candidates."""
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV

    found = GridSearchCV(Ridge(), {"alpha": [0.1, 1, 10], "fit_intercept": [True, False]}, cv=3)
    return found.fit(X, X @ [1, 2, 3])


def test_the_results_of_a_search_are_its_candidates_best_first(search: GridSearchCV):
    lines = render(opened(search.cv_results_, "results"), tokens=All).text.split("\n")

    assert lines[0].startswith("results · dict · 6 candidates · by score")
    assert [line.split(":")[0] for line in lines[1:]] == [f"rank {rank}" for rank in range(1, 7)]
    best = search.best_index_
    assert str(search.cv_results_["mean_test_score"][best]) in lines[1]


def test_level_2_of_a_search_is_its_best_and_worst_candidate_and_what_was_tried(search: GridSearchCV):
    lines = render(opened(search, "search"), 2).text.split("\n")

    assert lines[0] == "search · GridSearchCV · fitted · 6 candidates"
    assert lines[1].startswith("- best: alpha=0.1, fit_intercept=")
    assert lines[2].startswith("- worst: alpha=10, fit_intercept=")
    assert lines[3:5] == ["- tried alpha: 3 values (0.1, 1, 10)", "- tried fit_intercept: 2 values (True, False)"]


def test_a_search_that_was_not_fitted_is_an_estimator_and_a_cross_validation_a_table(search: GridSearchCV):
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV, cross_validate

    assert "· not fitted" in render(GridSearchCV(Ridge(), {"alpha": [1]}), 1).text
    assert "5 rows × 3 columns" in render(cross_validate(Ridge(), X, X @ [1, 2, 3])).text


# --- graphs


@pytest.fixture
def nx() -> Any:
    """Networkx, where it is installed."""
    return import_module("networkx")


def test_a_graph_is_its_counts_degrees_components_and_attributes(nx: Any):
    graph = nx.MultiDiGraph(name="routes")
    graph.add_edge("a", "b", km=1.5)
    graph.add_edge("a", "b", km=2)
    graph.add_edge("b", "b")
    graph.add_node("x", color="red")

    text = render(opened(graph, "routes"), 1).text

    assert text.split("\n") == [
        "routes · MultiDiGraph · 3 nodes, 3 edges · directed, parallel edges",
        "degree: 0 … 4, mean 2; highest 'b' (4), 'a' (2), 'x' (0)",
        "components: 2 weakly connected, of 2, 1 nodes",
        "loose: 1 self-loop, 1 node without an edge, such as 'x'",
        "node attributes:",
        "  color: str, 2 of 3 without it, 'red'",
        "edge attributes:",
        "  km: float | int, 1 of 3 without it, 1.5 … 2",
        "graph attributes: {'name': 'routes'}",
    ]
    assert render(graph).text.split("\n")[1:] == ["'a': → 'b' ×2", "'b': → 'b'", "'x' (color='red'): → nothing"]


@pytest.mark.parametrize("kind", ["Graph", "DiGraph", "MultiGraph", "MultiDiGraph"])
def test_counts_and_degrees_of_a_graph_are_those_that_networkx_counts(nx: Any, kind: str):
    graph = getattr(nx, kind)(nx.gnm_random_graph(30, 50, seed=1, directed="Di" in kind))
    graph.add_edge(3, 3)
    graph.add_edge(3, 3)
    degrees = dict(graph.degree())

    text = render(graph, 1).text

    assert f"{graph.number_of_nodes()} nodes, {graph.number_of_edges()} edges" in text
    mean = sum(degrees.values()) / len(degrees)
    assert f"degree: {min(degrees.values())} … {max(degrees.values())}, mean {mean:.4g};" in text
    find = nx.weakly_connected_components if graph.is_directed() else nx.connected_components
    assert f"components: {len(list(find(graph)))}" in text


def test_a_graph_with_nodes_of_a_users_class_runs_none_of_its_code(nx: Any):
    class Node:
        ran = 0

        def __hash__(self) -> int:
            Node.ran += 1
            return 1

        def __eq__(self, other: object) -> bool:
            Node.ran += 1
            return self is other

    graph = nx.Graph()
    nodes = [Node(), Node(), Node()]
    graph.add_edge(nodes[0], nodes[1])
    graph.add_edge(nodes[2], nodes[2])
    Node.ran = 0

    for lod in (0, 1, 2):
        assert "3 nodes, 2 edges" in render(graph, lod).text
    assert Node.ran == 0


def test_a_large_graph_is_sampled_and_an_added_edge_is_seen(nx: Any):
    graph = nx.gnm_random_graph(20_000, 30_000, seed=1)
    source = opened(graph, "g")
    text, stamp = render(source, 1).text, source.stamp()

    graph.add_edge(1, 2)

    assert "20,000 nodes, 30,000 edges" in text
    assert re.search(r"degree: ~0 … \d+, mean ~[23]\.\d+; ~highest ", text)
    assert "components" not in text
    assert source.stamp() != stamp
    assert "[… 19,500 more nodes]" in render(graph, tokens=All).text


# --- statsmodels


@pytest.fixture
def fitted() -> Any:
    """Results of a regression, where statsmodels is installed (it is large, so `[test]` does not have it)."""
    api = import_module("statsmodels.formula.api")
    frame = pd.DataFrame({"a": RNG.normal(size=200), "b": RNG.choice(list("xyz"), 200)})
    return api.ols("y ~ a + b", frame.assign(y=2 * frame.a + RNG.normal(size=200))).fit()


def test_results_of_statsmodels_are_their_model_fit_and_coefficients(fitted: Any):
    text = render(opened(fitted, "fit"), 1, tokens=All).text

    assert text.startswith("fit · RegressionResultsWrapper · OLS · of y · 200 observations\nformula: y ~ a + b\n")
    row = next(line.split() for line in text.split("\n") if line.strip().startswith("a "))
    assert row[1:3] == [f"{fitted.params['a']:.6g}", f"{fitted.bse['a']:.6g}"]
    assert f"R² {fitted.rsquared:.6g}, adjusted R²" in text
    assert "terms: a (" in render(fitted, 2).text


def test_looking_at_results_leaves_nothing_in_them(fitted: Any):
    before = dict(fitted._results._cache)

    for lod in (0, 1, 2, 3):
        render(fitted, lod)

    assert fitted._results._cache.keys() == before.keys()


# --- torch


@pytest.fixture
def torch() -> Any:
    """Torch, where it is installed."""
    return optional("torch")


def test_a_checkpoint_is_its_tensors_modules_and_other_values(torch: Any):
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    found = {"epoch": 3, "model": net.state_dict()}
    source = opened(found, "saved")
    before = render(source)

    text = render(source, 1).text
    found["epoch"] = 4
    net[0].bias.data.add_(1)

    assert text.startswith("saved · dict · 4 tensors, 58 elements, 232 B\nalso:\n  epoch = 3\n")
    assert "\n  model.0: weight 8 × 4, bias 8\n" in text
    changed = render(source, 3, basis=before.basis).text
    assert "+  epoch = 4\n" in changed
    assert "+model.0.bias: 8 float32 [" in changed


# --- images


ROWS, COLUMNS = np.mgrid[0:64, 0:96]
IMAGES = {
    "grey": (COLUMNS.astype("uint8"), (96, 64), ""),
    "mask": (COLUMNS > ROWS, (96, 64), ""),
    "one channel": (COLUMNS.astype("uint8")[:, :, None], (96, 64), ""),
    "channels first": (np.stack([ROWS, COLUMNS, ROWS]).astype("uint8"), (96, 64), ""),
    "field": (np.sin(COLUMNS / 20) * 3, (96, 64), "grey from -2.999"),
    "16 bits": ((COLUMNS * 100).astype("uint16"), (96, 64), "grey from 0 to 9500"),
    "batch": (np.zeros((40, 28, 28, 1), "uint8"), (112, 112), "the first 16 of 40 images"),
    "batch, channels first": (np.zeros((3, 3, 32, 32), "float32"), (96, 32), "3 images"),
}


@pytest.mark.parametrize(("array", "size", "about"), IMAGES.values(), ids=IMAGES)
def test_an_array_that_is_an_image_has_its_picture(array: Any, size: tuple[int, int], about: str):
    rendered = render(array, tokens=1000)

    assert rendered.picture is not None
    assert (rendered.picture.width, rendered.picture.height) == size
    assert f"[{about}" in rendered.text.split("\n")[-1]


TABLES = {
    "noise": RNG.normal(size=(100, 100)),
    "a constant": np.zeros((80, 80)),
    "not a number": np.full((80, 80), np.nan),
    "small": np.zeros((8, 8), "uint8"),
    "long": np.cumsum(RNG.normal(size=(5000, 70)), axis=0),
    "whole numbers": np.arange(10_000).reshape(100, 100),
    "five axes": np.zeros((2, 2, 20, 20, 3), "uint8"),
    "nothing": np.zeros((0, 20, 20, 3), "uint8"),
}


@pytest.mark.parametrize("array", TABLES.values(), ids=TABLES)
def test_an_array_of_anything_else_is_its_rows(array: Any):
    assert render(array, tokens=1000).picture is None


# --- every adapter


TARGETS: dict[str, Callable[[GridSearchCV], Any]] = {
    "exception": lambda search: raised(lambda: fails(3)),
    "graph": lambda search: __import__("networkx").karate_club_graph(),
    "groups": lambda search: FRAME.groupby("k"),
    "results": lambda search: search.cv_results_,
}
"""An object for each adapter that can be made here, with the fitted search."""


@pytest.fixture(scope="module")
def targets(search: GridSearchCV) -> dict[str, Any]:
    return {name: make(search) for name, make in TARGETS.items()}


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(TARGETS)), st.integers(0, 3), st.integers(1, 600), st.integers(0, 40))
def test_every_adapter_keeps_budgets_and_gives_the_same_bytes(
    targets: dict[str, Any], name: str, lod: int, tokens: int, line: int
):
    target = targets[name]

    first = render(opened(target, name), lod, pos=str(line), tokens=tokens)  # asserts the budget
    again = render(opened(target, name), lod, pos=str(line), tokens=tokens)

    assert (first.text, first.fingerprint) == (again.text, again.fingerprint)


class Probe:
    """An object for an adapter of a test."""


def test_an_adapter_is_a_table_and_a_fact_that_fails_is_a_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "_registered", [])

    class ProbeSource(AdaptedSource):
        kind = "probe"
        adapter = Adapter(
            head=lambda probe: "3 °C",
            facts=(
                Fact("place", lambda probe: "roof", brief=True),
                Fact("broken", lambda probe: 1 / 0),  # type: ignore[arg-type,return-value]
                Fact("silent", lambda probe: None),
                Fact("several", lambda probe: ["one", "two"]),
            ),
            value=lambda probe: [f"hour {hour}: {hour} °C" for hour in range(3)],
        )

    register(lambda target: isinstance(target, Probe), lambda target, _, name: ProbeSource(target, name or "probe"))

    broken = "broken: [not known: ZeroDivisionError: division by zero]"
    assert [render(opened(Probe(), "p"), lod).text for lod in (0, 1, 2)] == [
        "p · Probe · 3 °C · 3 lines\nhour 0: 0 °C\nhour 1: 1 °C\nhour 2: 2 °C",
        f"p · Probe · 3 °C\nplace: roof\n{broken}\nseveral:\n  one\n  two",
        "p · Probe · 3 °C\n- place: roof",
    ]
    assert render(opened(Probe()), pos="hour 2", tokens=50).text.endswith("hour 2: 2 °C")


def test_the_adapter_on_the_page_works_as_the_page_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "_registered", [])
    page = (Path(__file__).parents[1] / "docs" / "sources.md").read_text("utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "AdaptedSource" in block)
    exec(code, {})
    target = type("Probe", (), {})()
    target.place, target.depths = "lake", [3, 5]

    assert render(opened(target, "p"), 1).text == "p · Probe · 2 depths\nplace: lake\ndeepest: 5 m"
    assert render(opened(target, "p"), 2).text == "p · Probe · 2 depths\n- place: lake"
    assert render(opened(target, "p")).text == "p · Probe · 2 depths · 2 lines\n3 m\n5 m"


def test_no_adapter_is_imported_for_an_object_of_another_kind():
    code = (
        "import sys; from ctxkernel.sources import open_source; from ctxkernel.core.ports import RenderRequest\n"
        "open_source({'a': 1}).render(RenderRequest(1, '0', 100))\n"
        "print([name for name in sys.modules if name.startswith('ctxkernel.sources.libraries.')])"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
