"""The reads and writes of each execution, for the graph that tells stale cells (`replay.dependencies`).

Rule 1: facts are taken at the end of the cell, when the tracker still knows them; they cost microseconds. The text of a
        cell is analysed further only if it has a word that can mean the clock, the network, a file, ….
Rule 2: in doubt a repetition may give another result.
"""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ctxkernel.core.reflection import class_dict, class_of, is_kind, is_own_class
from ctxkernel.core.text import join_names
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.kernel.execution.cell import only_commands
from ctxkernel.replay.dependencies import CellRun
from ctxkernel.state.base.code_objects import attribute_names, used_names
from ctxkernel.state.tracking.cell_names import read_cell
from ctxkernel.state.tracking.tracker import NamespaceTracker

FOLDER = "the working folder"
ARITHMETIC = "the settings of decimal"
_PARTS = {"working folder": FOLDER, "decimal": ARITHMETIC}
"""Parts of the ambient state that cells read → their names in the graph."""
_GENERATORS = frozenset(("random", "numpy random", "torch random"))

_CLOCK = (
    r"(?:time|perf_counter|monotonic|process_time|thread_time|clock_gettime)(?:_ns)?|ctime|localtime|gmtime|strftime"
    r"|now|utcnow|today|default_timer|timeit"
)
_ENTROPY = r"secrets|uuid[14]|urandom|getrandom|SystemRandom|tempfile|default_rng|RandomState|Random"
_NETWORK = r"requests|httpx|urllib\w*|aiohttp|urlopen|urlretrieve|fetch_\w+|socket"
_ENVIRONMENT = r"environ|getenv|getpid|getppid|cpu_count|platform|psutil|getcwd|gethostname"
_LISTING = r"iterdir|glob|rglob|listdir|scandir|walk|stat|exists|is_file|is_dir|getmtime|getsize"
_FILES = r"open|read_\w+|load\w*|imread|connect|File|scan_\w+|memmap|fromfile"
_UNSEEN = r"read_(?:parquet|feather|orc|hdf|ipc)|scan_\w+|File|imread|memmap|VideoCapture"
_OUTSIDE = {
    "it may read the clock": _CLOCK,
    "it may draw random numbers": _ENTROPY,
    "it may use the network": _NETWORK,
    "it may read the environment of the process": _ENVIRONMENT,
    "it may list files": _LISTING,
    "it may ask for input": "input|getpass",
    "it may start threads": r"Thread\w*|ThreadPoolExecutor|ProcessPoolExecutor|as_completed",
    "it may run a program": r"subprocess|Popen|popen|system|check_output",
}
_WORDS = re.compile(rf"\b(?:{'|'.join((*_OUTSIDE.values(), _FILES))})\b")
_REASONS = [(told, re.compile(words)) for told, words in _OUTSIDE.items()]
_FILE_WORDS, _UNSEEN_WORDS = re.compile(_FILES), re.compile(_UNSEEN)
_FLOW = {
    "clock": "it may read the clock",
    "seed:entropy": "it may draw random numbers",
    "network": "it may use the network",
    "environment": "it may read the environment of the process",
}
"""Causes that `replay.causes` finds more exactly than words."""
_SHELL = re.compile(
    r"^\s*(?:[\w, ]+=\s*)?(?:!|%%?(?:sx|system|bash|sh|script|run|perl|ruby|pip|conda)\b)", re.MULTILINE
)
_SEEDED = re.compile(
    r"(?:^|;[ \t]*)(?:np\.random|numpy\.random|random|torch)\.(?:seed|manual_seed)\(\s*\d+\s*\)[ \t]*(?:;|$)",
    re.MULTILINE,
)
_MOST_CODES = 2000


@dataclass(frozen=True, slots=True)
class CellFacts:
    """What one execution read, and why a repetition may differ."""

    reads: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()
    parts: tuple[str, ...] = ()
    """Modules of the user's, and parts of the ambient state, that it changed."""
    unknown: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the facts for a manifest."""
        lists = {"r": self.reads, "b": self.bound, "d": self.doubtful, "p": self.parts}
        return {key: sorted(names) for key, names in lists.items() if names} | (
            {"u": self.unknown} if self.unknown else {}
        )

    @classmethod
    def from_json(cls, value: object) -> CellFacts | None:
        """Return the facts of a manifest; None if it has none."""
        if not isinstance(value, dict):
            return None
        found = cast("dict[str, Any]", value)
        reads, bound, doubtful = (frozenset(map(str, found.get(key, ()))) for key in "rbd")
        return cls(reads, bound, doubtful, tuple(map(str, found.get("p", ()))), str(found.get("u", "")))


class CellReader:
    """Takes the facts about the cell that ended last."""

    def __init__(self, tracker: NamespaceTracker, namespace: Mapping[str, Any]) -> None:
        self._tracker = tracker
        self._namespace = namespace
        self._codes: dict[int, tuple[types.CodeType, frozenset[str]]] = {}

    def facts(self, statement: Statement, execution: Execution, ambient: Collection[str]) -> CellFacts:
        """Return the facts; `ambient` are the parts of the ambient state that it changed."""
        tracker, diff = self._tracker, execution.changes
        parts = (*tracker.altered_parts, *(_PARTS[one] for one in ambient if one in _PARTS))
        if statement.tags.get("outside"):
            return CellFacts(parts=parts)
        source, reads = statement.source, tracker.read
        read_files = [one for one in execution.artifacts if one.kind == "read"]
        more = [FOLDER] if any(not one.name.startswith("/") for one in read_files) else []
        more += [ARITHMETIC] if "ecimal" in source else []
        doubtful: frozenset[str] = frozenset()
        if diff.incomplete:
            doubtful = tracker.touched.difference(diff.added, diff.changed)
        bound = read_cell(source, tracker.transform).replaced
        unknown = self._unknown(statement, execution, ambient)
        return CellFacts(reads.union(more) if more else reads, bound, doubtful, parts, unknown)

    def _unknown(self, statement: Statement, execution: Execution, ambient: Collection[str]) -> str:
        """Return why the same reads may give another result; empty if nothing is known of that."""
        if statement.kind == "meta":
            return "" if only_commands(statement.source) else "a model may answer differently"
        if execution.status in ("cancelled", "timeout"):
            return "it was stopped"
        source, tracker = statement.source, self._tracker
        if tracker.anything:
            return f"it may read any variable ({tracker.anything})"
        if _SHELL.search(source):
            return "it runs a shell command"
        if not _GENERATORS.isdisjoint(ambient) and not _is_seeded(source):
            return "it draws random numbers"
        if live := [name for name in tracker.read if tracker.is_live(name) and not self._is_code(name)]:
            return f"it reads {join_names(sorted(live))}, whose content cannot be compared"
        return self._outside(source, execution)

    def _is_code(self, name: str) -> bool:
        value = self._namespace.get(name)
        return type(value) in (types.ModuleType, types.FunctionType, types.BuiltinFunctionType) or is_kind(
            class_of(value), type
        )

    def _outside(self, source: str, execution: Execution) -> str:
        """Return why a cell may read something outside of the namespace; empty for no sign of it."""
        own = set(_WORDS.findall(source))
        called = self._called_words()
        if not own and not called:
            return ""
        found = self._causes(source) if own else frozenset[str]()
        for told, words in _REASONS:
            exact = [cause for cause, text in _FLOW.items() if text == told]
            hits = any(map(words.fullmatch, own)) and (not exact or not found.isdisjoint((*exact, "unreadable")))
            if hits or any(map(words.fullmatch, called)):
                return told
        files = [one for one in (*own, *called) if _FILE_WORDS.fullmatch(one)]
        if files and not any(one.kind in ("read", "file") for one in execution.artifacts):
            return (
                ""
                if found.isdisjoint(("file", "unreadable")) and not called
                else "it may read a file that the kernel does not see"
            )
        return "it may read a file that the kernel does not see" if any(map(_UNSEEN_WORDS.fullmatch, files)) else ""

    def _causes(self, source: str) -> frozenset[str]:
        from ctxkernel.replay.causes import flow, parse

        if parse(source) is None:
            return frozenset(("unreadable",))
        modules = {
            name: str(value.__name__)
            for name, value in self._values(self._tracker.read)
            if type(value) is types.ModuleType
        }
        return flow(source, meaning=modules).anything

    def _called_words(self) -> set[str]:
        """Return the words of `_WORDS` in the functions and classes that the cell may have called."""
        module = str(self._namespace.get("__name__", "__main__"))
        words: set[str] = set()
        for _, value in self._values({*self._tracker.read, *self._tracker.rebound}):
            cls = value if is_kind(class_of(value), type) else class_of(value)
            if type(value) is types.FunctionType:
                words |= self._words(value.__code__)
            elif is_own_class(cls, module):
                for one in class_dict(cls).values():
                    if type(one) is types.FunctionType:
                        words |= self._words(one.__code__)
        return words

    def _words(self, code: types.CodeType) -> frozenset[str]:
        if (known := self._codes.get(id(code))) is None:
            if len(self._codes) >= _MOST_CODES:
                self._codes.clear()
            names = attribute_names(code) | used_names(code)
            known = self._codes[id(code)] = code, frozenset(filter(_WORDS.fullmatch, names))
        return known[1]

    def _values(self, names: Collection[str]) -> Iterator[tuple[str, Any]]:
        for name in names:
            if name in self._namespace:
                yield name, self._namespace[name]


def _is_seeded(source: str) -> bool:
    """Return whether a cell seeds a generator in any case, before it calls anything else."""
    found = _SEEDED.search(source)
    return found is not None and "(" not in source[: found.start()]


def cell_run(
    statement: Statement, execution: Execution, facts: CellFacts | None, fingerprints: Mapping[str, str]
) -> CellRun:
    """Return an execution for the graph; without facts, anything may have changed."""
    diff = execution.changes
    known = facts or CellFacts()
    made = {name: fingerprints.get(name, "") for name in (*diff.added, *diff.changed)} | dict.fromkeys(known.parts, "")
    return CellRun(
        execution.execution_id,
        statement.statement_id,
        statement.cell_id or statement.statement_id,
        statement.source,
        reads=known.reads,
        files={one.name: one.hash for one in execution.artifacts if one.kind == "read"},
        made=made,
        deleted=diff.deleted,
        written=[one.name for one in execution.artifacts if one.kind == "file"],
        bound=known.bound,
        doubtful=known.doubtful if diff.incomplete else frozenset(),
        blind=facts is None,
        ended_well=execution.status == "ok",
        outside=statement.tags.get("outside") is True,
        unknown=known.unknown if facts is not None else "its reads and changes are not known",
    )
