"""TypeScript declarations of the messages in `ctxkernel/kernel/messages`, and of outputs. As a script, it writes them.

The front end's scripts refer to them in JSDoc: `@import {Row} from '../messages.js'`.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, Union, get_args, get_origin

from ctxkernel.kernel.messages import cells, page_requests, plan_messages, projection, sweeps, timeline_messages, wire
from ctxkernel.sweeps import shown_table

TARGET = Path(__file__).resolve().parents[2] / "ctxkernel/lab/messages.d.ts"
HEADER = """\
/**
 * The messages between the kernel and the front end.
 *
 * Generated from ctxkernel/kernel/messages by tests/frontend/message_types.py: do not edit.
 */
"""
MODULES = (timeline_messages, cells, projection, plan_messages, shown_table, sweeps, page_requests, wire)
PLAIN: Mapping[Any, str] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Any: "any",
}


def declarations() -> str:
    """Return the text of the declaration file."""
    own = {
        name: value
        for module in MODULES
        for name, value in vars(module).items()
        if (typing.is_typeddict(value) and value.__module__ == module.__name__) or isinstance(value, types.UnionType)
    }
    return "\n".join([HEADER, *(_declared(name, value) for name, value in own.items())])


def _declared(name: str, value: Any) -> str:
    if not typing.is_typeddict(value):
        return f"export type {name} = {_type(value)};\n"
    fields = typing.get_type_hints(value, include_extras=True)
    lines = [_field(value, field, hint) for field, hint in fields.items()]
    return "\n".join([f"/** {inspect.cleandoc(value.__doc__)} */", f"export interface {name} {{", *lines, "}\n"])


def _field(owner: Any, name: str, hint: Any) -> str:
    optional = get_origin(hint) is NotRequired
    inner = get_args(hint)[0] if optional else hint
    return f"  {name}{'?' if optional or not owner.__total__ else ''}: {_type(inner)};"


def _type(hint: Any) -> str:
    """Return the TypeScript type of a hint. Raises TypeError for a hint that no message may have."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in PLAIN:
        return PLAIN[hint]
    if typing.is_typeddict(hint):
        return hint.__name__
    if origin is Literal:
        return " | ".join(f"'{value}'" for value in args)
    if origin in (Union, types.UnionType):
        return " | ".join(_type(one) for one in args)
    if origin is Sequence:
        inner = _type(args[0])
        return f"readonly ({inner})[]" if " " in inner else f"readonly {inner}[]"
    if origin is Mapping:
        return f"Readonly<Record<{_type(args[0])}, {_type(args[1])}>>"
    raise TypeError(
        f"no message may have a field of type {hint!r}: expected JSON values, Sequence, Mapping or a TypedDict"
    )


if __name__ == "__main__":
    TARGET.write_text(declarations(), encoding="utf-8")
