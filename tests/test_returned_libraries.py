"""Objects of libraries come back with what they held then, also where their library stores only a name."""

from __future__ import annotations

import textwrap

import pytest
from test_returning import run_all


def test_a_function_under_curry_comes_back_where_its_name_is_another_function_now(start_kernel):
    """toolz stores the name of such a function, which stands for another one, or for nothing, when it is loaded."""
    pytest.importorskip("toolz")
    kernel = start_kernel()
    run_all(
        kernel,
        textwrap.dedent("""
            import toolz
            log = []
            @toolz.curry
            def add(one, other, held=log):
                held.append(one)
                return one + other
            five = add(5)
        """),
    )
    run_all(kernel, "first = 1")
    run_all(kernel, "@toolz.curry\ndef add(one, other): return -one - other\nlog.append(0)")
    run_all(kernel, "del add")

    run_all(kernel, "%ctx goto 2")
    assert kernel.evaluate("(add(1)(2), five(1), log, five.func is add.func)") == "(3, 6, [1, 5], True)"
    run_all(kernel, "%ctx goto 3")
    assert kernel.evaluate("(add(1, 2), five(1), log)") == "(-3, 6, [0, 5])"
    kernel.stop()

    kernel = start_kernel()
    run_all(kernel, "%ctx resume")
    assert kernel.evaluate("(add(1, 2), five(1))") == "(-3, 6)"
