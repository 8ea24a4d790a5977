"""A view: a window with a level of detail on one file, directory or Python object (seed 002 §5.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

from ctxkernel.core.errors import BadPolicy, BadTarget, CtxError
from ctxkernel.core.jobs import RENDERING, Job, ModelSummary, Preparation, PreparedRendering, Summarised
from ctxkernel.core.nodes.handle_history import change_summary
from ctxkernel.core.nodes.lost_target import LostSource
from ctxkernel.core.nodes.node_base import (
    NOTHING,
    Async,
    GraphBase,
    NodeBase,
    TickResult,
    digest_hash,
    parse_lod,
    parse_tokens,
    recorded,
    show_value,
)
from ctxkernel.core.nodes.policy import parse_pos
from ctxkernel.core.ports import Budget, Rendered, RenderRequest, Source
from ctxkernel.core.timeline_events import NONE, Delta, Json

CHANGE_TOKENS = 400
"""Budget of the diff in the delta feed."""
_SPEC_CHARS = 1 << 20
"""Longest path or text that a memento holds."""


class ViewHandle(NodeBase):
    """A window on a target. See `view`."""

    obj_type = "view"
    _pos = "0:0"
    _near = ""
    """The last place of another position, while this one is set."""
    _place = ""
    """The last place of `pos`, in numbers."""
    _basis: Any = None
    _source: Source
    _given = False
    """Whether the target is the source itself."""
    _stamp = _called = ""
    """The stamp and the label of its source when it was rendered."""
    _set_back = False
    question = ""
    """The last question that it was asked about."""
    _asked: Sequence[str] = ()
    """The names in its target that this question names."""
    _facts: Mapping[str, int] = NONE
    """The facts of the last rendering, for the next one that differs."""
    _seen: Mapping[str, int] = NONE
    """The facts that those of the last rendering were compared with."""
    _was_seen = True
    """Whether the model saw the last rendering: then the next one shows what changed since."""
    _accepted = 0
    """The number of preparations that its source has accepted."""

    def __init__(
        self,
        graph: GraphBase,
        target: object,
        *,
        pos: object = "0:0",
        tokens: object = None,
        lod: object = 0,
        mode: object = None,
        freq: object = None,
    ) -> None:
        if isinstance(target, NodeBase):
            raise BadTarget(
                f"{target.obj_id} is a handle already, of {target.target}: at the end of a cell it shows itself; "
                f"view what it looks at for a second one"
            )
        budget = graph.settings.view_tokens if tokens is None else tokens
        super().__init__(graph, tokens=budget, lod=lod, mode=mode, freq=freq)
        self._pos = parse_pos(pos)
        self._source = graph.open_source(target)
        self._given = self._source is target
        graph.adopt(self)
        self._update()

    # -- mementos ---------------------------------------------------------------------------

    @classmethod
    def blank(cls, graph: GraphBase, obj_id: str) -> Self:
        """Return a view without a target; `take` fills it from a memento."""
        node = super().blank(graph, obj_id)
        node._source = node._lost({"kind": "object", "label": obj_id}, "not restored yet", None)
        return node

    @property
    def looks_at(self) -> object:
        """The target: a Python object, or a path as text; NOTHING where it is lost."""
        source = cast("Any", self._source)
        if isinstance(source, LostSource):
            return NOTHING if source.spec is None else source.spec
        if self._given:
            return source
        return getattr(source, "target", getattr(source, "spec", source))

    def shows(self, kind: str, subject: str, namespace: Mapping[str, object]) -> bool:
        """Return whether its target is the subject of a divergence of this kind: a variable, or a file."""
        target = self.looks_at
        if kind == "state":
            return subject in namespace and namespace[subject] is target
        path = target.replace("\\", "/") if isinstance(target, str) else ""
        return kind in ("file", "artifact") and f"/{path}".endswith("/" + subject.replace("\\", "/").lstrip("/"))

    def _state(self) -> dict[str, Json]:
        source = self._source
        label, named = getattr(source, "given_label", (source.label, False))
        spec = found if isinstance(found := self.looks_at, str) and len(found) <= _SPEC_CHARS else None
        if self._basis is not None or self._rendered.rows:
            self.graph.keep_basis(self._basis_key(), (self._basis, self._rendered.rows, *self._facts_kept()))
        return {
            **super()._state(),
            "pos": self._pos,
            "place": self._place,
            "kind": source.kind,
            "label": label,
            "named": named,
            "spec": spec,
            "asked": list(self._asked),
        }

    def _facts_kept(self) -> tuple[Mapping[str, int], Mapping[str, int], bool]:
        return self._facts, self._seen, self._was_seen

    def _basis_key(self) -> tuple[Any, ...]:
        shown = self._rendered
        return self.obj_id, shown.fingerprint, self._pos, self._lod, str(self._tokens)

    def take(self, memento: Mapping[str, Json]) -> None:
        """Set the state of `memento`. Only `Graph.restore` calls it."""
        pos = parse_pos(memento["pos"])
        super().take(memento)
        self._pos, self._place = pos, memento.get("place", "")
        kept = self.graph.kept_basis(self._basis_key()) or (None, NONE, NONE, NONE, True)
        self._basis, rows, self._facts, self._seen, self._was_seen = kept
        self._asked, self.question = tuple(memento.get("asked", ())), ""
        self._rendered = replace(self._rendered, rows=rows)
        self._stamp, self._set_back = "", True

    def look_again(self, memento: Mapping[str, Json], target: Callable[[], object]) -> str:
        """Open the target `target()` if it differs from the present one; return why that failed, or empty."""
        spec, lost = memento["spec"], isinstance(self._source, LostSource)
        if spec is not None and spec == self.looks_at and not lost:
            return ""
        try:
            found = target() if spec is None else spec
            if found is self.looks_at and not lost:
                return ""
            self._source = self._open(found, memento)
        except Exception as fault:  # the object was not restored, the file is gone, …
            reason = str(fault) if isinstance(fault, CtxError) else f"not restored ({type(fault).__name__}: {fault})"
            self._source, self._given = self._lost(memento, reason, spec), False
            return reason[:200]
        self._given = self._source is found
        self._stamp, self._set_back = "", True
        return ""

    def _open(self, target: object, memento: Mapping[str, Json]) -> Source:
        source = self.graph.open_source(target)
        relabel = getattr(source, "relabel", None)
        if relabel is not None and source is not target:
            relabel(memento["label"], memento["named"])
        return source

    def _lost(self, memento: Mapping[str, Json], reason: str, spec: str | None) -> LostSource:
        graph = self.graph
        return LostSource(
            memento["kind"],
            memento["label"],
            reason,
            count_tokens=graph.count_tokens,
            trim=graph.trim,
            spec=spec,
            reopen=None if spec is None else lambda: self._open(spec, memento),
        )

    # -- reading ------------------------------------------------------------------------

    @property
    def target(self) -> str:
        """The target, in one line."""
        return self._source.label

    @property
    def kind(self) -> str:
        """The kind of the target: `file`, `directory`, `frame`, `array`, `object`, …"""
        return self._source.kind

    @property
    def path(self) -> str:
        """The path or expression of the target (seed 002 §5.2)."""
        return self._source.label

    @property
    def source_fingerprint(self) -> str:
        """The content hash of the target when it was rendered."""
        return self._rendered.fingerprint

    @property
    def window_spec(self) -> dict[str, Json]:
        """The window (seed 002 §5.2): lines of the rendering, its budget, its position, and where the rest begins."""
        shown = self._rendered
        return {
            "range_lines": shown.text.count("\n") + 1,
            "range_tokens": show_value(self._tokens),
            "anchors": {"pos": self._pos, "place": self._place, "next_pos": shown.next_pos},
        }

    @property
    def dirty_flags(self) -> dict[str, bool]:
        """The differences from the last rendering (seed 002 §5.2); usually only of the source, since calls render."""
        shown = self._rendered
        return {
            "pos_changed": shown.pos != self._pos,
            "policy_changed": shown.lod != self._lod,
            "source_changed": self.stale(),
        }

    @property
    def pos(self) -> str:
        """The position: "line", "line:col" (from 0), a name, "/pattern/", or a token from an earlier rendering."""
        return self._pos

    @pos.setter
    def pos(self, value: object) -> None:
        self.set(pos=value)

    def set_pos(self, pos: object) -> Self:
        """Move the window. Raises BadPolicy; chains."""
        return self.set(pos=pos)

    def digest(self) -> dict[str, Json]:
        """Return a small JSON digest of identity, state and policy."""
        return {**super().digest(), "kind": self._source.kind, "pos": self._pos}

    def settable(self) -> frozenset[str]:
        """Return the names that `set` takes."""
        return super().settable() | {"pos"}

    def _set(self, policy: dict[str, Any]) -> None:
        before = self._pos, self._place
        if "pos" in policy:  # the last place is that of another position
            self._pos, self._place, self._near = parse_pos(policy["pos"]), "", self._place
        try:
            super()._set(policy)
        except BaseException:
            self._pos, self._place = before
            raise
        finally:
            self._near = ""

    @recorded
    def scroll(self, delta_lines: int | None = None, *, delta_tokens: int | None = None) -> Self:
        """Move the window by lines, or to the rest of the rendering (no argument). Chains.

        `delta_tokens` moves over the most lines (entries, cells) from here on whose text is within so many tokens; if
        negative, over the most before. At least over one, never past the last one, and of a file above 4 MB over 4 MB
        at most. `scroll(delta_tokens=-n)` after `scroll(delta_tokens=n)` is at the same line, or before it where more
        fits, so that nothing is passed over. Of tables and arrays about so many tokens: as the mean line shown has.
        Raises BadPolicy.
        """
        if delta_lines is not None and delta_tokens is not None:
            raise BadPolicy("scroll by lines or by tokens: give delta_lines or delta_tokens, not both")
        if delta_lines is None and delta_tokens is None:
            if self._rendered.next_pos is None:
                return self
            self._set({"pos": self._rendered.next_pos})
            return self
        if delta_tokens is not None:
            if type(delta_tokens) is not int:
                raise BadPolicy(f"scroll(delta_tokens={delta_tokens!r}): give a whole number, negative for back")
            further = getattr(self._source, "further", None)
            pos: str | None = None if further is None else further(self._place or self._pos, delta_tokens, self._lod)
            if pos is not None:
                self._set({"pos": f"{pos}:0" if pos.isdigit() else pos})
                return self
            lines = max(1, self._rendered.text.count("\n"))
            delta_lines = round(delta_tokens * lines / max(1, self._rendered.tokens))
        if not isinstance(delta_lines, int) or isinstance(delta_lines, bool):
            raise BadPolicy(f"scroll({delta_lines!r}) is not a number of lines; use a whole number, negative for back")
        place = self._place or self._pos
        line = place.partition(":")[0]
        token = re.fullmatch(r"(@\d+)([+-]\d+)?", place)
        if line.isdigit():
            self._set({"pos": f"{max(0, int(line) + delta_lines)}:0"})
        elif token is not None:  # a token takes an offset in lines
            lines = int(token[2] or 0) + delta_lines
            self._set({"pos": f"{token[1]}{lines:+d}" if lines else token[1]})
        else:
            raise BadPolicy(f"{self.obj_id} is at {self._pos!r}, which is no line; set pos to a line first")
        return self

    @recorded
    def next_match(self, step: int = 1) -> Self:
        """Move to the next match of the pattern that is the position; -1 as `step` is the one before. Chains.

        Raises BadPolicy where the position is no pattern, or there is no such match.
        """
        found = re.fullmatch(r"(/.+/[aisx]*)(-?[1-9]\d{0,8})?", self._pos, re.DOTALL)
        number = int(found[2] or 1) if found is not None else 0
        if found is None or not number + step or (number < 0) != (number + step < 0):
            raise BadPolicy(
                f"{self.obj_id} is at {self._pos!r}: there is no match {'after' if step > 0 else 'before'} it; "
                f'set pos to a pattern such as "/error/" first'
            )
        self._set({"pos": f"{found[1]}{number + step}"})
        return self

    def previous_match(self) -> Self:
        """Move to the match before. See `next_match`."""
        return self.next_match(-1)

    def render(self, lod: int | None = None, tokens: Budget | None = None, *, pos: object = None) -> Rendered:
        """Return a rendering at another level, budget or position. Changes nothing. Raises BadPolicy."""
        level = self._lod if lod is None else parse_lod(lod)
        budget = self._tokens if tokens is None else parse_tokens(tokens)
        if pos is not None:
            return self._source.render(RenderRequest(level, parse_pos(pos), budget, self._basis))
        return self._rendering(level, budget)

    def render_part(self, lod: int, tokens: Budget) -> Rendered:
        """Return its rendering in a group: text only."""
        return self._source.render(replace(self._request(lod, tokens), pictured=False))

    def _rendering(self, lod: int, tokens: Budget) -> Rendered:
        return self._source.render(self._request(lod, tokens))

    def _request(self, lod: int, tokens: Budget) -> RenderRequest:
        seen = self._seen
        if self._was_seen and self._facts and self._stamp and self._source.stamp() != self._stamp:
            seen = self._facts
        asked, near = tuple(self._asked), self._near
        return RenderRequest(lod, self._pos, tokens, self._basis, self._place, near=near, asked=asked, seen=seen)

    def _show(self, new: Rendered) -> bool:
        """Replace the rendering; return whether the content differs."""
        self._place, self._called = new.place or self._place, self._source.label
        if new.basis is not None:
            self._basis = new.basis
        if new.fingerprint != self._rendered.fingerprint and self._was_seen:
            self._seen, self._was_seen = self._facts, not self._facts
        self._facts = new.facts
        return super()._show(new)

    def ask_about(self, question: str, phrases: frozenset[str]) -> None:
        """Give room to what the last question to the model names in the target. Only the tick calls it."""
        self._was_seen, self.question = self._was_seen or bool(question), question
        ask = getattr(self._source, "asked", None)
        asked: tuple[str, ...] = () if ask is None or not question else ask(phrases, self._facts)
        if asked != tuple(self._asked):
            self._asked = asked
            self.dirty = self.dirty or self._mode == "running"

    def suspect_change(self, changed: Collection[int], same: Collection[int]) -> None:
        """Render again at the next tick if the target may differ: `changed` and `same` are ids of objects."""
        target, covers = getattr(self._source, "target", None), getattr(self._source, "covers", None)
        if target is None or id(target) in same:
            return
        self.dirty = self.dirty or id(target) in changed or (covers is not None and not covers(self._stamp))

    def _fetch(self) -> None:
        fetch = getattr(self._source, "fetch", None)
        if fetch is not None:
            fetch()

    def _update(self) -> bool:
        # The stamp first: so the next tick notices a write between the two.
        stamp = self._source.stamp()
        new = self.render()
        self._set_back = False
        self._stamp = stamp  # not before: if the rendering fails, the next tick tries again
        return self._show(new)

    def _tick(self, now: float, turn_id: int, tick_kind: str) -> TickResult:
        """Render the target again if it changed; return the difference."""
        self.last_tick_turn, self.last_tick_time = turn_id, now
        if not self.stale() or (self._set_back and self._stands(self._source.stamp(), self.render())):
            return TickResult()
        change, before = self._rendering(3, CHANGE_TOKENS), (self._missed(), self._rendered.fingerprint, self._called)
        return self._apply(change, self._update(), before)

    def _stands(self, stamp: str, new: Rendered) -> bool:
        """Return whether it was restored and `new` is of the same target: then the restored text stays."""
        set_back, self._set_back = self._set_back, False
        if not set_back or self.dirty or not new.fingerprint == self._rendered.fingerprint != "":
            return False
        self._stamp, self._called = stamp, self._source.label
        if new.basis is not None:
            self._basis = new.basis
        return True

    def stale(self) -> bool:
        """Return whether the target may differ from the rendering. Costs a stat, for a file."""
        source = self._source
        return self.dirty or source.stamp() != self._stamp or source.label != self._called

    def stamps(self) -> tuple[str, str]:
        """Return the stamps of the target when it was rendered, and now: equal stamps mean equal content."""
        now = self._source.stamp()
        if self._stamp:
            return self._stamp, now
        return (now if self.render().fingerprint == self._rendered.fingerprint else ""), now

    def jobs(self) -> list[Job]:
        """Return its jobs for a worker: an update where it is Async and stale, and the preparation of its source."""
        wanted: list[Job] = []
        if self._mode == "running" and isinstance(self._freq, Async) and self.stale():
            wanted.append(self.job())
        ask = getattr(self._source, "preparation", None)
        found: Preparation | None = None if ask is None else ask()
        if found is not None:
            wanted.append(self.job(found))
        return wanted

    def summarised(self) -> Summarised | None:
        """Return the target for a summary by a model; None where the rendering is stale."""
        if not self._rendered.fingerprint or self.stale():
            return None
        return Summarised(self.obj_id, self.target, self._source, self._rendered.fingerprint)

    def job(self, preparation: Preparation | None = None) -> Job:
        """Return the job of an update, or of `preparation`. It holds no reference to this node."""
        # A source that the user gave is used itself, also on the worker's thread.
        twin = None if self._given else getattr(self._source, "twin", None)
        kind = RENDERING[self._lod] if preparation is None else preparation.kind
        return Job(
            self.obj_id,
            self.target,
            kind,
            self.basis(kind),
            self._source if twin is None or preparation is not None else twin(),
            self._request(self._lod, self._tokens),
            self._request(3, CHANGE_TOKENS),
            preparation,
        )

    def apply(self, data: Any) -> TickResult:
        """Apply the result of a `job`. Only the tick calls it."""
        if not isinstance(data, PreparedRendering):
            return self._accept(data)
        if data.source is not self._source:
            cast("Any", self._source).absorb(data.source)
        if self._stands(data.stamp, data.rendered):
            return TickResult()
        self._stamp, before = data.stamp, (self._missed(), self._rendered.fingerprint, self._called)
        return self._apply(data.change, self._show(data.rendered), before)

    def _accept(self, data: object) -> TickResult:
        """Give the source a result of its preparation; a running view shows it once it is complete."""
        complete = cast("Any", self._source).accept(data)
        self._accepted += complete
        summary = data if isinstance(data, ModelSummary) else None
        notice: str = getattr(data, "notice", "") if summary is None or self._lod == 2 else ""
        if complete and notice and self._mode == "paused":
            return TickResult(looked=True, notice=f"{notice}; {self.obj_id}.refresh() shows it")
        if not complete or self._mode == "paused" or self._lod == 3:  # at level 3 the diff stays until the next one
            return TickResult(looked=complete)
        # A stale rendering is not updated because of a preparation.
        if self._set_back or self.stale() or not self._update():
            return TickResult(looked=complete)  # a group may show it at another level
        told = f"summary by {summary.model}" if summary is not None else "looked through in the background"
        return TickResult(Delta(told, {"revision": (self.revision - 1, self.revision)}))

    def _missed(self) -> str:
        """Return the note of the rendering about a position that is gone, or empty."""
        return next((note for note in self._rendered.notes if note.startswith("position ")), "")

    def _apply(self, change: Rendered, changed: bool, before: tuple[str, str, str]) -> TickResult:
        self.dirty = False
        if not changed:
            return TickResult(looked=True)
        missed, same = self._missed(), change.fingerprint == before[1]
        if same and self._called == before[2] and missed == before[0]:
            names = f"shows {', '.join(self._asked)} first: the last question names it"
            text = names if self._asked else "shows nothing first: the last question names nothing in it"
            return TickResult(Delta(text[:200], {"revision": (self.revision - 1, self.revision)}))
        self._change = change.text
        told = f"is now {self._called}" if same else change_summary(change.text)
        told += f"; {missed}" if missed and missed != before[0] else ""
        return TickResult(Delta(told, {"revision": (self.revision - 1, self.revision)}, change.text))

    def basis(self, kind: str = "render") -> dict[str, str]:
        """Return the basis that a payload of this kind must have to be applied (seed 002 §6.2)."""
        state: dict[str, Json] = {"restores": self.graph.restores}
        policy, deps = dict[str, Json](), ""
        if kind in RENDERING.values():  # a preparation does not depend on the rendering
            state["revision"], deps = self.revision, f"{self._accepted} accepted"
            policy = {"lod": self._lod, "tokens": str(self._tokens), "pos": self._pos, "mode": self._mode}
        return {"obj_digest_hash": digest_hash(state), "policy_hash": digest_hash(policy), "deps_hash": deps}
