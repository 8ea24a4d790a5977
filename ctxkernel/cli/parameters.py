"""`ctxkernel run -p NAME VALUE`: parameters of a notebook, in a cell of their own, as papermill gives them.

Rule 1: A value is a literal: text is never executed as code.
"""

# nbformat is typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Sequence
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell

from ctxkernel.cli import Unusable
from ctxkernel.cli.output import safe_line
from ctxkernel.core.timeline import PARAMETERS

_DEFAULTS, _INJECTED = PARAMETERS
_WORDS = {"True": True, "False": False, "None": None}


def inject_parameters(notebook: nbformat.NotebookNode, given: Sequence[Sequence[str]]) -> list[str]:
    """Put a cell with the parameters after that of the defaults, or at the top; return the names without a default.

    It takes the place of an earlier one. Raises Unusable for what is no name.
    """
    lines = [f"{_checked(name)} = {_literal(value_of(text))}" for name, text in given]
    # The id says that it is the same cell in the next run.
    cell = new_code_cell("\n".join(["# Parameters", *lines]), id=_INJECTED, metadata={"tags": [_INJECTED]})
    if notebook.nbformat_minor < 5:
        del cell["id"]
    cells: list[Any] = [one for one in notebook.cells if not _has_tag(one, _INJECTED) and one.get("id") != _INJECTED]
    at = next((at for at, one in enumerate(cells) if _has_tag(one, _DEFAULTS)), None)
    notebook.cells = [*cells[: at + 1], cell, *cells[at + 1 :]] if at is not None else [cell, *cells]
    known = _assigned(cells[at].source) if at is not None else set[str]()
    return [name for name, _ in given if name not in known]


def value_of(text: str) -> bool | float | str | None:
    """Return the value of a parameter: True, False, None and numbers as such, anything else as text."""
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _literal(value: object) -> str:
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _checked(name: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise Unusable(f"-p {safe_line(name)[:60]}: a parameter is the name of a variable, as alpha in `-p alpha 0.5`.")
    return name


def _has_tag(cell: Any, tag: str) -> bool:
    return cell.cell_type == "code" and tag in cell.metadata.get("tags", ())


def _assigned(source: str) -> set[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
