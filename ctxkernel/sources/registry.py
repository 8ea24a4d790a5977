"""Which source looks at which target: one ordered list.

Rule 1: the first row whose predicate holds makes the source. What `register` adds comes before the built-in rows.
Rule 2: a predicate is cheap and does not touch what the target leads to, but for a stat of a path.
Rule 3: a path that is not there is refused here, with the next move; one that goes away later is rendered as missing.
"""

from __future__ import annotations

import difflib
import errno
import glob
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any
from urllib.parse import unquote, urlsplit

from ctxkernel.core.errors import BadTarget
from ctxkernel.core.ports import Source
from ctxkernel.core.reflection import defines, is_a, type_name
from ctxkernel.core.settings import Settings
from ctxkernel.sources.base.rendering import BaseSource
from ctxkernel.sources.files.files import FileSource
from ctxkernel.sources.files.folders import DirectorySource, GlobSource, folder_of, is_pattern
from ctxkernel.sources.files.notebooks import NotebookSource
from ctxkernel.sources.files.open_files import SUFFIXES, CompressedSource, HeldSource, held_by
from ctxkernel.sources.files.pdfs import PdfSource
from ctxkernel.sources.files.uris import UriSource, scheme_of
from ctxkernel.sources.libraries.figures import FigureSource
from ctxkernel.sources.libraries.labelled import LabelledSource, TreeSource
from ctxkernel.sources.libraries.models import EstimatorSource, NetworkSource, open_tensor
from ctxkernel.sources.libraries.pil_images import PilImageSource
from ctxkernel.sources.libraries.plans import ActorSource, DaskFrameSource, DaskSource, LazyFrameSource, RaySource
from ctxkernel.sources.objects.objects import CodeSource, ObjectSource, StringSource, has_source, source_file
from ctxkernel.sources.tables.arrays import ArraySource
from ctxkernel.sources.tables.columns import modules
from ctxkernel.sources.tables.frames import FrameSource
from ctxkernel.sources.tables.parquet import ParquetSource
from ctxkernel.sources.tables.polars_frames import PolarsSource

Predicate = Callable[[Any], bool]
Factory = Callable[[Any, Settings, "str | None"], Source]
_FILE = re.compile(r"file:(?=/)", re.IGNORECASE)
_SIBLINGS = 5_000
_IO_BASE: type = io.StringIO.__mro__[-2]  # io.IOBase is a Python class that the C classes are only registered with

_registered: list[tuple[Predicate, Factory]] = []
# Files whose format is read, by the end of their names; any other is shown as text or as bytes.
_FORMATS: dict[str, type[FileSource]] = {
    ".ipynb": NotebookSource,
    ".parquet": ParquetSource,
    ".pdf": PdfSource,
    ".pq": ParquetSource,
    **dict.fromkeys(SUFFIXES, CompressedSource),
}


def register(predicate: Predicate, factory: Factory) -> None:
    """Add a kind of target. `factory(target, settings, name)` makes its source; the newest row is asked first.

    `name` is the user's variable, or None. A predicate that raises does not hold.

    register(lambda t: isinstance(t, Sensor), lambda t, settings, name: SensorSource(t, name or "sensor"))
    """
    _registered.insert(0, (predicate, factory))


def open_source(target: object, *, settings: Settings | None = None, namespace_name: str | None = None) -> Source:
    """Return the source for `target`; `namespace_name` is how the user calls it, for the label.

    Raises BadTarget for a path that is not there, a URI that nothing can read, and a stream.
    """
    settings = settings or Settings()
    for predicate, factory in _registered:
        if _holds(predicate, target):
            return _made(factory, target, settings, namespace_name)
    return open_built_in(target, settings=settings, namespace_name=namespace_name)


def open_built_in(target: object, *, settings: Settings | None = None, namespace_name: str | None = None) -> Source:
    """Return the source for `target` as if nothing was registered. Raises BadTarget."""
    for predicate, factory in _BUILT_IN:
        if predicate(target):
            return factory(target, settings or Settings(), namespace_name)
    raise BadTarget(f"nothing can look at a {type_name(type(target))}")  # the last row takes everything


def _holds(predicate: Predicate, target: object) -> bool:
    try:
        return bool(predicate(target))
    except Exception:  # it was written for other targets; every view of anything would fail
        return False


def _made(factory: Factory, target: object, settings: Settings, name: str | None) -> Source:
    try:
        return factory(target, settings, name)
    except BadTarget:
        raise
    except Exception as fault:
        raise BadTarget(
            f"the source that was registered for a {type_name(type(target))} could not be made "
            f"({type(fault).__name__}: {fault}); mend it and register it again: the newest is asked first"
        ) from fault


_NAMELESS = (str, bytes, int, float, complex, type(None))


def open_named(target: object, namespace: Mapping[str, object], settings: Settings | None = None) -> Source:
    """Return the source for `target`, labelled by the first name that the user has for it.

    A path is its own label; and of a number it means nothing that some name stands for the same one.
    """
    name = None
    if not is_a(target, *_NAMELESS) and not _is_path(target):
        # A copy: another thread may add a name meanwhile.
        name = next((key for key, value in list(namespace.items()) if value is target and key[:1] != "_"), None)
    source = open_source(target, settings=settings, namespace_name=name)
    if isinstance(source, BaseSource) and source is not target:
        source.named = source.given_label[0] == name  # of a file or a module the label is what it is, whatever the name
        source.stands_for = lambda label: namespace[label] is target if label in namespace else None
    return source


def _is_source(target: Any) -> bool:
    return is_a(target, BaseSource)


def _is_path(target: Any) -> bool:
    return is_a(target, str) or defines(target, "__fspath__")


def _open_path(target: Any, settings: Settings, name: str | None) -> Source:
    try:
        given = os.fsdecode(os.fspath(target))
    except Exception as fault:  # a path-like object of the user's
        raise BadTarget(
            f"{name or 'the object'} ({type_name(type(target))}) says that it is a path, and its __fspath__ raised "
            f"{type(fault).__name__}; view the path as text"
        ) from None
    if scheme_of(given) not in ("", "file"):
        return UriSource(given, settings.fetch_seconds, _open_file_at)
    path = os.path.expanduser(_from_uri(given))
    if not os.path.isabs(path):
        try:
            os.getcwd()
        except OSError:
            raise BadTarget(
                f"{given!r} is a path from the working directory, which was deleted; os.chdir(…) to one that is there"
            ) from None
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.lexists(path):
            if (pattern := _pattern(path)) is not None:
                return GlobSource(pattern, given, _open_file_at)
            raise BadTarget(_not_there(given, path)) from None
        return _open_file_at(path, given)  # a link that leads nowhere, now
    except (ValueError, OSError) as fault:
        # Windows says of a wildcard that it can be in no name.
        if getattr(fault, "winerror", 0) == 123 and (pattern := _pattern(path)) is not None:
            return GlobSource(pattern, given, _open_file_at)
        if isinstance(fault, ValueError) or fault.errno == errno.ENAMETOOLONG:
            raise BadTarget(
                f"a text of {len(path):,} characters is no path; view(io.StringIO(text)) looks at a text, and "
                f"view(name), without quotes, at an object"
            ) from None
        return _open_file_at(path, given)  # it is there and cannot be read: the rendering says why
    return DirectorySource(path, given) if stat.S_ISDIR(found.st_mode) else _open_file_at(path, given)


def _pattern(path: str) -> str | None:
    """Return an absolute pattern where a text is one, and the folder before its first wildcard is there."""
    if not is_pattern(path):
        return None
    # The working directory is a name, whatever its letters.
    pattern = path if os.path.isabs(path) else os.path.join(glob.escape(os.getcwd()), path)
    return pattern if os.path.isdir(folder_of(pattern)) else None


def _open_file_at(path: str, label: str) -> FileSource:
    return _FORMATS.get(os.path.splitext(path)[1].lower(), FileSource)(path, label)


def _from_uri(text: str) -> str:
    if not _FILE.match(text):
        return text
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise BadTarget(f"{text!r} is a file of another machine ({parts.netloc}); copy or mount it, and view that")
    if os.name != "nt":
        return unquote(parts.path)
    from urllib.request import url2pathname  # a tenth of a second

    return url2pathname(parts.path)


def _not_there(given: str, path: str) -> str:
    """Return a message with the path, the working directory, names like it, and the next move."""
    whole = os.path.abspath(path)
    parent, missing = os.path.split(whole)
    while parent and not os.path.isdir(parent) and os.path.dirname(parent) != parent:
        parent, missing = os.path.split(parent)
    try:
        with os.scandir(parent) as entries:
            names = sorted(entry.name for entry in islice(entries, _SIBLINGS))
    except OSError:
        names = []
    lower = {name.lower(): name for name in reversed(names)}
    close = [lower[name] for name in difflib.get_close_matches(missing.lower(), list(lower), n=3, cutoff=0.6)]
    prefix = os.path.dirname(path) if os.path.basename(whole) == missing else ""
    like = ", ".join(os.path.join(prefix, name) if prefix else name for name in close)
    where = "" if os.path.basename(whole) == missing else f" (there is no {missing!r} in {parent})"
    advice = f"Is it {like}?" if like else "Give a path from there, or an absolute one."
    return (
        f"no file or directory {given!r}{where}; the working directory is {os.getcwd()}. {advice} "
        f"An object is viewed by its name without quotes"
    )


def _is_open_file(target: Any) -> bool:
    return is_a(target, _IO_BASE, tempfile._TemporaryFileWrapper)


def _open_file(target: Any, settings: Settings, name: str | None) -> Source:
    if is_a(target, io.StringIO):
        return StringSource(target, name or "StringIO")
    if (held := held_by(target)) is not None:
        label = name or held.path or type_name(type(target)).rpartition(".")[2]
        if held.path is None:
            return HeldSource(target, held.inner, label, held.opener)
        if held.opener is None:
            return _open_file_at(held.path, held.path)
        source = CompressedSource(held.path, held.path, held.opener)
        if os.path.splitext(held.path)[1].lower() not in SUFFIXES:
            source.target = target  # the path alone would not say how it is read
        return source
    try:
        path = target.name
    except Exception:  # a file class of the user's may do anything
        path = None
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or not os.path.lexists(path):
        raise BadTarget(
            f"{name or 'the file object'} ({type_name(type(target))}) is closed, or has no path that could be looked "
            f"at; view the path, or view(io.StringIO(text)) with what it holds"
        )
    return _open_file_at(path, path)


def _is_frame(target: Any) -> bool:
    _, pandas = modules()
    return pandas is not None and is_a(target, pandas.DataFrame, pandas.Series)


def _is_array(target: Any) -> bool:
    numpy, _ = modules()
    return numpy is not None and is_a(target, numpy.ndarray)


def _open_module(target: Any, settings: Settings, name: str | None) -> Source:
    source = FileSource(source_file(target) or "", f"module {target.__name__}")
    source.kind, source.target = "module", target
    return source


def _open_code(target: Any, settings: Settings, name: str | None) -> Source:
    own = type_name(target) if is_a(target, type) else f"{target.__module__}.{target.__qualname__}"
    return CodeSource(target, name or own.removeprefix("__main__."))


def _maker(kind: Callable[[Any, str], Source]) -> Factory:
    """Return a factory for a source whose label is the user's name, else the name of the type."""

    def make(target: Any, settings: Settings, name: str | None) -> Source:
        return kind(target, name or type_name(type(target)).rsplit(".", 1)[-1])

    return make


def _of(module: str, *names: str) -> Predicate:
    """Return a predicate: an instance of one of the classes of a library, as far as that is loaded."""

    def holds(target: Any) -> bool:
        loaded = sys.modules.get(module)
        kinds = [getattr(loaded, name, None) for name in names] if loaded is not None else []
        return is_a(target, *(kind for kind in kinds if kind is not None))

    return holds


_BUILT_IN: list[tuple[Predicate, Factory]] = [
    (_is_source, lambda target, *_: target),
    (_is_path, _open_path),
    (_is_open_file, _open_file),
    (_is_frame, _maker(FrameSource)),
    (_is_array, _maker(ArraySource)),
    (_of("polars", "DataFrame", "Series"), _maker(PolarsSource)),
    (_of("polars", "LazyFrame"), _maker(LazyFrameSource)),
    (_of("torch", "Tensor"), _maker(open_tensor)),
    (_of("torch.nn", "Module"), _maker(NetworkSource)),
    (_of("xarray", "Dataset", "DataArray"), _maker(LabelledSource)),
    (_of("xarray", "DataTree"), _maker(TreeSource)),
    (_of("sklearn.base", "BaseEstimator"), _maker(EstimatorSource)),
    (_of("matplotlib.figure", "Figure"), _maker(FigureSource)),
    (_of("matplotlib.axes", "Axes"), _maker(FigureSource)),
    (_of("PIL.Image", "Image"), _maker(PilImageSource)),
    (_of("dask.dataframe", "DataFrame", "Series", "Index"), _maker(DaskFrameSource)),
    (_of("dask.array", "Array"), _maker(DaskSource)),
    (_of("dask.bag", "Bag"), _maker(DaskSource)),
    (_of("dask.delayed", "Delayed"), _maker(DaskSource)),
    (_of("ray", "ObjectRef"), _maker(RaySource)),
    (_of("ray.data", "Dataset"), _maker(RaySource)),
    (_of("ray.actor", "ActorHandle"), _maker(ActorSource)),
    (_of("ray.remote_function", "RemoteFunction"), lambda target, *rest: _open_code(target._function, *rest)),
    (lambda target: bool(source_file(target)), _open_module),
    (has_source, _open_code),
    (lambda _: True, _maker(ObjectSource)),
]
