"""Handles on a line: the meaning of `%view` and `%group` lines, and completion where a handle is created or used.

Rule 1: a word of a `%view` line that is a variable means its value, any other word means itself. A word of a `%group`
line is the name or the id of a handle.
Rule 2: completion runs no code of the user's: names come from the namespace, paths from a folder listing.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from ctxkernel.core.errors import BadCommand
from ctxkernel.core.nodes import NodeBase
from ctxkernel.core.ports import All
from ctxkernel.core.text import suggest
from ctxkernel.kernel.commands.context import CommandContext
from ctxkernel.kernel.display.handle_widgets import require_handle

OPTIONS = ("pos", "tokens", "lod", "mode", "freq")
KEYWORDS = {
    "view": OPTIONS,
    "group": OPTIONS[1:],
    "note": ("text", "tokens", "lod", "pinned"),
    "show": ("lod", "tokens"),
    "pin": ("reason",),
    "run": ("freq",),
    "scroll": ("delta_lines", "delta_tokens"),
}
"""Function or method → its keyword arguments."""
VALUES = {
    "lod": ("0", "1", "2", "3"),
    "mode": ("paused", "running"),
    "freq": ("Sync", "Async", "Periodic", "Periodic(60)"),
    "tokens": ("All", "300", "1000", "4000"),
    "pinned": ("True", "False"),
}
_INTERNAL = frozenset((
    "aliases", "apply", "basis", "blank", "changed_in", "fault", "graph", "last_tick_time", "lasting", "listens",
    "look_again", "looks_at", "memento", "nested", "on_member_changed", "job", "jobs", "serial", "settable", "shows",
    "since", "stale", "stamps", "statement_id", "take",
))  # fmt: skip
"""Attributes of a handle that only the loop uses."""
_MOST = 100
_LINE = re.compile(r"^\s*(?:[\w.\[\], ]+=\s*)?%(view|group)\s+(.*)$")
_CALL = re.compile(r"(?:\b|\.)(view|group|note|show|pin|set|run|scroll)\(([^()]*)$")
_VALUE = re.compile(r"\b(\w+)\s*=\s*([\"']?)([\w(]*)$")
_POS = re.compile(r"\bpos\s*=\s*([\"']?)([^\"']*)$")
_ASSIGNED = re.compile(r"(?:^|[^\w.\"'])([A-Za-z_]\w*)\.pos\s*=\s*([\"']?)([^\"']*)$")
_FIRST = re.compile(r"\s*(?:target\s*=\s*)?(?:([A-Za-z_]\w*)|\"([^\"\\]*)\"|'([^'\\]*)')\s*,")
_OPTION = re.compile(r"--pos(?:\s+|=)([\"']?)([^\"']*)$")
_ATTRIBUTE = re.compile(r"(?:^|[^\w.\"'])([A-Za-z_]\w*)\.(\w*)$")


def handle_line(ctx: CommandContext, magic: str, line: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments and keywords of `view` or `group` for a `%view` or `%group` line. Raises BadCommand."""
    options = KEYWORDS[magic]
    usage = f"%{magic} {'TARGET' if magic == 'view' else 'HANDLE …'} [--{' X] [--'.join(options)} X]"
    try:
        words = shlex.split(line)
    except ValueError as fault:
        raise BadCommand(f"%{magic} {line}: {fault}; close the quotation mark") from None
    values: list[Any] = []
    given: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            values.append(
                ctx.shell.user_ns.get(word, word)
                if magic == "view"
                else require_handle(ctx.loop, ctx.shell.user_ns, word, "%group")
            )
            continue
        name, sign, text = word[2:].partition("=")
        if name not in options:
            raise BadCommand(f"%{magic} has no option --{name}{suggest(name, options)}; {usage}")
        if not sign:
            if not words:
                raise BadCommand(f"%{magic} --{name}: a value is missing; {usage}")
            text = words.pop(0)
        is_number = name in ("tokens", "lod") and text.lstrip("-").isdigit()
        given[name] = All if text == "All" else int(text) if is_number else text
    if not values or (magic == "view" and len(values) > 1):
        raise BadCommand(f"%{magic} takes {'one target' if magic == 'view' else 'at least one handle'}; {usage}")
    return values, given


def following(ctx: CommandContext, line: str, token: str) -> tuple[list[str], bool]:
    """Return the completions of `token` at the end of `line`, and whether nothing else fits there."""
    if line.lstrip().startswith("%ctx "):
        return [], False
    if (magic := _LINE.match(line)) is not None:
        return _of_line(ctx, magic[1], magic[2], token), True
    if (given := _ASSIGNED.search(line)) is not None and isinstance(node := _value(ctx, given[1]), NodeBase):
        return _places(node, given[2], given[3], token), True
    if (call := _CALL.search(line)) is not None:
        return _of_call(ctx, call[1], call[2], token, line[: call.start()])
    if (used := _ATTRIBUTE.search(line)) is not None and isinstance(node := _value(ctx, used[1]), NodeBase):
        # Jedi cannot evaluate the annotations of a handle.
        begun = f"{used[1]}.{used[2]}" if token.endswith(f".{used[2]}") else used[2]
        head = begun[: len(begun) - len(used[2])]
        return [head + name for name in handle_attributes(node, used[2])], True
    return [], False


def handle_attributes(node: NodeBase, begun: str) -> list[str]:
    """Return the public attributes of a handle with a prefix; the CamelCase spellings for a capital letter only."""
    known = dir(type(node))
    names = [name for name in known if name[:1] != "_" and name not in _INTERNAL and name.startswith(begun)]
    return [name for name in names if name[:1].islower() or begun[:1].isupper()]


def _of_line(ctx: CommandContext, magic: str, rest: str, token: str) -> list[str]:
    from ctxkernel.kernel.commands.position_names import fitting, place_names

    before = rest[: len(rest) - len(token)]
    if magic == "view" and (at := _OPTION.search(rest)) is not None and (at[1] or " " not in at[2]):
        target = _target_of(ctx, rest[: at.start()])
        return [] if target is None else fitting(place_names(target), at[2], token, at[1])
    option = re.search(r"--(\w+)(?:\s+|=)[\"']?$", before)
    if option is not None and option[1] in KEYWORDS[magic]:
        return _fitting(VALUES.get(option[1], ()), token)
    if token.startswith("-"):
        used = set(re.findall(r"--(\w+)", before))
        return _fitting([f"--{name}" for name in KEYWORDS[magic] if name not in used], token)
    names = _handles(ctx) if magic == "group" else variable_names(ctx)
    if magic == "group":
        return _fitting(names, token)
    quoted = bool(rest.count('"') % 2 or rest.count("'") % 2)
    return [*(_fitting(names, token) if token and not quoted else []), *_paths(rest, token)]


def _of_call(ctx: CommandContext, name: str, inside: str, token: str, before: str) -> tuple[list[str], bool]:
    quote = re.search(r"^\s*([\"'])([^\"']*)$", inside)
    if quote is not None:
        return (_paths(quote[0].lstrip(), token), True) if name == "view" else ([], False)
    if name in ("view", "set") and (at := _POS.search(inside)) is not None:
        target = _first_of(ctx, inside) if name == "view" else _node_before(ctx, before)
        return ([], False) if target is None else (_places(target, at[1], at[2], token), True)
    value = _VALUE.search(inside)
    if value is None and (inside.count('"') % 2 or inside.count("'") % 2):
        return [], False  # within a text
    if value is not None and value[1] in VALUES:
        known = VALUES[value[1]]
        if value[2] or value[1] in ("lod", "tokens", "pinned"):
            return _fitting(known, value[3]), True
        return [f'"{one}"' for one in _fitting(known, value[3])], True
    keywords: Iterable[str] = KEYWORDS.get(name, ())
    if name == "set":
        node = _node_before(ctx, before)
        if node is None:
            return [], False
        keywords = sorted(node.settable())
    found = _fitting([f"{keyword}=" for keyword in keywords if f"{keyword}=" not in inside], token)
    if name == "group":
        found = [*_fitting(_handles(ctx), token), *found]
    return found, False


def _node_before(ctx: CommandContext, before: str) -> NodeBase | None:
    node = _value(ctx, before.rpartition(" ")[2].rpartition("=")[2].rstrip("."))
    return node if isinstance(node, NodeBase) else None


def _places(target: object, quote: str, begun: str, token: str) -> list[str]:
    """Return the named positions of a target, as Python strings if no quotation mark is open."""
    from ctxkernel.kernel.commands.position_names import fitting, place_names, quoted

    if quote:
        return fitting(place_names(target), begun, token, quote)
    return [] if begun.strip() else quoted(place_names(target))


def _first_of(ctx: CommandContext, inside: str) -> object:
    """Return the value of a call's first argument; None if it is neither a name nor a plain string."""
    first = _FIRST.match(inside)
    if first is None:
        return None
    return _value(ctx, first[1]) if first[1] else first[2] or first[3]


def _target_of(ctx: CommandContext, line: str) -> object:
    """Return the target of a `%view` line; None if it has none yet."""
    try:
        return handle_line(ctx, "view", line)[0][0]
    except BadCommand:
        return None


def _fitting(known: Iterable[str], begun: str) -> list[str]:
    return [one for one in known if one.startswith(begun)]


def _handles(ctx: CommandContext) -> list[str]:
    return [state.name for state in ctx.loop.ls()]


def variable_names(ctx: CommandContext) -> list[str]:
    """Return the names of the user's variables."""
    return sorted(name for name in ctx.shell.user_ns if not name.startswith("_") and not is_hidden(ctx, name))


def is_hidden(ctx: CommandContext, name: str) -> bool:
    """Return whether a variable is the shell's: it has the value that the shell gave it."""
    hidden = ctx.shell.user_ns_hidden
    return name in hidden and ctx.shell.user_ns.get(name) is hidden[name]


def _value(ctx: CommandContext, name: str) -> object:
    return ctx.shell.user_ns.get(name)


def _paths(text: str, token: str) -> list[str]:
    """Return the completions of `token` in a path, quoted if necessary."""
    open_quote = re.search(r"([\"'])([^\"']*)$", text) if text.count('"') % 2 or text.count("'") % 2 else None
    begun = open_quote[2] if open_quote is not None else token
    kept = len(begun) - len(token)  # a token ends at a space, a path does not
    paths = paths_from(begun)
    if open_quote is not None:
        return [path[kept:] for path in paths]
    return [shlex.quote(path) if " " in path else path for path in paths]


def paths_from(begun: str) -> Sequence[str]:
    """Return at most 100 paths with a prefix; folders end with a slash."""
    home = os.path.expanduser(begun)
    paths = sorted(glob.glob(glob.escape(home) + "*"))[:_MOST]
    return [begun + path[len(home) :] + ("/" if os.path.isdir(path) else "") for path in paths]
