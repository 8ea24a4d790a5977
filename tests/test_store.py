"""The session on disk: what is read back is what the kernel had. (What goes wrong: `test_store_faults.py`.)"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
from command_line import ctxkernel
from hypothesis import given, settings
from hypothesis import strategies as st
from scale import examples

from ctxkernel.core.errors import StoreError
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import (
    Artifact,
    ChangeInfo,
    Cost,
    ExceptionInfo,
    Execution,
    NamespaceDiff,
    Statement,
    TypeInfo,
)
from ctxkernel.core.timeline_events import Delta, MethodCalled, NodeChanged, StatementExecuted
from ctxkernel.core.timeline_json import execution_to_json, statement_to_json
from ctxkernel.core.turn_values import DeltaItem, HandleState, TurnResult
from ctxkernel.history.events import UserQuestion
from ctxkernel.projection.engine import ProjectionEngine
from ctxkernel.store.log import schema
from ctxkernel.store.log.location import belongs, notebook_name, session_path
from ctxkernel.store.log.newest_session import newest_session
from ctxkernel.store.log.row_masking import unmasked
from ctxkernel.store.log.rows import compress, restore
from ctxkernel.store.log.session import SessionReader, SessionStore
from ctxkernel.store.log.session_check import verify
from ctxkernel.testing import FakeSource, Turns
from ctxkernel.testing.fake_loop import count_words

NOTEBOOK = "note.ipynb"


class Recorded:
    """A loop and the store of it, with real projections."""

    def __init__(self, folder: Path, **opened):
        self.turns = Turns()
        self.loop = self.turns.loop
        self.loop._projector = ProjectionEngine(Settings(), count_words)
        path = session_path(NOTEBOOK, {}, folder)
        self.store = SessionStore.open(path, now=lambda: 900.0, notebook=NOTEBOOK, **opened)
        self.loop.log.start_after(self.store.last_index)
        self._end, self.loop.end = self.loop.end, self._ended
        self.results: list[TurnResult] = []
        self.notices: list[str] = []

    def begin(self, result: TurnResult) -> None:
        execution = result.execution
        running = Execution(
            execution.execution_id, execution.statement_id, execution.parent_execution_id, execution.started_at
        )
        self._note(self.store.begin(result.statement, running, result.outside))

    def _ended(self, *given) -> TurnResult:
        self.results.append(self._end(*given))
        return self.results[-1]

    def run(self, code: str = "pass", **outcome) -> TurnResult:
        """Run a cell and store its turn; a cell that raises ends its turn all the same."""
        with contextlib.suppress(Exception):  # of the cell
            self.turns.run(code, **outcome)
        result = self.results[-1]
        self.begin(result)
        self._note(self.store.end(result))
        return result

    def late(self, execution_id: str, stream: str, text: str) -> None:
        self.loop.late(execution_id, stream, text)
        self._note(self.store.late(execution_id, stream, text))

    def _note(self, notice: str | None) -> None:
        if notice:
            self.notices.append(notice)

    @property
    def log(self):
        """The live log, as the reader gives it."""
        return [(one, self.loop.log.executions(one.statement_id)) for one in self.loop.log]

    def reader(self) -> SessionReader:
        return SessionReader(self.store.path)


@pytest.fixture
def recorded(tmp_path):
    made = Recorded(tmp_path)
    yield made
    made.store.close()


def statement(index: int = 1, source: str = "pass", **more) -> tuple[Statement, Execution]:
    return (
        Statement(f"s{index}", index, float(index), source, **more),
        Execution(f"s{index}.1", f"s{index}", None, float(index)),
    )


def turn(index: int = 1, source: str = "pass", handles=(), **more) -> TurnResult:
    made, running = statement(index, source)
    ended = dataclasses.replace(running, **{"ended_at": index + 0.5, "status": "ok", **more})
    return TurnResult(index, made, ended, tuple(handles), (), ended.events)


def write(store: SessionStore, result: TurnResult) -> list[str | None]:
    running = dataclasses.replace(statement(result.statement.index)[1], execution_id=result.execution.execution_id)
    return [store.begin(result.statement, running), store.end(result)]


# -- where it lies ---------------------------------------------------------------------------------


def test_a_session_lies_beside_its_notebook_hidden_from_git_and_from_others(recorded, tmp_path):
    path = recorded.store.path
    assert path == tmp_path / ".ctxkernel" / "note.sqlite"
    assert (path.parent / ".gitignore").read_text() == "*\n"
    recorded.run("x = 1")
    if os.name == "posix":
        assert path.parent.stat().st_mode & 0o777 == 0o700
        for name in ("note.sqlite", "note.sqlite-wal", "note.sqlite-shm", "note.sqlite.lock", ".gitignore"):
            assert (path.parent / name).stat().st_mode & 0o777 == 0o600, name


UUID = "0b2c9a4e-1234-4abc-9def-0123456789ab"


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("{cwd}/here.ipynb", "{cwd}/.ctxkernel/here.sqlite"),  # what a server says
        ("{cwd}/new.ipynb", "{cwd}/.ctxkernel/new.sqlite"),  # not saved yet
        ("sub/here.ipynb", "{cwd}/.ctxkernel/here.sqlite"),  # relative to a root above: the kernel runs in its folder
        ("below/deep.ipynb", "{cwd}/below/.ctxkernel/deep.sqlite"),  # relative to here
        ("/nowhere/at/all/here.ipynb", "{cwd}/.ctxkernel/here.sqlite"),
        ("{other}/here.ipynb", "{cwd}/.ctxkernel/here.sqlite"),  # a root that is not the notebook's folder
        ("{other}/there.ipynb", "{other}/.ctxkernel/there.sqlite"),
        (f"{{cwd}}/here.ipynb-{UUID}", "{cwd}/.ctxkernel/here.sqlite"),  # JupyterLab, while it opens it
        (f"{{cwd}}/here-jvsc-{UUID}.ipynb", "{cwd}/.ctxkernel/here.sqlite"),  # VS Code
        ("RTC:here.ipynb", "{cwd}/.ctxkernel/here.sqlite"),  # a shared document
        ("{cwd}/script.py", "{cwd}/.ctxkernel/script.py.sqlite"),  # a script opened as a notebook
        ("{cwd}/a.b.ipynb", "{cwd}/.ctxkernel/a.b.sqlite"),
        (UUID, "{cwd}/.ctxkernel/console.sqlite"),
        (f"{{cwd}}/console-1-{UUID}", "{cwd}/.ctxkernel/console.sqlite"),
        ("", "{cwd}/.ctxkernel/console.sqlite"),
        ("a\0b.ipynb", "{cwd}/.ctxkernel/console.sqlite"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="paths as on POSIX")
def test_the_hint_of_a_server_leads_to_the_session(tmp_path, hint, expected):
    cwd, other = tmp_path / "cwd", tmp_path / "other"
    for folder, names in (
        (cwd, ("here.ipynb", "script.py")),
        (other, ("there.ipynb",)),
        (cwd / "below", ("deep.ipynb",)),
    ):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    names = {"cwd": str(cwd), "other": str(other)}

    found = session_path(None, {"JPY_SESSION_NAME": hint.format(**names)}, cwd)

    assert str(found) == expected.format(**names)


def test_what_is_said_goes_before_what_is_hinted_and_the_override_before_all(tmp_path):
    env = {"JPY_SESSION_NAME": "hinted.ipynb"}
    assert session_path("said.ipynb", env, tmp_path) == tmp_path / ".ctxkernel/said.sqlite"
    env["CTXKERNEL_SESSION"] = "elsewhere/mine.db"
    assert session_path("said.ipynb", env, tmp_path) == tmp_path / "elsewhere/mine.db"
    env["CTXKERNEL_SESSION"] = str(tmp_path / "absolute.sqlite")
    assert session_path(None, env, "/") == tmp_path / "absolute.sqlite"
    assert notebook_name(None, env, tmp_path) == "hinted.ipynb"
    assert notebook_name(None, {}, tmp_path) is None


def test_a_folder_that_is_the_users_own_gets_no_gitignore(tmp_path):
    store = SessionStore.open(tmp_path / "mine" / "a.sqlite")
    store.close()
    assert [entry.name for entry in (tmp_path / "mine").glob(".git*")] == []


def test_a_name_that_no_file_system_would_take_with_a_suffix_is_shortened_and_stays_its_own(tmp_path):
    one, other = session_path("ä" * 120 + "1.ipynb", {}, tmp_path), session_path("ä" * 120 + "2.ipynb", {}, tmp_path)
    assert one != other
    for path in (one, other):
        store = SessionStore.open(path)
        assert store.path == path
        store.close()


def test_the_second_session_of_a_notebook_and_the_first_of_another_are_told_apart(tmp_path):
    a, a2 = tmp_path / "a.sqlite", tmp_path / "a-2.sqlite"
    assert belongs(a2, a, "a.ipynb")
    assert not belongs(a2, a, "a-2.ipynb")
    assert not belongs(a2, a2, "a.ipynb")
    assert belongs(a2, a2, "a-2.ipynb")
    assert belongs(a, a, "renamed.ipynb")
    assert belongs(a, a, None)

    stores = [SessionStore.open(a, notebook="a.ipynb"), SessionStore.open(a, notebook="a.ipynb")]
    stores.append(SessionStore.open(a2, notebook="a-2.ipynb"))
    assert [store.path.name for store in stores] == ["a.sqlite", "a-2.sqlite", "a-2-2.sqlite"]
    for store in stores:
        store.close()


def test_a_session_that_the_user_names_is_taken_whatever_notebook_it_is_of(tmp_path):
    """Also `a-2.sqlite` of `a.ipynb`, which is not what a kernel of `a-2.ipynb` would take."""
    base = session_path("a.ipynb", {}, tmp_path)
    first, second = SessionStore.open(base, notebook="a.ipynb"), SessionStore.open(base, notebook="a.ipynb")
    first.close()
    second.close()
    env = {"CTXKERNEL_SESSION": str(second.path)}

    store = SessionStore.open(session_path(None, env, tmp_path), notebook="a.ipynb", named=True)
    store.close()

    assert store.path == second.path
    assert newest_session(None, env) == second.path


def test_the_newest_session_is_the_one_written_last_by_its_own_times(tmp_path):
    notebook = tmp_path / NOTEBOOK
    assert newest_session(notebook) is None
    base = session_path(str(notebook), {}, tmp_path)
    first = SessionStore.open(base, now=lambda: 100.0, notebook=NOTEBOOK)
    second = SessionStore.open(base, now=lambda: 100.0, notebook=NOTEBOOK)
    write(second, turn(200))
    write(first, turn(300))
    assert newest_session(notebook, {}) == first.path
    write(second, turn(400))
    assert newest_session(notebook, {}) == second.path
    (base.parent / "note-3.sqlite").write_text("no database")
    assert newest_session(notebook, {}) == second.path
    assert newest_session(notebook, {"CTXKERNEL_SESSION": str(first.path)}) == second.path  # its sibling
    first.close()
    second.close()


def test_a_command_that_skips_a_damaged_session_for_an_older_one_says_so(tmp_path):
    """Otherwise `verify` would call a notebook sound whose newest session is damaged."""
    (tmp_path / NOTEBOOK).write_text("{}")
    base = session_path(str(tmp_path / NOTEBOOK), {}, tmp_path)
    first = SessionStore.open(base, now=lambda: 100.0, notebook=NOTEBOOK)
    second = SessionStore.open(base, now=lambda: 100.0, notebook=NOTEBOOK)
    write(first, turn(200))
    for one in (first, second):
        one.close()
    second.path.write_text("no database" * 100)

    for command in ("timeline", "verify", "projection"):
        ran = ctxkernel(command, tmp_path / NOTEBOOK)
        assert f"skipped {second.path}, which may be a newer session of this notebook" in ran.stderr, (command, ran)

    first.path.unlink()
    assert "skipped" not in (ran := ctxkernel("timeline", tmp_path / NOTEBOOK)).stderr
    assert f"{second.path} cannot be read" in ran.stderr


# -- law 3: what is read is what was ---------------------------------------------------------------


def stored_deltas(reader: SessionReader) -> list[tuple[DeltaItem, ...]]:
    """Return the delta feed of each turn, oldest first."""
    feeds = [json.loads(row["deltas"]) for row in reader.rows("endings", "1 ORDER BY seq")]
    return [tuple(DeltaItem(**item) for item in feed) for feed in feeds]


def assert_same_as_live(made: Recorded) -> None:
    with made.reader() as reader:
        assert reader.statements() == made.log
        assert reader.head() == made.loop.log.head
        last = made.results[-1]
        assert reader.handles() == last.handles
        assert stored_deltas(reader)[-1] == last.deltas
        assert json.dumps(reader.projection()) == json.dumps(last.projection.to_json())
        assert reader.damage == []


CELLS = (
    "x = 1",
    "x = [x, 'é\\n']",
    "y = x",
    "del y",
    "a = view(src)",
    "b = view(src, lod=2, tokens=2, mode='running')",
    "b.lod = 1",
    "b.scroll(3)",
    "g = group(a, b)",
    "show(a)",
    "pin(a, 'why not')",
    "del a",
    "src.text += ' more'",
    "c = view('some text')",
    "tick()",
)


@settings(max_examples=examples(25))
@given(st.lists(st.sampled_from([*CELLS, "late"]), min_size=1, max_size=12))
def test_every_prefix_of_the_log_gives_back_what_the_kernel_had(cells):
    """Law 3, over cells that make, change, tick, group and drop handles, and ones that fail."""
    with tempfile.TemporaryDirectory() as folder:
        made = Recorded(Path(folder))
        made.turns.namespace["src"] = FakeSource()
        made.run()
        for cell in cells:
            if cell == "late":
                made.late(made.results[-1].execution.execution_id, "stdout", "late\n")
            else:
                made.run(cell)
            assert_same_as_live(made)
        for result in made.results:
            with made.reader() as reader:
                assert reader.handles(result.statement.index) == result.handles
                assert reader.projection(result.statement.statement_id) == result.projection.to_json()
        made.store.close()
        assert made.notices == []
        assert verify(made.store.path).sound


texts = st.text(st.characters() | st.sampled_from("\0\x1f\r\n\ud800\udfff\u2028é"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
infos = st.builds(TypeInfo, texts, texts, objects)
changes = st.builds(ChangeInfo, texts, texts, objects, st.sampled_from(["rebound", "mutated"]), texts)
diffs = st.builds(
    NamespaceDiff,
    st.dictionaries(texts, infos, max_size=2),
    st.dictionaries(texts, changes, max_size=2),
    st.lists(texts, max_size=2).map(tuple),
    texts,
)
deltas = st.builds(Delta, texts, st.dictionaries(texts, st.tuples(values, values), max_size=2), texts)
events = st.one_of(
    st.builds(StatementExecuted, texts, texts, texts),
    st.builds(MethodCalled, texts, texts, texts, st.lists(values, max_size=2).map(tuple), objects, objects, objects),
    st.builds(NodeChanged, texts, deltas),
)
artifacts = st.builds(
    Artifact, st.sampled_from(["display", "file"]), texts, texts, st.integers(0, 2**62), texts, values
)
endings = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["ok", "error", "timeout", "cancelled"]),
        "stdout": texts,
        "stderr": texts,
        "exception": st.none() | st.builds(ExceptionInfo, texts, texts, texts),
        "events": st.lists(events, max_size=3).map(tuple),
        "state_diff": diffs,
        "artifacts": st.lists(artifacts, max_size=2).map(tuple),
        "cost": st.builds(Cost, st.floats(0, 1e9), st.none() | st.integers(0, 2**60), st.none() | st.floats(0, 1e6)),
        "cut": st.dictionaries(texts, st.integers(0, 2**60), max_size=2),
        "late": st.dictionaries(texts.filter(bool), texts.filter(bool), max_size=2),
        "notices": st.lists(texts, max_size=2).map(tuple),
    }
)


@settings(max_examples=examples(60))
@given(source=texts, tags=objects, ending=endings)
def test_any_text_and_any_json_comes_back_as_it_was(tmp_path_factory, source, tags, ending):
    """Lone surrogates, NULs and separators too; and the row's checksum agrees."""
    with contextlib.closing(SessionStore.open(tmp_path_factory.mktemp("s") / "a.sqlite")) as store:
        store._mask = unmasked
        made, running = statement(1, source, tags=tags, cell_id="c")
        ended = dataclasses.replace(running, ended_at=1.5, **ending)
        assert store.begin(made, running) is None
        assert store.end(TurnResult(1, made, ended, (), (), ended.events)) is None
        with SessionReader(store.path) as reader:
            assert reader.statements() == [(made, (ended,))]
            assert reader.damage == []
            assert reader.timeline()["statements"] == json.loads(json.dumps([statement_to_json(made, (ended,))]))


def test_a_text_that_utf8_cannot_hold_costs_no_other_row_of_its_table(recorded):
    """Rows of the table that are in already are not put in twice when the one at fault is stored as bytes."""
    files = tuple(Artifact("file", name, "text/plain", 1, "") for name in ("a.txt", "bad\udcff.txt", "c.txt"))
    recorded.run("x = 1", artifacts=files)
    with recorded.reader() as reader:
        (one,) = reader.timeline()["statements"]
    assert [artifact["name"] for artifact in one["executions"][0]["artifacts"]] == ["a.txt", "bad\udcff.txt", "c.txt"]


def test_the_timeline_has_the_fixed_keys(recorded):
    recorded.run("x = 1", stdout="hi\n")
    with recorded.reader() as reader:
        made = reader.timeline()
    assert list(made) == ["session", "head", "statements"]
    assert made["session"] == recorded.store.session_id
    assert made["head"] == "s1.1"
    (one,) = made["statements"]
    assert set(one) == {
        "statement_id", "index", "timestamp", "source", "kind", "author", "parent_id", "cell_id", "tags", "fingerprint",
        "executions",
    }  # fmt: skip
    (execution,) = one["executions"]
    assert execution == execution_to_json(recorded.results[0].execution)
    assert set(execution) >= {
        "execution_id", "parent_execution_id", "started_at", "ended_at", "status", "stdout", "stderr", "exception",
        "events", "state_diff", "artifacts", "cost",
    }  # fmt: skip
    assert set(execution["state_diff"]) >= {"added", "changed", "deleted"}


def test_a_change_outside_of_cells_is_stored_before_the_cell_that_found_it(recorded):
    recorded.run("x = 1")
    recorded.turns.namespace["x"] = 2
    recorded.run("pass")
    assert [one.statement_id for one, _ in recorded.log] == ["s1", "s2", "s3"]
    assert_same_as_live(recorded)


def test_a_rerun_is_a_second_execution_of_the_same_statement(recorded):
    result = recorded.run("x = 1")
    again = dataclasses.replace(result.execution, execution_id="s1.2", parent_execution_id=None, started_at=50.0)
    running = Execution("s1.2", "s1", None, 50.0)
    assert recorded.store.begin(result.statement, running) is None
    assert recorded.store.end(dataclasses.replace(result, execution=again)) is None
    with recorded.reader() as reader:
        assert reader.statements() == [(result.statement, (result.execution, again))]
        assert reader.head() == "s1.2"


def test_head_moves_without_a_statement(recorded):
    recorded.run("x = 1")
    recorded.run("x = 2")
    assert recorded.store.resume("s1.1", 99.0) is None
    with recorded.reader() as reader:
        assert reader.head() == "s1.1"
        assert len(reader.statements()) == 2


# -- kernel starts -----------------------------------------------------------------------------------


def test_a_kernel_start_is_a_new_root_and_goes_on_counting(tmp_path):
    first = Recorded(tmp_path)
    first.run("a = 1")
    first.run("b = 1")
    first.store.close()
    second = Recorded(tmp_path)
    assert second.store.path == first.store.path
    assert second.store.session_id == first.store.session_id
    assert second.store.last_index == 2
    with second.reader() as reader:  # a start alone is no reason to show nothing
        assert [one.statement_id for one, _ in reader.statements()] == ["s1", "s2"]
    second.run("c = 1")
    with second.reader() as reader:
        assert [one.statement_id for one, _ in reader.statements()] == ["s3"]
        assert reader.statements()[0][0].parent_id is None
        assert [one.statement_id for one, _ in reader.statements(all_roots=True)] == ["s1", "s2", "s3"]
        assert reader.timeline(all_roots=True)["head"] == "s3.1"
        assert reader.projection("s1") == first.results[0].projection.to_json()
    second.store.close()


def test_a_second_live_kernel_gets_a_session_of_its_own_and_is_told(tmp_path):
    first, second = Recorded(tmp_path), Recorded(tmp_path)
    first.run("a = 1")
    second.run("b = 1")
    assert second.store.path.name == "note-2.sqlite"
    assert f"{first.store.path} is in use by another kernel (pid {os.getpid()})" in second.store.notice
    assert "note-2.sqlite" in second.store.notice
    assert first.store.notice is None
    first.store.close()
    second.store.close()
    third = Recorded(tmp_path)
    assert third.store.path == first.store.path
    third.store.close()


def test_the_start_of_a_cell_can_be_read_before_its_end(recorded):
    made, running = statement(1, "while True: pass")
    assert recorded.store.begin(made, running) is None
    with recorded.reader() as reader:
        assert reader.statements() == [(made, (running,))]
        assert reader.timeline()["head"] == "s1.1"
        recorded.store.end(turn(1, "while True: pass"))
        assert reader.statements()[0][1][0].status == "ok"


def test_a_reader_sees_one_state_of_the_log_whatever_is_written_meanwhile(recorded):
    recorded.run("x = 1")
    with recorded.reader() as reader, reader.snapshot():
        before = reader.statements()
        recorded.run("x = 2")
        assert reader.statements() == before


# -- what a row costs, and what it shows -------------------------------------------------------------


def count(store: SessionStore, table: str) -> int:
    return sqlite3.connect(store.path).execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def test_history_is_append_only(recorded):
    recorded.run("x = 1", stdout="hi")
    recorded.run("h = view('text')", artifacts=(Artifact("display", "", "text/plain", 2, "", "hi"),))
    recorded.late("s1.1", "stdout", "late")
    connection = sqlite3.connect(recorded.store.path)
    for table, columns in schema.TABLES.items():
        first = columns.split()[0]
        if connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]:
            for change in (f"UPDATE {table} SET {first} = {first}", f"DELETE FROM {table}"):
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                    connection.execute(change)
        triggers = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE type='trigger' AND tbl_name=?", (table,)
        )
        assert triggers.fetchone()[0] == 2, table


def test_what_is_as_it_was_is_not_stored_again(recorded):
    recorded.run("h = view('some text')")
    recorded.run("x = 0")
    states, blocks = count(recorded.store, "node_states"), count(recorded.store, "blocks")
    for n in range(20):
        recorded.run(f"x = {n % 2}")
    assert count(recorded.store, "node_states") == states
    assert count(recorded.store, "blocks") - blocks < 5 * 20


def test_a_thousandth_projection_is_stored_as_briefly_as_the_tenth(recorded):
    for n in range(300):
        recorded.run(f"x = {n}")
    connection = sqlite3.connect(recorded.store.path)
    sizes = [size for (size,) in connection.execute("SELECT length(record) FROM projections ORDER BY seq")]
    between = [size for n, size in enumerate(sizes) if n % 65]
    assert max(between[200:]) < 6 * max(between[:20])
    with recorded.reader() as reader:
        for result in recorded.results[::37]:
            assert reader.projection(result.statement.index) == result.projection.to_json()


def test_late_output_is_bounded(recorded):
    recorded.run("x = 1")
    for _ in range(30):
        recorded.late("s1.1", "stdout", "y" * 999)
    recorded.late("s1.1", "stderr", "z")
    assert_same_as_live(recorded)
    with recorded.reader() as reader:
        assert len(reader.statements()[0][1][0].late["stdout"]) == 10_000


def test_late_output_of_an_earlier_kernel_is_added_to_what_it_had(tmp_path):
    first = Recorded(tmp_path)
    first.run("x = 1")
    first.late("s1.1", "stdout", "a")
    first.store.close()
    store = SessionStore.open(first.store.path)
    assert store.late("s1.1", "stdout", "b") is None
    store.close()
    with SessionReader(store.path) as reader:
        assert reader.statements(all_roots=True)[0][1][0].late == {"stdout": "ab"}
    assert verify(store.path).sound


SECRET = "sk-ant-api03-" + "Zq9" * 12


def test_what_looks_like_a_credential_is_in_no_byte_of_the_session(recorded):
    handle = HandleState(
        "h", "v1", "view", "s1", {"target": SECRET}, f"shows {SECRET}", 3, False, SECRET, True, False, (), (SECRET,)
    )
    result = turn(
        1,
        f"client = Client('{SECRET}')\nDB_PASSWORD = 'hunter2hunter2'",
        handles=[handle],
        stdout=f"using {SECRET}\n",
        stderr=f"warning: {SECRET}",
        exception=ExceptionInfo("AuthError", f"bad key {SECRET}", f"…\n{SECRET}"),
        events=(MethodCalled("v1", "view", "view", (SECRET,), {"key": SECRET}, {}, {"target": SECRET}),),
        state_diff=NamespaceDiff(
            {"key": TypeInfo("str", repr(SECRET))}, {"db_password": ChangeInfo("str", "'hunter2hunter2'", before="''")}
        ),
        artifacts=(Artifact("display", "", "text/html", 9, "", f"<b>{SECRET}</b>"),),
        late={"stdout": SECRET},
        notices=(SECRET,),
    )
    assert write(recorded.store, result) == [None, None]
    recorded.store.late("s1.1", "stdout", f"again {SECRET}")
    recorded.store.close()

    for path in recorded.store.path.parent.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path
        assert b"hunter2" not in path.read_bytes(), path
    with recorded.reader() as reader:
        ((made, (execution,)),) = reader.statements()
    assert made.tags == {"masked": True}
    assert made.source == "client = Client('[masked: Anthropic key]')\nDB_PASSWORD = '[masked]'"
    assert execution.stdout == "using [masked: Anthropic key]\n"
    assert execution.state_diff.changed["db_password"].repr == "'[masked]'"


def test_a_credential_that_only_the_models_history_has_is_masked(recorded):
    """The texts of the turn decide nothing about the events that were recorded with it."""
    asked = UserQuestion("q1", f"why is {SECRET} refused?")
    recorded.store.begin(*statement(1))
    assert recorded.store.end(dataclasses.replace(turn(1), recorded=(asked,))) is None
    with recorded.reader() as reader:
        assert reader.records() == {
            "s1.1": [dataclasses.replace(asked, text="why is [masked: Anthropic key] refused?")]
        }
    recorded.store.close()


def test_a_name_that_says_secret_hides_the_value_in_the_delta_feed(recorded):
    recorded.loop._projector.project = lambda turn: None
    recorded.run("db_password = 'hunter2hunter2'")
    recorded.run("db_password = 'hunter3hunter3'")
    assert "hunter3" in recorded.results[-1].deltas[0].summary
    with recorded.reader() as reader:
        first, second = stored_deltas(reader)
    assert first[0].summary == "new str [masked]"
    assert "hunter" not in second[0].summary
    recorded.store.close()
    assert b"hunter" not in recorded.store.path.read_bytes()


def test_a_statement_without_credentials_is_stored_to_the_letter(recorded):
    source = "max_tokens = 2000\ntoken = next(tokens)\n"
    recorded.run(source)
    with recorded.reader() as reader:
        assert reader.statements()[0][0].source == source
        assert reader.statements()[0][0].tags == {}


records = st.dictionaries(
    st.sampled_from("abcd"), st.none() | st.text(max_size=3) | st.lists(st.text(max_size=2), max_size=5), max_size=4
)


@given(st.lists(records, min_size=1, max_size=8))
def test_a_series_of_records_is_restored_from_its_differences(series):
    before = series[0]
    for new in series[1:]:
        made = compress(before, new)
        if made is None:
            assert before.keys() - new.keys()
        else:
            assert restore(before, json.loads(json.dumps(made))) == new
        before = new


def test_there_is_a_message_where_there_is_nothing_to_read(recorded, tmp_path):
    with recorded.reader() as reader:
        assert reader.timeline()["statements"] == []
        assert reader.timeline()["head"] is None
        with pytest.raises(StoreError, match="no projection of this session"):
            reader.projection()
        with pytest.raises(StoreError, match="no statement s7"):
            reader.projection("s7")
        with pytest.raises(StoreError, match="is no statement"):
            reader.projection("first")
    with pytest.raises(StoreError, match="no such session"):
        SessionReader(tmp_path / "none.sqlite")


def test_the_schema_says_which_it_is_and_has_a_place_for_what_is_to_come(recorded):
    connection = sqlite3.connect(recorded.store.path)
    assert connection.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID
    assert connection.execute("PRAGMA user_version").fetchone()[0] == schema.VERSION
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == set(schema.TABLES)
    for table in schema.TABLES:
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        assert columns - {"id"} == set(schema.COLUMNS[table])
    told = (Path(__file__).parent.parent / "docs" / "schemas.md").read_text(encoding="utf-8")
    for table in schema.TABLES:
        assert f"`{table}`" in told
        for column in schema.COLUMNS[table]:
            assert f"`{column}`" in told, f"{table}.{column} is not in docs/schemas.md"


def test_a_log_without_details_is_the_same_tree(recorded):
    """`ctxkernel branches` read and checked all outputs and events of a session for it."""
    for source in ("x = 1", "print('a' * 50)", "1 / 0", "y = [x]"):
        recorded.run(source)
    with SessionReader(recorded.store.path) as reader:
        whole, brief = reader.log(), reader.log(details=False)
        newest = reader.statements(newest=2)

    assert list(brief) == list(whole)
    assert brief.head == whole.head
    assert brief.branches() == whole.branches()
    place = lambda run: (run.execution_id, run.parent_execution_id, run.started_at, run.ended_at, run.status)  # noqa: E731
    assert [place(run) for _, run in brief.path()] == [place(run) for _, run in whole.path()]
    assert [(one, (whole.executions(one.statement_id))) for one in list(whole)[-2:]] == newest
