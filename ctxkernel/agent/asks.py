"""An ask: the question to a model, its bounds, and its cost so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ctxkernel.core.text import format_duration, plural
from ctxkernel.projection.displayed_tokens import Anchor, tokens_in, usage_count
from ctxkernel.projection.prices import cost_of_usage

Mode = Literal["ask", "auto", "off"]
EndKind = Literal["answered", "parked", "bound", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds at which an ask ends, answered or not. 0 is no bound."""

    rounds: int = 0
    tokens: int = 0
    """In and out, cached or not, of all rounds."""
    usd: float = 0.0
    seconds: float = 0.0
    """Time of the model and of its cells, without the time that it waits for a person."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to the model."""

    execution_id: str
    """Execution of the statement that asked."""
    question: str
    key: str
    """Position among the asks on the path, and a hash of the question: recorded turns are found by it."""
    model: str
    mode: Mode
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of an ask, or of a session."""

    requests: int = 0
    tokens_in: int = 0
    cached: int = 0
    """Input tokens that were read from the provider's cache."""
    tokens_out: int = 0
    usd: float | None = 0.0
    """None if the price of a model is not known."""
    seconds: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        names = ("requests", "tokens_in", "cached", "tokens_out", "seconds")
        return Spent(usd=usd, **{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.tokens_in + self.tokens_out

    def text(self) -> str:
        """Return one line for a person."""
        cached = f", {self.cached * 100 // self.tokens_in} % cached" if self.tokens_in and self.cached else ""
        cost = "price not known" if self.usd is None else f"${self.usd:.4f}" if self.usd < 1 else f"${self.usd:.2f}"
        return (
            f"{plural(self.requests, 'requests')}, {self.tokens_in:,} tokens in{cached}, {self.tokens_out:,} out, "
            f"{cost}, {format_duration(self.seconds)}"
        )


NOTHING = Spent()


@dataclass(slots=True)
class Account:
    """The requests of one kernel to models, and their cost."""

    spent: dict[str, Spent] = field(default_factory=dict[str, Spent])
    """Cost by model; summaries have rows of their own."""
    sent: bool = False
    """Whether this kernel has sent anything to a model."""
    consented: bool = False
    """Whether the user agreed to the first request."""
    anchor: Anchor | None = None
    """Ratio of the last answer's usage to the estimate; None before the first answer."""

    def add(self, name: str, spent: Spent) -> None:
        """Add the cost of a request."""
        self.spent[name] = self.spent.get(name, NOTHING) + spent


def spent_on(model: str, usage: Mapping[str, Any], seconds: float) -> Spent:
    """Return the cost of one answered request, by its usage."""
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
class AskEnding:
    """How a run of a turn ended, with a text for the user."""

    kind: EndKind
    text: str = ""


def reached_bound(bounds: Bounds, spent: Spent, seconds: float) -> str:
    """Return a text about the bound that an ask has reached, with the next step; empty if none is reached."""
    limits = (
        (bounds.rounds, spent.requests, f"after {spent.requests} rounds (--max-turns {bounds.rounds})"),
        (bounds.tokens, spent.tokens, f"at {spent.tokens:,} tokens (the bound is {bounds.tokens:,})"),
        (bounds.usd, spent.usd or 0.0, f"at ${spent.usd or 0.0:.4f} (the bound is ${bounds.usd:g})"),
        (bounds.seconds, seconds, f"after {seconds:.0f} s (the bound is {bounds.seconds:g} s)"),
    )
    text = next((text for bound, used, text in limits if bound and used >= bound), "")
    return f"stopped {text}; ask it to go on in a new %%ask, or give more" if text else ""
