"""`ctxkernel check`: check a request against the rules of the model's API, without sending it.

Rule 1: Nothing is sent, executed or written; at most `LIMIT` bytes are read.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from ctxkernel.cli import Unusable
from ctxkernel.cli.output import paint, safe_line, show, show_json
from ctxkernel.core.text import clip
from ctxkernel.history.capabilities import capabilities_for
from ctxkernel.history.rules import RuleReport
from ctxkernel.history.rules import check as look

LIMIT = 64_000_000
"""The most bytes of a file: twice the API's limit for one request."""
SHOWN = 20
"""The most violations of a request in the text output."""


class _Checked(NamedTuple):
    line: int
    model: str
    known: bool
    report: RuleReport


def check(arguments: argparse.Namespace) -> int:
    """Carry out `ctxkernel check`; status 1 if a rule is broken."""
    betas = frozenset(part.strip() for beta in arguments.beta for part in beta.split(",") if part.strip())
    found = [_checked(line, body, arguments.model, betas) for line, body in _bodies(arguments.file)]
    ok = all(one.report.ok for one in found)
    if arguments.json:
        requests = [{"line": n, "model": name, "known": known, **told.to_json()} for n, name, known, told in found]
        show_json({"ok": ok, "requests": requests})
    else:
        show("\n".join(line for one in found for line in _as_text(one, several=len(found) > 1)))
    return 0 if ok else 1


def _checked(line: int, body: object, model: str | None, betas: frozenset[str]) -> _Checked:
    given: Any = body
    own = given.get("model") if isinstance(body, Mapping) else None
    name = model if model is not None else own if isinstance(own, str) else ""
    capabilities = capabilities_for(name, betas=betas)
    return _Checked(line, name, bool(capabilities.model), look(given, capabilities))


def _bodies(path: Path) -> list[tuple[int, object]]:
    """Return the JSON values of a file, each with its line: one, or one a line. Raises Unusable."""
    text = _read(path)
    try:
        body = _parse(text)
    except json.JSONDecodeError as whole:
        return _lines(path, text, whole)
    if isinstance(body, dict) and {"cells", "nbformat"} <= cast("dict[str, object]", body).keys():
        raise _not_a_body(path, "notebook")
    return [(1, body)]


def _lines(path: Path, text: str, whole: json.JSONDecodeError) -> list[tuple[int, object]]:
    """Return one value a line. Raises Unusable, with the place in `whole` if the text is one broken value."""
    # Not splitlines(), which splits at U+2028 in a JSON string.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    out: list[tuple[int, object]] = []
    for number, line in lines:
        try:
            out.append((number, _parse(line)))
        except json.JSONDecodeError as fault:
            if not out:  # the first line is no value, so the text is one broken value
                raise Unusable(
                    f"{path} is not JSON: {whole.msg} at line {whole.lineno}, column {whole.colno}."
                ) from None
            raise Unusable(
                f"{path} is not JSON Lines: {fault.msg} at line {number}, column {fault.colno}: one request a line."
            ) from None
    return out


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError) as fault:  # a number of 5,000 digits is a ValueError
        why = "it is nested too deeply" if isinstance(fault, RecursionError) else "a number in it is too long"
        raise Unusable(f"the JSON cannot be read: {why}.") from None


def _read(path: Path) -> str:
    if str(path) == "-":
        raw = sys.stdin.buffer.read(LIMIT + 1)
    elif path.suffix in (".ipynb", ".sqlite"):
        raise _not_a_body(path, "notebook" if path.suffix == ".ipynb" else "session")
    else:
        try:
            with path.open("rb") as file:
                raw = file.read(LIMIT + 1)
        except OSError as fault:
            raise Unusable(f"{path} cannot be read: {fault.strerror}; give the JSON body of a request.") from None
    if len(raw) > LIMIT:
        raise Unusable(f"{path} has more than {LIMIT // 1_000_000} MB, which no request may have; split it by lines.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise Unusable(f"{path} is not UTF-8 at byte {fault.start}; give the JSON body of a request.") from None
    if not text.strip():
        raise Unusable(f"{path} is empty; give the JSON body of a request.")
    return text


def _not_a_body(path: Path, kind: str) -> Unusable:
    where = "NOTEBOOK" if str(path) == "-" else shlex.quote(str(path))
    return Unusable(
        f"{path} is a {kind}, not the body of a request: `ctxkernel projection {where}` shows and checks one."
    )


def _as_text(one: _Checked, *, several: bool) -> list[str]:
    """Return a line for the request, and two for each violation."""
    model = clip(safe_line(one.model), 100) or "no model"
    name = model if one.known else f"{model} is unknown: checked as the strictest model"
    count = len(one.report.violations)
    told = paint("ok", "green") if one.report.ok else paint(f"{count} violation{'s' * (count > 1)}", "red")
    lines = [f"{f'line {one.line}: ' if several else ''}{told} · {name}"]
    for fault in one.report.violations[:SHOWN]:
        path = clip(safe_line(fault.path), 300) or "the body"
        lines.append(f"  {path} · {fault.rule}: {clip(safe_line(fault.message), 500)}")
        lines.append(f"    {paint('fix', 'dim')}: {safe_line(fault.fix)}")
    if count > SHOWN:
        lines.append(f"  and {count - SHOWN} more; --json has all")
    return lines
