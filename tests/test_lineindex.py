"""Huge files: the index of their lines, made in the background, extended, and dropped."""

from __future__ import annotations

import functools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.sources.base import file_reader, large_files
from ctxkernel.sources.base.file_reader import Gone
from ctxkernel.sources.base.large_files import EMPTY, LargeFile
from ctxkernel.sources.base.rendering import Place
from ctxkernel.sources.base.surveys import Pass, run_pass
from ctxkernel.testing import HeldJobs, Turns
from ctxkernel.testing.renderings import opened, render, written

LINES = 800_000


@functools.cache
def code() -> bytes:
    """Return a log of 45 MB. Only the worker that runs these tests makes it."""
    return b"".join(b"%07d a line of a training log, step %d, loss 0.123\n" % (i, i) for i in range(LINES))


def indexed(path, known=EMPTY, stopped=lambda: False):
    return run_pass(str(path), Pass(known), None, stopped, lambda part: None).index


@pytest.fixture
def small_chunks(monkeypatch):
    """Sizes under which a few hundred bytes are a huge file."""
    monkeypatch.setattr(large_files, "CHUNK", 16)
    monkeypatch.setattr(large_files, "SCAN_BYTES", 32)
    for name, size in (("WHOLE_BYTES", 1024), ("EXCERPT_BYTES", 512), ("_SNIFF_BYTES", 256)):
        monkeypatch.setattr(file_reader, name, size)


@pytest.mark.usefixtures("small_chunks")
@settings(max_examples=examples(150), deadline=None)
@given(lines=st.lists(st.text("abé", max_size=40), min_size=1, max_size=60), ends=st.booleans(), at=st.integers(0, 70))
def test_with_its_index_every_line_of_a_file_is_found_where_it_is(tmp_path_factory, lines, ends, at):
    path = written(tmp_path_factory.mktemp("f") / "a.log", "\n".join(lines) + "\n" * ends)
    there = path.read_text("utf-8").split("\n")[: len(lines) if ends or lines[-1] else len(lines) - 1]
    index = indexed(path)
    file = LargeFile(str(path), index)

    window = file.window(Place(line=at), 2000)

    assert index.whole
    assert not isinstance(window, Gone)
    assert window.exact
    assert window.total == len(there)
    if at < len(there):
        assert list(window.lines) == there[at:]
        back = file.window(Place(offset=window.offset), 2000)
        assert (back.line, back.exact) == (at, True)
    elif there:
        assert window.past_end


@pytest.mark.usefixtures("small_chunks")
@settings(max_examples=examples(100), deadline=None)
@given(parts=st.lists(st.binary(max_size=80).map(lambda b: b.replace(b"b", b"\n")), min_size=1, max_size=6))
def test_an_index_that_is_extended_is_the_one_that_is_made_anew(tmp_path_factory, parts):
    path = written(tmp_path_factory.mktemp("f") / "a.log", b"")
    index = EMPTY
    for part in parts:
        with path.open("ab") as file:
            file.write(part)
        index = indexed(path, index)

        assert index == indexed(path)


def grown(path):
    with path.open("ab") as file:
        file.write(b"one more\n")
    return True


def shrunk(path):
    with path.open("r+b") as file:
        file.truncate(1000)
    return False


def replaced(path):
    written(path.with_suffix(".new"), code()).replace(path)
    return False


def rewritten(path):
    with path.open("r+b") as file:
        file.write(b"X")
    return False


@pytest.mark.parametrize("change", [grown, shrunk, replaced, rewritten], ids=lambda change: change.__name__)
def test_an_index_is_kept_while_a_file_grows_and_dropped_when_it_changed(tmp_path, change):
    path = written(tmp_path / "a.log", code()[:100_000])
    index = indexed(path)
    kept = change(path)

    assert (LargeFile(str(path), index).index is index) is kept


def test_an_index_that_nobody_wants_any_more_is_not_gone_on_with(tmp_path):
    path = written(tmp_path / "a.log", code())
    asked = iter([False, True])

    index = indexed(path, stopped=lambda: next(asked))

    assert not index.whole
    assert 0 < index.scanned < len(code())


def test_a_file_that_is_gone_when_it_is_indexed_says_so(tmp_path):
    with pytest.raises(OSError, match="missing"):
        indexed(tmp_path / "none.log")


def first(text):
    return text.split("\n")[0]


def test_a_large_file_is_exact_everywhere_once_its_index_came_and_tells_how_far_it_is(tmp_path):
    source = opened(written(tmp_path / "a.log", code()))
    before = render(source, pos="799000").text
    job, parts = source.preparation(), []
    steps = iter([False, True])
    half = job.work(lambda: next(steps), parts.append)
    assert not source.accept(half)
    meanwhile = render(source, pos="750000").text
    assert source.accept(source.preparation().work(lambda: False, parts.append))
    after = render(source, pos="750000")

    assert re.search(r"lines ~799000-\d+ of ~\d", first(before))
    assert re.search(r"of ~[\d,]+ \(indexing, \d\d %\)", first(meanwhile))
    assert "lines 750000-" in first(after.text)
    assert "of 800,000 " in first(after.text)
    assert after.text.split("\n")[1].startswith("0750000 a line")
    assert int(after.next_pos) > 750_000
    assert source.preparation() is None


def test_an_index_is_applied_by_the_tick_to_a_running_view_and_waits_for_a_call_in_a_paused_one(tmp_path):
    path = written(tmp_path / "a.log", code())
    turns = Turns()
    turns.loop.graph.open_source = lambda target: target
    turns.namespace["source"], turns.namespace["other"] = opened(path), opened(path)
    held = turns.loop.preparer = HeldJobs(turns.loop.ready)
    turns.run("h = view(source, pos=750_000, tokens=99).run(); k = view(other, pos=750_000, tokens=99)")
    h, k = turns.namespace["h"], turns.namespace["k"]
    assert [job.kind for job in held.jobs] == ["index"]
    estimated = h.rendered.text
    held.finish()
    assert h.rendered.text == estimated
    result = turns.run()
    assert "line 750000 of 800,000" in first(h.rendered.text)
    assert [item.summary for item in result.deltas if item.subject == "h"] == ["looked through in the background"]
    assert k.rendered.text == estimated
    assert held.jobs == []
    turns.run("k.refresh()")

    assert k.rendered.text == h.rendered.text


CALLS = ("k = None", "k and k.pause()", "k and k.run()", "k and k.scroll(70)", "h.refresh()")
STEPS = st.lists(
    st.sampled_from([*CALLS, "finish", "part", "grow", "tick"]),
    max_size=12,
)


@pytest.mark.usefixtures("small_chunks")
@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS, both=st.booleans())
def test_views_of_one_file_show_what_views_of_two_equal_files_show(tmp_path_factory, steps, both):
    """One index serves both: whatever becomes of one view, the other one gets what it would have got alone."""
    folder = tmp_path_factory.mktemp("f")
    code = b"".join(b"%03d a line\n" % number for number in range(400))
    shown = []
    for at in "bc":
        (folder / at).mkdir()
    for paths in ([written(folder / "a.log", code)] * 2, [written(folder / at / "a.log", code) for at in "bc"]):
        turns = Turns()
        turns.loop.graph.open_source = opened
        turns.namespace["p"], turns.namespace["q"] = paths
        held = turns.loop.preparer = HeldJobs(turns.loop.ready)
        late = "k = view(q, pos=300, tokens=99).run()"
        turns.run(f"h = view(p, pos=200, tokens=99); {late if both else 'k = None'}")
        assert len(held.jobs) == (len(set(paths)) if both else 1)
        for step in steps:
            if step in ("finish", "part"):
                for job in held.jobs[:] if step == "part" else ():
                    held.put(job, job.preparation.work(iter([False, True]).__next__, lambda part: None))
                while step == "finish" and held.jobs:
                    held.finish()
            elif step == "grow":
                for path in set(paths):
                    with path.open("ab") as file:
                        file.write(b"one more line\n")
            else:
                turns.run("" if step == "tick" else step)
        turns.run("" if both else late)
        for _ in range(3):
            while held.jobs:
                held.finish()
            turns.run("h.refresh(); k and k.refresh()")
        names = [turns.namespace[name] for name in ("h", "k") if turns.namespace.get(name) is not None]
        shown.append([node.rendered.text for node in names])

    assert shown[0] == shown[1]
    assert not any("~" in first(text) for text in shown[0])


def test_a_view_of_a_file_whose_lines_another_view_knows_is_exact_at_once(tmp_path):
    path = written(tmp_path / "a.log", code())
    source = opened(path)
    render(source)
    source.accept(source.preparation().work(lambda: False, lambda part: None))
    other = opened(path)

    assert "lines 750000-" in first(render(other, pos="750000").text)
    assert other.preparation() is None


def test_a_rendering_that_was_prepared_without_the_index_is_prepared_again_with_it(tmp_path):
    path = written(tmp_path / "a.log", code())
    turns = Turns()
    turns.loop.graph.open_source = opened
    turns.namespace["path"] = path
    held = turns.loop.preparer = HeldJobs(turns.loop.ready)
    turns.run("h = view(path, pos=750_000, tokens=99).run('Async')")
    with path.open("ab") as file:
        file.write(b"the last line\n")
    turns.run()
    assert [job.kind for job in held.jobs] == ["render", "index"]
    rendering, index = (held.jobs[number].run() for number in (0, 1))
    held.put(held.jobs[1], index)
    held.put(held.jobs[0], rendering)
    turns.run()
    held.finish()
    turns.run()

    assert first(turns.namespace["h"].rendered.text).startswith("a.log · line 750000 of 800,001")


def test_an_index_does_not_take_the_difference_away_that_a_view_shows(tmp_path):
    path = written(tmp_path / "a.log", code())
    turns = Turns()
    turns.loop.graph.open_source = lambda target: target
    turns.namespace["source"] = opened(path)
    held = turns.loop.preparer = HeldJobs(turns.loop.ready)
    turns.run("h = view(source, lod=3).run()")
    with path.open("ab") as file:
        file.write(b"the last line\n")
    turns.run()
    held.finish()
    turns.run()

    assert "+the last line" in turns.namespace["h"].rendered.text
    assert held.jobs == []


def test_a_log_that_grows_keeps_its_index_and_one_that_is_begun_anew_does_not(tmp_path):
    path = written(tmp_path / "a.log", code())
    source = opened(path)
    render(source)
    source.accept(source.preparation().work(lambda: False, lambda part: None))
    with path.open("ab") as file:
        file.write(b"the last line\n")
    assert "line 800000 of 800,001" in first(render(source, pos="800000").text)
    assert source.preparation() is None
    written(path, b"new\n" + code())

    assert "~" in first(render(source, pos="750000").text)
    assert source.preparation() is not None


def test_a_large_file_that_is_looked_at_in_the_background_keeps_the_index_that_came_meanwhile(tmp_path):
    source = opened(written(tmp_path / "a.log", code()))
    render(source)
    twin = source.twin()
    source.accept(source.preparation().work(lambda: False, lambda part: None))
    render(twin, pos="3")
    source.absorb(twin)

    assert "lines 750000-" in first(render(source, pos="750000").text)
