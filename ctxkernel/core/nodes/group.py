"""A group: one summary over its members, made anew when a member changed (seed 002 §5.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from ctxkernel.core.errors import BadTarget, CyclicGroup
from ctxkernel.core.events import Delta, Json
from ctxkernel.core.nodes.base import Graph, NodeBase, TickResult, digest_hash, parse_lod, parse_tokens, recorded
from ctxkernel.core.ports import AllTokens, Budget, Rendered


def check_member(member: object) -> NodeBase:
    """Return `member` if it is a handle. Raises BadTarget."""
    if isinstance(member, NodeBase):
        return member
    raise BadTarget(f"a group takes handles, and {type(member).__name__} is none; wrap it first: group(view(…), …)")


class GroupHandle(NodeBase):
    """A summary over one or more members. See `group`."""

    obj_type = "group"

    def __init__(
        self,
        graph: Graph,
        members: Sequence[object],
        *,
        tokens: object = None,
        lod: object = 2,
        mode: object = None,
        freq: object = None,
    ) -> None:
        if not members:
            raise BadTarget("a group needs at least one member: group(view(…), …)")
        budget = graph.settings.group_tokens if tokens is None else tokens
        # A group follows its members from the start (seed 002 §1.3); pause() holds it still.
        super().__init__(graph, tokens=budget, lod=2 if lod is None else lod, mode=mode or "running", freq=freq)
        self._members: list[NodeBase] = list(dict.fromkeys(map(check_member, members)))
        self._since = ("", "")
        """A line that its summary begins with, and the statement in whose turn it was told first."""
        graph.adopt(self)
        self._update()

    @classmethod
    def blank(cls, graph: Graph, obj_id: str) -> Self:
        """Return a group without members, for a memento to fill."""
        node = super().blank(graph, obj_id)
        node._members, node._since = [], ("", "")
        return node

    def _state(self) -> dict[str, Json]:
        return {**super()._state(), "members": [one.obj_id for one in self._members], "since": list(self._since)}

    def take(self, memento: Mapping[str, Json]) -> None:
        """Become what `memento` says. For `Graph.restore` only."""
        found = [self.graph.node(obj_id) for obj_id in memento["members"]]
        line, statement_id = memento["since"]
        super().take(memento)
        self._members = [member for member in found if member is not None]
        self._since = line, statement_id

    def since(self, line: str) -> None:
        """Begin its summary with `line` from the next tick on, until it is made anew in a later turn."""
        self.graph.check_open(self.obj_id, "since")
        self._since = line, ""
        self.dirty = True

    @property
    def target(self) -> str:
        """What it shows, in one line."""
        return ", ".join(member.obj_id for member in self._members)

    @property
    def members(self) -> tuple[NodeBase, ...]:
        """The members, in their order."""
        return tuple(self._members)

    def digest(self) -> dict[str, Json]:
        """Return a small JSON digest of identity, state and policy."""
        return {**super().digest(), "kind": "group", "members": [member.obj_id for member in self._members]}

    @recorded
    def add(self, *members: NodeBase) -> Self:
        """Take more members in. Raises CyclicGroup and BadTarget; chains."""
        for member in map(check_member, members):
            if member is self or (isinstance(member, GroupHandle) and self in member.nested()):
                raise CyclicGroup(f"{member.obj_id} contains {self.obj_id}, so it cannot become its member")
        self._replace(list(dict.fromkeys([*self._members, *members])))
        return self

    @recorded
    def remove(self, *members: NodeBase) -> Self:
        """Leave members out. Raises BadTarget for one that is not in, and for the last one; chains."""
        for member in members:
            if member not in self._members:
                raise BadTarget(f"{check_member(member).obj_id} is not in {self.obj_id}, which has {self.target}")
        if len(set(members)) == len(self._members):
            raise BadTarget(f"{self.obj_id} would be empty; delete it instead: del …")
        self._replace([member for member in self._members if member not in members])
        return self

    def _replace(self, members: list[NodeBase]) -> None:
        before, self._members = self._members, members
        try:
            self._update()
        except BaseException:  # a source that cannot be read: the group stays as it was
            self._members = before
            raise

    def nested(self) -> list[NodeBase]:
        """All members, also those of groups within, without doubles."""
        found: dict[NodeBase, None] = {}
        todo: list[NodeBase] = list(self._members)
        while todo:
            node = todo.pop(0)
            if node not in found:
                found[node] = None
                if isinstance(node, GroupHandle):
                    todo.extend(node._members)
        return list(found)

    def render(self, lod: int | None = None, tokens: Budget | None = None) -> Rendered:
        """Return the summary at another level or budget; changes nothing. Raises BadPolicy."""
        level = self._lod if lod is None else parse_lod(lod)
        budget = self._tokens if tokens is None else parse_tokens(tokens)
        count, graph = len(self._members), self.graph
        parts = [f"{self.obj_id}: {count} member{'s' * (count != 1)}", *filter(None, self._since[:1])]
        cut = 0
        for position, member in enumerate(self._members):
            title = f"== {member.obj_id} {member.target}"
            if isinstance(budget, AllTokens):
                share: Budget = budget
            else:
                # Each member gets its share of what those before it left over.
                used = graph.count_tokens("\n".join([*parts, title]))
                share = max(1, (budget - used) // (count - position))
            if level == 3 and not isinstance(member, GroupHandle):
                text = member.last_change or "no change seen"
            else:
                shown = member.render(level, share)
                text, cut = shown.text, cut + shown.cut_tokens
            parts += [title, text]
        text = "\n".join(parts)
        if not isinstance(budget, AllTokens):
            whole = graph.count_tokens(text)
            text = graph.trim(text, budget)
            cut += max(0, whole - budget)
        return Rendered(text, graph.count_tokens(text), level, "", cut, None, digest_hash({"text": text}))

    def _update(self) -> bool:
        line, told_in = self._since
        if line:
            self._since = (line, self.graph.statement_id) if told_in in ("", self.graph.statement_id) else ("", "")
        old, new = self._rendered, self.render()
        changed = old.text != new.text
        self._rendered = new
        self.revision += changed
        self.dirty = False
        return changed

    def on_member_changed(self, member: NodeBase) -> None:
        """Mark the summary as old when a member of it, or of a group in it, changed: all are shown at its own level."""
        if any(member is own for own in self.nested()):
            self.dirty = True

    def tick(self, now: float, turn_id: int, tick_kind: str) -> TickResult:
        """Make the summary anew if a member changed."""
        self.last_tick_turn, self.last_tick_time = turn_id, now
        if not self.dirty or self._mode == "paused":
            return TickResult()
        before = self._rendered.tokens
        if not self._update():
            return TickResult()
        summary = f"summary made anew, ~{before} → ~{self._rendered.tokens} tokens"
        return TickResult(Delta(summary, {"revision": (self.revision - 1, self.revision)}))

    def basis(self, kind: str = "render") -> dict[str, str]:
        """Return what a payload of this kind must have been made from to be applied (seed 002 §6.2)."""
        policy = {"lod": self._lod, "tokens": str(self._tokens)}
        deps = {member.obj_id: member.revision for member in self.nested()}
        return {
            "obj_digest_hash": digest_hash({"revision": self.revision, "restores": self.graph.restores}),
            "policy_hash": digest_hash(policy),
            "deps_hash": digest_hash(deps),
        }
