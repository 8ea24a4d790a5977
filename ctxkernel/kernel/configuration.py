"""The settings of a running kernel, and the projection engine that is built from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from ctxkernel.core.settings import SPECS, Settings, SettingValue, from_text
from ctxkernel.core.turn_values import Turn
from ctxkernel.history.events import HistoryEvent
from ctxkernel.history.invariants import PROPERTIES, Condensations, OwnProperty
from ctxkernel.kernel.display.notices import Notices
from ctxkernel.kernel.execution.authority import refuse_model
from ctxkernel.kernel.execution.guard import Guard
from ctxkernel.kernel.execution.interrupts import Interrupts
from ctxkernel.projection.engine import Projection, ProjectionEngine
from ctxkernel.projection.masker import Masker
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
        masker: Masker,
    ) -> None:
        self._shell = shell
        self._notices = notices
        self._interrupts = interrupts
        self._state = state
        self._apply_to_parts = apply
        self._keep_mark = keep_mark
        self.masker = masker
        self._revision = 0
        """The revision of the masker that the engine's texts were made with."""
        self.folder = notebook_folder(os.environ, os.getcwd())
        """The folder of the notebook."""
        self._guard = guard
        base = self._base = self._read()
        self.session: dict[str, SettingValue] = {}
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

    def _read(self) -> config.Configured:
        return self._guard("settings", lambda: config.read_settings(os.environ, self.folder), config.Configured())

    def read_again(self) -> None:
        """Read the files of settings again, for example because the user trusts one now. Raises BadPolicy."""
        self._base = self._read()
        self.notices = list(self._base.notices)
        self._apply(self.session)

    def built(self, settings: Settings, private: Iterable[str] = ()) -> ProjectionEngine:
        """Return a new engine with the user's properties, under other settings and with more private names.

        Raises BadPolicy.
        """
        given: dict[str, Any] = {
            "properties": (*PROPERTIES, *self.own.values()),
            "private": self.private.union(private),
            "mask": self.masker,
        }
        return ProjectionEngine(settings, count_tokens, **given)

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
        """Call `ProjectionEngine.tend`."""
        if self.masker.revision != self._revision:
            self._follow_masker()
        return (
            self._without_faults(lambda: self.engine.tend(turn, moment)) if self.own else self.engine.tend(turn, moment)
        )

    def _follow_masker(self) -> None:
        """Make the history again if it shows a value that became known since."""
        self._revision = self.masker.revision
        if self.engine.forget_masked(self.masker.reveals):
            self._apply(self.session)

    def project(self, turn: Turn) -> Projection:
        """Call `ProjectionEngine.project`."""
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

    def too_small(self) -> str:
        """Return that the budget is too small for instructions and tools, without which no model is asked, or ""."""
        budget, least = self.engine.settings.projection_tokens, self.engine.least_budget
        if budget >= least:
            return ""
        return (
            f"projection_tokens is {budget:,}, which has no room for the instructions and tools of a model: "
            f"an ask needs at least {least:,}"
        )

    # -- changing -----------------------------------------------------------------------------

    def origin(self, name: str) -> str:
        """Return where a value is from."""
        return "this session" if name in self.session else self._base.origins.get(name, "default")

    def set(self, name: str, value: SettingValue | None) -> None:
        """Set a setting for this session; None: as it was before. Raises BadPolicy, and changes nothing."""
        refuse_model(f"%ctx config {name}")
        others = {key: one for key, one in self.session.items() if key != name}
        self._apply(others if value is None else {**others, name: value})
        self._keep_mark(name, "setting", None if value is None else str(value) or "auto")

    def add(self, name: str) -> None:
        """Add a property of the user's namespace to the list. Raises BadPolicy, and whatever the property raises."""
        refuse_model("%ctx properties")
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
        """Keep names out of every projection from now on, or show them again."""
        refuse_model("%ctx private")
        named = frozenset(names)
        self.private = self.private | named if hidden else self.private - named
        self._apply(self.session)
        for name in sorted(named):
            self._keep_mark(name, "private", "yes" if hidden else None)

    def allow(self, names: Iterable[str], *, allowed: bool) -> None:
        """Show what was masked under these names or kinds from now on, or mask it again."""
        named = list(names)
        self.masker.allow(named, allowed=allowed)
        self._apply(self.session)
        for name in named:
            self._keep_mark(name, "allow", "yes" if allowed else None)

    def remove(self, name: str) -> None:
        """Remove a property of the user's. Raises KeyError."""
        refuse_model("%ctx properties")
        del self.own[name]
        self._apply(self.session)
        self._keep_mark(name, "property", None)

    def recall(self, marks: Mapping[tuple[str, str], Any]) -> None:
        """Restore the configuration of an earlier kernel of this session, and tell what is not possible."""
        found: dict[str, SettingValue] = {}
        private: set[str] = set()
        allowed: list[str] = []
        for (name, mark), text in marks.items():
            try:
                if mark == "setting" and name in SPECS:
                    found[name] = from_text(name, str(text))
                elif mark == "property":
                    self.add(name)
                elif mark == "private":
                    private.add(name)
                elif mark == "allow":
                    allowed.append(name)
            except Exception as fault:  # the user's code, or a mark of another version
                self._notices.kept.append(f"{mark} {name} is not back: {type(fault).__name__}: {fault}"[:300])
        if allowed:
            self.masker.allow(allowed, allowed=True)
        if found or private or allowed:
            self.private |= private
            self._apply({**found, **self.session})

    def _apply(self, session: Mapping[str, SettingValue]) -> None:
        settings = replace(self._base.settings, **session)
        engine = self.built(settings)
        engine.take_over(self.engine, self._state())
        self._revision = self.masker.revision
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
