"""The script dialect shows a view where it was made, as it is now (seed 002 §1.2).

The statement that made it shows the constructor of the present view, with the original as a comment; the text of the
view follows. In the dialect of tools a statement does not change, because of the prompt cache.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctxkernel.core.timeline_events import Json
from ctxkernel.core.turn_values import HandleState

_MAKERS = frozenset({"view"})
_POLICY = ("pos", "tokens", "lod", "mode", "freq")
_DEFAULTS: Mapping[str, Json] = {"pos": "0", "tokens": 2000, "lod": 0, "mode": "paused", "freq": "Sync"}


class Placed(NamedTuple):
    """A view that is shown where it was made."""

    name: str
    obj_id: str
    policy: tuple[tuple[str, Json], ...]
    text: str


def placed(handles: Sequence[HandleState]) -> dict[str, tuple[Placed, ...]]:
    """Return the views that have a name of their own, by the statement that made them."""
    found: dict[str, tuple[Placed, ...]] = {}
    taken: set[str] = set()
    for one in handles:
        if one.obj_type == "view" and one.name != one.obj_id and one.name.isidentifier() and one.name not in taken:
            taken.add(one.name)
            policy = tuple((key, one.digest[key]) for key in _POLICY if key in one.digest)
            text = one.text if one.picture is None else one.picture.told_instead(one.text)
            here = Placed(one.name, one.obj_id, policy, text)
            found[one.statement_id] = (*found.get(one.statement_id, ()), here)
    return found


def rewritten(source: str, views: Sequence[Placed], statement_id: str) -> str:
    """Return `source` with the present constructors of `views`, each original as a comment above it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # magics, or not Python: unchanged
        return source
    by_name = {one.name: one for one in views}
    lines = source.splitlines()
    for node in reversed(tree.body):
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        one, call = by_name.get(node.targets[0].id), _maker(node.value)
        target = ast.get_source_segment(source, call.args[0]) if call is not None and call.args else None
        if one is None or call is None or target is None or not _differs(one, call):
            continue
        policy = ", ".join(f"{key}={_written(key, value)}" for key, value in one.policy if value != _DEFAULTS.get(key))
        now = f"{one.name} = view({target}{', ' + policy if policy else ''})"
        first, end = node.lineno - 1, node.end_lineno or node.lineno
        old = [f"# {line}" for line in lines[first:end]]
        old[-1] += f"  # as it was in {statement_id}"
        lines[first:end] = [*old, now]
    return "\n".join(lines)


def _maker(value: ast.expr) -> ast.Call | None:
    """Return the call of `view` that an expression begins with: `view(x).SetLod(1)` is one."""
    while isinstance(value, ast.Call):
        if isinstance(value.func, ast.Name):
            return value if value.func.id in _MAKERS else None
        value = value.func.value if isinstance(value.func, ast.Attribute) else value.func
    return None


def _differs(one: Placed, call: ast.Call) -> bool:
    """Return whether the constructor would make another view than the present one."""
    given = dict(_DEFAULTS)
    for word in call.keywords:
        if word.arg is None or not isinstance(word.value, ast.Constant):
            return True
        given[word.arg] = str(word.value.value) if word.arg == "pos" else word.value.value  # type: ignore[assignment]
    return any(key in given and given[key] != value for key, value in one.policy)


def _written(key: str, value: Json) -> str:
    return str(value) if key == "tokens" and value == "All" else repr(value)
