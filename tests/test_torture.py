"""Law 10: a kill at any instant loses at most the running statement, and the next kernel resumes.

`TORTURE_KILLS=1000 pytest tests/test_torture.py` is what a release is tested with; `TORTURE_SEED` makes it other kills.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scale import QUICK

KILLS = int(os.environ.get("TORTURE_KILLS", "24" if QUICK else "200"))
SEED = os.environ.get("TORTURE_SEED", "1")


@pytest.mark.scaled
@pytest.mark.skipif(os.name != "posix", reason="forks and signals of POSIX")
@pytest.mark.timeout(max(300, KILLS * 2))
def test_kills_at_random_instants_lose_nothing_that_was_committed_and_the_next_kernel_resumes(tmp_path):
    """Before, within and after each write; power losses with torn writes on copies. See `torture.py`."""
    script = Path(__file__).with_name("torture.py")
    parts = [KILLS // 2, KILLS - KILLS // 2] if KILLS > 200 else [KILLS]  # two at once, where there are many
    folders = [tmp_path / str(n) for n in range(len(parts))]
    running = []
    for n, (folder, kills) in enumerate(zip(folders, parts, strict=True)):
        folder.mkdir()
        command = [sys.executable, str(script), str(folder), str(kills), f"{SEED}{n}"]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    said = [process.communicate() for process in running]
    for (out, err), kills in zip(said, parts, strict=True):
        assert out, err
        told = json.loads(out)
        assert told["fault"] == "", told
        assert told["kills"] == kills
        # Else the kills came where nothing was done.
        for what, least in (("begun", 2), ("ended", 2), ("resumed", 0.08), ("power_losses", 0.1), ("by_own_hand", 0.3)):
            assert told[what] >= least * kills, told
