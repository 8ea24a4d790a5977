"""Plans of a return: what is made again, by which statements, and why not."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.replay.plan import (
    FileChange,
    Load,
    PastRun,
    Plan,
    PlannedStep,
    Written,
    acts_outside,
    make_plan,
    pure_enough,
    remake,
)

WHY = {"g": "a generator cannot be stored"}


def run(n: int, source: str = "pass", **facts: Any) -> PastRun:
    facts["bound"] = frozenset(facts.get("bound", facts.get("made", ())))
    for name in ("touched", "deleted"):
        facts[name] = frozenset(facts.get(name, ()))
    return PastRun(f"s{n}.1", f"s{n}", source, **facts)


def test_a_generator_is_made_again_by_the_statement_that_made_it():
    path = [run(1, "x = [1, 2]", made={"x": "1"}), run(2, "g = (i for i in x)", reads={"x": "1"}, made={"g": ""})]

    assert remake(WHY, path, {"x": "1", "g": ""}) == ({"g": ("s2",)}, {})


def test_what_was_taken_from_it_is_taken_again():
    """The statements that advanced it run in their order, with no other in between."""
    path = [
        run(1, "x = [1, 2]", made={"x": "1"}),
        run(2, "g = (i for i in x)", reads={"x": "1"}, made={"g": ""}),
        run(3, "y = 5", made={"y": "5"}),
        run(4, "next(g)", reads={"g": ""}, made={"g": ""}, bound=()),
    ]

    assert remake(WHY, path, {"x": "1", "y": "5", "g": ""}) == ({"g": ("s2", "s4")}, {})


def test_a_name_that_was_made_from_it_comes_back_with_it():
    path = [
        run(1, "g = iter([1])", made={"g": ""}),
        run(2, "h = map(str, g)", reads={"g": ""}, made={"h": ""}, touched={"g"}),
    ]
    missing = {"g": "an iterator", "h": "a map"}

    assert remake(missing, path, {"g": "", "h": ""}) == ({"g": ("s1", "s2"), "h": ("s1", "s2")}, {})


REASONS = [
    ({"reads": {"x": "other"}}, {}, "it uses x, which was changed since"),
    ({"reads": {"z": "1"}}, {}, "it uses z, which is not there"),
    ({"reads": {"x": ""}}, {}, "it uses x, whose content is not known"),
    ({"files": ("a.csv",)}, {}, "it wrote a.csv"),
    ({"ambient": ("random",)}, {}, "it changed random"),
    ({"changed_files": ("in.csv",)}, {}, "in.csv, which it read, was changed since"),
    ({"asked": True}, {}, "it asked for input"),
    ({"asks": True}, {}, "it is marked as one that asks"),
    ({"status": "error"}, {}, "it ended as error"),
    ({"kind": "meta"}, {}, "it is no cell"),
    ({"made": {"g": "", "x": "2"}}, {}, "it also makes x, which is another now"),
    ({"made": {"g": "", "new": "2"}}, {}, "it also makes new"),
    ({"touched": {"x"}}, {}, "it may touch x"),
    ({"touched": {"shared:1a-01"}}, {"shared:1a-01": "3"}, "it may touch an object that several variables hold"),
    ({"deleted": {"x"}}, {}, "it deletes x"),
    ({"source": "%run a.py"}, {}, "it is not plain Python (a magic, a shell command)"),
    ({"source": "!ls"}, {}, "it is not plain Python (a magic, a shell command)"),
    ({"source": "g = subprocess.Popen('x')"}, {}, "it calls subprocess.Popen"),
    ({"source": "g = open('a', 'w')"}, {}, "it opens a file for writing"),
    ({"source": "import numpy as np\ng = iter(np.random.rand(3))"}, {}, "it draws random numbers"),
    ({"source": "import time\ng = iter([time.time()])"}, {}, "it reads the clock"),
    ({"source": "df.to_csv('a'); g = iter([])"}, {}, "it calls df.to_csv"),
    ({"source": "np.x = 1; g = iter([])"}, {}, "it sets np.x"),
    ({"source": "def f(:"}, {}, "it is not plain Python (a magic, a shell command)"),
]


@pytest.mark.parametrize(("facts", "then", "why"), REASONS, ids=[row[2] for row in REASONS])
def test_why_a_statement_is_not_run_again(facts, then, why):
    source = facts.pop("source", "g = iter(x)")
    facts = {"made": {"g": ""}, **facts}
    path = [run(1, "x = [1]", made={"x": "1"}), run(2, source, **facts)]
    rerun, lost = remake(WHY, path, {"x": "1", "g": "", **then})

    assert rerun == {}
    assert lost == {"g": f"a generator cannot be stored; s2 is not run again: {why}; %ctx rerun s2 runs it"}


@pytest.mark.parametrize(
    "source",
    [
        "g = (line for line in open('a.txt'))",
        "g = open('a.txt', 'rb')",
        "import threading\ng = threading.Lock()",
        "import sqlite3\ng = sqlite3.connect('a.db')",
        "g = iter(sorted({3, 1}))",
        "g = zip(x, x)\nprint('made')",
        "class A:\n    def __init__(self):\n        self.x = 1\ng = A()",
        "g.name = 'x'",
    ],
)
def test_what_is_pure_enough(source):
    assert acts_outside(source, own={"g"}) == ""


def test_what_a_called_function_does_counts():
    functions = {"make": "def make():\n    shutil.rmtree('x')\n    return iter([])"}

    assert acts_outside("g = make()", functions) == "it calls shutil.rmtree"
    assert acts_outside("g = make()", {"make": "def make():\n    return iter([1])"}) == ""


def test_one_statement_makes_several_missing_names():
    path = [run(1, "a, b = iter([1]), iter([2])", made={"a": "", "b": ""})]

    assert remake({"a": "w", "b": "w"}, path, {"a": "", "b": ""})[0] == {"a": ("s1",), "b": ("s1",)}


def test_a_name_that_was_made_anew_since_refuses_its_first_maker():
    """Running it again would put the first `b` in the place of the second."""
    path = [
        run(1, "a, b = iter([1]), iter([2])", made={"a": "", "b": ""}),
        run(2, "b = iter([3])", made={"b": ""}),
    ]
    rerun, lost = remake({"a": "w", "b": "w"}, path, {"a": "", "b": ""})

    assert rerun == {"b": ("s2",)}
    assert lost["a"] == "w; s1 is not run again: it also makes b, which was made anew since; %ctx rerun s1 runs it"


def test_what_is_made_from_its_own_former_value_is_lost():
    path = [run(1, "g = [1]", made={"g": "1"}), run(2, "g = iter(g)", reads={"g": "1"}, made={"g": ""})]
    why = "it uses g, which was made anew since; %ctx rerun s2 runs it"

    assert remake(WHY, path, {"g": ""}) == ({}, {"g": f"a generator cannot be stored; s2 is not run again: {why}"})


def test_a_name_that_nothing_made_is_lost():
    assert remake(WHY, [], {"g": ""})[1] == {"g": "a generator cannot be stored; no statement of this timeline made it"}


def test_the_time_comes_from_what_was_recorded():
    """The comparison, statements that run again, those of the replay that run, and the bytes of arrays."""
    path = [run(1, "g = iter([1])", made={"g": ""}, seconds=0.5)]
    draft = Plan(
        "s1.1",
        load=(Load(("x", "y"), 3_000_000_000),),
        statements=(PlannedStep("s2", seconds=2.0), PlannedStep("s3", "skip", "marked", seconds=100.0)),
        seconds=4.0,
    )
    plan = make_plan(draft, missing=WHY, path=path, then={"g": ""})

    assert plan.seconds == 4.0 + 0.5 + 2.0 + 2.0
    assert plan.again == ("s1",)


def test_a_plan_says_all_that_would_happen():
    draft = Plan(
        "s9.1",
        told="s9",
        keep=tuple(f"k{n}" for n in range(12)),
        load=(Load(("x", "view"), 120_000_000),),
        drop=("late",),
        ambient=("random", "working folder"),
        files=(Written("out.csv", "s11", 5), Written("out.csv", "s12", 3_400_000)),
        statements=(
            PlannedStep("s10", seconds=1.5, source="fit(x)\nplot(x)"),
            PlannedStep("s11", "skip", "it is marked so"),
            PlannedStep("s12", "ask", "it writes to a database", expected=True),
        ),
    )
    plan = make_plan(
        draft,
        missing={"g": "a generator", "sock": "a socket"},
        path=[run(4, "g = iter([1])", made={"g": ""}), run(5, "sock = socket.create_connection(a)", made={"sock": ""})],
        then={"g": "", "sock": ""},
    )

    assert plan.text().splitlines() == [
        "to s9: about 1.6 s",
        "keep         12 names (k0, k1, k2, k3, k4, k5, k6, k7, … 4 more)",
        "load         2 names (x, view), 120.0 MB",
        "drop         1 name (late)",
        "make again   g by s4",
        "not restored sock: a socket; s5 is not run again: it calls socket.create_connection; %ctx rerun s5 runs it",
        "put back     random, working folder",
        "file stays   out.csv (written by s12, 3.4 MB)",
        "run          s10, 1.5 s  fit(x) (+1 line)",
        "skip         s11 (it is marked so)",
        "ask          s12 (it writes to a database; expected to differ)",
    ]
    as_json = json.loads(json.dumps(plan.to_json()))
    assert as_json["rerun"] == {"g": ["s4"]}
    assert as_json["again"] == ["s4"]
    assert as_json["nbytes"] == 120_000_000
    assert [step["action"] for step in as_json["statements"]] == ["run", "skip", "ask"]


def test_a_plan_of_thousands_of_statements_lists_the_first_ones_and_counts_the_others():
    """A plan of 12,000 statements had 577 KB."""
    steps = [PlannedStep(f"s{at}", source="x = 1") for at in range(1, 1001)]

    lines = make_plan(Plan("s1.1", statements=tuple(steps))).text().splitlines()

    assert lines[-2:] == ["run          s200  x = 1", "             … 800 more; --json has all"]
    assert len(lines) == 1 + 200 + 1


def test_a_plan_shows_no_size_where_none_was_counted():
    """`load 1 name (records), 0 B` was shown for a million records."""
    plan = make_plan(Plan("s1.1", load=(Load(("records",)),)))

    assert plan.text().splitlines()[1:] == ["load         1 name (records)"]


def test_a_plan_says_which_files_come_back_which_go_and_which_stay():
    draft = Plan(
        "s4.1",
        told="s4",
        files=(Written("log.txt", "s6"), Written("out.csv", "s5", 5)),
        file_changes=(
            FileChange("out.csv", "back", "s4", 3_400_000),
            FileChange("new.csv", "remove", "s6", 20),
            FileChange("big.bin", "stays", "s6", 0, "it has more than 100 bytes"),
            FileChange("data.csv", "back"),
        ),
    )
    plan = make_plan(draft)

    assert plan.text().splitlines()[1:] == [
        "file back    out.csv (as of s4)",
        "file removed new.csv (written by s6)",
        "file stays   big.bin (written by s6; it has more than 100 bytes)",
        "file back    data.csv (as before a cell wrote it)",
        "file stays   log.txt (written by s6)",
    ]
    assert plan.files_that_stay() == "a file that was written since stays as it is: log.txt"
    assert json.loads(json.dumps(plan.to_json()))["file_changes"][1]["action"] == "remove"


def test_a_return_names_the_files_that_stay_in_one_line():
    plan = make_plan(Plan("s1.1", files=tuple(Written(f"{n}.txt", "s2") for n in range(10))))

    assert plan.files_that_stay() == (
        "10 files that were written since stay as they are: "
        "0.txt, 1.txt, 2.txt, 3.txt, 4.txt, 5.txt, 6.txt, 7.txt, … 2 more"
    )
    assert make_plan(Plan("s1.1")).files_that_stay() == ""


def test_a_plan_of_nothing_is_one_line():
    assert Plan(None).text() == "to before all statements: about 1 ms"


def test_text_of_the_user_stays_on_its_line():
    plan = Plan("s1.1", lost={"a\nb": "x\ny"}, files=(Written("c\nd", "s1"),))

    assert len(plan.text().splitlines()) == 3


# -- the law: what is run again brings back what was, and changes nothing else ---------------------


@dataclass
class Model:
    """A toy interpreter. A value is what it was computed from; one that cannot be stored grows in place."""

    env: dict[str, Any]

    def execute(self, operation: tuple[Any, ...]) -> None:
        kind, target, sources = operation
        used = tuple(repr(self.env[name]) for name in sources)
        if kind == "plain":
            self.env[target] = ("plain", used)
        elif kind == "live":
            self.env[target] = ["live", used]
        elif kind == "grow":
            self.env[target].append(used)
        elif kind == "alias":
            self.env[target] = self.env[sources[0]]
        elif kind == "two":
            self.env[target] = ["live", used]
            self.env[target + "2"] = ("plain", used)


NAMES = ["a", "b", "c", "d"]


@st.composite
def programs(draw):
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(["plain", "live", "grow", "alias", "two"]),
                st.sampled_from(NAMES),
                st.lists(st.sampled_from([*NAMES, "a2", "b2"]), max_size=2, unique=True).map(tuple),
                st.booleans(),
            ),
            min_size=1,
            max_size=12,
        )
    )


def live(value: Any) -> bool:
    return isinstance(value, list)


def fingerprint(value: Any) -> str:
    return "" if live(value) else repr(value)


@given(programs())
def test_what_is_run_again_brings_back_what_was_and_changes_nothing_else(program):
    """For random programs with aliases, growing values and statements that may not run again."""
    model = Model({})
    path: list[PastRun] = []
    operations: dict[str, tuple[Any, ...]] = {}
    for n, (kind, target, sources, forbidden) in enumerate(program, 1):
        operation = (kind, target, sources)
        wrong = any(name not in model.env for name in sources) or (kind == "alias" and not sources)
        if wrong or (kind == "grow" and not live(model.env.get(target))):
            continue
        before = {name: fingerprint(model.env[name]) for name in sources}
        ids = {name: id(value) for name, value in model.env.items()}
        grown = {name for name, value in model.env.items() if kind == "grow" and value is model.env[target]}
        if kind == "grow":
            before[target] = ""
        model.execute(operation)
        bound = {name for name in model.env if ids.get(name) != id(model.env[name])}
        made = {name: fingerprint(model.env[name]) for name in bound | grown}
        # An alias of what lives is touched by whatever touches it: the tracker says so.
        touched = {
            name
            for name in model.env
            for one in sources
            if model.env[name] is model.env.get(one) and live(model.env[name])
        }
        path.append(run(n, made=made, bound=bound, reads=before, touched=touched - made.keys(), asks=forbidden))
        operations[f"s{n}"] = operation
    then = {name: fingerprint(value) for name, value in model.env.items()}
    missing = {name: "lives" for name, value in model.env.items() if live(value)}
    rerun, lost = remake(missing, path, then)

    assert rerun.keys() | lost.keys() == missing.keys()
    assert not rerun.keys() & lost.keys()
    again = Model({name: value for name, value in model.env.items() if name not in missing})
    for sid in Plan("x", rerun=rerun).again:
        again.execute(operations[sid])
    for name, value in model.env.items():
        if name in rerun or name not in missing:
            assert repr(again.env[name]) == repr(value)
    shared = lambda env, names: {(a, b) for a in names for b in names if env[a] is env[b]}  # noqa: E731
    assert shared(again.env, rerun) == shared(model.env, rerun)
    assert again.env.keys() - missing.keys() == model.env.keys() - missing.keys()


@given(programs())
def test_a_forbidden_statement_is_never_run_again(program):
    path = [run(n, made={target: ""}, asks=forbidden) for n, (_, target, _, forbidden) in enumerate(program, 1)]
    then = dict.fromkeys({name for one in path for name in one.made}, "")
    rerun, _ = remake(dict.fromkeys(then, "lives"), path, then)

    forbidden = {one.statement_id for one in path if one.asks}
    assert not forbidden & {sid for ids in rerun.values() for sid in ids}


def test_pure_enough_can_be_asked_of_one_statement():
    path = [run(1, "x = 1", made={"x": "1"}), run(2, "g = iter([x])", reads={"x": "1"}, made={"g": ""})]

    assert pure_enough(path[1], path, {"x": "1", "g": ""}, wanted={"g"}) is None
    assert pure_enough(path[1], path, {"x": "2", "g": ""}, wanted={"g"}) == "it uses x, which was changed since"
    assert (
        pure_enough(replace(path[1], execution_id="s9.9"), path, {}, wanted={"g"})
        == "it is not on the way to this state"
    )
