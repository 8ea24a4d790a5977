"""Find the code in the Markdown fences of a response.

In the script dialect, the fenced Python blocks of a response without a script tag are its cells: small models write
them whatever they are told.

Rule 1: only a block that is marked as Python is a cell. A block without a language is text, since results, paths and
        quoted data are written like that and often parse as Python. A block in another language is never run.
Rule 2: a block ends at the first closing line before which it is valid Python, so that a fence in a docstring does not
        end it. If there is none, it ends at the first, and the kernel reports the error.
Rule 3: a fence within another fence, or in a quotation (`>`), is text.
Rule 4: text of the model as if it were the kernel is cut, as in a response with scripts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ctxkernel.agent.scripts import FORGED, FORGED_LINE, ScriptPart
from ctxkernel.state.tracking.cell_names import is_python, syntax_tree

_OPEN = re.compile(
    r"^(?P<indent>[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)(?P<mark>`{3,}(?=[^`\n]*$)|~{3,})[ \t]*(?P<info>[^\n]*)$",
    re.MULTILINE,
)
_PYTHON = re.compile(r"\{?\.?(?:i?python[\d.]{0,5}|py3?)(?=[\s}:,{]|$)", re.IGNORECASE)
_LANGUAGE = re.compile(r"[\w+#-]+")
_SHELLS = frozenset(("bash", "sh", "shell", "zsh", "console", "terminal", "powershell"))
_SCRIPT = re.compile(r"(?<!`)<script\b", re.IGNORECASE)
_TRIES = 8
"""Most places that are tried as the end of one block."""
_ALL_TRIES = 100
"""Most places that are tried in one text: reading broken Python takes 0.5 ms."""
_ACTS = (ast.Call, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


class Fence(NamedTuple):
    """A fenced block of a text."""

    start: int
    """The offset of its opening line."""
    end: int
    """The offset of the text after it."""
    info: str
    code: str
    closed: bool
    """Whether it has a closing line, or another end than that of the text."""

    @property
    def python(self) -> bool:
        """Return whether it is marked as Python."""
        return _PYTHON.match(self.info) is not None


def find_fences(text: str) -> Iterator[Fence]:
    """Yield the fenced blocks of a text in order, without those within others. The text has no CRLF."""
    at, left = 0, _ALL_TRIES
    while (opening := _OPEN.search(text, at)) is not None:
        found, tries = _fence(text, opening, min(left, _TRIES))
        left -= tries
        yield found
        at = max(found.end, opening.end())


def _fence(text: str, opening: re.Match[str], most: int) -> tuple[Fence, int]:
    """Return the block that an opening line begins, and how many ends were tried, of `most`."""
    mark, indent, info = opening["mark"], len(opening["indent"]), opening["info"].strip()
    python, begin = _PYTHON.match(info) is not None, opening.end() + 1
    closing = rf"^[ \t]{{0,{indent + 3}}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$"
    others = rf"|(?P<other>{_OTHER})|{FORGED_LINE}" if python else ""
    ends: list[tuple[int, int]] = []
    for found in re.compile(rf"(?P<closing>{closing}){others}", re.IGNORECASE | re.MULTILINE).finditer(text, begin):
        end = found.start(), found.end() if found["closing"] is not None else found.start()
        ends.append(end)
        code = text[begin : end[0]]
        if not python or not ("'" in code or '"' in code) or len(ends) > most:  # without strings, so not in one
            break
        if is_python(_dedented(code, indent)):
            ends = [end]
            break
    stop, after = ends[0] if ends else (len(text), len(text))
    code = _dedented(text[begin:stop], indent)
    return Fence(opening.start(), after, info, code, bool(ends)), len(ends) if python else 0


_OTHER = r"^[ \t]{0,3}(?:`{3,}|~{3,})[ \t]*(?:i?python3?|py3?)[ \t]*$"
"""The opening line of the next block, where a model forgot to close this one."""


def _dedented(code: str, indent: int) -> str:
    """Return the lines without up to `indent` characters of white space, and without blank lines around them."""
    lines = [line[min(indent, len(line) - len(line.lstrip(" \t"))) :] for line in code.split("\n")]
    first = next((at for at, line in enumerate(lines) if line.strip()), 0)
    return "\n".join(lines[first:]).rstrip()


def split_fences(
    text: str, *, complete: bool = True, is_text: Callable[[str], bool] = lambda code: False
) -> tuple[ScriptPart, ...]:
    """Return the parts of a response without script tags: its fenced Python blocks are of kind `fenced`.

    `complete` is false for a truncated response, whose open block is `unfinished`. A block whose code `is_text` stays
    in the text around it.
    """
    text = text.replace("\r\n", "\n")
    parts: list[ScriptPart] = []
    at = seen = 0
    for fence in [*find_fences(text), None]:
        forged = FORGED.search(text, seen, fence.start if fence else len(text))
        if forged is not None:
            return (*parts, *_text(text[at : forged.start()]), ScriptPart("cut", text[forged.start() :].strip()))
        if fence is None:
            break
        if not fence.python or not fence.code.strip() or is_text(fence.code):
            seen = fence.start
            continue
        parts += _text(text[at : fence.start])
        parts.append(ScriptPart("fenced" if fence.closed or complete else "unfinished", fence.code))
        at = seen = fence.end
    return (*parts, *_text(text[at:]))


def _text(text: str) -> list[ScriptPart]:
    return [ScriptPart("text", text.strip())] if text.strip() else []


IN_PYTHON = "in a block marked as Python"


def code_in(text: str, ran: Callable[[str], bool] = lambda code: False) -> str:
    """Return how code stands in a text that ran nothing: "in a block marked as bash", …; empty if there is none.

    Code that `ran` is not counted.
    """
    text = text.replace("\r\n", "\n")
    for fence in find_fences(text):
        language = _LANGUAGE.match(fence.info)
        if not fence.code.strip() or ran(fence.code):
            continue
        if fence.python:
            return IN_PYTHON
        if language is not None and language[0].lower() in _SHELLS:
            return f"in a block marked as {language[0].lower()}"
        if not fence.info and _acts(fence.code):
            return "in a block that is not marked as Python"
    if _SCRIPT.search(text):
        return 'in a script tag without type="text/x-python"'
    return "in no block" if _acts(text) else ""


def _acts(text: str) -> bool:
    """Return whether a text is Python that does something; a word, a number or a tuple is Python, too."""
    tree = syntax_tree(text.strip())
    return tree is not None and any(isinstance(node, _ACTS) for node in ast.walk(tree))
