"""Hostile files beside a notebook, in the cache, and messages of a page: `python tests/fuzz_files.py --cases 20000`.

A case is a copy of a real session that is changed in some places; then everything is done with it that a user does.
Rule 1: nothing outside of our folders is written, and nothing of a stranger runs.
Rule 2: a call takes at most 2 s of processor time, and a case ends.
Rule 3: no error is unforeseen: no traceback of ours, no part that a guard switched off.
Rule 4: each case runs in a fork with bounded memory, and is given by its kind and its seed.
"""
# ruff: noqa: B023  # each function is called at once

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import faulthandler
import gc
import hashlib
import importlib
import io
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuzz_mutations as mutations
from kernels import starter
from oracle import Kernel

from ctxkernel.agent.recorded import dump_turns, load_turns, of_session
from ctxkernel.core.errors import CtxError
from ctxkernel.store import config
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.data_folder import data_folder
from ctxkernel.store.log.session import SessionReader, SessionStore
from ctxkernel.store.log.signing import sign_session
from ctxkernel.testing import MessagesServer, call, say

CPU_SECONDS = 2.0
"""Most processor time of one call."""
CASE_SECONDS = 120.0
"""Most time of a case, on a machine that does other things as well."""
MEMORY = 1 << 30
"""Bytes that a case may allocate."""
MANY = {"session": 8, "manifest": 3, "pack": 3, "turns": 2, "settings": 2, "panel": 1}
"""The kinds of cases, and how often each comes."""
LIGHT = {"session": 4, "manifest": 1, "pack": 3, "turns": 16, "settings": 16, "panel": 1}
"""The same for the suite: what takes long comes seldom."""
MESSAGES_OF_A_CASE = 8
"""A panel case is so many messages to one kernel, each counted."""
_OURS = re.compile(
    r"traceback|unexpected |failed in this cell|ctxkernel is off|"
    r"off until the kernel restarts(?!.{0,3}StoreError: .* (is a symbolic link|cannot be read))",
    re.IGNORECASE,
)
"""Texts that tell of an error that was not foreseen. A folder of data that cannot be used is foreseen."""
_WARM = [
    "kernel.app",
    "kernel.commands.magics",
    "kernel.extension",
    "kernel.commands.navigation",
    "kernel.display.panel",
]
_WARM += ["cli.read", "cli.verify", "cli.tree", "cli.gc", "agent.turn_files", "projection.compare", "replay.plan"]
MARK = "__import__('os').environ['FUZZ_MARK']"
CELLS = [
    "import numpy as np\nx = 1",
    "data = {'a': list(range(50))}; arr = np.arange(40_000.0)",
    "h = view(data); n = note('a remark')",
    "h.lod = 2; arr[7] = 5\nprint('printed', x)",
    f"class Evil:\n    def __reduce__(self):\n        return eval, (\"open({MARK}, 'w')\",)\nevil = Evil()",
    "%ctx checkpoint fitted",
    "%ctx config files restore",
    "open('out.txt', 'w').write('one'); x += 1; x",
    "1 / 0",
    "%%ask --mode auto\nwhat is x?",
    "%ctx goto 4",
    "y = 5; z = [y] * 1000",
    "%ctx rerun 1",
]


class Failure(AssertionError):
    """A rule that a case broke."""


@dataclasses.dataclass
class Scale:
    """How much a case does."""

    kernels: int = 10
    """One of so many cases of a kind runs cells in a kernel, which takes longer than all else."""
    commands: int = 4
    """Commands that read the session."""


SCALE = Scale()


@dataclasses.dataclass(frozen=True)
class Place:
    """The folders of a case."""

    work: Path

    @property
    def project(self) -> Path:
        return self.work / "project"

    @property
    def session(self) -> Path:
        return self.project / ".ctxkernel" / "note.sqlite"

    @property
    def notebook(self) -> Path:
        return self.project / "note.ipynb"

    @property
    def turns(self) -> Path:
        return self.project / "note.turns.json"

    @property
    def cache(self) -> Path:
        return self.work / "cache" / "checkpoints"

    @property
    def mark(self) -> Path:
        return self.work / "outside" / "RAN"

    def env(self) -> dict[str, str]:
        return {
            "CTXKERNEL_CACHE": str(self.work / "cache"),
            "CTXKERNEL_HOME": str(self.work / "home"),
            "JPY_SESSION_NAME": str(self.notebook),
            "CTXKERNEL_DEBUG": "1",
            "FUZZ_MARK": str(self.mark),
        }


def make_seed(work: Path) -> Place:
    """Make a real session with its notebook, data, recorded turns and settings, and files of others beside it."""
    place = Place(work)
    place.project.mkdir(parents=True)
    cells = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "outputs": [], "execution_count": None, "source": one}
        for n, one in enumerate(CELLS)
    ]
    place.notebook.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    env = {**place.env(), "FUZZ_MARK": os.devnull}
    with MessagesServer() as server, contextlib.contextmanager(starter)(place.project) as start:
        code = f"x + 1; open({MARK}, 'w').write('hidden')"
        server.script = [call("run_cell", {"code": code}), say("It is 2.")]
        given = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "sk-ant-api03-" + "x" * 40, **env}
        kernel = start(env=given)
        for cell in CELLS:
            ran = kernel.run(cell)
            if (ran.status == "error") is not (cell == "1 / 0"):
                raise AssertionError((cell, ran.outputs))
        kernel.stop()
    with SessionReader(place.session) as reader:
        turns = of_session(reader.requests(), reader.records())
    place.turns.write_text(dump_turns(turns))
    (place.project / "ctxkernel.toml").write_text(
        'answers = "recorded"\nfiles = "restore"\nresume = false\n[ctxkernel]\nstdout_bytes = 10000\n'
    )
    outside = work / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "folder" / "some").write_text("some")
    (outside / "poetry.lock").write_text('[[package]]\nname = "attrs"\n')
    (outside / "logs.json").write_text("[]")
    SessionStore.open(outside / "data.sqlite").close()
    (outside / "data.sqlite.lock").unlink(missing_ok=True)
    return place


def digest(place: Place) -> dict[str, str]:
    """Return what is outside of our folders: path → type, content and target. The secret is outside, too."""
    found: dict[str, str] = {}
    ours = {place.work / "cache", place.project / ".ctxkernel", place.project / "out.txt"}

    def walk(folder: Path) -> None:
        for path in sorted(folder.iterdir()):
            name = str(path.relative_to(place.work))
            if path.is_symlink():
                found[name] = f"link to {os.readlink(path)}"
            elif path in ours or (name.startswith("home/") and name != "home/secret"):
                continue
            elif path.is_dir():
                found[name] = "folder"
                walk(path)
            else:
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "other"

    walk(place.work)
    return found


# -- what a user does ------------------------------------------------------------------------------


class User:
    """Does what a user does with a folder, and checks the rules after each call."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.said: list[str] = []
        self.had_kernel = False

    def does(self, what: str, action: Callable[[], Any]) -> Any:
        """Return what `action` returns. A CtxError is an answer; any other error is a failure."""
        begin, result = time.process_time(), None
        try:
            result = action()
        except CtxError as refusal:
            if len(str(refusal)) > 20_000:
                raise Failure(f"{what}: an error of {len(str(refusal))} characters") from None
            self.said.append(str(refusal))
        except Exception as fault:
            raise Failure(f"{what}: {type(fault).__name__}: {str(fault)[:300]}\n{_where(fault)}") from None
        if (seconds := time.process_time() - begin) > CPU_SECONDS:
            raise Failure(f"{what} took {seconds:.1f} s of processor time")
        return result

    def command(self, *words: str) -> None:
        """Run a command of the terminal."""
        from ctxkernel.cli import main

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            self.does(f"ctxkernel {' '.join(words)}", lambda: main(list(words)))
        if found := _OURS.search(err.getvalue()):
            raise Failure(f"ctxkernel {' '.join(words)}: {err.getvalue()[max(0, found.start() - 200) :][:600]}")

    def reads(self, rng: random.Random) -> None:
        """Read the session, as a whole and by commands."""

        def whole() -> None:
            with SessionReader(self.place.session) as reader:
                for what in (
                    reader.log,
                    reader.names,
                    reader.records,
                    reader.handles,
                    reader.projection,
                    reader.checkpoints,
                    reader.all_manifests,
                    reader.marks,
                    reader.comparisons,
                ):
                    self.does(what.__name__, what)

        self.does("reading", whole)
        note = str(self.place.notebook)
        commands = [
            ("timeline", note),
            ("timeline", note, "--json"),
            ("projection", note),
            ("projection", note, "--json"),
            ("verify", note),
            ("verify", note, "--json"),
            ("branches", note),
            ("diff", note, "2", "4"),
            ("branches", note, "--json"),
            ("gc", "--dry-run"),
            ("gc", "--dry-run", "--gone", "--limit", "0.000001", "--json"),
        ]
        for words in rng.sample(commands, SCALE.commands):
            self.command(*words)

    def writes(self) -> None:
        """Open the session for writing, as a kernel does."""
        place = self.place
        store = self.does("opening", lambda: SessionStore.open(place.session, environment={}, notebook="note.ipynb"))
        if store is not None:
            folder = self.does("data folder", lambda: data_folder(place.cache, store.session_id, writing=True))
            if folder is not None:
                self.does("data", lambda: ChunkStore(folder).close())
            self.does("closing", store.close)

    def works(self, *cells: str, own: bool = False) -> None:
        """Run cells in a kernel. The first one computes something, which is checked."""
        self.had_kernel = True
        kernel = Kernel()
        self.does("starting a kernel", kernel.switch_on)
        status, printed = self.does("a cell", lambda: kernel.run("print(6 * 7)"))
        if status != "ok" or "42" not in printed:
            raise Failure(f"a cell does not run: {status}: {printed[:500]}")
        for cell in cells:
            _, printed = self.does(f"the cell {cell!r}", lambda: kernel.run(cell))
            self.hears(cell, printed)
        self.does("a snapshot", lambda: json.dumps(kernel.kernel.ctx.panel.snapshot()))
        self.hears("guard", "\n".join(kernel.kernel.ctx.guard.lines()))
        self.does("closing the kernel", kernel.kernel.ctx.close)

    def hears(self, what: str, told: str) -> None:
        if found := _OURS.search(told):
            raise Failure(f"{what}: {told[max(0, found.start() - 300) :][:900]}")


def _where(fault: BaseException) -> str:
    return "".join(traceback.format_tb(fault.__traceback__)[-5:])


NAVIGATE = [
    ("%ctx resume --dry-run", "%ctx resume", "%ctx goto 2 --dry-run", "%ctx goto 2"),
    ("%ctx resume", "%ctx goto fitted", "%ctx undo", "%ctx rerun 1 --dry-run"),
    ("%ctx status", "%ctx timeline", "%ctx projection", "%ctx diff 2 4", "%ctx branches", "%ctx why x", "%ctx cost"),
    ("%ctx goto 4 --dry-run", "%ctx resume --trust --dry-run", "%ctx history", "%ctx trust"),
]


def session_case(rng: random.Random, user: User) -> str:
    """Change the session file and the files beside it."""
    place, told = user.place, list[str]()
    path = place.session
    # The first kinds read the file as SQLite does, which must not meet an endless view of an earlier change.
    for kind in sorted(rng.random() for _ in range(rng.choice([1, 1, 1, 2, 4]))):
        with contextlib.suppress(Exception):  # an earlier change may leave nothing that this one can change
            if kind < 0.6:
                told.append(mutations.change_field(rng, path, place.work))
            elif kind < 0.68:
                told.append(mutations.change_rows(rng, path, place.work))
            elif kind < 0.8:
                told.append(mutations.change_schema(rng, path, place.work))
            elif kind < 0.9:
                mutations.flip(rng, path)
                told.append("bytes flipped")
            else:
                suffix = rng.choice(["", "-wal", "-shm", "-journal", ".lock", ".lock", "/..", "-2"])
                target = path.parent if suffix == "/.." else path.with_name(path.name + suffix)
                told.append(mutations.foreign(rng, target, place.work))
    if rng.random() < 0.15:
        with contextlib.suppress(Exception):  # a changed file may not be signed
            sign_session(path)
            told.append("trusted by word")
    user.reads(rng)
    user.writes()
    if rng.randrange(SCALE.kernels) == 0:
        user.works(*rng.choice(NAVIGATE))
    return "; ".join(told)


def manifest_case(rng: random.Random, user: User) -> str:
    """Change manifests, and the results of background jobs."""
    place, told = user.place, list[str]()
    for _ in range(rng.choice([1, 2, 3])):
        told.append(
            mutations.change_field(
                rng,
                place.session,
                place.work,
                ("checkpoints", "checkpoints", "checkpoint_states") if _has_states(place) else ("checkpoints",),
            )
        )
    if rng.random() < 0.5:
        user.does("trusting", lambda: sign_session(place.session))
        told.append("trusted by word")
    user.command("verify", str(place.notebook))
    user.reads(rng)
    if rng.randrange(SCALE.kernels) < 2:
        user.works(*rng.choice(NAVIGATE[:2]))
    return "; ".join(told)


def _has_states(place: Place) -> bool:
    import sqlite3

    with contextlib.closing(sqlite3.connect(place.session)) as connection:
        return bool(connection.execute("SELECT count(*) FROM checkpoint_states").fetchone()[0])


def pack_case(rng: random.Random, user: User) -> str:
    """Change the folder of the data."""
    place = user.place
    folder = next(one for one in sorted(place.cache.iterdir()) if one.is_dir())
    told = [mutations.change_packs(rng, folder, place.work) for _ in range(rng.choice([1, 1, 3]))]
    if rng.random() < 0.1:
        told.append(mutations.foreign(rng, folder, place.work))
    if rng.random() < 0.2:
        told.append(
            mutations.foreign(
                rng, place.cache / rng.choice(["0" * 16, "s" + "1" * 16, folder.name + ".lock", "strange"]), place.work
            )
        )

    def all_chunks() -> None:
        store = ChunkStore(folder, readonly=True)
        for entry in store.entries():
            with contextlib.suppress(CtxError):
                store.read(entry.address)

    user.does("all chunks", all_chunks)
    user.command("verify", str(place.notebook))
    user.command(
        "gc",
        *rng.choice(
            [
                ("--dry-run",),
                ("--dry-run", "--gone"),
                ("--limit", "0.00001"),
                ("--gone", "--json"),
                ("--gone", "--limit", "0.0001"),
            ]
        ),
    )
    if rng.randrange(SCALE.kernels) == 0:
        user.works(*rng.choice(NAVIGATE[:2]))
    return "; ".join(told)


def turns_case(rng: random.Random, user: User) -> str:
    """Change the recorded turns."""
    place = user.place
    if rng.random() < 0.2:
        told = mutations.foreign(rng, place.turns, place.work)
    elif rng.random() < 0.3:
        mutations.flip(rng, place.turns)
        told = "bytes flipped"
    else:
        value = json.loads(place.turns.read_text())
        for _ in range(rng.choice([1, 1, 3])):
            value = mutations.change_json(rng, value, place.work)
        place.turns.write_text(mutations.dumped(value))
        told = "turns changed"
    user.place.project  # noqa: B018
    before = digest(place)
    if place.turns.is_file() and not place.turns.is_symlink():
        text = place.turns.read_bytes().decode("utf-8", "replace")
        user.does("turns", lambda: load_turns(text, "note.turns.json"))
    if rng.randrange(SCALE.kernels) < 2:
        user.works("%%ask what is x?" if rng.random() < 0.3 else "%%ask --mode auto\nwhat is x?", "%ctx status")
    _same(before, digest(place))
    return told


def settings_case(rng: random.Random, user: User) -> str:
    """Change the settings file."""
    place = user.place
    path = place.project / "ctxkernel.toml"
    told = "settings changed"
    if rng.random() < 0.2:
        told = mutations.foreign(rng, path, place.work)
    elif rng.random() < 0.3:
        mutations.flip(rng, path)
    else:
        from ctxkernel.core.settings import SPECS

        lines = path.read_text().splitlines()
        for _ in range(rng.choice([1, 3, 30])):
            name = rng.choice(
                [*SPECS, "ctxkernel", "a.b.c", '"' + "x" * 5000 + '"', "[ctxkernel]", "[[ctxkernel]]", "api_key"]
            )
            value = rng.choice(
                [
                    mutations.dumped(mutations.json_value(rng, place.work)),
                    "inf",
                    "nan",
                    "1979-05-27T07:32:00Z",
                    "0x" + "f" * 5000,
                    "'''",
                    "[" * 2000,
                ]
            )
            lines.insert(rng.randrange(len(lines) + 1), f"{name} = {value}" if rng.random() < 0.9 else name)
        path.write_text("\n".join(lines), "utf-8", "surrogatepass")
    env = {**os.environ, **place.env()}
    found = user.does("settings", lambda: config.read_settings(env, place.project))
    for notice in found.notices:
        if len(notice) > 3000:
            raise Failure(f"a notice of {len(notice)} characters: {notice[:200]}")
    if rng.randrange(SCALE.kernels) == 0:
        user.works("%ctx config", "%ctx status", "x = 2")
    return told


MESSAGES: list[dict[str, Any]] = [
    {"type": "snapshot"},
    {"type": "plan", "id": "1", "action": "goto", "target": "1", "before": False, "upto": "2"},
    {"type": "plan", "id": "2", "action": "rerun", "target": "1"},
    {"type": "events", "id": "3", "of": "c1"},
    {"type": "compare", "id": "4", "old": "s1", "new": None},
    {"type": "difference", "id": "7", "old": "0", "new": "s1", "names": ["h"]},
    {"type": "rows", "id": "8", "runs": "s1.1+20 s40.2"},
    {"type": "details", "id": "9", "of": "s1.1"},
    {"type": "search", "id": "10", "text": "x", "name": "h*", "author": "human", "status": "ok", "branch": "head"},
    {"type": "projection", "id": "11"},
    {"type": "request", "id": "12"},
    {"type": "image", "id": "13", "of": "sha256:00"},
    {"type": "whatif", "id": "14", "changes": "h.lod=2\nleave=s1"},
    {"type": "handle", "id": "15", "of": "v1"},
    {"type": "cost", "id": "16"},
    {"type": "marks", "id": "17", "names": ["c", "b"]},
    {"type": "marks", "id": "18", "cell": "c", "before": "b"},
    {"type": "export", "id": "19"},
    {"type": "cells", "id": "20", "at": "s1.1", "cell": "c"},
    {"type": "gesture", "id": "5", "change": {"lod": 2, "tokens": None, "mode": "paused", "refresh": True}},
    {"ctxkernel": {"kind": "meta", "statement": "s1.1", "rerun": True}, "tags": ["ctx-differs"], "cellId": "c"},
    {"method": "custom", "content": {"type": "gesture", "id": "6", "change": {"lod": 1}}},
    {"method": "update", "state": {"facts": {}, "text": "x"}, "buffer_paths": []},
]
CONTROL = sorted({one["type"] for one in MESSAGES if "id" in one} - {"gesture", "whatif"} | {"snapshot"})
"""The requests that are also answered on the control channel."""
_CHECKED = re.compile(r"(%ctx (set|refresh) \w+(\.\w+=[\w-]+)?( \w+\.\w+=[\w-]+)*\n?)+|print\(6 \* 7\)|h = view.*")


def panel_case(rng: random.Random, user: User) -> str:
    """Send messages of a page."""
    user.had_kernel = True
    kernel = Kernel()
    user.does("starting a kernel", kernel.switch_on)
    user.does("a cell", lambda: kernel.run("h = view({'a': 1})"))
    inner, ctx, told = kernel.kernel, kernel.kernel.ctx, list[str]()
    obj_id = next(iter(ctx.loop.graph.nodes())).obj_id

    def message(kind: str, content: Any) -> dict[str, Any]:
        return {
            "header": {"msg_type": kind, "msg_id": "m"},
            "parent_header": {},
            "metadata": {},
            "content": content,
            "buffers": [],
        }

    opened = {"comm_id": "one", "target_name": "ctxkernel.panel", "data": {"protocol": 1, "version": "x"}}
    user.does("opening", lambda: inner.shell_handlers["comm_open"](None, [], message("comm_open", opened)))
    for _ in range(MESSAGES_OF_A_CASE):
        base = rng.choice(MESSAGES)
        asked = (
            mutations.change_json(rng, base, user.place.work)
            if rng.random() < 0.8
            else mutations.json_value(rng, user.place.work)
        )
        how = rng.randrange(6)
        told.append(f"{how}: {ascii(asked)[:100]}")
        if how == 0:
            kind = rng.choice(CONTROL)
            user.does(
                "control", lambda: inner.control_handlers[f"ctxkernel_{kind}_request"](None, [], message("x", asked))
            )
        elif how == 1:
            content = {"comm_id": "one", "data": asked}
            user.does("comm_msg", lambda: inner.shell_handlers["comm_msg"](None, [], message("comm_msg", content)))
        elif how == 2:
            content = {**opened, "data": asked, "comm_id": f"two-{len(told)}"}
            user.does("comm_open", lambda: inner.shell_handlers["comm_open"](None, [], message("comm_open", content)))
        elif how == 3:
            user.does("gesture", lambda: ctx.gestures.take(obj_id, asked, json.dumps))
        elif how == 4:
            identity = mutations.json_value(rng, user.place.work)
            loop = asyncio.get_event_loop()
            options = {"cell_meta": asked, "cell_id": identity}
            user.does("cell", lambda: loop.run_until_complete(inner.do_execute("print(6 * 7)", False, True, **options)))
        else:
            answers: list[Any] = []
            user.does("answer", lambda: ctx.panel._reply(answers.append, asked))
            for one in answers:
                if len(user.does("answer", lambda: json.dumps(one))) > 2_000_000:
                    raise Failure("an answer of more than 2 MB")
    user.hears("guard", "\n".join(ctx.guard.lines()))
    for statement in ctx.loop.log:
        if not _CHECKED.fullmatch(statement.source):
            raise Failure(f"a message became a statement: {statement.source[:200]!r}")
    if "42" not in user.does("a cell", lambda: kernel.run("print(6 * 7)"))[1]:
        raise Failure("the kernel runs no cell any more")
    user.does("closing the kernel", ctx.close)
    return "; ".join(told)


CASES: dict[str, Callable[[random.Random, User], str]] = {
    "session": session_case,
    "manifest": manifest_case,
    "pack": pack_case,
    "turns": turns_case,
    "settings": settings_case,
    "panel": panel_case,
}


def _same(before: dict[str, str], after: dict[str, str]) -> None:
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    if changed:
        told = (f"{one}: {before.get(one)} → {after.get(one)}" for one in sorted(changed)[:5])
        raise Failure(f"outside of our folders: {', '.join(told)}")


def run_case(seed_place: Place, kind: str, seed: int, work: Path) -> User:
    """Carry out a case in this process; return the user, who knows what was changed. Raises Failure."""
    rng = random.Random(f"{kind} {seed}")
    shutil.copytree(seed_place.work, work, symlinks=True)
    place = Place(work)
    stranger = kind in ("turns", "panel", "settings") or rng.random() < 0.6
    if stranger:  # the files are somebody else's: another secret
        shutil.rmtree(work / "home", ignore_errors=True)
    os.chdir(place.project)
    os.environ.update(place.env())
    importlib.import_module("ctxkernel.store.signatures")._known.clear()
    told, user = "", User(place)
    from ctxkernel.store.signatures import signer

    signer()  # the secret is there before
    # What the case itself puts outside of our folders, such as a link, is no harm: so it is looked at after the change.
    holder: dict[str, Any] = {}
    real = user.does

    def does(what: str, action: Callable[[], Any]) -> Any:
        if not holder:
            holder["before"] = digest(place)
        return real(what, action)

    user.does = does  # type: ignore[method-assign]
    try:
        told = CASES[kind](rng, user)
    finally:
        user.said.append(told)
    after = digest(place)
    trusted = "trusted by word" in told
    if not stranger or trusted:
        after.pop("outside/RAN", None)
    if "before" in holder:
        _same(holder["before"], after)
    return user


# -- many cases ------------------------------------------------------------------------------------


BATCH = 10
"""Most cases of one fork; it ends after a case with a kernel, which leaves its traces, and after a failure."""


def in_a_fork(seed_place: Place, batch: list[tuple[str, int]]) -> list[str]:
    """Carry out cases in a fork of this process; return for the first ones why each failed, or an empty text."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=_memory()))
    pipe, end = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(pipe)
            _work(seed_place, batch, folder, end)
            status = 0
        finally:
            os._exit(status)
    os.close(end)
    heard, until = b"", time.monotonic() + CASE_SECONDS
    while (left := until - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
        part = os.read(pipe, 1 << 16)
        heard += part
        if not part:
            break
        until = time.monotonic() + CASE_SECONDS
    os.close(pipe)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    shutil.rmtree(folder, ignore_errors=True)
    told = [json.loads(line) for line in heard.splitlines()]
    if status and len(told) < len(batch) and not any(told):
        told.append(f"it did not end within {CASE_SECONDS:g} s, or its process died ({status})")
    return told


def _work(seed_place: Place, batch: list[tuple[str, int]], folder: Path, end: int) -> None:
    faulthandler.enable()
    if sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for number, (kind, seed) in enumerate(batch):
        faulthandler.dump_traceback_later(CASE_SECONDS - 5, exit=True, file=sys.__stderr__)
        errors, told, user = io.StringIO(), "", None
        sys.stderr = errors
        try:
            user = run_case(seed_place, kind, seed, folder / f"work{number}")
            if "Traceback" in errors.getvalue():
                raise Failure(f"on stderr: {errors.getvalue()[-1500:]}")
        except Failure as failure:
            told = str(failure)
        except BaseException as fault:
            told = f"{type(fault).__name__}: {str(fault)[:300]}\n{_where(fault)}"
        os.write(end, json.dumps(told[:3000]).encode() + b"\n")
        if user is None or user.had_kernel:
            return
        os.chdir("/")
        shutil.rmtree(folder / f"work{number}", ignore_errors=True)


def _memory() -> str | None:
    """Return a folder in memory, if there is one: a disk waits for each of SQLite's commits."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def cases(count: int, seed: int, weights: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (kind, seed) of so many cases."""
    rng = random.Random(seed)
    number = 0
    while number < count:
        kind = rng.choices(list(weights), weights.values())[0]
        yield kind, seed * 1_000_000 + number
        number += MESSAGES_OF_A_CASE if kind == "panel" else 1


def warm_up() -> None:
    """Import what a kernel imports, but for what looks at its process."""
    for name in _WARM:
        importlib.import_module(f"ctxkernel.{name}")


def main() -> int:
    """Run cases, and print each that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=[*MANY], action="append")
    parser.add_argument("--case", type=int, help="carry out only the case of this seed")
    parser.add_argument("--here", action="store_true", help="in this process, for a debugger")
    parser.add_argument("--light", action="store_true", help="as in the suite: fewer kernels and commands")
    arguments = parser.parse_args()
    warm_up()
    if arguments.light:
        SCALE.kernels, SCALE.commands = 40, 1
    with tempfile.TemporaryDirectory(prefix="fuzz-seed-", dir=_memory()) as folder:
        place = make_seed(Path(folder) / "seed")
        known = LIGHT if arguments.light else MANY
        weights = {kind: known[kind] for kind in arguments.kind or known}
        one = [(next(iter(weights)), arguments.case)]
        todo = cases(arguments.cases, arguments.seed, weights) if arguments.case is None else one
        gc.collect()
        gc.freeze()  # else the first collection of each fork copies all of the memory
        done, failed, begin = Counter[str](), 0, time.monotonic()
        left, shown = list(todo), 0
        while left:
            if arguments.here:
                print(run_case(place, *left.pop(0), Path(folder) / "work").said[-1])
                continue
            for why in in_a_fork(place, left[:BATCH]):
                kind, seed = left.pop(0)
                done[kind] += MESSAGES_OF_A_CASE if kind == "panel" else 1
                if why:
                    failed += 1
                    print(f"FAILED --kind {kind} --case {seed}: {why}\n", flush=True)
            if sum(done.values()) // 100 > shown:
                shown, spent = sum(done.values()) // 100, time.monotonic() - begin
                print(f"{sum(done.values())} cases in {spent:.0f} s, {failed} failed: {dict(done)}", flush=True)
        print(f"{sum(done.values())} cases, {failed} failed: {dict(done)}")
    return 1 if failed else 0


if __name__ == "__main__":
    import conftest  # noqa: F401  # the folders of Jupyter and IPython are not the user's

    sys.exit(main())
