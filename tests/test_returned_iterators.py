"""A return gives back iterators at the place where they were, or names them."""

from __future__ import annotations

import json

import pytest
from test_returning import run_all
from told import named_by


def test_a_groupby_inside_a_group_is_kept_or_named(start_kernel):
    """Within a group, the stored form of `groupby` has lost the key, so that a copy would give the group again."""
    kernel = start_kernel()
    kernel.run("import itertools\ngroups = itertools.groupby('aabbc'); key, group = next(groups); first = next(group)")
    kernel.run("rest = [key for key, _ in groups]")

    told = kernel.run("%ctx goto 1").stdout

    assert {"groups", "group"} <= named_by(told, ("groups", "group")).keys()


def test_what_a_cell_writes_through_an_iterator_or_a_function_of_numpy_is_in_the_state_after_it(kernel):
    """The cell does not name the array or the list that it changes; a position in the array comes back, too."""
    run_all(kernel, "import numpy as np\nflat, each, log = np.zeros(4), np.zeros(2), []")
    run_all(kernel, "places, writer = flat.flat, np.nditer(each, op_flags=['readwrite'])")
    run_all(kernel, "called = np.frompyfunc(log.append, 1, 1)")
    run_all(kernel, "places[1] = 5; passed = next(places), next(places)")
    run_all(kernel, "for one in writer: one[...] += 1")
    run_all(kernel, "called(7)")
    run_all(kernel, "end = 1")
    facts = "(flat.tolist(), each.tolist(), log)"
    assert kernel.evaluate(facts) == "([0.0, 5.0, 0.0, 0.0], [1.0, 1.0], [7])"

    run_all(kernel, "%ctx goto 1", "%ctx goto 7")
    assert kernel.evaluate(facts) == "([0.0, 5.0, 0.0, 0.0], [1.0, 1.0], [7])"
    run_all(kernel, "%ctx goto 5")
    assert kernel.evaluate(facts) == "([0.0, 5.0, 0.0, 0.0], [1.0, 1.0], [])"
    assert kernel.evaluate("(places.index, np.shares_memory(places.base, flat))") == "(2, True)"
    run_all(kernel, "%ctx goto 3")
    assert kernel.evaluate(facts) == "([0.0, 0.0, 0.0, 0.0], [0.0, 0.0], [])"
    run_all(kernel, "places[0] = 3")
    assert kernel.evaluate("(places.index, flat[0])") == "(0, np.float64(3.0))"


@pytest.mark.parametrize(
    "makes",
    [
        "data = [1, 2]\ndef inner(): yield from data\ndef outer(given):\n    for one in inner(): yield one, given",
        "import pandas as pd\ndata = pd.DataFrame({'a': [1, 2], 'b': [3, 4]})\ndef outer(given): return given.items()",
    ],
    ids=["a list", "a frame"],
)
def test_a_generator_within_a_generator_costs_no_variable_that_they_read(start_kernel, tmp_path, makes: str):
    """The inner one is not in the value of the variable, although both are stored together."""
    kernel = start_kernel()
    run_all(kernel, makes, "it = outer(data)", "first = next(it)", "data[0] = 5", "next(it)")

    told = kernel.run("%ctx goto 4").stdout
    assert "as it is now: it" in told and "data" not in named_by(told, ("data",))
    data = kernel.evaluate("str(data)")
    kernel.stop()

    again = start_kernel(tmp_path)
    told = again.run("%ctx resume").stdout
    assert named_by(told, ("it", "data", "first")).keys() == {"it"}
    assert again.evaluate("str(data)") == data


def test_what_a_return_takes_from_memory_counts_as_restored(kernel):
    """A list that a generator shares is held with it: the generator has no stored form."""
    run_all(kernel, "data = [1, 2]\ndef each(): yield from data", "it = each()", "first = next(it)", "data.append(3)")
    run_all(kernel, "%ctx goto 3")

    plan = kernel.run("%ctx undo --dry-run --json").stdout
    told = kernel.run("%ctx undo").stdout

    assert kernel.evaluate("data") == "[1, 2, 3]"
    assert "3 names restored (data, each, it), 1 kept" in told
    assert json.loads(plan)["load"] == [{"names": ["data", "each", "it"], "nbytes": 0}]
