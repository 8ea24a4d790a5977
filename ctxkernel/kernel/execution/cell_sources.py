"""Sources of cells that another kernel ran, for tracebacks, `??` and `inspect`: IPython knows those of its own alone.

The code of a cell has a file name `<folder of the process>/<hash of the cell>.py`, which a stored function keeps.
"""

from __future__ import annotations

import contextlib
import importlib
import linecache
import os
import re
from collections.abc import Iterable
from typing import Any

_CELL = re.compile(r"\d+\.py")
_DEFINES = re.compile(r"\b(def|class|lambda|for)\b")
"""In a cell that makes code which can be stored."""


def give_sources(shell: Any, files: Iterable[str], cells: Iterable[tuple[str, str]]) -> None:
    """Make the source of cells known for the file names of their code.

    `cells`: the label of each cell for tracebacks, and its source; the first one with a file's hash is taken.
    """
    unknown = [file for file in files if file not in linecache.cache and _CELL.fullmatch(os.path.basename(file))]
    wanted: dict[int, list[str]] = {}
    for file in unknown:
        wanted.setdefault(int(os.path.basename(file)[:-3]), []).append(file)
    if not wanted:
        return
    compiler: Any = importlib.import_module("ipykernel.compiler")
    for label, source in cells:
        if not _DEFINES.search(source):
            continue
        with contextlib.suppress(Exception):  # half of a surrogate pair, or a transformer of the user's: no source then
            for file in wanted.pop(compiler.murmur2_x86(source, compiler.get_tmp_hash_seed()), ()):
                told = shell.transform_cell(source)
                # Without a time, an entry stays although there is no such file.
                linecache.cache[file] = len(told), None, told.splitlines(keepends=True), file
                getattr(shell.compile, "_filename_map", {})[file] = label
        if not wanted:
            return
