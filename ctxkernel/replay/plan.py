"""The plan of a return: the names that are kept, loaded, dropped, made again or lost, and the time it takes. Pure.

Rule 1: a plan is made from recorded facts and changes nothing; it is shown before anything happens.
Rule 2: a value that no checkpoint can hold is made again only by statements that are known to do nothing else: they
        read restored values, set only the missing names (or others to the values that they have), and have no
        effect outside.
Rule 3: the other names are listed as lost, each with the first reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from ctxkernel.core.dataclasses import dataclass, field, replace
from ctxkernel.core.state_names import LABELS
from ctxkernel.core.text import first_lines, format_duration, format_size, join_names, one_line, plural
from ctxkernel.core.timeline_events import Json, plain
from ctxkernel.core.timeline_table import gist
from ctxkernel.replay.causes import flow, parse

READ_SPEED = 1.5e9
"""Bytes a second at which arrays are loaded."""

RerunAction = Literal["run", "skip", "ask"]


@dataclass(frozen=True, slots=True)
class PastRun:
    """The record of one execution on the path to a state."""

    execution_id: str
    statement_id: str
    source: str
    reads: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that it used, with their fingerprints before it; an empty one is not known."""
    made: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that it added or changed, with their fingerprints after it; an empty one is not known."""
    bound: frozenset[str] = frozenset()
    """Those of `made` that were bound to another object, and not changed in place."""
    touched: frozenset[str] = frozenset()
    """Other names that it may have touched (through aliases, functions)."""
    deleted: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()
    """Files that it wrote."""
    changed_files: tuple[str, ...] = ()
    """Files that it read and that have changed since."""
    ambient: tuple[str, ...] = ()
    """Parts of the ambient state that it changed."""
    status: str = "ok"
    kind: str = "python"
    asked: bool = False
    """Whether it asked the user for input."""
    asks: bool = False
    """Whether it is marked as one that asks before it runs again."""
    seconds: float = 0.0

    def concerns(self, name: str) -> bool:
        """Return whether it may have touched the name."""
        return name in self.made or name in self.touched or name in self.deleted


@dataclass(frozen=True, slots=True)
class Load:
    """Names that share objects and are loaded together."""

    names: tuple[str, ...]
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """A file written by a statement that the return leaves; the file stays as it is."""

    name: str
    statement_id: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of one file whose content is kept by a return (setting `files = restore`)."""

    name: str
    """Its path below the notebook's folder."""
    action: Literal["back", "remove", "stays"]
    statement_id: str = ""
    """The statement that left the restored content; for other actions, the one that wrote the file."""
    size: int = 0
    reason: str = ""
    """Why it stays; for a restored file, the origin of its content if no statement left it."""

    def __str__(self) -> str:
        if self.action == "back":
            of = f"of {self.statement_id}" if self.statement_id else self.reason or "before a cell wrote it"
            return f"{one_line(self.name, 80)} (as {of})"
        wrote = f"written by {self.statement_id}" if self.statement_id else ""
        why = "; ".join(filter(None, (wrote, self.reason)))
        return one_line(self.name, 80) + (f" ({why})" if why else "")


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One statement that runs again after the return."""

    statement_id: str
    action: RerunAction = "run"
    reason: str = ""
    """Why it is skipped, or asks."""
    expected: bool = False
    """Whether it is marked as expected to differ."""
    seconds: float = 0.0
    """The time that it took before."""
    source: str = ""
    """Its first line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of a return."""

    target: str | None
    """An execution's id; None is the state before all statements."""
    told: str = ""
    """The user's name of the target."""
    keep: tuple[str, ...] = ()
    load: tuple[Load, ...] = ()
    drop: tuple[str, ...] = ()
    connect: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name, or place in a value → the connection that is made again for it."""
    rerun: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Name → the statements that run again to make it, in order."""
    lost: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name → why it is not restored."""
    as_now: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name → why it stays as it is now."""
    ambient: tuple[str, ...] = ()
    """Handles, and parts of the ambient state, that are restored."""
    files: tuple[Written, ...] = ()
    file_changes: tuple[FileChange, ...] = ()
    """The changes of files whose content is kept; none of them is in `files`."""
    statements: tuple[PlannedStep, ...] = ()
    seconds: float = 0.0
    """The expected time, from measured ones."""

    @property
    def nbytes(self) -> int:
        """The bytes to load."""
        return sum(one.nbytes for one in self.load)

    @property
    def again(self) -> tuple[str, ...]:
        """The statements that run again to make names, each once, in order."""
        return tuple(sorted({one for ids in self.rerun.values() for one in ids}, key=_number))

    def text(self) -> str:
        """Return the plan for people: a line for each effect."""
        loaded = [name for one in self.load for name in one.names]
        takes = format_duration(max(self.seconds, 0.001))
        lines = [f"to {self.told or self.target or 'before all statements'}: about {takes}"]
        if self.keep:
            lines.append(f"keep         {_names(self.keep)}")
        if loaded:
            # The data outside arrays are not counted, so no size is shown where there are no others.
            lines.append(f"load         {_names(loaded)}" + (f", {format_size(self.nbytes)}" if self.nbytes else ""))
        if self.drop:
            lines.append(f"drop         {_names(self.drop)}")
        for name, what in self.connect.items():
            lines.append(f"connect      {one_line(name, 60)}: {one_line(what, 200)}")
        for name, ids in self.rerun.items():
            lines.append(f"make again   {one_line(name, 60)} by {', '.join(ids)}")
        for name, why in self.as_now.items():
            lines.append(f"as it is now {one_line(name, 60)}: {one_line(why, 200)}")
        for name, why in self.lost.items():
            lines.append(f"not restored {one_line(name, 60)}: {one_line(why, 200)}")
        if self.ambient:
            lines.append(f"put back     {', '.join(self.ambient)}")
        lines += self.file_lines()
        return "\n".join([*lines, *first_lines(list(map(_step_line, self.statements)), indent=13)])

    def file_lines(self) -> list[str]:
        """Return a line for each file that is restored, removed, or stays as it is."""
        words = {"back": "file back   ", "remove": "file removed", "stays": "file stays  "}
        lines = [f"{words[one.action]} {one}" for one in self.file_changes]
        for file in self.files:
            size = f", {format_size(file.size)}" if file.size else ""
            lines.append(f"file stays   {one_line(file.name, 80)} (written by {file.statement_id}{size})")
        return lines

    def files_that_stay(self) -> str:
        """Return one line that names the files written since that stay as they are; empty for none."""
        if not self.files:
            return ""
        count = f"{len(self.files)} files that were written since stay as they are"
        if len(self.files) == 1:
            count = "a file that was written since stays as it is"
        return f"{count}: {join_names([one_line(one.name, 80) for one in self.files])}"

    def to_json(self) -> dict[str, Json]:
        """Return the plan as JSON, with `nbytes` and `again` added."""
        return {**plain(self), "nbytes": self.nbytes, "again": list(self.again)}


def _step_line(step: PlannedStep) -> str:
    notes = [note for note in (step.reason, "expected to differ" if step.expected else "") if note]
    took = f", {format_duration(step.seconds)}" if step.action == "run" and step.seconds else ""
    told = f" ({'; '.join(notes)})" if notes else ""
    return f"{step.action:12} {step.statement_id}{took}{told}  {gist(step.source, 60)}".rstrip()


def make_plan(
    draft: Plan,
    *,
    missing: Mapping[str, str] | None = None,
    path: Sequence[PastRun] = (),
    then: Mapping[str, str] | None = None,
    functions: Mapping[str, str] | None = None,
) -> Plan:
    """Return the plan of a return, from what is kept, loaded and dropped, and the time that finding this took.

    `missing` are names of the state that no checkpoint holds, with the reason; `path` are the executions that led to
    it, oldest first; `then` maps each name of the state to its fingerprint. Files are named in their order.
    """
    rerun, lost = remake(missing or {}, path, then or {}, functions=functions)
    changed = {change.name for change in draft.file_changes}
    files = {file.name: file for file in draft.files if file.name not in changed}
    plan = replace(draft, rerun=rerun, lost=lost, files=tuple(files.values()))
    costs = {run.statement_id: run.seconds for run in path}
    seconds = plan.seconds + sum(costs.get(one, 0.0) for one in plan.again)
    seconds += sum(step.seconds for step in plan.statements if step.action == "run")
    return replace(plan, seconds=seconds + plan.nbytes / READ_SPEED)


# -- making again what no checkpoint holds ---------------------------------------------------------


def remake(
    missing: Mapping[str, str],
    path: Sequence[PastRun],
    then: Mapping[str, str],
    *,
    functions: Mapping[str, str] | None = None,
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the statements that make each missing name again, and the names that stay lost with the reasons.

    Holds: the statements, run in their order on the state without the missing names, change no other name, and make
    the missing ones as they were, as far as the records can tell.
    """
    makers = {name: _makers(name, path) for name in missing}
    nobody = "no statement of this timeline made it"
    refused = {name: f"{missing[name]}; {nobody}" for name in missing if not makers[name]}
    # Names depend on each other: a refused name may refuse those that are made from it, or together with it.
    while True:
        wanted = {name for name in missing if name not in refused}
        before = len(refused)
        for name in sorted(wanted):
            for at in makers[name]:
                why = pure_enough(path[at], path, then, wanted=wanted, makers=makers, functions=functions)
                if why:
                    made_by, why = path[at].statement_id, _LABEL.sub("an object that several variables hold", why)
                    refused[name] = f"{missing[name]}; {made_by} is not run again: {why}; %ctx rerun {made_by} runs it"
                    break
        if len(refused) == before:
            break
    rerun: dict[str, tuple[str, ...]] = {}
    for name in missing:
        if name not in refused:
            ats = _closure(name, makers, path, set(missing) - refused.keys())
            rerun[name] = tuple(path[at].statement_id for at in ats)
    return rerun, {name: refused[name] for name in missing if name in refused}


def _makers(name: str, path: Sequence[PastRun]) -> tuple[int, ...]:
    """Return the places on the path of the executions that made a name: the last binding, and all that touched it."""
    bound = max((at for at, run in enumerate(path) if name in run.bound and run.concerns(name)), default=len(path))
    return tuple(at for at in range(bound, len(path)) if path[at].concerns(name))


def _closure(
    name: str, makers: Mapping[str, tuple[int, ...]], path: Sequence[PastRun], wanted: Collection[str]
) -> list[int]:
    """Return the places of all statements needed to make `name`, including those of missing names that they read."""
    todo, seen, ats = [name], set[str](), set[int]()
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        for at in makers[one]:
            ats.add(at)
            todo += [used for used in (*path[at].reads, *path[at].made, *path[at].touched) if used in wanted]
    return sorted(ats)


def pure_enough(
    run: PastRun,
    path: Sequence[PastRun],
    then: Mapping[str, str],
    *,
    wanted: Collection[str],
    makers: Mapping[str, tuple[int, ...]] | None = None,
    functions: Mapping[str, str] | None = None,
) -> str | None:
    """Return why a statement may not run again alone to make the names in `wanted`; None if it may.

    `then` maps the names of the target state to their fingerprints; `wanted` are the names that no checkpoint holds
    and that are all made again, by the statements at the places in `makers` on the `path`.
    """
    why = _plain_run(run) or acts_outside(run.source, functions, own=wanted)
    if why:
        return why
    at = next((n for n, one in enumerate(path) if one.execution_id == run.execution_id), None)
    if at is None:
        return "it is not on the way to this state"
    for name, before in run.reads.items():
        if name in wanted:
            # `g = map(f, g)`: the value that it used is not the final one of the name.
            if makers is not None and makers[name] and makers[name][0] >= at:
                return f"it uses {name}, which was made anew since"
            continue
        if name not in then:
            return f"it uses {name}, which is not there"
        if not before or not then[name]:
            return f"it uses {name}, whose content is not known"
        if then[name] != before:
            return f"it uses {name}, which was changed since"
    for name in sorted(run.made.keys() | run.touched):
        if name in wanted:
            if makers is not None and at not in makers[name]:
                return f"it also makes {name}, which was made anew since"
        elif name in run.made and name not in run.bound and name in then:
            return f"it changes {name} in place"
        elif name in run.made and (name not in then or not run.made[name] or then[name] != run.made[name]):
            return f"it also makes {name}, which is another now" if name in then else f"it also makes {name}"
        elif name not in run.made and name not in run.reads and then.get(name) is not None:
            return f"it may touch {name}"
    for name in sorted(run.deleted):
        if name in then:
            return f"it deletes {name}"
    return None


def _plain_run(run: PastRun) -> str:
    if run.kind == "meta":
        return "it is no cell"
    if run.status != "ok":
        return f"it ended as {run.status}"
    if run.asks:
        return "it is marked as one that asks"
    if run.asked:
        return "it asked for input"
    if run.files:
        return f"it wrote {run.files[0]}"
    if run.changed_files:
        return f"{run.changed_files[0]}, which it read, was changed since"
    if run.ambient:
        return f"it changed {run.ambient[0]}"
    return ""


_OUTSIDE = re.compile(
    r"subprocess\..*|os\.(?:system|popen|remove|unlink|rename|replace|mkdir|makedirs|rmdir|removedirs|chmod|chown|symlink|link"
    r"|truncate|kill|fork|exec\w*|spawn\w*|putenv|unsetenv|chdir|write|_exit|abort)|shutil\..*|socket\..*|smtplib\..*|ftplib\..*"
    r"|(?:.*\.)?(?:to_(?:csv|sql|parquet|excel|pickle|json|hdf|feather|html|latex|stata)|savefig|save|savez\w*|savetxt|dump"
    r"|write\w*|executemany|executescript|execute|commit|rollback|send\w*|post|put|patch|delete|publish|upload\w*|unlink|touch"
    r"|mkdir|rmdir|rename|start|submit|terminate|kill|system|popen|Popen|urlretrieve|shutdown|exit|quit|imsave|imwrite"
    r"|input|raw_input|getpass|sleep|breakpoint|set_trace|run_cell|run_line_magic|run_cell_magic|exec|eval|setattr|__import__)"
)
_MODES = frozenset("wax+")
_LABEL = re.compile(rf"\b(?:{'|'.join(LABELS)})[\w-]+")


def acts_outside(source: str, functions: Mapping[str, str] | None = None, *, own: Collection[str] = frozenset()) -> str:
    """Return why a source may affect more than its own names, or give another result each time; else an empty text.

    `functions` are the sources of the functions and classes of the namespace that it may call; attributes of `own`
    names may be set.
    """
    tree = parse(source, strict=True)
    if tree is None:
        return "it is not plain Python (a magic, a shell command)"
    try:
        compile(tree, "<cell>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return "it awaits, outside of a function"
    found = flow(source, functions=functions).anything
    for cause, told in _TOLD.items():
        if any(one.partition(":")[0] == cause for one in found):
            return told
    trees: list[ast.AST] = [tree]
    for text in (functions or {}).values():
        inner = parse(text, strict=True)
        if inner is not None:
            trees.append(inner)
    own = {*own, "self", "cls"}
    for one in trees:
        for node in ast.walk(one):
            why = _acts(node, own)
            if why:
                return why
    return ""


_TOLD = {
    "seed": "it draws random numbers",
    "clock": "it reads the clock",
    "network": "it uses the network",
    "input": "it asks for input",
    "threads": "it starts threads",
}


def _acts(node: ast.AST, own: Collection[str]) -> str:
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        # `module.x = 1` changes state that no checkpoint holds, and any name may be a module.
        base = node.value
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        return "" if isinstance(base, ast.Name) and base.id in own else f"it sets {ast.unparse(node)}"
    if not isinstance(node, ast.Call):
        return ""
    parts: list[str] = []
    called = node.func
    while isinstance(called, ast.Attribute):
        parts.append(called.attr)
        called = called.value
    parts.append(called.id if isinstance(called, ast.Name) else "")
    dotted = ".".join(reversed(parts))
    if _OUTSIDE.fullmatch(dotted):
        return f"it calls {dotted.lstrip('.')}"
    if parts[0] == "open":
        modes = [
            one.value for one in (*node.args[:2], *(k.value for k in node.keywords)) if isinstance(one, ast.Constant)
        ]
        if any(isinstance(mode, str) and len(mode) <= 4 and _MODES & set(mode) for mode in modes[-2:]):
            return "it opens a file for writing"
    return ""


# -- for people -----------------------------------------------------------------------------------


def _number(statement_id: str) -> tuple[int, str]:
    digits = statement_id.lstrip("s")
    return (int(digits) if digits.isdecimal() else 0, statement_id)


def _names(names: Collection[str]) -> str:
    return f"{plural(len(names), 'names')} ({join_names([one_line(name, 40) for name in names])})"
