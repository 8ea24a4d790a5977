"""Files by name, in a folder of this machine or behind a URL that fsspec opens.

Rule 1: a reader sees a whole file or none.
Rule 2: messages name the URL, and the URL has no credentials: those come from the environment.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ctxkernel.core.errors import StoreError
from ctxkernel.store.regular_files import replace_file


class RemoteFiles:
    """The files under a URL. Raises StoreError if the URL cannot be used."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        scheme, separator, path = self.url.partition("://")
        self._folder: Path | None = None
        self._system: Any = None
        self._root = ""
        if not separator or scheme == "file":
            self._folder = Path(path if separator else self.url).expanduser().absolute()
            return
        if "@" in path or "?" in path:
            raise StoreError(
                f"the address of a store has no credentials and no query: {scheme}://…; set them in the environment, "
                "as its package says"
            )
        try:
            fsspec: Any = importlib.import_module("fsspec")
            # Other processes write there, too.
            self._system, self._root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except (ImportError, ValueError) as fault:
            raise StoreError(
                f"{self.url} cannot be opened ({fault}); install jupyter-ctxkernel[uris] and the package for "
                f"{scheme}:, such as s3fs or gcsfs"
            ) from None

    def read(self, name: str, most: int) -> bytes | None:
        """Return the content of a file; None if there is none. Raises StoreError, also if it has more than `most`."""
        try:
            if self._folder is not None:
                with (self._folder / name).open("rb") as file:
                    content = file.read(most + 1)
            else:
                content = self._system.cat_file(f"{self._root}/{name}", start=0, end=most + 1)
        except FileNotFoundError:
            return None
        except Exception as fault:  # of the network, in any package
            raise self._failed("read", fault) from fault
        if len(content) > most:
            raise StoreError(f"{self.url}/{name} is larger than {most:,} bytes: no ctxkernel wrote it")
        return content

    def names(self, folder: str) -> set[str]:
        """Return the names in a folder; none if it does not exist. Raises StoreError."""
        try:
            if self._folder is not None:
                return set(os.listdir(self._folder / folder))
            found = self._system.ls(f"{self._root}/{folder}".rstrip("/"), detail=False, refresh=True)
            return {str(one).rstrip("/").rpartition("/")[2] for one in found}
        except (FileNotFoundError, NotADirectoryError):
            return set()
        except Exception as fault:
            raise self._failed("listed", fault) from fault

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all. Raises StoreError."""
        try:
            if self._folder is None:
                self._system.pipe_file(f"{self._root}/{name}", content)  # object stores write a file at once
            else:
                path = self._folder / name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(path, content, sync=True)
        except Exception as fault:
            raise self._failed("written", fault) from fault

    def discard(self, names: Iterable[str]) -> None:
        """Remove files that nobody needs any more, as far as possible."""
        for name in names:
            with contextlib.suppress(Exception):  # it only takes space
                if self._folder is None:
                    self._system.rm_file(f"{self._root}/{name}")
                else:
                    (self._folder / name).unlink()

    def remove(self, folder: str) -> None:
        """Remove a folder with all its files. Raises StoreError."""
        try:
            if self._folder is None:
                if self._system.exists(f"{self._root}/{folder}"):
                    self._system.rm(f"{self._root}/{folder}", recursive=True)
            elif (self._folder / folder).is_dir():
                shutil.rmtree(self._folder / folder)
        except Exception as fault:
            raise self._failed("removed", fault) from fault

    def _failed(self, what: str, fault: Exception) -> StoreError:
        if isinstance(fault, StoreError):
            return fault
        why = (isinstance(fault, OSError) and fault.strerror) or f"{type(fault).__name__}: {fault}"
        return StoreError(f"{self.url} cannot be {what} ({why[:200]})")
