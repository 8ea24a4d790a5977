"""Data that were being written when their kernel ended: the writing process goes on, and %ctx resume finds them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import nbformat
import pytest
from kernels import RunningKernel, StartKernel
from nbformat.v4 import new_code_cell, new_notebook

from ctxkernel.cli import main
from ctxkernel.store import signatures
from ctxkernel.store.chunks import late_results

LARGE = "import os; mark = os.urandom(8); recs = [{'id': i, 'v': 0} for i in range(300_000)]; hit = recs[200_000]"
"""Not made again by a second run."""
PACKS_FOR_SECONDS = """
(lambda cls, time: (lambda pack: setattr(
    cls, "_pack_and_put", lambda self, *given: (time.sleep(2), pack(self, *given))[1]
))(cls._pack_and_put))(type(get_ipython().kernel.ctx.returning.checkpoints.storage), __import__("time"))
"""
SAME = "(len(recs), recs[200_000] is hit, hit['v'])"


def killed_while_writing(start_kernel: StartKernel, folder: Path, *later: str) -> tuple[Path, str]:
    """Run a cell with large data, and others; kill the kernel at once. Return the folder of the data, and `mark`."""
    first = start_kernel(folder=folder)
    first.run("a = 1")
    first.evaluate(f"({PACKS_FOR_SECONDS})")
    pid = int(first.evaluate("__import__('os').getpid()"))
    data = Path(first.evaluate("str(get_ipython().kernel.ctx.returning.chunks.folder)").strip("'"))
    assert first.run(LARGE).status == "ok"
    mark = first.evaluate("mark")
    for cell in later:
        assert first.run(cell).status == "ok"
    os.kill(pid, signal.SIGKILL)
    assert not late_results.jobs(data), "it was killed before all data were written"
    return data, mark


def resumed(start_kernel: StartKernel, folder: Path) -> tuple[RunningKernel, str]:
    """Start another kernel for the notebook, and resume. Return it with what the command said."""
    second = start_kernel(folder=folder)
    ran = second.run("%ctx resume", timeout=180)
    assert ran.status == "ok", ran.error
    return second, ran.stdout


def test_what_was_being_written_when_the_kernel_was_killed_comes_back(start_kernel, tmp_path):
    _, mark = killed_while_writing(start_kernel, tmp_path)

    second, said = resumed(start_kernel, tmp_path)

    assert second.evaluate(SAME) == "(300000, True, 0)", said
    assert second.evaluate("mark") == mark
    assert second.run("hit['v'] = 7").status == "ok"
    second.run("%ctx goto 2")
    assert second.evaluate(SAME) == "(300000, True, 0)"


def test_a_dry_run_leaves_it_for_the_next_kernel(start_kernel, tmp_path):
    nbformat.write(new_notebook(cells=[new_code_cell("a = 1"), new_code_cell(LARGE)]), tmp_path / "note.ipynb")
    _, mark = killed_while_writing(start_kernel, tmp_path)

    assert main(["goto", str(tmp_path / "note.ipynb"), "1", "--dry-run"]) == 0

    second, said = resumed(start_kernel, tmp_path)
    assert second.evaluate(f"({SAME}, mark)") == f"((300000, True, 0), {mark})", said


def test_later_cells_that_share_nothing_with_it_come_back_too(start_kernel, tmp_path):
    _, mark = killed_while_writing(start_kernel, tmp_path, "b = [1, 2]", "a = 5")

    second, said = resumed(start_kernel, tmp_path)

    assert second.evaluate(f"({SAME}, a, b)") == "((300000, True, 0), 5, [1, 2])", said
    assert second.evaluate("mark") == mark


def test_a_later_cell_that_changed_what_was_being_written_is_right_or_named(start_kernel, tmp_path):
    _, mark = killed_while_writing(start_kernel, tmp_path, "hit['v'] = 7")

    second, said = resumed(start_kernel, tmp_path)

    if second.evaluate("{'recs', 'hit'} <= set(globals())") == "True":
        assert second.evaluate(SAME) == "(300000, True, 7)", said
        assert second.evaluate("mark") == mark or "made again" in said
    else:
        assert "recs" in said or "no state after s3" in said, said


def test_nothing_is_kept_beside_the_data_once_the_log_has_it(start_kernel, tmp_path):
    kernel = start_kernel(folder=tmp_path)
    data = Path(kernel.evaluate("str(get_ipython().kernel.ctx.returning.chunks.folder)").strip("'"))
    kernel.run(LARGE)
    assert kernel.evaluate("get_ipython().kernel.ctx.checkpoints.wait_for_all()") == "True"

    assert late_results.jobs(data) == set()
    assert [name for name in os.listdir(data) if late_results.is_late_result(name)] == []


@pytest.mark.parametrize("change", ["result", "signature", "job", "folder"])
def test_a_result_that_this_user_did_not_sign_counts_for_nothing(tmp_path, change):
    late_results.keep(tmp_path, "s2.1", {"s2.1": {"units": []}})
    assert late_results.kept(tmp_path, "s2.1") == {"s2.1": {"units": []}}
    path = tmp_path / "s2.1.result"
    made, job, folder = json.loads(path.read_text()), "s2.1", tmp_path
    match change:
        case "result":
            path.write_text(json.dumps(made | {"result": made["result"].replace("[]", "[1]")}))
        case "signature":
            other = signatures.Signer(b"0" * 32)
            path.write_text(json.dumps(made | {"signature": other.sign("result", tmp_path.name, job, made["result"])}))
        case "job":
            job = "s3.1"
            path.rename(tmp_path / "s3.1.result")
        case _:
            folder = tmp_path / "other"
            folder.mkdir()
            path.rename(folder / path.name)

    assert late_results.kept(folder, job) is None


@pytest.mark.parametrize("job", ["", "../s2.1", "s2/1", "a" * 100, "."])
def test_the_name_of_a_job_leads_to_no_other_place(tmp_path, job):
    (tmp_path / "in").mkdir()
    (tmp_path / "s2.1.result").write_text("kept")

    assert late_results.kept(tmp_path / "in", job) is None
    late_results.forget(tmp_path / "in", job)
    assert (tmp_path / "s2.1.result").exists()
