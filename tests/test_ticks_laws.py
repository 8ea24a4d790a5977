"""The laws of DESIGN.md over random programs: calls of handles, files edited between cells, updates that come in any
order, ticks and returns; with real files, a worker without threads, and the real projection.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import re
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core import scheduler
from ctxkernel.core.nodes import GroupHandle, ViewHandle
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.scheduler import Tick
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline_events import AsyncPayloadApplied
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources import open_named
from ctxkernel.sources.files.files import FileSource
from ctxkernel.testing import AtOnce, FakeSource, HeldJobs, Turns
from ctxkernel.testing.fake_workers import run

FILES = ("model.py", "run.log", "data.csv")
POLICIES = (
    "{h}.lod = {n} % 3", "{h}.lod = 3", "{h}.tokens = 40 + 30 * {n}", "{h}.pause()", "{h}.run('Sync')",
    "{h}.run('Async')", "{h}.run(('Periodic', 5))", "{h}.refresh()", "pin({h}, 'why')", "show({h})",
    "if {h}.obj_type == 'view': {h}.pos = {n}", "{h}.min_turn_interval = 1 + {n} % 3",
)  # fmt: skip
EDITS = ("def f{n}(x):\n    return {n}\n", "a,b\n{n},2\n", "INFO step {n}\n" * 30, "", "# {n}\n" + "x = 1\n" * 40)
Step = tuple[str, int, int]
CALLS = ("view", "async", "view", "async", "group", "nest", "policy", "policy", "fake", "del", "rebind", "goto", "idle")
KINDS = (*CALLS, "edit", "edit", "append", "remove", "finish", "finish", "late")
STEPS = st.tuples(st.sampled_from(KINDS), st.integers(0, 11), st.integers(0, 7))


class Program:
    """A session under way, to which steps are done; what must hold at each is looked at there."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.clock = 10**18
        for number, name in enumerate(FILES):
            self.write(name, EDITS[number].format(n=number))
        config = Settings(projection_tokens=2_000, ready_per_turn=2)
        self.turns = Turns(config, projector=ProjectionEngine(config, count_tokens))
        self.loop, self.graph, self.names = self.turns.loop, self.turns.loop.graph, self.turns.namespace
        self.graph.open_source = lambda target: target if isinstance(target, FakeSource) else open_named(target, {})
        self.held = self.loop.preparer = HeldJobs(self.loop.ready)
        self.names.update(src=FakeSource("one"), folder=folder)
        self.made = 0
        self.given_up = []
        self.turns.run("h0 = view(src)")

    def write(self, name: str, text: str | None, mode: str = "w") -> None:
        """Edit a file, with a time of its own: the clock of a file system may stand still for milliseconds."""
        path = self.folder / name
        if text is None:
            path.unlink(missing_ok=True)
            return
        with path.open(mode) as file:
            file.write(text)
        self.clock += 10**9
        os.utime(path, ns=(self.clock, self.clock))

    def handles(self, kind=object):
        return [name for name, one in self.names.items() if name[0] == "h" and isinstance(one, kind)]

    def do(self, step: Step) -> None:
        """Do one step."""
        what, a, b = step
        outside = self.state()
        if what == "edit":
            self.write(FILES[a % 3], EDITS[b % 5].replace("{n}", str(a)))
        elif what == "append":
            self.write(FILES[a % 3], f"line {b}\n", "a")
        elif what == "remove":
            self.write(FILES[a % 3], None)
        elif what == "finish":
            self.held.finish(a)
        elif what == "late" and self.given_up:
            job = self.given_up.pop(a % len(self.given_up))
            self.held.put(job, run(job))
        else:
            self.cell(what, a, b)
            return
        assert self.state() == outside, "law 1: nothing but a statement or a tick changes a node"

    def cell(self, what: str, a: int, b: int) -> None:
        """Run the cell that a step stands for."""
        handles = self.handles()
        one = handles[a % len(handles)]
        new = f"h{self.made + 1}"
        code = "pass"
        if what in ("view", "async"):
            self.made += 1
            there = self.folder / FILES[a % 3]
            freq = ("None", "'Sync'", "('Periodic', 3)")[b % 3] if what == "view" else "'Async'"
            if there.exists():
                code = f"{new} = view(folder + '/{there.name}', lod={b % 3}, tokens=120, freq={freq})"
        elif what in ("group", "nest"):
            self.made += 1
            among = handles if what == "group" else self.handles(GroupHandle) or handles
            code = f"{new} = group({among[a % len(among)]}, {among[b % len(among)]}, tokens=150, lod={b % 4})"
        elif what == "policy":
            code = POLICIES[a % len(POLICIES)].format(h=handles[b % len(handles)], n=b)
        elif what == "fake":
            code = f"src.text = 'words {b} ' * {1 + a}"
        elif what == "del" and len(handles) > 1:
            code = f"del {one}"
        elif what == "rebind" and len(handles) > 1:
            code = f"{one} = {handles[b % len(handles)]}"
        paused = {node.obj_id: node.memento() for node in self.graph.nodes() if node.mode == "paused"}
        wanted = list(self.held.jobs)
        if what == "goto":
            places = [place for place in self.turns.states if place is not None]
            self.turns.goto(places[a % len(places)])
        else:
            self.turns.run(code, seconds=2.0)
        gc.collect(0)
        self.given_up += [job for job in wanted if job not in self.held.jobs]
        for node in self.graph.nodes():
            if code == "pass" and what != "goto" and node.obj_id in paused:
                assert node.memento() == paused[node.obj_id], "a tick leaves a paused node alone"

    def state(self) -> str:
        """Return all that the nodes are."""
        return json.dumps([[node.memento(), node.digest()] for node in self.graph.nodes()], default=str)

    def settle(self) -> None:
        """Let everything that is under way arrive, until there is nothing more."""
        calm = 0
        for _ in range(60):
            while self.held.jobs:
                self.held.finish()
            before = self.state()
            self.turns.run(seconds=100.0)
            calm = 0 if self.held.jobs or len(self.loop.ready) or self.state() != before else calm + 1
            if calm > 3:  # turns, which is the longest `min_turn_interval`
                return
        raise AssertionError("it never comes to rest")


def played(steps: list[Step], folder: str) -> Program:
    program = Program(folder)
    for step in steps:
        program.do(step)
    return program


PROGRAMS = st.lists(STEPS, max_size=16)


@settings(max_examples=examples(60))
@given(PROGRAMS)
@example([("async", 0, 0), ("edit", 0, 1), ("idle", 0, 0), ("goto", 0, 0), ("finish", 0, 0), ("late", 0, 0)])
def test_what_was_made_step_by_step_is_what_would_be_made_anew(steps):
    """Laws 1 and 3: whatever came in whatever order, a running handle shows its target as it is."""
    with tempfile.TemporaryDirectory() as folder:
        program = played(steps, folder)
        program.settle()
        for node in program.graph.nodes():
            if isinstance(node, GroupHandle):
                # Of a paused member the group shows what it showed when another one changed.
                if all(one.mode == "running" for one in (node, *node.nested())):
                    assert node.rendered.text == node.render().text
            elif node.mode == "running" and node.lod < 3 and isinstance(node, ViewHandle):
                target = node.looks_at
                anew = FileSource(target, target) if isinstance(target, str) else target
                if isinstance(target, str) and not os.path.exists(target):
                    assert re.search("missing|gone: no file", node.rendered.text)
                    continue
                assert node.rendered.text == anew.render(RenderRequest(node.lod, node.pos, node.tokens)).text


@settings(max_examples=examples(40))
@given(PROGRAMS)
def test_an_idle_tick_is_no_tick(steps):
    """Law 6: the same state, bytes and receipt. Law 7: every block says why it is there, from where, at what cost."""
    with tempfile.TemporaryDirectory() as folder:
        program = played(steps, folder)
        program.settle()
        loop, engine = program.loop, program.turns.projector
        state, handles = program.state(), loop.handles()
        first = engine.project(dataclasses.replace(loop.state, handles=handles, deltas=()))
        events: list[object] = []
        loop.graph.emit = events.append
        scheduler.run_tick(Tick(program.graph, loop.ready, loop.now, loop.turn_id + 1, lambda: False, loop.preparer))
        again = engine.project(dataclasses.replace(loop.state, handles=loop.handles(), deltas=()))

        assert program.state() == state
        assert events == []
        assert (again.request_bytes, again.receipt) == (first.request_bytes, first.receipt)
        for block in again.blocks:
            assert block.why
            assert block.origin
            assert block.tokens >= 0
        assert all(one.why for one in again.left_out)


@settings(max_examples=examples(40))
@given(PROGRAMS)
def test_a_return_is_itself_reversible_and_the_log_only_grows(steps):
    """Law 2, with handles: there and back again, and every one is as it was, whoever prepared what meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        program = played(steps, folder)
        program.settle()
        turns, log = program.turns, program.loop.log
        here, before = log.head, program.graph.memento()
        known = [(one.statement_id, log.executions(one.statement_id)) for one in log]
        places = [place for place in turns.states if place is not None]
        for place in (places[0], places[len(places) // 2]):
            turns.goto(place)
            program.held.finish()
        turns.goto(here)
        program.held.finish()

        assert [(one.statement_id, log.executions(one.statement_id)) for one in log][: len(known)] == known
        after = program.graph.memento()
        assert after.keys() == before.keys()
        for obj_id, memento in before.items():
            if (path := memento.get("spec")) is None or os.path.exists(path):  # one that is gone is told in other words
                assert after[obj_id]["rendered"]["text"] == memento["rendered"]["text"]


@settings(max_examples=examples(25))
@given(count=st.integers(1, 9), cap=st.integers(1, 4))
def test_where_all_produce_at_every_turn_each_has_its_turn(count, cap):
    turns = Turns(Settings(ready_per_turn=cap))
    sources = turns.namespace["sources"] = [FakeSource("0") for _ in range(count)]
    turns.run("hs = [view(source, freq='Async') for source in sources]")
    turns.loop.preparer = AtOnce(turns.loop.ready)
    applied = {handle.obj_id: 0 for handle in turns.namespace["hs"]}
    within = math.ceil(count / cap) + 1
    for turn in range(1, 5 * within):
        for source in sources:
            source.text = str(turn)
        events = [event for event in turns.run().events if isinstance(event, AsyncPayloadApplied)]
        assert len(events) <= cap
        for event in events:
            applied[event.obj_id] = turn
        assert all(turn - last <= within for last in applied.values())
