"""The tests that the quick run leaves out, since they take long.

`python -m pytest -m long` runs them. A pattern matches a test's id from the name of its file on; `*` stands for any
characters. Beside it: the test of the quick run that holds the claim, or why none is needed there.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

LONG = {
    "test_code_quality.py::test_the_types_hold": "the type checker is no behaviour",
    "test_returning.py::test_values_whose_stored_form_leaves_something_out_*60000]": "the other sizes",
    "test_headless.py::test_in_mode_auto_an_ask_is_answered*[nbconvert-*": "nbclient",
    "test_headless.py::test_in_mode_auto_an_ask_is_answered*[papermill-*": "nbclient",
    "test_headless.py::test_in_mode_auto_an_ask_is_answered*[ctxkernel-*": "nbclient",
    "test_headless.py::test_an_ask_that_would_wait*[nbconvert]": "papermill",
    "test_headless.py::test_an_ask_that_would_wait*[nbclient]": "papermill",
    "test_headless.py::test_a_notebook_runs_headless*[papermill-python3]": "nbclient with the same kernel",
    "test_headless.py::test_a_notebook_runs_headless*[nbconvert-python3]": "nbclient with the same kernel",
    "test_cli_returning.py::test_a_port_that_another_took_meanwhile_is_tried_again_thrice[3-1]": "the other row",
    "test_cli_returning.py::test_a_command_that_is_stopped_while_its_kernel_starts_says_so[15]": "the other signal",
    "test_rerun_notebooks.py::test_the_tour_runs_again_without_a_difference": "the notebooks of the same file",
    "test_kernel_harm.py::test_slow_views_over_the_bound_wait*Periodic*": "the other frequency",
}


def is_long(nodeid: str) -> bool:
    """Return whether the quick run leaves out a test."""
    name = nodeid.rpartition("tests/")[2]
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in LONG)
