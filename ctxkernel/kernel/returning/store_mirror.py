"""The second place of this kernel's session (setting `store`): pushed by processes of their own while cells run.

Rule 1: the kernel sends nothing itself: a push is `ctxkernel store push`, so a slow or broken network costs no cell.
Rule 2: a push that fails is told once, and tried again, later each time; the state here does not depend on it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.settings import Settings
from ctxkernel.core.text import format_duration
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.store.chunks.chunk_store import ChunkStore
from ctxkernel.store.chunks.quota import root_folder
from ctxkernel.store.log.session import SessionStore

if TYPE_CHECKING:
    from ctxkernel.store.mirror import Pulled

_MOST_SECONDS = 3600.0
"""The time limit of a push, and the longest pause after failures."""


@dataclass(eq=False, kw_only=True)
class StoreMirror:
    """The pushes of one session."""

    store: SessionStore
    notices: Notices
    settings_now: Callable[[], Settings]
    fault: str = ""
    """The reason why the last push failed; else empty."""
    end: str = ""
    """The statement that the mirror ends with, as the last push said."""
    _untold: str = ""
    _pushed_at: float = 0.0
    _failures: int = 0
    _thread: threading.Thread | None = None
    _dirty: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)

    @property
    def on(self) -> bool:
        """Return whether the session has a second place."""
        return bool(self.settings_now().store) and self.store.path is not None

    def stored(self) -> None:
        """Note that there is something to push, and tell what went wrong. Called on the main thread after a cell."""
        self._dirty.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ctxkernel-mirror", daemon=True)
            self._thread.start()
        untold, self._untold = self._untold, ""
        self.notices.keep(untold)

    def push(self, *, force: bool = False) -> None:
        """Push now, and wait for it; `fault` says whether it failed."""
        self._dirty.clear()
        try:
            done = subprocess.run(  # noqa: S603  our own command, with a checked setting
                self._command(force=force),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_MOST_SECONDS,
                check=False,
            )
            said = done.stdout if done.returncode == 0 else b""
            why = done.stderr.decode("utf-8", "replace").strip().removeprefix("ctxkernel store: ")
        except (OSError, subprocess.TimeoutExpired) as fault:
            said, why = b"", str(fault)
        if said:
            self.end, self.fault, self._failures, self._pushed_at = json.loads(said)["end"], "", 0, time.time()
        else:
            self.fault = why[-400:] or "the push ended without a word"
            self._failures += 1
            self._dirty.set()

    def pull(self, chunks: ChunkStore) -> Pulled:
        """Bring what is missing here of the checkpoint data. Raises StoreError."""
        from ctxkernel.store.mirror import RemoteFiles, pull_data

        return pull_data(self.store.session_id, root_folder(), RemoteFiles(self.settings_now().store), chunks)

    def status(self) -> str:
        """Return a line about the second place."""
        url = self.settings_now().store
        if self.fault:
            return f"{url} · not pushed: {self.fault}"
        if not self.end:
            return f"{url} · nothing was pushed yet"
        newer = "; what came later follows" if self._dirty.is_set() else ""
        return f"{url} · up to {self.end}, {format_duration(max(time.time() - self._pushed_at, 0))} ago{newer}"

    def hint(self) -> str:
        """Return what may bring back data that are missing here."""
        return f"; `%ctx store pull` brings them if {self.settings_now().store} has them" if self.on else ""

    def close(self) -> None:
        """Push what is left, in a process that the kernel does not wait for."""
        self._closed.set()
        if self._dirty.is_set() and self.on:
            with contextlib.suppress(OSError):
                subprocess.Popen(  # noqa: S603  as above
                    self._command(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )

    def _command(self, *, force: bool = False) -> list[str]:
        # -P: a file `json.py` beside the notebook is no module of ours.
        command = [sys.executable, "-P", "-m", "ctxkernel", "store", "push", str(self.store.path)]
        return [*command, "--at", self.settings_now().store, "--json", *(["--force"] if force else [])]

    def _run(self) -> None:
        pid = os.getpid()
        while not self._closed.is_set() and os.getpid() == pid:
            self._dirty.wait()
            pause = self.settings_now().store_seconds * 2 ** min(self._failures, 12)
            if self._closed.wait(min(pause, _MOST_SECONDS)):
                return
            if self.on:
                self.push()
                if self.fault and self._failures == 1:
                    self._untold = f"The session is not in {self.settings_now().store}: {self.fault} It is tried again."
