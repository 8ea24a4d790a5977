"""Find objects used by a model's cell that changed since the model last saw them.

Rule 1: pure: the state at the last request and the state now are plain values.
Rule 2: in doubt an object counts as used: a name wherever the cell, or a function in it, mentions it; a file if a
        string of the cell could be the end of its path. A cell that cannot be parsed uses every word in it.
Rule 3: a change by the model's own cells is known to the model: the caller adds it to the seen state.
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
    """State of a variable: equal stamps mean equal content."""

    stamp: str
    """Fingerprint or revision; empty if the variable does not exist."""
    by: str = ""
    """The statement that set or deleted it."""


class FileMark(NamedTuple):
    """State of a file: equal stamps mean equal content."""

    stamp: str
    """Empty if the file does not exist."""
    handles: tuple[str, ...] = ()
    """The names of the handles that show it."""
    by: str = ""
    """The statement that wrote it, if known."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A state: variables by name, files by absolute path."""

    names: Mapping[str, Mark] = field(default_factory=dict[str, Mark])
    files: Mapping[str, FileMark] = field(default_factory=dict[str, FileMark])


@dataclass(frozen=True, slots=True)
class StaleObject:
    """An object that a cell uses and that differs from what the model saw."""

    kind: Literal["variable", "file"]
    name: str
    how: How
    by: str
    """The statement that changed it; empty if unknown, as for a file that changed on disk."""


def find_stale(code: str, seen: Sight, now: Sight, *, transform: Transform | None = None) -> tuple[StaleObject, ...]:
    """Return the changes since `seen` of objects that `code` uses, variables first, by name.

    `transform` is IPython's rewriting of a cell into plain Python. A variable that the model never saw counts as added;
    a file is compared only after it was shown.
    """
    names = _changed(seen.names, now.names)
    files: dict[str, How] = {path: how for path, how in _changed(seen.files, now.files).items() if how != "added"}
    if not names and not files:
        return ()
    used = names_used(code, transform)
    found = [StaleObject("variable", name, names[name], _by(now.names, name)) for name in sorted(used & names.keys())]
    texts = [_parts(text) for text in _texts(code)] if files else []
    for path, how in sorted(files.items()):
        handles = (*seen.files[path].handles, *(now.files[path].handles if path in now.files else ()))
        whole = _parts(path)
        if not used.isdisjoint(handles) or any(text and whole[-len(text) :] == text for text in texts):
            found.append(StaleObject("file", path, how, _by(now.files, path)))
    return tuple(found)


Marks = Mapping[str, Mark] | Mapping[str, FileMark]


def _changed(seen: Marks, now: Marks) -> dict[str, How]:
    """Return the differences. An object that was not seen and does not exist now is none."""
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
    """Return the string literals of a cell; all words of a cell that is not plain Python."""
    tree = syntax_tree(code)
    if tree is None:
        # Texts between quotes too: a path may contain spaces.
        return [*_WORDS.findall(code), *re.split("['\"]", code)]
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _parts(path: str) -> list[str]:
    """Return the parts of a path in lower case, without `.`, `..` and `~`."""
    return [part for part in _SEPARATOR.split(path.strip().casefold()) if part not in ("", ".", "..", "~")]


# -- the text for the model --------------------------------------------------------------------------

MOST_TOLD = 20
_LONGEST_NAME = 200


def changes_text(changes: Sequence[StaleObject]) -> str:
    """Return the text that replaces the result of the model's cell: at most `MOST_TOLD` changes, and the next step."""
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


def _line(one: StaleObject) -> str:
    how = {"changed": "changed", "deleted": "is gone", "added": "is new"}[one.how]
    by = f", by {_delimited(one.by)}" if one.by else ", on disk" if one.kind == "file" else ""
    return f"{'file ' if one.kind == 'file' else ''}{_delimited(one.name)} {how}{by}"


def _delimited(name: str) -> str:
    """Return a name between backticks, on one line; only the end of a long name."""
    shown = "".join([char if char.isprintable() and char != "`" else "_" for char in name])
    return f"`{shown}`" if len(shown) <= _LONGEST_NAME else f"`…{shown[-_LONGEST_NAME:]}`"
