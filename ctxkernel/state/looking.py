"""Looks at values, one by one, such that a fault with one of them stays with it."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ctxkernel.core.ports import Expired
from ctxkernel.core.settings import Settings
from ctxkernel.core.timeline import TypeInfo
from ctxkernel.state.code_kinds import make_kind, tables
from ctxkernel.state.describe import describe
from ctxkernel.state.digest import Batch, Look
from ctxkernel.state.survey import Survey

HANDLE = Survey(())
"""The survey of every handle and module: these are followed by name only."""


class Looker:
    """Makes looks in one namespace."""

    def __init__(self, namespace: dict[str, Any], settings: Settings, is_handle: Callable[[object], bool]) -> None:
        self._namespace = namespace
        self.settings = settings
        self._is_handle = is_handle

    def batch(self, expired: Expired) -> Batch:
        """Return what looks that are made together share."""
        kinds, bases = tables()
        batch = Batch(self._namespace, expired, self._is_handle, dict(kinds), bases)
        batch.make_kind = make_kind
        return batch

    def info(self, value: object) -> TypeInfo:
        """Describe a value in one line."""
        module = self._namespace.get("__name__")
        return describe(value, self.settings.repr_chars, module if type(module) is str else "__main__")

    def start(self, batch: Batch, value: object) -> Look | Survey | None:
        """Begin a look; None where the object cannot be looked at."""
        for _ in range(2):
            try:
                if type(value) is types.ModuleType:
                    return HANDLE
                if id(type(value)) not in batch.kinds and batch.plan(type(value)).honest and self._is_handle(value):
                    return HANDLE
                return Look(batch, value)
            except RuntimeError:  # a thread changed a dict or set meanwhile
                continue
            except Exception:  # an object that breaks the rules of its type: this name goes without
                return None
        return None

    def finish(self, look: Look | Survey | None, *, hash_bodies: bool = True) -> Survey | None:
        """Return the outcome of a look; None where there is none."""
        if look is None or isinstance(look, Survey):
            return look
        try:
            return look.finish(hash_bodies=hash_bodies)
        except Exception:  # memory that went away: a closed map, a resized array
            return None

    def look(self, batch: Batch, value: object) -> Survey | None:
        """Begin and finish a look."""
        return self.finish(self.start(batch, value))
