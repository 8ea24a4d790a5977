"""The architecture: what its page and CONTRIBUTING.md say of the code, and the names of modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import turn_tables

from ctxkernel.core.loop import Loop
from ctxkernel.core.steps import unmet_needs
from ctxkernel.kernel.turn.turns import Turns

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")
GIVEN = ("request", "now", "reply", "interrupted", "timed_out", "elapsed", "expired")


def test_the_page_has_the_tables_of_the_code():
    """`python tests/turn_tables.py` writes them."""
    page = turn_tables.PAGE.read_text(encoding="utf-8")

    assert turn_tables.parts(page)[1] == turn_tables.tables()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_is_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", text))
    missing = [path for path in named if not (ROOT / path).exists() and not (ROOT / "ctxkernel" / path).exists()]

    assert named
    assert missing == []


def test_each_step_of_a_turn_finds_what_it_needs():
    """What a step of the tables reads is given by the caller or by an earlier step."""
    begun = [*GIVEN, *(step.gives for step in Turns.BEGIN)]

    assert unmet_needs(Turns.BEGIN, GIVEN) == []
    assert unmet_needs(Turns.END, begun) == []
    assert unmet_needs(Loop.END, ("turn", "outcome", "now", "expired", "move", "restored", "observe")) == []
    assert unmet_needs(tuple(reversed(Turns.END)), begun)


def test_a_module_has_a_name_of_its_own():
    """Except for commands: a module of `cli` or `kernel/commands` has the name of the thing that it controls."""
    files = [path.relative_to(ROOT / "ctxkernel") for path in (ROOT / "ctxkernel").rglob("[!_]*.py")]
    of_commands = ("cli", "kernel/commands")
    names = [path.name for path in files if not path.as_posix().startswith(of_commands)]

    assert [name for name in names if names.count(name) > 1] == []
