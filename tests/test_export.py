"""The HTML page of a session: what it holds, what it masks, and its size."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import exported
import pytest

from ctxkernel.cli import main
from ctxkernel.core.timeline import StatementLog
from ctxkernel.export import images, page, session_data
from ctxkernel.projection.masker import Masker
from ctxkernel.store.log.reader import SessionReader


def data_of(text: str) -> dict[str, Any]:
    """Return the data in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.fixture
def text(kernel: Any, tmp_path: Path) -> str:
    exported.fill(kernel)
    return exported.exported(kernel, tmp_path / "session.html")


def test_a_page_holds_executions_branches_comparisons_and_the_projection(text):
    data = data_of(text)
    runs = {one["id"]: one for one in data["executions"]}
    assert runs["s1.1"]["source"] == "import time\nx = 1"
    assert {one["name"]: one["after"] for one in runs["s1.1"]["changes"]}["x"] == "1"
    assert "ZeroDivisionError" in runs["s7.1"]["error"]
    assert runs["s8.2"]["comparison"]["against"] == "s8.1"
    assert any(row["subject"] == "t" for row in runs["s8.2"]["comparison"]["rows"])
    assert sum(one["head"] for one in data["branches"]) == 1
    assert len(data["branches"]) >= 2
    assert {data["head"], *(one["leaf"] for one in data["branches"])} <= runs.keys()
    assert any("other" in one["text"] for one in data["differences"])
    assert data["projection"]["tokens"] > 0
    assert runs["s1.1"]["tokens"] > 0
    assert [one["kind"] for one in runs["s5.1"]["outputs"]] == ["image"]
    assert data["images"][runs["s5.1"]["outputs"][0]["image"]].startswith("data:image/png;base64,")


def test_a_page_shows_no_secret_and_no_private_name(text):
    assert exported.SECRET not in text
    assert exported.KEY not in text
    assert "private-value-4711" not in json.dumps([one["changes"] for one in data_of(text)["executions"]])
    assert not re.search(r"\bsalary\b", text)


def test_a_page_has_the_table_of_a_sweep_without_private_names(kernel, tmp_path):
    exported.fill(kernel)
    exported.sweep(kernel)

    data = data_of(exported.exported(kernel, tmp_path / "session.html"))

    (shown,) = (one["sweep"] for one in data["executions"] if one["sweep"])
    assert (shown["parameters"], shown["collected"]) == (["alpha"], ["r2", "fig"])
    assert [row["values"][0]["text"] for row in shown["rows"][:3]] == ["2", "10", "1"]
    assert shown["rows"][0]["values"][2]["image"] == exported.png(8)
    assert [row["branch"] for row in shown["rows"]] == ["s1.2", "s1.10", "s1.1", None]


def test_a_page_has_a_policy_that_loads_nothing_and_no_markup_of_outputs(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert "<script>window.broken" not in text
    assert "<img" not in text
    assert len(re.findall(r"<script", text)) == 2
    svg = next(one for one in data_of(text)["executions"] if one["id"] == "s4.1")["outputs"][0]
    assert data_of(text)["images"][svg["image"]].startswith("data:image/svg+xml;base64,")


def test_the_command_line_exports_a_notebook_and_reads_its_texts(tmp_path, capsys):
    cells = [
        {"cell_type": "markdown", "id": "m", "metadata": {}, "source": ["# A <b>title</b>\n", "text"]},
        {"cell_type": "code", "id": "a", "metadata": {}, "source": "x = 1", "outputs": [], "execution_count": None},
    ]
    notebook = tmp_path / "book.ipynb"
    spec = {"kernelspec": {"name": "ctxkernel", "display_name": "x", "language": "python"}}
    notebook.write_text(json.dumps({"cells": cells, "metadata": spec, "nbformat": 4, "nbformat_minor": 5}))
    assert main(["run", str(notebook)]) == 0, capsys.readouterr()
    capsys.readouterr()

    assert main(["export", str(notebook), "--html", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(tmp_path / "book.html")
    assert told["bytes"] == (tmp_path / "book.html").stat().st_size
    data = data_of((tmp_path / "book.html").read_text("utf-8"))
    assert data["title"] == "book"
    assert data["notebook"][0] == {"type": "markdown", "cell": "m", "source": "# A <b>title</b>\ntext"}
    assert data["notebook"][1]["cell"] == data["executions"][0]["cell"]


def test_a_page_of_a_session_with_a_damaged_projection_says_that_it_lacks_it(kernel, tmp_path, capsys):
    kernel.run("x = 1")
    session = Path(kernel.evaluate("str(get_ipython().kernel.ctx.store.path)").strip("'"))
    kernel.stop()
    record = session.read_bytes()
    session.write_bytes(record.replace(b'{"version":1,"model"', b'{"version":9,"model"'))

    assert main(["export", str(session), "--html", "--output", str(tmp_path / "page.html")]) == 0, capsys.readouterr()

    data = data_of((tmp_path / "page.html").read_text("utf-8"))
    assert (data["projection"], len(data["executions"])) == (None, 1)
    assert data["left_out"] == ["the projection is damaged, or of a newer ctxkernel: it is left out"]


def test_an_output_that_cannot_be_written_is_refused_and_nothing_is_left(tmp_path, capsys, kernel):
    ran = kernel.run(f"%ctx export {tmp_path / 'none' / 'x.html'}")
    assert ran.status == "error"
    assert "cannot be written" in ran.error["evalue"]
    assert main(["export", str(tmp_path / "none.ipynb")]) == 2
    assert list(tmp_path.glob("*.html")) == []


def test_a_page_gets_no_ending_of_another_format(tmp_path, capsys, kernel):
    """Not a PDF file that no program opens."""
    kernel.run("x = 1")
    ran = kernel.run(f"%ctx export {tmp_path / 'report.pdf'}")
    assert "no page or notebook has the ending .pdf; use .html or .ipynb" in ran.error["evalue"]
    (tmp_path / "a.ipynb").write_text("{}")
    assert main(["export", str(tmp_path / "a.ipynb"), "--output", str(tmp_path / "report.pdf")]) == 2
    assert "use .html or .ipynb, or add --html" in capsys.readouterr().err
    assert list(tmp_path.glob("*.pdf")) == []


def test_an_export_overwrites_no_other_notebook(kernel, tmp_path):
    """Only one that an export wrote is replaced."""
    kernel.run("x = 1")
    other, copy = tmp_path / "other.ipynb", tmp_path / "copy.ipynb"
    for text in ("{}", '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "no JSON"):
        other.write_text(text)
        refused = kernel.run(f"%ctx export {other}")
        assert "no export wrote it; name another file, or delete it first" in refused.error["evalue"]
        assert other.read_text() == text
    for _ in range(2):
        assert kernel.run(f"%ctx export {copy}").status == "ok"
    assert "x = 1" in copy.read_text("utf-8")


def fill_large(kernel: Any, cells: int) -> None:
    """Run cells with long outputs and many images."""
    kernel.run("from IPython.display import display")
    kernel.run(f"pictures = {[exported.png(220, seed) for seed in range(6)]!r}")
    for n in range(cells):
        picture = f"display({{'image/png': pictures[{n // 5 % 6}], 'text/plain': 'p'}}, raw=True)" if n % 5 == 0 else ""
        kernel.run(f"value_{n} = list(range({n}))\nprint('line ' * 2000)\n{picture}")


def test_images_and_texts_of_a_large_session_are_bounded_and_the_page_says_so(kernel, tmp_path, monkeypatch):
    """As for 500 cells, with smaller bounds."""
    fill_large(kernel, 30)
    (session,) = kernel.folder.rglob("*.sqlite")
    monkeypatch.setattr(images, "ALL_BYTES", 200_000)
    monkeypatch.setattr(session_data, "ALL_CHARS", 80_000)
    left_out = page.write_page(session, tmp_path / "x.html", notebook=None, masker=Masker())
    assert (tmp_path / "x.html").stat().st_size < 400_000
    assert any("images are scaled" in one for one in left_out)
    assert any("texts cut to" in one for one in left_out)


def test_branches_are_compared_once_however_often_texts_are_cut(kernel, tmp_path, monkeypatch):
    """The comparison reads all checkpoints of the session."""
    exported.fill(kernel)
    (session,) = kernel.folder.rglob("*.sqlite")
    compared, real = list[str](), SessionReader.fingerprints
    monkeypatch.setattr(SessionReader, "fingerprints", lambda reader: (compared.append(""), real(reader))[1])
    monkeypatch.setattr(session_data, "ALL_CHARS", 100)

    page.write_page(session, tmp_path / "x.html", notebook=None, masker=Masker())

    assert len(compared) == 1


def test_a_large_session_is_built_twice_at_most(kernel, tmp_path, monkeypatch):
    """The first build says how long the texts may be. With 20,000 executions each build takes seconds."""
    exported.fill(kernel)
    (session,) = kernel.folder.rglob("*.sqlite")
    built, real = list[int](), session_data.SessionData._build
    monkeypatch.setattr(session_data, "ALL_CHARS", 100)
    monkeypatch.setattr(session_data.SessionData, "_build", lambda one, *given: (built.append(0), real(one, *given))[1])

    page.write_page(session, tmp_path / "x.html", notebook=None, masker=Masker())

    assert len(built) == 2


def test_a_session_of_many_short_cells_leaves_out_the_oldest_and_says_so(kernel, tmp_path, monkeypatch):
    """Texts that are short already cannot be cut: 20,000 executions made a page of 10 MB."""
    for value in range(24):
        kernel.run(f"x = {value}")
    (session,) = kernel.folder.rglob("*.sqlite")
    monkeypatch.setattr(session_data, "ALL_CHARS", 300)
    monkeypatch.setattr(session_data, "LEAST_EXECUTIONS", 2)

    left_out = page.write_page(session, tmp_path / "x.html", notebook=None, masker=Masker())

    shown = data_of((tmp_path / "x.html").read_text())["executions"]
    assert 2 <= len(shown) < 24
    assert shown[-1]["source"] == "x = 23"
    assert f"the oldest {24 - len(shown)} executions are left out" in left_out


def test_the_end_of_a_branch_is_found_without_a_walk_to_the_first_statement(kernel, tmp_path, monkeypatch):
    """A sweep makes hundreds of branches behind a long session."""
    kernel.run("x = 1")
    for value in range(8):
        kernel.run("%ctx goto 1")
        kernel.run(f"y = {value}")
    (session,) = kernel.folder.rglob("*.sqlite")
    walks, real = list[int](), StatementLog.path
    monkeypatch.setattr(session_data, "BRANCHES", 1)
    monkeypatch.setattr(StatementLog, "path", lambda *given: (walks.append(0), real(*given))[1])

    page.write_page(session, tmp_path / "x.html", notebook=None, masker=Masker())

    assert len(walks) < 8


def test_five_hundred_cells_with_images_take_at_most_five_megabytes(kernel, tmp_path):
    """And at most 30 s on a busy machine."""
    fill_large(kernel, 500)
    begun = time.monotonic()
    text = exported.exported(kernel, tmp_path / "large.html")
    seconds = time.monotonic() - begun
    print(f"{len(text.encode()) / 1e6:.2f} MB in {seconds:.1f} s")
    assert len(text.encode()) <= 5_000_000
    assert seconds < 30
    data = data_of(text)
    assert len(data["executions"]) == 502
    assert data["images"]


def test_text_that_ends_a_script_element_stays_data():
    text = page.page_text({"title": "</title><script>1</script>", "x": "</script><!--<script>"})
    assert len(re.findall(r"<script", text)) == 2
    assert data_of(text)["x"] == "</script><!--<script>"


def test_a_front_end_gets_the_page_while_a_cell_runs(kernel: Any):
    """On the control channel, with the same masks as the file."""
    exported.fill(kernel)
    request = kernel.client.session.msg("ctxkernel_export_request", {"id": "q"})
    with kernel.running("late = 1"):
        kernel.client.control_channel.send(request)
        answer = kernel.client.get_control_msg(timeout=60)["content"]
    assert answer["error"] is None
    assert answer["export"]["name"].endswith(".html")
    assert exported.SECRET not in answer["export"]["text"]
    assert exported.KEY not in answer["export"]["text"]
    assert "s7.1" in {one["id"] for one in data_of(answer["export"]["text"])["executions"]}
