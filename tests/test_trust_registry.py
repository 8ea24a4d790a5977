"""The user's word of trust: it is signed, it covers one content, and nothing else counts as one."""

from __future__ import annotations

import json
import os
import stat
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxkernel.store import signatures
from ctxkernel.store.regular_files import ForeignFileError, read_bounded, read_within
from ctxkernel.store.trust_registry import TrustRegistry, content_digest, trust_registry

posix = pytest.mark.skipif(os.name != "posix", reason="owners, modes, links and pipes of POSIX")
SUBJECT = content_digest(b"a file")


@pytest.fixture
def registry(tmp_path):
    home = tmp_path / "home"
    return TrustRegistry(home, signatures.load_signer(home))


def only_file(registry):
    (path,) = registry.folder.iterdir()
    return path


def test_a_word_is_found_again_until_it_is_revoked(registry):
    assert registry.word("turns", SUBJECT) is None
    assert registry.give("turns", SUBJECT, {"path": "/x/a.turns.json", "at": 1.5}) == ""
    again = TrustRegistry(registry.folder.parent, signatures.load_signer(registry.folder.parent))
    assert again.word("turns", SUBJECT) == {"path": "/x/a.turns.json", "at": 1.5}
    assert [(one.kind, one.subject, one.value["at"]) for one in again.words()] == [("turns", SUBJECT, 1.5)]
    assert again.revoke("turns", SUBJECT) == ""
    assert registry.word("turns", SUBJECT) is None
    assert registry.words() == []
    assert registry.revoke("turns", SUBJECT) == "", "revoking twice is no fault"


def test_a_word_holds_for_its_kind_and_subject_only(registry):
    registry.give("turns", SUBJECT, {})
    assert registry.word("settings", SUBJECT) is None
    assert registry.word("turns", content_digest(b"another")) is None
    assert registry.word("turns", SUBJECT) == {}


def test_a_later_word_replaces_the_earlier_one(registry):
    registry.give("session", "ab" * 8, {"seq": 1})
    registry.give("session", "ab" * 8, {"seq": 2})
    assert registry.word("session", "ab" * 8) == {"seq": 2}
    assert len(list(registry.folder.iterdir())) == 1


@posix
def test_the_folder_and_its_files_are_the_users_alone(registry):
    registry.give("turns", SUBJECT, {})
    assert stat.S_IMODE(registry.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(registry).stat().st_mode) == 0o600


@posix
def test_a_folder_that_others_may_read_is_closed_to_them(registry):
    registry.folder.mkdir(parents=True)
    registry.folder.chmod(0o777)
    assert registry.give("turns", SUBJECT, {}) == ""
    assert stat.S_IMODE(registry.folder.stat().st_mode) == 0o700


def test_a_word_of_another_user_does_not_count(registry, tmp_path):
    theirs = TrustRegistry(tmp_path / "theirs", signatures.load_signer(tmp_path / "theirs"))
    theirs.give("turns", SUBJECT, {})
    registry.folder.mkdir(parents=True)
    path = registry.folder / only_file(theirs).name
    path.write_bytes(only_file(theirs).read_bytes())
    assert registry.word("turns", SUBJECT) is None
    assert registry.words() == []


def test_a_word_under_the_name_of_another_does_not_count(registry):
    registry.give("turns", SUBJECT, {})
    content = only_file(registry).read_bytes()
    registry.give("turns", content_digest(b"x"), {})
    for path in registry.folder.iterdir():
        path.write_bytes(content)
    assert registry.word("turns", content_digest(b"x")) is None
    assert [one.subject for one in registry.words()] == [SUBJECT]


@pytest.mark.parametrize("field", ["kind", "subject", "value", "signature"])
@pytest.mark.parametrize("made", [None, 1, "", "turns", [], {}, {"at": 2}])
def test_a_changed_word_does_not_count(registry, field, made):
    registry.give("turns", SUBJECT, {"at": 1})
    path = only_file(registry)
    row = json.loads(path.read_text("ascii"))
    if row[field] == made:
        return
    path.write_text(json.dumps({**row, field: made}), "ascii")
    assert registry.word("turns", SUBJECT) is None
    assert registry.words() == []


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 60_000, b'{"kind":' + b"[" * 60_000, b" " * 100_000, b"1e999"],
)
def test_content_that_is_no_word_is_no_word(registry, content):
    registry.give("turns", SUBJECT, {})
    only_file(registry).write_bytes(content)
    assert registry.word("turns", SUBJECT) is None
    assert registry.words() == []


@given(st.data())
def test_a_flipped_byte_never_makes_another_word(tmp_path_factory, data):
    home = tmp_path_factory.mktemp("home", numbered=True)
    registry = TrustRegistry(home, signatures.load_signer(home))
    registry.give("turns", SUBJECT, {"at": 1, "path": "/a"})
    path = only_file(registry)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    assert registry.word("turns", SUBJECT) in (None, {"at": 1, "path": "/a"})


@posix
@pytest.mark.timeout(10)
@pytest.mark.parametrize("made", ["link", "pipe", "folder"])
def test_a_word_is_a_regular_file_of_its_own(registry, tmp_path, made):
    registry.give("turns", SUBJECT, {})
    path = only_file(registry)
    kept = tmp_path / "kept"
    path.rename(kept)
    if made == "link":
        path.symlink_to(kept)
    elif made == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert registry.word("turns", SUBJECT) is None
    assert registry.words() == []


@posix
def test_a_word_is_not_written_through_a_link(registry, tmp_path):
    registry.give("turns", SUBJECT, {"at": 1})
    path = only_file(registry)
    target = tmp_path / "target"
    target.write_text("mine")
    path.unlink()
    path.symlink_to(target)
    assert registry.give("turns", SUBJECT, {"at": 2}) == ""
    assert target.read_text() == "mine"
    assert registry.word("turns", SUBJECT) == {"at": 2}


def test_without_a_secret_nothing_is_trusted_and_the_reason_is_said(registry):
    registry.give("turns", SUBJECT, {})
    none = TrustRegistry(registry.folder.parent, signatures.Signer(None, "the secret cannot be used"))
    assert none.fault == "the secret cannot be used"
    assert none.word("turns", SUBJECT) is None
    assert none.words() == []
    assert "the secret cannot be used" in none.give("turns", "x", {})
    assert none.revoke("turns", SUBJECT) == "", "revoking needs no secret"
    assert registry.word("turns", SUBJECT) is None


@posix
def test_a_folder_that_cannot_be_written_is_a_text(tmp_path):
    home = tmp_path / "home"
    signer = signatures.load_signer(home)
    (home / "trusted").write_text("no folder")
    found = TrustRegistry(home, signer).give("turns", SUBJECT, {})
    assert str(home / "trusted") in found


@pytest.mark.parametrize("value", [{"x": float("nan")}, {"x": object()}, {"x": "y" * 100_000}])
def test_a_value_that_cannot_be_stored_is_a_text(registry, value):
    assert "cannot be trusted" in registry.give("turns", SUBJECT, value)
    assert registry.words() == []


@given(
    st.text(max_size=40),
    st.dictionaries(
        st.text(max_size=5),
        st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        max_size=3,
    ),
)
def test_every_subject_and_value_comes_back(tmp_path_factory, subject, value):
    home = tmp_path_factory.mktemp("home", numbered=True)
    registry = TrustRegistry(home, signatures.load_signer(home))
    assert registry.give("session", subject, value) == ""
    assert registry.word("session", subject) == value
    assert only_file(registry).parent == registry.folder


def test_words_given_at_once_leave_one_whole_word(registry):
    threads = [threading.Thread(target=registry.give, args=("turns", SUBJECT, {"n": n})) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert registry.word("turns", SUBJECT)["n"] in range(8)
    assert len(list(registry.folder.iterdir())) == 1


def test_the_registry_lies_in_the_users_folder(tmp_path):
    found = trust_registry({"CTXKERNEL_HOME": str(tmp_path)})
    assert found.folder.parent == tmp_path
    assert found.fault == ""


# -- reading a file that may be a stranger's -------------------------------------------------------


@posix
@pytest.mark.timeout(10)
def test_a_file_beside_a_notebook_is_read_if_it_is_regular_and_in_the_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside").write_text("x")
    (folder / "inside").write_text("y")
    (folder / "out").symlink_to("../outside")
    (folder / "in").symlink_to("inside")
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    assert read_within(folder / "in", 1, folder) == read_within(folder / "inside", 1, folder) == b"y"
    with pytest.raises(ForeignFileError, match="larger than 0 bytes"):
        read_within(folder / "in", 0, folder)
    with pytest.raises(ForeignFileError, match="out of its folder"):
        read_within(folder / "out", 9, folder)
    for name in ("loop", "zero", "pipe", "", "none"):
        with pytest.raises(OSError):
            read_within(folder / name, 9, folder)
    with pytest.raises(ForeignFileError, match="symbolic link"):
        read_bounded(folder / "in", 9)
