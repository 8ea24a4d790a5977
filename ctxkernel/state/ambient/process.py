"""The process: working directory, environment, import path, warnings, limits, locale, decimal arithmetic."""

from __future__ import annotations

import decimal
import functools
import locale
import os
import re
import sys
import warnings
from typing import Any

from ctxkernel.projection.secrets import mask
from ctxkernel.state.ambient.part import Part, Setting

_SECRET = re.compile(r"(?i)key|token|secret|passw|passphrase|pwd|credential|auth")


class Environment(Part):
    """What was changed in the environment since the kernel started, but for credentials."""

    name = "environment"

    def __init__(self) -> None:
        self._start = dict(os.environ)

    def capture(self) -> Any:
        """Return what was set and what was removed since the start."""
        now = dict(os.environ)
        changed = {name: text for name, text in now.items() if self._start.get(name) != text}
        return {
            "set": {name: text for name, text in changed.items() if not self.secret(name, text)},
            "removed": sorted(name for name in self._start if name not in now and not self.secret(name, "")),
        }

    def restore(self, value: Any) -> None:
        """Set and remove. Variables that look like credentials stay as they are."""
        removed = set(value["removed"])
        aim = {name: text for name, text in self._start.items() if name not in removed} | value["set"]
        for name in [name for name in os.environ if name not in aim and not self.secret(name, os.environ[name])]:
            del os.environ[name]
        for name, text in aim.items():
            if os.environ.get(name) != text and not self.secret(name, os.environ.get(name, "")):
                os.environ[name] = text

    def secret(self, name: str, text: str) -> bool:
        """Whether a variable's name or text says that it is a credential."""
        return _SECRET.search(name) is not None or mask(text) != text


class WarningFilters(Part):
    """Which warnings are shown."""

    name = "warnings"

    def capture(self) -> Any:
        """Return the filters as texts; one for a category of the notebook's own is left out."""
        filters: Any = warnings.filters
        return [
            (action, _pattern(message), f"{kind.__module__}:{kind.__qualname__}", _pattern(module), line)
            for action, message, kind, module, line in filters
            if kind.__module__ != "__main__"
        ]

    def restore(self, value: Any) -> None:
        """Set the filters; one whose category is not there any more is left out."""
        filters = [
            (action, _compiled(message), kind, _compiled(module), line)
            for action, message, category, module, line in value
            if (kind := _found(category)) is not None
        ]
        warnings.resetwarnings()  # and tells the machinery that the filters are others
        warnings.filters[:] = filters  # type: ignore[index]


def _pattern(pattern: Any) -> Any:
    return pattern if pattern is None or isinstance(pattern, str) else [pattern.pattern, pattern.flags]


def _compiled(pattern: Any) -> Any:
    return re.compile(pattern[0], pattern[1]) if type(pattern) in (list, tuple) else pattern


def _found(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    first: Any = sys.modules.get(module)
    return functools.reduce(lambda value, part: getattr(value, part, None), name.split("."), first)


class _DecimalContext(Part):
    """Precision, traps and rounding of `decimal`; its flags are no state that a result depends on."""

    name = "decimal"

    def capture(self) -> Any:
        context = decimal.getcontext()
        traps = sorted(signal.__name__ for signal, on in context.traps.items() if on)
        return [context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, traps]

    def restore(self, value: Any) -> None:
        context = decimal.getcontext()
        context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp = value[:6]
        for signal in context.traps:
            context.traps[signal] = signal.__name__ in value[6]


def _folder() -> str:
    """Return the working directory; empty where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _set_limits(value: Any) -> None:
    sys.setrecursionlimit(value[0])
    sys.set_int_max_str_digits(value[1])


PARTS: list[Part] = [
    Setting("working folder", _folder, lambda value: value and os.chdir(value)),
    Environment(),
    Setting("sys.path", lambda: [*map(str, sys.path)], lambda value: sys.path.__setitem__(slice(None), value)),
    WarningFilters(),
    Setting("interpreter", lambda: (sys.getrecursionlimit(), sys.get_int_max_str_digits()), _set_limits),
    Setting("locale", lambda: locale.setlocale(locale.LC_ALL), lambda value: locale.setlocale(locale.LC_ALL, value)),
    _DecimalContext(),
]
