"""Members of an enumeration hold attributes, and each other, as at the checkpoint."""

from __future__ import annotations

import textwrap

STATES = """
import enum
class State(enum.Enum):
    IDLE = 'idle'; BUSY = 'busy'
State.IDLE.after, State.BUSY.after, State.BUSY.seen = State.BUSY, State.IDLE, [State.IDLE]
"""
FLAGS = """
import enum
class Perm(enum.Flag):
    R = 1; W = 2; X = 4
"""


def run_all(kernel, *cells: str) -> None:
    for cell in cells:
        ran = kernel.run(textwrap.dedent(cell).strip("\n"))
        assert ran.status == "ok", ran.outputs


def test_members_that_hold_each_other_are_the_living_ones_after_a_return(kernel):
    """A transition `state.after` leads to the member that `State` has, and not to a copy."""
    run_all(kernel, STATES, "State.IDLE.after.count = 1", "State.BUSY.count = 2; State.BUSY.seen.append(State.BUSY)")

    run_all(kernel, "%ctx goto 2")

    assert kernel.evaluate("(State.IDLE.after is State.BUSY, State.BUSY.after is State.IDLE)") == "(True, True)"
    assert kernel.evaluate("(State.BUSY.count, State.BUSY.seen == [State.IDLE])") == "(1, True)"


def test_attributes_of_a_combination_of_flags_are_those_of_the_state(start_kernel):
    """`Perm.R | Perm.X` is one object that its class holds: with its attributes, and not before it was made."""
    kernel = start_kernel()
    run_all(kernel, FLAGS, "both = Perm.R | Perm.X; both.log = [1]", "(Perm.R | Perm.X).log.append(2)")
    asked = "(both.log, both is Perm.R | Perm.X, Perm(5).log is both.log)"

    run_all(kernel, "%ctx goto 2")
    assert kernel.evaluate(asked) == "([1], True, True)"

    run_all(kernel, "%ctx goto 1")
    assert kernel.evaluate("vars(Perm(5)).get('log')") == "None"

    run_all(kernel, "%ctx goto 3")
    assert kernel.evaluate(asked) == "([1, 2], True, True)"

    kernel.stop()
    kernel = start_kernel()
    run_all(kernel, "%ctx resume", "%ctx goto 2")
    assert kernel.evaluate(asked) == "([1], True, True)"
