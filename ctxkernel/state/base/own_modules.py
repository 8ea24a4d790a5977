"""The user's own modules, and their variables as part of a state.

Own modules are those whose file is neither Python's nor an installed library's.
A module is a variable of the tracker's, `module:<name>`, whose value is made here: what its names hold, the attributes
that its classes hold as data, and those of its functions. What other libraries hold is not part of it.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ctxkernel.core.reflection import HEAP_TYPE, class_dict, class_flags, class_module, is_kind, module_dict
from ctxkernel.state.base.variables import NOTHING

PREFIX = "module:"
PYPLOT = "matplotlib.pyplot"
"""Its open figures are treated as variables of it: what it draws on is shared with the user's names."""
LOGGING = "logging"
"""So are handlers of the user's own classes: what they hold is shared with his names."""
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, property, staticmethod, classmethod)
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)

_LIBRARIES = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_LIBRARIES += [*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).resolve().parents[2])]
_FOLDERS = tuple({path + os.sep for folder in _LIBRARIES for path in (folder, os.path.realpath(folder))})


def is_own(module: types.ModuleType) -> bool:
    """Return whether a module comes from a file of the user, an editable install included."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not file.startswith(_FOLDERS) and not file.startswith("<")


class OwnModules:
    """The user's own modules that are loaded. Each module is judged once."""

    def __init__(self) -> None:
        self._judged: dict[str, tuple[types.ModuleType, bool]] = {}
        self._found: tuple[types.ModuleType, ...] = ()

    def __call__(self) -> tuple[types.ModuleType, ...]:
        """Return them in the order in which they were loaded."""
        if len(sys.modules) != len(self._judged):
            before, self._judged = self._judged, {}
            for name, module in list(sys.modules.items()):
                known = before.get(name)
                self._judged[name] = known if known is not None and known[0] is module else (module, is_own(module))
            main = sys.modules.get("__main__")
            self._found = tuple(module for module, own in self._judged.values() if own and module is not main)
        return self._found


def variables_of(name: str) -> Any:
    """Return what `module:<name>` stands for: a new dict of places and values; NOTHING where it is not loaded."""
    module = sys.modules.get(name.removeprefix(PREFIX))
    if module is None:
        return NOTHING
    if (objects := IN_PLACE.get(name.removeprefix(PREFIX))) is not None:
        return objects()
    return dict(_places(module))


def _figures() -> dict[str, Any]:
    managers: dict[int, Any] = sys.modules["matplotlib._pylab_helpers"].Gcf.figs  # type: ignore[attr-defined]
    return {str(number): manager.canvas.figure for number, manager in managers.items()}


IN_PLACE: dict[str, Callable[[], dict[str, Any]]] = {PYPLOT: _figures}
"""Modules of libraries of which only some objects count; the ambient part of each puts them in place."""


def _places(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    value: Any
    for name, value in list(module_dict(module).items()):
        if type(name) is not str or name.startswith("__"):
            continue
        yield name, value
        own = getattr(value, "__module__", None) == module.__name__ if type(value) is types.FunctionType else False
        if own and value.__dict__:
            yield f"{name}.__dict__", value.__dict__
        if own and value.__defaults__:
            yield f"{name}.__defaults__", value.__defaults__
        cls: Any = value if is_kind(type(value), type) else None
        if cls is not None and class_flags(cls) & HEAP_TYPE and class_module(cls) == module.__name__:
            for member, held in list(class_dict(cls).items()):
                if not member.startswith("__") and not isinstance(held, _CODE) and type(held) not in _DESCRIPTORS:
                    yield f"{name}.{member}", held


def put_back(name: str, values: Mapping[str, Any]) -> None:
    """Make the variables of a module those of a state. A module that is not loaded is left alone."""
    module = sys.modules.get(name.removeprefix(PREFIX))
    if module is None or module.__name__ in IN_PLACE:
        return
    space = module_dict(module)
    now = dict(_places(module))
    for place in now.keys() - values.keys():
        if "." not in place:
            space.pop(place, None)
    for place, value in values.items():
        if now.get(place, NOTHING) is value:
            continue
        owner, _, member = place.partition(".")
        if not member:
            space[place] = value
        elif member == "__dict__":
            vars(space[owner]).clear()
            vars(space[owner]).update(value)
        else:
            setattr(space[owner], member, value)
