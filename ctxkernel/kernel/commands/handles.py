"""Commands that set or refresh handles: the controls of a widget run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ctxkernel.core.errors import BadCommand, CtxError
from ctxkernel.core.ports import All
from ctxkernel.kernel.commands.context import CommandContext

SETTABLE = ("lod", "tokens", "mode", "freq", "pos")
_USAGE = "%ctx set HANDLE.lod=1 HANDLE.tokens=300|All HANDLE.mode=running|paused HANDLE.freq=Sync HANDLE.pos=120"


def set_policy(ctx: CommandContext, args: Sequence[str]) -> None:
    """`%ctx set HANDLE.lod=1 …`: set the policies of handles. Raises BadCommand."""
    policies: dict[str, dict[str, Any]] = {}
    for word in args:
        key, sign, value = word.partition("=")
        name, dot, attribute = key.rpartition(".")
        if not (sign and dot and name and value):
            raise BadCommand(f"%ctx set {word}: write HANDLE.NAME=VALUE; {_USAGE}")
        number = attribute in ("lod", "tokens", "min_turn_interval") and value.isdecimal()
        policies.setdefault(name, {})[attribute] = All if value == str(All) else int(value) if number else value
    if not policies:
        raise BadCommand(f"%ctx set: give at least one value; {_USAGE}")
    nodes = {name: ctx.required_handle(name, f"%ctx set {name}") for name in policies}
    for name, policy in policies.items():
        try:
            nodes[name].set(**policy)
        except CtxError as refusal:
            raise BadCommand(f"%ctx set: {refusal}") from None


def refresh(ctx: CommandContext, args: Sequence[str]) -> None:
    """`%ctx refresh HANDLE …`: render handles again. Raises BadCommand."""
    if not args:
        raise BadCommand("%ctx refresh HANDLE: which handle? ls() lists them")
    for node in [ctx.required_handle(name, f"%ctx refresh {name}") for name in args]:
        node.refresh()


def policy_words(ctx: CommandContext, attributes: Sequence[str]) -> list[str]:
    """Return `HANDLE.attribute=` for every handle that has the attribute."""
    return [
        f"{state.name}.{attribute}="
        for state in ctx.loop.ls()
        for attribute in attributes
        if attribute != "pos" or state.obj_type == "view"
    ]
