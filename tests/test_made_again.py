"""Values without a stored form that a return makes again by running their statements."""

from __future__ import annotations


def test_a_value_that_holds_what_cannot_be_stored_is_made_again_by_each_return(start_kernel):
    """The scanner within `matches` is not `matches` itself: later returns need the scanner of their own state."""
    kernel = start_kernel()
    for cell in ("import re\nmatches = re.finditer('.', 'abc'); first = next(matches)[0]", "second = next(matches)[0]"):
        assert kernel.run(cell).status == "ok"
    kernel.stop()
    kernel = start_kernel()

    for command, rest in (("resume", "['c']"), ("goto 1", "['b', 'c']"), ("goto 2", "['c']")):
        told = kernel.run(f"%ctx {command}").stdout

        assert "made again: matches" in told, told
        assert kernel.run("print([one[0] for one in matches])").stdout.strip() == rest
