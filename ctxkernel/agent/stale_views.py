"""Guards a model's cell against a view that is stale: what it uses may have changed since the model last looked.

Rule 1: pure: what the model saw with its last request, and what is there now, come as plain values.
Rule 2: in doubt a thing is used: names count wherever the cell, or a function in it, mentions them, a file where a
        text in the cell could be the end of its path. What cannot be read uses every word in it.
Rule 3: what the model's own cells changed after its request is no surprise to it: whoever runs them notes that in
        what it saw.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ctxkernel.state.tracking.candidates import Transform, names_used, syntax_tree

How = Literal["changed", "deleted", "added"]


class Mark(NamedTuple):
    """What a variable was like: equal marks, equal content."""

    stamp: str
    """Its fingerprint or revision; empty where it is gone."""
    by: str = ""
    """The statement that it is from, or that deleted it."""


class FileMark(NamedTuple):
    """What a file was like: equal stamps, equal content."""

    stamp: str
    """Empty where it is gone."""
    handles: tuple[str, ...] = ()
    """The names of the handles that show it."""
    by: str = ""
    """The statement that wrote it, where that is known."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The state as it was, or is: variables by name, files by absolute path."""

    names: Mapping[str, Mark] = field(default_factory=dict[str, Mark])
    files: Mapping[str, FileMark] = field(default_factory=dict[str, FileMark])


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a cell uses, and that is not as the model saw it."""

    kind: Literal["variable", "file"]
    name: str
    how: How
    by: str
    """The statement that did it; empty where it is not known, as of a file that changed on disk."""


def find_stale(code: str, seen: Sight, now: Sight, *, transform: Transform | None = None) -> tuple[Change, ...]:
    """Return what `code` uses that changed since it was `seen`, variables first, by name; none: it may be run.

    `transform` is IPython's rewriting of a cell into plain Python. A variable that the model never saw counts as added;
    a file, only from when it was shown on.
    """
    names = _changed(seen.names, now.names)
    files: dict[str, How] = {path: how for path, how in _changed(seen.files, now.files).items() if how != "added"}
    if not names and not files:
        return ()
    used = names_used(code, transform)
    found = [Change("variable", name, names[name], _by(now.names, name)) for name in sorted(used & names.keys())]
    texts = [_parts(text) for text in _texts(code)] if files else []
    for path, how in sorted(files.items()):
        handles = (*seen.files[path].handles, *(now.files[path].handles if path in now.files else ()))
        whole = _parts(path)
        if not used.isdisjoint(handles) or any(text and whole[-len(text) :] == text for text in texts):
            found.append(Change("file", path, how, _by(now.files, path)))
    return tuple(found)


Marks = Mapping[str, Mark] | Mapping[str, FileMark]


def _changed(seen: Marks, now: Marks) -> dict[str, How]:
    """Return what differs, and how. What is neither seen nor there any more is no change."""
    changes: dict[str, How] = {}
    for name in {**seen, **now}:
        was = seen[name].stamp if name in seen else ""
        is_now = now[name].stamp if name in now else ""
        if was != is_now:
            changes[name] = "added" if not was else "deleted" if not is_now else "changed"
    return changes


def _by(marks: Marks, name: str) -> str:
    return marks[name].by if name in marks else ""


# -- files in code -----------------------------------------------------------------------------------

_SEPARATOR = re.compile(r"[/\\]+")
_WORDS = re.compile(r"[^\s'\"`=,;()<>|&]+")


def _texts(code: str) -> Sequence[str]:
    """Return the string literals of a cell; of one that is no plain Python all words as well."""
    tree = syntax_tree(code)
    if tree is None:
        # Also what stands between quotes, where a path may have spaces in it.
        return [*_WORDS.findall(code), *re.split("['\"]", code)]
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _parts(path: str) -> list[str]:
    """Return the parts of a path without those that say where it begins, as file systems that ignore case have them."""
    return [part for part in _SEPARATOR.split(path.strip().casefold()) if part not in ("", ".", "..", "~")]


# -- what the model is told --------------------------------------------------------------------------

MOST_TOLD = 20
_LONGEST_NAME = 200


def changes_text(changes: Sequence[Change]) -> str:
    """Return what the model gets in the place of its cell's result: at most `MOST_TOLD` changes, and the next move."""
    lines = [f"- {_line(one)}" for one in changes[:MOST_TOLD]]
    if len(changes) > MOST_TOLD:
        lines.append(f"- and {len(changes) - MOST_TOLD} more")
    return "\n".join(
        [
            "This cell was not run: it uses what has changed since you last saw it.",
            *lines,
            "The state below is as it is now. Look at these again, then write the cell anew.",
        ]
    )


def _line(one: Change) -> str:
    how = {"changed": "changed", "deleted": "is gone", "added": "is new"}[one.how]
    by = f", by {_delimited(one.by)}" if one.by else ", on disk" if one.kind == "file" else ""
    return f"{'file ' if one.kind == 'file' else ''}{_delimited(one.name)} {how}{by}"


def _delimited(name: str) -> str:
    """Return a name between backticks, on one line, with its end where it is too long."""
    shown = "".join([char if char.isprintable() and char != "`" else "_" for char in name])
    return f"`{shown}`" if len(shown) <= _LONGEST_NAME else f"`…{shown[-_LONGEST_NAME:]}`"
