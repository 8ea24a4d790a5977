"""What `.gitignore` files leave out of a folder: the rules of git, as far as files say them.

Rule 1: of a file at most `FILE_BYTES` and `MOST_RULES` rules are read; in a repository those of the folders above the
        one that is viewed count too, unless they leave out that one itself: then it was asked for.
Rule 2: names are matched segment by segment, without backtracking over them, whatever a rule has.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from ctxkernel.sources.reading import Gone, open_regular, read_at

FILE_BYTES = 64 << 10
MOST_RULES = 1_000
NAME = ".gitignore"
_ABOVE = 40  # folders that are looked through for the beginning of the repository


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a `.gitignore`."""

    segments: tuple[re.Pattern[str] | None, ...]
    """One a part of a path; None for `**`, any number of parts."""
    folders_only: bool = False
    negated: bool = False
    """Whether it takes back what a rule before it left out."""

    def matches(self, parts: Sequence[str], folder: bool) -> bool:
        """Say whether it is about a path, given by its parts from the folder that the rule is in."""
        if self.folders_only and not folder:
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


def rules_of(text: str) -> list[Rule]:
    """Return the rules of a `.gitignore`, in their order."""
    rules: list[Rule] = []
    for line in text.split("\n"):
        line = re.sub(r"(?<!\\) +$", "", line.rstrip("\r"))
        if not line or line.startswith("#"):
            continue
        negated, line = line.startswith("!"), line.removeprefix("!")
        folders_only, line = line.endswith("/"), line.rstrip("/")
        parts = [part for part in line.split("/") if part]
        if not parts:
            continue
        if "/" not in line:  # anywhere below
            parts.insert(0, "**")
        segments = tuple(None if part == "**" else _segment(part) for part in parts)
        rules.append(Rule(segments, folders_only, negated))
        if len(rules) >= MOST_RULES:
            break
    return rules


def _segment(part: str) -> re.Pattern[str]:
    # What follows a backslash is meant as it is; a class of one character says so to fnmatch.
    plain = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], part)
    return re.compile(fnmatch.translate(plain))


class Rules:
    """The rules of one `.gitignore`, and the folder that it is in."""

    def __init__(self, folder: str, text: str) -> None:
        self._depth = len(_parts(folder))
        self._rules, self._maybe = _compiled(text)

    def verdict(self, parts: Sequence[str], folder: bool) -> bool | None:
        """Say whether a path is left out, or taken back; None where no rule is about it."""
        if self._maybe is not None and self._maybe.fullmatch(parts[-1]) is None:
            return None
        below = parts[self._depth :]
        return next((not rule.negated for rule in reversed(self._rules) if rule.matches(below, folder)), None)


@lru_cache(maxsize=64)
def _compiled(text: str) -> tuple[tuple[Rule, ...], re.Pattern[str] | None]:
    """Return the rules of a text, and a pattern of the names that any can be about; None where that is any name."""
    rules = tuple(rules_of(text))
    lasts = [rule.segments[-1] for rule in rules]
    # Thousands of names, hundreds of rules: most are about none of them, which one look at the name tells.
    names = dict.fromkeys(last.pattern for last in lasts if last is not None)
    return rules, re.compile("|".join(names)) if names and None not in lasts else None


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
        """Say whether an absolute path is left out. Its own folder is taken not to be."""
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
    opened = open_regular(path)
    if isinstance(opened, Gone):
        return ""
    try:
        return read_at(opened[0], 0, FILE_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return ""
    finally:
        os.close(opened[0])
