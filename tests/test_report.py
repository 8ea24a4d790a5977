"""Reports: lines and tables as text that fits a width, and as HTML in which every text is escaped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.core.report import CellLink, ComparedValue, Report, ReportTable, fitted_lines
from ctxkernel.core.text import width_of
from ctxkernel.core.value_difference import ValueDifference, ValuePicture, ValueTable

CELLS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Mn", "Me", "Cf")), max_size=60)


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=5)))
def test_a_table_fits_the_width_of_its_terminal(rows: list[list[str]]):
    lines = fitted_lines(rows, 80)

    assert max(map(width_of, lines)) <= 80


def test_the_widest_column_is_truncated_and_the_last_one_gets_the_rest():
    lines = fitted_lines([["s1", "n" * 50, "x" * 100], ["s2", "short", "y"]], 60)

    assert lines[0].startswith("s1  nnn")
    assert lines[0].endswith("…")
    assert max(map(len, lines)) == 60


def test_a_statement_is_a_link_to_its_cell_in_html_and_plain_in_text():
    report = Report(ReportTable([["at"], [CellLink("s1", "c1")], [CellLink("s2", None)]]))

    assert report.text() == "at\ns1\ns2"
    assert '<a href="#cell-id=c1" data-ctxk-cell="c1">s1</a>' in report.html()
    assert report.html().count("<a ") == 1


def test_a_picture_that_is_no_base64_is_left_out():
    pictures = tuple(
        ValuePicture("p", kind, data)
        for kind, data in [
            ("image/png", "iVBORw0KGgo="),
            ("image/png", '" onerror="x'),
            ("image/svg+xml", "iVBORw0KGgo="),
            ("image/png", ""),
        ]
    )

    html = Report(ComparedValue("~", "x", "told", ValueDifference("x", "told", pictures=pictures))).html()

    assert html.count("<img") == 1
    assert "onerror" not in html


def test_a_name_that_shows_a_secret_masks_the_whole_row():
    def mask(text: str) -> str:
        return "password = [masked]" if text.startswith("password = ") else text

    table = ValueTable(("key", "before", "after"), (("password", "a", "b"), ("x", "a", "b")))
    report = Report(
        ReportTable([["name", "told"], ["password", "'abc'"]]),
        ComparedValue("~", "password", "'abc'", ValueDifference("password", "'abc'", diff=("abc",))),
        ComparedValue("~", "d", "dict", ValueDifference("d", "dict", tables=(table,))),
    )

    masked = report.masked(mask)

    assert "abc" not in masked.text() + masked.html()
    assert "password  [masked]  [masked]" in masked.text()
    assert "x         a         b" in masked.text()
