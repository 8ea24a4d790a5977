"""The policy of handles: level, budget, frequency. Errors say what to use instead."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from ctxkernel.core.dataclasses import dataclass
from ctxkernel.core.errors import BadPolicy
from ctxkernel.core.ports import AllTokens, Budget
from ctxkernel.core.timeline_events import Json

Mode = Literal["paused", "running"]
LODS = {0: "raw excerpt", 1: "structure", 2: "summary", 3: "diff"}


@dataclass(frozen=True, slots=True)
class Sync:
    """Updated once a turn."""

    def __str__(self) -> str:
        return "Sync"


@dataclass(frozen=True, slots=True)
class Periodic:
    """Updated at the first tick at which `seconds` have passed since the last update."""

    seconds: float

    def __str__(self) -> str:
        return f"Periodic({self.seconds:g})"


@dataclass(frozen=True, slots=True)
class Async:
    """Prepared in the background, applied by the tick."""

    def __str__(self) -> str:
        return "Async"


Freq = Sync | Periodic | Async
PERIODIC_SECONDS = 60.0
"""The period of `freq="Periodic"`, which names none (seed 002 §4.3)."""


def parse_freq(freq: object) -> Freq:
    """Return the frequency for "Sync", "Async", "Periodic", ("Periodic", s), "Periodic(s)", or one as it is.

    "Periodic" alone has a period of a minute. Raises BadPolicy for anything else, and for a period that is not
    above 0 seconds.
    """
    if isinstance(freq, Periodic):
        return parse_freq(("Periodic", freq.seconds))
    if isinstance(freq, Sync | Async):
        return freq
    if isinstance(freq, str):
        name = freq.strip()
        if name.lower() == "sync":
            return Sync()
        if name.lower() == "async":
            return Async()
        if name.lower() == "periodic":
            return Periodic(PERIODIC_SECONDS)
        if name.lower().startswith("periodic(") and name.endswith(")"):
            freq = ("Periodic", name[len("periodic(") : -1])
    pair = list(cast("Sequence[Any]", freq)) if isinstance(freq, tuple | list) else []
    if len(pair) == 2 and str(pair[0]).lower() == "periodic":
        try:
            seconds = float(pair[1])
        except (TypeError, ValueError):
            seconds = 0.0
        if seconds > 0:
            return Periodic(seconds)
    raise BadPolicy(f'freq={freq!r} is not known; use "Sync", "Periodic", ("Periodic", seconds above 0) or "Async"')


def parse_lod(lod: object) -> int:
    """Return a level of detail, 0 to 3. Raises BadPolicy."""
    if isinstance(lod, int) and not isinstance(lod, bool) and lod in LODS:
        return lod
    ladder = ", ".join(f"{level} {name}" for level, name in LODS.items())
    raise BadPolicy(f"lod={lod!r} is not a level of detail; use {ladder}")


def parse_tokens(tokens: object) -> Budget:
    """Return a token budget: an int from 1, or `All`. Raises BadPolicy."""
    if isinstance(tokens, AllTokens):
        return tokens
    if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 1:
        return tokens
    raise BadPolicy(f"tokens={tokens!r} is not a budget; use a whole number from 1, or All")


def parse_interval(turns: object) -> int:
    """Return a number of turns, from 1. Raises BadPolicy."""
    if isinstance(turns, int) and not isinstance(turns, bool) and turns >= 1:
        return turns
    raise BadPolicy(f"min_turn_interval={show_value(turns)!r} is not a number of turns; use a whole number from 1")


def digest_hash(digest: Mapping[str, Json]) -> str:
    """Return 16 hex digits that differ where the digest differs."""
    text = json.dumps(digest, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Identified:
    """A base for nodes: events name them by `obj_id`."""

    obj_id: str = ""


def show_value(value: object) -> Json:
    """Return an argument as a short JSON value for an event."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= 200 else value[:199] + "…"
    if isinstance(value, Identified):
        return value.obj_id
    if isinstance(value, AllTokens | Sync | Periodic | Async):
        return str(value)
    if isinstance(value, tuple | list):
        return [show_value(item) for item in cast("Sequence[object]", value)[:20]]
    if isinstance(value, re.Pattern):
        return f"/{cast('re.Pattern[Any]', value).pattern!s}/"[:200]
    return f"<{type(value).__name__}>"  # not the repr of an unknown object: it may take minutes


def parse_pos(pos: object) -> str:
    """Return a position as text. Raises BadPolicy.

    A line from 0, "line", "line:col", a line from the end (-20, "end"), a name, a pattern (`re.compile(…)` or "/…/"),
    or a token from a rendering.
    """
    if isinstance(pos, int) and not isinstance(pos, bool):
        return f"{pos}:0" if pos >= 0 else str(pos)
    if isinstance(pos, str) and pos.strip():
        return pos.strip()
    if isinstance(pos, re.Pattern):
        return pattern_text(cast("re.Pattern[Any]", pos))
    raise BadPolicy(
        f'pos={show_value(pos)!r} is not a position; use a line number from 0, "line:col", "end", a name such as '
        f'"Model.fit", or a pattern such as "/def fit/"'
    )


def pattern_text(pattern: re.Pattern[Any]) -> str:
    """Return a compiled pattern as "/…/" with its flags. Raises BadPolicy for a pattern of bytes."""
    if not isinstance(pattern.pattern, str):
        raise BadPolicy("a pattern for a position is one of text, re.compile(r'…'), not of bytes")
    flags = "".join(flag for flag in "aisx" if pattern.flags & re.RegexFlag[flag.upper()])
    return f"/{pattern.pattern}/{flags}"


ALIASES = {
    "GetDigest": "digest",
    "Render": "render",
    "SetLod": "set_lod",
    "SetTokens": "set_tokens",
    "SetPos": "set_pos",
    "Scroll": "scroll",
    "Refresh": "refresh",
    "Run": "run",
    "Pause": "pause",
    "Tick": "tick",
    "History": "history",
    "Add": "add",
    "Remove": "remove",
    "OnMemberChanged": "on_member_changed",
}
"""The CamelCase names of seed 002, each an alias of one method."""
