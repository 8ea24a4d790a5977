"""Arrays of NumPy in files: `.npy` as an array, `.npz` as a list of arrays.

Rule 1: of a file above `WHOLE_BYTES` only the header, the rows that are shown and a sample are read.
Rule 2: nothing is unpickled: of an array of objects only the header is shown.
Rule 3: nothing is mapped into memory: a mapped file that shrinks kills the process.
Rule 4: NumPy is imported here, late; without it one line says so.
"""

from __future__ import annotations

import ast
import importlib
import math
import os
import zipfile
from collections.abc import Sequence
from typing import Any

import xxhash

from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import RenderRequest
from ctxkernel.core.text import format_shape, format_size, one_line, plural
from ctxkernel.sources.base.amounts import NamedLine
from ctxkernel.sources.base.file_reader import WHOLE_BYTES, Data, Gone, load_bytes, read_at, read_opened, read_regular
from ctxkernel.sources.base.rendering import Draft, Names, Place
from ctxkernel.sources.files.archives import zip_members
from ctxkernel.sources.files.formats import NAME_CHARS, FormatSource, Listing, ListingSource, NotListed
from ctxkernel.sources.tables.columns import ColumnHash, cells, imported
from ctxkernel.sources.tables.numpy_arrays import ArraySource, table_shape
from ctxkernel.sources.tables.tables import TableFacts, TableSource, TableWindow, clamp_window, table_facts

_MAGIC = b"\x93NUMPY"
_HEADER_BYTES = 64 << 10
"""A longer header is not read."""
_DIMENSIONS = 64
_STRETCHES = 64
_STRETCH = 1_000
"""Statistics of a large file are of so many stretches of so many elements."""
_WINDOW_CELLS = 10_000
_READ_BYTES = 8 << 20
"""Most bytes that one window or sample reads."""
_MEMBERS = 300
"""Members of an archive that are opened."""
_MEMBER_BYTES = 64 << 10
"""Largest member whose values are read."""
_VALUE_BYTES = 2 << 20
"""Most bytes that are unpacked for values."""
_BEGINNING = 512
"""Bytes of a member that are unpacked for its header."""
_FIRST = 8


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """The facts of the header of a file."""

    shape: tuple[int, ...]
    dtype: Any
    fortran: bool
    start: int
    """The offset of the first element."""

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def about(self) -> str:
        """Shape and type."""
        return f"{format_shape(self.shape)} · {self.type_name}"

    @property
    def type_name(self) -> str:
        """The type as people call it."""
        if self.dtype.names:
            shown = ", ".join(f"{name} {self.dtype[name]}" for name in self.dtype.names)
            return f"records of {one_line(shown, 300)}"
        return one_line(str(self.dtype), 80)


def header_length(data: bytes) -> int:
    """Return the bytes that a header has, as its beginning says."""
    width = 2 if data[6] == 1 else 4
    return 8 + width + int.from_bytes(data[8 : 8 + width], "little")


def read_header(data: bytes) -> NpyHeader:
    """Return the facts of a header at the beginning of `data`. Raises ValueError with the reason."""
    if data[:6] != _MAGIC or len(data) < 12:
        raise ValueError("no NumPy array file: it does not begin as one")
    width, start = 2 if data[6] == 1 else 4, header_length(data)
    if data[6] not in (1, 2, 3) or start > _HEADER_BYTES:
        raise ValueError(f"a NumPy array file of version {data[6]} with a header of {format_size(start)}: not read")
    if start > len(data):
        raise ValueError("a NumPy array file that is cut off within its header")
    try:
        text = data[8 + width : start].decode("utf-8" if data[6] == 3 else "latin-1")
        header: dict[str, Any] = ast.literal_eval(text.strip())
        shape, fortran = tuple(header["shape"]), header["fortran_order"]
        sides = all(type(side) is int and side >= 0 for side in shape) and len(shape) <= _DIMENSIONS
        dtype = importlib.import_module("numpy.lib.format").descr_to_dtype(header["descr"])
    except Exception as fault:  # whatever is written there
        raise ValueError(f"a NumPy array file whose header cannot be read ({type(fault).__name__})") from None
    if not sides or type(fortran) is not bool:
        raise ValueError("a NumPy array file whose header has no valid shape")
    return NpyHeader(shape, dtype, fortran, start)


class FileArray:
    """An array in a file, of which elements are read where they are asked for. Has the facts of an ndarray."""

    def __init__(self, path: str, header: NpyHeader) -> None:
        self.path, self.header = path, header
        self.shape, self.dtype, self.size, self.nbytes = header.shape, header.dtype, header.size, header.nbytes
        self.ndim = len(self.shape)

    def read(self, parts: Sequence[tuple[int, int]]) -> list[Any]:
        """Return elements by (first, count), in the order of the file. Raises OSError where they are not there."""
        numpy, width = imported("numpy"), self.dtype.itemsize

        def reading(descriptor: int, found: os.stat_result) -> list[bytes]:
            return [read_at(descriptor, self.header.start + at * width, count * width) for at, count in parts]

        found = read_regular(self.path, reading)
        if isinstance(found, Gone):
            raise OSError(found.reason)
        if any(len(data) < count * width for data, (_, count) in zip(found, parts, strict=True)):
            raise OSError("the file was cut off while it was read")
        return [numpy.frombuffer(data, dtype=self.dtype) for data in found]

    def stretches(self) -> list[Any]:
        """Return elements of parts that are spread evenly over the file."""
        length = max(1, min(_STRETCH, self.size // _STRETCHES, _READ_BYTES // _STRETCHES // self.dtype.itemsize))
        last = self.size - length
        return self.read([(at * last // (_STRETCHES - 1), length) for at in range(_STRETCHES)])

    def rows(self, first: int, rows: int, left: int, across: int) -> list[Any]:
        """Return a window of the array as a table; see `table_shape`."""
        sides = self.shape if self.ndim > 1 else (self.size, 1)
        if not self.header.fortran:
            return self.read([((first + at) * sides[-1] + left, across) for at in range(rows)])
        numpy = imported("numpy")
        starts = [numpy.unravel_index(first + at, sides[:-1]) for at in range(rows)]
        strides = [math.prod(sides[:axis]) for axis in range(len(sides))]
        offsets = [sum(int(one) * step for one, step in zip(at, strides, strict=False)) for at in starts]
        places = [offset + (left + at) * strides[-1] for offset in offsets for at in range(across)]
        found: Any = numpy.concatenate(self.read([(place, 1) for place in places])) if places else ()
        return [found[at * across : (at + 1) * across] for at in range(rows)]


class StoredArraySource(ArraySource):
    """A view of an array in a file that was read as a whole."""

    def __init__(self, target: Any, label: str, header: NpyHeader, size: int) -> None:
        super().__init__(target, label)
        self.header, self.file_size = header, size

    def headline(self) -> str:
        """Return label, shape, element type and size."""
        order = " · Fortran order" if self.header.fortran and len(self.header.shape) > 1 else ""
        names = self.header.dtype.names
        kind = f"records of {plural(len(names), 'fields')}" if names else self.header.dtype
        about = f"{format_shape(self.header.shape) or 'scalar'} · {kind} · {format_size(self.file_size)}"
        return f"{self.label} · NumPy array · {about}{order}"

    def order(self, array: Any) -> str:
        """Return nothing: the headline says it."""
        return ""


class LargeArraySource(StoredArraySource):
    """A view of an array in a file of which parts are read."""

    def array(self) -> Any:
        """Return what has the facts of an array."""
        return self.target

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render rows, structure or statistics: a picture would need all of it."""
        return TableSource.draft(self, request, place, budget)

    def facts(self, limit: int) -> TableFacts:
        """Return shape, type and hashes of a sample."""
        chunks = tuple(xxhash.xxh3_64_intdigest(part.tobytes()) for part in self.target.stretches())
        rows = max(1, -(-table_shape(self.target.shape)[0] // _STRETCHES))
        kind = str(self.target.dtype).replace(" ", "")
        return table_facts(self.target.shape, kind, {"0 values": ColumnHash(chunks, rows, exact=False)})

    def sample(self, array: Any) -> Any:
        """Return elements of a sample."""
        return imported("numpy").concatenate(self.target.stretches())

    def window(self, place: Place, rows: int, columns: int) -> TableWindow:
        """Return elements as texts."""
        array, numpy = self.target, imported("numpy")
        columns = max(1, min(columns, _READ_BYTES // array.dtype.itemsize))
        most = max(1, min(_WINDOW_CELLS, _READ_BYTES // array.dtype.itemsize))
        first, left, down, across = clamp_window(table_shape(array.shape), place, rows, columns, most)
        sides = array.shape[:-1] if array.ndim > 1 else array.shape
        where = [numpy.unravel_index(first + at, sides) if sides else () for at in range(down)]
        labels = tuple(f"[{', '.join(str(int(one)) for one in at)}]" for at in where)
        table = [cells(row) for row in array.rows(first, down, left, across)]
        turned = tuple(zip(*table, strict=True)) if table else ((),) * across
        names = tuple(str(left + at) for at in range(across))
        return TableWindow(first, left, labels, names, turned, (array.dtype.kind in "iufcb",) * across)

    def basis_window(self, place: Place) -> TableWindow:
        """Return the window that is kept for a later diff."""
        return self.window(place, 50, 20)


class NpySource(FormatSource[StoredArraySource]):
    """A file of one array. 0: rows, or the picture of an image; 1: shape, type and head; 2: statistics."""

    kind = "array"

    def read(self) -> StoredArraySource | Gone | str:
        """Return the source of its array, Gone, or in a line why it cannot be read."""
        loaded = load_bytes(self.path, WHOLE_BYTES)
        if isinstance(loaded, Gone):
            return loaded
        if not loaded.data.startswith(_MAGIC):
            return "no NumPy array file: it does not begin as one; shown as it is"
        numpy = imported("numpy")
        if numpy is None:
            return "a NumPy array file is read by numpy, which is not installed; %pip install numpy, and view it again"
        try:
            header = read_header(loaded.data)
        except ValueError as reason:
            return str(reason)
        if header.dtype.hasobject:
            return f"NumPy array, {header.about}: its objects are pickled, and are not loaded"
        there = loaded.size - header.start
        if there < header.nbytes:
            told = f"{format_size(there)} of {format_size(header.nbytes)} of its values are there"
            return f"NumPy array, {header.about}, that is cut off: {told}"
        if not header.dtype.itemsize:
            return f"NumPy array, {header.about}: its elements have no bytes"
        if not loaded.whole and header.size >= _STRETCHES:
            return LargeArraySource(FileArray(self.path, header), self.label, header, loaded.size)
        if not loaded.whole:
            return f"NumPy array, {header.about}: its elements are too large to be shown"
        values = numpy.frombuffer(loaded.data, header.dtype, header.size, header.start)
        array = values.reshape(header.shape, order="F" if header.fortran else "C")
        return StoredArraySource(array, self.label, header, loaded.size)

    def draft(self, request: RenderRequest, place: Place, budget: int) -> Draft:
        """Render the array as it is now."""
        found = self._readable()
        if found is None:
            return super().draft(request, place, budget)
        found.label = self.label
        return found.draft(request, place, budget)

    def place_of(self, found: StoredArraySource, pos: str) -> Place:
        """Return the row that is shown as "[1, 3]". Raises BadPolicy."""
        try:
            return found.find(pos)
        except BadPolicy as fault:
            raise BadPolicy(str(fault).replace(found.label, self.label, 1)) from None

    def names_of(self, found: StoredArraySource) -> Names:
        """Return nothing: rows have numbers."""
        return Names("rows")

    def length_of(self, found: StoredArraySource) -> int:
        """Return the number of rows."""
        return table_shape(found.header.shape)[0]

    def last_parts(self, most: int) -> Sequence[str]:
        """Return the text of the last rows."""
        found = self._readable()
        return super().last_parts(most) if found is None else found.last_parts(most)


class NpzSource(ListingSource):
    """An archive of arrays: name, shape and type of each, and the values of small ones."""

    kind = "arrays"

    def listed(self, loaded: Data) -> Listing | Gone | str:
        """Return the arrays, in the order of the file."""
        return read_opened(self.path, lambda file, _: _listing(file, loaded))


def _listing(file: Any, loaded: Data) -> Listing:
    if imported("numpy") is None:
        raise NotListed("arrays are read by numpy, which is not installed; %pip install numpy, and view it again")
    members, exact = zip_members(file)
    found: list[_Member] = []
    with zipfile.ZipFile(file) as archive:
        room = _VALUE_BYTES
        for member in members[:_MEMBERS]:
            found.append(_member(archive, member, min(room, _MEMBER_BYTES)))
            room -= found[-1].read
    found += [_Member(_array_name(one), "not looked at", plain=one.file_size) for one in members[_MEMBERS:]]
    arrays = plural(len(members), "arrays") if exact else f"{len(members):,}+ arrays"
    plain = sum(one.plain for one in found)
    packed = any(one.compress_type != zipfile.ZIP_STORED for one in members)
    unpacked = f", {format_size(plain)}{'' if exact else ' or more'} unpacked" if packed else ""
    names, kinds = [one.name for one in found], {one.kind for one in found}
    group = kinds.pop() if len(kinds) == 1 else "arrays"
    return Listing(
        f"NumPy arrays · {arrays}{unpacked}",
        [one.line(group) for one in found],
        names,
        "arrays",
        exact,
        loaded.size,
        loaded.fingerprint,
        values=[one.line(group, values=True) for one in found],
        value_names=names,
        brief=[one.weight(group, plain) for one in sorted(found, key=lambda one: (-one.plain, one.name))],
    )


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    kind: str
    """The type of its elements, or why they are not known."""
    shape: str = ""
    span: str = ""
    first: str = ""
    plain: int = 0
    """Bytes unpacked."""
    read: int = 0
    """Bytes that were unpacked."""
    is_short: bool = False
    """Whether `first` are all values, and there is no range of them."""

    def line(self, group: str, *, values: bool = False) -> NamedLine:
        told = " ".join(filter(None, [self.shape, self.kind]))
        said = ", ".join(filter(None, [told, self.span, self.first if values or self.is_short else ""]))
        short = f"{self.name}: {told}"
        return NamedLine(f"{self.name}: {said}", self.name, group, what="arrays", short=short)

    def weight(self, group: str, whole: int) -> NamedLine:
        told = " ".join(filter(None, [self.shape, self.kind]))
        share = f"{format_size(self.plain)} ({100 * self.plain / max(whole, 1):.0f} %)"
        return NamedLine(f"- {self.name}: {told}, {share}", self.name, group, what="arrays")


def _array_name(member: zipfile.ZipInfo) -> str:
    return one_line(member.filename.removesuffix(".npy"), NAME_CHARS)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> _Member:
    """Return the facts of a member, and of its values if it has at most `most` bytes of them."""
    found = _Member(_array_name(member), "", plain=member.file_size)
    try:
        with archive.open(member) as opened:
            data = opened.read(_BEGINNING)
            if data[:6] == _MAGIC and (length := header_length(data)) > len(data):
                data += opened.read(min(length, _HEADER_BYTES) + 64 - len(data))
            header = read_header(data)
            if header.nbytes <= most and not header.dtype.hasobject:
                data += opened.read(max(header.start + header.nbytes - len(data), 0))
    except Exception as fault:  # damaged, encrypted, or no array
        return replace(found, kind=f"[{one_line(str(fault), 120) or type(fault).__name__}]")
    shape = format_shape(header.shape) if header.shape else "scalar"
    found = replace(found, kind=header.type_name, shape=shape, read=len(data))
    there, width = len(data) - header.start, header.dtype.itemsize
    if header.dtype.hasobject or not width:
        return replace(found, span="pickled, not loaded" if width else "")
    if there < header.nbytes and (header.nbytes <= most or header.start + header.nbytes > member.file_size):
        return replace(found, span=f"cut off: it should have {format_size(header.nbytes)}")
    count = min(header.size, there // width)
    values = imported("numpy").frombuffer(data, header.dtype, count, header.start)
    span = span_of_values(values) if count == header.size else ""
    is_short = not span and header.size <= _FIRST
    return replace(found, span=span, first=first_values(values, header.size), is_short=is_short)


def span_of_values(values: Any) -> str:
    """Return `min … max` of numbers or times in one dimension, NaN counted apart; empty where there is no order."""
    if values.dtype.kind not in "iufmM" or len(values) < 2:
        return ""
    there = values[values == values]
    if not len(there):
        return "no values"
    ends = cells(imported("numpy").array([there.min(), there.max()], dtype=values.dtype))
    missing = f"{len(values) - len(there):,} {'NaN' if values.dtype.kind == 'f' else 'NaT'}, "
    return f"{missing if len(there) < len(values) else ''}{' … '.join(ends)}"


def first_values(values: Any, size: int) -> str:
    """Return the first of `size` values: one, or a list."""
    if not size:
        return "empty"
    shown = [one_line(text, 60) for text in cells(values[:_FIRST])]
    return shown[0] if size == 1 else f"[{', '.join(shown)}{', …' if size > len(shown) else ''}]"
