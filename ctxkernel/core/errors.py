"""The errors of ctxkernel that a user can meet. Each names the object and says what to do."""

from __future__ import annotations


class CtxError(Exception):
    """Base of every error that ctxkernel raises on purpose."""


class BadPolicy(CtxError, ValueError):
    """A level of detail, token budget, mode, frequency or position that no node can have."""


class BadAttribute(CtxError, AttributeError):
    """An attribute that no handle of this kind has."""


class BadTarget(CtxError, ValueError):
    """A target that no view can show, or that does not exist."""


class CyclicGroup(CtxError, ValueError):
    """A group that would contain itself, directly or through another group."""


class OutsideTurn(CtxError, RuntimeError):
    """A change of node state outside of a statement and of a tick (law 1)."""


class BadCommand(CtxError, ValueError):
    """A `%ctx` command, or an argument of one, that does not exist."""


class StoreError(CtxError, RuntimeError):
    """A session that cannot be opened, read or written."""


class BadHistory(CtxError, ValueError):
    """A history event that cannot be read, or a place in the history that does not exist."""


class NothingToCondense(CtxError, RuntimeError):
    """A history that must be shortened before it can be sent, but has nothing to condense."""
