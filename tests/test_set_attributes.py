"""What cells put into attributes of libraries, and the annotations of variables, are part of each state."""

from __future__ import annotations

from typing import Any

import pytest
from test_affected import affected, put
from test_returning import run_all

CASES = {
    "a list in a library, reached without naming the library": (
        ("import builtins\nbuiltins.found = [1]", "found.append(2)", "found.append(3)"),
        "builtins.found",
    ),
    "a dict that is a variable, too": (
        ("import json\nkept = {}\njson.kept = kept", "kept['a'] = [1]", "json.kept['a'].append(2)"),
        "json.kept, json.kept is kept",
    ),
    "a function as a method of a library's class": (
        (
            "import json\ndef told(self): return 1\njson.JSONDecoder.told = told",
            "told.calls = [1]",
            "told.calls += [2]",
        ),
        "json.JSONDecoder.told is told, vars(told), json.JSONDecoder().told()",
    ),
    "a class of the user's, and an instance of it": (
        ("import json\nclass Own:\n    seen = []\njson.own = Own", "json.own.seen.append(1)", "json.one = Own()"),
        "Own.seen, json.own is Own, type(getattr(json, 'one', None)) is Own",
    ),
    "an accessor of frames": (
        (
            "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})",
            (
                "@pd.api.extensions.register_dataframe_accessor('own')\n"
                "class Own:\n    seen = []\n    def __init__(self, frame): self.frame = frame"
            ),
            "df.own.seen.append(len(df.own.frame))",
        ),
        "getattr(getattr(pd.DataFrame, 'own', None), 'seen', None), hasattr(df, 'own') and type(df.own) is Own",
    ),
    "a variable with a function in Python that a cell replaces": (
        ("import textwrap\nkept = textwrap.dedent", "textwrap.dedent = lambda text: 'other'", "kept = None"),
        "kept and kept(' a'), textwrap.dedent(' b'), kept is textwrap.dedent",
    ),
    "a variable with a function in C that a cell replaces": (
        ("import math\nkept = [math.sqrt]", "math.sqrt = lambda number: 'other'", "kept.append(math.sqrt)"),
        "kept[0](4), math.sqrt(4), kept[0] is math.sqrt, kept[-1] is math.sqrt",
    ),
    "a variable with a class that a cell replaces, and an instance of it": (
        (
            "import queue\nkept = queue.PriorityQueue; made = queue.PriorityQueue()",
            "class Other(queue.PriorityQueue): pass\nqueue.PriorityQueue = Other",
            "kept = made = None",
        ),
        "kept and (kept.__name__, kept is queue.PriorityQueue, type(made) is kept), queue.PriorityQueue.__name__",
    ),
    "a replacement with the name of its original": (
        (
            "import textwrap, functools",
            (
                "original = textwrap.dedent\n@functools.wraps(original)\n"
                "def other(text): return 'other ' + original(text)\ntextwrap.dedent = other"
            ),
            "other.calls = 1",
        ),
        "textwrap.dedent(' a'), vars(textwrap.dedent).get('calls')",
    ),
    "a replacement with the name of its original, in the cell that imports the library": (
        (
            "import functools",
            (
                "import tabnanny\noriginal = tabnanny.format_witnesses\n@functools.wraps(original)\n"
                "def other(found): return 'other'\ntabnanny.format_witnesses = other"
            ),
            "other.calls = 1",
        ),
        "'tabnanny' in globals() and (tabnanny.format_witnesses(()), vars(tabnanny.format_witnesses).get('calls'))",
    ),
    "a list that a cell takes out of a library, without naming the variable that holds it": (
        ("import json\nkept = [1]\njson.kept = kept", "taken = [json.kept]; del json.kept", "taken.append(2)"),
        "'taken' in globals() and (taken[0] is kept, len(taken))",
    ),
    "annotations of variables": (
        ("x: int = 1", "y: str = ''", "x: float = 1"),
        "globals().get('__annotations__')",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_goes_back_and_forward_and_comes_into_a_new_kernel(start_kernel: Any, case: str):
    cells, facts = CASES[case]
    kernel = start_kernel()
    seen: list[str] = []
    for cell in cells:
        run_all(kernel, cell)
        seen.append(kernel.evaluate(f"({facts})"))
    assert len(set(seen)) == 3

    for at in (0, 1, 0, 2, 1):
        run_all(kernel, f"%ctx goto {at + 1}")
        assert kernel.evaluate(f"({facts})") == seen[at], at
    run_all(kernel, "%ctx goto 3")
    kernel.stop()

    kernel = start_kernel()
    run_all(kernel, "%ctx resume")
    assert kernel.evaluate(f"({facts})") == seen[2]
    for at in (1, 0):
        run_all(kernel, f"%ctx goto {at + 1}")
        assert kernel.evaluate(f"({facts})") == seen[at], at


def test_a_cell_with_an_annotation_looks_at_no_other_variable(kernel: Any):
    """Its code reads `__annotations__`, which is none of the user's variables."""
    run_all(kernel, "data = [[n] for n in range(1000)]", "x: int = 1", "y: int = 2")

    assert kernel.evaluate("'data' in get_ipython().kernel.ctx.loop._tracker.touched") == "False"


READ = {
    "a number": ("json.flag = 3", "json.flag = 4", "y = json.flag"),
    "a list, in a function": ("json.flag = [3]", "json.flag = [4]", "y = read()[0]"),
    "a name that is found without its library": ("builtins.flag = 3", "builtins.flag = 4", "y = flag"),
}


@pytest.mark.parametrize("case", READ)
def test_what_reads_an_attribute_of_a_library_runs_again_after_an_edit_of_it(kernel: Any, case: str):
    """Which cells read it is not seen, as libraries read them, too: all later ones run."""
    before, edited, reads = READ[case]
    put(kernel, a="import json, builtins\ndef read(): return json.flag", b=before, c=reads, d="z = y * 2")
    put(kernel, b=edited)

    told = affected(kernel)

    assert told["ran"] == [1, 2, 3]
    assert told["why"]["2"] == "the library attributes differ"
    assert kernel.evaluate("z") == "8"


def test_cells_are_kept_where_an_attribute_of_a_library_is_as_before(kernel: Any):
    """The cell that sets it to an object runs again, and gives an equal one."""
    put(kernel, a="import json", b="x = 1", c="json.kept = {'a': [1]}; json.flag = 3", d="y = x * 2", e="z = 5")
    put(kernel, b="x = 2")

    told = affected(kernel)

    assert told["ran"] == [3]
    assert told["opaque"] == [2]
    assert kernel.evaluate("(y, z, json.kept, json.flag)") == "(4, 5, {'a': [1]}, 3)"
