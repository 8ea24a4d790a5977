"""The files that a cell read: those that it opened through Python, with a hash of their content.

Rule 1: only opening a file costs anything (0.5 µs of the 12 µs that it takes). An audit hook would see the same, but
        would slow every call of `id()` sevenfold for the rest of the session, and `copy.deepcopy` up to twofold.
Rule 2: the caller of `open` sees the same as without us: the same file, the same error, the same traceback (our frame
        is removed from it), and `open is io.open` still; a pickle of `open` loads anywhere.
Rule 3: no file is kept open, and no internal fault reaches the caller.

Not seen: files that C, C++ or Rust opens by itself (h5py, pyarrow, polars, OpenCV), files that a child process reads,
and `os.open`. Left out: Python's own files and libraries, caches, devices, files that the same cell opened for writing.
"""

from __future__ import annotations

import contextlib
import io
import os
import site
import stat
import sys
import sysconfig
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePath
from typing import Any, cast

from xxhash import xxh3_128

from ctxkernel.core.reflection import is_of_library
from ctxkernel.core.timeline import Artifact

FILE_BYTES = 32 * 1024 * 1024
"""Largest file whose content is hashed; a larger one is known by size and time of change."""
CELL_BYTES = 64 * 1024 * 1024
"""Bytes that are hashed after one cell; further files are known by size and time of change."""
LISTED = 100
"""Files of one cell that are listed one by one; the others are summed up by folder."""
NOTED = 50_000
"""Paths of one cell that are noted."""
BLOCK = 1 << 20
SETTLED_NS = 2_000_000_000
"""A file that was written longer ago than this is identified by its stamp."""

PLACES = (
    ("_io", "open"),
    ("io", "open"),
    ("builtins", "open"),
    ("bz2", "_builtin_open"),
    ("lzma", "_builtin_open"),
    ("tarfile", "bltn_open"),
    ("tokenize", "_builtin_open"),
    ("IPython.core.interactiveshell", "io_open"),
    ("_sqlite3", "connect"),
    ("sqlite3", "connect"),
    ("sqlite3.dbapi2", "connect"),
)
"""The places where Python's code finds the functions that open files. Later imports take them from the first three."""

_CACHES = ("__pycache__", ".ipython", ".jupyter", ".ctxkernel", ".git", ".mypy_cache", ".matplotlib")
_SUFFIXES = (".pyc", ".pyi", ".so", ".dll", ".dylib", ".pyd", ".ttf", ".otf", ".afm", ".mplstyle", ".ipynb")
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/System", "/Library")
_FOLDER_VARIABLES = ("MPLCONFIGDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR")
_Found = tuple[str, os.stat_result, str]
"""Path, stat and hash of a file; an empty hash is computed at the end of the cell."""


class Noting:
    """Replaces a function that opens a file, and notes the path of each file that it opens."""

    # An object, not a function: a class may have it as an attribute without binding it.
    def __init__(
        self, opens: Callable[..., Any], before: Callable[..., object] | None, after: Callable[..., object]
    ) -> None:
        self.__wrapped__ = opens
        self.__doc__ = opens.__doc__
        self.__module__ = opens.__module__
        self.__name__ = opens.__name__
        self.__qualname__ = opens.__qualname__
        self._before = before
        self._after = after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Open, and note it."""
        try:
            if self._before is not None:
                self._before(args, kwargs)
            opened = self.__wrapped__(*args, **kwargs)
            self._after(args, kwargs)
            return opened
        except BaseException as fault:
            # A bare raise adds no frame, so the user reads the same traceback as without us.
            trace = fault.__traceback__
            fault.__traceback__ = trace.tb_next if trace is not None else None
            raise

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


class FileReads:
    """Finds the files that a cell read. There is one in a process: it replaces `open`.

    `own()` returns the path of the log. `before_write` is called with the path of each file that a cell is about to
    open for writing, and `on_fault` with its exceptions.
    """

    def __init__(
        self,
        own: Callable[[], str | None] = lambda: None,
        before_write: Callable[[str], object] = lambda _: None,
        on_fault: Callable[[Exception], object] = lambda _: None,
    ) -> None:
        self._own = own
        self._before_write = before_write
        self._on_fault = on_fault
        self._on = False
        self._read: dict[str, None] = {}
        self._written: set[str] = set()
        self._made: set[str] = set()
        """Files that the cell opened to write them from their beginning."""
        self.made: frozenset[str] = frozenset()
        """Those of the cell that ended last."""
        self.opened_to_write: frozenset[str] = frozenset()
        """All files that the cell that ended last opened for writing."""
        self._before: dict[str, _Found] = {}
        """Files that were read and then written over, as they were before that."""
        self._began = 0
        self._replaced: list[tuple[Any, str, Any]] = []
        self._hashes: OrderedDict[tuple[str, int, int, int, int], str] = OrderedDict()
        self._left_out = left_out_folders()

    def install(self) -> None:
        """Replace the functions that open files. `uninstall` puts them back."""
        if self._replaced:
            return
        replacements: dict[int, Noting] = {}
        for module_name, name in PLACES:
            module = sys.modules.get(module_name)
            original = getattr(module, name, None)
            if original is None or isinstance(original, Noting):
                continue
            if id(original) not in replacements:
                is_database = name == "connect"  # opening a database does not write over it
                after = partial(self._opened, "database" if is_database else "file")
                replacements[id(original)] = Noting(original, None if is_database else self._opens, after)
            with contextlib.suppress(AttributeError, TypeError):
                setattr(module, name, replacements[id(original)])
                self._replaced.append((module, name, original))
        openers = _numpy_openers()
        if id(openers.get(None)) in replacements:
            openers[None] = replacements[id(openers[None])]

    def uninstall(self) -> None:
        """Put the functions back that nobody else replaced since."""
        for module, name, original in self._replaced:
            if getattr(getattr(module, name, None), "__wrapped__", None) is original:
                setattr(module, name, original)
        openers = _numpy_openers()
        if isinstance(openers.get(None), Noting):
            openers[None] = openers[None].__wrapped__
        self._replaced.clear()

    def begin(self) -> None:
        """Begin to note: a cell is about to run."""
        self._read, self._written, self._before, self._made = {}, set(), {}, set()
        self._began = time.time_ns()
        self._on = True

    def end(self, expired: Callable[[], bool]) -> tuple[Artifact, ...]:
        """Return the files that the cell read, by name, as artifacts of kind `read`; by stamp once time ran out."""
        self._on = False
        read, written, before = self._read, self._written, self._before
        self._read, self._written, self._before = {}, set(), {}
        self.made, self._made = frozenset(self._made), set()
        self.opened_to_write = frozenset(filter(self._of_interest, written))
        if not read:
            return ()
        try:
            folder = os.getcwd()
        except OSError:
            folder = ""
        own = self._own()
        found: dict[str, _Found] = {}
        for path in list(read):
            if path == own or not self._of_interest(path) or (path in written and path not in before):
                continue
            if path in before:
                found[_named(path, folder)] = before[path]
                continue
            real = os.path.realpath(path)
            # A file that changed since the cell began may be the cell's own work, and not what it read.
            status = self._unchanged(real)
            if status is not None and real not in written and self._of_interest(real):
                found[_named(path, folder)] = (real, status, "")
            if expired():
                break
        return tuple(self._artifacts(dict(sorted(found.items())), expired))

    def version(self, path: str) -> str:
        """Return the hash of a file as an artifact has it; its stamp if it is large, empty if it is gone."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return ""
        digest = self._hash(path, status, lambda: False) if status.st_size <= FILE_BYTES else ""
        return digest or _stamp(status)

    def _unchanged(self, path: str) -> os.stat_result | None:
        """Return the stat of a regular file that did not change since the cell began, else None."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return status if status.st_mtime_ns <= self._began and stat.S_ISREG(status.st_mode) else None

    # -- while the cell runs --------------------------------------------------------------------

    def _opens(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Hash a file that the cell has read and now opens for writing, before its content is lost."""
        if not self._on or not _writes(args, kwargs):
            return
        path = _path(args[0] if args else kwargs.get("file"))
        if path is None:
            return
        try:
            self._before_write(path)
        except ValueError:  # it is no path, as `open` will say
            return
        except Exception as fault:  # the file is written all the same
            self._on_fault(fault)
        if path in self._read and path not in self._written and path not in self._before:
            status = self._unchanged(path)
            if status is not None:
                exact = status.st_size <= FILE_BYTES
                digest = self._hash(path, status, lambda: False) if exact else ""
                self._before[path] = path, status, digest or _stamp(status)

    def _opened(self, keyword: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        path = _path(args[0] if args else kwargs.get(keyword)) if self._on else None
        if path is None:
            return
        if keyword == "file" and _writes(args, kwargs):
            self._written.add(path)
            if not _updates(args, kwargs):
                self._made.add(path)
        elif len(self._read) < NOTED and path not in self._written:
            self._read[path] = None

    # -- at its end -----------------------------------------------------------------------------

    def _of_interest(self, path: str) -> bool:
        if path.endswith(_SUFFIXES) or path.startswith(self._left_out) or is_of_library(path):
            return False
        return not any(part in _CACHES for part in path.split(os.sep))

    def _artifacts(self, found: dict[str, _Found], expired: Callable[[], bool]) -> Iterator[Artifact]:
        left = CELL_BYTES
        names = list(found)
        for name in names[:LISTED]:
            path, status, digest = found[name]
            if not digest and status.st_size <= min(FILE_BYTES, left) and not expired():
                digest = self._hash(path, status, expired)
                left -= status.st_size
            yield Artifact("read", name, "", status.st_size, digest or _stamp(status))
        folders: dict[str, list[os.stat_result]] = {}
        for name in names[LISTED:]:
            folders.setdefault(os.path.dirname(name), []).append(found[name][1])
        for folder, each in folders.items():
            digest = xxh3_128("\n".join(map(_stamp, each)).encode()).hexdigest()
            size = sum(one.st_size for one in each)
            yield Artifact("read", os.path.join(folder, f"({len(each)} more)"), "", size, f"stat:{digest}:{size}")

    def _hash(self, path: str, status: os.stat_result, expired: Callable[[], bool]) -> str:
        key = (path, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        if (known := self._hashes.get(key)) is not None:
            self._hashes.move_to_end(key)
            return known
        digest = xxh3_128()
        try:
            with io.FileIO(path) as file:
                while block := file.read(BLOCK):
                    if expired():
                        return ""
                    digest.update(block)
        except OSError:
            return ""
        made = "xxh3:" + digest.hexdigest()
        # Stamps have the resolution of the system's clock: a file may be written twice with the same one.
        if time.time_ns() - status.st_ctime_ns > SETTLED_NS:
            self._hashes[key] = made
        if len(self._hashes) > 10_000:
            self._hashes.popitem(last=False)
        return made


def _writes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    return type(mode) is str and any(sign in mode for sign in "wax+")


def _updates(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a file that is opened for writing keeps its content: `a`, `r+`."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    return not any(sign in mode for sign in "wx")


def _stamp(status: os.stat_result) -> str:
    return f"stat:{status.st_mtime_ns}:{status.st_size}"


def _numpy_openers() -> dict[Any, Any]:
    """Return the table in which `numpy.loadtxt` keeps the `open` that it found when NumPy was imported."""
    module = sys.modules.get("numpy.lib._datasource")
    openers = getattr(getattr(module, "_file_openers", None), "_file_openers", None)
    return cast("dict[Any, Any]", openers) if isinstance(openers, dict) else {}


def _path(file: object) -> str | None:
    """Return the absolute path that was opened; None for a descriptor, and where asking would run the user's code."""
    if isinstance(file, PurePath):
        file = str(file)
    elif type(file) is bytes:
        file = os.fsdecode(file)
    if type(file) is not str or not file or file == ":memory:":
        return None
    try:
        return os.path.abspath(file)
    except OSError:  # the working folder is gone
        return None


def _named(path: str, folder: str) -> str:
    """Return the path, relative if it is in the working folder."""
    inside = folder and path.startswith(folder.rstrip(os.sep) + os.sep)
    return os.path.relpath(path, folder) if inside else path


def left_out_folders() -> tuple[str, ...]:
    """Return prefixes of paths that are Python's, the system's or a library's, not the user's data."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), site.getusersitepackages()}
    folders.update(sysconfig.get_paths().values())
    folders.update(_SYSTEM if os.name == "posix" else [os.environ.get("SYSTEMROOT", r"C:\Windows")])
    folders.update(os.path.expanduser(f"~/{name}") for name in (".cache/matplotlib", ".cache/fontconfig", ".config"))
    folders.update(os.environ.get(name, "") for name in _FOLDER_VARIABLES)
    ends = {os.path.abspath(folder).rstrip(os.sep) + os.sep for folder in folders if folder}
    # The user's project may be inside an environment or /usr: a folder that contains it is no library's.
    here = os.getcwd() + os.sep
    return tuple(sorted(end for end in ends if not here.startswith(end)))
