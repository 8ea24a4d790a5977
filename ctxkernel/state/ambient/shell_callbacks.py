"""Callbacks that cells register with the shell: for events, cells, trees of code, types of results, and magics.

Rule 1: only callbacks of the user's are looked at. Those of libraries stay: one of them shows the figures.
Rule 2: the callbacks are stored like variables, as they share objects with these. A missing one is named.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from ctxkernel.core.reflection import class_module, class_of, class_qualname, is_kind
from ctxkernel.state.ambient.part import LiveObjects, NotRestored, Part
from ctxkernel.state.base.own_modules import SHELL, is_own

_EXTENSIONS, _ALIASES, _EXCEPTIONS = "extensions", "aliases", "handler of exceptions"
_GONE: Any = object()


class ShellCallbacks(Part):
    """The user's callbacks, by place: each with its key, such as the type that it formats."""

    name = SHELL
    needs = "IPython"

    def __init__(self) -> None:
        self.live = LiveObjects()
        self._stamp: object = None
        self._is_new = False
        """Whether the stamp was read for `own_objects` and not used since: after a cell both are asked for."""
        self._objects: dict[str, Any] = {}
        """Token → object, as of the stamp."""
        self._aliases: dict[str, str] = {}
        """The aliases before the first cell, each with its command."""
        self._handler: tuple[Any, Any] = None, ()
        """The handler of exceptions before the first cell, and these."""
        self._of_libraries: dict[str, dict[Any, Any]] = {}
        """Place → key → the callback of a library, which the user's may have replaced."""

    def begin(self) -> None:
        """Take in what is there before the first cell."""
        self._aliases, self._handler = _aliases(), _handler()

    def stamp(self) -> object:
        """Return the ids of all callbacks; those of the user's are alive, so no id is used twice."""
        if self._is_new:
            self._is_new = False
            return self._stamp
        return _ids()

    def own_objects(self) -> dict[str, Any]:
        """Return the callbacks, and the keys that are objects, by token."""
        self._is_new = True
        if (stamp := _ids()) != self._stamp:
            self._stamp = stamp
            objects = (one for _, held in _places() for pair in _own(held) for one in pair)
            self._objects = {self.live.token(one): one for one in objects if not _is_plain(one)}
        return dict(self._objects)

    def put_back(self, objects: Mapping[str, Any]) -> None:
        """Take in the objects that were loaded; `restore` registers them."""
        for token, one in objects.items():
            self.live.adopt(token, one)

    def capture(self) -> Any:
        """Return the callbacks as their places, with tokens and names."""
        found: dict[str, Any] = {}
        for place, held in _places():
            if _is_dict(held):
                known = self._of_libraries.setdefault(place, {})
                known |= {key: one for key, one in held.items() if not _is_users(one)}
            if own := [[self._told(key), self._told(one)] for key, one in _own(held)]:
                found[place] = own
        others = {_EXTENSIONS: _own_extensions(), _ALIASES: self._own_aliases(), _EXCEPTIONS: self._exceptions()}
        return found | {place: own for place, own in others.items() if own}

    def _own_aliases(self) -> list[list[str | None]]:
        """Return the aliases that cells made, each with its command, and those that they removed, with None."""
        now = _aliases()
        names = sorted(now.keys() | self._aliases.keys())
        return [[name, now.get(name)] for name in names if now.get(name) != self._aliases.get(name)]

    def _exceptions(self) -> list[str]:
        """Return the names of the exceptions that a handler of the user's shows."""
        handler, handled = _handler()
        return [class_qualname(cls) for cls in handled] if handler is not self._handler[0] else []

    def _told(self, one: Any) -> Any:
        if _is_plain(one):
            return one
        if class_of(one) is types.MethodType:
            return [self.live.token(one), one.__func__.__qualname__]
        named = one if is_kind(class_of(one), type) or class_of(one) is types.FunctionType else class_of(one)
        return [self.live.token(one), named.__qualname__]

    def restore(self, value: Any) -> None:
        """Register the callbacks again. Raises NotRestored that names those that are not there."""
        self._is_new = False
        missing: list[str] = []
        for place, held in _places():
            wanted: list[tuple[Any, Any]] = []
            for told in value.get(place, ()):
                key, one = map(self._found, told)
                if key is _GONE or one is _GONE:
                    missing.append(f"{told[1][1]} ({place})")
                else:
                    wanted.append((key, one))
            if [(id(key), id(one)) for key, one in wanted] != [(id(key), id(one)) for key, one in _own(held)]:
                self._put(place, held, wanted)
        for name in _own_extensions():
            _extensions().discard(name)  # `%load_ext` registers its callbacks again
        _extensions().update(value.get(_EXTENSIONS, ()))
        _set_aliases({**self._aliases, **dict(value.get(_ALIASES, ()))})
        if self._exceptions() != (handled := value.get(_EXCEPTIONS, [])):
            shell = _shell()
            shell.CustomTB, shell.custom_exceptions = self._handler
            missing += [f"{', '.join(handled)} ({_EXCEPTIONS})"] if handled else []
        if missing:
            raise NotRestored(f"not here, run the cell that registers it: {', '.join(missing)}")

    def _put(self, place: str, held: Any, wanted: list[tuple[Any, Any]]) -> None:
        if not _is_dict(held):
            held[:] = [*(one for one in held if not _is_users(one)), *(one for _, one in wanted)]
            return
        before = self._of_libraries.get(place, {})
        for key, _ in list(_own(held)):
            if key in before:
                held[key] = before[key]
            else:
                del held[key]
        held.update(wanted)

    def _found(self, told: Any) -> Any:
        if _is_plain(told):
            return told
        return self.live.get(told[0]) if told[0] in self.live else _GONE


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython()


def _held() -> list[Any]:
    """Return the lists and dicts of callbacks of the shell."""
    shell = _shell()
    if shell is None:
        return []
    display = shell.display_formatter
    formatters = [*display.formatters.values(), display.ipython_display_formatter, display.mimebundle_formatter]
    return [
        *shell.events.callbacks.values(),
        shell.input_transformers_cleanup,
        shell.input_transformers_post,
        shell.ast_transformers,
        *[one.type_printers for one in formatters],
        *[one.deferred_printers for one in formatters],
        *shell.magics_manager.magics.values(),
        shell.magics_manager.registry,
    ]


def _ids() -> object:
    """Return the ids of all callbacks, and the loaded extensions: it is read after every cell."""
    ids = [[*map(id, getattr(held, "values", held.__iter__)())] for held in _held()]  # of a dict its values
    return ids, [*_extensions()], id(_handler()[0])


def _is_dict(held: Any) -> bool:
    return isinstance(held, dict)


def _places() -> list[tuple[str, Any]]:
    """Return the lists and dicts of callbacks of the shell with their names."""
    shell = _shell()
    if shell is None:
        return []
    kinds = [*shell.display_formatter.formatters, "display", "MIME bundle"]
    names = [
        *[f"event {event}" for event in shell.events.callbacks],
        *[f"transformers of {what}" for what in ("cells", "lines", "trees")],
        *[f"formatters of {kind}" for kind in kinds],
        *[f"formatters of {kind} by name" for kind in kinds],
        *[f"{kind} magics" for kind in shell.magics_manager.magics],
        "classes of magics",
    ]
    return list(zip(names, _held(), strict=True))


def _extensions() -> set[str]:
    shell = _shell()
    return shell.extension_manager.loaded if shell is not None else set()


def _aliases() -> dict[str, str]:
    shell = _shell()
    return dict(shell.alias_manager.aliases) if shell is not None else {}


def _set_aliases(wanted: Mapping[str, str | None]) -> None:
    now, manager = _aliases(), _shell().alias_manager
    for name in now.keys() | wanted.keys():
        command = wanted.get(name)
        if command is None and name in now:
            manager.undefine_alias(name)
        elif command is not None and command != now.get(name):
            manager.define_alias(name, command)


def _handler() -> tuple[Any, Any]:
    """Return the handler of exceptions (a bound method, which IPython makes once) and these."""
    shell = _shell()
    return getattr(shell, "CustomTB", None), getattr(shell, "custom_exceptions", ())


def _own_extensions() -> list[str]:
    """Return the loaded extensions that are modules of the user's."""
    return sorted(name for name in _extensions() if _is_own_module(name))


def _is_own_module(name: str) -> bool:
    module = sys.modules.get(name)
    if name.partition(".")[0] == "ctxkernel" or module is None:
        return False
    return name == "__main__" or is_own(module)


def _is_plain(key: Any) -> bool:
    """Return whether it is no key, or a name, or the module and the name of a type that may not be loaded."""
    return class_of(key) in (types.NoneType, str, tuple)


def _own(held: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the user's callbacks with their keys."""
    pairs = held.items() if _is_dict(held) else ((None, one) for one in held)
    return ((key, one) for key, one in pairs if _is_users(one))


def _is_users(one: Any) -> bool:
    while class_of(one) is functools.partial:
        one = one.func
    if class_of(one) is types.MethodType:
        one = class_of(one.__self__)
    plain = is_kind(class_of(one), type) or class_of(one) is types.FunctionType
    return _is_own_module(_module_of(one if plain else class_of(one)))


def _module_of(one: Any) -> str:
    return class_module(one) if is_kind(class_of(one), type) else str(one.__module__)
