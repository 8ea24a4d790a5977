"""The cause of a difference between two executions of one statement.

A cause is named only if there is evidence for it; otherwise it is empty.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import cast

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.value_difference import ValueDifference
from ctxkernel.replay.causes import NONE, Causes, Flow, flow, names_used


@dataclass(frozen=True, slots=True)
class Details:
    """Facts about the statement beyond its executions. Each may be left out; then fewer causes are named."""

    source: str = ""
    """The text that ran again."""
    old_source: str | None = None
    """The text that ran before, if it was another."""
    functions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sources of the functions and classes of the namespace that it may call."""
    meaning: Mapping[str, str] = field(default_factory=dict[str, str])
    """Dotted names that names of the namespace stand for: `np` → `numpy`."""
    upstream: Collection[str] = ()
    """Names whose values differed already before it ran; a mapping may give the causes."""
    generators: Collection[str] | None = None
    """Ambient parts (`random`, `numpy random`, `torch random`) that differed before it ran; None: not known."""
    environment: Sequence[str] = ()
    """Differences in the environment: `numpy 1.26 → 2.4`."""
    types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of the types of the names that it uses: `set`, `DataFrame`."""
    pending: Collection[str] = ()
    """Names of which it is not known yet whether the executions changed them."""
    equal: Callable[[str], bool | None] | None = None
    """Compares the values of a name after both, with the tolerance; it returns None if that cannot be told."""
    difference: Callable[[str], ValueDifference | None] | None = None
    """Returns how the values of a name after both differ; None if they are not available."""
    file: Callable[[str], ValueDifference] | None = None
    """Returns how the contents of a file that both wrote differ, or why they cannot be compared."""


_SET_REPR = re.compile(r"\{[^:{}]+(?:, [^:{}]+)+\}|frozenset\(")
_WORDS = re.compile(r"[^\s,\[\](){}]+")
_PARTS = {
    "random": ("random",),
    "numpy": ("numpy random", "numpy"),
    "torch": ("torch random", "torch"),
    "tensorflow": ("tensorflow",),
}


class CauseFinder:
    """Finds the causes of differences; `read_files` differ if the statement read a file that changed."""

    def __init__(self, details: Details) -> None:
        self._details = details
        self.read_files = False

    @cached_property
    def flow(self) -> Flow:
        """Which causes reach which names and outputs of the statement."""
        details = self._details
        return flow(
            details.source,
            functions=details.functions,
            meaning=details.meaning,
            upstream=tuple(details.upstream),
            sets=[name for name, kind in details.types.items() if kind in ("set", "frozenset")],
        )

    def cause(self, subject: str, text: tuple[str, str] | None = None) -> str:
        """Return the cause of a difference: `subject` is a name, `printed`, `result`, `file` or `error`."""
        details = self._details
        if details.old_source is not None and details.old_source != details.source:
            return "edited"
        found = self._reaching(subject)
        if self.read_files and ("file" in found or not found):
            return "file"
        if self._is_unseeded(found):
            return "seed"
        if text is not None and _is_permuted(*text) and ("set order" in found or _SET_REPR.search(text[0])):
            return "set order"
        held = details.upstream
        upstream = cast("Mapping[str, str]", held) if isinstance(held, Mapping) else dict[str, str]()
        roots = {cause for cause in upstream.values() if cause} if "upstream" in found else set[str]()
        for cause in ("clock", "network", "input"):
            if cause in found and (not roots or cause in roots):
                return cause
        for cause in ("upstream", "set order", "address", "threads", "environment", "file"):
            if cause in found:
                return cause
        return "environment" if details.environment else ""

    def _reaching(self, subject: str) -> Causes:
        """Return the causes that reach the subject; those of the whole cell if it cannot be followed."""
        everything = self.flow.anything
        if set(self._details.upstream) & names_used(self._details.source):
            everything |= {"upstream"}
        match subject:
            case "printed":
                found = self.flow.printed | self.flow.result
            case "result":
                found = self.flow.result
            case "file" | "error":
                found = everything
            case _:
                found = self.flow.names.get(subject, NONE)
        # If nothing is known to reach it, a function may have made it; but not so a set that is only counted.
        return found or everything - {"set order", "address"}

    def _is_unseeded(self, found: Causes) -> bool:
        """Return whether an unseeded generator reaches the subject: a new one, or one whose state differed."""
        generators = self._details.generators
        names = [cause.removeprefix("seed:") for cause in found if cause.startswith("seed:")]
        if generators is None:
            return bool(names)
        return any(name == "entropy" or set(_PARTS.get(name, ())) & set(generators) for name in names)


def _is_permuted(before: str, after: str) -> bool:
    return before != after and Counter(_WORDS.findall(before)) == Counter(_WORDS.findall(after))
