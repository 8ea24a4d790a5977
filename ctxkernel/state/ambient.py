"""State of the process that belongs to a checkpoint: generators, working directory, environment, options of libraries.

Rule 1: each part is one class with a name, a plain value that can be pickled, and a way to put it back. `register`
        takes more; `not_covered()` says what no part holds.
Rule 2: a part whose library is not loaded costs nothing, and one that did not change costs microseconds: what is large
        is first looked at by a stamp.
Rule 3: what fails is named with its reason and costs the part, never the cell. Credentials are neither kept nor
        touched.
"""

from __future__ import annotations

import importlib
import os
import random
import re
import struct
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ctxkernel.projection.secrets import mask

_SECRET = re.compile(r"(?i)key|token|secret|passw|passphrase|pwd|credential|auth")


class Part:
    """One part of the ambient state. Subclass it, and `register` an instance.

    Holds: `capture` returns a plain value (text, numbers, lists, dicts), a new one where something changed;
    `restore(capture())` changes nothing.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    """What it holds, in one line, for people."""
    needs: ClassVar[str] = ""
    """The module that must be loaded for it to mean anything; empty for none."""

    def capture(self) -> Any:
        """Return the value as it is now."""
        raise NotImplementedError

    def restore(self, value: Any) -> None:
        """Put a value back that `capture` returned, maybe in another process. Raises whatever stands in the way."""
        raise NotImplementedError

    def stamp(self) -> object:
        """Return something cheap that is equal as long as nothing changed; the value itself where that is cheap."""
        return self.capture()

    def default(self) -> Any:
        """Return the value of a library that was just loaded, None where that is not known."""
        return None


# -- generators -----------------------------------------------------------------------------------


def _memory() -> Callable[[int, int], bytes] | None:
    try:
        from ctypes import string_at
    except ImportError:
        return None
    return string_at


class PythonRandom(Part):
    """The generator behind the functions of `random`."""

    name = "random"
    about = "the generator of the module random"

    def __init__(self) -> None:
        self._raw: Callable[[Any], bytes] | None = None
        self._checked = False

    def capture(self) -> Any:
        """Return version, the 625 words as bytes, and the kept Gaussian number."""
        version, words, gauss = random.getstate()
        return (version, struct.pack(f"<{len(words)}I", *words), gauss)

    def restore(self, value: Any) -> None:
        """Set the state."""
        version, raw, gauss = value
        random.setstate((version, struct.unpack(f"<{len(raw) // 4}I", raw), gauss))

    def stamp(self) -> object:
        """Return the memory of the generator: reading its words one by one takes a hundred times as long."""
        if not self._checked:
            self._checked = True
            self._raw = self._reader()
        instance = _python_generator()
        if self._raw is None or instance is None:
            return self.capture()
        return self._raw(instance), instance.gauss_next

    def _reader(self) -> Callable[[Any], bytes] | None:
        string_at = _memory()
        if string_at is None:
            return None
        begin, size = object.__basicsize__, 4 * 625

        def raw(generator: Any) -> bytes:
            return string_at(id(generator) + begin, size)

        # Believed only where it does what it says, on a generator of our own.
        sample = random.Random(1)
        seen = [raw(sample)]
        sample.random()
        seen.append(raw(sample))
        sample.seed(1)
        seen.append(raw(sample))
        return raw if seen[0] == seen[2] != seen[1] else None


def _python_generator() -> Any:
    """The generator that the functions of `random` are bound to; None where somebody replaced them."""
    instance = getattr(random.random, "__self__", None)
    return instance if type(instance) is random.Random else None


class NumpyRandom(Part):
    """NumPy's global generator, which `np.random.rand` and its kin draw from."""

    name = "numpy random"
    about = "the global generator of numpy.random"
    needs = "numpy"

    def __init__(self) -> None:
        self._exact: bool | None = None

    def capture(self) -> Any:
        """Return the state as a dict with the key as bytes."""
        state = dict(_numpy().random.get_state(legacy=False))
        inner = dict(state["state"])
        if hasattr(inner.get("key"), "tobytes"):
            inner["key"] = ("uint32", inner["key"].astype("<u4").tobytes())
        return {**state, "state": inner}

    def restore(self, value: Any) -> None:
        """Set the state. A global generator of another kind than then is an error."""
        numpy = _numpy()
        inner = dict(value["state"])
        if isinstance(inner.get("key"), tuple):
            inner["key"] = numpy.frombuffer(inner["key"][1], dtype="<u4").astype("uint32")
        numpy.random.set_state({**value, "state": inner})

    def stamp(self) -> object:
        """Return the memory of the generator and of what it has drawn ahead."""
        string_at = _memory()
        if string_at is None or self._exact is False:
            return self.capture()
        module = sys.modules.get("numpy.random.mtrand")
        state = getattr(module, "_rand", None)
        if self._exact is None:
            self._exact = state is not None and self._works(string_at)
        return _numpy_memory(state, string_at) if self._exact else self.capture()

    def _works(self, string_at: Callable[[int, int], bytes]) -> bool:
        sample = _numpy().random.RandomState(1)
        seen = [_numpy_memory(sample, string_at)]
        for _ in range(3):  # the second draw only takes the number that the first one kept
            sample.standard_normal()
            seen.append(_numpy_memory(sample, string_at))
        again = _numpy_memory(sample, string_at)
        return len(set(seen)) == len(seen) and again == seen[-1]


def _numpy() -> Any:
    return sys.modules["numpy"]


def _numpy_memory(state: Any, string_at: Callable[[int, int], bytes]) -> object:
    generator = state._bit_generator
    head = object.__basicsize__
    own = string_at(id(state) + head, type(state).__basicsize__ - head)
    if type(generator).__name__ != "MT19937":
        return own, repr(generator.state)
    return own, string_at(generator.ctypes.state_address, 4 * 625)


class TorchRandom(Part):
    """PyTorch's generators, and what its results depend on besides."""

    name = "torch random"
    about = "the generators of torch (CPU; CUDA where it is in use), default type, gradients on or off"
    needs = "torch"

    def capture(self) -> Any:
        """Return states as bytes."""
        torch = sys.modules["torch"]
        value = {
            "cpu": torch.get_rng_state().numpy().tobytes(),
            "dtype": str(torch.get_default_dtype()),
            "grad": torch.is_grad_enabled(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
        }
        if "torch.cuda" in sys.modules and torch.cuda.is_initialized():
            value["cuda"] = [state.cpu().numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
        return value

    def restore(self, value: Any) -> None:
        """Set the states."""
        torch = sys.modules["torch"]

        def tensor(raw: bytes) -> Any:
            return torch.frombuffer(bytearray(raw), dtype=torch.uint8)

        torch.set_rng_state(tensor(value["cpu"]))
        torch.set_default_dtype(getattr(torch, value["dtype"].removeprefix("torch.")))
        torch.set_grad_enabled(value["grad"])
        torch.use_deterministic_algorithms(value["deterministic"])
        if value.get("cuda"):
            torch.cuda.set_rng_state_all([tensor(raw) for raw in value["cuda"]])


# -- the process ----------------------------------------------------------------------------------


class WorkingFolder(Part):
    """The working directory."""

    name = "working folder"
    about = "the working directory"

    def capture(self) -> Any:
        """Return its path; empty where it was removed."""
        try:
            return os.getcwd()
        except OSError:
            return ""

    def restore(self, value: Any) -> None:
        """Go there. Raises OSError where it is gone."""
        if value:
            os.chdir(value)


class Environment(Part):
    """What was changed in the environment since the kernel started, but for credentials."""

    name = "environment"
    about = "variables of the environment that were changed, but for credentials"

    def __init__(self, masks: Callable[[str], str] = mask) -> None:
        self._masks = masks
        self._start = dict(os.environ)

    def capture(self) -> Any:
        """Return what was set and what was removed since the start."""
        now = dict(os.environ)
        changed = {name: text for name, text in now.items() if self._start.get(name) != text}
        return {
            "set": {name: text for name, text in changed.items() if not self.secret(name, text)},
            "removed": sorted(name for name in self._start if name not in now and not self.secret(name, "")),
        }

    def stamp(self) -> object:
        """Return a copy of the environment as the process has it."""
        # Decoding each variable takes a hundred times as long as copying the dict of what is already encoded.
        data = getattr(os.environ, "_data", None)
        return data.copy() if type(data) is dict else dict(os.environ)

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
        return _SECRET.search(name) is not None or self._masks(text) != text


class ImportPath(Part):
    """`sys.path`."""

    name = "sys.path"
    about = "where modules are looked for"

    def capture(self) -> Any:
        """Return it as texts."""
        return [str(entry) for entry in sys.path]

    def restore(self, value: Any) -> None:
        """Set it in place."""
        sys.path[:] = value


class WarningFilters(Part):
    """Which warnings are shown."""

    name = "warnings"
    about = "the filters of warnings"

    def capture(self) -> Any:
        """Return the filters as texts; one for a category of the notebook's own is left out."""
        found: list[Any] = []
        for action, message, category, module, line in warnings.filters:
            kind: Any = category
            if kind.__module__ != "__main__":
                name = f"{kind.__module__}:{kind.__qualname__}"
                found.append((action, _pattern(message), name, _pattern(module), line))
        return found

    def stamp(self) -> object:
        """Return the filters themselves."""
        return tuple(warnings.filters)

    def restore(self, value: Any) -> None:
        """Set the filters; one whose category is not there any more is left out."""
        filters: list[Any] = []
        for action, message, category, module, line in value:
            kind = _found(category)
            if kind is not None:
                filters.append((action, _compiled(message), kind, _compiled(module), line))
        warnings.resetwarnings()  # and tells the machinery that the filters are others
        warnings.filters[:] = filters  # type: ignore[index]


def _pattern(pattern: Any) -> Any:
    return pattern if pattern is None or isinstance(pattern, str) else [pattern.pattern, pattern.flags]


def _compiled(pattern: Any) -> Any:
    return re.compile(*pattern) if isinstance(pattern, list | tuple) else pattern


def _found(dotted: str) -> Any:
    module, _, name = dotted.partition(":")
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


class Interpreter(Part):
    """Limits of the interpreter."""

    name = "interpreter"
    about = "recursion limit, longest integer as text"

    def capture(self) -> Any:
        """Return both."""
        return (sys.getrecursionlimit(), sys.get_int_max_str_digits())

    def restore(self, value: Any) -> None:
        """Set both."""
        sys.setrecursionlimit(value[0])
        sys.set_int_max_str_digits(value[1])


class Locale(Part):
    """How numbers, dates and orders of letters are spelled."""

    name = "locale"
    about = "the locale"
    needs = "locale"

    def capture(self) -> Any:
        """Return it as the C library tells it."""
        locale = sys.modules["locale"]
        return locale.setlocale(locale.LC_ALL)

    def restore(self, value: Any) -> None:
        """Set it."""
        locale = sys.modules["locale"]
        locale.setlocale(locale.LC_ALL, value)


class DecimalContext(Part):
    """Precision and rounding of `decimal`; its flags are no state that a result depends on."""

    name = "decimal"
    about = "precision, rounding and traps of decimal"
    needs = "decimal"

    def capture(self) -> Any:
        """Return numbers and names."""
        decimal = sys.modules["decimal"]
        context = decimal.getcontext()
        traps = sorted(signal.__name__ for signal, on in context.traps.items() if on)
        return [context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, traps]

    def stamp(self) -> object:
        """Return what its pickle holds, without the flags."""
        arguments = sys.modules["decimal"].getcontext().__reduce__()[1]
        return arguments[:6], tuple(arguments[7])

    def restore(self, value: Any) -> None:
        """Set them on the context in use."""
        decimal = sys.modules["decimal"]
        context = decimal.getcontext()
        context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp = value[:6]
        for signal in context.traps:
            context.traps[signal] = signal.__name__ in value[6]


# -- libraries ------------------------------------------------------------------------------------


class MatplotlibOptions(Part):
    """`matplotlib.rcParams`, but for what cannot change while the process runs."""

    name = "matplotlib"
    about = "rcParams"
    needs = "matplotlib"

    _FIXED = frozenset(("backend", "backend_fallback", "date.epoch", "toolbar"))

    def __init__(self) -> None:
        self._copy: dict[str, Any] = {}
        self._version = 0

    def _now(self) -> Any:
        return sys.modules["matplotlib"].rcParams  # type: ignore[attr-defined]

    def stamp(self) -> object:
        """Return a number that is another where a value is. Comparing 340 values costs some microseconds."""
        params = self._now()
        # By dict's own methods: those of RcParams resolve each value.
        if not dict.__eq__(params, self._copy):
            self._copy = {name: value[:] if type(value) is list else value for name, value in dict.items(params)}
            self._version += 1
        return self._version

    def capture(self) -> Any:
        """Return the values as numbers, texts and lists."""
        return {name: _plain(value) for name, value in dict.items(self._now()) if name not in self._FIXED}

    def restore(self, value: Any) -> None:
        """Set those that differ."""
        params = self._now()
        now = self.capture()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, text in value.items():
                if now.get(name) != text and name in now:
                    params[name] = _cycler(text) if isinstance(text, dict) else text

    def default(self) -> Any:
        """Return the values that matplotlib began with."""
        first = getattr(sys.modules["matplotlib"], "rcParamsOrig", None)
        if first is None:
            return None
        return {name: _plain(value) for name, value in dict.items(first) if name not in self._FIXED}


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, str):  # an enum of texts
        return str(getattr(value, "value", value))
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "by_key"):
        return {key: list(values) for key, values in value.by_key().items()}
    return str(value)


def _cycler(values: Mapping[str, list[Any]]) -> Any:
    return sys.modules["cycler"].cycler(**values)


class PandasOptions(Part):
    """`pandas.options`."""

    name = "pandas"
    about = "pandas options"
    needs = "pandas"

    def __init__(self) -> None:
        self._copy: dict[str, Any] = {}
        self._version = 0

    def _values(self) -> dict[str, Any]:
        # The mapping that pandas.options shows; asking for each option by name takes milliseconds.
        options = sys.modules["pandas"].options
        return object.__getattribute__(options, "d")

    def stamp(self) -> object:
        """Return a number that is another where a value is."""
        values = self._values()
        if values != self._copy:
            self._copy = _nested(values)
            self._version += 1
        return self._version

    def capture(self) -> Any:
        """Return them by name; a value that is no plain one is left out."""
        plain = (bool, int, float, str, type(None))
        return {name: value for name, value in _leaves(self._values(), "") if type(value) in plain}

    def restore(self, value: Any) -> None:
        """Set those that differ."""
        now = self.capture()
        set_option = sys.modules["pandas"].set_option
        failed: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, one in value.items():
                if name in now and now[name] != one:
                    try:
                        set_option(name, one)
                    except (ValueError, KeyError, TypeError):
                        failed.append(name)
        if failed:
            raise ValueError(f"options that pandas did not take: {', '.join(failed)}")


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _nested(value) if isinstance(value, dict) else value for name, value in values.items()}


def _leaves(values: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield before + name, value


class NumpyOptions(Part):
    """How NumPy prints, and what it does about floating-point errors."""

    name = "numpy"
    about = "print options and the handling of floating-point errors"
    needs = "numpy"

    def capture(self) -> Any:
        """Return both; a formatter is a function, and is left out."""
        numpy = _numpy()
        shown = {k: v for k, v in numpy.get_printoptions().items() if type(v) in (bool, int, float, str)}
        return {"print": shown, "errors": numpy.geterr()}

    def restore(self, value: Any) -> None:
        """Set both."""
        numpy = _numpy()
        numpy.set_printoptions(**value["print"])
        numpy.seterr(**value["errors"])


class SklearnOptions(Part):
    """`sklearn.set_config`: it decides what kind of table a transformer returns."""

    name = "scikit-learn"
    about = "sklearn.set_config"
    needs = "sklearn"

    def capture(self) -> Any:
        """Return the configuration."""
        return dict(sys.modules["sklearn"].get_config())

    def restore(self, value: Any) -> None:
        """Set it."""
        sys.modules["sklearn"].set_config(**value)


class Notebook(Part):
    """What decides how IPython runs a cell and shows its results."""

    name = "ipython"
    about = "which expressions of a cell are shown, precision of floats, formats of inline figures"
    needs = "IPython"

    def _shell(self) -> Any:
        return sys.modules["IPython"].get_ipython()

    def capture(self) -> Any:
        """Return the settings; empty outside of IPython."""
        shell = self._shell()
        if shell is None:
            return {}
        plain = shell.display_formatter.formatters["text/plain"]
        value = {
            "ast_node_interactivity": shell.ast_node_interactivity,
            "autoawait": shell.autoawait,
            "float_precision": plain.float_precision,
            "max_seq_length": plain.max_seq_length,
            "pprint": plain.pprint,
        }
        inline = _inline()
        if inline is not None:
            value["figure_formats"] = sorted(inline.figure_formats)
        return value

    def restore(self, value: Any) -> None:
        """Set those that differ."""
        shell = self._shell()
        now = self.capture()
        for name, one in value.items():
            if name not in now or now[name] == one:
                continue
            if name in ("ast_node_interactivity", "autoawait"):
                setattr(shell, name, one)
            elif name == "figure_formats":
                _inline().figure_formats = set(one)
            else:
                setattr(shell.display_formatter.formatters["text/plain"], name, one)


def _inline() -> Any:
    kind = getattr(sys.modules.get("matplotlib_inline.config"), "InlineBackend", None)
    return kind.instance() if kind is not None and kind.initialized() else None


PARTS: list[Part] = [
    PythonRandom(),
    NumpyRandom(),
    TorchRandom(),
    WorkingFolder(),
    Environment(),
    ImportPath(),
    WarningFilters(),
    Interpreter(),
    Locale(),
    DecimalContext(),
    MatplotlibOptions(),
    PandasOptions(),
    NumpyOptions(),
    SklearnOptions(),
    Notebook(),
]
"""The parts, in the order in which they are put back."""


def register(part: Part) -> None:
    """Add a part, in place of one of the same name. It counts from the next statement on."""
    for position, known in enumerate(PARTS):
        if known.name == part.name:
            PARTS[position] = part
            return
    PARTS.append(part)


class Ambient:
    """The ambient state of this process, and what of it changed since it was last looked at."""

    def __init__(self, parts: list[Part] | None = None) -> None:
        self._parts = PARTS if parts is None else parts
        self._stamps: dict[str, object] = {}
        self._values: dict[str, Any] = {}
        self.faults: dict[str, str] = {}
        """Parts that failed, and why: they are left out from then on."""

    def capture(self, previous: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the values of the parts that are others than in `previous` (else: than when last looked at)."""
        if previous is not None:
            self._values = dict(previous)
            self._stamps.clear()
        changed: dict[str, Any] = {}
        loaded = sys.modules
        for part in self._parts:
            if part.needs and part.needs not in loaded:
                continue
            name = part.name
            if name in self.faults:
                continue
            try:
                stamp = part.stamp()
                if name in self._stamps and self._stamps[name] == stamp:
                    continue
                value = part.capture()
                self._stamps[name] = stamp
                if name not in self._values or self._values[name] != value:
                    changed[name] = self._values[name] = value
            except Exception as fault:  # a library's own fault, or one of a part that somebody registered
                self.faults[name] = f"{type(fault).__name__}: {fault}"[:200]
        return changed

    def restore(self, values: Mapping[str, Any], gone: Iterable[str] = ()) -> dict[str, str]:
        """Put parts back where they differ from now; return those that could not be, and why.

        `gone` are parts whose library was not loaded then: they get what the library began with, where that is known.
        """
        lost: dict[str, str] = {}
        known = {part.name: part for part in self._parts}
        for name in values:
            if name not in known:
                lost[name] = "nothing here holds such a part"
        wanted = dict(values)
        for part in self._parts:
            name = part.name
            try:
                if name in gone and name not in wanted and part.needs in sys.modules:
                    default = part.default()
                    if default is not None:
                        wanted[name] = default
                if name not in wanted:
                    continue
                if part.needs and part.needs not in sys.modules:
                    importlib.import_module(part.needs)
                if part.capture() != wanted[name]:
                    part.restore(wanted[name])
                self._stamps[name] = part.stamp()
                self._values[name] = part.capture()
            except Exception as fault:
                lost[name] = f"{type(fault).__name__}: {fault}"[:200]
        return lost


def not_covered() -> str:
    """Return what of the process a checkpoint does not hold, in words for the user."""
    return (
        "Not part of a checkpoint: attributes of modules (what was patched, caches in them, modules that were imported "
        "stay imported), logging handlers and levels, generators of libraries other than random, numpy and torch, "
        "figures that pyplot still holds open, signal handlers, threads and child processes, "
        "variables of the environment that look like credentials, files and databases."
    )
