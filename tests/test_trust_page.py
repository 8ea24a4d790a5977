"""The page on trust: its threat model names tests that exist, and its settings are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from ctxkernel.core.settings import SPECS

TESTS = Path(__file__).resolve().parent
DOCS = TESTS.parent / "docs"
PAGE = (DOCS / "trust.md").read_text("utf-8")


def protected() -> list[str]:
    """Return the lines of the table of what is protected."""
    table = PAGE.partition("| protected | held by |")[2].partition("Not protected:")[0]
    return [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("|---")]


def test_each_line_of_the_threat_model_names_a_test_that_exists():
    lines = protected()
    assert len(lines) > 15
    for line in lines:
        named = re.findall(r"`((?:browser/)?test_\w+\.py)::(test_\w+)`", line)
        assert named, line
        for file, test in named:
            assert re.search(rf"(?m)^(?:async )?def {test}\(", (TESTS / file).read_text("utf-8")), (file, test)


def test_the_page_on_settings_says_what_a_file_beside_a_notebook_can_set():
    page = (DOCS / "settings.md").read_text("utf-8")
    told = dict(re.findall(r"(?m)^\| `(\w+)` \|.* \| (yes|no|if trusted) \|$", page))
    assert told == {
        name: "no" if spec.personal else "if trusted" if spec.matters else "yes" for name, spec in SPECS.items()
    }


def test_the_page_names_the_settings_that_no_file_beside_a_notebook_sets():
    told = PAGE.partition("cannot be set by a file beside a notebook at all")[0].rpartition("\n")[2]
    assert set(re.findall(r"`(\w+)`", told)) == {name for name, spec in SPECS.items() if spec.personal}
