"""Read a model's response: texts, thinking and calls, in either dialect, as events of the history.

Rule 1: the blocks of a response are passed on as received, key for key and in their order, so that they go back so. If
        one of them may not go back (a secret, a call whose input is no JSON), none of the response is passed on: it
        goes back by its texts and calls, without thinking.
Rule 2: a call that cannot be run (invalid JSON, no code, an unknown tool) is still recorded and answered: each call of
        a response gets a result, however the response ended.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from ctxkernel.agent.fences import split_fences
from ctxkernel.agent.scripts import split_scripts
from ctxkernel.core.dataclasses import dataclass, replace
from ctxkernel.core.timeline_events import Json
from ctxkernel.history.events import Action, AssistantMessage, Context, HistoryEvent, nth
from ctxkernel.history.responses import as_it_came
from ctxkernel.projection.dialect import RUN_CELL, DialectName
from ctxkernel.projection.toolset import CONDENSE, EXPAND
from ctxkernel.projection.value import Projection

REDACT = "redact"
TOOL_NAMES = (RUN_CELL, REDACT, EXPAND, CONDENSE)
_ARGUMENTS = {REDACT: ("event_id", "summary_text"), EXPAND: ("id",), CONDENSE: ("reason",)}
"""Tool → the names of its positional arguments in a script."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a response."""

    tool: str
    input: Mapping[str, Json]
    call_id: str
    text: str = ""
    """The text of its blocks."""
    blocks: tuple[Mapping[str, Json], ...] = ()
    """As in `Action`."""
    fault: str = ""
    """The reason why it cannot be run, for the model; empty if it can."""
    fenced: bool = False
    """Whether it was read from a fenced block of a response without script tags."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A response, read."""

    calls: tuple[Call, ...]
    text: str
    """Text of a response without calls."""
    blocks: tuple[Mapping[str, Json], ...] = ()
    """The blocks of a response without calls."""
    cut: bool = False
    """Whether its end is left out, because the model speaks there as if it were the kernel."""

    @property
    def prose(self) -> str:
        """All text of the response."""
        return _paragraphs(*(call.text for call in self.calls), self.text)


def read_reply(
    blocks: Sequence[Mapping[str, Any]],
    dialect: DialectName,
    *,
    unreadable: Mapping[str, str] = MappingProxyType({}),
    complete: bool = True,
    mask: Callable[[str], str] = str,
    is_text: Callable[[str], bool] = lambda code: False,
) -> ModelReply:
    """Return the calls and texts in the blocks of a response.

    `unreadable` are the inputs that are not JSON objects, by call; `complete` is false for a truncated response. `mask`
    hides secrets: a response with one is not sent back as it came. `is_text` returns whether the code of a fenced block
    stays in the text, instead of being a cell.
    """
    if dialect == "script":
        texts = [str(one.get("text", "")) for one in blocks if one.get("type") == "text"]
        return _read_scripts("\n\n".join(texts), complete, is_text)
    as_is = not unreadable and all(as_it_came(block, mask) for block in blocks)
    calls: list[Call] = []
    part: list[Mapping[str, Json]] = []
    for block in blocks:
        part.append(block)
        if block.get("type") == "tool_use":
            calls.append(_call(block, _text(part), tuple(part) if as_is else (), unreadable))
            part = []
    return _reply(calls, _text(part), tuple(part) if as_is else ())


def _text(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the blocks of text."""
    return _paragraphs(*[str(block.get("text", "")) for block in blocks if block.get("type") == "text"])


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part.strip())


def _reply(
    calls: Sequence[Call], rest: str, blocks: tuple[Mapping[str, Json], ...] = (), *, cut: bool = False
) -> ModelReply:
    """Return a reply; `rest` and `blocks`, what follows the last call, belong to that call."""
    if not calls:
        return ModelReply((), rest, blocks, cut)
    last = calls[-1]
    last = replace(last, text=_paragraphs(last.text, rest), blocks=(*last.blocks, *blocks))
    return ModelReply((*calls[:-1], last), "", cut=cut)


def _call(
    block: Mapping[str, Any], text: str, blocks: tuple[Mapping[str, Json], ...], unreadable: Mapping[str, str]
) -> Call:
    tool, given, call_id = str(block.get("name", "")), block.get("input"), str(block.get("id", ""))
    values: Mapping[str, Json] = cast("Mapping[str, Json]", given) if isinstance(given, Mapping) else {}
    broken = call_id in unreadable or not isinstance(given, Mapping)
    fault = "the input of the call is no JSON object (was it cut off?), so nothing was run" if broken else ""
    return Call(tool, values, call_id, text, blocks, fault or _fault(tool, values))


def _fault(tool: str, given: Mapping[str, Json]) -> str:
    if tool not in TOOL_NAMES:
        return f"there is no tool {tool[:64]!r}; there are {', '.join(TOOL_NAMES)}"
    if tool == RUN_CELL and not (isinstance(given.get("code"), str) and str(given["code"]).strip()):
        return "run_cell: give the cell's source as `code`, a text that is not blank"
    return ""


def _read_scripts(text: str, complete: bool, is_text: Callable[[str], bool]) -> ModelReply:
    calls: list[Call] = []
    prose, cut = "", False
    parts = split_scripts(text, complete=complete)
    fenced = not any(part.kind in ("script", "unfinished") for part in parts)
    for part in split_fences(text, complete=complete, is_text=is_text) if fenced else parts:
        if part.kind == "text":
            prose = _paragraphs(prose, part.text.strip())
            continue
        if part.kind == "cut":
            cut = True
            continue
        tool, given = as_tool(part.text)
        fault = "the answer was cut off within this cell, so it was not run" if part.kind == "unfinished" else ""
        fault = fault or _fault(tool, given)
        calls.append(Call(tool, given, "", prose, fault=fault, fenced=fenced))  # a script has no id
        prose = ""
    return _reply(calls, prose, cut=cut)


def as_tool(code: str) -> tuple[str, Mapping[str, Json]]:
    """Return the tool and input of a script: a call of `redact`, `expand` or `condense` with literals, else a cell."""
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


def reply_events(
    reply: ModelReply, request: Projection, execution_id: str, response_id: str, start: int
) -> Iterator[HistoryEvent]:
    """Yield the events of a response to `request`, as events of `execution_id` with numbers from `start`.

    The state as sent comes first, then the calls as one batch, or the answer.
    """
    if not reply.calls and not reply.text.strip():
        return
    users = [piece for piece in request.tail if piece.role == "user"]
    texts = tuple(piece.text for piece in users)
    pictures = tuple(at for at, piece in enumerate(users) if piece.raw)
    status = next((piece.text for piece in request.tail if piece.kind == "status"), "")
    number = start
    yield Context(nth(execution_id, number), texts, status, request.basis, pictures)
    number += 1
    batch = f"{response_id}~{execution_id}"
    for call in reply.calls:
        call_id = call.call_id or f"{execution_id}-{number}"
        yield Action(nth(execution_id, number), call_id, call.tool, call.input, batch, call.blocks, call.text)
        number += 1
    if not reply.calls:
        yield AssistantMessage(nth(execution_id, number), reply.text, batch, reply.blocks)
