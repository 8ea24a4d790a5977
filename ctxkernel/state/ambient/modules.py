"""Which modules are the user's own: those whose file is neither Python's nor an installed library's."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).resolve().parents[2])]
    return tuple({os.path.realpath(folder) + os.sep for folder in found} | {folder + os.sep for folder in found})


_FOLDERS = _library_folders()


def is_own(module: ModuleType) -> bool:
    """Return whether a module comes from a file of the user, an editable install included."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not file.startswith(_FOLDERS) and not file.startswith("<")


class OwnModules:
    """The user's own modules that are loaded. Each module is judged once."""

    def __init__(self) -> None:
        self._judged: dict[str, tuple[ModuleType, bool]] = {}
        self._found: tuple[ModuleType, ...] = ()

    def __call__(self) -> tuple[ModuleType, ...]:
        """Return them in the order in which they were loaded."""
        loaded = sys.modules
        if len(loaded) != len(self._judged):
            self._judge(dict(loaded))
        return self._found

    def _judge(self, loaded: dict[str, ModuleType]) -> None:
        judged: dict[str, tuple[ModuleType, bool]] = {}
        for name, module in loaded.items():
            known = self._judged.get(name)
            judged[name] = known if known is not None and known[0] is module else (module, is_own(module))
        self._judged = judged
        main = sys.modules.get("__main__")
        self._found = tuple(module for module, own in judged.values() if own and module is not main)
