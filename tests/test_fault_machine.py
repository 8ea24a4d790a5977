"""A share of what `fault_machine.py` does by command: faults of steps, signals, data and kills, against an oracle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from scale import QUICK

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="its kernels are forks"),
    pytest.mark.scaled,
]
MANY = "3" if QUICK else "20"
MACHINE = Path(__file__).with_name("fault_machine.py")


def machine(*arguments: str) -> dict:
    """Run it in a process of its own, which has no threads; returns what it says."""
    command = [sys.executable, str(MACHINE), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.stdout.lstrip().startswith("{"), ran.stderr[-2000:]
    said = json.loads(ran.stdout)
    assert said["wrong"] == []
    return said


def test_a_step_that_fails_once_makes_no_return_wrong():
    """Every step, each at another cell, before its work or after it; all cells of all steps by `--steps`."""
    assert machine("--steps", "--share", "80" if QUICK else "8")["steps"] >= (10 if QUICK else 50)


def test_failing_steps_and_signals_at_random_make_no_return_wrong():
    """A user's signal handler that raises and an interrupt come at any instant."""
    assert machine("--programs", MANY)["programs"] == int(MANY)


def test_a_full_read_only_deleted_or_thinned_cache_makes_no_return_wrong():
    """A name that is not restored is named, and had no equal value alive."""
    machine("--programs", MANY, "--data")


def test_killed_kernels_lose_no_cell_that_was_acknowledged():
    """A kernel that goes on has every cell that had ended, and its states."""
    said = machine("--kills", MANY)
    assert said["kills"] >= int(MANY)
    assert said["acknowledged"] > int(MANY)
