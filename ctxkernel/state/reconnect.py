"""How a connection is made again that has no stored form: a scheduler by its address, a database by its URL.

Rule 1: a description is plain data without credentials: the checkpoint stores it, and only `connect` uses it.
Rule 2: an object that cannot be described has no description, and `why_not` says why; that costs the object only.
Rule 3: `connect` runs for states that the user trusts, as unpickling does. It raises a `NotConnected` that names the
        kind, the description and the next step.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ctxkernel.projection.secrets import mask

_SECRET = re.compile(r"(?i)secret|passw|passphrase|pwd|credential|token|(api|access|private|account)_?key")
_DEEP = 10
_MOST_CHARACTERS = 100_000
_SECONDS = 5
"""Seconds after which a built-in entry gives up a server that does not answer."""


class NotConnected(Exception):
    """A connection could not be made again. The text says which, why, and what to do."""


class Description(NamedTuple):
    """All that is stored of an object: the entry that it belongs to, and what `describe` returned."""

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Entry:
    """How objects of one type are described and connected."""

    kind: str
    describe: Callable[[Any], Any]
    """Returns plain data for an object; None where this one cannot be connected again."""
    connect: Callable[[Any], Any]
    """Returns an object for what `describe` returned. It may raise anything."""
    matches: Callable[[Any], bool] | None = None
    """Which objects it is for; None for those of the type that the kind names."""


class Registry:
    """Entries by kind. The entry that was added last is asked first."""

    def __init__(self, entries: tuple[Entry, ...] = ()) -> None:
        self._entries = {entry.kind: entry for entry in entries}

    def add(self, entry: Entry) -> None:
        """Add an entry, in place of one of the same kind."""
        self._entries.pop(entry.kind, None)
        self._entries[entry.kind] = entry

    def remove(self, kind: str) -> None:
        """Remove an entry; one that is not there is none."""
        self._entries.pop(kind, None)

    def description_of(self, obj: Any) -> Description | None:
        """Return the description of an object, None where no entry has one. Raises nothing."""
        return self._described(obj)[0]

    def why_not(self, obj: Any) -> str:
        """Return why an object that an entry is for has no description; empty where no entry is for it."""
        return self._described(obj)[1]

    def _described(self, obj: Any) -> tuple[Description | None, str]:
        why = ""
        for entry in reversed(list(self._entries.values())):
            try:
                if not (entry.matches(obj) if entry.matches is not None else _is_of(obj, entry.kind)):
                    continue
                value = entry.describe(obj)
                why = f"{entry.kind}: it cannot be connected again" if value is None else _unfit(value, entry.kind)
                if not why:
                    return Description(entry.kind, value), ""
            except Exception as fault:  # the user's function, or the library's
                why = f"{entry.kind}: describing it raised {type(fault).__name__}: {fault}"[:300]
        return None, why

    def connect(self, kind: str, value: Any) -> Any:
        """Return a connected object. Raises NotConnected."""
        entry = self._entries.get(kind)
        if entry is None:
            raise NotConnected(
                f"no entry says how {kind} is connected; run the cell that calls reconnect() for it and go there again"
            )
        try:
            return entry.connect(value)
        except Exception as fault:
            raise NotConnected(
                f"{kind} {value!r:.100} could not be connected: {type(fault).__name__}: {fault}"[:400]
                + "; run the cell that made it"
            ) from fault


def reconnect(
    kind: type | str,
    *,
    describe: Callable[[Any], Any],
    connect: Callable[[Any], Any],
    matches: Callable[[Any], bool] | None = None,
) -> None:
    """Say how objects of a type are connected again after a return or in a new process.

    `kind` is a class, or `package.module.Class` of one that need not be loaded, for it and its subclasses. `describe`
    returns plain data without credentials: texts, numbers, lists, tuples, dicts; or None for an object that cannot be
    connected again. `connect` makes an object of that. With `matches`, `kind` is any name, and the entry is for the
    objects for which it is true. An entry of the same kind is replaced.
    """
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(kind, type) and matches is None:
        # By identity too: a class of the notebook is made anew when its cell runs again.
        matches = _matcher(kind, name)
    REGISTRY.add(Entry(name, describe, connect, matches))


def _matcher(kind: type, name: str) -> Callable[[Any], bool]:
    return lambda obj: isinstance(obj, kind) or _is_of(obj, name)


def _is_of(obj: Any, name: str) -> bool:
    """Return whether an object is an instance of a class by that name, or of a subclass."""
    return any(f"{one.__module__}.{one.__qualname__}" == name for one in type(obj).__mro__)


def _unfit(value: Any, kind: str) -> str:
    """Return what is wrong with a description, in one line; empty for nothing."""
    texts: list[str] = []
    wrong = _not_plain(value, texts, _DEEP)
    if wrong:
        return f"{kind}: describe() returned {wrong}; return text, numbers, lists, tuples or dicts of them"
    if sum(map(len, texts)) > _MOST_CHARACTERS:
        return f"{kind}: describe() returned more than {_MOST_CHARACTERS:,} characters"
    if any(mask(text) != text for text in texts) or _names_secret(value):
        return f"{kind}: its description holds what looks like a credential; leave it out, and let connect() look it up"
    return ""


def _not_plain(value: Any, texts: list[str], deep: int) -> str:
    if value is None or type(value) in (bool, int, float):
        return ""
    if type(value) is str:
        texts.append(value)
        return ""
    if deep and type(value) in (list, tuple):
        return next(filter(None, (_not_plain(one, texts, deep - 1) for one in value)), "")
    if deep and type(value) is dict:
        held = [*value.keys(), *value.values()]
        return next(filter(None, (_not_plain(one, texts, deep - 1) for one in held)), "")
    return f"a {type(value).__name__}"


def _names_secret(value: Any) -> bool:
    """Return whether an entry of a dict is a text under a name such as `password`."""
    if isinstance(value, dict):
        named = any(isinstance(one, str) and one and _SECRET.search(str(name)) for name, one in value.items())
        return named or any(map(_names_secret, value.values()))
    return isinstance(value, list | tuple) and any(map(_names_secret, value))


# -- built in -----------------------------------------------------------------------------------


def _address(client: Any) -> str | None:
    """Return the address of a Dask client's scheduler; None for one with certificates, or without a scheduler."""
    scheduler = getattr(client, "scheduler", None)
    if client.status != "running" or scheduler is None or client.security.require_encryption:
        return None
    address = str(scheduler.address)
    return None if address.startswith("inproc:") else address


def _dask(address: str) -> Any:
    import importlib

    importlib.import_module("distributed")
    return sys.modules["distributed"].Client(address, timeout=_SECONDS)  # type: ignore[attr-defined]


REGISTRY = Registry((Entry("distributed.client.Client", _address, _dask),))
"""The entries of this process."""
