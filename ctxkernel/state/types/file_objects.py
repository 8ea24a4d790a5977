"""Reducers and constructors of files, databases and memory.

Rule: a file that is open for reading is opened again where it stood. An object whose copy would be a side effect or a
loss has no stored form: it is alive in this process, or lost.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import functools
import gc
import io
import math
import mmap
import os
import sqlite3
import stat
import struct
import types
from typing import Any

from ctxkernel.core.reflection import class_of, is_kind
from ctxkernel.state.types.instances import careful, instance_or
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, Reduction, StreamConstructors

STANDARD = tuple(("sys", name) for name in ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__"))


_ARRAY: Any = array.array
_fspath: Any = os.fspath
_NAMES: Any = (str, bytes, os.PathLike)


def file(pack: PackState, obj: Any) -> Reduction:
    """An open file: for reading it is opened again where it stood; any other is alive or lost."""
    mode: Any = getattr(obj, "mode", None)
    name: Any = getattr(obj, "name", None)
    is_text = is_kind(class_of(obj), io.TextIOWrapper)
    kind = "text" if is_text else "raw" if is_kind(class_of(obj), io.FileIO) else "buffered"
    named = isinstance(name, _NAMES)
    if obj.closed:
        return PARTS.closed_file, (kind, name if named else None, mode)
    source: Any = obj.buffer if is_text else obj
    source = source.raw if class_of(source) in _BUFFERED else source
    if not is_kind(class_of(source), io.FileIO):
        return pack.refuse(obj, f"it reads or writes through a {class_of(source).__name__}")
    if not named:
        return pack.refuse(obj, "it has no name under which it could be opened again")
    if not isinstance(mode, str):
        mode = "rb"
    if any(letter in mode for letter in "wax+"):
        return pack.refuse(obj, "it is open for writing")
    path: str | bytes = os.path.abspath(_fspath(name))
    known, there = os.fstat(obj.fileno()), os.stat(path)
    if not stat.S_ISREG(known.st_mode) or (known.st_dev, known.st_ino) != (there.st_dev, there.st_ino):
        return pack.refuse(obj, "it is no regular file, or the file under its name is another one")
    text = (obj.encoding, obj.errors) if is_text else None
    return PARTS.file, (kind, path, name, mode, text, obj.tell())


def _memory_file(pack: PackState, obj: Any) -> Reduction:
    if obj.closed:
        return PARTS.closed_memory, (class_of(obj),)
    vars(obj)  # its state has this dict once somebody asked for it
    return careful(pack, obj)


def database(pack: PackState, obj: sqlite3.Connection) -> Reduction:
    """A connection of sqlite3: one in memory with its content, one of a file by its path."""
    cursor = sqlite3.Connection.cursor(obj)
    cursor.row_factory = None
    listed = list(sqlite3.Cursor.execute(cursor, "PRAGMA database_list"))
    if [row[1] for row in listed if row[1] != "temp"] != ["main"]:
        return pack.refuse(obj, "other databases are attached to it")
    settings = (obj.isolation_level, obj.row_factory, obj.text_factory)
    path = listed[0][2]
    pack.inexact |= obj.in_transaction  # which comes back as if it had been committed
    content = None
    if not path:
        (pages,) = sqlite3.Cursor.execute(cursor, "PRAGMA page_count").fetchone()
        content = sqlite3.Connection.serialize(obj) if pages else b""
    if registered := sorted(_registered(obj) - _of_every_database()):
        return pack.refuse(obj, "functions are registered with it", [registered, path, content, settings])
    return PARTS.database, (class_of(obj), path, content, settings)


def _registered(obj: sqlite3.Connection) -> set[str]:
    """Return the functions and collations of a connection, and the callbacks that it holds."""
    cursor = sqlite3.Connection.cursor(obj)
    cursor.row_factory = None
    listed = sqlite3.Cursor.execute(cursor, "PRAGMA function_list").fetchall()
    listed += [row[1:] for row in sqlite3.Cursor.execute(cursor, "PRAGMA collation_list")]
    known = (obj.row_factory, obj.text_factory)
    held = [
        one for one in gc.get_referents(obj) if class_of(one) in _FUNCTIONS and not any(one is each for each in known)
    ]
    return {repr(one) for one in [*listed, *(getattr(one, "__qualname__", "") for one in held)]}


_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)


@functools.cache
def _of_every_database() -> set[str]:
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        return _registered(made)


def cursor(pack: PackState, obj: sqlite3.Cursor) -> Reduction:
    """A cursor of sqlite3: alive only from the first statement on, and seen to change with its connection."""
    result = [obj.lastrowid, obj.rowcount, obj.description]
    if result != [None, -1, None]:
        return pack.refuse(obj, "the result of its last statement has no stored form", [obj.connection, *result])
    return PARTS.cursor, (class_of(obj), obj.connection, obj.row_factory, obj.arraysize)


_BUFFER_WORDS = 16
"""More machine words than a `Py_buffer` has; its first one is the address."""
_FULL_RO = 0x011C


def buffer_address(memory: Any) -> int:
    """Return where the first item of a buffer lies."""
    found = (ctypes.c_void_p * _BUFFER_WORDS)()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(memory), found, ctypes.c_int(_FULL_RO))
    at = found[0] or 0
    ctypes.pythonapi.PyBuffer_Release(found)
    return at


_MEMORY_OF_FILE = type(io.BytesIO().getbuffer().obj)


def view(pack: PackState, obj: memoryview) -> Reduction:
    """A memoryview: of the same object again, the same part of it."""
    try:
        below: Any = obj.obj
    except ValueError:
        return PARTS.released_memoryview, ()
    if below is None or obj.ndim == 0 or (obj.ndim > 1 and not obj.c_contiguous):
        return pack.refuse(obj, "its memory is laid out in a way that cannot be restored")
    offset = buffer_address(obj) - buffer_address(below)
    if class_of(below) is _MEMORY_OF_FILE:
        # From Python 3.13 on its class is among these, too.
        below = next(one for one in gc.get_referents(below) if is_kind(class_of(one), io.BytesIO))
    return PARTS.memoryview, (below, offset, obj.format, obj.shape, obj.strides, obj.readonly)


def is_anonymous(held: mmap.mmap) -> bool:
    """Return whether an open mmap is of no file."""
    try:
        return not held.closed and held.size() < 0
    except OSError:
        return True


def anonymous_map(pack: PackState, obj: mmap.mmap) -> Reduction:
    """An mmap that is of no file."""
    if not is_anonymous(obj):
        return pack.refuse(obj, "it maps a file")
    return PARTS.anonymous_map, (obj[:], obj.tell())


def foreign(pack: PackState, obj: Any) -> Reduction:
    """Data of ctypes: data in the memory of another object, and addresses, are alive only."""
    if not owns_foreign_memory(obj):
        return pack.refuse(obj, "it looks into memory that is not its own", [bytes(obj), obj._b_base_, obj._objects])
    return careful(pack, obj)


def owns_foreign_memory(obj: Any) -> bool:
    """Return whether an object is data of ctypes, in memory of its own."""
    if not is_kind(class_of(obj), _C_DATA) or any(is_kind(class_of(obj), one) for one in _POINTERS):
        return False
    return obj._b_base_ is None and (not obj._objects or bool(obj._b_needsfree_))


_C_DATA: Any = ctypes.c_int.__mro__[2]
_POINTERS: Any = (ctypes._Pointer, ctypes.c_void_p, ctypes._CFuncPtr)  # type: ignore[attr-defined]
_open_file = instance_or(*STANDARD, otherwise=file)
_BUFFERED = (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)
_FILES = (io.TextIOWrapper, *_BUFFERED, io.FileIO)

KINDS: dict[Any, Kind] = {
    **dict.fromkeys(_FILES, _open_file),
    io.BytesIO: _memory_file,
    io.StringIO: _memory_file,
    array.array: lambda pack, obj: (PARTS.machine_values, (obj.typecode, pack.data(memoryview(obj).cast("B")))),
    memoryview: view,
    mmap.mmap: anonymous_map,
}
BELOW: dict[Any, Kind] = {
    io.TextIOWrapper: _open_file,
    sqlite3.Connection: database,
    sqlite3.Cursor: cursor,
    _C_DATA: foreign,
}


class FileParts(StreamConstructors):
    """The constructors of files, databases and memory."""

    def file(self, kind: str, path: Any, name: Any, mode: str, text: Any, position: int) -> Any:
        """Open a file for reading, where it stood. Raises OSError."""
        opened = _opened(kind, path, name, mode, *(text or ()))
        opened.seek(position)
        return opened

    def closed_file(self, kind: str, name: Any, mode: str | None) -> Any:
        """Return a closed file of that name."""
        made = _opened(kind, os.devnull, name, mode)
        made.close()
        return made

    def closed_memory(self, kind: Any) -> Any:
        """Return a closed BytesIO or StringIO."""
        made = kind()
        made.close()
        return made

    def database(self, kind: Any, path: str, content: bytes | None, settings: tuple[Any, ...]) -> Any:
        """Open a database. Raises sqlite3.Error where its file is gone."""
        if path and not os.path.exists(path):
            raise FileNotFoundError(path)
        made = kind(path or ":memory:")
        if content:
            sqlite3.Connection.deserialize(made, content)
        made.isolation_level, made.row_factory, made.text_factory = settings
        return made

    def cursor(self, kind: Any, connection: Any, row_factory: Any, arraysize: int) -> Any:
        """Return a new cursor of a connection."""
        made = kind(connection)
        made.row_factory, made.arraysize = row_factory, arraysize
        return made

    def machine_values(self, typecode: str, data: Any) -> Any:
        """Return an array.array."""
        made = _ARRAY(typecode)
        made.frombytes(self.memory(data))
        return made

    def memoryview(
        self, below: Any, offset: int, format: Any, shape: tuple[int, ...], strides: tuple[int, ...], readonly: bool
    ) -> Any:
        """Return a view of a part of an object's memory."""
        whole: Any = below.getbuffer() if isinstance(below, io.BytesIO) else memoryview(below)
        if whole.readonly and not readonly and hasattr(below, "setflags"):  # of an array that was protected later
            array: Any = below
            array.setflags(write=True)
            whole = memoryview(array)
            array.setflags(write=False)
        if not whole.c_contiguous:  # all of it
            return whole.toreadonly() if readonly and not whole.readonly else whole
        if whole.format != "B" or whole.ndim != 1:
            whole = whole.cast("B")
        item = struct.calcsize(format)
        if len(shape) == 1:
            size, step = shape[0], strides[0]
            low = offset + min(0, (size - 1) * step) if size else offset
            high = (offset + max(0, (size - 1) * step) + item) if size else offset
            part = whole[low:high].cast(format) if format != "B" else whole[low:high]
            if step != item and size:
                part = part[:: step // item]
        else:
            part = whole[offset : offset + item * math.prod(shape)].cast(format, shape)
        return part.toreadonly() if readonly and not part.readonly else part

    def released_memoryview(self) -> Any:
        """Return a memoryview that was released."""
        made = memoryview(b"")
        made.release()
        return made

    def anonymous_map(self, content: bytes, position: int) -> Any:
        """Return an anonymous mmap."""
        made = mmap.mmap(-1, len(content))
        made[:] = content
        made.seek(position)
        return made


def _opened(
    kind: str, path: Any, name: Any, mode: str | None, encoding: str = "utf-8", errors: str | None = None
) -> Any:
    """Open a file; `name` and `mode` are its attributes."""
    writing = mode is not None and any(letter in mode for letter in "wax")
    made: Any = io.FileIO(path, "w" if writing else "r")
    if name is not None:
        made.name = name
    if kind != "raw":
        made = io.BufferedWriter(made) if writing else io.BufferedReader(made)
    if kind == "text":
        made = io.TextIOWrapper(made, encoding=encoding, errors=errors)
        if mode is not None:
            made.mode = mode
    return made
