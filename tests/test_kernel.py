"""The real kernel through jupyter_client: what becomes a statement, and what a plain user must not notice."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import queue
import re
import signal
import sys
import textwrap
import threading
import time

import pytest
from kernels import once
from scale import QUICK

from ctxkernel.kernel.commands.table import COMMANDS
from ctxkernel.store.log.session import SessionReader


def timeline(kernel):
    """Return all statements of the kernel's run."""
    return json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]


def run_and_look(kernel, source, **options):
    """Run a cell; returns (what the client saw, its statement, its execution)."""
    ran = kernel.run(textwrap.dedent(source), **options)
    statement = timeline(kernel)[-1]
    return ran, statement, statement["executions"][-1]


CELLS = [
    ("ok", "x = 1", "ok", None, ""),
    ("print", "print('hello')", "ok", None, "hello\n"),
    ("error", "1/0", "error", "ZeroDivisionError", ""),
    ("syntax error", "def f(:", "error", "SyntaxError", ""),
    ("name error after output", "print('a'); nope", "error", "NameError", "a\n"),
    ("sys.exit", "import sys; sys.exit(3)", "error", "SystemExit", ""),
    ("top-level await", "import asyncio; await asyncio.sleep(0.01); print('awaited')", "ok", None, "awaited\n"),
    ("failing await", "async def f(): raise KeyError('k')\nawait f()", "error", "KeyError", ""),
    ("line magic", "%pwd\nprint('after')", "ok", None, "after\n"),
    ("cell magic that runs cells", "%%time\nprint('timed')", "ok", None, "timed\n"),
    ("capture magic", "%%capture cap\nprint('hidden')", "ok", None, ""),
    ("shell", "!echo shell", "ok", None, "shell"),
    ("C level", "import os; _ = os.write(1, b'c level\\n')", "ok", None, "c level\n"),
    (
        "C printf", "import ctypes; _ = ctypes.CDLL(None).printf(b'printf\\n')", "ok", None, "printf\n",
    ),
    ("subprocess", "import subprocess; _ = subprocess.run(['echo', 'child'])", "ok", None, "child\n"),
    (
        "forked child",
        """
        import os
        pid = os.fork()
        if not pid:
            print('from the child', flush=True); os._exit(0)
        _ = os.waitpid(pid, 0)
        import time; time.sleep(0.3)
        """,
        "ok", None, "from the child\n",
    ),
    ("nested run_cell", "get_ipython().run_cell('inner = 1'); print(inner)", "ok", None, "1\n"),
    ("raised in display", "class C:\n    def _repr_html_(self): raise ValueError('x')\nC()", "error", "ValueError", ""),
    ("unicode", "print('äöü 😀')", "ok", None, "äöü 😀\n"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "status", "error", "stdout"), [row[1:] for row in CELLS], ids=[r[0] for r in CELLS])
def test_every_way_a_cell_ends_is_recorded(shared_kernel, source, status, error, stdout):
    before = len(timeline(shared_kernel))
    _, statement, execution = run_and_look(shared_kernel, source)

    assert len(timeline(shared_kernel)) == before + 1
    assert statement["source"] == textwrap.dedent(source)
    assert execution["status"] == status
    assert (execution["exception"] or {}).get("type") == error
    if stdout:
        assert stdout in execution["stdout"]
    assert execution["ended_at"] >= execution["started_at"]
    assert execution["cost"]["time_ms"] > 0


def test_stderr_is_kept_apart(shared_kernel):
    _, _, execution = run_and_look(shared_kernel, "import sys; print('out'); print('err', file=sys.stderr)")
    assert (execution["stdout"], execution["stderr"]) == ("out\n", "err\n")


def test_input_is_asked_and_recorded(shared_kernel):
    ran, _, execution = run_and_look(shared_kernel, "name = input('who? ')", answer="Ada")
    assert ran.status == "ok"
    assert execution["state_diff"]["added"]["name"]["repr"] == "'Ada'"


def test_run_of_a_script_is_one_statement(kernel):
    (kernel.folder / "script.py").write_text("print('in the script')\nmade = 42\n")
    _, _, execution = run_and_look(kernel, "%run script.py")
    assert execution["stdout"] == "in the script\n"
    assert "made" in execution["state_diff"]["added"]
    assert len(timeline(kernel)) == 1


def test_an_interrupted_cell_is_cancelled_and_the_kernel_goes_on(kernel):
    def interrupt():
        time.sleep(0.2)  # a signal right before `sleep` waits is seen by any Python only when the sleep is over
        kernel.manager.interrupt_kernel()

    for source in ("import time; time.sleep(30)", "import asyncio; await asyncio.sleep(30)", "while True: pass"):
        seen = f"print('it runs', flush=True)\n{source}"
        ran, _, execution = run_and_look(kernel, seen, timeout=20, at_output=interrupt)
        assert ran.status == "error"
        assert execution["status"] == "cancelled"
        assert execution["exception"]["type"] in ("KeyboardInterrupt", "CancelledError")
    assert kernel.run("print('alive')").stdout == "alive\n"


def test_a_storm_of_interrupts_loses_no_reply(kernel):
    pid = int(kernel.evaluate("__import__('os').getpid()"))
    stop = threading.Event()

    def storm():
        wait = 0.001
        while not stop.is_set():
            os.kill(pid, signal.SIGINT)
            time.sleep(wait)
            wait = wait * 1.3 if wait < 0.008 else 0.001

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        replies = [kernel.run("pass", timeout=20, stop_on_error=False).reply for _ in range(300)]
    finally:
        stop.set()
        thread.join()
    assert len(replies) == 300
    assert kernel.manager.is_alive()
    assert kernel.run("print('alive')", stop_on_error=False).stdout == "alive\n"


def test_a_cell_over_its_time_out_is_stopped(kernel):
    kernel.run("%ctx timeout 0.5")
    ran, _, execution = run_and_look(kernel, "import time; time.sleep(30)", timeout=20)
    assert ran.status == "error"
    assert execution["status"] == "timeout"
    assert "0.5 s" in execution["notices"][0]
    assert run_and_look(kernel, "x = 1")[2]["status"] == "ok"
    kernel.run("%ctx timeout off")
    assert run_and_look(kernel, "import time; time.sleep(0.8)")[2]["status"] == "ok"


QUIET = [
    ("silent", {"silent": True}),
    ("not stored", {"store_history": False}),
]


@pytest.mark.parametrize("options", [row[1] for row in QUIET], ids=[row[0] for row in QUIET])
def test_silent_and_unstored_executions_leave_nothing(shared_kernel, options):
    before = timeline(shared_kernel)
    shared_kernel.run("quiet = 1", **options)
    assert timeline(shared_kernel) == before


def test_what_silent_code_changed_stands_under_outside_a_cell(kernel):
    kernel.run("a = 1")
    kernel.run("quiet = 1", silent=True)
    kernel.run("b = 2")
    kinds = [(s["kind"], list(s["executions"][0]["state_diff"]["added"])) for s in timeline(kernel)]
    assert kinds == [("python", ["a"]), ("meta", ["quiet"]), ("python", ["b"])]


LATER = {
    "a thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), lst.append(5))).start()",
    "a callback in C": "import asyncio\nhandle = asyncio.get_event_loop().call_later(0.2, lst.append, 5)",
    "a callback of a library's": "from functools import partial\nfrom tornado.ioloop import IOLoop\n"
    "handle = IOLoop.current().call_later(0.2, partial(lst.append, 5))",
    "a task of a helper's": "import asyncio\nhelped = asyncio.ensure_future(asyncio.wait_for(helper.later(lst), 5))",
    "a signal's handler": "import signal\nhandler = lambda *_: lst.append(5)\n"
    "before = signal.signal(signal.SIGALRM, handler); none = signal.setitimer(signal.ITIMER_REAL, 0.2)",
}


@pytest.mark.parametrize("how", LATER)
def test_what_changes_between_two_cells_that_do_not_touch_it_is_told(kernel, how):
    """The kernel's own threads and callbacks do not count: nothing is looked at for them."""
    helper = kernel.folder / "helper.py"
    helper.write_text("import asyncio\nasync def later(lst):\n    await asyncio.sleep(0.2); lst.append(5)\n")
    kernel.run("import time, helper\nlst = [1]")
    time.sleep(1.5)  # the thread that looks whether the parent lives has run by then
    assert kernel.evaluate("get_ipython().kernel.ctx.activity.ran()") == "''"
    kernel.run(LATER[how])
    time.sleep(0.5)
    kernel.run("pass")
    assert "lst" in timeline(kernel)[-2]["executions"][0]["state_diff"]["changed"]


def test_a_change_by_the_callback_of_a_comm_is_told(kernel):
    """A message of a front end runs code outside a cell: the next comparison covers all variables."""
    kernel.run(
        "lst = [1]\nlate = lambda comm, _: comm.on_msg(lambda message: lst.append(5))\n"
        "get_ipython().kernel.comm_manager.register_target('mine', late)"
    )
    for kind, content in (("comm_open", {"target_name": "mine"}), ("comm_msg", {})):
        message = kernel.client.session.msg(kind, {"comm_id": "m1", "data": {}, **content})
        kernel.client.shell_channel.send(message)
    kernel.run("pass")
    assert "lst" in timeline(kernel)[-2]["executions"][0]["state_diff"]["changed"]


def test_empty_cells_and_reading_commands_leave_nothing(shared_kernel):
    shared_kernel.run("something = 1")
    before = timeline(shared_kernel)
    for source in ("", "  \n", "%ctx status", "%ctx timeline 5", "%ctx timeline?", "%ctx", "# look\n%ctx projection"):
        assert shared_kernel.run(source).status == "ok", source
    assert timeline(shared_kernel) == before


def test_a_gesture_is_a_meta_statement_and_moves_no_prompt(kernel):
    first = kernel.run("h = view('.')")
    msg_id = kernel.client.session.msg(
        "execute_request",
        {"code": "h.lod = 1", "silent": False, "store_history": False, "allow_stdin": False, "user_expressions": {}},
        metadata={"ctxkernel": {"kind": "meta"}},
    )
    kernel.client.shell_channel.send(msg_id)
    second = kernel.run("pass")
    statement = timeline(kernel)[1]
    assert (statement["kind"], statement["author"], statement["source"]) == ("meta", "panel", "h.lod = 1")
    assert second.reply["execution_count"] == first.reply["execution_count"] + 1


def test_the_cell_id_is_kept(kernel):
    message = kernel.client.session.msg(
        "execute_request",
        {"code": "x = 1", "silent": False, "store_history": True, "allow_stdin": False, "user_expressions": {}},
        metadata={"cellId": "abc-123"},
    )
    kernel.client.shell_channel.send(message)
    kernel.run("y = 2")
    assert [statement["cell_id"] for statement in timeline(kernel)] == ["abc-123", None]


def test_long_output_is_bounded_head_and_tail_and_streams_whole(kernel):
    ran, _, execution = run_and_look(kernel, "for i in range(100_000): print(i)")
    assert ran.stdout.count("\n") == 100_000
    assert len(execution["stdout"].encode()) < 66_000
    assert execution["stdout"].startswith("0\n1\n") and execution["stdout"].endswith("99999\n")
    kept = len(execution["stdout"].encode()) - len(f"\n[... {execution['cut']['stdout']:,} bytes cut ...]\n".encode())
    assert execution["cut"]["stdout"] + kept == len(ran.stdout)
    assert f"{execution['cut']['stdout']:,} bytes cut" in execution["stdout"]


def test_what_a_thread_prints_and_shows_after_the_end_is_late_also_where_no_cell_follows(kernel):
    later = (
        "import threading, time\ndef later():\n    time.sleep(0.3); print('late words'); display(6 * 7)\n"
        "threading.Thread(target=later).start()"
    )
    for _ in range(2):
        kernel.run(later)
        time.sleep(0.8)
    first = timeline(kernel)[0]["executions"][0]
    assert first["stdout"] == ""
    assert first["late"] == {"stdout": "late words\n", "display": "42\n"}
    path = kernel.evaluate("str(get_ipython().kernel.ctx.store.path)").strip("'")
    kernel.stop()
    with SessionReader(pathlib.Path(path)) as reader:
        assert [runs[0].late for _, runs in reader.statements(all_roots=True)] == [first["late"]] * 2


def test_rich_outputs_are_artifacts_by_mime_type(kernel):
    _, _, execution = run_and_look(kernel, "import pandas as pd; pd.DataFrame({'a': [1, 2]})")
    shown = [a for a in execution["artifacts"] if a["kind"] == "display"]
    assert [a["mime"] for a in shown] == ["text/plain", "text/html"]
    assert "<table" in execution["artifacts"][1]["data"]
    _, _, execution = run_and_look(kernel, "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
    image = next(a for a in execution["artifacts"] if a["mime"] == "image/png")
    assert image["size"] > 1000 and image["hash"].startswith("sha256:") and image["data"].startswith("iVBOR")


def test_a_huge_rich_output_is_kept_by_size_and_hash(kernel):
    _, _, execution = run_and_look(kernel, "from IPython.display import HTML, display; display(HTML('x' * 3_000_000))")
    html = next(a for a in execution["artifacts"] if a["mime"] == "text/html")
    assert (html["size"], html["data"]) == (3_000_000, None)


def test_clear_output_leaves_the_last_figure_only(kernel):
    _, _, execution = run_and_look(
        kernel,
        """
        from IPython.display import display, clear_output, HTML
        for i in range(50):
            clear_output(wait=True)
            display(HTML(f'frame {i}'))
        """,
    )
    assert [a["data"] for a in execution["artifacts"] if a["mime"] == "text/html"] == ["frame 49"]


def test_files_that_a_cell_wrote_are_artifacts(kernel):
    (kernel.folder / "old.txt").write_text("there before")
    time.sleep(0.1)
    _, _, execution = run_and_look(
        kernel,
        """
        import pathlib
        pathlib.Path('new.csv').write_text('a,b\\n1,2\\n')
        pathlib.Path('sub').mkdir(); pathlib.Path('sub/deep.bin').write_bytes(b'\\0' * 10)
        """,
    )
    files = {a["name"]: a for a in execution["artifacts"] if a["kind"] == "file"}
    assert set(files) == {"new.csv", os.path.join("sub", "deep.bin")}
    assert files["new.csv"]["size"] == 8 and files["new.csv"]["hash"].startswith("sha256:")
    assert run_and_look(kernel, "x = 1")[2]["artifacts"] == []
    assert [
        a["name"]
        for a in run_and_look(kernel, "pathlib.Path('old.txt').write_text('x')")[2]["artifacts"]
        if a["kind"] == "file"
    ] == ["old.txt"]


HABITS = [
    ("ls -la stays the shell's", "ls -la", "total "),
    ("ls alone too", "ls", "plain.txt"),
    ("ls with a path", "ls *.txt", "plain.txt"),
    ("ls() is ours", "print(type(ls()).__name__)", "HandleTable"),
    ("group as a loop variable", "for k, group in [(1, 2)]: pass\nprint(group)\ndel group", "2"),
    ("and del brings it back", "group = 1\ndel group\nprint(group.__name__)", "group"),
    ("show as an own function", "def show(x): return x + 1\nprint(show(1))\ndel show", "2"),
    ("bang", "!ls", "plain.txt"),
    ("view? is documented", "view?", "level of detail"),
    ("%ctx? is documented", "%ctx?", "timeline"),
    ("%view? is the magic's", "%view?", "%view TARGET [--pos P] [--tokens N] [--lod N] [--mode M] [--freq F]"),
    ("h = %view? too", "h = %view?", "%view TARGET [--pos P]"),
    ("%view --help too", "%view --help", "%view TARGET [--pos P]"),
    ("%group ? too", "%group ?", "%group HANDLE … [--tokens N] [--lod N] [--mode M] [--freq F]"),
    ("%%ask? is documented", "%%ask?", "--budget B"),
]


@pytest.fixture(scope="module")
def habit_kernel(shared_kernel):
    (shared_kernel.folder / "plain.txt").write_text("x")
    return shared_kernel


@pytest.mark.parametrize(("source", "expected"), [row[1:] for row in HABITS], ids=[row[0] for row in HABITS])
def test_a_plain_users_habits_are_untouched(habit_kernel, source, expected):
    ran = habit_kernel.run(source)
    pager = "".join(p.get("data", {}).get("text/plain", "") for p in ran.reply.get("payload", []))
    assert ran.status == "ok"
    assert expected in ran.stdout + pager


@pytest.mark.parametrize(
    ("code", "cursor", "expected"),
    [
        ("%view plain.txt", 4, "%view TARGET [--pos P]"),
        ("x = 1\nh = %group a b", 14, "%group HANDLE …"),
        ("view('plain.txt')", 2, "Look at a file, a folder, a URI or a Python object"),
        ("x = 7 %view", 9, "Look at a file, a folder, a URI or a Python object"),
    ],
)
def test_the_help_at_the_cursor_is_that_of_the_magic_or_of_the_function(shared_kernel, code, cursor, expected):
    reply = shared_kernel.client.inspect(code, cursor, reply=True, timeout=20)["content"]

    assert (reply["status"], reply["found"]) == ("ok", True)
    assert expected in reply["data"]["text/plain"]


def test_prompt_numbers_and_out_are_those_of_ipython(kernel):
    counts = [kernel.run(source).reply["execution_count"] for source in ("1", "2", "%ctx status", "_ + 1")]
    assert counts == [1, 2, 3, 4]
    assert kernel.evaluate("Out[4]") == "3"
    assert kernel.evaluate("In[2]") == "'2'"


SAME = [
    "x = 1",
    "print('a'); print('b')",
    "1/0",
    "def f(:",
    "import sys; print('e', file=sys.stderr)",
    "'result'",
    "from IPython.display import display; display('d'); 5",
    "import asyncio; await asyncio.sleep(0); 7",
    "!echo s",
    "%%time\npass",
    "",
    "import sys; sys.exit()",
    "from IPython.display import clear_output; print('x'); clear_output()",
]


def test_a_plain_notebook_gives_the_same_messages_in_the_same_order_as_on_ipykernel(start_kernel, tmp_path):
    kernels = [start_kernel(stock=stock) for stock in (True, False)]
    for source in SAME:
        seen = []
        for kernel in kernels:
            ran = kernel.run(source)
            # One print is one stream message or two, as the I/O thread's clock has it, on both kernels.
            kinds = [kind for kind, _ in itertools.groupby((o["type"], o.get("name")) for o in ran.outputs)]
            seen.append(
                (
                    kinds,
                    ran.reply["status"],
                    ran.reply.get("execution_count"),
                    sorted(ran.reply),
                )
            )
        assert seen[0] == seen[1], source


HOOKS = [
    ("namespace diff", "rt.loop._tracker.before = rt.loop._tracker.after = broken"),
    ("projection", "rt.loop._projector.project = broken"),
    ("session store", "rt.store.begin = rt.store.end = broken"),
    ("panel", "rt.panel.begin = rt.panel.turn = broken"),
    ("display of handles", "rt.displays.update = broken"),
    ("written files", "rt.files.written = broken"),
    ("output capture", "import ctxkernel.kernel.execution.capture as c; c.Collector.take = broken"),
    ("output of C code and subprocesses", "rt.streams.settle = broken"),
    ("tick", "import ctxkernel.core.loop as l; h = view([1, 2]); l.run_tick = broken"),
    ("delta feed", "import ctxkernel.core.loop as l; l.format_deltas = broken"),
    ("variables", "rt.loop._tracker.variables = broken"),
    ("timeline", "rt.loop.begin = broken"),
    ("timeline", "rt.loop.end = broken"),
    ("timeline", "import ctxkernel.kernel.turn.turns as t; t.outcome_of = broken"),
]


@pytest.mark.parametrize(("step", "sabotage"), HOOKS, ids=[f"{row[0]}: {row[1][:30]}" for row in HOOKS])
def test_a_fault_in_a_hook_of_ours_never_breaks_the_cell_and_is_told_once(start_kernel, step, sabotage):
    kernel = start_kernel()
    kernel.run(
        "rt = get_ipython().kernel.ctx\ndef broken(*a, **k): raise RuntimeError('sabotaged')\n" + sabotage,
        stop_on_error=False,
    )
    rans = [kernel.run("value = 6 * 7\nprint(value)\nvalue") for _ in range(3)]
    for ran in rans:
        assert ran.status == "ok"
        assert ran.stdout == "42\n"
        assert ran.data[-1]["text/plain"] == "42"
    told = kernel.evaluate("dict(rt.guard.off)")
    assert step in told and "sabotaged" in told
    everything = "".join(ran.stderr for ran in rans)
    assert everything.count(f"{step} is off") <= 1
    assert kernel.run("%ctx status").status == "ok"


def test_an_interrupt_in_the_end_phase_never_kills_the_kernel(kernel):
    pid = int(kernel.evaluate("__import__('os').getpid()"))
    kernel.run(
        """
rt = get_ipython().kernel.ctx
import time
real = rt.store.end
def slow(*given, **named):
    open('ends', 'w').close()
    end = time.time() + 1.0
    while time.time() < end: pass
    return real(*given, **named)
rt.store.end = slow
"""
    )
    (kernel.folder / "ends").unlink(missing_ok=True)  # the cell above ended with it, too
    stopper = once((kernel.folder / "ends").exists, lambda: os.kill(pid, signal.SIGINT))
    ran = kernel.run("x = 1", timeout=20)
    stopper.join()
    assert (kernel.folder / "ends").exists()
    assert ran.status == "ok"
    assert kernel.evaluate("(x, dict(rt.guard.off))") == "(1, {})"
    assert [one["source"] for one in timeline(kernel)][-1] == "x = 1"


def test_the_end_phase_is_bounded_and_says_so(kernel):
    kernel.run("rt = get_ipython().kernel.ctx\nimport dataclasses")
    kernel.run("rows = [[n] for n in range(1_000_000)]")
    kernel.run("rt.configuration.settings = dataclasses.replace(rt.settings, end_phase_ms=0)")
    _, _, execution = run_and_look(kernel, "rows[3] = 0")
    assert execution["notices"] == ["still being compared: rows"]
    assert execution["status"] == "ok"


def test_namespace_changes_of_all_kinds_reach_the_timeline(kernel):
    kernel.run("a = [1]; b = a; gone = 1")
    _, _, execution = run_and_look(kernel, "b.append(2); del gone; fresh = {'k': 1}")
    diff = execution["state_diff"]
    assert list(diff["added"]) == ["fresh"]
    assert set(diff["changed"]) == {"a", "b"}
    assert diff["deleted"] == ["gone"]
    assert diff["changed"]["a"]["how"] == "mutated"


def test_the_projection_is_built_after_every_cell_and_is_json(kernel):
    kernel.run("x = 41\nprint('marker-of-this-cell')")
    made = json.loads(kernel.run("%ctx projection --json").stdout)
    assert {"request", "blocks", "report", "left_out", "tokens", "receipt"} <= set(made)
    assert made["report"] == {"ok": True, "violations": []}
    assert "marker-of-this-cell" in json.dumps(made["request"])
    assert "x" in json.dumps(made["request"])
    assert all({"id", "kind", "origin", "tokens", "cached", "why"} <= set(block) for block in made["blocks"])


def test_a_variable_whose_name_says_secret_is_masked_everywhere(kernel):
    kernel.run("db_password = 'hunter2hunter2'")
    kernel.run("db_password = 'swordfish99'; other = {'api_key': 'abcd1234efgh'}")
    diffs = [s["executions"][0]["state_diff"] for s in timeline(kernel)]
    assert (
        "hunter2" not in json.dumps(diffs)
        and "swordfish" not in json.dumps(diffs)
        and "abcd1234" not in json.dumps(diffs)
    )
    projection = json.loads(kernel.run("%ctx projection --json").stdout)
    assert "hunter2" not in json.dumps(projection) and "swordfish" not in json.dumps(projection)


def test_a_function_that_a_widget_uses_is_not_told_as_changed(kernel):
    kernel.run("from ipywidgets import interact\nbig = list(range(10))\ndef f(a=3): return a\ninteract(f, a=(0, 10))")
    for source in ("print('x')", "open('z', 'w').close()", "def g(:"):
        kernel.run(source)
    after = [s["executions"][0] for s in timeline(kernel)][1:]
    assert [execution["state_diff"]["changed"] for execution in after] == [{}, {}, {}]
    assert [execution["notices"] for execution in after] == [[], [], []]


def test_views_and_groups_work_in_a_notebook(kernel):
    (kernel.folder / "paper.md").write_text(
        "# Title\n\nFirst words of a paper say what it is about.\n\n## Part\n\nMore words.\n"
    )
    ran = kernel.run("h = view('paper.md', tokens=300)\nh")
    assert ran.outputs[-1]["type"] == "display_data"
    assert "First words" in ran.data[0]["text/plain"] and "<pre" in ran.data[0]["text/html"]
    kernel.run("h.run(); g = group(h)")
    (kernel.folder / "paper.md").write_text(
        "# Title\n\nOther words of a paper say what it is about.\n\n## Part\n\nMore words.\n"
    )
    ran = kernel.run("pass")
    [update] = [o for o in ran.outputs if o["type"] == "update_display_data"]
    assert "Other words" in update["data"]["text/plain"]
    deltas = timeline(kernel)[-1]["executions"][0]["events"]
    assert {"TickApplied", "GroupRecomputed"} <= {event["type"] for event in deltas}
    made = json.loads(kernel.run("%ctx projection --json").stdout)
    assert "Other words" in json.dumps(made["request"])


def test_moves_complete_the_statements_and_names_that_they_take(kernel):
    kernel.run("x = 1")
    kernel.run("%ctx checkpoint fitted")
    for line, expected in (
        ("%ctx goto ", {"s1", "fitted", "--before"}),
        ("%ctx rerun s", {"s1"}),
        ("%ctx mark ", {"s1", "fitted"}),
        ("%ctx mark s1 ", {"asks", "differs"}),
        ("%ctx diff fi", {"fitted"}),
        ("%ctx sweep --from ", {"s1", "fitted"}),
        ("%ctx sweep --from 1 --collect ", {"x"}),
        ("%ctx sweep --from 1 ", {"x=", "--collect"}),
        ("%ctx private ", {"x", "--off"}),
    ):
        reply = kernel.client.complete(line, len(line), reply=True, timeout=20)
        assert expected <= set(reply["content"]["matches"]), line


def test_view_and_group_have_magics_that_give_handles(kernel):
    (kernel.folder / "a b.md").write_text("# Title\n\nwords\n")
    assert kernel.run("df = {'k': 1}\nh = %view 'a b.md' --lod 1 --tokens=300").status == "ok"
    assert kernel.run("k = %view df\ng = %group h k --tokens All").status == "ok"
    assert (
        kernel.evaluate("(h.lod, h.tokens, k.kind, str(g.tokens), g.members == (h, k))")
        == "(1, 300, 'object', 'All', True)"
    )
    reply = kernel.client.complete("%group ", 7, reply=True, timeout=20)
    assert {"h", "k", "g"} <= set(reply["content"]["matches"])


BAD = [
    ("%view", "UserRefusal", "one target"),
    ("%view . --lodd 1", "UserRefusal", "--lod"),
    ("%view no/such/file", "UserRefusal", "no/such/file"),
    ("%group nothing", "UserRefusal", "no handle 'nothing'"),
    ("view('no/such/file.py')", "BadTarget", "no/such/file.py"),
    ("view('.', lod=9)", "BadPolicy", "structure"),
    ("view('.').lod = 'x'", "BadPolicy", "level of detail"),
    ("view('.').token = 3", "BadAttribute", "did you mean tokens?"),
    ("%ctx nonsense", "UserRefusal", "%ctx help"),
    ("%ctx timeout soon", "UserRefusal", "seconds"),
    ("%ctx show 999", "UserRefusal", "timeline"),
    ("%ctx why nothing", "UserRefusal", "projection"),
    ("%ctx timeline --jsn", "UserRefusal", "--json"),
    ("group(1)", "BadTarget", "takes handles, not a value of type int; make a handle of it first: group(view(…), …)"),
]


@pytest.mark.parametrize(("source", "error", "says"), BAD, ids=[row[0] for row in BAD])
def test_bad_input_gets_one_clear_sentence_and_no_traceback_of_ours(shared_kernel, source, error, says):
    ran = shared_kernel.run(source)
    assert ran.status == "error"
    assert ran.error["ename"] == error
    text = "\n".join(ran.error["traceback"])
    assert says in text
    assert "ctxkernel/" not in text and "Traceback" not in text


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_a_command_does_not_have_is_refused_with_those_that_it_has(shared_kernel, name: str):
    shared_kernel.run("1")
    known = [option for option in COMMANDS[name].options if option.startswith("--")]

    for line in (f"%ctx {name} --zzz", *([] if COMMANDS[name].takes_text else [f"%ctx {name} 1 --zzz=2"])):
        ran = shared_kernel.run(line)

        assert ran.status == "error", line
        assert f"%ctx {name} has no option --zzz; it has {', '.join(known) or 'none'}" in ran.error["evalue"]


def test_the_text_of_a_command_may_have_any_word(shared_kernel):
    shared_kernel.run("h = view('.')")

    assert shared_kernel.run("%ctx pin h it is --important").status == "ok"


def test_an_option_without_a_value_refuses_one(shared_kernel):
    ran = shared_kernel.run("%ctx stale --json=1")

    assert ran.error["evalue"] == "--json takes no value: write --json alone, not --json=1"


@pytest.mark.parametrize(
    ("line", "some", "only"),
    [
        ("%ctx ", "diff", "[a-z]+"),
        ("%ctx condense --", "--undo", "--[a-z]+"),
        ("%ctx redact ", "--list", r"--[a-z]+|s\d+\.\d+"),
        ("%ctx diff ", "projection", r"projection|s\d+|--json"),
        ("%ctx diff projection ", r"s\d+", r"s\d+|--json"),
        ("h = view('.')\n%ctx summ", "summaries", "summaries"),
        ("x = 1\n%ctx sho", "show", "show"),
    ],
)
def test_what_may_follow_on_a_ctx_line_stands_without_python_names(shared_kernel, line: str, some: str, only: str):
    shared_kernel.run("1")

    reply = shared_kernel.client.complete(line, len(line), reply=True, timeout=20)

    matches = reply["content"]["matches"]
    assert any(re.fullmatch(some, one) for one in matches)
    assert [one for one in matches if not re.fullmatch(only, one)] == []


def test_ctx_completes_its_subcommands(shared_kernel):
    reply = shared_kernel.client.complete("%ctx ti", 7, reply=True, timeout=20)
    assert {"timeline", "timeout"} <= set(reply["content"]["matches"])


@pytest.mark.parametrize("line", ["%ctx goto b", "%ctx export ", "%ctx mark s", "%ctx refresh t"])
def test_no_magic_of_ipython_may_follow_on_a_ctx_line(shared_kernel, line: str):
    reply = shared_kernel.client.complete(line, len(line), reply=True, timeout=20)
    assert [one for one in reply["content"]["matches"] if one.startswith("%")] == []


def test_an_export_is_offered_new_names_and_no_notebook(start_kernel, tmp_path):
    """A name of a notebook that is chosen by mistake would overwrite it."""
    for name in ("study.ipynb", "other.ipynb", "old.html", "a.md"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "data").mkdir()
    kernel = start_kernel(folder=tmp_path, notebook="study.ipynb")
    reply = kernel.client.complete("%ctx export ", 12, reply=True, timeout=20)
    assert reply["content"]["matches"] == ["study.html", "study-export.ipynb", "data/", "old.html"]


@pytest.mark.parametrize("stock", [False, True])
def test_a_page_that_connects_draws_no_random_number_of_the_user(start_kernel, stock: bool):
    """IPython chooses the tip of its banner by the functions of `random`, at each request for the kernel's info."""
    kernel = start_kernel(stock=stock)
    if stock:
        kernel.run("%load_ext ctxkernel")
    kernel.run("import random; random.seed(1); expected = random.Random(1).random()")
    kernel.client.kernel_info(reply=True, timeout=20)
    assert kernel.evaluate("random.random() == expected") == "True"


def test_load_ext_gives_a_stock_kernel_the_same(start_kernel):
    kernel = start_kernel(stock=True)
    assert kernel.client.kernel_info(reply=True, timeout=20)["content"]["implementation"] == "ipython"
    assert kernel.run("%load_ext ctxkernel").status == "ok"
    info = kernel.client.kernel_info(reply=True, timeout=20)["content"]
    assert info["implementation"] == "ctxkernel"
    assert "kernel subshells" not in info.get("supported_features", [])
    assert kernel.run("%load_ext ctxkernel").stdout.startswith("The ctxkernel extension is already loaded")
    kernel.run("x = [1]")
    kernel.run("x.append(2); print('said')\nimport os; _ = os.write(1, b'c level\\n')")
    stop = kernel.manager.interrupt_kernel
    kernel.run("import time; print('it runs', flush=True); time.sleep(20)", timeout=15, at_output=stop)
    statements = timeline(kernel)
    assert [s["executions"][0]["status"] for s in statements][-3:] == ["ok", "ok", "cancelled"]
    assert statements[-2]["executions"][0]["stdout"] == "said\nc level\n"
    assert list(statements[-2]["executions"][0]["state_diff"]["changed"]) == ["x"]
    assert "nothing has been sent" in kernel.run("%ctx status").data[-1]["text/plain"]
    assert "Restart the kernel" in kernel.run("%unload_ext ctxkernel").stdout
    kernel.run("x.append(3)")
    assert list(timeline(kernel)[-1]["executions"][0]["state_diff"]["changed"]) == ["x"]


def test_in_plain_ipython_the_extension_says_what_is_missing():
    from IPython.testing.globalipapp import get_ipython, start_ipython

    import ctxkernel

    start_ipython()
    with pytest.raises(Exception, match="Jupyter kernel"):
        ctxkernel.load_ipython_extension(get_ipython())


@pytest.mark.scaled
def test_a_storm_of_requests_is_answered_to_the_last(kernel):
    """The shell's socket is read in one thread: an answer sent past it, from another, aborted the process in libzmq."""
    client = kernel.client
    waiting: set[str] = set()
    for n in range(1000 if QUICK else 3000):
        waiting.add(client.kernel_info() if n % 2 else client.is_complete("x = 1"))
        if len(waiting) > 300:
            waiting.discard(client.get_shell_msg(timeout=60)["parent_header"]["msg_id"])
    while waiting:
        waiting.discard(client.get_shell_msg(timeout=60)["parent_header"]["msg_id"])
    with contextlib.suppress(queue.Empty):  # a full socket drops what comes next
        while client.get_iopub_msg(timeout=0.5):
            pass

    assert kernel.run("print(6 * 7)").stdout == "42\n"


def test_a_subshell_is_refused_at_once(kernel):
    client = kernel.client
    message = client.session.msg("create_subshell_request", {})
    client.control_channel.send(message)
    reply = client.get_control_msg(timeout=30)

    assert reply["msg_type"] == "create_subshell_reply"
    assert reply["content"]["status"] == "error"


def test_the_kernel_says_who_it_is_and_advertises_no_subshells(kernel):
    info = kernel.client.kernel_info(reply=True, timeout=20)["content"]
    assert info["implementation"] == "ctxkernel"
    assert "kernel subshells" not in info.get("supported_features", [])
    assert info["language_info"]["version"] == ".".join(map(str, sys.version_info[:3]))


def test_a_kernel_that_is_shut_down_leaves_its_session_in_one_file(kernel):
    kernel.run("x = 1")
    session = kernel.folder / ".ctxkernel" / "note.sqlite"
    assert session.with_name("note.sqlite-wal").exists()

    kernel.stop()

    assert not session.with_name("note.sqlite-wal").exists()
    copy = kernel.folder / "sent to a colleague.sqlite"
    copy.write_bytes(session.read_bytes())
    with SessionReader(copy) as reader:
        assert [s["source"] for s in reader.timeline()["statements"]] == ["x = 1"]


def test_a_panel_gets_a_snapshot_on_opening_and_a_message_a_turn(kernel):
    kernel.run("before = 1")
    client = kernel.client
    client.shell_channel.send(
        client.session.msg("comm_open", {"comm_id": "p1", "target_name": "ctxkernel.panel", "data": {"protocol": 1}})
    )
    ran = kernel.run("after = 2")
    messages = [o["data"] for o in ran.outputs if o["type"] == "comm_msg"]
    assert [m["type"] for m in messages] == ["begin", "turn"]
    assert messages[0]["statement"]["source"] == "after = 2"
    assert messages[1]["statement"]["diff"]["added"]["after"]["repr"] == "2"
    assert messages[1]["projection"]["report"]["ok"] is True
    assert timeline(kernel)[-1]["executions"][0]["stdout"] == ""


def test_a_snapshot_can_be_had_while_a_cell_runs(kernel):
    kernel.run("first = 1")
    client = kernel.client
    with kernel.running("second = 2"):
        client.control_channel.send(client.session.msg("ctxkernel_snapshot_request", {}))
        reply = client.get_control_msg(timeout=30)
    assert reply["msg_type"] == "ctxkernel_snapshot_reply"
    assert reply["content"]["running"]["source"].startswith("second = 2")
    assert [row["statement_id"] for row in reply["content"]["statements"]] == ["s1"]
    assert reply["content"]["sent"] is False


def test_a_kernel_that_runs_a_cell_still_looks_busy_after_a_request_of_the_panel(kernel):
    """Front ends show the last status that came, whichever request it is of."""
    client = kernel.client
    with kernel.running("second = 2"):
        for kind in ("ctxkernel_snapshot_request", "kernel_info_request"):
            client.control_channel.send(client.session.msg(kind, {}))
            client.get_control_msg(timeout=30)
            told: list[tuple[str, str]] = []
            while told[-2:] != [("idle", kind), ("busy", "execute_request")]:
                message = client.get_iopub_msg(timeout=10)
                if message["msg_type"] == "status":
                    told.append((message["content"]["execution_state"], message["parent_header"]["msg_type"]))
    assert kernel.run("print(second)").stdout == "2\n"


TRANSFORMERS = """
ip = get_ipython()
calls = []
def shout(lines):
    calls.append("".join(lines))
    return [line.replace("LOUD", "print('loud')") for line in lines]
ip.input_transformers_post.append(shout)
"""


def test_a_cell_is_transformed_once_and_a_cell_that_it_runs_anew(start_kernel):
    """Also where a cell adds a transformer, or takes one away, between two equal cells that it runs."""
    kernel = start_kernel()
    kernel.run(TRANSFORMERS)

    assert kernel.run("LOUD").stdout == "loud\n"
    assert kernel.run("LOUD").stdout == "loud\n"
    assert kernel.run("print(sum(one.startswith('LO' 'UD') for one in calls))").stdout == "2\n"
    told = kernel.run("s = 'LO' 'UD'; ip.run_cell(s); ip.input_transformers_post.remove(shout); ip.run_cell(s)")
    assert told.stdout.startswith("loud\n")
    assert "NameError" in told.stdout + told.stderr + str(told.outputs)
    assert kernel.run("LOUD").error["ename"] == "NameError"
    assert kernel.run("%pwd").status == "ok"
    assert kernel.run("import asyncio; await asyncio.sleep(0); print('awaited')").stdout == "awaited\n"


def test_garbage_is_collected_again_before_any_code_of_the_user_runs(start_kernel, tmp_path):
    """Also in a startup file of IPython: the collection is off only while the kernel loads its modules."""
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("import gc; at_startup = gc.isenabled()")
    kernel = start_kernel(env={"IPYTHONDIR": str(tmp_path / "ipython")})
    assert kernel.evaluate("(at_startup, gc.isenabled())") == "(True, True)"


def test_what_the_user_configured_for_ipykernel_holds(start_kernel, tmp_path):
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(
        "c = get_config()\n"
        "c.InteractiveShellApp.exec_lines = ['mine = 5']\n"
        "c.InteractiveShell.ast_node_interactivity = 'all'\n"
    )
    kernel = start_kernel(env={"IPYTHONDIR": str(tmp_path / "ipython")})

    assert [data["text/plain"] for data in kernel.run("mine\nmine + 1").data] == ["5", "6"]


def test_the_status_counts_in_plain_words(kernel):
    kernel.run("x = 1")
    told = str(kernel.run("%ctx status").outputs)
    assert "1 statement in this run, HEAD s1" in told
    assert "living" not in told
