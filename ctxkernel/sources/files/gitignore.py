"""The entries that `.gitignore` files leave out of a folder: the rules of git, as far as files hold them.

Rule 1: of a file at most `FILE_BYTES` and `MOST_RULES` rules are read, each of at most `RULE_CHARS`; in a repository
        those of the folders above the one that is viewed count too, unless they leave out that one itself: then it was
        asked for.
Rule 2: names are matched segment by segment, without backtracking over them, whatever a rule has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice, pairwise

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.sources.base.file_reader import Gone, read_at, read_regular

FILE_BYTES = 64 << 10
MOST_RULES = 1_000
RULE_CHARS = 1_000
NAME = ".gitignore"
_ABOVE = 40  # folders that are looked through for the beginning of the repository
_PIECE = re.compile(
    r"\\(?P<plain>.)|(?P<class>\[(?P<not>[!^]?)(?P<body>\]?+(?:\\.|\[:\w*:\]|[^\]\\])*+)\])|.", re.DOTALL
)
_ITEM = re.compile(r"\[:(?P<named>\w*):\]|(?P<low>\\.|[^\\])(?:-(?P<high>\\.|[^\\]))?", re.DOTALL)
_NAMED = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r" \t-\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_NEVER = "(?!)"  # what git matches nothing with


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """One line of a `.gitignore`."""

    segments: tuple[re.Pattern[str] | None, ...]
    """One a part of a path; None for `**`, any number of parts."""
    folders_only: bool = False
    negated: bool = False
    """Whether it takes back what a rule before it left out."""

    def matches(self, parts: Sequence[str], folder: bool) -> bool:
        """Return whether it is about a path, given by its parts from the folder that the rule is in."""
        last = self.segments[-1]
        if (self.folders_only and not folder) or (last is not None and last.fullmatch(parts[-1]) is None):
            return False
        reached = {0}  # ends of the parts that the segments so far can stand for
        for at, segment in enumerate(self.segments):
            if segment is None:
                least = min(reached)
                # At its end ** stands for what is in a folder, not for the folder.
                reached = set(range(least + (at == len(self.segments) - 1), len(parts) + 1))
            else:
                reached = {end + 1 for end in reached if end < len(parts) and segment.fullmatch(parts[end])}
            if not reached:
                return False
        return len(parts) in reached


def rules_of(text: str) -> list[IgnoreRule]:
    """Return the rules of a `.gitignore`, in their order."""
    rules: list[IgnoreRule] = []
    for line in text.split("\n"):
        line = _trimmed(line.rstrip("\r"))
        if not line or line.startswith("#") or len(line) > RULE_CHARS:
            continue
        negated, line = line.startswith("!"), line.removeprefix("!")
        folders_only, line = line.endswith("/"), line.rstrip("/")
        parts = [part for part in line.split("/") if part]
        if not parts:
            continue
        if "/" not in line:  # anywhere below
            parts.insert(0, "**")
        segments = tuple(None if part == "**" else _segment(part) for part in parts)
        rules.append(IgnoreRule(segments, folders_only, negated))
        if len(rules) >= MOST_RULES:
            break
    return rules


def _trimmed(line: str) -> str:
    """Return a line without the spaces at its end, but for one that a backslash keeps."""
    bare = line.rstrip(" ")
    kept = bare != line and (len(bare) - len(bare.rstrip("\\"))) % 2
    return f"{bare} " if kept else bare


def _segment(part: str) -> re.Pattern[str]:
    """Return what matches the names that one part of a rule is about."""
    between = [""]  # the stars
    for piece in _PIECE.finditer(part):
        if piece[0] == "*":
            between.append("")
        elif piece[0] == "?":
            between[-1] += "."
        elif piece["class"]:
            between[-1] += _class(piece["body"], bool(piece["not"]))
        elif piece[0] in "[\\":  # neither has its end
            return re.compile(_NEVER)
        else:
            between[-1] += re.escape(piece["plain"] or piece[0])
    first, *middle, last = between if len(between) > 1 else (*between, None)
    # What stands between two stars is taken where it is found first, for good.
    stars = "".join(f"(?>.*?{one})" for one in middle if one) + ("" if last is None else f".*{last}")
    return re.compile(f"(?s:{first}{stars})")


def _class(body: str, negated: bool) -> str:
    """Return the pattern of one character of a class, `a-z_` or `[:alpha:]`."""
    found = ""
    for item in _ITEM.finditer(body):
        if item["named"] is not None:
            if item["named"] not in _NAMED:
                return _NEVER
            found += _NAMED[item["named"]]
            continue
        low, high = item["low"][-1], (item["high"] or item["low"])[-1]
        found += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
    return f"[{'^' * negated}{found}]" if found else "." if negated else _NEVER


class Rules:
    """The rules of one `.gitignore`, and the folder that it is in."""

    def __init__(self, folder: str, text: str) -> None:
        self._depth = len(_parts(folder))
        self._rules, self._about = _compiled(text)

    def verdict(self, parts: Sequence[str], folder: bool) -> bool | None:
        """Return whether a path is left out, or taken back; None where no rule is about it."""
        found = self._about.fullmatch(parts[-1])
        if found is None or found.lastindex is None:
            return None
        below, rules = parts[self._depth :], islice(self._rules, found.lastindex - 1, None)
        return next((not rule.negated for rule in rules if rule.matches(below, folder)), None)


@lru_cache(maxsize=64)
def _compiled(text: str) -> tuple[tuple[IgnoreRule, ...], re.Pattern[str]]:
    """Return the rules of a text, the last first, and a pattern: which of its groups has a name is that of the first
    rule that can be about it. Thousands of names, hundreds of rules: one look at a name is all that most cost.
    """
    rules = tuple(reversed(rules_of(text)))
    lasts = ("(?s:.*)" if rule.segments[-1] is None else rule.segments[-1].pattern for rule in rules)
    return rules, re.compile("|".join(f"({last})" for last in lasts))


@dataclass(frozen=True, slots=True)
class Ignoring:
    """The rules in force within a folder: those of each `.gitignore` on the way to it."""

    rules: tuple[Rules, ...] = ()
    files: tuple[str, ...] = ()
    """The `.gitignore` files above the folder that is viewed: whoever watches it watches these."""

    def within(self, folder: str) -> Ignoring:
        """Return these rules and those of the `.gitignore` in `folder`, an absolute path."""
        text = _read(os.path.join(folder, NAME))
        return Ignoring((*self.rules, Rules(folder, text)), self.files) if text else self

    def leaves_out(self, path: str, folder: bool) -> bool:
        """Return whether an absolute path is left out. Its own folder is taken not to be."""
        parts = _parts(path) if self.rules else ()
        verdicts = (rules.verdict(parts, folder) for rules in reversed(self.rules))
        return next((verdict for verdict in verdicts if verdict is not None), False)


def above(folder: str) -> Ignoring:
    """Return the rules of the repository that count in a folder before its own; none outside of one."""
    folders: list[str] = []
    at = folder
    for _ in range(_ABOVE):
        if os.path.lexists(os.path.join(at, ".git")):
            break
        parent = os.path.dirname(at)
        if parent == at:
            return Ignoring()
        folders.append(parent)
        at = parent
    else:
        return Ignoring()
    found = Ignoring(files=tuple(os.path.join(one, NAME) for one in reversed(folders)))
    for one, child in pairwise([*reversed(folders), folder]):
        found = found.within(one)
        if found.leaves_out(child, True):
            return Ignoring(files=found.files)
    return found


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split(os.sep) if part)


def _read(path: str) -> str:
    data = read_regular(path, lambda descriptor, _: read_at(descriptor, 0, FILE_BYTES))
    if isinstance(data, Gone):
        return ""
    if len(data) == FILE_BYTES:  # a part of a rule is another rule
        data = data.rpartition(b"\n")[0]
    return data.decode("utf-8-sig", "replace")
