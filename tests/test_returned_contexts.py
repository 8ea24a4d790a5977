"""A variable that holds a current setting of the process holds the current one after a return."""

from __future__ import annotations

import pytest
from test_returning import run_all

FACTS = "(context is decimal.getcontext(), context.prec, context.flags[decimal.Inexact], decimal.getcontext().prec)"


@pytest.mark.parametrize("new_kernel", [False, True])
def test_the_context_of_decimal_under_a_name_is_the_current_one_after_a_return(start_kernel, new_kernel):
    """`context = decimal.getcontext()` is how programs set the precision: what they set later must have an effect."""
    kernel = start_kernel()
    run_all(kernel, "import decimal\ncontext = decimal.getcontext(); context.prec = 5")
    run_all(kernel, "other = decimal.Context(prec=9)")
    before = kernel.evaluate(FACTS)
    run_all(kernel, "context.prec = 7; third = decimal.Decimal(1) / 3")
    between = kernel.evaluate(FACTS)
    run_all(kernel, "decimal.setcontext(other); other.prec = 3")
    after = kernel.evaluate(FACTS)
    if new_kernel:
        kernel.stop()
        kernel = start_kernel()
        run_all(kernel, "%ctx resume")
        assert kernel.evaluate(FACTS) == after

    for command, expected in (("2", before), ("3", between), ("4", after), ("3", between)):
        run_all(kernel, f"%ctx goto {command}")
        assert kernel.evaluate(FACTS) == expected, command
    assert (before, between) == ("(True, 5, False, 5)", "(True, 7, True, 7)")
    assert after == "(False, 7, True, 3)"
