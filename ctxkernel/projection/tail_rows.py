"""The lines of the tables in the tail: handles, variables, and what changed.

Rule: a line shows a fact only if nothing else in the request does: the type of a variable where its value does not show
it, a policy that is not the usual one, a change that neither the history nor a table has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

from ctxkernel.core.names import is_imported
from ctxkernel.core.ports import VariableLine
from ctxkernel.core.text import format_size, join_names, truncate
from ctxkernel.core.timeline_events import Json
from ctxkernel.core.turn_values import DeltaItem, HandleState, Turn

_POLICY: Mapping[str, Sequence[Json]] = {"lod": (), "tokens": (2000, 500), "pos": ("0", "0:0")}
"""The policy of a handle in the table, each with the values that are not shown."""
_VALUE = 80
"""Most characters of one value in the handle table."""
_NUMBERS = 24
"""Most characters of an array or series in the variable table."""
_ARRAYS = frozenset({"numpy.ndarray", "pandas.Series", "pandas.Index", "torch.Tensor"})
_TELLING = frozenset(
    {*_ARRAYS, "int", "float", "complex", "bool", "str", "bytes", "list", "tuple", "dict", "set", "frozenset"}
    | {"NoneType", "function", "type", "module"}
)
"""Types whose values show what they are."""
_IMPORTED = re.compile(r"<(?:module|class|function|built-in function) ([\w.]+)")
_FRAME = re.compile(r"DataFrame \d+×\d+: ")
_LIBRARY_OBJECT = re.compile(r"<(\w+)\.(?:\w+\.)*(\w+) object>")
Stands = Callable[[str], str]
"""Returns how the history shows a statement: `whole`, `short`, or empty where it does not."""


def handle_row(handle: HandleState, names: Mapping[str, str]) -> str:
    """Return the line of a handle: name, id, type, target, policy and marks; `names` by obj_id."""
    digest = handle.digest
    parts = [handle.name, *([handle.obj_id] if handle.obj_id != handle.name else []), handle.obj_type]
    target = digest.get("target")
    if target not in (None, "") and not handle.members:  # the members are the target of a group
        parts.append(_short(target))
    if digest.get("mode") == "running":
        parts.append(f"running={_short(digest.get('freq', ''))}")
    usual = _POLICY.items()
    parts += [f"{key}={_short(digest[key])}" for key, same in usual if digest.get(key) not in (None, "", *same)]
    if handle.members:
        members = join_names([names.get(member, member) for member in handle.members], 12)
        parts.append(f"members={members.replace(', ', ',')}")
    parts.append(f"{handle.statement_id} ~{handle.rendered_tokens} tokens")
    if handle.changed:
        parts.append("changed")
    if handle.pinned:
        parts.append(f"pinned ({_short(handle.pin_reason)})" if handle.pin_reason else "pinned")
    return " ".join(parts)


class VariableFacts(NamedTuple):
    """A variable, its line, and the key of the line that it shares: the columns of a frame, or empty if imported."""

    variable: VariableLine
    key: str
    row: str

    @classmethod
    def of(cls, one: VariableLine) -> VariableFacts:
        """Return the facts of a variable."""
        if is_imported(one.type, one.repr):
            return cls(one, "", "")
        key = one.repr.partition(": ")[2] if _FRAME.match(one.repr) else f"\0{one.name}"
        return cls(one, key, variable_row(one))


def variable_rows(facts: Sequence[VariableFacts]) -> list[str]:
    """Return the lines of variables in order; frames with the same columns share one, and imports have the last one."""
    shared: dict[str, list[VariableFacts]] = {}
    for one in facts:
        shared.setdefault(one.key, []).append(one)
    imported = shared.pop("", [])
    rows = [same[0].row if len(same) == 1 else _frames_row(key, same) for key, same in shared.items()]
    return [*rows, *([imported_row([one.variable for one in imported])] if imported else [])]


def _frames_row(columns: str, frames: Sequence[VariableFacts]) -> str:
    """Return the line of frames with the same columns: `a 3×2 s4, b 5×2 s7 = DataFrame: x, y float64`."""
    told = [f"{one.name} {one.repr[10:].partition(':')[0]} {one.statement_id}".rstrip() for one, _, _ in frames]
    return f"{', '.join(told)} = DataFrame: {columns}"


def variable_row(variable: VariableLine) -> str:
    """Return the line of a variable, as an assignment, so that `mask` recognises credentials.

    Type and size follow only where the value does not show them.
    """
    shown, kind = variable.repr, variable.type
    if kind in _ARRAYS and len(shown) > _NUMBERS:
        shape, values, _ = shown.partition("] ")
        # The first numbers of a table or an image tell nothing.
        end = shown.rfind(", ", len(shape), _NUMBERS) if "," not in shape else -1
        shown = shown[: end + 2] + "…" if end > 0 else f"{shape}]" if values else shown[:_NUMBERS] + "…"
    elif found := _LIBRARY_OBJECT.match(shown):
        shown = f"<{found[1]}.{found[2]} object>"
    told = [] if kind in _TELLING or kind.rpartition(".")[2] in shown[:_VALUE] else [kind]
    told += [size] if variable.size and (size := _size(variable.size, shown)) else []
    told += [variable.statement_id] if variable.statement_id else []
    return f"{variable.name} = {shown}{' # ' + ' '.join(told) if told else ''}"


def imported_row(variables: Sequence[VariableLine]) -> str:
    """Return the line of all imported names: `imported: numpy as np, scipy.stats`."""
    parts: list[str] = []
    for one in variables:
        found = _IMPORTED.match(one.repr)
        path = found[1] if found else one.name
        parts.append(path if path.rpartition(".")[2] == one.name else f"{path} as {one.name}")
    return f"imported: {', '.join(parts)}"


def untold(turn: Turn, stands: Stands) -> list[DeltaItem]:
    """Return the changes that neither the tables of this request nor its history show."""
    rows = {one.name for one in turn.variables}
    handles = {one.name for one in turn.handles}
    kept: list[DeltaItem] = []
    for item in turn.deltas:
        match item.kind:
            case "variable":
                told = item.subject in rows or stands(item.statement_id) == "whole"
            case "error":
                told = bool(stands(item.statement_id))
            case "file":
                told = stands(item.statement_id) == "whole"
            case "node":
                told = item.subject in handles and bool(stands(item.statement_id))
            case _:
                told = item.subject == "feed" and not any(one.kind == "variable" for one in kept)
        if not told:
            kept.append(item)
    return kept


def delta_row(item: DeltaItem) -> str:
    """Return the line of a change."""
    return f"{item.statement_id} {item.kind} {item.subject}: {item.summary}"


def _size(size: Mapping[str, Json], shown: str) -> str:
    """Return the size of a variable as far as its value does not show it."""
    shape, length, total = size.get("shape"), size.get("len"), size.get("bytes")
    parts: list[str] = []
    if isinstance(shape, list | tuple):
        axes = list(map(str, cast("Sequence[Json]", shape)))
        if not all(axis in shown for axis in axes):
            parts.append("shape=" + "×".join(axes) if axes else "scalar")
    elif isinstance(length, int) and "…" in shown:
        parts.append(f"len={length}")
    # Small sizes are not interesting.
    if isinstance(total, int) and total >= 1_000_000:
        parts.append(format_size(total))
    return " ".join(parts)


def _short(value: Json) -> str:
    return truncate(value if isinstance(value, str) else str(value), _VALUE)
