"""A rendering is the same in every process and on every version of Python, of whatever target (`everywhere.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import everywhere
import pytest


@pytest.fixture(scope="module")
def outputs() -> list[str]:
    """What two processes say that hash texts differently."""
    paths = os.pathsep.join([str(Path(__file__).parent.parent), os.environ["PYTHONPATH"]])
    return [
        subprocess.run(
            [sys.executable, everywhere.__file__],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            capture_output=True,
            encoding="utf-8",
            check=True,
            timeout=120,
        ).stdout
        for seed in ("0", "1")
    ]


def test_the_same_targets_give_the_same_bytes_in_every_process(outputs):
    first, second = (output.splitlines() for output in outputs)

    assert first == second
    assert len(first) >= 34


def test_the_same_targets_give_the_same_bytes_on_every_version_of_python(outputs):
    """If a rendering was changed on purpose: `python tests/everywhere.py --write`."""
    own = {line.split("\t")[0]: line for line in outputs[0].splitlines() if "\town: yes\t" in line}
    expected = {line.split("\t")[0]: line for line in everywhere.EXPECTED.read_text("utf-8").splitlines()}

    assert own == expected
