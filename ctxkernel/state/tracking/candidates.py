"""The variables that a cell can touch, by its text and by what stands behind the names in it.

Rule 1: a cell can touch the variables that it mentions, what the functions, classes and instances behind them use, and
        what is stored together with one of these.
Rule 2: where a function can reach any variable, all are candidates, and the reason is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from ctxkernel.core.state_names import CLASS, LABELS, SHARED
from ctxkernel.state.base.code_objects import code_facts
from ctxkernel.state.base.namespace import NOTHING, Variable, is_atom
from ctxkernel.state.tracking.cell_names import ANYTHING_IN_A_FUNCTION, CellNames
from ctxkernel.state.tracking.groups import Group
from ctxkernel.state.tracking.packed_variables import PackedVariables
from ctxkernel.state.tracking.read_names import RUNS_REST, names_read_first

MOST_DEFERRALS = 2
"""Jobs that may pack the same variables at one time."""
REFRESH_SECONDS = 0.001
"""Processor time for packing the candidates of a cell before it runs: changes outside of any cell."""


class CandidateNames(PackedVariables):
    """Packed variables, and those of them that the running cell can touch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._cell = CellNames()
        self._candidates: set[str] = set()
        self._beyond: set[str] = set()
        """Names that the running cell can read and that are no variables: classes by their labels, absent names."""
        self._unpacked = True
        """Whether some variables may not be packed yet."""

    def _find_candidates(self, cell: CellNames) -> None:
        """Find the variables that a cell can touch, and pack those that were not packed yet."""
        self._catch_up(cell)
        if self._unpacked:
            # Objects that names share are found only where the names were packed at one moment.
            self._unpacked = False
            self._baseline([name for name in sorted(self._complex()) if name not in self._groups])
        self._candidates, anything, self._beyond = self._reachable(cell)
        if anything:
            self._cell = replace(cell, anything=anything)
            self._candidates |= (names := self._complex())
            self._baseline([name for name in names if name not in self._groups])
            self._beyond |= {name for name in self._groups if name.startswith(CLASS)}

    def _catch_up(self, cell: CellNames) -> None:
        """Wait once for the background to pack many small variables, if the cell touches a few of them.

        While it is not known what they share, a cell that touches one has to compare all. So if cells come faster than
        the background packs, each adds a job that packs all of them again: wait then, too.
        """
        known = {name: self._groups[name] for name in self._groups.keys() & cell.names}
        awaited = {name: group for name, group in known.items() if not group.key}
        due = [
            group
            for group in awaited.values()
            if len(group.names) > 2 * len(awaited)
            and (group.deferrals >= MOST_DEFERRALS or not (group.waited or group.seconds))
        ]
        if due:
            for group in awaited.values():
                group.waited, group.deferrals = True, 0
            self.catch_up(awaited)

    def _read_first(self, source: str, cell: CellNames) -> set[str] | None:
        """Return the candidates that a cell can read before it binds them; None where these are all candidates."""
        has_magics = cell.magics and not RUNS_REST.match(source)
        if cell.anything or has_magics or cell.replaced.isdisjoint(self._variables):
            return None
        first = names_read_first(source)
        if first is None:
            return None
        found, _, self._beyond = self._reachable(replace(cell, names=cell.names - (cell.replaced - first)))
        return found

    def _reachable(self, cell: CellNames) -> tuple[set[str], str, set[str]]:
        """Return the variables that a cell can touch, why it may touch any (or an empty text), and other names.

        The other names are those of classes, by their labels, and names that have no value.
        """
        anything = cell.anything
        touched: set[str] = set()
        todo, seen, taken = list(cell.names), set[str](), dict[int, Group]()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            group, variable = self._groups.get(name), self._variables.get(name)
            if group is None and variable is None:
                todo += self._behind(name)
                continue
            if variable is not None:
                touched.add(name)
                if group is None and variable.atom is NOTHING:
                    self._baseline([name])
                    group = self._groups.get(name)
            if group is None or id(group) in taken:  # its names lead to the same ones
                continue
            taken[id(group)] = group
            todo += group.names
            if not group.key:  # it was not packed yet: what code names is known all the same
                todo += itertools.chain.from_iterable(map(self._named_by, group.names))
            todo += (label for label in group.labels if label.startswith(CLASS))
            reached = ANYTHING_IN_A_FUNCTION & group.deps
            if reached and not anything:
                anything = f"{name} ({min(reached)})"
            todo += group.deps
        return touched, anything, seen - touched

    def named(self) -> set[str]:
        """Return the names in the text of the cell, and in the code behind them; not what only refers to these."""
        todo, seen = list(self._cell.names), set[str]()
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                group = self._groups.get(name)
                todo += self._behind(name) if group is None else (*group.deps, *self._named_by(name))
        return seen

    def _behind(self, name: str) -> list[str]:
        """Return the names behind one that is no variable of the user's: `_5`, a function of a start-up file."""
        if named := self._named_by(name):
            return named
        value = self.namespace.get(name, NOTHING)
        if name.startswith("_") and value is not NOTHING and not is_atom(value):
            same = [one for one in self._variables if self._value(one) is value]
            return same or list(self._complex())  # a part of something, or of nothing
        return []

    def _named_by(self, name: str) -> list[str]:
        """Return the global names in the code of a function of the notebook."""
        value = self.namespace.get(name, NOTHING)
        is_function = type(value) is FunctionType and value.__globals__ is self.namespace
        return list(code_facts(value.__code__).names) if is_function else []

    def _add(self, name: str) -> None:
        variable = self._variables[name] = Variable(turn=self.turn)
        self.pending.names.add(name)
        if is_atom(value := self._value(name)):
            variable.atom = value

    def _forget(self, name: str) -> None:
        self._variables.pop(name, None)
        self._groups.pop(name, None)

    def _labels(self) -> set[str]:
        """Return the labels of the known classes of the user's and objects with packs of their own."""
        return {name for name in self._groups if name.startswith(LABELS)}

    def _quick(self) -> list[str]:
        """Return those of the candidates that are packed again in a moment, the quickest first."""
        known = {name: group for name in self._candidates if (group := self._groups.get(name)) is not None}
        each = {id(group): group for group in known.values() if group.key}
        left, quick = REFRESH_SECONDS, set[int]()
        for group in sorted(each.values(), key=lambda one: one.seconds + one.hashing):
            left -= group.seconds + group.hashing
            if left < 0:
                break
            quick.add(id(group))
        return [name for name, group in known.items() if id(group) in quick]

    def take_result(self, names: Sequence[str], listed: Mapping[str, Any]) -> None:
        """Take in the result of a background job for these names, where no later cell touched them."""
        if not self.pending.names.isdisjoint(names):
            return
        shared = [label for label in (*names, *listed["a"]) if label.startswith(SHARED)]
        if any(self.packer.labels.object(label) is None for label in shared):
            # The job found that they share something, and gave it a label: this process has to find that itself.
            for name in names:
                self._groups.pop(name, None)
            self._unpacked = True
            return
        known = bytes.fromhex(listed["k"]), tuple(listed["a"]), frozenset(listed["e"]), float(listed["z"])
        if (group := self._groups.get(names[0])) is not None and group.key == known[0]:
            return
        self._groups |= dict.fromkeys(names, Group(tuple(names), *known))
