"""Cells that take the result of an earlier execution: one by one in a re-run of affected cells, or recalled."""

from __future__ import annotations

import json
from typing import Any

from test_affected import put

SLOW = "import time as clock; clock.sleep(0.3)"


def told(cells: dict[str, str]) -> dict[str, Any]:
    """Return the metadata of a gesture with the cells of the notebook."""
    return {"ctxkernel": {"kind": "meta", "cells": [{"id": one, "source": text} for one, text in cells.items()]}}


def gesture(kernel: Any, code: str, cells: dict[str, str]) -> Any:
    """Run a line as the front end does."""
    return kernel.run(code, store_history=False, metadata=told(cells))


def send(kernel: Any, cell: str, source: str) -> Any:
    """Send a cell of a stepwise re-run."""
    return kernel.run(source, metadata={"cellId": cell, "ctxkernel": {"rerun": True, "affected": True}})


def test_the_cells_of_an_open_notebook_are_planned_as_the_front_end_tells_them(kernel):
    cells = {"a": "x = 1", "b": "y = x + 1", "c": "z = 5"}
    put(kernel, **cells)
    cells["a"] = "x = 2"

    plan = json.loads(gesture(kernel, "%ctx rerun --affected --dry-run --json", cells).stdout)

    assert (plan["run"], plan["keep"]) == ([0, 1], [2])
    assert plan["return"]["target"] is not None or plan["from"] is None
    assert set(plan["times"]) == {"0", "1", "2"}
    assert kernel.evaluate("x") == "1"


def test_cells_that_are_sent_one_by_one_run_or_keep_their_results_with_their_outputs(kernel):
    cells = {"a": "x = 3", "b": "y = x > 0", "c": "print('kept', y)\ny", "d": "w = [x]"}
    put(kernel, **cells)
    cells["a"] = "x = 4"

    assert gesture(kernel, "%ctx rerun --affected --stepwise", cells).status == "ok"
    ran = {cell: send(kernel, cell, source) for cell, source in cells.items()}

    kept = {cell: one.reply.get("ctxkernel", {}).get("kept") for cell, one in ran.items()}
    assert kept == {"a": None, "b": None, "c": "s3.1", "d": None}
    assert ran["c"].stdout == "kept True\n"
    assert ran["c"].data[0]["text/plain"] == "True"
    assert ran["c"].reply["execution_count"] == 3
    assert kernel.evaluate("(x, y, w)") == "(4, True, [4])"


def test_the_plan_of_the_rest_shrinks_as_cells_prove_equal(kernel):
    cells = {"a": "x = 3", "b": "y = x > 0", "c": "z = [y]", "d": "w = [z]"}
    put(kernel, **cells)
    cells["a"] = "x = 4"
    gesture(kernel, "%ctx rerun --affected --stepwise", cells)
    shrunk = []
    for cell, source in cells.items():
        send(kernel, cell, source)
        rest = json.loads(gesture(kernel, "%ctx rerun --affected --stepwise --dry-run --json", cells).stdout)
        shrunk.append(rest["run"])

    assert shrunk == [[1, 2, 3], [], [], []]


def test_a_page_may_tell_anything_as_its_cells(kernel):
    put(kernel, a="x = 1")
    for cells in (3, [], [3], [{"id": 1, "source": "x"}], [{"id": "a"}], {"a": 1}, [{"id": "a" * 5000, "source": ""}]):
        ran = kernel.run(
            "%ctx rerun --affected --dry-run --json",
            store_history=False,
            metadata={"ctxkernel": {"kind": "meta", "cells": cells}},
        )
        assert json.loads(ran.stdout)["keep"] == [0]
    assert send(kernel, "a", "x = 1").status == "ok"
    assert send(kernel, "nowhere", "x = 2").status == "ok"
    assert kernel.evaluate("x") == "2"


def test_a_cell_is_recalled_from_another_branch_if_the_setting_is_on(kernel):
    put(kernel, a=SLOW, b="x = 1", c="y = sum(range(10 ** 6)) + x\nprint('made', y)\n[y]")
    kernel.run("%ctx goto s1")
    put(kernel, b2="x = 1")

    plain = kernel.run("y = sum(range(10 ** 6)) + x\nprint('made', y)\n[y]")
    kernel.run("%ctx goto s5")
    kernel.run("%ctx config recall on")
    recalled = kernel.run("y = sum(range(10 ** 6)) + x\nprint('made', y)\n[y]")

    assert "recalled" not in plain.stderr
    assert "recalled from s" in recalled.stderr
    assert "saved" in recalled.stderr
    assert recalled.stdout == plain.stdout
    assert recalled.reply["ctxkernel"]["kept"].startswith("s")
    assert kernel.evaluate("y") == "499999500001"
    timeline = json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]
    last = [one for one in timeline if one["source"].startswith("y = sum")][-1]
    assert last["executions"][-1]["notices"][0].startswith("recalled from s")


def test_a_recalled_cell_has_only_the_changes_that_it_makes_now(kernel):
    put(kernel, a="x = 1", b="y = x + 1; z = [x]", c="del z")
    kernel.run("%ctx config recall on")
    put(kernel, b="y = x + 1; z = [x]", b2="y = x + 1; z = [x]")

    statements = json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]

    changes = [one["executions"][-1]["state_diff"] for one in statements if one["source"].startswith("y =")]
    assert [(set(one["added"]), set(one["changed"]), one["deleted"]) for one in changes[-2:]] == [
        ({"z"}, set(), []),
        (set(), set(), []),
    ]


def test_a_cell_with_other_inputs_or_an_opaque_one_is_not_recalled(kernel):
    kernel.run("%ctx config recall on")
    put(kernel, a="x = [1]", b="y = x + [2]", c="import time; t = time.time()", d="x.append(3)")

    assert "recalled" not in kernel.run("y = x + [2]").stderr
    assert "recalled" not in kernel.run("import time; t = time.time()").stderr
    assert "recalled" not in kernel.run("x.append(3)").stderr
    assert kernel.evaluate("(x, y)") == "([1, 3, 3], [1, 3, 2])"


def test_a_variable_that_changed_outside_of_cells_is_seen_before_a_cell_is_recalled(kernel):
    kernel.run("%ctx config recall on")
    put(kernel, a="import threading; x = [1]", b="y = list(x)")
    put(kernel, t="threading.Timer(0.2, lambda: x.append(7)).start()", w="import time; time.sleep(0.6)")

    again = kernel.run("y = list(x)")

    assert "recalled" not in again.stderr
    assert kernel.evaluate("y") == "[1, 7]"


def test_a_kept_cell_repeats_its_updates_of_the_displays_of_earlier_cells(kernel):
    """And its own displays have the identifiers by which later cells update them."""
    cells = {"a": "x = 1", "b": "print(x)\nh = display('waiting', display_id='first')"}
    cells["c"] = "from IPython.display import update_display\nupdate_display('done', display_id='first')"
    cells["d"] = "display('other', display_id='second', metadata={'w': 3})"
    put(kernel, **cells)
    cells["a"] = "x = 2"

    gesture(kernel, "%ctx rerun --affected --stepwise", cells)
    ran = {cell: send(kernel, cell, source) for cell, source in cells.items()}

    assert [cell for cell, one in ran.items() if "kept" in one.reply.get("ctxkernel", {})] == ["c", "d"]
    found = [one for cell in "cd" for one in ran[cell].outputs if "display_data" in one["type"]]
    assert [(one["type"], one["data"]["text/plain"], one["transient"]["display_id"]) for one in found] == [
        ("update_display_data", "'done'", "first"),
        ("display_data", "'other'", "second"),
    ]
    assert found[1]["metadata"] == {"w": 3}


def test_a_recalled_instance_is_one_of_the_class_that_has_the_name_now(kernel):
    kernel.run("%ctx config recall on")
    put(kernel, a="class A: k = 1", b="a = A()", a2="class A: k = 1", c="old = isinstance(a, A)")

    recalled = kernel.run("a = A()")

    assert "recalled" in recalled.stderr
    assert kernel.evaluate("(old, isinstance(a, A), type(a) is A)") == "(False, True, True)"


def test_a_cell_that_reads_the_clock_or_makes_random_numbers_by_another_name_is_not_recalled(kernel):
    """The cells that import do not stand for those that use what they imported."""
    imports = (
        "from datetime import datetime as D",
        "now = D.now",
        "from time import perf_counter as tick",
        "from numpy.random import default_rng as make, default_rng",
        "def late(): return tick()",
    )
    uses = ("D.now()", "now()", "tick()", "late()", "make().normal()", "default_rng().normal()")
    proven = ("D(2020, 1, 1)", "make(0).normal()", "default_rng(0).normal()")
    put(kernel, **{f"i{at}": source for at, source in enumerate(imports)})
    kernel.run("%ctx config recall on")

    recalled = {source for source in (*uses, *proven, *uses, *proven) if "recalled" in kernel.run(source).stderr}

    assert recalled == {*proven}


def test_cells_that_a_resumed_kernel_recalls_have_numbers_of_their_own(start_kernel, tmp_path):
    """The numbers that the earlier kernel gave are known for results only."""
    first = start_kernel(tmp_path)
    put(first, a="x = [1]", b="y = [2]", c="[*x, *y]")
    first.stop()
    resumed = start_kernel(tmp_path, env={"CTXKERNEL_RESUME": "1"})
    resumed.run("%ctx config recall on")

    ran = [resumed.run(source) for source in ("x = [1]", "y = [2]", "[*x, *y]", "z = 3")]

    assert [bool(one.reply.get("ctxkernel")) for one in ran] == [True, True, True, False]
    numbers = [one.reply["execution_count"] for one in ran]
    assert len({*numbers}) == 4
    assert resumed.evaluate(f"Out[{numbers[2]}]") == "[1, 2]"
    assert resumed.evaluate(f"(In[{numbers[0]}], In[{numbers[3]}])") == "('x = [1]', 'z = 3')"
