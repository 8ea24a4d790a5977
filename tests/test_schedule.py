"""The order of the tests, and which of them share a worker (`schedule.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest
import schedule

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("tests/test_a.py::test_x", "tests/test_a.py::test_y[1]", True),
        ("tests/test_a.py::test_x", "tests/test_b.py::test_x", False),
        ("tests/browser/test_a.py::test_x", "tests/browser/test_b.py::test_x", True),
        ("tests/browser/test_a.py::test_x", "tests/browser/test_z.py::test_x", False),
        ("tests/browser/test_z.py::test_x", "tests/test_z.py::test_x", False),
        ("tests/test_oracle.py::test_no_return_x[0]", "tests/test_oracle.py::test_no_return_x[1]", False),
        ("tests/test_oracle.py::test_x[0]", "tests/test_oracle.py::test_x[1]", True),
    ],
)
def test_tests_of_a_file_and_of_half_of_the_browsers_files_share_a_worker(one: str, other: str, together: bool):
    assert (schedule.scope(one) == schedule.scope(other)) is together


def test_the_named_files_and_tests_exist():
    """A file or test that is renamed would otherwise lose its place in the order."""
    for name in schedule.LONGEST:
        assert (HERE / name).is_file(), name
    for beginning in schedule.APART:
        file, _, test = beginning.partition("::")
        assert f"def {test}" in (HERE / file).read_text("utf-8"), beginning
