"""Construction of objects from a stream.

Rule: a class of the user's is found by its uid: alive, then by the caller; never by its name.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from ctxkernel.core.reflection import definition_of
from ctxkernel.core.state_names import CLASS
from ctxkernel.state.types.arrays import ArrayParts
from ctxkernel.state.types.classes import ClassParts
from ctxkernel.state.types.file_maps import FileMapParts
from ctxkernel.state.types.file_objects import FileParts
from ctxkernel.state.types.frames import FrameParts
from ctxkernel.state.types.instances import InstanceParts
from ctxkernel.state.types.matches import MatchParts
from ctxkernel.state.types.parts import PARTS, ConstructorName
from ctxkernel.state.types.process_objects import ThingParts
from ctxkernel.state.types.tensors import TensorParts


class StreamRestorer(
    ArrayParts, FileMapParts, FrameParts, TensorParts, InstanceParts, ClassParts, FileParts, MatchParts, ThingParts
):
    """The constructors of one stream; `part` gives them by name."""

    def part(self, name: str) -> Any:
        """Return a constructor by its name. Raises AttributeError for an unknown name."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self, name)

    def own_class(self, number: int, name: str) -> Any:
        """Return a class of the user's. Raises LookupError where it is gone."""
        uid = self.labels[number].removeprefix(CLASS)
        found: Any = self.made.get(uid)
        for look in (self.packer.classes.object, self._classes):
            found = look(uid) if found is None else found
        if found is None:
            raise LookupError(f"the class {name} is gone")
        return found

    def shared(self, number: int) -> Any:
        """Return an object that has a pack of its own. Raises LookupError where it is gone."""
        found = self._shared(self.labels[number])
        if found is None:
            raise LookupError("an object that it shares with others is gone")
        return found

    def identical(self, number: int) -> object:
        """Return an object that is compared by identity. Raises ImportError."""
        return self.packer.identities.object(self.labels[number].removeprefix("live:"))

    def skip(self, obj: Any, state: Any) -> None:
        """Ignore data that were stored for comparisons only."""

    def live(self, number: int, what: str) -> Any:
        """Return the living object, or a stand-in."""
        found = self.living(number)
        return self.lose(what) if found is None else found

    def lose(self, what: str) -> Any:
        """Return a stand-in."""
        self.said.append(what)
        made = self.stand_in(what)
        self.stand_ins.append(made)
        return made


_NAMES = (*dir(StreamRestorer), *StreamRestorer.__dataclass_fields__)
PARTS.__dict__.update({name: ConstructorName(name) for name in _NAMES if name[0] != "_"})


class Loader(pickle.Unpickler):
    """The C unpickler; names of the namespace's module are looked up in the namespace."""

    restorer: StreamRestorer

    def find_class(self, module: str, name: str) -> Any:
        """Return the object that a module has under a name."""
        return find(self.restorer, super().find_class, module, name)

    def persistent_load(self, pid: Any) -> object:
        """Return an object that is compared by identity. Raises ImportError."""
        return self.restorer.identical(pid)


def find(restorer: StreamRestorer, otherwise: Callable[[str, str], Any], module: str, name: str) -> Any:
    """Return the object that a module has under a name, with the namespace in place of its module."""
    if module == restorer.packer.module:
        first, *rest = name.split(".")
        if first not in restorer.packer.namespace:
            raise LookupError(f"{name} is not there")
        found = restorer.packer.namespace[first]
        for each in rest:
            found = getattr(found, each)
        return found
    known = definition_of(module, name)
    return otherwise(module, name) if known is None else known
