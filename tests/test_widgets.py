"""Handles as live widgets, over the wire: what is shown, what a gesture does, what is left of a handle that goes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from kernels import RunningKernel

from ctxkernel.core.errors import BadCommand
from ctxkernel.kernel.display.handle_display import GONE, HANDLE_MIME, WIDGET_MIME
from ctxkernel.kernel.display.handle_widget import FOLDER, STYLES, widget_module
from ctxkernel.kernel.display.handle_widgets import gesture_lines

LOOP = "get_ipython().kernel.ctx.loop"
TEXTS = ["text/html", "text/plain"]


class Page:
    """A front end that has widgets, and somebody who sits there."""

    def __init__(self, kernel: RunningKernel) -> None:
        self.kernel = kernel
        self.client = kernel.client

    def messages(self, until: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Return what comes, up to the message that is waited for."""
        came: list[dict[str, Any]] = []
        end = time.monotonic() + 30
        while time.monotonic() < end:
            came.append(self.client.get_iopub_msg(timeout=30))
            if until(came[-1]):
                return came
        raise TimeoutError(str(came[-3:]))

    def run(self, source: str, *, attended: bool = True) -> list[dict[str, Any]]:
        """Run a cell, and return what came until the kernel was idle."""
        msg_id = self.client.execute(source, allow_stdin=attended)
        return self.messages(lambda m: _idle(m) and m["parent_header"].get("msg_id") == msg_id)

    def show(self, source: str) -> str:
        """Run a cell that shows a handle, and return the id of its widget."""
        return shown(self.run(source))[0][HANDLE_MIME]["model_id"]

    def send(self, model_id: str, change: object, key: str = "k") -> None:
        """Send what a person does to a widget."""
        content = {"type": "gesture", "id": key, "change": change}
        data = {"method": "custom", "content": content}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", {"comm_id": model_id, "data": data}))

    def done(self, key: str = "k") -> list[dict[str, Any]]:
        """Return what comes until a gesture is answered; the last is the answer."""
        return self.messages(lambda m: _custom(m).get("type") == "done" and _custom(m)["id"] == key)

    def gesture(self, model_id: str, change: object) -> str:
        """Do something to a widget; returns why it could not be done, or nothing."""
        self.send(model_id, change)
        return _custom(self.done()[-1])["error"]

    def statements(self) -> list[tuple[str, str, str]]:
        """Author, kind and source of all statements."""
        told = self.kernel.evaluate(f"[(s.author, s.kind, s.source) for s in {LOOP}.log]")
        return eval(told)  # ours, of three strings each


def _idle(message: dict[str, Any]) -> bool:
    return message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"


def _custom(message: dict[str, Any]) -> dict[str, Any]:
    return message["content"].get("data", {}).get("content", {}) if message["msg_type"] == "comm_msg" else {}


def shown(came: list[dict[str, Any]], kind: str = "display_data") -> list[dict[str, Any]]:
    """Return the bundles of displays among what came."""
    return [m["content"]["data"] for m in came if m["msg_type"] == kind]


def told(came: list[dict[str, Any]], model_id: str) -> list[dict[str, Any]]:
    """Return what a widget was told of its handle."""
    data = [m["content"]["data"] for m in came if m["content"].get("comm_id") == model_id]
    return [one["state"] for one in data if "state" in one]


def widgets_made(came: list[dict[str, Any]]) -> list[str]:
    """Return the ids of the widgets that were made."""
    opened = [m["content"] for m in came if m["msg_type"] == "comm_open"]
    return [one["comm_id"] for one in opened if "_esm" in one["data"]["state"]]


@pytest.fixture(scope="module")
def page(shared_kernel: RunningKernel) -> Page:
    (shared_kernel.folder / "a.txt").write_text("one\ntwo\nthree\n" * 50)
    shared_kernel.run("v = view('a.txt')")
    return Page(shared_kernel)


# -- what is shown ---------------------------------------------------------------------------------


def test_a_handle_is_text_where_nobody_looks_and_has_one_widget_for_all_its_places_where_somebody_does(page: Page):
    """A run without a front end pays for no widget; text and HTML are in every output."""
    alone = page.run("v", attended=False)
    assert [sorted(bundle) for bundle in shown(alone)] == [TEXTS]
    assert not [m for m in alone if m["msg_type"].startswith("comm")]
    assert "'anywidget'" not in page.kernel.evaluate("sorted(m for m in __import__('sys').modules if 'widget' in m)")

    first, second = page.run("v"), page.run("display(v)\nv")

    [model_id] = widgets_made(first)
    assert widgets_made(second) == []
    bundles = [*shown(first), *shown(second)]
    assert [sorted(bundle) for bundle in bundles] == [sorted([HANDLE_MIME, WIDGET_MIME, *TEXTS])] * 3
    assert {bundle[HANDLE_MIME]["model_id"] for bundle in bundles} == {model_id}
    assert {bundle[WIDGET_MIME]["model_id"] for bundle in bundles} == {model_id}
    [state] = told([m for m in first if m["msg_type"] == "comm_open"], model_id)
    assert state["rendered"].startswith("a.txt · 150 lines")
    assert len(str(state)) < 36_000, "where widgets are saved, each is in the notebook"


def test_an_image_is_seen_in_the_output_as_the_model_is_shown_it(page: Page):
    page.run("import PIL.Image; PIL.Image.new('RGB', (80, 60)).save('a.png'); p = view('a.png')")
    came = page.run("p")

    [bundle] = shown(came)
    [model_id] = widgets_made(came)
    [state] = told([m for m in came if m["msg_type"] == "comm_open"], model_id)
    picture = state["facts"]["picture"]
    assert picture["media_type"] == "image/jpeg"
    assert f'src="data:image/jpeg;base64,{picture["data"]}"' in bundle["text/html"]
    assert "data:" not in bundle["text/plain"]


def test_to_show_a_handle_changes_nothing(page: Page):
    """No node, no variable; and what is kept of the cell is the same with a widget and without."""
    page.run("w = view('a.txt', lod=1)")
    kept = []
    for attended in (False, True):
        before = page.kernel.evaluate(f"{LOOP}.graph.memento()")
        page.run("w", attended=attended)
        assert page.kernel.evaluate(f"{LOOP}.graph.memento()") == before
        last = f"{LOOP}.log.path()[-1][1]"
        assert page.kernel.evaluate(f"(bool({last}.state_diff), {last}.events[0].__class__.__name__)") == (
            "(False, 'StatementExecuted')"
        )
        kept.append(page.kernel.evaluate(f"[(a.mime, a.hash) for a in {last}.artifacts]"))
    assert kept[0] == kept[1]
    assert "text/plain" in kept[0]
    assert "vnd" not in kept[0]


def test_only_what_changed_is_told_and_the_text_stays_current(page: Page):
    """A tick that changes a handle updates its widget and its text, once; an idle one sends nothing."""
    model_id = page.show("log = view('a.txt', tokens=90).run()\nlog")
    page.run("0")  # the name that the cell gave it is told at its end

    idle = page.run("0")
    changed = page.run("n = open('a.txt', 'a').write('four\\n')")
    after = page.run("0")

    assert not [m for m in idle if m["msg_type"] in ("comm_msg", "update_display_data")]
    updates = told(changed, model_id)
    assert [update["facts"]["changed"] for update in updates] == [True]
    assert "+four" in updates[0]["facts"]["change"]
    assert "of 151" in updates[0]["rendered"]
    assert ["of 151" in bundle["text/plain"] for bundle in shown(changed, "update_display_data")] == [True]
    # Only the mark goes.
    marks = told(after, model_id)
    assert [(list(mark), mark["facts"]["changed"]) for mark in marks] == [(["facts"], False)]
    page.run("del log")


def test_of_a_handle_that_was_deleted_the_text_stays_and_no_controls(page: Page):
    model_id = page.show("lost = view('a.txt')\ndisplay(lost)")
    came = page.run("del lost")
    [bundle] = shown(came, "update_display_data")
    assert sorted(bundle) == TEXTS
    assert bundle["text/plain"].startswith("<view ")
    assert bundle["text/plain"].endswith(GONE)
    assert GONE in bundle["text/html"]
    assert model_id in [m["content"]["comm_id"] for m in came if m["msg_type"] == "comm_close"]


def test_a_handle_that_a_return_sets_aside_has_no_controls_until_it_is_back(kernel: RunningKernel):
    """What is done to it would stand on a branch on which it was never made."""
    (kernel.folder / "a.txt").write_text("text\n")
    page = Page(kernel)
    page.run("x = 1")
    page.run("late = view('a.txt')\nkeep = [late]\nlost = view('a.txt')")
    first, second = shown(page.run("display(lost)\nlate"))
    model_id = second[HANDLE_MIME]["model_id"]
    came = page.run("%ctx goto s1")
    assert [state["facts"]["aside"] for state in told(came, model_id)] == [True]
    [text] = [one["text/plain"] for one in shown(came, "update_display_data") if HANDLE_MIME not in one]
    assert text.endswith(GONE), "nobody holds it"
    assert "not on this branch" in page.gesture(model_id, {"lod": 1})
    came = page.run("%ctx goto s2")
    assert [state["facts"]["aside"] for state in told(came, model_id)] == [False]
    [back] = [one for one in shown(came, "update_display_data") if one["text/plain"].startswith("<view v2")]
    assert back[HANDLE_MIME] != first[HANDLE_MIME]
    assert page.gesture(back[HANDLE_MIME]["model_id"], {"lod": 1}) == ""
    assert page.gesture(model_id, {"lod": 1}) == ""


def test_a_table_stays_one_after_a_return(kernel: RunningKernel):
    """The text of then is restored, and with it which lines are rows of a table."""
    page = Page(kernel)
    page.run("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': ['x y', 'z']})\nt = view(df)")
    [before] = shown(page.run("t"))
    page.run("t.lod = 2")
    [back] = [one for one in shown(page.run("%ctx goto s2"), "update_display_data") if HANDLE_MIME in one]
    assert back["text/html"] == before["text/html"]
    assert ">x y</td>" in back["text/html"]


# -- gestures --------------------------------------------------------------------------------------


def test_a_gesture_is_a_meta_statement_and_its_re_run_does_the_same(kernel: RunningKernel):
    """It counts as no prompt, stands in the timeline with the name that a person uses, and replays."""
    (kernel.folder / "a.txt").write_text("one\ntwo\nthree\n" * 50)
    page = Page(kernel)
    model_id = page.show("v = view('a.txt')\nv")
    count = kernel.evaluate("get_ipython().execution_count")

    refusals = [page.gesture(model_id, change) for change in ({"lod": 1, "tokens": 60}, {"mode": "running"})]
    refusals.append(page.gesture(model_id, {"tokens": None, "refresh": True}))

    assert refusals == ["", "", ""]
    assert page.statements()[1:] == [
        ("panel", "meta", "%ctx set v.lod=1 v.tokens=60"),
        ("panel", "meta", "%ctx set v.mode=running"),
        ("panel", "meta", "%ctx set v.tokens=All\n%ctx refresh v"),
    ]
    assert kernel.evaluate("(v.lod, v.tokens, v.mode)") == "(1, All, 'running')"
    assert kernel.evaluate("get_ipython().execution_count") == count
    outputs = str(kernel.run("%ctx rerun s2..4").outputs)
    assert "3 as before, 0 different" in outputs, outputs


def test_what_a_page_must_not_ask_for_is_refused_in_one_line_and_leaves_no_statement(page: Page):
    """A page can send anything. What is no policy is refused; a policy that a handle refuses is a failed statement."""
    model_id = page.show("v")
    before = page.statements()
    bad = [None, [], "x", {}, {"lod": "1"}, {"lod": True}, {"tokens": "All); x = 1 #"}, {"mode": "x"}, {"pos": "1"}]
    bad += [{"lod": None}, {"lod": 1.5}, {"refresh": False}]
    for change in bad:
        assert re.fullmatch(r"[^\n]+", page.gesture(model_id, change)), change
    assert page.statements() == before
    assert "lod=9 is not a level of detail" in page.gesture(model_id, {"lod": 9})
    assert page.statements()[len(before) :] == [("panel", "meta", "%ctx set v.lod=9")]
    # What a page says of the widget's own state is nothing to us.
    data = {"method": "update", "state": {"rendered": "forged"}, "buffer_paths": []}
    page.client.shell_channel.send(page.client.session.msg("comm_msg", {"comm_id": model_id, "data": data}))
    shows = "get_ipython().kernel.ctx.displays._shown[v.obj_id].widget.rendered == v.rendered.text"
    assert page.kernel.evaluate(shows) == "True"


def test_a_gesture_waits_for_the_running_cell_and_the_handles_name_is_its_own(page: Page):
    """Also where the cell awaits, and messages of widgets come through. A name that means two handles is told."""
    model_id = page.show("slow = view('a.txt')\nslow")
    page.client.execute("import asyncio; await asyncio.sleep(0.5); seen = slow.lod", allow_stdin=True)
    page.send(model_id, {"lod": 2})
    assert _custom(page.done()[-1])["error"] == ""
    assert page.kernel.evaluate("(seen, slow.lod)") == "(0, 2)"
    assert [source for _, _, source in page.statements()[-2:]][-1] == "%ctx set slow.lod=2"
    nameless = page.show("view('a.txt')")
    own_id = page.kernel.evaluate("_.obj_id").strip("'")
    page.run(f"{own_id} = view('a.txt')")
    assert f"another handle has the name {own_id}" in page.gesture(nameless, {"lod": 1})
    page.run(f"del {own_id}")
    assert page.gesture(nameless, {"lod": 1}) == ""
    assert page.statements()[-1][2] == f"%ctx set {own_id}.lod=1"


COMMANDS = [
    ("%ctx set", "give at least one value"),
    ("%ctx set v", "write HANDLE.NAME=VALUE"),
    ("%ctx set v.lod", "write HANDLE.NAME=VALUE"),
    ("%ctx set nobody.lod=1", "no handle 'nobody'"),
    ("%ctx set v.lod=x", "is not a level of detail"),
    ("%ctx set v.depth=1", "no policy depth"),
    ("%ctx set v.lod=1 nobody.lod=1", "no handle 'nobody'"),
    ("%ctx refresh", "which handle?"),
    ("%ctx refresh nobody", "no handle 'nobody'"),
]


@pytest.mark.parametrize(("line", "why"), COMMANDS)
def test_a_wrong_line_is_refused_and_changes_nothing(page: Page, line: str, why: str):
    before = page.kernel.evaluate("v.digest()")
    reply = page.kernel.run(line).reply
    assert why in reply["evalue"]
    assert "\n" not in reply["evalue"]
    assert page.kernel.evaluate("v.digest()") == before


# -- parts -----------------------------------------------------------------------------------------


def test_the_widgets_module_stands_alone_and_sets_no_html():
    """A widget's module can import nothing beside it, and every text is untrusted."""
    module = widget_module()
    assert not re.search(r"^(import|export (?!default))|^\s*//", module, re.MULTILINE)
    assert module.count("export default") == 1
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\b|srcdoc"
    assert not re.search(ways, module)
    assert len(module) + sum(len((FOLDER / name).read_text(encoding="utf-8")) for name in STYLES) < 31_000


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"lod": 3}, ["%ctx set h.lod=3"]),
        ({"tokens": None}, ["%ctx set h.tokens=All"]),
        ({"mode": "paused", "tokens": 50}, ["%ctx set h.tokens=50 h.mode=paused"]),
        ({"refresh": True}, ["%ctx refresh h"]),
        ({"refresh": 1, "lod": 0}, ["%ctx set h.lod=0", "%ctx refresh h"]),
    ],
)
def test_a_gesture_is_a_line_that_a_person_could_type(change: dict[str, Any], lines: list[str]):
    assert gesture_lines(change)("h") == lines


@pytest.mark.parametrize("change", [{}, {"lod": []}, {"lod": 10**400, "x": 1}, {"refresh": 0}, 3, {"tokens": 1.0}])
def test_anything_else_is_no_gesture(change: object):
    with pytest.raises(BadCommand):
        gesture_lines(change)
