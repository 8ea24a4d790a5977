"""Helpers for tests of a source: render it, and check the guarantees of every rendering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ctxkernel.core.ports import AllTokens, Budget, Rendered, RenderRequest, Source
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.sources import BaseSource, open_source


def render(target: Any, lod: int = 0, pos: str = "0", tokens: Budget = 2000, basis: Any = None) -> Rendered:
    """Render a target or source. A Path is labelled by its name alone, because its folder's name would cost tokens.

    Asserts that the text is not empty, that its token count is right, and that it is within the budget.
    """
    source = target if isinstance(getattr(target, "label", None), str) else opened(target)
    rendered = source.render(RenderRequest(lod, pos, tokens, basis))
    assert rendered.text
    seen = rendered.picture.tokens if rendered.picture is not None else 0
    assert rendered.tokens == count_tokens(rendered.text) + seen
    assert isinstance(tokens, AllTokens) or rendered.tokens <= tokens
    return rendered


def opened(target: Any, name: str | None = None) -> Source:
    """Return the source of a target, a Path labelled by its name alone."""
    source = open_source(target, namespace_name=name)
    if isinstance(target, Path) and isinstance(source, BaseSource):
        source.label = target.name
    return source


def written(path: Path, text: str | bytes) -> Path:
    """Write a file and return its path."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
