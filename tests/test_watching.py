"""What looking at targets costs a tick, counted by an audit hook in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, sys
from ctxkernel.core.ports import RenderRequest
from ctxkernel.projection.tokens import count_tokens, trim_to_tokens
from ctxkernel.sources import open_named
from ctxkernel.testing import Turns

turns = Turns()
graph = turns.loop.graph
graph.open_source = lambda target: open_named(target, {})
graph.count_tokens, graph.trim = count_tokens, trim_to_tokens
turns.run("hs = [view(f'{n}.py', lod=n % 3).run() for n in range(50)]; g = group(*hs); still = view('0.py')")
turns.run()
turns.run()

opened, stats, real = [], [], os.stat
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
os.stat = lambda path, *args, **kwargs: (stats.append(path), real(path, *args, **kwargs))[1]
turns.run()
print(len(stats), len(set(stats)), len(opened))
with open("7.py", "a") as file:
    file.write("def more(): ...\\n")
opened.clear(), stats.clear()
turns.run()
print({os.path.basename(path) for path in opened}, turns.namespace["hs"][7].revision)
"""


def test_watching_costs_one_stat_a_view_and_only_what_changed_is_read(tmp_path):
    for number in range(50):
        (tmp_path / f"{number}.py").write_text(f"def f{number}():\n    return {number}\n")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    idle, changed = ran.stdout.splitlines()
    assert idle == "50 50 0"
    assert changed == "{'7.py'} 2"
