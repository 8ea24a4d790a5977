"""States compared by value in a real kernel: by `%ctx diff`, by a page, and in re-runs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_panel import Front

FRAME = "import pandas as pd\nwine = pd.DataFrame({'ash': [2.0, 2.5, 3.0], 'kind': list('abc')})\nnotes = ['a']"
CHANGED = "wine = wine.assign(ash=[2.0, 2.75, 3.0])\nnotes.append('b')"
USER_CLASS = """
class Loud:
    def __init__(self): self.n = 0
    def __setstate__(self, state):
        globals()['called'] = True
        self.__dict__.update(state)
loud, called = Loud(), False
"""


@pytest.fixture
def front(kernel: Any) -> Front:
    """A kernel with the panel's comm open."""
    return Front(kernel)


def diff(kernel: Any, command: str) -> dict[str, Any]:
    return json.loads(kernel.run(f"%ctx diff {command} --json").stdout)


def test_a_diff_says_what_changed_in_a_frame_and_reads_only(kernel):
    """Both ends are copies or the variables themselves: the objects stay the same ones, and no statement is made."""
    kernel.run(FRAME)
    kernel.run(CHANGED)
    before = kernel.evaluate("(id(wine), id(notes), sorted(k for k in globals() if k[0] != '_'))")

    found = diff(kernel, "1 2")["namespace"]["changed"]

    told = {one["name"]: one["told"] for one in found}
    assert told["wine"] == "DataFrame 3×2: 1 cell differs in ash"
    assert told["notes"] == "list of 1 → 2 items: +1 items"
    assert {one["name"]: one["value"]["known"] for one in found} == {"wine": "complete", "notes": "complete"}
    assert kernel.evaluate("(id(wine), id(notes), sorted(k for k in globals() if k[0] != '_'))") == before
    assert [one["name"] for one in diff(kernel, "1 wine")["namespace"]["changed"]] == ["wine"]
    assert "s3" not in kernel.run("%ctx timeline").data[0]["text/plain"]


def test_a_diff_of_one_name_that_does_not_differ_says_which_do(kernel):
    kernel.run(FRAME)
    kernel.run(CHANGED)

    assert "wine, notes differ" in kernel.run("%ctx diff 1 2 pd").error["evalue"]


def test_a_value_that_cannot_be_loaded_is_unknown_with_the_reason(kernel):
    kernel.run("x = [(i for i in 'ab'), 1]")
    kernel.run("x.append(2)")
    kernel.run("y = 1")

    (one,) = diff(kernel, "1 2")["namespace"]["changed"]

    assert one["value"]["known"] == "unknown"
    assert one["value"]["differs"] is None
    assert "cannot be loaded" in one["value"]["reason"]


def test_a_value_above_the_limit_is_not_loaded_and_says_so(kernel):
    kernel.run("import numpy as np\nbig = np.zeros(6_000_000)")
    kernel.run("big[3] = 1")
    kernel.run("from ctxkernel.kernel.returning.value_differences import StateValues")
    kernel.run("StateValues.between.__kwdefaults__['most'] = 10**7")

    (one,) = diff(kernel, "1 2")["namespace"]["changed"]

    assert "takes 48.0 MB; values of more than 10.0 MB are not loaded" in one["value"]["reason"]
    assert "not compared" not in one["told"]


def test_a_page_gets_the_differences_by_value_while_a_cell_runs(front):
    """On the control channel, from the checkpoints: the variables, which the running cell changes, are not read."""
    front.run(FRAME)
    front.run(CHANGED)
    request = {"id": "1", "old": "s1", "new": None, "names": ["wine"]}
    with front.kernel.running("wine = None"):
        front.client.control_channel.send(front.client.session.msg("ctxkernel_difference_request", request))
        reply = front.client.get_control_msg(timeout=30)["content"]

    assert reply["error"] is None, reply
    (one,) = reply["difference"]["changed"]
    assert one["told"] == "DataFrame 3×2: 1 cell differs in ash"
    assert one["value"]["tables"][1]["rows"] == [["1", "ash", "2.5", "2.75"]]


WRONG: dict[str, dict[str, Any]] = {
    "no place": {"old": None, "new": None},
    "a place that is not there": {"old": "s99", "new": None},
    "names that are none": {"old": "s1", "new": None, "names": [1]},
    "too many names": {"old": "s1", "new": None, "names": ["a"] * 51},
    "names in an object": {"old": "s1", "new": None, "names": {"a": 1}},
    "a name that does not differ": {"old": "s1", "new": None, "names": ["nothing"]},
}


@pytest.mark.parametrize("asked", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_request_of_a_page_gets_a_reason(kernel, asked: dict[str, Any]):
    front = Front(kernel)
    front.run("x = 1")

    answer = front.ask(type="difference", **asked)

    assert answer["difference"] is None
    assert answer["error"]


def test_a_re_run_says_by_how_much_a_frame_differs_and_the_log_keeps_it(kernel):
    kernel.run("import pandas as pd, os, random")
    kernel.run("wine = pd.DataFrame({'ash': [1.0, random.SystemRandom().random()]})")

    ran = kernel.run("%ctx rerun 2")

    text = "\n".join(one.get("text/plain", "") for one in ran.data)
    assert "DataFrame 2×1: 1 cell differs in ash" in text
    assert "<table" in "".join(one.get("text/html", "") for one in ran.data)
    from ctxkernel.store.log.reader import SessionReader

    with SessionReader(kernel.folder / ".ctxkernel" / "note.sqlite") as reader:
        (comparison,) = reader.comparisons()
    detail = next(one.detail for one in comparison.divergences if one.kind == "state")
    assert detail is not None
    assert dict(detail.columns) == {"ash": 1}


def test_a_secret_is_masked_in_each_form_of_a_difference(kernel):
    """By its name as a variable, as a key and as a column, in text, HTML, JSON and for a page."""
    kernel.run("password = 'hunter2-old-one'\nkeys = {'password': 'swordfish-old-one'}")
    kernel.run("password = 'hunter2-new-one'\nkeys = {'password': 'swordfish-new-one'}")

    shown = json.dumps([kernel.run("%ctx diff 1 2").data, kernel.run("%ctx diff 1 2 --json").stdout])
    told = json.dumps(Front(kernel).ask(type="difference", old="s1", new="s2"))

    assert "keys" in shown
    assert "keys" in told
    for secret in ("hunter2-old-one", "hunter2-new-one", "swordfish-old-one", "swordfish-new-one"):
        assert secret not in shown + told


def test_the_tables_of_commands_escape_what_is_in_them_and_link_statements(kernel):
    kernel.run("bad = '<img src=x onerror=alert(1)>'", metadata={"cellId": 'c"1'})
    kernel.run("bad = '<b>' * 9  # <script>")

    html = "".join(
        kernel.run(f"%ctx {sub}").data[0]["text/html"] for sub in ("timeline", "diff 1", "branches", "why s1.1")
    )

    assert "<img" not in html
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert 'data-ctxk-cell="c&quot;1"' in html
