"""Which cells are pure commands that only read (law 8: they leave no statement and never branch)."""

from __future__ import annotations

import re

READING = frozenset(
    (
        *("status", "timeline", "projection", "why", "whatif", "help", "show", "panel", "branches", "diff", "cost"),
        "summaries",
    )
)
"""Subcommands of `%ctx` that change nothing."""
MOVING = frozenset(("goto", "undo", "rerun", "resume"))
"""Subcommands that fill a whole cell: they move HEAD, and may run other cells."""
DECIDING = frozenset(("approve", "edit", "reject", "stop"))
"""Subcommands that say what becomes of a cell that the model proposed."""
HANDLING = frozenset(("set", "refresh"))
"""Subcommands that do to a handle what a cell could: they are run again as one."""

_COMMAND = re.compile(r"%ctx(?:\s+(?P<sub>[\w-]+))?(?:\s|\?|$)")


def only_reads(code: str) -> bool:
    """Whether every line of `code` that is no comment is a `%ctx` command that only reads."""
    if "%ctx" not in code:
        return False
    seen = False
    for line in code.splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _COMMAND.match(text)
        if match is None or not (
            text.endswith("?")
            or (match["sub"] or "help") in READING
            or _DRY.search(text)
            or _LOOKS.match(_QUOTED.sub("", text))
            or _ASKS.fullmatch(text)
        ):
            return False
        seen = True
    return seen


def only_commands(code: str) -> bool:
    """Whether every line of `code` that is no comment is a `%ctx` command."""
    lines = [text for line in code.splitlines() if (text := line.strip()) and not text.startswith("#")]
    return bool(lines) and all(_COMMAND.match(text) for text in lines)


def on_handles(code: str) -> bool:
    """Whether a line of `code` is a command that does to a handle what a cell could."""
    matches = (_COMMAND.match(line.strip()) for line in code.splitlines())
    return "%ctx" in code and any(match is not None and match["sub"] in HANDLING for match in matches)


_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*\"""")
"""What a person quotes is a text, whatever it looks like."""
_ASKS = re.compile(r"%ctx\s+(?:config(?:\s+[\w-]+)?|properties|model|mode|private)(?:\s+#.*)?")
_LOOKS = re.compile(r"%ctx\s+(?:condense|redact)\s(?!(?:.*\s)?--undo(?:\s|$))(?:.*\s)?--(?:show|list)(?:\s|$)")
_DRY = re.compile(rf"%ctx\s+(?:{'|'.join(sorted(MOVING))})\s(?:.*\s)?--dry-run(?:\s|$)")


def moves_head(code: str) -> bool:
    """Whether `code` is one `%ctx` command that moves HEAD, and nothing else but comments."""
    if "%ctx" not in code:
        return False
    lines = [text for line in code.splitlines() if (text := line.strip()) and not text.startswith("#")]
    match = _COMMAND.match(lines[0]) if len(lines) == 1 else None
    return match is not None and match["sub"] in MOVING


def asks(code: str) -> bool:
    """Whether a cell asks the model, or decides on what it proposed: it runs nothing itself."""
    if code.lstrip().startswith(("%%ask", "%ask ", "%%ctx edit")):
        return True
    match = _COMMAND.match(code.strip())
    return match is not None and match["sub"] in DECIDING
