"""Connections that have no stored form, but a description from which they can be made again: an address, a URL.

Rule 1: a description is plain data without credentials. The checkpoint stores it; only `connect` uses it.
Rule 2: an object that cannot be described has no description. The reason is named; it costs this object only.
Rule 3: `connect` runs only while a return loads a state that the user trusts, as unpickling does. It raises a
        `NotConnected` with the kind, the description and the next step.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.reflection import class_module, class_mro, class_of, class_qualname, is_any, loaded
from ctxkernel.core.text import one_line
from ctxkernel.projection.secrets import mask
from ctxkernel.state.types.parts import said
from ctxkernel.state.types.widget_models import open_widget

_SECRET = re.compile(r"(?i)secret|passw|passphrase|pwd|credential|token|(api|access|private|account)_?key")
_DEEP = 10
_MOST_CHARACTERS = 100_000
_SECONDS = 5
"""Seconds after which a built-in entry gives up a server that does not answer."""
CLOSED = "it cannot be connected again"
"""Why an object has no description: `describe` returned None."""


class NotConnected(Exception):
    """A connection could not be made again. The text names it, the reason and the next step."""


class Description(NamedTuple):
    """The stored data of an object: the kind of its entry, and the result of `describe`."""

    kind: str
    value: Any


class Connection(NamedTuple):
    """A described object of a checkpoint."""

    token: str
    kind: str
    text: str
    """The value of its description, as a literal."""
    places: tuple[str, ...] = ()
    """Names, and places in values, that refer to it: `engine`, `d['x']`."""

    @property
    def told(self) -> str:
        """The description for people, in one line."""
        value = ast.literal_eval(self.text)
        return f"{self.kind} {one_line(value if class_of(value) is str else self.text, 100)}"

    def joined(self, other: Connection | None) -> Connection:
        """Return it with the places of another mention of the same object, names first."""
        places = {*self.places, *(other.places if other is not None else ())}
        return self._replace(places=tuple(sorted(places, key=lambda one: (":" in one, not one.isidentifier(), one))))

    def connect(self) -> Any:
        """Return a new object for it. Raises NotConnected."""
        return REGISTRY.connect(self.kind, ast.literal_eval(self.text))


@dataclass(frozen=True, slots=True)
class ReconnectEntry:
    """The description and connection of objects of one type."""

    kind: str
    describe: Callable[[Any], Any]
    """Returns plain data for an object; None where this one cannot be connected again."""
    connect: Callable[[Any], Any]
    """Returns an object for a result of `describe`. It may raise any exception."""
    matches: Callable[[Any], bool] | None = None
    """Which objects without a stored form it is for; None for the instances of the class that the kind names."""


class Registry:
    """Entries by kind. The entry that was added last is asked first."""

    def __init__(self, entries: tuple[ReconnectEntry, ...] = ()) -> None:
        self.entries: Mapping[str, ReconnectEntry] = {entry.kind: entry for entry in entries}
        """Replaced as a whole by each change."""

    def add(self, entry: ReconnectEntry) -> None:
        """Add an entry, in place of one of the same kind."""
        self.remove(entry.kind)
        self.entries = {**self.entries, entry.kind: entry}

    def remove(self, kind: str) -> None:
        """Remove an entry, if there is one of this kind."""
        self.entries = {name: entry for name, entry in self.entries.items() if name != kind}

    def names(self, cls: type) -> bool:
        """Return whether an entry names a class or one of its bases."""
        return any(entry.matches is None and _is_of(cls, kind) for kind, entry in self.entries.items())

    def describe(self, obj: Any) -> Description | str:
        """Return the description of an object, or why it has none: empty without an entry. Raises KeyboardInterrupt."""
        why = ""
        for kind, entry in reversed(list(self.entries.items())):
            try:
                if not (_is_of(class_of(obj), kind) if entry.matches is None else entry.matches(obj)):
                    continue
            except KeyboardInterrupt:
                raise
            except BaseException:  # the user's function, written for other objects: this entry is not for `obj`
                continue
            value = None
            try:
                value = entry.describe(obj)
                found = CLOSED if value is None else _unfit(value, kind)
            except KeyboardInterrupt:
                raise
            except BaseException as fault:  # the user's function, or the library's
                found = f"{kind}: describe() raised {said(fault)}"
            if not found:
                return Description(kind, value)
            why = why or found
        return why

    def why_not(self, kind: str) -> str:
        """Return why nothing of this kind can be connected; empty where an entry says how."""
        if kind in self.entries:
            return ""
        return f"no entry says how {kind} is connected; run the cell that calls reconnect() for it and go there again"

    def connect(self, kind: str, value: Any) -> Any:
        """Return a connected object. Raises NotConnected."""
        if why := self.why_not(kind):
            raise NotConnected(why)
        try:
            if (made := self.entries[kind].connect(value)) is not None:
                return made
            fault = "connect() returned None"
        except KeyboardInterrupt:
            raise
        except BaseException as raised:  # the user's function, or the library's
            fault = said(raised)
        raise NotConnected(f"{kind} {value!r:.100} could not be connected: {fault}; run the cell that made it")


def reconnect(
    kind: type | str,
    *,
    describe: Callable[[Any], Any],
    connect: Callable[[Any], Any],
    matches: Callable[[Any], bool] | None = None,
) -> None:
    """Say how objects of a type are connected again after a return or in a new process.

    `kind` is a class, or `"package.Class"` of one that need not be loaded; subclasses are included. `describe(obj)`
    returns plain data without credentials (text, numbers, lists, tuples, dicts), or None for an object that cannot be
    connected again, such as a closed one. The checkpoint stores these data instead of the object. `connect(data)`
    returns a new object. It runs when you return to a state whose object is gone.

        reconnect(Client, describe=lambda client: client.url, connect=Client)

    With `matches`, `kind` is any name, and the entry is for objects without a stored form for which `matches(obj)` is
    true. An entry of the same kind is replaced. Entries belong to the process: run this again in a new kernel.
    """
    name = kind if isinstance(kind, str) else f"{class_module(kind)}.{class_qualname(kind)}"
    REGISTRY.add(ReconnectEntry(name, describe, connect, matches))


def _is_of(cls: type, name: str) -> bool:
    """Return whether `cls` or one of its bases has this full name, or is the object that its module has under it."""
    module, _, last = name.rpartition(".")
    public = loaded(module).get(last)
    return any(one is public or f"{class_module(one)}.{class_qualname(one)}" == name for one in class_mro(cls))


def _unfit(value: Any, kind: str) -> str:
    """Return the fault of a description, in one line; empty for a valid one."""
    texts: list[str] = []
    if wrong := _not_plain(value, texts, _DEEP):
        return f"{kind}: describe() returned {wrong}; return text, numbers, lists, tuples or dicts of them"
    if sum(map(len, texts)) > _MOST_CHARACTERS:
        return f"{kind}: describe() returned more than {_MOST_CHARACTERS:,} characters"
    if any(mask(text) != text for text in texts) or _names_secret(value):
        return f"{kind}: its description holds what looks like a credential; leave it out, and let connect() look it up"
    return ""


def _not_plain(value: Any, texts: list[str], deep: int) -> str:
    if value is None or class_of(value) in (bool, int) or (class_of(value) is float and math.isfinite(value)):
        return ""
    if class_of(value) is str:
        texts.append(value)
        return ""
    if deep and class_of(value) in (list, tuple, dict):
        held: Any = [*value.keys(), *value.values()] if class_of(value) is dict else value
        return next(filter(None, (_not_plain(one, texts, deep - 1) for one in held)), "")
    return f"a {class_of(value).__name__}"


def _names_secret(value: Any) -> bool:
    """Return whether an entry of a dict is a text under a name such as `password`."""
    if class_of(value) is dict:
        named = any(isinstance(one, str) and one and _SECRET.search(str(name)) for name, one in value.items())
        return named or any(map(_names_secret, value.values()))
    return class_of(value) in (list, tuple) and any(map(_names_secret, value))


def _address(client: Any) -> str | None:
    """Return the address of a Dask client's scheduler; None for one with certificates, or without a scheduler."""
    scheduler = getattr(client, "scheduler", None)
    if client.status != "running" or scheduler is None or client.security.require_encryption:
        return None
    address = str(scheduler.address)
    return None if address.startswith("inproc:") else address


def _dask(address: str) -> Any:
    return importlib.import_module("distributed").Client(address, timeout=_SECONDS)


def _open_widget(described: str) -> Any:
    return open_widget(*described.split())


WIDGET = "widget"
REGISTRY = Registry(
    (
        ReconnectEntry("distributed.client.Client", _address, _dask),
        # The reducer of widgets describes them: whether one has a description depends on more than its class.
        ReconnectEntry(WIDGET, lambda _: None, _open_widget, lambda _: False),
    )
)


def is_released(obj: object) -> bool:
    """Return whether a program may rely on an object to be closed at its last reference, or to release much memory."""
    return is_any(class_of(obj), *_CLOSING)


_CLOSING = (
    *(("io", "IOBase"), ("socket", "socket"), ("tempfile", "_TemporaryFileWrapper"), ("mmap", "mmap")),
    *(("tempfile", "SpooledTemporaryFile"), ("tempfile", "TemporaryDirectory"), ("zipfile", "ZipFile")),
    *(("tarfile", "TarFile"), ("multiprocessing.shared_memory", "SharedMemory"), ("h5py", "HLObject")),
    *(("sqlite3", "Connection"), ("torch", "Tensor"), ("cupy", "ndarray")),
)
