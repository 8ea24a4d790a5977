"""The surroundings of asks: keys, servers, and files of recorded turns.

Rule 1: the key is read from the environment or the keyring when it is needed, and not kept.
"""

from __future__ import annotations

import os
from pathlib import Path

from ctxkernel.agent.keys import Key, model_key
from ctxkernel.agent.recorded import SUFFIX, RecordedAsk, dump_turns, load_turns, of_path, of_session
from ctxkernel.core.errors import BadCommand, StoreError
from ctxkernel.core.loop import Loop
from ctxkernel.store.log.location import notebook_folder, notebook_name
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.log.session import SessionStore

FILE = "CTXKERNEL_TURNS"
"""Environment variable that names the file of recorded turns, instead of the one beside the notebook."""


class ModelConnections:
    """Keys, servers and recorded turns of one kernel."""

    def __init__(self, loop: Loop, store: SessionStore) -> None:
        self._loop, self._store = loop, store

    def key(self) -> Key | None:
        """Return the key for the model's server, or None."""
        return model_key(os.environ)

    def base_url(self) -> str | None:
        """Return the server that the user named, or None for the provider's own."""
        return os.environ.get("ANTHROPIC_BASE_URL") or None

    @property
    def reachable(self) -> bool:
        """Whether there is a key, or a server that needs none."""
        return self.key() is not None or self.base_url() is not None

    def of_session(self) -> list[RecordedAsk]:
        """Return the asks of this session's log, oldest first."""
        if self._store.path is None:
            return []
        with SessionReader(self._store.path) as reader:
            requests = reader.requests()
            return of_session(requests, reader.records(all_roots=True)) if requests else []

    def record(self, path: Path) -> tuple[list[RecordedAsk], list[str], list[str]]:
        """Write the answered asks on the path to HEAD to a file. Return them, other questions, and notices.

        The file is written as a whole or not at all; a damaged file of turns is renamed. Raises BadCommand if there is
        nothing to write, or `path` contains something else; OSError.
        """
        log, store = self._loop.log, self._store
        receipts: dict[str, str] = {}
        if store.path is not None:
            with SessionReader(store.path) as reader:
                receipts = dict(reader.receipts())
        notices: list[str] = []
        try:
            known = self.asks()
        except BadCommand as fault:
            known, notices = [], [f"what only the file beside the notebook has is not in it: {fault}"]
        asks, left = of_path(log.path(), log.records, [*known, *self.of_session()], receipts)
        if not asks:
            why = f"{len(left)} asked, and none answered to the end" if left else "nothing was asked"
            raise BadCommand(f"%ctx record: there is no answered ask on the path to HEAD ({why})")
        aside, why = self._damaged(path)
        beside = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            beside.write_text(dump_turns(asks), "utf-8")
            if aside is not None:
                path.rename(aside)
                notices = [f"{path} was damaged ({why}); it is kept as {aside.name}"]
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        return asks, left, notices

    def _damaged(self, path: Path) -> tuple[Path | None, str]:
        """Return a new name for an unreadable file of turns, and the reason; None if the file is readable or absent.

        Raises BadCommand if its name is not that of a file of turns: its content may be anything.
        """
        if not path.exists():
            return None, ""
        try:
            load_turns(path.read_text("utf-8"), path.name)
        except (UnicodeError, StoreError) as fault:
            if path != self.path and not path.name.endswith(SUFFIX):
                raise BadCommand(f"{path} exists, and is not a file of recorded turns; give another name") from None
            names = (path.with_name(f"{path.name}.damaged{n}") for n in ("", *(f"-{n}" for n in range(2, 10_000))))
            return next(name for name in names if not name.exists()), str(fault)
        return None, ""

    @property
    def path(self) -> Path | None:
        """The file of recorded turns of this notebook, whether or not it exists; None if the notebook is unknown."""
        if named := os.environ.get(FILE):
            return Path(named)
        name = notebook_name(None, os.environ, os.getcwd())
        return Path(notebook_folder(os.environ, os.getcwd())) / (Path(name).stem + SUFFIX) if name else None

    def asks(self) -> list[RecordedAsk]:
        """Return the asks of the file beside the notebook; of all such files in this folder if it is unknown.

        nbconvert and papermill do not tell a kernel which notebook they execute. An ask is found by its question, so
        files of other notebooks do no harm. Raises BadCommand for an unreadable file.
        """
        path = self.path
        paths = [path] if path is not None else sorted(Path.cwd().glob(f"*{SUFFIX}"))
        return [ask for one in paths if one.is_file() for ask in self._asks_of(one)]

    def _asks_of(self, path: Path) -> list[RecordedAsk]:
        try:
            return load_turns(path.read_text("utf-8"), path.name)
        except (OSError, UnicodeError, StoreError) as fault:
            raise BadCommand(
                f"the recorded turns in {path} cannot be used ({fault}): move that file away, or have %ctx record "
                "write it anew, which keeps this one aside"
            ) from None
