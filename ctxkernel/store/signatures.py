"""Signatures with a secret of the user: what has none was written by somebody else, or changed.

A checkpoint is a pickle, and loading a pickle runs code: a stranger's session could run anything.
Rule 1: Without a secret nothing is signed and nothing counts as signed. A fault here is a text, never an exception.
Rule 2: The secret is in its file and in this process's memory, never in a row, notice or error.
Rule 3: Every row of a session is signed when it is written. A signature covers session, table and all values, so a row
        cannot be made or changed by others; it can be removed, or stored again in the same session.
Rule 4: To trust a stranger's session is to sign its present rows; later ones are not covered.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs

HOME = "CTXKERNEL_HOME"
"""The environment variable that sets another folder for the user's data of ctxkernel."""
FILE = "secret"
_BYTES = 32
_PATIENCE_S = 0.5
"""The seconds that another process may take to write the secret, if the file system has no hard links."""


class Signer:
    """Signs texts, and verifies its signatures."""

    __slots__ = ("_keyed", "fault")

    def __init__(self, secret: bytes | None, fault: str = "") -> None:
        # Keyed once and copied, which halves the time of a signature; every cell waits for one.
        self._keyed = None if secret is None else hmac.new(secret, digestmod="sha256")
        self.fault = fault
        """Why there is no secret; empty if there is one."""

    def __repr__(self) -> str:
        return f"Signer({self.fault or 'ready'})"

    def sign(self, *parts: str) -> str | None:
        """Return the signature (HMAC-SHA256) of these texts in this order, in hex; None without a secret."""
        if self._keyed is None:
            return None
        mac = self._keyed.copy()
        mac.update(_message(parts))
        return mac.hexdigest()

    def is_signed(self, signature: str | None, *parts: str) -> bool:
        """Return whether `signature` is this user's for these texts, in the same time for every wrong one."""
        own = self.sign(*parts)
        return (
            own is not None
            and signature is not None
            and hmac.compare_digest(own.encode(), signature.encode("utf-8", "surrogatepass"))
        )

    def row_signer(self, session_id: str) -> RowSigner:
        """Return the signer of the rows of a session."""
        key = self.sign("rows", session_id)
        if key is None:
            return unsigned
        keyed = hashlib.blake2b(key=bytes.fromhex(key), digest_size=8)

        def sign(table: str, row: tuple[Any, ...]) -> int:
            mac = keyed.copy()
            mac.update(f"{table}{row!r}".encode())
            return int.from_bytes(mac.digest()) >> 1

        return sign


RowSigner = Callable[[str, tuple[Any, ...]], int | None]
"""Returns the signature of a row of a table: 63 bits of a keyed BLAKE2b, None without a secret."""


def unsigned(table: str, row: tuple[Any, ...]) -> None:
    """Return no signature."""


def _message(parts: Sequence[str]) -> bytes:
    """Return the texts as one; no other texts have the same result."""
    return "".join(map("{}:{}".format, map(len, parts), parts)).encode("utf-8", "surrogatepass")


_known: dict[Path, Signer] = {}


def signer(env: Mapping[str, str] | None = None) -> Signer:
    """Return the signer of this user, loaded once; the secret is created if there is none. Never raises."""
    try:
        folder = user_folder(os.environ if env is None else env)
    except Exception as error:  # no home at all
        return Signer(None, f"there is no folder for the secret that signs checkpoints ({error}); set {HOME} to one")
    found = _known.get(folder)
    if found is None or found.fault:  # the fault may have been repaired
        found = _known[folder] = load_signer(folder)
    return found


def user_folder(env: Mapping[str, str]) -> Path:
    """Return the folder of this user's data of ctxkernel; it need not exist."""
    said = env.get(HOME, "").strip()
    return Path(said).expanduser().absolute() if said else platformdirs.user_data_path("ctxkernel", appauthor=False)


def load_signer(folder: Path) -> Signer:
    """Return the signer of the secret in `folder`; one is created if there is none. Never raises."""
    path = folder / FILE
    try:
        with contextlib.suppress(FileNotFoundError):
            return Signer(_read(path))
        _make(path)
        return Signer(_read(path))
    except (OSError, ValueError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return Signer(None, f"the secret that signs checkpoints, {path}, cannot be used: {why}")


def _read(path: Path) -> bytes:
    """Return the secret. Raises OSError, and ValueError with the next step if others can read or change it."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(path, flags), "rb", 0) as file:
            _check(os.fstat(file.fileno()))
            found = file.read(_BYTES + 1)
        if len(found) == _BYTES:
            return found
        if len(found) > _BYTES or time.monotonic() > deadline:
            raise ValueError(
                f"it has not {_BYTES} bytes; delete it to create a new one "
                "(its signatures are invalid then, and you must trust those sessions again)"
            )
        time.sleep(0.01)


def _check(found: os.stat_result) -> None:
    posix = os.name == "posix"  # elsewhere others cannot read the user's folder
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no file")
    if posix and found.st_uid != os.geteuid():
        raise ValueError("it belongs to another user")
    if posix and found.st_mode & 0o077:
        raise ValueError(
            "other users may read or change it; remove their rights (chmod 600), or set "
            f"{HOME} to a folder on a file system that has such rights"
        )


def _make(path: Path) -> None:
    """Write a secret unless another process is first. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{FILE}-{secrets.token_hex(8)}")
    try:
        _write(fresh)
        try:
            # Atomic, and never over another secret: a rename would replace it.
            (os.rename if os.name == "nt" else os.link)(fresh, path)
        except FileExistsError:
            pass
        except OSError:  # no hard links on this file system
            with contextlib.suppress(FileExistsError):
                _write(path)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()


def _write(path: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb", 0) as file:
        file.write(secrets.token_bytes(_BYTES))
        os.fsync(file.fileno())
