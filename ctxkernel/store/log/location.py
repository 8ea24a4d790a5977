"""The path of a notebook's session, and the notebook to which a session file belongs.

Rule 1: A path is a hint: the content of a session file decides, never its name.
Rule 2: Nothing here changes or deletes a session.
Rule 3: The environment and the working directory are arguments.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ctxkernel.store.regular_files import ForeignFileError, open_regular, why_foreign

FOLDER = ".ctxkernel"
OVERRIDE = "CTXKERNEL_SESSION"
HINT = "JPY_SESSION_NAME"
CONSOLE = "console"
"""The name of the session of a kernel without a notebook."""
CHECK = "ctxkernel verify"
"""The command that messages recommend for a session that seems damaged."""

_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
# JupyterLab asks for a session under `<path>-<uuid>` and moves it afterwards; VS Code uses `<name>-jvsc-<uuid>.ipynb`.
_AFTER_PATH = re.compile(rf"(?<=\.ipynb)-{_UUID}$", re.IGNORECASE)
_VSCODE = re.compile(rf"-jvsc-{_UUID}(?=\.ipynb$)", re.IGNORECASE)
# A drive of a collaborating server (`RTC:notes.ipynb`), but not one of Windows (`C:\notes.ipynb`).
_DRIVE = re.compile(r"^[A-Za-z]{2,}:(?![/\\]{2})")
_MOST_NAME_BYTES = 180
"""`-wal` and `.lock` are appended to a name that file systems bound at 255 bytes."""
_MOST_SESSIONS = 1000


def session_path(
    notebook: str | None, env: Mapping[str, str], cwd: str | os.PathLike[str], program: str | None = None
) -> Path:
    """Return the absolute path of the session of `notebook`, or of the notebook that the environment names.

    In this order: `CTXKERNEL_SESSION` (relative to `cwd`) · `notebook` · `JPY_SESSION_NAME` · `program` · `console`.
    The session is not read, and need not exist.
    """
    override = env.get(OVERRIDE, "").strip()
    if override:
        return Path(cwd) / Path(override).expanduser()
    folder, name = _hinted(env.get(HINT, ""), Path(cwd))
    if name == CONSOLE and program is not None:
        name = program
    if notebook:
        at = Path(cwd) / Path(notebook).expanduser()
        folder, name = at.parent, at.name
    return folder / FOLDER / f"{_stem(name)}.sqlite"


def notebook_name(notebook: str | None, env: Mapping[str, str], cwd: str | os.PathLike[str]) -> str | None:
    """Return the file name of the notebook that `session_path` would use, or None if none is known."""
    if notebook:
        return Path(notebook).name
    name = _hinted(env.get(HINT, ""), Path(cwd))[1]
    return None if name == CONSOLE else name


def notebook_folder(env: Mapping[str, str], cwd: str | os.PathLike[str]) -> Path:
    """Return the folder of the notebook that the environment names, else `cwd`."""
    return Path(cwd) / _hinted(env.get(HINT, ""), Path(cwd))[0]


def _hinted(hint: str, cwd: Path) -> tuple[Path, str]:
    """Return (folder, file name) of the notebook that a server's hint names, else (cwd, `console`).

    The hint may be absolute, relative to the server's root, which is unknown here, the name of a console, or a
    generated id. A kernel starts in the folder of its notebook, so `cwd` decides if the hint is ambiguous.
    """
    hint = _VSCODE.sub("", _AFTER_PATH.sub("", _DRIVE.sub("", hint.strip())))
    at = Path(hint.replace("\\", "/") if os.name == "nt" else hint)
    if not hint or not at.name or "\0" in hint:
        return cwd, CONSOLE
    here = cwd / at.name
    if at.is_absolute():
        # A server that sends its own root instead of the notebook's folder names a file that does not exist.
        folder = at.parent if _is_file(at) or (not _is_file(here) and os.path.isdir(at.parent)) else cwd
    else:
        folder = cwd if _is_file(here) or not _is_file(cwd / at) else (cwd / at).parent
    if at.suffix == ".ipynb" or _is_file(folder / at.name):
        return folder, at.name
    return cwd, CONSOLE


def _is_file(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return path.is_file()
    return False


def _stem(name: str) -> str:
    """Return the session's name for a notebook's file name; a script opened as a notebook keeps its suffix."""
    stem = name.removesuffix(".ipynb") or name
    raw = os.fsencode(stem)
    if len(raw) <= _MOST_NAME_BYTES:
        return stem
    return raw[: _MOST_NAME_BYTES - 9].decode("utf-8", "ignore") + "-" + hashlib.sha256(raw).hexdigest()[:8]


def siblings(path: Path) -> Iterator[Path]:
    """Yield `path`, then `<name>-2`, `<name>-3`, … beside it, for a second live kernel."""
    yield path
    for number in range(2, _MOST_SESSIONS):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def is_named(env: Mapping[str, str]) -> bool:
    """Return whether the user named the session's file, rather than a notebook."""
    return bool(env.get(OVERRIDE, "").strip())


def belongs(path: Path, base: Path, stored_notebook: str | None, *, named: bool = False) -> bool:
    """Return whether the session file `path`, one of `siblings(base)`, belongs to the notebook of `base`.

    `a-2.sqlite` may be the second session of `a.ipynb` or the first of `a-2.ipynb`: the notebook's name in the file
    decides. If that name matches neither (a renamed notebook or session) the file belongs to it, as does a `base` that
    the user `named`.
    """
    if not stored_notebook or (named and path == base):
        return True
    stored = _stem(stored_notebook)
    if path == base:
        return re.fullmatch(re.escape(stored) + r"-\d+", path.stem) is None
    return stored != path.stem


def existing_sessions(base: Path) -> list[Path]:
    """Return the session files that may belong to the notebook of `base`, `base` first, by their numbers."""
    pattern = re.compile(re.escape(base.stem) + r"-([1-9]\d*)" + re.escape(base.suffix))
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(base.parent)
    numbered = sorted((int(match[1]), match[0]) for match in filter(None, map(pattern.fullmatch, names)))
    return [path for path in (base, *(base.with_name(name) for _, name in numbered)) if _is_file(path)]


def prepare_folder(path: Path) -> None:
    """Create the folder of the session `path` with mode 0700; git ignores a `.ctxkernel`.

    Raises OSError; ForeignFileError if a `.ctxkernel` is a symbolic link.
    """
    folder = path.parent
    if folder.name == FOLDER and folder.is_symlink():
        raise ForeignFileError(folder, "it is a symbolic link, which may lead out of the notebook's folder")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.name == FOLDER:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(folder / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write("*\n")


def prepare_file(path: Path, *, fresh: bool = False) -> None:
    """Create an empty session file with mode 0600, or remove the rights of others from an existing one.

    Raises OSError; FileExistsError for an existing one if `fresh`, ForeignFileError if the file, or one that SQLite
    keeps beside it, is a link, a folder, or no file. SQLite gives its `-wal` and `-shm` the mode of the file.
    """
    for one in (path, *sidecars(path)):
        if why := why_foreign(one):
            raise ForeignFileError(one, why)
    _refuse_super_journal(path)
    # An existing file is not opened: closing a descriptor of a database drops the locks that SQLite holds on it.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if fresh:
            raise
    with contextlib.suppress(OSError):  # another user's file: reading and writing may still be allowed
        if os.name == "posix" and path.stat().st_mode & 0o077:
            path.chmod(0o600)


def sidecars(path: Path) -> list[Path]:
    """Return the files that SQLite keeps beside a database."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The last bytes of a rollback journal that names another file (sqlite.org/fileformat.html, section 3)."""


def _refuse_super_journal(path: Path) -> None:
    """Raise ForeignFileError if a rollback journal names another file: SQLite may delete that. Raises OSError."""
    journal = sidecars(path)[-1]
    with contextlib.suppress(FileNotFoundError), os.fdopen(open_regular(journal, os.O_RDONLY), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(_SUPER_JOURNAL)))
        # A header begins with the same bytes: only the end of the file counts, as for SQLite itself.
        if size >= 16 and file.read() == _SUPER_JOURNAL:
            raise ForeignFileError(journal, "it names another file, which SQLite would delete")
