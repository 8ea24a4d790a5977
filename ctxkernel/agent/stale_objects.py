"""Find objects used by a model's cell that changed since the model last saw them.

Rule 1: pure: the changes since the last request are plain values.
Rule 2: in doubt an object counts as used: a name wherever the cell, or a function in it, mentions it; a file if a
        string of the cell could be the end of its path. A cell that cannot be parsed uses every word in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.state.tracking.cell_names import Transform, names_used, syntax_tree

How = Literal["changed", "deleted", "added"]


@dataclass(frozen=True, slots=True)
class StaleObject:
    """An object that differs from what the model saw."""

    kind: Literal["variable", "file"]
    name: str
    """Name of a variable, absolute path of a file."""
    how: How
    by: str = ""
    """The statement that changed it; empty if unknown, as for a file that changed on disk."""
    handles: tuple[str, ...] = ()
    """The names of the handles that show a file."""


def find_stale(
    code: str, changed: Iterable[StaleObject], *, transform: Transform | None = None
) -> tuple[StaleObject, ...]:
    """Return the changed objects that `code` uses, variables first, by name; if there are none, it may be run.

    `transform` is IPython's rewriting of a cell into plain Python.
    """
    objects = sorted(changed, key=lambda one: (one.kind == "file", one.name))
    used = names_used(code, transform) if objects else frozenset[str]()
    texts = [_parts(text) for text in _texts(code)] if objects and objects[-1].kind == "file" else []
    return tuple(one for one in objects if _is_used(one, used, texts))


def _is_used(one: StaleObject, used: AbstractSet[str], texts: Sequence[Sequence[str]]) -> bool:
    if one.kind == "variable":
        return one.name in used
    whole = _parts(one.name)
    return not used.isdisjoint(one.handles) or any(text and whole[-len(text) :] == text for text in texts)


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
