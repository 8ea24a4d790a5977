"""Handles among other widgets: linked, observed, and changed by callbacks, in real kernels with a page's messages."""

from __future__ import annotations

from typing import Any

import pytest
from kernels import RunningKernel
from test_widgets import LOOP, Page, told

IMPORTS = "import ipywidgets as w\nfrom IPython.display import display\n"
LINKED = """h = view('a.txt', tokens=100)
s = w.IntSlider(value=100, min=50, max=900)
link = w.link((s, 'value'), (h.widget, 'tokens'))"""


class Desk(Page):
    """A page whose person moves sliders."""

    def model(self, name: str) -> str:
        """Return the id of the widget in a variable."""
        return str(self.kernel.evaluate(f"{name}.model_id")).strip("'")

    def move(self, model_id: str, **state: object) -> None:
        """Send what a page sends when a person moves a control."""
        data = {"method": "update", "state": state, "buffer_paths": []}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", {"comm_id": model_id, "data": data}))

    def click(self, model_id: str) -> None:
        """Press a button."""
        data = {"method": "custom", "content": {"event": "click"}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", {"comm_id": model_id, "data": data}))

    def value(self, expression: str) -> Any:
        """Return the value of an expression of plain values."""
        return eval(self.kernel.evaluate(expression))

    def new(self, before: int) -> list[tuple[str, str, str]]:
        """Return the statements since there were `before`, but for those that name changed variables."""
        return [one for one in self.statements()[before:] if not one[2].startswith("# outside a cell")]


@pytest.fixture(scope="module")
def desk(shared_kernel: RunningKernel) -> Desk:
    (shared_kernel.folder / "a.txt").write_text("one\ntwo\nthree\n" * 200)
    desk = Desk(shared_kernel)
    desk.run(IMPORTS)
    return desk


def run(desk: Desk, source: str) -> int:
    """Run a cell; returns how many statements there are."""
    reply = desk.kernel.run(source).reply
    assert reply["status"] == "ok", reply
    return len(desk.statements())


def test_a_slider_that_is_dragged_makes_one_statement(desk: Desk):
    """Every position is seen by the handle, and only the last one is in the timeline."""
    count = run(
        desk,
        "h = view('a.txt', tokens=100)\ns = w.IntSlider(value=100, min=50, max=900)\n"
        "seen = []\ns.observe(lambda c: (h.set(tokens=c.new), seen.append((h.tokens, h.rendered.tokens))), 'value')",
    )
    slider = desk.model("s")
    for value in range(110, 410, 10):
        desk.move(slider, value=value)

    assert desk.value("h.tokens") == 400
    assert desk.new(count) == [("human", "meta", "%ctx set h.tokens=400")]
    seen = desk.value("seen")
    assert [asked for asked, _ in seen] == [*range(110, 410, 10)]
    assert all(asked // 2 < used <= asked for asked, used in seen), "a callback reads what it asked for"
    assert desk.value(f"[one.digest['tokens'] for one in {LOOP}.state.handles if one.name == 'h']") == [400]


def test_where_no_cell_follows_the_change_is_made_when_the_person_rests(desk: Desk):
    """The output of the handle and its widget follow without a cell."""
    desk.run(f"{LINKED}\ndisplay(h)")
    slider = desk.model("s")
    desk.move(slider, value=150)
    desk.move(slider, value=300)
    came = desk.messages(lambda m: m["msg_type"] == "update_display_data")
    assert "tokens=300" in came[-1]["content"]["data"]["text/plain"]
    assert desk.statements()[-1] == ("human", "meta", "%ctx set h.tokens=300")


def test_a_link_goes_both_ways_and_a_change_in_a_cell_is_seen_in_that_cell(desk: Desk):
    run(
        desk,
        f"{LINKED}\nseen = []\nh.observe(lambda c: seen.append((c.name, c.new)), ['lod', 'tokens', 'pos', 'running'])",
    )
    run(
        desk,
        "h.set(tokens=300, lod=1)\nnow = s.value, h.widget.tokens, h.widget.lod, h.widget.rendered == h.rendered.text",
    )
    assert desk.value("now") == (300, 300, 1, True)
    run(desk, "h.run(); h.lod = 0; h.pos = 7; h.scroll(3); s.value = 200")
    assert desk.value("(h.tokens, h.pos)") == (200, "10:0")
    assert desk.value("seen") == [
        *[("lod", 1), ("tokens", 300), ("running", True), ("lod", 0), ("pos", 7), ("pos", 10), ("tokens", 200)]
    ]


def test_undo_goto_and_a_rerun_bring_back_the_handle_and_what_is_linked_to_it(desk: Desk):
    count = run(
        desk,
        f"{LINKED}\nseen = []\nh.observe(lambda c: seen.append(c.new), 'tokens')",
    )
    desk.move(desk.model("s"), value=300)
    assert desk.value("(h.tokens, s.value, h.widget.tokens, seen)") == (300, 300, 300, [300])
    name = f"s{count + 1}"
    run(desk, f"%ctx goto s{count}")
    assert desk.value("(h.tokens, s.value, h.widget.tokens, seen)") == (100, 100, 100, []), "no observer runs"
    run(desk, "%ctx undo")
    assert desk.value("(h.tokens, s.value, h.widget.tokens, seen)") == (300, 300, 300, [300])
    before = len(desk.statements())
    assert "1 as before, 0 different" in str(desk.kernel.run(f"%ctx rerun {name}").outputs)
    assert desk.value("(h.tokens, s.value)") == (300, 300)
    assert [one[2] for one in desk.new(before)] == [f"%ctx rerun {name}"], "nothing of it is a callback's"


@pytest.mark.parametrize(
    ("made", "moves", "lines"),
    [
        (
            "c = w.Dropdown(options=[0, 1, 2, 3])\nw.link((c, 'value'), (h.widget, 'lod'))",
            {"index": 2},
            ["set h.lod=2"],
        ),
        ("c = w.IntSlider()\nw.dlink((c, 'value'), (h.widget, 'pos'))", {"value": 40}, ["set h.pos=40:0"]),
        ("c = w.Text('3')\nw.link((c, 'value'), (h.widget, 'pos'))", {"value": "/two/"}, "h.set(pos='/two/');"),
        ("c = w.Checkbox()\nw.link((c, 'value'), (h.widget, 'running'))", {"value": True}, ["set h.mode=running"]),
        ("c = w.IntSlider()\nc.observe(lambda _: h.refresh(), 'value')", {"value": 2}, ["refresh h"]),
        ("c = w.IntSlider()\nc.observe(lambda _: h.scroll(5).run('Async'), 'value')", {"value": 2}, None),
    ],
)
def test_each_control_sets_what_it_is_linked_to(desk: Desk, made: str, moves: dict[str, Any], lines: Any):
    count = run(desk, f"h = view('a.txt')\n{made}")
    desk.move(desk.model("c"), **moves)
    desk.kernel.evaluate("0")
    lines = ["set h.pos=5:0 h.freq=Async h.mode=running"] if lines is None else lines
    source = lines if isinstance(lines, str) else "\n".join(f"%ctx {line}" for line in lines)
    assert desk.new(count) == [("human", "meta", source)]
    digest = desk.value("h.digest()")
    outputs = str(desk.kernel.run(f"%ctx rerun s{len(desk.statements())}").outputs)
    assert "1 as before, 0 different" in outputs
    assert desk.value("h.digest()") == digest


def test_what_is_back_as_it_was_when_the_person_rests_is_no_statement(desk: Desk):
    count = run(desk, LINKED)
    slider = desk.model("s")
    for value in (300, 200, 100):
        desk.move(slider, value=value)
    assert desk.value("h.tokens") == 100
    assert desk.new(count) == []


def test_interact_and_interactive_output_show_the_handle_as_it_is_asked_for(desk: Desk):
    """`interact` prints what the function reads; the widget is the argument of another function."""
    run(
        desk,
        "h = view('a.txt', tokens=100)\nread = []\n"
        "i = w.interactive(lambda t: read.append((h.set(tokens=t).tokens, h.rendered.tokens)), t=(100, 900, 100))\n"
        "o = w.interactive_output(lambda text: read.append(len(text)), {'text': h})\n"
        "box = w.VBox([i, o, h.widget]); tab = w.Tab([h.widget]); display(i, box, tab)\nread.clear()",
    )
    desk.move(desk.model("i.children[0]"), value=200)
    last = desk.value("read")
    assert last == [desk.value("len(h.rendered.text)"), (200, desk.value("h.rendered.tokens"))]


def test_two_handles_that_are_linked_and_their_group_change_in_one_statement(desk: Desk):
    count = run(
        desk,
        "a = view('a.txt', tokens=100); b = view('a.txt', tokens=100); g = group(a, tokens=300)\n"
        "w.link((a.widget, 'tokens'), (b.widget, 'tokens'))\nn = note('old')\nc = w.Button()\n"
        "def pressed(_):\n    a.tokens = 200; g.add(b); n.text = 'new'; n.pin('why'); g.lod = 1\nc.on_click(pressed)",
    )
    desk.click(desk.model("c"))
    assert desk.value(
        "(a.tokens, b.tokens, [m.obj_id for m in g.members] == [a.obj_id, b.obj_id], n.text, n.pinned)"
    ) == (*(200, 200, True, "new", True),)
    [(_, _, source)] = desk.new(count)
    assert sorted(source.splitlines()) == [
        *("%ctx set a.tokens=200", "%ctx set b.tokens=200", "%ctx set g.lod=1"),
        *("g.add(b);", "n.pin('why')", "n.set(text='new')"),
    ]
    last = len(desk.statements())
    run(desk, f"%ctx goto s{count}")
    assert desk.value("(a.tokens, b.tokens, len(g.members), n.text, n.pinned)") == (100, 100, 1, "old", False)
    assert "1 as before, 0 different" in str(desk.kernel.run(f"%ctx rerun s{last}").outputs)
    assert desk.value("(a.tokens, b.tokens, len(g.members), n.text, n.pinned)") == (200, 200, 2, "new", True)


def test_a_handle_without_a_name_is_changed_by_its_id(desk: Desk):
    count = run(
        desk,
        "box = w.VBox([view('a.txt', tokens=100).widget])\ns = w.IntSlider(value=100, max=900)\n"
        "w.link((s, 'value'), (box.children[0], 'tokens'))",
    )
    desk.move(desk.model("s"), value=300)
    name = desk.value("box.children[0].facts['obj_id']")
    assert desk.new(count) == [("human", "meta", f"%ctx set {name}.tokens=300")]


def test_an_exception_in_a_callback_is_shown_and_changes_nothing(desk: Desk):
    """What was asked before it in the same callback is made; a refused value is not, and the widget shows that."""
    count = run(
        desk,
        "h = view('a.txt', tokens=100)\ns = w.IntSlider()\n"
        "def f(c):\n    h.tokens = 150\n    h.set(lod=1, tokens=-3)\ns.observe(f, 'value')",
    )
    desk.move(desk.model("s"), value=1)
    came = desk.messages(lambda m: m["msg_type"] in ("error", "stream"))
    assert "tokens=-3 is not a budget" in str(came[-1]["content"])
    assert desk.value("(h.tokens, h.lod)") == (150, 0)
    assert [one[2] for one in desk.new(count)] == ["%ctx set h.tokens=150"]
    for line, told_of in [("h.widget.tokens = 0", "tokens=0 is not a budget"), ("h.widget.lod = 7", "lod=7")]:
        assert told_of in desk.kernel.run(line).reply["evalue"]
    assert desk.value("(h.tokens, h.widget.tokens, h.widget.lod)") == (150, 150, 0)
    assert "read" in desk.kernel.run("h.widget.rendered = 'forged'").reply["evalue"]


def test_what_a_page_sets_that_is_no_policy_goes_back_to_the_page(desk: Desk):
    """Also what `jslink` sets: it is a message of the page, and untrusted."""
    count = run(
        desk,
        "h = view('a.txt', tokens=100)\nv = h.widget\nl = w.jslink((w.IntSlider(), 'value'), (h.widget, 'tokens'))",
    )
    widget = desk.model("v")
    bad: list[dict[str, object]] = [
        {"tokens": 0},
        {"tokens": "1; x"},
        {"lod": 9},
        {"pos": []},
        {"pos": "x" * 5000},
        {"running": "yes"},
    ]
    for state in bad:
        desk.move(widget, **state)
    desk.move(widget, rendered="forged", facts={}, _esm="alert(1)", value="forged", own_id="x")
    assert desk.value(
        "v.rendered == v.value == h.rendered.text and v.facts['obj_id'] == h.obj_id and 'alert' not in v._esm"
    )
    assert desk.new(count) == []
    desk.move(widget, tokens=300, lod=1)
    assert desk.value("(h.tokens, h.lod)") == (300, 1)
    assert [one[2] for one in desk.new(count)] == ["%ctx set h.lod=1 h.tokens=300"]


def test_a_callback_while_a_cell_runs_changes_the_handle_in_that_cell(desk: Desk):
    """A task that goes on between cells is a callback as any other."""
    count = run(
        desk,
        "import asyncio\nh = view('a.txt', tokens=100)\n"
        "async def go(wait):\n    h.tokens = 200\n    await wait\n    h.tokens = 300\n    done.set()\n"
        "gate, done = asyncio.Event(), asyncio.Event()\ntask = asyncio.create_task(go(gate.wait()))",
    )
    run(desk, "gate.set()\nawait done.wait()\nseen = h.tokens")
    assert desk.value("seen") == 300
    model_id = str(desk.kernel.evaluate("h.widget.model_id")).strip("'")
    run(desk, "h.tokens = 100\ntask = asyncio.create_task(go(asyncio.sleep(0.5)))")
    came = desk.messages(lambda m: 300 in [state.get("tokens") for state in told([m], model_id)])
    assert came
    assert desk.value("h.tokens") == 300
    assert [source for _, _, source in desk.new(count) if source.startswith("%ctx")] == [
        *("%ctx set h.tokens=200", "%ctx set h.tokens=300"),
    ]


def test_a_handle_that_is_not_on_this_branch_is_named_and_one_whose_widget_is_closed_gets_another(desk: Desk):
    """A return takes the link away that was made later; the page's own link of the widget is still there."""
    count = run(desk, "s = w.IntSlider(value=1, max=900)")
    run(desk, "late = view('a.txt', tokens=100)\nkeep = late.widget\nw.link((s, 'value'), (late.widget, 'tokens'))")
    widget = desk.model("keep")
    run(desk, f"%ctx goto s{count}")
    before = len(desk.statements())
    desk.move(widget, tokens=500)
    told_of = desk.messages(lambda m: m["msg_type"] in ("error", "stream"))[-1]
    assert "is not on this branch" in str(told_of["content"])
    assert desk.new(before) == []
    run(desk, "%ctx undo")
    assert desk.value("(late.tokens, late.widget.tokens, late.widget is keep)") == (1, 1, True)
    run(desk, "keep.close()\nlate.tokens = 200")
    assert desk.value("(late.widget is keep, late.widget.tokens)") == (False, 200)


@pytest.mark.parametrize(
    "holds",
    [
        *("w.VBox([h])", "w.HBox([s, h])", "w.Tab([h])", "w.Accordion([h])", "w.GridBox([h])", "w.Stack([h])"),
        *("w.AppLayout(center=h)", "w.TwoByTwoLayout(top_left=h)", "w.VBox((w.HBox([h]),)).children[0]"),
    ],
)
def test_a_container_takes_a_handle_for_its_widget(desk: Desk, holds: str):
    desk.run("h = view('a.txt')\ns = w.IntSlider()")
    assert desk.value(f"h.widget in {holds}.children")


def test_a_grid_takes_a_handle_for_its_widget(desk: Desk):
    run(desk, "h = view('a.txt')\ng = w.GridspecLayout(1, 2)\ng[0, 1] = h")
    assert desk.value("h.widget in g.children and h.widget.layout.grid_area == 'widget001'")


@pytest.mark.parametrize("link", ["w.link", "w.jslink", "w.dlink", "w.jsdlink"])
def test_a_link_takes_a_handle_for_its_widget(desk: Desk, link: str):
    run(
        desk,
        "h = view('a.txt', tokens=200)\ns = w.IntSlider(300, min=50, max=900)\n"
        f"k = {link}((s, 'value'), (h, 'tokens'))",
    )
    assert desk.value("k.target[0] is h.widget")
    if link in ("w.link", "w.dlink"):
        run(desk, "s.value = 400")
        assert desk.value("h.tokens") == 400
    assert desk.value("type(s.layout) is w.Layout and h is not h.widget")


def test_where_only_a_widget_will_do_the_error_names_it(desk: Desk):
    desk.run("h = view('a.txt')\ns = w.IntSlider()")
    for line in ("w.VBox([h, 3])", "w.link((s, 'value'), (h, 'token'))", "s.layout = h"):
        assert desk.kernel.run(line).status == "error", line
    ran = desk.kernel.run("s.style = h")
    assert ran.status == "error" and "h.widget" in ran.stderr


def test_without_ipywidgets_the_error_says_what_to_install(kernel: RunningKernel):
    (kernel.folder / "a.txt").write_text("text\n")
    kernel.run("import sys; sys.modules['anywidget'] = None\nh = view('a.txt')")
    reply = kernel.run("h.widget").reply
    assert "pip install ipywidgets anywidget" in reply["evalue"]
    assert kernel.run("h.lod = 1").status == "ok"
    assert told([], "") == []
