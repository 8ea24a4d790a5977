"""The process: working directory, environment, import path, warnings, limits, locale, decimal arithmetic.

A return does not change threads, child processes and signal handlers: it names those of the cells between.
"""

from __future__ import annotations

import decimal
import functools
import gc
import itertools
import locale
import os
import re
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ctxkernel.core.connection_names import is_connection_name
from ctxkernel.projection.secrets import mask
from ctxkernel.state.ambient.part import LiveObjects, Part, Setting
from ctxkernel.state.base.namespace import some_of

_SECRET = re.compile(r"(?i)key|token|secret|passw|passphrase|pwd|credential|auth")


def may_be_credential(name: str, text: str) -> bool:
    """Return whether a text is never stored: its name says that it is a secret, or it looks like one."""
    return _SECRET.search(name) is not None or mask(text) != text


_OF_RUNTIMES = {
    "KMP_DUPLICATE_LIB_OK": "True",
    "KMP_INIT_AT_FORK": "FALSE",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:500,muzzy_decay_ms:1000",
}
"""Variables that scikit-learn, joblib and Polars set for the libraries in C below them when they are loaded."""


def _is_of_runtime(name: str, text: str) -> bool:
    known = _OF_RUNTIMES.get(name)
    return known is not None and text.startswith(known)  # Polars adds what was there before


class Environment(Part):
    """The changes of the environment since the kernel started, but for credentials and where requests to models go."""

    name = "environment"

    def __init__(self) -> None:
        self._start = dict(os.environ)

    def begin(self) -> None:
        """Count what ipykernel has set as the start's, such as matplotlib's backend: another kernel inherits it."""
        self._start = dict(os.environ)

    def capture(self) -> Any:
        """Return the variables that were set and removed since the start."""
        now = dict(os.environ)
        changed = {name: text for name, text in now.items() if self._start.get(name) != text}
        changed = {name: text for name, text in changed.items() if not _is_of_runtime(name, text)}
        return {
            "set": {name: text for name, text in changed.items() if not self.secret(name, text)},
            "removed": sorted(name for name in self._start if name not in now and not self.secret(name, "")),
        }

    def restore(self, value: Any) -> None:
        """Set and remove variables, but for those that may be credentials."""
        removed = set(value["removed"])
        aim = {name: text for name, text in self._start.items() if name not in removed} | value["set"]
        for name, text in [*os.environ.items()]:
            if name not in aim and not self.secret(name, text) and not _is_of_runtime(name, text):
                del os.environ[name]
        for name, text in aim.items():
            if os.environ.get(name) != text and not self.secret(name, os.environ.get(name, "")):
                os.environ[name] = text
        if hasattr(time, "tzset"):
            time.tzset()

    def for_child(self) -> dict[str, str]:
        """Return the environment for a kernel that restores states: that of the start, with the credentials of now."""
        now = {name: text for name, text in os.environ.items() if self.secret(name, text)}
        return {name: text for name, text in self._start.items() if not self.secret(name, text)} | now

    def secret(self, name: str, text: str) -> bool:
        """Return whether a variable is left out: it may be a credential, or decides where requests to models go."""
        return is_connection_name(name) or may_be_credential(name, text)


class ProcessList(Part):
    """The changes of `sys.path` or `sys.argv` since the kernel started.

    A value has the entries of the start by their place: in another environment, or on another machine, they are others.
    """

    def __init__(self, name: str) -> None:
        """Begin with what is there now; `name` is the full name."""
        self.name = name
        self._start = self._now()

    def begin(self) -> None:
        """Count what ipykernel has added as the start's."""
        self._start = self._now()

    def _now(self) -> list[str]:
        return [*map(str, getattr(sys, self.name.removeprefix("sys.")))]

    def capture(self) -> Any:
        """Return `{}` for the list of the start, else `{"path": entries, "of": length of the start}`."""
        start, now = self._start, self._now()
        told = [start.index(entry) if entry in start else entry for entry in now]
        return {} if now == start else {"path": told, "of": len(start)}

    def restore(self, value: Any) -> None:
        """Set the list; entries that the start has beyond those of the value are added at its end."""
        getattr(sys, self.name.removeprefix("sys."))[:] = self._absolute(value)

    def matches(self, value: Any) -> bool:
        """Return whether the list is that of the value."""
        return self._absolute(value) == self._now()

    def _absolute(self, value: Any) -> list[str]:
        start = self._start
        if isinstance(value, list):  # of an earlier version: the entries themselves
            return [*map(str, cast("list[Any]", value))]
        told = value.get("path")
        if told is None:
            return list(start)
        entries = cast("list[str | int]", told)
        path = [entry if isinstance(entry, str) else start[entry] for entry in entries if _is_there(entry, start)]
        return path + start[int(value["of"]) :]


def _is_there(entry: object, start: list[str]) -> bool:
    return isinstance(entry, str) or (type(entry) is int and 0 <= entry < len(start))


class WarningFilters(Part):
    """Which warnings are shown.

    A library adds filters when it is loaded, and stays loaded after a return: these filters stay, too. They are no part
    of a value as long as no other filter was there before them, but those of the start.
    """

    name = "warnings"

    def __init__(self) -> None:
        self._start: list[Any] = []

    def begin(self) -> None:
        """Note the filters of the start."""
        self._start = _as_texts(warnings.filters)

    def capture(self) -> Any:
        """Return the filters as texts; one for a category of the notebook's own is left out."""
        return self._split(_as_texts(warnings.filters))[0]

    def _split(self, filters: list[Any]) -> tuple[list[Any], list[Any], int, list[Any]]:
        """Return filters without those of libraries, those, their place, and those that libraries put at the end."""
        end = len(filters)
        while end and filters[end - 1] not in self._start and _is_of_library(*filters[end - 1]):
            end -= 1
        last, filters = filters[end:], filters[:end]
        both = zip(reversed(filters), reversed(self._start), strict=False)
        own = first = len(filters) - len([*itertools.takewhile(lambda pair: pair[0] == pair[1], both)])
        while first and _is_of_library(*filters[first - 1]):
            first -= 1
        return filters[:first] + filters[own:], filters[first:own], first, last

    def restore(self, value: Any) -> None:
        """Set the filters; one whose category is not there any more is left out."""
        _, kept, _, last = self._split(_as_texts(warnings.filters))
        value, _, at, _ = self._split([(*one,) for one in value])
        filters = [
            (action, _compiled(message), kind, _compiled(module), line)
            for action, message, category, module, line in (*value[:at], *kept, *value[at:], *last)
            if (kind := _found(category)) is not None
        ]
        warnings.resetwarnings()  # and tells the machinery that the filters are others
        warnings.filters[:] = filters  # type: ignore[index]


def _as_texts(filters: Any) -> list[Any]:
    return [
        (action, _pattern(message), f"{kind.__module__}:{kind.__qualname__}", _pattern(module), line)
        for action, message, kind, module, line in filters
        if kind.__module__ != "__main__"
    ]


_OF_LIBRARIES = re.compile(
    r"numpy\.(?:ndarray|ufunc|dtype) size changed|the matrix subclass is not the recommended way"
)
_SHOWN_BY_LIBRARIES = ("numpy.", "scipy.", "sklearn.", "statsmodels.", "urllib3.", "requests.", "numba.")
_HIDDEN_BY_LIBRARIES = ("urllib3.exceptions:DependencyWarning",)


def _is_of_library(action: str, message: Any, category: str, module: Any, line: int) -> bool:
    """Return whether a library adds such a filter as it is loaded: to show its own warnings, or to hide known ones."""
    if module is not None or line:
        return False
    if message is None:
        is_shown = action in ("always", "default") and category.startswith(_SHOWN_BY_LIBRARIES)
        return is_shown or (action == "ignore" and category in _HIDDEN_BY_LIBRARIES)
    text = message if isinstance(message, str) else message[0]
    return action == "ignore" and _OF_LIBRARIES.fullmatch(text) is not None


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
        for trap in context.traps:
            context.traps[trap] = trap.__name__ in value[6]


def _folder() -> str:
    """Return the working directory; empty where it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


class VisitedFolders(Part):
    """The folders that `%cd` visited and those that `%pushd` put aside: `%cd -` and `%popd` go back to them.

    No other cell depends on them.
    """

    name = "visited folders"
    needs = "IPython"
    passive = True
    appears = True

    def __init__(self) -> None:
        self._first = 1

    def begin(self) -> None:
        """Take in how many folders IPython noted before the first cell."""
        self._first = max(1, len(self._visited()))

    def capture(self) -> Any:
        """Return the folders since the first cell, and those that were put aside."""
        return {"visited": [str(one) for one in self._visited()[self._first :]], "aside": [*map(str, self._aside())]}

    def restore(self, value: Any) -> None:
        """Change the lists in place; the working folder is a part of its own."""
        self._visited()[self._first :] = map(Path, value["visited"])
        self._aside()[:] = value["aside"]

    def default(self) -> Any:
        """Return the value before the first change."""
        return {"visited": [], "aside": []}

    @property
    def active(self) -> bool:  # type: ignore[override]
        """Return whether there are such folders."""
        return len(self._visited()) > self._first or bool(self._aside())

    @staticmethod
    def _visited() -> list[Any]:
        shell = sys.modules["IPython"].get_ipython()
        return [] if shell is None else shell.user_ns.get("_dh", [])

    @staticmethod
    def _aside() -> list[Any]:
        shell = sys.modules["IPython"].get_ipython()
        return [] if shell is None else shell.dir_stack


def read_interpreter() -> tuple[Any, ...]:
    """Return the limits of the interpreter, seconds between switches of threads, settings of `gc`, and of `socket`."""
    limits = sys.getrecursionlimit(), sys.get_int_max_str_digits()
    waits = socket.getdefaulttimeout()
    return *limits, sys.getswitchinterval(), gc.isenabled(), *gc.get_threshold(), gc.get_debug(), waits


def _set_interpreter(value: Any) -> None:
    sys.setrecursionlimit(value[0])
    sys.set_int_max_str_digits(value[1])
    if len(value) > 2:  # earlier versions stored the limits only
        sys.setswitchinterval(value[2])
        (gc.enable if value[3] else gc.disable)()
        gc.set_threshold(*value[4:7])
    if len(value) > 7:
        gc.set_debug(value[7])
        socket.setdefaulttimeout(value[8])


SIGNALS = [int(number) for number in signal.valid_signals() if number != signal.SIGINT]
"""The kernel sets the handler of SIGINT itself, between cells."""
signal_handler: Any = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
"""Without the enumerations that the module `signal` makes of each number."""
_OWN_THREADS = ("IPythonHistorySavingThread", "IOPub", "Heartbeat", "Control", "ctxkernel", "pydevd")
"""Prefixes of the names of threads of the kernel and of IPython."""
_OWN_MODULES = ("ipykernel.", "zmq.")
"""Packages whose threads have no name of their own: the check that the parent lives, and of large messages sent."""


def is_own_thread(thread: threading.Thread) -> bool:
    """Return whether a thread is one of the kernel, which runs no code of the user's."""
    is_known = thread.name.startswith(_OWN_THREADS) or type(thread).__module__.startswith(_OWN_MODULES)
    return is_known or _reads_scripts(thread)


def _reads_scripts(thread: threading.Thread) -> bool:
    """Return whether a thread runs IPython's event loop for `%%bash` and its like."""
    loop = getattr(getattr(thread, "_target", None), "__self__", None)
    if loop is None:
        return False
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and loop is getattr(shell.magics_manager.registry.get("ScriptMagics"), "event_loop", None)


def _is_idle(thread: object) -> bool:
    """Return whether a thread is a worker of a pool that waits for work, such as the event loop's for our requests."""
    module = sys.modules.get("concurrent.futures.thread")
    frame = sys._current_frames().get(getattr(thread, "ident", None) or 0)  # pyright: ignore[reportPrivateUsage]
    return module is not None and frame is not None and frame.f_code is module._worker.__code__


class Outside(Part):
    """Threads, child processes of multiprocessing, handlers of signals."""

    name = "outside"
    always = True
    passive = True

    def __init__(self) -> None:
        self._live = LiveObjects()

    def capture(self) -> Any:
        """Return the tokens of the present ones."""
        token = self._live.token
        handlers = {number: one for number in SIGNALS if (one := signal_handler(number)) not in (signal.SIG_DFL, None)}
        return {
            "threads": sorted(token(one) for one in threading.enumerate() if not is_own_thread(one)),
            "children": sorted(map(token, _children())),
            "signals": {str(number): token(one) if callable(one) else str(one) for number, one in handlers.items()},
        }

    def matches(self, value: Any) -> bool:
        """Return True: nothing is ever changed."""
        return True

    def restore(self, value: Any) -> Sequence[str]:
        """Change nothing; name the ones that were started or set since."""
        if not all(map(self._live.here, value["threads"])):  # of an earlier kernel: nothing was started since
            return ()
        lines: list[str] = []
        now = self.capture()
        for kind, word in (("threads", "thread"), ("children", "process")):
            since = [self._live.get(token) for token in now[kind] if token not in value[kind]]
            names = [str(one.name) for one in since if not _is_idle(one)]
            if names:
                lines.append(f"{_named(word, names)}: started since, not stopped by going back")
        then = value["signals"]
        changed = [name for name in {**then, **now["signals"]} if then.get(name) != now["signals"].get(name)]
        if changed:
            names = [signal.Signals(int(name)).name for name in sorted(changed, key=int)]
            lines.append(f"{_named('signal handler', names)}: set since, and left as it is")
        return lines


def _children() -> Any:
    module = sys.modules.get("multiprocessing.process")
    return list(getattr(module, "_children", ()))


def _named(word: str, names: list[str]) -> str:
    plural = "es" if word.endswith("s") else "s"
    return f"{word}{plural if len(names) > 1 else ''} {some_of(names, 6)}"


ENVIRONMENT = Environment()
PARTS: list[Part] = [
    Setting("working folder", _folder, lambda value: value and os.chdir(value)),
    VisitedFolders(),
    ENVIRONMENT,
    ProcessList("sys.path"),
    ProcessList("sys.argv"),
    WarningFilters(),
    Setting("interpreter", read_interpreter, _set_interpreter),
    Setting("locale", lambda: locale.setlocale(locale.LC_ALL), lambda value: locale.setlocale(locale.LC_ALL, value)),
    _DecimalContext(),
]
