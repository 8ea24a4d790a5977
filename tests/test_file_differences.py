"""Files that cells wrote, compared by their contents: where these are kept, and the reason where they are not."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pandas as pd
import pytest

from ctxkernel.core.value_difference import ValueDifference
from ctxkernel.kernel.returning.file_differences import MOST_TEXT, file_difference
from ctxkernel.replay.value_comparer import ValueComparer

KEEP = "%ctx config files restore"
WRITE = """
import pandas as pd
wine = pd.DataFrame({'ash': [2.0, 2.5, 3.0], 'kind': list('abc')})
wine.to_csv('wine.csv', index=False)
open('notes.txt', 'w').write('one\\ntwo\\nthree\\n')
open('raw.bin', 'wb').write(bytes([0, 1]))
"""
CHANGE = """
wine.assign(ash=[2.0, 2.75, 3.0]).to_csv('wine.csv', index=False)
open('notes.txt', 'w').write('one\\n2\\nthree\\n')
open('raw.bin', 'wb').write(bytes([0, 2]))
"""


def run_both(kernel: Any, places: str) -> dict[str, dict[str, Any]]:
    """Run the two cells, and return the files that differ between them."""
    for source in (WRITE, CHANGE):
        assert kernel.run(source).status == "ok"
    found = json.loads(kernel.run(f"%ctx diff {places} --json").stdout)
    return {one["name"]: one for one in found["files"]}


def test_a_text_is_compared_by_lines_and_a_table_by_cells_where_contents_are_kept(kernel):
    kernel.run(KEEP)
    found = run_both(kernel, "s2 s3")
    assert found["wine.csv"]["told"].endswith("DataFrame 3×2: 1 cell differs in ash")
    assert found["wine.csv"]["value"]["columns"] == {"ash": 1}
    assert {"-two", "+2"} <= set(found["notes.txt"]["value"]["diff"])
    assert found["raw.bin"]["value"]["reason"] == "not compared: it is not a text"
    text = kernel.run("%ctx diff s2 s3").data[0]["text/plain"]
    assert "+2" in text


def test_where_contents_are_not_kept_the_difference_says_so(kernel):
    for one in run_both(kernel, "s1 s2").values():
        assert one["value"]["differs"] is None
        assert "contents of files are only kept with %ctx config files restore" in one["value"]["reason"]


def test_the_page_gets_the_difference_of_a_file(kernel):
    from test_panel import Front

    front = Front(kernel)
    front.run(KEEP, gesture=True)
    front.run(WRITE)
    front.run(CHANGE)
    found = front.ask(type="difference", old="s2", new="s3")["difference"]["files"]
    assert {one["name"]: one["how"] for one in found} == dict.fromkeys(("notes.txt", "raw.bin", "wine.csv"), "changed")
    assert all(one["value"] is not None for one in found)


def compare(name: str, old: Any, new: Any) -> ValueDifference:
    return ValueComparer().compare(name, old, new)


def parquet(frame: pd.DataFrame) -> bytes:
    data = io.BytesIO()
    frame.to_parquet(data)
    return data.getvalue()


def test_a_parquet_file_is_compared_by_cells():
    frame = pd.DataFrame({"x": [1, 2]})
    found = file_difference("a.parquet", parquet(frame), parquet(frame.assign(x=[1, 3])), compare)
    assert found.columns == {"x": 1}


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("a.parquet", b"PAR1", b"PAR1\0", "it is not a text"),
        ("a.txt", b"x" * (MOST_TEXT + 1), b"y", f"it has more than {MOST_TEXT:,} bytes"),
        ("a.txt", b"\xff\xfe", b"ab", "it is not a text"),
    ],
)
def test_what_cannot_be_compared_says_why(name, old, new, reason):
    found = file_difference(name, old, new, compare)
    assert found.differs is None
    assert found.reason == f"not compared: {reason}"


def test_a_table_with_equal_cells_and_other_bytes_is_compared_by_lines():
    found = file_difference("a.csv", b"x\n1.0\n", b"x\n1.00\n", compare)
    assert "+1.00" in found.diff


AGAIN = "import time\nopen('notes.txt', 'w').write(f'one\\n{time.time_ns()}\\nthree\\n')"


def test_a_re_run_compares_the_files_that_it_writes_by_their_content(kernel):
    kernel.run(KEEP)
    assert kernel.run(AGAIN).status == "ok"
    (table,) = (one["text/html"] for one in kernel.run("%ctx rerun 2").data if "text/html" in one)
    assert "notes.txt" in table
    assert re.search(r"-\d{19}\n\+\d{19}\n", table)
    assert "one\n" in table


def test_one_file_alone_is_compared_by_its_name(kernel):
    kernel.run(KEEP)
    run_both(kernel, "s2 s3")
    (one,) = json.loads(kernel.run("%ctx diff s2 s3 notes.txt --json").stdout)["files"]
    assert "+2" in one["value"]["diff"]


def test_where_contents_are_not_kept_a_re_run_says_so(kernel):
    assert kernel.run(AGAIN).status == "ok"
    (table,) = (one["text/html"] for one in kernel.run("%ctx rerun 1").data if "text/html" in one)
    assert "contents of files are only kept with %ctx config files restore" in table
