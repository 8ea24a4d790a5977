"""Options of libraries that affect the results of later cells."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from ctxkernel.state.ambient.part import LiveObjects, NotRestored, Part, Setting

_DICT: Any = dict


class _Options(Part):
    """A part with hundreds of values: its stamp is a copy of them, the same one as long as nothing changed."""

    _now: Callable[[], Any]
    """Returns the dict of values."""
    _stamp: Mapping[str, Any] | None = None

    def stamp(self) -> object:
        now = self._now()
        try:
            is_same = self._stamp is not None and _DICT.__eq__(self._stamp, now) is True
        except Exception:  # of values that cannot be compared, such as arrays
            is_same = False
        if not is_same:
            self._stamp = _copied(now)
        return self._stamp


def _copied(values: Any) -> dict[str, Any]:
    return {
        name: _copied(value) if isinstance(value, dict) else value[:] if type(value) is list else value
        for name, value in _DICT.items(values)  # by dict's own method: that of RcParams resolves each value
    }


class _MatplotlibOptions(_Options):
    """`matplotlib.rcParams`, but for those that cannot change while the process runs."""

    name = "matplotlib"
    needs = "matplotlib"

    _FIXED = frozenset(("backend", "backend_fallback", "date.epoch", "toolbar"))

    def _now(self) -> Any:
        return sys.modules["matplotlib"].rcParams  # type: ignore[attr-defined]

    def capture(self) -> Any:
        return self._told(self._now(), drawing=_is_drawing())

    def _told(self, params: Any, *, drawing: bool) -> dict[str, Any]:
        # The inline backend switches `interactive` on when it is loaded, which is once in a process: only that it was
        # switched off later counts. Were it off as before that, no figure would be shown any more.
        is_usual = _is_inline() and _DICT.get(params, "interactive")
        left_out = {*self._FIXED, "interactive"} if is_usual or not drawing else self._FIXED
        return {name: _plain(value) for name, value in _DICT.items(params) if name not in left_out}

    def restore(self, value: Any) -> None:
        if "interactive" in value:
            _draw()
        params = self._now()
        usual = {"interactive": True} if _is_drawing() and _is_inline() else {}
        now = {**usual, **self.capture()}
        with warnings.catch_warnings(action="ignore"):
            for name, text in {**usual, **value}.items():
                if now.get(name) != text and name in now:
                    params[name] = sys.modules["cycler"].cycler(**text) if isinstance(text, dict) else text

    def default(self) -> Any:
        first = getattr(sys.modules["matplotlib"], "rcParamsOrig", None)
        return None if first is None else self._told(first, drawing=False)


class _MatplotlibBackend(Part):
    """The backend that cells chose by `matplotlib.use`, `%matplotlib` or a setting, such as Agg.

    Rule: it is captured from the first one on that is not the usual one of a kernel, which shows figures below a cell
    and closes them. It is restored only before a process has drawn: a switch closes figures.
    """

    name = "matplotlib backend"
    needs = "matplotlib"
    appears = True
    _was_chosen = False

    @property
    def active(self) -> bool:  # type: ignore[override]
        self._was_chosen = self._was_chosen or self.capture() != _INLINE
        return self._was_chosen

    def capture(self) -> Any:
        return _INLINE if _is_inline() else _backend_name()

    def default(self) -> Any:
        return _INLINE

    def matches(self, value: Any) -> bool:
        pyplot = sys.modules.get("matplotlib.pyplot")
        return getattr(pyplot, "_backend_mod", None) is not None or self.capture() == value

    def restore(self, value: Any) -> None:
        """Choose the backend; one that does not work here, such as one with windows, is left out."""
        sys.modules["matplotlib"].use(value, force=False)  # type: ignore[attr-defined]


_INLINE = "inline"


class _MatplotlibDrawing(Part):
    """Whether the backend is loaded, with the formatters that show a figure as a picture."""

    name = "matplotlib drawing"
    needs = "matplotlib.pyplot"
    passive = True

    def capture(self) -> Any:
        return _is_drawing()

    def matches(self, value: Any) -> bool:
        return not value or _is_drawing()

    def restore(self, value: Any) -> None:
        _draw()


def _backend_name() -> Any:
    # By dict's own method: RcParams chooses a backend when it is asked for one that is still open.
    return _DICT.get(getattr(sys.modules["matplotlib"], "rcParams", {}), "backend")


def _is_inline() -> bool:
    """Return whether figures are shown as usual in a kernel; also where that is still open."""
    name = _backend_name()
    return not isinstance(name, str) or name.endswith("backend_inline")


def _is_drawing() -> bool:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return pyplot is not None and getattr(pyplot, "_backend_mod", pyplot) is not None


def _draw() -> None:
    """Load the backend."""
    with contextlib.suppress(ImportError):
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
        if not _is_drawing():
            pyplot._get_backend_mod()


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, str):  # an enum of texts
        return str(getattr(value, "value", value))
    if isinstance(value, list | tuple):
        return [*map(_plain, cast("list[Any]", value))]
    if hasattr(value, "by_key"):
        return {key: list(values) for key, values in value.by_key().items()}
    return str(value)


class _PandasOptions(_Options):
    """`pandas.options`."""

    name = "pandas"
    needs = "pandas"

    def _now(self) -> dict[str, Any]:
        # The mapping that pandas.options shows; asking for each option by name takes milliseconds.
        return object.__getattribute__(sys.modules["pandas"].options, "d")

    def __init__(self) -> None:
        self._live = LiveObjects()

    def capture(self) -> Any:
        """Return them by name: a format (`"{:.1f}".format`) by its text, and any other function by a token."""
        return {name: self._told(value) for name, value in _leaves(self._now(), "")}

    def _told(self, value: Any) -> Any:
        if type(value) in (bool, int, float, str, type(None)):
            return value
        if type(value) is types.BuiltinFunctionType and value.__name__ == "format" and type(value.__self__) is str:
            return {"format": value.__self__}
        return {"object": self._live.token(value)}

    def _value(self, told: Any) -> Any:
        """Return the value of an option. Raises KeyError for a function that is not held."""
        if type(told) is not dict:
            return told
        found = cast("dict[str, str]", told)
        return found["format"].format if "format" in found else self._live.get(found["object"])

    def default(self) -> Any:
        options = sys.modules["pandas._config.config"]._registered_options
        return {name: self._told(options[name].defval) for name, _ in _leaves(self._now(), "")}

    def restore(self, value: Any) -> None:
        now = self.capture()
        set_option = sys.modules["pandas"].set_option
        failed, gone = list[str](), list[str]()
        with warnings.catch_warnings(action="ignore"):
            for name, told in value.items():
                if name not in now or now[name] == told:
                    continue
                try:
                    one = self._value(told)
                except KeyError:
                    one = None
                    gone.append(name)
                try:
                    set_option(name, one)
                except (ValueError, KeyError, TypeError):
                    failed.append(name)
        if gone:
            raise NotRestored(f"the function in {', '.join(gone)} belongs to an earlier kernel; set it again")
        if failed:
            raise ValueError(f"options that pandas did not take: {', '.join(failed)}")


def _leaves(values: Any, before: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield before + name, value


_FIGURES: dict[str, Any] = {
    "figure_formats": {"png"},
    "close_figures": True,
    "print_figure_kwargs": {"bbox_inches": "tight"},
}
"""How the inline backend shows figures at first: `%matplotlib inline` alone changes no setting."""
SHELL_OPTIONS = ("ast_node_interactivity", "autoawait")
TRACEBACKS = "Context"
"""How tracebacks are shown at first."""


def set_ipython(value: Any) -> None:
    """Set the settings of IPython that `read_ipython` returned, where they differ."""
    shell = sys.modules["IPython"].get_ipython()
    if shell is None:
        return
    if shell.InteractiveTB.mode != (mode := value.get("xmode", TRACEBACKS)):
        shell.InteractiveTB.set_mode(mode)
    own = cast("dict[str, Any]", vars(shell))
    for name in SHELL_OPTIONS:
        own.pop(name, None)
    own.update(value.get("beside", {}))
    plain = shell.display_formatter.formatters["text/plain"]
    _set_inline_options(shell, {**_FIGURES, **{name: one for name, one in value.items() if name in _FIGURES}})
    for name, one in value.items():
        if name in ("xmode", "beside") or name in _FIGURES:
            continue
        owner = shell if name in SHELL_OPTIONS else plain
        if getattr(owner, name) != one:
            setattr(owner, name, one)


def inline_options(shell: Any) -> dict[str, Any]:
    """Return how the inline backend shows figures, where that is not the usual way and has a form in JSON."""
    found = {name: one for name, one in _inline_options(shell).items() if one != _FIGURES[name]}
    if "figure_formats" in found:
        found["figure_formats"] = sorted(found["figure_formats"])
    plain = (bool, int, float, str, type(None))
    if any(type(one) not in plain for one in found.get("print_figure_kwargs", {}).values()):
        del found["print_figure_kwargs"]
    return found


def _inline_backend() -> Any:
    """Return the inline backend's options; None before the first figure."""
    inline: Any = getattr(sys.modules.get("matplotlib_inline.config"), "InlineBackend", None)
    return inline.instance() if inline is not None and inline.initialized() else None


def _inline_options(shell: Any) -> dict[str, Any]:
    """Return how figures are shown, or will be from the first one on: `%config` notes it for the backend."""
    if (backend := _inline_backend()) is not None:
        return {name: getattr(backend, name) for name in _FIGURES}
    noted: dict[str, Any] = {**_DICT.get(shell.config, "InlineBackend", {})}
    if isinstance(one := noted.get("figure_format"), str):
        noted["figure_formats"] = {one}
    elif isinstance(one := noted.get("figure_formats"), list):
        noted["figure_formats"] = set(cast("list[Any]", one))
    return {name: noted[name] if type(noted.get(name)) is type(usual) else usual for name, usual in _FIGURES.items()}


def _set_inline_options(shell: Any, wanted: Mapping[str, Any]) -> None:
    """Set how figures are shown. The inline backend, which is made with the first figure, is made here if needed."""
    wanted = {**wanted, "figure_formats": set(wanted["figure_formats"])}
    if wanted == _inline_options(shell):
        return
    if (backend := _inline_backend()) is None:
        backend = importlib.import_module("matplotlib_inline.config").InlineBackend.instance(parent=shell)
        backend.shell = shell
        shell.configurables.append(backend)
    for name, one in wanted.items():
        if getattr(backend, name) != one:
            setattr(backend, name, one)


def _numpy_options() -> Any:
    """Return print options and the handling of errors; a formatter is a function, and is left out."""
    numpy = sys.modules["numpy"]
    shown = {k: v for k, v in numpy.get_printoptions().items() if type(v) in (bool, int, float, str)}
    return {"print": shown, "errors": numpy.geterr()}


def _first_numpy_options() -> Any:
    """Return the options of a NumPy that was just loaded; None for a version with others."""
    shown: dict[str, Any] = {"edgeitems": 3, "threshold": 1000, "precision": 8, "linewidth": 75}
    shown |= {"suppress": False, "legacy": False, "floatmode": "maxprec", "nanstr": "nan", "infstr": "inf", "sign": "-"}
    errors = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
    known = {"print": shown, "errors": errors}
    return known if all(known[part].keys() == now.keys() for part, now in _numpy_options().items()) else None


def _set_numpy_options(value: Any) -> None:
    numpy = sys.modules["numpy"]
    numpy.set_printoptions(**value["print"])
    numpy.seterr(**value["errors"])


def _xarray_options() -> dict[str, Any]:
    return {name: _plain(value) for name, value in sys.modules["xarray"].get_options().items()}


def _set_xarray_options(value: Any) -> None:
    """Set those that differ: xarray warns of each old one that is set, whatever its value."""
    now = _xarray_options()
    sys.modules["xarray"].set_options(**{name: one for name, one in value.items() if now.get(name) != one})


PARTS: list[Part] = [
    _MatplotlibBackend(),  # before the next two, which load it
    _MatplotlibDrawing(),
    _MatplotlibOptions(),
    _PandasOptions(),
    Setting("numpy", _numpy_options, _set_numpy_options, needs="numpy", default=_first_numpy_options),
    Setting(
        "scikit-learn",
        lambda: dict(sys.modules["sklearn"].get_config()),
        lambda value: sys.modules["sklearn"].set_config(**value),
        needs="sklearn",
        default=lambda: dict(sys.modules["sklearn._config"]._global_config),
    ),
    Setting(
        "xarray",
        _xarray_options,
        _set_xarray_options,
        needs="xarray",
    ),
    Setting(
        "scipy.special",
        lambda: dict(sys.modules["scipy.special"].geterr()),
        lambda value: sys.modules["scipy.special"].seterr(**value),
        needs="scipy.special",
        default=lambda: {
            name: "raise" if name == "memory" else "ignore" for name in sys.modules["scipy.special"].geterr()
        },
    ),
]
