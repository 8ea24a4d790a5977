"""What a response of a model says: texts, thinking and calls, in either dialect, as events of the history.

Rule 1: thinking is passed on as it was received, key for key; what follows the last call of a response is put before
        it, since a result stands right after its call.
Rule 2: a call that cannot be run (an input that is no JSON, no code, a tool that is not there) is a call all the same,
        and is answered: each call of a response has a result, whatever the response ended with.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from ctxkernel.agent.scripts import split
from ctxkernel.core.events import Json
from ctxkernel.history.events import Action, AssistantMessage, Context, HistoryEvent, nth
from ctxkernel.projection.dialect import RUN_CELL, DialectName
from ctxkernel.projection.toolset import CONDENSE, EXPAND
from ctxkernel.projection.value import Projection

REDACT = "redact"
TOOL_NAMES = (RUN_CELL, REDACT, EXPAND, CONDENSE)
_ARGUMENTS = {REDACT: ("event_id", "summary_text"), EXPAND: ("id",), CONDENSE: ("reason",)}
"""The names of what a script gives these by place."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a response."""

    tool: str
    input: Mapping[str, Json]
    call_id: str
    text: str = ""
    thinking: tuple[Mapping[str, Json], ...] = ()
    fault: str = ""
    """Why it cannot be run, as the model is told."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, read."""

    calls: tuple[Call, ...]
    text: str
    """What it says where it calls nothing."""
    thinking: tuple[Mapping[str, Json], ...] = ()
    cut: bool = False
    """Whether its end is left out, since it speaks there as if it were the kernel."""

    @property
    def said(self) -> str:
        """All of its prose."""
        return "\n\n".join(part for part in (*(call.text for call in self.calls), self.text) if part.strip())


def read(
    blocks: Sequence[Mapping[str, Any]],
    dialect: DialectName,
    *,
    unreadable: Mapping[str, str] = MappingProxyType({}),
    complete: bool = True,
) -> Reply:
    """Return what the blocks of a response say.

    `unreadable` are the inputs that are no JSON objects, by call; `complete` is false where it was cut
    before its end.
    """
    if dialect == "script":
        whole = "\n\n".join(str(one.get("text", "")) for one in blocks if one.get("type") == "text")
        return _read_scripts(whole, complete=complete)
    calls: list[Call] = []
    text: list[str] = []
    thinking: list[Mapping[str, Json]] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            text.append(str(block.get("text", "")))
        elif kind in ("thinking", "redacted_thinking"):
            thinking.append(block)
        elif kind == "tool_use":
            said = "\n\n".join(part for part in text if part.strip())
            calls.append(_call(block, said, tuple(thinking), unreadable))
            text, thinking = [], []
    rest = "\n\n".join(part for part in text if part.strip())
    if not calls:
        return Reply((), rest, tuple(thinking))
    if rest:
        last = calls[-1]
        calls[-1] = Call(
            last.tool, last.input, last.call_id, "\n\n".join(filter(None, (last.text, rest))), last.thinking, last.fault
        )
    return Reply(tuple(calls), "")


def _call(
    block: Mapping[str, Any], text: str, thinking: tuple[Mapping[str, Json], ...], unreadable: Mapping[str, str]
) -> Call:
    tool, given, call_id = str(block.get("name", "")), block.get("input"), str(block.get("id", ""))
    values: Mapping[str, Json] = cast("Mapping[str, Json]", given) if isinstance(given, Mapping) else {}
    broken = call_id in unreadable or not isinstance(given, Mapping)
    fault = "the input of the call is no JSON object (was it cut off?), so nothing was run" if broken else ""
    return Call(tool, values, call_id, text, thinking, fault or _fault(tool, values))


def _fault(tool: str, given: Mapping[str, Json]) -> str:
    if tool not in TOOL_NAMES:
        return f"there is no tool {tool[:64]!r}; there are {', '.join(TOOL_NAMES)}"
    if tool == RUN_CELL and not (isinstance(given.get("code"), str) and str(given["code"]).strip()):
        return "run_cell: give the cell's source as `code`, a text that is not blank"
    return ""


def _read_scripts(text: str, *, complete: bool) -> Reply:
    calls: list[Call] = []
    said, cut = "", False
    for part in split(text, complete=complete):
        if part.kind == "text":
            said = "\n\n".join(filter(None, (said, part.text.strip())))
            continue
        if part.kind == "cut":  # what it made up in our name
            cut = True
            continue
        tool, given = as_tool(part.text)
        fault = "the answer was cut off within this script, so it was not run" if part.kind == "unfinished" else ""
        calls.append(Call(tool, given, "", said, fault=fault or _fault(tool, given)))  # it has no id of its own
        said = ""
    if not calls or not said:
        return Reply(tuple(calls), said, cut=cut)
    last = calls[-1]
    joined = "\n\n".join(filter(None, (last.text, said)))
    calls[-1] = Call(last.tool, last.input, last.call_id, joined, fault=last.fault)
    return Reply(tuple(calls), "", cut=cut)


def as_tool(code: str) -> tuple[str, Mapping[str, Json]]:
    """Return the tool that a script means: one call of `redact`, `expand` or `condense` with literals, else a cell."""
    try:
        body = ast.parse(code.strip(), mode="eval").body
        if isinstance(body, ast.Call) and isinstance(body.func, ast.Name) and body.func.id in _ARGUMENTS:
            names = _ARGUMENTS[body.func.id]
            given = {name: ast.literal_eval(value) for name, value in zip(names, body.args, strict=False)}
            given |= {one.arg: ast.literal_eval(one.value) for one in body.keywords if one.arg}
            if len(body.args) <= len(names):
                return body.func.id, given
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return RUN_CELL, {"code": code}


def events(
    reply: Reply, request: Projection, execution_id: str, response_id: str, start: int
) -> Iterator[HistoryEvent]:
    """Yield the events of a response that `request` led to, as those of `execution_id` from the number `start` on.

    First the state as it was sent, then the calls as one batch, or the answer.
    """
    if not reply.calls and not reply.text.strip():
        return
    users = [piece for piece in request.tail if piece.role == "user"]
    texts = tuple(piece.text for piece in users)
    pictures = tuple(at for at, piece in enumerate(users) if piece.raw)
    status = next((piece.text for piece in request.tail if piece.kind == "status"), "")
    number = start
    if texts or status:
        yield Context(nth(execution_id, number), texts, status, request.basis, pictures)
        number += 1
    batch = f"{response_id}~{execution_id}"
    for call in reply.calls:
        call_id = call.call_id or f"{execution_id}-{number}"
        yield Action(nth(execution_id, number), call_id, call.tool, call.input, batch, call.thinking, call.text)
        number += 1
    if not reply.calls:
        yield AssistantMessage(nth(execution_id, number), reply.text, batch, reply.thinking)
