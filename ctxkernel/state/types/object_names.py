"""Names under which streams refer to objects that they do not hold: uids of classes, tokens and labels."""

from __future__ import annotations

import gc
import itertools
import uuid
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from ctxkernel.core.reflection import class_of, class_qualname
from ctxkernel.state.base.own_modules import OwnModule
from ctxkernel.state.base.weak_tables import ById, Named
from ctxkernel.state.types.identities import Identities


@dataclass(eq=False, repr=False)
class ObjectNames:
    """A namespace, whose module has the name `module`, and the names of its objects."""

    namespace: dict[str, Any]
    _: KW_ONLY
    module: str = "__main__"
    is_handle: Callable[[object], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.own_modules: dict[str, OwnModule] = {}
        """Modules of the user's own, by name: files in his folder."""
        self.references = ById()
        """What pandas keeps of who shares a block of memory, by the object that owns the memory."""
        self.classes = Named()
        """The user's classes, by uid: a class keeps its own for life; several may have been made of one."""
        self.tokens = Named()
        """What has no stored form, by token."""
        self.identities = Identities()
        """Objects that are stored by value and compared by identity."""
        self.labels = Named()
        """Objects with packs of their own, by label: `shared:<token>`."""
        self.process = uuid.uuid4().hex[:8]
        """Begins its tokens: a process that was forked needs another one."""
        self._count = itertools.count(1)

    def uid(self, cls: type) -> str:
        """Return the uid of a class of the user's."""
        if (known := self.classes.get(cls)) is None:
            self.classes.add(known := uuid.uuid4().hex[:16], cls)
        return known

    def token(self, obj: object) -> str:
        """Return the token of an object without a stored form: the same one as long as the object lives."""
        if (known := self.tokens.get(obj)) is None:
            known = f"{self.process}-{next(self._count)}"
            self._name(known, obj)
        return known

    def _name(self, token: str, obj: object) -> None:
        try:
            self.tokens.add(token, obj)
        except TypeError:
            self.tokens.hold(token, obj)

    def adopt_tokens(self, found: Iterable[tuple[str, int, str]]) -> None:
        """Take over tokens that a forked process gave: token, id, type.

        An id says nothing by itself, so the object is looked for among those that the garbage collector knows.
        """
        wanted = {key: (token, kind) for token, key, kind in found if self.tokens.object(token) is None}
        for obj in [one for one in gc.get_objects() if id(one) in wanted] if wanted else ():
            token, kind = wanted[id(obj)]
            if kind == class_qualname(class_of(obj)):
                self._name(token, obj)

    def share(self, obj: object) -> None:
        """Give an object a pack of its own from now on. Raises TypeError without weak references."""
        if self.labels.get(obj) is None:
            self.labels.add(f"shared:{self.token(obj)}", obj)

    def part_of(self, label: str) -> Any:
        """Return what a label stands for: a class, or an object with a pack of its own; None where it is gone."""
        kind, _, name = label.partition(":")
        return self.classes.object(name) if kind == "class" else self.labels.object(label)
