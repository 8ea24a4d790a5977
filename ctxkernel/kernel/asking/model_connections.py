"""The surroundings of asks: keys, servers, and files of recorded turns.

Rule 1: the key is read from the environment or the keyring when it is needed, and not kept.
Rule 2: an ask of a file or of the session's log is trusted only if this user recorded it, or trusts it by word.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from ctxkernel.agent.keys import ApiKey, model_key
from ctxkernel.agent.logged_asks import asks_of_log, sign_ask, signed_parts
from ctxkernel.agent.recorded import SUFFIX, RecordedAsk, dump_turns, has_decisions, load_turns, of_path
from ctxkernel.agent.turn_files import asks_in, read_turn_file, turn_files
from ctxkernel.core.errors import BadCommand, StoreError
from ctxkernel.core.loop import Loop
from ctxkernel.store.log.location import notebook_folder, notebook_name
from ctxkernel.store.log.reader import SessionReader
from ctxkernel.store.log.session import SessionStore
from ctxkernel.store.trust_registry import TURNS, content_digest, trust_registry

FILE = "CTXKERNEL_TURNS"
"""Environment variable that names the file of recorded turns, instead of the one beside the notebook.

It says nothing about the file's content, which is trusted like that of any other file.
"""


class ModelConnections:
    """Keys, servers and recorded turns of one kernel."""

    def __init__(self, loop: Loop, store: SessionStore) -> None:
        self._loop, self._store = loop, store
        self._own: set[tuple[str, ...]] = set()
        """The parts of the asks that were answered in this kernel."""

    def key(self) -> ApiKey | None:
        """Return the key for the model's server, or None."""
        return model_key(os.environ)

    def base_url(self) -> str | None:
        """Return the server that the user named, or None for the provider's own."""
        return os.environ.get("ANTHROPIC_BASE_URL") or None

    @property
    def reachable(self) -> bool:
        """Return whether there is a key, or a server that needs none."""
        return self.key() is not None or self.base_url() is not None

    def of_session(self) -> list[RecordedAsk]:
        """Return the asks of this session's log, oldest first; those that this user signed are trusted."""
        return [] if self._store.path is None else asks_of_log(self._store.path, self._store.signer, self._own)

    def sign(self, execution_id: str, responses: Sequence[str]) -> str | None:
        """Sign the answered ask of an execution in the log; `responses` are the ids of its responses. Return a notice.

        If the log contains rows of a stranger for this execution, it is not signed.
        """
        ask = next((one for one in self.of_session() if one.execution_id == execution_id), None)
        if ask is None or [one.response_id for one in ask.rounds] != list(responses):
            return None
        if not has_decisions(ask, self._loop.log.records):
            return None
        self._own.add(signed_parts(self._store.session_id, ask))
        return sign_ask(self._store, ask)

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
        text = dump_turns(asks, self._store.mask)
        try:
            load_turns(text, path.name)
        except StoreError as fault:
            raise BadCommand(f"%ctx record: {fault}, so it could not be read again; nothing was written") from None
        aside, why = self._damaged(path)
        beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
        content = text.encode("utf-8")
        try:
            with beside.open("xb") as file:
                file.write(content)
            if aside is not None:
                path.rename(aside)
                notices = [f"{path} was damaged ({why}); it is kept as {aside.name}"]
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        word = {"path": str(path.absolute()), "at": time.time(), "by": "record"}
        if fault := trust_registry().give(TURNS, content_digest(content), word):
            notices.append(f"{path} is written, but not trusted, so its cells will wait for your approval: {fault}")
        return asks, left, notices

    def _damaged(self, path: Path) -> tuple[Path | None, str]:
        """Return a new name for an unreadable file of turns, and the reason; None if the file is readable or absent.

        Raises BadCommand if its name is not that of a file of turns: its content may be anything.
        """
        if not os.path.lexists(path):
            return None, ""
        try:
            asks_in(read_turn_file(path, None), path)
        except (OSError, StoreError) as fault:
            if path != self.path and not path.name.endswith(SUFFIX):
                raise BadCommand(f"{path} exists, and is not a file of recorded turns; give another name") from None
            names = (path.with_name(f"{path.name}.damaged{n}") for n in ("", *(f"-{n}" for n in range(2, 10_000))))
            return next(name for name in names if not os.path.lexists(name)), _reason(fault)
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
        paths = [path] if path is not None else turn_files(Path.cwd())
        return [ask for one in paths if one.is_file() for ask in self._asks_of(one)]

    def _asks_of(self, path: Path) -> list[RecordedAsk]:
        folder = None if os.environ.get(FILE) else path.parent
        try:
            return asks_in(read_turn_file(path, folder), path)
        except (OSError, StoreError) as fault:
            raise BadCommand(
                f"the recorded turns in {path} cannot be used ({_reason(fault)}): move that file away, or have "
                "%ctx record write it anew, which keeps this one aside"
            ) from None


def _reason(fault: OSError | StoreError) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
