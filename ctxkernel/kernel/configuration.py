"""The settings of a running kernel, and the projection engine that is built from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from ctxkernel.core.settings import SPECS, Settings, Value, from_text
from ctxkernel.core.turn import Turn
from ctxkernel.history.events import HistoryEvent
from ctxkernel.history.invariants import PROPERTIES, Condensations, OwnProperty
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.kernel.execution.guard import Guard
from ctxkernel.kernel.execution.interrupts import Interrupts
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.tokens import count_tokens
from ctxkernel.store import config
from ctxkernel.store.log.location import notebook_folder

T = TypeVar("T")


class Configuration:
    """The settings with their origins, and the engine that is built from them: the loop projects with this.

    `state()` returns the state that the last projection was built from; `apply(settings)` passes new settings on to
    the other parts; `keep_mark(subject, mark, value)` writes to the log.
    """

    def __init__(
        self,
        *,
        shell: Any,
        guard: Guard,
        notices: Notices,
        interrupts: Interrupts,
        state: Callable[[], Turn],
        apply: Callable[[Settings], None],
        keep_mark: Callable[[str, str, str | None], None],
    ) -> None:
        self._shell = shell
        self._notices = notices
        self._interrupts = interrupts
        self._state = state
        self._apply_to_parts = apply
        self._keep_mark = keep_mark
        folder = notebook_folder(os.environ, os.getcwd())
        base = self._base = guard("settings", lambda: config.read(os.environ, folder), config.Configured())
        self.session: dict[str, Value] = {}
        """The settings that `%ctx config` set."""
        self.own: dict[str, OwnProperty] = {}
        """The user's properties, in order."""
        self.private: frozenset[str] = frozenset()
        """Names that are in no projection."""
        self.notices = list(base.notices)
        self.untold = list(base.notices)
        """Notices of the start, which the first cell tells."""
        self.settings = base.settings
        self.engine = self.built(base.settings)

    def built(self, settings: Settings) -> ProjectionEngine:
        """Return a new engine with the user's properties, under other settings. Raises BadPolicy."""
        listed = (*PROPERTIES, *self.own.values())
        return ProjectionEngine(settings, count_tokens, properties=listed, private=self.private)

    def tell_first(self, notice: str) -> None:
        """Let the first cell tell a notice: at the start there is no cell to show it."""
        self.untold.append(notice)

    def tell_once(self) -> None:
        """Tell the notices of the start."""
        for notice in self.untold:
            self._notices.tell(f"ctxkernel: {notice}")
        self.untold.clear()

    # -- projecting ---------------------------------------------------------------------------

    def tend(self, turn: Turn, moment: str = "request") -> list[HistoryEvent | str]:
        """As `ProjectionEngine.tend`."""
        return (
            self._without_faults(lambda: self.engine.tend(turn, moment)) if self.own else self.engine.tend(turn, moment)
        )

    def project(self, turn: Turn) -> Projection:
        """As `ProjectionEngine.project`."""
        if not self.own:
            return self.engine.project(turn)
        return self._without_faults(lambda: self.engine.project(turn))

    def _without_faults(self, run: Callable[[], T]) -> T:
        made = run()
        while faulty := [one for one in self.own.values() if one.fault]:
            for one in faulty:
                del self.own[one.name]
                self._keep_mark(one.name, "property", None)
                told = f"the property {one.name} is off ({one.fault}); %ctx properties add {one.name} tries it again"
                self._notices.keep(told)
            self.engine = self.built(self.settings)
            made = run()
        return made

    # -- changing -----------------------------------------------------------------------------

    def origin(self, name: str) -> str:
        """Return where a value is from."""
        return "this session" if name in self.session else self._base.origins.get(name, "default")

    def set(self, name: str, value: Value | None) -> None:
        """Set a setting for this session; None: as it was before. Raises BadPolicy, and changes nothing."""
        others = {key: one for key, one in self.session.items() if key != name}
        self._apply(others if value is None else {**others, name: value})
        self._keep_mark(name, "setting", None if value is None else str(value) or "auto")

    def add(self, name: str) -> None:
        """Add a property of the user's namespace to the list. Raises BadPolicy, and whatever the property raises."""
        inner = self._shell.user_ns[name]
        if isinstance(inner, type):
            inner = inner()
        before = [one for one in PROPERTIES if not isinstance(one, Condensations)]
        made = OwnProperty(name, inner, before, self._interruptible)
        made.attempt(self.engine.past.view.events)
        self.own[name] = made
        self._apply(self.session)
        self._keep_mark(name, "property", "on")

    def hide(self, names: Iterable[str], *, hidden: bool) -> None:
        """Keep names out of every projection from now on, or let them in again."""
        named = frozenset(names)
        self.private = self.private | named if hidden else self.private - named
        self._apply(self.session)
        for name in sorted(named):
            self._keep_mark(name, "private", "yes" if hidden else None)

    def remove(self, name: str) -> None:
        """Remove a property of the user's. Raises KeyError."""
        del self.own[name]
        self._apply(self.session)
        self._keep_mark(name, "property", None)

    def recall(self, marks: Mapping[tuple[str, str], Any]) -> None:
        """Restore the configuration of an earlier kernel of this session, and tell what is not possible."""
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
                self._notices.kept.append(f"{mark} {name} is not back: {type(fault).__name__}: {fault}"[:300])
        if found or private:
            self.private |= private
            self._apply({**found, **self.session})

    def _apply(self, session: Mapping[str, Value]) -> None:
        settings = replace(self._base.settings, **session)
        engine = self.built(settings)
        engine.take_over(self.engine, self._state())
        self.engine, self.settings, self.session = engine, settings, dict(session)
        self._apply_to_parts(settings)

    @contextmanager
    def _interruptible(self) -> Generator[None]:
        # The user's cell can be interrupted anyway; after it, only the user's own code may be.
        if self._interrupts.masked:
            with self._interrupts.user_code():
                yield
        else:
            yield
