"""Attacks on a real kernel: interrupts, time-outs, streams that are replaced, requests that are malformed."""

from __future__ import annotations

import json
import os
import signal
import textwrap
import threading
import time

import pytest
from scale import QUICK


def timeline(kernel):
    return json.loads(kernel.run("%ctx timeline --json").stdout)["statements"]


def run_and_look(kernel, source, **options):
    ran = kernel.run(textwrap.dedent(source), **options)
    return ran, timeline(kernel)[-1]["executions"][-1]


def switched_off(kernel):
    return kernel.evaluate("dict(get_ipython().kernel.ctx.guard.off)")


def request(kernel, metadata, **content):
    """Send an execute request as it stands; returns its reply, None where none came."""
    client = kernel.client
    whole = {"code": "", "silent": False, "store_history": True, "allow_stdin": False, "user_expressions": {}}
    message = client.session.msg("execute_request", {**whole, **content}, metadata=metadata)
    client.shell_channel.send(message)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            reply = client.get_shell_msg(timeout=1)
        except Exception:  # the queue's Empty
            continue
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            return reply["content"]
    return None


ODD_METADATA = [
    {"ctxkernel": "x"},
    {"ctxkernel": None},
    {"ctxkernel": ["kind"]},
    {"ctxkernel": {"kind": ["meta"]}},
    {"cellId": 5},
    {"cellId": {"a": 1}},
]


@pytest.mark.parametrize("metadata", ODD_METADATA, ids=str)
def test_whatever_stands_in_the_metadata_of_a_request_it_is_answered(shared_kernel, metadata):
    assert request(shared_kernel, metadata, code="odd = 1")["status"] == "ok"
    assert timeline(shared_kernel)[-1]["source"] == "odd = 1"
    assert switched_off(shared_kernel) == "{}"


def test_code_that_is_no_text_is_refused_as_on_ipykernel_and_costs_nothing(shared_kernel):
    before = len(timeline(shared_kernel))
    assert request(shared_kernel, {}, code=5, stop_on_error=False)["status"] == "error"
    assert request(shared_kernel, {"ctxkernel": {"kind": "meta"}}, code=5, stop_on_error=False)["status"] == "error"
    assert len(timeline(shared_kernel)) == before
    assert switched_off(shared_kernel) == "{}"


def test_a_request_on_which_ipykernel_fails_ends_its_statement_and_its_time_out(kernel):
    kernel.run("%ctx timeout 1")
    client = kernel.client
    content = {"code": "zz = 1", "silent": False, "store_history": True, "user_expressions": "no mapping"}
    client.shell_channel.send(client.session.msg("execute_request", content))
    ran = kernel.run("import time\nfor _ in range(20): time.sleep(0.06)\n")  # over its own time-out only
    assert ran.status == "error"
    first, second = (statement["executions"][0] for statement in timeline(kernel)[-2:])
    assert (first["status"], first["exception"]["type"]) == ("error", "AttributeError")
    assert second["status"] == "timeout" and second["cost"]["time_ms"] > 900


def test_a_gesture_that_fails_is_a_statement_with_its_error(shared_kernel):
    reply = request(shared_kernel, {"ctxkernel": {"kind": "meta"}}, code="1/0", store_history=False)
    assert reply["status"] == "error"
    statement = timeline(shared_kernel)[-1]
    assert (statement["kind"], statement["executions"][0]["status"]) == ("meta", "error")


def test_a_cell_of_a_notebook_cannot_pass_for_a_gesture_of_the_panel(shared_kernel):
    """JupyterLab sends a cell's own metadata with its request, and a notebook's author may have written any."""
    assert request(shared_kernel, {"ctxkernel": {"kind": "meta"}}, code="posing = 1")["status"] == "ok"
    statement = timeline(shared_kernel)[-1]
    assert (statement["source"], statement["kind"], statement["author"]) == ("posing = 1", "python", "human")


COMPUTES_AFTER_AWAIT = """
    import asyncio, time
    await asyncio.sleep(0); print('it runs', flush=True)
    end = time.time() + 8
    while time.time() < end: pass
"""


def test_a_second_interrupt_while_ipython_shows_the_first_one_costs_no_reply(kernel):
    """It has no result to return then; on ipykernel the reply never comes."""
    kernel.run(
        """
        import IPython.core.interactiveshell as shell
        kept = shell.ExecutionInfo, shell._pseudo_sync_runner
        def second(*given, **named):
            shell.ExecutionInfo, shell._pseudo_sync_runner = kept
            raise KeyboardInterrupt
        def first(coroutine):
            shell.ExecutionInfo = second
            coroutine.close()
            raise KeyboardInterrupt
        def arm(result):
            get_ipython().events.unregister('post_run_cell', arm)
            shell._pseudo_sync_runner = first
        _ = get_ipython().events.register('post_run_cell', arm)
        """
    )
    ran, execution = run_and_look(kernel, "x = 1", timeout=20)
    assert (ran.status, ran.error["ename"]) == ("error", "KeyboardInterrupt")
    assert execution["status"] == "cancelled"
    assert kernel.run("print('alive')").stdout == "alive\n"


def test_a_cell_that_awaited_and_then_computes_can_be_interrupted(kernel):
    kernel.run("pass")
    started = time.monotonic()
    stop = kernel.manager.interrupt_kernel
    ran, execution = run_and_look(kernel, COMPUTES_AFTER_AWAIT, timeout=20, at_output=stop)
    assert time.monotonic() - started < 6
    assert (ran.status, execution["status"]) == ("error", "cancelled")
    assert kernel.run("print('alive')").stdout == "alive\n"


def test_a_cell_that_awaited_and_then_computes_is_stopped_by_its_time_out(kernel):
    kernel.run("%ctx timeout 0.5")
    ran, execution = run_and_look(kernel, COMPUTES_AFTER_AWAIT, timeout=20)
    assert (ran.status, execution["status"]) == ("error", "timeout")
    assert execution["cost"]["time_ms"] < 6000


def test_an_interrupt_while_another_task_computes_does_not_end_the_kernel(kernel):
    source = """
        import asyncio, time
        async def busy():
            print('it runs', flush=True)
            end = time.time() + 2
            while time.time() < end: pass
        await asyncio.gather(busy(), asyncio.sleep(5))
    """
    ran = kernel.run(textwrap.dedent(source), timeout=20, at_output=kernel.manager.interrupt_kernel)
    assert ran.status == "error"
    assert kernel.run("print('alive')").stdout == "alive\n"


def test_a_cell_that_catches_its_time_out_is_ok_and_says_so(kernel):
    kernel.run("%ctx timeout 0.3")
    source = "import time\ntry: time.sleep(5)\nexcept KeyboardInterrupt: print('caught')"
    _, execution = run_and_look(kernel, source)
    assert (execution["status"], execution["stdout"]) == ("ok", "caught\n")
    assert execution["notices"][0].startswith("interrupted, and went on")


@pytest.mark.scaled
def test_interrupts_of_tiny_await_cells_lose_no_reply_and_never_reach_the_next_cell(kernel):
    pid = int(kernel.evaluate("__import__('os').getpid()"))
    kernel.run("import asyncio")
    for turn in range(48 if QUICK else 150):
        timer = threading.Timer(turn % 8 / 1000, os.kill, (pid, signal.SIGINT))
        timer.start()
        kernel.run("await asyncio.sleep(0.002)", timeout=20, stop_on_error=False)
        timer.join()
        assert kernel.run("1", timeout=20, stop_on_error=False).status == "ok"
    assert {s["executions"][0]["status"] for s in timeline(kernel)} == {"ok", "cancelled"}


def test_a_stdout_of_the_users_that_cannot_be_flushed_costs_no_step_of_ours(kernel):
    source = """
        import os, sys
        class Closed:
            flushes = 0
            def write(self, text): pass
            def flush(self):
                Closed.flushes += 1
                if Closed.flushes == 1: raise ValueError('closed')
        stock = sys.stdout
        sys.stdout = Closed()
        _ = os.write(1, b'c level\\n')
    """
    assert kernel.run(textwrap.dedent(source)).status == "ok"
    kernel.run("sys.stdout = stock")
    _, execution = run_and_look(kernel, "_ = os.write(1, b'c level again\\n')")
    assert execution["stdout"] == "c level again\n"
    assert timeline(kernel)[0]["executions"][0]["stdout"] == "c level\n"
    assert switched_off(kernel) == "{}"


def test_a_thread_that_never_stops_printing_costs_no_cell_and_no_step(kernel):
    kernel.run(
        "import threading\nstop = False\ndef spam():\n    while not stop: print('spam' * 10)\n"
        "threads = [threading.Thread(target=spam, daemon=True) for _ in range(2)]\nfor t in threads: t.start()"
    )
    started = time.monotonic()
    assert all(kernel.run(f"x = {n}", timeout=30).status == "ok" for n in range(10))
    assert time.monotonic() - started < 20
    kernel.run("stop = True", timeout=30)
    assert switched_off(kernel) == "{}"


def test_a_child_that_writes_without_end_does_not_hold_up_cells(kernel):
    kernel.run("import subprocess; child = subprocess.Popen(['sh', '-c', 'while true; do echo spam; done'])")
    started = time.monotonic()
    for number in range(5):
        kernel.run(f"x = {number}", timeout=30)
    assert time.monotonic() - started < 10
    kernel.run("child.kill(); _ = child.wait()")
    assert switched_off(kernel) == "{}"


def test_a_display_that_is_updated_often_keeps_its_last_state(kernel):
    source = """
        from IPython.display import HTML, display, update_display
        display(HTML('first'), display_id='animation')
        for i in range(100): update_display(HTML(f'{i} ' + 'x' * 200_000), display_id='animation')
    """
    _, execution = run_and_look(kernel, source)
    [html] = [a for a in execution["artifacts"] if a["mime"] == "text/html"]
    assert html["data"] is not None and html["data"].startswith("99 ")


def test_a_forked_child_that_runs_on_writes_nothing_into_the_timeline(kernel):
    kernel.run("import os, time\npid = os.fork()\nif not pid: time.sleep(0.3)")
    kernel.run("time.sleep(0.8); os.kill(pid, 9); _ = os.waitpid(pid, 0)")
    assert [s["executions"][0]["status"] for s in timeline(kernel)] == ["ok", "ok"]
    assert switched_off(kernel) == "{}"


def test_text_that_looks_like_a_question_to_ctx_stays_the_users(kernel):
    assert kernel.run("text = '''\n%ctx timeline?\n'''\nprint(text)").stdout == "\n%ctx timeline?\n\n"
    kernel.run("%%writefile doc.md\n%ctx timeline?\n")
    assert (kernel.folder / "doc.md").read_text() == "%ctx timeline?\n"
    assert "the statements of this run" in kernel.run("%ctx timeline?").data[-1]["text/plain"]
    assert "the statements of this run" in kernel.run("x = 1\nif x:\n    %ctx timeline?").data[-1]["text/plain"]


@pytest.mark.parametrize("line", ["%ctx pin df", "%ctx unpin arr", "%ctx show ²", "%ctx timeline ²"])
def test_odd_arguments_of_ctx_are_refused_in_one_sentence(shared_kernel, line):
    shared_kernel.run("import pandas as pd, numpy as np; df = pd.DataFrame({'a': [1, 2]}); arr = np.ones(3)")
    ran = shared_kernel.run(line)
    assert ran.error["ename"] == "UserRefusal"


def test_a_handle_is_copied_as_itself_and_pickled_by_reference(kernel):
    ran = kernel.run("import copy, pickle\nh = view('.')\nprint(copy.copy(h) is h, copy.deepcopy([h])[0] is h)")
    assert ran.stdout == "True True\n"
    ran = kernel.run("print(pickle.loads(pickle.dumps([h, {'h': h}]))[1]['h'] is h)")
    assert ran.stdout == "True\n"


SLOW = """
import time
from ctxkernel.core.ports import Rendered
class Slow:
    kind = label = 'slow'
    number = 0
    seconds = 0.0
    fault = None
    def stamp(self):
        self.number += 1
        return str(self.number)
    def render(self, request):
        if self.fault: raise self.fault
        time.sleep(self.seconds)
        return Rendered(f'v{self.number}', 1, request.lod, request.pos, fingerprint=str(self.number), basis=1)
graph = get_ipython().kernel.ctx.loop.graph
stock = graph.open_source
graph.open_source = lambda target: target if isinstance(target, Slow) else stock(target)
"""


@pytest.mark.parametrize("freq", ["'Sync'", "('Periodic', 0.001)"])
def test_slow_views_over_the_bound_wait_for_a_later_cell_and_all_get_their_turn(kernel, freq):
    kernel.run(SLOW)
    kernel.run(
        f"Slow.seconds = 0.04\nhs = [view(Slow()).run({freq}) for _ in range(9)]\nbefore = [h.revision for h in hs]"
    )
    _, execution = run_and_look(kernel, "pass")
    assert any("not looked at" in notice for notice in execution["notices"])
    for _ in range(6):
        kernel.run("pass")
    assert kernel.evaluate("all(h.revision > was for h, was in zip(hs, before))") == "True"


def test_an_async_view_that_fails_is_named_and_recovers(kernel):
    kernel.run(SLOW)
    kernel.run("source = Slow()\nh = view(source).run('Async')")
    kernel.run("source.fault = RuntimeError('boom')")
    time.sleep(0.2)
    _, execution = run_and_look(kernel, "pass")
    assert "boom" in execution["notices"][0] and "h" in execution["notices"][0]
    kernel.run("source.fault = None; was = h.revision")
    for _ in range(3):
        time.sleep(0.1)
        kernel.run("pass")
    assert kernel.evaluate("(h.revision > was, h.fault)") == "(True, '')"


def test_a_rendering_that_hangs_in_the_background_does_not_hold_up_the_shutdown(kernel):
    kernel.run(SLOW)
    kernel.run("h = view(Slow()).run('Async'); Slow.seconds = 60")
    kernel.run("pass")
    kernel.client.shutdown()
    started = time.monotonic()
    while kernel.manager.is_alive() and time.monotonic() - started < 20:
        time.sleep(0.05)
    assert time.monotonic() - started < 10  # of which up to five are for data that are still being written


def test_a_view_from_a_working_folder_that_is_gone_says_so(kernel):
    kernel.run("import os, tempfile\nd = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)")
    ran = kernel.run("view('.')", stop_on_error=False)
    assert ran.error["ename"] == "BadTarget"
    assert "os.chdir" in "".join(ran.error["traceback"])
