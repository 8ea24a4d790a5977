"""A session as a notebook and a notebook as a session: nothing that both can hold is lost on the way."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels import RunningKernel
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from ctxkernel.cli import main
from ctxkernel.cli.export import notebook_text
from ctxkernel.cli.notebook_files import read_notebook
from ctxkernel.export import BranchNotebook, import_notebook
from ctxkernel.export import imports as limits
from ctxkernel.projection.masker import Masker
from ctxkernel.store.log.session import SessionReader

# -- any notebook ------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
WORD = st.text("abcdefgh-_", min_size=1, max_size=10)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(200)).decode()
PLAIN_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=6,
)
METADATA = st.dictionaries(WORD.filter(lambda word: word not in ("id", "name")), PLAIN_JSON, max_size=3)
BUNDLE = st.fixed_dictionaries(
    {},
    optional={
        "text/plain": TEXT,
        "text/html": TEXT,
        "text/markdown": TEXT,
        "image/png": st.just(PNG),
        "image/svg+xml": st.just("<svg/>"),
        "application/json": PLAIN_JSON,
        "application/vnd.plotly.v1+json": st.dictionaries(WORD, PLAIN_JSON, max_size=2),
        "application/vnd.jupyter.widget-view+json": st.just({"model_id": "m", "version_major": 2}),
        "application/javascript": st.just("alert(1)"),
    },
)
OUTPUT = st.one_of(
    st.builds(lambda name, text: {"output_type": "stream", "name": name, "text": text}, st.sampled_from(["stdout", "stderr"]), TEXT),
    st.builds(lambda data, about: {"output_type": "display_data", "data": data, "metadata": about}, BUNDLE, METADATA),
    st.builds(
        lambda data, about, count: {
            "output_type": "execute_result", "data": data, "metadata": about, "execution_count": count
        },
        BUNDLE, METADATA, st.none() | st.integers(0, 999),
    ),
    st.builds(
        lambda name, value, lines: {"output_type": "error", "ename": name, "evalue": value, "traceback": lines},
        WORD, TEXT, st.lists(TEXT | st.just("\x1b[31mTraceback\x1b[0m"), max_size=4),
    ),
)
TAGS = st.lists(st.sampled_from(["parameters", "injected-parameters", "raises-exception", "ctx-differs", "own"]), unique=True)
ATTACHMENTS = st.dictionaries(WORD, st.just({"image/png": PNG}), max_size=2)


def with_tags(metadata: dict[str, Any], tags: list[str]) -> dict[str, Any]:
    return {**metadata, "tags": tags} if tags else metadata


CODE = st.builds(
    lambda source, about, tags, outputs, count: {
        "cell_type": "code", "source": source, "metadata": with_tags(about, tags), "outputs": outputs, "execution_count": count,
    },
    TEXT | st.just("x = 1\nprint(x)"), METADATA, TAGS, st.lists(OUTPUT, max_size=4), st.none() | st.integers(0, 999),
)
MARKDOWN = st.builds(
    lambda source, about, files: {
        "cell_type": "markdown", "source": source, "metadata": about, **({"attachments": files} if files else {})
    },
    TEXT, METADATA, ATTACHMENTS,
)
RAW = st.builds(lambda source, about: {"cell_type": "raw", "source": source, "metadata": about}, TEXT, METADATA)


@st.composite
def notebooks(draw: st.DrawFn) -> dict[str, Any]:
    """Any notebook of the formats 4.0 to 4.5."""
    minor = draw(st.integers(0, 5))
    cells = draw(st.lists(CODE | MARKDOWN | RAW, max_size=6))
    for number, cell in enumerate(cells):
        if minor == 5:
            cell["id"] = f"{draw(WORD)}-{number}"
        if minor == 0:
            cell.pop("attachments", None)
    return {"nbformat": 4, "nbformat_minor": minor, "metadata": draw(METADATA), "cells": cells}


def imported(notebook: dict[str, Any], folder: Path, number: int) -> Path:
    path = folder / f"n{number}.ipynb"
    path.write_text(json.dumps(notebook))
    made = import_notebook(
        json.loads(json.dumps(read_notebook(path))),
        folder / f"n{number}.sqlite",
        name=path.name,
        environment={},
        masker=Masker(),
        named=True,
    )
    assert made.left_out == []
    return made.session


def exported(session: Path) -> dict[str, Any]:
    with SessionReader(session) as reader:
        made = BranchNotebook(reader, Masker())
        notebook = made.build(None)
    assert made.left_out == []
    return json.loads(notebook_text(notebook))


def as_lines(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook as Jupyter writes it."""
    return json.loads(nbformat.v4.writes(nbformat.from_dict(json.loads(json.dumps(notebook)))))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(notebook=notebooks())
def test_a_notebook_comes_back_from_a_session_as_it_was(notebook: dict[str, Any], tmp_path: Path):
    number = len(list(tmp_path.iterdir()))
    session = imported(notebook, tmp_path, number)
    back = exported(session)

    nbformat.validate(back)
    assert back == as_lines(notebook)
    assert exported(imported(back, tmp_path, number + 1)) == back
    with SessionReader(session) as reader:
        runs = [(statement, run) for statement, made in reader.statements() for run in made]
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and cell["source"].strip()]
    assert [statement.source for statement, _ in runs] == [cell["source"] for cell in code]
    assert {run.status for _, run in runs} <= {"imported"}
    assert [statement.tags.get("cell_tags", []) for statement, _ in runs] == [cell["metadata"].get("tags", []) for cell in code]
