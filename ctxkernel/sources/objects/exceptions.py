"""An exception as a source: 0 its traceback, 1 type, message and the innermost frame of the user's code, 2 in short.

Rule: no code of the exception's class runs: the message is what it was made with, unless the text is Python's own.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import TracebackType
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import (
    SHORT,
    attributes,
    class_dict,
    class_module,
    class_mro,
    class_of,
    is_a,
    is_of_library,
    type_name,
)
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.amounts import Line, more_lines
from ctxkernel.sources.objects.adapters import AdaptedSource, Adapter, Fact

_FRAMES = 20_000
_SHOWN_FRAMES = 100
"""So many frames at either end of a traceback are shown."""
_CHAIN = 8
_MESSAGE = 2_000


def _own_slot(name: str, base: type = BaseException) -> Callable[[BaseException], Any]:
    """Return a function that reads an attribute as Python keeps it, whatever the class makes of its name."""
    return class_dict(base)[name].__get__


args_of, _trace_of = _own_slot("args"), _own_slot("__traceback__")
_cause_of, _context_of, _is_suppressed = map(_own_slot, ("__cause__", "__context__", "__suppress_context__"))
_exceptions_of = _own_slot("exceptions", BaseExceptionGroup)


def message_of(error: BaseException) -> str:
    """Return the message of an exception. Runs none of the user's code."""
    own = next((base for base in class_mro(class_of(error)) if "__str__" in class_dict(base)), None)
    args = args_of(error)
    plain = SHORT.hold(map(class_of, args))
    if plain and own is not None and own.__module__ == "builtins":
        return str(class_dict(own)["__str__"](error))[:_MESSAGE]
    if args and class_of(args[0]) is str:
        return args[0][:_MESSAGE]
    return ", ".join(map(brief, args))


def _frames(error: BaseException) -> list[TracebackType]:
    found: list[TracebackType] = []
    trace = _trace_of(error)
    while trace is not None and len(found) < _FRAMES:
        found.append(trace)
        trace = trace.tb_next
    return found


def _head(error: BaseException) -> str:
    frames = _frames(error)
    if len(frames) == _FRAMES:
        return f"{_FRAMES:,}+ frames"
    return plural(len(frames), "frames") if frames else "not raised"


def _place(trace: TracebackType) -> str:
    code = trace.tb_frame.f_code
    name = code.co_filename
    where = "a cell" if "ipykernel" in name or name.startswith("<") else PurePath(name).name
    return f"{where}, line {trace.tb_lineno}, in {code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}"


def _source(trace: TracebackType) -> str:
    line = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_frame.f_globals)
    return one_line(line.strip(), 200)


def _is_own(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return not is_of_library(file) and not file.startswith("<frozen")


def _innermost(error: BaseException) -> list[str] | None:
    """Return the last frame that is no library's, with its line."""
    trace = next((one for one in reversed(_frames(error)) if _is_own(one)), None)
    return None if trace is None else [_place(trace), *([_source(trace)] if _source(trace) else [])]


def _raised(error: BaseException) -> list[str] | None:
    frames = _frames(error)
    if not frames or _is_own(frames[-1]):
        return None
    return [_place(frames[-1]), *([_source(frames[-1])] if _source(frames[-1]) else [])]


def _chain(error: BaseException) -> Iterator[str]:
    """Yield what it came from, the nearest first."""
    seen = {id(error)}
    one = error
    for _ in range(_CHAIN):
        cause = _cause_of(one) or (None if _is_suppressed(one) else _context_of(one))
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        how = "caused by" if _cause_of(one) is not None else "raised while handling"
        yield f"{how} {type_name(class_of(cause))}: {one_line(message_of(cause), 200)}"
        one = cause


def _traceback(error: BaseException) -> Iterator[str]:
    frames = _frames(error)
    for at, trace in enumerate(frames):
        if _SHOWN_FRAMES <= at < len(frames) - _SHOWN_FRAMES:
            if at == _SHOWN_FRAMES:
                yield from more_lines(len(frames) - 2 * _SHOWN_FRAMES, "frames", exact=len(frames) < _FRAMES)
            continue
        yield f"{_place(trace)}{'' if _is_own(trace) else ' (library)'}"
        if line := _source(trace):
            yield f"    {line}"
    yield f"{type_name(class_of(error))}: {message_of(error)}"
    yield from _chain(error)


def _inner(error: BaseException) -> list[str] | None:
    """Return the exceptions of a group."""
    if not is_a(error, BaseExceptionGroup):
        return None
    inner = _exceptions_of(error)
    texts = [f"{type_name(class_of(one))}: {one_line(message_of(one), 200)}" for one in inner[:20]]
    shown = [Line(text, 1, "exceptions") for text in texts]
    return [*shown, *more_lines(len(inner) - 20, "exceptions")]


def _own(error: BaseException) -> list[str] | None:
    if class_module(class_of(error)) == "builtins":  # its message has them
        return None
    found = {name: value for name, value in attributes(error).items() if name != "__notes__" and value is not None}
    return [f"{name} = {brief(value)}" for name, value in list(found.items())[:20]] or None


def _notes(error: BaseException) -> list[str]:
    found: Any = attributes(error).get("__notes__")
    return [one_line(one) for one in found[:20] if class_of(one) is str] if class_of(found) is list else []


class ErrorSource(AdaptedSource):
    """A view of an exception."""

    kind = "exception"
    adapter = Adapter(
        head=_head,
        facts=(
            Fact("message", lambda error: one_line(message_of(error), _MESSAGE), brief=True),
            Fact("in your code", _innermost, brief=True),
            Fact("raised in", _raised),
            Fact("from", _chain, brief=True),
            Fact("exceptions", _inner, brief=True),
            Fact("notes", _notes),
            Fact("attributes", _own),
        ),
        value=_traceback,
    )
