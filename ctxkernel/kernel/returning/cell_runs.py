"""The reads and writes of each execution, for the graph that tells stale cells (`replay.dependencies`).

Rule 1: facts are taken at the end of the cell, when the tracker still knows them; they cost microseconds. The text of a
        cell is analysed further only if it has a word that can mean the clock, the network, a file, ….
Rule 2: in doubt a repetition may give another result.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import re
import sys
import types
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.reflection import Classes, class_dict, class_module, class_of, is_kind, is_own_class
from ctxkernel.core.state_names import MODULE
from ctxkernel.core.text import join_names
from ctxkernel.core.timeline import Execution, Statement
from ctxkernel.core.timeline_events import MethodCalled
from ctxkernel.kernel.execution.cell import only_commands
from ctxkernel.kernel.execution.read_files import FileReads
from ctxkernel.kernel.returning.cell_words import (
    is_data,
    moves_files,
    owners_set,
    passed_to_calls,
    seeded,
    without_bodies,
    words_used,
)
from ctxkernel.kernel.returning.dotted_names import dotted_name
from ctxkernel.replay.dependency_nodes import CellRun
from ctxkernel.state.base.code_objects import SETTERS, attribute_names, sets_only_self, string_constants, used_names
from ctxkernel.state.base.namespace import NOTHING
from ctxkernel.state.tracking.cell_names import WORD, code_in, names_used, read_cell
from ctxkernel.state.tracking.tracker import NamespaceTracker
from ctxkernel.store.chunks.manifest import FACT_KEYS

FOLDER = "the working folder"
ARITHMETIC = "the settings of decimal"
_PARTS = {"working folder": FOLDER, "decimal": ARITHMETIC}
"""Parts of the ambient state that cells read → their names in the graph."""
GENERATORS: frozenset[str] = frozenset(("random", "numpy random", "torch random"))

DRAWS = "it draws random numbers"
MOVES_FILES = "it may make, move or delete files or folders"
LISTS_FILES = "it may list files"
_CODE = Classes(types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_IN_MEMORY = Classes(io.StringIO, io.BytesIO)
_WIDGET = "application/vnd.jupyter.widget-view+json"
_RESULT = re.compile(r"_{1,3}|_i{0,3}\d*|Out|In|_[oid]h")
_CLOCK = (
    r"(?:time|perf_counter|monotonic|process_time|thread_time|clock_gettime)(?:_ns)?|ctime|localtime|gmtime|strftime"
    r"|now|utcnow|today|default_timer|timeit"
)
_ENTROPY = r"secrets|uuid[14]|urandom|getrandom|SystemRandom|tempfile|default_rng|RandomState|Random"
_NETWORK = r"requests|httpx|urllib[0-9]?|aiohttp|urlopen|urlretrieve|fetch_\w+|socket"
_ENVIRONMENT = r"environ|getenv|getpid|getppid|cpu_count|platform|psutil|getcwd|gethostname"
_LISTING = r"iterdir|glob|rglob|listdir|scandir|walk|stat|exists|is_file|is_dir|getmtime|getsize"
_FILES = r"open|read_\w+|load\w*|imread|connect|File|scan_\w+|memmap|fromfile"
_UNSEEN = r"read_(?:parquet|feather|orc|hdf|ipc)|scan_\w+|File|imread|memmap|VideoCapture"
_OUTSIDE = {
    "it may read the clock": _CLOCK,
    "it may draw random numbers": _ENTROPY,
    "it may use the network": _NETWORK,
    "it may read the environment of the process": _ENVIRONMENT,
    LISTS_FILES: _LISTING,
    "it may ask for input": "input|getpass",
    "it may start threads": (
        r"Thread\w*|ThreadPoolExecutor|ProcessPoolExecutor|as_completed|create_task|ensure_future|run_in_executor"
        r"|to_thread|call_later|call_soon|Timer|start_new_thread|multiprocessing"
    ),
    "it may run a program": r"subprocess|Popen|popen|system|check_output",
    MOVES_FILES: r"unlink|rmtree|rmdir|mkdir|makedirs|removedirs|symlink\w*|hardlink_to|touch|shutil",
    "it may change a library": r"setattr|delattr|monkeypatch",
    "it may use any class": r"__subclasses__",
    "it may read the text of a function": r"getsource\w*|getcomments|findsource",
}
_REASONS = [(told, re.compile(words)) for told, words in _OUTSIDE.items()]
_FILE_WORDS, _UNSEEN_WORDS = re.compile(_FILES), re.compile(_UNSEEN)
_MOVES_WORD = re.compile(r"\b(?:remove|rename|replace|link)\b")
_MOVES = re.compile(r"(?:os|posix|nt)\.(?:remove|rename|replace|link)")
_STORES = re.compile(
    r"(?:^|;)[ \t]*(?:del[ \t]+([^\W\d]\w*)\.|([^\W\d]\w*)\.[\w.]+(?:\[[^\]\n]*\]|\.\w+)*[ \t]*"
    r"(?:[-+*/%&|^@]|//|\*\*|>>|<<)?=(?!=))",
    re.MULTILINE,
)
"""A statement that sets or deletes an attribute, or an item of one; its groups are the name that it begins with."""
_MAGIC = re.compile(r"^\s*(?:[\w, ]+=\s*)?%{1,2}(\w+)", re.MULTILINE)
_TIMED = re.compile(r"^\s*%{1,2}(?:time|timeit|capture)\b(?:[ \t]+-\w+(?:[ \t]+\d+)?)*", re.MULTILINE)
"""Magics that show how long the rest takes, or keep its output."""
_RUNS_REST = re.compile(r"^\s*%%(?:time|timeit|capture)\b.*")
"""Magics that run the rest of the cell as Python."""
_PLAIN_MAGICS = frozenset(
    ("time", "timeit", "capture", "writefile", "file", "html", "HTML", "latex", "markdown", "javascript", "js", "svg")
)
"""Magics that do not change the process, and read no more than their text says."""
_EVALUATED = r"query|eval|evaluate|sql|ols|gls|wls|glm|logit|probit|mixedlm|dmatri\w+|from_formula|ggplot"
"""Functions that look up names which stand in a text."""
_SEEDS = r"\w*seed\w*|[sg]et_?state|set_rng_state|get_rng_state"
_FLOW = {
    "clock": "it may read the clock",
    "seed:entropy": "it may draw random numbers",
    "network": "it may use the network",
    "environment": "it may read the environment of the process",
}
"""Causes that `replay.causes` finds more exactly than words."""
_WORDS = re.compile(rf"\b(?:{'|'.join((*_OUTSIDE.values(), _FILES, _EVALUATED, _SEEDS))})\b")
_SEED_WORD, _EVALUATED_WORD = re.compile(_SEEDS), re.compile(_EVALUATED)
_TEXT = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|'{3}[\s\S]*?'{3}|\"{3}[\s\S]*?\"{3}")
_SHELL = re.compile(
    r"^\s*(?:[\w, ]+=\s*)?(?:!|%%?(?:sx|system|bash|sh|script|run|perl|ruby|pip|conda)\b)", re.MULTILINE
)
_MOST_CODES = 2000
_LONGEST_PATH = 1000


@functools.lru_cache(4096)
def shared_names(names: frozenset[str]) -> frozenset[str]:
    """Return the set that is equal and known already: thousands of cells use the same names."""
    return names


@dataclass(frozen=True, slots=True)
class CellFacts:
    """The reads of one execution, and the reasons why a repetition may differ."""

    reads: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()
    parts: tuple[str, ...] = ()
    """Modules of the user's, and parts of the ambient state, that it changed."""
    unknown: str = ""
    beyond: frozenset[str] | None = None
    """Names without a value that it may have read, and classes by their labels; None where that is not known."""
    opaque: str = ""
    """Why equal reads do not prove that it need not run again, besides `unknown`."""
    draws: bool = False
    """Whether it may use the global random generators."""
    settings: frozenset[str] = frozenset()
    """Parts of the ambient state that it changed, and those of libraries that it loaded."""
    modules: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files of the user's modules, and files that it names, that it may have used, with their versions."""
    taken_from: str = ""
    """The execution whose result it is: it did not run itself."""

    def to_json(self) -> dict[str, Any]:
        """Return the facts for a manifest."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in FACT_KEYS} | {
            "draws": "draws" if self.draws else ""
        }
        return {
            FACT_KEYS[name]: fact if isinstance(fact, str | dict) else sorted(fact)
            for name, fact in facts.items()
            if fact or (name == "beyond" and fact is not None)
        }

    @classmethod
    def from_json(cls, value: object) -> CellFacts | None:
        """Return the facts of a manifest; None if it has none."""
        if not isinstance(value, dict):
            return None
        found = cast("dict[str, Any]", value)
        fact = {name: found[key] for name, key in FACT_KEYS.items() if key in found}
        return cls(
            reads=frozenset(fact.get("reads", ())),
            bound=frozenset(fact.get("bound", ())),
            doubtful=frozenset(fact.get("doubtful", ())),
            parts=tuple(fact.get("parts", ())),
            unknown=fact.get("unknown", ""),
            beyond=frozenset(fact["beyond"]) if "beyond" in fact else None,
            opaque=fact.get("opaque", ""),
            draws="draws" in fact,
            settings=frozenset(fact.get("settings", ())),
            modules=fact.get("modules", {}),
            taken_from=fact.get("taken_from", ""),
        )


class CellReader:
    """Takes the facts about the cell that ended last."""

    def __init__(
        self, tracker: NamespaceTracker, namespace: Mapping[str, Any], files: FileReads, own_modules: Container[str]
    ) -> None:
        self._tracker = tracker
        self._namespace = namespace
        self._files = files
        self._own_modules = own_modules
        self._codes: dict[int, tuple[types.CodeType, frozenset[str]]] = {}

    def facts(
        self, statement: Statement, execution: Execution, ambient: Collection[str], loaded: Collection[str] = ()
    ) -> CellFacts:
        """Return the facts; `ambient` are the parts of the ambient state that it changed, `loaded` the new ones."""
        tracker, diff = self._tracker, execution.changes
        parts = (*tracker.altered_parts, *(_PARTS[one] for one in ambient if one in _PARTS))
        if statement.tags.get("outside"):
            return CellFacts(parts=parts)
        source, reads = code_in(statement.source), tracker.read
        read_files = [one for one in execution.artifacts if one.kind == "read"]
        more = [FOLDER] if any(not one.name.startswith("/") for one in read_files) else []
        more += [ARITHMETIC] if "ecimal" in source else []
        doubtful: frozenset[str] = frozenset()
        if diff.incomplete:
            doubtful = tracker.touched.difference(diff.added, diff.changed)
        bound = read_cell(source, tracker.transform).replaced
        at_once = self._at_once(source)
        paths = self._paths(*at_once)
        unknown = self._unknown(statement, execution, ambient, paths, at_once)
        if any(map(_EVALUATED_WORD.fullmatch, _WORDS.findall(source))):
            words = {word for text in _TEXT.findall(source) for word in WORD.findall(text)}
            more += [word for word in words if word in self._namespace and word not in diff.added]
        beyond: frozenset[str] | None = None
        python = _RUNS_REST.sub("", source)
        if execution.status == "ok" and not _MAGIC.search(python) and not _SHELL.search(python):
            # Of other cells every word counts as a name, secrets included.
            beyond = frozenset(one for one in tracker.beyond if not one.startswith(("module", "__")))
        opaque = self._opaque(source, execution)
        drawn = GENERATORS.intersection(ambient)
        words = (*_WORDS.findall(source), *self._called_words(tracker.read | tracker.rebound))
        draws = list(drawn) != [seeded(source)] if drawn else any(map(_SEED_WORD.fullmatch, words))
        read = reads.union(more) if more else reads
        return CellFacts(
            shared_names(read),
            shared_names(bound),
            shared_names(doubtful),
            parts,
            unknown,
            None if beyond is None else shared_names(beyond),
            opaque,
            draws,
            shared_names(frozenset((*ambient, *loaded))),
            self._unseen_files(paths, execution),
        )

    def _unseen_files(self, paths: Sequence[str], execution: Execution) -> dict[str, str]:
        """Return the files that a cell may have used and was not seen to open, with their versions.

        They are those of the user's own modules, and those that the cell passes to calls: libraries in C read them.
        """
        seen = {os.path.realpath(one.name) for one in execution.artifacts if one.kind in ("read", "file")}
        named = (os.path.abspath(one) for one in paths if os.path.isfile(one))
        unseen = [one for one in (*self._module_files(), *named) if os.path.realpath(one) not in seen]
        return {path: self._files.version(path) for path in unseen}

    def _module_files(self) -> Iterator[str]:
        """Yield the files of the user's own modules that the cell may have used."""
        for one in (*self._tracker.read, *self._tracker.beyond):
            name = one.removeprefix(MODULE)
            if one.startswith(MODULE) and name in self._own_modules and name in sys.modules:
                path = vars(sys.modules[name]).get("__file__")
                if isinstance(path, str):
                    yield path

    def _at_once(self, source: str) -> tuple[str, Collection[str]]:
        """Return the text of a cell without functions that it did not call, and the names that ran or were defined."""
        if (plain := without_bodies(source, self._module_of)) is not None:
            return plain, names_used(plain, self._tracker.transform)
        return source, self._tracker.read | self._tracker.rebound

    def _paths(self, source: str, names: Collection[str]) -> list[str]:
        """Return the paths that a cell, or a function that it may have called, passes to calls."""
        values = dict(self._values(self._tracker.read.intersection(names)))
        named = {
            name: str(value) for name, value in values.items() if type(value) is str or isinstance(value, PurePath)
        }
        texts = {text.strip("'\"") for text in _TEXT.findall(source)}.union(named.values())
        if any(map(_exists, texts)):
            passed = passed_to_calls(source, named)
            texts = texts if passed is None else passed
        else:
            texts = set[str]()
        for value in values.values():
            if type(value) is types.FunctionType:
                texts |= string_constants(value.__code__)
        return sorted(filter(_exists, texts))

    def _opaque(self, source: str, execution: Execution) -> str:
        """Return why a cell may do more than its reads and changes of names and files say; empty for no sign of it."""
        if self._tracker.ran_beside:
            return f"code ran beside it ({self._tracker.ran_beside})"
        if execution.status != "ok":
            return "it ended with an error"
        if any(isinstance(event, MethodCalled) for event in execution.events):
            return "it uses handles"
        if any(one.mime == _WIDGET for one in execution.artifacts):
            return "it shows widgets"
        if "%" in source and (others := set(_MAGIC.findall(source)) - _PLAIN_MAGICS):
            return f"it calls %{min(others)}"
        if any(map(_RESULT.fullmatch, (*self._tracker.read, *self._tracker.beyond))):
            return "it reads results by their number"
        for names in _STORES.findall(source):
            if self._is_module_or_class_of_library(names[0] or names[1]):
                return f"it changes {names[0] or names[1]}, which is a module or a class of a library"
        return self._unseen_writes(execution)

    def _is_module_or_class_of_library(self, name: str) -> bool:
        value = self._namespace.get(name)
        is_class = is_kind(class_of(value), type)
        return type(value) is types.ModuleType or (is_class and not self._is_own_class(value))

    def _is_own_value(self, name: str) -> bool:
        """Return whether a name stands for a variable that is no module and no class of a library."""
        known = name in self._namespace and not self._is_module_or_class_of_library(name)
        return known or name in ("self", "cls")

    def _is_own_class(self, value: Any) -> bool:
        return is_kind(class_of(value), type) and is_own_class(cast("type", value), self._module)

    @property
    def _module(self) -> str:
        return str(self._namespace.get("__name__", "__main__"))

    def _unseen_writes(self, execution: Execution) -> str:
        """Return why the content of the files that a cell wrote may depend on what was there before."""
        written = {os.path.abspath(one.name): one for one in execution.artifacts if one.kind == "file"}
        for path, one in written.items():
            if path not in self._files.made or not one.hash:
                return f"what was in {one.name} before may be a part of what it writes"
        for path in self._files.opened_to_write - written.keys():
            return f"it writes {path}, which is not followed"
        return ""

    def _unknown(
        self,
        statement: Statement,
        execution: Execution,
        ambient: Collection[str],
        paths: Sequence[str],
        at_once: tuple[str, Collection[str]],
    ) -> str:
        """Return why the same reads may give another result; empty if nothing is known of that."""
        if statement.kind == "meta":
            is_answer = statement.author == "model"  # its re-run repeats the recorded text
            return "" if is_answer or only_commands(statement.source) else "a model may answer differently"
        if execution.status in ("cancelled", "timeout"):
            return "it was stopped"
        source, tracker = code_in(statement.source), self._tracker
        if tracker.anything:
            return f"it may read any variable ({tracker.anything})"
        if _SHELL.search(source):
            return "it runs a shell command"
        live = [name for name in tracker.read if tracker.is_live(name) and not self._is_code(name)]
        if live and (live := sorted(tracker.named().intersection(live))):
            return f"it reads {join_names(live)}, whose content cannot be compared"
        if told := self._outside(*at_once, execution):
            return told
        if any(map(os.path.isdir, paths)):
            return LISTS_FILES
        drew = not GENERATORS.isdisjoint(ambient) and not seeded(source)
        return DRAWS if drew and not self._only_imports(execution) else ""

    def _only_imports(self, execution: Execution) -> bool:
        """Return whether a cell shows nothing, and gives names to libraries alone: some draw when they are imported."""
        diff = execution.changes
        shows = execution.stdout or any(one.kind == "display" for one in execution.artifacts)
        roots = {dotted_name(value).partition(".")[0] for _, value in self._values(diff.added)}
        others = roots & {"", "__main__"} or diff.changed or diff.incomplete or self._tracker.altered_parts
        return bool(roots) and not shows and not others and not any(one in self._own_modules for one in roots)

    def _is_code(self, name: str) -> bool:
        value = self._namespace.get(name)
        return type(value) in _CODE or is_kind(class_of(value), type)

    def _outside(self, source: str, ran: Collection[str], execution: Execution) -> str:
        """Return why a cell may read something outside of the namespace; empty for no sign of it.

        A function may have another name here: `from time import perf_counter as clock`.
        """
        source, values = _TIMED.sub("", source), dict(self._values(self._tracker.read.intersection(ran)))
        dotted = {name: dotted_name(value) for name, value in values.items()}
        dotted = {name: one for name, one in dotted.items() if one and not one.startswith("__main__.")}
        in_memory = [(name, class_of(value)) for name, value in values.items() if class_of(value) in _IN_MEMORY]
        dotted |= {name: f"io.{cls.__name__}" for name, cls in in_memory}
        data = {name for name, value in values.items() if is_data(class_of(value))} - read_cell(source).replaced
        if _MOVES_WORD.search(source):
            modules = {name for name, one in dotted.items() if one == "os"}
            paths = {name for name, value in values.items() if isinstance(value, PurePath)}
            if any(map(_MOVES.fullmatch, dotted.values())) or moves_files(source, modules, paths, data):
                return MOVES_FILES
        renamed = {name: one.rpartition(".")[2] for name, one in dotted.items()}
        renamed = {name: word for name, word in renamed.items() if word != name and _WORDS.fullmatch(word)}
        own, called = set[str](), self._called_words(ran)
        if renamed or _WORDS.search(source):
            names, attributes = words_used(source, self._tracker.transform, data)
            own = {*filter(_WORDS.fullmatch, (*filter(self._may_lead_outside, names), *attributes))}
            own.update(renamed[name] for name in renamed.keys() & names)
            called.update(renamed[name] for name in renamed.keys() - names - read_cell(source).replaced)
        if not own.isdisjoint(SETTERS) and all(map(self._is_own_value, owners_set(source) or [""])):
            own -= SETTERS
        if not own and not called:
            return ""
        found = _causes(source, dotted) if own else frozenset[str]()
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

    def _may_lead_outside(self, name: str) -> bool:
        """Return whether a name may stand for a function of a library: no data, and no function or class of a cell."""
        if (value := self._namespace.get(name, NOTHING)) is NOTHING:
            return True
        is_own = type(value) is types.FunctionType and value.__module__ == self._module
        return callable(value) and not is_own and not self._is_own_class(value)

    def _module_of(self, name: str) -> str:
        """Return the module of a function, a class or a value of a library that a name has; "" for the user's."""
        if (value := self._namespace.get(name, NOTHING)) is NOTHING:
            return "builtins" if hasattr(builtins, name) else ""
        module = dotted_name(value) or class_module(class_of(value))
        root = module.partition(".")[0]
        return "" if root == self._module or root in self._own_modules else module

    def _called_words(self, names: Collection[str]) -> set[str]:
        """Return the words of `_WORDS` in the functions and classes of these names, which a cell may have called."""
        module = self._module
        words: set[str] = set()
        for _, value in self._values(names):
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
            if not names.isdisjoint(SETTERS) and sets_only_self(code):
                names.difference_update(SETTERS)
            if not names.isdisjoint(("os", "Path", "pathlib")) and not names.isdisjoint(
                ("remove", "rename", "replace")
            ):
                names.add("unlink")
            known = self._codes[id(code)] = code, frozenset(filter(_WORDS.fullmatch, names))
        return known[1]

    def _values(self, names: Collection[str]) -> Iterator[tuple[str, Any]]:
        for name in names:
            if name in self._namespace:
                yield name, self._namespace[name]


def _causes(source: str, meaning: Mapping[str, str]) -> frozenset[str]:
    from ctxkernel.replay.causes import flow, parse

    return frozenset(("unreadable",)) if parse(source) is None else flow(source, meaning=meaning).anything


def _exists(text: str) -> bool:
    return 0 < len(text) < _LONGEST_PATH and "\0" not in text and os.path.exists(text)


def cell_run(
    statement: Statement, execution: Execution, facts: CellFacts | None, fingerprints: Mapping[str, str]
) -> CellRun:
    """Return an execution for the graph; without facts, anything may have changed."""
    diff = execution.changes
    known = facts or CellFacts()
    made = {name: fingerprints.get(name, "") for name in (*diff.added, *diff.changed, *known.parts)}
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
