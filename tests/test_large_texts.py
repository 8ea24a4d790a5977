"""Large logs, tables and texts: a sample at first, then one pass over all of it; searches; and the end of a file."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import All
from ctxkernel.sources.base import file_reader, surveys
from ctxkernel.sources.base import file_search as searches
from ctxkernel.sources.base.file_reader import make_text
from ctxkernel.sources.outlines.logs import LogFacts
from ctxkernel.sources.outlines.tabular import SampleFacts, read_table
from ctxkernel.testing import HeldJobs, Turns
from ctxkernel.testing.renderings import opened, render, written

LINES = 110_000
LOG = "".join(f"2026-11-22 10:00:{at % 60:02d} INFO step: {at} of {LINES}, loss 0.123\n" for at in range(LINES))
RARE = "2026-11-22 11:59:59 CRITICAL disk full\n"
MIDDLE = "2026-11-22 11:00:00 WARNING slow disk\n"


def done(source):
    """Let the background do all that a source wants."""
    while (job := source.preparation()) is not None:
        if source.accept(job.work(lambda: False, lambda part: None)):
            render(source, 1)
    return source


@pytest.fixture
def log(tmp_path):
    return written(
        tmp_path / "a.log", LOG + MIDDLE + LOG[: LOG.index("step: 20000 ")].rpartition("\n")[0] + "\n" + RARE
    )


def entries(path) -> Counter[str]:
    return Counter(line.split()[2] for line in path.read_text().splitlines() if line.startswith("2026"))


def test_a_large_log_is_first_told_by_a_sample_that_says_how_much_was_read(log):
    text = render(opened(log), 1).text

    assert "a sample: beginning, middle and end, 1.0 MB of 7.7 MB read" in text.split("\n")[0]
    assert re.search(r"^log, ~[\d,]+ entries, ", text, re.MULTILINE)
    assert re.search(r"^~\d+ 2026-11-22 11:59:59 CRITICAL disk full$", text, re.MULTILINE)
    assert re.search(r" INFO step: .* — ~[\d,]+ more like it in the sample, the last at ~", text)
    assert all("~" in line for line in text.split("\n") if line.startswith("levels"))
    assert "\n[… the rest of the log was not read]\n" in text


def test_then_it_is_told_whole_with_the_rare_lines_first(log):
    source = opened(log)
    render(source, 1)
    text, there = render(done(source), 1).text, entries(log)
    lines = text.partition("\n--- ")[0].split("\n")

    assert lines[0] == f"a.log · {there.total():,} lines · 7.7 MB"
    assert lines[1] == f"log, {there.total():,} entries, 2026-11-22 10:00:00 … 2026-11-22 11:59:59"
    assert lines[2] == f"levels: CRITICAL 1 · WARNING 1 · INFO {there['INFO']:,}"
    assert lines[3] == f"{there.total() - 1} 2026-11-22 11:59:59 CRITICAL disk full"
    assert lines[4] == f"{LINES} 2026-11-22 11:00:00 WARNING slow disk"
    assert "~" not in "".join(lines)


def test_level_2_of_a_log_has_its_rare_lines_wherever_they_are(log):
    source = opened(log)
    render(source, 2)
    text = render(done(source), 2, tokens=200).text

    assert f"- {LINES}: 2026-11-22 11:00:00 WARNING slow disk" in text
    assert "CRITICAL disk full" in text


def test_level_1_shows_the_lines_at_the_position_wherever_it_is(log):
    source = opened(log)
    text = render(source, 1, pos=str(LINES)).text

    assert f"--- from line {LINES}, " in text
    assert text.partition("--- from line")[2].split("\n")[1] == MIDDLE.rstrip()


def test_level_2_of_a_long_text_says_how_many_of_its_lines_were_ranked(tmp_path):
    lines = [f"Sentence {chr(97 + at % 26)}{at} is about something." for at in range(60_001)]
    source = opened(written(tmp_path / "a.txt", "\n".join(lines)))
    assert "kB so far" in render(source, 2).text.split("\n")[0]
    wanted = source.preparation()
    assert wanted is not None and source.accept(wanted.work(lambda: False, lambda _: None))
    text = render(source, 2).text

    assert "chosen from 10,000 of its lines: beginning, middle and end" in text.split("\n")[0]


def test_a_log_that_grows_is_followed_by_its_new_part_only(log, monkeypatch):
    source = opened(log)
    render(source, 1)
    done(source)
    size = log.stat().st_size
    read = []
    real = surveys.read_at
    monkeypatch.setattr(surveys, "read_at", lambda fd, at, n: read.append(at) or real(fd, at, n))
    with log.open("a") as file:
        file.write("2026-11-22 12:00:00 ERROR lost\n2026-11-22 12:00:01 INFO half a li")

    text = render(source, 1).text

    assert min(read) == size
    assert "levels: CRITICAL 1 · ERROR 1 · WARNING 1 · INFO" in text
    assert " … 2026-11-22 12:00:01" in text
    assert source.preparation() is None


def test_a_log_that_was_replaced_is_read_anew(log):
    source = opened(log)
    render(source, 1)
    done(source)
    written(log, LOG + "2026-11-22 11:00:00 FATAL gone\n")

    assert "a sample" in render(source, 1).text
    assert "levels: FATAL 1 · INFO 110,000" in render(done(source), 1).text


WORDS = st.sampled_from(["INFO a", "INFO b 7", "ERROR c 0x1f", "WARNING d 12 of 3", "x", "  goes on", ""])


@settings(max_examples=examples(200), deadline=None)
@given(parts=st.lists(st.lists(WORDS, max_size=12), max_size=6), digits=st.integers(0, 10**6))
def test_a_log_that_is_read_part_by_part_is_the_one_that_is_read_at_once(parts, digits):
    lines = [[f"2026-01-01 10:00:00 {word} {digits}" if word[:1].isupper() else word for word in one] for one in parts]
    whole, step = LogFacts(), LogFacts()
    whole.take("".join(f"{line}\n" for one in lines for line in one).encode())
    for one in lines:
        before = step.copy()
        known = before.outline().lines
        step = step.copy()
        step.take("".join(f"{line}\n" for line in one).encode())
        assert before.outline().lines == known

    assert step.outline() == whole.outline()
    assert whole.levels.total() == sum(line.startswith("2026") for one in lines for line in one)


CELLS = st.sampled_from(
    ["1", "2.5", "-3e2", "", "NA", "a", 'say "x"', "two\nlines", "2026-01-02", "true", "a,b", "1_0"]
)
TABLES = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=30)
)


@settings(max_examples=examples(300), deadline=None)
@given(rows=TABLES, cut=st.integers(1, 12))
def test_a_table_that_is_read_part_by_part_says_what_one_that_is_read_at_once_says(rows, cut):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[f"name{at}" for at in range(len(rows[0]))], *rows])
    text = out.getvalue()
    facts = SampleFacts()
    pieces = text.splitlines(keepends=True)
    facts.take("".join(pieces[:60]).encode())
    for at in range(60, len(pieces), cut):
        facts.take("".join(pieces[at : at + cut]).encode())
    expected = read_table(make_text(text, size=len(text), fingerprint=""))
    found = facts.table()

    assert (found is None) == (expected is None)
    if expected is not None:
        assert found.column_lines() == expected.column_lines()
        assert found.headline == expected.headline
        assert found.statistic_lines() == expected.statistic_lines()


def test_a_large_table_is_told_by_a_sample_and_then_by_all_its_rows(tmp_path):
    rows = 180_000
    body = "".join(
        f"{at},{at % 7 / 2},{'north' if at % 3 else 'south'},2026-01-{at % 28 + 1:02d}\n" for at in range(rows)
    )
    source = opened(written(tmp_path / "a.csv", f"id,half,side,day\n{body}-5,99.5,east,\n"))
    before = render(source, 1).text
    after, statistics = render(done(source), 1).text, render(source, 2).text

    assert "a sample: beginning, middle and end, " in before.split("\n")[0]
    assert re.search(r"~[\d,]+ rows × 4 columns, header row, types and ranges from [\d,]+ rows of a sample", before)
    assert "\nid: int, ~-5 … " in before
    assert "180,001 rows × 4 columns, header row\n" in after
    assert "\nid: int, -5 … 179999\n" in after
    assert "\nhalf: float, 0.0 … 99.5\n" in after
    assert "\nside: text, 3 distinct ('north' ×120,000, 'south' ×60,000, 'east' ×1)\n" in after
    assert "\nday: date, 1 null, 2026-01-01 … 2026-01-28\n" in after
    assert "\n- id: int, -5, ~" in statistics


@pytest.mark.parametrize(
    ("pos", "line"),
    [
        ("/CRITICAL/", RARE),
        ("/CRITICAL/-1", RARE),
        ("/slow|full/", MIDDLE),
        ("/slow|full/2", RARE),
        ("/slow|full/-2", MIDDLE),
        ("/SLOW/i", MIDDLE),
        ("/^2026-11-22 11/-1", RARE),
        ("/step: 77 of/", LOG.split("\n")[77]),
        ("end", RARE),
        ("-1", RARE),
    ],
)
def test_a_pattern_and_the_end_are_found_at_any_size(log, pos, line):
    source = opened(log)
    render(source, 0, pos=pos, tokens=200)
    text = render(done(source), 0, pos=pos, tokens=2000).text

    shown = text.split("\n")[1:]
    assert line.rstrip() == (shown[-1] if pos == "end" else shown[0])


@pytest.fixture
def in_steps(monkeypatch):
    """Sizes under which a log of 8 MB is not searched at once."""
    monkeypatch.setattr("ctxkernel.sources.files.files.SEARCHED_AT_ONCE", 1 << 20)


@pytest.mark.usefixtures("in_steps")
def test_what_was_not_found_yet_says_how_far_it_was_searched_and_the_background_goes_on(log):
    turns = Turns()
    turns.loop.graph.open_source = opened
    turns.namespace["path"] = log
    held = turns.loop.preparer = HeldJobs(turns.loop.ready)
    turns.run("h = view(path, pos='/CRITICAL/', tokens=300)")
    h = turns.namespace["h"]
    waiting = h.rendered.text
    assert [job.preparation.made_from.partition(" ")[0] for job in held.jobs] == ["search"]
    held.finish()
    assert h.rendered.text == waiting
    notices = turns.run().notices
    assert h.rendered.text == waiting
    turns.run("h.refresh()")

    assert "[/CRITICAL/ not found yet, 2.1 MB of 7.7 MB searched]" in waiting
    assert any("/CRITICAL/: 1 match found; v1.refresh() shows it" in notice for notice in notices)
    assert h.rendered.text.split("\n")[1] == RARE.rstrip()


@pytest.mark.usefixtures("in_steps")
def test_a_search_that_nobody_wants_any_more_is_given_up(log):
    turns = Turns()
    turns.loop.graph.open_source = opened
    turns.namespace["path"] = log
    held = turns.loop.preparer = HeldJobs(turns.loop.ready)
    turns.run("h = view(path, pos='/nothing/')")
    assert held.jobs[0].preparation.made_from.startswith("search")
    turns.run("h.pos = 3")

    assert not any(job.preparation.made_from.startswith("search") for job in held.jobs)
    assert (
        searches.search_file(
            str(log), searches.Search(re.compile("x")), searches.Pattern(re.compile("x")), lambda: True, print
        ).offset
        == 0
    )


@pytest.mark.usefixtures("in_steps")
def test_what_is_nowhere_is_said_to_be_nowhere_once_all_was_searched(log):
    source = opened(log)
    before = render(source, 0, pos="/nothing/")
    after = render(done(source), 0, pos="/nothing/")

    assert "not found yet" in before.text
    assert after.notes[0] == "position '/nothing/' is not there: all 7.7 MB were searched"


def test_next_and_previous_matches_are_moves(log):
    turns = Turns()
    turns.loop.graph.open_source = opened
    turns.namespace["path"] = log
    turns.run("h = view(path, pos='/step: 5 of/', tokens=200)")
    h = turns.namespace["h"]
    first = h.rendered.text
    turns.run("h.next_match()")
    second = h.pos, h.rendered.text
    turns.run("h.previous_match()")
    assert (h.pos, h.rendered.text) == ("/step: 5 of/1", first)
    assert second[0] == "/step: 5 of/2"
    assert f"lines {LINES + 6}-" in second[1]
    with pytest.raises(BadPolicy, match="no match before it"):
        turns.run("h.previous_match()")
    with pytest.raises(BadPolicy, match=r"/step: 5 of/3.*it matches 2 lines"):
        turns.run("h.set(pos='/step: 5 of/3')")


@pytest.mark.usefixtures("in_steps")
def test_while_the_next_match_is_searched_for_a_view_stays_at_the_one_that_it_shows(log):
    turns = Turns()
    turns.loop.graph.open_source = opened
    turns.namespace["path"] = log
    held = turns.loop.preparer = HeldJobs(turns.loop.ready)
    turns.run("h = view(path, pos='/step: 5 of/', tokens=300)")
    h = turns.namespace["h"]
    first = h.rendered.text.split("\n")[1]
    turns.run("h.next_match()")
    waiting = h.rendered.text.split("\n")
    held.finish()
    turns.run()
    turns.run("h.refresh()")

    assert "step: 5 of" in first
    assert "/step: 5 of/ not found yet" in waiting[0]
    assert waiting[2] == first
    assert f"lines {LINES + 6}-" in h.rendered.text


TEXTS = st.lists(st.text("abé \r", max_size=30), min_size=1, max_size=40)


@settings(max_examples=examples(200), deadline=None)
@given(
    lines=TEXTS,
    ends=st.booleans(),
    pattern=st.sampled_from(["a", "ab", "a+b", "é", "^b", "b$", "a|é", "."]),
    number=st.sampled_from([1, 2, 3, -1, -2]),
)
def test_a_search_by_parts_finds_the_line_that_a_text_in_memory_has(tmp_path_factory, lines, ends, pattern, number):
    path = written(tmp_path_factory.mktemp("t") / "a", "\n".join(lines) + "\n" * ends)
    there = path.read_bytes().decode().removesuffix("\n").split("\n")
    hits = [at for at, line in enumerate(there) if re.search(pattern, line.removesuffix("\r").replace("\r", "␍"))]
    compiled = re.compile(pattern)
    found = searches.search_file(
        str(path), searches.Search(compiled), searches.Pattern(compiled, number), lambda: False, lambda part: None
    )
    expected = hits[number - 1 if number > 0 else number] if len(hits) >= abs(number) else None

    at = found.place(number)

    assert (None if at is None else path.read_bytes()[:at].count(b"\n")) == expected


@pytest.mark.parametrize("ends", ["", "\n"])
@pytest.mark.parametrize("count", [1, 3, 400])
def test_a_position_from_the_end_counts_lines_whether_the_last_one_has_an_end_or_not(tmp_path, ends, count):
    lines = [f"line {at}" for at in range(400)]
    small = written(tmp_path / "a.txt", "\n".join(lines) + ends)
    large = written(tmp_path / "b.txt", "filler\n" * 700_000 + "\n".join(lines) + ends)

    for path in (small, large):
        assert render(path, 0, pos=f"-{count}", tokens=9_000).text.split("\n")[1:] == lines[-count:]


def test_a_running_view_of_the_end_follows_a_log(log):
    turns = Turns()
    turns.loop.graph.open_source = opened
    turns.namespace["path"] = log
    turns.run("h = view(path, pos='end', tokens=200).run()")
    with log.open("a") as file:
        file.write("2026-11-22 12:00:00 INFO the new end\n")
    turns.run()

    assert turns.namespace["h"].rendered.text.endswith("INFO the new end")


def test_the_end_of_a_text_of_which_only_the_beginning_was_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(file_reader, "WHOLE_BYTES", 4096)
    monkeypatch.setattr(file_reader, "EXCERPT_BYTES", 1024)
    path = written(tmp_path / "a.txt", "".join(f"line {at}\n" for at in range(3_000)).encode("utf-16"))

    with pytest.raises(BadPolicy, match="its end is not known, only its first"):
        render(path, 0, pos="end")
    with pytest.raises(BadPolicy, match="has no position '/line 2999/' in what was read of it"):
        render(path, 0, pos="/line 2999/")
    assert re.match(r"a.txt · lines 0-1 of \d+\+ · ", render(path, 0, tokens=100).text)


# --- texts in memory of which an outline takes long

CODE = "".join(f"class Ship{n}:\n    def load{n}(self, tons: int):\n        return tons\n\n\n" for n in range(3_000))
CODE_OF_TYPESCRIPT = "".join(
    f"class Ship{n} {{\n  load(tons: number) {{\n    return tons;\n  }}\n}}\n" for n in range(3_000)
)
HEADINGS = "".join(f"# Part {n}\n\nIt is about {n}.\n\n" for n in range(10_000))
ENTRIES = (
    "".join(f"2024-01-02 03:04:05 INFO step {n} done\n" for n in range(20_000)) + "2024-01-02 03:04:05 ERROR shut\n"
)
LONG = {
    "code": ("a.py", CODE, "class Ship2999", "3,000 more symbols"),
    "Markdown": ("a.md", HEADINGS, "# Part 9999", "headings"),
    "log": ("a.log", ENTRIES, "ERROR shut", "20,001 entries"),
}


@pytest.mark.parametrize(("name", "text", "late", "counted"), LONG.values(), ids=LONG)
def test_a_long_text_is_told_by_its_beginning_that_says_so_until_the_background_has_outlined_all(
    tmp_path, name, text, late, counted
):
    source = opened(written(tmp_path / name, text))
    first = render(source, 1, tokens=All)
    assert re.search(r"~ of its first [\d.]+ kB so far", first.text.split("\n")[0])
    assert late not in first.text
    cut = re.search(r"([\d,]+\+?) more (symbols|headings)", render(source, 1, tokens=300).text)
    assert not cut or cut[1].endswith("+"), "more than were read, for all that is known"
    assert counted not in first.text.replace("~", "")
    wanted = source.preparation()

    assert source.accept(wanted.work(lambda: False, lambda _: None))

    whole = render(source, 1, tokens=All)
    assert "so far" not in whole.text
    assert late in whole.text
    assert source.preparation() is None
    assert "so far" not in render(source, 2).text


@pytest.mark.parametrize(
    ("name", "text", "last"), [("a.py", CODE, "class Ship2999:"), ("a.md", HEADINGS, "# Part 8999")]
)
def test_a_name_far_in_a_long_text_whose_outline_is_quick_is_found_at_once(tmp_path, name, text, last):
    source = opened(written(tmp_path / name, text))

    shown = render(source, 0, pos=last.strip("# :").removeprefix("class "), tokens=300)

    assert last in shown.text
    assert "not found" not in shown.text


def test_what_is_far_in_a_long_text_is_found_by_its_name_once_it_is_outlined(tmp_path):
    source = opened(written(tmp_path / "a.ts", CODE_OF_TYPESCRIPT))

    first = render(source, 0, pos="Ship2999", tokens=300)
    wanted = source.preparation()
    assert source.accept(wanted.work(lambda: False, lambda _: None))
    then = render(source, 0, pos="Ship2999", tokens=300)

    assert "'Ship2999' not found yet" in first.text
    assert "class Ship2999 {" in then.text


def test_the_outline_of_a_long_text_is_of_the_text_that_it_was_made_of(tmp_path):
    path = written(tmp_path / "a.py", CODE)
    source = opened(path)
    render(source, 1)
    late = source.preparation().work(lambda: False, lambda _: None)
    written(path, CODE.replace("Ship", "Boat"))
    render(source, 1)

    assert not source.accept(late)
    assert "Ship" not in render(source, 1).text


def test_a_string_and_a_source_in_memory_are_outlined_in_the_background_too():
    source = opened(HEADINGS)
    assert "so far" in render(source, 1).text
    wanted = source.preparation()

    assert source.accept(wanted.work(lambda: False, lambda _: None))

    assert "so far" not in render(source, 1).text


def test_in_a_kernel_a_long_file_and_a_large_figure_are_complete_some_cells_later(kernel, tmp_path):
    path = written(tmp_path / "long.py", CODE)
    kernel.run(f"code = view({str(path)!r}, lod=1, tokens=All).run()")
    first = kernel.evaluate("code.rendered.text")
    kernel.run(
        "import matplotlib; matplotlib.use('agg')\n"
        "from matplotlib import pyplot\nfigure, axes = pyplot.subplots(4, 4)\n"
        "plots = view(figure, lod=0, tokens=2000).run()"
    )
    seen = kernel.evaluate("plots.rendered.text")

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        kernel.run("import time; time.sleep(0.2)")
        done = kernel.evaluate("('so far' not in code.rendered.text, plots.rendered.picture is not None)")
        if done == "(True, True)":
            break

    assert "so far" in first and "class Ship2999" not in first
    assert "it is being drawn" in seen
    assert done == "(True, True)"
    assert kernel.evaluate("'class Ship2999' in code.rendered.text") == "True"


def test_cells_that_run_again_in_quick_succession_show_a_large_file_as_a_reader_saw_it(kernel, tmp_path):
    path = written(tmp_path / "long.py", 4 * CODE)
    for cell in (f"code = view({str(path)!r}, lod=1).run()", "a = 1", "b = 2", "code"):
        assert kernel.run(cell).status == "ok"
        kernel.evaluate("get_ipython().kernel.ctx.worker.wait(60)")
    assert kernel.evaluate("'so far' in code.rendered.text") == "False"

    told = json.loads(kernel.run("%ctx rerun 1..4 --json").stdout)

    assert [
        found["summary"] for one in told["comparisons"] for found in one["divergences"] if found["kind"] == "output"
    ] == []


# -- what variants of these showed


def test_one_critical_line_is_found_among_more_kinds_of_warnings_than_are_kept():
    kinds = ("".join(chr(97 + int(digit)) for digit in str(at)) for at in range(6_000))
    warnings = "".join(f"2026-11-22 10:00:00 WARNING {kind} is slow\n" for kind in kinds)
    facts = LogFacts()

    facts.take((warnings + RARE).encode())

    assert facts.ranked()[0].told() == f"6000 {RARE.strip()}"
    assert facts.levels.total() == sum(kind.count for kind in facts.kinds.values()) + facts.others


def test_line_ends_that_were_counted_in_a_part_of_a_file_carry_a_tilde(tmp_path):
    path = written(tmp_path / "progress.txt", b"10%\r20%\r30%\n" * 400_000)

    assert re.search(r"mixed line ends: ~[\d,]+ LF, ~[\d,]+ CR", render(path, 1).text)


def test_counts_of_a_part_of_a_text_carry_a_tilde(tmp_path):
    lines = written(tmp_path / "words", "plain words of one kind 1\n" * 200_000)
    code = written(tmp_path / "a.py", "def helper(a):\n    return helper(a)\n\n" + "# helper\n" * 600_000)

    assert re.search(r"\(and ~[\d,]+ lines like it\)", render(lines, 2).text)
    assert re.search(r"named ~[\d,]+×", render(code, 2).text)


@pytest.mark.parametrize("lod", [1, 2])
def test_counts_of_json_lines_that_were_not_all_read_carry_a_tilde(tmp_path, lod):
    rows = (f'{{"id": {at}, "word": "{"ab"[at % 2]}"}}\n' for at in range(20_000))

    shown = render(written(tmp_path / "a.jsonl", "".join(rows)), lod).text

    assert "fields from 5,000 of them" in shown
    assert "id: int, ~0 … 19999" in shown
    assert re.search(r"word: text, ~2 distinct \(\"[ab]\" ~\d\d\.\d %, ", shown)


def table_of(rows: int) -> str:
    return "".join(f"{at},{at % 7 / 2},w{at % 3}\n" for at in range(rows))


def test_a_table_below_4_mb_is_told_by_a_sample_first_and_then_by_all_its_rows(tmp_path):
    late = "x1,nan,w3\n"
    path = written(tmp_path / "a.csv", "id,half,word\n" + table_of(20_000) + late + table_of(40_000))
    source = opened(path)

    first = render(source, 1).text
    then = render(done(source), 1).text

    assert re.search(r"a sample: beginning, middle and end, [\d.]+ kB of [\d.]+ kB read", first)
    assert re.search(r"word: text, ~3 distinct \('w\d' ~3\d\.\d %, ", first)
    assert "60,001 rows × 3 columns, header row\n" in then
    assert "id: text, " in then
    assert "half: float, 1 null, 0.0 … 3.0" in then
    assert "word: text, 4 distinct ('w0' ×20,001" in then
    assert "~" not in then


def test_the_first_column_of_a_table_has_its_name_without_the_mark_of_the_encoding(tmp_path):
    path = written(tmp_path / "a.csv", b"\xef\xbb\xbfid,half,word\n" + table_of(60_000).encode())
    source = opened(path)

    assert "\nid: int, ~0 … " in render(source, 1).text
    assert "\nid: int, 0 … 59999" in render(done(source), 1).text


def test_a_sample_has_no_parts_of_records_that_have_several_lines(tmp_path):
    rows = "".join(f'{at},"a ""b""\nand {at}",2\n' for at in range(120_000))

    shown = render(written(tmp_path / "a.csv", "id,text,two\n" + rows), 1).text

    assert "a sample: " in shown
    assert "of another length" not in shown
    assert "id: int, ~0 … " in shown
    assert "two: int, ~2 … 2" in shown


def test_a_table_in_utf_16_is_estimated_by_its_bytes_and_ends_with_a_whole_row(tmp_path):
    text = "id,half,word\n" + table_of(220_000)

    shown = render(written(tmp_path / "a.csv", text.encode("utf-16")), 1).text

    estimate = int(re.search(r"~([\d,]+) rows", shown)[1].replace(",", ""))
    assert 150_000 < estimate < 330_000
    assert "null" not in shown
    assert "of another length" not in shown
    assert "only its first 1.0 MB were read" in shown


def test_a_header_may_have_a_name_twice(tmp_path):
    shown = render(written(tmp_path / "a.csv", "a,a,target\n1,x,2\n3,y,4\n"), 1).text

    assert "2 rows × 3 columns, header row" in shown
    assert "a: int, 1 … 3" in shown


@pytest.mark.parametrize("lod", [1, 2])
@pytest.mark.parametrize("tokens", [137, 333, 1_700])
def test_the_last_of_3_000_columns_is_named(tmp_path, lod, tokens):
    names = ",".join([*(f"c{at}" for at in range(2_999)), "target"])
    path = written(tmp_path / "a.csv", f"{names}\n" + ",".join(["1"] * 3_000) + "\n")

    assert "target" in render(path, lod, tokens=tokens).text


def test_json_below_4_mb_is_told_by_a_sample_first_and_then_by_all_of_it(tmp_path):
    rows = ",".join(f'{{"id": {at}}}' for at in range(100_000))
    source = opened(written(tmp_path / "a.json", f"[{rows}]"))

    first = render(source, 1).text
    then = render(done(source), 1).text

    assert re.search(r"a sample: its first [\d.]+ kB of 1\.[\d]+ MB read", first)
    assert re.search(r"id: int, ~0 … \d+", first)
    assert "array, 100,000 items of object" in then
    assert "id: int, 0 … 99999" in then
