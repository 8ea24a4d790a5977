"""The store of a sweep: a folder that the kernel and all workers reach, by fsspec (`file`, `s3`, `gs` …).

    root-<digest>        the path to the statement of --from, with the manifest of its state
    results/<task>       signed results: a task that has one does not run again
    chunks/<address>     the data of states, by content; only where the workers do not share the kernel's data folder

Rule 1: names are never written twice with another content, so nothing needs to be refreshed.
Rule 2: a reader sees a whole file or none.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from importlib import import_module
from pathlib import Path
from typing import Any

from ctxkernel.core.errors import CtxError


class SharedStore:
    """A folder of bytes by name. Raises CtxError for a URL that cannot be used."""

    def __init__(self, url: str) -> None:
        self.url = url
        path = url.removeprefix("file://") if url.startswith("file://") else "" if "://" in url else url
        self._folder = Path(path) if path else None
        self._files: Any = None
        self._root: Any = ""
        if self._folder is None:
            try:
                core: Any = import_module("fsspec.core")
                options = {"use_listings_cache": False} if url.startswith("s3://") else {}
                self._files, self._root = core.url_to_fs(url, **options)
            except (ImportError, ValueError) as fault:
                raise CtxError(f"--store {url}: {fault}; install the package that reads such addresses") from None

    def read(self, name: str) -> bytes | None:
        """Return the content of a name; None if there is none. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            if self._folder is not None:
                return (self._folder / name).read_bytes()
            return self._files.cat_file(f"{self._root}/{name}")
        return None

    def has(self, name: str) -> bool:
        """Return whether a name has a content."""
        if self._folder is not None:
            return (self._folder / name).is_file()
        return bool(self._files.exists(f"{self._root}/{name}"))

    def write(self, name: str, content: bytes) -> None:
        """Store a content under a name, whole or not at all. Raises OSError."""
        if self._folder is None:
            self._files.pipe_file(f"{self._root}/{name}", content)  # object stores write a file at once
            return
        path = self._folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
