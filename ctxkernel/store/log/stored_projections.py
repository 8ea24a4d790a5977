"""Projections of earlier turns, read from a session's file."""

from __future__ import annotations

from pathlib import Path

from ctxkernel.core.errors import BadCommand
from ctxkernel.projection.value import Projection
from ctxkernel.store.log.reader import SessionReader


def stored_projection(path: Path | None, place: str) -> Projection:
    """Return the projection that was stored after a statement. Raises CtxError if there is none."""
    if path is None:
        raise BadCommand("this session is in memory only: there are no earlier projections to compare with")
    with SessionReader(path) as reader:
        return reader.stored_projection(place)
