"""The register of trust given by the user: one small signed file for each entry, in the user's folder.

A word says that the user trusts a subject of a kind: the content of a file (by its digest), or a session (by its id).

Rule 1: A word counts only with a valid signature of this user for its kind, subject and value. Without a secret
        nothing is trusted, and nothing can be.
Rule 2: The name of a word's file is made from a hash of ours, never from the subject.
Rule 3: Nothing here raises: reading returns None for an unusable word, and writing returns the reason as a text.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.json_input import load_json
from ctxkernel.store import signatures
from ctxkernel.store.regular_files import read_bounded, replace_file

TrustKind = Literal["turns", "settings", "session"]
TURNS: TrustKind = "turns"
"""The subject is the digest of a file of recorded turns, the value has `path` and `at`."""
SETTINGS: TrustKind = "settings"
"""The subject is the digest of a `ctxkernel.toml`, the value has `path` and `at`."""
SESSION: TrustKind = "session"
"""The subject is the id of a session."""
TRUSTED = "CTXKERNEL_TRUSTED"
"""The environment variable with the digests of contents, and the ids of sessions, that a process trusts."""
FOLDER = "trusted"
_MOST_BYTES = 64 * 1024
"""Largest file of a word."""
_MOST_WORDS = 10_000
_KINDS = frozenset((TURNS, SETTINGS, SESSION))


@dataclass(frozen=True, slots=True)
class TrustWord:
    """A word of trust."""

    kind: TrustKind
    subject: str
    value: Mapping[str, Any]


def content_digest(content: bytes) -> str:
    """Return the digest of a file's content, under which the user can trust it: SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


class TrustRegistry:
    """The words of trust of one user."""

    def __init__(self, home: Path, signer: signatures.Signer) -> None:
        """`home` is the user's folder; `signer` signs and verifies the words."""
        self.folder = home / FOLDER
        self._signer = signer

    @property
    def fault(self) -> str:
        """Why nothing can be trusted; empty if it can."""
        return self._signer.fault

    def word(self, kind: TrustKind, subject: str) -> Mapping[str, Any] | None:
        """Return the value of the word for a subject; None without a valid one."""
        found = self._read(self._path(kind, subject))
        return found.value if found is not None and (found.kind, found.subject) == (kind, subject) else None

    def give(self, kind: TrustKind, subject: str, value: Mapping[str, Any]) -> str:
        """Store a word in place of the earlier one. Return why this is not possible; empty if it is stored.

        `value` contains JSON values only.
        """
        try:
            text = _canonical(value)
            signature = self._signer.sign(*_parts(kind, subject, text))
            if signature is None:
                return f"it cannot be trusted: {self.fault}"
            row = {"kind": kind, "subject": subject, "value": json.loads(text), "signature": signature}
            content = (json.dumps(row) + "\n").encode("ascii")
            if len(content) > _MOST_BYTES:
                return f"it cannot be trusted: its entry would be larger than {_MOST_BYTES:,} bytes"
            self._prepare_folder()
            replace_file(self._path(kind, subject), content, sync=True)
        except (OSError, ValueError, TypeError, RecursionError) as fault:
            return f"it cannot be trusted: {self.folder} cannot be written: {_reason(fault)}"
        return ""

    def revoke(self, kind: TrustKind, subject: str) -> str:
        """Remove the word for a subject, if there is one. Return why this is not possible; empty if it is removed."""
        try:
            self._path(kind, subject).unlink(missing_ok=True)
        except OSError as fault:
            return f"its trust cannot be revoked: {self.folder} cannot be written: {_reason(fault)}"
        return ""

    def words(self) -> list[TrustWord]:
        """Return all valid words, sorted by kind and subject: at most 10,000."""
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry, _ in zip(entries, range(_MOST_WORDS), strict=False)]
        except OSError:
            return []
        found = (self._read(self.folder / name) for name in names if name.endswith(".json"))
        return sorted((one for one in found if one is not None), key=lambda one: (one.kind, one.subject))

    def _path(self, kind: str, subject: str) -> Path:
        named = hashlib.sha256(f"ctxkernel\0{kind}\0{subject}".encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / f"{named[:40]}.json"

    def _read(self, path: Path) -> TrustWord | None:
        """Return the word in a file; None unless this user signed it and the file has the word's own name."""
        try:
            row = load_json(read_bounded(path, _MOST_BYTES))
            kind, subject, value, signature = (row[name] for name in ("kind", "subject", "value", "signature"))
            if kind not in _KINDS or not all(isinstance(one, str) for one in (subject, signature)):
                return None
            if not isinstance(value, dict) or path != self._path(kind, subject):
                return None
            if not self._signer.is_signed(signature, *_parts(kind, subject, _canonical(cast("Any", value)))):
                return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return TrustWord(kind, subject, cast("Any", value))

    def _prepare_folder(self) -> None:
        """Create the folder with mode 0700. Raises OSError, and ValueError if the folder is not the user's alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise ValueError("it is not a folder")
        if os.name == "posix":
            if found.st_uid != os.geteuid():
                raise ValueError("it belongs to another user")
            if found.st_mode & 0o077:
                self.folder.chmod(0o700)


def _canonical(value: Mapping[str, Any]) -> str:
    """Return the value as JSON; equal values have the same text. Raises ValueError, TypeError or RecursionError."""
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parts(kind: str, subject: str, value: str) -> tuple[str, ...]:
    return "word", kind, subject, value


def _reason(fault: Exception) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)


def trust_registry(env: Mapping[str, str] | None = None) -> TrustRegistry:
    """Return the registry of this user. Never raises: without a usable folder it has a fault."""
    env = os.environ if env is None else env
    signer = signatures.signer(env)
    try:
        home = signatures.user_folder(env)
    except Exception as error:  # no home at all
        return TrustRegistry(Path(os.devnull), signer if signer.fault else signatures.Signer(None, str(error)))
    return TrustRegistry(home, signer)


def is_trusted(kind: TrustKind, subject: str, env: Mapping[str, str] | None = None) -> bool:
    """Return whether the user trusts a subject by word, or for this process by `CTXKERNEL_TRUSTED`. Never raises."""
    named = (os.environ if env is None else env).get(TRUSTED, "")
    return subject in named.split() or trust_registry(env).word(kind, subject) is not None
