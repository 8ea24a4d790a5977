"""The panel in the kernel, over the wire: what rows, plans and moves are told (`docs/panel-protocol.md`)."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from mark_tables import MarkReader, marks_of
from test_projection_history import after

from ctxkernel.core.settings import Settings
from ctxkernel.history.events import Redaction, Withdrawal
from ctxkernel.kernel.display.history_rows import HistoryRows
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.tokens import count_tokens

GESTURE = {"ctxkernel": {"kind": "meta"}}


class Front:
    """A front end that speaks with a kernel and keeps what it is told."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.client = kernel.client
        self._send("comm_open", {"comm_id": "p", "target_name": "ctxkernel.panel", "data": {"protocol": 1}})
        self.snapshot = self._told(lambda data: data["type"] == "snapshot")

    def _send(self, kind: str, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> str:
        message = self.client.session.msg(kind, content, metadata=metadata or {})
        self.client.shell_channel.send(message)
        return message["header"]["msg_id"]

    def _told(self, wanted: Any, seconds: float = 30) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            message = self.client.get_iopub_msg(timeout=seconds)
            if message["msg_type"] == "comm_msg" and wanted(message["content"]["data"]):
                return message["content"]["data"]
        raise TimeoutError

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a message over the comm and return its answer."""
        self._send("comm_msg", {"comm_id": "p", "data": {"id": "q", **request}})
        return self._told(lambda data: data["type"] == request["type"])

    def run(self, source: str, *, gesture: bool = False, rerun: bool = False, cell_id: str = "") -> dict[str, Any]:
        """Run a cell or a gesture and return its turn."""
        said = GESTURE if gesture else {"ctxkernel": {"rerun": True}} if rerun else {}
        content = {"code": source, "silent": False, "store_history": not gesture, "stop_on_error": False}
        asked = {"user_expressions": {}, "allow_stdin": False}
        self._send("execute_request", {**content, **asked}, {**said, "cellId": cell_id} if cell_id else said)
        return self._told(lambda data: data["type"] == "turn")

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows of a fresh snapshot, by execution."""
        return {row["execution_id"]: row for row in self.ask(type="snapshot")["statements"]}


@pytest.fixture
def front(kernel: Any) -> Front:
    return Front(kernel)


def test_a_row_says_where_it_hangs_and_what_is_kept_of_the_state_after_it(front):
    """Parent, checkpoint and what of it is missing; the head and the storage come with each turn."""
    front.run("x = 1")
    told = front.run("used = (i for i in range(9)); _ = next(used)")
    row = told["statement"]
    assert (row["execution_id"], row["parent_execution_id"]) == ("s2.1", "s1.1")
    assert told["head"] == "s2.1"
    assert row["checkpoint"]["state"] in ("durable", "writing")
    assert "used" in row["checkpoint"]["missing"]
    assert row["comparison"] is None
    assert row["moved"] is None
    assert row["marks"] == {"differs": False, "asks": False}
    assert set(told["storage"]) == {"bytes", "quota", "pending_bytes", "pending_s", "folder", "faults"}
    assert told["storage"]["bytes"] > 0


def test_a_return_is_told_and_a_snapshot_has_the_tree_with_its_branches(front):
    """The statement that moved HEAD says so; a snapshot tells the same, and has the shape of the whole tree."""
    front.run("x = 1")
    front.run("x = 2")
    told = front.run("%ctx goto s1", gesture=True)
    assert told["statement"]["moved"] == {"to": "s1.1", "reason": "goto"}
    assert told["statement"]["author"] == "panel"
    assert told["head"] == "s1.1"
    front.run("y = x")
    told = front.run("%ctx goto s2", gesture=True)
    assert "branches" not in told, "the page has the tree: a turn is as long as what it tells"
    again = front.ask(type="snapshot")
    assert again["head"] == "s2.1"
    assert again["shape"]["spans"] == [
        {"first": "s1.1", "count": 3, "parent": None},
        {"first": "s4.1", "count": 2, "parent": "s1.1"},
    ]
    assert again["shape"]["moved"] == [2, 4]
    assert [row["execution_id"] for row in again["statements"] if row["moved"]] == ["s3.1", "s5.1"]


def test_a_plan_reads_and_changes_nothing(front):
    """It leaves no statement; what cannot be done is told in words that help."""
    front.run("x = [1]")
    front.run("x.append(2)")
    plan = front.ask(type="plan", action="goto", target="s1")["plan"]
    assert [name for unit in plan["load"] for name in unit["names"]] == ["x"]
    assert plan["lost"] == {}
    assert front.ask(type="plan", action="goto", target="s1", before=True)["plan"]["drop"] == ["x"]
    assert [
        step["statement_id"] for step in front.ask(type="plan", action="rerun", target="s2")["plan"]["statements"]
    ] == ["s2"]
    assert front.ask(type="plan", action="undo", target="1")["plan"]["target"] == "s1.1"
    for odd in ({"action": "goto", "target": "s99"}, {"action": "burn", "target": "s1"}, {"action": "goto"}, {}):
        answer = front.ask(type="plan", **odd)
        assert answer["plan"] is None
        assert answer["error"]
    assert list(front.rows()) == ["s1.1", "s2.1"]


def test_a_plan_can_be_had_while_a_cell_runs(front):
    """On the control channel, as a snapshot can."""
    front.run("x = 1")
    front.run("x = 2")
    with front.kernel.running("x = 3"):
        message = front.client.session.msg("ctxkernel_plan_request", {"id": "q", "action": "goto", "target": "s1"})
        front.client.control_channel.send(message)
        reply = front.client.get_control_msg(timeout=30)
    assert (reply["msg_type"], reply["content"]["id"]) == ("ctxkernel_plan_reply", "q")
    assert reply["content"]["plan"]["target"] == "s1.1"


def test_names_and_marks_are_told_for_rows_that_are_old(front):
    """A turn tells which rows say otherwise now; a snapshot has them in the rows."""
    front.run("x = 1", cell_id="a")
    front.run("x = 2", cell_id="b")
    told = front.run("%ctx mark s1 differs", gesture=True)
    assert told["rows"] == [
        {"execution_id": "s1.1", "names": [], "marks": {"differs": True, "asks": False}, "ask": None}
    ]
    told = front.run("%ctx checkpoint good", gesture=True)
    (row,) = told["rows"]
    assert row["names"] == ["good"]
    assert "rows" not in front.run("x = 3")
    told = front.run("%ctx mark s1 none", gesture=True)
    assert told["rows"] == [
        {"execution_id": "s1.1", "names": [], "marks": {"differs": False, "asks": False}, "ask": None}
    ]
    assert front.rows()[row["execution_id"]]["names"] == ["good"]


def test_one_undo_takes_a_re_run_of_the_notebook_s_cells_back(front):
    """Also where one of them is new, and what was run by hand afterwards is a step of its own."""
    front.run("x = 1", cell_id="a")
    front.run("y = x", cell_id="b")
    front.run("%ctx goto s1 --before", gesture=True)
    front.run("x = 2", cell_id="a", rerun=True)
    front.run("new = x", cell_id="c", rerun=True)
    front.run("y = x", cell_id="b", rerun=True)
    front.run("z = 1", cell_id="d")

    assert front.run("%ctx undo", gesture=True)["head"] == "s2.2"
    assert front.run("%ctx undo", gesture=True)["head"] == "s2.1"


def test_a_re_run_tells_what_came_out_differently(front):
    """In the row of the new run, with what it is compared with."""
    front.run("x = 1", cell_id="a")
    front.run("print(x)", cell_id="b")
    front.run("%ctx goto s1 --before", gesture=True)
    edited = front.run("x = 2", cell_id="a", rerun=True)
    assert {one["execution_id"] for one in edited["deltas"]} == {edited["statement"]["execution_id"]}
    row = front.run("print(x)", cell_id="b", rerun=True)["statement"]
    assert row["execution_id"] == "s2.2"
    assert row["comparison"]["against"] == "s2.1"
    assert row["comparison"]["same"] is False
    (out,) = [one for one in row["comparison"]["divergences"] if one["kind"] == "output"]
    assert (out["subject"], out["cause"]) == ("stdout", "upstream")
    assert "1" in out["before"]
    assert "2" in out["after"]
    assert front.rows()["s2.2"]["comparison"] == row["comparison"]


def test_what_a_killed_kernel_left_is_offered_and_comes_back_with_its_rows(start_kernel):
    """The offer says how much there is; after the resume the rows of the earlier kernel are told."""
    first = start_kernel()
    first.run("kept = [1]")
    first.run("kept.append(2)")
    first.manager.provisioner.process.send_signal(signal.SIGKILL)
    first.manager.provisioner.process.wait()
    front = Front(start_kernel())
    offer = front.snapshot["resume"]
    assert (offer["statements"], offer["restorable"]) == (2, "s2.1")
    assert front.snapshot["statements"] == []
    told = front.run("%ctx resume", gesture=True)
    assert (told["head"], told["resume"]) == ("s2.1", None)
    again = front._told(lambda data: data["type"] == "snapshot")
    assert [row["source"] for row in again["statements"][:2]] == ["kept = [1]", "kept.append(2)"]
    assert front.run("print(kept)")["statement"]["stdout"] == "[1, 2]\n"


def test_an_earlier_session_that_cannot_be_read_is_told_with_the_reason(kernel):
    """Not as if there were none: its states may still be on the disk."""
    kernel.run("from ctxkernel.kernel.returning import resume")
    kernel.run("def load_run(*_, **__): raise RecursionError('too deep')\nresume.load_run = load_run")

    offer = Front(kernel).snapshot["resume"]

    assert (offer["restorable"], offer["reason"]) == (None, "RecursionError: too deep")
    assert kernel.run("%ctx resume").error["evalue"] == "too deep"


# -- the model's history ---------------------------------------------------------------------------

LONG = "for i in range(60):\n    print('line', i, 'of an output that is long enough')"
SAY = """
from ctxkernel.history.events import Action, AssistantMessage, Observation, UserQuestion
log = get_ipython().kernel.ctx.loop
def say(kind, *args, **more):
    log.record(kind(log.next_event_id, *args, **more))
"""


def test_where_nothing_is_recorded_nothing_is_told(front):
    """No field at all, in turns and snapshots."""
    assert "history" not in front.snapshot
    assert "history" not in front.run("x = 1")
    assert "history" not in front.ask(type="snapshot")


def test_a_redaction_is_told_with_its_summary_and_what_became_of_it(front):
    """Applied, then taken back; another one for the same output is not recorded."""
    front.run(LONG)
    told = front.run('%ctx redact s1.1 "60 lines, \\"fine\\" {{i}}"', gesture=True)
    entry = {"id": "s2.1:1", "kind": "redaction", "target": "s1.1", "by": "human", "summary": '60 lines, "fine" {i}'}
    assert told["history"] == {
        "entries": [{**entry, "state": "applied"}],
        "more": 0,
        "pins": [],
        "waiting": [],
        "asked": False,
    }
    blocks = front.ask(type="projection")["projection"]["blocks"]
    (block,) = [block for block in blocks if block["id"] == "s1.1"]
    assert 'redacted: "60 lines' in block["text"]
    assert front.ask(type="snapshot")["history"] == told["history"]
    told = front.run("%ctx redact --undo s2.1:1", gesture=True)
    assert told["history"]["entries"] == [{**entry, "state": "undone"}]


def test_a_condensation_is_told_and_what_it_stands_for_comes_when_asked_for(front):
    """Nothing of its events in the turns; undone, it is still there to be read."""
    front.run("%ctx config recent_tokens 20000")  # else the older ones take a line each
    for n in range(4):
        front.run(f"{LONG}  # {n}")
    told = front.run("%ctx condense", gesture=True)
    (entry,) = told["history"]["entries"]
    assert (entry["kind"], entry["state"], entry["first"]) == ("condensation", "applied", "s3.1")
    assert entry["events"] >= 1
    assert entry["summary"]
    assert "line 30" not in str(told["history"])
    answer = front.ask(type="events", of=entry["id"])
    assert answer["error"] is None
    events = answer["events"]["events"]
    assert [len(events), answer["events"]["more"]] == [entry["events"], 0]
    assert (events[0]["id"], events[0]["kind"]) == ("s3.1", "statement")
    assert "line 30" in events[0]["text"]
    told = front.run(f"%ctx condense --undo {entry['id']}", gesture=True)
    assert [one["state"] for one in told["history"]["entries"]] == ["undone"]
    assert front.ask(type="events", of=entry["id"])["events"]["events"] == events
    assert "no condensation 's9.1:1' here" in front.ask(type="events", of="s9.1:1")["error"]


def test_pins_waiting_calls_and_repairs_are_told(front):
    """With their reasons; a call that waits is named with its tool."""
    front.run("x = 1")
    told = front.run('%ctx pin s1 "the data"', gesture=True)
    assert told["history"]["pins"] == [{"target": "s1.1", "reason": "the data"}]
    assert "history" not in front.run("%ctx unpin s1", gesture=True)
    told = front.run(f"{SAY}\nsay(UserQuestion, 'why?')\nsay(Action, 't1', 'run_cell', dict(code='x'))")
    assert told["history"]["waiting"] == [{"event_id": "s4.1:2", "tool": "run_cell"}]
    engine = "get_ipython().kernel.ctx.engine"
    mend = f"import dataclasses\n{engine}.settings = dataclasses.replace({engine}.settings, "
    told = front.run(f"{mend}enforce_history_invariants=True)\nsay(Observation, 't9', 'of no call')")
    repairs = [one for one in told["history"]["entries"] if one["kind"] == "repair"]
    assert [(one["fix"], one["target"]) for one in repairs] == [("removed", "s5.1:1")]
    assert repairs[0]["reason"]


def test_what_is_told_of_the_history_is_that_of_the_last_turn(front):
    """While a cell runs, on the control channel: what the cell records is not there yet."""
    front.run(LONG)
    front.run("%ctx redact s1 short", gesture=True)
    front.run(SAY)
    replies = {}
    with front.kernel.running("say(UserQuestion, 'why?')"):
        for name in ("snapshot", "events", "compare"):
            front.client.control_channel.send(
                front.client.session.msg(f"ctxkernel_{name}_request", {"of": "s9", "old": "s1", "new": None})
            )
        for _ in range(3):
            reply = front.client.get_control_msg(timeout=30)
            replies[reply["msg_type"]] = reply["content"]
    assert [one["kind"] for one in replies["ctxkernel_snapshot_reply"]["history"]["entries"]] == ["redaction"]
    assert "no condensation" in replies["ctxkernel_events_reply"]["error"]
    assert replies["ctxkernel_compare_reply"]["compare"]["breaks_at"] == "s1.1"


def test_two_projections_are_compared_on_request(front):
    """Blocks gained, lost and changed, with tokens and cost; a wrong place is told in words that help."""
    front.run(LONG)
    front.run("x = 1")
    front.run("%ctx redact s1 short", gesture=True)
    found = front.ask(type="compare", old="s1", new=None)["compare"]
    changes = {one["id"]: (one["before"] is None, one["after"] is None) for one in found["changes"]}
    assert changes["s2.1"] == (True, False)
    assert changes["s1.1"] == (False, False)
    assert found["sizes"][1] - found["sizes"][0] == found["tokens"]
    assert found["more"] == 0
    assert found["costs"][0]["told"].startswith("~$")
    assert front.ask(type="compare", old="s1", new="s2")["compare"]["breaks_at"] == "s2.1"
    assert "s99" in front.ask(type="compare", old="s99", new=None)["error"]


def test_a_gesture_that_only_reads_leaves_no_statement(front):
    """`%ctx why not` is answered, and the next cell has the next number."""
    front.run("x = 1")
    assert "x is in" in str(front.kernel.run("%ctx why not x", store_history=False).data)
    front._send(
        "execute_request",
        {
            "code": "%ctx why not x",
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": False,
        },
        GESTURE,
    )
    assert front.run("y = 2")["statement"]["statement_id"] == "s2"
    assert front.run('%ctx redact s1 "what --list says"', gesture=True)["statement"]["statement_id"] == "s3"


def test_what_is_told_is_bounded_and_the_same_step_by_step_as_at_once():
    """The newest 200 entries, each text cut, how many came before them; after any turn what a rebuild would tell."""
    engine = ProjectionEngine(Settings(), count_tokens)
    stepwise = HistoryRows()
    turns: list[list[Any]] = [[Redaction(f"s{n}.1:1", f"s{n}.1", "x" * 5000, "model")] for n in range(1, 260)]
    turns[10].append(Withdrawal("s11.1:2", "s3.1:1"))
    turns[250].append(Withdrawal("s251.1:2", "s249.1:1"))
    for end in (1, 5, 100, 259):
        engine.project(after(turns[:end]))
        told = stepwise.take(engine.past)
        rebuilt = HistoryRows().take(engine.past)
        assert told is not None
        assert rebuilt is not None
        assert told.to_json() == rebuilt.to_json()
        assert [len(told.to_json()["entries"]), told.to_json()["more"]] == [min(end, 200), max(0, end - 200)]
        assert max(len(one["summary"]) for one in told.to_json()["entries"]) == 400
        states = {one["id"]: one["state"] for one in told.to_json()["entries"]}
    assert (states["s249.1:1"], states["s250.1:1"]) == ("undone", "waiting")
    engine.project(after(turns[:3]))
    told = stepwise.take(engine.past)
    assert told is not None
    assert len(told.entries) == 3


def test_a_lone_surrogate_does_not_switch_the_panel_off(front, tmp_path):
    """A file's name that is no UTF-8, or a repr: what no message can carry comes as U+FFFD."""
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"x")
    odd = "t = '\\ud800'; globals()['\\udfff'] = 1\nclass Odd:\n    def __repr__(self): return t\no = Odd()"
    front.run(f"import os\n{odd}")
    told = front.run("h = view(next(one for one in os.listdir('.') if one.startswith('caf')))")
    assert "caf\ufffd.txt" in told["handles"][0]["target"]
    front.run("h")
    for n in range(4):
        told = front.run(f"o = Odd(); n{n} = t")
    assert told["statement"]["diff"]["added"]["n3"]["repr"]
    assert "\ufffd" in str(front.ask(type="snapshot"))
    assert front.kernel.run("%ctx panel").status == "ok"
    assert front.kernel.run("pass").stderr == ""


HOSTILE = [
    [],
    "text",
    7,
    None,
    {},
    {"type": []},
    {"type": "x" * 100_000},
    {"type": "plan", "id": {"a": [1] * 100}, "action": "goto", "target": "9" * 5000},
    {"type": "plan", "id": "1", "action": ["goto"], "target": "1"},
    {"type": "plan", "id": "1", "action": "goto", "target": "9" * 900},
    {"type": "compare", "id": "1", "old": "9" * 900, "new": None},
    {"type": "compare", "id": "1", "old": "s٣", "new": None},
    {"type": "events", "id": "1", "of": {"a": "b"}},
]


def test_a_hostile_message_gets_a_short_error_or_no_answer(kernel):
    """The kernel answers in the same way afterwards, and nothing became a statement."""
    kernel.run("x = 1")
    kernel.run("panel = get_ipython().kernel.ctx.panel; import json")
    ran = kernel.run(
        "sent = []\n"
        f"for message in {HOSTILE!r}:\n    panel._reply(sent.append, message)\n"
        "print(max(len(json.dumps(one)) for one in sent), all(one['error'] for one in sent), len(sent))"
    )
    size, errors, count = ran.stdout.split()
    assert int(size) < 2000
    assert errors == "True"
    assert int(count) >= 5


def test_a_page_cannot_change_the_script_or_the_data_of_an_inline_panel(kernel):
    ran = kernel.run(
        "from ctxkernel.kernel.display.inline_panel import inline_panel\n"
        "w = inline_panel(get_ipython().kernel.ctx.panel)\n"
        "before = (w._esm, w.state)\n"
        "w._handle_msg({'content': {'data': {'method': 'update', 'state': {'_esm': 'alert(1)', 'state': {}}}}})\n"
        "print((w._esm, w.state) == before)"
    )
    assert ran.stdout == "True\n"


def test_a_new_page_closes_the_oldest_of_too_many(kernel):
    ran = kernel.run(
        "panel = get_ipython().kernel.ctx.panel\n"
        "class Comm:\n"
        "    def __init__(self, n): self.comm_id, self.closed = f'c{n}', False\n"
        "    def on_close(self, f): pass\n"
        "    def on_msg(self, f): pass\n"
        "    def send(self, m): pass\n"
        "    def close(self): self.closed = True\n"
        "comms = [Comm(n) for n in range(50)]\n"
        "for one in comms: panel._open(one, {})\n"
        "print(len(panel.comms), [one.closed for one in comms].count(True), comms[-1].closed)\n"
        "panel.comms.clear()"
    )
    assert ran.stdout == "32 18 False\n"


def test_the_cells_are_told_as_they_were_at_an_execution(front):
    """Text, outputs and prompt from the timeline, of the newest run on that path; other branches are left out."""
    front.run("x = 1\nprint('one')", cell_id="a")
    front.run("x * 10", cell_id="b")
    front.run("raise ValueError('no')", cell_id="c")
    front.run("x = 2\nprint('two')", cell_id="a")
    front.run("%ctx goto s3", gesture=True)

    def cells(**asked):
        answer = front.ask(type="cells", **asked)
        assert answer["error"] is None
        return {one["cell_id"]: one for one in answer["cells"]["cells"]}

    here = cells(at=None)
    assert {name: (one["execution_id"], one["source"]) for name, one in here.items()} == {
        "a": ("s1.1", "x = 1\nprint('one')"),
        "b": ("s2.1", "x * 10"),
        "c": ("s3.1", "raise ValueError('no')"),
    }
    assert here["a"]["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "one\n"}]
    assert here["a"]["count"] == 1
    assert here["b"]["outputs"][0]["data"]["text/plain"] == "10"
    assert (here["c"]["outputs"][0]["ename"], here["c"]["outputs"][0]["evalue"]) == ("ValueError", "no")
    assert all(not one["masked"] and not one["cut"] for one in here.values())
    assert cells(at="s4.1")["a"]["source"] == "x = 2\nprint('two')"
    assert list(cells(at="s4.1", cell="b")) == ["b"]
    assert front.ask(type="cells", at="s99.1")["error"] == "there is no execution 's99.1'; %ctx timeline lists them"


def test_what_is_left_out_of_the_cells_is_named_and_comes_for_the_cell_alone(front):
    """All cells together are bounded; so a large output comes on request. A secret is masked, and said to be."""
    front.run("from IPython.display import HTML\nHTML('<p>' + 'x' * 900_000)", cell_id="a")
    for name in ("b", "c"):
        front.run("HTML('<p>' + 'x' * 900_000)", cell_id=name)
    front.run("token = 'ghp_0123456789abcdefghijABCDEFGHIJ012345'", cell_id="d")

    all_of_them = {one["cell_id"]: one for one in front.ask(type="cells", at=None)["cells"]["cells"]}
    (alone,) = front.ask(type="cells", at=None, cell="c")["cells"]["cells"]

    assert all_of_them["a"]["outputs"]
    assert not all_of_them["c"]["outputs"]
    assert "are not included" in all_of_them["c"]["cut"]
    assert len(alone["outputs"][0]["data"]["text/html"]) > 900_000
    assert not alone["cut"]
    assert all_of_them["d"]["masked"]
    assert "ghp_" not in all_of_them["d"]["source"]


def test_the_marks_of_cells_come_back_with_a_resume(start_kernel):
    """They name the executions of the earlier kernel, and the cells are told as they were."""
    first = Front(start_kernel())
    first.run("kept = [1]\nprint('one')", cell_id="a")
    first.run("kept.append(2)", cell_id="b")
    first.kernel.manager.provisioner.process.send_signal(signal.SIGKILL)
    first.kernel.manager.provisioner.process.wait()
    front = Front(start_kernel())
    assert marks_of(front.snapshot["cells"]) == {}

    front.run("%ctx resume", gesture=True)
    again = front._told(lambda data: data["type"] == "snapshot")

    assert {name: one["on_head"] for name, one in marks_of(again["cells"]).items()} == {"a": "s1.1", "b": "s2.1"}
    cells = {one["cell_id"]: one for one in front.ask(type="cells", at=None)["cells"]["cells"]}
    assert cells["a"]["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "one\n"}]
    assert front.ask(type="details", of="s1.1")["details"]["row"]["source"] == "kept = [1]\nprint('one')"


def test_after_a_resume_a_cell_that_ran_after_head_is_marked_as_later(start_kernel):
    """As after a return: it is on the branch of HEAD."""
    first = Front(start_kernel())
    first.run("x = 1", cell_id="a")
    first.run("y = 2", cell_id="b")
    first.run("%ctx goto s1", gesture=True)
    first.kernel.manager.provisioner.process.send_signal(signal.SIGKILL)
    first.kernel.manager.provisioner.process.wait()
    front = Front(start_kernel())

    front.run("%ctx resume", gesture=True)

    marks = marks_of(front._told(lambda data: data["type"] == "snapshot")["cells"])
    assert {name: one["state"] for name, one in marks.items()} == {"a": "fresh", "b": "later"}


def test_the_first_turn_that_a_page_sees_tells_only_what_changed(kernel):
    """The snapshot has told the history and the marks of a session that ran without a page."""
    kernel.run("x = 'long ' * 2000\nprint(x)")
    kernel.run('%ctx redact s1 "long lines"')
    kernel.run("y = 2")
    front = Front(kernel)
    (entry,) = front.snapshot["history"]["entries"]

    turn = front.run("z = 3", cell_id="z")

    assert turn["history"]["change"] is True
    assert entry["id"] not in [one["id"] for one in turn["history"]["entries"] if one == entry]
    assert turn["cells"]["ids"] == ["z"]


def test_a_page_asks_for_the_marks_of_some_cells_or_of_all(front):
    """The answer about some names no ids: the page knows the numbers from the snapshot and the turns."""
    reader = MarkReader()
    reader.read(front.snapshot["cells"])
    for cell, source in [("a", "x = 1"), ("b", "y = x"), ("a", "x = 2")]:
        reader.read(front.run(source, cell_id=cell)["cells"])
    assert reader.marks["b"]["because"] == ["x was changed by s3"]

    some = front.ask(type="marks", names=["b", "nobody"])["marks"]
    assert not some["ids"]
    assert reader.read(some) == {"b": reader.marks["b"]}
    assert marks_of(front.ask(type="marks")["marks"]) == reader.marks


def test_a_page_tells_where_a_new_cell_stands_and_gets_the_marks_that_this_changes(front):
    reader = MarkReader()
    reader.read(front.snapshot["cells"])
    for cell, source in [("a", "x = 1"), ("b", "y = x"), ("new", "x = 7")]:
        reader.read(front.run(source, cell_id=cell)["cells"])
    assert reader.marks["b"]["state"] == "fresh"
    for cell, below in (("a", "b"), ("new", "nobody"), ("nobody", "b")):
        assert not reader.read(front.ask(type="marks", cell=cell, before=below)["marks"])

    told = reader.read(front.ask(type="marks", cell="new", before="b")["marks"])

    assert (told["b"]["state"], told["b"]["because"]) == ("stale", ["x was changed by s3"])
    reader.read(front.run("y = x", cell_id="b")["cells"])
    assert reader.marks["b"]["state"] == "fresh"
    front.run("%ctx goto s3", gesture=True)
    assert marks_of(front.ask(type="marks")["marks"])["b"]["here"] == "stale"


def test_a_cell_that_runs_again_under_another_id_has_a_mark_of_its_own(front):
    """JupyterLab 4.2 gives a cell that was Markdown for a while a new id; pasting a cell does so everywhere."""
    front.run("x = 1", cell_id="a")
    front.run("print(x)", cell_id="b")
    front.run("%ctx goto s1 --before", gesture=True)
    front.run("x = 2", cell_id="a", rerun=True)

    row = front.run("print(x)", cell_id="pasted", rerun=True)["statement"]

    assert row["comparison"]["against"] == "s2.1"
    assert marks_of(front.ask(type="marks")["marks"])["pasted"]["execution_id"] == row["execution_id"]


def test_a_cell_of_another_branch_says_how_its_execution_on_this_one_stands(front):
    """A page that shows that execution needs its state: stale here, since `x` was changed after it."""
    front.run("x = 1", cell_id="a")
    front.run("y = x", cell_id="b")
    front.run("x = 2", cell_id="a")
    front.run("y = x + 1", cell_id="b")
    front.run("%ctx goto s3", gesture=True)

    mark = marks_of(front.ask(type="snapshot")["cells"])["b"]

    assert (mark["execution_id"], mark["on_head"], mark["state"], mark["here"]) == ("s4.1", "s2.1", "later", "stale")
    assert mark["because"]


def test_variables_that_are_compared_in_the_background_are_told_until_they_are_compared(front):
    """With the other long work; the message that their data are stored takes the line away."""
    told = front.run("rows = [[i, str(i)] for i in range(1_500_000)]; other = 1")
    assert told["work"] == ["comparing rows"]
    assert front._told(lambda data: data["type"] == "checkpoint", 120)["work"] == []
