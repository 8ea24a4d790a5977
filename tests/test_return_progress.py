"""The line that tells how far a return is."""

from __future__ import annotations

from kernels import Ran, StartKernel

_AT_ONCE = "import ctxkernel.kernel.returning.checkpoint_service as service; service._QUIET_SECONDS = 0.0"


def _lines(ran: Ran) -> list[str]:
    shown = ("display_data", "update_display_data")
    return [one["data"]["text/plain"] for one in ran.outputs if one["type"] in shown]


def test_a_return_that_takes_long_tells_how_far_it_is_until_it_has_ended(start_kernel: StartKernel):
    kernel = start_kernel()
    kernel.run(_AT_ONCE)
    kernel.run("import numpy as np; a = np.arange(4_000_000.)")
    kernel.run("a += 1")

    *told, last = _lines(kernel.run("%ctx goto 2"))

    assert told[-1] == "to s2: 32.0 MB of 32.0 MB read"
    assert last == ""
    assert kernel.evaluate("float(a[0])") == "0.0"


def test_a_return_that_waits_for_data_of_the_cell_before_it_says_so(start_kernel: StartKernel):
    kernel = start_kernel()
    kernel.run(_AT_ONCE)
    kernel.run("rows = [{'id': i, 'v': [i]} for i in range(400_000)]")
    kernel.run("rows[7]['v'] = 1")

    told = _lines(kernel.run("%ctx goto 2"))

    assert "waiting for data that are still being written" in told
    assert told[-1] == ""


def test_a_return_that_takes_no_time_shows_no_line(start_kernel: StartKernel):
    kernel = start_kernel()
    kernel.run("a = [1]")
    kernel.run("a.append(2)")

    assert _lines(kernel.run("%ctx goto 1")) == []
