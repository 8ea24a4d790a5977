"""The parts of an imported notebook that no statement holds: texts between the cells, metadata, forms of outputs.

The session keeps them as one value, a mark. Together with the statements it gives the notebook back.

Rule 1: A document is data from a stranger: every field may hold anything, also in a session that was given to the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ctxkernel.core.text import strip_ansi
from ctxkernel.core.timeline import ExceptionInfo, Execution
from ctxkernel.replay.notebook_outputs import notebook_outputs
from ctxkernel.store.notebook_file import as_count, as_object, as_objects

SUBJECT, MARK = "notebook", "document"
"""The mark of a session that holds its document."""
STATEMENT = "statement"
"""The key of a cell that names the statement with its source and outputs."""
_VERSION = 1
CellOutput = dict[str, Any]


def document(notebook: Mapping[str, Any], statements: Mapping[int, tuple[str, Execution]]) -> dict[str, Any]:
    """Return the document of a notebook whose cells at these positions are these statements, with their executions."""
    cells: list[dict[str, Any]] = []
    for at, cell in enumerate(notebook["cells"]):
        if at not in statements:
            cells.append(dict(cell))
            continue
        statement_id, execution = statements[at]
        kept = {name: value for name, value in cell.items() if name not in ("source", "outputs")}
        made = notebook_outputs(execution, cell.get("execution_count"))
        cells.append({**kept, STATEMENT: statement_id, "outputs": _forms(cell.get("outputs", []), made)})
    about = {name: notebook[name] for name in ("nbformat_minor", "metadata")}
    return {"v": _VERSION, **about, "cells": cells}


def _forms(outputs: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return, for each output, the fields that an execution does not give back; all outputs if they do not pair."""
    if _types(outputs) != _types(made):
        return [{"whole": [dict(one) for one in outputs]}]
    return [
        {key: value for key, value in was.items() if now.get(key) != value}
        for was, now in zip(outputs, made, strict=True)
    ]


def with_forms(execution: Execution, cell: Mapping[str, Any]) -> list[CellOutput]:
    """Return the outputs of an execution in the forms that the cell of a document has for them."""
    made = notebook_outputs(execution, as_count(cell.get("execution_count")))
    forms = as_objects(cell.get("outputs"))
    if len(forms) == 1 and "whole" in forms[0]:
        return [dict(one) for one in as_objects(forms[0]["whole"]) if isinstance(one.get("output_type"), str)]
    if len(forms) != len(made):  # masked texts have no order any more
        return made
    return [{**now, **form, "output_type": now["output_type"]} for now, form in zip(made, forms, strict=True)]


def cells_of(found: object) -> list[dict[str, Any]]:
    """Return the cells of a document; empty if it is none."""
    return as_objects(as_object(found).get("cells"))


def metadata_of(found: object) -> tuple[dict[str, Any], int]:
    """Return the metadata of a document, and the minor version of its format."""
    about = as_object(found)
    minor = about.get("nbformat_minor")
    return as_object(about.get("metadata")), minor if isinstance(minor, int) and 0 <= minor <= 5 else 5


def exception_of(outputs: Sequence[Mapping[str, Any]], most: int) -> ExceptionInfo | None:
    """Return the error among the outputs of a cell, with at most `most` characters of its trace."""
    for one in outputs:
        if one.get("output_type") == "error":
            trace = strip_ansi("\n".join(map(str, one.get("traceback", []))))
            return ExceptionInfo(str(one.get("ename", "")), str(one.get("evalue", ""))[:most], trace[:most])
    return None


def _types(outputs: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    return [(one.get("output_type"), one.get("name")) for one in outputs]
