"""What if a handle were otherwise: all handles as they would be, groups included, and nothing changed."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.errors import CtxError
from ctxkernel.core.nodes.handle_states import suppose
from ctxkernel.core.ports import All
from ctxkernel.kernel.commands.whatif import with_handles
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.sources.registry import open_named
from ctxkernel.testing import Turns

SETUP = (
    "a = view(one, tokens=80); b = view(other, tokens=60); c = view(numbers)\n"
    "n = note('Lengths are in mm. And more words to cut.')\n"
    "inner = group(a, b, tokens=120, lod=0); outer = group(inner, n, c, tokens=260); still = group(a, b).pause()"
)
NAMES = ("a", "b", "c", "n", "inner", "outer", "still")
SHOWN = ("obj_id", "text", "rendered_tokens", "pinned", "changed", "requested", "notes")
POLICY = st.fixed_dictionaries(
    {},
    optional={
        "lod": st.integers(0, 3),
        "tokens": st.sampled_from([1, 20, 90, 400, All]),
        "pinned": st.booleans(),
        "pos": st.sampled_from(["0:0", "7:0", "30:2"]),
        "mode": st.sampled_from(["paused", "running"]),
        "freq": st.sampled_from(["Sync", "Async"]),
    },
)


def world() -> Turns:
    """Views, a note, a group in a group and a paused one, real sources and estimates; two cells have run."""
    turns = Turns()
    graph = turns.loop.graph
    graph.open_source = lambda target: open_named(target, turns.namespace)
    graph.count_tokens, graph.trim = count_tokens, trim_to_tokens
    for name, what in (("one", "line"), ("other", "row")):
        turns.namespace[name] = io.StringIO("\n".join(f"{what} {n} of many words" for n in range(60)))
    turns.namespace["numbers"] = list(range(100))
    turns.run(SETUP)
    return turns


def allowed(name: str, policy: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a node of that kind has not."""
    without = {"n": {"pos", "mode", "freq"}, "inner": {"pos"}, "outer": {"pos"}, "still": {"pos"}}.get(name, set())
    return {key: value for key, value in policy.items() if key not in without}


def told(states: Any) -> list[dict[str, Any]]:
    """Handle states as values; a revision counts each of two ways of getting there."""
    return [
        {
            **{
                key: getattr(one, key)
                for key in ("obj_id", "text", "rendered_tokens", "pinned", "changed", "requested")
            },
            **{key: value for key, value in one.digest.items() if key != "revision"},
        }
        for one in states
    ]


@settings(max_examples=examples(40))
@given(name=st.sampled_from(NAMES), policy=POLICY)
def test_what_is_supposed_is_what_would_be(name: str, policy: dict[str, Any]):
    """The handles, had the last cell set it too: the same as of a cell that did, the groups over them included."""
    policy = allowed(name, policy)
    asked, did = world(), world()
    plain = {key: value for key, value in policy.items() if key != "pinned"}
    did.namespace["policy"] = plain
    pin = {True: f"; {name}.pin()", False: f"; {name}.unpin()", None: ""}[policy.get("pinned")]

    asked.run()
    node = asked.namespace[name]
    supposed = with_handles(asked.loop.state, asked.loop.graph.nodes(), {node.obj_id: policy})
    did.run((f"{name}.set(**policy)" if plain else "pass") + pin)

    assert told(supposed.handles) == told(did.loop.handles())


@settings(max_examples=examples(30))
@given(policies=st.dictionaries(st.sampled_from(NAMES), POLICY, max_size=4))
def test_supposing_changes_nothing(policies: dict[str, dict[str, Any]]):
    """Whatever is supposed, what is refused too: state, digests, events, counts, and what the next cell then gives."""
    asked, idle = world(), world()
    graph, loop = asked.loop.graph, asked.loop

    def state() -> str:
        nodes = [(node.digest(), node.rendered.text, node.dirty) for node in graph.nodes()]
        kept = [json.dumps(dict(node.memento()), sort_keys=True) for node in graph.nodes()]
        return repr((nodes, kept, graph.counts, graph.restores, loop.handles(), len(list(graph.events())), loop.state))

    before = state()
    wanted = {asked.namespace[name].obj_id: policy for name, policy in policies.items()}
    with suppress(CtxError):
        with_handles(loop.state, graph.nodes(), wanted)

    assert state() == before
    asked.run("b.lod = 1")
    idle.run("b.lod = 1")
    assert told(loop.handles()) == told(idle.loop.handles())


def test_a_member_that_is_supposed_otherwise_changes_the_summaries_over_it_and_a_paused_one_not():
    turns = world()
    a = turns.namespace["a"]

    found = suppose(turns.loop.graph.nodes(), {a.obj_id: {"pos": "30:0"}})
    names = {name: turns.namespace[name].obj_id for name in NAMES}

    assert set(found) == {names[name] for name in ("a", "inner", "outer", "still")}
    assert "line 30 of 60" in found[names["inner"]].rendered.text
    assert found[names["outer"]].rendered == turns.namespace["outer"].rendered, "which shows summaries"
    assert found[names["still"]].rendered == turns.namespace["still"].rendered
    assert "line 30" not in turns.namespace["inner"].rendered.text


@pytest.mark.parametrize("policy", [{"lod": 9}, {"tokens": 0}, {"pos": "nowhere"}, {"colour": "red"}])
def test_what_cannot_be_is_not_supposed(policy: dict[str, Any]):
    turns = world()

    with pytest.raises(CtxError):
        suppose(turns.loop.graph.nodes(), {turns.namespace["a"].obj_id: policy})
