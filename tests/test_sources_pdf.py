"""PDF files as sources: by pypdf where it is installed, by their header where it is not."""

from __future__ import annotations

import io
import logging
import sys
from importlib import import_module
from typing import Any

import pytest

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import All
from ctxkernel.sources.files import pdfs
from ctxkernel.testing.renderings import opened, render, written


def pdf(pages: list[str]) -> bytes:
    """Return a PDF file with the lines of each page."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for at, text in enumerate(pages):
        shown = " ".join(f"({line}) Tj T*" for line in text.split("\n"))
        content = f"BT /F1 12 Tf 14 TL 50 700 Td {shown} ET"
        font = "/Resources << /Font << /F1 3 0 R >> >>"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] {font} /Contents {5 + 2 * at} 0 R >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    out, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    tail = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + (head + tail).encode()


@pytest.fixture
def pypdf() -> Any:
    return import_module("pypdf")


def edited(pypdf: Any, data: bytes, edit: Any) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data))
    edit(writer)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def paper(pages: int = 3) -> bytes:
    return pdf([f"Section {at}\nResiduals drift by {at}.5 percent.\nThe end." for at in range(pages)])


def test_the_text_of_a_pdf_is_shown_page_by_page_from_any_position(tmp_path, pypdf: Any):
    file = written(tmp_path / "a.pdf", paper())

    lines = render(file, tokens=All).text.split("\n")
    later = render(file, pos="1:2", tokens=All).text.split("\n")

    assert lines[0].startswith("a.pdf · PDF 1.4 · 3 pages · ")
    assert lines[1:5] == ["--- page 1 of 3 ---", "Section 0", "Residuals drift by 0.5 percent.", "The end."]
    assert later[1:4] == ["--- page 2 of 3, from line 2 ---", "The end.", "--- page 3 of 3 ---"]
    assert "past the end" in render(file, pos="9").text
    assert render(file, pos="/drift by 2/").text.split("\n")[1] == "--- page 3 of 3, from line 1 ---"


def test_every_line_of_a_pdf_is_reached_by_next_pos_also_past_the_pages_read_at_once(
    tmp_path, pypdf: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pdfs, "PAGES", 4)
    source, pos, seen = opened(written(tmp_path / "a.pdf", paper(10))), "0", []
    while pos is not None:
        rendered = render(source, pos=pos, tokens=174)
        whole = [line for line in rendered.text.split("\n")[1:] if not line.endswith("…")]
        seen += [line for line in whole if line.startswith(("Section", "Residuals", "The"))]
        pos = rendered.next_pos

    assert seen == [
        line for at in range(10) for line in (f"Section {at}", f"Residuals drift by {at}.5 percent.", "The end.")
    ]


def test_structure_is_the_outline_with_pages_else_how_each_page_begins(tmp_path, pypdf: Any):
    def edit(writer: Any) -> None:
        chapter = writer.add_outline_item(title="Introduction", page_number=0)
        writer.add_outline_item(title="Data", page_number=2, parent=chapter)
        writer.add_metadata({"/Title": "On residuals", "/Author": "N. N."})

    plain = render(written(tmp_path / "a.pdf", paper()), 1).text
    outlined = render(written(tmp_path / "b.pdf", edited(pypdf, paper(), edit)), 1).text

    assert plain.split("\n")[1:3] == ["no outline; how each page begins:", "page 1: Section 0"]
    assert outlined.split("\n")[1:] == [
        "title: On residuals",
        "author: N. N.",
        "Introduction · page 1",
        "  Data · page 3",
    ]


def test_a_page_and_an_entry_of_the_outline_are_positions(tmp_path, pypdf: Any):
    def edit(writer: Any) -> None:
        writer.add_outline_item(title="Introduction", page_number=0)
        writer.add_outline_item(title="Data", page_number=2)

    file = written(tmp_path / "b.pdf", edited(pypdf, paper(), edit))

    assert [render(file, pos=pos).place for pos in ("Data", "page 2", "Page 3", "/drift by 1/")] == [
        "2", "1", "2", "1:1"
    ]  # fmt: skip
    for pos, said in (("Dta", "Is it 'Data'"), ("page 9", "has no page 9: its 3 pages are told from 1")):
        with pytest.raises(BadPolicy, match=said):
            render(file, pos=pos)


def test_summary_tells_the_page_of_each_line_and_a_change_is_a_diff(tmp_path, pypdf: Any):
    file = written(tmp_path / "a.pdf", pdf(["one\ntwo", "three"]))
    before = render(file)

    assert "- page 2: three" in render(file, 2).text
    written(file, pdf(["one\n2", "three"]))
    assert "-two\n+2\n" in render(file, 3, basis=before.basis).text


def test_a_pdf_with_a_password_says_so_and_one_that_opens_without_is_read(tmp_path, pypdf: Any):
    def locked(password: str) -> bytes:
        return edited(
            pypdf, paper(), lambda writer: writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
        )

    assert "encrypted: it opens with a password only" in render(written(tmp_path / "a.pdf", locked("secret"))).text
    assert "Section 0" in render(written(tmp_path / "b.pdf", locked(""))).text


BROKEN = [
    ("cut off", lambda: paper()[:700], "PDF 1.4, broken: it cannot be read ("),
    ("garbage", lambda: b"%PDF-1.7 garbage", "PDF 1.7, broken: it cannot be read ("),
    ("another format", lambda: b"just text", "no PDF file: it does not begin as one; shown as it is]\njust text"),
    ("empty", lambda: b"", "no PDF file"),
]


@pytest.mark.parametrize(("name", "make", "said"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_broken_pdf_is_a_line_and_what_is_there(tmp_path, pypdf: Any, name: str, make: Any, said: str):
    file = written(tmp_path / "a.pdf", make())

    for lod in range(4):
        assert said.partition("\n")[0] in render(file, lod).text
    assert said in render(file).text


def test_a_page_that_cannot_be_read_leaves_the_others(tmp_path, pypdf: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdfs, "PAGE_BYTES", 100)
    file = written(tmp_path / "a.pdf", pdf(["short", "long " * 50]))

    lines = render(file).text.split("\n")

    assert lines[2] == "short"
    assert lines[4] == "[not read: its content has more than 100 B]"


def test_a_pdf_too_large_to_be_read_says_so(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pdfs, "MOST_BYTES", 100)

    assert "too large to be read" in render(written(tmp_path / "a.pdf", paper())).text


def test_without_pypdf_a_pdf_is_its_header_and_what_to_install(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)

    text = render(written(tmp_path / "a.pdf", paper())).text

    assert text.startswith("a.pdf · binary: PDF document, 1.")
    assert '[PDF 1.4; its text is read by pypdf, which is not installed; %pip install "jupyter-ctxkernel[pdf]"' in text


def test_what_pypdf_finds_odd_is_not_logged_into_the_cell(tmp_path, pypdf: Any, caplog: pytest.LogCaptureFixture):
    damaged = paper().replace(b"startxref", b"startxxxx")
    level = logging.getLogger("pypdf").level

    render(written(tmp_path / "a.pdf", damaged))

    assert caplog.records == []
    assert logging.getLogger("pypdf").level == level
