"""A group: one summary over its members, computed again when a member changes (seed 002 §5.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Self

from ctxkernel.core.errors import BadTarget, CyclicGroup
from ctxkernel.core.marks import cut_to, parted, shorter
from ctxkernel.core.nodes.node_base import (
    GraphBase,
    NodeBase,
    TickResult,
    digest_hash,
    parse_lod,
    parse_tokens,
    recorded,
    show_value,
)
from ctxkernel.core.nodes.shares import divide, salience_weight
from ctxkernel.core.ports import AllTokens, Budget, Rendered, TableRow
from ctxkernel.core.timeline import statement_number
from ctxkernel.core.timeline_events import NONE, Delta, Json

_LEAST = 12
"""A member that would get fewer tokens is only named."""
_NAMED = 6


def check_member(member: object) -> NodeBase:
    """Return `member` if it is a handle, else raise BadTarget."""
    if isinstance(member, NodeBase):
        return member
    kind, advice = type(member).__name__, "make a handle of it first: group(view(…), …)"
    if type(member) in (list, tuple, set):
        advice = "give the handles one by one: group(*handles)"
    raise BadTarget(f"a group takes handles, not a value of type {kind}; {advice}")


class GroupHandle(NodeBase):
    """A summary over one or more members. See `group`."""

    obj_type = "group"
    listens = True
    _members: Sequence[NodeBase] = ()
    _since: tuple[str, str] = ("", "")
    """The first line of its summary, and the statement of the turn that first showed it."""
    _reasons: Mapping[str, list[str]] = NONE
    """Why members get more tokens than others, as of the last summary."""
    _shares: Mapping[str, int] = NONE
    _named: Sequence[str] = ()
    _targets: Sequence[str] = ()

    def __init__(
        self,
        graph: GraphBase,
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
        # A group follows its members from the start (seed 002 §1.3), until pause().
        super().__init__(graph, tokens=budget, lod=2 if lod is None else lod, mode=mode or "running", freq=freq)
        self._members = list(dict.fromkeys(map(check_member, members)))
        graph.adopt(self)
        self._update()

    def _state(self) -> dict[str, Json]:
        if self._rendered.rows:
            self.graph.keep_basis(self._rows_key(), self._rendered.rows)
        return {
            **super()._state(),
            "members": [one.obj_id for one in self._members],
            "since": list(self._since),
            "reasons": dict(self._reasons),
            "shares": dict(self._shares),
            "named": list(self._named),
            "targets": list(self._targets),
        }

    def _rows_key(self) -> tuple[Any, ...]:
        return self.obj_id, self._rendered.fingerprint, "rows"

    def take(self, memento: Mapping[str, Json]) -> None:
        """Set the state of `memento`. Only `Graph.restore` calls it."""
        found = [self.graph.node(obj_id) for obj_id in memento["members"]]
        line, statement_id = memento["since"]
        super().take(memento)
        self._members = [member for member in found if member is not None]
        self._rendered = replace(self._rendered, rows=self.graph.kept_basis(self._rows_key()) or NONE)
        self._since = line, statement_id
        # Mementos of earlier versions have none of these: then the next tick computes the summary again.
        self._reasons, self._shares = dict(memento.get("reasons", {})), dict(memento.get("shares", {}))
        self._named, self._targets = list(memento.get("named", [])), list(memento.get("targets", []))

    def since(self, line: str) -> None:
        """Begin its summary with `line` from the next tick until a later turn computes it again."""
        self.graph.check_open(self.obj_id, "since")
        self._since = line, ""
        self.dirty = True

    @property
    def target(self) -> str:
        """The target, in one line."""
        return ", ".join(member.obj_id for member in self._members)

    @property
    def members(self) -> tuple[NodeBase, ...]:
        """The members, in their order."""
        return tuple(self._members)

    @property
    def shares(self) -> dict[str, int]:
        """The tokens of each member by obj_id; empty without a budget, and without members that are left out."""
        return dict(self._shares)

    @property
    def summary_rendered(self) -> Rendered:
        """The current summary (seed 002 §5.3)."""
        return self._rendered

    @property
    def summary_policy(self) -> dict[str, Json]:
        """The policy of the summary: tokens, lod, and why members get more than others (seed 002 §5.3)."""
        return {"tokens": show_value(self._tokens), "lod": self._lod, "salience_rules": dict(self._reasons)}

    def digest(self) -> dict[str, Json]:
        """Return a small JSON digest of identity, state and policy."""
        return {**super().digest(), "kind": "group", "members": [member.obj_id for member in self._members]}

    @recorded
    def add(self, *members: NodeBase) -> Self:
        """Add members. Raises CyclicGroup and BadTarget; chains."""
        for member in map(check_member, members):
            if member is self or (isinstance(member, GroupHandle) and self in member.nested()):
                raise CyclicGroup(f"{member.obj_id} contains {self.obj_id}, so it cannot become its member")
        self._replace(list(dict.fromkeys([*self._members, *members])))
        return self

    @recorded
    def remove(self, *members: NodeBase) -> Self:
        """Remove members. Raises BadTarget for one that is not a member, and for the last one; chains."""
        for member in members:
            if member not in self._members:
                raise BadTarget(f"{check_member(member).obj_id} is not in {self.obj_id}, which has {self.target}")
        if len(set(members)) == len(self._members):
            raise BadTarget(f"{self.obj_id} would be empty; delete it instead: del …")
        self._replace([member for member in self._members if member not in members])
        return self

    def _replace(self, members: Sequence[NodeBase]) -> None:
        before, self._members = self._members, members
        try:
            self._update()
        except BaseException:  # a source cannot be read: the group does not change
            self._members = before
            raise

    def nested(self) -> list[NodeBase]:
        """Return all members, those of inner groups included, each once."""
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
        """Return the summary at another level or budget. Changes nothing. Raises BadPolicy."""
        return self._divided(lod, tokens)[0]

    def _divided(self, lod: int | None, tokens: Budget | None) -> tuple[Rendered, dict[str, int]]:
        """Return the summary, and the shares of its members."""
        rows: dict[str, TableRow | None] = {}
        rendered, shares = self._summary(lod, tokens, rows)
        lines = {*rendered.text.split("\n")} if rows else set[str]()
        kept = {line: row for line, row in rows.items() if row is not None and line in lines}
        return replace(rendered, rows=kept or NONE), shares

    def _summary(
        self, lod: int | None, tokens: Budget | None, rows: dict[str, TableRow | None]
    ) -> tuple[Rendered, dict[str, int]]:
        """Return the summary without rows of tables, and the shares; the rows are added to `rows`."""
        level = self._lod if lod is None else parse_lod(lod)
        budget = self._tokens if tokens is None else parse_tokens(tokens)
        graph, count = self.graph, len(self._members)
        head = [f"{self.obj_id}: {count} member{'s' * (count != 1)}", *filter(None, self._since[:1])]
        if isinstance(budget, AllTokens) or not self._members:  # no members: in a damaged session
            shown = [(one, *self._member(one, level, budget, rows)) for one in self._members]
            text = "\n".join([*head, *(line for one, told, _ in shown for line in (_title(one), told))])
            text = text if isinstance(budget, AllTokens) else self._cut(text, budget, self.obj_id)
            cut = sum(lost for _, _, lost in shown)
            return Rendered(text, graph.count_tokens(text), level, "", cut, None, digest_hash({"text": text})), {}
        text, shares, cut = self._within(head, level, budget, 0, rows)
        over = graph.count_tokens(text) - budget
        if over > 0:  # some counts are higher for joined texts
            text, shares, cut = self._within(head, level, budget, over, rows)
            over = graph.count_tokens(text) - budget
        text = self._cut(text, budget, self.obj_id)
        rendered = Rendered(
            text, graph.count_tokens(text), level, "", cut + max(0, over), None, digest_hash({"text": text})
        )
        return rendered, shares

    def _within(
        self, head: Sequence[str], level: int, budget: int, less: int, rows: dict[str, TableRow | None]
    ) -> tuple[str, dict[str, int], int]:
        """Return (summary, shares, tokens cut) in `budget` tokens, `less` of them kept free."""
        count = self.graph.count_tokens
        ranked = sorted(self._members, key=lambda one: -salience_weight(self._reasons.get(one.obj_id, [])))
        costs = [count(_title(one)) + _LEAST for one in ranked]
        free = budget - count("\n".join(head))
        if sum(costs) > free:
            free -= count(self._left_out([one.obj_id for one in ranked]))
        kept = max(1, sum(total <= free for total in accumulate(costs)))
        members = [one for one in self._members if one in ranked[:kept]]
        left = [one.obj_id for one in self._members if one not in ranked[:kept]]
        note = [self._left_out(left)] if left else []
        fixed = "\n".join([*head, *map(_title, members), *note])
        weights = [salience_weight(self._reasons.get(one.obj_id, [])) for one in members]
        # Until the shares are known, assume the line about them with the whole budget for each.
        told = self._told(members, [budget] * len(members))
        told = told if len(members) > 1 and 8 * count(told) <= budget else ""
        room = max(len(members), budget - count("\n".join(filter(None, (fixed, told)))) - len(members) - less)
        texts: dict[int, tuple[str, int]] = {}

        def use(at: int, grant: int) -> tuple[int, bool]:
            texts[at] = self._member(members[at], level, grant, rows)
            return count(texts[at][0]), texts[at][1] > 0

        grants = divide(room, weights, use)
        parts = [*head, *([self._told(members, grants)] if told else [])]
        for at, member in enumerate(members):
            parts += [_title(member), texts[at][0]]
        cut = sum(lost for _, lost in texts.values())
        text = "\n".join([*parts, *note])
        if cut and not note and not any(parted(told)[1] for told, _ in texts.values()):
            graph = self.graph  # no share has room for a mark, so the group has one
            text = cut_to(text, shorter("", self.obj_id), budget - less, graph.count_tokens, graph.trim)
        return text, {one.obj_id: grants[at] for at, one in enumerate(members)}, cut

    def _left_out(self, ids: Sequence[str]) -> str:
        """Return the line about members without room."""
        some = ", ".join(ids[:_NAMED]) + (" …" if len(ids) > _NAMED else "")
        return f"[… no room for {len(ids)} more: {some}; {self.obj_id}.tokens shows more]"

    def _told(self, members: Sequence[NodeBase], grants: Sequence[int]) -> str:
        """Return the line about the shares."""
        rows = [(one.obj_id, grant, self._reasons.get(one.obj_id)) for one, grant in zip(members, grants, strict=True)]
        return "shares: " + ", ".join(f"{i} ~{n}" + (f" ({', '.join(why)})" if why else "") for i, n, why in rows)

    def _member(self, member: NodeBase, level: int, share: Budget, rows: dict[str, TableRow | None]) -> tuple[str, int]:
        """Return (text, tokens cut) of a member within its share; add the rows of its tables to `rows`.

        A line that is another row in another member gets None.
        """
        if level != 3 or isinstance(member, GroupHandle):
            shown = member.render_part(level, share)
            text, cut = shown.text, shown.cut_tokens
            rows.update({line: row if rows.get(line, row) == row else None for line, row in shown.rows.items()})
            head, mark = parted(text)
            if mark:  # the budget of the group limits it here, not its own
                mark = mark.replace("h.tokens", f"{self.obj_id}.tokens").replace("h.pos", f"{member.obj_id}.pos")
                text = f"{head}\n{mark}" if head != text else mark
        else:
            text = member.last_change or "no change seen"
            cut = 0 if isinstance(share, AllTokens) else max(0, self.graph.count_tokens(text) - share)
        return text if isinstance(share, AllTokens) else self._cut(text, share, self.obj_id), cut

    def _cut(self, text: str, budget: int, holder: str) -> str:
        """Return a text within a budget, with a mark where it is truncated."""
        graph = self.graph
        if graph.count_tokens(text) <= budget:
            return text
        head, mark = parted(text)
        return cut_to(head, shorter(mark, holder), budget, graph.count_tokens, graph.trim)

    def _salience(self) -> dict[str, list[str]]:
        """Return the present reasons why members get more tokens than others."""
        newest = max((statement_number(one.changed_in) for one in self._members), default=0)
        fresh = [one for one in self._members if statement_number(one.changed_in) == newest]
        reasons: dict[str, list[str]] = {}
        for member in self._members:
            why = ["pinned"] if member.pinned else []
            if member in fresh and len(fresh) < len(self._members):  # not if all are
                why.append("changed" if member.changed_in == self.graph.statement_id else "recent")
            if member.obj_id in self.graph.named:
                why.append("asked")
            if why:
                reasons[member.obj_id] = why
        return reasons

    def _update(self) -> bool:
        line, told_in = self._since
        if line:
            self._since = (line, self.graph.statement_id) if told_in in ("", self.graph.statement_id) else ("", "")
        self._reasons, self._named, self._targets = self._salience(), self._asked(), self._looked_at()
        new, self._shares = self._divided(None, None)
        self.dirty = False
        return self._show(new)

    def _asked(self) -> list[str]:
        """Return the members that the last question names."""
        named = self.graph.named
        return [member.obj_id for member in self._members if member.obj_id in named] if named else []

    def _looked_at(self) -> list[str]:
        return [member.target for member in self._members]

    def _stale(self) -> bool:
        """Return whether the summary is out of date, be it by a change of a member, a question or another target."""
        return self.dirty or self._named != self._asked() or self._targets != self._looked_at()

    def supposed(self, policy: Mapping[str, Any], instead: Mapping[str, NodeBase]) -> Self:
        """Return a copy over the copies of its members, with a new summary as after a tick; see `NodeBase`."""
        twin = super().supposed(policy, instead)
        if twin.mode == "running" and any(node.obj_id in instead for node in self.nested()) and twin._update():
            twin.changed_in = self.graph.statement_id
        return twin

    def _stand_in(self, instead: Mapping[str, NodeBase]) -> Self:
        twin = super()._stand_in(instead)
        twin._members = [instead.get(member.obj_id, member) for member in self._members]
        return twin

    def on_member_changed(self, member: NodeBase) -> None:
        """Mark the summary as out of date if `member` is in it, directly or in an inner group."""
        if any(member is own for own in self.nested()):
            self.dirty = True

    def _tick(self, now: float, turn_id: int, tick_kind: str) -> TickResult:
        """Compute the summary again if a member changed."""
        self.last_tick_turn, self.last_tick_time = turn_id, now
        if self._mode == "paused" or not self._stale():
            return TickResult()
        before = self._rendered.tokens
        if not self._update():
            return TickResult()
        summary = f"summary made anew, ~{before} → ~{self._rendered.tokens} tokens"
        return TickResult(Delta(summary, {"revision": (self.revision - 1, self.revision)}))


def _title(member: NodeBase) -> str:
    return f"== {member.obj_id} {member.target}"
