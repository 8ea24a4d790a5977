"""A sweep gives each combination what running all its cells gives, and shares what combinations have in common."""

from __future__ import annotations

import ast
import json
import math
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
import pytest
from command_line import ctxkernel
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook

from ctxkernel.cli import main
from ctxkernel.core.errors import BadCommand
from ctxkernel.kernel.commands.sweep import failures, report_of
from ctxkernel.kernel.display.sweep_tables import RunningSweep, sweep_answer
from ctxkernel.state.tracking.cell_names import read_cell
from ctxkernel.state.tracking.read_names import names_read_first
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.sweeps.assignments import sets, with_values
from ctxkernel.sweeps.combinations import (
    MOST,
    Distribution,
    combine,
    lists_of,
    read_file,
    read_parameter,
    text_of,
)
from ctxkernel.sweeps.environment import differences
from ctxkernel.sweeps.executors import ThreadExecutor
from ctxkernel.sweeps.plots import plots_html
from ctxkernel.sweeps.seal import Unsealed, seal, unseal
from ctxkernel.sweeps.shown_table import SWEEP_MIME, shown_sweep
from ctxkernel.sweeps.sweep_plan import SweptCell, make_plan
from ctxkernel.sweeps.sweep_table import SweepRow, SweepTable
from ctxkernel.sweeps.worker import TaskLimits, WorkerKernel

# -- parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alpha=0.1,0.3,1", [0.1, 0.3, 1]),
        ("model=ridge,lasso", ["ridge", "lasso"]),
        ("model='ridge',\"two words\"", ["ridge", "two words"]),
        ("flag=True,None", [True, None]),
        ("shape=(1, 2),[3, 4]", [(1, 2), [3, 4]]),
        ("options={'a': 1, 'b': [1, 2]}", [{"a": 1, "b": [1, 2]}]),
        ("n=-1,-2.5e3", [-1, -2500.0]),
        ("text='a,b','c=d'", ["a,b", "c=d"]),
        ("one=1,", [1]),
        ("seed=range(3)", [0, 1, 2]),
        ("path=data/x.csv", ["data/x.csv"]),
    ],
)
def test_values_are_literals_or_plain_words(text, expected):
    name, values = read_parameter(text)

    assert name == text.partition("=")[0]
    assert values == expected
    assert [type(one) for one in values] == [type(one) for one in expected]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("alpha", "write NAME=VALUE"),
        ("2=3", "no parameter"),
        ("for=1", "no parameter"),
        ("a=", "has no value"),
        ("a=open('x')", "neither a Python literal nor a plain word"),
        ("a=b c", "put quotes around"),
        ("a=uniform(3,1)", "LOW < HIGH"),
        ("a=loguniform(0,1)", "LOW < HIGH"),
        ("a=range(0,5,0)", "must not be 0"),
        ("a=range(0)", "has no value"),
        ("a=range(5,1)", "has no value"),
    ],
)
def test_what_is_no_parameter_is_refused_with_what_to_write(text, told):
    with pytest.raises(BadCommand, match=told.replace("(", r"\(").replace("=", "=")):
        read_parameter(text)


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.lists(literals, min_size=1, max_size=4))
def test_a_value_that_is_written_is_read_again(values):
    name, found = read_parameter("x=" + ",".join(map(text_of, values)))

    assert (name, found) == ("x", values)
    assert [type(one) for one in found] == [type(one) for one in values]


def test_a_grid_has_each_combination_once_in_the_given_order():
    made = combine({"a": [1, 2, 2], "b": ["x", "y"]})

    assert made == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]


def test_samples_depend_on_the_seed_alone():
    parameters = {"a": Distribution("loguniform", 1e-4, 1.0), "b": ["x", "y"], "n": Distribution("randint", 1, 3)}

    first, again, other = (combine(parameters, samples=20, seed=seed) for seed in (1, 1, 2))

    assert first == again != other
    assert all(1e-4 <= one["a"] <= 1 and one["n"] in (1, 2, 3) for one in first)
    assert len(combine({"a": list(range(100)), "b": list(range(100))}, samples=7)) == 7


def test_more_combinations_than_a_sweep_has_are_refused():
    with pytest.raises(BadCommand, match="--samples N draws N of them"):
        combine({"a": list(range(MOST)), "b": [1, 2]})
    with pytest.raises(BadCommand, match="has a distribution"):
        combine({"a": Distribution("uniform", 0, 1)})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", "alpha,model\n0.1,ridge\n1,two words\n"),
        ("x.json", '[{"alpha": 0.1, "model": "ridge"}, {"alpha": 1, "model": "two words"}]'),
        ("x.jsonl", '{"alpha": 0.1, "model": "ridge"}\n{"alpha": 1, "model": "two words"}\n'),
    ],
)
def test_a_file_has_a_combination_a_row(tmp_path, name, text):
    (tmp_path / name).write_text(text)

    assert read_file(tmp_path / name) == [{"alpha": 0.1, "model": "ridge"}, {"alpha": 1, "model": "two words"}]


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "no combination"), ("a,b\n1\n", "line 2"), ("a b\n1\n", "no name"), ("\x00", "no name|no combination")],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, text, told):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(BadCommand, match=told):
        read_file(tmp_path / "x.csv")


# -- the text of a cell ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("alpha = 1", "alpha = 7"),
        ("alpha=1  # note\nb = 2", "alpha=7  # note\nb = 2"),
        ("b = 'ä'; alpha = (1 +\n 2); c = 3", "b = 'ä'; alpha = (7); c = 3"),
        ("alpha: float = 0.5", "alpha: float = 7"),
        ("b, alpha = 2, 3", "b, alpha = 2, 7"),
        ("alpha = b = 3", "alpha = b = 3; alpha = 7"),
        ("b, alpha = pair()", "b, alpha = pair(); alpha = 7"),
        ("alpha = 1\nalpha = 2", "alpha = 1\nalpha = 7"),
        ("x = '\u2028'\nalpha = 1", "x = '\u2028'\nalpha = 7"),
    ],
)
def test_only_the_value_changes_in_the_text(source, expected):
    assert sets(source, "alpha")
    assert with_values(source, {"alpha": 7}) == expected
    ast.parse(expected)


@pytest.mark.parametrize(
    "source",
    ["def f():\n    alpha = 1", "if x:\n    alpha = 1", "beta = alpha", "alpha += 1", "%time alpha = 1", "alpha: int"],
)
def test_what_sets_no_name_by_a_statement_of_its_own(source):
    assert not sets(source, "alpha")


# -- the tree ------------------------------------------------------------------------------------------------


def cells_of(*sources: str) -> list[SweptCell]:
    made = []
    for number, source in enumerate(sources, 8):
        tree = ast.parse(source)
        names = [one for one in ast.walk(tree) if isinstance(one, ast.Name)]
        first = names_read_first(source)
        assert first is not None
        reads = frozenset(one.id for one in names if isinstance(one.ctx, ast.Load)) | first
        binds = read_cell(source).replaced
        ids = f"s{number}", f"s{number}.1"
        made.append(SweptCell(source, *ids, reads=reads, reads_first=first, binds=binds, is_stored=True, seconds=1.0))
    return made


def plan_of(cells, **parameters):
    return make_plan(cells, combine(parameters), place="s7.1", root="root")


def test_a_parameter_that_is_read_late_lets_the_cells_above_be_shared():
    cells = cells_of("a = 1", "b = a", "c = b", "d = c", "e = d + alpha", "f = e")

    plan = plan_of(cells, alpha=[1, 2, 3])

    assert [task.place for task in plan.tasks] == ["s11.1"] * 3
    assert [one.source for one in plan.tasks[0].cells] == ["alpha = 1", "e = d + alpha", "f = e"]
    assert (plan.cells_run, plan.cells_shared) == (6, 12)


def test_cells_without_a_state_run_once_for_all():
    cells = [SweptCell(**{**as_dict(one), "is_stored": False}) for one in cells_of("a = 1", "b = a", "c = alpha")]

    plan = plan_of(cells, alpha=[1, 2, 3])

    assert [len(task.cells) for task in plan.tasks] == [2, 2, 2, 2]
    assert [task.parent for task in plan.tasks] == [None, *[plan.tasks[0].key] * 3]
    assert (plan.cells_run, plan.cells_shared) == (5, 4)


def as_dict(one: SweptCell) -> dict[str, Any]:
    return {name: getattr(one, name) for name in SweptCell.__slots__}


def test_parameters_that_are_read_one_after_another_make_a_tree():
    cells = cells_of("alpha = 0; model = 'x'", "fit = alpha", "print(fit)", "score = fit, model")

    plan = plan_of(cells, alpha=[1, 2], model=["ridge", "lasso"])

    assert [[one.source for one in task.cells] for task in plan.tasks if task.parent is None] == [
        ["alpha = 1; model = 'x'", "fit = alpha", "print(fit)"],
        ["alpha = 2; model = 'x'", "fit = alpha", "print(fit)"],
    ]
    assert [one.cells[0].source for one in plan.tasks if task_is_leaf(plan, one)] == [
        "model = 'ridge'",
        "model = 'lasso'",
    ] * 2
    assert (plan.cells_run, plan.cells_shared) == (2 * 3 + 4, 4 * 4 - 10)


def task_is_leaf(plan, task) -> bool:
    return all(one.parent != task.key for one in plan.tasks)


def test_a_parameter_that_nothing_reads_is_an_error():
    with pytest.raises(BadCommand, match="no cell after the statement of --from reads beta"):
        plan_of(cells_of("a = 1"), beta=[1, 2])


def test_the_last_of_several_statements_that_set_a_parameter_before_it_is_read_gets_its_value():
    plan = plan_of(cells_of("alpha = 1", "b = 2", "alpha = 3", "c = alpha", "alpha = 4"), alpha=[7])

    assert [one.source for one in plan.tasks[0].cells] == ["alpha = 7", "c = alpha", "alpha = 4"]


@pytest.mark.parametrize(
    "binds",
    [
        *("for alpha in [1, 2]:\n    last = alpha", "for n, (alpha, _) in []:\n    last = alpha"),
        "import math as alpha",
        *("def alpha(): return f()", "with open('x') as alpha:\n    print(alpha)"),
        "if f():\n    alpha = 1\nelse:\n    alpha = 2",
    ],
)
@pytest.mark.parametrize("before", ["a = 1", "alpha = 1"])
def test_a_parameter_that_a_loop_a_block_or_a_definition_binds_is_refused_with_the_statement(before, binds):
    """Its values would have no effect, and the rows would name them."""
    with pytest.raises(BadCommand, match=r"s9 binds alpha in another way.*give it `alpha = …`"):
        plan_of(cells_of(before, binds, "print(alpha)"), alpha=[1, 2])


def test_a_parameter_that_a_block_may_bind_is_swept_and_the_block_is_named():
    cells = cells_of("a = 1", "if a > 3:\n    alpha = 5\nf()", "alpha")
    cells[1] = replace(cells[1], reads=frozenset(["a", "f", "alpha"]))  # `f` may read it

    assert plan_of(cells, alpha=[1, 2]).notes == (
        "s9 binds alpha in a block: where that runs, its values have no effect",
    )
    assert plan_of(cells_of("a = 1", "if a > 3:\n    alpha = 5\nalpha"), alpha=[1, 2]).notes == ()


def test_a_collected_name_that_no_cell_with_the_parameters_changes_is_named():
    """The cell that computes it is the one of --from, or above it: all rows would have one value without a word."""
    cells = cells_of("print(alpha)", "n = len(done)")

    def notes(*collected: str) -> tuple[str, ...]:
        return make_plan(cells, combine({"alpha": [1, 2]}), place="s7.1", root="", collected=collected).notes

    (told,) = notes("r2", "alpha", "n")
    assert told.startswith("no cell that runs with the parameters changes r2: all rows have the same value; let --from")
    assert notes("done", "n", "alpha") == ()


def test_a_collected_name_that_is_nowhere_is_named_before_anything_runs():
    cells = cells_of("before = 1", "print(alpha)", "if alpha > 2:\n    n = 1")

    plan = make_plan(
        cells,
        combine({"alpha": [1, 2]}),
        place="s7.1",
        root="",
        collected=("n", "before", "r2", "nowhere"),
        defined=["alpha", "r2"],
    )

    assert plan.absent == ("nowhere",)
    assert [note.partition(":")[0] for note in plan.notes] == [
        "no combination has a value of nowhere",
        "no cell that runs with the parameters changes before, r2",
    ]


def test_a_parameter_that_no_cell_mentions_is_named_if_the_reads_of_cells_are_unknown():
    cells = [replace(one, reads=None) for one in cells_of("print(alpha)", "f()")]

    def notes(*defined: str) -> tuple[str, ...]:
        made = make_plan(cells, combine({"alpha": [1], "alhpa": [2]}), place="s7.1", root="", defined=defined)
        return made.notes

    assert [note.partition(",")[0] for note in notes("f")] == ["no cell mentions alhpa"]
    assert notes("f", "alhpa") == ()  # `f` may read it


def test_keys_depend_on_state_and_texts_alone():
    cells = cells_of("a = 1", "b = alpha")
    first, again, other = plan_of(cells, alpha=[1, 2]), plan_of(cells, alpha=[2, 1]), plan_of(cells, alpha=[1, 3])

    assert {task.key for task in first.tasks} == {task.key for task in again.tasks}
    assert len({task.key for task in first.tasks} & {task.key for task in other.tasks}) == 1
    named = make_plan(cells, combine({"alpha": [1]}), place="s7.1", root="another")
    assert named.tasks[0].key not in {task.key for task in first.tasks}


def setter_of(cells, name) -> int | None:
    """Return the first cell that only sets a name; a later one, if no cell mentions the name in between."""
    found = None
    for at, cell in enumerate(cells):
        only_sets = name not in cell.reads_first and sets(cell.source, name)
        if only_sets and name not in cell.reads:
            found = at
        elif only_sets:
            return at
        elif found is not None and (name in cell.reads or name in cell.binds):
            break
    return found


NAMES = "abcde"
expressions = st.sampled_from([*NAMES, "1", "2"])


@st.composite
def programs(draw):
    lines = []
    for _ in range(draw(st.integers(1, 7))):
        target = draw(st.sampled_from(NAMES))
        how = draw(st.sampled_from(["= {0} * 2 + {1}", "+= {0}", "= {0}", "= 3", "= [{0}, {1}]"]))
        lines.append(f"{target} {how.format(draw(expressions), draw(expressions))}")
    return lines


@given(
    programs(),
    st.dictionaries(
        st.sampled_from(NAMES), st.lists(st.integers(5, 9), min_size=1, max_size=3), min_size=1, max_size=3
    ),
)
def test_each_row_has_the_state_that_running_all_its_cells_gives(sources, parameters):
    """Against a run of all cells for each combination, on programs of assignments."""
    cells, start = cells_of(*sources), dict.fromkeys(NAMES, 1)

    def run(texts, names):
        names = json.loads(json.dumps(names))
        for text in texts:
            try:
                exec(text, {}, names)
            except TypeError:
                return {**names, "failed": text}
        return names

    try:
        plan = make_plan(cells, combine(parameters), place=None, root="", collected=NAMES)
    except BadCommand:
        return
    base = {None: start}
    for at, cell in enumerate(cells):
        before = base[cells[at - 1].execution_id if at else None]
        base[cell.execution_id] = run([cell.source], before)
    ends = {}
    seen = set()
    for task in plan.tasks:
        begin = ends[task.parent] if task.parent is not None else base[task.place]
        ends[task.key] = run([one.source for one in task.cells], begin)
        for row in task.rows:
            assert row not in seen
            seen.add(row)
            chosen = dict(plan.combinations[row])
            texts = list(sources)
            for name in list(chosen):
                at = setter_of(cells, name)
                if at is not None:
                    texts[at] = with_values(texts[at], {name: chosen.pop(name)})
            whole = run(texts, {**start, **chosen})
            if "failed" not in whole and "failed" not in str(ends[task.key]):
                assert ends[task.key] == whole
    assert seen == set(range(len(plan.combinations)))


# -- messages ---------------------------------------------------------------------------------------------------


def test_a_message_counts_only_with_the_signature_of_its_purpose():
    sealed = seal(b"key", "task 1", {"a": [1]})

    assert unseal(b"key", "task 1", sealed) == {"a": [1]}
    for key, purpose, text in (
        (b"other", "task 1", sealed),
        (b"key", "task 2", sealed),
        (b"key", "task 1", sealed[:-1] + b" "),
        (b"key", "task 1", b""),
        (b"key", "task 1", sealed[32:]),
    ):
        with pytest.raises(Unsealed):
            unseal(key, purpose, text)


# -- on a real cluster --------------------------------------------------------------------------------------------

CELLS = (
    "import math",
    "alpha = 0.5\nmodel = 'ridge'",
    "open('ran.txt', 'a').write('x')\ndata = [n for n in range(100)]",
    "fit = sum(data) * alpha",
    "r2 = fit + (1 if model == 'ridge' else 2)\nprint(r2)",
)


def write(path: Path, *sources: str) -> Path:
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources]), path)
    return path


def session_of(notebook: Path) -> Path:
    return notebook.parent / ".ctxkernel" / f"{notebook.stem}.sqlite"


def expected(alpha: float, model: str) -> float:
    return 4950 * alpha + (1 if model == "ridge" else 2)


@pytest.fixture(scope="module")
def swept(module_folder: Path) -> tuple[Path, dict[str, Any]]:
    """A notebook that was run and swept once, and the table."""
    notebook = write(module_folder / "swept.ipynb", *CELLS)
    assert main(["run", str(notebook)]) == 0
    words = "--from", "1", "alpha=0.1,0.3", "model=ridge,lasso", "--collect", "r2,fit,math", "--json"
    done = ctxkernel("sweep", notebook, *words)
    assert done.returncode == 0, done.stderr
    return notebook, json.loads(done.stdout)


def test_the_table_has_exactly_the_promised_fields(swept):
    _, told = swept

    assert set(told) == {"rows", "cells_run", "cells_shared"}
    for row in told["rows"]:
        assert set(row) == {"parameters", "collected", "status", "branch", "seconds", "diverged"}
    assert [row["parameters"] for row in told["rows"]] == [
        {"alpha": alpha, "model": model} for alpha in (0.1, 0.3) for model in ("ridge", "lasso")
    ]
    assert all(row["status"] == "ok" and row["diverged"] for row in told["rows"])
    assert [row["collected"]["r2"] for row in told["rows"]] == [expected(**row["parameters"]) for row in told["rows"]]
    assert told["rows"][0]["collected"]["math"] == {"told": "<module math>"}


def test_cells_that_do_not_read_the_parameters_do_not_run_again(swept):
    notebook, told = swept

    assert (notebook.parent / "ran.txt").read_text() == "x"
    # alpha is read by s4, model by s5: two runs of s4, four of s5
    assert (told["cells_run"], told["cells_shared"]) == (2 + 4, 4 * 4 - 6)


def test_all_branches_are_of_one_timeline_and_head_stays(swept, capsys):
    notebook, told = swept
    with SessionReader(session_of(notebook)) as reader:
        log = reader.log()
        head, checkpoints = log.head, reader.checkpoints()

    assert log.statement(log.execution(head).statement_id).source.startswith("%ctx sweep")
    for row in told["rows"]:
        path = log.path(row["branch"])
        assert path[0][0].statement_id == "s1"
        assert checkpoints[row["branch"]].state == "durable"
        assert f"alpha = {row['parameters']['alpha']}" in "\n".join(one.source for one, _ in path)
    assert main(["verify", str(notebook)]) == 0


def test_any_row_can_be_gone_to(swept, capsys):
    notebook, told = swept
    row = told["rows"][3]
    head = SessionReader(session_of(notebook)).__enter__().head()

    assert main(["goto", str(notebook), row["branch"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["head"] == row["branch"]
    with SessionReader(session_of(notebook)) as reader:
        run = reader.log().execution(row["branch"])
    assert run.stdout.strip() == str(row["collected"]["r2"])
    assert main(["goto", str(notebook), head]) == 0


def test_the_same_sweep_again_runs_nothing(swept, capsys):
    notebook, told = swept
    command = ["sweep", str(notebook), "--from", "1", "alpha=0.1,0.3", "model=ridge,lasso", "--collect", "r2,fit,math"]

    assert main([*command, "--json"]) == 0

    again = json.loads(capsys.readouterr().out)
    assert (again["cells_run"], again["rows"]) == (0, told["rows"])


def test_a_dry_run_tells_the_tasks_and_changes_nothing(swept, capsys):
    notebook, _ = swept
    before = session_of(notebook).read_bytes()

    assert main(["sweep", str(notebook), "--from", "1", "alpha=5,6,7", "--dry-run", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["combinations"], told["tasks"], told["cells_run"], told["cells_shared"]) == (3, 3, 6, 6)
    assert session_of(notebook).read_bytes() == before


def test_a_dry_run_in_a_terminal_tells_where_each_parameter_is_set(swept, capsys, monkeypatch):
    """A file and a folder are those of the folder in which the command was given."""
    notebook, _ = swept
    (notebook.parent / "below").mkdir()
    (notebook.parent / "below" / "grid.csv").write_text("alpha,model\n5,ridge\n6,lasso\n")
    monkeypatch.chdir(notebook.parent / "below")

    words = ["--from", "1", "--file", "grid.csv", "--store", "store", "--dry-run"]
    assert main(["sweep", "../swept.ipynb", *words]) == 0

    told = capsys.readouterr().out
    assert "2 combinations of alpha, model, 4 cells each: 4 tasks" in told
    assert "alpha is set before s4" in told
    assert main(["sweep", "../swept.ipynb", "--from", "1", "--file", "none.csv"]) == 2
    assert "none.csv cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--from", "1"], "which parameters"),
        (["--from", "99", "alpha=1"], "no statement 99"),
        (["--from", "1", "alpha"], "write NAME=VALUE"),
        (["--from", "1", "beta=1"], "no cell after the statement of --from reads beta"),
        (["--from", "1", "alpha=1", "--collect", "a b"], "names of variables"),
        (["--from", "1", "alpha=1", "--store", "nothing://x"], "nothing"),
    ],
)
def test_what_cannot_be_swept_is_refused_with_the_next_step(swept, capsys, words, told):
    assert main(["sweep", str(swept[0]), *words]) != 0

    assert told in capsys.readouterr().err


# -- faults, on a real cluster (long) -----------------------------------------------------------------------------

SLOW = (
    "alpha = 0",
    "import time\ntime.sleep(0.3)\nr2 = alpha * 10",
)


def started(notebook: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ctxkernel.cli", "sweep", str(notebook), *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows_of(notebook: Path, *words: str) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of a sweep, and what it told on stderr."""
    out, errors = started(notebook, *words).communicate(timeout=200)
    assert out, errors
    return json.loads(out)["rows"], errors


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """The address of a cluster with one worker. A cluster for each sweep takes two seconds more."""
    code = """if __name__ == '__main__':
    from distributed import LocalCluster
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, memory_limit=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdin
        assert one.stdout
        yield one.stdout.readline().strip()
        one.stdin.write("\n")


def shared_rows(scheduler: str, notebook: Path, *words: str) -> tuple[list[dict[str, Any]], str]:
    """Return the same as `rows_of`, by a command in this process and a cluster that is there."""
    done = ctxkernel("sweep", notebook, *words, "--scheduler", scheduler, "--json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["rows"], done.stderr


def workers_below(pid: int) -> list[int]:
    """Return the workers of Dask that have a kernel; a kernel's own child has its command line."""
    import psutil

    def is_kernel(process: Any) -> bool:
        return "ctxkernel.kernel" in " ".join(process.cmdline())

    try:
        return [
            one.pid
            for one in psutil.Process(pid).children(recursive=True)
            if not is_kernel(one) and any(map(is_kernel, one.children()))
        ]
    except psutil.Error:
        return []


def table_of(told: dict[str, Any]) -> list[Any]:
    return [(row["parameters"], row["collected"], row["status"]) for row in told["rows"]]


def test_a_worker_that_is_killed_again_and_again_changes_nothing(tmp_path):
    notebook = write(tmp_path / "slow.ipynb", *SLOW)
    assert main(["run", str(notebook)]) == 0
    sweep = started(notebook, "--from", "1", "alpha=range(30)", "--collect", "r2", "--workers", "2")
    killed, stop = [], threading.Event()

    def kill() -> None:
        choose = random.Random(3)
        while not stop.wait(4):
            if found := workers_below(sweep.pid):
                killed.append(choose.choice(found))
                os.kill(killed[-1], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    out, errors = sweep.communicate(timeout=280)
    stop.set()

    assert killed
    assert sweep.returncode == 0, errors
    told = json.loads(out)
    assert table_of(told) == [({"alpha": n}, {"r2": n * 10}, "ok") for n in range(30)]
    with SessionReader(session_of(notebook)) as reader:
        log = reader.log()
        branches = {row["branch"] for row in told["rows"]}
        # each combination has one branch, whole
        assert len(branches) == 30
        ends = {one.leaf for one in log.branches()}
        assert branches <= ends
        assert all(len(log.path(one)) == 3 for one in branches)
        assert len(log.executions("s2")) == 31
    assert main(["verify", str(notebook)]) == 0


def test_a_sweep_whose_kernel_is_killed_goes_on_where_it_was(tmp_path):
    notebook = write(tmp_path / "broken.ipynb", *SLOW)
    assert main(["run", str(notebook)]) == 0
    words = ("--from", "1", "alpha=range(20)", "--collect", "r2", "--workers", "2")
    sweep = started(notebook, *words)
    import psutil

    while sweep.poll() is None:
        time.sleep(0.3)
        with SessionReader(session_of(notebook)) as reader:
            if len(reader.log().executions("s2")) > 5:
                break
    for child in psutil.Process(sweep.pid).children():
        child.kill()
    sweep.communicate(timeout=60)
    with SessionReader(session_of(notebook)) as reader:
        before = len(reader.log().executions("s2"))

    again = started(notebook, *words)
    out, errors = again.communicate(timeout=280)

    assert again.returncode == 0, errors
    told = json.loads(out)
    assert table_of(told) == [({"alpha": n}, {"r2": n * 10}, "ok") for n in range(20)]
    assert told["cells_run"] <= 20 - (before - 1)
    with SessionReader(session_of(notebook)) as reader:
        assert len(reader.log().executions("s2")) == 21
    assert main(["verify", str(notebook)]) == 0


def test_an_interrupt_in_a_terminal_prints_the_rows_that_are_there(tmp_path):
    notebook = write(tmp_path / "slow.ipynb", *SLOW)
    assert main(["run", str(notebook)]) == 0
    sweep = started(notebook, "--from", "1", "alpha=range(60)", "--collect", "r2", "--workers", "1")
    assert sweep.stderr is not None
    while "3 of 60 tasks" not in (line := sweep.stderr.readline()):
        assert line, sweep.communicate()
    sweep.send_signal(signal.SIGINT)
    out, errors = sweep.communicate(timeout=100)

    assert sweep.returncode == 130, errors
    assert "run the same sweep again to continue" in errors
    rows = json.loads(out)["rows"]
    done = [row for row in rows if row["status"] == "ok"]
    assert len(done) >= 3
    assert {row["status"] for row in rows if row not in done} == {"cancelled"}
    assert all(row["collected"]["r2"] == row["parameters"]["alpha"] * 10 for row in done)
    assert main(["verify", str(notebook)]) == 0


def test_a_task_that_fails_takes_too_long_or_kills_its_kernel_costs_its_rows_only(tmp_path):
    notebook = write(
        tmp_path / "bad.ipynb",
        "how = 'good'; unused = [1]",  # a failed cell may have read it, so its task runs again with all variables
        "import os, time\nif how == 'raise':\n    1 / 0\nif how == 'hang':\n    time.sleep(100)\n"
        "if how == 'die':\n    os._exit(3)\n"
        "if how == 'memory':\n    held = bytearray(2_000_000_000)\n    time.sleep(30)\ndone = how",
    )
    assert main(["run", str(notebook)]) == 0
    sweep = started(
        notebook,
        *("--from", "1", "how=good,raise,hang,die,memory,fine", "--collect", "done", "--timeout", "8"),
        *("--memory", "1", "--workers", "2"),
    )
    out, errors = sweep.communicate(timeout=280)

    told = json.loads(out)
    assert [row["status"] for row in told["rows"]] == ["ok", "error", "timeout", "died", "memory", "ok"], errors
    assert sweep.returncode == 1
    assert [row["collected"] for row in told["rows"]] == [{"done": "good"}, {}, {}, {}, {}, {"done": "fine"}]
    assert [row["branch"] is None for row in told["rows"]] == [False, False, True, True, True, False]
    assert told["cells_run"] == 3  # of the combinations whose kernel ended, no cell is known to have run
    assert "ZeroDivisionError" in errors
    assert main(["verify", str(notebook)]) == 0


def test_a_scheduler_of_its_own_and_a_store_give_the_same_table(tmp_path):
    """Nothing is shared but the store, and only what the cells use is in it."""
    from distributed import Client

    notebook = write(
        tmp_path / "far.ipynb",
        "import numpy as np",
        "unused = np.arange(1_000_000.0)\nused = np.arange(100_000.0)\ndef scaled(x):\n    return used * x",
        "alpha = 1",
        "r2 = float(scaled(alpha).sum())\nlarge = scaled(alpha)",
    )
    assert main(["run", str(notebook)]) == 0
    address, processes = "", []
    try:
        scheduler = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "distributed.cli.dask_scheduler",
                "--port",
                "0",
                "--host",
                "127.0.0.1",
                "--no-dashboard",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(scheduler)
        assert scheduler.stderr is not None
        while not address:
            line = scheduler.stderr.readline()
            address = next((word for word in line.split() if word.startswith("tcp://")), "")
        threading.Thread(target=scheduler.stderr.read, daemon=True).start()
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
        processes.append(subprocess.Popen(worker, stderr=subprocess.DEVNULL, cwd=tmp_path))
        with Client(address) as client:
            client.wait_for_workers(1, timeout=60)
        store = tmp_path / "store"
        sweep = started(
            notebook, "--from", "2", "alpha=2,3", "--collect", "r2", "--scheduler", address, "--store", str(store)
        )
        out, errors = sweep.communicate(timeout=200)
    finally:
        for one in processes:
            one.kill()
            one.wait()

    assert sweep.returncode == 0, errors
    told = json.loads(out)
    assert [row["collected"]["r2"] for row in told["rows"]] == [4999950000.0 * 2, 4999950000.0 * 3]
    sizes = [one.stat().st_size for one in store.rglob("chunks/*")]
    assert 3 * 800_000 <= sum(sizes) < 4_000_000  # `used`, and `large` of each row: not `unused`
    assert main(["goto", str(notebook), told["rows"][1]["branch"]]) == 0
    assert main(["verify", str(notebook)]) == 0


def test_a_variable_that_a_worker_could_not_restore_is_named_with_its_combinations(tmp_path, scheduler):
    """A generator has no stored form. Rows that need it fail with a sentence that says so; the others are ok."""
    notebook = write(
        tmp_path / "lost.ipynb",
        "steps = (n for n in range(9))\nprint(next(steps))",
        "alpha, how = 1, 'alone'",
        "r2 = alpha * 10\nif how == 'reads':\n    r2 += next(steps)",
    )
    assert main(["run", str(notebook)]) == 0
    words = ("--from", "1", "alpha=1,2", "how=alone,reads", "--collect", "r2", "--timeout", "60")

    rows, errors = shared_rows(scheduler, notebook, *words)

    assert [row["status"] for row in rows] == ["ok", "error", "ok", "error"], errors
    assert all(list(row["lost"]) == ["steps"] and "generator" in row["lost"]["steps"] for row in rows)
    assert "steps could not be restored in a worker" in errors
    assert "all 4 combinations ran without it" in errors
    assert "NameError: name 'steps' is not defined (a worker could not restore steps: generator" in errors
    again = ctxkernel("sweep", notebook, *words, "--scheduler", scheduler)
    assert again.stdout.count("without steps") == 4, again
    assert "all 4 combinations ran without it" in again.stderr  # two of the rows were done by the first sweep


def test_what_a_worker_says_of_the_state_that_it_begins_with_is_told_once(tmp_path, scheduler):
    """The cache of a function has no stored form: a worker begins with an empty one."""
    notebook = write(
        tmp_path / "cached.ipynb",
        "import functools\nslow = functools.cache(lambda n: n * n)\nslow(3)",
        "alpha = 1",
        "hits = slow(3) * alpha, slow.cache_info().hits",
    )
    assert main(["run", str(notebook)]) == 0

    rows, errors = shared_rows(scheduler, notebook, "--from", "2", "alpha=1,2", "--collect", "hits")

    assert [row["collected"]["hits"] for row in rows] == [[9, 0], [18, 0]]
    assert errors.count("before the cells ran in a worker: function caches: cleared the cache of slow") == 1, errors


def test_a_kernel_that_dies_before_it_has_run_a_cell_is_started_again(tmp_path, monkeypatch):
    """The first start of each of three kernels fails, and no row of the table does."""
    notebook = write(tmp_path / "tree.ipynb", "alpha = 1", "r2 = alpha * 10")
    assert main(["run", str(notebook)]) == 0
    code = """import os, sys
left = os.path.join(os.path.dirname(__file__), "left")
if "CTXKERNEL_SWEEP_FOLDER" in os.environ and os.path.getsize(left):
    with open(left, "r+") as file:
        file.truncate(os.path.getsize(left) - 1)
    os._exit(3)
"""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(code)
    (tmp_path / "site" / "left").write_text("...")
    path = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))

    rows, errors = rows_of(notebook, "--from", "1", "alpha=1,2,3", "--collect", "r2", "--workers", "1")

    assert [row["collected"] for row in rows] == [{"r2": 10}, {"r2": 20}, {"r2": 30}], errors
    assert (tmp_path / "site" / "left").read_text() == ""


def test_only_files_that_several_combinations_wrote_are_named(tmp_path):
    """Not those of another worker that ran at the same time in the same folder."""
    notebook = write(
        tmp_path / "files.ipynb",
        "import time\nalpha = 1",
        "for turn in range(20):\n    time.sleep(0.05)\n    _ = open(f'own{alpha}.txt', 'w').write('x')",
        "_ = open('same.txt', 'w').write(str(alpha))",
    )
    assert main(["run", str(notebook)]) == 0

    _, errors = rows_of(notebook, "--from", "1", "alpha=1,2,3,4", "--workers", "2")

    assert "several combinations wrote same.txt: a combination" in errors


def test_a_kernel_that_refuses_a_task_ends_its_rows_with_the_reason(tmp_path, monkeypatch):
    notebook = write(tmp_path / "tree.ipynb", "alpha = 1", "r2 = alpha * 10")
    assert main(["run", str(notebook)]) == 0
    code = """import os, sys, types
if "CTXKERNEL_SWEEP_FOLDER" in os.environ:
    sys.modules["ctxkernel.kernel.commands.sweep"] = types.ModuleType("sweep")
"""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(code)
    path = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))

    rows, errors = rows_of(notebook, "--from", "1", "alpha=1,2", "--collect", "r2", "--workers", "1")

    assert [row["status"] for row in rows] == ["error", "error"]
    assert "has no attribute 'run_task'" in errors


def test_each_combination_has_the_settings_and_the_random_numbers_of_the_notebook(tmp_path, scheduler):
    """Also in the first task of a worker, whose kernel began with others, and in the tasks that follow it."""
    notebook = write(
        tmp_path / "settings.ipynb",
        "import decimal, os, random\nrandom.seed(7); decimal.getcontext().prec = 5; os.environ['MINE'] = 'set'",
        "alpha = 1\nbeta = 1",
        "a = alpha",
        "b = beta\nr = [random.random(), str(decimal.Decimal(1) / 3), os.environ.get('MINE')]",
    )
    assert main(["run", str(notebook)]) == 0

    rows, errors = shared_rows(scheduler, notebook, "--from", "1", "alpha=1,2", "beta=1,2", "--collect", "r")

    expected = [random.Random(7).random(), "0.33333", "set"]
    assert [row["collected"]["r"] for row in rows] == [expected] * 4, errors


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_combination_uses_a_generator_that_another_one_has_used(tmp_path, request, workers):
    """The cell that makes it is shared. One row may find it as it was made, if its worker has made it; no row after."""
    notebook = write(
        tmp_path / "tree.ipynb",
        "alpha = 1; beta = 1",
        "steps = (n + alpha for n in range(9))",
        "r2 = beta * 10 + next(steps)",
    )
    assert main(["run", str(notebook)]) == 0

    words = ("--from", "1", "alpha=1,2", "beta=1,2", "--collect", "r2")
    if workers == "1":
        rows, errors = shared_rows(request.getfixturevalue("scheduler"), notebook, *words)
    else:
        rows, errors = rows_of(notebook, *words, "--workers", workers)

    ended = [row for row in rows if row["status"] == "ok"]
    assert len({row["parameters"]["alpha"] for row in ended}) == len(ended), errors
    for row in ended:
        assert row["collected"] == {"r2": row["parameters"]["beta"] * 10 + row["parameters"]["alpha"]}
    without = [(row["status"], list(row["lost"])) for row in rows if row not in ended]
    assert without == [("error", ["steps"])] * len(without), errors
    assert "ran without it" in errors


def test_no_combination_finds_a_lock_as_another_one_left_it(tmp_path, scheduler):
    """A free lock is a new free one for each. A held one has no equal elsewhere: each row is told to lack it."""
    notebook = write(
        tmp_path / "locks.ipynb",
        "import threading\nfree, held = threading.Lock(), threading.Lock()\n_ = held.acquire()",
        "alpha = 1; beta = 1",
        "own = threading.Lock(); _ = own.acquire(); x = alpha",
        "r2 = [free.acquire(False), held.acquire(False), beta]\nif own.locked():\n    own.release()",
    )
    assert main(["run", str(notebook)]) == 0

    rows, errors = shared_rows(scheduler, notebook, "--from", "1", "alpha=1,2", "beta=1,2", "--collect", "r2")

    assert [row["collected"] for row in rows] == [{"r2": [True, True, beta]} for _ in (1, 2) for beta in (1, 2)], errors
    assert [sorted(row["lost"]) for row in rows] == [["held", "own"]] * 4
    assert "all 4 combinations ran without it" in errors


def test_a_parameter_without_a_form_in_json_is_its_literal():
    row = SweepRow({"a": 1j, "b": b"x", "c": {1, 2}, "d": [1, {"e": None}], "f": (1,)})

    told = json.loads(json.dumps(SweepTable([row]).to_mark()))

    assert told["rows"][0]["parameters"] == {"a": "1j", "b": "b'x'", "c": "{1, 2}", "d": [1, {"e": None}], "f": [1]}


def test_columns_of_numbers_are_aligned_at_the_right():
    rows = [SweepRow({"model": "ridge", "a": 1}, {"r2": r2, "fit": "x"}, "ok", "s1.2", 3.0) for r2 in (None, 10.5)]

    assert report_of(SweepTable(rows)).text().splitlines()[:3] == [
        "model    a    r2  fit  status  branch   time  cpu  diverged",
        "'ridge'  1  None  'x'  ok      s1.2    3.0 s",
        "'ridge'  1  10.5  'x'  ok      s1.2    3.0 s",
    ]


def test_a_dictionary_is_one_value_and_a_value_without_a_literal_is_refused():
    assert lists_of({"a": {"x": 1}, "b": [{"x": 1}, 2], "c": (1, 2)}) == {
        "a": [{"x": 1}],
        "b": [{"x": 1}, 2],
        "c": [1, 2],
    }
    with pytest.raises(BadCommand, match="a: a value of type object has no literal"):
        lists_of({"a": [object()]})


def test_of_many_reasons_why_combinations_failed_the_first_are_told_and_the_others_counted():
    rows = [SweepRow({"a": n}, status="error", why=f"ValueError: {n % 7}") for n in range(20)]

    told = failures(SweepTable(rows))

    assert told[0] == "3 combinations ended with error: ValueError: 0"
    assert told[5:] == ["5 more combinations ended with other reasons"]


def test_a_table_comes_back_from_its_mark():
    """With what only the panel shows; a field of another type is left out."""
    row = SweepRow({"alpha": 1}, {"r2": 2.5}, "error", "s9.1", 1.5, 0.5, "the last line", True, "KeyError: 'a'")
    mark = json.loads(json.dumps(SweepTable([row], seconds=3.0).to_mark()))

    found = SweepTable.from_mark(mark)

    assert (found.rows, found.seconds, found.parameters, found.collected) == ([row], 3.0, ["alpha"], ["r2"])
    mark["rows"][0] |= {"status": 7, "branch": None, "parameters": []}
    assert SweepTable.from_mark(mark).rows[0].status == "waiting"
    for forged in ({}, {"rows": 3}, {"rows": [1, None, {}], "seconds": "x"}, {"rows": [{"parameters": {"a": 1}}, {}]}):
        found = SweepTable.from_mark(forged)
        if found.rows:
            assert len(sweep_answer({"s1.1": found}, None, None)["rows"]) == len(found.rows)


def test_the_panel_shows_a_running_sweep_and_those_of_the_log():
    """The newest one if none is named; numbers are sent as numbers, so that pages can sort by them."""
    row = SweepRow({"alpha": 0.5, "model": "ridge"}, {"fig": {"image/png": "abc", "told": "Figure"}}, "ok", "s9.1")
    old, new = SweepTable([row], seconds=2.0), SweepTable([SweepRow({"alpha": math.inf})])
    running = RunningSweep("s12.1", new, {"done": 1, "tasks": 3, "workers": 2})

    found = sweep_answer({"s8.1": old}, running, None)
    earlier = sweep_answer({"s8.1": old}, running, "s8.1")

    assert (found["of"], found["progress"]) == ("s12.1", {"done": 1, "tasks": 3, "workers": 2})
    assert found["rows"][0]["values"] == [{"text": 'float("inf")', "number": None}]
    assert earlier["progress"] is None
    assert [one["told"] for one in found["sweeps"]] == [
        "1 combination of alpha, model, 2.0 s",
        "1 combination of alpha",
    ]
    assert earlier["rows"][0]["values"] == [
        {"text": "0.5", "number": 0.5},
        {"text": "'ridge'", "number": None},
        {"text": "Figure", "number": None, "image": "abc"},
    ]
    for of in ("s9.1", 7):
        with pytest.raises(BadCommand, match="did not sweep"):
            sweep_answer({"s8.1": old}, None, of)
    with pytest.raises(BadCommand, match="nothing was swept"):
        sweep_answer({}, None, None)


def test_what_was_lost_is_told_once_for_all_its_combinations():
    table = SweepTable([SweepRow({"alpha": n, "model": "x"}, status="ok") for n in range(6)])
    for row in table.rows[:5]:
        row.lost = {"lock": "it cannot be stored"}
    table.rows[5].lost = {"lock": "another reason", "steps": "it is a generator"}

    first = "alpha=0 model='x', alpha=1 model='x', alpha=2 model='x' and 2 more combinations"
    assert table.losses() == [
        f"lock could not be restored in a worker (it cannot be stored): {first} ran without it",
        "lock could not be restored in a worker (another reason): alpha=5 model='x' ran without it",
        "steps could not be restored in a worker (it is a generator): alpha=5 model='x' ran without it",
    ]
    assert "lost" not in SweepRow({"alpha": 1}).to_json()
    assert table.table()[1][-5] == "ok, without lock"


def test_packages_that_differ_are_named():
    here = {"python": "3.12.1", "ctxkernel": "1", "scikit-learn": "1.6", "numpy": "2.0"}
    same = {"python": "3.12.1", "ctxkernel": "1", "packages": {"scikit_learn": "1.6", "NumPy": "2.0", "more": "1"}}
    other = {**same, "packages": {"numpy": "1.26"}}

    assert differences(here, {"tcp://a": same}) == []
    assert differences(here, {"tcp://a": same, "tcp://b": other}) == [
        "scikit-learn is 1.6 here and none on 1 of 2 workers",
        "numpy is 2.0 here and 1.26 on 1 of 2 workers",
    ]


def test_names_and_values_in_plots_are_escaped():
    rows = [
        SweepRow({"name": text, "n": n}, {"r2": n / 3, "fig": {"image/png": '"><script>'}}, "ok")
        for n, text in enumerate(("<b>", "</svg><script>", "'\"&"))
    ]

    html = plots_html(SweepTable(rows))

    assert "<svg" in html
    assert "<script" not in html
    assert "<b>" not in html
    assert "<img" not in html


def test_a_table_for_the_front_end_leaves_out_names_and_bounds_its_figures():
    figure = {"told": "figure", "image/png": "A" * 300_000}
    rows = [SweepRow({"a": n, "key": "k"}, {"fig": figure, "bad": {"image/png": "<"}}, "ok") for n in range(2100)]

    shown = shown_sweep(SweepTable(rows), without={"key"}, text=lambda text, name: f"{name}:{text}")

    assert (shown["parameters"], shown["collected"], shown["more"]) == (["a"], ["fig", "bad"], 100)
    assert [one["text"] for one in shown["rows"][3]["values"][:2]] == ["a:3", "fig:figure"]
    assert [one["number"] for one in shown["rows"][3]["values"]] == [3.0, None, None]
    assert sum("image" in value for row in shown["rows"] for value in row["values"]) == 6


def test_a_combination_whose_last_cell_failed_as_before_is_no_success(tmp_path, scheduler):
    notebook = write(tmp_path / "fails.ipynb", "alpha = 1", "r2 = alpha / 0")
    assert main(["run", str(notebook)]) == 1

    rows, errors = shared_rows(scheduler, notebook, "--from", "0", "alpha=1,2")

    assert [row["status"] for row in rows] == ["error", "error"], errors


def test_a_combination_that_fails_has_its_reason_its_time_its_output_and_its_divergence(tmp_path, scheduler):
    """Also one whose failed cell is shared with others."""
    notebook = write(
        tmp_path / "fails.ipynb",
        "import time",
        "n = 1; beta = 1",
        "print('n is', n); time.sleep(0.2)\nif n > 1:\n    raise ValueError(n)",
        "beta",
    )
    assert main(["run", str(notebook)]) == 0

    rows, errors = shared_rows(scheduler, notebook, "--from", "1", "n=1,2", "beta=1,2")

    assert [row["status"] for row in rows] == ["ok", "ok", "error", "error"], errors
    assert "2 combinations ended with error: ValueError: 2" in errors
    assert all(0.2 < row["seconds"] < 20 for row in rows), rows
    assert [row["diverged"] for row in rows[2:]] == [True, True]


def test_a_sweep_in_a_notebook_is_a_value_and_can_be_interrupted(kernel):
    """An interrupt cancels, the branches that are there stay, and the same sweep goes on."""
    for source in ("alpha = 0", "import time\ntime.sleep(alpha)\nr2 = alpha * 10"):
        assert kernel.run(source).status == "ok"

    first = kernel.run(
        "from ctxkernel import sweep\nt = sweep(0, alpha=[0.1, 0.2], collect='r2')\nt.frame.r2.tolist()", timeout=120
    )
    assert first.data[-1]["text/plain"] == "[1.0, 2.0]", first.reply
    shown = kernel.run("t").data[-1]
    assert {row["branch"] for row in shown[SWEEP_MIME]["sweep"]["rows"]} == {"s2.2", "s2.3"}
    assert shown["text/html"].count("<tr") == 3
    assert "<script" not in shown["text/html"]
    assert kernel.evaluate("(alpha, r2, t.cells_run, len(t))") == "(0, 0, 4, 2)"
    assert kernel.run("t.goto(2)").error["evalue"] == "there is no row 2: this sweep has 2 rows, from 0 on"
    refused = kernel.run("sweep(0, alpha=[1], collect=3)").error["evalue"]
    assert refused == "collect=3: a list of names of variables is expected"
    threading.Timer(15, kernel.manager.interrupt_kernel).start()
    second = kernel.run("%ctx sweep --from 0 alpha=0.1,0.2,60 --collect r2", timeout=120)

    assert second.status == "ok", second.reply
    table = second.data[-1]["text/plain"]
    assert "cancelled" in table
    assert "3 combinations, 2 ok" in table
    assert "run the same sweep again to continue" in second.stderr
    assert kernel.run("alpha + r2").data[0]["text/plain"] == "0"


def test_a_sweep_from_python_runs_the_cells_of_heads_branch(kernel):
    """A longer branch that the user left is no part of it. The cell that calls `sweep` is on HEAD's branch, too."""
    for source in ("a = 1", "b = a + 1", "c = b * 10", "d = c", "%ctx goto 2", "c = b * 100"):
        assert kernel.run(source).status == "ok"
    planned = kernel.run(
        "from ctxkernel.kernel.commands import sweep as command\n"
        "request = command._made({'--from': '1'}, set(), [{'b': 5}])\n"
        "[one.source for one in command._sweeper(command._context()).plan(request)[1]]"
    )

    assert ast.literal_eval(planned.data[-1]["text/plain"]) == ["b = a + 1", "c = b * 100"]


def test_a_worker_has_the_environment_of_the_state_and_not_that_of_later_cells(kernel):
    """Its states, too: a return to a row sets what the cells above it have set."""
    for source in (
        "import os; os.environ['FIRST'] = 'a'; os.environ['SOME_TOKEN'] = 'not stored'",
        "alpha = 1",
        "os.environ['LATER'] = os.environ.get('LATER', '') + str(alpha)",
        "r = [os.environ['FIRST'], os.environ['LATER'], len(os.environ['SOME_TOKEN'])]",
    ):
        assert kernel.run(source).status == "ok"

    ran = kernel.run("%ctx sweep --from 1 alpha=2,3 --collect r --workers 1 --json", timeout=120)
    rows = json.loads(ran.stdout)["rows"]

    assert [row["collected"]["r"] for row in rows] == [["a", n, 10] for n in "23"], rows
    assert kernel.run(f"%ctx goto {rows[0]['branch']}").status == "ok"
    assert kernel.evaluate("(os.environ['FIRST'], os.environ['LATER'])") == "('a', '2')"


def test_a_module_that_the_cells_import_is_new_for_each_combination(kernel):
    """A worker runs many combinations in one process. A module that the state has keeps the values of the state."""
    (kernel.folder / "before.py").write_text("seen = []\n")
    (kernel.folder / "helper.py").write_text("import before\nseen = []\nclass Count:\n    total = 0\n")
    for source in (
        "import before; before.seen.append('base')",
        "alpha = 1",
        "import helper\nhelper.seen.append(alpha); helper.Count.total += alpha; helper.before.seen.append(alpha)",
        "r = [helper.seen, helper.Count().total, before.seen]",
    ):
        assert kernel.run(source).status == "ok"

    ran = kernel.run("%ctx sweep --from 1 alpha=2,3,4 --collect r --workers 1 --json", timeout=120)

    rows = json.loads(ran.stdout)["rows"]
    assert [row["collected"]["r"] for row in rows] == [[[n], n, ["base", n]] for n in (2, 3, 4)], ran.stderr


def test_a_row_of_an_earlier_sweep_counts_only_while_its_files_are_as_they_were(kernel):
    """And the installed packages. Files that it wrote itself do not count. What all combinations share runs again, too.

    The results that the workers left in the store do not count, either.
    """
    data = kernel.folder / "data.txt"
    data.write_text("four")
    for source in (
        "alpha = 1",
        "text = open('data.txt').read()",
        "_ = open(f'own{alpha}.txt', 'w').write(text)",
        "own = open(f'own{alpha}.txt').read()",
        "r = len(text) + len(own) * alpha",
    ):
        assert kernel.run(source).status == "ok"
    words = "--from 1 alpha=1,2 --collect r,none --store store"

    def swept() -> tuple[int, list[int]]:
        ran = kernel.run(f"%ctx sweep {words} --json", timeout=120)
        assert "no combination has a value of none" in ran.stderr
        told = json.loads(ran.stdout)
        return told["cells_run"], [row["collected"]["r"] for row in told["rows"]]

    first = swept()
    (kernel.folder / "own1.txt").write_text("another run of the notebook")
    planned = json.loads(kernel.run(f"%ctx sweep {words} --dry-run --json").stdout)
    again = swept()
    data.write_text("seventy")
    changed = swept()

    assert first == (6, [8, 12])
    assert (planned["tasks"], planned["cells_run"], planned["cells_shared"], planned["seconds"]) == (0, 0, 8, 0)
    assert again == (0, [8, 12])
    assert changed == (7, [14, 21])
    assert swept() == (0, [14, 21])

    installed = kernel.folder / "another-2.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 2.0\n")
    assert swept() == (7, [14, 21])


def test_a_sweep_that_collects_other_variables_takes_them_from_the_states_of_the_earlier_one(kernel, scheduler):
    """Cells run only where a state has not got a value, such as a generator."""
    for source in (
        "alpha = 1",
        "_ = open('ran.txt', 'a').write('x'); shared = [alpha]",
        "r = alpha * 10",
        "import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt\nfig, ax = plt.subplots()",
        "g = (n for n in [r])",
    ):
        assert kernel.run(source).status == "ok"

    def swept(names: str) -> tuple[int, list[dict[str, Any]]]:
        words = f"--from 1 alpha=1,2 --collect {names} --scheduler {scheduler} --json"
        ran = kernel.run(f"%ctx sweep {words}", timeout=120)
        told = json.loads(ran.stdout)
        assert [row["status"] for row in told["rows"]] == ["ok", "ok"], told
        assert told["cells_run"] + told["cells_shared"] == 8
        return told["cells_run"], [row["collected"] for row in told["rows"]]

    assert swept("r") == (8, [{"r": 10}, {"r": 20}])
    planned = json.loads(kernel.run("%ctx sweep --from 1 alpha=1,2 --collect r,shared --dry-run --json").stdout)
    assert (planned["cells_run"], planned["tasks"]) == (0, 2)
    assert swept("shared,r,none") == (0, [{"shared": [1], "r": 10}, {"shared": [2], "r": 20}])
    count, rows = swept("fig")
    assert (count, [row["fig"]["told"] for row in rows]) == (0, ["figure", "figure"])
    assert swept("fig,r") == (0, [{**row, "r": 10 * n} for n, row in enumerate(rows, 1)])
    count, rows = swept("g")
    assert (count, ["generator" in row["g"]["told"] for row in rows]) == (8, [True, True])


def test_a_row_of_an_earlier_sweep_says_that_its_cells_may_depend_on_more(kernel):
    """A clock has gone on since; what the rows depended on otherwise is as it was."""
    for source in ("import time", "alpha = 1", "r = alpha if time.time() else 0"):
        assert kernel.run(source).status == "ok"

    first = kernel.run("%ctx sweep --from 2 alpha=1,2 --collect r", timeout=120)
    again = kernel.run("%ctx sweep --from 2 alpha=1,2 --collect r", timeout=120)

    assert "0 cells ran" in again.data[-1]["text/plain"]
    assert "--again" not in first.stderr
    assert (
        "2 combinations are those of an earlier sweep, although s3 may read the clock: --again runs them"
        in again.stderr
    )


def test_an_executor_gives_each_result_or_why_there_is_none():
    executor = ThreadExecutor(2)
    try:
        for key, argument in (("a", b"1"), ("b", b"x"), ("c", b"3")):
            executor.submit(key, lambda given: str(int(given) * 2).encode(), argument)
        found = {}
        while len(found) < 3:
            if (done := executor.done(5)) is not None:
                found[done[0]] = done[1:]
    finally:
        executor.close()

    assert found["a"] == (b"2", "")
    assert found["c"] == (b"6", "")
    assert found["b"][0] is None
    assert "ValueError" in found["b"][1]


def test_again_runs_what_an_earlier_sweep_has_done(swept, capsys):
    notebook, told = swept
    command = ["sweep", str(notebook), "--from", "1", "alpha=0.1,0.3", "model=ridge,lasso", "--collect", "r2,fit,math"]

    assert main([*command, "--json", "--again"]) == 0

    again = json.loads(capsys.readouterr().out)
    assert (again["cells_run"], again["cells_shared"]) == (told["cells_run"], told["cells_shared"])
    assert [row["collected"] for row in again["rows"]] == [row["collected"] for row in told["rows"]]
    assert not {row["branch"] for row in again["rows"]} & {row["branch"] for row in told["rows"]}


def test_a_task_whose_connection_to_its_kernel_breaks_fails_at_once():
    """Only an empty queue means that the kernel is still at work."""
    kernel = WorkerKernel.__new__(WorkerKernel)
    kernel._client = mock.Mock()
    kernel._client.get_shell_msg.side_effect = [queue.Empty, ConnectionError("closed")]
    kernel.is_alive = lambda: True

    with pytest.raises(ConnectionError, match="closed"):
        kernel._execute("x = 1", TaskLimits(0, 0))
