"""Which source looks at which target: one ordered list.

Rule 1: the first row whose predicate holds makes the source. What `register` adds comes before the built-in rows.
Rule 2: a predicate is cheap and does not touch what the target leads to, but for a stat of a path.
Rule 3: a path that is not there is refused here, with the next move; one that goes away later is rendered as missing.
"""

from __future__ import annotations

import difflib
import errno
import glob
import importlib
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ctxkernel.core.errors import BadTarget
from ctxkernel.core.ports import Source
from ctxkernel.core.reflection import class_of, defines, is_a, type_name
from ctxkernel.core.settings import Settings
from ctxkernel.core.text import one_line
from ctxkernel.sources.base.rendering import BaseSource, short_type

if TYPE_CHECKING:
    from ctxkernel.sources.files.files import FileSource

Predicate = Callable[[Any], bool]
Factory = Callable[[Any, Settings, "str | None"], Source]
_FILE = re.compile(r"file:(?=/)", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SIBLINGS = 5_000
_TEMPORARY_FILE: type = getattr(tempfile, "_TemporaryFileWrapper")  # noqa: B009 - has no public name
_IO_BASE: type = io.StringIO.__mro__[-2]  # io.IOBase is a Python class that the C classes are only registered with

_registered: list[tuple[Predicate, Factory]] = []


def _late(module: str, name: str) -> Callable[..., Any]:
    """Return a class or function of a module of sources, which is imported when it is called first."""

    def call(*args: Any) -> Any:
        return getattr(importlib.import_module(f"ctxkernel.sources.{module}"), name)(*args)

    return call


_COMPRESSED = (".gz", ".bz2", ".xz", ".lzma")
_COMPRESSED_SOURCE = _late("files.open_files", "CompressedSource")
_FILE_SOURCE = _late("files.files", "FileSource")
_PACKAGE_SOURCE = _late("files.packages", "PackageSource")
# Files whose format is read, by the end of their names; any other is shown as text or as bytes.
_FORMATS: dict[str, Callable[[str, str], FileSource]] = {
    ".ipynb": _late("files.notebooks", "NotebookSource"),
    **dict.fromkeys((".xlsx", ".xlsm"), _late("tables.workbooks", "WorkbookSource")),
    ".npy": _late("tables.npy_files", "NpySource"),
    ".npz": _late("tables.npy_files", "NpzSource"),
    ".parquet": _late("tables.parquet", "ParquetSource"),
    ".pdf": _late("files.pdfs", "PdfSource"),
    ".pq": _late("tables.parquet", "ParquetSource"),
    **dict.fromkeys(_COMPRESSED, _COMPRESSED_SOURCE),
    **dict.fromkeys((".zip", ".whl", ".jar", ".tar"), _late("files.archives", "ArchiveSource")),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3", ".duckdb"), _late("files.archives", "DatabaseSource")),
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
        if _holds(predicate, target):
            return factory(target, settings or Settings(), namespace_name)
    raise BadTarget(f"nothing can look at a {type_name(class_of(target))}")  # the last row takes everything


def _holds(predicate: Predicate, target: object) -> bool:
    try:
        return bool(predicate(target))
    except Exception:  # it was written for other targets, or one refuses to be compared
        return False


def _made(factory: Factory, target: object, settings: Settings, name: str | None) -> Source:
    try:
        return factory(target, settings, name)
    except BadTarget:
        raise
    except Exception as fault:
        raise BadTarget(
            f"the source that was registered for a {type_name(class_of(target))} could not be made "
            f"({type(fault).__name__}: {fault}); mend it and register it again: the newest is asked first"
        ) from fault


_NAMELESS = (str, bytes, int, float, complex, type(None))


def open_named(target: object, namespace: Mapping[str, object], settings: Settings | None = None) -> Source:
    """Return the source for `target`, labelled by the first name that the user has for it.

    A path is its own label; and of a number it means nothing that some name stands for the same one.
    """
    name = None
    if _is_text(target) or (not is_a(target, *_NAMELESS) and not _is_path(target)):
        # A copy: another thread may add a name meanwhile.
        name = next((key for key, value in list(namespace.items()) if value is target and key[:1] != "_"), None)
    source = open_source(target, settings=settings, namespace_name=name)
    if isinstance(source, BaseSource) and source is not target:
        source.named = source.given_label[0] == name  # of a file or a module the label is what it is, whatever the name
        source.stands_for = lambda label: namespace[label] is target if label in namespace else None
    return source


def _is_path(target: Any) -> bool:
    return is_a(target, str) or defines(target, "__fspath__")


def _is_text(target: Any) -> bool:
    return is_a(target, str) and _late("objects.strings", "is_text")(target)


def _open_path(target: Any, settings: Settings, name: str | None) -> Source:
    try:
        given = os.fsdecode(target)
    except Exception as fault:  # a path-like object of the user's
        raise BadTarget(
            f"{name or 'the object'} ({type_name(class_of(target))}) says that it is a path, and its __fspath__ raised "
            f"{type(fault).__name__}; view the path as text"
        ) from None
    if scheme_of(given) not in ("", "file"):
        return _late("files.uris", "UriSource")(given, settings.fetch_seconds, _open_file_at)
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
            if (matches := _open_pattern(path, given)) is not None:
                return matches
            raise BadTarget(_not_there(given, path)) from None
        return _open_file_at(path, given)  # a link that leads nowhere, now
    except (ValueError, OSError) as fault:
        # Windows says of a wildcard that it can be in no name.
        if getattr(fault, "winerror", 0) == 123 and (matches := _open_pattern(path, given)) is not None:
            return matches
        if isinstance(fault, ValueError) or fault.errno == errno.ENAMETOOLONG:
            raise BadTarget(
                f"{one_line(repr(given), 80)} is no path; view(io.StringIO(text)) looks at a short text, and "
                f"view(name), without quotes, at an object"
            ) from None
        return _open_file_at(path, given)  # it is there and cannot be read: the rendering says why
    if stat.S_ISDIR(found.st_mode):
        return _late("files.folders", "DirectorySource")(path, given)
    return _open_file_at(path, given)


def _open_pattern(path: str, label: str) -> Source | None:
    """Return the source for a text that is a pattern, if the folder before its first wildcard is there."""
    from ctxkernel.sources.files.folders import GlobSource
    from ctxkernel.sources.files.globs import folder_of, is_pattern

    if not is_pattern(path):
        return None
    # The working directory is a name, whatever its letters.
    pattern = path if os.path.isabs(path) else os.path.join(glob.escape(os.getcwd()), path)
    return GlobSource(pattern, label, _open_file_at) if os.path.isdir(folder_of(pattern)) else None


def _open_file_at(path: str, label: str) -> FileSource:
    return _FORMATS.get(os.path.splitext(path)[1].lower(), _FILE_SOURCE)(path, label)


def scheme_of(text: str) -> str:
    """Return the scheme of a URI in lower case, or empty: of a path, and of a drive."""
    found = _SCHEME.match(text)
    return found[1].lower() if found and len(found[1]) > 1 else ""


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
        f"An object is viewed by its name without quotes, a short text by view(io.StringIO(text))"
    )


def _open_file(target: Any, settings: Settings, name: str | None) -> Source:
    if is_a(target, io.StringIO):
        return _late("objects.objects", "StringSource")(target, name or "StringIO")
    if (held := _late("files.open_files", "held_by")(target)) is not None:
        if held.path is None:
            label = name or short_type(target)
            return _late("files.open_files", "HeldSource")(target, held.inner, label, held.opener)
        if held.opener is None:
            return _open_file_at(held.path, held.path)
        source = _COMPRESSED_SOURCE(held.path, held.path, held.opener)
        if os.path.splitext(held.path)[1].lower() not in _COMPRESSED:
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
            f"{name or 'the file object'} ({type_name(class_of(target))}) is closed, or has no path that could be "
            f"looked at; view the path, or view(io.StringIO(text)) with what it holds"
        )
    return _open_file_at(path, path)


def _open_module(target: Any, settings: Settings, name: str | None) -> Source:
    path, label = _late("objects.objects", "source_file")(target), f"module {target.__name__}"
    package = os.path.basename(path) == "__init__.py"
    source: FileSource = _PACKAGE_SOURCE(path, label, target.__name__) if package else _FILE_SOURCE(path, label)
    source.kind, source.target = "module", target
    return source


def _open_code(target: Any, settings: Settings, name: str | None) -> Source:
    own = type_name(target) if is_a(target, type) else f"{target.__module__}.{target.__qualname__}"
    return _late("objects.objects", "CodeSource")(target, name or own.removeprefix("__main__."))


def _made_by(module: str, name: str) -> Factory:
    """Return a factory for a source whose label is the user's name, else the name of the type."""
    make = _late(module, name)
    return lambda target, settings, named: make(target, named or short_type(target))


def _of(module: str, *names: str) -> Predicate:
    """Return a predicate: an instance of one of the classes of a library, as far as that is loaded."""

    def holds(target: Any) -> bool:
        loaded = sys.modules.get(module)
        kinds = [getattr(loaded, name, None) for name in names] if loaded is not None else []
        return is_a(target, *(kind for kind in kinds if kind is not None))

    return holds


def _is_checkpoint(target: Any) -> bool:
    return "torch" in sys.modules and _late("libraries.torch_checkpoints", "is_checkpoint")(target)


def _is_results(target: Any) -> bool:
    return (
        class_of(target) is dict and "params" in target and _late("libraries.parameter_searches", "is_results")(target)
    )


_BUILT_IN: list[tuple[Predicate, Factory]] = [
    (lambda target: is_a(target, BaseSource), lambda target, settings, name: target),
    (_late("objects.own_renderings", "is_shown_by_itself"), _made_by("objects.own_renderings", "OwnSource")),
    (_is_text, lambda target, settings, name: _late("objects.strings", "StringValueSource")(target, name or "text")),
    (_is_path, _open_path),
    (lambda target: is_a(target, _IO_BASE, _TEMPORARY_FILE), _open_file),
    (_of("pandas", "DataFrame", "Series", "Index", "Categorical"), _made_by("tables.pandas_frames", "FrameSource")),
    (_of("pandas.core.groupby", "DataFrameGroupBy", "SeriesGroupBy"), _made_by("libraries.group_bys", "GroupBySource")),
    (_of("numpy", "ndarray"), _made_by("tables.numpy_arrays", "ArraySource")),
    (_of("polars", "DataFrame", "Series"), _made_by("tables.polars_frames", "PolarsSource")),
    (_of("polars", "LazyFrame"), _made_by("libraries.plans", "LazyFrameSource")),
    (
        _of("pyarrow", "Table", "RecordBatch", "ChunkedArray", "Array"),
        _made_by("tables.arrow_tables", "ArrowSource"),
    ),
    (_of("torch", "Tensor"), _made_by("libraries.models", "open_tensor")),
    (_of("torch.nn", "Module"), _made_by("libraries.models", "NetworkSource")),
    (_of("xarray", "Dataset", "DataArray"), _made_by("libraries.labelled", "LabelledSource")),
    (_of("xarray", "DataTree"), _made_by("libraries.labelled", "TreeSource")),
    (_of("sklearn.base", "BaseEstimator"), _made_by("libraries.parameter_searches", "open_estimator")),
    (_of("matplotlib.figure", "Figure"), _made_by("libraries.figures", "FigureSource")),
    (_of("matplotlib.axes", "Axes"), _made_by("libraries.figures", "FigureSource")),
    (_of("PIL.Image", "Image"), _made_by("libraries.pil_images", "PilImageSource")),
    (_of("dask.dataframe", "DataFrame", "Series", "Index"), _made_by("libraries.plans", "DaskFrameSource")),
    (_of("dask.array", "Array"), _made_by("libraries.plans", "DaskSource")),
    (_of("dask.bag", "Bag"), _made_by("libraries.plans", "DaskSource")),
    (_of("dask.delayed", "Delayed"), _made_by("libraries.plans", "DaskSource")),
    (_of("ray", "ObjectRef"), _made_by("libraries.plans", "RaySource")),
    (_of("ray.data", "Dataset"), _made_by("libraries.plans", "RaySource")),
    (_of("ray.actor", "ActorHandle"), _made_by("libraries.plans", "ActorSource")),
    (
        _of("ray.remote_function", "RemoteFunction"),
        lambda target, settings, name: _open_code(target._function, settings, name),
    ),
    (lambda target: bool(_late("objects.objects", "source_file")(target)), _open_module),
    (_late("objects.objects", "has_source"), _open_code),
    (lambda target: is_a(target, BaseException), _made_by("objects.exceptions", "ErrorSource")),
    (_of("networkx", "Graph"), _made_by("libraries.graphs", "GraphSource")),
    (_of("statsmodels.base.wrapper", "ResultsWrapper"), _made_by("libraries.regressions", "RegressionSource")),
    (_of("statsmodels.base.model", "Results"), _made_by("libraries.regressions", "RegressionSource")),
    (_is_checkpoint, _made_by("libraries.torch_checkpoints", "CheckpointSource")),
    (_is_results, _made_by("libraries.parameter_searches", "SearchResultsSource")),
    (_late("objects.records", "is_table"), _made_by("objects.records", "RecordsSource")),
    (_late("objects.nested", "is_nested"), _made_by("objects.nested", "NestedSource")),
    (lambda _: True, _made_by("objects.objects", "ObjectSource")),
]
