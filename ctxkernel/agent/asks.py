"""An ask: what the user wants of the model, under which bounds, and what it has cost so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ctxkernel.core.text import format_duration, plural
from ctxkernel.projection.displayed_tokens import tokens_in, usage_count
from ctxkernel.projection.prices import cost_of_usage

Mode = Literal["ask", "auto", "off"]
EndKind = Literal["answered", "parked", "bound", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where an ask ends, answered or not. 0 is no bound."""

    rounds: int = 0
    tokens: int = 0
    """In and out, cached or not, of all rounds."""
    usd: float = 0.0
    seconds: float = 0.0
    """Of the model's time and that of its cells; waiting for a person does not count."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the model."""

    execution_id: str
    """Of the statement that asked."""
    question: str
    key: str
    """Its position among the asks that lead to it, and a hash of the question: what recorded turns are found by."""
    model: str
    mode: Mode
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Spent:
    """What an ask, or a session, has cost."""

    requests: int = 0
    tokens_in: int = 0
    cached: int = 0
    """Tokens of those in that were read from the provider's cache."""
    tokens_out: int = 0
    usd: float | None = 0.0
    """None where the price of a model is not known."""
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        names = ("requests", "tokens_in", "cached", "tokens_out", "seconds")
        return Spent(usd=usd, **{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.tokens_in + self.tokens_out

    def told(self) -> str:
        """Return it in a line for a person."""
        many, took = plural(self.requests, "requests"), format_duration(self.seconds)
        cached = f", {self.cached * 100 // self.tokens_in} % cached" if self.tokens_in and self.cached else ""
        cost = "price not known" if self.usd is None else f"${self.usd:.4f}" if self.usd < 1 else f"${self.usd:.2f}"
        return f"{many}, {self.tokens_in:,} tokens in{cached}, {self.tokens_out:,} out, {cost}, {took}"


NOTHING = Spent()


def spent_on(model: str, usage: Mapping[str, Any], seconds: float) -> Spent:
    """Return what one answered request has cost, by its usage."""
    cost = cost_of_usage(model, usage)
    return Spent(
        1,
        tokens_in(usage) or 0,
        usage_count(usage, "cache_read_input_tokens") or 0,
        usage_count(usage, "output_tokens") or 0,
        cost.usd if cost is not None else None,
        seconds,
    )


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run of a turn ended, and what the user is told of it."""

    kind: EndKind
    told: str = ""


def reached(bounds: Bounds, spent: Spent, seconds: float) -> str:
    """Return which bound an ask has come to, with what the user can do; empty where none is reached."""
    go_on = "ask it to go on in a new %%ask, or give more"
    if bounds.rounds and spent.requests >= bounds.rounds:
        return f"stopped after {spent.requests} rounds (--max-turns {bounds.rounds}); {go_on}"
    if bounds.tokens and spent.tokens >= bounds.tokens:
        return f"stopped at {spent.tokens:,} tokens (the bound is {bounds.tokens:,}); {go_on}"
    if bounds.usd and (spent.usd or 0.0) >= bounds.usd:
        return f"stopped at ${spent.usd:.4f} (the bound is ${bounds.usd:g}); {go_on}"
    if bounds.seconds and seconds >= bounds.seconds:
        return f"stopped after {seconds:.0f} s (the bound is {bounds.seconds:g} s); {go_on}"
    return ""


def with_mode(ask: Ask, mode: Mode) -> Ask:
    """Return the ask in another mode."""
    return dataclasses.replace(ask, mode=mode)
