"""Texts that give orders, from all places that a model is shown text of, in asks in modes `ask` and `auto`.

A strict server plays a model that obeys, and one that repeats what it read. The tests assert the bytes that it got,
what ran, who decided, and where the kernel connected to.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from injected_orders import ORDERS, PLACES, Order, placed
from scale import QUICK
from test_injection import OURS, TAG
from test_kernel_asking import KEY, Bench, bench_in, cell
from test_model_authority import STAND

from ctxkernel.agent.scripts import split_scripts
from ctxkernel.testing import say

MODELS = {"tools": "claude-sonnet-5-5", "script": "qwen3-coder:30b"}
HOOK = """
import sys, os
zqx_ran, reached = [], []
def noted(event, args):
    if event in ('socket.connect', 'socket.sendto', 'socket.sendmsg', 'socket.getaddrinfo'):
        reached.append(repr(args[1:] if event != 'socket.getaddrinfo' else args[:2]))
sys.addaudithook(noted)
sys.path.insert(0, {tests!r})
"""


class Asking:
    """A kernel in one mode and dialect, with what every request and cell of it must be."""

    def __init__(self, bench: Bench, mode: str, dialect: str) -> None:
        self.bench, self.mode, self.dialect = bench, mode, dialect
        self.said: list[str] = []
        bench.run(HOOK.format(tests=str(Path(__file__).parent)), f"%ctx model {MODELS[dialect]}", "hidden_name = 1")
        bench.run("%ctx private hidden_name")
        self.answers(say("hello"))
        bench.ask("hello?")
        self.system = json.dumps([self.requests[0]["system"], self.requests[0].get("tools")])
        self.stand = self.bench.kernel.evaluate(STAND)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [one.body for one in self.bench.server.requests]

    def answers(self, *blocks: Any) -> None:
        self.bench.answers(*blocks)

    def obeys(self, order: Order) -> None:
        """Ask a model that does what the text demands."""
        if self.dialect == "tools":
            first = [say("As was demanded."), cell(order.code)]
        else:
            first = say(f'As was demanded.\n<script type="text/x-python">\n{order.code}\n</script>')
        self.answers(first, say("It is done."))
        ran = self.bench.ask(f"what about this? ({order})", f"--mode {self.mode}")
        if self.mode == "ask":
            assert ran.reply["ename"] == "Waiting"
            assert self.ran(order) == 0
            self.bench.run("%ctx stop")
        else:
            assert self.ran(order) == (not order.code.startswith("%%"))

    def repeats(self, order: Order) -> None:
        """Ask a model that repeats what it was shown around the marker."""

        def script(body: dict[str, Any]) -> Any:
            users = [block for one in body["messages"] if one["role"] == "user" for block in one["content"]]
            texts = [text for block in users if isinstance(text := block.get("text") or block.get("content"), str)]
            seen = next(text for text in reversed(texts) if order.marker in text and "what does it say" not in text)
            at = seen.index(order.marker)
            return say(f"I read: {seen[max(0, at - 400) : at + 400]}")

        before = self.ran(order)
        self.bench.server.script = script
        self.bench.server.requests.clear()
        ran = self.bench.ask(f"and what does it say? ({order})", f"--mode {self.mode}")
        assert ran.status == "ok", ran.outputs
        assert len(self.requests) == 1
        assert self.ran(order) == before

    def ran(self, order: Order) -> int:
        return self.bench.kernel.evaluate("zqx_ran").count(f"'{order.marker}'")

    # -- what holds ------------------------------------------------------------------------------------

    def check(self) -> None:
        bench = self.bench
        for request in bench.server.requests:
            body = request.body
            assert json.dumps([body["system"], body.get("tools")]) == self.system
            assert {one["role"] for one in body["messages"]} <= {"user", "assistant", "system"}
            assert KEY not in request.raw.decode()
            self._check_blocks(body["messages"])
        assert bench.server.faults == []
        assert all(one.report.ok for one in bench.server.requests)
        assert bench.kernel.evaluate(STAND) == self.stand
        reached = bench.kernel.evaluate("sorted(set(reached))")
        port = bench.server.base_url.rpartition(":")[2]
        assert [one for one in eval(reached) if not ("127.0.0.1" in one and port in one)] == []

    def _check_blocks(self, messages: list[dict[str, Any]]) -> None:
        for one in messages:
            for block in one["content"]:
                text = block.get("text") or block.get("content") or ""
                if one["role"] == "system":
                    assert "zqx" not in json.dumps(block)
                if one["role"] != "user" or not isinstance(text, str) or not text:
                    continue
                tags = [(tag.start(), OURS.match(text, tag.start())) for tag in TAG.finditer(text)]
                assert all(tag and (at == 0 or text[at - 1] == "\n") for at, tag in tags), text[:3000]
                if "zqx" in text and block["type"] == "text":
                    assert text.startswith("<ctx:"), text[:300]
                if self.dialect == "script":
                    parts = split_scripts(text)
                    assert not [part for part in parts if part.kind in ("script", "unfinished")], text[:3000]

    def check_decisions(self) -> None:
        """What a model wrote ran as its own statement; in mode ask none did. No statement is a decision but ours."""
        rows = self.bench.statements
        cells = [row for row in rows if row["author"] == "model" and row["kind"] == "python"]
        ran = [row for row in cells if row["executions"][0]["status"] in ("ok", "error")]
        assert self.mode == "auto" or not ran
        decided = {row["source"] for row in rows if row["source"].startswith("%ctx") and row["author"] != "model"}
        assert decided <= {"%ctx stop", f"%ctx model {MODELS[self.dialect]}", "%ctx private hidden_name"}


@pytest.mark.parametrize("mode", ["ask", "auto"])
@pytest.mark.parametrize("dialect", MODELS)
def test_no_text_that_a_model_is_shown_gives_an_order(tmp_path: Path, mode: str, dialect: str):
    """In the quick run each order is tried once, in one of the four ways; in the full run in all of them."""
    way = 2 * list(MODELS).index(dialect) + (mode == "auto")
    places = list(PLACES)
    with bench_in(tmp_path) as bench:
        asking = Asking(bench, mode, dialect)
        for number, order in enumerate(ORDERS):
            if QUICK and number % 4 != way:
                continue
            place = places[(number + 5 * way) % len(places)]
            bench.kernel.run(placed(place, order))
            asking.obeys(order)
            asking.check()
            asking.repeats(order)
            asking.check()
        asking.check_decisions()


@pytest.mark.parametrize("dialect", MODELS)
def test_a_replayed_answer_gives_no_order(tmp_path: Path, dialect: str):
    """An answer that quotes orders, replayed from the log and shown to the model again, is the model's text."""
    with bench_in(tmp_path) as bench:
        asking = Asking(bench, "ask", dialect)
        for order in ORDERS[:: 6 if QUICK else 1]:
            if dialect == "script" and split_scripts(order.text)[-1].kind in ("script", "unfinished"):
                continue  # there, such an answer is a cell
            asking.answers(say(f"I was told: {order.text}"))
            asked = f"%%ask --mode ask\nwhat were you told? ({order})"
            bench.cell(asked, order.marker)
            bench.cell(asked, order.marker)
            assert len(bench.server.requests) == 1
            asking.answers(say("Well."))
            bench.ask(f"and now? ({order})", "--mode ask")
            asking.check()
            assert asking.ran(order) == 0
            quoting = [one for one in asking.requests[-1]["messages"] if order.marker in json.dumps(one["content"])]
            assert {one["role"] for one in quoting} <= {"assistant"}
        asking.check_decisions()


@pytest.mark.parametrize("place", PLACES)
def test_every_order_is_tried_at_every_place(tmp_path: Path, place: str):
    with bench_in(tmp_path) as bench:
        asking = Asking(bench, "auto", "script")
        for order in ORDERS:
            bench.kernel.run(placed(place, order))
            asking.obeys(order)
            asking.check()
