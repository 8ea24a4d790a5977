"""The cost of a session over several kernels: sums, where the cache broke, and the data of the panel's plot."""

from __future__ import annotations

from pathlib import Path

from test_kernel_asking import bench_in, plain_text
from test_panel import Front

from ctxkernel.testing import say


def test_breaks_of_the_prefix_are_listed_for_the_whole_session(tmp_path: Path):
    """A later kernel finds them in the log; the panel gets the same sums and lines."""
    with bench_in(tmp_path) as bench:
        bench.kernel.run("print('a long line\\n' * 40)")
        bench.consent()
        bench.answers(say("one"), say("two"))
        bench.ask("what is it?")
        bench.kernel.run('%ctx redact s1 "lines"')
        bench.ask("and now?")
        first = plain_text(bench.kernel.run("%ctx cost"))
        [line] = [one for one in first.splitlines() if "breaks at" in one]
    with bench_in(tmp_path) as bench:
        bench.kernel.run("%ctx resume")
        told = plain_text(bench.kernel.run("%ctx cost"))
        assert [one for one in told.splitlines() if "breaks at" in one] == [line]
        costs = Front(bench.kernel).ask(type="cost")["cost"]
    assert costs["breaks"] == [line]
    assert [one["question"] for one in costs["asks"]] == ["hello?", "what is it?", "and now?"]
    assert costs["total"]["requests"] == len(costs["requests"]) == 3
    assert [bool(one["broke"]) for one in costs["requests"]] == [False, False, True]
    assert costs["total"]["told"].startswith(("$", "~$"))


def test_a_session_without_requests_has_no_total(kernel):
    """The section says then how one asks."""
    kernel.run("x = 1")
    costs = Front(kernel).ask(type="cost")["cost"]
    assert (costs["total"], costs["asks"], costs["breaks"], costs["requests"]) == (None, [], [], [])
