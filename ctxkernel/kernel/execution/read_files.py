"""Which files a cell read: those that it opened through Python, with a hash of what stands in them.

Rule 1: only opening a file costs anything (0.5 µs of 12). An audit hook would see the same, but each call of `id()`
        would take seven times as long for the rest of the session, and `copy.deepcopy` up to twice.
Rule 2: whoever opens a file sees what he would see without us: the same file, the same error, the same traceback
        (our frame is taken out of it), and `open is io.open` still; a pickle of `open` loads anywhere.
Rule 3: nothing is kept open, and no fault of ours reaches the caller.

Not seen: files that C, C++ or Rust opens by itself (h5py, pyarrow, polars, OpenCV), what a child process reads, and
`os.open`. Left out: Python's own files and libraries, caches, devices, what was opened for writing by the same cell.
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
from pathlib import PurePath
from typing import Any, cast

from xxhash import xxh3_128

from ctxkernel.core.timeline import Artifact

FILE_BYTES = 32 * 1024 * 1024
"""Largest file whose content is hashed; of a larger one size and time of change have to do."""
CELL_BYTES = 64 * 1024 * 1024
"""Bytes that are hashed after one cell; then size and time of change have to do."""
LISTED = 100
"""Files of one cell that are listed one by one; the rest is told by folder."""
NOTED = 50_000
"""Paths of one cell that are noted."""
BLOCK = 1 << 20
SETTLED_NS = 2_000_000_000
"""A file that was written longer ago than this is known by its stamp."""

PLACES = (
    ("_io", "open"),
    ("io", "open"),
    ("builtins", "open"),
    ("bz2", "_builtin_open"),
    ("lzma", "_builtin_open"),
    ("tarfile", "bltn_open"),
    ("IPython.core.interactiveshell", "io_open"),
    ("_sqlite3", "connect"),
    ("sqlite3", "connect"),
    ("sqlite3.dbapi2", "connect"),
)
"""Where Python's code finds what opens a file. Modules that are imported later take it from the first three."""

_CACHES = ("__pycache__", ".ipython", ".jupyter", ".ctxkernel", ".git", ".mypy_cache", ".matplotlib")
_SUFFIXES = (".pyc", ".pyi", ".so", ".dll", ".dylib", ".pyd", ".ttf", ".otf", ".afm", ".mplstyle", ".ipynb")
_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/System", "/Library")


Note = Callable[[tuple[Any, ...], dict[str, Any]], None]


class Noting:
    """Stands for a function that opens a file, and notes the path of each that it opened."""

    # An object, not a function: a class may have it as an attribute without binding it.
    def __init__(self, opens: Callable[..., Any], before: Note, after: Note) -> None:
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
            self._before(args, kwargs)
            opened = self.__wrapped__(*args, **kwargs)
            self._after(args, kwargs)
            return opened
        except BaseException as fault:
            # A bare raise adds no frame, so what the user reads is what he would read without us.
            trace = fault.__traceback__
            fault.__traceback__ = trace.tb_next if trace is not None else None
            raise

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


class FileReads:
    """Finds the files that a cell read. One a process: it stands in place of `open`."""

    def __init__(
        self, own: Callable[[], str | None] = lambda: None, before_write: Callable[[str], object] = lambda _: None
    ) -> None:
        self._own = own
        self._before_write = before_write
        """Called with the path of each file that a cell is about to open to write."""
        self._on = False
        self._read: dict[str, None] = {}
        self._written: set[str] = set()
        self._before: dict[str, tuple[os.stat_result, str]] = {}
        """What was read and then written over: its stat and hash before that."""
        self._began = 0
        self._replaced: list[tuple[Any, str, Any]] = []
        self._hashes: OrderedDict[tuple[str, int, int, int, int], str] = OrderedDict()
        self._left_out = left_out_folders()

    def install(self) -> None:
        """Put the noting ones in place. `uninstall` takes them off."""
        if self._replaced:
            return
        stand_ins: dict[int, Noting] = {}
        for module_name, name in PLACES:
            module = sys.modules.get(module_name)
            original = getattr(module, name, None)
            if original is None or isinstance(original, Noting):
                continue
            if id(original) not in stand_ins:
                before, after = (_nothing, self._connected) if name == "connect" else (self._opens, self._opened)
                stand_ins[id(original)] = Noting(original, before, after)
            with contextlib.suppress(AttributeError, TypeError):
                setattr(module, name, stand_ins[id(original)])
                self._replaced.append((module, name, original))
        openers = _numpy_openers()
        if id(openers.get(None)) in stand_ins:
            openers[None] = stand_ins[id(openers[None])]

    def uninstall(self) -> None:
        """Put back what was there, where nobody else replaced it since."""
        for module, name, original in self._replaced:
            if getattr(getattr(module, name, None), "__wrapped__", None) is original:
                setattr(module, name, original)
        openers = _numpy_openers()
        if isinstance(openers.get(None), Noting):
            openers[None] = openers[None].__wrapped__
        self._replaced.clear()

    def begin(self) -> None:
        """A cell is about to run."""
        self._read, self._written, self._before = {}, set(), {}
        self._began = time.time_ns()
        self._on = True

    def end(self, expired: Callable[[], bool]) -> tuple[Artifact, ...]:
        """Return what the cell read, by name, as artifacts of kind `read`; with stamps for hashes once time ran out."""
        self._on = False
        read, written, before = self._read, self._written, self._before
        self._read, self._written, self._before = {}, set(), {}
        if not read:
            return ()
        try:
            folder = os.getcwd()
        except OSError:
            folder = ""
        own = self._own()
        found: dict[str, tuple[str, os.stat_result, str]] = {}
        for path in list(read):
            if path == own or not self._of_interest(path) or (path in written and path not in before):
                continue
            if path in before:
                found[_named(path, folder)] = (path, *before[path])
                continue
            try:
                real = os.path.realpath(path)
                status = os.stat(real)
            except (OSError, ValueError):
                continue
            # What changed since the cell began may be its own work, and is not what it read.
            old = status.st_mtime_ns <= self._began
            if old and stat.S_ISREG(status.st_mode) and real not in written and self._of_interest(real):
                found[_named(path, folder)] = (real, status, "")
            if expired():
                break
        return tuple(self._artifacts(dict(sorted(found.items())), expired))

    # -- while the cell runs --------------------------------------------------------------------

    def _opens(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What the cell read and now writes over is hashed as long as it is there: `open(p).read()`, then a new one."""
        if not self._on or not _writes(args, kwargs):
            return
        path = _path(args[0] if args else kwargs.get("file"))
        if path is not None:
            with contextlib.suppress(Exception):
                self._before_write(path)
        if path in self._read and path not in self._written and path not in self._before:
            try:
                status = os.stat(path)
            except OSError:
                return
            if status.st_mtime_ns <= self._began and stat.S_ISREG(status.st_mode):
                exact = status.st_size <= FILE_BYTES
                self._before[path] = status, (self._hash(path, status, _never) if exact else "") or _stamp(status)

    def _opened(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._on:
            return
        path = _path(args[0] if args else kwargs.get("file"))
        if path is None:
            return
        if _writes(args, kwargs):
            self._written.add(path)
        elif len(self._read) < NOTED and path not in self._written:
            self._read[path] = None

    def _connected(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._on:
            return
        path = _path(args[0] if args else kwargs.get("database"))
        if path is not None and len(self._read) < NOTED:
            self._read[path] = None

    # -- at its end -----------------------------------------------------------------------------

    def _of_interest(self, path: str) -> bool:
        if path.endswith(_SUFFIXES) or path.startswith(self._left_out):
            return False
        return not any(part in _CACHES for part in path.split(os.sep))

    def _artifacts(
        self, found: dict[str, tuple[str, os.stat_result, str]], expired: Callable[[], bool]
    ) -> Iterator[Artifact]:
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
        known = self._hashes.get(key)
        if known is not None:
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
        # Stamps have the grain of the system's clock: a file may be written twice with one of them.
        if time.time_ns() - status.st_ctime_ns > SETTLED_NS:
            self._hashes[key] = made
        if len(self._hashes) > 10_000:
            self._hashes.popitem(last=False)
        return made


def _never() -> bool:
    return False


def _nothing(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A database is not written over by opening it."""


def _writes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
    return type(mode) is str and any(sign in mode for sign in "wax+")


def _stamp(status: os.stat_result) -> str:
    return f"stat:{status.st_mtime_ns}:{status.st_size}"


def _numpy_openers() -> dict[Any, Any]:
    """Where `numpy.loadtxt` keeps the `open` that there was when NumPy was imported."""
    module = sys.modules.get("numpy.lib._datasource")
    openers = getattr(getattr(module, "_file_openers", None), "_file_openers", None)
    return cast("dict[Any, Any]", openers) if isinstance(openers, dict) else {}


def _path(file: object) -> str | None:
    """The absolute path that was opened; None for a descriptor, and where asking would run the user's code."""
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
    """The path, relative where it lies in the working folder."""
    inside = folder and path.startswith(folder.rstrip(os.sep) + os.sep)
    return os.path.relpath(path, folder) if inside else path


def left_out_folders() -> tuple[str, ...]:
    """Return prefixes of paths that are Python's, the system's or a library's, not the user's data."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), site.getusersitepackages()}
    folders.update(sysconfig.get_paths().values())
    folders.update(_SYSTEM if os.name == "posix" else [os.environ.get("SYSTEMROOT", r"C:\Windows")])
    folders.update(os.path.expanduser(f"~/{name}") for name in (".cache/matplotlib", ".cache/fontconfig", ".config"))
    for name in ("MPLCONFIGDIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR"):
        folders.add(os.environ.get(name, ""))
    ends = {os.path.abspath(folder).rstrip(os.sep) + os.sep for folder in folders if folder}
    # A project may lie inside of an environment or of /usr; the libraries' own folders are named besides.
    here = os.getcwd() + os.sep
    return tuple(sorted(end for end in ends if not here.startswith(end)))
