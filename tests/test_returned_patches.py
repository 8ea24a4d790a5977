"""What a cell took out of a library comes back as itself, also while another object has its name."""

from __future__ import annotations

from test_returning import run_all


def test_a_function_that_was_stored_by_its_name_comes_back_while_a_patch_has_the_name(start_kernel):
    """The patch is a change that a library made, and stays: the name of the function leads to another one."""
    kernel = start_kernel()
    run_all(kernel, "import statistics\nfrom unittest import mock\nheld = [statistics.mean, statistics.NormalDist]")
    run_all(kernel, "patches = [mock.patch('statistics.mean'), mock.patch('statistics.NormalDist')]")
    run_all(kernel, "for patch in patches: patch.start()")
    run_all(kernel, "held.clear()")

    run_all(kernel, "%ctx goto 1")

    assert kernel.evaluate("(held[0]([1, 2]), held[1](1, 2).mean)") == "(1.5, 1.0)"


def test_what_a_patch_replaced_comes_back_as_itself(start_kernel):
    """`mock.patch` and `catch_warnings` hold the original and give it back its name: a copy is another object."""
    kernel = start_kernel()
    run_all(kernel, "import statistics, warnings\nfrom unittest import mock")
    run_all(kernel, "originals = [*map(id, (statistics.mean, statistics.median, warnings._showwarnmsg_impl))]")
    run_all(
        kernel,
        "patch = mock.patch('statistics.mean', lambda data: 0); patch.start()\n"
        "other = mock.patch('statistics.median'); other.start()\n"
        "recorded = warnings.catch_warnings(record=True); log = recorded.__enter__()",
    )
    run_all(kernel, "kept = patch, other, recorded")
    run_all(kernel, "del patch, other, recorded, kept")

    run_all(kernel, "%ctx goto 4")
    held = "(patch.temp_original, other.temp_original, recorded._showwarnmsg_impl)"
    assert kernel.evaluate(f"[*map(id, {held})] == originals") == "True"
    run_all(kernel, "recorded.__exit__()")
    assert kernel.evaluate("id(warnings._showwarnmsg_impl) == originals[2]") == "True"


def test_a_function_under_a_decorator_of_its_library_is_not_the_decorated_one_in_a_new_kernel(start_kernel):
    """Both have the same module and path, and the name leads to the decorated one."""
    kernel = start_kernel()
    run_all(kernel, "import numpy as np\nbelow = [np.mean, np.mean.__wrapped__, np.printoptions.__wrapped__]")
    run_all(kernel, "x = 1")
    kernel.stop()
    kernel = start_kernel()

    run_all(kernel, "%ctx resume", "%ctx goto 1")

    shown = "(below[0] is np.mean, below[1] is np.mean, below[2] is np.printoptions, below[1].__name__)"
    assert kernel.evaluate(shown) == "(True, False, False, 'mean')"
