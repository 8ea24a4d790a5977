"""What every handle has (seed 002 §5.1 to §5.3), and the table of what was done to it."""

from __future__ import annotations

import pytest
from IPython.lib.pretty import pretty

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.nodes.node_base import TickResult
from ctxkernel.core.ports import Picture, Rendered
from ctxkernel.core.timeline_events import MethodCalled, NodeChanged
from ctxkernel.testing import FakeSource, Turns

COMMON = (
    "obj_id", "obj_type", "mode", "freq", "min_turn_interval", "last_tick_turn", "dirty", "tokens", "lod",
    "GetDigest", "Render", "Pause", "Run", "Tick", "OnMemberChanged", "SetLod", "SetTokens", "Refresh",
)  # fmt: skip
VIEW = ("path", "pos", "window_spec", "rendered", "source_fingerprint", "dirty_flags", "SetPos", "Scroll")
GROUP = ("members", "summary_rendered", "summary_policy", "Add", "Remove")


def with_view() -> Turns:
    turns = Turns()
    turns.namespace["src"] = FakeSource("one two three")
    turns.run("h = view(src, tokens=50)")
    return turns


@pytest.mark.parametrize(
    ("code", "names"), [("h = view(src)", COMMON + VIEW), ("h = group(view(src))", COMMON + GROUP)]
)
def test_a_handle_has_every_field_and_method_of_the_seed(code: str, names: tuple[str, ...]):
    turns = with_view()
    turns.run(code)

    assert [name for name in names if not hasattr(turns.namespace["h"], name)] == []


def test_dirty_flags_say_that_the_source_changed_until_the_tick():
    turns = with_view()
    h = turns.namespace["h"]

    assert h.dirty_flags == {"pos_changed": False, "policy_changed": False, "source_changed": False}
    turns.namespace["src"].text = "other"
    assert h.dirty_flags["source_changed"]
    turns.run("h.refresh()")
    assert not any(h.dirty_flags.values())


def test_a_window_says_what_it_shows():
    window = with_view().namespace["h"].window_spec

    assert (window["range_lines"], window["range_tokens"], window["anchors"]["pos"]) == (1, 50, "0:0")


@pytest.mark.parametrize("code", ["h.min_turn_interval = 3", "h.set(min_turn_interval=3)"])
def test_the_turns_between_updates_are_set_and_recorded_like_any_policy(code: str):
    turns = with_view()

    result = turns.run(code)

    called = next(event for event in result.events if isinstance(event, MethodCalled))
    assert (called.before_digest["min_turn_interval"], called.after_digest["min_turn_interval"]) == (1, 3)
    assert turns.namespace["h"].memento()["min_turn_interval"] == 3


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "True", "'x'"])
def test_turns_that_are_none_are_refused(value: str):
    turns = with_view()

    with pytest.raises(BadPolicy, match="whole number from 1"):
        turns.run(f"h.min_turn_interval = {value}")

    assert turns.namespace["h"].min_turn_interval == 1


def test_a_tick_by_hand_is_recorded_like_any_call():
    turns = with_view()
    turns.namespace["src"].text = "other"

    result = turns.run("ticked = h.Tick(5.0, 7, 'sync')")

    assert isinstance(turns.namespace["ticked"], TickResult)
    assert turns.namespace["h"].last_tick_turn == 7
    kinds = [(type(event).__name__, getattr(event, "method", "")) for event in result.events]
    assert kinds[:2] == [("MethodCalled", "tick"), ("NodeChanged", "")]
    assert isinstance(result.events[1], NodeChanged)


def history(turns: Turns, name: str = "h") -> list[tuple[str, str, str]]:
    return [(row.statement_id, row.what, row.change) for row in turns.namespace[name].history()]


def test_history_shows_calls_and_ticks_with_what_they_changed():
    turns = with_view()
    turns.run("h.set(lod=1, tokens=30); h.run()")
    turns.namespace["src"].text += "\nfour"
    turns.run()

    rows = history(turns)
    assert [row[1] for row in rows] == ["view", "set", "run", "tick sync"]
    assert rows[0][2].startswith("made, lod 0")
    assert "lod 0 → 1" in rows[1][2] and "tokens 50 → 30" in rows[1][2]
    assert rows[3][2].endswith("(revision 2 → 3)")
    assert turns.namespace["h"].history()[1].arguments == "lod=1, tokens=30"
    table = repr(turns.namespace["h"].history()).splitlines()
    assert table[0].split() == ["in", "what", "arguments", "change"] and len(table) == 5


def test_history_knows_the_calls_of_the_cell_that_asks():
    turns = with_view()

    turns.run("h.lod = 1; rows = h.history()")

    assert [row.what for row in turns.namespace["rows"]] == ["view", "set"]


def test_history_is_bounded_and_says_how_much_is_earlier():
    turns = with_view()
    turns.run("for n in range(9): h.tokens = 60 + n")

    text = repr(turns.namespace["h"].history(3))

    assert text.startswith("… 7 earlier; history(10) shows all") and len(text.splitlines()) == 5
    with pytest.raises(BadPolicy, match="whole number from 1"):
        turns.namespace["h"].history(0)


def test_history_after_a_return_is_that_of_the_branch_and_after_a_restart_it_is_whole():
    turns = with_view()
    here = turns.loop.log.head
    turns.run("h.lod = 1")
    turns.run("h.lod = 2")
    whole = history(turns.resumed())
    turns.goto(here)
    turns.run("h.lod = 3")

    assert [row[1:] for row in whole if row[1] == "set"] == [
        ("set", "lod 0 → 1"),
        ("set", "lod 1 → 2"),
    ]
    assert [row[2] for row in history(turns) if row[1] == "set"] == ["lod 0 → 3, rendered_tokens 4 → 2"]


def test_history_of_a_group_has_its_summaries():
    turns = with_view()
    turns.run("g = group(h); h.run()")
    turns.namespace["src"].text += " more"
    turns.run()

    assert [row[1] for row in history(turns, "g")] == ["group", "tick group"]


@pytest.mark.parametrize("freq", ["Periodic", "periodic", ("Periodic", 60), "Periodic(60)"])
def test_periodic_without_seconds_is_a_minute(freq: object):
    """The seed's signature is `freq="Sync|Periodic|Async"` (seed 002 §4.3)."""
    turns = with_view()
    turns.namespace["freq"] = freq
    turns.run("h = view(src, freq=freq)")
    h = turns.namespace["h"]
    shown = str(h.freq), h.mode
    turns.run("h.Run('Sync').Run(freq=freq)")

    assert shown == ("Periodic(60)", "running")
    assert str(h.freq) == "Periodic(60)"


def test_the_repr_of_a_rendering_has_neither_its_basis_nor_its_picture():
    picture = Picture("image/png", "iVBOR" * 1000, 10, 10, 5)
    rendered = Rendered("text", 1, 0, "0", basis={"old": "x" * 1000}, picture=picture)

    assert "basis" not in repr(rendered)
    assert len(repr(rendered)) < 400


def test_a_rendering_prints_and_is_displayed_as_its_text():
    rendered = Rendered("one\ntwo", 2, 0, "0")

    assert str(rendered) == pretty(rendered) == "one\ntwo"
