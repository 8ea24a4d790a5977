"""The settings of a running kernel, and the list of the history's properties: `%ctx config`, `%ctx properties`.

Rule 1: what is set is tried first: where no projection can be built with it, nothing is changed.
Rule 2: a change counts from the projection of the cell that makes it, and is written down with the session.
Rule 3: a user's property that fails is taken out of the list and told; the projection is built without it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ctxkernel.core.errors import BadCommand, BadPolicy, CtxError
from ctxkernel.core.settings import DEFAULTS, EXTRACTIVE, SPECS, Settings, Value, allowed, checked, from_text, shown
from ctxkernel.core.text import format_table, one_line
from ctxkernel.core.turn import Turn
from ctxkernel.history.capabilities import MODELS, capabilities_for
from ctxkernel.history.events import HistoryEvent
from ctxkernel.history.invariants import PROPERTIES, Condensations, OwnProperty, Property, with_extensions
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.store import config
from ctxkernel.store.log.location import notebook_folder

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

T = TypeVar("T")
EXTENSIONS = {"tokens": "token_limit", "depth": "call_depth", "message_pairing": "message_pairing"}
"""What `%ctx properties on` calls the extensions of seed 001 → the settings that hold them."""
_OFF: Mapping[str, Value] = {"token_limit": 0, "call_depth": 0, "message_pairing": False}


class Configuration:
    """The settings with where they are from, and the engine that is built of them: the loop projects with this."""

    def __init__(self, ctx: Runtime) -> None:
        self._ctx = ctx
        base = ctx.guard("settings", lambda: config.read(os.environ, _folder()), config.Configured())
        self._base = base
        self.session: dict[str, Value] = {}
        """What `%ctx config` set."""
        self.own: dict[str, OwnProperty] = {}
        """The user's properties, in order."""
        self.private: frozenset[str] = frozenset()
        """Names that stand in no projection."""
        self.notices = list(base.notices)
        self._untold = list(base.notices)
        self.settings = base.settings
        self.engine = self.built(base.settings)

    def built(self, settings: Settings) -> ProjectionEngine:
        """Return a new engine with the user's properties, under other settings. Raises BadPolicy."""
        listed = (*PROPERTIES, *self.own.values())
        return ProjectionEngine(settings, count_tokens, properties=listed, private=self.private)

    def tell_first(self, notice: str) -> None:
        """Have the first cell tell something: at the start there is nowhere to show it."""
        self._untold.append(notice)

    def tell_once(self) -> None:
        """Tell what is to be known of the start; the first cell has it."""
        for notice in self._untold:
            self._ctx.notices.tell(f"ctxkernel: {notice}")
        self._untold.clear()

    # -- projecting ---------------------------------------------------------------------------

    def tend(self, turn: Turn, moment: str = "request") -> list[HistoryEvent | str]:
        """As `ProjectionEngine.tend`."""
        return self._without_faults(lambda: self.engine.tend(turn, moment))

    def project(self, turn: Turn) -> Projection:
        """As `ProjectionEngine.project`."""
        return self._without_faults(lambda: self.engine.project(turn))

    def _without_faults(self, run: Callable[[], T]) -> T:
        made = run()
        while faulty := [one for one in self.own.values() if one.fault]:
            for one in faulty:
                del self.own[one.name]
                self._ctx.keep_mark(one.name, "property", None)
                told = f"the property {one.name} is off ({one.fault}); %ctx properties add {one.name} tries it again"
                self._ctx.notices.kept.append(told)
                self._ctx.notices.tell(f"ctxkernel: {told}")
            self.engine = self.built(self.settings)
            made = run()
        return made

    # -- changing -----------------------------------------------------------------------------

    def origin(self, name: str) -> str:
        """Where a value is from."""
        return "this session" if name in self.session else self._base.origins.get(name, "default")

    def set(self, name: str, value: Value | None) -> None:
        """Set a setting for this session, or have it as it was before. Raises BadPolicy, and changes nothing."""
        others = {key: one for key, one in self.session.items() if key != name}
        self._apply(others if value is None else {**others, name: value})
        self._ctx.keep_mark(name, "setting", None if value is None else str(value) or "auto")

    def add(self, name: str) -> None:
        """Put a property of the user's namespace into the list. Raises BadPolicy, and what the property raises."""
        inner = self._ctx.shell.user_ns[name]
        if isinstance(inner, type):
            inner = inner()
        before = [one for one in PROPERTIES if not isinstance(one, Condensations)]
        made = OwnProperty(name, inner, before, self._interruptible)
        made.attempt(self.engine.past.view.events)
        self.own[name] = made
        self._apply(self.session)
        self._ctx.keep_mark(name, "property", "on")

    def hide(self, names: Iterable[str], *, hidden: bool) -> None:
        """Keep names out of every projection from now on, or let them in."""
        named = frozenset(names)
        self.private = self.private | named if hidden else self.private - named
        self._apply(self.session)
        for name in sorted(named):
            self._ctx.keep_mark(name, "private", "yes" if hidden else None)

    def remove(self, name: str) -> None:
        """Take it out again. Raises KeyError."""
        del self.own[name]
        self._apply(self.session)
        self._ctx.keep_mark(name, "property", None)

    def recall(self, marks: Mapping[tuple[str, str], Any]) -> None:
        """Have what an earlier kernel of this session had; what is not possible is told."""
        ctx = self._ctx
        found: dict[str, Value] = {}
        private: set[str] = set()
        for (name, mark), text in marks.items():
            try:
                if mark == "setting" and name in SPECS:
                    found[name] = from_text(name, str(text))
                elif mark == "property":
                    self.add(name)
                elif mark == "private":
                    private.add(name)
            except Exception as fault:  # the user's code, or a mark of another version
                ctx.notices.kept.append(f"{mark} {name} is not back: {type(fault).__name__}: {fault}"[:300])
        if found or private:
            self.private |= private
            self._apply({**found, **self.session})

    def _apply(self, session: Mapping[str, Value]) -> None:
        ctx = self._ctx
        settings = replace(self._base.settings, **session)
        engine = self.built(settings)
        engine.take_over(self.engine, ctx.loop.state)
        self.engine, self.settings, self.session = engine, settings, dict(session)
        ctx.capture.settings = ctx.files.settings = settings
        ctx.loop.reconfigure(settings)
        ctx.tracker.settings = settings

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        # In the user's cell it can be interrupted as it is; after it, only what is the user's shall be.
        if self._ctx.interrupts.masked:
            with self._ctx.interrupts.user_code():
                yield
        else:
            yield


def _folder() -> Any:
    return notebook_folder(os.environ, os.getcwd())


# -- the commands ------------------------------------------------------------------------------------


def configure(ctx: Runtime, args: Sequence[str]) -> str:
    """`%ctx config`: all settings, one, or one set anew."""
    held = ctx.configuration
    if not args:
        rows = [["setting", "value", "from", "what"]]
        for name, spec in SPECS.items():
            when = "; at start only" if spec.at_start else ""
            rows.append([name, shown(name, _value(held, name)), held.origin(name), spec.about + when])
        lines = [format_table(rows), *(f"notice: {one}" for one in held.notices)]
        lines.append(f"%ctx config NAME VALUE sets one for this session; {config.user_file()} for all")
        return "\n".join(lines)
    name, *rest = args
    if name not in SPECS:
        raise BadCommand(f"there is no setting {name!r}{_near(name, SPECS)}; %ctx config lists them")
    spec = SPECS[name]
    if not rest:
        now = f"{name}: {shown(name, _value(held, name))}, from {held.origin(name)}"
        default = f"default {shown(name, DEFAULTS[name])}; it may be {allowed(name)}"
        when = "read when the kernel starts" if spec.at_start else "can be set at any time"
        places = f"`{name} = …` in {config.FILE}, or {config.PREFIX}{name.upper()}"
        return "\n".join([now, spec.about, default, f"{when}: {places}", *_of_model(name, _value(held, name))])
    if len(rest) > 1:
        raise BadCommand(f"%ctx config {name} VALUE: one value; it may be {allowed(name)}")
    if spec.at_start:
        raise BadCommand(
            f"{name} is read when the kernel starts: write `{name} = …` into {config.user_file()}, "
            f"or set {config.PREFIX}{name.upper()}"
        )
    try:
        held.set(name, None if rest[0] == "--reset" else from_text(name, rest[0]))
    except BadPolicy as fault:
        raise BadCommand(f"%ctx config: {fault}; nothing was changed") from None
    value = _value(held, name)
    return "\n".join([f"{name}: {shown(name, value)}, from {held.origin(name)}", *_of_model(name, value)])


def _value(held: Configuration, name: str) -> Value:
    value: Value = getattr(held.settings, name)
    return value


def _models(name: str) -> list[str]:
    """Return the models that are known, where a setting is one."""
    known = [row.model for row in MODELS]
    return {"model": known, "summary_model": [EXTRACTIVE, *known]}.get(name, [])


def _of_model(name: str, value: Value) -> list[str]:
    """Say that a model is not known, where it is not: a slip of the pen costs its capabilities."""
    names = _models(name)
    if not names or value in names or capabilities_for(str(value)).model:
        return []
    return [f"{value} is no model that is known here{_near(str(value), names)}: the most cautious rules hold"]


def properties(ctx: Runtime, args: Sequence[str]) -> str:
    """`%ctx properties`: the list, or a change of it."""
    held = ctx.configuration
    before = _rows(held)
    match args:
        case []:
            numbered = [[str(number), *row] for number, row in enumerate(before, 1)]
            return format_table([["", "property", "", "what it does"], *numbered])
        case ["on", *words] if words:
            for word in words:
                _switch_on(held, word)
        case ["off", *words] if words:
            for word in words:
                held.set(_extension(word), None)
                if _value(held, _extension(word)):  # a file says that it is on
                    held.set(_extension(word), _OFF[_extension(word)])
        case ["add", name]:
            _add(ctx, name)
        case ["remove", name]:
            if name not in held.own:
                raise BadCommand(f"{name} is no property of yours{_near(name, held.own)}; %ctx properties lists them")
            held.remove(name)
            return f"{name} is taken out of the list"
        case _:
            raise BadCommand(
                "%ctx properties [on tokens=N | depth=N | message_pairing] [off …] [add NAME | remove NAME]"
            )
    return format_table([row for row in _rows(held) if row not in before]) or "nothing is other than before"


def _rows(held: Configuration) -> list[list[str]]:
    """Return all properties in their order: name, whether it is on, what it does."""
    whole = with_extensions(
        (*PROPERTIES, *held.own.values()), depth=1, message_pairing=True, tokens=1, count=lambda event: 1
    )
    on = {type(one).__name__: one for one in held.engine.past.properties}
    rows: list[list[str]] = []
    for one in whole:
        name = type(one).__name__
        if isinstance(one, OwnProperty):
            rows.append([one.name, "on, yours", _what(one.inner)])
            continue
        limit = getattr(on.get(name), "limit", None)
        state = "off" if name not in on else f"on, {limit:,}" if limit is not None else "on"
        rows.append([name, state, _what(one)])
    return rows


def _what(one: object) -> str:
    """Return the first sentence that a property says of itself."""
    said = type(one).__doc__
    if not isinstance(said, str) or said == Property.__doc__:  # that of the protocol is no word of the property
        return ""
    return one_line(" ".join(said.split()).partition(". ")[0].removesuffix("."), 110)


def _extension(word: str) -> str:
    if word not in EXTENSIONS:
        raise BadCommand(f"no property {word!r} to switch{_near(word, EXTENSIONS)}: {', '.join(EXTENSIONS)}")
    return EXTENSIONS[word]


def _switch_on(held: Configuration, word: str) -> None:
    name, sign, text = word.partition("=")
    setting = _extension(name)
    try:
        value = from_text(setting, text) if sign else checked(setting, True)
        if not value:
            raise BadPolicy(f"{name}={text} is no limit")
        held.set(setting, value)
    except BadPolicy as fault:
        raise BadCommand(
            f"%ctx properties on {word}: {fault}; write tokens=20000, depth=3 or message_pairing"
        ) from None


def _add(ctx: Runtime, name: str) -> None:
    space = ctx.shell.user_ns
    if name not in space:
        raise BadCommand(f"there is no {name!r}{_near(name, _candidates(ctx))}; define a Property, then add its name")
    try:
        ctx.configuration.add(name)
    except CtxError as fault:
        raise BadCommand(str(fault)) from None
    except Exception as fault:
        raise BadCommand(
            f"{name} is not added: tried on this history it raised {type(fault).__name__}: {fault}"
        ) from None


def _candidates(ctx: Runtime) -> list[str]:
    return [
        name
        for name, value in list(ctx.shell.user_ns.items())
        if not name.startswith("_")
        and value is not Property
        and Property in (value if isinstance(value, type) else type(value)).__mro__
    ]


def _near(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def complete(ctx: Runtime, sub: str, words: Sequence[str]) -> list[str]:
    """Return what may follow `%ctx config …` and `%ctx properties …`."""
    held, given = ctx.configuration, words[2:]
    if sub == "config":
        if not given:
            return list(SPECS)
        name = given[0]
        if name not in SPECS or len(given) > 1:
            return []
        values = (
            ["true", "false"] if isinstance(DEFAULTS[name], bool) else [one or "auto" for one in SPECS[name].choices]
        )
        return [*(values or _models(name)), "--reset"]
    match given[:1]:
        case []:
            return ["on", "off", "add", "remove"]
        case ["on"]:
            return ["tokens=", "depth=", "message_pairing"]
        case ["off"]:
            return list(EXTENSIONS)
        case ["add"]:
            return _candidates(ctx)
        case ["remove"]:
            return list(held.own)
        case _:
            return []
