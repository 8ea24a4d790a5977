"""The marks of cells in a real kernel: fresh, stale, of another branch, unknown; and `%ctx stale`."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest
from mark_tables import MarkReader, marks_of
from scale import share
from test_panel import Front


class Notebook:
    """A notebook whose cells have names, in a kernel."""

    def __init__(self, kernel: Any) -> None:
        self.front = Front(kernel)
        self.reader = MarkReader()
        self.reader.read(self.front.snapshot["cells"])
        self.told: dict[str, Any] = {}
        self.failed: str | None = None

    def run(self, cell: str, source: str, **more: Any) -> dict[str, Any]:
        """Run a cell, take the marks that changed, and return its mark."""
        turn = self.front.run(source, cell_id=cell, **more)
        self.told, self.failed = self.reader.read(turn["cells"]), (turn["statement"]["exception"] or {}).get("type")
        return self.marks.get(cell, {})

    def gesture(self, source: str) -> None:
        self.told = self.reader.read(self.front.run(source, gesture=True)["cells"])

    @property
    def marks(self) -> dict[str, dict[str, Any]]:
        """The marks of all cells, as a page knows them."""
        return self.reader.marks

    def asked(self) -> dict[str, dict[str, Any]]:
        """Return the marks of all cells, as a page that is opened now takes them."""
        return marks_of(self.front.ask(type="snapshot")["cells"])

    def states(self) -> dict[str, str]:
        return {cell: mark["state"] for cell, mark in self.marks.items()}


@pytest.fixture
def book(kernel: Any) -> Notebook:
    return Notebook(kernel)


def test_a_cell_is_stale_once_what_it_read_is_changed_and_fresh_once_it_ran_again(book):
    book.run("a", "x = 1")
    book.run("b", "y = x + 1")
    book.run("c", "z = y + 1")
    assert book.states() == {"a": "fresh", "b": "fresh", "c": "fresh"}, book.marks
    book.run("a", "x = 5")
    assert book.states() == {"a": "fresh", "b": "stale", "c": "stale"}
    assert book.marks["b"]["because"] == ["x was changed by s4"]
    assert book.marks["b"]["upstream"] == ["s4"]
    assert book.marks["c"]["because"] == ["it reads y of s2, which is stale"]
    book.run("b", "y = x + 1")
    assert book.states() == {"a": "fresh", "b": "fresh", "c": "stale"}
    assert set(book.told) == {"b", "c"}
    book.run("c", "z = y + 1")
    assert set(book.states().values()) == {"fresh"}
    assert book.asked() == book.marks


def test_only_the_marks_that_changed_are_sent(book):
    for n in range(5):
        book.run(f"c{n}", f"x{n} = {n}")
        assert set(book.told) == {f"c{n}"}
    book.run("again", "x3")
    assert set(book.told) == {"again"}


def test_the_runs_of_a_sweep_are_not_what_the_cells_show(book):
    """A sweep runs cells in other kernels: no output of theirs is in the notebook."""
    book.run("a", "import math")
    book.run("b", "x = 1")
    book.run("c", "print(x)")
    book.run("d", "%ctx sweep --from 1 x=2,3 --workers 1")
    assert book.failed is None
    book.gesture("%ctx goto s3.2")
    assert (book.marks["c"]["execution_id"], book.marks["c"]["on_head"]) == ("s3.1", "s3.2")
    book.gesture("%ctx undo")
    assert (book.marks["c"]["execution_id"], book.marks["c"]["state"]) == ("s3.1", "fresh")
    assert book.asked() == book.marks


def test_a_return_marks_the_cells_of_the_other_branch(book):
    book.run("a", "x = 1")
    book.run("b", "x = x + 1; y = 2")
    book.gesture("%ctx goto s1")
    assert book.states() == {"a": "fresh", "b": "later"}
    assert book.marks["b"]["on_head"] is None
    book.run("a", "x = 3")
    assert book.states() == {"a": "fresh", "b": "branch"}
    book.gesture("%ctx goto s2")
    assert book.states() == {"a": "branch", "b": "fresh"}
    assert book.marks["a"]["on_head"] == "s1.1"
    assert book.marks["a"]["execution_id"] == "s4.1"


def test_a_mark_of_a_person_is_shown(book):
    book.run("a", "x = 1")
    book.gesture("%ctx mark s1 asks")
    assert book.states() == {"a": "asks"}
    book.gesture("%ctx mark s1 none")
    assert book.states() == {"a": "fresh"}


def test_a_re_run_that_came_out_differently_is_marked(book):
    book.run("a", "import time; t = time.perf_counter()")
    book.gesture("%ctx rerun s1")
    book.run("b", "1")
    assert book.marks["a"]["state"] == "diverged"
    assert "t" in book.marks["a"]["because"][0]


def test_what_an_edit_brings_about_in_an_affected_re_run_is_not_marked_as_different(book):
    book.run("a", "x = 1")
    book.run("b", "y = x + 1\nprint(y)")
    book.run("c", "import time; t = time.perf_counter()")
    book.run("d", "rounded = round(t * 0) + y")
    book.run("a", "x = 2")
    book.front.kernel.run("%ctx rerun --affected")

    marks = book.asked()
    assert [marks[cell]["state"] for cell in "abcd"] == ["fresh", "fresh", "diverged", "fresh"], marks


def test_the_number_of_the_prompt_and_the_digest_of_the_text_are_told(book):
    book.run("a", "x = 1")
    mark = book.run("b", "y = 'ä'")
    assert mark["count"] == 2
    import hashlib

    assert mark["source"] == hashlib.sha256("y = 'ä'".encode()).hexdigest()[:16]
    assert mark["checkpoint"] in ("durable", "writing")


UNKNOWN = [
    ("import time; t = time.time()", "clock"),
    ("import random; r = random.random()", "random numbers"),
    ("import uuid; u = uuid.uuid4().hex", "random numbers"),
    ("import os; home = os.environ.get('HOME')", "environment"),
    ("import os; names = os.listdir('.')", "list files"),
    ("first = next(gen)", "gen"),
    ("!echo hello", "shell"),
    ("exec('k = 1')", "any variable"),
    ("w = clock()", "clock"),
    ("w = Watch().read()", "clock"),
]
SETUP = """
import time
counter = 0; items = []; numbers = iter(range(100)); gen = (i for i in range(9))
def clock(): return time.time()
class Watch:
    def read(self): return time.time()
"""


def test_after_run_all_nothing_is_stale_and_no_cell_is_unknown_that_changes_what_it_reads(book):
    """Once and twice; then a cell that is run alone once more is unknown, and one above that is edited counts."""
    cells = ["import pandas as pd\ndf = pd.DataFrame({'x': [1, 2]})", "total = df['x'].sum()", "df['y'] = df['x'] * 2"]
    cells += ["wide = df.shape", "items = [3, 1]", "first = items[0]", "items.sort()", "least = items[0]"]
    for turn in range(2):
        for n, source in enumerate(cells):
            book.run(f"c{n}", source)
        assert set(book.states().values()) == {"fresh"}, (turn, book.marks)
    book.run("more", "items.append(2)")
    assert set(book.states().values()) == {"fresh"}, book.marks
    book.run("more", "items.append(2)")
    assert book.marks["more"]["because"] == ["it read items as its own earlier run left it"]
    book.run("c0", cells[0].replace("1, 2", "1, 5"))
    stale = {cell for cell, state in book.states().items() if state == "stale"}
    assert stale == {"c1", "c2", "c3"}


def test_a_cell_that_uses_what_a_generator_refers_to_does_not_read_the_generator(book):
    book.run("a", "numbers = [[1], [2]]; steps = (one for one in numbers)")
    assert book.run("b", "total = len(numbers)")["state"] == "fresh"

    for n, source in enumerate(
        ("next(steps)", "def first(): return next(steps)", "first()", "held = [steps]", "held[0]")
    ):
        assert book.run(f"d{n}", source)["state"] == "unknown", source


SHOWN = {
    "items": ("items = [3, 1]", "items.sort()", "items.append(2)"),
    "d": ("d = {}", "d['x'] = [1]", "d['x'].append(2)"),
    "df": ("import pandas as pd; df = pd.DataFrame({'x': [1, 2]})", "df['y'] = df.x * 2", "df.loc[0, 'x'] = 5"),
    "p": ("class P: pass\np = P()", "p.x = 1", "p.y = [p]"),
    "ax": ("import matplotlib.pyplot as plt; fig, ax = plt.subplots()", "ax.plot([1, 2])", "ax.set_title('t')"),
    "a": ("import numpy as np; a = np.zeros(3)", "a[0] = 1", "b = a[1:]; b[0] = 2"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_cell_that_changes_a_value_that_was_shown_is_as_fresh_as_without(book, name):
    """Its result is kept in `Out`, and changes with it."""
    for turn in range(2):
        for n, source in enumerate(SHOWN[name]):
            book.run(f"c{n}", source)
            book.run(f"shows{n}", name)
            book.run(f"reads{n}", f"text{n} = repr({name})")
        assert book.failed is None
        assert set(book.states().values()) == {"fresh"}, (turn, book.marks)


@pytest.mark.parametrize(
    ("source", "state"),
    [
        ("from drawing_library import draw; import drawing_library", "fresh"),
        ("import drawing_library; drawing_library", "unknown"),
        ("import drawing_library; print(drawing_library)", "unknown"),
        ("import drawing_library; d = drawing_library.draw()", "unknown"),
        ("import drawing_library\nclass A: d = drawing_library.draw()", "unknown"),
        ("import drawing_helper", "unknown"),
    ],
)
def test_a_cell_that_only_imports_is_fresh_though_its_library_draws_for_itself(book, tmp_path, source, state):
    """As parts of scikit-learn do; the user's own modules may keep what they draw."""
    drawing = "import random\nrandom.random()\ndef draw(): return random.random()\n"
    library = tmp_path / "site-packages" / "drawing_library.py"
    library.parent.mkdir()
    library.write_text(drawing)
    (tmp_path / "drawing_helper.py").write_text(drawing)
    book.run("setup", f"import sys; sys.path.append({str(library.parent)!r})")

    assert book.run("imports", source)["state"] == state, book.marks


def test_a_cell_that_reads_what_cannot_be_seen_is_unknown(book):
    book.run("setup", SETUP)
    wrong = []
    for n, (source, reason) in enumerate(UNKNOWN):
        mark = book.run(f"c{n}", source)
        if mark["state"] != "unknown" or reason not in "; ".join(mark["because"]):
            wrong.append((source, mark["state"], mark["because"]))
    assert wrong == []


FRESH = [
    "import math",
    "import numpy as np",
    "a = np.arange(5)",
    "b = a.sum() + math.pi",
    "def f(v): return v * 2 + k",
    "k = 3",
    "c = f(b)",
    "import random; random.seed(1)",
    "random.seed(2)\nr = random.random()",
    "for i in range(3):\n    j = i * 2",
    "total = 0\nfor i in range(3):\n    total += i",
    "class P:\n    def __init__(self, v): self.v = v",
    "p = P(3); q = p.v",
    "print(c, q)",
    "text = [str(one) for one in a]",
    "d = {'x': a}",
    "with open('data.txt', 'w') as file:\n    _ = file.write('1')",
    "data = open('data.txt').read()",
    "import io, pandas as pd, sqlite3\ntable = pd.read_csv(io.StringIO('a,b\\n1,2'))",
    "buffer = io.BytesIO()\nnp.save(buffer, a)\n_ = buffer.seek(0)\nagain = np.load(buffer)",
    "given = io.StringIO('a,b\\n1,2')",
    "_ = given.seek(0)\nrows = len(pd.read_csv(given))\n_ = given.seek(0)",
    "with sqlite3.connect(':memory:') as db:\n    one = db.execute('select 1').fetchone()\ndel db",
]


def test_ordinary_cells_are_fresh_also_when_they_run_again(book):
    wrong = []
    for turn in range(2):
        for n, source in enumerate(FRESH):
            mark = book.run(f"c{n}", source)
            if mark["state"] != "fresh":
                wrong.append((turn, source, mark["state"], mark["because"]))
    assert wrong == []
    assert set(book.states().values()) == {"fresh"}


def test_a_file_that_was_changed_makes_its_readers_stale(book, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("1")
    book.run("a", f"data = open({str(path)!r}).read()")
    book.run("b", "n = len(data)")
    path.write_text("22")
    book.run("c", "0")
    assert book.states() == {"a": "stale", "b": "stale", "c": "fresh"}
    assert "data.csv was" in book.marks["a"]["because"][0]
    path.write_text("1")
    book.run("c", "0")
    states = book.states()
    assert (states["b"], states["c"]) == ("fresh", "fresh")
    # A busy machine may not have had the time to see what the cell read: then it says so.
    assert states["a"] == "fresh" or (states["a"] == "unknown" and book.marks["a"]["because"])


def test_a_function_that_is_defined_anew_makes_its_callers_stale(book):
    book.run("f", "def f(v): return v + k")
    book.run("k", "k = 1")
    book.run("use", "r = f(2)")
    book.run("k", "k = 2")
    assert book.states()["use"] == "stale"
    book.run("use", "r = f(2)")
    book.run("f", "def f(v): return v - k")
    assert book.states()["use"] == "stale"


def test_an_alias_that_is_changed_makes_readers_of_the_other_name_stale(book):
    book.run("a", "x = [1]")
    book.run("b", "y = x")
    book.run("d", "y")
    book.run("c", "n = sum(x)")
    book.run("d", "y.append(5)")
    assert book.states()["c"] == "stale"


def test_the_command_lists_stale_cells_and_explains_one(book, kernel):
    """It leaves no statement."""
    book.run("a", "x = 1")
    book.run("b", "y = x + 1")
    book.run("c", "z = y + 1")
    book.run("a", "x = 5")
    shown = kernel.run("%ctx stale").data[0]
    assert '<a href="#cell-id=b" data-ctxk-cell="b">s2</a>' in shown["text/html"]
    told = shown["text/plain"]
    assert told.splitlines() == [
        "3 cells on the path to HEAD: 1 fresh, 2 stale, 0 unknown",
        "s2    stale    x was changed by s4",
        "      y = x + 1",
        "s3    stale    it reads y of s2, which is stale",
        "      z = y + 1",
    ]
    assert kernel.run("%ctx why stale s3").data[0]["text/plain"].splitlines() == [
        "s3 is stale: z = y + 1",
        "  it reads y of s2, which is stale",
        "  s2 is stale: y = x + 1",
        "    x was changed by s4",
        "reads y of s2",
    ]
    assert kernel.run("%ctx why stale 2").data[0]["text/plain"].splitlines()[-1] == "read from it: s3"
    assert "there is no statement '99' here" in kernel.run("%ctx why stale 99").error["evalue"]
    assert "s1 is not the newest execution" in kernel.run("%ctx why stale 1").error["evalue"]
    assert len(book.front.rows()) == 4


def test_the_marks_are_the_same_after_the_session_was_resumed(start_kernel, tmp_path):
    """The reads are in the log."""
    first = start_kernel(tmp_path)
    book = Notebook(first)
    for cell, source in [
        ("a", "x = 1"),
        ("b", "y = x + 1"),
        ("a", "x = 3"),
        ("c", "z = x"),
        ("d", "import time; t = time.time()"),
    ]:
        book.run(cell, source)
    states = book.states()
    assert states == {"a": "fresh", "b": "stale", "c": "fresh", "d": "unknown"}
    first.stop()
    second = start_kernel(tmp_path)
    ran = second.run("%ctx resume")
    assert ran.status == "ok", ran.error
    book = Notebook(second)
    assert book.asked().keys() == states.keys()
    assert {cell: mark["state"] for cell, mark in book.asked().items()} == states


# -- never a false "fresh" --------------------------------------------------------------------------

PROBE = """
def _copied(values):
    import copy, types
    copies, memo = {}, {}
    for name, value in list(values.items()):
        if not name.startswith("_") and type(value) in (int, str, list, dict, tuple, set, type(None)):
            copies[name] = copy.deepcopy(value, memo)
    for name, value in list(values.items()):
        if type(value) is types.FunctionType and not name.startswith('_'):
            copies[name] = types.FunctionType(value.__code__, copies, name, value.__defaults__)
    return copies

def _spaces():
    import sys
    return sys.__dict__.setdefault("states_of_cells", {})

def _signs():
    kept = _copied(globals())
    return {name: id(globals()[name]) if callable(value) else repr(value) for name, value in kept.items()}

def _keep(cell):
    _spaces()[cell] = _copied(globals())
    _spaces()["before"] = _signs()

def _carry(cells):
    before, now = _spaces()["before"], _signs()
    changed = {name: globals()[name] for name, sign in now.items() if before.get(name) != sign}
    for cell in cells:
        _spaces()[cell].update(_copied(changed))
        for name in before.keys() - now.keys():
            _spaces()[cell].pop(name, None)

def _probe(source, names, cell):
    copies = _copied(_spaces()[cell])
    try:
        exec(source, copies)
    except Exception as fault:
        return type(fault).__name__
    return _values(names, copies)

def _values(names, space):
    return {name: repr(space[name]) if not callable(space.get(name)) else 'function' for name in names if name in space}
"""
TEMPLATES = [
    ("{a} = {n}", "a", ""),
    ("{a} = [{n}]", "a", ""),
    ("{a} = repr({b})", "a", "b"),
    ("{a} = {b}", "a", "b"),
    ("{a} = [{b}, {c}]", "a", "bc"),
    ("{a} = repr({b}) + repr({c})", "a", "bc"),
    ("{l}.append({n})", "l", "l"),
    ("{l}.append(len(repr({b})))", "l", "lb"),
    ("{l} = []\nfor i in range({n}):\n    {l}.append(i)", "l", ""),
    ("if {n} > 2:\n    {a} = 0\n{b} = repr({a})", "ab", "a"),
    ("def {f}(v): return repr(v) + repr({b})", "f", ""),
    ("{a} = {f}({n})", "a", "f"),
    ("{f} = lambda v: [v, {n}]", "f", ""),
    ("{a} = [one for one in range({n})]; {b} = repr({a})", "ab", ""),
    ("{a} = {n}\n{a} = repr({a})", "a", ""),
    ("try:\n    {a} = {b}[{n}]\nexcept Exception:\n    {a} = None", "a", "b"),
    ("del {a}\n{a} = {n}", "a", ""),
    ("{d} = {{'k': {l}}}", "d", "l"),
    ("{d}['n'] = {n}", "d", "d"),
    ("{l}", "", "l"),
    ("{l}.append({n}); {l}", "l", "l"),
    ("{d}", "", "d"),
    ("with open('/dev/null') as h{a}:\n    {a} = {n}", "a", ""),
]
"""Cells with the names that they make and those that they use."""


class Program:
    """A random notebook whose cells are edited and run in any order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = {"a": ["p", "q", "r"], "b": ["p", "q", "r", "l1"], "c": ["q", "l1", "l2"]}
        self.names |= {"l": ["l1", "l2"], "f": ["f1", "f2"], "d": ["d1"]}
        self.seed = seed
        self.texts: dict[str, tuple[str, list[str], list[str]]] = {}

    def step(self) -> tuple[str, str, list[str], list[str]]:
        """Return a cell, its text, and the names that it makes and uses."""
        cell = f"c{self.seed}-{self.random.randrange(6)}"
        if cell not in self.texts or self.random.random() < 0.4:
            text, makes, uses = self.random.choice(TEMPLATES)
            names = {key: f"{self.random.choice(values)}_{self.seed}" for key, values in self.names.items()}
            made = [names[key] for key in makes]
            self.texts[cell] = text.format(n=self.random.randrange(5), **names), made, [names[key] for key in uses]
        return cell, *self.texts[cell]


def evaluate(kernel: Any, expression: str) -> Any:
    """Return the value of an expression, of which the kernel keeps nothing."""
    told = kernel.client.execute("", silent=True, user_expressions={"v": expression})
    while (reply := kernel.client.get_shell_msg(timeout=30))["parent_header"].get("msg_id") != told:
        pass
    found = reply["content"]["user_expressions"]["v"]
    assert found["status"] == "ok", found
    return eval(found["data"]["text/plain"])


@pytest.mark.scaled
@pytest.mark.parametrize("seed", share(range(60), 2))
def test_a_fresh_cell_gives_its_values_again_and_one_whose_input_changed_is_stale(book, kernel, seed):
    """Random notebooks, whose cells are edited and run in any order.

    Each cell is repeated in the state in which it ran, with all that the cells before it wrote since: a fresh one gives
    the same, and one that would read something else is stale.
    """
    book.run("probe", PROBE)
    program = Program(seed)
    start = [f"{n}_{seed} = {v}" for n, v in [("p", 1), ("q", 2), ("r", 3), ("l1", "[1]"), ("l2", "[2]"), ("d1", "{}")]]
    book.run("start", "; ".join([*start, *(f"f{n}_{seed} = lambda v: v" for n in (1, 2))]))
    gave: dict[str, tuple[str, list[str], Any, list[str], Any]] = {}
    order: list[str] = []
    fresh = 0
    for _ in range(14):
        cell, text, makes, uses = program.step()
        if cell not in order:
            order.append(cell)
        before = evaluate(kernel, f"_values({uses!r}, globals())")
        evaluate(kernel, f"_keep({cell!r})")
        book.run(cell, text)
        evaluate(kernel, f"_carry({order[order.index(cell) + 1 :]!r})")
        values = book.failed or evaluate(kernel, f"_values({makes!r}, globals())")
        gave[cell] = text, makes, values, uses, before
        for one, (source, made, values, read, was) in gave.items():
            state = book.marks[one]["state"]
            would_read = evaluate(kernel, f"_values({read!r}, _spaces()[{one!r}])")
            told = f"{one} {source!r} is {state} {book.marks[one]['because']} after {cell} {text!r}"
            if state == "fresh":
                fresh += 1
                assert evaluate(kernel, f"_probe({source!r}, {made!r}, {one!r})") == values, told
            if would_read != was:
                assert state == "stale", told
    assert fresh


@pytest.mark.scaled
@pytest.mark.parametrize("seed", share(range(60, 80), 2))
def test_no_cell_of_a_notebook_that_ran_from_top_to_bottom_is_stale(book, seed):
    """However often, and after any other order before."""
    program = Program(seed)
    start = [f"{n}_{seed} = {v}" for n, v in [("p", 1), ("q", 2), ("r", 3), ("l1", "[1]"), ("l2", "[2]"), ("d1", "{}")]]
    start += [f"f{n}_{seed} = lambda v: v" for n in (1, 2)]
    texts = {"start": "; ".join(start)}
    book.run("start", texts["start"])
    for _ in range(10):
        cell, text, *_ = program.step()
        texts[cell] = text
        book.run(cell, text)
    for cell, text in texts.items():
        book.run(cell, text)
    stale = {cell: (text, book.marks[cell]) for cell, text in texts.items() if book.marks[cell]["state"] == "stale"}
    assert stale == {}


def test_a_cell_of_several_lines_is_named_by_its_first_one_as_in_the_timeline(kernel):
    """Lines put together would read as code that nobody wrote."""
    kernel.run("# the limit\nx = 1\ny = 2")
    kernel.run("z = x\nprint(z)")
    kernel.run("%ctx goto 1")
    for line in ("%ctx stale --graph", "%ctx branches", "%ctx rerun 1 --dry-run"):
        told = str(kernel.run(line).outputs)
        assert "x = 1 (+2 lines)" in told or "z = x (+1 line)" in told, line
        assert "y = 2" not in told and "print(z)" not in told, line


LATE = """
import sys; sys.path.append({tests!r})
from late_packs import late_if
from ctxkernel.state.tracking.groups import Moment
Moment._pack = late_if(lambda: True)
"""


def test_once_the_background_has_ended_its_results_count_as_if_they_had_been_known_at_once(start_kernel):
    """Until then they are unknown, and so is what depends on them. A resume knows them, too."""
    kernel = start_kernel()
    book = Notebook(kernel)
    book.run("late", LATE.format(tests=str(Path(__file__).parent)))
    for turn in range(2):
        for n, source in enumerate(("items = [[1]]", "items.append([2])", "n = len(items)", "first = items[0]")):
            book.run(f"c{n}", source)
        assert kernel.evaluate("get_ipython().kernel.ctx.checkpoints.wait_for_all()") == "True"
        marks = book.asked()
        assert {mark["state"] for cell, mark in marks.items() if cell != "late"} == {"fresh"}, (turn, marks)
    kernel.manager.provisioner.process.send_signal(signal.SIGKILL)
    kernel.manager.provisioner.process.wait()
    book = Notebook(start_kernel())
    book.front.run("%ctx resume", gesture=True)
    assert {cell: mark["state"] for cell, mark in book.asked().items()} == {c: m["state"] for c, m in marks.items()}


@pytest.mark.scaled
@pytest.mark.parametrize("seed", share(range(80, 100), 2))
def test_no_cell_is_fresh_because_its_variables_were_packed_late(start_kernel, seed):
    found = []
    for late in (False, True):
        kernel = start_kernel(notebook=f"late-{late}.ipynb")
        book, program = Notebook(kernel), Program(seed)
        book.run("late", LATE.format(tests=str(Path(__file__).parent)) if late else "import sys")
        book.run("start", "; ".join(f"{n}_{seed} = [1]" for n in ("p", "q", "r", "l1", "l2")) + f"; d1_{seed} = {{}}")
        book.run("functions", f"f1_{seed} = f2_{seed} = lambda v: v")
        for _ in range(14):
            cell, text, *_ = program.step()
            book.run(cell, text)
        assert kernel.evaluate("get_ipython().kernel.ctx.checkpoints.wait_for_all()") == "True"
        found.append({cell for cell, mark in book.asked().items() if mark["state"] == "fresh" and cell != "late"})

    assert found[1] <= found[0]


@pytest.mark.parametrize(
    "source",
    [
        "walk = [1]; stat = sum(walk)",
        "row = {'stat': 1, 'exists': 2}; row['stat']",
        "text = 'open the file, walk the tree, touch it'",
        "# whether it exists is seen later\ny = 1",
        "def scaled(input, system): return input * system\nscaled(2, 3)",
        "import multiprocessing as mp, shutil, subprocess, tempfile",
        "%time size = len(listed)",
        "(folder / 'a.txt').read_text()",
        "n = len(text_of(folder / 'a.txt', os.path.join(folder, 'a.txt'), f'{folder}/a.txt'))",
        "from urllib.parse import quote\nquote('a b')",
        "import urllib.parse\nurllib.parse.urlsplit('http://a/b')",
        "table.stat.sum()",
        "table.columns = table.columns.str.replace(' ', '_'); name = os.path.join('a', 'b c').replace(' ', '_')",
        "shown = pathlib.PurePath('a'), table['stat'].rename('x'), 'a b'.replace(' ', '_'), table.rename(columns={})",
        "listed = [1]; listed.remove(1); os.path.join('a', 'b')",
        "options = Options(a=1)\nsetattr(options, 'b', 2); delattr(options, 'b')",
        "class Named:\n    def __init__(self, **kw):\n        [setattr(self, k, v) for k, v in kw.items()]\nNamed(a=1)",
    ],
)
def test_a_word_that_names_no_function_that_is_called_makes_no_cell_unknown(book, source):
    """A variable, a key, a text, a comment, a parameter or an import alone; nor does a folder of a longer path."""
    (book.front.kernel.folder / "data").mkdir()
    (book.front.kernel.folder / "data" / "a.txt").write_text("a")
    book.run(
        "a",
        "import os, pathlib\nfolder = pathlib.Path('data'); listed = walk = [3]\ndef text_of(*a): return 'a'\n"
        "class Options:\n    def __init__(self, **kw):\n        for k, v in kw.items(): setattr(self, k, v)",
    )
    if "table" in source:
        book.run("table", "import pandas as pd\ntable = pd.DataFrame({'stat': [1.5]})")
    assert book.run("b", source)["state"] == "fresh", (book.failed, book.marks)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import os as system; list(system.walk('.'))", "list files"),
        ("from os import walk as visit; list(visit('.'))", "list files"),
        ("list(getattr(os, 'walk')('.'))", "list files"),
        ("text_of(folder)", "list files"),
        ("text_of(folder / 'sub')", "list files"),
        ("import multiprocessing as mp; mp.active_children()", "threads"),
        ("mp.active_children()", "threads"),
        ("from subprocess import check_call; check_call(['true'])", "program"),
        ("%time names = os.listdir('.')", "list files"),
        ("folder.stat()", "list files"),
        ("put(os, 'own', 1); del os.own", "change a library"),
        ("def put_it(one): setattr(one, 'own', 1)\nput_it(os); del os.own", "change a library"),
        ("setattr(os, 'own', 1); del os.own", "change a library"),
        ("Putter().put(os); del os.own", "change a library"),
        ("set_it = setattr; set_it(os, 'own', 1); del os.own", "change a library"),
        ("table.loc[0, 'folder'].stat()", "list files"),
        ("import urllib.request\nurllib.request.build_opener()", "network"),
        ("os.rename('data', 'moved'); os.rename('moved', 'data')", "move or delete"),
        ("from os import rename as move; move('data', 'moved'); move('moved', 'data')", "move or delete"),
        ("moved = folder.rename('moved')\nmoved.replace('data')", "move or delete"),
    ],
)
def test_a_function_by_another_name_and_a_folder_that_is_passed_make_a_cell_unknown(book, source, why):
    (book.front.kernel.folder / "data" / "sub").mkdir(parents=True)
    book.run(
        "a",
        "import os, pathlib, multiprocessing as mp\nfolder = pathlib.Path('data')\n"
        "def text_of(*a): return 'a'\ndef put(*a): setattr(*a)\n"
        "class Putter:\n    def put(self, one): setattr(one, 'own', 1)",
    )
    if "table" in source:
        book.run("table", "import pandas as pd\ntable = pd.DataFrame({'folder': [folder]})")
    mark = book.run("b", source)
    assert (mark["state"], book.failed) == ("unknown", None), mark
    assert why in mark["because"][0]


@pytest.mark.parametrize(
    "source",
    [
        "def ensured(p):\n    p.mkdir(); return p",
        "def found(p='.'): return [one for one in os.listdir(p) if os.path.exists(one)]",
        "def removed(name): os.remove(name)",
        "class Timer:\n    def __enter__(self): self.start = clock()\n    def __exit__(self, *e): print(clock())",
        "@contextlib.contextmanager\ndef inside(p):\n    old = os.getcwd(); os.chdir(p)\n    yield\n    os.chdir(old)",
        "LIMIT = 3\nlog = logging.getLogger('a')\ndef run(command): return subprocess.run(command)",
        "def main(): return called()",
        "class Own:\n    def __init__(self, **k):\n        for n in k: setattr(self, n, k[n])\nx = Own(a=1); x.a",
        "%%writefile script.py\nimport os\nnames = os.listdir('.')\nrows = list(ran)",
    ],
)
def test_a_function_that_a_cell_only_defines_makes_it_not_unknown(book, source):
    """Nor do the lines of a script that it writes, and attributes that an object gives to itself."""
    imports = "import contextlib, logging, os, subprocess\nfrom time import perf_counter as clock\n"
    book.run("a", f"{imports}ran = iter([1, 2]); next(ran)\ndef called(): return os.listdir('.')")
    assert book.run("b", source)["state"] == "fresh", (book.failed, book.marks)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def found(): return os.listdir('.')\nfound()", "list files"),
        ("def found(): return os.listdir('.')\nrows = sorted([1], key=lambda n: len(found()))", "list files"),
        ("def found(): return os.listdir('.')\nx = used()", "list files"),
        ("@kept\ndef found(): return os.listdir('.')", "list files"),
        ("class A:\n    def __init_subclass__(cls): cls.found = os.listdir('.')\nclass B(A): pass", "list files"),
        ("class M(type):\n    def __init__(c, *a): os.listdir('.')\nclass A(metaclass=M): pass", "list files"),
        ("def found(names=os.listdir('.')): return names", "list files"),
        ("class A:\n    found = os.listdir('.')", "list files"),
        ("def changes(library): setattr(library, 'changed', 1)\nchanges(os)", "change a library"),
    ],
)
def test_a_function_that_a_cell_defines_and_may_call_makes_it_unknown(book, source, why):
    book.run("a", "import os\ndef found(): pass\ndef used(): return found()\ndef kept(f): f(); return f")
    mark = book.run("b", source)
    assert (mark["state"], book.failed) == ("unknown", None), mark
    assert why in mark["because"][0]


def test_commands_about_many_cells_show_the_first_ones_and_count_the_others(kernel):
    """In a session of 30,000 cells, `%ctx stale --graph` gave 5 MB of output, and `%ctx why stale` 74 KB."""
    kernel.run("x = [0]")
    for at in range(240):
        kernel.run(f"y{at} = x[0] + {at} + 1 / 1")
    kernel.run("z = missing")

    (graph,) = kernel.run("%ctx stale --graph").data
    (why,) = kernel.run("%ctx why stale 1").data

    assert len(graph["text/plain"].splitlines()) == 201
    assert graph["text/plain"].endswith("more; --json has all")
    assert "\n… 210 more; --json has all\nread from it: s2, s3, " in why["text/plain"]
    assert why["text/plain"].endswith("s31, … 210 more")
    assert len(why["text/plain"].splitlines()) < 40
