"""Functions of installed libraries that cells call for their effect: `csv.register_dialect('tabs', delimiter='\\t')`.

What such a function changes lies in the library, where it is not seen. A return leaves it as it is, and says so. The
same goes for what a cell sets of an object in a library: `networkx.config.backend_priority = [...]`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, cast

from xxhash import xxh3_64_hexdigest

from ctxkernel.core.reflection import class_module, class_of, is_kind
from ctxkernel.state.ambient.part import Part
from ctxkernel.state.base.namespace import NOTHING, some_of
from ctxkernel.state.base.own_modules import is_own
from ctxkernel.state.tracking.set_attributes import Call

_OF_OTHER_PARTS = re.compile(
    r"(?:builtins|ctxkernel|gc|IPython|ipywidgets|locale|matplotlib_inline|pandas|random|seaborn|signal|sklearn)\."
    r"|(?:torch|warnings)\.|.*\.disable_warnings$|os\.(?!umask)|logging\.(?!addLevelName|setLoggerClass)"
    r"|(?:sys|threading)\.set(?!trace|profile)|threading\.(?!set)|sys\.(?:path\.|argv|modules|std)"
    r"|polars\.Config\.|decimal\.(?!\w+Context)|socket\.setdefaulttimeout"
    r"|xarray\.set_options|scipy\.special\.seterr|numpy\.(?:random\.|set_printoptions|seterr$)"
    r"|matplotlib\.(?!colormaps\.|units\.|scale\.|projections\.)"
)
"""Full names of what other parts hold."""
_VALUES = (str, bytes, int, float, bool, tuple, type(None))


class LibraryCalls(Part):
    """What cells called or set of libraries, each with a hash of the last call."""

    name = "library"
    always = True
    appears = True

    def __init__(self) -> None:
        self.covered: set[str] = set()
        """Modules with parts of their own."""
        self._open: list[tuple[Call, Mapping[str, Any]]] = []
        """Statements of the running cell."""
        self._made: dict[str, str] = {}
        """The last calls that this process made."""
        self._state: dict[str, str] = {}
        """Those that belong to the present state."""

    def watch(self, calls: Sequence[Call], namespace: Mapping[str, Any]) -> None:
        """Take in the statements of a cell that is about to run."""
        self._open = [(call, namespace) for call in calls]

    @property
    def active(self) -> bool:  # type: ignore[override]
        """Return whether a cell called or set something."""
        self._take_calls()
        return bool(self._made or self._state)

    def _take_calls(self) -> None:
        """Take in the statements of the cell that ended: what it imported is known now."""
        todo, self._open = self._open, []
        for call, namespace in todo:
            full = _full_name(call, namespace)
            if not full or _OF_OTHER_PARTS.match(full) or not self.covered.isdisjoint((full, full.partition(".")[0])):
                continue
            if not any(_is_data(namespace.get(name, NOTHING)) for name in call.arguments):  # it changes a variable
                text = ast.unparse(call.statement)
                self._made[full] = self._state[full] = xxh3_64_hexdigest(text.encode("utf-8", "replace"))

    def capture(self) -> Any:
        """Return by full name a hash of the last call."""
        return dict(self._state)

    def default(self) -> Any:
        """Return the value before any cell called or set something."""
        return {}

    def lacks(self, value: Mapping[str, str]) -> bool:
        """Return whether this process has not made one of the calls of a state."""
        return any(self._made.get(full) != call for full, call in value.items())

    def restore(self, value: Any) -> Sequence[str]:
        """Change nothing; name what this process called or set since, and what it did not."""
        between = [full for full in self._state | value if self._state.get(full) != value.get(full)]
        since = sorted(full for full in between if self._made.get(full, value.get(full)) != value.get(full))
        self._state = dict(value)
        absent = sorted(value.keys() - self._made.keys())
        lines = [f"{some_of(since, 6)}: called or set since, and left as it is"] if since else []
        return lines + ([f"{some_of(absent, 6)}: called or set then, but not in this process"] if absent else [])


def _full_name(call: Call, namespace: Mapping[str, Any]) -> str:
    """Return the full name of what a library has; empty for anything else, and for what `LibraryAttributes` has."""
    path, found = call.path, namespace.get(call.path[0], NOTHING)
    if is_kind(class_of(found), ModuleType):
        module: Any = cast("dict[str, Any]", vars(found)).get("__name__")
        owner = found
        for name in path[1:-1]:
            owner = getattr(owner, name, NOTHING)
        followed = call.kind == "attribute" and (is_kind(class_of(owner), ModuleType) or is_kind(class_of(owner), type))
        known = owner is not NOTHING and not followed and sys.modules.get(module) is found and not is_own(found)
        return ".".join((module, *path[1:])) if known else ""
    module = class_module(found) if is_kind(class_of(found), type) else getattr(found, "__module__", None)
    holder = sys.modules.get(module) if type(module) is str and module != "__main__" else None
    known = callable(found) and holder is not None and vars(holder).get(path[0]) is found and not is_own(holder)
    return ".".join((module, *path)) if known and call.kind == "call" else ""


def _is_data(value: Any) -> bool:
    """Return whether a function may change a value: it is neither a number or a text, nor a class or a function."""
    return value is not NOTHING and class_of(value) not in _VALUES and not callable(value)
