"""The settings of a running kernel, and the projection engine that is built of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ctxkernel.core.settings import SPECS, Settings, Value, from_text
from ctxkernel.core.turn import Turn
from ctxkernel.history.events import HistoryEvent
from ctxkernel.history.invariants import PROPERTIES, Condensations, OwnProperty
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.store import config
from ctxkernel.store.log.location import notebook_folder

if TYPE_CHECKING:
    from ctxkernel.kernel.runtime import Runtime

T = TypeVar("T")


class Configuration:
    """The settings with where they are from, and the engine that is built of them: the loop projects with this."""

    def __init__(self, ctx: Runtime) -> None:
        self._ctx = ctx
        base = ctx.guard("settings", lambda: config.read_settings(os.environ, _folder()), config.Configured())
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
