"""Files whose format is read: notebooks, lines of JSON, Parquet files and images; and many files at once."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import sys
import tracemalloc
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.errors import BadTarget
from ctxkernel.core.image_headers import read_image
from ctxkernel.core.ports import All
from ctxkernel.sources import open_source
from ctxkernel.sources.files import folders
from ctxkernel.sources.tables import parquet
from ctxkernel.testing.renderings import opened, render, written

# --- notebooks

PICTURE = base64.b64encode(b"\x89PNG" + bytes(12_341)).decode()
CELLS: list[dict[str, Any]] = [
    {"cell_type": "markdown", "metadata": {}, "source": ["# Ships\n", "Where they go.\n", "## Data"]},
    {
        "cell_type": "code",
        "execution_count": 3,
        "source": "import os\n\ndef load(path):\n    return path\nprint('a')",
        "outputs": [
            {"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]},
            {
                "output_type": "execute_result",
                "execution_count": 3,
                "data": {"image/png": PICTURE, "text/plain": ["<Figure>"]},
            },
        ],
    },
    {
        "cell_type": "code",
        "execution_count": None,
        "source": ["1/0"],
        "outputs": [
            {
                "output_type": "error",
                "ename": "ZeroDivisionError",
                "evalue": "division by zero",
                "traceback": ["\x1b[31mTraceback\x1b[0m\nZeroDivisionError: division by zero"],
            }
        ],
    },
]
METADATA = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
NOTEBOOK = {"cells": CELLS, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
OLD = {
    "metadata": {"name": "old"},
    "nbformat": 3,
    "worksheets": [
        {
            "cells": [
                {"cell_type": "heading", "level": 2, "source": "Ships"},
                {
                    "cell_type": "code",
                    "input": "1+1",
                    "prompt_number": 7,
                    "outputs": [
                        {"output_type": "pyout", "prompt_number": 7, "text": ["2"], "png": PICTURE},
                        {"output_type": "stream", "stream": "stderr", "text": "careful"},
                    ],
                },
            ]
        }
    ],
}


def notebook(folder: Any, value: Any = NOTEBOOK) -> Any:
    """Write a notebook, or any text, to a file of that name."""
    return written(folder / "a.ipynb", value if isinstance(value, (str, bytes)) else json.dumps(value, indent=1))


def test_level_0_of_a_notebook_is_its_cells_with_their_text_outputs_in_order(tmp_path):
    lines = render(notebook(tmp_path), tokens=All).text.split("\n")

    assert lines[0].startswith("a.ipynb · notebook · 3 cells (2 code, 1 markdown) · Python 3 · ")
    assert lines[1:5] == ["[0] markdown", "# Ships", "Where they go.", "## Data"]
    assert lines[5:11] == ["[1] code · In [3]", "import os", "", "def load(path):", "    return path", "print('a')"]
    assert lines[11:17] == ["→ stdout:", "a", "b", "→ result:", "<Figure>", "[image/png 12,345 B]"]
    assert lines[17:19] == ["[2] code · In [ ]", "1/0"]
    assert lines[19:] == ["→ ZeroDivisionError: division by zero", "Traceback", "ZeroDivisionError: division by zero"]


def test_level_1_of_a_notebook_is_headings_first_lines_and_what_came_out(tmp_path):
    lines = render(notebook(tmp_path), 1).text.split("\n")

    assert lines[1:] == [
        "[0] markdown: # Ships",
        "    ## Data",
        "[1] code · In [3]: import os (5 lines)",
        "    → stdout, 2 lines",
        "    → result text/plain, 1 line + image/png 12,345 B",
        "[2] code · In [ ]: 1/0",
        "    → ZeroDivisionError: division by zero",
    ]


def test_level_2_of_a_notebook_is_its_headings_definitions_and_errors(tmp_path):
    lines = render(notebook(tmp_path), 2).text.split("\n")

    assert lines[1:] == [
        "[0] # Ships",
        "    ## Data",
        "[1] def load(path)",
        "[2] → ZeroDivisionError: division by zero",
    ]


PLACES = [
    ("1", "[1] code · In [3]", "from cell 1"),
    ("1:3", "def load(path):", "from cell 1"),
    ("99", "[2] code · In [ ]", "past the end"),
    ("@7", "[0] markdown", "notebook"),
]


@pytest.mark.parametrize(("pos", "first", "said"), PLACES, ids=[row[0] for row in PLACES])
def test_a_position_names_a_cell_and_a_line_of_it(tmp_path, pos: str, first: str, said: str):
    lines = render(notebook(tmp_path), pos=pos).text.split("\n")

    assert lines[1] == first
    assert said in lines[0]


def test_every_line_of_a_notebook_is_reached_by_next_pos(tmp_path):
    cells = [{"cell_type": "markdown", "source": [f"line {i}.{j}\n" for j in range(9)]} for i in range(20)]
    source, pos, seen = opened(notebook(tmp_path, {"cells": cells})), "0", []

    while pos is not None:
        rendered = render(source, pos=pos, tokens=120)
        seen += [line for line in rendered.text.split("\n") if line.startswith("line ") and line[-1] != "…"]
        pos = rendered.next_pos

    assert seen == [f"line {i}.{j}" for i in range(20) for j in range(9)]


def test_a_notebook_of_format_3_reads_alike(tmp_path):
    lines = render(notebook(tmp_path, OLD)).text.split("\n")

    assert lines[1:3] == ["[0] heading", "## Ships"]
    assert lines[3:] == ["[1] code · In [7]", "1+1", "→ result:", "2", "[image/png 12,345 B]", "→ stderr:", "careful"]


def test_a_changed_cell_is_shown_as_a_diff(tmp_path):
    file = notebook(tmp_path)
    source = opened(file)
    before = render(source)
    notebook(tmp_path, json.dumps(NOTEBOOK).replace("1/0", "1/1"))

    changed = render(source, 3, basis=before.basis).text

    assert "changed, +1 −1 lines" in changed
    assert "\n-1/0\n+1/1\n" in changed
    assert render(source, 3, basis=render(source).basis).text == "a.ipynb · no change"


WHOLE = json.dumps(NOTEBOOK, indent=1)
CONFLICT = WHOLE.replace('"execution_count": 3,\n   "source"', '<<<<<<< HEAD\n   "source"')
BROKEN = [
    ("cut off", WHOLE[: WHOLE.index("1/0")], ["[0] markdown", "[1] code · In [3]"], "not valid JSON"),
    ("conflict", CONFLICT, ["[0] markdown", "[1] code · In [ ]"], "not valid JSON"),
    ("no cells", {"cells": []}, [], "0 cells"),
    (
        "odd cells",
        {"cells": [None, 5, {}, {"cell_type": 3, "source": 7, "outputs": [1, {}]}]},
        ["[0] no cell: None"],
        "4",
    ),
    ("nul", {"cells": [{"cell_type": "raw", "source": "a\0b\ud800"}]}, ["[0] raw", "a\u2400b?"], "1 raw"),
    ("bar", {"cells": [{"cell_type": "raw", "source": "1%\r50%\r100%\r\nend"}]}, ["[0] raw", "100%", "end"], "1 raw"),
    ("list", "[1, 2]", [], "its JSON is no object; shown as text"),
    ("other", {"a": 1}, [], "no list of cells; shown as text"),
    ("text", "hello", [], "no cell could be read of it; shown as text"),
    ("bytes", b"\0\1\2\3" * 99, [], "binary"),
    ("deep", '{"cells": [' + "[" * 200_000, [], "no cell could be read"),
    ("empty", "", [], "no cell could be read"),
]


@pytest.mark.parametrize(("value", "shown", "said"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_of_a_broken_notebook_what_could_be_read_is_shown_and_said(tmp_path, value: Any, shown: list[str], said: str):
    text = render(notebook(tmp_path, value), tokens=All).text

    assert [line for line in shown if line not in text.split("\n")] == []
    assert said in text
    for lod in (1, 2, 3):
        render(notebook(tmp_path, value), lod, tokens=60)


def test_of_a_huge_notebook_the_first_cells_are_read_in_bounded_memory(tmp_path):
    file = notebook(tmp_path, WHOLE[: WHOLE.index(' "metadata": {\n  "kernelspec"')])
    with file.open("ab") as out:
        out.truncate(1_000_000_000)
    tracemalloc.start()

    text = render(file, 1).text

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "invalid" not in text
    assert "3+ cells (2 code, 1 markdown) · 1.0 GB · " in text
    assert "only the cells in the first 16.8 MB" in text
    assert peak < 150e6


def test_the_outline_of_a_notebook_of_very_many_cells_is_bounded_and_says_so(tmp_path):
    file = notebook(tmp_path, {"cells": [{"cell_type": "code", "source": f"def f{i}(): pass"} for i in range(9_000)]})

    texts = [render(file, lod, pos="8998", tokens=124).text for lod in range(3)]
    far = render(file, 1, pos="10", tokens=40_000).text

    assert all("[8999] " in text for text in texts)
    assert "f2010" not in render(file, 2, tokens=500).text
    assert far.endswith("h.tokens shows more]")


@settings(max_examples=examples(60))
@given(
    at=st.integers(0, len(WHOLE)),
    put=st.text('{}[]",:\\0a\n', max_size=5),
    lod=st.integers(0, 2),
    tokens=st.integers(1, 300),
)
def test_any_damage_to_a_notebook_renders_within_any_budget(tmp_path_factory, at: int, put: str, lod: int, tokens: int):
    file = notebook(tmp_path_factory.mktemp("any"), WHOLE[:at] + put + WHOLE[at + len(put) :])

    render(file, lod, tokens=tokens)


# --- globs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory, its own name a pattern, with files in it."""
    home = tmp_path / "run[1]*"
    for name in ("data/b.csv", "data/a.csv", "data/.c.csv", "data/deep/d.csv", "data/deep/.git/e.csv", "data/f.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        written(home / name, "x,y\n1,2\n3,4\n")
    monkeypatch.chdir(home)
    return home


MATCHES = [
    ("data/*.csv", ["a.csv · 12 B", "b.csv · 12 B"]),
    ("./data/[ab].csv", ["a.csv · 12 B", "b.csv · 12 B"]),
    ("data/?.*", ["a.csv · 12 B", "b.csv · 12 B", "f.txt · 12 B"]),
    ("data/.*", [".c.csv · 12 B"]),
    ("data/*", ["a.csv · 12 B", "b.csv · 12 B", "deep/", "f.txt · 12 B"]),
    ("*/deep/d.csv", ["data/deep/d.csv · 12 B"]),
    ("**/*.csv", ["data/a.csv · 12 B", "data/b.csv · 12 B", "data/deep/d.csv · 12 B"]),
    ("**/deep/**/d*", ["data/deep/d.csv · 12 B"]),
    ("data/deep/**", ["d.csv · 12 B"]),
    ("*/../data/a*", ["data/../data/a.csv · 12 B"]),
]


@pytest.mark.parametrize(("pattern", "expected"), MATCHES, ids=[row[0] for row in MATCHES])
def test_a_pattern_shows_what_matches_sorted_with_sizes(folder, pattern: str, expected: list[str]):
    source: Any = open_source(pattern)
    anywhere = open_source(source.spec)

    lines = render(source).text.split("\n")

    assert lines[0].startswith(f"{pattern} · ")
    assert lines[1:] == expected
    assert render(anywhere).text.split("\n")[1:] == expected


def test_level_1_of_a_pattern_is_a_look_into_the_first_files_and_level_2_their_totals(folder):
    lines = render("data/*.csv", 1).text.split("\n")

    assert lines[:3] == [
        "data/*.csv · 2 files · 24 B",
        "a.csv · 3 lines · 12 B",
        "    comma-separated, 2 rows × 2 columns, header row",
    ]
    assert "b.csv · 3 lines · 12 B" in lines
    assert "- .csv: 2 files, 24 B" in render("data/*.csv", 2).text


def test_a_file_of_that_very_name_is_not_taken_for_a_pattern(folder):
    written(folder / "data" / "[ab].csv", "its own")

    assert render("data/[ab].csv").text.endswith("its own")


def test_a_new_match_a_change_and_a_lost_match_are_seen_by_the_stamp(folder):
    source = open_source("data/**/*.csv")
    before, stamps = render(source), [source.stamp()]
    for change in (
        lambda: written(folder / "data/new.csv", "1"),
        lambda: written(folder / "data/deep/d.csv", "1"),
        lambda: written(folder / "data/deep/dd.csv", "1"),
        (folder / "data/a.csv").unlink,
    ):
        change()
        stamps.append(source.stamp())
        render(source)
        assert source.stamp() == stamps[-1]

    assert len(set(stamps)) == 5
    lines = render(source, 3, basis=before.basis).text.split("\n")[1:]
    assert lines == ["- a.csv", "~ deep/d.csv · 12 B → 1 B", "+ deep/dd.csv · 1 B", "+ new.csv · 1 B"]


def test_a_pattern_may_match_later(folder):
    source = open_source("data/*/late.*")
    before = render(source)
    stamp = source.stamp()
    written(folder / "data/deep/late.txt", "1")

    assert before.text == "data/*/late.* · no file matches yet"
    assert source.stamp() != stamp
    assert render(source).text.endswith("deep/late.txt · 1 B")


def test_a_pattern_in_no_folder_is_refused(folder):
    with pytest.raises(BadTarget, match="there is no 'dato' in"):
        open_source("dato/*.csv")


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
def test_what_is_no_file_behind_a_pattern_is_named_and_not_opened(folder):
    os.mkfifo(folder / "data/0.csv")
    (folder / "data/1.csv").symlink_to("nowhere")
    (folder / "data/2.csv").symlink_to("2.csv")
    (folder / "data/loop").symlink_to(folder / "data")
    written(folder / "data/3.csv", b"\0\1\2" * 99)

    text = render("**/*.csv", 1).text

    assert "\ndata/0.csv · special file\ndata/1.csv · missing\ndata/2.csv · symlink loop\n" in text
    assert "data/3.csv · binary: binary data (.csv), 297 B" in text
    assert "loop/" not in text


@pytest.mark.parametrize(
    ("bound", "most", "said"),
    [
        ("MOST_SHOWN", 2, "the first 2 matches"),
        ("MOST_NAMES", 3, "names that were looked at"),
        ("WATCHED", 1, "first 1"),
    ],
)
def test_what_a_bound_leaves_out_is_said(folder, monkeypatch, bound: str, most: int, said: str):
    monkeypatch.setattr(folders, bound, most)

    assert said in render("data/*").text.split("\n")[0]


def test_every_match_is_reached_by_next_pos(folder):
    for i in range(60):
        written(folder / f"{i:02}.log", "1")
    source, pos, seen = open_source("*.log"), "0", []

    while pos is not None:
        rendered = render(source, pos=pos, tokens=90)
        seen += [line for line in rendered.text.split("\n") if line.endswith(" · 1 B")]
        pos = rendered.next_pos

    assert seen == [f"{i:02}.log · 1 B" for i in range(60)]


# --- lines of JSON


def records(count: int) -> str:
    """Return lines of JSON with a field of each kind, nulls and gaps."""
    return "".join(
        json.dumps(
            {
                "id": i,
                "x": i / 4 if i % 2 else None,
                "kind": "ab"[i % 2],
                "when": f"2024-01-{i % 28 + 1:02}",
                "user": {"name": f"n{i}", "ok": True},
                "tags": [1] * (i % 3),
                **({"rare": 1.50} if i == 0 else {}),
            }
        )
        + "\n"
        for i in range(count)
    )


def test_level_1_of_lines_of_json_is_their_fields_with_types_shares_and_ranges(tmp_path):
    lines = render(written(tmp_path / "a.jsonl", records(1000)), 1).text.split("\n")

    assert lines[1:11] == [
        "1,000 lines of JSON",
        "id: int, 0 … 999",
        "x: float, null in 50.0 %, 0.25 … 249.75",
        'kind: text, 2 distinct ("a" ×500, "b" ×500)',
        "when: text, 2024-01-01 … 2024-01-28",
        "user: object, 2 keys",
        'user.name: text, all different, such as "n0"',
        "user.ok: bool",
        "tags: array, 0–2 items of int",
        "rare: float, missing in 99.9 %, 1.5",
    ]
    assert lines[11] == "--- from line 0, 20 of 1,000 lines ---"
    assert "- x: float, null in 50.0 %" in render(tmp_path / "a.jsonl", 2).text


def test_the_fields_of_a_long_file_are_of_a_sample_and_its_lines_are_estimated(tmp_path):
    whole = written(tmp_path / "a.ndjson", "".join(f'{{"i": {i}}}\n' for i in range(20_000)))
    large = written(tmp_path / "b.ndjson", records(60_000))

    assert "\n20,000 lines of JSON, fields from 5,000 of them\ni: int, ~0 … 19999\n" in render(whole, 1).text
    said = render(large, 1).text.split("\n")[1]
    assert said.startswith("~")
    assert abs(int(said[1:].split()[0].replace(",", "")) - 60_000) < 3_000


LINES = [
    ("a bad line", b'{"a": 1}\nnope\n\n{"a": 2}\n', "3 lines, 1 no JSON (line 1)", "a: int, 1 … 2"),
    ("cut off", b'{"a": 1}\n{"a": 2}\n{"a', "a: int, 1 … 2", "1 no JSON (line 2)"),
    ("no json", b"one\ntwo\n", "not a JSON value a line", "one"),
    ("empty", b"", "empty.jsonl", ""),
    ("nul", b'{"a": "' + b"x" * 9000 + b'"}\n{"a": "\0"}\n', "2 lines of JSON", "a: text"),
    ("deep", b"[" * 100_000 + b"\n", "not a JSON value a line", ""),
    ("mixed", b'1\n"a"\n[1]\n{"a": NaN}\nnull\n', "(line): array | int | text", "a: float"),
    ("digits", b'{"a": ' + b"9" * 5000 + b"}\n", "a: int", ""),
    ("wide", json.dumps({f"k{i}": i for i in range(900)}).encode() + b"\n", "… more fields than 200", "k199: int, 199"),
]


@pytest.mark.parametrize(("data", "first", "second"), [row[1:] for row in LINES], ids=[row[0] for row in LINES])
def test_of_lines_of_json_what_is_none_is_counted_not_hidden(tmp_path, data: bytes, first: str, second: str):
    file = written(tmp_path / "empty.jsonl", data)

    text = render(file, 1, tokens=All).text

    assert first in text
    assert second in text
    for lod in range(4):
        render(file, lod, tokens=40)


def test_a_line_of_json_of_a_gigabyte_is_bounded(tmp_path):
    file = written(tmp_path / "a.jsonl", '{"a": "' + "x" * 100_000)
    with file.open("ab") as out:
        out.truncate(1_000_000_000)
    tracemalloc.start()

    text = render(file, 1).text

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "excerpt of 1.0 GB" in text
    assert peak < 64e6


# --- Parquet


def table_file(folder: Any, rows: int = 1000) -> Any:
    """Write a Parquet file of several row groups; skip the test where pyarrow is not installed."""
    arrow = import_module("pyarrow")
    writer = import_module("pyarrow.parquet")
    table = arrow.table(
        {
            "i": list(range(rows)),
            "x": [None if i % 10 == 0 else i / 8 for i in range(rows)],
            "name": [f"n{i % 3}" for i in range(rows)],
            "where": [{"lat": i, "lon": [i]} for i in range(rows)],
        }
    )
    writer.write_table(table, folder / "a.parquet", row_group_size=300)
    return folder / "a.parquet"


def test_level_1_of_a_parquet_file_is_its_footer_and_reads_no_data(tmp_path):
    file = table_file(tmp_path)
    data = bytearray(file.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little")
    data[4 : -8 - footer] = bytes(len(data) - 12 - footer)
    written(file, bytes(data))

    lines = render(file, 1).text.split("\n")
    rows = render(file, 0).text

    assert lines[0].startswith("a.parquet · Parquet · 1,000 rows × 5 columns · 4 row groups · ")
    assert lines[2:] == [
        "i: int64, 0 … 999",
        "x: double, 100 nulls, 0.125 … 124.875",
        "name: text, n0 … n2",
        "where.lat: int64, 0 … 999",
        "where.lon.list.element: int64, repeated, 0 … 999",
    ]
    assert "[rows cannot be read (" in rows
    assert rows.split("\n")[3:] == lines[2:]


def test_level_0_of_a_parquet_file_is_its_rows_and_each_is_reached(tmp_path):
    source, pos, seen = opened(table_file(tmp_path)), "290", []

    first = render(source, pos="290", tokens=200).text.split("\n")
    while pos is not None:
        rendered = render(source, pos=pos, tokens=3000)
        rows = [line for line in rendered.text.split("\n") if line[0].isdigit() and not line.endswith("…")]
        seen += [line.split(" | ")[0] for line in rows]
        pos = rendered.next_pos

    assert first[1:3] == [
        "row | i | x | name | where",
        "290 | 290 | null | n2 | {'lat': 290, 'lon': [290]}",
    ]
    assert seen == [str(i) for i in range(290, 1000)]
    assert render(source, pos="5000").text.split("\n")[2].startswith("999 | 999 | ")
    assert render(source, pos="0:2").text.split("\n")[1] == "row | name | where"


def test_a_row_group_too_large_to_decode_is_shown_by_fewer_columns(tmp_path, monkeypatch):
    file = table_file(tmp_path)
    monkeypatch.setattr(parquet, "DATA_BYTES", 6000)

    text = render(file, 0).text

    assert "columns 0-1 of 5" in text or "columns 0-2 of 5" in text, "which, is a matter of pyarrow's encoding"
    assert "\nrow | i | x" in text


def test_level_2_of_a_parquet_file_is_what_its_columns_weigh(tmp_path):
    lines = render(table_file(tmp_path), 2).text.split("\n")

    assert any(line.startswith("- i: int64, 0 … 999; ") and line.endswith(" decompressed") for line in lines)


PARQUET = b"PAR1" + bytes(500) + (100).to_bytes(4, "little") + b"PAR1"
NO_PARQUET = [
    ("not installed", PARQUET, "read by pyarrow, which is not installed; %pip install pyarrow"),
    ("cut off", PARQUET[:300], "cut off: its end, where schema and statistics are, is missing"),
    ("a lie", b"PAR1" + bytes(99) + b"\xff\xff\xff\x7fPAR1", "its footer has 2.1 GB, the file 111 B"),
    ("encrypted", b"PARE" + bytes(99) + b"PARE", "whose footer is encrypted"),
    ("text", b"a,b\n1,2\n1,2\n1,2\n", "does not begin as one; shown as it is]\na,b"),
    ("empty", b"", "does not begin as one"),
]


@pytest.mark.parametrize(("data", "said"), [row[1:] for row in NO_PARQUET], ids=[row[0] for row in NO_PARQUET])
def test_a_parquet_file_that_cannot_be_read_says_why(tmp_path, monkeypatch, data: bytes, said: str):
    monkeypatch.setattr(parquet, "imported", lambda name: None)
    file = written(tmp_path / "a.parquet", data)

    assert said in render(file).text
    for lod in (1, 2, 3):
        render(file, lod, tokens=30)


def test_any_damage_to_a_parquet_file_renders(tmp_path):
    file = table_file(tmp_path, 50)
    data = file.read_bytes()
    for at in range(4, len(data) - 8, 97):
        written(file, data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])

        for lod in range(3):
            render(file, lod, tokens=200)


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
@pytest.mark.parametrize("name", ["a.parquet", "a.ipynb", "a.jsonl", "a.png"])
def test_a_fifo_of_any_of_these_names_is_not_opened(tmp_path, name: str):
    os.mkfifo(tmp_path / name)

    assert [render(tmp_path / name, lod).text for lod in range(4)] == [f"{name} · fifo"] * 4


@pytest.mark.parametrize("name", ["a.parquet", "a.ipynb", "a.jsonl", "a.png"])
def test_a_file_that_goes_away_is_missing(tmp_path, name: str):
    source = opened(written(tmp_path / name, "{}"))
    (tmp_path / name).unlink()

    assert render(source).text == f"{name} · missing"


# --- images


def picture(kind: str, mode: str, **options: Any) -> bytes:
    """Return an image of 30 × 20, made by Pillow; skip the test where it is not installed."""
    image = import_module("PIL.Image")
    out = io.BytesIO()
    image.new(mode, (30, 20)).save(out, kind, **options)
    return out.getvalue()


IMAGES = [
    ("PNG", "RGBA", {}, "PNG image, 30 × 20, RGBA 8 bit"),
    ("PNG", "1", {}, "PNG image, 30 × 20, greyscale 1 bit"),
    ("JPEG", "RGB", {}, "JPEG image, 30 × 20, colour 8 bit"),
    ("JPEG", "L", {"progressive": True, "exif": b"Exif\0\0" + bytes(60_000)}, "JPEG image, 30 × 20, greyscale 8 bit"),
    ("GIF", "P", {}, "GIF image, 30 × 20, palette"),
    ("WEBP", "RGB", {}, "WebP image, 30 × 20, RGB"),
    ("WEBP", "RGBA", {"lossless": True}, "WebP image, 30 × 20, RGB"),
    ("BMP", "RGB", {}, "BMP image, 30 × 20, RGB 24 bit"),
    ("TIFF", "RGB", {}, "TIFF image, 30 × 20, RGB 8 bit"),
    ("TIFF", "L", {"compression": "tiff_lzw"}, "TIFF image, 30 × 20, greyscale 8 bit"),
    ("TIFF", "RGB", {"big_tiff": True}, "TIFF image, 30 × 20, RGB 8 bit"),
]


@pytest.mark.parametrize(
    ("kind", "mode", "options", "said"), IMAGES, ids=[f"{row[0]}-{row[1]}-{len(row[2])}" for row in IMAGES]
)
def test_an_image_is_its_format_dimensions_and_mode(tmp_path, kind: str, mode: str, options: Any, said: str):
    file = written(tmp_path / "a.image", picture(kind, mode, **options))

    texts = [render(file, lod).text for lod in range(4)]

    assert len(set(texts[1:])) == 1
    assert texts[1].startswith(f"a.image · {said}")
    assert texts[0].removesuffix(" · shown as 30 × 20, ~2 tokens") == texts[1]


@pytest.mark.parametrize(
    ("kind", "mode", "made"),
    [
        ("JPEG", "RGB", "JPEG"),
        ("WEBP", "RGB", "JPEG"),
        ("PNG", "RGBA", "PNG"),
        ("GIF", "P", "PNG"),
        ("PNG", "1", "PNG"),
    ],
)
@pytest.mark.parametrize(("tokens", "side"), [(2000, 512), (195, 320), (84, 180)])
def test_an_image_is_shown_as_a_small_picture_within_the_budget(tmp_path, kind, mode, made, tokens, side):
    image = import_module("PIL.Image")
    file = tmp_path / "a.image"
    image.new(mode, (1600, 1200)).save(file, kind)

    shown = render(file, tokens=tokens).picture

    assert shown is not None and shown.media_type == f"image/{made.lower()}"
    with image.open(io.BytesIO(base64.b64decode(shown.data))) as seen:
        assert (seen.format, seen.size) == (made, (shown.width, shown.height))
    assert max(seen.size) <= side and abs(shown.width / shown.height - 4 / 3) < 0.05
    assert render(file, tokens=tokens).picture == shown


@pytest.mark.parametrize(
    ("data", "tokens", "why"),
    [
        (lambda: picture("TIFF", "RGB"), 2000, "no picture: TIFF is not decoded"),
        (lambda: picture("PNG", "RGB"), 33, "no picture: too few tokens for one"),
        (lambda: picture("PNG", "RGB")[:45], 2000, "no picture: it cannot be decoded"),
        (
            lambda: b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 30_000, 20_000, 8, 2) + bytes(99),
            2000,
            "no picture: 600 million pixels are not decoded",
        ),
    ],
    ids=["a format that is not decoded", "no room", "cut off", "a bomb"],
)
def test_an_image_that_is_not_decoded_says_why_and_keeps_its_facts(tmp_path, data, tokens, why):
    rendered = render(written(tmp_path / "a.image", data()), tokens=tokens)

    assert rendered.picture is None
    assert why in rendered.notes
    assert " image, 30" in rendered.text


def test_two_images_of_one_size_are_told_apart(tmp_path):
    """A picture that did not follow its file would show a model what is not there any more."""
    image = import_module("PIL.Image")
    file = tmp_path / "a.png"
    image.new("RGB", (64, 64), "red").save(file)
    source = opened(file)
    red = render(source)
    image.new("RGB", (64, 64), "blue").save(file)
    blue = render(source)

    assert red.picture is not None and blue.picture is not None
    assert red.picture.data != blue.picture.data
    assert red.fingerprint != blue.fingerprint


def test_an_image_that_changed_says_what_it_was(tmp_path):
    file = written(tmp_path / "a.png", picture("PNG", "RGB"))
    source = opened(file)
    before = render(source)
    written(file, picture("JPEG", "L"))

    text = render(source, 3, basis=before.basis).text

    assert text.startswith("a.png · changed · JPEG image, 30 × 20, greyscale 8 bit, ")
    assert "; was PNG image, 30 × 20, RGB 8 bit, " in text


def test_an_image_of_absurd_dimensions_is_named_at_once(tmp_path):
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 2**31 - 1, 2**31 - 1, 16, 6) + bytes(99)

    text = render(written(tmp_path / "a.png", bomb)).text

    assert "PNG image, 2,147,483,647 × 2,147,483,647, RGBA 16 bit, 36893488.1 TB decoded" in text


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_a_damaged_image_renders_as_what_is_left_of_it(tmp_path, kind: str):
    data = picture(kind, "L" if kind == "GIF" else "RGB")
    for at in range(min(len(data), 200)):
        damaged = data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :]
        for part in (data[:at], damaged):
            read_image(lambda offset, count, part=part: part[offset : offset + count])
        if at % 20 == 0:
            render(written(tmp_path / "a.image", damaged), tokens=50)


# --- settings files

YAML = """name: ci
on:
  push:
    branches: [main]
jobs:
  test:
    steps:
      - uses: checkout
      - name: run
        run: |
          make: x
          not: a key
      - name: end
"last key": 1
"""
TOML = """top = 1
[project]  # what it is
name = "x"
text = '''
[not.a.section]
'''
[[tool.rows]]
a.b = 2
"""


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        (
            "c.yaml",
            YAML,
            [
                *("0 name: ci", "1 on:", "2   push:", "3     branches: [main]", "4 jobs:", "5   test:", "6     steps:"),
                *("7       - uses: checkout", "8       - name: run", "9       run: |", "12       - name: end"),
                '13 "last key": 1',
            ],
        ),
        (
            "c.toml",
            TOML,
            [
                *("0 top = 1", "1 [project]  # what it is", '2   name = "x"', "3   text = '''", "6 [[tool.rows]]"),
                "7   a.b = 2",
            ],
        ),
        ("c.ini", "; a note\n[db]\nhost = x\nport: 5\n", ["1 [db]", "2   host = x", "3   port: 5"]),
    ],
)
def test_a_settings_file_is_its_sections_and_keys(tmp_path, name: str, text: str, lines: list[str]):
    shown = render(written(tmp_path / name, text), 1, tokens=4000).text.split("\n--- from")[0].split("\n")

    assert shown[1:] == lines


def test_a_key_of_a_settings_file_is_a_position_and_outer_keys_come_first(tmp_path):
    rows = "".join(f"[part{at}]\n" + "".join(f"key_{at}_{one} = {one}\n" for one in range(20)) for at in range(20))
    source = opened(written(tmp_path / "a.toml", rows + "[database]\nhost = 'x'\n"))

    assert "\nhost = 'x'" in render(source, 0, "database", tokens=200).text
    assert "database" in render(source, 1, tokens=400).text
    assert "[database]" in render(source, 2, tokens=400).text


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "no key at all", "[", ":", "a:\n" * 9000, "\t: x", "x: |\n"])
@pytest.mark.parametrize("name", ["a.yaml", "a.toml"])
def test_odd_settings_files_have_an_outline_too(tmp_path, name: str, text: str):
    for lod in (0, 1, 2):
        assert "could not" not in render(written(tmp_path / name, text), lod).text
