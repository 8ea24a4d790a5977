"""What of a response may be sent back, and stored, as it came."""

from __future__ import annotations

from typing import Any

import pytest

from ctxkernel.history.events import Action
from ctxkernel.history.responses import as_it_came
from ctxkernel.store.log.rows import history_rows

SECRET = "hunter22pw"


def mask(text: str) -> str:
    return text.replace(SECRET, "[masked]")


def used(given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": "c1", "name": "run_cell", "input": given}


@pytest.mark.parametrize("name", ["code", "data", "id", "type", "signature"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_secret_in_the_input_of_a_call_is_found_under_any_name(name: str, deep: bool):
    given = {name: f"login {SECRET}"}
    block = used({"more": [given]} if deep else given)
    action = Action("a1", "c1", "run_cell", {}, "r1", (block,))

    assert as_it_came(block, mask) == ""
    assert SECRET not in str(history_rows(1, 0.0, [action], mask))


def test_ids_and_signatures_are_no_text():
    """A part of one could look like a credential, and a block is no block without it."""
    thought = {"type": "thinking", "thinking": "hm", "signature": SECRET}

    assert as_it_came(thought, mask) == f'{{"type":"thinking","thinking":"hm","signature":"{SECRET}"}}'
    assert as_it_came({"type": "redacted_thinking", "data": SECRET}, mask)
    assert as_it_came({**used({"code": "1"}), "id": SECRET}, mask)
    assert as_it_came({"type": "novel", "data": SECRET}, mask) == ""
