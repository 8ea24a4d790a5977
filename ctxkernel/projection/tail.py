"""The tail of a projection: tables, summaries, pinned and requested content, and changes.

Rule 1: everything that can change without a new statement is in the tail, after the last block that a provider caches.
Rule 2: the tail is a function of the turn and of its limit in tokens, which it never exceeds.
Rule 3: if the limit is too low, each part first gets its share of `PARTS`, then the parts get the rest in that order:
        pinned content comes first. All that is left out is listed with the reason.
Rule 4: content that is not pinned is shown at a coarser level before it is truncated, the least salient first: what did
        not change in this turn, then what was made first. The block and the list of what is left out say so.
Rule 5: groups before members (seed 002 §8): a handle has its content in the tail if it is pinned, was requested by
        `show`, changed since it was displayed, or is a group or note that is in no other group. All others have one
        line in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from ctxkernel.core.masking import Mask
from ctxkernel.core.ports import CountTokens, VariableLine
from ctxkernel.core.text import plural
from ctxkernel.core.timeline import statement_number
from ctxkernel.core.timeline_events import NONE
from ctxkernel.core.turn_values import HandleState, Turn
from ctxkernel.projection.budget import fit_text, level, shares
from ctxkernel.projection.displayed_images import ImageLimits, image_block
from ctxkernel.projection.layout import EMPTY, attribute, clean, line
from ctxkernel.projection.secrets import mask as mask_credentials
from ctxkernel.projection.tail_rows import Stands, VariableFacts, delta_row, handle_row, untold, variable_rows
from ctxkernel.projection.value import LeftOut, Piece

# The share of each part when the limit is too low, in the order in which the parts get the rest.
PARTS: Mapping[str, float] = {
    "pinned": 0.4,
    "shown": 0.18,
    "handles": 0.12,
    "deltas": 0.12,
    "groups": 0.12,
    "variables": 0.06,
}
_SHARES = tuple(PARTS.values())
# The kinds of blocks in their order in the tail.
ORDER = (("handles",), ("variables",), ("group", "note"), ("view",), ("deltas",), ("shown",))
_TABLE_WHY = {
    "handles": "the views, groups and notes, a line each",
    "variables": "the person's variables, newest change first",
    "deltas": "what changed since the last request, and nothing else shows",
}
COARSER = (1, 2)
"""The levels that content is raised to where there is too little room, in this order."""
LEAST_CONTENT = 24
"""Content that needs more tokens is left out if it would get fewer than these."""

_MEMO = 1_024
Coarser = Callable[[str, int], str | None]
"""Returns the text of a handle at another level, or None."""


class ShownHistory(NamedTuple):
    """The content of the history."""

    stands: Stands = lambda statement_id: ""
    shows: Callable[[str], bool] = lambda text: False
    """Returns whether its newest entry has a text."""
    changed: Mapping[str, str] = NONE
    """The views that it displays otherwise than they are now → the statement of the newest display."""
    images: int = 0
    """The largest weight of all pictures of the tail."""
    seen: Mapping[str, str] = NONE
    """The images that it shows, by their block's text."""


NO_HISTORY = ShownHistory()


class CleanText(NamedTuple):
    """A clean text with its tokens: a line of a table, or a content."""

    text: str
    tokens: int
    notes: tuple[str, ...]


class HandleContent(NamedTuple):
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
    """Makes tails. It caches clean texts and their tokens."""

    def __init__(
        self,
        count: CountTokens,
        variable_rows: int,
        limits: ImageLimits,
        *,
        script: bool = False,
        mask: Mask = mask_credentials,
    ) -> None:
        self._count = count
        self._limits = limits
        self._script = script
        self._mask = mask
        self._variable_rows = variable_rows
        self.row = lru_cache(_MEMO)(self._row)
        """Returns a clean line, or with `whole` a clean text, with its line break."""
        self._tag_tokens = lru_cache(_MEMO)(count)
        """Returns the tokens of a tag of ours."""
        self._levels: dict[tuple[str, int, str], str | None] = {}
        self._seen: Mapping[str, str] = NONE
        self._images = 0
        """Weight that pictures may still have in the tail that is built."""
        self._variables: tuple[Sequence[VariableLine], list[CleanText]] = (), []
        """The variables of the newest table, and their rows."""
        self._facts: dict[int, VariableFacts] = {}
        """The facts of these variables, by identity."""

    def forget(self) -> None:
        """Forget the clean texts: they may be masked otherwise now."""
        self.row.cache_clear()
        self._variables = (), []

    def _row(self, raw: str, *, whole: bool = False) -> CleanText:
        safe = clean(raw if whole else line(raw), script=self._script, mask=self._mask)
        text = (safe.text.strip("\n") if safe.text.strip() else EMPTY) + "\n"
        return CleanText(text, self._count(text), safe.notes)

    def _rows_of(self, variables: Sequence[VariableLine]) -> list[CleanText]:
        """Return the rows of variables. Most lines are the same objects as in the turn before."""
        before, rows = self._variables
        if variables is not before:
            known = self._facts
            facts = [known.get(id(one)) or VariableFacts.of(one) for one in variables]
            self._facts = {id(one.variable): one for one in facts}
            rows = list(map(self.row, variable_rows(facts)))
            self._variables = variables, rows
        return rows

    def build(
        self,
        turn: Turn,
        room: int,
        newest: str,
        elsewhere: Collection[str] = (),
        past: ShownHistory = NO_HISTORY,
    ) -> tuple[tuple[Piece, ...], tuple[LeftOut, ...]]:
        """Return the tail within `room` tokens, and what it leaves out.

        `elsewhere` are the ids of other blocks, `past` tells what the history shows.
        """
        left: list[LeftOut] = []
        self._images, self._seen = past.images, past.seen
        deltas = untold(turn, past.stands)
        if len(deltas) < len(turn.deltas):
            told = plural(len(turn.deltas) - len(deltas), "changes")
            left.append(LeftOut("deltas", f"{told} that the history or a table has"))
        contents: dict[str, list[HandleContent]] = {}
        tables = {
            "variables": self._rows_of(turn.variables),
            "deltas": list(map(self.row, map(delta_row, deltas))),
        }
        if turn.handles:
            # Members have the user's names, so that a reader can go from a summary to its parts.
            names = {handle.obj_id: handle.name for handle in turn.handles}
            contents = self._choose(turn.handles, names, left, elsewhere, past)
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
        if more > 0 and len(turn.variables) >= self._variable_rows:  # else the table has all of them
            left.append(LeftOut("variables", f"{more:,} more variables: the table has {len(turn.variables)} rows"))
        return tuple(pieces), tuple(left)

    def _table(
        self, name: str, rows: Sequence[CleanText], tokens: int, grant: int, origin: str, left: list[LeftOut]
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
        past: ShownHistory,
    ) -> dict[str, list[HandleContent]]:
        """Return the handles whose content is wanted by part, changed ones first; add the others to `left`."""
        parents = {member: handle for handle in handles for member in handle.members if member != handle.obj_id}
        contents: dict[str, list[HandleContent]] = {}
        taken = set(elsewhere)
        for handle in sorted(handles, key=lambda one: (not one.pinned, not one.changed)):
            name = attribute(handle.name)
            block = f"{attribute(handle.obj_type)}:{name}"
            parent = parents.get(handle.obj_id)
            primary = handle.obj_type if handle.obj_type in ("group", "note") else "view"
            if handle.pinned:
                part, kind = "pinned", primary
                why = f"{name} is pinned" + (f": {handle.pin_reason}" if handle.pin_reason else "")
            elif handle.requested and past.shows(self.row(handle.text, whole=True).text.strip()):
                left.append(LeftOut(block, f"show({name}) asked for it, and the history displays it"))
                continue
            elif handle.requested:
                part, kind, why = "shown", "shown", f"show({name}) asked for it since the last answer"
            elif since := past.changed.get(handle.obj_id):
                part, kind = "shown", primary
                why = f"{name} as it is now: it has changed since {attribute(since)} displayed it"
            elif primary != "view" and parent is None:
                part, kind, why = "groups", primary, f"{primary} {name} is shown for what it stands for"
            else:
                by = f"{attribute(parent.name)} stands for it" if parent is not None else "neither pinned nor asked for"
                left.append(LeftOut(block, f"{by}; its line is in the handle table, show({name}) brings it once"))
                continue
            while block in taken:  # two objects may have the same name
                block += f"#{attribute(handle.obj_id)}"
            taken.add(block)
            members = " ".join([attribute(names.get(member, member)) for member in handle.members[:24]])
            tag = f'<ctx:{kind} id="{block}" members="{members}">\n' if members else f'<ctx:{kind} id="{block}">\n'
            contents.setdefault(part, []).append(self._wanted(handle, block, kind, why, tag, left))
        return contents

    def _wanted(
        self, handle: HandleState, block: str, kind: str, why: str, tag: str, left: list[LeftOut]
    ) -> HandleContent:
        handle = self._with_picture(handle, block, left) if handle.picture is not None else handle
        row, picture = self.row(handle.text, whole=True), handle.picture
        shown = [self.row(note).text.strip()[:80] for note in handle.notes[:4]]
        notes = (self.row(why).text.strip()[:200], *row.notes, *shown)
        tag_tokens = self._tag_tokens(tag)
        tokens = row.tokens + tag_tokens + (picture.tokens if picture is not None else 0)
        origin = attribute(handle.statement_id)
        return HandleContent(block, origin, kind, "; ".join(notes), tag, row.text, tag_tokens, tokens, handle)

    def _with_picture(self, handle: HandleState, block: str, left: list[LeftOut]) -> HandleState:
        """Return a handle with its picture, or without it where images have no room."""
        picture = handle.picture
        assert picture is not None
        place = self._seen.get(image_block(picture)) if self._seen else None
        if place is not None:
            left.append(LeftOut(f"{block}:picture", f"{place} is the same image"))
            text = picture.told_instead(handle.text, f", shown as {place}")
            return replace(handle, text=text, picture=None)
        weight = self._limits.weight(picture.tokens, len(picture.data))
        if weight <= self._images:
            self._images -= weight
            return handle
        why = self._limits.why or f"takes {weight:,} tokens; images have {max(self._images, 0):,} left"
        left.append(LeftOut(f"{block}:picture", why))
        tokens = handle.rendered_tokens - picture.tokens
        return replace(handle, text=picture.told_instead(handle.text), picture=None, rendered_tokens=tokens)

    def _coarser(
        self, contents: Sequence[HandleContent], grant: int, coarser: Coarser, left: list[LeftOut]
    ) -> list[HandleContent]:
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
        """Return a rendering, cached while the text of the handle stays the same."""
        key = handle.obj_id, level, handle.text
        if key not in self._levels:
            if len(self._levels) >= _MEMO:
                self._levels.clear()
            self._levels[key] = coarser(handle.obj_id, level)
        return self._levels[key]

    def _contents(
        self, part: str, contents: Sequence[HandleContent], grant: int, coarser: Coarser, left: list[LeftOut]
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
                    text, picture = picture.told_instead(text), None
                    tokens = self._count(text) + content.tag_tokens
            if room < tokens:
                text, tokens, cut = fit_text(text, room - content.tag_tokens, self._count)
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


def _of_kinds(pieces: Sequence[Piece], kinds: Sequence[str]) -> list[Piece]:
    """Return the pieces of these kinds, each with its picture after it."""
    chosen, kind = list[Piece](), ""
    for piece in pieces:
        kind = kind if piece.kind == "picture" else piece.kind
        if kind in kinds:
            chosen.append(piece)
    return chosen
