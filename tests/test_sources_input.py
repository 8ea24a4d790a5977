"""Whatever a path can lead to: odd texts, binaries, special files, huge files, directories, nothing at all."""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from ctxkernel.core.errors import BadPolicy, BadTarget
from ctxkernel.core.ports import All, RenderRequest
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources import open_source
from ctxkernel.sources.base import file_reader
from ctxkernel.testing.renderings import opened, render, written

CLASS = "class C{i}(Base):\n" + 4 * (
    "    def method(self, a: int, *, b: str = 'x') -> dict[str, int]:\n"
    '        """Return it."""\n'
    "        return {b: sum(k for k in range(a) if k % 2)}\n"
    "\n"
)

TEXTS = [
    (b"\xef\xbb\xbfa\nb\n", "a\nb", "utf-8 with BOM"),
    ("a\nb\n".encode("utf-16"), "a\nb", "utf-16-le with BOM"),
    ("aa\nbb\n".encode("utf-16-be"), "aa\nbb", "utf-16-be"),
    (b"a\r\nb\r\n", "a\nb", "CRLF line ends"),
    (b"a\r\nb\nc\rd", "a\nb\nc\nd", "mixed line ends: 1 CRLF, 1 LF, 1 CR"),
    (b"caf\xe9\nb\n", "caf\xe9\nb", "windows-1252, as it seems"),
    (b"\x93Stra\xdfe\x94 \x96 5 \x80\n", "\u201cStra\xdfe\u201d \u2013 5 \u20ac", "windows-1252, as it seems"),
    (b"caf\xc3\xa9 or caf\xe9\nb\n", "caf\xe9 or caf\ufffd\nb", "invalid utf-8: shown with U+FFFD"),
    (b"some bytes \xfe\xff\n", "some bytes \ufffd\ufffd", "invalid utf-8: shown with U+FFFD"),
    ("\u041f\u0440\u0438\u0432\u0435\u0442".encode("cp1251"), "\ufffd" * 6, "invalid utf-8: shown with U+FFFD"),
    (b"a" * 9000 + b"\n\0\n", "\u2400", "NUL bytes: shown as U+2400"),
]


@pytest.mark.parametrize(("data", "shown", "note"), TEXTS)
def test_an_unusual_text_is_shown_and_remarked_on(tmp_path, data: bytes, shown: str, note: str):
    rendered = render(written(tmp_path / "a.txt", data), tokens=All)

    assert rendered.text.endswith("\n" + shown)
    assert note in rendered.notes
    assert note in rendered.text


def test_an_encoding_cookie_is_believed(tmp_path):
    file = written(tmp_path / "a.py", b"# -*- coding: latin-1 -*-\nname = 'caf\xe9'\n")

    assert "café" in render(file).text


def test_an_empty_file_says_so(tmp_path):
    file = written(tmp_path / "a.txt", b"")

    assert render(file).text.endswith("a.txt · empty · 0 B")
    assert all(render(file, lod).text for lod in (1, 2, 3))


@pytest.mark.parametrize(("data", "kind"), [(b"\x89PNG\r\n\x1a\n\0\0", "PNG image"), (b"\1\2\0\3", "binary data (.x)")])
def test_a_binary_is_named_not_dumped(tmp_path, data: bytes, kind: str):
    file = written(tmp_path / "a.x", data * 1000)

    rendered = render(file)

    assert f"binary: {kind}, " in rendered.text.splitlines()[0]
    assert len(rendered.text.splitlines()) == 5
    assert rendered.notes == ("binary",)
    assert render(file, 3, basis=rendered.basis).text.endswith(
        f"{kind}, {rendered.text.splitlines()[0].split(', ')[1]}"
    )


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


SPECIAL = [(make_fifo, "fifo"), (make_socket, "socket"), (make_loop, "symlink loop")]


@pytest.mark.skipif(sys.platform == "win32", reason="no such files")
@pytest.mark.parametrize(("make", "note"), SPECIAL, ids=[row[1] for row in SPECIAL])
def test_what_is_no_file_is_one_line_at_once(tmp_path, monkeypatch, make, note: str):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    make(Path("special"))
    started = time.monotonic()

    for lod in range(4):
        rendered = render("special", lod)

        assert rendered.text == f"special · {note}"
        assert rendered.notes == (note,)
    assert time.monotonic() - started < 5


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
def test_an_endless_device_is_not_read():
    assert render("/dev/zero").text == "/dev/zero · character device"


def test_a_file_that_may_not_be_read_says_so(tmp_path, monkeypatch):
    file = written(tmp_path / "a.txt", "secret")

    def refuse(*args: object) -> int:
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr(file_reader.os, "open", refuse)

    assert render(file).notes == ("permission denied",)


def test_a_file_that_vanishes_is_missing_and_its_stamp_differs(tmp_path):
    file = written(tmp_path / "a.txt", "a")
    source = opened(file)
    before = source.stamp()
    file.unlink()

    assert render(source).text.endswith("a.txt · missing")
    assert render(source).notes == ("missing",)
    assert source.stamp() not in ("", before)


def test_a_file_that_shrinks_while_it_is_read_is_shown_as_far_as_it_was_read(tmp_path, monkeypatch):
    file = written(tmp_path / "a.txt", "line\n" * 10_000)
    real = file_reader.read_at

    def shrinking(descriptor: int, offset: int, count: int) -> bytes:
        data = real(descriptor, offset, count)
        os.truncate(file, 100)
        return data

    monkeypatch.setattr(file_reader, "read_at", shrinking)
    rendered = render(file)

    assert "changed while it was read" in rendered.notes
    assert "\nline\nline" in rendered.text


@pytest.fixture(scope="module")
def huge(tmp_path_factory) -> Path:
    """A 2 GB file: 100,000 lines, and a hole."""
    path = tmp_path_factory.mktemp("huge") / "run.log"
    with path.open("wb") as file:
        file.writelines(b"2024-01-01 INFO line %d\n" % i for i in range(100_000))
        file.truncate(2_000_000_000)
    return path


@pytest.mark.parametrize("lod", [0, 1, 2, 3])
def test_a_huge_file_is_a_bounded_excerpt_at_once(huge: Path, lod: int):
    source = opened(huge)
    tracemalloc.start()
    started = time.process_time()

    rendered = render(source, lod)

    elapsed, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "excerpt of 2.0 GB" in rendered.notes
    assert "INFO line 0" in rendered.text
    assert elapsed < 3, "seconds of CPU; well under 0.1 without tracing"
    assert peak < 64e6


def test_positions_in_a_huge_file_are_exact_as_far_as_it_was_scanned(huge: Path):
    source = opened(huge)

    near = render(source, pos="90000", tokens=200)
    token = render(source, pos="@23", tokens=144).text
    shifted = render(source, pos="@23+2", tokens=144).text
    far = render(source, pos="5000000", tokens=200)
    past = render(source, pos="@999999999999", tokens=200)

    assert "lines 90000-" in near.text
    assert "\n2024-01-01 INFO line 90000\n" in near.text
    assert near.next_pos is not None
    assert int(near.next_pos) > 90000
    assert "lines 1-" in token
    assert "\n2024-01-01 INFO line 1\n" in token
    assert "\n2024-01-01 INFO line 3\n" in shifted
    assert "line ~" in far.text
    assert "past the end" in past.text


def test_a_line_of_a_gigabyte_is_shown_by_its_columns(tmp_path):
    file = tmp_path / "one.txt"
    with file.open("wb") as out:
        out.write(b"abcdefgh" * 2048)
        out.truncate(1_000_000_000)
    source = opened(file)

    first = render(source, tokens=124)
    second = render(source, pos=first.next_pos or "", tokens=124)
    column = render(source, pos="0:8", tokens=100)

    assert first.text.split("\n")[1].startswith("abcdefghabc")
    shown = first.text.split("\n")[1] + second.text.split("\n")[1]
    assert shown == ("abcdefgh" * 2048)[: len(shown)]
    assert "from column 8" in column.text


def test_a_large_log_that_grew_shows_what_was_appended(tmp_path):
    file = written(tmp_path / "a.log", b"x" * 99 + b"\n")
    with file.open("ab") as out:
        out.write((b"y" * 99 + b"\n") * 60_000)
    source = opened(file)
    before = render(source)
    with file.open("ab") as out:
        out.write(b"new one\nnew two\n")

    assert re.search(
        r"grew by 16 B to 6.0 MB; appended:\n\+new one\n\+new two$", render(source, 3, basis=before.basis).text
    )


def test_an_unchanged_file_costs_a_stat_and_a_large_module_little(tmp_path):
    file = written(tmp_path / "big.py", CLASS * 600)
    assert CLASS.count("\n") * 600 > 10_000
    source = opened(file)

    started = time.process_time()
    render(source, 1)
    first = time.process_time() - started
    started = time.process_time()
    for _ in range(100):
        source.render(RenderRequest(1, "0", 2000))
    again = (time.process_time() - started) / 100

    assert first < 0.6, "0.1 s on an idle core"
    assert again < 0.002


def test_a_stamp_differs_when_the_file_does(tmp_path):
    file = written(tmp_path / "a.txt", "one")
    source = opened(file)
    stamps = {source.stamp(), source.stamp()}
    written(file, "two")
    os.utime(file, ns=(1, 1))

    assert len(stamps | {source.stamp()}) == 2


# --- directories


def test_a_directory_is_a_sorted_tree_with_sizes(tmp_path):
    for name in ("b/x.py", "b/y/z.txt", "a.csv", ".git/config", "b/__pycache__/x.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        written(tmp_path / name, "12345")
    source = open_source(tmp_path)

    here, tree, counts = (render(source, lod).text.split("\n")[1:] for lod in (0, 1, 2))

    assert here == [".git/ (not entered)", "a.csv · 5 B", "b/"]
    inner = ["  x.py · 5 B", "  y/", "    z.txt · 5 B"]
    assert tree == [".git/ (not entered)", "a.csv · 5 B", "b/", *inner]
    assert "- .csv: 1 file, 5 B" in counts


def test_caches_are_counted_not_listed_and_can_be_viewed(tmp_path):
    for name in ("a/__pycache__/x.pyc", "b/__pycache__/y.pyc", "b/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        written(tmp_path / name, "12345")
    source = open_source(tmp_path)

    text = render(source, 1).text

    assert text.split("\n")[0].endswith(" · 1 file · 5 B · 2 __pycache__ not listed")
    assert text.split("\n")[1:] == ["a/", "b/", "  y.py · 5 B"]
    assert render(tmp_path / "a" / "__pycache__").text.endswith("\nx.pyc · 5 B")
    with pytest.raises(BadPolicy, match="a cache or lies too deep; view it by its own path"):
        render(source, pos="a/__pycache__")


def test_a_directory_shows_what_came_went_and_changed(tmp_path):
    written(tmp_path / "a", "1")
    written(tmp_path / "b", "1")
    source = open_source(tmp_path)
    before = render(source)
    stamp = source.stamp()
    (tmp_path / "a").unlink()
    written(tmp_path / "b", "12")
    written(tmp_path / "c", "1")

    lines = render(source, 3, basis=before.basis).text.split("\n")[1:]

    assert lines == ["- a", "~ b · 1 B → 2 B", "+ c · 1 B"]
    assert source.stamp() != stamp


def test_the_stamp_of_a_directory_differs_after_any_change_in_it_and_not_after_a_look(tmp_path):
    (tmp_path / "sub").mkdir()
    written(tmp_path / "sub" / "a", "1")
    source = open_source(tmp_path)
    stamps = [source.stamp()]
    for change in (
        lambda: written(tmp_path / "sub" / "a", "12"),
        lambda: written(tmp_path / "sub" / "b", "1"),
        (tmp_path / "sub" / "b").unlink,
        lambda: (tmp_path / "sub").rename(tmp_path / "bus"),
    ):
        change()
        stamps.append(source.stamp())
        render(source)
        assert source.stamp() == stamps[-1]

    assert len(set(stamps)) == 5


# --- opening


def test_a_path_that_is_not_there_is_refused_with_names_like_it(tmp_path, monkeypatch):
    written(tmp_path / "residuals.csv", "a")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BadTarget) as caught:
        open_source("data/residual.csv")
    assert "there is no 'data' in" in str(caught.value)
    with pytest.raises(BadTarget) as caught:
        open_source("residual.csv")
    assert f"'residual.csv'; the working directory is {os.getcwd()}. Is it residuals.csv?" in str(caught.value)


REFUSED = [
    ("file://elsewhere/a", "a file of another machine"),
    ("nul\0byte", "is no path; view(io.StringIO(text))"),
]


@pytest.mark.parametrize(("target", "said"), REFUSED, ids=["file", "nul"])
def test_what_cannot_be_opened_is_refused_with_the_next_move(target: str, said: str):
    with pytest.raises(BadTarget, match=re.escape(said)):
        open_source(target)


def test_a_uri_without_fsspec_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)

    with pytest.raises(BadTarget, match=r"https: is read by fsspec.*pip install \"jupyter-ctxkernel\[uris\]\""):
        open_source("https://example.org/a.csv")


def test_paths_are_found_however_they_are_given(tmp_path, monkeypatch):
    file = written(tmp_path / "a b.txt", "found\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with file.open() as handle:
        sources = [
            open_source(t) for t in (str(file), file, os.fsencode(file).decode(), "~/a b.txt", file.as_uri(), handle)
        ]
    sources.append(open_source("a b.txt"))
    monkeypatch.chdir("/")

    assert all(render(source).text.endswith("\nfound") for source in sources)
    assert sources[-1].label == "a b.txt"


@pytest.mark.parametrize("lod", [1, 2])
def test_the_cost_of_a_large_module_grows_no_faster_than_its_size(tmp_path, lod):
    def spent(classes: int) -> float:
        text = "".join(f"class C{at}:\n    def m(self, a):\n        return a\n\n" for at in range(classes))
        path, times = written(tmp_path / f"m{classes}.py", text), []
        for _ in range(2):
            started = time.process_time()
            render(path, lod)
            times.append(time.process_time() - started)
        return min(times)

    assert spent(20_000) < 8 * spent(5_000)


def test_the_tokens_of_a_long_text_are_estimated_from_parts_of_it(tmp_path):
    text = "".join(f"line {at} of a text that goes on\n" for at in range(20_000)) + "0123456789 " * 40_000

    cut = render(written(tmp_path / "a.txt", text), 0, tokens=100).cut_tokens

    assert abs(cut / count_tokens(text) - 1) < 0.1
