"""Levels, filters and handlers of the module `logging`.

Rule: the handlers of a logger are live objects and are restored as such. In another process, a handler with the same
class, level, format and target is used in its place. One that writes to a standard stream is made anew, any other is
named.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ctxkernel.core.reflection import class_of
from ctxkernel.state.ambient.part import LiveObjects, NotRestored, Part
from ctxkernel.state.base.own_modules import is_own
from ctxkernel.state.types.process_objects import is_stored_handler

_STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")
_FIELDS = itemgetter("level", "propagate", "disabled", "filters", "handlers")
_NEW: tuple[Any, ...] = (0, True, False, [], [])
_PRISTINE: tuple[Any, ...] = (0, True, False, (), ())

_LOGGER = "logger:"
_OF_ALL = {*vars(logging.root), "manager"}

Logger = logging.Logger | logging.RootLogger
Config = tuple[int, bool, bool, Sequence[Any], Sequence[Any]]
"""Level, propagate, disabled, filters, handlers."""


class Logging(Part):
    """The root logger, and all loggers that were configured."""

    name = "logging"

    def __init__(self) -> None:
        self.live = LiveObjects()
        self._first: dict[str, Config] = {}
        """Logger → how it was configured when it was first seen."""

    def stamp(self) -> object:
        """Return ids and numbers of all that is configured; captured objects are alive, so no id is used twice."""
        manager = logging.root.manager
        found: list[object] = [len(manager.loggerDict), manager.disable]
        for name, logger in (("", logging.root), *manager.loggerDict.items()):
            if isinstance(logger, logging.PlaceHolder) or (name and _FIELDS(vars(logger)) == _NEW):
                continue
            found += name, logger.level, logger.propagate, logger.disabled, [*map(id, logger.filters)]
            for handler in logger.handlers:
                own = vars(handler)
                aims = id(own.get("stream")), own.get("baseFilename"), id(own.get("target"))
                found += id(handler), handler.level, id(handler.formatter), *aims, [*map(id, handler.filters)]
        return found

    def capture(self) -> Any:
        """Return the configuration with tokens for live objects."""
        self._note_first()
        loggers: dict[str, Any] = {}
        handlers: dict[str, Any] = {}
        for name, logger in _configured():
            filters, own = self._tokens(logger.filters), self._tokens(logger.handlers)
            handlers.update(zip(own, map(self._told, logger.handlers), strict=True))
            loggers[name] = [logger.level, logger.propagate, logger.disabled, filters, own]
        return {"disable": logging.root.manager.disable, "loggers": loggers, "handlers": handlers}

    def own_objects(self) -> dict[str, Any]:
        """Return the objects that are stored like variables: handlers by token, attributes of loggers by name."""
        found: dict[str, Any] = {}
        for name, logger in (("", logging.root), *logging.root.manager.loggerDict.items()):
            if isinstance(logger, logging.PlaceHolder):
                continue
            if not vars(logger).keys() <= _OF_ALL and not (name and _of_library(name)):
                found[_LOGGER + name] = _attributes(logger)
            for handler in logger.handlers:
                if _is_stored(handler):
                    found[self.live.token(handler)] = handler
        return found

    def put_back(self, objects: Mapping[str, Any]) -> list[str]:
        """Restore the objects of `own_objects`; return the loggers that keep the attributes of their new class."""
        stay: list[str] = []
        loggers = {_LOGGER + name: one for name, one in _all() if not name or not _of_library(name)}
        for name, one in objects.items():
            if not name.startswith(_LOGGER):
                self.live.adopt(name, one)
            elif name not in loggers:
                loggers[name] = logging.getLogger(name.removeprefix(_LOGGER))
        for name, logger in loggers.items():
            now = _attributes(logger)
            if now and name not in objects and type(logger) not in (logging.Logger, logging.RootLogger):
                stay.append(name.removeprefix(_LOGGER))
            elif now or name in objects:
                for attribute in now:
                    del logger.__dict__[attribute]
                logger.__dict__.update(objects.get(name, {}))
        return stay

    def _note_first(self) -> None:
        self._first |= {name: _config(logger) for name, logger in _all() if name not in self._first}

    def _tokens(self, objects: Iterable[Any]) -> list[str]:
        return [*map(self.live.token, objects)]

    def _told(self, handler: Any) -> dict[str, Any]:
        formatter, target = handler.formatter, getattr(handler, "target", None)
        return {
            "kind": f"{type(handler).__module__}.{type(handler).__qualname__}",
            "level": handler.level,
            "format": str(getattr(formatter, "_fmt", "")) if formatter is not None else "",
            "plain": _arguments_of(formatter),
            "formatter": self.live.token(formatter) if formatter is not None else None,
            "filters": self._tokens(handler.filters),
            "stream": self._stream(getattr(handler, "stream", None)),
            "file": getattr(handler, "baseFilename", None),
            "target": self.live.token(target) if isinstance(target, logging.Handler) else None,
        }

    def _stream(self, stream: Any) -> str | None:
        """Return a standard stream by its name, another one by its token."""
        named = next((f"sys.{name}" for name in _STREAMS if getattr(sys, name, None) is stream), None)
        return None if stream is None else named or self.live.token(stream)

    def matches(self, value: Any) -> bool:
        """Return whether nothing differs and nothing is missing."""
        return not any(self._differences(value))

    def restore(self, value: Any) -> None:
        """Configure the loggers as they were. Raises NotRestored that names the handlers that are not there."""
        changes = [*self._differences(value)]
        for change in changes:
            if not isinstance(change, str):
                change()
        if missing := [one for one in changes if isinstance(one, str)]:
            raise NotRestored("; ".join(dict.fromkeys(missing)))

    def _differences(self, value: Any) -> Iterator[Callable[[], object] | str]:
        """Yield the necessary changes as functions, and the impossible ones as texts. Changes nothing itself."""
        self._note_first()
        disable = value["disable"]
        if logging.root.manager.disable != disable:
            yield lambda: logging.disable(disable)
        existing = dict(_all())
        for name in {**dict.fromkeys(value["loggers"]), **dict(_configured())}:
            then = value["loggers"].get(name)
            logger = existing.get(name)
            if then is None:
                wanted: Any = self._first[name] if _of_library(name) else _PRISTINE
            else:
                now = logger.handlers if logger is not None else ()
                handlers, missing = self._found(name, then[4], now, value["handlers"])
                filters = [self.live.get(token) for token in then[3] if token in self.live]
                if len(filters) < len(then[3]):
                    missing.append(f"logger {name or 'root'}: {len(then[3]) - len(filters)} filters are not held")
                yield from missing
                wanted = (*then[:3], filters, handlers)
            if logger is None or not _same(_config(logger), wanted):
                yield lambda name=name, wanted=wanted: _configure(name, wanted)
        for token, told in value["handlers"].items():
            if token in self.live and not _is_stored(handler := self.live.get(token)):
                yield from self._of_handler(handler, told)

    def _found(
        self, name: str, tokens: Sequence[str], now: Sequence[Any], told: dict[str, Any]
    ) -> tuple[list[Any], list[str]]:
        """Return the handlers that a logger had, and which are missing."""
        found: list[Any] = []
        missing: list[str] = []
        foreign = False
        for token in tokens:
            if token in self.live:
                found.append(self.live.get(token))
                continue
            is_here = self.live.here(token)
            foreign = foreign or not is_here
            known = () if is_here else self._first.get(name, _PRISTINE)[4]
            same = [one for one in now if one not in found and self._is(one, told[token], one in known)]
            if same:
                found.append(same[0])
            elif not is_here and (made := _made_anew(told[token])) is not None:
                found.append(made)
            elif told[token]["kind"] != "logging.NullHandler":
                where = "is not held any more" if is_here else "belongs to an earlier kernel"
                missing.append(f"logger {name or 'root'}: {_described(told[token])} {where}; add it again")
        if foreign:  # the handlers that this process began with are not those that the notebook's cells added
            found += [one for one in self._first.get(name, _PRISTINE)[4] if one in now and one not in found]
        return found, missing

    def _is(self, handler: Any, told: dict[str, Any], known: bool) -> bool:
        """Return whether a handler stands for one of another process; `known` ones were there at the start."""
        now = self._told(handler)
        same = all(now[key] == told[key] for key in ("kind", "level", "format", "file"))
        return same and (known or now["file"] is not None or now["stream"] == told["stream"])

    def _of_handler(self, handler: Any, told: dict[str, Any]) -> Iterator[Callable[[], object] | str]:
        now = self._told(handler)
        if now["level"] != told["level"]:
            yield lambda: handler.setLevel(told["level"])
        if now["file"] != told["file"]:
            yield lambda: setattr(handler, "baseFilename", told["file"])
        for attribute in ("formatter", "target"):
            token = told[attribute]
            if now[attribute] == token:
                continue
            if token is None or token in self.live:
                aim = None if token is None else self.live.get(token)
                yield lambda attribute=attribute, aim=aim: setattr(handler, attribute, aim)
            else:
                yield f"{_described(told)}: its {attribute} is not held any more"
        if now["filters"] != told["filters"]:
            if all(token in self.live for token in told["filters"]):
                aims = [self.live.get(token) for token in told["filters"]]
                yield lambda: handler.filters.__setitem__(slice(None), aims)
            else:
                yield f"{_described(told)}: its filters are not held any more"
        if now["stream"] != told["stream"]:
            yield from self._of_stream(handler, told)

    def _of_stream(self, handler: Any, told: dict[str, Any]) -> Iterator[Callable[[], object] | str]:
        stream, name = None, told["stream"] or ""
        if name.startswith("sys."):
            stream = getattr(sys, name[4:], None)
        elif name in self.live:
            stream = self.live.get(name)
        elif name:
            yield f"{_described(told)}: its stream is not held any more"
            return
        if getattr(stream, "closed", False) is True:
            if told["file"] is None or handler.mode == "w":
                yield f"{_described(told)}: its stream was closed since; give it another one"
                return
            stream = None  # it opens its file again at the next record
        if handler.stream is not stream:
            yield lambda: _set_stream(handler, stream)


def _all() -> list[tuple[str, Logger]]:
    found = list(logging.root.manager.loggerDict.items())
    return [("", logging.root), *[(name, one) for name, one in found if isinstance(one, Logger)]]


def _configured() -> list[tuple[str, Any]]:
    """Return the root logger and each that differs from a new one, by name."""
    return [(name, logger) for name, logger in _all() if not name or _FIELDS(logger.__dict__) != _NEW]


def _attributes(logger: Logger) -> dict[str, Any]:
    """Return the attributes that the user gave to a logger."""
    return {name: value for name, value in vars(logger).items() if name not in _OF_ALL}


def _config(logger: Logger) -> Config:
    return logger.level, bool(logger.propagate), bool(logger.disabled), [*logger.filters], [*logger.handlers]


def _same(now: Config, wanted: Config) -> bool:
    lists = zip(now[3:], wanted[3:], strict=True)
    return now[:3] == tuple(wanted[:3]) and all([*map(id, a)] == [*map(id, b)] for a, b in lists)


def _configure(name: str, config: Config) -> None:
    logger = logging.getLogger(name) if name else logging.root
    logger.setLevel(config[0])
    logger.propagate, logger.disabled = config[1], config[2]
    logger.filters[:] = config[3]
    logger.handlers[:] = config[4]
    getattr(logger.manager, "_clear_cache", lambda: None)()


def _is_stored(handler: Any) -> bool:
    cls = class_of(handler)
    module = sys.modules.get(cls.__module__)
    return is_stored_handler(handler, cls.__module__ == "__main__" or (module is not None and is_own(module)))


def _of_library(name: str) -> bool:
    """Return whether a logger's name is that of an imported library: it is configured by the import, and only then."""
    module = sys.modules.get(name.partition(".")[0])
    return not name or (module is not None and not is_own(module) and module.__name__ != "__main__")


_STYLES = {logging.PercentStyle: "%", logging.StrFormatStyle: "{", logging.StringTemplateStyle: "$"}


def _arguments_of(formatter: Any) -> list[Any] | None:
    """Return the arguments that make such a formatter; None for one of another class."""
    if class_of(formatter) is not logging.Formatter:
        return None
    return [formatter._fmt, formatter.datefmt, _STYLES.get(class_of(formatter._style))]


def _made_anew(told: dict[str, Any]) -> logging.Handler | None:
    """Return a handler like one of an earlier kernel that writes to a standard stream; None for any other."""
    stream, arguments = told["stream"] or "", told.get("plain")
    plain = told["formatter"] is None or (arguments is not None and arguments[2] is not None)
    if told["kind"] != "logging.StreamHandler" or not stream.startswith("sys.") or told["filters"] or not plain:
        return None
    handler = logging.StreamHandler(getattr(sys, stream[4:]))
    handler.setLevel(told["level"])
    if arguments is not None:
        handler.setFormatter(logging.Formatter(*arguments))
    return handler


def _described(told: dict[str, Any]) -> str:
    stream = told["stream"] or ""
    aim = told["file"] or (stream if stream.startswith("sys.") else "")
    return told["kind"].rpartition(".")[2] + (f" to {aim}" if aim else "")


def _set_stream(handler: Any, stream: Any) -> None:
    handler.acquire()
    try:
        if handler.stream is not None and not getattr(handler.stream, "closed", False):
            handler.flush()
        handler.stream = stream
    finally:
        handler.release()
