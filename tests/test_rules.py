"""The rules of a Messages request: for every rule bodies that break it and bodies that nearly do."""

from __future__ import annotations

import base64
import copy
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutate_rules import rules, without

from ctxkernel.history.capabilities import CAUTIOUS, MODELS, Capabilities, capabilities_for
from ctxkernel.history.clauses import text_fault
from ctxkernel.history.rules import RULES, check

NEW = capabilities_for("claude-sonnet-5-5")
OLD = capabilities_for("claude-haiku-4-5")
Json = Any


def text(content: str, **more: Json) -> dict[str, Json]:
    return {"type": "text", "text": content, **more}


def user(*blocks: Json) -> dict[str, Json]:
    return {"role": "user", "content": list(blocks) or [text("go on")]}


def assistant(*blocks: Json) -> dict[str, Json]:
    return {"role": "assistant", "content": list(blocks) or [text("done")]}


def call(id: str = "t1", name: str = "run") -> dict[str, Json]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def result(id: str = "t1", **more: Json) -> dict[str, Json]:
    return {"type": "tool_result", "tool_use_id": id, "content": "ok", **more}


def thinking(signature: str = "c2ln") -> dict[str, Json]:
    return {"type": "thinking", "thinking": "hm", "signature": signature}


def system(**more: Json) -> dict[str, Json]:
    return {"role": "system", "content": "state", **more}


def body(*messages: Json, **top: Json) -> dict[str, Json]:
    return {"model": "m", "max_tokens": 4096, "messages": list(messages) or [user()], **top}


def image(data: bytes | str = b"GIF89a\x01\x00\x01\x00") -> dict[str, Json]:
    encoded = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded}}


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\0\0\0"


def jpeg(width: int, height: int) -> bytes:
    start = b"\xff\xd8\xff\xe0\x00\x10" + bytes(14) + b"\xff\xc0\x00\x11\x08"
    return start + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes(10)


def marked(ttl: str | None = None) -> dict[str, Json]:
    return {"cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}}


ENABLED = {"type": "enabled", "budget_tokens": 1024}
EDITS = [{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}]
WITH_EDITS = capabilities_for("claude-sonnet-5-5", betas=["context-management-2025-06-27"])
CLEAR_AT = capabilities_for("claude-sonnet-5-5", betas=["mid-conversation-system-clear-at-2026-08-21"])
LOOP = [user(), assistant(text("a"), call()), user(result())]
MORE = [assistant(call("t2")), user(result("t2"))]
CYCLE: list[Json] = []
CYCLE.append(CYCLE)
DEEP: Json = []
for _ in range(300):
    DEEP = [DEEP]

# (rule, model, bad bodies, good bodies). A bad body breaks that rule and no other, so each rule is needed.
ROWS: list[tuple[str, Capabilities, list[Json], list[Json]]] = [
    (
        "shape",
        NEW,
        [
            None,
            [],
            {},
            body(model=1),
            body(max_tokens=True),
            body(max_tokens=-1),
            {"model": "m", "max_tokens": 1, "messages": []},
            body(messages="hi"),
            body("hi"),
            body({"role": "tool", "content": "x"}),
            body({"role": "user", "content": 7}),
            body(user("hi")),
            body(user({"text": "no type"})),
            body(user(text("a"), {"type": "text", "text": None})),
            body(user(text("a"), call())),
            body(system=3),
            body(system=[call()]),
            body(tools={}),
            body(tools=["run"]),
            body(thinking="yes"),
            body(user(text("a", cache_control="ephemeral"))),
            body(user(text("a", cache_control={"type": "persistent"}))),
            body(cache_control={}),
            body(tools=[{"name": "a", "cache_control": "ephemeral"}]),
            body(user(), assistant(call()), user(result(content=[text("ok", cache_control={})]))),
            body(user(), assistant({**call(), "input": "x"}), user(result())),
            body(user(), assistant(call()), user(result(content=[{"type": "text"}]))),
        ],
        [body(), body({"role": "user", "content": "hi"}), body(max_tokens=0), body(user({"type": "not_known_yet"}))],
    ),
    (
        "json_values",
        NEW,
        [
            body(metadata={1: "x"}),
            body(metadata={"x": float("nan")}),
            body(metadata={"x": b"bytes"}),
            body(metadata={"x": {1, 2}}),
            body(metadata={"x": CYCLE}),
            body(metadata={"x": DEEP}),
        ],
        [body(metadata={"x": [1.5, True, None, "y"]}), body(metadata={"x": [[LOOP, LOOP]] * 2})],
    ),
    ("surrogates", NEW, [body(user(text("a\ud800b"))), body(metadata={"\udfff": "x"})], [body(user(text("a😀b")))]),
    (
        "size",
        NEW,
        [body(user(text("x" * 32_000_001))), body(*[user()] * 100_001)],
        [body(user(text("x" * 31_000_000)))],
    ),
    (
        "images",
        OLD,
        [
            body(user(*[image()] * 101)),
            body(user(image("A" * 10_000_001))),
            body(user(image(png(8001, 10)))),
            body(user(image(jpeg(10, 9000)))),
            body(user(), assistant(call()), user(result(content=[image(png(10, 8001))]))),
            body(user(*[image()] * 20, image(png(2001, 10)))),
        ],
        [
            body(user(*[image()] * 100)),
            body(user(*[image()] * 20, image(png(2000, 10)))),
            body(user(*[image()] * 19, image(png(2001, 10)))),
            body(user(image(png(8000, 8000)), image(jpeg(8000, 8)), image("not base64!"))),
        ],
    ),
    (
        "gated_fields",
        NEW,
        [
            body(context_management={"edits": []}),
            body(mcp_servers=[]),
            body(user(), system(clear_at="next_user_message")),
            body(thinking={"type": "adaptive", "block_binding": {}}),
        ],
        [body(), body(output_config={"effort": "low"}), body(user(), system())],
    ),
    ("gated_fields", CLEAR_AT, [body(fallbacks=[])], [body(user(), system(clear_at="never"))]),
    ("sampling", NEW, [body(temperature=1), body(top_p=0.5), body(top_k=3)], [body()]),
    ("first_role", NEW, [body(assistant(), user())], [body(user(), assistant(), user())]),
    ("alternation", CAUTIOUS, [body(user(), user())], [body(user(), assistant(), user())]),
    ("prefill", NEW, [body(user(), assistant())], [body(user(), assistant(), user())]),
    (
        "trailing_space",
        OLD,
        [body(user(), assistant(text("so "))), body(user(), {"role": "assistant", "content": "so\n"})],
        [body(user(), assistant(text("so"))), body(user(), assistant(text("so ")), user())],
    ),
    (
        "system_place",
        NEW,
        [
            body(user(), system(), user()),
            body(user(), assistant(), system(), assistant(), user()),
            body(user(), system(), system()),
        ],
        [
            body(user(), system()),
            body(user(), system(), assistant(), user()),
            body(user(), assistant({"type": "web_search_tool_result", "content": []}), system()),
        ],
    ),
    ("system_place", OLD, [body(user(), system())], [body(user())]),
    (
        "system_place",
        CLEAR_AT,
        [body({**user(), "clear_at": "never"})],
        [body(user(), system(clear_at="next_user_message"), assistant(), user())],
    ),
    (
        "blank_text",
        NEW,
        [
            body(user(text(""))),
            body(user(text(" \n\t"))),
            body({"role": "user", "content": ""}),
            body({"role": "user", "content": []}),
            body(system=""),
            body(system=[text(" ")]),
            body(user(), assistant(call()), user(result(content=[text("")]))),
        ],
        [body(user(text("."))), body(user(), assistant(call()), user({"type": "tool_result", "tool_use_id": "t1"}))],
    ),
    (
        "unanswered_calls",
        NEW,
        [
            body(user(), assistant(call()), user()),
            body(user(), assistant(call("a"), call("b")), user(result("a"))),
        ],
        [body(*LOOP), body(user(), assistant(call("a")), assistant(call("b")), user(result("b"), result("a")))],
    ),
    ("unanswered_calls", OLD, [body(user(), assistant(call()))], [body(*LOOP)]),
    (
        "results_first",
        NEW,
        [
            body(user(), assistant(call()), user(text("so:"), result())),
            body(user(), assistant(call("a"), call("b")), user(result("a"), text("and"), result("b"))),
            body(user(), assistant(call("a"), call("b")), user(result("a"), text("and")), user(result("b"))),
        ],
        [body(user(), assistant(call()), user(result(), text("so?")))],
    ),
    (
        "orphan_results",
        NEW,
        [body(user(result())), body(*LOOP, assistant(), user(result()))],
        [body(*LOOP), body(*LOOP, assistant(call("t2")), user(result("t2")))],
    ),
    ("single_results", NEW, [body(user(), assistant(call()), user(result(), result()))], [body(*LOOP)]),
    (
        "unique_calls",
        NEW,
        [body(*LOOP, assistant(call()), user(result()))],
        [body(*LOOP, assistant(call("t2")), user(result("t2")))],
    ),
    (
        "call_ids",
        NEW,
        [
            body(user(), assistant(call("call:1")), user(result("call:1"))),
            body(user(), assistant(call("")), user(result(""))),
        ],
        [body(user(), assistant(call("toolu_01-a")), user(result("toolu_01-a")))],
    ),
    (
        "tool_names",
        NEW,
        [
            body(tools=[{"name": "a b"}]),
            body(tools=[{"name": ""}]),
            body(tools=[{"name": "a" * 65}]),
            body(tools=[{"input_schema": {}}]),
            body(tools=[{"name": "a"}, {"name": "a"}]),
            body(user(), assistant(call("t1", "math.add")), user(result())),
        ],
        [body(tools=[{"name": "a" * 64}, {"name": "b"}, {"type": "mcp_toolset"}])],
    ),
    (
        "error_results",
        NEW,
        [body(user(), assistant(call()), user(result(is_error=True, content=[text("no"), image()])))],
        [
            body(user(), assistant(call()), user(result(is_error=True, content=[text("no")]))),
            body(user(), assistant(call()), user(result(is_error=False, content=[image()]))),
        ],
    ),
    (
        "forced_choice",
        NEW,
        [body(tool_choice={"type": "any"}), body(tool_choice={"type": "tool", "name": "run"})],
        [body(tool_choice={"type": "auto"}), body(tool_choice={"type": "none"})],
    ),
    (
        "thinking_signed",
        NEW,
        [
            body(user(), assistant(thinking(""), text("a")), user()),
            body(user(), assistant({"type": "thinking", "thinking": "hm"}, text("a")), user()),
            body(user(), assistant({"type": "redacted_thinking", "data": ""}, text("a")), user()),
        ],
        [body(user(), assistant(thinking(), {"type": "redacted_thinking", "data": "eA=="}, text("a")), user())],
    ),
    (
        "thinking_last",
        OLD,
        [body(user(), assistant(text("a"), thinking()))],
        [body(user(), assistant(text("a"), thinking()), user()), body(user(), assistant(thinking(), text("a")))],
    ),
    (
        "thinking_budget",
        OLD,
        [
            body(thinking={"type": "enabled", "budget_tokens": 1023}),
            body(thinking={"type": "enabled", "budget_tokens": 4096}),
            body(thinking={"type": "enabled"}),
        ],
        [body(thinking=ENABLED), body(thinking={"type": "disabled"})],
    ),
    (
        "thinking_first",
        OLD,
        [
            body(*LOOP, thinking=ENABLED),
            body(*LOOP, assistant(call("t2")), user(result("t2")), thinking=ENABLED),
            body(user(), assistant(thinking(), text("a")), *LOOP, thinking=ENABLED),
        ],
        [
            body(user(), assistant(thinking(), call()), *LOOP[2:], *MORE, thinking=ENABLED),
            body(user(), assistant(thinking(), call()), user(result()), thinking=ENABLED),
            body(*LOOP, assistant(), user(), thinking=ENABLED),
            body(*LOOP),
        ],
    ),
    (
        "thinking_type",
        NEW,
        [body(thinking=ENABLED), body(thinking={"type": "disabled"}), body(thinking={})],
        [body(thinking={"type": "adaptive"}), body(thinking={"type": "between_tools"})],
    ),
    ("thinking_type", OLD, [body(thinking={"type": "adaptive"})], [body(thinking=ENABLED)]),
    (
        "thinking_type",
        capabilities_for("claude-opus-5"),
        [body(thinking={"type": "disabled"}, output_config={"effort": effort}) for effort in ("xhigh", "max", [])],
        [
            body(thinking={"type": "disabled"}),
            body(thinking={"type": "disabled"}, output_config={"effort": "high"}),
            body(thinking={"type": "adaptive"}, output_config={"effort": "max"}),
        ],
    ),
    (
        "cache_count",
        NEW,
        [
            body(user(*[text("a", **marked())] * 5)),
            body(user(*[text("a", **marked())] * 3), system=[text("s", **marked())], **marked()),
        ],
        [body(user(*[text("a", **marked())] * 3), system=[text("s", **marked("1h"))])],
    ),
    (
        "cache_ttl",
        NEW,
        [
            body(user(text("a", **marked("1h"))), system=[text("s", **marked())]),
            body(user(text("a", **marked("5m")), text("b", **marked("1h")))),
            body(user(text("a", **marked("1d")))),
            body(user(), assistant(call()), user({**result(content=[text("a", **marked("5m"))]), **marked("1h")})),
            body(user(text("a", **marked())), **marked("1h")),
        ],
        [
            body(user(text("a", **marked("5m"))), system=[text("s", **marked("1h"))], **marked()),
            body(user(), assistant(call()), user({**result(content=[text("a", **marked("1h"))]), **marked("5m")})),
        ],
    ),
    (
        "cache_target",
        NEW,
        [body(user(), assistant({**thinking(), **marked()}, text("a")), user())],
        [body(user(), assistant(thinking(), text("a", **marked())), user())],
    ),
    (
        "context_edits",
        WITH_EDITS,
        [body(context_management={"edits": EDITS[::-1]})],
        [body(context_management={"edits": EDITS}), body(context_management={"edits": "none"})],
    ),
]


# What is known to be refused, from the API's documentation and its answers, and the rules that find it.
KNOWN: dict[str, tuple[str, ...]] = {
    "the first role is user": ("first_role",),
    "two of one role in a row, where they are not merged": ("alternation",),
    "prefill on newer models": ("prefill",),
    "trailing white space of a prefill": ("trailing_space",),
    "an empty or blank text": ("blank_text",),
    "an unanswered call": ("unanswered_calls",),
    "results come first": ("results_first",),
    "an orphan result": ("orphan_results",),
    "two results of a call, two calls of an id": ("single_results", "unique_calls"),
    "characters of an id, names of tools": ("call_ids", "tool_names"),
    "an error with an image": ("error_results",),
    "thinking that was edited": ("thinking_signed",),
    "thinking as the last block": ("thinking_last",),
    "manual thinking": ("thinking_budget", "thinking_first"),
    "the type of thinking": ("thinking_type",),
    "the place of a system message": ("system_place",),
    "breakpoints of the cache": ("cache_count", "cache_ttl", "cache_target", "blank_text"),
    "size": ("size", "images"),
    "a lone surrogate": ("surrogates",),
    "a field without its beta": ("gated_fields",),
    "the order of context edits": ("context_edits",),
    "a forced tool": ("forced_choice",),
    "sampling parameters": ("sampling",),
    "what is no request at all": ("shape", "json_values"),
}
NO_REFUSAL: dict[str, Json] = {
    "two of one role in a row are merged": body(user(), user(), assistant(), assistant(), user()),
    "a prefix too short for the cache": body(user(text("a", **marked()))),
    "a breakpoint 21 blocks after the last": body(user(*[text("a")] * 21, text("b", **marked())), **marked()),
    "results that are cleared, oldest first": body(context_management={"edits": EDITS[1:]}),
}


def test_every_known_refusal_has_its_rules_and_every_rule_its_refusal():
    named = {rule for rules in KNOWN.values() for rule in rules}

    assert named == {rule.__name__ for rule in RULES} == {row[0] for row in ROWS}


@pytest.mark.parametrize("good", NO_REFUSAL.values(), ids=list(NO_REFUSAL))
def test_what_is_no_refusal_passes(good: Json):
    assert check(good, WITH_EDITS).violations == ()


def cases(index: int) -> list[Any]:
    return [
        pytest.param(row[0], row[1], one, id=f"{row[0]}-{row[1].model or 'cautious'}-{n}")
        for row in ROWS
        for n, one in enumerate(row[index])
    ]


@pytest.mark.parametrize(("rule", "capabilities", "bad"), cases(2))
def test_a_body_that_breaks_a_rule_is_refused_by_that_rule_alone(rule: str, capabilities: Capabilities, bad: Json):
    report = check(bad, capabilities)

    assert not report.ok
    assert {violation.rule for violation in report.violations} == {rule}
    assert all(violation.message and violation.fix for violation in report.violations)


@pytest.mark.parametrize(("rule", "capabilities", "good"), cases(3))
def test_a_body_that_nearly_breaks_a_rule_passes(rule: str, capabilities: Capabilities, good: Json):
    assert check(good, capabilities).violations == ()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_is_needed(rule: Any):
    """Without it some bad body passes."""
    fewer = tuple(other for other in RULES if other is not rule)

    assert any(check(bad, row[1], rules=fewer).ok for row in ROWS if row[0] == rule.__name__ for bad in row[2])


@pytest.mark.parametrize("rule", sorted(rules()))
def test_a_rule_that_is_taken_out_is_missed(rule: str):
    """The mutation check for the rules; `python tests/mutate_rules.py` has the properties too."""
    bad, capabilities = next((row[2][0], row[1]) for row in ROWS if row[0] == rule)

    with without(rule):
        assert check(bad, capabilities).ok
    assert not check(bad, capabilities).ok


def test_the_path_leads_to_the_fault():
    bad = body(user(text("a")), assistant(call()), user(result(content=[text("ok"), text("")])))

    report = check(bad, NEW)

    assert [violation.path for violation in report.violations] == ["messages[2].content[0].content[1]"]


def test_a_report_as_json_has_the_keys_of_the_schema():
    assert check(body(user(text(""))), NEW).to_json() == {
        "ok": False,
        "violations": [
            {
                "rule": "blank_text",
                "path": "messages[0].content[0]",
                "message": "text content blocks must be non-empty",
                "fix": "leave the block out, or say `(empty)`",
            }
        ],
    }


def test_a_rule_that_fails_is_a_violation():
    """A body that could not be checked must not be sent."""

    def broken(request: Any, capabilities: Capabilities) -> Any:
        raise RuntimeError("boom")

    assert [violation.rule for violation in check(body(), NEW, rules=[broken]).violations] == ["broken"]


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4),
    max_leaves=12,
)
SAMPLES = [one for row in ROWS for one in (*row[2], *row[3]) if row[0] not in ("size", "images", "json_values")]


def places(value: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in items for found in places(item, (*path, key)))]


@given(st.sampled_from(SAMPLES), st.data())
def test_no_body_makes_the_check_raise(sample: Json, data: st.DataObject):
    """Whatever stands anywhere in a body is at worst a violation."""
    mutated = copy.deepcopy(sample)
    path = data.draw(st.sampled_from(places(mutated)))
    value = data.draw(json_like)
    if path:
        parent = mutated
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = value
    else:
        mutated = value

    report = check(mutated, data.draw(st.sampled_from([NEW, OLD, CAUTIOUS, WITH_EDITS])))

    assert report.ok == (not report.violations)
    assert not any("could not be checked" in violation.message for violation in report.violations)


@pytest.mark.parametrize("value", [[], {}, [[]], None, 1.5], ids=repr)
def test_what_cannot_be_a_key_is_a_violation_at_worst_wherever_it_stands(value: Json):
    """A rule looks texts up in sets: a list in the place of a text cannot be looked up at all."""
    for sample in SAMPLES:
        for path in filter(None, places(sample)):
            mutated = copy.deepcopy(sample)
            parent = mutated
            for step in path[:-1]:
                parent = parent[step]
            parent[path[-1]] = value
            report = check(mutated, NEW)
            assert not [one for one in report.violations if "could not be checked" in one.message], path


def test_shared_parts_do_not_multiply():
    """A body of 2**60 nodes that share their parts is looked at once."""
    shared: Json = "x"
    for _ in range(60):
        shared = [shared, shared]

    assert check(body(metadata={"x": shared}), NEW).ok


@pytest.mark.parametrize("count", [1_000, 8_000])
def test_the_check_is_linear(count: int):
    long = body(*(message for n in range(count) for message in (assistant(call(f"t{n}")), user(result(f"t{n}")))))
    long["messages"].insert(0, user())
    start = time.process_time()

    assert check(long, NEW).ok
    assert time.process_time() - start < count * 600e-6  # some 100 µs a pair here; a quadratic rule takes seconds


# -- capabilities ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("claude-opus-5-5", "claude-opus-5-5"),
        ("claude-opus-5", "claude-opus-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("anthropic/claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-opus-5-55", ""),
        ("claude-opus-9", ""),
        ("qwen3-coder", ""),
        ("", ""),
    ],
)
def test_a_model_has_its_row_and_an_unknown_one_the_cautious_row(name: str, row: str):
    assert capabilities_for(name).model == row


def test_every_model_is_found_by_its_own_name():
    assert [capabilities_for(row.model).model for row in MODELS] == [row.model for row in MODELS]


def test_the_cautious_row_permits_nothing_that_any_model_refuses():
    for row in MODELS:
        for field in ("prefill", "forced_tool_choice", "mid_system", "sampling", "merges_roles"):
            assert getattr(row, field) or not getattr(CAUTIOUS, field)
        assert row.thinking >= CAUTIOUS.thinking
        assert row.max_images >= CAUTIOUS.max_images


def test_the_rules_of_one_text_are_those_of_a_block():
    """`text_fault` is what a projection asks of each new text; the check says the same of it."""
    for one in ("", " \n", "\u2003", "a\ud800", "a", "␀", "\x00", "\ufeff"):
        assert bool(text_fault(one)) != check(body(user(text(one))), NEW).ok, repr(one)
