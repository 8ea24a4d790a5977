"""Changes of handles that code asks for between two cells: callbacks of widgets, tasks of asyncio.

Rule 1: a statement makes the changes (law 1). Until then a handle reads as if they were made, and no turn sees that:
        the graph puts the handles back when it opens.
Rule 2: of everything that was asked, one statement remains: of a policy the last value, if it is another one.
Rule 3: a paused group shows its members as they were at its last call: what was asked of a member before and after that
        call stays apart.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.errors import BadTarget
from ctxkernel.core.nodes.graph_base import GraphBase
from ctxkernel.core.nodes.group import GroupHandle
from ctxkernel.core.nodes.node_base import NodeBase
from ctxkernel.core.nodes.policy import Identified, show_value

R = TypeVar("R")
POLICIES = ("lod", "tokens", "pos", "freq", "mode", "min_turn_interval")
"""The settings of `%ctx set`, in the order in which they stand in a statement."""
_POLICY_METHODS = ("set", "run", "pause", "scroll", "next_match")
"""Methods that change nothing but policies."""
_PINS = ("pin", "unpin")
_PLAIN = re.compile(r"[\w.:@+\-()]+")
"""A value that no shell, and no magic of IPython, reads as anything else."""


@dataclass(eq=False)
class Asked:
    """The requests to one handle."""

    node: NodeBase
    before: dict[str, Any] = field(default_factory=dict[str, Any])
    """The attributes of the node without the changes; empty while it reads as it is."""
    unchanged: dict[str, Any] = field(default_factory=dict[str, Any])
    """Its policies without the changes."""
    policy: dict[str, Any] = field(default_factory=dict[str, Any])
    """The policies that differ."""
    refreshed: bool = False
    calls: dict[str, tuple[str, tuple[object, ...], Mapping[str, object]]] = field(default_factory=dict[str, Any])
    """Other calls: method, arguments and keywords; of those under one key the last."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is to be changed."""
        return not (self.policy or self.refreshed or self.calls)

    def note(self, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], policy: Mapping[str, Any]) -> None:
        """Add a call that was made; `policy` is that of the node now. Raises BadPolicy."""
        self.policy = {key: value for key, value in policy.items() if value != self.unchanged[key]}
        if "freq" in self.policy:  # a frequency alone would set it running
            self.policy["mode"] = policy["mode"]
        rest = {key: value for key, value in kwargs.items() if key not in POLICIES}
        if method == "refresh":
            self.refreshed = True
        elif method == "set" and rest:
            self._call(f"set {', '.join(sorted(rest))}", method, (), rest)
        elif method in _PINS:
            self._call(_PINS[0], method, args, kwargs)
        elif method not in _POLICY_METHODS:
            self._call(f"{len(self.calls)}", method, args, kwargs)

    def absorb(self, later: Asked) -> None:
        """Add what was asked of the same handle later."""
        final = {**self.unchanged, **self.policy, **later.policy}
        self.policy = {key: value for key, value in final.items() if value != self.unchanged[key]}
        if "freq" in self.policy:
            self.policy["mode"] = final["mode"]
        self.refreshed = self.refreshed or later.refreshed
        for key, (method, args, kwargs) in later.calls.items():
            self._call(f"{len(self.calls)}" if key.isdecimal() else key, method, args, kwargs)

    def _call(self, key: str, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.calls.pop(key, None)
        self.calls[key] = method, args, kwargs

    def lines(self, names: Mapping[str, str]) -> list[str]:
        """Return the lines of the statement; `names` maps the ids of handles to variables. Raises BadTarget."""
        own = self.node.obj_id
        name = names.get(own, own)
        shown = {key: str(show_value(self.policy[key])) for key in POLICIES if key in self.policy}
        plain = {key: text for key, text in shown.items() if _PLAIN.fullmatch(text)}
        lines = ["%ctx set " + " ".join(f"{name}.{key}={text}" for key, text in plain.items())] if plain else []
        for key, text in shown.items():
            if key not in plain:
                lines.append(f"{name}.set({key}={text!r})" if own in names else _quoted_set(f"{name}.{key}={text}"))
        lines += [f"%ctx refresh {name}"] if self.refreshed else []
        for method, args, kwargs in self.calls.values():
            words = [_spelled(one, names) for one in args]
            words += [f"{key}={_spelled(one, names)}" for key, one in kwargs.items()]
            lines.append(f"{_variable(own, names)}.{method}({', '.join(words)})")
        return lines

    def make(self) -> None:
        """Make the changes, in an open statement."""
        if self.policy:
            self.node.set(**self.policy)
        if self.refreshed:
            self.node.refresh()
        for method, args, kwargs in self.calls.values():
            getattr(self.node, method)(*args, **kwargs)


def _quoted_set(assignment: str) -> str:
    """Return `%ctx set` with a value in which IPython expands nothing."""
    escaped = assignment.replace("{", "{{").replace("}", "}}").replace("$", "$$")
    return f"%ctx set {shlex.quote(escaped)}"


def _variable(obj_id: str, names: Mapping[str, str]) -> str:
    if obj_id not in names:
        raise BadTarget(f"no variable holds {obj_id}; give it a name, so that the timeline can name it")
    return names[obj_id]


def _spelled(value: object, names: Mapping[str, str]) -> str:
    return _variable(value.obj_id, names) if isinstance(value, Identified) else repr(show_value(value))


class AskedChanges:
    """The changes that were asked since the last statement that made such changes."""

    def __init__(self, graph: GraphBase, soon: Callable[[], None], *, busy: Callable[[], bool]) -> None:
        self._graph = graph
        self._soon = soon
        """Has the changes made soon."""
        self._busy = busy
        """Returns whether a cell is under way: then a handle does not read as if the changes were made."""
        self._asked: list[Asked] = []

    def __bool__(self) -> bool:
        return bool(self._asked)

    def ask(self, node: NodeBase, method: Callable[..., R], args: Any, kwargs: Any) -> R:
        """Run `method` of `node`, and have a statement make what it changed. Raises what it raises, and BadTarget."""
        if self._graph.node(node.obj_id) is not node:
            raise BadTarget(f"{node.obj_id} ({node.target}) is not on this branch; use it in a cell to have it here")
        was, policy = vars(node).copy(), _policy(node)
        try:
            result = method(node, *args, **kwargs)
        except BaseException:
            _set_back(node, was)
            raise
        one = self._entry(node, vars(node)["_rendered"] is not was["_rendered"])
        if not one.before:
            one.before, one.unchanged = was, policy
        one.note(method.__name__, args, kwargs, _policy(node))
        if self._busy():
            self.put_back()
        elif one.is_empty:  # all is as it was
            self._asked.remove(one)
            _set_back(node, one.before)
        else:
            self._soon()
        return result

    def _entry(self, node: NodeBase, rendered: bool) -> Asked:
        """Return the entry that a call of a handle is added to; `rendered` says that the call rendered it.

        What a group was asked stands after what its members were asked before its last rendering.
        """
        one = next((one for one in reversed(self._asked) if one.node is node), None)
        if one is None or (not self._busy() and _is_shown(node, self._asked[self._asked.index(one) + 1 :])):
            one = Asked(node)
            self._asked.append(one)
        elif rendered:
            self._asked.remove(one)
            self._asked = [*_merged(self._asked), one]
        return one

    def put_back(self) -> None:
        """Let the handles read as they are; what was asked stays asked."""
        for one in reversed(self._asked):
            if one.before:
                _set_back(one.node, one.before)
                one.before = {}

    def take(self) -> list[Asked]:
        """Return what was asked, and forget it; the handles read as they are."""
        self.put_back()
        taken, self._asked = _merged(self._asked, at_last=True), []
        return taken


def _is_shown(node: NodeBase, later: list[Asked], running: Collection[str] = ()) -> bool:
    """Return whether one of some entries is of a group with this handle in it, other than the `running` ones."""
    groups = [one.node for one in later if isinstance(one.node, GroupHandle) and one.node.obj_id not in running]
    return any(node in group.nested() for group in groups)


def _merged(entries: list[Asked], *, at_last: bool = False) -> list[Asked]:
    """Return one entry for two of a handle between which no group stands that shows it.

    At last, a group that runs then is none: the tick makes its summary anew.
    """
    modes = {one.node.obj_id: one.node.mode for one in entries}
    modes |= {one.node.obj_id: one.policy["mode"] for one in entries if "mode" in one.policy}
    running = [obj_id for obj_id, mode in modes.items() if mode == "running"] if at_last else []
    merged: list[Asked] = []
    for one in entries:
        at = next((at for at in range(len(merged) - 1, -1, -1) if merged[at].node is one.node), None)
        if at is None or _is_shown(one.node, merged[at + 1 :], running):
            merged.append(one)
        else:
            merged.append(merged.pop(at))
            merged[-1].absorb(one)
    return [one for one in merged if not one.is_empty]


def _policy(node: NodeBase) -> dict[str, Any]:
    return {key: getattr(node, key) for key in POLICIES if key in node.settable()}


def _set_back(node: NodeBase, attributes: Mapping[str, Any]) -> None:
    vars(node).update(attributes)
    for name in vars(node).keys() - attributes.keys():
        object.__delattr__(node, name)
