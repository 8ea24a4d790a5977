"""URIs as sources, against a real server on the loopback interface and fsspec's file system in memory."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from ctxkernel.core.errors import BadTarget
from ctxkernel.core.settings import Settings
from ctxkernel.sources import open_source
from ctxkernel.sources.files import uris
from ctxkernel.sources.files.uris import shown_uri
from ctxkernel.sources.registry import scheme_of
from ctxkernel.testing.fake_loop import Turns
from ctxkernel.testing.renderings import opened, render, written

fsspec = import_module("fsspec")
CSV = b"a,b\n1,2\n"


class Web:
    """A server whose pages a test sets."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[bytes, str]] = {}
        """Path → (body, ETag)."""
        self.asked: list[str] = []
        self.release = threading.Event()
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_HEAD(self) -> None:
                web.answer(self, body=False)

            def do_GET(self) -> None:
                web.answer(self, body=True)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.at = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: Any, body: bool) -> None:
        path = request.path.partition("?")[0]
        self.asked.append(f"{request.command} {path}")
        if path == "/hangs":
            self.release.wait(30)
            return
        if path == "/broken":
            request.send_error(500)
            return
        data, tag = self.pages.get(path, (b"", ""))
        if path not in self.pages and path != "/endless":
            request.send_error(404)
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(data) or 10**9))
        if tag:
            request.send_header("ETag", tag)
        request.end_headers()
        if body and path == "/endless":
            request.wfile.write(b"line\n" * 10)
            self.release.wait(30)
        elif body:
            request.wfile.write(data)

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(uris, "CHECK_SECONDS", 0.0)
    server = Web()
    yield server
    server.close()


def source(uri: str, seconds: float = 20.0) -> Any:
    return open_source(uri, settings=Settings(fetch_seconds=seconds))


def until(holds: Callable[[], bool]) -> bool:
    """Wait for a background look; whether it came to hold."""
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_a_uri_is_shown_as_the_file_that_it_leads_to(web: Web):
    web.pages["/a.csv"] = CSV, '"1"'
    web.pages["/a.ipynb"] = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode(), ""

    assert render(source(f"{web.at}/a.csv?v=1")).text == f"{web.at}/a.csv?v=1 · 2 lines · 8 B\na,b\n1,2"
    assert "a: int, 1 … 1" in render(source(f"{web.at}/a.csv"), 1).text
    assert "no cells" in render(source(f"{web.at}/a.ipynb"), 1).text


def test_a_position_is_found_in_what_was_fetched(web: Web):
    web.pages["/a.py"] = b"x = 1\n\n\ndef scale():\n    return 2\n", '"1"'

    assert render(source(f"{web.at}/a.py"), pos="scale").text.endswith("\ndef scale():\n    return 2")
    assert render(source(f"{web.at}/a.py"), pos="/return/").text.endswith("\n    return 2")


def test_a_change_is_found_in_the_background_and_shown_as_a_diff(web: Web):
    web.pages["/a.csv"] = CSV, '"1"'
    view = source(f"{web.at}/a.csv")
    before = render(view)
    stamp = view.stamp()
    web.pages["/a.csv"] = CSV + b"3,4\n", '"2"'

    assert until(lambda: view.stamp() != stamp)
    assert render(view, 3, basis=before.basis).text.endswith("@@ -1,2 +1,3 @@\n a,b\n 1,2\n+3,4")


def test_an_unchanged_target_is_not_fetched_again(web: Web):
    web.pages["/a.csv"] = CSV, '"1"'
    view = source(f"{web.at}/a.csv")
    render(view)
    stamp = view.stamp()
    looks = web.asked.count("HEAD /a.csv")

    assert until(lambda: bool(view.stamp()) and web.asked.count("HEAD /a.csv") > looks + 1)
    assert view.stamp() == stamp
    assert web.asked.count("GET /a.csv") == 1


def test_without_a_validator_the_content_itself_is_compared(web: Web):
    web.pages["/a.csv"] = CSV, ""
    view = source(f"{web.at}/a.csv")
    render(view)
    stamp = view.stamp()
    assert until(lambda: bool(view.stamp()) and web.asked.count("GET /a.csv") > 2)
    assert view.stamp() == stamp, "fetched anew, and the same"

    web.pages["/a.csv"] = b"a,b\n1,3\n", ""

    assert until(lambda: view.stamp() != stamp)
    assert render(view).text.endswith("\n1,3")


def test_a_stamp_never_waits_for_the_server(web: Web):
    """A tick that asked the server itself would hold up every cell."""
    view = source(f"{web.at}/hangs", seconds=30)
    began = time.monotonic()

    stamps = {view.stamp() for _ in range(100)}

    assert time.monotonic() - began < 10, "the server answers never"
    assert stamps == {"0 "}


def test_a_server_that_hangs_is_a_line_and_costs_the_seconds_once(web: Web):
    view = source(f"{web.at}/hangs", seconds=0.3)

    rendered = render(view)
    began = time.monotonic()
    again = [render(view, lod).text for lod in (0, 1, 2)]

    assert rendered.text == f"{web.at}/hangs · timed out after 0.3 s; h.refresh() tries again"
    assert again == [rendered.text] * 3
    assert time.monotonic() - began < 10


def test_a_body_that_does_not_end_is_shown_as_far_as_it_came(web: Web):
    view = source(f"{web.at}/endless", seconds=0.5)

    assert until(lambda: "its first 50 B of 1.0 GB, after 0.5 s" in render(view).text)
    assert render(view).text.endswith("\nline" * 10)


FAULTS = [
    ("404", "{at}/none", "missing"),
    ("500", "{at}/broken", "HTTP 500 Internal Server Error; h.refresh() tries again"),
    ("refused", "http://127.0.0.1:1/x", "ClientConnectorError: Cannot connect to host 127.0.0.1:1"),
    ("no such name", "http://nowhere.invalid/x", "h.refresh() tries again"),
]


@pytest.mark.parametrize(("name", "uri", "said"), FAULTS, ids=[row[0] for row in FAULTS])
def test_what_cannot_be_reached_is_a_line(web: Web, name: str, uri: str, said: str):
    for lod in range(4):
        text = render(source(uri.format(at=web.at)), lod).text

        assert said in text
        assert "\n" not in text


def test_what_was_fetched_stays_where_the_server_fails_later(web: Web):
    web.pages["/a.csv"] = CSV, '"1"'
    view = source(f"{web.at}/a.csv")
    render(view)
    web.close()

    view.fetch()
    text = render(view).text

    assert "at the last look; below is what was fetched before; h.refresh() tries again]\na,b\n1,2" in text


def test_a_target_that_went_away_is_missing(web: Web):
    web.pages["/a.csv"] = CSV, '"1"'
    view = source(f"{web.at}/a.csv")
    render(view)
    del web.pages["/a.csv"]

    view.fetch()

    assert render(view).text == f"{web.at}/a.csv · missing"


def test_a_refresh_asks_the_server_and_an_idle_tick_does_not_wait(web: Web, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(uris, "CHECK_SECONDS", 10**9)
    web.pages["/a.csv"] = CSV, '"1"'
    turns = Turns()
    turns.loop.graph.open_source = source
    turns.run(f"h = view('{web.at}/a.csv').run()")
    turns.run()
    web.pages["/a.csv"] = b"a,b\n1,9\n", '"2"'

    asked = len(web.asked)
    turns.run()
    assert len(web.asked) == asked
    assert "1,2" in turns.namespace["h"].rendered.text
    turns.run("h.refresh()")
    assert "1,9" in turns.namespace["h"].rendered.text


def test_more_than_is_fetched_is_said(web: Web, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(uris, "MOST_BYTES", 1000)
    web.pages["/a.txt"] = b"line\n" * 1000, '"1"'

    text = render(source(f"{web.at}/a.txt"), tokens=104).text

    assert text.startswith(f"{web.at}/a.txt (its first 1.0 kB of 5.0 kB) · line")


def test_files_in_memory_and_folders_are_read(web: Web):
    memory = fsspec.filesystem("memory")
    memory.pipe({"/folder/a.json": b'{"a": [1, 2]}', "/folder/sub/b.txt": b"b"})
    view = source("memory://folder/a.json")
    listed = render(source("memory://folder"))

    assert "a: array, 2 items of number" in render(view, 1).text
    assert listed.text.split("\n")[1:] == ["a.json · 13 B", "sub/"]
    memory.pipe("/folder/a.json", b"[]")
    view.fetch()
    assert render(view).text.endswith("\n[]")


SHOWN = [
    ("https://user:pw@host/a?x=1", "https://[masked]@host/a?x=1"),
    ("https://ghp_0123456789abcdefghij@host/a", "https://[masked]@host/a"),
    ("https://h/a?token=abc&x=1#y", "https://h/a?token=[masked]&x=1#y"),
    ("https://h/a?X-Amz-Signature=abc&X-Amz-Credential=d%2F&X-Amz-Date=1", "https://h/a?X-Amz-Signature=[masked]&X-Amz-Credential=[masked]&X-Amz-Date=1"),
    ("https://a.blob.net/c?sv=1&sig=abc%3D", "https://a.blob.net/c?sv=1&sig=[masked]"),
    ("s3://bucket/key@2.csv", "s3://bucket/key@2.csv"),
]  # fmt: skip


@pytest.mark.parametrize(("uri", "shown"), SHOWN, ids=[row[1] for row in SHOWN])
def test_the_credentials_of_a_uri_are_not_shown(uri: str, shown: str):
    assert shown_uri(uri) == shown


def test_no_credential_gets_into_a_label_an_error_or_what_is_stored():
    view = source("http://user:hunter2@127.0.0.1:1/x?token=hunter2")
    said = [view.label, view.spec, *view.given_label[:1], render(view).text, *render(view).notes]

    assert "hunter2" not in " ".join(said)
    with pytest.raises(BadTarget, match="its credentials were not kept; view it again with them"):
        source(view.spec)


REFUSED = [
    ("unknown://x", "Protocol not known: unknown"),
    ("oci://token:hunter2@x/y", "cannot be read"),
]


@pytest.mark.parametrize(("uri", "said"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_uri_that_nothing_reads_is_refused_with_the_next_move(uri: str, said: str):
    with pytest.raises(BadTarget) as caught:
        source(uri)

    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_copies_are_removed(web: Web, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(uris, "_folder", str(tmp_path))
    web.pages["/a.csv"] = CSV, ""
    view = source(f"{web.at}/a.csv")
    render(view)
    web.pages["/a.csv"] = b"new", ""
    view.fetch()
    render(view)

    assert len(list(tmp_path.iterdir())) == 1
    del view
    assert until(lambda: not list(tmp_path.iterdir()))


def test_a_copy_that_was_being_fetched_when_its_view_was_deleted_is_removed(web: Web, tmp_path, monkeypatch):
    monkeypatch.setattr(uris, "_folder", str(tmp_path))
    for at in range(10):
        web.pages["/a.csv"] = b"%d" % at, ""
        view = source(f"{web.at}/a.csv")
        render(view)
        render(view)  # begins to look again
        del view

    assert until(lambda: not list(tmp_path.iterdir()))


def test_a_path_with_a_colon_is_a_path(tmp_path):
    assert scheme_of("C:/data/x") == scheme_of("a:b") == scheme_of("C://x") == ""
    assert render(opened(written(tmp_path / "a.txt", "found"))).text.endswith("\nfound")
