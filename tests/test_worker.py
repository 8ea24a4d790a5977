"""The workers, on real threads: what they may not do, what is given up, and what hangs."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import contextmanager

import pytest

from ctxkernel.core.errors import OutsideTurn
from ctxkernel.core.jobs import Preparation
from ctxkernel.core.settings import Settings
from ctxkernel.kernel.execution import workers as workers
from ctxkernel.kernel.execution.workers import Worker
from ctxkernel.testing import FakeSource, HeldJobs, Turns


def until(holds, seconds=20.0):
    """Wait for what a worker is about to do."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.002)


class Gate(FakeSource):
    """A source that hangs, for whoever asks it from another thread, until its gate is opened."""

    def __init__(self, text="one", label="gate"):
        super().__init__(text, label)
        self.gate = threading.Event()
        self.entered = threading.Event()

    def render(self, request):
        if threading.current_thread() is not threading.main_thread():
            self.entered.set()
            assert self.gate.wait(60)
        return super().render(request)


class Probe(FakeSource):
    """A source that runs code of a test when a worker asks it."""

    attempt = None
    raised = None

    def render(self, request):
        if threading.current_thread() is not threading.main_thread() and self.attempt is not None:
            attempt, self.attempt = self.attempt, None
            try:
                attempt()
            except BaseException as fault:
                self.raised = fault
                raise
        return super().render(request)


@contextmanager
def working(**names):
    """Turns whose handles belong to this thread, and a worker for them."""
    turns = Turns()
    turns.namespace.update(names)
    main = threading.get_ident()
    turns.loop.graph.owner = lambda: threading.get_ident() == main
    turns.loop.preparer = worker = Worker(turns.loop.ready)
    try:
        yield turns
    finally:
        worker.close()
        for source in names.values():
            if isinstance(source, Gate):
                source.gate.set()


def begin_update(turns, src: Gate) -> None:
    """Make `h`, change what it looks at, and wait until a worker is at it."""
    turns.run("h = view(src).run('Async')")
    src.text = "two"
    turns.run()
    until(src.entered.is_set)


TRIES = [
    "h.lod = 1", "h.set(tokens=3)", "h.refresh()", "h.pause()", "h.Tick(0, 1, 'sync')", "h.dirty = True",
    "h.revision = 9", "h._rendered = None", "h._lod = 3", "h._mode = 'paused'", "g.add(h)", "g._members = []",
    "view(src)", "group(h)", "tick()", "h.apply(h.job().run())",
]  # fmt: skip


@pytest.mark.parametrize("code", TRIES)
def test_a_worker_that_touches_a_node_fails_loudly_and_changes_nothing(code):
    src = Probe("one")
    with working(src=src) as turns:
        turns.run("h = view(src).run('Async'); g = group(h)")
        names = {**turns.namespace, **{name: getattr(turns.loop, name) for name in ("view", "group", "tick")}}
        before = turns.loop.graph.memento()
        src.attempt = lambda: exec(code, names)
        src.text = "two"
        turns.run()  # hands it out while the door is open, closes it, …
        until(lambda: src.raised is not None and turns.loop.ready.waiting())
        assert turns.loop.graph.memento() == before
        result = turns.run()

        assert isinstance(src.raised, OutsideTurn)
        assert "another thread" in str(src.raised)
        assert any("OutsideTurn" in notice and "v1" in notice for notice in result.notices)
        assert names["h"].rendered.text == "L0 one"


def test_what_a_worker_prepared_is_applied_by_the_next_tick():
    src = FakeSource("one")
    with working(src=src) as turns:
        turns.run("h = view(src).run('Async')")
        src.text = "two"
        turns.run()
        until(turns.loop.ready.waiting)
        assert turns.namespace["h"].rendered.text == "L0 one"
        turns.run()

        assert turns.namespace["h"].rendered.text == "L0 two"


GIVEN_UP = ["h.pause()", "del h", "h = None", "h.lod = 1", "h.run('Sync')"]


@pytest.mark.parametrize("code", GIVEN_UP)
def test_the_result_of_a_job_that_nobody_wants_any_more_never_comes(code):
    src = Gate()
    with working(src=src) as turns:
        begin_update(turns, src)
        turns.run(code)
        src.gate.set()
        worker = turns.loop.preparer
        until(lambda: not worker._given_up and not worker._running)

        assert not turns.loop.ready.waiting()


def test_a_return_gives_up_what_was_prepared_for_the_place_that_is_left():
    src = Gate()
    with working(src=src) as turns:
        turns.run("h = view(src).run('Async')")
        turns.run("src.text = 'two'")
        until(src.entered.is_set)
        turns.goto("s2.1")  # s1 is what the names came by
        src.gate.set()
        until(lambda: not turns.loop.preparer._given_up)
        turns.run()

        assert turns.namespace["h"].rendered.text == "L0 one"


def test_a_worker_keeps_no_handle_alive():
    src = Gate()
    with working(src=src) as turns:
        begin_update(turns, src)
        handle = weakref.ref(turns.namespace["h"])
        turns.run("del h")
        gc.collect()

        assert handle() is None


def test_what_hangs_is_named_once_with_the_next_move_and_holds_up_nobody(monkeypatch):
    monkeypatch.setattr(workers, "HANGS_SECONDS", 0.05)
    gates = {f"g{number}": Gate(label=f"gate {number}") for number in range(workers.WORKERS)}
    with working(src=FakeSource("one"), **gates) as turns:
        turns.run(f"hs = [view(g).run('Async') for g in ({', '.join(gates)},)]; h = view(src).run('Async')")
        for gate in gates.values():
            gate.text = "two"
        turns.namespace["src"].text = "two"
        turns.run()
        until(lambda: all(gate.entered.is_set() for gate in gates.values()))
        time.sleep(0.06)
        told = turns.run().notices
        until(turns.loop.ready.waiting)
        again = turns.run().notices

        assert turns.namespace["h"].rendered.text == "L0 two"
        assert len(told) == len(gates)
        assert "v1 (gate 0) has been prepared in the background for" in told[0]
        assert "v1.pause() gives up" in told[0]
        assert not again


def test_closing_waits_for_nobody_and_takes_nothing_more():
    src = Gate()
    with working(src=src) as turns:
        begin_update(turns, src)
        started = time.monotonic()
        turns.loop.preparer.close()
        assert time.monotonic() - started < 5
        src.gate.set()
        turns.run()

        assert not turns.loop.ready.waiting()


class Indexed(FakeSource):
    """A source that wants an index, and takes what comes."""

    def __init__(self, text="one", named=None):
        super().__init__(text)
        self.gate, self.accepted, self.named = threading.Event(), [], named or f"fake {id(self)}"
        self.stopped = None

    def preparation(self):
        def work(stopped, publish):
            self.stopped = stopped
            publish("half")
            assert self.gate.wait(60)
            return "whole"

        return None if "whole" in self.accepted else Preparation(self.named, work)

    def accept(self, result):
        self.accepted.append(result)
        return result == "whole"


def test_an_index_comes_in_parts_and_huge_ones_leave_room_for_renderings():
    a, b, src = Indexed(), Indexed(), FakeSource("one")
    with working(a=a, b=b, src=src) as turns:
        turns.run("h, k, m = view(a).run(), view(b), view(src).run('Async')")
        until(lambda: a.stopped or b.stopped)
        src.text = "two"
        turns.run()
        until(lambda: len(turns.loop.ready) >= 1)
        until(lambda: turns.run() and turns.namespace["m"].rendered.text == "L0 two")
        first, other = (a, b) if a.stopped else (b, a)
        assert (first.accepted, other.stopped) == (["half"], None)
        first.gate.set()
        until(lambda: turns.run() and "whole" in first.accepted and other.stopped is not None)
        turns.run("del h, k")
        gc.collect()
        turns.run()

        assert other.stopped()
        other.gate.set()


def test_what_two_views_want_of_one_file_is_made_once_and_stays_wanted_while_one_is_there():
    a, b = Indexed(named="one file"), Indexed(named="one file")
    with working(a=a, b=b) as turns:
        turns.run("h, k = view(a), view(b)")
        until(lambda: a.stopped or b.stopped)
        turns.run("del h")
        gc.collect()
        turns.run()
        assert not a.stopped()
        a.gate.set()
        until(lambda: turns.run() and "whole" in b.accepted)

        assert (a.stopped is None) or (b.stopped is None)


def test_a_stamp_that_raises_holds_up_no_summary_and_no_tick():
    """A source of the user's may raise whenever it is asked; each of the others is still summed up."""
    asked = list[list[str]]()

    def summarise(shown):
        asked.append([one.obj_id for one in shown])
        return [None for _ in shown], []

    turns = Turns(Settings(summary_model="a-model"))
    turns.loop.preparer = HeldJobs(turns.loop.ready)
    turns.loop.summarise = summarise
    turns.namespace.update(broken=FakeSource(), whole=FakeSource())
    turns.run("a = view(broken, lod=2); b = view(whole, lod=2)")

    def stamp() -> str:
        raise OSError("gone")

    turns.namespace["broken"].stamp = stamp
    result = turns.run()

    assert asked == [["v1", "v2"], ["v2"]]
    assert "v1 (fake) was not updated: OSError: gone" in " ".join(result.notices)
