"""The volatile tail of a projection: tables, summaries, pinned and asked-for content, and what changed.

Rule 1: everything that can change without a new statement stands here, after the last block that a provider caches.
Rule 2: the tail is a function of the turn and of the tokens it is given, which it never exceeds.
Rule 3: when there is too little, each part first gets its share of `PARTS`, then the rest goes in that order: what is
        pinned wins. What was left out is named, with the reason.
Rule 4: what is neither pinned nor small is shown at a coarser level before it is cut, the least salient first: what did
        not change in this turn, then what was made first. Each such decision stands in the block and beside it.
Rule 5: groups before members (seed 002 §8): content of a handle is here if it is pinned, was asked for by `show`, or is
        a group or note that stands in no other group. Of all others the table has one line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, cast

from ctxkernel.core.events import Json
from ctxkernel.core.ports import CountTokens, Picture, VariableLine
from ctxkernel.core.text import format_size, join_names, truncate
from ctxkernel.core.timeline import statement_number
from ctxkernel.core.turn import DeltaItem, HandleState, Turn
from ctxkernel.projection.budget import fit, level, shares
from ctxkernel.projection.layout import EMPTY, attribute, clean, line
from ctxkernel.projection.value import LeftOut, Piece

# The share that each part has when there is too little, in the order in which the rest is given out.
PARTS: Mapping[str, float] = {
    "pinned": 0.4,
    "shown": 0.18,
    "handles": 0.12,
    "deltas": 0.12,
    "groups": 0.12,
    "variables": 0.06,
}
_SHARES = tuple(PARTS.values())
# The kinds of blocks in the order in which they stand.
ORDER = (("handles",), ("variables",), ("group", "note"), ("view",), ("deltas",), ("shown",))
_TABLE_WHY = {
    "handles": "the views, groups and notes, a line each",
    "variables": "the person's variables, newest change first",
    "deltas": "what changed since the last request",
}
COARSER = (1, 2)
"""The levels that content is raised to where there is too little room, one after the other."""
LEAST_CONTENT = 24
"""Fewer tokens than this for a content that wants more are not worth a block."""

_DIGEST_KEYS = ("mode", "freq", "lod", "tokens", "pos", "revision")
_MEMO = 1_024
Coarser = Callable[[str, int], str | None]
"""Returns what a handle shows at another level, None where it cannot."""
_VALUE = 80
"""Most characters of one value in the handle table."""


class Row(NamedTuple):
    """A line of a table, clean, with its tokens."""

    text: str
    tokens: int
    notes: tuple[str, ...]


class Content(NamedTuple):
    """The content of a handle, clean, that may be projected."""

    id: str
    origin: str
    kind: str
    why: str
    tag: str
    text: str
    tag_tokens: int
    tokens: int
    """Of tag, text and picture."""
    handle: HandleState


class Tail:
    """Makes tails. Keeps clean texts and their tokens from turn to turn; what it returns does not depend on that."""

    def __init__(self, count: CountTokens, variable_rows: int, *, script: bool = False) -> None:
        self._count = count
        self._script = script
        self._variable_rows = variable_rows
        self.row = lru_cache(_MEMO)(self._row)
        """Returns one clean line, or a text of many lines, with its line break."""
        self._tag_tokens = lru_cache(_MEMO)(count)
        """Returns the tokens of a tag of ours."""
        self._levels: dict[tuple[str, int, str], str | None] = {}
        self._variables: tuple[Sequence[VariableLine], list[Row]] = (), []
        """The newest table's variables, and their rows."""

    def _row(self, raw: str, *, whole: bool = False) -> Row:
        safe = clean(raw if whole else line(raw), script=self._script)
        text = (safe.text.strip("\n") if safe.text.strip() else EMPTY) + "\n"
        return Row(text, self._count(text), safe.notes)

    def _rows_of(self, variables: Sequence[VariableLine]) -> list[Row]:
        """Return the rows of variables. Most lines are the same objects as in the turn before."""
        before, rows = self._variables
        if variables is not before:
            known = dict(zip(map(id, before), rows, strict=True))
            made = [known.get(id(one)) or self.row(variable_row(one)) for one in variables]
            self._variables = variables, made
        return self._variables[1]

    def build(
        self, turn: Turn, room: int, newest: str, elsewhere: Collection[str] = ()
    ) -> tuple[tuple[Piece, ...], tuple[LeftOut, ...]]:
        """Return the tail within `room` tokens, and what it leaves out. `elsewhere` are ids that other blocks have."""
        left: list[LeftOut] = []
        contents: dict[str, list[Content]] = {}
        tables = {
            "variables": self._rows_of(turn.variables),
            "deltas": list(map(self.row, map(delta_row, turn.deltas))),
        }
        if turn.handles:
            # Members are named as the user knows them, so that a reader can go from a summary to its parts.
            names = {handle.obj_id: handle.name for handle in turn.handles}
            contents = self._choose(turn.handles, names, left, elsewhere)
            tables["handles"] = [self.row(handle_row(handle, names)) for handle in turn.handles]
        wants = dict.fromkeys(PARTS, 0)
        for part, chosen in contents.items():
            wants[part] = sum([content.tokens for content in chosen])
        for name, rows in tables.items():
            if rows:
                wants[name] = self._tag_tokens(f"<ctx:{name}>\n") + sum([row.tokens for row in rows])
        grants = wants
        if sum(wants.values()) > room:
            grants = dict(zip(PARTS, shares(room, list(wants.values()), _SHARES), strict=True))
        made: list[Piece] = []
        for part in ("pinned", "shown", "groups"):
            if part in contents:
                made += self._contents(part, contents[part], grants[part], turn.coarser, left)
        pieces: list[Piece] = []
        for kinds in ORDER:
            if rows := tables.get(kinds[0]):
                pieces += self._table(kinds[0], rows, wants[kinds[0]], grants[kinds[0]], newest, left)
            elif made:
                pieces += _of_kinds(made, kinds)
        more = turn.variables_total - len(turn.variables)
        if more > 0 and len(turn.variables) >= self._variable_rows:  # else the table was not full, so it has them all
            left.append(LeftOut("variables", f"{more:,} more variables: the table has {len(turn.variables)} rows"))
        return tuple(pieces), tuple(left)

    def _table(
        self, name: str, rows: Sequence[Row], tokens: int, grant: int, origin: str, left: list[LeftOut]
    ) -> list[Piece]:
        """Return the table within `grant` tokens: as many of its first rows as fit, or nothing."""
        more = ""
        if tokens > grant:
            total, kept = len(rows), 0
            tokens = self._tag_tokens(f"<ctx:{name}>\n") + self.row(f"… {total} more").tokens
            for row in rows:
                if tokens + row.tokens > grant:
                    break
                tokens += row.tokens
                kept += 1
            left.append(LeftOut(name, f"{total - kept} of {total} rows did not fit {grant:,} tokens"))
            if kept == 0:
                return []
            rows, more = rows[:kept], f"… {total - kept} more\n"
        texts, _, notes = zip(*rows, strict=True)
        why = "; ".join([_TABLE_WHY[name], *dict.fromkeys(chain.from_iterable(notes))])
        return [Piece(name, name, origin, tokens, why, f"<ctx:{name}>\n{''.join(texts)}{more}")]

    def _choose(
        self,
        handles: Sequence[HandleState],
        names: Mapping[str, str],
        left: list[LeftOut],
        elsewhere: Collection[str],
    ) -> dict[str, list[Content]]:
        """Return by part the handles whose content is wanted, changed ones first; the others go to `left`."""
        parents = {member: handle for handle in handles for member in handle.members if member != handle.obj_id}
        contents: dict[str, list[Content]] = {}
        taken = set(elsewhere)
        for handle in sorted(handles, key=lambda one: (not one.pinned, not one.changed)):
            name = attribute(handle.name)
            block = f"{attribute(handle.obj_type)}:{name}"
            parent = parents.get(handle.obj_id)
            primary = handle.obj_type if handle.obj_type in ("group", "note") else "view"
            if handle.pinned:
                part, kind = "pinned", primary
                why = f"{name} is pinned" + (f": {handle.pin_reason}" if handle.pin_reason else "")
            elif handle.requested:
                part, kind, why = "shown", "shown", f"show({name}) asked for it in this turn"
            elif primary != "view" and parent is None:
                part, kind, why = "groups", primary, f"{primary} {name} is shown for what it stands for"
            else:
                by = f"{attribute(parent.name)} stands for it" if parent is not None else "neither pinned nor asked for"
                left.append(LeftOut(block, f"{by}; its line is in the handle table, show({name}) brings it once"))
                continue
            while block in taken:  # a name is the user's, and two objects may come by the same one
                block += f"#{attribute(handle.obj_id)}"
            taken.add(block)
            members = " ".join([attribute(names.get(member, member)) for member in handle.members[:24]])
            tag = f'<ctx:{kind} id="{block}" members="{members}">\n' if members else f'<ctx:{kind} id="{block}">\n'
            contents.setdefault(part, []).append(self._wanted(handle, block, kind, why, tag))
        return contents

    def _wanted(self, handle: HandleState, block: str, kind: str, why: str, tag: str) -> Content:
        if self._script and handle.picture is not None:  # small models, most of which see nothing
            handle = replace(handle, picture=None)
        row, picture = self.row(handle.text, whole=True), handle.picture
        shown = [self.row(note).text.strip()[:80] for note in handle.notes[:4]]
        notes = (self.row(why).text.strip()[:200], *row.notes, *shown)
        tag_tokens = self._tag_tokens(tag)
        tokens = row.tokens + tag_tokens + (picture.tokens if picture is not None else 0)
        origin = attribute(handle.statement_id)
        return Content(block, origin, kind, "; ".join(notes), tag, row.text, tag_tokens, tokens, handle)

    def _coarser(self, contents: Sequence[Content], grant: int, coarser: Coarser, left: list[LeftOut]) -> list[Content]:
        """Return the contents with levels raised, the least salient first, until they fit or nothing more helps."""
        made = list(contents)
        total = sum([one.tokens for one in made])
        order = sorted(
            range(len(made)), key=lambda at: (made[at].handle.changed, statement_number(made[at].handle.statement_id))
        )
        for lod in COARSER:
            for at in order:
                one, was = made[at], made[at].handle.digest.get("lod")
                if total <= grant or not isinstance(was, int) or was >= lod:
                    continue
                text = self._at_level(one.handle, lod, coarser)
                row = self.row(text, whole=True) if text is not None else None
                if row is None or row.tokens + one.tag_tokens >= one.tokens:
                    continue
                tokens = row.tokens + one.tag_tokens
                why = f"{one.why}; at level {lod} instead of {was}: the budget has {grant:,} tokens for such"
                left.append(LeftOut(f"{one.id}:lod{was}", f"~{one.tokens:,} tokens; shown at level {lod}, ~{tokens:,}"))
                total += tokens - one.tokens
                handle = replace(one.handle, digest={**one.handle.digest, "lod": lod}, picture=None)
                made[at] = one._replace(text=row.text, tokens=tokens, why=why, handle=handle)
        return made

    def _at_level(self, handle: HandleState, level: int, coarser: Coarser) -> str | None:
        """Return a rendering, which is not made again while the handle shows the same."""
        key = handle.obj_id, level, handle.text
        if key not in self._levels:
            if len(self._levels) >= _MEMO:
                self._levels.clear()
            self._levels[key] = coarser(handle.obj_id, level)
        return self._levels[key]

    def _contents(
        self, part: str, contents: Sequence[Content], grant: int, coarser: Coarser, left: list[LeftOut]
    ) -> list[Piece]:
        """Return the contents of a part within `grant` tokens, at coarser levels where that makes them fit."""
        if part != "pinned" and sum([one.tokens for one in contents]) > grant:
            contents = self._coarser(contents, grant, coarser, left)
        pieces: list[Piece] = []
        for content, room in zip(contents, level(grant, [one.tokens for one in contents]), strict=True):
            if room < min(content.tokens, LEAST_CONTENT + content.tag_tokens):
                left.append(LeftOut(content.id, f"takes {content.tokens:,} tokens; {room:,} are left for it"))
                continue
            why, text, tokens, picture = content.why, content.text, content.tokens, content.handle.picture
            if picture is not None:
                tokens -= picture.tokens
                if room < content.tokens:
                    left.append(LeftOut(f"{content.id}:picture", f"takes {picture.tokens:,} tokens of {room:,}"))
                    picture = None
            if room < tokens:
                text, tokens, cut = fit(text, room - content.tag_tokens, self._count)
                tokens += content.tag_tokens
                why += f"; cut by {cut:,} characters to {tokens:,} tokens"
                left.append(LeftOut(f"{content.id}:rest", f"{cut:,} characters did not fit the budget"))
            pieces.append(Piece(content.id, content.kind, content.origin, tokens, why, content.tag + text))
            if picture is not None:
                told = f"{content.why}; its picture, {picture.width:,} × {picture.height:,}"
                block = image_block(picture)
                pieces.append(
                    Piece(f"{content.id}:picture", "picture", content.origin, picture.tokens, told, block, raw=True)
                )
        return pieces


def image_block(picture: Picture) -> str:
    """Return the JSON of the block that shows a picture."""
    source = {"type": "base64", "media_type": picture.media_type, "data": picture.data}
    return json.dumps({"type": "image", "source": source}, separators=(",", ":"))


def _of_kinds(pieces: Sequence[Piece], kinds: Sequence[str]) -> list[Piece]:
    """Return the pieces of these kinds, each with its picture after it."""
    chosen, kind = list[Piece](), ""
    for piece in pieces:
        kind = kind if piece.kind == "picture" else piece.kind
        if kind in kinds:
            chosen.append(piece)
    return chosen


def handle_row(handle: HandleState, names: Mapping[str, str]) -> str:
    """Return the line of a handle: name, type, target, policy, and what is special about it; `names` by obj_id."""
    digest = handle.digest
    parts = [handle.name, handle.obj_type]
    target = digest.get("target")
    if target not in (None, "") and not handle.members:  # a group's target is its members
        parts.append(_short(target))
    parts += [f"{key}={_short(digest[key])}" for key in _DIGEST_KEYS if digest.get(key) not in (None, "")]
    if handle.members:
        members = join_names([names.get(member, member) for member in handle.members], 12)
        parts.append(f"members={members.replace(', ', ',')}")
    if handle.obj_id != handle.name:
        parts.append(f"id={handle.obj_id}")
    parts.append(f"by={handle.statement_id} ~{handle.rendered_tokens} tokens")
    if handle.changed:
        parts.append("changed")
    if handle.pinned:
        parts.append(f"pinned ({_short(handle.pin_reason)})" if handle.pin_reason else "pinned")
    return " ".join(parts)


def variable_row(variable: VariableLine) -> str:
    """Return the line of a variable. Name and value stand as in an assignment, which a credential is known by."""
    size = variable.size
    hint = f" {_size(size)}" if size else ""
    by = f" {variable.statement_id}" if variable.statement_id else ""
    return f"{variable.name} = {variable.repr} # {variable.type}{hint}{by}"


def delta_row(item: DeltaItem) -> str:
    """Return the line of a change."""
    return f"{item.statement_id} {item.kind} {item.subject}: {item.summary}"


def _size(size: Mapping[str, Json]) -> str:
    shape, length, total = size.get("shape"), size.get("len"), size.get("bytes")
    parts: list[str] = []
    if isinstance(shape, list | tuple):
        parts.append("shape=" + "×".join(map(str, cast("Sequence[Json]", shape))) if shape else "scalar")
    elif isinstance(length, int):
        parts.append(f"len={length}")
    # Small ones say little: everything has some bytes.
    if isinstance(total, int) and total >= 1000:
        parts.append(format_size(total))
    return " ".join(parts)


def _short(value: Json) -> str:
    return truncate(value if isinstance(value, str) else str(value), _VALUE)
