"""docs/parity.md names what differs from ipykernel as it was found, and nothing else (`python tests/parity.py`)."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import parity

PAGE = parity.PAGE.read_text(encoding="utf-8")
FOUND = json.loads(parity.FOUND.read_text(encoding="utf-8"))


def test_every_suite_was_run():
    assert {one.package for one in parity.SUITES} == FOUND.keys() - {"python"}
    assert parity.told(FOUND) in PAGE


def test_every_difference_has_its_reason_and_every_reason_a_difference():
    listed = re.findall(r"(?m)^\| (\w+) \| `([^`|]+)` \| \S", PAGE)
    found = [(suite, name) for suite in FOUND.keys() - {"python"} for name in FOUND[suite]["differences"]]

    told = [(suite, name) for suite, name in found if any(s == suite and fnmatchcase(name, p) for s, p in listed)]
    assert sorted(told) == sorted(found)
    used = [row for row in listed if any(row[0] == suite and fnmatchcase(name, row[1]) for suite, name in found)]
    assert used == listed


def test_a_report_is_read_test_by_test(tmp_path: Path):
    cases = (
        '<testcase classname="tests.test_a" name="one" file="tests/test_a.py"/>'
        '<testcase classname="tests.test_a.TestMany" name="two" file="tests/test_a.py"><failure/></testcase>'
        '<testcase classname="tests.test_a" name="three" file="tests/test_a.py"><skipped/></testcase>'
    )
    (tmp_path / "r.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")

    ours = parity.read(tmp_path / "r.xml")

    assert ours == {
        "tests/test_a.py::one": "passed",
        "tests/test_a.py::TestMany::two": "failed",
        "tests/test_a.py::three": "skipped",
    }
    stock = {**ours, "tests/test_a.py::TestMany::two": "passed"}
    assert parity.differing(stock, ours) == {"tests/test_a.py::TestMany::two": ("passed", "failed")}
