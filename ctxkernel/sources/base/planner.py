"""The planner of budgets: which lines of a list are shown, and in which form, so that they and a mark fit.

Rule 1: breadth before depth. Plain lines are shown in their order, as many as fit. Among `NamedLine`s first every name
        gets room, then the short forms, then the whole lines; each by rank, then worth, then order. What has no room is
        passed over for what has. Whole lines of a worth from `UNUSUAL` on come before the names, in a part of the
        budget.
Rule 2: names without a line stand in a list for each kind: `float64 × 12: a, b, c0–c9`. A range stands for names that
        differ in a number alone, which counts up by one.
Rule 3: what remains of a budget shows how the next line begins, with `…` at its end. Where a position goes on, it
        shows that line whole.
Rule 4: shown + "more" = all, and of how many only a name or a short form is shown is said: `details of 9 columns`. A
        line that is begun counts as shown: its `…` says that it is cut.
Rule 5: a pure function of its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from zlib import crc32

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.text import plural
from ctxkernel.projection.tokens import count_tokens, largest, most_chars
from ctxkernel.sources.base.amounts import (
    ASKED,
    CHANGED,
    FULL_ADVICE,
    UNUSUAL,
    Amounts,
    Line,
    NamedLine,
    as_line,
    marked,
)
from ctxkernel.sources.base.fitting import NO_CAP, Planned, advised, beginning, fit, fullest, may_begin

MOST_NAMED = 2_000
"""So many `NamedLine`s are planned quickly; a source gives no more where there is a budget."""
_ABSENT, _NAMED, _SHORT, _WHOLE = range(4)
_TRIES = 400
"""So many lines are tried for what is left of a budget."""
_LEAST_PART = 6
"""Characters of a line whose beginning is shown."""
_INNER = 2
"""Lines from this rank on are about what other lines name: a position that goes on is one of those, if any is left."""
_PROMOTED = 4
"""Lines that are unusual take at most one part in so many of a budget before all names have room."""
_BEGUN = 6
"""So many lines are tried for the beginning that is shown."""
_PART = "\0"
"""Stands for the beginning of a line whose length is not known yet."""
_WORD = re.compile(r"\w+")
_NUMBERED = re.compile(r"(.*?)(0|[1-9]\d{0,8})")
_RANGE = 3


@dataclass(frozen=True, slots=True)
class Emphasis:
    """The priorities of a rendering, and the facts that it is made from."""

    asked: frozenset[str] = frozenset()
    """Names, as `said` gives them, that the last question to the model names."""
    seen: Mapping[str, int] = field(default_factory=dict[str, int])
    """The facts of an earlier rendering, by the names of their lines."""
    facts: dict[str, int] = field(default_factory=dict[str, int])
    """Is filled with those of this one."""
    contents: dict[str, int] = field(default_factory=dict[str, int])
    """Facts that say more than the lines with these names."""

    def note(self, contents: Mapping[str, object]) -> None:
        """Take as facts what the things with these names hold: a line may say only of what kind they are."""
        self.contents.update((name, crc32(repr(one).encode())) for name, one in contents.items())

    def is_changed(self, name: str) -> bool:
        """Return whether what a thing holds differs from an earlier rendering."""
        return name in self.seen and name in self.contents and self.seen[name] != self.contents[name]

    def worths(self, lines: Sequence[str]) -> dict[int, int]:
        """Return what the lines with names are worth beyond their own worth, by their numbers, and note their facts."""
        named = [(at, line) for at, line in enumerate(lines) if isinstance(line, NamedLine) and line.name]
        facts = {
            line.name: self.contents.get(line.name) or crc32(line.encode("utf-8", "replace"))
            for _, line in named[:MOST_NAMED]
        }
        self.facts.update(facts)
        found: dict[int, int] = {}
        changed = {name for name, fact in facts.items() if self.seen and self.seen.get(name) != fact}
        if 2 * len(changed) > len(facts):  # of most facts this says nothing
            changed = set[str]()
        for at, line in named:
            worth = CHANGED * (line.name in changed)
            if self.asked and not self.asked.isdisjoint(said_of(line.name)):
                worth += ASKED
            if worth:
                found[at] = worth
        return found


def said(name: str) -> str:
    """Return a name as a question has it: its words in lower case with a space between."""
    return " ".join(_WORD.findall(name.lower()))


def said_of(name: str) -> tuple[str, str]:
    """Return how a question may call a thing: by its name, or by the last part of a dotted one."""
    return said(name), said(name.rpartition(".")[2])


def most_named(lines: Sequence[str], what: str) -> tuple[Sequence[str], list[Line]]:
    """Return as many lines as are planned quickly, the last one with a name among them, and what the others stand for.

    Which is to be given to `plan` as `hidden`.
    """
    named = [at for at, line in enumerate(lines) if isinstance(line, NamedLine)]
    if len(named) <= MOST_NAMED:
        return lines, []
    left_out = set(named[MOST_NAMED - 1 : -1])
    return [line for at, line in enumerate(lines) if at not in left_out], [Line("", len(left_out), what)]


def plan(
    head: Sequence[str],
    lines: Sequence[str],
    budget: int,
    what: str,
    *,
    place: Callable[[int], str | None] | None = None,
    hidden: Sequence[Line] = (),
    emphasis: Emphasis | None = None,
) -> Planned:
    """Return the text of `head` and as much of `lines` as fits; see `fit_lines` for the arguments."""
    if budget >= NO_CAP and not hidden:
        return Planned("\n".join([*head, *lines]))
    if any(isinstance(line, NamedLine) for line in lines):
        whole = "\n".join([*head, *lines])
        listed = sum(map(_says_kind_only, lines)) >= _RANGE
        if not hidden and not listed and len(whole) <= most_chars(budget) and count_tokens(whole) <= budget:
            return Planned(whole)
        worths = emphasis.worths(lines) if emphasis is not None else {}
        made = _Plan(head, list(map(as_line, lines)), what, hidden, place or (lambda k: None), worths)
        return fullest(budget, lambda grows, placed: made.within(budget, grows, placed))
    return fullest(
        budget,
        lambda grows, placed: _sequence(head, lines, budget, what, place if placed else None, hidden, grows),
    )


def _sequence(
    head: Sequence[str],
    lines: Sequence[str],
    budget: int,
    what: str,
    place: Callable[[int], str | None] | None,
    hidden: Sequence[Line],
    grows: bool,
) -> Planned:
    """Return as many of the first lines as fit, and the beginning of the next one."""

    def marks(k: int, shown: int, advice: str) -> list[str]:
        """Return the mark below `k` whole lines, of `shown` that count as shown."""
        cut_off = k < len(lines) or hidden
        return [marked(amounts.after(shown), cut(k), next_place(max(k, shown - k)), advice=advice)] if cut_off else []

    def build(k: int, advice: str) -> str:
        return "\n".join([*head, *lines[:k], *marks(k, k, advice)])

    def cut(k: int) -> int:
        return max(1, int(total * amounts.weight_after(k)) // max(len(lines), 1))

    def next_place(k: int) -> str | None:
        return place(k) if place and 0 < k < len(lines) else None

    def with_part(n: int, advice: str) -> str:
        return "\n".join([*head, *lines[:k], beginning(lines[k], n), *marks(k, k + 1, advice)])

    least = FULL_ADVICE * grows
    total, amounts = count_tokens("\n".join(lines)), Amounts(lines, what, hidden)
    k, text = fit(len(lines), lambda k: build(k, least), budget, guess=budget // 12 + 1)
    if k < 0 or (k == len(lines) and not hidden):
        return Planned(text, cut(0) if k < 0 else 0)
    if k < len(lines) and may_begin(lines[k]):
        guess = 16 if k else budget
        n = largest(len(lines[k]), lambda n: count_tokens(with_part(n, least)) <= budget, guess)
        if len(beginning(lines[k], n)) > (_LEAST_PART if k else 1):
            text = advised(lambda advice: with_part(n, advice), budget)
            return Planned(text, cut(k), next_place(max(k, 1)))
    return Planned(advised(lambda advice: build(k, advice), budget), cut(k), next_place(k))


@dataclass(slots=True)
class _State:
    """In which form each line is shown."""

    forms: dict[int, int]
    """Those of the lines that are not absent, by their numbers."""
    part: tuple[int, str] | None = None
    """A line of which the beginning is shown, and this beginning."""

    def form(self, at: int) -> int:
        """Return the form of a line."""
        return self.forms.get(at, _ABSENT)

    def set(self, at: int, form: int) -> None:
        """Show a line in another form."""
        if form == _ABSENT:
            self.forms.pop(at, None)
        else:
            self.forms[at] = form


@dataclass(slots=True)
class _Plan:
    """Lines of which some have names."""

    head: Sequence[str]
    lines: Sequence[Line]
    what: str
    hidden: Sequence[Line]
    place: Callable[[int], str | None]
    worths: Mapping[int, int]
    """The values of lines beyond their own."""
    steps: list[tuple[int, int]] = field(init=False)
    """(line, form), in the order in which they get room."""
    parents: list[int] = field(init=False)
    most: list[int] = field(init=False)
    """The form of each line that says all of it."""
    total: int = field(init=False)
    items: int = field(init=False)
    """The number of items that all lines stand for, hidden ones included."""
    main: list[int] = field(init=False)
    """The numbers of the lines that a position can be of."""
    last_named: int = field(init=False)
    """The number of the last line with a name."""
    amounts: Amounts = field(init=False)
    advice: str = field(init=False, default="")
    """The shortest advice of the mark."""
    placed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        steps = [(rank, -worth, at, form) for at in range(len(self.lines)) for rank, worth, form in self._steps_of(at)]
        self.steps = [(at, form) for _, _, at, form in sorted(steps)]
        self.most = [_ABSENT] * len(self.lines)
        for at, form in self.steps:
            self.most[at] = max(form, self.most[at])
        self.total = count_tokens("\n".join(self.lines))
        self.items = sum(max(line.items, 1) for line in self.lines) + sum(line.items for line in self.hidden)
        self.main = [at for at, line in enumerate(self.lines) if line.rank < _INNER]
        named = (at for at in reversed(range(len(self.lines))) if isinstance(self.lines[at], NamedLine))
        self.last_named = next(named, -1)
        self.amounts = Amounts(self.lines, self.what, self.hidden)
        self.parents = []
        within: list[int] = []
        for at in range(len(self.lines)):
            depth = self._depth(at)
            while within and self._depth(within[-1]) >= depth:
                within.pop()
            self.parents.append(within[-1] if within else -1)
            within.append(at)

    def _depth(self, at: int) -> int:
        line = self.lines[at]
        return line.depth if isinstance(line, NamedLine) else 0

    def _has_parts(self, at: int) -> bool:
        """Return whether the next line is of a part of the thing: it stands below a line of its own."""
        return at + 1 < len(self.lines) and self._depth(at + 1) > self._depth(at)

    def _steps_of(self, at: int) -> Iterator[tuple[int, int, int]]:
        line = self.lines[at]
        if not isinstance(line, NamedLine):
            yield line.rank, 0, _WHOLE
            return
        if _says_kind_only(line) and not self._has_parts(at):
            forms = [_NAMED]
        else:
            forms = [_NAMED] * bool(line.name) + [_SHORT] * (line.short not in ("", line)) + [_WHOLE]
        yield from ((line.rank + later, self._worth(at), form) for later, form in enumerate(forms))

    def _worth(self, at: int) -> int:
        line = self.lines[at]
        return (line.worth if isinstance(line, NamedLine) else 0) + self.worths.get(at, 0)

    def within(self, budget: int, grows: bool, placed: bool) -> Planned:
        """Return the text that fits; see `fullest`."""
        self.advice, self.placed = FULL_ADVICE * grows, placed
        self._promote(budget // _PROMOTED)
        k, text = fit(len(self.steps), lambda k: self._text(self._first(k), self.advice), budget, guess=budget // 4 + 1)
        state = self._first(max(k, 0))
        if k < 0 or (k == len(self.steps) and not self.hidden):
            return self._planned(state, text)
        for _ in range(2):
            self._fill(state, budget, max(k, 0))
        self._begin_next(state, budget)
        return self._planned(state, advised(lambda advice: self._text(state, advice), budget))

    def _promote(self, room: int) -> None:
        """Put the whole lines of the highest worth before all names, as many as `room` has tokens for."""
        best = [at for at in range(len(self.lines)) if self._worth(at) >= UNUSUAL]
        promoted: dict[int, int] = {}
        for at in sorted(best, key=lambda at: -self._worth(at)):
            forms = {outer: self._form_of_outer(outer) for outer in self._outer(at) if outer not in promoted}
            forms[at] = _WHOLE
            room -= sum(count_tokens(self._form(one, form)) + 1 for one, form in forms.items())
            if room < 0:
                break
            promoted |= forms
        if promoted:
            rest = ((at, form) for at, form in self.steps if form > promoted.get(at, _ABSENT))
            self.steps = [*promoted.items(), *rest]

    def _outer(self, at: int) -> Iterator[int]:
        """Yield the lines of what a line is part of, the innermost first."""
        while (at := self.parents[at]) >= 0:
            yield at

    def _form_of_outer(self, at: int) -> int:
        line = self.lines[at]
        return _SHORT if isinstance(line, NamedLine) and line.short not in ("", line) else _WHOLE

    def _planned(self, state: _State, text: str) -> Planned:
        if state.part is None and not self._amount(state):
            return Planned(text)
        return Planned(text, self._cut(state), self._next_place(state))

    def _first(self, k: int) -> _State:
        return _State(dict(self.steps[:k]))

    def _fill(self, state: _State, budget: int, start: int) -> None:
        """Take the next steps that fit into the room that is left."""
        room, closed = budget - count_tokens(self._text(state, self.advice)), False
        taken: list[tuple[int, int, int]] = []
        for at, form in self.steps[start : start + _TRIES]:
            before, plain = state.form(at), self._is_plain(at)
            if room < 2:
                break
            if before >= form or (closed and plain) or not self._may(state, at, form):
                continue
            price = count_tokens(self._form(at, form)) + 1 - count_tokens(self._form(at, before))
            if price > room:
                closed = closed or plain
                continue
            taken.append((at, before, form))
            state.set(at, form)
            room -= max(price, 0)

        def fits(k: int) -> bool:
            for at, before, _ in reversed(taken):
                state.set(at, before)
            for at, _, form in taken[:k]:
                state.set(at, form)
            return count_tokens(self._text(state, self.advice)) <= budget

        if not fits(len(taken)):
            fits(max(largest(len(taken), fits, guess=len(taken) - 1), 0))

    def _is_plain(self, at: int) -> bool:
        """Return whether a line has no name: then it is shown only after the ones before it."""
        line = self.lines[at]
        return not isinstance(line, NamedLine) or not (line.name or line.short)

    def _may(self, state: _State, at: int, form: int) -> bool:
        parent = self.parents[at]
        return form == _NAMED or parent < 0 or state.form(parent) >= _SHORT

    def _begin_next(self, state: _State, budget: int) -> None:
        """Show the beginning of a line that has no room, the next one if that fits."""
        tried: set[int] = set()
        for at, form in self.steps:
            if state.form(at) >= form or form == _NAMED or at in tried or not self._may(state, at, form):
                continue
            tried.add(at)
            if self._begin(state, budget, at) or len(tried) == _BEGUN or (self._is_plain(at) and not state.form(at)):
                return

    def _begin(self, state: _State, budget: int, at: int) -> bool:
        """Show the beginning of a line, if it has room for more than what stands in place of it; or all of it.

        Return whether it is only begun.
        """
        line = self.lines[at]
        name = line.name if isinstance(line, NamedLine) else ""
        if not may_begin(line):
            return False
        least = max(_LEAST_PART, line.find(name) + len(name) + len(": ") + 1)
        if state.form(at) == _NAMED:
            least += 2 * _LEAST_PART - 2
        elif state.form(at) == _SHORT:
            least = max(len(self._form(at, _SHORT)) + 2, least)

        begun = _State(state.forms, (at, _PART))
        body, amount = self._body(begun), self._amount(begun)
        where = body.index(_PART)

        def fits(n: int) -> bool:
            body[where] = beginning(line, n)
            return count_tokens(self._joined(begun, body, amount, self.advice)) <= budget

        whole = _State(state.forms | {at: _WHOLE})
        if "\n" not in line and count_tokens(self._text(whole, self.advice)) <= budget:
            state.set(at, _WHOLE)
            return False
        n = largest(len(line) - 1, fits, least)
        if n < least or "\n" in line[:n] or len(beginning(line, n)) < least:
            return False
        state.part = at, beginning(line, n)
        return True

    def _form(self, at: int, form: int) -> str:
        line = self.lines[at]
        if form == _WHOLE or not isinstance(line, NamedLine):
            return line if form else ""
        return line.short if form == _SHORT else f", {line.name}" if form == _NAMED else ""

    def _text(self, state: _State, advice: str) -> str:
        return self._joined(state, self._body(state), self._amount(state), advice)

    def _joined(self, state: _State, body: Sequence[str], amount: str, advice: str) -> str:
        mark = [marked(amount, self._cut(state, body), self._next_place(state), advice=advice)]
        mark = mark if amount or state.part is not None else []
        return "\n".join([*self.head, *body, *mark])

    def _body(self, state: _State) -> list[str]:
        body: list[str] = []
        named: list[NamedLine] = []
        after = 0
        """The place of the lists of names: after the last line with a name."""
        part = {} if state.part is None else {state.part[0]: _ABSENT}
        for at, form in sorted((state.forms | part).items()):
            line = self.lines[at]
            if state.part is not None and at in part:
                body.append(state.part[1])
            elif form >= _SHORT:
                body.append(self._form(at, form))
            elif form == _NAMED and isinstance(line, NamedLine):
                named.append(line)
            if at <= self.last_named:
                after = len(body)
        return [*body[:after], *lists_of(named), *body[after:]]

    def _amount(self, state: _State) -> str:
        part = -1 if state.part is None else state.part[0]
        told = self.amounts.without(at for at in sorted({*state.forms, part}) if at >= 0)
        counts: dict[str, int] = {}
        for at, form in sorted(state.forms.items()):
            line = self.lines[at]
            known = form >= self.most[at] and not (isinstance(line, NamedLine) and line.partial)
            if at != part and not known:
                counts[line.what or self.what] = counts.get(line.what or self.what, 0) + 1
        details = ", ".join(plural(count, what) for what, count in counts.items())
        return ", ".join(filter(None, (told, details and f"details of {details}")))

    def _cut(self, state: _State, body: Sequence[str] | None = None) -> int:
        shown = count_tokens("\n".join(self._body(state) if body is None else body))
        return max(1, self.total * self.items // max(len(self.lines), 1) - shown)

    def _next_place(self, state: _State) -> str | None:
        count = len(self.lines)
        first = next((at for at in self.main if at not in state.forms), None)
        if first is None:
            first = next((at for at in range(count) if at not in state.forms), count)
        return self.place(first) if self.placed and 0 < first < count else None


def _says_kind_only(line: str) -> bool:
    """Return whether the list of names says all that a line does."""
    return isinstance(line, NamedLine) and line.strip() in (f"{line.name}: {line.kind}", f"{line.name} ({line.kind})")


def lists_of(lines: Sequence[NamedLine]) -> list[str]:
    """Return a list of names for each kind, in the order of the first of them."""
    kinds: dict[str, list[str]] = {}
    for line in lines:
        kinds.setdefault(line.kind, []).append(line.name)
    return [f"{kind or 'names'} × {len(names):,}: {', '.join(ranges_of(names))}" for kind, names in kinds.items()]


def ranges_of(names: Sequence[str]) -> Iterator[str]:
    """Yield names as they stand in a list: three or more that count up as one range."""
    at = 0
    while at < len(names):
        end = at + 1
        found = _NUMBERED.fullmatch(names[at])
        if found is not None:
            stem, number = found[1], int(found[2])
            while end < len(names) and names[end] == f"{stem}{number + end - at}":
                end += 1
        if end - at >= _RANGE:
            yield f"{quoted(names[at])}–{quoted(names[end - 1])}"
        else:
            end = at + 1
            yield quoted(names[at])
        at = end


def quoted(name: str) -> str:
    """Return a name as it stands in a list: in quotes where it has a comma or a dash of a range."""
    return repr(name) if ", " in name or "–" in name or not name else name
