"""Open file objects and compressed files: what they hold, wherever the user reads."""
# ruff: noqa: SIM115 -- the tests close what a row opens

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import tempfile
import zipfile
from typing import Any

import pytest

from ctxkernel.core.errors import BadTarget
from ctxkernel.sources import open_source
from ctxkernel.testing.renderings import render, written

TEXT = "def f():\n    return 1\n" * 3


def gzipped(folder: Any, data: bytes) -> Any:
    return written(folder / "a.py.gz", gzip.compress(data))


OPENED = [
    ("text", lambda folder: written(folder / "a.py", TEXT).open()),
    ("binary", lambda folder: written(folder / "a.py", TEXT).open("rb")),
    ("unbuffered", lambda folder: written(folder / "a.py", TEXT).open("rb", buffering=0)),
    ("gzip", lambda folder: gzip.open(gzipped(folder, TEXT.encode()))),
    ("gzip as text", lambda folder: gzip.open(gzipped(folder, TEXT.encode()), "rt")),
    ("bz2", lambda folder: bz2.open(written(folder / "a.bz2", bz2.compress(TEXT.encode())))),
    ("xz as text", lambda folder: lzma.open(written(folder / "a.xz", lzma.compress(TEXT.encode())), "rt")),
    ("gzip of another name", lambda folder: gzip.open(written(folder / "a", gzip.compress(TEXT.encode())))),
    ("BytesIO", lambda folder: io.BytesIO(TEXT.encode())),
    ("StringIO", lambda folder: io.StringIO(TEXT)),
    ("gzip in memory", lambda folder: gzip.open(io.BytesIO(gzip.compress(TEXT.encode())))),
    ("text in memory", lambda folder: io.TextIOWrapper(io.BytesIO(TEXT.encode()))),
]


@pytest.mark.parametrize(("name", "make"), OPENED, ids=[row[0] for row in OPENED])
def test_an_open_file_shows_what_it_holds_and_stays_where_it_was_read(name: str, make: Any, tmp_path):
    with make(tmp_path) as file:
        file.readline()
        place = file.tell()

        source = open_source(file, namespace_name="foo")
        shown = [render(source, lod).text for lod in (0, 1, 2, 3)]
        stamp = source.stamp()

        assert shown[0].split("\n")[1:] == TEXT.splitlines()
        assert "def f()" in shown[1]
        assert file.tell() == place
        assert file.readline().strip() in ("return 1", b"return 1")
        assert source.stamp() == stamp


@pytest.mark.skipif(sys.platform == "win32", reason="an open file keeps its path there")
def test_a_file_whose_path_is_gone_is_read_by_its_descriptor(tmp_path):
    file = written(tmp_path / "a.txt", "held\n").open("r+")
    (tmp_path / "a.txt").unlink()
    source = open_source(file, namespace_name="foo")

    assert render(source).text == "foo · 1 line · 5 B\nheld"
    before = source.stamp()
    file.seek(0, os.SEEK_END)
    file.write("more\n")
    file.flush()
    assert source.stamp() != before
    assert render(source).text.endswith("\nheld\nmore")
    assert file.tell() == 10
    file.close()
    assert render(source).text == "foo · closed"


@pytest.mark.skipif(sys.platform == "win32", reason="has a path there")
def test_a_temporary_file_without_a_name_is_read():
    with tempfile.TemporaryFile("w+") as file:
        file.write("temporary\n")
        file.flush()

        assert render(open_source(file)).text.endswith("\ntemporary")


def test_a_spooled_file_is_read_in_memory():
    with tempfile.SpooledTemporaryFile() as file:
        file.write(b"spooled")

        assert render(open_source(file)).text.endswith("\nspooled")


def test_a_buffer_is_followed_and_never_locked():
    buffer = io.BytesIO(b"one\ntwo\n")
    source = open_source(buffer, namespace_name="b")
    before = render(source)
    stamp = source.stamp()
    buffer.write(b"111")  # a buffer that somebody still looked into could not grow
    buffer.seek(0, os.SEEK_END)
    buffer.write(b"three" * 100)

    assert source.stamp() != stamp
    assert "-one\n+111\n two\n" in render(source, 3, basis=before.basis).text
    buffer.close()
    assert render(source).notes == ("closed",)


def test_a_closed_file_is_looked_at_by_its_path(tmp_path):
    with written(tmp_path / "a.txt", "there\n").open() as file:
        pass

    assert render(open_source(file)).text.endswith("\nthere")


def zipped(folder: Any) -> Any:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr("m.txt", "inside")
    return zipfile.ZipFile(folder / "a.zip").open("m.txt")


@pytest.mark.parametrize("make", [lambda _: os.fdopen(os.pipe()[0]), zipped], ids=["a pipe", "a member of an archive"])
def test_a_stream_is_refused_with_the_next_move(make: Any, tmp_path):
    with make(tmp_path) as stream, pytest.raises(BadTarget, match=r"view\(io.StringIO\(text\)\)"):
        open_source(stream)


def test_a_compressed_file_is_the_text_in_it_and_its_name_says_the_language(tmp_path):
    lines = render(gzipped(tmp_path, TEXT.encode()), 1).text.split("\n")

    assert lines[0].startswith("a.py.gz · 6 lines · 66 B · ")
    assert lines[1] == "0 def f()"


def test_a_bomb_is_decompressed_as_far_as_it_is_shown(tmp_path):
    file = written(tmp_path / "a.txt.gz", gzip.compress(b"line\n" * 4_000_000))

    rendered = render(file, tokens=100)

    assert "its first 4.2 MB decompressed" in rendered.notes


BROKEN = [
    ("cut off", gzip.compress(os.urandom(200_000).hex().encode())[:-90_000], "broken after "),
    ("no gzip", b"just text\n", "just text"),
    ("damaged", b"\x1f\x8b\x08\0\0\0damaged", "binary: broken gzip data"),
    ("empty", b"", "empty"),
]


@pytest.mark.parametrize(("name", "data", "said"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_broken_compressed_file_is_shown_as_far_as_it_can_be_read(name: str, data: bytes, said: str, tmp_path):
    assert said in render(written(tmp_path / "a.gz", data)).text
