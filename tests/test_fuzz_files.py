"""Hostile session files, data folders, turns, settings and messages: 60 in the quick run, 500 in the full one.

`python tests/fuzz_files.py --cases 20000` tries more of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scale import QUICK

CASES = 60 if QUICK else 500
FUZZER = Path(__file__).with_name("fuzz_files.py")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks and limits of Linux")


@pytest.mark.scaled
@pytest.mark.timeout(960)
def test_no_file_and_no_message_of_a_stranger_does_harm():
    """Nothing outside our folders is written, nothing runs, nothing hangs, and no error is unforeseen."""
    command = [sys.executable, str(FUZZER), "--cases", str(CASES), "--light"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env={**os.environ})
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
    assert int(re.findall(r"(\d+) cases, 0 failed", ran.stdout)[-1]) >= CASES
