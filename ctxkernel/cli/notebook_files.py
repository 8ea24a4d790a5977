"""Notebooks as a user names them: an .ipynb, or a script or Markdown file that jupytext reads.

Rule 1: A file may come from a stranger: it is read within bounds, and nothing in it is executed.
"""

# nbformat and jupytext are typed in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import nbformat
from nbformat.warnings import MissingIDFieldWarning

from ctxkernel.cli import Failed, Unusable
from ctxkernel.cli.output import safe_line
from ctxkernel.cli.read import check_notebook
from ctxkernel.store.notebook_file import read_notebook_json

TEXT_FORMS = frozenset((".py", ".md", ".markdown", ".Rmd", ".qmd"))
"""The suffixes of files that jupytext reads as notebooks of Python."""
_MOST_TEXT = 16 * 1024 * 1024


def is_text_form(path: Path) -> bool:
    """Return whether a notebook is a text file, which holds no outputs."""
    return path.suffix in TEXT_FORMS


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Return the notebook at `path`, in format 4. Raises Unusable with what is wrong."""
    check_notebook(path)
    try:
        notebook = _read_text(path) if is_text_form(path) else _read(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MissingIDFieldWarning)
            nbformat.validate(notebook)
    except (OSError, UnicodeDecodeError) as fault:
        raise Unusable(f"{path} cannot be read: {fault}.") from fault
    except Unusable:
        raise
    except Exception as fault:  # nbformat raises many types; the first line is enough
        raise Unusable(f"{path} is not a valid notebook: {safe_line(str(fault))[:200]}.") from fault
    about: Any = notebook.metadata
    language: str = about.get("kernelspec", {}).get("language") or about.get("jupytext", {}).get("main_language")
    if (language or "python").lower() not in ("python", "python3", "ipython"):
        raise Unusable(f"{path} is a {safe_line(language)} notebook; the ctxkernel runs Python.")
    return notebook


def write_notebook(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write a notebook. Raises Failed."""
    try:
        nbformat.write(notebook, path)
    except OSError as fault:
        raise Failed(f"{path} could not be written: {fault.strerror}.") from fault


def _read(path: Path) -> nbformat.NotebookNode:
    read_notebook_json(path)  # within bounds, which nbformat has none of
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingIDFieldWarning)
        return nbformat.read(path, as_version=4)


def _read_text(path: Path) -> nbformat.NotebookNode:
    try:
        import jupytext  # pyright: ignore[reportMissingTypeStubs, reportMissingImports]
    except ImportError:
        raise Unusable(
            f"{path} is no .ipynb file; `pip install jupytext` lets ctxkernel read scripts and Markdown as notebooks."
        ) from None
    with path.open("rb") as file:
        content = file.read(_MOST_TEXT + 1)
    if len(content) > _MOST_TEXT:
        raise ValueError(f"it is larger than {_MOST_TEXT // 1024**2} MiB")
    return jupytext.reads(content.decode("utf-8-sig"), fmt=path.suffix)
