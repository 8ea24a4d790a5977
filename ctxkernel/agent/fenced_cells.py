"""Decide which fenced blocks of an ask's responses are cells, and describe code that did not run.

Rule 1: a block that repeats a cell of the same ask is no cell: models quote what they did, and it would run twice.
Rule 2: a block that repeats text of the request is a quotation and no cell: it can be an order of somebody else, in a
        file or an output, or code of the user that the model explains. Only a single line that stands in a cell or a
        question of the notebook is run, such as `df.head()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ctxkernel.agent.fences import IN_PYTHON, code_in
from ctxkernel.agent.reply import ModelReply
from ctxkernel.core.text import join_names
from ctxkernel.projection.dialect import RUN_CELL
from ctxkernel.projection.value import Projection

_CUT = "the model spoke as if it were the kernel, of results that never were; %%ask --again asks anew"


class FencedCells:
    """The fenced blocks of one ask."""

    def __init__(self, sources: Callable[[], Iterable[str]]) -> None:
        """`sources` returns the sources of the cells and questions of the notebook."""
        self._sources = sources
        self._done: set[str] = set()

    def note(self, *codes: str) -> None:
        """Note that a cell of the ask runs: its code, and as the model wrote it."""
        self._done.update(map(_squeezed, codes))

    def has_run(self, code: str) -> bool:
        """Return whether a cell of this ask has run this code, or a cell with these lines."""
        given = _squeezed(code)
        return given in self._done or (_has_lines(code) and any(given in done for done in self._done))

    def is_text(self, request: Projection, code: str) -> bool:
        """Return whether a block of the response to `request` is no cell."""
        if self.has_run(code):
            return True
        given = _squeezed(code)
        if not any(given in _squeezed(block.text) for block in request.blocks if block.role == "user"):
            return False
        return _has_lines(code) or not any(given in _squeezed(source) for source in self._sources())

    def remark(self, reply: ModelReply, blocks: Iterable[Mapping[str, Any]], *, tools: bool) -> str:
        """Return a text for the person about an answer that is incomplete or empty, or holds code that did not run.

        `blocks` are those of the response; `tools` says whether the model was given tools.
        """
        called = [str(block.get("name")) for block in blocks if block.get("type") == "tool_use"]
        if called and not tools:
            return (
                f"the model called {join_names(called)} as a tool, and was given none, so nothing was run: it is to "
                "write scripts (dialect script). %ctx config dialect tools gives it tools; then ask again"
            )
        if reply.cut:
            left = "the end of the answer was cut" if reply.text.strip() else "nothing is left of the answer"
            return f"{left}: {_CUT}"
        if not reply.text.strip():
            return "the model said nothing"
        where = code_in(reply.text, self.has_run)
        if not where:
            return ""
        if tools:
            why = f"and this model runs code only by calls of {RUN_CELL}"
        elif where == IN_PYTHON:
            why = "but repeats text that the model was shown"
        else:
            why = "and only script tags and blocks marked as Python are cells"
        return (
            f"the answer holds code that was not run: it stands {where}, {why}. "
            "Copy it into a cell, or ask the model to run it"
        )


def _has_lines(code: str) -> bool:
    return "\n" in code.strip()


def _squeezed(text: str) -> str:
    """Return a text without white space, so that a quotation is found whatever its indentation."""
    return "".join(text.split())
