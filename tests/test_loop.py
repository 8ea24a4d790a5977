"""The loop, the handles and the tick, without a kernel."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core import scheduler
from ctxkernel.core.delta import format_deltas
from ctxkernel.core.errors import BadPolicy, BadTarget, CyclicGroup, OutsideTurn
from ctxkernel.core.names import is_imported
from ctxkernel.core.nodes import Async, Periodic, Sync
from ctxkernel.core.nodes.node_base import ALIASES, parse_freq
from ctxkernel.core.ports import All
from ctxkernel.core.scheduler import ReadyQueue, UpdatePayload
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import (
    ChangeInfo,
    ExceptionInfo,
    Execution,
    NamespaceDiff,
    environment_text,
    statement_fingerprint,
)
from ctxkernel.core.timeline_events import (
    AsyncPayloadApplied,
    AsyncPayloadPrepared,
    GroupRecomputed,
    MethodCalled,
    StatementExecuted,
    TickApplied,
    event_to_json,
)
from ctxkernel.core.timeline_json import execution_to_json, statement_to_json
from ctxkernel.core.turn_values import Outcome
from ctxkernel.testing import AtOnce, FakeSource, Turns
from ctxkernel.testing.fake_loop import count_words


def with_view(**policy):
    """Return a loop in which `h` is a view on `src`."""
    turns = Turns()
    turns.namespace["src"] = FakeSource("one two three")
    turns.namespace["policy"] = policy
    turns.run("h = view(src, **policy)")
    return turns


def kinds(result):
    return [type(event).__name__ for event in result.events]


def test_a_statement_has_every_field_of_the_seed():
    turns = Turns()
    result = turns.run("x = 1", stdout="hi", artifacts=())

    made = statement_to_json(result.statement, (result.execution,))

    assert {"statement_id", "index", "timestamp", "source", "kind", "tags", "fingerprint"} <= made.keys()
    assert {"author", "parent_id", "cell_id"} <= made.keys()
    assert set(execution_to_json(result.execution)) >= {
        "execution_id", "statement_id", "started_at", "ended_at", "status", "stdout", "stderr", "exception",
        "events", "state_diff", "artifacts", "cost", "parent_execution_id",
    }  # fmt: skip
    assert made["executions"][0]["state_diff"]["added"] == {"x": {"type": "int", "repr": "1", "size": {}}}


def test_statements_are_numbered_from_one_and_each_knows_its_parent():
    turns = Turns()
    first, second = turns.run("a = 1"), turns.run("b = 2")

    assert [first.statement.statement_id, second.statement.statement_id] == ["s1", "s2"]
    assert first.statement.parent_id is None
    assert second.statement.parent_id == "s1"
    assert second.execution.parent_execution_id == first.execution.execution_id == "s1.1"
    assert turns.loop.log.head == "s2.1"


def test_frozen_facts_cannot_be_changed():
    result = with_view().run("h.lod = 1")
    for fact in (result, result.statement, result.execution, *result.events):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(fact, dataclasses.fields(fact)[0].name, "other")


def test_all_seven_kinds_of_event_come_from_real_turns():
    turns = with_view(mode="running")
    turns.run("g = group(h)")
    seen = set(kinds(turns.run("h.lod = 1")))
    turns.namespace["src"].text = "one two four"
    seen |= set(kinds(turns.run()))
    turns.run("h.run('Async')")
    turns.namespace["src"].text = "five"
    prepare_now(turns)
    turns.run()
    seen |= set(kinds(turns.run()))

    assert seen == {
        "StatementExecuted", "MethodCalled", "NodeChanged", "TickApplied", "AsyncPayloadPrepared",
        "AsyncPayloadApplied", "GroupRecomputed",
    }  # fmt: skip


def prepare_now(turns):
    """Let the loop's worker be one that prepares at once."""
    turns.loop.preparer = AtOnce(turns.loop.ready)


def test_a_method_call_is_recorded_with_the_digests_before_and_after():
    result = with_view().run("h.set(lod=2, tokens=50)")

    [call] = [event for event in result.events if isinstance(event, MethodCalled)]
    assert (call.method, call.kwargs) == ("set", {"lod": 2, "tokens": 50})
    assert (call.before_digest["lod"], call.after_digest["lod"]) == (0, 2)
    assert event_to_json(call)["type"] == "MethodCalled"


SPELLINGS = [
    ("h.SetLod(1)", "h.lod == 1"),
    ("h.set_lod(2)", "h.lod == 2"),
    ("h.lod = 3", "h.lod == 3"),
    ("h.SetTokens(40)", "h.tokens == 40"),
    ("h.SetTokens(All)", "str(h.tokens) == 'All'"),
    ("h.tokens = 7", "h.tokens == 7"),
    ("h.SetPos('3:1')", "h.pos == '3:1'"),
    ("h.pos = 12", "h.pos == '12:0'"),
    ("h.SetPos('3:0').Scroll(50)", "h.pos == '53:0'"),
    ("h.Scroll(-5)", "h.pos == '0:0'"),
    ("h.pos = '@120'; h.scroll(-5); h.scroll(8)", "h.pos == '@120+3'"),
    ("h.SetLod(1).SetTokens(All)", "h.lod == 1"),
    ("h.Refresh()", "h.mode == 'paused'"),
    ("h.Run(freq='Sync')", "h.mode == 'running' and str(h.freq) == 'Sync'"),
    ("h.Run(freq=('Periodic', 2))", "str(h.freq) == 'Periodic(2)'"),
    ("h.freq = 'Async'", "h.mode == 'running' and str(h.freq) == 'Async'"),
    ("h.Run().Pause()", "h.mode == 'paused'"),
    ("h.mode = 'running'", "h.mode == 'running'"),
    ("h.set(lod=1, tokens=300).run()", "(h.lod, h.tokens, h.mode) == (1, 300, 'running')"),
    ("d = h.GetDigest()", "d['obj_id'] == 'v1' and d['obj_type'] == 'view'"),
    ("r = h.Render(lod=1, tokens=2)", "r.text == 'L1 one' and h.lod == 0"),
    ("pin(h, reason='main')", "h.pinned and h.pin_reason == 'main'"),
    ("g = group(h, tokens=500, lod=2).Run(freq='Sync')", "g.members == (h,)"),
    ("g = group(h).SetLod(1).SetTokens(300)", "(g.lod, g.tokens) == (1, 300)"),
    ("g = group(h); k = view('k'); g.Add(k); g.Remove(h)", "g.members == (k,)"),
]


@pytest.mark.parametrize(("call", "holds"), SPELLINGS, ids=[call for call, _ in SPELLINGS])
def test_both_spellings_work_and_chain(call, holds):
    turns = with_view()
    turns.namespace["All"] = All
    turns.run(call)
    assert eval(holds, turns.namespace)


def test_every_seed_spelling_names_a_method_of_a_handle():
    turns = with_view()
    turns.run("g = group(h)")
    for alias in ALIASES:
        assert hasattr(turns.namespace["h"], alias) or hasattr(turns.namespace["g"], alias), alias


REFUSED = [
    ("h.lod = 7", BadPolicy, "0 raw excerpt"),
    ("h.lod = True", BadPolicy, "lod"),
    ("h.tokens = 0", BadPolicy, "from 1"),
    ("h.tokens = 'many'", BadPolicy, "All"),
    ("h.pos = -1.5", BadPolicy, "line"),
    ("h.mode = 'fast'", BadPolicy, "paused"),
    ("h.run(freq='Sometimes')", BadPolicy, "Periodic"),
    ("h.run(freq=('Periodic', 0))", BadPolicy, "above 0"),
    ("h.set(level=3)", BadPolicy, "level"),
    ("h.token = 3", AttributeError, "tokens"),
    ("group()", BadTarget, "at least one"),
    ("group(3)", BadTarget, "view"),
    ("group([h])", BadTarget, r"one by one: group\(\*handles\)"),
    ("show(3)", BadTarget, "view"),
    ("view(h)", BadTarget, "already"),
    ("g = group(h); g.add(g)", CyclicGroup, "g1"),
    ("g = group(h); k = group(g); g.add(k)", CyclicGroup, "g2"),
    ("g = group(h); g.remove(h)", BadTarget, "empty"),
]


@pytest.mark.parametrize(("call", "error", "says"), REFUSED, ids=[call for call, _, _ in REFUSED])
def test_a_refused_call_names_the_next_move_and_changes_nothing(call, error, says):
    turns = with_view()
    before = turns.namespace["h"].digest()

    with pytest.raises(error, match=says):
        turns.run(call)

    assert turns.namespace["h"].digest() == before


def test_node_state_cannot_change_outside_of_a_statement():
    turns = with_view()
    with pytest.raises(OutsideTurn, match="in a cell"):
        turns.namespace["h"].lod = 1
    assert turns.namespace["h"].lod == 0


def test_the_phases_run_in_the_seeds_order():
    names = [phase.__name__ for phase in scheduler.PHASES]
    assert names == ["apply_ready", "tick_sync", "tick_periodic", "recompute_groups"]


def test_ready_payloads_apply_before_sync_and_periodic_ticks_and_groups_come_last():
    turns = Turns()
    turns.namespace.update(a=FakeSource("a"), s=FakeSource("s"), p=FakeSource("p"))
    turns.run(
        "va, vs, vp = view(a, freq='Async'), view(s, freq='Sync'), view(p, freq=('Periodic', 1)); g = group(vp, va, vs)"
    )
    for name in "asp":
        turns.namespace[name].text += " changed"
    prepare_now(turns)
    turns.loop.preparer.want([turns.namespace["va"].job()])

    result = turns.run(seconds=5)

    order = [e for e in result.events if isinstance(e, AsyncPayloadApplied | TickApplied | GroupRecomputed)]
    assert [getattr(e, "tick_kind", type(e).__name__) for e in order] == [
        "AsyncPayloadApplied", "async", "sync", "periodic", "GroupRecomputed",
    ]  # fmt: skip
    assert "changed" in turns.namespace["g"].rendered.text
    assert "changed" in turns.projector.turns[-1].handles[-1].text


def test_a_running_view_shows_what_changed_at_the_next_boundary_and_a_paused_one_does_not():
    turns = with_view(mode="running")
    turns.run("still = view(src)")
    turns.namespace["src"].text = "one two four"

    result = turns.run()

    assert turns.namespace["h"].rendered.text == "L0 one two four"
    assert "+one two four" in turns.namespace["h"].last_change
    assert turns.namespace["still"].rendered.text == "L0 one two three"
    [item] = [item for item in result.deltas if item.kind == "tick"]
    assert (item.subject, item.summary) == ("h", "+1 −1 lines")
    assert "+one two four" in item.text


def test_an_idle_tick_changes_nothing():
    turns = with_view(mode="running")
    turns.run("g = group(h)")
    before = [node.digest() for node in turns.loop.graph.nodes()]
    renders = turns.namespace["src"].renders

    result = turns.run()

    assert [node.digest() for node in turns.loop.graph.nodes()] == before
    assert turns.namespace["src"].renders == renders
    assert kinds(result) == ["StatementExecuted"]
    assert result.deltas == ()


def test_sync_is_throttled_by_min_turn_interval():
    turns = with_view(mode="running")
    turns.run("h.min_turn_interval = 3")
    revisions = []
    for number in range(6):
        turns.namespace["src"].text = f"text {number}"
        turns.run()
        revisions.append(turns.namespace["h"].revision)
    assert len(set(revisions)) == 3


def test_periodic_waits_for_its_seconds():
    turns = with_view(freq=("Periodic", 10))
    turns.namespace["src"].text = "later"
    assert not [e for e in turns.run(seconds=5).events if isinstance(e, TickApplied)]
    assert [e.tick_kind for e in turns.run(seconds=6).events if isinstance(e, TickApplied)] == ["periodic"]


def test_a_payload_made_from_an_older_state_is_dropped():
    turns = with_view(freq="Async")
    prepare_now(turns)
    turns.namespace["src"].text = "newer"
    turns.loop.preparer.want([turns.namespace["h"].job()])
    result = turns.run("h.lod = 1")

    assert any(isinstance(e, AsyncPayloadPrepared) for e in result.events)
    assert not any(isinstance(e, AsyncPayloadApplied) for e in result.events)


def test_the_queue_keeps_the_newest_a_kind_and_starves_nobody():
    queue = ReadyQueue()
    for number in range(5):
        for obj_id in ("v1", "v2", "v3"):
            queue.put(UpdatePayload(f"{obj_id}-{number}", obj_id, 0.0, {}, "render", None))

    first, second = queue.take(2), queue.take(2)

    assert [payload.payload_id for payload in first] == ["v1-4", "v2-4"]
    assert [payload.payload_id for payload in second] == ["v3-4"]
    assert len(queue) == 0


def test_a_source_that_fails_is_named_and_the_tick_goes_on():
    turns = Turns()
    turns.namespace.update(bad=FakeSource("a", "bad.txt"), good=FakeSource("b"))
    turns.run("h, k = view(bad).run(), view(good).run()")
    turns.namespace["bad"].text = turns.namespace["good"].text = "changed"
    turns.namespace["bad"].fault = OSError("the disk is gone")

    result = turns.run()

    assert turns.namespace["k"].rendered.text == "L0 changed"
    assert any("bad.txt" in notice and "disk is gone" in notice for notice in result.notices)


def test_a_group_follows_its_members_and_a_nested_one_too():
    turns = with_view(mode="running")
    turns.run("g = group(h); gg = group(g)")
    turns.namespace["src"].text = "fresh words"
    turns.run()
    assert "fresh words" in turns.namespace["g"].rendered.text
    assert "fresh words" in turns.namespace["gg"].rendered.text


def test_a_group_never_exceeds_its_budget():
    turns = Turns()
    turns.namespace["sources"] = [FakeSource("word " * 500, f"s{number}") for number in range(8)]
    turns.run("g = group(*[view(s) for s in sources], tokens=60)")
    assert count_words(turns.namespace["g"].rendered.text) <= 60
    assert turns.namespace["g"].rendered.cut_tokens > 0


def test_show_asks_for_the_content_until_the_model_has_answered():
    turns = with_view()
    turns.run("shown = show(h, lod=1)")
    asked = turns.projector.turns[-1].handles[0].requested
    turns.run()
    waits = turns.projector.turns[-1].handles[0].requested
    turns.loop.answered()
    turns.run()
    assert (asked, waits, turns.projector.turns[-1].handles[0].requested) == (True, True, False)
    assert turns.namespace["shown"].text == "L1 one two three"
    assert turns.namespace["h"].lod == 0


def test_ls_knows_the_names_within_the_same_cell():
    turns = Turns()
    turns.run("a = view('x'); table = ls()")
    assert [state.name for state in turns.namespace["table"]] == ["a"]
    assert "a" in repr(turns.namespace["table"]).splitlines()[1]


def test_a_deleted_handle_leaves_the_table_and_a_rebound_name_moves():
    turns = with_view()
    turns.run("other = h; h = 3")
    assert [state.name for state in turns.loop.handles()] == ["other"]
    turns.run("del other")
    assert turns.loop.handles() == ()


def test_names_that_changed_outside_of_a_cell_become_a_meta_statement():
    turns = Turns()
    turns.run("a = 1")
    turns.namespace["late"] = 5
    result = turns.run("b = 2")

    statement, execution = result.outside
    assert (statement.kind, statement.index, result.statement.index) == ("meta", 2, 3)
    assert "late" in execution.state_diff.added and "late" in statement.source
    assert "late" not in result.execution.state_diff.added
    assert result.statement.parent_id == statement.statement_id


def test_late_output_is_added_and_told_with_the_next_turn():
    turns = Turns()
    first = turns.run("a = 1")
    turns.loop.late(first.execution.execution_id, "stdout", "from a thread\n")
    result = turns.run()
    assert turns.loop.log.execution("s1.1").late == {"stdout": "from a thread\n"}
    assert [item.kind for item in result.deltas if item.statement_id == "s1"] == ["late"]


STEPS = ["namespace diff", "tick", "handles", "delta feed", "variables", "projection"]


@pytest.mark.parametrize("broken", STEPS)
def test_a_fault_in_one_step_costs_that_step_only(broken):
    def guard(step, run, otherwise, *arguments):
        return otherwise if step == broken else run(*arguments)

    turns = Turns(guard=guard)
    turns.run("h = view('src')")
    result = turns.run("x = 1")
    assert result.execution.status == "ok"
    assert len(turns.loop.log) == 2


def test_errors_come_first_in_the_delta_feed_and_it_is_bounded():
    turns = Turns()
    code = "; ".join(f"x{number} = {number}" for number in range(50))
    result = turns.run(code, status="error", exception=ExceptionInfo("ValueError", "no", ""))
    assert result.deltas[0].kind == "error"
    assert len(result.deltas) == 30
    assert "22 more" in result.deltas[-1].summary


@given(st.lists(st.sampled_from(["lod1", "lod2", "tokens", "run", "pause", "edit", "idle", "regroup"]), max_size=12))
def test_whatever_is_called_ticks_are_deterministic_and_idle_ones_change_nothing(program):
    def play():
        turns = with_view()
        turns.run("g = group(h, tokens=20)")
        codes = {
            "lod1": "h.lod = 1", "lod2": "g.lod = 2 if g.lod != 2 else 0", "tokens": "h.tokens = 2 + len(src.text)",
            "run": "h.run()", "pause": "h.pause()", "edit": "src.text += ' more'", "idle": "pass",
            "regroup": "g.refresh()",
        }  # fmt: skip
        states = []
        for step in program:
            turns.run(codes[step])
            states.append([(node.digest(), node.rendered.text) for node in turns.loop.graph.nodes()])
        turns.run()
        before = [node.digest() for node in turns.loop.graph.nodes()]
        result = turns.run()
        assert [node.digest() for node in turns.loop.graph.nodes()] == before
        assert [type(e) for e in result.events] == [StatementExecuted]
        return states

    assert play() == play()


FREQS = [
    ("Sync", Sync()),
    ("async", Async()),
    (("Periodic", 2), Periodic(2)),
    ("Periodic(2.5)", Periodic(2.5)),
    (Sync(), Sync()),
]


@pytest.mark.parametrize(("given_freq", "parsed"), FREQS, ids=[str(row[0]) for row in FREQS])
def test_frequencies_are_understood(given_freq, parsed):
    assert parse_freq(given_freq) == parsed


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().view_tokens = 3


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        pytest.param("data = 1; from math import *", ["data"], id="a star import, in the same cell"),
        pytest.param("a = 1; import os, re, io, abc; b = 2", ["a", "b"], id="modules"),
        pytest.param("a, b, c, d, e = 1, 2, 3, 4, 5; import os", ["a", "b", "c", "d"], id="more data than rows"),
        pytest.param("import os; x = 1", ["os", "x"], id="room for all"),
    ],
)
def test_what_is_imported_gives_way_to_data_in_the_variable_table(code, kept):
    """Forty names of `from math import *` would leave the model without a word of the person's data."""
    turns = Turns(Settings(variable_rows=4))
    turns.run(code)

    rows = turns.projector.turns[-1].variables
    shown = [line.name for line in rows]

    assert [name for name in shown if name in kept] == kept
    assert len([row for row in rows if not is_imported(row.type, row.repr)]) <= 4
    assert len(rows) <= 8, "imports are as many at most, and take one line together"


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        ("error", "no", "no"),
        ("error", "", "raised"),
        ("cancelled", "", "cancelled"),
        ("timeout", "5 s", "timeout: 5 s"),
    ],
)
def test_the_delta_feed_says_once_that_a_cell_failed(status, message, told):
    turns = Turns()
    failed = ExceptionInfo("ValueError", message, "")

    result = turns.run(status=status, exception=failed)

    assert [(item.subject, item.summary) for item in result.deltas] == [("ValueError", told)]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("[1]", "[1, 2]", "mutated: list [1] → [1, 2]"),
        ("[…]", "[…]", "mutated: list […]"),
        ("[1]", "", "mutated: list "),
    ],
)
def test_a_value_whose_short_text_stayed_is_told_once(before, after, told):
    changed = {"x": ChangeInfo("list", after, {}, "mutated", before)}
    execution = Execution("s1.1", "s1", None, 0.0, state_diff=NamespaceDiff({}, changed, ()))

    items = format_deltas(execution, (), {}, {})

    assert [item.summary.strip() for item in items] == [told.strip()]


class FailsAtLast(FakeSource):
    """Fails when it is rendered for real, not when it is asked for the difference: the disk fails in between."""

    failing = False

    def render(self, request):
        if self.failing and request.lod != 3:
            raise OSError("gone")
        return super().render(request)


def test_a_view_whose_rendering_failed_is_looked_at_again_at_the_next_tick():
    turns = Turns()
    src = turns.namespace["src"] = FailsAtLast("one")
    turns.run("h = view(src).run()")
    src.text, src.failing = "two", True
    assert "gone" in turns.run().notices[0]

    src.failing = False
    turns.run()

    assert turns.namespace["h"].rendered.text == "L0 two"


def test_a_policy_that_the_source_refuses_leaves_mode_and_frequency_too():
    turns = with_view()
    turns.namespace["src"].fault = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        turns.run("h.set(lod=2, mode='running', freq=('Periodic', 5))")

    handle = turns.namespace["h"]
    assert (handle.lod, handle.mode, handle.freq) == (0, "paused", Sync())


@pytest.mark.parametrize("call", ["g.add(k, outer)", "g.add(k, 1)", "g.add(broken)", "g.remove(h, k)"])
def test_a_group_that_refuses_one_member_takes_none(call):
    turns = with_view()
    turns.run("g = group(h); outer = group(g); k = view('other')")
    broken = turns.namespace["source"] = FakeSource("fine")
    turns.run("broken = view(source)")
    broken.fault = OSError("gone")
    with pytest.raises((BadTarget, CyclicGroup, OSError)):
        turns.run(call)

    assert turns.namespace["g"].members == (turns.namespace["h"],)


@pytest.mark.parametrize("freq", ["Sync", ("Periodic", 0.5)], ids=str)
def test_where_time_runs_out_at_every_turn_the_views_take_turns(freq):
    """Two looks fit into each turn; after three turns each of six views was looked at."""
    turns = Turns()
    sources = turns.namespace["sources"] = [FakeSource("old") for _ in range(6)]
    turns.namespace["freq"] = freq
    turns.run("hs = [view(source, freq=freq) for source in sources]")
    for source in sources:
        source.text = "new"
    for _ in range(3):
        looks = iter([False, False])
        turns.loop.begin("pass", now=turns.now)
        turns.now += 1
        result = turns.loop.end(Outcome("ok"), turns.now, lambda looks=looks: next(looks, True))
        assert any("not looked at" in notice for notice in result.notices)

    assert [handle.rendered.text for handle in turns.namespace["hs"]] == ["L0 new"] * 6


def test_groups_wait_for_the_next_turn_where_time_ran_out():
    turns = with_view()
    turns.run("gs = [group(h) for _ in range(3)]")
    before = [group.rendered.text for group in turns.namespace["gs"]]
    turns.loop.begin("h.lod = 1", now=turns.now)
    turns.namespace["h"].lod = 1
    turns.namespace["src"].text = "four five"
    turns.namespace["h"].refresh()
    result = turns.loop.end(Outcome("ok"), turns.now, lambda: True)
    assert any("3 changed groups not looked at" in notice for notice in result.notices)
    assert [group.rendered.text for group in turns.namespace["gs"]] == before

    turns.run()

    assert all("four five" in group.rendered.text for group in turns.namespace["gs"])


def test_a_preparation_that_failed_is_told_by_the_tick_and_changes_nothing():
    turns = with_view(freq="Async")
    handle = turns.namespace["h"]
    before = handle.digest()
    turns.loop.ready.put(UpdatePayload("p1", "v1", turns.now, handle.basis(), "render", OSError("gone")))

    result = turns.run()

    assert "OSError: gone" in result.notices[0]
    assert handle.digest() == before


def test_a_fingerprint_is_sixteen_digits_of_a_hash_of_source_and_environment():
    """Seed 002, 3.1: the order in which the environment is listed makes no difference."""
    here = environment_text({"python": "3.11", "cwd": "/a"})
    made = statement_fingerprint("x = 1", here)

    assert re.fullmatch(r"sha256:[0-9a-f]{16}", made)
    assert here == environment_text({"cwd": "/a", "python": "3.11"})
    assert len({made, statement_fingerprint("x = 2", here), statement_fingerprint("x = 1", environment_text({}))}) == 3
