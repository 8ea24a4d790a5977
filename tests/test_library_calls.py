"""Functions of libraries that cells call for their effect: a return leaves the library as it is, and names them."""

from __future__ import annotations

import copyreg
import csv
import json
import tracemalloc
from typing import Any

import pytest
from kernels import RunningKernel, StartKernel
from test_affected import affected, edited_notebook, put

from ctxkernel.state.ambient.library_calls import LibraryCalls
from ctxkernel.state.tracking.set_attributes import set_attributes


def named(source: str, **namespace: Any) -> list[str]:
    """Return the full names of what a cell calls or sets."""
    namespace = {"csv": csv, "json": json, **namespace}
    part = LibraryCalls()
    part.watch(set_attributes(source).calls, namespace)
    return list(part.capture()) if part.active else []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("csv.register_dialect('tabs', delimiter='\\t')", "csv.register_dialect"),
        ("copyreg.pickle(object, len)", "copyreg.pickle"),
        ("tracemalloc.start()", "tracemalloc.start"),
        ("old = csv.field_size_limit(10)", "csv.field_size_limit"),
        ("if True:\n    csv.register_dialect('tabs')", "csv.register_dialect"),
        ("import csv; csv.register_dialect('tabs')", "csv.register_dialect"),
        ("if csv: csv.register_dialect('tabs')", "csv.register_dialect"),
        ("register_dialect('tabs')", "_csv.register_dialect"),
        ("json.decoder.BACKSLASH['x'] = 'y'", "json.decoder.BACKSLASH"),
        ("json.decoder.BACKSLASH.update(x='y')", "json.decoder.BACKSLASH.update"),
        ("json.encoder.ESCAPE.mine = 1", "json.encoder.ESCAPE.mine"),
    ],
)
def test_what_a_cell_calls_for_its_effect_is_known_by_its_full_name(source: str, expected: str):
    others = {"copyreg": copyreg, "tracemalloc": tracemalloc}
    assert named(source, register_dialect=csv.register_dialect, **others) == [expected]


@pytest.mark.parametrize(
    "source",
    [
        "rows.append(1)",
        "csv.reader([])",
        "text = json.dumps(5)",
        "fig.set_title('x')",
        "json.add_row(rows)",
        "rows[0] = 1",
        "df.columns.names[0] = 1",
        "json.mine = 5",
        "logging.basicConfig(level=10)",
    ],
)
def test_what_changes_a_variable_or_has_a_part_of_its_own_is_not_named(source: str):
    """`json.mine = 5` comes back: it is an attribute of a module."""
    import logging

    assert named(source, rows=[0], fig=object(), df=object(), logging=logging) == []


def test_a_return_names_what_was_called_since_and_not_what_it_goes_back_to():
    part = LibraryCalls()
    part.watch(set_attributes("csv.register_dialect('a')").calls, {"csv": csv})
    assert part.active
    first = part.capture()
    part.watch(set_attributes("csv.register_dialect('b')").calls, {"csv": csv})
    assert part.active
    second = part.capture()
    left = "called or set since, and left as it is"
    assert part.restore(first) == [f"csv.register_dialect: {left}"]
    assert part.restore(first) == []
    assert part.restore(second) == []
    assert part.restore({}) == [f"csv.register_dialect: {left}"]
    assert LibraryCalls().restore(first) == ["csv.register_dialect: called or set then, but not in this process"]


def test_a_function_that_traces_the_program_is_named():
    """It stays set, and runs at each call of the cells that follow."""
    import sys
    import threading

    sources = "sys.settrace(f)", "sys.setprofile(f)", "threading.settrace(f)"
    found = [named(source, sys=sys, threading=threading, f=len) for source in sources]

    assert found == [["sys.settrace"], ["sys.setprofile"], ["threading.settrace"]]


DIALECT = "import csv\ncsv.register_dialect('mine', delimiter=';')"


def test_going_back_and_a_new_kernel_say_what_they_do_not_restore(start_kernel: StartKernel):
    kernel = start_kernel()
    kernel.run("x = 1")
    kernel.run(DIALECT)
    kernel.run("y = 2")
    told = kernel.run("%ctx goto 1").stdout
    assert "library: csv.register_dialect: called or set since, and left as it is" in told
    kernel.run("%ctx goto 3")
    kernel.stop()
    kernel = start_kernel(kernel.folder)
    assert "csv.register_dialect: called or set then, but not in this process" in kernel.run("%ctx resume").stdout


@pytest.mark.parametrize(
    ("name", "first"),
    [("words", "from keyword import kwlist as words"), ("table", "import html\ntable = html.entities.html5")],
)
@pytest.mark.parametrize("place", [1, 2])
def test_a_return_names_the_container_of_a_library_that_a_variable_changed(kernel: Any, name, first, place):
    change = {"words": "words.append('mine')", "table": "table['mine'] = 'x'"}[name]
    for source in ("x = 1", first, change):
        kernel.run(source)

    told = kernel.run(f"%ctx goto {place}").stdout

    full = {"words": "keyword.kwlist", "table": "html.entities.html5"}[name]
    assert f"library: {full} (as {name}): changed since, and left as it is" in told
    assert "left as it is" not in kernel.run("%ctx undo").stdout + kernel.run("%ctx goto 2").stdout.replace(full, "")
    assert kernel.evaluate(f"'mine' in {name}") == "False"


def test_a_cell_that_calls_one_runs_again_after_an_edit_before_it(kernel: Any):
    """Its effect cannot be taken from its checkpoint; cells after it are kept where it calls the same."""
    put(kernel, a="x = 1", b=DIALECT, c="rows = [*csv.reader(['1;2'], 'mine')]", d="y = x * 2")
    put(kernel, a="x = 2")

    told = affected(kernel)

    assert (told["opaque"], told["ran"]) == ([1], [3]), told
    assert kernel.evaluate("(rows, y)") == "([['1', '2']], 4)"


@pytest.mark.parametrize(
    ("change", "read"),
    [
        ("import socket; socket.setdefaulttimeout(5)", "__import__('socket').getdefaulttimeout()"),
        ("import gc; gc.set_debug(gc.DEBUG_UNCOLLECTABLE)", "__import__('gc').get_debug()"),
        (
            "import os, time; os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
            "(__import__('time').tzname, __import__('os').environ.get('TZ'))",
        ),
    ],
)
def test_settings_of_the_standard_library_come_back(kernel: RunningKernel, change: str, read: str):
    before = kernel.run(f"print({read})").stdout
    kernel.run(change)
    after = kernel.run(f"print({read})").stdout
    assert before != after
    kernel.run("%ctx goto 1")
    assert kernel.run(f"print({read})").stdout == before
    kernel.run("%ctx goto 3")
    assert kernel.run(f"print({read})").stdout == after


def test_in_a_new_process_a_re_run_begins_with_the_cell_that_calls_it(start_kernel: StartKernel):
    cells = {"a": "x = 1", "b": DIALECT, "c": "y = 2", "d": "rows = [*csv.reader(['1;2'], 'mine')]"}
    kernel = start_kernel()
    put(kernel, **cells)
    kernel.stop()
    kernel = start_kernel(kernel.folder)
    kernel.run("%ctx resume")

    edited = edited_notebook(kernel.folder, {**cells, "d": "rows = [*csv.reader(['3;4'], 'mine')]"})
    told = affected(kernel, "--notebook", edited)

    assert (told["opaque"], told["ran"]) == ([1], [3])
    assert kernel.evaluate("rows") == "[['3', '4']]"
