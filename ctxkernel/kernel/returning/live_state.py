"""The state of the interpreter beside the user's variables: results, targets of handles, modules, ambient parts.

A checkpoint names these by pseudo-names: `Out[3]`, `target:v1`, `handle:v1`, `module:mine`, `ambient:random`.
"""

from __future__ import annotations

import decimal
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ctxkernel.core.state_names import (
    AMBIENT,
    HANDLE,
    LAST,
    LAST_RESULTS,
    MODULE,
    NUMBERED_RESULT,
    RESULT,
    TARGET,
    is_bound,
    is_of_result,
)
from ctxkernel.kernel.execution.cell import CellRequest
from ctxkernel.kernel.execution.cell_sources import give_sources
from ctxkernel.kernel.returning.return_services import ReturnServices
from ctxkernel.replay.notebook_outputs import captured_outputs
from ctxkernel.state.ambient import LIBRARY_ATTRIBUTES, LIBRARY_CALLS, PARTS, SHELL_CALLBACKS, WIDGETS, Ambient, passive
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.base.own_modules import ATTRIBUTES, IN_PLACE, LOGGING, PYPLOT, SHELL, OwnModule, loaded_own_modules
from ctxkernel.state.checkpoints.units import State
from ctxkernel.state.tracking.set_attributes import set_attributes

_RESULT = re.compile(r"Out\[(\d+)\]")
_ANNOTATIONS = "__annotations__"
"""The dict that Python binds for `x: int = 1`. It is followed as a name of a result that the user bound is."""
_OWN = -1
"""In the value of `LAST`: the user bound or deleted this name."""


class LiveState:
    """The present state of the interpreter, and what of it changed since the last checkpoint."""

    def __init__(self, session: ReturnServices) -> None:
        self._session = session
        self._tracker, self._graph = session.tracker, session.loop.graph
        self.own_modules = session.packer.own_modules
        self.ambient = Ambient()
        self.ambient_first = self.ambient.capture()
        """The ambient parts as the process began; the first checkpoint holds them."""
        self.ambient_start = dict(self.ambient_first)
        """The ambient parts that `goto 0` goes back to."""
        self.ambient_known = set(self.ambient_first)
        """The parts that were captured or restored: a cell after that changed them, where they differ."""
        self.ambient_changed: dict[str, tuple[str, ...]] = {}
        self.ambient_loaded: frozenset[str] = frozenset()
        """The parts of the libraries that the newest execution loaded."""
        """Execution → ambient parts that it changed."""
        self._outs: set[int] = set()
        """Numbers of the watched entries of `Out`."""
        self._logging: Any = next(part for part in PARTS if part.name == "logging")
        self._figures: Any = next(part for part in PARTS if part.name == "pyplot")
        self.caches: Any = next(part for part in PARTS if part.name == "function caches")
        IN_PLACE[LOGGING] = self._logging.own_objects
        IN_PLACE[ATTRIBUTES] = LIBRARY_ATTRIBUTES.own_objects
        IN_PLACE[SHELL] = SHELL_CALLBACKS.own_objects
        self._arithmetic = decimal.getcontext()
        """The current context of `decimal` after the last cell."""
        self._modules_at_start = frozenset(sys.modules)
        self._modules_seen: tuple[Any, ...] = ()
        self._gone: list[str] = []
        """Pseudo-names that went away since the last checkpoint."""
        self._last_seen: tuple[Any, ...] = ()
        self._own: frozenset[str] = frozenset()
        """Which of `_`, `__`, `___`, `_1` … the user bound or deleted."""
        self._bound: frozenset[str] = frozenset()
        """Those that the user bound: they are watched."""
        self.mementos: Mapping[str, Any] = {}
        """The handles as of the last checkpoint."""
        self._targets: dict[str, int] = {}
        """Pseudo-names of the objects that handles look at → ids of the objects."""

    @property
    def _outputs(self) -> dict[int, Any]:
        return self._session.namespace.get("_oh", {})

    def value(self, name: str) -> Any:
        """Return a variable, or the value of a pseudo-name; NOTHING if there is none."""
        if result := _RESULT.fullmatch(name):
            return self._outputs.get(int(result[1]), NOTHING)
        if name.startswith(TARGET):
            return self._graph.targets().get(name.removeprefix(TARGET), NOTHING)
        if name.startswith(MODULE):
            module = self.own_modules.get(name.removeprefix(MODULE))
            return NOTHING if module is None else module.variables()
        if name not in self._own and is_of_result(name):
            return NOTHING
        return self._session.namespace.get(name, NOTHING)

    # -- changes ------------------------------------------------------------------------------

    def changes(self, *, everything: bool) -> tuple[dict[str, Any], list[str]]:
        """Return the plain parts of the state that changed, and the names of those that went away.

        With `everything`, return all plain parts, and let `ambient_changes` do so.
        """
        changed: dict[str, Any] = {}
        gone, self._gone = self._gone, []
        gone += self._follow_outs()
        outs = self._outputs
        if everything:
            self.ambient_first = {**self.ambient.captured(), **self.ambient_first}
        if self._last_seen != (seen := (len(outs), next(reversed(outs), 0), self._own)) or everything:
            self._last_seen = seen
            changed[LAST] = self._last_results()
        mementos, old = self._graph.memento(), self.mementos
        if mementos or old:
            changed |= {HANDLE + key: one for key, one in mementos.items() if everything or old.get(key) is not one}
            gone += [HANDLE + key for key in old if key not in mementos]
            self.mementos = mementos
            gone += self.follow_targets()
        return changed, gone

    def ambient_changes(self, execution_id: str) -> dict[str, Any]:
        """Return the ambient parts that an execution changed, by pseudo-name; with the first ones, once."""
        # A cell that names nothing runs nothing that could draw a number or set an option.
        idle = self.ambient_first == {} and self._tracker.named_nothing
        if WIDGETS.loaded and not idle:
            WIDGETS.expect(*captured_outputs(self._session.loop.log.execution(execution_id)))
        parts = {} if idle else self.ambient.capture(bound=self._tracker.take_bound())
        self.ambient_loaded = frozenset(parts.keys() - self.ambient_known)
        if not parts and not self.ambient_first:
            return {}
        if others := tuple(name for name in parts if name in self.ambient_known and not passive(name)):
            self.ambient_changed[execution_id] = others
        self.ambient_known.update(parts)
        parts, self.ambient_first = {**self.ambient_first, **parts}, {}
        return {AMBIENT + name: value for name, value in parts.items()}

    def note_start(self) -> None:
        """Note the ambient parts before the first cell: changes of the kernel until then are not the cell's."""
        self.ambient.begin()
        first = self.ambient.capture()
        self.ambient_first |= first
        self.ambient_start = dict(self.ambient_first)
        self.ambient_known.update(first)

    def before_cell(self, request: CellRequest) -> None:
        """Take in what came to widgets since the last cell, and what libraries have that a cell is about to set.

        A return sets the attributes of libraries as they were.
        """
        WIDGETS.settle()
        found = set_attributes(request.code, self._session.shell.transform_cell)
        if found.paths or LIBRARY_ATTRIBUTES.active:
            LIBRARY_ATTRIBUTES.watch(found.paths, self._session.namespace, found.imports)
        LIBRARY_CALLS.watch(found.calls, self._session.namespace)

    def follow(self) -> None:
        """Watch what the cell that just ended put into `Out`, what handles look at now, and the user's modules."""
        self._gone += [*self._follow_outs(), *self.follow_targets()]
        if self._tracker.named_nothing:  # it called nothing that could import a module or register an object
            return
        self._follow_modules()
        self._follow_objects(ATTRIBUTES)
        self._follow_objects(SHELL)
        if (current := decimal.getcontext()) is not self._arithmetic:
            self._arithmetic = current
            self._tracker.suspect_all("another context of decimal is the current one")  # variables may hold both

    def _follow_modules(self) -> None:
        """Watch the variables of the user's own modules, pyplot's figures and the user's log handlers."""
        loaded, known = loaded_own_modules(), self.own_modules
        more: list[str] = []
        if PYPLOT in sys.modules and PYPLOT not in known:
            more.append(PYPLOT)
        if LOGGING in sys.modules and LOGGING not in known and self._logging.own_objects():
            more.append(LOGGING)
        if loaded is not self._modules_seen or more:
            self._modules_seen = loaded
            for name in dict.fromkeys((*(module.__name__ for module in loaded), *more)):
                if name not in known:
                    known[name] = OwnModule(name)
                    self._tracker.watch(MODULE + name)

    def unload_modules(self, names: Iterable[str]) -> None:
        """Remove modules from the process that a cell loaded from a Python file."""
        for name in names:
            if name not in self._modules_at_start and self.own_modules[name].unload():
                del self.own_modules[name]
                self._tracker.unwatch(MODULE + name)

    def _follow_objects(self, place: str) -> None:
        """Watch the objects that cells put into the attributes of libraries, or the shell, as long as there are any."""
        has_objects, name = bool(IN_PLACE[place]()), MODULE + place
        if has_objects == (place in self.own_modules):
            return
        if has_objects:
            self.own_modules[place] = OwnModule(place)
            self._tracker.watch(name, always=True)
        else:
            del self.own_modules[place]
            self._tracker.unwatch(name)
            self._gone.append(name)

    def _follow_outs(self) -> list[str]:
        """Watch the present entries of `Out`; return the names of those that went away."""
        outs = self._outputs
        before, self._own = self._bound, self._own_results(outs)
        self._bound = self._own & self._session.namespace.keys()
        gone, more = [*(before - self._bound)], [*(self._bound - before)]
        if len(outs) != len(self._outs) or (outs and next(reversed(outs)) not in self._outs):
            gone += [f"{RESULT}{number}]" for number in self._outs if number not in outs]
            more += [f"{RESULT}{number}]" for number in outs if number not in self._outs]
            self._outs = set(outs)
        for name in gone:
            self._tracker.unwatch(name)
        for name in more:
            self._tracker.watch(name)
        return gone

    def _own_results(self, outs: Mapping[int, Any]) -> frozenset[str]:
        """Return the names of results that stand for something else, or for nothing; with that of annotations."""
        namespace, hook = self._session.namespace, self._session.shell.displayhook
        own = {_ANNOTATIONS} & namespace.keys()
        for name in LAST_RESULTS:
            if (value := namespace.get(name, NOTHING)) is getattr(hook, name, NOTHING):
                continue
            # Once a cell binds `_`, IPython leaves `__` and `___` as they are: they are still names of results.
            if name == "_" or not any(one is value for one in outs.values()):
                own.add(name)
        if not self._tracker.may_bind(NUMBERED_RESULT):
            return frozenset(own | {name for name in self._own if NUMBERED_RESULT.fullmatch(name)})
        own |= {name for number, one in outs.items() if namespace.get(name := f"_{number}", NOTHING) is not one}
        numbers = (found for name in namespace if type(name) is str and (found := NUMBERED_RESULT.fullmatch(name)))
        return frozenset(own | {found[0] for found in numbers if int(found[1]) not in outs})

    def follow_targets(self) -> list[str]:
        """Watch the objects that handles look at now; return the names of those that went away.

        A handle holds its object until it has the next one, so another object has another id.
        """
        looked_at = self._graph.targets()
        if not looked_at and not self._targets:
            return []
        targets = {TARGET + obj_id: id(one) for obj_id, one in looked_at.items() if not isinstance(one, str)}
        for name, known in self._targets.items():
            if targets.get(name) != known:
                self._tracker.unwatch(name)
        for name, now in targets.items():
            if self._targets.get(name) != now:
                self._tracker.watch(name)
        gone = [name for name in self._targets if name not in targets]
        self._targets = targets
        return gone

    def _last_results(self) -> dict[str, int]:
        """Return which entries of `Out` the names `_`, `__` and `___` stand for, and which names are the user's own."""
        namespace, outs = self._session.namespace, self._outputs
        found = dict.fromkeys(sorted(self._own), _OWN)
        for name in [one for one in LAST_RESULTS if one not in found]:
            value = namespace.get(name, NOTHING)
            number = next((number for number in reversed(outs) if outs[number] is value), None)
            if number is not None:
                found[name] = number
        return found

    # -- returning ----------------------------------------------------------------------------

    def bind(self, values: Mapping[str, Any], gone: Sequence[str]) -> None:
        """Set and remove names and pseudo-names."""
        namespace, outs = self._session.namespace, self._outputs
        # Even if the names stand for the same entries, those may be other objects.
        last = values[LAST] if LAST in values else {} if LAST in gone else self._last_results()
        for name in gone:
            if result := _RESULT.fullmatch(name):
                outs.pop(int(result[1]), None)
                namespace.pop(f"_{result[1]}", None)
            elif is_bound(name):
                namespace.pop(name, None)
                if name in self._session.at_start.values:
                    namespace[name] = self._session.at_start.values[name]
        there = {name for name in self._own if name in namespace}
        self._follow_modules()  # what loading imported, as its file defines it: before cells' changes are put back
        for name, value in values.items():
            if result := _RESULT.fullmatch(name):
                outs[int(result[1])] = namespace[f"_{result[1]}"] = value
            elif name.startswith(MODULE):
                module = name.removeprefix(MODULE)
                if module in self.own_modules:  # else it cannot be imported any more
                    self.own_modules[module].put_back(value)
            elif is_bound(name):
                namespace[name] = value
        if any(map(_RESULT.fullmatch, values)):
            for number in sorted(outs):
                outs[number] = outs.pop(number)
        self._bind_results(outs, last, there | values.keys())
        # Loading a value can import a module of the user's: the tracker packs it with what shares its objects.
        self._follow_outs()
        self._follow_modules()

    def _bind_results(self, outs: Mapping[int, Any], last: Mapping[str, int], own: Collection[str]) -> None:
        """Bind the names of results; IPython keeps a second record of them. `own`: names that the user bound."""
        shell = self._session.shell
        for name in {*LAST_RESULTS, *self._own, *last}:
            if last.get(name) == _OWN:
                if name not in own:
                    self._session.namespace.pop(name, None)
            elif name in LAST_RESULTS:
                result = outs.get(last.get(name, -1), "")
                shell.push({name: result}, interactive=False)
                setattr(shell.displayhook, name, result)
            elif (found := NUMBERED_RESULT.fullmatch(name)) and int(found[1]) in outs:
                shell.push({name: outs[int(found[1])]}, interactive=False)
            else:
                self._session.namespace.pop(name, None)

    @staticmethod
    def result_numbers(names: Collection[str]) -> list[int]:
        """Return the numbers of the results among names."""
        return sorted(int(found[1]) for name in names if (found := _RESULT.fullmatch(name)))

    def show_result(self, number: int) -> None:
        """Make an entry of `Out` the last result, as IPython does when a cell has one."""
        namespace, hook = self._session.namespace, self._session.shell.displayhook
        for name, value in (("___", hook.__), ("__", hook._), ("_", self._outputs[number])):
            if name not in self._own:
                self._session.shell.push({name: value}, interactive=False)
                setattr(hook, name, namespace[name])

    def continue_cells(self, execution_id: str | None) -> None:
        """Give the next prompt a number after all results, also those of an earlier kernel, to keep them all.

        The functions that were loaded get the sources of their cells, which lead to an execution.
        """
        shell, packer = self._session.shell, self._session.packer
        path = reversed(self._session.loop.log.path(execution_id))
        give_sources(shell, packer.code_files, ((one.statement_id, one.source) for one, _ in path))
        packer.code_files.clear()
        skipped = max(0, 1 + max(self._outputs, default=0) - shell.execution_count)
        shell.execution_count += skipped
        for listed in (shell.history_manager.input_hist_parsed, shell.history_manager.input_hist_raw):
            listed += [""] * skipped

    def ambient_values(self, names: Collection[str], loaded: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of ambient parts: the loaded one, else that of now."""
        known = {AMBIENT + name: value for name, value in self.ambient.captured().items()} | dict(loaded)
        return {name: known[AMBIENT + name] for name in names if AMBIENT + name in known and AMBIENT + name != LAST}

    @staticmethod
    def adopt_copies(before: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Tell the ambient parts which objects were loaded to replace those that they hold."""
        both = [(old, values[name]) for name, old in before.items() if name in values]
        replaced = {id(old): new for old, new in both if type(new) is type(old)}
        lives: list[Any] = [live for part in PARTS if (live := getattr(part, "live", None)) is not None]
        for live in lives:
            for token, obj in live:
                owner = getattr(obj, "__self__", None)  # of a method, held as an observer is
                if id(obj) in replaced:
                    live.adopt(token, replaced[id(obj)])
                elif owner is not None and id(owner) in replaced:
                    live.adopt(token, getattr(replaced[id(owner)], obj.__name__))

    def adopt_objects(self, parts: Mapping[str, Any], values: Mapping[str, Any], target: State) -> list[str]:
        """Tell the parts that put figures and handlers in place which ones were loaded.

        Returns the loggers that stay as they are.
        """
        figures = values.get(MODULE + PYPLOT, {})
        for number, _, token, _ in parts.get("pyplot", ()):
            if str(number) in figures:
                self._figures.live.adopt(token, figures[str(number)])
        LIBRARY_ATTRIBUTES.put_back(values.get(MODULE + ATTRIBUTES, {}))
        SHELL_CALLBACKS.put_back(values.get(MODULE + SHELL, {}))
        if (name := MODULE + LOGGING) in values or name not in target:
            return self._logging.put_back(values.get(name, {}))
        return []
