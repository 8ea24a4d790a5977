"""Kernels that are killed while they write: run by `test_torture.py`, as a process of its own without threads.

    python torture.py FOLDER KILLS SEED     prints what happened as one line of JSON; status 1 at the first loss

Each victim is a fork of this process. It opens the session that the ones before it left, goes on in it, and tells by a
pipe what its store has acknowledged. It dies by SIGKILL: sent after a random time, or by its own hand before, within or
after the k-th of its writes (a call of SQLite or of the system). Then all that was ever acknowledged must be there.
A part of the deaths is played as a power loss, on a copy: what the disk was not told to keep is cut, zeroed or flipped.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from ctxkernel.core.errors import StoreError
from ctxkernel.core.replay import Comparison, Divergence, HeadMove
from ctxkernel.core.timeline import Execution, Statement, StatementLog
from ctxkernel.core.timeline_events import StatementExecuted
from ctxkernel.core.turn_values import TurnResult
from ctxkernel.state.checkpoints import units
from ctxkernel.store.chunks.background import Background
from ctxkernel.store.chunks.chunk_store import ChunkStore, address_of, stream_address
from ctxkernel.store.chunks.manifest import Manifest
from ctxkernel.store.log.resumable_runs import load_run
from ctxkernel.store.log.session import CheckpointRow, SessionReader, SessionStore
from ctxkernel.store.log.session_check import verify

KILLS_PER_SESSION = 20
MOST_STATEMENTS = 80
"""Over so many a new session is begun: what is looked at after each kill grows with it."""
SECONDS = 0.03
"""The least upper bound of the time after which a victim is killed; on a busy machine it is what one took to open."""
OPERATIONS = 900
"""About as many calls of those that are counted as a victim makes in that time."""


# -- the victim ------------------------------------------------------------------------------------


class Fuse:
    """Counts operations, and kills this process at the k-th one: before it, within it, or after it."""

    def __init__(self, at: int, when: str, chance: random.Random) -> None:
        self.left = at
        self.when = when
        self.chance = chance

    def burn(self, operation, within, *args, **kwargs):
        """Do `operation`; `within` does a part of it."""
        self.left -= 1
        if self.left:
            return operation(*args, **kwargs)
        try:
            if self.when == "within":
                within(*args)
            elif self.when == "after":
                operation(*args, **kwargs)
        finally:  # it may be one that fails
            os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("alive")

    def lay(self) -> None:
        """Lay it at all that writes."""
        fuse = self

        class Connection(sqlite3.Connection):
            def execute(self, *args):
                return fuse.burn(super().execute, functools.partial(self._part, super().execute), *args)

            def executemany(self, *args):
                return fuse.burn(super().executemany, functools.partial(self._part, super().executemany), *args)

            def _part(self, operation, *args) -> None:
                steps = iter(range(fuse.chance.randrange(40)))

                def step() -> int:
                    if next(steps, None) is None:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return 0

                self.set_progress_handler(step, 1)  # at each instruction of SQLite's machine
                operation(*args)

        sqlite3.connect = functools.partial(sqlite3.connect, factory=Connection)

        def half_written(write, descriptor: int, data) -> None:
            view = memoryview(data).cast("B")
            if descriptor > 2:
                write(descriptor, view[: self.chance.randrange(len(view) + 1)])

        for name in ("write", "open", "close", "fsync", "ftruncate", "link", "unlink", "mkdir", "replace"):
            real = getattr(os, name)
            within = functools.partial(half_written, real) if name == "write" else lambda *args: None
            setattr(os, name, functools.partial(fuse.burn, real, within))


class Victim:
    """Goes on in a session until it is killed."""

    def __init__(self, path: Path, pipe: int, chance: random.Random) -> None:
        self._pipe = pipe
        self._write = os.write
        self.chance = chance
        self.path = path

    def tell(self, *words: object) -> None:
        """Acknowledge something."""
        self._write(self._pipe, (json.dumps(words) + "\n").encode())

    def live(self) -> None:
        """Open the session, resume, and run statements for ever."""
        chance = self.chance
        self.store = store = SessionStore.open(self.path, now=time.time)
        self.tell("open", str(store.path), store.notice)
        self.chunks = ChunkStore(self.path.with_suffix(".data"))
        self.background = Background(self.chunks)
        self.log = log = StatementLog()
        log.start_after(store.last_index)
        self.base: str | None = None
        self.awaited: list[tuple[Any, str]] = []
        found = load_run(self.path, before=store.run, chunks=self.chunks, references=units.references)
        if found is not None and found.target is not None and chance.random() < 0.8:
            assert store.resume(found.target, time.time()) is None
            log.load(found.statements, found.target, movers=found.movers)
            self.base = f"c{found.target}"
            self.tell("resume", found.target)
        while True:
            self.turn()

    def turn(self) -> None:
        """Run one statement, new or again, with all that its turn may bring."""
        chance, store, log = self.chance, self.store, self.log
        at = time.time()
        again = chance.choice(list(log)) if len(log) and chance.random() < 0.3 else None
        if again is not None:
            eid = log.next_execution_id(again.statement_id)
            statement, running = again, Execution(eid, again.statement_id, log.head, at)
            log.append_execution(running)
        else:
            index = log.next_index
            statement = Statement(f"s{index}", index, at, f"x = {index}")
            running = Execution(f"s{index}.1", statement.statement_id, log.head, at)
            log.append(statement, running)
        eid = running.execution_id
        notice = store.begin(statement, running)
        self.tell("begun", eid, notice)

        row = self.checkpoint(eid) if chance.random() < 0.8 else None
        moved = compared = None
        if chance.random() < 0.1:
            some = chance.choice([run.execution_id for one in log for run in log.executions(one.statement_id)])
            moved = HeadMove(some, "goto", at)
        if not eid.endswith(".1"):
            first = f"{statement.statement_id}.1"
            compared = Comparison(eid, first, (Divergence("output", "stdout", "differs"),))
        # What is printed says what the whole turn holds.
        printed = f"{eid} {int(row is not None)} {int(moved is not None)} {int(compared is not None)} "
        printed += "o" * chance.choice([0, 10, 1000, 60_000])
        events = (StatementExecuted(statement.statement_id, eid, "ok"),)
        ended = replace(running, ended_at=at + 0.001, status="ok", stdout=printed, events=events)
        log.finish(ended)
        if moved is not None:
            log.move_head(moved.to, by=eid)
        result = TurnResult(1, statement, ended, (), (), events, moved=moved, comparison=compared)
        notice = store.end(result, checkpoint=row)
        self.tell("ended", eid, len(printed), row.state if row is not None else None, notice)
        self.base = row.checkpoint_id if row is not None and moved is None else None
        if chance.random() < 0.1:
            self.tell("named", eid, store.mark(eid, "name", f"n{eid}", at))
        self.settle()

    def checkpoint(self, eid: str) -> CheckpointRow:
        """Store data and return the row that names them; a part is stored in the background."""
        data = content(eid)
        stream = units.bundle([eid.encode()])
        if self.chance.random() < 0.03:
            job = f"{eid}:0"

            def write(store: ChunkStore) -> Any:
                store.put(address_of(data), data)
                store.put(stream_address(stream), stream)
                return {job: {"units": [unit(data, stream)]}}

            self.awaited.append((self.background.submit(write, nbytes=len(data)), f"c{eid}"))
            return CheckpointRow(f"c{eid}", manifest(None, {"n": ["x"], "j": job}), len(data), state="writing")
        self.chunks.put(address_of(data), data)
        self.chunks.put(stream_address(stream), stream)
        base = self.base if self.base is not None and self.store.has_checkpoint(self.base) else None
        return CheckpointRow(f"c{eid}", manifest(base, unit(data, stream)), len(data), time_ms=0.5)

    def settle(self) -> None:
        """Tell the log what the background has finished."""
        self.background.poll()
        for ticket, cid in [one for one in self.awaited if one[0].done]:
            self.awaited.remove((ticket, cid))
            if not ticket.fault:
                self.store.checkpoint_state(cid, "durable", "", time.time(), results=ticket.result)
                self.tell("durable", cid)


def content(eid: str) -> bytes:
    """Return the data of the state after an execution."""
    return (eid.encode() + b" ") * (20_000 if eid.endswith("7.1") else 50)


def unit(data: bytes, stream: bytes) -> dict[str, Any]:
    return {"n": ["x"], "d": "0", "s": [stream_address(stream), 0], "b": [[len(data), [address_of(data)]]]}


def manifest(base: str | None, made: dict[str, Any]) -> dict[str, Any]:
    return {"v": 2, "base": base, "units": [made], "gone": []}


# -- the one that looks after it ---------------------------------------------------------------------


class Loss(AssertionError):
    """Something that was acknowledged is not there, or is not what it was."""


class Torture:
    """Kills, and looks."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.path = folder / "none"
        self.told: dict[str, Any] = {}
        self.opening = SECONDS
        self.counts = dict.fromkeys(
            ("kills", "begun", "ended", "resumed", "power_losses", "sessions", "by_own_hand", "background"), 0
        )

    def run(self, kills: int) -> None:
        """Kill so many times."""
        since = KILLS_PER_SESSION
        while self.counts["kills"] < kills:
            if since == KILLS_PER_SESSION or len(self.told.get("begun", ())) > MOST_STATEMENTS:
                if self.counts["sessions"]:
                    self.look_at_all()
                self.begin_session()
                since = 0
            since += 1
            self.kill()
            self.look()
            if self.chance.random() < 0.3:
                self.power_loss()
        self.look_at_all()

    def begin_session(self) -> None:
        """Leave the session, and begin another."""
        self.counts["sessions"] += 1
        self.path = self.folder / f"{self.counts['sessions']}.sqlite"
        self.told = {"begun": set(), "ended": {}, "named": set(), "durable": set()}

    def kill(self) -> None:
        """Fork a victim, and let it die at a random instant."""
        chance = self.chance
        reading, writing = os.pipe()
        by_own_hand = chance.random() < 0.6
        k = int(OPERATIONS ** chance.random() ** 0.5)  # often enough in the opening, too
        fuse = Fuse(k, chance.choice(["before", "within", "after"]), random.Random(chance.random()))
        victim = Victim(self.path, writing, random.Random(chance.random()))
        forked = time.monotonic()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(reading)
                if by_own_hand:
                    fuse.lay()
                victim.live()
            except BaseException:
                victim.tell("fault", traceback.format_exc())
            finally:
                os._exit(3)
        os.close(writing)
        with open(reading, "rb") as pipe:
            acknowledged = b""
            if not by_own_hand:
                if chance.random() < 0.7:
                    acknowledged = pipe.readline()  # it is open
                    self.opening = max(SECONDS, time.monotonic() - forked)
                time.sleep(chance.random() ** 2 * self.opening)
                os.kill(pid, signal.SIGKILL)
            acknowledged += pipe.read()
        os.waitpid(pid, 0)
        self.counts["kills"] += 1
        self.counts["by_own_hand"] += by_own_hand
        for line in acknowledged.splitlines(keepends=True):
            if line.endswith(b"\n"):
                self.hear(*json.loads(line))

    def hear(self, what: str, *words: Any) -> None:
        """Take down what a victim said. Raises Loss where it met a fault."""
        told = self.told
        if what == "fault" or (what != "resume" and words[-1] is not None and what != "durable"):
            raise Loss(f"{what}: {words}")
        if what == "open" and words[0] != str(self.path):
            raise Loss(f"the session {self.path} could not be continued: {words}")
        if what == "begun":
            told["begun"].add(words[0])
            self.counts["begun"] += 1
        elif what == "ended":
            eid, size, state, _ = words
            told["ended"][eid] = (size, state)
            self.counts["ended"] += 1
        elif what == "named":
            told["named"].add(words[0])
        elif what == "durable":
            told["durable"].add(words[0])
            self.counts["background"] += 1
        elif what == "resume":
            self.counts["resumed"] += 1

    def look(self) -> None:
        """Look whether all that was acknowledged is there. Raises Loss."""
        told = self.told
        if not told["begun"] and not self.path.exists():
            return
        try:
            reader = SessionReader(self.path)
        except Exception as error:
            if told["begun"]:
                raise Loss(f"the session cannot be read: {error}") from error
            return  # killed before it was made
        with reader:
            found = {run.execution_id: run for _, runs in reader.statements(all_roots=True) for run in runs}
            self.check(found, set(told["begun"]) <= found.keys(), "a statement that began")
            for eid, (size, _) in told["ended"].items():
                self.check(eid, found[eid].status == "ok" and len(found[eid].stdout) == size, "an end")
            checkpoints = reader.checkpoints(all_roots=True)
            compared = {one.execution_id for one in reader.comparisons(all_roots=True)}
            moved = {subject for subject, mark in reader.marks() if mark == "moved"}
            for eid, run in found.items():  # acknowledged or not: a turn is there whole, or its end is not
                there = (eid in checkpoints, eid in moved, eid in compared, bool(run.events))
                expected = (False,) * 4
                if run.status == "ok":
                    name, *flags, _ = run.stdout.split(" ", 4)
                    self.check(eid, name == eid, "what was printed")
                    expected = (*(flag == "1" for flag in flags), True)
                self.check((eid, there, expected), there == expected, "a part of a turn")
            for cid in told["durable"]:
                self.check(cid, checkpoints[cid[1:]].state == "durable", "a state of a checkpoint")
            self.check("marks", told["named"] <= set(reader.names().values()), "a name")
            self.check("rows", not reader.damage, "the soundness of a row")
        self.look_at_states(self.path, {eid for eid, (_, state) in told["ended"].items() if state == "durable"})

    def look_at_states(self, path: Path, durable: set[str]) -> None:
        """Look whether the next kernel can resume, at the newest state that was acknowledged or a newer one."""
        chunks = ChunkStore(path.with_suffix(".data"))
        tried = 0
        while (found := load_run(path, chunks=chunks, references=units.references)) is not None:
            way = list(found.path_to_head)
            known = [eid for eid in way if eid in durable]
            if known:
                self.check(found.not_restorable, found.target is not None, "a state")
                self.check(
                    found.not_restorable, way.index(str(found.target)) <= way.index(known[0]), "the newest state"
                )
            if found.target is None:
                break
            self.check(found.target, found.trusted, "a signature")
            with SessionReader(path) as reader:
                manifest = reader.all_manifests()[found.target]
            try:
                self.load(found.target, manifest, chunks)
                break
            except StoreError as error:  # torn: the store does not offer it again
                tried += 1
                self.check(error, path != self.path and tried <= len(way), "the data of a state")
        chunks.close()

    def load(self, eid: str, made: Manifest, chunks: ChunkStore) -> None:
        """Load a state, and look whether it is what it was. Raises StoreError where its data are damaged."""
        (only,) = made.parse()["units"]
        if "j" in only:
            (only,) = made.results()[only["j"]]["units"]
        stream = bytes(units.unbundle(chunks.read(only["s"][0]), 0))
        data = bytes(chunks.read(only["b"][0][1][0]))
        self.check(eid, (stream, data) == (eid.encode(), content(eid)), "the content of a state")

    def look_at_all(self) -> None:
        """Look at everything in the session, and go on in it once more. Raises Loss."""
        if not self.path.exists():
            return
        store = SessionStore.open(self.path)
        self.check(store.notice, store.path == self.path and store.notice is None, "the session")
        store.close()
        chunks = ChunkStore(self.path.with_suffix(".data"))
        report = verify(self.path, chunks, units.references)
        self.check(report.damage, report.sound, "the soundness of a session")
        chunks.close()
        for left in self.folder.glob(f"{self.path.stem}*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def check(self, subject: object, holds: bool, what: str) -> None:
        if not holds:
            raise Loss(f"{what} was lost: {subject}")

    # -- power losses -----------------------------------------------------------------------------

    def power_loss(self) -> None:
        """On a copy, lose some of what the disk was not told to keep; the log must be a clean prefix."""
        if not self.path.exists():
            return
        try:
            with SessionReader(self.path) as reader:
                whole = [run.execution_id for _, runs in reader.statements(all_roots=True) for run in runs]
                starts = reader.connection.execute("SELECT execution_id FROM executions ORDER BY seq").fetchall()
        except Exception:  # killed before it was made
            return
        self.counts["power_losses"] += 1
        copy = self.folder / "copy" / "note.sqlite"
        shutil.rmtree(copy.parent, ignore_errors=True)
        copy.parent.mkdir()
        shutil.copyfile(self.path, copy)
        wal = Path(f"{self.path}-wal")
        if wal.exists():
            log = wal.read_bytes()
            if self.chance.random() < 0.5:
                self.tear_pages(copy, log)
            else:
                log = self.torn(log, self.folded(log))
            Path(f"{copy}-wal").write_bytes(log)
        data = self.path.with_suffix(".data")
        if data.is_dir():
            shutil.copytree(data, copy.with_suffix(".data"))
            for file in copy.with_suffix(".data").iterdir():
                if self.chance.random() < 0.3:
                    file.write_bytes(self.torn(file.read_bytes()))
        store = SessionStore.open(copy)
        self.check(store.notice, store.path == copy and store.notice is None, "after a power loss, the session")
        store.close()
        report = verify(copy)
        self.check(report.damage, report.sound, "after a power loss, the soundness of the log")
        with SessionReader(copy) as reader:
            left = reader.connection.execute("SELECT execution_id FROM executions ORDER BY seq").fetchall()
            self.check(left, left == starts[: len(left)], "after a power loss, the prefix")
            self.check(left, reader.log(all_roots=True).executed <= len(whole), "after a power loss, the tree")
        self.look_at_states(copy, set())

    def torn(self, data: bytes, kept: int = 0) -> bytes:
        """Return data of which the end was not written, or written in part; the first `kept` bytes were."""
        if len(data) <= kept:
            return data
        at = self.chance.randrange(kept, len(data))
        way = self.chance.choice(["cut", "zeros", "sector", "bit"])
        if way == "cut":
            return data[:at]
        if way == "zeros":
            return data[:at] + bytes(len(data) - at)
        if way == "sector":
            end = min(at + 512, len(data))
            return data[:at] + bytes(end - at) + data[end:]
        return data[:at] + bytes([data[at] ^ 1 << self.chance.randrange(8)]) + data[at + 1 :]

    def frames(self, log: bytes) -> tuple[int, list[int]]:
        """Return the size of a page, and the pages of the frames of a write-ahead log up to its last commit."""
        if len(log) < 32:
            return 0, []
        size = struct.unpack_from(">I", log, 8)[0]
        pages: list[int] = []
        committed = 0
        for offset in range(32, len(log) - size - 23, size + 24):
            number, commit = struct.unpack_from(">II", log, offset)
            if log[offset + 8 : offset + 16] != log[16:24]:
                break  # of an earlier use of the file
            pages.append(number)
            committed = len(pages) if commit else committed
        return size, pages[:committed]

    def folded(self, log: bytes) -> int:
        """Return the bytes of the log that were synced, since they were folded into the file or are about to be."""
        index = Path(f"{self.path}-shm").read_bytes() if Path(f"{self.path}-shm").exists() else b""
        done = struct.unpack_from("=I", index, 96)[0] if len(index) >= 136 else 0
        tried = struct.unpack_from("=I", index, 128)[0] if len(index) >= 136 else 0
        size, _ = self.frames(log)
        return 32 + max(done, tried) * (size + 24) if done or tried else 0

    def tear_pages(self, copy: Path, log: bytes) -> None:
        """Spoil pages of the file of which the log has a newer state: the power went while that was folded in.

        The log was synced before, so nothing of it is torn then.
        """
        size, pages = self.frames(log)
        raw = bytearray(copy.read_bytes())
        for number in set(pages):
            start = (number - 1) * size
            if start + size <= len(raw) and self.chance.random() < 0.3:
                raw[start : start + size] = self.chance.randbytes(size)
        copy.write_bytes(raw)


def main(folder: str, kills: str, seed: str) -> int:
    """Run; print what happened."""
    begun = time.monotonic()
    torture = Torture(Path(folder), int(seed))
    fault = ""
    try:
        torture.run(int(kills))
    except Exception:
        fault = traceback.format_exc()
    print(json.dumps({**torture.counts, "seconds": round(time.monotonic() - begun, 1), "fault": fault}))
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
