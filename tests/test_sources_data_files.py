"""Files of researchers: arrays, tables, trees and databases whose formats are read within bounds."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import All, Budget
from ctxkernel.sources.tables import npy_files
from ctxkernel.testing.renderings import opened, render, written

BUDGETS: tuple[Budget, ...] = (1, 10, 40, 100, 400, 1_500, All)


def amount(text: str, what: str) -> int:
    """Return how many `what` a rendering says that it leaves out."""
    return sum(int(found.replace(",", "")) for found in re.findall(rf"([\d,]+) more {what[:-1]}s?\b", text))


def listed(text: str, kind: str) -> list[str]:
    """Return the names in the lists of a kind, ranges of numbered names as their members."""
    found: list[str] = []
    for count, names in re.findall(rf"^ *{re.escape(kind)} × (\d+): (.*)$", text, re.MULTILINE):
        there: list[str] = []
        for name in names.split(", "):
            first, _, last = name.partition("–")
            if last and (numbers := (re.search(r"\d+$", first), re.search(r"\d+$", last))) and all(numbers):
                low, high = (int(one[0]) for one in numbers)  # type: ignore[index]
                there += [f"{first[: -len(str(low))]}{at}" for at in range(low, high + 1)]
            else:
                there.append(name)
        assert len(there) == int(count), names
        found += there
    return found


def counts(text: str, names: Iterable[str], what: str, kinds: Iterable[str]) -> int:
    """Return shown + left out, counted independently of the planner; fails where a name is shown twice."""
    names = set(names)
    lines = [line.removeprefix("- ").strip() for line in text.split("\n")[1:]]
    shown = [name for line in lines if (name := re.split(r": | \(|…", line)[0]) in names]
    for kind in kinds:
        shown += listed(text, kind)
    assert len(shown) == len(set(shown)), text
    return len(shown) + amount(text, what)


def hurt(path: Path, data: bytes, check: Callable[[], Any], *, cases: int = 60) -> None:
    """Damage a file in many ways: cut it off, and put other bytes into it."""
    chance = np.random.default_rng(7)
    for case in range(cases):
        if case % 3:
            other = bytearray(data)
            for at in chance.integers(0, len(data), size=case % 5 + 1):
                other[at] = chance.integers(0, 256)
            path.write_bytes(bytes(other))
        else:
            path.write_bytes(data[: len(data) * case // cases])
        check()


def cheap(make: Callable[[], Any], *, seconds: float = 2.0, memory: int = 64 << 20) -> None:
    """Assert that something takes little time and memory of Python; the bound on time allows for a busy machine."""
    tracemalloc.start()
    start = time.process_time()
    try:
        make()
        assert tracemalloc.get_traced_memory()[1] < memory
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < seconds


# --- NumPy


def saved(folder: Path, array: Any, name: str = "a.npy") -> Path:
    np.save(folder / name, array)
    return folder / name


@pytest.mark.parametrize("lod", [0, 1, 2, 3])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (300,), (20, 3), (300_000, 4), (70_000, 3, 5), (2, 900_000)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_in_a_file_keeps_its_budget_and_counts_its_rows(tmp_path, lod: int, shape: Any, order: Any):
    array = np.asarray(np.arange(int(np.prod(shape))).reshape(shape), order=order)
    path = saved(tmp_path, array)
    rows = int(np.prod(shape[:-1])) if len(shape) > 1 else array.size
    for tokens in BUDGETS[:-1]:
        text = render(path, lod, tokens=tokens).text
        shown = len(re.findall(r"^\[[\d, ]*\] ", text, re.MULTILINE))
        if lod < 2 and isinstance(tokens, int) and tokens >= 100 and array.size:
            assert shown + amount(text, "rows") == rows, text


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("pos", ["0", "777:3", "[999, 1]", "end"])
def test_elements_of_a_large_array_are_those_of_the_file(tmp_path, order: Any, pos: str):
    array = np.asarray(np.arange(1_000 * 7 * 120.0).reshape(1_000, 7, 120), order=order)
    text = render(saved(tmp_path, array), 0, pos, tokens=800).text

    rows = re.findall(r"^\[(\d+), (\d)\] +([\d. ]+)$", text, re.MULTILINE)
    first = int(match[1]) if (match := re.search(r"columns (\d+)-", text)) else 0
    assert rows
    for block, row, values in rows:
        shown = [float(value) for value in values.split()]
        assert shown == array[int(block), int(row), first : first + len(shown)].tolist()


def test_statistics_of_a_large_array_are_of_a_sample_and_those_of_a_small_one_are_exact(tmp_path):
    large = render(saved(tmp_path, np.arange(4_000_000.0), "large.npy"), 2).text
    small = render(saved(tmp_path, np.array([1.0, np.nan, 3.0]), "small.npy"), 2).text

    assert "· sampled: 64,000 elements\n- ~0 NaN of 64,000\n- min ~0.0\n" in large
    assert "\n- 1 NaN of 3\n- min 1.0\n" in small
    assert "~" not in small


def test_a_change_of_an_array_in_a_file_says_which_cells(tmp_path):
    array = np.arange(40).reshape(10, 4)
    source = opened(saved(tmp_path, array))
    before = render(source, 1)
    array[2, 3] = -5
    saved(tmp_path, array)

    text = render(source, 3, basis=before.basis).text

    assert "row 2 ([2]), 3: 11 → -5" in text
    assert "no change" in render(source, 3, basis=render(source, 1).basis).text


def test_a_change_of_a_large_array_says_that_a_sample_was_compared(tmp_path):
    array = np.zeros((400_000, 4))
    source = opened(saved(tmp_path, array))
    before = render(source, 1)
    array[7] = 1
    saved(tmp_path, array)

    assert "row 7 ([7]), 0: 0.0 → 1.0" in render(source, 3, basis=before.basis).text
    assert "no change in the sample" in render(source, 3, basis=render(source, 1).basis).text


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_objects_in_an_array_are_never_unpickled(tmp_path, name: str):
    class Bomb:
        def __reduce__(self):
            return print, ("boom",)

    save: Any = np.save if name == "a.npy" else lambda path, array: np.savez(path, bad=array)
    save(tmp_path / name, np.array([Bomb(), Bomb()], dtype=object))
    for lod in range(4):
        text = render(tmp_path / name, lod).text
        assert "object" in text
        assert lod == 2 or "pickled" in text


BAD_HEADERS = [
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999, 99), }",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,) * 99, }",
    b"{'descr': '|V0', 'fortran_order': False, 'shape': (9999999999,), }",
    b"{'descr': '|V2000000000', 'fortran_order': False, 'shape': (1,), }",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (True,), }",
    b"{'descr': 7, 'fortran_order': False, 'shape': (1,), }",
    b"{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,), }",
    b"(" * 9_000 + b")" * 9_000,
    b"-" * 30_000 + b"1",
    b"\xff" * 50,
    b"",
]


@pytest.mark.parametrize("header", BAD_HEADERS)
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_hostile_header_is_shown_as_what_it_is(tmp_path, header: bytes, name: str):
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    if name == "a.npy":
        written(tmp_path / name, data)
    else:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("x.npy", data)
    for lod in range(4):
        rendered = render(tmp_path / name, lod)
        assert "could not be rendered" not in rendered.text
        assert "failed" not in rendered.notes


def test_any_damage_to_an_array_renders(tmp_path):
    np.save(tmp_path / "b.npy", np.arange(90.0).reshape(30, 3))
    np.savez_compressed(tmp_path / "b.npz", a=np.arange(90.0), b=np.array(["x", "yy"]))
    for name in ("b.npy", "b.npz"):
        path = tmp_path / name

        def check(path: Path = path) -> None:
            for lod in range(4):
                assert "could not be rendered" not in render(path, lod, tokens=200).text

        hurt(path, path.read_bytes(), check)


def test_an_array_that_is_cut_off_says_how_much_is_there(tmp_path):
    path = saved(tmp_path, np.arange(100.0))
    written(path, path.read_bytes()[:-400])

    assert "[NumPy array, 100 · float64, that is cut off: 400 B of 800 B of its values are there]" in render(path).text


def test_an_array_of_many_gigabytes_is_looked_at_quickly(tmp_path):
    path, shape = tmp_path / "a.npy", (10_000_000, 1_000)
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + shape[0] * shape[1] * 8)

    for lod in range(4):
        cheap(lambda lod=lod: render(path, lod))
    assert "10,000,000 × 1,000 · float64 · 80.0 GB" in render(path, 1).text
    assert "\n[9999999] " in render(path, 0, "end").text


def test_without_numpy_a_file_says_which_package_would_show_more(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.zeros(3))
    np.savez(tmp_path / "a.npz", a=np.zeros(3))
    monkeypatch.setattr(npy_files, "imported", lambda name: None)

    assert "numpy, which is not installed; %pip install numpy" in render(tmp_path / "a.npy").text
    assert "numpy, which is not installed; %pip install numpy" in render(tmp_path / "a.npz", 1).text


@pytest.mark.parametrize("count", [1, 3, 40, 350])
@pytest.mark.parametrize("lod", [0, 1, 2])
@pytest.mark.parametrize("same", [True, False])
def test_every_array_of_an_archive_is_shown_or_counted(tmp_path, count: int, lod: int, same: bool):
    names = [f"layer{at}.weight" for at in range(count)]
    kinds = ["f8"] if same else ["f8", "i4", "U3"]
    np.savez(tmp_path / "a.npz", **{name: np.ones(at % 7, kinds[at % len(kinds)]) for at, name in enumerate(names)})
    for tokens in BUDGETS:
        text = render(tmp_path / "a.npz", lod, tokens=tokens).text
        if not isinstance(tokens, int) or tokens >= 100:
            assert f" · {count} array" in text
            assert counts(text, names, "arrays", ["arrays", "float64"]) == count, text


def test_an_archive_of_arrays_tells_shape_type_range_and_first_values(tmp_path):
    values = {"X": np.arange(60_000.0).reshape(300, 200), "y": np.array([2, 0, 1] * 9), "names": np.array(["ab", "c"])}
    np.savez(tmp_path / "a.npz", **values, rate=0.5, gap=np.array([1.5, np.nan] * 8))

    first, second, third = (render(tmp_path / "a.npz", lod).text for lod in range(3))

    assert "\nX: 300 × 200 float64\ny: 27 int64, 0 … 2\nnames: 2 <U2, [ab, c]\nrate: scalar float64, 0.5\n" in second
    assert "\ngap: 16 float64, 8 NaN, 1.5 … 1.5" in second
    assert "\nX: 300 × 200 float64, [0.0, 1.0, " in first
    assert "\n- X: 300 × 200 float64, 480.1 kB (" in third
    assert render(tmp_path / "a.npz", 0, "names").text.endswith(
        "0.5\ngap: 16 float64, 8 NaN, 1.5 … 1.5, [1.5, NaN, 1.5, NaN, 1.5, NaN, 1.5, NaN, …]"
    )
    with pytest.raises(BadPolicy):
        render(tmp_path / "a.npz", 0, "nothing")


def test_a_member_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path):
    path = tmp_path / "a.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (20_000_000,)})
        for _ in range(160):
            file.write(bytes(1_000_000))
    for lod in range(4):
        cheap(lambda lod=lod: render(path, lod), memory=16 << 20)
    assert "x: 20,000,000 float64" in render(path, 1).text


def test_a_change_of_an_archive_of_arrays_is_told(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros(3), b=np.ones(4))
    source = opened(tmp_path / "a.npz")
    before = render(source, 1)
    np.savez(tmp_path / "a.npz", a=np.zeros(3), b=np.ones(5), c=np.ones(6))

    text = render(source, 3, basis=before.basis).text

    assert "-b: 4 float64" in text
    assert "+b: 5 float64" in text
    assert "+c: 6 float64" in text


# --- workbooks


def workbook(path: Path, sheets: int = 3, rows: int = 30) -> None:
    """Write a workbook with openpyxl."""
    made = import_module("openpyxl").Workbook()
    made.remove(made.active)
    for at in range(sheets):
        sheet = made.create_sheet(f"Sheet{at}")
        sheet.append(["id", "when", "level", "site", "sum"])
        for row in range(rows):
            day = dt.datetime.fromisoformat("2024-01-01") + dt.timedelta(days=row)
            sheet.append([row, day, row / 4 if row % 5 else None, ("north", "south")[row % 2], f"=A{row + 2}*2"])
    made.save(path)


def test_a_workbook_tells_sheets_columns_and_rows(tmp_path):
    workbook(tmp_path / "a.xlsx")
    first, second, third = (render(tmp_path / "a.xlsx", lod, tokens=4_000).text for lod in range(3))

    assert first.startswith("a.xlsx · Excel workbook · 3 sheets · ")
    assert "\nSheet0: 31 rows × 5 columns\n  1: id | when | level | site | sum\n" in first
    assert "\n  3: 1 | 2024-01-02 | 0.25 | south | (=A3*2)\n" in first
    assert "\n  [… 11 more rows of Sheet1]\n" in first
    assert "\n  A id: number, 0 … 29\n  B when: date, 2024-01-01 … 2024-01-30\n" in second
    assert "\n  C level: number, 6 empty, 0.25 … 7.25\n  D site: text, 2 distinct ('north', 'south')\n" in second
    assert "\n  E sum: formula, 30 formulas (=A2*2, …)" in second
    assert "\n- Sheet2: 31 rows × 5 columns: id, when, level, site, sum" in third
    assert render(tmp_path / "a.xlsx", 0, "Sheet2").text.split("\n")[1:3] == [
        "[… 2 sheets, 62 rows before]",
        "Sheet2: 31 rows × 5 columns",
    ]


@pytest.mark.parametrize("sheets", [1, 8, 60])
@pytest.mark.parametrize("lod", [0, 1, 2])
def test_every_sheet_and_row_is_shown_or_counted(tmp_path, sheets: int, lod: int):
    workbook(tmp_path / "a.xlsx", sheets, rows=25)
    names = [f"Sheet{at}" for at in range(sheets)]
    for tokens in BUDGETS:
        text = render(tmp_path / "a.xlsx", lod, tokens=tokens).text
        if isinstance(tokens, int) and tokens < 100:
            continue
        assert counts(text, names, "sheets", ["sheets"]) == sheets, text
        if lod == 0:
            rows = len(re.findall(r"^  \d+: ", text, re.MULTILINE)) + len(re.findall(r"^  \d*…$", text, re.MULTILINE))
            assert rows + amount(text, "rows") == 26 * sheets, text
        if lod == 1:
            columns = len(re.findall(r"^  [A-E] \w+(?::|…)", text, re.MULTILINE))
            columns += sum(len(listed(text.replace("  columns", "columns"), f"columns of {name}")) for name in names)
            assert columns + amount(text, "columns") == 5 * sheets, text


def test_of_a_long_sheet_the_first_rows_are_read(tmp_path):
    workbook(tmp_path / "a.xlsx", 1, rows=3_000)
    cheap(lambda: render(tmp_path / "a.xlsx", 1))
    text = render(tmp_path / "a.xlsx", 1).text

    assert "Sheet0: 200+ rows, of which the first 200 were read, A1:E3001 as the file says\n" in text
    assert "\n  A id: number, ~0 … 198\n" in text
    assert "+ more rows" in render(tmp_path / "a.xlsx", 0, tokens=200).text


SHEET = b'<worksheet><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>x</t></is></c></row></sheetData></worksheet>'
BOMB = b'<!DOCTYPE a [<!ENTITY b "' + b"x" * 99 + b'">]><worksheet><sheetData>&b;</sheetData></worksheet>'


def made_of(path: Path, sheet: bytes, strings: bytes | None = None) -> Path:
    """Write a workbook of one sheet by hand."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        link = b'<Relationships><Relationship Id="r1" Target="worksheets/sheet1.xml"/></Relationships>'
        archive.writestr("xl/_rels/workbook.xml.rels", link)
        book = b'<workbook xmlns:r="r"><sheets><sheet name="one" r:id="r1"/></sheets></workbook>'
        archive.writestr("xl/workbook.xml", book)
        archive.writestr("xl/worksheets/sheet1.xml", sheet)
        if strings is not None:
            archive.writestr("xl/sharedStrings.xml", strings)
    return path


def test_a_workbook_with_entities_or_bombs_is_not_unpacked(tmp_path):
    assert "one: 1 row × 1 column" in render(made_of(tmp_path / "a.xlsx", SHEET), 1).text
    assert "document type" in render(made_of(tmp_path / "b.xlsx", BOMB), 1).text
    endless = made_of(tmp_path / "c.xlsx", SHEET[:33] + b"<row/>" * 20_000_000)
    strings = b"<sst>" + b"<si><t>" + b"y" * 200_000_000
    full = made_of(tmp_path / "d.xlsx", SHEET, strings)
    for path in (endless, full):
        for lod in range(4):
            cheap(lambda path=path, lod=lod: render(path, lod), memory=24 << 20)
    assert "one: 0+ rows" in render(endless, 1).text


def test_any_damage_to_a_workbook_renders(tmp_path):
    workbook(tmp_path / "a.xlsx", 2, rows=5)

    def check() -> None:
        for lod in range(4):
            assert "failed" not in render(tmp_path / "a.xlsx", lod, tokens=300).notes

    hurt(tmp_path / "a.xlsx", (tmp_path / "a.xlsx").read_bytes(), check)


def test_a_changed_cell_of_a_workbook_is_told(tmp_path):
    workbook(tmp_path / "a.xlsx", 1, rows=5)
    source = opened(tmp_path / "a.xlsx")
    before = render(source, 1)
    made = import_module("openpyxl").load_workbook(tmp_path / "a.xlsx")
    made["Sheet0"]["D3"] = "west"
    made.save(tmp_path / "a.xlsx")

    assert "+  3: 1 | 2024-01-02 | 0.25 | west | (=A3*2)" in render(source, 3, basis=before.basis).text


# --- HTML and XML


PAGE = """<!doctype html>
<html><head><title>Three &amp; more models</title><script>var x = "<h1>no</h1>";</script></head>
<body><h1>Results</h1>
<p>We trained three models. They differ.</p>
<h2>Data</h2>
<p>It has <a href="x">12 columns</a> and <a name="y">no nulls</a>.</p>
<table>
<tr><th>model</th><th>accuracy</th></tr>
<tr><td>a<table><tr><td>1</td></tr></table></td><td>0.9</td></tr>
</table>
<h3>Later</h3><img src="x">
</body></html>
"""


def test_a_page_tells_title_headings_tables_and_links(tmp_path):
    for lod, bullet in ((1, ""), (2, "- ")):
        separator = ": " if lod == 2 else " "
        lines = render(written(tmp_path / "a.html", PAGE), lod).text.split("\n")
        assert lines[1:5] == [
            "title: Three & more models",
            "2 tables, 1 link, 1 image, 1 script",
            "table 1, line 6, 2 rows × 2 columns: model, accuracy",
            "table 2, line 8, 1 row × 1 column",
        ][: 3 if lod == 2 else 4] + (["- 2: Results — We trained three models."] if lod == 2 else [])
        assert any(
            line.startswith(f"{bullet}4{separator}") and "Data — It has 12 columns and no nulls." in line
            for line in lines
        )
    assert render(tmp_path / "a.html", 0).text.endswith(PAGE.rstrip())


@pytest.mark.parametrize("count", [0, 1, 40])
@pytest.mark.parametrize("lod", [1, 2])
def test_every_heading_of_a_page_is_shown_or_counted(tmp_path, count: int, lod: int):
    page = "".join(f"<h{1 + at % 3}>Part x{at}x</h{1 + at % 3}>\n<p>Text {at} is here.</p>\n" for at in range(count))
    path = written(tmp_path / "a.html", f"<html><body>{page}</body></html>")
    for tokens in BUDGETS:
        text = render(path, lod, tokens=tokens).text.partition("\n---")[0]
        if count and (not isinstance(tokens, int) or tokens >= 100):
            shown = len(re.findall(r"^(?:- )?\d+:? +\w*(?: x\d+x|…|t…)", text, re.MULTILINE))
            what = ("points",) if lod == 2 else ("headings", "nested headings")
            assert shown + sum(amount(text, one) for one in what) == count, text


ROWS = "".join(
    f"<book id='b{at}' lang='en'><title>T{at}</title><tags><tag>x</tag><tag>y</tag></tags></book>\n" for at in range(50)
)


def test_xml_tells_paths_with_counts_attributes_and_examples(tmp_path):
    path = written(
        tmp_path / "a.xml", f'<?xml version="1.0" encoding="latin-1"?>\n<catalog version="2">\n{ROWS}</catalog>'
    )
    first, second = render(path, 1).text, render(path, 2).text

    assert "\ncatalog: 1, @version '2'\n  book: 50, @id 'b0', @lang 'en'\n    title: 50, text 'T0', 'T1'\n" in first
    assert "\n    tags: 50\n      tag: 100, text 'x', 'y'\n" in first
    assert "\n- catalog/book/tags/tag: 100, text 'x', 'y'" in second


@pytest.mark.parametrize("tokens", [100, 300, 1_500, All])
def test_every_path_of_xml_is_shown_or_counted(tmp_path, tokens: Budget):
    body = "".join(f"<e{at}x><inner/></e{at}x>" for at in range(300))
    text = render(written(tmp_path / "a.xml", f"<r>{body}</r>"), 1, tokens=tokens).text.partition("\n---")[0]

    shown = len(re.findall(r"^ *(?:r|e\d+x|inner)?(?::|…)", text, re.MULTILINE))
    shown += sum(int(count) for count in re.findall(r"^ *(?:in \S+|paths) × (\d+): ", text, re.MULTILINE))
    assert shown + amount(text, "paths") == 601, text


BAD_MARKUP = [
    '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><a>&b;</a>',
    '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
    '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><a>&nbsp;</a>',
    "<a><b>", "<a>" * 50_000, "<" * 60_000, "<a " * 30_000, "<!--" * 20_000, "<![CDATA[" * 9_000, "<!" * 60_000,
    "<a b='" * 20_000, "</" * 60_000, "&#" * 60_000, "<h1>" * 9_000, "<table><tr><td>" * 5_000, "<?" * 60_000,
    "<script>" + "</scrip" * 20_000, "<![if" * 30_000, "\0\1", "", "plain text",
]  # fmt: skip


@pytest.mark.parametrize("data", BAD_MARKUP, ids=range(len(BAD_MARKUP)))
@pytest.mark.parametrize("name", ["a.html", "a.xml"])
def test_hostile_markup_is_shown_quickly_and_nothing_is_expanded(tmp_path, name: str, data: str):
    path = written(tmp_path / name, data)
    start = time.process_time()
    for lod in range(4):
        rendered = render(path, lod)
        assert "failed" not in rendered.notes
        assert "root:" not in rendered.text
    assert time.process_time() - start < 2.5


def test_a_large_page_and_a_large_document_are_looked_at_quickly(tmp_path):
    for path in (written(tmp_path / "a.html", PAGE * 20_000), written(tmp_path / "a.xml", f"<r>{ROWS * 2_000}")):
        for lod in range(3):
            cheap(lambda path=path, lod=lod: render(path, lod))
        assert "\n~" in (text := render(path, 1).text) or "~ of its first" in text


@pytest.mark.parametrize("name", ["a.duckdb", "a.db"])
def test_a_database_of_duckdb_is_named_and_not_opened(tmp_path, name: str):
    duckdb = import_module("duckdb")
    with duckdb.connect(tmp_path / name) as database:
        database.execute("CREATE TABLE t (x INT)")
    before = sorted(tmp_path.iterdir())

    assert (
        "[a DuckDB database, which is not read here; duckdb.connect(path, read_only=True)"
        in render(tmp_path / name).text
    )
    assert before == sorted(tmp_path.iterdir())


# --- imports


def test_to_import_the_sources_imports_no_library():
    code = "import sys, ctxkernel.sources.registry; print([name for name in sys.argv[1:] if name in sys.modules])"
    names = ["numpy", "pyarrow", "h5py", "openpyxl", "duckdb", "scipy", "xml.etree.ElementTree", "pandas"]
    found = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
